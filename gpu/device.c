/* device.c - one GPU in hand: its context, its limits, its environment.
 *
 * The primary context is used, not one of our own, because the CUDA runtime
 * inside cuBLASLt and cuDNN, and the caller's own runtime code, live in it
 * too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver.h"

static enum cuvil_status attribute(struct cuvil_gpu *gpu,
                                   CUdevice_attribute which, int *out) {
  return CUVIL_CUDA(cuDeviceGetAttribute, out, which, gpu->device);
}

/* The table's entry of this compute capability, with what the driver says of
 * this very chip put over it. */
static enum cuvil_status fill_arch(struct cuvil_gpu *gpu) {
  int major, minor, l2;
  CUVIL_TRY(
      attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
  CUVIL_TRY(
      attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
  const struct cuvil_arch *known = cuvil_arch_by_cc(major * 10 + minor);
  if (!known)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "%s is sm_%d%d; the supported architectures are %s",
                      gpu->env.gpu, major, minor, cuvil_arch_names());
  gpu->arch = *known;
  struct cuvil_arch *arch = &gpu->arch;
  const struct {
    CUdevice_attribute which;
    int *out;
  } limits[] = {
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &arch->sms},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &arch->warp_size},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &arch->max_threads_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
       &arch->max_threads_per_sm},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
       &arch->max_blocks_per_sm},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
       &arch->registers_per_sm},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
       &arch->shared_per_sm},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
       &arch->shared_per_block},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
       &arch->shared_reserved},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
  };
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    CUVIL_TRY(attribute(gpu, limits[i].which, limits[i].out));
  size_t memory;
  CUVIL_TRY(CUVIL_CUDA(cuDeviceTotalMem, &memory, gpu->device));
  arch->l2_bytes = l2;
  arch->memory_bytes = (int64_t)memory;
  return CUVIL_OK;
}

static enum cuvil_status fill_env(struct cuvil_gpu *gpu) {
  struct cuvil_env *env = &gpu->env;
  int version;
  CUVIL_TRY(CUVIL_CUDA(cuDriverGetVersion, &version));
  snprintf(env->cuda, sizeof env->cuda, "%d.%d", version / 1000,
           version % 1000 / 10);
  snprintf(env->arch, sizeof env->arch, "%s", gpu->arch.name);
  env->sms = gpu->arch.sms;
  env->memory_bytes = gpu->arch.memory_bytes;
  env->l2_bytes = gpu->arch.l2_bytes;
  cuvil_nvml_attach(gpu);
  /* Absent libraries are "", by contract; whoever needs one will say so. */
  CUVIL_IGNORE(cuvil_nvrtc_version(env->nvrtc, sizeof env->nvrtc));
  cuvil_library_version("cublaslt", env->cublaslt, sizeof env->cublaslt);
  cuvil_library_version("cudnn", env->cudnn, sizeof env->cudnn);
  return CUVIL_OK;
}

static enum cuvil_status find_device(struct cuvil_gpu *gpu, int ordinal) {
  int count;
  CUVIL_TRY(CUVIL_CUDA(cuInit, 0));
  CUVIL_TRY(CUVIL_CUDA(cuDeviceGetCount, &count));
  if (ordinal < 0 || ordinal >= count)
    return CUVIL_FAIL(CU_ERR_NO_DEVICE,
                      "cuda:%d was asked for; this machine "
                      "has %d GPU%s",
                      ordinal, count, count == 1 ? "" : "s");
  CUVIL_TRY(CUVIL_CUDA(cuDeviceGet, &gpu->device, ordinal));
  return CUVIL_CUDA(cuDeviceGetName, gpu->env.gpu, (int)sizeof gpu->env.gpu,
                    gpu->device);
}

enum cuvil_status cuvil_gpu_open(int ordinal, struct cuvil_gpu **out) {
  *out = NULL;
  CUVIL_TRY(cuvil_driver_need());
  struct cuvil_gpu *gpu = calloc(1, sizeof *gpu);
  if (!gpu) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "GPU");
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(find_device(gpu, ordinal));
  CUVIL_TRY_GOTO(fill_arch(gpu));
  CUVIL_TRY_GOTO(
      CUVIL_CUDA(cuDevicePrimaryCtxRetain, &gpu->context, gpu->device));
  CUVIL_TRY_GOTO(CUVIL_CUDA(cuCtxSetCurrent, gpu->context));
  CUVIL_TRY_GOTO(fill_env(gpu));
  *out = gpu;
  return CUVIL_OK;
fail:
  cuvil_gpu_close(gpu);
  return status;
}

void cuvil_gpu_close(struct cuvil_gpu *gpu) {
  if (!gpu) return;
  cuvil_cublaslt_close(gpu);
  cuvil_cudnn_close(gpu);
  if (gpu->context) CUVIL_CUDA_QUIET(cuDevicePrimaryCtxRelease, gpu->device);
  free(gpu);
}

const struct cuvil_arch *cuvil_gpu_arch(const struct cuvil_gpu *gpu) {
  return &gpu->arch;
}

const struct cuvil_env *cuvil_gpu_env(const struct cuvil_gpu *gpu) {
  return &gpu->env;
}

enum cuvil_status cuvil_gpu_make_current(struct cuvil_gpu *gpu) {
  return CUVIL_CUDA(cuCtxSetCurrent, gpu->context);
}

enum cuvil_status cuvil_gpu_synchronize(struct cuvil_gpu *gpu) {
  (void)gpu; /* its context is the current one */
  return CUVIL_CUDA(cuCtxSynchronize);
}
