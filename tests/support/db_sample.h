/* db_sample.h - evidence for the tests of the database. */
#ifndef CUVIL_TESTS_SUPPORT_DB_SAMPLE_H_
#define CUVIL_TESTS_SUPPORT_DB_SAMPLE_H_

#include "db/db.h"

/* A fresh path in the test's folder, static until the next call with the same
 * slot (0..7); nothing is there. */
const char *sample_path(int slot);

extern const struct cuvil_env sample_env; /* NVIDIA H200, sm_90, ... */
struct cuvil_db_context sample_context(const struct cuvil_env *env,
                                       const char *source);

/* gemm/1 of m x 64 x 64 with its signature. */
struct sample_problem {
  char text[128], signature[128];
};
struct sample_problem sample_gemm(int m);

/* Adds; fails the test when the database refuses. */
void sample_measure(struct cuvil_db *db, const struct cuvil_db_context *context,
                    const struct sample_problem *problem, const char *family,
                    const char *config, double seconds);
void sample_fail(struct cuvil_db *db, const struct cuvil_db_context *context,
                 const struct sample_problem *problem, const char *config,
                 const char *reason);
/* A race of the winner, a default twice as slow, a cuBLASLt choice 1.5 times
 * as slow (none where with_library is false). */
void sample_race(struct cuvil_db *db, const struct cuvil_db_context *context,
                 const struct sample_problem *problem, const char *family,
                 const char *config, double seconds, int rounds,
                 bool with_library, bool converged);

/* All content hashes, sorted, and all winners, as one text to be freed: equal
 * for equal evidence. */
char *sample_fingerprint(struct cuvil_db *db);

#endif /* CUVIL_TESTS_SUPPORT_DB_SAMPLE_H_ */
