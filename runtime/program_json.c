/* program_json.c - a program as JSON and back.
 *
 * The JSON is what a plan's manifest holds.  Sources and cubins are not in it;
 * a module is named by its hash.  Floats travel as their bits: an infinite
 * clip limit has no place among JSON's numbers, and a decimal could come back
 * as its neighbour.  Reading checks only that each value fits where it goes;
 * whether the whole makes sense is cuvil_program_check's question.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/program.h"

static const char *const role_names[] = {"operand", "workspace", "zeroed"};
static const char *const kind_names[] = {"launch", "library", "memset", "copy"};

/* ---- writing; json_pack answers NULL for any NULL inside, so one check at
 * the end is enough */

static json_t *integers(const void *values, int count, size_t size) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++) {
    json_int_t value = size == 8 ? (json_int_t)((const uint64_t *)values)[i]
                                 : (json_int_t)((const uint32_t *)values)[i];
    if (json_array_append_new(array, json_integer(value)) != 0) {
      json_decref(array);
      return NULL;
    }
  }
  return array;
}

static json_t *write_map(const struct cuvil_tensor_map *map) {
  int rank = map->rank;
  return json_pack("{s:i, s:o, s:o, s:o, s:o, s:i, s:i}", "dtype", map->dtype,
                   "dims", integers(map->dims, rank, 8), "strides",
                   integers(map->strides, rank - 1, 8), "box",
                   integers(map->box, rank, 4), "element_strides",
                   integers(map->element_strides, rank, 4), "swizzle",
                   map->swizzle, "l2_promotion", map->l2_promotion);
}

static json_t *write_arg(const struct cuvil_arg *arg) {
  float value = (float)arg->value.f;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  switch (arg->kind) {
    case CUVIL_ARG_BUFFER:
      return json_pack("{s:i, s:I}", "buffer", arg->buffer, "offset",
                       (json_int_t)arg->offset);
    case CUVIL_ARG_I32:
      return json_pack("{s:I}", "i32", (json_int_t)arg->value.i);
    case CUVIL_ARG_I64:
      return json_pack("{s:I}", "i64", (json_int_t)arg->value.i);
    case CUVIL_ARG_F32:
      return json_pack("{s:I}", "f32_bits", (json_int_t)bits);
    case CUVIL_ARG_TENSOR_MAP:
      return json_pack("{s:o, s:i, s:I}", "tensor_map", write_map(&arg->map),
                       "buffer", arg->buffer, "offset",
                       (json_int_t)arg->offset);
  }
  return NULL;
}

/* An array of `count` items, each written by `write` from its place. */
static json_t *write_list(const void *items, int count, size_t size,
                          json_t *(*write)(const void *item)) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++) {
    json_t *item = write((const char *)items + (size_t)i * size);
    if (json_array_append_new(array, item) != 0) {
      json_decref(array);
      return NULL;
    }
  }
  return array;
}

static json_t *write_arg_item(const void *item) {
  return write_arg(item);
}

static json_t *write_step(const void *item) {
  const struct cuvil_step *step = item;
  const char *kind = kind_names[step->kind];
  switch (step->kind) {
    case CUVIL_STEP_LAUNCH:
      return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:I, s:b, s:o}", "kind",
                       kind, "module", step->module, "entry", step->entry,
                       "grid", integers(step->grid, 3, 4), "block",
                       integers(step->block, 3, 4), "cluster",
                       integers(step->cluster, 3, 4), "shared",
                       (json_int_t)step->shared_bytes, "programmatic",
                       step->programmatic, "args",
                       write_list(step->args, step->arg_count,
                                  sizeof *step->args, write_arg_item));
    case CUVIL_STEP_LIBRARY:
      return json_pack("{s:s, s:s, s:o, s:o}", "kind", kind, "library",
                       step->library, "call", json_deep_copy(step->call),
                       "bindings",
                       integers(step->bindings, step->binding_count, 4));
    case CUVIL_STEP_MEMSET:
      return json_pack("{s:s, s:i, s:I, s:I, s:i}", "kind", kind, "buffer",
                       step->buffer, "offset", (json_int_t)step->offset,
                       "bytes", (json_int_t)step->bytes, "value", step->value);
    case CUVIL_STEP_COPY:
      return json_pack("{s:s, s:i, s:I, s:i, s:I, s:I}", "kind", kind, "buffer",
                       step->buffer, "offset", (json_int_t)step->offset,
                       "source_buffer", step->source_buffer, "source_offset",
                       (json_int_t)step->source_offset, "bytes",
                       (json_int_t)step->bytes);
  }
  return NULL;
}

static json_t *write_buffer(const void *item) {
  const struct cuvil_program_buffer *buffer = item;
  if (buffer->role == CUVIL_BUFFER_OPERAND)
    return json_pack("{s:s, s:i, s:I}", "role", role_names[buffer->role],
                     "operand", buffer->operand, "bytes",
                     (json_int_t)buffer->bytes);
  return json_pack("{s:s, s:I}", "role", role_names[buffer->role], "bytes",
                   (json_int_t)buffer->bytes);
}

static json_t *write_module(const void *item) {
  const struct cuvil_module *module = item;
  return json_pack("{s:s, s:s, s:s*}", "hash", module->hash, "arch",
                   module->arch, "options", module->options);
}

enum cuvil_status cuvil_program_to_json(const struct cuvil_program *program,
                                        json_t **out) {
  *out = NULL;
  CUVIL_TRY(cuvil_program_check(program, "program"));
  *out = json_pack("{s:o, s:o, s:o}", "buffers",
                   write_list(program->buffers, program->buffer_count,
                              sizeof *program->buffers, write_buffer),
                   "modules",
                   write_list(program->modules, program->module_count,
                              sizeof *program->modules, write_module),
                   "steps",
                   write_list(program->steps, program->step_count,
                              sizeof *program->steps, write_step));
  if (!*out)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                      "the program could not be written as JSON (memory, or a "
                      "text that is not UTF-8)");
  return CUVIL_OK;
}

/* ---- reading */

static enum cuvil_status get_range(const json_t *object, const char *key,
                                   const char *origin, int64_t low,
                                   int64_t high, int64_t *out) {
  CUVIL_TRY(cuvil_json_get_int(object, key, origin, out));
  if (*out < low || *out > high)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is %lld, not within %lld..%lld",
                      origin, key, (long long)*out, (long long)low,
                      (long long)high);
  return CUVIL_OK;
}

static enum cuvil_status get_index(const json_t *object, const char *key,
                                   const char *origin, int *out) {
  int64_t value;
  CUVIL_TRY(get_range(object, key, origin, 0, INT32_MAX, &value));
  *out = (int)value;
  return CUVIL_OK;
}

static enum cuvil_status get_size(const json_t *object, const char *key,
                                  const char *origin, uint64_t *out) {
  int64_t value;
  CUVIL_TRY(get_range(object, key, origin, 0, INT64_MAX, &value));
  *out = (uint64_t)value;
  return CUVIL_OK;
}

static enum cuvil_status get_name(const json_t *object, const char *key,
                                  const char *origin, char *out, size_t size) {
  const char *text;
  CUVIL_TRY(cuvil_json_get_string(object, key, origin, &text));
  if (strlen(text) >= size)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is longer than %zu letters",
                      origin, key, size - 1);
  strcpy(out, text);
  return CUVIL_OK;
}

static enum cuvil_status get_choice(const json_t *object, const char *key,
                                    const char *origin,
                                    const char *const *names, int count,
                                    int *out) {
  const char *text;
  CUVIL_TRY(cuvil_json_get_string(object, key, origin, &text));
  for (*out = 0; *out < count; (*out)++)
    if (strcmp(text, names[*out]) == 0) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is \"%.40s\"", origin, key, text);
}

/* An array of least..most integers of `size` bytes each, all within
 * 0..highest. */
static enum cuvil_status get_integers(const json_t *object, const char *key,
                                      const char *origin, int least, int most,
                                      int64_t highest, size_t size, void *out,
                                      int *out_count) {
  const json_t *array;
  CUVIL_TRY(cuvil_json_get_array(object, key, origin, &array));
  size_t count = json_array_size(array);
  if (count < (size_t)least || count > (size_t)most)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" has %zu elements", origin, key,
                      count);
  for (size_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(array, i);
    json_int_t value = json_integer_value(item);
    if (!json_is_integer(item) || value < 0 || value > highest)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\"[%zu] is not within 0..%lld",
                        origin, key, i, (long long)highest);
    if (size == 8)
      ((uint64_t *)out)[i] = (uint64_t)value;
    else
      ((uint32_t *)out)[i] = (uint32_t)value;
  }
  if (out_count) *out_count = (int)count;
  return CUVIL_OK;
}

static enum cuvil_status read_map(const json_t *json, const char *origin,
                                  struct cuvil_tensor_map *map) {
  if (!json_is_object(json))
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: tensor_map is not an object", origin);
  int rank;
  CUVIL_TRY(get_index(json, "dtype", origin, &map->dtype));
  CUVIL_TRY(get_integers(json, "dims", origin, 1, 5, INT64_MAX, 8, map->dims,
                         &map->rank));
  rank = map->rank;
  CUVIL_TRY(get_integers(json, "strides", origin, rank - 1, rank - 1, INT64_MAX,
                         8, map->strides, NULL));
  CUVIL_TRY(get_integers(json, "box", origin, rank, rank, UINT32_MAX, 4,
                         map->box, NULL));
  CUVIL_TRY(get_integers(json, "element_strides", origin, rank, rank,
                         UINT32_MAX, 4, map->element_strides, NULL));
  CUVIL_TRY(get_index(json, "swizzle", origin, &map->swizzle));
  return get_index(json, "l2_promotion", origin, &map->l2_promotion);
}

static enum cuvil_status read_scalar(const json_t *json, const char *origin,
                                     struct cuvil_step *step) {
  int64_t value;
  if (json_object_get(json, "i32")) {
    CUVIL_TRY(get_range(json, "i32", origin, INT32_MIN, INT32_MAX, &value));
    return cuvil_step_arg_i32(step, value);
  }
  if (json_object_get(json, "i64")) {
    CUVIL_TRY(cuvil_json_get_int(json, "i64", origin, &value));
    return cuvil_step_arg_i64(step, value);
  }
  CUVIL_TRY(get_range(json, "f32_bits", origin, 0, UINT32_MAX, &value));
  uint32_t bits = (uint32_t)value;
  float number;
  memcpy(&number, &bits, sizeof number);
  return cuvil_step_arg_f32(step, (double)number);
}

static enum cuvil_status read_arg(const json_t *json, const char *origin,
                                  struct cuvil_step *step) {
  if (!json_object_get(json, "buffer")) return read_scalar(json, origin, step);
  int buffer;
  uint64_t offset;
  CUVIL_TRY(get_index(json, "buffer", origin, &buffer));
  CUVIL_TRY(get_size(json, "offset", origin, &offset));
  const json_t *tensor_map = json_object_get(json, "tensor_map");
  if (!tensor_map) return cuvil_step_arg_buffer(step, buffer, offset);
  struct cuvil_tensor_map map = {0};
  CUVIL_TRY(read_map(tensor_map, origin, &map));
  CUVIL_TRY(cuvil_step_arg_tensor_map(step, buffer, &map));
  step->args[step->arg_count - 1].offset = offset;
  return CUVIL_OK;
}

static enum cuvil_status read_launch(const json_t *json, const char *origin,
                                     struct cuvil_step *step) {
  CUVIL_TRY(get_index(json, "module", origin, &step->module));
  CUVIL_TRY(get_name(json, "entry", origin, step->entry, sizeof step->entry));
  CUVIL_TRY(get_integers(json, "grid", origin, 3, 3, UINT32_MAX, 4, step->grid,
                         NULL));
  CUVIL_TRY(get_integers(json, "block", origin, 3, 3, UINT32_MAX, 4,
                         step->block, NULL));
  CUVIL_TRY(get_integers(json, "cluster", origin, 3, 3, UINT32_MAX, 4,
                         step->cluster, NULL));
  int64_t shared;
  CUVIL_TRY(get_range(json, "shared", origin, 0, UINT32_MAX, &shared));
  step->shared_bytes = (uint32_t)shared;
  const json_t *programmatic = json_object_get(json, "programmatic");
  if (!json_is_boolean(programmatic))
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"programmatic\" is not a boolean",
                      origin);
  step->programmatic = json_is_true(programmatic);
  const json_t *args;
  CUVIL_TRY(cuvil_json_get_array(json, "args", origin, &args));
  for (size_t i = 0; i < json_array_size(args); i++)
    CUVIL_TRY(read_arg(json_array_get(args, i), origin, step));
  return CUVIL_OK;
}

static enum cuvil_status read_library(const json_t *json, const char *origin,
                                      struct cuvil_step *step) {
  CUVIL_TRY(
      get_name(json, "library", origin, step->library, sizeof step->library));
  const json_t *call = json_object_get(json, "call");
  if (!json_is_object(call))
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"call\" is not an object", origin);
  step->call = json_deep_copy(call);
  if (!step->call) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library call");
  return get_integers(json, "bindings", origin, 0, 8, INT32_MAX, 4,
                      step->bindings, &step->binding_count);
}

static enum cuvil_status read_step(const json_t *json, const char *origin,
                                   struct cuvil_program *program) {
  int kind;
  CUVIL_TRY(get_choice(json, "kind", origin, kind_names, 4, &kind));
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_program_add_step(program, (enum cuvil_step_kind)kind, &step));
  if (step->kind == CUVIL_STEP_LAUNCH) return read_launch(json, origin, step);
  if (step->kind == CUVIL_STEP_LIBRARY) return read_library(json, origin, step);
  CUVIL_TRY(get_index(json, "buffer", origin, &step->buffer));
  CUVIL_TRY(get_size(json, "offset", origin, &step->offset));
  CUVIL_TRY(get_size(json, "bytes", origin, &step->bytes));
  if (step->kind == CUVIL_STEP_MEMSET)
    return get_index(json, "value", origin, &step->value);
  CUVIL_TRY(get_index(json, "source_buffer", origin, &step->source_buffer));
  return get_size(json, "source_offset", origin, &step->source_offset);
}

static enum cuvil_status read_buffer(const json_t *json, const char *origin,
                                     struct cuvil_program *program) {
  int role, operand = -1;
  uint64_t bytes;
  CUVIL_TRY(get_choice(json, "role", origin, role_names, 3, &role));
  if (role == CUVIL_BUFFER_OPERAND)
    CUVIL_TRY(get_index(json, "operand", origin, &operand));
  CUVIL_TRY(get_size(json, "bytes", origin, &bytes));
  return cuvil_program_add_buffer(program, (enum cuvil_buffer_role)role,
                                  operand, bytes, NULL);
}

/* Its source stays NULL and its hash is as written. */
static enum cuvil_status read_module(const json_t *json, const char *origin,
                                     struct cuvil_program *program) {
  char hash[CUVIL_HASH_SIZE];
  const char *arch, *options = NULL;
  int index;
  CUVIL_TRY(get_name(json, "hash", origin, hash, sizeof hash));
  CUVIL_TRY(cuvil_json_get_string(json, "arch", origin, &arch));
  if (json_object_get(json, "options"))
    CUVIL_TRY(cuvil_json_get_string(json, "options", origin, &options));
  CUVIL_TRY(cuvil_program_add_module(program, "", arch, options, &index));
  struct cuvil_module *module = &program->modules[index];
  free(module->source);
  module->source = NULL;
  memcpy(module->hash, hash, sizeof hash);
  return CUVIL_OK;
}

static enum cuvil_status read_list(
    const json_t *json, const char *key, const char *origin,
    struct cuvil_program *program,
    enum cuvil_status (*read)(const json_t *, const char *,
                              struct cuvil_program *)) {
  const json_t *array;
  CUVIL_TRY(cuvil_json_get_array(json, key, origin, &array));
  for (size_t i = 0; i < json_array_size(array); i++)
    CUVIL_TRY(read(json_array_get(array, i), origin, program));
  return CUVIL_OK;
}

enum cuvil_status cuvil_program_from_json(const json_t *json,
                                          const char *origin,
                                          struct cuvil_program **out) {
  *out = NULL;
  struct cuvil_program *program;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(cuvil_program_create(&program));
  CUVIL_TRY_GOTO(read_list(json, "buffers", origin, program, read_buffer));
  CUVIL_TRY_GOTO(read_list(json, "modules", origin, program, read_module));
  CUVIL_TRY_GOTO(read_list(json, "steps", origin, program, read_step));
  CUVIL_TRY_GOTO(cuvil_program_check(program, origin));
  *out = program;
  return CUVIL_OK;
fail:
  cuvil_program_destroy(program);
  return status;
}
