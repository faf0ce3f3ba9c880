/* cudnn.h - internal to gpu/: the operation graph of a convolution
 * (cudnn_graph.c) or an attention (cudnn_attention.c) and what is done with it
 * (cudnn.c). */
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

enum { DNN_MAX_DESCRIPTORS = 80, DNN_MAX_POINTERS = 5, DNN_MAX_CONSTANTS = 4 };

/* What a call of sdpa_fwd says; tensors' dimensions are batch, head, row,
 * element. */
struct dnn_attention {
  int64_t b, hq, hkv, sq, skv, d, dv;
  int64_t q_strides[4], k_strides[4], v_strides[4], o_strides[4];
  bool causal, mask;
  int mask_type;
  int64_t mask_dims[4], mask_strides[4]; /* dims: whole or 1 */
  float scale;
};

/* The operation of a call as cuDNN's operation graph. */
struct dnn_graph {
  bool is_attention;
  struct dnn_attention attention;
  /* a convolution */
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
  /* Tensors of one element that are passed by value. */
  union {
    float real;
    int32_t integer;
  } constants[DNN_MAX_CONSTANTS];
  int64_t constant_ids[DNN_MAX_CONSTANTS];
  int constant_count;
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
/* ---- pieces of a graph; each is the graph's own */
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_graph_create(struct dnn_graph *graph,
                                                        int kind, void **out);
enum dnn_place { DNN_IN_MEMORY, DNN_VIRTUAL, DNN_BY_VALUE };
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_graph_tensor(
    struct dnn_graph *graph, int64_t id, int type, enum dnn_place place,
    const int64_t *dims, const int64_t *strides, void **out);
/* A finished operation over descriptors, those that are NULL left out. */
struct dnn_part {
  int attribute;
  void *value;
};
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_graph_operation(
    struct dnn_graph *graph, int kind, const struct dnn_part *parts, int count,
    const char *what, void **out);
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_graph_finish(struct dnn_graph *graph,
                                                        void *const *operations,
                                                        int count);
/* ---- cudnn_attention.c */
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_attention_read(
    const json_t *call, struct dnn_graph *out);
CUVIL_MUST_USE enum cuvil_status cuvil_dnn_attention_build(
    struct dnn_graph *graph);
void cuvil_dnn_graph_free(struct dnn_graph *graph);

#endif /* CUVIL_GPU_CUDNN_H_ */
