// mma_kernel.cuh - the kernel that gemm_mma and conv_mma share, from a block's
// number to the stored tile.
//
// 1. With PDL the next grid may be scheduled at once, and this one, scheduled
//    while its predecessor still runs, copies weights (which no kernel writes)
//    for its first stages before it waits for the predecessor's results.
// 2. The main loop (mma_loop.cuh) over this block's part of K.
// 3. Sums go to shared memory as fp32, one tile for each slice; from there on
//    a thread owns pieces of eight neighbouring columns, so that side operands
//    and the result move 16 bytes at a time.
// 4. Parts of K that other blocks did (split) are added in a fixed order, so
//    that results do not change from run to run.  CLUSTER: the parts of one
//    tile are one thread-block cluster; every block finishes its share of the
//    pieces and reads the others' sums from their shared memory.  Else every
//    block writes its sums to global memory, and the last to arrive (counted
//    by a semaphore, which it sets back to zero) adds them all.
// 5. The generated epilogue, and the store.
//
// The family's file before this one defines KERNEL_PARAMETERS (with out,
// partial, semaphore, m, n, k, order, split, split_base, split_extra, pitch),
// a_loader, START_A and POINT(row, column): the coordinates that the generated
// epilogue takes.  Columns of the tile are columns of the output, contiguous.
#define PIECE 8
constexpr int PIECES_IN_ROW = TILE_N / PIECE;
constexpr int PIECES = TILE_M * PIECES_IN_ROW;
// Eight floats more than a row: the four rows that store together then begin
// eight banks apart.
constexpr int SUM_PITCH = TILE_N + 8;
constexpr int SUM_BYTES = TILE_M * SUM_PITCH * 4;

DEVICE u32 piece_offset(int piece) {
  return (piece / PIECES_IN_ROW * SUM_PITCH + piece % PIECES_IN_ROW * PIECE) *
         4;
}

// A piece's sum over the slices of this block (`sums`: shared address).
DEVICE void gather_slices(float (&v)[PIECE], u32 sums, int piece) {
#pragma unroll
  for (int s = 0; s < SLICE_K; s++) {
    float w[PIECE];
    u32 from = sums + s * SUM_BYTES + piece_offset(piece);
    load_shared(w, from);
    load_shared(w + 4, from + 16);
#pragma unroll
    for (int j = 0; j < PIECE; j++) v[j] = s ? v[j] + w[j] : w[j];
  }
}

#if CLUSTER
// ... and over the blocks of the cluster, in the order of their rank from this
// block's own on, so that not all read the same block at the same time.
DEVICE void gather_cluster(float (&v)[PIECE], u32 sums, int piece, int rank,
                           int ranks) {
#pragma unroll
  for (int j = 0; j < PIECE; j++) v[j] = 0.0f;
#pragma unroll 4
  for (int i = 0; i < ranks; i++) {
    int r = rank + i < ranks ? rank + i : rank + i - ranks;
#pragma unroll
    for (int s = 0; s < SLICE_K; s++) {
      float w[PIECE];
      u32 from = cluster_address(
          sums + s * SUM_BYTES + piece_offset(piece), r);
      load_cluster(w, from);
      load_cluster(w + 4, from + 16);
#pragma unroll
      for (int j = 0; j < PIECE; j++) v[j] += w[j];
    }
  }
}
#else
DEVICE void gather_parts(float (&v)[PIECE], const float *parts, int piece,
                         int split) {
#pragma unroll
  for (int j = 0; j < PIECE; j++) v[j] = 0.0f;
#pragma unroll 4
  for (int i = 0; i < split; i++) {
    float w[PIECE];
    const float *from = parts + i * (TILE_M * TILE_N) + piece * PIECE;
    load_far(w, from);
    load_far(w + 4, from + 4);
#pragma unroll
    for (int j = 0; j < PIECE; j++) v[j] += w[j];
  }
}

// Hands this block's sums over; true in the block that came last.
DEVICE bool hand_over(float *parts, u32 sums, int *semaphore, int split,
                      int *seat /* a word of shared memory, free by now */) {
  float *mine = parts + blockIdx.z * (TILE_M * TILE_N);
  for (int piece = threadIdx.x; piece < PIECES; piece += THREADS) {
    float v[PIECE];
    gather_slices(v, sums, piece);
    store_far(mine + piece * PIECE, v);
    store_far(mine + piece * PIECE + 4, v + 4);
  }
  __threadfence(); // release: each thread its own stores
  __syncthreads();
  if (threadIdx.x == 0) *seat = atomicAdd(semaphore, 1);
  __syncthreads();
  bool last = *(volatile int *)seat == split - 1;
  if (last) {
    __threadfence(); // acquire
    if (threadIdx.x == 0) *semaphore = 0;
  }
  return last;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    ENTRY(KERNEL_PARAMETERS EPILOGUE_PARAMETERS) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 base = shared_address(shared);
#if PDL
  dependents_launch();
#endif
  const u32 tiles_m = (m + TILE_M - 1) / TILE_M;
  const u32 tiles_n = (n + TILE_N - 1) / TILE_N;
  const int row0 =
      tile_row(blockIdx.x, order, tiles_m, tiles_n) * TILE_M;
  const int column0 =
      tile_column(blockIdx.x, blockIdx.y, order, tiles_m, tiles_n) * TILE_N;
  const int tile0 = split_begin(blockIdx.z, split_base, split_extra);
  const int tile1 = tile0 + split_count(blockIdx.z, split_base, split_extra);

  // ---- copies for the first stages
  b_loader from_b;
  START_B(from_b);
#if PDL && B_CONSTANT
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++)
    if (tile0 + s < tile1)
      from_b.load(base + s * STAGE_BYTES + A_BYTES, tile0 + s);
#endif
  a_loader from_a;
  START_A(from_a);
#if PDL
  dependency_wait();
#endif
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (tile0 + s < tile1) {
      from_a.load(base + s * STAGE_BYTES, tile0 + s);
#if !(PDL && B_CONSTANT)
      from_b.load(base + s * STAGE_BYTES + A_BYTES, tile0 + s);
#endif
    }
    copies_commit(); // an empty group where there is nothing: counts stay even
  }

  // ---- the main loop
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 warp_m = warp % WARPS_M, warp_n = warp / WARPS_M % WARPS_N;
  const u32 slice = warp / (WARPS_M * WARPS_N);
  tile_multiplier multiplier;
  multiplier.start(lane, warp_m, warp_n, slice);
  u32 reading = base, writing = base + (STAGES - 1) * STAGE_BYTES;
  for (int tile = tile0; tile < tile1; tile++) {
    // This tile's own copies are done when at most the STAGES - 2 later groups
    // are not; the barrier makes everyone's visible, and tells that no warp
    // still reads the stage that is written next (read one turn ago).
    copies_wait<STAGES - 2>();
    __syncthreads();
    if (tile + STAGES - 1 < tile1) {
      from_a.load(writing, tile + STAGES - 1);
      from_b.load(writing + A_BYTES, tile + STAGES - 1);
    }
    copies_commit();
    multiplier.run(reading);
    writing = reading;
    reading += STAGE_BYTES;
    if (reading == base + STAGES * STAGE_BYTES) reading = base;
  }

  // ---- sums to shared memory, over the stages
  copies_wait<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < BLOCKS_M; i++)
#pragma unroll
    for (int j = 0; j < 2 * BLOCKS_N; j++) {
      int row = warp_m * WARP_M + i * 16 + lane / 4;
      int column = warp_n * WARP_N + j * 8 + lane % 4 * 2;
      u32 to = base + slice * SUM_BYTES + (row * SUM_PITCH + column) * 4;
      const float(&sum)[4] = multiplier.sum[i][j];
      store_shared(to, sum[0], sum[1]);
      store_shared(to + 8 * SUM_PITCH * 4, sum[2], sum[3]);
    }

  // ---- the other parts of K
#if CLUSTER
  cluster_arrive();
  cluster_wait();
  const int rank = cluster_rank();
  const int first = rank * THREADS + threadIdx.x, stride = split * THREADS;
#else
  __syncthreads();
  const int first = threadIdx.x, stride = THREADS;
  const u32 block = blockIdx.y * gridDim.x + blockIdx.x;
  float *parts = partial + (i64)block * split * (TILE_M * TILE_N);
  if (split > 1 && !hand_over(parts, base, semaphore + block, split,
                              (int *)shared))
    return;
#endif

  // ---- epilogue
#pragma unroll 2
  for (int piece = first; piece < PIECES; piece += stride) {
    const int row = row0 + piece / PIECES_IN_ROW;
    const int column = column0 + piece % PIECES_IN_ROW * PIECE;
    if (row >= m || column >= n) continue;
    float v[PIECE];
#if CLUSTER
    gather_cluster(v, base, piece, rank, split);
#else
    if (split > 1)
      gather_parts(v, parts, piece, split);
    else
      gather_slices(v, base, piece);
#endif
    const i64 at = (i64)row * pitch + column;
#if OUT_VECTOR
    epilogue_vector<PIECE>(v, at, POINT(row, column) EPILOGUE_ARGUMENTS);
    store_vector<PIECE, PIECE>(out + at, v);
#else
#pragma unroll
    for (int j = 0; j < PIECE; j++)
      if (column + j < n)
        from_float(
            epilogue(v[j], at + j, POINT(row, column + j) EPILOGUE_ARGUMENTS),
            out[at + j]);
#endif
  }
#if CLUSTER
  // No block leaves while another may still read its shared memory.
  cluster_arrive();
  cluster_wait();
#endif
}
