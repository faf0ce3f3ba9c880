// simt_multiply.cuh - a stage multiplied without tensor cores: fp32 products
// and sums (FFMA), whatever the operands' type; takes mma_tensor.cuh's place.
//
// A warp is 8 lanes down times 4 across; a lane owns ROWS x COLUMNS sums.  A
// step is four k.  An operand with K contiguous gives a lane its four k of one
// row in one read; the eight lanes of a column read eight consecutive rows,
// which the swizzle keeps apart in the banks.  With K slow, a lane reads four
// neighbouring rows (columns) of one k; then it owns sums in groups of four
// neighbours.
constexpr int ROWS = WARP_M / 8, COLUMNS = WARP_N / 4;
constexpr bool FEW_SUMS = ROWS * COLUMNS <= 32;
constexpr int STEPS = TILE_K / 4 / SLICE_K;

DEVICE void read_four(float (&v)[4], u32 from, const float *) {
  load_shared(v, from);
}
template <typename T>
DEVICE void read_four(float (&v)[4], u32 from, const T *type) {
  u32 w[2];
  load_shared_words(w, from);
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = word_to_float(w[i / 2], i % 2, type);
}

// Row (column) `i` of the lane within the warp's part: `place` of `lanes`.
template <bool TRANSPOSED>
DEVICE int owned(int i, int place, int lanes) {
  return TRANSPOSED ? i / 4 * (4 * lanes) + place * 4 + i % 4
                    : i * lanes + place;
}

// COUNT rows (columns) by four k, from the panel of one operand.
template <bool TRANSPOSED, int COUNT, int ROW_BYTES>
DEVICE void read_operand(float (&v)[COUNT][4], u32 panel, int first, int place,
                         int lanes, int k) {
  if (TRANSPOSED) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float w[4];
        int at = (first + owned<true>(i, place, lanes)) * SIZE;
        read_four(w, panel + panel_offset(k + e, at, ROW_BYTES),
                  (const ELEMENT *)0);
#pragma unroll
        for (int j = 0; j < 4; j++) v[i + j][e] = w[j];
      }
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      read_four(v[i],
                panel + panel_offset(first + owned<false>(i, place, lanes),
                                     k * SIZE, ROW_BYTES),
                (const ELEMENT *)0);
  }
}

struct fragments {
  float a[ROWS][4], b[COLUMNS][4];
};
struct tile_multiplier {
  int row, column, down, across, k;
  float sum[ROWS][COLUMNS];
  DEVICE_MEMBER void start(u32 lane, u32 warp_m, u32 warp_n, u32 slice) {
    row = warp_m * WARP_M;
    column = warp_n * WARP_N;
    down = lane / 4;
    across = lane % 4;
    k = slice * STEPS * 4;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) sum[i][j] = 0.0f;
  }
  DEVICE_MEMBER void read(fragments &f, u32 stage, int step) const {
    read_operand<A_TRANSPOSED, ROWS, A_ROW_BYTES>(f.a, stage, row, down, 8,
                                                  k + step * 4);
    read_operand<B_TRANSPOSED, COLUMNS, B_ROW_BYTES>(
        f.b, stage + A_BYTES, column, across, 4, k + step * 4);
  }
  DEVICE_MEMBER void multiply_step(const fragments &f) {
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
          sum[i][j] = fmaf(f.a[i][e], f.b[j][e], sum[i][j]);
  }
  DEVICE_MEMBER void store(u32 to, u32, u32, u32) const {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
        store_shared_word(
            to + sum_offset(row + owned<A_TRANSPOSED>(i, down, 8),
                            column + owned<B_TRANSPOSED>(j, across, 4)),
            sum[i][j]);
  }
};
