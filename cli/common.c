/* common.c - see common.h. */
#include "cli/common.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cuvil_cli_exit(enum cuvil_status status) {
  /* Results that did not arrive are no success. */
  if ((fflush(stdout) != 0 || ferror(stdout)) && status == CUVIL_OK)
    status = CUVIL_FAIL(CU_ERR_IO, "stdout: cannot write: %s", strerror(errno));
  if (status == CUVIL_OK) return 0;
  cuvil_log_failure();
  return 1;
}

int cuvil_cli_misuse(const char *command, const char *format, ...) {
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof(message), format, args);
  va_end(args);
  for (char *p = message; *p; ++p) /* one line, whatever was typed */
    if ((unsigned char)*p < ' ') *p = ' ';
  fprintf(stderr, "%s: %s; see %s --help\n", command, message, command);
  return 2;
}

int cuvil_cli_option(const char *command, int argc, char **argv,
                     const char *short_options, const struct option *options,
                     int version, void (*usage)(void), int *out_id) {
  opterr = 0; /* what is wrong is said here, in the command's own form */
  *out_id = getopt_long(argc, argv, short_options, options, NULL);
  if (*out_id == 'h') {
    usage();
    return 0;
  }
  if (*out_id == version) {
    cuvil_cli_version(command);
    return 0;
  }
  if (*out_id == ':')
    return cuvil_cli_misuse(command, "%s needs a value", argv[optind - 1]);
  if (*out_id == '?')
    return cuvil_cli_misuse(command, "no option %s", argv[optind - 1]);
  return -1;
}

static void print_version(const char *what, const char *version) {
  printf("%-10s %s\n", what, version[0] ? version : "not found");
}

void cuvil_cli_version(const char *command) {
  struct cuvil_gpu *gpu;
  struct cuvil_env env = {0};
  printf("%s (Cuvil) %s\n", command, CUVIL_VERSION);
  if (cuvil_gpu_open(0, &gpu) == CUVIL_OK) {
    env = *cuvil_gpu_env(gpu);
    cuvil_gpu_close(gpu);
  } else {
    /* No GPU is no failure here: what can be found is said. */
    CUVIL_IGNORE(cuvil_nvrtc_version(env.nvrtc, sizeof(env.nvrtc)));
    cuvil_library_version("cublaslt", env.cublaslt, sizeof(env.cublaslt));
    cuvil_library_version("cudnn", env.cudnn, sizeof(env.cudnn));
  }
  print_version("GPU", env.gpu);
  print_version("driver", env.driver);
  print_version("CUDA", env.cuda);
  print_version("NVRTC", env.nvrtc);
  print_version("cuBLASLt", env.cublaslt);
  print_version("cuDNN", env.cudnn);
}

enum cuvil_status cuvil_cli_integer(const char *option, const char *text,
                                    int64_t low, int64_t high, int64_t *out) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < low || value > high)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s takes a whole number from %lld to %lld, not `%s`",
                      option, (long long)low, (long long)high, text);
  *out = value;
  return CUVIL_OK;
}

enum cuvil_status cuvil_cli_number(const char *option, const char *text,
                                   double *out) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end || !(value >= 0) || isinf(value))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "%s takes a number that is not negative, not `%s`",
                      option, text);
  *out = value;
  return CUVIL_OK;
}

enum cuvil_status cuvil_cli_write_json(const json_t *value, const char *path) {
  struct cuvil_buf text = {0};
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_json_print(value, &text));
  cuvil_buf_puts(&text, "\n");
  CUVIL_TRY_GOTO(cuvil_buf_status(&text));
  if (strcmp(path, "-") != 0) {
    CUVIL_TRY_GOTO(cuvil_file_write_atomic(path, text.data, text.size));
  } else if (fwrite(text.data, 1, text.size, stdout) != text.size ||
             fflush(stdout) != 0) {
    status = CUVIL_FAIL(CU_ERR_IO, "stdout: %s", strerror(errno));
  }
fail:
  cuvil_buf_free(&text);
  return status;
}

const char *cuvil_cli_time(double seconds, char out[32]) {
  if (!(seconds > 0))
    snprintf(out, 32, "-");
  else if (seconds < 1e-3)
    snprintf(out, 32, "%.2f us", seconds * 1e6);
  else if (seconds < 1)
    snprintf(out, 32, "%.3f ms", seconds * 1e3);
  else
    snprintf(out, 32, "%.2f s", seconds);
  return out;
}

const char *cuvil_cli_bytes(uint64_t bytes, char out[32]) {
  if (bytes < 1000 * 1000)
    snprintf(out, 32, "%.1f kB", (double)bytes / 1e3);
  else
    snprintf(out, 32, "%.1f MB", (double)bytes / 1e6);
  return out;
}

const char *cuvil_cli_shape(int rank, const int64_t *dims, char out[128]) {
  size_t used = 0;
  snprintf(out, 128, "scalar");
  for (int i = 0; i < rank && used < 100; ++i)
    used += (size_t)snprintf(out + used, 128 - used, "%s%lld", i ? "x" : "",
                             (long long)dims[i]);
  return out;
}

bool cuvil_cli_same_file(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

enum cuvil_status cuvil_cli_model_open(
    const struct cuvil_model_options *options, struct cuvil_model *out) {
  enum cuvil_status status = cuvil_model_open(options, out);
  if (status == CU_ERR_MODEL_UNSUPPORTED)
    fputs(cuvil_model_unsupported(), stderr);
  return status;
}

/* ---- target */

static enum cuvil_status device_ordinal(const char *device, int *out) {
  int64_t ordinal;
  *out = 0;
  if (strcmp(device, "auto") == 0) return CUVIL_OK;
  if (strncmp(device, "cuda:", 5) != 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "no device `%s`; use auto or cuda:N", device);
  CUVIL_TRY(
      cuvil_cli_integer("--device cuda:N", device + 5, 0, 1023, &ordinal));
  *out = (int)ordinal;
  return CUVIL_OK;
}

enum cuvil_status cuvil_cli_target_check(const char *device, const char *arch) {
  int ordinal;
  CUVIL_TRY(device_ordinal(device, &ordinal));
  if (arch && !cuvil_arch_find(arch))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "no architecture `%s`; known are %s", arch,
                      cuvil_arch_names());
  return CUVIL_OK;
}

enum cuvil_status cuvil_cli_target_open(const char *device, const char *arch,
                                        bool need_gpu,
                                        struct cuvil_cli_target *out) {
  int ordinal;
  memset(out, 0, sizeof(*out));
  CUVIL_TRY(cuvil_cli_target_check(device, arch));
  CUVIL_TRY(device_ordinal(device, &ordinal));
  if (arch) out->arch = cuvil_arch_find(arch);
  enum cuvil_status status = cuvil_gpu_open(ordinal, &out->gpu);
  if (status == CUVIL_OK) {
    const struct cuvil_arch *actual = cuvil_gpu_arch(out->gpu);
    if (!out->arch || strcmp(out->arch->name, actual->name) == 0) {
      out->arch = actual;
      out->env = *cuvil_gpu_env(out->gpu);
      return CUVIL_OK;
    }
    if (need_gpu) {
      status = CUVIL_FAIL(CU_ERR_ARCH_MISMATCH,
                          "this GPU is %s, not %s; leave --arch out",
                          actual->name, out->arch->name);
      cuvil_cli_target_close(out);
      return status;
    }
    cuvil_gpu_close(out->gpu);
    out->gpu = NULL;
  } else if (need_gpu || strcmp(device, "auto") != 0) {
    return status;
  }
  if (!out->arch)
    return CUVIL_FAIL(CU_ERR_NO_DEVICE,
                      "no GPU here to compile for (%s); name one with --arch "
                      "(%s)",
                      cuvil_last_error(), cuvil_arch_names());
  snprintf(out->env.arch, sizeof(out->env.arch), "%s", out->arch->name);
  return CUVIL_OK;
}

void cuvil_cli_target_close(struct cuvil_cli_target *target) {
  cuvil_gpu_close(target->gpu);
  memset(target, 0, sizeof(*target));
}

/* ---- database */

enum cuvil_status cuvil_cli_cache_open(const char *path,
                                       struct cuvil_cli_cache *out) {
  char standard[4096];
  memset(out, 0, sizeof(*out));
  bool named = path != NULL;
  if (!path) {
    CUVIL_TRY(cuvil_db_default_path(standard, sizeof(standard)));
    path = standard;
  }
  if (named || access(path, F_OK) == 0)
    CUVIL_TRY(cuvil_db_open(path, CUVIL_DB_READ, &out->db));
  else
    cuvil_log_verbose("no tuning database at %s yet", path);
  cuvil_buf_printf(&out->cubin_dir, "%s.cubins", path);
  return cuvil_buf_status(&out->cubin_dir);
}

void cuvil_cli_cache_close(struct cuvil_cli_cache *cache) {
  cuvil_db_close(cache->db);
  cuvil_buf_free(&cache->cubin_dir);
  cache->db = NULL;
}

void cuvil_cli_precision_hint(const struct cuvil_graph *graph,
                              enum cuvil_precision precision) {
  if (precision != CUVIL_PRECISION_MODEL || graph->input_count == 0) return;
  if (graph->values[graph->inputs[0]].dtype == CUVIL_F32)
    cuvil_log_info(
        "the model is fp32 and is compiled so; --precision fp16 "
        "uses the tensor cores for half the bytes");
}
