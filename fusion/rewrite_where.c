/* rewrite_where.c - a choice by a constant condition, as bounds.
 *
 * Where(c, x, k) with constants c and k is max(min(x, high), low): infinite
 * bounds where x is taken, k twice where it is not.
 */
#include <math.h>
#include <string.h>

#include "fusion/rewrite.h"

/* Element of a constant that broadcasts to `dims`, at a row-major index. */
static double broadcast(const struct cuvil_value *v, int rank,
                        const int64_t *dims, int64_t index) {
  int64_t offset = 0, stride = 1;
  for (int i = rank - 1; i >= rank - v->rank; --i) {
    int64_t extent = v->dims[i - (rank - v->rank)];
    if (extent != 1) offset += index % dims[i] * stride;
    stride *= extent;
    index /= dims[i];
  }
  return cuvil_load(v->dtype, v->data, (size_t)offset);
}

/* The shape that both broadcast to. */
static void joint_shape(const struct cuvil_value *a,
                        const struct cuvil_value *b, int *rank, int64_t *dims) {
  *rank = a->rank > b->rank ? a->rank : b->rank;
  for (int i = 0; i < *rank; ++i) {
    int from_a = i - (*rank - a->rank), from_b = i - (*rank - b->rank);
    dims[i] = 1;
    if (from_a >= 0 && a->dims[from_a] != 1) dims[i] = a->dims[from_a];
    if (from_b >= 0 && b->dims[from_b] != 1) dims[i] = b->dims[from_b];
  }
}

static enum cuvil_status bound(struct cuvil_graph *graph, int test, int other,
                               bool x_if, double open, int *out) {
  const struct cuvil_value c = graph->values[test], k = graph->values[other];
  int64_t dims[CUVIL_GRAPH_MAX_RANK], count = 1;
  int rank;
  joint_shape(&c, &k, &rank, dims);
  for (int i = 0; i < rank; ++i)
    count *= dims[i];
  float *data =
      cuvil_arena_array(&graph->arena, (size_t)count + 1, sizeof(float));
  if (!data) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  for (int64_t i = 0; i < count; ++i)
    data[i] = (broadcast(&c, rank, dims, i) != 0) == x_if
                  ? (float)open
                  : (float)broadcast(&k, rank, dims, i);
  return cuvil_new_constant(graph, k.name, CUVIL_F32, rank, dims, data, out);
}

static enum cuvil_status rewrite_where(struct cuvil_graph *graph, int *at) {
  const struct cuvil_node *node = &graph->nodes[*at];
  const int in[3] = {node->inputs[0], node->inputs[1], node->inputs[2]};
  const struct cuvil_value out = graph->values[node->outputs[0]];
  const struct cuvil_value *values = graph->values;
  bool x_if = !values[in[1]].data;
  int x = in[x_if ? 1 : 2], other = in[x_if ? 2 : 1], low, high, below;
  if (!values[in[0]].data || values[x].data || !values[other].data ||
      out.rank < 0 || !cuvil_dtype_is_float(out.dtype))
    return CUVIL_OK;
  CUVIL_TRY(bound(graph, in[0], other, x_if, INFINITY, &high));
  CUVIL_TRY(bound(graph, in[0], other, x_if, -INFINITY, &low));
  CUVIL_TRY(cuvil_insert_node(graph, *at, out.name, "Min", 2, (int[]){x, high},
                              out.rank, out.dims, &below));
  ++*at;
  CUVIL_TRY(cuvil_replace_node(graph, *at, "Max", 2, (int[]){below, low}));
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

enum cuvil_status cuvil_rewrite_wheres(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n)
    if (!graph->nodes[n].removed && strcmp(graph->nodes[n].op, "Where") == 0)
      CUVIL_TRY(rewrite_where(graph, &n));
  return CUVIL_OK;
}
