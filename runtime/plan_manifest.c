/* plan_manifest.c - the part of a plan that is JSON: tensors, places, programs,
 * and for people which family, configuration and cache step each came from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan_format.h"

static const char *const place_names[] = {"input", "output", "weights", "arena",
                                          "zeroed"};

const struct plan_cubin *cuvil_plan_find_cubin(const struct plan_cubins *cubins,
                                               const char *hash) {
  for (int i = 0; i < cubins->count; i++)
    if (strcmp(cubins->list[i].hash, hash) == 0) return &cubins->list[i];
  return NULL;
}

/* ---- writing: a NULL anywhere makes json_pack answer NULL, or an append
 * fail; `add` carries that on */

static bool add(json_t *array, json_t *item) {
  return json_array_append_new(array, item) == 0;
}

static json_t *write_tensors(const struct cuvil_plan_tensor *tensors,
                             int count) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 0; good && i < count; i++) {
    json_t *dims = json_array();
    for (int d = 0; d < tensors[i].rank; d++)
      good = good && add(dims, json_integer((json_int_t)tensors[i].dims[d]));
    json_t *tensor =
        json_pack("{s:s, s:s, s:o, s:I}", "name", tensors[i].name, "dtype",
                  cuvil_dtype_name(tensors[i].dtype), "dims", dims, "bytes",
                  (json_int_t)tensors[i].bytes);
    good = good && add(array, tensor);
  }
  if (good) return array;
  json_decref(array);
  return NULL;
}

static json_t *write_bindings(const struct cuvil_program *program,
                              const struct cuvil_binding *bindings) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 0; good && i < program->buffer_count; i++)
    good = add(array, json_pack("{s:s, s:i, s:I}", "place",
                                place_names[bindings[i].place], "index",
                                bindings[i].index, "offset",
                                (json_int_t)bindings[i].offset));
  if (good) return array;
  json_decref(array);
  return NULL;
}

/* A program with the places of its buffers. */
static json_t *write_bound(const struct cuvil_program *program,
                           const struct cuvil_binding *bindings) {
  json_t *json;
  if (cuvil_program_to_json(program, &json) != CUVIL_OK) return NULL;
  return json_pack("{s:o, s:o}", "bindings", write_bindings(program, bindings),
                   "program", json);
}

static const char *text_or_empty(const char *text) {
  return text ? text : "";
}

static json_t *write_step(const struct cuvil_plan_step *step) {
  double expected = step->expected_seconds;
  if (!isfinite(expected) || expected < 0) expected = 0;
  json_t *json = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:o}", "label",
      text_or_empty(step->label), "problem", text_or_empty(step->problem),
      "family", text_or_empty(step->family), "config",
      text_or_empty(step->config), "origin", text_or_empty(step->origin),
      "expected_seconds", expected, "library_version",
      text_or_empty(step->library_version), "run",
      write_bound(step->program, step->bindings));
  if (json && step->fallback &&
      json_object_set_new(
          json, "fallback",
          write_bound(step->fallback, step->fallback_bindings)) != 0) {
    json_decref(json);
    return NULL;
  }
  return json;
}

static json_t *write_steps(const struct cuvil_plan *plan) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 0; good && i < plan->step_count; i++)
    good = add(array, write_step(&plan->steps[i]));
  if (good) return array;
  json_decref(array);
  return NULL;
}

static json_t *write_cubins(const struct plan_cubins *cubins) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 0; good && i < cubins->count; i++)
    good = add(array, json_pack("{s:s, s:I, s:I}", "hash", cubins->list[i].hash,
                                "offset", (json_int_t)cubins->list[i].offset,
                                "bytes", (json_int_t)cubins->list[i].size));
  if (good) return array;
  json_decref(array);
  return NULL;
}

enum cuvil_status cuvil_plan_manifest_write(const struct cuvil_plan *plan,
                                            const struct plan_cubins *cubins,
                                            json_t **out) {
  *out = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
                   "arch", plan->arch, "model", text_or_empty(plan->model),
                   "fusion", text_or_empty(plan->fusion), "precision",
                   text_or_empty(plan->precision), "arena_bytes",
                   (json_int_t)plan->arena_bytes, "zeroed_bytes",
                   (json_int_t)plan->zeroed_bytes, "weights_bytes",
                   (json_int_t)plan->weights_bytes, "inputs",
                   write_tensors(plan->inputs, plan->input_count), "outputs",
                   write_tensors(plan->outputs, plan->output_count), "cubins",
                   write_cubins(cubins), "steps", write_steps(plan));
  if (!*out)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                      "the plan's manifest cannot be written (memory, or a "
                      "name that is not UTF-8)");
  return CUVIL_OK;
}

/* ---- reading */

static enum cuvil_status get_text(const json_t *json, const char *key,
                                  const char *origin, char **out) {
  const char *text;
  CUVIL_TRY(cuvil_json_get_string(json, key, origin, &text));
  *out = strdup(text);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan");
  return CUVIL_OK;
}

static enum cuvil_status get_bytes(const json_t *json, const char *key,
                                   const char *origin, uint64_t *out) {
  int64_t value;
  CUVIL_TRY(cuvil_json_get_int(json, key, origin, &value));
  if (value < 0)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is negative", origin, key);
  *out = (uint64_t)value;
  return CUVIL_OK;
}

/* An array's length and zeroed memory for as many items. */
static enum cuvil_status get_list(const json_t *json, const char *key,
                                  const char *origin, size_t item,
                                  const json_t **out_array, void **out_items,
                                  int *out_count) {
  CUVIL_TRY(cuvil_json_get_array(json, key, origin, out_array));
  size_t count = json_array_size(*out_array);
  if (count > 1 << 20)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: %zu %s", origin, count, key);
  *out_items = calloc(count + 1, item);
  if (!*out_items) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan");
  *out_count = (int)count;
  return CUVIL_OK;
}

static enum cuvil_status read_tensor(const json_t *json, const char *origin,
                                     struct cuvil_plan_tensor *out) {
  const char *dtype;
  const json_t *dims;
  CUVIL_TRY(get_text(json, "name", origin, &out->name));
  CUVIL_TRY(cuvil_json_get_string(json, "dtype", origin, &dtype));
  CUVIL_TRY(get_bytes(json, "bytes", origin, &out->bytes));
  CUVIL_TRY(cuvil_json_get_array(json, "dims", origin, &dims));
  out->dtype = cuvil_dtype_find(dtype, strlen(dtype));
  if (json_array_size(dims) > 8)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: tensor %.64s of rank %zu", origin,
                      out->name, json_array_size(dims));
  out->rank = (int)json_array_size(dims);
  for (int i = 0; i < out->rank; i++) {
    const json_t *dim = json_array_get(dims, (size_t)i);
    if (!json_is_integer(dim))
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "%s: tensor %.64s: a dimension is not a "
                        "number",
                        origin, out->name);
    out->dims[i] = json_integer_value(dim);
  }
  return CUVIL_OK;
}

static enum cuvil_status read_tensors(const json_t *json, const char *key,
                                      const char *origin,
                                      struct cuvil_plan_tensor **out,
                                      int *out_count) {
  const json_t *array;
  void *items = NULL;
  CUVIL_TRY(
      get_list(json, key, origin, sizeof **out, &array, &items, out_count));
  *out = items;
  for (int i = 0; i < *out_count; i++)
    CUVIL_TRY(
        read_tensor(json_array_get(array, (size_t)i), origin, &(*out)[i]));
  return CUVIL_OK;
}

static enum cuvil_status read_binding(const json_t *json, const char *origin,
                                      struct cuvil_binding *out) {
  const char *place;
  int64_t index;
  CUVIL_TRY(cuvil_json_get_string(json, "place", origin, &place));
  CUVIL_TRY(cuvil_json_get_int(json, "index", origin, &index));
  CUVIL_TRY(get_bytes(json, "offset", origin, &out->offset));
  int at = 0;
  while (at < 5 && strcmp(place, place_names[at]) != 0)
    at++;
  if (at == 5 || index < 0 || index > INT32_MAX)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: place \"%.20s\" %lld", origin, place,
                      (long long)index);
  out->place = (enum cuvil_place)at;
  out->index = (int)index;
  return CUVIL_OK;
}

/* A program and the places of its buffers. */
static enum cuvil_status read_bound(const json_t *json, const char *origin,
                                    struct cuvil_program **out_program,
                                    struct cuvil_binding **out_bindings) {
  const json_t *array;
  void *items = NULL;
  int count;
  CUVIL_TRY(cuvil_program_from_json(json_object_get(json, "program"), origin,
                                    out_program));
  CUVIL_TRY(get_list(json, "bindings", origin, sizeof **out_bindings, &array,
                     &items, &count));
  *out_bindings = items;
  if (count != (*out_program)->buffer_count)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: %d buffers bound of %d", origin, count,
                      (*out_program)->buffer_count);
  for (int i = 0; i < count; i++)
    CUVIL_TRY(read_binding(json_array_get(array, (size_t)i), origin,
                           &(*out_bindings)[i]));
  return CUVIL_OK;
}

static enum cuvil_status read_step(const json_t *json, const char *origin,
                                   struct cuvil_plan_step *out) {
  CUVIL_TRY(get_text(json, "label", origin, &out->label));
  CUVIL_TRY(get_text(json, "problem", origin, &out->problem));
  CUVIL_TRY(get_text(json, "family", origin, &out->family));
  CUVIL_TRY(get_text(json, "config", origin, &out->config));
  CUVIL_TRY(get_text(json, "origin", origin, &out->origin));
  CUVIL_TRY(get_text(json, "library_version", origin, &out->library_version));
  CUVIL_TRY(cuvil_json_get_number(json, "expected_seconds", origin,
                                  &out->expected_seconds));
  CUVIL_TRY(read_bound(json_object_get(json, "run"), origin, &out->program,
                       &out->bindings));
  const json_t *fallback = json_object_get(json, "fallback");
  if (!fallback) return CUVIL_OK;
  return read_bound(fallback, origin, &out->fallback, &out->fallback_bindings);
}

static enum cuvil_status read_cubins(const json_t *json, const char *origin,
                                     struct plan_cubins *out) {
  const json_t *array;
  void *items = NULL;
  CUVIL_TRY(get_list(json, "cubins", origin, sizeof *out->list, &array, &items,
                     &out->count));
  out->list = items;
  for (int i = 0; i < out->count; i++) {
    const json_t *item = json_array_get(array, (size_t)i);
    const char *hash;
    CUVIL_TRY(cuvil_json_get_string(item, "hash", origin, &hash));
    CUVIL_TRY(get_bytes(item, "offset", origin, &out->list[i].offset));
    CUVIL_TRY(get_bytes(item, "bytes", origin, &out->list[i].size));
    if (strlen(hash) != CUVIL_HASH_SIZE - 1)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: a cubin's hash is not one", origin);
    strcpy(out->list[i].hash, hash);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_plan_manifest_read(const json_t *json,
                                           const char *origin,
                                           struct cuvil_plan *plan,
                                           struct plan_cubins *cubins) {
  const char *arch;
  const json_t *array;
  void *items = NULL;
  CUVIL_TRY(cuvil_json_get_string(json, "arch", origin, &arch));
  if (strlen(arch) >= sizeof plan->arch)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: architecture \"%.40s\"", origin, arch);
  strcpy(plan->arch, arch);
  CUVIL_TRY(get_text(json, "model", origin, &plan->model));
  CUVIL_TRY(get_text(json, "fusion", origin, &plan->fusion));
  CUVIL_TRY(get_text(json, "precision", origin, &plan->precision));
  CUVIL_TRY(get_bytes(json, "arena_bytes", origin, &plan->arena_bytes));
  CUVIL_TRY(get_bytes(json, "zeroed_bytes", origin, &plan->zeroed_bytes));
  CUVIL_TRY(get_bytes(json, "weights_bytes", origin, &plan->weights_bytes));
  CUVIL_TRY(
      read_tensors(json, "inputs", origin, &plan->inputs, &plan->input_count));
  CUVIL_TRY(read_tensors(json, "outputs", origin, &plan->outputs,
                         &plan->output_count));
  CUVIL_TRY(read_cubins(json, origin, cubins));
  CUVIL_TRY(get_list(json, "steps", origin, sizeof *plan->steps, &array, &items,
                     &plan->step_count));
  plan->steps = items;
  for (int i = 0; i < plan->step_count; i++)
    CUVIL_TRY(
        read_step(json_array_get(array, (size_t)i), origin, &plan->steps[i]));
  return CUVIL_OK;
}
