/* local.c - from a few starts to the nearest neighbours of the fastest.
 *
 * Best-first local search: the untried point nearest to the fastest one is
 * next, until `patience` tries around a point brought nothing faster; then the
 * next fastest has its turn.  Uses no predictions.
 */
#include <math.h>

#include "tuner/strategy.h"

enum { STARTS, PATIENCE, BATCH };

/* Tried sites nearest to the k-th fastest that were slower than it: its turn
 * is over when they are `patience`. */
static int tried_around(const struct cuvil_chooser *chooser, int site) {
  int count = 0;
  for (int i = 0; i < chooser->count; i++)
    count +=
        chooser->taken[i] && i != site &&
        cuvil_site_distance(&chooser->sites[i], &chooser->sites[site]) <= 2;
  return count;
}

static enum cuvil_status ask(struct cuvil_chooser *chooser, int most) {
  enum { RANKS = 32 };
  const double *option = chooser->strategy->option;
  int fastest[RANKS];
  if (chooser->taken_count < (int)option[STARTS]) {
    int missing = (int)option[STARTS] - chooser->taken_count;
    return cuvil_chooser_take_random(chooser, missing < most ? missing : most);
  }
  if (chooser->told_count < chooser->taken_count) return CUVIL_OK;
  if (most > (int)option[BATCH]) most = (int)option[BATCH];
  int count = cuvil_chooser_fastest(chooser, RANKS, fastest);
  int centre = -1;
  for (int i = 0; i < count && centre < 0; i++)
    if (tried_around(chooser, fastest[i]) < (int)option[PATIENCE])
      centre = fastest[i];
  for (int i = 0; i < most; i++) {
    const struct cuvil_site *from = &chooser->sites[centre < 0 ? 0 : centre];
    int next = centre < 0
                   ? -1
                   : cuvil_chooser_nearest(chooser, from->group, from->digit);
    if (next < 0) return cuvil_chooser_take_random(chooser, most - i);
    cuvil_chooser_take(chooser, next);
  }
  return CUVIL_OK;
}

const struct cuvil_strategy_ops cuvil_strategy_local = {
    .name = "local",
    .about = "starts by chance, then the nearest neighbours of the fastest",
    .options = {{"starts", 1, 1000, 8},
                {"patience", 1, 1000, 24},
                {"batch", 1, 1000, 4},
                {NULL, 0, 0, 0}},
    .ask = ask};
