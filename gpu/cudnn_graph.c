/* cudnn_graph.c - a convolution with its epilogue as cuDNN's operation graph.
 *
 *   x, w -> conv -> [+ residual] -> [+ bias] -> [relu] -> y
 *
 * Everything between is a virtual fp32 tensor: what cuDNN fuses stays in
 * registers, and our epilogue is fp32 too.  Dimensions are given in cuDNN's
 * order (n, c, h, w), the strides say that memory is NHWC.  Residual before
 * bias is the order of cuDNN's own fused kernels (cuDNN developer guide,
 * "Pre-compiled Single Operation Engines" and "Specialized Pre-compiled
 * Engines": ConvBiasAct); the sum is the same within fp32 rounding.
 */
#include <string.h>

#include "base/dtype.h"
#include "gpu/cudnn.h"

enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_RESIDUAL, ID_VIRTUAL };

/* ---- reading the call */

static enum cuvil_status read_type(const json_t *call, struct dnn_graph *out) {
  int dtype;
  CUVIL_TRY(cuvil_call_dtype(call, "dtype", &dtype));
  if (dtype == CUVIL_F32)
    out->type = DNN_FLOAT;
  else if (dtype == CUVIL_F16)
    out->type = DNN_HALF;
  else if (dtype == CUVIL_BF16)
    out->type = DNN_BFLOAT16;
  else
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuDNN convolution of type %s",
                      cuvil_dtype_name((enum cuvil_dtype)dtype));
  return CUVIL_OK;
}

static enum cuvil_status read_extents(const json_t *call,
                                      struct dnn_graph *out) {
  const struct {
    const char *key;
    int64_t *out;
  } extents[] = {{"n", &out->n}, {"c", &out->c}, {"h", &out->h}, {"w", &out->w},
                 {"k", &out->k}, {"r", &out->r}, {"s", &out->s}};
  for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
    CUVIL_TRY(
        cuvil_call_int(call, extents[i].key, 0, 1, INT32_MAX, extents[i].out));
  CUVIL_TRY(cuvil_call_int(call, "group", 1, 1, INT32_MAX, &out->group));
  if (out->c % out->group != 0 || out->k % out->group != 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "library call: %lld groups of %lld and %lld channels",
                      (long long)out->group, (long long)out->c,
                      (long long)out->k);
  return CUVIL_OK;
}

static enum cuvil_status read_window(const json_t *call,
                                     struct dnn_graph *out) {
  bool present;
  const int64_t window[2] = {out->r, out->s}, size[2] = {out->h, out->w};
  int64_t output[2];
  for (int i = 0; i < 2; i++)
    out->stride[i] = out->dilation[i] = 1;
  CUVIL_TRY(cuvil_call_ints(call, "stride", 2, out->stride, &present));
  CUVIL_TRY(cuvil_call_ints(call, "dil", 2, out->dilation, &present));
  CUVIL_TRY(cuvil_call_ints(call, "pad", 4, out->pad, &present));
  for (int i = 0; i < 2; i++) {
    int64_t before = out->pad[i], after = out->pad[i + 2];
    if (out->stride[i] < 1 || out->dilation[i] < 1 || before < 0 || after < 0 ||
        out->stride[i] > INT32_MAX || out->dilation[i] > INT32_MAX ||
        before > INT32_MAX || after > INT32_MAX)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "library call: stride, dil or pad out of range");
    int64_t room =
        size[i] + before + after - out->dilation[i] * (window[i] - 1) - 1;
    if (room < 0)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "library call: the window is larger than its input");
    output[i] = room / out->stride[i] + 1;
  }
  out->p = output[0];
  out->q = output[1];
  return CUVIL_OK;
}

static void pack(const int64_t *sizes, int64_t *strides) {
  strides[3] = 1;
  for (int i = 2; i >= 0; i--)
    strides[i] = strides[i + 1] * sizes[i + 1];
}

static enum cuvil_status read_strides(const json_t *call,
                                      struct dnn_graph *out) {
  bool present;
  const int64_t x[4] = {out->n, out->h, out->w, out->c};
  const int64_t w[4] = {out->k, out->r, out->s, out->c / out->group};
  const int64_t y[4] = {out->n, out->p, out->q, out->k};
  pack(x, out->x_strides);
  pack(w, out->w_strides);
  pack(y, out->y_strides);
  CUVIL_TRY(cuvil_call_ints(call, "x_strides", 4, out->x_strides, &present));
  CUVIL_TRY(cuvil_call_ints(call, "w_strides", 4, out->w_strides, &present));
  return cuvil_call_ints(call, "y_strides", 4, out->y_strides, &present);
}

enum cuvil_status cuvil_dnn_graph_read(const json_t *call,
                                       struct dnn_graph *out) {
  const char *op, *activation = "none";
  memset(out, 0, sizeof *out);
  CUVIL_TRY(cuvil_json_get_string(call, "op", "library call", &op));
  if (strcmp(op, "sdpa_fwd") == 0) return cuvil_dnn_attention_read(call, out);
  if (strcmp(op, "conv_fwd") != 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuDNN operation \"%.20s\"", op);
  CUVIL_TRY(read_type(call, out));
  CUVIL_TRY(read_extents(call, out));
  CUVIL_TRY(read_window(call, out));
  CUVIL_TRY(read_strides(call, out));
  if (json_object_get(call, "activation"))
    CUVIL_TRY(
        cuvil_json_get_string(call, "activation", "library call", &activation));
  out->relu = strcmp(activation, "relu") == 0;
  if (!out->relu && strcmp(activation, "none") != 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuDNN activation \"%.20s\"",
                      activation);
  out->bias = json_is_true(json_object_get(call, "bias"));
  out->residual = json_is_true(json_object_get(call, "residual"));
  out->tf32 = json_is_true(json_object_get(call, "tf32"));
  return CUVIL_OK;
}

/* ---- building the graph */

enum cuvil_status cuvil_dnn_graph_create(struct dnn_graph *graph, int kind,
                                         void **out) {
  CUVIL_CHECK(graph->descriptor_count < DNN_MAX_DESCRIPTORS);
  CUVIL_TRY(cuvil_dnn_create(kind, out));
  graph->descriptors[graph->descriptor_count++] = *out;
  return CUVIL_OK;
}

enum cuvil_status cuvil_dnn_graph_tensor(struct dnn_graph *graph, int64_t id,
                                         int type, enum dnn_place place,
                                         const int64_t *dims,
                                         const int64_t *strides, void **out) {
  const int64_t alignment = 16;
  const bool yes = true;
  CUVIL_TRY(cuvil_dnn_graph_create(graph, DNN_TENSOR, out));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE,
                          1, &type));
  CUVIL_TRY(
      cuvil_dnn_set(*out, DNN_ATTR_TENSOR_DIMENSIONS, DNN_TYPE_INT64, 4, dims));
  CUVIL_TRY(
      cuvil_dnn_set(*out, DNN_ATTR_TENSOR_STRIDES, DNN_TYPE_INT64, 4, strides));
  CUVIL_TRY(
      cuvil_dnn_set(*out, DNN_ATTR_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, 1, &id));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_TENSOR_BYTE_ALIGNMENT, DNN_TYPE_INT64,
                          1, &alignment));
  if (place != DNN_IN_MEMORY)
    CUVIL_TRY(cuvil_dnn_set(*out,
                            place == DNN_VIRTUAL ? DNN_ATTR_TENSOR_IS_VIRTUAL
                                                 : DNN_ATTR_TENSOR_IS_BY_VALUE,
                            DNN_TYPE_BOOLEAN, 1, &yes));
  return cuvil_dnn_finalize(*out, "tensor");
}

enum cuvil_status cuvil_dnn_graph_operation(struct dnn_graph *graph, int kind,
                                            const struct dnn_part *parts,
                                            int count, const char *what,
                                            void **out) {
  CUVIL_TRY(cuvil_dnn_graph_create(graph, kind, out));
  for (int i = 0; i < count; i++)
    if (parts[i].value)
      CUVIL_TRY(cuvil_dnn_set(*out, parts[i].attribute, DNN_TYPE_DESCRIPTOR, 1,
                              &parts[i].value));
  return cuvil_dnn_finalize(*out, what);
}

enum cuvil_status cuvil_dnn_graph_finish(struct dnn_graph *graph,
                                         void *const *operations, int count) {
  CUVIL_TRY(cuvil_dnn_graph_create(graph, DNN_OPERATIONGRAPH, &graph->graph));
  CUVIL_TRY(cuvil_dnn_set(graph->graph, DNN_ATTR_GRAPH_HANDLE, DNN_TYPE_HANDLE,
                          1, &graph->handle));
  CUVIL_TRY(cuvil_dnn_set(graph->graph, DNN_ATTR_GRAPH_OPS, DNN_TYPE_DESCRIPTOR,
                          count, operations));
  return cuvil_dnn_finalize(graph->graph, "operation graph");
}

/* dims in cuDNN's order; strides as the call has them, channels last. */
static enum cuvil_status tensor(struct dnn_graph *graph, int64_t id, int type,
                                bool is_virtual, const int64_t *dims,
                                const int64_t *channels_last, void **out) {
  const int64_t strides[4] = {channels_last[0], channels_last[3],
                              channels_last[1], channels_last[2]};
  return cuvil_dnn_graph_tensor(graph, id, type,
                                is_virtual ? DNN_VIRTUAL : DNN_IN_MEMORY, dims,
                                strides, out);
}

/* What an operation writes: y itself when it is the last, else virtual. */
static enum cuvil_status result(struct dnn_graph *graph, bool last,
                                int64_t *next_virtual, void **out) {
  const int64_t dims[4] = {graph->n, graph->k, graph->p, graph->q};
  int64_t id = last ? ID_Y : (*next_virtual)++;
  return tensor(graph, id, last ? graph->type : DNN_FLOAT, !last, dims,
                graph->y_strides, out);
}

static enum cuvil_status convolution(struct dnn_graph *graph, void **out) {
  const int type = DNN_FLOAT, mode = DNN_CROSS_CORRELATION;
  const int64_t rank = 2;
  CUVIL_TRY(cuvil_dnn_graph_create(graph, DNN_CONVOLUTION, out));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_COMP_TYPE,
                          DNN_TYPE_DATA_TYPE, 1, &type));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_CONV_MODE,
                          DNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
                          DNN_TYPE_INT64, 1, &rank));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_DILATIONS, DNN_TYPE_INT64,
                          2, graph->dilation));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                          DNN_TYPE_INT64, 2, graph->stride));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                          DNN_TYPE_INT64, 2, graph->pad));
  CUVIL_TRY(cuvil_dnn_set(*out, DNN_ATTR_CONVOLUTION_POST_PADDINGS,
                          DNN_TYPE_INT64, 2, graph->pad + 2));
  return cuvil_dnn_finalize(*out, "convolution");
}

static enum cuvil_status convolution_op(struct dnn_graph *graph, void *y,
                                        void **out) {
  const int64_t x_dims[4] = {graph->n, graph->c, graph->h, graph->w};
  const int64_t w_dims[4] = {graph->k, graph->c / graph->group, graph->r,
                             graph->s};
  const float one = 1, zero = 0;
  void *x, *w, *desc;
  CUVIL_TRY(
      tensor(graph, ID_X, graph->type, false, x_dims, graph->x_strides, &x));
  CUVIL_TRY(
      tensor(graph, ID_W, graph->type, false, w_dims, graph->w_strides, &w));
  CUVIL_TRY(convolution(graph, &desc));
  CUVIL_TRY(cuvil_dnn_graph_create(graph, DNN_OP_CONVOLUTION_FORWARD, out));
  const struct {
    int attribute;
    void *value;
  } parts[] = {{DNN_ATTR_OP_CONV_X, x},
               {DNN_ATTR_OP_CONV_W, w},
               {DNN_ATTR_OP_CONV_Y, y},
               {DNN_ATTR_OP_CONV_DESC, desc}};
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(cuvil_dnn_set(*out, parts[i].attribute, DNN_TYPE_DESCRIPTOR, 1,
                            &parts[i].value));
  CUVIL_TRY(
      cuvil_dnn_set(*out, DNN_ATTR_OP_CONV_ALPHA, DNN_TYPE_FLOAT, 1, &one));
  CUVIL_TRY(
      cuvil_dnn_set(*out, DNN_ATTR_OP_CONV_BETA, DNN_TYPE_FLOAT, 1, &zero));
  return cuvil_dnn_finalize(*out, "convolution operation");
}

/* y = mode(x, b), in fp32; b NULL for one operand. */
static enum cuvil_status pointwise_op(struct dnn_graph *graph, int mode,
                                      void *x, void *b, void *y, void **out) {
  const int type = DNN_FLOAT;
  void *desc;
  CUVIL_TRY(cuvil_dnn_graph_create(graph, DNN_POINTWISE, &desc));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_POINTWISE_MODE,
                          DNN_TYPE_POINTWISE_MODE, 1, &mode));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_POINTWISE_MATH_PREC,
                          DNN_TYPE_DATA_TYPE, 1, &type));
  CUVIL_TRY(cuvil_dnn_finalize(desc, "pointwise"));
  const struct dnn_part parts[] = {{DNN_ATTR_OP_POINTWISE_DESC, desc},
                                   {DNN_ATTR_OP_POINTWISE_X, x},
                                   {DNN_ATTR_OP_POINTWISE_B, b},
                                   {DNN_ATTR_OP_POINTWISE_Y, y}};
  return cuvil_dnn_graph_operation(graph, DNN_OP_POINTWISE, parts, 4,
                                   "pointwise operation", out);
}

enum cuvil_status cuvil_dnn_graph_build(struct dnn_graph *graph) {
  if (graph->is_attention) return cuvil_dnn_attention_build(graph);
  const int64_t y_dims[4] = {graph->n, graph->k, graph->p, graph->q};
  const int64_t bias_dims[4] = {1, graph->k, 1, 1};
  const int64_t bias_strides[4] = {graph->k, graph->k, graph->k, 1};
  int64_t next_virtual = ID_VIRTUAL;
  void *ops[4], *value, *side, *next;
  int count = 0, left = graph->residual + graph->bias + graph->relu;
  CUVIL_TRY(result(graph, left == 0, &next_virtual, &value));
  CUVIL_TRY(convolution_op(graph, value, &ops[count++]));
  if (graph->residual) {
    CUVIL_TRY(tensor(graph, ID_RESIDUAL, graph->type, false, y_dims,
                     graph->y_strides, &side));
    CUVIL_TRY(result(graph, --left == 0, &next_virtual, &next));
    CUVIL_TRY(pointwise_op(graph, DNN_POINTWISE_ADD, value, side, next,
                           &ops[count++]));
    value = next;
  }
  if (graph->bias) {
    CUVIL_TRY(tensor(graph, ID_BIAS, graph->type, false, bias_dims,
                     bias_strides, &side));
    CUVIL_TRY(result(graph, --left == 0, &next_virtual, &next));
    CUVIL_TRY(pointwise_op(graph, DNN_POINTWISE_ADD, value, side, next,
                           &ops[count++]));
    value = next;
  }
  if (graph->relu) {
    CUVIL_TRY(result(graph, true, &next_virtual, &next));
    CUVIL_TRY(pointwise_op(graph, DNN_POINTWISE_RELU_FWD, value, NULL, next,
                           &ops[count++]));
  }
  graph->ids[graph->id_count++] = ID_X;
  graph->ids[graph->id_count++] = ID_W;
  graph->ids[graph->id_count++] = ID_Y;
  if (graph->bias) graph->ids[graph->id_count++] = ID_BIAS;
  if (graph->residual) graph->ids[graph->id_count++] = ID_RESIDUAL;
  return cuvil_dnn_graph_finish(graph, ops, count);
}

void cuvil_dnn_graph_free(struct dnn_graph *graph) {
  while (graph->descriptor_count > 0)
    cuvil_dnn_destroy(graph->descriptors[--graph->descriptor_count]);
  graph->graph = NULL;
}
