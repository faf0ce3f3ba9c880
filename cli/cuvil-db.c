/* cuvil-db - looks into, checks, merges and exports tuning databases.
 *
 * Parses the line, opens the database as the sub-command needs it, and hands
 * over: reports are in db_report.c, the work itself in db/.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "cli/db_report.h"
#include "cli/db_space.h"

#define COMMAND "cuvil-db"

static const char help[] =
    "Usage: cuvil-db COMMAND [OPTION]... [ARGUMENT]...\n"
    "Looks into, checks, merges and exports tuning databases.\n"
    "\n"
    "Commands:\n"
    "  list                 the present winners\n"
    "  show [PROBLEM]       evidence: measurements, races, failures\n"
    "  lookup PROBLEM       who would be used, and which step answers\n"
    "  stats                how much of what the file holds\n"
    "  verify               check pages, references, hashes, times, winners\n"
    "  merge FILE...        add the evidence of other databases\n"
    "  export --t4          measurements and failures as T4 results (JSON)\n"
    "  export --kernel-tuner  the same of one --family on one --problem, as a\n"
    "                       cache of Kernel Tuner\n"
    "  export --t1          the space of one --family for one --problem and\n"
    "                       --arch (T1); --tried: only points with evidence\n"
    "  import --t4|--kernel-tuner FILE\n"
    "                       add what an export wrote\n"
    "  prune                remove evidence that the filters name\n"
    "  rebuild              derive the winners again from the races\n"
    "\n"
    "Options:\n"
    "  --db FILE            default: $CUVIL_DB, else\n"
    "                       ${XDG_CACHE_HOME:-~/.cache}/cuvil/cuvil.db\n"
    "  --json FILE          list, show, lookup, stats, verify: JSON instead "
    "of\n"
    "                       a table; - is standard output\n"
    "  -o, --output FILE    export: where to (default: standard output)\n"
    "  --failures           show: failed candidates only\n"
    "  --wide               do not shorten texts\n"
    "  --tried              export --t1: only points in the cache\n"
    "  --dry-run            prune: only count\n"
    "  --all                prune: no filter is meant, remove everything\n"
    "  -v, --verbose   -q, --quiet   -h, --help   --version\n"
    "Filters (list, show, export, prune; all given must hold):\n"
    "  --problem TEXT  --kind gemm|conv|...  --family ID  --gpu NAME\n"
    "  --source measured|replayed  --before UTC  --method-below N\n"
    "The environment of a lookup (without --arch and --gpu: this machine's "
    "GPU, if\n"
    "there is one; what is not given matches anything):\n"
    "  --arch sm_80|sm_90  --gpu NAME  --driver V  --nvrtc V  --cublaslt V\n"
    "  --cudnn V\n"
    "\n"
    "Examples:\n"
    "  cuvil-db list --gpu 'NVIDIA H200'\n"
    "  cuvil-db show --failures --family gemm_mma\n"
    "  cuvil-db lookup --arch sm_90 \\\n"
    "    'gemm/1 m=1024 n=1024 k=1024 a=f16[m,k] b=f16[n,k] c=f16[m,n] "
    "acc=f32'\n"
    "  cuvil-db merge --db all.db node1.db node2.db\n"
    "  cuvil-db export --t4 --kind conv -o conv.t4.json\n"
    "  cuvil-db prune --source replayed --dry-run\n"
    "\n"
    "Exit status: 0 done, 1 failed (also: verify found something, lookup\n"
    "missed), 2 wrong usage.\n";

/* ---- commands that are more than one call */

/* For this machine's GPU where the line named no environment. */
static enum cuvil_status run_lookup(struct cuvil_db *db,
                                    const struct db_request *ask) {
  struct db_request here = *ask;
  struct cuvil_gpu *gpu = NULL;
  if (!ask->env.arch[0] && !ask->env.gpu[0] &&
      cuvil_gpu_open(0, &gpu) == CUVIL_OK) {
    here.env = *cuvil_gpu_env(gpu);
    cuvil_log_verbose("asked for this machine's %s", here.env.gpu);
  }
  cuvil_gpu_close(gpu);
  return db_report_lookup(db, &here);
}

static enum cuvil_status run_merge(struct cuvil_db *db,
                                   const struct db_request *ask) {
  for (int i = 0; i < ask->operand_count; i++) {
    struct cuvil_db_counts added;
    CUVIL_TRY(cuvil_db_merge(db, ask->operands[i], &added));
    printf("%s: %lld measurements, %lld failures, %lld races were new\n",
           ask->operands[i], (long long)added.measurements,
           (long long)added.failures, (long long)added.races);
  }
  return CUVIL_OK;
}

/* T1 is about a space: a database is only asked which points it knows. */
static enum cuvil_status export_as(const struct db_request *ask,
                                   struct cuvil_db *db, struct cuvil_buf *out) {
  if (strcmp(ask->format, "t4") == 0)
    return cuvil_db_export_t4(db, &ask->filter, out);
  if (strcmp(ask->format, "kernel-tuner") == 0)
    return cuvil_db_export_kernel_tuner(db, &ask->filter, out);
  return db_space_export(ask, db, out);
}

static enum cuvil_status run_export(struct cuvil_db *db,
                                    const struct db_request *ask) {
  struct cuvil_buf text = {0};
  enum cuvil_status status = export_as(ask, db, &text);
  cuvil_buf_puts(&text, "\n");
  if (status == CUVIL_OK) status = cuvil_buf_status(&text);
  if (status == CUVIL_OK) {
    if (!ask->output || strcmp(ask->output, "-") == 0)
      fwrite(text.data, 1, text.size, stdout);
    else
      status = cuvil_file_write_atomic(ask->output, text.data, text.size);
  }
  cuvil_buf_free(&text);
  return status;
}

static enum cuvil_status run_import(struct cuvil_db *db,
                                    const struct db_request *ask) {
  struct cuvil_db_counts added;
  const char *path = ask->operands[0];
  CUVIL_TRY(strcmp(ask->format, "t4") == 0
                ? cuvil_db_import_t4(db, path, &added)
                : cuvil_db_import_kernel_tuner(db, path, &added));
  printf("%s: %lld measurements, %lld failures were new\n", path,
         (long long)added.measurements, (long long)added.failures);
  return CUVIL_OK;
}

static enum cuvil_status run_prune(struct cuvil_db *db,
                                   const struct db_request *ask) {
  struct cuvil_db_counts counts;
  CUVIL_TRY(cuvil_db_prune(db, &ask->filter, !ask->dry_run, &counts));
  printf("%s %lld measurements, %lld failures, %lld races\n",
         ask->dry_run ? "would remove" : "removed",
         (long long)counts.measurements, (long long)counts.failures,
         (long long)counts.races);
  return CUVIL_OK;
}

static enum cuvil_status run_rebuild(struct cuvil_db *db,
                                     const struct db_request *ask) {
  struct cuvil_db_stats stats;
  (void)ask;
  CUVIL_TRY(cuvil_db_rebuild(db));
  CUVIL_TRY(cuvil_db_stats(db, &stats));
  printf("%lld winners from %lld races\n", (long long)stats.winners,
         (long long)stats.evidence.races);
  return CUVIL_OK;
}

struct command {
  const char *name;
  enum cuvil_db_mode mode;
  int least, most; /* operands */
  enum cuvil_status (*run)(struct cuvil_db *db, const struct db_request *ask);
};
static const struct command commands[] = {
    {"list", CUVIL_DB_READ, 0, 0, db_report_list},
    {"show", CUVIL_DB_READ, 0, 1, db_report_show},
    {"lookup", CUVIL_DB_READ, 1, 1, run_lookup},
    {"stats", CUVIL_DB_READ, 0, 0, db_report_stats},
    {"verify", CUVIL_DB_READ, 0, 0, db_report_verify},
    {"merge", CUVIL_DB_WRITE, 1, 1 << 20, run_merge},
    {"export", CUVIL_DB_READ, 0, 0, run_export},
    {"import", CUVIL_DB_WRITE, 1, 1, run_import},
    {"prune", CUVIL_DB_WRITE, 0, 0, run_prune},
    {"rebuild", CUVIL_DB_WRITE, 0, 0, run_rebuild},
};

/* ---- the line */

enum {
  OPT_DB = 256,
  OPT_JSON,
  OPT_FAILURES,
  OPT_WIDE,
  OPT_DRY_RUN,
  OPT_ALL,
  OPT_PROBLEM,
  OPT_KIND,
  OPT_FAMILY,
  OPT_GPU,
  OPT_SOURCE,
  OPT_BEFORE,
  OPT_METHOD_BELOW,
  OPT_ARCH,
  OPT_DRIVER,
  OPT_NVRTC,
  OPT_CUBLASLT,
  OPT_CUDNN,
  OPT_T4,
  OPT_T1,
  OPT_KERNEL_TUNER,
  OPT_TRIED,
  OPT_VERSION
};
static const struct option options[] = {
    {"db", required_argument, NULL, OPT_DB},
    {"json", required_argument, NULL, OPT_JSON},
    {"output", required_argument, NULL, 'o'},
    {"failures", no_argument, NULL, OPT_FAILURES},
    {"wide", no_argument, NULL, OPT_WIDE},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"all", no_argument, NULL, OPT_ALL},
    {"problem", required_argument, NULL, OPT_PROBLEM},
    {"kind", required_argument, NULL, OPT_KIND},
    {"family", required_argument, NULL, OPT_FAMILY},
    {"gpu", required_argument, NULL, OPT_GPU},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"before", required_argument, NULL, OPT_BEFORE},
    {"method-below", required_argument, NULL, OPT_METHOD_BELOW},
    {"arch", required_argument, NULL, OPT_ARCH},
    {"driver", required_argument, NULL, OPT_DRIVER},
    {"nvrtc", required_argument, NULL, OPT_NVRTC},
    {"cublaslt", required_argument, NULL, OPT_CUBLASLT},
    {"cudnn", required_argument, NULL, OPT_CUDNN},
    {"t4", no_argument, NULL, OPT_T4},
    {"t1", no_argument, NULL, OPT_T1},
    {"kernel-tuner", no_argument, NULL, OPT_KERNEL_TUNER},
    {"tried", no_argument, NULL, OPT_TRIED},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static bool take_version(char *out, size_t size, const char *value) {
  return (size_t)snprintf(out, size, "%s", value) < size;
}

/* An option of the environment of a lookup; false: it is another, or does not
 * fit. */
static bool take_environment(struct cuvil_env *env, int option,
                             const char *value) {
  switch (option) {
    case OPT_ARCH:
      return take_version(env->arch, sizeof env->arch, value);
    case OPT_DRIVER:
      return take_version(env->driver, sizeof env->driver, value);
    case OPT_NVRTC:
      return take_version(env->nvrtc, sizeof env->nvrtc, value);
    case OPT_CUBLASLT:
      return take_version(env->cublaslt, sizeof env->cublaslt, value);
    case OPT_CUDNN:
      return take_version(env->cudnn, sizeof env->cudnn, value);
    default:
      return false;
  }
}

/* One option; false: a value that cannot be. */
static bool take_option(struct db_request *ask, int option, char *value) {
  struct cuvil_db_filter *filter = &ask->filter;
  char *end;
  switch (option) {
    case OPT_DB:
      ask->db = value;
      return true;
    case OPT_JSON:
      ask->json = value;
      return true;
    case 'o':
      ask->output = value;
      return true;
    case OPT_FAILURES:
      ask->failures = true;
      return true;
    case OPT_WIDE:
      ask->wide = true;
      return true;
    case OPT_DRY_RUN:
      ask->dry_run = true;
      return true;
    case OPT_ALL:
      ask->everything = true;
      return true;
    case OPT_PROBLEM:
      filter->problem = value;
      return true;
    case OPT_KIND:
      filter->kind = value;
      return true;
    case OPT_FAMILY:
      filter->family = value;
      return true;
    case OPT_BEFORE:
      filter->before = value;
      return true;
    case OPT_T4:
      ask->format = "t4";
      return true;
    case OPT_T1:
      ask->format = "t1";
      return true;
    case OPT_KERNEL_TUNER:
      ask->format = "kernel-tuner";
      return true;
    case OPT_TRIED:
      ask->tried = true;
      return true;
    case OPT_GPU:
      filter->gpu = value;
      return take_version(ask->env.gpu, sizeof ask->env.gpu, value);
    case OPT_SOURCE:
      filter->source = value;
      return strcmp(value, "measured") == 0 || strcmp(value, "replayed") == 0;
    case OPT_METHOD_BELOW:
      filter->method_below = (int)strtol(value, &end, 10);
      return end != value && *end == '\0' && filter->method_below > 0;
    default:
      return take_environment(&ask->env, option, value);
  }
}

static bool has_filter(const struct cuvil_db_filter *f) {
  return f->problem || f->kind || f->family || f->gpu || f->source ||
         f->before || f->method_below > 0;
}

/* 0, or the exit status of wrong usage of export and import. */
static int check_exchange(const struct command *command,
                          const struct db_request *ask) {
  bool out = command->run == run_export;
  if (!ask->format)
    return cuvil_cli_misuse(COMMAND, "%s: name the format: --t4%s%s",
                            command->name, out ? ", --t1" : "",
                            " or --kernel-tuner");
  bool is_t1 = strcmp(ask->format, "t1") == 0;
  if (is_t1 && !out)
    return cuvil_cli_misuse(COMMAND, "%s",
                            "import: --t1 has no evidence; --t4 or "
                            "--kernel-tuner");
  if (out && strcmp(ask->format, "t4") != 0 &&
      (!ask->filter.problem || !ask->filter.family))
    return cuvil_cli_misuse(COMMAND,
                            "export: --%s is of one --family on one --problem",
                            ask->format);
  if (ask->tried && !is_t1)
    return cuvil_cli_misuse(COMMAND, "%s", "--tried goes with export --t1");
  if (out && is_t1 && !ask->env.arch[0])
    return cuvil_cli_misuse(COMMAND, "export: --t1 needs --arch: %s",
                            cuvil_arch_names());
  return 0;
}

/* 0, or the exit status of wrong usage. */
static int check_usage(const struct command *command,
                       const struct db_request *ask) {
  if (ask->operand_count < command->least)
    return cuvil_cli_misuse(COMMAND, "%s: an argument is missing",
                            command->name);
  if (ask->operand_count > command->most)
    return cuvil_cli_misuse(COMMAND, "%s is one argument too many",
                            ask->operands[command->most]);
  if (command->run == run_export || command->run == run_import) {
    int code = check_exchange(command, ask);
    if (code != 0) return code;
  }
  if (strcmp(command->name, "prune") == 0 &&
      has_filter(&ask->filter) == ask->everything)
    return cuvil_cli_misuse(
        COMMAND, "prune: %s",
        ask->everything ? "--all and a filter do not go together"
                        : "name what to remove by a filter, or say --all");
  return 0;
}

static void usage(void) {
  fputs(help, stdout);
}

/* The options up to the operands; -1: go on, else the exit status. */
static int parse(int argc, char **argv, struct db_request *ask) {
  enum cuvil_log_level level = CUVIL_LOG_NORMAL;
  int option;
  for (;;) {
    int done = cuvil_cli_option(COMMAND, argc, argv, ":o:vqh", options,
                                OPT_VERSION, usage, &option);
    if (done >= 0) return done;
    if (option == -1) break;
    if (option == 'v')
      level = CUVIL_LOG_VERBOSE;
    else if (option == 'q')
      level = CUVIL_LOG_QUIET;
    else if (!take_option(ask, option, optarg))
      return cuvil_cli_misuse(COMMAND, "'%s' is not a value of that option",
                              optarg);
  }
  cuvil_log_setup(COMMAND, level);
  ask->operands = argv + optind;
  ask->operand_count = argc - optind;
  return -1;
}

/* A space is known without evidence. */
static bool needs_database(const struct command *command,
                           const struct db_request *ask) {
  return command->run != run_export || strcmp(ask->format, "t1") != 0 ||
         ask->tried;
}

int main(int argc, char **argv) {
  struct db_request ask = {0};
  int code = parse(argc, argv, &ask);
  if (code >= 0) return code;
  if (ask.operand_count == 0)
    return cuvil_cli_misuse(COMMAND, "%s", "name a command");
  const char *name = ask.operands[0];
  ask.operands++;
  ask.operand_count--;
  const struct command *command = NULL;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    if (strcmp(commands[i].name, name) == 0) command = &commands[i];
  }
  if (!command) return cuvil_cli_misuse(COMMAND, "'%s' is not a command", name);
  code = check_usage(command, &ask);
  if (code != 0) return code;
  struct cuvil_db *db = NULL;
  struct cuvil_buf problem = {0}, signature = {0};
  enum cuvil_status status = CUVIL_OK;
  if (ask.filter.problem) {
    status = db_report_canonical(ask.filter.problem, &problem, &signature);
    ask.filter.problem = cuvil_buf_text(&problem);
  }
  if (status == CUVIL_OK && needs_database(command, &ask))
    status = cuvil_db_open(ask.db, command->mode, &db);
  if (status == CUVIL_OK) status = command->run(db, &ask);
  cuvil_db_close(db);
  cuvil_buf_free(&problem);
  cuvil_buf_free(&signature);
  if (status == CUVIL_OK && fflush(stdout) != 0)
    status = CUVIL_FAIL(CU_ERR_IO, "standard output cannot be written");
  return cuvil_cli_exit(status);
}
