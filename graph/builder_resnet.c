/* Residual networks for the demo, the benchmarks and the tests.
 *
 * Weights are random, so the scales are what keeps a deep network's
 * activations in range: a convolution before a ReLU gets 2/fan-in (He et al.,
 * arXiv:1502.01852), a projection 1/fan-in, and the last convolution of a
 * branch is scaled down so that sixteen additions do not add up.
 */
#include <math.h>
#include <stdio.h>

#include "graph/builder.h"

struct net {
  struct cuvil_builder *b;
  bool with_bn;
};

struct layer {
  const char *prefix; /* "layer1.0." */
  const char *conv, *bn;
  const char *in, *out;
  int64_t from, to, kernel, stride;
  double gain; /* of the output's variance against the input's mean square */
  double gamma_low, gamma_high;
};

static void batch_norm(const struct net *net, const struct layer *layer,
                       const char *in) {
  char names[5][96], list[512], node[96];
  static const char *const parts[] = {"weight", "bias", "running_mean",
                                      "running_var"};
  for (int i = 0; i < 4; i++)
    snprintf(names[i], sizeof names[i], "%s%s.%s", layer->prefix, layer->bn,
             parts[i]);
  /* The statistics are those that the convolution before has, roughly: its
   * outputs have mean 0 and a variance near its gain. */
  double v = layer->gain;
  cuvil_builder_uniform(net->b, names[0], layer->to, layer->gamma_low * sqrt(v),
                        layer->gamma_high * sqrt(v));
  cuvil_builder_uniform(net->b, names[1], layer->to, -0.1, 0.1);
  cuvil_builder_uniform(net->b, names[2], layer->to, -0.1, 0.1);
  cuvil_builder_uniform(net->b, names[3], layer->to, 0.8 * v, 1.25 * v);
  snprintf(list, sizeof list, "%s,%s,%s,%s,%s", in, names[0], names[1],
           names[2], names[3]);
  snprintf(node, sizeof node, "%s%s", layer->prefix, layer->bn);
  cuvil_builder_node(net->b, "BatchNormalization", node, list, layer->out);
  cuvil_builder_float(net->b, "epsilon", 1e-5f);
}

static void convolution(const struct net *net, const struct layer *layer) {
  char weight[96], bias[96], node[96], raw[96], list[320];
  snprintf(node, sizeof node, "%s%s", layer->prefix, layer->conv);
  snprintf(weight, sizeof weight, "%.80s.weight", node);
  snprintf(bias, sizeof bias, "%.80s.bias", node);
  snprintf(raw, sizeof raw, "%.80s_out", node);
  int64_t k = layer->kernel, pad = k / 2;
  double deviation = sqrt(layer->gain / (double)(layer->from * k * k));
  if (!net->with_bn) deviation *= 0.5 * (layer->gamma_low + layer->gamma_high);
  cuvil_builder_random(net->b, weight, 4,
                       (int64_t[]){layer->to, layer->from, k, k}, deviation);
  if (net->with_bn) {
    snprintf(list, sizeof list, "%s,%s", layer->in, weight);
  } else {
    cuvil_builder_uniform(net->b, bias, layer->to, -0.1, 0.1);
    snprintf(list, sizeof list, "%s,%s,%s", layer->in, weight, bias);
  }
  cuvil_builder_node(net->b, "Conv", node, list,
                     net->with_bn ? raw : layer->out);
  cuvil_builder_ints(net->b, "kernel_shape", 2, (int64_t[]){k, k});
  cuvil_builder_ints(net->b, "strides", 2,
                     (int64_t[]){layer->stride, layer->stride});
  cuvil_builder_ints(net->b, "pads", 4, (int64_t[]){pad, pad, pad, pad});
  cuvil_builder_ints(net->b, "dilations", 2, (int64_t[]){1, 1});
  cuvil_builder_int(net->b, "group", 1);
  if (net->with_bn) batch_norm(net, layer, raw);
}

static void relu(const struct net *net, const char *name, const char *in,
                 const char *out) {
  cuvil_builder_node(net->b, "Relu", name, in, out);
}

/* One block; `in` and `out` are value names. */
static void bottleneck(const struct net *net, const char *prefix,
                       const char *in, const char *out, int64_t from,
                       int64_t width, int64_t stride) {
  char v[8][64], list[192];
  static const char *const suffix[] = {"c1", "r1",   "c2",  "r2",
                                       "c3", "down", "sum", "relu"};
  for (int i = 0; i < 8; i++)
    snprintf(v[i], sizeof v[i], "%s%s", prefix, suffix[i]);
  bool project = stride != 1 || from != 4 * width;
  struct layer layer = {.prefix = prefix,
                        .conv = "conv1",
                        .bn = "bn1",
                        .in = in,
                        .out = v[0],
                        .from = from,
                        .to = width,
                        .kernel = 1,
                        .stride = 1,
                        .gain = 2,
                        .gamma_low = 0.9,
                        .gamma_high = 1.1};
  convolution(net, &layer);
  relu(net, v[1], v[0], v[1]);
  layer.conv = "conv2", layer.bn = "bn2", layer.in = v[1], layer.out = v[2];
  layer.from = width, layer.kernel = 3, layer.stride = stride;
  convolution(net, &layer);
  relu(net, v[3], v[2], v[3]);
  layer.conv = "conv3", layer.bn = "bn3", layer.in = v[3], layer.out = v[4];
  layer.to = 4 * width, layer.kernel = 1, layer.stride = 1;
  layer.gain = 1, layer.gamma_low = 0.2, layer.gamma_high = 0.5;
  convolution(net, &layer);
  if (project) {
    layer.conv = "downsample.0", layer.bn = "downsample.1";
    layer.in = in, layer.out = v[5], layer.from = from, layer.stride = stride;
    layer.gamma_low = 0.9, layer.gamma_high = 1.1;
    convolution(net, &layer);
  }
  snprintf(list, sizeof list, "%s,%s", v[4], project ? v[5] : in);
  cuvil_builder_node(net->b, "Add", v[6], list, v[6]);
  relu(net, v[7], v[6], out);
}

static void stages(const struct net *net, const struct cuvil_resnet_options *o,
                   char *value, size_t value_size) {
  int64_t from = o->width;
  for (int stage = 0; stage < 4; stage++) {
    int64_t width = o->width << stage;
    for (int64_t i = 0; i < o->blocks[stage]; i++) {
      char prefix[32], out[64];
      snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, (int)i);
      snprintf(out, sizeof out, "%sout", prefix);
      bottleneck(net, prefix, value, out, from, width,
                 stage > 0 && i == 0 ? 2 : 1);
      from = 4 * width;
      snprintf(value, value_size, "%s", out);
    }
  }
}

enum cuvil_status cuvil_builder_resnet(
    const struct cuvil_resnet_options *options, const char *path) {
  const struct cuvil_resnet_options *o = options;
  struct net net = {.with_bn = o->with_bn};
  CUVIL_TRY(cuvil_builder_create("resnet", 17, &net.b));
  struct cuvil_builder *b = net.b;
  cuvil_builder_set_half(b, o->half);
  cuvil_builder_set_seed(b, o->seed);
  cuvil_builder_set_external(b, o->external);
  cuvil_builder_input(b, "input", CUVIL_F32, 4,
                      (int64_t[]){o->batch, 3, o->image, o->image});
  struct layer stem = {.prefix = "",
                       .conv = "conv1",
                       .bn = "bn1",
                       .in = "input",
                       .out = "stem_c",
                       .from = 3,
                       .to = o->width,
                       .kernel = 7,
                       .stride = 2,
                       .gain = 2,
                       .gamma_low = 0.9,
                       .gamma_high = 1.1};
  convolution(&net, &stem);
  relu(&net, "relu", "stem_c", "stem_r");
  cuvil_builder_node(b, "MaxPool", "maxpool", "stem_r", "stem_p");
  cuvil_builder_ints(b, "kernel_shape", 2, (int64_t[]){3, 3});
  cuvil_builder_ints(b, "strides", 2, (int64_t[]){2, 2});
  cuvil_builder_ints(b, "pads", 4, (int64_t[]){1, 1, 1, 1});
  char value[64] = "stem_p";
  stages(&net, o, value, sizeof value);
  cuvil_builder_node(b, "GlobalAveragePool", "avgpool", value, "pooled");
  cuvil_builder_node(b, "Flatten", "flatten", "pooled", "features");
  cuvil_builder_int(b, "axis", 1);
  int64_t features = 4 * (o->width << 3);
  cuvil_builder_random(b, "fc.weight", 2, (int64_t[]){o->classes, features},
                       sqrt(1.0 / (double)features));
  cuvil_builder_uniform(b, "fc.bias", o->classes, -0.1, 0.1);
  cuvil_builder_node(b, "Gemm", "fc", "features,fc.weight,fc.bias", "output");
  cuvil_builder_int(b, "transB", 1);
  cuvil_builder_float(b, "alpha", 1);
  cuvil_builder_float(b, "beta", 1);
  cuvil_builder_output(b, "output", CUVIL_F32, 2,
                       (int64_t[]){o->batch, o->classes});
  enum cuvil_status status = cuvil_builder_write(b, path);
  cuvil_builder_destroy(b);
  return status;
}

struct cuvil_resnet_options cuvil_resnet50_options(int64_t batch,
                                                   uint64_t seed) {
  return (struct cuvil_resnet_options){.batch = batch,
                                       .image = 224,
                                       .classes = 1000,
                                       .width = 64,
                                       .blocks = {3, 4, 6, 3},
                                       .seed = seed};
}

struct cuvil_resnet_options cuvil_resnet_mini_options(int64_t batch,
                                                      uint64_t seed) {
  return (struct cuvil_resnet_options){.batch = batch,
                                       .image = 32,
                                       .classes = 10,
                                       .width = 8,
                                       .blocks = {1, 1, 1, 1},
                                       .seed = seed};
}

enum cuvil_status cuvil_builder_resnet50(int64_t batch, uint64_t seed,
                                         const char *path) {
  struct cuvil_resnet_options options = cuvil_resnet50_options(batch, seed);
  return cuvil_builder_resnet(&options, path);
}
