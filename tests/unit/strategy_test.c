/* strategy_test.c - the search strategies on a landscape made for them: what
 * they ask for, that they end, that they find, and that it is the same again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tuner/strategy.h"

/* 8 x 8 x 6 sites; the time grows with the distance from (5, 2, 4), with a
 * ripple; predictions know its trend in two of the parameters. */
enum { X = 8, Y = 8, Z = 6, COUNT = X * Y * Z, BEST = (5 * Y + 2) * Z + 4 };

static double seconds_of(int x, int y, int z) {
  double ripple = (x * 7 + y * 3 + z * 5) % 4 * 0.01;
  return 1e-6 * (1 + 0.1 * abs(x - 5) + 0.07 * abs(y - 2) + 0.05 * abs(z - 4) +
                 (x == 5 && y == 2 && z == 4 ? 0 : 0.02 + ripple));
}

struct land {
  struct cuvil_site sites[COUNT];
  double seconds[COUNT];
};

static int by_prediction(const void *left, const void *right) {
  const struct cuvil_site *a = left, *b = right;
  if (a->predicted != b->predicted) return a->predicted < b->predicted ? -1 : 1;
  return a->key < b->key ? -1 : a->key > b->key;
}

static struct land *make_land(bool predicted) {
  struct land *land = calloc(1, sizeof *land);
  assert_non_null(land);
  for (int i = 0; i < COUNT; i++) {
    int x = i / (Y * Z), y = i / Z % Y, z = i % Z;
    land->sites[i] = (struct cuvil_site){.params = 3,
                                         .key = (uint64_t)i,
                                         .allowed = true,
                                         .sampled = true,
                                         .digit = {x, y, z}};
    if (predicted)
      land->sites[i].predicted = 1e-6 * (1 + 0.1 * abs(x - 4) + 0.1 * z);
    land->sites[i].first = i == 0;
  }
  qsort(land->sites, COUNT, sizeof land->sites[0], by_prediction);
  for (int i = 0; i < COUNT; i++)
    land->seconds[i] =
        seconds_of(land->sites[i].digit[0], land->sites[i].digit[1],
                   land->sites[i].digit[2]);
  return land;
}

/* Asks and tells until the strategy is done; trials until the best was found,
 * 0 for never. */
static int play(const struct land *land, const struct cuvil_strategy *strategy,
                int limit, uint64_t seed, int *out_order, int *out_asked) {
  struct cuvil_chooser *chooser = NULL;
  int batch[COUNT], count = 0, found = 0;
  bool seen[COUNT] = {false};
  *out_asked = 0;
  assert_int_equal(
      cuvil_chooser_create(strategy, land->sites, COUNT, limit, seed, &chooser),
      CUVIL_OK);
  for (;;) {
    assert_int_equal(cuvil_chooser_ask(chooser, COUNT, batch, &count),
                     CUVIL_OK);
    if (count == 0) break;
    for (int i = 0; i < count; i++) {
      assert_in_range(batch[i], 0, COUNT - 1);
      assert_false(seen[batch[i]]);
      seen[batch[i]] = true;
      if (out_order) out_order[*out_asked] = batch[i];
      ++*out_asked;
      if (land->sites[batch[i]].key == BEST) found = *out_asked;
    }
    /* Told in another order than asked, one as failed: neither may matter. */
    for (int i = count - 1; i >= 0; i--)
      cuvil_chooser_tell(
          chooser, batch[i],
          land->sites[batch[i]].key == 1 ? INFINITY : land->seconds[batch[i]]);
  }
  cuvil_chooser_destroy(chooser);
  return found;
}

static void every_strategy_ends_and_repeats(void **state) {
  (void)state;
  for (int predicted = 0; predicted < 2; predicted++) {
    struct land *land = make_land(predicted);
    for (int s = 0; cuvil_strategies[s]; s++) {
      struct cuvil_strategy strategy = cuvil_strategy_of(cuvil_strategies[s]);
      static int first[COUNT], second[COUNT];
      int a, b;
      play(land, &strategy, 60, 5, first, &a);
      play(land, &strategy, 60, 5, second, &b);
      assert_int_equal(a, b);
      assert_memory_equal(first, second, (size_t)a * sizeof *first);
      assert_in_range(a, 48, 60); /* of ordered: its last are neighbours */
      bool has_default = false;
      for (int i = 0; i < a; i++)
        has_default |= land->sites[first[i]].first;
      assert_true(has_default);
      /* Without a limit everything is asked for at some time. */
      play(land, &strategy, 0, 5, NULL, &a);
      assert_int_equal(a, COUNT);
    }
    free(land);
  }
}

/* Median of the trials until the best was found, over seeds. */
static int median_trials(const struct land *land, const char *text) {
  enum { SEEDS = 15 };
  struct cuvil_strategy strategy;
  int trials[SEEDS];
  assert_int_equal(cuvil_strategy_parse(text, &strategy), CUVIL_OK);
  for (int s = 0; s < SEEDS; s++) {
    int asked, found = play(land, &strategy, 0, (uint64_t)s, NULL, &asked), at;
    for (at = s; at > 0 && trials[at - 1] > found; at--)
      trials[at] = trials[at - 1];
    trials[at] = found;
  }
  return trials[SEEDS / 2];
}

static void searching_beats_chance(void **state) {
  static const char *const smart[] = {"surrogate", "evolve", "local"};
  struct land *with = make_land(true), *without = make_land(false);
  (void)state;
  int chance = median_trials(without, "random");
  assert_in_range(chance, COUNT / 4, COUNT * 3 / 4);
  for (int i = 0; i < 3; i++) {
    assert_true(2 * median_trials(with, smart[i]) < chance);
    assert_true(2 * median_trials(without, smart[i]) < chance);
  }
  free(with);
  free(without);
}

static void what_failed_is_not_asked_again(void **state) {
  struct land *land = make_land(true);
  (void)state;
  for (int s = 0; cuvil_strategies[s]; s++) {
    struct cuvil_strategy strategy = cuvil_strategy_of(cuvil_strategies[s]);
    struct cuvil_chooser *chooser = NULL;
    int batch[COUNT], count, asked = 0;
    assert_int_equal(
        cuvil_chooser_create(&strategy, land->sites, COUNT, 80, 1, &chooser),
        CUVIL_OK);
    for (;;) { /* everything fails: it goes on and ends */
      assert_int_equal(cuvil_chooser_ask(chooser, COUNT, batch, &count),
                       CUVIL_OK);
      if (count == 0) break;
      asked += count;
      for (int i = 0; i < count; i++)
        cuvil_chooser_tell(chooser, batch[i], INFINITY);
    }
    assert_in_range(asked, 68, 80);
    cuvil_chooser_destroy(chooser);
  }
  free(land);
}

static void strategies_parse(void **state) {
  struct cuvil_strategy s;
  (void)state;
  assert_int_equal(cuvil_strategy_parse("ordered", &s), CUVIL_OK);
  assert_true(s.ops == &cuvil_strategy_ordered);
  assert_true(s.option[0] == 0.25 && s.option[1] == 12);
  assert_int_equal(cuvil_strategy_parse("ordered:refine=3,explore=0.5", &s),
                   CUVIL_OK);
  assert_true(s.option[0] == 0.5 && s.option[1] == 3);
  for (int i = 0; cuvil_strategies[i]; i++) {
    assert_int_equal(cuvil_strategy_parse(cuvil_strategies[i]->name, &s),
                     CUVIL_OK);
    assert_true(s.ops == cuvil_strategies[i]);
  }
  static const char *const bad[] = {"",
                                    "order",
                                    "ordered:",
                                    "ordered:x=1",
                                    "ordered:explore",
                                    "ordered:explore=",
                                    "ordered:explore=nan",
                                    "ordered:explore=2",
                                    "ordered:explore=0.5x",
                                    "ordered:explore=0.5,",
                                    "random:explore=0.1"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_int_equal(cuvil_strategy_parse(bad[i], &s), CU_ERR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_strategy_ends_and_repeats),
      cmocka_unit_test(searching_beats_chance),
      cmocka_unit_test(what_failed_is_not_asked_again),
      cmocka_unit_test(strategies_parse),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
