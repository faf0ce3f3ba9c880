/* db_report.c - evidence and winners as tables for people and as JSON.
 *
 * Every report is made as JSON first ("schema" names what and which version;
 * docs/database.md lists the members), and the table is printed from that, so
 * the two cannot say different things.
 */
#include "cli/db_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/common.h"
#include "problem/problem.h"

/* ---- JSON */

static enum cuvil_status out_of_memory(void) {
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
}
/* NaN and "not there" are null. */
static json_t *seconds_or_null(double value) {
  return isfinite(value) && value > 0 ? json_real(value) : json_null();
}
static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}
static double number_of(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}
static long long integer_of(const json_t *object, const char *key) {
  return (long long)json_integer_value(json_object_get(object, key));
}

/* ---- text */

/* At most `width` bytes of the text, "..." at the end of a shortened one. */
static const char *shorten(const struct db_request *ask, const char *text,
                           size_t width, char out[128]) {
  size_t length = strlen(text);
  if (ask->wide || length <= width) return text;
  snprintf(out, 128, "%.*s...", (int)width - 3, text);
  return out;
}

enum cuvil_status db_report_canonical(const char *text,
                                      struct cuvil_buf *out_text,
                                      struct cuvil_buf *out_signature) {
  struct cuvil_problem problem;
  CUVIL_TRY(cuvil_problem_parse(text, &problem));
  cuvil_problem_print(&problem, out_text);
  cuvil_problem_signature(&problem, out_signature);
  CUVIL_TRY(cuvil_buf_status(out_text));
  return cuvil_buf_status(out_signature);
}

/* ---- list and lookup */

static json_t *winner_json(const struct cuvil_env *env,
                           const struct cuvil_db_winner *w) {
  return json_pack(
      "{s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:o,s:o,s:s,s:f,s:o,s:s,s:f,s:b,s:s,s:s,"
      "s:s}",
      "problem", w->problem, "gpu", w->gpu, "family", w->family,
      "family_version", w->family_version, "config", w->config, "source",
      w->source, "l2", w->l2, "seconds", seconds_or_null(w->seconds),
      "default_seconds", seconds_or_null(w->default_seconds), "default_family",
      w->default_family, "default_ratio_low", w->default_ratio_low,
      "library_seconds", seconds_or_null(w->library_seconds), "library_family",
      w->library_family, "library_ratio_low", w->library_ratio_low, "converged",
      w->converged, "driver", env ? env->driver : "", "nvrtc",
      env ? env->nvrtc : "", "race", w->hash);
}

static enum cuvil_status list_winner(void *user, const struct cuvil_env *env,
                                     const struct cuvil_db_winner *winner) {
  return json_array_append_new(user, winner_json(env, winner)) == 0
             ? CUVIL_OK
             : out_of_memory();
}

static void print_winners(const struct db_request *ask, const json_t *list) {
  printf(" %-60s  %-16s %10s %10s %10s  %-14s %s\n", "problem", "GPU",
         "default", "library", "winner", "family", "config");
  size_t index;
  json_t *w;
  json_array_foreach(list, index, w) {
    char a[32], b[32], c[32], problem[128], gpu[128], config[128];
    printf(
        " %-60s  %-16s %10s %10s %10s  %-14s %s%s%s\n",
        shorten(ask, text_of(w, "problem"), 60, problem),
        shorten(ask, text_of(w, "gpu"), 16, gpu),
        cuvil_cli_time(number_of(w, "default_seconds"), a),
        cuvil_cli_time(number_of(w, "library_seconds"), b),
        cuvil_cli_time(number_of(w, "seconds"), c), text_of(w, "family"),
        shorten(ask, text_of(w, "config"), 60, config),
        strcmp(text_of(w, "source"), "replayed") == 0 ? "  (replayed)" : "",
        json_is_true(json_object_get(w, "converged")) ? "" : "  (unresolved)");
  }
  printf("%zu winner%s\n", index, index == 1 ? "" : "s");
}

enum cuvil_status db_report_list(struct cuvil_db *db,
                                 const struct db_request *ask) {
  enum cuvil_status status = CUVIL_OK;
  json_t *list = json_array();
  json_t *report = json_pack("{s:s,s:s,s:O}", "schema", "cuvil-db-list/1",
                             "database", cuvil_db_path(db), "winners", list);
  if (!report) {
    status = out_of_memory();
    goto fail;
  }
  CUVIL_TRY_GOTO(cuvil_db_each_winner(db, &ask->filter, list_winner, list));
  if (ask->json) {
    CUVIL_TRY_GOTO(cuvil_cli_write_json(report, ask->json));
  } else {
    print_winners(ask, list);
  }
fail:
  json_decref(list);
  json_decref(report);
  return status;
}

static void print_lookup(const struct cuvil_db_winner *w, const char *asked) {
  char time[32];
  printf("problem    %s\n", asked);
  printf("step       %s\n", cuvil_db_step_name(w->step));
  if (w->step == CUVIL_DB_MISS) return;
  if (strcmp(w->problem, asked) != 0) printf("tuned      %s\n", w->problem);
  printf("GPU        %s\n", w->gpu);
  printf("family     %s (version %d)\n", w->family, w->family_version);
  printf("config     %s\n", w->config);
  printf("time       %s, %s L2, %s%s\n", cuvil_cli_time(w->seconds, time),
         w->l2, w->source, w->converged ? "" : ", unresolved");
  if (w->default_seconds > 0)
    printf("default    %s, at least %.3f of the winner's (%s)\n",
           cuvil_cli_time(w->default_seconds, time), w->default_ratio_low,
           w->default_family);
  if (w->library_seconds > 0)
    printf("library    %s, at least %.3f of the winner's (%s)\n",
           cuvil_cli_time(w->library_seconds, time), w->library_ratio_low,
           w->library_family);
  printf("race       %s\n", w->hash);
}

enum cuvil_status db_report_lookup(struct cuvil_db *db,
                                   const struct db_request *ask) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf text = {0}, signature = {0};
  struct cuvil_db_winner winner;
  json_t *report = NULL;
  CUVIL_TRY_GOTO(db_report_canonical(ask->operands[0], &text, &signature));
  CUVIL_TRY_GOTO(cuvil_db_lookup(db, &ask->env, cuvil_buf_text(&text),
                                 cuvil_buf_text(&signature), NULL, NULL,
                                 &winner));
  if (ask->json) {
    report =
        json_pack("{s:s,s:s,s:s,s:o}", "schema", "cuvil-db-lookup/1", "problem",
                  cuvil_buf_text(&text), "step",
                  cuvil_db_step_name(winner.step), "winner",
                  winner.step == CUVIL_DB_MISS ? json_null()
                                               : winner_json(NULL, &winner));
    CUVIL_TRY_GOTO(report ? cuvil_cli_write_json(report, ask->json)
                          : out_of_memory());
  } else {
    print_lookup(&winner, cuvil_buf_text(&text));
  }
  if (winner.step == CUVIL_DB_MISS)
    status = CUVIL_FAIL(CU_ERR_NOT_TUNED,
                        "%s: no winner for %s; tune it: cuvil-tune --problem",
                        cuvil_db_path(db), cuvil_buf_text(&text));
fail:
  json_decref(report);
  cuvil_buf_free(&text);
  cuvil_buf_free(&signature);
  return status;
}

/* ---- show: the evidence itself */

static enum cuvil_status show_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *m) {
  json_t *item = json_pack(
      "{s:s,s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:s,s:s,s:i,s:f,s:f,s:f,s:i,s:i,s:i,"
      "s:i,s:o}",
      "hash", stamp->hash, "recorded", stamp->recorded, "problem",
      m->candidate.problem, "family", m->candidate.family, "family_version",
      m->candidate.family_version, "config", m->candidate.config, "gpu",
      context->env->gpu, "driver", context->env->driver, "source",
      context->source, "l2", context->l2, "method", context->method, "seconds",
      m->median, "low", m->low, "high", m->high, "blocks", m->block_count,
      "registers", m->registers, "spill_bytes", m->spill_bytes, "shared_bytes",
      m->shared_bytes, "compile_seconds", seconds_or_null(m->compile_seconds));
  return json_array_append_new(user, item) == 0 ? CUVIL_OK : out_of_memory();
}

static enum cuvil_status show_failure(void *user,
                                      const struct cuvil_db_stamp *stamp,
                                      const struct cuvil_db_context *context,
                                      const struct cuvil_db_failure *f) {
  json_t *detail = json_string(f->detail);
  json_t *item = json_pack(
      "{s:s,s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:s,s:o}", "hash", stamp->hash,
      "recorded", stamp->recorded, "problem", f->candidate.problem, "family",
      f->candidate.family, "family_version", f->candidate.family_version,
      "config", f->candidate.config, "gpu", context->env->gpu, "source",
      context->source, "reason", f->reason, "detail",
      detail ? detail : json_string("(not readable)"));
  return json_array_append_new(user, item) == 0 ? CUVIL_OK : out_of_memory();
}

static json_t *participants_json(const struct cuvil_db_race *race) {
  json_t *list = json_array();
  for (int i = 0; i < race->participant_count; i++) {
    const struct cuvil_db_participant *p = &race->participants[i];
    json_t *item = json_pack(
        "{s:s,s:s,s:o,s:o,s:o,s:o,s:b,s:b,s:b,s:b,s:b}", "family", p->family,
        "config", p->config, "seconds", seconds_or_null(p->median), "ratio",
        seconds_or_null(p->ratio), "ratio_low", seconds_or_null(p->ratio_low),
        "ratio_high", seconds_or_null(p->ratio_high), "winner",
        (p->flags & CUVIL_RACE_WINNER) != 0, "tie",
        (p->flags & CUVIL_RACE_TIE) != 0, "default",
        (p->flags & CUVIL_RACE_DEFAULT) != 0, "library_first",
        (p->flags & CUVIL_RACE_LIBRARY_FIRST) != 0, "control",
        (p->flags & CUVIL_RACE_CONTROL) != 0);
    if (json_array_append_new(list, item) != 0) {
      json_decref(list);
      return NULL;
    }
  }
  return list;
}

static enum cuvil_status show_race(void *user,
                                   const struct cuvil_db_stamp *stamp,
                                   const struct cuvil_db_context *context,
                                   const struct cuvil_db_race *race) {
  json_t *item = json_pack(
      "{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:b,s:o}", "hash", stamp->hash,
      "recorded", stamp->recorded, "problem", race->problem, "gpu",
      context->env->gpu, "driver", context->env->driver, "source",
      context->source, "l2", context->l2, "regime", context->regime, "method",
      context->method, "rounds", race->rounds, "converged", race->converged,
      "participants", participants_json(race));
  return json_array_append_new(user, item) == 0 ? CUVIL_OK : out_of_memory();
}

static void print_failures(const struct db_request *ask, const json_t *list) {
  size_t index;
  json_t *f;
  json_array_foreach(list, index, f) {
    char problem[128], config[128], detail[128];
    printf("failed   %-15s %-14s %s\n         %s\n         %s\n",
           text_of(f, "reason"), text_of(f, "family"),
           shorten(ask, text_of(f, "config"), 90, config),
           shorten(ask, text_of(f, "problem"), 100, problem),
           shorten(ask, text_of(f, "detail"), 100, detail));
  }
  printf("%zu failed candidate%s\n", index, index == 1 ? "" : "s");
}

static void print_race(const struct db_request *ask, const json_t *race) {
  char problem[128], time[32], config[128];
  size_t index;
  json_t *p;
  printf("race     %s  %s, %s, %s L2, %lld rounds%s\n         %s\n",
         text_of(race, "recorded"), text_of(race, "gpu"),
         text_of(race, "source"), text_of(race, "l2"),
         integer_of(race, "rounds"),
         json_is_true(json_object_get(race, "converged")) ? "" : ", unresolved",
         shorten(ask, text_of(race, "problem"), 100, problem));
  json_array_foreach(json_object_get(race, "participants"), index, p) {
    const char *role = "";
    if (json_is_true(json_object_get(p, "tie"))) role = "tie";
    if (json_is_true(json_object_get(p, "default"))) role = "default";
    if (json_is_true(json_object_get(p, "library_first"))) role = "library";
    if (json_is_true(json_object_get(p, "control"))) role = "control";
    if (json_is_true(json_object_get(p, "winner"))) role = "winner";
    printf("         %-8s %10s  %6.3f [%.3f %.3f]  %-14s %s\n", role,
           cuvil_cli_time(number_of(p, "seconds"), time), number_of(p, "ratio"),
           number_of(p, "ratio_low"), number_of(p, "ratio_high"),
           text_of(p, "family"),
           shorten(ask, text_of(p, "config"), 60, config));
  }
}

/* By problem, then fastest first. */
static int compare_measured(const void *a, const void *b) {
  const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
  int order = strcmp(text_of(x, "problem"), text_of(y, "problem"));
  double s = number_of(x, "seconds"), t = number_of(y, "seconds");
  return order ? order : (s > t) - (s < t);
}

static enum cuvil_status sort_measured(json_t *list) {
  size_t count = json_array_size(list);
  json_t **items = malloc((count + 1) * sizeof(json_t *));
  if (!items) return out_of_memory();
  for (size_t i = 0; i < count; i++)
    items[i] = json_incref(json_array_get(list, i));
  qsort(items, count, sizeof(json_t *), compare_measured);
  for (size_t i = 0; i < count; i++)
    json_array_set_new(list, i, items[i]);
  free(items);
  return CUVIL_OK;
}

static void print_evidence(const struct db_request *ask, const json_t *report) {
  size_t index;
  json_t *item;
  const char *last = "";
  json_array_foreach(json_object_get(report, "measurements"), index, item) {
    char time[32], config[128], problem[128];
    if (strcmp(text_of(item, "problem"), last) != 0)
      printf("problem  %s\n",
             shorten(ask, text_of(item, "problem"), 110, problem));
    last = text_of(item, "problem");
    printf(
        "measured %10s  %-14s %lld registers, %lld spilled, %lld shared, "
        "%s, %s L2  %s\n",
        cuvil_cli_time(number_of(item, "seconds"), time),
        text_of(item, "family"), integer_of(item, "registers"),
        integer_of(item, "spill_bytes"), integer_of(item, "shared_bytes"),
        text_of(item, "source"), text_of(item, "l2"),
        shorten(ask, text_of(item, "config"), 60, config));
  }
  json_array_foreach(json_object_get(report, "races"), index, item)
      print_race(ask, item);
  print_failures(ask, json_object_get(report, "failures"));
}

enum cuvil_status db_report_show(struct cuvil_db *db,
                                 const struct db_request *ask) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf text = {0}, signature = {0};
  struct cuvil_db_filter filter = ask->filter;
  json_t *measurements = json_array(), *failures = json_array();
  json_t *races = json_array();
  json_t *report =
      json_pack("{s:s,s:s,s:O,s:O,s:O}", "schema", "cuvil-db-show/1",
                "database", cuvil_db_path(db), "measurements", measurements,
                "races", races, "failures", failures);
  if (!report) {
    status = out_of_memory();
    goto fail;
  }
  if (ask->operand_count > 0) {
    CUVIL_TRY_GOTO(db_report_canonical(ask->operands[0], &text, &signature));
    filter.problem = cuvil_buf_text(&text);
  }
  if (!ask->failures) {
    CUVIL_TRY_GOTO(
        cuvil_db_each_measurement(db, &filter, show_measurement, measurements));
    CUVIL_TRY_GOTO(cuvil_db_each_race(db, &filter, show_race, races));
  }
  CUVIL_TRY_GOTO(cuvil_db_each_failure(db, &filter, show_failure, failures));
  CUVIL_TRY_GOTO(sort_measured(measurements));
  if (ask->json) {
    CUVIL_TRY_GOTO(cuvil_cli_write_json(report, ask->json));
  } else if (ask->failures) {
    print_failures(ask, failures);
  } else {
    print_evidence(ask, report);
  }
fail:
  json_decref(measurements);
  json_decref(failures);
  json_decref(races);
  json_decref(report);
  cuvil_buf_free(&text);
  cuvil_buf_free(&signature);
  return status;
}

/* ---- stats and verify */

enum cuvil_status db_report_stats(struct cuvil_db *db,
                                  const struct db_request *ask) {
  struct cuvil_db_stats s;
  CUVIL_TRY(cuvil_db_stats(db, &s));
  if (ask->json) {
    json_t *report = json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:s}",
        "schema", "cuvil-db-stats/1", "database", cuvil_db_path(db),
        "measurements", (json_int_t)s.evidence.measurements, "failures",
        (json_int_t)s.evidence.failures, "races", (json_int_t)s.evidence.races,
        "replayed", (json_int_t)s.replayed, "problems", (json_int_t)s.problems,
        "candidates", (json_int_t)s.candidates, "gpus", (json_int_t)s.gpus,
        "environments", (json_int_t)s.environments, "winners",
        (json_int_t)s.winners, "file_bytes", (json_int_t)s.file_bytes,
        "block_bytes", (json_int_t)s.block_bytes, "schema_version", s.schema,
        "journal", s.journal);
    if (!report) return out_of_memory();
    enum cuvil_status status = cuvil_cli_write_json(report, ask->json);
    json_decref(report);
    return status;
  }
  printf("database      %s (schema %d, journal %s, %.1f MiB)\n",
         cuvil_db_path(db), s.schema, s.journal,
         (double)s.file_bytes / 1048576);
  printf(
      "evidence      %lld measurements, %lld failures, %lld races; %lld of "
      "them replayed\n",
      (long long)s.evidence.measurements, (long long)s.evidence.failures,
      (long long)s.evidence.races, (long long)s.replayed);
  printf("raw blocks    %.1f MiB\n", (double)s.block_bytes / 1048576);
  printf("about         %lld problems, %lld candidates\n",
         (long long)s.problems, (long long)s.candidates);
  printf("seen on       %lld GPUs, %lld sets of versions\n", (long long)s.gpus,
         (long long)s.environments);
  printf("winners       %lld\n", (long long)s.winners);
  return CUVIL_OK;
}

static void add_finding(void *user, const char *finding) {
  json_array_append_new(user, json_string(finding));
}

enum cuvil_status db_report_verify(struct cuvil_db *db,
                                   const struct db_request *ask) {
  enum cuvil_status status = CUVIL_OK;
  int count = 0;
  json_t *findings = json_array();
  json_t *report =
      json_pack("{s:s,s:s,s:O}", "schema", "cuvil-db-verify/1", "database",
                cuvil_db_path(db), "findings", findings);
  if (!report) {
    status = out_of_memory();
    goto fail;
  }
  CUVIL_TRY_GOTO(cuvil_db_verify(db, add_finding, findings, &count));
  if (ask->json) {
    CUVIL_TRY_GOTO(cuvil_cli_write_json(report, ask->json));
  } else {
    size_t index;
    json_t *line;
    json_array_foreach(findings, index, line)
        printf("%s\n", json_string_value(line));
    if (count == 0) printf("%s: all is well\n", cuvil_db_path(db));
  }
  if (count > 0)
    status = CUVIL_FAIL(CU_ERR_DB,
                        "%s: %d finding%s; merge what is sound into a new "
                        "file, or name another with --db",
                        cuvil_db_path(db), count, count == 1 ? "" : "s");
fail:
  json_decref(findings);
  json_decref(report);
  return status;
}
