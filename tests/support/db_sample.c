/* db_sample.c - small, invented evidence, and a text that two databases share
 * exactly when their evidence and winners are the same. */
#include "tests/support/db_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"

const struct cuvil_env sample_env = {
    .gpu = "NVIDIA H200",
    .arch = "sm_90",
    .sms = 132,
    .memory_bytes = 150000000000,
    .l2_bytes = 62914560,
    .driver = "580.159.04",
    .cuda = "13.0",
    .nvrtc = "13.0",
    .cublaslt = "13.1.0",
    .cudnn = "9.14.0",
};

const char *sample_path(int slot) {
  static char paths[8][512];
  static int serial;
  const char *folder = getenv("CUVIL_TEST_TMP");
  snprintf(paths[slot], sizeof paths[slot], "%s/cuvil-db-%d-%d.db",
           folder ? folder : "/tmp", (int)getpid(), serial++);
  return paths[slot];
}

struct cuvil_db_context sample_context(const struct cuvil_env *env,
                                       const char *source) {
  return (struct cuvil_db_context){.env = env,
                                   .source = source,
                                   .l2 = "cold",
                                   .regime = "burst",
                                   .method = 1};
}

struct sample_problem sample_gemm(int m) {
  struct sample_problem p;
  snprintf(p.text, sizeof p.text,
           "gemm/1 m=%d n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] "
           "acc=f32",
           m);
  snprintf(p.signature, sizeof p.signature, "%s",
           "gemm/1 m=*1 n=*16 k=*16 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] "
           "acc=f32");
  return p;
}

static void must(enum cuvil_status status) {
  if (status != CUVIL_OK) fail_msg("%s", cuvil_last_error());
}

static struct cuvil_db_candidate candidate(const struct sample_problem *problem,
                                           const char *family,
                                           const char *config) {
  return (struct cuvil_db_candidate){.problem = problem->text,
                                     .signature = problem->signature,
                                     .family = family,
                                     .family_version = 1,
                                     .config = config};
}

void sample_measure(struct cuvil_db *db, const struct cuvil_db_context *context,
                    const struct sample_problem *problem, const char *family,
                    const char *config, double seconds) {
  const double blocks[3] = {seconds, seconds * 1.01, seconds * 0.99};
  const int rounds[3] = {0, 1, 5};
  struct cuvil_db_measurement m = {
      .candidate = candidate(problem, family, config),
      .cubin_hash = "0123456789abcdef0123456789abcdef",
      .registers = 96,
      .spill_bytes = 0,
      .shared_bytes = 49152,
      .compile_seconds = 0.75,
      .worst_ratio = 0.125,
      .blocks = blocks,
      .rounds = rounds,
      .block_count = 3,
      .median = seconds,
      .low = seconds * 0.99,
      .high = seconds * 1.01,
  };
  must(cuvil_db_add_measurement(db, context, &m));
}

void sample_fail(struct cuvil_db *db, const struct cuvil_db_context *context,
                 const struct sample_problem *problem, const char *config,
                 const char *reason) {
  struct cuvil_db_failure failure = {
      .candidate = candidate(problem, "gemm_mma", config),
      .reason = reason,
      .detail = "what a person reads",
  };
  must(cuvil_db_add_failure(db, context, &failure));
}

void sample_race(struct cuvil_db *db, const struct cuvil_db_context *context,
                 const struct sample_problem *problem, const char *family,
                 const char *config, double seconds, int rounds,
                 bool with_library, bool converged) {
  double times[3][64];
  assert_true(rounds <= 64);
  for (int r = 0; r < rounds; r++) {
    times[0][r] = seconds;
    times[1][r] = r == 1 ? NAN : 2 * seconds;
    times[2][r] = 1.5 * seconds;
  }
  const struct cuvil_db_participant participants[3] = {
      {.family = family,
       .family_version = 1,
       .config = config,
       .flags = CUVIL_RACE_WINNER | CUVIL_RACE_TIE,
       .seconds = times[0],
       .median = seconds,
       .ratio = 1,
       .ratio_low = 1,
       .ratio_high = 1},
      {.family = "gemm_simt",
       .family_version = 1,
       .config = "tile=8",
       .flags = CUVIL_RACE_DEFAULT,
       .seconds = times[1],
       .median = 2 * seconds,
       .ratio = 2,
       .ratio_low = 1.9,
       .ratio_high = 2.1},
      {.family = "gemm_cublaslt",
       .family_version = 1,
       .config = "choice=0",
       .library = "cublaslt",
       .flags = CUVIL_RACE_LIBRARY_FIRST,
       .seconds = times[2],
       .median = 1.5 * seconds,
       .ratio = 1.5,
       .ratio_low = 1.4,
       .ratio_high = 1.6}};
  struct cuvil_db_race race = {.problem = problem->text,
                               .signature = problem->signature,
                               .rounds = rounds,
                               .participant_count = with_library ? 3 : 2,
                               .participants = participants,
                               .converged = converged};
  must(cuvil_db_add_race(db, context, &race));
}

/* ---- fingerprint */

struct lines {
  char *line[512];
  int count;
};

static void add_line(struct lines *lines, const char *kind,
                     const struct cuvil_db_stamp *stamp) {
  char line[128];
  assert_true(lines->count < 512);
  snprintf(line, sizeof line, "%s %s %s\n", kind, stamp->hash, stamp->recorded);
  lines->line[lines->count++] = strdup(line);
}
static enum cuvil_status on_measurement(void *user,
                                        const struct cuvil_db_stamp *stamp,
                                        const struct cuvil_db_context *context,
                                        const struct cuvil_db_measurement *m) {
  (void)context, (void)m;
  add_line(user, "measurement", stamp);
  return CUVIL_OK;
}
static enum cuvil_status on_failure(void *user,
                                    const struct cuvil_db_stamp *stamp,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_failure *f) {
  (void)context, (void)f;
  add_line(user, "failure", stamp);
  return CUVIL_OK;
}
static enum cuvil_status on_race(void *user, const struct cuvil_db_stamp *stamp,
                                 const struct cuvil_db_context *context,
                                 const struct cuvil_db_race *race) {
  (void)context, (void)race;
  add_line(user, "race", stamp);
  return CUVIL_OK;
}
static enum cuvil_status on_winner(void *user, const struct cuvil_env *env,
                                   const struct cuvil_db_winner *w) {
  cuvil_buf_printf(user, "winner %s | %s %s | %s %s %d %s %.17g %.17g %.17g\n",
                   w->problem, env->gpu, env->driver, w->source, w->family,
                   w->family_version, w->config, w->seconds, w->default_seconds,
                   w->library_seconds);
  return CUVIL_OK;
}
static int compare_lines(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

char *sample_fingerprint(struct cuvil_db *db) {
  struct lines lines = {.count = 0};
  struct cuvil_buf out = {0};
  assert_int_equal(cuvil_db_each_measurement(db, NULL, on_measurement, &lines),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_each_failure(db, NULL, on_failure, &lines),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_each_race(db, NULL, on_race, &lines), CUVIL_OK);
  if (lines.count > 1)
    qsort(lines.line, (size_t)lines.count, sizeof *lines.line, compare_lines);
  for (int i = 0; i < lines.count; i++) {
    cuvil_buf_puts(&out, lines.line[i]);
    free(lines.line[i]);
  }
  assert_int_equal(cuvil_db_each_winner(db, NULL, on_winner, &out), CUVIL_OK);
  assert_int_equal(cuvil_buf_status(&out), CUVIL_OK);
  return cuvil_buf_take(&out);
}
