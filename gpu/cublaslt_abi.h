/* cublaslt_abi.h - the part of cuBLASLt's binary interface that we use.
 *
 * The vendor's header comes with a package of half a gigabyte that a machine
 * without a GPU has no use for; the numbers below are frozen in the interface
 * (cuBLAS Library documentation, "cublasLt Datatypes Reference").  abi_check.c
 * holds them against the vendor's header where that is installed.
 */
#ifndef CUVIL_GPU_CUBLASLT_ABI_H_
#define CUVIL_GPU_CUBLASLT_ABI_H_

#include <stddef.h>
#include <stdint.h>

enum { LT_SUCCESS = 0 };
enum { LT_R_32F = 0, LT_R_16F = 2, LT_R_16BF = 14 };
enum { LT_COMPUTE_32F = 68, LT_COMPUTE_32F_FAST_TF32 = 77 };
enum { LT_OP_N = 0, LT_OP_T = 1 };
enum {
  LT_EPILOGUE_DEFAULT = 1,
  LT_EPILOGUE_RELU = 2,
  LT_EPILOGUE_BIAS = 4,
  LT_EPILOGUE_GELU = 32
};
enum { LT_REDUCTION_INPLACE = 1, LT_REDUCTION_COMPUTE_TYPE = 2 };
enum { LT_LAYOUT_BATCH_COUNT = 5, LT_LAYOUT_BATCH_OFFSET = 6 };
enum {
  LT_DESC_TRANSA = 3,
  LT_DESC_TRANSB = 4,
  LT_DESC_EPILOGUE = 7,
  LT_DESC_BIAS_POINTER = 8,
  LT_DESC_BIAS_DATA_TYPE = 26
};
enum {
  LT_PREF_MAX_WORKSPACE_BYTES = 1,
  LT_PREF_REDUCTION_MASK = 3,
  LT_PREF_ALIGNMENT_A = 5,
  LT_PREF_ALIGNMENT_B = 6,
  LT_PREF_ALIGNMENT_C = 7,
  LT_PREF_ALIGNMENT_D = 8
};
enum {
  LT_CONFIG_ID = 0,
  LT_CONFIG_TILE = 1,
  LT_CONFIG_SPLIT_K = 2,
  LT_CONFIG_REDUCTION = 3,
  LT_CONFIG_SWIZZLE = 4,
  LT_CONFIG_CUSTOM = 5,
  LT_CONFIG_STAGES = 6,
  LT_CONFIG_INNER_SHAPE = 7, /* 16 bits, as the next; the others 32 */
  LT_CONFIG_CLUSTER = 8
};

enum {
  LT_CAP_SPLIT_K = 0,
  LT_CAP_REDUCTION_MASK = 1,
  LT_CAP_SWIZZLE = 2,
  LT_CAP_TILES = 6, /* arrays of 32 bits, as STAGES */
  LT_CAP_CUSTOM_MOST = 7,
  LT_CAP_STAGES = 13
};
enum { /* blocks along rows and columns of D as the library sees it */
       LT_CLUSTER_AUTO = 0,
       LT_CLUSTER_1X1 = 2,
       LT_CLUSTER_2X1 = 3,
       LT_CLUSTER_1X2 = 5
};

struct lt_algorithm {
  uint64_t data[8];
};
struct lt_heuristic {
  struct lt_algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

#endif /* CUVIL_GPU_CUBLASLT_ABI_H_ */
