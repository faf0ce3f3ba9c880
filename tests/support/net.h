/* net.h - small graphs in a few lines, and random convolutional ones.
 *
 * Values made here carry their shape beside them, because the graph infers
 * shapes only when it is finished.  Weights come from the net's seed.
 * Everything fails the running test when it goes wrong.
 */
#ifndef CUVIL_TESTS_SUPPORT_NET_H_
#define CUVIL_TESTS_SUPPORT_NET_H_

#include "base/clock.h"
#include "graph/graph.h"

enum { NET_MAX_VALUES = 512 };

struct net {
  struct cuvil_graph *graph;
  struct cuvil_rng rng;
  int rank[NET_MAX_VALUES];
  int64_t dims[NET_MAX_VALUES][4];
  void *memory[NET_MAX_VALUES]; /* constants */
  int memory_count, name_count;
};

void net_begin(struct net *net, uint64_t seed);
void net_end(struct net *net); /* destroys the graph too */

int net_input(struct net *net, int rank, const int64_t *dims);
void net_output(struct net *net, int value);
/* Normal random numbers times `scale`; values: given numbers instead. */
int net_constant(struct net *net, int rank, const int64_t *dims, double scale,
                 const float *values);
/* A node whose output has the given shape. */
int net_node(struct net *net, const char *op, int input_count,
             const int *inputs, int rank, const int64_t *dims);
int net_last_node(const struct net *net);
/* Output has the shape of the input. */
int net_unary(struct net *net, const char *op, int x);
int net_binary(struct net *net, const char *op, int a, int b);
int net_conv(struct net *net, int x, int64_t k, int64_t window, int64_t stride,
             int64_t pad, int64_t group, bool bias);
int net_pool(struct net *net, const char *op, int x, int64_t window,
             int64_t stride, int64_t pad);
int net_global_pool(struct net *net, int x);
int net_flatten(struct net *net, int x);
int net_gemm(struct net *net, int x, int64_t n, bool bias);
int net_batch_norm(struct net *net, int x);
void net_finish(struct net *net);

/* A random convolutional graph of about `size` nodes, finished. */
void net_random(struct net *net, uint64_t seed, int size);
/* ResNet-50's structure: `width` channels in the first stage, 64 in the real
 * one; finished. */
void net_resnet50(struct net *net, int64_t batch, int64_t side, int64_t width);

#endif /* CUVIL_TESTS_SUPPORT_NET_H_ */
