/* cuvil-compile.c - an ONNX model and the cache's winners become a plan.
 *
 * Options, the model, the machine, the cache, the plan, its file: in that
 * order, so that a model that cannot be compiled is refused before anything
 * else is looked at, and the plan's file is touched last and at once.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common.h"
#include "compiler/compiler.h"

static const char command[] = "cuvil-compile";

struct compile_args {
  struct cuvil_model_options model;
  const char *arch, *device, *db, *plan, *emit_source, *dump_graph, *json;
  bool require_tuned, check, explain;
  int64_t jobs;
  enum cuvil_log_level level;
};

enum option_id {
  OPT_ARCH = 256,
  OPT_DEVICE,
  OPT_DB,
  OPT_PRECISION,
  OPT_SHAPES,
  OPT_FUSION,
  OPT_REQUIRE_TUNED,
  OPT_CHECK,
  OPT_EMIT_SOURCE,
  OPT_DUMP_GRAPH,
  OPT_EXPLAIN,
  OPT_JOBS,
  OPT_JSON,
  OPT_VERSION
};

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"arch", required_argument, NULL, OPT_ARCH},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"db", required_argument, NULL, OPT_DB},
    {"precision", required_argument, NULL, OPT_PRECISION},
    {"shapes", required_argument, NULL, OPT_SHAPES},
    {"fusion", required_argument, NULL, OPT_FUSION},
    {"require-tuned", no_argument, NULL, OPT_REQUIRE_TUNED},
    {"check", no_argument, NULL, OPT_CHECK},
    {"emit-source", required_argument, NULL, OPT_EMIT_SOURCE},
    {"dump-graph", required_argument, NULL, OPT_DUMP_GRAPH},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"jobs", required_argument, NULL, OPT_JOBS},
    {"json", required_argument, NULL, OPT_JSON},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static void usage(void) {
  fputs(
      "usage: cuvil-compile [OPTIONS] MODEL.onnx -o PLAN\n"
      "Compiles a model to a plan with the winners that cuvil-tune recorded.\n"
      "\n"
      "what to compile\n"
      "  --shapes NAME:DxD,...    shapes of the model's inputs\n"
      "  --precision model|fp32|tf32|fp16|bf16   (model: as the file says)\n"
      "  --fusion none|fine|medium   how nodes become kernels (medium)\n"
      "where\n"
      "  --arch sm_80|sm_90       what to compile for (this GPU's)\n"
      "  --device auto|cuda:N     the GPU whose winners count most (auto)\n"
      "  --db FILE                $CUVIL_DB, else ~/.cache/cuvil/cuvil.db\n"
      "  --require-tuned          fail when a problem has no winner\n"
      "  --jobs N                 parallel kernel compiles (one a core)\n"
      "saying\n"
      "  --check                  list every unsupported node, write nothing\n"
      "  --explain                which step of the cache answered each "
      "problem\n"
      "  --dump-graph FILE.dot    the fused graph as Graphviz text\n"
      "  --emit-source DIR        the CUDA C of each kernel\n"
      "  --json FILE              what was done, for machines (- is stdout)\n"
      "  -v  -q  --help  --version\n"
      "\n"
      "examples\n"
      "  cuvil-compile --precision fp16 resnet50.onnx -o resnet50.plan\n"
      "  cuvil-compile --check --fusion none model.onnx\n"
      "  cuvil-compile --arch sm_90 --explain model.onnx -o model.plan\n",
      stdout);
}

static enum cuvil_status take_option(struct compile_args *args, int id,
                                     const char *value) {
  switch (id) {
    case 'o':
      args->plan = value;
      return CUVIL_OK;
    case OPT_ARCH:
      args->arch = value;
      return CUVIL_OK;
    case OPT_DEVICE:
      args->device = value;
      return CUVIL_OK;
    case OPT_DB:
      args->db = value;
      return CUVIL_OK;
    case OPT_PRECISION:
      return cuvil_precision_parse(value, &args->model.fusion.precision);
    case OPT_SHAPES:
      args->model.shapes = value;
      return CUVIL_OK;
    case OPT_FUSION:
      return cuvil_fusion_strategy_parse(value, &args->model.fusion.strategy);
    case OPT_REQUIRE_TUNED:
      args->require_tuned = true;
      return CUVIL_OK;
    case OPT_CHECK:
      args->check = true;
      return CUVIL_OK;
    case OPT_EMIT_SOURCE:
      args->emit_source = value;
      return CUVIL_OK;
    case OPT_DUMP_GRAPH:
      args->dump_graph = value;
      return CUVIL_OK;
    case OPT_EXPLAIN:
      args->explain = true;
      return CUVIL_OK;
    case OPT_JOBS:
      return cuvil_cli_integer("--jobs", value, 1, 1024, &args->jobs);
    case OPT_JSON:
      args->json = value;
      return CUVIL_OK;
    default:
      args->level = id == 'v' ? args->level + 1 : CUVIL_LOG_QUIET;
      return CUVIL_OK;
  }
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct compile_args *args) {
  int id, done;
  for (;;) {
    done = cuvil_cli_option(command, argc, argv, ":o:vqh", options, OPT_VERSION,
                            usage, &id);
    if (done >= 0) return done;
    if (id == -1) break;
    if (take_option(args, id, optarg) != CUVIL_OK)
      return cuvil_cli_misuse(command, "%s", cuvil_last_error());
  }
  if (optind + 1 != argc)
    return cuvil_cli_misuse(
        command, optind == argc ? "no model is named" : "more than one model");
  args->model.path = argv[optind];
  if (!args->plan && !args->check && !args->explain && !args->dump_graph &&
      !args->emit_source)
    return cuvil_cli_misuse(command, "no plan is named: -o PLAN");
  if (args->plan && !args->plan[0])
    return cuvil_cli_misuse(command, "-o needs the name of a file");
  if (args->plan && cuvil_cli_same_file(args->plan, args->model.path))
    return cuvil_cli_misuse(command, "-o names the model itself: %s",
                            args->plan);
  if (cuvil_cli_target_check(args->device, args->arch) != CUVIL_OK)
    return cuvil_cli_misuse(command, "%s", cuvil_last_error());
  cuvil_log_setup(command, args->level);
  return -1;
}

static enum cuvil_status dump_graph(const struct cuvil_fused *fused,
                                    const char *path) {
  struct cuvil_buf text = {0};
  enum cuvil_status status = cuvil_fused_dot(fused, &text);
  if (status == CUVIL_OK)
    status = cuvil_file_write_atomic(path, text.data, text.size);
  cuvil_buf_free(&text);
  return status;
}

/* Where people read: stdout may be the report. */
static FILE *say_to(const struct compile_args *args) {
  return args->json && strcmp(args->json, "-") == 0 ? stderr : stdout;
}

static void explain(FILE *to, const struct cuvil_plan *plan,
                    const struct cuvil_problem_set *set) {
  fprintf(to, "%5s  %-26s %-14s %-10s %s\n", "calls", "answered by", "family",
          "expected", "problem");
  for (int i = 0; i < set->count; ++i) {
    int s = 0;
    char time[32];
    while (set->task_problem[s] != i)
      ++s;
    const struct cuvil_plan_step *step = &plan->steps[s];
    fprintf(to, "%5d  %-26s %-14s %-10s %s\n", set->calls[i], step->origin,
            step->family, cuvil_cli_time(step->expected_seconds, time),
            step->problem);
    if (cuvil_log_level() >= CUVIL_LOG_VERBOSE)
      fprintf(to, "%5s  %s\n", "", step->config);
  }
}

/* Schema "cuvil-compile/1". */
static enum cuvil_status write_report(const struct compile_args *args,
                                      const struct cuvil_plan *plan,
                                      const struct cuvil_problem_set *set,
                                      const struct cuvil_compiler_report *r,
                                      double seconds) {
  json_t *problems = json_array();
  for (int i = 0; problems && i < set->count; ++i) {
    int s = 0;
    while (set->task_problem[s] != i)
      ++s;
    const struct cuvil_plan_step *step = &plan->steps[s];
    json_array_append_new(
        problems,
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:f}", "problem", step->problem,
                  "calls", set->calls[i], "origin", step->origin, "family",
                  step->family, "config", step->config, "expected_seconds",
                  step->expected_seconds));
  }
  json_t *report = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:f, s:o}",
      "schema", "cuvil-compile/1", "model", plan->model, "arch", plan->arch,
      "precision", plan->precision, "fusion", plan->fusion, "tasks", r->tasks,
      "untuned", r->by_step[CUVIL_DB_MISS], "compiled", r->compiled,
      "from_cubin_cache", r->from_cubin_cache, "weights_bytes",
      (json_int_t)plan->weights_bytes, "arena_bytes",
      (json_int_t)plan->arena_bytes, "seconds", seconds, "problems", problems);
  if (!report) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "report");
  enum cuvil_status status = cuvil_cli_write_json(report, args->json);
  json_decref(report);
  return status;
}

static void say_done(const struct compile_args *args,
                     const struct cuvil_fused *fused,
                     const struct cuvil_plan *plan,
                     const struct cuvil_compiler_report *r, double seconds) {
  char weights[32], arena[32];
  fprintf(say_to(args),
          "%s: %d nodes -> %d kernels (%d of them conversions), %d problems "
          "(%d untuned), weights %s, arena %s\n",
          args->plan, fused->graph->model_node_count, fused->task_count,
          fused->conversion_count, r->problems, r->by_step[CUVIL_DB_MISS],
          cuvil_cli_bytes(plan->weights_bytes, weights),
          cuvil_cli_bytes(plan->arena_bytes, arena));
  cuvil_log_verbose("%d kernels compiled, %d from the cache, %.2f s",
                    r->compiled, r->from_cubin_cache, seconds);
}

static enum cuvil_status make_plan(const struct compile_args *args,
                                   struct cuvil_model *model) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_cli_target target = {0};
  struct cuvil_cli_cache cache = {0};
  struct cuvil_plan *plan = NULL;
  struct cuvil_compiler_report report;
  struct cuvil_problem_set set;
  double start = cuvil_now();
  CUVIL_TRY_GOTO(
      cuvil_cli_target_open(args->device, args->arch, false, &target));
  CUVIL_TRY_GOTO(cuvil_cli_cache_open(args->db, &cache));
  struct cuvil_compiler_options how = {
      .arch = target.arch,
      .env = &target.env,
      .db = cache.db,
      .cubin_dir = cuvil_buf_text(&cache.cubin_dir),
      .require_tuned = args->require_tuned,
      .jobs = (int)args->jobs,
      .emit_source_dir = args->emit_source};
  CUVIL_TRY_GOTO(cuvil_compile_fused(model->fused, &how, &plan, &report));
  CUVIL_TRY_GOTO(cuvil_fused_problems(model->fused, &set));
  if (args->plan) CUVIL_TRY_GOTO(cuvil_plan_write(plan, args->plan));
  double seconds = cuvil_now() - start;
  if (args->explain) explain(say_to(args), plan, &set);
  if (args->plan) say_done(args, model->fused, plan, &report, seconds);
  if (args->json)
    CUVIL_TRY_GOTO(write_report(args, plan, &set, &report, seconds));
fail:
  cuvil_plan_destroy(plan);
  cuvil_cli_cache_close(&cache);
  cuvil_cli_target_close(&target);
  return status;
}

static enum cuvil_status run(const struct compile_args *args) {
  struct cuvil_model model;
  enum cuvil_status status = cuvil_model_open(&args->model, &model);
  if (status == CU_ERR_MODEL_UNSUPPORTED)
    fputs(cuvil_model_unsupported(), args->check ? stdout : stderr);
  CUVIL_TRY(status);
  cuvil_cli_precision_hint(model.graph, args->model.fusion.precision);
  if (args->dump_graph)
    CUVIL_TRY_GOTO(dump_graph(model.fused, args->dump_graph));
  if (args->check) {
    printf("%s: all %d nodes are supported (%d kernels)\n", args->model.path,
           model.graph->model_node_count, model.fused->task_count);
  } else if (args->plan || args->explain || args->emit_source) {
    CUVIL_TRY_GOTO(make_plan(args, &model));
  }
fail:
  cuvil_model_close(&model);
  return status;
}

int main(int argc, char **argv) {
  struct compile_args args = {
      .device = "auto",
      .model = {.fusion = {CUVIL_FUSION_DEFAULT, CUVIL_PRECISION_MODEL}},
      .level = CUVIL_LOG_NORMAL};
  cuvil_log_setup(command, args.level);
  int done = parse(argc, argv, &args);
  return done >= 0 ? done : cuvil_cli_exit(run(&args));
}
