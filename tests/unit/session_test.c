/* session_test.c - a small plan on the fake driver: data moves where it must,
 * and whichever driver call fails, nothing crashes, nothing is left behind,
 * and the message says which call it was. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard headers first. */
#include <cmocka.h>

#include "tests/support/fake_gpu.h"

#define OK(expression) assert_int_equal((expression), CUVIL_OK)
enum { UNKNOWN = 999, LAUNCH_TIMEOUT = 702, CAPTURE_INVALIDATED = 901 };

static void fill(unsigned char *bytes, int seed) {
  for (int i = 0; i < 256; i++)
    bytes[i] = (unsigned char)(i * 5 + seed);
}

static void test_device(void **state) {
  (void)state;
  struct cuvil_gpu *gpu;
  fake_gpu_reset(0, 0, 90);
  assert_int_equal(cuvil_gpu_open(1, &gpu), CU_ERR_NO_DEVICE);
  OK(cuvil_gpu_open(0, &gpu));
  const struct cuvil_arch *arch = cuvil_gpu_arch(gpu);
  assert_string_equal(arch->name, "sm_90");
  assert_string_equal(arch->nvrtc_name, "sm_90a");
  assert_int_equal(arch->sms, 7);
  assert_int_equal(arch->l2_bytes, 1 << 20);
  assert_int_equal(arch->memory_bytes, 1 << 30);
  const struct cuvil_env *env = cuvil_gpu_env(gpu);
  assert_string_equal(env->gpu, "Fake GPU");
  assert_string_equal(env->cuda, "13.0");
  assert_string_equal(env->cudnn, "");
  assert_true(strlen(env->nvrtc) >= 3);
  struct cuvil_gpu_clocks clocks;
  cuvil_gpu_clocks(gpu, &clocks);
  assert_int_equal(clocks.sm_mhz, -1);
  uint64_t address;
  assert_int_equal(cuvil_gpu_alloc(gpu, (uint64_t)1 << 40, &address),
                   CU_ERR_DEVICE_MEMORY);
  assert_int_equal(address, 0);
  cuvil_gpu_close(gpu);
  assert_int_equal(fake_gpu_live(), 0);
  fake_gpu_reset(0, 0, 89);
  assert_int_equal(cuvil_gpu_open(0, &gpu), CU_ERR_UNSUPPORTED);
  assert_non_null(strstr(cuvil_last_error(), "sm_89"));
}

static void test_run(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan();
  struct cuvil_gpu *gpu;
  struct cuvil_session *session;
  struct cuvil_gpu_stream *stream;
  unsigned char in[256], out[256], space[512], weights[512], flags[256];
  fake_gpu_reset(0, 0, 90);
  OK(cuvil_gpu_open(0, &gpu));
  OK(cuvil_gpu_stream_create(gpu, &stream));
  OK(cuvil_session_create(gpu, plan, &session));
  /* copy; memset, kernel; kernel, copy; copy. */
  assert_int_equal(cuvil_session_graph_nodes(session), 6);
  uint64_t x = cuvil_session_input(session, 0);
  uint64_t y = cuvil_session_output(session, 0);
  assert_int_equal(x % 256, 0);
  assert_int_equal(y % 256, 0);
  for (int seed = 0; seed < 2; seed++) {
    fill(in, seed);
    OK(cuvil_gpu_upload(gpu, x, in, sizeof in));
    OK(cuvil_session_run(session, stream));
    OK(cuvil_gpu_stream_synchronize(stream));
    OK(cuvil_gpu_download(gpu, out, y, sizeof out));
    assert_memory_equal(in, out, sizeof in);
  }
  /* Arena 2048, zeroed 256, weights 1024, then the input. */
  OK(cuvil_gpu_download(gpu, space, x - 1024 - 256 - 2048 + 1024, 512));
  for (int i = 0; i < 512; i++)
    assert_int_equal(space[i], 0xAB);
  OK(cuvil_gpu_download(gpu, flags, x - 1024 - 256, 256));
  for (int i = 0; i < 256; i++)
    assert_int_equal(flags[i], 0);
  OK(cuvil_gpu_download(gpu, weights, x - 512, 512));
  assert_memory_equal(weights, (unsigned char *)plan->weights + 512, 512);
  cuvil_session_destroy(session);
  cuvil_gpu_stream_destroy(stream);
  cuvil_gpu_close(gpu);
  cuvil_plan_destroy(plan);
  assert_int_equal(fake_gpu_live(), 0);
}

static void test_bind(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan();
  struct cuvil_gpu *gpu;
  struct cuvil_session *session;
  struct cuvil_gpu_stream *stream;
  unsigned char in[256], out[256];
  uint64_t mine;
  fake_gpu_reset(0, 0, 90);
  OK(cuvil_gpu_open(0, &gpu));
  OK(cuvil_gpu_stream_create(gpu, &stream));
  OK(cuvil_session_create(gpu, plan, &session));
  OK(cuvil_gpu_alloc(gpu, 1024, &mine));
  assert_int_equal(cuvil_session_bind(session, false, 1, mine),
                   CU_ERR_INVALID_ARGUMENT);
  assert_int_equal(cuvil_session_bind(session, true, 0, mine + 4),
                   CU_ERR_INVALID_TENSOR_LAYOUT);
  OK(cuvil_session_bind(session, false, 0, mine));
  OK(cuvil_session_bind(session, true, 0, mine + 512));
  fill(in, 9);
  OK(cuvil_gpu_upload(gpu, mine, in, sizeof in));
  OK(cuvil_session_run(session, stream));
  OK(cuvil_gpu_download(gpu, out, mine + 512, sizeof out));
  assert_memory_equal(in, out, sizeof in);
  /* Back to its own, and the same address captures nothing anew. */
  OK(cuvil_session_bind(session, true, 0, 0));
  OK(cuvil_session_run(session, stream));
  OK(cuvil_gpu_download(gpu, out, cuvil_session_output(session, 0), 256));
  assert_memory_equal(in, out, sizeof in);
  int calls = fake_gpu_calls();
  OK(cuvil_session_bind(session, false, 0, mine));
  OK(cuvil_session_run(session, stream));
  assert_int_equal(fake_gpu_calls() - calls, 1);
  cuvil_gpu_free(gpu, mine);
  cuvil_session_destroy(session);
  cuvil_gpu_stream_destroy(stream);
  cuvil_gpu_close(gpu);
  cuvil_plan_destroy(plan);
  assert_int_equal(fake_gpu_live(), 0);
}

/* Programmatic only from kernel to kernel: of the plan's three programmatic
 * kernels one is first on its stream, one follows a memset, one a kernel. */
static void test_programmatic(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan();
  struct cuvil_gpu *gpu;
  struct cuvil_session *session;
  fake_gpu_reset(0, 0, 90);
  OK(cuvil_gpu_open(0, &gpu));
  OK(cuvil_session_create(gpu, plan, &session));
  /* Once in the trying run, once under capture. */
  assert_int_equal(fake_gpu_programmatic(), 2);
  cuvil_session_destroy(session);
  cuvil_gpu_close(gpu);
  cuvil_plan_destroy(plan);
}

static void test_profile(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan();
  struct cuvil_gpu *gpu;
  struct cuvil_session *session;
  double seconds[4];
  fake_gpu_reset(0, 0, 90);
  OK(cuvil_gpu_open(0, &gpu));
  OK(cuvil_session_create(gpu, plan, &session));
  OK(cuvil_session_profile(session, 5, seconds));
  /* By the fake driver: 3 us a graph, 2 us for each of its operations, one or
   * two a step, five times. */
  for (int i = 0; i < 4; i++) {
    double operations = (5 * seconds[i] * 1e6 - 3.1) / 10;
    assert_true(fabs(operations - 1) < 1e-3 || fabs(operations - 2) < 1e-3);
  }
  cuvil_session_destroy(session);
  cuvil_gpu_close(gpu);
  cuvil_plan_destroy(plan);
  assert_int_equal(fake_gpu_live(), 0);
}

static void test_wrong_arch(void **state) {
  (void)state;
  struct cuvil_plan *plan = fake_gpu_plan();
  struct cuvil_gpu *gpu;
  struct cuvil_session *session;
  struct cuvil_executable *executable;
  fake_gpu_reset(0, 0, 80);
  OK(cuvil_gpu_open(0, &gpu));
  assert_int_equal(cuvil_session_create(gpu, plan, &session),
                   CU_ERR_ARCH_MISMATCH);
  assert_non_null(strstr(cuvil_last_error(), "sm_80"));
  assert_int_equal(
      cuvil_executable_create(gpu, plan->steps[0].program, &executable),
      CU_ERR_ARCH_MISMATCH);
  assert_null(executable);
  cuvil_gpu_close(gpu);
  cuvil_plan_destroy(plan);
  assert_int_equal(fake_gpu_live(), 0);
}

/* ---- every call fails once */

static enum cuvil_status scenario_on(struct cuvil_gpu *gpu,
                                     const struct cuvil_plan *plan) {
  struct cuvil_session *session = NULL;
  struct cuvil_gpu_stream *stream = NULL;
  struct cuvil_gpu_event *event = NULL;
  unsigned char in[256], out[256];
  double seconds[4];
  uint64_t mine = 0;
  enum cuvil_status status = CUVIL_OK;
  fill(in, 1);
  CUVIL_TRY_GOTO(cuvil_gpu_stream_create(gpu, &stream));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &event));
  CUVIL_TRY_GOTO(cuvil_gpu_alloc(gpu, 256, &mine));
  CUVIL_TRY_GOTO(cuvil_session_create(gpu, plan, &session));
  CUVIL_TRY_GOTO(cuvil_gpu_upload(gpu, mine, in, sizeof in));
  CUVIL_TRY_GOTO(cuvil_session_bind(session, false, 0, mine));
  CUVIL_TRY_GOTO(cuvil_gpu_event_record(event, stream));
  CUVIL_TRY_GOTO(cuvil_gpu_stream_wait(stream, event));
  CUVIL_TRY_GOTO(cuvil_session_run(session, stream));
  CUVIL_TRY_GOTO(cuvil_gpu_stream_synchronize(stream));
  CUVIL_TRY_GOTO(cuvil_gpu_download(gpu, out, cuvil_session_output(session, 0),
                                    sizeof out));
  if (memcmp(in, out, sizeof in) != 0)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_VERIFY_FAILED, "the data did not move"));
  CUVIL_TRY_GOTO(cuvil_session_profile(session, 2, seconds));
fail:
  cuvil_session_destroy(session);
  cuvil_gpu_free(gpu, mine);
  cuvil_gpu_event_destroy(event);
  cuvil_gpu_stream_destroy(stream);
  return status;
}

static enum cuvil_status scenario(const struct cuvil_plan *plan) {
  struct cuvil_gpu *gpu;
  CUVIL_TRY(cuvil_gpu_open(0, &gpu));
  enum cuvil_status status = scenario_on(gpu, plan);
  cuvil_gpu_close(gpu);
  return status;
}

/* Destroying calls and clocks: their failure is nobody's business. */
static bool may_be_silent(const char *call) {
  static const char *const silent[] = {
      "cuMemFree",           "cuStreamDestroy",          "cuEventDestroy",
      "cuGraphDestroy",      "cuGraphExecDestroy",       "cuModuleUnload",
      "cuDeviceGetPCIBusId", "cuDevicePrimaryCtxRelease"};
  for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
    if (strcmp(silent[i], call) == 0) return true;
  return false;
}

static void fail_every_call(int result) {
  struct cuvil_plan *plan = fake_gpu_plan();
  fake_gpu_reset(0, 0, 90);
  OK(scenario(plan));
  int calls = fake_gpu_calls(), reported = 0;
  assert_in_range(calls, 80, 300);
  for (int n = 1; n <= calls; n++) {
    fake_gpu_reset(n, result, 90);
    enum cuvil_status status = scenario(plan);
    const char *call = fake_gpu_failed_call();
    assert_string_not_equal(call, "");
    if (fake_gpu_live() != 0)
      fail_msg("call %d, %s: %d objects left", n, call, fake_gpu_live());
    if (status == CUVIL_OK) {
      /* The last synchronize is the session's destruction. */
      if (!may_be_silent(call) && strcmp(call, "cuCtxSynchronize") != 0)
        fail_msg("call %d, %s: its failure was swallowed", n, call);
      continue;
    }
    reported++;
    if (!strstr(cuvil_last_error(), call))
      fail_msg("call %d: '%s' does not name %s", n, cuvil_last_error(), call);
    if (strcmp(call, "cuMemAlloc") == 0)
      assert_int_equal(status, CU_ERR_DEVICE_MEMORY);
    else if (result == LAUNCH_TIMEOUT)
      assert_int_equal(status, CU_ERR_CUDA_LAUNCH_TIMEOUT);
    else if (strcmp(call, "cuStreamEndCapture") == 0 ||
             strcmp(call, "cuGraphInstantiate") == 0)
      assert_int_equal(status, CU_ERR_GRAPH_BUILD_FAILED);
  }
  assert_true(reported > calls / 2);
  cuvil_plan_destroy(plan);
}

static void test_every_call_unknown(void **state) {
  (void)state;
  fail_every_call(UNKNOWN);
}

static void test_every_call_timeout(void **state) {
  (void)state;
  fail_every_call(LAUNCH_TIMEOUT);
}

static void test_every_call_capture(void **state) {
  (void)state;
  fail_every_call(CAPTURE_INVALIDATED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_device),
      cmocka_unit_test(test_run),
      cmocka_unit_test(test_bind),
      cmocka_unit_test(test_programmatic),
      cmocka_unit_test(test_profile),
      cmocka_unit_test(test_wrong_arch),
      cmocka_unit_test(test_every_call_unknown),
      cmocka_unit_test(test_every_call_timeout),
      cmocka_unit_test(test_every_call_capture),
  };
  fake_gpu_use();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
