/* builder.h - makes ONNX files in a few lines of C.
 *
 * For tests and for the demo: a network with weights by seed needs neither
 * Python nor the net.  Calls cannot fail one by one; the first failure (out of
 * memory) is kept and returned by cuvil_builder_write.
 *
 *   cuvil_builder_create("tiny", 17, &b);
 *   cuvil_builder_input(b, "x", CUVIL_F32, 4, (int64_t[]){1, 3, 8, 8});
 *   cuvil_builder_random(b, "w", 4, (int64_t[]){4, 3, 3, 3}, 0.2);
 *   cuvil_builder_node(b, "Conv", "c", "x,w", "y");
 *   cuvil_builder_ints(b, "pads", 4, (int64_t[]){1, 1, 1, 1});
 *   cuvil_builder_output(b, "y", CUVIL_F32, -1, NULL);
 *   cuvil_builder_write(b, "tiny.onnx");
 */
#ifndef CUVIL_GRAPH_BUILDER_H_
#define CUVIL_GRAPH_BUILDER_H_

#include "base/dtype.h"
#include "base/status.h"

struct cuvil_builder;

/* opset 0: the model declares none (an invalid model). */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_create(
    const char *name, int opset, struct cuvil_builder **out);
void cuvil_builder_destroy(struct cuvil_builder *builder);

/* ---- options, any time before writing; defaults: false, "", 8, 1 */
/* Everything given as F32 is written as F16. */
void cuvil_builder_set_half(struct cuvil_builder *builder, bool half);
/* Data in float_data, int32_data, ... instead of raw_data. */
void cuvil_builder_set_typed(struct cuvil_builder *builder, bool typed);
/* Tensors of 1 KiB and more go to this file beside the model. */
void cuvil_builder_set_external(struct cuvil_builder *builder,
                                const char *file);
/* IR version; initializers listed as inputs too (IR 3 requires it). */
void cuvil_builder_set_ir(struct cuvil_builder *builder, int version,
                          bool initializers_as_inputs);
void cuvil_builder_set_seed(struct cuvil_builder *builder, uint64_t seed);
void cuvil_builder_add_opset(struct cuvil_builder *builder, const char *domain,
                             int version);

/* ---- contents.  A dimension of -1 is the symbolic "N"; rank -1: no shape
 * is declared. */
void cuvil_builder_input(struct cuvil_builder *builder, const char *name,
                         enum cuvil_dtype dtype, int rank, const int64_t *dims);
void cuvil_builder_output(struct cuvil_builder *builder, const char *name,
                          enum cuvil_dtype dtype, int rank,
                          const int64_t *dims);
/* `data` is packed and copied. */
void cuvil_builder_initializer(struct cuvil_builder *builder, const char *name,
                               enum cuvil_dtype dtype, int rank,
                               const int64_t *dims, const void *data);
/* F32, uniform with mean 0 and this standard deviation, by the builder's seed
 * and the name alone. */
void cuvil_builder_random(struct cuvil_builder *builder, const char *name,
                          int rank, const int64_t *dims, double deviation);
/* The matrix [rows, cols] that is the transpose of what cuvil_builder_random
 * makes of [cols, rows] under this name. */
void cuvil_builder_random_transposed(struct cuvil_builder *builder,
                                     const char *name, int64_t rows,
                                     int64_t cols, double deviation);
/* F32 vector, uniform in [low, high). */
void cuvil_builder_uniform(struct cuvil_builder *builder, const char *name,
                           int64_t count, double low, double high);
/* A tensor message as it stands, valid or not: for bad-input tests. */
void cuvil_builder_raw_initializer(struct cuvil_builder *builder,
                                   const char *name, int onnx_type, int rank,
                                   const int64_t *dims, const void *bytes,
                                   size_t size);
/* External data with this location, offset and length; NULL leaves one out. */
void cuvil_builder_external_initializer(struct cuvil_builder *builder,
                                        const char *name, int rank,
                                        const int64_t *dims,
                                        const char *location,
                                        const char *offset, const char *length);
/* Inputs and outputs are names separated by commas; an empty one is absent. */
void cuvil_builder_node(struct cuvil_builder *builder, const char *op,
                        const char *name, const char *inputs,
                        const char *outputs);

/* ---- of the node added last */
void cuvil_builder_domain(struct cuvil_builder *builder, const char *domain);
void cuvil_builder_int(struct cuvil_builder *builder, const char *name,
                       int64_t value);
void cuvil_builder_float(struct cuvil_builder *builder, const char *name,
                         float value);
void cuvil_builder_string(struct cuvil_builder *builder, const char *name,
                          const char *value);
void cuvil_builder_ints(struct cuvil_builder *builder, const char *name,
                        int count, const int64_t *values);
void cuvil_builder_tensor(struct cuvil_builder *builder, const char *name,
                          enum cuvil_dtype dtype, int rank, const int64_t *dims,
                          const void *data);

CUVIL_MUST_USE enum cuvil_status cuvil_builder_write(
    struct cuvil_builder *builder, const char *path);

/* ---- networks (builder_resnet.c) */
/* Residual networks of bottleneck blocks with the stride in the 3x3 (He et
 * al., arXiv:1512.03385; v1.5), tensors named as torchvision names them.
 * Weights are random with activations kept in range: fan-in scaling, and the
 * last scale of each residual branch in 0.2..0.5. */
struct cuvil_resnet_options {
  int64_t batch; /* -1: symbolic */
  int64_t image; /* height and width */
  int64_t classes;
  int64_t width;     /* channels of the stem: 64 */
  int64_t blocks[4]; /* 3 4 6 3 */
  uint64_t seed;
  bool with_bn; /* BatchNormalization nodes; else folded: Conv with bias */
  bool half;
  const char *external; /* NULL: in the file */
};
struct cuvil_resnet_options cuvil_resnet50_options(int64_t batch,
                                                   uint64_t seed);
/* The same structure in small: 32x32 images, 8 channels, a block a stage. */
struct cuvil_resnet_options cuvil_resnet_mini_options(int64_t batch,
                                                      uint64_t seed);
CUVIL_MUST_USE enum cuvil_status cuvil_builder_resnet(
    const struct cuvil_resnet_options *options, const char *path);
/* A ResNet-50 as PyTorch exports it: 224x224, 1000 classes, 102 MB. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_resnet50(int64_t batch,
                                                        uint64_t seed,
                                                        const char *path);

/* ---- transformers and small networks, in the spelling of either PyTorch
 * exporter (builder_transformer.c, builder_mobile.c).  Weights are random by
 * seed, with activations that fp16 holds; both spellings of a network with one
 * seed compute the same function. */
enum cuvil_spelling {
  CUVIL_SPELLING_TORCHSCRIPT, /* torch.onnx.export(dynamo=False), opset 17 */
  CUVIL_SPELLING_DYNAMO       /* dynamo=True, opset 18 */
};
struct cuvil_network_options {
  int64_t layers; /* of the transformers; mobile: see below */
  int64_t hidden, heads;
  int64_t kv_heads; /* llama: fewer than heads is grouped-query attention */
  int64_t ffn;      /* width of the hidden layer of the MLP */
  int64_t vocab, positions;
  int64_t batch, seq;
  int64_t image, patch; /* vit and mobile: height and width */
  int64_t classes;      /* vit and mobile */
  enum cuvil_spelling spelling;
  uint64_t seed;
  bool half;
  /* bert: an input attention_mask i64[batch,seq], 1 where a key counts */
  bool with_mask;
  /* gpt2 in torchscript: scaled_dot_product_attention instead of Where */
  bool sdpa;
  const char *external; /* NULL: in the file */
};
/* Sizes of the published networks: BERT-base s128, GPT-2 s512, ViT-B/16 224,
 * a Llama of 2 layers (hidden 2048, 32/8 heads, s512), MobileNetV2 224.
 * "bert" "gpt2" "vit" "llama" "mobilenet_v2" "efficientnet_b0"; false: no such
 * network. */
bool cuvil_network_options(const char *network,
                           struct cuvil_network_options *out);
/* input_ids i64[batch,seq] -> last_hidden_state [batch,seq,hidden]: the sum
 * of three embeddings, LayerNorm, layers of post-norm attention and erf GELU
 * MLP. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_bert(
    const struct cuvil_network_options *options, const char *path);
/* input_ids -> last_hidden_state: pre-norm, one joined projection that is
 * split, causal attention, tanh GELU, Gemm on flattened rows. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_gpt2(
    const struct cuvil_network_options *options, const char *path);
/* input [batch,3,image,image] -> output [batch,classes]: patches by Conv,
 * class token by Concat, pre-norm, packed projection as nn.MultiheadAttention
 * unpacks it, erf GELU. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_vit(
    const struct cuvil_network_options *options, const char *path);
/* hidden_states [batch,seq,hidden] -> output of that shape: RMSNorm, rotary
 * embedding, causal grouped-query attention, SwiGLU. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_llama(
    const struct cuvil_network_options *options, const char *path);
/* input [batch,3,image,image] -> output [batch,classes]: MobileNetV2
 * (inverted residuals, ReLU6).  layers > 0: only the first that many blocks. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_mobilenet_v2(
    const struct cuvil_network_options *options, const char *path);
/* EfficientNet-B0: the same with SiLU and squeeze-and-excitation. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_efficientnet_b0(
    const struct cuvil_network_options *options, const char *path);
/* The one of these names. */
CUVIL_MUST_USE enum cuvil_status cuvil_builder_network(
    const char *network, const struct cuvil_network_options *options,
    const char *path);

#endif /* CUVIL_GRAPH_BUILDER_H_ */
