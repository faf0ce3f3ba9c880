/* Gemm, MatMul, BatchNormalization, reductions and Softmax. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gemm.h"
#include "graph/ops.h"

/* ---- matrix products */
struct matrix {
  const float *b;
  int64_t row, col;
};

static void pack_matrix(const void *source, int64_t group, int64_t batch,
                        int64_t k0, int64_t k1, int64_t j0, int64_t j1,
                        double *out) {
  (void)group;
  (void)batch;
  const struct matrix *matrix = source;
  for (int64_t j = j0; j < j1; j++) {
    const float *b = matrix->b + k0 * matrix->row + j * matrix->col;
    double *lane = out +
                   (j - j0) / CUVIL_GEMM_COLS * (k1 - k0) * CUVIL_GEMM_COLS +
                   (j - j0) % CUVIL_GEMM_COLS;
    for (int64_t k = 0; k < k1 - k0; k++)
      lane[k * CUVIL_GEMM_COLS] = b[k * matrix->row];
  }
}

struct product {
  int64_t m, n, k;
  bool trans_a, trans_b;
};

static enum cuvil_status product_of(const struct cuvil_node *node,
                                    const int64_t *a, int a_rank,
                                    const int64_t *b, int b_rank,
                                    struct product *out) {
  bool matmul = strcmp(node->op, "MatMul") == 0;
  if (a_rank != 2 || b_rank != 2)
    return CUVIL_FAIL(matmul ? CU_ERR_MODEL_UNSUPPORTED : CU_ERR_MODEL_INVALID,
                      "operands of rank %d and %d; %s two-dimensional ones",
                      a_rank, b_rank,
                      matmul ? "only supported are" : "it takes");
  out->trans_a = cuvil_node_int(node, "transA", 0) != 0;
  out->trans_b = cuvil_node_int(node, "transB", 0) != 0;
  out->m = out->trans_a ? a[1] : a[0];
  out->k = out->trans_a ? a[0] : a[1];
  int64_t k = out->trans_b ? b[1] : b[0];
  out->n = out->trans_b ? b[0] : b[1];
  if (k != out->k)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "inner dimensions %lld and %lld differ",
                      (long long)out->k, (long long)k);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_matmul(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  const struct cuvil_value *a = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *b = cuvil_op_input(graph, node, 1);
  struct product product;
  CUVIL_TRY(product_of(node, a->dims, a->rank, b->dims, b->rank, &product));
  if (a->dtype != b->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                      cuvil_dtype_name(a->dtype), cuvil_dtype_name(b->dtype));
  *out = (struct cuvil_type){
      .dtype = a->dtype, .rank = 2, .dims = {product.m, product.n}};
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_gemm(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  CUVIL_TRY(cuvil_infer_matmul(graph, node, out));
  const struct cuvil_value *c = cuvil_op_input(graph, node, 2);
  if (c == NULL) return CUVIL_OK;
  struct cuvil_type wide = *out;
  CUVIL_TRY(cuvil_type_broadcast(&wide, c));
  if (wide.rank != 2 || wide.dims[0] != out->dims[0] ||
      wide.dims[1] != out->dims[1])
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "C does not broadcast to %lldx%lld",
                      (long long)out->dims[0], (long long)out->dims[1]);
  if (c->dtype != out->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                      cuvil_dtype_name(out->dtype), cuvil_dtype_name(c->dtype));
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_gemm(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *a = call->inputs[0], *b = call->inputs[1];
  const struct cuvil_host_tensor *c =
      call->node->input_count > 2 ? call->inputs[2] : NULL;
  struct product p;
  CUVIL_TRY(product_of(call->node, a->dims, a->rank, b->dims, b->rank, &p));
  struct matrix matrix = {
      .b = b->f, .row = p.trans_b ? 1 : p.n, .col = p.trans_b ? p.k : 1};
  struct cuvil_gemm gemm = {
      .m = p.m,
      .n = p.n,
      .k = p.k,
      .groups = 1,
      .batch = 1,
      .a = a->f,
      .a_row = p.trans_a ? 1 : p.k,
      .a_col = p.trans_a ? p.m : 1,
      .pack = pack_matrix,
      .source = &matrix,
      .alpha = cuvil_node_float(call->node, "alpha", 1),
      .beta = cuvil_node_float(call->node, "beta", 1),
      .c = call->outputs[0].f,
      .c_row = p.n,
      .c_col = 1,
  };
  if (c != NULL) {
    gemm.bias = c->f;
    bool by_row = c->rank == 2 && c->dims[0] != 1;
    bool by_col = c->rank >= 1 && c->dims[c->rank - 1] != 1;
    gemm.bias_row = by_row ? c->dims[1] : 0;
    gemm.bias_col = by_col ? 1 : 0;
  }
  return cuvil_gemm_run(&gemm, call->threads);
}

enum cuvil_status cuvil_execute_matmul(const struct cuvil_op_call *call) {
  return cuvil_execute_gemm(call);
}

/* ---- BatchNormalization, inference form */
enum cuvil_status cuvil_infer_batch_norm(const struct cuvil_graph *graph,
                                         const struct cuvil_node *node,
                                         struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  bool training = cuvil_node_int(node, "training_mode", 0) != 0 ||
                  (node->opset < 7 && cuvil_node_int(node, "is_test", 0) == 0);
  for (int i = 1; i < node->output_count; i++)
    training |= node->outputs[i] >= 0;
  if (training)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "it is in training form; export the model in evaluation "
                      "mode");
  if (cuvil_node_int(node, "spatial", 1) == 0)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED, "spatial=0");
  if (x->rank < 2)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "an input of rank %d has no channels", x->rank);
  for (int i = 1; i < 5; i++) {
    const struct cuvil_value *p = cuvil_op_input(graph, node, i);
    if (p == NULL || p->rank != 1 || p->dims[0] != x->dims[1])
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "input %d does not have one entry for each of %lld "
                        "channels",
                        i, (long long)x->dims[1]);
    if (p->data == NULL)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "input %d is computed at run time; it must be constant",
                        i);
    if (!cuvil_dtype_is_float(p->dtype))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input %d is of type %s", i,
                        cuvil_dtype_name(p->dtype));
  }
  cuvil_type_copy(out, x);
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_batch_norm(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  const float *scale = call->inputs[1]->f, *bias = call->inputs[2]->f;
  const float *mean = call->inputs[3]->f, *var = call->inputs[4]->f;
  double epsilon = cuvil_node_float(call->node, "epsilon", 1e-5f);
  int64_t channels = x->dims[1], plane = 1;
  for (int i = 2; i < x->rank; i++)
    plane *= x->dims[i];
  for (int64_t at = 0; at < x->dims[0] * channels; at++) {
    int64_t c = at % channels;
    double factor = (double)scale[c] / sqrt((double)var[c] + epsilon);
    for (int64_t i = at * plane; i < (at + 1) * plane; i++)
      call->outputs[0].f[i] =
          (float)(((double)x->f[i] - (double)mean[c]) * factor +
                  (double)bias[c]);
  }
  return CUVIL_OK;
}

/* ---- reductions */
enum cuvil_status cuvil_infer_reduce(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int axes[CUVIL_GRAPH_MAX_RANK], count;
  CUVIL_TRY(cuvil_op_axes(graph, node, 1, x->rank, axes, &count));
  cuvil_type_copy(out, x);
  if (count <= 0) {
    if (cuvil_node_int(node, "noop_with_empty_axes", 0) != 0) return CUVIL_OK;
    count = x->rank;
    for (int i = 0; i < count; i++)
      axes[i] = i;
  }
  bool reduced[CUVIL_GRAPH_MAX_RANK] = {false};
  for (int i = 0; i < count; i++)
    reduced[axes[i]] = true;
  bool keep = cuvil_node_int(node, "keepdims", 1) != 0;
  out->rank = 0;
  for (int i = 0; i < x->rank; i++) {
    if (!reduced[i])
      out->dims[out->rank++] = x->dims[i];
    else if (keep)
      out->dims[out->rank++] = 1;
    if (reduced[i] && x->dims[i] == 0)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "it reduces an axis without elements");
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_reduce(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  bool max = strcmp(call->node->op, "ReduceMax") == 0;
  bool mean = strcmp(call->node->op, "ReduceMean") == 0;
  int axes[CUVIL_GRAPH_MAX_RANK], count;
  CUVIL_TRY(cuvil_op_axes(call->graph, call->node, 1, x->rank, axes, &count));
  bool all =
      count <= 0 && cuvil_node_int(call->node, "noop_with_empty_axes", 0) == 0;
  bool reduced[CUVIL_GRAPH_MAX_RANK] = {false};
  for (int i = 0; i < x->rank; i++)
    reduced[i] = all;
  for (int i = 0; i < count; i++)
    reduced[axes[i]] = true;
  /* Step of the output for each input dimension; 0 where it is reduced. */
  int64_t step[CUVIL_GRAPH_MAX_RANK], next = 1;
  for (int i = x->rank - 1; i >= 0; i--) {
    step[i] = reduced[i] ? 0 : next;
    if (!reduced[i]) next *= x->dims[i];
  }
  double *sum = malloc(((size_t)y->count + 1) * sizeof *sum);
  if (sum == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %lld sums",
                      (long long)y->count);
  for (int64_t i = 0; i < y->count; i++) {
    sum[i] = max ? -INFINITY : 0;
    if (y->integer) y->i[i] = max ? INT64_MIN : 0;
  }
  int64_t at[CUVIL_GRAPH_MAX_RANK] = {0}, o = 0;
  for (int64_t i = 0; i < x->count; i++) {
    if (y->integer) {
      int64_t v = x->i[i];
      y->i[o] = !max          ? (int64_t)((uint64_t)y->i[o] + (uint64_t)v)
                : v > y->i[o] ? v
                              : y->i[o];
    } else {
      double v = x->f[i];
      if (!max)
        sum[o] += v;
      else if (v > sum[o] || v != v)
        sum[o] = v;
    }
    for (int d = x->rank - 1; d >= 0; d--) {
      o += step[d];
      if (++at[d] < x->dims[d]) break;
      o -= step[d] * x->dims[d];
      at[d] = 0;
    }
  }
  double size = y->count > 0 ? (double)x->count / (double)y->count : 1;
  if (!y->integer)
    for (int64_t i = 0; i < y->count; i++)
      y->f[i] = (float)(mean ? sum[i] / size : sum[i]);
  free(sum);
  return CUVIL_OK;
}

/* ---- Softmax */
enum cuvil_status cuvil_infer_softmax(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node,
                                      struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  int axis;
  return cuvil_op_axis(node, "axis", node->opset < 13 ? 1 : -1, out->rank,
                       node->opset < 13, &axis);
}

enum cuvil_status cuvil_execute_softmax(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  bool flatten = call->node->opset < 13;
  int axis;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", flatten ? 1 : -1, x->rank,
                          flatten, &axis));
  /* Up to opset 12 everything from the axis on is one row. */
  int64_t length = 1, inner = 1;
  for (int i = axis; i < x->rank; i++)
    if (flatten || i == axis)
      length *= x->dims[i];
    else
      inner *= x->dims[i];
  if (x->count == 0) return CUVIL_OK;
  for (int64_t row = 0; row < x->count / length; row++) {
    int64_t base = row / inner * inner * length + row % inner;
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < length; i++)
      if (x->f[base + i * inner] > top) top = x->f[base + i * inner];
    for (int64_t i = 0; i < length; i++)
      sum += exp((double)x->f[base + i * inner] - top);
    for (int64_t i = 0; i < length; i++)
      call->outputs[0].f[base + i * inner] =
          (float)(exp((double)x->f[base + i * inner] - top) / sum);
  }
  return CUVIL_OK;
}
