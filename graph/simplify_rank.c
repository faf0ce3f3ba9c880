/* One-dimensional windows become two-dimensional ones of height 1, between an
 * Unsqueeze and a Squeeze that cost nothing, so that what comes after import
 * knows one kind of window only.
 */
#include <stdio.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

static bool is_narrow(const struct cuvil_graph *graph,
                      const struct cuvil_node *node) {
  bool window = strcmp(node->op, "Conv") == 0 ||
                strcmp(node->op, "MaxPool") == 0 ||
                strcmp(node->op, "AveragePool") == 0;
  return window && !node->removed && graph->values[node->inputs[0]].rank == 3;
}

/* A value like `value` with an extent of 1 before its last one. */
static enum cuvil_status widened(struct cuvil_graph *graph, int value,
                                 int *out) {
  struct cuvil_value like = graph->values[value];
  char name[256];
  snprintf(name, sizeof name, "%.200s_wide", like.name);
  int64_t dims[4] = {like.dims[0], like.dims[1], 1, like.dims[2]};
  graph->values[value].owned = like.data == NULL && like.owned;
  return cuvil_graph_add_value(graph, name, like.dtype, 4, dims, like.data,
                               out);
}

static enum cuvil_status reshaping(struct cuvil_graph *graph,
                                   const struct cuvil_node *near,
                                   const char *op, int from, int axis, int to,
                                   struct cuvil_node *out) {
  int *links = cuvil_arena_array(&graph->arena, 3, sizeof *links);
  if (links == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  links[0] = from, links[1] = axis, links[2] = to;
  *out = (struct cuvil_node){.name = near->name,
                             .op = op,
                             .domain = "",
                             .opset = near->opset,
                             .input_count = 2,
                             .output_count = 1,
                             .inputs = links,
                             .outputs = links + 2};
  return CUVIL_OK;
}

/* Attributes from the window as it was understood; auto_pad is resolved. */
static enum cuvil_status set_window(struct cuvil_graph *graph, int node,
                                    const struct cuvil_window *w, bool conv) {
  CUVIL_TRY(cuvil_graph_set_ints(graph, node, "kernel_shape", 2, w->kernel));
  CUVIL_TRY(cuvil_graph_set_ints(graph, node, "strides", 2, w->stride));
  CUVIL_TRY(cuvil_graph_set_ints(graph, node, "pads", 4, w->pad));
  bool holes = w->dilation[0] != 1 || w->dilation[1] != 1;
  if (conv || holes)
    CUVIL_TRY(cuvil_graph_set_ints(graph, node, "dilations", 2, w->dilation));
  struct cuvil_attribute notset = {
      .name = "auto_pad", .kind = CUVIL_ATTR_STRING, .s = "NOTSET"};
  return cuvil_graph_set_attribute(graph, node, &notset);
}

/* Appends what stands for one narrow node to graph->nodes. */
static enum cuvil_status widen(struct cuvil_graph *graph,
                               const struct cuvil_node *old, int axis,
                               int *count) {
  bool conv = strcmp(old->op, "Conv") == 0;
  struct cuvil_window window;
  CUVIL_TRY(cuvil_node_window(graph, old, &window));
  int x, y;
  CUVIL_TRY(widened(graph, old->inputs[0], &x));
  CUVIL_TRY(widened(graph, old->outputs[0], &y));
  graph->values[x].data = NULL;
  int *inputs = cuvil_arena_array(&graph->arena, (size_t)old->input_count + 1,
                                  sizeof *inputs);
  if (inputs == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  memcpy(inputs, old->inputs, (size_t)old->input_count * sizeof *inputs);
  CUVIL_TRY(reshaping(graph, old, "Unsqueeze", old->inputs[0], axis, x,
                      &graph->nodes[(*count)++]));
  inputs[0] = x;
  if (conv) {
    CUVIL_TRY(widened(graph, old->inputs[1], &inputs[1]));
    if (graph->values[inputs[1]].data == NULL)
      CUVIL_TRY(reshaping(graph, old, "Unsqueeze", old->inputs[1], axis,
                          inputs[1], &graph->nodes[(*count)++]));
  }
  int *output = cuvil_arena_array(&graph->arena, 1, sizeof *output);
  if (output == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  *output = y;
  int at = (*count)++;
  graph->nodes[at] = *old;
  graph->nodes[at].inputs = inputs;
  graph->nodes[at].outputs = output;
  graph->nodes[at].output_count = 1;
  CUVIL_TRY(set_window(graph, at, &window, conv));
  return reshaping(graph, old, "Squeeze", y, axis, old->outputs[0],
                   &graph->nodes[(*count)++]);
}

enum cuvil_status cuvil_graph_widen_windows(struct cuvil_graph *graph) {
  const struct cuvil_node *old = graph->nodes;
  int old_count = graph->node_count, narrow = 0, count = 0, axis;
  for (int n = 0; n < old_count; n++)
    narrow += is_narrow(graph, &old[n]);
  if (narrow == 0) return CUVIL_OK;
  static const int64_t two = 2, one = 1;
  CUVIL_TRY(cuvil_graph_add_value(graph, "window_axis", CUVIL_I64, 1, &one,
                                  &two, &axis));
  size_t capacity = (size_t)old_count + 3 * (size_t)narrow;
  graph->nodes = cuvil_arena_array(&graph->arena, capacity, sizeof *old);
  if (graph->nodes == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to simplify the graph");
  graph->node_capacity = (int)capacity;
  graph->node_count = (int)capacity; /* cuvil_graph_set_ints looks at it */
  for (int n = 0; n < old_count; n++)
    if (is_narrow(graph, &old[n]))
      CUVIL_TRY(widen(graph, &old[n], axis, &count));
    else
      graph->nodes[count++] = old[n];
  graph->node_count = count;
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}
