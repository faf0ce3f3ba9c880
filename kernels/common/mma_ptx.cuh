// mma_ptx.cuh - the instructions of the tensor-core kernels, one wrapper each
// (PTX ISA: cp.async, ldmatrix, mma, mapa, barrier.cluster, cvt.rna.tf32).
// Whatever reads or writes shared memory behind the compiler's back clobbers
// memory, so that nothing moves across it or across a barrier.
#define DEVICE_MEMBER __device__ __forceinline__

DEVICE u32 shared_address(const void *p) {
  return (u32)__cvta_generic_to_shared(p);
}

// BYTES from global to shared memory, zeros where not `valid` (the source is
// not touched then).  16 bytes bypass the L1; two bytes are too few for
// cp.async and go through a register.
template <int BYTES>
DEVICE void copy_async(u32 to, const void *from, bool valid) {
  int size = valid ? BYTES : 0;
  if (BYTES == 16) {
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
        "l"(from), "r"(size)
        : "memory");
  } else if (BYTES >= 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from), "n"(BYTES < 4 ? 4 : BYTES), "r"(size)
                 : "memory");
  } else {
    u16 v = 0;
    if (valid) v = *(const u16 *)from;
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(v) : "memory");
  }
}
DEVICE void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Asks the L2 for the line at p.
DEVICE void prefetch_line(const void *p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
// Until at most PENDING of this thread's newest groups are under way.
template <int PENDING>
DEVICE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

template <bool TRANSPOSED>
DEVICE void load_matrices(u32 (&r)[4], u32 from) {
  if (TRANSPOSED)
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(from)
        : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

// d += a b for 16 rows, 8 columns and 32 bytes of K.  tf32 operands are
// rounded to nearest here: the tensor core alone would cut them off.
DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                     const f16 *) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                     const bf16 *) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                     const float *) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void round_operands(u32 (&)[4], const f16 *) {}
DEVICE void round_operands(u32 (&)[4], const bf16 *) {}
DEVICE void round_operands(u32 (&r)[4], const float *) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(__uint_as_float(r[i])));
}

// Four floats through the L2, where other blocks' writes are seen.
DEVICE void load_far(float *v, const float *from) {
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "l"(from)
               : "memory");
}
DEVICE float load_far_word(const float *from) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
  return v;
}
DEVICE void store_far(float *to, const float *v) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(v[0]),
               "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}
DEVICE void load_shared(float *v, u32 from) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "r"(from)
               : "memory");
}
DEVICE void load_shared_words(u32 (&w)[2], u32 from) {
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];"
               : "=r"(w[0]), "=r"(w[1])
               : "r"(from)
               : "memory");
}
DEVICE void load_shared_words(u32 (&w)[4], u32 from) {
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(from)
               : "memory");
}
DEVICE u32 load_shared_word(u32 from) {
  u32 w;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(from) : "memory");
  return w;
}
DEVICE void store_shared_words(u32 to, const u32 (&w)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(w[0]),
               "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}
DEVICE void store_shared_word(u32 to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
DEVICE void store_shared(u32 to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to), "f"(x), "f"(y)
               : "memory");
}

// Orders all memory before it and after it, for every thread of the device; of
// a block behind a barrier, one thread's fence does.
DEVICE void fence_device() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

#if CLUSTER
// The cluster lies along the grid's z: one block for each part of K.
DEVICE u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// Releases what was written to this block's own shared memory, and no more: a
// full release would wait for global memory, which nobody reads here.
DEVICE void cluster_arrive() {
#if __CUDACC_VER_MAJOR__ >= 13
  asm volatile(
      "fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
// ... without order of memory: only "I am done reading".
DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in the shared memory of block `rank` of the cluster.
DEVICE u32 cluster_address(u32 address, u32 rank) {
  u32 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(r)
               : "r"(address), "r"(rank));
  return r;
}
DEVICE float load_cluster_word(u32 from) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(v)
               : "r"(from)
               : "memory");
  return v;
}
DEVICE void load_cluster(float *v, u32 from) {
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "r"(from)
               : "memory");
}
#endif
