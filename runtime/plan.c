/* plan.c - what a plan owns, and the rules it keeps. */
#include "runtime/plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_TENSORS = 4096, MAX_STEPS = 1 << 20 };
#define MAX_BYTES ((uint64_t)1 << 46)

static void destroy_step(struct cuvil_plan_step *step) {
  cuvil_program_destroy(step->program);
  free(step->bindings);
  cuvil_program_destroy(step->fallback);
  free(step->fallback_bindings);
  free(step->library_version);
  free(step->label);
  free(step->problem);
  free(step->family);
  free(step->config);
  free(step->origin);
}

void cuvil_plan_destroy(struct cuvil_plan *plan) {
  if (!plan) return;
  for (int i = 0; plan->inputs && i < plan->input_count; i++)
    free(plan->inputs[i].name);
  for (int i = 0; plan->outputs && i < plan->output_count; i++)
    free(plan->outputs[i].name);
  for (int i = 0; plan->steps && i < plan->step_count; i++)
    destroy_step(&plan->steps[i]);
  free(plan->inputs);
  free(plan->outputs);
  free(plan->steps);
  free(plan->model);
  free(plan->fusion);
  free(plan->precision);
  if (plan->mapping)
    munmap(plan->mapping, (size_t)plan->mapping_bytes);
  else
    free(plan->weights);
  free(plan);
}

static enum cuvil_status check_tensor(const struct cuvil_plan_tensor *tensor,
                                      const char *origin) {
  uint64_t bytes = 0;
  if (tensor->dtype > CUVIL_DTYPE_NONE && tensor->dtype < CUVIL_DTYPE_COUNT)
    bytes = cuvil_dtype_size(tensor->dtype);
  bool good = tensor->name && tensor->rank >= 0 && tensor->rank <= 8 && bytes;
  for (int i = 0; good && i < tensor->rank; i++)
    good = tensor->dims[i] >= 0 && (uint64_t)tensor->dims[i] <= MAX_BYTES &&
           !__builtin_mul_overflow(bytes, (uint64_t)tensor->dims[i], &bytes);
  if (!good || bytes != tensor->bytes || bytes > MAX_BYTES)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s: input or output %s: shape, type and bytes do not "
                      "agree",
                      origin, tensor->name ? tensor->name : "(unnamed)");
  return CUVIL_OK;
}

/* Bytes of the place that a binding names; false: there is no such place. */
static bool place_bytes(const struct cuvil_plan *plan,
                        const struct cuvil_binding *binding, uint64_t *out) {
  switch (binding->place) {
    case CUVIL_PLACE_INPUT:
      if (binding->index < 0 || binding->index >= plan->input_count)
        return false;
      *out = plan->inputs[binding->index].bytes;
      return true;
    case CUVIL_PLACE_OUTPUT:
      if (binding->index < 0 || binding->index >= plan->output_count)
        return false;
      *out = plan->outputs[binding->index].bytes;
      return true;
    case CUVIL_PLACE_WEIGHTS:
      *out = plan->weights_bytes;
      return true;
    case CUVIL_PLACE_ARENA:
      *out = plan->arena_bytes;
      return true;
    case CUVIL_PLACE_ZEROED:
      *out = plan->zeroed_bytes;
      return true;
  }
  return false;
}

static enum cuvil_status check_binding(
    const struct cuvil_plan *plan, const struct cuvil_program_buffer *buffer,
    const struct cuvil_binding *binding, const char *origin, int step) {
  uint64_t room;
  bool zeroed = buffer->role == CUVIL_BUFFER_ZEROED;
  /* An operand may be the inside of a tensor, read element by element. */
  uint64_t alignment = buffer->role == CUVIL_BUFFER_OPERAND ? 2 : 16;
  if (!place_bytes(plan, binding, &room) || binding->offset > room ||
      buffer->bytes > room - binding->offset ||
      binding->offset % alignment != 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s: step %d: a buffer of %llu bytes is bound outside "
                      "its place, at %llu",
                      origin, step, (unsigned long long)buffer->bytes,
                      (unsigned long long)binding->offset);
  if (zeroed != (binding->place == CUVIL_PLACE_ZEROED) ||
      (buffer->role == CUVIL_BUFFER_WORKSPACE &&
       binding->place != CUVIL_PLACE_ARENA))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s: step %d: a buffer is bound to a place of another "
                      "kind",
                      origin, step);
  return CUVIL_OK;
}

static enum cuvil_status check_program(const struct cuvil_plan *plan, int index,
                                       const struct cuvil_program *program,
                                       const struct cuvil_binding *bindings,
                                       const char *origin) {
  if (!program || !bindings)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s: step %d has no program, or none of its buffers has "
                      "a place",
                      origin, index);
  CUVIL_TRY(cuvil_program_check(program, origin));
  for (int i = 0; i < program->buffer_count; i++)
    CUVIL_TRY(
        check_binding(plan, &program->buffers[i], &bindings[i], origin, index));
  return CUVIL_OK;
}

static enum cuvil_status check_step(const struct cuvil_plan *plan, int index,
                                    const char *origin) {
  const struct cuvil_plan_step *step = &plan->steps[index];
  CUVIL_TRY(check_program(plan, index, step->program, step->bindings, origin));
  if (!step->fallback) return CUVIL_OK;
  return check_program(plan, index, step->fallback, step->fallback_bindings,
                       origin);
}

enum cuvil_status cuvil_plan_check(const struct cuvil_plan *plan,
                                   const char *origin) {
  if (plan->input_count < 0 || plan->input_count > MAX_TENSORS ||
      plan->output_count < 0 || plan->output_count > MAX_TENSORS ||
      plan->step_count < 0 || plan->step_count > MAX_STEPS ||
      plan->arena_bytes > MAX_BYTES || plan->zeroed_bytes > MAX_BYTES ||
      plan->weights_bytes > MAX_BYTES)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "%s: the plan is too large",
                      origin);
  for (int i = 0; i < plan->input_count; i++)
    CUVIL_TRY(check_tensor(&plan->inputs[i], origin));
  for (int i = 0; i < plan->output_count; i++)
    CUVIL_TRY(check_tensor(&plan->outputs[i], origin));
  for (int i = 0; i < plan->step_count; i++)
    CUVIL_TRY(check_step(plan, i, origin));
  return CUVIL_OK;
}
