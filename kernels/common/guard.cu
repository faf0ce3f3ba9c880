// guard.cu - counts bytes that are not what they were: against a copy, or
// against one value everywhere.
extern "C" __global__ void __launch_bounds__(256)
    guard_copy(const u8 *now, const u8 *before, i64 bytes, u64 *changed) {
  const i64 step = (i64)gridDim.x * 256;
  u64 mine = 0;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < bytes; i += step)
    mine += now[i] != before[i];
  if (mine) atomicAdd(changed, mine);
}

extern "C" __global__ void __launch_bounds__(256)
    guard_value(const u8 *now, i64 bytes, int value, u64 *changed) {
  const i64 step = (i64)gridDim.x * 256;
  u64 mine = 0;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < bytes; i += step)
    mine += now[i] != (u8)value;
  if (mine) atomicAdd(changed, mine);
}
