// gather.cu - rows of a table by index; a thread moves ITEMS runs of VEC
// neighbours.  The index of a row is read by every thread of it: one address a
// warp.  What does not wait for the index (side operands) is read beside it.
extern "C" __global__ void __launch_bounds__(BLOCK)
    gather(OUT_T *out, const TABLE_T *table,
           const INDEX_T *index EXTENT_PARAMETERS OUT_PARAMETERS
               TABLE_PARAMETERS INDEX_PARAMETERS EPILOGUE_PARAMETERS) {
  dependents_launch();
  dependency_wait();
  const int runs = e_n / VEC;
  const i64 total = (i64)e_m * runs;
  const i64 first = (i64)blockIdx.x * (BLOCK * ITEMS) + threadIdx.x;
#pragma unroll
  for (int item = 0; item < ITEMS; item++) {
    const i64 number = first + item * BLOCK;
    if (number >= total) return;
    const int i_m = (int)((index_t)number / runs);
    const int i_n = (int)((index_t)number % runs) * VEC;
    i64 row = (i64)index[INDEX_offset(INDEX_COORDINATES INDEX_ARGUMENTS)];
    if (row < 0) row += e_v;
    row = row < 0 ? 0 : row < e_v ? row : e_v - 1;
    const int i_v = (int)row;
    const i64 at = OUT_offset(OUT_COORDINATES OUT_ARGUMENTS);
    float v[VEC];
#pragma unroll
    for (int j = 0; j < VEC; j++) v[j] = 0.0f;
    if (TABLE_inside(TABLE_COORDINATES TABLE_ARGUMENTS))
      load_vector<VEC, TABLE_ALIGNED>(
          table + TABLE_offset(TABLE_COORDINATES TABLE_ARGUMENTS), v);
    epilogue_vector<VEC>(v, at POINT_TAIL EPILOGUE_ARGUMENTS);
    store_vector<VEC, VEC>(out + at, v);
  }
}
