/* wgmma_gemm.cu - spike 1: C[m,n] = A[m,k] * B[n,k]^T in fp16 on sm_90a.
 *
 * One producer warp fills a ring of shared-memory stages by TMA; two consumer
 * warpgroups (64 rows each of a 128 x 256 tile) multiply by WGMMA and keep the
 * fp32 sums in registers.  A stage is `full` when its bytes have landed and
 * `empty` when both consumers are done with it.  Blocks are persistent and walk
 * the tiles in column groups so that B stays in L2.
 *
 * PTX ISA: 9.7.15 (wgmma, matrix descriptors, 128-byte swizzle), 9.7.9.27
 * (cp.async.bulk.tensor), 9.7.13.15 (mbarrier).
 */
typedef unsigned int u32;
typedef unsigned long long u64;
struct __align__(64) tensor_map {
  char bytes[128];
};

enum {
  TILE_M = 128,
  TILE_N = 256,
  TILE_K = 64,
  STAGES = 4,
  A_BYTES = TILE_M * TILE_K * 2,
  B_BYTES = TILE_N * TILE_K * 2,
  STAGE_BYTES = A_BYTES + B_BYTES,
  GROUP = 8
};

__device__ __forceinline__ u32 shared_address(const void *p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar),
               "r"(count));
}
__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   bar),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\nbra again;\ndone:\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void load_tile(u32 to, const tensor_map *map, u32 bar,
                                          int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_"
      "tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(bar), "r"(column), "r"(row)
      : "memory");
}
/* K-major operand, 128-byte swizzle: 8 rows of 128 bytes repeat every 1024. */
__device__ __forceinline__ u64 descriptor(u32 address) {
  return (u64)(address >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 |
         (u64)1 << 62;
}
__device__ __forceinline__ void multiply(float (&d)[128], u64 a, u64 b,
                                         int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(accumulate));
}

extern "C" __global__ void __launch_bounds__(384, 1)
    spike_gemm(const __grid_constant__ tensor_map map_a,
               const __grid_constant__ tensor_map map_b, unsigned short *c,
               int m, int n, int k) {
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (shared_address(shared) + 1023) & ~1023u;
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(shared_address(&full[s]), 1);
      barrier_init(shared_address(&empty[s]), 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int tiles_m = (m + TILE_M - 1) / TILE_M;
  const int tiles_n = (n + TILE_N - 1) / TILE_N;
  const int steps = (k + TILE_K - 1) / TILE_K;
  int stage = 0;
  u32 phase = 0;

  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) {
      for (int tile = blockIdx.x; tile < tiles_m * tiles_n;
           tile += gridDim.x) {
        const int band = tile / (GROUP * tiles_n), in_band = tile % (GROUP * tiles_n);
        const int rows = min(GROUP, tiles_m - band * GROUP);
        const int tm = band * GROUP + in_band % rows, tn = in_band / rows;
        for (int s = 0; s < steps; s++) {
          barrier_wait(shared_address(&empty[stage]), phase ^ 1);
          const u32 bar = shared_address(&full[stage]);
          const u32 a = base + stage * STAGE_BYTES, b = a + A_BYTES;
          barrier_expect(bar, STAGE_BYTES);
          load_tile(a, &map_a, bar, s * TILE_K, tm * TILE_M);
          load_tile(b, &map_b, bar, s * TILE_K, tn * TILE_N);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
    const int band = tile / (GROUP * tiles_n), in_band = tile % (GROUP * tiles_n);
    const int rows = min(GROUP, tiles_m - band * GROUP);
    const int tm = band * GROUP + in_band % rows, tn = in_band / rows;
    float d[128];
    int last = -1;
    for (int s = 0; s < steps; s++) {
      barrier_wait(shared_address(&full[stage]), phase);
      const u32 a = base + stage * STAGE_BYTES + group * 64 * TILE_K * 2;
      const u32 b = base + stage * STAGE_BYTES + A_BYTES;
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int kk = 0; kk < TILE_K / 16; kk++)
        multiply(d, descriptor(a + kk * 32), descriptor(b + kk * 32),
                 s + kk != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      /* One group stays in flight: the stage before this one is free. */
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (last >= 0 && threadIdx.x % 128 == 0)
        barrier_arrive(shared_address(&empty[last]));
      last = stage;
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (threadIdx.x % 128 == 0) barrier_arrive(shared_address(&empty[last]));
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int row = tm * TILE_M + group * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < 32; j++) {
      const int column = tn * TILE_N + j * 8 + lane % 4 * 2;
      u32 low, high;
      asm("cvt.rn.f16x2.f32 %0, %1, %2;"
          : "=r"(low)
          : "f"(d[j * 4 + 1]), "f"(d[j * 4]));
      asm("cvt.rn.f16x2.f32 %0, %1, %2;"
          : "=r"(high)
          : "f"(d[j * 4 + 3]), "f"(d[j * 4 + 2]));
      if (column + 1 < n) {
        if (row < m) *(u32 *)(c + (u64)row * n + column) = low;
        if (row + 8 < m) *(u32 *)(c + (u64)(row + 8) * n + column) = high;
      }
    }
  }
}
