/* attention_mma.c - attention in one kernel on tensor cores by mma.sync: f16
 * and bf16, heads of up to 256 elements, any strides whose rows are aligned,
 * masks, causality, fewer heads of keys than of queries.
 *
 * The head's size is baked in, extents and strides are arguments.  The
 * prediction walks through a block's life in cycles; it orders candidates, and
 * the default configuration is the point of a small grid that it likes best.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/common/emit.h"
#include "kernels/common/mma.h"

enum { HEAD_MOST = 256, GRID_MOST = 65535, ADDED = 4 /* floats to a row */ };

/* ---- the problem as the kernel sees it */
struct view {
  int64_t b, hq, hkv, sq, skv;
  int d, dv;
  int64_t strides[4][3]; /* of q k v o: batch, head, row */
  int64_t mask[4];       /* strides: batch, head, query, key */
  bool mask_pairs;
};

static int64_t stride_of(const struct cuvil_operand *o, int dim) {
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == dim) return o->strides[i];
  return 0;
}

static bool whole(const struct cuvil_operand *o) {
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i]) return false;
  return true;
}

/* Rows contiguous along `inner`, all others a multiple of `align` elements
 * apart. */
static bool view_rows(const struct cuvil_problem *p, int operand, int head,
                      int row, int inner, int align, int64_t *out) {
  const struct cuvil_operand *o = &p->operands[operand];
  const int dims[] = {CUVIL_ATTENTION_DIM_B, head, row};
  if (!whole(o) || cuvil_fastest_dim(o) != inner) return false;
  for (int i = 0; i < 3; i++) {
    out[i] = stride_of(o, dims[i]);
    if (p->dims[dims[i]].extent > 1 && out[i] % align) return false;
  }
  return true;
}

static bool view_mask(const struct cuvil_problem *p, struct view *out) {
  static const int dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                             CUVIL_ATTENTION_DIM_SQ, CUVIL_ATTENTION_DIM_SKV};
  if (p->mask < 0) return true;
  const struct cuvil_operand *o = &p->operands[p->mask];
  out->mask_pairs = out->skv % 2 == 0;
  for (int i = 0; i < 4; i++) {
    out->mask[i] = stride_of(o, dims[i]);
    bool right = i < 3 ? out->mask[i] % 2 == 0 : out->mask[i] == 1;
    out->mask_pairs = out->mask_pairs && right;
  }
  return whole(o);
}

static bool view_of(const struct cuvil_problem *p, struct view *out) {
  *out = (struct view){0};
  if (p->kind != CUVIL_KIND_ATTENTION) return false;
  const struct cuvil_dim *dims = p->dims;
  enum cuvil_dtype element = p->operands[CUVIL_ATTENTION_Q].dtype;
  enum cuvil_dtype result = p->operands[CUVIL_ATTENTION_O].dtype;
  out->b = dims[CUVIL_ATTENTION_DIM_B].extent;
  out->hq = dims[CUVIL_ATTENTION_DIM_HQ].extent;
  out->hkv = dims[CUVIL_ATTENTION_DIM_HKV].extent;
  out->sq = dims[CUVIL_ATTENTION_DIM_SQ].extent;
  out->skv = dims[CUVIL_ATTENTION_DIM_SKV].extent;
  int64_t d = dims[CUVIL_ATTENTION_DIM_D].extent;
  int64_t dv = dims[CUVIL_ATTENTION_DIM_DV].extent;
  if (d > HEAD_MOST || dv > HEAD_MOST || d % 8 || dv % 8) return false;
  out->d = (int)d;
  out->dv = (int)dv;
  if (out->hq > GRID_MOST || out->b > GRID_MOST || out->sq > 1 << 30 ||
      out->skv > 1 << 30)
    return false;
  /* Largest scores are looked for before scaling. */
  if (!(p->scale > 0) || p->epilogue.count) return false;
  if (element != CUVIL_F16 && element != CUVIL_BF16) return false;
  if (result != CUVIL_F16 && result != CUVIL_BF16 && result != CUVIL_F32)
    return false;
  for (int i = CUVIL_ATTENTION_K; i <= CUVIL_ATTENTION_V; i++)
    if (p->operands[i].dtype != element) return false;
  enum {
    HQ = CUVIL_ATTENTION_DIM_HQ,
    HKV = CUVIL_ATTENTION_DIM_HKV,
    SQ = CUVIL_ATTENTION_DIM_SQ,
    SKV = CUVIL_ATTENTION_DIM_SKV,
    D = CUVIL_ATTENTION_DIM_D,
    DV = CUVIL_ATTENTION_DIM_DV
  };
  return view_rows(p, CUVIL_ATTENTION_Q, HQ, SQ, D, 8, out->strides[0]) &&
         view_rows(p, CUVIL_ATTENTION_K, HKV, SKV, D, 8, out->strides[1]) &&
         view_rows(p, CUVIL_ATTENTION_V, HKV, SKV, DV, 8, out->strides[2]) &&
         view_rows(p, CUVIL_ATTENTION_O, HQ, SQ, DV, 4, out->strides[3]) &&
         view_mask(p, out);
}

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  struct view view;
  return arch->cc >= 80 && view_of(problem, &view);
}

/* ---- a point of the space */
enum param {
  TILE_Q,
  WARPS_Q,
  TILE_KV,
  SLICE_KV,
  STAGES,
  SPLIT_KV,
  PDL,
  PARAMS
};
static const char *const param_names[PARAMS] = {
    "tile_q", "warps_q", "tile_kv", "slice_kv", "stages", "split_kv", "pdl"};

struct point {
  int tile_q, warps_q, tile_kv, slice_kv, stages, split, pdl;
  int rows, columns;     /* of a warp */
  int out, scores, kept; /* registers: sums, scores, queries */
  bool keep_q;
  int64_t tiles_q, tiles_kv;
};

static int padded(int elements) {
  return (elements + 15) / 16 * 16;
}

static struct point point_of(const struct cuvil_query *query,
                             const struct cuvil_config *config,
                             const struct view *v) {
  int values[PARAMS];
  for (int i = 0; i < PARAMS; i++)
    values[i] = (int)cuvil_config_get(query->space, config, param_names[i]);
  struct point p = {.tile_q = values[TILE_Q],
                    .warps_q = values[WARPS_Q],
                    .tile_kv = values[TILE_KV],
                    .slice_kv = values[SLICE_KV],
                    .stages = values[STAGES],
                    .split = values[SPLIT_KV],
                    .pdl = values[PDL]};
  p.rows = p.tile_q / p.warps_q;
  p.columns = p.tile_kv / p.slice_kv;
  p.out = p.rows * padded(v->dv) / 32;
  p.scores = p.rows * p.columns / 32;
  p.kept = p.rows * padded(v->d) / 64;
  p.keep_q = p.out + p.scores + p.kept <= 144;
  p.tiles_q = cuvil_ceil_div(v->sq, p.tile_q);
  p.tiles_kv = cuvil_ceil_div(v->skv, p.tile_kv);
  return p;
}

static int panel_bytes(int rows, int width) {
  return rows * (padded(width) * 2 + 16);
}
static int stage_bytes(const struct view *v, const struct point *p) {
  return panel_bytes(p->tile_kv, v->d) + panel_bytes(p->tile_kv, v->dv);
}
static int shared_bytes(const struct view *v, const struct point *p) {
  int walk = panel_bytes(p->tile_q, v->d) + p->stages * stage_bytes(v, p);
  int sums = p->slice_kv * p->tile_q * ((padded(v->dv) + 8) * 4 + 8);
  return walk > sums ? walk : sums;
}
static int64_t part_bytes(const struct view *v, const struct point *p) {
  return (int64_t)p->tile_q * (v->dv + ADDED) * 4;
}

/* Registers as they come out, within about ten; what a block's threads leave to
 * each is enough for the sums and SPARE. */
enum { SPARE = 64 };
static int usual_registers(const struct point *p, const struct cuvil_arch *arch,
                           int threads) {
  int all = p->out + p->scores + (p->keep_q ? p->kept : p->rows / 4) + 50;
  int most = arch->registers_per_sm / threads;
  if (most > 255) most = 255;
  return all < most ? all : most;
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct view v;
  *out = (struct cuvil_derived){.cluster = 1};
  if (!view_of(query->problem, &v)) return false;
  struct point p = point_of(query, config, &v);
  int64_t tiles = p.tiles_q * v.hq * v.b;
  out->threads = 32 * p.warps_q * p.slice_kv;
  out->shared_bytes = shared_bytes(&v, &p);
  out->registers_least = p.out + p.scores;
  out->blocks = tiles * p.split;
  if (p.split > 1)
    out->workspace_bytes =
        (uint64_t)(out->blocks * part_bytes(&v, &p) + tiles * 4);
  if (p.rows % 16 || p.columns % 16 || p.rows > 32 || p.rows < 16 ||
      p.columns < 16)
    return false;
  if (out->threads * (p.out + p.scores + SPARE) > query->arch->registers_per_sm)
    return false;
  int resident = cuvil_arch_blocks_per_sm(
      query->arch, out->threads, usual_registers(&p, query->arch, out->threads),
      out->shared_bytes);
  if (resident < 1) return false;
  out->waves = (double)out->blocks / ((double)query->arch->sms * resident);
  return p.out + p.scores <= 192 && p.split <= p.tiles_kv &&
         v.b * p.split <= GRID_MOST && out->blocks <= INT32_MAX &&
         (!p.pdl || query->arch->cc >= 90);
}

/* ---- the prediction: cycles of an SM that runs `resident` blocks at once */
enum {
  L2_LATENCY = 700,   /* cycles from a copy's issue to its data */
  L2_BYTES = 48,      /* per cycle and SM, all SMs reading */
  SHARED_BYTES = 128, /* per cycle and SM */
  BLOCK_START = 900,  /* launch, addresses */
  PDL_SAVES = 700,    /* of it, hidden behind the predecessor */
  TURN = 250,         /* a tile's dependent steps: maxima, barriers */
  HAND_OVER = 2600,   /* fence, atomic, fence, reading back */
};
#define CLOCK 1.7e9

static double turn_cycles(const struct view *v, const struct point *p,
                          const struct cuvil_arch *arch, int resident) {
  double warps = p->warps_q * p->slice_kv * resident;
  double fill = warps >= 8 ? 1 : warps / 8;
  double rate = arch->flops_f16 / arch->sms / CLOCK;
  if (arch->cc >= 90) rate *= 0.64; /* wgmma is not open to mma.sync */
  double scores = (double)p->tile_q * p->tile_kv;
  double multiply = 2 * scores * (padded(v->d) + padded(v->dv)) / rate;
  double exponentials = scores * (1.0 / 16 + 6.0 / 128);
  double stage = stage_bytes(v, p);
  double again = p->keep_q ? 0 : panel_bytes(p->tile_q, v->d) * p->slice_kv;
  double shared = (stage * (p->warps_q + 1) + again) / SHARED_BYTES;
  double busy = fmax(multiply, shared) + exponentials;
  busy = fmax(busy / fill, stage / L2_BYTES) * resident;
  /* A single stage loads K and V while the other is multiplied. */
  double wait = p->stages == 1 ? L2_LATENCY : L2_LATENCY / p->stages;
  return fmax(busy, wait) + 0.2 * fmin(busy, wait) + TURN;
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct view v;
  if (!view_of(query->problem, &v)) return INFINITY;
  const struct cuvil_arch *arch = query->arch;
  struct point p = point_of(query, config, &v);
  double per_sm =
      derived->waves > 0 ? derived->blocks / (derived->waves * arch->sms) : 1;
  int64_t share = cuvil_ceil_div(derived->blocks, arch->sms);
  int resident = share < per_sm ? (int)share : (int)(per_sm + 0.5);
  double turns = (double)cuvil_ceil_div(p.tiles_kv, p.split);
  if (query->problem->causal && derived->waves > 1) turns = turns / 2 + 0.5;
  double tile = (double)p.tile_q * padded(v.dv) * 4;
  double block =
      BLOCK_START - (p.pdl ? PDL_SAVES : 0) + L2_LATENCY +
      turns * turn_cycles(&v, &p, arch, resident) +
      (2 * tile * p.slice_kv / SHARED_BYTES + tile / L2_BYTES) * resident + 500;
  /* The first tile waits for all of its bytes; threads issue the copies. */
  block += (stage_bytes(&v, &p) / L2_BYTES) * resident +
           stage_bytes(&v, &p) / 16.0 / derived->threads * 8;
  if (p.split > 1) block += HAND_OVER + tile * (p.split + 1) / 32;
  double cycles = block * (derived->waves > 1 ? derived->waves + 0.5 : 1);
  return fmax(cycles / CLOCK, cuvil_problem_bytes(query->problem) /
                                  arch->memory_bytes_per_second);
}

/* ---- the default: what the prediction likes best on a coarse grid */
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  static const int grid[][3] = {/* tile_q, warps_q, slice_kv */
                                {16, 1, 4}, {32, 2, 2},  {32, 2, 4}, {64, 4, 1},
                                {64, 4, 2}, {128, 8, 1}, {128, 4, 1}};
  struct view v;
  double best = INFINITY;
  cuvil_space_default(query->space, out);
  if (!view_of(query->problem, &v)) return; /* not asked for these */
  for (size_t g = 0; g < sizeof grid / sizeof *grid; g++)
    for (int tile_kv = 32; tile_kv <= 128; tile_kv *= 2)
      for (int stages = 1; stages <= 2; stages++)
        for (int split = 1; split <= 8; split *= 2) {
          struct cuvil_config config;
          struct cuvil_derived derived;
          const int values[PARAMS] = {grid[g][0],
                                      grid[g][1],
                                      tile_kv,
                                      grid[g][2],
                                      stages,
                                      split,
                                      cuvil_default_pdl(query->arch)};
          cuvil_space_default(query->space, &config);
          for (int i = 0; i < PARAMS; i++)
            cuvil_config_set(query->space, &config, param_names[i], values[i]);
          if (!derive(query, &config, &derived)) continue;
          if (derived.registers_least > 160) continue; /* would spill */
          double seconds = predict(query, &config, &derived);
          if (seconds >= best) continue;
          best = seconds;
          *out = config;
        }
}

/* ---- emission */
static void put_defines(struct cuvil_emission *e, const struct view *v,
                        const struct point *p) {
  const struct cuvil_problem *problem = e->query->problem;
  const struct cuvil_operand *operands = problem->operands;
  const struct {
    const char *name;
    int64_t value;
  } defines[] = {
      {"D", v->d},
      {"DV", v->dv},
      {"TILE_Q", p->tile_q},
      {"TILE_KV", p->tile_kv},
      {"WARPS_Q", p->warps_q},
      {"SLICE_KV", p->slice_kv},
      {"STAGES", p->stages},
      {"SPLIT", p->split > 1},
      {"PDL", p->pdl},
      {"CAUSAL", problem->causal},
      {"KEEP_Q", p->keep_q},
  };
  for (size_t i = 0; i < sizeof defines / sizeof *defines; i++)
    cuvil_emission_define(e, defines[i].name, defines[i].value);
  cuvil_buf_printf(&e->source, "#define ELEMENT %s\n#define OUTPUT %s\n",
                   cuvil_emit_type(operands[CUVIL_ATTENTION_Q].dtype),
                   cuvil_emit_type(operands[CUVIL_ATTENTION_O].dtype));
  if (problem->mask < 0) return;
  const struct cuvil_operand *mask = &operands[problem->mask];
  cuvil_buf_printf(&e->source, "#define MASK %s\n",
                   cuvil_emit_type(mask->dtype));
  cuvil_emission_define(e, "MASK_KEEP", problem->mask_keep);
  cuvil_emission_define(e, "MASK_ROWS",
                        cuvil_operand_has_dim(mask, CUVIL_ATTENTION_DIM_SQ));
  cuvil_emission_define(e, "MASK_PAIRS", v->mask_pairs);
}

/* In the order of the kernel's parameters. */
static enum cuvil_status add_arguments(const struct cuvil_emission *e,
                                       const struct view *v,
                                       const struct point *p, int partial,
                                       int semaphore, struct cuvil_step *step) {
  const struct cuvil_problem *problem = e->query->problem;
  const double log2e = 1.4426950408889634;
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[i], 0));
  if (problem->mask >= 0) {
    CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[problem->mask], 0));
    for (int i = 0; i < 4; i++)
      CUVIL_TRY(cuvil_step_arg_i64(step, v->mask[i]));
    CUVIL_TRY(cuvil_step_arg_f32(step, 1 / problem->scale));
  }
  if (p->split > 1) {
    CUVIL_TRY(cuvil_step_arg_buffer(step, partial, 0));
    CUVIL_TRY(cuvil_step_arg_buffer(step, semaphore, 0));
  } else { /* not followed */
    CUVIL_TRY(cuvil_step_arg_i64(step, 0));
    CUVIL_TRY(cuvil_step_arg_i64(step, 0));
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 3; j++)
      CUVIL_TRY(cuvil_step_arg_i64(step, v->strides[i][j]));
  CUVIL_TRY(cuvil_step_arg_i32(step, v->sq));
  CUVIL_TRY(cuvil_step_arg_i32(step, v->skv));
  CUVIL_TRY(cuvil_step_arg_i32(step, v->hq / v->hkv));
  CUVIL_TRY(cuvil_step_arg_i32(step, p->split));
  return cuvil_step_arg_f32(step, problem->scale * log2e);
}

static enum cuvil_status add_kernel(struct cuvil_emission *e,
                                    const struct view *v, const struct point *p,
                                    const struct cuvil_derived *derived) {
  struct cuvil_step *step;
  int partial = -1, semaphore = -1;
  put_defines(e, v, p);
  static const char *const files[] = {
      "kernels/common/types.cuh", "kernels/common/mma_index.cuh",
      "kernels/common/mma_ptx.cuh", "kernels/attention_mma/attention_mma.cu"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    CUVIL_TRY(cuvil_mma_append(files[i], &e->source));
  if (p->split > 1) {
    uint64_t counters = (uint64_t)(p->tiles_q * v->hq * v->b) * 4;
    CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_WORKSPACE, -1,
                                       derived->workspace_bytes - counters,
                                       &partial));
    CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_ZEROED, -1,
                                       counters, &semaphore));
  }
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "attention_mma", derived->blocks,
                                  derived->threads, &step));
  step->grid[0] = (uint32_t)p->tiles_q;
  step->grid[1] = (uint32_t)v->hq;
  step->grid[2] = (uint32_t)(v->b * p->split);
  step->shared_bytes = (uint32_t)derived->shared_bytes;
  step->programmatic = p->pdl != 0;
  return add_arguments(e, v, p, partial, semaphore, step);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  struct cuvil_derived derived;
  struct view v;
  *out = NULL;
  if (!view_of(query->problem, &v) || !derive(query, config, &derived))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "this configuration cannot compute the problem");
  struct point p = point_of(query, config, &v);
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = add_kernel(&e, &v, &p, &derived);
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_attention_mma = {
    .id = "attention_mma",
    .version = 1,
    .about =
        "attention in one kernel on tensor cores: mma.sync, online "
        "softmax, keys shared by warps and blocks",
    .kinds = 1u << CUVIL_KIND_ATTENTION,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
