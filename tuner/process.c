/* process.c - starting, watching and killing the children.
 *
 * fork without exec: the parent has one thread and has loaded neither the
 * driver nor the compiler, so a child starts clean and at once.  The child
 * closes every descriptor but its socket; the parent's database handle must
 * not be touched from here, not even by exit handlers, hence _exit.
 */
#include "tuner/process.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
  (void)number;
  interrupted = 1;
}

void cuvil_interrupt_catch(void) {
  struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

bool cuvil_interrupted(void) {
  return interrupted != 0;
}

enum cuvil_status cuvil_interrupt_check(void) {
  if (interrupted)
    return CUVIL_FAIL(CU_ERR_INTERRUPTED,
                      "stopped by a signal; what was measured is kept, the "
                      "same command resumes");
  return CUVIL_OK;
}

static void close_others(int keep) {
  DIR *folder = opendir("/proc/self/fd");
  struct dirent *entry;
  int fds[1024], count = 0;
  if (!folder) return;
  while ((entry = readdir(folder)) && count < 1024) {
    int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd > 2 && fd != keep && fd != dirfd(folder))
      fds[count++] = fd;
  }
  closedir(folder);
  for (int i = 0; i < count; i++)
    close(fds[i]);
}

static void be_child(int fd, pid_t parent, cuvil_child_main run, void *user) {
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  struct sigaction standard = {.sa_handler = SIG_DFL};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1); /* it died before the line above */
  sigaction(SIGINT, &ignore, NULL);
  sigaction(SIGTERM, &standard, NULL);
  /* A crash ends the child, whatever the parent does about its own. */
  static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
    sigaction(crashes[i], &standard, NULL);
  close_others(fd);
  _exit(run(fd, user));
}

enum cuvil_status cuvil_child_start(struct cuvil_child *child,
                                    cuvil_child_main run, void *user) {
  int pair[2];
  pid_t parent = getpid();
  *child = (struct cuvil_child){.fd = -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
    return CUVIL_FAIL(CU_ERR_IO, "socketpair: %s", strerror(errno));
  pid_t pid = fork();
  if (pid < 0) {
    int error = errno;
    close(pair[0]);
    close(pair[1]);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                      "a worker process could not be started: %s",
                      strerror(error));
  }
  if (pid == 0) be_child(pair[1], parent, run, user);
  close(pair[1]);
  child->pid = pid;
  child->fd = pair[0];
  return CUVIL_OK;
}

enum cuvil_status cuvil_child_stop(struct cuvil_child *child, double patience,
                                   int *out_signal) {
  double end = cuvil_now() + patience;
  pid_t pid = child->pid;
  int result = 0;
  if (out_signal) *out_signal = 0;
  if (pid == 0) return CUVIL_OK;
  close(child->fd);
  cuvil_inbox_free(&child->inbox);
  *child = (struct cuvil_child){.fd = -1};
  /* One that has just crashed is a zombie already: ask first, so that what
   * ended it is not hidden by our own signal. */
  pid_t done = waitpid(pid, &result, WNOHANG);
  if (done == 0) kill(pid, SIGKILL);
  while (done == 0 || (done < 0 && errno == EINTR)) {
    done = waitpid(pid, &result, WNOHANG);
    if (done != 0) continue;
    if (cuvil_now() > end)
      return CUVIL_FAIL(CU_ERR_CUDA_LAUNCH_TIMEOUT,
                        "process %d does not end %.0f s after SIGKILL: its "
                        "kernel still runs; reset the GPU, then run again",
                        (int)pid, patience);
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  if (done == pid && WIFSIGNALED(result) && out_signal)
    *out_signal = WTERMSIG(result);
  return CUVIL_OK;
}

enum cuvil_status cuvil_child_request(struct cuvil_child *child,
                                      const json_t *request, double limit) {
  CUVIL_TRY(cuvil_message_send(child->fd, request));
  child->busy = true;
  child->limit = limit;
  child->deadline = cuvil_now() + limit;
  return CUVIL_OK;
}

/* A message that was read before: several may come in one read. */
static enum cuvil_status take(struct cuvil_child *child, json_t **out) {
  CUVIL_TRY(cuvil_inbox_next(&child->inbox, out));
  if (!*out) return CUVIL_OK;
  if (json_is_true(json_object_get(*out, "alive"))) {
    const json_t *limit = json_object_get(*out, "limit");
    if (json_is_number(limit)) child->limit = json_number_value(limit);
    child->deadline = cuvil_now() + child->limit;
  } else {
    child->busy = false;
  }
  return CUVIL_OK;
}

/* Events that need no waiting. */
static enum cuvil_status ready(struct cuvil_child *const *children, int count,
                               int *out_index,
                               enum cuvil_child_event *out_event,
                               json_t **out_message) {
  for (int i = 0; i < count; i++) {
    if (!children[i] || children[i]->pid == 0) continue;
    CUVIL_TRY(take(children[i], out_message));
    if (*out_message) {
      *out_index = i;
      *out_event = CUVIL_CHILD_MESSAGE;
      return CUVIL_OK;
    }
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_children_wait(struct cuvil_child *const *children,
                                      int count, double timeout, int *out_index,
                                      enum cuvil_child_event *out_event,
                                      json_t **out_message) {
  struct pollfd polled[512];
  int which[512], n = 0;
  double now = cuvil_now(), end = now + timeout;
  *out_index = -1;
  *out_message = NULL;
  CUVIL_TRY(cuvil_interrupt_check());
  CUVIL_TRY(ready(children, count, out_index, out_event, out_message));
  if (*out_index >= 0) return CUVIL_OK;
  for (int i = 0; i < count && n < 512; i++) {
    if (!children[i] || children[i]->pid == 0) continue;
    polled[n] = (struct pollfd){.fd = children[i]->fd, .events = POLLIN};
    which[n++] = i;
    if (children[i]->busy) end = fmin(end, children[i]->deadline);
  }
  double left = end - now;
  int milliseconds = left <= 0 ? 0 : (int)fmin(ceil(left * 1e3), 3600e3);
  int hits = poll(polled, (nfds_t)n, milliseconds);
  if (hits < 0 && errno != EINTR)
    return CUVIL_FAIL(CU_ERR_IO, "poll: %s", strerror(errno));
  CUVIL_TRY(cuvil_interrupt_check());
  for (int i = 0; i < n && hits > 0; i++) {
    struct cuvil_child *child = children[which[i]];
    bool closed = false;
    if (!polled[i].revents) continue;
    CUVIL_TRY(cuvil_inbox_fill(&child->inbox, child->fd, &closed));
    CUVIL_TRY(take(child, out_message));
    if (!*out_message && !closed) continue; /* half a message */
    *out_index = which[i];
    *out_event = *out_message ? CUVIL_CHILD_MESSAGE : CUVIL_CHILD_CLOSED;
    return CUVIL_OK;
  }
  now = cuvil_now();
  for (int i = 0; i < n; i++) {
    struct cuvil_child *child = children[which[i]];
    if (!child->busy || now < child->deadline) continue;
    *out_index = which[i];
    *out_event = CUVIL_CHILD_LATE;
    return CUVIL_OK;
  }
  return CUVIL_OK;
}
