// mma_emulator.hpp - runs the text of a CUDA kernel on the host, a thread at a
// time, to find wrong indices, races between copies and reads, and deadlocks
// where no GPU is.
//
// A kernel becomes C++ when its inline assembly becomes calls (a unit test does
// that: `asm("ld.global.cg.f32 ...")` turns into emu_ld_global_cg_f32(...) with
// the operands as arguments) and CUDA's words are defined.  Every thread of a
// block is a coroutine with its own stack; it runs until it must wait for
// others: at a barrier, or where a warp works together (ldmatrix, mma).  The
// blocks of a cluster run at the same time, others one after the other, in
// random order.
//
// What it checks beside the result: every global access by cp.async or a far
// load inside an operand, alignment, shared addresses inside the block's
// bytes; shared memory starts as NaN.  A copy's data arrives either at once or,
// with `late`, only when its group is waited for, so that both reading too
// early and overwriting too early give wrong numbers.  A kernel that may start
// before its predecessor has ended must wait for it, and leave no copy behind.
//
// The including file defines GRID_X GRID_Y GRID_Z THREADS_X CLUSTER_Z
// SHARED_BYTES PROGRAMMATIC BUFFERS, and after the kernel's text kernel_call().
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDACC_VER_MAJOR__ 13

struct uint2 {
  unsigned x, y;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
struct dim3 {
  unsigned x, y, z;
};

// ---- the machine
struct copy {
  uint8_t *to;
  const uint8_t *from;
  int bytes, valid;
};
struct block;
struct thread {
  ucontext_t context;
  dim3 index;
  struct block *block;
  bool done, waited;
  long clusters_waited;
  std::vector<copy> open;
  std::vector<std::vector<copy>> groups;
};
struct warp {
  int arrived;
  long turn;
  uint32_t slot[32][6];
};
struct block {
  dim3 index;
  unsigned rank;
  uint8_t *shared;
  std::vector<thread *> threads;
  std::vector<warp> warps;
  int arrived;
  long turn;
};
static struct {
  std::vector<block *> blocks;
  int arrived;
  long turn;
} cluster;
static thread *now;
static ucontext_t scheduler;
static bool late;
static const dim3 gridDim = {GRID_X, GRID_Y, GRID_Z};
struct operand {
  uint8_t *base;
  uint64_t bytes;
};
static operand operands[BUFFERS];
#define threadIdx (now->index)
#define blockIdx (now->block->index)

[[noreturn]] static void stop(const char *why) {
  printf("%s: block %u %u %u, thread %u\n", why, blockIdx.x, blockIdx.y,
         blockIdx.z, threadIdx.x);
  exit(1);
}
static void give_way() {
  swapcontext(&now->context, &scheduler);
}
template <typename T>
static void meet(T &place, int expected) {
  long turn = place.turn;
  if (++place.arrived == expected)
    place.arrived = 0, place.turn++;
  else
    while (place.turn == turn)
      give_way();
}
static void __syncthreads() {
  meet(*now->block, THREADS_X);
}
static warp &my_warp() {
  return now->block->warps[threadIdx.x / 32];
}
static int my_lane() {
  return threadIdx.x % 32;
}
static void __syncwarp() {
  meet(my_warp(), 32);
}
static int atomicAdd(int *p, int v) {
  int before = *p;
  *p += v;
  return before;
}
static float __uint_as_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint32_t __float_as_uint(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static float __int_as_float(int i) { return __uint_as_float((uint32_t)i); }
static int __float2int_rn(float f) {
  return (int)nearbyintf(f);
}
static long long __float2ll_rn(float f) {
  return (long long)nearbyintf(f);
}
static size_t __cvta_generic_to_shared(const void *p) {
  return (const uint8_t *)p - now->block->shared;
}
static uint8_t *shared_at(block *b, uint32_t address, int bytes) {
  if (address + bytes > SHARED_BYTES) stop("shared address out of range");
  if (address % bytes) stop("shared address misaligned");
  return b->shared + address;
}
static uint8_t *shared_at(uint32_t address, int bytes) {
  return shared_at(now->block, address, bytes);
}
static void check_global(const void *p, int bytes) {
  const uint8_t *at = (const uint8_t *)p;
  if ((uintptr_t)p % bytes) stop("global address misaligned");
  for (const operand &o : operands)
    if (at >= o.base && at + bytes <= o.base + o.bytes) return;
  stop("global address out of range");
}

// ---- copies
static void arrive(const copy &c) {
  memcpy(c.to, c.from, c.valid);
  memset(c.to + c.valid, 0, c.bytes - c.valid);
}
static void start_copy(uint32_t to, const void *from, int bytes, int valid) {
  if (valid) check_global(from, bytes);
  copy c = {shared_at(to, bytes), (const uint8_t *)from, bytes, valid};
  if (late)
    memset(c.to, 0xff, bytes), now->open.push_back(c);
  else
    arrive(c);
}
static void emu_cp_async_cg_shared_global_L2__128B(uint32_t to, const void *p,
                                                   int valid) {
  start_copy(to, p, 16, valid);
}
static void emu_cp_async_ca_shared_global(uint32_t to, const void *p, int bytes,
                                          int valid) {
  start_copy(to, p, bytes, valid);
}
static void emu_cp_async_commit_group() {
  now->groups.push_back(now->open);
  now->open.clear();
}
static void emu_cp_async_wait_group(int pending) {
  while ((int)now->groups.size() > pending) {
    for (const copy &c : now->groups[0])
      arrive(c);
    now->groups.erase(now->groups.begin());
  }
}
static void emu_prefetch_global_L2(const void *p) {
  check_global(p, 1);
}

// ---- loads and stores
template <typename T, int N>
static void get(const uint8_t *from, T *const (&to)[N]) {
  for (int i = 0; i < N; i++)
    memcpy(to[i], from + 4 * i, 4);
}
static void emu_ld_shared_v4_f32(float &a, float &b, float &c, float &d,
                                 uint32_t p) {
  get(shared_at(p, 16), {&a, &b, &c, &d});
}
static void emu_ld_shared_v2_b32(uint32_t &a, uint32_t &b, uint32_t p) {
  get(shared_at(p, 8), {&a, &b});
}
static void emu_ld_shared_v4_b32(uint32_t &a, uint32_t &b, uint32_t &c,
                                 uint32_t &d, uint32_t p) {
  get(shared_at(p, 16), {&a, &b, &c, &d});
}
static void emu_ld_shared_b32(uint32_t &a, uint32_t p) {
  get(shared_at(p, 4), {&a});
}
static void emu_st_shared_v4_b32(uint32_t p, uint32_t a, uint32_t b,
                                 uint32_t c, uint32_t d) {
  uint32_t v[4] = {a, b, c, d};
  memcpy(shared_at(p, 16), v, 16);
}
static void emu_st_shared_u16(uint32_t p, uint16_t v) {
  memcpy(shared_at(p, 2), &v, 2);
}
static void emu_st_shared_f32(uint32_t p, float v) {
  memcpy(shared_at(p, 4), &v, 4);
}
static void emu_st_shared_v2_f32(uint32_t p, float a, float b) {
  float v[2] = {a, b};
  memcpy(shared_at(p, 8), v, 8);
}
static void emu_ld_global_cg_f32(float &a, const void *p) {
  check_global(p, 4);
  get((const uint8_t *)p, {&a});
}
static void emu_ld_global_cg_v4_f32(float &a, float &b, float &c, float &d,
                                    const void *p) {
  check_global(p, 16);
  get((const uint8_t *)p, {&a, &b, &c, &d});
}
static void emu_st_global_cg_v4_f32(void *p, float a, float b, float c,
                                    float d) {
  float v[4] = {a, b, c, d};
  check_global(p, 16);
  memcpy(p, v, 16);
}

// ---- grids and clusters
static void emu_griddepcontrol_launch_dependents() {}
static void emu_griddepcontrol_wait() {
  now->waited = true;
}
static void emu_fence_acq_rel_gpu() {}
static void emu_fence_release_sync_restrict__shared__cta_cluster() {}
static void emu_trap() {
  stop("trap");
}
static void emu_mov_u32(uint32_t &rank) {
  rank = now->block->rank;
}
static void emu_barrier_cluster_arrive_relaxed_aligned() {
  if (++cluster.arrived == (int)cluster.blocks.size() * THREADS_X)
    cluster.arrived = 0, cluster.turn++;
}
static void emu_barrier_cluster_wait_acquire_aligned() {
  while (cluster.turn <= now->clusters_waited)
    give_way();
  now->clusters_waited++;
}
static void emu_mapa_shared__cluster_u32(uint32_t &r, uint32_t address,
                                         uint32_t rank) {
  if (rank >= cluster.blocks.size()) stop("no such block in the cluster");
  r = address | rank << 24;
}
static const uint8_t *other_shared_at(uint32_t p, int bytes) {
  block *other = cluster.blocks[p >> 24];
  bool alive = false;
  for (thread *t : other->threads)
    alive |= !t->done;
  if (!alive) stop("shared memory of a block that has left");
  return shared_at(other, p & 0xffffff, bytes);
}
static void emu_ld_shared__cluster_v4_f32(float &a, float &b, float &c,
                                          float &d, uint32_t p) {
  get(other_shared_at(p, 16), {&a, &b, &c, &d});
}
static void emu_ld_shared__cluster_f32(float &a, uint32_t p) {
  get(other_shared_at(p, 4), {&a});
}

// ---- types
static float half_to_float(uint16_t bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
}
static uint16_t float_to_half(float f) {
  _Float16 h = (_Float16)f;
  uint16_t bits;
  memcpy(&bits, &h, 2);
  return bits;
}
static uint16_t float_to_bf16(float f) {
  uint32_t u = __float_as_uint(f);
  return f != f ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static void emu_cvt_f32_f16(float &r, uint16_t h) {
  r = half_to_float(h);
}
static void emu_cvt_rn_f16_f32(uint16_t &r, float f) {
  r = float_to_half(f);
}
static void emu_cvt_rn_bf16_f32(uint16_t &r, float f) {
  r = float_to_bf16(f);
}
static void emu_cvt_rn_f16x2_f32(uint32_t &r, float high, float low) {
  r = float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}
static void emu_cvt_rn_bf16x2_f32(uint32_t &r, float high, float low) {
  r = float_to_bf16(low) | (uint32_t)float_to_bf16(high) << 16;
}
static void emu_cvt_rna_tf32_f32(uint32_t &r, float f) {
  r = (__float_as_uint(f) + 0x1000) & ~0x1fffu;
}
// No instruction: the value is hidden from the compiler.
template <typename... T>
static void emu_(T &...) {}
static void emu_ex2_approx_ftz_f32(float &r, float a) {
  r = exp2f(a);
}
static void emu_min_NaN_f32(float &r, float a, float b) {
  r = a != a || b != b ? NAN : fminf(a, b);
}
static void emu_max_NaN_f32(float &r, float a, float b) {
  r = a != a || b != b ? NAN : fmaxf(a, b);
}

template <typename T>
static T __shfl_xor_sync(unsigned, T value, int distance) {
  static_assert(sizeof value == 4, "");
  warp &w = my_warp();
  memcpy(w.slot[my_lane()], &value, 4);
  meet(w, 32);
  memcpy(&value, w.slot[my_lane() ^ distance], 4);
  meet(w, 32);
  return value;
}

// ---- tensor cores (PTX ISA: ldmatrix, fragments of mma)
static void load_matrices_of(bool transposed, uint32_t *r, uint32_t from) {
  warp &w = my_warp();
  int lane = my_lane();
  w.slot[lane][0] = from;
  meet(w, 32);
  for (int m = 0; m < 4; m++) {
    uint16_t pair[2];
    for (int e = 0; e < 2; e++) {
      int row = transposed ? lane % 4 * 2 + e : lane / 4;
      int column = transposed ? lane / 4 : lane % 4 * 2 + e;
      memcpy(&pair[e], shared_at(w.slot[m * 8 + row][0], 16) + column * 2, 2);
    }
    r[m] = pair[0] | (uint32_t)pair[1] << 16;
  }
  meet(w, 32);
}
#define LDMATRIX(name, transposed)                                     \
  static void name(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, \
                   uint32_t from) {                                    \
    uint32_t r[4];                                                     \
    load_matrices_of(transposed, r, from);                             \
    a = r[0], b = r[1], c = r[2], d = r[3];                            \
  }
LDMATRIX(emu_ldmatrix_sync_aligned_m8n8_x4_shared_b16, false)
LDMATRIX(emu_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16, true)

static float half_of(uint32_t word, int k) {
  return half_to_float((uint16_t)(word >> k % 2 * 16));
}
static float bf16_of(uint32_t word, int k) {
  return __uint_as_float(word >> k % 2 * 16 << 16);
}
static float tf32_of(uint32_t word, int) {
  if (word & 0x1fff) stop("tf32 operand not rounded");
  return __uint_as_float(word);
}
// IN_WORD elements of K in a register: 2 (K is 16) or 1 (K is 8).
template <int IN_WORD, float (*ELEMENT_OF)(uint32_t, int)>
static void multiply_fragments(float *d, const uint32_t *a, uint32_t b0,
                               uint32_t b1) {
  warp &w = my_warp();
  int lane = my_lane(), half = 4 * IN_WORD;
  uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  memcpy(w.slot[lane], mine, sizeof mine);
  meet(w, 32);
  for (int e = 0; e < 4; e++) {
    int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    double sum = d[e];
    for (int k = 0; k < 2 * half; k++) {
      int owner = k % half / IN_WORD;
      sum += (double)ELEMENT_OF(
                 w.slot[row % 8 * 4 + owner][row / 8 + k / half * 2], k) *
             ELEMENT_OF(w.slot[column * 4 + owner][4 + k / half], k);
    }
    d[e] = (float)sum;
  }
  meet(w, 32);
}
#define MMA(name, in_word, element)                                         \
  static void name(float &d0, float &d1, float &d2, float &d3, uint32_t a0, \
                   uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,      \
                   uint32_t b1) {                                           \
    float d[4] = {d0, d1, d2, d3};                                          \
    uint32_t a[4] = {a0, a1, a2, a3};                                       \
    multiply_fragments<in_word, element>(d, a, b0, b1);                     \
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                             \
  }
MMA(emu_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, 2, half_of)
MMA(emu_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, 2, bf16_of)
MMA(emu_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32, 1, tf32_of)

// ---- running
// An argument of the launch that is a buffer's address; or one that is zero,
// which may stand for none.
struct buffer_argument {
  int index;
  template <typename T>
  operator T *() const {
    return (T *)operands[index].base;
  }
};
struct zero_argument {
  operator long long() const { return 0; }
  template <typename T>
  operator T *() const {
    return (T *)0;
  }
};
static void kernel_call();

static void thread_main() {
  kernel_call();
  if (PROGRAMMATIC && !now->waited) stop("did not wait for its predecessor");
  if (!now->open.empty()) stop("copies that no group holds at the end");
  for (const auto &group : now->groups)
    if (!group.empty()) stop("copies under way at the end");
  now->done = true;
  give_way();
}

static block *make_block(dim3 index, unsigned rank, std::vector<char> &stacks) {
  block *b = new block();
  b->index = index, b->rank = rank;
  b->shared = (uint8_t *)aligned_alloc(1024, SHARED_BYTES / 1024 * 1024 + 1024);
  memset(b->shared, 0xff, SHARED_BYTES);
  b->warps.resize(THREADS_X / 32);
  for (unsigned t = 0; t < THREADS_X; t++) {
    thread *made = new thread();
    made->index = {t, 0, 0}, made->block = b;
    getcontext(&made->context);
    made->context.uc_stack.ss_sp =
        &stacks[(size_t)(rank * THREADS_X + t) * 65536];
    made->context.uc_stack.ss_size = 65536;
    makecontext(&made->context, thread_main, 0);
    b->threads.push_back(made);
  }
  return b;
}

static void run_cluster(dim3 first, std::vector<char> &stacks,
                        std::mt19937 &random) {
  std::vector<thread *> threads;
  cluster.blocks.clear(), cluster.arrived = 0, cluster.turn = 0;
  for (unsigned rank = 0; rank < CLUSTER_Z; rank++) {
    cluster.blocks.push_back(
        make_block({first.x, first.y, first.z + rank}, rank, stacks));
    for (thread *t : cluster.blocks[rank]->threads)
      threads.push_back(t);
  }
  size_t left = threads.size();
  for (long turns = 0; left > 0; turns++) {
    size_t start = random() % threads.size();
    for (size_t i = 0; i < threads.size(); i++) {
      now = threads[(start + i) % threads.size()];
      if (now->done) continue;
      swapcontext(&scheduler, &now->context);
      left -= now->done;
    }
    if (turns > 1000000) stop("deadlock");
  }
  for (block *b : cluster.blocks) {
    for (thread *t : b->threads)
      delete t;
    free(b->shared);
    delete b;
  }
}

// A buffer ends at a page that cannot be touched.
static void place(int index, const std::string &path) {
  FILE *file = fopen(path.c_str(), "rb");
  if (!file) exit(2);
  fseek(file, 0, SEEK_END);
  uint64_t bytes = (uint64_t)ftell(file), padded = (bytes + 15) / 16 * 16;
  uint64_t pages = (padded + 4095) / 4096 * 4096;
  rewind(file);
  uint8_t *memory =
      (uint8_t *)mmap(nullptr, pages + 8192, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(memory, 4096, PROT_NONE);
  mprotect(memory + 4096 + pages, 4096, PROT_NONE);
  operands[index] = {memory + 4096 + pages - padded, bytes};
  if (fread(operands[index].base, 1, bytes, file) != bytes) exit(2);
  fclose(file);
}

// PREFIX seed late: buffers are PREFIX.0, PREFIX.1, ..., read at the start and
// written back at the end.
int main(int, char **argv) {
  std::mt19937 random((unsigned)atoi(argv[2]));
  late = atoi(argv[3]) != 0;
  for (int i = 0; i < BUFFERS; i++)
    place(i, std::string(argv[1]) + "." + std::to_string(i));
  std::vector<dim3> order;
  for (unsigned z = 0; z < GRID_Z; z += CLUSTER_Z)
    for (unsigned y = 0; y < GRID_Y; y++)
      for (unsigned x = 0; x < GRID_X; x++)
        order.push_back({x, y, z});
  for (size_t i = order.size(); i > 1; i--)
    std::swap(order[i - 1], order[random() % i]);
  std::vector<char> stacks((size_t)CLUSTER_Z * THREADS_X * 65536);
  for (dim3 first : order)
    run_cluster(first, stacks, random);
  for (int i = 0; i < BUFFERS; i++) {
    std::string path = std::string(argv[1]) + "." + std::to_string(i);
    FILE *file = fopen(path.c_str(), "wb");
    if (!file) return 2;
    fwrite(operands[i].base, 1, operands[i].bytes, file);
    fclose(file);
  }
  return 0;
}
