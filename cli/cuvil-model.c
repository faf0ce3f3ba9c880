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

enum option_id { OPT_BATCH = 256, OPT_SEED, OPT_EXTERNAL, OPT_VERSION };

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"seed", required_argument, NULL, OPT_SEED},
    {"bn", no_argument, NULL, 'b'},
    {"half", no_argument, NULL, 'f'},
    {"external", required_argument, NULL, OPT_EXTERNAL},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static void usage(void) {
  fputs(
      "usage: cuvil-model [OPTIONS] resnet50|resnet-mini -o MODEL.onnx\n"
      "Writes a network with random weights whose activations stay in range.\n"
      "\n"
      "  --batch N          images at once (1; 0: symbolic)\n"
      "  --seed N           of the weights (1)\n"
      "  --bn               with BatchNormalization nodes, not folded\n"
      "  --half             fp16 weights and tensors\n"
      "  --external FILE    weights in a file of this name beside the model\n"
      "  --help  --version\n"
      "\n"
      "examples\n"
      "  cuvil-model resnet50 --batch 32 -o resnet50.onnx\n"
      "  cuvil-model resnet-mini --bn -o mini.onnx\n",
      stdout);
}

struct model_args {
  int64_t batch, seed;
  bool with_bn, half;
  const char *external, *path, *network;
};

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
    case OPT_EXTERNAL:
      args->external = value;
      return CUVIL_OK;
    case OPT_BATCH:
      return cuvil_cli_integer("--batch", value, 0, 65536, &args->batch);
    default:
      return cuvil_cli_integer("--seed", value, 0, INT64_MAX, &args->seed);
  }
}

static int parse(int argc, char **argv, struct model_args *args) {
  int id;
  opterr = 0;
  while ((id = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
    if (id == 'h') return usage(), 0;
    if (id == OPT_VERSION) return cuvil_cli_version(command), 0;
    if (id == ':')
      return cuvil_cli_misuse(command, "%s needs a value", argv[optind - 1]);
    if (id == '?')
      return cuvil_cli_misuse(command, "no option %s", argv[optind - 1]);
    if (take_option(args, id, optarg) != CUVIL_OK)
      return cuvil_cli_misuse(command, "%s", cuvil_last_error());
  }
  if (optind + 1 != argc) return cuvil_cli_misuse(command, "name one network");
  args->network = argv[optind];
  if (strcmp(args->network, "resnet50") != 0 &&
      strcmp(args->network, "resnet-mini") != 0)
    return cuvil_cli_misuse(command, "no network %s", args->network);
  if (!args->path)
    return cuvil_cli_misuse(command, "no file is named: -o MODEL.onnx");
  return -1;
}

int main(int argc, char **argv) {
  struct model_args args = {.batch = 1, .seed = 1};
  cuvil_log_setup(command, CUVIL_LOG_NORMAL);
  int done = parse(argc, argv, &args);
  if (done >= 0) return done;
  int64_t batch = args.batch == 0 ? -1 : args.batch;
  struct cuvil_resnet_options net =
      strcmp(args.network, "resnet50") == 0
          ? cuvil_resnet50_options(batch, (uint64_t)args.seed)
          : cuvil_resnet_mini_options(batch, (uint64_t)args.seed);
  net.with_bn = args.with_bn;
  net.half = args.half;
  net.external = args.external;
  return cuvil_cli_exit(cuvil_builder_resnet(&net, args.path));
}
