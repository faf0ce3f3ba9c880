/* rewrite_linear.c - products with constant matrices: their bias, the views
 * after them, and those that read the same rows.
 *
 * A view that leaves the last axis alone says only where the rows go, so it
 * may as well be done to the rows of the input, where strides say it; what
 * follows the product (an activation, a residual) then stands right after it.
 * Products of one input whose results are only seen through views (queries,
 * keys, values) become one product, and parts of its result.
 */
#include <stdlib.h>
#include <string.h>

#include "fusion/rewrite.h"

static bool is_product(const struct cuvil_graph *graph,
                       const struct cuvil_node *node) {
  if (node->removed || node->domain[0]) return false;
  if (strcmp(node->op, "MatMul") != 0 && strcmp(node->op, "Gemm") != 0)
    return false;
  const struct cuvil_value *a = &graph->values[node->inputs[0]];
  const struct cuvil_value *b = &graph->values[node->inputs[1]];
  return !a->data && a->rank >= 2 && b->data && b->rank == 2 &&
         cuvil_dtype_is_float(b->dtype) && !cuvil_node_int(node, "transA", 0) &&
         cuvil_node_float(node, "alpha", 1) == 1 &&
         cuvil_node_float(node, "beta", 1) == 1;
}

/* A constant of the columns, the same for all rows. */
static bool is_bias(const struct cuvil_graph *graph, int value,
                    int64_t columns) {
  const struct cuvil_value *v = &graph->values[value];
  return v->data && cuvil_value_elements(v) == columns && v->rank >= 1 &&
         v->dims[v->rank - 1] == columns && cuvil_dtype_is_float(v->dtype);
}

static int64_t columns_of(const struct cuvil_graph *graph, int value) {
  const struct cuvil_value *v = &graph->values[value];
  return v->dims[v->rank - 1];
}

/* MatMul and Add become Gemm at the Add's place. */
static enum cuvil_status take_bias(struct cuvil_graph *graph, int node) {
  struct cuvil_node *n = &graph->nodes[node];
  int y = n->outputs[0];
  if (strcmp(n->op, "MatMul") != 0) return CUVIL_OK;
  int user = cuvil_only_user(graph, y);
  if (user < 0 || strcmp(graph->nodes[user].op, "Add") != 0 ||
      graph->nodes[user].domain[0])
    return CUVIL_OK;
  const int *in = graph->nodes[user].inputs;
  int bias = in[0] == y ? in[1] : in[0];
  if (in[0] == in[1] || !is_bias(graph, bias, columns_of(graph, y)) ||
      graph->values[bias].rank > graph->values[y].rank)
    return CUVIL_OK;
  if (graph->values[bias].rank > 1) {
    /* The same bytes as a vector. */
    struct cuvil_value v = graph->values[bias];
    CUVIL_TRY(cuvil_new_constant(graph, v.name, v.dtype, 1, &v.dims[v.rank - 1],
                                 v.data, &bias));
  }
  int inputs[3] = {n->inputs[0], n->inputs[1], bias};
  CUVIL_TRY(cuvil_replace_node(graph, user, "Gemm", 3, inputs));
  n->removed = true;
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

/* ---- views after a product */

/* The view leaves the last axis as it is; its permutation, if it has one. */
static bool keeps_columns(const struct cuvil_graph *graph,
                          const struct cuvil_node *view) {
  const struct cuvil_value *x = &graph->values[view->inputs[0]];
  const struct cuvil_value *y = &graph->values[view->outputs[0]];
  if (y->rank < 2 || y->dims[y->rank - 1] != x->dims[x->rank - 1]) return false;
  if (strcmp(view->op, "Transpose") == 0) {
    int64_t perm[CUVIL_GRAPH_MAX_RANK];
    int count = cuvil_node_ints(view, "perm", perm, CUVIL_GRAPH_MAX_RANK);
    return count == x->rank && perm[count - 1] == count - 1;
  }
  return strcmp(view->op, "Reshape") == 0 || strcmp(view->op, "Squeeze") == 0 ||
         strcmp(view->op, "Unsqueeze") == 0 || strcmp(view->op, "Flatten") == 0;
}

/* product, view -> view, product; *changed when so. */
static enum cuvil_status hoist(struct cuvil_graph *graph, int node,
                               bool *changed) {
  struct cuvil_node n = graph->nodes[node];
  int user = cuvil_only_user(graph, n.outputs[0]);
  *changed = false;
  if (user < 0 || graph->nodes[user].inputs[0] != n.outputs[0] ||
      graph->nodes[user].domain[0] ||
      !keeps_columns(graph, &graph->nodes[user]))
    return CUVIL_OK;
  struct cuvil_node view = graph->nodes[user];
  bool transpose = strcmp(view.op, "Transpose") == 0;
  const struct cuvil_value *y = &graph->values[view.outputs[0]];
  struct cuvil_value a = graph->values[n.inputs[0]];
  if (n.input_count > 2 && n.inputs[2] >= 0 &&
      graph->values[n.inputs[2]].rank != 1)
    return CUVIL_OK;
  int64_t dims[CUVIL_GRAPH_MAX_RANK], perm[CUVIL_GRAPH_MAX_RANK];
  int rank = y->rank, moved;
  memcpy(dims, y->dims, sizeof(dims));
  dims[rank - 1] = a.dims[a.rank - 1];
  if (transpose) {
    if (a.rank != rank) return CUVIL_OK;
    cuvil_node_ints(&view, "perm", perm, CUVIL_GRAPH_MAX_RANK);
  }
  CUVIL_TRY(cuvil_insert_node(graph, user, a.name,
                              transpose ? "Transpose" : "Reshape", 1, n.inputs,
                              rank, dims, &moved));
  if (transpose)
    CUVIL_TRY(cuvil_graph_set_ints(graph, user, "perm", rank, perm));
  struct cuvil_node *product = &graph->nodes[user + 1];
  int inputs[3] = {moved, n.inputs[1], n.input_count > 2 ? n.inputs[2] : -1};
  bool trans_b = cuvil_node_int(&n, "transB", 0) != 0;
  CUVIL_TRY(cuvil_replace_node(graph, user + 1, n.op, n.input_count, inputs));
  product->name = n.name;
  if (trans_b) CUVIL_TRY(cuvil_graph_set_int(graph, user + 1, "transB", 1));
  graph->nodes[node].removed = true;
  cuvil_graph_relink(graph);
  *changed = true;
  return CUVIL_OK;
}

/* ---- siblings */

static bool is_view(const char *op) {
  static const char *const views[] = {"Reshape",   "Transpose",    "Squeeze",
                                      "Unsqueeze", "Flatten",      "Part",
                                      "Slice",     "AttentionCore"};
  for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); ++i)
    if (strcmp(views[i], op) == 0) return true;
  return false;
}

/* Everybody who reads the value reads it through a view. */
static bool only_viewed(const struct cuvil_graph *graph, int value) {
  int uses = 0;
  for (int i = 0; i < graph->output_count; ++i)
    if (graph->outputs[i] == value) return false;
  for (int n = graph->values[value].producer + 1; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    for (int i = 0; !node->removed && i < node->input_count; ++i) {
      if (node->inputs[i] != value) continue;
      if (!is_view(node->op)) return false;
      ++uses;
    }
  }
  return uses > 0;
}

enum { MAX_SIBLINGS = 8 };

/* Columns of b as rows of the joined [n, k] matrix. */
static void copy_matrix(const struct cuvil_graph *graph,
                        const struct cuvil_node *node, float *out) {
  const struct cuvil_value *b = &graph->values[node->inputs[1]];
  bool n_first = cuvil_node_int(node, "transB", 0) != 0;
  int64_t count = b->dims[0] * b->dims[1];
  if (n_first) {
    cuvil_convert(CUVIL_F32, out, b->dtype, b->data, (size_t)count);
    return;
  }
  int64_t k = b->dims[0], n = b->dims[1];
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j)
      out[j * k + i] =
          b->dtype == CUVIL_F32
              ? ((const float *)b->data)[i * n + j]
              : (float)cuvil_load(b->dtype, b->data, (size_t)(i * n + j));
}

static enum cuvil_status joined_constants(struct cuvil_graph *graph,
                                          const int *nodes, int count,
                                          int64_t k, int64_t total, int *out_w,
                                          int *out_bias) {
  float *w =
      cuvil_arena_array(&graph->arena, (size_t)(k * total) + 1, sizeof(float));
  float *bias =
      cuvil_arena_array(&graph->arena, (size_t)total + 1, sizeof(float));
  if (!w || !bias) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "joining products");
  const char *w_name = "", *bias_name = "";
  int64_t at = 0;
  bool any_bias = false;
  for (int i = 0; i < count; ++i) {
    const struct cuvil_node *node = &graph->nodes[nodes[i]];
    copy_matrix(graph, node, w + at * k);
    int64_t n = columns_of(graph, node->outputs[0]);
    int b = node->input_count > 2 ? node->inputs[2] : -1;
    w_name = graph->values[node->inputs[1]].name;
    if (b >= 0) {
      const struct cuvil_value *v = &graph->values[b];
      cuvil_convert(CUVIL_F32, bias + at, v->dtype, v->data, (size_t)n);
      bias_name = v->name;
      any_bias = true;
    }
    at += n;
  }
  enum cuvil_dtype dtype =
      graph->values[graph->nodes[nodes[0]].inputs[1]].dtype;
  void *stored = w, *stored_bias = bias;
  if (dtype != CUVIL_F32) {
    /* In the model's own type, as each of them was. */
    size_t size = cuvil_dtype_size(dtype);
    stored = cuvil_arena_array(&graph->arena, (size_t)(k * total) + 1, size);
    stored_bias = cuvil_arena_array(&graph->arena, (size_t)total + 1, size);
    if (!stored || !stored_bias)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "joining products");
    cuvil_convert(dtype, stored, CUVIL_F32, w, (size_t)(k * total));
    cuvil_convert(dtype, stored_bias, CUVIL_F32, bias, (size_t)total);
  }
  CUVIL_TRY(cuvil_new_constant(graph, w_name, dtype, 2, (int64_t[]){total, k},
                               stored, out_w));
  *out_bias = -1;
  if (any_bias)
    CUVIL_TRY(cuvil_new_constant(graph, bias_name, dtype, 1, &total,
                                 stored_bias, out_bias));
  return CUVIL_OK;
}

static enum cuvil_status join(struct cuvil_graph *graph, const int *nodes,
                              int count) {
  struct cuvil_node first = graph->nodes[nodes[0]];
  struct cuvil_value y = graph->values[first.outputs[0]];
  int64_t k = columns_of(graph, first.inputs[0]), total = 0, at = 0;
  int joined, w, bias, values[MAX_SIBLINGS];
  for (int i = 0; i < count; ++i) {
    values[i] = graph->nodes[nodes[i]].outputs[0];
    total += columns_of(graph, values[i]);
  }
  CUVIL_TRY(joined_constants(graph, nodes, count, k, total, &w, &bias));
  y.dims[y.rank - 1] = total;
  int inputs[3] = {first.inputs[0], w, bias};
  CUVIL_TRY(cuvil_insert_node(graph, nodes[0], first.name, "Gemm",
                              bias >= 0 ? 3 : 2, inputs, y.rank, y.dims,
                              &joined));
  CUVIL_TRY(cuvil_graph_set_int(graph, nodes[0], "transB", 1));
  for (int i = 0; i < count; ++i) {
    int node = graph->values[values[i]].producer;
    int64_t n = columns_of(graph, values[i]);
    CUVIL_TRY(cuvil_replace_node(graph, node, "Part", 1, &joined));
    CUVIL_TRY(cuvil_graph_set_int(graph, node, "axis", y.rank - 1));
    CUVIL_TRY(cuvil_graph_set_int(graph, node, "start", at));
    CUVIL_TRY(cuvil_graph_set_int(graph, node, "count", n));
    at += n;
  }
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

static bool joinable(const struct cuvil_graph *graph, int node) {
  const struct cuvil_node *n = &graph->nodes[node];
  if (!is_product(graph, n) ||
      (n->input_count > 2 && n->inputs[2] >= 0 &&
       !is_bias(graph, n->inputs[2], columns_of(graph, n->outputs[0]))))
    return false;
  /* Parts must begin at aligned places. */
  return columns_of(graph, n->outputs[0]) % 8 == 0 &&
         only_viewed(graph, n->outputs[0]);
}

static enum cuvil_status join_siblings(struct cuvil_graph *graph, int node,
                                       bool *joined) {
  int nodes[MAX_SIBLINGS], count = 0;
  *joined = false;
  if (!joinable(graph, node)) return CUVIL_OK;
  const struct cuvil_node *first = &graph->nodes[node];
  const struct cuvil_value *y = &graph->values[first->outputs[0]];
  enum cuvil_dtype dtype = graph->values[first->inputs[1]].dtype;
  nodes[count++] = node;
  for (int n = node + 1; n < graph->node_count && count < MAX_SIBLINGS; ++n) {
    const struct cuvil_node *other = &graph->nodes[n];
    if (other->removed || other->input_count < 2 ||
        other->inputs[0] != first->inputs[0] || !joinable(graph, n) ||
        graph->values[other->inputs[1]].dtype != dtype)
      continue;
    const struct cuvil_value *z = &graph->values[other->outputs[0]];
    if (z->rank != y->rank ||
        memcmp(z->dims, y->dims, (size_t)(y->rank - 1) * sizeof(y->dims[0])) !=
            0)
      continue;
    nodes[count++] = n;
  }
  *joined = count > 1;
  return count > 1 ? join(graph, nodes, count) : CUVIL_OK;
}

enum cuvil_status cuvil_rewrite_linear(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n)
    if (is_product(graph, &graph->nodes[n])) CUVIL_TRY(take_bias(graph, n));
  for (int n = 0; n < graph->node_count; ++n) {
    bool changed = false;
    if (is_product(graph, &graph->nodes[n]))
      CUVIL_TRY(hoist(graph, n, &changed));
  }
  for (int n = 0; n < graph->node_count; ++n) {
    bool joined = false;
    if (!graph->nodes[n].removed && graph->nodes[n].input_count >= 2)
      CUVIL_TRY(join_siblings(graph, n, &joined));
  }
  return CUVIL_OK;
}
