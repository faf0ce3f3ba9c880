/* prepare.c - what is known of a problem, and what is worth trying.
 *
 * A problem with a winner of exactly this environment, source and L2 policy is
 * done.  Else its candidates are chosen, those that an interrupted run has
 * measured or found failing are marked, and the compiles of the rest start, so
 * that they run while earlier problems are measured.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "measure/timer.h"
#include "tuner/task.h"

struct cuvil_db_context cuvil_task_context(
    const struct cuvil_tuning *tuning, const struct cuvil_task_state *task) {
  return (struct cuvil_db_context){.env = &tuning->runner->env,
                                   .source = tuning->runner->source,
                                   .l2 = task->told.l2.label,
                                   .regime = "burst",
                                   .method = CUVIL_METHOD_VERSION};
}

/* ---- what the database answers */
struct acceptance {
  const struct cuvil_tuning *tuning;
  const struct cuvil_task_state *task;
};

static bool is_valid(const struct cuvil_tuning *tuning,
                     const struct cuvil_task_state *task, const char *id,
                     int version, const char *text) {
  const struct cuvil_family *family = cuvil_family_find(id);
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  if (!family || (version && family->version != version) ||
      !family->applicable(&task->problem, &tuning->runner->arch))
    return false;
  if (cuvil_family_space(family, &space) != CUVIL_OK ||
      cuvil_config_parse(space, text, &config) != CUVIL_OK)
    return false;
  struct cuvil_query query = {&task->problem, &tuning->runner->arch, space};
  return cuvil_family_allows(family, &query, &config, false, NULL, NULL);
}

static bool accept_same(void *user, const struct cuvil_db_winner *winner) {
  const struct acceptance *a = user;
  /* A recording may have been made with an older version of the family; what
   * it says is replayed as it was. */
  bool replayed = strcmp(a->tuning->runner->source, "replayed") == 0;
  return strcmp(winner->source, a->tuning->runner->source) == 0 &&
         strcmp(winner->l2, a->task->told.l2.label) == 0 &&
         is_valid(a->tuning, a->task, winner->family,
                  replayed ? 0 : winner->family_version, winner->config);
}

static bool accept_hint(void *user, const struct cuvil_db_winner *winner) {
  const struct acceptance *a = user;
  const struct cuvil_family *family = cuvil_family_find(winner->family);
  return winner->step != CUVIL_DB_EXACT && family && !family->library &&
         is_valid(a->tuning, a->task, winner->family, 0, winner->config);
}

static enum cuvil_status already(struct cuvil_tuning *tuning,
                                 struct cuvil_task_state *task, bool *out) {
  struct acceptance user = {tuning, task};
  struct cuvil_db_winner winner;
  *out = false;
  cuvil_db_prefer_l2(tuning->db, task->told.l2.label);
  CUVIL_TRY(cuvil_db_lookup(tuning->db, &tuning->runner->env, task->told.text,
                            cuvil_buf_text(&task->signature), accept_same,
                            &user, &winner));
  if (winner.step != CUVIL_DB_EXACT) return CUVIL_OK;
  struct cuvil_tune_result *result = task->result;
  result->state = CUVIL_TUNE_ALREADY;
  result->winner_seconds = winner.seconds;
  result->default_seconds = winner.default_seconds;
  result->library_seconds = winner.library_seconds;
  result->default_ratio_low = winner.default_ratio_low;
  result->library_ratio_low = winner.library_ratio_low;
  result->converged = winner.converged;
  snprintf(result->family, sizeof result->family, "%s", winner.family);
  result->config = strdup(winner.config);
  if (!result->config)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a result");
  *out = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_task_neighbour(struct cuvil_tuning *tuning,
                                       struct cuvil_task_state *task) {
  struct acceptance user = {tuning, task};
  struct cuvil_db_winner winner;
  struct cuvil_candidate *candidate = NULL;
  CUVIL_TRY(cuvil_db_lookup(tuning->db, &tuning->runner->env, task->told.text,
                            cuvil_buf_text(&task->signature), accept_hint,
                            &user, &winner));
  if (winner.step == CUVIL_DB_EXACT || winner.step == CUVIL_DB_MISS)
    return CUVIL_OK;
  if (!cuvil_families_include(tuning->options->families, winner.family) ||
      cuvil_candidates_find(&task->candidates, winner.family, winner.config))
    return CUVIL_OK;
  CUVIL_TRY(cuvil_candidates_add(
      &task->candidates, &task->problem, &tuning->runner->arch,
      cuvil_family_find(winner.family), winner.config, &candidate));
  if (tuning->runner->ops->holds &&
      !tuning->runner->ops->holds(tuning->runner->self, &task->told,
                                  candidate)) {
    free(candidate->text);
    task->candidates.count--;
    return CUVIL_OK;
  }
  cuvil_task_recall(tuning, task, candidate);
  if (candidate->known && !candidate->outcome.ok) return CUVIL_OK;
  return tuning->runner->ops->compile_start(tuning->runner->self, &task->told,
                                            candidate, true);
}

/* ---- what an interrupted run has left */
static void on_known(void *user, const char *family, int version,
                     const char *config, const char *reason, double median) {
  struct cuvil_task_state *task = user;
  if (task->known_count == task->known_capacity) {
    int capacity = task->known_capacity ? 2 * task->known_capacity : 32;
    struct cuvil_known *known =
        realloc(task->known, (size_t)capacity * sizeof *known);
    if (!known) return; /* it will be measured again; nothing is wrong */
    task->known = known;
    task->known_capacity = capacity;
  }
  struct cuvil_known *known = &task->known[task->known_count];
  *known =
      (struct cuvil_known){strdup(family), strdup(config),
                           reason ? strdup(reason) : NULL, version, median};
  if (known->family && known->config && (!reason || known->reason))
    task->known_count++;
}

void cuvil_task_recall(const struct cuvil_tuning *tuning,
                       const struct cuvil_task_state *task,
                       struct cuvil_candidate *candidate) {
  for (int i = 0; i < task->known_count; i++) {
    const struct cuvil_known *known = &task->known[i];
    if (known->version != candidate->version ||
        strcmp(known->family, candidate->family->id) != 0 ||
        strcmp(known->config, candidate->text) != 0)
      continue;
    /* Spilling is only a guess at slowness; exhaustive asks the GPU. */
    if (known->reason && strcmp(known->reason, "spill") == 0 &&
        tuning->options->strategy.ops->exhaustive)
      continue;
    candidate->known = true;
    candidate->median = known->median;
    if (known->reason)
      cuvil_outcome_fail(&candidate->outcome, known->reason, "known");
    else
      candidate->outcome.ok = true;
    return;
  }
}

/* ---- candidates */
static void count_walks(struct cuvil_task_state *task) {
  for (int i = 0; i < task->candidates.walk_count; i++) {
    const struct cuvil_walk *walk = &task->candidates.walks[i];
    uint64_t valid, allowed;
    cuvil_walk_estimate(walk, &valid, &allowed);
    task->result->points += walk->points;
    task->result->examined += walk->examined;
    task->result->valid += valid;
    task->result->allowed += allowed;
  }
}

/* A recording answers what it holds: its points are those to choose from. */
static enum cuvil_status take_recorded(struct cuvil_tuning *tuning,
                                       struct cuvil_task_state *task,
                                       const struct cuvil_walk_options *walk) {
  const struct cuvil_runner *runner = tuning->runner;
  const char *family = NULL, *text = NULL;
  if (!runner->ops->list) return CUVIL_OK;
  cuvil_candidates_clear_points(&task->candidates);
  for (int i = 0;
       runner->ops->list(runner->self, &task->told, i, &family, &text); i++)
    CUVIL_TRY(cuvil_candidates_offer(&task->candidates, &task->problem,
                                     &runner->arch, walk, family, text));
  return CUVIL_OK;
}

/* Puts the recorded version on each, where it is another. */
static void hold_all(struct cuvil_tuning *tuning,
                     struct cuvil_task_state *task) {
  const struct cuvil_runner *runner = tuning->runner;
  for (int i = 0; runner->ops->holds && i < task->candidates.count; i++)
    runner->ops->holds(runner->self, &task->told, &task->candidates.items[i]);
}

static enum cuvil_status start_compiles(struct cuvil_tuning *tuning,
                                        struct cuvil_task_state *task) {
  struct cuvil_runner *runner = tuning->runner;
  /* The default first: it is raced whatever the budget. */
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < task->candidates.count; i++) {
      struct cuvil_candidate *c = &task->candidates.items[i];
      if (c->is_default != (pass == 0)) continue;
      if (c->known && !c->outcome.ok) continue;
      CUVIL_TRY(
          runner->ops->compile_start(runner->self, &task->told, c, false));
    }
  }
  return CUVIL_OK;
}

/* A neighbour's winner may be tried already. */
static bool is_there(struct cuvil_candidates *list, int before, int point) {
  for (int i = 0; i < before; i++) {
    struct cuvil_candidate *c = &list->items[i];
    if (c->family != list->points[point].family ||
        c->order != list->points[point].order)
      continue;
    c->site = point;
    return true;
  }
  return false;
}

enum cuvil_status cuvil_task_ask(struct cuvil_tuning *tuning,
                                 struct cuvil_task_state *task, int *out) {
  int most = task->chooser->limit, count = 0, before = task->candidates.count;
  int *asked = calloc((size_t)most + 1, sizeof *asked);
  enum cuvil_status status = CUVIL_OK;
  *out = 0;
  if (!asked) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  CUVIL_TRY_GOTO(cuvil_chooser_ask(task->chooser, most, asked, &count));
  for (int i = 0; i < count; i++) {
    struct cuvil_candidate *c = NULL;
    if (is_there(&task->candidates, before, asked[i])) continue;
    CUVIL_TRY_GOTO(cuvil_candidates_take(&task->candidates, &task->problem,
                                         &tuning->runner->arch, asked[i], &c));
  }
  *out = count;
fail:
  free(asked);
  return status;
}

static enum cuvil_status choose_first(struct cuvil_tuning *tuning,
                                      struct cuvil_task_state *task) {
  const struct cuvil_tune_options *options = tuning->options;
  int count = 0;
  CUVIL_TRY(cuvil_candidates_sites(&task->candidates, &task->problem,
                                   &tuning->runner->arch, &task->sites));
  CUVIL_TRY(cuvil_chooser_create(
      &options->strategy, task->sites, task->candidates.point_count,
      options->max_trials, options->seed, &task->chooser));
  return cuvil_task_ask(tuning, task, &count);
}

enum cuvil_status cuvil_task_prepare(struct cuvil_tuning *tuning,
                                     struct cuvil_task_state *task) {
  const struct cuvil_tune_options *options = tuning->options;
  const struct cuvil_arch *arch = &tuning->runner->arch;
  struct cuvil_walk_options walk = {
      .families = options->families,
      .heuristics = !options->strategy.ops->exhaustive,
      .limit = options->walk_limit,
      .seed = options->seed};
  bool done = false;
  CUVIL_TRY(cuvil_problem_parse(task->result->text, &task->problem));
  cuvil_problem_signature(&task->problem, &task->signature);
  CUVIL_TRY(cuvil_buf_status(&task->signature));
  task->told.text = task->result->text;
  task->told.problem = &task->problem;
  cuvil_l2_decide(options->l2, tuning->model_fits, &task->problem,
                  arch->l2_bytes, &task->told.l2);
  const struct cuvil_runner *runner = tuning->runner;
  const char *recorded =
      runner->ops->l2 ? runner->ops->l2(runner->self, task->told.text) : NULL;
  if (recorded) task->told.l2.label = recorded;
  task->result->l2 = task->told.l2.label;
  if (options->l2 == CUVIL_L2_COLD && strcmp(task->told.l2.label, "cold") != 0)
    cuvil_log_warning("timed warm, too small to be rotated out of the L2: %s",
                      task->told.text);
  if (!options->force) CUVIL_TRY(already(tuning, task, &done));
  if (done) return CUVIL_OK;
  CUVIL_TRY(
      cuvil_candidates_walk(&task->problem, arch, &walk, &task->candidates));
  count_walks(task);
  CUVIL_TRY(take_recorded(tuning, task, &walk));
  CUVIL_TRY(choose_first(tuning, task));
  hold_all(tuning, task);
  struct cuvil_db_context context = cuvil_task_context(tuning, task);
  if (!options->force)
    CUVIL_TRY(cuvil_db_each_known(tuning->db, &context, task->told.text,
                                  on_known, task));
  for (int i = 0; i < task->candidates.count; i++)
    cuvil_task_recall(tuning, task, &task->candidates.items[i]);
  return start_compiles(tuning, task);
}

void cuvil_task_free(struct cuvil_task_state *task) {
  cuvil_buf_free(&task->signature);
  cuvil_chooser_destroy(task->chooser);
  free(task->sites);
  cuvil_candidates_free(&task->candidates);
  for (int i = 0; i < task->known_count; i++) {
    free(task->known[i].family);
    free(task->known[i].config);
    free(task->known[i].reason);
  }
  free(task->known);
}
