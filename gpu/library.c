/* library.c - the one door to library steps; which library is a table. */
#include "gpu/library.h"

#include <string.h>

#include "base/dtype.h"

static const struct cuvil_library *const libraries[] = {&cuvil_library_cublaslt,
                                                        &cuvil_library_cudnn};

static const struct cuvil_library *find(const char *name) {
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
    if (strcmp(libraries[i]->name, name) == 0) return libraries[i];
  return NULL;
}

static enum cuvil_status need(const char *name,
                              const struct cuvil_library **out) {
  *out = find(name);
  if (!*out) return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "library \"%.32s\"", name);
  return CUVIL_OK;
}

enum cuvil_status cuvil_library_prepare(struct cuvil_gpu *gpu, const char *name,
                                        const json_t *call,
                                        struct cuvil_library_call **out) {
  *out = NULL;
  const struct cuvil_library *library;
  CUVIL_TRY(need(name, &library));
  return library->prepare(gpu, call, out);
}

void cuvil_library_call_destroy(struct cuvil_library_call *call) {
  if (call) call->library->destroy(call);
}

enum cuvil_status cuvil_library_run(struct cuvil_library_call *call,
                                    const uint64_t *addresses, int count,
                                    struct cuvil_gpu_stream *stream) {
  if (count != call->binding_count)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "a %s call with %d buffers was given %d",
                      call->library->name, call->binding_count, count);
  if (call->workspace_bytes > 0 && addresses[count - 1] == 0)
    return CUVIL_FAIL(
        CU_ERR_INVALID_ARGUMENT, "a %s call needs %llu bytes of workspace",
        call->library->name, (unsigned long long)call->workspace_bytes);
  stream->after_kernel = false;
  return call->library->run(call, addresses, stream);
}

enum cuvil_status cuvil_library_choices(struct cuvil_gpu *gpu, const char *name,
                                        const json_t *call, int limit,
                                        json_t **out) {
  *out = NULL;
  const struct cuvil_library *library;
  CUVIL_TRY(need(name, &library));
  return library->choices(gpu, call, limit, out);
}

void cuvil_library_version(const char *name, char *out, size_t size) {
  const struct cuvil_library *library = find(name);
  if (size > 0) out[0] = 0;
  if (library) library->version(out, size);
}

enum cuvil_status cuvil_call_int(const json_t *call, const char *key,
                                 int64_t fallback, int64_t low, int64_t high,
                                 int64_t *out) {
  *out = fallback;
  if (json_object_get(call, key))
    CUVIL_TRY(cuvil_json_get_int(call, key, "library call", out));
  if (*out < low || *out > high)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "library call: \"%s\" is %lld, not within %lld..%lld",
                      key, (long long)*out, (long long)low, (long long)high);
  return CUVIL_OK;
}

enum cuvil_status cuvil_call_ints(const json_t *call, const char *key,
                                  int count, int64_t *out, bool *out_present) {
  *out_present = false;
  if (!json_object_get(call, key)) return CUVIL_OK;
  const json_t *array;
  CUVIL_TRY(cuvil_json_get_array(call, key, "library call", &array));
  for (int i = 0; i < count; i++) {
    const json_t *item = json_array_get(array, (size_t)i);
    if (!json_is_integer(item) || json_array_size(array) != (size_t)count)
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "library call: \"%s\" must be %d integers", key, count);
    out[i] = json_integer_value(item);
  }
  *out_present = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_call_dtype(const json_t *call, const char *key,
                                   int *out) {
  const char *text;
  CUVIL_TRY(cuvil_json_get_string(call, key, "library call", &text));
  *out = (int)cuvil_dtype_find(text, strlen(text));
  if (*out == CUVIL_DTYPE_NONE)
    return CUVIL_FAIL(CU_ERR_PARSE, "library call: \"%s\" is \"%.20s\"", key,
                      text);
  return CUVIL_OK;
}
