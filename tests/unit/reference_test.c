/* reference_test.c - right answers by hand, and bounds that let honest kernels
 * pass and dishonest ones not. */
#include "problem/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/embed.h"
#include "gpu/gpu.h"

/* A problem with memory for everything. */
struct bench {
  struct cuvil_problem problem;
  void *data[CUVIL_MAX_OPERANDS];
  double *values[CUVIL_MAX_OPERANDS], *bounds[CUVIL_MAX_OPERANDS];
};

static void set_up(struct bench *b, const char *text) {
  memset(b, 0, sizeof *b);
  if (cuvil_problem_parse(text, &b->problem) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  for (int i = 0; i < b->problem.operand_count; i++) {
    size_t elements = (size_t)cuvil_operand_elements(&b->problem, i);
    b->data[i] =
        calloc(elements + 1, cuvil_dtype_size(b->problem.operands[i].dtype));
    if (b->problem.operands[i].role != CUVIL_ROLE_OUTPUT) continue;
    b->values[i] = calloc(elements + 1, sizeof(double));
    b->bounds[i] = calloc(elements + 1, sizeof(double));
  }
}

static void tear_down(struct bench *b) {
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++) {
    free(b->data[i]);
    free(b->values[i]);
    free(b->bounds[i]);
  }
}

static void run(struct bench *b, int threads) {
  if (cuvil_problem_reference(&b->problem, (const void *const *)b->data,
                              b->values, b->bounds, threads) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
}

static void fill(struct bench *b, const char *operand, const double *values) {
  int i = cuvil_problem_find_operand(&b->problem, operand);
  size_t elements = (size_t)cuvil_operand_elements(&b->problem, i);
  for (size_t j = 0; j < elements; j++)
    cuvil_store(b->problem.operands[i].dtype, b->data[i], j, values[j]);
}

static void randomise(struct bench *b, uint64_t seed) {
  for (int i = 0; i < b->problem.operand_count; i++)
    cuvil_problem_random(&b->problem, i, seed, b->data[i]);
}

static void assert_values(const struct bench *b, int operand,
                          const double *expected, int count) {
  assert_int_equal(cuvil_operand_elements(&b->problem, operand), count);
  for (int i = 0; i < count; i++) {
    double got = b->values[operand][i];
    if (isnan(expected[i]) ? !isnan(got) : got != expected[i])
      fail_msg("element %d is %g, not %g", i, got, expected[i]);
  }
}

#define EXPECT(b, operand, ...)                          \
  do {                                                   \
    const double expected_[] = {__VA_ARGS__};            \
    assert_values((b), (operand), expected_,             \
                  sizeof expected_ / sizeof *expected_); \
  } while (0)
#define FILL(b, operand, ...) \
  fill((b), (operand), (const double[]){__VA_ARGS__})

/* ---- by hand */

static void test_gemm_values(void **state) {
  (void)state;
  struct bench b;
  set_up(&b,
         "gemm/1 m=2 n=3 k=2 a=f16[k,m] b=f16[n,k] c=f32[m,n]@(4,1) "
         "epi{t=add(acc,bias[n]); out=relu(t)}");
  FILL(&b, "a", 1, 3, 2, 4); /* rows (1,2) and (3,4) */
  FILL(&b, "b", 1, 0, 0, 1, -1, -1);
  FILL(&b, "bias", 0.5, -3, 4);
  run(&b, 1);
  EXPECT(&b, CUVIL_GEMM_C, 1.5, 0, 1, 0, 3.5, 1, 0);
  assert_true(isnan(b.bounds[CUVIL_GEMM_C][3])); /* between the rows */
  assert_true(b.bounds[CUVIL_GEMM_C][2] > 0);
  assert_true(b.bounds[CUVIL_GEMM_C][2] < 1e-5);
  tear_down(&b);
}

static void test_conv_values(void **state) {
  (void)state;
  struct bench b;
  /* 3x3 input 1..9, 2x2 window (1 2; 3 4), padding 1 at the top and left,
   * stride 2: corners (0,0) (0,2) (2,0) (2,2) of the padded 4x4. */
  set_up(&b,
         "conv/1 n=1 c=1 h=3 w=3 k=1 r=2 s=2 stride=2,2 pad=1,1,0,0 "
         "x=f32[n,h,w,c] w=f32[k,r,s,c] y=f32[n,p,q,k]");
  FILL(&b, "x", 1, 2, 3, 4, 5, 6, 7, 8, 9);
  FILL(&b, "w", 1, 2, 3, 4);
  run(&b, 1);
  EXPECT(&b, CUVIL_CONV_Y, 4. * 1, 3. * 2 + 4 * 3, 2. * 4 + 4 * 7,
         1. * 5 + 2 * 6 + 3 * 8 + 4 * 9);
  tear_down(&b);
  /* Two groups of two channels, dilation 2 in one direction, a bias and a
   * residual. x is 1x3 of 4 channels. */
  set_up(&b,
         "conv/1 n=1 c=4 h=1 w=3 k=2 r=1 s=2 dil=1,2 group=2 x=f16[n,h,w,c] "
         "w=f16[k,r,s,c] y=f16[n,p,q,k] epi{t=add(acc,bias:f32[k]); "
         "out=add(t,res[n,p,q,k])}");
  FILL(&b, "x", 1, 2, 3, 4, 100, 100, 100, 100, 5, 6, 7, 8);
  FILL(&b, "w", 1, 10, 2, 20, 1, -1, 0.5, 0);
  FILL(&b, "bias", 0.25, 1);
  FILL(&b, "res", 1000, -1);
  run(&b, 1);
  EXPECT(&b, CUVIL_CONV_Y, 1 + 20 + 10 + 120 + 1000.25, 3 - 4 + 3.5 + 1 - 1);
  tear_down(&b);
}

/* The definition in seven loops, for whatever layout the operands have. */
static double conv_point(const struct bench *b, const int64_t *at) {
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
    struct bench b;
    set_up(&b, texts[t]);
    randomise(&b, 11 + t);
    run(&b, 2);
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
    tear_down(&b);
  }
}

static void test_pool_values(void **state) {
  (void)state;
  struct bench b;
  /* One row of five, windows of two every two, two of padding before and
   * three behind: the first and the last window see only padding. */
  static const char row[] =
      "n=1 c=1 h=1 w=5 r=1 s=2 stride=1,2 pad=0,2,0,3 x=f32[n,c,h,w] "
      "y=f32[n,c,p,q]";
  char text[256];
  snprintf(text, sizeof text, "pool/1 op=avg %s", row);
  set_up(&b, text);
  FILL(&b, "x", 1, 2, 3, 4, 5);
  run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, 0, 1.5, 3.5, 5, 0);
  tear_down(&b);
  snprintf(text, sizeof text, "pool/1 op=avg_padded %s", row);
  set_up(&b, text);
  FILL(&b, "x", 1, 2, 3, 4, 5);
  run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, 0, 1.5, 3.5, 2.5, 0);
  tear_down(&b);
  snprintf(text, sizeof text, "pool/1 op=max %s", row);
  set_up(&b, text);
  FILL(&b, "x", 1, -2, NAN, 4, -5);
  run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, -INFINITY, 1, NAN, -5, -INFINITY);
  assert_true(b.bounds[CUVIL_POOL_Y][1] < 1e-6);
  tear_down(&b);
  set_up(&b,
         "pool/1 op=max n=1 c=2 h=3 w=3 r=2 s=2 stride=1,1 pad=0,0,1,1 "
         "dil=2,1 x=f16[n,h,w,c] y=f16[n,p,q,c] epi{out=neg(acc)}");
  FILL(&b, "x", 1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60, 7, 70, 8, 80, 9, 90);
  run(&b, 1);
  EXPECT(&b, CUVIL_POOL_Y, -8, -80, -9, -90, -9, -90, -5, -50, -6, -60, -6,
         -60);
  tear_down(&b);
}

static void test_reduce_values(void **state) {
  (void)state;
  struct bench b;
  set_up(&b,
         "reduce/1 op=mean n=2 h=2 c=2 x=f32[n,h,c] y=f32[c,n] "
         "epi{out=mul(acc,2)}");
  FILL(&b, "x", 1, 2, 3, 4, 5, 6, 8, 9);
  run(&b, 1);
  EXPECT(&b, CUVIL_REDUCE_Y, 4, 13, 6, 15);
  tear_down(&b);
  static const struct {
    const char *op;
    double expected;
  } ops[] = {{"sum", 5}, {"mean", 1}, {"max", 7}, {"min", -4}};
  for (int i = 0; i < 4; i++) {
    char text[128];
    snprintf(text, sizeof text, "reduce/1 op=%s n=5 x=f32[n] y=f32[]",
             ops[i].op);
    set_up(&b, text);
    FILL(&b, "x", 1, 7, -4, 1, 0);
    run(&b, 1);
    EXPECT(&b, CUVIL_REDUCE_Y, ops[i].expected);
    tear_down(&b);
  }
  set_up(&b, "reduce/1 op=sum n=0 c=2 x=f32[n,c] y=f32[c]");
  run(&b, 1);
  EXPECT(&b, CUVIL_REDUCE_Y, 0, 0);
  tear_down(&b);
}

static void test_pointwise_values(void **state) {
  (void)state;
  struct bench b;
  /* NCHW fp32 of three channels to NHWC fp16 of four, and a broadcast. */
  set_up(&b,
         "pointwise/1 n=1 c=4 h=1 w=2 y=f16[n,h,w,c] "
         "epi{out=x:f32[n,c<3,h,w]}");
  FILL(&b, "x", 1, 2, 3, 4, 5, 6);
  run(&b, 1);
  EXPECT(&b, 0, 1, 3, 5, 0, 2, 4, 6, 0);
  tear_down(&b);
  set_up(&b,
         "pointwise/1 n=2 c=2 y=f32[n,c] z=bool[n,c]:out epi{t=mul(x[n,c],"
         "s[c]); z=max(t,0); u=add(t,o:f16[]); out=add(u,r[n])}");
  FILL(&b, "x", 1, 2, 3, -4);
  FILL(&b, "s", 10, 100);
  FILL(&b, "o", 0.5);
  FILL(&b, "r", 1000, 2000);
  run(&b, 1);
  EXPECT(&b, 0, 1010.5, 1200.5, 2030.5, 1600.5);
  EXPECT(&b, 1, 1, 1, 1, 0);
  tear_down(&b);
  set_up(&b, "pointwise/1 n=0 y=f32[n] epi{out=x[n]}");
  run(&b, 1);
  tear_down(&b);
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

/* What fp32 code computes must lie within the bounds, for every operator and
 * chains of them. */
static float unit(float x) {
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

static float plain_f32(enum cuvil_expr_op op, const float *a) {
  switch (op) {
    case CUVIL_OP_ADD:
      return a[0] + a[1];
    case CUVIL_OP_SUB:
      return a[0] - a[1];
    case CUVIL_OP_MUL:
      return a[0] * a[1];
    case CUVIL_OP_DIV:
      return a[0] / a[1];
    case CUVIL_OP_POW:
      return powf(a[0], a[1]);
    case CUVIL_OP_SQRT:
      return sqrtf(a[0]);
    case CUVIL_OP_RSQRT:
      return 1 / sqrtf(a[0]);
    case CUVIL_OP_RECIPROCAL:
      return 1 / a[0];
    case CUVIL_OP_EXP:
      return exp2f(a[0] * 1.44269504f);
    case CUVIL_OP_LOG:
      return log2f(a[0]) * 0.693147181f;
    case CUVIL_OP_TANH:
      return 1 - 2 / (expf(2 * a[0]) + 1);
    case CUVIL_OP_SIGMOID:
      return 1 / (1 + exp2f(a[0] * -1.44269504f));
    case CUVIL_OP_ERF:
      return erff(a[0]);
    case CUVIL_OP_GELU_ERF:
      return 0.5f * a[0] * (1 + erff(a[0] * 0.707106781f));
    case CUVIL_OP_GELU_TANH:
      return 0.5f * a[0] *
             (1 +
              tanhf(0.797884561f * (a[0] + 0.044715f * a[0] * a[0] * a[0])));
    case CUVIL_OP_SILU:
      return a[0] / (1 + expf(-a[0]));
    case CUVIL_OP_HARDSWISH:
      return a[0] * unit(a[0] / 6 + 0.5f);
    case CUVIL_OP_HARDSIGMOID:
      return unit(a[1] * a[0] + a[2]);
    case CUVIL_OP_LEAKY_RELU:
      return a[0] < 0 ? a[1] * a[0] : a[0];
    default: {
      double args[3] = {(double)a[0], (double)a[1], (double)a[2]};
      return (float)cuvil_expr_apply(op, args);
    }
  }
}

static void test_operator_bounds(void **state) {
  (void)state;
  struct cuvil_rng rng = {3};
  int tight = 0, total = 0;
  for (int round = 0; round < 60000; round++) {
    struct cuvil_expr expr = {.count = 3};
    float values[3];
    float acc = (float)(cuvil_rng_normal(&rng) * exp2(cuvil_rng_normal(&rng)));
    for (int i = 0; i < 3; i++) {
      struct cuvil_statement *s = &expr.statements[i];
      s->op =
          (enum cuvil_expr_op)(i == 0 ? (uint64_t)round % CUVIL_OP_COUNT
                                      : cuvil_rng_below(&rng, CUVIL_OP_COUNT));
      float args[3] = {i ? values[i - 1] : acc, 0, 0};
      s->args[0].kind = i ? CUVIL_TERM_VALUE : CUVIL_TERM_ACC;
      s->args[0].index = i - 1;
      for (int a = 1; a < 3; a++) {
        s->args[a].kind = CUVIL_TERM_CONSTANT;
        s->args[a].value = (double)(float)cuvil_rng_normal(&rng);
        args[a] = (float)s->args[a].value;
      }
      values[i] = plain_f32(s->op, args);
    }
    struct cuvil_checked results[3];
    cuvil_expr_evaluate(&expr, (struct cuvil_checked){(double)acc, 0}, NULL,
                        results);
    for (int i = 0; i < 3; i++) {
      double value = results[i].value, error = results[i].error;
      assert_true(error >= 0);
      bool right = isinf(error)   ? true
                   : isnan(value) ? isnan(values[i])
                   : isinf(value) ? (double)values[i] == value
                                  : fabs((double)values[i] - value) <= error;
      if (!right)
        fail_msg("%s of %g: %.9g is not %.17g +- %g",
                 cuvil_expr_op_name(expr.statements[i].op),
                 (double)(i ? values[i - 1] : acc), (double)values[i], value,
                 error);
      if (!isfinite(value)) continue;
      total++;
      tight += error <= 1e-5 * (fabs(value) + 0.1);
    }
  }
  /* Bounds that are nearly always small: not right by being wide. */
  assert_in_range(tight * 1000 / total, 970, 1000);
}

/* ---- bounds of whole problems */

static struct cuvil_comparison compare(const struct bench *b, int operand,
                                       const void *got) {
  struct cuvil_comparison result;
  cuvil_compare(b->problem.operands[operand].dtype, got, b->values[operand],
                b->bounds[operand],
                cuvil_operand_elements(&b->problem, operand), &result);
  return result;
}

enum summation {
  IN_ORDER,
  PAIRWISE,
  BACKWARDS_FMA,
  TENSOR_CORE, /* groups of 8, truncated to 24 bits */
  TF32,
  HALF /* accumulates in fp16 */
};

static float truncated(double value) {
  float rounded = (float)value;
  if (fabs((double)rounded) > fabs(value)) rounded = nextafterf(rounded, 0);
  return rounded;
}

static float tf32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  bits = (bits + 0x1000) & ~0x1fffu;
  memcpy(&value, &bits, 4);
  return value;
}

static float dot(enum summation how, const float *a, const float *b, int k) {
  float sum = 0;
  switch (how) {
    case IN_ORDER:
      for (int i = 0; i < k; i++)
        sum += a[i] * b[i];
      return sum;
    case PAIRWISE:
      if (k == 1) return a[0] * b[0];
      return dot(how, a, b, k / 2) + dot(how, a + k / 2, b + k / 2, k - k / 2);
    case BACKWARDS_FMA:
      for (int i = k - 1; i >= 0; i--)
        sum = fmaf(a[i], b[i], sum);
      return sum;
    case TENSOR_CORE:
      for (int i = 0; i < k; i += 8) {
        double part = (double)sum;
        for (int j = i; j < i + 8 && j < k; j++)
          part += (double)a[j] * (double)b[j];
        sum = truncated(part);
      }
      return sum;
    case TF32:
      for (int i = 0; i < k; i++)
        sum = fmaf(tf32(a[i]), tf32(b[i]), sum);
      return sum;
    case HALF:
      for (int i = 0; i < k; i += 16) {
        float part = 0;
        for (int j = i; j < i + 16 && j < k; j++)
          part += a[j] * b[j];
        sum = cuvil_f16_to_f32(cuvil_f32_to_f16(sum + part));
      }
      return sum;
  }
  return sum;
}

/* A kernel for C = op(A B' + bias), however its sums are made. */
static void kernel(const struct bench *b, enum summation how,
                   enum cuvil_expr_op op, void *out) {
  const struct cuvil_problem *p = &b->problem;
  int m = (int)p->dims[CUVIL_DIM_M].extent;
  int n = (int)p->dims[CUVIL_DIM_N].extent;
  int k = (int)p->dims[CUVIL_DIM_K].extent;
  float *a32 = malloc((size_t)(m * k) * 4), *b32 = malloc((size_t)(n * k) * 4);
  cuvil_convert(CUVIL_F32, a32, p->operands[0].dtype, b->data[0],
                (size_t)(m * k));
  cuvil_convert(CUVIL_F32, b32, p->operands[1].dtype, b->data[1],
                (size_t)(n * k));
  int bias = cuvil_problem_find_operand(p, "bias");
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float acc = dot(how, a32 + i * k, b32 + j * k, k);
      if (bias >= 0)
        acc += (float)cuvil_load(p->operands[bias].dtype, b->data[bias],
                                 (size_t)j);
      const float args[3] = {acc, 0, 0};
      cuvil_store(p->operands[CUVIL_GEMM_C].dtype, out, (size_t)(i * n + j),
                  (double)plain_f32(op, args));
    }
  free(a32);
  free(b32);
}

static struct cuvil_comparison judged(const char *text, enum summation how,
                                      enum cuvil_expr_op op, bool positive) {
  struct bench b;
  set_up(&b, text);
  randomise(&b, 5);
  if (positive)
    for (int i = 0; i < 2; i++)
      for (int64_t j = 0; j < cuvil_operand_elements(&b.problem, i); j++)
        cuvil_store(b.problem.operands[i].dtype, b.data[i], (size_t)j,
                    fabs(cuvil_load(b.problem.operands[i].dtype, b.data[i],
                                    (size_t)j)));
  run(&b, 1);
  void *out =
      calloc((size_t)cuvil_operand_elements(&b.problem, CUVIL_GEMM_C), 8);
  kernel(&b, how, op, out);
  struct cuvil_comparison result = compare(&b, CUVIL_GEMM_C, out);
  free(out);
  tear_down(&b);
  return result;
}

#define GELU(type, out)                                                  \
  "gemm/1 m=48 n=64 k=768 a=" type "[m,k] b=" type "[n,k]:weight c=" out \
  "[m,n] epi{t=add(acc,bias[n]); out=gelu_erf(t)}"

static void test_gelu(void **state) {
  (void)state;
  static const char *const texts[] = {GELU("f16", "f16"), GELU("bf16", "bf16"),
                                      GELU("f16", "f32"), GELU("f32", "f32")};
  static const enum summation honest[] = {IN_ORDER, PAIRWISE, BACKWARDS_FMA,
                                          TENSOR_CORE};
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 4; j++) {
      struct cuvil_comparison right =
          judged(texts[i], honest[j], CUVIL_OP_GELU_ERF, false);
      assert_int_equal(right.elements, 48 * 64);
      assert_int_equal(right.violations, 0);
      assert_true(right.relative_l2 < 4e-3);
      struct cuvil_comparison wrong =
          judged(texts[i], honest[j], CUVIL_OP_GELU_TANH, false);
      if (wrong.violations < 100)
        fail_msg("%s: a tanh GELU breaks only %d bounds", texts[i],
                 (int)wrong.violations);
    }
  }
}

#define PLAIN(k, type, more) \
  "gemm/1 m=16 n=24 k=" #k " a=" type "[m,k] b=" type "[n,k] c=f32[m,n]" more

static void test_sums(void **state) {
  (void)state;
  static const char *const texts[] = {PLAIN(1, "f32", ""), PLAIN(17, "f16", ""),
                                      PLAIN(4608, "f16", ""),
                                      PLAIN(20000, "f32", "")};
  for (int i = 0; i < 4; i++)
    for (int positive = 0; positive < 2; positive++)
      for (int how = IN_ORDER; how <= TENSOR_CORE; how++) {
        struct cuvil_comparison right =
            judged(texts[i], (enum summation)how, CUVIL_OP_COPY, positive != 0);
        if (right.violations || right.worst_ratio > 1)
          fail_msg("%s: way %d (positive %d): %d violations, ratio %g",
                   texts[i], how, positive, (int)right.violations,
                   right.worst_ratio);
      }
  /* tf32 where fp32 was asked, fp16 sums where fp32 ones were. */
  struct cuvil_comparison wrong =
      judged(PLAIN(768, "f32", ""), TF32, CUVIL_OP_COPY, false);
  assert_in_range(wrong.violations, 100, 16 * 24);
  wrong = judged(PLAIN(768, "f16", ""), HALF, CUVIL_OP_COPY, false);
  assert_in_range(wrong.violations, 100, 16 * 24);
  /* ... and tf32 where it may be. */
  for (int positive = 0; positive < 2; positive++) {
    struct cuvil_comparison right = judged(PLAIN(768, "f32", " math=tf32"),
                                           TF32, CUVIL_OP_COPY, positive != 0);
    assert_int_equal(right.violations, 0);
  }
}

/* One product missed, one element not written, one NaN: all are found. */
static void test_compare(void **state) {
  (void)state;
  struct bench b;
  set_up(&b, "gemm/1 m=8 n=8 k=64 a=f16[m,k] b=f16[n,k] c=f16[m,n]");
  randomise(&b, 9);
  run(&b, 1);
  uint16_t out[64];
  kernel(&b, PAIRWISE, CUVIL_OP_COPY, out);
  struct cuvil_comparison c = compare(&b, CUVIL_GEMM_C, out);
  assert_int_equal(c.violations, 0);
  assert_int_equal(c.elements, 64);
  assert_true(c.worst_ratio > 0.1 && c.worst_ratio <= 1);
  assert_true(c.relative_l2 > 0 && c.relative_l2 < 1e-3);
  uint16_t kept = out[17];
  out[17] = 0x7e00; /* NaN */
  c = compare(&b, CUVIL_GEMM_C, out);
  assert_int_equal(c.violations, 1);
  assert_int_equal(c.worst_index, 17);
  assert_true(isinf(c.worst_ratio) && isinf(c.relative_l2));
  out[17] = 0x7c00; /* infinity */
  assert_int_equal(compare(&b, CUVIL_GEMM_C, out).violations, 1);
  out[17] = (uint16_t)(kept ^ 0x8000);
  c = compare(&b, CUVIL_GEMM_C, out);
  assert_int_equal(c.violations, 1);
  assert_true(c.worst_got == -cuvil_f16_to_f32(kept) + 0.);
  /* A sum without its last product. */
  uint16_t *a = b.data[0];
  uint16_t last = a[63];
  a[63] = 0;
  kernel(&b, PAIRWISE, CUVIL_OP_COPY, out);
  a[63] = last;
  assert_in_range(compare(&b, CUVIL_GEMM_C, out).violations, 5, 8);
  tear_down(&b);
}

static void test_overflow(void **state) {
  (void)state;
  struct bench b;
  /* 65519 rounds to 65504 in f16, 65520 to infinity; between products of
   * larger size the bound cannot tell and takes both. */
  set_up(&b, "pointwise/1 n=5 y=f16[n] epi{out=x:f32[n]}");
  FILL(&b, "x", 65519, 65520, -1e9, NAN, INFINITY);
  run(&b, 1);
  const uint16_t right[] = {0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c00};
  assert_int_equal(compare(&b, 0, right).violations, 0);
  const uint16_t clamped[] = {0x7bff, 0x7bff, 0xfbff, 0x7bff, 0x7bff};
  assert_int_equal(compare(&b, 0, clamped).violations, 4);
  tear_down(&b);
  set_up(&b, "pointwise/1 n=3 y=i8[n] epi{out=x:f32[n]}");
  FILL(&b, "x", 300, -2.4, -999);
  run(&b, 1);
  const int8_t saturated[] = {127, -2, -128}, wrapped[] = {44, -3, 25};
  assert_int_equal(compare(&b, 0, saturated).violations, 0);
  assert_int_equal(compare(&b, 0, wrapped).violations, 3);
  tear_down(&b);
}

static void test_threads(void **state) {
  (void)state;
  struct bench b;
  set_up(&b, GELU("f16", "f16"));
  randomise(&b, 1);
  run(&b, 1);
  size_t bytes = 48 * 64 * sizeof(double);
  double *values = malloc(bytes), *bounds = malloc(bytes);
  memcpy(values, b.values[CUVIL_GEMM_C], bytes);
  memcpy(bounds, b.bounds[CUVIL_GEMM_C], bytes);
  run(&b, 7);
  assert_memory_equal(values, b.values[CUVIL_GEMM_C], bytes);
  assert_memory_equal(bounds, b.bounds[CUVIL_GEMM_C], bytes);
  b.data[1] = (free(b.data[1]), NULL);
  assert_int_equal(
      cuvil_problem_reference(&b.problem, (const void *const *)b.data, b.values,
                              b.bounds, 1),
      CU_ERR_INVALID_ARGUMENT);
  free(values);
  free(bounds);
  tear_down(&b);
}

static void test_random_inputs(void **state) {
  (void)state;
  struct bench b;
  set_up(&b,
         "conv/1 n=1 c=64 h=20 w=20 k=64 r=3 s=3 x=f32[n,h,w,c] "
         "w=f32[k,r,s,c] y=f32[n,p,q,k] epi{t=add(acc,bias[k]); "
         "out=max(t,flag:bool[k])}");
  randomise(&b, 1);
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
  run(&b, 1);
  double square = 0;
  int64_t count = cuvil_operand_elements(&b.problem, CUVIL_CONV_Y);
  for (int64_t j = 0; j < count; j++)
    square += b.values[CUVIL_CONV_Y][j] * b.values[CUVIL_CONV_Y][j];
  assert_true(square / (double)count > 0.5 && square / (double)count < 4);
  tear_down(&b);
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
      cmocka_unit_test(test_operator_bounds),
      cmocka_unit_test(test_gelu),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_compare),
      cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_random_inputs),
      cmocka_unit_test(test_rules_on_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
