/* Evidence that leaves in another program's format comes back as it was, or
 * not at all. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* Times that milliseconds cannot carry, a fault that was not measured, a
 * message cut inside a character, two GPUs, both sources; no race. */
static struct cuvil_db *make_evidence(int slot) {
  struct cuvil_db *db = open_new(slot);
  struct cuvil_env other = sample_env;
  snprintf(other.gpu, sizeof other.gpu, "%s", "NVIDIA A100");
  snprintf(other.arch, sizeof other.arch, "%s", "sm_80");
  other.cudnn[0] = '\0';
  struct cuvil_db_context contexts[2] = {
      sample_context(&sample_env, "measured"),
      sample_context(&other, "replayed")};
  struct sample_problem p = sample_gemm(47);
  for (int i = 0; i < 40; i++) {
    char config[32];
    snprintf(config, sizeof config, "tile=%d,stages=%d", 16 << i % 4, i / 4);
    sample_measure(db, &contexts[i % 2], &p, "gemm_mma", config,
                   1e-5 * (1 + i / 7.0));
  }
  const double block = 3.1e-6;
  const int round = -1;
  struct cuvil_db_measurement m = {
      .candidate = {p.text, p.signature, "gemm_cublaslt", 2, ""},
      .cubin_hash = "",
      .worst_ratio = NAN,
      .blocks = &block,
      .rounds = &round,
      .block_count = 1,
      .median = block,
      .low = block,
      .high = block};
  assert_int_equal(cuvil_db_add_measurement(db, &contexts[0], &m), CUVIL_OK);
  sample_fail(db, &contexts[0], &p, "tile=256,stages=9", "spill");
  struct cuvil_db_failure failure = {
      .candidate = {p.text, p.signature, "gemm_mma", 1, "tile=512,stages=1"},
      .reason = "compile",
      .detail = "\xc3\xa4 cut: \xc3"};
  assert_int_equal(cuvil_db_add_failure(db, &contexts[1], &failure), CUVIL_OK);
  return db;
}

static const char *write_text(int slot, const struct cuvil_buf *text) {
  const char *path = sample_path(slot);
  assert_int_equal(cuvil_file_write_atomic(path, text->data, text->size),
                   CUVIL_OK);
  return path;
}

static void expect_same(struct cuvil_db *a, struct cuvil_db *b) {
  char *one = sample_fingerprint(a), *other = sample_fingerprint(b);
  assert_string_equal(one, other);
  free(one);
  free(other);
}

static void t4_comes_back(void **state) {
  (void)state;
  struct cuvil_db *from = make_evidence(0), *to = open_new(1);
  struct cuvil_buf text = {0};
  struct cuvil_db_counts added;
  int findings = -1;
  assert_int_equal(cuvil_db_export_t4(from, NULL, &text), CUVIL_OK);
  const char *path = write_text(2, &text);
  assert_int_equal(cuvil_db_import_t4(to, path, &added), CUVIL_OK);
  assert_int_equal(added.measurements, 41);
  assert_int_equal(added.failures, 2);
  expect_same(from, to);
  assert_int_equal(cuvil_db_verify(to, NULL, NULL, &findings), CUVIL_OK);
  assert_int_equal(findings, 0);
  assert_int_equal(cuvil_db_import_t4(to, path, &added), CUVIL_OK);
  assert_int_equal(added.measurements + added.failures, 0);
  struct cuvil_buf again = {0};
  assert_int_equal(cuvil_db_export_t4(to, NULL, &again), CUVIL_OK);
  assert_string_equal(text.data, again.data);
  cuvil_buf_free(&text);
  cuvil_buf_free(&again);
  cuvil_db_close(from);
  cuvil_db_close(to);
}

/* The exported file with the first `old` replaced (same or other length). */
static const char *changed(const struct cuvil_buf *text, const char *old,
                           const char *with) {
  struct cuvil_buf copy = {0};
  const char *at = strstr(text->data, old);
  assert_non_null(at);
  cuvil_buf_add(&copy, text->data, (size_t)(at - text->data));
  cuvil_buf_puts(&copy, with);
  cuvil_buf_puts(&copy, at + strlen(old));
  const char *path = write_text(3, &copy);
  cuvil_buf_free(&copy);
  return path;
}

static void what_was_changed_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *old, *with;
    enum cuvil_status status;
    const char *says;
  } cases[] = {
      {"\"source\":\"replayed\"", "\"source\":\"measured\"", CU_ERR_DB,
       "result 1: the content's hash"},
      {"\"source\":\"replayed\"", "\"source\":\"guessed\"", CU_ERR_PARSE,
       "result 1: \"source\""},
      {"\"registers\":96", "\"registers\":97", CU_ERR_DB, "the content's hash"},
      {"\"median\":1", "\"median\":2", CU_ERR_INVALID_ARGUMENT, "interval"},
      {"\"seconds\":[", "\"seconds\":[0,", CU_ERR_PARSE, "3 rounds for 4"},
      {"\"problem\":\"gemm/1 m=47", "\"problem\":\"gemm/1  m=47", CU_ERR_PARSE,
       "canonical"},
      {"\"problem\":\"gemm/1 m=47", "\"problem\":\"gemm/9 m=47", CU_ERR_PARSE,
       "result 0: problem"},
      {"\"cuvil\":{", "\"other\":{", CU_ERR_UNSUPPORTED, "result 0: not"},
      {"\"generator\"", "\"cuvil\":{},\"generator\"", CU_ERR_UNSUPPORTED,
       "recording"},
      {"1.0.0", "2.0.0", CU_ERR_VERSION_MISMATCH, "version 2.0.0"},
      {"\"timestamp\":\"2", "\"timestamp\":\"+2", CU_ERR_PARSE, "timestamp"},
      {"\"detail_bytes\":\"", "\"detail_bytes\":\"0", CU_ERR_PARSE,
       "detail_bytes"},
  };
  struct cuvil_db *from = make_evidence(0), *to = open_new(1);
  struct cuvil_buf text = {0};
  struct cuvil_db_stats stats;
  assert_int_equal(cuvil_db_export_t4(from, NULL, &text), CUVIL_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cuvil_db_counts added;
    const char *path = changed(&text, cases[i].old, cases[i].with);
    assert_int_equal(cuvil_db_import_t4(to, path, &added), cases[i].status);
    if (!strstr(cuvil_last_error(), cases[i].says))
      fail_msg("%s is not in %s", cases[i].says, cuvil_last_error());
    assert_int_equal(cuvil_db_stats(to, &stats), CUVIL_OK);
    assert_int_equal(stats.evidence.measurements + stats.evidence.failures, 0);
    assert_int_equal(stats.candidates, 0);
  }
  cuvil_buf_free(&text);
  cuvil_db_close(from);
  cuvil_db_close(to);
}

static enum cuvil_status count_cached(void *user, const char *config) {
  assert_non_null(strstr(config, "tile="));
  ++*(int *)user;
  return CUVIL_OK;
}

static void a_cache_is_of_one_circumstance(void **state) {
  (void)state;
  struct cuvil_db *from = make_evidence(0), *to = open_new(1);
  struct sample_problem p = sample_gemm(47);
  struct cuvil_db_filter filter = {.problem = p.text, .family = "gemm_mma"};
  struct cuvil_buf text = {0};
  struct cuvil_db_counts added;
  assert_int_equal(cuvil_db_export_kernel_tuner(from, &filter, &text),
                   CU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(cuvil_last_error(), "NVIDIA A100"));
  assert_non_null(strstr(cuvil_last_error(), "--gpu"));
  /* Of one configuration, more blocks go before fewer; what was replayed,
   * though faster, is another circumstance. */
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  const double blocks[4] = {7e-6, 8e-6, 7e-6, 8e-6};
  const int rounds[4] = {0, 1, 2, 3};
  struct cuvil_db_measurement m = {
      .candidate = {p.text, p.signature, "gemm_mma", 1, "tile=16,stages=0"},
      .cubin_hash = "",
      .blocks = blocks,
      .rounds = rounds,
      .block_count = 4,
      .median = 7.5e-6,
      .low = 7e-6,
      .high = 8e-6};
  assert_int_equal(cuvil_db_add_measurement(from, &context, &m), CUVIL_OK);
  struct cuvil_db_context replayed = sample_context(&sample_env, "replayed");
  sample_measure(from, &replayed, &p, "gemm_mma", "tile=8,stages=8", 1e-7);
  filter.gpu = "NVIDIA H200";
  assert_int_equal(cuvil_db_export_kernel_tuner(from, &filter, &text),
                   CUVIL_OK);
  assert_non_null(
      strstr(text.data, "\"16,0\":{\"tile\":16,\"stages\":0,\"timestamp\":\""));
  char time[64];
  snprintf(time, sizeof time, "\"time\":%.17g,", 7.5e-6 * 1e3);
  assert_non_null(strstr(text.data, time));
  assert_non_null(strstr(text.data, "\"time\":\"InvalidConfig\""));
  assert_null(strstr(text.data, "\"8,8\""));
  assert_string_equal(text.data + text.size - 3, "}\n}");
  int count = 0;
  assert_int_equal(cuvil_db_each_cached(from, &filter, count_cached, &count),
                   CUVIL_OK);
  assert_int_equal(count, 21);
  const char *path = write_text(2, &text);
  assert_int_equal(cuvil_db_import_kernel_tuner(to, path, &added), CUVIL_OK);
  assert_int_equal(added.measurements, 20);
  assert_int_equal(added.failures, 1);
  const char *copy = cuvil_db_path(to);
  assert_int_equal(cuvil_db_merge(from, copy, &added), CUVIL_OK);
  assert_int_equal(added.measurements + added.failures, 0);
  filter.family = "gemm_simt";
  assert_int_equal(cuvil_db_export_kernel_tuner(from, &filter, &text),
                   CU_ERR_NOT_TUNED);
  cuvil_buf_free(&text);
  cuvil_db_close(from);
  cuvil_db_close(to);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(t4_comes_back),
      cmocka_unit_test(what_was_changed_is_refused),
      cmocka_unit_test(a_cache_is_of_one_circumstance),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
