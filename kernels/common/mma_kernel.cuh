// mma_kernel.cuh - the kernel that the matrix-product families share, from a
// block's number to the stored tile.
//
// 1. With PDL the next grid may be scheduled at once, and this one, scheduled
//    while its predecessor still runs, copies weights (which no kernel writes)
//    for its first stages before it waits for the predecessor's results.
// 2. The main loop over this block's part of K: copies by mma_loop.cuh, sums by
//    struct tile_multiplier (mma_tensor.cuh or simt_multiply.cuh).
// 3. Sums go to shared memory as fp32, one tile for each slice; from there on
//    a thread owns pieces of eight neighbouring columns, so that side operands
//    and the result move 16 bytes at a time.
// 4. Parts of K that other blocks did (split) are added in a fixed order, so
//    that results do not change from run to run.  CLUSTER: the parts of one
//    tile are one thread-block cluster; every block finishes its share of the
//    pieces and reads the others' sums from their shared memory.  Else every
//    block writes its sums to global memory, and the last to arrive (counted
//    by a semaphore, which it sets back to zero) adds them all.
// 5. The generated epilogue, and the store.  SIDE_WORDS: side operands that lie
//    like the output or along its columns are read before the sums meet, so
//    that one latency hides behind the other (load_side_words, epilogue_words:
//    see mma_epilogue.c).
//
// The family's file before this one defines KERNEL_PARAMETERS (with out,
// partial, semaphore, m, n, k, order, split, split_base, split_extra, pitch),
// a_loader, START_A, START_B, OUT_START (where in the output the product
// begins) and POINT(row, column): the coordinates that the generated epilogue
// takes.  Columns of the tile are columns of the output, contiguous.  A batch of
// products shares blockIdx.z with the split, whose parts stand together.
#define PIECE 8
constexpr int PIECES_IN_ROW = TILE_N / PIECE;
constexpr int PIECES = TILE_M * PIECES_IN_ROW;
template <int HALF>
DEVICE u32 piece_offset(int piece) {
  return sum_offset(piece / PIECES_IN_ROW,
                    piece % PIECES_IN_ROW * PIECE + HALF * 4);
}

// A piece's sum over the slices of this block (`sums`: shared address).
DEVICE void gather_slices(float (&v)[PIECE], u32 sums, int piece) {
#pragma unroll
  for (int s = 0; s < SLICE_K; s++) {
    float w[PIECE];
    load_shared(w, sums + s * SUM_BYTES + piece_offset<0>(piece));
    load_shared(w + 4, sums + s * SUM_BYTES + piece_offset<1>(piece));
#pragma unroll
    for (int j = 0; j < PIECE; j++) v[j] = s ? v[j] + w[j] : w[j];
  }
}

// Where a piece lies in the output.
struct piece_place {
  int row, column;
  i64 at;
};
DEVICE piece_place place_of(int piece, int row0, int column0, int pitch,
                            i64 out_start) {
  piece_place p;
  p.row = row0 + piece / PIECES_IN_ROW;
  p.column = column0 + piece % PIECES_IN_ROW * PIECE;
  p.at = out_start + (i64)p.row * pitch + p.column;
  return p;
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
      u32 from = cluster_address(sums + s * SUM_BYTES, r);
      load_cluster(w, from + piece_offset<0>(piece));
      load_cluster(w + 4, from + piece_offset<1>(piece));
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
DEVICE bool hand_over(float *parts, u32 sums, int *semaphore, int part,
                      int split,
                      int *seat /* a word of shared memory, free by now */) {
  float *mine = parts + part * (TILE_M * TILE_N);
  for (int piece = threadIdx.x; piece < PIECES; piece += THREADS) {
    float v[PIECE];
    gather_slices(v, sums, piece);
    store_far(mine + piece * PIECE, v);
    store_far(mine + piece * PIECE + 4, v + 4);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    fence_device(); // what the block wrote is seen before it counts as arrived
    int before = atomicAdd(semaphore, 1);
    fence_device(); // ... and read after the others have arrived
    if (before == split - 1) *semaphore = 0;
    *seat = before;
  }
  __syncthreads();
  bool last = *(volatile int *)seat == split - 1;
  return last;
}
#endif

// Without reading ahead, it is the SM's other warps that hide latency: then 128
// registers a thread at most, where that is enough for the sums and for what
// the loader of A remembers.
constexpr int BLOCKS = !AHEAD && FEW_SUMS && a_loader::shape::passes < 8
                           ? 65536 / (128 * THREADS)
                           : 1;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
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
#if BATCHED
  const u32 batch = blockIdx.z / split, part = blockIdx.z - batch * split;
#else
  const u32 part = blockIdx.z;
#endif
  const int tile0 = split_begin(part, split_base, split_extra);
  const int tile1 = tile0 + split_count(part, split_base, split_extra);

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
  from_a.settle();
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

#if SIDE_LINE
  // Residuals on their way to the L2 meanwhile, a line for each thread's turn.
  constexpr int lines = TILE_N > SIDE_LINE ? TILE_N / SIDE_LINE : 1;
  if (part == 0)
    for (int i = threadIdx.x; i < TILE_M * lines; i += THREADS) {
      int row = row0 + i / lines, column = column0 + i % lines * SIDE_LINE;
      if (row < m && column < n)
        prefetch_sides(OUT_START +
                       (i64)row * pitch + column EPILOGUE_ARGUMENTS);
    }
#endif

  // ---- the main loop
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 warp_m = warp % WARPS_M, warp_n = warp / WARPS_M % WARPS_N;
  const u32 slice = warp / (WARPS_M * WARPS_N);
  tile_multiplier multiplier;
  multiplier.start(lane, warp_m, warp_n, slice);
  u32 reading = base, writing = base + (STAGES - 1) * STAGE_BYTES;
#if AHEAD
  // A step's fragments are read while the step before multiplies, across the
  // border of tiles, too: costs registers, hides every latency of the loop.
  fragments f[2];
  copies_wait<STAGES - 2>();
  __syncthreads();
  multiplier.read(f[0], reading, 0);
  for (int tile = tile0; tile < tile1; tile++) {
    // The stage written now is the one of the last turn; the barrier in that
    // turn came after every warp's last read of it.
    if (tile + STAGES - 1 < tile1) {
      from_a.load(writing, tile + STAGES - 1);
      from_b.load(writing + A_BYTES, tile + STAGES - 1);
    }
    copies_commit();
    writing = reading;
    reading += STAGE_BYTES;
    if (reading == base + STAGES * STAGE_BYTES) reading = base;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      if (s + 1 < STEPS) {
        multiplier.read(f[(s + 1) % 2], writing, s + 1);
      } else {
        // The next tile's copies are done when at most the STAGES - 2 later
        // groups are not; the barrier makes everyone's visible.  (After the
        // last tile what is read here is not used.)
        copies_wait<STAGES - 2>();
        __syncthreads();
        multiplier.read(f[(s + 1) % 2], reading, 0);
      }
      multiplier.multiply_step(f[s % 2]);
    }
    if (STEPS % 2) f[0] = f[1];
  }
#else
  // Other warps hide the latency of the reads.
  for (int tile = tile0; tile < tile1; tile++) {
    // This tile's copies are done when at most the STAGES - 2 later groups are
    // not; the barrier makes everyone's visible, and tells that no warp still
    // reads the stage written next, which is the one of the last turn.
    copies_wait<STAGES - 2>();
    __syncthreads();
    if (tile + STAGES - 1 < tile1) {
      from_a.load(writing, tile + STAGES - 1);
      from_b.load(writing + A_BYTES, tile + STAGES - 1);
    }
    copies_commit();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      fragments f;
      multiplier.read(f, reading, s);
      multiplier.multiply_step(f);
    }
    writing = reading;
    reading += STAGE_BYTES;
    if (reading == base + STAGES * STAGE_BYTES) reading = base;
  }
#endif

  // ---- sums to shared memory, over the stages
  copies_wait<0>();
  __syncthreads();
  multiplier.store(base + slice * SUM_BYTES, lane, warp_m, warp_n);
#if CLUSTER
  cluster_arrive();
  const int rank = cluster_rank();
  const int first = rank * THREADS + threadIdx.x, stride = split * THREADS;
#else
  const int first = threadIdx.x, stride = THREADS;
#endif
#if SIDE_WORDS
  side_words next_side;
  const piece_place start = place_of(first, row0, column0, pitch, OUT_START);
  if (first < PIECES && start.row < m && start.column < n)
    load_side_words(next_side, start.at, start.column EPILOGUE_ARGUMENTS);
#endif

  // ---- the other parts of K
#if CLUSTER
  cluster_wait();
#else
  __syncthreads();
#if BATCHED
  const u32 block = (batch * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
#else
  const u32 block = blockIdx.y * gridDim.x + blockIdx.x;
#endif
  float *parts = partial + (i64)block * split * (TILE_M * TILE_N);
  if (split > 1 && !hand_over(parts, base, semaphore + block, part, split,
                              (int *)shared))
    return;
#endif

  // ---- epilogue
  for (int piece = first; piece < PIECES; piece += stride) {
    const piece_place now = place_of(piece, row0, column0, pitch, OUT_START);
#if SIDE_WORDS
    const side_words side = next_side;
    const piece_place next = place_of(piece + stride, row0, column0, pitch, OUT_START);
    if (piece + stride < PIECES && next.row < m && next.column < n)
      load_side_words(next_side, next.at, next.column EPILOGUE_ARGUMENTS);
#endif
    if (now.row >= m || now.column >= n) continue;
    float v[PIECE];
#if CLUSTER
    gather_cluster(v, base, piece, rank, split);
#else
    if (split > 1)
      gather_parts(v, parts, piece, split);
    else
      gather_slices(v, base, piece);
#endif
#if SIDE_WORDS
    epilogue_words(v, side, now.at,
                   POINT(now.row, now.column) EPILOGUE_ARGUMENTS);
    store_vector<PIECE, PIECE>(out + now.at, v);
#elif OUT_VECTOR
    epilogue_vector<PIECE>(v, now.at,
                           POINT(now.row, now.column) EPILOGUE_ARGUMENTS);
    store_vector<PIECE, PIECE>(out + now.at, v);
#else
#pragma unroll
    for (int j = 0; j < PIECE; j++)
      if (now.column + j < n)
        from_float(epilogue(v[j], now.at + j,
                            POINT(now.row, now.column + j) EPILOGUE_ARGUMENTS),
                   out[now.at + j]);
#endif
  }
#if CLUSTER
  // No block leaves while another may still read its shared memory.
  cluster_arrive_relaxed();
  cluster_wait();
#endif
}
