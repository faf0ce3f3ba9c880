/* mma_emit.c - the matrix-product kernels as a program: the text put together
 * from its parts, and one launch.
 *
 * The parts, in order: what the point bakes in (#define lines), the element
 * types and operators, the generated epilogue, index arithmetic, instructions,
 * the epilogue's early reads, copies, the multiplier, the loader of A, the
 * kernel.  Extents, split and tile
 * order are arguments, so that they share a cubin.
 */
#include <stdio.h>
#include <string.h>

#include "base/embed.h"
#include "kernels/common/mma.h"

/* Whole-line comments are for the reader of the template; the compiler and
 * the hash of the text do without. */
enum cuvil_status cuvil_mma_append(const char *name, struct cuvil_buf *out) {
  const struct cuvil_embedded *file = cuvil_embedded_find(name);
  if (!file)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "no embedded template %s", name);
  const char *line = file->data, *end = file->data + file->size;
  while (line < end) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    stop = stop ? stop + 1 : end;
    const char *text = line;
    while (text < stop && *text == ' ')
      text++;
    if (stop - text < 2 || text[0] != '/' || text[1] != '/')
      cuvil_buf_add(out, line, (size_t)(stop - line));
    line = stop;
  }
  return CUVIL_OK;
}

void cuvil_mma_divider(uint32_t divisor, uint32_t *out_magic,
                       uint32_t *out_shift) {
  *out_magic = *out_shift = 0;
  if (divisor <= 1) return;
  uint32_t log = 0;
  while (((uint64_t)1 << log) < divisor)
    log++;
  /* ceil(2^(31 + log) / divisor) < 2^32, exact for numerators below 2^31. */
  uint64_t power = (uint64_t)1 << (31 + log);
  *out_magic = (uint32_t)((power + divisor - 1) / divisor);
  *out_shift = log - 1;
}

static void define(struct cuvil_buf *out, const char *name, int64_t value) {
  cuvil_buf_printf(out, "#define %s %lld\n", name, (long long)value);
}

static void define_point(const struct cuvil_problem *problem,
                         const struct cuvil_mma_view *view, const int64_t *v,
                         const char *entry, struct cuvil_buf *out) {
  define(out, "TILE_M", v[CUVIL_MMA_TILE_M]);
  define(out, "TILE_N", v[CUVIL_MMA_TILE_N]);
  define(out, "TILE_K", v[CUVIL_MMA_TILE_K]);
  define(out, "WARPS_M", v[CUVIL_MMA_WARPS_M]);
  define(out, "WARPS_N", v[CUVIL_MMA_WARPS_N]);
  define(out, "SLICE_K", v[CUVIL_MMA_SLICE_K]);
  define(out, "STAGES", v[CUVIL_MMA_STAGES]);
  define(out, "CLUSTER", v[CUVIL_MMA_REDUCE]);
  define(out, "PDL", v[CUVIL_MMA_PDL]);
  define(out, "AHEAD", v[CUVIL_MMA_AHEAD]);
  define(out, "A_VECTOR", view->a_vector);
  define(out, "B_VECTOR", view->b_vector);
  define(out, "A_TRANSPOSED", view->a_transposed);
  define(out, "B_TRANSPOSED", view->b_transposed);
  define(out, "B_CONSTANT", view->b_constant);
  define(out, "OUT_VECTOR", view->out_vector);
  define(out, "CONV_PLAIN", view->plain);
  define(out, "BATCHED", view->batched);
  cuvil_buf_printf(
      out, "#define ELEMENT %s\n#define OUTPUT %s\n#define ENTRY %s\n",
      cuvil_emit_type(view->element),
      cuvil_emit_type(problem->operands[problem->output].dtype), entry);
}

static enum cuvil_status source_of(const struct cuvil_problem *problem,
                                   const struct cuvil_mma_view *view,
                                   const int64_t *v,
                                   const struct cuvil_mma_kernel *kernel,
                                   struct cuvil_buf *out) {
  define_point(problem, view, v, kernel->entry, out);
  CUVIL_TRY(cuvil_mma_append("kernels/common/types.cuh", out));
  CUVIL_TRY(cuvil_mma_append("kernels/common/operators.cuh", out));
  cuvil_emit_epilogue(problem, false, out);
  CUVIL_TRY(cuvil_mma_append("kernels/common/mma_index.cuh", out));
  CUVIL_TRY(cuvil_mma_append("kernels/common/mma_ptx.cuh", out));
  cuvil_mma_side_words(problem, view, out);
  CUVIL_TRY(cuvil_mma_append("kernels/common/mma_loop.cuh", out));
  CUVIL_TRY(cuvil_mma_append(kernel->multiplier, out));
  CUVIL_TRY(cuvil_mma_append(kernel->loader, out));
  CUVIL_TRY(cuvil_mma_append("kernels/common/mma_kernel.cuh", out));
  return cuvil_buf_status(out);
}

/* Buffer i is operand i; then what a split through global memory needs. */
static enum cuvil_status add_buffers(const struct cuvil_problem *problem,
                                     const struct cuvil_derived *derived,
                                     int64_t tiles,
                                     struct cuvil_program *program,
                                     int *out_partial, int *out_semaphore) {
  *out_partial = *out_semaphore = -1;
  for (int i = 0; i < problem->operand_count; i++)
    CUVIL_TRY(cuvil_program_add_buffer(
        program, CUVIL_BUFFER_OPERAND, i,
        (uint64_t)cuvil_operand_bytes(problem, i), NULL));
  if (derived->workspace_bytes == 0) return CUVIL_OK;
  uint64_t counters = (uint64_t)tiles * 4;
  CUVIL_TRY(cuvil_program_add_buffer(program, CUVIL_BUFFER_WORKSPACE, -1,
                                     derived->workspace_bytes - counters,
                                     out_partial));
  return cuvil_program_add_buffer(program, CUVIL_BUFFER_ZEROED, -1, counters,
                                  out_semaphore);
}

/* A pointer that the kernel will not follow is null. */
static enum cuvil_status add_pointer(struct cuvil_step *step, int buffer) {
  return buffer < 0 ? cuvil_step_arg_i64(step, 0)
                    : cuvil_step_arg_buffer(step, buffer, 0);
}

static enum cuvil_status add_arguments(const struct cuvil_problem *problem,
                                       const struct cuvil_mma_view *view,
                                       const int64_t *v, int partial,
                                       int semaphore, struct cuvil_step *step) {
  int64_t split = v[CUVIL_MMA_SPLIT_K], tile_k = v[CUVIL_MMA_TILE_K];
  int64_t tiles = (view->k + tile_k - 1) / tile_k;
  CUVIL_TRY(cuvil_step_arg_buffer(step, 0, 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, 1, 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, problem->output, 0));
  CUVIL_TRY(add_pointer(step, partial));
  CUVIL_TRY(add_pointer(step, semaphore));
  CUVIL_TRY(cuvil_step_arg_i32(step, view->m));
  CUVIL_TRY(cuvil_step_arg_i32(step, view->n));
  CUVIL_TRY(cuvil_step_arg_i32(step, view->k));
  CUVIL_TRY(cuvil_step_arg_i32(step, v[CUVIL_MMA_ORDER]));
  CUVIL_TRY(cuvil_step_arg_i32(step, split));
  CUVIL_TRY(cuvil_step_arg_i32(step, tiles / split));
  return cuvil_step_arg_i32(step, tiles % split);
}

enum cuvil_status cuvil_mma_gemm_arguments(const struct cuvil_problem *problem,
                                           const struct cuvil_mma_view *view,
                                           struct cuvil_step *step) {
  (void)problem;
  CUVIL_TRY(cuvil_step_arg_i32(step, view->pitch));
  CUVIL_TRY(cuvil_step_arg_i32(step, view->pitch_a));
  CUVIL_TRY(cuvil_step_arg_i32(step, view->pitch_b));
  if (!view->batched) return CUVIL_OK;
  CUVIL_TRY(cuvil_step_arg_i64(step, view->step));
  CUVIL_TRY(cuvil_step_arg_i64(step, view->step_a));
  return cuvil_step_arg_i64(step, view->step_b);
}

static enum cuvil_status divider(struct cuvil_step *step, int64_t divisor) {
  uint32_t magic, shift;
  cuvil_mma_divider((uint32_t)divisor, &magic, &shift);
  CUVIL_TRY(cuvil_step_arg_i32(step, (int32_t)magic));
  return cuvil_step_arg_i32(step, (int32_t)shift);
}

/* In the order of KERNEL_PARAMETERS in conv_mma.cu, from pitch on. */
enum cuvil_status cuvil_mma_conv_arguments(const struct cuvil_problem *problem,
                                           const struct cuvil_mma_view *view,
                                           struct cuvil_step *step) {
  int64_t c = cuvil_problem_extent(problem, "c");
  int64_t p = cuvil_problem_extent(problem, "p");
  int64_t q = cuvil_problem_extent(problem, "q");
  int64_t s = cuvil_problem_extent(problem, "s");
  const int64_t values[] = {view->pitch,
                            cuvil_problem_extent(problem, "h"),
                            cuvil_problem_extent(problem, "w"),
                            c,
                            q,
                            problem->stride[0],
                            problem->stride[1],
                            problem->pad[0],
                            problem->pad[1],
                            problem->dilation[0],
                            problem->dilation[1],
                            s,
                            p * q};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    CUVIL_TRY(cuvil_step_arg_i32(step, values[i]));
  CUVIL_TRY(divider(step, p * q));
  CUVIL_TRY(divider(step, q));
  CUVIL_TRY(divider(step, c));
  return divider(step, s);
}

static void shape_launch(const struct cuvil_mma_view *view, const int64_t *v,
                         const struct cuvil_derived *derived,
                         struct cuvil_step *step) {
  int64_t tiles_m = (view->m + v[CUVIL_MMA_TILE_M] - 1) / v[CUVIL_MMA_TILE_M];
  int64_t tiles_n = (view->n + v[CUVIL_MMA_TILE_N] - 1) / v[CUVIL_MMA_TILE_N];
  bool bands = v[CUVIL_MMA_ORDER] != 0;
  uint32_t split = (uint32_t)v[CUVIL_MMA_SPLIT_K];
  step->grid[0] = (uint32_t)(bands ? tiles_m * tiles_n : tiles_m);
  step->grid[1] = (uint32_t)(bands ? 1 : tiles_n);
  step->grid[2] = split * (uint32_t)view->batch;
  step->block[0] = (uint32_t)derived->threads;
  step->block[1] = step->block[2] = 1;
  if (v[CUVIL_MMA_REDUCE]) {
    step->cluster[0] = step->cluster[1] = 1;
    step->cluster[2] = split;
  }
  step->shared_bytes = (uint32_t)derived->shared_bytes;
  step->programmatic = v[CUVIL_MMA_PDL] != 0;
}

enum cuvil_status cuvil_mma_emit(const struct cuvil_query *query,
                                 const struct cuvil_config *config,
                                 const struct cuvil_mma_kernel *kernel,
                                 struct cuvil_program **out) {
  *out = NULL;
  const struct cuvil_problem *problem = query->problem;
  const int64_t *v = config->value;
  struct cuvil_mma_view view;
  struct cuvil_derived derived;
  if (!cuvil_mma_view(problem, &view) ||
      !(kernel->simt ? cuvil_simt_derive : cuvil_mma_derive)(query, config,
                                                             &derived))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "this configuration cannot compute the problem");
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf source = {0};
  struct cuvil_program *program = NULL;
  struct cuvil_step *step;
  int buffers[CUVIL_MAX_OPERANDS], partial, semaphore, module;
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++)
    buffers[i] = i;
  CUVIL_TRY_GOTO(source_of(problem, &view, v, kernel, &source));
  CUVIL_TRY_GOTO(cuvil_program_create(&program));
  CUVIL_TRY_GOTO(add_buffers(problem, &derived,
                             derived.blocks / v[CUVIL_MMA_SPLIT_K], program,
                             &partial, &semaphore));
  CUVIL_TRY_GOTO(cuvil_program_add_module(program, cuvil_buf_text(&source),
                                          query->arch->nvrtc_name, NULL,
                                          &module));
  CUVIL_TRY_GOTO(cuvil_program_add_step(program, CUVIL_STEP_LAUNCH, &step));
  step->module = module;
  snprintf(step->entry, sizeof step->entry, "%s", kernel->entry);
  shape_launch(&view, v, &derived, step);
  CUVIL_TRY_GOTO(add_arguments(problem, &view, v, partial, semaphore, step));
  CUVIL_TRY_GOTO(kernel->arguments(problem, &view, step));
  CUVIL_TRY_GOTO(cuvil_emit_epilogue_arguments(problem, buffers, NULL, step));
  cuvil_buf_free(&source);
  *out = program;
  return CUVIL_OK;
fail:
  cuvil_buf_free(&source);
  cuvil_program_destroy(program);
  return status;
}
