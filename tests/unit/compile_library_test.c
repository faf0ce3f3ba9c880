/* compile_library_test.c - a winner of a library becomes a plan that calls it,
 * and our own kernels stand by: from a recorded race over the compiler to
 * numbers, on the fake driver and a fake cuBLASLt. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard headers first. */
#include <cmocka.h>

#include "compiler/compiler.h"
#include "graph/execute.h"
#include "kernels/family.h"
#include "tests/support/db_sample.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/net.h"

#define OK(expression)                                     \
  do {                                                     \
    if ((expression) != CUVIL_OK)                          \
      fail_msg("%s: %s", #expression, cuvil_last_error()); \
  } while (0)

enum { ROWS = 3, INNER = 8, COLUMNS = 5 };

/* relu(x W + bias), fused into one product. */
static struct cuvil_fused *make_fused(struct net *net) {
  struct cuvil_fusion_options options = {CUVIL_FUSION_MEDIUM,
                                         CUVIL_PRECISION_MODEL};
  struct cuvil_fused *fused;
  net_begin(net, 5);
  int x = net_input(net, 2, (int64_t[]){ROWS, INNER});
  net_output(net, net_unary(net, "Relu", net_gemm(net, x, COLUMNS, true)));
  net_finish(net);
  OK(cuvil_fuse(net->graph, &options, &fused));
  assert_int_equal(fused->task_count, 1);
  return fused;
}

/* Records that cuBLASLt, choosing for itself, won the problem. */
static void record_winner(struct cuvil_db *db, const struct cuvil_env *env,
                          const struct cuvil_problem *problem) {
  const struct cuvil_family *family = cuvil_family_find("gemm_cublaslt");
  struct cuvil_query query = {problem, cuvil_arch_find("sm_90"), NULL};
  struct cuvil_buf text = {0}, signature = {0}, config_text = {0};
  struct cuvil_config config;
  assert_non_null(family);
  OK(cuvil_family_space(family, &query.space));
  family->default_config(&query, &config);
  cuvil_config_print(query.space, &config, &config_text);
  cuvil_problem_print(problem, &text);
  cuvil_problem_signature(problem, &signature);
  double seconds[] = {1e-6, 1.1e-6, 1e-6};
  struct cuvil_db_participant winner = {.family = family->id,
                                        .family_version = family->version,
                                        .config = config_text.data,
                                        .library = family->library,
                                        .flags = CUVIL_RACE_WINNER,
                                        .seconds = seconds,
                                        .median = 1e-6,
                                        .ratio = 1,
                                        .ratio_low = 1,
                                        .ratio_high = 1};
  struct cuvil_db_race race = {.problem = text.data,
                               .signature = signature.data,
                               .rounds = 3,
                               .participant_count = 1,
                               .participants = &winner,
                               .converged = true};
  struct cuvil_db_context context = sample_context(env, "measured");
  OK(cuvil_db_add_race(db, &context, &race));
  cuvil_buf_free(&text);
  cuvil_buf_free(&signature);
  cuvil_buf_free(&config_text);
}

static struct cuvil_plan *compile(struct cuvil_gpu *gpu,
                                  struct cuvil_fused *fused) {
  struct cuvil_db *db;
  struct cuvil_plan *plan;
  struct cuvil_compiler_report report;
  OK(cuvil_db_open(sample_path(0), CUVIL_DB_WRITE, &db));
  record_winner(db, cuvil_gpu_env(gpu), &fused->tasks[0].problem);
  struct cuvil_compiler_options options = {.arch = cuvil_gpu_arch(gpu),
                                           .env = cuvil_gpu_env(gpu),
                                           .db = db,
                                           .require_tuned = true,
                                           .jobs = 1};
  OK(cuvil_compile_fused(fused, &options, &plan, &report));
  assert_int_equal(report.by_step[CUVIL_DB_EXACT], 1);
  cuvil_db_close(db);
  return plan;
}

static void check_plan(const struct cuvil_plan *plan) {
  const struct cuvil_plan_step *step = &plan->steps[0];
  assert_int_equal(plan->step_count, 1);
  assert_string_equal(step->family, "gemm_cublaslt");
  assert_string_equal(step->library_version, "13.1.0");
  assert_non_null(step->fallback);
  assert_int_equal(step->fallback->steps[0].kind, CUVIL_STEP_LAUNCH);
  assert_non_null(step->fallback->modules[0].cubin);
  OK(cuvil_plan_check(plan, "plan"));
}

static void run_plan(struct cuvil_gpu *gpu, const struct cuvil_plan *plan,
                     const struct net *net) {
  struct cuvil_session *session;
  struct cuvil_gpu_stream *stream;
  float x[ROWS * INNER], got[ROWS * COLUMNS], expected[ROWS * COLUMNS];
  for (int i = 0; i < ROWS * INNER; i++)
    x[i] = (float)(i % 7) - 3;
  OK(cuvil_graph_execute(net->graph, (const void *[]){x}, (void *[]){expected},
                         1));
  OK(cuvil_gpu_stream_create(gpu, &stream));
  OK(cuvil_session_create(gpu, plan, &session));
  assert_int_equal(cuvil_session_fallbacks(session), 0);
  OK(cuvil_gpu_upload(gpu, cuvil_session_input(session, 0), x, sizeof x));
  OK(cuvil_session_run(session, stream));
  OK(cuvil_gpu_download(gpu, got, cuvil_session_output(session, 0),
                        sizeof got));
  int positive = 0;
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    assert_true(fabsf(got[i] - expected[i]) < 1e-4f);
    positive += expected[i] > 0;
  }
  assert_in_range(positive, 1, ROWS * COLUMNS - 1);
  cuvil_session_destroy(session);
  /* With another cuBLASLt: our own kernel, which the fake driver loads. */
  setenv("CUVIL_FAKE_LT_VERSION", "130200", 1);
  OK(cuvil_session_create(gpu, plan, &session));
  assert_int_equal(cuvil_session_fallbacks(session), 1);
  cuvil_session_destroy(session);
  unsetenv("CUVIL_FAKE_LT_VERSION");
  cuvil_gpu_stream_destroy(stream);
}

static void test_library_winner(void **state) {
  (void)state;
  struct net net;
  struct cuvil_gpu *gpu;
  OK(cuvil_gpu_open(0, &gpu));
  struct cuvil_fused *fused = make_fused(&net);
  struct cuvil_plan *plan = compile(gpu, fused);
  check_plan(plan);
  run_plan(gpu, plan, &net);
  cuvil_plan_destroy(plan);
  cuvil_fused_destroy(fused);
  net_end(&net);
  cuvil_gpu_close(gpu);
  assert_int_equal(fake_gpu_live(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_library_winner)};
  fake_gpu_use();
  fake_gpu_use_libraries();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
