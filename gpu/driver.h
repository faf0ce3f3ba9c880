/* driver.h - the CUDA driver as opened at run time; internal to gpu/.
 *
 * Symbols are asked for by their versioned names, those of CUDA 12.0 to 13, so
 * that a newer header does not ask an older driver for more than it has.
 */
#ifndef CUVIL_GPU_DRIVER_H_
#define CUVIL_GPU_DRIVER_H_

#include <cuda.h>

#include "gpu/gpu.h"

/* X(name, symbol, parameters); every function returns CUresult. */
#define CUVIL_DRIVER_LIST(X)                                                \
  X(cuInit, "cuInit", (unsigned))                                           \
  X(cuDriverGetVersion, "cuDriverGetVersion", (int *))                      \
  X(cuGetErrorName, "cuGetErrorName", (CUresult, const char **))            \
  X(cuGetErrorString, "cuGetErrorString", (CUresult, const char **))        \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int *))                          \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int))                          \
  X(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))            \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute",                           \
    (int *, CUdevice_attribute, CUdevice))                                  \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))          \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *, int, CUdevice))    \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                   \
    (CUcontext *, CUdevice))                                                \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))  \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                        \
  X(cuCtxSynchronize, "cuCtxSynchronize", (void))                           \
  X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                   \
  X(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                               \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))   \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))         \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                              \
    (CUdeviceptr, CUdeviceptr, size_t, CUstream))                           \
  X(cuMemsetD8Async, "cuMemsetD8Async",                                     \
    (CUdeviceptr, unsigned char, size_t, CUstream))                         \
  X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned))               \
  X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream))                      \
  X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                 \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))  \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2",                        \
    (CUstream, CUstreamCaptureMode))                                        \
  X(cuStreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *))        \
  X(cuEventCreate, "cuEventCreate", (CUevent *, unsigned))                  \
  X(cuEventDestroy, "cuEventDestroy_v2", (CUevent))                         \
  X(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                    \
  X(cuEventSynchronize, "cuEventSynchronize", (CUevent))                    \
  X(cuEventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent))  \
  X(cuGraphGetNodes, "cuGraphGetNodes", (CUgraph, CUgraphNode *, size_t *)) \
  X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags",             \
    (CUgraphExec *, CUgraph, unsigned long long))                           \
  X(cuGraphUpload, "cuGraphUpload", (CUgraphExec, CUstream))                \
  X(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))                \
  X(cuGraphDestroy, "cuGraphDestroy", (CUgraph))                            \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))                \
  X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *))       \
  X(cuModuleUnload, "cuModuleUnload", (CUmodule))                           \
  X(cuModuleGetFunction, "cuModuleGetFunction",                             \
    (CUfunction *, CUmodule, const char *))                                 \
  X(cuFuncGetAttribute, "cuFuncGetAttribute",                               \
    (int *, CUfunction_attribute, CUfunction))                              \
  X(cuFuncSetAttribute, "cuFuncSetAttribute",                               \
    (CUfunction, CUfunction_attribute, int))                                \
  X(cuLaunchKernelEx, "cuLaunchKernelEx",                                   \
    (const CUlaunchConfig *, CUfunction, void **, void **))                 \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                       \
    (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,                \
     const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,            \
     const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,         \
     CUtensorMapL2promotion, CUtensorMapFloatOOBfill))

struct cuvil_driver {
#define CUVIL_DRIVER_FIELD(name, symbol, parameters) CUresult(*name) parameters;
  CUVIL_DRIVER_LIST(CUVIL_DRIVER_FIELD)
#undef CUVIL_DRIVER_FIELD
};
extern struct cuvil_driver cuvil_driver;

/* Opens the driver once and keeps it. */
CUVIL_MUST_USE enum cuvil_status cuvil_driver_need(void);
/* A driver's answer as a status; `other` is the status of the answers that
 * have none of their own. */
enum cuvil_status cuvil_driver_status(CUresult result, const char *call,
                                      enum cuvil_status other, const char *file,
                                      int line);

/* CUVIL_CUDA(cuMemAlloc, &pointer, bytes): calls and translates. */
#define CUVIL_CUDA(name, ...)                                             \
  cuvil_driver_status(cuvil_driver.name(__VA_ARGS__), #name, CU_ERR_CUDA, \
                      __FILE__, __LINE__)
#define CUVIL_CUDA_GRAPH(name, ...)                          \
  cuvil_driver_status(cuvil_driver.name(__VA_ARGS__), #name, \
                      CU_ERR_GRAPH_BUILD_FAILED, __FILE__, __LINE__)
/* For destroying: nothing is left to do about a failure there. */
#define CUVIL_CUDA_QUIET(name, ...) ((void)cuvil_driver.name(__VA_ARGS__))

struct cuvil_gpu {
  CUdevice device;
  CUcontext context; /* the primary one, retained */
  struct cuvil_arch arch;
  struct cuvil_env env;
  struct cuvil_gpu_module *modules; /* loaded, each once (module.c) */
  void *nvml;                       /* NVML's device, or NULL */
  void *cublaslt; /* handles of the libraries, made when first needed */
  void *cudnn;
};

struct cuvil_gpu_stream {
  struct cuvil_gpu *gpu;
  CUstream handle;
  bool owned;
  /* The last thing put on the stream through this wrapper was one of our
   * kernels.  Only then may a kernel be launched programmatically: inside a
   * graph such an edge may only run from kernel to kernel. */
  bool after_kernel;
};

/* nvml.c */
void cuvil_nvml_attach(struct cuvil_gpu *gpu); /* fills env.driver too */
/* cublaslt.c, cudnn.c */
void cuvil_cublaslt_close(struct cuvil_gpu *gpu);
void cuvil_cudnn_close(struct cuvil_gpu *gpu);

#endif /* CUVIL_GPU_DRIVER_H_ */
