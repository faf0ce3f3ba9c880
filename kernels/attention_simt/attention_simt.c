/* attention_simt.c - attention in fp32 without tensor cores: what attention_mma
 * does not take, which is fp32 operands, heads of odd sizes and any strides.
 */
#include "kernels/common/emit.h"
#include "kernels/common/mma.h"

enum { HEAD_MOST = 256, GRID_MOST = 65535, LANES = 16 };

/* Places of an operand's strides, as the kernel takes them. */
static const int q_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                             CUVIL_ATTENTION_DIM_SQ, CUVIL_ATTENTION_DIM_D};
static const int k_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HKV,
                             CUVIL_ATTENTION_DIM_SKV, CUVIL_ATTENTION_DIM_D};
static const int v_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HKV,
                             CUVIL_ATTENTION_DIM_SKV, CUVIL_ATTENTION_DIM_DV};
static const int o_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                             CUVIL_ATTENTION_DIM_SQ, CUVIL_ATTENTION_DIM_DV};
static const int mask_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                                CUVIL_ATTENTION_DIM_SQ,
                                CUVIL_ATTENTION_DIM_SKV};
static const int *const operand_dims[] = {q_dims, k_dims, v_dims, o_dims};

static int64_t extent(const struct cuvil_problem *p, int dim) {
  return p->dims[dim].extent;
}

static int64_t stride_of(const struct cuvil_operand *o, int dim) {
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == dim) return o->strides[i];
  return 0;
}

static bool applicable(const struct cuvil_problem *p,
                       const struct cuvil_arch *arch) {
  if (p->kind != CUVIL_KIND_ATTENTION || arch->cc < 80 || p->epilogue.count)
    return false;
  for (int i = 0; i < p->operand_count; i++)
    for (int j = 0; j < p->operands[i].rank; j++)
      if (p->operands[i].limit[j]) return false;
  return extent(p, CUVIL_ATTENTION_DIM_D) <= HEAD_MOST &&
         extent(p, CUVIL_ATTENTION_DIM_DV) <= HEAD_MOST &&
         extent(p, CUVIL_ATTENTION_DIM_HQ) <= GRID_MOST &&
         extent(p, CUVIL_ATTENTION_DIM_B) <= GRID_MOST &&
         extent(p, CUVIL_ATTENTION_DIM_SQ) <= 1 << 30 &&
         extent(p, CUVIL_ATTENTION_DIM_SKV) <= 1 << 30;
}

struct point {
  int tile_q, tile_kv, rq, pdl;
  int d, dv;
  int64_t tiles;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  const struct cuvil_space *space = query->space;
  const struct cuvil_problem *p = query->problem;
  struct point at = {
      (int)cuvil_config_get(space, config, "tile_q"),
      (int)cuvil_config_get(space, config, "tile_kv"),
      (int)cuvil_config_get(space, config, "rq"),
      (int)cuvil_config_get(space, config, "pdl"),
      (int)extent(p, CUVIL_ATTENTION_DIM_D),
      (int)extent(p, CUVIL_ATTENTION_DIM_DV),
      0,
  };
  at.tiles = cuvil_ceil_div(extent(p, CUVIL_ATTENTION_DIM_SQ), at.tile_q);
  return at;
}

/* As the template lays it out. */
static int shared_bytes(const struct point *at) {
  int fours = (at->d + 3) / 4;
  int pitch_d = (fours | 1) * 4,
      pitch_dv = (at->dv + LANES - 1) / LANES * LANES;
  return 4 * ((at->tile_q + at->tile_kv) * pitch_d + at->tile_kv * pitch_dv +
              at->tile_q * (at->tile_kv + 4));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct point at = read_point(query, config);
  const struct cuvil_problem *p = query->problem;
  out->threads = at.tile_q / at.rq * LANES;
  out->shared_bytes = shared_bytes(&at);
  out->registers_least = at.rq * ((at.dv + LANES - 1) / LANES);
  out->blocks = at.tiles * extent(p, CUVIL_ATTENTION_DIM_HQ) *
                extent(p, CUVIL_ATTENTION_DIM_B);
  out->cluster = 1;
  out->workspace_bytes = 0;
  cuvil_derive_waves(query->arch, out);
  return out->threads >= 64 && out->threads <= 512 &&
         out->shared_bytes <= query->arch->shared_per_block &&
         out->blocks <= INT32_MAX && (!at.pdl || query->arch->cc >= 90);
}

/* FFMA at the rate that shared memory feeds, in whole waves. */
static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_arch *arch = query->arch;
  struct point at = read_point(query, config);
  int rc = at.tile_kv / LANES, ro = (at.dv + LANES - 1) / LANES;
  /* Four-byte words read for every multiply-add, of scores and of values. */
  double scores = (double)(at.rq + rc) / (at.rq * rc);
  double values = 1.0 / ro + 1.0 / at.rq;
  int each = cuvil_arch_blocks_per_sm(arch, derived->threads,
                                      derived->registers_least + 60,
                                      derived->shared_bytes);
  if (each < 1) each = 1;
  double keys = (double)extent(query->problem, CUVIL_ATTENTION_DIM_SKV);
  if (query->problem->causal) keys = keys / 2 + at.tile_kv;
  double work =
      2.0 * at.tile_q * keys * (at.d * (1 + scores) + at.dv * (1 + values));
  double rate = arch->flops_f32 * 0.7 / arch->sms;
  int64_t rounds = cuvil_ceil_div(derived->blocks, (int64_t)each * arch->sms);
  int64_t share = cuvil_ceil_div(derived->blocks, arch->sms);
  double filled = (double)(share < each ? share : each);
  double busy =
      derived->threads * filled < 512 ? derived->threads * filled / 512 : 1;
  double turns = keys / at.tile_kv * 1.2e-6;
  return 3e-6 + (double)rounds * (filled * work / (rate * busy) + turns) -
         1e-6 * at.pdl;
}

/* The best predicted of the few points that there are. */
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  static const int grid[][3] = {/* tile_q, rq, tile_kv */
                                {16, 2, 32}, {16, 2, 64}, {32, 4, 32},
                                {32, 4, 64}, {64, 4, 64}, {64, 4, 32}};
  double best = 0;
  cuvil_space_default(query->space, out);
  for (size_t i = 0; i < sizeof grid / sizeof *grid; i++) {
    struct cuvil_config config;
    struct cuvil_derived derived;
    cuvil_space_default(query->space, &config);
    cuvil_config_set(query->space, &config, "tile_q", grid[i][0]);
    cuvil_config_set(query->space, &config, "rq", grid[i][1]);
    cuvil_config_set(query->space, &config, "tile_kv", grid[i][2]);
    cuvil_config_set(query->space, &config, "pdl",
                     cuvil_default_pdl(query->arch));
    if (!derive(query, &config, &derived)) continue;
    double seconds = predict(query, &config, &derived);
    if (best > 0 && seconds >= best) continue;
    best = seconds;
    *out = config;
  }
}

/* ---- emission */
/* Rows contiguous and whole fours everywhere. */
static int vector_of(const struct cuvil_problem *p, int operand) {
  const struct cuvil_operand *o = &p->operands[operand];
  const int *dims = operand_dims[operand];
  if (cuvil_fastest_dim(o) != dims[3] || extent(p, dims[3]) % 4) return 1;
  for (int i = 0; i < 3; i++)
    if (stride_of(o, dims[i]) % 4) return 1;
  return 4;
}

static void put_defines(struct cuvil_emission *e, const struct point *at) {
  const struct cuvil_problem *p = e->query->problem;
  static const char *const names[] = {"Q", "K", "V", "O"};
  for (int i = 0; i < 4; i++) {
    cuvil_buf_printf(&e->source, "#define %s_T %s\n#define %s_VECTOR %d\n",
                     names[i], cuvil_emit_type(p->operands[i].dtype), names[i],
                     vector_of(p, i));
  }
  cuvil_emission_define(e, "D", at->d);
  cuvil_emission_define(e, "DV", at->dv);
  cuvil_emission_define(e, "TILE_Q", at->tile_q);
  cuvil_emission_define(e, "TILE_KV", at->tile_kv);
  cuvil_emission_define(e, "RQ", at->rq);
  cuvil_emission_define(e, "PDL", at->pdl);
  cuvil_emission_define(e, "CAUSAL", p->causal);
  if (p->mask < 0) return;
  cuvil_buf_printf(&e->source, "#define MASK %s\n",
                   cuvil_emit_type(p->operands[p->mask].dtype));
  cuvil_emission_define(e, "MASK_KEEP", p->mask_keep);
}

static enum cuvil_status add_strides(const struct cuvil_operand *o,
                                     const int *dims, struct cuvil_step *step) {
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(cuvil_step_arg_i64(step, stride_of(o, dims[i])));
  return CUVIL_OK;
}

/* In the order of the kernel's parameters. */
static enum cuvil_status add_arguments(const struct cuvil_emission *e,
                                       struct cuvil_step *step) {
  const struct cuvil_problem *p = e->query->problem;
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[i], 0));
  if (p->mask >= 0) {
    CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[p->mask], 0));
    CUVIL_TRY(add_strides(&p->operands[p->mask], mask_dims, step));
  }
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(add_strides(&p->operands[i], operand_dims[i], step));
  int64_t group =
      extent(p, CUVIL_ATTENTION_DIM_HQ) / extent(p, CUVIL_ATTENTION_DIM_HKV);
  CUVIL_TRY(cuvil_step_arg_i32(step, extent(p, CUVIL_ATTENTION_DIM_SQ)));
  CUVIL_TRY(cuvil_step_arg_i32(step, extent(p, CUVIL_ATTENTION_DIM_SKV)));
  CUVIL_TRY(cuvil_step_arg_i32(step, group));
  return cuvil_step_arg_f32(step, p->scale);
}

static enum cuvil_status add_kernel(struct cuvil_emission *e,
                                    const struct point *at,
                                    const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  put_defines(e, at);
  CUVIL_TRY(cuvil_mma_append("kernels/common/types.cuh", &e->source));
  CUVIL_TRY(
      cuvil_mma_append("kernels/attention_simt/attention_simt.cu", &e->source));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "attention_simt", derived->blocks,
                                  derived->threads, &step));
  step->grid[0] = (uint32_t)at->tiles;
  step->grid[1] = (uint32_t)extent(p, CUVIL_ATTENTION_DIM_HQ);
  step->grid[2] = (uint32_t)extent(p, CUVIL_ATTENTION_DIM_B);
  step->shared_bytes = (uint32_t)derived->shared_bytes;
  step->programmatic = at->pdl != 0;
  return add_arguments(e, step);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  struct cuvil_derived derived;
  struct point at = read_point(query, config);
  *out = NULL;
  if (!derive(query, config, &derived))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "this configuration cannot compute the problem");
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = add_kernel(&e, &at, &derived);
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_attention_simt = {
    .id = "attention_simt",
    .version = 1,
    .about = "attention in one kernel in fp32, of any strides and type",
    .kinds = 1u << CUVIL_KIND_ATTENTION,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
