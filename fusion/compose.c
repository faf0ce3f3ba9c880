/* compose.c - nodes that are made of problems of other kinds.
 *
 * A softmax is four of them: the largest along the axis, the exponentials of
 * what lies below it, their sum, the quotient.  What stands between them is
 * fp32 whatever the inner type is.  Only where the axis is not the last one:
 * else it is one problem (matrix.c).
 */
#include <stdio.h>
#include <string.h>

#include "fusion/fuse.h"

/* What a softmax runs over: outer x along x inner.  Up to opset 12 all axes
 * from `axis` on are one. */
static void softmax_extents(const struct cuvil_fuse *fuse,
                            const struct cuvil_node *node,
                            int64_t out_extents[3]) {
  const struct cuvil_value *x =
      &fuse->graph->values[cuvil_fuse_input(fuse, node, 0)];
  bool flattens = node->opset < 13;
  int64_t axis = cuvil_node_int(node, "axis", flattens ? 1 : -1);
  if (axis < 0) axis += x->rank;
  out_extents[0] = out_extents[1] = out_extents[2] = 1;
  for (int i = 0; i < x->rank; ++i) {
    int part = i < axis ? 0 : i == axis || flattens ? 1 : 2;
    out_extents[part] *= x->dims[i];
  }
}

/* One task of a softmax: its problem is begun over d0 (outer), d1 (along), d2
 * (inner). */
struct part {
  struct cuvil_fuse *fuse;
  struct cuvil_task task;
};

static enum cuvil_status part_begin(struct cuvil_fuse *fuse, int node,
                                    const char *what, enum cuvil_kind kind,
                                    const int64_t extents[3],
                                    struct part *out) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  char label[512];
  memset(out, 0, sizeof(*out));
  out->fuse = fuse;
  snprintf(label, sizeof(label), "%.400s:%s",
           n->name[0] ? n->name : fuse->graph->values[n->outputs[0]].name,
           what);
  out->task.label = cuvil_arena_strdup(&fuse->fused->arena, label);
  if (!out->task.label)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: labels");
  cuvil_problem_begin(kind, &out->task.problem);
  cuvil_problem_add_dim(&out->task.problem, "d0", extents[0]);
  cuvil_problem_add_dim(&out->task.problem, "d1", extents[1]);
  cuvil_problem_add_dim(&out->task.problem, "d2", extents[2]);
  return CUVIL_OK;
}

/* An operand over all dimensions, or (rows) all but the reduced one. */
static struct cuvil_term part_put(struct part *part, const char *name,
                                  enum cuvil_operand_role role, int tensor,
                                  bool rows) {
  int operand = cuvil_problem_add_operand(
      &part->task.problem, name, role, part->fuse->fused->tensors[tensor].dtype,
      rows ? "d0,d2" : "d0,d1,d2");
  part->task.tensors[operand] = tensor;
  return (struct cuvil_term){.kind = CUVIL_TERM_OPERAND, .index = operand};
}

static struct cuvil_term part_state(struct part *part, const char *name,
                                    enum cuvil_expr_op op, struct cuvil_term a,
                                    struct cuvil_term b) {
  struct cuvil_term args[2] = {a, b};
  int index =
      cuvil_problem_add_statement(&part->task.problem, name, op, args, -1);
  return (struct cuvil_term){.kind = CUVIL_TERM_VALUE, .index = index};
}

static enum cuvil_status part_end(struct part *part) {
  CUVIL_TRY(cuvil_problem_finish(&part->task.problem));
  return cuvil_fuse_add_task(part->fuse, &part->task);
}

static enum cuvil_status reduce_part(struct cuvil_fuse *fuse, int node,
                                     const char *what, enum cuvil_reduce_op op,
                                     const int64_t extents[3], int from,
                                     int to) {
  struct part part;
  CUVIL_TRY(part_begin(fuse, node, what, CUVIL_KIND_REDUCE, extents, &part));
  part.task.problem.reduce_op = op;
  part_put(&part, "x", CUVIL_ROLE_INPUT, from, false);
  part_put(&part, "y", CUVIL_ROLE_OUTPUT, to, true);
  return part_end(&part);
}

/* to = exp(x - largest) */
static enum cuvil_status exp_part(struct cuvil_fuse *fuse, int node,
                                  const int64_t extents[3], int x, int largest,
                                  int to) {
  struct part part;
  CUVIL_TRY(
      part_begin(fuse, node, "exp", CUVIL_KIND_POINTWISE, extents, &part));
  part_put(&part, "y", CUVIL_ROLE_OUTPUT, to, false);
  struct cuvil_term value = part_put(&part, "x", CUVIL_ROLE_SIDE, x, false);
  struct cuvil_term top = part_put(&part, "x1", CUVIL_ROLE_SIDE, largest, true);
  struct cuvil_term below = part_state(&part, "t0", CUVIL_OP_SUB, value, top);
  part_state(&part, "out", CUVIL_OP_EXP, below, below);
  return part_end(&part);
}

/* to = exps / sum, or (x - largest) - log(sum) */
static enum cuvil_status last_part(struct cuvil_fuse *fuse, int node,
                                   const int64_t extents[3], bool logarithm,
                                   const int from[4], int to) {
  struct part part;
  CUVIL_TRY(part_begin(fuse, node, logarithm ? "log" : "div",
                       CUVIL_KIND_POINTWISE, extents, &part));
  part_put(&part, "y", CUVIL_ROLE_OUTPUT, to, false);
  struct cuvil_term a =
      part_put(&part, "x", CUVIL_ROLE_SIDE, from[logarithm ? 0 : 2], false);
  if (!logarithm) {
    struct cuvil_term sum =
        part_put(&part, "x1", CUVIL_ROLE_SIDE, from[3], true);
    part_state(&part, "out", CUVIL_OP_DIV, a, sum);
    return part_end(&part);
  }
  struct cuvil_term top = part_put(&part, "x1", CUVIL_ROLE_SIDE, from[1], true);
  struct cuvil_term sum = part_put(&part, "x2", CUVIL_ROLE_SIDE, from[3], true);
  struct cuvil_term below = part_state(&part, "t0", CUVIL_OP_SUB, a, top);
  struct cuvil_term logs = part_state(&part, "t1", CUVIL_OP_LOG, sum, sum);
  part_state(&part, "out", CUVIL_OP_SUB, below, logs);
  return part_end(&part);
}

enum cuvil_status cuvil_fuse_softmax(struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  int64_t extents[3];
  int from[4], to; /* x, largest, exponentials, sums */
  softmax_extents(fuse, n, extents);
  int64_t rows[2] = {extents[0], extents[2]};
  CUVIL_TRY(cuvil_fuse_want(fuse, cuvil_fuse_input(fuse, n, 0),
                            CUVIL_LAYOUT_PLAIN, false, &from[0]));
  CUVIL_TRY(cuvil_fuse_scratch(fuse, "largest", CUVIL_F32, 2, rows, &from[1]));
  CUVIL_TRY(cuvil_fuse_scratch(fuse, "exponentials", CUVIL_F32, 3, extents,
                               &from[2]));
  CUVIL_TRY(cuvil_fuse_scratch(fuse, "sums", CUVIL_F32, 2, rows, &from[3]));
  CUVIL_TRY(cuvil_fuse_define(fuse, cuvil_fuse_output(fuse, node),
                              CUVIL_LAYOUT_PLAIN, &to));
  CUVIL_TRY(reduce_part(fuse, node, "max", CUVIL_REDUCE_MAX, extents, from[0],
                        from[1]));
  CUVIL_TRY(exp_part(fuse, node, extents, from[0], from[1], from[2]));
  CUVIL_TRY(reduce_part(fuse, node, "sum", CUVIL_REDUCE_SUM, extents, from[2],
                        from[3]));
  return last_part(fuse, node, extents, strcmp(n->op, "LogSoftmax") == 0, from,
                   to);
}
