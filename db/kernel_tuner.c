/* kernel_tuner.c - evidence as a cache file of Kernel Tuner, and back.
 *
 * Such a file is one kernel on one device: here a family on a problem, in one
 * circumstance.  Each configuration has one entry, its parameters and times
 * beside each other, under the key "value,value,..." in the order of
 * tune_params_keys.  A failed one has the name of the failure in place of its
 * time.  The rows themselves stand in `cuvil` beside the cache, under the same
 * keys, which is what an import reads.
 *
 * The last three bytes are what Kernel Tuner looks for to see that a file was
 * closed properly, and takes away to go on writing: "}\n}".
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "db/interchange.h"
#include "problem/problem.h"

#define set cuvil_db_json_set
#define append cuvil_db_json_append

/* ---- which circumstance */

struct group {
  char *key; /* owned */
  bool measured;
  int method, count;
  char gpu[96];
};

struct choice {
  struct group *groups; /* owned */
  int count;
  struct cuvil_buf scratch;
  const struct group *best;
};

static void free_choice(struct choice *choice) {
  for (int i = 0; i < choice->count; i++)
    free(choice->groups[i].key);
  free(choice->groups);
  cuvil_buf_free(&choice->scratch);
}

/* All that two rows of one cache must share; valid until the next call. */
static const char *group_key(struct choice *choice,
                             const struct cuvil_db_context *c, int version) {
  const struct cuvil_env *e = c->env;
  cuvil_buf_clear(&choice->scratch);
  cuvil_buf_printf(
      &choice->scratch,
      "%s, %s, %d SMs, memory %lld, L2 %lld, driver %s, CUDA %s, NVRTC %s, "
      "cuBLASLt %s, cuDNN %s, %s, %s L2, %s, method %d, family version %d",
      e->gpu, e->arch, e->sms, (long long)e->memory_bytes,
      (long long)e->l2_bytes, e->driver, e->cuda, e->nvrtc, e->cublaslt,
      e->cudnn, c->source, c->l2, c->regime, c->method, version);
  return cuvil_buf_text(&choice->scratch);
}

static enum cuvil_status count_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m) {
  struct choice *choice = user;
  (void)stamp;
  const char *key = group_key(choice, context, m->candidate.family_version);
  CUVIL_TRY(cuvil_buf_status(&choice->scratch));
  for (int i = 0; i < choice->count; i++) {
    if (strcmp(choice->groups[i].key, key) != 0) continue;
    choice->groups[i].count++;
    return CUVIL_OK;
  }
  struct group *groups = realloc(
      choice->groups, (size_t)(choice->count + 1) * sizeof *choice->groups);
  if (groups) choice->groups = groups;
  char *copy = groups ? strdup(key) : NULL;
  if (!copy) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  struct group *group = &groups[choice->count++];
  *group = (struct group){.key = copy,
                          .measured = strcmp(context->source, "measured") == 0,
                          .method = context->method,
                          .count = 1};
  memcpy(group->gpu, context->env->gpu, sizeof group->gpu);
  return CUVIL_OK;
}

static bool is_better(const struct group *a, const struct group *b) {
  if (a->measured != b->measured) return a->measured;
  if (a->method != b->method) return a->method > b->method;
  return a->count > b->count;
}

static enum cuvil_status choose(struct cuvil_db *db,
                                const struct cuvil_db_filter *filter,
                                struct choice *choice) {
  CUVIL_TRY(cuvil_db_each_measurement(db, filter, count_measurement, choice));
  if (choice->count == 0)
    return CUVIL_FAIL(CU_ERR_NOT_TUNED, "%s: no measurement of %s on %s",
                      db->path, filter->family, filter->problem);
  choice->best = &choice->groups[0];
  for (int i = 1; i < choice->count; i++) {
    const struct group *group = &choice->groups[i];
    if (strcmp(group->gpu, choice->groups[0].gpu) != 0)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "measured on %s and on %s: name one with --gpu",
                        choice->groups[0].gpu, group->gpu);
    if (is_better(group, choice->best)) choice->best = group;
  }
  if (choice->count > 1)
    cuvil_log_warning("%d circumstances have evidence; taken: %s",
                      choice->count, choice->best->key);
  return CUVIL_OK;
}

/* ---- entries */

struct cache {
  struct cuvil_db_writer writer;
  struct choice choice;
  const struct cuvil_db_filter *filter;
  json_t *entries, *rows; /* by configuration's text; owned */
  char device[96];
};

static bool is_chosen(struct cache *cache,
                      const struct cuvil_db_context *context, int version) {
  return strcmp(group_key(&cache->choice, context, version),
                cache->choice.best->key) == 0;
}

static json_t *begin_entry(struct cache *cache,
                           const struct cuvil_db_stamp *stamp,
                           const char *config) {
  json_t *entry = cuvil_db_json_configuration(&cache->writer, config);
  set(&cache->writer, entry, "timestamp", json_string(stamp->recorded));
  return entry;
}

static void set_costs(struct cache *cache, json_t *entry, double compile,
                      double benchmark) {
  static const char *const none[] = {"verification_time", "strategy_time",
                                     "framework_time"};
  set(&cache->writer, entry, "compile_time", json_real(compile * 1e3));
  set(&cache->writer, entry, "benchmark_time", json_real(benchmark * 1e3));
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    set(&cache->writer, entry, none[i], json_real(0));
}

/* Of a configuration that was measured twice, the row with more blocks stays,
 * then the one with the lower hash. */
static bool is_beaten(const struct cache *cache,
                      const struct cuvil_db_stamp *stamp,
                      const struct cuvil_db_measurement *m) {
  const json_t *other = json_object_get(cache->rows, m->candidate.config);
  if (!other) return false;
  int blocks = (int)json_array_size(json_object_get(other, "rounds"));
  if (blocks != m->block_count) return blocks > m->block_count;
  const char *hash = json_string_value(json_object_get(other, "hash"));
  return strcmp(hash, stamp->hash) < 0;
}

static enum cuvil_status take_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m) {
  struct cache *cache = user;
  struct cuvil_db_writer *w = &cache->writer;
  const char *config = m->candidate.config;
  if (!is_chosen(cache, context, m->candidate.family_version) ||
      is_beaten(cache, stamp, m))
    return CUVIL_OK;
  json_t *entry = begin_entry(cache, stamp, config), *times = json_array();
  double sum = 0;
  for (int i = 0; i < m->block_count; i++) {
    append(w, times, json_real(m->blocks[i] * 1e3));
    sum += m->blocks[i];
  }
  set(w, entry, "time", json_real(m->median * 1e3));
  set(w, entry, "times", times);
  set_costs(cache, entry, m->compile_seconds, sum);
  set(w, cache->entries, config, entry);
  set(w, cache->rows, config, cuvil_db_json_measurement(w, stamp, context, m));
  memcpy(cache->device, context->env->gpu, sizeof cache->device);
  return cuvil_db_writer_status(w);
}

static const char *error_name(const char *reason) {
  const char *word = cuvil_db_invalidity(reason);
  if (strcmp(word, "compile") == 0) return "CompilationFailedConfig";
  if (strcmp(word, "constraints") == 0) return "InvalidConfig";
  return "RuntimeFailedConfig";
}

/* A configuration that also ran has its times. */
static enum cuvil_status take_failure(void *user,
                                      const struct cuvil_db_stamp *stamp,
                                      const struct cuvil_db_context *context,
                                      const struct cuvil_db_failure *failure) {
  struct cache *cache = user;
  struct cuvil_db_writer *w = &cache->writer;
  const char *config = failure->candidate.config;
  if (!is_chosen(cache, context, failure->candidate.family_version) ||
      json_object_get(cache->entries, config))
    return CUVIL_OK;
  json_t *entry = begin_entry(cache, stamp, config);
  set(w, entry, "time", json_string(error_name(failure->reason)));
  set_costs(cache, entry, 0, 0);
  set(w, cache->entries, config, entry);
  set(w, cache->rows, config,
      cuvil_db_json_failure(w, stamp, context, failure));
  return cuvil_db_writer_status(w);
}

static void free_cache(struct cache *cache) {
  json_decref(cache->entries);
  json_decref(cache->rows);
  free_choice(&cache->choice);
}

static enum cuvil_status collect(struct cuvil_db *db, struct cache *cache) {
  if (!cache->filter || !cache->filter->problem || !cache->filter->family)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a cache of Kernel Tuner is of one family on one "
                      "problem: name both");
  cache->entries = json_object();
  cache->rows = json_object();
  cache->writer.failed = !cache->entries || !cache->rows;
  CUVIL_TRY(cuvil_db_writer_status(&cache->writer));
  CUVIL_TRY(choose(db, cache->filter, &cache->choice));
  CUVIL_TRY(
      cuvil_db_each_measurement(db, cache->filter, take_measurement, cache));
  return cuvil_db_each_failure(db, cache->filter, take_failure, cache);
}

enum cuvil_status cuvil_db_each_cached(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user, const char *config), void *user) {
  struct cache cache = {.filter = filter};
  const char *config;
  json_t *entry;
  enum cuvil_status status = collect(db, &cache);
  if (status == CUVIL_OK) {
    json_object_foreach(cache.entries, config, entry) {
      status = callback(user, config);
      if (status != CUVIL_OK) break;
    }
  }
  free_cache(&cache);
  return status;
}

/* ---- the file */

static int compare_integers(const void *a, const void *b) {
  json_int_t x = json_integer_value(*(json_t *const *)a);
  json_int_t y = json_integer_value(*(json_t *const *)b);
  return (x > y) - (x < y);
}

/* The values that the entries have, each once, ascending. */
static json_t *values_of(struct cache *cache, const char *param) {
  json_t *list = json_array(), *entry;
  const char *config;
  size_t count = 0;
  json_t **items =
      calloc(json_object_size(cache->entries) + 1, sizeof(json_t *));
  if (!items) {
    cache->writer.failed = true;
    return list;
  }
  json_object_foreach(cache->entries, config, entry) {
    json_t *value = json_object_get(entry, param);
    size_t i = 0;
    while (i < count && !json_equal(items[i], value))
      i++;
    if (i == count) items[count++] = value;
  }
  qsort(items, count, sizeof *items, compare_integers);
  for (size_t i = 0; i < count; i++)
    append(&cache->writer, list, json_incref(items[i]));
  free(items);
  return list;
}

/* "64,128,2": the values of a configuration's text. */
static enum cuvil_status value_key(const char *config, struct cuvil_buf *out) {
  cuvil_buf_clear(out);
  for (const char *p = config; *p;) {
    size_t length = strcspn(p, ",");
    const char *value = memchr(p, '=', length);
    if (!value)
      return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                        "\"%s\" has no values of parameters", config);
    if (out->size) cuvil_buf_puts(out, ",");
    cuvil_buf_add(out, value + 1, (size_t)(p + length - value - 1));
    p += length + (p[length] == ',');
  }
  return cuvil_buf_status(out);
}

static enum cuvil_status keyed(struct cache *cache, json_t *by_config,
                               json_t *out) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf key = {0};
  const char *config;
  json_t *item;
  json_object_foreach(by_config, config, item) {
    CUVIL_TRY_GOTO(value_key(config, &key));
    set(&cache->writer, out, cuvil_buf_text(&key), json_incref(item));
  }
fail:
  cuvil_buf_free(&key);
  return status;
}

/* The names of the parameters, in the order of the text. */
static void set_params(struct cache *cache, json_t *file) {
  struct cuvil_db_writer *w = &cache->writer;
  json_t *names = json_array(), *values = json_object();
  const char *first = json_object_iter_key(json_object_iter(cache->entries));
  json_t *config = cuvil_db_json_configuration(w, first ? first : "");
  const char *name;
  json_t *value;
  json_object_foreach(config, name, value) {
    append(w, names, json_string(name));
    set(w, values, name, values_of(cache, name));
  }
  json_decref(config);
  set(w, file, "tune_params_keys", names);
  set(w, file, "tune_params", values);
}

static json_t *extents(struct cache *cache,
                       const struct cuvil_problem *problem) {
  json_t *list = json_array();
  for (int i = 0; i < problem->dim_count; i++)
    append(&cache->writer, list,
           json_integer((json_int_t)problem->dims[i].extent));
  return list;
}

static enum cuvil_status write_file(struct cache *cache, json_t *file) {
  struct cuvil_db_writer *w = &cache->writer;
  struct cuvil_problem problem;
  CUVIL_TRY(cuvil_problem_parse(cache->filter->problem, &problem));
  json_t *own = json_object(), *rows = json_object(), *entries = json_object();
  set(w, file, "device_name", json_string(cache->device));
  set(w, file, "kernel_name", json_string(cache->filter->family));
  set(w, file, "problem_size", extents(cache, &problem));
  set_params(cache, file);
  set(w, file, "objective", json_string("time"));
  set(w, own, "problem", json_string(cache->filter->problem));
  set(w, own, "rows", rows);
  set(w, file, "cuvil", own);
  set(w, file, "cache", entries); /* last: see above */
  CUVIL_TRY(cuvil_db_writer_status(w));
  CUVIL_TRY(keyed(cache, cache->rows, rows));
  CUVIL_TRY(keyed(cache, cache->entries, entries));
  return cuvil_db_writer_status(w);
}

enum cuvil_status cuvil_db_export_kernel_tuner(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    struct cuvil_buf *out) {
  enum cuvil_status status = CUVIL_OK;
  struct cache cache = {.filter = filter};
  json_t *file = json_object();
  CUVIL_TRY_GOTO(collect(db, &cache));
  CUVIL_TRY_GOTO(write_file(&cache, file));
  CUVIL_TRY_GOTO(cuvil_json_print(file, out));
  out->data[--out->size] = '\0';
  cuvil_buf_puts(out, "\n}");
  CUVIL_TRY_GOTO(cuvil_buf_status(out));
fail:
  json_decref(file);
  free_cache(&cache);
  return status;
}

/* ---- reading */

static enum cuvil_status import_entries(struct cuvil_db *db, const json_t *file,
                                        const char *path,
                                        struct cuvil_db_counts *added) {
  json_t *entries = json_object_get(file, "cache"), *entry;
  const json_t *rows = json_object_get(json_object_get(file, "cuvil"), "rows");
  const char *key;
  if (!json_is_object(entries))
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "%s: no object \"cache\": not a cache of Kernel Tuner",
                      path);
  json_object_foreach(entries, key, entry) {
    char origin[768];
    const char *recorded = NULL;
    const json_t *row = json_object_get(rows, key);
    snprintf(origin, sizeof origin, "%.400s: entry %.300s", path, key);
    if (row)
      CUVIL_TRY(cuvil_json_get_string(entry, "timestamp", origin, &recorded));
    CUVIL_TRY(cuvil_db_import_row(db, row, recorded, origin, added));
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_db_import_kernel_tuner(struct cuvil_db *db,
                                               const char *path,
                                               struct cuvil_db_counts *out) {
  struct cuvil_db_counts added = {0};
  json_t *file = NULL;
  *out = added;
  CUVIL_TRY(cuvil_json_read(path, &file));
  enum cuvil_status status = cuvil_db_begin(db);
  if (status == CUVIL_OK)
    status = cuvil_db_end(db, import_entries(db, file, path, &added));
  json_decref(file);
  if (status == CUVIL_OK) *out = added;
  return status;
}
