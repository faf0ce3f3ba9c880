/* table.c - Kernel Tuner's caches and T4 results as sites of a strategy.
 *
 * Both formats say what was tried, not what space it came from: the values of
 * a parameter are those that occur, numbers in their order, words in theirs.
 * Times are milliseconds in a cache; T4 says the unit of each measurement.
 */
#include "tuner/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

bool cuvil_table_is(const json_t *file) {
  if (json_is_object(json_object_get(file, "cache")) &&
      json_is_array(json_object_get(file, "tune_params_keys")))
    return true;
  const json_t *cuvil =
      json_object_get(json_object_get(file, "metadata"), "cuvil");
  return json_is_string(json_object_get(file, "schema_version")) &&
         json_is_array(json_object_get(file, "results")) && !cuvil;
}

void cuvil_table_free(struct cuvil_table *table) {
  for (int i = 0; table->configs && i < table->count; i++)
    free(table->configs[i]);
  free(table->kernel);
  free(table->device);
  free(table->size);
  free(table->sites);
  free(table->configs);
  free(table->seconds);
  free(table->cost);
  *table = (struct cuvil_table){0};
}

/* ---- values of parameters */
struct params {
  int count;
  const char *names[CUVIL_MAX_PARAMS]; /* borrowed from the file */
  json_t *values[CUVIL_MAX_PARAMS];    /* owned arrays of what occurs */
};

static void free_params(struct params *params) {
  for (int p = 0; p < params->count; p++)
    json_decref(params->values[p]);
}

static enum cuvil_status add_param(struct params *params, const char *name,
                                   const char *origin) {
  if (params->count == CUVIL_MAX_PARAMS)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "%s: more than %d parameters", origin,
                      CUVIL_MAX_PARAMS);
  params->names[params->count] = name;
  params->values[params->count] = json_array();
  if (!params->values[params->count++])
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: memory is used up", origin);
  return CUVIL_OK;
}

static int compare(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) {
    double x = json_number_value(a), y = json_number_value(b);
    return (x > y) - (x < y);
  }
  if (json_is_string(a) && json_is_string(b))
    return strcmp(json_string_value(a), json_string_value(b));
  return (int)json_typeof(a) - (int)json_typeof(b);
}

/* Into its place in the order; *out: where it is. */
static enum cuvil_status place_value(json_t *values, json_t *value,
                                     const char *origin) {
  size_t low = 0, high = json_array_size(values);
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = compare(value, json_array_get(values, middle));
    if (order == 0) return CUVIL_OK;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  if (json_array_size(values) == 255)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "%s: a parameter of more than 255 values", origin);
  if (json_array_insert(values, low, value) != 0)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: memory is used up", origin);
  return CUVIL_OK;
}

static int digit_of(const json_t *values, const json_t *value) {
  int low = 0, high = (int)json_array_size(values);
  while (low < high) {
    int middle = (low + high) / 2;
    int order = compare(value, json_array_get(values, (size_t)middle));
    if (order == 0) return middle;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return 0; /* every value was placed */
}

static enum cuvil_status each_value(const struct params *params,
                                    const json_t *configuration,
                                    const char *origin) {
  for (int p = 0; p < params->count; p++) {
    json_t *value = json_object_get(configuration, params->names[p]);
    if (!json_is_number(value) && !json_is_string(value) &&
        !json_is_boolean(value))
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "%s: \"%s\" is no number, word or truth value", origin,
                        params->names[p]);
    CUVIL_TRY(place_value(params->values[p], value, origin));
  }
  return CUVIL_OK;
}

static void print_value(const json_t *value, struct cuvil_buf *out) {
  if (json_is_integer(value))
    cuvil_buf_printf(out, "%lld", (long long)json_integer_value(value));
  else if (json_is_real(value))
    cuvil_buf_printf(out, "%.15g", json_real_value(value));
  else if (json_is_string(value))
    cuvil_buf_puts(out, json_string_value(value));
  else
    cuvil_buf_puts(out, json_is_true(value) ? "true" : "false");
}

/* ---- rows */
static enum cuvil_status add_row(struct cuvil_table *table,
                                 const struct params *params,
                                 const json_t *configuration, double seconds,
                                 double cost) {
  struct cuvil_buf text = {0};
  struct cuvil_site *site = &table->sites[table->count];
  *site = (struct cuvil_site){
      .params = params->count, .allowed = true, .sampled = true};
  for (int p = 0; p < params->count; p++) {
    const json_t *value = json_object_get(configuration, params->names[p]);
    site->digit[p] = (unsigned char)digit_of(params->values[p], value);
    cuvil_buf_printf(&text, "%s%s=", p ? "," : "", params->names[p]);
    print_value(value, &text);
  }
  enum cuvil_status status = cuvil_buf_status(&text);
  if (status != CUVIL_OK) {
    cuvil_buf_free(&text);
    return status;
  }
  site->key = cuvil_hash64(cuvil_buf_text(&text), text.size, 0);
  table->configs[table->count] = text.data ? cuvil_buf_take(&text) : strdup("");
  table->seconds[table->count] = seconds;
  table->cost[table->count] = cost;
  table->failed += !isfinite(seconds);
  table->count++;
  return CUVIL_OK;
}

static enum cuvil_status allocate(struct cuvil_table *table, size_t count,
                                  const char *origin) {
  if (count == 0)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: no configuration", origin);
  table->sites = calloc(count, sizeof *table->sites);
  table->configs = calloc(count, sizeof *table->configs);
  table->seconds = calloc(count, sizeof *table->seconds);
  table->cost = calloc(count, sizeof *table->cost);
  if (table->sites && table->configs && table->seconds && table->cost)
    return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: memory is used up", origin);
}

static enum cuvil_status set_text(const json_t *value, char **out) {
  const char *text = json_string_value(value);
  *out = strdup(text ? text : "");
  return *out ? CUVIL_OK
              : CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
}

/* A time that was measured is a positive number; a failure's is a word. */
static enum cuvil_status time_of(const json_t *value, double unit,
                                 const char *origin, double *out) {
  *out = INFINITY;
  if (!json_is_number(value)) return CUVIL_OK;
  *out = json_number_value(value) * unit;
  if (*out > 0 && isfinite(*out)) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_PARSE, "%s: a time of %g", origin,
                    json_number_value(value));
}

/* ---- Kernel Tuner's cache */
static enum cuvil_status read_cache(const json_t *file, const char *origin,
                                    struct params *params,
                                    struct cuvil_table *out) {
  json_t *cache = json_object_get(file, "cache"), *entry, *name;
  const json_t *size = json_object_get(file, "problem_size");
  struct cuvil_buf text = {0};
  const char *key;
  size_t i;
  json_array_foreach(json_object_get(file, "tune_params_keys"), i, name) {
    if (!json_is_string(name))
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: tune_params_keys: not names",
                        origin);
    CUVIL_TRY(add_param(params, json_string_value(name), origin));
  }
  CUVIL_TRY(set_text(json_object_get(file, "kernel_name"), &out->kernel));
  CUVIL_TRY(set_text(json_object_get(file, "device_name"), &out->device));
  for (i = 0; i < json_array_size(size); i++) {
    if (i) cuvil_buf_puts(&text, "x");
    print_value(json_array_get(size, i), &text);
  }
  CUVIL_TRY(cuvil_buf_status(&text));
  out->size = text.data ? cuvil_buf_take(&text) : strdup("");
  CUVIL_TRY(allocate(out, json_object_size(cache), origin));
  json_object_foreach(cache, key, entry) {
    char where[512];
    snprintf(where, sizeof where, "%.300s: entry %.150s", origin, key);
    CUVIL_TRY(each_value(params, entry, where));
  }
  json_object_foreach(cache, key, entry) {
    char where[512];
    double seconds;
    snprintf(where, sizeof where, "%.300s: entry %.150s", origin, key);
    CUVIL_TRY(time_of(json_object_get(entry, "time"), 1e-3, where, &seconds));
    double cost = json_number_value(json_object_get(entry, "compile_time")) +
                  json_number_value(json_object_get(entry, "benchmark_time"));
    CUVIL_TRY(add_row(out, params, entry, seconds, cost * 1e-3));
  }
  return CUVIL_OK;
}

/* ---- T4 */
static enum cuvil_status unit_of(const char *unit, const char *origin,
                                 double *out) {
  static const struct {
    const char *name;
    double seconds;
  } units[] = {{"nanoseconds", 1e-9},  {"ns", 1e-9},
               {"microseconds", 1e-6}, {"us", 1e-6},
               {"ms", 1e-3},           {"milliseconds", 1e-3},
               {"miliseconds", 1e-3},  {"", 1e-3},
               {"seconds", 1},         {"s", 1}};
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
    if (strcmp(units[i].name, unit) == 0) {
      *out = units[i].seconds;
      return CUVIL_OK;
    }
  return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "%s: \"%.40s\" is no unit of time",
                    origin, unit);
}

/* The measurement that the first objective names, "time" without one. */
static enum cuvil_status measured(const json_t *result, const char *unit,
                                  const char *origin, double *out) {
  const char *objective = json_string_value(
      json_array_get(json_object_get(result, "objectives"), 0));
  const json_t *measurement;
  size_t i;
  *out = INFINITY;
  json_array_foreach(json_object_get(result, "measurements"), i, measurement) {
    const char *name = json_string_value(json_object_get(measurement, "name"));
    const char *own = json_string_value(json_object_get(measurement, "unit"));
    double seconds = 1;
    if (!name || strcmp(name, objective ? objective : "time") != 0) continue;
    CUVIL_TRY(unit_of(own && *own ? own : unit, origin, &seconds));
    return time_of(json_object_get(measurement, "value"), seconds, origin, out);
  }
  return CUVIL_OK;
}

static enum cuvil_status read_t4(const json_t *file, const char *origin,
                                 struct params *params,
                                 struct cuvil_table *out) {
  const json_t *results = json_object_get(file, "results"), *result;
  const char *unit = json_string_value(
      json_object_get(json_object_get(file, "metadata"), "timeunit"));
  json_t *value;
  const char *name;
  size_t i;
  json_object_foreach(
      json_object_get(json_array_get(results, 0), "configuration"), name, value)
      CUVIL_TRY(add_param(params, name, origin));
  CUVIL_TRY(set_text(NULL, &out->kernel));
  CUVIL_TRY(set_text(NULL, &out->device));
  CUVIL_TRY(set_text(NULL, &out->size));
  CUVIL_TRY(allocate(out, json_array_size(results), origin));
  for (int pass = 0; pass < 2; pass++) {
    json_array_foreach(results, i, result) {
      char where[512];
      const json_t *configuration = json_object_get(result, "configuration");
      const json_t *times = json_object_get(result, "times");
      double seconds, compile;
      snprintf(where, sizeof where, "%.400s: result %zu", origin, i);
      if (pass == 0) {
        CUVIL_TRY(each_value(params, configuration, where));
        continue;
      }
      CUVIL_TRY(measured(result, unit ? unit : "", where, &seconds));
      compile = json_number_value(json_object_get(times, "compilation")) +
                json_number_value(json_object_get(times, "compilation_time"));
      CUVIL_TRY(add_row(out, params, configuration, seconds, compile * 1e-3));
    }
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_table_read(const json_t *file, const char *origin,
                                   struct cuvil_table *out) {
  struct params params = {0};
  *out = (struct cuvil_table){.best = -1};
  enum cuvil_status status = json_object_get(file, "cache")
                                 ? read_cache(file, origin, &params, out)
                                 : read_t4(file, origin, &params, out);
  free_params(&params);
  for (int i = 0; status == CUVIL_OK && i < out->count; i++)
    if (isfinite(out->seconds[i]) &&
        (out->best < 0 || out->seconds[i] < out->seconds[out->best]))
      out->best = i;
  if (status == CUVIL_OK && out->best < 0)
    status = CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                        "%s: none of %d configurations has a time", origin,
                        out->count);
  if (status != CUVIL_OK) cuvil_table_free(out);
  return status;
}
