// mma_index.cuh - the index arithmetic of the tensor-core kernels, and nothing
// else: where a 16-byte chunk lies in shared memory, which tile a block does,
// which part of K a split does, which matrix row a lane hands to ldmatrix.
//
// It is written in the part of CUDA C that is also C, without pointers to
// device memory, so that a host test compiles the very same text (with its own
// DEVICE and u32) and can go through every case.

// n / divisor for n < 2^31, by a multiplication.  magic and shift come from
// cuvil_mma_divider (common/mma.c); magic 0 stands for a divisor of 1.
// Granlund, Montgomery: Division by Invariant Integers using Multiplication.
DEVICE u32 divide(u32 n, u32 magic, u32 shift) {
  u32 high = (u32)(((u64)n * magic) >> 32);
  return magic ? high >> shift : n;
}

// A panel in shared memory is rows of `chunks` 16-byte chunks (a power of two)
// without padding.  Chunk c of a row lies at place c ^ flip(row): any eight
// consecutive rows put one and the same chunk into eight different groups of
// four banks, which is what ldmatrix reads at once; a row's own chunks stay in
// the row, so that copies remain whole.
DEVICE u32 swizzle_flip(u32 row, u32 chunks) {
  u32 rows_per_line = chunks < 8 ? 8 / chunks : 1; // a line is 128 bytes
  u32 span = chunks < 8 ? chunks : 8;
  return (row / rows_per_line) & (span - 1);
}

// Byte offset in the panel of byte `at` of row `row`.
DEVICE u32 panel_offset(u32 row, u32 at, u32 row_bytes) {
  u32 place = (at / 16) ^ swizzle_flip(row, row_bytes / 16);
  return row * row_bytes + place * 16 + at % 16;
}

// What lane `lane` points ldmatrix.x4 at, inside a block of 16 panel rows and
// two chunks: eight lanes address one 8x8 matrix.  Straight: the matrices go
// down the rows first (A as it is stored by rows, B stored by columns and read
// transposed); crossed: along the chunks first (the other two cases).
DEVICE u32 lane_row(u32 lane, int crossed) {
  return crossed ? lane % 8 + lane / 16 * 8 : lane % 16;
}
DEVICE u32 lane_half(u32 lane, int crossed) {
  return crossed ? lane / 8 % 2 : lane / 16;
}

// A fragment's address in its panel, cut in two: `flip` and `base` hold what a
// lane and its warp's place contribute, once for the kernel; block (sixteens of
// rows of A or columns of B, in the warp's part) and step (32 bytes of K, in
// the slice's part) are constants in the unrolled loop.  The swizzle only flips
// bits that nothing is added to, since every part's size is a power of two.
// first: the warp's first row or column; steps: of a slice; size: of an
// element.  transposed: K is the panel's row.
DEVICE u32 fragment_flip(u32 lane, int crossed, int transposed, u32 row_bytes,
                         u32 first, u32 slice, u32 steps, u32 size) {
  u32 half = lane_half(lane, crossed);
  u32 flip =
      (half ^ swizzle_flip(lane_row(lane, crossed), row_bytes / 16)) * 16;
  return flip ^ (transposed ? first * size : slice * steps * 32);
}
DEVICE u32 fragment_base(u32 lane, int crossed, int transposed, u32 row_bytes,
                         u32 first, u32 slice, u32 steps, u32 size) {
  u32 row = lane_row(lane, crossed);
  return (row + (transposed ? slice * steps * (32 / size) : first)) * row_bytes;
}
DEVICE u32 fragment_at(u32 base, u32 flip, int transposed, u32 row_bytes,
                       u32 block, u32 step, u32 size) {
  return transposed
             ? base + step * (32 / size) * row_bytes + ((block * 32) ^ flip)
             : base + block * 16 * row_bytes + ((step * 32) ^ flip);
}

// The tile of block (x, y).  order 0: x counts rows of tiles, y columns.  Else
// x counts all tiles, in bands of `order` rows that are walked column by
// column, so that blocks running together share both operands in the L2.
DEVICE u32 tile_row(u32 x, u32 order, u32 tiles_m, u32 tiles_n) {
  if (order == 0) return x;
  u32 band = x / (order * tiles_n), first = band * order;
  u32 rows = tiles_m - first < order ? tiles_m - first : order;
  return first + (x - band * order * tiles_n) % rows;
}
DEVICE u32 tile_column(u32 x, u32 y, u32 order, u32 tiles_m, u32 tiles_n) {
  if (order == 0) return y;
  u32 band = x / (order * tiles_n), first = band * order;
  u32 rows = tiles_m - first < order ? tiles_m - first : order;
  return (x - band * order * tiles_n) / rows;
}

// The K tiles of split z: `base` each, one more for the first `extra`.
DEVICE u32 split_begin(u32 z, u32 base, u32 extra) {
  return z * base + (z < extra ? z : extra);
}
DEVICE u32 split_count(u32 z, u32 base, u32 extra) {
  return base + (z < extra ? 1 : 0);
}
