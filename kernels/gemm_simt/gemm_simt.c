/* gemm_simt.c - matrix products in true fp32 (FFMA), for operands of any
 * floating type in any order of storage: gemm_mma's copies and kernel around
 * another multiplier.
 */
#include "kernels/common/mma.h"

static const struct cuvil_mma_kernel kernel = {
    .entry = "gemm_simt",
    .multiplier = "kernels/gemm_simt/simt_multiply.cuh",
    .loader = "kernels/gemm_mma/gemm_mma.cu",
    .simt = true,
    .arguments = cuvil_mma_gemm_arguments,
};

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  return cuvil_mma_emit(query, config, &kernel, out);
}

const struct cuvil_family cuvil_family_gemm_simt = {
    .id = "gemm_simt",
    .version = 1,
    .about =
        "matrix product in fp32 without tensor cores: FFMA, cp.async "
        "ring, split K by cluster or semaphore",
    .kinds = 1u << CUVIL_KIND_GEMM,
    .applicable = cuvil_simt_applicable,
    .default_config = cuvil_simt_default,
    .derive = cuvil_simt_derive,
    .predict = cuvil_simt_predict,
    .emit = emit,
};
