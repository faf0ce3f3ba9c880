/* verify.c - does the file keep what it promises?
 *
 * SQLite checks its own pages and references; the rest is ours: every row's
 * hash is computed again, times must be possible and agree with the blocks
 * that they were taken from, and the winners must be those that the races
 * give.  Nothing is written, so a damaged file can be looked at as often as
 * wanted.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "db/internal.h"

struct verify {
  struct cuvil_db *db;
  void (*callback)(void *user, const char *finding);
  void *user;
  int findings;
};

static void found(struct verify *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void found(struct verify *v, const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  v->findings++;
  if (v->callback) v->callback(v->user, line);
}

static void check_hash(struct verify *v, const char *kind, const char *stored,
                       const char *computed) {
  if (strcmp(stored, computed) != 0)
    found(v, "%s %s: the content's hash is %s", kind, stored, computed);
}

static bool is_time(double seconds) {
  return isfinite(seconds) && seconds > 0;
}

static enum cuvil_status verify_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m) {
  struct verify *v = user;
  char hash[CUVIL_HASH_SIZE];
  CUVIL_TRY(cuvil_db_hash_measurement(context, m, hash));
  check_hash(v, "measurement", stamp->hash, hash);
  double least = INFINITY, most = 0;
  for (int i = 0; i < m->block_count; i++) {
    if (!is_time(m->blocks[i]))
      found(v, "measurement %s: block %d lasted %g s", stamp->hash, i,
            m->blocks[i]);
    least = fmin(least, m->blocks[i]);
    most = fmax(most, m->blocks[i]);
  }
  if (!(m->median >= least && m->median <= most))
    found(v, "measurement %s: median %g s outside of its blocks' %g..%g s",
          stamp->hash, m->median, least, most);
  return CUVIL_OK;
}

static enum cuvil_status verify_failure(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_failure *failure) {
  struct verify *v = user;
  char hash[CUVIL_HASH_SIZE];
  CUVIL_TRY(cuvil_db_hash_failure(context, failure, hash));
  check_hash(v, "failure", stamp->hash, hash);
  return CUVIL_OK;
}

static enum cuvil_status verify_race(void *user,
                                     const struct cuvil_db_stamp *stamp,
                                     const struct cuvil_db_context *context,
                                     const struct cuvil_db_race *race) {
  struct verify *v = user;
  char hash[CUVIL_HASH_SIZE];
  int winners = 0;
  CUVIL_TRY(cuvil_db_hash_race(context, race, hash));
  check_hash(v, "race", stamp->hash, hash);
  for (int i = 0; i < race->participant_count; i++) {
    const struct cuvil_db_participant *p = &race->participants[i];
    if (p->flags & CUVIL_RACE_WINNER) winners++;
    for (int r = 0; r < race->rounds; r++) {
      if (!isnan(p->seconds[r]) && !is_time(p->seconds[r]))
        found(v, "race %s: participant %d lasted %g s in round %d", stamp->hash,
              i, p->seconds[r], r);
    }
  }
  if (winners != 1)
    found(v, "race %s: has %d winners among %d participants", stamp->hash,
          winners, race->participant_count);
  return CUVIL_OK;
}

/* Every row of `sql` is a finding: its columns, separated by spaces; a single
 * row "ok" is none. */
static enum cuvil_status rows_are_findings(struct verify *v, const char *what,
                                           const char *sql) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *row = NULL;
  CUVIL_TRY_GOTO(cuvil_db_prepare(v->db, sql, &row));
  for (;;) {
    bool more;
    char line[900] = "";
    size_t used = 0;
    CUVIL_TRY_GOTO(cuvil_db_step(v->db, row, &more));
    if (!more) break;
    for (int i = 0; i < sqlite3_column_count(row); i++) {
      if (used < sizeof line)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s",
                                 i ? " " : "", cuvil_db_text(row, i));
    }
    if (strcmp(line, "ok") != 0) found(v, "%s: %s", what, line);
  }
fail:
  sqlite3_finalize(row);
  return status;
}

/* The derived table against what the races give, both ways.  The races'
 * answer is made by the same query that fills the table; `temp` is writable
 * even where the file is not. */
static enum cuvil_status verify_winners(struct verify *v) {
  struct cuvil_buf sql = {0};
  CUVIL_TRY(cuvil_db_run(v->db, "PRAGMA temp_store = MEMORY", ""));
  CUVIL_TRY(cuvil_db_run(
      v->db, "CREATE TEMP TABLE derived AS SELECT * FROM winner WHERE 0", ""));
  cuvil_buf_printf(&sql, "INSERT INTO temp.derived %s", cuvil_db_derive_sql);
  enum cuvil_status status = cuvil_buf_status(&sql);
  if (status == CUVIL_OK)
    status = cuvil_db_run(v->db, cuvil_buf_text(&sql), "n");
  cuvil_buf_free(&sql);
  CUVIL_TRY(status);
  CUVIL_TRY(rows_are_findings(
      v, "a winner that the races do not give (run `cuvil-db rebuild`)",
      "SELECT r.hash FROM (SELECT * FROM winner EXCEPT SELECT * FROM derived) w"
      " LEFT JOIN race r ON r.id = w.race_id"));
  CUVIL_TRY(rows_are_findings(
      v, "a winner is missing (run `cuvil-db rebuild`)",
      "SELECT r.hash FROM (SELECT * FROM derived EXCEPT SELECT * FROM winner) w"
      " LEFT JOIN race r ON r.id = w.race_id"));
  return cuvil_db_run(v->db, "DROP TABLE temp.derived", "");
}

static enum cuvil_status verify_all(struct verify *v) {
  CUVIL_TRY(rows_are_findings(v, "SQLite", "PRAGMA integrity_check(20)"));
  CUVIL_TRY(rows_are_findings(v, "a reference to nothing",
                              "PRAGMA foreign_key_check"));
  CUVIL_TRY(
      rows_are_findings(v, "a candidate that nothing refers to",
                        "SELECT family, config FROM candidate WHERE id NOT IN"
                        " (SELECT candidate_id FROM measurement UNION"
                        "  SELECT candidate_id FROM failure UNION"
                        "  SELECT candidate_id FROM race_participant)"));
  CUVIL_TRY(cuvil_db_each_measurement(v->db, NULL, verify_measurement, v));
  CUVIL_TRY(cuvil_db_each_failure(v->db, NULL, verify_failure, v));
  CUVIL_TRY(cuvil_db_each_race(v->db, NULL, verify_race, v));
  return verify_winners(v);
}

enum cuvil_status cuvil_db_verify(struct cuvil_db *db,
                                  void (*callback)(void *user,
                                                   const char *finding),
                                  void *user, int *out_findings) {
  struct verify v = {db, callback, user, 0};
  *out_findings = 0;
  enum cuvil_status status = verify_all(&v);
  /* A file too damaged to be read to its end is what was asked about. */
  if (status == CU_ERR_DB) {
    found(&v, "cannot be read to its end: %s", cuvil_last_error());
    status = CUVIL_OK;
  }
  *out_findings = v.findings;
  return status;
}
