/* express.c - pointwise nodes as statements of an epilogue.
 *
 * Each operator writes one or a few single-assignment statements over terms.
 * A value inside the group is an earlier statement or the accumulator; a
 * constant of one element is a number; anything else becomes a side operand,
 * once for each value.  Constant vectors stay in fp32 whatever the inner type
 * is: they are small, and a rounded bias costs accuracy for nothing.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fusion/fuse.h"

enum form { UNARY, BINARY, VARIADIC, SPECIAL };

static const struct {
  const char *name;
  enum form form;
  enum cuvil_expr_op op;
  int cost;
} operators[] = {
    {"Relu", UNARY, CUVIL_OP_RELU, 1},
    {"Sigmoid", UNARY, CUVIL_OP_SIGMOID, 1},
    {"Tanh", UNARY, CUVIL_OP_TANH, 1},
    {"Erf", UNARY, CUVIL_OP_ERF, 1},
    {"Exp", UNARY, CUVIL_OP_EXP, 1},
    {"Log", UNARY, CUVIL_OP_LOG, 1},
    {"Sqrt", UNARY, CUVIL_OP_SQRT, 1},
    {"Neg", UNARY, CUVIL_OP_NEG, 1},
    {"Abs", UNARY, CUVIL_OP_ABS, 1},
    {"Reciprocal", UNARY, CUVIL_OP_RECIPROCAL, 1},
    {"HardSwish", UNARY, CUVIL_OP_HARDSWISH, 1},
    {"Cast", UNARY, CUVIL_OP_COPY, 1},
    {"Silu", UNARY, CUVIL_OP_SILU, 1},
    {"Add", BINARY, CUVIL_OP_ADD, 1},
    {"Sub", BINARY, CUVIL_OP_SUB, 1},
    {"Mul", BINARY, CUVIL_OP_MUL, 1},
    {"Div", BINARY, CUVIL_OP_DIV, 1},
    {"Pow", BINARY, CUVIL_OP_POW, 1},
    {"Sum", VARIADIC, CUVIL_OP_ADD, 0},
    {"Min", VARIADIC, CUVIL_OP_MIN, 0},
    {"Max", VARIADIC, CUVIL_OP_MAX, 0},
    {"Clip", SPECIAL, CUVIL_OP_CLIP, 1},
    {"HardSigmoid", SPECIAL, CUVIL_OP_HARDSIGMOID, 1},
    {"LeakyRelu", SPECIAL, CUVIL_OP_LEAKY_RELU, 1},
    {"Gelu", SPECIAL, CUVIL_OP_GELU_ERF, 1},
    {"PRelu", SPECIAL, CUVIL_OP_MUL, 4},
    {"Elu", SPECIAL, CUVIL_OP_EXP, 6},
    {"BatchNormalization", SPECIAL, CUVIL_OP_RSQRT, 6},
};
enum { OPERATORS = sizeof(operators) / sizeof(operators[0]) };

static int find_operator(const char *name) {
  for (int i = 0; i < OPERATORS; ++i)
    if (strcmp(operators[i].name, name) == 0) return i;
  return -1;
}

bool cuvil_express_knows(const char *op) {
  return find_operator(op) >= 0;
}

int cuvil_express_shift(const struct cuvil_fuse *fuse, int node, int index) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  if (strcmp(n->op, "BatchNormalization") == 0 && index > 0) return 1;
  if (strcmp(n->op, "Conv") == 0 && index == 2) return 1;
  const struct cuvil_value *in =
      &fuse->graph->values[cuvil_fuse_input(fuse, n, index)];
  return fuse->graph->values[n->outputs[0]].rank - in->rank;
}

int cuvil_express_cost(const struct cuvil_fuse *fuse,
                       const struct cuvil_node *node) {
  (void)fuse;
  int found = find_operator(node->op);
  if (found < 0) return node->input_count > 2 ? 3 : 1;
  if (operators[found].form != VARIADIC) return operators[found].cost;
  return node->input_count > 1 ? node->input_count - 1 : 1;
}

/* Bounds of a Clip: infinite where absent; false when one is computed. */
static bool clip_bounds(const struct cuvil_fuse *fuse,
                        const struct cuvil_node *node, double *low,
                        double *high) {
  *low = cuvil_node_float(node, "min", -INFINITY);
  *high = cuvil_node_float(node, "max", INFINITY);
  int values[2] = {cuvil_fuse_input(fuse, node, 1),
                   cuvil_fuse_input(fuse, node, 2)};
  if (values[0] >= 0 && !cuvil_fuse_scalar(fuse, values[0], low)) return false;
  if (values[1] >= 0 && !cuvil_fuse_scalar(fuse, values[1], high)) return false;
  /* The largest float stands for "none" in old exports. */
  if (*low <= -FLT_MAX) *low = -INFINITY;
  if (*high >= FLT_MAX) *high = INFINITY;
  return true;
}

static const char *refuse_special(const struct cuvil_fuse *fuse,
                                  const struct cuvil_node *node) {
  double low, high;
  if (strcmp(node->op, "Clip") == 0 && !clip_bounds(fuse, node, &low, &high))
    return "bounds are computed, not constant";
  if (strcmp(node->op, "BatchNormalization") == 0) {
    if (node->input_count < 5) return "scale, bias, mean or variance is absent";
    if (cuvil_node_int(node, "training_mode", 0)) return "training mode";
    for (int i = 1; i < node->output_count; ++i)
      if (node->outputs[i] >= 0) return "training outputs are used";
    for (int i = 1; i < 5; ++i) {
      int value = cuvil_fuse_input(fuse, node, i);
      if (value < 0 || !fuse->graph->values[value].data)
        return "scale, bias, mean or variance is computed";
    }
  }
  return NULL;
}

const char *cuvil_express_refuses(const struct cuvil_fuse *fuse,
                                  const struct cuvil_node *node) {
  int found = find_operator(node->op);
  if (found < 0) return "operator is not supported";
  int least = operators[found].form == BINARY ? 2 : 1;
  bool all_constant = true;
  for (int i = 0; i < cuvil_express_inputs(node) || i < least; ++i) {
    int value = cuvil_fuse_input(fuse, node, i);
    if (value < 0) {
      if (i < least) return "an operand is absent";
      continue;
    }
    all_constant = all_constant && fuse->graph->values[value].data;
  }
  if (all_constant) return "a constant operand was not folded";
  return refuse_special(fuse, node);
}

/* ---- terms */

static const struct cuvil_term acc_term = {.kind = CUVIL_TERM_ACC};

static struct cuvil_term number(double value) {
  return (struct cuvil_term){.kind = CUVIL_TERM_CONSTANT, .value = value};
}

static void bind(struct cuvil_express *ex, int value, int shift,
                 struct cuvil_term term) {
  if (ex->bound_count == (int)(sizeof(ex->bound) / sizeof(ex->bound[0]))) {
    ex->overflow = true;
    return;
  }
  ex->bound[ex->bound_count].value = value;
  ex->bound[ex->bound_count].shift = shift;
  ex->bound[ex->bound_count++].term = term;
}

static bool is_leaf(struct cuvil_term term) {
  return term.kind == CUVIL_TERM_OPERAND || term.kind == CUVIL_TERM_CONSTANT;
}

static struct cuvil_term state(struct cuvil_express *ex, enum cuvil_expr_op op,
                               struct cuvil_term a, struct cuvil_term b,
                               struct cuvil_term c) {
  struct cuvil_expr *expr = &ex->task->problem.epilogue;
  if (expr->count == CUVIL_MAX_STATEMENTS) {
    ex->overflow = true;
    return a;
  }
  /* One order for a+b and b+a, so that they are one problem. */
  if ((op == CUVIL_OP_ADD || op == CUVIL_OP_MUL) && is_leaf(a) && !is_leaf(b)) {
    struct cuvil_term swap = a;
    a = b;
    b = swap;
  }
  int index = expr->count++;
  struct cuvil_statement *statement = &expr->statements[index];
  snprintf(statement->name, sizeof(statement->name), "t%d", index);
  statement->op = op;
  struct cuvil_term args[3] = {a, b, c};
  for (int i = 0; i < cuvil_expr_op_args(op); ++i)
    statement->args[i] = args[i];
  statement->output = -1;
  return (struct cuvil_term){.kind = CUVIL_TERM_VALUE, .index = index};
}

static struct cuvil_term state1(struct cuvil_express *ex, enum cuvil_expr_op op,
                                struct cuvil_term a) {
  return state(ex, op, a, number(0), number(0));
}
static struct cuvil_term state2(struct cuvil_express *ex, enum cuvil_expr_op op,
                                struct cuvil_term a, struct cuvil_term b) {
  return state(ex, op, a, b, number(0));
}

/* Stem of a side operand's name; order_sides makes names of stems. */
static const char *name_stem(const struct cuvil_express *ex, bool weight,
                             int rank, bool full) {
  if (ex->stem) return ex->stem;
  if (ex->task->problem.kind == CUVIL_KIND_NORM && weight && rank == 1) {
    /* As LayerNormalization has them, so that both spellings are one problem.
     */
    for (int i = 0; i < CUVIL_MAX_OPERANDS; ++i)
      if (ex->sort[i] && strcmp(ex->sort[i], "gamma") == 0) return "beta";
    return "gamma";
  }
  if (!ex->contraction) return weight ? "side" : "x";
  if (weight && rank == 1) return "bias";
  return full ? "res" : "side";
}

/* A constant side input is laid out as the output is. */
static enum cuvil_status weight_operand(struct cuvil_express *ex, int value,
                                        int shift, int *out_tensor, int *rank,
                                        int *dims) {
  const struct cuvil_value *v = &ex->fuse->graph->values[value];
  const struct cuvil_problem *problem = &ex->task->problem;
  int64_t extents[CUVIL_VIEW_MAX], inner[CUVIL_VIEW_MAX];
  int perm[CUVIL_VIEW_MAX], axes = 0;
  *rank = 0;
  for (int i = 0; i < ex->space.count; ++i) {
    const struct cuvil_factor *f = &ex->space.f[i];
    int axis = f->axis - shift;
    if (axis < 0 || axis >= v->rank || v->dims[axis] == 1) continue;
    extents[axes] = f->extent;
    inner[axes] = f->inner;
    perm[axes++] = axis;
    if (*rank == 0 || dims[*rank - 1] != f->dim) dims[(*rank)++] = f->dim;
  }
  CUVIL_CHECK(axes <= CUVIL_GRAPH_MAX_RANK);
  enum cuvil_dtype dtype = problem->operands[problem->output].dtype;
  if (cuvil_fuse_dtype(ex->fuse, value) == v->dtype &&
      !cuvil_dtype_is_float(v->dtype))
    dtype = v->dtype;
  /* As the output, biases too: libraries fuse no fp32 bias between 16-bit
   * operands, and their first choice must be raced fused. */
  return cuvil_fuse_weight(ex->fuse, value, dtype, axes, extents, perm, inner,
                           out_tensor);
}

/* The operand reads the tensor at the output's coordinates, if strides can. */
static bool read_tensor(struct cuvil_express *ex, int operand, int tensor,
                        int value, int shift, bool full) {
  const struct cuvil_value *v = &ex->fuse->graph->values[value];
  struct cuvil_problem *problem = &ex->task->problem;
  const struct cuvil_operand *main = &problem->operands[problem->output];
  int64_t strides[CUVIL_VIEW_MAX];
  struct cuvil_view view;
  cuvil_view_of(&ex->fuse->fused->tensors[tensor], &view);
  ex->task->tensors[operand] = tensor;
  problem->operands[operand].dtype = ex->fuse->fused->tensors[tensor].dtype;
  return cuvil_space_refine(&ex->space, &view, shift, v->rank, v->dims) &&
         cuvil_space_strides(&ex->space, &view, shift, v->rank, v->dims,
                             strides) &&
         cuvil_space_operand(&ex->space, problem, operand, main->rank,
                             main->dims, strides, full);
}

static enum cuvil_status computed_operand(struct cuvil_express *ex, int value,
                                          int shift, int operand, bool full) {
  const struct cuvil_value *v = &ex->fuse->graph->values[value];
  int tensor;
  CUVIL_TRY(cuvil_fuse_read(ex->fuse, value,
                            v->rank == 4 ? ex->layout : CUVIL_LAYOUT_PLAIN,
                            &tensor));
  if (read_tensor(ex, operand, tensor, value, shift, full)) return CUVIL_OK;
  CUVIL_TRY(cuvil_fuse_want_space(ex->fuse, value, shift, &ex->space, &tensor));
  if (read_tensor(ex, operand, tensor, value, shift, full)) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` cannot be read in `%s`",
                    v->name, ex->task->label);
}

static enum cuvil_status term_of(struct cuvil_express *ex, int value, int shift,
                                 struct cuvil_term *out) {
  for (int i = 0; i < ex->bound_count; ++i)
    if (ex->bound[i].value == value &&
        (ex->bound[i].shift == shift || !is_leaf(ex->bound[i].term))) {
      *out = ex->bound[i].term;
      return CUVIL_OK;
    }
  double scalar;
  if (cuvil_fuse_scalar(ex->fuse, value, &scalar)) {
    *out = number(cuvil_fuse_clamp(ex->fuse, value, scalar));
    return CUVIL_OK;
  }
  const struct cuvil_value *v = &ex->fuse->graph->values[value];
  const struct cuvil_value *shape = &ex->fuse->graph->values[ex->shape];
  struct cuvil_problem *problem = &ex->task->problem;
  int tensor, rank, dims[CUVIL_VIEW_MAX];
  bool full = cuvil_value_elements(v) == cuvil_value_elements(shape);
  if (problem->operand_count == CUVIL_MAX_OPERANDS)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: too many operands in `%s`",
                      ex->task->label);
  int operand = problem->operand_count;
  if (v->data) {
    CUVIL_TRY(weight_operand(ex, value, shift, &tensor, &rank, dims));
    cuvil_build_operand(problem, "", CUVIL_ROLE_SIDE,
                        ex->fuse->fused->tensors[tensor].dtype, true, rank,
                        dims);
    ex->task->tensors[operand] = tensor;
  } else {
    cuvil_build_operand(problem, "", CUVIL_ROLE_SIDE, CUVIL_F32, false, 0,
                        NULL);
    CUVIL_TRY(computed_operand(ex, value, shift, operand, full));
  }
  ex->sort[operand] =
      name_stem(ex, v->data != NULL, problem->operands[operand].rank, full);
  *out = (struct cuvil_term){.kind = CUVIL_TERM_OPERAND, .index = operand};
  bind(ex, value, shift, *out);
  return CUVIL_OK;
}

/* ---- operators */

static struct cuvil_term state_clip(struct cuvil_express *ex,
                                    const struct cuvil_node *node,
                                    struct cuvil_term x) {
  double low, high;
  if (!clip_bounds(ex->fuse, node, &low, &high)) ex->overflow = true;
  if (low == -INFINITY && high == INFINITY) return x;
  if (high == INFINITY) return state2(ex, CUVIL_OP_MAX, x, number(low));
  if (low == -INFINITY) return state2(ex, CUVIL_OP_MIN, x, number(high));
  return state(ex, CUVIL_OP_CLIP, x, number(low), number(high));
}

static struct cuvil_term state_special(struct cuvil_express *ex,
                                       const struct cuvil_node *node,
                                       const struct cuvil_term *in) {
  if (strcmp(node->op, "Clip") == 0) return state_clip(ex, node, in[0]);
  if (strcmp(node->op, "HardSigmoid") == 0)
    return state(ex, CUVIL_OP_HARDSIGMOID, in[0],
                 number(cuvil_node_float(node, "alpha", 0.2)),
                 number(cuvil_node_float(node, "beta", 0.5)));
  if (strcmp(node->op, "LeakyRelu") == 0)
    return state2(ex, CUVIL_OP_LEAKY_RELU, in[0],
                  number(cuvil_node_float(node, "alpha", 0.01)));
  if (strcmp(node->op, "Gelu") == 0)
    return state1(
        ex,
        strcmp(cuvil_node_string(node, "approximate", "none"), "tanh") == 0
            ? CUVIL_OP_GELU_TANH
            : CUVIL_OP_GELU_ERF,
        in[0]);
  struct cuvil_term positive, negative;
  if (strcmp(node->op, "BatchNormalization") == 0) {
    struct cuvil_term centred = state2(ex, CUVIL_OP_SUB, in[0], in[3]);
    struct cuvil_term variance =
        state2(ex, CUVIL_OP_ADD, in[4],
               number(cuvil_node_float(node, "epsilon", 1e-5)));
    struct cuvil_term inverse = state1(ex, CUVIL_OP_RSQRT, variance);
    struct cuvil_term unit = state2(ex, CUVIL_OP_MUL, centred, inverse);
    struct cuvil_term scaled = state2(ex, CUVIL_OP_MUL, unit, in[1]);
    return state2(ex, CUVIL_OP_ADD, scaled, in[2]);
  }
  /* PRelu and Elu: the positive part and what is made of the negative one. */
  positive = state2(ex, CUVIL_OP_MAX, in[0], number(0));
  negative = state2(ex, CUVIL_OP_MIN, in[0], number(0));
  if (strcmp(node->op, "PRelu") == 0) {
    negative = state2(ex, CUVIL_OP_MUL, negative, in[1]);
  } else {
    negative = state1(ex, CUVIL_OP_EXP, negative);
    negative = state2(ex, CUVIL_OP_SUB, negative, number(1));
    negative = state2(ex, CUVIL_OP_MUL, negative,
                      number(cuvil_node_float(node, "alpha", 1)));
  }
  return state2(ex, CUVIL_OP_ADD, positive, negative);
}

int cuvil_express_inputs(const struct cuvil_node *node) {
  return strcmp(node->op, "Clip") == 0 ? 1 : node->input_count;
}

/* A cast to an integer cuts off what stands behind the point. */
static enum cuvil_expr_op unary_op(const struct cuvil_fuse *fuse,
                                   const struct cuvil_node *node, int found) {
  if (strcmp(node->op, "Cast") != 0) return operators[found].op;
  enum cuvil_dtype from = fuse->graph->values[node->inputs[0]].dtype;
  enum cuvil_dtype to = fuse->graph->values[node->outputs[0]].dtype;
  bool whole = !cuvil_dtype_is_float(to) && to != CUVIL_BOOL;
  return cuvil_dtype_is_float(from) && whole ? CUVIL_OP_TRUNC : CUVIL_OP_COPY;
}

enum cuvil_status cuvil_express_node(struct cuvil_express *ex, int node) {
  const struct cuvil_node *n = &ex->fuse->graph->nodes[node];
  int found = find_operator(n->op);
  CUVIL_CHECK(found >= 0 && n->input_count <= CUVIL_MAX_STATEMENTS);
  /* Clip's bounds are numbers, not terms. */
  int inputs = cuvil_express_inputs(n);
  struct cuvil_term in[CUVIL_MAX_STATEMENTS] = {{0}}, result;
  for (int i = 0; i < inputs; ++i) {
    int value = cuvil_fuse_input(ex->fuse, n, i);
    in[i] = number(0);
    if (value >= 0)
      CUVIL_TRY(
          term_of(ex, value, cuvil_express_shift(ex->fuse, node, i), &in[i]));
  }
  switch (operators[found].form) {
    case UNARY:
      result = state1(ex, unary_op(ex->fuse, n, found), in[0]);
      break;
    case BINARY:
      result = state2(ex, operators[found].op, in[0], in[1]);
      break;
    case VARIADIC:
      result = in[0];
      for (int i = 1; i < inputs; ++i)
        result = state2(ex, operators[found].op, result, in[i]);
      break;
    default:
      result = state_special(ex, n, in);
      break;
  }
  bind(ex, cuvil_fuse_output(ex->fuse, node), 0, result);
  return CUVIL_OK;
}

enum cuvil_status cuvil_express_bias(struct cuvil_express *ex, int result,
                                     int bias, int shift, double alpha,
                                     double beta) {
  struct cuvil_term term = acc_term, add;
  if (alpha != 1) term = state2(ex, CUVIL_OP_MUL, term, number(alpha));
  if (bias >= 0 && beta != 0) {
    CUVIL_TRY(term_of(ex, bias, shift, &add));
    if (beta != 1) add = state2(ex, CUVIL_OP_MUL, add, number(beta));
    term = state2(ex, CUVIL_OP_ADD, term, add);
  }
  bind(ex, result, 0, term);
  return CUVIL_OK;
}

enum cuvil_status cuvil_express_affine(struct cuvil_express *ex, int result,
                                       int gamma, int beta) {
  int rank = ex->fuse->graph->values[ex->shape].rank;
  struct cuvil_term term = acc_term, side;
  if (gamma >= 0) {
    ex->stem = "gamma";
    CUVIL_TRY(
        term_of(ex, gamma, rank - ex->fuse->graph->values[gamma].rank, &side));
    term = state2(ex, CUVIL_OP_MUL, term, side);
  }
  if (beta >= 0) {
    ex->stem = "beta";
    CUVIL_TRY(
        term_of(ex, beta, rank - ex->fuse->graph->values[beta].rank, &side));
    term = state2(ex, CUVIL_OP_ADD, term, side);
  }
  ex->stem = NULL;
  bind(ex, result, 0, term);
  return CUVIL_OK;
}

/* Side operands stand in the order of their first use, as the grammar wants,
 * and are named in that order: bias, res, res1. */
static void order_sides(struct cuvil_express *ex) {
  struct cuvil_problem *problem = &ex->task->problem;
  struct cuvil_operand old[CUVIL_MAX_OPERANDS];
  int tensors[CUVIL_MAX_OPERANDS], to[CUVIL_MAX_OPERANDS];
  int next = problem->output + 1;
  memcpy(old, problem->operands, sizeof(old));
  memcpy(tensors, ex->task->tensors, sizeof(tensors));
  for (int i = 0; i < CUVIL_MAX_OPERANDS; ++i)
    to[i] = -1;
  for (int s = 0; s < problem->epilogue.count; ++s) {
    struct cuvil_statement *statement = &problem->epilogue.statements[s];
    for (int a = 0; a < cuvil_expr_op_args(statement->op); ++a) {
      struct cuvil_term *term = &statement->args[a];
      if (term->kind != CUVIL_TERM_OPERAND) continue;
      int from = term->index;
      if (to[from] < 0) {
        int same = 0;
        for (int i = 0; i < CUVIL_MAX_OPERANDS; ++i)
          same += to[i] >= 0 && strcmp(ex->sort[i], ex->sort[from]) == 0;
        to[from] = next++;
        struct cuvil_operand *operand = &problem->operands[to[from]];
        *operand = old[from];
        snprintf(operand->name, sizeof(operand->name), same ? "%s%d" : "%s",
                 ex->sort[from], same);
        ex->task->tensors[to[from]] = tensors[from];
      }
      term->index = to[from];
    }
  }
  problem->operand_count = next;
}

enum cuvil_status cuvil_express_finish(struct cuvil_express *ex, int result) {
  struct cuvil_problem *problem = &ex->task->problem;
  struct cuvil_expr *expr = &problem->epilogue;
  struct cuvil_term term;
  CUVIL_TRY(term_of(ex, result, 0, &term));
  if (term.kind == CUVIL_TERM_ACC) return CUVIL_OK; /* out=acc is implied */
  if (term.kind != CUVIL_TERM_VALUE || term.index != expr->count - 1)
    term = state1(ex, CUVIL_OP_COPY, term);
  if (ex->overflow)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` is too long for a problem",
                      ex->task->label);
  struct cuvil_statement *last = &expr->statements[expr->count - 1];
  snprintf(last->name, sizeof(last->name), "out");
  last->output = problem->output;
  order_sides(ex);
  return CUVIL_OK;
}
