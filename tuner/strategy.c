/* strategy.c - the list of strategies, and what they share. */
#include "tuner/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct cuvil_strategy_ops *const cuvil_strategies[] = {
    &cuvil_strategy_ordered,
    &cuvil_strategy_surrogate,
    &cuvil_strategy_evolve,
    &cuvil_strategy_local,
    &cuvil_strategy_random,
    &cuvil_strategy_exhaustive,
    NULL};

/* ---- options */
struct cuvil_strategy cuvil_strategy_of(const struct cuvil_strategy_ops *ops) {
  struct cuvil_strategy strategy = {.ops = ops};
  for (int i = 0; ops->options[i].name; i++)
    strategy.option[i] = ops->options[i].fallback;
  return strategy;
}

static enum cuvil_status parse_option(const char *text, const char **at,
                                      struct cuvil_strategy *out) {
  const struct cuvil_strategy_option *options = out->ops->options;
  size_t length = strcspn(*at, "=,");
  for (int i = 0; options[i].name && (*at)[length] == '='; i++) {
    char *end = NULL;
    if (strlen(options[i].name) != length ||
        strncmp(*at, options[i].name, length) != 0)
      continue;
    out->option[i] = strtod(*at + length + 1, &end);
    if (end == *at + length + 1 || (*end && *end != ',') ||
        !(out->option[i] >= options[i].least &&
          out->option[i] <= options[i].most))
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "--strategy %s: %s takes a number from %g to %g", text,
                        options[i].name, options[i].least, options[i].most);
    *at = end;
    return CUVIL_OK;
  }
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "--strategy %s: \"%s\" is not an option of it; see "
                    "--list-strategies",
                    text, *at);
}

enum cuvil_status cuvil_strategy_parse(const char *text,
                                       struct cuvil_strategy *out) {
  size_t length = strcspn(text, ":");
  *out = cuvil_strategy_of(cuvil_strategies[0]);
  const struct cuvil_strategy_ops *ops = NULL;
  for (int i = 0; cuvil_strategies[i]; i++)
    if (strlen(cuvil_strategies[i]->name) == length &&
        strncmp(text, cuvil_strategies[i]->name, length) == 0)
      ops = cuvil_strategies[i];
  if (!ops)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--strategy %s: there is no such strategy; see "
                      "--list-strategies",
                      text);
  *out = cuvil_strategy_of(ops);
  const char *at = text + length;
  while (*at) {
    at++; /* ':' or ',' */
    CUVIL_TRY(parse_option(text, &at, out));
  }
  return CUVIL_OK;
}

/* ---- a strategy at work */
enum cuvil_status cuvil_chooser_create(const struct cuvil_strategy *strategy,
                                       const struct cuvil_site *sites,
                                       int count, int limit, uint64_t seed,
                                       struct cuvil_chooser **out) {
  struct cuvil_chooser *chooser = calloc(1, sizeof *chooser);
  bool *taken = calloc((size_t)count + 1, sizeof *taken);
  double *seconds = malloc(((size_t)count + 1) * sizeof *seconds);
  *out = NULL;
  if (!chooser || !taken || !seconds) {
    free(chooser);
    free(taken);
    free(seconds);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  }
  for (int i = 0; i < count; i++)
    seconds[i] = NAN;
  *chooser = (struct cuvil_chooser){
      .strategy = strategy,
      .sites = sites,
      .count = count,
      .limit = limit > 0 && limit < count ? limit : count,
      .seed = seed,
      .rng = {seed ^ 0x9e3779b97f4a7c15u},
      .taken = taken,
      .seconds = seconds};
  *out = chooser;
  return CUVIL_OK;
}

void cuvil_chooser_destroy(struct cuvil_chooser *chooser) {
  if (!chooser) return;
  free(chooser->taken);
  free(chooser->seconds);
  free(chooser);
}

void cuvil_chooser_take(struct cuvil_chooser *chooser, int site) {
  chooser->taken_count += !chooser->taken[site];
  chooser->taken[site] = true;
}

enum cuvil_status cuvil_chooser_ask(struct cuvil_chooser *chooser, int most,
                                    int *out, int *out_count) {
  int limit = chooser->limit - chooser->taken_count;
  bool *before = NULL;
  *out_count = 0;
  if (most > limit) most = limit;
  if (most <= 0) return CUVIL_OK;
  before = malloc(((size_t)chooser->count + 1) * sizeof *before);
  if (!before) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  memcpy(before, chooser->taken, (size_t)chooser->count * sizeof *before);
  int wanted = chooser->taken_count + most;
  for (int i = 0; i < chooser->count && chooser->taken_count < wanted; i++)
    if (chooser->sites[i].first) cuvil_chooser_take(chooser, i);
  enum cuvil_status status = CUVIL_OK;
  if (chooser->taken_count < wanted)
    status =
        chooser->strategy->ops->ask(chooser, wanted - chooser->taken_count);
  for (int i = 0; i < chooser->count; i++)
    if (chooser->taken[i] && !before[i]) out[(*out_count)++] = i;
  free(before);
  return status;
}

void cuvil_chooser_tell(struct cuvil_chooser *chooser, int site,
                        double seconds) {
  chooser->told_count += isnan(chooser->seconds[site]);
  chooser->seconds[site] = seconds;
}

/* ---- for strategies */
int cuvil_site_distance(const struct cuvil_site *a,
                        const struct cuvil_site *b) {
  int distance = 0;
  if (a->group != b->group) return CUVIL_MAX_PARAMS + 1;
  for (int p = 0; p < a->params; p++)
    distance += a->digit[p] != b->digit[p];
  return distance;
}

enum cuvil_status cuvil_chooser_take_random(struct cuvil_chooser *chooser,
                                            int most) {
  int *rest = malloc(((size_t)chooser->count + 1) * sizeof *rest);
  int count = 0;
  if (!rest) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  for (int i = 0; i < chooser->count; i++)
    if (!chooser->taken[i]) rest[count++] = i;
  while (most-- > 0 && count > 0) {
    int at = (int)cuvil_rng_below(&chooser->rng, (uint64_t)count);
    cuvil_chooser_take(chooser, rest[at]);
    rest[at] = rest[--count];
  }
  free(rest);
  return CUVIL_OK;
}

enum { POOL_LEAST = 512 }; /* best predicted sites looked at */

enum cuvil_status cuvil_chooser_take_predicted(struct cuvil_chooser *chooser,
                                               int most, bool allowed) {
  const struct cuvil_site *sites = chooser->sites;
  int pool = most > POOL_LEAST / 4 ? 4 * most : POOL_LEAST, count = 0;
  int *index = malloc(((size_t)pool + 1) * sizeof *index);
  double *score = malloc(((size_t)pool + 1) * sizeof *score);
  if (!index || !score) {
    free(index);
    free(score);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  }
  for (int i = 0; i < chooser->count && count < pool; i++) {
    if (chooser->taken[i] || (allowed && !sites[i].allowed)) continue;
    score[count] = sites[i].predicted;
    index[count++] = i;
  }
  for (int i = 0; i < chooser->count; i++)
    for (int k = 0; chooser->taken[i] && k < count; k++)
      if (cuvil_site_distance(&sites[i], &sites[index[k]]) < 2)
        score[k] *= 1.05;
  while (most-- > 0) {
    int best = -1;
    for (int k = 0; k < count; k++)
      if (!chooser->taken[index[k]] && (best < 0 || score[k] < score[best]))
        best = k;
    if (best < 0) break;
    cuvil_chooser_take(chooser, index[best]);
    for (int k = 0; k < count; k++)
      if (cuvil_site_distance(&sites[index[best]], &sites[index[k]]) < 2)
        score[k] *= 1.05;
  }
  free(index);
  free(score);
  return CUVIL_OK;
}

int cuvil_chooser_fastest(const struct cuvil_chooser *chooser, int most,
                          int *out) {
  int count = 0;
  for (int i = 0; i < chooser->count; i++) {
    if (!isfinite(chooser->seconds[i])) continue;
    int at = count < most ? count++ : most;
    /* Insertion: the list is short. */
    while (at > 0 && chooser->seconds[i] < chooser->seconds[out[at - 1]]) {
      if (at < most) out[at] = out[at - 1];
      at--;
    }
    if (at < most) out[at] = i;
  }
  return count;
}

int cuvil_chooser_nearest(struct cuvil_chooser *chooser, int group,
                          const unsigned char *digit) {
  int best = -1, best_score = 0, equals = 0;
  for (int i = 0; i < chooser->count; i++) {
    const struct cuvil_site *site = &chooser->sites[i];
    int score = 0;
    if (chooser->taken[i] || site->group != group) continue;
    for (int p = 0; p < site->params; p++) {
      int steps = abs(site->digit[p] - digit[p]);
      if (steps) score += 1024 + (steps < 32 ? steps : 32);
    }
    if (best >= 0 && score > best_score) continue;
    equals = best >= 0 && score == best_score ? equals + 1 : 1;
    best_score = score;
    /* Each of the equally near with the same chance. */
    if (equals == 1 || cuvil_rng_below(&chooser->rng, (uint64_t)equals) == 0)
      best = i;
  }
  return best;
}
