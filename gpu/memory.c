/* memory.c - device memory.
 *
 * Our streams do not synchronize with the default stream, and a host copy may
 * return while its last part is still on the way; so the synchronous calls
 * here wait for the device before and for the default stream after.  They are
 * for loading and looking, never for a timed path.
 */
#include "gpu/driver.h"

enum cuvil_status cuvil_gpu_alloc(struct cuvil_gpu *gpu, uint64_t bytes,
                                  uint64_t *out_address) {
  (void)gpu;
  *out_address = 0;
  CUdeviceptr address;
  /* An address is wanted for nothing too; the driver gives none for 0. */
  enum cuvil_status status =
      CUVIL_CUDA(cuMemAlloc, &address, (size_t)(bytes ? bytes : 256));
  if (status == CU_ERR_DEVICE_MEMORY)
    return CUVIL_FAIL(status, "%llu bytes of device memory: %s",
                      (unsigned long long)bytes, cuvil_error_last()->message);
  if (status == CUVIL_OK) *out_address = address;
  return status;
}

void cuvil_gpu_free(struct cuvil_gpu *gpu, uint64_t address) {
  (void)gpu;
  if (address) CUVIL_CUDA_QUIET(cuMemFree, address);
}

enum cuvil_status cuvil_gpu_upload(struct cuvil_gpu *gpu, uint64_t to,
                                   const void *from, uint64_t bytes) {
  if (bytes == 0) return CUVIL_OK;
  CUVIL_TRY(cuvil_gpu_synchronize(gpu));
  CUVIL_TRY(CUVIL_CUDA(cuMemcpyHtoD, to, from, (size_t)bytes));
  return CUVIL_CUDA(cuStreamSynchronize, NULL);
}

enum cuvil_status cuvil_gpu_download(struct cuvil_gpu *gpu, void *to,
                                     uint64_t from, uint64_t bytes) {
  if (bytes == 0) return CUVIL_OK;
  CUVIL_TRY(cuvil_gpu_synchronize(gpu));
  return CUVIL_CUDA(cuMemcpyDtoH, to, from, (size_t)bytes);
}

enum cuvil_status cuvil_gpu_memset(struct cuvil_gpu *gpu, uint64_t to, int byte,
                                   uint64_t bytes,
                                   struct cuvil_gpu_stream *stream) {
  if (bytes == 0) return CUVIL_OK;
  if (!stream) CUVIL_TRY(cuvil_gpu_synchronize(gpu));
  if (stream) stream->after_kernel = false;
  CUstream handle = stream ? stream->handle : NULL;
  CUVIL_TRY(CUVIL_CUDA(cuMemsetD8Async, to, (unsigned char)byte, (size_t)bytes,
                       handle));
  return stream ? CUVIL_OK : CUVIL_CUDA(cuStreamSynchronize, NULL);
}

enum cuvil_status cuvil_gpu_copy(struct cuvil_gpu *gpu, uint64_t to,
                                 uint64_t from, uint64_t bytes,
                                 struct cuvil_gpu_stream *stream) {
  if (bytes == 0) return CUVIL_OK;
  if (!stream) CUVIL_TRY(cuvil_gpu_synchronize(gpu));
  if (stream) stream->after_kernel = false;
  CUstream handle = stream ? stream->handle : NULL;
  CUVIL_TRY(CUVIL_CUDA(cuMemcpyDtoDAsync, to, from, (size_t)bytes, handle));
  return stream ? CUVIL_OK : CUVIL_CUDA(cuStreamSynchronize, NULL);
}
