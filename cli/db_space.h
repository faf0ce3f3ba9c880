/* db_space.h - a family's space for one problem as a T1 file. */
#ifndef CUVIL_CLI_DB_SPACE_H_
#define CUVIL_CLI_DB_SPACE_H_

#include "cli/db_report.h"

/* The filter names problem and family, env.arch the architecture.  db is read
 * where ask->tried is set, and may be NULL elsewhere. */
CUVIL_MUST_USE enum cuvil_status db_space_export(const struct db_request *ask,
                                                 struct cuvil_db *db,
                                                 struct cuvil_buf *out);

#endif /* CUVIL_CLI_DB_SPACE_H_ */
