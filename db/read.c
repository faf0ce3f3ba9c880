/* read.c - evidence read back, as the structures that it was added with.
 *
 * Everything that looks at many rows goes through here: merging, verifying,
 * exporting, plots, the command line.  Blobs are copied, since SQLite promises
 * no alignment, and their sizes are checked, since a file is not believed.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "db/internal.h"

/* The columns that all evidence has, and where the others begin. */
#define COMMON_COLUMNS                                                     \
  "e.id, e.hash, e.recorded, g.product, g.arch, g.sms, g.memory_bytes,"    \
  " g.l2_bytes, v.driver, v.cuda, v.nvrtc, v.cublaslt, v.cudnn, c.source," \
  " c.l2, c.regime, c.method, p.text, p.signature"
#define COMMON_JOINS                                 \
  " JOIN circumstance c ON c.id = e.circumstance_id" \
  " JOIN gpu g ON g.id = c.gpu_id"                   \
  " JOIN versions v ON v.id = c.versions_id"
#define CANDIDATE_JOINS                        \
  " JOIN candidate k ON k.id = e.candidate_id" \
  " JOIN problem p ON p.id = k.problem_id"
enum { AFTER_COMMON = 19 };

static void copy_column(char *out, size_t size, sqlite3_stmt *row, int column) {
  snprintf(out, size, "%s", cuvil_db_text(row, column));
}

static void read_common(sqlite3_stmt *row, struct cuvil_db_stamp *stamp,
                        struct cuvil_db_context *context) {
  struct cuvil_env *env = &stamp->env;
  *stamp = (struct cuvil_db_stamp){
      .id = sqlite3_column_int64(row, 0),
      .hash = cuvil_db_text(row, 1),
      .recorded = cuvil_db_text(row, 2),
  };
  copy_column(env->gpu, sizeof env->gpu, row, 3);
  copy_column(env->arch, sizeof env->arch, row, 4);
  env->sms = sqlite3_column_int(row, 5);
  env->memory_bytes = sqlite3_column_int64(row, 6);
  env->l2_bytes = sqlite3_column_int64(row, 7);
  copy_column(env->driver, sizeof env->driver, row, 8);
  copy_column(env->cuda, sizeof env->cuda, row, 9);
  copy_column(env->nvrtc, sizeof env->nvrtc, row, 10);
  copy_column(env->cublaslt, sizeof env->cublaslt, row, 11);
  copy_column(env->cudnn, sizeof env->cudnn, row, 12);
  *context = (struct cuvil_db_context){
      .env = env,
      .source = cuvil_db_text(row, 13),
      .l2 = cuvil_db_text(row, 14),
      .regime = cuvil_db_text(row, 15),
      .method = sqlite3_column_int(row, 16),
  };
}

/* The candidate's columns follow the common ones. */
static void read_candidate(sqlite3_stmt *row, struct cuvil_db_candidate *out) {
  *out = (struct cuvil_db_candidate){
      .problem = cuvil_db_text(row, 17),
      .signature = cuvil_db_text(row, 18),
      .family = cuvil_db_text(row, AFTER_COMMON),
      .family_version = sqlite3_column_int(row, AFTER_COMMON + 1),
      .config = cuvil_db_text(row, AFTER_COMMON + 2),
  };
}

/* A blob of `unit`-byte values, copied into the arena. */
static enum cuvil_status read_array(struct cuvil_db *db,
                                    struct cuvil_arena *arena,
                                    sqlite3_stmt *row, int column, size_t unit,
                                    void **out, int *out_count) {
  const void *bytes = sqlite3_column_blob(row, column);
  size_t size = (size_t)sqlite3_column_bytes(row, column);
  *out = NULL;
  *out_count = (int)(size / unit);
  if (size % unit != 0)
    return CUVIL_FAIL(CU_ERR_DB,
                      "%s: an array of %zu bytes is not made of %zu-byte "
                      "values; see `cuvil-db verify`",
                      db->path, size, unit);
  *out = cuvil_arena_alloc(arena, size ? size : 1);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  if (size) memcpy(*out, bytes, size);
  return CUVIL_OK;
}

static const char *or_null(const char *text) {
  return text && *text ? text : NULL;
}

enum cuvil_status cuvil_db_bind_filter(struct cuvil_db *db,
                                       sqlite3_stmt *statement,
                                       const struct cuvil_db_filter *filter) {
  static const struct cuvil_db_filter everything;
  if (!filter) filter = &everything;
  return cuvil_db_bind(db, statement, "tttttti", or_null(filter->problem),
                       or_null(filter->kind), or_null(filter->family),
                       or_null(filter->gpu), or_null(filter->source),
                       or_null(filter->before), (int64_t)filter->method_below);
}

/* Prepares `sql`, binds the filter and calls `row` for each row. */
static enum cuvil_status each_row(
    struct cuvil_db *db, const char *sql, const struct cuvil_db_filter *filter,
    enum cuvil_status (*row)(struct cuvil_db *db, sqlite3_stmt *statement,
                             struct cuvil_arena *arena, void *closure),
    void *closure) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_arena arena = {0};
  sqlite3_stmt *statement = NULL;
  CUVIL_TRY_GOTO(cuvil_db_prepare(db, sql, &statement));
  CUVIL_TRY_GOTO(cuvil_db_bind_filter(db, statement, filter));
  for (;;) {
    bool more;
    CUVIL_TRY_GOTO(cuvil_db_step(db, statement, &more));
    if (!more) break;
    CUVIL_TRY_GOTO(row(db, statement, &arena, closure));
    cuvil_arena_free(&arena);
  }
fail:
  cuvil_arena_free(&arena);
  sqlite3_finalize(statement);
  return status;
}

/* ---- measurements */

struct measurement_closure {
  enum cuvil_status (*callback)(void *, const struct cuvil_db_stamp *,
                                const struct cuvil_db_context *,
                                const struct cuvil_db_measurement *);
  void *user;
};

static enum cuvil_status measurement_row(struct cuvil_db *db, sqlite3_stmt *row,
                                         struct cuvil_arena *arena,
                                         void *closure) {
  const struct measurement_closure *call = closure;
  struct cuvil_db_stamp stamp;
  struct cuvil_db_context context;
  struct cuvil_db_measurement m = {0};
  enum { AT = AFTER_COMMON + 3 };
  void *blocks, *rounds;
  int round_count;
  read_common(row, &stamp, &context);
  read_candidate(row, &m.candidate);
  m.cubin_hash = cuvil_db_text(row, AT);
  m.registers = sqlite3_column_int(row, AT + 1);
  m.spill_bytes = sqlite3_column_int(row, AT + 2);
  m.shared_bytes = sqlite3_column_int(row, AT + 3);
  m.compile_seconds = cuvil_db_real(row, AT + 4);
  m.worst_ratio = cuvil_db_real(row, AT + 5);
  m.median = cuvil_db_real(row, AT + 6);
  m.low = cuvil_db_real(row, AT + 7);
  m.high = cuvil_db_real(row, AT + 8);
  CUVIL_TRY(read_array(db, arena, row, AT + 9, sizeof(double), &blocks,
                       &m.block_count));
  CUVIL_TRY(
      read_array(db, arena, row, AT + 10, sizeof(int), &rounds, &round_count));
  if (m.block_count != round_count)
    return CUVIL_FAIL(CU_ERR_DB,
                      "%s: measurement %s has %d blocks and %d round numbers; "
                      "see `cuvil-db verify`",
                      db->path, stamp.hash, m.block_count, round_count);
  m.blocks = blocks;
  m.rounds = rounds;
  return call->callback(call->user, &stamp, &context, &m);
}

enum cuvil_status cuvil_db_each_measurement(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(
        void *user, const struct cuvil_db_stamp *stamp,
        const struct cuvil_db_context *context,
        const struct cuvil_db_measurement *measurement),
    void *user) {
  struct measurement_closure call = {callback, user};
  return each_row(
      db,
      "SELECT " COMMON_COLUMNS
      ", k.family, k.family_version, k.config, e.cubin_hash, e.registers,"
      " e.spill_bytes, e.shared_bytes, e.compile_seconds, e.worst_ratio,"
      " e.median, e.low, e.high, e.blocks, e.rounds"
      " FROM measurement e" CANDIDATE_JOINS COMMON_JOINS
      " WHERE " CUVIL_DB_FILTER_SQL CUVIL_DB_FILTER_FAMILY_SQL " ORDER BY e.id",
      filter, measurement_row, &call);
}

/* ---- failures */

struct failure_closure {
  enum cuvil_status (*callback)(void *, const struct cuvil_db_stamp *,
                                const struct cuvil_db_context *,
                                const struct cuvil_db_failure *);
  void *user;
};

static enum cuvil_status failure_row(struct cuvil_db *db, sqlite3_stmt *row,
                                     struct cuvil_arena *arena, void *closure) {
  (void)db;
  (void)arena;
  const struct failure_closure *call = closure;
  struct cuvil_db_stamp stamp;
  struct cuvil_db_context context;
  struct cuvil_db_failure failure = {
      .reason = cuvil_db_text(row, AFTER_COMMON + 3),
      .detail = cuvil_db_text(row, AFTER_COMMON + 4),
  };
  read_common(row, &stamp, &context);
  read_candidate(row, &failure.candidate);
  return call->callback(call->user, &stamp, &context, &failure);
}

enum cuvil_status cuvil_db_each_failure(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_failure *failure),
    void *user) {
  struct failure_closure call = {callback, user};
  return each_row(db,
                  "SELECT " COMMON_COLUMNS
                  ", k.family, k.family_version, k.config, e.reason, e.detail"
                  " FROM failure e" CANDIDATE_JOINS COMMON_JOINS
                  " WHERE " CUVIL_DB_FILTER_SQL CUVIL_DB_FILTER_FAMILY_SQL
                  " ORDER BY e.id",
                  filter, failure_row, &call);
}

/* ---- races */

struct race_closure {
  enum cuvil_status (*callback)(void *, const struct cuvil_db_stamp *,
                                const struct cuvil_db_context *,
                                const struct cuvil_db_race *);
  void *user;
};

static enum cuvil_status read_participant(struct cuvil_db *db,
                                          struct cuvil_arena *arena,
                                          sqlite3_stmt *row, int rounds,
                                          struct cuvil_db_participant *out) {
  void *seconds;
  int count;
  CUVIL_TRY(read_array(db, arena, row, 9, sizeof(double), &seconds, &count));
  if (count != rounds)
    return CUVIL_FAIL(CU_ERR_DB,
                      "%s: a participant of a race of %d rounds has %d times; "
                      "see `cuvil-db verify`",
                      db->path, rounds, count);
  *out = (struct cuvil_db_participant){
      .family = cuvil_arena_strdup(arena, cuvil_db_text(row, 0)),
      .family_version = sqlite3_column_int(row, 1),
      .config = cuvil_arena_strdup(arena, cuvil_db_text(row, 2)),
      .library = cuvil_arena_strdup(arena, cuvil_db_text(row, 3)),
      .flags = (unsigned)sqlite3_column_int(row, 4),
      .seconds = seconds,
      .median = cuvil_db_real(row, 5),
      .ratio = cuvil_db_real(row, 6),
      .ratio_low = cuvil_db_real(row, 7),
      .ratio_high = cuvil_db_real(row, 8),
  };
  if (!out->family || !out->config || !out->library)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  return CUVIL_OK;
}

static enum cuvil_status read_participants(struct cuvil_db *db,
                                           struct cuvil_arena *arena,
                                           int64_t race_id,
                                           struct cuvil_db_race *race) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *row = NULL;
  int64_t count = 0;
  bool found;
  CUVIL_TRY(cuvil_db_query_int(
      db, &count, &found,
      "SELECT count(*) FROM race_participant WHERE race_id = ?1", "i",
      race_id));
  struct cuvil_db_participant *list =
      cuvil_arena_array(arena, (size_t)count + 1, sizeof *list);
  if (!list) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  CUVIL_TRY_GOTO(cuvil_db_prepare(
      db,
      "SELECT k.family, k.family_version, k.config, x.library, x.flags,"
      " x.median, x.ratio, x.ratio_low, x.ratio_high, x.seconds"
      " FROM race_participant x JOIN candidate k ON k.id = x.candidate_id"
      " WHERE x.race_id = ?1 ORDER BY x.position",
      &row));
  CUVIL_TRY_GOTO(cuvil_db_bind(db, row, "i", race_id));
  for (race->participant_count = 0; race->participant_count < count;
       race->participant_count++) {
    bool more;
    CUVIL_TRY_GOTO(cuvil_db_step(db, row, &more));
    if (!more) break;
    CUVIL_TRY_GOTO(read_participant(db, arena, row, race->rounds,
                                    &list[race->participant_count]));
  }
  race->participants = list;
fail:
  sqlite3_finalize(row);
  return status;
}

static enum cuvil_status race_row(struct cuvil_db *db, sqlite3_stmt *row,
                                  struct cuvil_arena *arena, void *closure) {
  const struct race_closure *call = closure;
  struct cuvil_db_stamp stamp;
  struct cuvil_db_context context;
  struct cuvil_db_race race = {
      .problem = cuvil_db_text(row, 17),
      .signature = cuvil_db_text(row, 18),
      .rounds = sqlite3_column_int(row, AFTER_COMMON),
      .converged = sqlite3_column_int(row, AFTER_COMMON + 1) != 0,
  };
  read_common(row, &stamp, &context);
  CUVIL_TRY(read_participants(db, arena, stamp.id, &race));
  return call->callback(call->user, &stamp, &context, &race);
}

enum cuvil_status cuvil_db_each_race(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_race *race),
    void *user) {
  struct race_closure call = {callback, user};
  return each_row(db,
                  "SELECT " COMMON_COLUMNS
                  ", e.rounds, e.converged FROM race e"
                  " JOIN problem p ON p.id = e.problem_id" COMMON_JOINS
                  " WHERE " CUVIL_DB_FILTER_SQL CUVIL_DB_FILTER_RACE_FAMILY_SQL
                  " ORDER BY e.id",
                  filter, race_row, &call);
}

/* ---- what a tune that is run again need not do again */

enum cuvil_status cuvil_db_each_known(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const char *problem,
    void (*callback)(void *user, const char *family, int family_version,
                     const char *config, const char *reason, double median),
    void *user) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *row = NULL;
  const struct cuvil_env *env = context->env;
#define SAME_CONTEXT                                                         \
  CANDIDATE_JOINS COMMON_JOINS                                               \
      " WHERE p.text = ?1 AND g.product = ?2 AND g.arch = ?3 AND g.sms = ?4" \
      " AND v.driver = ?5 AND v.cuda = ?6 AND v.nvrtc = ?7"                  \
      " AND v.cublaslt = ?8 AND v.cudnn = ?9 AND c.source = ?10"             \
      " AND c.l2 = ?11 AND c.regime = ?12 AND c.method = ?13"
  CUVIL_TRY_GOTO(cuvil_db_prepare(
      db,
      "SELECT k.family, k.family_version, k.config, NULL, e.median, 0, e.id"
      " FROM measurement e" SAME_CONTEXT
      " UNION ALL"
      " SELECT k.family, k.family_version, k.config, e.reason, NULL, 1, e.id"
      " FROM failure e" SAME_CONTEXT " ORDER BY 6, 7",
      &row));
  CUVIL_TRY_GOTO(cuvil_db_bind(
      db, row, "tttitttttttti", problem, env->gpu, env->arch, (int64_t)env->sms,
      env->driver, env->cuda, env->nvrtc, env->cublaslt, env->cudnn,
      context->source, context->l2, context->regime, (int64_t)context->method));
  for (;;) {
    bool more;
    CUVIL_TRY_GOTO(cuvil_db_step(db, row, &more));
    if (!more) break;
    bool failed = sqlite3_column_type(row, 3) != SQLITE_NULL;
    callback(user, cuvil_db_text(row, 0), sqlite3_column_int(row, 1),
             cuvil_db_text(row, 2), failed ? cuvil_db_text(row, 3) : NULL,
             cuvil_db_real(row, 4));
  }
fail:
  sqlite3_finalize(row);
  return status;
}
