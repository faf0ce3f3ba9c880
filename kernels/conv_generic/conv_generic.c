/* conv_generic.c - convolutions that conv_mma and conv_simt do not take:
 * layouts other than NHWC, groups, strides, cut-off channels, any mix of types.
 * An implicit matrix product in fp32; vectors where channels are fastest and
 * come in fours.
 */
#include "kernels/common/emit.h"

enum { COMBINE_BLOCK = 256 };

/* Where a family for NHWC computes the problem, this one could only lose.  A
 * group of one or two channels would leave most of a tile idle: the naive
 * family is as good there. */
static bool applicable(const struct cuvil_problem *p,
                       const struct cuvil_arch *arch) {
  static const char *const better[] = {"conv_mma", "conv_simt"};
  int64_t pixels = p->dims[CUVIL_CONV_DIM_N].extent *
                   p->dims[CUVIL_CONV_DIM_P].extent *
                   p->dims[CUVIL_CONV_DIM_Q].extent;
  int64_t depth = p->dims[CUVIL_CONV_DIM_C].extent / p->group *
                  p->dims[CUVIL_CONV_DIM_R].extent *
                  p->dims[CUVIL_CONV_DIM_S].extent;
  if (p->kind != CUVIL_KIND_CONV || pixels >= INT32_MAX / 2 ||
      depth >= INT32_MAX / 2 || p->dims[CUVIL_CONV_DIM_K].extent / p->group < 4)
    return false;
  for (size_t i = 0; i < sizeof better / sizeof *better; i++) {
    const struct cuvil_family *family = cuvil_family_find(better[i]);
    if (family && family->applicable(p, arch)) return false;
  }
  return true;
}

struct point {
  int tile_m, tile_n, tile_k, rm, rn, split, pdl;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  const struct cuvil_space *space = query->space;
  return (struct point){
      (int)cuvil_config_get(space, config, "tile_m"),
      (int)cuvil_config_get(space, config, "tile_n"),
      (int)cuvil_config_get(space, config, "tile_k"),
      (int)cuvil_config_get(space, config, "rm"),
      (int)cuvil_config_get(space, config, "rn"),
      (int)cuvil_config_get(space, config, "split"),
      (int)cuvil_config_get(space, config, "pdl"),
  };
}

/* The problem as a product: rows, columns of a group, inner index. */
struct shape {
  int64_t pixels, channels, depth, group;
};
static struct shape shape_of(const struct cuvil_problem *p) {
  return (struct shape){
      p->dims[CUVIL_CONV_DIM_N].extent * p->dims[CUVIL_CONV_DIM_P].extent *
          p->dims[CUVIL_CONV_DIM_Q].extent,
      p->dims[CUVIL_CONV_DIM_K].extent / p->group,
      p->dims[CUVIL_CONV_DIM_C].extent / p->group *
          p->dims[CUVIL_CONV_DIM_R].extent * p->dims[CUVIL_CONV_DIM_S].extent,
      p->group};
}

static int64_t tiles_of(const struct shape *s, const struct point *at) {
  return cuvil_ceil_div(s->pixels, at->tile_m) *
         cuvil_ceil_div(s->channels, at->tile_n) * s->group;
}

static int threads_of(const struct point *at) {
  return at->tile_m / at->rm * (at->tile_n / at->rn);
}

static uint64_t partial_bytes(const struct shape *s, const struct point *at) {
  if (at->split == 1) return 0;
  return 4 * (uint64_t)(s->pixels * s->channels * s->group * at->split);
}

/* The largest tile that still gives every multiprocessor a block; then the
 * inner index is split until it does. */
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  struct shape s = shape_of(query->problem);
  struct point at = {64, 64, 16, 4, 4, 1, 0};
  const struct cuvil_space *space = query->space;
  if (s.channels <= 32) at.tile_n = 32;
  if (s.pixels <= 32 || tiles_of(&s, &at) < query->arch->sms) at.tile_m = 32;
  while (at.split < 8 && tiles_of(&s, &at) * at.split < query->arch->sms &&
         s.depth / at.split >= 256)
    at.split *= 2;
  cuvil_space_default(space, out);
  cuvil_config_set(space, out, "tile_m", at.tile_m);
  cuvil_config_set(space, out, "tile_n", at.tile_n);
  cuvil_config_set(space, out, "split", at.split);
  cuvil_config_set(space, out, "pdl", cuvil_default_pdl(query->arch));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct shape s = shape_of(query->problem);
  struct point at = read_point(query, config);
  out->threads = threads_of(&at);
  out->shared_bytes =
      2 * at.tile_k * (at.tile_m + 4 + at.tile_n + 4) * (int)sizeof(float);
  out->registers_least = at.rm * at.rn;
  out->blocks = tiles_of(&s, &at) * at.split;
  out->cluster = 1;
  out->workspace_bytes = partial_bytes(&s, &at);
  cuvil_derive_waves(query->arch, out);
  /* No part of the inner index may be empty. */
  int64_t steps = cuvil_ceil_div(s.depth, at.tile_k);
  int64_t each = cuvil_ceil_div(steps, at.split);
  return out->threads >= 64 && out->threads <= 512 &&
         each * (at.split - 1) < steps && (!at.pdl || query->arch->cc >= 90);
}

/* FFMA at the rate that shared memory feeds, in whole waves. */
static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct shape s = shape_of(query->problem);
  struct point at = read_point(query, config);
  const struct cuvil_arch *arch = query->arch;
  double fed = (double)at.rm * at.rn / (at.rm * at.rn + at.rm + at.rn);
  int each = cuvil_arch_blocks_per_sm(arch, derived->threads,
                                      derived->registers_least + 40,
                                      derived->shared_bytes);
  if (each < 1) each = 1;
  double flops =
      2.0 * at.tile_m * at.tile_n * (double)cuvil_ceil_div(s.depth, at.split);
  double rate = arch->flops_f32 / arch->sms / each * fed * 0.7;
  int64_t rounds = cuvil_ceil_div(derived->blocks, (int64_t)each * arch->sms);
  return 3e-6 + (double)rounds * flops / rate +
         3.0 * (double)partial_bytes(&s, &at) / arch->memory_bytes_per_second +
         (at.split > 1 ? 2e-6 : 0) - 1e-6 * at.pdl;
}

/* ---- emission */
/* Four channels at once: fastest, whole fours of a group, nothing cut off. */
static int vector_of(const struct cuvil_problem *p, int operand, int dim) {
  const struct cuvil_operand *o = &p->operands[operand];
  if (cuvil_fastest_dim(o) != dim || o->limit[o->rank - 1]) return 1;
  return p->dims[dim].extent / p->group % 4 == 0 ? 4 : 1;
}

static void put_defines(struct cuvil_emission *e, const struct point *at) {
  const struct cuvil_problem *p = e->query->problem;
  bool packed = !p->operands[CUVIL_CONV_Y].strided;
  const struct {
    const char *name;
    int64_t value;
  } defines[] = {
      {"TILE_M", at->tile_m},
      {"TILE_N", at->tile_n},
      {"TILE_K", at->tile_k},
      {"RM", at->rm},
      {"RN", at->rn},
      {"SPLIT", at->split},
      {"GROUP", p->group},
      {"STRIDE_H", p->stride[0]},
      {"STRIDE_W", p->stride[1]},
      {"PAD_TOP", p->pad[0]},
      {"PAD_LEFT", p->pad[1]},
      {"DILATION_H", p->dilation[0]},
      {"DILATION_W", p->dilation[1]},
      {"VEC_A", vector_of(p, CUVIL_CONV_X, CUVIL_CONV_DIM_C)},
      {"VEC_B", vector_of(p, CUVIL_CONV_W, CUVIL_CONV_DIM_C)},
      {"VEC_Y", packed ? vector_of(p, CUVIL_CONV_Y, CUVIL_CONV_DIM_K) : 1},
      {"IN0_ALIGNED", cuvil_operand_alignment(p, CUVIL_CONV_X)},
      {"IN1_ALIGNED", cuvil_operand_alignment(p, CUVIL_CONV_W)},
  };
  for (size_t i = 0; i < sizeof defines / sizeof *defines; i++)
    cuvil_emission_define(e, defines[i].name, defines[i].value);
}

static enum cuvil_status add_arguments(const struct cuvil_emission *e,
                                       int partial, struct cuvil_step *step) {
  const struct cuvil_problem *p = e->query->problem;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_CONV_Y], 0));
  if (partial >= 0) CUVIL_TRY(cuvil_step_arg_buffer(step, partial, 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_CONV_X], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[CUVIL_CONV_W], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_CONV_Y, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_CONV_X, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, CUVIL_CONV_W, step));
  return cuvil_emit_epilogue_arguments(p, e->buffers, NULL, step);
}

static enum cuvil_status add_kernels(struct cuvil_emission *e,
                                     const struct point *at) {
  const struct cuvil_problem *p = e->query->problem;
  struct shape s = shape_of(p);
  struct cuvil_step *step;
  int partial = -1;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  cuvil_emit_operand(p, CUVIL_CONV_Y, "OUT", &e->source);
  cuvil_emit_operand(p, CUVIL_CONV_X, "IN0", &e->source);
  cuvil_emit_operand(p, CUVIL_CONV_W, "IN1", &e->source);
  put_defines(e, at);
  CUVIL_TRY(cuvil_emission_file(e, "kernels/conv_generic/conv_generic.cu"));
  if (at->split > 1)
    CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_WORKSPACE, -1,
                                       partial_bytes(&s, at), &partial));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "conv_generic",
                                  tiles_of(&s, at) * at->split, threads_of(at),
                                  &step));
  int module = step->module;
  step->programmatic = at->pdl;
  CUVIL_TRY(add_arguments(e, partial, step));
  if (at->split == 1) return CUVIL_OK;
  int64_t points = cuvil_output_points(p);
  CUVIL_TRY(cuvil_emission_step(e, module, "combine",
                                cuvil_ceil_div(points, COMBINE_BLOCK),
                                COMBINE_BLOCK, &step));
  step->programmatic = at->pdl;
  return add_arguments(e, partial, step);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  struct point at = read_point(query, config);
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = add_kernels(&e, &at);
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_conv_generic = {
    .id = "conv_generic",
    .version = 1,
    .about = "convolution in fp32 of any layout, group and type",
    .kinds = 1u << CUVIL_KIND_CONV,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
