/* nvrtc.h - internal to gpu/: reading the assembler's report. */
#ifndef CUVIL_GPU_NVRTC_H_
#define CUVIL_GPU_NVRTC_H_

#include "gpu/gpu.h"

/* Fills registers, spill_bytes, stack_bytes and static_shared of `out` from
 * the text that `ptxas -v` writes, the largest of each over all functions in
 * it.  false: the text holds no such report ("Used N registers" is absent). */
bool cuvil_nvrtc_parse_log(const char *log, struct cuvil_compile_result *out);

#endif /* CUVIL_GPU_NVRTC_H_ */
