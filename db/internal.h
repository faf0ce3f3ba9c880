/* internal.h - what the files of db/ share: the handle and SQLite made to
 * speak in statuses.  Included by db/ and its tests only.
 */
#ifndef CUVIL_DB_INTERNAL_H_
#define CUVIL_DB_INTERNAL_H_

#include <sqlite3.h>

#include "base/buf.h"
#include "base/hash.h"
#include "db/db.h"

#define CUVIL_DB_APPLICATION_ID 0x4375566c /* "CuVl" */
#define CUVIL_DB_SCHEMA 1
#define CUVIL_DB_BUSY_MS 60000

struct cuvil_db {
  sqlite3 *sqlite;
  char *path;       /* owned */
  char *cubin_dir;  /* owned */
  const char *vfs;  /* borrowed; NULL: SQLite's own choice */
  const char *l2;   /* static: "cold", "warm" or NULL */
  char journal[16]; /* "wal", "delete" or "none" (immutable) */
  enum cuvil_db_mode mode;
};

/* ---- schema.c: migrations[v] leads from version v to v + 1 */
extern const char *const cuvil_db_migrations[CUVIL_DB_SCHEMA];

/* ---- open.c
 * As cuvil_db_open, on a named SQLite VFS (tests of file systems that refuse
 * WAL). */
CUVIL_MUST_USE enum cuvil_status cuvil_db_open_vfs(const char *path,
                                                   enum cuvil_db_mode mode,
                                                   const char *vfs,
                                                   struct cuvil_db **out);

/* ---- sql.c
 * `kinds` has a letter for each parameter from ?1 on: t const char * (NULL
 * gives NULL), i int64_t, d double (NaN gives NULL), b const void * and size_t,
 * n nothing (NULL).  Texts and blobs must outlive the statement's use. */
enum cuvil_status cuvil_db_fail(struct cuvil_db *db, int rc);
CUVIL_MUST_USE enum cuvil_status cuvil_db_prepare(struct cuvil_db *db,
                                                  const char *sql,
                                                  sqlite3_stmt **out);
CUVIL_MUST_USE enum cuvil_status cuvil_db_bind(struct cuvil_db *db,
                                               sqlite3_stmt *statement,
                                               const char *kinds, ...);
CUVIL_MUST_USE enum cuvil_status cuvil_db_step(struct cuvil_db *db,
                                               sqlite3_stmt *statement,
                                               bool *out_row);
/* Prepares, binds, steps to the end. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_run(struct cuvil_db *db,
                                              const char *sql,
                                              const char *kinds, ...);
/* The first column of the first row; *out_found false when there is none. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_query_int(struct cuvil_db *db,
                                                    int64_t *out,
                                                    bool *out_found,
                                                    const char *sql,
                                                    const char *kinds, ...);
/* The id of the row that `find` finds, after `insert` where there was none;
 * both take the same parameters. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_intern(struct cuvil_db *db,
                                                 int64_t *out_id,
                                                 const char *find,
                                                 const char *insert,
                                                 const char *kinds, ...);
CUVIL_MUST_USE enum cuvil_status cuvil_db_begin(struct cuvil_db *db);
/* Commits when status is CUVIL_OK, else rolls back and returns status. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_end(struct cuvil_db *db,
                                              enum cuvil_status status);
/* Column as text, "" for NULL; valid until the next step. */
const char *cuvil_db_text(sqlite3_stmt *statement, int column);
double cuvil_db_real(sqlite3_stmt *statement, int column); /* NULL: NaN */

/* ---- evidence.c: hashes, and rows put inside a transaction of the caller */
CUVIL_MUST_USE enum cuvil_status cuvil_db_hash_measurement(
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *measurement, char out[CUVIL_HASH_SIZE]);
CUVIL_MUST_USE enum cuvil_status cuvil_db_hash_failure(
    const struct cuvil_db_context *context,
    const struct cuvil_db_failure *failure, char out[CUVIL_HASH_SIZE]);
CUVIL_MUST_USE enum cuvil_status cuvil_db_hash_race(
    const struct cuvil_db_context *context, const struct cuvil_db_race *race,
    char out[CUVIL_HASH_SIZE]);
CUVIL_MUST_USE enum cuvil_status cuvil_db_put_measurement(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *measurement, const char *recorded,
    bool *out_new);
CUVIL_MUST_USE enum cuvil_status cuvil_db_put_failure(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_failure *failure, const char *recorded,
    bool *out_new);
CUVIL_MUST_USE enum cuvil_status cuvil_db_put_race(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_race *race, const char *recorded, bool *out_new);

/* What may be recorded: CU_ERR_INVALID_ARGUMENT says what cannot be. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_check_context(
    const struct cuvil_db_context *context);
CUVIL_MUST_USE enum cuvil_status cuvil_db_check_measurement(
    const struct cuvil_db_measurement *measurement);

/* ---- winner.c */
/* The rows that table winner must hold, for problem ?1 or all (NULL). */
extern const char cuvil_db_derive_sql[];
/* problem_id 0: of all problems. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_derive(struct cuvil_db *db,
                                                 int64_t problem_id);

/* ---- read.c: the words of a filter as SQL over the names p (problem), k
 * (candidate), g (gpu), c (circumstance), e (the evidence itself), with
 * parameters ?1..?7. */
#define CUVIL_DB_FILTER_SQL                                            \
  "(?1 IS NULL OR p.text = ?1)"                                        \
  " AND (?2 IS NULL OR substr(p.text, 1, length(?2) + 1) = ?2 || '/')" \
  " AND (?4 IS NULL OR g.product = ?4)"                                \
  " AND (?5 IS NULL OR c.source = ?5)"                                 \
  " AND (?6 IS NULL OR e.recorded < ?6)"                               \
  " AND (?7 = 0 OR c.method < ?7)"
#define CUVIL_DB_FILTER_FAMILY_SQL " AND (?3 IS NULL OR k.family = ?3)"
#define CUVIL_DB_FILTER_RACE_FAMILY_SQL                          \
  " AND (?3 IS NULL OR EXISTS (SELECT 1 FROM race_participant x" \
  " JOIN candidate k ON k.id = x.candidate_id"                   \
  " WHERE x.race_id = e.id AND k.family = ?3))"
CUVIL_MUST_USE enum cuvil_status cuvil_db_bind_filter(
    struct cuvil_db *db, sqlite3_stmt *statement,
    const struct cuvil_db_filter *filter);

#endif /* CUVIL_DB_INTERNAL_H_ */
