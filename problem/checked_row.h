/* checked_row.h - the bounds of whole rows: softmax(q k) v of one query, and
 * the normalisations.  After checked.h, under the same rules: no includes but
 * for C, one text for the CPU and the GPU reference.
 *
 * Attention.  A kernel may compute in any order and in any blocks (online
 * softmax), with these errors:
 *   - a score: its sum of products, the scaling, the mask's addition, each in
 *     fp32 (checked.h);
 *   - a weight exp(score - m): the score's error and the rounding of the
 *     argument as a relative one (m is the same in numerator and denominator,
 *     so that which m is taken does not matter), 2^-20 for the exponential;
 *   - the weights rounded to the operands' type before they meet v, as tensor
 *     cores want them: `unit` of each.  These roundings are independent, so
 *     that they add up as a random walk, 4 unit sqrt(sum (w v)^2) (7 standard
 *     deviations), and at worst as unit sum |w v|; equal weights are rounded
 *     equally, which a denominator of unrounded weights shows as unit |o|;
 *   - half the smallest f16 subnormal for each weight, normalised or not;
 *   - numerator and denominator as sums in fp32, and the division.
 * All excluded: exactly 0.  All -inf by an additive mask: NaN asked for, but
 * anything passes, since kernels that handle exclusion give 0 there too.
 *
 * Normalisations.  Two passes or Welford's update in fp32, in any order: the
 * mean as a sum; each squared deviation with the value's own error and one
 * rounding of the value itself, 2^-23 |v| (running means differ by as much);
 * the mean's error only squared.  E[v^2] - E[v]^2 is not covered once the mean
 * is a few times larger than the deviation.  The normalised value may be
 * computed as v a - mean a.
 */
#ifndef CUVIL_PROBLEM_CHECKED_ROW_H_
#define CUVIL_PROBLEM_CHECKED_ROW_H_

#ifndef __CUDACC__
#include "problem/checked.h"
#endif

/* exp(score - largest), its error absolute. */
CUVIL_CHECKED struct cuvil_checked cuvil_checked_weight(
    struct cuvil_checked score, double largest) {
  struct cuvil_checked w;
  w.value = w.error = 0;
  if (score.value == -CUVIL_CHECKED_INF) return w;
  const double below = score.value - largest;
  const double doubt = score.error + CUVIL_CHECKED_APPROX +
                       (fabs(below) + fabs(largest)) * CUVIL_CHECKED_ARGUMENT;
  w.value = exp(below);
  w.error = exp(below + doubt) - w.value + CUVIL_CHECKED_TINY;
  return w;
}

/* ---- attention: one element of the output */

/* What a weight loses before it meets v: relatively, and at least. */
CUVIL_CHECKED double cuvil_checked_weight_unit(int dtype, bool tf32) {
  return dtype == 2   ? 0.00048828125
         : dtype == 3 ? 0.00390625
         : tf32       ? 0.0009765625
                      : CUVIL_CHECKED_ROUND;
}
CUVIL_CHECKED double cuvil_checked_weight_least(int dtype) {
  return dtype == 2 ? 2.98023223876953125e-08 : CUVIL_CHECKED_TINY;
}

struct cuvil_checked_attention {
  double weight, weight_error;      /* sums of the weights */
  double value, magnitude, squares; /* of w v, |w v|, (w v)^2 */
  double carried, values;           /* of w's error |v|, |v| */
  double count;                     /* keys that are not excluded */
};
CUVIL_CHECKED struct cuvil_checked_attention cuvil_checked_attention_begin(
    void) {
  struct cuvil_checked_attention a;
  a.weight = a.weight_error = a.value = a.magnitude = a.squares = 0;
  a.carried = a.values = a.count = 0;
  return a;
}
CUVIL_CHECKED void cuvil_checked_attention_add(
    struct cuvil_checked_attention *a, struct cuvil_checked weight, double v) {
  const double product = weight.value * v;
  a->weight += weight.value;
  a->weight_error += weight.error;
  a->value += product;
  a->magnitude += fabs(product);
  a->squares += product * product;
  a->carried += weight.error * fabs(v);
  a->values += fabs(v);
  a->count += 1;
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_attention_value(
    const struct cuvil_checked_attention *a, int dtype, bool tf32) {
  if (a->count == 0) return cuvil_checked_make(0, 0);
  const double value = a->value / a->weight;
  if (value != value) return cuvil_checked_make(value, CUVIL_CHECKED_INF);
  const double unit = cuvil_checked_weight_unit(dtype, tf32);
  const double most = a->magnitude / a->weight;
  const double walk = 4 * sqrt(a->squares) / a->weight;
  const double rounding = unit * (fabs(value) + (walk < most ? walk : most));
  const double sums =
      cuvil_checked_sum_error(a->count, a->magnitude, false) +
      fabs(value) * cuvil_checked_sum_error(a->count, a->weight, false);
  const double carried =
      (a->carried + fabs(value) * a->weight_error + sums) / a->weight;
  return cuvil_checked_round(
      value, carried + rounding + cuvil_checked_weight_least(dtype) * a->values,
      CUVIL_CHECKED_APPROX, 0);
}

/* ---- normalisations: begin, every value to first, centre, every value to
 * second, scale; then value for each.  op: enum cuvil_norm_op, 0 layer, 1 rms,
 * 2 softmax, 3 log_softmax. */

struct cuvil_checked_norm {
  int op;
  double count;
  double sum, magnitude, carried; /* of the values, their sizes and errors */
  double largest;
  double centre, centre_error;
  double second, second_error; /* squared deviations, or exponentials */
  struct cuvil_checked scale;  /* 1 / deviation, or sum of exponentials */
};
CUVIL_CHECKED struct cuvil_checked_norm cuvil_checked_norm_begin(int op,
                                                                 double count) {
  struct cuvil_checked_norm r;
  r.op = op;
  r.count = count;
  r.sum = r.magnitude = r.carried = 0;
  r.largest = -CUVIL_CHECKED_INF;
  r.centre = r.centre_error = r.second = r.second_error = 0;
  r.scale.value = r.scale.error = 0;
  return r;
}
CUVIL_CHECKED void cuvil_checked_norm_first(struct cuvil_checked_norm *r,
                                            struct cuvil_checked v) {
  r->sum += v.value;
  r->magnitude += fabs(v.value);
  r->carried += v.error;
  r->largest = cuvil_plain_max(r->largest, v.value);
}
CUVIL_CHECKED void cuvil_checked_norm_centre(struct cuvil_checked_norm *r) {
  if (r->op >= 2) r->centre = r->largest;
  if (r->op != 0) return;
  r->centre = r->sum / r->count;
  r->centre_error =
      (r->carried + cuvil_checked_sum_error(r->count, r->magnitude, false)) /
          r->count +
      2 * CUVIL_CHECKED_ROUND * fabs(r->centre);
}
CUVIL_CHECKED void cuvil_checked_norm_second(struct cuvil_checked_norm *r,
                                             struct cuvil_checked v) {
  if (r->op >= 2) {
    const struct cuvil_checked w = cuvil_checked_weight(v, r->centre);
    r->second += w.value;
    r->second_error += w.error;
    return;
  }
  const double d = v.value - r->centre;
  r->second += d * d;
  r->second_error +=
      2 * fabs(d) * (v.error + CUVIL_CHECKED_ROUND * fabs(v.value)) +
      v.error * v.error;
}
CUVIL_CHECKED void cuvil_checked_norm_scale(struct cuvil_checked_norm *r,
                                            double eps) {
  const double error =
      r->second_error + cuvil_checked_sum_error(r->count, r->second, false);
  if (r->op >= 2) {
    r->scale = cuvil_checked_make(r->second, error);
    return;
  }
  const double mean = r->second / r->count;
  r->scale = cuvil_checked_rsqrt(cuvil_checked_add(
      cuvil_checked_make(mean, error / r->count +
                                   r->centre_error * r->centre_error +
                                   2 * CUVIL_CHECKED_ROUND * mean),
      cuvil_checked_make(eps, 0)));
}
CUVIL_CHECKED struct cuvil_checked cuvil_checked_norm_value(
    const struct cuvil_checked_norm *r, struct cuvil_checked v) {
  const double size = fabs(v.value) + fabs(r->centre);
  if (r->op < 2)
    return cuvil_checked_mul(
        cuvil_checked_make(
            v.value - r->centre,
            v.error + r->centre_error + 2 * CUVIL_CHECKED_ROUND * size),
        r->scale);
  if (r->centre == -CUVIL_CHECKED_INF) /* nothing to choose from */
    return cuvil_checked_make(-CUVIL_CHECKED_INF + CUVIL_CHECKED_INF,
                              CUVIL_CHECKED_INF);
  if (r->op == 2)
    return cuvil_checked_div(cuvil_checked_weight(v, r->centre), r->scale);
  if (v.value == -CUVIL_CHECKED_INF) return cuvil_checked_make(v.value, 0);
  const struct cuvil_checked log = cuvil_checked_log(r->scale);
  return cuvil_checked_make(
      v.value - r->centre - log.value,
      v.error + log.error + 2 * CUVIL_CHECKED_ROUND * (size + fabs(log.value)));
}

#endif /* CUVIL_PROBLEM_CHECKED_ROW_H_ */
