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

enum cuvil_status cuvil_task_begin(struct cuvil_fuse *fuse,
                                   const struct cuvil_group *group,
                                   enum cuvil_kind kind,
                                   struct cuvil_task *task,
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
int cuvil_task_put(struct cuvil_express *ex, const char *name,
                   enum cuvil_operand_role role, int tensor, int rank,
                   const int *dims) {
  const struct cuvil_tensor *t = &ex->fuse->fused->tensors[tensor];
  int operand = cuvil_build_operand(&ex->task->problem, name, role, t->dtype,
                                    t->kind == CUVIL_TENSOR_WEIGHT, rank, dims);
  ex->task->tensors[operand] = tensor;
  if (role == CUVIL_ROLE_OUTPUT) ex->task->problem.output = operand;
  return operand;
}

void cuvil_task_axes(struct cuvil_express *ex, int dim, int count,
                     const int *axes) {
  const struct cuvil_value *v = value_at(ex->fuse, ex->shape);
  for (int i = 0; i < count; ++i)
    if (v->dims[axes[i]] != 1)
      ex->space.f[ex->space.count++] =
          (struct cuvil_factor){axes[i], v->dims[axes[i]], 1, 0, dim};
}

/* The group's pointwise nodes, then the task. */
enum cuvil_status cuvil_task_end(struct cuvil_express *ex,
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
  cuvil_task_put(ex, "a", CUVIL_ROLE_INPUT, x, 2, (int[]){M, K});
  cuvil_task_put(ex, "b", CUVIL_ROLE_INPUT, w, 2, (int[]){N, K});
  cuvil_task_put(ex, "c", CUVIL_ROLE_OUTPUT, y, 2, (int[]){M, N});
  cuvil_task_axes(ex, M, 3, (int[]){0, 2, 3});
  cuvil_task_axes(ex, N, 1, (int[]){1});
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
  cuvil_task_put(ex, "x", CUVIL_ROLE_INPUT, x, 4, (int[]){N, H, W, C});
  cuvil_task_put(ex, "w", CUVIL_ROLE_INPUT, w, 4, (int[]){K, R, S, C});
  cuvil_task_put(ex, "y", CUVIL_ROLE_OUTPUT, y, 4, (int[]){N, P, Q, K});
  cuvil_task_axes(ex, N, 1, (int[]){0});
  cuvil_task_axes(ex, P, 1, (int[]){2});
  cuvil_task_axes(ex, Q, 1, (int[]){3});
  cuvil_task_axes(ex, K, 1, (int[]){1});
}

static enum cuvil_status build_conv(struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  struct cuvil_window window;
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_CONV, &task, &ex));
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
                              (int[]){0, 2, 3, 1}, NULL, &wt));
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
  return cuvil_task_end(&ex, group);
}

/* ---- pool, reduce */

static enum cuvil_status build_pool(struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  struct cuvil_window window;
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_POOL, &task, &ex));
  CUVIL_TRY(cuvil_node_window(fuse->graph, node, &window));
  int64_t over[2];
  CUVIL_CHECK(cuvil_fuse_pool_pads(fuse, node, &window, over));
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
  memcpy(problem->over, over, sizeof over);
  cuvil_task_put(&ex, "x", CUVIL_ROLE_INPUT, x, 4, (int[]){N, H, W, C});
  cuvil_task_put(&ex, "y", CUVIL_ROLE_OUTPUT, y, 4, (int[]){N, P, Q, C});
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
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_REDUCE, &task, &ex));
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
  cuvil_task_put(&ex, "x", CUVIL_ROLE_INPUT, x, x_rank, x_dims);
  cuvil_task_put(&ex, "y", CUVIL_ROLE_OUTPUT, y, y_rank, y_dims);
  CUVIL_TRY(cuvil_problem_finish(problem));
  return cuvil_fuse_add_task(fuse, &task);
}

/* ---- pointwise */

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

/* Side inputs of a pointwise group, and their strides along its space. */
struct sides {
  int count;
  int values[CUVIL_MAX_OPERANDS + 1], shifts[CUVIL_MAX_OPERANDS + 1];
  struct cuvil_view views[CUVIL_MAX_OPERANDS + 1];
  int64_t strides[CUVIL_MAX_OPERANDS + 2][CUVIL_VIEW_MAX]; /* the last: y */
};

static void add_side(struct cuvil_express *ex, int value, int shift,
                     struct sides *sides) {
  static const int nhwc_perm[4] = {0, 2, 3, 1};
  const struct cuvil_value *v = value_at(ex->fuse, value);
  for (int i = 0; i < sides->count; ++i)
    if (sides->values[i] == value && sides->shifts[i] == shift) return;
  if (sides->count > CUVIL_MAX_OPERANDS) return;
  struct cuvil_view *view = &sides->views[sides->count];
  enum cuvil_layout layout = v->rank == 4 ? ex->layout : CUVIL_LAYOUT_PLAIN;
  int form = cuvil_fuse_peek(ex->fuse, value, layout);
  cuvil_view_packed(view, v->rank, v->dims);
  if (form >= 0) {
    cuvil_view_of(&ex->fuse->fused->tensors[form], view);
  } else if (layout == CUVIL_LAYOUT_NHWC && !v->data &&
             !cuvil_fuse_trivial(v)) {
    int64_t dims[4];
    for (int i = 0; i < 4; ++i)
      dims[i] = v->dims[nhwc_perm[i]];
    cuvil_view_packed(view, 4, dims);
    for (int i = 0; i < view->count; ++i)
      view->f[i].axis = nhwc_perm[view->f[i].axis];
  }
  sides->values[sides->count] = value;
  sides->shifts[sides->count++] = shift;
}

static void collect_sides(struct cuvil_express *ex,
                          const struct cuvil_group *group,
                          struct sides *sides) {
  sides->count = 0;
  for (int i = 0; i < group->count; ++i) {
    int node = group->nodes[i];
    const struct cuvil_node *n = &ex->fuse->graph->nodes[node];
    for (int j = 0; j < cuvil_express_inputs(n); ++j)
      if (is_side(ex->fuse, group, node, j))
        add_side(ex, cuvil_fuse_input(ex->fuse, n, j),
                 cuvil_express_shift(ex->fuse, node, j), sides);
  }
}

/* A constant is laid out as the task wants it: it only is there or not. */
static void weight_strides(const struct cuvil_space *space,
                           const struct cuvil_value *v, int shift,
                           int64_t *strides) {
  int64_t next = 1;
  for (int i = space->count - 1; i >= 0; --i) {
    int axis = space->f[i].axis - shift;
    bool there = axis >= 0 && axis < v->rank && v->dims[axis] != 1;
    strides[i] = there ? next : 0;
    if (there) next *= space->f[i].extent;
  }
}

static bool side_strides(struct cuvil_express *ex, struct sides *sides, int i) {
  const struct cuvil_value *v = value_at(ex->fuse, sides->values[i]);
  if (v->data) {
    weight_strides(&ex->space, v, sides->shifts[i], sides->strides[i]);
    return true;
  }
  if (cuvil_space_strides(&ex->space, &sides->views[i], sides->shifts[i],
                          v->rank, v->dims, sides->strides[i]))
    return true;
  /* It will be copied into the task's order. */
  weight_strides(&ex->space, v, sides->shifts[i], sides->strides[i]);
  return false;
}

/* The space of a pointwise group: cut as its sides are, in the storage order
 * of the first of them that is whole and not plain. */
static void pointwise_space(struct cuvil_express *ex, struct sides *sides) {
  static const int nhwc_perm[4] = {0, 2, 3, 1};
  const struct cuvil_value *out = value_at(ex->fuse, ex->shape);
  bool nhwc = ex->layout == CUVIL_LAYOUT_NHWC;
  cuvil_space_begin(&ex->space, out->rank, out->dims, nhwc ? nhwc_perm : NULL);
  for (int i = 0; i < sides->count; ++i) {
    const struct cuvil_value *v = value_at(ex->fuse, sides->values[i]);
    struct cuvil_space before = ex->space;
    if (!v->data && !cuvil_space_refine(&ex->space, &sides->views[i],
                                        sides->shifts[i], v->rank, v->dims))
      ex->space = before;
  }
  if (nhwc || cuvil_fuse_is_output(ex->fuse, ex->shape)) return;
  for (int i = 0; i < sides->count; ++i) {
    const struct cuvil_value *v = value_at(ex->fuse, sides->values[i]);
    if (v->data || cuvil_value_elements(v) != cuvil_value_elements(out) ||
        !side_strides(ex, sides, i))
      continue;
    cuvil_space_order(&ex->space, sides->strides[i]);
    return;
  }
}

static enum cuvil_status pointwise_dims(struct cuvil_express *ex,
                                        struct sides *sides, int y) {
  struct cuvil_problem *problem = &ex->task->problem;
  const struct cuvil_value *out = value_at(ex->fuse, ex->shape);
  struct cuvil_view view;
  int64_t *y_strides = sides->strides[sides->count];
  int order[CUVIL_VIEW_MAX];
  cuvil_view_of(&ex->fuse->fused->tensors[y], &view);
  CUVIL_CHECK(cuvil_space_strides(&ex->space, &view, 0, out->rank, out->dims,
                                  y_strides));
  for (int i = 0; i < sides->count; ++i)
    (void)side_strides(ex, sides, i);
  int rank = cuvil_space_merge(&ex->space, sides->count + 1, sides->strides);
  if (rank > CUVIL_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "`%s` needs %d dimensions; at most %d are supported",
                      ex->task->label, rank, CUVIL_MAX_RANK);
  for (int d = 0; d < rank || d == 0; ++d) {
    int64_t extent = 1;
    char name[8];
    for (int i = 0; i < ex->space.count; ++i)
      if (ex->space.f[i].dim == d) extent *= ex->space.f[i].extent;
    snprintf(name, sizeof(name), "d%d", d);
    order[d] = cuvil_problem_add_dim(problem, name, extent);
  }
  int operand = cuvil_task_put(ex, "y", CUVIL_ROLE_OUTPUT, y, 0, NULL);
  CUVIL_CHECK(cuvil_space_operand(&ex->space, problem, operand,
                                  problem->dim_count, order, y_strides, true));
  return CUVIL_OK;
}

static enum cuvil_status build_pointwise(struct cuvil_fuse *fuse,
                                         const struct cuvil_group *group) {
  struct cuvil_task task;
  struct cuvil_express ex;
  struct sides sides;
  int y;
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_POINTWISE, &task, &ex));
  bool nhwc = !cuvil_fuse_trivial(value_at(fuse, group->result)) &&
              reads_nhwc(fuse, group);
  ex.layout = nhwc ? CUVIL_LAYOUT_NHWC : CUVIL_LAYOUT_PLAIN;
  collect_sides(&ex, group, &sides);
  pointwise_space(&ex, &sides);
  CUVIL_TRY(cuvil_fuse_define_space(fuse, group->result, &ex.space, &y));
  CUVIL_TRY(pointwise_dims(&ex, &sides, y));
  return cuvil_task_end(&ex, group);
}

static enum cuvil_status build_group(struct cuvil_fuse *fuse,
                                     const struct cuvil_group *group) {
  if (group->anchor < 0) return build_pointwise(fuse, group);
  switch (fuse->classes[group->anchor]) {
    case CUVIL_CLASS_CONV:
      return build_conv(fuse, group);
    case CUVIL_CLASS_GEMM:
      return cuvil_fuse_gemm(fuse, group);
    case CUVIL_CLASS_NORM:
      return cuvil_fuse_norm(fuse, group);
    case CUVIL_CLASS_GATHER:
      return cuvil_fuse_gather(fuse, group);
    case CUVIL_CLASS_ATTENTION:
      return cuvil_fuse_attention(fuse, group->anchor);
    case CUVIL_CLASS_CONCAT:
      return cuvil_fuse_concat(fuse, group->anchor);
    case CUVIL_CLASS_PAD:
      return cuvil_fuse_pad(fuse, group->anchor);
    case CUVIL_CLASS_POOL:
      return build_pool(fuse, group);
    case CUVIL_CLASS_REDUCE:
      return build_reduce(fuse, group);
    case CUVIL_CLASS_SOFTMAX:
      return cuvil_fuse_softmax(fuse, group->anchor);
    default:
      return cuvil_fuse_view(fuse, group->anchor);
  }
}

/* The node at which a group's problem could not be made. */
static enum cuvil_status name_group(const struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group,
                                    enum cuvil_status status) {
  int n = group->anchor >= 0 ? group->anchor : group->nodes[0];
  const struct cuvil_node *node = &fuse->graph->nodes[n];
  return CUVIL_FAIL(status, "node \"%.80s\" (%.80s): %s", node->name, node->op,
                    cuvil_last_error());
}

enum cuvil_status cuvil_fuse_tasks(struct cuvil_fuse *fuse) {
  CUVIL_TRY(cuvil_fuse_begin_io(fuse));
  for (int i = 0; i < fuse->group_count; ++i) {
    enum cuvil_status status = build_group(fuse, &fuse->groups[i]);
    if (status != CUVIL_OK) return name_group(fuse, &fuse->groups[i], status);
  }
  return cuvil_fuse_finish_io(fuse);
}
