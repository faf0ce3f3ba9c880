/* base_test.c - statuses, strings, types, hashes, architecture limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"

static void failing_keeps_number_place_and_message(void **state) {
  (void)state;
  enum cuvil_status status =
      CUVIL_FAIL(CU_ERR_CUDA_LAUNCH_TIMEOUT, "kernel %s", "k");
  assert_int_equal(status, 0x3F);
  assert_int_equal(CU_ERR_GRAPH_BUILD_FAILED, 0x7A);
  assert_int_equal(CU_ERR_INVALID_TENSOR_LAYOUT, 0x5C);
  assert_int_equal(CU_ERR_VERSION_MISMATCH, 0x9E);
  assert_string_equal(cuvil_last_error(), "kernel k");
  assert_string_equal(cuvil_status_name(status), "CU_ERR_CUDA_LAUNCH_TIMEOUT");
  /* A message may quote the one before. */
  CUVIL_IGNORE(CUVIL_FAIL(CU_ERR_IO, "outer: %s", cuvil_last_error()));
  assert_string_equal(cuvil_last_error(), "outer: kernel k");
}

static void durations_and_sizes(void **state) {
  (void)state;
  double seconds;
  uint64_t bytes;
  assert_int_equal(cuvil_parse_duration("500ms", &seconds), CUVIL_OK);
  assert_true(seconds == 0.5);
  assert_int_equal(cuvil_parse_duration("5m", &seconds), CUVIL_OK);
  assert_true(seconds == 300);
  assert_int_equal(cuvil_parse_duration("3x", &seconds),
                   CU_ERR_INVALID_ARGUMENT);
  assert_int_equal(cuvil_parse_duration("-1s", &seconds),
                   CU_ERR_INVALID_ARGUMENT);
  assert_int_equal(cuvil_parse_size("64K", &bytes), CUVIL_OK);
  assert_int_equal(bytes, 65536);
  assert_int_equal(cuvil_parse_size("99999999999999999G", &bytes),
                   CU_ERR_INVALID_ARGUMENT);
}

static void every_half_survives_a_round_trip(void **state) {
  (void)state;
  for (unsigned bits = 0; bits < 65536; bits++) {
    float half = cuvil_f16_to_f32((uint16_t)bits);
    float brain = cuvil_bf16_to_f32((uint16_t)bits);
    if (!isnan(half))
      assert_int_equal(cuvil_f32_to_f16(half), bits);
    else
      assert_true(isnan(cuvil_f16_to_f32(cuvil_f32_to_f16(half))));
    if (!isnan(brain))
      assert_int_equal(cuvil_f32_to_bf16(brain), bits);
    else
      assert_true(isnan(cuvil_bf16_to_f32(cuvil_f32_to_bf16(brain))));
  }
}

static void halves_round_to_nearest_even(void **state) {
  (void)state;
  assert_int_equal(cuvil_f32_to_f16(65504.0f), 0x7bff);
  assert_int_equal(cuvil_f32_to_f16(65519.9f), 0x7bff);
  assert_int_equal(cuvil_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(cuvil_f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
  assert_int_equal(cuvil_f32_to_f16(1.0f + 0x1.8p-10f), 0x3c02);
  assert_int_equal(cuvil_f32_to_f16(0x1p-25f), 0);
  assert_int_equal(cuvil_f32_to_f16(0x1.8p-25f), 1);
  assert_int_equal(cuvil_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  assert_int_equal(cuvil_f32_to_bf16(1.0f + 0x1.8p-7f), 0x3f82);
}

static void stores_saturate_integers(void **state) {
  (void)state;
  int8_t small;
  int64_t large;
  cuvil_store(CUVIL_I8, &small, 0, 300);
  assert_int_equal(small, 127);
  cuvil_store(CUVIL_I64, &large, 0, 1e30);
  assert_true(large > 0x7ffffffffffff000);
}

static void hashes_are_of_content(void **state) {
  (void)state;
  char a[CUVIL_HASH_SIZE], b[CUVIL_HASH_SIZE];
  cuvil_hash_hex("abc", 3, a);
  cuvil_hash_hex("abd", 3, b);
  assert_int_equal(strlen(a), 32);
  assert_string_not_equal(a, b);
  /* XXH3-128 of "abc", as the xxHash command-line tool prints it. */
  assert_string_equal(a, "06b05ab6733a618578af5f94892f3950");
}

static void occupancy_follows_the_limits(void **state) {
  (void)state;
  const struct cuvil_arch *arch = cuvil_arch_find("sm_90");
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 1024, 32, 0), 2);
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 256, 255, 0), 1);
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 128, 128, 0), 4);
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 128, 32, 100 * 1024), 2);
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 128, 32, 227 * 1024), 1);
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 128, 32, 228 * 1024), 0);
  assert_int_equal(cuvil_arch_blocks_per_sm(arch, 2048, 32, 0), 0);
  assert_null(cuvil_arch_find("sm_70"));
}

static void arenas_zero_and_align(void **state) {
  (void)state;
  struct cuvil_arena arena = {0};
  for (size_t size = 0; size < 100000; size = size * 3 + 1) {
    char *p = cuvil_arena_alloc(&arena, size);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (size_t i = 0; i < size; i++)
      assert_int_equal(p[i], 0);
    memset(p, 0xff, size);
  }
  assert_null(cuvil_arena_array(&arena, SIZE_MAX / 2, 8));
  cuvil_arena_free(&arena);
}

static void files_are_written_whole_or_not(void **state) {
  (void)state;
  char folder[] = "/tmp/cuvil-base-XXXXXX";
  assert_non_null(mkdtemp(folder));
  struct cuvil_buf path = {0}, text;
  cuvil_buf_printf(&path, "%s/a/b", folder);
  assert_int_equal(cuvil_make_dirs(path.data), CUVIL_OK);
  cuvil_buf_puts(&path, "/file");
  assert_int_equal(cuvil_file_write_atomic(path.data, "one", 3), CUVIL_OK);
  assert_int_equal(cuvil_file_write_atomic(path.data, "two!", 4), CUVIL_OK);
  assert_int_equal(cuvil_file_read(path.data, &text), CUVIL_OK);
  assert_string_equal(text.data, "two!");
  assert_int_equal(cuvil_file_write_atomic("/nowhere/at/all", "x", 1),
                   CU_ERR_IO);
  assert_int_equal(cuvil_make_dirs(path.data), CU_ERR_IO);
  cuvil_buf_free(&text);
  unlink(path.data);
  cuvil_buf_free(&path);
}

/* Renaming over /dev/null would take it from everybody, over a link only the
 * link. */
static void devices_and_links_stay_what_they_are(void **state) {
  (void)state;
  char folder[] = "/tmp/cuvil-base-XXXXXX", pipe[64], file[64], link[64];
  assert_non_null(mkdtemp(folder));
  snprintf(pipe, sizeof pipe, "%s/pipe", folder);
  snprintf(file, sizeof file, "%s/file", folder);
  snprintf(link, sizeof link, "%s/link", folder);
  assert_int_equal(mkfifo(pipe, 0600), 0);
  int fd = open(pipe, O_RDWR);
  assert_true(fd >= 0);
  assert_int_equal(cuvil_file_write_atomic(pipe, "one", 3), CUVIL_OK);
  char got[8] = "";
  assert_int_equal(read(fd, got, sizeof got), 3);
  assert_memory_equal(got, "one", 3);
  close(fd);
  struct stat there;
  assert_int_equal(lstat(pipe, &there), 0);
  assert_true(S_ISFIFO(there.st_mode));
  assert_int_equal(cuvil_file_write_atomic(file, "old", 3), CUVIL_OK);
  assert_int_equal(symlink("file", link), 0);
  assert_int_equal(cuvil_file_write_atomic(link, "new", 3), CUVIL_OK);
  assert_int_equal(lstat(link, &there), 0);
  assert_true(S_ISLNK(there.st_mode));
  struct cuvil_buf text;
  assert_int_equal(cuvil_file_read(file, &text), CUVIL_OK);
  assert_string_equal(text.data, "new");
  cuvil_buf_free(&text);
  assert_int_equal(cuvil_file_write_atomic(folder, "x", 1), CU_ERR_IO);
  assert_int_equal(cuvil_file_write_atomic("", "x", 1), CU_ERR_IO);
  unlink(pipe);
  unlink(link);
  unlink(file);
  assert_int_equal(rmdir(folder), 0); /* no half of a file is left */
}

static void json_names_the_place(void **state) {
  (void)state;
  json_t *value;
  assert_int_equal(cuvil_json_parse("{\n \"a\": }", 9, "x.json", &value),
                   CU_ERR_PARSE);
  assert_non_null(strstr(cuvil_last_error(), "x.json:2"));
  assert_int_equal(cuvil_json_parse("{\"a\": 1}", 8, "x.json", &value),
                   CUVIL_OK);
  const char *text;
  assert_int_equal(cuvil_json_get_string(value, "a", "x.json", &text),
                   CU_ERR_PARSE);
  int64_t number;
  assert_int_equal(cuvil_json_get_int(value, "a", "x.json", &number), CUVIL_OK);
  assert_int_equal(number, 1);
  json_decref(value);
}

static void random_numbers_are_the_same_everywhere(void **state) {
  (void)state;
  /* The generator's published first values for seed 1234567. */
  struct cuvil_rng rng = {1234567};
  assert_true(cuvil_rng_next(&rng) == 6457827717110365317u);
  assert_true(cuvil_rng_next(&rng) == 3203168211198807973u);
  for (int i = 0; i < 1000; i++)
    assert_true(cuvil_rng_below(&rng, 7) < 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failing_keeps_number_place_and_message),
      cmocka_unit_test(durations_and_sizes),
      cmocka_unit_test(every_half_survives_a_round_trip),
      cmocka_unit_test(halves_round_to_nearest_even),
      cmocka_unit_test(stores_saturate_integers),
      cmocka_unit_test(hashes_are_of_content),
      cmocka_unit_test(occupancy_follows_the_limits),
      cmocka_unit_test(arenas_zero_and_align),
      cmocka_unit_test(files_are_written_whole_or_not),
      cmocka_unit_test(devices_and_links_stay_what_they_are),
      cmocka_unit_test(json_names_the_place),
      cmocka_unit_test(random_numbers_are_the_same_everywhere),
  };
  return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
