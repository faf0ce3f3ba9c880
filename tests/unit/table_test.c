/* table_test.c - results of another program, read as it writes them (a small
 * brute force made up here, in the form of Kernel Tuner's public files). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tuner/table.h"

#define HEAD                                                               \
  "{\"device_name\":\"A100\",\"kernel_name\":\"stencil\","                 \
  "\"problem_size\":[4096,512],"                                           \
  "\"tune_params_keys\":[\"block\",\"unroll\",\"path\"],"                  \
  "\"tune_params\":{\"block\":[32,64],\"unroll\":[1,2.5],\"path\":[\"a\"," \
  "\"b\"]},\"objective\":\"time\",\"cache\":{"
#define ENTRY(key, block, unroll, path, time)                               \
  "\"" key "\":{\"block\":" block ",\"unroll\":" unroll ",\"path\":\"" path \
  "\",\"time\":" time                                                       \
  ",\"times\":[1],\"compile_time\":200,"                                    \
  "\"verification_time\":0,\"benchmark_time\":50,\"timestamp\":\"2024\"}"

static enum cuvil_status read_text(const char *text, struct cuvil_table *out) {
  json_t *file = NULL;
  assert_int_equal(cuvil_json_parse(text, strlen(text), "t.json", &file),
                   CUVIL_OK);
  assert_true(cuvil_table_is(file));
  enum cuvil_status status = cuvil_table_read(file, "t.json", out);
  json_decref(file);
  return status;
}

static void a_cache_is_read(void **state) {
  struct cuvil_table table;
  (void)state;
  assert_int_equal(
      read_text(HEAD ENTRY("64,1,a", "64", "1", "a", "2.5") "," ENTRY(
                    "32,2.5,b", "32", "2.5", "b",
                    "0.5") "," ENTRY("32,1,a", "32", "1", "a",
                                     "\"Runtime"
                                     "FailedConfi"
                                     "g\"") "}}",
                &table),
      CUVIL_OK);
  assert_string_equal(table.kernel, "stencil");
  assert_string_equal(table.device, "A100");
  assert_string_equal(table.size, "4096x512");
  assert_int_equal(table.count, 3);
  assert_int_equal(table.failed, 1);
  assert_int_equal(table.best, 1);
  assert_string_equal(table.configs[1], "block=32,unroll=2.5,path=b");
  assert_true(fabs(table.seconds[1] - 0.5e-3) < 1e-12);
  assert_true(isinf(table.seconds[2]));
  assert_true(fabs(table.cost[0] - 0.25) < 1e-12);
  static const unsigned char digits[3][3] = {{1, 0, 0}, {0, 1, 1}, {0, 0, 0}};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(table.sites[i].params, 3);
    assert_memory_equal(table.sites[i].digit, digits[i], 3);
  }
  cuvil_table_free(&table);
}

static void t4_is_read(void **state) {
  struct cuvil_table table;
  (void)state;
  assert_int_equal(
      read_text(
          "{\"schema_version\":\"1.0.0\",\"metadata\":{\"timeunit\":"
          "\"miliseconds\"},\"results\":["
          "{\"configuration\":{\"x\":2,\"fast\":true},\"objectives\":"
          "[\"time\"],\"times\":{\"compilation\":100,\"runtimes\":[3]},"
          "\"invalidity\":\"correct\",\"correctness\":1,\"measurements\":["
          "{\"name\":\"GFLOP/s\",\"value\":9,\"unit\":\"GFLOP/s\"},"
          "{\"name\":\"time\",\"value\":3,\"unit\":\"\"}]},"
          "{\"configuration\":{\"x\":1,\"fast\":false},\"objectives\":"
          "[\"time\"],\"times\":{\"compilation_time\":50},\"measurements\":["
          "{\"name\":\"time\",\"value\":2000,\"unit\":\"microseconds\"}]},"
          "{\"configuration\":{\"x\":4,\"fast\":false},\"objectives\":"
          "[\"time\"],\"times\":{},\"correctness\":0,\"measurements\":["
          "{\"name\":\"time\",\"value\":\"RuntimeFailedConfig\",\"unit\":"
          "\"\"}]}]}",
          &table),
      CUVIL_OK);
  assert_int_equal(table.count, 3);
  assert_int_equal(table.failed, 1);
  assert_int_equal(table.best, 1);
  assert_true(fabs(table.seconds[0] - 3e-3) < 1e-12);
  assert_true(fabs(table.seconds[1] - 2e-3) < 1e-12);
  assert_true(fabs(table.cost[1] - 0.05) < 1e-12);
  assert_string_equal(table.configs[0], "x=2,fast=true");
  assert_int_equal(table.sites[2].digit[0], 2);
  cuvil_table_free(&table);
}

static void what_is_wrong_is_said(void **state) {
  static const struct {
    const char *text, *says;
    enum cuvil_status status;
  } bad[] = {
      {HEAD "}}", "no configuration", CU_ERR_PARSE},
      {HEAD ENTRY("a", "[1]", "1", "a", "1") "}}",
       "entry a: \"block\" is no number", CU_ERR_PARSE},
      {HEAD ENTRY("a", "1", "1", "a", "-1") "}}", "a time of -1", CU_ERR_PARSE},
      {HEAD ENTRY("a", "1", "1", "a", "0") "}}", "a time of 0", CU_ERR_PARSE},
      {HEAD ENTRY("a", "1", "1", "a", "\"x\"") "}}", "none of 1",
       CU_ERR_CANDIDATE_FAILED},
      {"{\"tune_params_keys\":[1],\"cache\":{\"a\":{}}}", "not names",
       CU_ERR_PARSE},
      {"{\"schema_version\":\"1.0.0\",\"results\":[{\"configuration\":{\"x\":"
       "1},\"measurements\":[{\"name\":\"time\",\"value\":1,\"unit\":\"bananas"
       "\"}]}]}",
       "\"bananas\" is no unit", CU_ERR_UNSUPPORTED},
      {"{\"schema_version\":\"1.0.0\",\"results\":[]}", "no configuration",
       CU_ERR_PARSE},
      {"{\"schema_version\":\"1.0.0\",\"results\":[{\"configuration\":{\"x\":"
       "1}},{\"configuration\":{}}]}",
       "result 1: \"x\" is no number", CU_ERR_PARSE},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct cuvil_table table;
    enum cuvil_status status = read_text(bad[i].text, &table);
    if (status != bad[i].status || !strstr(cuvil_last_error(), bad[i].says))
      fail_msg("case %zu: %d %s", i, (int)status, cuvil_last_error());
  }
}

static void others_are_no_table(void **state) {
  static const char *const texts[] = {
      "{}", "[]", "{\"cache\":{}}",
      "{\"schema_version\":\"1.0.0\",\"metadata\":{\"cuvil\":{\"recording\":1}}"
      ",\"results\":[]}"};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    json_t *file = NULL;
    assert_int_equal(
        cuvil_json_parse(texts[i], strlen(texts[i]), "t.json", &file),
        CUVIL_OK);
    assert_false(cuvil_table_is(file));
    json_decref(file);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cache_is_read),
      cmocka_unit_test(t4_is_read),
      cmocka_unit_test(what_is_wrong_is_said),
      cmocka_unit_test(others_are_no_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
