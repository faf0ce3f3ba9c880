/* norm_row.c - layer norm, RMS norm, softmax and log-softmax over rows.
 *
 * A row belongs to a warp or to several; what it needs between the passes stays
 * in registers where it fits, so that memory is read once.  Few rows want many
 * threads each, many rows one warp each: both are points of one space.
 * Constants of the epilogue (gamma, beta) may be read before the kernel in
 * front has finished.  Rows too long for registers are read once a pass.
 */
#include "kernels/common/emit.h"

static bool is_float(enum cuvil_dtype dtype) {
  return dtype == CUVIL_F16 || dtype == CUVIL_BF16 || dtype == CUVIL_F32;
}

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return problem->kind == CUVIL_KIND_NORM &&
         is_float(problem->operands[CUVIL_NORM_X].dtype);
}

struct point {
  int threads, rows, vec, items, ahead, pdl;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  return (struct point){
      (int)cuvil_config_get(query->space, config, "threads"),
      (int)cuvil_config_get(query->space, config, "rows"),
      (int)cuvil_config_get(query->space, config, "vec"),
      (int)cuvil_config_get(query->space, config, "items"),
      (int)cuvil_config_get(query->space, config, "ahead"),
      (int)cuvil_config_get(query->space, config, "pdl"),
  };
}

/* Columns fastest in input and output, whole vectors of them, which the
 * epilogue may take to be aligned. */
static bool vector_fits(const struct cuvil_problem *p, int vec) {
  const struct cuvil_operand *x = &p->operands[CUVIL_NORM_X];
  const struct cuvil_operand *y = &p->operands[CUVIL_NORM_Y];
  if (vec == 1) return true;
  return cuvil_fastest_dim(x) == CUVIL_NORM_DIM_N &&
         cuvil_fastest_dim(y) == CUVIL_NORM_DIM_N &&
         x->limit[x->rank - 1] == 0 &&
         cuvil_operand_alignment(p, CUVIL_NORM_Y) >= vec &&
         p->dims[CUVIL_NORM_DIM_N].extent % vec == 0;
}

static int element_size(const struct cuvil_problem *p) {
  return (int)cuvil_dtype_size(p->operands[CUVIL_NORM_X].dtype);
}

static int64_t blocks_of(const struct cuvil_problem *p, struct point at) {
  int64_t blocks = cuvil_ceil_div(p->dims[CUVIL_NORM_DIM_M].extent, at.rows);
  return blocks < 1 ? 1 : blocks;
}

/* Smallest of the space's values that is at least `value`; its largest when
 * none is. */
static int64_t value_for(const struct cuvil_space *space, const char *name,
                         int64_t value) {
  const struct cuvil_param *p = &space->params[cuvil_space_param(space, name)];
  int64_t best = -1, largest = p->values[0];
  for (int i = 0; i < p->count; i++) {
    if (p->values[i] > largest) largest = p->values[i];
    if (p->values[i] >= value && (best < 0 || p->values[i] < best))
      best = p->values[i];
  }
  return best < 0 ? largest : best;
}

/* Few rows: a row's elements spread over as many threads as there are runs.
 * Many: about 4 runs a thread, a warp where that is enough. */
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  const struct cuvil_problem *p = query->problem;
  int64_t n = p->dims[CUVIL_NORM_DIM_N].extent;
  int64_t m = p->dims[CUVIL_NORM_DIM_M].extent;
  int vec = element_size(p) >= 4 ? 4 : 8;
  while (!vector_fits(p, vec))
    vec /= 2;
  bool few = m <= 8 * (int64_t)query->arch->sms;
  int64_t runs = cuvil_ceil_div(n, vec);
  int64_t threads = value_for(query->space, "threads",
                              few ? runs : cuvil_ceil_div(runs, 32 / vec));
  if (threads > 512 && runs <= 512 * (32 / vec)) threads = 512;
  int64_t items =
      value_for(query->space, "items", cuvil_ceil_div(runs, threads));
  bool kept = items * threads >= runs && items * vec <= 32;
  int64_t rows = 1;
  while (!few && rows < 4 && threads * rows < 128)
    rows *= 2;
  cuvil_space_default(query->space, out);
  cuvil_config_set(query->space, out, "threads", threads);
  cuvil_config_set(query->space, out, "rows", rows);
  cuvil_config_set(query->space, out, "vec", vec);
  cuvil_config_set(query->space, out, "items", kept ? items : 0);
  cuvil_config_set(query->space, out, "ahead", kept && items * vec <= 16);
  cuvil_config_set(query->space, out, "pdl", cuvil_default_pdl(query->arch));
}

/* Registers that the kept elements take at least: 16-bit ones may stay packed.
 */
static int kept_registers(const struct cuvil_problem *p, struct point at) {
  return at.items * at.vec * (element_size(p) < 4 ? 1 : 2) / 2;
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  const struct cuvil_problem *p = query->problem;
  struct point at = read_point(query, config);
  int64_t n = p->dims[CUVIL_NORM_DIM_N].extent;
  out->threads = at.threads * at.rows;
  out->shared_bytes =
      at.threads > 32 && at.threads % 32 == 0 ? 8 * (out->threads / 32) : 0;
  if (p->norm_op == CUVIL_NORM_RMS) out->shared_bytes /= 2;
  out->registers_least = 8 + kept_registers(p, at);
  out->blocks = blocks_of(p, at);
  out->cluster = 1;
  if (out->threads > query->arch->max_threads_per_block) return false;
  cuvil_derive_waves(query->arch, out);
  if (at.items && (int64_t)at.items * at.threads * at.vec < n) return false;
  if (at.items * at.vec > 64 || (at.ahead && at.items == 0)) return false;
  return vector_fits(p, at.vec) && (!at.pdl || query->arch->cc >= 90);
}

/* Memory, what idle lanes waste of it, and what joins and passes take. */
static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = query->problem;
  struct point at = read_point(query, config);
  double n = (double)p->dims[CUVIL_NORM_DIM_N].extent;
  int items = at.items ? at.items : 4;
  double seconds =
      cuvil_predict_memory(query->arch, derived, cuvil_problem_bytes(p),
                           (double)items * at.vec * element_size(p));
  double lanes = (double)at.threads * at.vec * (at.items ? at.items : 1);
  seconds += 2e-7 * (lanes > n ? lanes / n - 1 : 0);
  seconds += 1e-8 * (at.threads / 32) + (at.items ? 4e-8 * at.items : 1e-6);
  return seconds - 2e-7 * at.ahead - 1e-6 * at.pdl;
}

static enum cuvil_status add_kernel(struct cuvil_emission *e, struct point at) {
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  cuvil_emit_operand(p, CUVIL_NORM_Y, "OUT", &e->source);
  cuvil_emit_operand(p, CUVIL_NORM_X, "IN", &e->source);
  cuvil_emission_define(e, "NORM_OP", p->norm_op);
  cuvil_emission_define(e, "TPR", at.threads);
  cuvil_emission_define(e, "ROWS", at.rows);
  cuvil_emission_define(e, "VEC", at.vec);
  cuvil_emission_define(e, "ITEMS", at.items);
  cuvil_emission_define(e, "AHEAD", at.ahead);
  cuvil_emission_define(e, "IN_ALIGNED",
                        cuvil_operand_alignment(p, CUVIL_NORM_X));
  CUVIL_TRY(cuvil_emission_file(e, "kernels/norm_row/norm_row.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "norm_row", blocks_of(p, at),
                                  at.threads * at.rows, &step));
  step->programmatic = at.pdl;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_NORM_Y], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_NORM_X], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_NORM_Y, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_NORM_X, step));
  CUVIL_TRY(cuvil_step_arg_f32(step, p->eps));
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

const struct cuvil_family cuvil_family_norm_row = {
    .id = "norm_row",
    .version = 1,
    .about = "layer norm, RMS norm, softmax, log-softmax: rows in registers",
    .kinds = 1u << CUVIL_KIND_NORM,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
