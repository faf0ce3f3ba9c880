/* matrix.c - problems over rows and columns: gemm, norm, gather.
 *
 * The rows of an operand are all its leading axes, in the order in which they
 * lie in storage: a result is laid out in the same order, so that a model that
 * keeps its batch second costs no copy.  What is not rows at one stride is
 * copied first.
 */
#include <string.h>

#include "fusion/fuse.h"

/* A tensor seen as rows and columns, each at one stride. */
struct rows {
  int tensor;
  int64_t row_stride, column_stride;
  struct cuvil_view leading; /* strides count rows */
};

static const struct cuvil_value *value_at(const struct cuvil_fuse *fuse,
                                          int value) {
  return &fuse->graph->values[value];
}

/* The factors from `first` on are one stride, slowest first; that stride. */
static bool one_stride(const struct cuvil_factor *f, int count,
                       int64_t *out_stride) {
  *out_stride = count ? f[count - 1].stride : 0;
  for (int i = 0; i + 1 < count; ++i)
    if (f[i].stride != f[i + 1].stride * f[i + 1].extent) return false;
  return true;
}

static void sort_by_stride(struct cuvil_factor *f, int count) {
  for (int i = 1; i < count; ++i)
    for (int j = i; j > 0 && f[j].stride > f[j - 1].stride; --j) {
      struct cuvil_factor swap = f[j];
      f[j] = f[j - 1];
      f[j - 1] = swap;
    }
}

/* Axes below `split` are rows.  `any_order`: they may lie in storage in
 * another order than theirs. */
static bool split_rows(const struct cuvil_view *view, int split, bool any_order,
                       struct rows *out) {
  struct cuvil_factor rows[CUVIL_VIEW_MAX], columns[CUVIL_VIEW_MAX];
  int row_count = 0, column_count = 0;
  for (int i = 0; i < view->count; ++i) {
    if (view->f[i].stride == 0) return false; /* an Expand's */
    if (view->f[i].axis < split)
      rows[row_count++] = view->f[i];
    else
      columns[column_count++] = view->f[i];
  }
  if (any_order) sort_by_stride(rows, row_count);
  if (!one_stride(rows, row_count, &out->row_stride) ||
      !one_stride(columns, column_count, &out->column_stride))
    return false;
  memset(&out->leading, 0, sizeof(out->leading));
  for (int i = 0; i < view->count; ++i)
    if (view->f[i].axis < split) {
      struct cuvil_factor f = view->f[i];
      f.stride /= out->row_stride;
      out->leading.f[out->leading.count++] = f;
    }
  return true;
}

static void drop_leading_axes(struct rows *rows) {
  int64_t columns = rows->column_stride ? rows->column_stride : 1;
  if (rows->column_stride == 0) rows->column_stride = 1;
  if (rows->row_stride == 0) rows->row_stride = columns;
}

/* The value as rows by columns; its rows become axes below `out_split` of
 * `out`, which is laid out as they are. */
static enum cuvil_status take_rows(struct cuvil_fuse *fuse, int value,
                                   int split, const struct cuvil_value *out,
                                   int out_split, bool any_order,
                                   bool contiguous, struct rows *rows) {
  const struct cuvil_value *v = value_at(fuse, value);
  struct cuvil_view view;
  int form = cuvil_fuse_peek(fuse, value, CUVIL_LAYOUT_PLAIN);
  for (int attempt = 0; attempt < 2; ++attempt, form = -1) {
    if (form < 0)
      CUVIL_TRY(cuvil_fuse_want(fuse, value, CUVIL_LAYOUT_PLAIN, false, &form));
    cuvil_view_of(&fuse->fused->tensors[form], &view);
    rows->tensor = form;
    if (!split_rows(&view, split, any_order, rows)) continue;
    if (contiguous && rows->column_stride > 1) continue;
    if (rows->column_stride > 1 && rows->row_stride != 1) continue;
    if (cuvil_view_reshape(&rows->leading, out_split, out->dims)) {
      int64_t columns = 1;
      for (int i = split; i < v->rank; ++i)
        columns *= v->dims[i];
      if (rows->row_stride == 0) rows->row_stride = columns;
      drop_leading_axes(rows);
      return CUVIL_OK;
    }
  }
  return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` is not rows and columns",
                    v->name);
}

/* The rows of the result, as dimension `dim`, slowest in storage first. */
static void row_axes(struct cuvil_express *ex, int dim,
                     const struct rows *rows) {
  struct cuvil_factor f[CUVIL_VIEW_MAX];
  memcpy(f, rows->leading.f, sizeof(f));
  sort_by_stride(f, rows->leading.count);
  for (int i = 0; i < rows->leading.count; ++i) {
    f[i].dim = dim;
    f[i].stride = 0;
    ex->space.f[ex->space.count++] = f[i];
  }
}

/* Strides of a matrix operand, in the order that puts the fastest last. */
static void put_matrix(struct cuvil_express *ex, int operand, int rows,
                       int64_t row_stride, int columns, int64_t column_stride) {
  struct cuvil_operand *o = &ex->task->problem.operands[operand];
  bool swap = row_stride < column_stride;
  o->rank = 2;
  o->strided = true;
  o->dims[swap] = rows;
  o->strides[swap] = row_stride;
  o->dims[!swap] = columns;
  o->strides[!swap] = column_stride;
}

static void put_batch(struct cuvil_express *ex, int operand, int64_t stride) {
  struct cuvil_operand *o = &ex->task->problem.operands[operand];
  if (stride == 0) return;
  int at = 0;
  while (at < o->rank && o->strides[at] > stride)
    ++at;
  for (int i = o->rank; i > at; --i) {
    o->dims[i] = o->dims[i - 1];
    o->strides[i] = o->strides[i - 1];
  }
  o->dims[at] = CUVIL_DIM_BATCH;
  o->strides[at] = stride;
  ++o->rank;
}

/* ---- gemm */

int cuvil_fuse_batch_axes(const struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  const struct cuvil_value *b = value_at(fuse, cuvil_fuse_input(fuse, n, 1));
  const struct cuvil_value *out = value_at(fuse, cuvil_fuse_output(fuse, node));
  if (strcmp(n->op, "MatMul") != 0) return 0;
  for (int i = 0; i < b->rank - 2; ++i)
    if (b->dims[i] != 1) return out->rank - 2;
  return 0;
}

/* A constant b is stored as [n,k], whichever way the model has it. */
static enum cuvil_status weight_matrix(struct cuvil_express *ex, int value,
                                       bool n_first) {
  struct cuvil_fuse *fuse = ex->fuse;
  const struct cuvil_value *v = value_at(fuse, value);
  int perm[CUVIL_GRAPH_MAX_RANK], tensor;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  for (int i = 0; i < v->rank; ++i)
    perm[i] = i;
  if (!n_first) {
    perm[v->rank - 2] = v->rank - 1;
    perm[v->rank - 1] = v->rank - 2;
  }
  for (int i = 0; i < v->rank; ++i)
    dims[i] = v->dims[perm[i]];
  CUVIL_TRY(cuvil_fuse_weight(fuse, value, cuvil_fuse_dtype(fuse, ex->shape),
                              v->rank, dims, perm, NULL, &tensor));
  cuvil_task_put(ex, "b", CUVIL_ROLE_INPUT, tensor, 2,
                 (int[]){CUVIL_DIM_N, CUVIL_DIM_K});
  return CUVIL_OK;
}

/* A computed matrix of two axes (leading ones of one element apart). */
static enum cuvil_status put_rows(struct cuvil_express *ex, const char *name,
                                  int value, bool swap, int rows_dim,
                                  int columns_dim) {
  const struct cuvil_value *v = value_at(ex->fuse, value);
  struct cuvil_view view;
  struct rows rows;
  int form = cuvil_fuse_peek(ex->fuse, value, CUVIL_LAYOUT_PLAIN);
  if (form >= 0) {
    cuvil_view_of(&ex->fuse->fused->tensors[form], &view);
    if (!split_rows(&view, v->rank - 1, false, &rows) ||
        (rows.row_stride > 1 && rows.column_stride > 1))
      form = -1;
  }
  if (form < 0) {
    CUVIL_TRY(
        cuvil_fuse_want(ex->fuse, value, CUVIL_LAYOUT_PLAIN, false, &form));
    cuvil_view_of(&ex->fuse->fused->tensors[form], &view);
    CUVIL_CHECK(split_rows(&view, v->rank - 1, false, &rows));
  }
  if (rows.row_stride == 0) rows.row_stride = v->dims[v->rank - 1];
  drop_leading_axes(&rows);
  int operand = cuvil_task_put(ex, name, CUVIL_ROLE_INPUT, form, 0, NULL);
  put_matrix(ex, operand, swap ? columns_dim : rows_dim, rows.row_stride,
             swap ? rows_dim : columns_dim, rows.column_stride);
  return CUVIL_OK;
}

static enum cuvil_status gemm_bias(struct cuvil_express *ex,
                                   const struct cuvil_group *group) {
  struct cuvil_fuse *fuse = ex->fuse;
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  bool gemm = strcmp(node->op, "Gemm") == 0;
  int bias = gemm ? cuvil_fuse_input(fuse, node, 2) : -1;
  int shift = bias >= 0 ? cuvil_express_shift(fuse, group->anchor, 2) : 0;
  return cuvil_express_bias(ex, cuvil_fuse_output(fuse, group->anchor), bias,
                            shift,
                            gemm ? cuvil_node_float(node, "alpha", 1) : 1,
                            gemm ? cuvil_node_float(node, "beta", 1) : 1);
}

static enum cuvil_status one_matrix(struct cuvil_express *ex,
                                    const struct cuvil_group *group) {
  struct cuvil_fuse *fuse = ex->fuse;
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_problem *problem = &ex->task->problem;
  int av = cuvil_fuse_input(fuse, node, 0);
  int bv = cuvil_fuse_input(fuse, node, 1);
  const struct cuvil_value *a = value_at(fuse, av), *b = value_at(fuse, bv);
  const struct cuvil_value *out = value_at(fuse, group->result);
  bool trans_a = cuvil_node_int(node, "transA", 0) != 0;
  bool trans_b = cuvil_node_int(node, "transB", 0) != 0;
  enum { M = CUVIL_DIM_M, N = CUVIL_DIM_N, K = CUVIL_DIM_K };
  int64_t columns = out->dims[out->rank - 1];
  problem->dims[M].extent = cuvil_value_elements(out) / columns;
  problem->dims[N].extent = columns;
  problem->dims[K].extent = b->dims[b->rank - (trans_b ? 1 : 2)];
  int c;
  if (trans_a || a->data) {
    if (a->data) {
      int perm[CUVIL_GRAPH_MAX_RANK], tensor;
      for (int i = 0; i < a->rank; ++i)
        perm[i] = i;
      CUVIL_TRY(cuvil_fuse_weight(fuse, av,
                                  cuvil_fuse_dtype(fuse, group->result),
                                  a->rank, a->dims, perm, NULL, &tensor));
      cuvil_task_put(ex, "a", CUVIL_ROLE_INPUT, tensor, 2,
                     trans_a ? (int[]){K, M} : (int[]){M, K});
    } else {
      CUVIL_TRY(put_rows(ex, "a", av, true, M, K));
    }
    int rows[CUVIL_GRAPH_MAX_RANK];
    for (int i = 0; i < out->rank - 1; ++i)
      rows[i] = i;
    cuvil_task_axes(ex, M, out->rank - 1, rows);
  } else {
    struct rows rows;
    CUVIL_TRY(take_rows(fuse, av, a->rank - 1, out, out->rank - 1,
                        !cuvil_fuse_is_output(fuse, group->result), false,
                        &rows));
    int operand =
        cuvil_task_put(ex, "a", CUVIL_ROLE_INPUT, rows.tensor, 0, NULL);
    put_matrix(ex, operand, M, rows.row_stride, K, rows.column_stride);
    row_axes(ex, M, &rows);
  }
  cuvil_task_axes(ex, N, 1, (int[]){out->rank - 1});
  if (b->data)
    CUVIL_TRY(weight_matrix(ex, bv, trans_b));
  else
    CUVIL_TRY(put_rows(ex, "b", bv, trans_b, K, N));
  CUVIL_TRY(cuvil_fuse_define_space(fuse, group->result, &ex->space, &c));
  cuvil_task_put(ex, "c", CUVIL_ROLE_OUTPUT, c, 2, (int[]){M, N});
  return CUVIL_OK;
}

/* One of many matrices: strides of its last two axes, and of the batch (0: it
 * is the same for all). */
static bool batch_strides(const struct cuvil_fuse *fuse, int tensor, int value,
                          const struct cuvil_value *out, int64_t strides[3]) {
  const struct cuvil_value *v = value_at(fuse, value);
  int shift = out->rank - v->rank, batch = out->rank - 2;
  struct cuvil_view view, leading = {0};
  struct cuvil_space space;
  int64_t along[CUVIL_VIEW_MAX];
  cuvil_view_of(&fuse->fused->tensors[tensor], &view);
  strides[1] = strides[2] = 0;
  for (int i = 0; i < view.count; ++i) {
    const struct cuvil_factor *f = &view.f[i];
    int axis = f->axis + shift - batch;
    if (axis < 0) {
      leading.f[leading.count++] = *f;
      continue;
    }
    if (f->inner != 1 || f->extent != v->dims[f->axis] || f->stride == 0)
      return false;
    strides[1 + axis] = f->stride;
  }
  cuvil_space_begin(&space, batch, out->dims, NULL);
  for (int i = 0; i < space.count; ++i)
    space.f[i].dim = 0;
  if (!cuvil_space_refine(&space, &leading, shift, v->rank - 2, v->dims) ||
      !cuvil_space_strides(&space, &leading, shift, v->rank - 2, v->dims,
                           along))
    return false;
  strides[0] = cuvil_space_dim_stride(&space, 0, along);
  int64_t rows = v->dims[v->rank - 2], columns = v->dims[v->rank - 1];
  if (strides[2] == 0) strides[2] = 1;
  if (strides[1] == 0) strides[1] = strides[2] * columns;
  (void)rows;
  return strides[0] >= 0 && (strides[1] == 1 || strides[2] == 1);
}

/* The operand copied with its leading axes as many as the result's. */
static enum cuvil_status expand_batch(struct cuvil_fuse *fuse, int value,
                                      const struct cuvil_value *out,
                                      int *out_tensor) {
  const struct cuvil_value *v = value_at(fuse, value);
  int64_t dims[CUVIL_GRAPH_MAX_RANK], strides[2][CUVIL_VIEW_MAX];
  struct cuvil_task task = {.conversion = true};
  struct cuvil_space space;
  struct cuvil_view to, from;
  int source;
  memcpy(dims, out->dims, sizeof(dims));
  for (int i = 1; i <= 2; ++i)
    dims[out->rank - i] = v->dims[v->rank - i];
  CUVIL_TRY(cuvil_fuse_want(fuse, value, CUVIL_LAYOUT_PLAIN, false, &source));
  CUVIL_TRY(cuvil_fuse_scratch(fuse, v->name, cuvil_fuse_dtype(fuse, value),
                               out->rank, dims, out_tensor));
  cuvil_space_begin(&space, out->rank, dims, NULL);
  cuvil_view_of(&fuse->fused->tensors[*out_tensor], &to);
  cuvil_view_of(&fuse->fused->tensors[source], &from);
  CUVIL_CHECK(
      cuvil_space_refine(&space, &to, 0, out->rank, dims) &&
      cuvil_space_refine(&space, &from, out->rank - v->rank, v->rank,
                         v->dims) &&
      cuvil_space_strides(&space, &to, 0, out->rank, dims, strides[0]) &&
      cuvil_space_strides(&space, &from, out->rank - v->rank, v->rank, v->dims,
                          strides[1]));
  CUVIL_TRY(cuvil_fuse_copy_problem(&space, &fuse->fused->tensors[*out_tensor],
                                    &fuse->fused->tensors[source], strides,
                                    &task.problem));
  CUVIL_TRY(cuvil_problem_finish(&task.problem));
  task.tensors[0] = *out_tensor;
  task.tensors[1] = source;
  task.label = v->name;
  ++fuse->fused->conversion_count;
  return cuvil_fuse_add_task(fuse, &task);
}

static enum cuvil_status put_matrices(struct cuvil_express *ex,
                                      const char *name, int value, int rows,
                                      int columns) {
  struct cuvil_fuse *fuse = ex->fuse;
  const struct cuvil_value *out = value_at(fuse, ex->shape);
  const struct cuvil_value *v = value_at(fuse, value);
  int64_t strides[3];
  int tensor = cuvil_fuse_peek(fuse, value, CUVIL_LAYOUT_PLAIN);
  if (tensor < 0 || !batch_strides(fuse, tensor, value, out, strides)) {
    CUVIL_TRY(cuvil_fuse_want(fuse, value, CUVIL_LAYOUT_PLAIN, false, &tensor));
    if (!batch_strides(fuse, tensor, value, out, strides)) {
      CUVIL_TRY(expand_batch(fuse, value, out, &tensor));
      strides[2] = 1;
      strides[1] = v->dims[v->rank - 1];
      strides[0] = v->dims[v->rank - 2] * strides[1];
    }
  }
  int operand = cuvil_task_put(ex, name, CUVIL_ROLE_INPUT, tensor, 0, NULL);
  put_matrix(ex, operand, rows, strides[1], columns, strides[2]);
  put_batch(ex, operand, strides[0]);
  return CUVIL_OK;
}

static enum cuvil_status many_matrices(struct cuvil_express *ex,
                                       const struct cuvil_group *group,
                                       int batch) {
  struct cuvil_fuse *fuse = ex->fuse;
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_problem *problem = &ex->task->problem;
  int av = cuvil_fuse_input(fuse, node, 0);
  int bv = cuvil_fuse_input(fuse, node, 1);
  const struct cuvil_value *a = value_at(fuse, av);
  const struct cuvil_value *out = value_at(fuse, group->result);
  enum { M = CUVIL_DIM_M, N = CUVIL_DIM_N, K = CUVIL_DIM_K };
  int axes[CUVIL_GRAPH_MAX_RANK], c;
  int64_t count = 1;
  for (int i = 0; i < batch; ++i) {
    axes[i] = i;
    count *= out->dims[i];
  }
  CUVIL_CHECK(cuvil_problem_add_dim(problem, "batch", count) ==
              CUVIL_DIM_BATCH);
  problem->dims[M].extent = out->dims[batch];
  problem->dims[N].extent = out->dims[batch + 1];
  problem->dims[K].extent = a->dims[a->rank - 1];
  cuvil_task_axes(ex, CUVIL_DIM_BATCH, batch, axes);
  cuvil_task_axes(ex, M, 1, (int[]){batch});
  cuvil_task_axes(ex, N, 1, (int[]){batch + 1});
  CUVIL_TRY(put_matrices(ex, "a", av, M, K));
  CUVIL_TRY(put_matrices(ex, "b", bv, K, N));
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, CUVIL_LAYOUT_PLAIN, &c));
  cuvil_task_put(ex, "c", CUVIL_ROLE_OUTPUT, c, 3,
                 (int[]){CUVIL_DIM_BATCH, M, N});
  return CUVIL_OK;
}

enum cuvil_status cuvil_fuse_gemm(struct cuvil_fuse *fuse,
                                  const struct cuvil_group *group) {
  struct cuvil_task task;
  struct cuvil_express ex;
  int batch = cuvil_fuse_batch_axes(fuse, group->anchor);
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_GEMM, &task, &ex));
  ex.layout = CUVIL_LAYOUT_PLAIN;
  ex.contraction = true;
  if (batch)
    CUVIL_TRY(many_matrices(&ex, group, batch));
  else
    CUVIL_TRY(one_matrix(&ex, group));
  task.problem.tf32 = fuse->fused->options.precision == CUVIL_PRECISION_TF32;
  CUVIL_TRY(gemm_bias(&ex, group));
  return cuvil_task_end(&ex, group);
}

/* ---- norm */

int cuvil_fuse_norm_axis(const struct cuvil_fuse *fuse, int node) {
  const struct cuvil_node *n = &fuse->graph->nodes[node];
  const struct cuvil_value *x = value_at(fuse, cuvil_fuse_input(fuse, n, 0));
  bool softmax = strstr(n->op, "Softmax") != NULL;
  int64_t axis = cuvil_node_int(n, "axis", softmax && n->opset < 13 ? 1 : -1);
  return (int)(axis < 0 ? axis + x->rank : axis);
}

static enum cuvil_norm_op norm_op(const char *op) {
  if (strcmp(op, "Softmax") == 0) return CUVIL_NORM_SOFTMAX;
  if (strcmp(op, "LogSoftmax") == 0) return CUVIL_NORM_LOG_SOFTMAX;
  return strcmp(op, "RMSNormalization") == 0 ? CUVIL_NORM_RMS
                                             : CUVIL_NORM_LAYER;
}

enum cuvil_status cuvil_fuse_norm(struct cuvil_fuse *fuse,
                                  const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  struct rows rows;
  int x = cuvil_fuse_input(fuse, node, 0), y, axes[CUVIL_GRAPH_MAX_RANK];
  int split = cuvil_fuse_norm_axis(fuse, group->anchor);
  const struct cuvil_value *out = value_at(fuse, group->result);
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_NORM, &task, &ex));
  ex.layout = CUVIL_LAYOUT_PLAIN;
  ex.contraction = true;
  task.problem.norm_op = norm_op(node->op);
  task.problem.eps = cuvil_node_float(node, "epsilon", 1e-5);
  int64_t columns = 1;
  for (int i = split; i < out->rank; ++i) {
    columns *= out->dims[i];
    axes[i - split] = i;
  }
  task.problem.dims[CUVIL_NORM_DIM_M].extent =
      cuvil_value_elements(out) / columns;
  task.problem.dims[CUVIL_NORM_DIM_N].extent = columns;
  CUVIL_TRY(take_rows(fuse, x, split, out, split,
                      !cuvil_fuse_is_output(fuse, group->result), true, &rows));
  int operand =
      cuvil_task_put(&ex, "x", CUVIL_ROLE_INPUT, rows.tensor, 0, NULL);
  put_matrix(&ex, operand, CUVIL_NORM_DIM_M, rows.row_stride, CUVIL_NORM_DIM_N,
             rows.column_stride);
  row_axes(&ex, CUVIL_NORM_DIM_M, &rows);
  cuvil_task_axes(&ex, CUVIL_NORM_DIM_N, out->rank - split, axes);
  CUVIL_TRY(cuvil_fuse_define_space(fuse, group->result, &ex.space, &y));
  cuvil_task_put(&ex, "y", CUVIL_ROLE_OUTPUT, y, 2,
                 (int[]){CUVIL_NORM_DIM_M, CUVIL_NORM_DIM_N});
  bool affine = strstr(node->op, "Norm") != NULL;
  CUVIL_TRY(
      cuvil_express_affine(&ex, cuvil_fuse_output(fuse, group->anchor),
                           affine ? cuvil_fuse_input(fuse, node, 1) : -1,
                           affine ? cuvil_fuse_input(fuse, node, 2) : -1));
  return cuvil_task_end(&ex, group);
}

/* ---- gather */

enum cuvil_status cuvil_fuse_gather(struct cuvil_fuse *fuse,
                                    const struct cuvil_group *group) {
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  struct cuvil_task task;
  struct cuvil_express ex;
  int table = cuvil_fuse_input(fuse, node, 0);
  int index = cuvil_fuse_input(fuse, node, 1);
  const struct cuvil_value *t = value_at(fuse, table);
  const struct cuvil_value *i = value_at(fuse, index);
  const struct cuvil_value *out = value_at(fuse, group->result);
  int axes[CUVIL_GRAPH_MAX_RANK], source, ids, y;
  enum { V = CUVIL_GATHER_DIM_V, M = CUVIL_GATHER_DIM_M };
  enum { N = CUVIL_GATHER_DIM_N };
  CUVIL_TRY(cuvil_task_begin(fuse, group, CUVIL_KIND_GATHER, &task, &ex));
  ex.layout = CUVIL_LAYOUT_PLAIN;
  ex.contraction = true;
  for (int a = 0; a < out->rank; ++a)
    axes[a] = a;
  task.problem.dims[V].extent = t->dims[0];
  task.problem.dims[M].extent = cuvil_value_elements(i);
  task.problem.dims[N].extent = cuvil_value_elements(t) / t->dims[0];
  CUVIL_TRY(cuvil_fuse_want(fuse, table, CUVIL_LAYOUT_PLAIN, false, &source));
  CUVIL_TRY(cuvil_fuse_want(fuse, index, CUVIL_LAYOUT_PLAIN, false, &ids));
  CUVIL_TRY(cuvil_fuse_define(fuse, group->result, CUVIL_LAYOUT_PLAIN, &y));
  cuvil_task_put(&ex, "table", CUVIL_ROLE_INPUT, source, 2, (int[]){V, N});
  cuvil_task_put(&ex, "index", CUVIL_ROLE_INPUT, ids, 1, (int[]){M});
  cuvil_task_put(&ex, "y", CUVIL_ROLE_OUTPUT, y, 2, (int[]){M, N});
  cuvil_task_axes(&ex, M, i->rank, axes);
  cuvil_task_axes(&ex, N, out->rank - i->rank, axes + i->rank);
  CUVIL_TRY(cuvil_express_bias(&ex, cuvil_fuse_output(fuse, group->anchor), -1,
                               0, 1, 1));
  return cuvil_task_end(&ex, group);
}
