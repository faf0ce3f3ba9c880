/* timer.h - times one thing on the GPU, as research/bench.md says.
 *
 * A subject enqueues one run of itself on a stream, for a given rotation (set
 * of operand addresses).  prepare captures graphs of N runs (rotating), N so
 * large that one replay lasts at least `block_seconds`; a block replays the
 * graph between two events and divides.  The fixed cost of a graph launch is
 * removed by the slope between N and 2N.  Kernels over 1 ms are timed by
 * event pairs around single runs.
 */
#ifndef CUVIL_MEASURE_TIMER_H_
#define CUVIL_MEASURE_TIMER_H_

#include "gpu/gpu.h"

#define CUVIL_METHOD_VERSION 1 /* bump when times change meaning */

struct cuvil_subject {
  void *user;
  enum cuvil_status (*enqueue)(void *user, int rotation,
                               struct cuvil_gpu_stream *stream);
  int rotations; /* K >= 1; cold needs N a multiple of K and N >= K */
};
struct cuvil_timer_options {
  double block_seconds; /* 1e-3 */
  int max_runs;         /* of one graph; 512 */
};
struct cuvil_block {
  double seconds; /* of one run */
  int sm_mhz;     /* -1: not known */
  int64_t throttle_reasons;
};
struct cuvil_timer;
/* gpu and subject's user are borrowed for the timer's life. */
CUVIL_MUST_USE enum cuvil_status cuvil_timer_create(
    struct cuvil_gpu *gpu, const struct cuvil_subject *subject,
    const struct cuvil_timer_options *options, struct cuvil_timer **out);
void cuvil_timer_destroy(struct cuvil_timer *timer);
CUVIL_MUST_USE enum cuvil_status cuvil_timer_block(struct cuvil_timer *timer,
                                                   struct cuvil_block *out);
int cuvil_timer_runs(const struct cuvil_timer *timer); /* N */
/* Runs `subject` for `seconds` so that clocks leave their idle state. */
CUVIL_MUST_USE enum cuvil_status cuvil_timer_warm_up(struct cuvil_timer *timer,
                                                     double seconds);

#endif /* CUVIL_MEASURE_TIMER_H_ */
