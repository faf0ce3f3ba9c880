/* cuvil-model.c - writes a network as an ONNX file, weights by seed.
 *
 * For the demo, tests and benchmarks on machines without Python or the net.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "graph/builder.h"

static const char command[] = "cuvil-model";

enum option_id {
  OPT_BATCH = 256,
  OPT_SEED,
  OPT_EXTERNAL,
  OPT_VERSION,
  OPT_LAYERS,
  OPT_HIDDEN,
  OPT_HEADS,
  OPT_KV_HEADS,
  OPT_FFN,
  OPT_VOCAB,
  OPT_SEQ,
  OPT_IMAGE,
  OPT_CLASSES,
  OPT_SPELLING,
  OPT_MASK,
  OPT_SDPA
};

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"seed", required_argument, NULL, OPT_SEED},
    {"bn", no_argument, NULL, 'b'},
    {"half", no_argument, NULL, 'f'},
    {"external", required_argument, NULL, OPT_EXTERNAL},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"heads", required_argument, NULL, OPT_HEADS},
    {"kv-heads", required_argument, NULL, OPT_KV_HEADS},
    {"ffn", required_argument, NULL, OPT_FFN},
    {"vocab", required_argument, NULL, OPT_VOCAB},
    {"seq", required_argument, NULL, OPT_SEQ},
    {"image", required_argument, NULL, OPT_IMAGE},
    {"classes", required_argument, NULL, OPT_CLASSES},
    {"spelling", required_argument, NULL, OPT_SPELLING},
    {"mask", no_argument, NULL, OPT_MASK},
    {"sdpa", no_argument, NULL, OPT_SDPA},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static void usage(void) {
  fputs(
      "usage: cuvil-model [OPTIONS] NETWORK -o MODEL.onnx\n"
      "Writes a network with random weights whose activations stay in range.\n"
      "NETWORK: resnet50 resnet-mini bert gpt2 vit llama mobilenet_v2\n"
      "         efficientnet_b0\n"
      "\n"
      "  --batch N          images or sequences at once (1; 0: symbolic,\n"
      "                     resnet only)\n"
      "  --seed N           of the weights (1)\n"
      "  --half             fp16 weights and tensors\n"
      "  --external FILE    weights in a file of this name beside the model\n"
      "  --bn               resnet: with BatchNormalization nodes, not folded\n"
      "not resnet (default: as published; llama: 2 layers)\n"
      "  --spelling WORD    torchscript (opset 17) or dynamo (opset 18)\n"
      "  --layers N         layers; mobile networks: blocks (0: all)\n"
      "  --hidden N  --heads N  --kv-heads N  --ffn N  --vocab N  --seq N\n"
      "  --image N  --classes N\n"
      "  --mask             bert: with an input attention_mask\n"
      "  --sdpa             gpt2, torchscript: its other attention\n"
      "  --help  --version\n"
      "\n"
      "examples\n"
      "  cuvil-model resnet50 --batch 32 -o resnet50.onnx\n"
      "  cuvil-model bert --layers 1 --spelling dynamo -o bert_layer.onnx\n",
      stdout);
}

struct model_args {
  int64_t batch, seed;
  bool with_bn, half, mask, sdpa;
  /* -1: the network's own */
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq, image, classes;
  const char *spelling, *external, *path, *network;
};

static enum cuvil_status take_size(struct model_args *args, int id,
                                   const char *value) {
  const struct {
    int id;
    const char *name;
    int64_t low, *out;
  } sizes[] = {{OPT_LAYERS, "--layers", 0, &args->layers},
               {OPT_HIDDEN, "--hidden", 1, &args->hidden},
               {OPT_HEADS, "--heads", 1, &args->heads},
               {OPT_KV_HEADS, "--kv-heads", 1, &args->kv_heads},
               {OPT_FFN, "--ffn", 1, &args->ffn},
               {OPT_VOCAB, "--vocab", 1, &args->vocab},
               {OPT_SEQ, "--seq", 1, &args->seq},
               {OPT_IMAGE, "--image", 1, &args->image},
               {OPT_CLASSES, "--classes", 1, &args->classes}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].id == id)
      return cuvil_cli_integer(sizes[i].name, value, sizes[i].low, 1 << 20,
                               sizes[i].out);
  return cuvil_cli_integer("--seed", value, 0, INT64_MAX, &args->seed);
}

static enum cuvil_status take_option(struct model_args *args, int id,
                                     const char *value) {
  switch (id) {
    case 'o':
      args->path = value;
      return CUVIL_OK;
    case 'b':
      args->with_bn = true;
      return CUVIL_OK;
    case 'f':
      args->half = true;
      return CUVIL_OK;
    case OPT_MASK:
      args->mask = true;
      return CUVIL_OK;
    case OPT_SDPA:
      args->sdpa = true;
      return CUVIL_OK;
    case OPT_EXTERNAL:
      args->external = value;
      return CUVIL_OK;
    case OPT_SPELLING:
      args->spelling = value;
      return CUVIL_OK;
    case OPT_BATCH:
      return cuvil_cli_integer("--batch", value, 0, 65536, &args->batch);
    default:
      return take_size(args, id, value);
  }
}

static bool is_resnet(const struct model_args *args) {
  return strcmp(args->network, "resnet50") == 0 ||
         strcmp(args->network, "resnet-mini") == 0;
}

static int parse(int argc, char **argv, struct model_args *args) {
  int id, done;
  for (;;) {
    done = cuvil_cli_option(command, argc, argv, ":o:h", options, OPT_VERSION,
                            usage, &id);
    if (done >= 0) return done;
    if (id == -1) break;
    if (take_option(args, id, optarg) != CUVIL_OK)
      return cuvil_cli_misuse(command, "%s", cuvil_last_error());
  }
  if (optind + 1 != argc) return cuvil_cli_misuse(command, "name one network");
  args->network = argv[optind];
  struct cuvil_network_options unused;
  if (!is_resnet(args) && !cuvil_network_options(args->network, &unused))
    return cuvil_cli_misuse(command, "no network %s", args->network);
  if (!is_resnet(args) && args->batch == 0)
    return cuvil_cli_misuse(command, "%s has no symbolic batch", args->network);
  if (strcmp(args->spelling, "torchscript") != 0 &&
      strcmp(args->spelling, "dynamo") != 0)
    return cuvil_cli_misuse(command, "--spelling is torchscript or dynamo");
  if (args->external && (!args->external[0] || strchr(args->external, '/')))
    return cuvil_cli_misuse(command,
                            "--external takes the name of a file beside the "
                            "model, not %s",
                            args->external);
  if (!args->path)
    return cuvil_cli_misuse(command, "no file is named: -o MODEL.onnx");
  return -1;
}

static enum cuvil_status write_resnet(const struct model_args *args) {
  int64_t batch = args->batch == 0 ? -1 : args->batch;
  struct cuvil_resnet_options net =
      strcmp(args->network, "resnet50") == 0
          ? cuvil_resnet50_options(batch, (uint64_t)args->seed)
          : cuvil_resnet_mini_options(batch, (uint64_t)args->seed);
  net.with_bn = args->with_bn;
  net.half = args->half;
  net.external = args->external;
  return cuvil_builder_resnet(&net, args->path);
}

static enum cuvil_status write_network(const struct model_args *args) {
  struct cuvil_network_options net;
  cuvil_network_options(args->network, &net);
  const struct {
    int64_t given, *out;
  } sizes[] = {{args->layers, &net.layers},  {args->hidden, &net.hidden},
               {args->heads, &net.heads},    {args->kv_heads, &net.kv_heads},
               {args->ffn, &net.ffn},        {args->vocab, &net.vocab},
               {args->seq, &net.seq},        {args->image, &net.image},
               {args->classes, &net.classes}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].given >= 0) *sizes[i].out = sizes[i].given;
  net.batch = args->batch;
  net.seed = (uint64_t)args->seed;
  net.half = args->half;
  net.with_mask = args->mask;
  net.sdpa = args->sdpa;
  net.external = args->external;
  net.spelling = strcmp(args->spelling, "dynamo") == 0
                     ? CUVIL_SPELLING_DYNAMO
                     : CUVIL_SPELLING_TORCHSCRIPT;
  return cuvil_builder_network(args->network, &net, args->path);
}

int main(int argc, char **argv) {
  struct model_args args = {.batch = 1,
                            .seed = 1,
                            .layers = -1,
                            .hidden = -1,
                            .heads = -1,
                            .kv_heads = -1,
                            .ffn = -1,
                            .vocab = -1,
                            .seq = -1,
                            .image = -1,
                            .classes = -1,
                            .spelling = "torchscript"};
  cuvil_log_setup(command, CUVIL_LOG_NORMAL);
  int done = parse(argc, argv, &args);
  if (done >= 0) return done;
  return cuvil_cli_exit(is_resnet(&args) ? write_resnet(&args)
                                         : write_network(&args));
}
