// norm_row.cu - rows of n elements normalised by statistics of their own.
//
// TPR threads share a row, ROWS rows a block.  ITEMS > 0: a thread keeps its
// ITEMS runs of VEC elements in registers between the passes, so that memory is
// read once.  ITEMS 0: rows of any length; each pass reads the row again.
// Columns beyond the row and rows beyond the last are read at a place inside
// and not used: the code has no branches before its stores, so that all loads
// are under way before the first is waited for.  Parts are joined in a fixed
// order: the same input gives the same bits.
//
// NORM_OP: enum cuvil_norm_op (layer, rms, softmax, log_softmax).
enum { WARPS = TPR / 32 };

struct join_sum {
  DEVICE float join(float x, float y) { return x + y; }
};
struct join_max {
  DEVICE float join(float x, float y) { return op_max(x, y); }
};

// Of all threads of the row, in every thread of it.  partial: one float for
// every warp of the block, not used by a neighbouring call.
template <typename JOIN>
DEVICE float of_row(float v, float *partial) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    v = JOIN::join(v, __shfl_xor_sync(0xffffffffu, v, mask));
#if TPR > 32
  const int first = threadIdx.x / TPR * WARPS;
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  v = partial[first];
#pragma unroll
  for (int w = 1; w < WARPS; w++) v = JOIN::join(v, partial[first + w]);
#endif
  return v;
}

// One run of a row: where it starts, and whether it is in the row.
#if ITEMS
#define RUNS                                  \
  _Pragma("unroll") for (int item = 0; item < ITEMS; item++)
#define RUN_START ((item * TPR + lane) * VEC)
#else
#define RUNS                                                             \
  _Pragma("unroll 4") for (int start_ = lane * VEC; start_ < e_n; \
                           start_ += TPR * VEC)
#define RUN_START start_
#endif
#define RUN                                 \
  const int start = RUN_START;              \
  const bool inside = start < e_n;          \
  const int i_n = inside ? start : e_n - VEC; \
  const i64 at = OUT_offset(OUT_COORDINATES OUT_ARGUMENTS);
#if ITEMS
#define RUN_VALUES \
  RUN              \
  float(&v)[VEC] = kept[item];
#else
// Read again, without the stores of the prologue.
#define RUN_VALUES \
  RUN              \
  float v[VEC];    \
  LOAD(v, false)
#endif
#define LOAD(v, store)                                                        \
  {                                                                           \
    prologue_sides<VEC> sides;                                                \
    _Pragma("unroll") for (int j = 0; j < VEC; j++) v[j] = 0.0f;              \
    if (IN_inside(IN_COORDINATES IN_ARGUMENTS))                               \
      load_vector<VEC, IN_ALIGNED>(in + IN_offset(IN_COORDINATES IN_ARGUMENTS), \
                                   v);                                        \
    sides.load_weights(at POINT_TAIL EPILOGUE_ARGUMENTS);                     \
    sides.load_others(at POINT_TAIL EPILOGUE_ARGUMENTS);                      \
    prologue_apply<VEC>(v, sides, (store) && inside && live,                  \
                        at POINT_TAIL EPILOGUE_ARGUMENTS);                    \
  }

extern "C" __global__ void __launch_bounds__(TPR *ROWS)
    norm_row(OUT_T *out, const IN_T *in EXTENT_PARAMETERS OUT_PARAMETERS
                 IN_PARAMETERS,
             float eps EPILOGUE_PARAMETERS) {
#if TPR > 32
  __shared__ float partial[NORM_OP == 1 ? 1 : 2][WARPS * ROWS];
#else
  float *partial[2] = {0, 0};
#endif
  const int lane = threadIdx.x % TPR;
  const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / TPR;
  const bool live = row < e_m;
  const int i_m = live ? (int)row : e_m - 1;
  dependents_launch();
#if AHEAD
  // Constants are there before the kernel in front has finished.
  epilogue_sides<VEC> sides[ITEMS];
  RUNS {
    RUN
    sides[item].load_weights(at POINT_TAIL EPILOGUE_ARGUMENTS);
  }
#endif
  dependency_wait();
#if ITEMS
  float kept[ITEMS][VEC];
  RUNS {
    RUN
    LOAD(kept[item], true)
  }
#endif
#if AHEAD
  RUNS {
    RUN
    sides[item].load_others(at POINT_TAIL EPILOGUE_ARGUMENTS);
  }
#endif

  // ---- statistics, and the value of an element by them
#if NORM_OP == 0
  float sum = 0.0f;
  RUNS {
    RUN_VALUES
#pragma unroll
    for (int j = 0; j < VEC; j++) sum += inside ? v[j] : 0.0f;
  }
  const float mean = of_row<join_sum>(sum, partial[0]) / (float)e_n;
  float squares = 0.0f;
  RUNS {
    RUN_VALUES
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      const float d = v[j] - mean;
      squares += inside ? d * d : 0.0f;
    }
  }
  const float variance = of_row<join_sum>(squares, partial[1]) / (float)e_n;
  const float scale = rsqrtf(variance + eps);
#define NORMAL(x) (((x)-mean) * scale)
#elif NORM_OP == 1
  float squares = 0.0f;
  RUNS {
    RUN_VALUES
#pragma unroll
    for (int j = 0; j < VEC; j++) squares += inside ? v[j] * v[j] : 0.0f;
  }
  const float scale =
      rsqrtf(of_row<join_sum>(squares, partial[0]) / (float)e_n + eps);
#define NORMAL(x) ((x) * scale)
#else
  float largest = __int_as_float(0xff800000);
  RUNS {
    RUN_VALUES
#pragma unroll
    for (int j = 0; j < VEC; j++)
      largest = inside ? op_max(largest, v[j]) : largest;
  }
  largest = of_row<join_max>(largest, partial[0]);
  float sum = 0.0f;
  RUNS {
    RUN_VALUES
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      const float e = __expf(v[j] - largest);
      sum += inside ? e : 0.0f;
#if ITEMS && NORM_OP == 2
      v[j] = e;
#endif
    }
  }
  sum = of_row<join_sum>(sum, partial[1]);
#if NORM_OP == 3
  const float least = logf(sum);
#define NORMAL(x) (((x)-largest) - least)
#elif ITEMS
  const float scale = 1.0f / sum;
#define NORMAL(x) ((x) * scale)
#else
  const float scale = 1.0f / sum;
#define NORMAL(x) (__expf((x)-largest) * scale)
#endif
#endif

  // ---- what leaves
  RUNS {
    RUN
#if ITEMS
    float(&v)[VEC] = kept[item];
#else
    float v[VEC];
    LOAD(v, true)
#endif
#pragma unroll
    for (int j = 0; j < VEC; j++) v[j] = NORMAL(v[j]);
#if AHEAD
    epilogue_sides<VEC> &side = sides[item];
#else
    epilogue_sides<VEC> side;
    side.load_weights(at POINT_TAIL EPILOGUE_ARGUMENTS);
    side.load_others(at POINT_TAIL EPILOGUE_ARGUMENTS);
#endif
    epilogue_apply<VEC>(v, side, inside && live,
                        at POINT_TAIL EPILOGUE_ARGUMENTS);
    if (inside && live) store_vector<VEC, VEC>(out + at, v);
  }
}
