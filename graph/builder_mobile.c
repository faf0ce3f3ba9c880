/* MobileNetV2 (Sandler et al., arXiv:1801.04381) and EfficientNet-B0 (Tan and
 * Le, arXiv:1905.11946), with BatchNorms folded as both exporters leave them,
 * and the choice among all network builders by name.
 */
#include <math.h>
#include <string.h>

#include "graph/builder_net.h"

#define DIMS CUVIL_NET_DIMS

enum act { ACT_NONE, ACT_RELU6, ACT_SILU };

struct conv {
  const char *name;
  int64_t from, to, kernel, stride, group;
  double gain;
  enum act act;
};

static const char *activate(struct cuvil_net *net, const char *x,
                            enum act act) {
  if (act == ACT_RELU6) {
    const char *low = cuvil_net_scalar(net, 0),
               *high = cuvil_net_scalar(net, 6);
    return cuvil_net_op(net, "Clip", "%s,%s,%s", x, low, high);
  }
  if (act == ACT_NONE) return x;
  const char *s = cuvil_net_op(net, "Sigmoid", "%s", x);
  return cuvil_net_op(net, "Mul", "%s,%s", x, s);
}

static const char *convolve(struct cuvil_net *net, const char *x,
                            const struct conv *c) {
  const char *weight = cuvil_net_text(net, "%s.weight", c->name);
  const char *bias = cuvil_net_text(net, "%s.bias", c->name);
  int64_t k = c->kernel, pad = k / 2, each = c->from / c->group;
  cuvil_builder_random(net->b, weight, 4, DIMS(c->to, each, k, k),
                       sqrt(c->gain / (double)(each * k * k)));
  cuvil_builder_uniform(net->b, bias, c->to, -0.1, 0.1);
  const char *y = cuvil_net_op(net, "Conv", "%s,%s,%s", x, weight, bias);
  cuvil_builder_ints(net->b, "dilations", 2, DIMS(1, 1));
  cuvil_builder_int(net->b, "group", c->group);
  cuvil_builder_ints(net->b, "kernel_shape", 2, DIMS(k, k));
  cuvil_builder_ints(net->b, "pads", 4, DIMS(pad, pad, pad, pad));
  cuvil_builder_ints(net->b, "strides", 2, DIMS(c->stride, c->stride));
  return activate(net, y, c->act);
}

static const char *pool(struct cuvil_net *net, const char *x) {
  return net->dynamo ? cuvil_net_mean(net, x, 2, DIMS(-1, -2))
                     : cuvil_net_op(net, "GlobalAveragePool", "%s", x);
}

/* Squeeze and excitation: `to` channels between the two convolutions. */
static const char *excite(struct cuvil_net *net, const char *x,
                          const char *name, int64_t channels, int64_t to) {
  const char *y = pool(net, x);
  struct conv c = {.name = cuvil_net_text(net, "%s.fc1", name),
                   .from = channels,
                   .to = to,
                   .kernel = 1,
                   .stride = 1,
                   .group = 1,
                   .gain = 2,
                   .act = ACT_SILU};
  y = convolve(net, y, &c);
  c.name = cuvil_net_text(net, "%s.fc2", name);
  c.from = to, c.to = channels, c.act = ACT_NONE;
  y = convolve(net, y, &c);
  y = cuvil_net_op(net, "Sigmoid", "%s", y);
  return cuvil_net_op(net, "Mul", "%s,%s", y, x);
}

struct stage {
  int64_t expand, channels, repeat, stride, kernel;
};

static const char *inverted_residual(struct cuvil_net *net, const char *x,
                                     const char *name, int64_t from,
                                     const struct stage *s, int64_t stride,
                                     bool efficient) {
  enum act act = efficient ? ACT_SILU : ACT_RELU6;
  int64_t wide = from * s->expand;
  struct conv c = {.name = cuvil_net_text(net, "%s.expand", name),
                   .from = from,
                   .to = wide,
                   .kernel = 1,
                   .stride = 1,
                   .group = 1,
                   .gain = 2,
                   .act = act};
  const char *y = s->expand == 1 ? x : convolve(net, x, &c);
  c.name = cuvil_net_text(net, "%s.depthwise", name);
  c.from = wide, c.kernel = s->kernel, c.stride = stride, c.group = wide;
  y = convolve(net, y, &c);
  if (efficient)
    y = excite(net, y, cuvil_net_text(net, "%s.se", name), wide,
               from / 4 > 1 ? from / 4 : 1);
  bool adds = stride == 1 && from == s->channels;
  c.name = cuvil_net_text(net, "%s.project", name);
  c.to = s->channels, c.kernel = 1, c.stride = 1, c.group = 1;
  c.act = ACT_NONE, c.gain = adds ? 0.2 : 1;
  y = convolve(net, y, &c);
  return !adds       ? y
         : efficient ? cuvil_net_op(net, "Add", "%s,%s", y, x)
                     : cuvil_net_op(net, "Add", "%s,%s", x, y);
}

static const struct stage mobile_stages[] = {
    {1, 16, 1, 1, 3}, {6, 24, 2, 2, 3},  {6, 32, 3, 2, 3}, {6, 64, 4, 2, 3},
    {6, 96, 3, 1, 3}, {6, 160, 3, 2, 3}, {6, 320, 1, 1, 3}};
static const struct stage efficient_stages[] = {
    {1, 16, 1, 1, 3},  {6, 24, 2, 2, 3},  {6, 40, 2, 2, 5}, {6, 80, 3, 2, 3},
    {6, 112, 3, 1, 5}, {6, 192, 4, 2, 5}, {6, 320, 1, 1, 3}};
#define STAGES 7

static enum cuvil_status mobile(const struct cuvil_network_options *o,
                                bool efficient, const char *path) {
  struct cuvil_net net;
  CUVIL_TRY(
      cuvil_net_open(&net, efficient ? "efficientnet_b0" : "mobilenet_v2", o));
  const struct stage *stages = efficient ? efficient_stages : mobile_stages;
  enum act act = efficient ? ACT_SILU : ACT_RELU6;
  cuvil_builder_input(net.b, "input", CUVIL_F32, 4,
                      DIMS(o->batch, 3, o->image, o->image));
  struct conv c = {.name = "features.0",
                   .from = 3,
                   .to = 32,
                   .kernel = 3,
                   .stride = 2,
                   .group = 1,
                   .gain = 2,
                   .act = act};
  const char *x = convolve(&net, "input", &c);
  int64_t from = 32, block = 0;
  for (int s = 0; s < STAGES; s++)
    for (int64_t i = 0; i < stages[s].repeat; i++, block++) {
      if (o->layers > 0 && block >= o->layers) break;
      const char *name = cuvil_net_text(&net, "features.%d", (int)block + 1);
      x = inverted_residual(&net, x, name, from, &stages[s],
                            i == 0 ? stages[s].stride : 1, efficient);
      from = stages[s].channels;
    }
  c.name = "features.last", c.from = from, c.to = 1280;
  c.kernel = 1, c.stride = 1;
  x = convolve(&net, x, &c);
  x = pool(&net, x);
  if (net.dynamo)
    x = cuvil_net_reshape(&net, x, 2, DIMS(o->batch, 1280));
  else
    x = cuvil_net_op_int(&net, "Flatten", "axis", 1, "%s", x);
  x = cuvil_net_gemm(&net, x, "classifier.1", 1280, o->classes, 1);
  cuvil_builder_node(net.b, "Identity", "node_output", x, "output");
  cuvil_builder_output(net.b, "output", CUVIL_F32, 2,
                       DIMS(o->batch, o->classes));
  return cuvil_net_close(&net, path);
}

enum cuvil_status cuvil_builder_mobilenet_v2(
    const struct cuvil_network_options *options, const char *path) {
  return mobile(options, false, path);
}

enum cuvil_status cuvil_builder_efficientnet_b0(
    const struct cuvil_network_options *options, const char *path) {
  return mobile(options, true, path);
}

/* ---- by name */
static const struct network {
  const char *name;
  enum cuvil_status (*build)(const struct cuvil_network_options *,
                             const char *);
  struct cuvil_network_options options;
} networks[] = {
    {"bert",
     cuvil_builder_bert,
     {.layers = 12,
      .hidden = 768,
      .heads = 12,
      .ffn = 3072,
      .vocab = 30522,
      .positions = 512,
      .seq = 128}},
    {"gpt2",
     cuvil_builder_gpt2,
     {.layers = 12,
      .hidden = 768,
      .heads = 12,
      .ffn = 3072,
      .vocab = 50257,
      .positions = 1024,
      .seq = 512}},
    {"vit",
     cuvil_builder_vit,
     {.layers = 12,
      .hidden = 768,
      .heads = 12,
      .ffn = 3072,
      .image = 224,
      .patch = 16,
      .classes = 1000}},
    {"llama",
     cuvil_builder_llama,
     {.layers = 2,
      .hidden = 2048,
      .heads = 32,
      .kv_heads = 8,
      .ffn = 5632,
      .seq = 512}},
    {"mobilenet_v2",
     cuvil_builder_mobilenet_v2,
     {.image = 224, .classes = 1000}},
    {"efficientnet_b0",
     cuvil_builder_efficientnet_b0,
     {.image = 224, .classes = 1000}},
};

static const struct network *find(const char *name) {
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
    if (strcmp(networks[i].name, name) == 0) return &networks[i];
  return NULL;
}

bool cuvil_network_options(const char *network,
                           struct cuvil_network_options *out) {
  const struct network *found = find(network);
  *out = (struct cuvil_network_options){0};
  if (found == NULL) return false;
  *out = found->options;
  out->batch = 1;
  out->seed = 1;
  return true;
}

/* What would divide by zero or build a graph of empty tensors. */
static enum cuvil_status check(const struct cuvil_network_options *o) {
  int64_t kv = o->kv_heads > 0 ? o->kv_heads : o->heads;
  bool attends = o->heads > 0;
  if (attends && (o->hidden < 1 || o->hidden % o->heads != 0 ||
                  o->heads % kv != 0 || o->hidden / o->heads % 2 != 0))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%lld heads (%lld for keys) do not divide a hidden size "
                      "of %lld into even parts",
                      (long long)o->heads, (long long)kv, (long long)o->hidden);
  if (o->positions > 0 && o->seq > o->positions)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a sequence of %lld is longer than the %lld positions",
                      (long long)o->seq, (long long)o->positions);
  if (o->patch > 0 && (o->image < o->patch || o->image % o->patch != 0))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "an image of %lld is not made of patches of %lld",
                      (long long)o->image, (long long)o->patch);
  return CUVIL_OK;
}

enum cuvil_status cuvil_builder_network(
    const char *network, const struct cuvil_network_options *options,
    const char *path) {
  const struct network *found = find(network);
  if (found == NULL)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "no network %s", network);
  CUVIL_TRY(check(options));
  return found->build(options, path);
}
