/* Operators that only change the shape, and those that compute shapes.  Their
 * execution is a copy; the shape work is in `infer`.
 */
#include <math.h>
#include <string.h>

#include "graph/ops.h"

static enum cuvil_status copy(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  CUVIL_CHECK(x->count == y->count && x->integer == y->integer);
  if (x->count == 0) return CUVIL_OK;
  if (x->integer)
    memcpy(y->i, x->i, (size_t)x->count * sizeof *x->i);
  else
    memcpy(y->f, x->f, (size_t)x->count * sizeof *x->f);
  return CUVIL_OK;
}

/* ---- Identity, Dropout */
enum cuvil_status cuvil_infer_identity(const struct cuvil_graph *graph,
                                       const struct cuvil_node *node,
                                       struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  if (strcmp(node->op, "Dropout") != 0) return CUVIL_OK;
  const struct cuvil_value *training = cuvil_op_input(graph, node, 2);
  bool on = node->opset < 7 && cuvil_node_int(node, "is_test", 0) == 0;
  if (training != NULL) {
    if (training->data == NULL || training->dtype != CUVIL_BOOL)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "training_mode is computed at run time; it must be "
                        "constant");
    on |= *(const unsigned char *)training->data != 0;
  }
  if (on)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "it is in training form; export the model in evaluation "
                      "mode");
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_identity(const struct cuvil_op_call *call) {
  return copy(call);
}

/* ---- Reshape, Flatten, Squeeze, Unsqueeze */
static enum cuvil_status element_count(const struct cuvil_value *x,
                                       const struct cuvil_type *out) {
  int64_t product = 1;
  for (int i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(product, out->dims[i], &product))
      product = -1, i = out->rank;
  if (product == cuvil_value_elements(x)) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "the new shape does not hold the input's %lld elements",
                    (long long)cuvil_value_elements(x));
}

enum cuvil_status cuvil_infer_reshape(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node,
                                      struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int64_t shape[CUVIL_GRAPH_MAX_RANK];
  int rank;
  CUVIL_TRY(
      cuvil_op_const_ints(graph, node, 1, shape, CUVIL_GRAPH_MAX_RANK, &rank));
  if (rank < 0 && cuvil_node_attribute(node, "shape") == NULL)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no shape");
  if (rank < 0)
    rank = cuvil_node_ints(node, "shape", shape, CUVIL_GRAPH_MAX_RANK);
  if (rank > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "a shape of rank %d; at most %d is supported", rank,
                      CUVIL_GRAPH_MAX_RANK);
  bool zero_means_copy = cuvil_node_int(node, "allowzero", 0) == 0;
  *out = (struct cuvil_type){.dtype = x->dtype, .rank = rank};
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < rank; i++) {
    int64_t extent = shape[i];
    if (extent == 0 && zero_means_copy) {
      if (i >= x->rank)
        return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                          "entry %d of the shape is 0 but the input has rank "
                          "%d",
                          i, x->rank);
      extent = x->dims[i];
    }
    if (extent < -1 || (extent == -1 && open >= 0))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "entry %d of the shape is %lld",
                        i, (long long)extent);
    if (extent == -1)
      open = i;
    else if (__builtin_mul_overflow(known, extent, &known))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "the new shape is too large");
    out->dims[i] = extent;
  }
  if (open >= 0)
    out->dims[open] = known > 0 ? cuvil_value_elements(x) / known : 0;
  return element_count(x, out);
}

enum cuvil_status cuvil_execute_reshape(const struct cuvil_op_call *call) {
  return copy(call);
}

enum cuvil_status cuvil_infer_flatten(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node,
                                      struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int axis;
  CUVIL_TRY(cuvil_op_axis(node, "axis", 1, x->rank, 1, &axis));
  *out = (struct cuvil_type){.dtype = x->dtype, .rank = 2, .dims = {1, 1}};
  for (int i = 0; i < x->rank; i++)
    out->dims[i >= axis] *= x->dims[i];
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_flatten(const struct cuvil_op_call *call) {
  return copy(call);
}

enum cuvil_status cuvil_infer_squeeze(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node,
                                      struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int axes[CUVIL_GRAPH_MAX_RANK], count;
  CUVIL_TRY(cuvil_op_axes(graph, node, 1, x->rank, axes, &count));
  bool drop[CUVIL_GRAPH_MAX_RANK] = {false};
  for (int i = 0; i < x->rank; i++)
    drop[i] = count < 0 && x->dims[i] == 1;
  for (int i = 0; i < count; i++) {
    if (x->dims[axes[i]] != 1)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "axis %d has extent %lld, not 1",
                        axes[i], (long long)x->dims[axes[i]]);
    drop[axes[i]] = true;
  }
  *out = (struct cuvil_type){.dtype = x->dtype};
  for (int i = 0; i < x->rank; i++)
    if (!drop[i]) out->dims[out->rank++] = x->dims[i];
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_squeeze(const struct cuvil_op_call *call) {
  return copy(call);
}

enum cuvil_status cuvil_infer_unsqueeze(const struct cuvil_graph *graph,
                                        const struct cuvil_node *node,
                                        struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  /* The axes count in the result, whose rank depends on how many they are. */
  int64_t given[CUVIL_GRAPH_MAX_RANK];
  int count, axes[CUVIL_GRAPH_MAX_RANK];
  CUVIL_TRY(
      cuvil_op_const_ints(graph, node, 1, given, CUVIL_GRAPH_MAX_RANK, &count));
  if (count < 0)
    count = cuvil_node_ints(node, "axes", given, CUVIL_GRAPH_MAX_RANK);
  if (x->rank + count > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "a result of rank %d; at most %d is supported",
                      x->rank + count, CUVIL_GRAPH_MAX_RANK);
  int rank = x->rank + count;
  CUVIL_TRY(cuvil_op_axes(graph, node, 1, rank, axes, &count));
  bool added[CUVIL_GRAPH_MAX_RANK] = {false};
  for (int i = 0; i < count; i++)
    added[axes[i]] = true;
  *out = (struct cuvil_type){.dtype = x->dtype, .rank = rank};
  for (int i = 0, from = 0; i < rank; i++)
    out->dims[i] = added[i] ? 1 : x->dims[from++];
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_unsqueeze(const struct cuvil_op_call *call) {
  return copy(call);
}

/* ---- Cast.  From fp32 and int64 inside, the rounding of the target type is
 * done here so that later operators see what the model says. */
enum cuvil_status cuvil_infer_cast(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  return cuvil_onnx_dtype(cuvil_node_int(node, "to", 0), &out->dtype);
}

enum cuvil_status cuvil_execute_cast(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  enum cuvil_dtype to = cuvil_op_output_dtype(call, 0);
  uint64_t cell;
  for (int64_t i = 0; i < x->count; i++) {
    if (x->integer && y->integer && to == CUVIL_I64) {
      y->i[i] = x->i[i];
      continue;
    }
    if (to == CUVIL_BOOL) {
      y->i[i] = x->integer ? x->i[i] != 0 : x->f[i] != 0;
      continue;
    }
    double v = x->integer ? (double)x->i[i] : (double)x->f[i];
    /* Real to integer cuts off; cuvil_store would round. */
    if (!x->integer && y->integer) v = trunc(v);
    cuvil_store(to, &cell, 0, v);
    v = cuvil_load(to, &cell, 0);
    if (y->integer)
      y->i[i] = to == CUVIL_I64 ? (int64_t)cell : (int64_t)v;
    else
      y->f[i] = (float)v;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_cast_like(const struct cuvil_graph *graph,
                                        const struct cuvil_node *node,
                                        struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  out->dtype = cuvil_op_input(graph, node, 1)->dtype;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_cast_like(const struct cuvil_op_call *call) {
  return cuvil_execute_cast(call);
}

/* ---- Shape, Size, Constant, ConstantOfShape */
enum cuvil_status cuvil_infer_shape(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  int rank = cuvil_op_input(graph, node, 0)->rank;
  int64_t start = cuvil_node_int(node, "start", 0);
  int64_t end = cuvil_node_int(node, "end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < 0 ? 0 : end > rank ? rank : end;
  *out = (struct cuvil_type){.dtype = CUVIL_I64, .rank = 1};
  out->dims[0] = end > start ? end - start : 0;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_shape(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  int64_t start = cuvil_node_int(call->node, "start", 0);
  if (start < 0) start += x->rank;
  if (start < 0) start = 0;
  for (int64_t i = 0; i < call->outputs[0].count; i++)
    call->outputs[0].i[i] = x->dims[start + i];
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_size(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  (void)graph;
  (void)node;
  *out = (struct cuvil_type){.dtype = CUVIL_I64};
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_size(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  int64_t size = 1;
  for (int i = 0; i < x->rank; i++)
    size *= x->dims[i];
  call->outputs[0].i[0] = size;
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_constant(const struct cuvil_graph *graph,
                                       const struct cuvil_node *node,
                                       struct cuvil_type *out) {
  *out = (struct cuvil_type){0};
  if (node->attribute_count != 1)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "it must have exactly one value, it has %d attributes",
                      node->attribute_count);
  const struct cuvil_attribute *a = &node->attributes[0];
  bool real = a->kind == CUVIL_ATTR_FLOAT || a->kind == CUVIL_ATTR_FLOATS;
  out->dtype = real ? CUVIL_F32 : CUVIL_I64;
  if (a->kind == CUVIL_ATTR_FLOATS || a->kind == CUVIL_ATTR_INTS) {
    out->rank = 1;
    out->dims[0] = a->count;
  } else if (a->kind == CUVIL_ATTR_TENSOR) {
    cuvil_type_copy(out, &graph->values[a->tensor]);
  } else if (a->kind == CUVIL_ATTR_STRING) {
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "its value is a string");
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_constant(const struct cuvil_op_call *call) {
  const struct cuvil_attribute *a = &call->node->attributes[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  if (a->kind == CUVIL_ATTR_TENSOR) {
    const struct cuvil_value *value = &call->graph->values[a->tensor];
    if (y->count == 0) return CUVIL_OK;
    cuvil_convert(y->integer ? CUVIL_I64 : CUVIL_F32,
                  y->integer ? (void *)y->i : y->f, value->dtype, value->data,
                  (size_t)y->count);
    return CUVIL_OK;
  }
  for (int64_t i = 0; i < y->count; i++) {
    if (a->kind == CUVIL_ATTR_FLOATS)
      y->f[i] = a->floats[i];
    else if (a->kind == CUVIL_ATTR_INTS)
      y->i[i] = a->ints[i];
    else if (a->kind == CUVIL_ATTR_FLOAT)
      y->f[i] = (float)a->f;
    else
      y->i[i] = a->i;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_constant_of_shape(const struct cuvil_graph *graph,
                                                const struct cuvil_node *node,
                                                struct cuvil_type *out) {
  *out = (struct cuvil_type){.dtype = CUVIL_F32};
  CUVIL_TRY(cuvil_op_const_ints(graph, node, 0, out->dims, CUVIL_GRAPH_MAX_RANK,
                                &out->rank));
  const struct cuvil_attribute *a = cuvil_node_attribute(node, "value");
  if (a == NULL) return CUVIL_OK;
  if (a->kind != CUVIL_ATTR_TENSOR ||
      cuvil_value_elements(&graph->values[a->tensor]) != 1)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its value must be a tensor of one element");
  out->dtype = graph->values[a->tensor].dtype;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_constant_of_shape(
    const struct cuvil_op_call *call) {
  const struct cuvil_attribute *a = cuvil_node_attribute(call->node, "value");
  struct cuvil_host_tensor *y = &call->outputs[0];
  struct cuvil_host_tensor value = {0};
  if (a != NULL) {
    const struct cuvil_value *v = &call->graph->values[a->tensor];
    CUVIL_TRY(cuvil_host_view(v, v->data, &value));
  }
  float f = value.f != NULL ? value.f[0] : 0;
  int64_t n = value.i != NULL ? value.i[0] : 0;
  for (int64_t i = 0; i < y->count; i++)
    if (y->integer)
      y->i[i] = n;
    else
      y->f[i] = f;
  cuvil_host_destroy(&value);
  return CUVIL_OK;
}
