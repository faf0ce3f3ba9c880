/* Children and their messages: whole messages in both directions, deaths,
 * silence, notes of life. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tuner/process.h"

/* Does what it is told. */
static int serve(int fd, void *user) {
  (void)user;
  for (;;) {
    json_t *request = NULL;
    if (cuvil_message_receive(fd, &request) != CUVIL_OK) return 1;
    if (!request) return 0;
    const char *op = json_string_value(json_object_get(request, "op"));
    if (!strcmp(op, "crash")) raise(SIGSEGV);
    if (!strcmp(op, "exit")) return 3;
    if (!strcmp(op, "hang"))
      for (;;)
        pause();
    if (!strcmp(op, "slow"))
      for (int i = 0; i < 6; i++) {
        struct timespec t = {0, 60000000};
        json_t *note = json_pack("{s:b}", "alive", 1);
        nanosleep(&t, NULL);
        if (cuvil_message_send(fd, note) != CUVIL_OK) return 1;
        json_decref(note);
      }
    if (cuvil_message_send(fd, request) != CUVIL_OK) return 1; /* echo */
    json_decref(request);
  }
}

static struct cuvil_child child;

static int start(void **state) {
  (void)state;
  assert_int_equal(cuvil_child_start(&child, serve, NULL), CUVIL_OK);
  return 0;
}

static int stop(void **state) {
  (void)state;
  assert_int_equal(cuvil_child_stop(&child, 5, NULL), CUVIL_OK);
  return 0;
}

static void ask(const char *op, double limit) {
  json_t *request = json_pack("{s:s}", "op", op);
  assert_int_equal(cuvil_child_request(&child, request, limit), CUVIL_OK);
  json_decref(request);
}

/* The next event that is no note of life. */
static enum cuvil_child_event await(json_t **out_message, int *out_notes) {
  struct cuvil_child *all[] = {NULL, &child};
  enum cuvil_child_event event = CUVIL_CHILD_LATE;
  int index = -1, notes = 0;
  for (;;) {
    assert_int_equal(
        cuvil_children_wait(all, 2, 1, &index, &event, out_message), CUVIL_OK);
    if (index < 0) continue;
    assert_int_equal(index, 1);
    if (!json_is_true(json_object_get(*out_message, "alive"))) break;
    notes++;
    json_decref(*out_message);
  }
  if (out_notes) *out_notes = notes;
  return event;
}

static void echo_of_any_size(void **state) {
  (void)state;
  /* Sanitizers take minutes for what jansson does with megabytes. */
  size_t most = getenv("CUVIL_TEST_FAST") ? 100000 : 3000000;
  for (size_t size = 1; size < most; size = size * 17 + 1) {
    char *text = malloc(size);
    json_t *answer = NULL;
    for (size_t i = 0; i < size; i++)
      text[i] = (char)(i * 7 % 127 + 1);
    json_t *request =
        json_pack("{s:s, s:s%}", "op", "echo", "text", text, (size_t)size);
    assert_non_null(request);
    assert_int_equal(cuvil_child_request(&child, request, 20), CUVIL_OK);
    assert_int_equal(await(&answer, NULL), CUVIL_CHILD_MESSAGE);
    assert_true(json_equal(request, answer));
    assert_false(child.busy);
    json_decref(answer);
    json_decref(request);
    free(text);
  }
}

static void crash_is_seen(void **state) {
  json_t *answer = NULL;
  int number = 0;
  (void)state;
  ask("crash", 20);
  assert_int_equal(await(&answer, NULL), CUVIL_CHILD_CLOSED);
  assert_null(answer);
  assert_int_equal(cuvil_child_stop(&child, 5, &number), CUVIL_OK);
  assert_int_equal(number, SIGSEGV);
}

static void exit_is_seen(void **state) {
  json_t *answer = NULL;
  (void)state;
  ask("exit", 20);
  assert_int_equal(await(&answer, NULL), CUVIL_CHILD_CLOSED);
}

static void silence_is_late(void **state) {
  json_t *answer = NULL;
  pid_t pid = child.pid;
  (void)state;
  ask("hang", 0.1);
  assert_int_equal(await(&answer, NULL), CUVIL_CHILD_LATE);
  assert_int_equal(cuvil_child_stop(&child, 5, NULL), CUVIL_OK);
  assert_int_equal(kill(pid, 0), -1); /* gone, and waited for */
}

static void notes_of_life_put_the_limit_off(void **state) {
  json_t *answer = NULL;
  int notes = 0;
  (void)state;
  ask("slow", 0.25); /* takes 0.36 s, says so every 0.06 s */
  assert_int_equal(await(&answer, &notes), CUVIL_CHILD_MESSAGE);
  assert_int_equal(notes, 6);
  json_decref(answer);
}

static void broken_frames_are_refused(void **state) {
  struct cuvil_inbox inbox = {{0}};
  json_t *message = NULL;
  (void)state;
  cuvil_buf_add(&inbox.bytes, "\xff\xff\xff\xff{}", 6);
  assert_int_equal(cuvil_inbox_next(&inbox, &message), CU_ERR_IO);
  cuvil_inbox_free(&inbox);
  cuvil_buf_add(&inbox.bytes, "\x03\x00\x00\x00{x}", 7);
  assert_int_equal(cuvil_inbox_next(&inbox, &message), CU_ERR_IO);
  cuvil_inbox_free(&inbox);
  cuvil_buf_add(&inbox.bytes, "\x03\x00\x00\x00{}", 6); /* not all yet */
  assert_int_equal(cuvil_inbox_next(&inbox, &message), CUVIL_OK);
  assert_null(message);
  cuvil_inbox_free(&inbox);
}

static void any_bytes_become_text(void **state) {
  (void)state;
  json_t *text = cuvil_message_text("a\xffz");
  assert_string_equal(json_string_value(text), "a?z");
  json_decref(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(echo_of_any_size, start, stop),
      cmocka_unit_test_setup_teardown(crash_is_seen, start, stop),
      cmocka_unit_test_setup_teardown(exit_is_seen, start, stop),
      cmocka_unit_test_setup_teardown(silence_is_late, start, stop),
      cmocka_unit_test_setup_teardown(notes_of_life_put_the_limit_off, start,
                                      stop),
      cmocka_unit_test(broken_frames_are_refused),
      cmocka_unit_test(any_bytes_become_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
