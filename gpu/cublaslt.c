/* cublaslt.c - matrix products by cuBLASLt.
 *
 * cuBLASLt thinks in columns.  A row-major matrix read by columns is its
 * transpose, so we ask for D' = op(B') op(A') with B first: an [n,k] B (one
 * weight row per output column) is then "transposed", an [k,n] B is not, and
 * the bias that cuBLASLt adds along its rows is our bias[n].
 *
 * An algorithm is stored as the values that it can be asked for and set by.
 * Where these do not say everything (the library keeps some of its kernels'
 * choices to itself) the library's own 64 bytes are stored too, with the
 * version they are of; another version falls back to the values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "gpu/cublaslt.h"
#include "gpu/dynamic.h"

#define DEFAULT_WORKSPACE ((int64_t)32 << 20)

struct lt_functions cuvil_lt;
static bool loaded;

static enum cuvil_status load(void) {
  static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                      "libcublasLt.so", NULL};
  static const char *const names[] = {
#define NAME(name, result, parameters) #name,
      LT_LIST(NAME)
#undef NAME
  };
  enum { COUNT = sizeof names / sizeof *names };
  void *handle, *pointers[COUNT];
  if (loaded) return CUVIL_OK;
  CUVIL_TRY(cuvil_dynamic_open(files, "CUVIL_CUBLASLT",
                               "matrix products by cuBLASLt", &handle));
  CUVIL_TRY(cuvil_dynamic_symbols(handle, "cuBLASLt", names, pointers, COUNT));
  int at = 0;
#define STORE(name, result, parameters) \
  cuvil_lt.name = (result(*) parameters)pointers[at++];
  LT_LIST(STORE)
#undef STORE
  loaded = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_lt_checked(int result, const char *call) {
  if (result == LT_SUCCESS) return CUVIL_OK;
  const char *text = cuvil_lt.cublasLtGetStatusString(result);
  return CUVIL_FAIL(CU_ERR_LIBRARY, "%s: %s (%d)", call, text ? text : "?",
                    result);
}

/* ---- a call as descriptors */

static enum cuvil_status read_matrix(const json_t *call, const char *key,
                                     struct lt_matrix *out) {
  const json_t *matrix = json_object_get(call, key);
  int dtype;
  if (!json_is_object(matrix))
    return CUVIL_FAIL(CU_ERR_PARSE, "library call: \"%s\" must be an object",
                      key);
  CUVIL_TRY(cuvil_call_dtype(matrix, "dtype", &dtype));
  CUVIL_TRY(cuvil_json_get_int(matrix, "ld", "library call", &out->ld));
  out->trans = json_is_true(json_object_get(matrix, "trans"));
  if (dtype == CUVIL_F32)
    out->type = LT_R_32F;
  else if (dtype == CUVIL_F16)
    out->type = LT_R_16F;
  else if (dtype == CUVIL_BF16)
    out->type = LT_R_16BF;
  else
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuBLASLt call of type %s",
                      cuvil_dtype_name((enum cuvil_dtype)dtype));
  return CUVIL_OK;
}

static enum cuvil_status read_epilogue(const json_t *json,
                                       struct lt_call *call) {
  static const struct {
    const char *name;
    int code;
  } names[] = {
      {"default", LT_EPILOGUE_DEFAULT},
      {"relu", LT_EPILOGUE_RELU},
      {"gelu", LT_EPILOGUE_GELU},
      {"bias", LT_EPILOGUE_BIAS},
      {"relu_bias", LT_EPILOGUE_RELU | LT_EPILOGUE_BIAS},
      {"gelu_bias", LT_EPILOGUE_GELU | LT_EPILOGUE_BIAS},
  };
  const char *name = "default";
  if (json_object_get(json, "epilogue"))
    CUVIL_TRY(cuvil_json_get_string(json, "epilogue", "library call", &name));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].name, name) == 0) call->epilogue = names[i].code;
  if (call->epilogue == 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuBLASLt epilogue \"%.20s\"", name);
  call->bias = call->epilogue & LT_EPILOGUE_BIAS;
  call->bias_type = call->d.type;
  if (!call->bias || !json_object_get(json, "bias_dtype")) return CUVIL_OK;
  int dtype;
  CUVIL_TRY(cuvil_call_dtype(json, "bias_dtype", &dtype));
  call->bias_type = dtype == CUVIL_F32    ? LT_R_32F
                    : dtype == CUVIL_BF16 ? LT_R_16BF
                                          : LT_R_16F;
  return CUVIL_OK;
}

static enum cuvil_status read_scale(const json_t *json, const char *key,
                                    double fallback, float *out) {
  double value = fallback;
  if (json_object_get(json, key))
    CUVIL_TRY(cuvil_json_get_number(json, key, "library call", &value));
  *out = (float)value;
  return CUVIL_OK;
}

static enum cuvil_status read_call(const json_t *json, int64_t workspace,
                                   struct lt_call *call) {
  const char *op, *compute;
  bool present;
  const int64_t most = INT32_MAX;
  CUVIL_TRY(cuvil_json_get_string(json, "op", "library call", &op));
  CUVIL_TRY(cuvil_json_get_string(json, "compute", "library call", &compute));
  if (strcmp(op, "matmul") != 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuBLASLt operation \"%.20s\"", op);
  call->compute =
      strcmp(compute, "tf32") == 0 ? LT_COMPUTE_32F_FAST_TF32 : LT_COMPUTE_32F;
  if (strcmp(compute, "tf32") != 0 && strcmp(compute, "f32") != 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuBLASLt compute \"%.20s\"",
                      compute);
  CUVIL_TRY(cuvil_call_int(json, "m", 0, 1, most, &call->m));
  CUVIL_TRY(cuvil_call_int(json, "n", 0, 1, most, &call->n));
  CUVIL_TRY(cuvil_call_int(json, "k", 0, 1, most, &call->k));
  CUVIL_TRY(cuvil_call_int(json, "batch", 1, 1, most, &call->batch));
  CUVIL_TRY(cuvil_call_int(json, "workspace", workspace, 0, INT64_MAX / 2,
                           &call->workspace_limit));
  CUVIL_TRY(read_matrix(json, "a", &call->a));
  CUVIL_TRY(read_matrix(json, "b", &call->b));
  CUVIL_TRY(read_matrix(json, "d", &call->d));
  CUVIL_TRY(read_scale(json, "alpha", 1, &call->alpha));
  CUVIL_TRY(read_scale(json, "beta", 0, &call->beta));
  call->c = call->d;
  if (call->beta != 0) CUVIL_TRY(read_matrix(json, "c", &call->c));
  CUVIL_TRY(cuvil_call_ints(json, "strides", 4, call->strides, &present));
  if (call->batch > 1 && !present)
    return CUVIL_FAIL(CU_ERR_PARSE, "library call: a batch needs \"strides\"");
  CUVIL_TRY(read_epilogue(json, call));
  call->base.library = &cuvil_library_cublaslt;
  call->base.binding_count = 4 + (call->beta != 0) + call->bias;
  return CUVIL_OK;
}

/* rows and columns as cuBLASLt sees them: the transpose of what is stored. */
static enum cuvil_status make_layout(const struct lt_call *call,
                                     const struct lt_matrix *matrix,
                                     int64_t stored_rows, int64_t stored_cols,
                                     int64_t stride, void **out) {
  if (matrix->ld < stored_cols)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "library call: ld %lld is less than a row of %lld",
                      (long long)matrix->ld, (long long)stored_cols);
  CUVIL_TRY(LT(cublasLtMatrixLayoutCreate, out, matrix->type,
               (uint64_t)stored_cols, (uint64_t)stored_rows, matrix->ld));
  if (call->batch == 1) return CUVIL_OK;
  int32_t batch = (int32_t)call->batch;
  CUVIL_TRY(LT(cublasLtMatrixLayoutSetAttribute, *out, LT_LAYOUT_BATCH_COUNT,
               &batch, sizeof batch));
  return LT(cublasLtMatrixLayoutSetAttribute, *out, LT_LAYOUT_BATCH_OFFSET,
            &stride, sizeof stride);
}

static enum cuvil_status set_int(void *desc, int attribute, int32_t value) {
  return LT(cublasLtMatmulDescSetAttribute, desc, attribute, &value,
            sizeof value);
}

static enum cuvil_status make_descriptors(struct lt_call *call) {
  const struct lt_matrix *a = &call->a, *b = &call->b;
  CUVIL_TRY(LT(cublasLtMatmulDescCreate, &call->desc, call->compute, LT_R_32F));
  CUVIL_TRY(set_int(call->desc, LT_DESC_TRANSA, b->trans ? LT_OP_T : LT_OP_N));
  CUVIL_TRY(set_int(call->desc, LT_DESC_TRANSB, a->trans ? LT_OP_T : LT_OP_N));
  CUVIL_TRY(set_int(call->desc, LT_DESC_EPILOGUE, call->epilogue));
  if (call->bias) {
    /* The heuristic reads the alignment off the pointer. */
    void *aligned = (void *)(uintptr_t)256;
    CUVIL_TRY(LT(cublasLtMatmulDescSetAttribute, call->desc,
                 LT_DESC_BIAS_POINTER, &aligned, sizeof aligned));
    if (call->bias_type != call->d.type)
      CUVIL_TRY(set_int(call->desc, LT_DESC_BIAS_DATA_TYPE, call->bias_type));
  }
  int64_t m = call->m, n = call->n, k = call->k;
  CUVIL_TRY(make_layout(call, a, a->trans ? k : m, a->trans ? m : k,
                        call->strides[0], &call->layout_a));
  CUVIL_TRY(make_layout(call, b, b->trans ? n : k, b->trans ? k : n,
                        call->strides[1], &call->layout_b));
  CUVIL_TRY(
      make_layout(call, &call->c, m, n, call->strides[2], &call->layout_c));
  return make_layout(call, &call->d, m, n, call->strides[3], &call->layout_d);
}

static void destroy(struct cuvil_library_call *base) {
  struct lt_call *call = (struct lt_call *)base;
  if (call->desc) cuvil_lt.cublasLtMatmulDescDestroy(call->desc);
  void *const layouts[] = {call->layout_a, call->layout_b, call->layout_c,
                           call->layout_d};
  for (int i = 0; i < 4; i++)
    if (layouts[i]) cuvil_lt.cublasLtMatrixLayoutDestroy(layouts[i]);
  free(call);
}

static enum cuvil_status open_call(struct cuvil_gpu *gpu, const json_t *json,
                                   int64_t workspace, struct lt_call **out) {
  *out = NULL;
  CUVIL_TRY(load());
  if (!gpu->cublaslt) CUVIL_TRY(LT(cublasLtCreate, &gpu->cublaslt));
  struct lt_call *call = calloc(1, sizeof *call);
  if (!call) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library call");
  enum cuvil_status status = CUVIL_OK;
  call->handle = gpu->cublaslt;
  CUVIL_TRY_GOTO(read_call(json, workspace, call));
  CUVIL_TRY_GOTO(make_descriptors(call));
  *out = call;
  return CUVIL_OK;
fail:
  destroy(&call->base);
  return status;
}

/* ---- algorithms */

static const struct {
  const char *key;
  int attribute;
  size_t size;
  int64_t plain; /* what cublasLtMatmulAlgoInit leaves */
} config_values[] = {
    {"tile", LT_CONFIG_TILE, 4, 0},
    {"stages", LT_CONFIG_STAGES, 4, 0},
    {"split_k", LT_CONFIG_SPLIT_K, 4, 1},
    {"reduction", LT_CONFIG_REDUCTION, 4, 0},
    {"swizzle", LT_CONFIG_SWIZZLE, 4, 0},
    {"custom", LT_CONFIG_CUSTOM, 4, 0},
    {"inner_shape", LT_CONFIG_INNER_SHAPE, 2, 0},
    {"cluster", LT_CONFIG_CLUSTER, 2, 0},
};
enum { CONFIG_VALUES = sizeof config_values / sizeof *config_values };

static enum cuvil_status algorithm_from_values(const struct lt_call *call,
                                               const json_t *json,
                                               struct lt_algorithm *out) {
  int64_t id, value;
  memset(out, 0, sizeof *out);
  CUVIL_TRY(cuvil_json_get_int(json, "id", "library call", &id));
  CUVIL_TRY(LT(cublasLtMatmulAlgoInit, call->handle, call->compute, LT_R_32F,
               call->b.type, call->a.type, call->c.type, call->d.type, (int)id,
               out));
  for (int i = 0; i < CONFIG_VALUES; i++) {
    CUVIL_TRY(cuvil_call_int(json, config_values[i].key, config_values[i].plain,
                             INT32_MIN, UINT32_MAX, &value));
    if (value == config_values[i].plain) continue;
    /* Little-endian: the low bytes are the narrower number. */
    CUVIL_TRY(LT(cublasLtMatmulAlgoConfigSetAttribute, out,
                 config_values[i].attribute, &value, config_values[i].size));
  }
  return CUVIL_OK;
}

/* The library's own bytes, when they are of this very version. */
static bool algorithm_from_bytes(const json_t *json, struct lt_algorithm *out) {
  const char *hex = json_string_value(json_object_get(json, "data"));
  json_int_t version = json_integer_value(json_object_get(json, "version"));
  if (!hex || strlen(hex) != 128 || version < 0 ||
      (size_t)version != cuvil_lt.cublasLtGetVersion())
    return false;
  for (int i = 0; i < 8; i++) {
    char digits[17];
    char *end;
    memcpy(digits, hex + 16 * i, 16);
    digits[16] = 0;
    out->data[i] = strtoull(digits, &end, 16);
    if (*end) return false;
  }
  return true;
}

static enum cuvil_status algorithm_to_json(const struct lt_call *call,
                                           const struct lt_algorithm *algorithm,
                                           json_t **out) {
  int32_t id = 0;
  struct lt_algorithm rebuilt;
  size_t written;
  *out = json_object();
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library choices");
  CUVIL_TRY(LT(cublasLtMatmulAlgoConfigGetAttribute, algorithm, LT_CONFIG_ID,
               &id, sizeof id, &written));
  json_object_set_new(*out, "id", json_integer(id));
  for (int i = 0; i < CONFIG_VALUES; i++) {
    uint32_t value = 0;
    CUVIL_TRY(LT(cublasLtMatmulAlgoConfigGetAttribute, algorithm,
                 config_values[i].attribute, &value, config_values[i].size,
                 &written));
    json_object_set_new(*out, config_values[i].key, json_integer(value));
  }
  if (algorithm_from_values(call, *out, &rebuilt) == CUVIL_OK &&
      memcmp(&rebuilt, algorithm, sizeof rebuilt) == 0)
    return CUVIL_OK;
  char hex[129];
  for (int i = 0; i < 8; i++)
    snprintf(hex + 16 * i, 17, "%016llx",
             (unsigned long long)algorithm->data[i]);
  json_object_set_new(*out, "data", json_string(hex));
  json_object_set_new(*out, "version",
                      json_integer((json_int_t)cuvil_lt.cublasLtGetVersion()));
  return CUVIL_OK;
}

static enum cuvil_status set_preferences(void *preference, uint64_t workspace) {
  static const int operands[] = {LT_PREF_ALIGNMENT_A, LT_PREF_ALIGNMENT_B,
                                 LT_PREF_ALIGNMENT_C, LT_PREF_ALIGNMENT_D};
  /* Partial sums stay in fp32: acc=f32 is what the problem says. */
  uint32_t mask = LT_REDUCTION_INPLACE | LT_REDUCTION_COMPUTE_TYPE;
  uint32_t alignment = 16; /* all that a caller's buffer promises */
  CUVIL_TRY(LT(cublasLtMatmulPreferenceSetAttribute, preference,
               LT_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  CUVIL_TRY(LT(cublasLtMatmulPreferenceSetAttribute, preference,
               LT_PREF_REDUCTION_MASK, &mask, sizeof mask));
  for (int i = 0; i < 4; i++)
    CUVIL_TRY(LT(cublasLtMatmulPreferenceSetAttribute, preference, operands[i],
                 &alignment, sizeof alignment));
  return CUVIL_OK;
}

static enum cuvil_status heuristics(const struct lt_call *call,
                                    int64_t workspace, int limit,
                                    struct lt_heuristic *out, int *out_count) {
  void *preference = NULL;
  *out_count = 0;
  CUVIL_TRY(LT(cublasLtMatmulPreferenceCreate, &preference));
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(set_preferences(preference, (uint64_t)workspace));
  CUVIL_TRY_GOTO(LT(cublasLtMatmulAlgoGetHeuristic, call->handle, call->desc,
                    call->layout_b, call->layout_a, call->layout_c,
                    call->layout_d, preference, limit, out, out_count));
fail:
  cuvil_lt.cublasLtMatmulPreferenceDestroy(preference);
  return status;
}

static enum cuvil_status choose_algorithm(struct lt_call *call,
                                          const json_t *json) {
  const json_t *algorithm = json_object_get(json, "algorithm");
  if (algorithm) {
    if (!algorithm_from_bytes(algorithm, &call->algorithm))
      CUVIL_TRY(algorithm_from_values(call, algorithm, &call->algorithm));
    return CUVIL_OK;
  }
  struct lt_heuristic first;
  int count;
  memset(&first, 0, sizeof first);
  CUVIL_TRY(heuristics(call, call->workspace_limit, 1, &first, &count));
  if (count < 1 || first.state != LT_SUCCESS)
    return CUVIL_FAIL(CU_ERR_LIBRARY,
                      "cuBLASLt has no algorithm for this "
                      "product");
  call->algorithm = first.algorithm;
  return CUVIL_OK;
}

static enum cuvil_status prepare(struct cuvil_gpu *gpu, const json_t *json,
                                 struct cuvil_library_call **out) {
  struct lt_call *call;
  struct lt_heuristic check;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(open_call(gpu, json, 0, &call));
  CUVIL_TRY_GOTO(choose_algorithm(call, json));
  memset(&check, 0, sizeof check);
  CUVIL_TRY_GOTO(LT(cublasLtMatmulAlgoCheck, call->handle, call->desc,
                    call->layout_b, call->layout_a, call->layout_c,
                    call->layout_d, &call->algorithm, &check));
  if (check.workspace > (uint64_t)call->workspace_limit)
    CUVIL_TRY_GOTO(CUVIL_FAIL(
        CU_ERR_LIBRARY,
        "the cuBLASLt algorithm needs %zu bytes of workspace, the call says "
        "%lld",
        check.workspace, (long long)call->workspace_limit));
  call->base.workspace_bytes = check.workspace;
  *out = &call->base;
  return CUVIL_OK;
fail:
  destroy(&call->base);
  return status;
}

static enum cuvil_status run(struct cuvil_library_call *base,
                             const uint64_t *addresses,
                             struct cuvil_gpu_stream *stream) {
  struct lt_call *call = (struct lt_call *)base;
  int at = 2;
  uint64_t c = call->beta != 0 ? addresses[at++] : addresses[2];
  uint64_t d = addresses[at++];
  if (call->bias) {
    void *bias = (void *)(uintptr_t)addresses[at++];
    CUVIL_TRY(LT(cublasLtMatmulDescSetAttribute, call->desc,
                 LT_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  return LT(cublasLtMatmul, call->handle, call->desc, &call->alpha,
            (const void *)(uintptr_t)addresses[1], call->layout_b,
            (const void *)(uintptr_t)addresses[0], call->layout_a, &call->beta,
            (const void *)(uintptr_t)c, call->layout_c, (void *)(uintptr_t)d,
            call->layout_d, &call->algorithm, (void *)(uintptr_t)addresses[at],
            (size_t)base->workspace_bytes, stream->handle);
}

static enum cuvil_status add_choice(const struct lt_call *call,
                                    const json_t *json,
                                    const struct lt_heuristic *found,
                                    json_t *choices) {
  json_t *algorithm = NULL, *choice = json_deep_copy(json);
  enum cuvil_status status =
      algorithm_to_json(call, &found->algorithm, &algorithm);
  if (status != CUVIL_OK) {
    json_decref(algorithm);
    json_decref(choice);
    return status;
  }
  if (json_object_set_new(choice, "algorithm", algorithm) != 0 ||
      json_object_set_new(choice, "workspace",
                          json_integer((json_int_t)found->workspace)) != 0 ||
      json_array_append(choices, choice) != 0)
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library choices");
  json_decref(choice);
  return status;
}

/* Appends those of `found` that work and are not in the list yet. */
static void take_new(const struct lt_heuristic *found, int found_count,
                     int limit, struct lt_heuristic *list, int *count) {
  for (int i = 0; i < found_count && *count < limit; i++) {
    bool is_new = found[i].state == LT_SUCCESS;
    for (int j = 0; j < *count && is_new; j++)
      is_new = memcmp(&found[i].algorithm, &list[j].algorithm,
                      sizeof list[j].algorithm) != 0;
    if (is_new) list[(*count)++] = found[i];
  }
}

/* The heuristic's answers, best first; then what it says to a caller without
 * workspace; then what can be enumerated. */
static enum cuvil_status list_algorithms(const struct lt_call *call, int limit,
                                         struct lt_heuristic *list,
                                         struct lt_heuristic *found,
                                         int *count) {
  int found_count = 0;
  CUVIL_TRY(
      heuristics(call, call->workspace_limit, limit, found, &found_count));
  take_new(found, found_count, limit, list, count);
  if (*count == limit) return CUVIL_OK;
  /* To have none for less room is an answer. */
  memset(found, 0, sizeof *found * (size_t)limit);
  if (heuristics(call, 0, limit, found, &found_count) == CUVIL_OK)
    take_new(found, found_count, limit, list, count);
  if (*count == limit) return CUVIL_OK;
  CUVIL_TRY(cuvil_lt_enumerate(call, list, *count, limit - *count, found,
                               &found_count));
  take_new(found, found_count, limit, list, count);
  return CUVIL_OK;
}

static enum cuvil_status choices(struct cuvil_gpu *gpu, const json_t *json,
                                 int limit, json_t **out) {
  struct lt_call *call;
  int count = 0;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(open_call(gpu, json, DEFAULT_WORKSPACE, &call));
  json_t *array = json_array();
  struct lt_heuristic *list = calloc(2 * (size_t)limit + 1, sizeof *list);
  if (!array || !list)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library choices"));
  CUVIL_TRY_GOTO(list_algorithms(call, limit, list, list + limit, &count));
  for (int i = 0; i < count; i++)
    CUVIL_TRY_GOTO(add_choice(call, json, &list[i], array));
  *out = array;
  free(list);
  destroy(&call->base);
  return CUVIL_OK;
fail:
  free(list);
  json_decref(array);
  destroy(&call->base);
  return status;
}

static void version(char *out, size_t size) {
  if (load() != CUVIL_OK) return;
  size_t number = cuvil_lt.cublasLtGetVersion();
  snprintf(out, size, "%zu.%zu.%zu", number / 10000, number / 100 % 100,
           number % 100);
}

void cuvil_cublaslt_close(struct cuvil_gpu *gpu) {
  if (gpu->cublaslt) cuvil_lt.cublasLtDestroy(gpu->cublaslt);
  gpu->cublaslt = NULL;
}

const struct cuvil_library cuvil_library_cublaslt = {
    .name = "cublaslt",
    .prepare = prepare,
    .destroy = destroy,
    .run = run,
    .choices = choices,
    .version = version,
};
