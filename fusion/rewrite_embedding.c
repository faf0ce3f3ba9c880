/* rewrite_embedding.c - constants that are added to gathered rows.
 *
 * Positions and token types are constants when they do not depend on the
 * input: they become one constant of the sum's whole shape, which the gather
 * adds as it writes.  A constant of some rows only (positions, in a batch)
 * would cost a task of its own.
 */
#include <string.h>

#include "fusion/rewrite.h"

enum { MOST_BYTES = 64 << 20 }; /* of one such constant, in fp32 */

/* Index of the constant among the Add's inputs; -1: none, or both. */
static int constant_side(const struct cuvil_graph *graph,
                         const struct cuvil_node *add) {
  bool a = graph->values[add->inputs[0]].data != NULL;
  bool b = graph->values[add->inputs[1]].data != NULL;
  return a == b ? -1 : b;
}

static void add_broadcast(const struct cuvil_value *v,
                          const struct cuvil_value *out, float *sum) {
  int64_t count = cuvil_value_elements(out);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0, stride = 1;
    for (int axis = out->rank - 1; axis >= 0; --axis) {
      int from = axis - (out->rank - v->rank);
      if (from < 0) break;
      if (v->dims[from] != 1) offset += rest % out->dims[axis] * stride;
      stride *= v->dims[from];
      rest /= out->dims[axis];
    }
    sum[i] += (float)cuvil_load(v->dtype, v->data, (size_t)offset);
  }
}

/* Whether the sum of these constants is the same for all rows, or adds to
 * every row something else already. */
static bool partial(const struct cuvil_value *v,
                    const struct cuvil_value *out) {
  for (int i = 0; i < v->rank - 1; ++i)
    if (v->dims[i] != 1)
      return cuvil_value_elements(v) < cuvil_value_elements(out);
  return false;
}

/* gather + c1 (+ c2): ends at node `add`. */
static enum cuvil_status try_embedding(struct cuvil_graph *graph, int add) {
  const struct cuvil_node *node = &graph->nodes[add];
  const struct cuvil_value out = graph->values[node->outputs[0]];
  int constants[2], count = 0, base;
  int side = constant_side(graph, node);
  if (side < 0 || !cuvil_dtype_is_float(out.dtype)) return CUVIL_OK;
  constants[count++] = node->inputs[side];
  base = node->inputs[1 - side];
  const struct cuvil_node *inner = cuvil_made_by(graph, base, "Add");
  side = inner ? constant_side(graph, inner) : -1;
  if (side >= 0 && cuvil_only_user(graph, base) == add) {
    constants[count++] = inner->inputs[side];
    base = inner->inputs[1 - side];
  }
  const struct cuvil_value *b = &graph->values[base];
  const struct cuvil_node *gather = cuvil_made_by(graph, base, "Gather");
  if (!gather || b->rank != out.rank ||
      memcmp(b->dims, out.dims, (size_t)b->rank * sizeof(b->dims[0])) != 0 ||
      cuvil_value_elements(&out) * 4 > MOST_BYTES)
    return CUVIL_OK;
  if (count == 1 && !partial(&graph->values[constants[0]], &out))
    return CUVIL_OK;
  float *sum = cuvil_arena_array(
      &graph->arena, (size_t)cuvil_value_elements(&out) + 1, sizeof(float));
  if (!sum) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  for (int i = 0; i < count; ++i)
    add_broadcast(&graph->values[constants[i]], &out, sum);
  int inputs[2] = {base, -1};
  CUVIL_TRY(cuvil_new_constant(graph, graph->values[constants[0]].name,
                               CUVIL_F32, out.rank, out.dims, sum, &inputs[1]));
  return cuvil_replace_node(graph, add, "Add", 2, inputs);
}

enum cuvil_status cuvil_rewrite_embeddings(struct cuvil_graph *graph) {
  /* The longest sum first. */
  for (int n = graph->node_count - 1; n >= 0; --n)
    if (!graph->nodes[n].removed && strcmp(graph->nodes[n].op, "Add") == 0)
      CUVIL_TRY(try_embedding(graph, n));
  return CUVIL_OK;
}
