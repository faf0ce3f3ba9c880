/* reference.h - what the right answer is, and how far from it is still right.
 *
 * The reference of a problem is computed in double with a defined order.  Each
 * output element comes with a bound on the error that a correct kernel may
 * make: from the types, the accumulation length and the magnitudes met (sum of
 * |a*b|), carried through the epilogue by running error analysis (Higham,
 * Accuracy and Stability of Numerical Algorithms, ch. 3), and at the end the
 * rounding of the output type.  It is tight enough that a tanh GELU fails
 * where an erf GELU is asked.  The rules of the bounds, operator by operator,
 * are problem/checked.h; the fp64 reference on the GPU compiles the same file.
 */
#ifndef CUVIL_PROBLEM_REFERENCE_H_
#define CUVIL_PROBLEM_REFERENCE_H_

#include "problem/problem.h"

/* A value with the error that a correct kernel may have made so far. */
struct cuvil_checked {
  double value;
  double error; /* absolute, >= 0 */
};

/* operands[i]: host memory of operand i in its own dtype (outputs are not
 * read).  values[i], bounds[i]: for output operands, arrays of
 * cuvil_operand_elements doubles, else NULL.  Storage between the elements of
 * a strided output gets a NaN bound: nothing is said about it.  Threads: uses
 * up to `threads` (0: all cores). */
CUVIL_MUST_USE enum cuvil_status cuvil_problem_reference(
    const struct cuvil_problem *problem, const void *const *operands,
    double *const *values, double *const *bounds, int threads);

/* One epilogue evaluation.  operand_values[i]: value of side operand i at
 * this point (rounded to fp32 here, as kernels read it).  results[s]: value of
 * statement s. */
void cuvil_expr_evaluate(const struct cuvil_expr *expr,
                         struct cuvil_checked acc, const double *operand_values,
                         struct cuvil_checked *results);
double cuvil_expr_apply(enum cuvil_expr_op op, const double *args);

/* Rounding allowance added at a store to `dtype` of a value near `value`. */
double cuvil_store_error(enum cuvil_dtype dtype, double value);
/* Error allowed for a fp32 accumulation of `length` products whose absolute
 * values sum to `magnitude`, of operands of type `operand` (tf32: as given). */
double cuvil_accumulate_error(int64_t length, double magnitude,
                              enum cuvil_dtype operand, bool tf32);

struct cuvil_comparison {
  int64_t elements;
  int64_t violations;  /* elements outside their bound, NaN included */
  int64_t worst_index; /* where error/bound is largest */
  double worst_ratio;  /* there: error/bound */
  double worst_got, worst_expected;
  double relative_l2; /* ||got - expected|| / ||expected|| */
};
/* got: output operand in its dtype.  NaN and infinity are right only where
 * they are expected; where the bound is infinite (an operand of which it is
 * not sure on which side of a pole or an overflow it lies) all is right;
 * elements whose bound is NaN are not looked at. */
void cuvil_compare(enum cuvil_dtype dtype, const void *got,
                   const double *expected, const double *bounds,
                   int64_t elements, struct cuvil_comparison *out);

/* Fills operand `index` with seeded random data of a magnitude that keeps the
 * problem's result in range: near-normal values (the sum of four uniform ones)
 * of variance 1, a contraction's b or w of variance 1/fan-in, an attention's k
 * so that its scores have variance 1; integers within +-8 or the type, booleans
 * 0 and 1.  A gather's indices are valid ones, half of them negative; a mask
 * excludes (false, -10000) one key of four, never the first; every fourth row
 * of a layer or rms norm is so small that eps counts.  The same data on every
 * machine. */
void cuvil_problem_random(const struct cuvil_problem *problem, int index,
                          uint64_t seed, void *out);

#endif /* CUVIL_PROBLEM_REFERENCE_H_ */
