/* pool.h - the compile workers: jobs in, results out; inside this folder only.
 *
 * A job is a kernel that must become a cubin in the cache.  Jobs of equal key
 * are one job, whoever asks.
 */
#ifndef CUVIL_TUNER_POOL_H_
#define CUVIL_TUNER_POOL_H_

#include "tuner/process.h"
#include "tuner/runner.h"

struct cuvil_job {
  json_t *request;
  struct cuvil_compiled result; /* `binary`: of the cubins alone */
  bool done;
};
struct cuvil_pool {
  int workers;  /* most children */
  double limit; /* seconds of one compile */
  cuvil_child_main run;
  void *user;
  struct cuvil_child *children;
  int *running; /* job of each child; -1 idle */
  struct cuvil_job *jobs;
  int job_count, job_capacity;
  int *queue; /* waiting jobs, next first */
  int queue_count;
  json_t *by_key;
};

CUVIL_MUST_USE enum cuvil_status cuvil_pool_create(struct cuvil_pool *pool,
                                                   int workers, double limit,
                                                   cuvil_child_main run,
                                                   void *user);
void cuvil_pool_free(struct cuvil_pool *pool);
/* request: taken.  *out_job: its index, that of an earlier job of the same key
 * where there is one. */
CUVIL_MUST_USE enum cuvil_status cuvil_pool_add(struct cuvil_pool *pool,
                                                const char *key,
                                                json_t *request, bool urgent,
                                                int *out_job);
/* Feeds the workers and waits up to `seconds`, less when a job ends or
 * something happens to `other` (may be NULL), which is then told. */
CUVIL_MUST_USE enum cuvil_status cuvil_pool_wait(
    struct cuvil_pool *pool, struct cuvil_child *other, double seconds,
    bool *out_other, enum cuvil_child_event *out_event, json_t **out_message);

/* ---- compile_worker.c: a compile worker's life.  user: struct
 * cuvil_compile_worker. */
struct cuvil_compile_worker {
  const struct cuvil_arch *arch;
  const char *cubins;
};
int cuvil_compile_worker_main(int fd, void *user);

/* ---- worker.c: the measuring worker's life.  user: struct
 * cuvil_gpu_runner_options. */
int cuvil_measure_worker_main(int fd, void *user);

/* The program of a family's point; the caller destroys it. */
CUVIL_MUST_USE enum cuvil_status cuvil_candidate_emit(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    const char *family, const char *config, struct cuvil_program **out);

#endif /* CUVIL_TUNER_POOL_H_ */
