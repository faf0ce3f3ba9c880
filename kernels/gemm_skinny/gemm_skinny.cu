// gemm_skinny.cu - C[m,n] = A times B for few rows (m <= TILE_M): the weights B
// stream through once, A stays in shared memory.  SWAPPED: the same for few
// columns: the rows of A stream, B stays; what is called weights here is A then,
// m counts columns of the result and n its rows.
//
// 1. Every warp sets its ring of weight copies going (skinny_stream.cuh).  With
//    PDL and constant weights that is before the kernel in front has ended.
// 2. The block fills its panel with the activations of its part of K: all of
//    them where they fit, else `chunk` turns at a time.  They come from the L2
//    by plain loads: in the queue of asynchronous copies they would stand
//    behind the weights.
// 3. The main loop: a warp waits for its oldest step, multiplies it
//    (skinny_multiply.cuh), asks for another into the same place.  Nothing
//    waits for another warp; the ring goes on over the end of a tile, where
//    the block has several (PERSIST).
// 4. The sums of the SLICE_K warps that share columns meet in shared memory,
//    those of the blocks that share K in a cluster's shared memory (CLUSTER) or
//    in global memory, added by the block that came last (counted by a
//    semaphore, which it sets back to zero).  Always in the same order, so that
//    results do not change from run to run.
// 5. The generated epilogue on OUT_PIECE neighbouring columns at a time, and
//    the store.  Side operands of a thread's first pieces are read before the
//    sums meet; residuals were called to the L2 when the tile began (SIDE_LINE:
//    elements of a line; see mma_epilogue.c).
//
// A is stored [m][k] or (A_TRANSPOSED) [k][m]; pitches are elements between rows
// of what is stored.  BATCHED: many such products, each operand so many elements
// on (0: shared by all); they and the parts of K share blockIdx.z.
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

// ---- the panel
// Fills it with `groups` groups of K from element first_k on.
DEVICE void fill_panel(u32 panel, const ELEMENT *a, int m, int k, i64 pitch,
                       int first_k, int groups) {
  constexpr int BATCH = 4; // loads under way for each thread
  const int pieces = groups * M_BLOCKS * 32;
  for (int first = threadIdx.x; first < pieces; first += BATCH * THREADS) {
    u32 w[BATCH][4];
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const int p = first + i * THREADS, block = p / 32;
      const int row = block % M_BLOCKS * 8 + p % 32 / 4;
      const int at = first_k + block / M_BLOCKS * GROUP_K + p % 4 * PIECE_K;
      const int left = row < m && p < pieces ? k - at : 0;
#if A_TRANSPOSED
#pragma unroll
      for (int e = 0; e < 4; e++) w[i][e] = 0;
#pragma unroll
      for (int e = 0; e < PIECE_K; e++)
        if (e < left) {
          const ELEMENT v = a[(at + e) * pitch + row];
          w[i][e * SIZE / 4] |= (SIZE == 2 ? (u32) * (const u16 *)&v
                                           : *(const u32 *)&v)
                                << (e * SIZE % 4 * 8);
        }
#else
      read_piece<A_VECTOR>(w[i], (const u8 *)(a + row * pitch + at), left);
#endif
      if (TENSOR) round_operands(w[i], (const ELEMENT *)0);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (first + i * THREADS < pieces)
        store_shared_words(panel + (first + i * THREADS) * 16, w[i]);
  }
}

// ---- sums
constexpr int ALL_SUM_BYTES = SLICE_K * SUM_BYTES;
constexpr int SEAT_AT = ALL_SUM_BYTES; // a word behind the sums
constexpr int SUM_ROOM = ALL_SUM_BYTES + 16;
// Where a block does one tile the ring is empty when sums need room.
constexpr int SUMS_AT = PERSIST ? RING_BYTES : 0;
constexpr int PANEL_AT = PERSIST                 ? RING_BYTES + SUM_ROOM
                         : RING_BYTES > SUM_ROOM ? RING_BYTES
                                                 : SUM_ROOM;
constexpr int QUADS = MINOR / 4;
// Pieces of which a thread reads the side operands together: latency counts
// where residuals do, and a thread has several pieces.
constexpr int AHEAD = SIDE_LINE && TILE_M * TILE_N >= 2 * OUT_PIECE * THREADS
                          ? 2
                          : 1;

template <int V>
DEVICE void add_slices(float (&v)[V], const u8 *sums, int major, int minor) {
#pragma unroll
  for (int s = 0; s < SLICE_K; s++) {
    float w[V];
    load_vector<V, V>(
        (const float *)(sums + s * SUM_BYTES + sum_place(major, minor)), w);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = s ? v[j] + w[j] : w[j];
  }
}

#if CLUSTER
// The slices' sums into the first of them, that the cluster need read one only.
DEVICE void fold_slices(u8 *sums, int majors) {
  if (SLICE_K == 1) return;
  for (int i = threadIdx.x; i < majors * QUADS; i += THREADS) {
    float v[4];
    add_slices(v, sums, i / QUADS, i % QUADS * 4);
    store_vector<4, 4>((float *)(sums + sum_place(i / QUADS, i % QUADS * 4)),
                       v);
  }
}
// By the order of ranks from this block's own on, so that not all read the same
// block at the same time.
template <int V>
DEVICE void add_cluster(float (&v)[V], u32 sums, int major, int minor,
                        int rank, int ranks) {
#pragma unroll
  for (int j = 0; j < V; j++) v[j] = 0.0f;
#pragma unroll 4
  for (int i = 0; i < ranks; i++) {
    const int r = rank + i < ranks ? rank + i : rank + i - ranks;
    const u32 from = cluster_address(sums + sum_place(major, minor), r);
    if (V < 4) {
#pragma unroll
      for (int j = 0; j < V; j++) v[j] += load_cluster_word(from + j * 4);
    } else {
#pragma unroll
      for (int q = 0; q < V; q += 4) {
        float w[4];
        load_cluster(w, from + q * 4);
#pragma unroll
        for (int j = 0; j < 4; j++) v[q + j < V ? q + j : 0] += w[j];
      }
    }
  }
}
#else
constexpr int PART = SWAPPED ? MINOR * TILE_N : TILE_M * TILE_N; // floats
template <int V>
DEVICE void add_parts(float (&v)[V], const float *parts, int major, int minor,
                      int split) {
#pragma unroll
  for (int j = 0; j < V; j++) v[j] = 0.0f;
#pragma unroll 4
  for (int i = 0; i < split; i++) {
    const float *from = parts + (i64)i * PART + major * MINOR + minor;
    if (V < 4) {
#pragma unroll
      for (int j = 0; j < V; j++) v[j] += load_far_word(from + j);
    } else {
#pragma unroll
      for (int q = 0; q < V; q += 4) {
        float w[4];
        load_far(w, from + q);
#pragma unroll
        for (int j = 0; j < 4; j++) v[q + j < V ? q + j : 0] += w[j];
      }
    }
  }
}
// Hands this block's sums over; true in the block that came last.
DEVICE bool hand_over(float *parts, u8 *sums, int *semaphore, int part,
                      int split, int majors) {
  float *mine = parts + (i64)part * PART;
  for (int i = threadIdx.x; i < majors * QUADS; i += THREADS) {
    float v[4];
    add_slices(v, sums, i / QUADS, i % QUADS * 4);
    store_far(mine + i * 4, v);
  }
  __syncthreads();
  int *seat = (int *)(sums + SEAT_AT);
  if (threadIdx.x == 0) {
    fence_device(); // what the block wrote is seen before it counts as arrived
    int before = atomicAdd(semaphore, 1);
    fence_device(); // ... and read after the others have arrived
    if (before == split - 1) *semaphore = 0;
    *seat = before;
  }
  __syncthreads();
  return *(volatile int *)seat == split - 1;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    ENTRY(const ELEMENT *a, const ELEMENT *b, OUTPUT *out, float *partial,
          int *semaphore, int m, int n, int k, int split, int split_base,
          int split_extra, int chunk, int pitch, int pitch_a,
          int pitch_b BATCH_PARAMETERS EPILOGUE_PARAMETERS) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 base = shared_address(shared);
#if PDL
  dependents_launch();
#endif
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_column = warp % WARPS_N * WARP_N, slice = warp / WARPS_N;
  const int tiles = (n + TILE_N - 1) / TILE_N;
#if BATCHED
  const i64 batch = blockIdx.z / split;
  const u32 part = blockIdx.z - (u32)batch * split;
#else
  const u32 part = blockIdx.z;
#endif
  const int turn0 = split_begin(part, split_base, split_extra);
  const int turns = split_count(part, split_base, split_extra);
  const int first_k = turn0 * TURN_K;

  // ---- weights on their way
  const ELEMENT *weights = IN_BATCH(b, step_b);
  const ELEMENT *rows = IN_BATCH(a, step_a);
  const u32 ring = base + warp * (STAGES * STAGE_BYTES);
  weight_stream stream;
  stream.tile = blockIdx.x;
  stream.turn = 0;
#define NEXT(slot)                                                      \
  stream.next(slot, weights, n, k, pitch_b, tiles, turns,               \
              first_k + slice * STEP_K, warp_column, lane)
#define FILL(turn, count)                                               \
  fill_panel(base + PANEL_AT, rows, m, k, pitch_a,                      \
             first_k + (turn) * TURN_K, (count) * (SLICE_K * GROUPS))
  const bool whole = chunk >= turns;
#if PDL && !B_CONSTANT
#if A_CONSTANT
  FILL(0, whole ? turns : chunk);
#endif
  dependency_wait();
#endif
#pragma unroll
  for (int s = 0; s < STAGES; s++) NEXT(ring + s * STAGE_BYTES);
#if PDL && B_CONSTANT
  dependency_wait();
#endif

  // ---- the activations, or the first of them
#if !(PDL && !B_CONSTANT && A_CONSTANT)
  FILL(0, whole ? turns : chunk);
#endif
  __syncthreads();

  multiplier sums;
  u32 slot = ring;
  int at = 0; // turns of the panel that are done
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    // The tile of the result: `majors` rows, each in pieces of its columns.
    const int start = tile * TILE_N, left = n - start;
    const int here = left < TILE_N ? left : TILE_N;
    const int majors = SWAPPED ? here : m, columns = SWAPPED ? m : n;
    const int in_row = SWAPPED ? m / OUT_PIECE : TILE_N / OUT_PIECE;
    const int pieces = majors * in_row;
#if SIDE_LINE
    if (part == 0) {
      const int lines = ((SWAPPED ? m : here) + SIDE_LINE - 1) / SIDE_LINE;
      const i64 from = SWAPPED ? OUT_START + (i64)start * pitch
                               : OUT_START + start;
      for (int i = threadIdx.x; i < majors * lines; i += THREADS)
        prefetch_sides(from + (i64)(i / lines) * pitch +
                       i % lines * SIDE_LINE EPILOGUE_ARGUMENTS);
    }
#endif

    // ---- the main loop
    sums.start();
    for (int turn = 0; turn < turns; turn++) {
      if (!whole && at == chunk) {
        const int more = turns - turn;
        __syncthreads();
        FILL(turn, more < chunk ? more : chunk);
        __syncthreads();
        at = 0;
      }
      copies_wait<STAGES - 1>();
#if B_TRANSPOSED
      __syncwarp(); // what the other lanes copied is there, too
#endif
      sums.step(slot, base + PANEL_AT + (at * SLICE_K + slice) * STEP_BYTES,
                shared - base, lane);
#if B_TRANSPOSED
      __syncwarp(); // ... and read before it is overwritten
#endif
      NEXT(slot);
      slot += STAGE_BYTES;
      if (slot == ring + STAGES * STAGE_BYTES) slot = ring;
      at++;
    }
    at = whole ? 0 : chunk;

    // ---- sums to shared memory; a place that was read before is free by then
    __syncthreads();
    sums.store(base + SUMS_AT + slice * SUM_BYTES + sum_of(0, warp_column),
               lane);
#if CLUSTER
    const int rank = cluster_rank();
    const int first = rank * THREADS + threadIdx.x, stride = split * THREADS;
#else
    const int first = threadIdx.x, stride = THREADS;
#endif
#define PLACE(piece)                                                       \
  const int major = (piece) / in_row, minor = (piece) % in_row * OUT_PIECE; \
  const int row = SWAPPED ? start + major : major;                         \
  const int column = SWAPPED ? minor : start + minor;                      \
  const i64 place = OUT_START + (i64)row * pitch + column
    epilogue_sides<OUT_PIECE> sides[AHEAD];
#define READ_SIDES(from)                                                      \
  _Pragma("unroll") for (int i = 0; i < AHEAD; i++) {                         \
    if ((from) + i * stride >= pieces) continue;                              \
    PLACE((from) + i * stride);                                               \
    if (column >= columns) continue;                                          \
    sides[i].load_weights(place, POINT(row, column) EPILOGUE_ARGUMENTS);      \
    sides[i].load_others(place, POINT(row, column) EPILOGUE_ARGUMENTS);       \
  }
    READ_SIDES(first);

    // ---- the other warps and blocks
    __syncthreads();
#if CLUSTER
    fold_slices(shared + SUMS_AT, majors);
    cluster_arrive();
    cluster_wait();
    const bool mine = true;
#else
#if BATCHED
    const i64 job = batch * tiles + tile;
#else
    const i64 job = tile;
#endif
    const float *parts = partial + job * split * PART;
    const bool mine =
        split == 1 || hand_over((float *)parts, shared + SUMS_AT,
                                semaphore + job, part, split, majors);
#endif

    // ---- epilogue
    for (int next = first; mine && next < pieces; next += AHEAD * stride) {
      if (next != first) {
        READ_SIDES(next);
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (next + i * stride >= pieces) continue;
        PLACE(next + i * stride);
        if (column >= columns) continue;
        float v[OUT_PIECE];
#if CLUSTER
        add_cluster(v, base + SUMS_AT, major, minor, rank, split);
#else
        if (split > 1)
          add_parts(v, parts, major, minor, split);
        else
          add_slices(v, shared + SUMS_AT, major, minor);
#endif
        epilogue_apply<OUT_PIECE>(v, sides[i], true, place,
                                  POINT(row, column) EPILOGUE_ARGUMENTS);
        store_vector<OUT_PIECE, OUT_PIECE>(out + place, v);
      }
    }
#if CLUSTER
    // No block overwrites or leaves what another may still read.
    cluster_arrive_relaxed();
    cluster_wait();
#endif
  }
}
