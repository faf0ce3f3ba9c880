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
#include "tests/support/net_transformer.h"

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

enum { B = NET_B, S = NET_S, E = NET_E, HEADS = NET_HEADS, D = E / HEADS };
static const int64_t rows[3] = {B, S, E};

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
    net_random_transformer(&net, (uint64_t)seed);
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
      c = net_node(&net, "Less", 2, (int[]){net_ints(&net, 1, &zero), mask}, 2,
                   shape);
    } else {
      c = net_node(&net, "Cast", 1, &mask, 2, shape);
      assert_int_equal(
          cuvil_graph_set_int(net.graph, net_last_node(&net), "to", 9),
          CUVIL_OK);
    }
    c = net_reshape(&net, c, 4, ones);
    if (how % 3 == 2) { /* and not the one before, cut anew */
      c = net_node(&net, "Expand", 2, (int[]){c, net_ints(&net, 4, wide)}, 4,
                   wide);
      int other = net_unary(&net, "Not", c);
      c = net_binary(&net, "Or", c, net_binary(&net, "And", c, other));
    }
    int q = net_heads(&net, net_linear(&net, x)), v = net_heads(&net, x);
    int k = net_transpose(&net, net_heads(&net, net_linear(&net, x)), 4,
                          (int64_t[]){0, 1, 3, 2});
    int scores = net_matmul(&net, q, k), low = net_number(&net, -INFINITY);
    if (how < 3) {
      scores = net_node(&net, "Where", 3, (int[]){c, scores, low}, 4, all);
    } else {
      int added =
          net_node(&net, "Where", 3, (int[]){c, net_number(&net, 0), low}, 4,
                   net.dims[c]);
      scores = net_binary(&net, "Add", scores, added);
    }
    int y = net_matmul(&net, net_softmax(&net, scores, -1), v);
    y = net_reshape(&net, net_transpose(&net, y, 4, (int64_t[]){0, 2, 1, 3}), 3,
                    rows);
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
  int none = net_unary(&net, "Tanh", net_slice(&net, x, 1, 2, 2));
  int y = net_concat(&net, none, net_linear(&net, x), 1);
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
