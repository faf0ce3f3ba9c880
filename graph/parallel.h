/* parallel.h - a loop over several threads.  Private to graph/. */
#ifndef CUVIL_GRAPH_PARALLEL_H_
#define CUVIL_GRAPH_PARALLEL_H_

#include <stdint.h>

/* Number of CPUs that this process may run on; at least 1. */
int cuvil_cpu_count(void);

/* Threads that a loop of `items` is worth when each should have at least
 * `grain` of them: 1..threads. */
int cuvil_parallel_threads(int threads, int64_t items, int64_t grain);

/* Calls body(context, worker, begin, end) on contiguous, disjoint ranges that
 * cover [0, items); worker is 0..threads-1.  Which range goes to which worker
 * depends only on `items` and `threads`.  A thread that cannot be started has
 * its range done by the caller. */
void cuvil_parallel(int threads, int64_t items,
                    void (*body)(void *context, int worker, int64_t begin,
                                 int64_t end),
                    void *context);

#endif /* CUVIL_GRAPH_PARALLEL_H_ */
