/* tune_table.h - cuvil-tune --device replay:FILE where FILE holds another
 * program's results: searches on it, records nothing.
 */
#ifndef CUVIL_CLI_TUNE_TABLE_H_
#define CUVIL_CLI_TUNE_TABLE_H_

#include <stdio.h>

#include "tuner/table.h"

struct cuvil_tune_table_options {
  const char *path; /* named in what is printed */
  const struct cuvil_strategy *strategy;
  int max_trials; /* 0: no limit */
  uint64_t seed;
  const char *json; /* schema cuvil-table/1 (docs/tuning.md); NULL: not asked */
};
CUVIL_MUST_USE enum cuvil_status cuvil_tune_table(
    FILE *to, const struct cuvil_table *table,
    const struct cuvil_tune_table_options *options);

#endif /* CUVIL_CLI_TUNE_TABLE_H_ */
