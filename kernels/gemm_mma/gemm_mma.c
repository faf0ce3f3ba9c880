/* gemm_mma.c - matrix products on tensor cores by mma.sync: the family that
 * serves every gemm of f16, bf16 or (math=tf32) f32 operands, in either order
 * of storage where the type allows.  The work is in common/mma*.
 */
#include "kernels/common/mma.h"

static enum cuvil_status arguments(const struct cuvil_problem *problem,
                                   const struct cuvil_mma_view *view,
                                   struct cuvil_step *step) {
  (void)problem;
  CUVIL_TRY(cuvil_step_arg_i32(step, view->pitch));
  CUVIL_TRY(cuvil_step_arg_i32(step, view->pitch_a));
  return cuvil_step_arg_i32(step, view->pitch_b);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  return cuvil_mma_emit(query, config, "kernels/gemm_mma/gemm_mma.cu",
                        arguments, out);
}

const struct cuvil_family cuvil_family_gemm_mma = {
    .id = "gemm_mma",
    .version = 1,
    .about =
        "matrix product on tensor cores: mma.sync, cp.async ring, split K "
        "by cluster or semaphore",
    .kinds = 1u << CUVIL_KIND_GEMM,
    .applicable = cuvil_mma_applicable,
    .default_config = cuvil_mma_default,
    .derive = cuvil_mma_derive,
    .predict = cuvil_mma_predict,
    .emit = emit,
};
