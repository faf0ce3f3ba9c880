/* gemm_skinny.c - matrix products of few rows (m <= 64: decoding, classifiers,
 * vocabularies) or few columns (n <= 64), which memory bounds: which problems,
 * what a point costs, what it is predicted to take, which point an untuned
 * compile gets.
 *
 * The prediction is Little's law: an SM's share of the memory's rate, or what
 * its rings keep under way divided by the latency, whichever is less; beside
 * it the shared memory's and the multipliers' rates, and the ends of a kernel.
 */
#include <math.h>

#include "kernels/common/emit.h"
#include "kernels/gemm_skinny/skinny.h"

const char *const cuvil_skinny_param_names[CUVIL_SKINNY_PARAMS] = {
    "tile_m",  "warp_n", "warps_n", "slice_k", "groups", "stages",
    "split_k", "reduce", "panel",   "persist", "tensor", "pdl"};

/* fp32 that may not be rounded has no tensor core, and rows enough for one
 * thread's registers only. */
enum { PLAIN_ROWS = 8 };

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Neighbouring columns that every row of C lets be stored at once. */
static int out_piece(const struct cuvil_mma_view *view) {
  int64_t piece =
      smaller(cuvil_divisibility(view->n), cuvil_divisibility(view->pitch));
  return (int)smaller(8, smaller(piece, cuvil_divisibility(view->step)));
}

static bool view_of(const struct cuvil_problem *problem,
                    struct cuvil_skinny *s) {
  struct cuvil_mma_view *v = &s->view;
  if (problem->kind != CUVIL_KIND_GEMM || !cuvil_mma_view(problem, v))
    return false;
  s->out_piece = out_piece(v);
  s->kept_constant = problem->operands[CUVIL_GEMM_A].weight;
  s->swapped = v->m > CUVIL_SKINNY_ROWS;
  if (!s->swapped) return true;
  struct cuvil_mma_view as = *v;
  v->m = as.n;
  v->n = as.m;
  v->a_vector = as.b_vector;
  v->b_vector = as.a_vector;
  v->a_transposed = as.b_transposed;
  v->b_transposed = as.a_transposed;
  v->pitch_a = as.pitch_b;
  v->pitch_b = as.pitch_a;
  v->step_a = as.step_b;
  v->step_b = as.step_a;
  v->b_constant = s->kept_constant;
  s->kept_constant = as.b_constant;
  return true;
}

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  struct cuvil_skinny s;
  if (arch->cc < 80 || !view_of(problem, &s)) return false;
  if (s.view.element != CUVIL_F16 && s.view.element != CUVIL_BF16 &&
      s.view.element != CUVIL_F32)
    return false;
  bool tensor = s.view.element != CUVIL_F32 || problem->tf32;
  return s.view.m <= (tensor ? CUVIL_SKINNY_ROWS : PLAIN_ROWS) &&
         s.view.batch <= 1024;
}

static int sums_of(const struct cuvil_skinny *s) {
  if (s->tensor) return s->warp_n / 16 * ((s->tile_m + 7) / 8) * 4;
  return s->tile_m * (s->view.b_transposed ? 16 / s->view.size : s->warp_n / 8);
}

/* Blocks over the tiles of columns: one each, or as many as run at once, each
 * with the same number of tiles where that comes out even. */
static int64_t workers_of(const struct cuvil_skinny *s,
                          const struct cuvil_arch *arch) {
  if (s->persist == 0) return s->tiles;
  int64_t slots =
      larger(1, (int64_t)arch->sms * s->persist / (s->split * s->view.batch));
  return cuvil_ceil_div(s->tiles, cuvil_ceil_div(s->tiles, slots));
}

static bool fits(const struct cuvil_skinny *s, bool tf32) {
  if (s->view.m > s->tile_m || s->sums > 128 || s->threads > 512) return false;
  if (s->view.element == CUVIL_F32 && s->tensor && !tf32) return false;
  if (s->tensor ? s->tile_m % 8 != 0 : s->tile_m > PLAIN_ROWS) return false;
  /* A row of K in the ring is at most a piece for each lane; ldmatrix wants
   * rows that the swizzle can keep apart. */
  if (s->view.b_transposed &&
      (s->warp_n * s->view.size / 16 > 32 || (s->tensor && s->warp_n < 32)))
    return false;
  return s->split <= s->turns && s->view.batch * s->split <= 65535;
}

bool cuvil_skinny_of(const struct cuvil_query *query,
                     const struct cuvil_config *config,
                     struct cuvil_skinny *out) {
  const int64_t *v = config->value;
  struct cuvil_skinny *s = out;
  *s = (struct cuvil_skinny){
      .tile_m = (int)v[CUVIL_SKINNY_TILE_M],
      .warp_n = (int)v[CUVIL_SKINNY_WARP_N],
      .warps_n = (int)v[CUVIL_SKINNY_WARPS_N],
      .slice_k = (int)v[CUVIL_SKINNY_SLICE_K],
      .groups = (int)v[CUVIL_SKINNY_GROUPS],
      .stages = (int)v[CUVIL_SKINNY_STAGES],
      .split = (int)v[CUVIL_SKINNY_SPLIT_K],
      .persist = (int)v[CUVIL_SKINNY_PERSIST],
      .cluster = v[CUVIL_SKINNY_REDUCE] != 0,
      .tensor = v[CUVIL_SKINNY_TENSOR] != 0,
      .pdl = v[CUVIL_SKINNY_PDL] != 0,
  };
  if (!view_of(query->problem, s)) return false;
  s->tile_n = s->warp_n * s->warps_n;
  s->threads = 32 * s->warps_n * s->slice_k;
  s->sums = sums_of(s);
  s->ring_bytes = s->threads / 32 * s->stages * 64 * s->warp_n * s->groups;
  s->tiles = cuvil_ceil_div(s->view.n, s->tile_n);
  s->workers = workers_of(s, query->arch);
  s->turn_k = 64 / s->view.size * s->groups * s->slice_k;
  s->turn_bytes = s->groups * s->slice_k * ((s->tile_m + 7) / 8) * 512;
  s->turns = cuvil_ceil_div(s->view.k, s->turn_k);
  s->chunk = smaller(v[CUVIL_SKINNY_PANEL] * 1024 / s->turn_bytes,
                     cuvil_ceil_div(s->turns, s->split));
  return s->chunk >= 1 && fits(s, query->problem->tf32);
}

/* As sums lie in skinny_multiply.cuh. */
static int shared_of(const struct cuvil_skinny *s) {
  int blocks = (s->tile_m + 7) / 8;
  int rows = s->tensor ? blocks * 8 : s->tile_m;
  int tile = s->swapped ? s->tile_n * (blocks * 8 + (blocks % 2 ? 16 : 8))
                        : rows * (s->tile_n + 4);
  int sums = s->slice_k * tile * 4 + 16;
  int64_t panel = s->chunk * s->turn_bytes;
  int64_t front =
      s->persist ? s->ring_bytes + sums : larger(s->ring_bytes, sums);
  return (int)smaller(front + panel, INT32_MAX);
}

/* Of the sums that a block hands over. */
static uint64_t part_floats(const struct cuvil_skinny *s) {
  int rows = s->swapped ? (s->tile_m + 7) / 8 * 8 : s->tile_m;
  return (uint64_t)rows * (uint64_t)s->tile_n;
}

/* Registers as they come out, within about ten. */
static int usual_registers(const struct cuvil_skinny *s) {
  int operands = s->tensor ? (s->tile_m + 7) / 8 * 4 + 12 : 24 + s->warp_n / 4;
  return (int)smaller(s->sums + operands + 48, 255);
}

bool cuvil_skinny_derive(const struct cuvil_query *query,
                         const struct cuvil_config *config,
                         struct cuvil_derived *out) {
  struct cuvil_skinny s;
  const struct cuvil_arch *arch = query->arch;
  bool can = cuvil_skinny_of(query, config, &s);
  *out = (struct cuvil_derived){.cluster = s.cluster ? s.split : 1};
  if (!can) return false;
  out->threads = s.threads;
  out->shared_bytes = shared_of(&s);
  out->registers_least = s.sums + 8;
  out->blocks = s.workers * s.split * s.view.batch;
  int64_t jobs = s.tiles * s.view.batch;
  if (s.split > 1 && !s.cluster)
    out->workspace_bytes =
        (uint64_t)(jobs * s.split) * part_floats(&s) * 4 + (uint64_t)jobs * 4;
  if (s.cluster && (s.split < 2 || s.split > arch->max_cluster)) return false;
  if (s.pdl && arch->cc < 90) return false;
  /* Two blocks on an SM are compiled for half of its registers each. */
  int registers = usual_registers(&s);
  if (s.persist > 1) registers = (int)smaller(registers, 65536 / 2 / s.threads);
  if (s.persist > 1 && s.sums + 40 > registers) return false;
  int resident =
      cuvil_arch_blocks_per_sm(arch, s.threads, registers, out->shared_bytes);
  if (resident < 1 || resident < s.persist) return false;
  out->waves = (double)out->blocks / ((double)arch->sms * resident);
  return true;
}

/* ---- the prediction */
#define CLOCK 1.7e9
#define LATENCY 9e-7    /* of a read of memory while all read */
#define MOST_OF_ONE 1.4 /* times its share that one SM can take */

/* Seconds in which one SM's blocks multiply and move `bytes` of weights inside
 * the SM. */
static double inside_seconds(const struct cuvil_skinny *s,
                             const struct cuvil_arch *arch, double bytes) {
  double blocks_m = (s->tile_m + 7) / 8, sixteens = s->warp_n / 16.0;
  /* Written, read once, and with each sixteen's turn the panel's blocks. */
  double shared = bytes * (2 + blocks_m / (2 * sixteens)) / 128 / CLOCK;
  double elements = bytes / s->view.size;
  double multiply;
  if (s->tensor) {
    double rate = s->view.size == 4 ? arch->flops_tf32 : arch->flops_f16;
    if (arch->cc >= 90) rate *= 0.6;
    multiply = elements * 2 * blocks_m * 8 / (rate / arch->sms);
  } else {
    multiply =
        elements * (2 * s->tile_m + 3) / (0.6 * arch->flops_f32 / arch->sms);
  }
  if (s->view.b_vector < 16) shared *= 16 / s->view.b_vector;
  return fmax(shared, multiply);
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct cuvil_skinny s;
  const struct cuvil_arch *arch = query->arch;
  if (!cuvil_skinny_of(query, config, &s)) return INFINITY;
  double resident =
      fmax(1, floor(derived->blocks / (derived->waves * arch->sms) + 0.5));
  int64_t share = cuvil_ceil_div(derived->blocks, arch->sms);
  double together = fmin(resident, (double)share);
  double busy = fmin((double)arch->sms, (double)derived->blocks);
  /* The longest SM's weights and activations. */
  double tiles_each = (double)cuvil_ceil_div(s.tiles, s.workers);
  double part = (double)cuvil_ceil_div(s.turns, s.split) * s.turn_k;
  double weights = share * tiles_each * s.tile_n * part * s.view.size;
  double panel = (double)share * s.view.m * part * s.view.size;
  int64_t turns = cuvil_ceil_div(s.turns, s.split);
  double refills = s.chunk < turns
                       ? (double)cuvil_ceil_div(turns, s.chunk) * tiles_each - 1
                       : 0;
  if (s.chunk < turns) panel *= tiles_each;
  double narrow = s.view.b_vector < 4 ? 0.25 : 1;
  double flight = together * s.ring_bytes * narrow;
  double rate =
      fmin(flight / LATENCY,
           fmin(arch->memory_bytes_per_second / busy,
                MOST_OF_ONE * arch->memory_bytes_per_second / arch->sms));
  /* The result and what is read beside it share the memory with the weights. */
  double beside = (double)cuvil_problem_bytes(query->problem) -
                  (double)s.view.n * s.view.k * s.view.size * s.view.batch;
  double seconds =
      fmax((weights + 0.6 * panel) / rate +
               0.7 * fmax(0, beside) / arch->memory_bytes_per_second,
           inside_seconds(&s, arch, weights));
  /* Start, ramp, the panel's first read, sums and result. */
  seconds += s.pdl ? 1.6e-6 : 2.2e-6;
  seconds += 3e-7 * refills; /* warps wait, copies go on */
  double sums = (double)s.tile_m * s.tile_n * 4;
  seconds +=
      tiles_each * (2e-7 + sums * (s.slice_k + 2) * together / 128 / CLOCK);
  if (s.split > 1 && s.cluster) seconds += 6e-7 + sums / 32 / CLOCK;
  if (s.split > 1 && !s.cluster)
    seconds += 1.6e-6 + sums * (s.split + 1) / 32 / CLOCK;
  return seconds;
}

/* ---- the default: what the prediction likes best on a coarse grid */
static int default_rows(int64_t m, bool tensor) {
  static const int blocks[] = {8, 16, 24, 32, 48, 64}, plain[] = {1, 2, 4, 8};
  const int *rows = tensor ? blocks : plain;
  int i = 0;
  while (rows[i] < m)
    i++;
  return rows[i];
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  static const int shapes[][4] = {/* warp_n, warps_n, slice_k, stages */
                                  {16, 1, 4, 6}, {16, 2, 4, 6}, {32, 1, 8, 3},
                                  {32, 2, 4, 3}, {32, 4, 2, 4}, {64, 1, 4, 3},
                                  {64, 2, 2, 3}, {32, 2, 2, 4}};
  static const int splits[] = {1, 2, 4, 8, 16, 32};
  struct cuvil_skinny s;
  double best = INFINITY;
  *out = (struct cuvil_config){{0}};
  if (!view_of(query->problem, &s)) return; /* not asked for these */
  bool tensor = s.view.element != CUVIL_F32 || query->problem->tf32;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t j = 0; j < sizeof splits / sizeof *splits; j++)
      for (int panel = 32; panel <= 64; panel *= 2) {
        struct cuvil_config config = {{0}};
        struct cuvil_derived derived;
        int64_t *v = config.value;
        v[CUVIL_SKINNY_TILE_M] = default_rows(s.view.m, tensor);
        v[CUVIL_SKINNY_WARP_N] = shapes[i][0];
        v[CUVIL_SKINNY_WARPS_N] = shapes[i][1];
        v[CUVIL_SKINNY_SLICE_K] = shapes[i][2];
        v[CUVIL_SKINNY_GROUPS] = 2;
        v[CUVIL_SKINNY_STAGES] = shapes[i][3];
        v[CUVIL_SKINNY_SPLIT_K] = splits[j];
        v[CUVIL_SKINNY_REDUCE] =
            splits[j] > 1 && splits[j] <= query->arch->max_cluster;
        v[CUVIL_SKINNY_PANEL] = panel;
        v[CUVIL_SKINNY_TENSOR] = tensor;
        v[CUVIL_SKINNY_PDL] = cuvil_default_pdl(query->arch);
        if (!cuvil_skinny_derive(query, &config, &derived)) continue;
        double seconds = predict(query, &config, &derived);
        if (seconds >= best) continue;
        best = seconds;
        *out = config;
      }
}

const struct cuvil_family cuvil_family_gemm_skinny = {
    .id = "gemm_skinny",
    .version = 1,
    .about =
        "matrix product of up to 64 rows or columns: the other operand "
        "streamed "
        "once through cp.async rings, mma.sync or FFMA, split K",
    .kinds = 1u << CUVIL_KIND_GEMM,
    .applicable = applicable,
    .default_config = default_config,
    .derive = cuvil_skinny_derive,
    .predict = predict,
    .emit = cuvil_skinny_emit,
};
