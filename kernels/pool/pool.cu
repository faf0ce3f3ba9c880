// pool.cu - a thread computes ITEMS runs of VEC channels of the output.  A row
// of the window is loaded before it is used, so that its loads overlap.
extern "C" __global__ void __launch_bounds__(BLOCK)
    pool(OUT_T *out, const IN_T *in EXTENT_PARAMETERS OUT_PARAMETERS
             IN_PARAMETERS EPILOGUE_PARAMETERS) {
  dependents_launch();
  dependency_wait();
  const i64 points = POINTS;
  const i64 first = (i64)blockIdx.x * (BLOCK * VEC * ITEMS) + threadIdx.x * VEC;
#pragma unroll 1
  for (int item = 0; item < ITEMS; item++) {
    const i64 start = first + (i64)item * (BLOCK * VEC);
    if (start >= points) break;
    POINT_COORDINATES((index_t)start)
    window_pool<POOL_OP> window[VEC];
    const int first_h = i_p * STRIDE_H - PAD_TOP;
    const int first_w = i_q * STRIDE_W - PAD_LEFT;
#pragma unroll UNROLL_R
    for (int r = 0; r < R; r++) {
      const int i_h = first_h + r * DILATION_H;
      if (i_h < 0 || i_h >= e_h) continue;
#pragma unroll UNROLL_S
      for (int s0 = 0; s0 < S; s0 += BATCH) {
        float x[BATCH][VEC];
#pragma unroll
        for (int s = 0; s < BATCH; s++) {
          const int i_w = first_w + (s0 + s) * DILATION_W;
          const bool inside = s0 + s < S && i_w >= 0 && i_w < e_w;
#pragma unroll
          for (int j = 0; j < VEC; j++) x[s][j] = 0.0f;
          if (inside && IN_inside(IN_COORDINATES IN_ARGUMENTS))
            load_vector<VEC, IN_ALIGNED>(
                in + IN_offset(IN_COORDINATES IN_ARGUMENTS), x[s]);
        }
#pragma unroll
        for (int s = 0; s < BATCH; s++) {
          const int i_w = first_w + (s0 + s) * DILATION_W;
          if (s0 + s < S && i_w >= 0 && i_w < e_w) {
#pragma unroll
            for (int j = 0; j < VEC; j++) window[j].add(x[s][j]);
          }
        }
      }
    }
    const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
#if OVER
    const int counted = window_counted(first_h, R, DILATION_H, e_h + END_H) *
                        window_counted(first_w, S, DILATION_W, e_w + END_W);
#else
    const int counted = R * S;
#endif
    float v[VEC];
#pragma unroll
    for (int j = 0; j < VEC; j++) v[j] = window[j].value(counted);
#if VEC > 1
    epilogue_vector<VEC>(v, at POINT_TAIL EPILOGUE_ARGUMENTS);
    store_vector<VEC, VEC>(out + at, v);
#else
    from_float(epilogue(v[0], at POINT_TAIL EPILOGUE_ARGUMENTS), out[at]);
#endif
  }
}
