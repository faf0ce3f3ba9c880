// attention.cu - one block computes one query, by the definition: the scores
// twice, once for their maximum and once for the weights, a block of keys at a
// time; then each thread sums its own elements of the output over those keys.
// Any layout, stride and type; with checked.cuh the reference on the GPU.
//
// CAUSAL: 0, 1.  MASK_KIND: 0 none, 1 added, 2 keeps where it is true.
#ifdef CHECKED
#define OUT_POINTER double
#define BOUND_PARAMETER , double *bounds
#else
#define OUT_POINTER OUT_T
#define BOUND_PARAMETER
#endif
#if MASK_KIND
#define MASK_POINTER , const MASK_T *mask
#define MASK_VALUE mask[MASK_offset(MASK_COORDINATES MASK_ARGUMENTS)]
#else
#define MASK_POINTER
#define MASK_PARAMETERS
#endif

#ifdef CHECKED
typedef double real;
DEVICE real real_of(value_t v) { return v.value; }
DEVICE real larger(real a, real b) { return cuvil_plain_max(a, b); }
DEVICE value_t weight_of(value_t score, real largest) {
  return cuvil_checked_weight(score, largest);
}
// No weight has a negative error.
DEVICE value_t excluded() {
  value_t v;
  v.value = 0;
  v.error = -1;
  return v;
}
DEVICE bool is_excluded(value_t v) { return v.error < 0; }
struct attention_sum {
  cuvil_checked_attention row = cuvil_checked_attention_begin();
  METHOD void add(value_t weight, float v) {
    cuvil_checked_attention_add(&row, weight, v);
  }
  METHOD value_t value() const {
    return cuvil_checked_attention_value(&row, dtype_number((const IN0_T *)0),
                                         TF32);
  }
};
#else
typedef float real;
DEVICE real real_of(value_t v) { return v; }
DEVICE real larger(real a, real b) { return op_max(a, b); }
DEVICE value_t weight_of(value_t score, real largest) {
  return op_exp(score - largest);
}
// No weight is negative.
DEVICE value_t excluded() { return -1.0f; }
DEVICE bool is_excluded(value_t v) { return v < 0.0f; }
struct attention_sum {
  float sum = 0.0f, weights = 0.0f;
  bool any = false;
  METHOD void add(value_t weight, float v) {
    sum = fmaf(weight, v, sum);
    weights += weight;
    any = true;
  }
  METHOD value_t value() const { return any ? sum / weights : 0.0f; }
};
#endif

// False where the key is excluded.
DEVICE bool score(value_t &out, const IN0_T *q, const IN1_T *k MASK_POINTER,
                  int i_b, int i_hq, int i_hkv, int i_sq, int i_skv,
                  float scale EXTENT_PARAMETERS IN0_PARAMETERS IN1_PARAMETERS
                      MASK_PARAMETERS) {
#if CAUSAL
  if ((i64)i_skv > (i64)i_sq + e_skv - e_sq) return false;
#endif
#if MASK_KIND == 2
  if (to_float(MASK_VALUE) == 0.0f) return false;
#endif
  product_sum<TF32> sum;
  for (int i_d = 0; i_d < e_d; i_d++)
    sum.add(read(q[IN0_offset(IN0_COORDINATES IN0_ARGUMENTS)]),
            read(k[IN1_offset(IN1_COORDINATES IN1_ARGUMENTS)]));
  out = op_mul(sum.value(), constant(scale));
#if MASK_KIND == 1
  out = op_add(out, read(MASK_VALUE));
#endif
  return true;
}
#if MASK_KIND
#define SCORE(out)                                                 \
  score(out, q, k, mask, i_b, i_hq, i_hkv, i_sq, i_skv,            \
        scale EXTENT_ARGUMENTS IN0_ARGUMENTS IN1_ARGUMENTS MASK_ARGUMENTS)
#else
#define SCORE(out)                                \
  score(out, q, k, i_b, i_hq, i_hkv, i_sq, i_skv, \
        scale EXTENT_ARGUMENTS IN0_ARGUMENTS IN1_ARGUMENTS)
#endif
#define EXTENT_ARGUMENTS , e_b, e_hq, e_hkv, e_sq, e_skv, e_d, e_dv

extern "C" __global__ void __launch_bounds__(BLOCK)
    naive(const IN0_T *q, const IN1_T *k, const IN2_T *v MASK_POINTER,
          OUT_POINTER *out BOUND_PARAMETER,
          float scale EXTENT_PARAMETERS IN0_PARAMETERS IN1_PARAMETERS
              IN2_PARAMETERS MASK_PARAMETERS OUT_PARAMETERS) {
  __shared__ value_t weights[BLOCK];
  dependency_wait();
  const i64 rows = (i64)e_b * e_hq * e_sq;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const int i_sq = (int)(row % e_sq);
    const int i_hq = (int)(row / e_sq % e_hq);
    const int i_b = (int)(row / e_sq / e_hq);
    const int i_hkv = i_hq / (e_hq / e_hkv);
    real largest = real_of(op_neg(op_reciprocal(zero())));  // -inf
    for (int i_skv = threadIdx.x; i_skv < e_skv; i_skv += BLOCK) {
      value_t s;
      if (SCORE(s)) largest = larger(largest, real_of(s));
    }
    // The largest of all, through what the weights will use.
    real *kept = (real *)weights;
    kept[threadIdx.x] = largest;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
      if (threadIdx.x < half)
        kept[threadIdx.x] = larger(kept[threadIdx.x], kept[threadIdx.x + half]);
      __syncthreads();
    }
    largest = kept[0];
    for (int first = 0; first < e_dv; first += BLOCK) {
      const int i_dv = first + (int)threadIdx.x;
      attention_sum sum;
      for (int base = 0; base < e_skv; base += BLOCK) {
        __syncthreads();
        {
          const int i_skv = base + (int)threadIdx.x;
          value_t s;
          weights[threadIdx.x] = i_skv < e_skv && SCORE(s)
                                     ? weight_of(s, largest)
                                     : excluded();
        }
        __syncthreads();
        if (i_dv >= e_dv) continue;
        for (int j = 0; j < BLOCK && base + j < e_skv; j++) {
          const int i_skv = base + j;
          if (!is_excluded(weights[j]))
            sum.add(weights[j],
                    to_float(v[IN2_offset(IN2_COORDINATES IN2_ARGUMENTS)]));
        }
      }
      if (i_dv >= e_dv) continue;
      const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
#ifdef CHECKED
      store_checked<OUT_T>(sum.value(), out, bounds, at);
#else
      from_float(sum.value(), out[at]);
#endif
    }
    __syncthreads();
  }
}
