/* random.c - a seeded random sample: what every other strategy must beat. */
#include "tuner/strategy.h"

static enum cuvil_status ask(struct cuvil_chooser *chooser, int most) {
  return cuvil_chooser_take_random(chooser, most);
}

const struct cuvil_strategy_ops cuvil_strategy_random = {
    .name = "random",
    .about = "a seeded random sample of the allowed points",
    .options = {{NULL, 0, 0, 0}},
    .ask = ask};
