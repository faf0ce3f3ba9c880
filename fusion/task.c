/* task.c - each group becomes a finished problem over tensors.
 *
 * A convolution of one by one, stride one, without padding or groups is a
 * matrix product in channels-last layout, and is written as one: the same
 * kernels then serve it.  Pointwise problems run over as few dimensions as
 * their operands' broadcasts allow.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "fusion/fuse.h"

int cuvil_build_operand(struct cuvil_problem *problem, const char *name,
                        enum cuvil_operand_role role, enum cuvil_dtype dtype,
                        bool weight, int rank, const int *dims) {
  struct cuvil_operand *operand = &problem->operands[problem->operand_count];
  snprintf(operand->name, sizeof(operand->name), "%s", name);
  operand->role = role;
  operand->dtype = dtype;
  operand->weight = weight;
  operand->rank = rank;
  for (int i = 0; i < rank; ++i)
    operand->dims[i] = dims[i];
  return problem->operand_count++;
}

static const struct cuvil_value *value_at(const struct cuvil_fuse *fuse,
                                          int value) {
  return &fuse->graph->values[value];
}

/* Channels that the tensor stores, padding included. */
static int64_t stored_channels(const struct cuvil_tensor *tensor) {
  for (int i = 0; i < tensor->rank; ++i)
    if (tensor->perm[i] == 1) return tensor->dims[i];
  return 0;
}

static enum cuvil_status begin(struct cuvil_fuse *fuse,
                               const struct cuvil_group *group,
                               enum cuvil_kind kind, struct cuvil_task *task,
                               struct cuvil_express *ex) {
  struct cuvil_buf label = {0};
  for (int i = 0; i < group->count; ++i) {
    const struct cuvil_node *node = &fuse->graph->nodes[group->nodes[i]];
    const char *name =
        node->name[0] ? node->name : value_at(fuse, node->outputs[0])->name;
    cuvil_buf_printf(&label, "%s%s", i ? "+" : "", name);
  }
  memset(task, 0, sizeof(*task));
  memset(ex, 0, sizeof(*ex));
  task->label = cuvil_arena_strdup(&fuse->fused->arena, cuvil_buf_text(&label));
  enum cuvil_status status = cuvil_buf_status(&label);
  cuvil_buf_free(&label);
  CUVIL_TRY(status);
  if (!task->label) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: labels");
  cuvil_problem_begin(kind, &task->problem);
  ex->fuse = fuse;
  ex->task = task;
  ex->shape = group->result;
  return CUVIL_OK;
}

/* Operand over a tensor. */
static int put(struct cuvil_express *ex, const char *name,
               enum cuvil_operand_role role, int tensor, int rank,
               const int *dims) {
  const struct cuvil_tensor *t = &ex->fuse->fused->tensors[tensor];
  int operand = cuvil_build_operand(&ex->task->problem, name, role, t->dtype,
                                    t->kind == CUVIL_TENSOR_WEIGHT, rank, dims);
  ex->task->tensors[operand] = tensor;
  if (role == CUVIL_ROLE_OUTPUT) ex->task->problem.output = operand;
  return operand;
}

static void axes_of(struct cuvil_express *ex, int dim, int count,
                    const int *axes) {
  ex->axis_count[dim] = count;
  for (int i = 0; i < count; ++i)
    ex->axes[dim][i] = axes[i];
}

/* The group's pointwise nodes, then the task. */
static enum cuvil_status end(struct cuvil_express *ex,
                             const struct cuvil_group *group) {
  for (int i = 0; i < group->count; ++i)
    if (group->nodes[i] != group->anchor)
      CUVIL_TRY(cuvil_express_node(ex, group->nodes[i]));
  CUVIL_TRY(cuvil_express_finish(ex, group->result));
  CUVIL_TRY(cuvil_problem_finish(&ex->task->problem));
  return cuvil_fuse_add_task(ex->fuse, ex->task);
}

static void set_window(struct cuvil_problem *problem,
                       const struct cuvil_window *window) {
  for (int i = 0; i < 2; ++i) {
    problem->stride[i] = window->stride[i];
    problem->dilation[i] = window->dilation[i];
  }
  for (int i = 0; i < 4; ++i)
    problem->pad[i] = window->pad[i];
}

/* ---- contractions */

/* Axis `axis` of the group's shape runs over input `index` of the node. */
static bool runs_over(const struct cuvil_fuse *fuse, int node, int index,
                      int axis) {
  const struct cuvil_value *in =
      value_at(fuse, cuvil_fuse_input(fuse, &fuse->graph->nodes[node], index));
  int from = axis - cuvil_express_shift(fuse, node, index);
  return from >= 0 && from < in->rank && in->dims[from] > 1;
}

/* Whether input `index` of a group's node is a tensor from outside. */
static bool is_side(const struct cuvil_fuse *fuse,
                    const struct cuvil_group *group, int node, int index) {
  int value = cuvil_fuse_input(fuse, &fuse->graph->nodes[node], index);
  double scalar;
  if (value < 0 || cuvil_fuse_scalar(fuse, value, &scalar)) return false;
  for (int i = 0; i < group->count; ++i)
    if (cuvil_fuse_output(fuse, group->nodes[i]) == value) return false;
  return true;
}

/* Every side input has batch, height and width together or not at all. */
static bool reads_as_rows(const struct cuvil_fuse *fuse,
                          const struct cuvil_group *group) {
  static const int rows[3] = {0, 2, 3};
  const struct cuvil_value *out = value_at(fuse, group->result);
  for (int i = 0; i < group->count; ++i) {
    int node = group->nodes[i];
    if (node == group->anchor) continue;
    for (int j = 0; j < fuse->graph->nodes[node].input_count; ++j) {
      if (!is_side(fuse, group, node, j)) continue;
      int there = 0, absent = 0;
      for (int r = 0; r < 3; ++r) {
        if (out->dims[rows[r]] == 1) continue;
        bool has = runs_over(fuse, node, j, rows[r]);
        there += has;
        absent += !has;
      }
      if (there && absent) return false;
    }
  }
  return true;
}

static bool is_product(const struct cuvil_window *window, int64_t group) {
  return window->kernel[0] == 1 && window->kernel[1] == 1 &&
         window->stride[0] == 1 && window->stride[1] == 1 && group == 1 &&
         !window->pad[0] && !window->pad[1] && !window->pad[2] &&
         !window->pad[3];
}

static void extents(struct cuvil_problem *problem, int count,
                    const int64_t *values) {
  for (int i = 0; i < count; ++i)
    problem->dims[i].extent = values[i];
}

static void conv_as_gemm(struct cuvil_express *ex, int x, int w, int y,
                         const struct cuvil_value *out, int64_t channels) {
  struct cuvil_problem *problem = &ex->task->problem;
  enum { M = CUVIL_DIM_M, N = CUVIL_DIM_N, K = CUVIL_DIM_K };
  cuvil_problem_begin(CUVIL_KIND_GEMM, problem);
  extents(problem, 3,
          (int64_t[]){out->dims[0] * out->dims[2] * out->dims[3], out->dims[1],
                      channels});
  put(ex, "a", CUVIL_ROLE_INPUT, x, 2, (int[]){M, K});
  put(ex, "b", CUVIL_ROLE_INPUT, w, 2, (int[]){N, K});
  put(ex, "c", CUVIL_ROLE_OUTPUT, y, 2, (int[]){M, N});
  axes_of(ex, M, 3, (int[]){0, 2, 3});
  axes_of(ex, N, 1, (int[]){1});
}

static void conv_as_conv(struct cuvil_express *ex, int x, int w, int y,
                         const struct cuvil_value *in,
                         const struct cuvil_value *out,
                         const struct cuvil_window *window, int64_t channels) {
  struct cuvil_problem *problem = &ex->task->problem;
  enum { N = CUVIL_CONV_DIM_N, C = CUVIL_CONV_DIM_C, H = CUVIL_CONV_DIM_H };
  enum { W = CUVIL_CONV_DIM_W, K = CUVIL_CONV_DIM_K, R = CUVIL_CONV_DIM_R };
  enum { S = CUVIL_CONV_DIM_S, P = CUVIL_CONV_DIM_P, Q = CUVIL_CONV_DIM_Q };
  extents(problem, 9,
          (int64_t[]){in->dims[0], channels, in->dims[2], in->dims[3],
                      out->dims[1], window->kernel[0], window->kernel[1],
                      out->dims[2], out->dims[3]});
  set_window(problem, window);
  put(ex, "x", CUVIL_ROLE_INPUT, x, 4, (int[]){N, H, W, C});
  put(ex, "w", CUVIL_ROLE_INPUT, w, 4, (int[]){K, R, S, C});
  put(ex, "y", CUVIL_ROLE_OUTPUT, y, 4, (int[]){N, P, Q, K});
  axes_of(ex, N, 1, (int[]){0});
  axes_of(ex, K, 1, (int[]){1});
  axes_of(ex, P, 1, (int[]){2});
  axes_of(ex, Q, 1, (int[]){3});
}

static enum cuvil_status build_conv(struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  struct cuvil_window window;
  CUVIL_TRY(begin(fuse, group, CUVIL_KIND_CONV, &task, &ex));
  CUVIL_TRY(cuvil_node_window(fuse->graph, node, &window));
  int64_t groups = cuvil_node_int(node, "group", 1);
  int in = cuvil_fuse_input(fuse, node, 0);
  int weight = cuvil_fuse_input(fuse, node, 1);
  const struct cuvil_value *w = value_at(fuse, weight);
  int x, wt, y;
  CUVIL_TRY(cuvil_fuse_want(fuse, in, CUVIL_LAYOUT_NHWC, groups == 1, &x));
  int64_t channels = stored_channels(&fuse->fused->tensors[x]);
  int64_t filter[4] = {w->dims[0], w->dims[2], w->dims[3],
                       groups == 1 ? channels : w->dims[1]};
  CUVIL_TRY(cuvil_fuse_weight(fuse, weight,
                              cuvil_fuse_dtype(fuse, group->result), 4, filter,
                              (int[]){0, 2, 3, 1}, &wt));
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, CUVIL_LAYOUT_NHWC, &y));
  const struct cuvil_value *out = value_at(fuse, group->result);
  ex.layout = CUVIL_LAYOUT_NHWC;
  ex.contraction = true;
  task.problem.group = groups;
  if (is_product(&window, groups) && reads_as_rows(fuse, group))
    conv_as_gemm(&ex, x, wt, y, out, channels);
  else
    conv_as_conv(&ex, x, wt, y, value_at(fuse, in), out, &window, channels);
  task.problem.tf32 = fuse->fused->options.precision == CUVIL_PRECISION_TF32;
  CUVIL_TRY(cuvil_express_bias(&ex, cuvil_fuse_output(fuse, group->anchor),
                               cuvil_fuse_input(fuse, node, 2), 1, 1, 1));
  return end(&ex, group);
}

/* Operand a or b of a gemm node: constant or computed. */
static enum cuvil_status gemm_operand(struct cuvil_fuse *fuse, int value,
                                      int result, bool swap, int *out_tensor) {
  const struct cuvil_value *v = value_at(fuse, value);
  if (!v->data)
    return cuvil_fuse_want(fuse, value, CUVIL_LAYOUT_PLAIN, false, out_tensor);
  int perm[CUVIL_GRAPH_MAX_RANK];
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  for (int i = 0; i < v->rank; ++i) {
    perm[i] = swap ? v->rank - 1 - i : i;
    dims[i] = v->dims[perm[i]];
  }
  return cuvil_fuse_weight(fuse, value, cuvil_fuse_dtype(fuse, result), v->rank,
                           dims, perm, out_tensor);
}

static enum cuvil_status build_gemm(struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  CUVIL_TRY(begin(fuse, group, CUVIL_KIND_GEMM, &task, &ex));
  int result = cuvil_fuse_output(fuse, group->anchor);
  int av = cuvil_fuse_input(fuse, node, 0),
      bv = cuvil_fuse_input(fuse, node, 1);
  const struct cuvil_value *b_value = value_at(fuse, bv);
  const struct cuvil_value *out = value_at(fuse, result);
  bool trans_a = cuvil_node_int(node, "transA", 0) != 0;
  bool trans_b = cuvil_node_int(node, "transB", 0) != 0;
  /* A constant b is stored as [n,k], whichever way the model has it. */
  bool n_first = trans_b || b_value->data;
  int a, b, c;
  CUVIL_TRY(gemm_operand(fuse, av, result, false, &a));
  CUVIL_TRY(gemm_operand(fuse, bv, result, !trans_b, &b));
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, CUVIL_LAYOUT_PLAIN, &c));
  int64_t columns = out->dims[out->rank - 1];
  enum { M = CUVIL_DIM_M, N = CUVIL_DIM_N, K = CUVIL_DIM_K };
  extents(&task.problem, 3,
          (int64_t[]){cuvil_value_elements(out) / columns, columns,
                      b_value->dims[trans_b ? 1 : 0]});
  put(&ex, "a", CUVIL_ROLE_INPUT, a, 2,
      trans_a ? (int[]){K, M} : (int[]){M, K});
  put(&ex, "b", CUVIL_ROLE_INPUT, b, 2,
      n_first ? (int[]){N, K} : (int[]){K, N});
  put(&ex, "c", CUVIL_ROLE_OUTPUT, c, 2, (int[]){M, N});
  int rows[CUVIL_GRAPH_MAX_RANK];
  for (int i = 0; i < out->rank - 1; ++i)
    rows[i] = i;
  axes_of(&ex, M, out->rank - 1, rows);
  axes_of(&ex, N, 1, (int[]){out->rank - 1});
  ex.layout = CUVIL_LAYOUT_PLAIN;
  ex.contraction = true;
  task.problem.tf32 = fuse->fused->options.precision == CUVIL_PRECISION_TF32;
  bool gemm = strcmp(node->op, "Gemm") == 0;
  int bias = gemm ? cuvil_fuse_input(fuse, node, 2) : -1;
  int shift = bias >= 0 ? cuvil_express_shift(fuse, group->anchor, 2) : 0;
  CUVIL_TRY(cuvil_express_bias(&ex, result, bias, shift,
                               gemm ? cuvil_node_float(node, "alpha", 1) : 1,
                               gemm ? cuvil_node_float(node, "beta", 1) : 1));
  return end(&ex, group);
}

/* ---- pool, reduce */

static enum cuvil_status build_pool(struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  struct cuvil_window window;
  CUVIL_TRY(begin(fuse, group, CUVIL_KIND_POOL, &task, &ex));
  CUVIL_TRY(cuvil_node_window(fuse->graph, node, &window));
  CUVIL_CHECK(cuvil_fuse_pool_pads(fuse, node, &window));
  int in = cuvil_fuse_input(fuse, node, 0), x, y;
  CUVIL_TRY(cuvil_fuse_want(fuse, in, CUVIL_LAYOUT_NHWC, false, &x));
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, CUVIL_LAYOUT_NHWC, &y));
  const struct cuvil_value *v = value_at(fuse, in);
  const struct cuvil_value *out = value_at(fuse, group->result);
  struct cuvil_problem *problem = &task.problem;
  enum { N = CUVIL_POOL_DIM_N, C = CUVIL_POOL_DIM_C, H = CUVIL_POOL_DIM_H };
  enum { W = CUVIL_POOL_DIM_W, P = CUVIL_POOL_DIM_P, Q = CUVIL_POOL_DIM_Q };
  extents(problem, 8,
          (int64_t[]){v->dims[0], v->dims[1], v->dims[2], v->dims[3],
                      window.kernel[0], window.kernel[1], out->dims[2],
                      out->dims[3]});
  set_window(problem, &window);
  problem->pool_op = strcmp(node->op, "MaxPool") == 0 ? CUVIL_POOL_MAX
                     : window.count_include_pad       ? CUVIL_POOL_AVG_PADDED
                                                      : CUVIL_POOL_AVG;
  put(&ex, "x", CUVIL_ROLE_INPUT, x, 4, (int[]){N, H, W, C});
  put(&ex, "y", CUVIL_ROLE_OUTPUT, y, 4, (int[]){N, P, Q, C});
  CUVIL_TRY(cuvil_problem_finish(problem));
  return cuvil_fuse_add_task(fuse, &task);
}

static enum cuvil_reduce_op reduce_op(const char *op) {
  if (strstr(op, "Max")) return CUVIL_REDUCE_MAX;
  if (strstr(op, "Min")) return CUVIL_REDUCE_MIN;
  if (strstr(op, "Sum")) return CUVIL_REDUCE_SUM;
  return CUVIL_REDUCE_MEAN;
}

/* Dimensions of a reduction in plain order, neighbours of one fate joined. */
static void reduce_plain(struct cuvil_problem *problem,
                         const struct cuvil_value *v, unsigned mask,
                         int *x_dims, int *x_rank, int *y_dims, int *y_rank) {
  *x_rank = *y_rank = 0;
  for (int axis = 0; axis < v->rank; ++axis) {
    bool reduced = mask >> axis & 1u;
    if (axis > 0 && reduced == (mask >> (axis - 1) & 1u)) {
      problem->dims[problem->dim_count - 1].extent *= v->dims[axis];
      continue;
    }
    char name[8];
    snprintf(name, sizeof(name), "d%d", problem->dim_count);
    int dim = cuvil_problem_add_dim(problem, name, v->dims[axis]);
    x_dims[(*x_rank)++] = dim;
    if (!reduced) y_dims[(*y_rank)++] = dim;
  }
}

static enum cuvil_status build_reduce(struct cuvil_fuse *fuse,
                                      const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  unsigned mask;
  CUVIL_TRY(begin(fuse, group, CUVIL_KIND_REDUCE, &task, &ex));
  CUVIL_CHECK(cuvil_fuse_axes(fuse, node, &mask));
  int in = cuvil_fuse_input(fuse, node, 0), x, y;
  const struct cuvil_value *v = value_at(fuse, in);
  bool spatial = v->rank == 4 && mask == 0xCu;
  CUVIL_TRY(cuvil_fuse_want(
      fuse, in, spatial ? CUVIL_LAYOUT_NHWC : CUVIL_LAYOUT_PLAIN, false, &x));
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, CUVIL_LAYOUT_PLAIN, &y));
  struct cuvil_problem *problem = &task.problem;
  int x_dims[CUVIL_MAX_RANK + 1], y_dims[CUVIL_MAX_RANK + 1];
  int x_rank, y_rank;
  problem->reduce_op = reduce_op(node->op);
  if (spatial) {
    x_dims[0] = cuvil_problem_add_dim(problem, "n", v->dims[0]);
    x_dims[1] = cuvil_problem_add_dim(problem, "h", v->dims[2]);
    x_dims[2] = cuvil_problem_add_dim(problem, "w", v->dims[3]);
    x_dims[3] = cuvil_problem_add_dim(problem, "c", v->dims[1]);
    y_dims[0] = x_dims[0];
    y_dims[1] = x_dims[3];
    x_rank = 4;
    y_rank = 2;
  } else {
    reduce_plain(problem, v, mask, x_dims, &x_rank, y_dims, &y_rank);
  }
  put(&ex, "x", CUVIL_ROLE_INPUT, x, x_rank, x_dims);
  put(&ex, "y", CUVIL_ROLE_OUTPUT, y, y_rank, y_dims);
  CUVIL_TRY(cuvil_problem_finish(problem));
  return cuvil_fuse_add_task(fuse, &task);
}

/* ---- pointwise */

/* Whether two axes, neighbours in memory, are one dimension to every side
 * input of the group. */
static bool joins(const struct cuvil_fuse *fuse,
                  const struct cuvil_group *group, bool nhwc, int a, int b) {
  for (int i = 0; i < group->count; ++i) {
    int node = group->nodes[i];
    for (int j = 0; j < fuse->graph->nodes[node].input_count; ++j) {
      if (!is_side(fuse, group, node, j)) continue;
      const struct cuvil_value *side =
          value_at(fuse, cuvil_fuse_input(fuse, &fuse->graph->nodes[node], j));
      if (runs_over(fuse, node, j, a) != runs_over(fuse, node, j, b))
        return false;
      /* A computed [c,h,w] keeps its own order in a channels-last region. */
      if (nhwc && !side->data && side->rank != 4 && (a == 1 || b == 1))
        return false;
    }
  }
  return true;
}

/* Whether a computed operand is there channels last. */
static bool reads_nhwc(const struct cuvil_fuse *fuse,
                       const struct cuvil_group *group) {
  for (int i = 0; i < group->count; ++i) {
    int node = group->nodes[i];
    for (int j = 0; j < fuse->graph->nodes[node].input_count; ++j)
      if (is_side(fuse, group, node, j) &&
          cuvil_fuse_is_nhwc(
              fuse, cuvil_fuse_input(fuse, &fuse->graph->nodes[node], j)))
        return true;
  }
  return false;
}

static void pointwise_dims(struct cuvil_express *ex,
                           const struct cuvil_group *group) {
  static const int nhwc_perm[4] = {0, 2, 3, 1};
  struct cuvil_problem *problem = &ex->task->problem;
  const struct cuvil_value *out = value_at(ex->fuse, group->result);
  bool nhwc = ex->layout == CUVIL_LAYOUT_NHWC;
  int last = -1; /* last axis of the current dimension with extent > 1 */
  for (int i = 0; i < out->rank; ++i) {
    int axis = nhwc ? nhwc_perm[i] : i;
    int64_t extent = out->dims[axis];
    int dim = problem->dim_count - 1;
    if (dim < 0 || (extent > 1 && last >= 0 &&
                    !joins(ex->fuse, group, nhwc, last, axis))) {
      char name[8];
      snprintf(name, sizeof(name), "d%d", problem->dim_count);
      dim = cuvil_problem_add_dim(problem, name, 1);
    }
    problem->dims[dim].extent *= extent;
    ex->axes[dim][ex->axis_count[dim]++] = axis;
    if (extent > 1) last = axis;
  }
  if (problem->dim_count == 0) cuvil_problem_add_dim(problem, "d0", 1);
}

static enum cuvil_status build_pointwise(struct cuvil_fuse *fuse,
                                         const struct cuvil_group *group) {
  struct cuvil_task task;
  struct cuvil_express ex;
  int y, dims[CUVIL_MAX_RANK + 1];
  CUVIL_TRY(begin(fuse, group, CUVIL_KIND_POINTWISE, &task, &ex));
  bool nhwc = !cuvil_fuse_trivial(value_at(fuse, group->result)) &&
              reads_nhwc(fuse, group);
  ex.layout = nhwc ? CUVIL_LAYOUT_NHWC : CUVIL_LAYOUT_PLAIN;
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, ex.layout, &y));
  pointwise_dims(&ex, group);
  int rank = task.problem.dim_count;
  for (int i = 0; i < rank; ++i)
    dims[i] = i;
  put(&ex, "y", CUVIL_ROLE_OUTPUT, y, rank, dims);
  return end(&ex, group);
}

static enum cuvil_status build_group(struct cuvil_fuse *fuse,
                                     const struct cuvil_group *group) {
  if (group->anchor < 0) return build_pointwise(fuse, group);
  switch (fuse->classes[group->anchor]) {
    case CUVIL_CLASS_CONV:
      return build_conv(fuse, group);
    case CUVIL_CLASS_GEMM:
      return build_gemm(fuse, group);
    case CUVIL_CLASS_POOL:
      return build_pool(fuse, group);
    case CUVIL_CLASS_REDUCE:
      return build_reduce(fuse, group);
    case CUVIL_CLASS_SOFTMAX:
      return cuvil_fuse_softmax(fuse, group->anchor);
    case CUVIL_CLASS_TRANSPOSE:
      return cuvil_fuse_transpose(fuse, group->anchor);
    default:
      return cuvil_fuse_alias(fuse, group->anchor);
  }
}

enum cuvil_status cuvil_fuse_tasks(struct cuvil_fuse *fuse) {
  CUVIL_TRY(cuvil_fuse_begin_io(fuse));
  for (int i = 0; i < fuse->group_count; ++i)
    CUVIL_TRY(build_group(fuse, &fuse->groups[i]));
  return cuvil_fuse_finish_io(fuse);
}
