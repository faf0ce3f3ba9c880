/* ops.h - what the room knows about each ONNX operator, and the few things
 * that operators share.  Private to graph/.
 *
 * An operator is one row of the table in ops.c: where its definition starts,
 * how many inputs and outputs, which attributes it may carry, how the types of
 * its outputs follow, and how it is computed on the host.  A new operator is a
 * row and two functions; the importer's checks, the folding of constants, the
 * executor and docs/operators.md all read the row.
 *
 * `infer` and `execute` say in a failure only what is wrong; who (file, node)
 * is put before it by the caller (cuvil_node_context).  CU_ERR_MODEL_INVALID
 * is for a broken model, CU_ERR_MODEL_UNSUPPORTED for a good one that asks for
 * more than is there.
 */
#ifndef CUVIL_GRAPH_OPS_H_
#define CUVIL_GRAPH_OPS_H_

#include "graph/graph.h"

#define CUVIL_OP_MAX_OUTPUTS 32

/* Packed row-major data on the host while it is computed with: every float
 * type as fp32, every integer and bool as int64. */
struct cuvil_host_tensor {
  bool integer;
  int rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  int64_t count;
  float *f;   /* NULL when integer */
  int64_t *i; /* NULL when not */
  bool borrowed;
};
/* Uninitialised memory for a tensor of this type. */
CUVIL_MUST_USE enum cuvil_status cuvil_host_create(
    bool integer, int rank, const int64_t *dims, struct cuvil_host_tensor *out);
/* Packed data of `value`'s type seen as a host tensor: converted, or borrowed
 * where it is fp32 or int64 already. */
CUVIL_MUST_USE enum cuvil_status cuvil_host_view(
    const struct cuvil_value *value, const void *data,
    struct cuvil_host_tensor *out);
void cuvil_host_destroy(struct cuvil_host_tensor *tensor);
/* Back to packed data of `dtype`. */
void cuvil_host_store(const struct cuvil_host_tensor *tensor,
                      enum cuvil_dtype dtype, void *out);

/* One evaluation.  inputs[i] is NULL when absent; outputs are allocated, of
 * the inferred shapes, not initialised. */
struct cuvil_op_call {
  const struct cuvil_graph *graph;
  const struct cuvil_node *node;
  const struct cuvil_host_tensor *const *inputs;
  struct cuvil_host_tensor *outputs;
  int threads;
};

struct cuvil_type {
  enum cuvil_dtype dtype;
  int rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
};

enum {
  CUVIL_OP_VIEW = 1,  /* output 0 holds input 0's bytes, only its shape differs
                       */
  CUVIL_OP_FOLD = 2,  /* cheap enough to be evaluated at import */
  CUVIL_OP_FLOAT = 4, /* input 0 must be of a float type */
};
struct cuvil_op {
  const char *name;
  int first_opset;            /* oldest definition that is understood */
  int min_inputs, max_inputs; /* max -1: any number */
  int max_outputs;            /* of those named and used */
  unsigned flags;             /* CUVIL_OP_* */
  const char *attributes;     /* those allowed: "name:kind", separated by
                                 spaces; kinds i f s I F t (a tensor) */
  enum cuvil_status (*infer)(const struct cuvil_graph *graph,
                             const struct cuvil_node *node,
                             struct cuvil_type *out /* per output */);
  enum cuvil_status (*execute)(const struct cuvil_op_call *call);
  const char *note; /* what is not supported of it; "" */
};

/* The newest opset of ai.onnx whose definitions the table was held against. */
#define CUVIL_OPSET_NEWEST 23

const struct cuvil_op *cuvil_op_find(const char *name); /* NULL: unknown */
/* The whole table; *out_count rows. */
const struct cuvil_op *cuvil_op_table(int *out_count);

/* ---- for infer and execute */
/* Input `index`, or NULL when absent. */
const struct cuvil_value *cuvil_op_input(const struct cuvil_graph *graph,
                                         const struct cuvil_node *node,
                                         int index);
/* Integers of a constant input of rank 0 or 1; *out_count -1 when absent.  A
 * computed one is CU_ERR_MODEL_UNSUPPORTED. */
CUVIL_MUST_USE enum cuvil_status cuvil_op_const_ints(
    const struct cuvil_graph *graph, const struct cuvil_node *node, int index,
    int64_t *out, int limit, int *out_count);
/* Axes from attribute "axes" or from input `index`, made non-negative, checked
 * for range and duplicates; *out_count -1: neither is there. */
CUVIL_MUST_USE enum cuvil_status cuvil_op_axes(const struct cuvil_graph *graph,
                                               const struct cuvil_node *node,
                                               int index, int rank,
                                               int *out_axes, int *out_count);
/* Attribute `name` as an axis of `rank` dimensions; [-rank, rank + extra). */
CUVIL_MUST_USE enum cuvil_status cuvil_op_axis(const struct cuvil_node *node,
                                               const char *name,
                                               int64_t fallback, int rank,
                                               int extra, int *out);
void cuvil_type_copy(struct cuvil_type *out, const struct cuvil_value *value);
/* numpy broadcasting of `value` into `out`'s dims. */
CUVIL_MUST_USE enum cuvil_status cuvil_type_broadcast(
    struct cuvil_type *out, const struct cuvil_value *value);

/* Element steps of a packed tensor. */
void cuvil_host_steps(const struct cuvil_host_tensor *x, int64_t *out_steps);
/* Step of `x` along each dimension of a tensor of `rank` that it broadcasts
 * to; 0 where it repeats (ops_pointwise.c). */
void cuvil_host_broadcast_steps(const struct cuvil_host_tensor *x, int rank,
                                int64_t *out_steps);
/* Copies count[0] x ... elements from x (start, step per dimension) to y
 * (likewise); steps in elements, any sign (ops_move.c). */
struct cuvil_strided {
  int rank;
  int64_t count[CUVIL_GRAPH_MAX_RANK];
  int64_t x_step[CUVIL_GRAPH_MAX_RANK], y_step[CUVIL_GRAPH_MAX_RANK];
  int64_t x_start, y_start;
};
void cuvil_strided_copy(const struct cuvil_strided *s,
                        const struct cuvil_host_tensor *x,
                        struct cuvil_host_tensor *y);
/* Type that output `index` of the node has in the graph. */
enum cuvil_dtype cuvil_op_output_dtype(const struct cuvil_op_call *call,
                                       int index);
/* Input `index` of the evaluation; NULL when absent. */
const struct cuvil_host_tensor *cuvil_op_tensor(
    const struct cuvil_op_call *call, int index);

/* ---- windows (window.c) */
CUVIL_MUST_USE enum cuvil_status cuvil_window_resolve(
    const struct cuvil_graph *graph, const struct cuvil_node *node,
    struct cuvil_window *out);
/* Sets the spatial extents of `out` for an input like `x`. */
CUVIL_MUST_USE enum cuvil_status cuvil_window_outputs(
    const struct cuvil_window *window, const struct cuvil_value *x,
    struct cuvil_type *out);

/* TensorProto.DataType number to our type; a number that ONNX does not define
 * is CU_ERR_MODEL_INVALID, one that Cuvil has not CU_ERR_MODEL_UNSUPPORTED. */
CUVIL_MUST_USE enum cuvil_status cuvil_onnx_dtype(int64_t number,
                                                  enum cuvil_dtype *out);

/* Puts `path: node "x" (Op): ` before the message of a failed `status`, and
 * returns it. */
CUVIL_MUST_USE enum cuvil_status cuvil_node_context(
    const struct cuvil_graph *graph, const struct cuvil_node *node,
    enum cuvil_status status);
/* Control characters replaced, cut to `size` with "...". */
void cuvil_text_clean(const char *text, char *out, size_t size);

/* ---- rows' functions, by file */
#define CUVIL_OP_FUNCTIONS(name)                                   \
  enum cuvil_status cuvil_infer_##name(const struct cuvil_graph *, \
                                       const struct cuvil_node *,  \
                                       struct cuvil_type *);       \
  enum cuvil_status cuvil_execute_##name(const struct cuvil_op_call *)
CUVIL_OP_FUNCTIONS(unary);
CUVIL_OP_FUNCTIONS(clip);
CUVIL_OP_FUNCTIONS(broadcast);
CUVIL_OP_FUNCTIONS(conv);
CUVIL_OP_FUNCTIONS(pool);
CUVIL_OP_FUNCTIONS(global_pool);
CUVIL_OP_FUNCTIONS(gemm);
CUVIL_OP_FUNCTIONS(matmul);
CUVIL_OP_FUNCTIONS(batch_norm);
CUVIL_OP_FUNCTIONS(reduce);
CUVIL_OP_FUNCTIONS(softmax);
CUVIL_OP_FUNCTIONS(identity);
CUVIL_OP_FUNCTIONS(reshape);
CUVIL_OP_FUNCTIONS(flatten);
CUVIL_OP_FUNCTIONS(squeeze);
CUVIL_OP_FUNCTIONS(unsqueeze);
CUVIL_OP_FUNCTIONS(transpose);
CUVIL_OP_FUNCTIONS(concat);
CUVIL_OP_FUNCTIONS(pad);
CUVIL_OP_FUNCTIONS(cast);
CUVIL_OP_FUNCTIONS(constant);
CUVIL_OP_FUNCTIONS(constant_of_shape);
CUVIL_OP_FUNCTIONS(shape);
CUVIL_OP_FUNCTIONS(gather);
CUVIL_OP_FUNCTIONS(slice);
CUVIL_OP_FUNCTIONS(compare);
CUVIL_OP_FUNCTIONS(not );
CUVIL_OP_FUNCTIONS(is_nan);
CUVIL_OP_FUNCTIONS(where);
CUVIL_OP_FUNCTIONS(cast_like);
CUVIL_OP_FUNCTIONS(size);
CUVIL_OP_FUNCTIONS(range);
CUVIL_OP_FUNCTIONS(expand);
CUVIL_OP_FUNCTIONS(tile);
CUVIL_OP_FUNCTIONS(trilu);
CUVIL_OP_FUNCTIONS(split);
CUVIL_OP_FUNCTIONS(cumsum);
CUVIL_OP_FUNCTIONS(gather_elements);
CUVIL_OP_FUNCTIONS(gather_nd);
CUVIL_OP_FUNCTIONS(scatter_nd);
CUVIL_OP_FUNCTIONS(layer_norm);
CUVIL_OP_FUNCTIONS(attention);

#endif /* CUVIL_GRAPH_OPS_H_ */
