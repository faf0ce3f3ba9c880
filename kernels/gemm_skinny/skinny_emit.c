/* skinny_emit.c - gemm_skinny's kernel as a program: the text put together from
 * its parts, and one launch.
 *
 * Extents, the split and how much of K the panel holds are arguments, so that
 * one cubin serves every problem of a signature.
 */
#include "kernels/common/emit.h"
#include "kernels/gemm_skinny/skinny.h"

static void define_point(struct cuvil_emission *e,
                         const struct cuvil_skinny *s) {
  const struct cuvil_problem *problem = e->query->problem;
  cuvil_emission_define(e, "TILE_M", s->tile_m);
  cuvil_emission_define(e, "WARP_N", s->warp_n);
  cuvil_emission_define(e, "WARPS_N", s->warps_n);
  cuvil_emission_define(e, "SLICE_K", s->slice_k);
  cuvil_emission_define(e, "GROUPS", s->groups);
  cuvil_emission_define(e, "STAGES", s->stages);
  cuvil_emission_define(e, "CLUSTER", s->cluster);
  cuvil_emission_define(e, "PERSIST", s->persist != 0);
  cuvil_emission_define(e, "MIN_BLOCKS", s->persist > 1 ? s->persist : 1);
  cuvil_emission_define(e, "TENSOR", s->tensor);
  cuvil_emission_define(e, "PDL", s->pdl);
  cuvil_emission_define(e, "A_VECTOR", s->view.a_vector);
  cuvil_emission_define(e, "B_VECTOR", s->view.b_vector);
  cuvil_emission_define(e, "A_TRANSPOSED", s->view.a_transposed);
  cuvil_emission_define(e, "B_TRANSPOSED", s->view.b_transposed);
  cuvil_emission_define(e, "A_CONSTANT", s->kept_constant);
  cuvil_emission_define(e, "B_CONSTANT", s->view.b_constant);
  cuvil_emission_define(e, "SWAPPED", s->swapped);
  cuvil_emission_define(e, "BATCHED", s->view.batched);
  cuvil_emission_define(e, "OUT_PIECE", s->out_piece);
  cuvil_buf_printf(
      &e->source,
      "#define ELEMENT %s\n#define OUTPUT %s\n#define ENTRY gemm_skinny\n",
      cuvil_emit_type(s->view.element),
      cuvil_emit_type(problem->operands[problem->output].dtype));
}

static enum cuvil_status put_source(struct cuvil_emission *e,
                                    const struct cuvil_skinny *s) {
  static const char *const before[] = {"kernels/common/types.cuh",
                                       "kernels/common/operators.cuh"};
  static const char *const after[] = {"kernels/common/mma_index.cuh",
                                      "kernels/common/mma_ptx.cuh",
                                      "kernels/gemm_skinny/skinny_stream.cuh",
                                      "kernels/gemm_skinny/skinny_multiply.cuh",
                                      "kernels/gemm_skinny/gemm_skinny.cu"};
  define_point(e, s);
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    CUVIL_TRY(cuvil_mma_append(before[i], &e->source));
  cuvil_emit_epilogue(e->query->problem, false, &e->source);
  for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
    CUVIL_TRY(cuvil_mma_append(after[i], &e->source));
    /* Behind the instructions, which it uses. */
    if (i == 1) cuvil_mma_side_words(e->query->problem, &s->view, &e->source);
  }
  return cuvil_buf_status(&e->source);
}

/* What a split through global memory needs: sums, counters at rest at zero. */
static enum cuvil_status add_workspace(struct cuvil_emission *e,
                                       const struct cuvil_skinny *s,
                                       const struct cuvil_derived *derived,
                                       int *out_partial, int *out_semaphore) {
  uint64_t counters = (uint64_t)(s->tiles * s->view.batch) * 4;
  *out_partial = *out_semaphore = -1;
  if (derived->workspace_bytes == 0) return CUVIL_OK;
  CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_WORKSPACE, -1,
                                     derived->workspace_bytes - counters,
                                     out_partial));
  return cuvil_program_add_buffer(e->program, CUVIL_BUFFER_ZEROED, -1, counters,
                                  out_semaphore);
}

/* A pointer that the kernel will not follow is null. */
static enum cuvil_status add_pointer(struct cuvil_step *step, int buffer) {
  return buffer < 0 ? cuvil_step_arg_i64(step, 0)
                    : cuvil_step_arg_buffer(step, buffer, 0);
}

static enum cuvil_status add_arguments(struct cuvil_emission *e,
                                       const struct cuvil_skinny *s,
                                       int partial, int semaphore,
                                       struct cuvil_step *step) {
  const struct cuvil_mma_view *view = &s->view;
  const int64_t numbers[] = {view->m,
                             view->n,
                             view->k,
                             s->split,
                             s->turns / s->split,
                             s->turns % s->split,
                             s->chunk,
                             view->pitch,
                             view->pitch_a,
                             view->pitch_b};
  int kept = s->swapped ? CUVIL_GEMM_B : CUVIL_GEMM_A;
  int streamed = s->swapped ? CUVIL_GEMM_A : CUVIL_GEMM_B;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[kept], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[streamed], 0));
  CUVIL_TRY(
      cuvil_step_arg_buffer(step, e->buffers[e->query->problem->output], 0));
  CUVIL_TRY(add_pointer(step, partial));
  CUVIL_TRY(add_pointer(step, semaphore));
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    CUVIL_TRY(cuvil_step_arg_i32(step, numbers[i]));
  if (view->batched) {
    CUVIL_TRY(cuvil_step_arg_i64(step, view->step));
    CUVIL_TRY(cuvil_step_arg_i64(step, view->step_a));
    CUVIL_TRY(cuvil_step_arg_i64(step, view->step_b));
  }
  return cuvil_emit_epilogue_arguments(e->query->problem, e->buffers, NULL,
                                       step);
}

static enum cuvil_status build(struct cuvil_emission *e,
                               const struct cuvil_skinny *s,
                               const struct cuvil_derived *derived) {
  struct cuvil_step *step;
  int partial, semaphore;
  CUVIL_TRY(add_workspace(e, s, derived, &partial, &semaphore));
  CUVIL_TRY(put_source(e, s));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "gemm_skinny", s->workers,
                                  s->threads, &step));
  step->grid[2] = (uint32_t)(s->split * s->view.batch);
  if (s->cluster) {
    step->cluster[0] = step->cluster[1] = 1;
    step->cluster[2] = (uint32_t)s->split;
  }
  step->shared_bytes = (uint32_t)derived->shared_bytes;
  step->programmatic = s->pdl;
  return add_arguments(e, s, partial, semaphore, step);
}

enum cuvil_status cuvil_skinny_emit(const struct cuvil_query *query,
                                    const struct cuvil_config *config,
                                    struct cuvil_program **out) {
  struct cuvil_skinny s;
  struct cuvil_derived derived;
  struct cuvil_emission e;
  *out = NULL;
  if (!cuvil_skinny_of(query, config, &s) ||
      !cuvil_skinny_derive(query, config, &derived))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "this configuration cannot compute the problem");
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = build(&e, &s, &derived);
  return cuvil_emission_end(&e, status, out);
}
