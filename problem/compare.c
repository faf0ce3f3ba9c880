/* compare.c - a kernel's output against the reference, and random inputs. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "problem/internal.h"

/* Error over bound; infinite where only equality would have been right. */
static double ratio_of(double got, double expected, double bound) {
  if (isinf(bound)) return 0;
  if (isnan(expected)) return isnan(got) ? 0 : (double)INFINITY;
  if (isnan(got)) return (double)INFINITY;
  if (got == expected) return 0;
  double error = fabs(got - expected);
  return bound > 0 ? error / bound : (double)INFINITY;
}

void cuvil_compare(enum cuvil_dtype dtype, const void *got,
                   const double *expected, const double *bounds,
                   int64_t elements, struct cuvil_comparison *out) {
  memset(out, 0, sizeof *out);
  out->worst_index = -1;
  double difference = 0, reference = 0;
  bool broken = false;
  for (int64_t i = 0; i < elements; i++) {
    if (isnan(bounds[i])) continue;
    double value = cuvil_load(dtype, got, (size_t)i);
    double ratio = ratio_of(value, expected[i], bounds[i]);
    out->elements++;
    out->violations += ratio > 1;
    if (out->worst_index < 0 || ratio > out->worst_ratio) {
      out->worst_index = i;
      out->worst_ratio = ratio;
      out->worst_got = value;
      out->worst_expected = expected[i];
    }
    if (isfinite(value) && isfinite(expected[i])) {
      difference += (value - expected[i]) * (value - expected[i]);
      reference += expected[i] * expected[i];
    } else if (ratio > 1) {
      broken = true; /* one NaN is no small difference */
    }
  }
  if (broken || (difference > 0 && reference == 0))
    out->relative_l2 = (double)INFINITY;
  else if (difference > 0)
    out->relative_l2 = sqrt(difference / reference);
}

/* ---- random inputs */

/* Terms of one output's sum, for operands whose data is scaled by it. */
static double fan_in(const struct cuvil_problem *problem, int index) {
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

void cuvil_problem_random(const struct cuvil_problem *problem, int index,
                          uint64_t seed, void *out) {
  enum { BATCH = 512 };
  enum cuvil_dtype dtype = problem->operands[index].dtype;
  int64_t elements = cuvil_operand_elements(problem, index);
  /* Seeds that are near each other, as callers use, must not give sequences
   * that are. */
  struct cuvil_rng rng = {seed ^ ((uint64_t)index + 1) * 0x9e3779b97f4a7c15u};
  rng.state = cuvil_rng_next(&rng);
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
}
