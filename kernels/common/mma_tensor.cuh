// mma_tensor.cuh - a stage multiplied on the tensor cores.  Fragments are read
// by ldmatrix, which transposes operands stored with K slow on the way (16-bit
// types only); a step is 32 bytes of K.
constexpr int BLOCKS_M = WARP_M / 16, BLOCKS_N = WARP_N / 16;
constexpr bool FEW_SUMS = WARP_M * WARP_N <= 64 * 32;
constexpr int STEPS = TILE_K * SIZE / 32 / SLICE_K;

// Where this lane reads fragments of a panel; see fragment_at.
template <bool TRANSPOSED, bool CROSSED, int ROW_BYTES>
struct fragment_reader {
  u32 base, flip;
  DEVICE_MEMBER void start(u32 lane, u32 first, u32 slice) {
    base = fragment_base(lane, CROSSED, TRANSPOSED, ROW_BYTES, first, slice,
                         STEPS, SIZE);
    flip = fragment_flip(lane, CROSSED, TRANSPOSED, ROW_BYTES, first, slice,
                         STEPS, SIZE);
  }
  DEVICE_MEMBER void read(u32 (&r)[4], u32 panel, int block, int step) const {
    load_matrices<TRANSPOSED>(
        r, panel + fragment_at(base, flip, TRANSPOSED, ROW_BYTES, block, step,
                               SIZE));
    round_operands(r, (const ELEMENT *)0);
  }
};

struct fragments {
  u32 a[BLOCKS_M][4], b[BLOCKS_N][4];
};
struct tile_multiplier {
  fragment_reader<A_TRANSPOSED, A_TRANSPOSED, A_ROW_BYTES> a;
  fragment_reader<B_TRANSPOSED, !B_TRANSPOSED, B_ROW_BYTES> b;
  float sum[BLOCKS_M][2 * BLOCKS_N][4];
  DEVICE_MEMBER void start(u32 lane, u32 warp_m, u32 warp_n, u32 slice) {
    a.start(lane, warp_m * WARP_M, slice);
    b.start(lane, warp_n * WARP_N, slice);
#pragma unroll
    for (int i = 0; i < BLOCKS_M; i++)
#pragma unroll
      for (int j = 0; j < 2 * BLOCKS_N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
  }
  DEVICE_MEMBER void read(fragments &f, u32 stage, int step) const {
#pragma unroll
    for (int i = 0; i < BLOCKS_M; i++) a.read(f.a[i], stage, i, step);
#pragma unroll
    for (int j = 0; j < BLOCKS_N; j++) b.read(f.b[j], stage + A_BYTES, j, step);
  }
  DEVICE_MEMBER void multiply_step(const fragments &f) {
#pragma unroll
    for (int i = 0; i < BLOCKS_M; i++)
#pragma unroll
      for (int j = 0; j < BLOCKS_N; j++) {
        multiply(sum[i][2 * j], f.a[i], f.b[j][0], f.b[j][1],
                 (const ELEMENT *)0);
        multiply(sum[i][2 * j + 1], f.a[i], f.b[j][2], f.b[j][3],
                 (const ELEMENT *)0);
      }
  }  // This lane's sums to a tile of sums in shared memory.
  DEVICE_MEMBER void store(u32 to, u32 lane, u32 warp_m, u32 warp_n) const {
#pragma unroll
    for (int i = 0; i < BLOCKS_M; i++)
#pragma unroll
      for (int j = 0; j < 2 * BLOCKS_N; j++) {
        u32 at = to + sum_offset(warp_m * WARP_M + i * 16 + lane / 4,
                                 warp_n * WARP_N + j * 8 + lane % 4 * 2);
        store_shared(at, sum[i][j][0], sum[i][j][1]);
        store_shared(at + 8 * SUM_PITCH * 4, sum[i][j][2], sum[i][j][3]);
      }
  }
};
