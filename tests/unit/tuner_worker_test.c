/* A whole tune with workers that are not there: the children here answer the
 * parent's protocol from a script, and crash, hang and fail as planted, so
 * that what the parent does about it is seen without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/planted.h"
#include "tuner/describe.h"
#include "tuner/process.h"
#include "tuner/tuner.h"

static char folder[512];
static struct cuvil_db *db;
static struct cuvil_tune_report report;

static json_t *hello(void) {
  struct cuvil_env env = {.gpu = "scripted",
                          .arch = "sm_90",
                          .sms = 132,
                          .driver = "1",
                          .cuda = "1",
                          .nvrtc = "1"};
  return json_pack("{s:b, s:o, s:o}", "ok", 1, "arch",
                   cuvil_arch_to_json(cuvil_arch_find("sm_90")), "env",
                   cuvil_env_to_json(&env));
}

static json_t *failed(const char *reason, int fatal) {
  return json_pack("{s:b, s:s, s:s, s:b}", "ok", 0, "reason", reason, "detail",
                   "as scripted", "fatal", fatal);
}

/* Seconds by family: the one that hangs in the race is the fastest. */
static double seconds_of(const char *family, struct cuvil_rng *noise) {
  double base = strcmp(family, "planted_half") == 0  ? 5e-6
                : strcmp(family, "planted_nan") == 0 ? 6e-6
                                                     : 8e-6;
  return base * (1 + 0.002 * cuvil_rng_uniform(noise));
}

static json_t *attempt(const char *family, struct cuvil_rng *noise) {
  if (!strcmp(family, "planted_hang"))
    for (;;)
      pause();
  if (!strcmp(family, "planted_illegal")) raise(SIGKILL);
  if (!strcmp(family, "planted_wrong")) return failed("wrong", 0);
  if (!strcmp(family, "planted_memory")) return failed("crash", 1);
  json_t *blocks = json_array();
  for (int i = 0; i < 3; i++)
    json_array_append_new(blocks, json_real(seconds_of(family, noise)));
  return json_pack("{s:b, s:f, s:o}", "ok", 1, "worst_ratio", 0.5, "blocks",
                   blocks);
}

static json_t *run_round(int fd, const json_t *request,
                         struct cuvil_rng *noise) {
  const json_t *entrants = json_object_get(request, "entrants");
  json_t *results = json_array();
  for (size_t i = 0; i < json_array_size(entrants); i++) {
    const char *family = json_string_value(
        json_object_get(json_array_get(entrants, i), "family"));
    json_t *note = json_pack("{s:b, s:i}", "alive", 1, "at", (int)i);
    if (cuvil_message_send(fd, note) != CUVIL_OK) _exit(1);
    json_decref(note);
    if (!strcmp(family, "planted_half"))
      for (;;)
        pause();
    json_array_append_new(results, json_pack("{s:b, s:f}", "ok", 1, "seconds",
                                             seconds_of(family, noise)));
  }
  return json_pack("{s:b, s:b, s:o}", "ok", 1, "fatal", 0, "results", results);
}

static int measure_main(int fd, void *user) {
  struct cuvil_rng noise = {(uint64_t)getpid()};
  bool open = false;
  (void)user;
  for (;;) {
    json_t *request = NULL, *answer = NULL;
    if (cuvil_message_receive(fd, &request) != CUVIL_OK) return 1;
    if (!request) return 0;
    const char *op = json_string_value(json_object_get(request, "op"));
    const char *family = json_string_value(json_object_get(request, "family"));
    if (!strcmp(op, "hello"))
      answer = hello();
    else if (!strcmp(op, "open"))
      open = true, answer = json_pack("{s:b}", "ok", 1);
    else if (!strcmp(op, "choices"))
      answer = json_pack("{s:b, s:[]}", "ok", 1, "texts");
    else if (!strcmp(op, "close"))
      answer = json_pack("{s:b}", "ok", 1);
    else if (!open) /* the parent must open again after every restart */
      return 9;
    else if (!strcmp(op, "try"))
      answer = attempt(family, &noise);
    else
      answer = run_round(fd, request, &noise);
    if (cuvil_message_send(fd, answer) != CUVIL_OK) return 1;
    json_decref(answer);
    json_decref(request);
  }
}

/* Everything compiles, but for two. */
static int compile_main(int fd, void *user) {
  (void)user;
  for (;;) {
    json_t *request = NULL, *answer = NULL;
    if (cuvil_message_receive(fd, &request) != CUVIL_OK) return 1;
    if (!request) return 0;
    const char *family = json_string_value(json_object_get(request, "family"));
    if (family && !strcmp(family, "planted_endless"))
      for (;;)
        pause();
    if (family && !strcmp(family, "planted_error"))
      answer = failed("compile", 0);
    else
      answer = json_pack("{s:b, s:s, s:i, s:i, s:i, s:f}", "ok", 1, "binary",
                         family ? family : "", "registers", 40, "spill_bytes",
                         0, "shared_bytes", 0, "seconds", 0.1);
    if (cuvil_message_send(fd, answer) != CUVIL_OK) return 1;
    json_decref(answer);
    json_decref(request);
  }
}

static int tune(void **state) {
  const char *root = getenv("CUVIL_TEST_TMP");
  char path[600];
  struct cuvil_runner *runner = NULL;
  struct cuvil_tune_options options;
  const struct cuvil_tune_problem problem = {PLANTED_PROBLEM, 1};
  const struct cuvil_gpu_runner_options gpu = {.jobs = 2,
                                               .compile_limit = 0.5,
                                               .launch_limit = 0.3,
                                               .compile_main = compile_main,
                                               .measure_main = measure_main};
  (void)state;
  planted_plant();
  cuvil_tune_defaults(&options);
  options.families =
      "planted_hang,planted_illegal,planted_wrong,planted_half,"
      "planted_memory,planted_error,planted_endless,planted_nan";
  snprintf(folder, sizeof folder, "%s/worker.XXXXXX", root ? root : "/tmp");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/worker.db", folder);
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_WRITE, &db), CUVIL_OK);
  assert_int_equal(cuvil_gpu_runner_create(&gpu, &runner), CUVIL_OK);
  enum cuvil_status status =
      cuvil_tune(&options, runner, db, &problem, 1, &report);
  if (status != CUVIL_OK) print_error("%s\n", cuvil_last_error());
  cuvil_runner_destroy(runner);
  return (int)status;
}

static int forget(void **state) {
  (void)state;
  cuvil_tune_report_free(&report);
  cuvil_db_close(db);
  return 0;
}

struct wanted {
  const char *family, *reason;
  int found;
};

static enum cuvil_status on_failure(void *user,
                                    const struct cuvil_db_stamp *stamp,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_failure *failure) {
  struct wanted *wanted = user;
  (void)stamp;
  (void)context;
  for (; wanted->family; wanted++)
    if (!strcmp(wanted->family, failure->candidate.family)) {
      assert_string_equal(wanted->reason, failure->reason);
      wanted->found++;
      return CUVIL_OK;
    }
  fail_msg("%s should not have failed: %s", failure->candidate.family,
           failure->detail);
  return CUVIL_OK;
}

static void each_failure_has_its_reason(void **state) {
  struct wanted wanted[] = {{"planted_hang", "timeout", 0},
                            {"planted_illegal", "crash", 0},
                            {"planted_wrong", "wrong", 0},
                            {"planted_memory", "crash", 0},
                            {"planted_error", "compile", 0},
                            {"planted_endless", "compile_timeout", 0},
                            {"planted_half", "timeout", 0}, /* in the race */
                            {NULL, NULL, 0}};
  const struct cuvil_db_filter all = {0};
  (void)state;
  assert_int_equal(cuvil_db_each_failure(db, &all, on_failure, wanted),
                   CUVIL_OK);
  for (int i = 0; wanted[i].family; i++)
    assert_int_equal(wanted[i].found, 1);
  assert_int_equal(report.failed_candidates, 7);
}

static void the_best_survivor_wins(void **state) {
  const struct cuvil_tune_result *result = &report.results[0];
  (void)state;
  assert_int_equal(result->state, CUVIL_TUNE_TUNED);
  assert_string_equal(result->family, "planted_nan");
  assert_true(result->winner_seconds >= 6e-6 &&
              result->winner_seconds < 6.1e-6);
  assert_true(result->default_seconds >= 8e-6 &&
              result->default_seconds < 8.1e-6);
  assert_true(result->default_ratio_low > 1.3);
  assert_true(result->control < 0.005);
  assert_string_equal(result->l2, "warm");
}

/* The control is a participant of its own; the final has twenty rounds. */
static void the_race_is_whole(void **state) {
  const struct cuvil_tune_result *result = &report.results[0];
  int controls = 0, winners = 0;
  (void)state;
  for (int i = 0; i < result->participant_count; i++) {
    const struct cuvil_tune_participant *p = &result->participants[i];
    controls += (p->flags & CUVIL_RACE_CONTROL) != 0;
    winners += (p->flags & CUVIL_RACE_WINNER) != 0;
    if (p->flags & CUVIL_RACE_CONTROL) assert_true(p->rounds >= 20);
  }
  assert_int_equal(controls, 1);
  assert_int_equal(winners, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_failure_has_its_reason),
      cmocka_unit_test(the_best_survivor_wins),
      cmocka_unit_test(the_race_is_whole),
  };
  return cmocka_run_group_tests(tests, tune, forget);
}
