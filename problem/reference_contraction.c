/* reference_contraction.c - gemm and convolution on the CPU, blocked.
 *
 * Both are one matrix product: a convolution's row is an output point (n,p,q),
 * its column an output channel of one group, and the inner index runs over
 * (r,s,c).  Rows and columns are gathered a block at a time (im2col of 64 rows
 * and 256 inner indices, never of the whole), packed, and multiplied by a 4x4
 * kernel: in double for the value, and in float over absolute values for the
 * magnitude that the error bound needs.  Each output element is summed in
 * rising order of the inner index, whatever the threads do.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem/checked.h"
#include "problem/internal.h"

enum { TILE = 64, DEPTH = 256, QUAD = 4 };

typedef double pair __attribute__((vector_size(16)));
typedef float quad __attribute__((vector_size(16)));

/* One thread's memory.  Packed: quads of rows (columns), then inner index. */
struct workspace {
  double a[TILE * DEPTH], b[TILE * DEPTH];
  float abs_a[TILE * DEPTH], abs_b[TILE * DEPTH];
  double sum[TILE * TILE];
  float magnitude[TILE * TILE];
  float line[DEPTH];
};

struct contraction {
  const struct cuvil_reference_job *job;
  float *a, *b; /* the operands' storage in fp32 */
  /* cols: of one group (of a convolution) or batch (of a gemm) */
  int64_t groups, rows, cols, inner;
  int64_t row_tiles, col_tiles;
  struct workspace *workspaces;
};

/* Stride of a dimension in an operand, and how much of it is stored. */
struct axis {
  int64_t stride, stored;
};
static struct axis axis(const struct cuvil_problem *problem, int operand,
                        int dim) {
  const struct cuvil_operand *o = &problem->operands[operand];
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == dim)
      return (struct axis){o->strides[i],
                           cuvil_operand_extent(problem, operand, i)};
  return (struct axis){0, 0};
}

/* ---- gathering: out[j - first] for the inner indices j in [first, last) */

static void gather_gemm(const struct contraction *c, int operand, int64_t batch,
                        int64_t line, int64_t first, int64_t last, float *out) {
  const struct cuvil_problem *p = c->job->problem;
  struct axis outer =
      axis(p, operand, operand == CUVIL_GEMM_A ? CUVIL_DIM_M : CUVIL_DIM_N);
  struct axis k = axis(p, operand, CUVIL_DIM_K);
  struct axis batches = axis(p, operand, CUVIL_DIM_BATCH);
  const float *base = (operand == CUVIL_GEMM_A ? c->a : c->b) +
                      line * outer.stride + batch * batches.stride;
  bool inside =
      line < outer.stored && (batches.stride == 0 || batch < batches.stored);
  for (int64_t j = first; j < last; j++)
    out[j - first] = inside && j < k.stored ? base[j * k.stride] : 0;
}

/* A run of `count` channels from channel `from` on; base NULL: outside. */
static void gather_channels(const float *base, struct axis c, int64_t from,
                            int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++)
    out[i] = base && from + i < c.stored ? base[(from + i) * c.stride] : 0;
}

struct window_point {
  int64_t n, p, q;
};
static struct window_point window_point(const struct cuvil_problem *p,
                                        int64_t row) {
  int64_t q_count = p->dims[CUVIL_CONV_DIM_Q].extent;
  int64_t p_count = p->dims[CUVIL_CONV_DIM_P].extent;
  return (struct window_point){row / q_count / p_count, row / q_count % p_count,
                               row % q_count};
}

static void gather_conv_x(const struct contraction *t, int64_t group,
                          int64_t row, int64_t first, int64_t last,
                          float *out) {
  const struct cuvil_problem *p = t->job->problem;
  int64_t channels = p->dims[CUVIL_CONV_DIM_C].extent / p->group;
  int64_t s_count = p->dims[CUVIL_CONV_DIM_S].extent;
  struct axis n = axis(p, CUVIL_CONV_X, CUVIL_CONV_DIM_N);
  struct axis h = axis(p, CUVIL_CONV_X, CUVIL_CONV_DIM_H);
  struct axis w = axis(p, CUVIL_CONV_X, CUVIL_CONV_DIM_W);
  struct axis c = axis(p, CUVIL_CONV_X, CUVIL_CONV_DIM_C);
  struct window_point point = window_point(p, row);
  for (int64_t j = first; j < last;) {
    int64_t tap = j / channels, from = j % channels, run = channels - from;
    if (run > last - j) run = last - j;
    int64_t y =
        point.p * p->stride[0] - p->pad[0] + tap / s_count * p->dilation[0];
    int64_t x =
        point.q * p->stride[1] - p->pad[1] + tap % s_count * p->dilation[1];
    bool inside =
        y >= 0 && y < h.stored && x >= 0 && x < w.stored && point.n < n.stored;
    const float *base =
        inside ? t->a + point.n * n.stride + y * h.stride + x * w.stride : NULL;
    gather_channels(base, c, group * channels + from, run, out + (j - first));
    j += run;
  }
}

static void gather_conv_w(const struct contraction *t, int64_t channel,
                          int64_t first, int64_t last, float *out) {
  const struct cuvil_problem *p = t->job->problem;
  int64_t channels = p->dims[CUVIL_CONV_DIM_C].extent / p->group;
  int64_t s_count = p->dims[CUVIL_CONV_DIM_S].extent;
  struct axis k = axis(p, CUVIL_CONV_W, CUVIL_CONV_DIM_K);
  struct axis r = axis(p, CUVIL_CONV_W, CUVIL_CONV_DIM_R);
  struct axis s = axis(p, CUVIL_CONV_W, CUVIL_CONV_DIM_S);
  struct axis c = axis(p, CUVIL_CONV_W, CUVIL_CONV_DIM_C);
  for (int64_t j = first; j < last;) {
    int64_t tap = j / channels, from = j % channels, run = channels - from;
    if (run > last - j) run = last - j;
    int64_t y = tap / s_count, x = tap % s_count;
    bool inside = channel < k.stored && y < r.stored && x < s.stored;
    const float *base =
        inside ? t->b + channel * k.stride + y * r.stride + x * s.stride : NULL;
    gather_channels(base, c, from, run, out + (j - first));
    j += run;
  }
}

/* ---- one tile */

/* Spreads a gathered line over the packed panel: line i of the tile. */
static void pack(const float *line, int64_t depth, int i, double *panel,
                 float *abs_panel) {
  double *to = panel + (i / QUAD) * DEPTH * QUAD + i % QUAD;
  float *abs_to = abs_panel + (i / QUAD) * DEPTH * QUAD + i % QUAD;
  for (int64_t j = 0; j < depth; j++) {
    to[j * QUAD] = (double)line[j];
    abs_to[j * QUAD] = fabsf(line[j]);
  }
}

static void multiply_values(const double *a, const double *b, int64_t depth,
                            double *sum) {
  pair total[QUAD][2];
  for (int i = 0; i < QUAD; i++)
    memcpy(total[i], sum + i * TILE, sizeof total[i]);
  for (int64_t j = 0; j < depth; j++) {
    pair low, high;
    memcpy(&low, b + j * QUAD, sizeof low);
    memcpy(&high, b + j * QUAD + 2, sizeof high);
    for (int i = 0; i < QUAD; i++) {
      pair left = {a[j * QUAD + i], a[j * QUAD + i]};
      total[i][0] += left * low;
      total[i][1] += left * high;
    }
  }
  for (int i = 0; i < QUAD; i++)
    memcpy(sum + i * TILE, total[i], sizeof total[i]);
}

static void multiply_magnitudes(const float *a, const float *b, int64_t depth,
                                float *sum) {
  quad total[QUAD];
  for (int i = 0; i < QUAD; i++)
    memcpy(&total[i], sum + i * TILE, sizeof total[i]);
  for (int64_t j = 0; j < depth; j++) {
    quad right;
    memcpy(&right, b + j * QUAD, sizeof right);
    for (int i = 0; i < QUAD; i++) {
      float v = a[j * QUAD + i];
      total[i] += (quad){v, v, v, v} * right;
    }
  }
  for (int i = 0; i < QUAD; i++)
    memcpy(sum + i * TILE, &total[i], sizeof total[i]);
}

/* Which part of which group a tile is. */
struct tile {
  int64_t group, row, col; /* of the first element; col within the group */
  int rows, cols;
};

static void gather_block(const struct contraction *c, const struct tile *tile,
                         int64_t first, int64_t last, struct workspace *ws) {
  bool conv = c->job->problem->kind == CUVIL_KIND_CONV;
  for (int i = 0; i < tile->rows; i++) {
    if (conv)
      gather_conv_x(c, tile->group, tile->row + i, first, last, ws->line);
    else
      gather_gemm(c, CUVIL_GEMM_A, tile->group, tile->row + i, first, last,
                  ws->line);
    pack(ws->line, last - first, i, ws->a, ws->abs_a);
  }
  for (int i = 0; i < tile->cols; i++) {
    if (conv)
      gather_conv_w(c, tile->group * c->cols + tile->col + i, first, last,
                    ws->line);
    else
      gather_gemm(c, CUVIL_GEMM_B, tile->group, tile->col + i, first, last,
                  ws->line);
    pack(ws->line, last - first, i, ws->b, ws->abs_b);
  }
}

/* Products that make up a sum: taps in the padding are none. */
static double length(const struct contraction *c, const int64_t *at) {
  const struct cuvil_problem *p = c->job->problem;
  if (p->kind == CUVIL_KIND_GEMM) return (double)c->inner;
  static const int dims[2][3] = {
      {CUVIL_CONV_DIM_P, CUVIL_CONV_DIM_R, CUVIL_CONV_DIM_H},
      {CUVIL_CONV_DIM_Q, CUVIL_CONV_DIM_S, CUVIL_CONV_DIM_W}};
  int64_t taps = 1;
  for (int axis = 0; axis < 2; axis++) {
    int64_t first = at[dims[axis][0]] * p->stride[axis] - p->pad[axis];
    int64_t inside = 0;
    for (int64_t i = 0; i < p->dims[dims[axis][1]].extent; i++) {
      int64_t x = first + i * p->dilation[axis];
      inside += x >= 0 && x < p->dims[dims[axis][2]].extent;
    }
    taps *= inside;
  }
  return (double)(taps * (p->dims[CUVIL_CONV_DIM_C].extent / p->group));
}

static void store_tile(const struct contraction *c, const struct tile *tile,
                       const struct workspace *ws) {
  const struct cuvil_problem *p = c->job->problem;
  int64_t at[CUVIL_MAX_DIMS] = {0};
  for (int i = 0; i < tile->rows; i++) {
    if (p->kind == CUVIL_KIND_CONV) {
      struct window_point point = window_point(p, tile->row + i);
      at[CUVIL_CONV_DIM_N] = point.n;
      at[CUVIL_CONV_DIM_P] = point.p;
      at[CUVIL_CONV_DIM_Q] = point.q;
    } else {
      at[CUVIL_DIM_M] = tile->row + i;
      at[CUVIL_DIM_BATCH] = tile->group;
    }
    double terms = length(c, at);
    for (int j = 0; j < tile->cols; j++) {
      if (p->kind == CUVIL_KIND_CONV)
        at[CUVIL_CONV_DIM_K] = tile->group * c->cols + tile->col + j;
      else
        at[CUVIL_DIM_N] = tile->col + j;
      struct cuvil_checked acc = cuvil_checked_sum(
          ws->sum[i * TILE + j], (double)ws->magnitude[i * TILE + j], terms,
          p->tf32);
      cuvil_reference_store(c->job, at, acc);
    }
  }
}

static void do_tile(void *user, int worker, int64_t index) {
  const struct contraction *c = user;
  struct workspace *ws = &c->workspaces[worker];
  struct tile tile = {.group = index / c->col_tiles / c->row_tiles,
                      .row = index / c->col_tiles % c->row_tiles * TILE,
                      .col = index % c->col_tiles * TILE};
  tile.rows = (int)(c->rows - tile.row < TILE ? c->rows - tile.row : TILE);
  tile.cols = (int)(c->cols - tile.col < TILE ? c->cols - tile.col : TILE);
  memset(ws->sum, 0, sizeof ws->sum);
  memset(ws->magnitude, 0, sizeof ws->magnitude);
  for (int64_t first = 0; first < c->inner; first += DEPTH) {
    int64_t last = first + DEPTH < c->inner ? first + DEPTH : c->inner;
    gather_block(c, &tile, first, last, ws);
    for (int i = 0; i < tile.rows; i += QUAD) {
      for (int j = 0; j < tile.cols; j += QUAD) {
        multiply_values(ws->a + i * DEPTH, ws->b + j * DEPTH, last - first,
                        ws->sum + i * TILE + j);
        multiply_magnitudes(ws->abs_a + i * DEPTH, ws->abs_b + j * DEPTH,
                            last - first, ws->magnitude + i * TILE + j);
      }
    }
  }
  store_tile(c, &tile, ws);
}

/* ---- the whole */

static enum cuvil_status to_f32(const struct cuvil_reference_job *job,
                                int operand, float **out) {
  int64_t elements = cuvil_operand_elements(job->problem, operand);
  *out = malloc((size_t)elements * sizeof **out);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "reference");
  cuvil_convert(CUVIL_F32, *out, job->problem->operands[operand].dtype,
                job->operands[operand], (size_t)elements);
  return CUVIL_OK;
}

static void set_extents(struct contraction *c) {
  const struct cuvil_problem *p = c->job->problem;
  const struct cuvil_dim *dims = p->dims;
  c->groups = 1;
  if (p->kind == CUVIL_KIND_GEMM) {
    if (cuvil_problem_batched(p)) c->groups = dims[CUVIL_DIM_BATCH].extent;
    c->rows = dims[CUVIL_DIM_M].extent;
    c->cols = dims[CUVIL_DIM_N].extent;
    c->inner = dims[CUVIL_DIM_K].extent;
  } else {
    c->groups = p->group;
    c->rows = dims[CUVIL_CONV_DIM_N].extent * dims[CUVIL_CONV_DIM_P].extent *
              dims[CUVIL_CONV_DIM_Q].extent;
    c->cols = dims[CUVIL_CONV_DIM_K].extent / p->group;
    c->inner = dims[CUVIL_CONV_DIM_R].extent * dims[CUVIL_CONV_DIM_S].extent *
               (dims[CUVIL_CONV_DIM_C].extent / p->group);
  }
  c->row_tiles = (c->rows + TILE - 1) / TILE;
  c->col_tiles = (c->cols + TILE - 1) / TILE;
}

enum cuvil_status cuvil_reference_contraction(
    const struct cuvil_reference_job *job) {
  struct contraction c = {.job = job};
  enum cuvil_status status = CUVIL_OK;
  set_extents(&c);
  /* Zeroed once: quads at a tile's edge multiply what no line was packed to,
   * and their products are never stored. */
  c.workspaces = calloc((size_t)job->threads, sizeof *c.workspaces);
  if (!c.workspaces) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "reference");
    goto fail;
  }
  CUVIL_TRY_GOTO(to_f32(job, 0, &c.a));
  CUVIL_TRY_GOTO(to_f32(job, 1, &c.b));
  cuvil_reference_parallel(c.groups * c.row_tiles * c.col_tiles, job->threads,
                           do_tile, &c);
fail:
  free(c.a);
  free(c.b);
  free(c.workspaces);
  return status;
}
