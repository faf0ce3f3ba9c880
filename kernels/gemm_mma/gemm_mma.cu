// gemm_mma.cu - C[m,n] = A times B.  A is stored [m][k] or [k][m], B [n][k] or
// [k][n]; pitches are elements between rows of what is stored.  Copies are in
// common/mma_loop.cuh, the kernel in common/mma_kernel.cuh; this file says
// where A comes from and what the kernel is told.  BATCHED: many such products,
// each operand so many elements on (0: shared by all).
#if BATCHED
#define BATCH_PARAMETERS , i64 step, i64 step_a, i64 step_b
#define IN_BATCH(pointer, step) pointer + batch *step
#define OUT_START (batch * step)
#define POINT(row, column) row, column, (int)batch
#else
#define BATCH_PARAMETERS
#define IN_BATCH(pointer, step) pointer
#define OUT_START 0
#define POINT(row, column) row, column
#endif
#define KERNEL_PARAMETERS                                                     \
  const ELEMENT *a, const ELEMENT *b, OUTPUT *out, float *partial,            \
      int *semaphore, int m, int n, int k, int order, int split,              \
      int split_base, int split_extra, int pitch, int pitch_a,                \
      int pitch_b BATCH_PARAMETERS

typedef matrix_loader<A_TRANSPOSED, TILE_M, A_VECTOR> a_loader;
#define START_A(loader) \
  loader.start(IN_BATCH(a, step_a), row0, m, pitch_a, k)
#define START_B(loader) \
  loader.start(IN_BATCH(b, step_b), column0, n, pitch_b, k)
