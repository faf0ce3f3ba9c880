/* wgmma.c - spike 1: is a hand-written WGMMA + TMA kernel through NVRTC worth
 * building the sm_90a families on?
 *
 *   wgmma bench/spikes/wgmma_gemm.cu [--check]
 *
 * Prints compile time, difference to cuBLASLt's result, and the paired ratio
 * of times at 4096 cubed.  --check: one launch at 512 cubed and no timing, for
 * compute-sanitizer.
 */
#include <math.h>
#include <string.h>

#include "spike.h"

struct ours {
  struct cuvil_gpu_function *function;
  struct cuvil_gpu_launch launch;
  void **args;
};

static enum cuvil_status run_ours(void *user, int rotation,
                                  struct cuvil_gpu_stream *stream) {
  (void)rotation;
  struct ours *ours = user;
  return cuvil_gpu_launch(ours->function, &ours->launch, ours->args, stream);
}

struct theirs {
  struct cuvil_library_call *call;
  uint64_t addresses[4];
};

static enum cuvil_status run_theirs(void *user, int rotation,
                                    struct cuvil_gpu_stream *stream) {
  (void)rotation;
  struct theirs *theirs = user;
  return cuvil_library_run(theirs->call, theirs->addresses, 4, stream);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: wgmma wgmma_gemm.cu [--check]\n");
    return 2;
  }
  const int check = argc > 2;
  const int n = check ? 512 : 4096;
  const size_t elements = (size_t)n * n;
  struct cuvil_buf source;
  struct cuvil_gpu *gpu;
  SPIKE(cuvil_file_read(argv[1], &source));
  SPIKE(cuvil_gpu_open(0, &gpu));
  const uint32_t shared = 4 * (128 + 256) * 64 * 2 + 1024;
  double compile;
  struct ours ours = {
      .function =
          spike_kernel(gpu, source.data, "spike_gemm", shared, &compile),
      .launch = {.grid = {(uint32_t)cuvil_gpu_arch(gpu)->sms, 1, 1},
                 .block = {384, 1, 1},
                 .shared_bytes = shared}};
  printf("compile: %.2f s\n", compile);

  uint16_t *host = malloc(elements * 2), *other = malloc(elements * 2);
  uint64_t a, b, c, d, workspace;
  struct cuvil_rng rng = {1};
  SPIKE(cuvil_gpu_alloc(gpu, elements * 2, &a));
  SPIKE(cuvil_gpu_alloc(gpu, elements * 2, &b));
  SPIKE(cuvil_gpu_alloc(gpu, elements * 2, &c));
  SPIKE(cuvil_gpu_alloc(gpu, elements * 2, &d));
  SPIKE(cuvil_gpu_alloc(gpu, 64 << 20, &workspace));
  for (int which = 0; which < 2; which++) {
    for (size_t i = 0; i < elements; i++)
      host[i] = cuvil_f32_to_f16((float)(cuvil_rng_uniform(&rng) * 2 - 1));
    SPIKE(cuvil_gpu_upload(gpu, which ? b : a, host, elements * 2));
  }
  _Alignas(64) char map_a[128], map_b[128];
  const uint64_t dims[2] = {(uint64_t)n, (uint64_t)n};
  const uint64_t strides[1] = {(uint64_t)n * 2};
  const uint32_t box_a[2] = {64, 128}, box_b[2] = {64, 256}, ones[2] = {1, 1};
  SPIKE(cuvil_gpu_tensor_map_encode(gpu, map_a, a, CUVIL_F16, 2, dims, strides,
                                    box_a, ones, 128, 128));
  SPIKE(cuvil_gpu_tensor_map_encode(gpu, map_b, b, CUVIL_F16, 2, dims, strides,
                                    box_b, ones, 128, 128));
  int size = n;
  void *args[] = {map_a, map_b, &c, &size, &size, &size};
  ours.args = args;

  struct cuvil_gpu_stream *stream;
  SPIKE(cuvil_gpu_stream_create(gpu, &stream));
  SPIKE(run_ours(&ours, 0, stream));
  SPIKE(cuvil_gpu_stream_synchronize(stream));
  SPIKE(cuvil_gpu_download(gpu, host, c, elements * 2));
  if (check) {
    printf("one launch done; first value %g\n", cuvil_f16_to_f32(host[0]));
    return 0;
  }
  json_t *call = json_pack(
      "{s:s, s:i, s:i, s:i, s:{s:s,s:b,s:i}, s:{s:s,s:b,s:i}, s:{s:s,s:i}, "
      "s:s, s:s}",
      "op", "matmul", "m", n, "n", n, "k", n, "a", "dtype", "f16", "trans", 0,
      "ld", n, "b", "dtype", "f16", "trans", 1, "ld", n, "d", "dtype", "f16",
      "ld", n, "compute", "f32", "epilogue", "default");
  if (!call) return 1;
  json_t *choices;
  SPIKE(cuvil_library_choices(gpu, "cublaslt", call, 8, &choices));
  printf("cuBLASLt offers %zu algorithms\n", json_array_size(choices));
  double best = 0;
  for (size_t i = 0; i < json_array_size(choices); i++) {
    struct theirs theirs = {.addresses = {a, b, d, workspace}};
    SPIKE(cuvil_library_prepare(gpu, "cublaslt", json_array_get(choices, i),
                                &theirs.call));
    SPIKE(run_theirs(&theirs, 0, stream));
    SPIKE(cuvil_gpu_stream_synchronize(stream));
    SPIKE(cuvil_gpu_download(gpu, other, d, elements * 2));
    double difference = 0, norm = 0;
    for (size_t j = 0; j < elements; j += 97) {
      double x = cuvil_f16_to_f32(host[j]), y = cuvil_f16_to_f32(other[j]);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
    struct cuvil_subject subjects[2] = {
        {.user = &ours, .enqueue = run_ours, .rotations = 1},
        {.user = &theirs, .enqueue = run_theirs, .rotations = 1}};
    struct cuvil_timer_options options = {.block_seconds = 2e-3, .max_runs = 8};
    struct cuvil_timer *timers[2];
    double seconds[2][24];
    for (int t = 0; t < 2; t++) {
      SPIKE(cuvil_timer_create(gpu, &subjects[t], &options, &timers[t]));
      SPIKE(cuvil_timer_warm_up(timers[t], 0.05));
    }
    for (int round = 0; round < 24; round++)
      for (int t = 0; t < 2; t++) {
        struct cuvil_block block;
        SPIKE(cuvil_timer_block(timers[t], &block));
        seconds[t][round] = block.seconds;
      }
    struct cuvil_interval mine, its, ratio;
    cuvil_median_interval(seconds[0], 24, 0.95, &mine);
    cuvil_median_interval(seconds[1], 24, 0.95, &its);
    cuvil_paired_ratio(seconds[1], seconds[0], 24, 0.95, &ratio);
    double flops = 2.0 * n * n * n;
    printf(
        "algorithm %zu: relative difference %.2e; ours %.1f us (%.0f TFLOP/s), "
        "cuBLASLt %.1f us (%.0f TFLOP/s), cuBLASLt/ours %.3f [%.3f, %.3f]\n",
        i, sqrt(difference / norm), mine.median * 1e6,
        flops / mine.median * 1e-12, its.median * 1e6,
        flops / its.median * 1e-12, ratio.median, ratio.low, ratio.high);
    if (best == 0 || its.median < best) best = its.median;
    for (int t = 0; t < 2; t++)
      cuvil_timer_destroy(timers[t]);
    cuvil_library_call_destroy(theirs.call);
  }
  return 0;
}
