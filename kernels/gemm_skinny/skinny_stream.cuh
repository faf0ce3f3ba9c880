// skinny_stream.cuh - the weights on their way: from memory, read once, through
// a ring in shared memory that every warp has to itself.
//
// What bounds a product of few rows is memory, and memory is fast only while
// much is asked of it at once.  So a warp keeps STAGES steps of its weights
// under way (cp.async) and waits for nobody else: no barrier stands in the main
// loop.  A step is WARP_N columns of the result by GROUPS groups of 64 bytes of
// K; a turn is a step of each of the SLICE_K warps that share the columns.
//
// Weights stored [n][k]: a thread copies exactly the 16-byte pieces that it
// multiplies later itself: of rows lane / 4 and lane / 4 + 8 of every sixteen,
// piece lane % 4 of the group.  That this deals the group's K to lanes in
// another order than the tensor core's does not matter, as long as the
// activations are dealt alike: a sum has no order.
// Weights stored [k][n]: the step is a panel of K rows in the ring, whose 16-byte
// chunks are swizzled so that eight rows of one ldmatrix lie in different
// banks; its rows are the ones that the same order of K asks for.
//
// The emitter defines ELEMENT, WARP_N WARPS_N SLICE_K GROUPS STAGES, B_VECTOR
// (bytes that one copy may take), B_TRANSPOSED (stored [k][n]).
constexpr int SIZE = sizeof(ELEMENT);
constexpr int PIECE_K = 16 / SIZE;   // elements of a piece
constexpr int GROUP_K = 4 * PIECE_K; // ... of a group
constexpr int STEP_K = GROUPS * GROUP_K, TURN_K = STEP_K * SLICE_K;
constexpr int SIXTEENS = WARP_N / 16, TILE_N = WARP_N * WARPS_N;
constexpr int WARPS = WARPS_N * SLICE_K, THREADS = 32 * WARPS;
constexpr int PIECES = 2 * SIXTEENS * GROUPS; // of a thread in a step
constexpr int STAGE_BYTES = 512 * PIECES;     // of a warp
constexpr int RING_BYTES = WARPS * STAGES * STAGE_BYTES;

// 16 bytes of which `left` elements are there, by loads of VECTOR bytes; zeros
// where nothing is.
template <int VECTOR>
DEVICE void read_piece(u32 (&w)[4], const u8 *from, int left) {
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = 0;
  if (VECTOR == 16) {
    if (left > 0) load_words(from, w);
  } else if (VECTOR >= 4) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (left > i * 4 / SIZE) w[i] = *(const u32 *)(from + i * 4);
  } else {
#pragma unroll
    for (int h = 0; h < 8; h++)
      if (left > h)
        w[h / 2] |= (u32) * (const u16 *)(from + h * 2) << (h % 2 * 16);
  }
}

// The pieces of a step: place i of the ring gets what lies at from + i * apart
// (or wherever `source` says).  Two bytes are too few for cp.async: then all
// loads go first, and wait for each other only.
template <int VECTOR, typename SOURCE>
DEVICE void copy_pieces(const SOURCE &source, u32 slot) {
  if (VECTOR >= 4) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const u8 *from = source.piece(i);
      const int left = source.left_of(i);
#pragma unroll
      for (int e = 0; e < 16; e += VECTOR)
        copy_async<VECTOR>(slot + source.place(i) + e, from + e,
                           left > e / SIZE);
    }
  } else {
    u32 w[PIECES][4];
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      read_piece<VECTOR>(w[i], source.piece(i), source.left_of(i));
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      store_shared_words(slot + source.place(i), w[i]);
  }
}

// ---- stored [n][k]
struct row_weights {
  const u8 *from; // this thread's first piece of the next step
  i64 eight;      // bytes from a row to the eighth after it
  u32 rows;       // bit i: row i * 8 + lane / 4 is one of the weights'
  int left;       // elements of K from that piece on
  DEVICE_MEMBER void start(const ELEMENT *b, int column, int n, i64 pitch,
                           int first_k, int k, u32 lane) {
    const int row = column + lane / 4, at = first_k + lane % 4 * PIECE_K;
    from = (const u8 *)(b + row * pitch + at);
    eight = 8 * pitch * SIZE;
    left = k - at;
    rows = 0;
#pragma unroll
    for (int i = 0; i < 2 * SIXTEENS; i++)
      rows |= (u32)(row + i * 8 < n) << i;
  }
  DEVICE_MEMBER void advance(i64) {
    from += TURN_K * SIZE;
    left -= TURN_K;
  }
  // Piece i: row i / GROUPS (by eights), group i % GROUPS.
  DEVICE_MEMBER const u8 *piece(int i) const {
    return from + i / GROUPS * eight + i % GROUPS * 64;
  }
  DEVICE_MEMBER int left_of(int i) const {
    return rows >> i / GROUPS & 1 ? left - i % GROUPS * GROUP_K : 0;
  }
  DEVICE_MEMBER u32 place(int i) const {
    return i * 512 + threadIdx.x % 32 * 16;
  }
};

// ---- stored [k][n]
constexpr int CHUNKS = WARP_N * SIZE / 16; // of a K row of the warp's columns
constexpr int ROWS_AT_ONCE = CHUNKS < 32 ? 32 / CHUNKS : 1;
// Rows whose chunks are asked for together differ in these bits.
DEVICE u32 chunk_flip(u32 k) {
  u32 flip = SIZE == 4    ? (k >> 2 & 3) * 2
             : CHUNKS < 8 ? k >> 3 & 3
                          : (k >> 3 & 3) * 2 | (k & 1);
  return flip & (CHUNKS - 1);
}
DEVICE u32 chunk_place(u32 k, u32 chunk) {
  return (k * CHUNKS + (chunk ^ chunk_flip(k))) * 16;
}

struct column_weights {
  const u8 *from; // this thread's piece of the next step's first K row
  i64 apart;      // bytes from one of its K rows to its next
  int columns;    // elements of N from that piece on
  int left;       // K rows from that one on
  DEVICE_MEMBER void start(const ELEMENT *b, int column, int n, i64 pitch,
                           int first_k, int k, u32 lane) {
    const int at = column + lane % CHUNKS * PIECE_K;
    const int row = first_k + lane / CHUNKS;
    from = (const u8 *)(b + row * pitch + at);
    apart = ROWS_AT_ONCE * pitch * SIZE;
    columns = n - at;
    left = k - row;
  }
  DEVICE_MEMBER void advance(i64 pitch) {
    from += TURN_K * pitch * SIZE;
    left -= TURN_K;
  }
  DEVICE_MEMBER const u8 *piece(int i) const { return from + i * apart; }
  DEVICE_MEMBER int left_of(int i) const {
    return i * ROWS_AT_ONCE < left ? columns : 0;
  }
  // The K row of this thread's piece i, and its place in the ring.
  DEVICE_MEMBER static u32 row(int i) {
    return i * ROWS_AT_ONCE + threadIdx.x % 32 / CHUNKS;
  }
  DEVICE_MEMBER u32 place(int i) const {
    return chunk_place(row(i), threadIdx.x % 32 % CHUNKS);
  }
};

template <bool TRANSPOSED>
struct weights_of : row_weights {};
template <>
struct weights_of<true> : column_weights {};

// All that a warp will copy, in order: the turns of this block's part of K, for
// one tile of columns after the other.  Past the end: nothing, and an empty
// group, so that counts stay even.
struct weight_stream : weights_of<B_TRANSPOSED> {
  int tile, turn;
  DEVICE_MEMBER void next(u32 slot, const ELEMENT *b, int n, int k, i64 pitch,
                          int tiles, int turns, int first_k, int warp_column,
                          u32 lane) {
    if (tile < tiles) {
      if (turn == 0)
        start(b, tile * TILE_N + warp_column, n, pitch, first_k, k, lane);
      copy_pieces<B_VECTOR>((const weights_of<B_TRANSPOSED> &)*this, slot);
      advance(pitch);
      if (++turn == turns) {
        turn = 0;
        tile += gridDim.x;
      }
    }
    copies_commit();
  }
};
