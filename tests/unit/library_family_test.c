/* library_family_test.c - what the library families make of a library's
 * choices: each is a point whose text reads back, and whose program asks the
 * library for exactly that choice.  On the fake driver and libraries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard headers first. */
#include <cmocka.h>

#include "kernels/family.h"
#include "tests/support/fake_gpu.h"

#define OK(expression)                                     \
  do {                                                     \
    if ((expression) != CUVIL_OK)                          \
      fail_msg("%s: %s", #expression, cuvil_last_error()); \
  } while (0)

enum { MOST = 8 };
static struct cuvil_gpu *gpu;

static int set_up(void **state) {
  (void)state;
  fake_gpu_use();
  fake_gpu_use_libraries();
  fake_gpu_reset(0, 0, 90);
  return cuvil_gpu_open(0, &gpu) == CUVIL_OK ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  cuvil_gpu_close(gpu);
  return fake_gpu_live();
}

struct asked {
  const struct cuvil_family *family;
  struct cuvil_problem problem;
  struct cuvil_query query;
};

static void ask(struct asked *asked, const char *id, const char *text) {
  asked->family = cuvil_family_find(id);
  assert_non_null(asked->family);
  OK(cuvil_problem_parse(text, &asked->problem));
  asked->query =
      (struct cuvil_query){&asked->problem, cuvil_arch_find("sm_90"), NULL};
  OK(cuvil_family_space(asked->family, &asked->query.space));
  assert_true(asked->family->applicable(&asked->problem, asked->query.arch));
}

/* The library's call in a point's program; the caller destroys *out. */
static const json_t *call_of(const struct asked *asked,
                             const struct cuvil_config *config,
                             struct cuvil_program **out) {
  OK(asked->family->emit(&asked->query, config, out));
  const struct cuvil_step *step = &(*out)->steps[0];
  assert_int_equal(step->kind, CUVIL_STEP_LIBRARY);
  assert_string_equal(step->library, asked->family->library);
  return step->call;
}

static void reads_back(const struct asked *asked,
                       const struct cuvil_config *config) {
  struct cuvil_buf text = {0};
  struct cuvil_config again;
  cuvil_config_print(asked->query.space, config, &text);
  OK(cuvil_config_parse(asked->query.space, cuvil_buf_text(&text), &again));
  for (int i = 0; i < asked->query.space->param_count; i++)
    assert_int_equal(again.value[i], config->value[i]);
  cuvil_buf_free(&text);
}

/* key: where the call holds a choice.  fused: how many of the `expected` points
 * leave the whole epilogue to the library. */
static void check_choices(const char *id, const char *text, const char *key,
                          int fused, int expected) {
  struct asked asked;
  struct cuvil_config points[MOST], one[1];
  struct cuvil_library_call *prepared;
  struct cuvil_program *program;
  json_t *listed = NULL;
  int count = -1;
  ask(&asked, id, text);
  OK(asked.family->choices(&asked.query, gpu, MOST, points, &count));
  assert_int_equal(count, expected);
  /* The untuned point leaves the choice to the library. */
  struct cuvil_config standard;
  asked.family->default_config(&asked.query, &standard);
  const json_t *call = call_of(&asked, &standard, &program);
  assert_null(json_object_get(call, key));
  OK(cuvil_library_choices(gpu, asked.family->library, call, MOST, &listed));
  cuvil_program_destroy(program);
  assert_int_equal(json_array_size(listed), fused);
  for (int i = 0; i < count; i++) {
    reads_back(&asked, &points[i]);
    call = call_of(&asked, &points[i], &program);
    assert_int_equal(program->step_count, i < fused ? 1 : 2);
    const json_t *source = json_array_get(listed, (size_t)(i % fused));
    assert_true(
        json_equal(json_object_get(call, key), json_object_get(source, key)));
    OK(cuvil_library_prepare(gpu, asked.family->library, call, &prepared));
    cuvil_library_call_destroy(prepared);
    cuvil_program_destroy(program);
  }
  json_decref(listed);
  OK(asked.family->choices(&asked.query, gpu, 1, one, &count));
  assert_int_equal(count, 1);
  assert_memory_equal(&one[0], &points[0], sizeof one[0]);
}

static void test_products(void **state) {
  (void)state;
  check_choices("gemm_cublaslt",
                "gemm/1 m=4 n=8 k=8 a=f32[m,k] b=f32[n,k]:weight c=f32[m,n] "
                "acc=f32 epi{t=add(acc,bias[n]); out=relu(t)}",
                "algorithm", MOST, MOST);
}

static void test_convolutions(void **state) {
  (void)state;
  check_choices("conv_cudnn",
                "conv/1 n=2 c=4 h=5 w=6 k=6 r=3 s=2 stride=2,1 pad=1,0,2,1 "
                "dil=1,2 group=2 x=f32[n,h,w,c] w=f32[k,r,s,c]:weight "
                "y=f32[n,p,q,k] acc=f32 math=tf32 epi{t=add(acc,bias[k]); "
                "out=relu(t)}",
                "engine", 2, 4);
}

/* An epilogue that the library has not: the bare sum's choices, ours after. */
static void test_split_epilogue(void **state) {
  struct asked asked;
  struct cuvil_config points[MOST];
  struct cuvil_program *program;
  int count = -1;
  (void)state;
  ask(&asked, "gemm_cublaslt",
      "gemm/1 m=4 n=8 k=8 a=f32[m,k] b=f32[n,k]:weight c=f32[m,n] acc=f32 "
      "epi{out=tanh(acc)}");
  OK(asked.family->choices(&asked.query, gpu, MOST, points, &count));
  assert_int_equal(count, MOST);
  call_of(&asked, &points[1], &program);
  assert_int_equal(program->step_count, 2);
  assert_int_equal(program->steps[1].kind, CUVIL_STEP_LAUNCH);
  assert_false(program->steps[1].programmatic);
  cuvil_program_destroy(program);
}

/* What is exactly the library's is left to it: the sum scaled first is alpha,
 * a residual beta C.  A scale elsewhere, or the erf gelu, is not. */
static void test_exact_epilogues(void **state) {
  static const struct {
    const char *epilogue, *name;
    double alpha, beta;
    int steps;
  } cases[] = {
      {"t=mul(acc,0.5); u=add(t,bias[n]); out=relu(u)", "relu_bias", 0.5, 0, 1},
      {"t=mul(0.25,acc); u=add(t,res[m,n]); out=gelu_tanh(u)", "gelu", 0.25, 1,
       1},
      {"t=add(acc,bias[n]); out=mul(t,0.5)", "default", 0, 0, 2},
      {"t=mul(acc,scale[n]); out=relu(t)", "default", 0, 0, 2},
      {"t=add(acc,bias[n]); out=gelu_erf(t)", "default", 0, 0, 2},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct asked asked;
    struct cuvil_config standard;
    struct cuvil_program *program;
    char text[256];
    snprintf(text, sizeof text,
             "gemm/1 m=4 n=8 k=8 a=f32[m,k] b=f32[n,k]:weight c=f32[m,n] "
             "acc=f32 epi{%s}",
             cases[i].epilogue);
    ask(&asked, "gemm_cublaslt", text);
    asked.family->default_config(&asked.query, &standard);
    const json_t *call = call_of(&asked, &standard, &program);
    const char *name = json_string_value(json_object_get(call, "epilogue"));
    assert_string_equal(name ? name : "default", cases[i].name);
    assert_true(json_real_value(json_object_get(call, "alpha")) ==
                cases[i].alpha);
    assert_true(json_real_value(json_object_get(call, "beta")) ==
                cases[i].beta);
    assert_int_equal(program->step_count, cases[i].steps);
    cuvil_program_destroy(program);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_convolutions),
      cmocka_unit_test(test_split_epilogue),
      cmocka_unit_test(test_exact_epilogues),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
