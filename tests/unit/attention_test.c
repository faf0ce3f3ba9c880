/* attention_test.c - the attention families without a GPU: which problems they
 * take, rules that say why for every point that derive refuses, and NVRTC's
 * real resources against derive on both architectures.  What the kernels
 * compute is held against the reference by mma_emulate_test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/family.h"

#define ATTENTION(b, hq, hkv, sq, skv, d, dv, t, rest)                         \
  "attention/1 b=" #b " hq=" #hq " hkv=" #hkv " sq=" #sq " skv=" #skv " d=" #d \
  " dv=" #dv " q=" t "[b,sq,hq,d] k=" t "[b,skv,hkv,d] v=" t                   \
  "[b,skv,hkv,dv] o=" t "[b,sq,hq,dv] scale=0.125 " rest " acc=f32"

static const char *const problems[] = {
    ATTENTION(1, 12, 12, 128, 128, 64, 64, "f16", "causal=0"),
    ATTENTION(8, 12, 12, 128, 128, 64, 64, "f16",
              "causal=0 mask=f16[b,skv]:add"),
    ATTENTION(8, 12, 12, 197, 197, 64, 64, "bf16", "causal=0"),
    ATTENTION(1, 12, 12, 512, 512, 64, 64, "f16", "causal=1"),
    ATTENTION(4, 32, 8, 2048, 2048, 128, 128, "f16", "causal=1"),
    ATTENTION(1, 32, 8, 1, 2048, 128, 128, "bf16",
              "causal=0 mask=bool[b,sq,skv]:keep"),
    ATTENTION(1, 4, 4, 250, 250, 256, 256, "f16",
              "causal=1 mask=f32[hq,sq,skv]:add"),
    ATTENTION(2, 3, 3, 77, 101, 72, 24, "f16", "causal=0"),
};
/* ... of which the tensor cores take none. */
static const char *const exact[] = {
    ATTENTION(1, 12, 12, 128, 128, 64, 64, "f32", "causal=0"),
    ATTENTION(1, 3, 1, 50, 70, 30, 31, "f16", "causal=1 mask=f32[sq,skv]:add"),
};
enum { PROBLEMS = sizeof problems / sizeof *problems };
static const char *const archs[] = {"sm_80", "sm_90"};
static const char *const families[] = {"attention_mma", "attention_simt"};
enum { FAMILIES = sizeof families / sizeof *families };

static bool full(void) {
  const char *text = getenv("CUVIL_TEST_FULL");
  return text && *text == '1';
}

static struct cuvil_query ask(const char *text, const char *arch,
                              const struct cuvil_family *family,
                              struct cuvil_problem *problem) {
  if (cuvil_problem_parse(text, problem) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  struct cuvil_query query = {problem, cuvil_arch_find(arch), NULL};
  if (cuvil_family_space(family, &query.space) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  return query;
}

static void test_applicable(void **state) {
  (void)state;
  static const char *const refused[] = {
      /* type, head's size, scale, rows not contiguous, rows not aligned */
      ATTENTION(1, 2, 2, 64, 64, 64, 64, "f32", "causal=0"),
      ATTENTION(1, 2, 2, 64, 64, 60, 64, "f16", "causal=0"),
      ATTENTION(1, 2, 2, 64, 64, 264, 64, "f16", "causal=0"),
      "attention/1 b=1 hq=2 hkv=2 sq=64 skv=64 d=64 dv=64 q=f16[b,sq,hq,d] "
      "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=-0.125",
      "attention/1 b=1 hq=2 hkv=2 sq=64 skv=64 d=64 dv=64 q=f16[b,sq,hq,d] "
      "k=f16[b,hkv,d,skv] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=0.125",
      "attention/1 b=1 hq=2 hkv=2 sq=64 skv=64 d=64 dv=64 "
      "q=f16[b,sq,hq,d]@(12800,196,64,1) k=f16[b,skv,hkv,d] "
      "v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=0.125",
  };
  const struct cuvil_family *family = cuvil_family_find("attention_mma");
  struct cuvil_problem problem;
  struct cuvil_query query;
  for (int i = 0; i < PROBLEMS; i++) {
    query = ask(problems[i], "sm_80", family, &problem);
    assert_true(family->applicable(&problem, query.arch));
  }
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    query = ask(refused[i], "sm_90", family, &problem);
    if (family->applicable(&problem, query.arch)) fail_msg("%s", refused[i]);
  }
}

static void compile(const struct cuvil_family *family,
                    const struct cuvil_query *query,
                    const struct cuvil_config *config, const char *problem) {
  struct cuvil_derived derived;
  struct cuvil_program *program;
  struct cuvil_compile_result result = {0};
  struct cuvil_buf text = {0};
  cuvil_config_print(query->space, config, &text);
  assert_true(family->derive(query, config, &derived));
  assert_int_equal(family->emit(query, config, &program), CUVIL_OK);
  if (cuvil_program_check(program, family->id) != CUVIL_OK)
    fail_msg("%s: %s", problem, cuvil_last_error());
  const struct cuvil_step *step = &program->steps[0];
  assert_int_equal(program->step_count, 1);
  assert_int_equal((int64_t)step->grid[0] * step->grid[1] * step->grid[2],
                   derived.blocks);
  assert_int_equal(step->block[0], derived.threads);
  assert_int_equal(cuvil_program_workspace(program), derived.workspace_bytes);
  if (cuvil_program_compile(program, NULL, &result) != CUVIL_OK)
    fail_msg("%s: %s\n%s", problem, cuvil_last_error(), result.log);
  /* The assembler may put a few values aside to keep one more block on an SM.
   */
  if (result.spill_bytes > 32 || result.registers < derived.registers_least ||
      result.registers * derived.threads > query->arch->registers_per_sm ||
      result.static_shared + (int)step->shared_bytes != derived.shared_bytes)
    fail_msg(
        "%s on %s, %s: %d registers (at least %d), %d bytes spilled, "
        "%d + %d shared (%d): %s",
        family->id, query->arch->name, cuvil_buf_text(&text), result.registers,
        derived.registers_least, result.spill_bytes, result.static_shared,
        (int)step->shared_bytes, derived.shared_bytes, problem);
  cuvil_buf_free(&text);
  cuvil_compile_result_free(&result);
  cuvil_program_destroy(program);
}

static void test_simt_takes_all(void **state) {
  (void)state;
  const struct cuvil_family *mma = cuvil_family_find("attention_mma");
  const struct cuvil_family *simt = cuvil_family_find("attention_simt");
  struct cuvil_problem problem;
  for (int i = 0; i < PROBLEMS; i++) {
    struct cuvil_query query = ask(problems[i], "sm_80", simt, &problem);
    assert_true(simt->applicable(&problem, query.arch));
  }
  for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
    struct cuvil_query query = ask(exact[i], "sm_90", simt, &problem);
    const struct cuvil_family *fallback;
    struct cuvil_config config;
    assert_false(mma->applicable(&problem, query.arch));
    assert_int_equal(
        cuvil_family_fallback(&problem, query.arch, &fallback, &config),
        CUVIL_OK);
    assert_ptr_equal(fallback, simt);
    compile(simt, &query, &config, exact[i]);
  }
}

static bool cudnn_takes(const char *text) {
  const struct cuvil_family *family = cuvil_family_find("attention_cudnn");
  struct cuvil_problem problem;
  struct cuvil_query query = ask(text, "sm_90", family, &problem);
  return family->applicable(&problem, query.arch);
}

static void assert_integers(const json_t *call, const char *key, int64_t a,
                            int64_t b, int64_t c, int64_t d) {
  const int64_t wanted[4] = {a, b, c, d};
  const json_t *array = json_object_get(call, key);
  assert_int_equal(json_array_size(array), 4);
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(json_integer_value(json_array_get(array, i)), wanted[i]);
}

/* The call says strides by batch, head, row and element whatever the order of
 * the operand's dimensions. */
static void test_cudnn_call(void **state) {
  (void)state;
  const struct cuvil_family *family = cuvil_family_find("attention_cudnn");
  struct cuvil_problem problem;
  struct cuvil_query query = ask(
      "attention/1 b=2 hq=4 hkv=2 sq=16 skv=24 d=32 dv=64 "
      "q=f16[b,hq,sq,d] k=f16[b,skv,hkv,d]@(3072,128,32,1) v=f16[b,skv,hkv,dv] "
      "o=f16[sq,b,hq,dv] scale=0.25 causal=1 mask=f32[hq,skv]:add",
      "sm_90", family, &problem);
  struct cuvil_config config;
  struct cuvil_program *program;
  assert_true(family->applicable(&problem, query.arch));
  family->default_config(&query, &config);
  assert_int_equal(family->emit(&query, &config, &program), CUVIL_OK);
  assert_int_equal(cuvil_program_check(program, family->id), CUVIL_OK);
  const struct cuvil_step *step = &program->steps[0];
  const json_t *mask = json_object_get(step->call, "mask");
  assert_string_equal(step->library, "cudnn");
  assert_int_equal(step->binding_count, 6);
  for (int i = 0; i < 5; i++)
    assert_int_equal(program->buffers[step->bindings[i]].operand, i);
  assert_integers(step->call, "q_strides", 2048, 512, 32, 1);
  assert_integers(step->call, "k_strides", 3072, 32, 128, 1);
  assert_integers(step->call, "v_strides", 3072, 64, 128, 1);
  assert_integers(step->call, "o_strides", 256, 64, 512, 1);
  assert_integers(mask, "dims", 1, 4, 1, 24);
  assert_integers(mask, "strides", 96, 24, 24, 1);
  assert_true(json_is_true(json_object_get(step->call, "causal")));
  assert_null(json_object_get(step->call, "engine"));
  cuvil_program_destroy(program);
  assert_true(cudnn_takes(problems[0]) && cudnn_takes(problems[4]));
  assert_false(cudnn_takes(problems[5])); /* a mask that excludes */
  assert_false(cudnn_takes(exact[0]));    /* fp32 */
  assert_false(cudnn_takes(ATTENTION(1, 2, 2, 64, 32, 64, 64, "f16",
                                     "causal=1"))); /* queries without keys */
}

/* Every point that derive refuses breaks a rule, which has a reason to show;
 * every problem keeps points to choose from. */
static void test_rules_say_why(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++)
    for (int i = 0; i < PROBLEMS; i++) {
      const struct cuvil_family *family = cuvil_family_find(families[f]);
      struct cuvil_problem problem;
      struct cuvil_query query =
          ask(problems[i], archs[i % 2], family, &problem);
      uint64_t size = cuvil_space_size(query.space), left = 0;
      for (uint64_t at = 0; at < size; at++) {
        struct cuvil_config config;
        int rule;
        cuvil_space_point(query.space, at, &config);
        if (!cuvil_family_allows(family, &query, &config, false, NULL, &rule) &&
            rule < 0)
          fail_msg("%s point %llu refused without a rule (%d): %s", families[f],
                   (unsigned long long)at, rule, problems[i]);
        left += cuvil_family_allows(family, &query, &config, true, NULL, &rule);
      }
      if (left < 3 || left > 200)
        fail_msg("%s: %llu points left for %s", families[f],
                 (unsigned long long)left, problems[i]);
    }
}

/* The default and a seeded few of the points that the rules leave; the short
 * run takes every second problem of a family. */
static void test_compile(void **state) {
  (void)state;
  struct cuvil_rng rng = {20};
  for (int f = 0; f < FAMILIES; f++)
    for (int i = full() ? 0 : f; i < PROBLEMS; i += full() ? 1 : 2) {
      const struct cuvil_family *family = cuvil_family_find(families[f]);
      struct cuvil_problem problem;
      struct cuvil_query query =
          ask(problems[i], archs[i / 2 % 2], family, &problem);
      struct cuvil_config config;
      family->default_config(&query, &config);
      int rule;
      if (!cuvil_family_allows(family, &query, &config, false, NULL, &rule))
        fail_msg("default refused by rule %d: %s", rule, problems[i]);
      compile(family, &query, &config, problems[i]);
      uint64_t size = cuvil_space_size(query.space);
      for (int left = full() ? 12 : 1; left > 0;) {
        cuvil_space_point(query.space, cuvil_rng_below(&rng, size), &config);
        if (!cuvil_family_allows(family, &query, &config, true, NULL, NULL))
          continue;
        compile(family, &query, &config, problems[i]);
        left--;
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_applicable), cmocka_unit_test(test_simt_takes_all),
      cmocka_unit_test(test_cudnn_call), cmocka_unit_test(test_rules_say_why),
      cmocka_unit_test(test_compile),
  };
  return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
