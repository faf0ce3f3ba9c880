/* tables.c - a recording's problems, and foreign files, as tables.
 *
 * What a tune would replay: the same points, predictions and order, through the
 * same functions (tuner/candidates.h).  A configuration's time is the median
 * of all its recorded blocks; strategies and Kernel Tuner are told the same.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/study/study.h"
#include "measure/stats.h"
#include "tuner/table.h"

enum { LEAST = 100 }; /* configurations that make a table */

static void free_table(struct study_table *table) {
  free(table->sites);
  free(table->seconds);
  free(table->cost);
  free(table->records);
  *table = (struct study_table){0};
}

static enum cuvil_status allocate(struct study_table *table, int count) {
  size_t size = (size_t)count + 1;
  table->seconds = calloc(size, sizeof *table->seconds);
  table->cost = calloc(size, sizeof *table->cost);
  table->records = calloc(size, sizeof *table->records);
  if (table->seconds && table->cost && table->records) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a table");
}

/* "dir/search.gemm.t4.json.zst" as "search.gemm". */
static void stem(const char *path, char *out, size_t size) {
  const char *slash = strrchr(path, '/');
  snprintf(out, size, "%s", slash ? slash + 1 : path);
  char *end = strstr(out, ".t4.json");
  if (!end) end = strstr(out, ".json");
  if (end) *end = '\0';
}

static double time_of(const struct cuvil_record *record) {
  if (!record->outcome.ok || record->block_count == 0) return INFINITY;
  return cuvil_quantile(record->seconds, record->block_count, 0.5);
}

/* What was skipped as equal to another has the other's time. */
static const struct cuvil_record *resolve(
    const struct cuvil_recording *recording, const struct cuvil_record *r) {
  if (r->outcome.ok || strcmp(r->outcome.reason, "duplicate") != 0) return r;
  for (int i = 0; i < recording->record_count; i++) {
    const struct cuvil_record *other = &recording->records[i];
    if (other->problem == r->problem && other->outcome.ok &&
        strcmp(other->compiled.binary, r->compiled.binary) == 0)
      return other;
  }
  return r;
}

static enum cuvil_status offer_all(const struct cuvil_recording *recording,
                                   int problem,
                                   const struct cuvil_family *family,
                                   const struct study_table *table,
                                   struct cuvil_candidates *points) {
  const struct cuvil_walk_options all = {.families = family->id};
  for (int i = 0; i < recording->record_count; i++) {
    const struct cuvil_record *record = &recording->records[i];
    if (record->problem == problem && record->choice < 0 &&
        strcmp(record->family, family->id) == 0)
      CUVIL_TRY(cuvil_candidates_offer(points, table->problem, table->arch,
                                       &all, record->family, record->config));
  }
  return CUVIL_OK;
}

static enum cuvil_status fill(const struct cuvil_recording *recording,
                              int problem, struct study_table *table) {
  const struct cuvil_space *space = NULL;
  CUVIL_TRY(cuvil_family_space(table->family, &space));
  CUVIL_TRY(cuvil_candidates_sites(table->points, table->problem, table->arch,
                                   &table->sites));
  table->count = table->points->point_count;
  table->optimum = INFINITY;
  CUVIL_TRY(allocate(table, table->count));
  for (int i = 0; i < table->count; i++) {
    struct cuvil_config config = {{0}};
    struct cuvil_buf text = {0};
    cuvil_space_point(space, table->points->points[i].order, &config);
    cuvil_config_print(space, &config, &text);
    const struct cuvil_record *record = cuvil_recording_find(
        recording, problem, table->family->id, cuvil_buf_text(&text));
    cuvil_buf_free(&text);
    if (!record)
      return CUVIL_FAIL(CU_ERR_INTERNAL, "%s: a point without a record",
                        table->name);
    table->records[i] = resolve(recording, record);
    table->seconds[i] = time_of(table->records[i]);
    table->cost[i] = record->compiled.seconds;
    table->optimum = fmin(table->optimum, table->seconds[i]);
  }
  return CUVIL_OK;
}

typedef enum cuvil_status visitor(void *user, const struct study_table *table);

static enum cuvil_status one_family(const struct cuvil_recording *recording,
                                    int problem, const char *file,
                                    const struct cuvil_family *family,
                                    visitor *visit, void *user) {
  struct cuvil_problem parsed;
  struct cuvil_candidates points = {0};
  struct study_table table = {.text = recording->problems[problem].text,
                              .judges = problem % 2 == 1,
                              .family = family,
                              .problem = &parsed,
                              .arch = &recording->arch,
                              .points = &points};
  enum cuvil_status status = CUVIL_OK;
  snprintf(table.name, sizeof table.name, "%.100s.%d.%s", file, problem,
           family->id);
  CUVIL_TRY(cuvil_problem_parse(table.text, &parsed));
  CUVIL_TRY_GOTO(offer_all(recording, problem, family, &table, &points));
  if (points.point_count >= LEAST) {
    CUVIL_TRY_GOTO(fill(recording, problem, &table));
    CUVIL_TRY_GOTO(visit(user, &table));
  }
fail:
  free_table(&table);
  cuvil_candidates_free(&points);
  return status;
}

static enum cuvil_status each_of_recording(const char *path, visitor *visit,
                                           void *user) {
  struct cuvil_recording *recording = NULL;
  enum cuvil_status status = CUVIL_OK;
  char file[128];
  stem(path, file, sizeof file);
  CUVIL_TRY(cuvil_recording_read(path, &recording));
  for (int p = 0; p < recording->problem_count; p++)
    for (int f = 0; f < cuvil_family_count(); f++) {
      const struct cuvil_family *family = cuvil_family_at(f);
      if (!family->library && !family->reference)
        CUVIL_TRY_GOTO(one_family(recording, p, file, family, visit, user));
    }
fail:
  cuvil_recording_destroy(recording);
  return status;
}

static enum cuvil_status one_foreign(const json_t *json, const char *path,
                                     visitor *visit, void *user) {
  struct cuvil_table foreign;
  struct study_table table = {.judges = true};
  CUVIL_TRY(cuvil_table_read(json, path, &foreign));
  stem(path, table.name, sizeof table.name);
  table.count = foreign.count;
  table.sites = foreign.sites;
  table.seconds = foreign.seconds;
  table.cost = foreign.cost;
  table.optimum = foreign.seconds[foreign.best];
  table.configs = foreign.configs;
  enum cuvil_status status = visit(user, &table);
  cuvil_table_free(&foreign);
  return status;
}

enum cuvil_status study_each_table(const char *path, visitor *visit,
                                   void *user) {
  json_t *json = NULL;
  if (strstr(path, ".t4.json")) return each_of_recording(path, visit, user);
  CUVIL_TRY(cuvil_json_read(path, &json));
  enum cuvil_status status =
      cuvil_table_is(json)
          ? one_foreign(json, path, visit, user)
          : CUVIL_FAIL(CU_ERR_PARSE, "%s: no table of results", path);
  json_decref(json);
  return status;
}

/* ---- writing */
static const char *config_of(const struct study_table *table, int i,
                             struct cuvil_buf *text) {
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  if (table->configs) return table->configs[i];
  cuvil_buf_clear(text);
  if (cuvil_family_space(table->family, &space) != CUVIL_OK) return "";
  cuvil_space_point(space, table->points->points[i].order, &config);
  cuvil_config_print(space, &config, text);
  return cuvil_buf_text(text);
}

/* One entry of the cache; names and values grow by what it has. */
static void add_entry(const char *config, double seconds, double cost,
                      json_t *names, json_t *values, json_t *cache) {
  json_t *entry = json_object();
  struct cuvil_buf key = {0};
  for (const char *p = config; *p;) {
    size_t length = strcspn(p, ","), name = strcspn(p, "=");
    char word[64];
    json_t *value = json_integer(strtoll(p + name + 1, NULL, 10)), *known;
    snprintf(word, sizeof word, "%.*s", (int)name, p);
    cuvil_buf_printf(&key, "%s%.*s", key.size ? "," : "",
                     (int)(length - name - 1), p + name + 1);
    known = json_object_get(values, word);
    if (!known) {
      json_array_append_new(names, json_string(word));
      json_object_set_new(values, word, known = json_array());
    }
    size_t at = 0;
    while (at < json_array_size(known) &&
           json_integer_value(json_array_get(known, at)) <
               json_integer_value(value))
      at++;
    if (!json_equal(json_array_get(known, at), value))
      json_array_insert(known, at, value);
    json_object_set_new(entry, word, value);
    p += length + (p[length] == ',');
  }
  json_object_set_new(entry, "time",
                      isfinite(seconds) ? json_real(seconds * 1e3)
                                        : json_string("RuntimeFailedConfig"));
  json_object_set_new(entry, "compile_time", json_real(cost * 1e3));
  json_object_set_new(entry, "benchmark_time", json_real(0));
  json_object_set_new(entry, "verification_time", json_real(0));
  json_object_set_new(entry, "strategy_time", json_real(0));
  json_object_set_new(entry, "framework_time", json_real(0));
  json_object_set_new(entry, "timestamp", json_string("2000-01-01T00:00:00Z"));
  json_object_set_new(cache, cuvil_buf_text(&key), entry);
  cuvil_buf_free(&key);
}

enum cuvil_status study_table_write(const struct study_table *table,
                                    const char *directory) {
  json_t *names = json_array(), *values = json_object(), *cache = json_object();
  struct cuvil_buf text = {0}, out = {0};
  char path[1024];
  for (int i = 0; i < table->count; i++)
    add_entry(config_of(table, i, &text), table->seconds[i], table->cost[i],
              names, values, cache);
  json_t *file =
      json_pack("{s:s, s:s, s:[i], s:o, s:o, s:s, s:o}", "device_name",
                table->arch ? table->arch->name : "", "kernel_name",
                table->family ? table->family->id : table->name, "problem_size",
                1, "tune_params_keys", names, "tune_params", values,
                "objective", "time", "cache", cache);
  enum cuvil_status status = cuvil_json_print(file, &out);
  if (status == CUVIL_OK) { /* the end that Kernel Tuner looks for */
    out.data[--out.size] = '\0';
    cuvil_buf_puts(&out, "\n}");
    snprintf(path, sizeof path, "%s/%s.json", directory, table->name);
    status = cuvil_buf_status(&out);
  }
  if (status == CUVIL_OK)
    status = cuvil_file_write_atomic(path, out.data, out.size);
  json_decref(file);
  cuvil_buf_free(&text);
  cuvil_buf_free(&out);
  return status;
}
