/* timer.c - how long one run takes, without what the clock itself costs.
 *
 * An event is stamped with a resolution of about half a microsecond and a
 * launch takes several, so a kernel of two microseconds cannot be timed alone:
 * it is captured many times into a graph, and the graph is replayed.  Two
 * graphs, one twice as long, share whatever a replay costs besides its runs,
 * so that cost falls out of the difference of their times.
 *
 * The GPU must never wait for the host inside a block: handing over a graph
 * costs the host time for every node of it, more with programmatic dependent
 * launch.  Untimed replays of the longer graph go first; while they run, the
 * host queues everything else.  When a block's parts do not belong together,
 * the next try gives the host twice the lead.
 *
 * Clocks move during a block when the GPU leaves an idle state or reaches its
 * power limit, and another process may use the GPU; then the two parts of a
 * block do not belong together and its slope is far from its mean.  Such a
 * block is measured again.
 */
#include "measure/timer.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"

#define SINGLE_RUN_SECONDS 1e-3   /* longer ones need no graph */
#define UNHURRIED_SECONDS 10e-3   /* longer ones need no untimed run first */
#define LAUNCH_FLOOR_SECONDS 1e-6 /* no run is taken to be shorter */
#define MAX_REPLAYS 256
#define TRIES 3
#define ESTIMATES 3

struct cuvil_timer {
  struct cuvil_gpu *gpu;
  struct cuvil_subject subject;
  double block_seconds;
  int max_runs;
  struct cuvil_gpu_stream *stream;
  struct cuvil_gpu_event *start, *middle, *resume, *end;
  struct cuvil_gpu_graph *once, *twice; /* N and 2N runs; NULL: by events */
  int runs;                             /* N */
  int replays;                          /* R */
  int next_rotation;                    /* of runs outside of graphs */
  double estimate;                      /* seconds of a run, roughly */
};

static enum cuvil_status enqueue_next(struct cuvil_timer *t) {
  int rotation = t->next_rotation;
  t->next_rotation = (rotation + 1) % t->subject.rotations;
  return t->subject.enqueue(t->subject.user, rotation, t->stream);
}

/* One run between two events; `lead` runs go before, untimed. */
static enum cuvil_status time_single(struct cuvil_timer *t, int lead,
                                     double *out_seconds) {
  for (int i = 0; i < lead; i++)
    CUVIL_TRY(enqueue_next(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->start, t->stream));
  CUVIL_TRY(enqueue_next(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->end, t->stream));
  CUVIL_TRY(cuvil_gpu_event_synchronize(t->end));
  return cuvil_gpu_event_elapsed(t->start, t->end, out_seconds);
}

static enum cuvil_status estimate(struct cuvil_timer *t) {
  /* The first run loads modules; it and its faults are nobody's time. */
  CUVIL_TRY(enqueue_next(t));
  CUVIL_TRY(cuvil_gpu_stream_synchronize(t->stream));
  t->estimate = INFINITY;
  for (int i = 0; i < ESTIMATES; i++) {
    double seconds;
    CUVIL_TRY(time_single(t, 0, &seconds));
    if (seconds < t->estimate) t->estimate = seconds;
    if (seconds > UNHURRIED_SECONDS) break;
  }
  return CUVIL_OK;
}

/* ---- graphs */

static enum cuvil_status capture(struct cuvil_timer *t, int runs,
                                 struct cuvil_gpu_graph **out) {
  *out = NULL;
  CUVIL_TRY(cuvil_gpu_capture_begin(t->stream));
  for (int i = 0; i < runs; i++) {
    enum cuvil_status status = t->subject.enqueue(
        t->subject.user, i % t->subject.rotations, t->stream);
    if (status != CUVIL_OK) {
      cuvil_gpu_capture_abandon(t->stream);
      return status;
    }
  }
  return cuvil_gpu_capture_end(t->stream, out);
}

/* The longer part of a block, 2 N R runs, lasts block_seconds. */
static int choose_replays(const struct cuvil_timer *t) {
  if (t->subject.flush) return 1; /* a second replay would find it all */
  double replay = 2 * t->runs * fmax(t->estimate, LAUNCH_FLOOR_SECONDS);
  double wanted = ceil(t->block_seconds / replay);
  if (wanted < 1) return 1;
  return wanted > MAX_REPLAYS ? MAX_REPLAYS : (int)wanted;
}

/* As few runs as make the longer graph last block_seconds, at most max_runs;
 * then whole turns of the rotation, one at least. */
static int choose_runs(const struct cuvil_timer *t) {
  int rotations = t->subject.rotations;
  if (t->subject.flush) return rotations > 2 ? rotations / 2 : 1;
  double wanted =
      ceil(t->block_seconds / (2 * fmax(t->estimate, LAUNCH_FLOOR_SECONDS)));
  int runs = wanted < t->max_runs ? (int)wanted : t->max_runs;
  int turns = (runs + rotations - 1) / rotations;
  if (turns * rotations > t->max_runs) turns = t->max_runs / rotations;
  return (turns > 1 ? turns : 1) * rotations;
}

static enum cuvil_status flush(struct cuvil_timer *t) {
  return t->subject.flush ? t->subject.flush(t->subject.user, t->stream)
                          : CUVIL_OK;
}

static enum cuvil_status time_graphs(struct cuvil_timer *t, int lead,
                                     double *out_once, double *out_twice) {
  for (int i = 0; i < lead; i++)
    CUVIL_TRY(cuvil_gpu_graph_launch(t->twice, t->stream));
  CUVIL_TRY(flush(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->start, t->stream));
  for (int i = 0; i < t->replays; i++)
    CUVIL_TRY(cuvil_gpu_graph_launch(t->once, t->stream));
  CUVIL_TRY(cuvil_gpu_event_record(t->middle, t->stream));
  CUVIL_TRY(flush(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->resume, t->stream));
  for (int i = 0; i < t->replays; i++)
    CUVIL_TRY(cuvil_gpu_graph_launch(t->twice, t->stream));
  CUVIL_TRY(cuvil_gpu_event_record(t->end, t->stream));
  CUVIL_TRY(cuvil_gpu_event_synchronize(t->end));
  CUVIL_TRY(cuvil_gpu_event_elapsed(t->start, t->middle, out_once));
  return cuvil_gpu_event_elapsed(t->resume, t->end, out_twice);
}

/* Seconds of a run; false when the two parts do not belong together.  The
 * slope cannot exceed the mean of the longer part but for noise, and where it
 * is under half of it something else than the runs took the time.
 *
 * Chains of programmatic launches can settle into another rhythm when they are
 * longer: their two parts never fit, block after block.  Then the mean of the
 * longer part is the time, as long as the parts are of one magnitude. */
static bool slope(const struct cuvil_timer *t, bool last, double once,
                  double twice, double *out_seconds) {
  double runs = (double)t->runs * t->replays;
  double mean = twice / (2 * runs);
  *out_seconds = (twice - once) / runs;
  if (isfinite(*out_seconds) && *out_seconds > 0 && *out_seconds > 0.5 * mean &&
      *out_seconds < 1.2 * mean)
    return true;
  if (!last || !isfinite(mean) || !(once > 0) || !(mean > 0.5 * once / runs) ||
      !(mean < 2 * once / runs))
    return false;
  *out_seconds = mean;
  return true;
}

static enum cuvil_status prepare_graphs(struct cuvil_timer *t) {
  double once, twice;
  t->runs = choose_runs(t);
  t->replays = 1;
  CUVIL_TRY(capture(t, t->runs, &t->once));
  CUVIL_TRY(capture(t, 2 * t->runs, &t->twice));
  /* The first replays upload the graphs.  What they then take says how many
   * replays a block needs: single runs were timed with their launch. */
  CUVIL_TRY(cuvil_gpu_graph_launch(t->twice, t->stream));
  CUVIL_TRY(time_graphs(t, 1, &once, &twice));
  t->estimate = twice / (2 * t->runs);
  t->replays = choose_replays(t);
  return CUVIL_OK;
}

/* ---- the timer */

void cuvil_timer_destroy(struct cuvil_timer *timer) {
  if (!timer) return;
  cuvil_gpu_graph_destroy(timer->once);
  cuvil_gpu_graph_destroy(timer->twice);
  cuvil_gpu_event_destroy(timer->start);
  cuvil_gpu_event_destroy(timer->middle);
  cuvil_gpu_event_destroy(timer->resume);
  cuvil_gpu_event_destroy(timer->end);
  cuvil_gpu_stream_destroy(timer->stream);
  free(timer);
}

enum cuvil_status cuvil_timer_create(struct cuvil_gpu *gpu,
                                     const struct cuvil_subject *subject,
                                     const struct cuvil_timer_options *options,
                                     struct cuvil_timer **out) {
  *out = NULL;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_CHECK(subject->rotations >= 1);
  struct cuvil_timer *t = calloc(1, sizeof *t);
  if (!t) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  t->gpu = gpu;
  t->subject = *subject;
  t->block_seconds =
      options && options->block_seconds > 0 ? options->block_seconds : 1e-3;
  t->max_runs = options && options->max_runs > 0 ? options->max_runs : 64;
  t->runs = t->replays = 1;
  CUVIL_TRY_GOTO(cuvil_gpu_stream_create(gpu, &t->stream));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &t->start));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &t->middle));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &t->resume));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(gpu, &t->end));
  CUVIL_TRY_GOTO(estimate(t));
  if (t->estimate <= SINGLE_RUN_SECONDS) CUVIL_TRY_GOTO(prepare_graphs(t));
  *out = t;
  return CUVIL_OK;
fail:
  cuvil_timer_destroy(t);
  return status;
}

static enum cuvil_status try_block(struct cuvil_timer *t, int try,
                                   double *out_seconds, bool *out_possible) {
  if (!t->once) {
    CUVIL_TRY(
        time_single(t, t->estimate > UNHURRIED_SECONDS ? 0 : 1, out_seconds));
    *out_possible = isfinite(*out_seconds) && *out_seconds > 0;
    return CUVIL_OK;
  }
  double once, twice;
  CUVIL_TRY(time_graphs(t, (t->replays + 1) / 2 << try, &once, &twice));
  *out_possible = slope(t, try + 1 == TRIES, once, twice, out_seconds);
  return CUVIL_OK;
}

enum cuvil_status cuvil_timer_block(struct cuvil_timer *timer,
                                    struct cuvil_block *out) {
  struct cuvil_gpu_clocks clocks;
  double seconds = NAN;
  *out = (struct cuvil_block){NAN, -1, -1};
  for (int i = 0; i < TRIES; i++) {
    bool possible = false;
    CUVIL_TRY(try_block(timer, i, &seconds, &possible));
    if (!possible) continue;
    cuvil_gpu_clocks(timer->gpu, &clocks);
    *out =
        (struct cuvil_block){seconds, clocks.sm_mhz, clocks.throttle_reasons};
    return CUVIL_OK;
  }
  return CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                    "no believable time in %d tries (the last was %g s a run, "
                    "expected about %g s): is the GPU busy with other work?",
                    TRIES, seconds, timer->estimate);
}

int cuvil_timer_runs(const struct cuvil_timer *timer) {
  return timer->runs;
}

enum cuvil_status cuvil_timer_warm_up(struct cuvil_timer *timer,
                                      double seconds) {
  double until = cuvil_now() + seconds;
  while (cuvil_now() < until) {
    for (int i = 0; i < timer->replays; i++) {
      CUVIL_TRY(timer->twice
                    ? cuvil_gpu_graph_launch(timer->twice, timer->stream)
                    : enqueue_next(timer));
    }
    CUVIL_TRY(cuvil_gpu_stream_synchronize(timer->stream));
  }
  return CUVIL_OK;
}
