/* reference_test.c - right answers by hand: every kind, every operator. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/embed.h"
#include "gpu/gpu.h"
#include "tests/support/problem_bench.h"

/* ---- by hand */

static void test_gemm_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(
      &b,
      "gemm/1 m=2 n=3 k=2 a=f16[k,m] b=f16[n,k] c=f32[m,n]@(4,1) "
      "epi{t=add(acc,bias[n]); out=relu(t)}");
  FILL(&b, "a", 1, 3, 2, 4); /* rows (1,2) and (3,4) */
  FILL(&b, "b", 1, 0, 0, 1, -1, -1);
  FILL(&b, "bias", 0.5, -3, 4);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_GEMM_C, 1.5, 0, 1, 0, 3.5, 1, 0);
  assert_true(isnan(b.bounds[CUVIL_GEMM_C][3])); /* between the rows */
  assert_true(b.bounds[CUVIL_GEMM_C][2] > 0);
  assert_true(b.bounds[CUVIL_GEMM_C][2] < 1e-5);
  cuvil_bench_tear_down(&b);
}

static void test_conv_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  /* 3x3 input 1..9, 2x2 window (1 2; 3 4), padding 1 at the top and left,
   * stride 2: corners (0,0) (0,2) (2,0) (2,2) of the padded 4x4. */
  cuvil_bench_set_up(
      &b,
      "conv/1 n=1 c=1 h=3 w=3 k=1 r=2 s=2 stride=2,2 pad=1,1,0,0 "
      "x=f32[n,h,w,c] w=f32[k,r,s,c] y=f32[n,p,q,k]");
  FILL(&b, "x", 1, 2, 3, 4, 5, 6, 7, 8, 9);
  FILL(&b, "w", 1, 2, 3, 4);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_CONV_Y, 4. * 1, 3. * 2 + 4 * 3, 2. * 4 + 4 * 7,
         1. * 5 + 2 * 6 + 3 * 8 + 4 * 9);
  cuvil_bench_tear_down(&b);
  /* Two groups of two channels, dilation 2 in one direction, a bias and a
   * residual. x is 1x3 of 4 channels. */
  cuvil_bench_set_up(
      &b,
      "conv/1 n=1 c=4 h=1 w=3 k=2 r=1 s=2 dil=1,2 group=2 x=f16[n,h,w,c] "
      "w=f16[k,r,s,c] y=f16[n,p,q,k] epi{t=add(acc,bias:f32[k]); "
      "out=add(t,res[n,p,q,k])}");
  FILL(&b, "x", 1, 2, 3, 4, 100, 100, 100, 100, 5, 6, 7, 8);
  FILL(&b, "w", 1, 10, 2, 20, 1, -1, 0.5, 0);
  FILL(&b, "bias", 0.25, 1);
  FILL(&b, "res", 1000, -1);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_CONV_Y, 1 + 20 + 10 + 120 + 1000.25, 3 - 4 + 3.5 + 1 - 1);
  cuvil_bench_tear_down(&b);
}

/* The definition in seven loops, for whatever layout the operands have. */
static double conv_point(const struct cuvil_bench *b, const int64_t *at) {
  const struct cuvil_problem *p = &b->problem;
  int64_t group_in = p->dims[CUVIL_CONV_DIM_C].extent / p->group;
  int64_t group =
      at[CUVIL_CONV_DIM_K] / (p->dims[CUVIL_CONV_DIM_K].extent / p->group);
  double sum = 0;
  for (int64_t r = 0; r < p->dims[CUVIL_CONV_DIM_R].extent; r++)
    for (int64_t s = 0; s < p->dims[CUVIL_CONV_DIM_S].extent; s++)
      for (int64_t c = 0; c < group_in; c++) {
        int64_t here[2][CUVIL_MAX_DIMS] = {{0}};
        here[0][CUVIL_CONV_DIM_N] = at[CUVIL_CONV_DIM_N];
        here[0][CUVIL_CONV_DIM_H] = at[CUVIL_CONV_DIM_P] * p->stride[0] -
                                    p->pad[0] + r * p->dilation[0];
        here[0][CUVIL_CONV_DIM_W] = at[CUVIL_CONV_DIM_Q] * p->stride[1] -
                                    p->pad[1] + s * p->dilation[1];
        here[0][CUVIL_CONV_DIM_C] = group * group_in + c;
        here[1][CUVIL_CONV_DIM_K] = at[CUVIL_CONV_DIM_K];
        here[1][CUVIL_CONV_DIM_R] = r;
        here[1][CUVIL_CONV_DIM_S] = s;
        here[1][CUVIL_CONV_DIM_C] = c;
        double product = 1;
        for (int i = 0; i < 2; i++) {
          const struct cuvil_operand *o = &p->operands[i];
          int64_t index = 0;
          bool inside = true;
          for (int d = 0; d < o->rank; d++) {
            int64_t x = here[i][o->dims[d]];
            inside = inside && x >= 0 && x < cuvil_operand_extent(p, i, d);
            index += x * o->strides[d];
          }
          product *=
              inside ? cuvil_load(o->dtype, b->data[i], (size_t)index) : 0;
        }
        sum += product;
      }
  return sum;
}

static void test_conv_definition(void **state) {
  (void)state;
  static const char *const texts[] = {
      "conv/1 n=2 c=6 h=9 w=8 k=10 r=3 s=2 stride=2,1 pad=1,0,2,3 dil=1,2 "
      "group=2 x=f16[n,h,w,c] w=f16[k,r,s,c] y=f32[n,p,q,k]",
      "conv/1 n=1 c=70 h=5 w=5 k=67 r=3 s=3 pad=1,1,1,1 x=f32[n,c,h,w] "
      "w=f32[k,c,r,s] y=f32[n,k,p,q]",
      "conv/1 n=3 c=8 h=6 w=6 k=8 r=3 s=3 pad=1,1,1,1 group=8 x=bf16[n,h,w,c] "
      "w=bf16[k,r,s,c] y=f32[n,p,q,k]",
      "conv/1 n=1 c=8 h=7 w=7 k=5 r=1 s=1 stride=3,3 x=f16[n,h,w,c<3] "
      "w=f16[k,r,s,c] y=f32[n,p,q,k]@(45,15,5,1)",
  };
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
    struct cuvil_bench b;
    cuvil_bench_set_up(&b, texts[t]);
    cuvil_bench_randomise(&b, 11 + t);
    cuvil_bench_run(&b, 2);
    const struct cuvil_operand *y = &b.problem.operands[CUVIL_CONV_Y];
    int64_t total = cuvil_operand_elements(&b.problem, CUVIL_CONV_Y);
    for (int64_t i = 0; i < total; i++) {
      int64_t at[CUVIL_MAX_DIMS] = {0}, rest = i;
      for (int d = y->rank - 1; d >= 0; d--) {
        at[y->dims[d]] = rest % b.problem.dims[y->dims[d]].extent;
        rest /= b.problem.dims[y->dims[d]].extent;
      }
      double expected = conv_point(&b, at);
      if (fabs(b.values[CUVIL_CONV_Y][i] - expected) > 1e-12)
        fail_msg("%s: element %lld is %.17g, not %.17g", texts[t], (long long)i,
                 b.values[CUVIL_CONV_Y][i], expected);
    }
    cuvil_bench_tear_down(&b);
  }
}

static void test_pool_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  /* One row of five, windows of two every two, two of padding before and
   * three behind: the first and the last window see only padding. */
  static const char row[] =
      "n=1 c=1 h=1 w=5 r=1 s=2 stride=1,2 pad=0,2,0,3 x=f32[n,c,h,w] "
      "y=f32[n,c,p,q]";
  char text[256];
  snprintf(text, sizeof text, "pool/1 op=avg %s", row);
  cuvil_bench_set_up(&b, text);
  FILL(&b, "x", 1, 2, 3, 4, 5);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, 0, 1.5, 3.5, 5, 0);
  cuvil_bench_tear_down(&b);
  snprintf(text, sizeof text, "pool/1 op=avg_padded %s", row);
  cuvil_bench_set_up(&b, text);
  FILL(&b, "x", 1, 2, 3, 4, 5);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, 0, 1.5, 3.5, 2.5, 0);
  cuvil_bench_tear_down(&b);
  snprintf(text, sizeof text, "pool/1 op=avg_padded over=0,3 %s", row);
  cuvil_bench_set_up(&b, text);
  FILL(&b, "x", 1, 2, 3, 4, 5);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, 0, 1.5, 3.5, 5, 0);
  cuvil_bench_tear_down(&b);
  snprintf(text, sizeof text, "pool/1 op=max %s", row);
  cuvil_bench_set_up(&b, text);
  FILL(&b, "x", 1, -2, NAN, 4, -5);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, -INFINITY, 1, NAN, -5, -INFINITY);
  assert_true(b.bounds[CUVIL_POOL_Y][1] < 1e-6);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(
      &b,
      "pool/1 op=max n=1 c=2 h=3 w=3 r=2 s=2 stride=1,1 pad=0,0,1,1 "
      "dil=2,1 x=f16[n,h,w,c] y=f16[n,p,q,c] epi{out=neg(acc)}");
  FILL(&b, "x", 1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60, 7, 70, 8, 80, 9, 90);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, -8, -80, -9, -90, -9, -90, -5, -50, -6, -60, -6,
         -60);
  cuvil_bench_tear_down(&b);
}

static void test_reduce_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "reduce/1 op=mean n=2 h=2 c=2 x=f32[n,h,c] y=f32[c,n] "
                     "epi{out=mul(acc,2)}");
  FILL(&b, "x", 1, 2, 3, 4, 5, 6, 8, 9);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_REDUCE_Y, 4, 13, 6, 15);
  cuvil_bench_tear_down(&b);
  static const struct {
    const char *op;
    double expected;
  } ops[] = {{"sum", 5}, {"mean", 1}, {"max", 7}, {"min", -4}};
  for (int i = 0; i < 4; i++) {
    char text[128];
    snprintf(text, sizeof text, "reduce/1 op=%s n=5 x=f32[n] y=f32[]",
             ops[i].op);
    cuvil_bench_set_up(&b, text);
    FILL(&b, "x", 1, 7, -4, 1, 0);
    cuvil_bench_run(&b, 1);
    EXPECT(&b, CUVIL_REDUCE_Y, ops[i].expected);
    cuvil_bench_tear_down(&b);
  }
  cuvil_bench_set_up(&b, "reduce/1 op=sum n=0 c=2 x=f32[n,c] y=f32[c]");
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_REDUCE_Y, 0, 0);
  cuvil_bench_tear_down(&b);
}

static void test_pointwise_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  /* NCHW fp32 of three channels to NHWC fp16 of four, and a broadcast. */
  cuvil_bench_set_up(&b,
                     "pointwise/1 n=1 c=4 h=1 w=2 y=f16[n,h,w,c] "
                     "epi{out=x:f32[n,c<3,h,w]}");
  FILL(&b, "x", 1, 2, 3, 4, 5, 6);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, 0, 1, 3, 5, 0, 2, 4, 6, 0);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(
      &b,
      "pointwise/1 n=2 c=2 y=f32[n,c] z=bool[n,c]:out epi{t=mul(x[n,c],"
      "s[c]); z=max(t,0); u=add(t,o:f16[]); out=add(u,r[n])}");
  FILL(&b, "x", 1, 2, 3, -4);
  FILL(&b, "s", 10, 100);
  FILL(&b, "o", 0.5);
  FILL(&b, "r", 1000, 2000);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, 0, 1010.5, 1200.5, 2030.5, 1600.5);
  EXPECT(&b, 1, 1, 1, 1, 0);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(&b, "pointwise/1 n=0 y=f32[n] epi{out=x[n]}");
  cuvil_bench_run(&b, 1);
  cuvil_bench_tear_down(&b);
}

/* ---- operators */

static void test_operators(void **state) {
  (void)state;
  static const struct {
    enum cuvil_expr_op op;
    double args[3], expected;
  } cases[] = {
      {CUVIL_OP_COPY, {3}, 3},
      {CUVIL_OP_SUB, {3, 5}, -2},
      {CUVIL_OP_DIV, {3, 4}, 0.75},
      {CUVIL_OP_MIN, {3, -4}, -4},
      {CUVIL_OP_MAX, {3, NAN}, NAN},
      {CUVIL_OP_MIN, {NAN, 3}, NAN},
      {CUVIL_OP_POW, {2, 10}, 1024},
      {CUVIL_OP_NEG, {3}, -3},
      {CUVIL_OP_ABS, {-3}, 3},
      {CUVIL_OP_SQRT, {9}, 3},
      {CUVIL_OP_SQRT, {-1}, NAN},
      {CUVIL_OP_RSQRT, {4}, 0.5},
      {CUVIL_OP_RECIPROCAL, {4}, 0.25},
      {CUVIL_OP_RECIPROCAL, {0}, INFINITY},
      {CUVIL_OP_EXP, {0}, 1},
      {CUVIL_OP_EXP, {89}, INFINITY}, /* beyond fp32 */
      {CUVIL_OP_LOG, {1}, 0},
      {CUVIL_OP_TANH, {0.5}, 0.46211715726000975},
      {CUVIL_OP_SIGMOID, {0}, 0.5},
      {CUVIL_OP_ERF, {1}, 0.84270079294971487},
      {CUVIL_OP_RELU, {-2}, 0},
      {CUVIL_OP_RELU, {NAN}, NAN},
      {CUVIL_OP_GELU_ERF, {1}, 0.84134474606854293},
      {CUVIL_OP_GELU_ERF, {-2}, -0.045500263896358417},
      {CUVIL_OP_GELU_TANH, {1}, 0.84119199060827676},
      {CUVIL_OP_SILU, {2}, 1.7615941559557649},
      {CUVIL_OP_HARDSWISH, {1}, 2. / 3},
      {CUVIL_OP_HARDSWISH, {-4}, 0},
      {CUVIL_OP_HARDSIGMOID, {1, 0.25, 0.5}, 0.75},
      {CUVIL_OP_HARDSIGMOID, {9, 0.25, 0.5}, 1},
      {CUVIL_OP_LEAKY_RELU, {-2, 0.25}, -0.5},
      {CUVIL_OP_LEAKY_RELU, {2, 0.25}, 2},
      {CUVIL_OP_TRUNC, {2.7}, 2},
      {CUVIL_OP_TRUNC, {-2.7}, -2},
      {CUVIL_OP_TRUNC, {NAN}, NAN},
      {CUVIL_OP_CLIP, {7, 0, 6}, 6},
      {CUVIL_OP_CLIP, {-7, 0, 6}, 0},
      {CUVIL_OP_CLIP, {NAN, 0, 6}, NAN},
      {CUVIL_OP_CLIP, {3, 5, 1}, 1}, /* low above high: high */
      {CUVIL_OP_CLIP, {3, -INFINITY, INFINITY}, 3},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double got = cuvil_expr_apply(cases[i].op, cases[i].args);
    double expected = cases[i].expected;
    bool right = isnan(expected)
                     ? isnan(got)
                     : got == expected || fabs(got - expected) <= 1e-14;
    if (!right)
      fail_msg("%s(%g) is %.17g, not %.17g", cuvil_expr_op_name(cases[i].op),
               cases[i].args[0], got, expected);
  }
}

static void test_threads(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "gemm/1 m=130 n=150 k=300 a=f16[m,k] b=f16[n,k] "
                     "c=f16[m,n] epi{t=add(acc,bias[n]); out=gelu_erf(t)}");
  cuvil_bench_randomise(&b, 1);
  cuvil_bench_run(&b, 1);
  size_t bytes = 130 * 150 * sizeof(double);
  double *values = malloc(bytes), *bounds = malloc(bytes);
  memcpy(values, b.values[CUVIL_GEMM_C], bytes);
  memcpy(bounds, b.bounds[CUVIL_GEMM_C], bytes);
  cuvil_bench_run(&b, 7);
  assert_memory_equal(values, b.values[CUVIL_GEMM_C], bytes);
  assert_memory_equal(bounds, b.bounds[CUVIL_GEMM_C], bytes);
  b.data[1] = (free(b.data[1]), NULL);
  assert_int_equal(
      cuvil_problem_reference(&b.problem, (const void *const *)b.data, b.values,
                              b.bounds, 1),
      CU_ERR_INVALID_ARGUMENT);
  free(values);
  free(bounds);
  cuvil_bench_tear_down(&b);
}

static void test_random_inputs(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "conv/1 n=1 c=64 h=20 w=20 k=64 r=3 s=3 x=f32[n,h,w,c] "
                     "w=f32[k,r,s,c] y=f32[n,p,q,k] epi{t=add(acc,bias[k]); "
                     "out=max(t,flag:bool[k])}");
  cuvil_bench_randomise(&b, 1);
  static const double variance[] = {1, 1. / 576};
  for (int i = 0; i < 2; i++) {
    double sum = 0, square = 0;
    int64_t count = cuvil_operand_elements(&b.problem, i);
    for (int64_t j = 0; j < count; j++) {
      double x = (double)((float *)b.data[i])[j];
      sum += x;
      square += x * x;
    }
    assert_true(fabs(sum / (double)count) < 0.03 * sqrt(variance[i]));
    assert_true(fabs(square / (double)count / variance[i] - 1) < 0.03);
  }
  /* Another seed and another operand give other data, the same the same. */
  float first[64], again[64];
  int bias = cuvil_problem_find_operand(&b.problem, "bias");
  cuvil_problem_random(&b.problem, bias, 1, first);
  assert_memory_equal(first, b.data[bias], sizeof first);
  cuvil_problem_random(&b.problem, bias, 2, again);
  assert_memory_not_equal(first, again, sizeof first);
  assert_memory_not_equal(first, b.data[0], sizeof first);
  /* The sums that come of it are of size 1. */
  cuvil_bench_run(&b, 1);
  double square = 0;
  int64_t count = cuvil_operand_elements(&b.problem, CUVIL_CONV_Y);
  for (int64_t j = 0; j < count; j++)
    square += b.values[CUVIL_CONV_Y][j] * b.values[CUVIL_CONV_Y][j];
  assert_true(square / (double)count > 0.5 && square / (double)count < 4);
  cuvil_bench_tear_down(&b);
}

/* The GPU's reference compiles the same rules: they must stay CUDA C++. */
static void test_rules_on_gpu(void **state) {
  (void)state;
  const struct cuvil_embedded *rules = cuvil_embedded_find("problem/checked.h");
  assert_non_null(rules);
  struct cuvil_buf source = {0};
  cuvil_buf_add(&source, rules->data, rules->size);
  cuvil_buf_puts(
      &source,
      "extern \"C\" __global__ void k(cuvil_checked *p, int dtype) {\n"
      "  cuvil_checked x = p[0], y = p[1];\n"
      "  x = cuvil_checked_pow(cuvil_checked_gelu_erf(x), y);\n"
      "  x = cuvil_checked_silu(cuvil_checked_clip(x, y, y));\n"
      "  x = cuvil_checked_mean(x.value, y.value, 3, 4);\n"
      "  p[2] = cuvil_checked_stored(dtype, x);\n"
      "}\n");
  struct cuvil_compile_result result;
  if (cuvil_nvrtc_compile(cuvil_buf_text(&source), "sm_80", NULL, &result) !=
      CUVIL_OK)
    fail_msg("%s\n%s", cuvil_last_error(), result.log);
  cuvil_compile_result_free(&result);
  cuvil_buf_free(&source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemm_values),
      cmocka_unit_test(test_conv_values),
      cmocka_unit_test(test_conv_definition),
      cmocka_unit_test(test_pool_values),
      cmocka_unit_test(test_reduce_values),
      cmocka_unit_test(test_pointwise_values),
      cmocka_unit_test(test_operators),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_random_inputs),
      cmocka_unit_test(test_rules_on_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
