/* conv_mma.c - convolutions in NHWC on tensor cores as implicit matrix
 * products: the family that serves every ungrouped conv of f16, bf16 or
 * (math=tf32) f32 operands.  The work is in common/mma*; here are the
 * arguments that describe the window.
 */
#include "kernels/common/mma.h"

static enum cuvil_status divider(struct cuvil_step *step, int64_t divisor) {
  uint32_t magic, shift;
  cuvil_mma_divider((uint32_t)divisor, &magic, &shift);
  CUVIL_TRY(cuvil_step_arg_i32(step, (int32_t)magic));
  return cuvil_step_arg_i32(step, (int32_t)shift);
}

/* In the order of KERNEL_PARAMETERS in conv_mma.cu, from pitch on. */
static enum cuvil_status arguments(const struct cuvil_problem *problem,
                                   const struct cuvil_mma_view *view,
                                   struct cuvil_step *step) {
  int64_t c = cuvil_problem_extent(problem, "c");
  int64_t p = cuvil_problem_extent(problem, "p");
  int64_t q = cuvil_problem_extent(problem, "q");
  int64_t s = cuvil_problem_extent(problem, "s");
  const int64_t values[] = {view->pitch,
                            cuvil_problem_extent(problem, "h"),
                            cuvil_problem_extent(problem, "w"),
                            c,
                            q,
                            problem->stride[0],
                            problem->stride[1],
                            problem->pad[0],
                            problem->pad[1],
                            problem->dilation[0],
                            problem->dilation[1],
                            s,
                            p * q};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    CUVIL_TRY(cuvil_step_arg_i32(step, values[i]));
  CUVIL_TRY(divider(step, p * q));
  CUVIL_TRY(divider(step, q));
  CUVIL_TRY(divider(step, c));
  return divider(step, s);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  return cuvil_mma_emit(query, config, "kernels/conv_mma/conv_mma.cu",
                        arguments, out);
}

const struct cuvil_family cuvil_family_conv_mma = {
    .id = "conv_mma",
    .version = 1,
    .about =
        "implicit-GEMM convolution in NHWC on tensor cores: mma.sync, "
        "cp.async ring, split K by cluster or semaphore",
    .kinds = 1u << CUVIL_KIND_CONV,
    .applicable = cuvil_mma_applicable,
    .default_config = cuvil_mma_default,
    .derive = cuvil_mma_derive,
    .predict = cuvil_mma_predict,
    .emit = emit,
};
