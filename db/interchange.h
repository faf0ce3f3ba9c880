/* interchange.h - what the writers and readers of foreign formats share.
 *
 * T4 results and Kernel Tuner's caches both carry, beside what their schemas
 * know, an object `cuvil` with one row of evidence; it is written here once
 * and read here once.  Included by db/ only.
 */
#ifndef CUVIL_DB_INTERCHANGE_H_
#define CUVIL_DB_INTERCHANGE_H_

#include "base/json.h"
#include "db/internal.h"

/* ---- export.c
 * Remembers that memory ran out instead of failing each time. */
struct cuvil_db_writer {
  json_t *results;
  bool failed;
};
CUVIL_MUST_USE enum cuvil_status cuvil_db_writer_status(
    const struct cuvil_db_writer *w);
/* Each takes the value. */
void cuvil_db_json_set(struct cuvil_db_writer *w, json_t *object,
                       const char *key, json_t *value);
void cuvil_db_json_append(struct cuvil_db_writer *w, json_t *array,
                          json_t *value);
/* "tile_m=64,tile_n=128" as an object; numbers where they are numbers. */
json_t *cuvil_db_json_configuration(struct cuvil_db_writer *w,
                                    const char *config);
/* The object `cuvil`. */
json_t *cuvil_db_json_measurement(struct cuvil_db_writer *w,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_measurement *m);
json_t *cuvil_db_json_failure(struct cuvil_db_writer *w,
                              const struct cuvil_db_stamp *stamp,
                              const struct cuvil_db_context *context,
                              const struct cuvil_db_failure *failure);
/* Our reason of a failure in the six words of the T4 schema; static. */
const char *cuvil_db_invalidity(const char *reason);

/* ---- import.c
 * Adds the evidence of an object `cuvil` inside a transaction of the caller;
 * what the content hash does not confirm is refused (CU_ERR_DB).  added:
 * grows by what was new. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_import_row(
    struct cuvil_db *db, const json_t *cuvil, const char *recorded,
    const char *origin, struct cuvil_db_counts *added);

#endif /* CUVIL_DB_INTERCHANGE_H_ */
