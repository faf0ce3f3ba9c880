/* strategy.h - which point of a problem's spaces is tried next.
 *
 * A strategy sees sites: points as places in a grid, with a prediction where
 * there is one.  It is asked for some, told how fast they were, asked again:
 * nothing here knows kernels, compilers or GPUs, so that the tuner, the study
 * (bench/study) and a foreign program's table of results drive the same code.
 *
 * One file per strategy in tuner/strategy/; strategy.c lists them.  What a
 * strategy asks for is a function of sites, options, limit, seed and of what
 * it was told, whatever the order of telling: a resumed run goes on as the
 * undisturbed one would.
 */
#ifndef CUVIL_TUNER_STRATEGY_H_
#define CUVIL_TUNER_STRATEGY_H_

#include <stdbool.h>

#include "base/clock.h"
#include "base/status.h"
#include "spaces/space.h"

struct cuvil_site {
  int group;        /* its family; sites of two groups are no relatives */
  int params;       /* of that family */
  uint64_t key;     /* names the site, in any list that has it */
  double predicted; /* seconds, for ordering only; 0: not known */
  bool first;       /* tried before all others: a default */
  bool allowed;     /* by heuristic rules too */
  bool sampled;     /* of an even sample of its space, or the whole of it */
  unsigned char digit[CUVIL_MAX_PARAMS]; /* index of each parameter's value */
};

enum { CUVIL_STRATEGY_OPTIONS = 4 };
struct cuvil_strategy_option {
  const char *name; /* NULL ends */
  double least, most, fallback;
};
struct cuvil_strategy { /* what --strategy says */
  const struct cuvil_strategy_ops *ops;
  double option[CUVIL_STRATEGY_OPTIONS]; /* in the order of ops->options */
};

struct cuvil_chooser {                   /* a strategy at work on one problem */
  const struct cuvil_strategy *strategy; /* borrowed */
  const struct cuvil_site *sites;        /* borrowed; best predicted first */
  int count;
  int limit; /* of sites asked for in all */
  uint64_t seed;
  struct cuvil_rng rng;
  int taken_count, told_count;
  bool *taken;     /* asked for; owned */
  double *seconds; /* told; INFINITY: failed; NaN: not told; owned */
};

struct cuvil_strategy_ops {
  const char *name, *about;
  struct cuvil_strategy_option options[CUVIL_STRATEGY_OPTIONS + 1];
  bool exhaustive; /* heuristic rules and spills do not bind it */
  /* Takes up to `most` sites (cuvil_chooser_take).  None while others are
   * untold: it waits for them.  None after that: it is done. */
  enum cuvil_status (*ask)(struct cuvil_chooser *chooser, int most);
};

extern const struct cuvil_strategy_ops *const cuvil_strategies[]; /* NULL ends
                                                                   */
extern const struct cuvil_strategy_ops cuvil_strategy_exhaustive,
    cuvil_strategy_random, cuvil_strategy_ordered, cuvil_strategy_local,
    cuvil_strategy_evolve, cuvil_strategy_surrogate;

/* A strategy with its options as they are when nothing is said. */
struct cuvil_strategy cuvil_strategy_of(const struct cuvil_strategy_ops *ops);
/* "surrogate", "ordered:explore=0.1,refine=6". */
CUVIL_MUST_USE enum cuvil_status cuvil_strategy_parse(
    const char *text, struct cuvil_strategy *out);

/* limit: 0 for all.  strategy and sites: borrowed until destroyed. */
CUVIL_MUST_USE enum cuvil_status cuvil_chooser_create(
    const struct cuvil_strategy *strategy, const struct cuvil_site *sites,
    int count, int limit, uint64_t seed, struct cuvil_chooser **out);
void cuvil_chooser_destroy(struct cuvil_chooser *chooser);
/* Up to `most` sites that were never asked for into out[]; those that are
 * `first` come before all others, and count. */
CUVIL_MUST_USE enum cuvil_status cuvil_chooser_ask(
    struct cuvil_chooser *chooser, int most, int *out, int *out_count);
/* seconds: INFINITY when it failed.  Telling again replaces. */
void cuvil_chooser_tell(struct cuvil_chooser *chooser, int site,
                        double seconds);

/* ---- for strategies */
void cuvil_chooser_take(struct cuvil_chooser *chooser, int site);
/* Up to `most` untaken sites by chance. */
CUVIL_MUST_USE enum cuvil_status cuvil_chooser_take_random(
    struct cuvil_chooser *chooser, int most);
/* Up to `most` of the best predicted; a site counts as slower by 5 % for each
 * relative (cuvil_site_distance under 2) that is taken: predictions do not
 * tell near relatives apart, and measuring all of a crowd tells little more
 * than measuring one.  allowed: of those that heuristic rules allow only. */
CUVIL_MUST_USE enum cuvil_status cuvil_chooser_take_predicted(
    struct cuvil_chooser *chooser, int most, bool allowed);
/* The told sites that ran, fastest first, at most `most`; their count. */
int cuvil_chooser_fastest(const struct cuvil_chooser *chooser, int most,
                          int *out);
/* Untaken site nearest to `digit` in `group`: fewest parameters differ, then
 * steps between values, then chance.  -1: none. */
int cuvil_chooser_nearest(struct cuvil_chooser *chooser, int group,
                          const unsigned char *digit);
/* Parameters in which they differ; CUVIL_MAX_PARAMS + 1 of two groups. */
int cuvil_site_distance(const struct cuvil_site *a, const struct cuvil_site *b);

#endif /* CUVIL_TUNER_STRATEGY_H_ */
