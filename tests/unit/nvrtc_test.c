/* nvrtc_test.c - the assembler's report is read right, and the compiler itself
 * compiles for both architectures and words its refusals in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants the four above first. */
#include <cmocka.h>

#include "gpu/gpu.h"
#include "gpu/nvrtc.h"

static const char two_functions[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'small' for 'sm_90a'\n"
    "ptxas info    : Function properties for small\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 10 registers, used 0 barriers\n"
    "ptxas info    : Compiling entry function 'large' for 'sm_90a'\n"
    "ptxas info    : Function properties for large\n"
    "ptxas         .     136 bytes stack frame, 24 bytes spill stores, 36 "
    "bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 1 barriers, 136 bytes cumulative"
    " stack size, 49152 bytes smem, 400 bytes cmem[0]\n"
    "ptxas info    : Compile time = 9.162 ms\n";

static void test_log(void **state) {
  (void)state;
  struct cuvil_compile_result result = {0};
  assert_true(cuvil_nvrtc_parse_log(two_functions, &result));
  assert_int_equal(result.registers, 255);
  assert_int_equal(result.stack_bytes, 136);
  assert_int_equal(result.spill_bytes, 60);
  assert_int_equal(result.static_shared, 49152);
}

static void test_log_without_report(void **state) {
  (void)state;
  struct cuvil_compile_result result = {0};
  assert_false(cuvil_nvrtc_parse_log("", &result));
  assert_false(
      cuvil_nvrtc_parse_log("warning: Used many registers\n", &result));
  assert_int_equal(result.registers, 0);
}

static const char kernel[] =
    "extern \"C\" __global__ void k(float *p) {\n"
    "  __shared__ float s[256];\n"
    "  s[threadIdx.x] = p[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  p[threadIdx.x] = s[255 - threadIdx.x] * SCALE;\n"
    "}\n";

static void test_compile(void **state) {
  (void)state;
  static const char *const archs[] = {"sm_80", "sm_90a"};
  for (int i = 0; i < 2; i++) {
    struct cuvil_compile_result result;
    assert_int_equal(cuvil_nvrtc_compile(kernel, archs[i],
                                         " -DSCALE=2.0f  -lineinfo", &result),
                     CUVIL_OK);
    assert_true(result.cubin_size > 100);
    assert_memory_equal(result.cubin, "\177ELF", 4);
    assert_int_equal(result.static_shared, 1024);
    assert_in_range(result.registers, 4, 32);
    assert_int_equal(result.spill_bytes, 0);
    cuvil_compile_result_free(&result);
  }
}

static void test_refusals(void **state) {
  (void)state;
  struct cuvil_compile_result result;
  assert_int_equal(cuvil_nvrtc_compile(kernel, "sm_90a", NULL, &result),
                   CU_ERR_KERNEL_COMPILE);
  assert_non_null(strstr(cuvil_last_error(), "SCALE"));
  assert_null(strchr(cuvil_last_error(), '\n'));
  assert_non_null(strstr(result.log, "kernel.cu(5)"));
  assert_null(result.cubin);
  cuvil_compile_result_free(&result);
  assert_int_equal(cuvil_nvrtc_compile(kernel, "sm_1", "-DSCALE=1.f", &result),
                   CU_ERR_KERNEL_COMPILE);
  assert_non_null(result.log);
  cuvil_compile_result_free(&result);
  assert_int_equal(cuvil_nvrtc_compile("struct none;", "sm_80", "", &result),
                   CU_ERR_KERNEL_COMPILE);
  cuvil_compile_result_free(&result);
}

static void test_version(void **state) {
  (void)state;
  char version[16];
  assert_int_equal(cuvil_nvrtc_version(version, sizeof version), CUVIL_OK);
  assert_true(strchr(version, '.') && version[0] >= '1');
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_log),     cmocka_unit_test(test_log_without_report),
      cmocka_unit_test(test_compile), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_version),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
