/* fake_gpu.h - the fake driver (tests/fake/fake_cuda.c) inside a test. */
#ifndef CUVIL_TESTS_SUPPORT_FAKE_GPU_H_
#define CUVIL_TESTS_SUPPORT_FAKE_GPU_H_

#include "runtime/plan.h"

/* Puts the fake driver, which stands beside the test program, in the driver's
 * place for this process; before anything opens a GPU. */
void fake_gpu_use(void);
/* Fake cuBLASLt and cuDNN too (tests/fake/), instead of none. */
void fake_gpu_use_libraries(void);
/* Counts calls from 1 again and lets the `fail_call`-th answer with the
 * CUresult `result`; 0: none fails. */
void fake_gpu_reset(int fail_call, int result, int compute_capability);
int fake_gpu_calls(void);
int fake_gpu_live(void);
int fake_gpu_programmatic(void);        /* programmatic launches so far */
const char *fake_gpu_failed_call(void); /* "" when none failed */

/* A plan for sm_90 of four steps whose output is its input, f32[64]; its
 * kernels are fake_copy and one that does nothing, its weights 1024 bytes of
 * i*7.  cuvil_plan_destroy it. */
struct cuvil_plan *fake_gpu_plan(void);

#endif /* CUVIL_TESTS_SUPPORT_FAKE_GPU_H_ */
