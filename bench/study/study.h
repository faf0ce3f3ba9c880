/* study.h - recordings and foreign results as tables that searches are
 * replayed on; for the programs of this folder.
 */
#ifndef CUVIL_BENCH_STUDY_STUDY_H_
#define CUVIL_BENCH_STUDY_STUDY_H_

#include "tuner/candidates.h"
#include "tuner/recording.h"

struct study_table {
  char name[160];   /* of the file, the problem's index, the family */
  const char *text; /* the problem's; borrowed; NULL of a foreign table */
  bool judges;      /* of the half that judges */
  int count;        /* configurations */
  struct cuvil_site *sites; /* best predicted first; owned by the callee */
  double *seconds;          /* median of all blocks; INFINITY: failed */
  double *cost;             /* seconds that compiling took */
  double optimum;           /* the least of seconds */
  /* Of a recording's table; NULL, 0 else. */
  const struct cuvil_family *family;
  const struct cuvil_problem *problem;
  const struct cuvil_arch *arch;
  struct cuvil_candidates *points; /* point i is site i */
  const struct cuvil_record **records;
  /* Of a foreign one. */
  char **configs;
};

/* Every own family of every problem of a recording that has at least 100
 * configurations; or a file of Kernel Tuner. */
CUVIL_MUST_USE enum cuvil_status study_each_table(
    const char *path,
    enum cuvil_status (*visit)(void *user, const struct study_table *table),
    void *user);
/* As a cache of Kernel Tuner, DIR/name.json, all configurations in it. */
CUVIL_MUST_USE enum cuvil_status study_table_write(
    const struct study_table *table, const char *directory);

#endif /* CUVIL_BENCH_STUDY_STUDY_H_ */
