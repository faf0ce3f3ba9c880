/* open.c - from a path to a handle that can be trusted, or a sentence.
 *
 * Nothing is written before the file has shown that it is ours: SQLite's
 * magic, our application_id (or an empty file), a schema no newer than this
 * program's.  Only then is the journal chosen and the schema brought up.
 *
 * Write-ahead logging lets readers go on while a tune writes, but it needs
 * shared memory and locks that some network file systems do not have: there
 * SQLite answers "delete" instead of "wal", or fails when the log is first
 * used.  Then the database gets a rollback journal, which works anywhere.
 *
 * A file that is only read may lie where nothing can be written (an image, a
 * mounted archive); a cleanly closed WAL file cannot be opened there in the
 * ordinary way, so it is opened as immutable once there is no log beside it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "db/internal.h"

enum cuvil_status cuvil_db_default_path(char *out, size_t size) {
  const char *path = getenv("CUVIL_DB");
  const char *cache = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  int length;
  if (path && *path) {
    length = snprintf(out, size, "%s", path);
  } else if (cache && *cache == '/') {
    length = snprintf(out, size, "%s/cuvil/cuvil.db", cache);
  } else if (home && *home) {
    length = snprintf(out, size, "%s/.cache/cuvil/cuvil.db", home);
  } else {
    return CUVIL_FAIL(CU_ERR_DB,
                      "no place for the database: HOME is not set; name a "
                      "file with --db or $CUVIL_DB");
  }
  if (length < 0 || (size_t)length >= size)
    return CUVIL_FAIL(CU_ERR_DB, "the database's path is longer than %zu bytes",
                      size - 1);
  return CUVIL_OK;
}

const char *cuvil_db_path(const struct cuvil_db *db) {
  return db->path;
}

const char *cuvil_db_cubin_dir(const struct cuvil_db *db) {
  return db->cubin_dir;
}

void cuvil_db_prefer_l2(struct cuvil_db *db, const char *l2) {
  db->l2 = NULL;
  if (l2 && strcmp(l2, "cold") == 0) db->l2 = "cold";
  if (l2 && strcmp(l2, "warm") == 0) db->l2 = "warm";
}

void cuvil_db_close(struct cuvil_db *db) {
  if (!db) return;
  sqlite3_close_v2(db->sqlite);
  free(db->path);
  free(db->cubin_dir);
  free(db);
}

/* "file:" with what a URI reserves written as %XX. */
static void print_immutable_uri(const char *path, struct cuvil_buf *out) {
  cuvil_buf_puts(out, "file:");
  for (const char *p = path; *p; p++) {
    if (strchr("?#%", *p))
      cuvil_buf_printf(out, "%%%02X", (unsigned char)*p);
    else
      cuvil_buf_add(out, p, 1);
  }
  cuvil_buf_puts(out, "?immutable=1");
}

static enum cuvil_status connect(struct cuvil_db *db, bool immutable) {
  int flags = db->mode == CUVIL_DB_WRITE
                  ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                  : SQLITE_OPEN_READONLY;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf uri = {0};
  sqlite3_close_v2(db->sqlite);
  db->sqlite = NULL;
  if (immutable) {
    print_immutable_uri(db->path, &uri);
    CUVIL_TRY_GOTO(cuvil_buf_status(&uri));
    flags |= SQLITE_OPEN_URI;
  }
  int rc = sqlite3_open_v2(immutable ? cuvil_buf_text(&uri) : db->path,
                           &db->sqlite, flags | SQLITE_OPEN_NOMUTEX, db->vfs);
  if (rc != SQLITE_OK) {
    status = cuvil_db_fail(db, rc);
    goto fail;
  }
  sqlite3_extended_result_codes(db->sqlite, 1);
  sqlite3_busy_timeout(db->sqlite, CUVIL_DB_BUSY_MS);
  sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
fail:
  cuvil_buf_free(&uri);
  return status;
}

/* What the file says it is.  The first read: every kind of damage shows. */
static enum cuvil_status read_identity(struct cuvil_db *db, int64_t *out_id,
                                       int64_t *out_version,
                                       int64_t *out_tables) {
  bool found;
  CUVIL_TRY(
      cuvil_db_query_int(db, out_id, &found, "PRAGMA application_id", ""));
  CUVIL_TRY(
      cuvil_db_query_int(db, out_version, &found, "PRAGMA user_version", ""));
  return cuvil_db_query_int(db, out_tables, &found,
                            "SELECT count(*) FROM sqlite_schema", "");
}

static enum cuvil_status check_identity(struct cuvil_db *db,
                                        int64_t *out_version) {
  int64_t id = 0, tables = 0;
  CUVIL_TRY(read_identity(db, &id, out_version, &tables));
  bool empty = id == 0 && *out_version == 0 && tables == 0;
  if (!empty && id != CUVIL_DB_APPLICATION_ID)
    return CUVIL_FAIL(CU_ERR_DB,
                      "%s: a database of another program (application_id "
                      "0x%08llx); it was left as it is; name another file "
                      "with --db",
                      db->path, (unsigned long long)(uint32_t)id);
  if (*out_version > CUVIL_DB_SCHEMA)
    return CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,
                      "%s: written by a newer Cuvil (schema %lld; this one "
                      "knows up to %d); it was left as it is; use the newer "
                      "version, or name another file with --db",
                      db->path, (long long)*out_version, CUVIL_DB_SCHEMA);
  if (db->mode == CUVIL_DB_WRITE && sqlite3_db_readonly(db->sqlite, "main"))
    return CUVIL_FAIL(CU_ERR_DB_READ_ONLY,
                      "%s: cannot be written; check the permissions of the "
                      "file and its folder, or name another file with --db",
                      db->path);
  if (db->mode == CUVIL_DB_READ && *out_version < CUVIL_DB_SCHEMA)
    return CUVIL_FAIL(CU_ERR_VERSION_MISMATCH,
                      "%s: %s; run `cuvil-db rebuild` on it once, or name "
                      "another file with --db",
                      db->path,
                      empty ? "holds no tables yet"
                            : "its schema is older than this Cuvil's");
  return CUVIL_OK;
}

/* Results that a file system gives which cannot share memory or locks. */
static bool refuses_wal(int rc) {
  int kind = rc & 0xff;
  return kind == SQLITE_IOERR || kind == SQLITE_PROTOCOL ||
         kind == SQLITE_CANTOPEN;
}

static int first_read(struct cuvil_db *db) {
  return sqlite3_exec(db->sqlite, "SELECT count(*) FROM sqlite_schema", NULL,
                      NULL, NULL);
}

/* Without shared memory only an exclusive connection may touch a WAL file. */
static enum cuvil_status leave_wal(struct cuvil_db *db) {
  int64_t version;
  CUVIL_TRY(connect(db, false));
  CUVIL_TRY(cuvil_db_run(db, "PRAGMA locking_mode = EXCLUSIVE", ""));
  CUVIL_TRY(check_identity(db, &version));
  CUVIL_TRY(cuvil_db_run(db, "PRAGMA journal_mode = DELETE", ""));
  return connect(db, false);
}

/* Runs a journal_mode pragma, keeps its answer, and reads once through the
 * journal. */
static int try_journal(struct cuvil_db *db, const char *sql) {
  sqlite3_stmt *statement = NULL;
  int rc = sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(statement);
  if (rc == SQLITE_ROW) {
    snprintf(db->journal, sizeof db->journal, "%s",
             cuvil_db_text(statement, 0));
    rc = SQLITE_OK;
  }
  sqlite3_finalize(statement);
  if (rc != SQLITE_OK) return rc;
  return first_read(db);
}

static enum cuvil_status choose_journal(struct cuvil_db *db) {
  int rc = SQLITE_BUSY;
  /* The change of mode can meet another process doing the same, and SQLite
   * does not always wait by itself there. */
  for (int waited = 0; waited <= CUVIL_DB_BUSY_MS; waited += 20) {
    rc = try_journal(db, "PRAGMA journal_mode = WAL");
    if ((rc & 0xff) != SQLITE_BUSY && (rc & 0xff) != SQLITE_LOCKED) break;
    sqlite3_sleep(20);
  }
  if (refuses_wal(rc)) {
    cuvil_log_verbose(
        "%s: the file system refuses write-ahead logging (%s); using a "
        "rollback journal",
        db->path, sqlite3_errmsg(db->sqlite));
    CUVIL_TRY(leave_wal(db));
    rc = try_journal(db, "PRAGMA journal_mode = DELETE");
  }
  if (rc != SQLITE_OK) return cuvil_db_fail(db, rc);
  /* With a log, NORMAL loses at most the newest rows to a power cut and never
   * the file; a rollback journal needs FULL for the same promise. */
  bool wal = strcmp(db->journal, "wal") == 0;
  return cuvil_db_run(
      db, wal ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL",
      "");
}

/* One transaction: another process sees the old schema or the new one. */
static enum cuvil_status migrate(struct cuvil_db *db) {
  CUVIL_TRY(cuvil_db_begin(db));
  int64_t version = 0;
  /* Again, now that the lock is ours: another process may have been first. */
  enum cuvil_status status = check_identity(db, &version);
  for (; status == CUVIL_OK && version < CUVIL_DB_SCHEMA; version++) {
    int rc = sqlite3_exec(db->sqlite, cuvil_db_migrations[version], NULL, NULL,
                          NULL);
    if (rc != SQLITE_OK) status = cuvil_db_fail(db, rc);
  }
  if (status == CUVIL_OK) {
    char sql[96];
    snprintf(sql, sizeof sql,
             "PRAGMA application_id = %d; PRAGMA user_version = %d",
             CUVIL_DB_APPLICATION_ID, CUVIL_DB_SCHEMA);
    int rc = sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL);
    if (rc != SQLITE_OK) status = cuvil_db_fail(db, rc);
  }
  if (status == CUVIL_OK && version > 0) status = cuvil_db_derive(db, 0);
  return cuvil_db_end(db, status);
}

static enum cuvil_status open_for_writing(struct cuvil_db *db) {
  int64_t version = 0;
  CUVIL_TRY(connect(db, false));
  /* A file with a log, brought to a file system that refuses logs. */
  if (refuses_wal(first_read(db))) CUVIL_TRY(leave_wal(db));
  CUVIL_TRY(check_identity(db, &version));
  CUVIL_TRY(choose_journal(db));
  if (version < CUVIL_DB_SCHEMA) CUVIL_TRY(migrate(db));
  if (mkdir(db->cubin_dir, 0777) != 0 && errno != EEXIST)
    return CUVIL_FAIL(CU_ERR_DB_READ_ONLY,
                      "%s: the folder of compiled kernels cannot be made "
                      "(%s); check the permissions of its folder",
                      db->cubin_dir, strerror(errno));
  return CUVIL_OK;
}

static bool has_log(const char *path) {
  struct cuvil_buf wal = {0};
  struct stat info;
  cuvil_buf_printf(&wal, "%s-wal", path);
  bool there =
      !wal.failed && stat(cuvil_buf_text(&wal), &info) == 0 && info.st_size > 0;
  cuvil_buf_free(&wal);
  return there;
}

static enum cuvil_status open_for_reading(struct cuvil_db *db) {
  int64_t version = 0;
  CUVIL_TRY(connect(db, false));
  int rc = first_read(db);
  int kind = rc & 0xff;
  snprintf(db->journal, sizeof db->journal, "unknown");
  if ((kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY) &&
      !has_log(db->path)) {
    CUVIL_TRY(connect(db, true));
    snprintf(db->journal, sizeof db->journal, "none");
  }
  CUVIL_TRY(check_identity(db, &version));
  if (strcmp(db->journal, "none") == 0) return CUVIL_OK;
  rc = try_journal(db, "PRAGMA journal_mode");
  return rc == SQLITE_OK ? CUVIL_OK : cuvil_db_fail(db, rc);
}

/* What stat can say better than SQLite. */
static enum cuvil_status check_path(const struct cuvil_db *db) {
  struct stat info;
  if (stat(db->path, &info) != 0) {
    if (db->mode == CUVIL_DB_WRITE) return CUVIL_OK;
    return CUVIL_FAIL(
        CU_ERR_DB,
        "%s: %s; tune a model first (cuvil-tune), or name "
        "another file with --db",
        db->path,
        errno == ENOENT ? "there is no such database yet" : strerror(errno));
  }
  if (!S_ISREG(info.st_mode))
    return CUVIL_FAIL(
        CU_ERR_DB, "%s: %s; name a file with --db", db->path,
        S_ISDIR(info.st_mode) ? "is a folder" : "is not a regular file");
  return CUVIL_OK;
}

/* The default place is made where it is missing; a folder that somebody named
 * and that is missing is more likely a slip. */
static enum cuvil_status set_path(struct cuvil_db *db, const char *path) {
  char fallback[4096];
  if (!path) {
    CUVIL_TRY(cuvil_db_default_path(fallback, sizeof fallback));
    char *slash = strrchr(fallback, '/');
    if (db->mode == CUVIL_DB_WRITE && slash && slash != fallback) {
      *slash = '\0';
      CUVIL_TRY(cuvil_make_dirs(fallback));
      *slash = '/';
    }
    path = fallback;
  }
  if (!*path)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "the database's path is empty; name a file with --db");
  struct cuvil_buf cubins = {0};
  cuvil_buf_printf(&cubins, "%s.cubins", path);
  enum cuvil_status status = cuvil_buf_status(&cubins);
  if (status == CUVIL_OK) {
    db->path = strdup(path);
    db->cubin_dir = cuvil_buf_take(&cubins);
    if (!db->path)
      status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  }
  cuvil_buf_free(&cubins);
  return status;
}

enum cuvil_status cuvil_db_open_vfs(const char *path, enum cuvil_db_mode mode,
                                    const char *vfs, struct cuvil_db **out) {
  *out = NULL;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_db *db = calloc(1, sizeof *db);
  if (!db) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  db->mode = mode;
  db->vfs = vfs;
  CUVIL_TRY_GOTO(set_path(db, path));
  CUVIL_TRY_GOTO(check_path(db));
  CUVIL_TRY_GOTO(mode == CUVIL_DB_WRITE ? open_for_writing(db)
                                        : open_for_reading(db));
  *out = db;
  return CUVIL_OK;
fail:
  cuvil_db_close(db);
  return status;
}

enum cuvil_status cuvil_db_open(const char *path, enum cuvil_db_mode mode,
                                struct cuvil_db **out) {
  return cuvil_db_open_vfs(path, mode, NULL, out);
}
