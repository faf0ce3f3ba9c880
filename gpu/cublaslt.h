/* cublaslt.h - inside of gpu/: the library's functions, opened at run time, and
 * a product as its descriptors. */
#ifndef CUVIL_GPU_CUBLASLT_H_
#define CUVIL_GPU_CUBLASLT_H_

#include "gpu/cublaslt_abi.h"
#include "gpu/library.h"

/* X(name, result, parameters) */
#define LT_LIST(X)                                                             \
  X(cublasLtGetVersion, size_t, (void))                                        \
  X(cublasLtGetStatusString, const char *, (int))                              \
  X(cublasLtCreate, int, (void **))                                            \
  X(cublasLtDestroy, int, (void *))                                            \
  X(cublasLtMatmulDescCreate, int, (void **, int, int))                        \
  X(cublasLtMatmulDescDestroy, int, (void *))                                  \
  X(cublasLtMatmulDescSetAttribute, int, (void *, int, const void *, size_t))  \
  X(cublasLtMatrixLayoutCreate, int,                                           \
    (void **, int, uint64_t, uint64_t, int64_t))                               \
  X(cublasLtMatrixLayoutDestroy, int, (void *))                                \
  X(cublasLtMatrixLayoutSetAttribute, int,                                     \
    (void *, int, const void *, size_t))                                       \
  X(cublasLtMatmulPreferenceCreate, int, (void **))                            \
  X(cublasLtMatmulPreferenceDestroy, int, (void *))                            \
  X(cublasLtMatmulPreferenceSetAttribute, int,                                 \
    (void *, int, const void *, size_t))                                       \
  X(cublasLtMatmulAlgoGetHeuristic, int,                                       \
    (void *, void *, void *, void *, void *, void *, void *, int,              \
     struct lt_heuristic *, int *))                                            \
  X(cublasLtMatmulAlgoGetIds, int,                                             \
    (void *, int, int, int, int, int, int, int, int *, int *))                 \
  X(cublasLtMatmulAlgoCapGetAttribute, int,                                    \
    (const struct lt_algorithm *, int, void *, size_t, size_t *))              \
  X(cublasLtMatmulAlgoInit, int,                                               \
    (void *, int, int, int, int, int, int, int, struct lt_algorithm *))        \
  X(cublasLtMatmulAlgoCheck, int,                                              \
    (void *, void *, void *, void *, void *, void *,                           \
     const struct lt_algorithm *, struct lt_heuristic *))                      \
  X(cublasLtMatmulAlgoConfigSetAttribute, int,                                 \
    (struct lt_algorithm *, int, const void *, size_t))                        \
  X(cublasLtMatmulAlgoConfigGetAttribute, int,                                 \
    (const struct lt_algorithm *, int, void *, size_t, size_t *))              \
  X(cublasLtMatmul, int,                                                       \
    (void *, void *, const void *, const void *, void *, const void *, void *, \
     const void *, const void *, void *, void *, void *,                       \
     const struct lt_algorithm *, void *, size_t, void *))

struct lt_functions {
#define FIELD(name, result, parameters) result(*name) parameters;
  LT_LIST(FIELD)
#undef FIELD
};
extern struct lt_functions cuvil_lt;

CUVIL_MUST_USE enum cuvil_status cuvil_lt_checked(int result, const char *call);
#define LT(name, ...) cuvil_lt_checked(cuvil_lt.name(__VA_ARGS__), #name)

struct lt_matrix {
  int type; /* cudaDataType */
  bool trans;
  int64_t ld;
};

struct lt_call {
  struct cuvil_library_call base;
  void *handle; /* the GPU's, borrowed */
  int64_t m, n, k, batch, strides[4];
  struct lt_matrix a, b, c, d;
  int compute, epilogue, bias_type;
  bool bias;
  float alpha, beta;
  int64_t workspace_limit; /* bytes that the program gives */
  void *desc, *layout_a, *layout_b, *layout_c, *layout_d; /* as A, B named by
                                        us; owned */
  struct lt_algorithm algorithm;
};

/* ---- cublaslt_enumerate.c
 * Algorithms that the heuristic did not name: every algorithm of the library
 * with what its capabilities say can be set, those that are nearest to one of
 * the `known` first, that the library's own check accepts within the call's
 * workspace.  At most `limit`; none is no error. */
CUVIL_MUST_USE enum cuvil_status cuvil_lt_enumerate(
    const struct lt_call *call, const struct lt_heuristic *known,
    int known_count, int limit, struct lt_heuristic *out, int *out_count);

#endif /* CUVIL_GPU_CUBLASLT_H_ */
