/* The graph in memory: two arrays (values, nodes) that refer to each other by
 * index, and small typed attributes.  Everything is in one arena, so growing an
 * array abandons its old copy there: graphs grow while they are read and hardly
 * afterwards, and a doubling array wastes at most its own size.
 */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/import.h"
#include "graph/ops.h"

#define OUT_OF_MEMORY(graph)                        \
  CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,                  \
             "no memory for the graph of %s after " \
             "%zu bytes",                           \
             (graph)->path, (graph)->arena.total)

enum cuvil_status cuvil_graph_create(struct cuvil_graph **out) {
  *out = NULL;
  struct cuvil_graph *graph = calloc(1, sizeof *graph);
  if (graph == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a graph");
  graph->name = "";
  graph->path = "(built)";
  graph->producer = "";
  graph->opset = 17;
  *out = graph;
  return CUVIL_OK;
}

void cuvil_graph_destroy(struct cuvil_graph *graph) {
  if (graph == NULL) return;
  cuvil_import_owner_destroy(graph->owner);
  cuvil_arena_free(&graph->arena);
  free(graph);
}

/* Makes room for one more element of an arena array. */
static void *grow(struct cuvil_graph *graph, void *array, int count,
                  int *capacity, size_t size) {
  if (count < *capacity) return array;
  int larger = *capacity < 16 ? 16 : *capacity * 2;
  void *copy = cuvil_arena_array(&graph->arena, (size_t)larger, size);
  if (copy == NULL) return NULL;
  if (count > 0) memcpy(copy, array, (size_t)count * size);
  *capacity = larger;
  return copy;
}

enum cuvil_status cuvil_graph_add_value(struct cuvil_graph *graph,
                                        const char *name,
                                        enum cuvil_dtype dtype, int rank,
                                        const int64_t *dims, const void *data,
                                        int *out_value) {
  *out_value = -1;
  CUVIL_CHECK(rank <= CUVIL_GRAPH_MAX_RANK);
  struct cuvil_value *values = grow(graph, graph->values, graph->value_count,
                                    &graph->value_capacity, sizeof *values);
  if (values == NULL) return OUT_OF_MEMORY(graph);
  graph->values = values;
  struct cuvil_value *value = &values[graph->value_count];
  *value = (struct cuvil_value){.name = cuvil_arena_strdup(&graph->arena, name),
                                .dtype = dtype,
                                .rank = rank,
                                .data = data,
                                .producer = -1};
  if (value->name == NULL) return OUT_OF_MEMORY(graph);
  for (int i = 0; i < rank; i++)
    value->dims[i] = dims[i];
  *out_value = graph->value_count++;
  return CUVIL_OK;
}

static enum cuvil_status append(struct cuvil_graph *graph, int **list,
                                int *count, int value) {
  CUVIL_CHECK(value >= 0 && value < graph->value_count);
  /* The capacity is the power of two at or above the count. */
  if ((*count & (*count - 1)) == 0) {
    size_t capacity = *count > 0 ? 2 * (size_t)*count : 1;
    int *longer = cuvil_arena_array(&graph->arena, capacity, sizeof *longer);
    if (longer == NULL) return OUT_OF_MEMORY(graph);
    if (*count > 0) memcpy(longer, *list, (size_t)*count * sizeof *longer);
    *list = longer;
  }
  (*list)[(*count)++] = value;
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_add_input(struct cuvil_graph *graph, int value) {
  CUVIL_TRY(append(graph, &graph->inputs, &graph->input_count, value));
  graph->values[value].is_input = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_add_output(struct cuvil_graph *graph, int value) {
  CUVIL_TRY(append(graph, &graph->outputs, &graph->output_count, value));
  graph->values[value].is_output = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_add_node(struct cuvil_graph *graph,
                                       const char *name, const char *op,
                                       int input_count, const int *inputs,
                                       int output_count, const int *outputs,
                                       int *out_node) {
  *out_node = -1;
  struct cuvil_node *nodes = grow(graph, graph->nodes, graph->node_count,
                                  &graph->node_capacity, sizeof *nodes);
  if (nodes == NULL) return OUT_OF_MEMORY(graph);
  graph->nodes = nodes;
  struct cuvil_arena *arena = &graph->arena;
  struct cuvil_node *node = &nodes[graph->node_count];
  *node = (struct cuvil_node){
      .name = cuvil_arena_strdup(arena, name),
      .op = cuvil_arena_strdup(arena, op),
      .domain = "",
      .opset = graph->opset,
      .input_count = input_count,
      .output_count = output_count,
      .inputs = cuvil_arena_array(arena, (size_t)input_count + 1, sizeof(int)),
      .outputs =
          cuvil_arena_array(arena, (size_t)output_count + 1, sizeof(int)),
  };
  if (node->name == NULL || node->op == NULL || node->inputs == NULL ||
      node->outputs == NULL)
    return OUT_OF_MEMORY(graph);
  for (int i = 0; i < input_count; i++) {
    CUVIL_CHECK(inputs[i] >= -1 && inputs[i] < graph->value_count);
    node->inputs[i] = inputs[i];
  }
  for (int i = 0; i < output_count; i++) {
    CUVIL_CHECK(outputs[i] >= -1 && outputs[i] < graph->value_count);
    node->outputs[i] = outputs[i];
  }
  *out_node = graph->node_count++;
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_set_attribute(
    struct cuvil_graph *graph, int node,
    const struct cuvil_attribute *attribute) {
  CUVIL_CHECK(node >= 0 && node < graph->node_count);
  struct cuvil_node *n = &graph->nodes[node];
  struct cuvil_arena *arena = &graph->arena;
  struct cuvil_attribute copy = *attribute;
  copy.name = cuvil_arena_strdup(arena, attribute->name);
  if (copy.s != NULL) copy.s = cuvil_arena_strdup(arena, attribute->s);
  size_t count = (size_t)attribute->count;
  if (copy.kind == CUVIL_ATTR_INTS) {
    int64_t *ints = cuvil_arena_array(arena, count + 1, sizeof *ints);
    if (ints != NULL && count > 0)
      memcpy(ints, attribute->ints, count * sizeof *ints);
    copy.ints = ints;
  }
  if (copy.kind == CUVIL_ATTR_FLOATS) {
    float *floats = cuvil_arena_array(arena, count + 1, sizeof *floats);
    if (floats != NULL && count > 0)
      memcpy(floats, attribute->floats, count * sizeof *floats);
    copy.floats = floats;
  }
  if (copy.name == NULL || (copy.kind == CUVIL_ATTR_STRING && copy.s == NULL) ||
      (copy.kind == CUVIL_ATTR_INTS && copy.ints == NULL) ||
      (copy.kind == CUVIL_ATTR_FLOATS && copy.floats == NULL))
    return OUT_OF_MEMORY(graph);
  for (int i = 0; i < n->attribute_count; i++)
    if (strcmp(n->attributes[i].name, copy.name) == 0) {
      n->attributes[i] = copy;
      return CUVIL_OK;
    }
  struct cuvil_attribute *more =
      cuvil_arena_array(arena, (size_t)n->attribute_count + 1, sizeof *more);
  if (more == NULL) return OUT_OF_MEMORY(graph);
  if (n->attribute_count > 0)
    memcpy(more, n->attributes, (size_t)n->attribute_count * sizeof *more);
  more[n->attribute_count++] = copy;
  n->attributes = more;
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_set_int(struct cuvil_graph *graph, int node,
                                      const char *name, int64_t value) {
  struct cuvil_attribute attribute = {
      .name = name, .kind = CUVIL_ATTR_INT, .i = value};
  return cuvil_graph_set_attribute(graph, node, &attribute);
}

enum cuvil_status cuvil_graph_set_ints(struct cuvil_graph *graph, int node,
                                       const char *name, int count,
                                       const int64_t *values) {
  struct cuvil_attribute attribute = {
      .name = name, .kind = CUVIL_ATTR_INTS, .count = count, .ints = values};
  return cuvil_graph_set_attribute(graph, node, &attribute);
}

const struct cuvil_attribute *cuvil_node_attribute(
    const struct cuvil_node *node, const char *name) {
  for (int i = 0; i < node->attribute_count; i++)
    if (strcmp(node->attributes[i].name, name) == 0)
      return &node->attributes[i];
  return NULL;
}

int64_t cuvil_node_int(const struct cuvil_node *node, const char *name,
                       int64_t fallback) {
  const struct cuvil_attribute *a = cuvil_node_attribute(node, name);
  return a != NULL && a->kind == CUVIL_ATTR_INT ? a->i : fallback;
}

double cuvil_node_float(const struct cuvil_node *node, const char *name,
                        double fallback) {
  const struct cuvil_attribute *a = cuvil_node_attribute(node, name);
  return a != NULL && a->kind == CUVIL_ATTR_FLOAT ? a->f : fallback;
}

const char *cuvil_node_string(const struct cuvil_node *node, const char *name,
                              const char *fallback) {
  const struct cuvil_attribute *a = cuvil_node_attribute(node, name);
  return a != NULL && a->kind == CUVIL_ATTR_STRING ? a->s : fallback;
}

int cuvil_node_ints(const struct cuvil_node *node, const char *name,
                    int64_t *out, int limit) {
  const struct cuvil_attribute *a = cuvil_node_attribute(node, name);
  if (a == NULL || a->kind != CUVIL_ATTR_INTS) return 0;
  for (int i = 0; i < a->count && i < limit; i++)
    out[i] = a->ints[i];
  return a->count;
}

int64_t cuvil_value_elements(const struct cuvil_value *value) {
  int64_t elements = 1;
  for (int i = 0; i < value->rank; i++)
    elements *= value->dims[i];
  return elements;
}

void cuvil_graph_relink(struct cuvil_graph *graph) {
  for (int v = 0; v < graph->value_count; v++) {
    graph->values[v].producer = -1;
    graph->values[v].user_count = 0;
  }
  for (int n = 0; n < graph->node_count; n++) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed) continue;
    for (int i = 0; i < node->input_count; i++)
      if (node->inputs[i] >= 0) graph->values[node->inputs[i]].user_count++;
    for (int i = 0; i < node->output_count; i++)
      if (node->outputs[i] >= 0) graph->values[node->outputs[i]].producer = n;
  }
  for (int i = 0; i < graph->output_count; i++)
    graph->values[graph->outputs[i]].user_count++;
}

void cuvil_text_clean(const char *text, char *out, size_t size) {
  size_t n = 0;
  for (; text[n] != '\0' && n + 1 < size; n++) {
    unsigned char c = (unsigned char)text[n];
    out[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
  }
  out[n] = '\0';
  if (text[n] != '\0' && n > 3) memcpy(out + n - 3, "...", 3);
}

const char *cuvil_node_describe(const struct cuvil_graph *graph,
                                const struct cuvil_node *node, char out[192]) {
  char op[41], name[81];
  cuvil_text_clean(node->op, op, sizeof op);
  if (node->name[0] != '\0') {
    cuvil_text_clean(node->name, name, sizeof name);
    snprintf(out, 192, "node \"%s\" (%s)", name, op);
    return out;
  }
  const char *output = "";
  for (int i = 0; i < node->output_count && output[0] == '\0'; i++)
    if (node->outputs[i] >= 0) output = graph->values[node->outputs[i]].name;
  cuvil_text_clean(output, name, sizeof name);
  snprintf(out, 192, "node #%d (%s, output \"%s\")", (int)(node - graph->nodes),
           op, name);
  return out;
}
