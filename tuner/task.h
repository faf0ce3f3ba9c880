/* task.h - one problem on its way through the tuner; inside this folder only.
 */
#ifndef CUVIL_TUNER_TASK_H_
#define CUVIL_TUNER_TASK_H_

#include "tuner/tuner.h"

struct cuvil_known {              /* what the database has of a candidate */
  char *family, *config, *reason; /* reason NULL: measured */
  int version;
  double median;
};
struct cuvil_task_state {
  struct cuvil_problem problem;
  struct cuvil_buf signature;
  struct cuvil_runner_problem told; /* to the runner */
  struct cuvil_candidates candidates;
  struct cuvil_site *sites;      /* owned; of the candidates' points */
  struct cuvil_chooser *chooser; /* owned */
  struct cuvil_known *known;
  int known_count, known_capacity;
  struct cuvil_tune_result *result; /* in the report */
};
struct cuvil_tuning {
  const struct cuvil_tune_options *options;
  struct cuvil_runner *runner;
  struct cuvil_db *db;
  struct cuvil_tune_report *report;
  struct cuvil_task_state *tasks;
  int count;
  bool model_fits;
  double end; /* of the budget, by cuvil_now(); INFINITY */
};

/* Texts of the database's rows for a task. */
struct cuvil_db_context cuvil_task_context(const struct cuvil_tuning *tuning,
                                           const struct cuvil_task_state *task);

/* ---- prepare.c: looks the problem up; when it is not tuned yet, walks its
 * spaces and starts the compiles. */
CUVIL_MUST_USE enum cuvil_status cuvil_task_prepare(
    struct cuvil_tuning *tuning, struct cuvil_task_state *task);
/* The winners of other drivers, other GPUs and neighbouring extents are worth
 * a try; asked when the problem's turn comes, so that a resumed run sees what
 * the undisturbed one saw. */
CUVIL_MUST_USE enum cuvil_status cuvil_task_neighbour(
    struct cuvil_tuning *tuning, struct cuvil_task_state *task);
/* Makes candidates, at the end of the list, of what the strategy wants tried
 * next; *out: how many it asked for, of which some may have been there. */
CUVIL_MUST_USE enum cuvil_status cuvil_task_ask(struct cuvil_tuning *tuning,
                                                struct cuvil_task_state *task,
                                                int *out);
/* Puts what the database knows on a candidate. */
void cuvil_task_recall(const struct cuvil_tuning *tuning,
                       const struct cuvil_task_state *task,
                       struct cuvil_candidate *candidate);
void cuvil_task_free(struct cuvil_task_state *task);

/* ---- search.c: verifies, pilots, races and records; fills the result.  A
 * problem that fails is told in its result, not by the status. */
CUVIL_MUST_USE enum cuvil_status cuvil_task_search(
    struct cuvil_tuning *tuning, struct cuvil_task_state *task);

#endif /* CUVIL_TUNER_TASK_H_ */
