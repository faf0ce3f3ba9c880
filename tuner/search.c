/* search.c - one problem, from its first candidate to its recorded race.
 *
 * Candidates are taken as their compiles end.  Each is pruned by the registers
 * and spills it really has, verified, and given a pilot of a few blocks; what
 * is learned goes to the database at once, so that a killed run loses nothing.
 * Then the race, whose row makes the problem tuned.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "measure/stats.h"
#include "measure/timer.h"
#include "tuner/process.h"
#include "tuner/task.h"

struct search {
  struct cuvil_tuning *tuning;
  struct cuvil_task_state *task;
  double end;  /* of this problem's share of the budget */
  double best; /* seconds; INFINITY */
  /* A failure to write inside a callback. */
  enum cuvil_status write_status;
};

static struct cuvil_db_candidate db_candidate(
    const struct cuvil_task_state *task, const struct cuvil_candidate *c) {
  return (struct cuvil_db_candidate){
      .problem = task->told.text,
      .signature = cuvil_buf_text(&task->signature),
      .family = c->family->id,
      .family_version = c->version,
      .config = c->text};
}

static enum cuvil_status record_failure(struct search *search,
                                        struct cuvil_candidate *c) {
  struct cuvil_db_context context =
      cuvil_task_context(search->tuning, search->task);
  struct cuvil_db_failure failure = {.candidate = db_candidate(search->task, c),
                                     .reason = c->outcome.reason,
                                     .detail = c->outcome.detail};
  search->task->result->failed++;
  cuvil_log_verbose("%s %s: %s: %s", c->family->id, c->text, c->outcome.reason,
                    c->outcome.detail);
  return cuvil_db_add_failure(search->tuning->db, &context, &failure);
}

static enum cuvil_status record_measurement(struct search *search,
                                            struct cuvil_candidate *c) {
  struct cuvil_db_context context =
      cuvil_task_context(search->tuning, search->task);
  struct cuvil_interval interval;
  int rounds[sizeof c->pilot / sizeof c->pilot[0]];
  cuvil_median_interval(c->pilot, c->pilot_count, 0.95, &interval);
  for (int i = 0; i < c->pilot_count; i++)
    rounds[i] = i - c->pilot_count;
  struct cuvil_db_measurement measurement = {
      .candidate = db_candidate(search->task, c),
      .cubin_hash = c->compiled.hash,
      .registers = c->compiled.registers,
      .spill_bytes = c->compiled.spill_bytes,
      .shared_bytes = c->compiled.shared_bytes,
      .compile_seconds = c->compiled.seconds,
      .worst_ratio = c->worst_ratio,
      .blocks = c->pilot,
      .rounds = rounds,
      .block_count = c->pilot_count,
      .median = interval.median,
      .low = interval.low,
      .high = interval.high};
  search->task->result->timed++;
  return cuvil_db_add_measurement(search->tuning->db, &context, &measurement);
}

/* Equal cubins with equal launches are one candidate: the untuned choice
 * stands for the others, else the first. */
static bool is_duplicate(struct search *search, struct cuvil_candidate *c) {
  if (!*c->compiled.binary || c->is_default) return false;
  for (int i = 0; i < search->task->candidates.count; i++) {
    struct cuvil_candidate *other = &search->task->candidates.items[i];
    if (other != c && other->tried && !other->duplicate && !other->untried &&
        strcmp(other->compiled.binary, c->compiled.binary) == 0)
      return true;
  }
  return false;
}

/* Real resources against the architecture; true when it goes on. */
static bool fits(struct search *search, struct cuvil_candidate *c) {
  const struct cuvil_compiled *compiled = &c->compiled;
  bool exhaustive = search->tuning->options->strategy.ops->exhaustive;
  if (c->choice >= 0 || compiled->registers == 0) return true;
  if (c->derived.threads > 0 &&
      cuvil_arch_blocks_per_sm(&search->tuning->runner->arch,
                               c->derived.threads, compiled->registers,
                               c->derived.shared_bytes) == 0) {
    cuvil_outcome_fail(&c->outcome, "launch",
                       "%d registers x %d threads and %d bytes of shared "
                       "memory do not fit an SM",
                       compiled->registers, c->derived.threads,
                       c->derived.shared_bytes);
    return false;
  }
  if (compiled->spill_bytes > 0 && !exhaustive && !c->is_default) {
    cuvil_outcome_fail(&c->outcome, "spill", "%d bytes spilled",
                       compiled->spill_bytes);
    return false;
  }
  return true;
}

static void show_progress(struct search *search) {
  const struct cuvil_tune_result *result = search->task->result;
  const struct cuvil_tuning *tuning = search->tuning;
  int index = (int)(search->task - tuning->tasks) + 1;
  char best[32] = "";
  if (isfinite(search->best))
    snprintf(best, sizeof best, "best %.1f us", search->best * 1e6);
  cuvil_log_progress("[%3d/%d] %.40s...  %d of %d  %s", index, tuning->count,
                     search->task->told.text, result->timed + result->failed,
                     search->task->candidates.count, best);
}

/* One candidate whose compile has ended. */
static enum cuvil_status settle(struct search *search,
                                struct cuvil_candidate *c) {
  struct cuvil_runner *runner = search->tuning->runner;
  struct cuvil_tune_result *result = search->task->result;
  c->tried = true;
  if (c->compiled.state == CUVIL_COMPILE_FAILED) {
    /* A cached cubin that is gone does not unmake what was measured. */
    if (c->known) return CUVIL_OK;
    c->outcome = c->compiled.outcome;
    return record_failure(search, c);
  }
  result->compiled += *c->compiled.hash != '\0';
  if (is_duplicate(search, c)) {
    c->duplicate = true;
    result->duplicates++;
    return CUVIL_OK;
  }
  if (c->known) {
    result->known++;
    if (c->outcome.ok) search->best = fmin(search->best, c->median);
    return CUVIL_OK;
  }
  if (!fits(search, c)) return record_failure(search, c);
  CUVIL_TRY(runner->ops->attempt(runner->self, c));
  if (!c->outcome.ok) return record_failure(search, c);
  c->median = cuvil_quantile(c->pilot, c->pilot_count, 0.5);
  search->best = fmin(search->best, c->median);
  return record_measurement(search, c);
}

/* The next whose compile has ended: the default, then library choices, then
 * the order of the list.  *out_waiting: some compile has not ended. */
static struct cuvil_candidate *next(struct search *search, bool *out_waiting) {
  struct cuvil_candidates *list = &search->task->candidates;
  struct cuvil_candidate *found = NULL;
  *out_waiting = false;
  for (int i = 0; i < list->count; i++) {
    struct cuvil_candidate *c = &list->items[i];
    if (c->tried) continue;
    if (c->compiled.state == CUVIL_COMPILE_PENDING) {
      *out_waiting = true;
      continue;
    }
    int rank = c->is_default ? 0 : c->choice >= 0 ? 1 : 2;
    int best = !found ? 3 : found->is_default ? 0 : found->choice >= 0 ? 1 : 2;
    if (rank < best) found = c;
  }
  return found;
}

static bool must_run(const struct cuvil_candidate *c) {
  return c->is_default || c->choice == 0;
}

static enum cuvil_status pilot_all(struct search *search) {
  struct cuvil_candidates *list = &search->task->candidates;
  struct cuvil_runner *runner = search->tuning->runner;
  for (;;) {
    bool waiting = false;
    struct cuvil_candidate *c = next(search, &waiting);
    bool late = cuvil_now() > search->end;
    CUVIL_TRY(cuvil_interrupt_check());
    if (c && (!late || must_run(c))) {
      show_progress(search);
      CUVIL_TRY(settle(search, c));
      continue;
    }
    if (c) { /* the time is up: it stays untried */
      c->tried = c->untried = true;
      search->task->result->untried++;
      continue;
    }
    if (!waiting) return CUVIL_OK;
    if (late && isfinite(search->best)) break;
    CUVIL_TRY(runner->ops->compile_poll(runner->self, list, 0.5));
  }
  for (int i = 0; i < list->count; i++) {
    if (list->items[i].tried) continue;
    list->items[i].tried = list->items[i].untried = true;
    search->task->result->untried++;
  }
  return CUVIL_OK;
}

/* ---- what the strategy wants next */

/* A duplicate is as fast as what it equals. */
static double seconds_of(const struct cuvil_candidates *list,
                         const struct cuvil_candidate *c) {
  for (int i = 0; c->duplicate && i < list->count; i++) {
    const struct cuvil_candidate *other = &list->items[i];
    if (!other->duplicate && other->tried && !other->untried &&
        strcmp(other->compiled.binary, c->compiled.binary) == 0)
      return seconds_of(list, other);
  }
  return c->outcome.ok && isfinite(c->median) ? c->median : INFINITY;
}

static void tell(struct search *search) {
  struct cuvil_task_state *task = search->task;
  const struct cuvil_candidates *list = &task->candidates;
  for (int i = 0; i < list->count; i++) {
    const struct cuvil_candidate *c = &list->items[i];
    if (c->site < 0 || !c->tried || c->untried) continue;
    cuvil_chooser_tell(task->chooser, c->site, seconds_of(list, c));
  }
}

static enum cuvil_status start_new(struct search *search, int first) {
  struct cuvil_task_state *task = search->task;
  struct cuvil_runner *runner = search->tuning->runner;
  for (int i = first; i < task->candidates.count; i++) {
    struct cuvil_candidate *c = &task->candidates.items[i];
    if (runner->ops->holds) runner->ops->holds(runner->self, &task->told, c);
    cuvil_task_recall(search->tuning, task, c);
    if (c->known && !c->outcome.ok) {
      c->tried = true;
      task->result->known++;
      continue;
    }
    CUVIL_TRY(runner->ops->compile_start(runner->self, &task->told, c, true));
  }
  return CUVIL_OK;
}

/* A prediction finds the region, measuring finds the point: batch after batch
 * until the strategy has asked for all that it may. */
static enum cuvil_status go_on(struct search *search) {
  struct cuvil_task_state *task = search->task;
  for (;;) {
    int count = 0, first = task->candidates.count;
    if (cuvil_now() > search->end) return CUVIL_OK;
    tell(search);
    CUVIL_TRY(cuvil_task_ask(search->tuning, task, &count));
    if (count == 0) return CUVIL_OK;
    CUVIL_TRY(start_new(search, first));
    task->result->chosen = task->candidates.count;
    CUVIL_TRY(pilot_all(search));
  }
}

static enum cuvil_status add_choices(struct search *search,
                                     const struct cuvil_family *family) {
  struct cuvil_tuning *tuning = search->tuning;
  struct cuvil_task_state *task = search->task;
  struct cuvil_runner *runner = tuning->runner;
  char **texts = NULL;
  int count = 0;
  enum cuvil_status status = runner->ops->choices(
      runner->self, family, tuning->options->library_limit, &texts, &count);
  for (int i = 0; i < count && status == CUVIL_OK; i++) {
    struct cuvil_candidate *c = NULL;
    status = cuvil_candidates_add(&task->candidates, &task->problem,
                                  &runner->arch, family, texts[i], &c);
    if (status != CUVIL_OK || c->choice >= 0) continue;
    c->choice = i;
    if (runner->ops->holds &&
        !runner->ops->holds(runner->self, &task->told, c)) {
      free(c->text);
      task->candidates.count--;
      continue;
    }
    cuvil_task_recall(tuning, task, c);
    if (c->known && !c->outcome.ok) continue;
    status = runner->ops->compile_start(runner->self, &task->told, c, true);
  }
  for (int i = 0; i < count; i++)
    free(texts[i]);
  free(texts);
  return status;
}

static enum cuvil_status add_libraries(struct search *search) {
  const struct cuvil_problem *problem = &search->task->problem;
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *family = cuvil_family_at(i);
    if (!family->library || !(family->kinds & (1u << problem->kind)) ||
        !cuvil_families_include(search->tuning->options->families,
                                family->id) ||
        !family->applicable(problem, &search->tuning->runner->arch))
      continue;
    CUVIL_TRY(add_choices(search, family));
  }
  return CUVIL_OK;
}

static void on_race_failure(void *user, struct cuvil_candidate *candidate) {
  struct search *search = user;
  enum cuvil_status status = record_failure(search, candidate);
  if (search->write_status == CUVIL_OK) search->write_status = status;
}

/* ---- the result */
static enum cuvil_status keep_participants(
    struct cuvil_tune_result *result, const struct cuvil_race_report *race) {
  result->participants =
      calloc((size_t)race->count + 1, sizeof *result->participants);
  if (!result->participants)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a result");
  for (int i = 0; i < race->count; i++) {
    const struct cuvil_db_participant *from = &race->entries[i];
    struct cuvil_tune_participant *to =
        &result->participants[result->participant_count];
    *to = (struct cuvil_tune_participant){
        .family = from->family,
        .config = strdup(from->config),
        .flags = from->flags,
        .median = from->median,
        .ratio = from->ratio,
        .ratio_low = from->ratio_low,
        .ratio_high = from->ratio_high,
        .predicted = race->candidates[i]->predicted};
    for (int r = 0; r < race->rounds; r++) {
      to->rounds += !isnan(from->seconds[r]);
      to->in_final |= r >= race->final_round && !isnan(from->seconds[r]);
    }
    if (!to->config)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a result");
    result->participant_count++;
  }
  return CUVIL_OK;
}

static enum cuvil_status fill_result(struct search *search,
                                     const struct cuvil_race_report *race) {
  struct cuvil_tune_result *result = search->task->result;
  const struct cuvil_db_participant *winner = &race->entries[race->winner];
  result->state = CUVIL_TUNE_TUNED;
  result->winner_seconds = winner->median;
  result->converged = race->converged;
  result->control = race->control;
  snprintf(result->family, sizeof result->family, "%s", winner->family);
  result->config = strdup(winner->config);
  if (!result->config)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a result");
  for (int i = 0; i < race->count; i++) {
    const struct cuvil_db_participant *p = &race->entries[i];
    if (!isfinite(p->median)) continue;
    if (p->flags & CUVIL_RACE_DEFAULT) {
      result->default_seconds = p->median;
      result->default_ratio_low = p->ratio_low;
    }
    if ((p->flags & CUVIL_RACE_LIBRARY_FIRST) &&
        (result->library_seconds == 0 || p->median < result->library_seconds)) {
      result->library_seconds = p->median;
      result->library_ratio_low = p->ratio_low;
    }
  }
  result->own = race->own;
  result->library = race->library;
  result->own_ratio = race->own_ratio;
  result->own_ratio_low = race->own_ratio_low;
  result->own_ratio_high = race->own_ratio_high;
  return keep_participants(result, race);
}

static enum cuvil_status record_race(struct search *search,
                                     struct cuvil_race_report *race) {
  struct cuvil_db_context context =
      cuvil_task_context(search->tuning, search->task);
  /* One that failed in its first round has nothing to tell but its failure. */
  int to = 0, winner = -1, own = -1, library = -1;
  for (int i = 0; i < race->count; i++) {
    if (!isfinite(race->entries[i].median)) continue;
    if (i == race->winner) winner = to;
    if (i == race->own) own = to;
    if (i == race->library) library = to;
    race->candidates[to] = race->candidates[i];
    race->entries[to++] = race->entries[i];
  }
  race->count = to;
  race->winner = winner;
  race->own = own;
  race->library = library;
  struct cuvil_db_race row = {
      .problem = search->task->told.text,
      .signature = cuvil_buf_text(&search->task->signature),
      .rounds = race->rounds,
      .participant_count = race->count,
      .participants = race->entries,
      .converged = race->converged};
  return cuvil_db_add_race(search->tuning->db, &context, &row);
}

static enum cuvil_status keep_recording(struct search *search) {
  struct cuvil_recording *recording = search->tuning->options->recording;
  const struct cuvil_task_state *task = search->task;
  int index = -1, own = 0;
  if (!recording) return CUVIL_OK;
  for (int i = 0; i < task->candidates.count; i++)
    own += task->candidates.items[i].choice < 0;
  CUVIL_TRY(cuvil_recording_add_problem(
      recording, task->told.text, task->told.l2.label,
      (int64_t)task->result->valid, own, &index));
  for (int i = 0; i < task->candidates.count; i++)
    if (task->candidates.items[i].tried && !task->candidates.items[i].untried)
      CUVIL_TRY(
          cuvil_recording_add(recording, index, &task->candidates.items[i]));
  return CUVIL_OK;
}

/* ---- */
static enum cuvil_status search_opened(struct search *search) {
  struct cuvil_tuning *tuning = search->tuning;
  struct cuvil_task_state *task = search->task;
  struct cuvil_race_report race = {0};
  CUVIL_TRY(add_libraries(search));
  CUVIL_TRY(cuvil_task_neighbour(tuning, task));
  task->result->chosen = task->candidates.count;
  for (int i = 0; i < task->candidates.count; i++) {
    struct cuvil_candidate *c = &task->candidates.items[i];
    if (c->known && !c->outcome.ok) c->tried = true, task->result->known++;
  }
  CUVIL_TRY(pilot_all(search));
  CUVIL_TRY(go_on(search));
  CUVIL_TRY(cuvil_race_run(
      tuning->runner, &task->candidates,
      tuning->options->seed ^
          cuvil_hash64(task->told.text, strlen(task->told.text), 0),
      on_race_failure, search, &race));
  enum cuvil_status status = search->write_status;
  if (status == CUVIL_OK) status = record_race(search, &race);
  if (status == CUVIL_OK) status = fill_result(search, &race);
  cuvil_race_report_free(&race);
  return status;
}

/* What ends the whole run, and not just this problem. */
static bool is_fatal(enum cuvil_status status) {
  switch (status) {
    case CU_ERR_CANDIDATE_FAILED:
    case CU_ERR_CUDA:
    case CU_ERR_DEVICE_MEMORY:
    case CU_ERR_KERNEL_COMPILE:
    case CU_ERR_LIBRARY:
    case CU_ERR_VERIFY_FAILED:
    case CU_ERR_NO_RECORDING:
    case CU_ERR_UNSUPPORTED:
      return false;
    default:
      return status != CUVIL_OK;
  }
}

enum cuvil_status cuvil_task_search(struct cuvil_tuning *tuning,
                                    struct cuvil_task_state *task) {
  struct search search = {.tuning = tuning, .task = task, .best = INFINITY};
  struct cuvil_runner *runner = tuning->runner;
  int left = 0;
  for (struct cuvil_task_state *t = task; t < tuning->tasks + tuning->count;
       t++)
    left += t->result->state == CUVIL_TUNE_LEFT;
  double now = cuvil_now();
  search.end =
      isfinite(tuning->end) ? now + (tuning->end - now) / left : INFINITY;
  show_progress(&search);
  enum cuvil_status status = runner->ops->open(runner->self, &task->told);
  if (status == CUVIL_OK) status = search_opened(&search);
  if (status != CUVIL_OK && !is_fatal(status)) {
    task->result->state = status == CU_ERR_NO_RECORDING
                              ? CUVIL_TUNE_NOT_RECORDED
                              : CUVIL_TUNE_FAILED;
    snprintf(task->result->reason, sizeof task->result->reason, "%.255s",
             cuvil_last_error());
    status = CUVIL_OK;
  }
  if (status == CUVIL_OK && task->result->state == CUVIL_TUNE_TUNED)
    status = keep_recording(&search);
  if (status == CUVIL_OK) status = runner->ops->close(runner->self);
  return status;
}
