/* Races against a runner whose times are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tuner/tuner.h"

enum { MOST = 40 };
static const struct cuvil_family own = {.id = "own", .version = 1};
static const struct cuvil_family library = {
    .id = "lib", .version = 1, .library = "cublaslt"};

/* What the runner answers: times by the candidate's number. */
static double times[MOST], control_factor, noise;
static int fails_in_round[MOST]; /* -1: never */
static int retests;
static struct cuvil_rng rng;
static struct cuvil_candidates list;

static double jitter(void) {
  return 1 + noise * (cuvil_rng_uniform(&rng) - 0.5);
}

static int number(const struct cuvil_candidate *c) {
  return (int)(c - list.items);
}

static enum cuvil_status run_round(void *self, int round,
                                   struct cuvil_entrant *entrants, int count) {
  (void)self;
  double drift = 1 + 0.1 * sin(round); /* hits all alike */
  for (int i = 0; i < count; i++) {
    int n = number(entrants[i].candidate);
    entrants[i].outcome.ok = true;
    entrants[i].seconds =
        times[n] * drift * jitter() * (entrants[i].copy ? control_factor : 1);
    if (fails_in_round[n] != round) continue;
    cuvil_outcome_fail(&entrants[i].outcome, "crash", "as told");
    entrants[i].seconds = NAN;
  }
  return CUVIL_OK;
}

static enum cuvil_status retest(void *self, struct cuvil_candidate *c) {
  (void)self;
  retests++;
  c->pilot[c->pilot_count++] = times[number(c)];
  return CUVIL_OK;
}

static const struct cuvil_runner_ops ops = {.round = run_round,
                                            .retest = retest};
static struct cuvil_runner runner = {.ops = &ops};
static int failures;

static void on_failure(void *user, struct cuvil_candidate *c) {
  (void)user;
  assert_string_equal(c->outcome.reason, "crash");
  failures++;
}

/* `count` candidates of 10 us x (1 + 0.03 i); number 0 is the default. */
static void prepare(int count) {
  rng.state = 4;
  noise = 0.002;
  control_factor = 1;
  retests = failures = 0;
  list.count = count;
  list.items = calloc(MOST, sizeof *list.items);
  for (int i = 0; i < count; i++) {
    char text[16];
    snprintf(text, sizeof text, "x=%02d", i);
    times[i] = 10e-6 * (1 + 0.03 * i);
    fails_in_round[i] = -1;
    list.items[i] = (struct cuvil_candidate){.family = &own,
                                             .version = 1,
                                             .text = strdup(text),
                                             .choice = -1,
                                             .is_default = i == 0,
                                             .pilot_count = 3,
                                             .median = times[i]};
    list.items[i].outcome.ok = true;
    list.items[i].derived.shared_bytes = 1000;
  }
}

static struct cuvil_race_report race(void) {
  struct cuvil_race_report report;
  assert_int_equal(cuvil_race_run(&runner, &list, 3, on_failure, NULL, &report),
                   CUVIL_OK);
  return report;
}

static int winner_of(const struct cuvil_race_report *report) {
  assert_true(report->winner >= 0 && report->winner < report->count);
  assert_true(report->entries[report->winner].flags & CUVIL_RACE_WINNER);
  return number(report->candidates[report->winner]);
}

static const struct cuvil_db_participant *entry_of(
    const struct cuvil_race_report *report, int candidate, bool control) {
  for (int i = 0; i < report->count; i++)
    if (number(report->candidates[i]) == candidate &&
        ((report->entries[i].flags & CUVIL_RACE_CONTROL) != 0) == control)
      return &report->entries[i];
  return NULL;
}

static void done(struct cuvil_race_report *report) {
  cuvil_race_report_free(report);
  cuvil_candidates_free(&list);
}

static void fastest_wins_through_drift(void **state) {
  (void)state;
  prepare(30);
  times[17] = list.items[17].median = 9.5e-6;
  struct cuvil_race_report report = race();
  assert_int_equal(winner_of(&report), 17);
  assert_true(report.converged);
  assert_true(report.control < 0.002);
  assert_int_equal(report.rounds - report.final_round, 20);
  const struct cuvil_db_participant *control = entry_of(&report, 17, true);
  assert_non_null(control);
  for (int r = 0; r < report.final_round; r++)
    assert_true(isnan(control->seconds[r]));
  /* The default is in every round, and its ratio is right. */
  const struct cuvil_db_participant *base = entry_of(&report, 0, false);
  for (int r = 0; r < report.rounds; r++)
    assert_false(isnan(base->seconds[r]));
  assert_true(fabs(base->ratio - 10 / 9.5) < 2e-3);
  assert_true(base->flags & CUVIL_RACE_DEFAULT);
  done(&report);
}

static void slow_default_and_library_stay_in(void **state) {
  (void)state;
  prepare(20);
  times[0] = list.items[0].median = 90e-6;
  list.items[19].family = &library;
  list.items[19].choice = 0;
  times[19] = list.items[19].median = 200e-6;
  struct cuvil_race_report report = race();
  assert_int_equal(winner_of(&report), 1);
  assert_true(fabs(entry_of(&report, 0, false)->ratio - 90 / 10.3) < 0.05);
  const struct cuvil_db_participant *lib = entry_of(&report, 19, false);
  assert_true(lib->flags & CUVIL_RACE_LIBRARY_FIRST);
  assert_string_equal(lib->library, "cublaslt");
  assert_true(lib->ratio_low > 0.98);
  done(&report);
}

/* The fastest of the libraries' choices is no first choice and far behind; the
 * final has it nonetheless, and tells how it stands to our fastest. */
static void each_side_has_its_fastest_in_the_final(void **state) {
  (void)state;
  prepare(30);
  for (int i = 26; i < 30; i++) {
    list.items[i].family = &library;
    list.items[i].choice = i - 26;
    times[i] = list.items[i].median = (60 - i) * 1e-6;
  }
  struct cuvil_race_report report = race();
  assert_int_equal(winner_of(&report), 0);
  assert_int_equal(number(report.candidates[report.own]), 0);
  assert_int_equal(number(report.candidates[report.library]), 29);
  assert_false(
      isnan(report.entries[report.library].seconds[report.rounds - 1]));
  assert_true(fabs(report.own_ratio - 10.0 / 31) < 1e-3);
  assert_true(report.own_ratio_low <= report.own_ratio &&
              report.own_ratio <= report.own_ratio_high);
  assert_null(entry_of(&report, 27, false));
  done(&report);
  /* ... and so it is where the libraries lead; with one side there is none. */
  prepare(30);
  for (int i = 0; i < 24; i++)
    list.items[i].family = &library;
  report = race();
  assert_int_equal(number(report.candidates[report.own]), 24);
  assert_false(isnan(report.entries[report.own].seconds[report.rounds - 1]));
  done(&report);
  prepare(5);
  report = race();
  assert_int_equal(report.library, -1);
  done(&report);
}

static void ties_go_to_fewer_resources(void **state) {
  (void)state;
  prepare(6);
  times[3] = list.items[3].median = 10.01e-6;
  list.items[3].derived.shared_bytes = 10;
  struct cuvil_race_report report = race();
  assert_int_equal(winner_of(&report), 3);
  assert_true(entry_of(&report, 0, false)->flags & CUVIL_RACE_TIE);
  done(&report);
}

/* A wide A/A floor makes near things ties; the untuned choice, which needs
 * least, is refused all the same when the library's is measurably faster. */
static void never_slower_than_the_library(void **state) {
  (void)state;
  prepare(6);
  control_factor = 1.06;
  for (int i = 0; i < 6; i++)
    times[i] += 0.5e-6;
  times[0] = list.items[0].median = 10.3e-6;
  times[1] = list.items[1].median = 10e-6;
  list.items[1].family = &library;
  list.items[1].choice = 0;
  struct cuvil_race_report report = race();
  assert_true(fabs(report.control - 0.06) < 0.003);
  assert_true(entry_of(&report, 0, false)->flags & CUVIL_RACE_TIE);
  assert_int_equal(winner_of(&report), 1);
  done(&report);
}

static void one_that_fails_is_out(void **state) {
  (void)state;
  prepare(8);
  times[5] = list.items[5].median = 8e-6;
  fails_in_round[5] = 9;
  struct cuvil_race_report report = race();
  assert_int_equal(failures, 1);
  assert_int_equal(winner_of(&report), 0);
  assert_false(list.items[5].outcome.ok);
  done(&report);
}

static void noisy_pilot_is_asked_again(void **state) {
  (void)state;
  prepare(4);
  times[2] = 9e-6;
  list.items[2].median = 30e-6; /* three times the best: asked again */
  times[3] = 9e-6;
  list.items[3].median = 60e-6; /* six times: not */
  struct cuvil_race_report report = race();
  assert_int_equal(retests, 1);
  assert_int_equal(winner_of(&report), 2);
  assert_null(entry_of(&report, 3, false));
  done(&report);
}

static void nobody_left_is_a_failure(void **state) {
  struct cuvil_race_report report;
  (void)state;
  prepare(3);
  for (int i = 0; i < 3; i++)
    list.items[i].outcome.ok = false;
  assert_int_equal(cuvil_race_run(&runner, &list, 3, on_failure, NULL, &report),
                   CU_ERR_CANDIDATE_FAILED);
  cuvil_candidates_free(&list);
  prepare(2);
  fails_in_round[0] = fails_in_round[1] = 2;
  assert_int_equal(cuvil_race_run(&runner, &list, 3, on_failure, NULL, &report),
                   CU_ERR_CANDIDATE_FAILED);
  assert_int_equal(failures, 2);
  cuvil_candidates_free(&list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fastest_wins_through_drift),
      cmocka_unit_test(slow_default_and_library_stay_in),
      cmocka_unit_test(each_side_has_its_fastest_in_the_final),
      cmocka_unit_test(ties_go_to_fewer_resources),
      cmocka_unit_test(never_slower_than_the_library),
      cmocka_unit_test(one_that_fails_is_out),
      cmocka_unit_test(noisy_pilot_is_asked_again),
      cmocka_unit_test(nobody_left_is_a_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
