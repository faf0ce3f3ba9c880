/* compare.c - a kernel's output against the reference. */
#include <math.h>
#include <string.h>

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
