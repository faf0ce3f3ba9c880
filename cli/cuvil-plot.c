/* cuvil-plot - pictures of what the tuning database holds.
 *
 * Parses the line and hands over: reading rows, tables and scripts are in
 * plots/.  What a problem's work is comes from here, for plots/ knows nothing
 * of problems.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "cli/db_report.h"
#include "plots/plot.h"
#include "problem/problem.h"

#define COMMAND "cuvil-plot"

static const char help[] =
    "Usage: cuvil-plot KIND [OPTION]...\n"
    "Draws what the tuning database holds, by gnuplot.  The script (.gp) and "
    "its\n"
    "table (.dat) stay beside the picture: edit, and draw again with gnuplot.\n"
    "\n"
    "Kinds:\n"
    "  roofline       rate against arithmetic intensity: each problem, by "
    "family\n"
    "  convergence    best time so far against candidates tried\n"
    "  distribution   of one problem: times of all candidates, and how those "
    "of\n"
    "                 the final race vary\n"
    "  space          of one problem and family: best time over two "
    "parameters\n"
    "  history        winners' times by date and environment\n"
    "  fusion         (needs `cuvil-bench fusion`, which is not there yet)\n"
    "\n"
    "Options:\n"
    "  -o, --output FILE    .png, .svg or .pdf (default: KIND.png)\n"
    "  --db FILE            default: $CUVIL_DB, else\n"
    "                       ${XDG_CACHE_HOME:-~/.cache}/cuvil/cuvil.db\n"
    "  --x NAME  --y NAME   space: parameters of the family (default: those "
    "with\n"
    "                       most values)\n"
    "  -v, --verbose   -q, --quiet   -h, --help   --version\n"
    "Which rows (all given must hold):\n"
    "  --problem TEXT  --kind gemm|conv|...  --family ID  --gpu NAME\n"
    "  --source measured|replayed\n"
    "\n"
    "Examples:\n"
    "  cuvil-plot roofline\n"
    "  cuvil-plot convergence --kind conv -o conv.svg\n"
    "  cuvil-plot space --x tile_m --y tile_n -o space.pdf \\\n"
    "    --problem 'gemm/1 m=1024 n=1024 k=1024 a=f16[m,k] b=f16[n,k] "
    "c=f16[m,n]\n"
    "    acc=f32'\n"
    "\n"
    "Exit status: 0 drawn, 1 failed, 2 wrong usage.\n";

enum {
  OPT_DB = 256,
  OPT_X,
  OPT_Y,
  OPT_PROBLEM,
  OPT_KIND,
  OPT_FAMILY,
  OPT_GPU,
  OPT_SOURCE,
  OPT_VERSION
};
static const struct option options[] = {
    {"db", required_argument, NULL, OPT_DB},
    {"output", required_argument, NULL, 'o'},
    {"x", required_argument, NULL, OPT_X},
    {"y", required_argument, NULL, OPT_Y},
    {"problem", required_argument, NULL, OPT_PROBLEM},
    {"kind", required_argument, NULL, OPT_KIND},
    {"family", required_argument, NULL, OPT_FAMILY},
    {"gpu", required_argument, NULL, OPT_GPU},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static enum cuvil_status work(const char *problem, double *out_flops,
                              double *out_bytes) {
  struct cuvil_problem parsed;
  CUVIL_TRY(cuvil_problem_parse(problem, &parsed));
  *out_flops = cuvil_problem_flops(&parsed);
  *out_bytes = cuvil_problem_bytes(&parsed);
  return CUVIL_OK;
}

static void usage(void) {
  fputs(help, stdout);
}

/* One option; false: a value that cannot be. */
static bool take_option(struct cuvil_plot_request *ask, const char **db,
                        int option, const char *value) {
  switch (option) {
    case OPT_DB:
      *db = value;
      return true;
    case 'o':
      ask->output = value;
      return cuvil_plot_is_picture(value);
    case OPT_X:
      ask->x = value;
      return true;
    case OPT_Y:
      ask->y = value;
      return true;
    case OPT_PROBLEM:
      ask->filter.problem = value;
      return true;
    case OPT_KIND:
      ask->filter.kind = value;
      return true;
    case OPT_FAMILY:
      ask->filter.family = value;
      return true;
    case OPT_GPU:
      ask->filter.gpu = value;
      return true;
    default: /* OPT_SOURCE */
      ask->filter.source = value;
      return strcmp(value, "measured") == 0 || strcmp(value, "replayed") == 0;
  }
}

/* The whole line; -1: go on, else the exit status. */
static int parse(int argc, char **argv, struct cuvil_plot_request *ask,
                 const char **db) {
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
    else if (!take_option(ask, db, option, optarg))
      return cuvil_cli_misuse(COMMAND, "'%s' is not a value of that option%s",
                              optarg,
                              option == 'o' ? " (.png, .svg or .pdf)" : "");
  }
  cuvil_log_setup(COMMAND, level);
  if (optind == argc)
    return cuvil_cli_misuse(COMMAND, "name a kind: %s", cuvil_plot_kinds());
  if (optind + 1 < argc)
    return cuvil_cli_misuse(COMMAND, "%s is one argument too many",
                            argv[optind + 1]);
  ask->kind = argv[optind];
  if (strcmp(ask->kind, "fusion") != 0 && !cuvil_plot_is_kind(ask->kind))
    return cuvil_cli_misuse(COMMAND, "'%s' is not a kind: %s", ask->kind,
                            cuvil_plot_kinds());
  if ((ask->x || ask->y) && strcmp(ask->kind, "space") != 0)
    return cuvil_cli_misuse(COMMAND, "--x and --y are options of space");
  return -1;
}

static enum cuvil_status draw(struct cuvil_plot_request *ask,
                              const char *path) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_db *db = NULL;
  struct cuvil_buf problem = {0}, signature = {0};
  if (strcmp(ask->kind, "fusion") == 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "fusion: the database holds no times of whole models by "
                      "strategy; compile once with each cuvil-compile "
                      "--fusion and time the plans with cuvil-run");
  if (ask->filter.problem) {
    CUVIL_TRY_GOTO(
        db_report_canonical(ask->filter.problem, &problem, &signature));
    ask->filter.problem = cuvil_buf_text(&problem);
  }
  CUVIL_TRY_GOTO(cuvil_db_open(path, CUVIL_DB_READ, &db));
  CUVIL_TRY_GOTO(cuvil_plot_draw(db, ask));
  printf("%s (script and table beside it)\n", ask->output);
fail:
  cuvil_db_close(db);
  cuvil_buf_free(&problem);
  cuvil_buf_free(&signature);
  return status;
}

int main(int argc, char **argv) {
  struct cuvil_plot_request ask = {.work = work};
  const char *db = NULL;
  char standard[32];
  int code = parse(argc, argv, &ask, &db);
  if (code >= 0) return code;
  if (!ask.output) {
    snprintf(standard, sizeof standard, "%s.png", ask.kind);
    ask.output = standard;
  }
  return cuvil_cli_exit(draw(&ask, db));
}
