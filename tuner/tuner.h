/* tuner.h - tunes a list of problems: walks, compiles, verifies, races,
 * records.
 *
 * The caller gives problems (the model is not known here), a runner (GPU or
 * recording) and a database open for writing.  Everything that was learned is
 * in the database when a call returns, also when it returns
 * CU_ERR_INTERRUPTED; the same call then goes on where it stopped.
 */
#ifndef CUVIL_TUNER_TUNER_H_
#define CUVIL_TUNER_TUNER_H_

#include "db/db.h"
#include "tuner/recording.h"
#include "tuner/runner.h"

struct cuvil_tune_problem {
  const char *text; /* canonical */
  int calls;        /* how often the model computes it; 1 by itself */
};

struct cuvil_tune_options {
  const char *families; /* "a,b"; NULL: all */
  struct cuvil_strategy strategy;
  int max_trials;        /* own candidates of a problem; 0: no limit */
  int library_limit;     /* choices asked of each library; 8 */
  uint64_t walk_limit;   /* points examined of one space; 0: all */
  double budget_seconds; /* of the whole call; 0: none */
  uint64_t seed;
  enum cuvil_l2_mode l2;
  bool force;                        /* tune again what is tuned or failed */
  struct cuvil_recording *recording; /* filled; NULL: not asked */
};
/* What the commands use when nothing is said. */
void cuvil_tune_defaults(struct cuvil_tune_options *out);

/* One participant of a problem's last race, for tables and --json. */
struct cuvil_tune_participant {
  const char *family;
  char *config; /* owned */
  unsigned flags;
  bool in_final;
  int rounds;                          /* that it ran */
  double median;                       /* seconds */
  double ratio, ratio_low, ratio_high; /* its time / the winner's */
  double predicted;                    /* seconds; for ordering only */
};

enum cuvil_tune_state {
  CUVIL_TUNE_TUNED,        /* now */
  CUVIL_TUNE_ALREADY,      /* an exact winner was in the database */
  CUVIL_TUNE_FAILED,       /* no candidate works; see reason */
  CUVIL_TUNE_NOT_RECORDED, /* replay: the recording does not hold it */
  CUVIL_TUNE_LEFT          /* not reached: budget, interrupt, or an error */
};
struct cuvil_tune_result {
  const char *text; /* the caller's */
  int calls;
  enum cuvil_tune_state state;
  char reason[256];
  const char *l2;
  uint64_t points, examined, valid, allowed; /* of its own spaces */
  int chosen, compiled, timed, failed, known, duplicates, untried;
  /* Seconds; 0: not in the race. */
  double default_seconds, library_seconds, winner_seconds;
  double default_ratio_low, library_ratio_low; /* low end of its / winner's */
  char family[48];
  char *config; /* of the winner; owned; NULL without one */
  double roof;  /* share of the roof that the winner reaches, 0..1 */
  bool converged;
  double control; /* |A/A ratio - 1|; NaN without control */
  int participant_count;
  struct cuvil_tune_participant *participants; /* owned */
  /* Participants: the fastest own and library one of the final, and own time /
   * library time with its 95 % interval; -1: a side had none. */
  int own, library;
  double own_ratio, own_ratio_low, own_ratio_high;
};
struct cuvil_tune_report {
  int count;
  struct cuvil_tune_result *results;
  int tuned, already, failed_problems, not_recorded, left;
  int failed_candidates;
  double seconds;
};
void cuvil_tune_report_free(struct cuvil_tune_report *report);

/* *out is filled also when the status is not CUVIL_OK (what was done so far);
 * free it in either case. */
CUVIL_MUST_USE enum cuvil_status cuvil_tune(
    const struct cuvil_tune_options *options, struct cuvil_runner *runner,
    struct cuvil_db *db, const struct cuvil_tune_problem *problems, int count,
    struct cuvil_tune_report *out);

/* ---- l2.c: true when all problems' weights and the largest problem's
 * activations fit the L2 together, as the model will find it. */
CUVIL_MUST_USE enum cuvil_status cuvil_l2_model_fits(
    const struct cuvil_tune_problem *problems, int count, int64_t l2_bytes,
    bool *out);
void cuvil_l2_decide(enum cuvil_l2_mode mode, bool model_fits,
                     const struct cuvil_problem *problem, int64_t l2_bytes,
                     struct cuvil_l2_plan *out);
/* Time that the architecture's limits allow, from the table's figures, in
 * seconds: the largest of arithmetic, all bytes from the L2, and from memory
 * those that the plan keeps cold or that the L2 cannot hold. */
double cuvil_roof_seconds(const struct cuvil_problem *problem,
                          const struct cuvil_arch *arch,
                          const struct cuvil_l2_plan *plan);

/* ---- race.c: one problem's race over what was verified and piloted. */
struct cuvil_race_report {
  int winner;  /* entry */
  int fastest; /* entry */
  /* The fastest own and the fastest library entry of the final, and own time /
   * library time, paired by round, with its 95 % interval; -1: a side has none.
   */
  int own, library;
  double own_ratio, own_ratio_low, own_ratio_high;
  int count; /* entries, the control last where there is one */
  struct cuvil_db_participant *entries;      /* owned; texts borrowed of the
                                                candidates, seconds owned below */
  double *seconds;                           /* owned: entries x rounds */
  const struct cuvil_candidate **candidates; /* owned array, by entry */
  int rounds, final_round; /* the final starts at final_round */
  bool converged;
  double control; /* |A/A - 1|; NaN */
};
/* CU_ERR_CANDIDATE_FAILED when nobody is left. */
CUVIL_MUST_USE enum cuvil_status cuvil_race_run(
    struct cuvil_runner *runner, struct cuvil_candidates *candidates,
    uint64_t seed, void (*on_failure)(void *user, struct cuvil_candidate *),
    void *user, struct cuvil_race_report *out);
void cuvil_race_report_free(struct cuvil_race_report *report);

#endif /* CUVIL_TUNER_TUNER_H_ */
