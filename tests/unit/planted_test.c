/* Planted families without a GPU: a compile error and a compile that does not
 * end are told apart, the good neighbour compiles, and the worker that was
 * killed is replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/planted.h"
#include "tuner/tuner.h"

static struct cuvil_problem problem;
static struct cuvil_runner_problem told = {.text = PLANTED_PROBLEM,
                                           .problem = &problem};
static struct cuvil_candidates list;

static int walk(void **state) {
  const struct cuvil_walk_options options = {.families =
                                                 "planted_error,"
                                                 "planted_endless,"
                                                 "planted_wrong",
                                             .heuristics = true};
  const struct cuvil_strategy strategy = {&cuvil_strategy_ordered, {0}};
  const struct cuvil_arch *arch = cuvil_arch_find("sm_90");
  (void)state;
  planted_plant();
  assert_int_equal(cuvil_problem_parse(PLANTED_PROBLEM, &problem), CUVIL_OK);
  assert_int_equal(cuvil_candidates_walk(&problem, arch, &options, &list),
                   CUVIL_OK);
  assert_int_equal(
      cuvil_candidates_choose(&list, &problem, arch, &strategy, 0, 1),
      CUVIL_OK);
  assert_int_equal(list.count, 4); /* and the untuned choice */
  return 0;
}

static int forget(void **state) {
  (void)state;
  cuvil_candidates_free(&list);
  return 0;
}

static struct cuvil_candidate *candidate(const char *id) {
  struct cuvil_candidate *c = cuvil_candidates_find(&list, id, "x=0");
  assert_non_null(c);
  return c;
}

static struct cuvil_runner *runner(double limit) {
  const struct cuvil_gpu_runner_options options = {.jobs = 1,
                                                   .compile_limit = limit};
  struct cuvil_runner *out = NULL;
  assert_int_equal(
      cuvil_compile_runner_create(&options, cuvil_arch_find("sm_90"), &out),
      CUVIL_OK);
  return out;
}

static void start(struct cuvil_runner *r, const char *id) {
  assert_int_equal(r->ops->compile_start(r->self, &told, candidate(id), false),
                   CUVIL_OK);
}

static void await(struct cuvil_runner *r, const char *id) {
  struct cuvil_candidate *c = candidate(id);
  while (c->compiled.state == CUVIL_COMPILE_PENDING)
    assert_int_equal(r->ops->compile_poll(r->self, &list, 1), CUVIL_OK);
}

static void compile_error_is_told(void **state) {
  struct cuvil_runner *r = runner(100);
  const struct cuvil_candidate *c = candidate("planted_error");
  (void)state;
  start(r, "planted_error");
  await(r, "planted_error");
  assert_int_equal(c->compiled.state, CUVIL_COMPILE_FAILED);
  assert_string_equal(c->compiled.outcome.reason, "compile");
  assert_non_null(strstr(c->compiled.outcome.detail, "this_is_not_declared"));
  cuvil_runner_destroy(r);
}

static void endless_compile_is_ended(void **state) {
  struct cuvil_runner *r = runner(1);
  const struct cuvil_candidate *c = candidate("planted_endless");
  (void)state;
  start(r, "planted_endless");
  await(r, "planted_endless");
  assert_int_equal(c->compiled.state, CUVIL_COMPILE_FAILED);
  assert_string_equal(c->compiled.outcome.reason, "compile_timeout");
  cuvil_runner_destroy(r);
}

/* One worker serves both, one after the other: the second is a fresh one. */
static void good_kernel_compiles(void **state) {
  struct cuvil_runner *r = runner(100);
  const struct cuvil_candidate *c = candidate("planted_wrong");
  (void)state;
  start(r, "planted_error");
  start(r, "planted_wrong");
  await(r, "planted_error");
  await(r, "planted_wrong");
  assert_int_equal(c->compiled.state, CUVIL_COMPILE_DONE);
  assert_int_equal(strlen(c->compiled.hash), 32);
  assert_int_equal(strlen(c->compiled.binary), 32);
  assert_true(c->compiled.registers > 0);
  assert_int_equal(c->compiled.spill_bytes, 0);
  assert_true(r->ops->open(r->self, &told) == CU_ERR_NO_DEVICE);
  cuvil_runner_destroy(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compile_error_is_told),
      cmocka_unit_test(endless_compile_is_ended),
      cmocka_unit_test(good_kernel_compiles),
  };
  return cmocka_run_group_tests(tests, walk, forget);
}
