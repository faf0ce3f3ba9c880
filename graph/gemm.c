/* The matrix product under Conv, Gemm and MatMul.
 *
 * A is packed once as double in panels of 6 rows.  The output is cut into
 * blocks of at most 64 columns and, where there are too few of those for the
 * threads, of some row panels; a block is one piece of work.  It packs its
 * part of B 256 steps of k at a time, and keeps its sums in double until the
 * last k.  Every output element is summed in the order of k whatever the cut,
 * so the result does not depend on the number of threads.
 */
#include "graph/gemm.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "graph/parallel.h"

#define MR CUVIL_GEMM_ROWS
#define NR CUVIL_GEMM_COLS
#define KC 256
#define NC 64

typedef void (*tile_fn)(int64_t k, const double *a, const double *b,
                        double *c /* MR x NR */);

static void tile_plain(int64_t k, const double *a, const double *b, double *c) {
  for (int64_t p = 0; p < k; p++, a += MR, b += NR)
    for (int i = 0; i < MR; i++)
      for (int j = 0; j < NR; j++)
        c[i * NR + j] += a[i] * b[j];
}

__attribute__((target("avx2,fma"))) static void tile_avx2(int64_t k,
                                                          const double *a,
                                                          const double *b,
                                                          double *c) {
  __m256d sum[MR][2];
  for (int i = 0; i < MR; i++) {
    sum[i][0] = _mm256_loadu_pd(c + i * NR);
    sum[i][1] = _mm256_loadu_pd(c + i * NR + 4);
  }
  for (int64_t p = 0; p < k; p++, a += MR, b += NR) {
    __m256d b0 = _mm256_loadu_pd(b), b1 = _mm256_loadu_pd(b + 4);
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
      __m256d ai = _mm256_broadcast_sd(a + i);
      sum[i][0] = _mm256_fmadd_pd(ai, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_pd(ai, b1, sum[i][1]);
    }
  }
  for (int i = 0; i < MR; i++) {
    _mm256_storeu_pd(c + i * NR, sum[i][0]);
    _mm256_storeu_pd(c + i * NR + 4, sum[i][1]);
  }
}

static tile_fn choose_tile(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
             ? tile_avx2
             : tile_plain;
}

struct job {
  const struct cuvil_gemm *gemm;
  tile_fn tile;
  int64_t row_panels; /* of one A */
  int64_t col_blocks, col_width;
  int64_t row_blocks, row_height; /* in panels */
  double *a;                      /* [group][row panel][k][MR] */
  double *scratch;                /* per worker: B panel, then sums */
  size_t scratch_each;            /* doubles */
};

static void pack_a(void *context, int worker, int64_t begin, int64_t end) {
  (void)worker;
  const struct job *job = context;
  const struct cuvil_gemm *g = job->gemm;
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t group = panel / job->row_panels, row = panel % job->row_panels * MR;
    const float *a = g->a + group * g->a_group + row * g->a_row;
    double *out = job->a + panel * g->k * MR;
    int rows = g->m - row < MR ? (int)(g->m - row) : MR;
    for (int i = 0; i < MR; i++)
      for (int64_t k = 0; k < g->k; k++)
        out[k * MR + i] =
            i < rows ? (double)a[i * g->a_row + k * g->a_col] : 0.0;
  }
}

static void store_tile(const struct cuvil_gemm *g, int64_t group, int64_t batch,
                       int64_t row, int64_t col, int64_t cols,
                       const double *sum) {
  int64_t rows = g->m - row < MR ? g->m - row : MR;
  if (cols > NR) cols = NR;
  float *c = g->c + group * g->c_group + batch * g->c_batch;
  const float *bias = g->bias != NULL ? g->bias + group * g->bias_group : NULL;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      double v = g->alpha * sum[i * NR + j];
      if (bias != NULL)
        v += g->beta *
             (double)bias[(row + i) * g->bias_row + (col + j) * g->bias_col];
      c[(row + i) * g->c_row + (col + j) * g->c_col] = (float)v;
    }
}

static void block(const struct job *job, double *scratch, int64_t group,
                  int64_t batch, int64_t row_block, int64_t col_block) {
  const struct cuvil_gemm *g = job->gemm;
  int64_t j0 = col_block * job->col_width;
  int64_t j1 = j0 + job->col_width < g->n ? j0 + job->col_width : g->n;
  int64_t p0 = row_block * job->row_height;
  int64_t p1 = p0 + job->row_height < job->row_panels ? p0 + job->row_height
                                                      : job->row_panels;
  int64_t col_panels = (j1 - j0 + NR - 1) / NR;
  double *b = scratch, *sums = scratch + KC * NC;
  memset(sums, 0, (size_t)((p1 - p0) * col_panels) * MR * NR * sizeof *sums);
  for (int64_t k0 = 0; k0 < g->k; k0 += KC) {
    int64_t k1 = k0 + KC < g->k ? k0 + KC : g->k;
    memset(b, 0, (size_t)((k1 - k0) * col_panels) * NR * sizeof *b);
    g->pack(g->source, group, batch, k0, k1, j0, j1, b);
    for (int64_t p = p0; p < p1; p++) {
      const double *a =
          job->a + ((group * job->row_panels + p) * g->k + k0) * MR;
      double *sum = sums + (p - p0) * col_panels * MR * NR;
      for (int64_t c = 0; c < col_panels; c++)
        job->tile(k1 - k0, a, b + c * (k1 - k0) * NR, sum + c * MR * NR);
    }
  }
  for (int64_t p = p0; p < p1; p++)
    for (int64_t c = 0; c < col_panels; c++)
      store_tile(g, group, batch, p * MR, j0 + c * NR, j1 - j0 - c * NR,
                 sums + ((p - p0) * col_panels + c) * MR * NR);
}

static void blocks(void *context, int worker, int64_t begin, int64_t end) {
  const struct job *job = context;
  double *scratch = job->scratch + (size_t)worker * job->scratch_each;
  for (int64_t at = begin; at < end; at++) {
    /* Row blocks innermost: neighbours share the B they read. */
    int64_t rest = at;
    int64_t row_block = rest % job->row_blocks;
    rest /= job->row_blocks;
    int64_t col_block = rest % job->col_blocks;
    rest /= job->col_blocks;
    block(job, scratch, rest % job->gemm->groups, rest / job->gemm->groups,
          row_block, col_block);
  }
}

static void cut(struct job *job, int threads) {
  const struct cuvil_gemm *g = job->gemm;
  job->row_panels = (g->m + MR - 1) / MR;
  job->col_blocks = (g->n + NC - 1) / NC;
  job->col_width = (g->n + job->col_blocks - 1) / job->col_blocks;
  job->col_width = (job->col_width + NR - 1) / NR * NR;
  int64_t work = job->col_blocks * g->groups * g->batch;
  /* Each row block packs B again: not below 8 panels, not above 64 (the sums
   * stay in the second-level cache). */
  int64_t want = work >= 3 * threads ? 1 : (3 * threads + work - 1) / work;
  job->row_height = (job->row_panels + want - 1) / want;
  if (job->row_height < 8) job->row_height = 8;
  if (job->row_height > 64) job->row_height = 64;
  job->row_blocks = (job->row_panels + job->row_height - 1) / job->row_height;
}

enum cuvil_status cuvil_gemm_run(const struct cuvil_gemm *gemm, int threads) {
  if (gemm->m == 0 || gemm->n == 0 || gemm->groups == 0 || gemm->batch == 0)
    return CUVIL_OK;
  struct job job = {.gemm = gemm, .tile = choose_tile()};
  cut(&job, threads);
  int64_t pieces = job.row_blocks * job.col_blocks * gemm->groups * gemm->batch;
  int64_t panels = job.row_panels * gemm->groups;
  threads = cuvil_parallel_threads(threads, pieces, 1);
  job.scratch_each = (size_t)(KC * NC + job.row_height * (NC / NR) * MR * NR);
  job.a = malloc((size_t)(panels * gemm->k * MR + 1) * sizeof *job.a);
  job.scratch =
      malloc((size_t)threads * job.scratch_each * sizeof *job.scratch);
  enum cuvil_status status = CUVIL_OK;
  if (job.a == NULL || job.scratch == NULL) {
    status =
        CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                   "no memory for a matrix product of %lld x %lld x %lld",
                   (long long)gemm->m, (long long)gemm->n, (long long)gemm->k);
  } else {
    cuvil_parallel(cuvil_parallel_threads(threads, panels * gemm->k, 4096),
                   panels, pack_a, &job);
    cuvil_parallel(threads, pieces, blocks, &job);
  }
  free(job.a);
  free(job.scratch);
  return status;
}
