// gemm_mma.cu - C[m,n] = A times B.  A is stored [m][k] or [k][m], B [n][k] or
// [k][n]; pitches are elements between rows of what is stored.  Copies are in
// common/mma_loop.cuh, the kernel in common/mma_kernel.cuh; this file says
// where A comes from and what the kernel is told.
#define KERNEL_PARAMETERS                                                     \
  const ELEMENT *a, const ELEMENT *b, OUTPUT *out, float *partial,            \
      int *semaphore, int m, int n, int k, int order, int split,              \
      int split_base, int split_extra, int pitch, int pitch_a, int pitch_b

typedef matrix_loader<A_TRANSPOSED, TILE_M, A_VECTOR> a_loader;
#define START_A(loader) loader.start(a, row0, m, pitch_a, k)
#define START_B(loader) loader.start(b, column0, n, pitch_b, k)
#define POINT(row, column) row, column
