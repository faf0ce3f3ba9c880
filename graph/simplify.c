/* Rewrites that no strategy would want to leave out: nodes that change nothing
 * go (simplify_noop.c says which), a BatchNorm folds into the convolution
 * before it, or becomes a multiplication and an addition, and what no output
 * needs goes.
 *
 * A tensor that is also a graph output, or has another user, is never folded
 * away.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

static bool is_op(const struct cuvil_node *node, const char *op) {
  return !node->removed && strcmp(node->op, op) == 0;
}

/* ---- nodes that pass an input on.  alias[v] is the value that stands for v.
 */
static int resolve(const int *alias, int value) {
  while (value >= 0 && alias[value] != value)
    value = alias[value];
  return value;
}

static void drop_copy(struct cuvil_graph *graph, struct cuvil_node *node,
                      int operand, int *alias) {
  int in = node->inputs[operand], out = node->outputs[0];
  struct cuvil_value *x = &graph->values[in];
  if (!graph->values[out].is_output) {
    alias[out] = in;
    node->removed = true;
    return;
  }
  /* The output keeps its name: the producer writes it directly, unless the
   * input must exist on its own, too. */
  if (x->is_input || x->is_output || x->data != NULL || x->producer < 0) return;
  struct cuvil_node *producer = &graph->nodes[x->producer];
  for (int i = 0; i < producer->output_count; i++)
    if (producer->outputs[i] == in) producer->outputs[i] = out;
  graph->values[out].producer = x->producer;
  x->producer = -1;
  alias[in] = out;
  node->removed = true;
}

static enum cuvil_status drop_copies(struct cuvil_graph *graph) {
  int *alias = cuvil_arena_array(&graph->arena, (size_t)graph->value_count + 1,
                                 sizeof *alias);
  if (alias == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to simplify the graph");
  for (int v = 0; v < graph->value_count; v++)
    alias[v] = v;
  for (int pass = 0; pass < 2; pass++)
    for (int n = 0; n < graph->node_count; n++) {
      struct cuvil_node *node = &graph->nodes[n];
      if (node->removed) continue;
      for (int i = 0; i < node->input_count; i++)
        node->inputs[i] = resolve(alias, node->inputs[i]);
      int operand = pass == 0 ? cuvil_node_passes_on(graph, node) : -1;
      if (operand >= 0) drop_copy(graph, node, operand, alias);
    }
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

/* ---- BatchNorm.  y = x * factor[c] + shift[c]. */
static void norm_terms(const struct cuvil_graph *graph,
                       const struct cuvil_node *node, int64_t c, double *factor,
                       double *shift) {
  double p[4];
  for (int i = 0; i < 4; i++) {
    const struct cuvil_value *v = &graph->values[node->inputs[1 + i]];
    p[i] = cuvil_load(v->dtype, v->data, (size_t)c);
  }
  double epsilon = cuvil_node_float(node, "epsilon", 1e-5f);
  *factor = p[0] / sqrt(p[3] + epsilon);
  *shift = p[1] - p[2] * *factor;
}

static enum cuvil_status add_constant(struct cuvil_graph *graph,
                                      const char *base, const char *suffix,
                                      enum cuvil_dtype dtype, int rank,
                                      const int64_t *dims, int *out_value,
                                      void **out_data) {
  char name[256];
  snprintf(name, sizeof name, "%.200s%s", base, suffix);
  size_t bytes = cuvil_dtype_size(dtype);
  for (int i = 0; i < rank; i++)
    bytes *= (size_t)dims[i];
  *out_data = cuvil_arena_alloc(&graph->arena, bytes);
  if (*out_data == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                      "no memory for a constant of %zu bytes", bytes);
  CUVIL_TRY(cuvil_graph_add_value(graph, name, dtype, rank, dims, *out_data,
                                  out_value));
  graph->values[*out_value].owned = true;
  return CUVIL_OK;
}

static const struct cuvil_node *foldable_conv(const struct cuvil_graph *graph,
                                              const struct cuvil_node *norm) {
  const struct cuvil_value *x = &graph->values[norm->inputs[0]];
  if (x->producer < 0 || x->user_count != 1 || x->is_output) return NULL;
  const struct cuvil_node *conv = &graph->nodes[x->producer];
  if (!is_op(conv, "Conv")) return NULL;
  const struct cuvil_value *bias = cuvil_op_input(graph, conv, 2);
  if (graph->values[conv->inputs[1]].data == NULL) return NULL;
  return bias == NULL || bias->data != NULL ? conv : NULL;
}

/* Memory that takes the scaled weights: the weights' own where nothing else
 * looks at them (no second copy of a large model), else a new constant. */
static enum cuvil_status writable_weights(struct cuvil_graph *graph,
                                          struct cuvil_node *conv, void **out) {
  int value = conv->inputs[1];
  const struct cuvil_value *w = &graph->values[value];
  *out = (void *)(uintptr_t)w->data;
  if (w->owned && w->user_count == 1) return CUVIL_OK;
  int copy;
  CUVIL_TRY(add_constant(graph, w->name, "_folded", w->dtype, w->rank, w->dims,
                         &copy, out));
  conv->inputs[1] = copy;
  graph->values[copy].user_count = 1;
  graph->values[value].user_count--;
  return CUVIL_OK;
}

static void scale(enum cuvil_dtype dtype, const void *from, void *to,
                  size_t begin, size_t end, double factor) {
  if (dtype == CUVIL_F32) {
    for (size_t i = begin; i < end; i++)
      ((float *)to)[i] = (float)(((const float *)from)[i] * factor);
    return;
  }
  for (size_t i = begin; i < end; i++)
    cuvil_store(dtype, to, i, cuvil_load(dtype, from, i) * factor);
}

static enum cuvil_status fold_norm(struct cuvil_graph *graph,
                                   struct cuvil_node *conv,
                                   struct cuvil_node *norm) {
  struct cuvil_value w = graph->values[conv->inputs[1]];
  int64_t channels = w.dims[0];
  int bias;
  void *weights, *biases;
  CUVIL_TRY(writable_weights(graph, conv, &weights));
  CUVIL_TRY(add_constant(graph, w.name, "_bias_folded", w.dtype, 1, &channels,
                         &bias, &biases));
  size_t each = (size_t)(cuvil_value_elements(&w) / channels);
  const struct cuvil_value *old = cuvil_op_input(graph, conv, 2);
  for (int64_t c = 0; c < channels; c++) {
    double factor, shift;
    norm_terms(graph, norm, c, &factor, &shift);
    if (old != NULL)
      shift += factor * cuvil_load(old->dtype, old->data, (size_t)c);
    cuvil_store(w.dtype, biases, (size_t)c, shift);
    scale(w.dtype, w.data, weights, (size_t)c * each, ((size_t)c + 1) * each,
          factor);
  }
  int *inputs = cuvil_arena_array(&graph->arena, 3, sizeof *inputs);
  if (inputs == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  inputs[0] = conv->inputs[0];
  inputs[1] = conv->inputs[1];
  inputs[2] = bias;
  conv->inputs = inputs;
  conv->input_count = 3;
  graph->values[norm->inputs[0]].producer = -1;
  conv->outputs[0] = norm->outputs[0];
  graph->values[norm->outputs[0]].producer = (int)(conv - graph->nodes);
  norm->removed = true;
  return CUVIL_OK;
}

static enum cuvil_status fold_norms(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; n++) {
    struct cuvil_node *norm = &graph->nodes[n];
    if (!is_op(norm, "BatchNormalization")) continue;
    const struct cuvil_node *conv = foldable_conv(graph, norm);
    if (conv != NULL)
      CUVIL_TRY(fold_norm(graph, &graph->nodes[conv - graph->nodes], norm));
  }
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

/* A BatchNorm that stays: `mul` and `add` are made from it. */
static enum cuvil_status split_norm(struct cuvil_graph *graph,
                                    const struct cuvil_node *norm,
                                    struct cuvil_node *mul,
                                    struct cuvil_node *add) {
  struct cuvil_value x = graph->values[norm->inputs[0]];
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  dims[0] = x.dims[1];
  for (int i = 1; i < x.rank - 1; i++)
    dims[i] = 1;
  int factor, shift, middle;
  void *factors, *shifts;
  const char *name = graph->values[norm->outputs[0]].name;
  CUVIL_TRY(add_constant(graph, name, "_factor", x.dtype, x.rank - 1, dims,
                         &factor, &factors));
  CUVIL_TRY(add_constant(graph, name, "_shift", x.dtype, x.rank - 1, dims,
                         &shift, &shifts));
  for (int64_t c = 0; c < dims[0]; c++) {
    double f, s;
    norm_terms(graph, norm, c, &f, &s);
    cuvil_store(x.dtype, factors, (size_t)c, f);
    cuvil_store(x.dtype, shifts, (size_t)c, s);
  }
  char label[256];
  snprintf(label, sizeof label, "%.200s_scaled", name);
  CUVIL_TRY(cuvil_graph_add_value(graph, label, x.dtype, x.rank, x.dims, NULL,
                                  &middle));
  int *links = cuvil_arena_array(&graph->arena, 6, sizeof *links);
  if (links == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  links[0] = norm->inputs[0], links[1] = factor, links[2] = middle;
  links[3] = middle, links[4] = shift, links[5] = norm->outputs[0];
  *mul = *norm;
  mul->op = "Mul";
  mul->attribute_count = 0;
  mul->input_count = 2, mul->inputs = links;
  mul->output_count = 1, mul->outputs = links + 2;
  *add = *mul;
  add->op = "Add";
  add->inputs = links + 3;
  add->outputs = links + 5;
  return CUVIL_OK;
}

/* ---- what no output needs, and closing the gaps */
static enum cuvil_status drop_unneeded(struct cuvil_graph *graph) {
  bool *needed =
      cuvil_arena_array(&graph->arena, (size_t)graph->value_count + 1, 1);
  if (needed == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to simplify the graph");
  for (int i = 0; i < graph->output_count; i++)
    needed[graph->outputs[i]] = true;
  for (int n = graph->node_count - 1; n >= 0; n--) {
    struct cuvil_node *node = &graph->nodes[n];
    if (node->removed) continue;
    bool used = false;
    for (int i = 0; i < node->output_count; i++)
      used |= node->outputs[i] >= 0 && needed[node->outputs[i]];
    node->removed = !used;
    for (int i = 0; used && i < node->input_count; i++)
      if (node->inputs[i] >= 0) needed[node->inputs[i]] = true;
  }
  return CUVIL_OK;
}

static enum cuvil_status close_gaps(struct cuvil_graph *graph) {
  size_t capacity = 1;
  for (int n = 0; n < graph->node_count; n++)
    capacity += is_op(&graph->nodes[n], "BatchNormalization") ? 2 : 1;
  struct cuvil_node *nodes =
      cuvil_arena_array(&graph->arena, capacity, sizeof *nodes);
  if (nodes == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to simplify the graph");
  int count = 0;
  for (int n = 0; n < graph->node_count; n++) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed) continue;
    if (is_op(node, "BatchNormalization")) {
      CUVIL_TRY(split_norm(graph, node, &nodes[count], &nodes[count + 1]));
      count += 2;
    } else {
      nodes[count++] = *node;
    }
  }
  graph->nodes = nodes;
  graph->node_count = count;
  graph->node_capacity = (int)capacity;
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_simplify(struct cuvil_graph *graph) {
  CUVIL_TRY(cuvil_graph_lower_attention(graph));
  CUVIL_TRY(cuvil_graph_straighten_masks(graph));
  CUVIL_TRY(drop_copies(graph));
  CUVIL_TRY(fold_norms(graph));
  CUVIL_TRY(drop_unneeded(graph));
  CUVIL_TRY(close_gaps(graph));
  return cuvil_graph_widen_windows(graph);
}
