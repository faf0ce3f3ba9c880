/* reduce.c - sums, means, maxima and minima over any dimensions.
 *
 * After neighbouring dimensions are merged two shapes remain: the input's
 * fastest dimension is kept (mean over h, w of NHWC: columns), or reduced
 * (rows).  Either way threads lie along the fastest dimension, as vectors
 * where it divides.  Parts are joined in a fixed order: the same input gives
 * the same bits.
 */
#include "kernels/common/emit.h"

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return problem->kind == CUVIL_KIND_REDUCE;
}

struct point {
  int lanes, parts, vec, pdl;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  return (struct point){
      (int)cuvil_config_get(query->space, config, "lanes"),
      (int)cuvil_config_get(query->space, config, "parts"),
      (int)cuvil_config_get(query->space, config, "vec"),
      (int)cuvil_config_get(query->space, config, "pdl"),
  };
}

static bool is_columns(const struct cuvil_problem *p) {
  int fastest = cuvil_fastest_dim(&p->operands[CUVIL_REDUCE_X]);
  return fastest >= 0 &&
         cuvil_operand_has_dim(&p->operands[CUVIL_REDUCE_Y], fastest);
}

static bool vector_fits(const struct cuvil_problem *p, int vec) {
  const struct cuvil_operand *x = &p->operands[CUVIL_REDUCE_X];
  int fastest = cuvil_fastest_dim(x);
  if (vec == 1) return true;
  return fastest >= 0 && x->limit[x->rank - 1] == 0 &&
         p->dims[fastest].extent % vec == 0;
}

static int64_t blocks_of(const struct cuvil_problem *p, struct point at) {
  int64_t each = is_columns(p) ? (int64_t)at.lanes * at.vec : at.parts;
  int64_t blocks = cuvil_ceil_div(cuvil_output_points(p), each);
  return blocks < 1 ? 1 : blocks;
}

/* Columns: few lanes a block where outputs are few, so that many blocks share
 * the work.  Rows: a warp or a block for each output. */
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  struct cuvil_problem p;
  cuvil_problem_collapse(query->problem, &p);
  int64_t points = cuvil_output_points(&p), reduced = cuvil_reduced_points(&p);
  int vec = cuvil_dtype_size(p.operands[CUVIL_REDUCE_X].dtype) >= 4 ? 4 : 8;
  int lanes = 32, parts = 8;
  if (is_columns(&p)) {
    while (vec > 1 && (!vector_fits(&p, vec) ||
                       points / vec / lanes < query->arch->sms / 2))
      vec /= 2;
    parts = reduced >= 16 ? 16 : 4;
  } else {
    while (!vector_fits(&p, vec))
      vec /= 2;
    if (reduced / vec > 256) lanes = 256, parts = 1;
  }
  cuvil_space_default(query->space, out);
  cuvil_config_set(query->space, out, "vec", vec);
  cuvil_config_set(query->space, out, "lanes", lanes);
  cuvil_config_set(query->space, out, "parts", parts);
  cuvil_config_set(query->space, out, "pdl", cuvil_default_pdl(query->arch));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct cuvil_problem p;
  struct point at = read_point(query, config);
  cuvil_problem_collapse(query->problem, &p);
  int row = is_columns(&p) ? at.lanes * at.vec + 1 : at.lanes + 1;
  out->threads = at.lanes * at.parts;
  out->shared_bytes = at.parts * row * 4;
  out->registers_least = 8 + at.vec;
  out->blocks = blocks_of(&p, at);
  out->cluster = 1;
  if (out->threads > query->arch->max_threads_per_block ||
      out->threads < query->arch->warp_size || out->shared_bytes > 48 * 1024)
    return false;
  cuvil_derive_waves(query->arch, out);
  return vector_fits(&p, at.vec) && (!at.pdl || query->arch->cc >= 90);
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct point at = read_point(query, config);
  size_t size =
      cuvil_dtype_size(query->problem->operands[CUVIL_REDUCE_X].dtype);
  return cuvil_predict_memory(query->arch, derived,
                              cuvil_problem_bytes(query->problem),
                              4.0 * (double)size * at.vec) +
         1e-8 * at.parts - 1e-6 * at.pdl;
}

/* KEPT_COORDINATES: the kept dimensions in the input's order. */
static void put_kept(const struct cuvil_problem *p, struct cuvil_buf *out) {
  const struct cuvil_operand *x = &p->operands[CUVIL_REDUCE_X];
  const struct cuvil_operand *y = &p->operands[CUVIL_REDUCE_Y];
  cuvil_buf_puts(out, "#define KEPT_COORDINATES(i) index_t kept_ = (i);");
  for (int i = x->rank - 1; i >= 0; i--) {
    const char *name = p->dims[x->dims[i]].name;
    if (!cuvil_operand_has_dim(y, x->dims[i])) continue;
    cuvil_buf_printf(out,
                     " const int i_%s = (int)(kept_ %% e_%s); kept_ /= e_%s;",
                     name, name, name);
  }
  cuvil_buf_puts(out, "\n");
}

static enum cuvil_status add_kernel(struct cuvil_emission *e, struct point at) {
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  cuvil_emit_operand(p, CUVIL_REDUCE_Y, "OUT", &e->source);
  cuvil_emit_operand(p, CUVIL_REDUCE_X, "IN", &e->source);
  put_kept(p, &e->source);
  cuvil_emission_define(e, "REDUCE_OP", p->reduce_op);
  cuvil_emission_define(e, "COLUMNS", is_columns(p));
  cuvil_emission_define(e, "LANES", at.lanes);
  cuvil_emission_define(e, "PARTS", at.parts);
  cuvil_emission_define(e, "VEC", at.vec);
  cuvil_emission_define(e, "UNROLL", 4);
  cuvil_emission_define(e, "IN_ALIGNED",
                        cuvil_operand_alignment(p, CUVIL_REDUCE_X));
  CUVIL_TRY(cuvil_emission_file(e, "kernels/reduce/reduce.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "reduce", blocks_of(p, at),
                                  at.lanes * at.parts, &step));
  step->programmatic = at.pdl;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_REDUCE_Y], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_REDUCE_X], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_REDUCE_Y, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_REDUCE_X, step));
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

const struct cuvil_family cuvil_family_reduce = {
    .id = "reduce",
    .version = 1,
    .about = "sum, mean, max, min over any dimensions",
    .kinds = 1u << CUVIL_KIND_REDUCE,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
