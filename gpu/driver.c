/* driver.c - opens the CUDA driver, and puts its answers into our words. */
#include "gpu/driver.h"

#include <pthread.h>

#include "gpu/dynamic.h"

struct cuvil_driver cuvil_driver;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static enum cuvil_status load(void) {
  static const char *const files[] = {"libcuda.so.1", NULL};
  static const char *const names[] = {
#define NAME(name, symbol, parameters) symbol,
      CUVIL_DRIVER_LIST(NAME)
#undef NAME
  };
  enum { COUNT = sizeof names / sizeof *names };
  void *handle, *pointers[COUNT];
  enum cuvil_status status =
      cuvil_dynamic_open(files, "CUVIL_CUDA_DRIVER", "using a GPU", &handle);
  if (status == CUVIL_OK)
    status = cuvil_dynamic_symbols(handle, "the CUDA driver", names, pointers,
                                   COUNT);
  if (status != CUVIL_OK)
    return CUVIL_FAIL(CU_ERR_NO_DEVICE, "no usable GPU: %s",
                      cuvil_error_last()->message);
  int at = 0;
#define STORE(name, symbol, parameters) \
  cuvil_driver.name = (CUresult(*) parameters)pointers[at++];
  CUVIL_DRIVER_LIST(STORE)
#undef STORE
  loaded = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_driver_need(void) {
  pthread_mutex_lock(&load_lock);
  enum cuvil_status status = loaded ? CUVIL_OK : load();
  pthread_mutex_unlock(&load_lock);
  return status;
}

static enum cuvil_status classify(CUresult result, enum cuvil_status other) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return CU_ERR_DEVICE_MEMORY;
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return CU_ERR_CUDA_LAUNCH_TIMEOUT;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_STUB_LIBRARY:
      return CU_ERR_NO_DEVICE;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return CU_ERR_ARCH_MISMATCH;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      return CU_ERR_GRAPH_BUILD_FAILED;
    default:
      return other;
  }
}

enum cuvil_status cuvil_driver_status(CUresult result, const char *call,
                                      enum cuvil_status other, const char *file,
                                      int line) {
  if (result == CUDA_SUCCESS) return CUVIL_OK;
  const char *name = NULL, *text = NULL;
  cuvil_driver.cuGetErrorName(result, &name);
  cuvil_driver.cuGetErrorString(result, &text);
  return cuvil_fail_at(file, line, classify(result, other), "%s: %s (%d): %s",
                       call, name ? name : "unknown result", (int)result,
                       text ? text : "the driver has no words for it");
}
