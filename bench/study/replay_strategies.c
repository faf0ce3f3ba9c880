/* replay_strategies.c - every search strategy, many seeds, on recordings and on
 * other programs' tables of results.
 *
 *   replay_strategies [--seeds N] [--trials N] [--strategy NAME]...
 *                     [--half fit|judge] [--tables DIR] FILE...
 *
 * One line an improvement:
 *   table <tab> strategy <tab> seed <tab> trial <tab> best/optimum <tab>
 * seconds trial counts asked configurations, failed ones too; seconds are their
 * compile times as recorded, added up.  A line of trial 0 tells how many were
 * asked for in all.  bench/study/study.py reads them.
 *
 * A table is one own family on one problem of a recording, or one file of
 * Kernel Tuner.  Of a recording's problems those of even index are the fit
 * half, by which strategies and rules are chosen, the others judge.  Our
 * strategies choose from the points that heuristic rules allow, as in a tune;
 * "NAME/all" lets one choose from everything recorded.  --tables writes each
 * table with all that is recorded in Kernel Tuner's cache format, for its own
 * strategies (kernel_tuner_strategies.py).
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/study/study.h"
#include "tuner/strategy.h"

struct arguments {
  int seeds, trials;
  const char *strategies[32];
  int strategy_count;
  const char *half, *tables;
};

/* One search; prints its improvements. */
static enum cuvil_status play(const struct study_table *table, bool all,
                              const char *label,
                              const struct cuvil_strategy *strategy, int seed,
                              int trials) {
  struct cuvil_site *sites = calloc((size_t)table->count + 1, sizeof *sites);
  int *rows = calloc((size_t)table->count + 1, sizeof *rows);
  int *asked = calloc((size_t)table->count + 1, sizeof *asked);
  struct cuvil_chooser *chooser = NULL;
  enum cuvil_status status = CUVIL_OK;
  int count = 0, trial = 0, batch = 0;
  double best = INFINITY, seconds = 0;
  if (!sites || !rows || !asked)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to replay"));
  for (int i = 0; i < table->count; i++)
    if (all || table->sites[i].allowed) {
      rows[count] = i;
      sites[count++] = table->sites[i];
    }
  CUVIL_TRY_GOTO(cuvil_chooser_create(strategy, sites, count, trials,
                                      (uint64_t)seed, &chooser));
  for (;;) {
    CUVIL_TRY_GOTO(cuvil_chooser_ask(chooser, count, asked, &batch));
    if (batch == 0) break;
    for (int i = 0; i < batch; i++) {
      int row = rows[asked[i]];
      trial++;
      seconds += table->cost[row];
      cuvil_chooser_tell(chooser, asked[i], table->seconds[row]);
      if (!(table->seconds[row] < best)) continue;
      best = table->seconds[row];
      printf("%s\t%s\t%d\t%d\t%.6f\t%.4f\n", table->name, label, seed, trial,
             best / table->optimum, seconds);
    }
  }
  printf("%s\t%s\t%d\t0\t%d\t%.4f\n", table->name, label, seed, trial, seconds);
fail:
  cuvil_chooser_destroy(chooser);
  free(sites);
  free(rows);
  free(asked);
  return status;
}

static enum cuvil_status play_all(const struct arguments *arguments,
                                  const struct study_table *table) {
  for (int s = 0; s < arguments->strategy_count; s++) {
    char text[128];
    struct cuvil_strategy strategy;
    snprintf(text, sizeof text, "%s", arguments->strategies[s]);
    char *slash = strstr(text, "/all");
    if (slash) *slash = '\0';
    CUVIL_TRY(cuvil_strategy_parse(text, &strategy));
    for (int seed = 0; seed < arguments->seeds; seed++)
      CUVIL_TRY(play(table, slash != NULL, arguments->strategies[s], &strategy,
                     seed, arguments->trials));
  }
  return CUVIL_OK;
}

static enum cuvil_status one_table(void *user,
                                   const struct study_table *table) {
  const struct arguments *arguments = user;
  if (arguments->half &&
      strcmp(arguments->half, table->judges ? "judge" : "fit") != 0)
    return CUVIL_OK;
  if (arguments->tables) CUVIL_TRY(study_table_write(table, arguments->tables));
  return play_all(arguments, table);
}

static int usage(void) {
  fputs(
      "usage: replay_strategies [--seeds N] [--trials N] [--strategy NAME]... "
      "[--half fit|judge]\n"
      "                         [--tables DIR] RECORDING|TABLE...\n",
      stderr);
  return 2;
}

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"seeds", required_argument, NULL, 's'},
      {"trials", required_argument, NULL, 't'},
      {"strategy", required_argument, NULL, 'n'},
      {"half", required_argument, NULL, 'h'},
      {"tables", required_argument, NULL, 'T'},
      {NULL, 0, NULL, 0}};
  struct arguments arguments = {.seeds = 50, .trials = 150};
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (c == 's')
      arguments.seeds = atoi(optarg);
    else if (c == 't')
      arguments.trials = atoi(optarg);
    else if (c == 'n' && arguments.strategy_count < 32)
      arguments.strategies[arguments.strategy_count++] = optarg;
    else if (c == 'h')
      arguments.half = optarg;
    else if (c == 'T')
      arguments.tables = optarg;
    else
      return usage();
  }
  if (optind == argc || arguments.seeds < 1 || arguments.trials < 1)
    return usage();
  for (int i = optind; i < argc; i++) {
    if (study_each_table(argv[i], one_table, &arguments) == CUVIL_OK) continue;
    fprintf(stderr, "replay_strategies: %s\n", cuvil_last_error());
    return 1;
  }
  return 0;
}
