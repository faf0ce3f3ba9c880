/* rewrite_where.c - conditions as arithmetic.
 *
 * Problems compute with floating-point numbers only, so a computed condition
 * becomes 0 or 1: And is a product, Or a maximum, a comparison of integers a
 * difference cut to 0..1.  A choice is then x c + y (1 - c), whose constants
 * must be finite.  By a constant condition, Where(c, x, k) is
 * max(min(x, high), low): infinite bounds where x is taken, k twice where it
 * is not.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fusion/rewrite.h"

/* ---- conditions */

struct conditions {
  struct cuvil_graph *graph;
  bool *numbers; /* by value: a condition that is 0 or 1 now */
  int count;
};

static bool is_op(const char *op, const char *const *list) {
  for (; *list; ++list)
    if (strcmp(op, *list) == 0) return true;
  return false;
}

static bool is_integer(enum cuvil_dtype dtype) {
  return dtype == CUVIL_I64 || dtype == CUVIL_I32;
}

static enum cuvil_status scalar(struct cuvil_graph *graph, double number,
                                int *out) {
  float *data = cuvil_arena_alloc(&graph->arena, sizeof(float));
  if (!data) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  *data = (float)number;
  return cuvil_new_constant(graph, "number", CUVIL_F32, 0, NULL, data, out);
}

/* op(a, b) before node *at, of the shape of *at's result; b -1: unary. */
static enum cuvil_status before(struct cuvil_graph *graph, int *at,
                                const char *op, int a, int b, int *out) {
  const struct cuvil_value like = graph->values[graph->nodes[*at].outputs[0]];
  CUVIL_TRY(cuvil_insert_node(graph, *at, like.name, op, b < 0 ? 1 : 2,
                              (int[]){a, b}, like.rank, like.dims, out));
  graph->values[*out].dtype = CUVIL_F32;
  ++*at;
  return CUVIL_OK;
}

/* The condition as a number; a constant one is converted. */
static enum cuvil_status as_number(struct cuvil_graph *graph, int value,
                                   int *out) {
  const struct cuvil_value v = graph->values[value];
  *out = value;
  if (!v.data || v.dtype != CUVIL_BOOL) return CUVIL_OK;
  size_t count = (size_t)cuvil_value_elements(&v);
  float *data = cuvil_arena_array(&graph->arena, count + 1, sizeof(float));
  if (!data) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  cuvil_convert(CUVIL_F32, data, v.dtype, v.data, count);
  return cuvil_new_constant(graph, v.name, CUVIL_F32, v.rank, v.dims, data,
                            out);
}

/* 1 - value */
static enum cuvil_status invert(struct cuvil_graph *graph, int *at, int value) {
  int one;
  CUVIL_TRY(scalar(graph, 1, &one));
  return cuvil_replace_node(graph, *at, "Sub", 2, (int[]){one, value});
}

/* 0 where x is 0, else 1: the factor takes every integer, and every float that
 * half precision holds, to 1 or more. */
static enum cuvil_status nonzero(struct cuvil_graph *graph, int *at, int x) {
  int size, factor, one, large;
  CUVIL_TRY(scalar(graph, 1, &one));
  CUVIL_TRY(before(graph, at, "Abs", x, -1, &size));
  if (is_integer(graph->values[x].dtype))
    return cuvil_replace_node(graph, *at, "Min", 2, (int[]){size, one});
  CUVIL_TRY(scalar(graph, 60000, &factor));
  CUVIL_TRY(before(graph, at, "Mul", size, factor, &size));
  CUVIL_TRY(before(graph, at, "Mul", size, factor, &large));
  return cuvil_replace_node(graph, *at, "Min", 2, (int[]){large, one});
}

static enum cuvil_status compare(struct cuvil_graph *graph, int *at,
                                 const char *op, int a, int b) {
  bool equal = strcmp(op, "Equal") == 0;
  bool less = strncmp(op, "Less", 4) == 0;
  bool inverted = equal || strstr(op, "OrEqual") != NULL;
  /* a >= b is not a < b. */
  bool swap = less != (inverted && !equal);
  int one, zero, y;
  CUVIL_TRY(scalar(graph, 1, &one));
  CUVIL_TRY(scalar(graph, 0, &zero));
  CUVIL_TRY(before(graph, at, "Sub", swap ? b : a, swap ? a : b, &y));
  if (equal)
    CUVIL_TRY(before(graph, at, "Abs", y, -1, &y));
  else
    CUVIL_TRY(before(graph, at, "Max", y, zero, &y));
  if (!inverted)
    return cuvil_replace_node(graph, *at, "Min", 2, (int[]){y, one});
  CUVIL_TRY(before(graph, at, "Min", y, one, &y));
  return invert(graph, at, y);
}

static bool is_number(const struct conditions *c, int value) {
  return value >= 0 && value < c->count && c->numbers[value];
}

/* A boolean operand that can be a number: made one, or constant. */
static bool can_be(const struct conditions *c, int value) {
  const struct cuvil_value *v = &c->graph->values[value];
  return is_number(c, value) ||
         (v->dtype == CUVIL_BOOL && (v->data || v->is_input));
}

/* Scores where the condition holds, a number far below where not, and then a
 * softmax: an added mask says the same. */
static enum cuvil_status mask_scores(struct cuvil_graph *graph, int *at,
                                     bool *out_done) {
  const struct cuvil_node *node = &graph->nodes[*at];
  int in[3] = {node->inputs[0], node->inputs[1], node->inputs[2]}, mask, one;
  double low;
  int user = cuvil_only_user(graph, node->outputs[0]);
  *out_done = user >= 0 && strcmp(graph->nodes[user].op, "Softmax") == 0 &&
              cuvil_constant_scalar(graph, in[2], &low) && low <= -1e4 &&
              !graph->values[in[1]].data;
  if (!*out_done) return CUVIL_OK;
  /* The mask has the condition's shape, not the scores'. */
  const struct cuvil_value c = graph->values[in[0]];
  CUVIL_TRY(scalar(graph, 1, &one));
  CUVIL_TRY(scalar(graph, low < -FLT_MAX ? -FLT_MAX : low, &in[2]));
  CUVIL_TRY(cuvil_insert_node(graph, *at, c.name, "Sub", 2, (int[]){one, in[0]},
                              c.rank, c.dims, &mask));
  ++*at;
  CUVIL_TRY(cuvil_insert_node(graph, *at, c.name, "Mul", 2,
                              (int[]){mask, in[2]}, c.rank, c.dims, &mask));
  ++*at;
  return cuvil_replace_node(graph, *at, "Add", 2, (int[]){in[1], mask});
}

static enum cuvil_status rewrite_condition(struct conditions *c, int *at,
                                           bool *out_number) {
  static const char *const logic[] = {"And", "Or", "Xor", NULL};
  static const char *const compares[] = {
      "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", NULL};
  static const char *const moves[] = {
      "Reshape", "Transpose", "Slice",    "Part",   "Expand", "Unsqueeze",
      "Squeeze", "Flatten",   "Identity", "Gather", NULL};
  struct cuvil_graph *graph = c->graph;
  const struct cuvil_node *node = &graph->nodes[*at];
  const char *op = node->op;
  int a = node->input_count > 0 ? node->inputs[0] : -1;
  int b = node->input_count > 1 ? node->inputs[1] : -1, done;
  *out_number = true;
  if (is_op(op, moves) && is_number(c, a)) return CUVIL_OK;
  if (strcmp(op, "Cast") == 0 && is_number(c, a)) return CUVIL_OK;
  if (strcmp(op, "Cast") == 0) return nonzero(graph, at, a);
  if (strcmp(op, "Not") == 0 && can_be(c, a)) return invert(graph, at, a);
  if (is_op(op, logic) && can_be(c, a) && can_be(c, b)) {
    CUVIL_TRY(as_number(graph, a, &a));
    CUVIL_TRY(as_number(graph, b, &b));
    if (strcmp(op, "Xor") != 0)
      return cuvil_replace_node(
          graph, *at, strcmp(op, "And") == 0 ? "Mul" : "Max", 2, (int[]){a, b});
    CUVIL_TRY(before(graph, at, "Sub", a, b, &done));
    return cuvil_replace_node(graph, *at, "Abs", 1, &done);
  }
  if (is_op(op, compares) && is_integer(graph->values[a].dtype) &&
      is_integer(graph->values[b].dtype))
    return compare(graph, at, op, a, b);
  *out_number = false;
  return CUVIL_OK;
}

enum cuvil_status cuvil_rewrite_conditions(struct cuvil_graph *graph) {
  struct conditions c = {.graph = graph, .count = graph->value_count};
  c.numbers = calloc((size_t)c.count + 1, sizeof(bool));
  if (!c.numbers) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  enum cuvil_status status = CUVIL_OK;
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed || node->domain[0] || node->output_count != 1) continue;
    int y = node->outputs[0];
    bool number = false;
    if (strcmp(node->op, "Where") == 0 && is_number(&c, node->inputs[0])) {
      CUVIL_TRY_GOTO(mask_scores(graph, &n, &number));
    } else if (graph->values[y].dtype == CUVIL_BOOL &&
               !graph->values[y].is_output && node->inputs[0] >= 0 &&
               y < c.count) {
      CUVIL_TRY_GOTO(rewrite_condition(&c, &n, &number));
      if (number) graph->values[y].dtype = CUVIL_F32;
      c.numbers[y] = number;
    }
  }
  cuvil_graph_relink(graph);
fail:
  free(c.numbers);
  return status;
}

/* ---- choices */

/* A choice multiplies what it does not take by 0. */
static bool is_finite(const struct cuvil_value *v) {
  int64_t count = v->data ? cuvil_value_elements(v) : 0;
  for (int64_t i = 0; count > 1 && i < count; ++i)
    if (!isfinite(cuvil_load(v->dtype, v->data, (size_t)i))) return false;
  return true;
}

/* x c + y (1 - c) */
static enum cuvil_status choose(struct cuvil_graph *graph, int *at) {
  const struct cuvil_node *node = &graph->nodes[*at];
  int in[3] = {node->inputs[0], node->inputs[1], node->inputs[2]};
  int parts[2] = {-1, -1}, factor[2], one;
  CUVIL_TRY(scalar(graph, 1, &one));
  factor[0] = in[0];
  for (int i = 0; i < 2; ++i) {
    double number;
    int x = in[1 + i];
    if (cuvil_constant_scalar(graph, x, &number)) {
      if (number == 0) continue;
      if (!isfinite(number))
        CUVIL_TRY(scalar(graph, number < 0 ? -FLT_MAX : FLT_MAX, &x));
    }
    if (i == 1) CUVIL_TRY(before(graph, at, "Sub", one, in[0], &factor[1]));
    CUVIL_TRY(before(graph, at, "Mul", x, factor[i], &parts[i]));
  }
  if (parts[0] >= 0 && parts[1] >= 0)
    return cuvil_replace_node(graph, *at, "Add", 2, parts);
  int only = parts[0] >= 0 ? parts[0] : parts[1];
  if (only < 0) CUVIL_TRY(before(graph, at, "Sub", in[0], in[0], &only));
  return cuvil_replace_node(graph, *at, "Identity", 1, &only);
}

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
  if (out.rank < 0 || !cuvil_dtype_is_float(out.dtype)) return CUVIL_OK;
  bool condition = values[in[0]].dtype == CUVIL_BOOL ||
                   cuvil_dtype_is_float(values[in[0]].dtype);
  if (!values[in[0]].data && condition)
    return is_finite(&values[in[1]]) && is_finite(&values[in[2]])
               ? choose(graph, at)
               : CUVIL_OK;
  if (!values[in[0]].data || values[x].data || !values[other].data)
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
