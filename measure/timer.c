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
  struct cuvil_probe *probe;
  struct cuvil_gpu_stream *stream;
  struct cuvil_gpu_event *start, *middle, *resume, *end;
  struct cuvil_gpu_graph *once, *twice; /* of N and of 2N runs */
  bool looped;                          /* N and 2N runs; else by events */
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
  CUVIL_TRY(cuvil_probe_begin(t->probe, t->stream));
  CUVIL_TRY(cuvil_gpu_event_record(t->start, t->stream));
  CUVIL_TRY(enqueue_next(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->end, t->stream));
  CUVIL_TRY(cuvil_probe_end(t->probe, t->stream));
  CUVIL_TRY(t->probe ? cuvil_gpu_stream_synchronize(t->stream)
                     : cuvil_gpu_event_synchronize(t->end));
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

/* `times` replays of N or of 2N runs. */
static enum cuvil_status replay(struct cuvil_timer *t, bool twice, int times) {
  for (int i = 0; i < times && !t->subject.direct; i++)
    CUVIL_TRY(cuvil_gpu_graph_launch(twice ? t->twice : t->once, t->stream));
  int runs = t->subject.direct ? times * t->runs * (twice ? 2 : 1) : 0;
  for (int i = 0; i < runs; i++)
    CUVIL_TRY(enqueue_next(t));
  return CUVIL_OK;
}

static enum cuvil_status time_graphs(struct cuvil_timer *t, int lead,
                                     double *out_once, double *out_twice) {
  CUVIL_TRY(replay(t, true, lead));
  CUVIL_TRY(cuvil_probe_begin(t->probe, t->stream));
  CUVIL_TRY(flush(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->start, t->stream));
  CUVIL_TRY(replay(t, false, t->replays));
  CUVIL_TRY(cuvil_gpu_event_record(t->middle, t->stream));
  CUVIL_TRY(flush(t));
  CUVIL_TRY(cuvil_gpu_event_record(t->resume, t->stream));
  CUVIL_TRY(replay(t, true, t->replays));
  CUVIL_TRY(cuvil_gpu_event_record(t->end, t->stream));
  CUVIL_TRY(cuvil_probe_end(t->probe, t->stream));
  CUVIL_TRY(t->probe ? cuvil_gpu_stream_synchronize(t->stream)
                     : cuvil_gpu_event_synchronize(t->end));
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
                  double twice, double *out_seconds,
                  enum cuvil_estimator *out_kind) {
  double runs = (double)t->runs * t->replays;
  double mean = twice / (2 * runs);
  *out_kind = CUVIL_ESTIMATOR_SLOPE;
  *out_seconds = (twice - once) / runs;
  if (isfinite(*out_seconds) && *out_seconds > 0 && *out_seconds > 0.5 * mean &&
      *out_seconds < 1.2 * mean)
    return true;
  if (!last || !isfinite(mean) || !(once > 0) || !(mean > 0.5 * once / runs) ||
      !(mean < 2 * once / runs))
    return false;
  *out_seconds = mean;
  *out_kind = CUVIL_ESTIMATOR_MEAN;
  return true;
}

static enum cuvil_status prepare_graphs(struct cuvil_timer *t) {
  double once, twice;
  t->runs = choose_runs(t);
  t->replays = 1;
  t->looped = true;
  if (!t->subject.direct) {
    CUVIL_TRY(capture(t, t->runs, &t->once));
    CUVIL_TRY(capture(t, 2 * t->runs, &t->twice));
  }
  /* The first replays upload the graphs.  What they then take says how many
   * replays a block needs: single runs were timed with their launch. */
  CUVIL_TRY(replay(t, true, 1));
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
  t->probe = options ? options->probe : NULL;
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
                                   struct cuvil_block *out,
                                   bool *out_possible) {
  if (!t->looped) {
    out->estimator = CUVIL_ESTIMATOR_EVENTS;
    CUVIL_TRY(
        time_single(t, t->estimate > UNHURRIED_SECONDS ? 0 : 1, &out->seconds));
    *out_possible = isfinite(out->seconds) && out->seconds > 0;
    return CUVIL_OK;
  }
  double once, twice;
  CUVIL_TRY(time_graphs(t, (t->replays + 1) / 2 << try, &once, &twice));
  *out_possible =
      slope(t, try + 1 == TRIES, once, twice, &out->seconds, &out->estimator);
  return CUVIL_OK;
}

static enum cuvil_status read_clocks(struct cuvil_timer *t,
                                     struct cuvil_block *out) {
  struct cuvil_gpu_clocks clocks;
  cuvil_gpu_clocks(t->gpu, &clocks);
  CUVIL_TRY(cuvil_probe_mhz(t->probe, &out->sm_mhz));
  out->in_band = out->sm_mhz > 0;
  if (!out->in_band) out->sm_mhz = clocks.sm_mhz;
  out->power_watts = clocks.power_watts;
  out->temperature = clocks.temperature;
  out->throttle_reasons = clocks.throttle_reasons;
  return CUVIL_OK;
}

enum cuvil_status cuvil_timer_block(struct cuvil_timer *timer,
                                    struct cuvil_block *out) {
  struct cuvil_block block = {.seconds = NAN};
  *out =
      (struct cuvil_block){NAN, CUVIL_ESTIMATOR_SLOPE, -1, false, -1, -1, -1};
  for (int i = 0; i < TRIES; i++) {
    bool possible = false;
    CUVIL_TRY(try_block(timer, i, &block, &possible));
    if (!possible) continue;
    CUVIL_TRY(read_clocks(timer, &block));
    *out = block;
    return CUVIL_OK;
  }
  return CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                    "no believable time in %d tries (the last was %g s a run, "
                    "expected about %g s): is the GPU busy with other work?",
                    TRIES, block.seconds, timer->estimate);
}

const char *cuvil_estimator_name(enum cuvil_estimator estimator) {
  static const char *const names[CUVIL_ESTIMATORS] = {"slope", "mean",
                                                      "events"};
  return estimator >= 0 && estimator < CUVIL_ESTIMATORS ? names[estimator]
                                                        : "unknown";
}

int cuvil_timer_runs(const struct cuvil_timer *timer) {
  return timer->runs;
}

enum cuvil_status cuvil_timer_warm_up(struct cuvil_timer *timer,
                                      double seconds) {
  double until = cuvil_now() + seconds;
  while (cuvil_now() < until) {
    if (timer->looped)
      CUVIL_TRY(replay(timer, true, timer->replays));
    else
      CUVIL_TRY(enqueue_next(timer));
    CUVIL_TRY(cuvil_gpu_stream_synchronize(timer->stream));
  }
  return CUVIL_OK;
}
