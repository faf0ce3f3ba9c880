/* probe.h - the SM clock while something ran, read on the SMs themselves.
 *
 * NVML's clock is of another moment than the block it is stored with, and is
 * refused to some users.  A kernel of one block per SM notes clock64 (cycles of
 * that SM) and globaltimer (nanoseconds) before the timed part and once more
 * after it; cycles over time is the clock between the two (NVBench does the
 * same around a batch).  PTX ISA, "Special Registers": %smid, %globaltimer.
 *
 * Every function accepts a NULL probe and does nothing.
 */
#ifndef CUVIL_MEASURE_PROBE_H_
#define CUVIL_MEASURE_PROBE_H_

#include "gpu/gpu.h"

struct cuvil_probe;
/* gpu is borrowed; compiles one small kernel. */
CUVIL_MUST_USE enum cuvil_status cuvil_probe_create(struct cuvil_gpu *gpu,
                                                    struct cuvil_probe **out);
void cuvil_probe_destroy(struct cuvil_probe *probe);
/* Enqueue the first and the second reading. */
CUVIL_MUST_USE enum cuvil_status cuvil_probe_begin(
    struct cuvil_probe *probe, struct cuvil_gpu_stream *stream);
CUVIL_MUST_USE enum cuvil_status cuvil_probe_end(
    struct cuvil_probe *probe, struct cuvil_gpu_stream *stream);
/* MHz between the last two readings, both done: the median over the SMs that
 * were met twice.  -1: none was, or the clocks did not move. */
CUVIL_MUST_USE enum cuvil_status cuvil_probe_mhz(struct cuvil_probe *probe,
                                                 double *out);

#endif /* CUVIL_MEASURE_PROBE_H_ */
