/* gpu_runner.c - the runner on a real GPU: the parent's side.
 *
 * While a measuring request is under way the compile workers are fed too, so
 * that one wait serves both.  A measuring worker that falls silent or dies
 * costs the candidate it was on: the worker is started again, the problem is
 * opened again, and a race round is repeated for the others.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tuner/describe.h"
#include "tuner/pool.h"

static const double hello_limit = 60;   /* seconds: driver and libraries load */
static const double open_limit = 120;   /* ... operands and reference */
static const double choices_limit = 60; /* ... a library's own search */
static const double kill_patience = 90; /* ... until a killed worker is gone */
static const double hopeless = 8;       /* times slower than the best */
static const double hopeless_margin = 40e-6; /* event cost of a single run */

struct gpu_runner {
  struct cuvil_gpu_runner_options options;
  struct cuvil_arch arch;
  struct cuvil_compile_worker compile;
  struct cuvil_pool pool;
  struct cuvil_child measure;
  bool measures;                    /* false: compiles only */
  int at;                           /* entrant that the worker named last */
  double best;                      /* seconds, of the open problem; INFINITY */
  struct cuvil_runner_problem open; /* text NULL: none */
  bool opened;                      /* the worker that runs now has it open */
};

/* ---- talking to the measuring worker */
/* *out_answer NULL: it died or was killed; *out_died says how. */
static enum cuvil_status ask(struct gpu_runner *self, json_t *request,
                             double limit, json_t **out_answer,
                             struct cuvil_outcome *out_died) {
  int signal = 0;
  bool event = false;
  enum cuvil_child_event what;
  *out_answer = NULL;
  self->at = -1;
  if (!request) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to ask");
  enum cuvil_status status =
      cuvil_child_request(&self->measure, request, limit);
  json_decref(request);
  what = CUVIL_CHILD_CLOSED;
  while (status == CUVIL_OK) {
    json_t *message = NULL;
    CUVIL_TRY(cuvil_pool_wait(&self->pool, &self->measure, 1, &event, &what,
                              &message));
    if (!event) continue;
    if (what != CUVIL_CHILD_MESSAGE) break;
    if (!json_is_true(json_object_get(message, "alive"))) {
      *out_answer = message;
      return CUVIL_OK;
    }
    self->at = (int)json_integer_value(json_object_get(message, "at"));
    json_decref(message);
  }
  limit = self->measure.limit;
  self->opened = false;
  CUVIL_TRY(cuvil_child_stop(&self->measure, kill_patience, &signal));
  if (what == CUVIL_CHILD_LATE)
    cuvil_outcome_fail(out_died, "timeout",
                       "nothing came back for %.3g s; the process was ended",
                       limit);
  else
    cuvil_outcome_fail(out_died, "crash",
                       "the measuring process ended (signal %d)", signal);
  cuvil_log_verbose("measuring worker: %s: %s", out_died->reason,
                    out_died->detail);
  return CUVIL_OK;
}

/* An answer {"status", "message"} as our own failure. */
static enum cuvil_status raise(const json_t *answer) {
  const json_t *status = json_object_get(answer, "status");
  if (!status) return CUVIL_OK;
  return CUVIL_FAIL((enum cuvil_status)json_integer_value(status), "%s",
                    json_string_value(json_object_get(answer, "message")));
}

static enum cuvil_status start_worker(struct gpu_runner *self,
                                      struct cuvil_env *out_env) {
  cuvil_child_main run = self->options.measure_main ? self->options.measure_main
                                                    : cuvil_measure_worker_main;
  struct cuvil_outcome died = {0};
  json_t *answer = NULL;
  struct cuvil_env env;
  if (!self->measures)
    return CUVIL_FAIL(CU_ERR_NO_DEVICE, "nothing can be measured here");
  CUVIL_TRY(cuvil_child_start(&self->measure, run, &self->options));
  CUVIL_TRY(ask(self, json_pack("{s:s}", "op", "hello"), hello_limit, &answer,
                &died));
  if (!answer)
    return CUVIL_FAIL(CU_ERR_CUDA, "the GPU could not be opened: %s: %s",
                      died.reason, died.detail);
  enum cuvil_status status = raise(answer);
  if (status == CUVIL_OK)
    status = cuvil_arch_from_json(json_object_get(answer, "arch"),
                                  "the measuring worker", &self->arch);
  if (status == CUVIL_OK)
    status = cuvil_env_from_json(json_object_get(answer, "env"),
                                 "the measuring worker", &env);
  if (status == CUVIL_OK && out_env) *out_env = env;
  json_decref(answer);
  return status;
}

/* A worker that has the problem open: starts and opens again after a death. */
static enum cuvil_status ensure(struct gpu_runner *self) {
  struct cuvil_outcome died = {0};
  json_t *answer = NULL, *cold = NULL;
  CUVIL_CHECK(self->open.text);
  if (self->opened) return CUVIL_OK;
  if (self->measure.pid == 0) CUVIL_TRY(start_worker(self, NULL));
  cold = json_array();
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++)
    json_array_append_new(cold, json_boolean(self->open.l2.cold[i]));
  CUVIL_TRY(ask(self,
                json_pack("{s:s, s:s, s:o, s:i, s:I}", "op", "open", "problem",
                          self->open.text, "cold", cold, "rotations",
                          self->open.l2.rotations, "seed",
                          (json_int_t)self->options.seed),
                open_limit, &answer, &died));
  if (!answer)
    return CUVIL_FAIL(CU_ERR_CUDA, "preparing the problem failed: %s: %s",
                      died.reason, died.detail);
  enum cuvil_status status = raise(answer);
  json_decref(answer);
  self->opened = status == CUVIL_OK;
  return status;
}

/* The worker said that its context is spoilt. */
static enum cuvil_status restart_if_fatal(struct gpu_runner *self,
                                          const json_t *answer) {
  if (!json_is_true(json_object_get(answer, "fatal"))) return CUVIL_OK;
  self->opened = false;
  return cuvil_child_stop(&self->measure, kill_patience, NULL);
}

static void read_failure(const json_t *answer, struct cuvil_outcome *out) {
  const char *reason = json_string_value(json_object_get(answer, "reason"));
  const char *detail = json_string_value(json_object_get(answer, "detail"));
  cuvil_outcome_fail(out, reason ? reason : "crash", "%s",
                     detail ? detail : "the worker gave no reason");
}

/* ---- compiling */
static void launch_hash(const struct cuvil_program *program,
                        char out[CUVIL_HASH_SIZE]) {
  json_t *json = NULL;
  struct cuvil_buf text = {0};
  out[0] = '\0';
  if (cuvil_program_to_json(program, &json) == CUVIL_OK) {
    json_object_del(json, "modules");
    if (cuvil_json_print(json, &text) == CUVIL_OK)
      cuvil_hash_hex(cuvil_buf_text(&text), text.size, out);
  }
  json_decref(json);
  cuvil_buf_free(&text);
}

static enum cuvil_status module_key(const struct cuvil_program *program,
                                    struct cuvil_candidate *c) {
  struct cuvil_buf all = {0};
  for (int i = 0; i < program->module_count; i++)
    cuvil_buf_puts(&all, program->modules[i].hash);
  enum cuvil_status status = cuvil_buf_status(&all);
  if (status == CUVIL_OK && program->module_count == 1)
    memcpy(c->compiled.hash, program->modules[0].hash, CUVIL_HASH_SIZE);
  else if (status == CUVIL_OK)
    cuvil_hash_hex(cuvil_buf_text(&all), all.size, c->compiled.hash);
  cuvil_buf_free(&all);
  return status;
}

/* Copies a job's result to a candidate that waits for it. */
static bool update(struct gpu_runner *self, struct cuvil_candidate *c) {
  if (c->compiled.state != CUVIL_COMPILE_PENDING || c->job < 0) return false;
  const struct cuvil_job *job = &self->pool.jobs[c->job];
  if (!job->done) return false;
  struct cuvil_compiled was = c->compiled;
  c->compiled = job->result;
  memcpy(c->compiled.hash, was.hash, sizeof was.hash);
  memcpy(c->compiled.launch, was.launch, sizeof was.launch);
  c->compiled.shared_bytes += was.shared_bytes; /* static + dynamic */
  if (*job->result.binary && *was.launch) {
    char both[2 * CUVIL_HASH_SIZE];
    size_t n = CUVIL_HASH_SIZE - 1;
    memcpy(both, job->result.binary, n);
    memcpy(both + n, was.launch, n);
    cuvil_hash_hex(both, 2 * n, c->compiled.binary);
  }
  return true;
}

static enum cuvil_status verification_job(struct gpu_runner *self,
                                          const char *problem, bool urgent,
                                          int *out_job) {
  struct cuvil_buf key = {0};
  cuvil_buf_printf(&key, "verify %s", problem);
  enum cuvil_status status = cuvil_buf_status(&key);
  if (status == CUVIL_OK)
    status =
        cuvil_pool_add(&self->pool, key.data,
                       json_pack("{s:s}", "problem", problem), urgent, out_job);
  cuvil_buf_free(&key);
  return status;
}

static enum cuvil_status compile_start(
    void *user, const struct cuvil_runner_problem *problem,
    struct cuvil_candidate *c, bool urgent) {
  struct gpu_runner *self = user;
  struct cuvil_program *program = NULL;
  int job = -1;
  if (self->measures)
    CUVIL_TRY(verification_job(self, problem->text, false, &job));
  memset(&c->compiled, 0, sizeof c->compiled);
  c->job = -1;
  enum cuvil_status status = cuvil_candidate_emit(
      problem->problem, &self->arch, c->family->id, c->text, &program);
  if (status == CU_ERR_OUT_OF_MEMORY) return status;
  if (status != CUVIL_OK) {
    c->compiled.state = CUVIL_COMPILE_FAILED;
    cuvil_outcome_fail(&c->compiled.outcome,
                       c->family->library ? "library" : "compile", "%s",
                       cuvil_last_error());
    return CUVIL_OK;
  }
  launch_hash(program, c->compiled.launch);
  for (int i = 0; i < program->step_count; i++)
    if ((int)program->steps[i].shared_bytes > c->compiled.shared_bytes)
      c->compiled.shared_bytes = (int)program->steps[i].shared_bytes;
  if (program->module_count == 0) {
    c->compiled.state = CUVIL_COMPILE_DONE;
    c->compiled.outcome.ok = true;
  } else {
    status = module_key(program, c);
    c->compiled.state = CUVIL_COMPILE_PENDING;
    if (status == CUVIL_OK)
      status =
          cuvil_pool_add(&self->pool, c->compiled.hash,
                         json_pack("{s:s, s:s, s:s}", "problem", problem->text,
                                   "family", c->family->id, "config", c->text),
                         urgent, &c->job);
    update(self, c);
  }
  cuvil_program_destroy(program);
  return status;
}

static enum cuvil_status compile_poll(void *user, struct cuvil_candidates *list,
                                      double seconds) {
  struct gpu_runner *self = user;
  double end = cuvil_now() + seconds;
  for (;;) {
    bool changed = false, event = false;
    enum cuvil_child_event what;
    json_t *message = NULL;
    for (int i = 0; i < list->count; i++)
      changed |= update(self, &list->items[i]);
    double left = end - cuvil_now();
    if (changed || left < 0) left = 0;
    CUVIL_TRY(
        cuvil_pool_wait(&self->pool, NULL, left, &event, &what, &message));
    if (left == 0) return CUVIL_OK;
  }
}

/* ---- measuring */
static enum cuvil_status open_problem(
    void *user, const struct cuvil_runner_problem *problem) {
  struct gpu_runner *self = user;
  int job = -1;
  if (!self->measures)
    return CUVIL_FAIL(CU_ERR_NO_DEVICE, "nothing can be measured here");
  CUVIL_TRY(verification_job(self, problem->text, true, &job));
  while (!self->pool.jobs[job].done) {
    bool event = false;
    enum cuvil_child_event what;
    json_t *message = NULL;
    CUVIL_TRY(cuvil_pool_wait(&self->pool, NULL, 1, &event, &what, &message));
  }
  const struct cuvil_compiled *result = &self->pool.jobs[job].result;
  if (result->state != CUVIL_COMPILE_DONE)
    return CUVIL_FAIL(CU_ERR_KERNEL_COMPILE,
                      "the reference kernel does not compile: %s: %s",
                      result->outcome.reason, result->outcome.detail);
  self->open = *problem;
  self->opened = false;
  self->best = INFINITY;
  return ensure(self);
}

static enum cuvil_status choices(void *user, const struct cuvil_family *family,
                                 int limit, char ***out_texts, int *out_count) {
  struct gpu_runner *self = user;
  struct cuvil_outcome died = {0};
  json_t *answer = NULL;
  *out_texts = NULL;
  *out_count = 0;
  CUVIL_TRY(ensure(self));
  CUVIL_TRY(ask(self,
                json_pack("{s:s, s:s, s:i}", "op", "choices", "family",
                          family->id, "limit", limit),
                choices_limit, &answer, &died));
  /* No choices is an answer: the library is not there, or does not do it. */
  if (!answer || raise(answer) != CUVIL_OK) {
    cuvil_log_verbose("%s offers nothing: %s", family->id,
                      answer ? cuvil_last_error() : died.detail);
    json_decref(answer);
    return CUVIL_OK;
  }
  const json_t *texts = json_object_get(answer, "texts");
  enum cuvil_status status = CUVIL_OK;
  *out_texts = calloc(json_array_size(texts) + 1, sizeof **out_texts);
  for (size_t i = 0; *out_texts && i < json_array_size(texts); i++) {
    const char *text = json_string_value(json_array_get(texts, i));
    char *copy = text ? strdup(text) : NULL;
    if (copy) (*out_texts)[(*out_count)++] = copy;
  }
  if (!*out_texts || (size_t)*out_count != json_array_size(texts))
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for choices");
  json_decref(answer);
  return status;
}

static void append_blocks(struct cuvil_candidate *c, const json_t *blocks) {
  int most = (int)(sizeof c->pilot / sizeof c->pilot[0]);
  for (size_t i = 0; i < json_array_size(blocks); i++) {
    double seconds = json_number_value(json_array_get(blocks, i));
    if (seconds > 0 && isfinite(seconds) && c->pilot_count < most)
      c->pilot[c->pilot_count++] = seconds;
  }
}

static enum cuvil_status try_candidate(struct gpu_runner *self,
                                       struct cuvil_candidate *c, bool verify,
                                       double limit) {
  json_t *answer = NULL;
  int before = c->pilot_count;
  CUVIL_TRY(ensure(self));
  CUVIL_TRY(ask(self,
                json_pack("{s:s, s:s, s:s, s:b, s:f}", "op", "try", "family",
                          c->family->id, "config", c->text, "verify", verify,
                          "limit", limit),
                self->options.launch_limit, &answer, &c->outcome));
  if (!answer) return CUVIL_OK;
  enum cuvil_status status = raise(answer);
  if (status == CUVIL_OK && json_is_true(json_object_get(answer, "ok"))) {
    c->outcome = (struct cuvil_outcome){.ok = true};
    append_blocks(c, json_object_get(answer, "blocks"));
    if (c->pilot_count == before)
      cuvil_outcome_fail(&c->outcome, "noise", "no block gave a time");
  } else if (status == CUVIL_OK) {
    read_failure(answer, &c->outcome);
  }
  if (verify)
    c->worst_ratio = json_number_value(json_object_get(answer, "worst_ratio"));
  if (status == CUVIL_OK) status = restart_if_fatal(self, answer);
  json_decref(answer);
  return status;
}

static enum cuvil_status attempt(void *user, struct cuvil_candidate *c) {
  struct gpu_runner *self = user;
  double limit = isfinite(self->best) && !c->is_default && c->choice != 0
                     ? hopeless * self->best + hopeless_margin
                     : 0;
  c->pilot_count = 0;
  CUVIL_TRY(try_candidate(self, c, true, limit));
  for (int i = 0; i < c->pilot_count; i++)
    self->best = fmin(self->best, c->pilot[i]);
  return CUVIL_OK;
}

static enum cuvil_status retest(void *user, struct cuvil_candidate *c) {
  return try_candidate(user, c, false, 0);
}

static void fail_entrant(struct cuvil_entrant *entrant,
                         const struct cuvil_outcome *outcome) {
  entrant->seconds = NAN;
  entrant->outcome = *outcome;
  entrant->outcome.ok = false;
}

static json_t *round_request(const struct cuvil_entrant *entrants, int count,
                             int *which) {
  json_t *list = json_array();
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (!entrants[i].outcome.ok) continue; /* failed before the repetition */
    which[n++] = i;
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:i}", "family",
                        entrants[i].candidate->family->id, "config",
                        entrants[i].candidate->text, "copy", entrants[i].copy));
  }
  return json_pack("{s:s, s:o}", "op", "round", "entrants", list);
}

/* One try of a round; *out_again: someone failed so badly that the others
 * have no blocks of this round. */
static enum cuvil_status round_once(struct gpu_runner *self,
                                    struct cuvil_entrant *entrants, int count,
                                    int *which, bool *out_again) {
  struct cuvil_outcome died = {0};
  json_t *answer = NULL;
  *out_again = false;
  CUVIL_TRY(ensure(self));
  json_t *request = round_request(entrants, count, which);
  int asked = (int)json_array_size(json_object_get(request, "entrants"));
  if (asked == 0) {
    json_decref(request);
    return CUVIL_OK;
  }
  CUVIL_TRY(ask(self, request, self->options.launch_limit, &answer, &died));
  if (!answer) {
    int at = self->at >= 0 && self->at < asked ? self->at : 0;
    fail_entrant(&entrants[which[at]], &died);
    *out_again = true;
    return CUVIL_OK;
  }
  enum cuvil_status status = raise(answer);
  const json_t *results = json_object_get(answer, "results");
  for (int i = 0; i < asked && status == CUVIL_OK; i++) {
    struct cuvil_entrant *entrant = &entrants[which[i]];
    const json_t *result = json_array_get(results, (size_t)i);
    if (!result) break;
    entrant->seconds = json_number_value(json_object_get(result, "seconds"));
    if (json_is_true(json_object_get(result, "ok"))) {
      if (entrant->seconds > 0) continue;
      cuvil_outcome_fail(&died, "noise", "a block gave no time");
    } else {
      read_failure(result, &died);
    }
    fail_entrant(entrant, &died);
  }
  if (status == CUVIL_OK) status = restart_if_fatal(self, answer);
  *out_again = json_is_true(json_object_get(answer, "fatal"));
  json_decref(answer);
  return status;
}

static enum cuvil_status run_round(void *user, int round,
                                   struct cuvil_entrant *entrants, int count) {
  struct gpu_runner *self = user;
  bool again = true;
  int *which = calloc((size_t)count + 1, sizeof *which);
  enum cuvil_status status = CUVIL_OK;
  (void)round;
  if (!which) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a round");
  while (again && status == CUVIL_OK)
    status = round_once(self, entrants, count, which, &again);
  free(which);
  return status;
}

static enum cuvil_status close_problem(void *user) {
  struct gpu_runner *self = user;
  struct cuvil_outcome died = {0};
  json_t *answer = NULL;
  bool opened = self->opened;
  self->open.text = NULL;
  self->opened = false;
  if (!opened || self->measure.pid == 0) return CUVIL_OK;
  CUVIL_TRY(ask(self, json_pack("{s:s}", "op", "close"), 30, &answer, &died));
  json_decref(answer); /* one that died is started again by the next open */
  return CUVIL_OK;
}

static void destroy(void *user) {
  struct gpu_runner *self = user;
  CUVIL_IGNORE(cuvil_child_stop(&self->measure, 10, NULL)); /* at the end */
  cuvil_pool_free(&self->pool);
  free(self);
}

static const struct cuvil_runner_ops ops = {.compile_start = compile_start,
                                            .compile_poll = compile_poll,
                                            .open = open_problem,
                                            .choices = choices,
                                            .attempt = attempt,
                                            .retest = retest,
                                            .round = run_round,
                                            .close = close_problem,
                                            .destroy = destroy};

static int cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

static enum cuvil_status create(const struct cuvil_gpu_runner_options *options,
                                const struct cuvil_arch *arch,
                                struct cuvil_runner **out) {
  struct cuvil_runner *runner = calloc(1, sizeof *runner);
  struct gpu_runner *self = calloc(1, sizeof *self);
  enum cuvil_status status = CUVIL_OK;
  *out = NULL;
  if (!runner || !self) {
    free(runner);
    free(self);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a runner");
  }
  self->options = *options;
  if (self->options.compile_limit <= 0) self->options.compile_limit = 60;
  if (self->options.launch_limit <= 0) self->options.launch_limit = 5;
  self->measure.fd = -1;
  self->measures = arch == NULL;
  self->best = INFINITY;
  if (arch) self->arch = *arch;
  self->compile =
      (struct cuvil_compile_worker){&self->arch, self->options.cubins};
  int jobs = options->jobs > 0 ? options->jobs : cores();
  runner->ops = &ops;
  runner->self = self;
  runner->source = "measured";
  CUVIL_TRY_GOTO(cuvil_pool_create(
      &self->pool, jobs > 256 ? 256 : jobs, self->options.compile_limit,
      options->compile_main ? options->compile_main : cuvil_compile_worker_main,
      &self->compile));
  if (self->measures) CUVIL_TRY_GOTO(start_worker(self, &runner->env));
  runner->arch = self->arch;
  *out = runner;
  return CUVIL_OK;
fail:
  cuvil_runner_destroy(runner);
  return status;
}

enum cuvil_status cuvil_gpu_runner_create(
    const struct cuvil_gpu_runner_options *options, struct cuvil_runner **out) {
  return create(options, NULL, out);
}

enum cuvil_status cuvil_compile_runner_create(
    const struct cuvil_gpu_runner_options *options,
    const struct cuvil_arch *arch, struct cuvil_runner **out) {
  return create(options, arch, out);
}
