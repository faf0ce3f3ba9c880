/* gpu.h - the device in hand, behind thin wrappers.
 *
 * All vendor code is in this folder; no vendor header is included here.  The
 * driver (libcuda.so.1, or the file that $CUVIL_CUDA_DRIVER names) and the
 * libraries are opened when first needed; a missing one is named together with
 * what needed it.  A failing driver call becomes CU_ERR_CUDA with the call's
 * name and the driver's own words; CUDA_ERROR_OUT_OF_MEMORY becomes
 * CU_ERR_DEVICE_MEMORY, a launch time-out CU_ERR_CUDA_LAUNCH_TIMEOUT.
 *
 * Device addresses are uint64_t.  One cuvil_gpu per process and device; its
 * primary context is current on the thread that opened it.
 */
#ifndef CUVIL_GPU_GPU_H_
#define CUVIL_GPU_GPU_H_

#include "base/arch.h"
#include "base/env.h"
#include "base/json.h"
#include "base/status.h"

struct cuvil_gpu;
struct cuvil_gpu_stream;
struct cuvil_gpu_event;
struct cuvil_gpu_module;
struct cuvil_gpu_function;
struct cuvil_gpu_graph; /* instantiated */

/* ---- device.c */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_open(int ordinal,
                                                struct cuvil_gpu **out);
void cuvil_gpu_close(struct cuvil_gpu *gpu);
/* Limits read from the driver over the table of base/arch. */
const struct cuvil_arch *cuvil_gpu_arch(const struct cuvil_gpu *gpu);
/* Library versions are looked up too; an absent library leaves "". */
const struct cuvil_env *cuvil_gpu_env(const struct cuvil_gpu *gpu);
/* Makes the GPU's context current on the calling thread (another than the one
 * that opened it). */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_make_current(struct cuvil_gpu *gpu);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_synchronize(struct cuvil_gpu *gpu);

/* ---- memory.c */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_alloc(struct cuvil_gpu *gpu,
                                                 uint64_t bytes,
                                                 uint64_t *out_address);
void cuvil_gpu_free(struct cuvil_gpu *gpu, uint64_t address); /* 0: nothing */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_upload(struct cuvil_gpu *gpu,
                                                  uint64_t to, const void *from,
                                                  uint64_t bytes);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_download(struct cuvil_gpu *gpu,
                                                    void *to, uint64_t from,
                                                    uint64_t bytes);
/* stream NULL: synchronous. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_memset(
    struct cuvil_gpu *gpu, uint64_t to, int byte, uint64_t bytes,
    struct cuvil_gpu_stream *stream);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_copy(
    struct cuvil_gpu *gpu, uint64_t to, uint64_t from, uint64_t bytes,
    struct cuvil_gpu_stream *stream);

/* ---- stream.c: streams, events, graphs */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_stream_create(
    struct cuvil_gpu *gpu, struct cuvil_gpu_stream **out);
/* Wraps a CUstream of the caller's; not destroyed with the wrapper. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_stream_wrap(
    struct cuvil_gpu *gpu, void *cu_stream, struct cuvil_gpu_stream **out);
void cuvil_gpu_stream_destroy(struct cuvil_gpu_stream *stream);
void *cuvil_gpu_stream_handle(struct cuvil_gpu_stream *stream);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_stream_synchronize(
    struct cuvil_gpu_stream *stream);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_stream_wait(
    struct cuvil_gpu_stream *stream, struct cuvil_gpu_event *event);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_event_create(
    struct cuvil_gpu *gpu, struct cuvil_gpu_event **out);
void cuvil_gpu_event_destroy(struct cuvil_gpu_event *event);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_event_record(
    struct cuvil_gpu_event *event, struct cuvil_gpu_stream *stream);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_event_synchronize(
    struct cuvil_gpu_event *event);
/* Seconds between two recorded, completed events. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_event_elapsed(
    struct cuvil_gpu_event *start, struct cuvil_gpu_event *end, double *out);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_capture_begin(
    struct cuvil_gpu_stream *stream);
/* Ends the capture and instantiates; on failure the capture is ended too. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_capture_end(
    struct cuvil_gpu_stream *stream, struct cuvil_gpu_graph **out);
void cuvil_gpu_capture_abandon(struct cuvil_gpu_stream *stream);
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_graph_launch(
    struct cuvil_gpu_graph *graph, struct cuvil_gpu_stream *stream);
int cuvil_gpu_graph_nodes(const struct cuvil_gpu_graph *graph);
void cuvil_gpu_graph_destroy(struct cuvil_gpu_graph *graph);

/* ---- module.c */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_module_load(
    struct cuvil_gpu *gpu, const void *cubin, size_t size,
    struct cuvil_gpu_module **out);
void cuvil_gpu_module_unload(struct cuvil_gpu_module *module);
/* Raises the dynamic shared-memory limit and, where cluster > 8, allows the
 * non-portable size.  The function lives as long as its module. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_module_function(
    struct cuvil_gpu_module *module, const char *entry, uint32_t shared_bytes,
    uint32_t cluster_blocks, struct cuvil_gpu_function **out);
struct cuvil_gpu_launch {
  uint32_t grid[3], block[3], cluster[3];
  uint32_t shared_bytes;
  bool programmatic;
};
/* args: as cuLaunchKernelEx takes them.  `programmatic` is honoured only where
 * the stream's last work, as put there through this wrapper, was a kernel. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_launch(
    struct cuvil_gpu_function *function, const struct cuvil_gpu_launch *launch,
    void **args, struct cuvil_gpu_stream *stream);
struct cuvil_gpu_function_info {
  int registers, local_bytes, static_shared, max_threads;
};
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_function_info(
    struct cuvil_gpu_function *function, struct cuvil_gpu_function_info *out);
/* out: 128 bytes, 64-aligned; see runtime/program.h for the fields. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_tensor_map_encode(
    struct cuvil_gpu *gpu, void *out, uint64_t address, int dtype, int rank,
    const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
    const uint32_t *element_strides, int swizzle, int l2_promotion);

/* ---- nvrtc.c: needs no GPU */
struct cuvil_compile_result {
  void *cubin; /* owned; freed by cuvil_compile_result_free */
  size_t cubin_size;
  char *log;       /* owned, never NULL after a call */
  int registers;   /* per thread, of the entry with most; from ptxas -v */
  int spill_bytes; /* stores and loads */
  int stack_bytes;
  int static_shared;
  double seconds;
};
/* options: space-separated, or NULL.  CU_ERR_KERNEL_COMPILE: see log. */
CUVIL_MUST_USE enum cuvil_status cuvil_nvrtc_compile(
    const char *source, const char *arch, const char *options,
    struct cuvil_compile_result *out);
void cuvil_compile_result_free(struct cuvil_compile_result *result);
CUVIL_MUST_USE enum cuvil_status cuvil_nvrtc_version(char *out, size_t size);

/* ---- nvml.c: optional; absent values are -1 */
struct cuvil_gpu_clocks {
  int sm_mhz, memory_mhz;
  double power_watts, temperature;
  int64_t throttle_reasons; /* NVML clocks event reasons, a bit mask */
};
void cuvil_gpu_clocks(struct cuvil_gpu *gpu, struct cuvil_gpu_clocks *out);

/* ---- cublaslt.c and cudnn.c: library steps.
 * A call is a JSON object of the schema in library.h; prepare turns it into
 * descriptors once; run enqueues it. */
struct cuvil_library_call;
CUVIL_MUST_USE enum cuvil_status cuvil_library_prepare(
    struct cuvil_gpu *gpu, const char *library, const json_t *call,
    struct cuvil_library_call **out);
void cuvil_library_call_destroy(struct cuvil_library_call *call);
/* addresses in the order of the schema's bindings; workspace last, 0 when
 * none. */
CUVIL_MUST_USE enum cuvil_status cuvil_library_run(
    struct cuvil_library_call *call, const uint64_t *addresses, int count,
    struct cuvil_gpu_stream *stream);
/* Choices of the library for a call without "algorithm": an array of call
 * objects, complete with algorithm (or engine and knobs) and "workspace"
 * bytes, the library's first choice first, at most `limit`. */
CUVIL_MUST_USE enum cuvil_status cuvil_library_choices(struct cuvil_gpu *gpu,
                                                       const char *library,
                                                       const json_t *call,
                                                       int limit, json_t **out);
/* Empty text when the library is absent. */
void cuvil_library_version(const char *library, char *out, size_t size);

#endif /* CUVIL_GPU_GPU_H_ */
