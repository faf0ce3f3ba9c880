/* cudnn.h - internal to gpu/: the operation graph of a convolution
 * (cudnn_graph.c) and what is done with it (cudnn.c). */
#ifndef CUVIL_GPU_CUDNN_H_
#define CUVIL_GPU_CUDNN_H_

#include "gpu/cudnn_abi.h"
#include "gpu/library.h"

/* X(name, result, parameters) */
#define DNN_LIST(X)                                                           \
  X(cudnnGetVersion, size_t, (void))                                          \
  X(cudnnGetErrorString, const char *, (int))                                 \
  X(cudnnGetLastErrorString, void, (char *, size_t))                          \
  X(cudnnCreate, int, (void **))                                              \
  X(cudnnDestroy, int, (void *))                                              \
  X(cudnnSetStream, int, (void *, void *))                                    \
  X(cudnnBackendCreateDescriptor, int, (int, void **))                        \
  X(cudnnBackendDestroyDescriptor, int, (void *))                             \
  X(cudnnBackendFinalize, int, (void *))                                      \
  X(cudnnBackendSetAttribute, int, (void *, int, int, int64_t, const void *)) \
  X(cudnnBackendGetAttribute, int,                                            \
    (void *, int, int, int64_t, int64_t *, void *))                           \
  X(cudnnBackendExecute, int, (void *, void *, void *))

struct dnn {
#define DNN_FIELD(name, result, parameters) result(*name) parameters;
  DNN_LIST(DNN_FIELD)
#undef DNN_FIELD
};
extern struct dnn cuvil_dnn;

enum { DNN_MAX_DESCRIPTORS = 32, DNN_MAX_POINTERS = 5 };

/* The convolution of a call as cuDNN's operation graph. */
struct dnn_graph {
  int64_t n, c, h, w, k, r, s, p, q, group;
  int64_t stride[2], pad[4], dilation[2];
  int64_t x_strides[4], w_strides[4], y_strides[4]; /* as the call says them */
  int type;                                         /* of all operands */
  bool tf32, bias, residual, relu;
  void *handle;                           /* the GPU's, borrowed */
  void *descriptors[DNN_MAX_DESCRIPTORS]; /* owned, destroyed last first */
  int descriptor_count;
  void *graph; /* one of them */
  /* Tensor ids in the order of the bindings. */
  int64_t ids[DNN_MAX_POINTERS];
  int id_count;
};

enum cuvil_status cuvil_dnn_status(int result, const char *what);
/* A descriptor that `graph` owns; attributes; finalize. */
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_create(int kind, void **out);
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_set(void *descriptor, int attribute,
                                               int type, int64_t count,
                                               const void *values);
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_finalize(void *descriptor,
                                                    const char *what);
void cuvil_dnn_destroy(void *descriptor); /* NULL: nothing */

CUVIL_MUST_USE enum cuvil_status cuvil_dnn_graph_read(const json_t *call,
                                                      struct dnn_graph *out);
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_graph_build(struct dnn_graph *graph);
void cuvil_dnn_graph_free(struct dnn_graph *graph);

#endif /* CUVIL_GPU_CUDNN_H_ */
