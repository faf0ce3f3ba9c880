// checked.cuh - the operators over (value, error) pairs in fp64, under the
// names that operators.cuh gives them in fp32.  The rules themselves stand in
// problem/checked.h, which the CPU reference compiles as C; it comes before.
typedef cuvil_checked value_t;
DEVICE value_t constant(float v) {
  value_t c;
  c.value = v;
  c.error = 0;
  return c;
}
// Operands are converted to fp32 when read, whatever their type.
template <typename T>
DEVICE value_t read(T element) {
  return constant(to_float(element));
}
DEVICE value_t zero() { return constant(0.0f); }

#define UNARY(name) \
  DEVICE value_t op_##name(value_t x) { return cuvil_checked_##name(x); }
#define BINARY(name)                              \
  DEVICE value_t op_##name(value_t x, value_t y) { \
    return cuvil_checked_##name(x, y);             \
  }
#define TERNARY(name)                                        \
  DEVICE value_t op_##name(value_t x, value_t y, value_t z) { \
    return cuvil_checked_##name(x, y, z);                     \
  }
UNARY(copy)
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(min)
BINARY(max)
BINARY(pow)
UNARY(neg)
UNARY(abs)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(reciprocal)
UNARY(exp)
UNARY(log)
UNARY(tanh)
UNARY(sigmoid)
UNARY(erf)
UNARY(relu)
UNARY(gelu_erf)
UNARY(gelu_tanh)
UNARY(silu)
UNARY(hardswish)
UNARY(trunc)
TERNARY(hardsigmoid)
BINARY(leaky_relu)
TERNARY(clip)
#undef UNARY
#undef BINARY
#undef TERNARY

// ---- the accumulators of the kinds
template <bool TF32>
struct product_sum {
  double sum = 0, magnitude = 0, length = 0;
  METHOD void add(value_t x, value_t y) {
    sum += x.value * y.value;
    magnitude += fabs(x.value * y.value);
    length += 1;
  }
  METHOD value_t value() const {
    return cuvil_checked_sum(sum, magnitude, length, TF32);
  }
};
template <int OP>
struct window_pool {
  double sum = OP == 0 ? -CUVIL_CHECKED_INF : 0, magnitude = 0, length = 0;
  METHOD void add(value_t x) {
    sum = OP == 0 ? cuvil_plain_max(sum, x.value) : sum + x.value;
    magnitude += fabs(x.value);
    length += 1;
  }
  METHOD value_t value(int window) const {
    if (OP == 0) return cuvil_checked_make(sum, 0);
    return cuvil_checked_mean(sum, magnitude, length,
                              OP == 1 ? length : (double)window);
  }
};
template <int OP>
struct reduction {
  double sum = OP == 2   ? -CUVIL_CHECKED_INF
               : OP == 3 ? CUVIL_CHECKED_INF
                         : 0;
  double magnitude = 0;
  METHOD void add(value_t x) {
    sum = OP == 2   ? cuvil_plain_max(sum, x.value)
          : OP == 3 ? cuvil_plain_min(sum, x.value)
                    : sum + x.value;
    magnitude += fabs(x.value);
  }
  METHOD value_t value(i64 count) const {
    if (OP >= 2) return cuvil_checked_make(sum, 0);
    if (OP == 1)
      return cuvil_checked_mean(sum, magnitude, (double)count, (double)count);
    return cuvil_checked_sum(sum, magnitude, (double)count, false);
  }
};

// ---- what is stored: value and bound in f64, in terms of the output's type
DEVICE int dtype_number(const float *) { return 1; }
DEVICE int dtype_number(const f16 *) { return 2; }
DEVICE int dtype_number(const bf16 *) { return 3; }
DEVICE int dtype_number(const double *) { return 4; }
DEVICE int dtype_number(const i8 *) { return 5; }
DEVICE int dtype_number(const u8 *) { return 6; }
DEVICE int dtype_number(const i32 *) { return 7; }
DEVICE int dtype_number(const i64 *) { return 8; }
DEVICE int dtype_number(const bool8 *) { return 9; }
template <typename T>
DEVICE void store_checked(value_t v, double *values, double *bounds, i64 at) {
  const value_t stored = cuvil_checked_stored(dtype_number((const T *)0), v);
  values[at] = stored.value;
  bounds[at] = stored.error;
}
