/* nvml.c - clocks, power and the driver's name, where NVML is there.
 *
 * NVML's header is in no wheel, and we ask five things of it, so its few
 * prototypes stand here (NVML API Reference, sections Device Queries and
 * System Queries).  Everything is optional: an absent library or an answer
 * refused leaves "not known".
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "gpu/driver.h"
#include "gpu/dynamic.h"

enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum { NVML_TEMPERATURE_GPU = 0 };

static struct {
  int (*init)(void);
  int (*driver_version)(char *, unsigned);
  int (*device_by_pci)(const char *, void **);
  int (*clock)(void *, int, unsigned *);
  int (*power)(void *, unsigned *);
  int (*temperature)(void *, int, unsigned *);
  int (*reasons)(void *, unsigned long long *);
} nvml;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static bool usable;

static void load(void) {
  static const char *const files[] = {"libnvidia-ml.so.1", NULL};
  void *handle;
  if (cuvil_dynamic_open(files, "CUVIL_NVML", "reading clocks", &handle) !=
      CUVIL_OK)
    return;
  *(void **)&nvml.init = dlsym(handle, "nvmlInit_v2");
  *(void **)&nvml.driver_version = dlsym(handle, "nvmlSystemGetDriverVersion");
  *(void **)&nvml.device_by_pci =
      dlsym(handle, "nvmlDeviceGetHandleByPciBusId_v2");
  *(void **)&nvml.clock = dlsym(handle, "nvmlDeviceGetClockInfo");
  *(void **)&nvml.power = dlsym(handle, "nvmlDeviceGetPowerUsage");
  *(void **)&nvml.temperature = dlsym(handle, "nvmlDeviceGetTemperature");
  *(void **)&nvml.reasons =
      dlsym(handle, "nvmlDeviceGetCurrentClocksEventReasons");
  if (!nvml.reasons) /* its name before driver 535 */
    *(void **)&nvml.reasons =
        dlsym(handle, "nvmlDeviceGetCurrentClocksThrottleReasons");
  usable = nvml.init && nvml.driver_version && nvml.device_by_pci &&
           nvml.clock && nvml.power && nvml.temperature && nvml.reasons &&
           nvml.init() == NVML_SUCCESS;
}

/* The kernel module says its version too, where NVML is not installed. */
static void version_from_kernel(char *out, int size) {
  FILE *file = fopen("/sys/module/nvidia/version", "r");
  if (!file) return;
  if (fgets(out, size, file)) out[strcspn(out, "\n")] = 0;
  fclose(file);
}

void cuvil_nvml_attach(struct cuvil_gpu *gpu) {
  char bus[32];
  char *driver = gpu->env.driver;
  pthread_once(&load_once, load);
  gpu->nvml = NULL;
  if (!usable ||
      nvml.driver_version(driver, sizeof gpu->env.driver) != NVML_SUCCESS) {
    driver[0] = 0;
    version_from_kernel(driver, sizeof gpu->env.driver);
  }
  if (!usable || cuvil_driver.cuDeviceGetPCIBusId(bus, sizeof bus,
                                                  gpu->device) != CUDA_SUCCESS)
    return;
  if (nvml.device_by_pci(bus, &gpu->nvml) != NVML_SUCCESS) gpu->nvml = NULL;
}

void cuvil_gpu_clocks(struct cuvil_gpu *gpu, struct cuvil_gpu_clocks *out) {
  unsigned value;
  unsigned long long reasons;
  void *device = gpu->nvml;
  *out = (struct cuvil_gpu_clocks){-1, -1, -1, -1, -1};
  if (!device) return;
  if (nvml.clock(device, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
    out->sm_mhz = (int)value;
  if (nvml.clock(device, NVML_CLOCK_MEM, &value) == NVML_SUCCESS)
    out->memory_mhz = (int)value;
  if (nvml.power(device, &value) == NVML_SUCCESS)
    out->power_watts = value * 1e-3;
  if (nvml.temperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
    out->temperature = value;
  if (nvml.reasons(device, &reasons) == NVML_SUCCESS)
    out->throttle_reasons = (int64_t)reasons;
}
