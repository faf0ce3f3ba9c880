/* Bad models through the real commands: each of cuvil-compile, cuvil-tune and
 * cuvil-run ends with status 1 and one line that names the file and the place,
 * and leaves the database and the plan that were there, byte by byte.  What
 * the importer says of each kind is graph_bad_input_test's; this is the way
 * from there to the user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "db/db.h"
#include "tests/support/onnx_case.h"

static char folder[400], plan[500], database[500];
static struct cuvil_buf plan_bytes, database_bytes;

static const char *bin(void) {
  const char *path = getenv("CUVIL_BIN");
  return path ? path : "build/release/bin";
}

/* Runs a command line; its status, and what it wrote to stderr. */
static int shell(const char *line, struct cuvil_buf *out_err) {
  char whole[4000], errors[500];
  snprintf(errors, sizeof errors, "%s/stderr", folder);
  snprintf(whole, sizeof whole, "%s >%s/stdout 2>%s </dev/null", line, folder,
           errors);
  int result = system(whole);
  assert_true(WIFEXITED(result));
  assert_int_equal(cuvil_file_read(errors, out_err), CUVIL_OK);
  return WEXITSTATUS(result);
}

static void unchanged(const char *path, const struct cuvil_buf *before) {
  struct cuvil_buf now;
  assert_int_equal(cuvil_file_read(path, &now), CUVIL_OK);
  if (now.size != before->size || memcmp(now.data, before->data, now.size) != 0)
    fail_msg("%s was changed", path);
  cuvil_buf_free(&now);
}

/* All three commands refuse `model`; `lines` lines stand before the last. */
static void refused(const char *model, const char *status, const char *part,
                    int lines) {
  static const char *const commands[] = {
      "%1$s/cuvil-compile --arch sm_90 --db %4$s -o %3$s '%2$s'",
      "%1$s/cuvil-tune --arch sm_90 --dry-run --db %4$s '%2$s'",
      "%1$s/cuvil-run --device cpu '%2$s'"};
  for (int i = 0; i < 3; i++) {
    char line[3000], wanted[64];
    struct cuvil_buf err;
    snprintf(line, sizeof line, commands[i], bin(), model, plan, database);
    int code = shell(line, &err);
    const char *text = cuvil_buf_text(&err);
    if (code != 1) fail_msg("%s: status %d\n%s", line, code, text);
    int count = 0;
    const char *last = text;
    for (const char *p = text; *p; p++) {
      if (*p != '\n') continue;
      count++;
      if (p[1]) last = p + 1;
    }
    snprintf(wanted, sizeof wanted, ": error: %s (0x", status);
    if (count != 1 + lines || !strstr(last, wanted) || !strstr(last, part) ||
        !strstr(last, model))
      fail_msg("%s: %d lines; wanted %s, \"%s\"\n%s", line, count, status, part,
               text);
    cuvil_buf_free(&err);
  }
  unchanged(plan, &plan_bytes);
  unchanged(database, &database_bytes);
}

static void begin(struct onnx_case *c) {
  onnx_begin(c, 13);
  onnx_input(c, "x", 2, DIMS(4, 4));
}

static void write_and_refuse(struct onnx_case *c, const char *status,
                             const char *part, int lines) {
  onnx_output(c, "y");
  assert_int_equal(cuvil_builder_write(c->b, c->path), CUVIL_OK);
  refused(c->path, status, part, lines);
  onnx_end(c);
}

/* A model, its plan and a database, which all have to stay. */
static int make_good(void **state) {
  char model[500], line[3000];
  const char *tmp = getenv("CUVIL_TEST_TMP");
  struct cuvil_builder *b;
  struct cuvil_db *db;
  struct cuvil_buf err;
  (void)state;
  snprintf(folder, sizeof folder, "%s/bad-XXXXXX", tmp ? tmp : "/tmp");
  assert_non_null(mkdtemp(folder));
  snprintf(plan, sizeof plan, "%s/good.plan", folder);
  snprintf(database, sizeof database, "%s/good.db", folder);
  snprintf(model, sizeof model, "%s/good.onnx", folder);
  assert_int_equal(cuvil_builder_create("good", 13, &b), CUVIL_OK);
  cuvil_builder_input(b, "x", CUVIL_F32, 2, DIMS(4, 4));
  cuvil_builder_node(b, "Relu", "act", "x", "y");
  cuvil_builder_output(b, "y", CUVIL_F32, -1, NULL);
  assert_int_equal(cuvil_builder_write(b, model), CUVIL_OK);
  cuvil_builder_destroy(b);
  assert_int_equal(cuvil_db_open(database, CUVIL_DB_WRITE, &db), CUVIL_OK);
  cuvil_db_close(db);
  snprintf(line, sizeof line, "%s/cuvil-compile --arch sm_90 --db %s -o %s %s",
           bin(), database, plan, model);
  if (shell(line, &err) != 0) fail_msg("%s", cuvil_buf_text(&err));
  cuvil_buf_free(&err);
  assert_int_equal(cuvil_file_read(plan, &plan_bytes), CUVIL_OK);
  assert_int_equal(cuvil_file_read(database, &database_bytes), CUVIL_OK);
  assert_true(plan_bytes.size > 0 && database_bytes.size > 0);
  return 0;
}

static int drop_good(void **state) {
  (void)state;
  cuvil_buf_free(&plan_bytes);
  cuvil_buf_free(&database_bytes);
  return 0;
}

static void files(void **state) {
  char path[500], good[500];
  struct cuvil_buf whole;
  struct cuvil_rng rng = {5};
  (void)state;
  snprintf(path, sizeof path, "%s/bad.onnx", folder);
  snprintf(good, sizeof good, "%s/good.onnx", folder);
  assert_int_equal(cuvil_file_read(good, &whole), CUVIL_OK);
  for (size_t size = 1; size < whole.size; size += 1 + whole.size / 5) {
    assert_int_equal(cuvil_file_write_atomic(path, whole.data, size), CUVIL_OK);
    refused(path, "CU_ERR_MODEL_INVALID", "", 0);
  }
  cuvil_buf_free(&whole);
  char noise[3000];
  for (size_t i = 0; i < sizeof noise; i++)
    noise[i] = (char)cuvil_rng_next(&rng);
  assert_int_equal(cuvil_file_write_atomic(path, noise, sizeof noise),
                   CUVIL_OK);
  refused(path, "CU_ERR_MODEL_INVALID", "damaged", 0);
  assert_int_equal(cuvil_file_write_atomic(path, "", 0), CUVIL_OK);
  refused(path, "CU_ERR_MODEL_INVALID", "the file is empty", 0);
  assert_int_equal(unlink(path), 0);
  refused(path, "CU_ERR_IO", "No such file", 0);
  refused(folder, "CU_ERR_IO", "not a regular file", 0);
  refused("/dev/null", "CU_ERR_IO", "not a regular file", 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  refused(path, "CU_ERR_IO", "not a regular file", 0);
  assert_int_equal(unlink(path), 0);
}

static void graphs(void **state) {
  struct onnx_case c;
  (void)state;
  begin(&c);
  cuvil_builder_node(c.b, "Add", "first", "x,b", "a");
  cuvil_builder_node(c.b, "Relu", "second", "a", "b");
  cuvil_builder_node(c.b, "Relu", "third", "b", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", "cycle: node \"", 0);
  onnx_begin(&c, 0);
  onnx_input(&c, "x", 1, DIMS(4));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", "node \"act\" (Relu): the", 0);
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 2, DIMS(4, -4));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", "input \"x\": dimension 1", 0);
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 2, DIMS((int64_t)1 << 40, (int64_t)1 << 40));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", "input \"x\": its dim", 0);
  begin(&c);
  cuvil_builder_raw_initializer(c.b, "w", 777, 1, DIMS(4), folder, 16);
  cuvil_builder_node(c.b, "Add", "add", "x,w", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", "initializer \"w\": data", 0);
  begin(&c);
  cuvil_builder_node(c.b, "Reshape", "to\nall\x1b[1m", "x", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", "(Reshape)", 0);
}

/* Every node is listed: operator, count, reason, names. */
static void unsupported(void **state) {
  struct onnx_case c;
  char line[3000];
  struct cuvil_buf err;
  (void)state;
  begin(&c);
  cuvil_builder_node(c.b, "Frob", "f1", "x", "a");
  cuvil_builder_node(c.b, "Zork", "z", "a", "b");
  cuvil_builder_node(c.b, "Frob", "f2", "b", "y");
  onnx_output(&c, "y");
  assert_int_equal(cuvil_builder_write(c.b, c.path), CUVIL_OK);
  refused(c.path, "CU_ERR_MODEL_UNSUPPORTED", "3 nodes", 3);
  snprintf(line, sizeof line, "%s/cuvil-compile --arch sm_90 -o %s %s", bin(),
           plan, c.path);
  assert_int_equal(shell(line, &err), 1);
  assert_non_null(strstr(err.data, "2  no such operator  f1, f2\n"));
  assert_non_null(strstr(err.data, "1  no such operator  z\n"));
  cuvil_buf_free(&err);
  onnx_end(&c);
}

/* Fusion refuses what the importer and the CPU can do: file and node again. */
static void too_large_to_compile(void **state) {
  struct onnx_case c;
  char line[3000];
  struct cuvil_buf err;
  (void)state;
  onnx_begin(&c, 13);
  onnx_input(&c, "x", 1, DIMS((int64_t)1 << 36));
  cuvil_builder_node(c.b, "Relu", "act", "x", "y");
  onnx_output(&c, "y");
  assert_int_equal(cuvil_builder_write(c.b, c.path), CUVIL_OK);
  snprintf(line, sizeof line, "%s/cuvil-compile --arch sm_90 -o %s %s", bin(),
           plan, c.path);
  assert_int_equal(shell(line, &err), 1);
  assert_non_null(strstr(err.data, c.path));
  assert_non_null(strstr(err.data, "node \"act\" (Relu): "));
  cuvil_buf_free(&err);
  unchanged(plan, &plan_bytes);
  onnx_end(&c);
}

static void outside(const char *location, const char *offset,
                    const char *part) {
  struct onnx_case c;
  char path[600];
  begin(&c);
  snprintf(path, sizeof path, "%s/w.bin", c.folder);
  assert_int_equal(cuvil_file_write_atomic(path, folder, 64), CUVIL_OK);
  snprintf(path, sizeof path, "%s/link.bin", c.folder);
  assert_int_equal(symlink(plan, path), 0);
  cuvil_builder_external_initializer(c.b, "w", 2, DIMS(4, 4), location, offset,
                                     "64");
  cuvil_builder_node(c.b, "Add", "add", "x,w", "y");
  write_and_refuse(&c, "CU_ERR_MODEL_INVALID", part, 0);
}

static void external_data(void **state) {
  (void)state;
  outside("../good.plan", "0", "\"w\": its external data \"../good.plan\" is");
  outside(plan, "0", "is not below the model's folder");
  outside("link.bin", "0", "by a symbolic link");
  outside("w.bin", "16", "goes past the end of \"w.bin\"");
  outside("w.bin", "18446744073709551600", "\"w\": ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files),         cmocka_unit_test(graphs),
      cmocka_unit_test(unsupported),   cmocka_unit_test(too_large_to_compile),
      cmocka_unit_test(external_data),
  };
  return cmocka_run_group_tests(tests, make_good, drop_good);
}
