// operators.cuh - the expression operators in fp32, as kernels compute them.
// One name for each operator of the grammar, op_<name>; common/checked.cuh has
// the same names over (value, error) pairs, so that a generated expression
// serves both.  NaN passes through every operator.
typedef float value_t;
template <typename T>
DEVICE value_t read(T element) { return to_float(element); }
DEVICE value_t constant(float v) { return v; }
DEVICE value_t zero() { return 0.0f; }

DEVICE float op_copy(float x) { return x; }
DEVICE float op_add(float x, float y) { return x + y; }
DEVICE float op_sub(float x, float y) { return x - y; }
DEVICE float op_mul(float x, float y) { return x * y; }
DEVICE float op_div(float x, float y) { return x / y; }
DEVICE float op_min(float x, float y) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
DEVICE float op_max(float x, float y) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
DEVICE float op_pow(float x, float y) { return powf(x, y); }
DEVICE float op_neg(float x) { return -x; }
DEVICE float op_abs(float x) { return fabsf(x); }
DEVICE float op_sqrt(float x) { return sqrtf(x); }
DEVICE float op_rsqrt(float x) { return 1.0f / sqrtf(x); }
DEVICE float op_reciprocal(float x) { return 1.0f / x; }
DEVICE float op_exp(float x) { return expf(x); }
DEVICE float op_log(float x) { return logf(x); }
DEVICE float op_tanh(float x) { return tanhf(x); }
DEVICE float op_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float op_erf(float x) { return erff(x); }
DEVICE float op_trunc(float x) { return truncf(x); }
DEVICE float op_relu(float x) { return op_max(x, 0.0f); }
DEVICE float op_gelu_erf(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
DEVICE float op_gelu_tanh(float x) {
  float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(u));
}
DEVICE float op_silu(float x) { return x / (1.0f + expf(-x)); }
DEVICE float op_clip(float x, float low, float high) {
  return op_min(op_max(x, low), high);
}
DEVICE float op_hardsigmoid(float x, float alpha, float beta) {
  return op_clip(alpha * x + beta, 0.0f, 1.0f);
}
DEVICE float op_hardswish(float x) {
  return x * op_hardsigmoid(x, 1.0f / 6.0f, 0.5f);
}
DEVICE float op_leaky_relu(float x, float slope) {
  return x < 0.0f ? slope * x : x;
}

// ---- the accumulators of the kinds
// TF32: only matters to checked.cuh's error.
template <bool TF32>
struct product_sum {
  float sum = 0.0f;
  METHOD void add(float x, float y) { sum = fmaf(x, y, sum); }
  METHOD float value() const { return sum; }
};
// OP: enum cuvil_pool_op (max, avg, avg_padded).
template <int OP>
struct window_pool {
  float sum = OP == 0 ? __int_as_float(0xff800000) : 0.0f;
  int count = 0;
  METHOD void add(float x) {
    sum = OP == 0 ? op_max(sum, x) : sum + x;
    count++;
  }
  METHOD float value(int window) const {
    // A window that lies in the padding altogether: -inf, and 0.
    return OP == 0 || count == 0 ? sum
                                 : sum / (float)(OP == 1 ? count : window);
  }
};
// OP: enum cuvil_reduce_op (sum, mean, max, min).
template <int OP>
struct reduction {
  float sum = OP == 2   ? __int_as_float(0xff800000)
              : OP == 3 ? __int_as_float(0x7f800000)
                        : 0.0f;
  METHOD void add(float x) {
    sum = OP == 2 ? op_max(sum, x) : OP == 3 ? op_min(sum, x) : sum + x;
  }
  METHOD float value(i64 count) const {
    return OP == 1 ? sum / (float)count : sum;
  }
};
