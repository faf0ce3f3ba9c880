/* place.c - where everything lies when a plan runs.
 *
 * Inputs and outputs are their own places.  Weights lie one after the other in
 * the weights section.  All else, tensors between steps and the workspace of
 * each step, shares one arena: the largest first, each at the lowest offset
 * where nothing that lives at the same time lies (greedy by size; Pisarchyk
 * and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
 * Buffers that a program finds and leaves zero share one area, since only one
 * step runs at a time.
 */
#include <stdlib.h>

#include "compiler/internal.h"

enum { ALIGNMENT = 256 };

static uint64_t align_up(uint64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- the arena */

static int larger_first(const void *a, const void *b) {
  const struct cuvil_interval *x = *(struct cuvil_interval *const *)a;
  const struct cuvil_interval *y = *(struct cuvil_interval *const *)b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x > y) - (x < y);
}

static int lower_first(const void *a, const void *b) {
  const struct cuvil_interval *x = *(struct cuvil_interval *const *)a;
  const struct cuvil_interval *y = *(struct cuvil_interval *const *)b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The lowest offset that no living neighbour covers. */
static uint64_t lowest_gap(struct cuvil_interval **living, int count,
                           uint64_t bytes) {
  uint64_t offset = 0;
  qsort(living, (size_t)count, sizeof(struct cuvil_interval *), lower_first);
  for (int i = 0; i < count; ++i) {
    if (living[i]->offset >= offset + bytes) break;
    uint64_t end = living[i]->offset + align_up(living[i]->bytes);
    if (end > offset) offset = end;
  }
  return offset;
}

uint64_t cuvil_place_intervals(struct cuvil_interval *intervals, int count) {
  size_t room = ((size_t)count + 1) * sizeof(struct cuvil_interval *);
  struct cuvil_interval **order = malloc(room), **living = malloc(room);
  uint64_t total = 0;
  if (!order || !living) {
    /* Without memory for planning: one after the other is right too. */
    for (int i = 0; i < count; ++i) {
      intervals[i].offset = total;
      total += align_up(intervals[i].bytes);
    }
    count = 0;
  }
  for (int i = 0; i < count; ++i)
    order[i] = &intervals[i];
  if (count) qsort(order, (size_t)count, sizeof(*order), larger_first);
  for (int i = 0; i < count; ++i) {
    int alive = 0;
    for (int j = 0; j < i; ++j)
      if (order[j]->first <= order[i]->last &&
          order[j]->last >= order[i]->first)
        living[alive++] = order[j];
    order[i]->offset = lowest_gap(living, alive, align_up(order[i]->bytes));
    uint64_t end = order[i]->offset + align_up(order[i]->bytes);
    if (end > total) total = end;
  }
  free(order);
  free(living);
  return total;
}

/* ---- the plan */

struct placing {
  const struct cuvil_fused *fused;
  struct cuvil_plan *plan;
  struct cuvil_interval *intervals; /* tensors, then workspaces */
  int interval_count;
  uint64_t *weight_offsets; /* by tensor */
};

static int root_of(const struct cuvil_fused *fused, int tensor) {
  while (fused->tensors[tensor].alias >= 0)
    tensor = fused->tensors[tensor].alias;
  return tensor;
}

/* The tensor behind a buffer of step `step`: its root, and where in it the
 * operand begins, in bytes. */
static enum cuvil_status buffer_tensor(
    const struct cuvil_fused *fused, int step,
    const struct cuvil_program_buffer *buffer, int *out, uint64_t *out_offset) {
  const struct cuvil_task *task = &fused->tasks[step];
  CUVIL_CHECK(buffer->operand >= 0 &&
              buffer->operand < task->problem.operand_count);
  const struct cuvil_tensor *tensor =
      &fused->tensors[task->tensors[buffer->operand]];
  *out = root_of(fused, task->tensors[buffer->operand]);
  *out_offset = (uint64_t)tensor->offset * cuvil_dtype_size(tensor->dtype);
  CUVIL_CHECK(*out_offset + buffer->bytes <= fused->tensors[*out].bytes);
  return CUVIL_OK;
}

static void stretch(struct cuvil_interval *interval, int step) {
  if (interval->bytes == 0 || step < interval->first) interval->first = step;
  if (interval->bytes == 0 || step > interval->last) interval->last = step;
}

/* Workspaces of one program, which live for its step. */
static void collect_workspace(struct placing *p, int step,
                              const struct cuvil_program *program, int *next) {
  uint64_t zeroed = 0;
  for (int b = 0; program && b < program->buffer_count; ++b) {
    const struct cuvil_program_buffer *buffer = &program->buffers[b];
    if (buffer->role == CUVIL_BUFFER_ZEROED)
      zeroed += align_up(buffer->bytes);
    else if (buffer->role == CUVIL_BUFFER_WORKSPACE)
      p->intervals[(*next)++] =
          (struct cuvil_interval){step, step, buffer->bytes, 0};
  }
  if (zeroed > p->plan->zeroed_bytes) p->plan->zeroed_bytes = zeroed;
}

/* Lifetimes of tensors by their use, workspaces of one step. */
static enum cuvil_status collect(struct placing *p) {
  const struct cuvil_fused *fused = p->fused;
  struct cuvil_plan *plan = p->plan;
  int next = fused->tensor_count;
  for (int s = 0; s < plan->step_count; ++s) {
    /* By task, not by buffer: an operand that a program reads through another
     * buffer still has to live. */
    for (int o = 0; o < fused->tasks[s].problem.operand_count; ++o) {
      int root = root_of(fused, fused->tasks[s].tensors[o]);
      const struct cuvil_tensor *tensor = &fused->tensors[root];
      if (tensor->kind == CUVIL_TENSOR_LOCAL) {
        stretch(&p->intervals[root], s);
        p->intervals[root].bytes = tensor->bytes;
      } else if (tensor->kind == CUVIL_TENSOR_WEIGHT &&
                 p->weight_offsets[root] == UINT64_MAX) {
        p->weight_offsets[root] = plan->weights_bytes;
        plan->weights_bytes += align_up(tensor->bytes);
      }
    }
    collect_workspace(p, s, plan->steps[s].program, &next);
    collect_workspace(p, s, plan->steps[s].fallback, &next);
  }
  p->interval_count = next;
  return CUVIL_OK;
}

static enum cuvil_status bind_operand(struct placing *p, int step,
                                      const struct cuvil_program_buffer *buffer,
                                      struct cuvil_binding *out) {
  int root = -1;
  uint64_t offset = 0;
  CUVIL_TRY(buffer_tensor(p->fused, step, buffer, &root, &offset));
  const struct cuvil_tensor *tensor = &p->fused->tensors[root];
  switch (tensor->kind) {
    case CUVIL_TENSOR_INPUT:
      *out = (struct cuvil_binding){CUVIL_PLACE_INPUT, tensor->io, offset};
      break;
    case CUVIL_TENSOR_OUTPUT:
      *out = (struct cuvil_binding){CUVIL_PLACE_OUTPUT, tensor->io, offset};
      break;
    case CUVIL_TENSOR_WEIGHT:
      *out = (struct cuvil_binding){CUVIL_PLACE_WEIGHTS, 0,
                                    p->weight_offsets[root] + offset};
      break;
    case CUVIL_TENSOR_LOCAL:
      *out = (struct cuvil_binding){CUVIL_PLACE_ARENA, 0,
                                    p->intervals[root].offset + offset};
      break;
  }
  return CUVIL_OK;
}

static enum cuvil_status bind_program(struct placing *p, int step,
                                      const struct cuvil_program *program,
                                      int *next,
                                      struct cuvil_binding **out_bindings) {
  uint64_t zeroed = 0;
  struct cuvil_binding *bindings =
      calloc((size_t)program->buffer_count + 1, sizeof(*bindings));
  if (!bindings) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "bindings");
  *out_bindings = bindings;
  for (int b = 0; b < program->buffer_count; ++b) {
    const struct cuvil_program_buffer *buffer = &program->buffers[b];
    if (buffer->role == CUVIL_BUFFER_OPERAND) {
      CUVIL_TRY(bind_operand(p, step, buffer, &bindings[b]));
    } else if (buffer->role == CUVIL_BUFFER_ZEROED) {
      bindings[b] = (struct cuvil_binding){CUVIL_PLACE_ZEROED, 0, zeroed};
      zeroed += align_up(buffer->bytes);
    } else {
      bindings[b] = (struct cuvil_binding){CUVIL_PLACE_ARENA, 0,
                                           p->intervals[(*next)++].offset};
    }
  }
  return CUVIL_OK;
}

static enum cuvil_status bind_steps(struct placing *p) {
  struct cuvil_plan *plan = p->plan;
  int next = p->fused->tensor_count;
  for (int s = 0; s < plan->step_count; ++s) {
    struct cuvil_plan_step *step = &plan->steps[s];
    CUVIL_TRY(bind_program(p, s, step->program, &next, &step->bindings));
    if (step->fallback)
      CUVIL_TRY(
          bind_program(p, s, step->fallback, &next, &step->fallback_bindings));
  }
  return CUVIL_OK;
}

static enum cuvil_status fill_weights(struct placing *p) {
  if (p->plan->weights_bytes == 0) return CUVIL_OK;
  p->plan->weights = calloc(1, p->plan->weights_bytes);
  if (!p->plan->weights)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "weights of %llu bytes",
                      (unsigned long long)p->plan->weights_bytes);
  for (int t = 0; t < p->fused->tensor_count; ++t)
    if (p->weight_offsets[t] != UINT64_MAX)
      CUVIL_TRY(cuvil_fused_weight(
          p->fused, t, (char *)p->plan->weights + p->weight_offsets[t]));
  return CUVIL_OK;
}

enum cuvil_status cuvil_place(const struct cuvil_fused *fused,
                              struct cuvil_plan *plan) {
  struct placing p = {.fused = fused, .plan = plan};
  enum cuvil_status status = CUVIL_OK;
  int most = fused->tensor_count;
  for (int s = 0; s < plan->step_count; ++s) {
    most += plan->steps[s].program->buffer_count;
    if (plan->steps[s].fallback) most += plan->steps[s].fallback->buffer_count;
  }
  p.intervals = calloc((size_t)most + 1, sizeof(*p.intervals));
  p.weight_offsets =
      malloc(((size_t)fused->tensor_count + 1) * sizeof(uint64_t));
  if (!p.intervals || !p.weight_offsets) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "planning memory");
    goto fail;
  }
  for (int t = 0; t < fused->tensor_count; ++t)
    p.weight_offsets[t] = UINT64_MAX;
  plan->weights_bytes = plan->zeroed_bytes = 0;
  CUVIL_TRY_GOTO(collect(&p));
  plan->arena_bytes = cuvil_place_intervals(p.intervals, p.interval_count);
  CUVIL_TRY_GOTO(bind_steps(&p));
  CUVIL_TRY_GOTO(fill_weights(&p));
fail:
  free(p.intervals);
  free(p.weight_offsets);
  return status;
}
