/* rewrite.c - see rewrite.h: the copy, the tools, and the order of passes. */
#include "fusion/rewrite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ours(const struct cuvil_node *node) {
  return !node->domain[0] || strcmp(node->domain, "ai.onnx") == 0;
}

struct cuvil_node *cuvil_made_by(const struct cuvil_graph *graph, int value,
                                 const char *op) {
  if (value < 0) return NULL;
  int producer = graph->values[value].producer;
  if (producer < 0 || graph->nodes[producer].removed) return NULL;
  struct cuvil_node *node = &graph->nodes[producer];
  return ours(node) && strcmp(node->op, op) == 0 && node->outputs[0] == value
             ? node
             : NULL;
}

bool cuvil_constant_scalar(const struct cuvil_graph *graph, int value,
                           double *out) {
  if (value < 0) return false;
  const struct cuvil_value *v = &graph->values[value];
  if (!v->data || cuvil_value_elements(v) != 1) return false;
  *out = cuvil_load(v->dtype, v->data, 0);
  return true;
}

bool cuvil_constant_near(const struct cuvil_graph *graph, int value,
                         double number) {
  double scalar;
  return cuvil_constant_scalar(graph, value, &scalar) &&
         fabs(scalar - number) <= 1e-3 * fabs(number);
}

int cuvil_with_scalar(const struct cuvil_graph *graph, int value,
                      const char *op, double number) {
  const struct cuvil_node *node = cuvil_made_by(graph, value, op);
  if (!node || node->input_count != 2) return -1;
  if (cuvil_constant_near(graph, node->inputs[1], number))
    return node->inputs[0];
  bool commutes = strcmp(op, "Add") == 0 || strcmp(op, "Mul") == 0;
  return commutes && cuvil_constant_near(graph, node->inputs[0], number)
             ? node->inputs[1]
             : -1;
}

enum cuvil_status cuvil_replace_node(struct cuvil_graph *graph, int node,
                                     const char *op, int input_count,
                                     const int *inputs) {
  struct cuvil_node *n = &graph->nodes[node];
  int *copy =
      cuvil_arena_array(&graph->arena, (size_t)input_count + 1, sizeof(int));
  if (!copy) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  memcpy(copy, inputs, (size_t)input_count * sizeof(int));
  n->op = op;
  n->inputs = copy;
  n->input_count = input_count;
  n->attributes = NULL;
  n->attribute_count = 0;
  return CUVIL_OK;
}

enum cuvil_status cuvil_set_float(struct cuvil_graph *graph, int node,
                                  const char *name, double value) {
  struct cuvil_attribute attribute = {
      .name = name, .kind = CUVIL_ATTR_FLOAT, .f = value};
  return cuvil_graph_set_attribute(graph, node, &attribute);
}

enum cuvil_status cuvil_insert_node(struct cuvil_graph *graph, int before,
                                    const char *name, const char *op,
                                    int input_count, const int *inputs,
                                    int rank, const int64_t *dims,
                                    int *out_value) {
  int node;
  enum cuvil_dtype dtype = graph->values[inputs[0]].dtype;
  CUVIL_TRY(
      cuvil_graph_add_value(graph, name, dtype, rank, dims, NULL, out_value));
  CUVIL_TRY(cuvil_graph_add_node(graph, name, op, input_count, inputs, 1,
                                 out_value, &node));
  struct cuvil_node made = graph->nodes[node];
  memmove(&graph->nodes[before + 1], &graph->nodes[before],
          (size_t)(node - before) * sizeof(made));
  graph->nodes[before] = made;
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

int cuvil_only_user(const struct cuvil_graph *graph, int value) {
  if (graph->values[value].user_count != 1) return -1;
  for (int i = 0; i < graph->output_count; ++i)
    if (graph->outputs[i] == value) return -1;
  for (int n = graph->values[value].producer + 1; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    for (int i = 0; !node->removed && i < node->input_count; ++i)
      if (node->inputs[i] == value) return n;
  }
  return -1;
}

enum cuvil_status cuvil_new_constant(struct cuvil_graph *graph,
                                     const char *name, enum cuvil_dtype dtype,
                                     int rank, const int64_t *dims,
                                     const void *data, int *out_value) {
  return cuvil_graph_add_value(graph, name, dtype, rank, dims, data, out_value);
}

enum cuvil_status cuvil_sweep(struct cuvil_graph *graph) {
  bool *needed = calloc((size_t)graph->value_count + 1, sizeof(bool));
  if (!needed) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  for (int i = 0; i < graph->output_count; ++i)
    needed[graph->outputs[i]] = true;
  for (int n = graph->node_count - 1; n >= 0; --n) {
    struct cuvil_node *node = &graph->nodes[n];
    bool live = false;
    for (int o = 0; o < node->output_count; ++o)
      live |= node->outputs[o] >= 0 && needed[node->outputs[o]];
    if (!live) node->removed = true;
    for (int i = 0; !node->removed && i < node->input_count; ++i)
      if (node->inputs[i] >= 0) needed[node->inputs[i]] = true;
  }
  free(needed);
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

/* ---- the copy */

static enum cuvil_status copy_graph(struct cuvil_fused *fused,
                                    const struct cuvil_graph *from) {
  struct cuvil_graph *to =
      cuvil_arena_alloc(&fused->arena, sizeof(struct cuvil_graph));
  if (!to) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: the graph");
  *to = *from;
  memset(&to->arena, 0, sizeof(to->arena));
  to->owner = NULL;
  fused->graph = fused->copy = to;
  to->value_capacity = from->value_count + 64;
  to->node_capacity = from->node_count + 64;
  to->values = cuvil_arena_array(&to->arena, (size_t)to->value_capacity,
                                 sizeof(*to->values));
  to->nodes = cuvil_arena_array(&to->arena, (size_t)to->node_capacity,
                                sizeof(*to->nodes));
  if (!to->values || !to->nodes)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: the graph");
  if (from->value_count)
    memcpy(to->values, from->values,
           (size_t)from->value_count * sizeof(*to->values));
  if (from->node_count)
    memcpy(to->nodes, from->nodes,
           (size_t)from->node_count * sizeof(*to->nodes));
  for (int n = 0; n < to->node_count; ++n) {
    struct cuvil_node *node = &to->nodes[n];
    int *inputs = cuvil_arena_array(&to->arena, (size_t)node->input_count + 1,
                                    sizeof(int));
    if (!inputs) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: the graph");
    if (node->input_count)
      memcpy(inputs, node->inputs, (size_t)node->input_count * sizeof(int));
    node->inputs = inputs;
  }
  return CUVIL_OK;
}

/* A value that is another one under a new name, as classify.c has it. */
static bool renames(const struct cuvil_fused *fused,
                    const struct cuvil_node *node) {
  const struct cuvil_graph *graph = fused->graph;
  if (!ours(node) || node->input_count < 1 || node->inputs[0] < 0) return false;
  if (strcmp(node->op, "Identity") == 0 || strcmp(node->op, "Dropout") == 0)
    return true;
  if (strcmp(node->op, "Cast") != 0) return false;
  enum cuvil_dtype from = graph->values[node->inputs[0]].dtype;
  enum cuvil_dtype to = graph->values[node->outputs[0]].dtype;
  return from == to || (cuvil_dtype_is_float(from) && from != CUVIL_F64 &&
                        cuvil_dtype_is_float(to) && to != CUVIL_F64 &&
                        fused->options.precision != CUVIL_PRECISION_MODEL);
}

/* Nodes read what renames give new names to.  Graph outputs keep theirs. */
static enum cuvil_status bypass_renames(struct cuvil_fused *fused) {
  struct cuvil_graph *graph = fused->copy;
  int *same = malloc(((size_t)graph->value_count + 1) * sizeof(int));
  if (!same) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  for (int v = 0; v < graph->value_count; ++v)
    same[v] = v;
  for (int n = 0; n < graph->node_count; ++n) {
    struct cuvil_node *node = &graph->nodes[n];
    if (node->removed) continue;
    for (int i = 0; i < node->input_count; ++i)
      if (node->inputs[i] >= 0) node->inputs[i] = same[node->inputs[i]];
    if (renames(fused, node)) same[node->outputs[0]] = node->inputs[0];
  }
  free(same);
  return cuvil_sweep(graph);
}

/* ---- Split */

/* One node for each output: the split's place is the first's, and the others
 * stand before what follows. */
static enum cuvil_status split_parts(struct cuvil_graph *graph, int at) {
  struct cuvil_node node = graph->nodes[at];
  const struct cuvil_value *x = &graph->values[node.inputs[0]];
  int64_t axis = cuvil_node_int(&node, "axis", 0), start = 0;
  if (axis < 0) axis += x->rank;
  bool reused = false;
  for (int o = 0; o < node.output_count; ++o) {
    int part = at, value = node.outputs[o];
    if (value < 0) return CUVIL_OK;
    int64_t count = graph->values[value].dims[axis];
    if (!reused) {
      CUVIL_TRY(cuvil_replace_node(graph, at, "Part", 1, node.inputs));
      graph->nodes[at].output_count = 1;
      graph->nodes[at].outputs = node.outputs;
      reused = true;
    } else {
      CUVIL_TRY(cuvil_graph_add_node(graph, node.name, "Part", 1, node.inputs,
                                     1, &value, &part));
      struct cuvil_node made = graph->nodes[part];
      memmove(&graph->nodes[at + 1], &graph->nodes[at],
              (size_t)(part - at) * sizeof(made));
      graph->nodes[at] = made;
      part = at;
    }
    CUVIL_TRY(cuvil_graph_set_int(graph, part, "axis", axis));
    CUVIL_TRY(cuvil_graph_set_int(graph, part, "start", start));
    CUVIL_TRY(cuvil_graph_set_int(graph, part, "count", count));
    start += count;
  }
  return CUVIL_OK;
}

static enum cuvil_status rewrite_splits(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed || !ours(node) || strcmp(node->op, "Split") != 0)
      continue;
    bool known = graph->values[node->inputs[0]].rank > 0;
    for (int o = 0; known && o < node->output_count; ++o)
      known = node->outputs[o] >= 0 && graph->values[node->outputs[o]].rank > 0;
    if (known) CUVIL_TRY(split_parts(graph, n));
  }
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

enum cuvil_status cuvil_rewrite(struct cuvil_fused *fused,
                                const struct cuvil_graph *graph) {
  CUVIL_TRY(copy_graph(fused, graph));
  struct cuvil_graph *copy = fused->copy;
  CUVIL_TRY(bypass_renames(fused));
  CUVIL_TRY(rewrite_splits(copy));
  CUVIL_TRY(cuvil_rewrite_conditions(copy));
  CUVIL_TRY(cuvil_sweep(copy));
  enum cuvil_fusion_strategy strategy = fused->options.strategy;
  if (strategy != CUVIL_FUSION_NONE) {
    CUVIL_TRY(cuvil_rewrite_activations(copy));
    CUVIL_TRY(cuvil_sweep(copy));
  }
  if (strategy == CUVIL_FUSION_MEDIUM) {
    CUVIL_TRY(cuvil_rewrite_norms(copy));
    CUVIL_TRY(cuvil_sweep(copy));
    CUVIL_TRY(cuvil_rewrite_embeddings(copy));
    CUVIL_TRY(cuvil_sweep(copy));
    CUVIL_TRY(cuvil_rewrite_rotary(copy));
    CUVIL_TRY(cuvil_sweep(copy));
    CUVIL_TRY(cuvil_rewrite_attention(copy));
    CUVIL_TRY(cuvil_sweep(copy));
    CUVIL_TRY(cuvil_rewrite_linear(copy));
    CUVIL_TRY(cuvil_sweep(copy));
  }
  CUVIL_TRY(cuvil_rewrite_wheres(copy));
  return cuvil_sweep(copy);
}
