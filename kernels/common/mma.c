/* mma.c - the tensor-core families without their text: which problems they do,
 * what a point of their space costs, and which point an untuned compile gets.
 *
 * A convolution is looked at as the matrix product that it is, so that
 * everything but the loader of A is said once.  The prediction is a walk
 * through one block's life in cycles; it orders candidates, and the default
 * configuration is simply the point of a small grid that it likes best.
 */
#include "kernels/common/mma.h"

#include <math.h>

const char *const cuvil_mma_param_names[CUVIL_MMA_PARAMS] = {
    "tile_m", "tile_n",  "tile_k", "warps_m", "warps_n", "slice_k",
    "stages", "split_k", "reduce", "order",   "pdl",     "ahead"};

/* ---- views */
enum { INDEX_LIMIT = 1 << 30 }; /* device indices are 32-bit */

static int vector_bytes(int64_t elements, int size, int so_far) {
  int64_t bytes = (int64_t)cuvil_divisibility(elements) * size;
  return bytes < so_far ? (int)bytes : so_far;
}

static bool has_limits(const struct cuvil_operand *o) {
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i]) return true;
  return false;
}

/* A matrix over dims (row, column), either one fastest. */
static bool view_matrix(const struct cuvil_operand *o, int row, int column,
                        bool *out_transposed, int64_t *out_pitch) {
  if (o->rank != 2 || has_limits(o) || o->strides[1] != 1) return false;
  *out_transposed = o->dims[0] == column && o->dims[1] == row;
  if (!*out_transposed && (o->dims[0] != row || o->dims[1] != column))
    return false;
  *out_pitch = o->strides[0];
  return *out_pitch < INDEX_LIMIT;
}

bool cuvil_mma_view_gemm(const struct cuvil_problem *problem,
                         struct cuvil_mma_view *out) {
  const struct cuvil_operand *a = &problem->operands[CUVIL_GEMM_A];
  const struct cuvil_operand *b = &problem->operands[CUVIL_GEMM_B];
  const struct cuvil_operand *c = &problem->operands[problem->output];
  int m = cuvil_problem_find_dim(problem, "m");
  int n = cuvil_problem_find_dim(problem, "n");
  int k = cuvil_problem_find_dim(problem, "k");
  bool c_transposed;
  *out = (struct cuvil_mma_view){.m = problem->dims[m].extent,
                                 .n = problem->dims[n].extent,
                                 .k = problem->dims[k].extent};
  if (!view_matrix(a, m, k, &out->a_transposed, &out->pitch_a) ||
      !view_matrix(b, n, k, &out->b_transposed, &out->pitch_b) ||
      !view_matrix(c, m, n, &c_transposed, &out->pitch) || c_transposed)
    return false;
  if (a->dtype != b->dtype) return false;
  out->element = a->dtype;
  out->size = (int)cuvil_dtype_size(a->dtype);
  out->a_vector = vector_bytes(out->pitch_a, out->size, 16);
  out->a_vector = vector_bytes(out->a_transposed ? out->m : out->k, out->size,
                               out->a_vector);
  out->b_vector = vector_bytes(out->pitch_b, out->size, 16);
  out->b_vector = vector_bytes(out->b_transposed ? out->n : out->k, out->size,
                               out->b_vector);
  out->b_constant = b->weight;
  return true;
}

static bool has_order(const struct cuvil_problem *problem,
                      const struct cuvil_operand *o, const char *order) {
  if (o->rank != 4 || o->strided || has_limits(o)) return false;
  for (int i = 0; i < 4; i++) {
    char name[2] = {order[i], 0};
    if (o->dims[i] != cuvil_problem_find_dim(problem, name)) return false;
  }
  return true;
}

bool cuvil_mma_view_conv(const struct cuvil_problem *problem,
                         struct cuvil_mma_view *out) {
  const struct cuvil_operand *x = &problem->operands[CUVIL_CONV_X];
  const struct cuvil_operand *w = &problem->operands[CUVIL_CONV_W];
  const struct cuvil_operand *y = &problem->operands[problem->output];
  int64_t c = cuvil_problem_extent(problem, "c");
  int64_t r = cuvil_problem_extent(problem, "r");
  int64_t s = cuvil_problem_extent(problem, "s");
  if (problem->group != 1 || x->dtype != w->dtype ||
      !has_order(problem, x, "nhwc") || !has_order(problem, w, "krsc") ||
      !has_order(problem, y, "npqk"))
    return false;
  *out = (struct cuvil_mma_view){
      .m = cuvil_problem_extent(problem, "n") *
           cuvil_problem_extent(problem, "p") *
           cuvil_problem_extent(problem, "q"),
      .n = cuvil_problem_extent(problem, "k"),
      .k = r * s * c,
      .element = x->dtype,
      .size = (int)cuvil_dtype_size(x->dtype),
      .b_constant = w->weight,
      .conv = true,
  };
  out->plain = r == 1 && s == 1 && problem->pad[0] == 0 &&
               problem->pad[1] == 0 && problem->pad[2] == 0 &&
               problem->pad[3] == 0;
  out->a_vector = vector_bytes(c, out->size, 16);
  out->b_vector = vector_bytes(out->k, out->size, 16);
  out->pitch = out->n;
  out->pitch_a = c;
  out->pitch_b = out->k;
  return cuvil_problem_extent(problem, "h") *
             cuvil_problem_extent(problem, "w") * c <
         INDEX_LIMIT;
}

bool cuvil_mma_view(const struct cuvil_problem *problem,
                    struct cuvil_mma_view *out) {
  bool seen =
      problem->kind == CUVIL_KIND_GEMM   ? cuvil_mma_view_gemm(problem, out)
      : problem->kind == CUVIL_KIND_CONV ? cuvil_mma_view_conv(problem, out)
                                         : false;
  if (!seen || out->m >= INDEX_LIMIT || out->n >= INDEX_LIMIT ||
      out->k >= INDEX_LIMIT || out->m < 1 || out->n < 1 || out->k < 1)
    return false;
  for (int i = 0; i < problem->operand_count; i++)
    if (cuvil_operand_elements(problem, i) >= INDEX_LIMIT) return false;
  const struct cuvil_operand *y = &problem->operands[problem->output];
  out->out_vector =
      cuvil_divisibility(out->n) >= 8 && cuvil_divisibility(out->pitch) >= 8;
  return y->dtype == CUVIL_F16 || y->dtype == CUVIL_BF16 ||
         y->dtype == CUVIL_F32;
}

bool cuvil_mma_applicable(const struct cuvil_problem *problem,
                          const struct cuvil_arch *arch) {
  struct cuvil_mma_view view;
  if (arch->cc < 80 || !cuvil_mma_view(problem, &view)) return false;
  if (view.element == CUVIL_F16 || view.element == CUVIL_BF16) return true;
  /* ldmatrix transposes 16-bit elements only. */
  return view.element == CUVIL_F32 && problem->tf32 && !view.a_transposed &&
         !view.b_transposed;
}

/* ---- what a point is */
struct point {
  int tile_m, tile_n, tile_k, warps_m, warps_n, slice_k, stages, split, order;
  bool cluster, pdl, ahead;
};

static struct point point_of(const struct cuvil_config *config) {
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

/* Registers as they come out, within about ten: sums, fragments, what the
 * loaders keep for each row, and addresses. */
static int usual_registers(const struct cuvil_mma_view *v,
                           const struct point *p, int sums, int threads) {
  int fragments = p->tile_m / p->warps_m / 4 + p->tile_n / p->warps_n / 4;
  int rows = p->tile_m * p->tile_k * v->size / v->a_vector / threads;
  int loader = !v->conv ? 8 : v->plain ? rows : 3 * rows;
  int all = sums + fragments + loader + 20 + (p->ahead ? fragments + 20 : 0);
  return smaller(255, larger(all, 40));
}

bool cuvil_mma_derive(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      struct cuvil_derived *out) {
  struct point p = point_of(config);
  *out = (struct cuvil_derived){.cluster = p.cluster ? p.split : 1};
  struct cuvil_mma_view v;
  if (!cuvil_mma_view(query->problem, &v)) return false;
  int sums = p.tile_m * p.tile_n / (p.warps_m * p.warps_n * 32);
  int stage = (p.tile_m + p.tile_n) * p.tile_k * v.size;
  out->threads = 32 * p.warps_m * p.warps_n * p.slice_k;
  out->shared_bytes =
      larger(p.stages * stage, p.slice_k * p.tile_m * (p.tile_n + 8) * 4);
  out->registers_least = sums + 8;
  int64_t tiles = tiles_of(v.m, p.tile_m) * tiles_of(v.n, p.tile_n);
  out->blocks = tiles * p.split;
  if (p.split > 1 && !p.cluster)
    out->workspace_bytes =
        (uint64_t)out->blocks * p.tile_m * p.tile_n * 4 + (uint64_t)tiles * 4;
  if (p.tile_m % (16 * p.warps_m) || p.tile_n % (16 * p.warps_n) ||
      p.tile_k * v.size < 32 * p.slice_k || sums > 128 ||
      p.split > tiles_of(v.k, p.tile_k))
    return false;
  int registers = usual_registers(&v, &p, sums, out->threads);
  int resident = cuvil_arch_blocks_per_sm(query->arch, out->threads, registers,
                                          out->shared_bytes);
  if (resident < 1) return false;
  out->waves = (double)out->blocks / ((double)query->arch->sms * resident);
  if (p.cluster && (p.split < 2 || p.split > query->arch->max_cluster))
    return false;
  if (p.pdl && query->arch->cc < 90) return false;
  if (p.order == 0 && tiles_of(v.n, p.tile_n) > 65535) return false;
  return panels_can(&v, &p, out->threads);
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
static double flops_per_cycle(const struct cuvil_arch *arch,
                              enum cuvil_dtype element) {
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
                    flops_per_cycle(arch, v->element) / fill;
  double stage = (p->tile_m + p->tile_n) * k_bytes;
  double reads = (p->warps_n * p->tile_m + p->warps_m * p->tile_n) * k_bytes;
  double shared = (reads + stage) / SHARED_BYTES;
  double narrow = 16.0 / smaller(v->a_vector, v->b_vector);
  double far = stage / L2_BYTES * (narrow > 1 ? narrow : 1);
  double busy = fmax(multiply, fmax(shared, far)) * resident;
  double wait = fmax((double)L2_LATENCY / (p->stages - 1),
                     p->tile_k * v->size / 32.0 / p->slice_k * STEP_LATENCY);
  return fmax(busy, wait) + 0.2 * fmin(busy, wait) + BARRIER;
}

double cuvil_mma_predict(const struct cuvil_query *query,
                         const struct cuvil_config *config,
                         const struct cuvil_derived *derived) {
  struct cuvil_mma_view v;
  if (!cuvil_mma_view(query->problem, &v)) return INFINITY;
  const struct cuvil_arch *arch = query->arch;
  struct point p = point_of(config);
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

/* ---- the default: what the prediction likes best on a coarse grid */
static void consider(const struct cuvil_query *query,
                     const struct cuvil_config *config, double *best,
                     struct cuvil_config *out) {
  struct cuvil_derived derived;
  if (!cuvil_mma_derive(query, config, &derived)) return;
  double seconds = cuvil_mma_predict(query, config, &derived);
  if (seconds >= *best) return;
  *best = seconds;
  *out = *config;
}

static void consider_splits(const struct cuvil_query *query, int64_t k,
                            struct cuvil_config config, double *best,
                            struct cuvil_config *out) {
  static const int splits[] = {1, 2, 4, 8};
  int64_t *v = config.value;
  for (int i = 0; i < 4; i++) {
    int64_t part = tiles_of(k, v[CUVIL_MMA_TILE_K]) / splits[i];
    if (v[CUVIL_MMA_STAGES] > 2 && v[CUVIL_MMA_STAGES] > part + 1) continue;
    v[CUVIL_MMA_SPLIT_K] = splits[i];
    v[CUVIL_MMA_REDUCE] = splits[i] > 1 && query->arch->max_cluster >= 8;
    v[CUVIL_MMA_ORDER] = 0;
    struct cuvil_derived derived;
    if (cuvil_mma_derive(query, &config, &derived) &&
        derived.blocks > 2 * query->arch->sms * splits[i])
      v[CUVIL_MMA_ORDER] = 8; /* walks in bands when not all are resident */
    consider(query, &config, best, out);
  }
}

void cuvil_mma_default(const struct cuvil_query *query,
                       struct cuvil_config *out) {
  static const int tiles[][5] = {/* tile_m, tile_n, warps_m, warps_n, slice_k */
                                 {16, 32, 1, 1, 4},  {32, 32, 1, 2, 2},
                                 {32, 64, 1, 2, 2},  {64, 32, 2, 1, 2},
                                 {64, 64, 2, 2, 1},  {128, 64, 4, 2, 1},
                                 {64, 128, 2, 4, 1}, {128, 128, 4, 2, 1}};
  struct cuvil_mma_view view;
  *out = (struct cuvil_config){{0}}; /* every parameter is set below */
  if (!cuvil_mma_view(query->problem, &view)) return; /* not asked for these */
  double best = INFINITY;
  for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
    for (int tile_k = 32; tile_k <= 64; tile_k *= 2)
      for (int stages = 2; stages <= 4; stages++) {
        struct cuvil_config config = *out;
        int64_t *v = config.value;
        v[CUVIL_MMA_TILE_M] = tiles[t][0];
        v[CUVIL_MMA_TILE_N] = tiles[t][1];
        v[CUVIL_MMA_WARPS_M] = tiles[t][2];
        v[CUVIL_MMA_WARPS_N] = tiles[t][3];
        v[CUVIL_MMA_TILE_K] = tile_k;
        v[CUVIL_MMA_STAGES] = stages;
        v[CUVIL_MMA_SLICE_K] = tiles[t][4];
        v[CUVIL_MMA_AHEAD] = tiles[t][0] * tiles[t][1] <= 4096;
        v[CUVIL_MMA_PDL] = query->arch->cc >= 90;
        consider_splits(query, view.k, config, &best, out);
      }
}
