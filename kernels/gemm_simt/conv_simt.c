/* conv_simt.c - convolutions in NHWC in true fp32 (FFMA): conv_mma's implicit
 * matrix product around another multiplier.
 */
#include "kernels/common/mma.h"

static const struct cuvil_mma_kernel kernel = {
    .entry = "conv_simt",
    .multiplier = "kernels/gemm_simt/simt_multiply.cuh",
    .loader = "kernels/conv_mma/conv_mma.cu",
    .simt = true,
    .arguments = cuvil_mma_conv_arguments,
};

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  return cuvil_mma_emit(query, config, &kernel, out);
}

const struct cuvil_family cuvil_family_conv_simt = {
    .id = "conv_simt",
    .version = 1,
    .about =
        "implicit-GEMM convolution in NHWC in fp32 without tensor cores: "
        "FFMA, cp.async ring, split K by cluster or semaphore",
    .kinds = 1u << CUVIL_KIND_CONV,
    .applicable = cuvil_simt_applicable,
    .default_config = cuvil_simt_default,
    .derive = cuvil_simt_derive,
    .predict = cuvil_simt_predict,
    .emit = emit,
};
