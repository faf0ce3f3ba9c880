/* gemm_mma.c - matrix products on tensor cores by mma.sync: the family that
 * serves every gemm of f16, bf16 or (math=tf32) f32 operands, in either order
 * of storage where the type allows.  The work is in common/mma*.
 */
#include "kernels/common/mma.h"

static const struct cuvil_mma_kernel kernel = {
    .entry = "gemm_mma",
    .multiplier = "kernels/common/mma_tensor.cuh",
    .loader = "kernels/gemm_mma/gemm_mma.cu",
    .simt = false,
    .arguments = cuvil_mma_gemm_arguments,
};

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  return cuvil_mma_emit(query, config, &kernel, out);
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
