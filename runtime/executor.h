/* executor.h - the one executor of programs, used by the measuring worker and
 * by sessions.
 *
 * create loads modules, resolves functions, opens and prepares library steps;
 * run only enqueues on a stream and allocates nothing, so it can be captured
 * into a CUDA graph.
 */
#ifndef CUVIL_RUNTIME_EXECUTOR_H_
#define CUVIL_RUNTIME_EXECUTOR_H_

#include "gpu/gpu.h"
#include "runtime/program.h"

struct cuvil_executable;

/* `program` is borrowed and must outlive the executable; every module must
 * have its cubin.  Holds cuvil_program_check first; CU_ERR_ARCH_MISMATCH when
 * a module is for another architecture than the GPU's. */
CUVIL_MUST_USE enum cuvil_status cuvil_executable_create(
    struct cuvil_gpu *gpu, const struct cuvil_program *program,
    struct cuvil_executable **out);
void cuvil_executable_destroy(struct cuvil_executable *executable);
/* addresses[i]: device address of program buffer i, 16-byte aligned; 0 only for
 * an empty buffer. */
CUVIL_MUST_USE enum cuvil_status cuvil_executable_run(
    struct cuvil_executable *executable, const uint64_t *addresses,
    struct cuvil_gpu_stream *stream);

#endif /* CUVIL_RUNTIME_EXECUTOR_H_ */
