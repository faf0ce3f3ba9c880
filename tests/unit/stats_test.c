/* The arithmetic of times, against values worked out by hand and against
 * simulations with a fixed seed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "measure/stats.h"

#define ROUNDS 64

static bool near(double a, double b) {
  return fabs(a - b) <= 1e-12 * (1 + fabs(b));
}

static void quantiles_interpolate(void **state) {
  (void)state;
  const double five[] = {5, 1, 4, 2, 3};
  assert_true(near(cuvil_quantile(five, 5, 0.5), 3));
  assert_true(near(cuvil_quantile(five, 5, 0.25), 2));
  assert_true(near(cuvil_quantile(five, 5, 0.1), 1.4));
  assert_true(near(cuvil_quantile(five, 5, 1.0), 5));
  const double holes[] = {NAN, 2, NAN, 4};
  assert_true(near(cuvil_quantile(holes, 4, 0.5), 3));
  assert_true(isnan(cuvil_quantile(holes, 1, 0.5)));
  assert_true(isnan(cuvil_quantile(NULL, 0, 0.5)));
}

/* For 20 samples the 95 % interval is [x6, x15] (96 %), a table value that
 * every text on nonparametric statistics has; for 6 it is [x1, x6]. */
static void median_interval_is_the_tables(void **state) {
  (void)state;
  double x[100];
  for (int i = 0; i < 100; i++)
    x[i] = (i * 37) % 100 + 1; /* a permutation */
  struct cuvil_interval v;
  double twenty[20];
  for (int i = 0; i < 20; i++)
    twenty[i] = 20 - i;
  cuvil_median_interval(twenty, 20, 0.95, &v);
  assert_int_equal(v.count, 20);
  assert_true(near(v.median, 10.5));
  assert_true(near(v.low, 6));
  assert_true(near(v.high, 15));
  cuvil_median_interval(x, 100, 0.95, &v);
  assert_true(near(v.low, 40));
  assert_true(near(v.high, 61));
  cuvil_median_interval(twenty, 6, 0.95, &v); /* 15..20 */
  assert_true(near(v.low, 15));
  assert_true(near(v.high, 20));
  cuvil_median_interval(twenty, 3, 0.95, &v);
  assert_true(near(v.low, 18));
  assert_true(near(v.high, 20));
  cuvil_median_interval(twenty, 1, 0.95, &v);
  assert_true(near(v.low, 20) && near(v.high, 20) && v.count == 1);
  cuvil_median_interval(twenty, 0, 0.95, &v);
  assert_true(isnan(v.median) && isnan(v.low) && v.count == 0);
}

/* A skewed time: a floor, a long tail. */
static double skewed(struct cuvil_rng *rng) {
  return 1 - 0.1 * log(1 - cuvil_rng_uniform(rng));
}

static void interval_covers_the_median(void **state) {
  (void)state;
  const double truth = 1 + 0.1 * log(2);
  const int sizes[] = {7, 16, 33, 64};
  for (int s = 0; s < 4; s++) {
    struct cuvil_rng rng = {2024 + (uint64_t)s};
    int covered = 0;
    for (int trial = 0; trial < 1000; trial++) {
      double x[64];
      for (int i = 0; i < sizes[s]; i++)
        x[i] = skewed(&rng);
      struct cuvil_interval v;
      cuvil_median_interval(x, sizes[s], 0.95, &v);
      covered += v.low <= truth && truth <= v.high;
    }
    assert_true(covered >= 930);
    assert_true(covered < 1000); /* not so wide that it says nothing */
  }
}

static void paired_ratio_cancels_drift(void **state) {
  (void)state;
  double a[32], b[32];
  for (int i = 0; i < 32; i++) {
    b[i] = 1e-5 * (1 + 0.02 * i); /* the clock falls */
    a[i] = 1.03 * b[i];
  }
  a[3] = NAN;
  b[7] = 0; /* not a time */
  struct cuvil_interval v;
  cuvil_paired_ratio(a, b, 32, 0.95, &v);
  assert_int_equal(v.count, 30);
  assert_true(near(v.median, 1.03) && near(v.low, 1.03) && near(v.high, 1.03));
  cuvil_paired_ratio(a, b, 0, 0.95, &v);
  assert_true(isnan(v.median) && v.count == 0);
}

/* One race of `count` entries with true times `truth`; noise: per entry and
 * round; drift: common to a round. */
struct field {
  double seconds[16][ROUNDS];
  struct cuvil_race_entry entries[16];
};
static void fill(struct field *f, int count, const double *truth, double noise,
                 double drift, struct cuvil_rng *rng) {
  memset(f, 0, sizeof *f);
  for (int r = 0; r < ROUNDS; r++) {
    double common = 1 + drift * cuvil_rng_normal(rng);
    for (int i = 0; i < count; i++)
      f->seconds[i][r] =
          truth[i] * common * (1 + noise * fabs(cuvil_rng_normal(rng)));
  }
  for (int i = 0; i < count; i++)
    f->entries[i] = (struct cuvil_race_entry){.seconds = f->seconds[i]};
}

static void equals_are_not_eliminated(void **state) {
  (void)state;
  double truth[10];
  for (int i = 0; i < 10; i++)
    truth[i] = 1e-5;
  struct cuvil_rng rng = {7};
  const double alpha = 0.05;
  int wrong = 0;
  for (int trial = 0; trial < 400; trial++) {
    struct field f;
    fill(&f, 10, truth, 0.01, 0.02, &rng);
    for (int look = 1; look <= 8; look++) {
      for (int i = 0; i < 10; i++)
        f.entries[i].rounds = look * 8;
      cuvil_race_eliminate(f.entries, 10, NULL, 0.005, alpha, 8);
    }
    bool any = false;
    for (int i = 0; i < 10; i++)
      any |= f.entries[i].eliminated;
    wrong += any;
  }
  assert_true(wrong <= alpha * 400);
}

static void slower_entry_leaves(void **state) {
  (void)state;
  const double truth[4] = {1e-5, 1.03e-5, 1.03e-5, 2e-5};
  const bool keep[4] = {false, false, true, false};
  struct cuvil_rng rng = {11};
  for (int trial = 0; trial < 50; trial++) {
    struct field f;
    fill(&f, 4, truth, 0.01, 0.02, &rng);
    for (int i = 0; i < 4; i++)
      f.entries[i].rounds = 4;
    cuvil_race_eliminate(f.entries, 4, keep, 0.005, 0.05, 8);
    assert_true(f.entries[3].eliminated); /* twice as slow: at once */
    for (int look = 1; look <= 8; look++) {
      for (int i = 0; i < 4; i++)
        f.entries[i].rounds = look * 8;
      cuvil_race_eliminate(f.entries, 4, keep, 0.005, 0.05, 8);
    }
    assert_false(f.entries[0].eliminated);
    assert_true(f.entries[1].eliminated);
    assert_false(f.entries[2].eliminated); /* protected */
  }
}

static void identical_blocks_prove_nothing_close(void **state) {
  (void)state;
  /* A coarse timer gives the same digits each round: 0.8 % apart after three
   * rounds is not evidence, 0.8 % after 64 rounds is. */
  double a[ROUNDS], b[ROUNDS];
  for (int r = 0; r < ROUNDS; r++)
    a[r] = 1e-5, b[r] = 1.008e-5;
  struct cuvil_race_entry e[2] = {{.seconds = a, .rounds = 3},
                                  {.seconds = b, .rounds = 3}};
  cuvil_race_eliminate(e, 2, NULL, 0.005, 0.05, 8);
  assert_false(e[1].eliminated);
  e[0].rounds = e[1].rounds = ROUNDS;
  cuvil_race_eliminate(e, 2, NULL, 0.005, 0.05, 8);
  assert_true(e[1].eliminated);
  assert_false(e[0].eliminated);
}

static void ties_break_by_resources_then_text(void **state) {
  (void)state;
  double times[4] = {1.002, 1.000, 1.002, 1.2};
  double seconds[4][ROUNDS];
  struct cuvil_race_entry e[4];
  const char *texts[4] = {"c", "b", "a", "0"};
  const double resources[4] = {10, 20, 10, 1};
  for (int i = 0; i < 4; i++) {
    for (int r = 0; r < ROUNDS; r++)
      seconds[i][r] = times[i];
    e[i] = (struct cuvil_race_entry){.seconds = seconds[i],
                                     .rounds = ROUNDS,
                                     .resources = resources[i],
                                     .text = texts[i]};
  }
  bool ties[4];
  struct cuvil_race_result result;
  cuvil_race_judge(e, 4, 0.005, ties, &result);
  assert_int_equal(result.fastest, 1);
  assert_int_equal(result.tie_count, 3);
  assert_true(ties[0] && ties[1] && ties[2] && !ties[3]);
  assert_int_equal(result.winner, 2); /* fewest resources, then "a" < "c" */
  assert_true(result.converged);
  e[2].eliminated = true;
  cuvil_race_judge(e, 4, 0.005, ties, &result);
  assert_int_equal(result.winner, 0);
  assert_false(ties[2]);
}

static void judge_says_what_is_unresolved(void **state) {
  (void)state;
  bool ties[2];
  struct cuvil_race_result result;
  double a[ROUNDS], b[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    a[r] = 1;
    b[r] = r % 2 ? 1.1 : 0.92; /* no telling whether it is faster */
  }
  struct cuvil_race_entry e[2] = {{.seconds = a, .rounds = ROUNDS},
                                  {.seconds = b, .rounds = ROUNDS}};
  cuvil_race_judge(e, 2, 0.005, ties, &result);
  assert_false(result.converged);
  e[1].seconds = a; /* a copy of itself, but only 5 rounds: not enough */
  e[0].rounds = e[1].rounds = 5;
  cuvil_race_judge(e, 2, 0.005, ties, &result);
  assert_false(result.converged);
  e[0].rounds = e[1].rounds = 6;
  cuvil_race_judge(e, 2, 0.005, ties, &result);
  assert_true(result.converged);
  e[0].rounds = e[1].rounds = 0;
  cuvil_race_judge(e, 2, 0.005, ties, &result);
  assert_int_equal(result.winner, -1);
  assert_false(result.converged);
  /* Two that were never in the same round cannot be compared. */
  double early[4] = {1, 1, NAN, NAN}, late[4] = {NAN, NAN, 1, 1};
  e[0] = (struct cuvil_race_entry){.seconds = early, .rounds = 4};
  e[1] = (struct cuvil_race_entry){.seconds = late, .rounds = 4};
  cuvil_race_judge(e, 2, 0.005, ties, &result);
  assert_int_equal(result.tie_count, 1);
  assert_false(result.converged);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantiles_interpolate),
      cmocka_unit_test(median_interval_is_the_tables),
      cmocka_unit_test(interval_covers_the_median),
      cmocka_unit_test(paired_ratio_cancels_drift),
      cmocka_unit_test(equals_are_not_eliminated),
      cmocka_unit_test(slower_entry_leaves),
      cmocka_unit_test(identical_blocks_prove_nothing_close),
      cmocka_unit_test(ties_break_by_resources_then_text),
      cmocka_unit_test(judge_says_what_is_unresolved),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
