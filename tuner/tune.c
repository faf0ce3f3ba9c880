/* tune.c - all problems of a call: prepared together, measured one by one.
 *
 * All problems' compiles are queued before the first is measured, in the order
 * of the problems, so that the compile workers are busy while the GPU measures
 * and a kernel that serves several problems is compiled once.
 */
#include "tuner/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "tuner/process.h"
#include "tuner/task.h"

void cuvil_tune_defaults(struct cuvil_tune_options *out) {
  *out = (struct cuvil_tune_options){
      .strategy = cuvil_strategy_of(cuvil_strategies[0]),
      .max_trials = 40,
      .library_limit = 8,
      .walk_limit = 4096,
      .seed = 1,
      .l2 = CUVIL_L2_MODEL};
}

void cuvil_runner_destroy(struct cuvil_runner *runner) {
  if (!runner) return;
  runner->ops->destroy(runner->self);
  free(runner);
}

static enum cuvil_status prepare_all(struct cuvil_tuning *tuning) {
  struct cuvil_candidates none = {0};
  for (int i = 0; i < tuning->count; i++) {
    enum cuvil_status status = cuvil_task_prepare(tuning, &tuning->tasks[i]);
    if (status == CU_ERR_UNSUPPORTED) { /* no family computes it */
      tuning->tasks[i].result->state = CUVIL_TUNE_FAILED;
      snprintf(tuning->tasks[i].result->reason,
               sizeof tuning->tasks[i].result->reason, "%.255s",
               cuvil_last_error());
      continue;
    }
    CUVIL_TRY(status);
    CUVIL_TRY(tuning->runner->ops->compile_poll(tuning->runner->self, &none,
                                                0)); /* keep the workers fed */
  }
  return CUVIL_OK;
}

static enum cuvil_status search_all(struct cuvil_tuning *tuning) {
  for (int i = 0; i < tuning->count; i++) {
    if (tuning->tasks[i].result->state != CUVIL_TUNE_LEFT) continue;
    CUVIL_TRY(cuvil_interrupt_check());
    CUVIL_TRY(cuvil_task_search(tuning, &tuning->tasks[i]));
  }
  return CUVIL_OK;
}

static void add_up(const struct cuvil_tuning *tuning) {
  struct cuvil_tune_report *report = tuning->report;
  for (int i = 0; i < report->count; i++) {
    struct cuvil_tune_result *result = &report->results[i];
    report->tuned += result->state == CUVIL_TUNE_TUNED;
    report->already += result->state == CUVIL_TUNE_ALREADY;
    report->failed_problems += result->state == CUVIL_TUNE_FAILED;
    report->not_recorded += result->state == CUVIL_TUNE_NOT_RECORDED;
    report->left += result->state == CUVIL_TUNE_LEFT;
    report->failed_candidates += result->failed;
    if (result->winner_seconds > 0)
      result->roof =
          cuvil_roof_seconds(&tuning->tasks[i].problem, &tuning->runner->arch,
                             &tuning->tasks[i].told.l2) /
          result->winner_seconds;
  }
}

enum cuvil_status cuvil_tune(const struct cuvil_tune_options *options,
                             struct cuvil_runner *runner, struct cuvil_db *db,
                             const struct cuvil_tune_problem *problems,
                             int count, struct cuvil_tune_report *out) {
  enum cuvil_status status = CUVIL_OK;
  double start = cuvil_now();
  struct cuvil_tuning tuning = {.options = options,
                                .runner = runner,
                                .db = db,
                                .report = out,
                                .count = count,
                                .end = options->budget_seconds > 0
                                           ? start + options->budget_seconds
                                           : INFINITY};
  *out = (struct cuvil_tune_report){0};
  out->results = calloc((size_t)count + 1, sizeof *out->results);
  tuning.tasks = calloc((size_t)count + 1, sizeof *tuning.tasks);
  if (!out->results || !tuning.tasks) {
    status =
        CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %d problems", count);
    goto fail;
  }
  out->count = count;
  for (int i = 0; i < count; i++) {
    out->results[i] = (struct cuvil_tune_result){.text = problems[i].text,
                                                 .calls = problems[i].calls,
                                                 .state = CUVIL_TUNE_LEFT,
                                                 .l2 = "warm",
                                                 .control = NAN};
    tuning.tasks[i].result = &out->results[i];
  }
  CUVIL_TRY_GOTO(cuvil_l2_model_fits(problems, count, runner->arch.l2_bytes,
                                     &tuning.model_fits));
  CUVIL_TRY_GOTO(prepare_all(&tuning));
  CUVIL_TRY_GOTO(search_all(&tuning));
fail:
  cuvil_log_progress("%s", "");
  if (tuning.tasks && out->results) add_up(&tuning);
  for (int i = 0; i < out->count; i++)
    cuvil_task_free(&tuning.tasks[i]);
  free(tuning.tasks);
  out->seconds = cuvil_now() - start;
  return status;
}

void cuvil_tune_report_free(struct cuvil_tune_report *report) {
  for (int i = 0; i < report->count; i++) {
    struct cuvil_tune_result *result = &report->results[i];
    for (int p = 0; p < result->participant_count; p++)
      free(result->participants[p].config);
    free(result->participants);
    free(result->config);
  }
  free(report->results);
  *report = (struct cuvil_tune_report){0};
}
