/* The measuring worker on the fake driver with every call failing in turn: it
 * answers every request with a clear text, and after `close` it holds no more
 * of the device than after an undisturbed session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/family.h"
#include "tests/support/fake_gpu.h"
#include "tuner/message.h"
#include "tuner/pool.h"
#include "tuner/runner.h"

static const char text[] =
    "pool/1 op=max n=1 c=8 h=8 w=8 r=2 s=2 stride=2,2 pad=0,0,0,0 dil=1,1 "
    "x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32";
static char cubins[500];
enum { UNKNOWN = 999, MOST = 300 };

/* What the worker's process did with the device. */
struct device_use {
  int left; /* objects alive at its end */
  int calls;
  char failed_call[64];
};
/* What one session with a worker came to. */
struct session {
  int answers, failures; /* answers that are no "ok" */
  char first[1024];      /* what the first failure said */
  struct device_use use;
};

static void ask(int fd, json_t *request) {
  assert_non_null(request);
  assert_int_equal(cuvil_message_send(fd, request), CUVIL_OK);
  json_decref(request);
}

static json_t *none_cold(void) {
  json_t *cold = json_array();
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++)
    json_array_append_new(cold, json_false());
  return cold;
}

/* A limit that one run exceeds: no timer, whose warm-up takes its time. */
static void request_all(int fd, const char *config, bool timed) {
  double limit = timed ? 0 : 1e-9;
  ask(fd, json_pack("{s:s}", "op", "hello"));
  ask(fd, json_pack("{s:s, s:s, s:o, s:i, s:i}", "op", "open", "problem", text,
                    "cold", none_cold(), "rotations", 1, "seed", 1));
  ask(fd, json_pack("{s:s, s:s, s:s, s:b, s:f}", "op", "try", "family", "pool",
                    "config", config, "verify", 1, "limit", limit));
  ask(fd, json_pack("{s:s, s:s, s:s, s:b, s:f}", "op", "try", "family", "pool",
                    "config", config, "verify", 0, "limit", limit));
  if (timed)
    ask(fd, json_pack("{s:s, s:[{s:s, s:s, s:i}]}", "op", "round", "entrants",
                      "family", "pool", "config", config, "copy", 0));
  ask(fd, json_pack("{s:s}", "op", "close"));
}

static void note_failure(struct session *session, const char *detail) {
  assert_non_null(detail);
  assert_true(strlen(detail) > 8);
  if (session->failures++ == 0)
    snprintf(session->first, sizeof session->first, "%s", detail);
}

static void judge(struct session *session, const json_t *answer) {
  if (json_object_get(answer, "alive")) return;
  session->answers++;
  const char *detail = json_string_value(json_object_get(answer, "message"));
  if (json_object_get(answer, "status"))
    note_failure(session, detail);
  else if (!json_is_true(json_object_get(answer, "ok")))
    note_failure(session, json_string_value(json_object_get(answer, "detail")));
  const json_t *results = json_object_get(answer, "results");
  for (size_t i = 0; i < json_array_size(results); i++)
    judge(session, json_array_get(results, i));
}

/* The worker's side, in a child as ever: at its end it keeps the device open
 * and leaves the rest to the driver. */
static void worker_and_exit(int fd, int report) {
  struct cuvil_gpu_runner_options options = {
      .cubins = cubins, .jobs = 1, .compile_limit = 60, .launch_limit = 5};
  struct device_use use = {0};
  int code = cuvil_measure_worker_main(fd, &options);
  use.left = fake_gpu_live();
  use.calls = fake_gpu_calls();
  snprintf(use.failed_call, sizeof use.failed_call, "%s",
           fake_gpu_failed_call());
  if (write(report, &use, sizeof use) != (ssize_t)sizeof use) code = 1;
  _exit(code);
}

/* The parent's side: all requests at once, then all answers. */
static void run(const char *config, bool timed, struct session *session) {
  int fds[2], report[2], result = 0;
  json_t *answer = NULL;
  *session = (struct session){0};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  assert_int_equal(pipe(report), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    close(fds[0]);
    close(report[0]);
    worker_and_exit(fds[1], report[1]);
  }
  close(fds[1]);
  close(report[1]);
  request_all(fds[0], config, timed);
  assert_int_equal(shutdown(fds[0], SHUT_WR), 0);
  while (cuvil_message_receive(fds[0], &answer) == CUVIL_OK && answer) {
    judge(session, answer);
    json_decref(answer);
  }
  close(fds[0]);
  assert_int_equal(waitpid(pid, &result, 0), pid);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
  assert_int_equal(read(report[0], &session->use, sizeof session->use),
                   sizeof session->use);
  close(report[0]);
}

static void every_call(bool timed) {
  struct cuvil_problem problem;
  const struct cuvil_space *space;
  struct cuvil_config config;
  struct cuvil_buf point = {0};
  struct session whole, broken;
  const struct cuvil_family *family = cuvil_family_find("pool");
  assert_non_null(family);
  assert_int_equal(cuvil_problem_parse(text, &problem), CUVIL_OK);
  assert_int_equal(cuvil_family_space(family, &space), CUVIL_OK);
  struct cuvil_query query = {&problem, cuvil_arch_find("sm_90"), space};
  family->default_config(&query, &config);
  cuvil_config_print(space, &config, &point);
  fake_gpu_reset(0, 0, 90);
  run(cuvil_buf_text(&point), timed,
      &whole); /* also fills the cache of cubins */
  fake_gpu_reset(0, 0, 90);
  run(cuvil_buf_text(&point), timed, &whole);
  int calls = whole.use.calls, silent = 0;
  if (whole.failures) fail_msg("undisturbed: %s", whole.first);
  /* The round has an answer for its entrant, too. */
  assert_int_equal(whole.answers, timed ? 7 : 5);
  assert_true(calls > 60);
  for (int n = 1; n <= calls && n <= MOST; n++) {
    fake_gpu_reset(n, UNKNOWN, 90);
    run(cuvil_buf_text(&point), timed, &broken);
    const char *call = broken.use.failed_call;
    assert_string_not_equal(call, "");
    if (broken.use.left > whole.use.left)
      fail_msg("call %d, %s: %d objects left, not %d", n, call, broken.use.left,
               whole.use.left);
    if (broken.answers < (timed ? 6 : 5))
      fail_msg("call %d, %s: %d answers", n, call, broken.answers);
    silent += broken.failures == 0;
    if (broken.failures && !strstr(broken.first, call))
      fail_msg("call %d: \"%s\" does not name %s", n, broken.first, call);
  }
  assert_true(silent < (calls < MOST ? calls : MOST) / 3);
  cuvil_buf_free(&point);
}

static void every_call_of_a_session(void **state) {
  (void)state;
  every_call(false);
}

/* Seconds for each of them. */
static void every_call_of_a_timed_session(void **state) {
  (void)state;
  every_call(true);
}

int main(void) {
  const struct CMUnitTest fast[] = {
      cmocka_unit_test(every_call_of_a_session),
  };
  const struct CMUnitTest all[] = {
      cmocka_unit_test(every_call_of_a_session),
      cmocka_unit_test(every_call_of_a_timed_session),
  };
  const char *tmp = getenv("CUVIL_TEST_TMP");
  snprintf(cubins, sizeof cubins, "%s/worker-cubins", tmp ? tmp : "/tmp");
  fake_gpu_use();
  if (getenv("CUVIL_TEST_FULL")) return cmocka_run_group_tests(all, NULL, NULL);
  return cmocka_run_group_tests(fast, NULL, NULL);
}
