/* Attention (opset 23) becomes the nodes that it is defined as: products, a
 * scale, masks, Softmax.  Fusion knows attention by those, as older opsets
 * write it, and need not know this operator.
 *
 * Rows that a mask closes altogether give zeros (the executor's Attention does
 * the same): where a mask may do that, the NaNs of Softmax are replaced, as
 * PyTorch's exporters do.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

#define MOST_NODES 32 /* that one Attention becomes */

/* The nodes being written.  A failure is kept; what follows does nothing. */
struct lower {
  struct cuvil_graph *graph;
  const struct cuvil_node *from;
  enum cuvil_status status;
  int count; /* nodes so far */
  enum cuvil_dtype dtype;
  int64_t b, hq, hkv, sq, skv, d, dv;
};

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static int new_value(struct lower *l, enum cuvil_dtype dtype, int rank,
                     const int64_t *dims, const void *data) {
  char name[256];
  int value = 0;
  snprintf(name, sizeof name, "%.180s/%d",
           l->graph->values[l->from->outputs[0]].name, l->graph->value_count);
  if (l->status == CUVIL_OK)
    l->status =
        cuvil_graph_add_value(l->graph, name, dtype, rank, dims, data, &value);
  return value;
}

static int no_memory(struct lower *l) {
  if (l->status == CUVIL_OK)
    l->status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  return 0;
}

static int emit_to(struct lower *l, const char *op, int a, int b, int c,
                   int out) {
  struct cuvil_node *node = &l->graph->nodes[l->count];
  int *links = cuvil_arena_array(&l->graph->arena, 4, sizeof *links);
  if (links == NULL) return no_memory(l);
  if (l->status != CUVIL_OK) return 0;
  links[0] = a, links[1] = b, links[2] = c, links[3] = out;
  *node = (struct cuvil_node){.name = l->from->name,
                              .op = op,
                              .domain = "",
                              .opset = l->from->opset,
                              .input_count = b < 0   ? 1
                                             : c < 0 ? 2
                                                     : 3,
                              .output_count = 1,
                              .inputs = links,
                              .outputs = links + 3};
  l->count++;
  return out;
}

static int emit(struct lower *l, const char *op, int a, int b, int c, int rank,
                const int64_t *dims) {
  return emit_to(l, op, a, b, c, new_value(l, l->dtype, rank, dims, NULL));
}

static void set_ints(struct lower *l, const char *name, int count,
                     const int64_t *values) {
  if (l->status == CUVIL_OK)
    l->status =
        cuvil_graph_set_ints(l->graph, l->count - 1, name, count, values);
}

static int ints(struct lower *l, int count, const int64_t *values) {
  int64_t *data =
      cuvil_arena_array(&l->graph->arena, (size_t)count + 1, sizeof *data);
  if (data == NULL) return no_memory(l);
  memcpy(data, values, (size_t)count * sizeof *data);
  return new_value(l, CUVIL_I64, 1, DIMS(count), data);
}

static int scalar(struct lower *l, double value) {
  void *data = cuvil_arena_alloc(&l->graph->arena, 8);
  if (data == NULL) return no_memory(l);
  cuvil_store(l->dtype, data, 0, value);
  return new_value(l, l->dtype, 0, NULL, data);
}

static int reshape(struct lower *l, int x, int rank, const int64_t *dims) {
  return emit(l, "Reshape", x, ints(l, rank, dims), -1, rank, dims);
}

/* [b, s, heads * d] -> [b, heads, s, d] */
static int split_heads(struct lower *l, int x, int64_t heads, int64_t s,
                       int64_t d) {
  if (l->graph->values[x].rank == 4) return x;
  int y = reshape(l, x, 4, DIMS(l->b, s, heads, d));
  y = emit(l, "Transpose", y, -1, -1, 4, DIMS(l->b, heads, s, d));
  set_ints(l, "perm", 4, DIMS(0, 2, 1, 3));
  return y;
}

static int repeat_heads(struct lower *l, int x, int64_t d) {
  if (l->hq == l->hkv) return x;
  int64_t times = l->hq / l->hkv, s = l->skv;
  int y = emit(l, "Unsqueeze", x, ints(l, 1, DIMS(2)), -1, 5,
               DIMS(l->b, l->hkv, 1, s, d));
  const int64_t wide[5] = {l->b, l->hkv, times, s, d};
  y = emit(l, "Expand", y, ints(l, 5, wide), -1, 5, wide);
  return reshape(l, y, 4, DIMS(l->b, l->hq, s, d));
}

static int causal_mask(struct lower *l) {
  size_t each = cuvil_dtype_size(l->dtype);
  char *data =
      cuvil_arena_alloc(&l->graph->arena, (size_t)(l->sq * l->skv) * each + 8);
  if (data == NULL) return no_memory(l);
  for (int64_t i = 0; i < l->sq; i++)
    for (int64_t j = 0; j < l->skv; j++)
      cuvil_store(l->dtype, data, (size_t)(i * l->skv + j),
                  j <= i ? 0 : (double)-INFINITY);
  return new_value(l, l->dtype, 2, DIMS(l->sq, l->skv), data);
}

static int scores(struct lower *l, int q, int k) {
  const int64_t dims[4] = {l->b, l->hq, l->sq, l->skv};
  double scale = cuvil_node_float(l->from, "scale", 1 / sqrt((double)l->d));
  double cap = cuvil_node_float(l->from, "softcap", 0);
  int t = emit(l, "Transpose", k, -1, -1, 4, DIMS(l->b, l->hq, l->d, l->skv));
  set_ints(l, "perm", 4, DIMS(0, 1, 3, 2));
  int s = emit(l, "MatMul", q, t, -1, 4, dims);
  s = emit(l, "Mul", s, scalar(l, scale), -1, 4, dims);
  if (cap > 0) {
    s = emit(l, "Div", s, scalar(l, cap), -1, 4, dims);
    s = emit(l, "Tanh", s, -1, -1, 4, dims);
    s = emit(l, "Mul", s, scalar(l, cap), -1, 4, dims);
  }
  int mask = l->from->input_count > 3 ? l->from->inputs[3] : -1;
  if (mask >= 0 && l->graph->values[mask].dtype == CUVIL_BOOL)
    s = emit(l, "Where", mask, s, scalar(l, (double)-INFINITY), 4, dims);
  else if (mask >= 0)
    s = emit(l, "Add", s, mask, -1, 4, dims);
  if (cuvil_node_int(l->from, "is_causal", 0) != 0)
    s = emit(l, "Add", s, causal_mask(l), -1, 4, dims);
  return s;
}

static int probabilities(struct lower *l, int s) {
  const int64_t dims[4] = {l->b, l->hq, l->sq, l->skv};
  int p = emit(l, "Softmax", s, -1, -1, 4, dims);
  if (l->status == CUVIL_OK)
    l->status = cuvil_graph_set_int(l->graph, l->count - 1, "axis", -1);
  /* The triangle alone closes no row. */
  if (l->from->input_count < 4 || l->from->inputs[3] < 0) return p;
  int nan =
      emit_to(l, "IsNaN", p, -1, -1, new_value(l, CUVIL_BOOL, 4, dims, NULL));
  return emit(l, "Where", nan, scalar(l, 0), p, 4, dims);
}

static enum cuvil_status lower_node(struct lower *l) {
  const struct cuvil_value q = l->graph->values[l->from->inputs[0]];
  const struct cuvil_value k = l->graph->values[l->from->inputs[1]];
  const struct cuvil_value v = l->graph->values[l->from->inputs[2]];
  bool joined = q.rank == 3;
  l->dtype = q.dtype;
  l->b = q.dims[0];
  l->hq = joined ? cuvil_node_int(l->from, "q_num_heads", 1) : q.dims[1];
  l->hkv = joined ? cuvil_node_int(l->from, "kv_num_heads", 1) : k.dims[1];
  l->sq = q.dims[q.rank - 2];
  l->skv = k.dims[k.rank - 2];
  l->d = joined ? q.dims[2] / l->hq : q.dims[3];
  l->dv = joined ? v.dims[2] / l->hkv : v.dims[3];
  int qs = split_heads(l, l->from->inputs[0], l->hq, l->sq, l->d);
  int ks = split_heads(l, l->from->inputs[1], l->hkv, l->skv, l->d);
  int vs = split_heads(l, l->from->inputs[2], l->hkv, l->skv, l->dv);
  int p = probabilities(l, scores(l, qs, repeat_heads(l, ks, l->d)));
  vs = repeat_heads(l, vs, l->dv);
  if (!joined) {
    emit_to(l, "MatMul", p, vs, -1, l->from->outputs[0]);
    return l->status;
  }
  int y = emit(l, "MatMul", p, vs, -1, 4, DIMS(l->b, l->hq, l->sq, l->dv));
  y = emit(l, "Transpose", y, -1, -1, 4, DIMS(l->b, l->sq, l->hq, l->dv));
  set_ints(l, "perm", 4, DIMS(0, 2, 1, 3));
  int shape = ints(l, 3, DIMS(l->b, l->sq, l->hq * l->dv));
  emit_to(l, "Reshape", y, shape, -1, l->from->outputs[0]);
  return l->status;
}

enum cuvil_status cuvil_graph_lower_attention(struct cuvil_graph *graph) {
  const struct cuvil_node *old = graph->nodes;
  int old_count = graph->node_count, found = 0;
  for (int n = 0; n < old_count; n++)
    found += !old[n].removed && strcmp(old[n].op, "Attention") == 0;
  if (found == 0) return CUVIL_OK;
  size_t capacity = (size_t)old_count + MOST_NODES * (size_t)found;
  graph->nodes = cuvil_arena_array(&graph->arena, capacity, sizeof *old);
  if (graph->nodes == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to simplify the graph");
  graph->node_capacity = graph->node_count = (int)capacity;
  struct lower l = {.graph = graph};
  for (int n = 0; n < old_count; n++) {
    if (old[n].removed || strcmp(old[n].op, "Attention") != 0) {
      graph->nodes[l.count++] = old[n];
      continue;
    }
    l.from = &old[n];
    CUVIL_TRY(lower_node(&l));
  }
  graph->node_count = l.count;
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}
