/* fused.c - what is done with a fused graph: its distinct problems, the bytes
 * of its weights, and a run on the CPU.
 *
 * The run uses the problems' references, so that it says whether fusion kept
 * the model's meaning, whatever the kernels do.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fusion/fusion.h"
#include "problem/reference.h"

enum cuvil_status cuvil_fused_problems(struct cuvil_fused *fused,
                                       struct cuvil_problem_set *out) {
  *out = (struct cuvil_problem_set){0};
  size_t count = (size_t)fused->task_count + 1;
  struct cuvil_problem_set set = {
      .texts = cuvil_arena_array(&fused->arena, count, sizeof(char *)),
      .calls = cuvil_arena_array(&fused->arena, count, sizeof(int)),
      .task_problem = cuvil_arena_array(&fused->arena, count, sizeof(int))};
  uint64_t *hashes = cuvil_arena_array(&fused->arena, count, sizeof(*hashes));
  if (!set.texts || !set.calls || !set.task_problem || !hashes)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "problems of %d tasks",
                      fused->task_count);
  struct cuvil_buf text = {0};
  enum cuvil_status status = CUVIL_OK;
  for (int t = 0; t < fused->task_count; ++t) {
    cuvil_buf_clear(&text);
    cuvil_problem_print(&fused->tasks[t].problem, &text);
    CUVIL_TRY_GOTO(cuvil_buf_status(&text));
    uint64_t hash = cuvil_hash64(text.data, text.size, 0);
    int found = 0;
    while (found < set.count &&
           (hashes[found] != hash || strcmp(set.texts[found], text.data) != 0))
      ++found;
    if (found == set.count) {
      char *copy = cuvil_arena_strdup(&fused->arena, text.data);
      if (!copy) {
        status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "problem texts");
        goto fail;
      }
      hashes[found] = hash;
      set.texts[set.count++] = copy;
    }
    ++set.calls[found];
    set.task_problem[t] = found;
  }
  *out = set;
fail:
  cuvil_buf_free(&text);
  return status;
}

/* ---- weights */

/* Finite numbers stay finite: what half precision cannot hold becomes its
 * largest number. */
static void copy_element(const struct cuvil_tensor *tensor, void *out,
                         int64_t to, const struct cuvil_value *value,
                         int64_t from) {
  if (value->dtype == CUVIL_F32 && tensor->dtype == CUVIL_F32) {
    ((float *)out)[to] = ((const float *)value->data)[from];
    return;
  }
  if (value->dtype == CUVIL_F32 && tensor->dtype == CUVIL_F16) {
    float number = ((const float *)value->data)[from];
    if (isfinite(number) && fabsf(number) > 65504.0f)
      number = number < 0 ? -65504.0f : 65504.0f;
    ((uint16_t *)out)[to] = cuvil_f32_to_f16(number);
    return;
  }
  double number = cuvil_load(value->dtype, value->data, (size_t)from);
  double most = cuvil_dtype_max(tensor->dtype);
  if (cuvil_dtype_is_float(tensor->dtype) && isfinite(number) &&
      fabs(number) > most)
    number = number < 0 ? -most : most;
  cuvil_store(tensor->dtype, out, (size_t)to, number);
}

enum cuvil_status cuvil_fused_weight(const struct cuvil_fused *fused, int index,
                                     void *out) {
  const struct cuvil_tensor *tensor = &fused->tensors[index];
  CUVIL_CHECK(tensor->kind == CUVIL_TENSOR_WEIGHT);
  const struct cuvil_value *value = &fused->graph->values[tensor->value];
  CUVIL_CHECK(value->data);
  int64_t strides[CUVIL_GRAPH_MAX_RANK] = {0}, steps[CUVIL_GRAPH_MAX_RANK];
  int64_t stored[CUVIL_GRAPH_MAX_RANK], total = 1;
  for (int i = value->rank - 1; i >= 0; --i) {
    strides[i] = total;
    total *= value->dims[i];
  }
  int64_t elements = 1;
  bool plain = true;
  for (int i = 0; i < tensor->rank; ++i) {
    steps[i] = strides[tensor->perm[i]] * tensor->inner[i];
    stored[i] = value->dims[tensor->perm[i]];
    if (stored[i] > tensor->dims[i]) stored[i] = tensor->dims[i];
    plain = plain && stored[i] == tensor->dims[i] && tensor->inner[i] == 1 &&
            (i == 0 || tensor->perm[i] > tensor->perm[i - 1]);
    elements *= tensor->dims[i];
  }
  if (plain && elements == total) {
    if (tensor->dtype == value->dtype || !cuvil_dtype_is_float(tensor->dtype)) {
      cuvil_convert(tensor->dtype, out, value->dtype, value->data,
                    (size_t)total);
      return CUVIL_OK;
    }
    for (int64_t i = 0; i < total; ++i)
      copy_element(tensor, out, i, value, i);
    return CUVIL_OK;
  }
  memset(out, 0, tensor->bytes);
  int64_t at[CUVIL_GRAPH_MAX_RANK] = {0}, from = 0;
  int beyond = 0; /* how many coordinates lie in the padding */
  for (int64_t to = 0; to < elements; ++to) {
    if (!beyond) copy_element(tensor, out, to, value, from);
    for (int i = tensor->rank - 1; i >= 0; --i) {
      beyond -= at[i] >= stored[i];
      from += steps[i];
      if (++at[i] < tensor->dims[i]) {
        beyond += at[i] >= stored[i];
        break;
      }
      from -= steps[i] * tensor->dims[i];
      at[i] = 0;
    }
  }
  return CUVIL_OK;
}

/* ---- running on the CPU */

struct run {
  const struct cuvil_fused *fused;
  const void *const *inputs;
  void *const *outputs;
  void **memory; /* by tensor; owned for LOCAL and WEIGHT roots */
};

static int root_of(const struct cuvil_fused *fused, int tensor) {
  while (fused->tensors[tensor].alias >= 0)
    tensor = fused->tensors[tensor].alias;
  return tensor;
}

static enum cuvil_status root_address(struct run *run, int root, char **out) {
  const struct cuvil_tensor *t = &run->fused->tensors[root];
  if (t->kind == CUVIL_TENSOR_INPUT) {
    *out = (char *)(uintptr_t)run->inputs[t->io];
    return CUVIL_OK;
  }
  if (t->kind == CUVIL_TENSOR_OUTPUT) {
    *out = run->outputs[t->io];
    return CUVIL_OK;
  }
  if (!run->memory[root]) {
    run->memory[root] = calloc(1, t->bytes + 1);
    if (!run->memory[root])
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "tensor `%s`", t->name);
    if (t->kind == CUVIL_TENSOR_WEIGHT)
      CUVIL_TRY(cuvil_fused_weight(run->fused, root, run->memory[root]));
  }
  *out = run->memory[root];
  return CUVIL_OK;
}

static enum cuvil_status place(struct run *run, int tensor, char **out) {
  const struct cuvil_tensor *t = &run->fused->tensors[tensor];
  CUVIL_TRY(root_address(run, root_of(run->fused, tensor), out));
  *out += (size_t)t->offset * cuvil_dtype_size(t->dtype);
  return CUVIL_OK;
}

/* The elements of an output that its dimensions reach; what lies between them
 * is another's. */
static void store_output(const struct cuvil_problem *problem, int operand,
                         const double *values, void *target) {
  const struct cuvil_operand *o = &problem->operands[operand];
  int64_t at[CUVIL_MAX_RANK] = {0}, offset = 0;
  for (int i = 0; i < o->rank; ++i)
    if (problem->dims[o->dims[i]].extent == 0) return;
  for (;;) {
    cuvil_store(o->dtype, target, (size_t)offset, values[offset]);
    int i = o->rank - 1;
    for (; i >= 0; --i) {
      offset += o->strides[i];
      if (++at[i] < problem->dims[o->dims[i]].extent) break;
      offset -= o->strides[i] * at[i];
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

static enum cuvil_status run_task(struct run *run,
                                  const struct cuvil_task *task, int threads) {
  const struct cuvil_problem *problem = &task->problem;
  const void *operands[CUVIL_MAX_OPERANDS] = {NULL};
  char *places[CUVIL_MAX_OPERANDS] = {NULL};
  double *values[CUVIL_MAX_OPERANDS] = {NULL};
  double *bounds[CUVIL_MAX_OPERANDS] = {NULL};
  enum cuvil_status status = CUVIL_OK;
  for (int i = 0; i < problem->operand_count; ++i) {
    CUVIL_TRY(place(run, task->tensors[i], &places[i]));
    operands[i] = places[i];
  }
  for (int i = 0; i < problem->operand_count; ++i) {
    if (problem->operands[i].role != CUVIL_ROLE_OUTPUT) continue;
    size_t elements = (size_t)cuvil_operand_elements(problem, i);
    values[i] = malloc((elements + 1) * sizeof(double));
    bounds[i] = malloc((elements + 1) * sizeof(double));
    if (!values[i] || !bounds[i]) {
      status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "task `%s`", task->label);
      goto fail;
    }
  }
  CUVIL_TRY_GOTO(
      cuvil_problem_reference(problem, operands, values, bounds, threads));
  for (int i = 0; i < problem->operand_count; ++i)
    if (problem->operands[i].role == CUVIL_ROLE_OUTPUT)
      store_output(problem, i, values[i], places[i]);
fail:
  for (int i = 0; i < problem->operand_count; ++i) {
    free(values[i]);
    free(bounds[i]);
  }
  return status;
}

enum cuvil_status cuvil_fused_execute(const struct cuvil_fused *fused,
                                      const void *const *inputs,
                                      void *const *outputs, int threads) {
  struct run run = {.fused = fused, .inputs = inputs, .outputs = outputs};
  enum cuvil_status status = CUVIL_OK;
  run.memory = calloc((size_t)fused->tensor_count + 1, sizeof(void *));
  if (!run.memory)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "running %d tasks",
                      fused->task_count);
  for (int t = 0; t < fused->task_count; ++t)
    CUVIL_TRY_GOTO(run_task(&run, &fused->tasks[t], threads));
fail:
  for (int i = 0; i < fused->tensor_count; ++i)
    free(run.memory[i]);
  free(run.memory);
  return status;
}
