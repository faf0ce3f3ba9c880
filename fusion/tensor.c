/* tensor.c - which tensors exist, and the conversions between their forms.
 *
 * A graph value may be held by several tensors: plain (its own axis order) or
 * channels last, in the file's type or in the inner one, with padded channels
 * where a first convolution wants them.  Each form is made once, when the
 * first task asks for it, by a conversion task put before that task.  What a
 * task writes goes straight into a graph output when it can: plain layout, and
 * nobody else needs it in another type.
 */
#include <stdio.h>
#include <string.h>

#include "fusion/fuse.h"

static const int nhwc_perm[4] = {0, 2, 3, 1};

enum cuvil_dtype cuvil_fuse_dtype(const struct cuvil_fuse *fuse, int value) {
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
  return fuse->graph->values[value].dtype;
}

bool cuvil_fuse_trivial(const struct cuvil_value *value) {
  return value->rank != 4 || value->dims[1] == 1 ||
         value->dims[2] * value->dims[3] == 1;
}

static bool tensor_nhwc(const struct cuvil_tensor *tensor) {
  return tensor->rank == 4 &&
         memcmp(tensor->perm, nhwc_perm, sizeof(nhwc_perm)) == 0;
}

static bool tensor_padded(const struct cuvil_fuse *fuse,
                          const struct cuvil_tensor *tensor) {
  const struct cuvil_value *value = &fuse->graph->values[tensor->value];
  for (int i = 0; i < tensor->rank; ++i)
    if (tensor->dims[i] != value->dims[tensor->perm[i]]) return true;
  return false;
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
  int64_t elements = 1;
  for (int i = 0; i < added->rank; ++i)
    elements *= added->dims[i];
  added->bytes = (uint64_t)elements * cuvil_dtype_size(added->dtype);
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

static enum cuvil_status convert(struct cuvil_fuse *fuse, int from, int to) {
  struct cuvil_fused *fused = fuse->fused;
  struct cuvil_task task = {.conversion = true};
  conversion_problem(&fused->tensors[to], &fused->tensors[from], &task.problem);
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
    if (tensor_padded(fuse, tensor)) continue;
    if (best < 0 || tensor->dtype == dtype) best = t;
  }
  return best;
}

enum cuvil_status cuvil_fuse_want(struct cuvil_fuse *fuse, int value,
                                  enum cuvil_layout layout, bool pad,
                                  int *out_tensor) {
  const struct cuvil_value *v = &fuse->graph->values[value];
  enum cuvil_dtype dtype = cuvil_fuse_dtype(fuse, value);
  *out_tensor = -1;
  if (cuvil_fuse_trivial(v)) layout = CUVIL_LAYOUT_PLAIN;
  pad = pad && layout == CUVIL_LAYOUT_NHWC;
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *tensor = &fuse->fused->tensors[t];
    if (tensor->dtype == dtype &&
        tensor_nhwc(tensor) == (layout == CUVIL_LAYOUT_NHWC) &&
        (pad || !tensor_padded(fuse, tensor)))
      *out_tensor = t;
  }
  if (*out_tensor >= 0) return CUVIL_OK;
  int source = best_source(fuse, value, dtype);
  if (source < 0)
    return CUVIL_FAIL(CU_ERR_INTERNAL,
                      "fusion: tensor `%s` is read before it "
                      "is written",
                      v->name);
  struct cuvil_tensor tensor = shape_tensor(fuse, value, layout, dtype);
  if (pad && tensor.dims[3] > 1) tensor.dims[3] = (tensor.dims[3] + 3) / 4 * 4;
  CUVIL_TRY(add_tensor(fuse, &tensor, out_tensor));
  return convert(fuse, source, *out_tensor);
}

enum cuvil_status cuvil_fuse_weight(struct cuvil_fuse *fuse, int value,
                                    enum cuvil_dtype dtype, int rank,
                                    const int64_t *dims, const int *perm,
                                    int *out_tensor) {
  struct cuvil_tensor tensor = {.kind = CUVIL_TENSOR_WEIGHT,
                                .io = -1,
                                .value = value,
                                .dtype = dtype,
                                .rank = rank,
                                .alias = -1};
  for (int i = 0; i < rank; ++i) {
    tensor.dims[i] = dims[i];
    tensor.perm[i] = perm[i];
  }
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *have = &fuse->fused->tensors[t];
    if (have->dtype == dtype && have->rank == rank &&
        memcmp(have->dims, tensor.dims, sizeof(tensor.dims)) == 0 &&
        memcmp(have->perm, tensor.perm, sizeof(tensor.perm)) == 0) {
      *out_tensor = t;
      return CUVIL_OK;
    }
  }
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

enum cuvil_status cuvil_fuse_alias(struct cuvil_fuse *fuse, int node) {
  int in = cuvil_fuse_input(fuse, &fuse->graph->nodes[node], 0);
  int out = cuvil_fuse_output(fuse, node);
  int source = -1;
  for (int t = fuse->first_form[in]; t >= 0; t = fuse->next_form[t]) {
    const struct cuvil_tensor *tensor = &fuse->fused->tensors[t];
    if (tensor_nhwc(tensor) || tensor_padded(fuse, tensor)) continue;
    if (source < 0 || tensor->dtype == cuvil_fuse_dtype(fuse, in)) source = t;
  }
  if (source < 0)
    CUVIL_TRY(cuvil_fuse_want(fuse, in, CUVIL_LAYOUT_PLAIN, false, &source));
  struct cuvil_tensor tensor = shape_tensor(fuse, out, CUVIL_LAYOUT_PLAIN,
                                            fuse->fused->tensors[source].dtype);
  tensor.alias = source;
  int made;
  return add_tensor(fuse, &tensor, &made);
}

bool cuvil_fuse_is_nhwc(const struct cuvil_fuse *fuse, int value) {
  for (int t = fuse->first_form[value]; t >= 0; t = fuse->next_form[t])
    if (tensor_nhwc(&fuse->fused->tensors[t]) &&
        !tensor_padded(fuse, &fuse->fused->tensors[t]))
      return true;
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
    if (output_written(fuse, value, i)) continue;
    const struct cuvil_value *v = &graph->values[value];
    enum cuvil_dtype dtype = graph->values[graph->outputs[i]].dtype;
    struct cuvil_tensor tensor =
        shape_tensor(fuse, value, CUVIL_LAYOUT_PLAIN, dtype);
    int source = best_source(fuse, value, dtype);
    if (v->data)
      CUVIL_TRY(cuvil_fuse_weight(fuse, value, dtype, v->rank, tensor.dims,
                                  tensor.perm, &source));
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
