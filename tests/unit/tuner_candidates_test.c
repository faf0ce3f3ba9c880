/* Walking, choosing and naming candidates, on a family made for it whose rules
 * and predictions are plain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/planted.h"
#include "tuner/tuner.h"

/* 32 x 32 x 32 points; valid where x + y is even, allowed where z < 16 too;
 * predicted by the distance from (31, 7, 3). */
#define ROW                                                            \
  "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24," \
  "25,26,27,28,29,30,31]"
static const char space_text[] =
    "{\"space\": 1, \"family\": \"plain\", \"parameters\": ["
    "{\"name\": \"x\", \"values\": " ROW
    ", \"default\": 1, \"about\": \"\"},"
    "{\"name\": \"y\", \"values\": " ROW
    ", \"default\": 1, \"about\": \"\"},"
    "{\"name\": \"z\", \"values\": " ROW
    ", \"default\": 30, \"about\": \"\"}"
    "], \"rules\": ["
    "{\"name\": \"even\", \"level\": \"hard\", \"require\": \"(x + y) % 2 == "
    "0\", \"reason\": \"odd\"},"
    "{\"name\": \"low\", \"level\": \"heuristic\", \"require\": \"z < 16\", "
    "\"reason\": \"high\"}]}";

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)problem;
  (void)arch;
  return true;
}
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  cuvil_space_default(query->space, out);
}
static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  (void)query;
  (void)config;
  out->threads = 32;
  out->cluster = 1;
  return true;
}
static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  (void)query;
  (void)derived;
  int64_t distance = llabs(config->value[0] - 31) +
                     llabs(config->value[1] - 7) + llabs(config->value[2] - 3);
  return 1e-6 * (1 + 0.01 * (double)distance);
}
static const struct cuvil_family plain = {.id = "plain",
                                          .version = 3,
                                          .about = "for tests",
                                          .kinds = 1u << CUVIL_KIND_GEMM,
                                          .applicable = applicable,
                                          .default_config = default_config,
                                          .derive = derive,
                                          .predict = predict,
                                          .space_text = space_text};

static struct cuvil_problem problem;
static const struct cuvil_arch *arch;
static const struct cuvil_walk_options all = {.families = "plain",
                                              .heuristics = true};

static int plant(void **state) {
  static const struct cuvil_family *list[] = {&plain};
  (void)state;
  cuvil_family_plant(list, 1);
  arch = cuvil_arch_find("sm_90");
  return (int)cuvil_problem_parse(PLANTED_PROBLEM, &problem);
}

static struct cuvil_candidates walk(const struct cuvil_walk_options *options) {
  struct cuvil_candidates list;
  assert_int_equal(cuvil_candidates_walk(&problem, arch, options, &list),
                   CUVIL_OK);
  return list;
}

static void choose(struct cuvil_candidates *list, double explore, int limit,
                   uint64_t seed) {
  const struct cuvil_strategy strategy = {&cuvil_strategy_ordered, {explore}};
  assert_int_equal(
      cuvil_candidates_choose(list, &problem, arch, &strategy, limit, seed),
      CUVIL_OK);
}

static void every_point_is_counted(void **state) {
  (void)state;
  struct cuvil_candidates list = walk(&all);
  const struct cuvil_walk *w = &list.walks[0];
  assert_int_equal(list.walk_count, 1);
  assert_int_equal(w->points, 32768);
  assert_int_equal(w->examined, 32768);
  assert_int_equal(w->valid, 16384);
  assert_int_equal(w->allowed, 8192);
  assert_int_equal(w->removed[0], 16384); /* even */
  assert_int_equal(w->removed[1], 8192);  /* low */
  assert_int_equal(w->removed[2], 0);     /* derive */
  /* The allowed, the family's default (z = 30), the untuned choice. */
  assert_int_equal(list.point_count, 8192 + 2);
  cuvil_candidates_free(&list);
}

static void exhaustive_ignores_heuristics(void **state) {
  struct cuvil_walk_options options = all;
  (void)state;
  options.heuristics = false;
  struct cuvil_candidates list = walk(&options);
  assert_int_equal(list.point_count, 16384 + 1);
  assert_int_equal(list.walks[0].allowed, 8192);
  cuvil_candidates_free(&list);
}

/* --exhaustive of a space too large to walk: a sample, and what rules allow. */
static void exhaustive_sample_has_all_allowed(void **state) {
  struct cuvil_walk_options options = all;
  int allowed = 0, sampled = 0;
  (void)state;
  options.heuristics = false;
  options.limit = 4096;
  struct cuvil_candidates list = walk(&options);
  for (int i = 0; i < list.point_count; i++) {
    allowed += list.points[i].family == &plain && list.points[i].allowed;
    sampled += list.points[i].sampled;
  }
  assert_int_equal(allowed, 8192 + 1); /* and the family's default */
  assert_int_equal(sampled, list.walks[0].valid);
  assert_in_range(sampled, 1900, 2200); /* half of 4096 */
  cuvil_candidates_free(&list);
}

/* The fixed sample of --exhaustive --max-trials: the part by chance is the same
 * configurations whatever else a problem has. */
static void exhaustive_sample_is_fixed(void **state) {
  const struct cuvil_strategy strategy =
      cuvil_strategy_of(&cuvil_strategy_exhaustive);
  struct cuvil_walk_options options = all;
  int common = 0, allowed = 0;
  (void)state;
  options.heuristics = false;
  struct cuvil_candidates a = walk(&options), b = walk(&options);
  int to = 0;
  for (int i = 0; i < b.point_count; i++) /* another problem: fewer points */
    if (i % 4 != 1 || b.points[i].family != &plain)
      b.points[to++] = b.points[i];
  b.point_count = to;
  assert_int_equal(
      cuvil_candidates_choose(&a, &problem, arch, &strategy, 400, 3), CUVIL_OK);
  assert_int_equal(
      cuvil_candidates_choose(&b, &problem, arch, &strategy, 400, 3), CUVIL_OK);
  assert_int_equal(a.count, 400);
  assert_int_equal(b.count, 400);
  for (int i = 0; i < a.count; i++) {
    common += cuvil_candidates_find(&b, a.items[i].family->id,
                                    a.items[i].text) != NULL;
    allowed += a.points[a.items[i].site].allowed;
  }
  assert_true(common > 200); /* three quarters of what both could draw */
  assert_in_range(allowed, 170, 280);
  cuvil_candidates_free(&a);
  cuvil_candidates_free(&b);
}

static void sample_finds_the_best_predicted(void **state) {
  struct cuvil_walk_options options = all;
  (void)state;
  options.limit = 500;
  options.seed = 5;
  struct cuvil_candidates list = walk(&options);
  const struct cuvil_walk *w = &list.walks[0];
  assert_int_equal(w->examined, 500);
  assert_false(w->complete); /* the rules leave too many to ask each */
  assert_in_range(w->allowed, 80, 170); /* a quarter of them */
  choose(&list, 0, 10, 1);
  /* Steps of one parameter keep x + y even only two at a time, so the climb
   * does not walk along x or y alone by one: it must still end there. */
  double best = 1;
  for (int i = 0; i < list.count; i++)
    if (list.items[i].family == &plain && list.items[i].predicted < best)
      best = list.items[i].predicted;
  assert_true(best < 1.005e-6);
  cuvil_candidates_free(&list);
}

static void cutting_finds_all_allowed(void **state) {
  struct cuvil_walk_options options = all;
  uint64_t valid = 0, allowed = 0;
  (void)state;
  options.limit = 4096; /* fewer than there are, enough for what rules leave */
  struct cuvil_candidates list = walk(&options), whole = walk(&all);
  const struct cuvil_walk *w = &list.walks[0];
  assert_true(w->complete);
  assert_int_equal(w->examined, 4096);
  assert_int_equal(w->found, 8192);
  assert_int_equal(list.point_count, whole.point_count);
  choose(&list, 0.25, 40, 1);
  choose(&whole, 0.25, 40, 1);
  for (int i = 0; i < 40; i++)
    assert_string_equal(list.items[i].text, whole.items[i].text);
  cuvil_walk_estimate(w, &valid, &allowed);
  assert_int_equal(allowed, 8192);
  assert_in_range(valid, 15000, 17800); /* half of 32768, from the sample */
  cuvil_candidates_free(&list);
  cuvil_candidates_free(&whole);
}

static void same_seed_same_choice(void **state) {
  struct cuvil_walk_options options = all;
  int differences = 0;
  (void)state;
  options.limit = 300;
  options.seed = 11;
  struct cuvil_candidates a = walk(&options), b = walk(&options),
                          c = walk(&options);
  choose(&a, 0.5, 30, 11);
  choose(&b, 0.5, 30, 11);
  choose(&c, 0.5, 30, 12);
  assert_int_equal(a.count, 30);
  assert_int_equal(b.count, 30);
  assert_int_equal(c.count, 30);
  for (int i = 0; i < 30; i++) {
    assert_string_equal(a.items[i].text, b.items[i].text);
    differences += strcmp(a.items[i].text, c.items[i].text) != 0;
  }
  assert_true(differences > 3);
  cuvil_candidates_free(&a);
  cuvil_candidates_free(&b);
  cuvil_candidates_free(&c);
}

static void defaults_are_always_chosen(void **state) {
  (void)state;
  struct cuvil_candidates list = walk(&all);
  choose(&list, 0.25, 4, 1);
  assert_int_equal(list.count, 4);
  assert_non_null(cuvil_candidates_find(&list, "plain", "x=1,y=1,z=30"));
  int defaults = 0;
  for (int i = 0; i < list.count; i++) {
    defaults += list.items[i].is_default;
    if (list.items[i].is_default)
      assert_string_not_equal(list.items[i].family->id, "plain");
  }
  assert_int_equal(defaults, 1);
  cuvil_candidates_free(&list);
}

static void chosen_are_not_all_neighbours(void **state) {
  (void)state;
  struct cuvil_candidates list = walk(&all);
  choose(&list, 0, 12, 1);
  int far = 0;
  for (int i = 0; i < list.count; i++)
    far += list.items[i].family == &plain && list.items[i].predicted > 1.025e-6;
  /* The points at distances 1 and 2 alone would fill the list. */
  assert_true(far >= 3);
  cuvil_candidates_free(&list);
}

static void order_is_the_inverse_of_point(void **state) {
  const struct cuvil_space *space = NULL;
  (void)state;
  assert_int_equal(cuvil_family_space(&plain, &space), CUVIL_OK);
  for (uint64_t i = 0; i < cuvil_space_size(space); i += 37) {
    struct cuvil_config config;
    cuvil_space_point(space, i, &config);
    assert_int_equal(cuvil_point_order(space, &config), i);
  }
  struct cuvil_config config = {{1, 2, 99}};
  assert_true(cuvil_point_order(space, &config) == UINT64_MAX);
}

static void adding_twice_gives_the_same(void **state) {
  struct cuvil_candidate *c = NULL;
  struct cuvil_candidates list = {0};
  (void)state;
  for (int i = 0; i < 2; i++)
    assert_int_equal(
        cuvil_candidates_add(&list, &problem, arch, &plain, "x=1,y=1,z=2", &c),
        CUVIL_OK);
  assert_int_equal(list.count, 1);
  assert_int_equal(c->version, 3);
  assert_int_equal(
      cuvil_candidates_add(&list, &problem, arch, &plain, "x=1,y=1", &c),
      CU_ERR_PARSE);
  assert_int_equal(list.count, 1);
  cuvil_candidates_free(&list);
}

static void families_are_lists(void **state) {
  (void)state;
  assert_true(cuvil_families_include(NULL, "a"));
  assert_true(cuvil_families_include("b,a", "a"));
  assert_false(cuvil_families_include("ab,ba", "a"));
  assert_false(cuvil_families_include("", "a"));
  assert_int_equal(cuvil_families_check("plain"), CUVIL_OK);
  assert_int_equal(cuvil_families_check("plain,nobody"),
                   CU_ERR_INVALID_ARGUMENT);
}

static void l2_follows_the_model(void **state) {
  const struct cuvil_tune_problem one = {PLANTED_PROBLEM, 1};
  const struct cuvil_tune_problem many = {PLANTED_PROBLEM, 500};
  struct cuvil_l2_plan plan;
  bool fits = false;
  (void)state;
  /* 256 x 256 in fp16: 131072 bytes each of a, b (weight), c. */
  assert_int_equal(cuvil_l2_model_fits(&one, 1, 3 * 131072, &fits), CUVIL_OK);
  assert_true(fits);
  assert_int_equal(cuvil_l2_model_fits(&many, 1, 50 << 20, &fits), CUVIL_OK);
  assert_false(fits);
  cuvil_l2_decide(CUVIL_L2_MODEL, true, &problem, 50 << 20, &plan);
  assert_string_equal(plan.label, "warm");
  assert_int_equal(plan.rotations, 1);
  cuvil_l2_decide(CUVIL_L2_MODEL, false, &problem, 10 << 20, &plan);
  assert_string_equal(plan.label, "cold");
  assert_true(!plan.cold[0] && plan.cold[1] && !plan.cold[2]);
  assert_int_equal(plan.rotations, 64); /* 241, and a flush makes the rest */
  cuvil_l2_decide(CUVIL_L2_COLD, true, &problem, 2 << 20, &plan);
  assert_true(plan.cold[0] && plan.cold[1] && plan.cold[2]);
  assert_int_equal(plan.rotations, 1 + 3 * (2 << 20) / (3 * 131072));
  cuvil_l2_decide(CUVIL_L2_COLD, true, &problem, 1000, &plan);
  assert_int_equal(plan.rotations, 2);
  cuvil_l2_decide(CUVIL_L2_WARM, false, &problem, 1, &plan);
  assert_string_equal(plan.label, "warm");
}

static bool is_same(double a, double b) {
  return fabs(a - b) <= 1e-12 * b;
}

static void roof_is_of_what_is_read_from_where(void **state) {
  struct cuvil_l2_plan plan;
  struct cuvil_arch chip = *arch;
  double bytes = 3 * 131072, memory = arch->memory_bytes_per_second;
  (void)state;
  chip.flops_f16 = 1e18; /* arithmetic is out of the way */
  cuvil_l2_decide(CUVIL_L2_WARM, true, &problem, chip.l2_bytes, &plan);
  double warm = bytes / cuvil_arch_l2_rate(&chip);
  assert_true(is_same(cuvil_roof_seconds(&problem, &chip, &plan), warm));
  cuvil_l2_decide(CUVIL_L2_MODEL, false, &problem, chip.l2_bytes, &plan);
  assert_true(is_same(cuvil_roof_seconds(&problem, &chip, &plan),
                      fmax(131072 / memory, warm)));
  cuvil_l2_decide(CUVIL_L2_COLD, false, &problem, chip.l2_bytes, &plan);
  assert_true(
      is_same(cuvil_roof_seconds(&problem, &chip, &plan), bytes / memory));
  plan.label = "warm"; /* a recording's word goes before the plan's */
  assert_true(is_same(cuvil_roof_seconds(&problem, &chip, &plan), warm));
  /* What the L2 cannot hold comes from memory whatever the plan says. */
  chip.l2_bytes = 131072;
  assert_true(
      is_same(cuvil_roof_seconds(&problem, &chip, &plan), 2 * 131072 / memory));
  chip.flops_f16 = 1e12;
  assert_true(is_same(cuvil_roof_seconds(&problem, &chip, &plan),
                      2.0 * 256 * 256 * 256 / 1e12));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_point_is_counted),
      cmocka_unit_test(exhaustive_ignores_heuristics),
      cmocka_unit_test(exhaustive_sample_has_all_allowed),
      cmocka_unit_test(exhaustive_sample_is_fixed),
      cmocka_unit_test(sample_finds_the_best_predicted),
      cmocka_unit_test(cutting_finds_all_allowed),
      cmocka_unit_test(same_seed_same_choice),
      cmocka_unit_test(defaults_are_always_chosen),
      cmocka_unit_test(chosen_are_not_all_neighbours),
      cmocka_unit_test(order_is_the_inverse_of_point),
      cmocka_unit_test(adding_twice_gives_the_same),
      cmocka_unit_test(families_are_lists),
      cmocka_unit_test(l2_follows_the_model),
      cmocka_unit_test(roof_is_of_what_is_read_from_where),
  };
  return cmocka_run_group_tests(tests, plant, NULL);
}
