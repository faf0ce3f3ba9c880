/* evolve.c - a genetic search over what was measured.
 *
 * The population is the fastest sites so far.  A child takes each parameter
 * from one of two parents, changes some by chance, and becomes the nearest
 * site that is untried.  The first generation is half the best predicted, half
 * chance.
 */
#include <string.h>

#include "tuner/strategy.h"

enum { POPULATION, MUTATE, BATCH };
enum { POPULATION_MOST = 64 };

/* The better of two by chance; `fastest` is in order. */
static int tournament(struct cuvil_rng *rng, int count) {
  int a = (int)cuvil_rng_below(rng, (uint64_t)count);
  int b = (int)cuvil_rng_below(rng, (uint64_t)count);
  return a < b ? a : b;
}

static int child(struct cuvil_chooser *chooser, const int *fastest, int count,
                 double mutate) {
  struct cuvil_rng *rng = &chooser->rng;
  const struct cuvil_site *a = &chooser->sites[fastest[tournament(rng, count)]];
  const struct cuvil_site *b = &chooser->sites[fastest[tournament(rng, count)]];
  unsigned char digit[CUVIL_MAX_PARAMS];
  memcpy(digit, a->digit, sizeof digit);
  for (int p = 0; p < a->params; p++) {
    if (a->group == b->group && cuvil_rng_below(rng, 2)) digit[p] = b->digit[p];
    if (cuvil_rng_uniform(rng) * a->params >= mutate) continue;
    /* A value that some site has. */
    for (int tries = 0; tries < 8; tries++) {
      const struct cuvil_site *other =
          &chooser->sites[cuvil_rng_below(rng, (uint64_t)chooser->count)];
      if (other->group != a->group) continue;
      digit[p] = other->digit[p];
      break;
    }
  }
  return cuvil_chooser_nearest(chooser, a->group, digit);
}

static enum cuvil_status ask(struct cuvil_chooser *chooser, int most) {
  const double *option = chooser->strategy->option;
  int fastest[POPULATION_MOST], population = (int)option[POPULATION];
  if (chooser->taken_count < population) {
    int missing = population - chooser->taken_count;
    if (missing > most) missing = most;
    CUVIL_TRY(cuvil_chooser_take_predicted(chooser, missing / 2, false));
    return cuvil_chooser_take_random(chooser, missing - missing / 2);
  }
  if (chooser->told_count < chooser->taken_count) return CUVIL_OK;
  if (most > (int)option[BATCH]) most = (int)option[BATCH];
  int count = cuvil_chooser_fastest(chooser, population, fastest);
  for (int i = 0; i < most; i++) {
    int next = count > 0 ? child(chooser, fastest, count, option[MUTATE]) : -1;
    if (next < 0) return cuvil_chooser_take_random(chooser, most - i);
    cuvil_chooser_take(chooser, next);
  }
  return CUVIL_OK;
}

const struct cuvil_strategy_ops cuvil_strategy_evolve = {
    .name = "evolve",
    .about = "a genetic search; mutate parameters of a child change by chance",
    .options = {{"population", 2, POPULATION_MOST, 12},
                {"mutate", 0, 24, 1},
                {"batch", 1, 1000, 4},
                {NULL, 0, 0, 0}},
    .ask = ask};
