/* graph_bad_input_test.c - files that must be refused: each with one line that
 * names the file and, where there is one, the node; none with a crash, a hang
 * or a leak (the sanitizer builds run this, too). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "tests/support/onnx_case.h"

static void small_model(struct onnx_case *c) {
  onnx_begin(c, 13);
  onnx_input(c, "x", 4, DIMS(1, 2, 5, 5));
  onnx_range(c, "w", 4, DIMS(3, 2, 3, 3), -1, 0.05);
  onnx_ints(c, "shape", 2, INTS(1, -1));
  cuvil_builder_node(c->b, "Conv", "conv", "x,w", "y");
  cuvil_builder_ints(c->b, "pads", 4, INTS(1, 1, 1, 1));
  cuvil_builder_node(c->b, "Relu", "relu", "y", "z");
  cuvil_builder_node(c->b, "Reshape", "reshape", "z,shape", "out");
  onnx_output(c, "out");
  assert_int_equal(cuvil_builder_write(c->b, c->path), CUVIL_OK);
}

static void write_bytes(const char *path, const void *bytes, size_t size) {
  /* A new file: truncating an old one makes some file systems write it out. */
  (void)unlink(path);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static void truncated_at_every_byte(void **state) {
  (void)state;
  struct onnx_case c;
  small_model(&c);
  struct cuvil_buf file = {0};
  assert_int_equal(cuvil_file_read(c.path, &file), CUVIL_OK);
  for (size_t size = 0; size < file.size; size++) {
    write_bytes(c.path, file.data, size);
    onnx_refused_file(c.path, CU_ERR_MODEL_INVALID, "");
  }
  write_bytes(c.path, file.data, file.size);
  onnx_load(&c);
  cuvil_buf_free(&file);
  onnx_end(&c);
}

/* Flipped bytes may leave a good model; what is refused is refused in a line.
 */
static void damaged_at_random(void **state) {
  (void)state;
  struct onnx_case c;
  small_model(&c);
  struct cuvil_buf file = {0};
  assert_int_equal(cuvil_file_read(c.path, &file), CUVIL_OK);
  struct cuvil_rng rng = {7};
  int refused = 0;
  for (int round = 0; round < 3000; round++) {
    char *copy = malloc(file.size);
    assert_non_null(copy);
    memcpy(copy, file.data, file.size);
    for (uint64_t n = 1 + cuvil_rng_below(&rng, 4); n > 0; n--)
      copy[cuvil_rng_below(&rng, file.size)] = (char)cuvil_rng_next(&rng);
    write_bytes(c.path, copy, file.size);
    free(copy);
    struct cuvil_graph *graph;
    if (cuvil_graph_import(c.path, NULL, &graph) == CUVIL_OK) {
      cuvil_graph_destroy(graph);
      continue;
    }
    refused++;
    assert_null(graph);
    if (strstr(cuvil_last_error(), c.path) == NULL ||
        strchr(cuvil_last_error(), '\n') != NULL)
      fail_msg("not one line with the file: %s", cuvil_last_error());
  }
  assert_true(refused > 300);
  cuvil_buf_free(&file);
  onnx_end(&c);
}

static void random_empty_and_absent_files(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  struct cuvil_rng rng = {3};
  for (size_t size = 1; size < 300; size++) {
    char bytes[300];
    for (size_t i = 0; i < size; i++)
      bytes[i] = (char)cuvil_rng_next(&rng);
    write_bytes(c.path, bytes, size);
    onnx_refused_file(c.path, CU_ERR_MODEL_INVALID, "");
  }
  write_bytes(c.path, "", 0);
  onnx_refused_file(c.path, CU_ERR_MODEL_INVALID, "the file is empty");
  assert_int_equal(unlink(c.path), 0);
  onnx_refused_file(c.path, CU_ERR_IO, "No such file");
  onnx_refused_file(c.folder, CU_ERR_IO, "not a regular file");
  onnx_end(&c);
}

/* Messages inside messages, far deeper than any stack: the attribute of a node
 * holds a graph that holds a node with an attribute ... */
static void nested_without_end(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  /* From the inside out: each wrapper is tag and length; the tags of
   * AttributeProto.g, NodeProto.attribute, GraphProto.node in turn. */
  static const unsigned char tags[3] = {6 << 3 | 2, 5 << 3 | 2, 1 << 3 | 2};
  size_t capacity = 1 << 20, start = capacity;
  unsigned char *bytes = malloc(capacity);
  assert_non_null(bytes);
  for (int level = 0; level < 120000 && start > 16; level++) {
    size_t size = capacity - start;
    unsigned char header[8] = {tags[level % 3]};
    int n = 1;
    do {
      header[n++] = (unsigned char)((size & 0x7f) | (size > 0x7f ? 0x80 : 0));
      size >>= 7;
    } while (size > 0);
    start -= (size_t)n;
    memcpy(bytes + start, header, (size_t)n);
  }
  /* The outermost is a node; around it the graph and the model. */
  size_t size = capacity - start;
  FILE *file = fopen(c.path, "wb");
  assert_non_null(file);
  unsigned char head[] = {1 << 3, 8, 7 << 3 | 2, 0, 0, 0, 0};
  for (int i = 0; i < 4; i++)
    head[3 + i] =
        (unsigned char)((size >> (7 * i) & 0x7f) | (i < 3 ? 0x80 : 0));
  assert_int_equal(fwrite(head, 1, sizeof head, file), sizeof head);
  assert_int_equal(fwrite(bytes + start, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
  free(bytes);
  onnx_refused_file(c.path, CU_ERR_MODEL_INVALID, "nested more than 32 deep");
  onnx_end(&c);
}

static void cycle(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Add", "first", "x,c", "a");
  cuvil_builder_node(c.b, "Relu", "second", "a", "b");
  cuvil_builder_node(c.b, "Neg", "third", "b", "c");
  onnx_output(&c, "c");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "cycle");
  static const char *const names[] = {"\"first\"", "\"second\"", "\"third\""};
  for (int i = 0; i < 3; i++)
    assert_non_null(strstr(cuvil_last_error(), names[i]));
  onnx_end(&c);
}

static void undeclared_opset(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 0);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID,
               "node \"act\" (Relu): the model declares no opset for domain "
               "ai.onnx");
  onnx_end(&c);
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Own", "own", "x", "y");
  cuvil_builder_domain(c.b, "my.ops");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID,
               "node \"own\" (Own): the model declares no opset for domain "
               "my.ops");
  onnx_end(&c);
  onnx_begin(&c, 99);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_UNSUPPORTED, "opset 99 is newer");
  onnx_end(&c);
}

/* One model with one initializer and one node of the caller's making. */
static void refused_weight(int type, int rank, const int64_t *dims, size_t size,
                           enum cuvil_status status, const char *part) {
  struct onnx_case c;
  onnx_begin(&c, 13);
  static const char zeros[256];
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_raw_initializer(c.b, "weight", type, rank, dims, zeros, size);
  cuvil_builder_node(c.b, "Add", "add", "x,weight", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, status, part);
  assert_non_null(strstr(cuvil_last_error(), "initializer \"weight\""));
  onnx_end(&c);
}

static void bad_initializers(void **state) {
  (void)state;
  refused_weight(777, 1, DIMS(1), 4, CU_ERR_MODEL_INVALID,
                 "data type 777 is not one of ONNX");
  refused_weight(8, 1, DIMS(1), 4, CU_ERR_MODEL_UNSUPPORTED,
                 "data type string is not supported");
  refused_weight(1, 2, DIMS(2, -3), 24, CU_ERR_MODEL_INVALID,
                 "dimension 1 is negative (-3)");
  refused_weight(1, 2, DIMS((int64_t)1 << 40, (int64_t)1 << 40), 4,
                 CU_ERR_MODEL_INVALID, "too large");
  refused_weight(1, 3, DIMS((int64_t)1 << 62, 4, 0), 0, CU_ERR_MODEL_INVALID,
                 "too large");
  refused_weight(1, 2, DIMS(2, 3), 20, CU_ERR_MODEL_INVALID,
                 "holds 20 bytes, its dimensions need 24");
  refused_weight(1, 9, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), 4,
                 CU_ERR_MODEL_UNSUPPORTED, "rank 9");
}

static void bad_inputs_and_links(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 2, DIMS(1, -7));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID,
               "input \"x\": dimension 1 is negative (-7)");
  onnx_end(&c);

  onnx_begin(&c, 13);
  onnx_input(&c, "x", 2, DIMS((int64_t)1 << 33, (int64_t)1 << 33));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "input \"x\": its dimensions are too");
  onnx_end(&c);

  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Add", "sum", "x,nothing", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID,
               "node \"sum\" (Add): its input \"nothing\" is no graph input");
  onnx_end(&c);

  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "one", "x", "y");
  cuvil_builder_node(c.b, "Neg", "two", "x", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "is also the output of another node");
  onnx_end(&c);

  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "one", "x", "x");
  onnx_output(&c, "x");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "is also a graph input");
  onnx_end(&c);

  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "one", "x", "y");
  onnx_output(&c, "elsewhere");
  onnx_refused(&c, CU_ERR_MODEL_INVALID,
               "graph output \"elsewhere\" is computed by no node");
  onnx_end(&c);

  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Relu", "one", "x", "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "has no output");
  onnx_end(&c);
}

static void bad_nodes(void **state) {
  (void)state;
  static const struct {
    const char *op, *inputs, *attribute;
    int64_t values[4];
    int count;
    enum cuvil_status status;
    const char *part;
  } cases[] = {
      {"Nonsense",
       "x",
       NULL,
       {0},
       0,
       CU_ERR_MODEL_UNSUPPORTED,
       "Nonsense (bad): no such operator"},
      {"Relu", "x,x", NULL, {0}, 0, CU_ERR_MODEL_INVALID, "it has 2 inputs"},
      {"Relu", "", NULL, {0}, 0, CU_ERR_MODEL_INVALID, "it has 0 inputs"},
      {"Add",
       "x,v",
       NULL,
       {0},
       0,
       CU_ERR_MODEL_INVALID,
       "dimensions 4 and 3 do not broadcast"},
      {"Conv",
       "x,w",
       "strides",
       {0, 1},
       2,
       CU_ERR_MODEL_INVALID,
       "attribute \"strides\" holds 0"},
      {"Conv",
       "x,w",
       "pads",
       {-1, 0, 0, 0},
       4,
       CU_ERR_MODEL_INVALID,
       "attribute \"pads\" holds -1"},
      {"Conv",
       "x,w",
       "strides",
       {1},
       1,
       CU_ERR_MODEL_INVALID,
       "has 1 entries, not 2"},
      {"Conv",
       "x,w",
       "kernel_shape",
       {2, 2},
       2,
       CU_ERR_MODEL_INVALID,
       "kernel_shape is 2x2 but the weights are 3x3"},
      {"Conv",
       "x,w",
       "dilations",
       {3, 3},
       2,
       CU_ERR_MODEL_INVALID,
       "the window does not fit"},
      {"Conv", "x,v", NULL, {0}, 0, CU_ERR_MODEL_INVALID, "weights of rank 1"},
      {"MaxPool", "x", NULL, {0}, 0, CU_ERR_MODEL_INVALID, "no kernel_shape"},
      {"Transpose",
       "x",
       "perm",
       {0, 1, 1, 2},
       4,
       CU_ERR_MODEL_INVALID,
       "not a permutation"},
      {"Reshape",
       "x,five",
       NULL,
       {0},
       0,
       CU_ERR_MODEL_INVALID,
       "does not hold the input's 32 elements"},
      {"Gather",
       "x,v",
       NULL,
       {0},
       0,
       CU_ERR_MODEL_INVALID,
       "its indices are of type f32"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct onnx_case c;
    onnx_begin(&c, 13);
    onnx_input(&c, "x", 4, DIMS(1, 2, 4, 4));
    onnx_range(&c, "w", 4, DIMS(1, 2, 3, 3), 0, 1);
    onnx_range(&c, "v", 1, DIMS(3), 0, 1);
    onnx_ints(&c, "five", 1, INTS(5));
    cuvil_builder_node(c.b, cases[i].op, "bad", cases[i].inputs, "y");
    if (cases[i].attribute != NULL)
      cuvil_builder_ints(c.b, cases[i].attribute, cases[i].count,
                         cases[i].values);
    onnx_output(&c, "y");
    onnx_refused(&c, cases[i].status, cases[i].part);
    assert_non_null(strstr(cuvil_last_error(), "bad"));
    onnx_end(&c);
  }
}

/* Sizes that only appear while shapes are computed. */
static void folding_has_an_end(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  onnx_ints(&c, "huge", 2, INTS((int64_t)1 << 19, (int64_t)1 << 19));
  onnx_ints(&c, "zero", 1, INTS(0));
  cuvil_builder_node(c.b, "ConstantOfShape", "fill", "huge", "big");
  cuvil_builder_node(c.b, "Add", "sum", "x,big", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID,
               "node \"fill\" (ConstantOfShape): the model's constants");
  onnx_end(&c);
  onnx_begin(&c, 13);
  onnx_ints(&c, "huge", 2, INTS((int64_t)1 << 39, (int64_t)1 << 39));
  cuvil_builder_node(c.b, "ConstantOfShape", "fill", "huge", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "more than 2^40 elements");
  onnx_end(&c);
  onnx_begin(&c, 13);
  onnx_ints(&c, "a", 1, INTS(INT64_MIN));
  onnx_ints(&c, "b", 1, INTS(0));
  cuvil_builder_node(c.b, "Div", "by", "a,b", "y");
  cuvil_builder_output(c.b, "y", CUVIL_I64, -1, NULL);
  onnx_refused(&c, CU_ERR_MODEL_INVALID, "divided by zero");
  onnx_end(&c);
}

static void refused_external(const char *location, const char *offset,
                             const char *length, enum cuvil_status status,
                             const char *part) {
  struct onnx_case c;
  onnx_begin(&c, 13);
  char path[600];
  static const char zeros[64];
  snprintf(path, sizeof path, "%s/data", c.folder);
  write_bytes(path, zeros, sizeof zeros);
  snprintf(path, sizeof path, "%s/leads_out", c.folder);
  assert_int_equal(symlink("/etc/passwd", path), 0);
  onnx_input(&c, "x", 1, DIMS(4));
  cuvil_builder_external_initializer(c.b, "weight", 1, DIMS(4), location,
                                     offset, length);
  cuvil_builder_node(c.b, "Add", "add", "x,weight", "y");
  onnx_output(&c, "y");
  if (part != NULL) {
    onnx_refused(&c, status, part);
    assert_non_null(strstr(cuvil_last_error(), "initializer \"weight\""));
  } else {
    onnx_load(&c);
  }
  onnx_end(&c);
}

static void external_data_stays_in_its_place(void **state) {
  (void)state;
  const enum cuvil_status bad = CU_ERR_MODEL_INVALID;
  refused_external("data", "48", "16", CUVIL_OK, NULL);
  refused_external("./data", NULL, NULL, CUVIL_OK, NULL);
  refused_external("/etc/passwd", "0", "16", bad, "not below the model's");
  refused_external("../data", "0", "16", bad, "not below the model's");
  refused_external("a/../../data", "0", "16", bad, "not below the model's");
  refused_external("..\\data", "0", "16", bad, "not below the model's");
  refused_external(NULL, "0", "16", bad, "not below the model's");
  refused_external("leads_out", "0", "16", bad, "by a symbolic link");
  refused_external(".", "0", "16", bad, "");
  refused_external("absent", "0", "16", CU_ERR_IO, "No such file");
  refused_external("data", "52", "16", bad, "past the end of \"data\" (64");
  refused_external("data", "18446744073709551615", "16", bad, "not a number");
  refused_external("data", "4611686018427387900", NULL, bad, "past the end");
  refused_external("data", "-4", "16", bad, "offset of its external data");
  refused_external("data", "0", "12", bad, "holds 12 bytes");
  refused_external("data", "0", "ten", bad, "length of its external data");
}

/* Names from a file cannot break the one line or a terminal. */
static void names_are_cleaned(void **state) {
  (void)state;
  struct onnx_case c;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS(1));
  cuvil_builder_node(c.b, "Re\nlu", "no\x1b[31mde", "x", "y");
  onnx_output(&c, "y");
  onnx_refused(&c, CU_ERR_MODEL_UNSUPPORTED, "Re?lu (no?[31mde)");
  onnx_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(truncated_at_every_byte),
      cmocka_unit_test(damaged_at_random),
      cmocka_unit_test(random_empty_and_absent_files),
      cmocka_unit_test(nested_without_end),
      cmocka_unit_test(cycle),
      cmocka_unit_test(undeclared_opset),
      cmocka_unit_test(bad_initializers),
      cmocka_unit_test(bad_inputs_and_links),
      cmocka_unit_test(bad_nodes),
      cmocka_unit_test(folding_has_an_end),
      cmocka_unit_test(external_data_stays_in_its_place),
      cmocka_unit_test(names_are_cleaned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
