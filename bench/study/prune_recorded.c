/* prune_recorded.c - what pruning leaves of recorded points, and what it costs.
 *
 *   prune_recorded [--half fit|judge] RECORDING...
 *
 * For every table of a recording (study.h), of the points that compile, launch
 * and verify: how many there are, how many heuristic rules and spills leave,
 * and the fastest left over the fastest of all.  "space" is the same factor
 * counted over the whole space by an even sample: a recording has more than
 * its share of what rules allow (exhaustive.c).  Where the fastest left is more
 * than 1 % slower, the rules that remove something faster than it are named,
 * with how many such points each removes and the fastest of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/study/study.h"

struct sums {
  double log_factor, log_space, worst;
  int tables, bad;
};

/* The rule that removes a point; spills are one. */
static const char *removed_by(const struct study_table *table, int i) {
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  struct cuvil_derived derived;
  int rule = -1;
  if (cuvil_family_space(table->family, &space) != CUVIL_OK) return "?";
  struct cuvil_query query = {table->problem, table->arch, space};
  cuvil_space_point(space, table->points->points[i].order, &config);
  if (!table->sites[i].first &&
      !cuvil_family_allows(table->family, &query, &config, true, &derived,
                           &rule))
    return rule >= 0 ? space->rules[rule].name : "derive";
  if (table->records[i]->compiled.spill_bytes > 0 && !table->sites[i].first)
    return "spill";
  return NULL;
}

static enum cuvil_status space_factor(const struct study_table *table,
                                      double *out) {
  const struct cuvil_walk_options options = {.families = table->family->id,
                                             .heuristics = true,
                                             .limit = 1 << 16,
                                             .seed = 1};
  struct cuvil_candidates list = {0};
  CUVIL_TRY(
      cuvil_candidates_walk(table->problem, table->arch, &options, &list));
  uint64_t valid = 0, allowed = 0;
  for (int i = 0; i < list.walk_count; i++)
    cuvil_walk_estimate(&list.walks[i], &valid, &allowed);
  *out = (double)valid / fmax(1, (double)allowed);
  cuvil_candidates_free(&list);
  return CUVIL_OK;
}

static void name_rules(const struct study_table *table, double left) {
  char named[64][64];
  int count = 0;
  for (int i = 0; i < table->count; i++) {
    const char *rule = table->seconds[i] < left ? removed_by(table, i) : NULL;
    bool known = !rule;
    for (int n = 0; n < count && !known; n++)
      known = strcmp(named[n], rule) == 0;
    if (known || count == 64) continue;
    snprintf(named[count++], sizeof named[0], "%s", rule);
    int points = 0;
    double best = INFINITY;
    int at = i;
    for (int k = 0; k < table->count; k++) {
      const char *other =
          table->seconds[k] < left ? removed_by(table, k) : NULL;
      if (!other || strcmp(other, rule) != 0) continue;
      points++;
      if (table->seconds[k] < best) best = table->seconds[k], at = k;
    }
    printf("    %-24s removes %3d faster, best %.3fx of the fastest left: %s\n",
           rule, points, best / left, table->records[at]->config);
  }
}

static enum cuvil_status one_table(void *user,
                                   const struct study_table *table) {
  struct sums *sums = user;
  double left = INFINITY, space = 1;
  int ran = 0, kept = 0;
  if (!table->family) return CUVIL_OK;
  for (int i = 0; i < table->count; i++) {
    if (!isfinite(table->seconds[i])) continue;
    ran++;
    if (removed_by(table, i)) continue;
    kept++;
    left = fmin(left, table->seconds[i]);
  }
  CUVIL_TRY(space_factor(table, &space));
  double ratio = left / table->optimum;
  printf("%-5s %-34s %4d ran %4d left %6.1fx  space %7.1fx  best left %.4f%s\n",
         table->judges ? "judge" : "fit", table->name, ran, kept,
         (double)ran / fmax(1, kept), space, ratio,
         ratio > 1.01 ? "  OVER 1 %" : "");
  if (ratio > 1.01) name_rules(table, left);
  sums->log_factor += log((double)ran / fmax(1, kept));
  sums->log_space += log(space);
  sums->worst = fmax(sums->worst, ratio);
  sums->bad += ratio > 1.01;
  sums->tables++;
  return CUVIL_OK;
}

struct half {
  struct sums sums;
  const char *name;
};

static enum cuvil_status of_half(void *user, const struct study_table *table) {
  struct half *half = user;
  if (half->name && strcmp(half->name, table->judges ? "judge" : "fit") != 0)
    return CUVIL_OK;
  return one_table(&half->sums, table);
}

int main(int argc, char **argv) {
  struct half half = {{0}, NULL};
  int first = 1;
  if (argc > 2 && strcmp(argv[1], "--half") == 0) {
    half.name = argv[2];
    first = 3;
  }
  if (first >= argc) {
    fputs("usage: prune_recorded [--half fit|judge] RECORDING...\n", stderr);
    return 2;
  }
  for (int i = first; i < argc; i++) {
    if (study_each_table(argv[i], of_half, &half) == CUVIL_OK) continue;
    fprintf(stderr, "prune_recorded: %s\n", cuvil_last_error());
    return 1;
  }
  if (half.sums.tables)
    printf(
        "%d tables: geomean %.1fx of what is recorded, %.1fx of the spaces; "
        "worst best left %.4f; %d over 1 %%\n",
        half.sums.tables, exp(half.sums.log_factor / half.sums.tables),
        exp(half.sums.log_space / half.sums.tables), half.sums.worst,
        half.sums.bad);
  return 0;
}
