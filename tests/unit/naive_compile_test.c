/* naive_compile_test.c - the naive kernels and the fp64 references of the kinds
 * that look at whole rows, through NVRTC: each problem for one architecture as
 * a family and for the other as the reference (CUVIL_TEST_FULL=1: both), with
 * their resources and arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/family.h"
#include "tests/support/problems.h"

static const char *const archs[] = {"sm_80", "sm_90"};

static bool full(void) {
  const char *text = getenv("CUVIL_TEST_FULL");
  return text && *text == '1';
}

static bool looked_at(const struct cuvil_problem *p) {
  return p->kind == CUVIL_KIND_ATTENTION || p->kind == CUVIL_KIND_NORM ||
         p->kind == CUVIL_KIND_GATHER || cuvil_problem_batched(p);
}

static void compile(struct cuvil_program *program, int shared,
                    const char *text) {
  struct cuvil_compile_result result = {0};
  if (cuvil_program_compile(program, NULL, &result) != CUVIL_OK)
    fail_msg("%s: %s\n%s", text, cuvil_last_error(),
             result.log ? result.log : "");
  if (cuvil_program_check(program, "naive") != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  if (shared >= 0) assert_int_equal(result.static_shared, shared);
  cuvil_compile_result_free(&result);
  cuvil_program_destroy(program);
}

static void compile_naive(const struct cuvil_problem *problem, const char *arch,
                          const char *text) {
  char id[32];
  snprintf(id, sizeof id, "%s_naive", cuvil_kind_name(problem->kind));
  const struct cuvil_family *f = cuvil_family_find(id);
  struct cuvil_query q = {problem, cuvil_arch_find(arch), NULL};
  struct cuvil_config config;
  struct cuvil_derived derived;
  struct cuvil_program *program;
  assert_non_null(f);
  assert_true(f->reference && f->applicable(problem, q.arch));
  assert_int_equal(cuvil_family_space(f, &q.space), CUVIL_OK);
  f->default_config(&q, &config);
  assert_true(cuvil_family_allows(f, &q, &config, false, &derived, NULL));
  if (f->emit(&q, &config, &program) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  compile(program, derived.shared_bytes, text);
}

static void all_compile(void **state) {
  (void)state;
  int number = 0, kinds = 0;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_problem problem;
    struct cuvil_program *program;
    if (cuvil_problem_parse(*text, &problem) != CUVIL_OK)
      fail_msg("%s: %s", *text, cuvil_last_error());
    if (!looked_at(&problem)) continue;
    kinds |= 1 << problem.kind;
    for (int a = 0; a < 2; a++) {
      if (full() || a == number % 2) compile_naive(&problem, archs[a], *text);
      if (!full() && a == number % 2) continue;
      if (cuvil_reference_program(&problem, cuvil_arch_find(archs[a]),
                                  &program) != CUVIL_OK)
        fail_msg("%s: %s", *text, cuvil_last_error());
      compile(program, -1, *text);
    }
    number++;
  }
  assert_true(kinds & 1 << CUVIL_KIND_ATTENTION);
  assert_true(kinds & 1 << CUVIL_KIND_NORM);
  assert_true(kinds & 1 << CUVIL_KIND_GATHER);
  assert_true(kinds & 1 << CUVIL_KIND_GEMM);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_compile)};
  return cmocka_run_group_tests_name("naive_compile", tests, NULL, NULL);
}
