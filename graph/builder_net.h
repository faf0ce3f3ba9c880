/* builder_net.h - what the network builders share: nodes that name their own
 * outputs, and constants as either PyTorch exporter writes them.  Private to
 * graph/builder_*.c.
 */
#ifndef CUVIL_GRAPH_BUILDER_NET_H_
#define CUVIL_GRAPH_BUILDER_NET_H_

#include "base/arena.h"
#include "graph/builder.h"

struct cuvil_net {
  struct cuvil_builder *b;
  struct cuvil_arena arena; /* names */
  bool failed;              /* out of memory */
  bool dynamo, half;
  int counter;
};
CUVIL_MUST_USE enum cuvil_status cuvil_net_open(
    struct cuvil_net *net, const char *name,
    const struct cuvil_network_options *options);
/* Writes the file and frees everything. */
CUVIL_MUST_USE enum cuvil_status cuvil_net_close(struct cuvil_net *net,
                                                 const char *path);

/* printf into the net's arena. */
__attribute__((format(printf, 2, 3))) const char *cuvil_net_text(
    struct cuvil_net *net, const char *format, ...);
/* A node with one output, whose fresh name is returned.  `inputs` is a printf
 * format that gives the list. */
__attribute__((format(printf, 3, 4))) const char *cuvil_net_op(
    struct cuvil_net *net, const char *op, const char *inputs, ...);
/* The same with attribute `name`. */
__attribute__((format(printf, 5, 6))) const char *cuvil_net_op_int(
    struct cuvil_net *net, const char *op, const char *name, int64_t value,
    const char *inputs, ...);
const char *cuvil_net_transpose(struct cuvil_net *net, const char *x, int rank,
                                const int64_t *perm);
/* fp32 scalar: a Constant node (torchscript) or an initializer (dynamo). */
const char *cuvil_net_scalar(struct cuvil_net *net, double value);
/* int64 vector, likewise. */
const char *cuvil_net_ints(struct cuvil_net *net, int count,
                           const int64_t *values);
const char *cuvil_net_index(struct cuvil_net *net, int64_t value);
const char *cuvil_net_reshape(struct cuvil_net *net, const char *x, int rank,
                              const int64_t *dims);
/* start, end, axis, step 1. */
const char *cuvil_net_slice(struct cuvil_net *net, const char *x, int64_t axis,
                            int64_t start, int64_t end);
/* Mean over `count` axes, which are kept: an attribute up to opset 17, an
 * input from 18 on. */
const char *cuvil_net_mean(struct cuvil_net *net, const char *x, int count,
                           const int64_t *axes);
/* x @ W + bias for x of rank 3: MatMul, Add with the bias on the side where
 * the exporter puts it.  Weights `name`.weight and `name`.bias. */
const char *cuvil_net_linear(struct cuvil_net *net, const char *x,
                             const char *name, int64_t from, int64_t to,
                             double gain, bool with_bias);
/* The same for x of rank 2: Gemm with transB. */
const char *cuvil_net_gemm(struct cuvil_net *net, const char *x,
                           const char *name, int64_t from, int64_t to,
                           double gain);

#define CUVIL_NET_DIMS(...) ((const int64_t[]){__VA_ARGS__})

#endif /* CUVIL_GRAPH_BUILDER_NET_H_ */
