/* import.c - evidence out of files that export.c and kernel_tuner.c wrote.
 *
 * What is read is the object `cuvil` of each result: it has everything that a
 * row of evidence has.  The row's content hash is computed again and must be
 * the one that the file gives, so that what comes back is what went out, with
 * the source it had; nothing becomes `measured` by being imported.  Files hold
 * measurements and failures, not races, and winners follow from races alone:
 * an import never makes or changes one.
 *
 * A result without that object is of another program: it names no problem that
 * we could look up and no machine, so the whole file is refused.  An import is
 * all or nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "db/interchange.h"
#include "problem/problem.h"

/* A row as it is read; arrays and bufs owned. */
struct row {
  const char *origin;
  struct cuvil_env env;
  struct cuvil_db_context context;
  struct cuvil_db_candidate candidate;
  struct cuvil_buf canonical, signature, detail;
  double *blocks;
  int *rounds;
};

static void free_row(struct row *row) {
  cuvil_buf_free(&row->canonical);
  cuvil_buf_free(&row->signature);
  cuvil_buf_free(&row->detail);
  free(row->blocks);
  free(row->rounds);
}

/* ---- members */

static enum cuvil_status get_int(const json_t *json, const char *key,
                                 const char *origin, int *out) {
  int64_t value = 0;
  CUVIL_TRY(cuvil_json_get_int(json, key, origin, &value));
  *out = (int)value;
  if (value < 0 || *out != value)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is out of range", origin, key);
  return CUVIL_OK;
}

static enum cuvil_status get_fixed(const json_t *json, const char *key,
                                   const char *origin, char *out, size_t size) {
  const char *text = NULL;
  CUVIL_TRY(cuvil_json_get_string(json, key, origin, &text));
  if (strlen(text) >= size)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is longer than %zu bytes",
                      origin, key, size - 1);
  memcpy(out, text, strlen(text) + 1);
  return CUVIL_OK;
}

/* null is what is not known. */
static enum cuvil_status get_real(const json_t *json, const char *key,
                                  const char *origin, double *out) {
  *out = NAN;
  if (json_is_null(json_object_get(json, key))) return CUVIL_OK;
  return cuvil_json_get_number(json, key, origin, out);
}

static enum cuvil_status get_word(const json_t *json, const char *key,
                                  const char *origin, const char *one,
                                  const char *other, const char **out) {
  CUVIL_TRY(cuvil_json_get_string(json, key, origin, out));
  if (strcmp(*out, one) == 0 || strcmp(*out, other) == 0) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is \"%s\", neither %s nor %s",
                    origin, key, *out, one, other);
}

static enum cuvil_status read_environment(const json_t *json,
                                          const char *origin,
                                          struct cuvil_env *env) {
#define TEXT(field) \
  CUVIL_TRY(get_fixed(json, #field, origin, env->field, sizeof env->field))
  TEXT(gpu);
  TEXT(arch);
  TEXT(driver);
  TEXT(cuda);
  TEXT(nvrtc);
  TEXT(cublaslt);
  TEXT(cudnn);
#undef TEXT
  CUVIL_TRY(get_int(json, "sms", origin, &env->sms));
  CUVIL_TRY(
      cuvil_json_get_int(json, "memory_bytes", origin, &env->memory_bytes));
  return cuvil_json_get_int(json, "l2_bytes", origin, &env->l2_bytes);
}

/* ---- a row */

static enum cuvil_status read_problem(const char *text, struct row *row) {
  struct cuvil_problem problem;
  enum cuvil_status status = cuvil_problem_parse(text, &problem);
  if (status != CUVIL_OK)
    return CUVIL_FAIL(status, "%s: problem: %s", row->origin,
                      cuvil_last_error());
  cuvil_problem_print(&problem, &row->canonical);
  cuvil_problem_signature(&problem, &row->signature);
  CUVIL_TRY(cuvil_buf_status(&row->canonical));
  CUVIL_TRY(cuvil_buf_status(&row->signature));
  row->candidate.problem = cuvil_buf_text(&row->canonical);
  row->candidate.signature = cuvil_buf_text(&row->signature);
  if (strcmp(row->candidate.problem, text) != 0)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "%s: not a problem's canonical text: %s; it is %s",
                      row->origin, text, row->candidate.problem);
  return CUVIL_OK;
}

static enum cuvil_status read_shared(const json_t *cuvil, struct row *row) {
  const char *problem = NULL, *origin = row->origin;
  struct cuvil_db_context *context = &row->context;
  CUVIL_TRY(cuvil_json_get_string(cuvil, "problem", origin, &problem));
  CUVIL_TRY(read_problem(problem, row));
  CUVIL_TRY(
      cuvil_json_get_string(cuvil, "family", origin, &row->candidate.family));
  CUVIL_TRY(
      get_int(cuvil, "family_version", origin, &row->candidate.family_version));
  CUVIL_TRY(
      cuvil_json_get_string(cuvil, "config", origin, &row->candidate.config));
  CUVIL_TRY(get_word(cuvil, "source", origin, "measured", "replayed",
                     &context->source));
  CUVIL_TRY(get_word(cuvil, "l2", origin, "cold", "warm", &context->l2));
  CUVIL_TRY(
      get_word(cuvil, "regime", origin, "burst", "steady", &context->regime));
  CUVIL_TRY(get_int(cuvil, "method", origin, &context->method));
  if (context->method == 0)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"method\" is out of range", origin);
  context->env = &row->env;
  CUVIL_TRY(read_environment(json_object_get(cuvil, "environment"), origin,
                             &row->env));
  return cuvil_db_check_context(context);
}

static enum cuvil_status read_blocks(const json_t *cuvil, struct row *row,
                                     int *out_count) {
  const json_t *seconds = NULL, *rounds = NULL;
  CUVIL_TRY(cuvil_json_get_array(cuvil, "seconds", row->origin, &seconds));
  CUVIL_TRY(cuvil_json_get_array(cuvil, "rounds", row->origin, &rounds));
  size_t count = json_array_size(seconds);
  if (count != json_array_size(rounds) || count > INT32_MAX / 16)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: %zu rounds for %zu blocks",
                      row->origin, json_array_size(rounds), count);
  row->blocks = calloc(count + 1, sizeof *row->blocks);
  row->rounds = calloc(count + 1, sizeof *row->rounds);
  if (!row->blocks || !row->rounds)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: memory is used up",
                      row->origin);
  for (size_t i = 0; i < count; i++) {
    const json_t *round = json_array_get(rounds, i);
    json_int_t number = json_integer_value(round);
    row->blocks[i] = json_number_value(json_array_get(seconds, i));
    row->rounds[i] = (int)number;
    if (!json_is_integer(round) || row->rounds[i] != number)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: round %zu is not a number of one",
                        row->origin, i);
  }
  *out_count = (int)count;
  return CUVIL_OK;
}

static enum cuvil_status read_measurement(const json_t *cuvil, struct row *row,
                                          struct cuvil_db_measurement *m) {
  const char *origin = row->origin;
  m->candidate = row->candidate;
  CUVIL_TRY(read_blocks(cuvil, row, &m->block_count));
  m->blocks = row->blocks;
  m->rounds = row->rounds;
  CUVIL_TRY(cuvil_json_get_string(cuvil, "cubin_hash", origin, &m->cubin_hash));
  CUVIL_TRY(get_int(cuvil, "registers", origin, &m->registers));
  CUVIL_TRY(get_int(cuvil, "spill_bytes", origin, &m->spill_bytes));
  CUVIL_TRY(get_int(cuvil, "shared_bytes", origin, &m->shared_bytes));
  CUVIL_TRY(cuvil_json_get_number(cuvil, "compile_seconds", origin,
                                  &m->compile_seconds));
  CUVIL_TRY(get_real(cuvil, "worst_ratio", origin, &m->worst_ratio));
  CUVIL_TRY(cuvil_json_get_number(cuvil, "median", origin, &m->median));
  CUVIL_TRY(cuvil_json_get_number(cuvil, "low", origin, &m->low));
  CUVIL_TRY(cuvil_json_get_number(cuvil, "high", origin, &m->high));
  return cuvil_db_check_measurement(m);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* detail_bytes stands where the text itself is not UTF-8. */
static enum cuvil_status read_detail(const json_t *cuvil, struct row *row,
                                     const char **out) {
  const char *bytes = NULL;
  if (!json_object_get(cuvil, "detail_bytes"))
    return cuvil_json_get_string(cuvil, "detail", row->origin, out);
  CUVIL_TRY(cuvil_json_get_string(cuvil, "detail_bytes", row->origin, &bytes));
  for (const char *p = bytes; *p; p += 2) {
    int high = hex_digit(p[0]), low = high < 0 ? -1 : hex_digit(p[1]);
    if (low < 0 || (high == 0 && low == 0))
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"detail_bytes\" is not a text",
                        row->origin);
    char byte = (char)(high * 16 + low);
    cuvil_buf_add(&row->detail, &byte, 1);
  }
  *out = cuvil_buf_text(&row->detail);
  return cuvil_buf_status(&row->detail);
}

static enum cuvil_status confirm(const json_t *cuvil, const char *origin,
                                 const char *computed) {
  const char *given = NULL;
  CUVIL_TRY(cuvil_json_get_string(cuvil, "hash", origin, &given));
  if (strcmp(given, computed) == 0) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_DB,
                    "%s: the content's hash is %s, the file says %s: it was "
                    "changed after the export",
                    origin, computed, given);
}

/* As cuvil_utc_timestamp writes it: rows are ordered by it as text. */
static enum cuvil_status check_time(const char *recorded, const char *origin) {
  static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
  bool right = strlen(recorded) == sizeof shape - 1;
  for (size_t i = 0; right && shape[i]; i++)
    right = shape[i] == 'd' ? recorded[i] >= '0' && recorded[i] <= '9'
                            : recorded[i] == shape[i];
  if (right) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_PARSE,
                    "%s: \"timestamp\" is not like 2026-01-31T12:00:00.000Z",
                    origin);
}

static enum cuvil_status add_row(struct cuvil_db *db, const json_t *cuvil,
                                 const char *recorded, struct row *row,
                                 struct cuvil_db_counts *added) {
  char hash[CUVIL_HASH_SIZE];
  bool is_new = false;
  CUVIL_TRY(read_shared(cuvil, row));
  if (json_object_get(cuvil, "reason")) {
    struct cuvil_db_failure failure = {.candidate = row->candidate};
    CUVIL_TRY(
        cuvil_json_get_string(cuvil, "reason", row->origin, &failure.reason));
    CUVIL_TRY(read_detail(cuvil, row, &failure.detail));
    CUVIL_TRY(cuvil_db_hash_failure(&row->context, &failure, hash));
    CUVIL_TRY(confirm(cuvil, row->origin, hash));
    CUVIL_TRY(
        cuvil_db_put_failure(db, &row->context, &failure, recorded, &is_new));
    added->failures += is_new;
    return CUVIL_OK;
  }
  struct cuvil_db_measurement measurement = {0};
  CUVIL_TRY(read_measurement(cuvil, row, &measurement));
  CUVIL_TRY(cuvil_db_hash_measurement(&row->context, &measurement, hash));
  CUVIL_TRY(confirm(cuvil, row->origin, hash));
  CUVIL_TRY(cuvil_db_put_measurement(db, &row->context, &measurement, recorded,
                                     &is_new));
  added->measurements += is_new;
  return CUVIL_OK;
}

enum cuvil_status cuvil_db_import_row(struct cuvil_db *db, const json_t *cuvil,
                                      const char *recorded, const char *origin,
                                      struct cuvil_db_counts *added) {
  struct row row = {.origin = origin};
  if (!cuvil)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "%s: not written by cuvil-db export (no \"cuvil\"): the "
                      "problem and the machine of another program's results "
                      "are not known here; a search is replayed on them by "
                      "`cuvil-tune --device replay:FILE`",
                      origin);
  CUVIL_TRY(check_time(recorded, origin));
  enum cuvil_status status = add_row(db, cuvil, recorded, &row, added);
  free_row(&row);
  return status;
}

/* ---- T4 */

static enum cuvil_status import_results(struct cuvil_db *db, const json_t *file,
                                        const char *path,
                                        struct cuvil_db_counts *added) {
  const json_t *results = NULL;
  const char *version = NULL;
  CUVIL_TRY(cuvil_json_get_string(file, "schema_version", path, &version));
  if (strcmp(version, "1.0.0") != 0)
    return CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,
                      "%s: T4 results of version %s; 1.0.0 is read", path,
                      version);
  if (json_object_get(json_object_get(file, "metadata"), "cuvil"))
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "%s: a recording; it is used by `cuvil-tune --device "
                      "replay:%s`",
                      path, path);
  CUVIL_TRY(cuvil_json_get_array(file, "results", path, &results));
  for (size_t i = 0; i < json_array_size(results); i++) {
    const json_t *result = json_array_get(results, i);
    const char *recorded = NULL;
    char origin[512];
    snprintf(origin, sizeof origin, "%.400s: result %zu", path, i);
    CUVIL_TRY(cuvil_json_get_string(result, "timestamp", origin, &recorded));
    CUVIL_TRY(cuvil_db_import_row(db, json_object_get(result, "cuvil"),
                                  recorded, origin, added));
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_db_import_t4(struct cuvil_db *db, const char *path,
                                     struct cuvil_db_counts *out) {
  struct cuvil_db_counts added = {0};
  json_t *file = NULL;
  *out = added;
  CUVIL_TRY(cuvil_json_read(path, &file));
  enum cuvil_status status = cuvil_db_begin(db);
  if (status == CUVIL_OK)
    status = cuvil_db_end(db, import_results(db, file, path, &added));
  json_decref(file);
  if (status == CUVIL_OK) *out = added;
  return status;
}
