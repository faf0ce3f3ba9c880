/* fuse.h - what the files of fusion/ share; nobody else includes it.
 *
 * Fusing goes in four steps, one file each:
 *   classify.c  what each node is: contraction, pointwise, pool, ...; refuses
 *   group.c     which nodes become one task, by the strategy
 *   tensor.c    which tensors exist, in which layouts, and their conversions
 *   task.c      each group becomes a finished problem over tensors
 * with express.c turning pointwise nodes into statements.
 */
#ifndef CUVIL_FUSION_FUSE_H_
#define CUVIL_FUSION_FUSE_H_

#include "fusion/fusion.h"

enum cuvil_class {
  CUVIL_CLASS_DEAD,   /* nothing that counts needs it */
  CUVIL_CLASS_RENAME, /* its output is its input: Identity, Dropout */
  CUVIL_CLASS_ALIAS,  /* the same bytes under another shape: Reshape */
  CUVIL_CLASS_CONV,
  CUVIL_CLASS_GEMM,
  CUVIL_CLASS_POINTWISE,
  CUVIL_CLASS_POOL,
  CUVIL_CLASS_REDUCE,
  CUVIL_CLASS_TRANSPOSE,
  CUVIL_CLASS_SOFTMAX
};

enum cuvil_layout {
  CUVIL_LAYOUT_PLAIN, /* the value's own axis order */
  CUVIL_LAYOUT_NHWC   /* four axes, channels last */
};

/* Nodes that become one task. */
struct cuvil_group {
  int anchor; /* contraction, pool, reduce or alias node; -1: pointwise */
  int count;
  int *nodes; /* ascending; scratch arena */
  int result; /* the only value seen outside */
};

struct cuvil_fuse {
  const struct cuvil_graph *graph;
  struct cuvil_fused *fused;
  struct cuvil_arena scratch; /* freed when fusing is done */
  int *canon;                 /* value -> value that it renames (or itself) */
  enum cuvil_class *classes;  /* by node */
  int *group_of;              /* node -> group, -1 */
  int *user_start;            /* by value: its edges to live nodes ... */
  int *user_nodes;            /* ... are user_nodes[start[v]..start[v+1]) */
  int *output_uses;           /* value -> how many graph outputs it is */
  int group_count, group_capacity;
  struct cuvil_group *groups;
  int *first_form; /* value -> first tensor that holds it, -1 */
  int *next_form;  /* tensor -> next tensor of the same value, -1 */
  int tensor_capacity, task_capacity;
};

/* ---- classify.c */
/* Fills classes, canon and users; CU_ERR_MODEL_UNSUPPORTED with the whole list
 * (cuvil_fusion_unsupported). */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_classify(struct cuvil_fuse *fuse);
/* Canonical value of input `index`; -1 when absent. */
int cuvil_fuse_input(const struct cuvil_fuse *fuse,
                     const struct cuvil_node *node, int index);
/* Canonical value of the node's first output. */
int cuvil_fuse_output(const struct cuvil_fuse *fuse, int node);
/* A constant of one element, whose value goes into the code. */
bool cuvil_fuse_scalar(const struct cuvil_fuse *fuse, int value, double *out);
/* Axes of a reducing node, made positive, as a bit mask; false when they are
 * not known here. */
bool cuvil_fuse_axes(const struct cuvil_fuse *fuse,
                     const struct cuvil_node *node, unsigned *out_mask);
/* Pads of a pool such that the floor formula gives the output extents that
 * the graph has (ceil mode); false when that would change the result. */
bool cuvil_fuse_pool_pads(const struct cuvil_fuse *fuse,
                          const struct cuvil_node *node,
                          struct cuvil_window *window);

/* ---- group.c */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_group(struct cuvil_fuse *fuse);

/* ---- tensor.c */
enum cuvil_dtype cuvil_fuse_dtype(const struct cuvil_fuse *fuse, int value);
/* A tensor that holds the computed value in the layout and type asked, with
 * channels padded when `pad` and a conversion is needed anyway. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_want(struct cuvil_fuse *fuse,
                                                 int value,
                                                 enum cuvil_layout layout,
                                                 bool pad, int *out_tensor);
/* A tensor of constant bytes: dims[i] is the value's axis perm[i], padded with
 * zeros beyond its extent. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_weight(
    struct cuvil_fuse *fuse, int value, enum cuvil_dtype dtype, int rank,
    const int64_t *dims, const int *perm, int *out_tensor);
/* The tensor that a task writes `value` to. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_define(struct cuvil_fuse *fuse,
                                                   int value,
                                                   enum cuvil_layout layout,
                                                   int *out_tensor);
/* An alias node: its output is its input's bytes. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_alias(struct cuvil_fuse *fuse,
                                                  int node);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_begin_io(struct cuvil_fuse *fuse);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_finish_io(struct cuvil_fuse *fuse);
/* Whether the value exists (or is a graph input) channels last. */
bool cuvil_fuse_is_nhwc(const struct cuvil_fuse *fuse, int value);
/* Both layouts are the same bytes. */
bool cuvil_fuse_trivial(const struct cuvil_value *value);
/* A tensor between the tasks of one node, packed, of no graph value. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_scratch(
    struct cuvil_fuse *fuse, const char *name, enum cuvil_dtype dtype, int rank,
    const int64_t *dims, int *out_tensor);
/* Appends a task; takes a copy. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_add_task(
    struct cuvil_fuse *fuse, const struct cuvil_task *task);

/* ---- express.c */
/* A problem under construction. */
struct cuvil_express {
  struct cuvil_fuse *fuse;
  struct cuvil_task *task;
  int shape;                      /* value whose shape the epilogue runs over */
  enum cuvil_layout layout;       /* of its full operands */
  bool contraction;               /* there is an accumulator */
  int axis_count[CUVIL_MAX_DIMS]; /* axes of `shape`, slow to fast, that make */
  int axes[CUVIL_MAX_DIMS][CUVIL_GRAPH_MAX_RANK]; /* up each dimension */
  struct {
    int value, shift;
    struct cuvil_term term;
  } bound[CUVIL_MAX_STATEMENTS + CUVIL_MAX_OPERANDS]; /* terms already made */
  int bound_count;
  const char *sort[CUVIL_MAX_OPERANDS]; /* stem of each side operand's name */
  bool overflow;
};
/* Axis i of input `index` lies on axis i + shift of the node's output:
 * broadcasting from the right, or along the channels. */
int cuvil_express_shift(const struct cuvil_fuse *fuse, int node, int index);
/* Most statements that the node needs. */
int cuvil_express_cost(const struct cuvil_fuse *fuse,
                       const struct cuvil_node *node);
/* NULL when the node is a pointwise operator that express_node can write. */
const char *cuvil_express_refuses(const struct cuvil_fuse *fuse,
                                  const struct cuvil_node *node);
/* Adds the node's statements; its output is a bound value after. */
CUVIL_MUST_USE enum cuvil_status cuvil_express_node(struct cuvil_express *ex,
                                                    int node);
/* result = alpha * acc + beta * bias; bias -1: none. */
CUVIL_MUST_USE enum cuvil_status cuvil_express_bias(struct cuvil_express *ex,
                                                    int result, int bias,
                                                    int shift, double alpha,
                                                    double beta);
/* Gives the last statement its name `out`. */
CUVIL_MUST_USE enum cuvil_status cuvil_express_finish(struct cuvil_express *ex,
                                                      int result);

/* ---- compose.c */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_softmax(struct cuvil_fuse *fuse,
                                                    int node);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_transpose(struct cuvil_fuse *fuse,
                                                      int node);

/* ---- task.c */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_tasks(struct cuvil_fuse *fuse);
/* Appends an operand with dimensions by index. */
int cuvil_build_operand(struct cuvil_problem *problem, const char *name,
                        enum cuvil_operand_role role, enum cuvil_dtype dtype,
                        bool weight, int rank, const int *dims);

#endif /* CUVIL_FUSION_FUSE_H_ */
