/* problems.c - the problems that families are tested on.
 *
 * Small, so that the CPU reference can follow, and odd on purpose: extents
 * that divide by nothing, channels by twos and fours, layouts that only the
 * generic paths take.  The shapes of a residual network stand among them.
 */
#include "tests/support/problems.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const cuvil_test_problems[] = {
    /* ---- gemm */
    "gemm/1 m=128 n=256 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32 "
    "epi{t=add(acc,bias[n]); out=gelu_erf(t)}",
    "gemm/1 m=77 n=13 k=51 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32",
    "gemm/1 m=77 n=40 k=24 a=f16[m,k] b=f16[k,n]:weight c=f32[m,n] acc=f32 "
    "epi{t=mul(acc,0.125); u=add(t,bias:f32[n]); out=relu(u)}",
    "gemm/1 m=1 n=1000 k=512 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32 "
    "epi{out=add(acc,bias[n])}",
    "gemm/1 m=64 n=48 k=72 a=bf16[m,k] b=bf16[n,k] c=bf16[m,n] acc=f32 "
    "epi{t=add(acc,bias[n]); u=add(t,res[m,n]); out=relu(u)}",
    "gemm/1 m=33 n=31 k=29 a=f32[m,k] b=f32[k,n] c=f32[m,n] acc=f32 "
    "epi{t=add(acc,bias[n]); out=silu(t)}",
    "gemm/1 m=96 n=64 k=128 a=f32[m,k] b=f32[n,k] c=f32[m,n] acc=f32 "
    "math=tf32",
    "gemm/1 m=65 n=66 k=40 a=f16[k,m] b=f16[k,n] c=f16[n,m] acc=f32 "
    "epi{t=add(acc,row[m]); out=tanh(t)}",
    "gemm/1 m=40 n=24 k=32 a=f16[m,k]@(48,1) b=f16[n,k] c=f16[m,n]@(32,1) "
    "acc=f32 epi{t=add(acc,bias[n]); out=sigmoid(t)}",
    "gemm/1 m=48 n=56 k=16 a=f16[m,k] b=f16[n,k] c=f16[m,n] "
    "pre=f32[m,n]:out acc=f32 epi{pre=add(acc,bias:f16[n]); out=relu(pre)}",
    "gemm/1 batch=3 m=33 n=40 k=24 a=f16[batch,m,k] b=f16[batch,n,k] "
    "c=f16[batch,m,n] acc=f32 epi{t=mul(acc,0.125); out=add(t,mask[batch,n])}",
    "gemm/1 batch=2 m=17 n=24 k=40 a=f16[m,batch,k]@(240,80,1) b=f16[k,n] "
    "c=f16[m,batch,n] acc=f32",
    /* ---- conv */
    "conv/1 n=2 c=16 h=9 w=11 k=24 r=3 s=3 pad=1,1,1,1 x=f16[n,h,w,c] "
    "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 epi{t=add(acc,bias[k]); "
    "u=add(t,res[n,p,q,k]); out=relu(u)}",
    "conv/1 n=1 c=64 h=14 w=14 k=64 r=1 s=1 x=f16[n,h,w,c] "
    "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 epi{t=add(acc,bias:f32[k]); "
    "out=relu(t)}",
    "conv/1 n=1 c=4 h=23 w=23 k=16 r=7 s=7 stride=2,2 pad=3,3,3,3 "
    "x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias[k]); out=relu(t)}",
    "conv/1 n=2 c=3 h=10 w=9 k=5 r=3 s=2 stride=2,1 pad=1,0,0,1 "
    "x=f32[n,c,h,w] w=f32[k,c,r,s]:weight y=f32[n,k,p,q] acc=f32 "
    "epi{out=add(acc,bias[k])}",
    "conv/1 n=1 c=24 h=8 w=8 k=48 r=3 s=3 pad=1,1,1,1 group=4 x=f16[n,h,w,c] "
    "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32",
    "conv/1 n=1 c=8 h=12 w=12 k=8 r=3 s=3 pad=2,2,2,2 dil=2,2 group=8 "
    "x=bf16[n,h,w,c] w=bf16[k,r,s,c]:weight y=bf16[n,p,q,k] acc=f32 "
    "epi{out=clip(acc,0,6)}",
    "conv/1 n=3 c=32 h=7 w=7 k=40 r=1 s=1 stride=2,2 x=f32[n,h,w,c] "
    "w=f32[k,r,s,c]:weight y=f32[n,p,q,k] acc=f32 math=tf32 "
    "epi{t=add(acc,bias[k]); out=hardswish(t)}",
    "conv/1 n=2 c=48 h=14 w=15 k=48 r=3 s=3 pad=1,1,1,1 group=48 "
    "x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias[k]); out=clip(t,0,6)}",
    "conv/1 n=1 c=24 h=17 w=17 k=24 r=5 s=5 stride=2,2 pad=2,2,2,2 group=24 "
    "x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias[k]); u=silu(t); out=add(u,res[n,p,q,k])}",
    "conv/1 n=2 c=3 h=9 w=10 k=6 r=3 s=3 pad=1,1,1,1 group=3 x=f32[n,c,h,w] "
    "w=f32[k,c,r,s] y=f32[n,k,p,q] acc=f32 epi{out=relu(acc)}",
    /* ---- pool */
    "pool/1 op=max n=2 c=16 h=13 w=12 r=3 s=3 stride=2,2 pad=1,1,1,1 "
    "x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32",
    "pool/1 op=avg n=1 c=7 h=9 w=9 r=2 s=3 stride=1,2 pad=0,1,1,1 "
    "x=f32[n,c,h,w] y=f32[n,c,p,q] acc=f32 epi{out=relu(acc)}",
    "pool/1 op=avg_padded n=1 c=12 h=8 w=8 r=5 s=5 stride=3,3 pad=2,2,2,2 "
    "x=bf16[n,h,w,c] y=bf16[n,p,q,c] acc=f32 epi{out=add(acc,shift[c])}",
    "pool/1 op=max n=1 c=4 h=6 w=6 r=2 s=2 stride=2,2 dil=2,2 x=f16[n,c,h,w] "
    "y=f16[n,p,q,c] acc=f32",
    /* ---- reduce */
    "reduce/1 op=mean n=2 h=7 w=7 c=264 x=f16[n,h,w,c] y=f16[n,c] acc=f32",
    "reduce/1 op=mean n=3 c=37 h=5 w=5 x=f32[n,c,h,w] y=f32[n,c] acc=f32 "
    "epi{out=relu(acc)}",
    "reduce/1 op=sum a=5 b=1030 x=bf16[a,b] y=f32[a] acc=f32",
    "reduce/1 op=max a=9 b=33 c=6 x=f16[a,b,c] y=f16[c,a] acc=f32",
    "reduce/1 op=min a=4 b=6 x=f32[a,b]@(1,4) y=f32[a] acc=f32",
    "reduce/1 op=sum a=17 x=f32[a] y=f32[] acc=f32 epi{out=sqrt(acc)}",
    /* ---- pointwise */
    "pointwise/1 n=1 c=4 h=11 w=12 y=f16[n,h,w,c] epi{out=x:f32[n,c<3,h,w]}",
    "pointwise/1 n=2 c=8 h=5 w=8 y=f16[n,h,w,c] "
    "epi{t=mul(x:f32[n,c,h,w],scale:f32[c]); out=add(t,shift:f32[c])}",
    "pointwise/1 n=2 c=37 h=5 w=7 y=f32[n,c,h,w] epi{out=x:f16[n,h,w,c]}",
    "pointwise/1 m=67 n=70 y=f16[n,m] epi{t=x[m,n]; out=relu(t)}",
    "pointwise/1 a=999 y=f16[a] epi{t=add(u[a],v[a]); out=relu(t)}",
    "pointwise/1 a=31 b=24 y=bf16[a,b] z=f32[a,b]:out "
    "epi{t=add(u[a,b],v[b]); z=gelu_tanh(t); out=mul(z,w:f32[a])}",
    "pointwise/1 a=6 b=10 y=f32[a,b]@(16,1) "
    "epi{t=sub(u[a,b],0.5); s=pow(t,2); out=div(s,v[b,a])}",
    "pointwise/1 a=40 y=i32[a] epi{t=add(u:i8[a],v:u8[a]); out=neg(t)}",
    "pointwise/1 a=64 y=f32[a] epi{t=leaky_relu(u:f16[a],0.1); "
    "s=hardsigmoid(t,0.2,0.5); out=max(s,t)}",
    "pointwise/1 a=6 b=5 c=24 y=f16[a,b,c]@(400,40,1) "
    "epi{t=mul(u[a,b,c]@(240,48,1),2); out=add(t,v[b,a,c])}",
    "pointwise/1 a=7 b=5 c=16 y=f16[a,b,c] "
    "epi{out=add(u[a,b<3,c],v[a<4,b,c<11]@(60,12,1))}",
    "pool/1 op=avg_padded n=2 c=24 h=10 w=11 r=3 s=3 stride=2,2 pad=1,1,2,3 "
    "dil=1,1 over=1,2 x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32",
    /* ---- norm */
    "norm/1 op=layer m=20 n=768 x=f16[m,n] y=f16[m,n] eps=1e-05 acc=f32 "
    "epi{t=mul(acc,gamma[n]:weight); out=add(t,beta[n]:weight)}",
    "norm/1 op=layer m=7 n=200 x=bf16[m,n] y=bf16[m,n] sum=bf16[m,n]:out "
    "eps=1e-05 acc=f32 pro{s=add(x,res[m,n]); sum=add(s,bias[n])} "
    "epi{t=mul(acc,gamma:f32[n]); out=add(t,beta:f32[n])}",
    "norm/1 op=rms m=9 n=96 x=f16[m,n]@(128,1) y=f16[m,n]@(104,1) eps=1e-06 "
    "acc=f32 epi{out=mul(acc,gamma[n])}",
    "norm/1 op=layer m=5 n=37 x=f32[n,m] y=f32[m,n] eps=1e-05 acc=f32 "
    "epi{out=add(acc,shift[m])}",
    "norm/1 op=softmax m=33 n=128 x=f16[m,n] y=f16[m,n] acc=f32 "
    "pro{s=mul(x,0.125); w=add(s,mask[n])}",
    "norm/1 op=softmax m=3 n=1003 x=f32[m,n] y=f16[m,n] acc=f32",
    "norm/1 op=log_softmax m=6 n=1000 x=f16[m,n] y=f32[m,n] acc=f32",
    "norm/1 op=rms m=2 n=9000 x=f16[m,n] y=f16[m,n] sum=f16[m,n]:out "
    "eps=1e-05 acc=f32 pro{sum=add(x,res[m,n])} epi{out=mul(acc,gamma[n])}",
    "norm/1 op=layer m=4 n=64 x=f16[m,n] y=f16[n,m] eps=1e-05 acc=f32",
    /* ---- gather */
    "gather/1 v=50 m=21 n=96 table=f16[v,n]:weight index=i64[m] y=f16[m,n] "
    "epi{t=add(acc,pos[m,n]); out=add(t,kind[n])}",
    "gather/1 v=7 m=5 n=31 table=f32[v,n]:weight index=i32[m] y=f32[m,n]",
    "gather/1 v=9 m=4 n=12 table=bf16[v,n]@(16,1) index=i64[m] y=f32[n,m] "
    "epi{out=mul(acc,3)}",
    /* ---- batched gemm */
    "gemm/1 batch=6 m=33 n=40 k=64 a=f16[batch,m,k] b=f16[batch,n,k] "
    "c=f16[batch,m,n] acc=f32",
    "gemm/1 batch=3 m=17 n=24 k=40 a=f32[m,batch,k] b=f32[batch,k,n]:weight "
    "c=f32[batch,m,n]@(500,24,1) acc=f32 epi{t=mul(acc,0.125); "
    "out=add(t,mask[batch,n])}",
    "gemm/1 batch=2 m=9 n=8 k=8 a=bf16[batch,m,k] b=bf16[n,k] "
    "c=f32[m,batch,n] acc=f32",
    /* ---- attention */
    "attention/1 b=2 hq=3 hkv=3 sq=37 skv=37 d=64 dv=64 q=f16[b,sq,hq,d] "
    "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=0.125 "
    "causal=0 mask=f16[b,skv]:add acc=f32",
    "attention/1 b=1 hq=4 hkv=2 sq=20 skv=45 d=32 dv=48 "
    "q=bf16[b,sq,hq,d]@(5120,256,32,1) k=bf16[b,hkv,skv,d] "
    "v=bf16[b,hkv,skv,dv] o=bf16[b,hq,sq,dv] scale=0.17677669 causal=1 "
    "acc=f32",
    "attention/1 b=2 hq=2 hkv=1 sq=9 skv=300 d=8 dv=150 q=f32[b,hq,sq,d] "
    "k=f32[b,d,hkv,skv] v=f32[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=0.35 "
    "causal=0 mask=bool[hq,sq,skv]:keep acc=f32",
    "attention/1 b=1 hq=1 hkv=1 sq=6 skv=4 d=16 dv=16 q=f16[b,sq,hq,d] "
    "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=0.25 "
    "causal=1 mask=f32[sq,skv]@(9,1):weight:add acc=f32",
    NULL,
};

/* ---- random products */
static bool chance(struct cuvil_rng *rng, int percent) {
  return cuvil_rng_below(rng, 100) < (uint64_t)percent;
}

/* As many small ones as large ones; half of them divide by 8. */
static int extent(struct cuvil_rng *rng, int most) {
  int value = (int)exp(cuvil_rng_uniform(rng) * log(most + 0.99));
  if (value >= 8 && chance(rng, 50)) value -= value % 8;
  return value < 1 ? 1 : value;
}

void cuvil_test_random_gemm(struct cuvil_rng *rng, char *out, size_t size) {
  static const char *const types[] = {"f16", "bf16", "f32", "f16"};
  static const char *const epilogues[] = {
      "",
      "epi{out=add(acc,bias[n])}",
      "epi{t=add(acc,bias[n]); out=gelu_erf(t)}",
      "epi{t=add(acc,bias[n]); u=add(t,res[m,n]); out=gelu_tanh(u)}",
      "epi{t=mul(acc,0.25); u=add(t,row:f32[m]); out=silu(u)}",
      "z=f32[m,n]:out epi{z=add(acc,bias:f32[n]); out=relu(z)}"};
  const char *type = types[cuvil_rng_below(rng, 4)];
  const char *epilogue = epilogues[cuvil_rng_below(rng, 6)];
  bool batched = chance(rng, 12) && !strstr(epilogue, "m,n");
  bool tf32 = type[1] == '3' && chance(rng, 70);
  char batch[32] = "";
  const char *b = batched ? "batch," : "";
  int m = extent(rng, chance(rng, 60) ? 64 : 300), n = extent(rng, 3000);
  if (batched) snprintf(batch, sizeof batch, "batch=%d ", 2 + extent(rng, 6));
  snprintf(out, size,
           "gemm/1 %sm=%d n=%d k=%d a=%s[%s%s] b=%s[%s%s]%s c=%s[%sm,n] "
           "acc=f32%s %s",
           batch, m, n, extent(rng, 2500), type, b,
           chance(rng, 80) ? "m,k" : "k,m", type, b,
           chance(rng, 65) ? "n,k" : "k,n", chance(rng, 70) ? ":weight" : "",
           chance(rng, 80) ? type : "f32", b, tf32 ? " math=tf32" : "",
           epilogue);
}
