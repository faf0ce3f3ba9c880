/* Threads for the length of one loop.  A thread costs some tens of
 * microseconds to start, which is little beside the loops that are split here
 * (cuvil_parallel_threads keeps the small ones on the caller's thread), and
 * nothing has to be kept between calls.
 */
#include "graph/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#define MAX_THREADS 256

int cuvil_cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

int cuvil_parallel_threads(int threads, int64_t items, int64_t grain) {
  int64_t worth = items / (grain < 1 ? 1 : grain);
  if (worth > threads) worth = threads;
  if (worth > MAX_THREADS) worth = MAX_THREADS;
  return worth < 1 ? 1 : (int)worth;
}

struct part {
  pthread_t thread;
  void (*body)(void *, int, int64_t, int64_t);
  void *context;
  int worker;
  int64_t begin, end;
};

static void *run_part(void *argument) {
  struct part *part = argument;
  part->body(part->context, part->worker, part->begin, part->end);
  return NULL;
}

void cuvil_parallel(int threads, int64_t items,
                    void (*body)(void *context, int worker, int64_t begin,
                                 int64_t end),
                    void *context) {
  threads = cuvil_parallel_threads(threads, items, 1);
  struct part parts[MAX_THREADS];
  bool started[MAX_THREADS] = {false};
  for (int t = 0; t < threads; t++)
    parts[t] = (struct part){.body = body,
                             .context = context,
                             .worker = t,
                             .begin = items * t / threads,
                             .end = items * (t + 1) / threads};
  for (int t = 1; t < threads; t++)
    started[t] =
        pthread_create(&parts[t].thread, NULL, run_part, &parts[t]) == 0;
  run_part(&parts[0]);
  for (int t = 1; t < threads; t++) {
    if (started[t])
      pthread_join(parts[t].thread, NULL);
    else
      run_part(&parts[t]);
  }
}
