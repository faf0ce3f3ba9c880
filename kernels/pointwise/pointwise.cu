// pointwise.cu - a thread computes ITEMS runs of VEC neighbours of the output.
// Runs of one item are spread over the block, so that a warp's accesses are
// adjacent.
extern "C" __global__ void __launch_bounds__(BLOCK)
    pointwise(OUT_T *out EXTENT_PARAMETERS OUT_PARAMETERS EPILOGUE_PARAMETERS) {
  dependents_launch();
  dependency_wait();
  const i64 points = POINTS;
  const i64 first = (i64)blockIdx.x * (BLOCK * VEC * ITEMS) + threadIdx.x * VEC;
#pragma unroll
  for (int item = 0; item < ITEMS; item++) {
    const i64 start = first + (i64)item * (BLOCK * VEC);
#if VEC > 1
    if (start + VEC <= points) {
      POINT_COORDINATES((index_t)start)
#if PACKED
      const i64 at = start;  // the point's number is its offset
#else
      const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
#endif
      float v[VEC];
#pragma unroll
      for (int j = 0; j < VEC; j++) v[j] = 0.0f;
      epilogue_vector<VEC>(v, at POINT_TAIL EPILOGUE_ARGUMENTS);
      store_vector<VEC, VEC>(out + at, v);
      continue;
    }
#endif
    for (int j = 0; j < VEC && start + j < points; j++) {
      POINT_COORDINATES((index_t)(start + j))
      const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
      from_float(epilogue(0.0f, at POINT_TAIL EPILOGUE_ARGUMENTS), out[at]);
    }
  }
}
