/* pointwise.c - expressions over tensors of any layout, memory-bound.
 *
 * A thread computes runs of `vec` neighbours of the output, which may be part
 * of a larger buffer (a slice, a piece of a concatenation).  Side inputs laid
 * out like the output, or along its fastest dimension, are read as vectors;
 * others are gathered, which is just right for a few channels: a thread then
 * reads one element of each plane, neighbours read neighbours, and it writes
 * all channels at once (NCHW to NHWC4 of a network's input).
 */
#include "kernels/common/emit.h"

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return problem->kind == CUVIL_KIND_POINTWISE;
}

/* No operand needs coordinates: the output may be cut anywhere. */
static bool is_flat(const struct cuvil_problem *p) {
  for (int i = 0; i < p->operand_count; i++)
    if (p->operands[i].rank && !cuvil_operand_like_output(p, i)) return false;
  return true;
}

static bool vector_fits(const struct cuvil_problem *p, int vec) {
  const struct cuvil_operand *y = &p->operands[p->output];
  if (vec == 1) return true;
  if (y->rank == 0) return false;
  if (!y->strided && is_flat(p)) return true;
  /* Whole runs, at places that the epilogue may take to be aligned. */
  return p->dims[y->dims[y->rank - 1]].extent % vec == 0 &&
         cuvil_operand_alignment(p, p->output) >= vec;
}

struct point {
  int block, vec, items, pdl;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  return (struct point){
      (int)cuvil_config_get(query->space, config, "block"),
      (int)cuvil_config_get(query->space, config, "vec"),
      (int)cuvil_config_get(query->space, config, "items"),
      (int)cuvil_config_get(query->space, config, "pdl"),
  };
}

static int64_t blocks_of(const struct cuvil_problem *p, struct point at) {
  int64_t points = cuvil_output_points(p);
  int64_t blocks =
      cuvil_ceil_div(points, (int64_t)at.block * at.vec * at.items);
  return blocks < 1 ? 1 : blocks;
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  struct cuvil_problem p;
  cuvil_problem_collapse(query->problem, &p);
  size_t size = cuvil_dtype_size(p.operands[p.output].dtype);
  int vec = size >= 4 ? 4 : 8;
  while (!vector_fits(&p, vec))
    vec /= 2;
  int block = 256;
  while (block > 64 && cuvil_output_points(&p) / vec / block < query->arch->sms)
    block /= 2;
  cuvil_space_default(query->space, out);
  cuvil_config_set(query->space, out, "vec", vec);
  cuvil_config_set(query->space, out, "block", block);
  cuvil_config_set(query->space, out, "pdl", cuvil_default_pdl(query->arch));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct cuvil_problem p;
  struct point at = read_point(query, config);
  cuvil_problem_collapse(query->problem, &p);
  out->threads = at.block;
  out->registers_least = 8;
  out->blocks = blocks_of(&p, at);
  out->cluster = 1;
  cuvil_derive_waves(query->arch, out);
  return vector_fits(&p, at.vec) && (!at.pdl || query->arch->cc >= 90);
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct point at = read_point(query, config);
  return cuvil_predict_memory(query->arch, derived,
                              cuvil_problem_bytes(query->problem),
                              4.0 * at.vec) -
         1e-6 * at.pdl;
}

static enum cuvil_status add_kernel(struct cuvil_emission *e, struct point at) {
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emission_define(e, "BLOCK", at.block);
  cuvil_emission_define(e, "VEC", at.vec);
  cuvil_emission_define(e, "ITEMS", at.items);
  cuvil_emission_define(e, "PACKED", !p->operands[p->output].strided);
  cuvil_emit_points(p, &e->source);
  cuvil_emit_operand(p, p->output, "OUT", &e->source);
  CUVIL_TRY(cuvil_emission_file(e, "kernels/pointwise/pointwise.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "pointwise", blocks_of(p, at),
                                  at.block, &step));
  step->programmatic = at.pdl;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[p->output], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, p->output, step));
  return cuvil_emit_epilogue_arguments(p, e->buffers, NULL, step);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_problem collapsed;
  struct cuvil_query inner = *query;
  struct cuvil_emission e;
  cuvil_problem_collapse(query->problem, &collapsed);
  inner.problem = &collapsed;
  enum cuvil_status status = cuvil_emission_begin(&inner, &e);
  if (status == CUVIL_OK) status = add_kernel(&e, read_point(query, config));
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_pointwise = {
    .id = "pointwise",
    .version = 1,
    .about = "expressions over tensors: vectors, broadcasts, conversions",
    .kinds = 1u << CUVIL_KIND_POINTWISE,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
