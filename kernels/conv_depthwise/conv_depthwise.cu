// conv_depthwise.cu - every channel by a window of its own.
//
// A thread computes TILE_P x TILE_Q outputs of VEC channels: it goes down the
// input's rows under its outputs, each row read once and used by every output
// row that it belongs to.  LANES threads lie along the channels, SPOTS along
// the tiles (columns fastest).  The block's taps stand in shared memory as
// fp32, channels fastest; where they are constants they are fetched before the
// kernel in front has finished.  RESIDENT: blocks that registers must leave
// room for on a multiprocessor.
//
// MARCH 0: everything is unrolled, all loads of a tile are under way at once.
// MARCH 1: a loop down the tile, with sums only for the output rows that the
// rows just read belong to: they move up by one each time, and the first
// leaves.  Tiles may then be high.
enum {
  CHANNELS = LANES * VEC,
  THREADS = LANES * SPOTS,
  SPAN_H = (TILE_P - 1) * STRIDE_H + (R - 1) * DILATION_H + 1,
  SPAN_W = (TILE_Q - 1) * STRIDE_W + (S - 1) * DILATION_W + 1,
  // Output rows that one row of input belongs to, or lies between.
  ROWS = MARCH ? ((R - 1) * DILATION_H + STRIDE_H) / STRIDE_H : TILE_P,
  STEPS = TILE_P + ROWS - 1
};

// Row `y` below an output row's first: which tap's, -1: none.
DEVICE constexpr int tap_of(int y) {
  return y < 0 || y % DILATION_H != 0 || y / DILATION_H >= R ? -1
                                                             : y / DILATION_H;
}

// One row of input, zero where there is none.
#define LOAD_ROW(x, y)                                                    \
  {                                                                       \
    const int i_h = first_h + (y);                                        \
    _Pragma("unroll") for (int z = 0; z < SPAN_W; z++) {                  \
      const int i_w = first_w + z;                                        \
      _Pragma("unroll") for (int j = 0; j < VEC; j++) x[z][j] = 0.0f;     \
      if (i_h >= 0 && i_h < e_h && i_w >= 0 && i_w < e_w &&               \
          IN_inside(IN_COORDINATES IN_ARGUMENTS))                         \
        load_vector<VEC, IN_ALIGNED>(                                     \
            in + IN_offset(IN_COORDINATES IN_ARGUMENTS), x[z]);           \
    }                                                                     \
  }

// Row `r` of the taps over a row of input, into a row of sums.
DEVICE void add_row(float (&sum)[TILE_Q][VEC], const float (&x)[SPAN_W][VEC],
                    const float *taps) {
#pragma unroll
  for (int s = 0; s < S; s++) {
    float w[VEC];
    load_vector<VEC, 4>(taps + s * (CHANNELS + 4), w);
#pragma unroll
    for (int q = 0; q < TILE_Q; q++)
#pragma unroll
      for (int j = 0; j < VEC; j++)
        sum[q][j] =
            fmaf(x[q * STRIDE_W + s * DILATION_W][j], w[j], sum[q][j]);
  }
}

#define STORE_ROW(sum, p)                                                  \
  {                                                                        \
    const int i_p = first_p + (p);                                         \
    _Pragma("unroll") for (int q = 0; q < TILE_Q; q++) {                   \
      const int i_q = first_q + q;                                         \
      if (i_p >= e_p || i_q >= e_q) continue;                              \
      const i64 at = OUT_offset(OUT_COORDINATES OUT_ARGUMENTS);            \
      epilogue_vector<VEC>(sum[q], at POINT_TAIL EPILOGUE_ARGUMENTS);      \
      store_vector<VEC, VEC>(out + at, sum[q]);                            \
    }                                                                      \
  }

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    conv_depthwise(OUT_T *out, const IN_T *in,
                   const TAP_T *tap EXTENT_PARAMETERS OUT_PARAMETERS
                       IN_PARAMETERS TAP_PARAMETERS EPILOGUE_PARAMETERS) {
  __shared__ __align__(16) float taps[R * S][CHANNELS + 4];
  const int first_k = (int)blockIdx.y * CHANNELS;
  dependents_launch();
#if !TAPS_CONSTANT
  dependency_wait();
#endif
#pragma unroll 4
  for (int i = threadIdx.x; i < R * S * CHANNELS; i += THREADS) {
    const int channel = i / (R * S), number = i % (R * S);
    const int i_k = first_k + channel, i_c = 0;
    const int i_r = number / S, i_s = number % S;
    taps[number][channel] =
        i_k < e_k ? to_float(tap[TAP_offset(TAP_COORDINATES TAP_ARGUMENTS)])
                  : 0.0f;
  }
#if TAPS_CONSTANT
  dependency_wait();
#endif
  __syncthreads();

  const int lane = threadIdx.x % LANES;
  const int i_k = first_k + lane * VEC;
  const int tiles_p = (e_p + TILE_P - 1) / TILE_P;
  const int tiles_q = (e_q + TILE_Q - 1) / TILE_Q;
  const i64 number = (i64)blockIdx.x * SPOTS + threadIdx.x / LANES;
  if (number >= (i64)e_n * tiles_p * tiles_q || i_k >= e_k) return;
  const int first_q = (int)((index_t)number % tiles_q) * TILE_Q;
  const index_t rest = (index_t)number / tiles_q;
  const int first_p = (int)(rest % tiles_p) * TILE_P;
  const int i_n = (int)(rest / tiles_p);
  const int first_h = first_p * STRIDE_H - PAD_TOP;
  const int first_w = first_q * STRIDE_W - PAD_LEFT;
  const int i_c = i_k / MULTIPLIER;

  const float *own_taps = &taps[0][lane * VEC];
  float sum[ROWS][TILE_Q][VEC];
#pragma unroll
  for (int p = 0; p < ROWS; p++)
#pragma unroll
    for (int q = 0; q < TILE_Q; q++)
#pragma unroll
      for (int j = 0; j < VEC; j++) sum[p][q][j] = 0.0f;

#if MARCH
  // sum[a] is of output row t - a.
#pragma unroll 1
  for (int t = 0; t < STEPS; t++) {
    float x[STRIDE_H][SPAN_W][VEC];
#pragma unroll
    for (int y = 0; y < STRIDE_H; y++) LOAD_ROW(x[y], t * STRIDE_H + y)
#pragma unroll
    for (int a = 0; a < ROWS; a++)
#pragma unroll
      for (int y = 0; y < STRIDE_H; y++) {
        const int r = tap_of(a * STRIDE_H + y);
        if (r >= 0) add_row(sum[a], x[y], own_taps + r * S * (CHANNELS + 4));
      }
    if (t >= ROWS - 1) STORE_ROW(sum[ROWS - 1], t - (ROWS - 1))
#pragma unroll
    for (int a = ROWS - 1; a >= 0; a--)
#pragma unroll
      for (int q = 0; q < TILE_Q; q++)
#pragma unroll
        for (int j = 0; j < VEC; j++)
          sum[a][q][j] = a ? sum[a ? a - 1 : 0][q][j] : 0.0f;
  }
#else
#pragma unroll
  for (int y = 0; y < SPAN_H; y++) {
    float x[SPAN_W][VEC];
    LOAD_ROW(x, y)
#pragma unroll
    for (int p = 0; p < TILE_P; p++) {
      const int r = tap_of(y - p * STRIDE_H);
      if (r >= 0) add_row(sum[p], x, own_taps + r * S * (CHANNELS + 4));
    }
  }
#pragma unroll
  for (int p = 0; p < TILE_P; p++) STORE_ROW(sum[p], p)
#endif
}
