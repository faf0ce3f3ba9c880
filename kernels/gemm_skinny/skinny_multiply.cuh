// skinny_multiply.cuh - a step multiplied: the warp's weights from its ring,
// the activations from the block's panel, sums in registers.
//
// The panel holds the activations as fragments: for each group of 64 bytes of K
// and each eight rows, 512 bytes in which lane (row % 8) * 4 + piece has its 16
// bytes; reading them is free of bank conflicts, and one read serves two mma.
//
// TENSOR: the weights are the 16-row operand of mma.sync, so that few rows of
// activations fill its 8 columns: the product is computed transposed, C' = B A'.
// Else fp32 multiplies (FFMA): every value widened, for fp32 that may not be
// rounded to tf32, and for very few rows.
constexpr int M_BLOCKS = (TILE_M + 7) / 8;
constexpr int GROUP_BYTES = M_BLOCKS * 512; // of the panel
constexpr int STEP_BYTES = GROUPS * GROUP_BYTES;
// Sums in shared memory lie as the result does, so that its columns are
// neighbours: they are the streamed ones, or, SWAPPED, the panel's.  Pitches
// keep apart in the banks what the lanes of a warp store together.
constexpr int SUM_ROWS = TENSOR ? M_BLOCKS * 8 : TILE_M;
constexpr int MINOR = SWAPPED ? M_BLOCKS * 8 : TILE_N; // neighbours of a row
constexpr int SUM_PITCH =
    SWAPPED ? MINOR + (M_BLOCKS % 2 ? 16 : 8) : TILE_N + 4;
constexpr int SUM_BYTES = (SWAPPED ? TILE_N : SUM_ROWS) * SUM_PITCH * 4;
// Of a sum, by its place in the result's tile ...
DEVICE u32 sum_place(int major, int minor) {
  return (major * SUM_PITCH + minor) * 4;
}
// ... and by panel row and streamed column.
DEVICE u32 sum_of(int row, int column) {
  return SWAPPED ? sum_place(column, row) : sum_place(row, column);
}

DEVICE void widen(float (&v)[PIECE_K], const u32 (&w)[4]) {
  constexpr int per = 4 / SIZE;
#pragma unroll
  for (int e = 0; e < PIECE_K; e++)
    v[e] = word_to_float(w[e / per], e % per, (const ELEMENT *)0);
}

#if TENSOR
// The operand of one mma: `half` says which 32 bytes of the group's K.
#if !B_TRANSPOSED
struct weight_fragments {
  u32 low[4], high[4];
  DEVICE_MEMBER void read(u32 slot, int sixteen, int group, u32 lane) {
    const u32 at = slot + (2 * sixteen * GROUPS + group) * 512 + lane * 16;
    load_shared_words(low, at);
    load_shared_words(high, at + GROUPS * 512);
    round_operands(low, (const ELEMENT *)0);
    round_operands(high, (const ELEMENT *)0);
  }
  DEVICE_MEMBER void take(u32 (&a)[4], int half) const {
    a[0] = low[2 * half], a[1] = high[2 * half];
    a[2] = low[2 * half + 1], a[3] = high[2 * half + 1];
  }
};
#else
struct weight_fragments {
  u32 halves[2][4];
  DEVICE_MEMBER void read(u32 slot, int sixteen, int group, u32 lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (SIZE == 2) {
        // Matrix lane / 8: columns 8 (.. % 2) of the sixteen, K 2 (.. / 2); its
        // row lane % 8 is K 8 (.. / 2) + .. % 2.
        const u32 k = group * GROUP_K + lane % 8 / 2 * 8 + half * 4 +
                      lane / 16 * 2 + lane % 2;
        load_matrices<true>(
            halves[half],
            slot + chunk_place(k, sixteen * 2 + lane / 8 % 2));
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u32 k = group * GROUP_K + lane % 4 * 4 + half * 2 + i / 2;
          const u32 column = sixteen * 16 + i % 2 * 8 + lane / 4;
          halves[half][i] = load_shared_word(slot + chunk_place(k, column / 4) +
                                             column % 4 * 4);
        }
        round_operands(halves[half], (const ELEMENT *)0);
      }
    }
  }
  DEVICE_MEMBER void take(u32 (&a)[4], int half) const {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = halves[half][i];
  }
};
#endif

struct multiplier {
  float sum[SIXTEENS][M_BLOCKS][4];
  DEVICE_MEMBER void start() {
#pragma unroll
    for (int i = 0; i < SIXTEENS; i++)
#pragma unroll
      for (int j = 0; j < M_BLOCKS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
  }
  DEVICE_MEMBER void step(u32 slot, u32 panel, const u8 *, u32 lane) {
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      u32 x[M_BLOCKS][4];
#pragma unroll
      for (int j = 0; j < M_BLOCKS; j++)
        load_shared_words(x[j],
                          panel + group * GROUP_BYTES + j * 512 + lane * 16);
#pragma unroll
      for (int i = 0; i < SIXTEENS; i++) {
        weight_fragments w;
        w.read(slot, i, group, lane);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          u32 a[4];
          w.take(a, half);
#pragma unroll
          for (int j = 0; j < M_BLOCKS; j++)
            multiply(sum[i][j], a, x[j][2 * half], x[j][2 * half + 1],
                     (const ELEMENT *)0);
        }
      }
    }
  }
  // To the warp's columns of a slice of sums.
  DEVICE_MEMBER void store(u32 to, u32 lane) const {
#pragma unroll
    for (int i = 0; i < SIXTEENS; i++)
#pragma unroll
      for (int j = 0; j < M_BLOCKS; j++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const u32 at = to + sum_of(j * 8 + lane % 4 * 2,
                                     i * 16 + lane / 4 + e / 2 * 8);
          if (SWAPPED) {
            store_shared(at, sum[i][j][e], sum[i][j][e + 1]);
          } else {
            store_shared_word(at, sum[i][j][e]);
            store_shared_word(at + SUM_PITCH * 4, sum[i][j][e + 1]);
          }
        }
  }
};

#elif !B_TRANSPOSED
// A thread sums over its own pieces of K; the four lanes of a row meet at the
// end.
struct multiplier {
  float sum[2 * SIXTEENS][TILE_M];
  DEVICE_MEMBER void start() {
#pragma unroll
    for (int i = 0; i < 2 * SIXTEENS; i++)
#pragma unroll
      for (int j = 0; j < TILE_M; j++) sum[i][j] = 0.0f;
  }
  DEVICE_MEMBER void step(u32 slot, u32 panel, const u8 *, u32 lane) {
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      float w[2 * SIXTEENS][PIECE_K];
#pragma unroll
      for (int i = 0; i < 2 * SIXTEENS; i++) {
        u32 words[4];
        load_shared_words(words, slot + (i * GROUPS + group) * 512 + lane * 16);
        widen(w[i], words);
      }
#pragma unroll
      for (int j = 0; j < TILE_M; j++) {
        u32 words[4];
        float x[PIECE_K];
        load_shared_words(
            words, panel + group * GROUP_BYTES + (j * 4 + lane % 4) * 16);
        widen(x, words);
#pragma unroll
        for (int i = 0; i < 2 * SIXTEENS; i++)
#pragma unroll
          for (int e = 0; e < PIECE_K; e++)
            sum[i][j] = fmaf(w[i][e], x[e], sum[i][j]);
      }
    }
  }
  DEVICE_MEMBER void store(u32 to, u32 lane) const {
#pragma unroll
    for (int i = 0; i < 2 * SIXTEENS; i++)
#pragma unroll
      for (int j = 0; j < TILE_M; j++) {
        float v = sum[i][j];
        v += __shfl_xor_sync(0xffffffffu, v, 1);
        v += __shfl_xor_sync(0xffffffffu, v, 2);
        if (lane % 4 == 0)
          store_shared_word(to + sum_of(j, i * 8 + lane / 4), v);
      }
  }
};

#else
// A thread has a piece of neighbouring columns in some K rows of each step; the
// lanes that have the same columns meet at the end.
struct multiplier {
  float sum[PIECE_K][TILE_M];
  DEVICE_MEMBER void start() {
#pragma unroll
    for (int e = 0; e < PIECE_K; e++)
#pragma unroll
      for (int j = 0; j < TILE_M; j++) sum[e][j] = 0.0f;
  }
  DEVICE_MEMBER void step(u32 slot, u32 panel, const u8 *shared, u32 lane) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      u32 words[4];
      float w[PIECE_K];
      const u32 k = column_weights::row(i);
      load_shared_words(words, slot + chunk_place(k, lane % CHUNKS));
      widen(w, words);
      const u8 *from = shared + panel + k / GROUP_K * GROUP_BYTES +
                       k % GROUP_K / PIECE_K * 16 + k % PIECE_K * SIZE;
#pragma unroll
      for (int j = 0; j < TILE_M; j++) {
        const float x = to_float(*(const ELEMENT *)(from + j * 64));
#pragma unroll
        for (int e = 0; e < PIECE_K; e++)
          sum[e][j] = fmaf(w[e], x, sum[e][j]);
      }
    }
  }
  DEVICE_MEMBER void store(u32 to, u32 lane) const {
#pragma unroll
    for (int e = 0; e < PIECE_K; e++)
#pragma unroll
      for (int j = 0; j < TILE_M; j++) {
        float v = sum[e][j];
#pragma unroll
        for (int lanes = CHUNKS; lanes < 32; lanes *= 2)
          v += __shfl_xor_sync(0xffffffffu, v, lanes);
        if (lane < CHUNKS)
          store_shared_word(to + sum_of(j, lane * PIECE_K + e), v);
      }
  }
};
#endif
