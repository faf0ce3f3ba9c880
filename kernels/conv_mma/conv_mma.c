/* conv_mma.c - convolutions in NHWC on tensor cores as implicit matrix
 * products: the family that serves every ungrouped conv of f16, bf16 or
 * (math=tf32) f32 operands.  The work is in common/mma*.
 */
#include "kernels/common/mma.h"

static const struct cuvil_mma_kernel kernel = {
    .entry = "conv_mma",
    .multiplier = "kernels/common/mma_tensor.cuh",
    .loader = "kernels/conv_mma/conv_mma.cu",
    .simt = false,
    .arguments = cuvil_mma_conv_arguments,
};

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  return cuvil_mma_emit(query, config, &kernel, out);
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
