/* graph_tensor_file_test.c - .npy and TensorProto files, there and back, and
 * files that are neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "graph/tensor_file.h"

static char path[600];

static int set_up(void **state) {
  (void)state;
  const char *tmp = getenv("CUVIL_TEST_TMP");
  snprintf(path, sizeof path, "%s/tensor-%d", tmp != NULL ? tmp : "/tmp",
           (int)getpid());
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  return remove(path);
}

static void every_type_there_and_back(void **state) {
  (void)state;
  static const int64_t dims[3] = {2, 1, 3};
  for (int type = CUVIL_F32; type < CUVIL_DTYPE_COUNT; type++)
    for (int format = 0; format < 2; format++)
      for (int rank = 0; rank <= 3; rank++) {
        enum cuvil_dtype dtype = (enum cuvil_dtype)type;
        size_t count = 1;
        for (int i = 0; i < rank; i++)
          count *= (size_t)dims[i];
        uint64_t data[6];
        for (size_t i = 0; i < count; i++)
          cuvil_store(dtype, data, i, dtype == CUVIL_BOOL ? i % 2 : i * 2);
        assert_int_equal(
            format == 0
                ? cuvil_tensor_write_npy(path, dtype, rank, dims, data)
                : cuvil_tensor_write_pb(path, "name", dtype, rank, dims, data),
            CUVIL_OK);
        struct cuvil_tensor_file t;
        assert_int_equal(cuvil_tensor_read(path, &t), CUVIL_OK);
        assert_int_equal(
            t.dtype, format == 0 && dtype == CUVIL_BF16 ? CUVIL_F32 : dtype);
        assert_int_equal(t.rank, rank);
        assert_int_equal(t.bytes, count * cuvil_dtype_size(t.dtype));
        assert_string_equal(t.name, format == 0 ? "" : "name");
        for (int i = 0; i < rank; i++)
          assert_int_equal(t.dims[i], dims[i]);
        for (size_t i = 0; i < count; i++)
          assert_true(cuvil_load(t.dtype, t.data, i) ==
                      cuvil_load(dtype, data, i));
        cuvil_tensor_file_free(&t);
      }
}

/* Written by numpy 1.24: np.save(f, np.array([[1.5, -2]], 'float32')). */
static const char numpy_file[] =
    "\x93NUMPY\x01\x00\x76\x00"
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }          "
    "                                                \n"
    "\x00\x00\xc0\x3f\x00\x00\x00\xc0";

static void refused(const char *from, const char *to, size_t size,
                    enum cuvil_status status, const char *part) {
  char bytes[sizeof numpy_file];
  memcpy(bytes, numpy_file, sizeof bytes);
  if (from != NULL) {
    char *at = memmem(bytes, sizeof bytes, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
  }
  assert_int_equal(cuvil_file_write_atomic(path, bytes, size), CUVIL_OK);
  struct cuvil_tensor_file t;
  assert_int_equal(cuvil_tensor_read(path, &t), status);
  if (status != CUVIL_OK) {
    assert_non_null(strstr(cuvil_last_error(), path));
    assert_non_null(strstr(cuvil_last_error(), part));
  } else {
    assert_int_equal(t.rank, 2);
    assert_true(((const float *)t.data)[0] == 1.5f);
    assert_true(((const float *)t.data)[1] == -2);
  }
  cuvil_tensor_file_free(&t);
}

static void numpy_files(void **state) {
  (void)state;
  size_t size = sizeof numpy_file - 1;
  assert_int_equal(size, 128 + 8);
  refused(NULL, NULL, size, CUVIL_OK, "");
  for (size_t n = 0; n < size; n++)
    if (n != 0 && n < 6)
      refused(NULL, NULL, n, CU_ERR_MODEL_INVALID, "");
    else if (n >= 6)
      refused(NULL, NULL, n, CU_ERR_PARSE, "");
  refused("<f4", ">f4", size, CU_ERR_UNSUPPORTED, "type");
  refused("<f4", "<c8", size, CU_ERR_UNSUPPORTED, "type");
  refused("False", "True,", size, CU_ERR_UNSUPPORTED, "Fortran");
  refused("(1, 2)", "(3, 2)", size, CU_ERR_PARSE, "needs 24");
  refused("(1, 2)", "(1,-2)", size, CU_ERR_PARSE, "shape");
  refused("(1, 2)", "[1, 2]", size, CU_ERR_PARSE, "shape");
  refused("'shape'", "'shopo'", size, CU_ERR_PARSE, "header");
  refused("\x01", "\x09", size, CU_ERR_UNSUPPORTED, "version");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_there_and_back),
      cmocka_unit_test(numpy_files),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
