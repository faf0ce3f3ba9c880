/* lookup.c - who won, asked down the declared steps.
 *
 * The rows of a problem are few (one per race), so each step walks them in the
 * order of evidence and takes the first that belongs to the step and that the
 * caller still accepts.  A row that fails re-validation is passed over, never
 * an error: a family may have gone or changed since.
 *
 * Neighbours are problems of the same signature; their distance is how far
 * apart the extents are, in doublings, summed.  Extents are read from the
 * canonical text itself, where every one of them is a word `name=123`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/internal.h"

const char *cuvil_db_step_name(enum cuvil_db_step step) {
  switch (step) {
    case CUVIL_DB_EXACT:
      return "exact";
    case CUVIL_DB_OTHER_DRIVER:
      return "other driver or libraries";
    case CUVIL_DB_OTHER_GPU:
      return "other GPU";
    case CUVIL_DB_NEIGHBOUR:
      return "neighbouring extents";
    case CUVIL_DB_MISS:
      return "miss";
  }
  return "unknown";
}

/* Columns that winner_from_row and step_of_row read, and the order of
 * evidence; ?2 is the preferred L2 policy or NULL. */
#define WINNER_SELECT                                                        \
  "SELECT r.hash, p.text, k.family, k.family_version, k.config, c.source,"   \
  " c.l2, w.seconds, w.default_seconds, w.default_ratio_low, dk.family,"     \
  " w.library_seconds, w.library_ratio_low, lk.family, r.converged,"         \
  " g.product, g.arch, g.sms, v.driver, v.nvrtc, v.cublaslt, v.cudnn,"       \
  " w.uses_cublaslt, w.uses_cudnn, v.cuda, g.memory_bytes, g.l2_bytes, r.id" \
  " FROM winner w JOIN race r ON r.id = w.race_id"                           \
  " JOIN problem p ON p.id = w.problem_id"                                   \
  " JOIN circumstance c ON c.id = r.circumstance_id"                         \
  " JOIN gpu g ON g.id = c.gpu_id JOIN versions v ON v.id = c.versions_id"   \
  " JOIN candidate k ON k.id = w.candidate_id"                               \
  " LEFT JOIN candidate dk ON dk.id = w.default_id"                          \
  " LEFT JOIN candidate lk ON lk.id = w.library_id"
#define EVIDENCE_ORDER                                                   \
  " ORDER BY c.source = 'measured' DESC, c.l2 = ?2 DESC, c.method DESC," \
  " r.converged DESC, r.rounds DESC, c.regime DESC, r.hash"
enum {
  COLUMN_GPU = 15,
  COLUMN_ARCH,
  COLUMN_SMS,
  COLUMN_DRIVER,
  COLUMN_NVRTC,
  COLUMN_CUBLASLT,
  COLUMN_CUDNN,
  COLUMN_USES_CUBLASLT,
  COLUMN_USES_CUDNN,
  COLUMN_CUDA,
  COLUMN_MEMORY,
  COLUMN_L2,
  COLUMN_RACE
};

static void copy(char *out, size_t size, sqlite3_stmt *row, int column) {
  snprintf(out, size, "%s", cuvil_db_text(row, column));
}
/* 0 where the race had no such participant. */
static double number(sqlite3_stmt *row, int column) {
  return sqlite3_column_double(row, column);
}

static void winner_from_row(sqlite3_stmt *row, enum cuvil_db_step step,
                            struct cuvil_db_winner *out) {
  *out = (struct cuvil_db_winner){
      .step = step,
      .family_version = sqlite3_column_int(row, 3),
      .seconds = number(row, 7),
      .default_seconds = number(row, 8),
      .default_ratio_low = number(row, 9),
      .library_seconds = number(row, 11),
      .library_ratio_low = number(row, 12),
      .converged = sqlite3_column_int(row, 14) != 0,
  };
  copy(out->hash, sizeof out->hash, row, 0);
  copy(out->problem, sizeof out->problem, row, 1);
  copy(out->family, sizeof out->family, row, 2);
  copy(out->config, sizeof out->config, row, 4);
  copy(out->source, sizeof out->source, row, 5);
  copy(out->l2, sizeof out->l2, row, 6);
  copy(out->default_family, sizeof out->default_family, row, 10);
  copy(out->library_family, sizeof out->library_family, row, 13);
  copy(out->gpu, sizeof out->gpu, row, COLUMN_GPU);
}

static bool same_text(sqlite3_stmt *row, int column, const char *wanted) {
  return strcmp(cuvil_db_text(row, column), wanted) == 0;
}
/* A version matches when it is equal, or when nothing is known of ours. */
static bool same_version(sqlite3_stmt *row, int column, const char *ours,
                         bool known) {
  return (!known && !*ours) || same_text(row, column, ours);
}

/* The step that the row's environment belongs to; MISS: none. */
static enum cuvil_db_step step_of_row(sqlite3_stmt *row,
                                      const struct cuvil_env *env) {
  bool known = env->driver[0] != '\0';
  if (env->arch[0] && !same_text(row, COLUMN_ARCH, env->arch))
    return CUVIL_DB_MISS;
  if (env->gpu[0] && !same_text(row, COLUMN_GPU, env->gpu))
    return CUVIL_DB_OTHER_GPU;
  if (env->gpu[0] && env->sms &&
      sqlite3_column_int(row, COLUMN_SMS) != env->sms)
    return CUVIL_DB_OTHER_GPU;
  bool exact = same_version(row, COLUMN_DRIVER, env->driver, known) &&
               same_version(row, COLUMN_NVRTC, env->nvrtc, known);
  if (sqlite3_column_int(row, COLUMN_USES_CUBLASLT))
    exact = exact && same_version(row, COLUMN_CUBLASLT, env->cublaslt, known);
  if (sqlite3_column_int(row, COLUMN_USES_CUDNN))
    exact = exact && same_version(row, COLUMN_CUDNN, env->cudnn, known);
  return exact ? CUVIL_DB_EXACT : CUVIL_DB_OTHER_DRIVER;
}

/* What a lookup carries about. */
struct search {
  struct cuvil_db *db;
  const struct cuvil_env *env;
  bool (*accept)(void *user, const struct cuvil_db_winner *winner);
  void *user;
  struct cuvil_db_winner *out;
};

static bool take(struct search *s, sqlite3_stmt *row, enum cuvil_db_step step) {
  winner_from_row(row, step, s->out);
  if (!s->accept || s->accept(s->user, s->out)) return true;
  *s->out = (struct cuvil_db_winner){.step = CUVIL_DB_MISS};
  return false;
}

static enum cuvil_status search_same_problem(struct search *s,
                                             const char *problem,
                                             bool *out_found) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *row = NULL;
  CUVIL_TRY_GOTO(cuvil_db_prepare(
      s->db, WINNER_SELECT " WHERE p.text = ?1" EVIDENCE_ORDER, &row));
  CUVIL_TRY_GOTO(cuvil_db_bind(s->db, row, "tt", problem, s->db->l2));
  for (enum cuvil_db_step step = CUVIL_DB_EXACT;
       step <= CUVIL_DB_OTHER_GPU && !*out_found; step++) {
    sqlite3_reset(row);
    while (!*out_found) {
      bool more;
      CUVIL_TRY_GOTO(cuvil_db_step(s->db, row, &more));
      if (!more) break;
      if (step_of_row(row, s->env) == step) *out_found = take(s, row, step);
    }
  }
fail:
  sqlite3_finalize(row);
  return status;
}

/* ---- neighbours */

/* The next word `name=digits` at or after *text; false at the end. */
static bool next_extent(const char **text, const char **out_name,
                        size_t *out_length, double *out_extent) {
  const char *p = *text;
  while (*p) {
    size_t word = strcspn(p, " ");
    size_t name = strcspn(p, "= ");
    char *end;
    if (name > 0 && name < word && p[name] == '=' && p[name + 1] >= '0' &&
        p[name + 1] <= '9') {
      double extent = strtod(p + name + 1, &end);
      if (end == p + word) {
        *out_name = p;
        *out_length = name;
        *out_extent = extent;
        *text = p + word + (p[word] == ' ');
        return true;
      }
    }
    p += word + (p[word] == ' ');
  }
  *text = p;
  return false;
}

/* Doublings between the extents of two problems of one signature, whose words
 * come in the same order; infinite when they do not. */
static double distance_between(const char *a, const char *b) {
  double sum = 0;
  for (;;) {
    const char *name_a, *name_b;
    size_t length_a, length_b;
    double x, y;
    bool more_a = next_extent(&a, &name_a, &length_a, &x);
    bool more_b = next_extent(&b, &name_b, &length_b, &y);
    if (!more_a && !more_b) return sum;
    if (more_a != more_b || length_a != length_b ||
        strncmp(name_a, name_b, length_a) != 0)
      return INFINITY;
    if (x != y) sum += fabs(log2((x + (x == 0)) / (y + (y == 0))));
  }
}

struct neighbour {
  int64_t race;
  double distance;
  bool same_gpu;
  int order; /* of evidence */
};

static int compare_neighbours(const void *pa, const void *pb) {
  const struct neighbour *a = pa, *b = pb;
  if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
  if (a->same_gpu != b->same_gpu) return a->same_gpu ? -1 : 1;
  return a->order - b->order;
}

static enum cuvil_status collect_neighbours(struct search *s,
                                            const char *problem,
                                            const char *signature,
                                            struct neighbour **out_list,
                                            int *out_count) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *row = NULL;
  int capacity = 0;
  CUVIL_TRY_GOTO(cuvil_db_prepare(
      s->db,
      WINNER_SELECT " WHERE p.signature = ?1 AND p.text <> ?3" EVIDENCE_ORDER,
      &row));
  CUVIL_TRY_GOTO(
      cuvil_db_bind(s->db, row, "ttt", signature, s->db->l2, problem));
  for (int order = 0;; order++) {
    bool more;
    CUVIL_TRY_GOTO(cuvil_db_step(s->db, row, &more));
    if (!more) break;
    enum cuvil_db_step step = step_of_row(row, s->env);
    double distance = distance_between(problem, cuvil_db_text(row, 1));
    if (step == CUVIL_DB_MISS || isinf(distance)) continue;
    if (*out_count == capacity) {
      capacity = capacity ? 2 * capacity : 64;
      void *grown = realloc(*out_list, (size_t)capacity * sizeof **out_list);
      if (!grown) {
        status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
        goto fail;
      }
      *out_list = grown;
    }
    (*out_list)[(*out_count)++] = (struct neighbour){
        .race = sqlite3_column_int64(row, COLUMN_RACE),
        .distance = distance,
        .same_gpu = step != CUVIL_DB_OTHER_GPU,
        .order = order,
    };
  }
fail:
  sqlite3_finalize(row);
  return status;
}

static enum cuvil_status search_neighbours(struct search *s,
                                           const char *problem,
                                           const char *signature,
                                           bool *out_found) {
  enum cuvil_status status = CUVIL_OK;
  struct neighbour *list = NULL;
  sqlite3_stmt *row = NULL;
  int count = 0;
  CUVIL_TRY_GOTO(collect_neighbours(s, problem, signature, &list, &count));
  if (count > 1) qsort(list, (size_t)count, sizeof *list, compare_neighbours);
  CUVIL_TRY_GOTO(
      cuvil_db_prepare(s->db, WINNER_SELECT " WHERE r.id = ?1", &row));
  for (int i = 0; i < count && !*out_found; i++) {
    bool more;
    sqlite3_reset(row);
    CUVIL_TRY_GOTO(cuvil_db_bind(s->db, row, "i", list[i].race));
    CUVIL_TRY_GOTO(cuvil_db_step(s->db, row, &more));
    if (more) *out_found = take(s, row, CUVIL_DB_NEIGHBOUR);
  }
fail:
  sqlite3_finalize(row);
  free(list);
  return status;
}

enum cuvil_status cuvil_db_lookup(
    struct cuvil_db *db, const struct cuvil_env *env, const char *problem,
    const char *signature,
    bool (*accept)(void *user, const struct cuvil_db_winner *winner),
    void *user, struct cuvil_db_winner *out) {
  *out = (struct cuvil_db_winner){.step = CUVIL_DB_MISS};
  struct search search = {db, env, accept, user, out};
  bool found = false;
  CUVIL_TRY(search_same_problem(&search, problem, &found));
  if (found || !signature || !*signature) return CUVIL_OK;
  return search_neighbours(&search, problem, signature, &found);
}

/* ---- all of them */

enum cuvil_status cuvil_db_each_winner(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user, const struct cuvil_env *env,
                                  const struct cuvil_db_winner *winner),
    void *user) {
  enum cuvil_status status = CUVIL_OK;
  sqlite3_stmt *row = NULL;
  struct cuvil_db_winner *winner = malloc(sizeof *winner);
  if (!winner) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  CUVIL_TRY_GOTO(cuvil_db_prepare(
      db,
      WINNER_SELECT
      " JOIN race e ON e.id = r.id WHERE w.place = 1 AND " CUVIL_DB_FILTER_SQL
          CUVIL_DB_FILTER_FAMILY_SQL
      " ORDER BY p.text, g.product, g.sms, v.driver, v.nvrtc,"
      " v.cublaslt, v.cudnn, c.source, c.l2, r.hash",
      &row));
  CUVIL_TRY_GOTO(cuvil_db_bind_filter(db, row, filter));
  for (;;) {
    bool more;
    struct cuvil_env env = {0};
    CUVIL_TRY_GOTO(cuvil_db_step(db, row, &more));
    if (!more) break;
    winner_from_row(row, CUVIL_DB_EXACT, winner);
    copy(env.gpu, sizeof env.gpu, row, COLUMN_GPU);
    copy(env.arch, sizeof env.arch, row, COLUMN_ARCH);
    env.sms = sqlite3_column_int(row, COLUMN_SMS);
    copy(env.driver, sizeof env.driver, row, COLUMN_DRIVER);
    copy(env.nvrtc, sizeof env.nvrtc, row, COLUMN_NVRTC);
    copy(env.cublaslt, sizeof env.cublaslt, row, COLUMN_CUBLASLT);
    copy(env.cudnn, sizeof env.cudnn, row, COLUMN_CUDNN);
    copy(env.cuda, sizeof env.cuda, row, COLUMN_CUDA);
    env.memory_bytes = sqlite3_column_int64(row, COLUMN_MEMORY);
    env.l2_bytes = sqlite3_column_int64(row, COLUMN_L2);
    CUVIL_TRY_GOTO(callback(user, &env, winner));
  }
fail:
  sqlite3_finalize(row);
  free(winner);
  return status;
}
