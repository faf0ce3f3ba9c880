/* mma.c - the matrix-product families without their text: which problems they
 * do, what a point of their space costs, and which point an untuned compile
 * gets.
 *
 * Tensor cores and plain fp32 (simt) differ in what a warp's tile is made of,
 * in rates and in registers; all else is said once.  The prediction is a walk
 * through one block's life in cycles; it orders candidates, and the default
 * configuration is simply the point of a small grid that it likes best.
 */
#include "kernels/common/mma.h"

#include <math.h>

const char *const cuvil_mma_param_names[CUVIL_MMA_PARAMS] = {
    "tile_m", "tile_n",  "tile_k", "warps_m", "warps_n", "slice_k",
    "stages", "split_k", "reduce", "order",   "pdl",     "ahead"};

bool cuvil_mma_applicable(const struct cuvil_problem *problem,
                          const struct cuvil_arch *arch) {
  struct cuvil_mma_view view;
  if (arch->cc < 80 || !cuvil_mma_view(problem, &view)) return false;
  if (view.element == CUVIL_F16 || view.element == CUVIL_BF16) return true;
  /* ldmatrix transposes 16-bit elements only. */
  return view.element == CUVIL_F32 && problem->tf32 && !view.a_transposed &&
         !view.b_transposed;
}

bool cuvil_simt_applicable(const struct cuvil_problem *problem,
                           const struct cuvil_arch *arch) {
  struct cuvil_mma_view view;
  if (arch->cc < 80 || !cuvil_mma_view(problem, &view)) return false;
  return view.element == CUVIL_F16 || view.element == CUVIL_BF16 ||
         view.element == CUVIL_F32;
}

/* ---- what a point is */
struct point {
  int tile_m, tile_n, tile_k, warps_m, warps_n, slice_k, stages, split, order;
  bool cluster, pdl, ahead, simt;
};

static struct point point_of(const struct cuvil_config *config, bool simt) {
  const int64_t *v = config->value;
  return (struct point){
      .tile_m = (int)v[CUVIL_MMA_TILE_M],
      .tile_n = (int)v[CUVIL_MMA_TILE_N],
      .tile_k = (int)v[CUVIL_MMA_TILE_K],
      .warps_m = (int)v[CUVIL_MMA_WARPS_M],
      .warps_n = (int)v[CUVIL_MMA_WARPS_N],
      .slice_k = (int)v[CUVIL_MMA_SLICE_K],
      .stages = (int)v[CUVIL_MMA_STAGES],
      .split = (int)v[CUVIL_MMA_SPLIT_K],
      .order = (int)v[CUVIL_MMA_ORDER],
      .cluster = v[CUVIL_MMA_REDUCE] != 0,
      .pdl = v[CUVIL_MMA_PDL] != 0,
      .ahead = v[CUVIL_MMA_AHEAD] != 0,
      .simt = simt,
  };
}

static int64_t tiles_of(int64_t extent, int tile) {
  return (extent + tile - 1) / tile;
}

static int smaller(int a, int b) {
  return a < b ? a : b;
}
static int larger(int a, int b) {
  return a > b ? a : b;
}

/* The loaders give every thread one piece of a row, of few rows: each costs
 * registers, most of all where a piece is too small for cp.async and goes
 * through one. */
static bool can_copy(int rows, int row_bytes, int vector, int threads) {
  int in_row = row_bytes / vector;
  if (in_row > threads) return false;
  int step = threads / in_row;
  return (rows + step - 1) / step <= 16;
}

static bool panels_can(const struct cuvil_mma_view *v, const struct point *p,
                       int threads) {
  int k_bytes = p->tile_k * v->size;
  return can_copy(v->a_transposed ? p->tile_k : p->tile_m,
                  v->a_transposed ? p->tile_m * v->size : k_bytes, v->a_vector,
                  threads) &&
         can_copy(v->b_transposed ? p->tile_k : p->tile_n,
                  v->b_transposed ? p->tile_n * v->size : k_bytes, v->b_vector,
                  threads);
}

/* Registers of one step's operands. */
static int fragment_registers(const struct point *p) {
  int rows = p->tile_m / p->warps_m, columns = p->tile_n / p->warps_n;
  return p->simt ? rows / 2 + columns : rows / 4 + columns / 4;
}

/* Registers as they come out, within about ten: sums, fragments, what the
 * loaders keep for each row, and addresses; see BLOCKS in mma_kernel.cuh. */
static int usual_registers(const struct cuvil_mma_view *v,
                           const struct point *p, int sums, int threads) {
  int fragments = fragment_registers(p);
  int rows = p->tile_m * p->tile_k * v->size / v->a_vector / threads;
  int loader = !v->conv ? 8 : v->plain ? rows : 3 * rows;
  int all = sums + fragments + loader + 20 + (p->ahead ? fragments + 20 : 0);
  if (!p->ahead && sums <= (p->simt ? 32 : 64) && rows < 8)
    all = smaller(all, 128);
  return smaller(255, larger(all, 40));
}

/* A warp's part is whole fragments: 16 by 16, or (simt) 8 by 4 lanes that own
 * four or eight rows and columns each. */
static bool warps_divide(const struct point *p, int size) {
  int rows = p->tile_m / p->warps_m, columns = p->tile_n / p->warps_n;
  if (rows * p->warps_m != p->tile_m || columns * p->warps_n != p->tile_n)
    return false;
  if (!p->simt)
    return rows % 16 == 0 && columns % 16 == 0 && rows * columns <= 4096 &&
           p->tile_k * size >= 32 * p->slice_k;
  return (rows == 32 || rows == 64) && (columns == 16 || columns == 32) &&
         p->tile_k >= 4 * p->slice_k;
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config, bool simt,
                   struct cuvil_derived *out) {
  struct point p = point_of(config, simt);
  *out = (struct cuvil_derived){.cluster = p.cluster ? p.split : 1};
  struct cuvil_mma_view v;
  if (!cuvil_mma_view(query->problem, &v)) return false;
  int sums = p.tile_m * p.tile_n / (p.warps_m * p.warps_n * 32);
  int stage = (p.tile_m + p.tile_n) * p.tile_k * v.size;
  out->threads = 32 * p.warps_m * p.warps_n * p.slice_k;
  out->shared_bytes =
      larger(p.stages * stage, p.slice_k * p.tile_m * (p.tile_n + 8) * 4);
  out->registers_least = sums + 8;
  int64_t tiles = cuvil_mma_tiles(&v, p.tile_m, p.tile_n);
  out->blocks = tiles * p.split;
  if (p.split > 1 && !p.cluster)
    out->workspace_bytes =
        (uint64_t)out->blocks * p.tile_m * p.tile_n * 4 + (uint64_t)tiles * 4;
  if (!warps_divide(&p, v.size) || p.split > tiles_of(v.k, p.tile_k))
    return false;
  int resident = cuvil_arch_blocks_per_sm(
      query->arch, out->threads, usual_registers(&v, &p, sums, out->threads),
      out->shared_bytes);
  if (resident < 1) return false;
  out->waves = (double)out->blocks / ((double)query->arch->sms * resident);
  if (p.cluster && (p.split < 2 || p.split > query->arch->max_cluster))
    return false;
  if (p.pdl && query->arch->cc < 90) return false;
  if (p.order == 0 && tiles_of(v.n, p.tile_n) > 65535) return false;
  if (v.batch * p.split > 65535) return false;
  return panels_can(&v, &p, out->threads);
}

bool cuvil_mma_derive(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      struct cuvil_derived *out) {
  return derive(query, config, false, out);
}

bool cuvil_simt_derive(const struct cuvil_query *query,
                       const struct cuvil_config *config,
                       struct cuvil_derived *out) {
  return derive(query, config, true, out);
}

/* ---- the prediction: cycles of an SM that runs `resident` blocks at once */
enum {
  L2_LATENCY = 700,   /* cycles from a copy's issue to its data */
  L2_BYTES = 48,      /* per cycle and SM, all SMs reading */
  SHARED_BYTES = 128, /* per cycle and SM */
  BLOCK_START = 900,  /* launch, addresses */
  PDL_SAVES = 700,    /* of it, hidden behind the predecessor */
  BARRIER = 60,       /* a turn of the loop that is not arithmetic */
  STEP_LATENCY = 35,  /* a step's dependent mma */
  HAND_OVER = 2600,   /* fence, atomic, fence, reading back */
  CLUSTER_COST = 900, /* two cluster barriers and remote reads */
};
#define CLOCK 1.7e9

/* Largest rate of mma.sync, multiply-adds counted as two: Hopper's wgmma path
 * is not open to it. */
static double flops_per_cycle(const struct cuvil_arch *arch, bool simt,
                              enum cuvil_dtype element) {
  if (simt) return arch->flops_f32 * 0.7 / arch->sms / CLOCK;
  double rate = element == CUVIL_F32 ? arch->flops_tf32 : arch->flops_f16;
  if (arch->cc >= 90) rate *= 0.64;
  return rate / arch->sms / CLOCK;
}

static double turn_cycles(const struct cuvil_mma_view *v, const struct point *p,
                          const struct cuvil_arch *arch, int resident) {
  double warps = p->warps_m * p->warps_n * p->slice_k * resident;
  double k_bytes = (double)p->tile_k * v->size;
  double fill = warps >= 8 ? 1 : warps / 8;
  double multiply = 2.0 * p->tile_m * p->tile_n * p->tile_k /
                    flops_per_cycle(arch, p->simt, v->element) / fill;
  double stage = (p->tile_m + p->tile_n) * k_bytes;
  double reads = (p->warps_n * p->tile_m + p->warps_m * p->tile_n) * k_bytes;
  if (p->simt) /* every read of a warp takes four cycles, shared or not */
    reads = p->warps_m * p->warps_n * fragment_registers(p) / 4.0 * p->tile_k *
            SHARED_BYTES;
  double shared = (reads + stage) / SHARED_BYTES;
  double narrow = 16.0 / smaller(v->a_vector, v->b_vector);
  double far = stage / L2_BYTES * (narrow > 1 ? narrow : 1);
  double busy = fmax(multiply, fmax(shared, far)) * resident;
  double wait = fmax((double)L2_LATENCY / (p->stages - 1),
                     p->tile_k * (p->simt ? 0.25 : v->size / 32.0) /
                         p->slice_k * STEP_LATENCY);
  return fmax(busy, wait) + 0.2 * fmin(busy, wait) + BARRIER;
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config, bool simt,
                      const struct cuvil_derived *derived) {
  struct cuvil_mma_view v;
  if (!cuvil_mma_view(query->problem, &v)) return INFINITY;
  const struct cuvil_arch *arch = query->arch;
  struct point p = point_of(config, simt);
  double per_sm =
      derived->waves > 0 ? derived->blocks / (derived->waves * arch->sms) : 1;
  int64_t share = tiles_of(derived->blocks, arch->sms);
  int resident = share < per_sm ? (int)share : (int)(per_sm + 0.5);
  double waves = ceil(derived->waves);
  double turns = ceil((double)tiles_of(v.k, p.tile_k) / p.split);
  double tile = (double)p.tile_m * p.tile_n * 4;
  double sums = tile * 2 * p.slice_k / SHARED_BYTES * resident + 200;
  double result = tile / L2_BYTES * resident + 300;
  double join = 0;
  if (p.split > 1 && p.cluster)
    join = CLUSTER_COST + tile * p.slice_k / 32;
  else if (p.split > 1)
    join = HAND_OVER + tile * (p.split + 1) / 32;
  if (p.cluster) result /= p.split;
  double block = BLOCK_START - (p.pdl ? PDL_SAVES : 0) + L2_LATENCY +
                 turns * turn_cycles(&v, &p, arch, resident) + sums + result +
                 join;
  /* Blocks of later waves start while others end. */
  double cycles = block * (waves > 1 ? fmax(derived->waves, 1) + 0.5 : 1);
  return fmax(cycles / CLOCK, cuvil_problem_bytes(query->problem) /
                                  arch->memory_bytes_per_second);
}

double cuvil_mma_predict(const struct cuvil_query *query,
                         const struct cuvil_config *config,
                         const struct cuvil_derived *derived) {
  return predict(query, config, false, derived);
}

double cuvil_simt_predict(const struct cuvil_query *query,
                          const struct cuvil_config *config,
                          const struct cuvil_derived *derived) {
  return predict(query, config, true, derived);
}

/* ---- the default: what the prediction likes best on a coarse grid */
struct best {
  double seconds;
  struct cuvil_config config;
};

static void consider(const struct cuvil_query *query,
                     struct cuvil_config config, bool simt, struct best *best) {
  int64_t *v = config.value;
  struct cuvil_derived derived;
  v[CUVIL_MMA_ORDER] = 0;
  if (!derive(query, &config, simt, &derived)) return;
  if (derived.blocks > 2 * query->arch->sms * v[CUVIL_MMA_SPLIT_K])
    v[CUVIL_MMA_ORDER] = 8; /* bands when not all blocks are resident */
  double seconds = predict(query, &config, simt, &derived);
  if (seconds >= best->seconds) return;
  *best = (struct best){seconds, config};
}

static void consider_splits(const struct cuvil_query *query, int64_t k,
                            struct cuvil_config config, bool simt,
                            struct best *best) {
  static const int splits[] = {1, 2, 4, 8};
  int64_t *v = config.value;
  for (int i = 0; i < 4; i++) {
    int64_t part = tiles_of(k, (int)v[CUVIL_MMA_TILE_K]) / splits[i];
    if (part < (splits[i] > 1 ? 2 : 1)) continue;
    if (v[CUVIL_MMA_STAGES] > 2 && v[CUVIL_MMA_STAGES] > part + 1) continue;
    v[CUVIL_MMA_SPLIT_K] = splits[i];
    v[CUVIL_MMA_REDUCE] = splits[i] > 1 && query->arch->max_cluster >= 8;
    consider(query, config, simt, best);
  }
}

struct coarse {
  int tile_m, tile_n, warps_m, warps_n, slice_k, ahead;
};

static void choose(const struct cuvil_query *query, const struct coarse *grid,
                   int count, bool simt, struct cuvil_config *out) {
  struct cuvil_mma_view view;
  *out = (struct cuvil_config){{0}};
  if (!cuvil_mma_view(query->problem, &view)) return; /* not asked for these */
  struct best best = {.seconds = INFINITY};
  int shortest = simt ? 16 : 32;
  for (int t = 0; t < count; t++)
    for (int tile_k = shortest; tile_k <= 2 * shortest; tile_k *= 2)
      for (int stages = 2; stages <= 4; stages++) {
        struct cuvil_config config = {{0}};
        int64_t *v = config.value;
        if (simt && grid[t].slice_k > 1 && tile_k == shortest) continue;
        v[CUVIL_MMA_TILE_M] = grid[t].tile_m;
        v[CUVIL_MMA_TILE_N] = grid[t].tile_n;
        v[CUVIL_MMA_WARPS_M] = grid[t].warps_m;
        v[CUVIL_MMA_WARPS_N] = grid[t].warps_n;
        v[CUVIL_MMA_SLICE_K] = grid[t].slice_k;
        v[CUVIL_MMA_AHEAD] = grid[t].ahead;
        v[CUVIL_MMA_TILE_K] = tile_k;
        v[CUVIL_MMA_STAGES] = stages;
        v[CUVIL_MMA_PDL] = query->arch->cc >= 90;
        consider_splits(query, view.k, config, simt, &best);
      }
  *out = best.config;
}

void cuvil_mma_default(const struct cuvil_query *query,
                       struct cuvil_config *out) {
  static const struct coarse grid[] = {
      {16, 32, 1, 1, 4, 1},  {32, 32, 1, 2, 2, 1},   {32, 64, 1, 2, 2, 1},
      {64, 32, 2, 1, 2, 1},  {64, 64, 2, 2, 1, 1},   {128, 64, 4, 2, 1, 0},
      {64, 128, 2, 4, 1, 0}, {128, 128, 4, 2, 1, 0}, {128, 128, 2, 2, 1, 0},
      {256, 128, 4, 2, 1, 0}};
  choose(query, grid, sizeof grid / sizeof *grid, false, out);
}

void cuvil_simt_default(const struct cuvil_query *query,
                        struct cuvil_config *out) {
  static const struct coarse grid[] = {
      {32, 32, 1, 2, 4, 1}, {64, 32, 2, 2, 2, 1},  {64, 64, 2, 4, 1, 1},
      {64, 64, 1, 2, 2, 0}, {128, 64, 2, 2, 1, 0}, {128, 128, 2, 4, 1, 0}};
  choose(query, grid, sizeof grid / sizeof *grid, true, out);
}
