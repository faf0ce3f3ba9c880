/* Nodes that leave a tensor as it is.  Exporters write many: a mask that masks
 * nothing is a constant of zeros that is added, `expand` and `view` to the
 * shape that is there already, a Cast to the type that is there.  Fusion would
 * have to see through each of them in each pattern.
 *
 * An addition of zero also turns -0 into 0, and a guard against the NaNs of
 * fully masked rows (see `guards_nothing`) also hides NaNs that come from NaNs
 * or infinities in the data; neither is kept up.
 */
#include <math.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

static const struct cuvil_value *input(const struct cuvil_graph *graph,
                                       const struct cuvil_node *node, int i) {
  return cuvil_op_input(graph, node, i);
}

/* A constant all of whose elements are `wanted`. */
static bool all_are(const struct cuvil_value *value, double wanted) {
  if (value == NULL || value->data == NULL) return false;
  int64_t count = cuvil_value_elements(value);
  for (int64_t i = 0; i < count; i++)
    if (cuvil_load(value->dtype, value->data, (size_t)i) != wanted)
      return false;
  return true;
}

static bool same_type(const struct cuvil_value *x,
                      const struct cuvil_value *y) {
  bool same = x != NULL && x->dtype == y->dtype && x->rank == y->rank;
  for (int i = 0; same && i < x->rank; i++)
    same = x->dims[i] == y->dims[i];
  return same;
}

/* x + 0, x - 0, x * 1, x / 1, x ^ 1: the operand that is left, or -1. */
static int neutral_operand(const struct cuvil_graph *graph,
                           const struct cuvil_node *node) {
  static const struct {
    const char *op;
    double neutral;
    bool commutes;
  } rows[] = {{"Add", 0, true},
              {"Sub", 0, false},
              {"Mul", 1, true},
              {"Div", 1, false},
              {"Pow", 1, false}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    if (strcmp(node->op, rows[r].op) != 0) continue;
    if (all_are(input(graph, node, 1), rows[r].neutral)) return 0;
    if (rows[r].commutes && all_are(input(graph, node, 0), rows[r].neutral))
      return 1;
  }
  return -1;
}

static bool identity_permutation(const struct cuvil_node *node, int rank) {
  int64_t perm[CUVIL_GRAPH_MAX_RANK];
  int count = cuvil_node_ints(node, "perm", perm, CUVIL_GRAPH_MAX_RANK);
  for (int i = 0; i < count; i++)
    if (perm[i] != i) return false;
  return count == rank || rank < 2;
}

/* Shape and type are those of input 0 and the operator only moves elements:
 * whether it moves none. */
static bool moves_nothing(const struct cuvil_graph *graph,
                          const struct cuvil_node *node, int rank) {
  static const char *const never[] = {"Reshape",   "Flatten", "Squeeze",
                                      "Unsqueeze", "Expand",  "Tile",
                                      "Cast",      "CastLike"};
  static const char *const alone[] = {"Concat", "Sum", "Mean", "Max", "Min"};
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    if (strcmp(node->op, never[i]) == 0) return true;
  for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
    if (strcmp(node->op, alone[i]) == 0) return node->input_count == 1;
  if (strcmp(node->op, "Transpose") == 0)
    return identity_permutation(node, rank);
  if (strcmp(node->op, "Split") == 0) return node->output_count == 1;
  if (strcmp(node->op, "Slice") == 0) {
    const struct cuvil_value *steps = input(graph, node, 4);
    return steps == NULL || all_are(steps, 1);
  }
  return false;
}

/* ---- Where(IsNaN(p), 0, p) behind p = Softmax(scores [+ mask]), which the
 * exporters add for rows that are masked as a whole. */
static const struct cuvil_node *producer(const struct cuvil_graph *graph,
                                         int value, const char *op) {
  int n = value >= 0 ? graph->values[value].producer : -1;
  if (n < 0 || graph->nodes[n].removed) return NULL;
  return op == NULL || strcmp(graph->nodes[n].op, op) == 0 ? &graph->nodes[n]
                                                           : NULL;
}

/* Each row of the constant has something finite. */
static bool no_row_is_masked(const struct cuvil_value *mask) {
  int64_t n = mask->rank > 0 ? mask->dims[mask->rank - 1] : 1;
  int64_t count = cuvil_value_elements(mask);
  for (int64_t row = 0; n > 0 && row < count / n; row++) {
    bool open = false;
    for (int64_t i = 0; i < n && !open; i++) {
      double v = cuvil_load(mask->dtype, mask->data, (size_t)(row * n + i));
      open = isfinite(v);
    }
    if (!open) return false;
  }
  return true;
}

/* A choice between two finite constants: wherever it is added, no row gets
 * infinities only. */
static bool all_finite(const struct cuvil_value *value) {
  if (value->data == NULL) return false;
  for (int64_t i = 0; i < cuvil_value_elements(value); i++)
    if (!isfinite(cuvil_load(value->dtype, value->data, (size_t)i)))
      return false;
  return true;
}

static bool leaves_rows_open(const struct cuvil_graph *graph, int mask) {
  const struct cuvil_value *value = &graph->values[mask];
  if (value->data != NULL) return no_row_is_masked(value);
  const struct cuvil_node *choice = producer(graph, mask, "Where");
  return choice != NULL && all_finite(&graph->values[choice->inputs[1]]) &&
         all_finite(&graph->values[choice->inputs[2]]);
}

/* The operand that is a mask: a constant or a choice. */
static int mask_side(const struct cuvil_graph *graph,
                     const struct cuvil_node *add) {
  for (int i = 0; i < 2; i++)
    if (graph->values[add->inputs[i]].data != NULL ||
        producer(graph, add->inputs[i], "Where") != NULL)
      return i;
  return -1;
}

static bool guards_nothing(const struct cuvil_graph *graph,
                           const struct cuvil_node *where) {
  const struct cuvil_node *nan = producer(graph, where->inputs[0], "IsNaN");
  int p = where->inputs[2];
  if (nan == NULL || nan->inputs[0] != p ||
      !all_are(input(graph, where, 1), 0) ||
      !same_type(input(graph, where, 2), &graph->values[where->outputs[0]]))
    return false;
  const struct cuvil_node *softmax = producer(graph, p, "Softmax");
  if (softmax == NULL) return false;
  const struct cuvil_node *at = producer(graph, softmax->inputs[0], NULL);
  /* One mask: two might close a row that neither closes alone. */
  if (at != NULL && strcmp(at->op, "Add") == 0) {
    int side = mask_side(graph, at);
    if (side < 0 || !leaves_rows_open(graph, at->inputs[side])) return false;
    at = producer(graph, at->inputs[1 - side], NULL);
  }
  return at != NULL &&
         (strcmp(at->op, "MatMul") == 0 || strcmp(at->op, "Mul") == 0 ||
          strcmp(at->op, "Div") == 0);
}

static int chosen_operand(const struct cuvil_graph *graph,
                          const struct cuvil_node *node) {
  const struct cuvil_value *condition = input(graph, node, 0);
  if (guards_nothing(graph, node)) return 2;
  if (all_are(condition, 1)) return 1;
  return all_are(condition, 0) ? 2 : -1;
}

int cuvil_node_passes_on(const struct cuvil_graph *graph,
                         const struct cuvil_node *node) {
  const struct cuvil_value *y = &graph->values[node->outputs[0]];
  if (strcmp(node->op, "Identity") == 0 || strcmp(node->op, "Dropout") == 0)
    return 0;
  int operand = strcmp(node->op, "Where") == 0 ? chosen_operand(graph, node)
                                               : neutral_operand(graph, node);
  if (operand < 0 && same_type(input(graph, node, 0), y) &&
      moves_nothing(graph, node, y->rank))
    operand = 0;
  return operand >= 0 && same_type(input(graph, node, operand), y) ? operand
                                                                   : -1;
}
