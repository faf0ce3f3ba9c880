/* exhaustive.c - every point that can run; or, of more than may be tried, a
 * fixed sample of them.
 *
 * The sample is for recordings.  Its main part is drawn by chance from all
 * points that can run.  The points that rules and predictions think best are
 * so few among them that chance would miss nearly all, and a recording without
 * them could not say what the rules are worth: half of the rest is the best
 * predicted of what heuristic rules allow, half the best predicted of
 * everything.
 *
 * The part by chance is the sites with the lowest hashes: two problems of one
 * signature draw the same configurations where both can run them, which then
 * are compiled once.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "tuner/strategy.h"

enum { EXPLORE };

struct draw {
  uint64_t hash;
  int site;
};

static int by_hash(const void *left, const void *right) {
  const struct draw *a = left, *b = right;
  if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
  return a->site < b->site ? -1 : a->site > b->site;
}

static enum cuvil_status draw_sampled(struct cuvil_chooser *chooser, int most) {
  struct draw *draws = malloc(((size_t)chooser->count + 1) * sizeof *draws);
  int count = 0;
  if (!draws) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  for (int i = 0; i < chooser->count; i++) {
    const struct cuvil_site *site = &chooser->sites[i];
    if (!site->sampled || chooser->taken[i]) continue;
    draws[count++] = (struct draw){
        cuvil_hash64(&site->key, sizeof site->key, chooser->seed), i};
  }
  qsort(draws, (size_t)count, sizeof *draws, by_hash);
  for (int i = 0; i < count && i < most; i++)
    cuvil_chooser_take(chooser, draws[i].site);
  free(draws);
  return CUVIL_OK;
}

static enum cuvil_status ask(struct cuvil_chooser *chooser, int most) {
  if (chooser->limit == chooser->count) {
    for (int i = 0; i < chooser->count && most > 0; i++)
      if (!chooser->taken[i]) cuvil_chooser_take(chooser, i), most--;
    return CUVIL_OK;
  }
  int end = chooser->taken_count + most;
  int chance = (int)(chooser->strategy->option[EXPLORE] * most);
  CUVIL_TRY(draw_sampled(chooser, chance));
  CUVIL_TRY(cuvil_chooser_take_predicted(chooser, (most - chance) / 2, true));
  return cuvil_chooser_take_predicted(chooser, end - chooser->taken_count,
                                      false);
}

const struct cuvil_strategy_ops cuvil_strategy_exhaustive = {
    .name = "exhaustive",
    .about =
        "every point that hard rules leave; of more than --max-trials a "
        "fixed sample, explore of it by chance",
    .options = {{"explore", 0, 1, 0.75}, {NULL, 0, 0, 0}},
    .exhaustive = true,
    .ask = ask};
