/* cuvil-run.c - runs a plan, or a model compiled on the spot.
 *
 * Everything to be run ends as one `job`: a plan on a GPU, a graph for the CPU,
 * or both when the GPU's answer is to be verified.  The order is: what is to be
 * run, its inputs, one run, the comparison, the files, and last the times,
 * because a profile leaves garbage in the buffers.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/common.h"
#include "cli/run_device.h"
#include "compiler/compiler.h"
#include "graph/execute.h"

static const char command[] = "cuvil-run";

enum { MAX_INPUTS = 64 };

struct run_args {
  const char *path, *model, *device, *db, *output_dir, *test_data, *json;
  const char *inputs[MAX_INPUTS];
  int input_count;
  struct cuvil_model_options compile;
  bool verify, profile, tolerance_given, runs_given;
  struct cuvil_run_tolerance tolerance;
  struct cuvil_run_amount warm_up, runs;
  int64_t seed;
  enum cuvil_log_level level;
};

enum option_id {
  OPT_DEVICE = 256,
  OPT_DB,
  OPT_PRECISION,
  OPT_SHAPES,
  OPT_FUSION,
  OPT_INPUT,
  OPT_OUTPUT_DIR,
  OPT_SEED,
  OPT_TEST_DATA,
  OPT_VERIFY,
  OPT_MODEL,
  OPT_ATOL,
  OPT_RTOL,
  OPT_WARMUP,
  OPT_ITERATIONS,
  OPT_DURATION,
  OPT_PROFILE,
  OPT_JSON,
  OPT_VERSION
};

static const struct option options[] = {
    {"device", required_argument, NULL, OPT_DEVICE},
    {"db", required_argument, NULL, OPT_DB},
    {"precision", required_argument, NULL, OPT_PRECISION},
    {"shapes", required_argument, NULL, OPT_SHAPES},
    {"fusion", required_argument, NULL, OPT_FUSION},
    {"input", required_argument, NULL, OPT_INPUT},
    {"output-dir", required_argument, NULL, OPT_OUTPUT_DIR},
    {"seed", required_argument, NULL, OPT_SEED},
    {"test-data", required_argument, NULL, OPT_TEST_DATA},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"model", required_argument, NULL, OPT_MODEL},
    {"atol", required_argument, NULL, OPT_ATOL},
    {"rtol", required_argument, NULL, OPT_RTOL},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"iterations", required_argument, NULL, OPT_ITERATIONS},
    {"duration", required_argument, NULL, OPT_DURATION},
    {"profile", no_argument, NULL, OPT_PROFILE},
    {"json", required_argument, NULL, OPT_JSON},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static void usage(void) {
  fputs(
      "usage: cuvil-run [OPTIONS] PLAN|MODEL.onnx\n"
      "Runs a plan of cuvil-compile, or a model compiled in memory.\n"
      "\n"
      "where\n"
      "  --device auto|cuda:N|cpu   (auto: the first GPU; cpu: the reference\n"
      "                           executor, slow and right)\n"
      "inputs and outputs\n"
      "  --input NAME:FILE        .npy or ONNX TensorProto .pb (repeatable);\n"
      "                           inputs not given are random\n"
      "  --seed N                 of random inputs (1)\n"
      "  --test-data DIR          an ONNX test_data_set_N folder: inputs, and\n"
      "                           outputs to compare with\n"
      "  --output-dir DIR         writes each output as .npy\n"
      "right or wrong\n"
      "  --verify                 compare with the CPU reference\n"
      "  --model MODEL.onnx       what a plan was compiled from, for --verify\n"
      "  --atol X  --rtol X       |got-x| <= atol + rtol |x| for each "
      "element,\n"
      "                           instead of relative L2 1e-2 (fp16, bf16),\n"
      "                           1e-3 (tf32), 1e-5 (fp32)\n"
      "times\n"
      "  --warmup N|DURATION      before timing (10)\n"
      "  --iterations N           timed runs (100; 0: none)\n"
      "  --duration DURATION      timed runs for so long instead\n"
      "  --profile                each step by itself\n"
      "of a MODEL.onnx\n"
      "  --db FILE  --shapes NAME:DxD,...  --precision P  --fusion F\n"
      "                           as in cuvil-compile\n"
      "saying\n"
      "  --json FILE              results for machines (- is stdout)\n"
      "  -v  -q  --help  --version\n"
      "\n"
      "examples\n"
      "  cuvil-run --iterations 1000 resnet50.plan\n"
      "  cuvil-run --verify --model resnet50.onnx resnet50.plan\n"
      "  cuvil-run --device cpu --test-data test_data_set_0 model.onnx\n"
      "  cuvil-run --profile --precision fp16 model.onnx\n",
      stdout);
}

static enum cuvil_status take_tolerance(struct run_args *args,
                                        const char *option, const char *value,
                                        double *out) {
  args->tolerance.elementwise = true;
  return cuvil_cli_number(option, value, out);
}

static enum cuvil_status take_run_option(struct run_args *args, int id,
                                         const char *value) {
  switch (id) {
    case OPT_WARMUP:
      return cuvil_run_amount_parse("--warmup", value, &args->warm_up);
    case OPT_ITERATIONS:
      args->runs_given = true;
      return cuvil_cli_integer("--iterations", value, 0, 1000000,
                               &args->runs.count);
    case OPT_DURATION:
      if (!args->runs_given) args->runs.count = 0;
      args->runs_given = true;
      return cuvil_parse_duration(value, &args->runs.seconds);
    case OPT_SEED:
      return cuvil_cli_integer("--seed", value, 0, INT64_MAX, &args->seed);
    case OPT_ATOL:
      return take_tolerance(args, "--atol", value, &args->tolerance.atol);
    case OPT_RTOL:
      return take_tolerance(args, "--rtol", value, &args->tolerance.rtol);
    case OPT_PRECISION:
      return cuvil_precision_parse(value, &args->compile.fusion.precision);
    case OPT_FUSION:
      return cuvil_fusion_strategy_parse(value, &args->compile.fusion.strategy);
    case OPT_INPUT:
      if (args->input_count == MAX_INPUTS)
        return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "more than %d inputs",
                          MAX_INPUTS);
      if (!strchr(value, ':') || !strchr(value, ':')[1])
        return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                          "--input takes NAME:FILE, not `%s`", value);
      args->inputs[args->input_count++] = value;
      return CUVIL_OK;
    default:
      args->level = id == 'v' ? args->level + 1 : CUVIL_LOG_QUIET;
      return CUVIL_OK;
  }
}

/* Options that are only kept; the others go to take_run_option. */
static enum cuvil_status take_option(struct run_args *args, int id,
                                     const char *value) {
  switch (id) {
    case OPT_DEVICE:
      args->device = value;
      return CUVIL_OK;
    case OPT_DB:
      args->db = value;
      return CUVIL_OK;
    case OPT_SHAPES:
      args->compile.shapes = value;
      return CUVIL_OK;
    case OPT_OUTPUT_DIR:
      args->output_dir = value;
      return CUVIL_OK;
    case OPT_TEST_DATA:
      args->test_data = value;
      return CUVIL_OK;
    case OPT_VERIFY:
      args->verify = true;
      return CUVIL_OK;
    case OPT_MODEL:
      args->model = value;
      return CUVIL_OK;
    case OPT_PROFILE:
      args->profile = true;
      return CUVIL_OK;
    case OPT_JSON:
      args->json = value;
      return CUVIL_OK;
    default:
      return take_run_option(args, id, value);
  }
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct run_args *args) {
  int id, done;
  for (;;) {
    done = cuvil_cli_option(command, argc, argv, ":vqh", options, OPT_VERSION,
                            usage, &id);
    if (done >= 0) return done;
    if (id == -1) break;
    if (take_option(args, id, optarg) != CUVIL_OK)
      return cuvil_cli_misuse(command, "%s", cuvil_last_error());
  }
  if (optind + 1 != argc)
    return cuvil_cli_misuse(command, optind == argc
                                         ? "no plan or model is named"
                                         : "more than one plan or model");
  args->path = argv[optind];
  bool cpu = strcmp(args->device, "cpu") == 0;
  if (!cpu && cuvil_cli_target_check(args->device, NULL) != CUVIL_OK)
    return cuvil_cli_misuse(command, "%s (or cpu)", cuvil_last_error());
  if (cpu && args->verify)
    return cuvil_cli_misuse(command,
                            "--verify compares a GPU with the CPU; with "
                            "--device cpu there is nothing to compare");
  if (cpu && args->profile)
    return cuvil_cli_misuse(command, "--profile needs a GPU");
  cuvil_log_setup(command, args->level);
  return -1;
}

/* ---- what is to be run */

struct job {
  const struct run_args *args;
  FILE *say; /* results for people: stderr when stdout is the report */
  bool is_plan;
  struct cuvil_cli_target target;
  struct cuvil_model model;  /* compiled here */
  struct cuvil_graph *graph; /* for the CPU; owned unless it is the model's */
  struct cuvil_plan *plan;
  struct cuvil_session *session;
  struct cuvil_gpu_stream *stream;
  struct cuvil_plan_tensor *graph_inputs, *graph_outputs;
  struct cuvil_run_io io;
  json_t *report;
};

static void job_close(struct job *job) {
  cuvil_run_io_free(&job->io);
  free(job->graph_inputs);
  free(job->graph_outputs);
  cuvil_session_destroy(job->session);
  cuvil_gpu_stream_destroy(job->stream);
  cuvil_plan_destroy(job->plan);
  if (job->graph != job->model.graph) cuvil_graph_destroy(job->graph);
  cuvil_model_close(&job->model);
  cuvil_cli_target_close(&job->target);
  json_decref(job->report);
}

static enum cuvil_status looks_like_plan(const char *path, bool *out) {
  char magic[8] = {0};
  struct stat there;
  if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
    return CUVIL_FAIL(CU_ERR_IO, "%s: not a regular file", path);
  FILE *file = fopen(path, "rb");
  if (!file) return CUVIL_FAIL(CU_ERR_IO, "%s: %m", path);
  size_t got = fread(magic, 1, sizeof(magic), file);
  fclose(file);
  /* A plan whose first bytes are damaged is to be refused as a plan. */
  size_t length = strlen(path);
  bool named = length > 5 && strcmp(path + length - 5, ".plan") == 0;
  *out = named || (got == sizeof(magic) && memcmp(magic, "CUVILPLN", 8) == 0);
  return CUVIL_OK;
}

static enum cuvil_status open_gpu(struct job *job) {
  enum cuvil_status status =
      cuvil_cli_target_open(job->args->device, NULL, true, &job->target);
  if (status != CU_ERR_NO_DEVICE && status != CU_ERR_LIBRARY_NOT_FOUND)
    return status;
  return CUVIL_FAIL(CU_ERR_NO_DEVICE,
                    "no GPU here (%s); --device cpu runs a model by the "
                    "reference executor",
                    cuvil_last_error());
}

static enum cuvil_status compile_here(struct job *job) {
  struct cuvil_cli_cache cache = {0};
  struct cuvil_compiler_report report;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(cuvil_cli_model_open(&job->args->compile, &job->model));
  job->graph = job->model.graph;
  cuvil_cli_precision_hint(job->graph, job->args->compile.fusion.precision);
  CUVIL_TRY_GOTO(cuvil_cli_cache_open(job->args->db, &cache));
  struct cuvil_compiler_options how = {
      .arch = job->target.arch,
      .env = &job->target.env,
      .db = cache.db,
      .cubin_dir = cuvil_buf_text(&cache.cubin_dir)};
  CUVIL_TRY_GOTO(
      cuvil_compile_fused(job->model.fused, &how, &job->plan, &report));
fail:
  cuvil_cli_cache_close(&cache);
  return status;
}

/* The model behind a plan, with the plan's own input shapes. */
static enum cuvil_status import_for_plan(struct job *job) {
  struct cuvil_buf shapes = {0};
  char shape[128];
  for (int i = 0; i < job->plan->input_count; ++i) {
    const struct cuvil_plan_tensor *input = &job->plan->inputs[i];
    if (input->rank == 0) continue;
    cuvil_buf_printf(&shapes, "%s%s:%s", shapes.size ? "," : "", input->name,
                     cuvil_cli_shape(input->rank, input->dims, shape));
  }
  struct cuvil_import_options import = {
      .shapes = shapes.size ? cuvil_buf_text(&shapes) : NULL};
  enum cuvil_status status = cuvil_buf_status(&shapes);
  if (status == CUVIL_OK)
    status = cuvil_graph_import(job->args->model, &import, &job->graph);
  cuvil_buf_free(&shapes);
  if (status == CU_ERR_INVALID_ARGUMENT)
    return CUVIL_FAIL(CU_ERR_INVALID_TENSOR_LAYOUT,
                      "the plan's inputs do not fit %s: it was compiled from "
                      "another model (%s)",
                      job->args->model, cuvil_last_error());
  CUVIL_TRY(status);
  return cuvil_run_io_same(&job->io, job->graph);
}

static enum cuvil_status open_plan(struct job *job) {
  /* A damaged plan is named as such, GPU or not. */
  if (job->is_plan) CUVIL_TRY(cuvil_plan_read(job->args->path, &job->plan));
  CUVIL_TRY(open_gpu(job));
  if (!job->is_plan) CUVIL_TRY(compile_here(job));
  CUVIL_TRY(cuvil_gpu_stream_create(job->target.gpu, &job->stream));
  CUVIL_TRY(cuvil_session_create(job->target.gpu, job->plan, &job->session));
  const struct cuvil_plan *plan = job->plan;
  CUVIL_TRY(cuvil_run_io_create(plan->input_count, plan->inputs,
                                plan->output_count, plan->outputs,
                                (uint64_t)job->args->seed, &job->io));
  CUVIL_TRY(
      cuvil_run_io_indices(&job->io, plan, NULL, (uint64_t)job->args->seed));
  fprintf(job->say, "%s: %d kernels on %s (%s, %s)\n", job->args->path,
          plan->step_count, job->target.env.gpu, plan->precision, plan->fusion);
  return CUVIL_OK;
}

static enum cuvil_status open_cpu(struct job *job) {
  if (job->is_plan)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s is a plan, which runs on a GPU only; name its model "
                      "to run it on the CPU",
                      job->args->path);
  struct cuvil_import_options import = {.shapes = job->args->compile.shapes};
  enum cuvil_status status =
      cuvil_graph_import(job->args->path, &import, &job->graph);
  if (status == CU_ERR_MODEL_UNSUPPORTED)
    fputs(cuvil_graph_unsupported(), stderr);
  CUVIL_TRY(status);
  CUVIL_TRY(cuvil_run_io_tensors(job->graph, false, &job->graph_inputs));
  CUVIL_TRY(cuvil_run_io_tensors(job->graph, true, &job->graph_outputs));
  CUVIL_TRY(cuvil_run_io_create(job->graph->input_count, job->graph_inputs,
                                job->graph->output_count, job->graph_outputs,
                                (uint64_t)job->args->seed, &job->io));
  CUVIL_TRY(cuvil_run_io_indices(&job->io, NULL, job->graph,
                                 (uint64_t)job->args->seed));
  fprintf(job->say, "%s: %d nodes on the CPU (reference executor)\n",
          job->args->path, job->graph->model_node_count);
  return CUVIL_OK;
}

/* ---- running */

static enum cuvil_status run_cpu(struct job *job) {
  struct cuvil_run_times times = {0};
  int64_t runs = job->args->runs_given ? job->args->runs.count : 1;
  enum cuvil_status status = CUVIL_OK;
  if (runs < 1) runs = 1;
  times.seconds = calloc((size_t)runs, sizeof(double));
  if (!times.seconds) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "times");
  for (int64_t i = 0; i < runs; ++i) {
    double start = cuvil_now();
    CUVIL_TRY_GOTO(cuvil_graph_execute(
        job->graph, (const void *const *)job->io.in, job->io.out, 0));
    times.seconds[times.count++] = cuvil_now() - start;
  }
  json_t *latency = NULL;
  CUVIL_TRY_GOTO(cuvil_run_report_times(&times, job->say, &latency));
  json_object_set_new(job->report, "latency", latency);
fail:
  cuvil_run_times_free(&times);
  return status;
}

static double limit_of(const struct job *job) {
  const char *precision = job->plan ? job->plan->precision : "fp32";
  if (strcmp(precision, "fp16") == 0 || strcmp(precision, "bf16") == 0)
    return 1e-2;
  if (strcmp(precision, "tf32") == 0) return 1e-3;
  for (int i = 0; i < job->io.input_count; ++i)
    if (job->io.inputs[i].dtype == CUVIL_F16 ||
        job->io.inputs[i].dtype == CUVIL_BF16)
      return strcmp(precision, "fp32") == 0 ? 1e-3 : 1e-2;
  return 1e-5;
}

static enum cuvil_status compare(struct job *job, bool *out_failed) {
  struct cuvil_run_tolerance tolerance = job->args->tolerance;
  *out_failed = false;
  if (job->args->verify) {
    if (job->is_plan) CUVIL_TRY(import_for_plan(job));
    CUVIL_TRY(cuvil_run_io_reference(&job->io, job->graph));
  }
  if (!job->args->verify && !job->args->test_data) return CUVIL_OK;
  tolerance.relative_l2 = limit_of(job);
  json_t *rows = json_array();
  enum cuvil_status status =
      cuvil_run_io_compare(&job->io, &tolerance, job->say, rows);
  json_object_set_new(job->report, "outputs", rows);
  *out_failed = status == CU_ERR_VERIFY_FAILED;
  return status;
}

static enum cuvil_status time_gpu(struct job *job) {
  struct cuvil_run_times times;
  json_t *latency = NULL, *profile = NULL;
  CUVIL_TRY(cuvil_run_latency(job->target.gpu, job->session, job->stream,
                              &job->args->warm_up, &job->args->runs, &times));
  enum cuvil_status status = cuvil_run_report_times(&times, job->say, &latency);
  cuvil_run_times_free(&times);
  if (latency) json_object_set_new(job->report, "latency", latency);
  CUVIL_TRY(status);
  if (!job->args->profile) return CUVIL_OK;
  CUVIL_TRY(cuvil_run_profile(job->session, job->plan, job->say, &profile));
  json_object_set_new(job->report, "steps", profile);
  return CUVIL_OK;
}

static enum cuvil_status run_job(struct job *job) {
  const struct run_args *args = job->args;
  bool cpu = strcmp(args->device, "cpu") == 0, failed;
  CUVIL_TRY(looks_like_plan(args->path, &job->is_plan));
  if (job->is_plan && args->verify && !args->model)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--verify of a plan needs the model that it was compiled "
                      "from: --model MODEL.onnx");
  job->report =
      json_pack("{s:s, s:s, s:s}", "schema", "cuvil-run/1", "file", args->path,
                "device", cpu ? "cpu" : job->args->device);
  if (!job->report) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "report");
  CUVIL_TRY(cpu ? open_cpu(job) : open_plan(job));
  if (args->test_data)
    CUVIL_TRY(cuvil_run_io_test_data(&job->io, args->test_data));
  for (int i = 0; i < args->input_count; ++i)
    CUVIL_TRY(cuvil_run_io_load(&job->io, args->inputs[i]));
  CUVIL_TRY(cpu ? run_cpu(job)
                : cuvil_run_once(job->target.gpu, job->session, job->stream,
                                 &job->io));
  cuvil_run_io_describe(&job->io, job->say);
  /* A wrong answer is reported with its outputs and times, and fails last. */
  enum cuvil_status verdict = compare(job, &failed);
  if (verdict != CUVIL_OK && !failed) return verdict;
  char why[1024];
  snprintf(why, sizeof(why), "%.1000s", failed ? cuvil_last_error() : "");
  if (args->output_dir)
    CUVIL_TRY(cuvil_run_io_save(&job->io, args->output_dir));
  if (!cpu) CUVIL_TRY(time_gpu(job));
  if (args->json) CUVIL_TRY(cuvil_cli_write_json(job->report, args->json));
  return failed ? CUVIL_FAIL(CU_ERR_VERIFY_FAILED, "%s", why) : CUVIL_OK;
}

int main(int argc, char **argv) {
  struct run_args args = {
      .device = "auto",
      .compile = {.fusion = {CUVIL_FUSION_DEFAULT, CUVIL_PRECISION_MODEL}},
      .warm_up = {.count = 10},
      .runs = {.count = 100},
      .seed = 1,
      .level = CUVIL_LOG_NORMAL};
  cuvil_log_setup(command, args.level);
  int done = parse(argc, argv, &args);
  if (done >= 0) return done;
  args.compile.path = args.path;
  struct job job = {
      .args = &args,
      .say = args.json && strcmp(args.json, "-") == 0 ? stderr : stdout};
  enum cuvil_status status = run_job(&job);
  job_close(&job);
  return cuvil_cli_exit(status);
}
