// attention_mma.cu - O = softmax(scale Q K^T + mask) V for every head, in one
// walk over the keys: scores never leave the registers.
//
// A block has TILE_Q queries of one head.  It walks over tiles of TILE_KV keys
// and keeps, for every query, the largest score so far, the sum of the
// exponentials below it and the weighted sum of values; when a larger score
// comes, what is there is scaled down.  (Milakov, Gimelshein: Online normalizer
// calculation for softmax, 2018; Dao, Fu, Ermon, Rudra, Re: FlashAttention,
// 2022; Dao: FlashAttention-2, 2023.)
//
// Warps share the tile WARPS_Q ways along the queries; SLICE_KV groups of warps
// share the keys of every tile, each with sums of its own, which gives few
// queries enough warps.  With SPLIT several blocks share the keys of a head.
// All parts meet at the end, in a fixed order.
//
// The scores of a 16 by 16 block lie in the accumulators of two mma as the
// first operand of the next mma wants them, so that P needs no shared memory.
// What excludes or shifts a score (mask, causality, the end of the keys) is put
// into the accumulators before the product is added to them; exponentials are
// to base 2, log2(e) is in `scale`.
//
// Rows of Q, K, V in shared memory have 16 bytes more than their elements: an
// odd number of 16-byte chunks, so that any eight consecutive rows put one
// chunk into eight different groups of four banks.
//
// The emitter defines ELEMENT OUTPUT, D DV (multiples of 8), TILE_Q TILE_KV
// WARPS_Q SLICE_KV STAGES SPLIT PDL CAUSAL KEEP_Q, and where there is a mask
// MASK (its element type), MASK_KEEP, MASK_ROWS (it varies along the queries),
// MASK_PAIRS (two neighbours along the keys lie in one aligned access).
constexpr int SIZE = sizeof(ELEMENT);
constexpr int THREADS = 32 * WARPS_Q * SLICE_KV;
constexpr int ROWS = TILE_Q / WARPS_Q;        // queries of a warp
constexpr int COLUMNS = TILE_KV / SLICE_KV;   // its keys in a tile
constexpr int BLOCKS_Q = ROWS / 16, BLOCKS_KV = COLUMNS / 16;
constexpr int STEPS_D = (D + 15) / 16, BLOCKS_DV = (DV + 15) / 16;
constexpr int PITCH_D = STEPS_D * 32 + 16, PITCH_DV = BLOCKS_DV * 32 + 16;
constexpr int Q_BYTES = TILE_Q * PITCH_D;
constexpr int K_BYTES = TILE_KV * PITCH_D, V_BYTES = TILE_KV * PITCH_DV;
constexpr int STAGE_BYTES = K_BYTES + V_BYTES;
#define MINUS_INFINITY __uint_as_float(0xff800000u)

DEVICE float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// Over the four lanes that hold one row of an accumulator.
DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// How the block's threads share the copying of COUNT rows of WIDTH elements:
// each takes the same chunk of every `step`-th row.  Chunks beyond WIDTH (up to
// a multiple of 16 elements) and rows beyond `count` become zeros.  Loads go
// down the rows, COUNT at a time, from the `first` that start is told.
template <int COUNT, int WIDTH>
struct row_loader {
  static constexpr int chunks = (WIDTH + 15) / 16 * 2;
  static constexpr int pitch = chunks * 16 + 16;
  static constexpr int step = THREADS / chunks;
  static constexpr int passes = (COUNT + step - 1) / step;
  static constexpr bool even = COUNT % step == 0 && THREADS % chunks == 0;
  const u8 *from;
  i64 row_bytes;
  u32 to;
  int row; // COUNT: this thread has nothing to do
  bool filled;
  DEVICE_MEMBER void start(const ELEMENT *base, i64 row_stride, int first) {
    const int chunk = threadIdx.x % chunks;
    row = threadIdx.x / chunks;
    if (!even && row >= step) row = COUNT;
    filled = chunk * 8 < WIDTH;
    row_bytes = row_stride * SIZE;
    from = (const u8 *)base + (first + row) * row_bytes + chunk * 16;
    to = row * pitch + chunk * 16;
    // Else the compiler saves registers and computes them again in every turn.
    asm volatile("" : "+r"(to), "+r"(row), "+l"(from));
  }
  DEVICE_MEMBER void load(u32 panel, int first, int count) {
#pragma unroll
    for (int i = 0; i < passes; i++)
      if (even || row + i * step < COUNT)
        copy_async<16>(panel + to + i * (step * pitch),
                       from + i * step * row_bytes,
                       filled && first + row + i * step < count);
    from += COUNT * row_bytes;
  }
};

// Scores before the product: 0, or what the mask and the limits say.
struct score_starts {
  int sq, skv;
#ifdef MASK
  const MASK *mask; // of this batch and head
  i64 mask_q, mask_k;
  float inverse_scale;
  // Of keys `column` and the next, of one query.
  DEVICE_MEMBER void pair(float (&v)[2], int row, int column) const {
    const MASK *at = mask + (i64)column * mask_k;
    v[0] = v[1] = 0.0f;
#if MASK_ROWS
    at += (i64)(row < sq ? row : sq - 1) * mask_q;
#endif
#if MASK_PAIRS
    if (column < skv) load_vector<2, 2>(at, v);
#else
    if (column < skv) v[0] = to_float(at[0]);
    if (column + 1 < skv) v[1] = to_float(at[mask_k]);
#endif
#pragma unroll
    for (int e = 0; e < 2; e++) {
#if MASK_KEEP
      v[e] = v[e] != 0.0f ? 0.0f : MINUS_INFINITY;
#else
      // Finite values stay finite: a row of nothing but the lowest is uniform.
      float scaled = v[e] * inverse_scale;
      v[e] = v[e] == MINUS_INFINITY || scaled > -1e30f || scaled != scaled
                 ? scaled
                 : -1e30f;
#endif
    }
  }
#endif
  DEVICE_MEMBER int limit(int row) const {
    if (!CAUSAL) return skv;
    int visible = row + 1 + skv - sq;
    return visible < skv ? visible : skv;
  }
  // row, column: of this lane's first score.
  DEVICE_MEMBER void put(float (&s)[BLOCKS_Q][2 * BLOCKS_KV][4], int row,
                         int column) const {
#pragma unroll
    for (int j = 0; j < 2 * BLOCKS_KV; j++) {
      const int c = column + j * 8;
      float v[2] = {0.0f, 0.0f};
#if defined(MASK) && !MASK_ROWS
      pair(v, 0, c);
#endif
#pragma unroll
      for (int i = 0; i < 2 * BLOCKS_Q; i++) {
        const int r = row + i * 8;
#if defined(MASK) && MASK_ROWS
        pair(v, r, c);
#endif
        const int end = limit(r);
        s[i / 2][j][i % 2 * 2] = c < end ? v[0] : MINUS_INFINITY;
        s[i / 2][j][i % 2 * 2 + 1] = c + 1 < end ? v[1] : MINUS_INFINITY;
      }
    }
  }
};

// What a warp knows of its queries: top is the largest score before scaling
// (the same in the four lanes of a row), sum this lane's part.
struct tile_attention {
  float out[BLOCKS_Q][2 * BLOCKS_DV][4];
  float top[BLOCKS_Q][2], sum[BLOCKS_Q][2];
#if KEEP_Q
  u32 q[STEPS_D][BLOCKS_Q][4];
#endif
  u32 q_at, k_at, v_at; // this lane's places for ldmatrix in each panel

  DEVICE_MEMBER void start(u32 lane, u32 warp_q, u32 slice) {
    const u32 straight = lane % 16, crossed = lane % 8 + lane / 16 * 8;
    q_at = (warp_q * ROWS + straight) * PITCH_D + lane / 16 * 16;
    k_at = (slice * COLUMNS + crossed) * PITCH_D + lane / 8 % 2 * 16;
    v_at = (slice * COLUMNS + straight) * PITCH_DV + lane / 16 * 16;
    asm volatile("" : "+r"(k_at), "+r"(v_at)); // kept, as in row_loader
#pragma unroll
    for (int i = 0; i < BLOCKS_Q; i++) {
      top[i][0] = top[i][1] = MINUS_INFINITY;
      sum[i][0] = sum[i][1] = 0.0f;
#pragma unroll
      for (int j = 0; j < 2 * BLOCKS_DV; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) out[i][j][e] = 0.0f;
    }
  }
  DEVICE_MEMBER void keep_queries(u32 panel) {
#if KEEP_Q
#pragma unroll
    for (int step = 0; step < STEPS_D; step++)
#pragma unroll
      for (int i = 0; i < BLOCKS_Q; i++)
        load_matrices<false>(q[step][i],
                             panel + q_at + i * (16 * PITCH_D) + step * 32);
#endif
  }
  DEVICE_MEMBER void add_scores(float (&s)[BLOCKS_Q][2 * BLOCKS_KV][4],
                                u32 q_panel, u32 k_panel) const {
#pragma unroll
    for (int step = 0; step < STEPS_D; step++) {
      u32 a[BLOCKS_Q][4];
#pragma unroll
      for (int i = 0; i < BLOCKS_Q; i++) {
#if KEEP_Q
#pragma unroll
        for (int e = 0; e < 4; e++) a[i][e] = q[step][i][e];
#else
        load_matrices<false>(a[i],
                             q_panel + q_at + i * (16 * PITCH_D) + step * 32);
#endif
      }
#pragma unroll
      for (int j = 0; j < BLOCKS_KV; j++) {
        u32 b[4];
        load_matrices<false>(b, k_panel + k_at + j * (16 * PITCH_D) + step * 32);
#pragma unroll
        for (int i = 0; i < BLOCKS_Q; i++) {
          multiply(s[i][2 * j], a[i], b[0], b[1], (const ELEMENT *)0);
          multiply(s[i][2 * j + 1], a[i], b[2], b[3], (const ELEMENT *)0);
        }
      }
    }
  }
  // Scores become exponentials below the new largest score.
  DEVICE_MEMBER void exponentials(float (&s)[BLOCKS_Q][2 * BLOCKS_KV][4],
                                  float scale) {
#pragma unroll
    for (int i = 0; i < BLOCKS_Q; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float best = top[i][h];
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS_KV; j++)
          best = fmaxf(best, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
        best = quad_max(best);
        // Where every key so far is excluded: exponentials of -infinity.
        const float base = best == MINUS_INFINITY ? 0.0f : best * scale;
        const float down = exp2_fast(top[i][h] * scale - base);
        float total = sum[i][h] * down;
        top[i][h] = best;
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS_DV; j++) {
          out[i][j][2 * h] *= down;
          out[i][j][2 * h + 1] *= down;
        }
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS_KV; j++) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; e++) {
            s[i][j][e] = exp2_fast(s[i][j][e] * scale - base);
            total += s[i][j][e];
          }
        }
        sum[i][h] = total;
      }
  }
  DEVICE_MEMBER void add_values(const float (&s)[BLOCKS_Q][2 * BLOCKS_KV][4],
                                u32 v_panel) {
#pragma unroll
    for (int step = 0; step < BLOCKS_KV; step++) {
      u32 a[BLOCKS_Q][4];
#pragma unroll
      for (int i = 0; i < BLOCKS_Q; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          a[i][e] = floats_to_word(&s[i][2 * step + e / 2][e % 2 * 2],
                                   (const ELEMENT *)0);
#pragma unroll
      for (int j = 0; j < BLOCKS_DV; j++) {
        u32 b[4];
        load_matrices<true>(b, v_panel + v_at + step * (16 * PITCH_DV) + j * 32);
#pragma unroll
        for (int i = 0; i < BLOCKS_Q; i++) {
          multiply(out[i][2 * j], a[i], b[0], b[1], (const ELEMENT *)0);
          multiply(out[i][2 * j + 1], a[i], b[2], b[3], (const ELEMENT *)0);
        }
      }
    }
  }
};

// ---- where the parts meet: each slice's sums in shared memory, over the
// stages; eight floats more than a row, so that the four rows that store
// together begin eight banks apart.  Behind them (top, sum) of every query.
constexpr int SUM_PITCH = BLOCKS_DV * 16 + 8;
constexpr int SUM_BYTES = TILE_Q * SUM_PITCH * 4;
constexpr int PIECES_IN_ROW = DV / 4; // a piece: four columns of a query
constexpr int PIECES = TILE_Q * PIECES_IN_ROW;

DEVICE void store_sums(const tile_attention &t, u32 base, u32 lane, u32 warp_q,
                       u32 slice, float scale) {
  const u32 first = warp_q * ROWS + lane / 4;
#pragma unroll
  for (int i = 0; i < BLOCKS_Q; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const u32 row = first + i * 16 + h * 8;
      const u32 to = base + slice * SUM_BYTES + row * (SUM_PITCH * 4);
#pragma unroll
      for (int j = 0; j < 2 * BLOCKS_DV; j++)
        store_shared(to + (j * 8 + lane % 4 * 2) * 4, t.out[i][j][2 * h],
                     t.out[i][j][2 * h + 1]);
      const float sum = quad_sum(t.sum[i][h]);
      if (lane % 4 == 0)
        store_shared(base + SLICE_KV * SUM_BYTES + (slice * TILE_Q + row) * 8,
                     t.top[i][h] * scale, sum);
    }
}

// Four columns of a query: weighted values and sum below the score `top`, all
// of it in base 2 and scaled.
struct weighted {
  float v[4], top, sum;
  DEVICE_MEMBER void start() {
    top = MINUS_INFINITY;
    sum = v[0] = v[1] = v[2] = v[3] = 0.0f;
  }
  DEVICE_MEMBER void add(const float (&w)[4], float w_top, float w_sum) {
    const float best = fmaxf(top, w_top);
    const float base = best == MINUS_INFINITY ? 0.0f : best;
    const float old = exp2_fast(top - base), fresh = exp2_fast(w_top - base);
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = v[e] * old + w[e] * fresh;
    sum = sum * old + w_sum * fresh;
    top = best;
  }
};

DEVICE void gather_slices(weighted &all, u32 base, int row, int column) {
#pragma unroll
  for (int s = 0; s < SLICE_KV; s++) {
    float w[4];
    u32 stats[2];
    load_shared(w, base + s * SUM_BYTES + (row * SUM_PITCH + column) * 4);
    load_shared_words(
        stats, base + SLICE_KV * SUM_BYTES + (s * TILE_Q + row) * 8);
    const float top = __uint_as_float(stats[0]);
    const float sum = __uint_as_float(stats[1]);
    if (SLICE_KV == 1) {
#pragma unroll
      for (int e = 0; e < 4; e++) all.v[e] = w[e];
      all.top = top;
      all.sum = sum;
    } else {
      all.add(w, top, sum);
    }
  }
}

#if SPLIT
// A part in global memory: for every query its columns, then top and sum.
constexpr int PART_PITCH = DV + 4, PART = TILE_Q * PART_PITCH;

// Hands this block's part over; true in the block that came last.
DEVICE bool hand_over(float *mine, u32 base, int *semaphore, int split,
                      int *seat /* a word of shared memory, free by then */) {
  for (int piece = threadIdx.x; piece < PIECES; piece += THREADS) {
    const int row = piece / PIECES_IN_ROW, column = piece % PIECES_IN_ROW * 4;
    weighted all;
    all.start();
    gather_slices(all, base, row, column);
    store_far(mine + row * PART_PITCH + column, all.v);
    const float stats[4] = {all.top, all.sum, 0.0f, 0.0f};
    if (column == 0) store_far(mine + row * PART_PITCH + DV, stats);
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
  return *(volatile int *)seat == split - 1;
}

DEVICE void gather_parts(weighted &all, const float *parts, int row, int column,
                         int split) {
#pragma unroll 4
  for (int i = 0; i < split; i++) {
    float w[4], stats[4];
    const float *from = parts + (i64)i * PART + row * PART_PITCH;
    load_far(w, from + column);
    load_far(stats, from + DV);
    all.add(w, stats[0], stats[1]);
  }
}
#endif

#ifdef MASK
#define MASK_PARAMETERS                                                       \
  const MASK *mask, i64 mask_b, i64 mask_h, i64 mask_q, i64 mask_k,           \
      float inverse_scale,
#else
#define MASK_PARAMETERS
#endif

// Strides in elements; `scale` holds log2(e); group: queries' heads to one of
// the keys; split: blocks that share the keys, along the grid's z, innermost.
extern "C" __global__ void __launch_bounds__(THREADS) attention_mma(
    const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, OUTPUT *o,
    MASK_PARAMETERS float *partial, int *semaphore, i64 q_b, i64 q_h, i64 q_s,
    i64 k_b, i64 k_h, i64 k_s, i64 v_b, i64 v_h, i64 v_s, i64 o_b, i64 o_h,
    i64 o_s, int sq, int skv, int group, int split, float scale) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 base = shared_address(shared);
#if PDL
  dependents_launch();
#endif
  // Causal: the last queries see most keys, so their blocks come first.
  const int tile_q = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int q0 = tile_q * TILE_Q, head = blockIdx.y, kv_head = head / group;
  const int batch = SPLIT ? blockIdx.z / split : blockIdx.z;

  // ---- this block's tiles of keys
  int keys = skv;
  if (CAUSAL) {
    const int last = q0 + TILE_Q < sq ? q0 + TILE_Q : sq;
    keys = last + skv - sq < skv ? last + skv - sq : skv;
    if (keys < 0) keys = 0;
  }
  int begin = 0, end = (keys + TILE_KV - 1) / TILE_KV;
#if SPLIT
  const int part = blockIdx.z - batch * split;
  const int each = end / split, extra = end - each * split;
  begin = split_begin(part, each, extra);
  end = begin + split_count(part, each, extra);
#endif

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 warp_q = warp % WARPS_Q, slice = warp / WARPS_Q;
  tile_attention tile;
  tile.start(lane, warp_q, slice);
  score_starts starts;
  starts.sq = sq;
  starts.skv = skv;
#ifdef MASK
  starts.mask = mask + batch * mask_b + head * mask_h;
  starts.mask_q = mask_q;
  starts.mask_k = mask_k;
  starts.inverse_scale = inverse_scale;
#endif
  const int row = q0 + warp_q * ROWS + lane / 4;
  const int column = slice * COLUMNS + lane % 4 * 2;

  row_loader<TILE_Q, D> from_q;
  row_loader<TILE_KV, D> from_k;
  row_loader<TILE_KV, DV> from_v;
  from_q.start(q + batch * q_b + head * q_h, q_s, q0);
  from_k.start(k + batch * k_b + kv_head * k_h, k_s, begin * TILE_KV);
  from_v.start(v + batch * v_b + kv_head * v_h, v_s, begin * TILE_KV);

  // ---- the first copies; K and V of a tile are groups of their own
  const u32 ring = base + Q_BYTES;
#if PDL
  dependency_wait();
#endif
  if (begin < end) from_q.load(base, q0, sq);
  constexpr int AHEAD = STAGES > 1 ? STAGES - 1 : 1;
  constexpr int LATER = 2 * (AHEAD - 1); // groups of tiles after the one at hand
#pragma unroll
  for (int s = 0; s < AHEAD; s++) {
    const bool has = begin + s < end;
    if (has) from_k.load(ring + s * STAGE_BYTES, (begin + s) * TILE_KV, skv);
    copies_commit(); // an empty group where there is nothing: counts stay even
    if (has)
      from_v.load(ring + s * STAGE_BYTES + K_BYTES, (begin + s) * TILE_KV, skv);
    copies_commit();
  }

  // ---- the walk
  u32 reading = ring, writing = ring + (STAGES - 1) * STAGE_BYTES;
  for (int t = begin; t < end; t++) {
    const int kv0 = t * TILE_KV;
    // The mask is read while K is still under way.
    float s[BLOCKS_Q][2 * BLOCKS_KV][4];
#ifndef MASK
    const bool edge = kv0 + TILE_KV > skv ||
                      CAUSAL && kv0 + TILE_KV - 1 > q0 + skv - sq;
    if (edge) {
      starts.put(s, row, kv0 + column);
    } else {
#pragma unroll
      for (int i = 0; i < BLOCKS_Q; i++)
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS_KV; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) s[i][j][e] = 0.0f;
    }
#else
    starts.put(s, row, kv0 + column);
#endif
    // K is here.  STAGES 1: so is, from the second tile on, the last V's place,
    // since every warp has passed the barrier after it.  More: from the second
    // tile on V is here, too, and needs no barrier of its own.
    if (t == begin)
      copies_wait<2 * AHEAD - 1>();
    else
      copies_wait<LATER>();
    __syncthreads();
#if STAGES > 1
    const int next = t + STAGES - 1;
    if (next < end) from_k.load(writing, next * TILE_KV, skv);
    copies_commit();
    if (next < end) from_v.load(writing + K_BYTES, next * TILE_KV, skv);
    copies_commit();
#else
    if (t != begin) {
      from_v.load(ring + K_BYTES, kv0, skv);
      copies_commit();
    }
#endif
    if (t == begin) tile.keep_queries(base);
    tile.add_scores(s, base, reading);
    tile.exponentials(s, scale);

#if STAGES > 1
    if (t == begin) {
      copies_wait<2 * (STAGES - 1)>();
      __syncthreads();
    }
#else
    copies_wait<0>();
    __syncthreads(); // V is here, and no warp reads K any more
    if (t + 1 < end) from_k.load(ring, kv0 + TILE_KV, skv);
    copies_commit();
#endif
    tile.add_values(s, reading + K_BYTES);
#if STAGES > 1
    writing = reading;
    reading += STAGE_BYTES;
    if (reading == ring + STAGES * STAGE_BYTES) reading = ring;
#endif
  }

  // ---- the parts meet
  copies_wait<0>();
  __syncthreads();
  store_sums(tile, base, lane, warp_q, slice, scale);
  __syncthreads();
#if SPLIT
  const i64 block =
      ((i64)batch * gridDim.y + head) * gridDim.x + blockIdx.x;
  float *parts = partial + block * split * PART;
  if (!hand_over(parts + (i64)part * PART, base, semaphore + block, split,
                 (int *)shared))
    return;
#endif
  OUTPUT *to = o + batch * o_b + head * o_h;
  for (int piece = threadIdx.x; piece < PIECES; piece += THREADS) {
    const int r = piece / PIECES_IN_ROW, c = piece % PIECES_IN_ROW * 4;
    if (q0 + r >= sq) break;
    weighted all;
    all.start();
#if SPLIT
    gather_parts(all, parts, r, c, split);
#else
    gather_slices(all, base, r, c);
#endif
    // No weight at all: excluded keys give 0, an additive mask's -infinity
    // gives NaN where there was a key to add it to.
    float share = 1.0f / all.sum;
    if (all.sum == 0.0f) {
      share = 0.0f;
#if defined(MASK) && !MASK_KEEP
      if (starts.limit(q0 + r) > 0) share = __uint_as_float(0x7fffffffu);
#endif
    }
#pragma unroll
    for (int e = 0; e < 4; e++) all.v[e] *= share;
    store_vector<4, 4>(to + (q0 + r) * o_s + c, all.v);
  }
}
