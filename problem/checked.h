/* checked.h - the arithmetic of right answers: each operator over pairs of a
 * value and the error that a correct fp32 kernel may have made so far.
 *
 * One text for the two references: problem/ compiles it as C, and the fp64
 * reference program on the GPU has NVRTC compile the same file, so that the
 * bounds are the same rules.  It therefore includes nothing and keeps to what
 * C and CUDA C++ share.
 *
 * Running error analysis (Higham, Accuracy and Stability of Numerical
 * Algorithms, ch. 3).  What a kernel is allowed, beside carrying its inputs'
 * errors through:
 *   - a rounding of 2^-23 for each elementary fp32 operation (twice the unit
 *     roundoff: also truncation), and 2^-126 for flushed subnormals;
 *   - 2^-20 for a transcendental function, a division or a root, so that
 *     exp and friends may be built on the hardware's approximations; an
 *     exponential's argument may be rounded (|x| 2^-22), and functions that
 *     are computed as a difference near 1 (tanh, erf, log, the GELUs) have an
 *     absolute allowance of that difference's size;
 *   - sums of K products: see cuvil_checked_sum.
 * The error of a smooth function is read off at both ends of its argument's
 * interval; where it is not monotone, the square of the interval covers the
 * bend (all second derivatives here are below 2).
 */
#ifndef CUVIL_PROBLEM_CHECKED_H_
#define CUVIL_PROBLEM_CHECKED_H_

#ifdef __CUDACC__
#define CUVIL_CHECKED static __device__ __forceinline__
struct cuvil_checked {
  double value, error;
};
#define CUVIL_CHECKED_INF __longlong_as_double(0x7ff0000000000000LL)
#else
#include <math.h>

#include "problem/reference.h"
#define CUVIL_CHECKED static inline
#define CUVIL_CHECKED_INF ((double)INFINITY)
#endif

#define CUVIL_CHECKED_ROUND 1.1920928955078125e-07   /* 2^-23 */
#define CUVIL_CHECKED_APPROX 9.5367431640625e-07     /* 2^-20 */
#define CUVIL_CHECKED_ARGUMENT 2.384185791015625e-07 /* 2^-22 */
#define CUVIL_CHECKED_NEAR_ONE 4.76837158203125e-07  /* 2^-21 */
#define CUVIL_CHECKED_TINY 1.1754943508222875e-38    /* 2^-126 */
#define CUVIL_CHECKED_FLT_MAX 3.4028234663852886e38

/* A value in fp32 terms: beyond the range it is infinite; NaN and infinity
 * are exact unless the error says that they are not sure.  An error that is
 * NaN came of an infinite one. */
CUVIL_CHECKED struct cuvil_checked cuvil_checked_make(double value,
                                                      double error) {
  struct cuvil_checked c;
  if (error != error) error = CUVIL_CHECKED_INF;
  c.value = value;
  c.error = error;
  const double size = fabs(value);
  if (!(size <= CUVIL_CHECKED_FLT_MAX)) {
    const bool sure = !(error == CUVIL_CHECKED_INF) &&
                      !(size - error <= CUVIL_CHECKED_FLT_MAX);
    if (value == value)
      c.value = value < 0 ? -CUVIL_CHECKED_INF : CUVIL_CHECKED_INF;
    c.error = sure ? 0 : CUVIL_CHECKED_INF;
  } else if (!(size + error <= CUVIL_CHECKED_FLT_MAX)) {
    c.error = CUVIL_CHECKED_INF;
  }
  return c;
}

/* `carried` from the arguments, plus `relative` and `absolute` of its own. */
CUVIL_CHECKED struct cuvil_checked cuvil_checked_round(double value,
                                                       double carried,
                                                       double relative,
                                                       double absolute) {
  if (carried == CUVIL_CHECKED_INF || carried != carried)
    return cuvil_checked_make(value, CUVIL_CHECKED_INF);
  if (value - value != 0)
    return cuvil_checked_make(value, carried); /* no rounding of infinity */
  return cuvil_checked_make(value, carried +
                                       relative * (fabs(value) + carried) +
                                       absolute + CUVIL_CHECKED_TINY);
}

/* An error scaled by a value; none of an infinite or NaN value is none. */
CUVIL_CHECKED double cuvil_checked_scaled(double value, double error) {
  return error == 0 ? 0 : fabs(value) * error;
}
CUVIL_CHECKED double cuvil_checked_larger(double a, double b) {
  return a > b ? a : b;
}

/* ---- plain values of the functions that are not in the C library */

CUVIL_CHECKED double cuvil_plain_max(double a, double b) {
  return a != a || a > b ? a : b; /* NaN of either passes */
}
CUVIL_CHECKED double cuvil_plain_min(double a, double b) {
  return a != a || a < b ? a : b;
}
CUVIL_CHECKED double cuvil_plain_rsqrt(double x) {
  return 1 / sqrt(x);
}
CUVIL_CHECKED double cuvil_plain_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}
CUVIL_CHECKED double cuvil_plain_gelu_erf(double x) {
  /* erfc keeps the digits of the negative side. */
  return 0.5 * x * erfc(-x * 0.70710678118654752440);
}
CUVIL_CHECKED double cuvil_plain_gelu_tanh(double x) {
  return x * cuvil_plain_sigmoid(2 * 0.79788456080286535588 *
                                 (x + 0.044715 * x * x * x));
}
CUVIL_CHECKED double cuvil_plain_silu(double x) {
  return x * cuvil_plain_sigmoid(x);
}
CUVIL_CHECKED double cuvil_plain_clip(double x, double low, double high) {
  return cuvil_plain_min(cuvil_plain_max(x, low), high);
}
CUVIL_CHECKED double cuvil_plain_hardswish(double x) {
  return x * cuvil_plain_clip(x / 6 + 0.5, 0, 1);
}

/* ---- operators */

CUVIL_CHECKED struct cuvil_checked cuvil_checked_copy(struct cuvil_checked x) {
  return x;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_add(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  return cuvil_checked_round(a.value + b.value, a.error + b.error,
                             CUVIL_CHECKED_ROUND, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_sub(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  return cuvil_checked_round(a.value - b.value, a.error + b.error,
                             CUVIL_CHECKED_ROUND, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_mul(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  return cuvil_checked_round(a.value * b.value,
                             cuvil_checked_scaled(a.value, b.error) +
                                 cuvil_checked_scaled(b.value, a.error) +
                                 cuvil_checked_scaled(a.error, b.error),
                             CUVIL_CHECKED_ROUND, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_div(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  const double value = a.value / b.value, room = fabs(b.value) - b.error;
  if (room > 0)
    return cuvil_checked_round(
        value, (a.error + cuvil_checked_scaled(value, b.error)) / room,
        CUVIL_CHECKED_APPROX, 0);
  /* A divisor that is zero for sure; else its sign is not known. */
  const bool open =
      a.error == CUVIL_CHECKED_INF || b.error == CUVIL_CHECKED_INF;
  const bool sure = b.error == 0 && fabs(a.value) > a.error;
  return cuvil_checked_make(
      value, !open && (sure || value != value) ? 0 : CUVIL_CHECKED_INF);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_min(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  return cuvil_checked_make(cuvil_plain_min(a.value, b.value),
                            cuvil_checked_larger(a.error, b.error));
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_max(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  return cuvil_checked_make(cuvil_plain_max(a.value, b.value),
                            cuvil_checked_larger(a.error, b.error));
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_neg(struct cuvil_checked x) {
  x.value = -x.value;
  return x;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_abs(struct cuvil_checked x) {
  x.value = fabs(x.value);
  return x;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_reciprocal(
    struct cuvil_checked x) {
  return cuvil_checked_div(cuvil_checked_make(1, 0), x);
}

/* How far f is from its value at the ends of x's interval. */
#define CUVIL_CHECKED_SPREAD(f, x)                                           \
  ((x).error == 0                                                            \
       ? 0.0                                                                 \
       : cuvil_checked_larger(fabs(f((x).value + (x).error) - f((x).value)), \
                              fabs(f((x).value) - f((x).value - (x).error))))

/* For functions of x >= 0: the spread, or infinite when x may lie on either
 * side of zero (where the spread itself is NaN). */
CUVIL_CHECKED double cuvil_checked_domain(struct cuvil_checked x,
                                          double spread) {
  return x.error > 0 && fabs(x.value) <= x.error ? CUVIL_CHECKED_INF : spread;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_sqrt(struct cuvil_checked x) {
  return cuvil_checked_round(
      sqrt(x.value), cuvil_checked_domain(x, CUVIL_CHECKED_SPREAD(sqrt, x)),
      CUVIL_CHECKED_APPROX, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_rsqrt(struct cuvil_checked x) {
  return cuvil_checked_round(
      cuvil_plain_rsqrt(x.value),
      cuvil_checked_domain(x, CUVIL_CHECKED_SPREAD(cuvil_plain_rsqrt, x)),
      CUVIL_CHECKED_APPROX, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_exp(struct cuvil_checked x) {
  return cuvil_checked_round(
      exp(x.value), CUVIL_CHECKED_SPREAD(exp, x),
      CUVIL_CHECKED_APPROX + fabs(x.value) * CUVIL_CHECKED_ARGUMENT, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_log(struct cuvil_checked x) {
  return cuvil_checked_round(
      log(x.value), cuvil_checked_domain(x, CUVIL_CHECKED_SPREAD(log, x)),
      CUVIL_CHECKED_APPROX, CUVIL_CHECKED_NEAR_ONE);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_tanh(struct cuvil_checked x) {
  return cuvil_checked_round(tanh(x.value), CUVIL_CHECKED_SPREAD(tanh, x),
                             CUVIL_CHECKED_APPROX, CUVIL_CHECKED_ARGUMENT);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_erf(struct cuvil_checked x) {
  return cuvil_checked_round(erf(x.value), CUVIL_CHECKED_SPREAD(erf, x),
                             CUVIL_CHECKED_APPROX, CUVIL_CHECKED_ARGUMENT);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_sigmoid(
    struct cuvil_checked x) {
  const double own = x.value > 0 ? 1 : x.value > -120 ? -x.value : 120;
  return cuvil_checked_round(
      cuvil_plain_sigmoid(x.value),
      CUVIL_CHECKED_SPREAD(cuvil_plain_sigmoid, x),
      CUVIL_CHECKED_APPROX + own * CUVIL_CHECKED_ARGUMENT, 0);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_relu(struct cuvil_checked x) {
  x.value = cuvil_plain_max(x.value, 0);
  return x;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_trunc(struct cuvil_checked x) {
  return cuvil_checked_make(trunc(x.value), CUVIL_CHECKED_SPREAD(trunc, x));
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_gelu_erf(
    struct cuvil_checked x) {
  return cuvil_checked_round(
      cuvil_plain_gelu_erf(x.value),
      CUVIL_CHECKED_SPREAD(cuvil_plain_gelu_erf, x) + x.error * x.error,
      CUVIL_CHECKED_APPROX, fabs(x.value) * CUVIL_CHECKED_NEAR_ONE);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_gelu_tanh(
    struct cuvil_checked x) {
  return cuvil_checked_round(
      cuvil_plain_gelu_tanh(x.value),
      CUVIL_CHECKED_SPREAD(cuvil_plain_gelu_tanh, x) + x.error * x.error,
      CUVIL_CHECKED_APPROX, fabs(x.value) * CUVIL_CHECKED_NEAR_ONE);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_silu(struct cuvil_checked x) {
  const double own = x.value > 0 ? 1 : x.value > -120 ? -x.value : 120;
  return cuvil_checked_round(
      cuvil_plain_silu(x.value),
      CUVIL_CHECKED_SPREAD(cuvil_plain_silu, x) + x.error * x.error,
      CUVIL_CHECKED_APPROX + own * CUVIL_CHECKED_ARGUMENT,
      own * CUVIL_CHECKED_TINY);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_hardswish(
    struct cuvil_checked x) {
  const double bend = fabs(x.value) < 4 ? fabs(x.value) : 0;
  return cuvil_checked_round(
      cuvil_plain_hardswish(x.value),
      CUVIL_CHECKED_SPREAD(cuvil_plain_hardswish, x) + x.error * x.error,
      CUVIL_CHECKED_APPROX, bend * CUVIL_CHECKED_ARGUMENT);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_clip(
    struct cuvil_checked x, struct cuvil_checked low,
    struct cuvil_checked high) {
  return cuvil_checked_min(cuvil_checked_max(x, low), high);
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_hardsigmoid(
    struct cuvil_checked x, struct cuvil_checked alpha,
    struct cuvil_checked beta) {
  return cuvil_checked_clip(
      cuvil_checked_add(cuvil_checked_mul(alpha, x), beta),
      cuvil_checked_make(0, 0), cuvil_checked_make(1, 0));
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_leaky_relu(
    struct cuvil_checked x, struct cuvil_checked slope) {
  const struct cuvil_checked below = cuvil_checked_mul(slope, x);
  if (x.value > x.error || x.value != x.value) return x;
  if (x.value < -x.error) return below;
  return cuvil_checked_make(x.value < 0 ? below.value : x.value,
                            cuvil_checked_larger(x.error, below.error));
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_pow(struct cuvil_checked a,
                                                     struct cuvil_checked b) {
  const double value = pow(a.value, b.value);
  double spread = 0;
  if (a.error > 0 || b.error > 0)
    for (int corner = 0; corner < 4; corner++) {
      const double end = pow(a.value + (corner & 1 ? a.error : -a.error),
                             b.value + (corner & 2 ? b.error : -b.error));
      /* A corner where there is no power: anything may come of it. */
      spread = end != end ? CUVIL_CHECKED_INF
                          : cuvil_checked_larger(fabs(end - value), spread);
      if (spread == CUVIL_CHECKED_INF) break;
    }
  if (b.value - b.error < 0) spread = cuvil_checked_domain(a, spread);
  const double exponent = a.value != 0 ? fabs(b.value * log(fabs(a.value))) : 0;
  return cuvil_checked_round(
      value, spread, CUVIL_CHECKED_APPROX + exponent * CUVIL_CHECKED_ARGUMENT,
      0);
}

/* ---- sums, and what is stored */

/* The error of a sum of `length` terms in fp32, in any order, whose absolute
 * values sum to `magnitude`.
 *
 * sqrt(K) is the random walk of the roundings, each at most 2^-23 of a partial
 * sum that never exceeds the magnitude; K/32 covers tensor cores, which
 * truncate: every 8 products at least lose at most 2^-23 of the partial sum,
 * half of that on average, and a partial sum is on average at most half the
 * magnitude.  2 is for short sums and the rounding of the products.
 *
 * tf32: each operand is rounded to 10 bits, 2^-11 of a product each.  Roundings
 * of different products are independent: of the worst case 2^-10 there is left
 * 16/sqrt(K), which is many standard deviations. */
CUVIL_CHECKED double cuvil_checked_sum_error(double length, double magnitude,
                                             bool tf32) {
  const double walk = sqrt(length);
  double relative = CUVIL_CHECKED_ROUND * (walk + length / 32 + 2);
  if (tf32) relative += 0.0009765625 * (walk > 16 ? 16 / walk : 1);
  return magnitude * relative;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_sum(double sum,
                                                     double magnitude,
                                                     double length, bool tf32) {
  return cuvil_checked_make(
      sum,
      cuvil_checked_sum_error(length, magnitude, tf32) + CUVIL_CHECKED_TINY);
}
/* A sum divided by a count (or multiplied by its reciprocal); 0 terms: 0. */
CUVIL_CHECKED struct cuvil_checked cuvil_checked_mean(double sum,
                                                      double magnitude,
                                                      double length,
                                                      double divisor) {
  if (length == 0) return cuvil_checked_make(0, 0);
  return cuvil_checked_round(
      sum / divisor,
      cuvil_checked_sum_error(length, magnitude, false) / divisor,
      2 * CUVIL_CHECKED_ROUND, 0);
}

/* Rounding of a store to a type, by its number in enum cuvil_dtype. */
CUVIL_CHECKED double cuvil_checked_store_error(int dtype, double value) {
  const double size = fabs(value);
  switch (dtype) {
    case 1: /* f32: the value is one already, but for a flushed subnormal */
      return size * 5.9604644775390625e-08 + CUVIL_CHECKED_TINY;
    case 2: /* f16: half the smallest subnormal */
      return cuvil_checked_larger(size * 0.00048828125,
                                  2.98023223876953125e-08);
    case 3: /* bf16 */
      return size * 0.00390625 + CUVIL_CHECKED_TINY;
    case 4: /* f64 */
      return 0;
    case 9: /* bool */
      return 0;
    default: /* integers: to the nearest */
      return 0.5;
  }
}
/* What an output element of `dtype` must be, and how far off it may be: the
 * store's rounding, overflow to infinity, saturation of integers. */
CUVIL_CHECKED struct cuvil_checked cuvil_checked_stored(
    int dtype, struct cuvil_checked c) {
  double top = 0, bottom = 0;
  switch (dtype) {
    case 2:
      top = 65520; /* from here on f16 rounds to infinity */
      break;
    case 3:
      top = 3.3961775292304957e38;
      break;
    case 5:
      top = 127, bottom = -128;
      break;
    case 6:
      top = 255;
      break;
    case 7:
      top = 2147483647.0, bottom = -2147483648.0;
      break;
    case 8:
      top = 9223372036854775807.0, bottom = -9223372036854775808.0;
      break;
    case 9:
      c.error = c.error > 0 && fabs(c.value) <= c.error ? 1 : 0;
      c.value = c.value != 0;
      return c;
    default:
      break;
  }
  /* Anything goes, whatever the value is; and no NaN comes of it. */
  if (c.error == CUVIL_CHECKED_INF) return c;
  const double error =
      c.error + cuvil_checked_store_error(dtype, fabs(c.value) + c.error);
  if (dtype == 2 || dtype == 3) {
    const double size = fabs(c.value);
    if (size - c.error >= top) {
      c.value = c.value < 0 ? -CUVIL_CHECKED_INF : CUVIL_CHECKED_INF;
      c.error = 0;
      return c;
    }
    if (size + c.error >= top) {
      c.error = CUVIL_CHECKED_INF;
      return c;
    }
  } else if (top > 0) {
    c.value = c.value > top ? top : c.value < bottom ? bottom : c.value;
  }
  /* NaN and infinity are stored as they are. */
  c.error = c.value - c.value == 0 || c.error > 0 ? error : 0;
  return c;
}

#endif /* CUVIL_PROBLEM_CHECKED_H_ */
