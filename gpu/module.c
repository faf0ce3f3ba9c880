/* module.c - cubins, their functions, launches, and tensor maps.
 *
 * A cubin is loaded once per GPU however many programs hold it: a network runs
 * the same kernel at many places, and loading costs about a millisecond.
 * Functions belong to their module and are looked up once per name: the
 * dynamic shared-memory limit is an attribute of the driver's one function, so
 * two steps that launch the same kernel with different sizes must share the
 * larger limit.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "gpu/driver.h"

struct cuvil_gpu_function {
  struct cuvil_gpu_function *next;
  struct cuvil_gpu *gpu;
  CUfunction handle;
  uint32_t shared_limit;
  bool wide_cluster;
  char entry[64];
};

struct cuvil_gpu_module {
  struct cuvil_gpu_module *next; /* in gpu->modules */
  int users;
  char hash[CUVIL_HASH_SIZE]; /* of the cubin */
  struct cuvil_gpu *gpu;
  CUmodule handle;
  struct cuvil_gpu_function *functions;
};

/* The driver is given no size, so that what it would read beyond the end of a
 * short file is ours to check. */
static bool whole_elf(const void *cubin, size_t size) {
  Elf64_Ehdr head;
  if (size < sizeof head) return false;
  memcpy(&head, cubin, sizeof head);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (head.e_ident[EI_CLASS] != ELFCLASS64) return false;
  uint64_t sections = (uint64_t)head.e_shentsize * head.e_shnum;
  uint64_t segments = (uint64_t)head.e_phentsize * head.e_phnum;
  return head.e_shoff <= size && sections <= size - head.e_shoff &&
         head.e_phoff <= size && segments <= size - head.e_phoff;
}

static enum cuvil_status load(struct cuvil_gpu *gpu, const void *cubin,
                              const char *hash, struct cuvil_gpu_module **out) {
  struct cuvil_gpu_module *module = calloc(1, sizeof *module);
  if (!module) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "module");
  enum cuvil_status status =
      CUVIL_CUDA(cuModuleLoadData, &module->handle, cubin);
  if (status != CUVIL_OK) {
    free(module);
    return status;
  }
  module->gpu = gpu;
  strcpy(module->hash, hash);
  module->next = gpu->modules;
  gpu->modules = module;
  *out = module;
  return CUVIL_OK;
}

enum cuvil_status cuvil_gpu_module_load(struct cuvil_gpu *gpu,
                                        const void *cubin, size_t size,
                                        struct cuvil_gpu_module **out) {
  *out = NULL;
  if (!whole_elf(cubin, size))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a cubin of %zu bytes is not a whole ELF file", size);
  char hash[CUVIL_HASH_SIZE];
  cuvil_hash_hex(cubin, size, hash);
  struct cuvil_gpu_module *module = gpu->modules;
  while (module && strcmp(module->hash, hash) != 0)
    module = module->next;
  if (!module) CUVIL_TRY(load(gpu, cubin, hash, &module));
  module->users++;
  *out = module;
  return CUVIL_OK;
}

void cuvil_gpu_module_unload(struct cuvil_gpu_module *module) {
  if (!module || --module->users > 0) return;
  struct cuvil_gpu_module **link = &module->gpu->modules;
  while (*link != module)
    link = &(*link)->next;
  *link = module->next;
  CUVIL_CUDA_QUIET(cuModuleUnload, module->handle);
  while (module->functions) {
    struct cuvil_gpu_function *next = module->functions->next;
    free(module->functions);
    module->functions = next;
  }
  free(module);
}

static enum cuvil_status find_function(struct cuvil_gpu_module *module,
                                       const char *entry,
                                       struct cuvil_gpu_function **out) {
  for (*out = module->functions; *out; *out = (*out)->next)
    if (strcmp((*out)->entry, entry) == 0) return CUVIL_OK;
  struct cuvil_gpu_function *function = calloc(1, sizeof *function);
  if (!function) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "function");
  enum cuvil_status status = CUVIL_OK;
  if (strlen(entry) >= sizeof function->entry)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                              "kernel name %s is "
                              "too long",
                              entry));
  strcpy(function->entry, entry);
  function->gpu = module->gpu;
  status =
      CUVIL_CUDA(cuModuleGetFunction, &function->handle, module->handle, entry);
  if (status != CUVIL_OK)
    CUVIL_TRY_GOTO(CUVIL_FAIL(status, "kernel %s: %s", entry,
                              cuvil_error_last()->message));
  function->next = module->functions;
  module->functions = function;
  *out = function;
  return CUVIL_OK;
fail:
  free(function);
  return status;
}

enum cuvil_status cuvil_gpu_module_function(struct cuvil_gpu_module *module,
                                            const char *entry,
                                            uint32_t shared_bytes,
                                            uint32_t cluster_blocks,
                                            struct cuvil_gpu_function **out) {
  *out = NULL;
  struct cuvil_gpu_function *function;
  CUVIL_TRY(find_function(module, entry, &function));
  if (shared_bytes > function->shared_limit) {
    enum cuvil_status status = CUVIL_CUDA(
        cuFuncSetAttribute, function->handle,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes);
    if (status != CUVIL_OK)
      return CUVIL_FAIL(status, "kernel %s with %u bytes of shared memory: %s",
                        entry, shared_bytes, cuvil_error_last()->message);
    function->shared_limit = shared_bytes;
  }
  if (cluster_blocks > 8 && !function->wide_cluster) {
    CUVIL_TRY(CUVIL_CUDA(cuFuncSetAttribute, function->handle,
                         CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                         1));
    function->wide_cluster = true;
  }
  *out = function;
  return CUVIL_OK;
}

enum cuvil_status cuvil_gpu_launch(struct cuvil_gpu_function *function,
                                   const struct cuvil_gpu_launch *launch,
                                   void **args,
                                   struct cuvil_gpu_stream *stream) {
  CUlaunchAttribute attributes[2];
  memset(attributes, 0, sizeof attributes);
  CUlaunchConfig config = {
      .gridDimX = launch->grid[0],
      .gridDimY = launch->grid[1],
      .gridDimZ = launch->grid[2],
      .blockDimX = launch->block[0],
      .blockDimY = launch->block[1],
      .blockDimZ = launch->block[2],
      .sharedMemBytes = launch->shared_bytes,
      .hStream = stream->handle,
      .attrs = attributes,
  };
  if (launch->cluster[0] != 0) {
    CUlaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute->value.clusterDim.x = launch->cluster[0];
    attribute->value.clusterDim.y = launch->cluster[1];
    attribute->value.clusterDim.z = launch->cluster[2];
  }
  if (launch->programmatic && stream->after_kernel &&
      function->gpu->arch.cc >= 90) {
    CUlaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute->value.programmaticStreamSerializationAllowed = 1;
  }
  enum cuvil_status status =
      CUVIL_CUDA(cuLaunchKernelEx, &config, function->handle, args, NULL);
  stream->after_kernel = status == CUVIL_OK;
  if (status != CUVIL_OK)
    return CUVIL_FAIL(status, "kernel %s, grid %u,%u,%u of %u,%u,%u: %s",
                      function->entry, launch->grid[0], launch->grid[1],
                      launch->grid[2], launch->block[0], launch->block[1],
                      launch->block[2], cuvil_error_last()->message);
  return CUVIL_OK;
}

enum cuvil_status cuvil_gpu_function_info(struct cuvil_gpu_function *function,
                                          struct cuvil_gpu_function_info *out) {
  memset(out, 0, sizeof *out);
  const struct {
    CUfunction_attribute which;
    int *out;
  } wanted[] = {
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &out->registers},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &out->local_bytes},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &out->static_shared},
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &out->max_threads},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    CUVIL_TRY(CUVIL_CUDA(cuFuncGetAttribute, wanted[i].out, wanted[i].which,
                         function->handle));
  return CUVIL_OK;
}

static bool map_type(int dtype, CUtensorMapDataType *out) {
  switch ((enum cuvil_dtype)dtype) {
    case CUVIL_F32:
      *out = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
      return true;
    case CUVIL_F16:
      *out = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      return true;
    case CUVIL_BF16:
      *out = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
      return true;
    case CUVIL_F64:
      *out = CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
      return true;
    case CUVIL_I8:
    case CUVIL_U8:
    case CUVIL_BOOL:
      *out = CU_TENSOR_MAP_DATA_TYPE_UINT8;
      return true;
    case CUVIL_I32:
      *out = CU_TENSOR_MAP_DATA_TYPE_INT32;
      return true;
    case CUVIL_I64:
      *out = CU_TENSOR_MAP_DATA_TYPE_INT64;
      return true;
    default:
      return false;
  }
}

static CUtensorMapSwizzle map_swizzle(int bytes) {
  return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                       : CU_TENSOR_MAP_SWIZZLE_NONE;
}

static CUtensorMapL2promotion map_promotion(int bytes) {
  return bytes == 256   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
         : bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
         : bytes == 64  ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                        : CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

enum cuvil_status cuvil_gpu_tensor_map_encode(
    struct cuvil_gpu *gpu, void *out, uint64_t address, int dtype, int rank,
    const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
    const uint32_t *element_strides, int swizzle, int l2_promotion) {
  (void)gpu;
  CUtensorMapDataType type;
  if (rank < 1 || rank > 5 || !map_type(dtype, &type))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "tensor map of rank %d and type %d", rank, dtype);
  cuuint64_t sizes[5], pitches[5];
  for (int i = 0; i < rank; i++)
    sizes[i] = dims[i];
  for (int i = 0; i + 1 < rank; i++)
    pitches[i] = strides[i];
  return CUVIL_CUDA(cuTensorMapEncodeTiled, out, type, (cuuint32_t)rank,
                    (void *)(uintptr_t)address, sizes, pitches, box,
                    element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    map_swizzle(swizzle), map_promotion(l2_promotion),
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
