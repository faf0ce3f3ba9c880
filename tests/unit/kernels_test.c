/* kernels_test.c - the registry, and every family's code through NVRTC.
 *
 * No GPU is needed: a sample of each family's points is compiled for both
 * architectures and its real resources are held against derive.
 * CUVIL_TEST_FULL=1 takes many points of every problem.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/family.h"
#include "tests/support/problems.h"

static const char *const archs[] = {"sm_80", "sm_90"};
enum { ARCHS = 2 };

static struct cuvil_problem parse(const char *text) {
  struct cuvil_problem problem;
  if (cuvil_problem_parse(text, &problem) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  return problem;
}

static bool full(void) {
  const char *text = getenv("CUVIL_TEST_FULL");
  return text && *text == '1';
}

static void families_are_consistent(void **state) {
  (void)state;
  assert_true(cuvil_family_count() >= 9);
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *f = cuvil_family_at(i);
    const struct cuvil_space *space;
    assert_ptr_equal(cuvil_family_find(f->id), f);
    assert_true(f->version > 0 && *f->about && f->kinds);
    if (cuvil_family_space(f, &space) != CUVIL_OK)
      fail_msg("%s: %s", f->id, cuvil_last_error());
    assert_string_equal(space->family, f->id);
  }
  assert_null(cuvil_family_at(-1));
  assert_null(cuvil_family_at(cuvil_family_count()));
  assert_null(cuvil_family_find("gemm"));
}

static bool serves(const struct cuvil_family *f,
                   const struct cuvil_problem *problem,
                   const struct cuvil_arch *arch) {
  return (f->kinds & (1u << problem->kind)) && f->applicable(problem, arch);
}

static void defaults_are_allowed(void **state) {
  (void)state;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_problem problem = parse(*text);
    for (int a = 0; a < ARCHS; a++) {
      struct cuvil_query q = {&problem, cuvil_arch_find(archs[a]), NULL};
      for (int i = 0; i < cuvil_family_count(); i++) {
        const struct cuvil_family *f = cuvil_family_at(i);
        struct cuvil_config config;
        struct cuvil_derived derived;
        int rule;
        if (f->library || !serves(f, &problem, q.arch)) continue;
        assert_int_equal(cuvil_family_space(f, &q.space), CUVIL_OK);
        f->default_config(&q, &config);
        if (!cuvil_family_allows(f, &q, &config, false, &derived, &rule))
          fail_msg("%s on %s: default refused by %s: %s", f->id, archs[a],
                   rule >= 0 ? q.space->rules[rule].name : "derive", *text);
        assert_true(derived.blocks >= 1 && derived.threads >= 32);
        assert_true(f->predict(&q, &config, &derived) > 0);
      }
    }
  }
}

static void every_problem_has_a_fallback(void **state) {
  (void)state;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_problem problem = parse(*text);
    const struct cuvil_family *family;
    struct cuvil_config config;
    if (cuvil_family_fallback(&problem, cuvil_arch_find("sm_80"), &family,
                              &config) != CUVIL_OK)
      fail_msg("%s: %s", *text, cuvil_last_error());
  }
}

/* ---- compiled */
static void compile_point(const struct cuvil_family *f,
                          const struct cuvil_query *q,
                          const struct cuvil_config *config,
                          const char *problem) {
  struct cuvil_program *program;
  struct cuvil_compile_result result = {0};
  struct cuvil_derived derived;
  struct cuvil_buf text = {0};
  cuvil_config_print(q->space, config, &text);
  if (!cuvil_family_allows(f, q, config, false, &derived, NULL))
    fail_msg("%s %s refused: %s", f->id, cuvil_buf_text(&text), problem);
  if (f->emit(q, config, &program) != CUVIL_OK)
    fail_msg("%s %s: %s: %s", f->id, cuvil_buf_text(&text), cuvil_last_error(),
             problem);
  if (cuvil_program_compile(program, NULL, &result) != CUVIL_OK)
    fail_msg("%s %s %s: %s\n%s", f->id, cuvil_buf_text(&text), problem,
             cuvil_last_error(), result.log ? result.log : "");
  if (cuvil_program_check(program, f->id) != CUVIL_OK)
    fail_msg("%s: %s", problem, cuvil_last_error());
  if (result.registers < derived.registers_least)
    fail_msg("%s %s: %d registers, derive said at least %d: %s", f->id,
             cuvil_buf_text(&text), result.registers, derived.registers_least,
             problem);
  uint32_t dynamic = 0, threads = 0;
  for (int i = 0; i < program->step_count; i++) {
    const struct cuvil_step *s = &program->steps[i];
    if (s->kind != CUVIL_STEP_LAUNCH) continue;
    if (s->shared_bytes > dynamic) dynamic = s->shared_bytes;
    if (s->block[0] * s->block[1] * s->block[2] > threads)
      threads = s->block[0] * s->block[1] * s->block[2];
  }
  int shared = result.static_shared + (int)dynamic;
  if (shared != derived.shared_bytes)
    fail_msg("%s %s: %d bytes of shared memory, derive said %d: %s", f->id,
             cuvil_buf_text(&text), shared, derived.shared_bytes, problem);
  assert_int_equal(threads, derived.threads);
  cuvil_buf_free(&text);
  cuvil_compile_result_free(&result);
  cuvil_program_destroy(program);
}

/* A random point that hard rules allow; false when none was found soon. */
static bool random_point(const struct cuvil_family *f,
                         const struct cuvil_query *q, struct cuvil_rng *rng,
                         struct cuvil_config *out) {
  for (int i = 0; i < 400; i++) {
    cuvil_space_point(q->space,
                      cuvil_rng_below(rng, cuvil_space_size(q->space)), out);
    if (cuvil_family_allows(f, q, out, false, NULL, NULL)) return true;
  }
  return false;
}

static void compile_points(const struct cuvil_family *f,
                           const struct cuvil_query *q, int points,
                           struct cuvil_rng *rng, const char *text) {
  struct cuvil_config config;
  f->default_config(q, &config);
  compile_point(f, q, &config, text);
  for (int i = 0; i < points; i++)
    if (random_point(f, q, rng, &config)) compile_point(f, q, &config, text);
}

/* The short run takes two problems of three, for one architecture each. */
static void compile_family(const struct cuvil_family *f) {
  struct cuvil_rng rng = {1};
  int number = 0;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_problem problem = parse(*text);
    for (int a = 0; a < ARCHS; a++) {
      struct cuvil_query q = {&problem, cuvil_arch_find(archs[a]), NULL};
      if (!serves(f, &problem, q.arch)) continue;
      assert_int_equal(cuvil_family_space(f, &q.space), CUVIL_OK);
      if (full())
        compile_points(f, &q, 12, &rng, *text);
      else if (number++ % 6 == 3 * a)
        compile_points(f, &q, number % 12 == 1, &rng, *text);
    }
  }
}

static void families_compile(void **state) {
  (void)state;
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *f = cuvil_family_at(i);
    if (!f->library) compile_family(f);
  }
}

static void references_compile(void **state) {
  (void)state;
  int number = 0;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_problem problem = parse(*text);
    struct cuvil_program *program;
    struct cuvil_compile_result result = {0};
    if (!full() && number++ % 12 != 0) continue;
    if (cuvil_reference_program(&problem, cuvil_arch_find("sm_80"), &program) !=
        CUVIL_OK)
      fail_msg("%s: %s", *text, cuvil_last_error());
    if (cuvil_program_compile(program, NULL, &result) != CUVIL_OK)
      fail_msg("%s: %s\n%s", *text, cuvil_last_error(), result.log);
    cuvil_compile_result_free(&result);
    cuvil_program_destroy(program);
  }
}

static void comparisons_compile(void **state) {
  (void)state;
  for (int dtype = 1; dtype < CUVIL_DTYPE_COUNT; dtype++) {
    struct cuvil_program *program;
    assert_int_equal(cuvil_compare_program((enum cuvil_dtype)dtype, 1000,
                                           cuvil_arch_find("sm_90"), &program),
                     CUVIL_OK);
    struct cuvil_compile_result result = {0};
    if (cuvil_program_compile(program, NULL, &result) != CUVIL_OK)
      fail_msg("%s: %s\n%s", cuvil_dtype_name((enum cuvil_dtype)dtype),
               cuvil_last_error(), result.log);
    assert_int_equal(program->steps[0].grid[0], 8);
    assert_int_equal(program->steps[1].grid[0], 1);
    cuvil_compile_result_free(&result);
    cuvil_program_destroy(program);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(families_are_consistent),
      cmocka_unit_test(defaults_are_allowed),
      cmocka_unit_test(every_problem_has_a_fallback),
      cmocka_unit_test(families_compile),
      cmocka_unit_test(references_compile),
      cmocka_unit_test(comparisons_compile),
  };
  return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
