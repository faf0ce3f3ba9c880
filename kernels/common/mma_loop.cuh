// mma_loop.cuh - how tiles of A and B come to shared memory, in the families
// gemm_mma, conv_mma, gemm_simt and conv_simt: a tile of C is a sum over tiles
// of K.
//
// Each tile of K is two panels in shared memory, one of A and one of B, brought
// by cp.async into a ring of STAGES; while the multipliers work on one stage,
// the copies for the next STAGES - 1 are under way.  How A is found in global
// memory is the family's own matter (struct a_loader in its file); B is a
// matrix for both.  Warps form a WARPS_M x WARPS_N grid over the tile; with
// SLICE_K > 1 there are SLICE_K such grids, each doing its share of every K
// tile, which gives small tiles enough warps to hide latency.
//
// An operand is stored with K contiguous (its panel has a row for each row of
// the tile) or with K as the slow dimension (a panel row for each k).
//
// The emitter defines: ELEMENT, TILE_M TILE_N TILE_K, WARPS_M WARPS_N SLICE_K,
// STAGES, A_VECTOR B_VECTOR (bytes that one copy may take: alignment and
// divisibility of the operand), A_TRANSPOSED B_TRANSPOSED.
constexpr int THREADS = 32 * WARPS_M * WARPS_N * SLICE_K;
constexpr int SIZE = sizeof(ELEMENT);
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int A_ROWS = A_TRANSPOSED ? TILE_K : TILE_M;
constexpr int B_ROWS = B_TRANSPOSED ? TILE_K : TILE_N;
constexpr int A_ROW_BYTES = (A_TRANSPOSED ? TILE_M : TILE_K) * SIZE;
constexpr int B_ROW_BYTES = (B_TRANSPOSED ? TILE_N : TILE_K) * SIZE;
constexpr int A_BYTES = A_ROWS * A_ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_ROWS * B_ROW_BYTES;

// How the block's threads share the copying of a panel: each takes one piece
// of VECTOR bytes, at the same place in its row, of every `step`-th row.
template <int ROWS, int ROW_BYTES, int VECTOR>
struct panel {
  static constexpr int per_row = ROW_BYTES / VECTOR;
  static constexpr int step = THREADS / per_row;
  static constexpr int passes = (ROWS + step - 1) / step;
  static_assert(step >= 1, "fewer threads than pieces in a row");
  // Element of the row that this thread's piece begins with.
  DEVICE int column() {
    return (int)threadIdx.x % per_row * (VECTOR / SIZE);
  }
  DEVICE int row(int pass) {
    return (int)threadIdx.x / per_row + pass * step;
  }
  DEVICE bool has(int pass) {
    return ROWS % step == 0 || row(pass) < ROWS;
  }
  DEVICE u32 offset(int pass) {
    return panel_offset(row(pass), column() * SIZE, ROW_BYTES);
  }
};

// Operand stored [rows][k]: tile t of K is columns t * TILE_K and on.
template <int ROWS, int VECTOR>
struct rows_loader {
  typedef panel<ROWS, TILE_K * SIZE, VECTOR> shape;
  const u8 *from; // this thread's first piece at k = 0
  i64 step;       // bytes between its rows
  u32 rows;       // bit i: its row of pass i is one of the operand's
  int k;          // elements of K beyond its piece's first, at tile 0
  DEVICE_MEMBER void start(const ELEMENT *base, int first, int count, int pitch,
                           int k_count) {
    from = (const u8 *)(base + (i64)(first + shape::row(0)) * pitch +
                        shape::column());
    step = (i64)shape::step * pitch * SIZE;
    rows = 0;
#pragma unroll
    for (int i = 0; i < shape::passes; i++)
      rows |= (u32)(first + shape::row(i) < count) << i;
    k = k_count - shape::column();
  }
  DEVICE_MEMBER void settle() const {}
  DEVICE_MEMBER void load(u32 to, int tile) const {
    const u8 *p = from + (i64)tile * (TILE_K * SIZE);
    u32 valid = tile * TILE_K < k ? rows : 0;
#pragma unroll
    for (int i = 0; i < shape::passes; i++)
      if (shape::has(i))
        copy_async<VECTOR>(to + shape::offset(i), p + i * step, valid >> i & 1);
  }
};

// Operand stored [k][columns]: tile t of K is rows t * TILE_K and on.
template <int COLUMNS, int VECTOR>
struct columns_loader {
  typedef panel<TILE_K, COLUMNS * SIZE, VECTOR> shape;
  const u8 *from;
  i64 step, tile_step;
  int k; // rows of the operand beyond its first, at tile 0; 0: outside columns
  DEVICE_MEMBER void start(const ELEMENT *base, int first, int count, int pitch,
                           int k_count) {
    from =
        (const u8 *)(base + (i64)shape::row(0) * pitch + first +
                     shape::column());
    step = (i64)shape::step * pitch * SIZE;
    tile_step = (i64)TILE_K * pitch * SIZE;
    k = first + shape::column() < count ? k_count : 0;
  }
  DEVICE_MEMBER void settle() const {}
  DEVICE_MEMBER void load(u32 to, int tile) const {
    const u8 *p = from + tile * tile_step;
#pragma unroll
    for (int i = 0; i < shape::passes; i++)
      if (shape::has(i))
        copy_async<VECTOR>(to + shape::offset(i), p + i * step,
                           tile * TILE_K + shape::row(i) < k);
  }
};

template <bool TRANSPOSED, int TILE, int VECTOR>
struct matrix_loader : rows_loader<TILE, VECTOR> {};
template <int TILE, int VECTOR>
struct matrix_loader<true, TILE, VECTOR> : columns_loader<TILE, VECTOR> {};
typedef matrix_loader<B_TRANSPOSED, TILE_N, B_VECTOR> b_loader;

// ---- where sums meet: a tile of fp32 sums in shared memory, over the stages
// Eight floats more than a row: the four rows that store together then begin
// eight banks apart.
constexpr int SUM_PITCH = TILE_N + 8;
constexpr int SUM_BYTES = TILE_M * SUM_PITCH * 4;

// Bytes from the start of a tile of sums.  Every other 32 columns (rows, where
// a row has no more) swap neighbouring fours of columns, so that eight threads
// that read the first half of their pieces meet all 32 banks.
DEVICE u32 sum_offset(int row, int column) {
  int swap = (TILE_N > 32 ? column / 32 : row) & 1;
  return (row * SUM_PITCH + (column ^ swap * 4)) * 4;
}
