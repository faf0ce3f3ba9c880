/* cuvil-tune.c - tunes every problem of a model and records the winners.
 *
 * The order of things: options; the problems (model, texts, file, recording);
 * what is only said (lists, dry run); else the runner, the database, the tune,
 * its table.  The runner comes first: it starts the measuring process, which
 * knows what GPU this is.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/common.h"
#include "cli/tune_input.h"
#include "cli/tune_report.h"
#include "cli/tune_table.h"
#include "tuner/process.h"

struct tune_args {
  struct cuvil_tune_options tune;
  struct cuvil_fusion_options fusion;
  struct cuvil_tune_input input;
  const char *arch, *device, *db, *shapes, *record, *json, *model;
  const char *strategy;
  bool list_families, list_strategies, list_problems, dry_run, explain;
  bool exhaustive, budget_set, trials_set;
  int jobs;
  double compile_limit, launch_limit;
  enum cuvil_log_level level;
};

enum option_id {
  OPT_ARCH = 256,
  OPT_DEVICE,
  OPT_DB,
  OPT_PRECISION,
  OPT_SHAPES,
  OPT_FUSION,
  OPT_FAMILIES,
  OPT_LIST_FAMILIES,
  OPT_STRATEGY,
  OPT_LIST_STRATEGIES,
  OPT_EXHAUSTIVE,
  OPT_BUDGET,
  OPT_MAX_TRIALS,
  OPT_JOBS,
  OPT_SEED,
  OPT_L2,
  OPT_PROBLEM,
  OPT_PROBLEMS,
  OPT_LIST_PROBLEMS,
  OPT_DRY_RUN,
  OPT_EXPLAIN,
  OPT_FORCE,
  OPT_RECORD,
  OPT_JSON,
  OPT_COMPILE_LIMIT,
  OPT_LAUNCH_LIMIT,
  OPT_LIBRARY_CHOICES,
  OPT_VERSION
};

static const struct option options[] = {
    {"arch", required_argument, NULL, OPT_ARCH},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"db", required_argument, NULL, OPT_DB},
    {"precision", required_argument, NULL, OPT_PRECISION},
    {"shapes", required_argument, NULL, OPT_SHAPES},
    {"fusion", required_argument, NULL, OPT_FUSION},
    {"families", required_argument, NULL, OPT_FAMILIES},
    {"list-families", no_argument, NULL, OPT_LIST_FAMILIES},
    {"strategy", required_argument, NULL, OPT_STRATEGY},
    {"list-strategies", no_argument, NULL, OPT_LIST_STRATEGIES},
    {"exhaustive", no_argument, NULL, OPT_EXHAUSTIVE},
    {"library-choices", required_argument, NULL, OPT_LIBRARY_CHOICES},
    {"budget", required_argument, NULL, OPT_BUDGET},
    {"max-trials", required_argument, NULL, OPT_MAX_TRIALS},
    {"jobs", required_argument, NULL, OPT_JOBS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"l2", required_argument, NULL, OPT_L2},
    {"problem", required_argument, NULL, OPT_PROBLEM},
    {"problems", required_argument, NULL, OPT_PROBLEMS},
    {"list-problems", no_argument, NULL, OPT_LIST_PROBLEMS},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"force", no_argument, NULL, OPT_FORCE},
    {"record", required_argument, NULL, OPT_RECORD},
    {"json", required_argument, NULL, OPT_JSON},
    {"compile-limit", required_argument, NULL, OPT_COMPILE_LIMIT},
    {"launch-limit", required_argument, NULL, OPT_LAUNCH_LIMIT},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static void usage(void) {
  fputs(
      "usage: cuvil-tune [OPTIONS] MODEL.onnx\n"
      "       cuvil-tune [OPTIONS] --problem 'gemm/1 m=... ...'\n"
      "       cuvil-tune [OPTIONS] --device replay:RESULTS.json\n"
      "Tunes every problem of a model on the GPU and records the winners.\n"
      "\n"
      "what to tune\n"
      "  --problem TEXT           a problem instead of a model (repeatable)\n"
      "  --problems FILE          problems, one a line\n"
      "  --shapes NAME:DxD,...    shapes of the model's inputs\n"
      "  --precision model|fp32|tf32|fp16|bf16   (model: as the file says)\n"
      "  --fusion none|fine|medium   how nodes become problems (medium)\n"
      "  --list-problems          print the problems; without a model, those\n"
      "                           of the recording that --device names\n"
      "where\n"
      "  --device auto|cuda:N|replay[:FILE]   (auto: the first GPU)\n"
      "                           FILE may be results of Kernel Tuner (its\n"
      "                           cache, T4): the search alone, on them\n"
      "  --arch sm_80|sm_90       must be the device's; needed by --dry-run\n"
      "  --db FILE                $CUVIL_DB, else ~/.cache/cuvil/cuvil.db\n"
      "how\n"
      "  --families LIST          only these; see --list-families\n"
      "  --strategy NAME[:K=V,..] see --list-strategies\n"
      "  --exhaustive             every point that can run, heuristic rules\n"
      "                           left out\n"
      "  --max-trials N           own candidates of one problem (40)\n"
      "  --library-choices N      asked of each library (8): its own order, "
      "then\n"
      "                           what of cuBLASLt can be enumerated\n"
      "  --budget DURATION        for all (5 s a problem; 0: no limit)\n"
      "  --jobs N                 compile processes (one a core)\n"
      "  --seed N                 of samples, orders and data (1)\n"
      "  --l2 model|cold|warm     what the cache holds when timing (model)\n"
      "  --compile-limit DURATION of one compile (60s)\n"
      "  --launch-limit DURATION  of silence while measuring (5s)\n"
      "  --force                  tune again what is tuned or has failed\n"
      "  --record FILE.t4.json[.zst]   keep every answer for --device replay\n"
      "saying\n"
      "  --dry-run                spaces and pruning only; needs no GPU\n"
      "  --explain                which rule removed how many points\n"
      "  --json FILE              results for machines (- is stdout)\n"
      "  --list-families  --list-strategies  -v  -q  --help  --version\n"
      "\n"
      "examples\n"
      "  cuvil-tune --precision fp16 resnet50.onnx\n"
      "  cuvil-tune --arch sm_90 --dry-run --explain resnet50.onnx\n"
      "  cuvil-tune --device replay --precision fp16 resnet50.onnx\n"
      "  cuvil-tune --problem 'gemm/1 m=512 n=512 k=512 a=f16[m,k] "
      "b=f16[n,k]:weight c=f16[m,n] acc=f32'\n",
      stdout);
}

static enum cuvil_status parse_l2(const char *text, enum cuvil_l2_mode *out) {
  static const char *const names[] = {"model", "cold", "warm"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, names[i]) != 0) continue;
    *out = (enum cuvil_l2_mode)i;
    return CUVIL_OK;
  }
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "--l2 %s: model, cold or warm is expected", text);
}

static enum cuvil_status parse_number_option(int id, const char *text,
                                             struct tune_args *args) {
  int64_t value = 0;
  switch (id) {
    case OPT_MAX_TRIALS:
      CUVIL_TRY(cuvil_cli_integer("--max-trials", text, 1, 1 << 30, &value));
      args->tune.max_trials = (int)value;
      args->trials_set = true;
      return CUVIL_OK;
    case OPT_LIBRARY_CHOICES:
      CUVIL_TRY(cuvil_cli_integer("--library-choices", text, 1, 64, &value));
      args->tune.library_limit = (int)value;
      return CUVIL_OK;
    case OPT_JOBS:
      CUVIL_TRY(cuvil_cli_integer("--jobs", text, 1, 256, &value));
      args->jobs = (int)value;
      return CUVIL_OK;
    case OPT_SEED:
      CUVIL_TRY(cuvil_cli_integer("--seed", text, 0, INT64_MAX, &value));
      args->tune.seed = (uint64_t)value;
      return CUVIL_OK;
    case OPT_BUDGET:
      args->budget_set = true;
      return cuvil_parse_duration(text, &args->tune.budget_seconds);
    case OPT_COMPILE_LIMIT:
      return cuvil_parse_duration(text, &args->compile_limit);
    default:
      return cuvil_parse_duration(text, &args->launch_limit);
  }
}

static enum cuvil_status parse_option(int id, const char *text,
                                      struct tune_args *args) {
  switch (id) {
    case OPT_ARCH:
      args->arch = text;
      if (cuvil_arch_find(text)) return CUVIL_OK;
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "--arch %s: not known; %s are",
                        text, cuvil_arch_names());
    case OPT_DEVICE:
      args->device = text;
      break;
    case OPT_DB:
      args->db = text;
      break;
    case OPT_PRECISION:
      return cuvil_precision_parse(text, &args->fusion.precision);
    case OPT_SHAPES:
      args->shapes = text;
      break;
    case OPT_FUSION:
      return cuvil_fusion_strategy_parse(text, &args->fusion.strategy);
    case OPT_FAMILIES:
      args->tune.families = text;
      return cuvil_families_check(text);
    case OPT_LIST_FAMILIES:
      args->list_families = true;
      break;
    case OPT_STRATEGY:
      args->strategy = text;
      return cuvil_strategy_parse(text, &args->tune.strategy);
    case OPT_LIST_STRATEGIES:
      args->list_strategies = true;
      break;
    case OPT_EXHAUSTIVE:
      args->exhaustive = true;
      break;
    case OPT_L2:
      return parse_l2(text, &args->tune.l2);
    case OPT_PROBLEM:
      return cuvil_tune_input_add(&args->input, text, 1);
    case OPT_PROBLEMS:
      return cuvil_tune_input_file(&args->input, text);
    case OPT_LIST_PROBLEMS:
      args->list_problems = true;
      break;
    case OPT_DRY_RUN:
      args->dry_run = true;
      break;
    case OPT_EXPLAIN:
      args->explain = true;
      break;
    case OPT_FORCE:
      args->tune.force = true;
      break;
    case OPT_RECORD:
      args->record = text;
      break;
    case OPT_JSON:
      args->json = text;
      break;
    case 'v':
      args->level = args->level >= CUVIL_LOG_VERBOSE ? CUVIL_LOG_DEBUG
                                                     : CUVIL_LOG_VERBOSE;
      break;
    case 'q':
      args->level = CUVIL_LOG_QUIET;
      break;
    default:
      return parse_number_option(id, text, args);
  }
  return CUVIL_OK;
}

static bool is_replay(const struct tune_args *args) {
  return strncmp(args->device, "replay", 6) == 0 &&
         (args->device[6] == '\0' || args->device[6] == ':');
}

static enum cuvil_status check_device(const struct tune_args *args) {
  if (is_replay(args) && args->device[6] != ':') return CUVIL_OK;
  if (is_replay(args) && args->device[7]) return CUVIL_OK;
  if (!is_replay(args) &&
      cuvil_cli_target_check(args->device, NULL) == CUVIL_OK)
    return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "--device %s: auto, cuda:N or replay[:FILE] is expected",
                    args->device);
}

/* What single options cannot see. */
static enum cuvil_status check_together(struct tune_args *args, int argc,
                                        char **argv) {
  if (optind + 1 < argc)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "more than one model: %s",
                      argv[optind + 1]);
  if (optind < argc) args->model = argv[optind];
  if (args->model && args->input.count)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a model and --problem exclude each other");
  if (args->record && is_replay(args))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--record needs a GPU, not a recording");
  if (args->dry_run && (args->record || args->json))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--dry-run measures nothing that %s could hold",
                      args->record ? "--record" : "--json");
  if (args->tune.families && !args->tune.families[0])
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--families names none; see --list-families");
  CUVIL_TRY(check_device(args));
  if (args->dry_run && !args->arch)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "--dry-run needs --arch (%s)",
                      cuvil_arch_names());
  if (args->exhaustive) {
    if (args->strategy)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "--exhaustive and --strategy exclude each other");
    args->tune.strategy = cuvil_strategy_of(&cuvil_strategy_exhaustive);
  }
  if (args->tune.strategy.ops->exhaustive) {
    if (!args->trials_set) args->tune.max_trials = 0;
    /* A sample of a sample: no need to walk all of a large space for it. */
    args->tune.walk_limit = args->tune.max_trials ? 1 << 16 : 0;
  }
  /* A recording must hold every answer, not only those of this run. */
  if (args->record) args->tune.force = true;
  return CUVIL_OK;
}

/* 0: go on; else the exit status + 1. */
static int parse(int argc, char **argv, struct tune_args *args) {
  int id;
  cuvil_tune_defaults(&args->tune);
  args->fusion = (struct cuvil_fusion_options){CUVIL_FUSION_DEFAULT,
                                               CUVIL_PRECISION_MODEL};
  args->device = "auto";
  args->level = CUVIL_LOG_NORMAL;
  for (;;) {
    int done = cuvil_cli_option("cuvil-tune", argc, argv, ":vqh", options,
                                OPT_VERSION, usage, &id);
    if (done >= 0) return done + 1;
    if (id == -1) break;
    enum cuvil_status status = parse_option(id, optarg, args);
    if (status != CUVIL_OK) {
      cuvil_log_failure();
      return status == CU_ERR_IO ? 2 : 3; /* a file is no wrong usage */
    }
  }
  cuvil_log_setup("cuvil-tune", args->level);
  if (check_together(args, argc, argv) != CUVIL_OK) {
    cuvil_log_failure();
    return 3;
  }
  return 0;
}

/* ---- the device */
static enum cuvil_status open_gpu(struct tune_args *args, const char *cubins,
                                  struct cuvil_runner **out) {
  struct cuvil_gpu_runner_options gpu = {.cubins = cubins,
                                         .jobs = args->jobs,
                                         .compile_limit = args->compile_limit,
                                         .launch_limit = args->launch_limit,
                                         .seed = args->tune.seed};
  *out = NULL;
  if (strncmp(args->device, "cuda:", 5) == 0)
    gpu.ordinal = atoi(args->device + 5); /* check_device has looked at it */
  enum cuvil_status status = cuvil_gpu_runner_create(&gpu, out);
  if (status == CU_ERR_NO_DEVICE || status == CU_ERR_LIBRARY_NOT_FOUND) {
    char message[1024];
    snprintf(message, sizeof message, "%s", cuvil_last_error());
    return CUVIL_FAIL(
        status, "%s; a recording can be replayed: --device replay", message);
  }
  return status;
}

static enum cuvil_status check_arch(const struct tune_args *args,
                                    struct cuvil_runner *runner) {
  if (!args->arch || strcmp(args->arch, runner->arch.name) == 0)
    return CUVIL_OK;
  return CUVIL_FAIL(
      CU_ERR_ARCH_MISMATCH,
      "--arch %s: the %s is %s; timing needs a GPU of that "
      "architecture, or a recording (--dry-run does not)",
      args->arch,
      strcmp(runner->source, "replayed") == 0 ? "recording" : "device",
      runner->arch.name);
}

static void print_device(FILE *to, const struct cuvil_runner *runner) {
  const struct cuvil_env *env = &runner->env;
  fprintf(to, "cuvil-tune: %s (%s, %d SMs), driver %s, CUDA %s", env->gpu,
          env->arch, env->sms, env->driver, env->cuda);
  if (*env->cublaslt) fprintf(to, ", cuBLASLt %s", env->cublaslt);
  if (*env->cudnn) fprintf(to, ", cuDNN %s", env->cudnn);
  fprintf(to, "\n");
}

static void print_counts(FILE *to, const struct cuvil_tune_report *report) {
  uint64_t valid = 0, allowed = 0;
  int compiled = 0, timed = 0, known = 0, untried = 0;
  for (int i = 0; i < report->count; i++) {
    const struct cuvil_tune_result *r = &report->results[i];
    valid += r->valid;
    allowed += r->allowed;
    compiled += r->compiled;
    timed += r->timed;
    known += r->known;
    untried += r->untried;
  }
  if (report->already == report->count) return;
  fprintf(to, "space %llu valid -> %llu after arch rules",
          (unsigned long long)valid, (unsigned long long)allowed);
  if (allowed) fprintf(to, " (%.1fx)", (double)valid / (double)allowed);
  fprintf(to, " -> %d compiled -> %d timed", compiled, timed);
  if (known) fprintf(to, ", %d known from an earlier run", known);
  if (untried) fprintf(to, ", %d left untried by the budget", untried);
  fprintf(to, "\n");
}

/* ---- */
static enum cuvil_status load_input(struct tune_args *args, FILE *to) {
  if (!args->model) return CUVIL_OK;
  CUVIL_TRY(cuvil_tune_input_model(&args->input, args->model, args->shapes,
                                   &args->fusion));
  fprintf(to, "model %s: %d nodes -> %d fused -> %d problems\n", args->model,
          args->input.nodes, args->input.tasks, args->input.count);
  return CUVIL_OK;
}

static enum cuvil_status report_all(struct tune_args *args, FILE *to,
                                    const struct cuvil_runner *runner,
                                    const char *recording, const char *db,
                                    const struct cuvil_tune_report *report) {
  static const char *const l2[] = {"model", "cold", "warm"};
  struct cuvil_tune_about about = {
      .model = args->model,
      .precision = cuvil_precision_name(args->fusion.precision),
      .fusion = cuvil_fusion_strategy_name(args->fusion.strategy),
      .l2 = l2[args->tune.l2],
      .source = runner->source,
      .recording = recording,
      .env = &runner->env,
      .seed = args->tune.seed};
  print_counts(to, report);
  cuvil_tune_print_table(to, report);
  cuvil_tune_print_summary(to, report, db);
  if (args->json) return cuvil_tune_write_json(args->json, report, &about);
  return CUVIL_OK;
}

static enum cuvil_status verdict(const struct cuvil_tune_report *report) {
  if (report->failed_problems)
    return CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                      "%d of %d problems have no working candidate; see above",
                      report->failed_problems, report->count);
  if (report->count && report->not_recorded == report->count)
    return CUVIL_FAIL(CU_ERR_NO_RECORDING,
                      "none of the %d problems is in the recording; "
                      "--list-problems shows what it holds",
                      report->count);
  return CUVIL_OK;
}

static enum cuvil_status tune(struct tune_args *args, FILE *to,
                              struct cuvil_recording *replayed) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_db *db = NULL;
  struct cuvil_runner *runner = NULL;
  struct cuvil_tune_report report = {0};
  const char *slow = getenv("CUVIL_REPLAY_SLOW"); /* tests that kill us */
  CUVIL_TRY_GOTO(cuvil_db_open(args->db, CUVIL_DB_WRITE, &db));
  CUVIL_TRY_GOTO(replayed
                     ? cuvil_replay_runner_create(
                           replayed, slow ? strtod(slow, NULL) : 0, &runner)
                     : open_gpu(args, cuvil_db_cubin_dir(db), &runner));
  CUVIL_TRY_GOTO(check_arch(args, runner));
  print_device(to, runner);
  if (args->record)
    CUVIL_TRY_GOTO(cuvil_recording_create(&runner->arch, &runner->env,
                                          (int64_t)args->tune.seed,
                                          &args->tune.recording));
  if (!args->budget_set && !replayed && !args->tune.strategy.ops->exhaustive)
    args->tune.budget_seconds = 5.0 * args->input.count;
  if (args->explain)
    CUVIL_TRY_GOTO(cuvil_tune_dry_run(to, &args->tune, &runner->arch,
                                      args->input.problems, args->input.count,
                                      true, false));
  CUVIL_TRY_GOTO(cuvil_tune(&args->tune, runner, db, args->input.problems,
                            args->input.count, &report));
  CUVIL_TRY_GOTO(report_all(args, to, runner, replayed ? replayed->path : NULL,
                            cuvil_db_path(db), &report));
  if (args->record)
    CUVIL_TRY_GOTO(cuvil_recording_write(args->tune.recording, args->record));
  CUVIL_TRY_GOTO(verdict(&report));
fail:
  if (status == CU_ERR_INTERRUPTED) {
    fprintf(stderr, "%d of %d problems were done\n",
            report.tuned + report.already, report.count);
    /* A recording of them is worth keeping. */
    if (args->tune.recording && report.tuned)
      CUVIL_IGNORE(cuvil_recording_write(args->tune.recording, args->record));
  }
  cuvil_tune_report_free(&report);
  cuvil_recording_destroy(args->tune.recording);
  cuvil_runner_destroy(runner);
  cuvil_db_close(db);
  return status;
}

/* --device replay:FILE names another program's results: *out is true, and the
 * search on them was the whole run. */
static enum cuvil_status replay_table(struct tune_args *args, FILE *to,
                                      bool *out) {
  const char *path = args->device + 7;
  size_t length = strlen(path);
  struct cuvil_tune_table_options options = {
      .path = path,
      .strategy = &args->tune.strategy,
      .max_trials = args->tune.max_trials,
      .seed = args->tune.seed,
      .json = args->json};
  struct cuvil_table table;
  json_t *file = NULL;
  *out = false;
  if (length > 3 && strcmp(path + length - 3, ".gz") == 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "%s: unpack it first: gunzip -k %s",
                      path, path);
  if (strstr(path, ".t4.json")) return CUVIL_OK; /* a recording's name */
  if (cuvil_json_read(path, &file) != CUVIL_OK) return CUVIL_OK; /* not this */
  enum cuvil_status status = CUVIL_OK;
  *out = cuvil_table_is(file);
  if (*out && (args->model || args->input.count || args->list_problems))
    status = CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "%s holds another program's kernel: no model, "
                        "--problem or --list-problems goes with it",
                        path);
  if (*out && status == CUVIL_OK) status = cuvil_table_read(file, path, &table);
  json_decref(file);
  if (!*out || status != CUVIL_OK) return status;
  fprintf(to, "replaying a recording, nothing is measured\n");
  status = cuvil_tune_table(to, &table, &options);
  cuvil_table_free(&table);
  return status;
}

static void list_problems(const struct cuvil_tune_input *input) {
  for (int i = 0; i < input->count; i++)
    printf("%s\n", input->texts[i]);
}

static enum cuvil_status run(struct tune_args *args) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_recording *recording = NULL;
  FILE *to = args->json && strcmp(args->json, "-") == 0 ? stderr : stdout;
  if (args->list_families) {
    cuvil_tune_list_families(to);
    return CUVIL_OK;
  }
  if (args->list_strategies) {
    cuvil_tune_list_strategies(to);
    return CUVIL_OK;
  }
  bool replay = is_replay(args) && !args->dry_run, foreign = false;
  if (replay && args->device[6]) CUVIL_TRY(replay_table(args, to, &foreign));
  if (foreign) return CUVIL_OK;
  bool from_recording =
      args->list_problems && !args->model && !args->input.count;
  if (args->list_problems && !from_recording) {
    CUVIL_TRY(load_input(args, stderr));
    list_problems(&args->input);
    return CUVIL_OK;
  }
  if (args->dry_run) {
    CUVIL_TRY(load_input(args, to));
    return cuvil_tune_dry_run(to, &args->tune, cuvil_arch_find(args->arch),
                              args->input.problems, args->input.count,
                              args->explain, true);
  }
  if (replay) {
    /* First of all: nobody may take what follows for measurements. */
    fprintf(from_recording ? stderr : to,
            "replaying a recording, nothing is measured\n");
    if (!from_recording) CUVIL_TRY(load_input(args, to));
    const char *path = args->device[6] ? args->device + 7 : NULL;
    CUVIL_TRY_GOTO(
        cuvil_find_recording(path, args->arch, &args->input, &recording));
    fprintf(from_recording ? stderr : to, "recording %s (%s, %s)\n",
            recording->path, recording->env.gpu, recording->created);
  }
  if (from_recording) {
    CUVIL_TRY_GOTO(cuvil_tune_input_recording(&args->input, recording));
    list_problems(&args->input);
    goto fail;
  }
  if (!replay) CUVIL_TRY_GOTO(load_input(args, to));
  if (args->input.count == 0)
    CUVIL_TRY_GOTO(
        CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "a model or --problem is needed"));
  CUVIL_TRY_GOTO(tune(args, to, recording));
fail:
  cuvil_recording_destroy(recording);
  return status;
}

static bool has_input(const struct tune_args *args) {
  return args->model || args->input.count || args->list_families ||
         args->list_strategies ||
         (is_replay(args) && (args->list_problems || args->device[6]));
}

int main(int argc, char **argv) {
  struct tune_args args = {0};
  cuvil_log_setup("cuvil-tune", CUVIL_LOG_NORMAL);
  int stop = parse(argc, argv, &args);
  if (!stop && !has_input(&args)) {
    cuvil_cli_misuse("cuvil-tune", "a model or --problem is needed");
    stop = 3;
  }
  if (!stop) {
    cuvil_interrupt_catch();
    enum cuvil_status status = run(&args);
    stop = 1 + cuvil_cli_exit(status);
  }
  cuvil_tune_input_free(&args.input);
  return stop - 1;
}
