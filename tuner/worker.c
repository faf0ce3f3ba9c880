/* worker.c - the measuring worker: the only process that holds the GPU.
 *
 * It serves one request at a time.  Before each step that might never end it
 * sends a note of life, so that silence means a hang and the parent may kill
 * it.  A failure that has spoilt the context (an illegal address is reported
 * by every later call) is told as such; the parent then starts another worker.
 *
 *   {"op": "hello"}                         -> arch, env
 *   {"op": "open", "problem", "cold": [], "rotations", "seed"}
 *   {"op": "choices", "family", "limit"}    -> texts
 *   {"op": "try", "family", "config", "limit": seconds, "verify": bool}
 *                                           -> worst_ratio, blocks
 *   {"op": "round", "entrants": [{"family", "config", "copy"}]} -> results
 *   {"op": "close"}
 *
 * Answers: {"ok": true, ...}; {"ok": false, "reason", "detail", "fatal"} for a
 * candidate that failed; {"status": number, "message"} for what the request
 * itself could not do.
 */
#include "tuner/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tuner/describe.h"

enum { PILOT_BLOCKS = 3 };
static const double first_warm_up = 0.3; /* seconds: clocks leave idle */
static const double later_warm_up = 0.02;
static const double idle = 0.1; /* seconds after which clocks may have sunk */

static json_t *ok(void) {
  return json_pack("{s:b}", "ok", 1);
}

/* A status as the outcome of a candidate. */
static json_t *failed(struct cuvil_worker *worker, enum cuvil_status status) {
  json_t *detail = cuvil_message_text(cuvil_last_error());
  const char *reason = "launch";
  bool fatal = false;
  switch (status) {
    case CU_ERR_DEVICE_MEMORY:
      reason = "memory";
      break;
    case CU_ERR_KERNEL_COMPILE:
      reason = "compile";
      break;
    case CU_ERR_LIBRARY:
    case CU_ERR_LIBRARY_NOT_FOUND:
      reason = "library";
      break;
    case CU_ERR_CANDIDATE_FAILED: /* the timer got no possible time */
      reason = "noise";
      break;
    case CU_ERR_CUDA_LAUNCH_TIMEOUT:
      reason = "timeout";
      fatal = true;
      break;
    default:
      break;
  }
  /* A spoilt context fails every call from now on. */
  if (!fatal && cuvil_gpu_synchronize(worker->gpu) != CUVIL_OK) {
    fatal = true;
    reason = "crash";
  }
  return json_pack("{s:b, s:s, s:o, s:b}", "ok", 0, "reason", reason, "detail",
                   detail, "fatal", fatal);
}

static json_t *judged(const struct cuvil_verdict *verdict) {
  /* What wrote past its memory may have written past our red zones too. */
  bool fatal = strcmp(verdict->reason, "overrun") == 0;
  return json_pack(
      "{s:b, s:s, s:o, s:b, s:f}", "ok", 0, "reason", verdict->reason, "detail",
      cuvil_message_text(verdict->detail), "fatal", fatal, "worst_ratio",
      isfinite(verdict->worst_ratio) ? verdict->worst_ratio : 0);
}

static enum cuvil_status hello(struct cuvil_worker *worker, json_t **out) {
  if (!worker->gpu)
    CUVIL_TRY(cuvil_gpu_open(worker->options->ordinal, &worker->gpu));
  *out = json_pack("{s:b, s:o, s:o}", "ok", 1, "arch",
                   cuvil_arch_to_json(cuvil_gpu_arch(worker->gpu)), "env",
                   cuvil_env_to_json(cuvil_gpu_env(worker->gpu)));
  return CUVIL_OK;
}

static enum cuvil_status open_problem(struct cuvil_worker *worker,
                                      const json_t *request, json_t **out) {
  const char *problem = NULL;
  int64_t rotations = 1, seed = 0;
  CUVIL_TRY(cuvil_json_get_string(request, "problem", "request", &problem));
  CUVIL_TRY(cuvil_json_get_int(request, "rotations", "request", &rotations));
  CUVIL_TRY(cuvil_json_get_int(request, "seed", "request", &seed));
  CUVIL_TRY(cuvil_worker_open(worker, problem, json_object_get(request, "cold"),
                              (int)rotations, (uint64_t)seed));
  *out = ok();
  return CUVIL_OK;
}

static enum cuvil_status choices(struct cuvil_worker *worker,
                                 const json_t *request, json_t **out) {
  struct cuvil_config configs[64];
  const struct cuvil_space *space = NULL;
  const char *id = NULL;
  int64_t limit = 0;
  int count = 0;
  CUVIL_TRY(cuvil_json_get_string(request, "family", "request", &id));
  CUVIL_TRY(cuvil_json_get_int(request, "limit", "request", &limit));
  const struct cuvil_family *family = cuvil_family_find(id);
  CUVIL_CHECK(family && family->choices && limit >= 0);
  if (limit > 64) limit = 64;
  CUVIL_TRY(cuvil_family_space(family, &space));
  struct cuvil_query query = {&worker->problem, cuvil_gpu_arch(worker->gpu),
                              space};
  CUVIL_TRY(family->choices(&query, worker->gpu, (int)limit, configs, &count));
  json_t *texts = json_array();
  for (int i = 0; i < count; i++) {
    struct cuvil_buf text = {0};
    cuvil_config_print(space, &configs[i], &text);
    json_array_append_new(texts, json_string(cuvil_buf_text(&text)));
    cuvil_buf_free(&text);
  }
  *out = json_pack("{s:b, s:o}", "ok", 1, "texts", texts);
  return CUVIL_OK;
}

/* Clocks sink while nothing runs: lifts them before a block counts. */
static enum cuvil_status lift_clocks(struct cuvil_worker *worker,
                                     struct cuvil_entry *entry) {
  double now = cuvil_now();
  double seconds = worker->last_active == 0           ? first_warm_up
                   : now > worker->last_active + idle ? later_warm_up
                                                      : 0;
  if (seconds > 0) CUVIL_TRY(cuvil_timer_warm_up(entry->timer, seconds));
  return CUVIL_OK;
}

/* One run by itself between two events: enough to see the hopeless. */
static enum cuvil_status single_run(struct cuvil_worker *worker,
                                    struct cuvil_entry *entry,
                                    double *out_seconds) {
  struct cuvil_gpu_stream *stream = NULL;
  struct cuvil_gpu_event *start = NULL, *end = NULL;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_gpu_stream_create(worker->gpu, &stream));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(worker->gpu, &start));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(worker->gpu, &end));
  CUVIL_TRY_GOTO(cuvil_gpu_event_record(start, stream));
  CUVIL_TRY_GOTO(cuvil_entry_enqueue(entry, 0, stream));
  CUVIL_TRY_GOTO(cuvil_gpu_event_record(end, stream));
  CUVIL_TRY_GOTO(cuvil_gpu_event_synchronize(end));
  CUVIL_TRY_GOTO(cuvil_gpu_event_elapsed(start, end, out_seconds));
fail:
  cuvil_gpu_event_destroy(start);
  cuvil_gpu_event_destroy(end);
  cuvil_gpu_stream_destroy(stream);
  return status;
}

/* Verifies where asked, then a few blocks. */
static enum cuvil_status try_entry(struct cuvil_worker *worker,
                                   struct cuvil_entry *entry, bool verify,
                                   double limit, json_t **out) {
  struct cuvil_verdict verdict = {.right = true, .reason = ""};
  double launch = worker->options->launch_limit, single = 0;
  json_t *blocks = NULL;
  if (verify && !entry->verified) {
    CUVIL_TRY(cuvil_verifier_check(worker->verifier, entry->program,
                                   entry->executable, &verdict));
    if (!verdict.right) {
      *out = judged(&verdict);
      return CUVIL_OK;
    }
    entry->verified = true;
    CUVIL_TRY(cuvil_worker_alive(worker, launch));
  }
  CUVIL_TRY(single_run(worker, entry, &single));
  blocks = json_array();
  if (limit > 0 && single > limit) {
    /* Far behind: one honest run is all it gets. */
    json_array_append_new(blocks, json_real(single));
  } else {
    CUVIL_TRY(cuvil_worker_alive(worker, launch));
    CUVIL_TRY(cuvil_entry_timer(entry));
    CUVIL_TRY(lift_clocks(worker, entry));
    for (int i = 0; i < PILOT_BLOCKS; i++) {
      struct cuvil_block block;
      CUVIL_TRY(cuvil_timer_block(entry->timer, &block));
      json_array_append_new(blocks, json_real(block.seconds));
    }
  }
  worker->last_active = cuvil_now();
  *out = json_pack("{s:b, s:f, s:o}", "ok", 1, "worst_ratio",
                   isfinite(verdict.worst_ratio) ? verdict.worst_ratio : 0,
                   "blocks", blocks);
  return CUVIL_OK;
}

static enum cuvil_status attempt(struct cuvil_worker *worker,
                                 const json_t *request, json_t **out) {
  const char *family = NULL, *config = NULL;
  struct cuvil_entry *entry = NULL;
  double limit = 0;
  CUVIL_TRY(cuvil_json_get_string(request, "family", "request", &family));
  CUVIL_TRY(cuvil_json_get_string(request, "config", "request", &config));
  CUVIL_TRY(cuvil_json_get_number(request, "limit", "request", &limit));
  CUVIL_CHECK(worker->verifier);
  enum cuvil_status status = cuvil_entry_get(worker, family, config, 0, &entry);
  if (status == CUVIL_OK)
    status =
        try_entry(worker, entry,
                  json_is_true(json_object_get(request, "verify")), limit, out);
  if (status != CUVIL_OK) *out = failed(worker, status);
  if (entry && !json_is_true(json_object_get(*out, "ok")) &&
      !json_is_true(json_object_get(*out, "fatal")))
    cuvil_entry_drop(worker, entry);
  return CUVIL_OK;
}

static enum cuvil_status one_block(struct cuvil_worker *worker,
                                   const json_t *entrant, double *out_seconds) {
  const char *family = NULL, *config = NULL;
  int64_t copy = 0;
  struct cuvil_entry *entry = NULL;
  struct cuvil_block block;
  CUVIL_TRY(cuvil_json_get_string(entrant, "family", "request", &family));
  CUVIL_TRY(cuvil_json_get_string(entrant, "config", "request", &config));
  CUVIL_TRY(cuvil_json_get_int(entrant, "copy", "request", &copy));
  CUVIL_TRY(cuvil_entry_get(worker, family, config, (int)copy, &entry));
  CUVIL_TRY(cuvil_entry_timer(entry));
  CUVIL_TRY(lift_clocks(worker, entry));
  CUVIL_TRY(cuvil_timer_block(entry->timer, &block));
  worker->last_active = cuvil_now();
  *out_seconds = block.seconds;
  return CUVIL_OK;
}

static enum cuvil_status run_round(struct cuvil_worker *worker,
                                   const json_t *request, json_t **out) {
  const json_t *entrants = NULL;
  json_t *results = json_array();
  bool fatal = false;
  CUVIL_TRY(cuvil_json_get_array(request, "entrants", "request", &entrants));
  CUVIL_CHECK(worker->verifier);
  for (size_t i = 0; i < json_array_size(entrants) && !fatal; i++) {
    double seconds = 0;
    worker->at = (int)i;
    CUVIL_TRY(cuvil_worker_alive(worker, worker->options->launch_limit));
    enum cuvil_status status =
        one_block(worker, json_array_get(entrants, i), &seconds);
    json_t *result = status == CUVIL_OK
                         ? json_pack("{s:b, s:f}", "ok", 1, "seconds", seconds)
                         : failed(worker, status);
    fatal = json_is_true(json_object_get(result, "fatal"));
    json_array_append_new(results, result);
  }
  *out =
      json_pack("{s:b, s:b, s:o}", "ok", 1, "fatal", fatal, "results", results);
  return CUVIL_OK;
}

static enum cuvil_status serve(struct cuvil_worker *worker,
                               const json_t *request, json_t **out) {
  const char *op = NULL;
  CUVIL_TRY(cuvil_json_get_string(request, "op", "request", &op));
  if (strcmp(op, "hello") == 0) return hello(worker, out);
  CUVIL_CHECK(worker->gpu);
  if (strcmp(op, "open") == 0) return open_problem(worker, request, out);
  if (strcmp(op, "choices") == 0) return choices(worker, request, out);
  if (strcmp(op, "try") == 0) return attempt(worker, request, out);
  if (strcmp(op, "round") == 0) return run_round(worker, request, out);
  if (strcmp(op, "close") == 0) {
    cuvil_worker_close(worker);
    *out = ok();
    return CUVIL_OK;
  }
  return CUVIL_FAIL(CU_ERR_INTERNAL, "the worker knows no \"%s\"", op);
}

int cuvil_measure_worker_main(int fd, void *user) {
  struct cuvil_worker worker = {
      .fd = fd, .options = user, .rotations = 1, .at = -1};
  for (;;) {
    json_t *request = NULL, *answer = NULL;
    if (cuvil_message_receive(fd, &request) != CUVIL_OK) return 1;
    if (!request) return 0; /* the parent is done; the driver cleans up */
    enum cuvil_status status = serve(&worker, request, &answer);
    if (status != CUVIL_OK) {
      json_decref(answer);
      answer = json_pack("{s:i, s:o}", "status", (int)status, "message",
                         cuvil_message_text(cuvil_last_error()));
    }
    json_decref(request);
    if (!answer || cuvil_message_send(fd, answer) != CUVIL_OK) return 1;
    json_decref(answer);
  }
}
