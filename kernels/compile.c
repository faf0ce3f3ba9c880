/* compile.c - modules become cubins, from the cache on disk where it has them.
 *
 * Beside every <hash>.cubin stands <hash>.json: its checksum, the compiler's
 * version and what the compile cost (registers, spills, seconds), so that a
 * hit knows all that a compile would have told.  The cubin is written first
 * and the sidecar last, each by rename; a pair that does not match - torn by a
 * crash, damaged, of another compiler - is a miss and is written again.
 * Writers of one key at once do no harm: the compiler is deterministic.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "kernels/family.h"

static enum cuvil_status path_of(const char *dir, const char *hash,
                                 const char *suffix, struct cuvil_buf *out) {
  cuvil_buf_clear(out);
  cuvil_buf_printf(out, "%s/%s.%s", dir, hash, suffix);
  return cuvil_buf_status(out);
}

/* Reads the sidecar's numbers; false when it is not whole or of another
 * compiler.  A machine without the compiler takes what the cache has. */
static bool read_sidecar(const json_t *json, const char *nvrtc, char *sum,
                         struct cuvil_compile_result *out) {
  const char *cubin_sum, *made_by;
  int64_t registers, spills, stack, shared;
  const char *from = "cubin sidecar";
  if (cuvil_json_get_string(json, "sum", from, &cubin_sum) != CUVIL_OK ||
      cuvil_json_get_string(json, "nvrtc", from, &made_by) != CUVIL_OK ||
      cuvil_json_get_int(json, "registers", from, &registers) != CUVIL_OK ||
      cuvil_json_get_int(json, "spill_bytes", from, &spills) != CUVIL_OK ||
      cuvil_json_get_int(json, "stack_bytes", from, &stack) != CUVIL_OK ||
      cuvil_json_get_int(json, "static_shared", from, &shared) != CUVIL_OK ||
      cuvil_json_get_number(json, "seconds", from, &out->seconds) != CUVIL_OK)
    return false;
  if (strlen(cubin_sum) != CUVIL_HASH_SIZE - 1) return false;
  if (*nvrtc && strcmp(nvrtc, made_by) != 0) return false;
  memcpy(sum, cubin_sum, CUVIL_HASH_SIZE);
  out->registers = (int)registers;
  out->spill_bytes = (int)spills;
  out->stack_bytes = (int)stack;
  out->static_shared = (int)shared;
  return true;
}

/* True: module and *out are filled.  A miss of any kind is only a miss. */
static bool cache_get(const char *dir, const char *nvrtc,
                      struct cuvil_module *module,
                      struct cuvil_compile_result *out) {
  struct cuvil_buf path = {0}, cubin = {0};
  json_t *sidecar = NULL;
  char sum[CUVIL_HASH_SIZE], actual[CUVIL_HASH_SIZE];
  bool hit = false;
  if (path_of(dir, module->hash, "json", &path) != CUVIL_OK ||
      access(path.data, R_OK) != 0 ||
      cuvil_json_read(path.data, &sidecar) != CUVIL_OK ||
      !read_sidecar(sidecar, nvrtc, sum, out) ||
      path_of(dir, module->hash, "cubin", &path) != CUVIL_OK ||
      cuvil_file_read(path.data, &cubin) != CUVIL_OK)
    goto done;
  cuvil_hash_hex(cubin.data, cubin.size, actual);
  if (cubin.size == 0 || strcmp(sum, actual) != 0) goto done;
  module->cubin_size = cubin.size;
  module->cubin = cuvil_buf_take(&cubin);
  hit = true;
done:
  json_decref(sidecar);
  cuvil_buf_free(&cubin);
  cuvil_buf_free(&path);
  return hit;
}

static enum cuvil_status cache_put(const char *dir, const char *nvrtc,
                                   const struct cuvil_module *module,
                                   const struct cuvil_compile_result *result) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf path = {0}, text = {0};
  char sum[CUVIL_HASH_SIZE];
  json_t *sidecar = NULL;
  CUVIL_TRY_GOTO(cuvil_make_dirs(dir));
  CUVIL_TRY_GOTO(path_of(dir, module->hash, "cubin", &path));
  CUVIL_TRY_GOTO(
      cuvil_file_write_atomic(path.data, module->cubin, module->cubin_size));
  cuvil_hash_hex(module->cubin, module->cubin_size, sum);
  sidecar = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f}", "sum", sum,
                      "nvrtc", nvrtc, "registers", result->registers,
                      "spill_bytes", result->spill_bytes, "stack_bytes",
                      result->stack_bytes, "static_shared",
                      result->static_shared, "seconds", result->seconds);
  if (!sidecar)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "cubin sidecar"));
  CUVIL_TRY_GOTO(cuvil_json_print(sidecar, &text));
  CUVIL_TRY_GOTO(path_of(dir, module->hash, "json", &path));
  CUVIL_TRY_GOTO(cuvil_file_write_atomic(path.data, text.data, text.size));
fail:
  json_decref(sidecar);
  cuvil_buf_free(&path);
  cuvil_buf_free(&text);
  return status;
}

static void sum_up(struct cuvil_compile_result *total,
                   const struct cuvil_compile_result *one) {
  if (one->registers > total->registers) total->registers = one->registers;
  if (one->stack_bytes > total->stack_bytes)
    total->stack_bytes = one->stack_bytes;
  if (one->static_shared > total->static_shared)
    total->static_shared = one->static_shared;
  total->spill_bytes += one->spill_bytes;
  total->seconds += one->seconds;
}

static void keep_log(struct cuvil_compile_result *total,
                     struct cuvil_compile_result *one) {
  free(total->log);
  total->log = one->log;
  one->log = NULL;
}

/* A cache that cannot be written costs time, not results. */
static void warn_once(const char *dir) {
  static bool warned;
  if (!warned)
    cuvil_log_warning("compiled kernels are not kept in %s: %s", dir,
                      cuvil_last_error());
  warned = true;
}

static enum cuvil_status compile_module(struct cuvil_module *module,
                                        const char *dir, const char *nvrtc,
                                        struct cuvil_compile_result *total) {
  struct cuvil_compile_result one = {0};
  if (dir && cache_get(dir, nvrtc, module, &one)) {
    sum_up(total, &one);
    return CUVIL_OK;
  }
  if (!module->source)
    return CUVIL_FAIL(CU_ERR_INTERNAL,
                      "module %s has neither a cubin nor its source",
                      module->hash);
  memset(&one, 0, sizeof one);
  enum cuvil_status status =
      cuvil_nvrtc_compile(module->source, module->arch, module->options, &one);
  keep_log(total, &one);
  if (status == CUVIL_OK) {
    module->cubin = one.cubin;
    module->cubin_size = one.cubin_size;
    one.cubin = NULL;
    sum_up(total, &one);
    if (dir && cache_put(dir, nvrtc, module, &one) != CUVIL_OK) warn_once(dir);
  }
  cuvil_compile_result_free(&one);
  return status;
}

enum cuvil_status cuvil_program_compile(struct cuvil_program *program,
                                        const char *cubin_dir,
                                        struct cuvil_compile_result *out_last) {
  struct cuvil_compile_result total = {0};
  enum cuvil_status status = CUVIL_OK;
  char nvrtc[32] = "";
  for (int i = 0; i < program->module_count && status == CUVIL_OK; i++) {
    if (program->modules[i].cubin) continue;
    /* Without a compiler the cache may still serve every module. */
    if (cubin_dir && !*nvrtc &&
        cuvil_nvrtc_version(nvrtc, sizeof nvrtc) != CUVIL_OK)
      nvrtc[0] = '\0';
    status = compile_module(&program->modules[i], cubin_dir, nvrtc, &total);
  }
  if (out_last)
    *out_last = total;
  else
    cuvil_compile_result_free(&total);
  return status;
}
