/* reference_rows_test.c - attention, norm, gather and batched gemm: right
 * answers by hand, and bounds that honest fp32 kernels pass and mistaken ones
 * do not. */
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

/* ---- by hand */

/* Inputs such as log 2 are fp32, so that answers are right to 1e-6. */
static void assert_near(const struct cuvil_bench *b, int operand,
                        const double *expected, int count) {
  for (int i = 0; i < count; i++) {
    double got = b->values[operand][i];
    bool same = got == expected[i] || (isnan(got) && isnan(expected[i]));
    if (!same && !(fabs(got - expected[i]) < 1e-6 * (1 + fabs(expected[i]))))
      fail_msg("element %d is %.9g, not %.9g", i, got, expected[i]);
  }
}
#define NEAR(b, operand, ...)                          \
  do {                                                 \
    const double expected_[] = {__VA_ARGS__};          \
    assert_near((b), (operand), expected_,             \
                sizeof expected_ / sizeof *expected_); \
  } while (0)

static void test_attention_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  /* Weights 1:2:1 from scores 0, ln 2, 0 over values 1, 2, 10. */
  cuvil_bench_set_up(
      &b,
      "attention/1 b=1 hq=1 hkv=1 sq=1 skv=3 d=2 dv=1 q=f32[b,sq,hq,d] "
      "k=f32[b,skv,hkv,d] v=f32[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=0.5");
  FILL(&b, "q", 2, 1);
  FILL(&b, "k", 1, -2, log(2), 0, -0.5, 1);
  FILL(&b, "v", 1, 2, 10);
  cuvil_bench_run(&b, 1);
  NEAR(&b, CUVIL_ATTENTION_O, (1 + 2 * 2 + 10) / 4.);
  assert_true(b.bounds[CUVIL_ATTENTION_O][0] < 1e-4);
  cuvil_bench_tear_down(&b);
  /* Causal with more keys than queries: query i sees i + 2 keys.  Two heads
   * share one key head; values laid out [hq,b,dv,sq]. */
  cuvil_bench_set_up(
      &b,
      "attention/1 b=1 hq=2 hkv=1 sq=2 skv=3 d=1 dv=1 q=f32[b,sq,hq,d] "
      "k=f32[hkv,skv,b,d] v=f32[b,skv,hkv,dv]@(30,10,10,1) "
      "o=f32[hq,b,dv,sq] scale=1 causal=1");
  FILL(&b, "q", 0, 1, 0, 1);
  FILL(&b, "k", 0, log(3), log(4));
  memset(b.data[CUVIL_ATTENTION_V], 0, 21 * sizeof(float));
  ((float *)b.data[CUVIL_ATTENTION_V])[0] = 1;
  ((float *)b.data[CUVIL_ATTENTION_V])[10] = 5;
  ((float *)b.data[CUVIL_ATTENTION_V])[20] = 9;
  cuvil_bench_run(&b, 2);
  NEAR(&b, CUVIL_ATTENTION_O, 3, 5, 4, (1 + 15 + 36) / 8.);
  cuvil_bench_tear_down(&b);
}

static void test_attention_masks(void **state) {
  (void)state;
  struct cuvil_bench b;
#define MASKED(mask)                                                 \
  "attention/1 b=1 hq=1 hkv=1 sq=3 skv=2 d=1 dv=1 q=f32[b,sq,hq,d] " \
  "k=f32[b,skv,hkv,d] v=f32[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=1 " mask
  cuvil_bench_set_up(&b, MASKED("mask=bool[sq,skv]:keep"));
  FILL(&b, "q", 0, 0, 0);
  FILL(&b, "k", 1, 1);
  FILL(&b, "v", 4, 8);
  FILL(&b, "mask", 1, 1, 0, 1, 0, 0);
  cuvil_bench_run(&b, 1);
  NEAR(&b, CUVIL_ATTENTION_O, 6, 8, 0); /* nothing left: 0 */
  assert_true(b.bounds[CUVIL_ATTENTION_O][2] < 1e-30);
  cuvil_bench_tear_down(&b);
  /* Queries before the first key see none. */
  cuvil_bench_set_up(&b, MASKED("causal=1 mask=f32[skv,b]:add"));
  FILL(&b, "q", 0, 0, 0);
  FILL(&b, "k", 1, 1);
  FILL(&b, "v", 4, 8);
  FILL(&b, "mask", log(3), 0);
  cuvil_bench_run(&b, 1);
  NEAR(&b, CUVIL_ATTENTION_O, 0, 4, 5);
  FILL(&b, "mask", -INFINITY, 0);
  cuvil_bench_run(&b, 1);
  NEAR(&b, CUVIL_ATTENTION_O, 0, NAN, 8);
  assert_true(isinf(b.bounds[CUVIL_ATTENTION_O][1]));
  assert_true(b.bounds[CUVIL_ATTENTION_O][2] < 1e-4);
  cuvil_bench_tear_down(&b);
}

static void test_norm_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(
      &b,
      "norm/1 op=layer m=2 n=4 x=f32[m,n] y=f32[m,n] sum=f16[n,m]:out "
      "eps=0.75 pro{sum=add(x,res[m])} epi{t=mul(acc,gamma[n]); out=add(t,1)}");
  FILL(&b, "x", 0, 1, 2, 3, 5, 5, 5, 5);
  FILL(&b, "res", 10, -1);
  FILL(&b, "gamma", 1, 2, 3, 4);
  cuvil_bench_run(&b, 1);
  /* Deviations -1.5 -0.5 0.5 1.5, variance 1.25 and eps 0.75. */
  double r = 1 / sqrt(2);
  NEAR(&b, CUVIL_NORM_Y, 1 - 1.5 * r, 1 - r, 1 + 1.5 * r, 1 + 6 * r, 1, 1, 1,
       1);
  EXPECT(&b, 2, 10, 4, 11, 4, 12, 4, 13, 4);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(&b, "norm/1 op=rms m=1 n=2 x=f32[m,n] y=f32[m,n] eps=3.5");
  FILL(&b, "x", 3, -4);
  cuvil_bench_run(&b, 1);
  NEAR(&b, CUVIL_NORM_Y, 0.75, -1);
  cuvil_bench_tear_down(&b);
  for (int log_of = 0; log_of < 2; log_of++) {
    cuvil_bench_set_up(
        &b, log_of ? "norm/1 op=log_softmax m=2 n=3 x=f32[n,m] y=f32[m,n]"
                   : "norm/1 op=softmax m=2 n=3 x=f32[n,m] y=f32[m,n]");
    FILL(&b, "x", 0, 50, log(2), 50, log(5), -INFINITY);
    cuvil_bench_run(&b, 1);
    if (log_of)
      NEAR(&b, CUVIL_NORM_Y, log(.125), log(.25), log(.625), log(.5), log(.5),
           -INFINITY);
    else
      NEAR(&b, CUVIL_NORM_Y, .125, .25, .625, .5, .5, 0);
    cuvil_bench_tear_down(&b);
  }
}

static void test_gather_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "gather/1 v=3 m=5 n=2 table=f16[v,n] index=i64[m]@(2) "
                     "y=f16[m,n] epi{out=add(acc,pos[m])}");
  FILL(&b, "table", 1, 2, 3, 4, 5, 6);
  FILL(&b, "index", 1, -9, -1, -9, 7, -9, -3, -9, -100);
  FILL(&b, "pos", 0, 10, 20, 30, 40);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_GATHER_Y, 3, 4, 15, 16, 25, 26, 31, 32, 41, 42);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(&b,
                     "gather/1 v=2 m=1 n=2 table=f32[n,v] index=i32[m] "
                     "y=f32[m,n]");
  FILL(&b, "table", 0.1f, 0.2f, 0.3f, 0.4f);
  FILL(&b, "index", -1);
  cuvil_bench_run(&b, 1);
  EXPECT(&b, CUVIL_GATHER_Y, (double)0.2f, (double)0.4f);
  cuvil_bench_tear_down(&b);
}

static void test_batch_values(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "gemm/1 batch=2 m=1 n=2 k=2 a=f32[m,batch,k] b=f32[n,k] "
                     "c=f32[batch,m,n]@(5,2,1) epi{out=add(acc,r[batch])}");
  FILL(&b, "a", 1, 2, 3, 4);
  FILL(&b, "b", 1, 1, 1, -1);
  FILL(&b, "r", 100, 200);
  cuvil_bench_run(&b, 2);
  EXPECT(&b, CUVIL_GEMM_C, 103, 99, 0, 0, 0, 207, 199);
  assert_true(isnan(b.bounds[CUVIL_GEMM_C][2]));
  cuvil_bench_tear_down(&b);
}

/* ---- kernels in fp32 on the CPU */

static double load(const struct cuvil_bench *b, int operand,
                   const int64_t *at) {
  const struct cuvil_operand *o = &b->problem.operands[operand];
  int64_t index = 0;
  for (int i = 0; i < o->rank; i++)
    index += at[o->dims[i]] * o->strides[i];
  return cuvil_load(o->dtype, b->data[operand], (size_t)index);
}

static void store(struct cuvil_bench *b, int operand, const int64_t *at,
                  double value) {
  const struct cuvil_operand *o = &b->problem.operands[operand];
  int64_t index = 0;
  for (int i = 0; i < o->rank; i++)
    index += at[o->dims[i]] * o->strides[i];
  cuvil_store(o->dtype, b->data[operand], (size_t)index, value);
}

static float rounded(enum cuvil_dtype dtype, float value) {
  float one;
  cuvil_store(dtype, &one, 0, (double)value);
  return (float)cuvil_load(dtype, &one, 0);
}

static int64_t wrong(const struct cuvil_bench *b, int output) {
  struct cuvil_comparison c;
  cuvil_compare(b->problem.operands[output].dtype, b->data[output],
                b->values[output], b->bounds[output],
                cuvil_operand_elements(&b->problem, output), &c);
  return c.violations;
}

/* How a kernel goes about attention, and what it gets wrong. */
struct way {
  int block;         /* keys of an online step */
  bool first;        /* normalises the weights before they meet v */
  float scale;       /* times the right one */
  int later;         /* keys that it sees too many */
  int64_t forgotten; /* key whose mask it does not read; -1: none */
};

static bool visible(const struct cuvil_bench *b, const struct way *way,
                    const int64_t *at) {
  const struct cuvil_problem *p = &b->problem;
  int64_t key = at[CUVIL_ATTENTION_DIM_SKV];
  if (p->causal && key > at[CUVIL_ATTENTION_DIM_SQ] +
                             p->dims[CUVIL_ATTENTION_DIM_SKV].extent -
                             p->dims[CUVIL_ATTENTION_DIM_SQ].extent +
                             way->later)
    return false;
  return !p->mask_keep || key == way->forgotten || load(b, p->mask, at) != 0;
}

static float score(const struct cuvil_bench *b, const struct way *way,
                   int64_t *at) {
  const struct cuvil_problem *p = &b->problem;
  float sum = 0;
  if (!visible(b, way, at)) return -INFINITY;
  for (int64_t d = 0; d < p->dims[CUVIL_ATTENTION_DIM_D].extent; d++) {
    at[CUVIL_ATTENTION_DIM_D] = d;
    sum += (float)load(b, CUVIL_ATTENTION_Q, at) *
           (float)load(b, CUVIL_ATTENTION_K, at);
  }
  sum *= (float)p->scale * way->scale;
  if (p->mask >= 0 && !p->mask_keep &&
      at[CUVIL_ATTENTION_DIM_SKV] != way->forgotten)
    sum += (float)load(b, p->mask, at);
  return sum;
}

enum { KEYS = 512, DEPTH = 64 };

/* One query, in steps of way->block keys (or in one, way->first). */
static void attend(struct cuvil_bench *b, const struct way *way, int64_t *at) {
  const struct cuvil_problem *p = &b->problem;
  enum cuvil_dtype type = p->operands[CUVIL_ATTENTION_V].dtype;
  int64_t keys = p->dims[CUVIL_ATTENTION_DIM_SKV].extent;
  int64_t depth = p->dims[CUVIL_ATTENTION_DIM_DV].extent;
  float o[DEPTH] = {0}, s[KEYS], largest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; j++) {
    at[CUVIL_ATTENTION_DIM_SKV] = j;
    s[j] = score(b, way, at);
  }
  int64_t step = way->first ? keys : way->block;
  for (int64_t from = 0; from < keys; from += step) {
    int64_t to = from + step < keys ? from + step : keys;
    float before = largest, now = 0;
    for (int64_t j = from; j < to; j++)
      largest = fmaxf(largest, s[j]);
    if (isinf(largest)) continue;
    float again = exp2f((before - largest) * 1.44269504f);
    for (int64_t j = from; j < to; j++)
      now += s[j] = exp2f(s[j] * 1.44269504f - largest * 1.44269504f);
    sum = sum * again + now;
    for (int64_t d = 0; d < depth; d++) {
      at[CUVIL_ATTENTION_DIM_DV] = d;
      o[d] *= again;
      for (int64_t j = from; j < to; j++) {
        at[CUVIL_ATTENTION_DIM_SKV] = j;
        float weight = rounded(type, way->first ? s[j] / sum : s[j]);
        o[d] += weight * (float)load(b, CUVIL_ATTENTION_V, at);
      }
    }
  }
  for (int64_t d = 0; d < depth; d++) {
    at[CUVIL_ATTENTION_DIM_DV] = d;
    store(b, CUVIL_ATTENTION_O, at,
          sum > 0 ? (double)(way->first ? o[d] : o[d] / sum) : 0);
  }
}

static int64_t attention_wrong(struct cuvil_bench *b, const struct way *way) {
  const struct cuvil_dim *dims = b->problem.dims;
  int64_t shared = dims[CUVIL_ATTENTION_DIM_HQ].extent /
                   dims[CUVIL_ATTENTION_DIM_HKV].extent;
  int64_t at[CUVIL_MAX_DIMS] = {0};
  for (at[CUVIL_ATTENTION_DIM_B] = 0;
       at[CUVIL_ATTENTION_DIM_B] < dims[CUVIL_ATTENTION_DIM_B].extent;
       at[CUVIL_ATTENTION_DIM_B]++)
    for (int64_t h = 0; h < dims[CUVIL_ATTENTION_DIM_HQ].extent; h++)
      for (int64_t i = 0; i < dims[CUVIL_ATTENTION_DIM_SQ].extent; i++) {
        at[CUVIL_ATTENTION_DIM_HQ] = h;
        at[CUVIL_ATTENTION_DIM_HKV] = h / shared;
        at[CUVIL_ATTENTION_DIM_SQ] = i;
        attend(b, way, at);
      }
  return wrong(b, CUVIL_ATTENTION_O);
}

static void test_attention_bounds(void **state) {
  (void)state;
  static const char *const texts[] = {
      "attention/1 b=1 hq=2 hkv=1 sq=32 skv=128 d=64 dv=64 q=f16[b,sq,hq,d] "
      "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=0.125 "
      "mask=f16[b,skv]:add",
      "attention/1 b=1 hq=2 hkv=2 sq=40 skv=200 d=32 dv=48 q=bf16[b,hq,sq,d] "
      "k=bf16[b,hkv,skv,d] v=bf16[b,hkv,skv,dv] o=bf16[b,sq,hq,dv] "
      "scale=0.17677669 mask=bool[b,sq,skv]:keep",
      "attention/1 b=1 hq=1 hkv=1 sq=64 skv=64 d=64 dv=64 q=f16[b,sq,hq,d] "
      "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=0.125 "
      "causal=1",
      "attention/1 b=1 hq=1 hkv=1 sq=24 skv=60 d=16 dv=16 q=f32[b,sq,hq,d] "
      "k=f32[b,skv,hkv,d] v=f32[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=0.25 "
      "causal=1 mask=f32[sq,skv]:add",
      "attention/1 b=1 hq=1 hkv=1 sq=8 skv=512 d=64 dv=64 q=bf16[b,sq,hq,d] "
      "k=bf16[b,skv,hkv,d] v=bf16[b,skv,hkv,dv] o=bf16[b,sq,hq,dv] "
      "scale=0.125",
  };
  static const struct way honest[] = {
      {1, false, 1, 0, -1},
      {16, false, 1, 0, -1},
      {64, false, 1, 0, -1},
      {0, true, 1, 0, -1},
  };
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
    struct cuvil_bench b;
    cuvil_bench_set_up(&b, texts[t]);
    cuvil_bench_randomise(&b, t + 1);
    cuvil_bench_run(&b, 2);
    for (size_t w = 0; w < sizeof honest / sizeof *honest; w++)
      if (attention_wrong(&b, &honest[w]))
        fail_msg("way %d: %s", (int)w, texts[t]);
    const struct way scaled = {16, false, 1.01f, 0, -1};
    if (!attention_wrong(&b, &scaled)) fail_msg("scale: %s", texts[t]);
    for (int later = -1; later <= 1 && b.problem.causal; later += 2) {
      const struct way shifted = {16, false, 1, later, -1};
      if (!attention_wrong(&b, &shifted)) fail_msg("causal: %s", texts[t]);
    }
    int missed = 0;
    for (int64_t key = 1; key <= 8 && b.problem.mask >= 0; key++) {
      const struct way forgetful = {16, false, 1, 0, key};
      int64_t at[CUVIL_MAX_DIMS] = {0};
      bool masked = false;
      at[CUVIL_ATTENTION_DIM_SKV] = key;
      for (int64_t i = 0; i < b.problem.dims[CUVIL_ATTENTION_DIM_SQ].extent;
           i++) {
        at[CUVIL_ATTENTION_DIM_SQ] = i;
        masked = masked || load(&b, b.problem.mask, at) ==
                               (b.problem.mask_keep ? 0 : -10000);
      }
      if (masked != (attention_wrong(&b, &forgetful) > 0)) missed++;
    }
    if (missed) fail_msg("%d forgotten masks passed: %s", missed, texts[t]);
    cuvil_bench_tear_down(&b);
  }
}

/* ---- norms */

enum statistics { TWO_PASS, WELFORD, ONE_PASS };
struct norm_way {
  enum statistics statistics;
  bool fused;  /* x a - mean a */
  bool no_eps; /* mistakes */
  int less;    /* divides the variance by n - less */
  bool no_gamma;
};

static float variance(const float *v, int n, const struct norm_way *way,
                      float *mean) {
  float sum = 0, squares = 0, m = 0;
  for (int i = 0; i < n; i++) {
    sum += v[i];
    squares += way->statistics == ONE_PASS ? v[i] * v[i] : 0;
    float d = v[i] - m;
    m += d / (float)(i + 1);
    if (way->statistics == WELFORD) squares += d * (v[i] - m);
  }
  *mean = way->statistics == WELFORD ? m : sum / (float)n;
  if (way->statistics == ONE_PASS) return squares / (float)n - *mean * *mean;
  for (int i = 0; i < n && way->statistics == TWO_PASS; i++)
    squares += (v[i] - *mean) * (v[i] - *mean);
  return squares / (float)(n - way->less);
}

static int64_t norm_wrong(struct cuvil_bench *b, const struct norm_way *way) {
  const struct cuvil_problem *p = &b->problem;
  int gamma = cuvil_problem_find_operand(p, "gamma");
  int n = (int)p->dims[CUVIL_NORM_DIM_N].extent;
  float *v = malloc((size_t)n * sizeof *v);
  for (int64_t m = 0; m < p->dims[CUVIL_NORM_DIM_M].extent; m++) {
    int64_t at[CUVIL_MAX_DIMS] = {m};
    float mean;
    for (int j = 0; j < n; j++) {
      at[CUVIL_NORM_DIM_N] = j;
      v[j] = (float)load(b, CUVIL_NORM_X, at);
    }
    float square = variance(v, n, way, &mean);
    if (p->norm_op == CUVIL_NORM_RMS) {
      square += mean * mean;
      mean = 0;
    }
    float scale = 1 / sqrtf(square + (way->no_eps ? 0 : (float)p->eps));
    for (int j = 0; j < n; j++) {
      at[CUVIL_NORM_DIM_N] = j;
      float y =
          way->fused ? v[j] * scale - mean * scale : (v[j] - mean) * scale;
      if (!way->no_gamma) y *= (float)load(b, gamma, at);
      store(b, CUVIL_NORM_Y, at, (double)y);
    }
  }
  free(v);
  return wrong(b, CUVIL_NORM_Y);
}

static void test_norm_bounds(void **state) {
  (void)state;
  static const char *const texts[] = {
      "norm/1 op=layer m=16 n=768 x=f16[m,n] y=f16[m,n] eps=1e-12 "
      "epi{out=mul(acc,gamma[n])}",
      "norm/1 op=layer m=8 n=64 x=f32[m,n] y=f32[m,n] eps=1e-05 "
      "epi{out=mul(acc,gamma[n])}",
      "norm/1 op=layer m=16 n=200 x=bf16[m,n] y=bf16[m,n] eps=1e-05 "
      "epi{out=mul(acc,gamma:f32[n])}",
      "norm/1 op=rms m=16 n=4096 x=f16[m,n] y=f16[m,n] eps=1e-06 "
      "epi{out=mul(acc,gamma[n])}",
  };
  static const struct norm_way honest[] = {
      {.statistics = TWO_PASS},
      {.statistics = TWO_PASS, .fused = true},
      {.statistics = WELFORD},
  };
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
    struct cuvil_bench b;
    cuvil_bench_set_up(&b, texts[t]);
    cuvil_bench_randomise(&b, t + 1);
    for (int shift = 0; shift <= 100; shift += 50) {
      /* A mean of many deviations. */
      int64_t count = cuvil_operand_elements(&b.problem, CUVIL_NORM_X);
      enum cuvil_dtype type = b.problem.operands[CUVIL_NORM_X].dtype;
      for (int64_t i = 0; i < count && shift; i++)
        cuvil_store(type, b.data[CUVIL_NORM_X], (size_t)i,
                    cuvil_load(type, b.data[CUVIL_NORM_X], (size_t)i) + 50);
      cuvil_bench_run(&b, 2);
      for (size_t w = 0; w < sizeof honest / sizeof *honest; w++)
        if (norm_wrong(&b, &honest[w]))
          fail_msg("way %d, shift %d: %s", (int)w, shift, texts[t]);
      bool layer = b.problem.norm_op == CUVIL_NORM_LAYER;
      const struct norm_way one_pass = {.statistics = ONE_PASS};
      if (type == CUVIL_F32 && layer && shift == 100)
        assert_true(norm_wrong(&b, &one_pass) > 0);
      const struct norm_way no_gamma = {.no_gamma = true};
      assert_true(norm_wrong(&b, &no_gamma) > 0);
      const struct norm_way no_eps = {.no_eps = true};
      if (!shift && !norm_wrong(&b, &no_eps)) fail_msg("eps: %s", texts[t]);
      const struct norm_way unbiased = {.less = 1};
      if (layer && (type == CUVIL_F32 || !shift) && type != CUVIL_BF16 &&
          !norm_wrong(&b, &unbiased))
        fail_msg("n - 1: %s", texts[t]);
    }
    cuvil_bench_tear_down(&b);
  }
}

/* exp and its sum in fp32, fully and with weights that are off by 2^-16. */
static void test_softmax_bounds(void **state) {
  (void)state;
  struct cuvil_bench b;
  for (int log_of = 0; log_of < 2; log_of++) {
    cuvil_bench_set_up(
        &b, log_of ? "norm/1 op=log_softmax m=4 n=3000 x=f16[m,n] y=f32[m,n]"
                   : "norm/1 op=softmax m=4 n=3000 x=f16[m,n] y=f32[m,n]");
    cuvil_bench_randomise(&b, 5);
    cuvil_bench_run(&b, 2);
    for (int spoilt = 0; spoilt < 2; spoilt++) {
      for (int64_t m = 0; m < 4; m++) {
        int64_t at[CUVIL_MAX_DIMS] = {m};
        int64_t *n = &at[CUVIL_NORM_DIM_N];
        float largest = -INFINITY, sum = 0;
        for (*n = 0; *n < 3000; ++*n)
          largest = fmaxf(largest, (float)load(&b, CUVIL_NORM_X, at));
        for (*n = spoilt; *n < 3000; ++*n) /* one forgotten */
          sum += expf((float)load(&b, CUVIL_NORM_X, at) - largest);
        for (*n = 0; *n < 3000; ++*n) {
          float x = (float)load(&b, CUVIL_NORM_X, at) - largest;
          store(&b, CUVIL_NORM_Y, at,
                (double)(log_of ? x - logf(sum) : expf(x) / sum));
        }
      }
      assert_int_equal(wrong(&b, CUVIL_NORM_Y) > 0, spoilt);
    }
    cuvil_bench_tear_down(&b);
  }
}

/* ---- the random data */

static void test_random_data(void **state) {
  (void)state;
  struct cuvil_bench b;
  cuvil_bench_set_up(&b,
                     "gather/1 v=10 m=2000 n=1 table=f16[v,n] index=i64[m] "
                     "y=f16[m,n]");
  cuvil_bench_randomise(&b, 1);
  int seen[20] = {0};
  for (int i = 0; i < 2000; i++) {
    int64_t index = ((const int64_t *)b.data[CUVIL_GATHER_INDEX])[i];
    assert_in_range(index + 10, 0, 19);
    seen[index + 10]++;
  }
  for (int i = 0; i < 20; i++)
    assert_in_range(seen[i], 50, 150);
  cuvil_bench_tear_down(&b);
  cuvil_bench_set_up(
      &b,
      "attention/1 b=2 hq=1 hkv=1 sq=50 skv=40 d=1 dv=1 q=f16[b,sq,hq,d] "
      "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=3 "
      "mask=f16[skv,b]@(3,1):add");
  cuvil_bench_randomise(&b, 1);
  int excluded = 0;
  for (int64_t key = 0; key < 40; key++)
    for (int64_t batch = 0; batch < 2; batch++) {
      int64_t at[CUVIL_MAX_DIMS] = {0};
      at[CUVIL_ATTENTION_DIM_B] = batch;
      at[CUVIL_ATTENTION_DIM_SKV] = key;
      double mask = load(&b, b.problem.mask, at);
      assert_true(mask == 0 || (mask == -10000 && key > 0));
      excluded += mask != 0;
    }
  assert_in_range(excluded, 8, 32);
  double squares = 0; /* of k: 1 / 9 */
  for (int i = 0; i < 80; i++) {
    double k = cuvil_load(CUVIL_F16, b.data[CUVIL_ATTENTION_K], (size_t)i);
    squares += k * k / 80;
  }
  assert_true(squares > 0.08 && squares < 0.15);
  cuvil_bench_tear_down(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_values),
      cmocka_unit_test(test_attention_masks),
      cmocka_unit_test(test_norm_values),
      cmocka_unit_test(test_gather_values),
      cmocka_unit_test(test_batch_values),
      cmocka_unit_test(test_attention_bounds),
      cmocka_unit_test(test_norm_bounds),
      cmocka_unit_test(test_softmax_bounds),
      cmocka_unit_test(test_random_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
