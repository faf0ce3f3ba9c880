/* run_device.c - see run_device.h. */
#include "cli/run_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common.h"
#include "measure/stats.h"

enum { MAX_TIMES = 1000000, PROFILE_REPEATS = 50 };

enum cuvil_status cuvil_run_amount_parse(const char *option, const char *text,
                                         struct cuvil_run_amount *out) {
  *out = (struct cuvil_run_amount){0};
  if (text[0] && strchr("smh", text[strlen(text) - 1]))
    return cuvil_parse_duration(text, &out->seconds);
  return cuvil_cli_integer(option, text, 0, MAX_TIMES, &out->count);
}

void cuvil_run_times_free(struct cuvil_run_times *times) {
  free(times->seconds);
  *times = (struct cuvil_run_times){0};
}

enum cuvil_status cuvil_run_once(struct cuvil_gpu *gpu,
                                 struct cuvil_session *session,
                                 struct cuvil_gpu_stream *stream,
                                 struct cuvil_run_io *io) {
  for (int i = 0; i < io->input_count; ++i)
    CUVIL_TRY(cuvil_gpu_upload(gpu, cuvil_session_input(session, i), io->in[i],
                               io->inputs[i].bytes));
  CUVIL_TRY(cuvil_session_run(session, stream));
  CUVIL_TRY(cuvil_gpu_stream_synchronize(stream));
  for (int i = 0; i < io->output_count; ++i)
    CUVIL_TRY(cuvil_gpu_download(gpu, io->out[i],
                                 cuvil_session_output(session, i),
                                 io->outputs[i].bytes));
  return CUVIL_OK;
}

/* More is wanted: neither the count nor the time is reached. */
static bool goes_on(const struct cuvil_run_amount *amount, int64_t done,
                    double start) {
  return done < amount->count ||
         (amount->seconds > 0 && cuvil_now() - start < amount->seconds &&
          done < MAX_TIMES);
}

static enum cuvil_status warm_up_session(
    struct cuvil_session *session, struct cuvil_gpu_stream *stream,
    const struct cuvil_run_amount *amount) {
  double start = cuvil_now();
  for (int64_t done = 0; goes_on(amount, done, start); ++done) {
    CUVIL_TRY(cuvil_session_run(session, stream));
    CUVIL_TRY(cuvil_gpu_stream_synchronize(stream));
  }
  return CUVIL_OK;
}

static enum cuvil_status add_time(struct cuvil_run_times *times, int *capacity,
                                  double seconds) {
  if (times->count == *capacity) {
    int larger = *capacity ? *capacity * 2 : 256;
    double *moved =
        realloc(times->seconds, (size_t)larger * sizeof(*times->seconds));
    if (!moved) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%d times", larger);
    times->seconds = moved;
    *capacity = larger;
  }
  times->seconds[times->count++] = seconds;
  return CUVIL_OK;
}

enum cuvil_status cuvil_run_latency(struct cuvil_gpu *gpu,
                                    struct cuvil_session *session,
                                    struct cuvil_gpu_stream *stream,
                                    const struct cuvil_run_amount *warm_up,
                                    const struct cuvil_run_amount *runs,
                                    struct cuvil_run_times *out) {
  struct cuvil_gpu_event *before = NULL, *after = NULL;
  enum cuvil_status status = CUVIL_OK;
  int capacity = 0;
  *out = (struct cuvil_run_times){0};
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &before));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &after));
  CUVIL_TRY_GOTO(warm_up_session(session, stream, warm_up));
  double start = cuvil_now();
  while (goes_on(runs, out->count, start)) {
    double seconds;
    CUVIL_TRY_GOTO(cuvil_gpu_event_record(before, stream));
    CUVIL_TRY_GOTO(cuvil_session_run(session, stream));
    CUVIL_TRY_GOTO(cuvil_gpu_event_record(after, stream));
    CUVIL_TRY_GOTO(cuvil_gpu_event_synchronize(after));
    CUVIL_TRY_GOTO(cuvil_gpu_event_elapsed(before, after, &seconds));
    CUVIL_TRY_GOTO(add_time(out, &capacity, seconds));
  }
fail:
  cuvil_gpu_event_destroy(before);
  cuvil_gpu_event_destroy(after);
  if (status != CUVIL_OK) cuvil_run_times_free(out);
  return status;
}

enum cuvil_status cuvil_run_report_times(const struct cuvil_run_times *times,
                                         FILE *to, json_t **out_json) {
  static const double at[] = {0.5, 0.05, 0.25, 0.75, 0.95, 0.99};
  static const char *const names[] = {"median", "p5",  "p25",
                                      "p75",    "p95", "p99"};
  enum { COUNT = sizeof(at) / sizeof(at[0]) };
  char text[32];
  if (times->count == 0) return CUVIL_OK;
  double least = cuvil_quantile(times->seconds, times->count, 0);
  json_t *json = json_pack("{s:i, s:f}", "runs", times->count, "min", least);
  if (times->count == 1)
    fprintf(to, "one run: %s\n", cuvil_cli_time(least, text));
  else
    fprintf(to, "latency of %d runs:", times->count);
  for (int i = 0; i < COUNT; ++i) {
    double value = cuvil_quantile(times->seconds, times->count, at[i]);
    if (times->count > 1)
      fprintf(to, " %s %s,", names[i], cuvil_cli_time(value, text));
    if (json) json_object_set_new(json, names[i], json_real(value));
  }
  if (times->count > 1) fprintf(to, " min %s\n", cuvil_cli_time(least, text));
  if (!json) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "report");
  if (out_json)
    *out_json = json;
  else
    json_decref(json);
  return CUVIL_OK;
}

static enum cuvil_status print_profile(const struct cuvil_plan *plan,
                                       const double *seconds, FILE *to,
                                       json_t *rows) {
  char time[32], expected[32];
  double total = 0, total_expected = 0;
  for (int s = 0; s < plan->step_count; ++s)
    total += seconds[s];
  fprintf(to, "%10s %6s %10s  %-14s %-28s %s\n", "time", "share", "expected",
          "family", "step", "problem");
  for (int s = 0; s < plan->step_count; ++s) {
    const struct cuvil_plan_step *step = &plan->steps[s];
    total_expected += step->expected_seconds;
    fprintf(to, "%10s %5.1f%% %10s  %-14s %-28.28s %s\n",
            cuvil_cli_time(seconds[s], time),
            total > 0 ? 100 * seconds[s] / total : 0,
            cuvil_cli_time(step->expected_seconds, expected), step->family,
            step->label, step->problem);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f}", "label", step->label,
                  "problem", step->problem, "family", step->family, "config",
                  step->config, "origin", step->origin, "seconds", seconds[s],
                  "expected_seconds", step->expected_seconds);
    if (json_array_append_new(rows, row) != 0)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "report");
  }
  fprintf(to, "%10s        %10s  sum of %d steps\n",
          cuvil_cli_time(total, time), cuvil_cli_time(total_expected, expected),
          plan->step_count);
  return CUVIL_OK;
}

enum cuvil_status cuvil_run_profile(struct cuvil_session *session,
                                    const struct cuvil_plan *plan, FILE *to,
                                    json_t **out_json) {
  enum cuvil_status status = CUVIL_OK;
  double *seconds = calloc((size_t)plan->step_count + 1, sizeof(*seconds));
  json_t *rows = json_array();
  if (!seconds || !rows) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "profile");
    goto fail;
  }
  CUVIL_TRY_GOTO(cuvil_session_profile(session, PROFILE_REPEATS, seconds));
  CUVIL_TRY_GOTO(print_profile(plan, seconds, to, rows));
  free(seconds);
  if (out_json)
    *out_json = rows;
  else
    json_decref(rows);
  return CUVIL_OK;
fail:
  free(seconds);
  json_decref(rows);
  return status;
}
