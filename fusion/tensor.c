/* tensor.c - which tensors exist, and the conversions between their forms.
 *
 * A graph value may be held by several tensors: plain (its own axis order) or
 * channels last, in the file's type or in the inner one, with padded channels
 * where a first convolution wants them.  Each form is made once, when the
 * first task asks for it, by a conversion task put before that task.  What a
 * task writes goes straight into a graph output when it can: plain layout, and
 * nobody else needs it in another type.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fusion/fuse.h"

static const int nhwc_perm[4] = {0, 2, 3, 1};

enum cuvil_dtype cuvil_fuse_dtype(const struct cuvil_fuse *fuse, int value) {
  enum cuvil_dtype dtype = fuse->graph->values[value].dtype;
  /* Indices and masks stay what they are. */
  if (dtype != CUVIL_F32 && dtype != CUVIL_F16 && dtype != CUVIL_BF16)
    return dtype;
  switch (fuse->fused->options.precision) {
    case CUVIL_PRECISION_FP16:
      return CUVIL_F16;
    case CUVIL_PRECISION_BF16:
      return CUVIL_BF16;
    case CUVIL_PRECISION_FP32:
    case CUVIL_PRECISION_TF32:
      return CUVIL_F32;
    case CUVIL_PRECISION_MODEL:
      break;
  }
  return dtype;
}

bool cuvil_fuse_trivial(const struct cuvil_value *value) {
  return value->rank != 4 || value->dims[1] == 1 ||
         value->dims[2] * value->dims[3] == 1;
}

double cuvil_fuse_clamp(struct cuvil_fuse *fuse, int value, double number) {
  enum cuvil_dtype dtype = cuvil_fuse_dtype(fuse, value);
  if (!cuvil_dtype_is_float(dtype)) return number;
  double most = cuvil_dtype_max(dtype);
  if (!isfinite(number) || fabs(number) <= most) return number;
  if (!fuse->warned)
    cuvil_log_warning(
        "constant `%s` (%.3g) is more than %s holds: %.6g is used, and so for "
        "others like it",
        fuse->graph->values[value].name, number, cuvil_dtype_name(dtype),
        number < 0 ? -most : most);
  fuse->warned = true;
  return number < 0 ? -most : most;
}

/* A constant tensor with such a number: its bytes are made later (fused.c),
 * where there is nobody to warn. */
static void warn_overflow(struct cuvil_fuse *fuse, int value,
                          enum cuvil_dtype dtype) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  if (fuse->warned || dtype != CUVIL_F16 || v->dtype == CUVIL_F16 ||
      !cuvil_dtype_is_float(v->dtype))
    return;
  int64_t count = cuvil_value_elements(v);
  double most = cuvil_dtype_max(dtype);
  for (int64_t i = 0; i < count && !fuse->warned; ++i) {
    double number = v->dtype == CUVIL_F32
                        ? (double)((const float *)v->data)[i]
                        : cuvil_load(v->dtype, v->data, (size_t)i);
    if (fabs(number) > most) (void)cuvil_fuse_clamp(fuse, value, number);
  }
}

static bool tensor_is(const struct cuvil_fuse *fuse,
                      const struct cuvil_tensor *tensor,
                      enum cuvil_layout layout) {
  const struct cuvil_value *value = &fuse->graph->values[tensor->value];
  struct cuvil_view view;
  if (tensor->padded) return layout == CUVIL_LAYOUT_NHWC;
  if (layout == CUVIL_LAYOUT_NHWC && value->rank != 4) return false;
  cuvil_view_of(tensor, &view);
  return cuvil_view_is_packed(&view, value->rank,
                              layout == CUVIL_LAYOUT_NHWC ? nhwc_perm : NULL);
}

static int tensor_root(const struct cuvil_fuse *fuse, int tensor) {
  while (fuse->fused->tensors[tensor].alias >= 0)
    tensor = fuse->fused->tensors[tensor].alias;
  return tensor;
}

/* Appends a tensor and makes it a form of its value. */
static enum cuvil_status add_tensor(struct cuvil_fuse *fuse,
                                    const struct cuvil_tensor *tensor,
                                    int *out) {
  struct cuvil_fused *fused = fuse->fused;
  if (fused->tensor_count == fuse->tensor_capacity) {
    int capacity = fuse->tensor_capacity ? fuse->tensor_capacity * 2 : 64;
    struct cuvil_tensor *tensors =
        cuvil_arena_array(&fused->arena, (size_t)capacity, sizeof(*tensors));
    int *next =
        cuvil_arena_array(&fuse->scratch, (size_t)capacity, sizeof(*next));
    if (!tensors || !next)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: tensors");
    size_t count = (size_t)fused->tensor_count;
    if (count) {
      memcpy(tensors, fused->tensors, count * sizeof(*tensors));
      memcpy(next, fuse->next_form, count * sizeof(*next));
    }
    fused->tensors = tensors;
    fuse->next_form = next;
    fuse->tensor_capacity = capacity;
  }
  int index = fused->tensor_count++;
  struct cuvil_tensor *added = &fused->tensors[index];
  *added = *tensor;
  const char *name =
      tensor->name ? tensor->name : fuse->graph->values[tensor->value].name;
  added->name = cuvil_arena_strdup(&fused->arena, name ? name : "");
  if (!added->name) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: names");
  if (added->alias < 0) {
    int64_t elements = 1;
    for (int i = added->rank - 1; i >= 0; --i) {
      added->strides[i] = elements;
      elements *= added->dims[i];
      if (added->inner[i] == 0) added->inner[i] = 1;
    }
    added->bytes = (uint64_t)elements * cuvil_dtype_size(added->dtype);
  }
  fuse->next_form[index] = -1;
  if (tensor->value >= 0) {
    fuse->next_form[index] = fuse->first_form[tensor->value];
    fuse->first_form[tensor->value] = index;
  }
  *out = index;
  return CUVIL_OK;
}

enum cuvil_status cuvil_fuse_scratch(struct cuvil_fuse *fuse, const char *name,
                                     enum cuvil_dtype dtype, int rank,
                                     const int64_t *dims, int *out_tensor) {
  struct cuvil_tensor tensor = {.kind = CUVIL_TENSOR_LOCAL,
                                .io = -1,
                                .value = -1,
                                .dtype = dtype,
                                .rank = rank,
                                .alias = -1,
                                .name = name};
  for (int i = 0; i < rank; ++i) {
    tensor.dims[i] = dims[i];
    tensor.perm[i] = i;
  }
  return add_tensor(fuse, &tensor, out_tensor);
}

/* A tensor of the value in a layout, unpadded. */
static struct cuvil_tensor shape_tensor(const struct cuvil_fuse *fuse,
                                        int value, enum cuvil_layout layout,
                                        enum cuvil_dtype dtype) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  struct cuvil_tensor tensor = {.kind = CUVIL_TENSOR_LOCAL,
                                .io = -1,
                                .value = value,
                                .dtype = dtype,
                                .rank = v->rank,
                                .alias = -1};
  for (int i = 0; i < v->rank; ++i) {
    tensor.perm[i] = layout == CUVIL_LAYOUT_NHWC ? nhwc_perm[i] : i;
    tensor.dims[i] = v->dims[tensor.perm[i]];
  }
  return tensor;
}

enum cuvil_status cuvil_fuse_add_task(struct cuvil_fuse *fuse,
                                      const struct cuvil_task *task) {
  struct cuvil_fused *fused = fuse->fused;
  if (fused->task_count == fuse->task_capacity) {
    int capacity = fuse->task_capacity ? fuse->task_capacity * 2 : 32;
    struct cuvil_task *tasks =
        cuvil_arena_array(&fused->arena, (size_t)capacity, sizeof(*tasks));
    if (!tasks) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: tasks");
    if (fused->task_count)
      memcpy(tasks, fused->tasks, (size_t)fused->task_count * sizeof(*tasks));
    fused->tasks = tasks;
    fuse->task_capacity = capacity;
  }
  fused->tasks[fused->task_count++] = *task;
  return CUVIL_OK;
}

/* ---- conversions */

/* y in `to`, x in `from`: a copy that permutes, pads and changes type. */
static void conversion_problem(const struct cuvil_tensor *to,
                               const struct cuvil_tensor *from,
                               struct cuvil_problem *problem) {
  static const char *const names[4] = {"n", "c", "h", "w"};
  int y_dims[CUVIL_MAX_RANK], x_dims[CUVIL_MAX_RANK], rank = to->rank;
  bool permutes = memcmp(to->perm, from->perm, sizeof(int) * (size_t)rank) != 0;
  cuvil_problem_begin(CUVIL_KIND_POINTWISE, problem);
  if (!permutes) {
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i)
      elements *= to->dims[i];
    rank = 1;
    y_dims[0] = x_dims[0] = cuvil_problem_add_dim(problem, "d0", elements);
  } else {
    for (int axis = 0; axis < rank; ++axis)
      for (int i = 0; i < rank; ++i)
        if (to->perm[i] == axis)
          cuvil_problem_add_dim(problem, names[axis], to->dims[i]);
    for (int i = 0; i < rank; ++i) {
      y_dims[i] = to->perm[i];
      x_dims[i] = from->perm[i];
    }
  }
  problem->output = cuvil_build_operand(problem, "y", CUVIL_ROLE_OUTPUT,
                                        to->dtype, false, rank, y_dims);
  int x = cuvil_build_operand(problem, "x", CUVIL_ROLE_SIDE, from->dtype,
                              from->kind == CUVIL_TENSOR_WEIGHT, rank, x_dims);
  for (int i = 0; permutes && i < rank; ++i)
    if (from->dims[i] != problem->dims[x_dims[i]].extent)
      problem->operands[x].limit[i] = from->dims[i];
  struct cuvil_statement *statement = &problem->epilogue.statements[0];
  snprintf(statement->name, sizeof(statement->name), "out");
  statement->op = CUVIL_OP_COPY;
  statement->args[0] =
      (struct cuvil_term){.kind = CUVIL_TERM_OPERAND, .index = x};
  statement->output = problem->output;
  problem->epilogue.count = 1;
}

/* Dimensions of the value in its own order, all there, in both. */
static bool is_plain_pair(const struct cuvil_tensor *to,
                          const struct cuvil_tensor *from) {
  if (to->alias >= 0 || from->alias >= 0 || to->rank != from->rank ||
      to->rank > CUVIL_MAX_RANK)
    return false;
  bool permutes =
      memcmp(to->perm, from->perm, sizeof(int) * (size_t)to->rank) != 0;
  for (int i = 0; i < to->rank; ++i)
    if (to->inner[i] != 1 || from->inner[i] != 1) return false;
  return permutes ? to->rank == 4 : !to->padded && !from->padded;
}

enum cuvil_status cuvil_fuse_copy_problem(struct cuvil_space *space,
                                          const struct cuvil_tensor *to,
                                          const struct cuvil_tensor *from,
                                          int64_t strides[2][CUVIL_VIEW_MAX],
                                          struct cuvil_problem *problem) {
  int order[CUVIL_VIEW_MAX];
  cuvil_problem_begin(CUVIL_KIND_POINTWISE, problem);
  int rank = cuvil_space_merge(space, 2, strides);
  if (rank > CUVIL_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_INTERNAL,
                      "fusion: a copy of `%s` needs %d dimensions", to->name,
                      rank);
  for (int d = 0; d < rank || d == 0; ++d) {
    char name[8];
    int64_t extent = 1;
    for (int i = 0; i < space->count; ++i)
      if (space->f[i].dim == d) extent *= space->f[i].extent;
    snprintf(name, sizeof(name), "d%d", d);
    order[d] = cuvil_problem_add_dim(problem, name, extent);
  }
  if (rank == 0) rank = 1;
  int y = cuvil_build_operand(problem, "y", CUVIL_ROLE_OUTPUT, to->dtype, false,
                              0, NULL);
  int x = cuvil_build_operand(problem, "x", CUVIL_ROLE_SIDE, from->dtype,
                              from->kind == CUVIL_TENSOR_WEIGHT, 0, NULL);
  problem->output = y;
  CUVIL_CHECK(
      cuvil_space_operand(space, problem, y, rank, order, strides[0], true));
  CUVIL_CHECK(
      cuvil_space_operand(space, problem, x, rank, order, strides[1], true));
  struct cuvil_term term = {.kind = CUVIL_TERM_OPERAND, .index = x};
  cuvil_problem_add_statement(problem, "out", CUVIL_OP_COPY, &term, -1);
  return CUVIL_OK;
}

/* The same for any two views of the value. */
static enum cuvil_status view_conversion(struct cuvil_fuse *fuse,
                                         const struct cuvil_tensor *to,
                                         const struct cuvil_tensor *from,
                                         struct cuvil_problem *problem) {
  const struct cuvil_value *v = &fuse->graph->values[to->value];
  struct cuvil_space space;
  struct cuvil_view y, x;
  int64_t strides[2][CUVIL_VIEW_MAX];
  cuvil_view_of(to, &y);
  cuvil_view_of(from, &x);
  cuvil_space_begin(&space, v->rank, v->dims, NULL);
  if (!cuvil_space_refine(&space, &y, 0, v->rank, v->dims) ||
      !cuvil_space_refine(&space, &x, 0, v->rank, v->dims) ||
      !cuvil_space_strides(&space, &y, 0, v->rank, v->dims, strides[0]))
    return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` cannot be copied",
                      v->name);
  cuvil_space_order(&space, strides[0]);
  CUVIL_CHECK(
      cuvil_space_strides(&space, &y, 0, v->rank, v->dims, strides[0]) &&
      cuvil_space_strides(&space, &x, 0, v->rank, v->dims, strides[1]));
  return cuvil_fuse_copy_problem(&space, to, from, strides, problem);
}

static enum cuvil_status convert(struct cuvil_fuse *fuse, int from, int to) {
  struct cuvil_fused *fused = fuse->fused;
  struct cuvil_task task = {.conversion = true};
  if (is_plain_pair(&fused->tensors[to], &fused->tensors[from]) ||
      fused->tensors[to].padded)
    conversion_problem(&fused->tensors[to], &fused->tensors[from],
                       &task.problem);
  else
    CUVIL_TRY(view_conversion(fuse, &fused->tensors[to], &fused->tensors[from],
                              &task.problem));
  CUVIL_TRY(cuvil_problem_finish(&task.problem));
  task.tensors[0] = to;
  task.tensors[1] = from;
  char label[512];
  snprintf(label, sizeof(label), "convert(%s)", fused->tensors[to].name);
  task.label = cuvil_arena_strdup(&fused->arena, label);
  if (!task.label) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: labels");
  ++fused->conversion_count;
  return cuvil_fuse_add_task(fuse, &task);
}

/* The unpadded form to convert from: the asked type first. */
static int best_source(const struct cuvil_fuse *fuse, int value,
                       enum cuvil_dtype dtype) {
  int best = -1;
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *tensor = &fuse->fused->tensors[t];
    if (tensor->padded) continue;
    if (best < 0 || tensor->dtype == dtype) best = t;
  }
  return best;
}

static int find_form(const struct cuvil_fuse *fuse, int value,
                     enum cuvil_layout layout, bool pad) {
  enum cuvil_dtype dtype = cuvil_fuse_dtype(fuse, value);
  int found = -1;
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *tensor = &fuse->fused->tensors[t];
    if (tensor->dtype == dtype && tensor_is(fuse, tensor, layout) &&
        (pad || !tensor->padded))
      found = t;
  }
  return found;
}

/* A constant as a tensor in its own order. */
static enum cuvil_status plain_weight(struct cuvil_fuse *fuse, int value,
                                      int *out_tensor) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  int perm[CUVIL_GRAPH_MAX_RANK];
  for (int i = 0; i < v->rank; ++i)
    perm[i] = i;
  return cuvil_fuse_weight(fuse, value, cuvil_fuse_dtype(fuse, value), v->rank,
                           v->dims, perm, NULL, out_tensor);
}

enum cuvil_status cuvil_fuse_want(struct cuvil_fuse *fuse, int value,
                                  enum cuvil_layout layout, bool pad,
                                  int *out_tensor) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  enum cuvil_dtype dtype = cuvil_fuse_dtype(fuse, value);
  if (cuvil_fuse_trivial(v)) layout = CUVIL_LAYOUT_PLAIN;
  pad = pad && layout == CUVIL_LAYOUT_NHWC;
  if (v->data && layout == CUVIL_LAYOUT_PLAIN)
    return plain_weight(fuse, value, out_tensor);
  *out_tensor = find_form(fuse, value, layout, pad);
  if (*out_tensor >= 0) return CUVIL_OK;
  int source = -1;
  if (v->data)
    CUVIL_TRY(plain_weight(fuse, value, &source));
  else
    source = best_source(fuse, value, dtype);
  if (source < 0)
    return CUVIL_FAIL(CU_ERR_INTERNAL,
                      "fusion: tensor `%s` is read before it "
                      "is written",
                      v->name);
  struct cuvil_tensor tensor = shape_tensor(fuse, value, layout, dtype);
  if (pad && tensor.dims[3] > 1 && tensor.dims[3] % 4) {
    tensor.dims[3] = (tensor.dims[3] + 3) / 4 * 4;
    tensor.padded = true;
  }
  CUVIL_TRY(add_tensor(fuse, &tensor, out_tensor));
  return convert(fuse, source, *out_tensor);
}

int cuvil_fuse_peek(const struct cuvil_fuse *fuse, int value,
                    enum cuvil_layout layout) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  if (cuvil_fuse_trivial(v)) layout = CUVIL_LAYOUT_PLAIN;
  if (v->data) return -1;
  int found = find_form(fuse, value, layout, false);
  enum cuvil_dtype dtype = cuvil_fuse_dtype(fuse, value);
  for (int t = fuse->first_form[value]; found < 0 && t >= 0;
       t = fuse->next_form[t]) {
    const struct cuvil_tensor *tensor = &fuse->fused->tensors[t];
    if (tensor->dtype == dtype && !tensor->padded &&
        !tensor_is(fuse, tensor, CUVIL_LAYOUT_PLAIN) &&
        !tensor_is(fuse, tensor, CUVIL_LAYOUT_NHWC))
      found = t;
  }
  return found;
}

enum cuvil_status cuvil_fuse_read(struct cuvil_fuse *fuse, int value,
                                  enum cuvil_layout layout, int *out_tensor) {
  *out_tensor = cuvil_fuse_peek(fuse, value, layout);
  if (*out_tensor >= 0) return CUVIL_OK;
  return cuvil_fuse_want(fuse, value, layout, false, out_tensor);
}

/* A packed tensor of the value whose storage order is the space's; factors
 * that the value has not, by the strides of any of its views, are left out. */
static void space_tensor(const struct cuvil_fuse *fuse, int value, int shift,
                         const struct cuvil_space *space,
                         struct cuvil_tensor *tensor) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  *tensor = shape_tensor(fuse, value, CUVIL_LAYOUT_PLAIN,
                         cuvil_fuse_dtype(fuse, value));
  tensor->rank = 0;
  for (int i = 0; i < space->count; ++i) {
    const struct cuvil_factor *f = &space->f[i];
    int axis = f->axis - shift;
    if (axis < 0 || axis >= v->rank || v->dims[axis] == 1) continue;
    tensor->dims[tensor->rank] = f->extent;
    tensor->perm[tensor->rank] = axis;
    tensor->inner[tensor->rank++] = f->inner;
  }
}

enum cuvil_status cuvil_fuse_want_space(struct cuvil_fuse *fuse, int value,
                                        int shift,
                                        const struct cuvil_space *space,
                                        int *out_tensor) {
  struct cuvil_tensor tensor;
  if (space->count > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "fusion: `%s` has too many dimensions",
                      fuse->graph->values[value].name);
  space_tensor(fuse, value, shift, space, &tensor);
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *have = &fuse->fused->tensors[t];
    size_t rank = (size_t)tensor.rank;
    if (have->dtype == tensor.dtype && have->rank == tensor.rank &&
        have->alias < 0 && !have->padded &&
        memcmp(have->dims, tensor.dims, rank * sizeof(int64_t)) == 0 &&
        memcmp(have->perm, tensor.perm, rank * sizeof(int)) == 0 &&
        memcmp(have->inner, tensor.inner, rank * sizeof(int64_t)) == 0) {
      *out_tensor = t;
      return CUVIL_OK;
    }
  }
  int source = best_source(fuse, value, tensor.dtype);
  CUVIL_CHECK(source >= 0);
  CUVIL_TRY(add_tensor(fuse, &tensor, out_tensor));
  return convert(fuse, source, *out_tensor);
}

enum cuvil_status cuvil_fuse_weight(struct cuvil_fuse *fuse, int value,
                                    enum cuvil_dtype dtype, int rank,
                                    const int64_t *dims, const int *perm,
                                    const int64_t *inner, int *out_tensor) {
  struct cuvil_tensor tensor = {.kind = CUVIL_TENSOR_WEIGHT,
                                .io = -1,
                                .value = value,
                                .dtype = dtype,
                                .rank = rank,
                                .alias = -1};
  for (int i = 0; i < rank; ++i) {
    tensor.dims[i] = dims[i];
    tensor.perm[i] = perm[i];
    tensor.inner[i] = inner ? inner[i] : 1;
  }
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *have = &fuse->fused->tensors[t];
    if (have->dtype == dtype && have->rank == rank &&
        memcmp(have->dims, tensor.dims, sizeof(tensor.dims)) == 0 &&
        memcmp(have->perm, tensor.perm, sizeof(tensor.perm)) == 0 &&
        memcmp(have->inner, tensor.inner, sizeof(tensor.inner)) == 0) {
      *out_tensor = t;
      return CUVIL_OK;
    }
  }
  warn_overflow(fuse, value, dtype);
  return add_tensor(fuse, &tensor, out_tensor);
}

/* The graph output that a task may write when it computes `value`: -1 none.
 * Looks through reshapes, which are the same bytes. */
static int output_of(const struct cuvil_fuse *fuse, int value) {
  const struct cuvil_graph *graph = fuse->graph;
  int end = value;
  while (fuse->output_uses[end] == 0) {
    int start = fuse->user_start[end];
    if (fuse->user_start[end + 1] - start != 1 ||
        fuse->classes[fuse->user_nodes[start]] != CUVIL_CLASS_ALIAS)
      return -1;
    end = cuvil_fuse_output(fuse, fuse->user_nodes[start]);
  }
  for (int i = 0; i < graph->output_count; ++i) {
    if (fuse->canon[graph->outputs[i]] != end) continue;
    bool alone = fuse->output_uses[end] == 1 &&
                 fuse->user_start[end] == fuse->user_start[end + 1];
    enum cuvil_dtype declared = graph->values[graph->outputs[i]].dtype;
    return alone || declared == cuvil_fuse_dtype(fuse, value) ? i : -1;
  }
  return -1;
}

enum cuvil_status cuvil_fuse_define(struct cuvil_fuse *fuse, int value,
                                    enum cuvil_layout layout, int *out_tensor) {
  if (cuvil_fuse_trivial(&fuse->graph->values[value]))
    layout = CUVIL_LAYOUT_PLAIN;
  struct cuvil_tensor tensor =
      shape_tensor(fuse, value, layout, cuvil_fuse_dtype(fuse, value));
  int io = layout == CUVIL_LAYOUT_PLAIN ? output_of(fuse, value) : -1;
  if (io >= 0) {
    tensor.kind = CUVIL_TENSOR_OUTPUT;
    tensor.io = io;
    tensor.dtype = fuse->graph->values[fuse->graph->outputs[io]].dtype;
  }
  return add_tensor(fuse, &tensor, out_tensor);
}

bool cuvil_fuse_is_output(const struct cuvil_fuse *fuse, int value) {
  return output_of(fuse, value) >= 0;
}

enum cuvil_status cuvil_fuse_define_space(struct cuvil_fuse *fuse, int value,
                                          const struct cuvil_space *space,
                                          int *out_tensor) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  struct cuvil_tensor tensor;
  struct cuvil_view view;
  if (space->count > CUVIL_GRAPH_MAX_RANK)
    return cuvil_fuse_define(fuse, value, CUVIL_LAYOUT_PLAIN, out_tensor);
  space_tensor(fuse, value, 0, space, &tensor);
  int64_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= tensor.dims[i];
  }
  cuvil_view_of(&tensor, &view);
  if (cuvil_view_is_packed(&view, v->rank, NULL))
    return cuvil_fuse_define(fuse, value, CUVIL_LAYOUT_PLAIN, out_tensor);
  if (v->rank == 4 && cuvil_view_is_packed(&view, v->rank, nhwc_perm))
    return cuvil_fuse_define(fuse, value, CUVIL_LAYOUT_NHWC, out_tensor);
  return add_tensor(fuse, &tensor, out_tensor);
}

enum cuvil_status cuvil_fuse_add_view(struct cuvil_fuse *fuse, int value,
                                      int source, const struct cuvil_view *view,
                                      bool *out_added) {
  const struct cuvil_tensor *from = &fuse->fused->tensors[source];
  size_t size = cuvil_dtype_size(from->dtype);
  struct cuvil_tensor tensor = {.kind = CUVIL_TENSOR_LOCAL,
                                .io = -1,
                                .value = value,
                                .dtype = from->dtype,
                                .alias = tensor_root(fuse, source)};
  *out_added = false;
  if (view->count > CUVIL_GRAPH_MAX_RANK ||
      (uint64_t)view->offset * size % CUVIL_VIEW_ALIGNMENT)
    return CUVIL_OK;
  const struct cuvil_value *v = &fuse->graph->values[value];
  if (view->offset == 0 && cuvil_view_is_packed(view, v->rank, NULL)) {
    enum cuvil_dtype dtype = tensor.dtype;
    int alias = tensor.alias;
    tensor = shape_tensor(fuse, value, CUVIL_LAYOUT_PLAIN, dtype);
    tensor.alias = alias;
    int64_t stride = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      tensor.strides[i] = stride;
      tensor.inner[i] = 1;
      stride *= tensor.dims[i];
    }
  } else {
    cuvil_view_store(view, &tensor);
  }
  int made;
  *out_added = true;
  return add_tensor(fuse, &tensor, &made);
}

bool cuvil_fuse_is_nhwc(const struct cuvil_fuse *fuse, int value) {
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *tensor = &fuse->fused->tensors[t];
    if (!tensor->padded && tensor_is(fuse, tensor, CUVIL_LAYOUT_NHWC) &&
        !tensor_is(fuse, tensor, CUVIL_LAYOUT_PLAIN))
      return true;
  }
  return false;
}

/* ---- the graph's ends */

enum cuvil_status cuvil_fuse_begin_io(struct cuvil_fuse *fuse) {
  const struct cuvil_graph *graph = fuse->graph;
  fuse->first_form = cuvil_arena_array(
      &fuse->scratch, (size_t)graph->value_count + 1, sizeof(int));
  if (!fuse->first_form)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: forms");
  for (int v = 0; v < graph->value_count; ++v)
    fuse->first_form[v] = -1;
  for (int i = 0; i < graph->input_count; ++i) {
    int value = graph->inputs[i], made;
    struct cuvil_tensor tensor = shape_tensor(fuse, value, CUVIL_LAYOUT_PLAIN,
                                              graph->values[value].dtype);
    tensor.kind = CUVIL_TENSOR_INPUT;
    tensor.io = i;
    CUVIL_TRY(add_tensor(fuse, &tensor, &made));
  }
  return CUVIL_OK;
}

static bool output_written(const struct cuvil_fuse *fuse, int value, int io) {
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *root =
        &fuse->fused->tensors[tensor_root(fuse, t)];
    if (root->kind == CUVIL_TENSOR_OUTPUT && root->io == io) return true;
  }
  return false;
}

enum cuvil_status cuvil_fuse_finish_io(struct cuvil_fuse *fuse) {
  const struct cuvil_graph *graph = fuse->graph;
  for (int i = 0; i < graph->output_count; ++i) {
    int value = fuse->canon[graph->outputs[i]], made;
    if (output_written(fuse, value, i) ||
        cuvil_value_elements(&graph->values[value]) == 0)
      continue;
    const struct cuvil_value *v = &graph->values[value];
    enum cuvil_dtype dtype = graph->values[graph->outputs[i]].dtype;
    struct cuvil_tensor tensor =
        shape_tensor(fuse, value, CUVIL_LAYOUT_PLAIN, dtype);
    int source = best_source(fuse, value, dtype);
    if (v->data)
      CUVIL_TRY(cuvil_fuse_weight(fuse, value, dtype, v->rank, tensor.dims,
                                  tensor.perm, NULL, &source));
    if (source < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "output `%s` is never computed",
                        v->name);
    tensor.kind = CUVIL_TENSOR_OUTPUT;
    tensor.io = i;
    CUVIL_TRY(add_tensor(fuse, &tensor, &made));
    CUVIL_TRY(convert(fuse, source, made));
  }
  return CUVIL_OK;
}
