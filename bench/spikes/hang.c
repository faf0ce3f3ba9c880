/* hang.c - spike 5: can a measuring process whose kernel hangs be killed, and
 * how soon can another take its place?
 *
 * The kernel spins until the device clock says 60 s, so that it ends by itself
 * if the kill fails.  Run last in a session.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spike.h"

static const char *const source =
    "extern \"C\" __global__ void hang(float *p) {\n"
    "  unsigned long long start, now;\n"
    "  asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(start));\n"
    "  do asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now));\n"
    "  while (now - start < 60000000000ull);\n"
    "  p[0] = 1;\n"
    "}\n"
    "extern \"C\" __global__ void fill(float *p) { p[threadIdx.x] = 2; }\n";

static void launch_and_wait(const char *entry, uint32_t grid, int ready) {
  struct cuvil_gpu *gpu;
  struct cuvil_gpu_stream *stream;
  uint64_t buffer;
  double start = cuvil_now();
  SPIKE(cuvil_gpu_open(0, &gpu));
  SPIKE(cuvil_gpu_stream_create(gpu, &stream));
  SPIKE(cuvil_gpu_alloc(gpu, 4096, &buffer));
  struct cuvil_gpu_function *function =
      spike_kernel(gpu, source, entry, 0, NULL);
  struct cuvil_gpu_launch launch = {.grid = {grid, 1, 1}, .block = {128, 1, 1}};
  void *args[] = {&buffer};
  double opened = cuvil_now();
  SPIKE(cuvil_gpu_launch(function, &launch, args, stream));
  if (ready >= 0 && write(ready, "r", 1) != 1) exit(1);
  SPIKE(cuvil_gpu_stream_synchronize(stream));
  printf("  %s: opened in %.2f s, ran in %.3f s\n", entry, opened - start,
         cuvil_now() - opened);
  fflush(stdout);
}

int main(void) {
  for (int trial = 0; trial < 2; trial++) {
    uint32_t grid = trial ? 132 * 16 : 1; /* one block, then a full GPU */
    int pipe_ends[2];
    char byte;
    if (pipe(pipe_ends) != 0) return 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      launch_and_wait("hang", grid, pipe_ends[1]);
      _exit(0);
    }
    if (read(pipe_ends[0], &byte, 1) != 1) return 1;
    usleep(1000000);
    double killed = cuvil_now();
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    double gone = cuvil_now();
    printf("grid %u: SIGKILL to reaped %.2f s (%s)\n", grid, gone - killed,
           WIFSIGNALED(status) ? "killed" : "ended by itself");
    fflush(stdout);
    child = fork();
    if (child == 0) {
      launch_and_wait("fill", 1, -1);
      _exit(0);
    }
    waitpid(child, &status, 0);
    printf("grid %u: next process done %.2f s after, exit %d\n", grid,
           cuvil_now() - gone, WEXITSTATUS(status));
    if (gone - killed > 30) return 1; /* the kill failed: do not repeat */
  }
  return 0;
}
