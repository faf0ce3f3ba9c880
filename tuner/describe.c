/* describe.c - two plain structures as JSON, field by field, by one list each
 * so that writing and reading cannot part. */
#include "tuner/describe.h"

#include <stdio.h>
#include <string.h>

#define ARCH_TEXTS(X) X(name) X(nvrtc_name)
#define ARCH_INTS(X)          \
  X(cc)                       \
  X(sms)                      \
  X(warp_size)                \
  X(max_threads_per_block)    \
  X(max_threads_per_sm)       \
  X(max_blocks_per_sm)        \
  X(max_registers_per_thread) \
  X(registers_per_sm)         \
  X(register_granularity)     \
  X(shared_per_sm)            \
  X(shared_per_block)         \
  X(shared_reserved)          \
  X(shared_granularity)       \
  X(max_cluster)              \
  X(l2_bytes)                 \
  X(memory_bytes)
#define ARCH_NUMBERS(X) \
  X(memory_bytes_per_second) X(flops_f16) X(flops_tf32) X(flops_f32)
#define ENV_TEXTS(X) \
  X(gpu) X(arch) X(driver) X(cuda) X(nvrtc) X(cublaslt) X(cudnn)
#define ENV_INTS(X) X(sms) X(memory_bytes) X(l2_bytes)

#define SET_TEXT(field) \
  json_object_set_new(json, #field, json_string(from->field));
#define SET_INT(field) \
  json_object_set_new(json, #field, json_integer((json_int_t)from->field));
#define SET_NUMBER(field) \
  json_object_set_new(json, #field, json_real(from->field));

json_t *cuvil_arch_to_json(const struct cuvil_arch *from) {
  json_t *json = json_object();
  ARCH_TEXTS(SET_TEXT)
  ARCH_INTS(SET_INT)
  ARCH_NUMBERS(SET_NUMBER)
  return json;
}

json_t *cuvil_env_to_json(const struct cuvil_env *from) {
  json_t *json = json_object();
  ENV_TEXTS(SET_TEXT)
  ENV_INTS(SET_INT)
  return json;
}

static enum cuvil_status get_text(const json_t *json, const char *key,
                                  const char *origin, char *out, size_t size) {
  const char *text = NULL;
  CUVIL_TRY(cuvil_json_get_string(json, key, origin, &text));
  if (strlen(text) >= size)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is longer than %zu bytes",
                      origin, key, size - 1);
  snprintf(out, size, "%s", text);
  return CUVIL_OK;
}

#define GET_TEXT(field) \
  CUVIL_TRY(get_text(json, #field, origin, out->field, sizeof out->field));
#define GET_INT(field)                                                      \
  do {                                                                      \
    int64_t value = 0;                                                      \
    CUVIL_TRY(cuvil_json_get_int(json, #field, origin, &value));            \
    out->field = value;                                                     \
    if (value < 0 || (int64_t)out->field != value)                          \
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is out of range", origin, \
                        #field);                                            \
  } while (0);
#define GET_NUMBER(field) \
  CUVIL_TRY(cuvil_json_get_number(json, #field, origin, &out->field));

enum cuvil_status cuvil_arch_from_json(const json_t *json, const char *origin,
                                       struct cuvil_arch *out) {
  *out = (struct cuvil_arch){0};
  ARCH_TEXTS(GET_TEXT)
  ARCH_INTS(GET_INT)
  ARCH_NUMBERS(GET_NUMBER)
  return CUVIL_OK;
}

enum cuvil_status cuvil_env_from_json(const json_t *json, const char *origin,
                                      struct cuvil_env *out) {
  *out = (struct cuvil_env){0};
  ENV_TEXTS(GET_TEXT)
  ENV_INTS(GET_INT)
  return CUVIL_OK;
}
