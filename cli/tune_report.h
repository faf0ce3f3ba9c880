/* tune_report.h - what cuvil-tune says: the table, the dry run, the JSON. */
#ifndef CUVIL_CLI_TUNE_REPORT_H_
#define CUVIL_CLI_TUNE_REPORT_H_

#include <stdio.h>

#include "tuner/tuner.h"

/* "5.9 us" "1.25 ms"; "-" for none. */
void cuvil_format_seconds(double seconds, char *out, size_t size);

/* What the run was about, for the JSON's head. */
struct cuvil_tune_about {
  const char *model; /* NULL: problems were given */
  const char *precision, *fusion, *l2, *source, *recording;
  const struct cuvil_env *env;
  uint64_t seed;
};
void cuvil_tune_print_table(FILE *to, const struct cuvil_tune_report *report);
void cuvil_tune_print_summary(FILE *to, const struct cuvil_tune_report *report,
                              const char *db_path);
/* docs/tuning.md describes it; path "-": stdout. */
CUVIL_MUST_USE enum cuvil_status cuvil_tune_write_json(
    const char *path, const struct cuvil_tune_report *report,
    const struct cuvil_tune_about *about);

/* --dry-run and --explain: walks every problem's spaces for `arch`. */
CUVIL_MUST_USE enum cuvil_status cuvil_tune_dry_run(
    FILE *to, const struct cuvil_tune_options *options,
    const struct cuvil_arch *arch, const struct cuvil_tune_problem *problems,
    int count, bool explain, bool table);
void cuvil_tune_list_families(FILE *to);
void cuvil_tune_list_strategies(FILE *to);

#endif /* CUVIL_CLI_TUNE_REPORT_H_ */
