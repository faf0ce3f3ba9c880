/* bounds_test.c - bounds that let honest kernels pass, in whatever order they
 * sum and with whatever approximation they may use, and dishonest ones not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/problem_bench.h"

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

static struct cuvil_comparison compare(const struct cuvil_bench *b, int operand,
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
static void kernel(const struct cuvil_bench *b, enum summation how,
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
  struct cuvil_bench b;
  cuvil_bench_set_up(&b, text);
  cuvil_bench_randomise(&b, 5);
  if (positive)
    for (int i = 0; i < 2; i++)
      for (int64_t j = 0; j < cuvil_operand_elements(&b.problem, i); j++)
        cuvil_store(b.problem.operands[i].dtype, b.data[i], (size_t)j,
                    fabs(cuvil_load(b.problem.operands[i].dtype, b.data[i],
                                    (size_t)j)));
  cuvil_bench_run(&b, 1);
  void *out =
      calloc((size_t)cuvil_operand_elements(&b.problem, CUVIL_GEMM_C), 8);
  kernel(&b, how, op, out);
  struct cuvil_comparison result = compare(&b, CUVIL_GEMM_C, out);
  free(out);
  cuvil_bench_tear_down(&b);
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
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "gemm/1 m=8 n=8 k=64 a=f16[m,k] b=f16[n,k] c=f16[m,n]");
  cuvil_bench_randomise(&b, 9);
  cuvil_bench_run(&b, 1);
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
  cuvil_bench_tear_down(&b);
}

static void test_overflow(void **state) {
  (void)state;
  struct cuvil_bench b;
  /* 65519 rounds to 65504 in f16, 65520 to infinity; between products of
   * larger size the bound cannot tell and takes both. */
  cuvil_bench_set_up(&b, "pointwise/1 n=5 y=f16[n] epi{out=x:f32[n]}");
  FILL(&b, "x", 65519, 65520, -1e9, NAN, INFINITY);
  cuvil_bench_run(&b, 1);
  const uint16_t right[] = {0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c00};
  assert_int_equal(compare(&b, 0, right).violations, 0);
  const uint16_t clamped[] = {0x7bff, 0x7bff, 0xfbff, 0x7bff, 0x7bff};
  assert_int_equal(compare(&b, 0, clamped).violations, 4);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(&b, "pointwise/1 n=3 y=i8[n] epi{out=x:f32[n]}");
  FILL(&b, "x", 300, -2.4, -999);
  cuvil_bench_run(&b, 1);
  const int8_t saturated[] = {127, -2, -128}, wrapped[] = {44, -3, 25};
  assert_int_equal(compare(&b, 0, saturated).violations, 0);
  assert_int_equal(compare(&b, 0, wrapped).violations, 3);
  cuvil_bench_tear_down(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operator_bounds),
      cmocka_unit_test(test_gelu),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_compare),
      cmocka_unit_test(test_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
