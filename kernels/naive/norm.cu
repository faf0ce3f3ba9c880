// norm.cu - one thread computes one row, by the definition, in three passes
// over it.  Any layout, stride and type; with checked.cuh the reference on the
// GPU.  The prologue is evaluated in every pass, and its extra outputs are
// stored in each: the same values.
//
// NORM_OP: 0 layer, 1 rms, 2 softmax, 3 log_softmax.
#ifdef CHECKED
#define OUT_POINTER double
#define BOUND_PARAMETER , double *bounds
struct row_norm {
  cuvil_checked_norm row;
  METHOD row_norm(int n) { row = cuvil_checked_norm_begin(NORM_OP, n); }
  METHOD void first(value_t v) { cuvil_checked_norm_first(&row, v); }
  METHOD void centre() { cuvil_checked_norm_centre(&row); }
  METHOD void second(value_t v) { cuvil_checked_norm_second(&row, v); }
  METHOD void scale(float eps) { cuvil_checked_norm_scale(&row, eps); }
  METHOD value_t value(value_t v) const {
    return cuvil_checked_norm_value(&row, v);
  }
};
#else
#define OUT_POINTER OUT_T
#define BOUND_PARAMETER
struct row_norm {
  float count, sum, middle, squares, factor;
  METHOD row_norm(int n) {
    count = (float)n;
    sum = NORM_OP >= 2 ? __int_as_float(0xff800000) : 0.0f;
    middle = squares = factor = 0.0f;
  }
  METHOD void first(float v) { sum = NORM_OP >= 2 ? op_max(sum, v) : sum + v; }
  METHOD void centre() {
    middle = NORM_OP >= 2 ? sum : NORM_OP == 0 ? sum / count : 0.0f;
  }
  METHOD void second(float v) {
    const float d = v - middle;
    squares = NORM_OP >= 2 ? squares + op_exp(d) : fmaf(d, d, squares);
  }
  METHOD void scale(float eps) {
    factor = NORM_OP == 2   ? 1.0f / squares
             : NORM_OP == 3 ? op_log(squares)
                            : op_rsqrt(squares / count + eps);
  }
  METHOD float value(float v) const {
    const float d = v - middle;
    return NORM_OP == 2 ? op_exp(d) * factor : NORM_OP == 3 ? d - factor
                                                            : d * factor;
  }
};
#endif

#define EACH                                                        \
  for (int i_n = 0; i_n < e_n; i_n++)
#define VALUE                                                       \
  prologue(read(in0[IN0_offset(IN0_COORDINATES IN0_ARGUMENTS)]),    \
           OUT_offset(POINT OUT_ARGUMENTS) POINT_TAIL EPILOGUE_ARGUMENTS)

extern "C" __global__ void __launch_bounds__(BLOCK)
    naive(const IN0_T *in0, OUT_POINTER *out BOUND_PARAMETER,
          float eps EXTENT_PARAMETERS IN0_PARAMETERS OUT_PARAMETERS
              EPILOGUE_PARAMETERS) {
  dependency_wait();
  const int step = (int)gridDim.x * BLOCK;
  for (i64 row = (i64)blockIdx.x * BLOCK + threadIdx.x; row < e_m;
       row += step) {
    const int i_m = (int)row;
    row_norm norm(e_n);
    EACH norm.first(VALUE);
    norm.centre();
    EACH norm.second(VALUE);
    norm.scale(eps);
    EACH {
      const i64 at = OUT_offset(POINT OUT_ARGUMENTS);
      const value_t result =
          epilogue(norm.value(VALUE), at POINT_TAIL EPILOGUE_ARGUMENTS);
#ifdef CHECKED
      store_checked<OUT_T>(result, out, bounds, at);
#else
      from_float(result, out[at]);
#endif
    }
  }
}
