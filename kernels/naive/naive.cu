// naive.cu - one thread computes one output, by the definition.  Any layout,
// stride, limit and type.  With operators.cuh it is a family that verifies
// itself against the others; with checked.cuh it computes values and error
// bounds in fp64, and is the reference on the GPU.
//
// KIND: 0 gemm, 1 conv, 2 pool, 3 reduce, 4 pointwise, 7 gather; attention and
// norm have files of their own.  A gemm's batch is one more dimension.
#ifdef CHECKED
#define OUT_POINTER double
#define BOUND_PARAMETER , double *bounds
#else
#define OUT_POINTER OUT_T
#define BOUND_PARAMETER
#endif
#if KIND <= 1 || KIND == 7
#define INPUT_PARAMETERS const IN0_T *in0, const IN1_T *in1,
#define ACCESS_PARAMETERS IN0_PARAMETERS IN1_PARAMETERS OUT_PARAMETERS
#elif KIND <= 3
#define INPUT_PARAMETERS const IN0_T *in0,
#define ACCESS_PARAMETERS IN0_PARAMETERS OUT_PARAMETERS
#else
#define INPUT_PARAMETERS
#define ACCESS_PARAMETERS OUT_PARAMETERS
#endif

#if KIND != 4
DEVICE value_t read_in0(const IN0_T *p, i64 at, bool inside) {
  return inside ? read(p[at]) : zero();
}
#define READ_IN0                                             \
  read_in0(in0, IN0_offset(IN0_COORDINATES IN0_ARGUMENTS), \
           IN0_inside(IN0_COORDINATES IN0_ARGUMENTS))
#endif
#if KIND <= 1
DEVICE value_t read_in1(const IN1_T *p, i64 at, bool inside) {
  return inside ? read(p[at]) : zero();
}
#define READ_IN1                                             \
  read_in1(in1, IN1_offset(IN1_COORDINATES IN1_ARGUMENTS), \
           IN1_inside(IN1_COORDINATES IN1_ARGUMENTS))
#endif

extern "C" __global__ void __launch_bounds__(BLOCK)
    naive(INPUT_PARAMETERS OUT_POINTER *out BOUND_PARAMETER EXTENT_PARAMETERS
              ACCESS_PARAMETERS EPILOGUE_PARAMETERS) {
  dependency_wait();
  const i64 points = POINTS;
  const i64 step = (i64)gridDim.x * BLOCK;
  for (i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x; i < points; i += step) {
    POINT_COORDINATES(i)
    const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
#if KIND == 0
    product_sum<TF32> sum;
    for (int i_k = 0; i_k < e_k; i_k++) sum.add(READ_IN0, READ_IN1);
    const value_t acc = sum.value();
#elif KIND == 1
    product_sum<TF32> sum;
    const int of_group = e_c / GROUP;
    const int first = i_k / (e_k / GROUP) * of_group;
    for (int i_r = 0; i_r < e_r; i_r++) {
      const int i_h = i_p * STRIDE_H - PAD_TOP + i_r * DILATION_H;
      if (i_h < 0 || i_h >= e_h) continue;
      for (int i_s = 0; i_s < e_s; i_s++) {
        const int i_w = i_q * STRIDE_W - PAD_LEFT + i_s * DILATION_W;
        if (i_w < 0 || i_w >= e_w) continue;
        for (int j = 0; j < of_group; j++) {
          value_t x, w;
          {
            const int i_c = first + j;
            x = READ_IN0;
          }
          {
            const int i_c = j;
            w = READ_IN1;
          }
          sum.add(x, w);
        }
      }
    }
    const value_t acc = sum.value();
#elif KIND == 2
    window_pool<POOL_OP> pool;
    for (int i_r = 0; i_r < e_r; i_r++) {
      const int i_h = i_p * STRIDE_H - PAD_TOP + i_r * DILATION_H;
      if (i_h < 0 || i_h >= e_h) continue;
      for (int i_s = 0; i_s < e_s; i_s++) {
        const int i_w = i_q * STRIDE_W - PAD_LEFT + i_s * DILATION_W;
        if (i_w < 0 || i_w >= e_w) continue;
        pool.add(READ_IN0);
      }
    }
    const value_t acc = pool.value(
        window_counted(i_p * STRIDE_H - PAD_TOP, e_r, DILATION_H,
                       e_h + PAD_BOTTOM - OVER_H) *
        window_counted(i_q * STRIDE_W - PAD_LEFT, e_s, DILATION_W,
                       e_w + PAD_RIGHT - OVER_W));
#elif KIND == 3
    reduction<REDUCE_OP> sum;
    REDUCED_LOOPS sum.add(READ_IN0);
    const value_t acc = sum.value(REDUCED);
#elif KIND == 7
    i64 row = in1[IN1_offset(IN1_COORDINATES IN1_ARGUMENTS)];
    if (row < 0) row += e_v;
    const int i_v = row < 0 ? 0 : row < e_v ? (int)row : e_v - 1;
    const value_t acc = READ_IN0;
#else
    const value_t acc = zero();
#endif
    const value_t result = epilogue(acc, at POINT_TAIL EPILOGUE_ARGUMENTS);
#ifdef CHECKED
    store_checked<OUT_T>(result, out, bounds, at);
#else
    from_float(result, out[at]);
#endif
  }
}
