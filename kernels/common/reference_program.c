/* reference_program.c - what is right, on the GPU: the naive template over
 * (value, error) pairs in fp64, and the comparison of an output with it.
 *
 * The error rules in checked.cuh are those of the CPU reference
 * (problem/reference.c); the GPU tests hold one against the other.
 */
#include "kernels/naive/naive.h"

enum { BLOCK = 256, COMPARE_BLOCK = 128, COMPARE_BLOCKS = 512 };

/* Values and bounds of an output; the bounds start as NaN, so that storage
 * between strided elements keeps it. */
static enum cuvil_status add_output(struct cuvil_emission *e, int operand,
                                    int *out_bounds) {
  const struct cuvil_problem *p = e->query->problem;
  uint64_t bytes = (uint64_t)cuvil_operand_elements(p, operand) * 8;
  struct cuvil_step *step;
  e->program->buffers[e->buffers[operand]].bytes = bytes;
  CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_OPERAND,
                                     CUVIL_MAX_OPERANDS + operand, bytes,
                                     out_bounds));
  CUVIL_TRY(cuvil_program_add_step(e->program, CUVIL_STEP_MEMSET, &step));
  step->buffer = *out_bounds;
  step->bytes = bytes;
  step->value = 0xff;
  return CUVIL_OK;
}

static enum cuvil_status add_reference(struct cuvil_emission *e) {
  const struct cuvil_problem *p = e->query->problem;
  int bounds[CUVIL_MAX_OPERANDS] = {0};
  for (int i = 0; i < p->operand_count; i++)
    if (p->operands[i].role == CUVIL_ROLE_OUTPUT)
      CUVIL_TRY(add_output(e, i, &bounds[i]));
  return cuvil_naive_emit(e, bounds, BLOCK);
}

enum cuvil_status cuvil_reference_program(const struct cuvil_problem *problem,
                                          const struct cuvil_arch *arch,
                                          struct cuvil_program **out) {
  struct cuvil_query query = {problem, arch, NULL};
  struct cuvil_emission e;
  enum cuvil_status status = cuvil_emission_begin(&query, &e);
  if (status == CUVIL_OK) status = add_reference(&e);
  return cuvil_emission_end(&e, status, out);
}

/* ---- comparison */
static enum cuvil_status compare_source(enum cuvil_dtype dtype,
                                        struct cuvil_emission *e) {
  CUVIL_TRY(cuvil_emission_file(e, "kernels/common/types.cuh"));
  cuvil_buf_printf(&e->source, "typedef %s T;\n", cuvil_emit_type(dtype));
  cuvil_emission_define(e, "BLOCK", COMPARE_BLOCK);
  return cuvil_emission_file(e, "kernels/common/compare.cu");
}

static enum cuvil_status add_compare(struct cuvil_emission *e,
                                     enum cuvil_dtype dtype, int64_t elements) {
  const uint64_t record = sizeof(struct cuvil_compare_result);
  uint64_t count = (uint64_t)elements;
  int buffer[5];
  uint64_t bytes[4] = {count * cuvil_dtype_size(dtype), count * 8, count * 8,
                       record};
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_OPERAND, i,
                                       bytes[i], &buffer[i]));
  CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_WORKSPACE, -1,
                                     COMPARE_BLOCKS * record, &buffer[4]));
  CUVIL_TRY(compare_source(dtype, e));
  int64_t blocks = cuvil_ceil_div(elements, COMPARE_BLOCK);
  if (blocks > COMPARE_BLOCKS) blocks = COMPARE_BLOCKS;
  struct cuvil_step *step;
  CUVIL_TRY(
      cuvil_emission_launch(e, NULL, "compare", blocks, COMPARE_BLOCK, &step));
  for (int i = 0; i < 3; i++)
    CUVIL_TRY(cuvil_step_arg_buffer(step, buffer[i], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, buffer[4], 0));
  CUVIL_TRY(cuvil_step_arg_i64(step, elements));
  int module = step->module;
  CUVIL_TRY(cuvil_emission_step(e, module, "collect", 1, COMPARE_BLOCK, &step));
  CUVIL_TRY(cuvil_step_arg_buffer(step, buffer[4], 0));
  CUVIL_TRY(cuvil_step_arg_i32(step, blocks));
  return cuvil_step_arg_buffer(step, buffer[3], 0);
}

enum cuvil_status cuvil_compare_program(enum cuvil_dtype dtype,
                                        int64_t elements,
                                        const struct cuvil_arch *arch,
                                        struct cuvil_program **out) {
  *out = NULL;
  /* A query without operands: only its architecture is used. */
  static const struct cuvil_problem none;
  struct cuvil_query query = {&none, arch, NULL};
  struct cuvil_emission e;
  enum cuvil_status status = cuvil_emission_begin(&query, &e);
  if (status == CUVIL_OK) status = add_compare(&e, dtype, elements);
  return cuvil_emission_end(&e, status, out);
}
