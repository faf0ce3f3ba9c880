/* common.h - what the commands share: how they end, what --version says, on
 * which machine they stand, where their database is.
 *
 * Conventions: GNU long options by getopt_long; results on stdout, everything
 * else on stderr; exit 0 done, 1 failed (the last stderr line is
 * cuvil_log_failure's), 2 wrong usage.
 */
#ifndef CUVIL_CLI_COMMON_H_
#define CUVIL_CLI_COMMON_H_

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "compiler/compiler.h"
#include "db/db.h"
#include "fusion/fusion.h"
#include "gpu/gpu.h"

/* 0, or 1 after the failure line. */
int cuvil_cli_exit(enum cuvil_status status);
/* "cuvil-X: ...; see cuvil-X --help" on stderr; returns 2. */
int cuvil_cli_misuse(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* getopt_long as every command uses it: *out_id is an option's id, or -1 when
 * there are no more.  Answers --help (id 'h': calls usage) and --version
 * (id version), and names a wrong option.  -1: go on; else the exit status. */
struct option;
int cuvil_cli_option(const char *command, int argc, char **argv,
                     const char *short_options, const struct option *options,
                     int version, void (*usage)(void), int *out_id);
/* Cuvil, the driver, the compiler and the libraries as found on this machine,
 * on stdout. */
void cuvil_cli_version(const char *command);

/* A whole number; CU_ERR_INVALID_ARGUMENT names the option. */
CUVIL_MUST_USE enum cuvil_status cuvil_cli_integer(const char *option,
                                                   const char *text,
                                                   int64_t low, int64_t high,
                                                   int64_t *out);
CUVIL_MUST_USE enum cuvil_status cuvil_cli_number(const char *option,
                                                  const char *text,
                                                  double *out);
/* JSON to a file, or to stdout for "-". */
CUVIL_MUST_USE enum cuvil_status cuvil_cli_write_json(const json_t *value,
                                                      const char *path);
/* "3.81 us", "1.20 ms"; "-" for 0.  Returns out. */
const char *cuvil_cli_time(double seconds, char out[32]);
/* "51.2 MB".  Returns out. */
const char *cuvil_cli_bytes(uint64_t bytes, char out[32]);
/* "1x3x224x224".  Returns out. */
const char *cuvil_cli_shape(int rank, const int64_t *dims, char out[128]);

/* Whether both names lead to one file that exists. */
bool cuvil_cli_same_file(const char *a, const char *b);
/* cuvil_model_open; an unsupported model's nodes are listed on stderr. */
CUVIL_MUST_USE enum cuvil_status cuvil_cli_model_open(
    const struct cuvil_model_options *options, struct cuvil_model *out);

/* ---- the machine that kernels are compiled for */
struct cuvil_cli_target {
  struct cuvil_gpu *gpu;         /* NULL: none here, or of another kind */
  const struct cuvil_arch *arch; /* borrowed */
  struct cuvil_env env;          /* where no GPU is: only the architecture */
};
/* Whether these two can be meant at all, without looking for a device. */
CUVIL_MUST_USE enum cuvil_status cuvil_cli_target_check(const char *device,
                                                        const char *arch);
/* device: "auto" or "cuda:N"; arch NULL: the device's.  need_gpu: a missing
 * or different GPU fails; else it only means that nothing can run here. */
CUVIL_MUST_USE enum cuvil_status cuvil_cli_target_open(
    const char *device, const char *arch, bool need_gpu,
    struct cuvil_cli_target *out);
void cuvil_cli_target_close(struct cuvil_cli_target *target);

/* ---- the database as a reader sees it */
struct cuvil_cli_cache {
  struct cuvil_db *db;        /* NULL: there is none yet */
  struct cuvil_buf cubin_dir; /* always a name */
};
/* path NULL: the default, which may be absent; a named one must exist. */
CUVIL_MUST_USE enum cuvil_status cuvil_cli_cache_open(
    const char *path, struct cuvil_cli_cache *out);
void cuvil_cli_cache_close(struct cuvil_cli_cache *cache);

/* An fp32 model compiled as the file says: names the faster choice, once. */
void cuvil_cli_precision_hint(const struct cuvil_graph *graph,
                              enum cuvil_precision precision);

#endif /* CUVIL_CLI_COMMON_H_ */
