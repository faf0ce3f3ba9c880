/* db_report.h - what cuvil-db prints; cuvil-db.c parses and dispatches. */
#ifndef CUVIL_CLI_DB_REPORT_H_
#define CUVIL_CLI_DB_REPORT_H_

#include "base/json.h"
#include "db/db.h"

struct db_request {
  const char *db;     /* NULL: the default */
  const char *json;   /* file, "-" for stdout, NULL: a table */
  const char *output; /* of export; NULL or "-": stdout */
  struct cuvil_db_filter filter;
  struct cuvil_env env; /* of lookup: what --arch, --gpu, ... gave */
  bool failures;        /* of show */
  bool wide;            /* do not shorten texts */
  bool everything;      /* of prune: no filter is meant */
  bool dry_run;
  bool tried;         /* of export --t1: only points with evidence */
  const char *format; /* of export and import: "t4", "t1", "kernel-tuner" */
  int operand_count;
  char **operands;
};

/* A problem's text and signature as the database has them. */
CUVIL_MUST_USE enum cuvil_status db_report_canonical(
    const char *text, struct cuvil_buf *out_text,
    struct cuvil_buf *out_signature);

/* Each prints to stdout, as a table or as JSON. */
CUVIL_MUST_USE enum cuvil_status db_report_list(struct cuvil_db *db,
                                                const struct db_request *ask);
CUVIL_MUST_USE enum cuvil_status db_report_show(struct cuvil_db *db,
                                                const struct db_request *ask);
CUVIL_MUST_USE enum cuvil_status db_report_lookup(struct cuvil_db *db,
                                                  const struct db_request *ask);
CUVIL_MUST_USE enum cuvil_status db_report_stats(struct cuvil_db *db,
                                                 const struct db_request *ask);
CUVIL_MUST_USE enum cuvil_status db_report_verify(struct cuvil_db *db,
                                                  const struct db_request *ask);

#endif /* CUVIL_CLI_DB_REPORT_H_ */
