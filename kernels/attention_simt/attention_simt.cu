// attention_simt.cu - O = softmax(scale Q K^T + mask) V in fp32 without tensor
// cores, of any element type and any strides.
//
// A block has TILE_Q queries of one head and walks over tiles of TILE_KV keys
// with an online softmax (see attention_mma.cu).  Threads form rows of LANES:
// a row has RQ queries; its lanes take every LANES-th key when scores are
// computed and every LANES-th column when values are added.  All operands lie
// in shared memory as fp32, exponentials go through it from the one division
// of the work to the other.
//
// The emitter defines Q_T K_T V_T O_T, D DV, TILE_Q TILE_KV RQ, PDL, CAUSAL,
// Q_VECTOR K_VECTOR V_VECTOR (elements that one access may take: 4 or 1), and
// with a mask MASK (its element type) and MASK_KEEP.
constexpr int LANES = 16;
constexpr int THREADS = TILE_Q / RQ * LANES;
constexpr int RC = TILE_KV / LANES, RO = (DV + LANES - 1) / LANES;
constexpr int FOURS = (D + 3) / 4;
// An odd number of 16-byte chunks: eight rows that are read together meet all
// banks.
constexpr int PITCH_D = (FOURS | 1) * 4, PITCH_DV = RO * LANES;
constexpr int PITCH_P = TILE_KV + 4;
#define MINUS_INFINITY __uint_as_float(0xff800000u)
#define LOG2_E 1.44269504f

DEVICE float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DEVICE float lanes_max(float x) {
#pragma unroll
  for (int i = 1; i < LANES; i *= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
  return x;
}
DEVICE float lanes_sum(float x) {
#pragma unroll
  for (int i = 1; i < LANES; i *= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}
DEVICE void load_four(const float *from, float (&v)[4]) {
  u32 words[4];
  load_words(from, words);
#pragma unroll
  for (int j = 0; j < 4; j++) v[j] = __uint_as_float(words[j]);
}

// COUNT rows of WIDTH elements from `first` on, as fp32; zeros beyond `count`
// rows and beyond WIDTH.
template <int COUNT, int WIDTH, int PITCH, int VECTOR, typename T>
DEVICE void load_rows(float *to, const T *from, i64 row_stride, i64 stride,
                      int first, int count) {
  constexpr int per_row = PITCH / VECTOR;
  for (int i = threadIdx.x; i < COUNT * per_row; i += THREADS) {
    const int row = i / per_row, at = i % per_row * VECTOR;
    float v[VECTOR];
#pragma unroll
    for (int j = 0; j < VECTOR; j++) v[j] = 0.0f;
    if (first + row < count && at < WIDTH)
      load_vector<VECTOR, VECTOR>(from + (first + row) * row_stride + at * stride,
                                  v);
#pragma unroll
    for (int j = 0; j < VECTOR; j++) to[row * PITCH + at + j] = v[j];
  }
}

#ifdef MASK
#define MASK_PARAMETERS \
  const MASK *mask, i64 mask_b, i64 mask_h, i64 mask_q, i64 mask_k,
#else
#define MASK_PARAMETERS
#endif

// Strides in elements; group: queries' heads to one of the keys.
extern "C" __global__ void __launch_bounds__(THREADS) attention_simt(
    const Q_T *q, const K_T *k, const V_T *v, O_T *o, MASK_PARAMETERS i64 q_b,
    i64 q_h, i64 q_s, i64 q_d, i64 k_b, i64 k_h, i64 k_s, i64 k_d, i64 v_b,
    i64 v_h, i64 v_s, i64 v_d, i64 o_b, i64 o_h, i64 o_s, i64 o_d, int sq,
    int skv, int group, float scale) {
  extern __shared__ __align__(128) u8 shared[];
  float *const tile_q = (float *)shared;
  float *const tile_k = tile_q + TILE_Q * PITCH_D;
  float *const tile_v = tile_k + TILE_KV * PITCH_D;
  float *const tile_p = tile_v + TILE_KV * PITCH_DV;
#if PDL
  dependents_launch();
  dependency_wait();
#endif
  // Causal: the last queries see most keys, so their blocks come first.
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int q0 = block * TILE_Q, head = blockIdx.y, batch = blockIdx.z;
  const int lane = threadIdx.x % LANES, row0 = threadIdx.x / LANES * RQ;
  q += batch * q_b + head * q_h;
  k += batch * k_b + head / group * k_h;
  v += batch * v_b + head / group * v_h;
  o += batch * o_b + head * o_h;
#ifdef MASK
  mask += batch * mask_b + head * mask_h;
#endif
  int keys = skv;
  if (CAUSAL) {
    const int last = q0 + TILE_Q < sq ? q0 + TILE_Q : sq;
    keys = last + skv - sq < skv ? last + skv - sq : skv;
  }
  int limit[RQ]; // keys that a query may see
  float out[RQ][RO], top[RQ], sum[RQ];
#pragma unroll
  for (int r = 0; r < RQ; r++) {
    const int visible = q0 + row0 + r + 1 + skv - sq;
    limit[r] = CAUSAL && visible < skv ? visible : skv;
    top[r] = MINUS_INFINITY;
    sum[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < RO; c++) out[r][c] = 0.0f;
  }
  load_rows<TILE_Q, D, PITCH_D, Q_VECTOR>(tile_q, q, q_s, q_d, q0, sq);

  for (int first = 0; first < keys; first += TILE_KV) {
    __syncthreads();
    load_rows<TILE_KV, D, PITCH_D, K_VECTOR>(tile_k, k, k_s, k_d, first, skv);
    load_rows<TILE_KV, DV, PITCH_DV, V_VECTOR>(tile_v, v, v_s, v_d, first, skv);
    __syncthreads();

    // ---- scores
    float s[RQ][RC];
#pragma unroll
    for (int r = 0; r < RQ; r++)
#pragma unroll
      for (int c = 0; c < RC; c++) s[r][c] = 0.0f;
#pragma unroll 2
    for (int i = 0; i < FOURS; i++) {
      float a[RQ][4], b[RC][4];
#pragma unroll
      for (int r = 0; r < RQ; r++)
        load_four(tile_q + (row0 + r) * PITCH_D + i * 4, a[r]);
#pragma unroll
      for (int c = 0; c < RC; c++)
        load_four(tile_k + (lane + c * LANES) * PITCH_D + i * 4, b[c]);
#pragma unroll
      for (int r = 0; r < RQ; r++)
#pragma unroll
        for (int c = 0; c < RC; c++)
#pragma unroll
          for (int j = 0; j < 4; j++) s[r][c] += a[r][j] * b[c][j];
    }

    // ---- exponentials
#pragma unroll
    for (int r = 0; r < RQ; r++) {
      float best = top[r];
#pragma unroll
      for (int c = 0; c < RC; c++) {
        const int key = first + lane + c * LANES;
        s[r][c] *= scale;
        if (key >= limit[r]) s[r][c] = MINUS_INFINITY;
#ifdef MASK
        const int query = q0 + row0 + r < sq ? q0 + row0 + r : sq - 1;
        if (key < limit[r]) {
          const float m = to_float(mask[query * mask_q + key * mask_k]);
#if MASK_KEEP
          if (m == 0.0f) s[r][c] = MINUS_INFINITY;
#else
          s[r][c] += m;
#endif
        }
#endif
        best = fmaxf(best, s[r][c]);
      }
      best = lanes_max(best);
      // Where every key so far is excluded: exponentials of -infinity.
      const float base = best == MINUS_INFINITY ? 0.0f : best;
      const float down = exp2_fast((top[r] - base) * LOG2_E);
      top[r] = best;
      sum[r] *= down;
#pragma unroll
      for (int c = 0; c < RO; c++) out[r][c] *= down;
#pragma unroll
      for (int c = 0; c < RC; c++) {
        const float p = exp2_fast((s[r][c] - base) * LOG2_E);
        sum[r] += p;
        tile_p[(row0 + r) * PITCH_P + lane + c * LANES] = p;
      }
    }
    __syncthreads();

    // ---- values
#pragma unroll 1
    for (int i = 0; i < TILE_KV / 4; i++) {
      float p[RQ][4];
#pragma unroll
      for (int r = 0; r < RQ; r++)
        load_four(tile_p + (row0 + r) * PITCH_P + i * 4, p[r]);
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < RO; c++) {
          const float x = tile_v[(i * 4 + j) * PITCH_DV + lane + c * LANES];
#pragma unroll
          for (int r = 0; r < RQ; r++) out[r][c] += p[r][j] * x;
        }
    }
  }

#pragma unroll
  for (int r = 0; r < RQ; r++) {
    const int query = q0 + row0 + r;
    const float all = lanes_sum(sum[r]);
    // No weight at all: excluded keys give 0, an additive mask's -infinity
    // gives NaN where there was a key to add it to.
    float share = 1.0f / all;
    if (all == 0.0f) {
      share = 0.0f;
#if defined(MASK) && !MASK_KEEP
      if (limit[r] > 0) share = __uint_as_float(0x7fffffffu);
#endif
    }
    if (query >= sq) continue;
#pragma unroll
    for (int c = 0; c < RO; c++) {
      const int column = lane + c * LANES;
      if (column < DV)
        from_float(out[r][c] * share, o[query * o_s + column * o_d]);
    }
  }
}
