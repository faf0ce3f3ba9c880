/* cudnn.c - spike 3: the cuDNN backend API opened at run time.
 *
 * Lists the engines for a fused convolution, runs the first few, captures each
 * into a CUDA graph, and rebuilds it from the text that a plan would store; the
 * rebuilt one must give the same bits.
 */
#include <string.h>

#include "spike.h"

static enum cuvil_status run_call(void *user, int rotation,
                                  struct cuvil_gpu_stream *stream) {
  (void)rotation;
  void **both = user;
  return cuvil_library_run(both[0], both[1], 6, stream);
}

int main(void) {
  struct cuvil_gpu *gpu;
  struct cuvil_gpu_stream *stream;
  SPIKE(cuvil_gpu_open(0, &gpu));
  SPIKE(cuvil_gpu_stream_create(gpu, &stream));
  printf("cuDNN %s\n", cuvil_gpu_env(gpu)->cudnn);
  enum { N = 1, C = 256, H = 14, W = 14, K = 256 };
  json_t *call = json_pack(
      "{s:s, s:i,s:i,s:i,s:i,s:i,s:i,s:i, s:[ii], s:[iiii], s:[ii], s:i, s:s, "
      "s:b, s:b, s:s}",
      "op", "conv_fwd", "n", N, "c", C, "h", H, "w", W, "k", K, "r", 3, "s", 3,
      "stride", 1, 1, "pad", 1, 1, 1, 1, "dil", 1, 1, "group", 1, "dtype",
      "f16", "bias", 1, "residual", 1, "activation", "relu");
  if (!call) return 1;
  const uint64_t x_bytes = (uint64_t)N * C * H * W * 2,
                 w_bytes = (uint64_t)K * C * 9 * 2,
                 y_bytes = (uint64_t)N * K * H * W * 2;
  uint64_t at[6]; /* x, w, y, bias, residual, workspace */
  uint64_t bytes[6] = {x_bytes, w_bytes, y_bytes, K * 2, y_bytes, 256 << 20};
  struct cuvil_rng rng = {3};
  for (int i = 0; i < 6; i++)
    SPIKE(cuvil_gpu_alloc(gpu, bytes[i], &at[i]));
  for (int i = 0; i < 5; i++) {
    void *host = malloc(bytes[i]);
    for (size_t j = 0; j < bytes[i] / 2; j++)
      cuvil_store(CUVIL_F16, host, j,
                  (cuvil_rng_uniform(&rng) * 2 - 1) * (i == 1 ? 0.05 : 1));
    SPIKE(cuvil_gpu_upload(gpu, at[i], host, bytes[i]));
    free(host);
  }
  json_t *choices;
  SPIKE(cuvil_library_choices(gpu, "cudnn", call, 12, &choices));
  printf("%zu engine configurations, the library's first choice first\n",
         json_array_size(choices));
  uint16_t *first = malloc(y_bytes), *again = malloc(y_bytes);
  for (size_t i = 0; i < json_array_size(choices); i++) {
    char *text = json_dumps(
        json_object_get(json_array_get(choices, i), "engine"), JSON_COMPACT);
    struct cuvil_library_call *prepared;
    double start = cuvil_now();
    if (cuvil_library_prepare(gpu, "cudnn", json_array_get(choices, i),
                              &prepared) != CUVIL_OK) {
      printf("%2zu %s: refused: %s\n", i, text, cuvil_last_error());
      continue;
    }
    double build = cuvil_now() - start;
    SPIKE(cuvil_gpu_memset(gpu, at[2], 0xff, y_bytes, NULL));
    SPIKE(cuvil_library_run(prepared, at, 6, stream));
    SPIKE(cuvil_gpu_stream_synchronize(stream));
    SPIKE(cuvil_gpu_download(gpu, first, at[2], y_bytes));
    /* Rebuilt from what a plan stores: JSON text. */
    char *stored = json_dumps(json_array_get(choices, i), JSON_COMPACT);
    json_t *loaded = json_loads(stored, 0, NULL);
    struct cuvil_library_call *rebuilt;
    SPIKE(cuvil_library_prepare(gpu, "cudnn", loaded, &rebuilt));
    void *both[2] = {rebuilt, at};
    struct cuvil_subject subject = {
        .user = both, .enqueue = run_call, .rotations = 1};
    struct cuvil_timer_options options = {.block_seconds = 1e-3,
                                          .max_runs = 50};
    struct cuvil_timer *timer;
    double t[9] = {0};
    int captured =
        cuvil_timer_create(gpu, &subject, &options, &timer) == CUVIL_OK;
    if (captured)
      for (int b = 0; b < 9; b++) {
        struct cuvil_block block;
        SPIKE(cuvil_timer_block(timer, &block));
        t[b] = block.seconds;
      }
    SPIKE(cuvil_gpu_synchronize(gpu));
    SPIKE(cuvil_gpu_download(gpu, again, at[2], y_bytes));
    printf("%2zu %s: built in %.3f s, captured %s, %.2f us, rebuilt %s\n", i,
           text, build, captured ? "yes" : "NO",
           cuvil_quantile(t, 9, 0.5) * 1e6,
           memcmp(first, again, y_bytes) == 0 ? "bit-equal" : "DIFFERS");
    if (captured) cuvil_timer_destroy(timer);
    cuvil_library_call_destroy(prepared);
    cuvil_library_call_destroy(rebuilt);
    json_decref(loaded);
    free(stored);
    free(text);
  }
  return 0;
}
