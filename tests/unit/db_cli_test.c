/* cuvil-db as people and scripts call it, on databases made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "db/internal.h"
#include "tests/support/db_sample.h"

/* What a command printed, both streams, and its exit status. */
struct run {
  struct cuvil_buf text;
  int code;
};

static struct run run(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static struct run run(const char *format, ...) {
  struct run result = {.code = -1};
  char line[2048], command[2300], chunk[4096];
  const char *bin = getenv("CUVIL_BIN");
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  snprintf(command, sizeof command, "%s/cuvil-db %s 2>&1",
           bin ? bin : "build/release/bin", line);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;)
    cuvil_buf_add(&result.text, chunk, n);
  int status = pclose(pipe);
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  return result;
}
/* The exit status is `code` and every word is in the text; frees. */
static void expect(struct run result, int code, const char *words[]) {
  const char *text = cuvil_buf_text(&result.text);
  for (int i = 0; words[i]; i++) {
    if (!strstr(text, words[i])) fail_msg("no \"%s\" in: %s", words[i], text);
  }
  if (result.code != code) fail_msg("exit %d: %s", result.code, text);
  cuvil_buf_free(&result.text);
}
#define WORDS(...) ((const char *[]){__VA_ARGS__, NULL})

static json_t *expect_json(struct run result, const char *schema) {
  json_t *json = NULL;
  assert_int_equal(result.code, 0);
  assert_int_equal(cuvil_json_parse(cuvil_buf_text(&result.text),
                                    result.text.size, "output", &json),
                   CUVIL_OK);
  const char *name = json_string_value(json_object_get(json, "schema"));
  assert_non_null(name);
  assert_string_equal(name, schema);
  cuvil_buf_free(&result.text);
  return json;
}

static const char *make_database(int slot, int m) {
  const char *path = sample_path(slot);
  struct cuvil_db *db;
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_WRITE, &db), CUVIL_OK);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct cuvil_db_context replayed = sample_context(&sample_env, "replayed");
  struct sample_problem p = sample_gemm(m);
  sample_measure(db, &context, &p, "gemm_mma", "tile=64", 1e-5);
  sample_measure(db, &replayed, &p, "gemm_mma", "tile=32", 3e-5);
  sample_fail(db, &context, &p, "tile=128", "compile");
  sample_race(db, &context, &p, "gemm_mma", "tile=64", 1e-5, 8, true, true);
  cuvil_db_close(db);
  return path;
}

static void help_and_usage(void **state) {
  (void)state;
  expect(run("--help"), 0, WORDS("Usage: cuvil-db", "Examples:", "merge"));
  expect(run("--version"), 0, WORDS("cuvil-db (Cuvil) " CUVIL_VERSION));
  expect(run("%s", ""), 2, WORDS("name a command"));
  expect(run("frobnicate"), 2, WORDS("'frobnicate' is not a command"));
  expect(run("list --nonsense"), 2, WORDS("--nonsense", "--help"));
  expect(run("lookup"), 2, WORDS("an argument is missing"));
  expect(run("stats extra"), 2, WORDS("extra"));
  expect(run("export"), 2, WORDS("--t4"));
  expect(run("prune"), 2, WORDS("--all"));
  expect(run("list --source guessed"), 2, WORDS("'guessed'"));
  expect(run("list --method-below x"), 2, WORDS("'x'"));
}

static void failures_end_with_one_line(void **state) {
  (void)state;
  expect(run("stats --db /nowhere.db"), 1,
         WORDS("cuvil-db: error: CU_ERR_DB (0x30): /nowhere.db"));
  const char *path = make_database(0, 128);
  expect(run("lookup --db %s 'gemm/1 nonsense'", path), 1,
         WORDS("CU_ERR_PARSE (0x04)"));
  expect(run("list --db %s --problem 'gemm/1 nonsense'", path), 1,
         WORDS("CU_ERR_PARSE (0x04)"));
  expect(run("export --t1 --db %s", path), 2, WORDS("--t1", "--problem"));
  expect(run("import --t4 --db %s /nowhere.json", path), 1,
         WORDS("CU_ERR_IO", "/nowhere.json"));
  expect(run("import --db %s some.json", path), 2, WORDS("--t4"));
}

static void reports_show_what_is_there(void **state) {
  (void)state;
  const char *path = make_database(0, 128);
  struct sample_problem p = sample_gemm(128);
  expect(run("list --db %s", path), 0,
         WORDS("gemm/1 m=128", "10.00 us", "20.00 us", "15.00 us", "gemm_mma",
               "1 winner\n"));
  expect(run("list --db %s --family gemm_simt", path), 0, WORDS("0 winners"));
  expect(run("show --db %s '%s'", path, p.text), 0,
         WORDS("measured", "96 registers", "race", "default", "library",
               "winner", "1 failed candidate"));
  expect(run("show --failures --db %s", path), 0,
         WORDS("compile", "tile=128", "what a person reads"));
  expect(run("stats --db %s", path), 0,
         WORDS("2 measurements, 1 failures, 1 races; 1 of them replayed"));
  expect(run("verify --db %s", path), 0, WORDS("all is well"));
  json_t *json =
      expect_json(run("list --json - --db %s", path), "cuvil-db-list/1");
  const json_t *winner = json_array_get(json_object_get(json, "winners"), 0);
  assert_true(json_number_value(json_object_get(winner, "seconds")) == 1e-5);
  assert_true(json_number_value(json_object_get(winner, "library_ratio_low")) ==
              1.4);
  json_decref(json);
  json = expect_json(run("show --json - --db %s", path), "cuvil-db-show/1");
  assert_int_equal(json_array_size(json_object_get(json, "measurements")), 2);
  assert_int_equal(json_array_size(json_object_get(json, "failures")), 1);
  assert_int_equal(json_array_size(json_object_get(json, "races")), 1);
  json_decref(json);
  json_decref(
      expect_json(run("stats --json - --db %s", path), "cuvil-db-stats/1"));
  json_decref(
      expect_json(run("verify --json - --db %s", path), "cuvil-db-verify/1"));
}

static void lookups_name_their_step(void **state) {
  (void)state;
  const char *path = sample_path(0);
  struct cuvil_db *db;
  assert_int_equal(cuvil_db_open(path, CUVIL_DB_WRITE, &db), CUVIL_OK);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem p = sample_gemm(128), q = sample_gemm(256);
  sample_race(db, &context, &p, "gemm_mma", "tile=64", 1e-5, 8, true, true);
  cuvil_db_close(db);
  expect(run("lookup --db %s '%s'", path, p.text), 0,
         WORDS("step       exact", "gemm_mma", "tile=64", "10.00 us"));
  json_t *json = expect_json(run("lookup --json - --db %s '%s'", path, p.text),
                             "cuvil-db-lookup/1");
  assert_string_equal(json_string_value(json_object_get(json, "step")),
                      "exact");
  json_decref(json);
  expect(run("lookup --db %s --gpu Other '%s'", path, p.text), 0,
         WORDS("step       other GPU"));
  expect(run("lookup --db %s --arch sm_90 --nvrtc 11.8 '%s'", path, p.text), 0,
         WORDS("step       other driver or libraries"));
  expect(run("lookup --db %s --arch sm_80 '%s'", path, p.text), 1,
         WORDS("step       miss", "CU_ERR_NOT_TUNED (0x33)"));
  expect(run("lookup --db %s --arch sm_80 '%s'", path, q.text), 1,
         WORDS("step       miss"));
}

static void merging_verifying_pruning(void **state) {
  (void)state;
  const char *a = make_database(0, 128), *b = make_database(1, 256);
  const char *c = sample_path(2);
  expect(run("merge --db %s %s %s", c, a, b), 0,
         WORDS("2 measurements, 1 failures, 1 races were new"));
  expect(run("merge --db %s %s", c, a), 0,
         WORDS("0 measurements, 0 failures, 0 races were new"));
  expect(run("list --db %s", c), 0, WORDS("m=128", "m=256", "2 winners"));
  expect(run("prune --db %s --source replayed --dry-run", c), 0,
         WORDS("would remove 2 measurements, 0 failures, 0 races"));
  expect(run("prune --db %s --source replayed", c), 0,
         WORDS("removed 2 measurements"));
  expect(run("rebuild --db %s", c), 0, WORDS("2 winners from 2 races"));
  struct cuvil_buf text = {0};
  char out[600];
  snprintf(out, sizeof out, "%s.json", c);
  expect(run("export --t4 --db %s -o %s", c, out), 0, WORDS(""));
  assert_int_equal(cuvil_file_read(out, &text), CUVIL_OK);
  assert_non_null(strstr(text.data, "\"schema_version\":\"1.0.0\""));
  cuvil_buf_free(&text);
  struct cuvil_db *db;
  assert_int_equal(cuvil_db_open(c, CUVIL_DB_WRITE, &db), CUVIL_OK);
  assert_int_equal(cuvil_db_run(db, "UPDATE failure SET reason = 'nan'", ""),
                   CUVIL_OK);
  cuvil_db_close(db);
  expect(run("verify --db %s", c), 1,
         WORDS("the content's hash is", "CU_ERR_DB (0x30)", "2 findings"));
  expect(run("merge --db %s %s", a, c), 1, WORDS("nothing was merged"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_and_usage),
      cmocka_unit_test(failures_end_with_one_line),
      cmocka_unit_test(reports_show_what_is_there),
      cmocka_unit_test(lookups_name_their_step),
      cmocka_unit_test(merging_verifying_pruning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
