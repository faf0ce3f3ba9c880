/* run_io_test.c - the tensors that cuvil-run reads, compares and writes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "cli/run_device.h"
#include "cli/run_io.h"
#include "graph/tensor_file.h"

#define MUST(expression)                                   \
  do {                                                     \
    if ((expression) != CUVIL_OK)                          \
      fail_msg("%s: %s", #expression, cuvil_last_error()); \
  } while (0)

static char name_x[] = "x:0", name_y[] = "y", name_out[] = "out/1";
static struct cuvil_plan_tensor inputs[2] = {
    {.name = name_x, .dtype = CUVIL_F32, .rank = 1, .dims = {4}, .bytes = 16},
    {.name = name_y,
     .dtype = CUVIL_F32,
     .rank = 2,
     .dims = {1, 2},
     .bytes = 8}};
static struct cuvil_plan_tensor outputs[1] = {{.name = name_out,
                                               .dtype = CUVIL_F32,
                                               .rank = 1,
                                               .dims = {4},
                                               .bytes = 16}};
static const int64_t four[1] = {4}, pair[2] = {1, 2};

static char folder[512];

static int make_folder(void **state) {
  (void)state;
  const char *tmp = getenv("CUVIL_TEST_TMP");
  snprintf(folder, sizeof(folder), "%s/cuvil-run-io-%d", tmp ? tmp : "/tmp",
           (int)getpid());
  return cuvil_make_dirs(folder) == CUVIL_OK ? 0 : -1;
}

static const char *in_folder(const char *name) {
  static char path[1024];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return path;
}

static void create(struct cuvil_run_io *io) {
  MUST(cuvil_run_io_create(2, inputs, 1, outputs, 1, io));
}

static void inputs_by_name(void **state) {
  (void)state;
  struct cuvil_run_io io;
  float numbers[4] = {1, 2, 3, 4};
  char text[1200];
  create(&io);
  MUST(cuvil_tensor_write_npy(in_folder("x.npy"), CUVIL_F32, 1, four, numbers));
  snprintf(text, sizeof(text), "x:0:%s", in_folder("x.npy"));
  MUST(cuvil_run_io_load(&io, text));
  assert_memory_equal(io.in[0], numbers, 16);
  /* The same file is not a y: its shape differs. */
  snprintf(text, sizeof(text), "y:%s", in_folder("x.npy"));
  assert_int_equal(cuvil_run_io_load(&io, text), CU_ERR_INVALID_TENSOR_LAYOUT);
  assert_non_null(strstr(cuvil_last_error(), "`y`"));
  assert_int_equal(cuvil_run_io_load(&io, "z:file"), CU_ERR_INVALID_ARGUMENT);
  cuvil_run_io_free(&io);
}

static void random_inputs_follow_the_seed(void **state) {
  (void)state;
  struct cuvil_run_io a, b, c;
  create(&a);
  create(&b);
  MUST(cuvil_run_io_create(2, inputs, 1, outputs, 2, &c));
  assert_memory_equal(a.in[0], b.in[0], 16);
  assert_memory_not_equal(a.in[0], c.in[0], 16);
  assert_memory_not_equal(a.in[0], a.in[1], 8);
  cuvil_run_io_free(&a);
  cuvil_run_io_free(&b);
  cuvil_run_io_free(&c);
}

static void test_data_by_name_and_number(void **state) {
  (void)state;
  struct cuvil_run_io io;
  float x[4] = {1, 2, 3, 4}, y[2] = {5, 6}, out[4] = {7, 8, 9, 10};
  create(&io);
  assert_int_equal(cuvil_run_io_test_data(&io, in_folder("none")), CU_ERR_IO);
  /* Out of order, told by their names; the output has none. */
  MUST(cuvil_tensor_write_pb(in_folder("input_0.pb"), "y", CUVIL_F32, 2, pair,
                             y));
  MUST(cuvil_tensor_write_pb(in_folder("input_1.pb"), "x:0", CUVIL_F32, 1, four,
                             x));
  MUST(cuvil_tensor_write_pb(in_folder("output_0.pb"), "", CUVIL_F32, 1, four,
                             out));
  MUST(cuvil_run_io_test_data(&io, folder));
  assert_memory_equal(io.in[0], x, 16);
  assert_memory_equal(io.in[1], y, 8);
  assert_memory_equal(io.expected[0], out, 16);
  cuvil_run_io_free(&io);
}

static enum cuvil_status compare(const float *got, const float *expected,
                                 struct cuvil_run_tolerance tolerance) {
  struct cuvil_run_io io;
  create(&io);
  io.expected[0] = malloc(16);
  memcpy(io.expected[0], expected, 16);
  memcpy(io.out[0], got, 16);
  io.compared_with = "the test";
  FILE *nowhere = fopen("/dev/null", "w");
  json_t *rows = json_array();
  enum cuvil_status status =
      cuvil_run_io_compare(&io, &tolerance, nowhere, rows);
  assert_int_equal(json_array_size(rows), 1);
  assert_int_equal(
      json_is_true(json_object_get(json_array_get(rows, 0), "pass")),
      status == CUVIL_OK);
  json_decref(rows);
  fclose(nowhere);
  cuvil_run_io_free(&io);
  return status;
}

static void answers_are_judged(void **state) {
  (void)state;
  static const float expected[4] = {1, -2, 0, 100};
  struct cuvil_run_tolerance l2 = {.relative_l2 = 1e-2};
  struct cuvil_run_tolerance each = {.elementwise = true, .atol = 0.01};
  struct cuvil_run_tolerance wide = {
      .elementwise = true, .rtol = 0.5, .atol = 1};
  assert_int_equal(compare(expected, expected, l2), CUVIL_OK);
  float small[4] = {1.5f, -2, 0, 100}; /* 0.005 of the norm */
  assert_int_equal(compare(small, expected, l2), CUVIL_OK);
  assert_int_equal(compare(small, expected, each), CU_ERR_VERIFY_FAILED);
  assert_int_equal(compare(small, expected, wide), CUVIL_OK);
  float large[4] = {1, -2, 0, 98};
  assert_int_equal(compare(large, expected, l2), CU_ERR_VERIFY_FAILED);
  float broken[4] = {1, -2, NAN, 100};
  assert_int_equal(compare(broken, expected, l2), CU_ERR_VERIFY_FAILED);
  assert_int_equal(compare(broken, expected, wide), CU_ERR_VERIFY_FAILED);
  float infinite[4] = {INFINITY, -2, 0, 100};
  assert_int_equal(compare(infinite, expected, wide), CU_ERR_VERIFY_FAILED);
  static const float odd[4] = {INFINITY, NAN, 0, 1};
  assert_int_equal(compare(odd, odd, each), CUVIL_OK);
}

static void outputs_are_written(void **state) {
  (void)state;
  struct cuvil_run_io io;
  struct cuvil_tensor_file file = {0};
  create(&io);
  memcpy(io.out[0], (float[]){1, 2, 3, 4}, 16);
  MUST(cuvil_run_io_save(&io, in_folder("saved")));
  MUST(cuvil_tensor_read(in_folder("saved/out_1.npy"), &file));
  assert_int_equal(file.rank, 1);
  assert_int_equal(file.dims[0], 4);
  assert_memory_equal(file.data, io.out[0], 16);
  cuvil_tensor_file_free(&file);
  cuvil_run_io_free(&io);
}

static void amounts(void **state) {
  (void)state;
  struct cuvil_run_amount amount;
  MUST(cuvil_run_amount_parse("--warmup", "20", &amount));
  assert_int_equal(amount.count, 20);
  assert_true(amount.seconds == 0);
  MUST(cuvil_run_amount_parse("--warmup", "500ms", &amount));
  assert_true(amount.seconds == 0.5);
  assert_int_equal(amount.count, 0);
  assert_int_equal(cuvil_run_amount_parse("--warmup", "-1", &amount),
                   CU_ERR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_by_name),
      cmocka_unit_test(random_inputs_follow_the_seed),
      cmocka_unit_test(test_data_by_name_and_number),
      cmocka_unit_test(answers_are_judged),
      cmocka_unit_test(outputs_are_written),
      cmocka_unit_test(amounts),
  };
  return cmocka_run_group_tests(tests, make_folder, NULL);
}
