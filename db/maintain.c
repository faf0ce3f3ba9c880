/* maintain.c - whole-file work: union, rebuilding, pruning, counting.
 *
 * A merge reads the other file through read.c and puts every row through the
 * same door as a fresh one, in one transaction, so the result cannot depend on
 * the order of the files: a row is there by its hash or it is not.
 */
#include <string.h>
#include <sys/stat.h>

#include "db/internal.h"

/* ---- merge */

struct merge {
  struct cuvil_db *into;
  const char *from;
  struct cuvil_db_counts added;
};

static enum cuvil_status check_hash(const struct merge *merge, const char *kind,
                                    const char *stored, const char *computed) {
  if (strcmp(stored, computed) == 0) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_DB,
                    "%s: %s %s does not match its content; nothing was "
                    "merged; see `cuvil-db verify --db %s`",
                    merge->from, kind, stored, merge->from);
}

static enum cuvil_status merge_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *measurement) {
  struct merge *merge = user;
  char hash[CUVIL_HASH_SIZE];
  bool is_new = false;
  CUVIL_TRY(cuvil_db_hash_measurement(context, measurement, hash));
  CUVIL_TRY(check_hash(merge, "measurement", stamp->hash, hash));
  CUVIL_TRY(cuvil_db_put_measurement(merge->into, context, measurement,
                                     stamp->recorded, &is_new));
  merge->added.measurements += is_new;
  return CUVIL_OK;
}

static enum cuvil_status merge_failure(void *user,
                                       const struct cuvil_db_stamp *stamp,
                                       const struct cuvil_db_context *context,
                                       const struct cuvil_db_failure *failure) {
  struct merge *merge = user;
  char hash[CUVIL_HASH_SIZE];
  bool is_new = false;
  CUVIL_TRY(cuvil_db_hash_failure(context, failure, hash));
  CUVIL_TRY(check_hash(merge, "failure", stamp->hash, hash));
  CUVIL_TRY(cuvil_db_put_failure(merge->into, context, failure, stamp->recorded,
                                 &is_new));
  merge->added.failures += is_new;
  return CUVIL_OK;
}

static enum cuvil_status merge_race(void *user,
                                    const struct cuvil_db_stamp *stamp,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_race *race) {
  struct merge *merge = user;
  char hash[CUVIL_HASH_SIZE];
  bool is_new = false;
  CUVIL_TRY(cuvil_db_hash_race(context, race, hash));
  CUVIL_TRY(check_hash(merge, "race", stamp->hash, hash));
  CUVIL_TRY(
      cuvil_db_put_race(merge->into, context, race, stamp->recorded, &is_new));
  merge->added.races += is_new;
  return CUVIL_OK;
}

static enum cuvil_status merge_all(struct cuvil_db *from, struct merge *merge) {
  CUVIL_TRY(cuvil_db_each_measurement(from, NULL, merge_measurement, merge));
  CUVIL_TRY(cuvil_db_each_failure(from, NULL, merge_failure, merge));
  return cuvil_db_each_race(from, NULL, merge_race, merge);
}

static bool is_same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

enum cuvil_status cuvil_db_merge(struct cuvil_db *db, const char *from,
                                 struct cuvil_db_counts *out) {
  *out = (struct cuvil_db_counts){0};
  struct merge merge = {.into = db, .from = from};
  struct cuvil_db *other = NULL;
  if (is_same_file(db->path, from))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s: a database is not merged into itself", from);
  enum cuvil_status status = cuvil_db_open(from, CUVIL_DB_READ, &other);
  if (status == CUVIL_OK) status = cuvil_db_begin(db);
  if (status == CUVIL_OK) status = cuvil_db_end(db, merge_all(other, &merge));
  cuvil_db_close(other);
  if (status == CUVIL_OK) *out = merge.added;
  return status;
}

enum cuvil_status cuvil_db_rebuild(struct cuvil_db *db) {
  CUVIL_TRY(cuvil_db_begin(db));
  return cuvil_db_end(db, cuvil_db_derive(db, 0));
}

/* ---- prune */

#define FROM_CANDIDATE                                        \
  " e JOIN candidate k ON k.id = e.candidate_id"              \
  " JOIN problem p ON p.id = k.problem_id"                    \
  " JOIN circumstance c ON c.id = e.circumstance_id"          \
  " JOIN gpu g ON g.id = c.gpu_id WHERE " CUVIL_DB_FILTER_SQL \
      CUVIL_DB_FILTER_FAMILY_SQL ")"
static const char *const prune_sql[3] = {
    "DELETE FROM measurement WHERE id IN"
    " (SELECT e.id FROM measurement" FROM_CANDIDATE,
    "DELETE FROM failure WHERE id IN"
    " (SELECT e.id FROM failure" FROM_CANDIDATE,
    "DELETE FROM race WHERE id IN (SELECT e.id FROM race e"
    " JOIN problem p ON p.id = e.problem_id"
    " JOIN circumstance c ON c.id = e.circumstance_id"
    " JOIN gpu g ON g.id = c.gpu_id WHERE " CUVIL_DB_FILTER_SQL
        CUVIL_DB_FILTER_RACE_FAMILY_SQL ")",
};
/* Dimension rows that nothing refers to, those that refer to others first. */
static const char *const sweep_sql[] = {
    "DELETE FROM candidate WHERE"
    " NOT EXISTS (SELECT 1 FROM measurement WHERE candidate_id = candidate.id)"
    " AND NOT EXISTS (SELECT 1 FROM failure WHERE candidate_id = candidate.id)"
    " AND NOT EXISTS (SELECT 1 FROM race_participant"
    "   WHERE candidate_id = candidate.id)",
    "DELETE FROM problem WHERE"
    " NOT EXISTS (SELECT 1 FROM candidate WHERE problem_id = problem.id)"
    " AND NOT EXISTS (SELECT 1 FROM race WHERE problem_id = problem.id)",
    "DELETE FROM circumstance WHERE id NOT IN"
    " (SELECT circumstance_id FROM measurement UNION"
    "  SELECT circumstance_id FROM failure UNION"
    "  SELECT circumstance_id FROM race)",
    "DELETE FROM versions WHERE id NOT IN"
    " (SELECT versions_id FROM circumstance)",
    "DELETE FROM gpu WHERE id NOT IN (SELECT gpu_id FROM circumstance)",
};

static enum cuvil_status prune_table(struct cuvil_db *db, const char *sql,
                                     const struct cuvil_db_filter *filter,
                                     int64_t *out_removed) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *statement = NULL;
  bool row;
  CUVIL_TRY_GOTO(cuvil_db_prepare(db, sql, &statement));
  CUVIL_TRY_GOTO(cuvil_db_bind_filter(db, statement, filter));
  CUVIL_TRY_GOTO(cuvil_db_step(db, statement, &row));
  *out_removed = sqlite3_changes64(db->sqlite);
fail:
  sqlite3_finalize(statement);
  return status;
}

static enum cuvil_status prune_all(struct cuvil_db *db,
                                   const struct cuvil_db_filter *filter,
                                   struct cuvil_db_counts *out) {
  /* Winners first: they refer to candidates and races, and follow anyway. */
  CUVIL_TRY(cuvil_db_run(db, "DELETE FROM winner", ""));
  CUVIL_TRY(prune_table(db, prune_sql[0], filter, &out->measurements));
  CUVIL_TRY(prune_table(db, prune_sql[1], filter, &out->failures));
  CUVIL_TRY(prune_table(db, prune_sql[2], filter, &out->races));
  for (size_t i = 0; i < sizeof sweep_sql / sizeof *sweep_sql; i++)
    CUVIL_TRY(cuvil_db_run(db, sweep_sql[i], ""));
  return cuvil_db_derive(db, 0);
}

enum cuvil_status cuvil_db_prune(struct cuvil_db *db,
                                 const struct cuvil_db_filter *filter,
                                 bool commit, struct cuvil_db_counts *out) {
  *out = (struct cuvil_db_counts){0};
  CUVIL_TRY(cuvil_db_begin(db));
  enum cuvil_status status = prune_all(db, filter, out);
  if (status == CUVIL_OK && !commit) return cuvil_db_run(db, "ROLLBACK", "");
  CUVIL_TRY(cuvil_db_end(db, status));
  /* The freed pages go back to the file system. */
  return cuvil_db_run(db, "VACUUM", "");
}

/* ---- stats */

enum cuvil_status cuvil_db_stats(struct cuvil_db *db,
                                 struct cuvil_db_stats *out) {
  *out = (struct cuvil_db_stats){.schema = CUVIL_DB_SCHEMA};
  const struct {
    const char *sql;
    int64_t *out;
  } counts[] = {
      {"SELECT count(*) FROM measurement", &out->evidence.measurements},
      {"SELECT count(*) FROM failure", &out->evidence.failures},
      {"SELECT count(*) FROM race", &out->evidence.races},
      {"SELECT count(*) FROM (SELECT circumstance_id i FROM measurement"
       " UNION ALL SELECT circumstance_id FROM failure"
       " UNION ALL SELECT circumstance_id FROM race)"
       " JOIN circumstance c ON c.id = i WHERE c.source = 'replayed'",
       &out->replayed},
      {"SELECT count(*) FROM problem", &out->problems},
      {"SELECT count(*) FROM candidate", &out->candidates},
      {"SELECT count(*) FROM gpu", &out->gpus},
      {"SELECT count(*) FROM versions", &out->environments},
      {"SELECT count(*) FROM winner WHERE place = 1", &out->winners},
      {"SELECT coalesce(sum(length(blocks) + length(rounds)), 0) +"
       " (SELECT coalesce(sum(length(seconds)), 0) FROM race_participant)"
       " FROM measurement",
       &out->block_bytes},
      {"SELECT page_count * page_size"
       " FROM pragma_page_count, pragma_page_size",
       &out->file_bytes},
  };
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    bool found;
    CUVIL_TRY(cuvil_db_query_int(db, counts[i].out, &found, counts[i].sql, ""));
  }
  memcpy(out->journal, db->journal, sizeof out->journal);
  return CUVIL_OK;
}
