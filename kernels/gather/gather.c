/* gather.c - rows of a table by index: embeddings.
 *
 * Memory-bound and mostly latency-bound: an index, then a row that depends on
 * it.  Threads lie along the row in runs of `vec`, whatever the number of rows,
 * so that one long row and many short ones both fill the chip.
 */
#include "kernels/common/emit.h"

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return problem->kind == CUVIL_KIND_GATHER;
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

/* Columns fastest in table and output, whole vectors of them, which the
 * epilogue may take to be aligned. */
static bool vector_fits(const struct cuvil_problem *p, int vec) {
  const struct cuvil_operand *table = &p->operands[CUVIL_GATHER_TABLE];
  const struct cuvil_operand *y = &p->operands[CUVIL_GATHER_Y];
  if (vec == 1) return true;
  return cuvil_fastest_dim(table) == CUVIL_GATHER_DIM_N &&
         cuvil_fastest_dim(y) == CUVIL_GATHER_DIM_N &&
         table->limit[table->rank - 1] == 0 &&
         cuvil_operand_alignment(p, CUVIL_GATHER_Y) >= vec &&
         p->dims[CUVIL_GATHER_DIM_N].extent % vec == 0;
}

static int64_t blocks_of(const struct cuvil_problem *p, struct point at) {
  int64_t blocks = cuvil_ceil_div(cuvil_output_points(p) / at.vec,
                                  (int64_t)at.block * at.items);
  return blocks < 1 ? 1 : blocks;
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  const struct cuvil_problem *p = query->problem;
  int64_t points = cuvil_output_points(p);
  size_t size = cuvil_dtype_size(p->operands[CUVIL_GATHER_TABLE].dtype);
  int vec = size >= 4 ? 4 : 8, block = 256;
  while (!vector_fits(p, vec))
    vec /= 2;
  while (block > 64 && points / vec / block < query->arch->sms)
    block /= 2;
  cuvil_space_default(query->space, out);
  cuvil_config_set(query->space, out, "vec", vec);
  cuvil_config_set(query->space, out, "block", block);
  cuvil_config_set(query->space, out, "pdl", cuvil_default_pdl(query->arch));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct point at = read_point(query, config);
  out->threads = at.block;
  out->registers_least = 8;
  out->blocks = blocks_of(query->problem, at);
  out->cluster = 1;
  cuvil_derive_waves(query->arch, out);
  return vector_fits(query->problem, at.vec) &&
         (!at.pdl || query->arch->cc >= 90);
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = query->problem;
  struct point at = read_point(query, config);
  size_t size = cuvil_dtype_size(p->operands[CUVIL_GATHER_TABLE].dtype);
  return cuvil_predict_memory(query->arch, derived, cuvil_problem_bytes(p),
                              (double)size * at.vec * at.items) +
         1e-8 * at.items - 1e-6 * at.pdl;
}

static enum cuvil_status add_kernel(struct cuvil_emission *e, struct point at) {
  static const struct {
    int operand;
    const char *name;
  } operands[] = {{CUVIL_GATHER_Y, "OUT"},
                  {CUVIL_GATHER_TABLE, "TABLE"},
                  {CUVIL_GATHER_INDEX, "INDEX"}};
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  for (int i = 0; i < 3; i++)
    cuvil_emit_operand(p, operands[i].operand, operands[i].name, &e->source);
  cuvil_emission_define(e, "BLOCK", at.block);
  cuvil_emission_define(e, "VEC", at.vec);
  cuvil_emission_define(e, "ITEMS", at.items);
  cuvil_emission_define(e, "TABLE_ALIGNED",
                        cuvil_operand_alignment(p, CUVIL_GATHER_TABLE));
  CUVIL_TRY(cuvil_emission_file(e, "kernels/gather/gather.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "gather", blocks_of(p, at), at.block,
                                  &step));
  step->programmatic = at.pdl;
  for (int i = 0; i < 3; i++)
    CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[operands[i].operand], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  for (int i = 0; i < 3; i++)
    CUVIL_TRY(cuvil_emit_operand_arguments(p, operands[i].operand, step));
  return cuvil_emit_epilogue_arguments(p, e->buffers, NULL, step);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = add_kernel(&e, read_point(query, config));
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_gather = {
    .id = "gather",
    .version = 1,
    .about = "rows of a table by index, with an expression over them",
    .kinds = 1u << CUVIL_KIND_GATHER,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
