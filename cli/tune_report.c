/* tune_report.c - the table that a tune ends with, and its JSON. */
#include "cli/tune_report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

enum { PROBLEM_WIDTH = 46 };

void cuvil_format_seconds(double seconds, char *out, size_t size) {
  if (!(seconds > 0) || !isfinite(seconds))
    snprintf(out, size, "-");
  else if (seconds < 999.95e-6)
    snprintf(out, size, "%.1f us", seconds * 1e6);
  else if (seconds < 999.5e-3)
    snprintf(out, size, "%.2f ms", seconds * 1e3);
  else
    snprintf(out, size, "%.2f s", seconds);
}

static void print_times(FILE *to, double a, double b, double c) {
  char text[3][24];
  cuvil_format_seconds(a, text[0], sizeof text[0]);
  cuvil_format_seconds(b, text[1], sizeof text[1]);
  cuvil_format_seconds(c, text[2], sizeof text[2]);
  fprintf(to, "%10s%10s%10s", text[0], text[1], text[2]);
}

static void print_problem(FILE *to, const char *text) {
  size_t n = strlen(text);
  if (n <= PROBLEM_WIDTH)
    fprintf(to, " %-*s", PROBLEM_WIDTH, text);
  else
    fprintf(to, " %.*s...", PROBLEM_WIDTH - 3, text);
}

static const char *state_name(enum cuvil_tune_state state) {
  switch (state) {
    case CUVIL_TUNE_TUNED:
      return "tuned";
    case CUVIL_TUNE_ALREADY:
      return "already";
    case CUVIL_TUNE_FAILED:
      return "failed";
    case CUVIL_TUNE_NOT_RECORDED:
      return "not recorded";
    case CUVIL_TUNE_LEFT:
      break;
  }
  return "not reached";
}

struct sums {
  double base, library, winner; /* seconds over the model */
  int counted;
  bool borrowed; /* some library time is the default's */
};

static struct sums add_up(const struct cuvil_tune_report *report) {
  struct sums sums = {0};
  for (int i = 0; i < report->count; i++) {
    const struct cuvil_tune_result *r = &report->results[i];
    if (!(r->winner_seconds > 0)) continue;
    double base =
        r->default_seconds > 0 ? r->default_seconds : r->winner_seconds;
    sums.counted++;
    sums.winner += r->calls * r->winner_seconds;
    sums.base += r->calls * base;
    sums.library +=
        r->calls * (r->library_seconds > 0 ? r->library_seconds : base);
    sums.borrowed |= !(r->library_seconds > 0);
  }
  return sums;
}

void cuvil_tune_print_table(FILE *to, const struct cuvil_tune_report *report) {
  fprintf(to, " %-*s%6s%10s%10s%10s  %-16s%8s\n", PROBLEM_WIDTH, "problem",
          "calls", "default", "library", "winner", "family", "of roof");
  for (int i = 0; i < report->count; i++) {
    const struct cuvil_tune_result *r = &report->results[i];
    print_problem(to, r->text);
    fprintf(to, "%6d", r->calls);
    print_times(to, r->default_seconds, r->library_seconds, r->winner_seconds);
    if (r->winner_seconds > 0)
      fprintf(to, "  %-16s%6.0f %%\n", r->family, r->roof * 100);
    else
      fprintf(to, "  %s\n", state_name(r->state));
  }
  struct sums sums = add_up(report);
  fprintf(to, " %-*s%6s", PROBLEM_WIDTH, "sum over the model", "");
  print_times(to, sums.base, sums.library, sums.winner);
  fprintf(to, "\n");
  if (sums.borrowed && sums.library != sums.base)
    fprintf(
        to,
        " (where no library computes a problem, its sum has the default)\n");
}

void cuvil_tune_print_summary(FILE *to, const struct cuvil_tune_report *report,
                              const char *db_path) {
  for (int i = 0; i < report->count; i++) {
    const struct cuvil_tune_result *r = &report->results[i];
    if (r->state == CUVIL_TUNE_FAILED)
      fprintf(to, "failed: %s\n        %s\n", r->text, r->reason);
  }
  fprintf(to, "%d winner%s recorded in %s", report->tuned,
          report->tuned == 1 ? "" : "s", db_path);
  if (report->already) fprintf(to, ", %d already tuned", report->already);
  if (report->not_recorded)
    fprintf(to, ", %d problems not in the recording", report->not_recorded);
  if (report->left) fprintf(to, ", %d problems not reached", report->left);
  fprintf(to, ", %d problems failed, %d candidates failed",
          report->failed_problems, report->failed_candidates);
  if (report->failed_candidates) fprintf(to, " (cuvil-db show --failures)");
  fprintf(to, "; %.1f s\n", report->seconds);
}

/* ---- JSON */
static json_t *number(double value) {
  return isfinite(value) && value != 0 ? json_real(value) : json_null();
}

static json_t *participant(const struct cuvil_tune_participant *p) {
  static const struct {
    unsigned flag;
    const char *name;
  } names[] = {{CUVIL_RACE_DEFAULT, "default"},
               {CUVIL_RACE_LIBRARY_FIRST, "library_first"},
               {CUVIL_RACE_TIE, "tie"},
               {CUVIL_RACE_WINNER, "winner"},
               {CUVIL_RACE_CONTROL, "control"}};
  json_t *flags = json_array();
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (p->flags & names[i].flag)
      json_array_append_new(flags, json_string(names[i].name));
  return json_pack("{s:s, s:s, s:o, s:b, s:i, s:o, s:o, s:o, s:o, s:o}",
                   "family", p->family, "config", p->config, "flags", flags,
                   "final", p->in_final, "rounds", p->rounds, "seconds",
                   number(p->median), "ratio", number(p->ratio), "ratio_low",
                   number(p->ratio_low), "ratio_high", number(p->ratio_high),
                   "predicted", number(p->predicted));
}

static json_t *problem(const struct cuvil_tune_result *r) {
  json_t *participants = json_array();
  for (int i = 0; i < r->participant_count; i++)
    json_array_append_new(participants, participant(&r->participants[i]));
  json_t *out = json_pack(
      "{s:s, s:i, s:s, s:s, s:{s:I, s:I, s:I, s:I},"
      " s:{s:i, s:i, s:i, s:i, s:i, s:i, s:i}, s:o, s:o, s:o, s:o, s:o}",
      "problem", r->text, "calls", r->calls, "state", state_name(r->state),
      "l2", r->l2, "space", "points", (json_int_t)r->points, "examined",
      (json_int_t)r->examined, "valid", (json_int_t)r->valid, "allowed",
      (json_int_t)r->allowed, "candidates", "chosen", r->chosen, "compiled",
      r->compiled, "timed", r->timed, "failed", r->failed, "known", r->known,
      "duplicates", r->duplicates, "untried", r->untried, "default_seconds",
      number(r->default_seconds), "library_seconds", number(r->library_seconds),
      "default_ratio_low", number(r->default_ratio_low), "library_ratio_low",
      number(r->library_ratio_low), "participants", participants);
  if (r->reason[0]) json_object_set_new(out, "reason", json_string(r->reason));
  if (r->own >= 0 && r->library >= 0 && r->participant_count)
    json_object_set_new(
        out, "sides",
        json_pack("{s:i, s:i, s:o, s:o, s:o}", "own", r->own, "library",
                  r->library, "ratio", number(r->own_ratio), "ratio_low",
                  number(r->own_ratio_low), "ratio_high",
                  number(r->own_ratio_high)));
  if (r->config)
    json_object_set_new(
        out, "winner",
        json_pack("{s:s, s:s, s:o, s:o, s:b, s:o}", "family", r->family,
                  "config", r->config, "seconds", number(r->winner_seconds),
                  "of_roof", number(r->roof), "converged", r->converged,
                  "control", number(r->control)));
  return out;
}

static json_t *environment(const struct cuvil_env *env) {
  return json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:s}", "gpu", env->gpu,
                   "arch", env->arch, "sms", env->sms, "driver", env->driver,
                   "cuda", env->cuda, "nvrtc", env->nvrtc, "cublaslt",
                   env->cublaslt, "cudnn", env->cudnn);
}

enum cuvil_status cuvil_tune_write_json(const char *path,
                                        const struct cuvil_tune_report *report,
                                        const struct cuvil_tune_about *about) {
  enum cuvil_status status = CUVIL_OK;
  struct sums sums = add_up(report);
  json_t *problems = json_array();
  for (int i = 0; i < report->count; i++)
    json_array_append_new(problems, problem(&report->results[i]));
  json_t *out = json_pack(
      "{s:s, s:s, s:s?, s:s?, s:s?, s:s, s:s, s:s?, s:I, s:o, s:f,"
      " s:{s:o, s:o, s:o}, s:o}",
      "schema", "cuvil-tune/1", "version", CUVIL_VERSION, "model", about->model,
      "precision", about->precision, "fusion", about->fusion, "l2", about->l2,
      "source", about->source, "recording", about->recording, "seed",
      (json_int_t)about->seed, "environment", environment(about->env),
      "seconds", report->seconds, "sum", "default_seconds", number(sums.base),
      "library_seconds", number(sums.library), "winner_seconds",
      number(sums.winner), "problems", problems);
  char *text =
      out ? json_dumps(out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  if (!text)
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "--json: no memory to write");
  else if (strcmp(path, "-") == 0)
    puts(text);
  else
    status = cuvil_file_write_atomic(path, text, strlen(text));
  free(text);
  json_decref(out);
  return status;
}
