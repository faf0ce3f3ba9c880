/* gemm.h - matrix product on the host: fp32 in and out, double inside.
 *
 * Products of two fp32 numbers are exact in double and are summed in double in
 * one fixed order, so a result is the correctly rounded one but for rare last
 * bits, and the same for every thread count and instruction set.  (Blocking as
 * in Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication,
 * ACM TOMS 34(3), 2008.)  Private to graph/.
 */
#ifndef CUVIL_GRAPH_GEMM_H_
#define CUVIL_GRAPH_GEMM_H_

#include "base/status.h"

#define CUVIL_GEMM_ROWS 6 /* of a register tile */
#define CUVIL_GEMM_COLS 8

/* `groups` matrices A of m x k; each is multiplied with `batch` matrices B of
 * k x n, which `pack` reads from wherever they are.
 *   c[g][b][i][j] = alpha * sum_k a[g][i][k] * b(g, b, k, j)
 *                   + beta * bias[g][i][j]                              */
struct cuvil_gemm {
  int64_t m, n, k, groups, batch;
  const float *a;
  int64_t a_row, a_col, a_group; /* steps in elements */
  /* Writes b(g, b, k, j) for k0 <= k < k1, j0 <= j < j1 as double to
   * out[((j - j0) / 8) * (k1 - k0) * 8 + (k - k0) * 8 + (j - j0) % 8]; lanes
   * beyond j1 are zero already. */
  void (*pack)(const void *source, int64_t group, int64_t batch, int64_t k0,
               int64_t k1, int64_t j0, int64_t j1, double *out);
  const void *source;
  double alpha, beta;
  const float *bias; /* NULL: none */
  int64_t bias_row, bias_col, bias_group;
  float *c;
  int64_t c_row, c_col, c_group, c_batch;
};

CUVIL_MUST_USE enum cuvil_status cuvil_gemm_run(const struct cuvil_gemm *gemm,
                                                int threads);

#endif /* CUVIL_GRAPH_GEMM_H_ */
