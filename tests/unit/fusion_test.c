/* fusion_test.c - fusion keeps the meaning of a graph, and fuses what it says.
 *
 * The heart is equivalence: random convolutional graphs are run by the graph's
 * own executor and, fused each way, by the problems' references.  Beside it
 * stand the patterns by name, reports of other compilers' users among them,
 * with the answers and the counts of kernels that are right.
 */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fusion/fusion.h"
#include "graph/execute.h"
#include "tests/support/net.h"

/* CUVIL_TEST_FULL: as many as a long check has time for. */
static int random_count(void) {
  return getenv("CUVIL_TEST_FULL") ? 4000 : 240;
}

static struct cuvil_fused *fuse(const struct net *net,
                                enum cuvil_fusion_strategy strategy,
                                enum cuvil_precision precision) {
  struct cuvil_fusion_options options = {strategy, precision};
  struct cuvil_fused *fused;
  if (cuvil_fuse(net->graph, &options, &fused) != CUVIL_OK)
    fail_msg("fuse: %s", cuvil_last_error());
  return fused;
}

static int kernels(const struct cuvil_fused *fused) {
  return fused->task_count - fused->conversion_count;
}

/* ---- inputs and outputs of a graph, in fp32 */

struct io {
  void *inputs[8], *expected[16], *got[16];
};

static size_t elements(const struct net *net, int value) {
  return (size_t)cuvil_value_elements(&net->graph->values[value]);
}

static void io_begin(const struct net *net, struct io *io, const float *input) {
  struct cuvil_rng rng = {.state = 7};
  memset(io, 0, sizeof(*io));
  const struct cuvil_graph *graph = net->graph;
  for (int i = 0; i < graph->input_count; ++i) {
    size_t count = elements(net, graph->inputs[i]);
    float *data = io->inputs[i] = calloc(count + 1, sizeof(float));
    for (size_t j = 0; j < count; ++j)
      data[j] = input ? input[j] : (float)cuvil_rng_normal(&rng);
  }
  for (int i = 0; i < graph->output_count; ++i) {
    size_t count = elements(net, graph->outputs[i]);
    io->expected[i] = calloc(count + 1, sizeof(float));
    io->got[i] = calloc(count + 1, sizeof(float));
    /* What is not written must not look right. */
    memset(io->got[i], 0xff, count * sizeof(float));
  }
  if (cuvil_graph_execute(graph, (const void *const *)io->inputs, io->expected,
                          1) != CUVIL_OK)
    fail_msg("execute: %s", cuvil_last_error());
}

static void io_end(struct io *io) {
  for (int i = 0; i < 8; ++i)
    free(io->inputs[i]);
  for (int i = 0; i < 16; ++i) {
    free(io->expected[i]);
    free(io->got[i]);
  }
}

static double relative_l2(const float *got, const float *expected,
                          size_t count) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < count; ++i) {
    double d = (double)got[i] - expected[i];
    error += d * d;
    norm += (double)expected[i] * expected[i];
  }
  return norm > 0 ? sqrt(error / norm) : sqrt(error);
}

/* Runs the fused graph and holds it against the graph's own answer. */
static void check_run(const struct net *net, const struct cuvil_fused *fused,
                      struct io *io, double limit, const char *what) {
  if (cuvil_fused_execute(fused, (const void *const *)io->inputs, io->got, 1) !=
      CUVIL_OK)
    fail_msg("%s: %s", what, cuvil_last_error());
  for (int i = 0; i < net->graph->output_count; ++i) {
    size_t count = elements(net, net->graph->outputs[i]);
    double error = relative_l2(io->got[i], io->expected[i], count);
    if (!(error <= limit))
      fail_msg("%s: output %d differs by %.3g (relative L2)", what, i, error);
  }
}

static void check_all(const struct net *net, struct io *io, const char *name,
                      int counts[3]) {
  for (int s = 0; s < 3; ++s) {
    char what[64];
    snprintf(what, sizeof(what), "%s, %s", name,
             cuvil_fusion_strategy_name((enum cuvil_fusion_strategy)s));
    struct cuvil_fused *fused =
        fuse(net, (enum cuvil_fusion_strategy)s, CUVIL_PRECISION_FP32);
    check_run(net, fused, io, 1e-5, what);
    counts[s] = kernels(fused);
    cuvil_fused_destroy(fused);
  }
}

/* Every strategy is right, and medium needs `expected` kernels. */
static void expect_kernels(struct net *net, int expected) {
  struct io io;
  int counts[3];
  io_begin(net, &io, NULL);
  check_all(net, &io, "pattern", counts);
  io_end(&io);
  assert_int_equal(counts[CUVIL_FUSION_MEDIUM], expected);
}

/* ---- equivalence */

static void random_graphs(void **state) {
  (void)state;
  int fewer = 0, count = random_count();
  for (uint64_t seed = 1; seed <= (uint64_t)count; ++seed) {
    struct net net;
    struct io io;
    int counts[3];
    net_random(&net, seed, 3 + (int)(seed % 14));
    if (net.graph->node_count == 0) {
      net_end(&net);
      continue;
    }
    io_begin(&net, &io, NULL);
    char name[32];
    snprintf(name, sizeof(name), "graph %d", (int)seed);
    check_all(&net, &io, name, counts);
    if (counts[0] < counts[1] || counts[1] < counts[2])
      fail_msg("graph %d: kernels %d, %d, %d do not fall", (int)seed, counts[0],
               counts[1], counts[2]);
    fewer += counts[2] < counts[0];
    io_end(&io);
    net_end(&net);
  }
  /* Most of these graphs have something to fuse. */
  assert_true(fewer > count / 2);
}

static void half_precision(void **state) {
  (void)state;
  static const struct {
    enum cuvil_precision precision;
    double limit;
  } cases[] = {{CUVIL_PRECISION_FP16, 1e-2}, {CUVIL_PRECISION_BF16, 5e-2}};
  for (uint64_t seed = 900; seed < 912; ++seed) {
    struct net net;
    struct io io;
    net_random(&net, seed, 8);
    io_begin(&net, &io, NULL);
    for (int i = 0; i < 2; ++i) {
      struct cuvil_fused *fused =
          fuse(&net, CUVIL_FUSION_MEDIUM, cases[i].precision);
      check_run(&net, fused, &io, cases[i].limit, "half precision");
      cuvil_fused_destroy(fused);
    }
    io_end(&io);
    net_end(&net);
  }
}

/* ---- ResNet-50 */

static void resnet50_kernels(void **state) {
  (void)state;
  struct net net;
  net_resnet50(&net, 1, 224, 64);
  struct cuvil_fused *fused =
      fuse(&net, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16);
  assert_true(kernels(fused) <= 56);
  assert_int_equal(fused->conversion_count, 1); /* the fp32 NCHW image */
  assert_string_equal(fused->tasks[0].label, "convert(v0)");
  struct cuvil_problem_set set;
  assert_int_equal(cuvil_fused_problems(fused, &set), CUVIL_OK);
  int calls = 0;
  for (int i = 0; i < set.count; ++i)
    calls += set.calls[i];
  assert_int_equal(calls, fused->task_count);
  assert_string_equal(set.texts[0],
                      "pointwise/1 n=1 c=4 h=224 w=224 y=f16[n,h,w,c] "
                      "epi{out=x:f32[n,c<3,h,w]}");
  assert_string_equal(
      set.texts[1],
      "conv/1 n=1 c=4 h=224 w=224 k=64 r=7 s=7 stride=2,2 pad=3,3,3,3 dil=1,1 "
      "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
      "epi{t0=add(acc,bias[k]:weight); out=relu(t0)}");
  assert_string_equal(
      set.texts[set.task_problem[fused->task_count - 1]],
      "gemm/1 m=1 n=1000 k=2048 a=f16[m,k] b=f16[n,k]:weight c=f32[m,n] "
      "acc=f32 epi{out=add(acc,bias[n]:weight)}");
  /* First block: both the residual and the projection in one kernel. */
  bool residual = false;
  for (int i = 0; i < set.count; ++i)
    residual = residual ||
               strcmp(set.texts[i],
                      "gemm/1 m=3136 n=256 k=64 a=f16[m,k] b=f16[n,k]:weight "
                      "c=f16[m,n] acc=f32 epi{t0=add(acc,bias[n]:weight); "
                      "t1=add(t0,res[m,n]); out=relu(t1)}") == 0;
  assert_true(residual);
  cuvil_fused_destroy(fused);
  net_end(&net);
}

static void small_resnet_runs(void **state) {
  (void)state;
  struct net net;
  net_resnet50(&net, 2, 32, 4);
  expect_kernels(&net, 56);
  net_end(&net);
}

/* ---- patterns */

static int image(struct net *net, int64_t channels) {
  net_begin(net, 3);
  return net_input(net, 4, (int64_t[]){2, channels, 6, 5});
}

static void residual_either_order(void **state) {
  (void)state;
  for (int order = 0; order < 2; ++order) {
    struct net net;
    int x = image(&net, 4);
    int a = net_conv(&net, x, 6, 3, 1, 1, 1, true);
    int b = net_conv(&net, x, 6, 1, 1, 0, 1, false);
    int sum =
        order ? net_binary(&net, "Add", a, b) : net_binary(&net, "Add", b, a);
    net_output(&net, net_unary(&net, "Relu", sum));
    net_finish(&net);
    expect_kernels(&net, 2);
    /* The later convolution has the residual. */
    struct cuvil_fused *fused =
        fuse(&net, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP32);
    const struct cuvil_task *last = NULL;
    for (int t = 0; t < fused->task_count; ++t)
      if (!fused->tasks[t].conversion) last = &fused->tasks[t];
    assert_int_equal(last->problem.kind, CUVIL_KIND_GEMM);
    assert_true(cuvil_problem_find_operand(&last->problem, "res") > 0);
    cuvil_fused_destroy(fused);
    net_end(&net);
  }
}

static void residual_that_depends_on_the_conv(void **state) {
  (void)state;
  /* add(conv1, conv2(conv1)): conv1 has two users, so only conv2 may take the
   * add; conv1 taking it would be a cycle. */
  struct net net;
  int x = image(&net, 3);
  int a = net_conv(&net, x, 5, 3, 1, 1, 1, true);
  int b = net_conv(&net, a, 5, 3, 1, 1, 1, true);
  net_output(&net, net_binary(&net, "Add", a, b));
  net_finish(&net);
  expect_kernels(&net, 2);
  net_end(&net);
}

static void same_operand_twice(void **state) {
  (void)state;
  struct net net;
  int x = image(&net, 5);
  int a = net_conv(&net, x, 4, 3, 1, 1, 1, true);
  net_output(&net, net_binary(&net, "Add", a, a));
  net_finish(&net);
  expect_kernels(&net, 1);
  net_end(&net);
}

static void silu_and_hardswish(void **state) {
  (void)state;
  struct net net;
  int x = image(&net, 4);
  int a = net_conv(&net, x, 6, 3, 1, 1, 2, true);
  a = net_binary(&net, "Mul", a, net_unary(&net, "Sigmoid", a));
  int b = net_conv(&net, a, 6, 1, 1, 0, 1, true);
  int three = net_constant(&net, 0, NULL, 0, (float[]){3});
  int six = net_constant(&net, 0, NULL, 0, (float[]){6});
  int zero = net_constant(&net, 0, NULL, 0, (float[]){0});
  int c = net_binary(&net, "Add", b, three);
  c = net_node(&net, "Clip", 3, (int[]){c, zero, six}, 4, net.dims[c]);
  c = net_binary(&net, "Mul", b, c);
  net_output(&net, net_binary(&net, "Div", c, six));
  net_finish(&net);
  expect_kernels(&net, 2);
  net_end(&net);
}

static void second_user_is_kept(void **state) {
  (void)state;
  /* A convolution that feeds a BatchNormalization and a Relu (executorch
   * 20601): neither may change what the other reads. */
  struct net net;
  int x = image(&net, 3);
  int a = net_conv(&net, x, 4, 3, 1, 1, 1, true);
  net_output(&net, net_batch_norm(&net, a));
  net_output(&net, net_unary(&net, "Relu", a));
  net_finish(&net);
  expect_kernels(&net, 3);
  net_end(&net);
}

static void outputs_in_the_middle(void **state) {
  (void)state;
  /* onnxruntime 15109: every intermediate of a fused pattern is an output. */
  static const float numbers[3] = {-1, 0, 2};
  static const float expected[3][3] = {{-1.702f, 0, 3.404f},
                                       {0.154204f, 0.5f, 0.967829f},
                                       {-0.154204f, 0, 1.935659f}};
  for (int s = 0; s < 3; ++s) {
    struct net net;
    struct io io;
    net_begin(&net, 1);
    int x = net_input(&net, 1, (int64_t[]){3});
    int factor = net_constant(&net, 0, NULL, 0, (float[]){1.702f});
    int t2 = net_binary(&net, "Mul", x, factor);
    int t3 = net_unary(&net, "Sigmoid", t2);
    int t4 = net_binary(&net, "Mul", x, t3);
    net_output(&net, t2);
    net_output(&net, t3);
    net_output(&net, t4);
    net_finish(&net);
    io_begin(&net, &io, numbers);
    struct cuvil_fused *fused =
        fuse(&net, (enum cuvil_fusion_strategy)s, CUVIL_PRECISION_FP32);
    check_run(&net, fused, &io, 1e-6, "outputs in the middle");
    for (int o = 0; o < 3; ++o)
      for (int i = 0; i < 3; ++i)
        assert_float_equal(((float *)io.got[o])[i], expected[o][i], 1e-5);
    cuvil_fused_destroy(fused);
    io_end(&io);
    net_end(&net);
  }
}

static void bias_that_broadcasts_up(void **state) {
  (void)state;
  /* onnxruntime 3764: MatMul [3,3]x[3,1] plus a row of four is [3,4]; the add
   * is no bias of the product. */
  static const float a_numbers[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  static const float expected[12] = {13, 23, 33, 43, 22, 32,
                                     42, 52, 31, 41, 51, 61};
  struct net net;
  struct io io;
  net_begin(&net, 1);
  int a = net_input(&net, 2, (int64_t[]){3, 3});
  int ones = net_constant(&net, 2, (int64_t[]){3, 1}, 0, (float[]){1, 1, 1});
  int row =
      net_constant(&net, 2, (int64_t[]){1, 4}, 0, (float[]){10, 20, 30, 40});
  int product =
      net_node(&net, "MatMul", 2, (int[]){a, ones}, 2, (int64_t[]){3, 1});
  net_output(&net, net_binary(&net, "Add", product, row));
  net_finish(&net);
  io_begin(&net, &io, a_numbers);
  struct cuvil_fused *fused =
      fuse(&net, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP32);
  check_run(&net, fused, &io, 1e-6, "bias");
  assert_int_equal(kernels(fused), 2);
  for (int i = 0; i < 12; ++i)
    assert_float_equal(((float *)io.got[0])[i], expected[i], 1e-5);
  cuvil_fused_destroy(fused);
  io_end(&io);
  net_end(&net);
}

static void mlp(void **state) {
  (void)state;
  struct net net;
  net_begin(&net, 9);
  int x = net_input(&net, 2, (int64_t[]){3, 13});
  int h = net_unary(&net, "Relu", net_gemm(&net, x, 17, true));
  h = net_unary(&net, "Tanh", net_gemm(&net, h, 9, false));
  net_output(&net, net_gemm(&net, h, 5, true));
  net_finish(&net);
  expect_kernels(&net, 3);
  struct cuvil_fused *fused =
      fuse(&net, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_TF32);
  assert_int_equal(fused->conversion_count, 0);
  for (int t = 0; t < fused->task_count; ++t)
    assert_true(fused->tasks[t].problem.tf32);
  cuvil_fused_destroy(fused);
  net_end(&net);
}

static void ends_of_the_graph(void **state) {
  (void)state;
  /* Inputs and constants that are outputs, one value that is two outputs, a
   * reshape of an input that is an output. */
  struct net net;
  int x = image(&net, 3);
  net_output(&net, net_unary(&net, "Identity", x));
  net_output(&net, net_flatten(&net, x));
  int c = net_constant(&net, 2, (int64_t[]){2, 3}, 1, NULL);
  net_output(&net, net_unary(&net, "Identity", c));
  int y = net_unary(&net, "Relu", net_conv(&net, x, 4, 3, 1, 1, 1, true));
  net_output(&net, y);
  net_output(&net, net_unary(&net, "Identity", y));
  net_finish(&net);
  expect_kernels(&net, 1);
  net_end(&net);
}

static void pools_that_round_up(void **state) {
  (void)state;
  for (int average = 0; average < 2; ++average) {
    struct net net;
    int x = image(&net, 3);
    int64_t dims[4] = {2, 3, 3, 3}; /* 6x5, window 2, stride 2, ceil */
    int y = net_node(&net, average ? "AveragePool" : "MaxPool", 1, &x, 4, dims);
    int node = net_last_node(&net);
    int64_t two[] = {2, 2};
    assert_int_equal(
        cuvil_graph_set_ints(net.graph, node, "kernel_shape", 2, two),
        CUVIL_OK);
    assert_int_equal(cuvil_graph_set_ints(net.graph, node, "strides", 2, two),
                     CUVIL_OK);
    assert_int_equal(cuvil_graph_set_int(net.graph, node, "ceil_mode", 1),
                     CUVIL_OK);
    if (average)
      assert_int_equal(
          cuvil_graph_set_int(net.graph, node, "count_include_pad", 1),
          CUVIL_OK);
    net_output(&net, y);
    net_finish(&net);
    expect_kernels(&net, 1);
    net_end(&net);
  }
}

static void reductions(void **state) {
  (void)state;
  static const int64_t axes[5][3] = {
      {2, 3, -9}, {1, -9}, {-1, -9}, {0, 2, -9}, {-9}};
  static const char *const ops[5] = {"ReduceMean", "ReduceSum", "ReduceMax",
                                     "ReduceSum", "ReduceMean"};
  for (int i = 0; i < 5; ++i) {
    struct net net;
    int x = image(&net, 3);
    x = net_conv(&net, x, 4, 3, 1, 1, 1, false);
    int64_t dims[4], list[4] = {0};
    int count = 0;
    memcpy(dims, net.dims[x], sizeof(dims));
    for (int j = 0; axes[i][j] != -9; ++j) {
      list[count++] = axes[i][j];
      dims[axes[i][j] < 0 ? axes[i][j] + 4 : axes[i][j]] = 1;
    }
    for (int j = 0; count == 0 && j < 4; ++j)
      dims[j] = 1;
    int inputs[2] = {x, -1};
    net.graph->opset = 13;
    int y = net_node(&net, ops[i], 1, inputs, 4, dims);
    if (count)
      assert_int_equal(cuvil_graph_set_ints(net.graph, net_last_node(&net),
                                            "axes", count, list),
                       CUVIL_OK);
    net_output(&net, y);
    net_finish(&net);
    expect_kernels(&net, 2);
    net_end(&net);
  }
}

/* ---- weights */

static void weight_bytes(void **state) {
  (void)state;
  struct net net;
  int x = image(&net, 3);
  net_output(&net, net_conv(&net, x, 2, 3, 1, 1, 1, false));
  net_finish(&net);
  const float *source = net.memory[0]; /* [2,3,3,3] */
  struct cuvil_fused *fused =
      fuse(&net, CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16);
  int weight = -1;
  for (int t = 0; t < fused->tensor_count; ++t)
    if (fused->tensors[t].kind == CUVIL_TENSOR_WEIGHT) weight = t;
  assert_true(weight >= 0);
  /* [k,r,s,c] with three channels padded to four. */
  assert_int_equal(fused->tensors[weight].bytes, 2 * 3 * 3 * 4 * 2);
  uint16_t out[2][3][3][4];
  memset(out, 0xee, sizeof(out));
  assert_int_equal(cuvil_fused_weight(fused, weight, out), CUVIL_OK);
  for (int k = 0; k < 2; ++k)
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 3; ++s)
        for (int c = 0; c < 4; ++c) {
          float expected = c < 3 ? source[((k * 3 + c) * 3 + r) * 3 + s] : 0.0f;
          assert_int_equal(out[k][r][s][c], cuvil_f32_to_f16(expected));
        }
  cuvil_fused_destroy(fused);
  net_end(&net);
}

/* ---- refusals */

static void unsupported_nodes_are_listed(void **state) {
  (void)state;
  struct net net;
  int x = image(&net, 3);
  int y = net_conv(&net, x, 4, 3, 1, 1, 1, true);
  int a = net_unary(&net, "Floor", y);
  int b = net_unary(&net, "Relu", net_unary(&net, "Floor", a));
  net_output(&net, b);
  net_finish(&net);
  struct cuvil_fusion_options options = {CUVIL_FUSION_MEDIUM,
                                         CUVIL_PRECISION_FP32};
  struct cuvil_fused *fused;
  assert_int_equal(cuvil_fuse(net.graph, &options, &fused),
                   CU_ERR_MODEL_UNSUPPORTED);
  assert_null(fused);
  const char *row = strstr(cuvil_fusion_unsupported(), "Floor");
  int count = 0;
  assert_non_null(row);
  assert_int_equal(sscanf(row, "Floor %d", &count), 1);
  assert_int_equal(count, 2);
  assert_non_null(strstr(row, net.graph->nodes[1].name));
  assert_null(strstr(row, "Relu"));
  assert_non_null(strstr(cuvil_last_error(), "2 nodes"));
  net_end(&net);
}

static void softmax_and_transpose(void **state) {
  (void)state;
  /* Up to opset 12 a softmax runs over all axes from `axis` (default 1) on;
   * then over one (default the last). */
  static const int64_t axes[3] = {1, -1, 2};
  for (int opset = 11; opset <= 13; opset += 2)
    for (int i = 0; i < 4; ++i) {
      struct net net;
      int x = image(&net, 3);
      net.graph->opset = opset;
      x = net_conv(&net, x, 4, 3, 1, 1, 1, false);
      int y = net_unary(&net, "Softmax", x);
      if (i < 3)
        assert_int_equal(cuvil_graph_set_int(net.graph, net_last_node(&net),
                                             "axis", axes[i]),
                         CUVIL_OK);
      y = net_node(&net, "Transpose", 1, &y, 4, (int64_t[]){6, 2, 5, 4});
      assert_int_equal(cuvil_graph_set_ints(net.graph, net_last_node(&net),
                                            "perm", 4, (int64_t[]){2, 0, 3, 1}),
                       CUVIL_OK);
      net_output(&net, y);
      net_finish(&net);
      /* Not along the last axis it is four tasks.  The transposition is a
       * view, and a conversion for the output. */
      bool last = opset < 13 || i == 1 || i == 3;
      expect_kernels(&net, last ? 2 : 5);
      net_end(&net);
    }
}

static void names_of_options(void **state) {
  (void)state;
  enum cuvil_fusion_strategy strategy;
  enum cuvil_precision precision;
  assert_int_equal(cuvil_fusion_strategy_parse("fine", &strategy), CUVIL_OK);
  assert_int_equal(strategy, CUVIL_FUSION_FINE);
  assert_int_equal(cuvil_fusion_strategy_parse("finest", &strategy),
                   CU_ERR_INVALID_ARGUMENT);
  assert_int_equal(cuvil_fusion_strategy_parse("coarse", &strategy),
                   CU_ERR_UNSUPPORTED);
  assert_int_equal(cuvil_precision_parse("bf16", &precision), CUVIL_OK);
  assert_int_equal(precision, CUVIL_PRECISION_BF16);
  assert_int_equal(cuvil_precision_parse("fp8", &precision),
                   CU_ERR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(residual_either_order),
      cmocka_unit_test(residual_that_depends_on_the_conv),
      cmocka_unit_test(same_operand_twice),
      cmocka_unit_test(silu_and_hardswish),
      cmocka_unit_test(second_user_is_kept),
      cmocka_unit_test(outputs_in_the_middle),
      cmocka_unit_test(bias_that_broadcasts_up),
      cmocka_unit_test(mlp),
      cmocka_unit_test(ends_of_the_graph),
      cmocka_unit_test(pools_that_round_up),
      cmocka_unit_test(reductions),
      cmocka_unit_test(weight_bytes),
      cmocka_unit_test(softmax_and_transpose),
      cmocka_unit_test(unsupported_nodes_are_listed),
      cmocka_unit_test(names_of_options),
      cmocka_unit_test(random_graphs),
      cmocka_unit_test(half_precision),
      cmocka_unit_test(small_resnet_runs),
      cmocka_unit_test(resnet50_kernels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
