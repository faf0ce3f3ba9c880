/* emission.c - a program put together from pieces of text.
 *
 * A source is types, operators and epilogue, then the configuration as
 * #defines, then the family's template.  Everything is plain concatenation:
 * what the compiler sees is one file that can be written out and read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/embed.h"
#include "kernels/common/emit.h"

enum cuvil_status cuvil_emission_begin(const struct cuvil_query *query,
                                       struct cuvil_emission *out) {
  memset(out, 0, sizeof *out);
  out->query = query;
  CUVIL_TRY(cuvil_program_create(&out->program));
  for (int i = 0; i < query->problem->operand_count; i++)
    CUVIL_TRY(cuvil_program_add_buffer(
        out->program, CUVIL_BUFFER_OPERAND, i,
        (uint64_t)cuvil_operand_bytes(query->problem, i), &out->buffers[i]));
  return CUVIL_OK;
}

enum cuvil_status cuvil_emission_file(struct cuvil_emission *emission,
                                      const char *name) {
  const struct cuvil_embedded *file = cuvil_embedded_find(name);
  if (!file)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "template %s is not built in", name);
  cuvil_buf_add(&emission->source, file->data, file->size);
  return cuvil_buf_status(&emission->source);
}

enum cuvil_status cuvil_emission_prelude(struct cuvil_emission *emission,
                                         bool checked) {
  CUVIL_TRY(cuvil_emission_file(emission, "kernels/common/types.cuh"));
  if (checked) {
    CUVIL_TRY(cuvil_emission_file(emission, "problem/checked.h"));
    CUVIL_TRY(cuvil_emission_file(emission, "problem/checked_row.h"));
  }
  CUVIL_TRY(
      cuvil_emission_file(emission, checked ? "kernels/common/checked.cuh"
                                            : "kernels/common/operators.cuh"));
  /* An attention has none; its mask is a side input that its kernel reads. */
  if (emission->query->problem->kind != CUVIL_KIND_ATTENTION)
    cuvil_emit_epilogue(emission->query->problem, checked, &emission->source);
  return cuvil_buf_status(&emission->source);
}

void cuvil_emission_define(struct cuvil_emission *emission, const char *name,
                           int64_t value) {
  cuvil_buf_printf(&emission->source, "#define %s %" PRId64 "\n", name, value);
}

enum cuvil_status cuvil_emission_step(struct cuvil_emission *emission,
                                      int module, const char *entry,
                                      int64_t blocks, int threads,
                                      struct cuvil_step **out_step) {
  *out_step = NULL;
  if (blocks < 1 || blocks > INT32_MAX)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "kernel %s would need a grid of %" PRId64 " blocks",
                      entry, blocks);
  CUVIL_TRY(
      cuvil_program_add_step(emission->program, CUVIL_STEP_LAUNCH, out_step));
  struct cuvil_step *step = *out_step;
  step->module = module;
  snprintf(step->entry, sizeof step->entry, "%s", entry);
  step->grid[0] = (uint32_t)blocks;
  step->block[0] = (uint32_t)threads;
  step->grid[1] = step->grid[2] = step->block[1] = step->block[2] = 1;
  return CUVIL_OK;
}

enum cuvil_status cuvil_emission_launch(struct cuvil_emission *emission,
                                        const char *options, const char *entry,
                                        int64_t blocks, int threads,
                                        struct cuvil_step **out_step) {
  int module;
  *out_step = NULL;
  CUVIL_TRY(cuvil_buf_status(&emission->source));
  CUVIL_TRY(cuvil_program_add_module(emission->program, emission->source.data,
                                     emission->query->arch->nvrtc_name, options,
                                     &module));
  cuvil_buf_clear(&emission->source);
  return cuvil_emission_step(emission, module, entry, blocks, threads,
                             out_step);
}

enum cuvil_status cuvil_emission_end(struct cuvil_emission *emission,
                                     enum cuvil_status status,
                                     struct cuvil_program **out) {
  cuvil_buf_free(&emission->source);
  if (status == CUVIL_OK) {
    *out = emission->program;
  } else {
    *out = NULL;
    cuvil_program_destroy(emission->program);
  }
  emission->program = NULL;
  return status;
}

void cuvil_derive_waves(const struct cuvil_arch *arch,
                        struct cuvil_derived *derived) {
  int each = cuvil_arch_blocks_per_sm(
      arch, derived->threads, derived->registers_least, derived->shared_bytes);
  derived->waves =
      each ? (double)derived->blocks / ((double)each * arch->sms) : 0;
}

double cuvil_predict_memory(const struct cuvil_arch *arch,
                            const struct cuvil_derived *derived, double bytes,
                            double in_flight) {
  const double start = 2e-6, latency = 7e-7;
  double threads = (double)derived->blocks * derived->threads;
  double resident = (double)arch->max_threads_per_sm * arch->sms;
  double under_way = (threads < resident ? threads : resident) * in_flight;
  double rate = under_way / latency;
  if (rate > arch->memory_bytes_per_second)
    rate = arch->memory_bytes_per_second;
  return start + (rate > 0 ? bytes / rate : 0);
}

int cuvil_default_pdl(const struct cuvil_arch *arch) {
  return arch->cc >= 90;
}
