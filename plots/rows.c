/* rows.c - copies what a plot needs out of the database.
 *
 * Rows are borrowed for the length of a callback, pictures need them side by
 * side: everything is copied into one arena.  A picture shows one GPU and one
 * source (measured or replayed); where the database holds more, the user
 * chooses.  Within that, times taken in different circumstances (L2 policy,
 * versions, method) are not drawn against each other either: of each problem
 * the newest circumstance stays, and the picture says how many rows it left
 * out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plots/internal.h"

/* Room for one more in an array of arena memory: doubled when it is full. */
static void *grow(struct cuvil_arena *arena, void *old, int count,
                  size_t size) {
  if (count > 0 && (count & (count - 1)) != 0) return old;
  void *bigger =
      cuvil_arena_array(arena, count == 0 ? 1 : 2 * (size_t)count, size);
  if (bigger && count > 0) memcpy(bigger, old, (size_t)count * size);
  return bigger;
}

static enum cuvil_status no_memory(void) {
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for the rows of a plot");
}

static int circumstance_of(struct plot_rows *rows,
                           const struct cuvil_db_context *context) {
  struct plot_circumstance c = {.env = *context->env,
                                .method = context->method};
  snprintf(c.source, sizeof c.source, "%s", context->source);
  snprintf(c.l2, sizeof c.l2, "%s", context->l2);
  snprintf(c.regime, sizeof c.regime, "%s", context->regime);
  for (int i = 0; i < rows->circumstance_count; i++) {
    const struct plot_circumstance *o = &rows->circumstances[i];
    if (strcmp(o->env.gpu, c.env.gpu) == 0 && o->env.sms == c.env.sms &&
        strcmp(o->env.driver, c.env.driver) == 0 &&
        strcmp(o->env.nvrtc, c.env.nvrtc) == 0 &&
        strcmp(o->env.cublaslt, c.env.cublaslt) == 0 &&
        strcmp(o->env.cudnn, c.env.cudnn) == 0 &&
        strcmp(o->source, c.source) == 0 && strcmp(o->l2, c.l2) == 0 &&
        strcmp(o->regime, c.regime) == 0 && o->method == c.method)
      return i;
  }
  rows->circumstances = grow(&rows->arena, rows->circumstances,
                             rows->circumstance_count, sizeof c);
  if (!rows->circumstances) return -1;
  rows->circumstances[rows->circumstance_count] = c;
  return rows->circumstance_count++;
}

static const double *copy_numbers(struct cuvil_arena *arena,
                                  const double *values, int count) {
  double *copy = cuvil_arena_array(arena, (size_t)count + 1, sizeof *copy);
  if (copy && count > 0) memcpy(copy, values, (size_t)count * sizeof *copy);
  return copy;
}

static enum cuvil_status add_trial(struct plot_rows *rows,
                                   const struct cuvil_db_context *context,
                                   const struct cuvil_db_candidate *candidate,
                                   struct plot_trial trial) {
  struct cuvil_arena *arena = &rows->arena;
  trial.problem = cuvil_arena_strdup(arena, candidate->problem);
  trial.family = cuvil_arena_strdup(arena, candidate->family);
  trial.config = cuvil_arena_strdup(arena, candidate->config);
  trial.circumstance = circumstance_of(rows, context);
  rows->trials = grow(arena, rows->trials, rows->trial_count, sizeof trial);
  if (!rows->trials || !trial.problem || !trial.family || !trial.config ||
      trial.circumstance < 0)
    return no_memory();
  rows->trials[rows->trial_count++] = trial;
  return CUVIL_OK;
}

static enum cuvil_status take_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m) {
  struct plot_rows *rows = user;
  (void)stamp;
  struct plot_trial trial = {
      .library = m->cubin_hash[0] == '\0',
      .median = m->median,
      .blocks = copy_numbers(&rows->arena, m->blocks, m->block_count),
      .block_count = m->block_count};
  if (!trial.blocks) return no_memory();
  return add_trial(rows, context, &m->candidate, trial);
}

static enum cuvil_status take_failure(void *user,
                                      const struct cuvil_db_stamp *stamp,
                                      const struct cuvil_db_context *context,
                                      const struct cuvil_db_failure *f) {
  struct plot_rows *rows = user;
  (void)stamp;
  struct plot_trial trial = {.reason =
                                 cuvil_arena_strdup(&rows->arena, f->reason)};
  if (!trial.reason) return no_memory();
  return add_trial(rows, context, &f->candidate, trial);
}

/* "2026-12-01T19:38:26.130Z" */
static double parse_time(const char *text) {
  struct tm tm = {0};
  const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
  if (!rest) return 0;
  return (double)timegm(&tm) + (*rest == '.' ? strtod(rest, NULL) : 0);
}

static enum cuvil_status take_race(void *user,
                                   const struct cuvil_db_stamp *stamp,
                                   const struct cuvil_db_context *context,
                                   const struct cuvil_db_race *r) {
  struct plot_rows *rows = user;
  struct cuvil_arena *arena = &rows->arena;
  struct plot_race race = {.problem = cuvil_arena_strdup(arena, r->problem),
                           .hash = cuvil_arena_strdup(arena, stamp->hash),
                           .recorded = parse_time(stamp->recorded),
                           .rounds = r->rounds,
                           .participant_count = r->participant_count,
                           .circumstance = circumstance_of(rows, context)};
  race.participants = cuvil_arena_array(arena, (size_t)r->participant_count + 1,
                                        sizeof *race.participants);
  rows->races = grow(arena, rows->races, rows->race_count, sizeof race);
  if (!race.problem || !race.hash || race.circumstance < 0 ||
      !race.participants || !rows->races)
    return no_memory();
  for (int i = 0; i < r->participant_count; i++) {
    const struct cuvil_db_participant *p = &r->participants[i];
    struct plot_participant *q = &race.participants[i];
    q->family = cuvil_arena_strdup(arena, p->family);
    q->config = cuvil_arena_strdup(arena, p->config);
    q->library = p->library && p->library[0];
    q->flags = p->flags;
    q->median = p->median;
    q->seconds = copy_numbers(arena, p->seconds, r->rounds);
    if (!q->family || !q->config || !q->seconds) return no_memory();
  }
  rows->races[rows->race_count++] = race;
  return CUVIL_OK;
}

static enum cuvil_status take_winner(void *user, const struct cuvil_env *env,
                                     const struct cuvil_db_winner *winner) {
  struct plot_rows *rows = user;
  (void)env;
  for (int i = 0; i < rows->race_count; i++)
    if (strcmp(rows->races[i].hash, winner->hash) == 0)
      rows->races[i].decides = true;
  return CUVIL_OK;
}

static enum cuvil_status check_one(const struct plot_rows *rows) {
  for (int i = 1; i < rows->circumstance_count; i++) {
    const struct plot_circumstance *a = &rows->circumstances[0];
    const struct plot_circumstance *b = &rows->circumstances[i];
    if (strcmp(a->env.gpu, b->env.gpu) != 0)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "the database holds times of several GPUs (%s, %s); "
                        "choose one with --gpu",
                        a->env.gpu, b->env.gpu);
    if (strcmp(a->source, b->source) != 0)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "the database holds measured and replayed times; "
                        "choose with --source");
  }
  return CUVIL_OK;
}

enum cuvil_status plot_rows_load(struct cuvil_db *db,
                                 const struct cuvil_db_filter *filter,
                                 struct plot_rows *out) {
  /* A race is drawn whole: who won does not depend on a family asked for. */
  struct cuvil_db_filter races = *filter;
  memset(out, 0, sizeof *out);
  races.family = NULL;
  CUVIL_TRY(cuvil_db_each_measurement(db, filter, take_measurement, out));
  CUVIL_TRY(cuvil_db_each_failure(db, filter, take_failure, out));
  CUVIL_TRY(cuvil_db_each_race(db, &races, take_race, out));
  CUVIL_TRY(cuvil_db_each_winner(db, &races, take_winner, out));
  return check_one(out);
}

void plot_rows_free(struct plot_rows *rows) {
  cuvil_arena_free(&rows->arena);
}

static bool newest_trial(const struct plot_rows *rows, int i) {
  /* Failures stand after all measurements: the last measured one decides,
   * and a failure only where nothing was measured. */
  const struct plot_trial *mine = &rows->trials[i], *last = mine;
  for (int j = 0; j < rows->trial_count; j++) {
    const struct plot_trial *t = &rows->trials[j];
    if (strcmp(t->problem, mine->problem) == 0 && (!t->reason || last->reason))
      last = t;
  }
  return last->circumstance == mine->circumstance;
}

static bool newest_race(const struct plot_rows *rows, int i) {
  if (!rows->races[i].decides) return false;
  for (int j = i + 1; j < rows->race_count; j++)
    if (rows->races[j].decides &&
        strcmp(rows->races[j].problem, rows->races[i].problem) == 0)
      return false;
  return true;
}

enum cuvil_status plot_rows_keep_newest(struct plot_rows *rows) {
  int kept = 0;
  bool *keep = cuvil_arena_array(
      &rows->arena, (size_t)(rows->trial_count + rows->race_count) + 1, 1);
  if (!keep) return no_memory();
  /* One circumstance is the usual case, and needs no comparison. */
  for (int i = 0; i < rows->trial_count; i++)
    keep[i] = rows->circumstance_count == 1 || newest_trial(rows, i);
  for (int i = 0; i < rows->trial_count; i++)
    if (keep[i]) rows->trials[kept++] = rows->trials[i];
  rows->other = rows->trial_count - kept;
  rows->trial_count = kept;
  kept = 0;
  for (int i = 0; i < rows->race_count; i++)
    keep[i] = newest_race(rows, i);
  for (int i = 0; i < rows->race_count; i++)
    if (keep[i]) rows->races[kept++] = rows->races[i];
  rows->race_count = kept;
  return CUVIL_OK;
}

enum cuvil_status plot_rows_one_problem(const struct plot_rows *rows,
                                        const char *kind, const char **out) {
  *out = NULL;
  for (int i = 0; i < rows->trial_count; i++) {
    if (!*out) *out = rows->trials[i].problem;
    if (strcmp(*out, rows->trials[i].problem) != 0)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "%s draws one problem and the database holds several; "
                        "name it with --problem (cuvil-db list --wide shows "
                        "them)",
                        kind);
  }
  if (!*out)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s: the database holds no candidate that the options "
                      "name; tune first (cuvil-tune), or ask for less",
                      kind);
  return CUVIL_OK;
}

int plot_names_add(struct plot_rows *rows, struct plot_names *names,
                   const char *name) {
  for (int i = 0; i < names->count; i++)
    if (strcmp(names->names[i], name) == 0) return i;
  names->names =
      grow(&rows->arena, names->names, names->count, sizeof *names->names);
  if (!names->names) return -1;
  names->names[names->count] = name;
  return names->count++;
}
