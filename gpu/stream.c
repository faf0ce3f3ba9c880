/* stream.c - streams, events, and graphs made by capturing a stream.
 *
 * Capture runs in relaxed mode: cuBLASLt, cuDNN and the driver load kernels
 * lazily, which the stricter modes forbid while capturing.  What we enqueue
 * ourselves never allocates there.
 */
#include <stdlib.h>

#include "gpu/driver.h"

struct cuvil_gpu_event {
  CUevent handle;
};

struct cuvil_gpu_graph {
  CUgraphExec handle;
  int nodes;
};

static enum cuvil_status make_stream(struct cuvil_gpu *gpu,
                                     struct cuvil_gpu_stream **out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "stream");
  (*out)->gpu = gpu;
  return CUVIL_OK;
}

enum cuvil_status cuvil_gpu_stream_create(struct cuvil_gpu *gpu,
                                          struct cuvil_gpu_stream **out) {
  CUVIL_TRY(make_stream(gpu, out));
  enum cuvil_status status =
      CUVIL_CUDA(cuStreamCreate, &(*out)->handle, CU_STREAM_NON_BLOCKING);
  if (status != CUVIL_OK) {
    free(*out);
    *out = NULL;
    return status;
  }
  (*out)->owned = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_gpu_stream_wrap(struct cuvil_gpu *gpu, void *cu_stream,
                                        struct cuvil_gpu_stream **out) {
  CUVIL_TRY(make_stream(gpu, out));
  (*out)->handle = cu_stream;
  return CUVIL_OK;
}

void cuvil_gpu_stream_destroy(struct cuvil_gpu_stream *stream) {
  if (!stream) return;
  if (stream->owned) CUVIL_CUDA_QUIET(cuStreamDestroy, stream->handle);
  free(stream);
}

void *cuvil_gpu_stream_handle(struct cuvil_gpu_stream *stream) {
  return stream->handle;
}

enum cuvil_status cuvil_gpu_stream_synchronize(
    struct cuvil_gpu_stream *stream) {
  return CUVIL_CUDA(cuStreamSynchronize, stream->handle);
}

enum cuvil_status cuvil_gpu_stream_wait(struct cuvil_gpu_stream *stream,
                                        struct cuvil_gpu_event *event) {
  stream->after_kernel = false;
  return CUVIL_CUDA(cuStreamWaitEvent, stream->handle, event->handle, 0);
}

enum cuvil_status cuvil_gpu_event_create(struct cuvil_gpu *gpu,
                                         struct cuvil_gpu_event **out) {
  (void)gpu;
  *out = calloc(1, sizeof **out);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "event");
  enum cuvil_status status =
      CUVIL_CUDA(cuEventCreate, &(*out)->handle, CU_EVENT_DEFAULT);
  if (status != CUVIL_OK) {
    free(*out);
    *out = NULL;
  }
  return status;
}

void cuvil_gpu_event_destroy(struct cuvil_gpu_event *event) {
  if (!event) return;
  CUVIL_CUDA_QUIET(cuEventDestroy, event->handle);
  free(event);
}

enum cuvil_status cuvil_gpu_event_record(struct cuvil_gpu_event *event,
                                         struct cuvil_gpu_stream *stream) {
  stream->after_kernel = false;
  return CUVIL_CUDA(cuEventRecord, event->handle, stream->handle);
}

enum cuvil_status cuvil_gpu_event_synchronize(struct cuvil_gpu_event *event) {
  return CUVIL_CUDA(cuEventSynchronize, event->handle);
}

enum cuvil_status cuvil_gpu_event_elapsed(struct cuvil_gpu_event *start,
                                          struct cuvil_gpu_event *end,
                                          double *out) {
  *out = 0;
  float milliseconds;
  CUVIL_TRY(CUVIL_CUDA(cuEventElapsedTime, &milliseconds, start->handle,
                       end->handle));
  *out = (double)milliseconds * 1e-3;
  return CUVIL_OK;
}

enum cuvil_status cuvil_gpu_capture_begin(struct cuvil_gpu_stream *stream) {
  stream->after_kernel = false;
  return CUVIL_CUDA_GRAPH(cuStreamBeginCapture, stream->handle,
                          CU_STREAM_CAPTURE_MODE_RELAXED);
}

static enum cuvil_status instantiate(CUgraph captured,
                                     struct cuvil_gpu_stream *stream,
                                     struct cuvil_gpu_graph *graph) {
  size_t nodes = 0;
  CUVIL_TRY(CUVIL_CUDA_GRAPH(cuGraphGetNodes, captured, NULL, &nodes));
  graph->nodes = (int)nodes;
  CUVIL_TRY(CUVIL_CUDA_GRAPH(cuGraphInstantiateWithFlags, &graph->handle,
                             captured, 0));
  return CUVIL_CUDA_GRAPH(cuGraphUpload, graph->handle, stream->handle);
}

enum cuvil_status cuvil_gpu_capture_end(struct cuvil_gpu_stream *stream,
                                        struct cuvil_gpu_graph **out) {
  *out = NULL;
  CUgraph captured = NULL;
  stream->after_kernel = false;
  enum cuvil_status status =
      CUVIL_CUDA_GRAPH(cuStreamEndCapture, stream->handle, &captured);
  if (status != CUVIL_OK) {
    if (captured) CUVIL_CUDA_QUIET(cuGraphDestroy, captured);
    return status;
  }
  struct cuvil_gpu_graph *graph = calloc(1, sizeof *graph);
  if (!graph)
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "graph");
  else
    status = instantiate(captured, stream, graph);
  CUVIL_CUDA_QUIET(cuGraphDestroy, captured);
  if (status != CUVIL_OK) {
    cuvil_gpu_graph_destroy(graph);
    return status;
  }
  *out = graph;
  return CUVIL_OK;
}

void cuvil_gpu_capture_abandon(struct cuvil_gpu_stream *stream) {
  CUgraph captured = NULL;
  stream->after_kernel = false;
  CUVIL_CUDA_QUIET(cuStreamEndCapture, stream->handle, &captured);
  if (captured) CUVIL_CUDA_QUIET(cuGraphDestroy, captured);
}

enum cuvil_status cuvil_gpu_graph_launch(struct cuvil_gpu_graph *graph,
                                         struct cuvil_gpu_stream *stream) {
  stream->after_kernel = false;
  return CUVIL_CUDA(cuGraphLaunch, graph->handle, stream->handle);
}

int cuvil_gpu_graph_nodes(const struct cuvil_gpu_graph *graph) {
  return graph->nodes;
}

void cuvil_gpu_graph_destroy(struct cuvil_gpu_graph *graph) {
  if (!graph) return;
  if (graph->handle) CUVIL_CUDA_QUIET(cuGraphExecDestroy, graph->handle);
  free(graph);
}
