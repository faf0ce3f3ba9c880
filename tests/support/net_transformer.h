/* net_transformer.h - random graphs of what transformers are made of, and the
 * nodes that they need beside net.h's. */
#ifndef CUVIL_TESTS_SUPPORT_NET_TRANSFORMER_H_
#define CUVIL_TESTS_SUPPORT_NET_TRANSFORMER_H_

#include "tests/support/net.h"

/* Values are [NET_B, NET_S, NET_E], of NET_HEADS heads. */
enum { NET_B = 2, NET_S = 6, NET_E = 16, NET_HEADS = 2 };

/* int64 constant of one dimension; fp32 constant of none. */
int net_ints(struct net *net, int count, const int64_t *values);
int net_number(struct net *net, float value);
int net_reshape(struct net *net, int x, int rank, const int64_t *dims);
int net_transpose(struct net *net, int x, int rank, const int64_t *perm);
int net_slice(struct net *net, int x, int64_t axis, int64_t from, int64_t to);
int net_concat(struct net *net, int a, int b, int64_t axis);
int net_matmul(struct net *net, int a, int b);
/* Product with a random [NET_E, NET_E] matrix, with a bias or without. */
int net_linear(struct net *net, int x);
int net_softmax(struct net *net, int x, int64_t axis);
/* [b, s, e] -> [b, heads, s, e / heads] */
int net_heads(struct net *net, int x);

/* Two to ten steps, each a projection, residual, norm, activation, attention,
 * softmax, slice and concatenation or broadcast of what was made before, some
 * of it output in the middle; finished. */
void net_random_transformer(struct net *net, uint64_t seed);

#endif /* CUVIL_TESTS_SUPPORT_NET_TRANSFORMER_H_ */
