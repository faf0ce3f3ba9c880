/* evidence.c - what was seen becomes a row, once.
 *
 * The content hash is taken over a canonical byte string: a word for the kind
 * of evidence, then every field in a fixed order, texts with their length
 * before them, numbers as eight little-endian bytes.  When it was recorded is
 * left out, so that the same evidence from two files is one row whose time is
 * the earlier one; what follows from other fields (a problem's signature) is
 * left out too.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "db/internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "hashes and blobs are little-endian");

static void hash_i64(struct cuvil_buf *buf, int64_t value) {
  cuvil_buf_add(buf, &value, sizeof value);
}
static void hash_f64(struct cuvil_buf *buf, double value) {
  if (isnan(value)) value = NAN; /* one bit pattern for all of them */
  cuvil_buf_add(buf, &value, sizeof value);
}
static void hash_text(struct cuvil_buf *buf, const char *text) {
  size_t size = text ? strlen(text) : 0;
  hash_i64(buf, (int64_t)size);
  cuvil_buf_add(buf, text ? text : "", size);
}
static void hash_array(struct cuvil_buf *buf, const double *values, int count) {
  hash_i64(buf, count);
  for (int i = 0; i < count; i++)
    hash_f64(buf, values[i]);
}

static void hash_context(struct cuvil_buf *buf,
                         const struct cuvil_db_context *context) {
  const struct cuvil_env *env = context->env;
  hash_text(buf, env->gpu);
  hash_text(buf, env->arch);
  hash_i64(buf, env->sms);
  hash_i64(buf, env->memory_bytes);
  hash_i64(buf, env->l2_bytes);
  hash_text(buf, env->driver);
  hash_text(buf, env->cuda);
  hash_text(buf, env->nvrtc);
  hash_text(buf, env->cublaslt);
  hash_text(buf, env->cudnn);
  hash_text(buf, context->source);
  hash_text(buf, context->l2);
  hash_text(buf, context->regime);
  hash_i64(buf, context->method);
}
static void hash_candidate(struct cuvil_buf *buf,
                           const struct cuvil_db_candidate *candidate) {
  hash_text(buf, candidate->problem);
  hash_text(buf, candidate->family);
  hash_i64(buf, candidate->family_version);
  hash_text(buf, candidate->config);
}
static enum cuvil_status hash_end(struct cuvil_buf *buf,
                                  char out[CUVIL_HASH_SIZE]) {
  enum cuvil_status status = cuvil_buf_status(buf);
  if (status == CUVIL_OK) cuvil_hash_hex(buf->data, buf->size, out);
  cuvil_buf_free(buf);
  return status;
}

enum cuvil_status cuvil_db_hash_measurement(
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m, char out[CUVIL_HASH_SIZE]) {
  struct cuvil_buf buf = {0};
  hash_text(&buf, "measurement/1");
  hash_context(&buf, context);
  hash_candidate(&buf, &m->candidate);
  hash_text(&buf, m->cubin_hash);
  hash_i64(&buf, m->registers);
  hash_i64(&buf, m->spill_bytes);
  hash_i64(&buf, m->shared_bytes);
  hash_f64(&buf, m->compile_seconds);
  hash_f64(&buf, m->worst_ratio);
  hash_array(&buf, m->blocks, m->block_count);
  for (int i = 0; i < m->block_count; i++)
    hash_i64(&buf, m->rounds[i]);
  hash_f64(&buf, m->median);
  hash_f64(&buf, m->low);
  hash_f64(&buf, m->high);
  return hash_end(&buf, out);
}

enum cuvil_status cuvil_db_hash_failure(const struct cuvil_db_context *context,
                                        const struct cuvil_db_failure *failure,
                                        char out[CUVIL_HASH_SIZE]) {
  struct cuvil_buf buf = {0};
  hash_text(&buf, "failure/1");
  hash_context(&buf, context);
  hash_candidate(&buf, &failure->candidate);
  hash_text(&buf, failure->reason);
  hash_text(&buf, failure->detail);
  return hash_end(&buf, out);
}

enum cuvil_status cuvil_db_hash_race(const struct cuvil_db_context *context,
                                     const struct cuvil_db_race *race,
                                     char out[CUVIL_HASH_SIZE]) {
  struct cuvil_buf buf = {0};
  hash_text(&buf, "race/1");
  hash_context(&buf, context);
  hash_text(&buf, race->problem);
  hash_i64(&buf, race->rounds);
  hash_i64(&buf, race->converged);
  hash_i64(&buf, race->participant_count);
  for (int i = 0; i < race->participant_count; i++) {
    const struct cuvil_db_participant *p = &race->participants[i];
    hash_text(&buf, p->family);
    hash_i64(&buf, p->family_version);
    hash_text(&buf, p->config);
    hash_text(&buf, p->library);
    hash_i64(&buf, p->flags);
    hash_array(&buf, p->seconds, race->rounds);
    hash_f64(&buf, p->median);
    hash_f64(&buf, p->ratio);
    hash_f64(&buf, p->ratio_low);
    hash_f64(&buf, p->ratio_high);
  }
  return hash_end(&buf, out);
}

/* ---- dimensions */

static const char *or_empty(const char *text) {
  return text ? text : "";
}

static enum cuvil_status intern_circumstance(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    int64_t *out_id) {
  const struct cuvil_env *env = context->env;
  int64_t gpu = 0, versions = 0;
  CUVIL_TRY(cuvil_db_intern(
      db, &gpu,
      "SELECT id FROM gpu WHERE product = ?1 AND arch = ?2 AND sms = ?3"
      " AND memory_bytes = ?4 AND l2_bytes = ?5",
      "INSERT INTO gpu (product, arch, sms, memory_bytes, l2_bytes)"
      " VALUES (?1, ?2, ?3, ?4, ?5)",
      "ttiii", env->gpu, env->arch, (int64_t)env->sms, env->memory_bytes,
      env->l2_bytes));
  CUVIL_TRY(cuvil_db_intern(
      db, &versions,
      "SELECT id FROM versions WHERE driver = ?1 AND cuda = ?2 AND nvrtc = ?3"
      " AND cublaslt = ?4 AND cudnn = ?5",
      "INSERT INTO versions (driver, cuda, nvrtc, cublaslt, cudnn)"
      " VALUES (?1, ?2, ?3, ?4, ?5)",
      "ttttt", env->driver, env->cuda, env->nvrtc, env->cublaslt, env->cudnn));
  return cuvil_db_intern(
      db, out_id,
      "SELECT id FROM circumstance WHERE gpu_id = ?1 AND versions_id = ?2"
      " AND source = ?3 AND l2 = ?4 AND regime = ?5 AND method = ?6",
      "INSERT INTO circumstance"
      " (gpu_id, versions_id, source, l2, regime, method)"
      " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
      "iittti", gpu, versions, context->source, context->l2, context->regime,
      (int64_t)context->method);
}

static enum cuvil_status intern_problem(struct cuvil_db *db, const char *text,
                                        const char *signature,
                                        int64_t *out_id) {
  bool found = false;
  CUVIL_TRY(cuvil_db_query_int(
      db, out_id, &found, "SELECT id FROM problem WHERE text = ?1", "t", text));
  if (found) return CUVIL_OK;
  CUVIL_TRY(
      cuvil_db_run(db, "INSERT INTO problem (text, signature) VALUES (?1, ?2)",
                   "tt", text, signature));
  *out_id = sqlite3_last_insert_rowid(db->sqlite);
  return CUVIL_OK;
}

static enum cuvil_status intern_candidate(struct cuvil_db *db, int64_t problem,
                                          const char *family,
                                          int family_version,
                                          const char *config, int64_t *out_id) {
  return cuvil_db_intern(
      db, out_id,
      "SELECT id FROM candidate WHERE problem_id = ?1 AND family = ?2"
      " AND family_version = ?3 AND config = ?4",
      "INSERT INTO candidate (problem_id, family, family_version, config)"
      " VALUES (?1, ?2, ?3, ?4)",
      "itit", problem, family, (int64_t)family_version, config);
}

/* A row of this content that is there already: *out_new false, and its time
 * of recording the earlier of the two. */
static enum cuvil_status find_twin(struct cuvil_db *db, const char *find,
                                   const char *update, const char *hash,
                                   const char *recorded, bool *out_new) {
  int64_t id = 0;
  bool found = false;
  CUVIL_TRY(cuvil_db_query_int(db, &id, &found, find, "t", hash));
  *out_new = !found;
  if (!found) return CUVIL_OK;
  return cuvil_db_run(db, update, "it", id, recorded);
}

/* ---- rows */

static enum cuvil_status intern_tried(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_candidate *candidate, int64_t *out_candidate,
    int64_t *out_circumstance) {
  int64_t problem = 0;
  CUVIL_TRY(intern_circumstance(db, context, out_circumstance));
  CUVIL_TRY(
      intern_problem(db, candidate->problem, candidate->signature, &problem));
  return intern_candidate(db, problem, candidate->family,
                          candidate->family_version, candidate->config,
                          out_candidate);
}

enum cuvil_status cuvil_db_put_measurement(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m, const char *recorded, bool *out_new) {
  char hash[CUVIL_HASH_SIZE];
  int64_t candidate = 0, circumstance = 0;
  CUVIL_TRY(cuvil_db_hash_measurement(context, m, hash));
  CUVIL_TRY(find_twin(db, "SELECT id FROM measurement WHERE hash = ?1",
                      "UPDATE measurement SET recorded = ?2"
                      " WHERE id = ?1 AND recorded > ?2",
                      hash, recorded, out_new));
  if (!*out_new) return CUVIL_OK;
  CUVIL_TRY(
      intern_tried(db, context, &m->candidate, &candidate, &circumstance));
  return cuvil_db_run(
      db,
      "INSERT INTO measurement (hash, candidate_id, circumstance_id, recorded,"
      " cubin_hash, registers, spill_bytes, shared_bytes, compile_seconds,"
      " worst_ratio, median, low, high, blocks, rounds)"
      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,"
      " ?15)",
      "tiittiiidddddbb", hash, candidate, circumstance, recorded,
      or_empty(m->cubin_hash), (int64_t)m->registers, (int64_t)m->spill_bytes,
      (int64_t)m->shared_bytes, m->compile_seconds, m->worst_ratio, m->median,
      m->low, m->high, m->blocks, (size_t)m->block_count * sizeof *m->blocks,
      m->rounds, (size_t)m->block_count * sizeof *m->rounds);
}

enum cuvil_status cuvil_db_put_failure(struct cuvil_db *db,
                                       const struct cuvil_db_context *context,
                                       const struct cuvil_db_failure *failure,
                                       const char *recorded, bool *out_new) {
  char hash[CUVIL_HASH_SIZE];
  int64_t candidate = 0, circumstance = 0;
  CUVIL_TRY(cuvil_db_hash_failure(context, failure, hash));
  CUVIL_TRY(find_twin(db, "SELECT id FROM failure WHERE hash = ?1",
                      "UPDATE failure SET recorded = ?2"
                      " WHERE id = ?1 AND recorded > ?2",
                      hash, recorded, out_new));
  if (!*out_new) return CUVIL_OK;
  CUVIL_TRY(intern_tried(db, context, &failure->candidate, &candidate,
                         &circumstance));
  return cuvil_db_run(
      db,
      "INSERT INTO failure (hash, candidate_id, circumstance_id, recorded,"
      " reason, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
      "tiittt", hash, candidate, circumstance, recorded, failure->reason,
      or_empty(failure->detail));
}

static enum cuvil_status put_participant(struct cuvil_db *db, int64_t race_id,
                                         int64_t problem, int position,
                                         int rounds,
                                         const struct cuvil_db_participant *p) {
  int64_t candidate = 0;
  CUVIL_TRY(intern_candidate(db, problem, p->family, p->family_version,
                             p->config, &candidate));
  return cuvil_db_run(
      db,
      "INSERT INTO race_participant (race_id, position, candidate_id, library,"
      " flags, median, ratio, ratio_low, ratio_high, seconds)"
      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
      "iiitiddddb", race_id, (int64_t)position, candidate, or_empty(p->library),
      (int64_t)p->flags, p->median, p->ratio, p->ratio_low, p->ratio_high,
      p->seconds, (size_t)rounds * sizeof *p->seconds);
}

enum cuvil_status cuvil_db_put_race(struct cuvil_db *db,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_race *race,
                                    const char *recorded, bool *out_new) {
  char hash[CUVIL_HASH_SIZE];
  int64_t problem = 0, circumstance = 0;
  CUVIL_TRY(cuvil_db_hash_race(context, race, hash));
  CUVIL_TRY(
      find_twin(db, "SELECT id FROM race WHERE hash = ?1",
                "UPDATE race SET recorded = ?2 WHERE id = ?1 AND recorded > ?2",
                hash, recorded, out_new));
  if (!*out_new) return CUVIL_OK;
  CUVIL_TRY(intern_circumstance(db, context, &circumstance));
  CUVIL_TRY(intern_problem(db, race->problem, race->signature, &problem));
  CUVIL_TRY(cuvil_db_run(
      db,
      "INSERT INTO race (hash, problem_id, circumstance_id, recorded, rounds,"
      " converged) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
      "tiitii", hash, problem, circumstance, recorded, (int64_t)race->rounds,
      (int64_t)race->converged));
  int64_t race_id = sqlite3_last_insert_rowid(db->sqlite);
  for (int i = 0; i < race->participant_count; i++)
    CUVIL_TRY(put_participant(db, race_id, problem, i, race->rounds,
                              &race->participants[i]));
  return cuvil_db_derive(db, problem);
}

/* ---- the public adds: checked, each in a transaction of its own */

static bool is_time(double seconds) {
  return isfinite(seconds) && seconds > 0;
}

enum cuvil_status cuvil_db_check_context(
    const struct cuvil_db_context *context) {
  if (!context->env->gpu[0] || !context->env->arch[0])
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "evidence without a GPU and architecture is not "
                      "recorded");
  return CUVIL_OK;
}

enum cuvil_status cuvil_db_check_measurement(
    const struct cuvil_db_measurement *m) {
  const char *where = m->candidate.problem;
  if (m->block_count < 1)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a measurement without blocks is not recorded: %s",
                      where);
  for (int i = 0; i < m->block_count; i++) {
    if (!is_time(m->blocks[i]))
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "block %d of %s %s lasted %g s, which is not possible; "
                        "not recorded",
                        i, m->candidate.family, m->candidate.config,
                        m->blocks[i]);
  }
  if (!is_time(m->low) || !is_time(m->high) || m->median < m->low ||
      m->median > m->high || isnan(m->median))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "the interval [%g, %g] of median %g s of %s %s is not "
                      "possible; not recorded",
                      m->low, m->high, m->median, m->candidate.family,
                      m->candidate.config);
  return CUVIL_OK;
}

static enum cuvil_status check_race(const struct cuvil_db_race *race) {
  int winners = 0;
  for (int i = 0; i < race->participant_count; i++) {
    const struct cuvil_db_participant *p = &race->participants[i];
    for (int r = 0; r < race->rounds; r++) {
      if (!isnan(p->seconds[r]) && !is_time(p->seconds[r]))
        return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                          "%s %s lasted %g s in round %d of its race, which is "
                          "not possible; not recorded",
                          p->family, p->config, p->seconds[r], r);
    }
    if (!(p->flags & CUVIL_RACE_WINNER)) continue;
    winners++;
    if (!is_time(p->median))
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "the winner %s %s has no time; not recorded", p->family,
                        p->config);
  }
  if (winners != 1 || race->rounds < 1)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a race has one winner and at least one round, this has "
                      "%d and %d; not recorded: %s",
                      winners, race->rounds, race->problem);
  return CUVIL_OK;
}

enum cuvil_status cuvil_db_add_measurement(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *measurement) {
  char now[32];
  bool is_new;
  cuvil_utc_timestamp(now);
  CUVIL_TRY(cuvil_db_check_context(context));
  CUVIL_TRY(cuvil_db_check_measurement(measurement));
  CUVIL_TRY(cuvil_db_begin(db));
  return cuvil_db_end(
      db, cuvil_db_put_measurement(db, context, measurement, now, &is_new));
}

enum cuvil_status cuvil_db_add_failure(struct cuvil_db *db,
                                       const struct cuvil_db_context *context,
                                       const struct cuvil_db_failure *failure) {
  char now[32];
  bool is_new;
  cuvil_utc_timestamp(now);
  CUVIL_TRY(cuvil_db_check_context(context));
  CUVIL_TRY(cuvil_db_begin(db));
  return cuvil_db_end(db,
                      cuvil_db_put_failure(db, context, failure, now, &is_new));
}

enum cuvil_status cuvil_db_add_race(struct cuvil_db *db,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_race *race) {
  char now[32];
  bool is_new;
  cuvil_utc_timestamp(now);
  CUVIL_TRY(cuvil_db_check_context(context));
  CUVIL_TRY(check_race(race));
  CUVIL_TRY(cuvil_db_begin(db));
  return cuvil_db_end(db, cuvil_db_put_race(db, context, race, now, &is_new));
}
