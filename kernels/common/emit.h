/* emit.h - what the emitters of our own families share: a source put together
 * from pieces, generic access to operands of any layout, launch steps.
 *
 * Text that cuvil_emission_begin gives, in this order: types.cuh,
 * operators.cuh (or checked.cuh), the epilogue (kernels/family.h).
 * cuvil_emit_points and cuvil_emit_operand add macros and functions that let a
 * template reach any element of any layout, stride and limit by coordinates:
 *
 *   index_t                int where 32 bits reach every point, else i64
 *   EXTENT_PARAMETERS      , int e_m, int e_n, int e_k     every dimension
 *   POINTS                 (i64)e_m * e_n                  of the main output
 *   POINT_COORDINATES(i)   const int i_n = ..; ..          of the i-th point,
 *                                                          fastest first
 *   POINT                  i_m, i_n      the output's, in problem order
 *   POINT_TAIL             the same after a comma, empty for a scalar
 *   REDUCED_LOOPS          for (int i_k = 0; ..)           over the others
 *   REDUCED                (i64)e_k                        how many they are
 *   REDUCED_COORDINATES(i) const int i_k = ..;             of the i-th of them,
 *                                                          fastest first
 *
 * and for an operand under the name X:
 *
 *   X_T, X_PARAMETERS, X_ARGUMENTS      element type; strides and limits
 *   i64 X_offset(coordinates X_PARAMETERS)
 *   bool X_inside(coordinates X_PARAMETERS)  false beyond a limit
 *   X_COORDINATES          i_m, i_k      its own, in problem order
 *   X_FASTEST              its fastest dimension's coordinate, where its
 *                          stride is 1: i_k; and e_k as X_FASTEST_EXTENT
 */
#ifndef CUVIL_KERNELS_COMMON_EMIT_H_
#define CUVIL_KERNELS_COMMON_EMIT_H_

#include "kernels/family.h"

struct cuvil_emission {
  const struct cuvil_query *query;
  struct cuvil_program *program; /* owned until cuvil_emission_end */
  struct cuvil_buf source;
  int buffers[CUVIL_MAX_OPERANDS]; /* program buffer of each operand */
};

/* Creates the program with a buffer for every operand of the problem. */
CUVIL_MUST_USE enum cuvil_status cuvil_emission_begin(
    const struct cuvil_query *query, struct cuvil_emission *out);
/* Appends an embedded file. */
CUVIL_MUST_USE enum cuvil_status cuvil_emission_file(
    struct cuvil_emission *emission, const char *name);
/* Appends types, operators and the epilogue. */
CUVIL_MUST_USE enum cuvil_status cuvil_emission_prelude(
    struct cuvil_emission *emission, bool checked);
/* "#define name value". */
void cuvil_emission_define(struct cuvil_emission *emission, const char *name,
                           int64_t value);
/* The source so far becomes a module (and is cleared); a launch step of
 * `entry` over `blocks` blocks of `threads` threads, one-dimensional: the
 * caller may change the step, and adds its arguments.  *out_step is borrowed
 * until the next step. */
CUVIL_MUST_USE enum cuvil_status cuvil_emission_launch(
    struct cuvil_emission *emission, const char *options, const char *entry,
    int64_t blocks, int threads, struct cuvil_step **out_step);
/* Another entry of a module that was added before. */
CUVIL_MUST_USE enum cuvil_status cuvil_emission_step(
    struct cuvil_emission *emission, int module, const char *entry,
    int64_t blocks, int threads, struct cuvil_step **out_step);
/* The program on success (status CUVIL_OK), else everything freed; returns
 * `status` or a failure of its own. */
CUVIL_MUST_USE enum cuvil_status cuvil_emission_end(
    struct cuvil_emission *emission, enum cuvil_status status,
    struct cuvil_program **out);

/* ---- operand.c */
void cuvil_emit_points(const struct cuvil_problem *problem,
                       struct cuvil_buf *out);
CUVIL_MUST_USE enum cuvil_status cuvil_emit_extent_arguments(
    const struct cuvil_problem *problem, struct cuvil_step *step);
void cuvil_emit_operand(const struct cuvil_problem *problem, int operand,
                        const char *name, struct cuvil_buf *out);
CUVIL_MUST_USE enum cuvil_status cuvil_emit_operand_arguments(
    const struct cuvil_problem *problem, int operand, struct cuvil_step *step);
/* Points of the main output: the product of its dimensions' extents. */
int64_t cuvil_output_points(const struct cuvil_problem *problem);
/* Products of the extents of what the main output lacks. */
int64_t cuvil_reduced_points(const struct cuvil_problem *problem);
/* Largest of `limit`, limit/2, .. 1 that divides the extent. */
int cuvil_largest_vector(int64_t extent, int limit);
/* The operand's fastest dimension where its stride is 1, else -1. */
int cuvil_fastest_dim(const struct cuvil_operand *operand);

/* ---- collapse.c
 * The same pointwise or reduce problem with fewer dimensions: neighbours that
 * lie one inside the other in every operand become one. */
void cuvil_problem_collapse(const struct cuvil_problem *problem,
                            struct cuvil_problem *out);

/* blocks / (SMs x blocks per SM), from threads, registers_least, shared. */
void cuvil_derive_waves(const struct cuvil_arch *arch,
                        struct cuvil_derived *derived);
/* Seconds of a kernel that moves `bytes`, each thread having `in_flight` bytes
 * under way: bandwidth, unless too little is under way to fill it (Little's
 * law at 700 ns), after a fixed start.  For ordering only. */
double cuvil_predict_memory(const struct cuvil_arch *arch,
                            const struct cuvil_derived *derived, double bytes,
                            double in_flight);
/* pdl as the architecture allows: 1 from sm_90 on. */
int cuvil_default_pdl(const struct cuvil_arch *arch);
static inline int64_t cuvil_ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

#endif /* CUVIL_KERNELS_COMMON_EMIT_H_ */
