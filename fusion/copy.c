/* copy.c - nodes that only move elements.
 *
 * A view costs nothing.  Where strides cannot say it, or its first element is
 * not aligned, the elements are copied.  A kernel reads or writes several
 * elements at once only along a dimension of stride 1; a copy from or to an
 * unaligned place is cut into every other element along it, so that there is
 * none.
 */
#include <stdio.h>
#include <string.h>

#include "fusion/fuse.h"

static const struct cuvil_value *value_at(const struct cuvil_fuse *fuse,
                                          int value) {
  return &fuse->graph->values[value];
}

/* ---- what a node does to a view */

/* Integers of a constant input; false when computed, -1 when absent. */
static bool const_ints(const struct cuvil_fuse *fuse,
                       const struct cuvil_node *node, int index,
                       const char *attribute, int64_t *out, int *out_count) {
  int value = cuvil_fuse_input(fuse, node, index);
  *out_count = -1;
  if (value < 0) {
    if (attribute && cuvil_node_attribute(node, attribute))
      *out_count = cuvil_node_ints(node, attribute, out, CUVIL_GRAPH_MAX_RANK);
    return true;
  }
  const struct cuvil_value *v = value_at(fuse, value);
  int64_t count = cuvil_value_elements(v);
  if (!v->data || count > 2 * CUVIL_GRAPH_MAX_RANK) return false;
  for (int64_t i = 0; i < count; ++i)
    out[i] = v->dtype == CUVIL_I64
                 ? ((const int64_t *)v->data)[i]
                 : (int64_t)cuvil_load(v->dtype, v->data, (size_t)i);
  *out_count = (int)count;
  return true;
}

static bool slice_ranges(const struct cuvil_fuse *fuse,
                         const struct cuvil_node *node,
                         const struct cuvil_value *x, struct cuvil_range *out) {
  int64_t starts[2 * CUVIL_GRAPH_MAX_RANK], ends[2 * CUVIL_GRAPH_MAX_RANK];
  int64_t axes[2 * CUVIL_GRAPH_MAX_RANK], steps[2 * CUVIL_GRAPH_MAX_RANK];
  int count, end_count, axis_count, step_count;
  if (!const_ints(fuse, node, 1, "starts", starts, &count) ||
      !const_ints(fuse, node, 2, "ends", ends, &end_count) ||
      !const_ints(fuse, node, 3, "axes", axes, &axis_count) ||
      !const_ints(fuse, node, 4, NULL, steps, &step_count) ||
      count != end_count || count < 0)
    return false;
  for (int i = 0; i < count; ++i) {
    int64_t axis = axis_count < 0 ? i : axes[i];
    int64_t step = step_count < 0 ? 1 : steps[i];
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis >= x->rank || step < 1) return false;
    int64_t extent = x->dims[axis], start = starts[i], end = ends[i];
    if (start < 0) start = start < -extent ? 0 : start + extent;
    if (end < 0) end = end < -extent ? 0 : end + extent;
    if (start > extent) start = extent;
    if (end > extent) end = extent;
    out[axis].start = start;
    out[axis].step = step;
    out[axis].count = end > start ? (end - start + step - 1) / step : 0;
  }
  return true;
}

bool cuvil_fuse_ranges(const struct cuvil_fuse *fuse,
                       const struct cuvil_node *node,
                       struct cuvil_range out[CUVIL_GRAPH_MAX_RANK]) {
  const struct cuvil_value *x = value_at(fuse, cuvil_fuse_input(fuse, node, 0));
  for (int i = 0; i < x->rank; ++i)
    out[i] = (struct cuvil_range){0, x->dims[i], 1};
  if (strcmp(node->op, "Slice") == 0) return slice_ranges(fuse, node, x, out);
  int64_t axis = cuvil_node_int(node, "axis", 0), start, count = 1;
  if (axis < 0) axis += x->rank;
  if (strcmp(node->op, "Gather") == 0) {
    const struct cuvil_value *index =
        value_at(fuse, cuvil_fuse_input(fuse, node, 1));
    if (!index->data || cuvil_value_elements(index) != 1) return false;
    start = (int64_t)cuvil_load(index->dtype, index->data, 0);
    if (start < 0) start += x->dims[axis];
  } else {
    start = cuvil_node_int(node, "start", 0);
    count = cuvil_node_int(node, "count", 0);
  }
  out[axis].start = start;
  out[axis].count = count;
  return true;
}

static bool apply_expand(const struct cuvil_value *x,
                         const struct cuvil_value *out,
                         struct cuvil_view *view) {
  struct cuvil_view made = {.offset = view->offset};
  int shift = out->rank - x->rank;
  for (int axis = 0, j = 0; axis < out->rank; ++axis) {
    bool repeats =
        out->dims[axis] != 1 && (axis < shift || x->dims[axis - shift] == 1);
    if (made.count == CUVIL_VIEW_MAX) return false;
    if (repeats)
      made.f[made.count++] =
          (struct cuvil_factor){axis, out->dims[axis], 1, 0, -1};
    for (; j < view->count && view->f[j].axis + shift == axis; ++j) {
      if (made.count == CUVIL_VIEW_MAX) return false;
      made.f[made.count] = view->f[j];
      made.f[made.count++].axis = axis;
    }
  }
  *view = made;
  return true;
}

/* The node's output as a view of its input's storage. */
static bool apply(const struct cuvil_fuse *fuse, const struct cuvil_node *node,
                  struct cuvil_view *view) {
  const struct cuvil_value *x = value_at(fuse, cuvil_fuse_input(fuse, node, 0));
  const struct cuvil_value *out = value_at(fuse, node->outputs[0]);
  if (strcmp(node->op, "Expand") == 0) return apply_expand(x, out, view);
  if (strcmp(node->op, "Transpose") == 0) {
    int64_t given[CUVIL_GRAPH_MAX_RANK];
    int perm[CUVIL_GRAPH_MAX_RANK];
    bool there = cuvil_node_attribute(node, "perm") != NULL;
    if (there) cuvil_node_ints(node, "perm", given, CUVIL_GRAPH_MAX_RANK);
    for (int i = 0; i < x->rank; ++i)
      perm[i] = there ? (int)given[i] : x->rank - 1 - i;
    cuvil_view_transpose(view, x->rank, perm);
    return true;
  }
  if (strcmp(node->op, "Slice") == 0 || strcmp(node->op, "Gather") == 0 ||
      strcmp(node->op, "Part") == 0) {
    struct cuvil_range ranges[CUVIL_GRAPH_MAX_RANK];
    if (!cuvil_fuse_ranges(fuse, node, ranges)) return false;
    for (int i = 0; i < x->rank; ++i)
      if ((ranges[i].count != x->dims[i] || ranges[i].step != 1) &&
          !cuvil_view_slice(view, i, ranges[i].start, ranges[i].count,
                            ranges[i].step))
        return false;
    if (strcmp(node->op, "Gather") != 0) return true;
  }
  return cuvil_view_reshape(view, out->rank, out->dims);
}

/* ---- copies */

/* One copy of elements between two tensors' storages. */
struct move {
  struct cuvil_fuse *fuse;
  const char *label;
  int to, from; /* tensors; views count from their storages' starts */
  int rank;     /* of what both views are of */
  const int64_t *dims;
  struct cuvil_view to_view, from_view;
};

/* A tensor that is the view, for one task; of no value. */
static enum cuvil_status view_tensor(struct cuvil_fuse *fuse, int root,
                                     const struct cuvil_view *view,
                                     int64_t offset, int *out) {
  int64_t one = 1;
  CUVIL_TRY(cuvil_fuse_scratch(fuse, fuse->fused->tensors[root].name,
                               fuse->fused->tensors[root].dtype, 1, &one, out));
  struct cuvil_tensor *tensor = &fuse->fused->tensors[*out];
  while (fuse->fused->tensors[root].alias >= 0)
    root = fuse->fused->tensors[root].alias;
  if (view->count <= CUVIL_GRAPH_MAX_RANK) cuvil_view_store(view, tensor);
  tensor->offset = offset;
  tensor->alias = root;
  tensor->kind = fuse->fused->tensors[root].kind == CUVIL_TENSOR_WEIGHT
                     ? CUVIL_TENSOR_WEIGHT
                     : CUVIL_TENSOR_LOCAL;
  tensor->bytes = 0;
  return CUVIL_OK;
}

/* The task for every other element, from `odd[i]` on, along the dimensions
 * `cuts[i]` (-1: none). */
static enum cuvil_status add_part(const struct move *move,
                                  const struct cuvil_problem *problem,
                                  const int cuts[2], const int odd[2]) {
  struct cuvil_task task = {.problem = *problem, .label = move->label};
  struct cuvil_problem *p = &task.problem;
  int64_t offsets[2] = {move->to_view.offset, move->from_view.offset};
  for (int c = 0; c < 2; ++c) {
    if (cuts[c] < 0) continue;
    struct cuvil_dim *dim = &p->dims[cuts[c]];
    dim->extent = (dim->extent + 1 - odd[c]) / 2;
    if (dim->extent == 0) return CUVIL_OK;
    for (int o = 0; o < 2; ++o)
      for (int i = 0; i < p->operands[o].rank; ++i)
        if (p->operands[o].dims[i] == cuts[c]) {
          offsets[o] += odd[c] * p->operands[o].strides[i];
          p->operands[o].strides[i] *= 2;
        }
  }
  CUVIL_TRY(cuvil_problem_finish(p));
  CUVIL_TRY(view_tensor(move->fuse, move->to, &move->to_view, offsets[0],
                        &task.tensors[0]));
  CUVIL_TRY(view_tensor(move->fuse, move->from, &move->from_view, offsets[1],
                        &task.tensors[1]));
  return cuvil_fuse_add_task(move->fuse, &task);
}

static int unit_stride_dim(const struct cuvil_operand *operand) {
  for (int i = 0; i < operand->rank; ++i)
    if (operand->strides[i] == 1) return operand->dims[i];
  return -1;
}

static bool aligned(const struct cuvil_fuse *fuse, int tensor,
                    const struct cuvil_view *view) {
  size_t size = cuvil_dtype_size(fuse->fused->tensors[tensor].dtype);
  return (uint64_t)view->offset * size % CUVIL_VIEW_ALIGNMENT == 0;
}

static enum cuvil_status make_move(const struct move *move) {
  struct cuvil_fuse *fuse = move->fuse;
  struct cuvil_space space;
  struct cuvil_problem problem;
  int64_t strides[2][CUVIL_VIEW_MAX];
  cuvil_space_begin(&space, move->rank, move->dims, NULL);
  if (!cuvil_space_refine(&space, &move->to_view, 0, move->rank, move->dims) ||
      !cuvil_space_refine(&space, &move->from_view, 0, move->rank,
                          move->dims) ||
      !cuvil_space_strides(&space, &move->to_view, 0, move->rank, move->dims,
                           strides[0]))
    return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` cannot be copied",
                      move->label);
  cuvil_space_order(&space, strides[0]);
  CUVIL_CHECK(cuvil_space_strides(&space, &move->to_view, 0, move->rank,
                                  move->dims, strides[0]) &&
              cuvil_space_strides(&space, &move->from_view, 0, move->rank,
                                  move->dims, strides[1]));
  CUVIL_TRY(cuvil_fuse_copy_problem(&space, &fuse->fused->tensors[move->to],
                                    &fuse->fused->tensors[move->from], strides,
                                    &problem));
  int cuts[2] = {-1, -1};
  if (!aligned(fuse, move->to, &move->to_view))
    cuts[0] = unit_stride_dim(&problem.operands[0]);
  if (!aligned(fuse, move->from, &move->from_view))
    cuts[1] = unit_stride_dim(&problem.operands[1]);
  if (cuts[1] == cuts[0]) cuts[1] = -1;
  for (int i = 0; i < (cuts[0] < 0 ? 1 : 2); ++i)
    for (int j = 0; j < (cuts[1] < 0 ? 1 : 2); ++j)
      CUVIL_TRY(add_part(move, &problem, cuts, (int[]){i, j}));
  return CUVIL_OK;
}

static enum cuvil_status label_of(struct cuvil_fuse *fuse, int node,
                                  const char **out) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  *out = cuvil_arena_strdup(
      &fuse->fused->arena,
      n->name[0] ? n->name : fuse->graph->values[n->outputs[0]].name);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: labels");
  return CUVIL_OK;
}

/* Every form of the input that strides can turn into the output. */
static enum cuvil_status add_views(struct cuvil_fuse *fuse, int node,
                                   bool *out_any) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  int in = cuvil_fuse_input(fuse, n, 0), out = cuvil_fuse_output(fuse, node);
  *out_any = false;
  for (int t = fuse->first_form[in]; t >= 0; t = fuse->next_form[t]) {
    struct cuvil_view view;
    bool added = false;
    if (fuse->fused->tensors[t].padded) continue;
    cuvil_view_of(&fuse->fused->tensors[t], &view);
    if (apply(fuse, n, &view))
      CUVIL_TRY(cuvil_fuse_add_view(fuse, out, t, &view, &added));
    *out_any |= added;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_fuse_view(struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  int in = cuvil_fuse_input(fuse, n, 0), out = cuvil_fuse_output(fuse, node);
  const struct cuvil_value *v = value_at(fuse, out);
  struct cuvil_view view;
  bool any, added;
  int source, to;
  CUVIL_TRY(add_views(fuse, node, &any));
  if (any) return CUVIL_OK;
  CUVIL_TRY(cuvil_fuse_want(fuse, in, CUVIL_LAYOUT_PLAIN, false, &source));
  cuvil_view_of(&fuse->fused->tensors[source], &view);
  if (!apply(fuse, n, &view))
    return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` is no view of its input",
                      v->name);
  CUVIL_TRY(cuvil_fuse_add_view(fuse, out, source, &view, &added));
  if (added) return CUVIL_OK;
  struct move move = {.fuse = fuse,
                      .from = source,
                      .rank = v->rank,
                      .dims = v->dims,
                      .from_view = view};
  CUVIL_TRY(label_of(fuse, node, &move.label));
  CUVIL_TRY(cuvil_fuse_define(fuse, out, CUVIL_LAYOUT_PLAIN, &to));
  move.to = to;
  cuvil_view_of(&fuse->fused->tensors[to], &move.to_view);
  return make_move(&move);
}

/* ---- concatenation and padding */

/* Copies the value to where `at` begins in the plain tensor `to`. */
static enum cuvil_status place(struct cuvil_fuse *fuse, const char *label,
                               int value, int to, const int64_t *at) {
  const struct cuvil_value *v = value_at(fuse, value);
  const struct cuvil_tensor *target;
  struct move move = {
      .fuse = fuse, .label = label, .to = to, .rank = v->rank, .dims = v->dims};
  CUVIL_TRY(cuvil_fuse_read(fuse, value, CUVIL_LAYOUT_PLAIN, &move.from));
  cuvil_view_of(&fuse->fused->tensors[move.from], &move.from_view);
  target = &fuse->fused->tensors[to];
  move.to_view.offset = target->offset;
  for (int i = 0; i < v->rank; ++i) {
    move.to_view.offset += at[i] * target->strides[i];
    if (v->dims[i] != 1)
      move.to_view.f[move.to_view.count++] =
          (struct cuvil_factor){i, v->dims[i], 1, target->strides[i], -1};
  }
  return make_move(&move);
}

enum cuvil_status cuvil_fuse_concat(struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  int out = cuvil_fuse_output(fuse, node), to;
  int64_t at[CUVIL_GRAPH_MAX_RANK] = {0};
  int64_t axis = cuvil_node_int(n, "axis", 0);
  const char *label;
  if (axis < 0) axis += value_at(fuse, out)->rank;
  CUVIL_TRY(label_of(fuse, node, &label));
  CUVIL_TRY(cuvil_fuse_define(fuse, out, CUVIL_LAYOUT_PLAIN, &to));
  for (int i = 0; i < n->input_count; ++i) {
    int value = cuvil_fuse_input(fuse, n, i);
    if (cuvil_value_elements(value_at(fuse, value)) == 0) continue;
    CUVIL_TRY(place(fuse, label, value, to, at));
    at[axis] += value_at(fuse, value)->dims[axis];
  }
  return CUVIL_OK;
}

bool cuvil_fuse_pads(const struct cuvil_fuse *fuse,
                     const struct cuvil_node *node,
                     int64_t out_pads[2 * CUVIL_GRAPH_MAX_RANK],
                     double *out_value) {
  const struct cuvil_value *x = value_at(fuse, cuvil_fuse_input(fuse, node, 0));
  int64_t given[2 * CUVIL_GRAPH_MAX_RANK], axes[2 * CUVIL_GRAPH_MAX_RANK];
  int count, axis_count, value = cuvil_fuse_input(fuse, node, 2);
  memset(out_pads, 0, sizeof(*out_pads) * 2 * CUVIL_GRAPH_MAX_RANK);
  *out_value = cuvil_node_float(node, "value", 0);
  if (strcmp(cuvil_node_string(node, "mode", "constant"), "constant") != 0)
    return false;
  if (value >= 0 && !cuvil_fuse_scalar(fuse, value, out_value)) return false;
  const struct cuvil_attribute *attribute = cuvil_node_attribute(node, "pads");
  if (attribute) {
    count = attribute->count;
    for (int i = 0; i < count && i < 2 * CUVIL_GRAPH_MAX_RANK; ++i)
      given[i] = attribute->ints[i];
  } else if (!const_ints(fuse, node, 1, NULL, given, &count)) {
    return false;
  }
  if (!const_ints(fuse, node, 3, NULL, axes, &axis_count)) return false;
  int listed = axis_count < 0 ? x->rank : axis_count;
  if (count != 2 * listed) return false;
  for (int i = 0; i < listed; ++i) {
    int64_t axis = axis_count < 0 ? i : axes[i];
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis >= x->rank || given[i] < 0 || given[listed + i] < 0)
      return false;
    out_pads[axis] = given[i];
    out_pads[x->rank + axis] = given[listed + i];
  }
  return true;
}

enum cuvil_status cuvil_fuse_pad(struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  int out = cuvil_fuse_output(fuse, node), to;
  int64_t pads[2 * CUVIL_GRAPH_MAX_RANK];
  double number;
  struct cuvil_task task = {.label = NULL};
  const char *label;
  CUVIL_CHECK(cuvil_fuse_pads(fuse, n, pads, &number));
  CUVIL_TRY(label_of(fuse, node, &label));
  CUVIL_TRY(cuvil_fuse_define(fuse, out, CUVIL_LAYOUT_PLAIN, &to));
  /* The number everywhere, then the input in its place. */
  cuvil_problem_begin(CUVIL_KIND_POINTWISE, &task.problem);
  cuvil_problem_add_dim(&task.problem, "d0",
                        cuvil_value_elements(value_at(fuse, out)));
  cuvil_problem_add_operand(&task.problem, "y", CUVIL_ROLE_OUTPUT,
                            fuse->fused->tensors[to].dtype, "d0");
  struct cuvil_term term = {.kind = CUVIL_TERM_CONSTANT, .value = number};
  cuvil_problem_add_statement(&task.problem, "out", CUVIL_OP_COPY, &term, -1);
  CUVIL_TRY(cuvil_problem_finish(&task.problem));
  task.tensors[0] = to;
  task.label = label;
  CUVIL_TRY(cuvil_fuse_add_task(fuse, &task));
  return place(fuse, label, cuvil_fuse_input(fuse, n, 0), to, pads);
}
