// types.cuh - the element types, conversions and memory access that every
// template starts from.  No CUDA or C++ header is included anywhere: NVRTC
// spends most of its time in them.
//
// Pointers carry no __restrict__ and no load goes through the read-only path
// by itself: with programmatic dependent launch a kernel is on the machine
// before its producer has finished, and a load the compiler believes invariant
// may be moved above griddepcontrol.wait.
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
struct __align__(2) f16 { u16 bits; };
struct __align__(2) bf16 { u16 bits; };
struct bool8 { u8 bits; };

// Functions are static: what a kernel does not use is dropped, not warned of.
#pragma nv_diag_suppress 177
#define DEVICE static __device__ __forceinline__
// Member functions that see `this`; static ones are DEVICE too.
#define METHOD __device__ __forceinline__

// ---- programmatic dependent launch (PTX ISA, griddepcontrol)
// First statement of a kernel: lets the next grid be scheduled.
DEVICE void dependents_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Before any memory is touched: the earlier grids are done and visible.
DEVICE void dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- element to float
DEVICE float to_float(float v) { return v; }
DEVICE float to_float(double v) { return (float)v; }
DEVICE float to_float(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
DEVICE float to_float(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
DEVICE float to_float(i8 v) { return (float)v; }
DEVICE float to_float(u8 v) { return (float)v; }
DEVICE float to_float(i32 v) { return (float)v; }
DEVICE float to_float(i64 v) { return (float)v; }
DEVICE float to_float(bool8 v) { return v.bits ? 1.0f : 0.0f; }

// ---- float to element: nearest even; integers saturate
DEVICE void from_float(float v, float &r) { r = v; }
DEVICE void from_float(float v, double &r) { r = (double)v; }
DEVICE void from_float(float v, f16 &r) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
}
DEVICE void from_float(float v, bf16 &r) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
}
DEVICE void from_float(float v, i32 &r) { r = __float2int_rn(v); }
DEVICE void from_float(float v, i64 &r) { r = __float2ll_rn(v); }
DEVICE void from_float(float v, i8 &r) {
  i32 i = __float2int_rn(v);
  r = (i8)(i < -128 ? -128 : i > 127 ? 127 : i);
}
DEVICE void from_float(float v, u8 &r) {
  i32 i = __float2int_rn(v);
  r = (u8)(i < 0 ? 0 : i > 255 ? 255 : i);
}
DEVICE void from_float(float v, bool8 &r) { r.bits = v != 0.0f; }

// ---- windows
// Places of a window of `size` from `first` on that lie before `end`.
DEVICE int window_counted(int first, int size, int dilation, int end) {
  const int fit = end > first ? (end - first + dilation - 1) / dilation : 0;
  return fit < size ? fit : size;
}

// ---- several elements at once
// Element `j` of a 32-bit word that holds 4 / sizeof(T) of them.
DEVICE float word_to_float(u32 word, int, const float *) {
  return __uint_as_float(word);
}
DEVICE float word_to_float(u32 word, int, const i32 *) {
  return (float)(i32)word;
}
DEVICE float word_to_float(u32 word, int j, const f16 *) {
  f16 v;
  v.bits = (u16)(word >> (16 * j));
  return to_float(v);
}
DEVICE float word_to_float(u32 word, int j, const bf16 *) {
  return __uint_as_float(j ? word & 0xffff0000u : word << 16);
}
DEVICE float word_to_float(u32 word, int j, const i8 *) {
  return (float)(i8)(word >> (8 * j));
}
DEVICE float word_to_float(u32 word, int j, const u8 *) {
  return (float)(u8)(word >> (8 * j));
}
DEVICE float word_to_float(u32 word, int j, const bool8 *) {
  return (word >> (8 * j)) & 0xffu ? 1.0f : 0.0f;
}
// A word made of 4 / sizeof(T) floats.
DEVICE u32 floats_to_word(const float *v, const float *) {
  return __float_as_uint(v[0]);
}
DEVICE u32 floats_to_word(const float *v, const i32 *) {
  return (u32)__float2int_rn(v[0]);
}
DEVICE u32 floats_to_word(const float *v, const f16 *) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(v[1]), "f"(v[0]));
  return r;
}
DEVICE u32 floats_to_word(const float *v, const bf16 *) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(v[1]), "f"(v[0]));
  return r;
}
template <typename T>
DEVICE u32 bytes_to_word(const float *v) {
  u32 r = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    T e;
    from_float(v[j], e);
    r |= (u32)*(const u8 *)&e << (8 * j);
  }
  return r;
}
DEVICE u32 floats_to_word(const float *v, const i8 *) {
  return bytes_to_word<i8>(v);
}
DEVICE u32 floats_to_word(const float *v, const u8 *) {
  return bytes_to_word<u8>(v);
}
DEVICE u32 floats_to_word(const float *v, const bool8 *) {
  return bytes_to_word<bool8>(v);
}

// 4, 8 or 16 bytes in one access; the address is a multiple of the size.
DEVICE void load_words(const void *p, u32 (&w)[1]) { w[0] = *(const u32 *)p; }
DEVICE void load_words(const void *p, u32 (&w)[2]) {
  uint2 v = *(const uint2 *)p;
  w[0] = v.x, w[1] = v.y;
}
DEVICE void load_words(const void *p, u32 (&w)[4]) {
  uint4 v = *(const uint4 *)p;
  w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
DEVICE void store_words(void *p, const u32 (&w)[1]) { *(u32 *)p = w[0]; }
DEVICE void store_words(void *p, const u32 (&w)[2]) {
  *(uint2 *)p = make_uint2(w[0], w[1]);
}
DEVICE void store_words(void *p, const u32 (&w)[4]) {
  *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]);
}

// Elements that one access may take: V wanted, A elements of alignment known,
// 16 bytes at most.  Below 4 bytes (or for 8-byte elements): one at a time.
template <int V, int A, int SIZE>
struct access {
  static constexpr int most = 16 / SIZE < A ? 16 / SIZE : A;
  static constexpr int elements = most < V ? most : V;
  static constexpr bool words = SIZE <= 4 && elements * SIZE >= 4;
  static constexpr int count = words ? elements * SIZE / 4 : 1;
};
template <bool WORDS>
struct vector_access;
template <>
struct vector_access<true> {
  template <int V, int A, typename T>
  DEVICE void load(const T *from, float (&out)[V]) {
    typedef access<V, A, sizeof(T)> a;
    constexpr int per = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < V; i += a::elements) {
      u32 w[a::count];
      load_words(from + i, w);
#pragma unroll
      for (int j = 0; j < a::elements; j++)
        out[i + j] = word_to_float(w[j / per], j % per, from);
    }
  }
  template <int V, int A, typename T>
  DEVICE void store(T *to, const float (&in)[V]) {
    typedef access<V, A, sizeof(T)> a;
    constexpr int per = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < V; i += a::elements) {
      u32 w[a::count];
#pragma unroll
      for (int j = 0; j < a::count; j++)
        w[j] = floats_to_word(&in[i + j * per], (const T *)0);
      store_words(to + i, w);
    }
  }
};
template <>
struct vector_access<false> {
  template <int V, int A, typename T>
  DEVICE void load(const T *from, float (&out)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = to_float(from[i]);
  }
  template <int V, int A, typename T>
  DEVICE void store(T *to, const float (&in)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) from_float(in[i], to[i]);
  }
};
// V consecutive elements as floats.  A: elements to whose multiple the address
// is known to be aligned (a power of two).  V is a power of two.
template <int V, int A, typename T>
DEVICE void load_vector(const T *from, float (&out)[V]) {
  vector_access<access<V, A, sizeof(T)>::words>::template load<V, A>(from, out);
}
template <int V, int A, typename T>
DEVICE void store_vector(T *to, const float (&in)[V]) {
  vector_access<access<V, A, sizeof(T)>::words>::template store<V, A>(to, in);
}
