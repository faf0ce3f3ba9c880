// transpose.cu - one side input (IN) in another order than the output (OUT).
// f is the output's fastest dimension, g the input's.
//
// PLANES 1: f is short (F values, a power of two).  A thread reads PIXELS
// neighbours along g from each of the F planes and writes PIXELS runs of F.
// PLANES 0: a block moves a TILE x TILE tile through shared memory, reading
// along g and writing along f.
#if PLANES
extern "C" __global__ void __launch_bounds__(BLOCK)
    transpose(OUT_T *out, const IN_T *in EXTENT_PARAMETERS OUT_PARAMETERS
                  IN_PARAMETERS EPILOGUE_PARAMETERS) {
  dependents_launch();
  dependency_wait();
  const int runs = G_EXTENT / PIXELS;
  const i64 total = BATCHES * runs;
  const i64 number = (i64)blockIdx.x * BLOCK + threadIdx.x;
  if (number >= total) return;
  const int G_COORDINATE = (int)(number % runs) * PIXELS;
  BATCH_COORDINATES(number / runs)
  float plane[F][PIXELS];
#pragma unroll
  for (int f = 0; f < F; f++) {
    const int F_COORDINATE = f;
    if (IN_inside(IN_COORDINATES IN_ARGUMENTS)) {
      load_vector<PIXELS, IN_ALIGNED>(
          in + IN_offset(IN_COORDINATES IN_ARGUMENTS), plane[f]);
    } else {
#pragma unroll
      for (int j = 0; j < PIXELS; j++) plane[f][j] = 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < PIXELS; j++) {
    i64 at;
    float run[F];
#pragma unroll
    for (int f = F - 1; f >= 0; f--) {
      const int F_COORDINATE = f;
      FINISH_POINT(j)
      at = OUT_offset(OUT_COORDINATES OUT_ARGUMENTS);
      run[f] = finish(plane[f][j], at POINT_TAIL EPILOGUE_ARGUMENTS);
    }
    store_vector<F, F>(out + at, run);
  }
}
#else
extern "C" __global__ void __launch_bounds__(BLOCK)
    transpose(OUT_T *out, const IN_T *in EXTENT_PARAMETERS OUT_PARAMETERS
                  IN_PARAMETERS EPILOGUE_PARAMETERS) {
  __shared__ float tile[TILE][TILE + 1];
  dependents_launch();
  dependency_wait();
  const int lane = threadIdx.x % TILE;
  const int tiles_g = (G_EXTENT + TILE - 1) / TILE;
  const int tiles_f = (F_EXTENT + TILE - 1) / TILE;
  i64 number = blockIdx.x;
  const int first_g = (int)(number % tiles_g) * TILE;
  number /= tiles_g;
  const int first_f = (int)(number % tiles_f) * TILE;
  BATCH_COORDINATES(number / tiles_f)
#pragma unroll 4
  for (int row = threadIdx.x / TILE; row < TILE; row += BLOCK / TILE) {
    const int F_COORDINATE = first_f + row;
    const int G_COORDINATE = first_g + lane;
    if (F_COORDINATE < F_EXTENT && G_COORDINATE < G_EXTENT)
      tile[row][lane] =
          IN_inside(IN_COORDINATES IN_ARGUMENTS)
              ? to_float(in[IN_offset(IN_COORDINATES IN_ARGUMENTS)])
              : 0.0f;
  }
  __syncthreads();
#pragma unroll 4
  for (int row = threadIdx.x / TILE; row < TILE; row += BLOCK / TILE) {
    const int F_COORDINATE = first_f + lane;
    const int G_COORDINATE = first_g + row;
    if (F_COORDINATE < F_EXTENT && G_COORDINATE < G_EXTENT) {
      const i64 at = OUT_offset(OUT_COORDINATES OUT_ARGUMENTS);
      from_float(finish(tile[lane][row], at POINT_TAIL EPILOGUE_ARGUMENTS),
                 out[at]);
    }
  }
}
#endif
