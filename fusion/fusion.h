/* fusion.h - a graph in, a list of problems over tensors out.
 *
 * Strategies: `none` (one problem a node), `fine` (pointwise chains), `medium`
 * (blocks around a contraction: conv or gemm + bias + activation + residual).
 * Layout: convolutional regions are NHWC inside; conversions stand at the
 * borders and are counted.  Reshape, Transpose, Slice and Split are views where
 * strides can say them: several tensors then lie in one storage.  A tensor that
 * is also a graph output, or has a second user, is never fused away.
 */
#ifndef CUVIL_FUSION_FUSION_H_
#define CUVIL_FUSION_FUSION_H_

#include "graph/graph.h"
#include "problem/problem.h"

enum cuvil_fusion_strategy {
  CUVIL_FUSION_NONE,
  CUVIL_FUSION_FINE,
  CUVIL_FUSION_MEDIUM
};
enum cuvil_precision {
  CUVIL_PRECISION_MODEL,
  CUVIL_PRECISION_FP32,
  CUVIL_PRECISION_TF32,
  CUVIL_PRECISION_FP16,
  CUVIL_PRECISION_BF16
};
/* The strategy that cuvil-tune and cuvil-compile both use when not told. */
#define CUVIL_FUSION_DEFAULT CUVIL_FUSION_MEDIUM

CUVIL_MUST_USE enum cuvil_status cuvil_fusion_strategy_parse(
    const char *text, enum cuvil_fusion_strategy *out);
CUVIL_MUST_USE enum cuvil_status cuvil_precision_parse(
    const char *text, enum cuvil_precision *out);
const char *cuvil_fusion_strategy_name(enum cuvil_fusion_strategy strategy);
const char *cuvil_precision_name(enum cuvil_precision precision);

struct cuvil_fusion_options {
  enum cuvil_fusion_strategy strategy;
  enum cuvil_precision precision;
};

enum cuvil_tensor_kind {
  CUVIL_TENSOR_INPUT,  /* graph input `io` */
  CUVIL_TENSOR_OUTPUT, /* graph output `io` */
  CUVIL_TENSOR_WEIGHT, /* constant; bytes by cuvil_fused_weight */
  CUVIL_TENSOR_LOCAL
};
struct cuvil_tensor {
  enum cuvil_tensor_kind kind;
  int io;
  int value; /* graph value it holds; -1: none (a conversion's result) */
  enum cuvil_dtype dtype;
  int rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];    /* physical order */
  int perm[CUVIL_GRAPH_MAX_RANK];        /* dims[i] is the value's axis perm[i];
                                            identity unless layout was changed */
  int64_t inner[CUVIL_GRAPH_MAX_RANK];   /* steps of that axis for one of
                                            dims[i]; 1 unless an axis is made of
                                            several dims */
  int64_t strides[CUVIL_GRAPH_MAX_RANK]; /* elements; packed unless a view */
  int64_t offset; /* elements from the start of the storage; 0 unless a view */
  uint64_t bytes; /* of its own storage */
  bool padded;    /* holds more channels than the value has */
  int alias;      /* tensor whose storage this is a view of; -1: its own */
  const char *name;
};
struct cuvil_task {
  struct cuvil_problem problem;
  int tensors[CUVIL_MAX_OPERANDS]; /* tensor of each operand */
  const char *label; /* names of the nodes it computes, "+"-joined */
  bool conversion;   /* layout or type change at a border */
};
struct cuvil_fused {
  struct cuvil_arena arena;
  const struct cuvil_graph *graph; /* as rewritten: inputs and outputs are the
                                      model's */
  struct cuvil_graph *copy;        /* what `graph` points to; owned */
  struct cuvil_fusion_options options;
  int tensor_count;
  struct cuvil_tensor *tensors;
  int task_count;
  struct cuvil_task *tasks; /* in execution order */
  int conversion_count;
};

/* `graph` is borrowed and must outlive the result: constants stay there. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse(
    const struct cuvil_graph *graph, const struct cuvil_fusion_options *options,
    struct cuvil_fused **out);
/* Table "operator  count  reason  names" of this thread's last cuvil_fuse that
 * was refused as unsupported; "" otherwise. */
const char *cuvil_fusion_unsupported(void);
void cuvil_fused_destroy(struct cuvil_fused *fused);
/* Writes the bytes of a WEIGHT tensor: permuted, padded, converted. */
CUVIL_MUST_USE enum cuvil_status cuvil_fused_weight(
    const struct cuvil_fused *fused, int tensor, void *out);
/* Distinct problems: texts[i] canonical (arena-owned), calls[i] how often,
 * task_problem[t] its index.  Arrays live in the fused graph's arena. */
struct cuvil_problem_set {
  int count;
  const char **texts;
  int *calls;
  int *task_problem;
};
CUVIL_MUST_USE enum cuvil_status cuvil_fused_problems(
    struct cuvil_fused *fused, struct cuvil_problem_set *out);
/* Runs the tasks on the CPU by the problems' references: the test that fusion
 * changed nothing.  inputs and outputs as graph/execute.h. */
CUVIL_MUST_USE enum cuvil_status cuvil_fused_execute(
    const struct cuvil_fused *fused, const void *const *inputs,
    void *const *outputs, int threads);

/* What an ONNX operator becomes on the GPU. */
enum cuvil_coverage {
  CUVIL_COVERAGE_CONSTANT,  /* nothing: only where its inputs are constant */
  CUVIL_COVERAGE_CONDITION, /* arithmetic, as or in a condition of a Where */
  CUVIL_COVERAGE_KERNEL,    /* a problem, or a part of one */
  CUVIL_COVERAGE_VIEW,      /* its input by other strides, else a copy */
  CUVIL_COVERAGE_FREE       /* nothing: it is gone after import */
};
enum cuvil_coverage cuvil_fusion_coverage(const char *op);
/* "constants", "condition", "kernel", "view", "free". */
const char *cuvil_fusion_coverage_name(const char *op);

/* Appends the fused graph as Graphviz text. */
CUVIL_MUST_USE enum cuvil_status cuvil_fused_dot(
    const struct cuvil_fused *fused, struct cuvil_buf *out);

#endif /* CUVIL_FUSION_FUSION_H_ */
