/* random.c - operands filled with data on which mistakes show.
 *
 * Sums of products have variance 1, scores of an attention too; indices are
 * valid, also negative; masks exclude a quarter, but never the first key; and
 * every fourth row of a norm is so small that its eps matters.
 */
#include <math.h>

#include "base/clock.h"
#include "problem/internal.h"

/* Terms of one output's sum, for operands whose data is scaled by it; of a
 * score, times the square of its scale. */
static double fan_in(const struct cuvil_problem *problem, int index) {
  if (problem->kind == CUVIL_KIND_ATTENTION && index == CUVIL_ATTENTION_K &&
      problem->scale != 0)
    return (double)problem->dims[CUVIL_ATTENTION_DIM_D].extent *
           problem->scale * problem->scale;
  if (problem->kind == CUVIL_KIND_GEMM && index == CUVIL_GEMM_B)
    return (double)problem->dims[CUVIL_DIM_K].extent;
  if (problem->kind == CUVIL_KIND_CONV && index == CUVIL_CONV_W)
    return (double)(problem->dims[CUVIL_CONV_DIM_C].extent / problem->group *
                    problem->dims[CUVIL_CONV_DIM_R].extent *
                    problem->dims[CUVIL_CONV_DIM_S].extent);
  return 1;
}

/* The sum of four uniform numbers of 16 bits each, one draw of the generator:
 * variance 4/12, within 3.5 standard deviations, and ten times cheaper than a
 * normal number. */
static float near_normal(struct cuvil_rng *rng, double scale) {
  uint64_t bits = cuvil_rng_next(rng);
  uint32_t sum = (uint32_t)(bits & 0xffff) + (uint32_t)(bits >> 16 & 0xffff) +
                 (uint32_t)(bits >> 32 & 0xffff) + (uint32_t)(bits >> 48);
  return (float)(((double)sum / 65536.0 - 2 + 2.0 / 65536) * scale);
}

static double random_integer(struct cuvil_rng *rng, enum cuvil_dtype dtype) {
  uint64_t bits = cuvil_rng_next(rng) >> 32;
  if (dtype == CUVIL_BOOL) return (double)(bits & 1);
  if (dtype == CUVIL_U8) return (double)(bits % 17);
  return (double)(bits % 17) - 8;
}

static void fill_indices(const struct cuvil_problem *problem,
                         struct cuvil_rng *rng, int64_t elements, void *out) {
  const struct cuvil_operand *o = &problem->operands[CUVIL_GATHER_INDEX];
  int64_t rows = problem->dims[CUVIL_GATHER_DIM_V].extent;
  for (int64_t i = 0; i < elements; i++) {
    int64_t index = (int64_t)cuvil_rng_below(rng, 2 * (uint64_t)rows) - rows;
    cuvil_store(o->dtype, out, (size_t)i, (double)index);
  }
}

/* The coordinate along dimension `dim` of the element at `i` of the storage;
 * -1: the operand has not that dimension. */
static int64_t coordinate(const struct cuvil_operand *o, int dim, int64_t i) {
  bool done[CUVIL_MAX_RANK] = {false};
  for (int step = 0; step < o->rank; step++) {
    int most = -1;
    for (int d = 0; d < o->rank; d++)
      if (!done[d] && (most < 0 || o->strides[d] > o->strides[most])) most = d;
    if (o->dims[most] == dim) return i / o->strides[most];
    i %= o->strides[most];
    done[most] = true;
  }
  return -1;
}

/* Excludes one key of four, but never the first. */
static void fill_mask(const struct cuvil_problem *problem,
                      struct cuvil_rng *rng, int64_t elements, void *out) {
  const struct cuvil_operand *o = &problem->operands[problem->mask];
  double excluded = problem->mask_keep ? 0 : -10000;
  double kept = problem->mask_keep ? 1 : 0;
  for (int64_t i = 0; i < elements; i++) {
    bool drop = cuvil_rng_below(rng, 4) == 0 &&
                coordinate(o, CUVIL_ATTENTION_DIM_SKV, i) != 0;
    cuvil_store(o->dtype, out, (size_t)i, drop ? excluded : kept);
  }
}

static bool read_in_prologue(const struct cuvil_problem *problem, int index) {
  const struct cuvil_expr *expr = &problem->prologue;
  for (int i = 0; i < expr->count; i++)
    for (int a = 0; a < cuvil_expr_op_args(expr->statements[i].op); a++) {
      const struct cuvil_term *term = &expr->statements[i].args[a];
      if (term->kind == CUVIL_TERM_OPERAND && term->index == index) return true;
    }
  return false;
}

/* Makes every fourth row of a norm so small that its eps counts. */
static void shrink_rows(const struct cuvil_problem *problem, int index,
                        int64_t elements, void *out) {
  const struct cuvil_operand *o = &problem->operands[index];
  if (index != CUVIL_NORM_X && !read_in_prologue(problem, index)) return;
  double factor = sqrt(problem->eps);
  if (o->dtype == CUVIL_F16 && factor < 1e-6) factor = 1e-6;
  for (int64_t i = 0; i < elements; i++)
    if (coordinate(o, CUVIL_NORM_DIM_M, i) % 4 == 3)
      cuvil_store(o->dtype, out, (size_t)i,
                  cuvil_load(o->dtype, out, (size_t)i) * factor);
}

void cuvil_problem_random(const struct cuvil_problem *problem, int index,
                          uint64_t seed, void *out) {
  enum { BATCH = 512 };
  enum cuvil_dtype dtype = problem->operands[index].dtype;
  int64_t elements = cuvil_operand_elements(problem, index);
  /* Seeds that are near each other, as callers use, must not give sequences
   * that are. */
  struct cuvil_rng rng = {seed ^ ((uint64_t)index + 1) * 0x9e3779b97f4a7c15u};
  rng.state = cuvil_rng_next(&rng);
  if (problem->kind == CUVIL_KIND_GATHER && index == CUVIL_GATHER_INDEX) {
    fill_indices(problem, &rng, elements, out);
    return;
  }
  if (index == problem->mask) {
    fill_mask(problem, &rng, elements, out);
    return;
  }
  if (!cuvil_dtype_is_float(dtype)) {
    for (int64_t i = 0; i < elements; i++)
      cuvil_store(dtype, out, (size_t)i, random_integer(&rng, dtype));
    return;
  }
  double scale = sqrt(3.0 / fan_in(problem, index));
  size_t size = cuvil_dtype_size(dtype);
  for (int64_t done = 0; done < elements; done += BATCH) {
    float batch[BATCH];
    int64_t count = elements - done < BATCH ? elements - done : BATCH;
    for (int64_t i = 0; i < count; i++)
      batch[i] = near_normal(&rng, scale);
    cuvil_convert(dtype, (char *)out + (size_t)done * size, CUVIL_F32, batch,
                  (size_t)count);
  }
  if (problem->kind == CUVIL_KIND_NORM && cuvil_norm_has_eps(problem->norm_op))
    shrink_rows(problem, index, elements, out);
}
