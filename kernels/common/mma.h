/* mma.h - what gemm_mma, conv_mma, gemm_simt and conv_simt share on the host:
 * a problem seen as a matrix product, a point of their space, its cost, and
 * the emitted program.
 *
 * The families' spaces have the same parameters in the same order (enum
 * cuvil_mma_param); a unit test holds the space files against it.
 */
#ifndef CUVIL_KERNELS_COMMON_MMA_H_
#define CUVIL_KERNELS_COMMON_MMA_H_

#include "kernels/family.h"

enum cuvil_mma_param {
  CUVIL_MMA_TILE_M,
  CUVIL_MMA_TILE_N,
  CUVIL_MMA_TILE_K,
  CUVIL_MMA_WARPS_M,
  CUVIL_MMA_WARPS_N,
  CUVIL_MMA_SLICE_K,
  CUVIL_MMA_STAGES,
  CUVIL_MMA_SPLIT_K,
  CUVIL_MMA_REDUCE, /* 0: through global memory, 1: by a cluster */
  CUVIL_MMA_ORDER,  /* see tile_row in mma_index.cuh */
  CUVIL_MMA_PDL,
  CUVIL_MMA_AHEAD, /* fragments are read one step ahead */
  CUVIL_MMA_PARAMS
};
extern const char *const cuvil_mma_param_names[CUVIL_MMA_PARAMS];

/* ---- mma_view.c
 * The product: C[m,n] = A[m,k] B[k,n]; for a convolution m counts output
 * places, n output channels, k taps times channels. */
struct cuvil_mma_view {
  int64_t m, n, k;
  enum cuvil_dtype element;        /* of both inputs */
  int size;                        /* of an element, bytes */
  int a_vector, b_vector;          /* bytes that one copy may take: 16 8 4 2 */
  bool a_transposed;               /* stored [k][m] */
  bool b_transposed;               /* stored [k][n] */
  bool b_constant;                 /* a weight */
  bool out_vector;                 /* rows of C allow 16-byte accesses */
  int64_t pitch, pitch_a, pitch_b; /* elements between stored rows */
  /* A batch of such products; 1 and not batched: there is no such dimension. */
  bool batched;
  int64_t batch;
  int64_t step, step_a, step_b; /* elements from one product's to the next's */
  bool conv, plain; /* plain: 1x1 without padding: rows of A are pixels */
};
/* false: not a product that these families do. */
bool cuvil_mma_view_gemm(const struct cuvil_problem *problem,
                         struct cuvil_mma_view *out);
bool cuvil_mma_view_conv(const struct cuvil_problem *problem,
                         struct cuvil_mma_view *out);
/* The one of the problem's kind. */
bool cuvil_mma_view(const struct cuvil_problem *problem,
                    struct cuvil_mma_view *out);
/* Tiles of the output, over the batch. */
int64_t cuvil_mma_tiles(const struct cuvil_mma_view *view, int64_t tile_m,
                        int64_t tile_n);

/* ---- mma.c: the families' functions, but for emit.  mma: tensor cores; simt:
 * fp32 without them. */
bool cuvil_mma_applicable(const struct cuvil_problem *problem,
                          const struct cuvil_arch *arch);
void cuvil_mma_default(const struct cuvil_query *query,
                       struct cuvil_config *out);
bool cuvil_mma_derive(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      struct cuvil_derived *out);
double cuvil_mma_predict(const struct cuvil_query *query,
                         const struct cuvil_config *config,
                         const struct cuvil_derived *derived);
bool cuvil_simt_applicable(const struct cuvil_problem *problem,
                           const struct cuvil_arch *arch);
void cuvil_simt_default(const struct cuvil_query *query,
                        struct cuvil_config *out);
bool cuvil_simt_derive(const struct cuvil_query *query,
                       const struct cuvil_config *config,
                       struct cuvil_derived *out);
double cuvil_simt_predict(const struct cuvil_query *query,
                          const struct cuvil_config *config,
                          const struct cuvil_derived *derived);

/* ---- mma_epilogue.c
 * Appends SIDE_WORDS and, where it is 1, struct side_words, load_side_words
 * and epilogue_words; SIDE_LINE (elements) and, where it is not 0,
 * prefetch_sides.  Goes after cuvil_emit_epilogue's and mma_ptx.cuh's text. */
void cuvil_mma_side_words(const struct cuvil_problem *problem,
                          const struct cuvil_mma_view *view,
                          struct cuvil_buf *out);

/* ---- mma_emit.c
 * Appends an embedded file's text, comments left out. */
CUVIL_MUST_USE enum cuvil_status cuvil_mma_append(const char *name,
                                                  struct cuvil_buf *out);
struct cuvil_mma_kernel {
  const char *entry;
  const char *multiplier; /* embedded name: what multiplies a stage */
  const char *loader;     /* ... : where A comes from, and the parameters */
  bool simt;
  /* Adds the launch arguments from `pitch` on. */
  enum cuvil_status (*arguments)(const struct cuvil_problem *problem,
                                 const struct cuvil_mma_view *view,
                                 struct cuvil_step *step);
};
/* The whole program. */
CUVIL_MUST_USE enum cuvil_status cuvil_mma_emit(
    const struct cuvil_query *query, const struct cuvil_config *config,
    const struct cuvil_mma_kernel *kernel, struct cuvil_program **out);
/* The two kinds' `arguments`. */
CUVIL_MUST_USE enum cuvil_status cuvil_mma_gemm_arguments(
    const struct cuvil_problem *problem, const struct cuvil_mma_view *view,
    struct cuvil_step *step);
CUVIL_MUST_USE enum cuvil_status cuvil_mma_conv_arguments(
    const struct cuvil_problem *problem, const struct cuvil_mma_view *view,
    struct cuvil_step *step);
/* magic and shift for divide() in mma_index.cuh; divisor >= 1, < 2^31. */
void cuvil_mma_divider(uint32_t divisor, uint32_t *out_magic,
                       uint32_t *out_shift);

#endif /* CUVIL_KERNELS_COMMON_MMA_H_ */
