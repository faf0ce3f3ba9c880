/* spike.h - what the spike programs share: fail loudly, seeded data. */
#ifndef CUVIL_BENCH_SPIKES_SPIKE_H_
#define CUVIL_BENCH_SPIKES_SPIKE_H_

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "gpu/gpu.h"
#include "measure/stats.h"
#include "measure/timer.h"

#define SPIKE(expression)                                            \
  do {                                                               \
    enum cuvil_status spike_status_ = (expression);                  \
    if (spike_status_ != CUVIL_OK) {                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,         \
              cuvil_status_name(spike_status_), cuvil_last_error()); \
      exit(1);                                                       \
    }                                                                \
  } while (0)

/* A kernel of one source, compiled and loaded. */
static inline struct cuvil_gpu_function *spike_kernel(struct cuvil_gpu *gpu,
                                                      const char *source,
                                                      const char *entry,
                                                      uint32_t shared,
                                                      double *out_seconds) {
  struct cuvil_compile_result result;
  struct cuvil_gpu_module *module;
  struct cuvil_gpu_function *function;
  enum cuvil_status status = cuvil_nvrtc_compile(
      source, cuvil_gpu_arch(gpu)->nvrtc_name, NULL, &result);
  if (status != CUVIL_OK) fprintf(stderr, "%s\n", result.log);
  SPIKE(status);
  SPIKE(cuvil_gpu_module_load(gpu, result.cubin, result.cubin_size, &module));
  SPIKE(cuvil_gpu_module_function(module, entry, shared, 1, &function));
  if (out_seconds) *out_seconds = result.seconds;
  cuvil_compile_result_free(&result);
  return function;
}

#endif /* CUVIL_BENCH_SPIKES_SPIKE_H_ */
