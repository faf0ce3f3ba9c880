/* tune_dry.c - what a tune would try, without a GPU: spaces and pruning.
 *
 * --explain adds, family by family, how many points each rule removed, over
 * all problems; a point is counted under the first rule that it breaks.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/tune_report.h"

struct total { /* of one family over all problems */
  struct cuvil_walk walk;
  int problems;
};

static enum cuvil_status add_walk(struct total *totals, int *count,
                                  const struct cuvil_walk *walk) {
  int at = 0;
  size_t rules = (size_t)walk->space->rule_count + 1;
  while (at < *count && totals[at].walk.family != walk->family)
    at++;
  struct total *total = &totals[at];
  if (at == *count) {
    *total = (struct total){.walk.family = walk->family,
                            .walk.space = walk->space,
                            .walk.removed = calloc(rules, sizeof(uint64_t))};
    if (!total->walk.removed)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to explain");
    ++*count;
  }
  total->problems++;
  total->walk.points += walk->points;
  total->walk.examined += walk->examined;
  total->walk.valid += walk->valid;
  total->walk.allowed += walk->allowed;
  for (size_t i = 0; i < rules; i++)
    total->walk.removed[i] += walk->removed[i];
  return CUVIL_OK;
}

static void print_total(FILE *to, const struct total *total) {
  const struct cuvil_walk *walk = &total->walk;
  fprintf(to, " %s: %d problem%s, %llu points", walk->family->id,
          total->problems, total->problems == 1 ? "" : "s",
          (unsigned long long)walk->points);
  if (walk->examined < walk->points)
    fprintf(to, " (%llu examined, a fixed sample)",
            (unsigned long long)walk->examined);
  fprintf(to, " -> %llu valid -> %llu allowed\n",
          (unsigned long long)walk->valid, (unsigned long long)walk->allowed);
  for (int i = 0; i < walk->space->rule_count; i++) {
    const struct cuvil_rule *rule = &walk->space->rules[i];
    if (walk->removed[i])
      fprintf(to, "  %10llu  %-24s %-9s  %s\n",
              (unsigned long long)walk->removed[i], rule->name,
              rule->hard ? "hard" : "heuristic", rule->reason);
  }
  if (walk->removed[walk->space->rule_count])
    fprintf(to, "  %10llu  %-24s %-9s  the family cannot do it\n",
            (unsigned long long)walk->removed[walk->space->rule_count],
            "derive", "hard");
}

static enum cuvil_status one_problem(FILE *to,
                                     const struct cuvil_tune_options *options,
                                     const struct cuvil_arch *arch,
                                     const char *text, bool table,
                                     struct total *totals, int *total_count,
                                     uint64_t sums[4]) {
  struct cuvil_problem problem;
  struct cuvil_candidates list = {0};
  struct cuvil_walk_options walk = {
      .families = options->families,
      .heuristics = !options->strategy.ops->exhaustive,
      .limit = options->walk_limit,
      .seed = options->seed};
  uint64_t here[3] = {0};
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(cuvil_problem_parse(text, &problem));
  CUVIL_TRY(cuvil_candidates_walk(&problem, arch, &walk, &list));
  CUVIL_TRY_GOTO(cuvil_candidates_choose(&list, &problem, arch,
                                         &options->strategy,
                                         options->max_trials, options->seed));
  for (int i = 0; i < list.walk_count; i++) {
    const struct cuvil_walk *w = &list.walks[i];
    uint64_t valid, allowed;
    cuvil_walk_estimate(w, &valid, &allowed);
    here[0] += w->points;
    here[1] += valid;
    here[2] += allowed;
    CUVIL_TRY_GOTO(add_walk(totals, total_count, w));
  }
  for (int i = 0; i < 3; i++)
    sums[i] += here[i];
  sums[3] += (uint64_t)list.count;
  if (table)
    fprintf(to, " %-60.60s%10llu%10llu%10llu%8d\n", text,
            (unsigned long long)here[0], (unsigned long long)here[1],
            (unsigned long long)here[2], list.count);
fail:
  cuvil_candidates_free(&list);
  return status;
}

enum cuvil_status cuvil_tune_dry_run(FILE *to,
                                     const struct cuvil_tune_options *options,
                                     const struct cuvil_arch *arch,
                                     const struct cuvil_tune_problem *problems,
                                     int count, bool explain, bool table) {
  int total_count = 0;
  uint64_t sums[4] = {0};
  enum cuvil_status status = CUVIL_OK;
  struct total *totals =
      calloc((size_t)cuvil_family_count() + 1, sizeof *totals);
  if (!totals) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to walk");
  if (table)
    fprintf(to, " %-60s%10s%10s%10s%8s\n", "problem", "points", "valid",
            "allowed", "to try");
  for (int i = 0; i < count; i++)
    CUVIL_TRY_GOTO(one_problem(to, options, arch, problems[i].text, table,
                               totals, &total_count, sums));
  if (explain)
    for (int i = 0; i < total_count; i++)
      print_total(to, &totals[i]);
  if (table)
    fprintf(to,
            "space %llu points -> %llu valid -> %llu after arch rules (%.1fx) "
            "-> %llu to compile on %s\n",
            (unsigned long long)sums[0], (unsigned long long)sums[1],
            (unsigned long long)sums[2],
            sums[2] ? (double)sums[1] / (double)sums[2] : 0,
            (unsigned long long)sums[3], arch->name);
fail:
  for (int i = 0; i < total_count; i++)
    free(totals[i].walk.removed);
  free(totals);
  return status;
}

void cuvil_tune_list_families(FILE *to) {
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *family = cuvil_family_at(i);
    char kinds[128] = "";
    for (int k = 0; k < CUVIL_KIND_COUNT; k++) {
      if (!(family->kinds & (1u << k))) continue;
      size_t n = strlen(kinds);
      snprintf(kinds + n, sizeof kinds - n, "%s%s", n ? "," : "",
               cuvil_kind_name((enum cuvil_kind)k));
    }
    fprintf(to, "%-18s %-24s %-9s v%-3d %s\n", family->id, kinds,
            family->library     ? family->library
            : family->reference ? "reference"
                                : "own",
            family->version, family->about);
  }
}

void cuvil_tune_list_strategies(FILE *to) {
  for (int i = 0; cuvil_strategies[i]; i++) {
    const struct cuvil_strategy_ops *ops = cuvil_strategies[i];
    fprintf(to, "%-12s %s%s\n", ops->name, ops->about,
            i == 0 ? "; the default" : "");
    for (int o = 0; ops->options[o].name; o++)
      fprintf(to, "%-12s   %s=%g (%g to %g)\n", "", ops->options[o].name,
              ops->options[o].fallback, ops->options[o].least,
              ops->options[o].most);
  }
}
