/* sql.c - SQLite made to speak in statuses.
 *
 * Every result code that a user can do something about becomes the status and
 * the sentence that say what; the rest keeps SQLite's own words.  None of them
 * changes the file: whatever failed is rolled back.
 */
#include <math.h>
#include <stdlib.h>

#include "db/internal.h"

enum cuvil_status cuvil_db_fail(struct cuvil_db *db, int rc) {
  const char *path = db->path;
  const char *words =
      db->sqlite ? sqlite3_errmsg(db->sqlite) : sqlite3_errstr(rc);
  switch (rc & 0xff) {
    case SQLITE_NOMEM:
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s: memory is used up", path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return CUVIL_FAIL(CU_ERR_DB_BUSY,
                        "%s: locked by another process for more than %d s; "
                        "wait for it to end, or use another --db",
                        path, CUVIL_DB_BUSY_MS / 1000);
    case SQLITE_FULL:
      return CUVIL_FAIL(CU_ERR_DB_READ_ONLY,
                        "%s: the disk is full; what was recorded before is "
                        "kept; free space and run the command again",
                        path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return CUVIL_FAIL(CU_ERR_DB_READ_ONLY,
                        "%s: cannot be written (%s); check the permissions of "
                        "the file and its folder, or name another file with "
                        "--db",
                        path, words);
    case SQLITE_CANTOPEN:
      return CUVIL_FAIL(
          db->mode == CUVIL_DB_WRITE ? CU_ERR_DB_READ_ONLY : CU_ERR_DB,
          "%s: cannot be opened (%s); check that its folder exists and may be "
          "%s, or name another file with --db",
          path, words, db->mode == CUVIL_DB_WRITE ? "written" : "read");
    case SQLITE_NOTADB:
      return CUVIL_FAIL(CU_ERR_DB,
                        "%s: not a database; the file was left as it is; name "
                        "another file with --db",
                        path);
    case SQLITE_CORRUPT:
      return CUVIL_FAIL(CU_ERR_DB,
                        "%s: the database is damaged (%s); it was left as it "
                        "is; see `cuvil-db verify`, restore a copy, or name "
                        "another file with --db",
                        path, words);
    case SQLITE_CONSTRAINT:
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "%s: not recorded (%s)", path,
                        words);
    default:
      return CUVIL_FAIL(CU_ERR_DB,
                        "%s: reading or writing failed (%s, code %d); check "
                        "the disk, or name another file with --db",
                        path, words, rc);
  }
}

enum cuvil_status cuvil_db_prepare(struct cuvil_db *db, const char *sql,
                                   sqlite3_stmt **out) {
  *out = NULL;
  int rc = sqlite3_prepare_v2(db->sqlite, sql, -1, out, NULL);
  return rc == SQLITE_OK ? CUVIL_OK : cuvil_db_fail(db, rc);
}

static enum cuvil_status bind_list(struct cuvil_db *db, sqlite3_stmt *statement,
                                   const char *kinds, va_list args) {
  for (int i = 0; kinds[i]; i++) {
    int rc = SQLITE_OK;
    switch (kinds[i]) {
      case 't':
        rc = sqlite3_bind_text(statement, i + 1, va_arg(args, const char *), -1,
                               SQLITE_STATIC);
        break;
      case 'i':
        rc = sqlite3_bind_int64(statement, i + 1, va_arg(args, int64_t));
        break;
      case 'd':
        rc = sqlite3_bind_double(statement, i + 1, va_arg(args, double));
        break;
      case 'b': {
        const void *bytes = va_arg(args, const void *);
        size_t size = va_arg(args, size_t);
        rc = sqlite3_bind_blob64(statement, i + 1, bytes ? bytes : "", size,
                                 SQLITE_STATIC);
        break;
      }
      default:
        rc = sqlite3_bind_null(statement, i + 1);
    }
    if (rc != SQLITE_OK) return cuvil_db_fail(db, rc);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_db_bind(struct cuvil_db *db, sqlite3_stmt *statement,
                                const char *kinds, ...) {
  va_list args;
  va_start(args, kinds);
  enum cuvil_status status = bind_list(db, statement, kinds, args);
  va_end(args);
  return status;
}

enum cuvil_status cuvil_db_step(struct cuvil_db *db, sqlite3_stmt *statement,
                                bool *out_row) {
  int rc = sqlite3_step(statement);
  *out_row = rc == SQLITE_ROW;
  if (rc == SQLITE_ROW || rc == SQLITE_DONE) return CUVIL_OK;
  return cuvil_db_fail(db, rc);
}

/* One row at most: *out is its first column where it has one. */
static enum cuvil_status query_list(struct cuvil_db *db, int64_t *out,
                                    bool *out_found, const char *sql,
                                    const char *kinds, va_list args) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *statement = NULL;
  *out_found = false;
  CUVIL_TRY_GOTO(cuvil_db_prepare(db, sql, &statement));
  CUVIL_TRY_GOTO(bind_list(db, statement, kinds, args));
  CUVIL_TRY_GOTO(cuvil_db_step(db, statement, out_found));
  if (*out_found) *out = sqlite3_column_int64(statement, 0);
fail:
  sqlite3_finalize(statement);
  return status;
}

enum cuvil_status cuvil_db_query_int(struct cuvil_db *db, int64_t *out,
                                     bool *out_found, const char *sql,
                                     const char *kinds, ...) {
  va_list args;
  va_start(args, kinds);
  enum cuvil_status status = query_list(db, out, out_found, sql, kinds, args);
  va_end(args);
  return status;
}

static enum cuvil_status run_list(struct cuvil_db *db, const char *sql,
                                  const char *kinds, va_list args) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *statement = NULL;
  CUVIL_TRY_GOTO(cuvil_db_prepare(db, sql, &statement));
  CUVIL_TRY_GOTO(bind_list(db, statement, kinds, args));
  for (bool row = true; row;)
    CUVIL_TRY_GOTO(cuvil_db_step(db, statement, &row));
fail:
  sqlite3_finalize(statement);
  return status;
}

enum cuvil_status cuvil_db_run(struct cuvil_db *db, const char *sql,
                               const char *kinds, ...) {
  va_list args;
  va_start(args, kinds);
  enum cuvil_status status = run_list(db, sql, kinds, args);
  va_end(args);
  return status;
}

enum cuvil_status cuvil_db_intern(struct cuvil_db *db, int64_t *out_id,
                                  const char *find, const char *insert,
                                  const char *kinds, ...) {
  va_list args, again;
  va_start(args, kinds);
  va_copy(again, args);
  bool found = false;
  enum cuvil_status status = query_list(db, out_id, &found, find, kinds, args);
  if (status == CUVIL_OK && !found) {
    status = run_list(db, insert, kinds, again);
    if (status == CUVIL_OK) *out_id = sqlite3_last_insert_rowid(db->sqlite);
  }
  va_end(again);
  va_end(args);
  return status;
}

enum cuvil_status cuvil_db_begin(struct cuvil_db *db) {
  if (db->mode != CUVIL_DB_WRITE)
    return CUVIL_FAIL(CU_ERR_DB_READ_ONLY, "%s: was opened for reading only",
                      db->path);
  /* Immediate: the write lock is taken, or waited for, here and nowhere else;
   * no reader-turned-writer can fail half-way. */
  return cuvil_db_run(db, "BEGIN IMMEDIATE", "");
}

enum cuvil_status cuvil_db_end(struct cuvil_db *db, enum cuvil_status status) {
  if (status == CUVIL_OK) {
    status = cuvil_db_run(db, "COMMIT", "");
    if (status == CUVIL_OK) return CUVIL_OK;
  }
  /* Straight to SQLite: the record must keep saying what failed first.  Some
   * failures have rolled back by themselves. */
  if (!sqlite3_get_autocommit(db->sqlite))
    sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
  return status;
}

const char *cuvil_db_text(sqlite3_stmt *statement, int column) {
  const unsigned char *text = sqlite3_column_text(statement, column);
  return text ? (const char *)text : "";
}

double cuvil_db_real(sqlite3_stmt *statement, int column) {
  return sqlite3_column_type(statement, column) == SQLITE_NULL
             ? NAN
             : sqlite3_column_double(statement, column);
}
