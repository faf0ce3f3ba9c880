/* candidates.h - the candidates of one problem: walked, pruned, ordered,
 * chosen.  No GPU in here: `cuvil-tune --dry-run` is exactly this.
 */
#ifndef CUVIL_TUNER_CANDIDATES_H_
#define CUVIL_TUNER_CANDIDATES_H_

#include "base/hash.h"
#include "kernels/family.h"
#include "tuner/strategy.h"

/* How a failure is called in the database (db/db.h lists the reasons). */
struct cuvil_outcome {
  bool ok;
  char reason[24];
  char detail[480];
};

/* What compiling told. */
struct cuvil_compiled {
  enum {
    CUVIL_COMPILE_NONE,    /* not asked */
    CUVIL_COMPILE_PENDING, /* queued or running */
    CUVIL_COMPILE_DONE,
    CUVIL_COMPILE_FAILED /* see outcome */
  } state;
  struct cuvil_outcome outcome;
  char hash[CUVIL_HASH_SIZE];   /* of the modules' sources; "" for none */
  char binary[CUVIL_HASH_SIZE]; /* of cubins and launches: equal means the
                                   same candidate twice; "" for unknown */
  char launch[CUVIL_HASH_SIZE]; /* of all but the modules; internal */
  int registers, spill_bytes, shared_bytes;
  double seconds;
};

struct cuvil_candidate {
  const struct cuvil_family *family;
  int version; /* the family's; a recording may say another */
  struct cuvil_config config;
  char *text; /* canonical text of the config; owned; NULL until chosen */
  struct cuvil_derived derived;
  double predicted; /* seconds, for ordering only */
  bool is_default;  /* the untuned choice */
  int choice;       /* library families: rank in its list; -1 own kernels */
  uint64_t order;   /* rank in its space: the deterministic tie-break */
  int site;         /* the strategy's; -1: it did not ask for it */
  struct cuvil_compiled compiled;
  int job; /* the runner's; -1 */

  /* Filled by the search. */
  struct cuvil_outcome outcome; /* of verification and pilot */
  bool tried, known, duplicate;
  bool untried; /* the budget ended first: no verdict, not in the race */
  double worst_ratio;
  int pilot_count;
  double pilot[16];  /* seconds of one run, by block */
  double median;     /* of the pilot's blocks */
  double *rounds;    /* by round of the race; NaN: not in it; owned */
  double *control;   /* the second copy's, when this was the incumbent; owned */
  int round_count;   /* entries in rounds */
  int control_count; /* entries in control */
};

/* How one family's space shrank. */
struct cuvil_walk {
  const struct cuvil_family *family;
  const struct cuvil_space *space;
  uint64_t points;   /* of the whole space */
  uint64_t examined; /* fewer when the space was sampled; the counts below are
                        of these */
  uint64_t valid;    /* left by hard rules and derive */
  uint64_t allowed;  /* left by heuristic rules too */
  uint64_t *removed; /* by rule; the last entry (rule_count) is derive; owned */
  bool complete;     /* every allowed point was found, though not every point
                        examined; there are `found` */
  uint64_t found;
};
/* Counts of the whole space; of a sampled one, as if all were like the sample,
 * except what is known. */
void cuvil_walk_estimate(const struct cuvil_walk *walk, uint64_t *out_valid,
                         uint64_t *out_allowed);

struct cuvil_point { /* of a space; slim, there may be many */
  const struct cuvil_family *family;
  uint64_t order;   /* rank in its space */
  double predicted; /* seconds, for ordering only */
  bool allowed;     /* by heuristic rules too */
  bool sampled;     /* of an even sample of its space, or the whole of it */
  bool untuned;     /* the untuned choice; set by cuvil_candidates_sites */
};
struct cuvil_candidates {
  int count, capacity;
  struct cuvil_candidate *items; /* owned; those chosen */
  int point_count, point_capacity;
  struct cuvil_point *points; /* owned; those to choose from */
  int walk_count;
  struct cuvil_walk *walks; /* owned; own families with a space */
};

struct cuvil_walk_options {
  const char *families; /* "gemm_mma,gemm_simt"; NULL: all */
  bool heuristics;      /* apply heuristic rules; false for --exhaustive, which
                           finds the allowed points all the same */
  uint64_t limit;       /* points examined of one space; 0: all */
  uint64_t seed;
};

/* CU_ERR_INVALID_ARGUMENT when the list names a family that does not exist. */
CUVIL_MUST_USE enum cuvil_status cuvil_families_check(const char *families);
bool cuvil_families_include(const char *families, const char *id);

/* Walks the spaces of every applicable own family.  Of a space of more than
 * `limit` points an even sample is counted.  Where heuristic rules cut whole
 * parts of it (cuvil_space_walk), all allowed points are found all the same;
 * where they do not, the points are the sample's, and neighbours of the best
 * predicted of it that differ in one parameter are followed while they are
 * predicted better.  The families' defaults are among the points whatever
 * heuristic rules say. */
CUVIL_MUST_USE enum cuvil_status cuvil_candidates_walk(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    const struct cuvil_walk_options *options, struct cuvil_candidates *out);
/* One more point to choose from, when it is of an own family that the options
 * include and the rules allow it (a recording offers what it holds). */
CUVIL_MUST_USE enum cuvil_status cuvil_candidates_offer(
    struct cuvil_candidates *list, const struct cuvil_problem *problem,
    const struct cuvil_arch *arch, const struct cuvil_walk_options *options,
    const char *family, const char *text);
/* Rank of a config in its space (first parameter slowest, as
 * cuvil_space_point); UINT64_MAX when a value is not of the space. */
uint64_t cuvil_point_order(const struct cuvil_space *space,
                           const struct cuvil_config *config);
/* Forgets the points, keeps the counts. */
void cuvil_candidates_clear_points(struct cuvil_candidates *list);
/* Sorts the points, best predicted first, and shows them to a strategy: site i
 * is point i.  The untuned choice and the families' defaults are `first`.
 * *out: count sites, freed by the caller. */
CUVIL_MUST_USE enum cuvil_status cuvil_candidates_sites(
    struct cuvil_candidates *list, const struct cuvil_problem *problem,
    const struct cuvil_arch *arch, struct cuvil_site **out);
/* Makes a candidate of a point that is none yet; *out is borrowed until the
 * next one is made.  cuvil_candidates_sites has been called. */
CUVIL_MUST_USE enum cuvil_status cuvil_candidates_take(
    struct cuvil_candidates *list, const struct cuvil_problem *problem,
    const struct cuvil_arch *arch, int point, struct cuvil_candidate **out);
/* What a strategy asks for before anything was measured, as candidates. */
CUVIL_MUST_USE enum cuvil_status cuvil_candidates_choose(
    struct cuvil_candidates *list, const struct cuvil_problem *problem,
    const struct cuvil_arch *arch, const struct cuvil_strategy *strategy,
    int limit, uint64_t seed);
/* Adds one by its text (a library's choice, a neighbour's winner); an equal
 * one that is already there is returned instead.  *out is borrowed until the
 * next add. */
CUVIL_MUST_USE enum cuvil_status cuvil_candidates_add(
    struct cuvil_candidates *list, const struct cuvil_problem *problem,
    const struct cuvil_arch *arch, const struct cuvil_family *family,
    const char *text, struct cuvil_candidate **out);
struct cuvil_candidate *cuvil_candidates_find(struct cuvil_candidates *list,
                                              const char *family,
                                              const char *text);
void cuvil_candidates_free(struct cuvil_candidates *list);

/* outcome of a failure; formats detail. */
void cuvil_outcome_fail(struct cuvil_outcome *outcome, const char *reason,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif /* CUVIL_TUNER_CANDIDATES_H_ */
