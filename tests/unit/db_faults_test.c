/* The database when files, disks, other programs and other processes are not
 * as one would wish. */
#include <errno.h>
#include <fcntl.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "db/internal.h"
#include "tests/support/db_sample.h"

static struct cuvil_db *must_open(const char *path, enum cuvil_db_mode mode) {
  struct cuvil_db *db;
  if (cuvil_db_open(path, mode, &db) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  return db;
}
static void add_some(struct cuvil_db *db, int from, int to) {
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  for (int i = from; i < to; i++) {
    struct sample_problem p = sample_gemm(1 + i / 8);
    char config[32];
    snprintf(config, sizeof config, "tile=%d", i);
    sample_measure(db, &context, &p, "gemm_mma", config, 1e-5);
    if (i % 8 == 0)
      sample_race(db, &context, &p, "gemm_mma", config, 1e-5, 8, true, true);
  }
}
static int count_findings(struct cuvil_db *db) {
  int findings = -1;
  assert_int_equal(cuvil_db_verify(db, NULL, NULL, &findings), CUVIL_OK);
  return findings;
}
static int64_t count_measurements(struct cuvil_db *db) {
  struct cuvil_db_stats stats;
  assert_int_equal(cuvil_db_stats(db, &stats), CUVIL_OK);
  return stats.evidence.measurements;
}
static void write_file(const char *path, const void *bytes, size_t size) {
  assert_int_equal(cuvil_file_write_atomic(path, bytes, size), CUVIL_OK);
}

/* Opening in both modes gives `status`, a message that names the file and has
 * `word` in it, no handle, and the same bytes as before. */
static void assert_refused(const char *path, enum cuvil_status status,
                           const char *word) {
  struct cuvil_buf before = {0}, after = {0};
  assert_int_equal(cuvil_file_read(path, &before), CUVIL_OK);
  for (int mode = 0; mode < 2; mode++) {
    struct cuvil_db *db = (struct cuvil_db *)&mode;
    assert_int_equal(
        cuvil_db_open(path, mode ? CUVIL_DB_READ : CUVIL_DB_WRITE, &db),
        status);
    assert_null(db);
    assert_non_null(strstr(cuvil_last_error(), path));
    if (!strstr(cuvil_last_error(), word))
      fail_msg("no \"%s\" in: %s", word, cuvil_last_error());
    cuvil_buf_free(&after);
    assert_int_equal(cuvil_file_read(path, &after), CUVIL_OK);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, before.size);
  }
  cuvil_buf_free(&before);
  cuvil_buf_free(&after);
}

static void sqlite_do(const char *path, const char *sql) {
  sqlite3 *sqlite;
  assert_int_equal(sqlite3_open(path, &sqlite), SQLITE_OK);
  assert_int_equal(sqlite3_exec(sqlite, sql, NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_close(sqlite), SQLITE_OK);
}

static void what_is_not_ours_is_left_alone(void **state) {
  (void)state;
  const char *path = sample_path(0);
  char text[5000];
  memset(text, 'x', sizeof text);
  write_file(path, text, sizeof text);
  assert_refused(path, CU_ERR_DB, "not a database");
  write_file(path, text, 10);
  assert_refused(path, CU_ERR_DB, "not a database");
  path = sample_path(1);
  sqlite_do(path, "CREATE TABLE mine (x)");
  assert_refused(path, CU_ERR_DB, "another program");
  path = sample_path(2);
  sqlite_do(path, "PRAGMA application_id = 7; CREATE TABLE t (x)");
  assert_refused(path, CU_ERR_DB, "0x00000007");
  path = sample_path(3);
  assert_int_equal(mkdir(path, 0777), 0);
  struct cuvil_db *db;
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_WRITE, &db), CU_ERR_DB);
  assert_non_null(strstr(cuvil_last_error(), "is a folder"));
  assert_int_equal(cuvil_db_open("", CUVIL_DB_WRITE, &db),
                   CU_ERR_INVALID_ARGUMENT);
}

static void newer_schema_is_refused(void **state) {
  (void)state;
  const char *path = sample_path(0);
  struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
  add_some(db, 0, 3);
  cuvil_db_close(db);
  sqlite_do(path, "PRAGMA user_version = 99");
  assert_refused(path, CU_ERR_VERSION_MISMATCH, "newer Cuvil (schema 99");
}

static void truncated_file_is_refused(void **state) {
  (void)state;
  const char *path = sample_path(0);
  struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
  add_some(db, 0, 100);
  cuvil_db_close(db);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(truncate(path, info.st_size * 6 / 10), 0);
  assert_refused(path, CU_ERR_DB, "damaged");
  assert_int_equal(truncate(path, 50), 0);
  assert_refused(path, CU_ERR_DB, "damaged");
}

/* Whatever bytes turn: a sentence or a finding, never a crash, never silence
 * about a changed page of evidence. */
static void damaged_pages_are_found(void **state) {
  (void)state;
  const char *path = sample_path(0);
  struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
  add_some(db, 0, 60);
  cuvil_db_close(db);
  struct cuvil_buf whole = {0};
  assert_int_equal(cuvil_file_read(path, &whole), CUVIL_OK);
  struct cuvil_rng rng = {5};
  int missed = 0, seen = 0;
  for (int trial = 0; trial < 40; trial++) {
    size_t at = 4096 + cuvil_rng_below(&rng, whole.size - 4096 - 64);
    char saved[64];
    memcpy(saved, whole.data + at, sizeof saved);
    for (int i = 0; i < 64; i++)
      whole.data[at + i] ^= 0x5a;
    write_file(path, whole.data, whole.size);
    int findings = 0;
    enum cuvil_status status = cuvil_db_open(path, CUVIL_DB_READ, &db);
    if (status == CUVIL_OK) status = cuvil_db_verify(db, NULL, NULL, &findings);
    if (status != CUVIL_OK) assert_int_equal(status, CU_ERR_DB);
    /* Between the cells of a page nothing is kept: zeroes. */
    bool used = false;
    for (int i = 0; i < 64; i++)
      used |= saved[i] != 0;
    bool noticed = status != CUVIL_OK || findings > 0;
    seen += noticed;
    missed += used && !noticed;
    if (status == CUVIL_OK) cuvil_db_close(db);
    memcpy(whole.data + at, saved, sizeof saved);
  }
  assert_int_equal(missed, 0);
  assert_true(seen >= 10);
  cuvil_buf_free(&whole);
}

static void absent_file_is_named(void **state) {
  (void)state;
  struct cuvil_db *db;
  const char *path = sample_path(0);
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_READ, &db), CU_ERR_DB);
  assert_non_null(strstr(cuvil_last_error(), "no such database yet"));
  assert_int_equal(access(path, F_OK), -1); /* and not made by asking */
  assert_int_equal(cuvil_db_open("/nowhere/at/all.db", CUVIL_DB_WRITE, &db),
                   CU_ERR_DB_READ_ONLY);
  assert_non_null(strstr(cuvil_last_error(), "/nowhere/at/all.db"));
  write_file(path, "", 0); /* an empty file is an empty database */
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_READ, &db),
                   CU_ERR_VERSION_MISMATCH);
  db = must_open(path, CUVIL_DB_WRITE);
  assert_int_equal(access(cuvil_db_cubin_dir(db), W_OK), 0);
  cuvil_db_close(db);
  cuvil_db_close(must_open(path, CUVIL_DB_READ));
}

static void default_path_follows_the_environment(void **state) {
  (void)state;
  char path[512], *cache = getenv("XDG_CACHE_HOME");
  cache = cache ? strdup(cache) : NULL;
  setenv("CUVIL_DB", "/x/y.db", 1);
  assert_int_equal(cuvil_db_default_path(path, sizeof path), CUVIL_OK);
  assert_string_equal(path, "/x/y.db");
  assert_int_equal(cuvil_db_default_path(path, 5), CU_ERR_DB);
  unsetenv("CUVIL_DB");
  setenv("XDG_CACHE_HOME", sample_path(0), 1);
  struct cuvil_db *db = must_open(NULL, CUVIL_DB_WRITE); /* makes folders */
  assert_non_null(strstr(cuvil_db_path(db), "/cuvil/cuvil.db"));
  assert_memory_equal(cuvil_db_path(db), getenv("XDG_CACHE_HOME"),
                      strlen(getenv("XDG_CACHE_HOME")));
  cuvil_db_close(db);
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/somebody", 1);
  assert_int_equal(cuvil_db_default_path(path, sizeof path), CUVIL_OK);
  assert_string_equal(path, "/home/somebody/.cache/cuvil/cuvil.db");
  if (cache) setenv("XDG_CACHE_HOME", cache, 1);
  free(cache);
}

static void refused_log_gets_a_rollback_journal(void **state) {
  (void)state;
  /* This VFS has no shared memory, as some network file systems. */
  const char *path = sample_path(0);
  struct cuvil_db *db;
  assert_int_equal(cuvil_db_open_vfs(path, CUVIL_DB_WRITE, "unix-dotfile", &db),
                   CUVIL_OK);
  assert_string_equal(db->journal, "delete");
  add_some(db, 0, 9);
  assert_int_equal(count_findings(db), 0);
  cuvil_db_close(db);
  db = must_open(path, CUVIL_DB_WRITE); /* back where logs work */
  assert_string_equal(db->journal, "wal");
  assert_int_equal(count_measurements(db), 9);
  cuvil_db_close(db);
  /* A file with a log comes to such a place. */
  if (cuvil_db_open_vfs(path, CUVIL_DB_WRITE, "unix-dotfile", &db) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  assert_string_equal(db->journal, "delete");
  assert_int_equal(count_measurements(db), 9);
  cuvil_db_close(db);
}

static void full_disk_keeps_what_was_there(void **state) {
  (void)state;
  struct cuvil_db *db = must_open(sample_path(0), CUVIL_DB_WRITE);
  add_some(db, 0, 10);
  int64_t pages;
  bool found;
  assert_int_equal(
      cuvil_db_query_int(db, &pages, &found, "PRAGMA page_count", ""),
      CUVIL_OK);
  char sql[64];
  snprintf(sql, sizeof sql, "PRAGMA max_page_count = %d", (int)pages);
  assert_int_equal(cuvil_db_run(db, sql, ""), CUVIL_OK);
  static double blocks[4096];
  static int rounds[4096];
  for (int i = 0; i < 4096; i++)
    blocks[i] = 1e-5, rounds[i] = i;
  struct sample_problem p = sample_gemm(7);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_db_measurement big = {
      .candidate = {p.text, p.signature, "gemm_mma", 1, "tile=big"},
      .blocks = blocks,
      .rounds = rounds,
      .block_count = 4096,
      .median = 1e-5,
      .low = 1e-5,
      .high = 1e-5};
  assert_int_equal(cuvil_db_add_measurement(db, &context, &big),
                   CU_ERR_DB_READ_ONLY);
  assert_non_null(strstr(cuvil_last_error(), "disk is full"));
  assert_int_equal(count_measurements(db), 10);
  assert_int_equal(count_findings(db), 0);
  assert_int_equal(cuvil_db_run(db, "PRAGMA max_page_count = 1000000", ""),
                   CUVIL_OK);
  assert_int_equal(cuvil_db_add_measurement(db, &context, &big), CUVIL_OK);
  assert_int_equal(count_findings(db), 0);
  cuvil_db_close(db);
}

static void locked_file_says_so(void **state) {
  (void)state;
  const char *path = sample_path(0);
  struct cuvil_db *holder = must_open(path, CUVIL_DB_WRITE);
  struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
  add_some(holder, 0, 1);
  assert_int_equal(cuvil_db_begin(holder), CUVIL_OK);
  sqlite3_busy_timeout(db->sqlite, 20);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_db_failure failure = {
      .candidate = {"gemm/1 m=1", "gemm/1 m=*1", "gemm_mma", 1, "tile=1"},
      .reason = "nan",
      .detail = ""};
  assert_int_equal(cuvil_db_add_failure(db, &context, &failure),
                   CU_ERR_DB_BUSY);
  assert_non_null(strstr(cuvil_last_error(), path));
  assert_int_equal(count_measurements(db), 1); /* readers go on */
  assert_int_equal(cuvil_db_end(holder, CUVIL_OK), CUVIL_OK);
  assert_int_equal(cuvil_db_add_failure(db, &context, &failure), CUVIL_OK);
  cuvil_db_close(db);
  cuvil_db_close(holder);
}

static void reading_handle_does_not_write(void **state) {
  (void)state;
  const char *path = sample_path(0);
  cuvil_db_close(must_open(path, CUVIL_DB_WRITE));
  struct cuvil_db *db = must_open(path, CUVIL_DB_READ);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_db_failure failure = {
      .candidate = {"gemm/1 m=1", "gemm/1 m=*1", "gemm_mma", 1, "tile=1"},
      .reason = "nan",
      .detail = ""};
  assert_int_equal(cuvil_db_add_failure(db, &context, &failure),
                   CU_ERR_DB_READ_ONLY);
  assert_int_equal(cuvil_db_rebuild(db), CU_ERR_DB_READ_ONLY);
  assert_int_equal(count_findings(db), 0); /* verifying needs no writing */
  cuvil_db_close(db);
}

/* Runs `body` in a child that is not root; its exit status. */
static int as_nobody(int (*body)(const char *path), const char *path) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
    _exit(body(path));
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}
static int use_unwritable(const char *path) {
  struct cuvil_db *db;
  if (cuvil_db_open(path, CUVIL_DB_WRITE, &db) != CU_ERR_DB_READ_ONLY) return 1;
  if (!strstr(cuvil_last_error(), path)) return 2;
  if (cuvil_db_open(path, CUVIL_DB_READ, &db) != CUVIL_OK) return 3;
  struct cuvil_db_stats stats;
  int findings;
  if (cuvil_db_stats(db, &stats) != CUVIL_OK) return 4;
  if (stats.evidence.measurements != 3) return 5;
  if (cuvil_db_verify(db, NULL, NULL, &findings) != CUVIL_OK) return 6;
  cuvil_db_close(db);
  return findings ? 7 : 0;
}

static void unwritable_place_can_be_read(void **state) {
  (void)state;
  /* In a folder of its own under /tmp: the test's own folder may be closed to
   * others. */
  char folder[] = "/tmp/cuvil-db-XXXXXX", path[64];
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/a?b#c%%41.db", folder);
  struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
  add_some(db, 0, 3);
  cuvil_db_close(db);
  assert_int_equal(chmod(path, 0444), 0);
  assert_int_equal(chmod(folder, 0555), 0);
  int result = as_nobody(use_unwritable, path);
  chmod(folder, 0755);
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  assert_int_equal(system(command), 0);
  if (result == 99) {
    print_message("# cannot leave root here\n");
    skip();
  }
  assert_int_equal(result, 0);
}

/* ---- processes */

static void wait_for(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void processes_write_at_once(void **state) {
  (void)state;
  enum { CHILDREN = 3, EACH = 40 };
  const char *path = sample_path(0);
  pid_t children[CHILDREN];
  fflush(NULL);
  for (int c = 0; c < CHILDREN; c++) {
    children[c] = fork();
    if (children[c] != 0) continue;
    struct cuvil_db *db; /* all of them find no file and make it */
    if (cuvil_db_open(path, CUVIL_DB_WRITE, &db) != CUVIL_OK) {
      fprintf(stderr, "# %s\n", cuvil_last_error());
      _exit(1);
    }
    add_some(db, c * EACH / 2, c * EACH / 2 + EACH); /* half is shared */
    cuvil_db_close(db);
    _exit(0);
  }
  for (int c = 0; c < CHILDREN; c++)
    wait_for(children[c]);
  struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
  assert_int_equal(count_measurements(db), EACH + (CHILDREN - 1) * EACH / 2);
  assert_int_equal(count_findings(db), 0);
  cuvil_db_close(db);
}

static void killed_writer_loses_nothing_it_finished(void **state) {
  (void)state;
  struct cuvil_rng rng = {3};
  const char *path = sample_path(0);
  int done = 0;
  for (int trial = 0; trial < 5; trial++) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      struct cuvil_db *db;
      if (cuvil_db_open(path, CUVIL_DB_WRITE, &db) != CUVIL_OK) _exit(1);
      for (int i = done;; i++) {
        add_some(db, i, i + 1);
        if (write(pipes[1], &i, sizeof i) != sizeof i) _exit(1);
      }
    }
    close(pipes[1]);
    int last = 0;
    assert_int_equal(read(pipes[0], &last, sizeof last), sizeof last);
    usleep(1000 + (useconds_t)cuvil_rng_below(&rng, 20000));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    while (read(pipes[0], &last, sizeof last) == sizeof last)
      continue;
    close(pipes[0]);
    struct cuvil_db *db = must_open(path, CUVIL_DB_WRITE);
    assert_int_equal(count_findings(db), 0);
    int64_t there = count_measurements(db);
    assert_true(there >= last + 1 && there <= last + 2);
    done = (int)there;
    cuvil_db_close(db);
  }
}

/* ---- migrations: one file for each schema that was ever released */

static void dump_schema(struct cuvil_db *db, struct cuvil_buf *out) {
  sqlite3_stmt *row;
  assert_int_equal(
      cuvil_db_prepare(db,
                       "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"
                       " AND name NOT LIKE 'sqlite_%' ORDER BY name",
                       &row),
      CUVIL_OK);
  for (bool more = true; more;) {
    assert_int_equal(cuvil_db_step(db, row, &more), CUVIL_OK);
    if (more) cuvil_buf_printf(out, "%s;\n", cuvil_db_text(row, 0));
  }
  sqlite3_finalize(row);
}

static void every_older_schema_comes_up(void **state) {
  (void)state;
  struct cuvil_buf fresh = {0};
  struct cuvil_db *db = must_open(sample_path(0), CUVIL_DB_WRITE);
  dump_schema(db, &fresh);
  cuvil_db_close(db);
  for (int version = 1; version <= CUVIL_DB_SCHEMA; version++) {
    char file[64];
    struct cuvil_buf sql = {0}, schema = {0};
    const char *path = sample_path(1);
    snprintf(file, sizeof file, "tests/data/db/v%d.sql", version);
    if (cuvil_file_read(file, &sql) != CUVIL_OK)
      fail_msg("%s", cuvil_last_error());
    sqlite_do(path, cuvil_buf_text(&sql));
    db = must_open(path, CUVIL_DB_WRITE);
    dump_schema(db, &schema);
    assert_string_equal(cuvil_buf_text(&schema), cuvil_buf_text(&fresh));
    assert_int_equal(count_findings(db), 0);
    assert_int_equal(count_measurements(db), 1);
    char *print = sample_fingerprint(db);
    assert_non_null(strstr(print, "failure "));
    assert_non_null(strstr(print, "winner gemm/1 m=128 "));
    free(print);
    cuvil_db_close(db);
    cuvil_buf_free(&sql);
    cuvil_buf_free(&schema);
  }
  cuvil_buf_free(&fresh);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_not_ours_is_left_alone),
      cmocka_unit_test(newer_schema_is_refused),
      cmocka_unit_test(truncated_file_is_refused),
      cmocka_unit_test(damaged_pages_are_found),
      cmocka_unit_test(absent_file_is_named),
      cmocka_unit_test(default_path_follows_the_environment),
      cmocka_unit_test(refused_log_gets_a_rollback_journal),
      cmocka_unit_test(full_disk_keeps_what_was_there),
      cmocka_unit_test(locked_file_says_so),
      cmocka_unit_test(reading_handle_does_not_write),
      cmocka_unit_test(unwritable_place_can_be_read),
      cmocka_unit_test(processes_write_at_once),
      cmocka_unit_test(killed_writer_loses_nothing_it_finished),
      cmocka_unit_test(every_older_schema_comes_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
