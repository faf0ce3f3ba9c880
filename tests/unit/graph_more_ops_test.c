/* graph_more_ops_test.c - the operators that transformers need, against values
 * worked out by hand, and the nodes that import leaves out because they change
 * nothing.  (Numbers in brackets are bug reports of other importers.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/support/onnx_case.h"

#define BYTES(...) ((const uint8_t[]){__VA_ARGS__})

/* One node `op` of input x and constants that `add` made; output y. */
static void begin(struct onnx_case *c, int opset, int rank,
                  const int64_t *dims) {
  onnx_begin(c, opset);
  onnx_input(c, "x", rank, dims);
}

static void matmul_broadcasts(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 13, 3, DIMS(2, 1, 2));
  onnx_range(&c, "one", 2, DIMS(2, 3), 1, 1);
  onnx_range(&c, "many", 4, DIMS(2, 1, 2, 1), 1, 1);
  onnx_range(&c, "vector", 1, DIMS(2), 1, 1);
  cuvil_builder_node(c.b, "MatMul", "a", "x,one", "shared");
  cuvil_builder_node(c.b, "MatMul", "b", "x,many", "stacked");
  cuvil_builder_node(c.b, "MatMul", "c", "x,vector", "by_vector");
  cuvil_builder_node(c.b, "MatMul", "d", "vector,one", "constant");
  static const char *const names[] = {"shared", "stacked", "by_vector",
                                      "constant"};
  for (int i = 0; i < 4; i++)
    onnx_output(&c, names[i]);
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 3, 4)};
  onnx_expect(&c, x, 0, 3, DIMS(2, 1, 3), VALUES(9, 12, 15, 19, 26, 33));
  onnx_expect(&c, x, 1, 4, DIMS(2, 2, 1, 1), VALUES(5, 11, 11, 25));
  onnx_expect(&c, x, 2, 2, DIMS(2, 1), VALUES(5, 11));
  onnx_expect(&c, x, 3, 1, DIMS(3), VALUES(9, 12, 15));
  onnx_end(&c);
}

static void comparisons_and_where(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 16, 2, DIMS(2, 2));
  onnx_floats(&c, "row", 1, DIMS(2), FLOATS(1, 3));
  static const char *const ops[] = {"Less", "LessOrEqual", "Greater",
                                    "GreaterOrEqual", "Equal"};
  for (int i = 0; i < 5; i++) {
    cuvil_builder_node(c.b, ops[i], ops[i], "x,row", ops[i]);
    cuvil_builder_output(c.b, ops[i], CUVIL_BOOL, -1, NULL);
  }
  cuvil_builder_node(c.b, "Where", "w", "Less,row,x", "chosen");
  cuvil_builder_node(c.b, "Not", "n", "Less", "not");
  cuvil_builder_node(c.b, "And", "a", "not,LessOrEqual", "and");
  cuvil_builder_node(c.b, "Or", "o", "Less,Equal", "or");
  cuvil_builder_node(c.b, "Xor", "x", "or,LessOrEqual", "xor");
  onnx_output(&c, "chosen");
  cuvil_builder_output(c.b, "and", CUVIL_BOOL, -1, NULL);
  cuvil_builder_output(c.b, "xor", CUVIL_BOOL, -1, NULL);
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, NAN, 3)};
  onnx_expect(&c, x, 0, 2, DIMS(2, 2), VALUES(0, 1, 0, 0));
  onnx_expect(&c, x, 1, 2, DIMS(2, 2), VALUES(1, 1, 0, 1));
  onnx_expect(&c, x, 2, 2, DIMS(2, 2), VALUES(0, 0, 0, 0));
  onnx_expect(&c, x, 3, 2, DIMS(2, 2), VALUES(1, 0, 0, 1));
  onnx_expect(&c, x, 4, 2, DIMS(2, 2), VALUES(1, 0, 0, 1));
  onnx_expect(&c, x, 5, 2, DIMS(2, 2), VALUES(1, 3, NAN, 3));
  onnx_expect(&c, x, 6, 2, DIMS(2, 2), VALUES(1, 0, 0, 1));
  onnx_expect(&c, x, 7, 2, DIMS(2, 2), VALUES(0, 0, 0, 0));
  onnx_end(&c);
}

/* Statistics by hand: rows 1 2 3 6 and 0 0 0 4. */
static void norms(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 23, 2, DIMS(2, 4));
  onnx_floats(&c, "g", 1, DIMS(4), FLOATS(1, 2, 1, 1));
  onnx_floats(&c, "b", 1, DIMS(4), FLOATS(0, 0, 1, 0));
  cuvil_builder_node(c.b, "LayerNormalization", "l", "x,g,b", "layer,m,i");
  cuvil_builder_float(c.b, "epsilon", 0);
  cuvil_builder_node(c.b, "RMSNormalization", "r", "x,g", "rms");
  cuvil_builder_float(c.b, "epsilon", 0.5f);
  static const char *const names[] = {"layer", "m", "i", "rms"};
  for (int i = 0; i < 4; i++)
    onnx_output(&c, names[i]);
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 3, 6, 0, 0, 0, 4)};
  double s = 1 / sqrt(3.5), t = 1 / sqrt(3), u = 1 / sqrt(13),
         v = 1 / sqrt(4.5);
  onnx_expect(&c, x, 0, 2, DIMS(2, 4),
              VALUES(-2 * s, -2 * s, 1, 3 * s, -t, -2 * t, 1 - t, 3 * t));
  onnx_expect(&c, x, 1, 2, DIMS(2, 1), VALUES(3, 1));
  onnx_expect(&c, x, 2, 2, DIMS(2, 1), VALUES(s, t));
  onnx_expect(&c, x, 3, 2, DIMS(2, 4),
              VALUES(u, 4 * u, 3 * u, 6 * u, 0, 0, 0, 4 * v));
  onnx_end(&c);
}

static void log_softmax_is_stable(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 13, 2, DIMS(1, 3));
  cuvil_builder_node(c.b, "LogSoftmax", "l", "x", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(1000, 1001, 0), 2, DIMS(1, 3),
                 VALUES(-1.31326169, -0.31326169, -1001.31326169));
  onnx_end(&c);
}

static void splits(void **state) {
  (void)state;
  /* Sizes as attribute (opset 2), as input (13), by number (18: the last is
   * shorter), equal parts. */
  for (int form = 0; form < 4; form++) {
    struct onnx_case c;
    begin(&c, form == 0 ? 2 : form == 2 ? 18 : 13, 1, DIMS(5 + (form == 3)));
    onnx_ints(&c, "sizes", 2, INTS(3, 2));
    cuvil_builder_node(c.b, "Split", "s", form == 1 ? "x,sizes" : "x", "a,b");
    if (form == 0) cuvil_builder_ints(c.b, "split", 2, INTS(3, 2));
    if (form == 2) cuvil_builder_int(c.b, "num_outputs", 2);
    onnx_output(&c, "a");
    onnx_output(&c, "b");
    onnx_load(&c);
    const void *x[] = {FLOATS(1, 2, 3, 4, 5, 6)};
    onnx_expect(&c, x, 0, 1, DIMS(3), VALUES(1, 2, 3));
    onnx_expect(&c, x, 1, 1, DIMS(form == 3 ? 3 : 2), VALUES(4, 5, 6));
    onnx_end(&c);
  }
  struct onnx_case c;
  begin(&c, 13, 1, DIMS(5));
  cuvil_builder_node(c.b, "Split", "s", "x", "a,b");
  onnx_output(&c, "a");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "is not 2 equal parts");
  onnx_end(&c);
}

/* tvm#19531, TensorRT#1229: indices known only at run time may be negative. */
static void gathers(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  cuvil_builder_input(c.b, "i", CUVIL_I64, 1, DIMS(2));
  cuvil_builder_input(c.b, "e", CUVIL_I64, 2, DIMS(1, 4));
  cuvil_builder_input(c.b, "t", CUVIL_I64, 2, DIMS(2, 2));
  onnx_range(&c, "x", 2, DIMS(3, 4), 1, 1);
  cuvil_builder_node(c.b, "Gather", "g", "x,i", "rows");
  cuvil_builder_node(c.b, "GatherElements", "h", "x,e", "elements");
  cuvil_builder_node(c.b, "GatherND", "k", "x,t", "tuples");
  onnx_output(&c, "rows");
  onnx_output(&c, "elements");
  onnx_output(&c, "tuples");
  onnx_load(&c);
  const void *in[] = {INTS(0, -1), INTS(2, -3, 1, -1), INTS(0, 1, -1, -4)};
  onnx_expect(&c, in, 0, 2, DIMS(2, 4), VALUES(1, 2, 3, 4, 9, 10, 11, 12));
  onnx_expect(&c, in, 1, 2, DIMS(1, 4), VALUES(9, 2, 7, 12));
  onnx_expect(&c, in, 2, 1, DIMS(2), VALUES(2, 9));
  onnx_end(&c);
}

static void scatter_nd(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 16, 1, DIMS(4));
  cuvil_builder_initializer(c.b, "i", CUVIL_I64, 2, DIMS(2, 1), INTS(-1, 1));
  onnx_floats(&c, "u", 1, DIMS(2), FLOATS(7, 8));
  cuvil_builder_node(c.b, "ScatterND", "s", "x,i,u", "set");
  cuvil_builder_node(c.b, "ScatterND", "a", "x,i,u", "added");
  cuvil_builder_string(c.b, "reduction", "add");
  onnx_output(&c, "set");
  onnx_output(&c, "added");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 3, 4)};
  onnx_expect(&c, x, 0, 1, DIMS(4), VALUES(1, 8, 3, 7));
  onnx_expect(&c, x, 1, 1, DIMS(4), VALUES(1, 10, 3, 11));
  onnx_end(&c);
}

/* Integers of constants: all of it folds. */
static void shape_arithmetic(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 14, 2, DIMS(2, 3));
  cuvil_builder_node(c.b, "Shape", "s", "x", "shape");
  cuvil_builder_node(c.b, "Size", "z", "x", "size");
  cuvil_builder_initializer(c.b, "zero", CUVIL_I64, 0, NULL, INTS(0));
  cuvil_builder_initializer(c.b, "two", CUVIL_I64, 0, NULL, INTS(2));
  cuvil_builder_initializer(c.b, "minus", CUVIL_I64, 0, NULL, INTS(-4));
  cuvil_builder_node(c.b, "Range", "r", "zero,size,two", "range"); /* 0 2 4 */
  cuvil_builder_node(c.b, "Mod", "m", "range,minus", "mod");       /* 0 -2 0 */
  cuvil_builder_node(c.b, "Expand", "e", "mod,shape", "wide");
  cuvil_builder_node(c.b, "Trilu", "t", "wide,minus_one", "upper");
  cuvil_builder_initializer(c.b, "minus_one", CUVIL_I64, 0, NULL, INTS(-1));
  cuvil_builder_int(c.b, "upper", 0);
  cuvil_builder_node(c.b, "CumSum", "u", "range,zero", "sums"); /* 0 2 6 */
  cuvil_builder_int(c.b, "reverse", 1);
  cuvil_builder_node(c.b, "Tile", "i", "sums,one", "tiled");
  onnx_ints(&c, "one", 1, INTS(2));
  cuvil_builder_output(c.b, "upper", CUVIL_I64, -1, NULL);
  cuvil_builder_output(c.b, "tiled", CUVIL_I64, -1, NULL);
  onnx_load(&c);
  assert_int_equal(c.graph->node_count, 0);
  const void *x[] = {FLOATS(0, 0, 0, 0, 0, 0)};
  onnx_expect(&c, x, 0, 2, DIMS(2, 3), VALUES(0, 0, 0, 0, 0, 0));
  onnx_expect(&c, x, 1, 1, DIMS(6), VALUES(6, 6, 4, 6, 6, 4));
  onnx_end(&c);
}

static void trilu(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 14, 2, DIMS(2, 3));
  cuvil_builder_initializer(c.b, "k", CUVIL_I64, 0, NULL, INTS(1));
  cuvil_builder_node(c.b, "Trilu", "u", "x,k", "upper");
  cuvil_builder_node(c.b, "Trilu", "l", "x", "lower");
  cuvil_builder_int(c.b, "upper", 0);
  onnx_output(&c, "upper");
  onnx_output(&c, "lower");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 3, 4, 5, 6)};
  onnx_expect(&c, x, 0, 2, DIMS(2, 3), VALUES(0, 2, 3, 0, 0, 6));
  onnx_expect(&c, x, 1, 2, DIMS(2, 3), VALUES(1, 0, 0, 4, 5, 0));
  onnx_end(&c);
}

static void range_counts(void **state) {
  (void)state;
  static const int64_t limits[][3] = {
      {3, -4, -3}, {5, 5, 1}, {0, 5, -1}, {INT64_MIN, INT64_MAX, INT64_MAX}};
  static const int64_t counts[] = {3, 0, 0, 3};
  for (int i = 0; i < 4; i++) {
    struct onnx_case c;
    begin(&c, 11, 1, DIMS(1));
    static const char *const names[] = {"from", "to", "step"};
    for (int k = 0; k < 3; k++)
      cuvil_builder_initializer(c.b, names[k], CUVIL_I64, 0, NULL,
                                &limits[i][k]);
    cuvil_builder_node(c.b, "Range", "r", "from,to,step", "y");
    cuvil_builder_output(c.b, "y", CUVIL_I64, -1, NULL);
    onnx_load(&c);
    assert_int_equal(onnx_value(&c, "y")->dims[0], counts[i]);
    onnx_end(&c);
  }
  struct onnx_case c;
  begin(&c, 11, 1, DIMS(1));
  cuvil_builder_initializer(c.b, "n", CUVIL_I64, 0, NULL, INTS(0));
  cuvil_builder_node(c.b, "Range", "r", "n,n,n", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "step is 0");
  onnx_end(&c);
}

/* tvm#8495: a scalar expanded to [0]. */
static void empty_tensors(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 13, 0, NULL);
  onnx_ints(&c, "none", 1, INTS(0));
  cuvil_builder_node(c.b, "Expand", "e", "x,none", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(1), 1, DIMS(0), VALUES(0));
  onnx_end(&c);
}

/* Causal, two query heads on one key head; by hand with one-hot values. */
static void attention(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 23, 4, DIMS(1, 2, 2, 1));
  onnx_floats(&c, "k", 4, DIMS(1, 1, 2, 1), FLOATS(1, 2));
  onnx_floats(&c, "v", 4, DIMS(1, 1, 2, 1), FLOATS(0, 1));
  cuvil_builder_node(c.b, "Attention", "a", "x,k,v", "y");
  cuvil_builder_int(c.b, "is_causal", 1);
  cuvil_builder_float(c.b, "scale", 1);
  cuvil_builder_initializer(c.b, "m", CUVIL_BOOL, 2, DIMS(2, 2),
                            BYTES(0, 1, 0, 0));
  cuvil_builder_node(c.b, "Attention", "b", "x,k,v,m", "z");
  onnx_output(&c, "y");
  onnx_output(&c, "z");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 1, 5, -2)};
  onnx_expect(&c, x, 0, 4, DIMS(1, 2, 2, 1),
              VALUES(0, 0.73105858, 0, 0.11920292));
  assert_int_equal(onnx_count(&c, "Attention"), 0); /* it was lowered */
  /* A row whose keys are all masked gives zero. */
  onnx_expect(&c, x, 1, 4, DIMS(1, 2, 2, 1), VALUES(1, 0, 1, 0));
  onnx_end(&c);
}

static void pad_modes(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 19, 1, DIMS(3));
  onnx_ints(&c, "p", 2, INTS(2, 1));
  static const char *const modes[] = {"edge", "reflect", "wrap"};
  for (int i = 0; i < 3; i++) {
    cuvil_builder_node(c.b, "Pad", modes[i], "x,p", modes[i]);
    cuvil_builder_string(c.b, "mode", modes[i]);
    onnx_output(&c, modes[i]);
  }
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 2, 3)};
  onnx_expect(&c, x, 0, 1, DIMS(6), VALUES(1, 1, 1, 2, 3, 3));
  onnx_expect(&c, x, 1, 1, DIMS(6), VALUES(3, 2, 1, 2, 3, 2));
  onnx_expect(&c, x, 2, 1, DIMS(6), VALUES(2, 3, 1, 2, 3, 1));
  onnx_end(&c);
}

/* Conv and pools of one dimension become two-dimensional ones. */
static void one_dimensional_windows(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 13, 3, DIMS(1, 1, 5));
  onnx_floats(&c, "w", 3, DIMS(1, 1, 2), FLOATS(1, 10));
  cuvil_builder_node(c.b, "Conv", "c", "x,w", "conv");
  cuvil_builder_ints(c.b, "pads", 2, INTS(1, 0));
  cuvil_builder_ints(c.b, "strides", 1, INTS(2));
  cuvil_builder_node(c.b, "Conv", "s", "x,w", "same");
  cuvil_builder_string(c.b, "auto_pad", "SAME_UPPER");
  cuvil_builder_node(c.b, "MaxPool", "m", "x", "max");
  cuvil_builder_ints(c.b, "kernel_shape", 1, INTS(3));
  cuvil_builder_node(c.b, "AveragePool", "a", "x", "mean");
  cuvil_builder_ints(c.b, "kernel_shape", 1, INTS(2));
  cuvil_builder_ints(c.b, "strides", 1, INTS(2));
  cuvil_builder_ints(c.b, "pads", 2, INTS(1, 0));
  static const char *const names[] = {"conv", "same", "max", "mean"};
  for (int i = 0; i < 4; i++)
    onnx_output(&c, names[i]);
  onnx_load(&c);
  for (int n = 0; n < c.graph->node_count; n++)
    if (strstr(c.graph->nodes[n].op, "ueeze") == NULL)
      assert_int_equal(c.graph->values[c.graph->nodes[n].inputs[0]].rank, 4);
  const void *x[] = {FLOATS(1, 2, 3, 4, 5)};
  onnx_expect(&c, x, 0, 3, DIMS(1, 1, 3), VALUES(10, 32, 54));
  onnx_expect(&c, x, 1, 3, DIMS(1, 1, 5), VALUES(21, 32, 43, 54, 5));
  onnx_expect(&c, x, 2, 3, DIMS(1, 1, 3), VALUES(3, 4, 5));
  onnx_expect(&c, x, 3, 3, DIMS(1, 1, 3), VALUES(1, 2.5, 4.5));
  onnx_end(&c);
}

/* What changes nothing goes; what looks like it but does not, stays. */
static void noops_go(void **state) {
  (void)state;
  struct onnx_case c;
  begin(&c, 18, 2, DIMS(2, 2));
  onnx_floats(&c, "zeros", 2, DIMS(2, 2), FLOATS(0, 0, 0, 0));
  onnx_floats(&c, "one", 0, NULL, FLOATS(1));
  onnx_floats(&c, "wide", 3, DIMS(1, 1, 1), FLOATS(0));
  onnx_ints(&c, "same", 2, INTS(2, 2));
  onnx_ints(&c, "ends", 2, INTS(INT64_MIN, 9));
  onnx_ints(&c, "starts", 2, INTS(-1, 0));
  onnx_ints(&c, "axes", 2, INTS(0, 1));
  onnx_ints(&c, "back", 2, INTS(-1, 1));
  cuvil_builder_node(c.b, "Relu", "r", "x", "a");
  cuvil_builder_node(c.b, "Add", "n1", "zeros,a", "b");
  cuvil_builder_node(c.b, "Div", "n2", "b,one", "c");
  cuvil_builder_node(c.b, "Reshape", "n3", "c,same", "d");
  cuvil_builder_node(c.b, "Expand", "n4", "d,same", "e");
  cuvil_builder_node(c.b, "Transpose", "n5", "e", "f");
  cuvil_builder_ints(c.b, "perm", 2, INTS(0, 1));
  cuvil_builder_node(c.b, "Concat", "n6", "f", "g");
  cuvil_builder_int(c.b, "axis", 0);
  cuvil_builder_node(c.b, "Sub", "k1", "zeros,g", "h"); /* negates */
  cuvil_builder_node(c.b, "Transpose", "k2", "h", "i"); /* square */
  cuvil_builder_node(c.b, "Slice", "k3", "i,starts,ends,axes,back", "j");
  cuvil_builder_node(c.b, "Add", "k4", "j,wide", "y"); /* another rank */
  onnx_output(&c, "y");
  onnx_load(&c);
  assert_int_equal(c.graph->node_count, 5);
  onnx_expect_of(&c, FLOATS(1, 2, -3, 4), 3, DIMS(1, 2, 2),
                 VALUES(-2, -4, -1, 0));
  onnx_end(&c);
}

/* Softmax(scores + mask) with the exporters' guard against masked rows. */
static void nan_guard(void **state) {
  (void)state;
  for (int masked = 0; masked < 2; masked++) {
    struct onnx_case c;
    begin(&c, 18, 2, DIMS(2, 2));
    onnx_floats(&c, "k", 2, DIMS(2, 2), FLOATS(1, 0, 0, 1));
    float low = masked ? -INFINITY : 0;
    onnx_floats(&c, "mask", 2, DIMS(2, 2), FLOATS(low, -INFINITY, 0, 0));
    onnx_floats(&c, "zero", 0, NULL, FLOATS(0));
    cuvil_builder_node(c.b, "MatMul", "s", "x,k", "scores");
    cuvil_builder_node(c.b, "Add", "a", "scores,mask", "sum");
    cuvil_builder_node(c.b, "Softmax", "p", "sum", "p");
    cuvil_builder_node(c.b, "IsNaN", "n", "p", "nan");
    cuvil_builder_node(c.b, "Where", "w", "nan,zero,p", "y");
    onnx_output(&c, "y");
    onnx_load(&c);
    assert_int_equal(onnx_count(&c, "Where"), masked);
    onnx_expect_of(&c, FLOATS(1, 2, 3, 3), 2, DIMS(2, 2),
                   VALUES(masked ? 0 : 1, 0, 0.5, 0.5));
    onnx_end(&c);
  }
}

/* A padding mask looked up by the indices of all its elements and combined
 * with true, as transformers writes it. */
static void indexed_masks(void **state) {
  (void)state;
  for (int shuffled = 0; shuffled < 2; shuffled++) {
    struct onnx_case c;
    onnx_begin(&c, 18);
    cuvil_builder_input(c.b, "m", CUVIL_BOOL, 2, DIMS(2, 2));
    int64_t all[8] = {0, 0, 0, 1, 1, 0, 1, -1};
    if (shuffled) all[1] = 1;
    cuvil_builder_initializer(c.b, "i", CUVIL_I64, 4, DIMS(2, 1, 2, 2), all);
    cuvil_builder_initializer(c.b, "true", CUVIL_BOOL, 3, DIMS(1, 2, 1),
                              BYTES(1, 1));
    cuvil_builder_node(c.b, "GatherND", "g", "m,i", "looked");
    cuvil_builder_node(c.b, "And", "a", "true,looked", "y");
    cuvil_builder_output(c.b, "y", CUVIL_BOOL, -1, NULL);
    onnx_load(&c);
    assert_int_equal(onnx_count(&c, "GatherND"), shuffled);
    assert_int_equal(onnx_count(&c, "And"), 0);
    const void *m[] = {BYTES(1, 0, 1, 1)};
    onnx_expect(&c, m, 0, 3, DIMS(2, 2, 2),
                VALUES(!shuffled, 0, !shuffled, 0, 1, 1, 1, 1));
    onnx_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_broadcasts),
      cmocka_unit_test(comparisons_and_where),
      cmocka_unit_test(norms),
      cmocka_unit_test(log_softmax_is_stable),
      cmocka_unit_test(splits),
      cmocka_unit_test(gathers),
      cmocka_unit_test(scatter_nd),
      cmocka_unit_test(shape_arithmetic),
      cmocka_unit_test(trilu),
      cmocka_unit_test(range_counts),
      cmocka_unit_test(empty_tensors),
      cmocka_unit_test(attention),
      cmocka_unit_test(pad_modes),
      cmocka_unit_test(one_dimensional_windows),
      cmocka_unit_test(noops_go),
      cmocka_unit_test(nan_guard),
      cmocka_unit_test(indexed_masks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
