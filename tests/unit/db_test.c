/* The database's evidence, winners and lookups. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "db/internal.h"
#include "tests/support/db_sample.h"

static struct cuvil_db *open_new(int slot) {
  struct cuvil_db *db;
  assert_int_equal(cuvil_db_open(sample_path(slot), CUVIL_DB_WRITE, &db),
                   CUVIL_OK);
  return db;
}
static int count_findings(struct cuvil_db *db) {
  int findings = -1;
  assert_int_equal(cuvil_db_verify(db, NULL, NULL, &findings), CUVIL_OK);
  return findings;
}
static struct cuvil_db_winner lookup(struct cuvil_db *db,
                                     const struct cuvil_env *env,
                                     const struct sample_problem *p) {
  struct cuvil_db_winner winner;
  assert_int_equal(
      cuvil_db_lookup(db, env, p->text, p->signature, NULL, NULL, &winner),
      CUVIL_OK);
  return winner;
}

/* ---- evidence */

static enum cuvil_status see_measurement(void *user,
                                         const struct cuvil_db_stamp *stamp,
                                         const struct cuvil_db_context *context,
                                         const struct cuvil_db_measurement *m) {
  int *seen = user;
  (*seen)++;
  assert_int_equal(strlen(stamp->hash), 32);
  assert_int_equal(strlen(stamp->recorded), 24);
  assert_memory_equal(context->env, &sample_env, sizeof sample_env);
  assert_string_equal(context->source, "measured");
  assert_string_equal(context->l2, "cold");
  assert_string_equal(context->regime, "burst");
  assert_int_equal(context->method, 1);
  assert_string_equal(m->candidate.family, "gemm_mma");
  assert_string_equal(m->candidate.config, "tile=64");
  assert_int_equal(m->registers, 96);
  assert_int_equal(m->shared_bytes, 49152);
  assert_true(m->compile_seconds == 0.75 && m->worst_ratio == 0.125);
  assert_int_equal(m->block_count, 3);
  assert_true(m->blocks[0] == 1e-5 && m->blocks[1] == 1e-5 * 1.01);
  assert_true(m->rounds[0] == 0 && m->rounds[2] == 5);
  assert_true(m->median == 1e-5);
  return CUVIL_OK;
}
static enum cuvil_status see_failure(void *user,
                                     const struct cuvil_db_stamp *stamp,
                                     const struct cuvil_db_context *context,
                                     const struct cuvil_db_failure *failure) {
  (void)stamp, (void)context;
  int *seen = user;
  (*seen)++;
  assert_string_equal(failure->reason, "compile");
  assert_string_equal(failure->detail, "what a person reads");
  assert_string_equal(failure->candidate.config, "tile=128");
  return CUVIL_OK;
}
static enum cuvil_status see_race(void *user,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_race *race) {
  (void)stamp, (void)context;
  int *seen = user;
  (*seen)++;
  assert_int_equal(race->rounds, 8);
  assert_int_equal(race->participant_count, 3);
  assert_true(race->converged);
  assert_string_equal(race->participants[0].library, "");
  assert_string_equal(race->participants[2].library, "cublaslt");
  assert_true(isnan(race->participants[1].seconds[1]));
  assert_true(race->participants[1].seconds[7] == 2e-5);
  assert_true(race->participants[1].ratio_low == 1.9);
  assert_int_equal(race->participants[2].flags, CUVIL_RACE_LIBRARY_FIRST);
  return CUVIL_OK;
}

static void evidence_round_trips_and_adds_once(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem p = sample_gemm(128);
  for (int twice = 0; twice < 2; twice++) {
    sample_measure(db, &context, &p, "gemm_mma", "tile=64", 1e-5);
    sample_fail(db, &context, &p, "tile=128", "compile");
    sample_race(db, &context, &p, "gemm_mma", "tile=64", 1e-5, 8, true, true);
  }
  int seen = 0;
  assert_int_equal(cuvil_db_each_measurement(db, NULL, see_measurement, &seen),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_each_failure(db, NULL, see_failure, &seen),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_each_race(db, NULL, see_race, &seen), CUVIL_OK);
  assert_int_equal(seen, 3);
  struct cuvil_db_filter filter = {.family = "gemm_cublaslt"};
  seen = 0; /* only the race has it */
  assert_int_equal(
      cuvil_db_each_measurement(db, &filter, see_measurement, &seen), CUVIL_OK);
  assert_int_equal(cuvil_db_each_race(db, &filter, see_race, &seen), CUVIL_OK);
  assert_int_equal(seen, 1);
  filter = (struct cuvil_db_filter){.kind = "gem"};
  assert_int_equal(cuvil_db_each_race(db, &filter, see_race, &seen), CUVIL_OK);
  assert_int_equal(seen, 1);
  filter = (struct cuvil_db_filter){.kind = "gemm"};
  assert_int_equal(cuvil_db_each_race(db, &filter, see_race, &seen), CUVIL_OK);
  assert_int_equal(seen, 2);
  assert_int_equal(count_findings(db), 0);
  struct cuvil_db_stats stats;
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  assert_int_equal(stats.evidence.measurements, 1);
  assert_int_equal(stats.evidence.races, 1);
  assert_int_equal(stats.replayed, 0);
  assert_int_equal(stats.candidates, 4);
  assert_int_equal(stats.block_bytes, 3 * 12 + 3 * 8 * 8);
  assert_string_equal(stats.journal, "wal");
  cuvil_db_close(db);
}

static void impossible_evidence_is_refused(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  const double bad[3] = {1e-5, 0, 1e-5};
  const int rounds[3] = {0, 1, 2};
  struct cuvil_db_measurement m = {
      .candidate = {"gemm/1 m=1", "gemm/1 m=*1", "gemm_mma", 1, "tile=64"},
      .cubin_hash = "",
      .blocks = bad,
      .rounds = rounds,
      .block_count = 3,
      .median = 1e-5,
      .low = 1e-5,
      .high = 1e-5};
  assert_int_equal(cuvil_db_add_measurement(db, &context, &m),
                   CU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(cuvil_last_error(), "block 1"));
  m.block_count = 1;
  m.median = 2e-5; /* above its own interval */
  assert_int_equal(cuvil_db_add_measurement(db, &context, &m),
                   CU_ERR_INVALID_ARGUMENT);
  m.median = 1e-5;
  context.source = "guessed";
  assert_int_equal(cuvil_db_add_measurement(db, &context, &m),
                   CU_ERR_INVALID_ARGUMENT);
  struct cuvil_db_participant nobody = {.family = "gemm_mma",
                                        .family_version = 1,
                                        .config = "tile=64",
                                        .seconds = bad,
                                        .median = 1e-5};
  struct cuvil_db_race race = {"gemm/1 m=1", "gemm/1 m=*1", 1, 1,
                               &nobody,      true};
  context.source = "measured";
  assert_int_equal(cuvil_db_add_race(db, &context, &race),
                   CU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(cuvil_last_error(), "one winner"));
  struct cuvil_db_stats stats;
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  assert_int_equal(stats.evidence.measurements + stats.evidence.races, 0);
  assert_int_equal(stats.candidates, 0); /* rolled back whole */
  cuvil_db_close(db);
}

struct known {
  int measured, failed;
};
static void see_known(void *user, const char *family, int family_version,
                      const char *config, const char *reason, double median) {
  struct known *known = user;
  assert_string_equal(family, "gemm_mma");
  assert_int_equal(family_version, 1);
  if (reason) {
    known->failed++;
    assert_string_equal(reason, "timeout");
    assert_string_equal(config, "tile=128");
  } else {
    known->measured++;
    assert_true(median == 1e-5);
    assert_string_equal(config, "tile=64");
  }
}

static void known_is_of_this_context_only(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_env other = sample_env;
  strcpy(other.nvrtc, "12.9");
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_db_context replayed = sample_context(&sample_env, "replayed");
  struct cuvil_db_context elsewhere = sample_context(&other, "measured");
  struct sample_problem p = sample_gemm(128), q = sample_gemm(256);
  sample_measure(db, &context, &p, "gemm_mma", "tile=64", 1e-5);
  sample_fail(db, &context, &p, "tile=128", "timeout");
  sample_measure(db, &replayed, &p, "gemm_mma", "tile=1", 2e-5);
  sample_measure(db, &elsewhere, &p, "gemm_mma", "tile=2", 2e-5);
  sample_measure(db, &context, &q, "gemm_mma", "tile=4", 2e-5);
  struct known known = {0};
  assert_int_equal(cuvil_db_each_known(db, &context, p.text, see_known, &known),
                   CUVIL_OK);
  assert_int_equal(known.measured, 1);
  assert_int_equal(known.failed, 1);
  context.l2 = "warm";
  assert_int_equal(cuvil_db_each_known(db, &context, p.text, see_known, &known),
                   CUVIL_OK);
  assert_int_equal(known.measured, 1);
  cuvil_db_close(db);
}

/* ---- winners and lookups */

static void winner_is_the_best_resolved_race(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem p = sample_gemm(128);
  sample_race(db, &context, &p, "gemm_mma", "tile=1", 3e-5, 8, true, true);
  struct cuvil_db_winner w = lookup(db, &sample_env, &p);
  assert_int_equal(w.step, CUVIL_DB_EXACT);
  assert_string_equal(w.config, "tile=1");
  assert_string_equal(w.source, "measured");
  assert_string_equal(w.default_family, "gemm_simt");
  assert_string_equal(w.library_family, "gemm_cublaslt");
  assert_true(w.seconds == 3e-5 && w.default_seconds == 6e-5);
  assert_true(w.default_ratio_low == 1.9 && w.library_ratio_low == 1.4);
  /* A faster but unresolved race says less; one of more rounds says more. */
  sample_race(db, &context, &p, "gemm_mma", "tile=2", 1e-5, 64, true, false);
  assert_string_equal(lookup(db, &sample_env, &p).config, "tile=1");
  sample_race(db, &context, &p, "gemm_mma", "tile=3", 4e-5, 16, false, true);
  w = lookup(db, &sample_env, &p);
  assert_string_equal(w.config, "tile=3");
  assert_true(w.library_seconds == 0 && w.library_ratio_low == 0);
  assert_string_equal(w.library_family, "");
  /* A newer method beats all of them. */
  context.method = 2;
  sample_race(db, &context, &p, "gemm_mma", "tile=4", 5e-5, 8, true, false);
  assert_string_equal(lookup(db, &sample_env, &p).config, "tile=4");
  cuvil_db_close(db);
}

static void measured_stands_before_replayed(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context replayed = sample_context(&sample_env, "replayed");
  struct cuvil_db_context measured = sample_context(&sample_env, "measured");
  struct sample_problem p = sample_gemm(128);
  sample_race(db, &replayed, &p, "gemm_mma", "tile=1", 1e-5, 64, true, true);
  assert_string_equal(lookup(db, &sample_env, &p).source, "replayed");
  sample_race(db, &measured, &p, "gemm_mma", "tile=2", 2e-5, 8, true, false);
  assert_string_equal(lookup(db, &sample_env, &p).source, "measured");
  /* The preferred L2 policy comes next, and never keeps others out. */
  measured.l2 = "warm";
  sample_race(db, &measured, &p, "gemm_mma", "tile=3", 1e-5, 8, true, false);
  cuvil_db_prefer_l2(db, "warm");
  assert_string_equal(lookup(db, &sample_env, &p).l2, "warm");
  cuvil_db_prefer_l2(db, "cold");
  struct cuvil_db_winner w = lookup(db, &sample_env, &p);
  assert_string_equal(w.l2, "cold");
  assert_string_equal(w.source, "measured");
  cuvil_db_close(db);
}

static void ladder_names_its_steps(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem p = sample_gemm(128), q = sample_gemm(1024),
                        near = sample_gemm(256), own = sample_gemm(64);
  sample_race(db, &context, &p, "gemm_mma", "tile=128", 1e-5, 8, true, true);
  sample_race(db, &context, &q, "gemm_mma", "tile=1024", 1e-5, 8, true, true);
  sample_race(db, &context, &own, "gemm_mma", "tile=64", 1e-5, 8, false, true);

  struct cuvil_env env = sample_env;
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_EXACT);
  strcpy(env.cudnn, "9.15.0"); /* nobody in the race uses it */
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_EXACT);
  strcpy(env.cublaslt, "13.2.0"); /* p's race has a cuBLASLt choice in it */
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_OTHER_DRIVER);
  assert_int_equal(lookup(db, &env, &own).step, CUVIL_DB_EXACT);
  strcpy(env.cublaslt, ""); /* absent is not the recorded version */
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_OTHER_DRIVER);
  env = sample_env;
  strcpy(env.driver, "575.1");
  assert_int_equal(lookup(db, &env, &own).step, CUVIL_DB_OTHER_DRIVER);
  env = sample_env;
  strcpy(env.nvrtc, "12.9");
  assert_int_equal(lookup(db, &env, &own).step, CUVIL_DB_OTHER_DRIVER);
  env = sample_env;
  strcpy(env.gpu, "NVIDIA H100 PCIe");
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_OTHER_GPU);
  env = sample_env;
  env.sms = 114;
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_OTHER_GPU);

  struct cuvil_db_winner w = lookup(db, &sample_env, &near);
  assert_int_equal(w.step, CUVIL_DB_NEIGHBOUR);
  assert_string_equal(w.problem, p.text); /* one doubling away, not two */
  struct sample_problem strange = near;
  strcpy(strange.signature, "gemm/1 m=*16");
  assert_int_equal(lookup(db, &sample_env, &strange).step, CUVIL_DB_MISS);
  strcpy(env.arch, "sm_80");
  assert_int_equal(lookup(db, &env, &p).step, CUVIL_DB_MISS);

  /* Without a GPU only what is known must match. */
  struct cuvil_env nothing = {.arch = "sm_90"};
  assert_int_equal(lookup(db, &nothing, &p).step, CUVIL_DB_EXACT);
  strcpy(nothing.nvrtc, "12.9");
  assert_int_equal(lookup(db, &nothing, &p).step, CUVIL_DB_OTHER_DRIVER);
  strcpy(nothing.arch, "sm_80");
  assert_int_equal(lookup(db, &nothing, &p).step, CUVIL_DB_MISS);

  assert_string_equal(cuvil_db_step_name(CUVIL_DB_EXACT), "exact");
  assert_string_equal(cuvil_db_step_name(CUVIL_DB_MISS), "miss");
  cuvil_db_close(db);
}

static bool refuse(void *user, const struct cuvil_db_winner *winner) {
  return strcmp(winner->config, (const char *)user) != 0;
}
static struct cuvil_db_winner lookup_without(struct cuvil_db *db,
                                             const struct sample_problem *p,
                                             char *config) {
  struct cuvil_db_winner w;
  assert_int_equal(cuvil_db_lookup(db, &sample_env, p->text, p->signature,
                                   refuse, config, &w),
                   CUVIL_OK);
  return w;
}

static void refused_row_is_a_miss_of_its_step(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_env other = sample_env;
  strcpy(other.driver, "570.1");
  struct cuvil_db_context older = sample_context(&other, "measured");
  struct sample_problem p = sample_gemm(128);
  struct cuvil_db_winner w;
  char unwanted[] = "tile=1";
  sample_race(db, &context, &p, "gemm_mma", "tile=1", 1e-5, 16, true, true);
  w = lookup_without(db, &p, unwanted);
  assert_int_equal(w.step, CUVIL_DB_MISS);
  assert_string_equal(w.family, "");
  sample_race(db, &older, &p, "gemm_mma", "tile=2", 1e-5, 16, true, true);
  w = lookup_without(db, &p, unwanted);
  assert_int_equal(w.step, CUVIL_DB_OTHER_DRIVER);
  /* A lesser race in the same environment is asked before another one. */
  sample_race(db, &context, &p, "gemm_mma", "tile=3", 1e-5, 8, true, true);
  w = lookup_without(db, &p, unwanted);
  assert_int_equal(w.step, CUVIL_DB_EXACT);
  assert_string_equal(w.config, "tile=3");
  cuvil_db_close(db);
}

/* ---- merge, rebuild, prune, export */

static void fill(struct cuvil_db *db, int from, int to) {
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_db_context replayed = sample_context(&sample_env, "replayed");
  for (int i = from; i < to; i++) {
    struct sample_problem p = sample_gemm(16 * (1 + i / 2));
    char config[32];
    snprintf(config, sizeof config, "tile=%d", i);
    sample_measure(db, &context, &p, "gemm_mma", config, 1e-5 * (1 + i));
    sample_fail(db, &context, &p, config, "nan");
    sample_race(db, &context, &p, "gemm_mma", config, 1e-5 * (1 + i), 8 + i % 3,
                true, i % 2);
    sample_race(db, &replayed, &p, "gemm_mma", config, 1e-5, 8, true, true);
  }
}

static void merge_is_a_union(void **state) {
  (void)state;
  struct cuvil_db *a = open_new(0), *b = open_new(1);
  struct cuvil_db *ab = open_new(2), *ba = open_new(3);
  fill(a, 0, 6);
  usleep(5000); /* the overlap is recorded at another time in b */
  fill(b, 3, 9);
  struct cuvil_db_counts counts;
  assert_int_equal(cuvil_db_merge(ab, cuvil_db_path(a), &counts), CUVIL_OK);
  assert_int_equal(counts.measurements, 6);
  assert_int_equal(counts.failures, 6);
  assert_int_equal(counts.races, 12);
  assert_int_equal(cuvil_db_merge(ab, cuvil_db_path(b), &counts), CUVIL_OK);
  assert_int_equal(counts.measurements, 3);
  assert_int_equal(cuvil_db_merge(ba, cuvil_db_path(b), &counts), CUVIL_OK);
  assert_int_equal(cuvil_db_merge(ba, cuvil_db_path(a), &counts), CUVIL_OK);
  assert_int_equal(counts.measurements, 3);
  char *one = sample_fingerprint(ab), *two = sample_fingerprint(ba);
  assert_string_equal(one, two); /* commutative */
  assert_int_equal(cuvil_db_merge(ab, cuvil_db_path(ba), &counts), CUVIL_OK);
  assert_int_equal(counts.measurements + counts.failures + counts.races, 0);
  char *again = sample_fingerprint(ab);
  assert_string_equal(one, again); /* idempotent */
  assert_non_null(strstr(one, "winner gemm/1 m=16 "));
  assert_int_equal(count_findings(ab), 0);
  assert_int_equal(cuvil_db_merge(ab, cuvil_db_path(ab), &counts),
                   CU_ERR_INVALID_ARGUMENT);
  free(one), free(two), free(again);
  cuvil_db_close(a), cuvil_db_close(b);
  cuvil_db_close(ab), cuvil_db_close(ba);
}

static void merge_refuses_a_forged_row(void **state) {
  (void)state;
  struct cuvil_db *a = open_new(0), *b = open_new(1);
  fill(a, 0, 2);
  fill(b, 2, 4);
  char *before = sample_fingerprint(b);
  assert_int_equal(
      cuvil_db_run(a, "UPDATE measurement SET registers = 1 WHERE id = 2", ""),
      CUVIL_OK);
  assert_int_equal(count_findings(a), 1);
  struct cuvil_db_counts counts;
  assert_int_equal(cuvil_db_merge(b, cuvil_db_path(a), &counts), CU_ERR_DB);
  char *after = sample_fingerprint(b);
  assert_string_equal(before, after); /* all or nothing */
  free(before), free(after);
  cuvil_db_close(a), cuvil_db_close(b);
}

static void rebuilding_changes_nothing(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  fill(db, 0, 8);
  char *before = sample_fingerprint(db);
  assert_int_equal(cuvil_db_run(db, "DELETE FROM winner WHERE place = 1", ""),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_run(db, "UPDATE winner SET seconds = 1", ""),
                   CUVIL_OK);
  assert_true(count_findings(db) > 0);
  assert_int_equal(cuvil_db_rebuild(db), CUVIL_OK);
  assert_int_equal(count_findings(db), 0);
  char *after = sample_fingerprint(db);
  assert_string_equal(before, after);
  free(before), free(after);
  cuvil_db_close(db);
}

static void prune_takes_what_was_named(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  fill(db, 0, 4);
  struct cuvil_db_filter filter = {.source = "replayed"};
  struct cuvil_db_counts counts;
  struct cuvil_db_stats stats;
  assert_int_equal(cuvil_db_prune(db, &filter, false, &counts), CUVIL_OK);
  assert_int_equal(counts.races, 4);
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  assert_int_equal(stats.evidence.races, 8);
  assert_int_equal(cuvil_db_prune(db, &filter, true, &counts), CUVIL_OK);
  assert_int_equal(counts.races, 4);
  assert_int_equal(counts.measurements, 0);
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  assert_int_equal(stats.evidence.races, 4);
  assert_int_equal(stats.replayed, 0);
  assert_int_equal(stats.problems, 2);
  assert_int_equal(count_findings(db), 0);
  struct sample_problem p = sample_gemm(16);
  filter = (struct cuvil_db_filter){.problem = p.text};
  assert_int_equal(cuvil_db_prune(db, &filter, true, &counts), CUVIL_OK);
  assert_int_equal(counts.measurements, 2);
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  assert_int_equal(stats.problems, 1);
  assert_int_equal(lookup(db, &sample_env, &p).step, CUVIL_DB_NEIGHBOUR);
  filter = (struct cuvil_db_filter){0};
  assert_int_equal(cuvil_db_prune(db, &filter, true, &counts), CUVIL_OK);
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  assert_int_equal(stats.problems + stats.candidates + stats.gpus, 0);
  assert_int_equal(count_findings(db), 0);
  cuvil_db_close(db);
}

static void export_is_t4(void **state) {
  (void)state;
  struct cuvil_db *db = open_new(0);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem p = sample_gemm(128);
  sample_measure(db, &context, &p, "gemm_mma", "tile=64,stages=3,k=a", 2e-5);
  struct cuvil_db_failure failure = {
      .candidate = {p.text, p.signature, "gemm_mma", 1, "tile=128,stages=3"},
      .reason = "compile_timeout",
      .detail = "cut in a character: \xc3"};
  assert_int_equal(cuvil_db_add_failure(db, &context, &failure), CUVIL_OK);
  struct cuvil_buf out = {0};
  json_t *file;
  assert_int_equal(cuvil_db_export_t4(db, NULL, &out), CUVIL_OK);
  assert_int_equal(cuvil_json_parse(out.data, out.size, "export", &file),
                   CUVIL_OK);
  const char *word, *sub;
  assert_int_equal(json_unpack(file, "{s:s}", "schema_version", &word), 0);
  assert_string_equal(word, "1.0.0");
  const json_t *results = json_object_get(file, "results");
  assert_int_equal(json_array_size(results), 2);
  int tile, correctness;
  double run[3], median, compile;
  assert_int_equal(
      json_unpack(json_array_get(results, 0),
                  "{s:{s:i,s:s},s:{s:[F,F,F!],s:F},s:s,s:i,s:[{s:F}]}",
                  "configuration", "tile", &tile, "k", &sub, "times",
                  "runtimes", &run[0], &run[1], &run[2], "compilation",
                  &compile, "invalidity", &word, "correctness", &correctness,
                  "measurements", "value", &median),
      0);
  assert_int_equal(tile, 64);
  assert_string_equal(sub, "a");
  assert_string_equal(word, "correct");
  assert_int_equal(correctness, 1);
  assert_true(run[0] == 2e-5 * 1e3 && median == 2e-5 * 1e3);
  assert_true(compile == 750);
  assert_int_equal(
      json_unpack(json_array_get(results, 1), "{s:{s:i},s:s,s:i,s:{s:s,s:s}}",
                  "configuration", "tile", &tile, "invalidity", &word,
                  "correctness", &correctness, "cuvil", "reason", &sub,
                  "problem", &sub),
      0);
  assert_int_equal(tile, 128);
  assert_string_equal(word, "compile");
  assert_int_equal(correctness, 0);
  assert_string_equal(sub, p.text);
  json_decref(file);
  cuvil_buf_free(&out);
  cuvil_db_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(evidence_round_trips_and_adds_once),
      cmocka_unit_test(impossible_evidence_is_refused),
      cmocka_unit_test(known_is_of_this_context_only),
      cmocka_unit_test(winner_is_the_best_resolved_race),
      cmocka_unit_test(measured_stands_before_replayed),
      cmocka_unit_test(ladder_names_its_steps),
      cmocka_unit_test(refused_row_is_a_miss_of_its_step),
      cmocka_unit_test(merge_is_a_union),
      cmocka_unit_test(merge_refuses_a_forged_row),
      cmocka_unit_test(rebuilding_changes_nothing),
      cmocka_unit_test(prune_takes_what_was_named),
      cmocka_unit_test(export_is_t4),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
