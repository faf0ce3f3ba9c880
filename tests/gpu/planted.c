/* Eight planted candidates that fail, each in its own way, among real ones:
 * every one must be in the database under its own reason, the run must
 * complete, and a real family must win. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/planted.h"
#include "tuner/tuner.h"

static char folder[512];
static struct cuvil_tune_report report;
static struct cuvil_db *db;

struct found {
  const char *id;
  char reason[32], detail[256];
  int count;
};

static enum cuvil_status on_failure(void *user,
                                    const struct cuvil_db_stamp *stamp,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_failure *failure) {
  struct found *found = user;
  (void)stamp;
  (void)context;
  if (strcmp(failure->candidate.family, found->id) != 0) return CUVIL_OK;
  found->count++;
  snprintf(found->reason, sizeof found->reason, "%s", failure->reason);
  snprintf(found->detail, sizeof found->detail, "%s", failure->detail);
  return CUVIL_OK;
}

static int tune(void **state) {
  const char *root = getenv("CUVIL_TEST_TMP");
  char path[600];
  struct cuvil_runner *runner = NULL;
  struct cuvil_tune_options options;
  const struct cuvil_tune_problem problem = {PLANTED_PROBLEM, 1};
  (void)state;
  planted_plant();
  cuvil_tune_defaults(&options);
  options.max_trials = 16;
  snprintf(folder, sizeof folder, "%s/planted.XXXXXX", root ? root : "/tmp");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/planted.db", folder);
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_WRITE, &db), CUVIL_OK);
  const struct cuvil_gpu_runner_options gpu = {.cubins = cuvil_db_cubin_dir(db),
                                               .compile_limit = 15,
                                               .launch_limit = 3,
                                               .seed = 1};
  if (cuvil_gpu_runner_create(&gpu, &runner) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  enum cuvil_status status =
      cuvil_tune(&options, runner, db, &problem, 1, &report);
  if (status != CUVIL_OK) print_error("%s\n", cuvil_last_error());
  cuvil_runner_destroy(runner);
  return status;
}

static int forget(void **state) {
  (void)state;
  cuvil_tune_report_free(&report);
  cuvil_db_close(db);
  return 0;
}

static void all_are_classified(void **state) {
  const struct cuvil_db_filter all = {0};
  int wrong = 0;
  (void)state;
  for (int i = 0; planted_list[i].id; i++) {
    struct found found = {.id = planted_list[i].id};
    assert_int_equal(cuvil_db_each_failure(db, &all, on_failure, &found),
                     CUVIL_OK);
    print_message("# %-16s %-16s %s\n", found.id, found.reason, found.detail);
    wrong +=
        found.count != 1 || strcmp(found.reason, planted_list[i].reason) != 0;
  }
  assert_int_equal(wrong, 0);
}

static void a_real_kernel_wins(void **state) {
  const struct cuvil_tune_result *result = &report.results[0];
  (void)state;
  if (result->state != CUVIL_TUNE_TUNED) fail_msg("%s", result->reason);
  print_message("# winner %s %s, %.2f us, default %.2f us, %.1f s in all\n",
                result->family, result->config, result->winner_seconds * 1e6,
                result->default_seconds * 1e6, report.seconds);
  assert_int_equal(strncmp(result->family, "planted", 7) != 0, 1);
  assert_true(result->winner_seconds > 0);
  assert_true(result->default_ratio_low == 0 ||
              result->default_ratio_low >= 0.98);
  assert_true(result->timed >= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_are_classified),
      cmocka_unit_test(a_real_kernel_wins),
  };
  return cmocka_run_group_tests(tests, tune, forget);
}
