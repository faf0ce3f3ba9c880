/* nvrtc.c - CUDA C text in, a cubin and its resources out; needs no GPU.
 *
 * The compiler is asked for machine code of one real architecture, and the
 * assembler in it for its report (--ptxas-options=-v), because registers and
 * spills are what pruning wants to know and a cubin does not say spills.  The
 * library stays open for the life of the process: closing it costs more than
 * keeping it, and worker processes compile thousands of kernels.
 */
#include "gpu/nvrtc.h"

#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/dynamic.h"

#define NVRTC_LIST(X)       \
  X(nvrtcVersion)           \
  X(nvrtcCreateProgram)     \
  X(nvrtcDestroyProgram)    \
  X(nvrtcCompileProgram)    \
  X(nvrtcGetCUBINSize)      \
  X(nvrtcGetCUBIN)          \
  X(nvrtcGetProgramLogSize) \
  X(nvrtcGetProgramLog)     \
  X(nvrtcGetErrorString)

enum {
#define INDEX(name) INDEX_##name,
  NVRTC_LIST(INDEX)
#undef INDEX
      NVRTC_COUNT
};
static const char *const symbol_names[] = {
#define NAME(name) #name,
    NVRTC_LIST(NAME)
#undef NAME
};
static void *symbols[NVRTC_COUNT];
#define CALL(name) ((__typeof__(&name))symbols[INDEX_##name])

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static enum cuvil_status load(void) {
  static const char *const files[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                      "libnvrtc.so", NULL};
  void *handle;
  CUVIL_TRY(
      cuvil_dynamic_open(files, "CUVIL_NVRTC", "compiling kernels", &handle));
  CUVIL_TRY(cuvil_dynamic_symbols(handle, "libnvrtc", symbol_names, symbols,
                                  NVRTC_COUNT));
  loaded = true;
  return CUVIL_OK;
}

static enum cuvil_status need_nvrtc(void) {
  pthread_mutex_lock(&load_lock);
  enum cuvil_status status = loaded ? CUVIL_OK : load();
  pthread_mutex_unlock(&load_lock);
  return status;
}

static void keep_largest(int *kept, int value) {
  if (value > *kept) *kept = value;
}

/* The number that stands before `unit` in the line: "49152 bytes smem". */
static bool number_before(const char *line, const char *unit, int *out) {
  const char *end = strstr(line, unit);
  if (!end) return false;
  const char *digits = end;
  while (digits > line && digits[-1] >= '0' && digits[-1] <= '9')
    digits--;
  return digits < end && sscanf(digits, "%d", out) == 1;
}

/* One line of the report, of either kind; true for one that tells registers. */
static bool parse_line(const char *line, struct cuvil_compile_result *out) {
  int value, stores = 0, loads = 0;
  if (number_before(line, " bytes stack frame", &value)) {
    keep_largest(&out->stack_bytes, value);
    if (number_before(line, " bytes spill stores", &stores) &&
        number_before(line, " bytes spill loads", &loads))
      keep_largest(&out->spill_bytes, stores + loads);
    return false;
  }
  const char *used = strstr(line, "Used ");
  if (!used || sscanf(used, "Used %d registers", &value) != 1) return false;
  keep_largest(&out->registers, value);
  if (number_before(used, " bytes smem", &value))
    keep_largest(&out->static_shared, value);
  return true;
}

bool cuvil_nvrtc_parse_log(const char *log, struct cuvil_compile_result *out) {
  bool found = false;
  char line[512];
  while (*log) {
    size_t length = strcspn(log, "\n");
    size_t kept = length < sizeof line ? length : sizeof line - 1;
    memcpy(line, log, kept);
    line[kept] = 0;
    if (parse_line(line, out)) found = true;
    log += length + (log[length] == '\n');
  }
  return found;
}

/* The first line that says "error", or the whole beginning: the message is one
 * line, the log is kept whole beside it. */
static void first_error(const char *log, char *out, size_t size) {
  const char *line = log;
  const char *error = strstr(log, "error");
  if (error) {
    line = error;
    while (line > log && line[-1] != '\n')
      line--;
  }
  snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
}

#define MAX_OPTIONS 32
struct options {
  char arch[32];
  char *text; /* owned copy, cut at the spaces */
  const char *list[MAX_OPTIONS];
  int count;
};

/* From CUDA 13 on NVRTC keeps compiled code on disk and, on a hit, gives no
 * report; our own cache is keyed by the same source and keeps the report. */
static bool has_own_cache(void) {
  int major = 0, minor = 0;
  return CALL(nvrtcVersion)(&major, &minor) == NVRTC_SUCCESS && major >= 13;
}

static enum cuvil_status split_options(const char *arch, const char *options,
                                       struct options *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->arch, sizeof out->arch, "-arch=%s", arch);
  out->list[out->count++] = out->arch;
  out->list[out->count++] = "--ptxas-options=-v";
  if (has_own_cache()) out->list[out->count++] = "--no-cache";
  out->text = strdup(options ? options : "");
  if (!out->text) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "compiler options");
  char *rest = NULL;
  for (char *word = strtok_r(out->text, " ", &rest); word;
       word = strtok_r(NULL, " ", &rest)) {
    if (out->count == MAX_OPTIONS) {
      free(out->text);
      out->text = NULL;
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "more than %d compiler options: %s", MAX_OPTIONS - 2,
                        options);
    }
    out->list[out->count++] = word;
  }
  return CUVIL_OK;
}

static enum cuvil_status nvrtc_failed(const char *call, nvrtcResult result) {
  return CUVIL_FAIL(CU_ERR_KERNEL_COMPILE, "%s: %s", call,
                    CALL(nvrtcGetErrorString)(result));
}

static enum cuvil_status take_log(nvrtcProgram program,
                                  struct cuvil_compile_result *out) {
  size_t size = 0;
  nvrtcResult result = CALL(nvrtcGetProgramLogSize)(program, &size);
  if (result != NVRTC_SUCCESS)
    return nvrtc_failed("nvrtcGetProgramLogSize", result);
  out->log = calloc(1, size + 1);
  if (!out->log) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "compiler log");
  if (size > 0) result = CALL(nvrtcGetProgramLog)(program, out->log);
  if (result != NVRTC_SUCCESS)
    return nvrtc_failed("nvrtcGetProgramLog", result);
  return CUVIL_OK;
}

static enum cuvil_status take_cubin(nvrtcProgram program,
                                    struct cuvil_compile_result *out) {
  size_t size = 0;
  nvrtcResult result = CALL(nvrtcGetCUBINSize)(program, &size);
  if (result != NVRTC_SUCCESS) return nvrtc_failed("nvrtcGetCUBINSize", result);
  if (size == 0)
    return CUVIL_FAIL(CU_ERR_KERNEL_COMPILE,
                      "NVRTC made no machine code; the architecture must be a "
                      "real one (sm_NN)");
  out->cubin = malloc(size);
  if (!out->cubin) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "cubin");
  result = CALL(nvrtcGetCUBIN)(program, out->cubin);
  if (result != NVRTC_SUCCESS) return nvrtc_failed("nvrtcGetCUBIN", result);
  out->cubin_size = size;
  return CUVIL_OK;
}

static enum cuvil_status compile(nvrtcProgram program,
                                 const struct options *options,
                                 struct cuvil_compile_result *out) {
  nvrtcResult result =
      CALL(nvrtcCompileProgram)(program, options->count, options->list);
  CUVIL_TRY(take_log(program, out));
  if (result != NVRTC_SUCCESS) {
    char error[1024];
    first_error(out->log, error, sizeof error);
    return CUVIL_FAIL(CU_ERR_KERNEL_COMPILE, "NVRTC %s (%s): %s",
                      CALL(nvrtcGetErrorString)(result), options->arch, error);
  }
  CUVIL_TRY(take_cubin(program, out));
  if (!cuvil_nvrtc_parse_log(out->log, out))
    return CUVIL_FAIL(CU_ERR_KERNEL_COMPILE,
                      "NVRTC's log does not report registers; the source has "
                      "no kernel, or this NVRTC words its report differently");
  return CUVIL_OK;
}

enum cuvil_status cuvil_nvrtc_compile(const char *source, const char *arch,
                                      const char *options,
                                      struct cuvil_compile_result *out) {
  memset(out, 0, sizeof *out);
  enum cuvil_status status = CUVIL_OK;
  struct options words = {0};
  nvrtcProgram program = NULL;
  double start = cuvil_now();
  CUVIL_TRY_GOTO(need_nvrtc());
  CUVIL_TRY_GOTO(split_options(arch, options, &words));
  nvrtcResult result =
      CALL(nvrtcCreateProgram)(&program, source, "kernel.cu", 0, NULL, NULL);
  if (result != NVRTC_SUCCESS)
    CUVIL_TRY_GOTO(nvrtc_failed("nvrtcCreateProgram", result));
  CUVIL_TRY_GOTO(compile(program, &words, out));
fail:
  if (program) CALL(nvrtcDestroyProgram)(&program);
  free(words.text);
  if (!out->log) out->log = strdup("");
  if (status != CUVIL_OK) {
    free(out->cubin);
    out->cubin = NULL;
    out->cubin_size = 0;
  }
  out->seconds = cuvil_now() - start;
  return status;
}

void cuvil_compile_result_free(struct cuvil_compile_result *result) {
  if (!result) return;
  free(result->cubin);
  free(result->log);
  memset(result, 0, sizeof *result);
}

enum cuvil_status cuvil_nvrtc_version(char *out, size_t size) {
  if (size > 0) out[0] = 0;
  CUVIL_TRY(need_nvrtc());
  int major = 0, minor = 0;
  nvrtcResult result = CALL(nvrtcVersion)(&major, &minor);
  if (result != NVRTC_SUCCESS) return nvrtc_failed("nvrtcVersion", result);
  snprintf(out, size, "%d.%d", major, minor);
  return CUVIL_OK;
}
