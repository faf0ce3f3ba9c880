/* ordered.c - the best predicted first, then around the fastest.
 *
 * Two batches, so that the first can be compiled for all problems at once: a
 * prediction finds the region (a share is taken by chance, because it is only
 * a guess), measuring finds the point: what differs in one parameter from the
 * fastest three, best predicted first.
 */
#include <stdlib.h>

#include "tuner/strategy.h"

enum { EXPLORE, REFINE };
enum { PARENTS = 3 };

/* The best predicted untaken sites one parameter away from each of the fastest
 * in turn. */
static void refine(struct cuvil_chooser *chooser, int most) {
  int parents[PARENTS], next[PARENTS] = {0};
  int count = cuvil_chooser_fastest(chooser, PARENTS, parents);
  for (bool more = true; more && most > 0;) {
    more = false;
    for (int p = 0; p < count && most > 0; p++) {
      const struct cuvil_site *parent = &chooser->sites[parents[p]];
      while (next[p] < chooser->count &&
             (chooser->taken[next[p]] ||
              cuvil_site_distance(&chooser->sites[next[p]], parent) != 1))
        next[p]++;
      if (next[p] == chooser->count) continue;
      cuvil_chooser_take(chooser, next[p]);
      most--;
      more = true;
    }
  }
}

static enum cuvil_status ask(struct cuvil_chooser *chooser, int most) {
  const double *option = chooser->strategy->option;
  int refined = (int)option[REFINE];
  bool refines = refined > 0 && chooser->limit >= 2 * refined &&
                 chooser->limit < chooser->count;
  if (refines && chooser->told_count > 0) {
    if (chooser->told_count == chooser->taken_count) refine(chooser, most);
    return CUVIL_OK;
  }
  int total = chooser->limit - (refines ? refined : 0);
  int wanted = total - chooser->taken_count;
  if (wanted <= 0) return CUVIL_OK;
  if (wanted > most) wanted = most;
  int chance = (int)(option[EXPLORE] * total);
  int end = chooser->taken_count + wanted;
  if (wanted > chance)
    CUVIL_TRY(cuvil_chooser_take_predicted(chooser, wanted - chance, false));
  return cuvil_chooser_take_random(chooser, end - chooser->taken_count);
}

const struct cuvil_strategy_ops cuvil_strategy_ordered = {
    .name = "ordered",
    .about =
        "best predicted first, a share by chance (explore), the last "
        "refine trials around the fastest",
    .options = {{"explore", 0, 1, 0.25},
                {"refine", 0, 1000, 12},
                {NULL, 0, 0, 0}},
    .ask = ask};
