/* skinny.h - a point of gemm_skinny's space, and what it makes of a problem. */
#ifndef CUVIL_KERNELS_GEMM_SKINNY_SKINNY_H_
#define CUVIL_KERNELS_GEMM_SKINNY_SKINNY_H_

#include "kernels/common/mma.h"

enum { CUVIL_SKINNY_ROWS = 64 }; /* of A, or columns of C, at most */

/* In the order of spaces/gemm_skinny.json; a unit test holds them together. */
enum cuvil_skinny_param {
  CUVIL_SKINNY_TILE_M,
  CUVIL_SKINNY_WARP_N,
  CUVIL_SKINNY_WARPS_N,
  CUVIL_SKINNY_SLICE_K,
  CUVIL_SKINNY_GROUPS,
  CUVIL_SKINNY_STAGES,
  CUVIL_SKINNY_SPLIT_K,
  CUVIL_SKINNY_REDUCE, /* 0: through global memory, 1: by a cluster */
  CUVIL_SKINNY_PANEL,  /* KiB */
  CUVIL_SKINNY_PERSIST,
  CUVIL_SKINNY_TENSOR,
  CUVIL_SKINNY_PDL,
  CUVIL_SKINNY_PARAMS
};
extern const char *const cuvil_skinny_param_names[CUVIL_SKINNY_PARAMS];

/* A point beside a problem.  The operand of few rows is kept, the other
 * streams: swapped, where A has more rows than that and B few.  The view is as
 * the kernel sees it: a is kept, b streams, m counts rows of a and n of b. */
struct cuvil_skinny {
  struct cuvil_mma_view view;
  bool swapped, kept_constant;
  int tile_m, warp_n, warps_n, slice_k, groups, stages, split, persist;
  bool cluster, tensor, pdl;
  int tile_n, threads;
  int sums;               /* registers of a thread that hold sums */
  int out_piece;          /* columns that a thread finishes at once */
  int ring_bytes;         /* of the block */
  int64_t tiles;          /* of columns, of one product */
  int64_t workers;        /* blocks that share them */
  int64_t turns;          /* of K, over all parts */
  int64_t chunk;          /* turns in the panel at once */
  int turn_k, turn_bytes; /* elements of K of a turn; its bytes in the panel */
};
/* False: the point cannot compute the problem. */
bool cuvil_skinny_of(const struct cuvil_query *query,
                     const struct cuvil_config *config,
                     struct cuvil_skinny *out);

bool cuvil_skinny_derive(const struct cuvil_query *query,
                         const struct cuvil_config *config,
                         struct cuvil_derived *out);

/* ---- skinny_emit.c */
CUVIL_MUST_USE enum cuvil_status cuvil_skinny_emit(
    const struct cuvil_query *query, const struct cuvil_config *config,
    struct cuvil_program **out);

#endif /* CUVIL_KERNELS_GEMM_SKINNY_SKINNY_H_ */
