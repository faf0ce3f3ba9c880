/* conv_depthwise.c - convolutions whose groups are single channels.
 *
 * There is no product to speak of: each input element meets r * s taps, so the
 * kernel is bound by memory, and by how often a row comes from L1 again.
 * Channels as vectors in NHWC; a tile of outputs a thread, so that neighbours
 * share what they read.  Window, stride and padding are in the code.  Several
 * outputs a channel and other layouts go element by element.
 */
#include "kernels/common/emit.h"

enum { WINDOW_MOST = 64 /* taps unrolled */, CODE_MOST = 4096 /* FMAs */ };

static bool applicable(const struct cuvil_problem *p,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return p->kind == CUVIL_KIND_CONV &&
         p->group == p->dims[CUVIL_CONV_DIM_C].extent &&
         p->dims[CUVIL_CONV_DIM_R].extent * p->dims[CUVIL_CONV_DIM_S].extent <=
             WINDOW_MOST;
}

struct point {
  int vec, lanes, spots, tile_p, tile_q, march, resident, pdl;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  const struct cuvil_space *space = query->space;
  return (struct point){
      (int)cuvil_config_get(space, config, "vec"),
      (int)cuvil_config_get(space, config, "lanes"),
      (int)cuvil_config_get(space, config, "spots"),
      (int)cuvil_config_get(space, config, "tile_p"),
      (int)cuvil_config_get(space, config, "tile_q"),
      (int)cuvil_config_get(space, config, "march"),
      (int)cuvil_config_get(space, config, "resident"),
      (int)cuvil_config_get(space, config, "pdl"),
  };
}

static int64_t extent(const struct cuvil_problem *p, int dim) {
  return p->dims[dim].extent;
}

static int64_t taps_of(const struct cuvil_problem *p) {
  return extent(p, CUVIL_CONV_DIM_R) * extent(p, CUVIL_CONV_DIM_S);
}

/* Channels fastest in input and output, one output each, whole vectors of
 * them, which the epilogue may take to be aligned. */
static bool vector_fits(const struct cuvil_problem *p, int vec) {
  const struct cuvil_operand *x = &p->operands[CUVIL_CONV_X];
  if (vec == 1) return true;
  return cuvil_fastest_dim(x) == CUVIL_CONV_DIM_C &&
         cuvil_fastest_dim(&p->operands[CUVIL_CONV_Y]) == CUVIL_CONV_DIM_K &&
         x->limit[x->rank - 1] == 0 &&
         cuvil_operand_alignment(p, CUVIL_CONV_Y) >= vec &&
         extent(p, CUVIL_CONV_DIM_K) == extent(p, CUVIL_CONV_DIM_C) &&
         extent(p, CUVIL_CONV_DIM_K) % vec == 0;
}

/* Output rows whose sums a thread has at one time. */
static int rows_of(const struct cuvil_problem *p, struct point at) {
  int64_t window =
      (extent(p, CUVIL_CONV_DIM_R) - 1) * p->dilation[0] + p->stride[0];
  return at.march ? (int)(window / p->stride[0]) : at.tile_p;
}

/* Blocks on a multiprocessor that the threads asked for make; 1: no demand. */
static int resident_blocks(struct point at) {
  int blocks = at.resident / (at.lanes * at.spots);
  return blocks < 1 ? 1 : blocks > 16 ? 16 : blocks;
}

static int64_t slabs_of(const struct cuvil_problem *p, struct point at) {
  return cuvil_ceil_div(extent(p, CUVIL_CONV_DIM_K),
                        (int64_t)at.lanes * at.vec);
}

static int64_t columns_of(const struct cuvil_problem *p, struct point at) {
  int64_t tiles = extent(p, CUVIL_CONV_DIM_N) *
                  cuvil_ceil_div(extent(p, CUVIL_CONV_DIM_P), at.tile_p) *
                  cuvil_ceil_div(extent(p, CUVIL_CONV_DIM_Q), at.tile_q);
  return cuvil_ceil_div(tiles, at.spots);
}

/* ---- the untuned choice */
/* Of the parameter's values the one that pads `total` least in units of
 * `unit`; the larger of equals, up to `most`. */
static int least_padding(const struct cuvil_space *space, const char *name,
                         int64_t total, int unit, int most) {
  const struct cuvil_param *p = &space->params[cuvil_space_param(space, name)];
  int best = 1;
  int64_t best_padded = -1;
  for (int i = 0; i < p->count; i++) {
    int64_t each = p->values[i] * unit;
    int64_t padded = cuvil_ceil_div(total, each) * each;
    if (p->values[i] > most) continue;
    if (best_padded >= 0 && padded > best_padded) continue;
    if (padded == best_padded && p->values[i] < best) continue;
    best = (int)p->values[i];
    best_padded = padded;
  }
  return best;
}

/* Wide vectors where there are outputs enough to fill the chip; tiles of them
 * where there are more, high ones by marching. */
static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  const struct cuvil_problem *p = query->problem;
  const struct cuvil_space *space = query->space;
  struct point at = {.vec = 8, .spots = 4, .tile_p = 1, .tile_q = 1};
  int64_t points = cuvil_output_points(p);
  int64_t threads = (int64_t)query->arch->sms * 512;
  if (cuvil_dtype_size(p->operands[CUVIL_CONV_X].dtype) >= 4) at.vec = 4;
  while (at.vec > 1 && (!vector_fits(p, at.vec) ||
                        (at.vec > 2 && points / at.vec < threads) ||
                        (at.vec > 4 && points / at.vec >= 4 * threads)))
    at.vec /= 2;
  int64_t k = extent(p, CUVIL_CONV_DIM_K), q = extent(p, CUVIL_CONV_DIM_Q);
  bool channels_last =
      cuvil_fastest_dim(&p->operands[CUVIL_CONV_Y]) == CUVIL_CONV_DIM_K;
  at.lanes = channels_last ? least_padding(space, "lanes", k, at.vec, 32) : 1;
  while (at.lanes * at.spots < 128 || at.lanes * at.spots % 32)
    at.spots *= 2;
  if (points / at.vec >= 4 * threads)
    at.tile_q = least_padding(space, "tile_q", q, 1, 4);
  int64_t high = points / at.vec / at.tile_q / threads;
  if (high >= 2)
    at.tile_p = least_padding(space, "tile_p", extent(p, CUVIL_CONV_DIM_P), 1,
                              high > 14 ? 14 : (int)high);
  at.march = at.tile_p >= 4;
  cuvil_space_default(space, out);
  cuvil_config_set(space, out, "vec", at.vec);
  cuvil_config_set(space, out, "lanes", at.lanes);
  cuvil_config_set(space, out, "spots", at.spots);
  cuvil_config_set(space, out, "tile_p", at.tile_p);
  cuvil_config_set(space, out, "tile_q", at.tile_q);
  cuvil_config_set(space, out, "march", at.march);
  cuvil_config_set(space, out, "pdl", cuvil_default_pdl(query->arch));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  const struct cuvil_problem *p = query->problem;
  struct point at = read_point(query, config);
  int tile = rows_of(p, at) * at.tile_q * at.vec;
  out->threads = at.lanes * at.spots;
  out->shared_bytes = (int)taps_of(p) * (at.lanes * at.vec + 4) * 4;
  out->registers_least = 8 + tile;
  /* What does not fit is spilt.  Four schedulers share registers and warps. */
  int warps = (resident_blocks(at) * (out->threads / 32) + 3) / 4;
  if (warps < 1) warps = 1;
  int most = query->arch->registers_per_sm / 4 / (warps * 32) / 8 * 8;
  if (out->registers_least > most) out->registers_least = most;
  out->blocks = columns_of(p, at) * slabs_of(p, at);
  out->cluster = 1;
  if (out->threads > 1024 || out->threads % 32 ||
      out->shared_bytes > 48 * 1024 || slabs_of(p, at) > 65535 ||
      taps_of(p) * at.tile_q * at.vec * (at.march ? 1 : at.tile_p) >
          CODE_MOST ||
      resident_blocks(at) * out->threads > query->arch->max_threads_per_sm)
    return false;
  cuvil_derive_waves(query->arch, out);
  return vector_fits(p, at.vec) && (!at.pdl || query->arch->cc >= 90);
}

/* Input elements that a thread loads for each of its outputs. */
static double loads_of(const struct cuvil_problem *p, struct point at,
                       double *out_columns) {
  double rows =
      (double)((at.tile_p - 1) * p->stride[0] +
               (extent(p, CUVIL_CONV_DIM_R) - 1) * p->dilation[0] + 1);
  double columns =
      (double)((at.tile_q - 1) * p->stride[1] +
               (extent(p, CUVIL_CONV_DIM_S) - 1) * p->dilation[1] + 1);
  *out_columns = columns;
  return rows * columns / (at.tile_p * at.tile_q);
}

/* Turns of the L1 for one access of a warp: a line of 128 bytes each, and as
 * many as the bytes take. */
static double turns_of(struct point at, double size) {
  double groups = at.lanes < 32 ? 32.0 / at.lanes : 1;
  double bytes = (at.lanes < 32 ? at.lanes : 32) * at.vec * size;
  return groups * (bytes > 128 ? bytes / 128 : 1);
}

/* The slower of memory (as much as is under way) and an SM's work: loads from
 * L1, taps from shared memory, arithmetic. */
static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = query->problem;
  const struct cuvil_arch *arch = query->arch;
  struct point at = read_point(query, config);
  double size = (double)cuvil_dtype_size(p->operands[CUVIL_CONV_X].dtype);
  double threads = (double)derived->blocks * derived->threads;
  double outputs = threads * at.tile_p * at.tile_q * at.vec;
  double columns, loads = loads_of(p, at, &columns) * outputs;
  double sums = rows_of(p, at) * at.tile_q * at.vec;
  double wanted = 40 + sums + 1.5 * columns * at.vec;
  double room = at.resident ? 65536.0 / at.resident : 255;
  double registers = wanted < room ? wanted : room;
  double most = 65536.0 / registers < arch->max_threads_per_sm
                    ? 65536.0 / registers
                    : arch->max_threads_per_sm;
  if (threads / arch->sms < most) most = threads / arch->sms;
  double rate = most * arch->sms * columns * at.vec * size / 7e-7;
  if (rate > arch->memory_bytes_per_second)
    rate = arch->memory_bytes_per_second;
  double memory = cuvil_problem_bytes(p) / rate;
  double warps = 1.0 / (32.0 * at.vec), cycles = 0;
  cycles += loads * warps * turns_of(at, size);
  cycles += outputs / at.tile_q * (double)taps_of(p) * warps *
            (at.vec > 4 ? at.vec / 4.0 : 1);
  cycles += (outputs * (double)taps_of(p) + loads) / 128 * 1.3;
  double busy = threads < arch->sms * 256.0 ? threads / 256 : arch->sms;
  if (wanted > room) cycles *= wanted / room * wanted / room;
  double work = cycles / (1.5e9 * busy);
  return 2.5e-6 + (work > memory ? work + 0.3 * memory : memory + 0.3 * work) -
         1e-6 * at.pdl;
}

/* ---- emission */
static void put_defines(struct cuvil_emission *e, struct point at) {
  const struct cuvil_problem *p = e->query->problem;
  cuvil_emission_define(e, "VEC", at.vec);
  cuvil_emission_define(e, "LANES", at.lanes);
  cuvil_emission_define(e, "SPOTS", at.spots);
  cuvil_emission_define(e, "TILE_P", at.tile_p);
  cuvil_emission_define(e, "TILE_Q", at.tile_q);
  cuvil_emission_define(e, "MARCH", at.march);
  cuvil_emission_define(e, "RESIDENT", resident_blocks(at));
  cuvil_emission_define(e, "R", extent(p, CUVIL_CONV_DIM_R));
  cuvil_emission_define(e, "S", extent(p, CUVIL_CONV_DIM_S));
  cuvil_emission_define(e, "STRIDE_H", p->stride[0]);
  cuvil_emission_define(e, "STRIDE_W", p->stride[1]);
  cuvil_emission_define(e, "PAD_TOP", p->pad[0]);
  cuvil_emission_define(e, "PAD_LEFT", p->pad[1]);
  cuvil_emission_define(e, "DILATION_H", p->dilation[0]);
  cuvil_emission_define(e, "DILATION_W", p->dilation[1]);
  cuvil_emission_define(
      e, "MULTIPLIER",
      extent(p, CUVIL_CONV_DIM_K) / extent(p, CUVIL_CONV_DIM_C));
  cuvil_emission_define(e, "TAPS_CONSTANT", p->operands[CUVIL_CONV_W].weight);
  cuvil_emission_define(e, "IN_ALIGNED",
                        cuvil_operand_alignment(p, CUVIL_CONV_X));
}

static enum cuvil_status add_kernel(struct cuvil_emission *e, struct point at) {
  static const struct {
    int operand;
    const char *name;
  } operands[] = {
      {CUVIL_CONV_Y, "OUT"}, {CUVIL_CONV_X, "IN"}, {CUVIL_CONV_W, "TAP"}};
  const struct cuvil_problem *p = e->query->problem;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  for (int i = 0; i < 3; i++)
    cuvil_emit_operand(p, operands[i].operand, operands[i].name, &e->source);
  put_defines(e, at);
  CUVIL_TRY(cuvil_emission_file(e, "kernels/conv_depthwise/conv_depthwise.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "conv_depthwise", columns_of(p, at),
                                  at.lanes * at.spots, &step));
  step->grid[1] = (uint32_t)slabs_of(p, at);
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

const struct cuvil_family cuvil_family_conv_depthwise = {
    .id = "conv_depthwise",
    .version = 1,
    .about = "convolutions of single channels, tiles of outputs in registers",
    .kinds = 1u << CUVIL_KIND_CONV,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
