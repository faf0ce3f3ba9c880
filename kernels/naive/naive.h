/* naive.h - the naive kernel as a program, shared by the naive families and
 * the reference program. */
#ifndef CUVIL_KERNELS_NAIVE_NAIVE_H_
#define CUVIL_KERNELS_NAIVE_NAIVE_H_

#include "kernels/common/emit.h"

/* Adds the naive kernel to an emission that was begun.  bounds_of_operand:
 * NULL, or (checked) the program buffer of every output's bounds; then
 * emission->buffers of outputs are their values in f64. */
CUVIL_MUST_USE enum cuvil_status cuvil_naive_emit(
    struct cuvil_emission *emission, const int *bounds_of_operand, int block);
/* Blocks of that size: one thread an output, at most 65535 blocks. */
int64_t cuvil_naive_blocks(const struct cuvil_problem *problem, int block);

#endif /* CUVIL_KERNELS_NAIVE_NAIVE_H_ */
