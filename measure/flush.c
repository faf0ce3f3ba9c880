/* flush.c - one kernel that reads a buffer of twice the L2. */
#include "measure/flush.h"

#include <stdlib.h>

/* The sum is stored where it can never be, so that the reads stay. */
static const char *const source =
    "extern \"C\" __global__ void flush(const int4 *p, long long n, int *out)"
    " {\n"
    "  int sum = 0;\n"
    "  long long step = (long long)gridDim.x * blockDim.x;\n"
    "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;"
    " i < n; i += step) {\n"
    "    int4 v = p[i];\n"
    "    sum |= v.x | v.y | v.z | v.w;\n"
    "  }\n"
    "  if (sum == 0x7fffffff) *out = sum;\n"
    "}\n";

struct cuvil_flush {
  struct cuvil_gpu *gpu;
  uint64_t buffer, bytes;
  struct cuvil_gpu_module *module;
  struct cuvil_gpu_function *function;
};

enum cuvil_status cuvil_flush_create(struct cuvil_gpu *gpu,
                                     struct cuvil_flush **out) {
  *out = NULL;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_compile_result result = {0};
  struct cuvil_flush *flush = calloc(1, sizeof *flush);
  if (!flush) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  flush->gpu = gpu;
  flush->bytes = 2 * (uint64_t)cuvil_gpu_arch(gpu)->l2_bytes / 16 * 16;
  CUVIL_TRY_GOTO(cuvil_nvrtc_compile(source, cuvil_gpu_arch(gpu)->nvrtc_name,
                                     NULL, &result));
  CUVIL_TRY_GOTO(cuvil_gpu_module_load(gpu, result.cubin, result.cubin_size,
                                       &flush->module));
  CUVIL_TRY_GOTO(cuvil_gpu_module_function(flush->module, "flush", 0, 1,
                                           &flush->function));
  CUVIL_TRY_GOTO(cuvil_gpu_alloc(gpu, flush->bytes, &flush->buffer));
  CUVIL_TRY_GOTO(cuvil_gpu_memset(gpu, flush->buffer, 0, flush->bytes, NULL));
  cuvil_compile_result_free(&result);
  *out = flush;
  return CUVIL_OK;
fail:
  cuvil_compile_result_free(&result);
  cuvil_flush_destroy(flush);
  return status;
}

void cuvil_flush_destroy(struct cuvil_flush *flush) {
  if (!flush) return;
  cuvil_gpu_free(flush->gpu, flush->buffer);
  cuvil_gpu_module_unload(flush->module);
  free(flush);
}

enum cuvil_status cuvil_flush_enqueue(struct cuvil_flush *flush,
                                      struct cuvil_gpu_stream *stream) {
  const struct cuvil_gpu_launch launch = {
      .grid = {4 * (uint32_t)cuvil_gpu_arch(flush->gpu)->sms, 1, 1},
      .block = {512, 1, 1}};
  long long count = (long long)(flush->bytes / 16);
  void *args[] = {&flush->buffer, &count, &flush->buffer};
  return cuvil_gpu_launch(flush->function, &launch, args, stream);
}
