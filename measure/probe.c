/* probe.c - two readings of clock64 and globaltimer around a timed part. */
#include "measure/probe.h"

#include <stdlib.h>
#include <string.h>

#include "measure/stats.h"

static const char *const source =
    "extern \"C\" __global__ void probe(ulonglong2 *slots, int count) {\n"
    "  unsigned sm;\n"
    "  unsigned long long time;\n"
    "  asm volatile(\"mov.u32 %0, %%smid;\" : \"=r\"(sm));\n"
    "  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(time));\n"
    "  unsigned long long cycles = clock64();\n"
    "  if (threadIdx.x == 0 && sm < (unsigned)count)\n"
    "    slots[sm] = make_ulonglong2(cycles, time);\n"
    "}\n";

enum { READINGS = 2 };
struct slot {
  uint64_t cycles, nanoseconds;
};
struct cuvil_probe {
  struct cuvil_gpu *gpu;
  int sms;
  uint64_t slots;    /* on the device: READINGS x sms */
  struct slot *host; /* the same */
  double *mhz;       /* by SM; scratch */
  struct cuvil_gpu_module *module;
  struct cuvil_gpu_function *function;
};

static uint64_t bytes_of(const struct cuvil_probe *probe) {
  return (uint64_t)READINGS * (uint64_t)probe->sms * sizeof(struct slot);
}

enum cuvil_status cuvil_probe_create(struct cuvil_gpu *gpu,
                                     struct cuvil_probe **out) {
  *out = NULL;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_compile_result result = {0};
  struct cuvil_probe *probe = calloc(1, sizeof *probe);
  if (!probe) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
  probe->gpu = gpu;
  probe->sms = cuvil_gpu_arch(gpu)->sms;
  probe->host =
      calloc((size_t)READINGS * (size_t)probe->sms + 1, sizeof *probe->host);
  probe->mhz = calloc((size_t)probe->sms + 1, sizeof *probe->mhz);
  if (!probe->host || !probe->mhz) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
    goto fail;
  }
  CUVIL_TRY_GOTO(cuvil_nvrtc_compile(source, cuvil_gpu_arch(gpu)->nvrtc_name,
                                     NULL, &result));
  CUVIL_TRY_GOTO(cuvil_gpu_module_load(gpu, result.cubin, result.cubin_size,
                                       &probe->module));
  CUVIL_TRY_GOTO(cuvil_gpu_module_function(probe->module, "probe", 0, 1,
                                           &probe->function));
  CUVIL_TRY_GOTO(cuvil_gpu_alloc(gpu, bytes_of(probe), &probe->slots));
  CUVIL_TRY_GOTO(cuvil_gpu_memset(gpu, probe->slots, 0, bytes_of(probe), NULL));
  cuvil_compile_result_free(&result);
  *out = probe;
  return CUVIL_OK;
fail:
  cuvil_compile_result_free(&result);
  cuvil_probe_destroy(probe);
  return status;
}

void cuvil_probe_destroy(struct cuvil_probe *probe) {
  if (!probe) return;
  cuvil_gpu_free(probe->gpu, probe->slots);
  cuvil_gpu_module_unload(probe->module);
  free(probe->host);
  free(probe->mhz);
  free(probe);
}

static enum cuvil_status read_clock(struct cuvil_probe *probe, int reading,
                                    struct cuvil_gpu_stream *stream) {
  /* Twice as many blocks as SMs, so that none is passed by. */
  const struct cuvil_gpu_launch launch = {
      .grid = {2 * (uint32_t)probe->sms, 1, 1}, .block = {32, 1, 1}};
  uint64_t slots = probe->slots + (uint64_t)reading * (uint64_t)probe->sms *
                                      sizeof(struct slot);
  void *args[] = {&slots, &probe->sms};
  return cuvil_gpu_launch(probe->function, &launch, args, stream);
}

enum cuvil_status cuvil_probe_begin(struct cuvil_probe *probe,
                                    struct cuvil_gpu_stream *stream) {
  return probe ? read_clock(probe, 0, stream) : CUVIL_OK;
}

enum cuvil_status cuvil_probe_end(struct cuvil_probe *probe,
                                  struct cuvil_gpu_stream *stream) {
  return probe ? read_clock(probe, 1, stream) : CUVIL_OK;
}

enum cuvil_status cuvil_probe_mhz(struct cuvil_probe *probe, double *out) {
  int count = 0;
  *out = -1;
  if (!probe) return CUVIL_OK;
  CUVIL_TRY(cuvil_gpu_download(probe->gpu, probe->host, probe->slots,
                               bytes_of(probe)));
  for (int i = 0; i < probe->sms; i++) {
    const struct slot *a = &probe->host[i], *b = &probe->host[probe->sms + i];
    if (a->nanoseconds == 0 || b->nanoseconds <= a->nanoseconds ||
        b->cycles <= a->cycles)
      continue;
    probe->mhz[count++] = 1e3 * (double)(b->cycles - a->cycles) /
                          (double)(b->nanoseconds - a->nanoseconds);
  }
  if (count > 0) *out = cuvil_quantile(probe->mhz, count, 0.5);
  return CUVIL_OK;
}
