/* export.c - evidence as a results file of the tuning community (T4, 1.0.0).
 *
 * One result for each measurement and failure.  The schema knows one kernel
 * per file and no environment, so what it has no place for stands in an object
 * `cuvil` beside it: the problem, the family, the machine, the rounds, and the
 * times in seconds as they were measured, because a time that went through
 * milliseconds and back need not be the same number.  import.c reads that
 * object back.  Practice and schema differ on `times`: Kernel Tuner writes
 * `compilation`, which is what readers look for.  The schema's times are in
 * milliseconds.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "db/interchange.h"

#define set cuvil_db_json_set
#define append cuvil_db_json_append

void cuvil_db_json_set(struct cuvil_db_writer *w, json_t *object,
                       const char *key, json_t *value) {
  /* Takes the value also where it fails. */
  if (json_object_set_new(object, key, value) != 0) w->failed = true;
}
void cuvil_db_json_append(struct cuvil_db_writer *w, json_t *array,
                          json_t *value) {
  if (json_array_append_new(array, value) != 0) w->failed = true;
}
/* JSON has no NaN: what is not known is null. */
static json_t *real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* A compiler's message may be cut inside a character, which JSON refuses: then
 * the text has ? there, and the bytes stand beside it in hexadecimal. */
static void set_detail(struct cuvil_db_writer *w, json_t *cuvil,
                       const char *text) {
  json_t *string = json_string(text);
  if (string) {
    set(w, cuvil, "detail", string);
    return;
  }
  struct cuvil_buf shown = {0}, bytes = {0};
  for (const char *p = text; *p; p++) {
    char letter = *p & 0x80 ? '?' : *p;
    cuvil_buf_add(&shown, &letter, 1);
    cuvil_buf_printf(&bytes, "%02x", (unsigned char)*p);
  }
  set(w, cuvil, "detail", json_string(cuvil_buf_text(&shown)));
  set(w, cuvil, "detail_bytes", json_string(cuvil_buf_text(&bytes)));
  w->failed |= shown.failed || bytes.failed;
  cuvil_buf_free(&shown);
  cuvil_buf_free(&bytes);
}

/* "tile_m=64,tile_n=128" as an object; numbers where they are numbers. */
json_t *cuvil_db_json_configuration(struct cuvil_db_writer *w,
                                    const char *config) {
  json_t *object = json_object();
  const char *p = config;
  while (object && *p) {
    size_t length = strcspn(p, ",");
    size_t name = strcspn(p, "=");
    if (name < length) {
      char *end;
      const char *value = p + name + 1;
      long long number = strtoll(value, &end, 10);
      bool whole = end == p + length && end != value;
      json_t *item =
          whole ? json_integer(number) : json_stringn(value, length - name - 1);
      char *key = strndup(p, name);
      if (key)
        set(w, object, key, item);
      else
        w->failed = true;
      free(key);
    }
    p += length + (p[length] == ',');
  }
  return object;
}

static json_t *environment(struct cuvil_db_writer *w,
                           const struct cuvil_env *env) {
  json_t *object = json_object();
  set(w, object, "gpu", json_string(env->gpu));
  set(w, object, "arch", json_string(env->arch));
  set(w, object, "sms", json_integer(env->sms));
  set(w, object, "memory_bytes", json_integer(env->memory_bytes));
  set(w, object, "l2_bytes", json_integer(env->l2_bytes));
  set(w, object, "driver", json_string(env->driver));
  set(w, object, "cuda", json_string(env->cuda));
  set(w, object, "nvrtc", json_string(env->nvrtc));
  set(w, object, "cublaslt", json_string(env->cublaslt));
  set(w, object, "cudnn", json_string(env->cudnn));
  return object;
}

/* What the object `cuvil` of both kinds of result has. */
static json_t *own_part(struct cuvil_db_writer *w,
                        const struct cuvil_db_stamp *stamp,
                        const struct cuvil_db_context *context,
                        const struct cuvil_db_candidate *candidate) {
  json_t *cuvil = json_object();
  set(w, cuvil, "hash", json_string(stamp->hash));
  set(w, cuvil, "problem", json_string(candidate->problem));
  set(w, cuvil, "signature", json_string(candidate->signature));
  set(w, cuvil, "family", json_string(candidate->family));
  set(w, cuvil, "family_version", json_integer(candidate->family_version));
  set(w, cuvil, "config", json_string(candidate->config));
  set(w, cuvil, "source", json_string(context->source));
  set(w, cuvil, "l2", json_string(context->l2));
  set(w, cuvil, "regime", json_string(context->regime));
  set(w, cuvil, "method", json_integer(context->method));
  set(w, cuvil, "environment", environment(w, context->env));
  return cuvil;
}

json_t *cuvil_db_json_measurement(struct cuvil_db_writer *w,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_measurement *m) {
  json_t *cuvil = own_part(w, stamp, context, &m->candidate);
  json_t *seconds = json_array(), *rounds = json_array();
  for (int i = 0; i < m->block_count; i++) {
    append(w, seconds, json_real(m->blocks[i]));
    append(w, rounds, json_integer(m->rounds[i]));
  }
  set(w, cuvil, "seconds", seconds);
  set(w, cuvil, "rounds", rounds);
  set(w, cuvil, "median", json_real(m->median));
  set(w, cuvil, "low", json_real(m->low));
  set(w, cuvil, "high", json_real(m->high));
  set(w, cuvil, "compile_seconds", real(m->compile_seconds));
  set(w, cuvil, "cubin_hash", json_string(m->cubin_hash));
  set(w, cuvil, "registers", json_integer(m->registers));
  set(w, cuvil, "spill_bytes", json_integer(m->spill_bytes));
  set(w, cuvil, "shared_bytes", json_integer(m->shared_bytes));
  set(w, cuvil, "worst_ratio", real(m->worst_ratio));
  return cuvil;
}

json_t *cuvil_db_json_failure(struct cuvil_db_writer *w,
                              const struct cuvil_db_stamp *stamp,
                              const struct cuvil_db_context *context,
                              const struct cuvil_db_failure *failure) {
  json_t *cuvil = own_part(w, stamp, context, &failure->candidate);
  set(w, cuvil, "reason", json_string(failure->reason));
  set_detail(w, cuvil, failure->detail);
  return cuvil;
}

/* What both kinds of result share; the new result is in w->results.  NULL when
 * memory ran out. */
static json_t *begin_result(struct cuvil_db_writer *w,
                            const struct cuvil_db_stamp *stamp,
                            const struct cuvil_db_candidate *candidate) {
  json_t *result = json_object(), *objectives = json_array();
  append(w, objectives, json_string("time"));
  set(w, result, "timestamp", json_string(stamp->recorded));
  set(w, result, "configuration",
      cuvil_db_json_configuration(w, candidate->config));
  set(w, result, "objectives", objectives);
  append(w, w->results, result);
  return w->failed ? NULL : result;
}

static void add_value(struct cuvil_db_writer *w, json_t *measurements,
                      const char *name, json_t *value, const char *unit) {
  json_t *item = json_object();
  set(w, item, "name", json_string(name));
  set(w, item, "value", value);
  set(w, item, "unit", json_string(unit));
  append(w, measurements, item);
}

static json_t *times(struct cuvil_db_writer *w, double compile_seconds) {
  json_t *object = json_object();
  set(w, object, "compilation", real(compile_seconds * 1e3));
  set(w, object, "framework", json_real(0));
  set(w, object, "search_algorithm", json_real(0));
  set(w, object, "validation", json_real(0));
  return object;
}

enum cuvil_status cuvil_db_writer_status(const struct cuvil_db_writer *w) {
  return w->failed ? CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up")
                   : CUVIL_OK;
}

static enum cuvil_status write_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m) {
  struct cuvil_db_writer *w = user;
  json_t *result = begin_result(w, stamp, &m->candidate);
  if (!result) return cuvil_db_writer_status(w);
  json_t *time = times(w, m->compile_seconds);
  json_t *runtimes = json_array(), *measurements = json_array();
  for (int i = 0; i < m->block_count; i++)
    append(w, runtimes, json_real(m->blocks[i] * 1e3));
  set(w, time, "runtimes", runtimes);
  set(w, result, "times", time);
  set(w, result, "invalidity", json_string("correct"));
  set(w, result, "correctness", json_integer(1));
  add_value(w, measurements, "time", json_real(m->median * 1e3),
            "milliseconds");
  add_value(w, measurements, "time_low", json_real(m->low * 1e3),
            "milliseconds");
  add_value(w, measurements, "time_high", json_real(m->high * 1e3),
            "milliseconds");
  set(w, result, "measurements", measurements);
  set(w, result, "cuvil", cuvil_db_json_measurement(w, stamp, context, m));
  return cuvil_db_writer_status(w);
}

/* Our reasons in the six words of the schema; the reason itself stays in
 * `cuvil`. */
const char *cuvil_db_invalidity(const char *reason) {
  static const char *const words[][2] = {
      {"compile", "compile"},     {"compile_timeout", "compile"},
      {"spill", "constraints"},   {"timeout", "timeout"},
      {"wrong", "correctness"},   {"incomplete", "correctness"},
      {"overrun", "correctness"}, {"nan", "correctness"},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(reason, words[i][0]) == 0) return words[i][1];
  }
  return "runtime";
}

static enum cuvil_status write_failure(void *user,
                                       const struct cuvil_db_stamp *stamp,
                                       const struct cuvil_db_context *context,
                                       const struct cuvil_db_failure *failure) {
  struct cuvil_db_writer *w = user;
  json_t *result = begin_result(w, stamp, &failure->candidate);
  if (!result) return cuvil_db_writer_status(w);
  json_t *measurements = json_array();
  const char *word = cuvil_db_invalidity(failure->reason);
  set(w, result, "times", times(w, 0));
  set(w, result, "invalidity", json_string(word));
  set(w, result, "correctness", json_integer(0));
  add_value(w, measurements, "time",
            json_string(strcmp(word, "compile") == 0 ? "CompilationFailedConfig"
                                                     : "RuntimeFailedConfig"),
            "");
  set(w, result, "measurements", measurements);
  set(w, result, "cuvil", cuvil_db_json_failure(w, stamp, context, failure));
  return cuvil_db_writer_status(w);
}

enum cuvil_status cuvil_db_export_t4(struct cuvil_db *db,
                                     const struct cuvil_db_filter *filter,
                                     struct cuvil_buf *out) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_db_writer w = {.results = json_array()};
  json_t *file = json_object(), *metadata = json_object();
  set(&w, file, "schema_version", json_string("1.0.0"));
  set(&w, metadata, "timeunit", json_string("milliseconds"));
  set(&w, metadata, "generator", json_string("cuvil " CUVIL_VERSION));
  set(&w, file, "metadata", metadata);
  set(&w, file, "results", w.results);
  CUVIL_TRY_GOTO(cuvil_db_writer_status(&w));
  CUVIL_TRY_GOTO(cuvil_db_each_measurement(db, filter, write_measurement, &w));
  CUVIL_TRY_GOTO(cuvil_db_each_failure(db, filter, write_failure, &w));
  CUVIL_TRY_GOTO(cuvil_json_print(file, out));
fail:
  json_decref(file);
  return status;
}
