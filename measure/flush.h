/* flush.h - empties the L2 between timed replays.
 *
 * Small operands would need hundreds of copies to be cold by rotation alone.
 * Instead a buffer twice the cache is read before every timed replay, outside
 * of the timed part; inside the replay every run reads another copy.  The
 * buffer is read, not written: dirty lines would have to be written back while
 * the kernel runs.
 */
#ifndef CUVIL_MEASURE_FLUSH_H_
#define CUVIL_MEASURE_FLUSH_H_

#include "gpu/gpu.h"

struct cuvil_flush;
/* gpu is borrowed; compiles one small kernel. */
CUVIL_MUST_USE enum cuvil_status cuvil_flush_create(struct cuvil_gpu *gpu,
                                                    struct cuvil_flush **out);
void cuvil_flush_destroy(struct cuvil_flush *flush);
CUVIL_MUST_USE enum cuvil_status cuvil_flush_enqueue(
    struct cuvil_flush *flush, struct cuvil_gpu_stream *stream);

#endif /* CUVIL_MEASURE_FLUSH_H_ */
