/* Transformers as torch.onnx.export writes them: BERT, GPT-2, ViT, Llama.
 *
 * Each exporter has its own words for the same layer.  torchscript (opset 17)
 * leaves the chains of Shape, Slice, Concat that computed a shape, divides by
 * a square root after the scores, or multiplies both operands by the root of
 * the scale; dynamo (opset 18) has most shapes folded, transposes keys by
 * Reshape, Transpose, Reshape, scales both operands, writes Reciprocal and
 * multiplies a GELU together in another order.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/builder_net.h"

#define DIMS CUVIL_NET_DIMS
#define END INT64_MAX

struct shape {
  int64_t b, s, hidden, heads, kv, d, ffn;
};

static struct shape shape_of(const struct cuvil_network_options *o,
                             int64_t seq) {
  return (struct shape){.b = o->batch,
                        .s = seq,
                        .hidden = o->hidden,
                        .heads = o->heads,
                        .kv = o->kv_heads > 0 ? o->kv_heads : o->heads,
                        .d = o->hidden / o->heads,
                        .ffn = o->ffn};
}

static const char *layer_norm(struct cuvil_net *net, const char *x,
                              const char *name, int64_t n, double epsilon) {
  const char *gamma = cuvil_net_text(net, "%s.weight", name);
  const char *beta = cuvil_net_text(net, "%s.bias", name);
  cuvil_builder_uniform(net->b, gamma, n, 0.8, 1.2);
  cuvil_builder_uniform(net->b, beta, n, -0.1, 0.1);
  const char *y = cuvil_net_op_int(net, "LayerNormalization", "axis", -1,
                                   "%s,%s,%s", x, gamma, beta);
  cuvil_builder_float(net->b, "epsilon", (float)epsilon);
  return y;
}

/* 0.5 x (1 + erf(x / sqrt 2)) in the exporter's order of products. */
static const char *gelu_erf(struct cuvil_net *net, const char *x) {
  const char *root = cuvil_net_scalar(net, 1.4142135623730951);
  const char *q = cuvil_net_op(net, "Div", "%s,%s", x, root);
  const char *e = cuvil_net_op(net, "Erf", "%s", q);
  const char *one = cuvil_net_scalar(net, 1);
  const char *sum = cuvil_net_op(net, "Add", "%s,%s", e, one);
  const char *half = cuvil_net_scalar(net, 0.5);
  if (net->dynamo) {
    const char *h = cuvil_net_op(net, "Mul", "%s,%s", half, sum);
    return cuvil_net_op(net, "Mul", "%s,%s", x, h);
  }
  const char *p = cuvil_net_op(net, "Mul", "%s,%s", x, sum);
  return cuvil_net_op(net, "Mul", "%s,%s", p, half);
}

/* transformers' gelu_new. */
static const char *gelu_tanh(struct cuvil_net *net, const char *x) {
  const char *half = cuvil_net_scalar(net, 0.5);
  const char *h = cuvil_net_op(net, "Mul", "%s,%s", x, half);
  const char *three = cuvil_net_scalar(net, 3);
  const char *cube = cuvil_net_op(net, "Pow", "%s,%s", x, three);
  const char *c = cuvil_net_scalar(net, 0.044715);
  const char *scaled = cuvil_net_op(net, "Mul", "%s,%s", cube, c);
  const char *sum = cuvil_net_op(net, "Add", "%s,%s", x, scaled);
  const char *root = cuvil_net_scalar(net, 0.7978845608028654);
  const char *inner = cuvil_net_op(net, "Mul", "%s,%s", sum, root);
  const char *t = cuvil_net_op(net, "Tanh", "%s", inner);
  const char *one = cuvil_net_scalar(net, 1);
  const char *t1 = cuvil_net_op(net, "Add", "%s,%s", t, one);
  return cuvil_net_op(net, "Mul", "%s,%s", h, t1);
}

/* ---- attention.  q, k, v are [b, heads, s, d]. */
static double lowest(const struct cuvil_net *net) {
  return net->half ? -65504.0 : (double)-FLT_MAX;
}

static const char *softmax_times(struct cuvil_net *net, const char *scores,
                                 const char *v) {
  const char *p = cuvil_net_op_int(net, "Softmax", "axis", -1, "%s", scores);
  return cuvil_net_op(net, "MatMul", "%s,%s", p, v);
}

/* One over the root of the last extent, computed from the tensor's shape as
 * both exporters do before they fold. */
static const char *scale_root(struct cuvil_net *net, const char *q, int64_t d) {
  if (net->dynamo) return cuvil_net_scalar(net, sqrt(1 / sqrt((double)d)));
  const char *shape = cuvil_net_op(net, "Shape", "%s", q);
  const char *last = cuvil_net_slice(net, shape, 0, -1, END);
  const char *size =
      cuvil_net_op_int(net, "Cast", "to", net->half ? 10 : 1, "%s", last);
  const char *root = cuvil_net_op(net, "Sqrt", "%s", size);
  const char *one = cuvil_net_scalar(net, 1);
  const char *scale = cuvil_net_op(net, "Div", "%s,%s", one, root);
  return cuvil_net_op(net, "Sqrt", "%s", scale);
}

static const char *causal_mask(struct cuvil_net *net, const char *q,
                               const char *k) {
  const char *qs = cuvil_net_op(net, "Shape", "%s", q);
  const char *ks = cuvil_net_op(net, "Shape", "%s", k);
  const char *rows = cuvil_net_slice(net, qs, 0, -2, -1);
  const char *cols = cuvil_net_slice(net, ks, 0, -2, -1);
  const char *size =
      cuvil_net_op_int(net, "Concat", "axis", 0, "%s,%s", rows, cols);
  const char *one = cuvil_net_scalar(net, 1);
  const char *ones = cuvil_net_op(net, "Expand", "%s,%s", one, size);
  const char *low = cuvil_net_op_int(net, "Trilu", "upper", 0, "%s", ones);
  const char *zero = cuvil_net_scalar(net, 0);
  const char *off = cuvil_net_op(net, "Equal", "%s,%s", low, zero);
  const char *inf = cuvil_net_scalar(net, (double)-INFINITY);
  return cuvil_net_op(net, "Where", "%s,%s,%s", off, inf, zero);
}

/* scaled_dot_product_attention: the root of the scale on either operand. */
static const char *sdpa(struct cuvil_net *net, const struct shape *h,
                        const char *q, const char *k, const char *v,
                        const char *mask) {
  const char *root = scale_root(net, q, h->d);
  const char *kt;
  if (net->dynamo) {
    const char *flat = cuvil_net_reshape(net, k, 3, DIMS(-1, h->s, h->d));
    const char *turned = cuvil_net_transpose(net, flat, 3, DIMS(0, 2, 1));
    kt = cuvil_net_reshape(net, turned, 4, DIMS(h->b, h->heads, h->d, h->s));
  } else {
    kt = cuvil_net_transpose(net, k, 4, DIMS(0, 1, 3, 2));
  }
  const char *qr = cuvil_net_op(net, "Mul", "%s,%s", q, root);
  const char *kr = cuvil_net_op(net, "Mul", "%s,%s", kt, root);
  const char *scores = cuvil_net_op(net, "MatMul", "%s,%s", qr, kr);
  if (mask != NULL) scores = cuvil_net_op(net, "Add", "%s,%s", scores, mask);
  return softmax_times(net, scores, v);
}

/* [b, s, n * d] -> [b, n, s, d] */
static const char *split_heads(struct cuvil_net *net, const struct shape *h,
                               const char *x, int64_t heads) {
  const char *y = cuvil_net_reshape(net, x, 4, DIMS(h->b, h->s, heads, h->d));
  return cuvil_net_transpose(net, y, 4, DIMS(0, 2, 1, 3));
}

static const char *join_heads(struct cuvil_net *net, const struct shape *h,
                              const char *x) {
  const char *y = cuvil_net_transpose(net, x, 4, DIMS(0, 2, 1, 3));
  return cuvil_net_reshape(net, y, 3, DIMS(h->b, h->s, h->heads * h->d));
}

static const char *residual(struct cuvil_net *net, const char *branch,
                            const char *x) {
  return net->dynamo ? cuvil_net_op(net, "Add", "%s,%s", branch, x)
                     : cuvil_net_op(net, "Add", "%s,%s", x, branch);
}

/* ---- BERT */
static const char *bert_mask(struct cuvil_net *net) {
  const char *m = "attention_mask";
  for (int64_t axis = 1; axis <= 2; axis++) {
    const char *at = cuvil_net_ints(net, 1, &axis);
    m = cuvil_net_op(net, "Unsqueeze", "%s,%s", m, at);
  }
  m = cuvil_net_op_int(net, "Cast", "to", net->half ? 10 : 1, "%s", m);
  const char *one = cuvil_net_scalar(net, 1);
  m = cuvil_net_op(net, "Sub", "%s,%s", one, m);
  const char *low = cuvil_net_scalar(net, lowest(net));
  return cuvil_net_op(net, "Mul", "%s,%s", m, low);
}

static const char *bert_layer(struct cuvil_net *net, const struct shape *h,
                              int64_t index, const char *x, const char *mask) {
  const char *at = cuvil_net_text(net, "encoder.layer.%d", (int)index);
  const char *part[3];
  static const char *const names[] = {"query", "key", "value"};
  for (int i = 0; i < 3; i++)
    part[i] = cuvil_net_linear(
        net, x, cuvil_net_text(net, "%s.attention.self.%s", at, names[i]),
        h->hidden, h->hidden, 1, true);
  const char *out;
  if (net->dynamo) {
    for (int i = 0; i < 3; i++)
      part[i] = split_heads(net, h, part[i], h->heads);
    out = sdpa(net, h, part[0], part[1], part[2], mask);
  } else { /* the "eager" attention, whose transposes were merged */
    const char *q = split_heads(net, h, part[0], h->heads);
    const char *k =
        cuvil_net_reshape(net, part[1], 4, DIMS(h->b, h->s, h->heads, h->d));
    const char *v = split_heads(net, h, part[2], h->heads);
    k = cuvil_net_transpose(net, k, 4, DIMS(0, 2, 3, 1));
    const char *scores = cuvil_net_op(net, "MatMul", "%s,%s", q, k);
    const char *root = cuvil_net_scalar(net, sqrt((double)h->d));
    scores = cuvil_net_op(net, "Div", "%s,%s", scores, root);
    if (mask != NULL) scores = cuvil_net_op(net, "Add", "%s,%s", scores, mask);
    out = softmax_times(net, scores, v);
  }
  out = join_heads(net, h, out);
  out = cuvil_net_linear(net, out,
                         cuvil_net_text(net, "%s.attention.output.dense", at),
                         h->hidden, h->hidden, 1, true);
  out = cuvil_net_op(net, "Add", "%s,%s", out, x);
  x = layer_norm(net, out,
                 cuvil_net_text(net, "%s.attention.output.LayerNorm", at),
                 h->hidden, 1e-12);
  out =
      cuvil_net_linear(net, x, cuvil_net_text(net, "%s.intermediate.dense", at),
                       h->hidden, h->ffn, 1, true);
  out = gelu_erf(net, out);
  out = cuvil_net_linear(net, out, cuvil_net_text(net, "%s.output.dense", at),
                         h->ffn, h->hidden, 2, true);
  out = cuvil_net_op(net, "Add", "%s,%s", out, x);
  return layer_norm(net, out, cuvil_net_text(net, "%s.output.LayerNorm", at),
                    h->hidden, 1e-12);
}

static const char *bert_embeddings(struct cuvil_net *net,
                                   const struct cuvil_network_options *o) {
  cuvil_builder_random(net->b, "embeddings.word_embeddings.weight", 2,
                       DIMS(o->vocab, o->hidden), 1);
  cuvil_builder_random(net->b, "embeddings.position_embeddings.weight", 2,
                       DIMS(o->positions, o->hidden), 0.3);
  cuvil_builder_random(net->b, "embeddings.token_type_embeddings.weight", 2,
                       DIMS(2, o->hidden), 0.3);
  const char *type, *place;
  if (net->dynamo) {
    type = cuvil_net_op(net, "Expand", "%s,%s", cuvil_net_ints(net, 1, DIMS(0)),
                        cuvil_net_ints(net, 2, DIMS(o->batch, o->seq)));
    const char *zero = cuvil_net_index(net, 0), *one = cuvil_net_index(net, 1);
    const char *end = cuvil_net_index(net, o->seq);
    place = cuvil_net_op(net, "Range", "%s,%s,%s", zero, end, one);
    place = cuvil_net_op(net, "Unsqueeze", "%s,%s", place,
                         cuvil_net_ints(net, 1, DIMS(0)));
  } else {
    /* position_ids[:, :seq], with seq from the input's shape */
    const char *shape = cuvil_net_op(net, "Shape", "input_ids");
    const char *seq = cuvil_net_op_int(net, "Gather", "axis", 0, "%s,%s", shape,
                                       cuvil_net_index(net, 1));
    const char *zero = cuvil_net_ints(net, 1, DIMS(0));
    seq = cuvil_net_op(net, "Unsqueeze", "%s,%s", seq, zero);
    const char *axis = cuvil_net_ints(net, 1, DIMS(1));
    int64_t *ids = calloc((size_t)o->positions, sizeof *ids);
    if (ids == NULL) {
      net->failed = true;
      return "";
    }
    for (int64_t i = 0; i < o->positions; i++)
      ids[i] = i;
    cuvil_builder_initializer(net->b, "embeddings.position_ids", CUVIL_I64, 2,
                              DIMS(1, o->positions), ids);
    free(ids);
    place = cuvil_net_op(net, "Slice", "embeddings.position_ids,%s,%s,%s", zero,
                         seq, axis);
    type = cuvil_net_op(net, "ConstantOfShape", "%s", shape);
    cuvil_builder_tensor(net->b, "value", CUVIL_I64, 1, DIMS(1), DIMS(0));
  }
  const char *x = cuvil_net_op(net, "Gather",
                               "embeddings.word_embeddings.weight,input_ids");
  const char *t = cuvil_net_op(
      net, "Gather", "embeddings.token_type_embeddings.weight,%s", type);
  x = cuvil_net_op(net, "Add", "%s,%s", x, t);
  const char *p = cuvil_net_op(
      net, "Gather", "embeddings.position_embeddings.weight,%s", place);
  x = cuvil_net_op(net, "Add", "%s,%s", x, p);
  return layer_norm(net, x, "embeddings.LayerNorm", o->hidden, 1e-12);
}

static void finish_output(struct cuvil_net *net, const char *value,
                          const char *name, int rank, const int64_t *dims) {
  cuvil_builder_node(net->b, "Identity", "node_output", value, name);
  cuvil_builder_output(net->b, name, CUVIL_F32, rank, dims);
}

enum cuvil_status cuvil_builder_bert(const struct cuvil_network_options *o,
                                     const char *path) {
  struct cuvil_net net;
  CUVIL_TRY(cuvil_net_open(&net, "bert", o));
  struct shape h = shape_of(o, o->seq);
  cuvil_builder_input(net.b, "input_ids", CUVIL_I64, 2, DIMS(h.b, h.s));
  if (o->with_mask)
    cuvil_builder_input(net.b, "attention_mask", CUVIL_I64, 2, DIMS(h.b, h.s));
  const char *mask = o->with_mask ? bert_mask(&net) : NULL;
  const char *x = bert_embeddings(&net, o);
  for (int64_t i = 0; i < o->layers; i++)
    x = bert_layer(&net, &h, i, x, mask);
  finish_output(&net, x, "last_hidden_state", 3, DIMS(h.b, h.s, h.hidden));
  return cuvil_net_close(&net, path);
}

/* ---- GPT-2: Conv1D layers, that is Gemm on [b * s, n]. */
static const char *conv1d(struct cuvil_net *net, const struct shape *h,
                          const char *x, const char *name, int64_t from,
                          int64_t to, double gain) {
  const char *weight = cuvil_net_text(net, "%s.weight", name);
  const char *bias = cuvil_net_text(net, "%s.bias", name);
  cuvil_builder_random(net->b, weight, 2, DIMS(from, to),
                       sqrt(gain / (double)from));
  cuvil_builder_uniform(net->b, bias, to, -0.1, 0.1);
  const char *flat = cuvil_net_reshape(net, x, 2, DIMS(-1, from));
  const char *y = cuvil_net_op(net, "Gemm", "%s,%s,%s", flat, weight, bias);
  return cuvil_net_reshape(net, y, 3, DIMS(h->b, h->s, to));
}

/* scores where the causal mask allows, else the lowest number: the mask is a
 * slice of a constant. */
static const char *gpt2_eager(struct cuvil_net *net, const struct shape *h,
                              const char *q, const char *k, const char *v) {
  const char *scores =
      cuvil_net_op(net, "MatMul", "%s,%s", q,
                   cuvil_net_transpose(net, k, 4, DIMS(0, 1, 3, 2)));
  const char *root = cuvil_net_scalar(net, sqrt((double)h->d));
  scores = cuvil_net_op(net, "Div", "%s,%s", scores, root);
  const char *mask = cuvil_net_slice(net, "causal_bias", 2, 0, h->s);
  mask = cuvil_net_slice(net, mask, 3, 0, h->s);
  const char *low = cuvil_net_scalar(net, lowest(net));
  scores = cuvil_net_op(net, "Where", "%s,%s,%s", mask, scores, low);
  return softmax_times(net, scores, v);
}

static const char *gpt2_layer(struct cuvil_net *net, const struct shape *h,
                              int64_t index, const char *x, bool with_sdpa) {
  const char *at = cuvil_net_text(net, "h.%d", (int)index);
  const char *y =
      layer_norm(net, x, cuvil_net_text(net, "%s.ln_1", at), h->hidden, 1e-5);
  y = conv1d(net, h, y, cuvil_net_text(net, "%s.attn.c_attn", at), h->hidden,
             3 * h->hidden, 1);
  const char *sizes =
      cuvil_net_ints(net, 3, DIMS(h->hidden, h->hidden, h->hidden));
  const char *part[3];
  int id = net->counter++;
  for (int i = 0; i < 3; i++)
    part[i] = cuvil_net_text(net, "split_%d_%d", id, i);
  cuvil_builder_node(
      net->b, "Split", cuvil_net_text(net, "node_split_%d", id),
      cuvil_net_text(net, "%s,%s", y, sizes),
      cuvil_net_text(net, "%s,%s,%s", part[0], part[1], part[2]));
  cuvil_builder_int(net->b, "axis", net->dynamo ? 2 : -1);
  for (int i = 0; i < 3; i++)
    part[i] = split_heads(net, h, part[i], h->heads);
  y = with_sdpa ? sdpa(net, h, part[0], part[1], part[2],
                       causal_mask(net, part[0], part[1]))
                : gpt2_eager(net, h, part[0], part[1], part[2]);
  y = join_heads(net, h, y);
  y = conv1d(net, h, y, cuvil_net_text(net, "%s.attn.c_proj", at), h->hidden,
             h->hidden, 0.2);
  x = cuvil_net_op(net, "Add", "%s,%s", y, x);
  y = layer_norm(net, x, cuvil_net_text(net, "%s.ln_2", at), h->hidden, 1e-5);
  y = conv1d(net, h, y, cuvil_net_text(net, "%s.mlp.c_fc", at), h->hidden,
             h->ffn, 1);
  y = gelu_tanh(net, y);
  y = conv1d(net, h, y, cuvil_net_text(net, "%s.mlp.c_proj", at), h->ffn,
             h->hidden, 0.2);
  return cuvil_net_op(net, "Add", "%s,%s", x, y);
}

static const char *gpt2_embeddings(struct cuvil_net *net,
                                   const struct cuvil_network_options *o) {
  cuvil_builder_random(net->b, "wte.weight", 2, DIMS(o->vocab, o->hidden), 1);
  cuvil_builder_random(net->b, "wpe.weight", 2, DIMS(o->positions, o->hidden),
                       0.3);
  const char *end, *zero = cuvil_net_index(net, 0);
  if (net->dynamo) {
    end = cuvil_net_index(net, o->seq);
  } else {
    const char *shape = cuvil_net_op(net, "Shape", "input_ids");
    end = cuvil_net_op_int(net, "Gather", "axis", 0, "%s,%s", shape,
                           cuvil_net_index(net, 1));
  }
  const char *one = cuvil_net_index(net, 1);
  const char *place = cuvil_net_op(net, "Range", "%s,%s,%s", zero, end, one);
  place = cuvil_net_op(net, "Unsqueeze", "%s,%s", place,
                       cuvil_net_ints(net, 1, DIMS(0)));
  const char *x = cuvil_net_op(net, "Gather", "wte.weight,input_ids");
  const char *p = cuvil_net_op(net, "Gather", "wpe.weight,%s", place);
  return cuvil_net_op(net, "Add", "%s,%s", x, p);
}

static void add_causal_bias(struct cuvil_net *net, int64_t n) {
  uint8_t *mask = calloc((size_t)(n * n) + 1, 1);
  if (mask == NULL) {
    net->failed = true;
    return;
  }
  for (int64_t i = 0; i < n; i++)
    memset(mask + i * n, 1, (size_t)i + 1);
  cuvil_builder_initializer(net->b, "causal_bias", CUVIL_BOOL, 4,
                            DIMS(1, 1, n, n), mask);
  free(mask);
}

enum cuvil_status cuvil_builder_gpt2(const struct cuvil_network_options *o,
                                     const char *path) {
  struct cuvil_net net;
  CUVIL_TRY(cuvil_net_open(&net, "gpt2", o));
  struct shape h = shape_of(o, o->seq);
  bool with_sdpa = net.dynamo || o->sdpa;
  cuvil_builder_input(net.b, "input_ids", CUVIL_I64, 2, DIMS(h.b, h.s));
  if (!with_sdpa) add_causal_bias(&net, o->positions);
  const char *x = gpt2_embeddings(&net, o);
  for (int64_t i = 0; i < o->layers; i++)
    x = gpt2_layer(&net, &h, i, x, with_sdpa);
  x = layer_norm(&net, x, "ln_f", h.hidden, 1e-5);
  finish_output(&net, x, "last_hidden_state", 3, DIMS(h.b, h.s, h.hidden));
  return cuvil_net_close(&net, path);
}

/* ---- ViT: nn.MultiheadAttention with the batch second. */
static const char *vit_attention(struct cuvil_net *net, const struct shape *h,
                                 const char *x, const char *at) {
  int64_t b = h->b, s = h->s, e = h->hidden;
  x = cuvil_net_transpose(net, x, 3, DIMS(1, 0, 2));
  const char *y = cuvil_net_linear(
      net, x, cuvil_net_text(net, "%s.in_proj", at), e, 3 * e, 1, true);
  y = cuvil_net_reshape(net, y, 4, DIMS(s, b, 3, e));
  y = cuvil_net_op(net, "Unsqueeze", "%s,%s", y,
                   cuvil_net_ints(net, 1, DIMS(0)));
  y = cuvil_net_transpose(net, y, 5, DIMS(3, 1, 2, 0, 4));
  y = cuvil_net_op(net, "Squeeze", "%s,%s", y, cuvil_net_ints(net, 1, DIMS(3)));
  const char *part[3];
  for (int64_t i = 0; i < 3; i++) {
    const char *p = cuvil_net_op_int(net, "Gather", "axis", 0, "%s,%s", y,
                                     cuvil_net_index(net, i));
    p = cuvil_net_reshape(net, p, 3, DIMS(s, b * h->heads, h->d));
    p = cuvil_net_transpose(net, p, 3, DIMS(1, 0, 2));
    part[i] = cuvil_net_reshape(net, p, 4, DIMS(b, h->heads, s, h->d));
  }
  y = sdpa(net, h, part[0], part[1], part[2], NULL);
  y = cuvil_net_transpose(net, y, 4, DIMS(2, 0, 1, 3));
  y = cuvil_net_reshape(net, y, 2, DIMS(s * b, e));
  y = cuvil_net_gemm(net, y, cuvil_net_text(net, "%s.out_proj", at), e, e, 0.2);
  y = cuvil_net_reshape(net, y, 3, DIMS(s, b, e));
  return cuvil_net_transpose(net, y, 3, DIMS(1, 0, 2));
}

static const char *vit_layer(struct cuvil_net *net, const struct shape *h,
                             int64_t index, const char *x) {
  const char *at = cuvil_net_text(net, "encoder.layers.%d", (int)index);
  const char *y =
      layer_norm(net, x, cuvil_net_text(net, "%s.ln_1", at), h->hidden, 1e-6);
  y = vit_attention(net, h, y, cuvil_net_text(net, "%s.self_attention", at));
  x = cuvil_net_op(net, "Add", "%s,%s", y, x);
  y = layer_norm(net, x, cuvil_net_text(net, "%s.ln_2", at), h->hidden, 1e-6);
  y = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.mlp.0", at), h->hidden,
                       h->ffn, 1, true);
  y = gelu_erf(net, y);
  y = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.mlp.3", at), h->ffn,
                       h->hidden, 0.2, true);
  return cuvil_net_op(net, "Add", "%s,%s", x, y);
}

enum cuvil_status cuvil_builder_vit(const struct cuvil_network_options *o,
                                    const char *path) {
  struct cuvil_net net;
  CUVIL_TRY(cuvil_net_open(&net, "vit", o));
  int64_t side = o->image / o->patch, count = side * side, p = o->patch;
  struct shape h = shape_of(o, count + 1);
  cuvil_builder_input(net.b, "input", CUVIL_F32, 4,
                      DIMS(h.b, 3, o->image, o->image));
  cuvil_builder_random(net.b, "conv_proj.weight", 4, DIMS(h.hidden, 3, p, p),
                       sqrt(1 / (double)(3 * p * p)));
  cuvil_builder_uniform(net.b, "conv_proj.bias", h.hidden, -0.1, 0.1);
  cuvil_builder_random(net.b, "class_token", 3, DIMS(1, 1, h.hidden), 1);
  cuvil_builder_random(net.b, "encoder.pos_embedding", 3,
                       DIMS(1, h.s, h.hidden), 0.3);
  const char *x =
      cuvil_net_op(&net, "Conv", "input,conv_proj.weight,conv_proj.bias");
  cuvil_builder_ints(net.b, "kernel_shape", 2, DIMS(p, p));
  cuvil_builder_ints(net.b, "strides", 2, DIMS(p, p));
  cuvil_builder_ints(net.b, "pads", 4, DIMS(0, 0, 0, 0));
  cuvil_builder_ints(net.b, "dilations", 2, DIMS(1, 1));
  cuvil_builder_int(net.b, "group", 1);
  x = cuvil_net_reshape(&net, x, 3, DIMS(h.b, h.hidden, count));
  x = cuvil_net_transpose(&net, x, 3, DIMS(0, 2, 1));
  const char *size = cuvil_net_ints(&net, 3, DIMS(h.b, -1, -1));
  if (net.dynamo) {
    size = cuvil_net_ints(&net, 3, DIMS(h.b, 1, h.hidden));
  } else { /* expand(n, -1, -1): -1 becomes 1 by Where */
    const char *three = cuvil_net_ints(&net, 1, DIMS(3));
    const char *ones = cuvil_net_op(&net, "ConstantOfShape", "%s", three);
    cuvil_builder_tensor(net.b, "value", CUVIL_I64, 1, DIMS(1), DIMS(1));
    const char *minus = cuvil_net_ints(&net, 3, DIMS(-1, -1, -1));
    const char *open = cuvil_net_op(&net, "Equal", "%s,%s", size, minus);
    size = cuvil_net_op(&net, "Where", "%s,%s,%s", open, ones, size);
  }
  const char *token = cuvil_net_op(&net, "Expand", "class_token,%s", size);
  x = cuvil_net_op_int(&net, "Concat", "axis", 1, "%s,%s", token, x);
  x = cuvil_net_op(&net, "Add", "%s,encoder.pos_embedding", x);
  for (int64_t i = 0; i < o->layers; i++)
    x = vit_layer(&net, &h, i, x);
  x = layer_norm(&net, x, "encoder.ln", h.hidden, 1e-6);
  x = cuvil_net_op_int(&net, "Gather", "axis", 1, "%s,%s", x,
                       cuvil_net_index(&net, 0));
  x = cuvil_net_gemm(&net, x, "heads.head", h.hidden, o->classes, 1);
  finish_output(&net, x, "output", 2, DIMS(h.b, o->classes));
  return cuvil_net_close(&net, path);
}

/* ---- Llama */
static const char *rms_norm(struct cuvil_net *net, const char *x,
                            const char *name, int64_t n) {
  const char *gamma = cuvil_net_text(net, "%s.weight", name);
  cuvil_builder_uniform(net->b, gamma, n, 0.8, 1.2);
  const char *two = cuvil_net_scalar(net, 2);
  const char *square = cuvil_net_op(net, "Pow", "%s,%s", x, two);
  const char *mean = cuvil_net_mean(net, square, 1, DIMS(-1));
  const char *epsilon = cuvil_net_scalar(net, 1e-5);
  const char *sum = cuvil_net_op(net, "Add", "%s,%s", mean, epsilon);
  const char *root = cuvil_net_op(net, "Sqrt", "%s", sum);
  const char *inverse =
      net->dynamo
          ? cuvil_net_op(net, "Reciprocal", "%s", root)
          : cuvil_net_op(net, "Div", "%s,%s", cuvil_net_scalar(net, 1), root);
  const char *y = cuvil_net_op(net, "Mul", "%s,%s", x, inverse);
  return cuvil_net_op(net, "Mul", "%s,%s", gamma, y);
}

/* cos and sin of position times frequency, [1, 1, s, d]: constants that the
 * graph computes. */
static void rotary_tables(struct cuvil_net *net, const struct shape *h,
                          const char **cos_table, const char **sin_table) {
  int64_t half = h->d / 2;
  float *frequency = calloc((size_t)half + 1, sizeof *frequency);
  if (frequency == NULL) {
    net->failed = true;
    return;
  }
  for (int64_t i = 0; i < half; i++)
    frequency[i] = (float)pow(10000, -2.0 * (double)i / (double)h->d);
  cuvil_builder_initializer(net->b, "inv_freq", CUVIL_F32, 3, DIMS(1, half, 1),
                            frequency);
  free(frequency);
  const char *zero = cuvil_net_index(net, 0), *one = cuvil_net_index(net, 1);
  const char *end = cuvil_net_index(net, h->s);
  const char *place = cuvil_net_op(net, "Range", "%s,%s,%s", zero, end, one);
  place = cuvil_net_op(net, "Unsqueeze", "%s,%s", place,
                       cuvil_net_ints(net, 2, DIMS(0, 1)));
  place = cuvil_net_op_int(net, "Cast", "to", net->half ? 10 : 1, "%s", place);
  const char *angle = cuvil_net_op(net, "MatMul", "inv_freq,%s", place);
  angle = cuvil_net_transpose(net, angle, 3, DIMS(0, 2, 1));
  angle = cuvil_net_op_int(net, "Concat", "axis", -1, "%s,%s", angle, angle);
  const char *axis = cuvil_net_ints(net, 1, DIMS(1));
  *cos_table = cuvil_net_op(net, "Cos", "%s", angle);
  *cos_table = cuvil_net_op(net, "Unsqueeze", "%s,%s", *cos_table, axis);
  *sin_table = cuvil_net_op(net, "Sin", "%s", angle);
  *sin_table = cuvil_net_op(net, "Unsqueeze", "%s,%s", *sin_table, axis);
}

static const char *rotate(struct cuvil_net *net, const struct shape *h,
                          const char *x, const char *cos_table,
                          const char *sin_table) {
  const char *a = cuvil_net_op(net, "Mul", "%s,%s", x, cos_table);
  const char *low = cuvil_net_slice(net, x, 3, 0, h->d / 2);
  const char *high = cuvil_net_slice(net, x, 3, h->d / 2, END);
  high = cuvil_net_op(net, "Neg", "%s", high);
  const char *turned =
      cuvil_net_op_int(net, "Concat", "axis", -1, "%s,%s", high, low);
  const char *b = cuvil_net_op(net, "Mul", "%s,%s", turned, sin_table);
  return cuvil_net_op(net, "Add", "%s,%s", a, b);
}

/* [b, kv, s, d] -> [b, heads, s, d], each head several times. */
static const char *repeat_heads(struct cuvil_net *net, const struct shape *h,
                                const char *x) {
  if (h->kv == h->heads) return x;
  x = cuvil_net_op(net, "Unsqueeze", "%s,%s", x,
                   cuvil_net_ints(net, 1, DIMS(2)));
  const char *size =
      cuvil_net_ints(net, 5, DIMS(h->b, h->kv, h->heads / h->kv, h->s, h->d));
  x = cuvil_net_op(net, "Expand", "%s,%s", x, size);
  return cuvil_net_reshape(net, x, 4, DIMS(h->b, h->heads, h->s, h->d));
}

static const char *llama_layer(struct cuvil_net *net, const struct shape *h,
                               int64_t index, const char *x,
                               const char *cos_table, const char *sin_table) {
  const char *at = cuvil_net_text(net, "layers.%d", (int)index);
  const char *y =
      rms_norm(net, x, cuvil_net_text(net, "%s.input_norm", at), h->hidden);
  const char *q = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.q_proj", at),
                                   h->hidden, h->heads * h->d, 1, false);
  const char *k = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.k_proj", at),
                                   h->hidden, h->kv * h->d, 1, false);
  const char *v = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.v_proj", at),
                                   h->hidden, h->kv * h->d, 1, false);
  q = split_heads(net, h, q, h->heads);
  k = split_heads(net, h, k, h->kv);
  v = split_heads(net, h, v, h->kv);
  q = rotate(net, h, q, cos_table, sin_table);
  k = rotate(net, h, k, cos_table, sin_table);
  k = repeat_heads(net, h, k);
  v = repeat_heads(net, h, v);
  y = sdpa(net, h, q, k, v, causal_mask(net, q, k));
  y = join_heads(net, h, y);
  y = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.o_proj", at),
                       h->heads * h->d, h->hidden, 0.5, false);
  x = residual(net, y, x);
  y = rms_norm(net, x, cuvil_net_text(net, "%s.post_norm", at), h->hidden);
  const char *gate =
      cuvil_net_linear(net, y, cuvil_net_text(net, "%s.gate_proj", at),
                       h->hidden, h->ffn, 1, false);
  const char *up =
      cuvil_net_linear(net, y, cuvil_net_text(net, "%s.up_proj", at), h->hidden,
                       h->ffn, 1, false);
  const char *s = cuvil_net_op(net, "Sigmoid", "%s", gate);
  y = cuvil_net_op(net, "Mul", "%s,%s", gate, s);
  y = cuvil_net_op(net, "Mul", "%s,%s", y, up);
  y = cuvil_net_linear(net, y, cuvil_net_text(net, "%s.down_proj", at), h->ffn,
                       h->hidden, 1, false);
  return residual(net, y, x);
}

enum cuvil_status cuvil_builder_llama(const struct cuvil_network_options *o,
                                      const char *path) {
  struct cuvil_net net;
  CUVIL_TRY(cuvil_net_open(&net, "llama", o));
  struct shape h = shape_of(o, o->seq);
  cuvil_builder_input(net.b, "hidden_states", CUVIL_F32, 3,
                      DIMS(h.b, h.s, h.hidden));
  const char *cos_table = "", *sin_table = "", *x = "hidden_states";
  rotary_tables(&net, &h, &cos_table, &sin_table);
  for (int64_t i = 0; i < o->layers; i++)
    x = llama_layer(&net, &h, i, x, cos_table, sin_table);
  x = rms_norm(&net, x, "norm", h.hidden);
  finish_output(&net, x, "output", 3, DIMS(h.b, h.s, h.hidden));
  return cuvil_net_close(&net, path);
}
