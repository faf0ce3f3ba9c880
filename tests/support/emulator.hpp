// emulator.hpp - just enough of CUDA C++ to run our kernels on the CPU, one
// thread after the other; blocks that synchronise run as fibers.
//
// Made for tests where no GPU is: it finds wrong indices, strides, masks and
// argument orders.  It knows nothing of races or of what the hardware rounds.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#define __CUDACC__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static

// Aligned as on the GPU: a misplaced vector access is caught.
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3_t {
  unsigned x, y, z;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
static dim3_t threadIdx, blockIdx, blockDim, gridDim;

template <typename To, typename From>
static inline To bits_as(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "");
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __uint_as_float(unsigned v) { return bits_as<float>(v); }
static inline float __int_as_float(int v) { return bits_as<float>(v); }
static inline unsigned __float_as_uint(float v) { return bits_as<unsigned>(v); }
static inline double __longlong_as_double(long long v) {
  return bits_as<double>(v);
}
static inline int __float2int_rn(float v) {
  if (v != v) return 0;
  if (v >= 2147483648.0f) return 2147483647;
  return v <= -2147483648.0f ? (int)0x80000000 : (int)nearbyintf(v);
}
static inline long long __float2ll_rn(float v) {
  if (v != v) return 0;
  if (v >= 9.2233720e18f) return 0x7fffffffffffffffll;
  return v <= -9.2233720e18f ? (long long)0x8000000000000000ull
                             : (long long)nearbyintf(v);
}
// Half and bfloat16 by the library under test's own conversions, handed in.
extern "C" {
extern float (*emulated_f16_to_f32)(uint16_t);
extern uint16_t (*emulated_f32_to_f16)(float);
extern uint16_t (*emulated_f32_to_bf16)(float);
float (*emulated_f16_to_f32)(uint16_t);
uint16_t (*emulated_f32_to_f16)(float);
uint16_t (*emulated_f32_to_bf16)(float);
}
static inline float nan_min(float x, float y) {
  return x != x ? x : y != y ? y : x < y ? x : y;
}
static inline float nan_max(float x, float y) {
  return x != x ? x : y != y ? y : x > y ? x : y;
}

// ---- one block
static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static std::vector<char> finished;
static unsigned current;

// Barriers passed, by thread; of the block and of the warp.  A thread goes on
// when all that have not finished have come as far as it.
static std::vector<unsigned> block_passed, warp_passed;
static void come_together(std::vector<unsigned> &passed, unsigned first,
                          unsigned end) {
  const unsigned mine = ++passed[current];
  for (unsigned t = first; t < end; t++)
    while (!finished[t] && passed[t] < mine)
      swapcontext(&fibers[current], &scheduler);
}
static void __syncthreads() {
  come_together(block_passed, 0, (unsigned)fibers.size());
}
// What a lane gives and what it takes; two turns of slots, because a lane can
// be one exchange ahead of another.
static std::vector<float> given[2];
static float __shfl_xor_sync(unsigned, float v, int mask) {
  const unsigned turn = warp_passed[current] & 1, first = current / 32 * 32;
  given[turn][current] = v;
  come_together(warp_passed, first, first + 32);
  return given[turn][first + ((current - first) ^ (unsigned)mask)];
}
#define __expf expf
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }

static void set_thread(unsigned t) {
  threadIdx.x = t % blockDim.x;
  threadIdx.y = t / blockDim.x % blockDim.y;
  threadIdx.z = t / blockDim.x / blockDim.y;
}

struct launch {
  void (*thread)(void **args);
  void **args;
};
static launch launched;
static void fiber_main() {
  launched.thread(launched.args);
  finished[current] = 1;
  for (;;) swapcontext(&fibers[current], &scheduler);
}

static void run_block(bool synchronises, std::vector<char> &stacks) {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  const size_t stack = 65536;
  if (!synchronises) {
    for (unsigned t = 0; t < count; t++) {
      set_thread(t);
      launched.thread(launched.args);
    }
    return;
  }
  fibers.resize(count);
  finished.assign(count, 0);
  block_passed.assign(count, 0);
  warp_passed.assign(count, 0);
  given[0].resize(count);
  given[1].resize(count);
  stacks.resize(count * stack);
  for (unsigned t = 0; t < count; t++) {
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = &stacks[t * stack];
    fibers[t].uc_stack.ss_size = stack;
    fibers[t].uc_link = nullptr;
    makecontext(&fibers[t], fiber_main, 0);
  }
  for (bool more = true; more;) {
    more = false;
    for (unsigned t = 0; t < count; t++) {
      if (finished[t]) continue;
      current = t;
      set_thread(t);
      swapcontext(&scheduler, &fibers[t]);
      more = more || !finished[t];
    }
  }
}

template <typename... A, size_t... I>
static void call(void (*kernel)(A...), void **args, std::index_sequence<I...>) {
  kernel(*(A *)args[I]...);
}
template <typename... A>
static int arity(void (*)(A...)) {
  return sizeof...(A);
}
template <typename... A>
static void call_with(void (*kernel)(A...), void **args) {
  call(kernel, args, std::index_sequence_for<A...>());
}

// Defines `emulate`, the one function that is looked up: 0 when it ran, else
// the number of parameters that the kernel has.
#define EMULATE(kernel, synchronises)                                        \
  static void thread_of_kernel(void **args) { call_with(kernel, args); }     \
  extern "C" int emulate(const unsigned *grid, const unsigned *block,        \
                         void **args, int count) {                           \
    if (arity(kernel) != count) return arity(kernel) ? arity(kernel) : -1;   \
    std::vector<char> stacks;                                                \
    launched = {thread_of_kernel, args};                                     \
    gridDim = {grid[0], grid[1], grid[2]};                                   \
    blockDim = {block[0], block[1], block[2]};                               \
    for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)                 \
      for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)               \
        for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)             \
          run_block(synchronises, stacks);                                   \
    return 0;                                                                \
  }
