/* recording.c - a recording in memory: made, filled, searched.
 *
 * Lookups go through a JSON object used as a hash map from "problem index,
 * family, config" to the record's place.
 */
#include "tuner/recording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "measure/timer.h"

enum cuvil_status cuvil_recording_create(const struct cuvil_arch *arch,
                                         const struct cuvil_env *env,
                                         int64_t seed,
                                         struct cuvil_recording **out) {
  struct cuvil_recording *recording = calloc(1, sizeof *recording);
  *out = NULL;
  if (recording) {
    recording->index = json_object();
    recording->path = strdup("");
  }
  if (!recording || !recording->index || !recording->path) {
    cuvil_recording_destroy(recording);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a recording");
  }
  if (arch) recording->arch = *arch;
  if (env) recording->env = *env;
  recording->method = CUVIL_METHOD_VERSION;
  recording->seed = seed;
  cuvil_utc_timestamp(recording->created);
  *out = recording;
  return CUVIL_OK;
}

static void free_record(struct cuvil_record *record) {
  free(record->family);
  free(record->config);
  free(record->rounds);
  free(record->seconds);
  free(record->control);
}

void cuvil_recording_destroy(struct cuvil_recording *recording) {
  if (!recording) return;
  for (int i = 0; i < recording->problem_count; i++)
    free(recording->problems[i].text);
  for (int i = 0; i < recording->record_count; i++)
    free_record(&recording->records[i]);
  free(recording->problems);
  free(recording->records);
  free(recording->path);
  json_decref(recording->index);
  free(recording);
}

enum cuvil_status cuvil_recording_add_problem(struct cuvil_recording *recording,
                                              const char *text, const char *l2,
                                              int64_t valid, int64_t recorded,
                                              int *out_index) {
  struct cuvil_recorded_problem *problems =
      realloc(recording->problems,
              (size_t)(recording->problem_count + 1) * sizeof *problems);
  if (out_index) *out_index = -1;
  if (!problems)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a recording");
  recording->problems = problems;
  struct cuvil_recorded_problem *problem = &problems[recording->problem_count];
  *problem = (struct cuvil_recorded_problem){
      .text = strdup(text), .valid = valid, .recorded = recorded};
  if (!problem->text)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a recording");
  snprintf(problem->l2, sizeof problem->l2, "%s", l2);
  if (out_index) *out_index = recording->problem_count;
  recording->problem_count++;
  return CUVIL_OK;
}

static enum cuvil_status key_of(int problem, const char *family,
                                const char *config, struct cuvil_buf *out) {
  cuvil_buf_clear(out);
  cuvil_buf_printf(out, "%d|%s|%s", problem, family, config);
  return cuvil_buf_status(out);
}

enum cuvil_status cuvil_recording_push(struct cuvil_recording *recording,
                                       struct cuvil_record *record) {
  struct cuvil_buf key = {0};
  enum cuvil_status status = CUVIL_OK;
  if (recording->record_count == recording->record_capacity) {
    int capacity =
        recording->record_capacity ? 2 * recording->record_capacity : 256;
    struct cuvil_record *records =
        realloc(recording->records, (size_t)capacity * sizeof *records);
    if (!records) {
      status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a recording");
      goto fail;
    }
    recording->records = records;
    recording->record_capacity = capacity;
  }
  CUVIL_TRY_GOTO(key_of(record->problem, record->family, record->config, &key));
  if (json_object_get(recording->index, key.data)) {
    status = CUVIL_FAIL(CU_ERR_PARSE, "%s %s is recorded twice for problem %d",
                        record->family, record->config, record->problem);
    goto fail;
  }
  if (json_object_set_new(recording->index, key.data,
                          json_integer(recording->record_count)) != 0) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a recording");
    goto fail;
  }
  recording->records[recording->record_count++] = *record;
  *record = (struct cuvil_record){0};
fail:
  free_record(record);
  *record = (struct cuvil_record){0};
  cuvil_buf_free(&key);
  return status;
}

enum cuvil_status cuvil_recording_add(struct cuvil_recording *recording,
                                      int problem,
                                      const struct cuvil_candidate *candidate) {
  int blocks = candidate->pilot_count + candidate->round_count;
  struct cuvil_record record = {
      .problem = problem,
      .family = strdup(candidate->family->id),
      .config = strdup(candidate->text),
      .version = candidate->version,
      .choice = candidate->choice,
      .compiled = candidate->compiled,
      .outcome = candidate->outcome,
      .worst_ratio = candidate->worst_ratio,
      .rounds = calloc((size_t)blocks + 1, sizeof(int)),
      .seconds = calloc((size_t)blocks + 1, sizeof(double)),
      .control = calloc((size_t)candidate->control_count + 1, sizeof(double))};
  if (!record.family || !record.config || !record.rounds || !record.seconds ||
      !record.control) {
    free_record(&record);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a recording");
  }
  /* What was skipped as equal to another has no answer of its own. */
  if (candidate->duplicate)
    cuvil_outcome_fail(&record.outcome, "duplicate",
                       "equal to another candidate");
  for (int i = 0; i < candidate->pilot_count; i++) {
    record.rounds[record.block_count] = i - candidate->pilot_count;
    record.seconds[record.block_count++] = candidate->pilot[i];
  }
  for (int i = 0; i < candidate->round_count; i++) {
    if (isnan(candidate->rounds[i])) continue;
    record.rounds[record.block_count] = i;
    record.seconds[record.block_count++] = candidate->rounds[i];
  }
  for (int i = 0; i < candidate->control_count; i++)
    if (!isnan(candidate->control[i]))
      record.control[record.control_count++] = candidate->control[i];
  return cuvil_recording_push(recording, &record);
}

int cuvil_recording_problem(const struct cuvil_recording *recording,
                            const char *text) {
  for (int i = 0; i < recording->problem_count; i++)
    if (strcmp(recording->problems[i].text, text) == 0) return i;
  return -1;
}

const struct cuvil_record *cuvil_recording_find(
    const struct cuvil_recording *recording, int problem, const char *family,
    const char *config) {
  struct cuvil_buf key = {0};
  const json_t *place = NULL;
  if (key_of(problem, family, config, &key) == CUVIL_OK)
    place = json_object_get(recording->index, key.data);
  cuvil_buf_free(&key);
  return place ? &recording->records[json_integer_value(place)] : NULL;
}
