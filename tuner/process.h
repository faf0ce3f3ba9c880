/* process.h - children that may be killed.
 *
 * The parent alone writes the database and never touches CUDA; what may
 * crash, hang or compile for ever runs in a forked child.  A child inherits
 * nothing open but its socket and the standard streams, ignores SIGINT (the
 * parent decides), and dies with its parent.
 */
#ifndef CUVIL_TUNER_PROCESS_H_
#define CUVIL_TUNER_PROCESS_H_

#include <sys/types.h>

#include "tuner/message.h"

/* Serves requests on `fd` until it closes; the child exits with the result. */
typedef int (*cuvil_child_main)(int fd, void *user);

struct cuvil_child {
  pid_t pid; /* 0: not running */
  int fd;
  struct cuvil_inbox inbox;
  bool busy;       /* a request was sent, its answer is not here yet */
  double limit;    /* seconds that the request may be silent */
  double deadline; /* by cuvil_now() */
};

CUVIL_MUST_USE enum cuvil_status cuvil_child_start(struct cuvil_child *child,
                                                   cuvil_child_main run,
                                                   void *user);
/* SIGKILL, and waits: a process whose kernel hangs may take the driver a while
 * to end.  CU_ERR_CUDA_LAUNCH_TIMEOUT when it is still there after `patience`
 * seconds (it is then left behind, not running for us).  *out_signal: what
 * ended it, 0 when it exited; may be NULL. */
CUVIL_MUST_USE enum cuvil_status cuvil_child_stop(struct cuvil_child *child,
                                                  double patience,
                                                  int *out_signal);
/* Sends a request that must be answered, or shown alive (a message with
 * "alive": true), within every `limit` seconds.  A note of life may name the
 * seconds until the next one ("limit": 60). */
CUVIL_MUST_USE enum cuvil_status cuvil_child_request(struct cuvil_child *child,
                                                     const json_t *request,
                                                     double limit);

/* What happened to one of several children. */
enum cuvil_child_event {
  CUVIL_CHILD_MESSAGE, /* `message`: the answer, or a note of life */
  CUVIL_CHILD_CLOSED,  /* it ended */
  CUVIL_CHILD_LATE     /* it said nothing for its limit */
};
/* Waits up to `timeout` seconds for one event of the children (NULL entries
 * and children not running are skipped).  *out_index -1: nothing happened.
 * CU_ERR_INTERRUPTED after SIGINT or SIGTERM. */
CUVIL_MUST_USE enum cuvil_status cuvil_children_wait(
    struct cuvil_child *const *children, int count, double timeout,
    int *out_index, enum cuvil_child_event *out_event, json_t **out_message);

/* SIGINT and SIGTERM set a flag that every wait of the tuner looks at. */
void cuvil_interrupt_catch(void);
bool cuvil_interrupted(void);
/* CU_ERR_INTERRUPTED when the flag is set. */
CUVIL_MUST_USE enum cuvil_status cuvil_interrupt_check(void);

#endif /* CUVIL_TUNER_PROCESS_H_ */
