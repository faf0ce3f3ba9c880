/* fusion_transformer_test.c - transformers and mobile networks, fused.
 *
 * The networks come from the builders in both exporters' spellings, at a few
 * layers of small size; every strategy must give the executor's answer, and
 * medium the numbers of kernels that a layer should have.  Layers are counted
 * as the difference between networks of two and of one, so that embeddings and
 * heads do not count.
 */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "fusion/fusion.h"
#include "graph/builder.h"
#include "graph/execute.h"
#include "tests/support/net.h"

enum { RANDOM_GRAPHS = 200 };

static struct cuvil_graph *load(const char *network,
                                const struct cuvil_network_options *options) {
  char path[] = "/tmp/cuvil_fused_XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  struct cuvil_graph *graph = NULL;
  enum cuvil_status status = cuvil_builder_network(network, options, path);
  if (status == CUVIL_OK) status = cuvil_graph_import(path, NULL, &graph);
  unlink(path);
  if (status != CUVIL_OK) fail_msg("%s: %s", network, cuvil_last_error());
  return graph;
}

static void small(const char *network, int64_t batch,
                  enum cuvil_spelling spelling,
                  struct cuvil_network_options *o) {
  assert_true(cuvil_network_options(network, o));
  bool mobile = o->patch == 0 && o->image > 0;
  o->layers = mobile ? 4 : 2;
  if (o->hidden > 0) {
    o->hidden = 32;
    o->heads = 4;
    o->ffn = 48;
  }
  if (o->kv_heads > 0) o->kv_heads = 2;
  if (o->vocab > 0) {
    o->vocab = 50;
    o->positions = 16;
  }
  if (o->seq > 0) o->seq = 7;
  if (o->image > 0) o->image = 32;
  if (o->patch > 0) o->patch = 16;
  if (o->classes > 0) o->classes = 5;
  o->batch = batch;
  o->spelling = spelling;
}

static void *make_input(const struct cuvil_value *value) {
  int64_t count = cuvil_value_elements(value);
  struct cuvil_rng rng = {7};
  char *data = calloc((size_t)count + 1, 8);
  assert_non_null(data);
  bool mask = strcmp(value->name, "attention_mask") == 0;
  int64_t last = value->dims[value->rank - 1];
  for (int64_t i = 0; i < count; ++i) {
    double u = cuvil_rng_uniform(&rng);
    cuvil_store(value->dtype, data, (size_t)i,
                mask                        ? i % last < 5
                : value->dtype == CUVIL_I64 ? floor(u * 50)
                                            : 2 * u - 1);
  }
  return data;
}

static double relative_l2(const float *got, const float *expected,
                          int64_t count) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    double d = (double)got[i] - (double)expected[i];
    error += d * d;
    norm += (double)expected[i] * (double)expected[i];
  }
  assert_true(norm > 0);
  return sqrt(error / norm);
}

static struct cuvil_fused *fuse(const struct cuvil_graph *graph,
                                enum cuvil_fusion_strategy strategy,
                                enum cuvil_precision precision) {
  struct cuvil_fusion_options options = {strategy, precision};
  struct cuvil_fused *fused;
  if (cuvil_fuse(graph, &options, &fused) != CUVIL_OK)
    fail_msg("%s: %s\n%s", graph->name, cuvil_last_error(),
             cuvil_fusion_unsupported());
  return fused;
}

static void check(const char *network,
                  const struct cuvil_network_options *options) {
  static const struct {
    enum cuvil_fusion_strategy strategy;
    enum cuvil_precision precision;
    double limit;
  } ways[] = {{CUVIL_FUSION_NONE, CUVIL_PRECISION_FP32, 1e-5},
              {CUVIL_FUSION_FINE, CUVIL_PRECISION_FP32, 1e-5},
              {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP32, 1e-5},
              {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16, 1e-2}};
  struct cuvil_graph *graph = load(network, options);
  void *inputs[2] = {NULL, NULL};
  for (int i = 0; i < graph->input_count; ++i)
    inputs[i] = make_input(&graph->values[graph->inputs[i]]);
  int64_t count = cuvil_value_elements(&graph->values[graph->outputs[0]]);
  float *expected = calloc((size_t)count + 1, sizeof(float));
  float *got = calloc((size_t)count + 1, sizeof(float));
  void *outputs[1] = {expected};
  assert_int_equal(
      cuvil_graph_execute(graph, (const void *const *)inputs, outputs, 1),
      CUVIL_OK);
  for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); ++w) {
    struct cuvil_fused *fused =
        fuse(graph, ways[w].strategy, ways[w].precision);
    memset(got, 0xff, (size_t)count * sizeof(float));
    outputs[0] = got;
    if (cuvil_fused_execute(fused, (const void *const *)inputs, outputs, 1) !=
        CUVIL_OK)
      fail_msg("%s: %s", network, cuvil_last_error());
    double error = relative_l2(got, expected, count);
    if (!(error <= ways[w].limit))
      fail_msg("%s, %s, %s, batch %d, spelling %d: differs by %.3g", network,
               cuvil_fusion_strategy_name(ways[w].strategy),
               cuvil_precision_name(ways[w].precision), (int)options->batch,
               (int)options->spelling, error);
    cuvil_fused_destroy(fused);
  }
  free(expected);
  free(got);
  for (int i = 0; i < 2; ++i)
    free(inputs[i]);
  cuvil_graph_destroy(graph);
}

static void check_spellings(const char *network, bool mask, bool sdpa) {
  for (int64_t batch = 1; batch <= 2; ++batch)
    for (int s = 0; s < 2; ++s) {
      struct cuvil_network_options options;
      small(network, batch, (enum cuvil_spelling)s, &options);
      options.with_mask = mask;
      options.sdpa = sdpa;
      check(network, &options);
    }
}

static void bert(void **state) {
  (void)state;
  check_spellings("bert", false, false);
}
static void bert_with_mask(void **state) {
  (void)state;
  check_spellings("bert", true, false);
}
static void gpt2(void **state) {
  (void)state;
  check_spellings("gpt2", false, false);
}
static void gpt2_sdpa(void **state) {
  (void)state;
  check_spellings("gpt2", false, true);
}
static void vit(void **state) {
  (void)state;
  check_spellings("vit", false, false);
}
static void llama(void **state) {
  (void)state;
  check_spellings("llama", false, false);
}
static void mobilenet_v2(void **state) {
  (void)state;
  check_spellings("mobilenet_v2", false, false);
}
static void efficientnet_b0(void **state) {
  (void)state;
  check_spellings("efficientnet_b0", false, false);
}

/* ---- random graphs of what transformers are made of */

enum { B = 2, S = 6, E = 16, HEADS = 2, D = E / HEADS };
static const int64_t rows[3] = {B, S, E};

static int int_constant(struct net *net, int count, const int64_t *values) {
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

static int number(struct net *net, float value) {
  return net_constant(net, 0, NULL, 0, &value);
}

static int reshape(struct net *net, int x, int rank, const int64_t *dims) {
  int shape = int_constant(net, rank, dims);
  return net_node(net, "Reshape", 2, (int[]){x, shape}, rank, dims);
}

static int transpose(struct net *net, int x, int rank, const int64_t *perm) {
  int64_t dims[4];
  for (int i = 0; i < rank; ++i)
    dims[i] = net->dims[x][perm[i]];
  int y = net_node(net, "Transpose", 1, &x, rank, dims);
  assert_int_equal(
      cuvil_graph_set_ints(net->graph, net_last_node(net), "perm", rank, perm),
      CUVIL_OK);
  return y;
}

static int slice(struct net *net, int x, int64_t axis, int64_t from,
                 int64_t to) {
  int64_t dims[4];
  memcpy(dims, net->dims[x], sizeof(dims));
  dims[axis] = to - from;
  int starts = int_constant(net, 1, &from), ends = int_constant(net, 1, &to);
  int axes = int_constant(net, 1, &axis);
  return net_node(net, "Slice", 4, (int[]){x, starts, ends, axes}, net->rank[x],
                  dims);
}

static int concat(struct net *net, int a, int b, int64_t axis) {
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

static int matmul(struct net *net, int a, int b) {
  int64_t dims[4];
  int rank = net->rank[a];
  memcpy(dims, net->dims[a], sizeof(dims));
  dims[rank - 1] = net->dims[b][net->rank[b] - 1];
  return net_node(net, "MatMul", 2, (int[]){a, b}, rank, dims);
}

static int linear(struct net *net, int x) {
  int64_t n = E;
  int w = net_constant(net, 2, (int64_t[]){E, E}, 0.25, NULL);
  int y = matmul(net, x, w);
  return coin(net) ? binary(net, "Add", y, net_constant(net, 1, &n, 0.5, NULL))
                   : y;
}

static int flat_gemm(struct net *net, int x) {
  int64_t n = E, flat[2] = {B * S, E};
  bool turned = coin(net);
  int f = reshape(net, x, 2, flat);
  int inputs[3] = {f, net_constant(net, 2, (int64_t[]){E, E}, 0.25, NULL),
                   net_constant(net, 1, &n, 0.5, NULL)};
  int y = net_node(net, "Gemm", coin(net) ? 3 : 2, inputs, 2, flat);
  assert_int_equal(
      cuvil_graph_set_int(net->graph, net_last_node(net), "transB", turned),
      CUVIL_OK);
  return reshape(net, y, 3, rows);
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
  int square = coin(net) ? net_binary(net, "Pow", centred, number(net, 2))
                         : net_binary(net, "Mul", centred, centred);
  int root = net_unary(
      net, "Sqrt", binary(net, "Add", mean(net, square), number(net, 1e-3f)));
  int y;
  if (coin(net))
    y = net_binary(net, "Div", centred, root);
  else if (coin(net))
    y = binary(net, "Mul", centred, net_unary(net, "Reciprocal", root));
  else
    y = binary(net, "Mul", centred,
               net_binary(net, "Div", number(net, 1), root));
  y = binary(net, "Mul", y, gamma);
  return layer ? binary(net, "Add", y, beta) : y;
}

static int activation(struct net *net, int x) {
  if (coin(net)) return binary(net, "Mul", x, net_unary(net, "Sigmoid", x));
  int inner;
  if (coin(net)) {
    inner = net_unary(net, "Erf",
                      net_binary(net, "Div", x, number(net, 1.41421356f)));
  } else {
    int cube = net_binary(net, "Pow", x, number(net, 3));
    int sum =
        binary(net, "Add", x, binary(net, "Mul", cube, number(net, 0.044715f)));
    inner = net_unary(net, "Tanh",
                      binary(net, "Mul", sum, number(net, 0.79788456f)));
  }
  int one = binary(net, "Add", inner, number(net, 1));
  switch (cuvil_rng_below(&net->rng, 3)) {
    case 0:
      return binary(net, "Mul", binary(net, "Mul", x, one), number(net, 0.5f));
    case 1:
      return binary(net, "Mul", binary(net, "Mul", number(net, 0.5f), one), x);
    default:
      return binary(net, "Mul", binary(net, "Mul", x, number(net, 0.5f)), one);
  }
}

static int softmax(struct net *net, int x, int64_t axis) {
  int y = net_unary(net, "Softmax", x);
  assert_int_equal(
      cuvil_graph_set_int(net->graph, net_last_node(net), "axis", axis),
      CUVIL_OK);
  return y;
}

static int heads_of(struct net *net, int x) {
  int y = reshape(net, x, 4, (int64_t[]){B, S, HEADS, D});
  return transpose(net, y, 4, (int64_t[]){0, 2, 1, 3});
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
  int q = heads_of(net, linear(net, x));
  int k = heads_of(net, linear(net, x)), v = heads_of(net, linear(net, x));
  if (coin(net)) q = binary(net, "Mul", q, number(net, 0.5f));
  k = transpose(net, k, 4, (int64_t[]){0, 1, 3, 2});
  if (coin(net)) k = binary(net, "Mul", k, number(net, 0.5f));
  int scores = matmul(net, q, k);
  if (coin(net)) scores = net_binary(net, "Div", scores, number(net, 2));
  scores = masked(net, scores);
  int p = softmax(net, scores, -1);
  if (cuvil_rng_below(&net->rng, 6) == 0) net_output(net, p);
  int y = transpose(net, matmul(net, p, v), 4, (int64_t[]){0, 2, 1, 3});
  return reshape(net, y, 3, rows);
}

static int step(struct net *net, int x, int other) {
  static const int64_t batch_second[3] = {1, 0, 2}, last_two[3] = {0, 2, 1};
  switch (cuvil_rng_below(&net->rng, 14)) {
    case 0:
      return linear(net, x);
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
      return softmax(net, x, coin(net) ? -1 : 1);
    case 9: {
      int y = transpose(net, x, 3, batch_second);
      y = coin(net) ? linear(net, y) : norm(net, activation(net, y));
      return transpose(net, y, 3, batch_second);
    }
    case 10: { /* halves that begin at unaligned places too */
      int64_t at = 1 + (int64_t)cuvil_rng_below(&net->rng, E - 1);
      return concat(net, slice(net, x, 2, at, E), slice(net, other, 2, 0, at),
                    2);
    }
    case 11:
      return binary(net, "Mul", x, net_unary(net, "Sigmoid", mean(net, other)));
    case 12: {
      int scores = matmul(net, x, transpose(net, other, 3, last_two));
      return matmul(net, softmax(net, scores, -1), x);
    }
    default: { /* tokens cut off and put back */
      int64_t at = 1 + (int64_t)cuvil_rng_below(&net->rng, S - 1);
      return concat(net, slice(net, x, 1, at, S), slice(net, other, 1, 0, at),
                    1);
    }
  }
}

static void check_net(struct net *net, int seed) {
  const struct cuvil_graph *graph = net->graph;
  void *inputs[2], *expected[16], *outputs[16];
  int64_t counts[16];
  for (int i = 0; i < graph->input_count; ++i)
    inputs[i] = make_input(&graph->values[graph->inputs[i]]);
  assert_in_range(graph->output_count, 1, 16);
  for (int i = 0; i < graph->output_count; ++i) {
    counts[i] = cuvil_value_elements(&graph->values[graph->outputs[i]]);
    expected[i] = calloc((size_t)counts[i] + 1, sizeof(float));
    outputs[i] = calloc((size_t)counts[i] + 1, sizeof(float));
  }
  assert_int_equal(
      cuvil_graph_execute(graph, (const void *const *)inputs, expected, 1),
      CUVIL_OK);
  for (int s = 0; s < 3; ++s) {
    struct cuvil_fused *fused =
        fuse(graph, (enum cuvil_fusion_strategy)s, CUVIL_PRECISION_FP32);
    for (int i = 0; i < graph->output_count; ++i)
      memset(outputs[i], 0xff, (size_t)counts[i] * sizeof(float));
    if (cuvil_fused_execute(fused, (const void *const *)inputs, outputs, 1) !=
        CUVIL_OK)
      fail_msg("graph %d: %s", seed, cuvil_last_error());
    for (int i = 0; i < graph->output_count; ++i) {
      if (counts[i] == 0) continue;
      double error = relative_l2(outputs[i], expected[i], counts[i]);
      if (!(error <= 1e-5))
        fail_msg("graph %d, %s: output %d differs by %.3g", seed,
                 cuvil_fusion_strategy_name((enum cuvil_fusion_strategy)s), i,
                 error);
    }
    cuvil_fused_destroy(fused);
  }
  for (int i = 0; i < graph->input_count; ++i)
    free(inputs[i]);
  for (int i = 0; i < graph->output_count; ++i) {
    free(expected[i]);
    free(outputs[i]);
  }
}

static void random_graphs(void **state) {
  (void)state;
  int count = getenv("CUVIL_TEST_FULL") ? 3000 : RANDOM_GRAPHS;
  for (int seed = 1; seed <= count; ++seed) {
    struct net net;
    net_begin(&net, (uint64_t)seed);
    int pool[24], size = 0, steps = 2 + seed % 9, outputs = 0;
    pool[size++] = net_input(&net, 3, rows);
    if (coin(&net)) pool[size++] = net_input(&net, 3, rows);
    for (int i = 0; i < steps; ++i) {
      int last = pool[size - 1];
      int other = pool[cuvil_rng_below(&net.rng, (uint64_t)size)];
      pool[size] = step(&net, coin(&net) ? last : other, other);
      if (i + 1 < steps && cuvil_rng_below(&net.rng, 5) == 0) {
        net_output(&net, pool[size]);
        ++outputs;
      }
      ++size;
    }
    net_output(&net, pool[size - 1]);
    net_finish(&net);
    check_net(&net, seed);
    net_end(&net);
  }
}

/* Masks that are computed from an integer input, boolean in between. */
static void boolean_masks(void **state) {
  (void)state;
  for (int how = 0; how < 6; ++how) {
    struct net net;
    int64_t shape[2] = {B, S}, ones[4] = {B, 1, 1, S};
    int64_t all[4] = {B, HEADS, S, S}, wide[4] = {B, 1, S, S};
    int mask;
    net_begin(&net, 3 + (uint64_t)how);
    net.graph->opset = 13;
    int x = net_input(&net, 3, rows);
    assert_int_equal(cuvil_graph_add_value(net.graph, "attention_mask",
                                           CUVIL_I64, 2, shape, NULL, &mask),
                     CUVIL_OK);
    assert_int_equal(cuvil_graph_add_input(net.graph, mask), CUVIL_OK);
    net.rank[mask] = 2;
    memcpy(net.dims[mask], shape, sizeof(shape));
    int c;
    if (how % 3 == 1) { /* 0 < mask */
      int64_t zero = 0;
      c = net_node(&net, "Less", 2, (int[]){int_constant(&net, 1, &zero), mask},
                   2, shape);
    } else {
      c = net_node(&net, "Cast", 1, &mask, 2, shape);
      assert_int_equal(
          cuvil_graph_set_int(net.graph, net_last_node(&net), "to", 9),
          CUVIL_OK);
    }
    c = reshape(&net, c, 4, ones);
    if (how % 3 == 2) { /* and not the one before, cut anew */
      c = net_node(&net, "Expand", 2, (int[]){c, int_constant(&net, 4, wide)},
                   4, wide);
      int other = net_unary(&net, "Not", c);
      c = net_binary(&net, "Or", c, net_binary(&net, "And", c, other));
    }
    int q = heads_of(&net, linear(&net, x)), v = heads_of(&net, x);
    int k = transpose(&net, heads_of(&net, linear(&net, x)), 4,
                      (int64_t[]){0, 1, 3, 2});
    int scores = matmul(&net, q, k), low = number(&net, -INFINITY);
    if (how < 3) {
      scores = net_node(&net, "Where", 3, (int[]){c, scores, low}, 4, all);
    } else {
      int added = net_node(&net, "Where", 3, (int[]){c, number(&net, 0), low},
                           4, net.dims[c]);
      scores = net_binary(&net, "Add", scores, added);
    }
    int y = matmul(&net, softmax(&net, scores, -1), v);
    y = reshape(&net, transpose(&net, y, 4, (int64_t[]){0, 2, 1, 3}), 3, rows);
    net_output(&net, y);
    net_finish(&net);
    check_net(&net, how);
    struct cuvil_fused *fused =
        fuse(net.graph, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP32);
    int attentions = 0;
    for (int t = 0; t < fused->task_count; ++t)
      attentions += fused->tasks[t].problem.kind == CUVIL_KIND_ATTENTION;
    assert_int_equal(attentions, 1);
    cuvil_fused_destroy(fused);
    net_end(&net);
  }
}

/* The operator of opset 23, with fewer heads of keys than of queries. */
static void attention_operator(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; ++causal) {
    struct net net;
    int64_t q_dims[4] = {B, 4, S, D}, kv_dims[4] = {B, 2, S, D};
    net_begin(&net, 5);
    net.graph->opset = 23;
    int q = net_input(&net, 4, q_dims), k = net_input(&net, 4, kv_dims);
    int v = net_unary(&net, "Tanh", k);
    int y = net_node(&net, "Attention", 3, (int[]){q, k, v}, 4, q_dims);
    assert_int_equal(cuvil_graph_set_int(net.graph, net_last_node(&net),
                                         "is_causal", causal),
                     CUVIL_OK);
    net_output(&net, y);
    net_finish(&net);
    check_net(&net, causal);
    struct cuvil_fused *fused =
        fuse(net.graph, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP32);
    assert_int_equal(fused->task_count, 2); /* tanh, attention */
    const struct cuvil_problem *p = &fused->tasks[1].problem;
    assert_int_equal(p->kind, CUVIL_KIND_ATTENTION);
    assert_int_equal(p->causal, causal);
    assert_int_equal(p->dims[CUVIL_ATTENTION_DIM_HKV].extent, 2);
    assert_int_equal(p->mask, -1);
    cuvil_fused_destroy(fused);
    net_end(&net);
  }
}

/* Nothing of a tensor, put before all of another: what is empty costs nothing
 * and hurts nothing. */
static void empty_tensors(void **state) {
  (void)state;
  struct net net;
  net_begin(&net, 1);
  int x = net_input(&net, 3, rows);
  int none = net_unary(&net, "Tanh", slice(&net, x, 1, 2, 2));
  int y = concat(&net, none, linear(&net, x), 1);
  net_output(&net, y);
  net_output(&net, none);
  net_finish(&net);
  check_net(&net, 0);
  net_end(&net);
}

/* ---- kernels of a layer, conversions counted too */

static int tasks_of(const char *network, struct cuvil_network_options *options,
                    int64_t layers, bool print) {
  options->layers = layers;
  struct cuvil_graph *graph = load(network, options);
  struct cuvil_fused *fused =
      fuse(graph, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16);
  int count = fused->task_count;
  for (int t = 0; print && t < count; ++t) {
    struct cuvil_buf text = {0};
    cuvil_problem_print(&fused->tasks[t].problem, &text);
    printf("# %s%s\n#     %s\n", fused->tasks[t].conversion ? "(copy) " : "",
           fused->tasks[t].label, cuvil_buf_text(&text));
    cuvil_buf_free(&text);
  }
  cuvil_fused_destroy(fused);
  cuvil_graph_destroy(graph);
  return count;
}

static void expect_layer(const char *network, bool mask, int most) {
  for (int64_t batch = 1; batch <= 8; batch += 7)
    for (int s = 0; s < 2; ++s) {
      struct cuvil_network_options options;
      small(network, batch, (enum cuvil_spelling)s, &options);
      options.with_mask = mask;
      options.hidden = 64; /* halves of heads begin at aligned places */
      int one = tasks_of(network, &options, 1, false);
      int two = tasks_of(network, &options, 2, false);
      if (two - one > most) {
        tasks_of(network, &options, 1, true);
        fail_msg("%s, batch %d, spelling %d: a layer has %d kernels", network,
                 (int)batch, s, two - one);
      }
    }
}

/* Embeddings are two kernels in any batch: gather and norm. */
static void kernels_of_embeddings(void **state) {
  (void)state;
  for (int64_t batch = 1; batch <= 8; batch += 7)
    for (int s = 0; s < 2; ++s) {
      struct cuvil_network_options options;
      small("bert", batch, (enum cuvil_spelling)s, &options);
      int one = tasks_of("bert", &options, 1, false);
      int two = tasks_of("bert", &options, 2, false);
      assert_int_equal(one - (two - one), 2);
      small("gpt2", batch, (enum cuvil_spelling)s, &options);
      one = tasks_of("gpt2", &options, 1, false);
      two = tasks_of("gpt2", &options, 2, false);
      assert_int_equal(one - (two - one), 2); /* the last norm */
    }
}

/* ReLU6 blocks of three, blocks with squeeze and excitation of seven. */
static void kernels_of_mobile_blocks(void **state) {
  (void)state;
  struct cuvil_network_options options;
  small("mobilenet_v2", 1, CUVIL_SPELLING_TORCHSCRIPT, &options);
  int before = tasks_of("mobilenet_v2", &options, 2, false);
  assert_int_equal(tasks_of("mobilenet_v2", &options, 5, false) - before, 9);
  small("efficientnet_b0", 1, CUVIL_SPELLING_DYNAMO, &options);
  before = tasks_of("efficientnet_b0", &options, 2, false);
  assert_int_equal(tasks_of("efficientnet_b0", &options, 4, false) - before,
                   14);
}

static void kernels_of_layers(void **state) {
  (void)state;
  expect_layer("bert", false, 7);
  expect_layer("bert", true, 7);
  expect_layer("gpt2", false, 7);
  expect_layer("vit", false, 7);
  expect_layer("llama", false, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bert),
      cmocka_unit_test(bert_with_mask),
      cmocka_unit_test(gpt2),
      cmocka_unit_test(gpt2_sdpa),
      cmocka_unit_test(vit),
      cmocka_unit_test(llama),
      cmocka_unit_test(mobilenet_v2),
      cmocka_unit_test(efficientnet_b0),
      cmocka_unit_test(random_graphs),
      cmocka_unit_test(boolean_masks),
      cmocka_unit_test(attention_operator),
      cmocka_unit_test(empty_tensors),
      cmocka_unit_test(kernels_of_layers),
      cmocka_unit_test(kernels_of_embeddings),
      cmocka_unit_test(kernels_of_mobile_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
