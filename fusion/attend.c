/* attend.c - attention as one problem, from and to where the projections are.
 *
 * Queries, keys and values are usually parts of one joined projection, seen
 * through Reshape and Transpose.  Their leading axes are cut into batch and
 * heads wherever each operand has one stride along both.  Heads that an Expand
 * repeats have a stride of zero, which says how many queries share a key.
 */
#include <string.h>

#include "fusion/fuse.h"

struct side {
  int value, tensor;
  struct cuvil_view view;
  int64_t leading[CUVIL_VIEW_MAX]; /* strides along the space */
  int64_t batch, heads, rows, columns;
  int shared; /* consecutive heads that are one */
};

struct attend {
  struct cuvil_fuse *fuse;
  const struct cuvil_node *node;
  struct cuvil_task task;
  const struct cuvil_value *out;
  struct cuvil_space space; /* leading axes of the result */
  int split;                /* factors that are batch */
  struct side q, k, v, mask;
  int64_t b, h, sq, skv, d, dv;
};

static const struct cuvil_value *value_at(const struct attend *at, int value) {
  return &at->fuse->graph->values[value];
}

/* Stride of the last axes, 0 when of one element; false when an axis has two.
 */
static bool last_strides(const struct attend *at, struct side *side) {
  const struct cuvil_value *v = value_at(at, side->value);
  side->rows = side->columns = 0;
  for (int i = 0; i < side->view.count; ++i) {
    const struct cuvil_factor *f = &side->view.f[i];
    int from_end = v->rank - f->axis;
    if (from_end > 2) continue;
    if (f->extent != v->dims[f->axis]) return false;
    if (f->stride == 0) return false;
    *(from_end == 1 ? &side->columns : &side->rows) = f->stride;
  }
  return true;
}

static bool refine(struct attend *at, const struct side *side) {
  const struct cuvil_value *v = value_at(at, side->value);
  struct cuvil_view leading = {0};
  for (int i = 0; i < side->view.count; ++i)
    if (side->view.f[i].axis < v->rank - 2)
      leading.f[leading.count++] = side->view.f[i];
  return cuvil_space_refine(&at->space, &leading, at->out->rank - v->rank,
                            v->rank - 2, v->dims);
}

static bool leading_strides(const struct attend *at, struct side *side) {
  const struct cuvil_value *v = value_at(at, side->value);
  return cuvil_space_strides(&at->space, &side->view, at->out->rank - v->rank,
                             v->rank - 2, v->dims, side->leading);
}

/* One stride for factors [first, last): `shared` of the fastest may be 0. */
static bool join(const struct attend *at, const int64_t *strides, int first,
                 int last, int64_t *out_stride, int *out_shared) {
  int64_t shared = 1, stride = 0, expected = 0;
  while (last > first && strides[last - 1] == 0)
    shared *= at->space.f[--last].extent;
  for (int i = last - 1; i >= first; --i) {
    if (expected && strides[i] != expected) return false;
    if (!expected) stride = strides[i];
    expected = strides[i] * at->space.f[i].extent;
    if (expected == 0) return false;
  }
  *out_stride = stride;
  *out_shared = (int)shared;
  return true;
}

/* Batch and heads of an operand under the split; a batch is never shared. */
static bool divide(const struct attend *at, struct side *side, int split,
                   bool may_share, bool may_lack) {
  int shared;
  if (!join(at, side->leading, 0, split, &side->batch, &shared)) return false;
  if (shared != 1 && (!may_lack || side->batch != 0)) return false;
  if (!join(at, side->leading, split, at->space.count, &side->heads,
            &side->shared))
    return false;
  return side->shared == 1 || may_share || (may_lack && side->heads == 0);
}

static bool divides(struct attend *at, int split) {
  if (!divide(at, &at->q, split, false, false) ||
      !divide(at, &at->k, split, true, false) ||
      !divide(at, &at->v, split, true, false))
    return false;
  if (at->k.shared != at->v.shared) return false;
  if (at->mask.value >= 0 && !divide(at, &at->mask, split, false, true))
    return false;
  at->split = split;
  at->b = at->h = 1;
  for (int i = 0; i < at->space.count; ++i)
    *(i < split ? &at->b : &at->h) *= at->space.f[i].extent;
  return true;
}

/* The views as they are; false when they must be copied first. */
static bool look(struct attend *at) {
  struct side *sides[4] = {&at->q, &at->k, &at->v, &at->mask};
  int count = at->mask.value >= 0 ? 4 : 3, rank = at->out->rank;
  cuvil_space_begin(&at->space, rank - 2, at->out->dims, NULL);
  for (int i = 0; i < count; ++i) {
    cuvil_view_of(&at->fuse->fused->tensors[sides[i]->tensor], &sides[i]->view);
    if (!last_strides(at, sides[i]) || !refine(at, sides[i])) return false;
  }
  for (int i = 0; i < count; ++i)
    if (!leading_strides(at, sides[i])) return false;
  bool turned = cuvil_node_int(at->node, "turned", 0) != 0;
  int64_t k_fast = turned ? at->k.rows : at->k.columns;
  if (at->q.columns > 1 || k_fast > 1 || at->v.columns > 1) return false;
  /* Batch is all but the axis of heads, where that can be. */
  int natural = 0;
  while (natural < at->space.count && at->space.f[natural].axis < rank - 3)
    ++natural;
  if (rank == 3 && at->space.count > 1) natural = 1;
  if (divides(at, natural)) return true;
  for (int split = at->space.count; split >= 0; --split)
    if (divides(at, split)) return true;
  return false;
}

static enum cuvil_status take(struct attend *at, struct side *side, bool copy) {
  if (side->value < 0) return CUVIL_OK;
  if (copy)
    return cuvil_fuse_want(at->fuse, side->value, CUVIL_LAYOUT_PLAIN, false,
                           &side->tensor);
  return cuvil_fuse_read(at->fuse, side->value, CUVIL_LAYOUT_PLAIN,
                         &side->tensor);
}

/* A copy of keys that are turned would have its fastest dimension wrong. */
static enum cuvil_status take_turned(struct attend *at) {
  const struct cuvil_value *v = value_at(at, at->k.value);
  struct cuvil_space space;
  int order[CUVIL_GRAPH_MAX_RANK];
  for (int i = 0; i < v->rank; ++i)
    order[i] = i;
  order[v->rank - 2] = v->rank - 1;
  order[v->rank - 1] = v->rank - 2;
  cuvil_space_begin(&space, v->rank, v->dims, order);
  return cuvil_fuse_want_space(at->fuse, at->k.value, 0, &space, &at->k.tensor);
}

static void put(struct attend *at, const char *name,
                enum cuvil_operand_role role, int tensor, const int dims[4],
                const int64_t strides[4]) {
  struct cuvil_problem *problem = &at->task.problem;
  const struct cuvil_tensor *t = &at->fuse->fused->tensors[tensor];
  int operand = cuvil_build_operand(problem, name, role, t->dtype,
                                    t->kind == CUVIL_TENSOR_WEIGHT, 0, NULL);
  struct cuvil_operand *o = &problem->operands[operand];
  at->task.tensors[operand] = tensor;
  o->strided = true;
  bool mask = role == CUVIL_ROLE_SIDE;
  int64_t next = 1;
  for (int i = 3; i >= 0; --i) {
    int64_t extent = problem->dims[dims[i]].extent;
    if (mask && (strides[i] == 0 || extent == 1)) continue;
    o->dims[o->rank] = dims[i];
    o->strides[o->rank] = strides[i] && extent > 1 ? strides[i] : next;
    int64_t end = o->strides[o->rank++] * extent;
    if (end > next) next = end;
  }
  for (int i = 1; i < o->rank; ++i)
    for (int j = i; j > 0 && o->strides[j] > o->strides[j - 1]; --j) {
      int64_t stride = o->strides[j];
      int dim = o->dims[j];
      o->strides[j] = o->strides[j - 1];
      o->dims[j] = o->dims[j - 1];
      o->strides[j - 1] = stride;
      o->dims[j - 1] = dim;
    }
  if (o->rank == 0) o->strided = false;
}

/* The result lies as [b, sq, hq, dv], what a projection reads, unless it is an
 * output of the graph. */
static enum cuvil_status define(struct attend *at, int result, int *out_tensor,
                                int64_t strides[4]) {
  struct cuvil_space space = {0};
  int rank = at->out->rank;
  for (int i = 0; i < at->split; ++i)
    space.f[space.count++] = at->space.f[i];
  if (at->sq > 1)
    space.f[space.count++] = (struct cuvil_factor){rank - 2, at->sq, 1, 0, -1};
  for (int i = at->split; i < at->space.count; ++i)
    space.f[space.count++] = at->space.f[i];
  if (at->dv > 1)
    space.f[space.count++] = (struct cuvil_factor){rank - 1, at->dv, 1, 0, -1};
  if (cuvil_fuse_is_output(at->fuse, result))
    CUVIL_TRY(
        cuvil_fuse_define(at->fuse, result, CUVIL_LAYOUT_PLAIN, out_tensor));
  else
    CUVIL_TRY(cuvil_fuse_define_space(at->fuse, result, &space, out_tensor));
  struct side o = {.value = result, .tensor = *out_tensor};
  cuvil_view_of(&at->fuse->fused->tensors[*out_tensor], &o.view);
  CUVIL_CHECK(last_strides(at, &o) && leading_strides(at, &o) &&
              divide(at, &o, at->split, false, false));
  strides[0] = o.batch;
  strides[1] = o.rows;
  strides[2] = o.heads;
  strides[3] = o.columns;
  return CUVIL_OK;
}

static enum cuvil_status build(struct attend *at, int result) {
  enum { B = CUVIL_ATTENTION_DIM_B, HQ = CUVIL_ATTENTION_DIM_HQ };
  enum { HKV = CUVIL_ATTENTION_DIM_HKV, SQ = CUVIL_ATTENTION_DIM_SQ };
  enum { SKV = CUVIL_ATTENTION_DIM_SKV, D = CUVIL_ATTENTION_DIM_D };
  enum { DV = CUVIL_ATTENTION_DIM_DV };
  struct cuvil_problem *p = &at->task.problem;
  bool turned = cuvil_node_int(at->node, "turned", 0) != 0;
  const int64_t extents[7] = {
      at->b, at->h, at->h / at->k.shared, at->sq, at->skv, at->d, at->dv};
  int64_t o_strides[4];
  int o;
  for (int i = 0; i < 7; ++i)
    p->dims[i].extent = extents[i];
  p->scale = cuvil_node_float(at->node, "scale", 1);
  p->causal = cuvil_node_int(at->node, "causal", 0) != 0;
  CUVIL_TRY(define(at, result, &o, o_strides));
  put(at, "q", CUVIL_ROLE_INPUT, at->q.tensor, (int[]){B, SQ, HQ, D},
      (int64_t[]){at->q.batch, at->q.rows, at->q.heads, at->q.columns});
  put(at, "k", CUVIL_ROLE_INPUT, at->k.tensor, (int[]){B, SKV, HKV, D},
      (int64_t[]){at->k.batch, turned ? at->k.columns : at->k.rows, at->k.heads,
                  turned ? at->k.rows : at->k.columns});
  put(at, "v", CUVIL_ROLE_INPUT, at->v.tensor, (int[]){B, SKV, HKV, DV},
      (int64_t[]){at->v.batch, at->v.rows, at->v.heads, at->v.columns});
  put(at, "o", CUVIL_ROLE_OUTPUT, o, (int[]){B, SQ, HQ, DV}, o_strides);
  p->output = CUVIL_ATTENTION_O;
  if (at->mask.value >= 0) {
    p->mask_keep = cuvil_node_int(at->node, "keep", 0) != 0;
    put(at, "mask", CUVIL_ROLE_SIDE, at->mask.tensor, (int[]){B, HQ, SQ, SKV},
        (int64_t[]){at->mask.batch, at->mask.heads, at->mask.rows,
                    at->mask.columns});
  }
  p->tf32 = at->fuse->fused->options.precision == CUVIL_PRECISION_TF32;
  CUVIL_TRY(cuvil_problem_finish(p));
  return cuvil_fuse_add_task(at->fuse, &at->task);
}

enum cuvil_status cuvil_fuse_attention(struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  int result = cuvil_fuse_output(fuse, node);
  struct attend at = {.fuse = fuse,
                      .node = n,
                      .out = &fuse->graph->values[result],
                      .q.value = cuvil_fuse_input(fuse, n, 0),
                      .k.value = cuvil_fuse_input(fuse, n, 1),
                      .v.value = cuvil_fuse_input(fuse, n, 2),
                      .mask.value = cuvil_fuse_input(fuse, n, 3)};
  const struct cuvil_value *q = value_at(&at, at.q.value);
  const struct cuvil_value *v = value_at(&at, at.v.value);
  at.sq = q->dims[q->rank - 2];
  at.d = q->dims[q->rank - 1];
  at.skv = v->dims[v->rank - 2];
  at.dv = v->dims[v->rank - 1];
  cuvil_problem_begin(CUVIL_KIND_ATTENTION, &at.task.problem);
  at.task.label = cuvil_arena_strdup(
      &fuse->fused->arena,
      n->name[0] ? n->name : fuse->graph->values[n->outputs[0]].name);
  if (!at.task.label) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: labels");
  bool turned = cuvil_node_int(n, "turned", 0) != 0;
  for (int copy = 0; copy < 2; ++copy) {
    CUVIL_TRY(take(&at, &at.q, copy));
    if (copy && turned)
      CUVIL_TRY(take_turned(&at));
    else
      CUVIL_TRY(take(&at, &at.k, copy));
    CUVIL_TRY(take(&at, &at.v, copy));
    CUVIL_TRY(take(&at, &at.mask, copy));
    if (look(&at)) return build(&at, result);
  }
  return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: attention `%s` has no layout",
                    at.task.label);
}
