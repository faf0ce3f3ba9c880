// reduce.cu - a block computes a strip of outputs; its threads share the
// reduced elements and join their parts in shared memory, in a fixed order.
//
// COLUMNS 1: the input's fastest dimension is kept.  LANES threads lie along
// it, VEC outputs each; PARTS threads share the reduced elements.
// COLUMNS 0: any other.  LANES threads share the reduced elements of one
// output, in runs of VEC along the input's fastest dimension; PARTS outputs a
// block.
//
// KEPT_COORDINATES(i): coordinates of the i-th output, the input's fastest
// kept dimension fastest.
DEVICE float join(float x, float y) {
  return REDUCE_OP == 2 ? op_max(x, y) : REDUCE_OP == 3 ? op_min(x, y) : x + y;
}

extern "C" __global__ void __launch_bounds__(LANES *PARTS)
    reduce(OUT_T *out, const IN_T *in EXTENT_PARAMETERS OUT_PARAMETERS
               IN_PARAMETERS EPILOGUE_PARAMETERS) {
  const int lane = threadIdx.x % LANES;
  const int part = threadIdx.x / LANES;
  const i64 points = POINTS;
  const i64 reduced = REDUCED;
  reduction<REDUCE_OP> sum[VEC];
  dependents_launch();
  dependency_wait();
#if COLUMNS
  __shared__ float parts[PARTS][LANES * VEC + 1];
  const i64 start = ((i64)blockIdx.x * LANES + lane) * VEC;
  if (start < points) {
    KEPT_COORDINATES((index_t)start)
#pragma unroll UNROLL
    for (i64 i = part; i < reduced; i += PARTS) {
      REDUCED_COORDINATES((index_t)i)
      float x[VEC];
#pragma unroll
      for (int j = 0; j < VEC; j++) x[j] = 0.0f;
      if (IN_inside(IN_COORDINATES IN_ARGUMENTS))
        load_vector<VEC, IN_ALIGNED>(
            in + IN_offset(IN_COORDINATES IN_ARGUMENTS), x);
#pragma unroll
      for (int j = 0; j < VEC; j++) sum[j].add(x[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < VEC; j++) parts[part][lane * VEC + j] = sum[j].sum;
  __syncthreads();
  // One thread an output: the parts in order.
  for (int o = threadIdx.x; o < LANES * VEC; o += LANES * PARTS) {
    const i64 number = (i64)blockIdx.x * (LANES * VEC) + o;
    if (number >= points) break;
    reduction<REDUCE_OP> whole;
#pragma unroll 8
    for (int p = 0; p < PARTS; p++) whole.sum = join(whole.sum, parts[p][o]);
    KEPT_COORDINATES((index_t)number)
    const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
    from_float(
        epilogue(whole.value(reduced), at POINT_TAIL EPILOGUE_ARGUMENTS),
        out[at]);
  }
#else
  __shared__ float parts[PARTS][LANES + 1];
  const i64 number = (i64)blockIdx.x * PARTS + part;
  if (number < points) {
    KEPT_COORDINATES((index_t)number)
#pragma unroll UNROLL
    for (i64 i = (i64)lane * VEC; i < reduced; i += LANES * VEC) {
      REDUCED_COORDINATES((index_t)i)
      float x[VEC];
#pragma unroll
      for (int j = 0; j < VEC; j++) x[j] = 0.0f;
      if (IN_inside(IN_COORDINATES IN_ARGUMENTS))
        load_vector<VEC, IN_ALIGNED>(
            in + IN_offset(IN_COORDINATES IN_ARGUMENTS), x);
#pragma unroll
      for (int j = 0; j < VEC; j++) sum[j].add(x[j]);
    }
  }
#pragma unroll
  for (int j = 1; j < VEC; j++) sum[0].sum = join(sum[0].sum, sum[j].sum);
  parts[part][lane] = sum[0].sum;
  __syncthreads();
#pragma unroll
  for (int half = LANES / 2; half > 0; half /= 2) {
    if (lane < half)
      parts[part][lane] = join(parts[part][lane], parts[part][lane + half]);
    __syncthreads();
  }
  if (lane == 0 && number < points) {
    reduction<REDUCE_OP> whole;
    whole.sum = parts[part][0];
    KEPT_COORDINATES((index_t)number)
    const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
    from_float(
        epilogue(whole.value(reduced), at POINT_TAIL EPILOGUE_ARGUMENTS),
        out[at]);
  }
#endif
}
