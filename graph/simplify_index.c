/* A mask by way of indices: transformers looks a padding mask up by the indices
 * of all its elements, and combines it with masks that are true everywhere.
 * Both are said in plainer words here: GatherND of everything in order is a
 * Reshape, And with true (Or with false) is an Expand.
 */
#include <stdio.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

/* The indices are those of all of x's elements, in order. */
static bool takes_all(const struct cuvil_graph *graph,
                      const struct cuvil_node *node) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *index = cuvil_op_input(graph, node, 1);
  int64_t count = cuvil_value_elements(x);
  if (index->data == NULL || cuvil_node_int(node, "batch_dims", 0) != 0 ||
      index->dims[index->rank - 1] != x->rank ||
      cuvil_value_elements(index) != count * x->rank)
    return false;
  for (int64_t i = 0; i < count; i++) {
    int64_t at = 0;
    for (int d = 0; d < x->rank; d++) {
      int64_t k;
      size_t place = (size_t)(i * x->rank + d);
      cuvil_convert(
          CUVIL_I64, &k, index->dtype,
          (const char *)index->data + place * cuvil_dtype_size(index->dtype),
          1);
      if (k < 0) k += x->dims[d];
      at = at * x->dims[d] + k;
    }
    if (at != i) return false;
  }
  return true;
}

static bool constant_of(const struct cuvil_value *value, bool wanted) {
  if (value->data == NULL) return false;
  for (int64_t i = 0; i < cuvil_value_elements(value); i++)
    if ((cuvil_load(value->dtype, value->data, (size_t)i) != 0) != wanted)
      return false;
  return true;
}

/* The node becomes `op` of `x` to the shape that its output has. */
static enum cuvil_status become(struct cuvil_graph *graph,
                                struct cuvil_node *node, const char *op,
                                int x) {
  const struct cuvil_value y = graph->values[node->outputs[0]];
  int64_t *shape =
      cuvil_arena_array(&graph->arena, CUVIL_GRAPH_MAX_RANK, sizeof *shape);
  int *inputs = cuvil_arena_array(&graph->arena, 2, sizeof *inputs);
  if (shape == NULL || inputs == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  int64_t rank = y.rank;
  char name[256];
  snprintf(name, sizeof name, "%.200s_shape", y.name);
  memcpy(shape, y.dims, sizeof y.dims);
  inputs[0] = x;
  CUVIL_TRY(cuvil_graph_add_value(graph, name, CUVIL_I64, 1, &rank, shape,
                                  &inputs[1]));
  node->op = op;
  node->inputs = inputs;
  node->input_count = 2;
  node->attribute_count = 0;
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_straighten_masks(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; n++) {
    struct cuvil_node *node = &graph->nodes[n];
    if (node->removed) continue;
    const struct cuvil_value *y = &graph->values[node->outputs[0]];
    /* A 0 in a Reshape's shape would mean another thing. */
    if (cuvil_value_elements(y) == 0) continue;
    if (strcmp(node->op, "GatherND") == 0 && takes_all(graph, node))
      CUVIL_TRY(become(graph, node, "Reshape", node->inputs[0]));
    bool both = strcmp(node->op, "And") == 0;
    if (!both && strcmp(node->op, "Or") != 0) continue;
    for (int i = 0; i < 2; i++)
      if (constant_of(&graph->values[node->inputs[i]], both)) {
        CUVIL_TRY(become(graph, node, "Expand", node->inputs[1 - i]));
        break;
      }
  }
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}
