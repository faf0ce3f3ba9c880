/* library.h - library steps: what a call says, as JSON.
 *
 * A call is stored in programs and plans, so its schema is frozen: keys are
 * added, never changed.  Every number is an integer unless said otherwise.
 * Matrices and tensors are row-major as the problem has them; the mapping to
 * the library's own order happens in here.
 *
 * ---- library "cublaslt"
 * {"op":"matmul", "m":, "n":, "k":,
 *  "a": {"dtype":"f16", "trans":false, "ld":},    A[m,k]; trans: stored [k,m]
 *  "b": {"dtype":"f16", "trans":true,  "ld":},    B[k,n]; trans: stored [n,k]
 *  "c": {"dtype":"f16", "ld":},        only where beta != 0: the residual
 *  "d": {"dtype":"f16", "ld":},        D[m,n] = epilogue(alpha A B + beta C)
 *  "compute":"f32"|"tf32",
 *  "epilogue":"default"|"relu"|"gelu"|"bias"|"relu_bias"|"gelu_bias",
 *  "bias_dtype":"f16",                 with a bias epilogue; bias[n]
 *  "alpha": real, "beta": real,        default 1 and 0
 *  "batch": 1, "strides": [a,b,c,d],   optional; strides in elements
 *  "algorithm": {"id":,"tile":,"stages":,"split_k":,"reduction":,"swizzle":,
 *                "custom":,"inner_shape":,"cluster":,
 *                "data":,"version":}   optional: see cublaslt.c; absent: the
 *                                      heuristic's first within workspace
 *  "workspace": bytes}                 that the program gives; absent: none in
 *                                      a step, up to 32 MiB for choices
 * ld: elements between rows as stored.  gelu is the tanh form.
 * Bindings: a, b, c (only where beta != 0), d, bias (only with a bias
 * epilogue), workspace (always; its address may be 0 when 0 bytes).
 *
 * ---- library "cudnn"
 * {"op":"conv_fwd", "n":,"c":,"h":,"w":, "k":,"r":,"s":,
 *  "stride":[h,w], "pad":[top,left,bottom,right], "dil":[h,w], "group":,
 *  "dtype":"f16"|"bf16"|"f32", "tf32":bool (default false: "f32" means f32),
 *  "x_strides":[n,h,w,c], "w_strides":[k,r,s,c], "y_strides":[n,p,q,k]
 *                                      in elements; absent: packed
 *  "bias":bool  (bias[k], of dtype), "residual":bool (as y), "activation":
 *  "none"|"relu",
 *  "engine":{"id":, "knobs":[[type,value],...]},  absent: the heuristic's
 *                                      first that can be prepared
 *  "workspace": bytes}
 * y = activation(conv(x, w) + bias + residual); x and y NHWC, w KRSC, fp32
 * accumulation; the residual is added before the bias, the order that the
 * library has kernels for.  Bindings: x, w, y, bias (if), residual (if),
 * workspace.
 *
 * {"op":"sdpa_fwd", "b":,"hq":,"hkv":,"sq":,"skv":,"d":,"dv":,
 *  "dtype":"f16"|"bf16", "scale":real, "causal":bool (default false: key j is
 *                                      seen by query i iff j <= i + skv - sq),
 *  "q_strides":[b,h,s,d], "k_strides":[..], "v_strides":[..],
 *  "o_strides":[..]                    in elements,
 *  "mask":{"dtype":,"dims":[b,h,s,s],"strides":[..]}   optional: added to the
 *                                      scaled scores; a dimension is whole or 1
 *  "engine":, "workspace":}            as above
 * o = softmax(scale q k^T + mask) v, the softmax in fp32; query head i takes
 * key and value head i / (hq / hkv).  Bindings: q, k, v, o, mask (if),
 * workspace.
 */
#ifndef CUVIL_GPU_LIBRARY_H_
#define CUVIL_GPU_LIBRARY_H_

#include "gpu/driver.h"

/* What every prepared call begins with; each library has one. */
struct cuvil_library_call {
  const struct cuvil_library *library;
  int binding_count;        /* the workspace included */
  uint64_t workspace_bytes; /* that the chosen algorithm needs */
};

struct cuvil_library {
  const char *name;
  enum cuvil_status (*prepare)(struct cuvil_gpu *gpu, const json_t *call,
                               struct cuvil_library_call **out);
  void (*destroy)(struct cuvil_library_call *call);
  enum cuvil_status (*run)(struct cuvil_library_call *call,
                           const uint64_t *addresses,
                           struct cuvil_gpu_stream *stream);
  enum cuvil_status (*choices)(struct cuvil_gpu *gpu, const json_t *call,
                               int limit, json_t **out);
  void (*version)(char *out, size_t size);
};
extern const struct cuvil_library cuvil_library_cublaslt;
extern const struct cuvil_library cuvil_library_cudnn;

/* ---- helpers of both: members of a call with a default */
CUVIL_MUST_USE enum cuvil_status cuvil_call_int(const json_t *call,
                                                const char *key,
                                                int64_t fallback, int64_t low,
                                                int64_t high, int64_t *out);
/* `count` integers; false in *out_present when the key is absent. */
CUVIL_MUST_USE enum cuvil_status cuvil_call_ints(const json_t *call,
                                                 const char *key, int count,
                                                 int64_t *out,
                                                 bool *out_present);
CUVIL_MUST_USE enum cuvil_status cuvil_call_dtype(const json_t *call,
                                                  const char *key, int *out);

#endif /* CUVIL_GPU_LIBRARY_H_ */
