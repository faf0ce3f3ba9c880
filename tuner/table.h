/* table.h - another program's results of tuning a kernel of its own, to replay
 * searches on.
 *
 * Read are Kernel Tuner's cache files, as its public collection of brute-force
 * results has them, and T4 results files (schema 1.0.0) of any program.  Such
 * a kernel is none of ours: nothing here becomes evidence.
 */
#ifndef CUVIL_TUNER_TABLE_H_
#define CUVIL_TUNER_TABLE_H_

#include "base/json.h"
#include "tuner/strategy.h"

struct cuvil_table {
  char *kernel, *device, *size; /* owned; "" where the file does not say */
  int count, failed;            /* configurations; those without a time */
  struct cuvil_site *sites;     /* owned; no predictions */
  char **configs;               /* owned: "block_size_x=16,tile_size_x=1" */
  double *seconds;              /* owned; INFINITY: failed */
  double *cost;                 /* owned: seconds of compiling and running */
  int best;                     /* index of the fastest */
};

/* True for the two formats; a recording of cuvil-tune is neither. */
bool cuvil_table_is(const json_t *file);
/* CU_ERR_PARSE with what is wrong where; CU_ERR_CANDIDATE_FAILED when nothing
 * in it ran. */
CUVIL_MUST_USE enum cuvil_status cuvil_table_read(const json_t *file,
                                                  const char *origin,
                                                  struct cuvil_table *out);
void cuvil_table_free(struct cuvil_table *table);

#endif /* CUVIL_TUNER_TABLE_H_ */
