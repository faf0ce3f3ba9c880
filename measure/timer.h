/* timer.h - times one thing on the GPU, as research/bench.md says.
 *
 * A subject enqueues one run of itself on a stream, for a given rotation (set
 * of operand addresses).  create captures graphs of N and of 2N runs (rotating
 * through the sets), N a multiple of the rotations.  A block replays the first
 * R times, then the second R times, between events, after an untimed replay
 * that keeps the queue ahead of the GPU; R is so large that the second part
 * lasts at least `block_seconds`.  The time of a run is the slope
 * (t2N - tN) / (R N): what a replay costs once cancels, what stands between
 * two runs stays, as it does in a plan.  Consecutive runs overlap as the
 * subject's own launches allow (programmatic dependent launch).
 *
 * Runs over 1 ms are timed one by one by event pairs, each with the next set
 * of addresses.
 *
 * A subject that cannot be captured, because it launches a graph itself, is
 * enqueued run by run in the graphs' place; then what launching it costs the
 * GPU is part of its time.
 */
#ifndef CUVIL_MEASURE_TIMER_H_
#define CUVIL_MEASURE_TIMER_H_

#include "measure/probe.h"

#define CUVIL_METHOD_VERSION 2 /* bump when times change meaning */

struct cuvil_subject {
  void *user;
  enum cuvil_status (*enqueue)(void *user, int rotation,
                               struct cuvil_gpu_stream *stream);
  int rotations; /* K >= 1; cold needs N a multiple of K and N >= K */
  /* NULL, or empties the cache: enqueued before every timed replay, outside of
   * the timed part.  Then the longer graph has at most K runs, so that no copy
   * is read twice in it. */
  enum cuvil_status (*flush)(void *user, struct cuvil_gpu_stream *stream);
  bool direct; /* launches graphs of its own: never captured */
};
struct cuvil_timer_options {
  double block_seconds; /* 0: 1e-3; a block takes about 1.5 of it, or a run */
  int max_runs;         /* N at most (the rotations at least); 0: 64 */
  /* Reads the SM clock around the timed part; borrowed.  NULL: NVML's word,
   * which is of the moment after. */
  struct cuvil_probe *probe;
};
/* What a block's time is. */
enum cuvil_estimator {
  CUVIL_ESTIMATOR_SLOPE,  /* between N and 2N runs */
  CUVIL_ESTIMATOR_MEAN,   /* of the longer part: the parts did not fit */
  CUVIL_ESTIMATOR_EVENTS, /* one run between two events */
  CUVIL_ESTIMATORS
};
const char *cuvil_estimator_name(enum cuvil_estimator estimator); /* static */
struct cuvil_block {
  double seconds; /* of one run */
  enum cuvil_estimator estimator;
  double sm_mhz;            /* -1: not known */
  bool in_band;             /* sm_mhz is the probe's */
  double power_watts;       /* just after it; -1: not known */
  double temperature;       /* degrees Celsius; -1: not known */
  int64_t throttle_reasons; /* NVML's mask; -1: not known */
};
struct cuvil_timer;
/* Runs the subject a few times and calibrates: CU_ERR_CUDA and its kin when the
 * subject faults.  options NULL: all defaults.  gpu and subject's user are
 * borrowed for the timer's life; the subject itself is copied. */
CUVIL_MUST_USE enum cuvil_status cuvil_timer_create(
    struct cuvil_gpu *gpu, const struct cuvil_subject *subject,
    const struct cuvil_timer_options *options, struct cuvil_timer **out);
void cuvil_timer_destroy(struct cuvil_timer *timer);
/* A time that is not possible is measured again up to five times, then it is
 * CU_ERR_CANDIDATE_FAILED. */
CUVIL_MUST_USE enum cuvil_status cuvil_timer_block(struct cuvil_timer *timer,
                                                   struct cuvil_block *out);
int cuvil_timer_runs(const struct cuvil_timer *timer); /* N; 1: by events */
/* Runs `subject` for `seconds` so that clocks leave their idle state. */
CUVIL_MUST_USE enum cuvil_status cuvil_timer_warm_up(struct cuvil_timer *timer,
                                                     double seconds);

#endif /* CUVIL_MEASURE_TIMER_H_ */
