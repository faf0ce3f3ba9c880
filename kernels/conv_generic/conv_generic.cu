// conv_generic.cu - convolution as an implicit matrix product in fp32, FFMA.
//
// Rows are output points (n,p,q), columns the channels of one group, the inner
// index runs over (r,s,c).  A block computes TILE_M x TILE_N outputs, a thread
// RM x RN of them in quads; tiles of TILE_K inner indices go through registers
// into one of two shared buffers while the other is multiplied.  With SPLIT > 1
// each part of the inner index writes its sums to `partial`, and `combine`
// joins them in order and applies the epilogue.
#define THREADS_N (TILE_N / RN)
#define THREADS (TILE_M / RM * THREADS_N)
#define UNITS_A (TILE_M * TILE_K / VEC_A)
#define UNITS_B (TILE_N * TILE_K / VEC_B)
#define LOADS_A ((UNITS_A + THREADS - 1) / THREADS)
#define LOADS_B ((UNITS_B + THREADS - 1) / THREADS)
#if SPLIT > 1
#define PARTIAL_PARAMETER float *partial,
#else
#define PARTIAL_PARAMETER
#endif
#define CONV_PARAMETERS                                                   \
  OUT_T *out, PARTIAL_PARAMETER const IN0_T *x, const IN1_T *w            \
                  EXTENT_PARAMETERS OUT_PARAMETERS IN0_PARAMETERS         \
                      IN1_PARAMETERS EPILOGUE_PARAMETERS

// Row (column) of the tile that is number i of a thread: quads of neighbours,
// the quads TILE / (COUNT / 4) apart.
template <int TILE, int COUNT>
DEVICE int place(int thread, int i) {
  return i / 4 * (TILE / (COUNT / 4)) + thread * 4 + i % 4;
}

template <int COUNT>
DEVICE void load_quads(const float *line, int step, float (&v)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT / 4; i++) {
    u32 words[4];
    load_words(line + i * step, words);
#pragma unroll
    for (int j = 0; j < 4; j++) v[4 * i + j] = __uint_as_float(words[j]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    conv_generic(CONV_PARAMETERS) {
  __shared__ __align__(16) float a[2][TILE_K][TILE_M + 4];
  __shared__ __align__(16) float b[2][TILE_K][TILE_N + 4];
  const int of_group = e_c / GROUP, channels = e_k / GROUP;
  const int depth = e_r * e_s * of_group, pixels = e_n * e_p * e_q;
  const int tiles_n = (channels + TILE_N - 1) / TILE_N;
  const int tiles_m = (pixels + TILE_M - 1) / TILE_M;
  int number = blockIdx.x;
  const int first_n = number % tiles_n * TILE_N;
  number /= tiles_n;
  const int first_m = number % tiles_m * TILE_M;
  number /= tiles_m;
  const int group = number % GROUP, part = number / GROUP;
  const int steps = (depth + TILE_K - 1) / TILE_K;
  const int each = (steps + SPLIT - 1) / SPLIT * TILE_K;
  const int start = part * each;
  const int end = start + each < depth ? start + each : depth;
  const int tx = threadIdx.x % THREADS_N, ty = threadIdx.x / THREADS_N;

  // The output points whose window this thread loads from.
  int row_n[LOADS_A], row_h[LOADS_A], row_w[LOADS_A];
#pragma unroll
  for (int i = 0; i < LOADS_A; i++) {
    const int unit = threadIdx.x + i * THREADS;
    const int m = first_m + unit / (TILE_K / VEC_A);
    const int q = m % e_q, p = m / e_q % e_p;
    row_n[i] = unit < UNITS_A && m < pixels ? m / e_q / e_p : -1;
    row_h[i] = p * STRIDE_H - PAD_TOP;
    row_w[i] = q * STRIDE_W - PAD_LEFT;
  }
  float next_a[LOADS_A][VEC_A], next_b[LOADS_B][VEC_B];
  auto load = [&](int base) {
#pragma unroll
    for (int i = 0; i < LOADS_A; i++) {
      const int unit = threadIdx.x + i * THREADS;
      const int k = base + unit % (TILE_K / VEC_A) * VEC_A;
      const int tap = k / of_group, r = tap / e_s;
      const int i_n = row_n[i], i_c = group * of_group + k - tap * of_group;
      const int i_h = row_h[i] + r * DILATION_H;
      const int i_w = row_w[i] + (tap - r * e_s) * DILATION_W;
#pragma unroll
      for (int j = 0; j < VEC_A; j++) next_a[i][j] = 0.0f;
      if (i_n >= 0 && k < end && i_h >= 0 && i_h < e_h && i_w >= 0 &&
          i_w < e_w && IN0_inside(IN0_COORDINATES IN0_ARGUMENTS))
        load_vector<VEC_A, IN0_ALIGNED>(
            x + IN0_offset(IN0_COORDINATES IN0_ARGUMENTS), next_a[i]);
    }
#pragma unroll
    for (int i = 0; i < LOADS_B; i++) {
      const int unit = threadIdx.x + i * THREADS;
      const int k = base + unit % (TILE_K / VEC_B) * VEC_B;
      const int column = first_n + unit / (TILE_K / VEC_B);
      const int tap = k / of_group, i_r = tap / e_s, i_s = tap - i_r * e_s;
      const int i_c = k - tap * of_group, i_k = group * channels + column;
#pragma unroll
      for (int j = 0; j < VEC_B; j++) next_b[i][j] = 0.0f;
      if (unit < UNITS_B && column < channels && k < end &&
          IN1_inside(IN1_COORDINATES IN1_ARGUMENTS))
        load_vector<VEC_B, IN1_ALIGNED>(
            w + IN1_offset(IN1_COORDINATES IN1_ARGUMENTS), next_b[i]);
    }
  };
  auto keep = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < LOADS_A; i++) {
      const int unit = threadIdx.x + i * THREADS;
      if (UNITS_A % THREADS && unit >= UNITS_A) break;
#pragma unroll
      for (int j = 0; j < VEC_A; j++)
        a[buffer][unit % (TILE_K / VEC_A) * VEC_A + j]
         [unit / (TILE_K / VEC_A)] = next_a[i][j];
    }
#pragma unroll
    for (int i = 0; i < LOADS_B; i++) {
      const int unit = threadIdx.x + i * THREADS;
      if (UNITS_B % THREADS && unit >= UNITS_B) break;
#pragma unroll
      for (int j = 0; j < VEC_B; j++)
        b[buffer][unit % (TILE_K / VEC_B) * VEC_B + j]
         [unit / (TILE_K / VEC_B)] = next_b[i][j];
    }
  };

  float sum[RM][RN];
#pragma unroll
  for (int i = 0; i < RM; i++)
#pragma unroll
    for (int j = 0; j < RN; j++) sum[i][j] = 0.0f;

  dependents_launch();
  dependency_wait();
  load(start);
  keep(0);
  __syncthreads();
  int buffer = 0;
  for (int base = start; base < end; base += TILE_K) {
    const bool more = base + TILE_K < end;
    if (more) load(base + TILE_K);
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
      float left[RM], right[RN];
      load_quads(&a[buffer][k][ty * 4], TILE_M / (RM / 4), left);
      load_quads(&b[buffer][k][tx * 4], TILE_N / (RN / 4), right);
#pragma unroll
      for (int i = 0; i < RM; i++)
#pragma unroll
        for (int j = 0; j < RN; j++)
          sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
    }
    // The other buffer was last read before the barrier of the step before.
    if (more) keep(buffer ^ 1);
    __syncthreads();
    buffer ^= 1;
  }

#pragma unroll
  for (int i = 0; i < RM; i++) {
    const int m = first_m + place<TILE_M, RM>(ty, i);
    if (m >= pixels) continue;
#pragma unroll
    for (int j = 0; j < RN; j += 4) {
      const int column = first_n + place<TILE_N, RN>(tx, j);
      if (column >= channels) continue;
      int i_k = group * channels + column;
#if SPLIT > 1
      float *to = partial + ((i64)part * pixels + m) * e_k + i_k;
#pragma unroll
      for (int l = 0; l < 4; l++)
        if (column + l < channels) to[l] = sum[i][j + l];
#else
      const int i_q = m % e_q, i_p = m / e_q % e_p, i_n = m / e_q / e_p;
#if VEC_Y > 1
      float v[4] = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
      const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
      epilogue_vector<4>(v, at POINT_TAIL EPILOGUE_ARGUMENTS);
      store_vector<4, 16>(out + at, v);
#else
#pragma unroll
      for (int l = 0; l < 4; l++, i_k++) {
        if (column + l >= channels) continue;
        const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
        from_float(
            epilogue(sum[i][j + l], at POINT_TAIL EPILOGUE_ARGUMENTS),
            out[at]);
      }
#endif
#endif
    }
  }
}

#if SPLIT > 1
extern "C" __global__ void __launch_bounds__(256) combine(CONV_PARAMETERS) {
  dependents_launch();
  dependency_wait();
  const i64 points = (i64)e_n * e_p * e_q * e_k;
  const i64 number = (i64)blockIdx.x * 256 + threadIdx.x;
  if (number >= points) return;
  float sum = 0.0f;
#pragma unroll
  for (int part = 0; part < SPLIT; part++)
    sum += partial[part * points + number];
  const int i_k = (int)(number % e_k), m = (int)(number / e_k);
  const int i_q = m % e_q, i_p = m / e_q % e_p, i_n = m / e_q / e_p;
  const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
  from_float(epilogue(sum, at POINT_TAIL EPILOGUE_ARGUMENTS), out[at]);
}
#endif
