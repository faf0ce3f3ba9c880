/* net.c - see net.h.  The random graphs are what fusion has to survive: values
 * with a second user, values that are outputs in the middle, residual adds in
 * either operand order, broadcasts of every sort, odd channel counts, groups,
 * strides, and pools. */
#include "tests/support/net.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define MUST(expression) assert_int_equal((expression), CUVIL_OK)

void net_begin(struct net *net, uint64_t seed) {
  memset(net, 0, sizeof(*net));
  net->rng.state = seed;
  MUST(cuvil_graph_create(&net->graph));
}

void net_end(struct net *net) {
  cuvil_graph_destroy(net->graph);
  for (int i = 0; i < net->memory_count; ++i)
    free(net->memory[i]);
  memset(net, 0, sizeof(*net));
}

static int add(struct net *net, int rank, const int64_t *dims, bool known,
               const void *data) {
  char name[32];
  int value;
  snprintf(name, sizeof(name), "v%d", net->name_count++);
  MUST(cuvil_graph_add_value(net->graph, name,
                             known ? CUVIL_F32 : CUVIL_DTYPE_NONE,
                             known ? rank : -1, dims, data, &value));
  assert_true(value < NET_MAX_VALUES);
  net->rank[value] = rank;
  if (rank > 0) /* dims may be NULL for a scalar */
    memcpy(net->dims[value], dims, (size_t)rank * sizeof(*dims));
  return value;
}

int net_input(struct net *net, int rank, const int64_t *dims) {
  int value = add(net, rank, dims, true, NULL);
  MUST(cuvil_graph_add_input(net->graph, value));
  return value;
}

void net_output(struct net *net, int value) {
  MUST(cuvil_graph_add_output(net->graph, value));
}

int net_constant(struct net *net, int rank, const int64_t *dims, double scale,
                 const float *values) {
  size_t elements = 1;
  for (int i = 0; i < rank; ++i)
    elements *= (size_t)dims[i];
  float *data = malloc((elements + 1) * sizeof(float));
  assert_non_null(data);
  for (size_t i = 0; i < elements; ++i)
    data[i] = values ? values[i] : (float)(scale * cuvil_rng_normal(&net->rng));
  net->memory[net->memory_count++] = data;
  return add(net, rank, dims, true, data);
}

int net_node(struct net *net, const char *op, int input_count,
             const int *inputs, int rank, const int64_t *dims) {
  int output = add(net, rank, dims, false, NULL);
  char name[48];
  int node;
  snprintf(name, sizeof(name), "%s_%d", op, output);
  MUST(cuvil_graph_add_node(net->graph, name, op, input_count, inputs, 1,
                            &output, &node));
  return output;
}

int net_last_node(const struct net *net) {
  return net->graph->node_count - 1;
}

int net_unary(struct net *net, const char *op, int x) {
  return net_node(net, op, 1, &x, net->rank[x], net->dims[x]);
}

int net_binary(struct net *net, const char *op, int a, int b) {
  int like = net->rank[a] >= net->rank[b] ? a : b;
  int64_t dims[4];
  for (int i = 0; i < net->rank[like]; ++i) {
    int ia = i - (net->rank[like] - net->rank[a]);
    int ib = i - (net->rank[like] - net->rank[b]);
    int64_t da = ia < 0 ? 1 : net->dims[a][ia];
    int64_t db = ib < 0 ? 1 : net->dims[b][ib];
    dims[i] = da > db ? da : db;
  }
  return net_node(net, op, 2, (int[]){a, b}, net->rank[like], dims);
}

static void window_attributes(struct net *net, int64_t window, int64_t stride,
                              int64_t pad) {
  int node = net_last_node(net);
  int64_t two[2] = {window, window}, strides[2] = {stride, stride};
  int64_t pads[4] = {pad, pad, pad, pad};
  MUST(cuvil_graph_set_ints(net->graph, node, "kernel_shape", 2, two));
  MUST(cuvil_graph_set_ints(net->graph, node, "strides", 2, strides));
  MUST(cuvil_graph_set_ints(net->graph, node, "pads", 4, pads));
}

int net_conv(struct net *net, int x, int64_t k, int64_t window, int64_t stride,
             int64_t pad, int64_t group, bool bias) {
  const int64_t *in = net->dims[x];
  int64_t filter[4] = {k, in[1] / group, window, window};
  double fan_in = (double)(filter[1] * window * window);
  int inputs[3] = {x, net_constant(net, 4, filter, sqrt(2 / fan_in), NULL)};
  if (bias) inputs[2] = net_constant(net, 1, &k, 0.5, NULL);
  int64_t out[4] = {in[0], k, (in[2] + 2 * pad - window) / stride + 1,
                    (in[3] + 2 * pad - window) / stride + 1};
  int y = net_node(net, "Conv", bias ? 3 : 2, inputs, 4, out);
  window_attributes(net, window, stride, pad);
  MUST(cuvil_graph_set_int(net->graph, net_last_node(net), "group", group));
  return y;
}

int net_pool(struct net *net, const char *op, int x, int64_t window,
             int64_t stride, int64_t pad) {
  const int64_t *in = net->dims[x];
  int64_t out[4] = {in[0], in[1], (in[2] + 2 * pad - window) / stride + 1,
                    (in[3] + 2 * pad - window) / stride + 1};
  int y = net_node(net, op, 1, &x, 4, out);
  window_attributes(net, window, stride, pad);
  return y;
}

int net_global_pool(struct net *net, int x) {
  int64_t out[4] = {net->dims[x][0], net->dims[x][1], 1, 1};
  return net_node(net, "GlobalAveragePool", 1, &x, 4, out);
}

int net_flatten(struct net *net, int x) {
  const int64_t *in = net->dims[x];
  int64_t out[2] = {in[0], in[1] * in[2] * in[3]};
  return net_node(net, "Flatten", 1, &x, 2, out);
}

int net_gemm(struct net *net, int x, int64_t n, bool bias) {
  int64_t k = net->dims[x][1];
  int64_t weight[2] = {n, k}, out[2] = {net->dims[x][0], n};
  int inputs[3] = {x,
                   net_constant(net, 2, weight, sqrt(1.0 / (double)k), NULL)};
  if (bias) inputs[2] = net_constant(net, 1, &n, 0.5, NULL);
  int y = net_node(net, "Gemm", bias ? 3 : 2, inputs, 2, out);
  MUST(cuvil_graph_set_int(net->graph, net_last_node(net), "transB", 1));
  return y;
}

int net_batch_norm(struct net *net, int x) {
  int64_t c = net->dims[x][1];
  int inputs[5] = {x};
  for (int i = 1; i < 5; ++i)
    inputs[i] = net_constant(net, 1, &c, 0.3, NULL);
  float *variance = net->memory[net->memory_count - 1];
  for (int64_t i = 0; i < c; ++i)
    variance[i] = 0.5f + variance[i] * variance[i];
  return net_node(net, "BatchNormalization", 5, inputs, net->rank[x],
                  net->dims[x]);
}

void net_finish(struct net *net) {
  enum cuvil_status status = cuvil_graph_finish(net->graph);
  if (status != CUVIL_OK) fail_msg("graph: %s", cuvil_last_error());
}

/* ---- random graphs */

static int64_t pick(struct net *net, int count, const int64_t *choices) {
  return choices[cuvil_rng_below(&net->rng, (uint64_t)count)];
}

static bool chance(struct net *net, int percent) {
  return (int)cuvil_rng_below(&net->rng, 100) < percent;
}

struct growth {
  struct net *net;
  int pool[NET_MAX_VALUES]; /* four-dimensional values so far */
  int count;
};

static int draw(struct growth *g) {
  /* Mostly recent ones: graphs are deep rather than wide. */
  uint64_t recent = (uint64_t)(g->count < 3 ? g->count : 3);
  bool any = chance(g->net, 25);
  uint64_t back =
      cuvil_rng_below(&g->net->rng, any ? (uint64_t)g->count : recent);
  return g->pool[g->count - 1 - (int)back];
}

/* Another value of the same shape; the same one when there is none. */
static int draw_like(struct growth *g, int x) {
  int found = x, seen = 0;
  for (int i = 0; i < g->count; ++i)
    if (memcmp(g->net->dims[g->pool[i]], g->net->dims[x],
               sizeof(g->net->dims[x])) == 0 &&
        cuvil_rng_below(&g->net->rng, (uint64_t)++seen) == 0)
      found = g->pool[i];
  return found;
}

static int random_conv(struct net *net, int x) {
  const int64_t *in = net->dims[x];
  int64_t group = 1;
  int64_t k = pick(net, 6, (int64_t[]){1, 3, 4, 5, 8, in[1]});
  if (chance(net, 20)) {
    group = in[1];
    k = in[1] * (chance(net, 30) ? 2 : 1);
  } else if (in[1] % 2 == 0 && chance(net, 25)) {
    group = 2;
    k = chance(net, 50) ? in[1] : 6;
  }
  int64_t window = in[2] >= 3 && in[3] >= 3 && chance(net, 60) ? 3 : 1;
  int64_t stride = chance(net, 25) ? 2 : 1;
  int64_t pad = window == 3 && chance(net, 70) ? 1 : 0;
  if (k > 16) k = 16 / group * group;
  if (k == 0) k = group;
  return net_conv(net, x, k, window, stride, pad, group, chance(net, 60));
}

static int random_activation(struct net *net, int x) {
  static const char *const names[] = {"Relu", "Sigmoid",   "Tanh", "HardSwish",
                                      "Clip", "LeakyRelu", "Neg",  "Identity"};
  const char *op = names[cuvil_rng_below(&net->rng, 8)];
  if (strcmp(op, "Clip") != 0) return net_unary(net, op, x);
  int inputs[3] = {x, net_constant(net, 0, NULL, 0, (float[]){-0.5f}),
                   net_constant(net, 0, NULL, 0, (float[]){1.5f})};
  return net_node(net, op, 3, inputs, 4, net->dims[x]);
}

/* A constant that broadcasts into the shape of x. */
static int random_broadcast(struct net *net, int x) {
  const int64_t *in = net->dims[x];
  int64_t dims[4];
  switch (cuvil_rng_below(&net->rng, 5)) {
    case 0:
      return net_constant(net, 0, NULL, 1, NULL);
    case 1:
      return net_constant(net, 4, (int64_t[]){1, in[1], 1, 1}, 1, NULL);
    case 2:
      return net_constant(net, 3, (int64_t[]){in[1], 1, 1}, 1, NULL);
    case 3:
      return net_constant(net, 2, (int64_t[]){in[2], in[3]}, 1, NULL);
    default:
      for (int i = 0; i < 4; ++i)
        dims[i] = chance(net, 60) ? in[i] : 1;
      return net_constant(net, 4, dims, 1, NULL);
  }
}

static int random_binary(struct growth *g, int x) {
  static const char *const names[] = {"Add", "Mul", "Sub", "Max", "Add"};
  struct net *net = g->net;
  const char *op = names[cuvil_rng_below(&net->rng, 5)];
  int other;
  switch (cuvil_rng_below(&net->rng, 6)) {
    case 0:
      other = random_broadcast(net, x);
      break;
    case 1: /* squeeze and excite */
      other = net_global_pool(net, x);
      if (chance(net, 60))
        other = net_conv(net, other, net->dims[x][1], 1, 1, 0, 1, true);
      if (chance(net, 60)) other = net_unary(net, "Sigmoid", other);
      break;
    case 2: /* silu */
      other = net_unary(net, "Sigmoid", x);
      op = "Mul";
      break;
    default:
      other = draw_like(g, x);
      break;
  }
  return chance(net, 50) ? net_binary(net, op, x, other)
                         : net_binary(net, op, other, x);
}

void net_random(struct net *net, uint64_t seed, int size) {
  net_begin(net, seed);
  struct growth g = {.net = net};
  int64_t dims[4] = {pick(net, 2, (int64_t[]){1, 2}),
                     pick(net, 5, (int64_t[]){1, 3, 4, 5, 8}),
                     5 + (int64_t)cuvil_rng_below(&net->rng, 6),
                     5 + (int64_t)cuvil_rng_below(&net->rng, 6)};
  g.pool[g.count++] = net_input(net, 4, dims);
  if (chance(net, 15)) g.pool[g.count++] = net_input(net, 4, dims);
  for (int i = 0; i < size; ++i) {
    int x = draw(&g), y;
    uint64_t what = cuvil_rng_below(&net->rng, 100);
    bool roomy = net->dims[x][2] >= 3 && net->dims[x][3] >= 3;
    if (what < 35)
      y = random_conv(net, x);
    else if (what < 60)
      y = random_activation(net, x);
    else if (what < 88)
      y = random_binary(&g, x);
    else if (what < 93)
      y = net_batch_norm(net, x);
    else if (roomy)
      y = net_pool(net, chance(net, 50) ? "MaxPool" : "AveragePool", x,
                   2 + (int64_t)cuvil_rng_below(&net->rng, 2), 2,
                   (int64_t)cuvil_rng_below(&net->rng, 2));
    else
      y = net_unary(net, "Relu", x);
    g.pool[g.count++] = y;
    if (chance(net, 8)) net_output(net, y);
  }
  int last = g.pool[g.count - 1];
  if (chance(net, 50)) {
    int head = chance(net, 70) ? net_global_pool(net, last) : last;
    head = net_flatten(net, head);
    if (chance(net, 80)) head = net_gemm(net, head, 7, chance(net, 70));
    if (chance(net, 30)) head = net_unary(net, "Relu", head);
    net_output(net, head);
  } else {
    net_output(net, last);
  }
  net_finish(net);
}

/* ---- ResNet-50 */

static int bottleneck(struct net *net, int x, int64_t width, int64_t stride,
                      bool project) {
  int y = net_unary(net, "Relu", net_conv(net, x, width, 1, 1, 0, 1, true));
  y = net_unary(net, "Relu", net_conv(net, y, width, 3, stride, 1, 1, true));
  y = net_conv(net, y, 4 * width, 1, 1, 0, 1, true);
  int skip = project ? net_conv(net, x, 4 * width, 1, stride, 0, 1, true) : x;
  return net_unary(net, "Relu", net_binary(net, "Add", y, skip));
}

void net_resnet50(struct net *net, int64_t batch, int64_t side, int64_t width) {
  static const int blocks[4] = {3, 4, 6, 3};
  net_begin(net, 50);
  int64_t dims[4] = {batch, 3, side, side};
  int x = net_input(net, 4, dims);
  x = net_unary(net, "Relu", net_conv(net, x, width, 7, 2, 3, 1, true));
  x = net_pool(net, "MaxPool", x, 3, 2, 1);
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < blocks[stage]; ++i)
      x = bottleneck(net, x, width << stage, stage > 0 && i == 0 ? 2 : 1,
                     i == 0);
  x = net_gemm(net, net_flatten(net, net_global_pool(net, x)), 1000, true);
  net_output(net, x);
  net_finish(net);
}
