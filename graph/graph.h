/* graph.h - an ONNX model in memory.
 *
 * Values and nodes are in arrays; a node refers to values by index (-1: an
 * absent optional input).  Nodes are in topological order after import.
 * Everything lives in the graph's arena; weights point into the mapped model
 * file or its unpacked message, which the graph owns too.
 */
#ifndef CUVIL_GRAPH_GRAPH_H_
#define CUVIL_GRAPH_GRAPH_H_

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"

#define CUVIL_GRAPH_MAX_RANK 8

struct cuvil_value {
  const char *name;
  enum cuvil_dtype dtype; /* NONE: not known */
  int rank;               /* -1: not known */
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  const void *data; /* constant, packed, row-major; NULL: computed */
  int producer;     /* node, or -1 */
  bool is_input;    /* of the graph */
  bool is_output;   /* of the graph: counts as a user */
  int user_count;   /* edges, not nodes; a graph output adds one */
  bool owned;       /* data is arena memory that no other value shares */
};

enum cuvil_attribute_kind {
  CUVIL_ATTR_INT,
  CUVIL_ATTR_FLOAT,
  CUVIL_ATTR_STRING,
  CUVIL_ATTR_INTS,
  CUVIL_ATTR_FLOATS,
  CUVIL_ATTR_TENSOR, /* index of a constant value */
  CUVIL_ATTR_OTHER   /* graph, strings, ...: no operator here takes one */
};
struct cuvil_attribute {
  const char *name;
  enum cuvil_attribute_kind kind;
  int64_t i;
  double f;
  const char *s;
  int count;
  const int64_t *ints;
  const float *floats;
  int tensor;
};

struct cuvil_node {
  const char *name;   /* may be "" */
  const char *op;     /* "Conv" */
  const char *domain; /* "" for ai.onnx */
  int opset;          /* of its domain in this model */
  int input_count, output_count;
  int *inputs, *outputs; /* value indices; -1 absent */
  int attribute_count;
  struct cuvil_attribute *attributes;
  bool removed; /* by folding or fusion; skip it */
};

struct cuvil_graph {
  struct cuvil_arena arena;
  const char *name, *path, *producer;
  int opset; /* of ai.onnx */
  int value_count, value_capacity;
  struct cuvil_value *values;
  int node_count, node_capacity;
  struct cuvil_node *nodes;
  int input_count, output_count;
  int *inputs, *outputs;
  int model_node_count; /* as the file had it, for reports */
  void *owner;          /* mapped files and unpacked message; import.c */
};

/* "in0:1x3x224x224,in1:1x128" given by --shapes. */
struct cuvil_import_options {
  const char *shapes; /* NULL: as the file says */
};
/* Reads, checks, orders, infers shapes, folds constants and BatchNorms.
 * CU_ERR_MODEL_INVALID names file and node; CU_ERR_MODEL_UNSUPPORTED comes
 * after every unsupported node was collected (cuvil_graph_unsupported). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_import(
    const char *path, const struct cuvil_import_options *options,
    struct cuvil_graph **out);
void cuvil_graph_destroy(struct cuvil_graph *graph);
/* Table "operator  count  reason  names" of the last import on this thread
 * that was refused as unsupported; "" otherwise. */
const char *cuvil_graph_unsupported(void);

/* The operators that are understood, as the Markdown of docs/operators.md;
 * `gpu` gives each one's word for the GPU. */
struct cuvil_buf;
void cuvil_graph_operators(const char *(*gpu)(const char *op),
                           struct cuvil_buf *out);

/* ---- building by hand (tests, random graphs).  Strings are copied; adding
 * may move the `values` and `nodes` arrays, so keep indices, not pointers. */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_create(struct cuvil_graph **out);
CUVIL_MUST_USE enum cuvil_status cuvil_graph_add_value(
    struct cuvil_graph *graph, const char *name, enum cuvil_dtype dtype,
    int rank /* -1: to be inferred */, const int64_t *dims,
    const void *data /* borrowed */, int *out_value);
CUVIL_MUST_USE enum cuvil_status cuvil_graph_add_input(
    struct cuvil_graph *graph, int value);
CUVIL_MUST_USE enum cuvil_status cuvil_graph_add_output(
    struct cuvil_graph *graph, int value);
/* Appends a node of ai.onnx at the graph's opset; its outputs are new values
 * or ones added before with rank -1. */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_add_node(
    struct cuvil_graph *graph, const char *name, const char *op,
    int input_count, const int *inputs, int output_count, const int *outputs,
    int *out_node);
/* Adds or replaces; `attribute` is copied deeply. */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_set_attribute(
    struct cuvil_graph *graph, int node,
    const struct cuvil_attribute *attribute);
CUVIL_MUST_USE enum cuvil_status cuvil_graph_set_int(struct cuvil_graph *graph,
                                                     int node, const char *name,
                                                     int64_t value);
CUVIL_MUST_USE enum cuvil_status cuvil_graph_set_ints(struct cuvil_graph *graph,
                                                      int node,
                                                      const char *name,
                                                      int count,
                                                      const int64_t *values);
/* What import does once the file is read: checks operators and references,
 * orders, infers shapes, folds constants and BatchNorms, removes what no
 * output needs.  A graph built by hand calls it before it is used. */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_finish(struct cuvil_graph *graph);
/* `node "conv1" (Conv)`, or `node #12 (Conv, output "y")` when it has no name;
 * control characters replaced, long names cut.  Returns `out`. */
const char *cuvil_node_describe(const struct cuvil_graph *graph,
                                const struct cuvil_node *node, char out[192]);

/* ---- reading */
const struct cuvil_attribute *cuvil_node_attribute(
    const struct cuvil_node *node, const char *name); /* NULL: absent */
int64_t cuvil_node_int(const struct cuvil_node *node, const char *name,
                       int64_t fallback);
double cuvil_node_float(const struct cuvil_node *node, const char *name,
                        double fallback);
const char *cuvil_node_string(const struct cuvil_node *node, const char *name,
                              const char *fallback);
/* Copies up to `limit` ints; returns how many there are, 0 when absent. */
int cuvil_node_ints(const struct cuvil_node *node, const char *name,
                    int64_t *out, int limit);
int64_t cuvil_value_elements(const struct cuvil_value *value);
/* Conv and pool: pads resolved from auto_pad, strides and dilations with
 * their defaults; CU_ERR_MODEL_INVALID names the node. */
struct cuvil_window {
  int64_t kernel[2], stride[2], pad[4] /* top left bottom right */, dilation[2];
  bool ceil_mode, count_include_pad;
};
CUVIL_MUST_USE enum cuvil_status cuvil_node_window(
    const struct cuvil_graph *graph, const struct cuvil_node *node,
    struct cuvil_window *out);
/* Output extent of a window on axis 0 (height) or 1 (width); 0 when the
 * window does not fit. */
int64_t cuvil_window_extent(const struct cuvil_window *window, int axis,
                            int64_t in);
/* Number of a type in ONNX files (TensorProto.DataType); 0: it has none. */
int cuvil_dtype_to_onnx(enum cuvil_dtype dtype);
/* Recounts users and producers after a change. */
void cuvil_graph_relink(struct cuvil_graph *graph);

#endif /* CUVIL_GRAPH_GRAPH_H_ */
