/* pool.c - keeps the compile workers busy.
 *
 * Workers are started when there is something to do and stay until the end:
 * loading the compiler costs more than a small compile.  One that takes too
 * long is killed, its job fails as compile_timeout, and a fresh one takes its
 * place.
 */
#include "tuner/pool.h"

#include <stdlib.h>
#include <string.h>

enum cuvil_status cuvil_pool_create(struct cuvil_pool *pool, int workers,
                                    double limit, cuvil_child_main run,
                                    void *user) {
  *pool = (struct cuvil_pool){
      .workers = workers, .limit = limit, .run = run, .user = user};
  pool->children = calloc((size_t)workers, sizeof *pool->children);
  pool->running = calloc((size_t)workers, sizeof *pool->running);
  pool->by_key = json_object();
  if (!pool->children || !pool->running || !pool->by_key) {
    cuvil_pool_free(pool);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %d workers",
                      workers);
  }
  for (int i = 0; i < workers; i++)
    pool->running[i] = -1;
  return CUVIL_OK;
}

void cuvil_pool_free(struct cuvil_pool *pool) {
  for (int i = 0; pool->children && i < pool->workers; i++)
    CUVIL_IGNORE(cuvil_child_stop(&pool->children[i], 10, NULL)); /* at exit */
  for (int i = 0; i < pool->job_count; i++)
    json_decref(pool->jobs[i].request);
  free(pool->children);
  free(pool->running);
  free(pool->jobs);
  free(pool->queue);
  json_decref(pool->by_key);
  *pool = (struct cuvil_pool){0};
}

static enum cuvil_status grow(struct cuvil_pool *pool) {
  int capacity = pool->job_capacity ? 2 * pool->job_capacity : 128;
  if (pool->job_count < pool->job_capacity) return CUVIL_OK;
  struct cuvil_job *jobs = realloc(pool->jobs, (size_t)capacity * sizeof *jobs);
  if (jobs) pool->jobs = jobs;
  int *queue = realloc(pool->queue, (size_t)capacity * sizeof *queue);
  if (queue) pool->queue = queue;
  if (!jobs || !queue)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %d compiles",
                      capacity);
  pool->job_capacity = capacity;
  return CUVIL_OK;
}

enum cuvil_status cuvil_pool_add(struct cuvil_pool *pool, const char *key,
                                 json_t *request, bool urgent, int *out_job) {
  json_t *known = json_object_get(pool->by_key, key);
  *out_job = -1;
  if (known) {
    json_decref(request);
    *out_job = (int)json_integer_value(known);
    return CUVIL_OK;
  }
  enum cuvil_status status = grow(pool);
  if (status == CUVIL_OK &&
      (!request || json_object_set_new(pool->by_key, key,
                                       json_integer(pool->job_count)) != 0))
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a compile");
  if (status != CUVIL_OK) {
    json_decref(request);
    return status;
  }
  int job = pool->job_count++;
  pool->jobs[job] = (struct cuvil_job){.request = request};
  pool->jobs[job].result.state = CUVIL_COMPILE_PENDING;
  int at = urgent ? 0 : pool->queue_count;
  memmove(pool->queue + at + 1, pool->queue + at,
          (size_t)(pool->queue_count - at) * sizeof *pool->queue);
  pool->queue[at] = job;
  pool->queue_count++;
  *out_job = job;
  return CUVIL_OK;
}

static enum cuvil_status feed(struct cuvil_pool *pool) {
  for (int i = 0; i < pool->workers && pool->queue_count > 0; i++) {
    struct cuvil_child *child = &pool->children[i];
    if (pool->running[i] >= 0) continue;
    if (child->pid == 0)
      CUVIL_TRY(cuvil_child_start(child, pool->run, pool->user));
    int job = pool->queue[0];
    pool->queue_count--;
    memmove(pool->queue, pool->queue + 1,
            (size_t)pool->queue_count * sizeof *pool->queue);
    pool->running[i] = job;
    /* One that died idle shows when it is written to: its job fails as the
     * closed connection of a busy one would. */
    if (cuvil_child_request(child, pool->jobs[job].request, pool->limit) !=
        CUVIL_OK)
      child->busy = true, child->deadline = 0;
  }
  return CUVIL_OK;
}

static void copy_text(const json_t *message, const char *key, char *out,
                      size_t size) {
  const char *text = json_string_value(json_object_get(message, key));
  size_t n = text ? strlen(text) : 0;
  if (n >= size) n = size - 1;
  memcpy(out, text ? text : "", n);
  out[n] = '\0';
}

static int number(const json_t *message, const char *key) {
  return (int)json_integer_value(json_object_get(message, key));
}

static void finish(struct cuvil_job *job, const json_t *message) {
  struct cuvil_compiled *result = &job->result;
  job->done = true;
  result->seconds = json_number_value(json_object_get(message, "seconds"));
  if (!json_is_true(json_object_get(message, "ok"))) {
    result->state = CUVIL_COMPILE_FAILED;
    copy_text(message, "reason", result->outcome.reason,
              sizeof result->outcome.reason);
    copy_text(message, "detail", result->outcome.detail,
              sizeof result->outcome.detail);
    return;
  }
  result->state = CUVIL_COMPILE_DONE;
  result->outcome.ok = true;
  copy_text(message, "binary", result->binary, sizeof result->binary);
  result->registers = number(message, "registers");
  result->spill_bytes = number(message, "spill_bytes");
  result->shared_bytes = number(message, "shared_bytes");
}

/* A worker that was late or ended: its job failed, it is replaced when there
 * is work. */
static enum cuvil_status lose(struct cuvil_pool *pool, int index, bool late) {
  int job = pool->running[index], signal = 0;
  pool->running[index] = -1;
  CUVIL_TRY(cuvil_child_stop(&pool->children[index], 30, &signal));
  if (job < 0) return CUVIL_OK;
  struct cuvil_compiled *result = &pool->jobs[job].result;
  pool->jobs[job].done = true;
  result->state = CUVIL_COMPILE_FAILED;
  if (late)
    cuvil_outcome_fail(&result->outcome, "compile_timeout",
                       "the compile did not end within %.3g s", pool->limit);
  else
    cuvil_outcome_fail(&result->outcome, "compile",
                       "the compiler's process ended (signal %d)", signal);
  return CUVIL_OK;
}

enum cuvil_status cuvil_pool_wait(struct cuvil_pool *pool,
                                  struct cuvil_child *other, double seconds,
                                  bool *out_other,
                                  enum cuvil_child_event *out_event,
                                  json_t **out_message) {
  struct cuvil_child *all[512];
  int index = -1, n = 0;
  *out_other = false;
  *out_message = NULL;
  CUVIL_TRY(feed(pool));
  all[n++] = other;
  for (int i = 0; i < pool->workers && n < 512; i++)
    all[n++] = &pool->children[i];
  CUVIL_TRY(
      cuvil_children_wait(all, n, seconds, &index, out_event, out_message));
  if (index < 0) return CUVIL_OK;
  if (index == 0) {
    *out_other = true;
    return CUVIL_OK;
  }
  int worker = index - 1, job = pool->running[worker];
  if (*out_event != CUVIL_CHILD_MESSAGE)
    return lose(pool, worker, *out_event == CUVIL_CHILD_LATE);
  if (job >= 0 && !json_is_true(json_object_get(*out_message, "alive"))) {
    finish(&pool->jobs[job], *out_message);
    pool->running[worker] = -1;
  }
  json_decref(*out_message);
  *out_message = NULL;
  return feed(pool);
}
