/* mma_compile_test.c - the matrix-product families without a GPU: their space
 * files against the code, and NVRTC's real resources against `derive`, for
 * every type, layout and alignment class on both architectures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/common/mma.h"
#include "kernels/gemm_skinny/skinny.h"

#define GEMM(m, n, k, t, a, b) \
  "gemm/1 m=" #m " n=" #n " k=" #k " a=" t a " b=" t b ":weight c=" t "[m,n] "
#define CONV(c, h, k, r, st, pad, t)                               \
  "conv/1 n=1 c=" #c " h=" #h " w=" #h " k=" #k " r=" #r " s=" #r  \
  " stride=" #st "," #st " pad=" #pad "," #pad "," #pad "," #pad   \
  " dil=1,1 group=1 x=" t "[n,h,w,c] w=" t "[k,r,s,c]:weight y=" t \
  "[n,p,q,k] "

struct asked {
  const char *family, *problem;
};
static const struct asked problems[] = {
    {"gemm_mma", GEMM(1024, 1024, 1024, "f16", "[m,k]", "[n,k]") "acc=f32"},
    {"gemm_mma", GEMM(77, 5, 13, "f16", "[m,k]",
                      "[n,k]") "acc=f32 "
                               "epi{t=add(acc,bias[n]); out=gelu_erf(t)}"},
    {"gemm_mma", GEMM(128, 768, 768, "bf16", "[k,m]",
                      "[k,n]") "acc=f32 "
                               "epi{t=add(acc,res[m,n]); out=relu(t)}"},
    {"gemm_mma",
     GEMM(50, 100, 64, "f32", "[m,k]", "[n,k]") "acc=f32 math=tf32"},
    {"conv_mma",
     CONV(4, 224, 64, 7, 2, 3, "f16") "acc=f32 "
                                      "epi{t=add(acc,bias[k]); out=relu(t)}"},
    {"conv_mma",
     CONV(256, 14, 256, 3, 1, 1, "f16") "acc=f32 epi{t=add(acc,bias[k]); "
                                        "u=add(t,res[n,p,q,k]); out=relu(u)}"},
    {"conv_mma",
     CONV(512, 7, 2048, 1, 1, 0,
          "bf16") "acc=f32 epi{t=add(acc,bias:f32[k]); u=add(t,res[n,p,q,k]); "
                  "out=relu(u)}"},
    {"conv_mma", CONV(3, 23, 20, 3, 2, 1,
                      "f16") "acc=f32 epi{t=mul(acc,gate[n,k]); out=relu(t)}"},
    {"conv_mma", CONV(64, 56, 64, 3, 1, 1, "f32") "acc=f32 math=tf32"},
    {"gemm_simt", GEMM(512, 512, 512, "f32", "[m,k]", "[k,n]") "acc=f32"},
    {"gemm_simt", GEMM(77, 5, 13, "f16", "[k,m]", "[n,k]") "acc=f32"},
    {"conv_simt",
     CONV(64, 56, 64, 3, 1, 1, "f32") "acc=f32 epi{t=add(acc,bias[k]); "
                                      "u=add(t,res[n,p,q,k]); out=relu(u)}"},
    {"conv_simt", CONV(3, 224, 64, 7, 2, 3, "f32") "acc=f32"},
    {"gemm_skinny", GEMM(16, 4096, 4096, "f16", "[m,k]", "[n,k]") "acc=f32"},
    {"gemm_skinny",
     GEMM(64, 50257, 768, "f16", "[m,k]",
          "[n,k]") "acc=f32 epi{t=add(acc,bias[n]); out=gelu_erf(t)}"},
    {"gemm_skinny",
     GEMM(1, 4096, 4096, "bf16", "[m,k]",
          "[k,n]") "acc=f32 epi{t=add(acc,res[m,n]); out=relu(t)}"},
    {"gemm_skinny",
     GEMM(31, 4096, 4096, "f32", "[m,k]", "[k,n]") "acc=f32 math=tf32"},
    {"gemm_skinny",
     GEMM(100352, 64, 256, "f16", "[m,k]",
          "[n,k]") "acc=f32 epi{t=add(acc,bias[n]); u=add(t,res[m,n]); "
                   "out=gelu_tanh(u)}"},
    {"gemm_skinny", GEMM(8, 1000, 2048, "f32", "[k,m]", "[n,k]") "acc=f32"},
    {"gemm_skinny", GEMM(3, 1001, 515, "f16", "[m,k]", "[n,k]") "acc=f32"},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };
static const char *const archs[] = {"sm_80", "sm_90"};

static void ask(const struct asked *asked, const char *arch,
                struct cuvil_problem *problem, struct cuvil_query *out,
                const struct cuvil_family **out_family) {
  if (cuvil_problem_parse(asked->problem, problem) != CUVIL_OK)
    fail_msg("%s: %s", asked->problem, cuvil_last_error());
  *out_family = cuvil_family_find(asked->family);
  assert_non_null(*out_family);
  *out = (struct cuvil_query){problem, cuvil_arch_find(arch), NULL};
  if (cuvil_family_space(*out_family, &out->space) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
}

static void test_spaces_have_the_parameters(void **state) {
  (void)state;
  static const char *const ids[] = {"gemm_mma", "conv_mma", "gemm_simt",
                                    "conv_simt"};
  for (int f = 0; f < 4; f++) {
    const struct cuvil_space *space;
    assert_int_equal(cuvil_family_space(cuvil_family_find(ids[f]), &space),
                     CUVIL_OK);
    assert_int_equal(space->param_count, CUVIL_MMA_PARAMS);
    for (int i = 0; i < CUVIL_MMA_PARAMS; i++)
      assert_string_equal(space->params[i].name, cuvil_mma_param_names[i]);
  }
}

static void test_skinny_has_the_parameters(void **state) {
  (void)state;
  const struct cuvil_space *space;
  assert_int_equal(cuvil_family_space(cuvil_family_find("gemm_skinny"), &space),
                   CUVIL_OK);
  assert_int_equal(space->param_count, CUVIL_SKINNY_PARAMS);
  for (int i = 0; i < CUVIL_SKINNY_PARAMS; i++)
    assert_string_equal(space->params[i].name, cuvil_skinny_param_names[i]);
}

static void test_defaults_are_allowed(void **state) {
  (void)state;
  for (int p = 0; p < PROBLEMS; p++)
    for (int a = 0; a < 2; a++) {
      struct cuvil_problem problem;
      struct cuvil_query query;
      const struct cuvil_family *family;
      ask(&problems[p], archs[a], &problem, &query, &family);
      assert_true(family->applicable(&problem, query.arch));
      struct cuvil_config config;
      family->default_config(&query, &config);
      int rule;
      if (!cuvil_family_allows(family, &query, &config, false, NULL, &rule))
        fail_msg("%s: rule %d on %s", problems[p].problem, rule, archs[a]);
    }
}

static void test_not_applicable(void **state) {
  (void)state;
  static const struct asked refused[] = {
      {"gemm_mma", GEMM(64, 64, 64, "f32", "[m,k]", "[n,k]") "acc=f32"},
      {"gemm_mma",
       GEMM(64, 64, 64, "f32", "[m,k]", "[k,n]") "acc=f32 math=tf32"},
      {"gemm_skinny", GEMM(65, 65, 64, "f16", "[m,k]", "[n,k]") "acc=f32"},
      {"gemm_skinny", GEMM(9, 64, 64, "f32", "[m,k]", "[n,k]") "acc=f32"},
      {"conv_mma",
       "conv/1 n=1 c=64 h=8 w=8 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
       "group=2 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32"},
      {"conv_simt",
       "conv/1 n=1 c=64 h=8 w=8 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
       "group=1 x=f16[n,c,h,w] w=f16[k,c,r,s]:weight y=f16[n,k,p,q] acc=f32"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    struct cuvil_problem problem;
    struct cuvil_query query;
    const struct cuvil_family *family;
    ask(&refused[i], "sm_90", &problem, &query, &family);
    assert_false(family->applicable(&problem, query.arch));
  }
}

static void fail_resources(const char *what, const struct cuvil_query *query,
                           const struct cuvil_config *config,
                           const struct cuvil_compile_result *result,
                           const struct cuvil_derived *derived) {
  struct cuvil_buf text = {0};
  cuvil_config_print(query->space, config, &text);
  print_error(
      "%s on %s, %s: %d registers (at least %d), %d bytes spilled, "
      "%d static shared\n",
      what, query->arch->name, cuvil_buf_text(&text), result->registers,
      derived->registers_least, result->spill_bytes, result->static_shared);
  cuvil_buf_free(&text);
  fail();
}

static void compile(const struct cuvil_family *family,
                    const struct cuvil_query *query,
                    const struct cuvil_config *config, const char *what) {
  struct cuvil_derived derived;
  assert_true(family->derive(query, config, &derived));
  struct cuvil_program *program;
  assert_int_equal(family->emit(query, config, &program), CUVIL_OK);
  assert_int_equal(program->step_count, 1);
  const struct cuvil_step *step = &program->steps[0];
  assert_int_equal(step->shared_bytes, derived.shared_bytes);
  assert_int_equal(step->block[0], derived.threads);
  assert_int_equal((int64_t)step->grid[0] * step->grid[1] * step->grid[2],
                   derived.blocks);
  assert_int_equal(cuvil_program_workspace(program), derived.workspace_bytes);
  struct cuvil_compile_result result = {0};
  if (cuvil_nvrtc_compile(program->modules[0].source, query->arch->nvrtc_name,
                          NULL, &result) != CUVIL_OK)
    fail_msg("%s on %s: %s", what, query->arch->name, result.log);
  /* The assembler may put one value aside (stored and loaded once) to keep one
   * more block on an SM. */
  if (result.spill_bytes > 16 || result.registers < derived.registers_least ||
      result.registers * derived.threads > query->arch->registers_per_sm ||
      result.static_shared)
    fail_resources(what, query, config, &result, &derived);
  cuvil_compile_result_free(&result);
  cuvil_program_destroy(program);
}

static void test_defaults_compile(void **state) {
  (void)state;
  for (int p = 0; p < PROBLEMS; p++) {
    struct cuvil_problem problem;
    struct cuvil_query query;
    const struct cuvil_family *family;
    ask(&problems[p], archs[p % 2], &problem, &query, &family);
    struct cuvil_config config;
    family->default_config(&query, &config);
    compile(family, &query, &config, problems[p].problem);
  }
}

/* A seeded walk through the points that the rules leave. */
static void test_survivors_compile(void **state) {
  (void)state;
  struct cuvil_rng rng = {20};
  for (int p = 0; p < PROBLEMS; p++) {
    struct cuvil_problem problem;
    struct cuvil_query query;
    const struct cuvil_family *family;
    ask(&problems[p], archs[1 - p % 2], &problem, &query, &family);
    uint64_t size = cuvil_space_size(query.space);
    int tries = 0;
    for (int left = 1; left > 0;) {
      if (++tries > 2000000)
        fail_msg("no point left for %s", problems[p].problem);
      struct cuvil_config config;
      cuvil_space_point(query.space, cuvil_rng_below(&rng, size), &config);
      if (!cuvil_family_allows(family, &query, &config, true, NULL, NULL))
        continue;
      compile(family, &query, &config, problems[p].problem);
      left--;
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_spaces_have_the_parameters),
      cmocka_unit_test(test_skinny_has_the_parameters),
      cmocka_unit_test(test_defaults_are_allowed),
      cmocka_unit_test(test_not_applicable),
      cmocka_unit_test(test_defaults_compile),
      cmocka_unit_test(test_survivors_compile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
