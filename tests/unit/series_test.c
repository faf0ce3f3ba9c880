/* Series of blocks: what is kept, when it ends, what its interval promises;
 * and the clock probe on the fake driver. */
#include "measure/series.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/fake_gpu.h"

static struct cuvil_block block_of(double seconds, int64_t reasons) {
  return (struct cuvil_block){
      seconds, CUVIL_ESTIMATOR_SLOPE, 1980, true, 300, 50, reasons};
}
static void add(struct cuvil_series *s, double seconds, int64_t reasons,
                int round) {
  struct cuvil_block block = block_of(seconds, reasons);
  assert_int_equal(cuvil_series_add(s, &block, round, round), CUVIL_OK);
}

static void blocks_are_judged(void **state) {
  (void)state;
  const struct {
    double seconds;
    int64_t reasons;
    const char *reject;
  } cases[] = {{1e-5, 0, "kept"},        {1e-5, -1, "kept"},
               {1e-5, 0x4, "kept"}, /* power cap: normal when steady */
               {1e-5, 0x1, "kept"},      {0, 0, "time"},
               {-1e-6, 0, "time"},       {INFINITY, 0, "time"},
               {NAN, 0, "noise"},        {7.9e-6, 0, "peak"},
               {1e-5, 0x8, "hardware"},  {1e-5, 0x20, "thermal"},
               {1e-5, 0x48, "thermal"},  {1e-5, 0x88, "brake"},
               {1e-5, 0x80 | 4, "brake"}};
  struct cuvil_series s;
  cuvil_series_begin(&s, &(struct cuvil_series_rule){.floor_seconds = 8e-6});
  int kept = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    add(&s, cases[i].seconds, cases[i].reasons, 0);
    assert_string_equal(cuvil_reject_name(s.blocks[i].reject), cases[i].reject);
    kept += strcmp(cases[i].reject, "kept") == 0;
  }
  assert_int_equal(s.kept, kept);
  assert_int_equal(s.count, s.kept + s.rejects); /* rejects are not lost */
  int count;
  double *seconds = cuvil_series_kept(&s, &count);
  assert_int_equal(count, kept);
  free(seconds);
  cuvil_series_free(&s);
}

static void one_visit_is_not_enough(void **state) {
  (void)state;
  struct cuvil_series s;
  cuvil_series_begin(&s, &(struct cuvil_series_rule){0});
  for (int i = 0; i < 100; i++)
    add(&s, 1e-5, 0, i < 60 ? 0 : 1);
  assert_int_equal(cuvil_series_state(&s), CUVIL_SERIES_MORE);
  add(&s, 1e-5, 0, 2);
  assert_int_equal(cuvil_series_state(&s), CUVIL_SERIES_CONVERGED);
  cuvil_series_free(&s);
}

static void it_is_looked_at_16_32_64(void **state) {
  (void)state;
  struct cuvil_series s;
  cuvil_series_begin(&s, &(struct cuvil_series_rule){.most = 100});
  int looks = 0, at[8];
  enum cuvil_series_state end = CUVIL_SERIES_MORE;
  for (int i = 0; end == CUVIL_SERIES_MORE; i++) {
    int before = s.next_look;
    add(&s, i % 2 ? 1e-5 : 2e-5, 0, i); /* never narrow */
    end = cuvil_series_state(&s);
    if (s.next_look != before || end != CUVIL_SERIES_MORE) at[looks++] = s.kept;
  }
  assert_int_equal(end, CUVIL_SERIES_UNCONVERGED);
  assert_int_equal(looks, 4);
  assert_int_equal(at[0], 16);
  assert_int_equal(at[1], 32);
  assert_int_equal(at[2], 64);
  assert_int_equal(at[3], 100);
  assert_string_equal(cuvil_series_state_name(end), "unconverged");
  cuvil_series_free(&s);
}

static void rejects_end_it(void **state) {
  (void)state;
  struct cuvil_series s;
  cuvil_series_begin(&s, &(struct cuvil_series_rule){.rejects_most = 10});
  for (int i = 0; i < 9; i++)
    add(&s, 1e-5, 0x40, i);
  assert_int_equal(cuvil_series_state(&s), CUVIL_SERIES_MORE);
  add(&s, 1e-5, 0x40, 9);
  assert_int_equal(cuvil_series_state(&s), CUVIL_SERIES_THROTTLED);
  assert_int_equal(s.count, 10);
  cuvil_series_free(&s);
  cuvil_series_begin(&s, &(struct cuvil_series_rule){.rejects_most = 10});
  for (int i = 0; i < 10; i++)
    add(&s, NAN, 0, i);
  assert_int_equal(cuvil_series_state(&s), CUVIL_SERIES_REJECTED);
  cuvil_series_free(&s);
}

/* Blocks that agree within a visit and differ between visits: without the
 * spread the interval of a few visits is too narrow, with it it covers.  1,000
 * series by one seed; Student's error of a share of 0.95 is 0.007. */
static void the_spread_makes_it_cover(void **state) {
  (void)state;
  struct cuvil_rng rng = {7};
  const double between = 1e-3, within = 2e-4;
  int covered[2] = {0, 0};
  for (int with = 0; with < 2; with++)
    for (int repeat = 0; repeat < 1000; repeat++) {
      struct cuvil_series_rule rule = {.spread = with ? 2 * between : 0};
      struct cuvil_series s;
      cuvil_series_begin(&s, &rule);
      for (int round = 0; cuvil_series_state(&s) == CUVIL_SERIES_MORE;
           round++) {
        double visit = 1 + between * cuvil_rng_normal(&rng);
        for (int i = 0; i < 6; i++)
          add(&s, 1e-5 * (visit + within * cuvil_rng_normal(&rng)), 0, round);
      }
      assert_int_equal(cuvil_series_state(&s), CUVIL_SERIES_CONVERGED);
      struct cuvil_interval interval;
      cuvil_series_interval(&s, &interval);
      if (interval.low <= 1e-5 && interval.high >= 1e-5) covered[with]++;
      cuvil_series_free(&s);
    }
  assert_true(covered[0] < 930); /* the reason for the spread */
  assert_true(covered[1] >= 950);
}

static void the_probe_on_a_gpu_that_does_not_move(void **state) {
  (void)state;
  struct cuvil_gpu *gpu;
  struct cuvil_probe *probe;
  struct cuvil_gpu_stream *stream;
  double mhz = 0;
  fake_gpu_reset(0, 0, 90);
  assert_int_equal(cuvil_gpu_open(0, &gpu), CUVIL_OK);
  int live = fake_gpu_live();
  assert_int_equal(cuvil_gpu_stream_create(gpu, &stream), CUVIL_OK);
  assert_int_equal(cuvil_probe_create(gpu, &probe), CUVIL_OK);
  assert_int_equal(cuvil_probe_begin(probe, stream), CUVIL_OK);
  assert_int_equal(cuvil_probe_end(probe, stream), CUVIL_OK);
  assert_int_equal(cuvil_probe_mhz(probe, &mhz), CUVIL_OK);
  assert_true(mhz == -1); /* its kernels write nothing: not known */
  cuvil_probe_destroy(probe);
  cuvil_gpu_stream_destroy(stream);
  assert_int_equal(fake_gpu_live(), live);
  cuvil_gpu_close(gpu);
  assert_int_equal(cuvil_probe_begin(NULL, NULL), CUVIL_OK);
  assert_int_equal(cuvil_probe_mhz(NULL, &mhz), CUVIL_OK);
  assert_true(mhz == -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_judged),
      cmocka_unit_test(one_visit_is_not_enough),
      cmocka_unit_test(it_is_looked_at_16_32_64),
      cmocka_unit_test(rejects_end_it),
      cmocka_unit_test(the_spread_makes_it_cover),
      cmocka_unit_test(the_probe_on_a_gpu_that_does_not_move),
  };
  fake_gpu_use();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
