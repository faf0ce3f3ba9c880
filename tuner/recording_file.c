/* recording_file.c - recordings as T4 JSON on disk, plain or zstd-compressed.
 *
 * A reader of plain T4 sees configurations, run times in milliseconds and what
 * was invalid; what replay needs beyond that is under "cuvil".  Seven digits
 * are kept of each time: a ten-millionth of a run is far below any noise.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "tuner/describe.h"
#include "tuner/recording.h"

#define RECORDING_VERSION 1
static const size_t unpacked_most = (size_t)1 << 30;

/* ---- writing */
static void set(json_t *object, const char *key, json_t *value) {
  /* A NULL value (no memory) leaves the key out; the caller checks sizes. */
  json_object_set_new(object, key, value);
}

static json_t *configuration(const struct cuvil_record *record) {
  json_t *out = json_object();
  set(out, "family", json_string(record->family));
  for (const char *p = record->config; *p;) {
    size_t name = strcspn(p, "="), length = strcspn(p, ",");
    if (name < length && name < 64) {
      char key[64];
      memcpy(key, p, name);
      key[name] = '\0';
      set(out, key, json_integer(strtoll(p + name + 1, NULL, 10)));
    }
    p += length;
    if (*p) p++;
  }
  return out;
}

/* T4 knows six words for what can be wrong. */
static const char *invalidity(const struct cuvil_record *record) {
  static const char *const words[][2] = {
      {"compile", "compile"},      {"compile_timeout", "compile"},
      {"timeout", "timeout"},      {"wrong", "correctness"},
      {"nan", "correctness"},      {"incomplete", "correctness"},
      {"overrun", "correctness"},  {"spill", "constraints"},
      {"duplicate", "constraints"}};
  if (record->outcome.ok) return "correct";
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(words[i][0], record->outcome.reason) == 0) return words[i][1];
  return "runtime";
}

static json_t *milliseconds(const double *seconds, int count) {
  json_t *out = json_array();
  for (int i = 0; i < count; i++)
    json_array_append_new(out, json_real(seconds[i] * 1e3));
  return out;
}

static int compare_times(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const double *seconds, int count) {
  double *sorted = malloc((size_t)count * sizeof *sorted);
  if (!sorted) return NAN;
  memcpy(sorted, seconds, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, compare_times);
  double value = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  free(sorted);
  return value;
}

static json_t *own_part(const struct cuvil_record *record) {
  json_t *out = json_object(), *rounds = json_array();
  for (int i = 0; i < record->block_count; i++)
    json_array_append_new(rounds, json_integer(record->rounds[i]));
  set(out, "problem", json_integer(record->problem));
  set(out, "family", json_string(record->family));
  set(out, "version", json_integer(record->version));
  set(out, "config", json_string(record->config));
  set(out, "choice", json_integer(record->choice));
  set(out, "rounds", rounds);
  if (record->control_count)
    set(out, "control", milliseconds(record->control, record->control_count));
  set(out, "hash", json_string(record->compiled.hash));
  set(out, "binary", json_string(record->compiled.binary));
  set(out, "registers", json_integer(record->compiled.registers));
  set(out, "spill_bytes", json_integer(record->compiled.spill_bytes));
  set(out, "shared_bytes", json_integer(record->compiled.shared_bytes));
  set(out, "worst_ratio", json_real(record->worst_ratio));
  if (!record->outcome.ok) {
    set(out, "reason", json_string(record->outcome.reason));
    set(out, "detail", json_string(record->outcome.detail));
  }
  return out;
}

static json_t *result(const struct cuvil_record *record) {
  json_t *out = json_object(), *times = json_object();
  set(out, "configuration", configuration(record));
  set(out, "objectives", json_pack("[s]", "time"));
  set(times, "compilation", json_real(record->compiled.seconds * 1e3));
  set(times, "runtimes", milliseconds(record->seconds, record->block_count));
  set(times, "framework", json_integer(0));
  set(times, "search_algorithm", json_integer(0));
  set(times, "validation", json_integer(0));
  set(out, "times", times);
  set(out, "invalidity", json_string(invalidity(record)));
  set(out, "correctness", json_integer(record->outcome.ok));
  if (record->outcome.ok && record->block_count)
    set(out, "measurements",
        json_pack("[{s:s, s:f, s:s}]", "name", "time", "value",
                  median(record->seconds, record->block_count) * 1e3, "unit",
                  "milliseconds"));
  set(out, "cuvil", own_part(record));
  return out;
}

static json_t *metadata(const struct cuvil_recording *recording) {
  json_t *problems = json_array();
  for (int i = 0; i < recording->problem_count; i++) {
    const struct cuvil_recorded_problem *p = &recording->problems[i];
    json_array_append_new(
        problems, json_pack("{s:s, s:s, s:I, s:I}", "problem", p->text, "l2",
                            p->l2, "valid", (json_int_t)p->valid, "recorded",
                            (json_int_t)p->recorded));
  }
  return json_pack(
      "{s:s, s:{s:[s]}, s:{s:i, s:i, s:I, s:s, s:o, s:o, s:o}}", "timeunit",
      "milliseconds", "hardware", "hardware_description", recording->env.gpu,
      "cuvil", "recording", RECORDING_VERSION, "method", recording->method,
      "seed", (json_int_t)recording->seed, "created", recording->created,
      "arch", cuvil_arch_to_json(&recording->arch), "environment",
      cuvil_env_to_json(&recording->env), "problems", problems);
}

static enum cuvil_status write_compressed(const char *path, const char *text,
                                          size_t size) {
  size_t most = ZSTD_compressBound(size);
  char *packed = malloc(most);
  if (!packed)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory to compress", path);
  size_t n = ZSTD_compress(packed, most, text, size, 19);
  enum cuvil_status status =
      ZSTD_isError(n) ? CUVIL_FAIL(CU_ERR_INTERNAL, "%s: compressing: %s", path,
                                   ZSTD_getErrorName(n))
                      : cuvil_file_write_atomic(path, packed, n);
  free(packed);
  return status;
}

static bool is_compressed_name(const char *path) {
  size_t n = strlen(path);
  return n > 4 && strcmp(path + n - 4, ".zst") == 0;
}

enum cuvil_status cuvil_recording_write(const struct cuvil_recording *recording,
                                        const char *path) {
  enum cuvil_status status = CUVIL_OK;
  char *text = NULL;
  json_t *results = json_array();
  for (int i = 0; i < recording->record_count; i++)
    json_array_append_new(results, result(&recording->records[i]));
  json_t *file = json_pack("{s:s, s:o, s:o}", "schema_version", "1.0.0",
                           "metadata", metadata(recording), "results", results);
  if (file && json_array_size(results) == (size_t)recording->record_count)
    text = json_dumps(file, JSON_COMPACT | JSON_REAL_PRECISION(7));
  if (!text) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory to write", path);
    goto fail;
  }
  CUVIL_TRY_GOTO(is_compressed_name(path)
                     ? write_compressed(path, text, strlen(text))
                     : cuvil_file_write_atomic(path, text, strlen(text)));
fail:
  free(text);
  json_decref(file);
  return status;
}

/* ---- reading */
static enum cuvil_status get_int_within(const json_t *json, const char *key,
                                        const char *origin, int64_t least,
                                        int64_t most, int *out) {
  int64_t value = 0;
  CUVIL_TRY(cuvil_json_get_int(json, key, origin, &value));
  if (value < least || value > most)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is %lld, not within %lld..%lld",
                      origin, key, (long long)value, (long long)least,
                      (long long)most);
  *out = (int)value;
  return CUVIL_OK;
}

static enum cuvil_status get_text(const json_t *json, const char *key,
                                  const char *origin, char **out) {
  const char *text = NULL;
  CUVIL_TRY(cuvil_json_get_string(json, key, origin, &text));
  *out = strdup(text);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory", origin);
  return CUVIL_OK;
}

static enum cuvil_status get_fixed(const json_t *json, const char *key,
                                   const char *origin, char *out, size_t size) {
  const char *text = NULL;
  CUVIL_TRY(cuvil_json_get_string(json, key, origin, &text));
  if (strlen(text) >= size)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is longer than %zu bytes",
                      origin, key, size - 1);
  snprintf(out, size, "%s", text);
  return CUVIL_OK;
}

static enum cuvil_status get_seconds(const json_t *array, const char *origin,
                                     double **out, int *out_count) {
  size_t count = json_array_size(array);
  *out = calloc(count + 1, sizeof **out);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory", origin);
  for (size_t i = 0; i < count; i++) {
    double value = json_number_value(json_array_get(array, i)) * 1e-3;
    if (!(value > 0) || !isfinite(value))
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: run time %zu is not a time", origin,
                        i);
    (*out)[i] = value;
  }
  *out_count = (int)count;
  return CUVIL_OK;
}

static enum cuvil_status read_rounds(const json_t *rounds, const char *origin,
                                     struct cuvil_record *record) {
  record->rounds = calloc((size_t)record->block_count + 1, sizeof(int));
  if (!record->rounds)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory", origin);
  if (json_array_size(rounds) != (size_t)record->block_count)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: %zu rounds for %d run times", origin,
                      json_array_size(rounds), record->block_count);
  for (int i = 0; i < record->block_count; i++) {
    const json_t *round = json_array_get(rounds, (size_t)i);
    json_int_t value = json_integer_value(round);
    if (!json_is_integer(round) || value < -1000 || value > 1000000)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: round %d is not a number of one",
                        origin, i);
    record->rounds[i] = (int)value;
  }
  return CUVIL_OK;
}

static enum cuvil_status read_outcome(const json_t *own, const char *origin,
                                      struct cuvil_record *record) {
  struct cuvil_compiled *compiled = &record->compiled;
  record->outcome.ok = !json_object_get(own, "reason");
  compiled->state = CUVIL_COMPILE_DONE;
  if (record->outcome.ok) {
    if (record->block_count == 0)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: neither times nor a reason", origin);
    return CUVIL_OK;
  }
  const char *reason = NULL, *detail = NULL;
  CUVIL_TRY(cuvil_json_get_string(own, "reason", origin, &reason));
  CUVIL_TRY(cuvil_json_get_string(own, "detail", origin, &detail));
  cuvil_outcome_fail(&record->outcome, reason, "%s", detail);
  if (strncmp(reason, "compile", 7) == 0) {
    compiled->state = CUVIL_COMPILE_FAILED;
    compiled->outcome = record->outcome;
  }
  return CUVIL_OK;
}

static enum cuvil_status read_record(const json_t *json, const char *origin,
                                     int problems,
                                     struct cuvil_record *record) {
  const json_t *own = json_object_get(json, "cuvil");
  const json_t *times = json_object_get(json, "times");
  const json_t *runtimes = NULL, *rounds = NULL;
  struct cuvil_compiled *compiled = &record->compiled;
  CUVIL_TRY(get_int_within(own, "problem", origin, 0, problems - 1,
                           &record->problem));
  CUVIL_TRY(get_text(own, "family", origin, &record->family));
  CUVIL_TRY(get_text(own, "config", origin, &record->config));
  CUVIL_TRY(
      get_int_within(own, "version", origin, 0, 1 << 30, &record->version));
  CUVIL_TRY(
      get_int_within(own, "choice", origin, -1, 1 << 20, &record->choice));
  CUVIL_TRY(
      get_fixed(own, "hash", origin, compiled->hash, sizeof compiled->hash));
  CUVIL_TRY(get_fixed(own, "binary", origin, compiled->binary,
                      sizeof compiled->binary));
  CUVIL_TRY(get_int_within(own, "registers", origin, 0, 1 << 20,
                           &compiled->registers));
  CUVIL_TRY(get_int_within(own, "spill_bytes", origin, 0, 1 << 30,
                           &compiled->spill_bytes));
  CUVIL_TRY(get_int_within(own, "shared_bytes", origin, 0, 1 << 30,
                           &compiled->shared_bytes));
  CUVIL_TRY(
      cuvil_json_get_number(own, "worst_ratio", origin, &record->worst_ratio));
  CUVIL_TRY(
      cuvil_json_get_number(times, "compilation", origin, &compiled->seconds));
  compiled->seconds *= 1e-3;
  CUVIL_TRY(cuvil_json_get_array(times, "runtimes", origin, &runtimes));
  CUVIL_TRY(
      get_seconds(runtimes, origin, &record->seconds, &record->block_count));
  CUVIL_TRY(cuvil_json_get_array(own, "rounds", origin, &rounds));
  CUVIL_TRY(read_rounds(rounds, origin, record));
  CUVIL_TRY(get_seconds(json_object_get(own, "control"), origin,
                        &record->control, &record->control_count));
  return read_outcome(own, origin, record);
}

static enum cuvil_status read_problems(const json_t *list, const char *origin,
                                       struct cuvil_recording *recording) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *json = json_array_get(list, i);
    const char *text = NULL;
    char l2[8];
    int64_t valid = 0, recorded = 0;
    struct cuvil_problem problem;
    CUVIL_TRY(cuvil_json_get_string(json, "problem", origin, &text));
    CUVIL_TRY(get_fixed(json, "l2", origin, l2, sizeof l2));
    CUVIL_TRY(cuvil_json_get_int(json, "valid", origin, &valid));
    CUVIL_TRY(cuvil_json_get_int(json, "recorded", origin, &recorded));
    if (strcmp(l2, "warm") != 0 && strcmp(l2, "cold") != 0)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: problem %zu: l2 is \"%s\"", origin,
                        i, l2);
    if (cuvil_problem_parse(text, &problem) != CUVIL_OK)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: problem %zu: %s", origin, i,
                        cuvil_last_error());
    CUVIL_TRY(cuvil_recording_add_problem(recording, text, l2, valid, recorded,
                                          NULL));
  }
  return CUVIL_OK;
}

static enum cuvil_status read_file(const json_t *file, const char *origin,
                                   struct cuvil_recording *recording) {
  const json_t *meta =
      json_object_get(json_object_get(file, "metadata"), "cuvil");
  const json_t *problems = NULL, *results = NULL;
  int version = 0;
  if (!meta)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "%s: not a recording of Cuvil's (metadata.cuvil is "
                      "missing)",
                      origin);
  CUVIL_TRY(get_int_within(meta, "recording", origin, 1, 1 << 20, &version));
  if (version != RECORDING_VERSION)
    return CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,
                      "%s: a recording of version %d, this program reads %d",
                      origin, version, RECORDING_VERSION);
  CUVIL_TRY(
      get_int_within(meta, "method", origin, 1, 1 << 20, &recording->method));
  CUVIL_TRY(cuvil_json_get_int(meta, "seed", origin, &recording->seed));
  CUVIL_TRY(get_fixed(meta, "created", origin, recording->created,
                      sizeof recording->created));
  CUVIL_TRY(cuvil_arch_from_json(json_object_get(meta, "arch"), origin,
                                 &recording->arch));
  CUVIL_TRY(cuvil_env_from_json(json_object_get(meta, "environment"), origin,
                                &recording->env));
  CUVIL_TRY(cuvil_json_get_array(meta, "problems", origin, &problems));
  CUVIL_TRY(read_problems(problems, origin, recording));
  CUVIL_TRY(cuvil_json_get_array(file, "results", origin, &results));
  for (size_t i = 0; i < json_array_size(results); i++) {
    struct cuvil_record record = {0};
    char where[512];
    snprintf(where, sizeof where, "%.400s: result %zu", origin, i);
    enum cuvil_status status = read_record(json_array_get(results, i), where,
                                           recording->problem_count, &record);
    if (status != CUVIL_OK) {
      free(record.family);
      free(record.config);
      free(record.rounds);
      free(record.seconds);
      free(record.control);
      return status;
    }
    CUVIL_TRY(cuvil_recording_push(recording, &record));
  }
  return CUVIL_OK;
}

static enum cuvil_status unpack(const char *origin, const char *bytes,
                                size_t size, struct cuvil_buf *out) {
  unsigned long long whole = ZSTD_getFrameContentSize(bytes, size);
  if (whole == ZSTD_CONTENTSIZE_ERROR || whole == ZSTD_CONTENTSIZE_UNKNOWN ||
      whole > unpacked_most)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: not whole zstd data", origin);
  out->data = malloc((size_t)whole + 1);
  if (!out->data)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory to unpack", origin);
  out->capacity = (size_t)whole + 1;
  size_t n = ZSTD_decompress(out->data, (size_t)whole, bytes, size);
  if (ZSTD_isError(n) || n != whole)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: unpacking: %s", origin,
                      ZSTD_isError(n) ? ZSTD_getErrorName(n) : "cut short");
  out->size = n;
  out->data[n] = '\0';
  return CUVIL_OK;
}

enum cuvil_status cuvil_recording_parse(const char *text, size_t size,
                                        const char *origin,
                                        struct cuvil_recording **out) {
  static const unsigned char magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf unpacked = {0};
  json_t *file = NULL;
  *out = NULL;
  if (size >= 4 && memcmp(text, magic, 4) == 0) {
    CUVIL_TRY_GOTO(unpack(origin, text, size, &unpacked));
    text = unpacked.data;
    size = unpacked.size;
  }
  CUVIL_TRY_GOTO(cuvil_json_parse(text, size, origin, &file));
  CUVIL_TRY_GOTO(cuvil_recording_create(NULL, NULL, 0, out));
  CUVIL_TRY_GOTO(read_file(file, origin, *out));
fail:
  json_decref(file);
  cuvil_buf_free(&unpacked);
  if (status != CUVIL_OK) {
    cuvil_recording_destroy(*out);
    *out = NULL;
  }
  return status;
}

enum cuvil_status cuvil_recording_read(const char *path,
                                       struct cuvil_recording **out) {
  struct cuvil_buf bytes = {0};
  *out = NULL;
  CUVIL_TRY(cuvil_file_read(path, &bytes));
  enum cuvil_status status =
      cuvil_recording_parse(cuvil_buf_text(&bytes), bytes.size, path, out);
  cuvil_buf_free(&bytes);
  if (status != CUVIL_OK) return status;
  free((*out)->path);
  (*out)->path = strdup(path);
  if ((*out)->path) return CUVIL_OK;
  cuvil_recording_destroy(*out);
  *out = NULL;
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: no memory", path);
}
