/* The timer against a GPU of arithmetic: a virtual clock, a fixed cost for
 * each launch and each graph, events that are stamped late while the queue is
 * empty.  timer.c is built into this test with the device calls renamed. */
#define cuvil_timer_create sim_timer_create
#define cuvil_timer_destroy sim_timer_destroy
#define cuvil_timer_block sim_timer_block
#define cuvil_timer_runs sim_timer_runs
#define cuvil_timer_warm_up sim_timer_warm_up
#define cuvil_gpu_stream_create sim_stream_create
#define cuvil_gpu_stream_destroy sim_stream_destroy
#define cuvil_gpu_stream_synchronize sim_stream_synchronize
#define cuvil_gpu_event_create sim_event_create
#define cuvil_gpu_event_destroy sim_event_destroy
#define cuvil_gpu_event_record sim_event_record
#define cuvil_gpu_event_synchronize sim_event_synchronize
#define cuvil_gpu_event_elapsed sim_event_elapsed
#define cuvil_gpu_capture_begin sim_capture_begin
#define cuvil_gpu_capture_end sim_capture_end
#define cuvil_gpu_capture_abandon sim_capture_abandon
#define cuvil_gpu_graph_launch sim_graph_launch
#define cuvil_gpu_graph_destroy sim_graph_destroy
#define cuvil_gpu_clocks sim_clocks

#include "measure/timer.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct cuvil_gpu_stream {
  int unused;
};
struct cuvil_gpu_event {
  double stamp;
};
struct cuvil_gpu_graph {
  int runs;
};

#define LAUNCH_COST 4e-6 /* host, before an idle GPU starts */
#define GRAPH_COST 6e-6  /* GPU, once for each replay */

static struct {
  double now;       /* end of all queued work */
  bool idle;        /* nothing queued since the last synchronisation */
  double run;       /* seconds of one run */
  int capturing;    /* runs captured; -1: not capturing */
  int live;         /* objects not destroyed */
  int calls;        /* so far */
  int fail_at;      /* this call fails; 0: none */
  int disturb;      /* elapsed times to spoil */
  int last, jumps;  /* rotation: last seen, breaks of the turn */
  int rotations;    /* of the subject */
  int enqueued;     /* runs, captured or not */
  double block_max; /* longest stretch between synchronisations */
  double begun;
} sim;

static void sim_reset(double run, int rotations) {
  memset(&sim, 0, sizeof sim);
  sim.run = run;
  sim.rotations = rotations;
  sim.capturing = -1;
  sim.idle = true;
}
static enum cuvil_status call(void) {
  sim.calls++;
  return sim.calls == sim.fail_at ? CUVIL_FAIL(CU_ERR_CUDA, "planted")
                                  : CUVIL_OK;
}
static void queue(double seconds) {
  if (sim.idle) sim.now += LAUNCH_COST;
  sim.idle = false;
  sim.now += seconds;
}
static void settle(void) {
  if (sim.now - sim.begun > sim.block_max) sim.block_max = sim.now - sim.begun;
  sim.begun = sim.now;
  sim.idle = true;
}

enum cuvil_status sim_stream_create(struct cuvil_gpu *gpu,
                                    struct cuvil_gpu_stream **out) {
  (void)gpu;
  *out = NULL;
  CUVIL_TRY(call());
  *out = calloc(1, sizeof **out);
  sim.live++;
  return CUVIL_OK;
}
void sim_stream_destroy(struct cuvil_gpu_stream *stream) {
  sim.live -= stream != NULL;
  free(stream);
}
enum cuvil_status sim_stream_synchronize(struct cuvil_gpu_stream *stream) {
  assert_non_null(stream);
  settle();
  return call();
}
enum cuvil_status sim_event_create(struct cuvil_gpu *gpu,
                                   struct cuvil_gpu_event **out) {
  (void)gpu;
  *out = NULL;
  CUVIL_TRY(call());
  *out = calloc(1, sizeof **out);
  sim.live++;
  return CUVIL_OK;
}
void sim_event_destroy(struct cuvil_gpu_event *event) {
  sim.live -= event != NULL;
  free(event);
}
enum cuvil_status sim_event_record(struct cuvil_gpu_event *event,
                                   struct cuvil_gpu_stream *stream) {
  assert_non_null(stream);
  event->stamp = sim.now;
  return call();
}
enum cuvil_status sim_event_synchronize(struct cuvil_gpu_event *event) {
  assert_non_null(event);
  settle();
  return call();
}
enum cuvil_status sim_event_elapsed(struct cuvil_gpu_event *start,
                                    struct cuvil_gpu_event *end, double *out) {
  *out = end->stamp - start->stamp;
  if (sim.disturb > 0) {
    sim.disturb--;
    *out = 0;
  }
  return call();
}
enum cuvil_status sim_capture_begin(struct cuvil_gpu_stream *stream) {
  (void)stream;
  CUVIL_TRY(call());
  assert_int_equal(sim.capturing, -1);
  sim.capturing = 0;
  return CUVIL_OK;
}
enum cuvil_status sim_capture_end(struct cuvil_gpu_stream *stream,
                                  struct cuvil_gpu_graph **out) {
  (void)stream;
  int runs = sim.capturing;
  *out = NULL;
  sim.capturing = -1;
  CUVIL_TRY(call());
  *out = calloc(1, sizeof **out);
  (*out)->runs = runs;
  sim.live++;
  return CUVIL_OK;
}
void sim_capture_abandon(struct cuvil_gpu_stream *stream) {
  (void)stream;
  sim.capturing = -1;
}
enum cuvil_status sim_graph_launch(struct cuvil_gpu_graph *graph,
                                   struct cuvil_gpu_stream *stream) {
  (void)stream;
  queue(GRAPH_COST + graph->runs * sim.run);
  return call();
}
void sim_graph_destroy(struct cuvil_gpu_graph *graph) {
  sim.live -= graph != NULL;
  free(graph);
}
void sim_clocks(struct cuvil_gpu *gpu, struct cuvil_gpu_clocks *out) {
  (void)gpu;
  *out = (struct cuvil_gpu_clocks){.sm_mhz = 1980, .throttle_reasons = 4};
}

static enum cuvil_status enqueue(void *user, int rotation,
                                 struct cuvil_gpu_stream *stream) {
  assert_ptr_equal(user, &sim);
  assert_non_null(stream);
  assert_in_range(rotation, 0, sim.rotations - 1);
  sim.enqueued++;
  CUVIL_TRY(call());
  if (sim.capturing >= 0) {
    /* Within a graph the sets come in turn, from the first. */
    if (rotation != sim.capturing % sim.rotations) sim.jumps++;
    sim.capturing++;
  } else {
    if (sim.enqueued > 1 && rotation != (sim.last + 1) % sim.rotations)
      sim.jumps++;
    sim.last = rotation;
    queue(sim.run);
  }
  return CUVIL_OK;
}

static struct cuvil_timer *make(double run, int rotations) {
  struct cuvil_timer *timer;
  sim_reset(run, rotations);
  struct cuvil_subject subject = {&sim, enqueue, rotations, NULL, false};
  assert_int_equal(sim_timer_create(NULL, &subject, NULL, &timer), CUVIL_OK);
  return timer;
}

static void fixed_costs_fall_out(void **state) {
  (void)state;
  const double runs[] = {1e-6, 2e-6, 5e-6, 2e-5, 2e-4, 9e-4, 2e-3, 5e-2};
  for (int i = 0; i < 8; i++) {
    for (int rotations = 1; rotations <= 5; rotations += 2) {
      struct cuvil_timer *timer = make(runs[i], rotations);
      struct cuvil_block block;
      sim.block_max = 0;
      assert_int_equal(sim_timer_block(timer, &block), CUVIL_OK);
      /* A long run's own launch is all that may be left. */
      double slack = runs[i] > 1e-2 ? LAUNCH_COST : 1e-9 * runs[i];
      assert_true(fabs(block.seconds - runs[i]) <= slack + 1e-12);
      assert_true(block.sm_mhz == 1980 && !block.in_band);
      assert_int_equal(block.estimator, timer->looped ? CUVIL_ESTIMATOR_SLOPE
                                                      : CUVIL_ESTIMATOR_EVENTS);
      assert_int_equal(block.throttle_reasons, 4);
      assert_int_equal(sim.jumps, 0);
      assert_true(sim.block_max < 4e-3 + 5.1 * rotations * runs[i]);
      assert_int_equal(sim_timer_runs(timer) % (timer->once ? rotations : 1),
                       0);
      sim_timer_destroy(timer);
      assert_int_equal(sim.live, 0);
    }
  }
}

static void every_set_is_in_the_graph(void **state) {
  (void)state;
  struct cuvil_timer *timer = make(2e-6, 100); /* more than max_runs */
  assert_int_equal(sim_timer_runs(timer), 100);
  sim_timer_destroy(timer);
  timer = make(2e-6, 24);
  assert_int_equal(sim_timer_runs(timer), 48); /* two turns fit 64 */
  sim_timer_destroy(timer);
  timer = make(2e-3, 24);
  assert_int_equal(sim_timer_runs(timer), 1);
  sim_timer_destroy(timer);
}

static void impossible_times_are_measured_again(void **state) {
  (void)state;
  struct cuvil_timer *timer = make(2e-6, 1);
  struct cuvil_block block;
  sim.disturb = 3; /* first block: both parts 0; second: the first part 0 */
  assert_int_equal(sim_timer_block(timer, &block), CUVIL_OK);
  assert_true(fabs(block.seconds - 2e-6) < 1e-12);
  assert_int_equal(sim.disturb, 0);
  sim.disturb = 1000;
  assert_int_equal(sim_timer_block(timer, &block), CU_ERR_CANDIDATE_FAILED);
  assert_true(isnan(block.seconds));
  assert_int_equal(1000 - sim.disturb, 2 * 3);
  sim_timer_destroy(timer);
}

static int flushes;
static enum cuvil_status count_flush(void *user,
                                     struct cuvil_gpu_stream *stream) {
  (void)user;
  (void)stream;
  flushes++;
  return CUVIL_OK;
}

static void a_flush_precedes_both_replays(void **state) {
  (void)state;
  sim_reset(2e-6, 64);
  struct cuvil_subject subject = {&sim, enqueue, 64, count_flush, false};
  struct cuvil_timer *timer;
  struct cuvil_block block;
  assert_int_equal(sim_timer_create(NULL, &subject, NULL, &timer), CUVIL_OK);
  /* No copy is read twice in the longer graph. */
  assert_int_equal(sim_timer_runs(timer), 32);
  flushes = 0;
  assert_int_equal(sim_timer_block(timer, &block), CUVIL_OK);
  assert_int_equal(flushes, 2);
  sim_timer_destroy(timer);
}

/* A subject that launches graphs of its own: what a run costs to launch stays
 * in its time, and nothing is captured. */
static void a_direct_subject_is_not_captured(void **state) {
  (void)state;
  sim_reset(2e-4, 3);
  struct cuvil_subject subject = {&sim, enqueue, 3, NULL, true};
  struct cuvil_timer *timer;
  struct cuvil_block block;
  assert_int_equal(sim_timer_create(NULL, &subject, NULL, &timer), CUVIL_OK);
  assert_null(timer->once);
  assert_int_equal(sim_timer_block(timer, &block), CUVIL_OK);
  assert_true(fabs(block.seconds - 2e-4) < 1e-9);
  assert_int_equal(block.estimator, CUVIL_ESTIMATOR_SLOPE);
  assert_int_equal(sim.jumps, 0);
  assert_int_equal(sim_timer_warm_up(timer, 1e-3), CUVIL_OK);
  sim_timer_destroy(timer);
  assert_int_equal(sim.live, 0);
}

/* Longer chains in another rhythm: no two parts fit, and the block says that
 * its time is a mean. */
static void parts_that_do_not_fit_give_a_mean(void **state) {
  (void)state;
  double seconds;
  enum cuvil_estimator kind;
  struct cuvil_timer timer = {.runs = 10, .replays = 2};
  assert_true(slope(&timer, false, 20e-6, 40e-6, &seconds, &kind));
  assert_int_equal(kind, CUVIL_ESTIMATOR_SLOPE);
  assert_true(fabs(seconds - 1e-6) < 1e-12);
  assert_false(slope(&timer, false, 20e-6, 60e-6, &seconds, &kind));
  assert_true(slope(&timer, true, 20e-6, 60e-6, &seconds, &kind));
  assert_int_equal(kind, CUVIL_ESTIMATOR_MEAN);
  assert_true(fabs(seconds - 1.5e-6) < 1e-12);
  assert_false(slope(&timer, true, 0, 60e-6, &seconds, &kind));
}

static void every_failing_call_is_passed_on(void **state) {
  (void)state;
  const double runs[] = {2e-6, 5e-3};
  for (int i = 0; i < 2; i++) {
    struct cuvil_timer *timer = make(runs[i], 3);
    struct cuvil_block block;
    assert_int_equal(sim_timer_block(timer, &block), CUVIL_OK);
    int calls = sim.calls;
    sim_timer_destroy(timer);
    assert_true(calls > 10);
    for (int n = 1; n <= calls; n++) {
      struct cuvil_subject subject = {&sim, enqueue, 3, NULL, false};
      sim_reset(runs[i], 3);
      sim.fail_at = n;
      enum cuvil_status status = sim_timer_create(NULL, &subject, NULL, &timer);
      if (status == CUVIL_OK) status = sim_timer_block(timer, &block);
      assert_int_equal(status, CU_ERR_CUDA);
      assert_int_equal(sim.capturing, -1);
      sim_timer_destroy(timer);
      assert_int_equal(sim.live, 0);
    }
  }
}

static void warm_up_runs_the_subject(void **state) {
  (void)state;
  struct cuvil_timer *timer = make(2e-3, 2);
  int before = sim.enqueued;
  assert_int_equal(sim_timer_warm_up(timer, 2e-4), CUVIL_OK);
  assert_true(sim.enqueued > before);
  assert_int_equal(sim.jumps, 0);
  before = sim.enqueued;
  assert_int_equal(sim_timer_warm_up(timer, 0), CUVIL_OK);
  assert_int_equal(sim.enqueued, before);
  sim_timer_destroy(timer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fixed_costs_fall_out),
      cmocka_unit_test(every_set_is_in_the_graph),
      cmocka_unit_test(impossible_times_are_measured_again),
      cmocka_unit_test(a_flush_precedes_both_replays),
      cmocka_unit_test(a_direct_subject_is_not_captured),
      cmocka_unit_test(parts_that_do_not_fit_give_a_mean),
      cmocka_unit_test(every_failing_call_is_passed_on),
      cmocka_unit_test(warm_up_runs_the_subject),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
