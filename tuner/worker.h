/* worker.h - the measuring worker's insides; this folder only. */
#ifndef CUVIL_TUNER_WORKER_H_
#define CUVIL_TUNER_WORKER_H_

#include "kernels/verify.h"
#include "measure/flush.h"
#include "measure/timer.h"
#include "runtime/executor.h"
#include "tuner/pool.h"

/* A candidate that is ready to be timed; kept between rounds. */
struct cuvil_entry {
  char *family, *config; /* owned */
  int copy;              /* 1: the A/A control */
  struct cuvil_program *program;
  struct cuvil_executable *executable;
  uint64_t *own; /* workspace and zeroed buffers, by program buffer; 0 else */
  uint64_t *addresses; /* scratch of one enqueue, by program buffer */
  uint64_t workspace;  /* bytes */
  struct cuvil_timer *timer;
  bool verified;
  uint64_t used; /* larger: later */
  struct cuvil_worker *worker;
};
struct cuvil_worker {
  int fd;
  const struct cuvil_gpu_runner_options *options;
  struct cuvil_gpu *gpu;
  struct cuvil_problem problem;
  struct cuvil_verifier *verifier; /* NULL: no problem is open */
  int rotations;
  uint64_t copies[CUVIL_MAX_OPERANDS]; /* of rotations 1..; 0: not rotated */
  uint64_t stride[CUVIL_MAX_OPERANDS]; /* bytes from copy to copy */
  struct cuvil_flush *flush;           /* made when first needed, then kept */
  bool flushes; /* the copies alone do not move the L2 enough */
  int count, capacity;
  struct cuvil_entry **entries;
  uint64_t workspace; /* of all entries */
  uint64_t clock;     /* counts uses */
  int at;             /* entrant of the round that is on; -1 */
  double last_active; /* when the GPU last had work, by cuvil_now() */
};

/* ---- entries.c */
/* The entry of a candidate, made when it is not there. */
CUVIL_MUST_USE enum cuvil_status cuvil_entry_get(struct cuvil_worker *worker,
                                                 const char *family,
                                                 const char *config, int copy,
                                                 struct cuvil_entry **out);
/* One run with the operands of that rotation. */
CUVIL_MUST_USE enum cuvil_status cuvil_entry_enqueue(
    struct cuvil_entry *entry, int rotation, struct cuvil_gpu_stream *stream);
/* Its timer, made when it is not there. */
CUVIL_MUST_USE enum cuvil_status cuvil_entry_timer(struct cuvil_entry *entry);
void cuvil_entry_drop(struct cuvil_worker *worker, struct cuvil_entry *entry);
void cuvil_entries_drop(struct cuvil_worker *worker);
/* Operands of the problem that is measured, with their rotated copies. */
CUVIL_MUST_USE enum cuvil_status cuvil_worker_open(struct cuvil_worker *worker,
                                                   const char *problem,
                                                   const json_t *cold,
                                                   int rotations,
                                                   uint64_t seed);
void cuvil_worker_close(struct cuvil_worker *worker);

/* A note of life, with the entrant that is on; limit: seconds until the next.
 */
CUVIL_MUST_USE enum cuvil_status cuvil_worker_alive(struct cuvil_worker *worker,
                                                    double limit);

#endif /* CUVIL_TUNER_WORKER_H_ */
