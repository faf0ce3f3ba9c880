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

#include "fusion/view.h"

enum cuvil_class {
  CUVIL_CLASS_DEAD,   /* nothing that counts needs it */
  CUVIL_CLASS_RENAME, /* its output is its input: Identity, Dropout */
  CUVIL_CLASS_ALIAS,  /* the same bytes under another shape: Reshape */
  CUVIL_CLASS_CONV,
  CUVIL_CLASS_GEMM,
  CUVIL_CLASS_POINTWISE,
  CUVIL_CLASS_POOL,
  CUVIL_CLASS_REDUCE,
  CUVIL_CLASS_SOFTMAX, /* along an axis that is not the last */
  CUVIL_CLASS_VIEW,    /* the same elements, in another order or fewer */
  CUVIL_CLASS_NORM,
  CUVIL_CLASS_GATHER,
  CUVIL_CLASS_ATTENTION,
  CUVIL_CLASS_CONCAT,
  CUVIL_CLASS_PAD
};

/* The first byte of a view is a multiple of this many from its storage's. */
#define CUVIL_VIEW_ALIGNMENT 16

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
  bool warned; /* that a constant overflows */
};

/* ---- classify.c */
/* Fills classes, canon and users; CU_ERR_MODEL_UNSUPPORTED with the whole list
 * (cuvil_fusion_unsupported). */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_classify(struct cuvil_fuse *fuse);
/* What nodes of this operator are; false: not one of a kind of its own. */
bool cuvil_fuse_class_of(const char *op, enum cuvil_class *out);
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
 * the graph has (ceil mode), and what of them an average does not count;
 * false when no pads do. */
bool cuvil_fuse_pool_pads(const struct cuvil_fuse *fuse,
                          const struct cuvil_node *node,
                          struct cuvil_window *window, int64_t out_over[2]);

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
/* A finite constant that the inner type cannot hold becomes its largest number,
 * with one warning for each graph. */
double cuvil_fuse_clamp(struct cuvil_fuse *fuse, int value, double number);
/* The unpadded tensor that `read` would give without a conversion, -1. */
int cuvil_fuse_peek(const struct cuvil_fuse *fuse, int value,
                    enum cuvil_layout layout);
/* A tensor of the value in the type asked: packed in the layout, or else a
 * view in no layout; a conversion when there is neither. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_read(struct cuvil_fuse *fuse,
                                                 int value,
                                                 enum cuvil_layout layout,
                                                 int *out_tensor);
/* A packed tensor in the storage order of a space that the value's axes lie
 * `shift` off in. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_want_space(
    struct cuvil_fuse *fuse, int value, int shift,
    const struct cuvil_space *space, int *out_tensor);
/* A tensor of constant bytes: dims[i] is the value's axis perm[i], in steps of
 * inner[i] (NULL: 1), padded with zeros beyond its extent. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_weight(
    struct cuvil_fuse *fuse, int value, enum cuvil_dtype dtype, int rank,
    const int64_t *dims, const int *perm, const int64_t *inner,
    int *out_tensor);
/* The tensor that a task writes `value` to. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_define(struct cuvil_fuse *fuse,
                                                   int value,
                                                   enum cuvil_layout layout,
                                                   int *out_tensor);
/* The same in the storage order of a space of the value. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_define_space(
    struct cuvil_fuse *fuse, int value, const struct cuvil_space *space,
    int *out_tensor);
/* Whether a task that computes the value in plain layout may write a graph
 * output. */
bool cuvil_fuse_is_output(const struct cuvil_fuse *fuse, int value);
/* Makes a view of tensor `source` a form of the value; not added where its
 * first element is not aligned, or it has too many factors. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_add_view(
    struct cuvil_fuse *fuse, int value, int source,
    const struct cuvil_view *view, bool *out_added);
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
/* to = from, where row 0 of `strides` is `to` and row 1 `from` along the
 * factors of the space. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_copy_problem(
    struct cuvil_space *space, const struct cuvil_tensor *to,
    const struct cuvil_tensor *from, int64_t strides[2][CUVIL_VIEW_MAX],
    struct cuvil_problem *problem);
/* Appends a task; takes a copy. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_add_task(
    struct cuvil_fuse *fuse, const struct cuvil_task *task);

/* ---- express.c */
/* A problem under construction. */
struct cuvil_express {
  struct cuvil_fuse *fuse;
  struct cuvil_task *task;
  int shape;                /* value whose shape the epilogue runs over */
  enum cuvil_layout layout; /* of its full operands */
  bool contraction;         /* there is an accumulator */
  struct cuvil_space space; /* of `shape`, with the problem's dims */
  const char *stem;         /* of side operands' names; NULL: by use */
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
/* Nodes of this operator are statements of an epilogue. */
bool cuvil_express_knows(const char *op);
/* Most statements that the node needs. */
int cuvil_express_cost(const struct cuvil_fuse *fuse,
                       const struct cuvil_node *node);
/* NULL when the node is a pointwise operator that express_node can write. */
const char *cuvil_express_refuses(const struct cuvil_fuse *fuse,
                                  const struct cuvil_node *node);
/* How many of the node's inputs are tensors to it. */
int cuvil_express_inputs(const struct cuvil_node *node);
/* acc * gamma + beta of a norm; -1: absent. */
CUVIL_MUST_USE enum cuvil_status cuvil_express_affine(struct cuvil_express *ex,
                                                      int result, int gamma,
                                                      int beta);
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

/* ---- copy.c */
/* Reshape, Transpose, Slice, ...: a view, or a copy where there is none. */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_view(struct cuvil_fuse *fuse,
                                                 int node);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_concat(struct cuvil_fuse *fuse,
                                                   int node);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_pad(struct cuvil_fuse *fuse,
                                                int node);
/* Start, count and step of a Slice, a scalar Gather or a Part along each axis
 * of its input; false when they are not known here or steps are negative. */
struct cuvil_range {
  int64_t start, count, step;
};
bool cuvil_fuse_ranges(const struct cuvil_fuse *fuse,
                       const struct cuvil_node *node,
                       struct cuvil_range out[CUVIL_GRAPH_MAX_RANK]);
/* Elements added before and after each axis, all of `out_value`; false when
 * they are not known, or it is not a padding with one number. */
bool cuvil_fuse_pads(const struct cuvil_fuse *fuse,
                     const struct cuvil_node *node,
                     int64_t out_pads[2 * CUVIL_GRAPH_MAX_RANK],
                     double *out_value);

/* ---- matrix.c */
/* Leading axes of the product's result that are a batch: 0 when its second
 * operand is one matrix. */
int cuvil_fuse_batch_axes(const struct cuvil_fuse *fuse, int node);
/* Axis that a norm's columns start at. */
int cuvil_fuse_norm_axis(const struct cuvil_fuse *fuse, int node);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_gemm(
    struct cuvil_fuse *fuse, const struct cuvil_group *group);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_norm(
    struct cuvil_fuse *fuse, const struct cuvil_group *group);
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_gather(
    struct cuvil_fuse *fuse, const struct cuvil_group *group);

/* ---- attend.c */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_attention(struct cuvil_fuse *fuse,
                                                      int node);

/* ---- task.c */
CUVIL_MUST_USE enum cuvil_status cuvil_fuse_tasks(struct cuvil_fuse *fuse);
/* A task of the group's label, its problem begun. */
CUVIL_MUST_USE enum cuvil_status cuvil_task_begin(
    struct cuvil_fuse *fuse, const struct cuvil_group *group,
    enum cuvil_kind kind, struct cuvil_task *task, struct cuvil_express *ex);
/* Operand over a tensor, packed; its index. */
int cuvil_task_put(struct cuvil_express *ex, const char *name,
                   enum cuvil_operand_role role, int tensor, int rank,
                   const int *dims);
/* These axes of the shape make up a dimension of the problem. */
void cuvil_task_axes(struct cuvil_express *ex, int dim, int count,
                     const int *axes);
/* The group's pointwise nodes, then the task. */
CUVIL_MUST_USE enum cuvil_status cuvil_task_end(
    struct cuvil_express *ex, const struct cuvil_group *group);
/* Appends an operand with dimensions by index. */
int cuvil_build_operand(struct cuvil_problem *problem, const char *name,
                        enum cuvil_operand_role role, enum cuvil_dtype dtype,
                        bool weight, int rank, const int *dims);

#endif /* CUVIL_FUSION_FUSE_H_ */
