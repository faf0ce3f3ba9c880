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
      cmocka_unit_test(kernels_of_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
