/* plan_test.c - a plan comes back from its file as it went, and no damaged
 * file comes back at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* cmocka wants the standard headers first. */
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "tests/support/fake_gpu.h"

#define OK(expression) assert_int_equal((expression), CUVIL_OK)

static char plan_path[256], torn_path[64];
static int torn_fd; /* in memory: the test writes it a thousand times */
static struct cuvil_buf file; /* a good plan's bytes */

static int set_up(void **state) {
  (void)state;
  const char *folder = getenv("CUVIL_TEST_TMP");
  if (!folder) folder = "/tmp";
  snprintf(plan_path, sizeof plan_path, "%s/plan_test.%d", folder,
           (int)getpid());
  torn_fd = memfd_create("torn", MFD_CLOEXEC);
  if (torn_fd < 0) return -1;
  snprintf(torn_path, sizeof torn_path, "/proc/self/fd/%d", torn_fd);
  struct cuvil_plan *plan = fake_gpu_plan();
  if (cuvil_plan_write(plan, plan_path) != CUVIL_OK) return -1;
  cuvil_plan_destroy(plan);
  return cuvil_file_read(plan_path, &file) == CUVIL_OK ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  cuvil_buf_free(&file);
  unlink(plan_path);
  close(torn_fd);
  return 0;
}

static void same_program(const struct cuvil_program *a,
                         const struct cuvil_program *b) {
  json_t *left, *right;
  OK(cuvil_program_to_json(a, &left));
  OK(cuvil_program_to_json(b, &right));
  assert_true(json_equal(left, right));
  json_decref(left);
  json_decref(right);
  for (int i = 0; i < a->module_count; i++) {
    assert_int_equal(a->modules[i].cubin_size, b->modules[i].cubin_size);
    assert_memory_equal(a->modules[i].cubin, b->modules[i].cubin,
                        a->modules[i].cubin_size);
  }
}

static void test_round_trip(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan(), *back;
  OK(cuvil_plan_read(plan_path, &back));
  assert_string_equal(back->arch, "sm_90");
  assert_string_equal(back->model, "sample.onnx");
  assert_string_equal(back->inputs[0].name, "x");
  assert_int_equal(back->outputs[0].dims[1], 16);
  assert_int_equal(back->step_count, plan->step_count);
  for (int i = 0; i < plan->step_count; i++) {
    const struct cuvil_plan_step *a = &plan->steps[i], *b = &back->steps[i];
    same_program(a->program, b->program);
    assert_string_equal(a->label, b->label);
    assert_string_equal(b->origin, "exact");
    assert_true(b->expected_seconds == a->expected_seconds);
    for (int j = 0; j < a->program->buffer_count; j++)
      assert_memory_equal(&a->bindings[j], &b->bindings[j],
                          sizeof a->bindings[j]);
  }
  assert_int_equal(back->weights_bytes, 1024);
  assert_memory_equal(back->weights, plan->weights, 1024);
  assert_int_equal((uintptr_t)back->weights % 4096, 0);
  cuvil_plan_destroy(plan);
  cuvil_plan_destroy(back);
}

/* The same cubin is in the file once: header, manifest, cubins "one" and
 * "two" of 67 bytes each, 64-aligned, then the weights' page. */
static void test_cubins_once(void **state) {
  (void)state;
  int elf = 0;
  for (size_t i = 0; i + 4 < file.size; i++)
    elf += memcmp(file.data + i, "\177ELF", 4) == 0;
  assert_int_equal(elf, 2);
  assert_int_equal(file.size % 4096, 1024);
}

/* Writes the bytes, reads them as a plan, and holds the refusal. */
static void refused(const void *bytes, size_t size, const char *what) {
  struct cuvil_plan *plan;
  assert_int_equal(ftruncate(torn_fd, (off_t)size), 0);
  assert_int_equal(pwrite(torn_fd, bytes, size, 0), size);
  enum cuvil_status status = cuvil_plan_read(torn_path, &plan);
  if (status != CU_ERR_VERSION_MISMATCH || plan)
    fail_msg("%s: answered with %s: %s", what, cuvil_status_name(status),
             cuvil_last_error());
  assert_non_null(strstr(cuvil_last_error(), torn_path));
}

static void test_flipped_bits(void **state) {
  (void)state;
  struct cuvil_rng rng = {3};
  /* The head byte by byte, the rest at sampled places. */
  for (size_t i = 0; i < file.size;
       i += i < 160 ? 1 : 1 + cuvil_rng_below(&rng, 24)) {
    char what[64];
    snprintf(what, sizeof what, "flipped bit in byte %zu", i);
    char kept = file.data[i];
    file.data[i] = (char)(kept ^ (1 << cuvil_rng_below(&rng, 8)));
    refused(file.data, file.size, what);
    file.data[i] = kept;
  }
}

static void refused_naming(size_t at, const char *expected) {
  file.data[at] ^= 4;
  refused(file.data, file.size, expected);
  file.data[at] ^= 4;
  if (!strstr(cuvil_last_error(), expected))
    fail_msg("'%s' does not say '%s'", cuvil_last_error(), expected);
}

static void test_names_the_part(void **state) {
  (void)state;
  refused_naming(0, "magic");
  refused_naming(8, "version 5");
  refused_naming(20, "header");
  refused_naming(200, "manifest");
  const char *elf = memmem(file.data, file.size, "\177ELF", 4);
  assert_non_null(elf);
  refused_naming((size_t)(elf - file.data) + 50, "cubins");
  refused_naming(file.size - 1024 - 1, "cubins"); /* the gap before weights */
  refused_naming(file.size - 1, "weights");
}

static void test_truncated(void **state) {
  (void)state;
  for (size_t size = 0; size < file.size; size += size < 300 ? 1 : 29) {
    char what[64];
    snprintf(what, sizeof what, "truncated to %zu bytes", size);
    refused(file.data, size, what);
  }
  refused(file.data, file.size - 1, "one byte short");
  struct cuvil_buf longer = {0};
  cuvil_buf_add(&longer, file.data, file.size);
  cuvil_buf_add(&longer, "", 1);
  refused(longer.data, longer.size, "one byte more");
  cuvil_buf_free(&longer);
}

static void test_other_files(void **state) {
  (void)state;
  struct cuvil_plan *plan;
  assert_int_equal(cuvil_plan_read("/nonexistent/plan", &plan), CU_ERR_IO);
  assert_int_equal(cuvil_plan_read("/", &plan), CU_ERR_IO);
  refused(
      "\x7f"
      "ELF and so on",
      14, "an ELF file");
}

/* What a compiler could get wrong is refused before it is written, and the
 * file that was there stays. */
static void test_write_refuses(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan(), *back;
  struct cuvil_binding *binding = &plan->steps[0].bindings[1];
  binding->offset = 1808;
  assert_int_equal(cuvil_plan_write(plan, plan_path), CU_ERR_INVALID_ARGUMENT);
  binding->offset = 9;
  assert_int_equal(cuvil_plan_write(plan, plan_path), CU_ERR_INVALID_ARGUMENT);
  binding->offset = 0;
  binding->place = CUVIL_PLACE_ZEROED;
  assert_int_equal(cuvil_plan_write(plan, plan_path), CU_ERR_INVALID_ARGUMENT);
  binding->place = CUVIL_PLACE_INPUT;
  binding->index = 1;
  assert_int_equal(cuvil_plan_write(plan, plan_path), CU_ERR_INVALID_ARGUMENT);
  binding->index = 0;
  plan->inputs[0].bytes = 128;
  assert_int_equal(cuvil_plan_write(plan, plan_path), CU_ERR_INVALID_ARGUMENT);
  plan->inputs[0].bytes = 256;
  assert_int_equal(cuvil_plan_write(plan, "/nonexistent/plan"), CU_ERR_IO);
  free(plan->steps[0].program->modules[0].cubin);
  plan->steps[0].program->modules[0].cubin = NULL;
  assert_int_equal(cuvil_plan_write(plan, plan_path), CU_ERR_INTERNAL);
  OK(cuvil_plan_read(plan_path, &back));
  cuvil_plan_destroy(back);
  cuvil_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_cubins_once),
      cmocka_unit_test(test_flipped_bits),
      cmocka_unit_test(test_names_the_part),
      cmocka_unit_test(test_truncated),
      cmocka_unit_test(test_other_files),
      cmocka_unit_test(test_write_refuses),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
