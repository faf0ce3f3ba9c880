/* runner.h - the seam under the search: who compiles and who measures.
 *
 * The GPU runner does both with child processes (gpu_runner.c); the replay
 * runner answers both from a recording (replay.c).  The search above is the
 * same.  A candidate that fails is an outcome, never a status: a status means
 * that the run cannot go on (CU_ERR_INTERRUPTED, no device, a worker that
 * cannot be started).
 */
#ifndef CUVIL_TUNER_RUNNER_H_
#define CUVIL_TUNER_RUNNER_H_

#include "base/env.h"
#include "tuner/candidates.h"

/* What the L2 cache holds when a candidate is timed (DESIGN "L2"). */
enum cuvil_l2_mode { CUVIL_L2_MODEL, CUVIL_L2_COLD, CUVIL_L2_WARM };
struct cuvil_l2_plan {
  bool cold[CUVIL_MAX_OPERANDS]; /* operand is read from another copy in each
                                    run */
  int rotations;                 /* copies; 1: warm */
  const char *label;             /* "cold" or "warm": what the time means */
};

/* One problem as the runner is told it. */
struct cuvil_runner_problem {
  const char *text; /* canonical */
  const struct cuvil_problem *problem;
  struct cuvil_l2_plan l2;
};

/* One place in a round: a candidate, or the second copy of one (A/A). */
struct cuvil_entrant {
  struct cuvil_candidate *candidate;
  int copy;                     /* 0, or 1 for the control */
  double seconds;               /* out: of one run; NaN when it failed */
  struct cuvil_outcome outcome; /* out */
};

struct cuvil_runner_ops {
  /* Queues; candidate->compiled turns from NONE to PENDING, or is answered at
   * once.  urgent: before those that wait. */
  enum cuvil_status (*compile_start)(void *self,
                                     const struct cuvil_runner_problem *problem,
                                     struct cuvil_candidate *candidate,
                                     bool urgent);
  /* Works at most `seconds`, less when some candidate's compile ends; brings
   * `candidates` of one list up to date. */
  enum cuvil_status (*compile_poll)(void *self,
                                    struct cuvil_candidates *candidates,
                                    double seconds);
  /* Makes the problem the one that is measured: operands, reference. */
  enum cuvil_status (*open)(void *self,
                            const struct cuvil_runner_problem *problem);
  /* Texts of a library family's points, its first choice first; frees with
   * free(), each text too.  *out_count 0 when the library is absent or does
   * not do it. */
  enum cuvil_status (*choices)(void *self, const struct cuvil_family *family,
                               int limit, char ***out_texts, int *out_count);
  /* Verifies and takes the pilot blocks; fills the candidate's outcome,
   * worst_ratio, pilot*. */
  enum cuvil_status (*attempt)(void *self, struct cuvil_candidate *candidate);
  /* Pilot blocks only, of one that was verified: appended to pilot. */
  enum cuvil_status (*retest)(void *self, struct cuvil_candidate *candidate);
  /* One block of each, in the order given. */
  enum cuvil_status (*round)(void *self, int round,
                             struct cuvil_entrant *entrants, int count);
  /* Lets go of what `open` made. */
  enum cuvil_status (*close)(void *self);
  /* True when a candidate can be answered at all (a recording may not hold
   * it, or may hold it of another version of its family, which is then put in
   * candidate->version).  NULL: everything can. */
  bool (*holds)(void *self, const struct cuvil_runner_problem *problem,
                struct cuvil_candidate *candidate);
  /* The index-th own point that can be answered; false after the last.  NULL:
   * every point of the spaces can. */
  bool (*list)(void *self, const struct cuvil_runner_problem *problem,
               int index, const char **out_family, const char **out_text);
  /* What the times of a problem mean whatever was asked for ("cold", "warm"),
   * static; NULL when the plan decides.  The member may be NULL. */
  const char *(*l2)(void *self, const char *problem);
  void (*destroy)(void *self);
};

struct cuvil_runner {
  const struct cuvil_runner_ops *ops;
  void *self;
  const char *source; /* "measured" or "replayed" */
  struct cuvil_arch arch;
  struct cuvil_env env;
};
void cuvil_runner_destroy(struct cuvil_runner *runner);

/* ---- gpu_runner.c */
struct cuvil_gpu_runner_options {
  int ordinal;          /* of the device */
  const char *cubins;   /* folder of cached cubins; borrowed */
  int jobs;             /* compile workers; 0: one a core */
  double compile_limit; /* seconds; 60 */
  double launch_limit;  /* seconds of silence while measuring; 5 */
  uint64_t seed;        /* of the operands' data */
  /* The children; tests put others in their place.  NULL: the real ones. */
  int (*compile_main)(int fd, void *user);
  int (*measure_main)(int fd, void *user);
};
/* Starts the measuring worker and asks what it is on. */
CUVIL_MUST_USE enum cuvil_status cuvil_gpu_runner_create(
    const struct cuvil_gpu_runner_options *options, struct cuvil_runner **out);
/* Without a measuring worker: compiles for `arch` only; `open` and what
 * follows it fail with CU_ERR_NO_DEVICE. */
CUVIL_MUST_USE enum cuvil_status cuvil_compile_runner_create(
    const struct cuvil_gpu_runner_options *options,
    const struct cuvil_arch *arch, struct cuvil_runner **out);

/* ---- replay.c */
struct cuvil_recording;
/* recording: borrowed.  slow: seconds that each answer takes, for tests that
 * kill the run; 0. */
CUVIL_MUST_USE enum cuvil_status cuvil_replay_runner_create(
    struct cuvil_recording *recording, double slow, struct cuvil_runner **out);

#endif /* CUVIL_TUNER_RUNNER_H_ */
