/* timing.c - spike 4: what the clock of this GPU can tell.
 *
 * Event granularity; the floor of an empty and of a small useful kernel inside
 * a graph; and A/A floors: two copies of the same spinning kernel of about 2,
 * 20 and 200 us are raced as two candidates would be, many times, and the 95th
 * percentile of |ratio - 1| is the difference below which nothing may be said.
 */
#include <math.h>
#include <string.h>

#include "spike.h"

static const char *const source =
    "extern \"C\" __global__ void empty() {}\n"
    "extern \"C\" __global__ void small(float *p) {\n"
    "  __shared__ float s[128];\n"
    "  s[threadIdx.x] = p[blockIdx.x * 128 + threadIdx.x];\n"
    "  __syncthreads();\n"
    "  p[blockIdx.x * 128 + threadIdx.x] = s[127 - threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void spin(float *p, int n) {\n"
    "  float x = p[threadIdx.x];\n"
    "  for (int i = 0; i < n; i++) x = x * 0.999f + 0.001f;\n"
    "  p[blockIdx.x * 128 + threadIdx.x] = x;\n"
    "}\n";

struct kernel {
  struct cuvil_gpu_function *function;
  struct cuvil_gpu_launch launch;
  uint64_t buffer;
  int n;
};

static enum cuvil_status run(void *user, int rotation,
                             struct cuvil_gpu_stream *stream) {
  (void)rotation;
  struct kernel *kernel = user;
  void *args[] = {&kernel->buffer, &kernel->n};
  return cuvil_gpu_launch(kernel->function, &kernel->launch, args, stream);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void event_granularity(struct cuvil_gpu *gpu, struct kernel *kernel,
                              struct cuvil_gpu_stream *stream) {
  enum { SAMPLES = 2000 };
  static double t[SAMPLES];
  struct cuvil_gpu_event *start, *end;
  SPIKE(cuvil_gpu_event_create(gpu, &start));
  SPIKE(cuvil_gpu_event_create(gpu, &end));
  for (int i = 0; i < SAMPLES; i++) {
    SPIKE(cuvil_gpu_event_record(start, stream));
    SPIKE(run(kernel, 0, stream));
    SPIKE(cuvil_gpu_event_record(end, stream));
    SPIKE(cuvil_gpu_event_synchronize(end));
    SPIKE(cuvil_gpu_event_elapsed(start, end, &t[i]));
  }
  qsort(t, SAMPLES, sizeof t[0], by_value);
  double step = 1;
  int distinct = 1;
  for (int i = 1; i < SAMPLES; i++)
    if (t[i] > t[i - 1]) {
      distinct++;
      if (t[i] - t[i - 1] > 1e-9 && t[i] - t[i - 1] < step)
        step = t[i] - t[i - 1];
    }
  printf(
      "events around one empty launch: min %.2f median %.2f max %.2f us, %d "
      "distinct values of %d, smallest step %.3f us\n",
      t[0] * 1e6, t[SAMPLES / 2] * 1e6, t[SAMPLES - 1] * 1e6, distinct, SAMPLES,
      step * 1e6);
}

static double in_graph(struct cuvil_gpu *gpu, struct kernel *kernel,
                       const char *name) {
  struct cuvil_subject subject = {
      .user = kernel, .enqueue = run, .rotations = 1};
  struct cuvil_timer_options options = {.block_seconds = 1e-3, .max_runs = 200};
  struct cuvil_timer *timer;
  double t[21];
  SPIKE(cuvil_timer_create(gpu, &subject, &options, &timer));
  SPIKE(cuvil_timer_warm_up(timer, 0.02));
  for (int i = 0; i < 21; i++) {
    struct cuvil_block block;
    SPIKE(cuvil_timer_block(timer, &block));
    t[i] = block.seconds;
  }
  cuvil_timer_destroy(timer);
  struct cuvil_interval interval;
  cuvil_median_interval(t, 21, 0.95, &interval);
  printf("%-34s grid %4u: %.3f us [%.3f, %.3f]\n", name, kernel->launch.grid[0],
         interval.median * 1e6, interval.low * 1e6, interval.high * 1e6);
  return interval.median;
}

/* What handing over a graph costs the host, by node: the timer's lead must
 * cover it, and a model's graph cannot run faster than it is handed over. */
static void launch_cost(struct kernel kernel, struct cuvil_gpu_stream *stream,
                        bool programmatic) {
  kernel.launch.programmatic = programmatic;
  for (int nodes = 16; nodes <= 256; nodes *= 4) {
    struct cuvil_gpu_graph *graph;
    SPIKE(cuvil_gpu_capture_begin(stream));
    for (int i = 0; i < nodes; i++)
      SPIKE(run(&kernel, 0, stream));
    SPIKE(cuvil_gpu_capture_end(stream, &graph));
    double host[21], whole[21];
    for (int i = 0; i < 21; i++) {
      double start = cuvil_now();
      SPIKE(cuvil_gpu_graph_launch(graph, stream));
      host[i] = cuvil_now() - start;
      SPIKE(cuvil_gpu_stream_synchronize(stream));
      whole[i] = cuvil_now() - start;
    }
    printf(
        "graph of %3d empty nodes%s: launch call %.1f us, to the end %.1f us\n",
        nodes, programmatic ? ", programmatic" : "",
        cuvil_quantile(host, 21, 0.5) * 1e6,
        cuvil_quantile(whole, 21, 0.5) * 1e6);
    cuvil_gpu_graph_destroy(graph);
  }
}

static void a_a_floor(struct cuvil_gpu *gpu, struct kernel kernel,
                      double target) {
  kernel.n = 1000;
  for (int tries = 0; tries < 4; tries++) {
    double now = in_graph(gpu, &kernel, "  calibrating spin");
    kernel.n = (int)(kernel.n * target / now) + 1;
  }
  enum { RACES = 40, ROUNDS = 20 };
  double floor[RACES];
  struct cuvil_subject subject = {
      .user = &kernel, .enqueue = run, .rotations = 1};
  struct cuvil_timer_options options = {.block_seconds = 1e-3, .max_runs = 200};
  struct cuvil_rng rng = {7};
  for (int race = 0; race < RACES; race++) {
    struct cuvil_timer *timers[2];
    double t[2][ROUNDS];
    for (int i = 0; i < 2; i++)
      SPIKE(cuvil_timer_create(gpu, &subject, &options, &timers[i]));
    for (int round = 0; round < ROUNDS; round++) {
      int first = (int)cuvil_rng_below(&rng, 2);
      for (int i = 0; i < 2; i++) {
        struct cuvil_block block;
        SPIKE(cuvil_timer_block(timers[i ^ first], &block));
        t[i ^ first][round] = block.seconds;
      }
    }
    struct cuvil_interval ratio;
    cuvil_paired_ratio(t[0], t[1], ROUNDS, 0.95, &ratio);
    floor[race] = fabs(ratio.median - 1);
    for (int i = 0; i < 2; i++)
      cuvil_timer_destroy(timers[i]);
  }
  printf(
      "A/A at %.0f us, %d races of %d rounds: median %.3f %%, 95th %.3f %%\n",
      target * 1e6, RACES, ROUNDS, 100 * cuvil_quantile(floor, RACES, 0.5),
      100 * cuvil_quantile(floor, RACES, 0.95));
}

int main(void) {
  struct cuvil_gpu *gpu;
  struct cuvil_gpu_stream *stream;
  SPIKE(cuvil_gpu_open(0, &gpu));
  SPIKE(cuvil_gpu_stream_create(gpu, &stream));
  struct kernel empty = {
      .function = spike_kernel(gpu, source, "empty", 0, NULL),
      .launch = {.grid = {1, 1, 1}, .block = {128, 1, 1}}};
  SPIKE(cuvil_gpu_alloc(gpu, 1 << 20, &empty.buffer));
  SPIKE(cuvil_gpu_memset(gpu, empty.buffer, 0, 1 << 20, NULL));
  struct kernel small = empty, spin = empty;
  small.function = spike_kernel(gpu, source, "small", 0, NULL);
  spin.function = spike_kernel(gpu, source, "spin", 0, NULL);
  event_granularity(gpu, &empty, stream);
  launch_cost(empty, stream, false);
  launch_cost(empty, stream, true);
  for (uint32_t grid = 1; grid <= 528; grid = grid == 1 ? 132 : grid * 4) {
    empty.launch.grid[0] = small.launch.grid[0] = grid;
    in_graph(gpu, &empty, "empty kernel in a graph");
    in_graph(gpu, &small, "load, barrier, store in a graph");
  }
  spin.launch.grid[0] = 132;
  a_a_floor(gpu, spin, 2e-6);
  a_a_floor(gpu, spin, 20e-6);
  a_a_floor(gpu, spin, 200e-6);
  return 0;
}
