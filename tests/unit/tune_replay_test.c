/* Replayed tunes through the command: the right winner, nothing measured the
 * second time, killed runs that resume to the same end, interrupts. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/synthetic.h"

static const char *const problems[] = {
    "gemm/1 m=512 n=512 k=512 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32",
    "gemm/1 m=128 n=768 k=768 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32",
    "conv/1 n=1 c=64 h=28 w=28 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32",
};
enum { PROBLEMS = sizeof problems / sizeof problems[0], CANDIDATES = 24 };
static char folder[512], recording_path[600], list_path[600];
static char *winners[PROBLEMS];

static void path_of(char *out, size_t size, const char *name) {
  snprintf(out, size, "%s/%s", folder, name);
}

static int make_recording(void **state) {
  struct cuvil_recording *recording = NULL;
  const char *root = getenv("CUVIL_TEST_TMP");
  (void)state;
  snprintf(folder, sizeof folder, "%s/tune_replay.XXXXXX",
           root ? root : "/tmp");
  assert_non_null(mkdtemp(folder));
  path_of(recording_path, sizeof recording_path, "made.t4.json.zst");
  path_of(list_path, sizeof list_path, "problems.txt");
  synthetic_recording(problems, PROBLEMS, CANDIDATES, 7, &recording, winners);
  assert_int_equal(cuvil_recording_write(recording, recording_path), CUVIL_OK);
  cuvil_recording_destroy(recording);
  FILE *list = fopen(list_path, "w");
  assert_non_null(list);
  for (int i = 0; i < PROBLEMS; i++)
    fprintf(list, "%s\n", problems[i]);
  fclose(list);
  return 0;
}

/* Starts cuvil-tune on the recording; output to `out`. */
static pid_t start(const char *db, const char *out, const char *slow) {
  const char *bin = getenv("CUVIL_BIN");
  char program[600], device[700];
  snprintf(program, sizeof program, "%s/cuvil-tune",
           bin ? bin : "build/release/bin");
  snprintf(device, sizeof device, "replay:%s", recording_path);
  pid_t pid = fork();
  if (pid != 0) return pid;
  if (slow) setenv("CUVIL_REPLAY_SLOW", slow, 1);
  if (!freopen(out, "w", stdout) || !freopen("/dev/null", "w", stderr))
    _exit(99);
  execl(program, "cuvil-tune", "--device", device, "--db", db, "--problems",
        list_path, (char *)NULL);
  _exit(98);
}

static int finish(pid_t pid) {
  int result = 0;
  assert_int_equal(waitpid(pid, &result, 0), pid);
  return result;
}

static int tune(const char *db, const char *out) {
  int result = finish(start(db, out, NULL));
  return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static char *read_all(const char *path) {
  struct cuvil_buf text = {0};
  assert_int_equal(cuvil_file_read(path, &text), CUVIL_OK);
  return text.data ? cuvil_buf_take(&text) : strdup("");
}

/* What a database says, without when it was said: one line a row, sorted by
 * the database's own content hashes. */
struct digest {
  struct cuvil_buf text;
  int measurements, failures, races;
};
static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}
static enum cuvil_status on_measurement(
    void *user, const struct cuvil_db_stamp *stamp,
    const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *measurement) {
  struct digest *digest = user;
  (void)measurement;
  assert_string_equal(context->source, "replayed");
  digest->measurements++;
  cuvil_buf_printf(&digest->text, "%s\n", stamp->hash);
  return CUVIL_OK;
}
static enum cuvil_status on_failure(void *user,
                                    const struct cuvil_db_stamp *stamp,
                                    const struct cuvil_db_context *context,
                                    const struct cuvil_db_failure *failure) {
  struct digest *digest = user;
  (void)context;
  assert_string_equal(failure->reason, "wrong");
  digest->failures++;
  cuvil_buf_printf(&digest->text, "%s\n", stamp->hash);
  return CUVIL_OK;
}
static enum cuvil_status on_race(void *user, const struct cuvil_db_stamp *stamp,
                                 const struct cuvil_db_context *context,
                                 const struct cuvil_db_race *race) {
  struct digest *digest = user;
  (void)context;
  (void)race;
  digest->races++;
  cuvil_buf_printf(&digest->text, "%s\n", stamp->hash);
  return CUVIL_OK;
}

/* Sorted content of a database; freed by the caller. */
static char *content(const char *path, struct digest *digest) {
  const struct cuvil_db_filter all = {0};
  struct cuvil_db *db = NULL;
  char *lines[4096];
  int n = 0;
  *digest = (struct digest){0};
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_READ, &db), CUVIL_OK);
  assert_int_equal(cuvil_db_each_measurement(db, &all, on_measurement, digest),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_each_failure(db, &all, on_failure, digest),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_each_race(db, &all, on_race, digest), CUVIL_OK);
  cuvil_db_close(db);
  char *text = cuvil_buf_take(&digest->text);
  for (char *p = strtok(text, "\n"); p && n < 4096; p = strtok(NULL, "\n"))
    lines[n++] = p;
  qsort(lines, (size_t)n, sizeof lines[0], by_text);
  struct cuvil_buf sorted = {0};
  for (int i = 0; i < n; i++)
    cuvil_buf_printf(&sorted, "%s\n", lines[i]);
  free(text);
  return cuvil_buf_take(&sorted);
}

static void winner_is_the_fastest(void **state) {
  char db[600], out[600];
  struct cuvil_db *handle = NULL;
  struct cuvil_env env = {.gpu = "synthetic",
                          .arch = "sm_90",
                          .sms = 132,
                          .driver = "1.0",
                          .cuda = "13.0",
                          .nvrtc = "13.0"};
  (void)state;
  path_of(db, sizeof db, "first.db");
  path_of(out, sizeof out, "first.txt");
  assert_int_equal(tune(db, out), 0);
  char *text = read_all(out);
  assert_int_equal(strncmp(text, "replaying a recording", 21), 0);
  assert_non_null(strstr(text, "3 winners recorded"));
  free(text);
  assert_int_equal(cuvil_db_open(db, CUVIL_DB_READ, &handle), CUVIL_OK);
  for (int i = 0; i < PROBLEMS; i++) {
    struct cuvil_problem problem;
    struct cuvil_buf signature = {0};
    struct cuvil_db_winner winner;
    assert_int_equal(cuvil_problem_parse(problems[i], &problem), CUVIL_OK);
    cuvil_problem_signature(&problem, &signature);
    assert_int_equal(
        cuvil_db_lookup(handle, &env, problems[i], cuvil_buf_text(&signature),
                        NULL, NULL, &winner),
        CUVIL_OK);
    assert_int_equal(winner.step, CUVIL_DB_EXACT);
    assert_string_equal(winner.config, winners[i]);
    assert_string_equal(winner.source, "replayed");
    assert_true(winner.seconds > 9.9e-6 && winner.seconds < 10.1e-6);
    assert_true(winner.default_seconds >= winner.seconds);
    assert_true(winner.default_ratio_low >= 0.98);
    cuvil_buf_free(&signature);
  }
  cuvil_db_close(handle);
}

static void second_tune_times_nothing(void **state) {
  char db[600], out[600];
  struct digest before, after;
  (void)state;
  path_of(db, sizeof db, "second.db");
  path_of(out, sizeof out, "second.txt");
  assert_int_equal(tune(db, out), 0);
  char *first = content(db, &before);
  assert_true(before.measurements > 20);
  assert_true(before.failures > 0);
  assert_int_equal(before.races, PROBLEMS);
  assert_int_equal(tune(db, out), 0);
  char *second = content(db, &after);
  assert_string_equal(first, second);
  char *text = read_all(out);
  assert_non_null(strstr(text, "0 winners recorded"));
  assert_non_null(strstr(text, "3 already tuned"));
  free(text);
  free(first);
  free(second);
}

/* Kills the command at a moment that the seed chooses, `kills` times, then
 * lets it end: what it leaves must be what an undisturbed run leaves. */
static void killed_runs_resume_to_the_same_end(void **state) {
  enum { KILLS = 20 };
  char db[600], plain[600], out[600];
  struct cuvil_rng rng = {99};
  struct digest whole, resumed, now;
  int killed = 0;
  (void)state;
  path_of(plain, sizeof plain, "plain.db");
  path_of(db, sizeof db, "killed.db");
  path_of(out, sizeof out, "killed.txt");
  assert_int_equal(tune(plain, out), 0);
  char *expected = content(plain, &whole);
  int least = 0;
  for (int i = 0; i < KILLS; i++) {
    struct stat there;
    pid_t pid = start(db, out, "0.002");
    struct timespec wait = {0, (long)(5e6 + 35e6 * cuvil_rng_uniform(&rng))};
    nanosleep(&wait, NULL);
    kill(pid, SIGKILL);
    int result = finish(pid);
    killed += WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL;
    if (stat(db, &there) != 0 || there.st_size == 0) continue;
    /* Whole after every kill, and nothing that was there is gone. */
    int findings = -1;
    struct cuvil_db *handle = NULL;
    if (cuvil_db_open(db, CUVIL_DB_WRITE, &handle) != CUVIL_OK)
      fail_msg("after kill %d: %s", i, cuvil_last_error());
    assert_int_equal(cuvil_db_verify(handle, NULL, NULL, &findings), CUVIL_OK);
    assert_int_equal(findings, 0);
    cuvil_db_close(handle);
    char *text = content(db, &now);
    int rows = now.measurements + now.failures + now.races;
    assert_true(rows >= least);
    least = rows;
    free(text);
  }
  assert_true(killed >= 5); /* else the moments were all too late */
  assert_int_equal(tune(db, out), 0);
  char *ended = content(db, &resumed);
  assert_string_equal(expected, ended);
  assert_int_equal(resumed.races, PROBLEMS);
  free(expected);
  free(ended);
}

static void interrupt_ends_with_status_one(void **state) {
  char db[600], out[600];
  struct digest now;
  struct timespec wait = {0, 150000000};
  (void)state;
  path_of(db, sizeof db, "interrupted.db");
  path_of(out, sizeof out, "interrupted.txt");
  pid_t pid = start(db, out, "0.01");
  nanosleep(&wait, NULL);
  kill(pid, SIGINT);
  int result = finish(pid);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 1);
  free(content(db, &now)); /* it opens and reads */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(winner_is_the_fastest),
      cmocka_unit_test(second_tune_times_nothing),
      cmocka_unit_test(killed_runs_resume_to_the_same_end),
      cmocka_unit_test(interrupt_ends_with_status_one),
  };
  return cmocka_run_group_tests(tests, make_recording, NULL);
}
