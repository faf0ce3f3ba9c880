/* Recordings: written and read back the same, plain and compressed; a damaged
 * file is refused by name, whatever the damage. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/support/synthetic.h"

static const char *const problems[] = {
    "gemm/1 m=512 n=512 k=512 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32",
    "gemm/1 m=77 n=13 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32"};
static struct cuvil_recording *made;
static char folder[512];

static int make(void **state) {
  const char *root = getenv("CUVIL_TEST_TMP");
  (void)state;
  snprintf(folder, sizeof folder, "%s/recording.XXXXXX", root ? root : "/tmp");
  assert_non_null(mkdtemp(folder));
  synthetic_recording(problems, 2, 12, 3, &made, NULL);
  return 0;
}

static int forget(void **state) {
  (void)state;
  cuvil_recording_destroy(made);
  return 0;
}

static struct cuvil_recording *through(const char *name) {
  char path[600];
  struct cuvil_recording *read = NULL;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(cuvil_recording_write(made, path), CUVIL_OK);
  if (cuvil_recording_read(path, &read) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  return read;
}

static void is_equal(const struct cuvil_record *a,
                     const struct cuvil_record *b) {
  assert_string_equal(a->family, b->family);
  assert_string_equal(a->config, b->config);
  assert_int_equal(a->problem, b->problem);
  assert_int_equal(a->version, b->version);
  assert_int_equal(a->choice, b->choice);
  assert_int_equal(a->outcome.ok, b->outcome.ok);
  assert_string_equal(a->outcome.reason, b->outcome.reason);
  assert_string_equal(a->compiled.hash, b->compiled.hash);
  assert_int_equal(a->compiled.registers, b->compiled.registers);
  assert_int_equal(a->block_count, b->block_count);
  for (int i = 0; i < a->block_count; i++) {
    assert_int_equal(a->rounds[i], b->rounds[i]);
    assert_true(fabs(a->seconds[i] / b->seconds[i] - 1) < 1e-6);
  }
}

static void reads_back_the_same(void **state) {
  static const char *const names[] = {"plain.t4.json", "packed.t4.json.zst"};
  (void)state;
  for (int n = 0; n < 2; n++) {
    struct cuvil_recording *read = through(names[n]);
    assert_string_equal(read->env.gpu, "synthetic");
    assert_string_equal(read->arch.name, "sm_90");
    assert_memory_equal(&read->arch, &made->arch, sizeof made->arch);
    assert_int_equal(read->problem_count, 2);
    assert_string_equal(read->problems[1].text, problems[1]);
    assert_int_equal(read->record_count, made->record_count);
    for (int i = 0; i < read->record_count; i++) {
      is_equal(&made->records[i], &read->records[i]);
      const struct cuvil_record *r = &read->records[i];
      assert_ptr_equal(
          cuvil_recording_find(read, r->problem, r->family, r->config), r);
    }
    assert_null(cuvil_recording_find(read, 0, "nobody", "x=0"));
    assert_int_equal(cuvil_recording_problem(read, problems[1]), 1);
    assert_int_equal(cuvil_recording_problem(read, "gemm/1"), -1);
    cuvil_recording_destroy(read);
  }
}

/* What the tuning community's readers look at (T4, schema 1.0.0). */
static void is_t4(void **state) {
  char path[600];
  json_t *file = NULL;
  (void)state;
  snprintf(path, sizeof path, "%s/t4.t4.json", folder);
  assert_int_equal(cuvil_recording_write(made, path), CUVIL_OK);
  assert_int_equal(cuvil_json_read(path, &file), CUVIL_OK);
  assert_string_equal(
      json_string_value(json_object_get(file, "schema_version")), "1.0.0");
  const json_t *results = json_object_get(file, "results");
  assert_int_equal(json_array_size(results), made->record_count);
  int wrong = 0;
  for (size_t i = 0; i < json_array_size(results); i++) {
    const json_t *r = json_array_get(results, i);
    const char *invalidity =
        json_string_value(json_object_get(r, "invalidity"));
    assert_true(json_is_object(json_object_get(r, "configuration")));
    assert_true(json_is_array(
        json_object_get(json_object_get(r, "times"), "runtimes")));
    assert_true(!strcmp(invalidity, "correct") ||
                !strcmp(invalidity, "correctness"));
    wrong += !strcmp(invalidity, "correctness");
  }
  assert_true(wrong >= 1);
  json_decref(file);
}

static void damage_is_refused(void **state) {
  char path[600];
  struct cuvil_buf bytes = {0};
  struct cuvil_rng rng = {21};
  int refused = 0;
  (void)state;
  for (int packed = 0; packed < 2; packed++) {
    snprintf(path, sizeof path, "%s/damage.t4.json%s", folder,
             packed ? ".zst" : "");
    assert_int_equal(cuvil_recording_write(made, path), CUVIL_OK);
    assert_int_equal(cuvil_file_read(path, &bytes), CUVIL_OK);
    for (int i = 0; i < 60; i++) {
      struct cuvil_recording *read = NULL;
      char *copy = malloc(bytes.size);
      size_t size = bytes.size;
      memcpy(copy, bytes.data, size);
      if (i % 2)
        size = cuvil_rng_below(&rng, size); /* cut short */
      else
        copy[cuvil_rng_below(&rng, size)] ^=
            (char)(1 + cuvil_rng_below(&rng, 255));
      enum cuvil_status status =
          cuvil_recording_parse(copy, size, "damaged", &read);
      if (status != CUVIL_OK) {
        assert_null(read);
        assert_non_null(strstr(cuvil_last_error(), "damaged"));
        refused++;
      } else {
        assert_int_equal(i % 2, 0); /* a changed letter may still be valid */
      }
      cuvil_recording_destroy(read);
      free(copy);
    }
    cuvil_buf_free(&bytes);
  }
  assert_true(refused > 70);
}

static void other_versions_are_refused(void **state) {
  struct cuvil_recording *read = NULL;
  static const char other[] =
      "{\"schema_version\": \"1.0.0\", \"results\": [], \"metadata\": "
      "{\"cuvil\": {\"recording\": 2}}}";
  static const char foreign[] =
      "{\"schema_version\": \"1.0.0\", \"results\": []}";
  (void)state;
  assert_int_equal(
      cuvil_recording_parse(other, sizeof other - 1, "other", &read),
      CU_ERR_VERSION_MISMATCH);
  assert_int_equal(
      cuvil_recording_parse(foreign, sizeof foreign - 1, "foreign", &read),
      CU_ERR_PARSE);
}

static void twice_is_refused(void **state) {
  struct cuvil_recording *recording = NULL;
  (void)state;
  assert_int_equal(cuvil_recording_create(NULL, NULL, 1, &recording), CUVIL_OK);
  for (int i = 0; i < 2; i++) {
    struct cuvil_record record = {.family = strdup("a"),
                                  .config = strdup("x=1")};
    assert_int_equal(cuvil_recording_push(recording, &record),
                     i ? CU_ERR_PARSE : CUVIL_OK);
  }
  assert_int_equal(recording->record_count, 1);
  cuvil_recording_destroy(recording);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_back_the_same),
      cmocka_unit_test(is_t4),
      cmocka_unit_test(damage_is_refused),
      cmocka_unit_test(other_versions_are_refused),
      cmocka_unit_test(twice_is_refused),
  };
  return cmocka_run_group_tests(tests, make, forget);
}
