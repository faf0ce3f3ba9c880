/* The network builders and what import and the executor make of them: both
 * exporters' spellings are one function, shape arithmetic and masks fold away,
 * and a batch is as many single runs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "graph/builder.h"
#include "graph/execute.h"
#include "graph/graph.h"

static void small(const char *network, struct cuvil_network_options *o) {
  assert_true(cuvil_network_options(network, o));
  bool mobile = o->patch == 0 && o->image > 0;
  o->layers = mobile ? 4 : 2;
  if (o->hidden > 0) o->hidden = 32, o->heads = 4, o->ffn = 48;
  if (o->kv_heads > 0) o->kv_heads = 2;
  if (o->vocab > 0) o->vocab = 50, o->positions = 16;
  if (o->seq > 0) o->seq = 7;
  if (o->image > 0) o->image = 32;
  if (o->classes > 0) o->classes = 5;
  o->batch = 2;
}

static struct cuvil_graph *load(const char *network,
                                const struct cuvil_network_options *o) {
  char path[] = "/tmp/cuvil_networks_XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  struct cuvil_graph *graph = NULL;
  enum cuvil_status status = cuvil_builder_network(network, o, path);
  if (status == CUVIL_OK) status = cuvil_graph_import(path, NULL, &graph);
  unlink(path);
  if (status != CUVIL_OK)
    fail_msg("%s: %s", network, cuvil_error_last()->message);
  return graph;
}

static int count_op(const struct cuvil_graph *graph, const char *op) {
  int count = 0;
  for (int n = 0; n < graph->node_count; n++)
    count += strcmp(graph->nodes[n].op, op) == 0;
  return count;
}

/* Inputs by seed; item `only` of a batch when it is not negative. */
static void *make_input(const struct cuvil_value *value, int only,
                        int64_t batch) {
  int64_t total = cuvil_value_elements(value);
  int64_t each = only < 0 ? total / batch : total;
  struct cuvil_rng rng = {7};
  char *data = calloc((size_t)total + 1, 8);
  assert_non_null(data);
  bool mask = strcmp(value->name, "attention_mask") == 0;
  for (int64_t b = 0; b < (only < 0 ? batch : only + 1); b++)
    for (int64_t i = 0; i < each; i++) {
      double u = cuvil_rng_uniform(&rng);
      if (only >= 0 && b != only) continue;
      size_t at = (size_t)(only < 0 ? b * each + i : i);
      cuvil_store(value->dtype, data, at,
                  mask                        ? i < 5 + b
                  : value->dtype == CUVIL_I64 ? floor(u * 50)
                                              : 2 * u - 1);
    }
  return data;
}

static float *run(const struct cuvil_graph *graph, int only, int64_t batch,
                  int64_t *out_count) {
  void *inputs[2] = {NULL, NULL};
  assert_in_range(graph->input_count, 1, 2);
  for (int i = 0; i < graph->input_count; i++)
    inputs[i] = make_input(&graph->values[graph->inputs[i]], only, batch);
  const struct cuvil_value *y = &graph->values[graph->outputs[0]];
  *out_count = cuvil_value_elements(y);
  float *out = calloc((size_t)*out_count + 1, sizeof *out);
  void *outputs[1] = {out};
  assert_int_equal(
      cuvil_graph_execute(graph, (const void *const *)inputs, outputs, 2),
      CUVIL_OK);
  for (int i = 0; i < graph->input_count; i++)
    free(inputs[i]);
  return out;
}

/* Relative L2 distance; both must be finite and not all zero. */
static double distance(const float *a, const float *b, int64_t count) {
  double square = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    double d = (double)a[i] - (double)b[i];
    square += d * d;
    norm += (double)b[i] * (double)b[i];
  }
  assert_true(isfinite(square) && norm > 0.01 * (double)count * 1e-2);
  return sqrt(square / norm);
}

static void expect_one_function(const char *network,
                                struct cuvil_network_options *a,
                                struct cuvil_network_options *b) {
  struct cuvil_graph *first = load(network, a), *second = load(network, b);
  int64_t n, m;
  float *x = run(first, -1, a->batch, &n), *y = run(second, -1, b->batch, &m);
  assert_int_equal(n, m);
  double d = distance(x, y, n);
  if (!(d < 1e-5)) fail_msg("%s: the spellings differ by %g", network, d);
  free(x);
  free(y);
  cuvil_graph_destroy(first);
  cuvil_graph_destroy(second);
}

static const char *const networks[] = {
    "bert", "gpt2", "vit", "llama", "mobilenet_v2", "efficientnet_b0"};

static void spellings_agree(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    struct cuvil_network_options a, b;
    small(networks[i], &a);
    b = a;
    b.spelling = CUVIL_SPELLING_DYNAMO;
    expect_one_function(networks[i], &a, &b);
  }
}

static void attentions_agree(void **state) {
  (void)state;
  struct cuvil_network_options a, b;
  small("gpt2", &a);
  b = a;
  b.sdpa = true;
  expect_one_function("gpt2", &a, &b);
  small("bert", &a);
  a.with_mask = true;
  b = a;
  b.spelling = CUVIL_SPELLING_DYNAMO;
  expect_one_function("bert", &a, &b);
}

static void batch_is_single_runs(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    struct cuvil_network_options o;
    small(networks[i], &o);
    o.with_mask = i == 0;
    struct cuvil_graph *both = load(networks[i], &o);
    o.batch = 1;
    struct cuvil_graph *one = load(networks[i], &o);
    int64_t n, each;
    float *all = run(both, -1, 2, &n);
    for (int item = 0; item < 2; item++) {
      float *y = run(one, item, 2, &each);
      assert_int_equal(2 * each, n);
      double d = distance(all + item * each, y, each);
      if (!(d < 1e-6))
        fail_msg("%s: item %d differs by %g", networks[i], item, d);
      free(y);
    }
    free(all);
    cuvil_graph_destroy(both);
    cuvil_graph_destroy(one);
  }
}

/* What depends on no input is a constant after import. */
static void constants_fold(void **state) {
  (void)state;
  static const char *const gone[] = {
      "Shape", "Slice", "Range",     "Trilu", "Equal",    "ConstantOfShape",
      "Cos",   "Sin",   "Unsqueeze", "Cast",  "Constant", "Identity"};
  for (int i = 0; i < 3; i++)
    for (int s = 0; s < 2; s++) {
      struct cuvil_network_options o;
      small(networks[i], &o);
      o.spelling = (enum cuvil_spelling)s;
      struct cuvil_graph *graph = load(networks[i], &o);
      for (size_t g = 0; g < sizeof gone / sizeof *gone; g++) {
        /* ViT's packed projection is unsqueezed data. */
        if (i == 2 && strcmp(gone[g], "Unsqueeze") == 0) continue;
        if (count_op(graph, gone[g]) != 0)
          fail_msg("%s keeps %s", networks[i], gone[g]);
      }
      assert_int_equal(count_op(graph, "Softmax"), o.layers);
      /* Only the words are looked up at run time. */
      if (i < 2) assert_int_equal(count_op(graph, "Gather"), 1);
      cuvil_graph_destroy(graph);
    }
  struct cuvil_network_options o;
  small("llama", &o);
  struct cuvil_graph *graph = load("llama", &o);
  assert_int_equal(count_op(graph, "Cos"), 0);
  assert_int_equal(count_op(graph, "Trilu"), 0);
  /* Two halves of q and of k in each layer. */
  assert_int_equal(count_op(graph, "Slice"), 4 * o.layers);
  cuvil_graph_destroy(graph);
}

static void bad_sizes_are_refused(void **state) {
  (void)state;
  struct cuvil_network_options o;
  small("bert", &o);
  o.heads = 5;
  assert_int_equal(cuvil_builder_network("bert", &o, "/nonexistent/x.onnx"),
                   CU_ERR_INVALID_ARGUMENT);
  small("gpt2", &o);
  o.seq = o.positions + 1;
  assert_int_equal(cuvil_builder_network("gpt2", &o, "/nonexistent/x.onnx"),
                   CU_ERR_INVALID_ARGUMENT);
  small("vit", &o);
  o.image = 40;
  assert_int_equal(cuvil_builder_network("vit", &o, "/nonexistent/x.onnx"),
                   CU_ERR_INVALID_ARGUMENT);
  assert_false(cuvil_network_options("vgg", &o));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spellings_agree),
      cmocka_unit_test(attentions_agree),
      cmocka_unit_test(batch_is_single_runs),
      cmocka_unit_test(constants_fold),
      cmocka_unit_test(bad_sizes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
