/* The operator table, and what rows share: finding inputs, reading constant
 * ones, axes and broadcasting.
 */
#include "graph/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define V CUVIL_OP_VIEW
#define F CUVIL_OP_FOLD
#define R CUVIL_OP_FLOAT /* a real (floating point) operator */
#define ROW(name, first, low, high, outputs, flags, attributes, function, \
            note)                                                         \
  {                                                                       \
    name, first, low, high, outputs, flags, attributes,                   \
        cuvil_infer_##function, cuvil_execute_##function, note            \
  }
#define UNARY(name, first, attributes) \
  ROW(name, first, 1, 1, 1, F | R, attributes, unary, "")
#define POOL_NOTE "one or two spatial dimensions"

/* Sorted by name: cuvil_op_find searches by halves. */
static const struct cuvil_op table[] = {
    ROW("Abs", 6, 1, 1, 1, F, "", unary, ""),
    ROW("Add", 6, 2, 2, 1, F, "broadcast:i", broadcast, ""),
    ROW("And", 7, 2, 2, 1, F, "", compare, ""),
    ROW("Attention", 23, 3, 4, 1, F | R,
        "is_causal:i kv_num_heads:i q_num_heads:i qk_matmul_output_mode:i "
        "scale:f softcap:f softmax_precision:i",
        attention, "no past keys or values; one output"),
    ROW("AveragePool", 1, 1, 1, 1, F | R,
        "auto_pad:s ceil_mode:i count_include_pad:i dilations:I kernel_shape:I "
        "pads:I "
        "strides:I",
        pool, POOL_NOTE),
    ROW("BatchNormalization", 6, 5, 5, 5, R,
        "epsilon:f momentum:f spatial:i is_test:i training_mode:i", batch_norm,
        "inference form; constant scale, bias, mean and variance"),
    ROW("Cast", 6, 1, 1, 1, F, "to:i saturate:i round_mode:s", cast,
        "between the types that tensors may have"),
    ROW("CastLike", 15, 2, 2, 1, F, "saturate:i", cast_like,
        "between the types that tensors may have"),
    UNARY("Ceil", 6, ""),
    ROW("Clip", 6, 1, 3, 1, F, "min:f max:f", clip, "limits that are constant"),
    ROW("Concat", 4, 1, -1, 1, F, "axis:i", concat, ""),
    ROW("Constant", 1, 0, 0, 1, F,
        "value:t value_float:f value_floats:F value_int:i value_ints:I",
        constant, "dense numeric values"),
    ROW("ConstantOfShape", 9, 1, 1, 1, F, "value:t", constant_of_shape,
        "a constant shape"),
    ROW("Conv", 1, 2, 3, 1, F | R,
        "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I", conv,
        POOL_NOTE),
    UNARY("Cos", 7, ""),
    ROW("CumSum", 11, 2, 2, 1, F, "exclusive:i reverse:i", cumsum, ""),
    ROW("Div", 6, 2, 2, 1, F, "broadcast:i", broadcast, ""),
    ROW("Dropout", 6, 1, 3, 1, V | F, "ratio:f seed:i is_test:i", identity,
        "inference form"),
    ROW("Equal", 7, 2, 2, 1, F, "", compare, ""),
    UNARY("Erf", 9, ""),
    UNARY("Exp", 6, ""),
    ROW("Expand", 8, 2, 2, 1, F, "", expand, "a constant shape"),
    ROW("Flatten", 1, 1, 1, 1, V | F, "axis:i", flatten, ""),
    UNARY("Floor", 6, ""),
    ROW("Gather", 1, 2, 2, 1, F, "axis:i", gather, ""),
    ROW("GatherElements", 11, 2, 2, 1, F, "axis:i", gather_elements, ""),
    ROW("GatherND", 11, 2, 2, 1, F, "batch_dims:i", gather_nd, ""),
    UNARY("Gelu", 20, "approximate:s"),
    ROW("Gemm", 6, 2, 3, 1, F | R,
        "alpha:f beta:f transA:i transB:i broadcast:i", gemm, ""),
    ROW("GlobalAveragePool", 1, 1, 1, 1, F | R, "", global_pool, ""),
    ROW("GlobalMaxPool", 1, 1, 1, 1, F | R, "", global_pool, ""),
    ROW("Greater", 7, 2, 2, 1, F, "", compare, ""),
    ROW("GreaterOrEqual", 12, 2, 2, 1, F, "", compare, ""),
    UNARY("HardSigmoid", 6, "alpha:f beta:f"),
    UNARY("HardSwish", 14, ""),
    ROW("Identity", 1, 1, 1, 1, V | F, "", identity, ""),
    ROW("IsInf", 10, 1, 1, 1, F | R, "detect_negative:i detect_positive:i",
        is_nan, ""),
    ROW("IsNaN", 9, 1, 1, 1, F | R, "", is_nan, ""),
    ROW("LayerNormalization", 17, 2, 3, 3, F | R,
        "axis:i epsilon:f stash_type:i", layer_norm,
        "scale and bias of the normalized shape"),
    UNARY("LeakyRelu", 6, "alpha:f"),
    ROW("Less", 7, 2, 2, 1, F, "", compare, ""),
    ROW("LessOrEqual", 12, 2, 2, 1, F, "", compare, ""),
    UNARY("Log", 6, ""),
    ROW("LogSoftmax", 1, 1, 1, 1, F | R, "axis:i", softmax, ""),
    ROW("MatMul", 1, 2, 2, 1, F | R, "", matmul, ""),
    ROW("Max", 6, 1, -1, 1, F, "", broadcast, ""),
    ROW("MaxPool", 1, 1, 1, 1, F | R,
        "auto_pad:s ceil_mode:i dilations:I kernel_shape:I pads:I "
        "storage_order:i strides:I",
        pool, POOL_NOTE "; no Indices output"),
    ROW("Mean", 6, 1, -1, 1, F | R, "", broadcast, ""),
    ROW("Min", 6, 1, -1, 1, F, "", broadcast, ""),
    ROW("Mod", 10, 2, 2, 1, F, "fmod:i", broadcast, ""),
    ROW("Mul", 6, 2, 2, 1, F, "broadcast:i", broadcast, ""),
    ROW("Neg", 6, 1, 1, 1, F, "", unary, ""),
    ROW("Not", 1, 1, 1, 1, F, "", not, ""),
    ROW("Or", 7, 2, 2, 1, F, "", compare, ""),
    ROW("Pad", 2, 1, 4, 1, F, "mode:s pads:I value:f", pad, "constant pads"),
    ROW("Pow", 7, 2, 2, 1, F, "", broadcast, ""),
    ROW("RMSNormalization", 23, 2, 2, 1, F | R, "axis:i epsilon:f stash_type:i",
        layer_norm, "a scale of the normalized shape"),
    ROW("Range", 11, 3, 3, 1, F, "", range, "constant limits"),
    UNARY("Reciprocal", 6, ""),
    ROW("ReduceMax", 1, 1, 2, 1, F, "axes:I keepdims:i noop_with_empty_axes:i",
        reduce, "constant axes"),
    ROW("ReduceMean", 1, 1, 2, 1, F | R,
        "axes:I keepdims:i noop_with_empty_axes:i", reduce, "constant axes"),
    ROW("ReduceMin", 1, 1, 2, 1, F, "axes:I keepdims:i noop_with_empty_axes:i",
        reduce, "constant axes"),
    ROW("ReduceProd", 1, 1, 2, 1, F, "axes:I keepdims:i noop_with_empty_axes:i",
        reduce, "constant axes"),
    ROW("ReduceSum", 1, 1, 2, 1, F, "axes:I keepdims:i noop_with_empty_axes:i",
        reduce, "constant axes"),
    ROW("Relu", 6, 1, 1, 1, F, "", unary, ""),
    ROW("Reshape", 1, 1, 2, 1, V | F, "shape:I allowzero:i", reshape,
        "a constant shape"),
    ROW("ScatterND", 11, 3, 3, 1, F, "reduction:s", scatter_nd, ""),
    ROW("Shape", 1, 1, 1, 1, F, "start:i end:i", shape, ""),
    UNARY("Sigmoid", 6, ""),
    UNARY("Sin", 7, ""),
    ROW("Size", 1, 1, 1, 1, F, "", size, ""),
    ROW("Slice", 1, 1, 5, 1, F, "axes:I ends:I starts:I", slice,
        "constant starts, ends, axes and steps"),
    ROW("Softmax", 1, 1, 1, 1, F | R, "axis:i", softmax, ""),
    UNARY("Softplus", 1, ""),
    ROW("Split", 1, 1, 2, CUVIL_OP_MAX_OUTPUTS, F,
        "axis:i num_outputs:i split:I", split, "constant sizes"),
    UNARY("Sqrt", 6, ""),
    ROW("Squeeze", 1, 1, 2, 1, V | F, "axes:I", squeeze, "constant axes"),
    ROW("Sub", 6, 2, 2, 1, F, "broadcast:i", broadcast, ""),
    ROW("Sum", 6, 1, -1, 1, F, "", broadcast, ""),
    UNARY("Tanh", 6, ""),
    ROW("Tile", 6, 2, 2, 1, F, "", tile, "constant repeats"),
    ROW("Transpose", 1, 1, 1, 1, F, "perm:I", transpose, ""),
    ROW("Trilu", 14, 1, 2, 1, F, "upper:i", trilu, ""),
    ROW("Unsqueeze", 1, 1, 2, 1, V | F, "axes:I", unsqueeze, "constant axes"),
    ROW("Where", 9, 3, 3, 1, F, "", where, ""),
    ROW("Xor", 7, 2, 2, 1, F, "", compare, ""),
};

/* onnx.proto, TensorProto.DataType; frozen by the format. */
static const struct {
  const char *name;
  enum cuvil_dtype dtype;
} onnx_types[] = {
    {"undefined", CUVIL_DTYPE_NONE},
    {"float", CUVIL_F32},
    {"uint8", CUVIL_U8},
    {"int8", CUVIL_I8},
    {"uint16", CUVIL_DTYPE_NONE},
    {"int16", CUVIL_DTYPE_NONE},
    {"int32", CUVIL_I32},
    {"int64", CUVIL_I64},
    {"string", CUVIL_DTYPE_NONE},
    {"bool", CUVIL_BOOL},
    {"float16", CUVIL_F16},
    {"double", CUVIL_F64},
    {"uint32", CUVIL_DTYPE_NONE},
    {"uint64", CUVIL_DTYPE_NONE},
    {"complex64", CUVIL_DTYPE_NONE},
    {"complex128", CUVIL_DTYPE_NONE},
    {"bfloat16", CUVIL_BF16},
    {"float8e4m3fn", CUVIL_DTYPE_NONE},
    {"float8e4m3fnuz", CUVIL_DTYPE_NONE},
    {"float8e5m2", CUVIL_DTYPE_NONE},
    {"float8e5m2fnuz", CUVIL_DTYPE_NONE},
    {"uint4", CUVIL_DTYPE_NONE},
    {"int4", CUVIL_DTYPE_NONE},
    {"float4e2m1", CUVIL_DTYPE_NONE},
    {"float8e8m0", CUVIL_DTYPE_NONE},
    {"uint2", CUVIL_DTYPE_NONE},
    {"int2", CUVIL_DTYPE_NONE},
};

enum cuvil_status cuvil_onnx_dtype(int64_t number, enum cuvil_dtype *out) {
  *out = CUVIL_DTYPE_NONE;
  if (number <= 0 ||
      number >= (int64_t)(sizeof onnx_types / sizeof *onnx_types))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "data type %lld is not one of ONNX",
                      (long long)number);
  *out = onnx_types[number].dtype;
  if (*out == CUVIL_DTYPE_NONE)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED, "data type %s is not supported",
                      onnx_types[number].name);
  return CUVIL_OK;
}

int cuvil_dtype_to_onnx(enum cuvil_dtype dtype) {
  if (dtype == CUVIL_DTYPE_NONE) return 0;
  for (size_t i = 1; i < sizeof onnx_types / sizeof *onnx_types; i++)
    if (onnx_types[i].dtype == dtype) return (int)i;
  return 0;
}

static int compare_name(const void *name, const void *row) {
  return strcmp(name, ((const struct cuvil_op *)row)->name);
}

const struct cuvil_op *cuvil_op_find(const char *name) {
  return bsearch(name, table, sizeof table / sizeof *table, sizeof *table,
                 compare_name);
}

const struct cuvil_op *cuvil_op_table(int *out_count) {
  *out_count = (int)(sizeof table / sizeof *table);
  return table;
}

static void print_attributes(const char *list, struct cuvil_buf *out) {
  for (const char *at = list; *at != '\0';) {
    size_t n = strcspn(at, " ");
    cuvil_buf_printf(out, "%s`%.*s`", at > list ? " " : "", (int)(n - 2), at);
    at += n + (at[n] == ' ');
  }
}

void cuvil_graph_operators(const char *(*gpu)(const char *op),
                           struct cuvil_buf *out) {
  cuvil_buf_printf(out,
                   "# ONNX operators\n\n"
                   "Made from the table in graph/ops.c; a test holds this page "
                   "against it.\nOpsets up to %d. Any other operator, or an "
                   "attribute that is not listed, is\nrefused by name before "
                   "anything is done; `cuvil-compile --check` lists all such\n"
                   "nodes of a model.\n\n"
                   "A node whose inputs are all constant, or which asks only "
                   "for a shape, is\nevaluated when the model is read; what "
                   "then adds zero, multiplies by one or moves\nnothing is "
                   "left out. Where a limit below says that something must be "
                   "constant, it\nmay be computed from constants and shapes."
                   "\n\n"
                   "The CPU executor holds every float type as fp32 and every "
                   "integer and bool as\nint64 between nodes; sums are in "
                   "double. Only a Cast and an output round to fp16\nor bf16, "
                   "so a half-precision model is computed at least as exactly "
                   "as it asks.\nDouble precision is understood in constants "
                   "alone.\n\n"
                   "The CPU executor has every operator of the table. On the "
                   "GPU an operator is a\n*kernel* or part of one; a *view*, "
                   "its input by other strides, or a copy where\nstrides "
                   "cannot say it; *free*, gone after import; a *condition*, "
                   "arithmetic with\n0 and 1 where a mask or a choice is made "
                   "of it; or it is there for *constants*\nonly. ONNX's node "
                   "tests hold both columns (docs/testing.md).\n\n"
                   "| operator | opsets | CPU | GPU | attributes | limits |\n"
                   "|---|---|---|---|---|---|\n",
                   CUVIL_OPSET_NEWEST);
  int count;
  const struct cuvil_op *ops = cuvil_op_table(&count);
  for (int i = 0; i < count; i++) {
    cuvil_buf_printf(out, "| %s | %d to %d | yes | %s | ", ops[i].name,
                     ops[i].first_opset, CUVIL_OPSET_NEWEST, gpu(ops[i].name));
    print_attributes(ops[i].attributes, out);
    cuvil_buf_printf(out, " | %s |\n", ops[i].note);
  }
}

const struct cuvil_value *cuvil_op_input(const struct cuvil_graph *graph,
                                         const struct cuvil_node *node,
                                         int index) {
  if (index >= node->input_count || node->inputs[index] < 0) return NULL;
  return &graph->values[node->inputs[index]];
}

const struct cuvil_host_tensor *cuvil_op_tensor(
    const struct cuvil_op_call *call, int index) {
  return index < call->node->input_count ? call->inputs[index] : NULL;
}

enum cuvil_dtype cuvil_op_output_dtype(const struct cuvil_op_call *call,
                                       int index) {
  return call->graph->values[call->node->outputs[index]].dtype;
}

enum cuvil_status cuvil_op_const_ints(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node, int index,
                                      int64_t *out, int limit, int *out_count) {
  *out_count = -1;
  const struct cuvil_value *value = cuvil_op_input(graph, node, index);
  if (value == NULL) return CUVIL_OK;
  if (value->data == NULL)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "input %d is computed at run time; it must be constant",
                      index);
  if (value->rank > 1 || cuvil_dtype_is_float(value->dtype))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "input %d must be a list of integers", index);
  int64_t count = cuvil_value_elements(value);
  if (count > limit)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "input %d has %lld entries; at most %d are supported",
                      index, (long long)count, limit);
  cuvil_convert(CUVIL_I64, out, value->dtype, value->data, (size_t)count);
  *out_count = (int)count;
  return CUVIL_OK;
}

static enum cuvil_status normalise_axis(int64_t axis, int rank, int *out) {
  if (axis < -rank || axis >= rank)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "axis %lld is outside a tensor of rank %d",
                      (long long)axis, rank);
  *out = (int)(axis < 0 ? axis + rank : axis);
  return CUVIL_OK;
}

enum cuvil_status cuvil_op_axes(const struct cuvil_graph *graph,
                                const struct cuvil_node *node, int index,
                                int rank, int *out_axes, int *out_count) {
  int64_t axes[CUVIL_GRAPH_MAX_RANK];
  CUVIL_TRY(cuvil_op_const_ints(graph, node, index, axes, CUVIL_GRAPH_MAX_RANK,
                                out_count));
  if (*out_count < 0 && cuvil_node_attribute(node, "axes") != NULL)
    *out_count = cuvil_node_ints(node, "axes", axes, CUVIL_GRAPH_MAX_RANK);
  if (*out_count > rank)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%d axes for a tensor of rank %d",
                      *out_count, rank);
  unsigned seen = 0;
  for (int i = 0; i < *out_count; i++) {
    CUVIL_TRY(normalise_axis(axes[i], rank, &out_axes[i]));
    if (seen & 1u << out_axes[i])
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "axis %d is named twice",
                        out_axes[i]);
    seen |= 1u << out_axes[i];
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_op_axis(const struct cuvil_node *node, const char *name,
                                int64_t fallback, int rank, int extra,
                                int *out) {
  int64_t axis = cuvil_node_int(node, name, fallback);
  if (extra > 0 && axis == rank) {
    *out = rank;
    return CUVIL_OK;
  }
  return normalise_axis(axis, rank, out);
}

void cuvil_type_copy(struct cuvil_type *out, const struct cuvil_value *value) {
  out->dtype = value->dtype;
  out->rank = value->rank;
  memcpy(out->dims, value->dims, sizeof out->dims);
}

enum cuvil_status cuvil_type_broadcast(struct cuvil_type *out,
                                       const struct cuvil_value *value) {
  int rank = out->rank > value->rank ? out->rank : value->rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    int a = i - (rank - out->rank), b = i - (rank - value->rank);
    int64_t x = a < 0 ? 1 : out->dims[a], y = b < 0 ? 1 : value->dims[b];
    if (x != y && x != 1 && y != 1)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "dimensions %lld and %lld do not broadcast",
                        (long long)x, (long long)y);
    dims[i] = x == 1 ? y : x;
  }
  out->rank = rank;
  memcpy(out->dims, dims, sizeof dims);
  return CUVIL_OK;
}

enum cuvil_status cuvil_node_context(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     enum cuvil_status status) {
  if (status == CUVIL_OK) return CUVIL_OK;
  char who[192];
  /* The record is overwritten while it is read: take the message first. */
  return CUVIL_FAIL(status, "%s: %s: %s", graph->path,
                    cuvil_node_describe(graph, node, who),
                    cuvil_error_last()->message);
}
