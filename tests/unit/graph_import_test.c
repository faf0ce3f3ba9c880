/* graph_import_test.c - models as exporters write them: what becomes constant,
 * what is folded, what must not be, and how shapes are resolved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/execute.h"
#include "tests/support/onnx_case.h"

/* ---- constants */

/* y = x * w + 1 with w in one of the ways a file can hold it. */
static void weights_in_every_form(void **state) {
  (void)state;
  enum { RAW, TYPED, EXTERNAL, IDENTITY, CONSTANT_NODE, FORMS };
  for (int form = 0; form < FORMS; form++) {
    struct onnx_case c;
    onnx_begin(&c, 13);
    cuvil_builder_set_typed(c.b, form == TYPED);
    onnx_input(&c, "x", 2, DIMS(1, 300));
    float w[300], x[300];
    double y[300];
    for (int i = 0; i < 300; i++) {
      w[i] = (float)(i % 7) - 3;
      x[i] = (float)i;
      y[i] = (double)w[i] * x[i] + 1;
    }
    onnx_floats(&c, "one", 0, NULL, FLOATS(1));
    const char *inputs = "x,w";
    if (form == EXTERNAL) cuvil_builder_set_external(c.b, "weights.bin");
    if (form == CONSTANT_NODE) {
      cuvil_builder_node(c.b, "Constant", "k", "", "w");
      cuvil_builder_tensor(c.b, "value", CUVIL_F32, 1, DIMS(300), w);
    } else {
      onnx_floats(&c, form == IDENTITY ? "w0" : "w", 1, DIMS(300), w);
    }
    if (form == IDENTITY) cuvil_builder_node(c.b, "Identity", "i", "w0", "w");
    cuvil_builder_node(c.b, "Mul", "m", inputs, "xw");
    cuvil_builder_node(c.b, "Add", "a", "xw,one", "y");
    onnx_output(&c, "y");
    onnx_load(&c);
    assert_int_equal(c.graph->node_count, 2);
    assert_non_null(onnx_value(&c, "w")->data);
    onnx_expect_of(&c, x, 2, DIMS(1, 300), y);
    onnx_end(&c);
  }
}

static void half_weights(void **state) {
  (void)state;
  for (int typed = 0; typed < 2; typed++) {
    struct onnx_case c;
    onnx_begin(&c, 13);
    cuvil_builder_set_half(c.b, true);
    cuvil_builder_set_typed(c.b, typed);
    onnx_input(&c, "x", 1, DIMS(3));
    onnx_floats(&c, "w", 1, DIMS(3), FLOATS(0.1f, -2, 65504));
    cuvil_builder_node(c.b, "Mul", "m", "x,w", "y");
    onnx_output(&c, "y");
    onnx_load(&c);
    assert_int_equal(onnx_value(&c, "w")->dtype, CUVIL_F16);
    assert_int_equal(onnx_value(&c, "y")->dtype, CUVIL_F16);
    uint16_t x[3];
    for (int i = 0; i < 3; i++)
      x[i] = cuvil_f32_to_f16(1);
    const void *inputs[] = {x};
    onnx_expect(&c, inputs, 0, 1, DIMS(3), VALUES(0.0999755859375, -2, 65504));
    onnx_end(&c);
  }
}

static void every_integer_type_as_typed_data(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  cuvil_builder_set_typed(c.b, true);
  cuvil_builder_initializer(c.b, "i8", CUVIL_I8, 1, DIMS(2),
                            (const int8_t[]){-128, 127});
  cuvil_builder_initializer(c.b, "u8", CUVIL_U8, 1, DIMS(2),
                            (const uint8_t[]){0, 255});
  cuvil_builder_initializer(c.b, "i32", CUVIL_I32, 1, DIMS(2),
                            (const int32_t[]){INT32_MIN, 7});
  cuvil_builder_initializer(c.b, "i64", CUVIL_I64, 1, DIMS(2),
                            INTS(INT64_MIN, INT64_MAX));
  cuvil_builder_initializer(c.b, "f64", CUVIL_F64, 1, DIMS(2),
                            VALUES(0.1, -1e300));
  static const char *const names[] = {"i8", "u8", "i32", "i64", "f64"};
  static const enum cuvil_dtype types[] = {CUVIL_I8, CUVIL_U8, CUVIL_I32,
                                           CUVIL_I64, CUVIL_F64};
  for (int i = 0; i < 5; i++)
    cuvil_builder_output(c.b, names[i], types[i], 1, DIMS(2));
  onnx_load(&c);
  assert_int_equal(((const int8_t *)onnx_value(&c, "i8")->data)[0], -128);
  assert_int_equal(((const uint8_t *)onnx_value(&c, "u8")->data)[1], 255);
  assert_int_equal(((const int32_t *)onnx_value(&c, "i32")->data)[0],
                   INT32_MIN);
  assert_true(((const int64_t *)onnx_value(&c, "i64")->data)[1] == INT64_MAX);
  assert_true(((const double *)onnx_value(&c, "f64")->data)[0] == 0.1);
  onnx_end(&c);
}

/* IR 3 lists every initializer as an input, as the light models do; from IR 4
 * on it would be an override, which Cuvil does not offer: a constant in both,
 * and no input for the user. */
static void initializers_listed_as_inputs(void **state) {
  (void)state;
  for (int ir = 3; ir <= 8; ir += 5) {
    struct onnx_case c;
    onnx_begin(&c, 9);
    cuvil_builder_set_ir(c.b, ir, true);
    onnx_input(&c, "x", 1, DIMS(2));
    onnx_floats(&c, "w", 1, DIMS(2), FLOATS(3, 4));
    cuvil_builder_node(c.b, "Mul", "m", "x,w", "y");
    onnx_output(&c, "y");
    onnx_load(&c);
    assert_int_equal(c.graph->input_count, 1);
    assert_false(onnx_value(&c, "w")->is_input);
    onnx_expect_of(&c, FLOATS(1, 2), 1, DIMS(2), VALUES(3, 8));
    onnx_end(&c);
  }
}

/* The light models' weights: ConstantOfShape over a constant shape. */
static void weights_by_constant_of_shape(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 9);
  onnx_input(&c, "x", 4, DIMS(1, 2, 1, 1));
  onnx_ints(&c, "shape", 4, INTS(1, 2, 1, 1));
  cuvil_builder_node(c.b, "ConstantOfShape", "k", "shape", "w");
  cuvil_builder_tensor(c.b, "value", CUVIL_F32, 1, DIMS(1), FLOATS(0.5f));
  cuvil_builder_node(c.b, "Conv", "n", "x,w", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  assert_int_equal(c.graph->node_count, 1);
  onnx_expect_of(&c, FLOATS(4, 8), 4, DIMS(1, 1, 1, 1), VALUES(6));
  onnx_end(&c);
}

/* Flatten as exporters with dynamic batch write it:
 * Reshape(x, Concat(Unsqueeze(Gather(Shape(x), 0)), [-1])). */
static void shape_arithmetic_is_folded(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 4, DIMS(-1, 2, 3, 1));
  cuvil_builder_initializer(c.b, "zero", CUVIL_I64, 0, NULL, INTS(0));
  cuvil_builder_initializer(c.b, "two", CUVIL_I64, 0, NULL, INTS(2));
  onnx_ints(&c, "axes", 1, INTS(0));
  onnx_ints(&c, "rest", 1, INTS(-1));
  cuvil_builder_node(c.b, "Shape", "s", "x", "shape");
  cuvil_builder_node(c.b, "Gather", "g", "shape,zero", "batch");
  cuvil_builder_node(c.b, "Mul", "m", "batch,two", "twice");
  cuvil_builder_node(c.b, "Div", "d", "twice,two", "once");
  cuvil_builder_node(c.b, "Unsqueeze", "u", "once,axes", "wide");
  cuvil_builder_node(c.b, "Cast", "ca", "wide", "wide32");
  cuvil_builder_int(c.b, "to", 6);
  cuvil_builder_node(c.b, "Cast", "cb", "wide32", "wide64");
  cuvil_builder_int(c.b, "to", 7);
  cuvil_builder_node(c.b, "Concat", "k", "wide64,rest", "target");
  cuvil_builder_int(c.b, "axis", 0);
  cuvil_builder_node(c.b, "Reshape", "r", "x,target", "y");
  onnx_output(&c, "y");
  assert_int_equal(cuvil_builder_write(c.b, c.path), CUVIL_OK);
  struct cuvil_import_options options = {.shapes = "x:5x2x3x1"};
  assert_int_equal(cuvil_graph_import(c.path, &options, &c.graph), CUVIL_OK);
  assert_int_equal(c.graph->node_count, 1);
  assert_int_equal(c.graph->model_node_count, 9);
  assert_int_equal(onnx_value(&c, "y")->dims[0], 5);
  assert_int_equal(onnx_value(&c, "y")->dims[1], 6);
  onnx_end(&c);
}

static void shapes_option(void **state) {
  (void)state;
  static const struct {
    const char *shapes, *part;
  } bad[] = {
      {NULL, "--shapes a:b:1x3"},
      {"", "--shapes a:b:1x3"},
      {"a:b:4x5", "dimension 1 as 5, the model fixes it at 3"},
      {"a:b:4x3x1", "3 dimensions, the model 2"},
      {"a:b:4x3,other:1", "no input \"other\""},
      {"a:b:4y3", "not NAME:1x3x224x224"},
      {"a:b:0x3", "not NAME:1x3x224x224"},
      {"a:b:", "not NAME:1x3x224x224"},
      {"a:b:4x", "not NAME:1x3x224x224"},
      {"a:b:99999999999999999999x3", "not NAME:1x3x224x224"},
  };
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "a:b", 2, DIMS(-1, 3));
  cuvil_builder_node(c.b, "Relu", "r", "a:b", "y");
  onnx_output(&c, "y");
  assert_int_equal(cuvil_builder_write(c.b, c.path), CUVIL_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct cuvil_import_options options = {.shapes = bad[i].shapes};
    assert_int_equal(cuvil_graph_import(c.path, &options, &c.graph),
                     CU_ERR_INVALID_ARGUMENT);
    assert_null(c.graph);
    if (strstr(cuvil_last_error(), bad[i].part) == NULL)
      fail_msg("%s: %s", bad[i].shapes, cuvil_last_error());
  }
  struct cuvil_import_options options = {.shapes = "a:b:4x3"};
  assert_int_equal(cuvil_graph_import(c.path, &options, &c.graph), CUVIL_OK);
  assert_int_equal(onnx_value(&c, "y")->dims[0], 4);
  onnx_end(&c);
}

/* ---- rewriting */

/* conv -> bn, with the parameters of one channel each. */
static void conv_bn(struct onnx_case *c, bool relu_too, bool bias) {
  onnx_input(c, "x", 4, DIMS(1, 1, 1, 2));
  onnx_floats(c, "w", 4, DIMS(2, 1, 1, 1), FLOATS(2, 3));
  onnx_floats(c, "b", 1, DIMS(2), FLOATS(1, -1));
  onnx_floats(c, "scale", 1, DIMS(2), FLOATS(0.5f, 4));
  onnx_floats(c, "shift", 1, DIMS(2), FLOATS(10, 20));
  onnx_floats(c, "mean", 1, DIMS(2), FLOATS(1, 2));
  onnx_floats(c, "var", 1, DIMS(2), FLOATS(4, 0.25f));
  cuvil_builder_node(c->b, "Conv", "conv", bias ? "x,w,b" : "x,w", "z");
  cuvil_builder_node(c->b, "BatchNormalization", "bn", "z,scale,shift,mean,var",
                     "y");
  cuvil_builder_float(c->b, "epsilon", 0);
  onnx_output(c, "y");
  if (relu_too) {
    cuvil_builder_node(c->b, "Relu", "relu", "z", "r");
    onnx_output(c, "r");
  }
}

/* y = (w x + b - mean) / sqrt(var) * scale + shift */

static void batch_norm_folds_into_conv(void **state) {
  (void)state;
  for (int bias = 0; bias < 2; bias++) {
    struct onnx_case c;
    onnx_begin(&c, 13);
    conv_bn(&c, false, bias);
    onnx_load(&c);
    assert_int_equal(c.graph->node_count, 1);
    assert_int_equal(c.graph->nodes[0].input_count, 3);
    onnx_expect_of(
        &c, FLOATS(1, 2), 4, DIMS(1, 2, 1, 2),
        bias ? VALUES(10.5, 11, 20 + 8 * (3 - 1 - 2), 20 + 8 * (6 - 1 - 2))
             : VALUES(10.25, 10.75, 20 + 8 * (3 - 2), 20 + 8 * (6 - 2)));
    onnx_end(&c);
  }
}

/* pytorch PR 52758: the convolution's result has another user. */
/* A few bytes of model must not ask for gigabytes. */
static void folding_is_bounded(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 17);
  onnx_input(&c, "x", 1, DIMS(1));
  onnx_ints(&c, "shape", 2, INTS(1 << 16, 1 << 10));
  cuvil_builder_node(c.b, "ConstantOfShape", "large", "shape", "zeros");
  cuvil_builder_node(c.b, "Add", "n", "x,zeros", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "fold to more than");
  onnx_end(&c);
}

static void batch_norm_with_other_user_is_not_folded(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  conv_bn(&c, true, false);
  onnx_load(&c);
  assert_int_equal(onnx_count(&c, "Conv"), 1);
  assert_int_equal(onnx_count(&c, "Mul"), 1);
  assert_int_equal(onnx_count(&c, "Add"), 1);
  const void *x[] = {FLOATS(1, -2)};
  onnx_expect(&c, x, 0, 4, DIMS(1, 2, 1, 2),
              VALUES(10.25, 8.75, 28, 20 + 8 * (-6 - 2)));
  onnx_expect(&c, x, 1, 4, DIMS(1, 2, 1, 2), VALUES(2, 0, 3, 0));
  onnx_end(&c);
}

static void batch_norm_on_graph_output_is_not_folded(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  conv_bn(&c, false, false);
  onnx_output(&c, "z");
  onnx_load(&c);
  assert_int_equal(c.graph->node_count, 3);
  const void *x[] = {FLOATS(1, 2)};
  onnx_expect(&c, x, 0, 4, DIMS(1, 2, 1, 2), VALUES(10.25, 10.75, 28, 52));
  onnx_expect(&c, x, 1, 4, DIMS(1, 2, 1, 2), VALUES(2, 4, 3, 6));
  onnx_end(&c);
}

/* Two convolutions share weights; each has its own BatchNorm. */
static void shared_weights_are_not_scaled_twice(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  conv_bn(&c, false, false);
  cuvil_builder_node(c.b, "Conv", "second", "x,w", "z2");
  cuvil_builder_node(c.b, "BatchNormalization", "bn2",
                     "z2,scale,shift,mean,var", "y2");
  cuvil_builder_float(c.b, "epsilon", 0);
  cuvil_builder_node(c.b, "Conv", "third", "x,w", "y3");
  onnx_output(&c, "y2");
  onnx_output(&c, "y3");
  onnx_load(&c);
  assert_int_equal(c.graph->node_count, 3);
  const void *x[] = {FLOATS(1, 2)};
  for (int i = 0; i < 2; i++)
    onnx_expect(&c, x, i, 4, DIMS(1, 2, 1, 2), VALUES(10.25, 10.75, 28, 52));
  onnx_expect(&c, x, 2, 4, DIMS(1, 2, 1, 2), VALUES(2, 4, 3, 6));
  onnx_end(&c);
}

/* onnxruntime PR 2216: the training form, told by its outputs or its flag. */
static void batch_norm_in_training_form_is_refused(void **state) {
  (void)state;
  for (int by_flag = 0; by_flag < 2; by_flag++) {
    struct onnx_case c;
    onnx_begin(&c, by_flag ? 15 : 9);
    onnx_input(&c, "x", 2, DIMS(4, 2));
    for (int i = 0; i < 4; i++)
      onnx_floats(&c, (const char *[]){"s", "b", "m", "v"}[i], 1, DIMS(2),
                  FLOATS(1, 1));
    cuvil_builder_node(c.b, "BatchNormalization", "norm", "x,s,b,m,v",
                       by_flag ? "y" : "y,m1,v1,m2,v2");
    if (by_flag) cuvil_builder_int(c.b, "training_mode", 1);
    onnx_output(&c, "y");
    if (!by_flag) onnx_output(&c, "m1");
    onnx_refused(&c, CU_ERR_MODEL_UNSUPPORTED, "training form");
    onnx_end(&c);
  }
}

static void identity_and_dropout_go(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(2));
  cuvil_builder_node(c.b, "Identity", "", "x", "a");
  cuvil_builder_node(c.b, "Relu", "", "a", "b");
  cuvil_builder_node(c.b, "Dropout", "", "b", "d,mask");
  cuvil_builder_node(c.b, "Neg", "", "d", "e");
  cuvil_builder_node(c.b, "Identity", "", "e", "y");
  cuvil_builder_node(c.b, "Identity", "", "x", "copy");
  cuvil_builder_node(c.b, "Abs", "", "x", "unneeded");
  onnx_output(&c, "y");
  onnx_output(&c, "copy");
  onnx_output(&c, "y");
  onnx_output(&c, "x");
  onnx_load(&c);
  /* The copy of an input to an output has to stay. */
  assert_int_equal(c.graph->node_count, 3);
  assert_int_equal(onnx_count(&c, "Identity"), 1);
  const void *x[] = {FLOATS(-1, 2)};
  onnx_expect(&c, x, 0, 1, DIMS(2), VALUES(0, -2));
  onnx_expect(&c, x, 1, 1, DIMS(2), VALUES(-1, 2));
  onnx_expect(&c, x, 2, 1, DIMS(2), VALUES(0, -2));
  onnx_expect(&c, x, 3, 1, DIMS(2), VALUES(-1, 2));
  onnx_end(&c);
}

/* onnxruntime#13425: an initializer that is a graph output. */
static void initializer_as_output(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(2));
  onnx_floats(&c, "w", 1, DIMS(2), FLOATS(3, 4));
  cuvil_builder_node(c.b, "Min", "m", "x,w", "y");
  onnx_output(&c, "y");
  onnx_output(&c, "w");
  onnx_load(&c);
  const void *x[] = {FLOATS(1, 9)};
  onnx_expect(&c, x, 0, 1, DIMS(2), VALUES(1, 4));
  onnx_expect(&c, x, 1, 1, DIMS(2), VALUES(3, 4));
  onnx_end(&c);
}

/* onnx#6665: nodes in any order; names empty, or the same twice. */
static void unsorted_nodes_and_equal_names(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(2));
  cuvil_builder_node(c.b, "Neg", "same", "c", "y");
  cuvil_builder_node(c.b, "Add", "same", "b,a", "c");
  cuvil_builder_node(c.b, "Relu", "", "x", "a");
  cuvil_builder_node(c.b, "Abs", "", "a", "b");
  onnx_output(&c, "y");
  onnx_load(&c);
  assert_string_equal(c.graph->nodes[0].op, "Relu");
  assert_string_equal(c.graph->nodes[3].op, "Neg");
  onnx_expect_of(&c, FLOATS(-1, 2), 1, DIMS(2), VALUES(0, -4));
  onnx_end(&c);
}

/* All unsupported nodes are listed, not only the first. */
static void unsupported_nodes_are_all_listed(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  cuvil_builder_add_opset(c.b, "my.ops", 1);
  onnx_input(&c, "x", 4, DIMS(1, 1, 4, 4));
  onnx_input(&c, "shape", 1, DIMS(1));
  cuvil_builder_node(c.b, "LSTM", "first", "x", "a");
  cuvil_builder_node(c.b, "LSTM", "second", "a", "b");
  cuvil_builder_node(c.b, "Relu", "own", "x", "c");
  cuvil_builder_domain(c.b, "my.ops");
  cuvil_builder_node(c.b, "Relu", "leaky", "x", "d");
  cuvil_builder_float(c.b, "slope", 1);
  cuvil_builder_node(c.b, "MaxPool", "", "x", "e,where");
  cuvil_builder_ints(c.b, "kernel_shape", 2, INTS(2, 2));
  cuvil_builder_node(c.b, "Pad", "edges", "x", "f");
  cuvil_builder_string(c.b, "mode", "mirror");
  static const char *const outputs[] = {"b", "c", "d", "e", "where", "f"};
  for (int i = 0; i < 6; i++)
    cuvil_builder_output(c.b, outputs[i], 0, -1, NULL);
  onnx_refused(&c, CU_ERR_MODEL_UNSUPPORTED, "6 nodes are not supported");
  const char *table = cuvil_graph_unsupported();
  static const char *const rows[] = {
      "LSTM             2  no such operator",
      "first, second",
      "my.ops:Relu",
      "domain \"my.ops\" is not known",
      "attribute \"slope\" is not known",
      "output 1 is used",
      "#4",
      "mode \"mirror\"",
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strstr(table, rows[i]) == NULL)
      fail_msg("no %s in\n%s", rows[i], table);
  /* A good model clears the table. */
  onnx_end(&c);
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "", "x", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  assert_string_equal(cuvil_graph_unsupported(), "");
  onnx_end(&c);
}

/* Doubles may stand in constants; data in double is refused. */
static void doubles(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_initializer(c.b, "w", CUVIL_F64, 0, NULL, VALUES(0.1));
  cuvil_builder_node(c.b, "Cast", "cast", "w", "w32");
  cuvil_builder_int(c.b, "to", 1);
  cuvil_builder_node(c.b, "Mul", "m", "x,w32", "y");
  onnx_output(&c, "y");
  onnx_load(&c);
  onnx_expect_of(&c, FLOATS(3), 1, DIMS(1), VALUES(3 * (double)0.1f));
  onnx_end(&c);
  onnx_begin(&c, 13);
  cuvil_builder_input(c.b, "x", CUVIL_F64, 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "r", "x", "y");
  cuvil_builder_output(c.b, "y", CUVIL_F64, -1, NULL);
  onnx_refused(&c, CU_ERR_MODEL_UNSUPPORTED, "Relu (r): it computes in double");
  onnx_end(&c);
}

/* ---- whole networks */
static double norm(const float *x, const float *y, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    double d = x[i] - (y != NULL ? y[i] : 0);
    sum += d * d;
  }
  return sqrt(sum);
}

/* A whole network of the builder, with and without BatchNorms: structure,
 * range, and one answer for every number of threads. */
static void residual_network(void **state) {
  (void)state;
  char path[600];
  const char *tmp = getenv("CUVIL_TEST_TMP");
  snprintf(path, sizeof path, "%s/mini-%d.onnx", tmp != NULL ? tmp : "/tmp",
           (int)getpid());
  float results[3][20];
  for (int form = 0; form < 3; form++) {
    struct cuvil_resnet_options o = cuvil_resnet_mini_options(-1, 5);
    o.with_bn = form > 0;
    assert_int_equal(cuvil_builder_resnet(&o, path), CUVIL_OK);
    struct cuvil_graph *graph;
    struct cuvil_import_options options = {.shapes = "input:2x3x32x32"};
    assert_int_equal(cuvil_graph_import(path, &options, &graph), CUVIL_OK);
    assert_int_equal(graph->node_count, 17 + 13 + 4 + 4);
    float *x = malloc(2 * 3 * 32 * 32 * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < 2 * 3 * 32 * 32; i++)
      x[i] = (float)sin(i * 0.7);
    const void *inputs[] = {x};
    void *outputs[] = {results[form]};
    assert_int_equal(
        cuvil_graph_execute(graph, inputs, outputs, form == 2 ? 2 : 1),
        CUVIL_OK);
    free(x);
    cuvil_graph_destroy(graph);
  }
  remove(path);
  double size = norm(results[1], NULL, 20) / sqrt(20);
  assert_true(size > 0.05 && size < 20); /* activations stay in range */
  assert_memory_equal(results[1], results[2], sizeof results[1]);
  assert_true(norm(results[0], results[1], 20) > 1e-3); /* other weights */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_in_every_form),
      cmocka_unit_test(half_weights),
      cmocka_unit_test(every_integer_type_as_typed_data),
      cmocka_unit_test(initializers_listed_as_inputs),
      cmocka_unit_test(weights_by_constant_of_shape),
      cmocka_unit_test(shape_arithmetic_is_folded),
      cmocka_unit_test(shapes_option),
      cmocka_unit_test(batch_norm_folds_into_conv),
      cmocka_unit_test(folding_is_bounded),
      cmocka_unit_test(batch_norm_with_other_user_is_not_folded),
      cmocka_unit_test(batch_norm_on_graph_output_is_not_folded),
      cmocka_unit_test(shared_weights_are_not_scaled_twice),
      cmocka_unit_test(batch_norm_in_training_form_is_refused),
      cmocka_unit_test(identity_and_dropout_go),
      cmocka_unit_test(initializer_as_output),
      cmocka_unit_test(unsorted_nodes_and_equal_names),
      cmocka_unit_test(unsupported_nodes_are_all_listed),
      cmocka_unit_test(doubles),
      cmocka_unit_test(residual_network),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
