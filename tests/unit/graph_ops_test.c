/* graph_ops_test.c - every operator of the table against values worked out by
 * hand, with the cases that other importers got wrong (the numbers in brackets
 * are those projects' bug reports). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fusion/fusion.h"
#include "graph/ops.h"
#include "tests/support/onnx_case.h"

/* ---- element by element */
static void unary(const char *op, const double *expected) {
  struct onnx_case c;
  onnx_begin(&c, 20);
  onnx_input(&c, "x", 1, DIMS(5));
  cuvil_builder_node(c.b, op, "n", "x", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(-4, -0.5f, 0, 1, 2), 1, DIMS(5), expected);
  onnx_end(&c);
}

static void unary_functions(void **state) {
  (void)state;
  unary("Abs", VALUES(4, 0.5, 0, 1, 2));
  unary("Neg", VALUES(4, 0.5, 0, -1, -2));
  unary("Relu", VALUES(0, 0, 0, 1, 2));
  unary("LeakyRelu", VALUES(-0.04, -0.005, 0, 1, 2));
  unary("Sigmoid", VALUES(0.01798621, 0.37754067, 0.5, 0.73105858, 0.88079708));
  unary("Tanh", VALUES(-0.99932930, -0.46211716, 0, 0.76159416, 0.96402758));
  unary("Erf", VALUES(-0.99999998, -0.52049988, 0, 0.84270079, 0.99532227));
  unary("Exp", VALUES(0.01831564, 0.60653066, 1, 2.71828183, 7.38905610));
  unary("HardSigmoid", VALUES(0, 0.4, 0.5, 0.7, 0.9));
  unary("HardSwish", VALUES(0, -0.20833333, 0, 0.66666667, 1.66666667));
  unary("Gelu", VALUES(-0.00012669, -0.15426877, 0, 0.84134475, 1.95449974));
  unary("Log", VALUES(NAN, NAN, -INFINITY, 0, 0.69314718));
  unary("Sqrt", VALUES(NAN, NAN, 0, 1, 1.41421356));
}

static void gelu_tanh_differs_from_erf(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 20);
  onnx_input(&c, "x", 1, DIMS(2));
  cuvil_builder_node(c.b, "Gelu", "n", "x", "y");
  cuvil_builder_string(c.b, "approximate", "tanh");
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(1, -0.5f), 1, DIMS(2),
                 VALUES(0.84119199, -0.15428599));
  onnx_end(&c);
}

/* TensorRT#4773: a NaN passes; onnx PR 6395: min > max gives max. */
static void clip(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(4));
  onnx_floats(&c, "two", 0, NULL, FLOATS(2));
  onnx_floats(&c, "one", 0, NULL, FLOATS(1));
  cuvil_builder_node(c.b, "Clip", "a", "x,two,one", "crossed");
  cuvil_builder_node(c.b, "Clip", "b", "x,,one", "upper"); /* C5 */
  cuvil_builder_node(c.b, "Clip", "c", "x", "free");
  onnx_output(&c, "crossed");
  onnx_output(&c, "upper");
  onnx_output(&c, "free");
  onnx_load(&c);
  const void *x[] = {FLOATS(-2, 0, 6, NAN)};
  onnx_expect(&c, x, 0, 1, DIMS(4), VALUES(1, 1, 1, NAN));
  onnx_expect(&c, x, 1, 1, DIMS(4), VALUES(-2, 0, 1, NAN));
  onnx_expect(&c, x, 2, 1, DIMS(4), VALUES(-2, 0, 6, NAN));
  onnx_end(&c);
}

static void broadcasting(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 3, DIMS(2, 1, 3));
  onnx_floats(&c, "col", 2, DIMS(2, 1), FLOATS(10, 20));
  onnx_floats(&c, "s", 0, NULL, FLOATS(2));
  cuvil_builder_node(c.b, "Add", "a", "x,col", "sum");
  cuvil_builder_node(c.b, "Sub", "b", "s,x", "difference");
  cuvil_builder_node(c.b, "Pow", "p", "x,s", "square");
  cuvil_builder_node(c.b, "Max", "m", "x,col,s", "max");
  cuvil_builder_node(c.b, "Sum", "u", "x,x,s", "triple");
  onnx_output(&c, "sum");
  onnx_output(&c, "difference");
  onnx_output(&c, "square");
  onnx_output(&c, "max");
  onnx_output(&c, "triple");
  onnx_load(&c);
  const void *x[] = {FLOATS(0, 1, 2, 3, 4, 15)};
  onnx_expect(&c, x, 0, 3, DIMS(2, 2, 3),
              VALUES(10, 11, 12, 20, 21, 22, 13, 14, 25, 23, 24, 35));
  onnx_expect(&c, x, 1, 3, DIMS(2, 1, 3), VALUES(2, 1, 0, -1, -2, -13));
  onnx_expect(&c, x, 2, 3, DIMS(2, 1, 3), VALUES(0, 1, 4, 9, 16, 225));
  onnx_expect(&c, x, 3, 3, DIMS(2, 2, 3),
              VALUES(10, 10, 10, 20, 20, 20, 10, 10, 15, 20, 20, 20));
  onnx_expect(&c, x, 4, 3, DIMS(2, 1, 3), VALUES(2, 4, 6, 8, 10, 32));
  onnx_end(&c);
}

/* ---- windows */

/* onnxruntime#495, root PR 21793: the extent is ceil(in / stride). */
static void conv_auto_pad(void **state) {
  (void)state;
  for (int lower = 0; lower < 2; lower++) {
    struct onnx_case c;
    onnx_begin(&c, 13);
    onnx_input(&c, "x", 4, DIMS(1, 1, 4, 4));
    onnx_range(&c, "w", 4, DIMS(1, 1, 3, 3), 1, 0);
    cuvil_builder_node(c.b, "Conv", "n", "x,w", "y");
    cuvil_builder_string(c.b, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
    cuvil_builder_ints(c.b, "strides", 2, INTS(2, 2));
    onnx_output(&c, "y");
    onnx_load(&c);
    onnx_expect_of(
        &c, FLOATS(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16), 4,
        DIMS(1, 1, 2, 2),
        lower ? VALUES(14, 30, 57, 99) : VALUES(54, 45, 72, 54));
    struct cuvil_window w;
    assert_int_equal(cuvil_node_window(c.graph, &c.graph->nodes[0], &w), 0);
    assert_int_equal(w.pad[0], lower);
    assert_int_equal(w.pad[2], !lower);
    assert_int_equal(w.stride[1], 2);
    assert_int_equal(cuvil_window_extent(&w, 0, 4), 2);
    onnx_end(&c);
  }
}

/* onnx#3259: VALID ignores pads. */
static void conv_valid_ignores_pads(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 4, DIMS(1, 1, 120, 3));
  onnx_range(&c, "w", 4, DIMS(1, 1, 3, 3), 1, 0);
  cuvil_builder_node(c.b, "Conv", "n", "x,w", "y");
  cuvil_builder_string(c.b, "auto_pad", "VALID");
  cuvil_builder_ints(c.b, "pads", 4, INTS(1, 1, 1, 1));
  cuvil_builder_ints(c.b, "strides", 2, INTS(2, 2));
  onnx_output(&c, "y");
  onnx_load(&c);
  assert_int_equal(onnx_value(&c, "y")->dims[2], 59);
  assert_int_equal(onnx_value(&c, "y")->dims[3], 1);
  onnx_end(&c);
}

/* Against a plain loop: groups, dilation, uneven pads and strides, bias, and
 * sizes beside the blocks of the matrix product. */
static void conv_against_plain_loop(void **state) {
  (void)state;
  enum { N = 2, C = 6, H = 13, W = 11, K = 14, G = 2, R = 3, S = 2 };
  enum { P = (H + 1 + 2 - 2 * (R - 1) - 1) / 2 + 1, Q = W + 0 + 1 - 1 };
  static float x[N * C * H * W], w[K * C / G * R * S], bias[K];
  static double y[N * K * P * Q];
  for (size_t i = 0; i < sizeof x / sizeof *x; i++)
    x[i] = (float)((i * 7 + 3) % 23) / 8 - 1;
  for (size_t i = 0; i < sizeof w / sizeof *w; i++)
    w[i] = (float)((i * 5 + 1) % 17) / 16 - 0.5f;
  for (int i = 0; i < K; i++)
    bias[i] = (float)i / 4;
  for (int n = 0; n < N; n++)
    for (int k = 0; k < K; k++)
      for (int p = 0; p < P; p++)
        for (int q = 0; q < Q; q++) {
          double sum = bias[k];
          int g = k / (K / G);
          for (int c = 0; c < C / G; c++)
            for (int r = 0; r < R; r++)
              for (int s = 0; s < S; s++) {
                int h = p * 2 - 1 + r * 2, v = q - 0 + s;
                if (h < 0 || h >= H || v >= W) continue;
                sum += (double)x[((n * C + g * (C / G) + c) * H + h) * W + v] *
                       w[((k * (C / G) + c) * R + r) * S + s];
              }
          y[((n * K + k) * P + p) * Q + q] = sum;
        }
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 4, DIMS(N, C, H, W));
  onnx_floats(&c, "w", 4, DIMS(K, C / G, R, S), w);
  onnx_floats(&c, "b", 1, DIMS(K), bias);
  cuvil_builder_node(c.b, "Conv", "n", "x,w,b", "y");
  cuvil_builder_int(c.b, "group", G);
  cuvil_builder_ints(c.b, "pads", 4, INTS(1, 0, 2, 1));
  cuvil_builder_ints(c.b, "strides", 2, INTS(2, 1));
  cuvil_builder_ints(c.b, "dilations", 2, INTS(2, 1));
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, x, 4, DIMS(N, K, P, Q), y);
  onnx_end(&c);
}

/* onnx PR 5741: a last window that starts in the padding is dropped. */
static void max_pool_ceil(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "a", 4, DIMS(1, 1, 12, 12));
  onnx_input(&c, "b", 4, DIMS(1, 1, 5, 5));
  cuvil_builder_node(c.b, "MaxPool", "n", "a", "y");
  cuvil_builder_ints(c.b, "kernel_shape", 2, INTS(1, 1));
  cuvil_builder_ints(c.b, "strides", 2, INTS(2, 2));
  cuvil_builder_int(c.b, "ceil_mode", 1);
  cuvil_builder_node(c.b, "MaxPool", "m", "b", "z");
  cuvil_builder_ints(c.b, "kernel_shape", 2, INTS(2, 2));
  cuvil_builder_ints(c.b, "strides", 2, INTS(2, 2));
  cuvil_builder_ints(c.b, "pads", 4, INTS(1, 1, 1, 1));
  cuvil_builder_int(c.b, "ceil_mode", 1);
  onnx_output(&c, "y");
  onnx_output(&c, "z");
  onnx_load(&c);
  float a[144], b[25];
  for (int i = 0; i < 144; i++)
    a[i] = (float)i;
  for (int i = 0; i < 25; i++)
    b[i] = (float)-i;
  const void *inputs[] = {a, b};
  double y[36];
  for (int i = 0; i < 36; i++)
    y[i] = i / 6 * 24 + i % 6 * 2;
  onnx_expect(&c, inputs, 0, 4, DIMS(1, 1, 6, 6), y);
  onnx_expect(&c, inputs, 1, 4, DIMS(1, 1, 3, 3),
              VALUES(0, -1, -3, -5, -6, -8, -15, -16, -18));
  onnx_end(&c);
}

/* onnxruntime#801, and without counting the padding. */
static void average_pool_counts(void **state) {
  (void)state;
  for (int include = 0; include < 2; include++) {
    struct onnx_case c;
    onnx_begin(&c, 13);
    onnx_input(&c, "x", 4, DIMS(1, 1, 1, 5));
    cuvil_builder_node(c.b, "AveragePool", "n", "x", "y");
    cuvil_builder_ints(c.b, "kernel_shape", 2, INTS(1, 2));
    cuvil_builder_ints(c.b, "pads", 4, INTS(0, 2, 0, 3));
    cuvil_builder_ints(c.b, "strides", 2, INTS(1, 2));
    cuvil_builder_int(c.b, "count_include_pad", include);
    onnx_output(&c, "y");
    onnx_load(&c);
    onnx_expect_of(
        &c, FLOATS(1, 2, 3, 4, 5), 4, DIMS(1, 1, 1, 5),
        include ? VALUES(0, 1.5, 3.5, 2.5, 0) : VALUES(0, 1.5, 3.5, 5, 0));
    onnx_end(&c);
  }
}

/* onnxruntime#22177: the Pad is data for the pool that follows. */
static void pad_then_average_pool(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 4, DIMS(1, 1, 2, 2));
  onnx_ints(&c, "pads", 8, INTS(0, 0, 1, 1, 0, 0, 1, 1));
  cuvil_builder_node(c.b, "Pad", "p", "x,pads", "padded");
  cuvil_builder_node(c.b, "AveragePool", "n", "padded", "y");
  cuvil_builder_ints(c.b, "kernel_shape", 2, INTS(3, 3));
  cuvil_builder_int(c.b, "count_include_pad", 0);
  onnx_output(&c, "y");
  onnx_load(&c);
  const double v = 4.0 / 9;
  onnx_expect_of(&c, FLOATS(1, 1, 1, 1), 4, DIMS(1, 1, 2, 2),
                 VALUES(v, v, v, v));
  onnx_end(&c);
}

static void global_pools(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 4, DIMS(1, 2, 1, 3));
  cuvil_builder_node(c.b, "GlobalAveragePool", "a", "x", "mean");
  cuvil_builder_node(c.b, "GlobalMaxPool", "m", "x", "max");
  onnx_output(&c, "mean");
  onnx_output(&c, "max");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 6, -1, -5, -3)};
  onnx_expect(&c, x, 0, 4, DIMS(1, 2, 1, 1), VALUES(3, -3));
  onnx_expect(&c, x, 1, 4, DIMS(1, 2, 1, 1), VALUES(6, -1));
  onnx_end(&c);
}

/* ---- products */

/* onnxruntime#3764: the sum is wider than the product. */
static void matmul_and_add_that_widens(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "a", 2, DIMS(3, 3));
  onnx_floats(&c, "b", 2, DIMS(3, 1), FLOATS(1, 1, 1));
  onnx_floats(&c, "c", 2, DIMS(1, 4), FLOATS(10, 20, 30, 40));
  cuvil_builder_node(c.b, "MatMul", "m", "a,b", "ab");
  cuvil_builder_node(c.b, "Add", "s", "ab,c", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(0, 1, 2, 3, 4, 5, 6, 7, 8), 2, DIMS(3, 4),
                 VALUES(13, 23, 33, 43, 22, 32, 42, 52, 31, 41, 51, 61));
  onnx_end(&c);
}

static void gemm_all_ways(void **state) {
  (void)state;
  /* A = [1 2 3; 4 5 6], B = [1 0; 2 1; 0 3]; A B = [5 11; 14 23]. */
  static const float a[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 4, 2, 5, 3, 6}};
  static const float b[2][6] = {{1, 0, 2, 1, 0, 3}, {1, 2, 0, 0, 1, 3}};
  for (int way = 0; way < 4; way++) {
    int ta = way & 1, tb = way >> 1;
    struct onnx_case c;
    onnx_begin(&c, 13);
    onnx_input(&c, "a", 2, ta ? DIMS(3, 2) : DIMS(2, 3));
    onnx_floats(&c, "b", 2, tb ? DIMS(2, 3) : DIMS(3, 2), b[tb]);
    onnx_floats(&c, "row", 1, DIMS(2), FLOATS(1, 2));
    onnx_floats(&c, "col", 2, DIMS(2, 1), FLOATS(10, 20));
    onnx_floats(&c, "s", 0, NULL, FLOATS(4));
    static const char *const inputs[] = {"a,b,row", "a,b,col", "a,b,s", "a,b"};
    static const char *const names[] = {"y0", "y1", "y2", "y3"};
    for (int i = 0; i < 4; i++) {
      cuvil_builder_node(c.b, "Gemm", names[i], inputs[i], names[i]);
      cuvil_builder_int(c.b, "transA", ta);
      cuvil_builder_int(c.b, "transB", tb);
      cuvil_builder_float(c.b, "alpha", 2);
      cuvil_builder_float(c.b, "beta", 0.5f);
      onnx_output(&c, names[i]);
    }
    onnx_load(&c);
    const void *x[] = {a[ta]};
    onnx_expect(&c, x, 0, 2, DIMS(2, 2), VALUES(10.5, 23, 28.5, 47));
    onnx_expect(&c, x, 1, 2, DIMS(2, 2), VALUES(15, 27, 38, 56));
    onnx_expect(&c, x, 2, 2, DIMS(2, 2), VALUES(12, 24, 30, 48));
    onnx_expect(&c, x, 3, 2, DIMS(2, 2), VALUES(10, 22, 28, 46));
    onnx_end(&c);
  }
}

/* ---- reductions */

/* candle PR 3976: axes are an input from opset 18 on (13 for ReduceSum), and
 * "" means absent; onnxruntime#16586: noop_with_empty_axes. */
static void reductions(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 18);
  onnx_input(&c, "x", 2, DIMS(2, 3));
  onnx_ints(&c, "last", 1, INTS(-1));
  onnx_ints(&c, "none", 0, INTS(0));
  cuvil_builder_node(c.b, "ReduceMean", "a", "x,last", "mean");
  cuvil_builder_node(c.b, "ReduceSum", "b", "x,", "sum");
  cuvil_builder_int(c.b, "keepdims", 0);
  cuvil_builder_node(c.b, "ReduceSum", "d", "x,none", "same");
  cuvil_builder_int(c.b, "noop_with_empty_axes", 1);
  cuvil_builder_node(c.b, "ReduceMax", "e", "x,last", "max");
  cuvil_builder_int(c.b, "keepdims", 0);
  onnx_output(&c, "mean");
  onnx_output(&c, "sum");
  onnx_output(&c, "same");
  onnx_output(&c, "max");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 6, -4, -5, -9)};
  onnx_expect(&c, x, 0, 2, DIMS(2, 1), VALUES(3, -6));
  onnx_expect(&c, x, 1, 0, NULL, VALUES(-9));
  onnx_expect(&c, x, 2, 2, DIMS(2, 3), VALUES(1, 2, 6, -4, -5, -9));
  onnx_expect(&c, x, 3, 1, DIMS(2), VALUES(6, -4));
  onnx_end(&c);
}

static void reduce_axes_as_attribute(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 11);
  onnx_input(&c, "x", 3, DIMS(2, 2, 2));
  cuvil_builder_node(c.b, "ReduceMean", "a", "x", "y");
  cuvil_builder_ints(c.b, "axes", 2, INTS(0, -1));
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(0, 1, 2, 3, 4, 5, 6, 7), 3, DIMS(1, 2, 1),
                 VALUES(2.5, 4.5));
  onnx_end(&c);
}

/* tvm#20183: up to opset 12 everything behind the axis is one row. */
static void softmax_by_opset(void **state) {
  (void)state;
  for (int opset = 11; opset <= 13; opset += 2) {
    struct onnx_case c;
    onnx_begin(&c, opset);
    onnx_input(&c, "x", 3, DIMS(2, 3, 4));
    cuvil_builder_node(c.b, "Softmax", "s", "x", "y");
    onnx_output(&c, "y");
    onnx_load(&c);
    float x[24];
    double y[24];
    int row = opset == 11 ? 12 : 4;
    for (int i = 0; i < 24; i++)
      x[i] = (float)i / 10;
    for (int i = 0; i < 24; i++) {
      double sum = 0;
      for (int k = i / row * row; k < (i / row + 1) * row; k++)
        sum += exp(x[k]);
      y[i] = exp(x[i]) / sum;
    }
    assert_true(fabs(y[0] - (opset == 11 ? 0.04533 : 0.213838)) < 1e-6);
    onnx_expect_of(&c, x, 3, DIMS(2, 3, 4), y);
    onnx_end(&c);
  }
}

/* ---- shapes and moves */

/* onnx#2446, pytorch#7868: perm[i] = p1[p2[i]]. */
static void two_transposes(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 3, DIMS(2, 3, 4));
  cuvil_builder_node(c.b, "Transpose", "a", "x", "t");
  cuvil_builder_ints(c.b, "perm", 3, INTS(1, 0, 2));
  cuvil_builder_node(c.b, "Transpose", "b", "t", "y");
  cuvil_builder_ints(c.b, "perm", 3, INTS(0, 2, 1));
  cuvil_builder_node(c.b, "Transpose", "c", "x", "reversed");
  onnx_output(&c, "y");
  onnx_output(&c, "reversed");
  onnx_load(&c);
  float x[24];
  double y[24], r[24];
  for (int i = 0; i < 24; i++)
    x[i] = (float)i;
  for (int i = 0; i < 24; i++) {
    int a = i / 8, b = i / 2 % 4, d = i % 2; /* y[a][b][d] = x[d][a][b] */
    y[i] = d * 12 + a * 4 + b;
    r[i] = i % 2 * 12 + i / 2 % 3 * 4 + i / 6; /* r[k][j][i] = x[i][j][k] */
  }
  const void *inputs[] = {x};
  onnx_expect(&c, inputs, 0, 3, DIMS(3, 4, 2), y);
  onnx_expect(&c, inputs, 1, 3, DIMS(4, 3, 2), r);
  onnx_end(&c);
}

/* candle PR 3976: Flatten counts its axis from the end, too. */
static void views(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 3, DIMS(2, 3, 4));
  onnx_ints(&c, "shape", 3, INTS(0, -1, 2));
  onnx_ints(&c, "axes", 2, INTS(0, -1));
  cuvil_builder_node(c.b, "Flatten", "f", "x", "flat");
  cuvil_builder_int(c.b, "axis", -1);
  cuvil_builder_node(c.b, "Reshape", "r", "x,shape", "shaped");
  cuvil_builder_node(c.b, "Unsqueeze", "u", "x,axes", "wide");
  cuvil_builder_node(c.b, "Squeeze", "s", "wide,axes", "narrow");
  onnx_output(&c, "flat");
  onnx_output(&c, "shaped");
  onnx_output(&c, "wide");
  onnx_output(&c, "narrow");
  onnx_load(&c);
  float x[24];
  double y[24];
  for (int i = 0; i < 24; i++)
    y[i] = x[i] = (float)i;
  const void *inputs[] = {x};
  onnx_expect(&c, inputs, 0, 2, DIMS(6, 4), y);
  onnx_expect(&c, inputs, 1, 3, DIMS(2, 6, 2), y);
  onnx_expect(&c, inputs, 2, 5, DIMS(1, 2, 3, 4, 1), y);
  onnx_expect(&c, inputs, 3, 3, DIMS(2, 3, 4), y);
  onnx_end(&c);
}

/* tvm#19531: negative indices; tvm#6263: INT64_MAX is "to the end". */
static void gather_slice_concat_pad(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 2, DIMS(3, 4));
  onnx_ints(&c, "rows", 2, INTS(0, -1));
  onnx_ints(&c, "from", 2, INTS(-1, 1));
  onnx_ints(&c, "to", 2, INTS(INT64_MIN, INT64_MAX));
  onnx_ints(&c, "axes", 2, INTS(0, 1));
  onnx_ints(&c, "steps", 2, INTS(-2, 2));
  onnx_ints(&c, "pads", 4, INTS(1, -1, 0, 1));
  onnx_floats(&c, "nine", 0, NULL, FLOATS(9));
  cuvil_builder_node(c.b, "Gather", "g", "x,rows", "gathered");
  cuvil_builder_node(c.b, "Slice", "s", "x,from,to,axes,steps", "sliced");
  cuvil_builder_node(c.b, "Concat", "k", "x,gathered", "joined");
  cuvil_builder_int(c.b, "axis", 0);
  cuvil_builder_node(c.b, "Pad", "p", "sliced,pads,nine", "padded");
  onnx_output(&c, "gathered");
  onnx_output(&c, "sliced");
  onnx_output(&c, "joined");
  onnx_output(&c, "padded");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)};
  onnx_expect(&c, x, 0, 2, DIMS(2, 4), VALUES(1, 2, 3, 4, 9, 10, 11, 12));
  onnx_expect(&c, x, 1, 2, DIMS(2, 2), VALUES(10, 12, 2, 4));
  onnx_expect(
      &c, x, 2, 2, DIMS(5, 4),
      VALUES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 9, 10, 11, 12));
  onnx_expect(&c, x, 3, 2, DIMS(3, 2), VALUES(9, 9, 12, 9, 4, 9));
  onnx_end(&c);
}

static void cast_rounds_as_its_type(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(4));
  cuvil_builder_node(c.b, "Cast", "a", "x", "half");
  cuvil_builder_int(c.b, "to", 10);
  cuvil_builder_node(c.b, "Cast", "b", "half", "y");
  cuvil_builder_int(c.b, "to", 1);
  cuvil_builder_node(c.b, "Cast", "c", "x", "whole");
  cuvil_builder_int(c.b, "to", 7);
  cuvil_builder_output(c.b, "y", CUVIL_F32, -1, NULL);
  cuvil_builder_output(c.b, "whole", CUVIL_I64, -1, NULL);
  onnx_load(&c);
  const void *x[] = {FLOATS(1.0001f, -2.7f, 3, 0.1f)};
  onnx_expect(&c, x, 0, 1, DIMS(4), VALUES(1, -2.69921875, 3, 0.0999755859375));
  onnx_expect(&c, x, 1, 1, DIMS(4), VALUES(1, -2, 3, 0));
  onnx_end(&c);
}

static void table_is_sorted_and_complete(void **state) {
  (void)state;
  int count;
  const struct cuvil_op *table = cuvil_op_table(&count);
  assert_true(count >= 49);
  for (int i = 0; i < count; i++) {
    assert_ptr_equal(cuvil_op_find(table[i].name), &table[i]);
    assert_non_null(table[i].infer);
    assert_non_null(table[i].execute);
    if (i > 0) assert_true(strcmp(table[i - 1].name, table[i].name) < 0);
  }
  assert_null(cuvil_op_find("Loop"));
}

/* docs/operators.md is what the table says.  With CUVIL_UPDATE_DOCS set it is
 * written instead.  Tests run in the project's root. */
static void operators_page_is_current(void **state) {
  (void)state;
  struct cuvil_buf page = {0}, file = {0};
  cuvil_graph_operators(cuvil_fusion_coverage_name, &page);
  if (getenv("CUVIL_UPDATE_DOCS") != NULL)
    assert_int_equal(
        cuvil_file_write_atomic("docs/operators.md", page.data, page.size),
        CUVIL_OK);
  assert_int_equal(cuvil_file_read("docs/operators.md", &file), CUVIL_OK);
  assert_string_equal(cuvil_buf_text(&file), cuvil_buf_text(&page));
  cuvil_buf_free(&page);
  cuvil_buf_free(&file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unary_functions),
      cmocka_unit_test(gelu_tanh_differs_from_erf),
      cmocka_unit_test(clip),
      cmocka_unit_test(broadcasting),
      cmocka_unit_test(conv_auto_pad),
      cmocka_unit_test(conv_valid_ignores_pads),
      cmocka_unit_test(conv_against_plain_loop),
      cmocka_unit_test(max_pool_ceil),
      cmocka_unit_test(average_pool_counts),
      cmocka_unit_test(pad_then_average_pool),
      cmocka_unit_test(global_pools),
      cmocka_unit_test(matmul_and_add_that_widens),
      cmocka_unit_test(gemm_all_ways),
      cmocka_unit_test(reductions),
      cmocka_unit_test(reduce_axes_as_attribute),
      cmocka_unit_test(softmax_by_opset),
      cmocka_unit_test(two_transposes),
      cmocka_unit_test(views),
      cmocka_unit_test(gather_slice_concat_pad),
      cmocka_unit_test(cast_rounds_as_its_type),
      cmocka_unit_test(table_is_sorted_and_complete),
      cmocka_unit_test(operators_page_is_current),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
