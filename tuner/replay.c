/* replay.c - the runner that answers from a recording.
 *
 * What compiled, compiles; what failed, fails with the same words; a block of
 * round r is the block recorded in round r, so that pairs that were measured
 * together are compared together.  A candidate that left the recorded race
 * early answers later rounds with its own earlier blocks again, in order.
 * Nothing here looks at a clock: the same seed and recording give the same
 * database.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "tuner/process.h"
#include "tuner/recording.h"
#include "tuner/runner.h"

struct replay {
  struct cuvil_recording *recording; /* borrowed */
  double slow;
  int open; /* problem; -1 */
  bool warned;
};

/* What was skipped as equal to another answers as the other did. */
static const struct cuvil_record *original(
    const struct cuvil_recording *recording,
    const struct cuvil_record *duplicate) {
  for (int i = 0; i < recording->record_count; i++) {
    const struct cuvil_record *record = &recording->records[i];
    if (record->problem == duplicate->problem && record != duplicate &&
        strcmp(record->outcome.reason, "duplicate") != 0 &&
        strcmp(record->compiled.binary, duplicate->compiled.binary) == 0)
      return record;
  }
  return NULL;
}

/* NULL: the recording does not know (a file may say "equal to another" of what
 * has no other). */
static const struct cuvil_record *answer(
    const struct cuvil_recording *recording,
    const struct cuvil_record *record) {
  if (record && strcmp(record->outcome.reason, "duplicate") == 0)
    return original(recording, record);
  return record;
}

static const struct cuvil_record *find(const struct replay *replay, int problem,
                                       const struct cuvil_candidate *c) {
  if (problem < 0) return NULL;
  return answer(
      replay->recording,
      cuvil_recording_find(replay->recording, problem, c->family->id, c->text));
}

/* The slowness that tests ask for, in small steps that a signal can end. */
static enum cuvil_status pass_time(const struct replay *replay) {
  struct timespec t = {(time_t)replay->slow,
                       (long)(fmod(replay->slow, 1) * 1e9)};
  if (replay->slow > 0) nanosleep(&t, NULL);
  return cuvil_interrupt_check();
}

static bool holds(void *self, const struct cuvil_runner_problem *problem,
                  struct cuvil_candidate *c) {
  struct replay *replay = self;
  int index = cuvil_recording_problem(replay->recording, problem->text);
  const struct cuvil_record *record = find(replay, index, c);
  if (!record) return false;
  if (record->version != c->version && !replay->warned) {
    cuvil_log_warning(
        "the recording has %s version %d, this program version %d: what is "
        "replayed is of the recorded one",
        c->family->id, record->version, c->version);
    replay->warned = true;
  }
  c->version = record->version;
  return true;
}

static enum cuvil_status compile_start(
    void *self, const struct cuvil_runner_problem *problem,
    struct cuvil_candidate *c, bool urgent) {
  struct replay *replay = self;
  int index = cuvil_recording_problem(replay->recording, problem->text);
  const struct cuvil_record *record = find(replay, index, c);
  (void)urgent;
  CUVIL_CHECK(record);
  c->compiled = record->compiled;
  return CUVIL_OK;
}

static enum cuvil_status compile_poll(void *self, struct cuvil_candidates *list,
                                      double seconds) {
  (void)self;
  (void)list;
  (void)seconds;
  return cuvil_interrupt_check();
}

static enum cuvil_status open_problem(
    void *self, const struct cuvil_runner_problem *problem) {
  struct replay *replay = self;
  replay->open = cuvil_recording_problem(replay->recording, problem->text);
  if (replay->open < 0)
    return CUVIL_FAIL(CU_ERR_NO_RECORDING, "%s does not hold the problem %s",
                      replay->recording->path, problem->text);
  return CUVIL_OK;
}

static enum cuvil_status choices(void *self, const struct cuvil_family *family,
                                 int limit, char ***out_texts, int *out_count) {
  const struct replay *replay = self;
  const struct cuvil_recording *recording = replay->recording;
  *out_count = 0;
  *out_texts = calloc((size_t)limit + 1, sizeof **out_texts);
  if (!*out_texts)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for choices");
  for (int rank = 0; rank < limit; rank++) {
    const struct cuvil_record *found = NULL;
    for (int i = 0; i < recording->record_count && !found; i++) {
      const struct cuvil_record *record = &recording->records[i];
      if (record->problem == replay->open && record->choice == rank &&
          strcmp(record->family, family->id) == 0 && answer(recording, record))
        found = record;
    }
    if (!found) break;
    (*out_texts)[*out_count] = strdup(found->config);
    if (!(*out_texts)[*out_count])
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for choices");
    ++*out_count;
  }
  return CUVIL_OK;
}

/* Recorded pilot blocks, or where there were none, the first of the race. */
static void take_pilot(const struct cuvil_record *record,
                       struct cuvil_candidate *c) {
  int most = (int)(sizeof c->pilot / sizeof c->pilot[0]), pilots = 0;
  for (int i = 0; i < record->block_count; i++)
    pilots += record->rounds[i] < 0;
  if (pilots == 0) pilots = record->block_count < 3 ? record->block_count : 3;
  for (int i = 0; i < pilots && c->pilot_count < most; i++)
    c->pilot[c->pilot_count++] = record->seconds[i];
}

static enum cuvil_status attempt(void *self, struct cuvil_candidate *c) {
  const struct replay *replay = self;
  const struct cuvil_record *record = find(replay, replay->open, c);
  CUVIL_CHECK(record);
  CUVIL_TRY(pass_time(replay));
  c->outcome = record->outcome;
  c->worst_ratio = record->worst_ratio;
  c->pilot_count = 0;
  if (c->outcome.ok) take_pilot(record, c);
  return CUVIL_OK;
}

static enum cuvil_status retest(void *self, struct cuvil_candidate *c) {
  const struct replay *replay = self;
  const struct cuvil_record *record = find(replay, replay->open, c);
  CUVIL_CHECK(record);
  CUVIL_TRY(pass_time(replay));
  take_pilot(record, c);
  return CUVIL_OK;
}

/* Block of a round of the race: that round's, else its own again in order. */
static double block(const struct cuvil_record *record, int round) {
  int raced = 0, first = 0;
  for (int i = 0; i < record->block_count; i++) {
    if (record->rounds[i] == round) return record->seconds[i];
    if (record->rounds[i] < 0) first = i + 1;
    raced += record->rounds[i] >= 0;
  }
  if (raced == 0) return record->seconds[round % record->block_count];
  return record->seconds[first + round % raced];
}

static enum cuvil_status run_round(void *self, int round,
                                   struct cuvil_entrant *entrants, int count) {
  const struct replay *replay = self;
  for (int i = 0; i < count; i++) {
    const struct cuvil_record *record =
        find(replay, replay->open, entrants[i].candidate);
    CUVIL_CHECK(record && record->block_count > 0);
    entrants[i].outcome.ok = true;
    if (entrants[i].copy == 0)
      entrants[i].seconds = block(record, round);
    else if (record->control_count > 0)
      entrants[i].seconds = record->control[round % record->control_count];
    else /* no second copy was recorded: another block of the first */
      entrants[i].seconds = block(record, round + record->block_count / 2 + 1);
  }
  return pass_time(replay);
}

static enum cuvil_status close_problem(void *self) {
  struct replay *replay = self;
  replay->open = -1;
  return CUVIL_OK;
}

static bool list(void *self, const struct cuvil_runner_problem *problem,
                 int index, const char **out_family, const char **out_text) {
  const struct replay *replay = self;
  const struct cuvil_recording *recording = replay->recording;
  int wanted = cuvil_recording_problem(recording, problem->text);
  for (int i = 0; i < recording->record_count; i++) {
    const struct cuvil_record *record = &recording->records[i];
    if (record->problem != wanted || record->choice >= 0 ||
        !answer(recording, record))
      continue;
    if (index-- > 0) continue;
    *out_family = record->family;
    *out_text = record->config;
    return true;
  }
  return false;
}

static const char *l2(void *self, const char *problem) {
  const struct replay *replay = self;
  int index = cuvil_recording_problem(replay->recording, problem);
  if (index < 0) return NULL;
  return strcmp(replay->recording->problems[index].l2, "cold") == 0 ? "cold"
                                                                    : "warm";
}

static void destroy(void *self) {
  free(self);
}

static const struct cuvil_runner_ops ops = {.compile_start = compile_start,
                                            .compile_poll = compile_poll,
                                            .open = open_problem,
                                            .choices = choices,
                                            .attempt = attempt,
                                            .retest = retest,
                                            .round = run_round,
                                            .close = close_problem,
                                            .holds = holds,
                                            .list = list,
                                            .l2 = l2,
                                            .destroy = destroy};

enum cuvil_status cuvil_replay_runner_create(struct cuvil_recording *recording,
                                             double slow,
                                             struct cuvil_runner **out) {
  struct cuvil_runner *runner = calloc(1, sizeof *runner);
  struct replay *replay = calloc(1, sizeof *replay);
  *out = NULL;
  if (!runner || !replay) {
    free(runner);
    free(replay);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a runner");
  }
  *replay = (struct replay){recording, slow, -1, false};
  *runner = (struct cuvil_runner){&ops, replay, "replayed", recording->arch,
                                  recording->env};
  *out = runner;
  return CUVIL_OK;
}
