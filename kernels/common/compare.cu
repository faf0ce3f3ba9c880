// compare.cu - an output against values and bounds, two kernels: each block
// folds its share into one record, then one block folds the records.  No
// atomics: the answer is the same every time.
struct record {
  i64 elements, violations, nan_count, unwritten, stray, worst_index;
  double worst_ratio, worst_got, worst_expected, sum_diff2, sum_ref2;
};

DEVICE void clear(record &r) {
  r.elements = r.violations = r.nan_count = r.unwritten = r.stray = 0;
  r.worst_index = -1;
  r.worst_ratio = r.worst_got = r.worst_expected = 0;
  r.sum_diff2 = r.sum_ref2 = 0;
}
DEVICE void fold(record &r, const record &o) {
  r.elements += o.elements;
  r.violations += o.violations;
  r.nan_count += o.nan_count;
  r.unwritten += o.unwritten;
  r.stray += o.stray;
  r.sum_diff2 += o.sum_diff2;
  r.sum_ref2 += o.sum_ref2;
  const bool worse =
      o.worst_index >= 0 &&
      (r.worst_index < 0 || o.worst_ratio > r.worst_ratio ||
       (o.worst_ratio == r.worst_ratio && o.worst_index < r.worst_index));
  if (worse) {
    r.worst_index = o.worst_index;
    r.worst_ratio = o.worst_ratio;
    r.worst_got = o.worst_got;
    r.worst_expected = o.worst_expected;
  }
}
DEVICE void fold_block(record &mine, record *kept) {
  kept[threadIdx.x] = mine;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) fold(kept[threadIdx.x], kept[threadIdx.x + half]);
    __syncthreads();
  }
}
DEVICE double to_double(float v) { return v; }
DEVICE double to_double(double v) { return v; }
DEVICE double to_double(f16 v) { return to_float(v); }
DEVICE double to_double(bf16 v) { return to_float(v); }
DEVICE double to_double(i8 v) { return v; }
DEVICE double to_double(u8 v) { return v; }
DEVICE double to_double(i32 v) { return v; }
DEVICE double to_double(i64 v) { return (double)v; }
DEVICE double to_double(bool8 v) { return v.bits != 0; }
DEVICE bool is_nan(double v) { return v != v; }
DEVICE bool is_finite(double v) { return v - v == 0; }

DEVICE void look(record &r, i64 i, const T *got, double expected,
                 double bound) {
  const u8 *bytes = (const u8 *)&got[i];
  bool poison = true;
#pragma unroll
  for (int b = 0; b < sizeof(T); b++) poison = poison && bytes[b] == 0xff;
  if (is_nan(bound)) {
    r.stray += !poison;
    return;
  }
  const double value = to_double(got[i]);
  double ratio;
  if (bound == __longlong_as_double(0x7ff0000000000000ll)) {
    // Anything may come out here; but something must have been written.
    ratio = poison && is_nan(value) ? bound : 0;
  } else if (is_nan(expected) || is_nan(value)) {
    ratio = is_nan(expected) && is_nan(value) && !poison
                ? 0
                : __longlong_as_double(0x7ff0000000000000ll);
  } else if (value == expected) {
    ratio = 0;
  } else {
    const double error = fabs(value - expected);
    ratio = bound > 0 ? error / bound
                      : __longlong_as_double(0x7ff0000000000000ll);
    // Infinite error within an infinite bound.
    if (is_nan(ratio)) ratio = 0;
  }
  r.elements++;
  if (ratio > 1) {
    r.violations++;
    r.unwritten += poison;
    r.nan_count += is_nan(value) && !poison;
  }
  if (r.worst_index < 0 || ratio > r.worst_ratio) {
    r.worst_index = i;
    r.worst_ratio = ratio;
    r.worst_got = value;
    r.worst_expected = expected;
  }
  if (is_finite(value) && is_finite(expected)) {
    r.sum_diff2 += (value - expected) * (value - expected);
    r.sum_ref2 += expected * expected;
  } else if (ratio > 1) {
    // One NaN is no small difference.
    r.sum_diff2 = __longlong_as_double(0x7ff0000000000000ll);
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    compare(const T *got, const double *values, const double *bounds,
            record *records, i64 elements) {
  __shared__ record kept[BLOCK];
  record mine;
  clear(mine);
  const i64 step = (i64)gridDim.x * BLOCK;
  for (i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x; i < elements; i += step)
    look(mine, i, got, values[i], bounds[i]);
  fold_block(mine, kept);
  if (threadIdx.x == 0) records[blockIdx.x] = kept[0];
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    collect(const record *records, int count, record *result) {
  __shared__ record kept[BLOCK];
  record mine;
  clear(mine);
  for (int i = threadIdx.x; i < count; i += BLOCK) fold(mine, records[i]);
  fold_block(mine, kept);
  if (threadIdx.x == 0) *result = kept[0];
}
