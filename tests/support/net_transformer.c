/* net_transformer.c - see net_transformer.h.  Every pattern comes in the orders
 * of operands and the spellings that exporters have, by the net's random
 * numbers. */
#include "tests/support/net_transformer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { B = NET_B, S = NET_S, E = NET_E, HEADS = NET_HEADS, D = E / HEADS };
static const int64_t rows[3] = {B, S, E};

int net_ints(struct net *net, int count, const int64_t *values) {
  int64_t *data = malloc((size_t)(count + 1) * sizeof(*data));
  int64_t dims[1] = {count};
  char name[32];
  int value;
  assert_non_null(data);
  memcpy(data, values, (size_t)count * sizeof(*data));
  net->memory[net->memory_count++] = data;
  snprintf(name, sizeof(name), "i%d", net->name_count++);
  assert_int_equal(
      cuvil_graph_add_value(net->graph, name, CUVIL_I64, 1, dims, data, &value),
      CUVIL_OK);
  return value;
}

int net_number(struct net *net, float value) {
  return net_constant(net, 0, NULL, 0, &value);
}

int net_reshape(struct net *net, int x, int rank, const int64_t *dims) {
  int shape = net_ints(net, rank, dims);
  return net_node(net, "Reshape", 2, (int[]){x, shape}, rank, dims);
}

int net_transpose(struct net *net, int x, int rank, const int64_t *perm) {
  int64_t dims[4];
  for (int i = 0; i < rank; ++i)
    dims[i] = net->dims[x][perm[i]];
  int y = net_node(net, "Transpose", 1, &x, rank, dims);
  assert_int_equal(
      cuvil_graph_set_ints(net->graph, net_last_node(net), "perm", rank, perm),
      CUVIL_OK);
  return y;
}

int net_slice(struct net *net, int x, int64_t axis, int64_t from, int64_t to) {
  int64_t dims[4];
  memcpy(dims, net->dims[x], sizeof(dims));
  dims[axis] = to - from;
  int starts = net_ints(net, 1, &from), ends = net_ints(net, 1, &to);
  int axes = net_ints(net, 1, &axis);
  return net_node(net, "Slice", 4, (int[]){x, starts, ends, axes}, net->rank[x],
                  dims);
}

int net_concat(struct net *net, int a, int b, int64_t axis) {
  int64_t dims[4];
  memcpy(dims, net->dims[a], sizeof(dims));
  dims[axis] += net->dims[b][axis];
  int y = net_node(net, "Concat", 2, (int[]){a, b}, net->rank[a], dims);
  assert_int_equal(
      cuvil_graph_set_int(net->graph, net_last_node(net), "axis", axis),
      CUVIL_OK);
  return y;
}

static bool coin(struct net *net) {
  return cuvil_rng_below(&net->rng, 2) == 1;
}

/* Either operand order. */
static int binary(struct net *net, const char *op, int a, int b) {
  return coin(net) ? net_binary(net, op, a, b) : net_binary(net, op, b, a);
}

int net_matmul(struct net *net, int a, int b) {
  int64_t dims[4];
  int rank = net->rank[a];
  memcpy(dims, net->dims[a], sizeof(dims));
  dims[rank - 1] = net->dims[b][net->rank[b] - 1];
  return net_node(net, "MatMul", 2, (int[]){a, b}, rank, dims);
}

int net_linear(struct net *net, int x) {
  int64_t n = E;
  int w = net_constant(net, 2, (int64_t[]){E, E}, 0.25, NULL);
  int y = net_matmul(net, x, w);
  return coin(net) ? binary(net, "Add", y, net_constant(net, 1, &n, 0.5, NULL))
                   : y;
}

static int flat_gemm(struct net *net, int x) {
  int64_t n = E, flat[2] = {B * S, E};
  bool turned = coin(net);
  int f = net_reshape(net, x, 2, flat);
  int inputs[3] = {f, net_constant(net, 2, (int64_t[]){E, E}, 0.25, NULL),
                   net_constant(net, 1, &n, 0.5, NULL)};
  int y = net_node(net, "Gemm", coin(net) ? 3 : 2, inputs, 2, flat);
  assert_int_equal(
      cuvil_graph_set_int(net->graph, net_last_node(net), "transB", turned),
      CUVIL_OK);
  return net_reshape(net, y, 3, rows);
}

static int mean(struct net *net, int x) {
  int64_t dims[4], axis = -1;
  memcpy(dims, net->dims[x], sizeof(dims));
  dims[net->rank[x] - 1] = 1;
  int y = net_node(net, "ReduceMean", 1, &x, net->rank[x], dims);
  assert_int_equal(
      cuvil_graph_set_ints(net->graph, net_last_node(net), "axes", 1, &axis),
      CUVIL_OK);
  return y;
}

static int norm(struct net *net, int x) {
  int64_t n = E;
  int gamma = net_constant(net, 1, &n, 0.5, NULL);
  int beta = net_constant(net, 1, &n, 0.5, NULL);
  if (coin(net))
    return net_node(net, "LayerNormalization", coin(net) ? 3 : 2,
                    (int[]){x, gamma, beta}, 3, rows);
  bool layer = coin(net);
  int centred = layer ? net_binary(net, "Sub", x, mean(net, x)) : x;
  int square = coin(net) ? net_binary(net, "Pow", centred, net_number(net, 2))
                         : net_binary(net, "Mul", centred, centred);
  int root =
      net_unary(net, "Sqrt",
                binary(net, "Add", mean(net, square), net_number(net, 1e-3f)));
  int y;
  if (coin(net))
    y = net_binary(net, "Div", centred, root);
  else if (coin(net))
    y = binary(net, "Mul", centred, net_unary(net, "Reciprocal", root));
  else
    y = binary(net, "Mul", centred,
               net_binary(net, "Div", net_number(net, 1), root));
  y = binary(net, "Mul", y, gamma);
  return layer ? binary(net, "Add", y, beta) : y;
}

static int activation(struct net *net, int x) {
  if (coin(net)) return binary(net, "Mul", x, net_unary(net, "Sigmoid", x));
  int inner;
  if (coin(net)) {
    inner = net_unary(net, "Erf",
                      net_binary(net, "Div", x, net_number(net, 1.41421356f)));
  } else {
    int cube = net_binary(net, "Pow", x, net_number(net, 3));
    int sum = binary(net, "Add", x,
                     binary(net, "Mul", cube, net_number(net, 0.044715f)));
    inner = net_unary(net, "Tanh",
                      binary(net, "Mul", sum, net_number(net, 0.79788456f)));
  }
  int one = binary(net, "Add", inner, net_number(net, 1));
  switch (cuvil_rng_below(&net->rng, 3)) {
    case 0:
      return binary(net, "Mul", binary(net, "Mul", x, one),
                    net_number(net, 0.5f));
    case 1:
      return binary(net, "Mul", binary(net, "Mul", net_number(net, 0.5f), one),
                    x);
    default:
      return binary(net, "Mul", binary(net, "Mul", x, net_number(net, 0.5f)),
                    one);
  }
}

int net_softmax(struct net *net, int x, int64_t axis) {
  int y = net_unary(net, "Softmax", x);
  assert_int_equal(
      cuvil_graph_set_int(net->graph, net_last_node(net), "axis", axis),
      CUVIL_OK);
  return y;
}

int net_heads(struct net *net, int x) {
  int y = net_reshape(net, x, 4, (int64_t[]){B, S, HEADS, D});
  return net_transpose(net, y, 4, (int64_t[]){0, 2, 1, 3});
}

static int masked(struct net *net, int scores) {
  float causal[S * S];
  for (int i = 0; i < S * S; ++i)
    causal[i] = i % S > i / S ? -INFINITY : 0;
  switch (cuvil_rng_below(&net->rng, 4)) {
    case 0:
      return binary(net, "Add", scores,
                    net_constant(net, 2, (int64_t[]){S, S}, 0, causal));
    case 1:
      return binary(net, "Add", scores,
                    net_constant(net, 4, (int64_t[]){B, 1, 1, S}, 1, NULL));
    case 2: /* a computed one */
      return binary(net, "Add", scores,
                    net_unary(net, "Tanh",
                              net_constant(net, 4, (int64_t[]){1, HEADS, S, S},
                                           1, NULL)));
    default:
      return scores;
  }
}

static int attention(struct net *net, int x) {
  int q = net_heads(net, net_linear(net, x));
  int k = net_heads(net, net_linear(net, x)),
      v = net_heads(net, net_linear(net, x));
  if (coin(net)) q = binary(net, "Mul", q, net_number(net, 0.5f));
  k = net_transpose(net, k, 4, (int64_t[]){0, 1, 3, 2});
  if (coin(net)) k = binary(net, "Mul", k, net_number(net, 0.5f));
  int scores = net_matmul(net, q, k);
  if (coin(net)) scores = net_binary(net, "Div", scores, net_number(net, 2));
  scores = masked(net, scores);
  int p = net_softmax(net, scores, -1);
  if (cuvil_rng_below(&net->rng, 6) == 0) net_output(net, p);
  int y = net_transpose(net, net_matmul(net, p, v), 4, (int64_t[]){0, 2, 1, 3});
  return net_reshape(net, y, 3, rows);
}

static int step(struct net *net, int x, int other) {
  static const int64_t batch_second[3] = {1, 0, 2}, last_two[3] = {0, 2, 1};
  switch (cuvil_rng_below(&net->rng, 14)) {
    case 0:
      return net_linear(net, x);
    case 1:
      return flat_gemm(net, x);
    case 2:
    case 3:
      return binary(net, "Add", x, other);
    case 4:
    case 5:
      return norm(net, x);
    case 6:
      return activation(net, x);
    case 7:
      return attention(net, x);
    case 8:
      return net_softmax(net, x, coin(net) ? -1 : 1);
    case 9: {
      int y = net_transpose(net, x, 3, batch_second);
      y = coin(net) ? net_linear(net, y) : norm(net, activation(net, y));
      return net_transpose(net, y, 3, batch_second);
    }
    case 10: { /* halves that begin at unaligned places too */
      int64_t at = 1 + (int64_t)cuvil_rng_below(&net->rng, E - 1);
      return net_concat(net, net_slice(net, x, 2, at, E),
                        net_slice(net, other, 2, 0, at), 2);
    }
    case 11:
      return binary(net, "Mul", x, net_unary(net, "Sigmoid", mean(net, other)));
    case 12: {
      int scores = net_matmul(net, x, net_transpose(net, other, 3, last_two));
      return net_matmul(net, net_softmax(net, scores, -1), x);
    }
    default: { /* tokens cut off and put back */
      int64_t at = 1 + (int64_t)cuvil_rng_below(&net->rng, S - 1);
      return net_concat(net, net_slice(net, x, 1, at, S),
                        net_slice(net, other, 1, 0, at), 1);
    }
  }
}

void net_random_transformer(struct net *net, uint64_t seed) {
  net_begin(net, seed);
  int pool[24], size = 0, steps = 2 + (int)(seed % 9);
  pool[size++] = net_input(net, 3, rows);
  if (coin(net)) pool[size++] = net_input(net, 3, rows);
  for (int i = 0; i < steps; ++i) {
    int last = pool[size - 1];
    int other = pool[cuvil_rng_below(&net->rng, (uint64_t)size)];
    pool[size] = step(net, coin(net) ? last : other, other);
    if (i + 1 < steps && cuvil_rng_below(&net->rng, 5) == 0)
      net_output(net, pool[size]);
    ++size;
  }
  net_output(net, pool[size - 1]);
  net_finish(net);
}
