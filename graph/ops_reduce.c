/* Reductions over axes: sums in double, in the order of the input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"

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

enum kind { SUM, MEAN, PROD, MAX, MIN };
static const struct {
  double real;
  int64_t integer;
} starts[] = {[SUM] = {0, 0},
              [MEAN] = {0, 0},
              [PROD] = {1, 1},
              [MAX] = {-INFINITY, INT64_MIN},
              [MIN] = {INFINITY, INT64_MAX}};

static enum kind kind_of(const struct cuvil_node *node) {
  static const char *const names[] = {"ReduceSum", "ReduceMean", "ReduceProd",
                                      "ReduceMax"};
  for (int i = 0; i < 4; i++)
    if (strcmp(node->op, names[i]) == 0) return (enum kind)i;
  return MIN;
}

static void take_integer(enum kind kind, int64_t *into, int64_t v) {
  switch (kind) {
    case PROD:
      *into = (int64_t)((uint64_t)*into * (uint64_t)v);
      break;
    case MAX:
      if (v > *into) *into = v;
      break;
    case MIN:
      if (v < *into) *into = v;
      break;
    default:
      *into = (int64_t)((uint64_t)*into + (uint64_t)v);
  }
}

static void take_real(enum kind kind, double *into, double v) {
  switch (kind) {
    case PROD:
      *into *= v;
      break;
    case MAX:
      if (v > *into || v != v) *into = v;
      break;
    case MIN:
      if (v < *into || v != v) *into = v;
      break;
    default:
      *into += v;
  }
}

enum cuvil_status cuvil_execute_reduce(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  enum kind kind = kind_of(call->node);
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
    sum[i] = starts[kind].real;
    if (y->integer) y->i[i] = starts[kind].integer;
  }
  int64_t at[CUVIL_GRAPH_MAX_RANK] = {0}, o = 0;
  for (int64_t i = 0; i < x->count; i++) {
    if (y->integer)
      take_integer(kind, &y->i[o], x->i[i]);
    else
      take_real(kind, &sum[o], x->f[i]);
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
      y->f[i] = (float)(kind == MEAN ? sum[i] / size : sum[i]);
  free(sum);
  return CUVIL_OK;
}
