/* pool.c - max and average pooling.
 *
 * In NHWC a thread takes a run of channels, so that every load of the window
 * is a vector and a warp's loads are adjacent; any other layout goes element
 * by element in the output's own order.
 */
#include "kernels/common/emit.h"

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return problem->kind == CUVIL_KIND_POOL;
}

/* Channels fastest in input and output, whole vectors of them. */
static bool vector_fits(const struct cuvil_problem *p, int vec) {
  const struct cuvil_operand *x = &p->operands[CUVIL_POOL_X];
  const struct cuvil_operand *y = &p->operands[CUVIL_POOL_Y];
  if (vec == 1) return true;
  if (cuvil_fastest_dim(x) != CUVIL_POOL_DIM_C ||
      cuvil_fastest_dim(y) != CUVIL_POOL_DIM_C ||
      cuvil_operand_alignment(p, CUVIL_POOL_Y) < vec)
    return false;
  return x->limit[x->rank - 1] == 0 &&
         p->dims[CUVIL_POOL_DIM_C].extent % vec == 0;
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
  return cuvil_ceil_div(cuvil_output_points(p),
                        (int64_t)at.block * at.vec * at.items);
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  const struct cuvil_problem *p = query->problem;
  int vec = cuvil_dtype_size(p->operands[CUVIL_POOL_X].dtype) >= 4 ? 4 : 8;
  int64_t enough = (int64_t)query->arch->sms * 512;
  while (vec > 1 && (!vector_fits(p, vec) ||
                     (vec > 2 && cuvil_output_points(p) / vec < enough)))
    vec /= 2;
  int block = 256;
  while (block > 64 && cuvil_output_points(p) / vec / block < query->arch->sms)
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
  out->registers_least = 8 + at.vec;
  out->blocks = blocks_of(query->problem, at);
  out->cluster = 1;
  cuvil_derive_waves(query->arch, out);
  return vector_fits(query->problem, at.vec) &&
         (!at.pdl || query->arch->cc >= 90);
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct point at = read_point(query, config);
  size_t size = cuvil_dtype_size(query->problem->operands[CUVIL_POOL_X].dtype);
  return cuvil_predict_memory(query->arch, derived,
                              cuvil_problem_bytes(query->problem),
                              3.0 * (double)size * at.vec) -
         1e-6 * at.pdl;
}

/* A window up to 16 elements is unrolled whole; of a larger one, four columns
 * are loaded at a time. */
static void put_defines(struct cuvil_emission *e, struct point at) {
  const struct cuvil_problem *p = e->query->problem;
  int64_t r = p->dims[CUVIL_POOL_DIM_R].extent;
  int64_t s = p->dims[CUVIL_POOL_DIM_S].extent;
  bool small = r * s <= 16;
  int64_t batch = s < 4 ? s : 4;
  cuvil_emission_define(e, "POOL_OP", p->pool_op);
  cuvil_emission_define(e, "R", r);
  cuvil_emission_define(e, "S", s);
  cuvil_emission_define(e, "STRIDE_H", p->stride[0]);
  cuvil_emission_define(e, "STRIDE_W", p->stride[1]);
  cuvil_emission_define(e, "PAD_TOP", p->pad[0]);
  cuvil_emission_define(e, "PAD_LEFT", p->pad[1]);
  cuvil_emission_define(e, "OVER", p->over[0] || p->over[1]);
  cuvil_emission_define(e, "END_H", p->pad[2] - p->over[0]);
  cuvil_emission_define(e, "END_W", p->pad[3] - p->over[1]);
  cuvil_emission_define(e, "DILATION_H", p->dilation[0]);
  cuvil_emission_define(e, "DILATION_W", p->dilation[1]);
  cuvil_emission_define(e, "BATCH", batch);
  cuvil_emission_define(e, "UNROLL_R", small ? r : 1);
  cuvil_emission_define(e, "UNROLL_S", small ? cuvil_ceil_div(s, batch) : 1);
  cuvil_emission_define(e, "BLOCK", at.block);
  cuvil_emission_define(e, "VEC", at.vec);
  cuvil_emission_define(e, "ITEMS", at.items);
  cuvil_emission_define(e, "IN_ALIGNED",
                        cuvil_operand_alignment(p, CUVIL_POOL_X));
}

static enum cuvil_status add_kernel(struct cuvil_emission *e, struct point at) {
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  cuvil_emit_operand(p, CUVIL_POOL_Y, "OUT", &e->source);
  cuvil_emit_operand(p, CUVIL_POOL_X, "IN", &e->source);
  put_defines(e, at);
  CUVIL_TRY(cuvil_emission_file(e, "kernels/pool/pool.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "pool", blocks_of(p, at), at.block,
                                  &step));
  step->programmatic = at.pdl;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_POOL_Y], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_POOL_X], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_POOL_Y, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_POOL_X, step));
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

const struct cuvil_family cuvil_family_pool = {
    .id = "pool",
    .version = 1,
    .about = "max and average pooling, channels as vectors in NHWC",
    .kinds = 1u << CUVIL_KIND_POOL,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
