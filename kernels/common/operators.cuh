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
