/* The graph message: inputs, outputs, initializers and nodes, in that order
 * whatever theirs is in the file.
 *
 * An initializer that is also listed as an input is a constant here: models of
 * IR version 3 list all of them so, and from version 4 on it is a default that
 * a caller could override; Cuvil does not offer that, so it is no input of the
 * graph for its users.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "graph/import.h"
#include "graph/ops.h"
#include "onnx.pb-c.h"

#define MAX_VALUES (1 << 20)

/* Field numbers of GraphProto. */
enum {
  G_NODE = 1,
  G_NAME = 2,
  G_INITIALIZER = 5,
  G_INPUT = 11,
  G_OUTPUT = 12,
  G_SPARSE = 15
};

/* ---- names */
static uint64_t hash_name(const char *name) {
  return cuvil_hash64(name, strlen(name), 0);
}

static void insert(struct cuvil_import *import, int value) {
  struct cuvil_name_map *map = &import->names;
  uint64_t mask = (uint64_t)map->capacity - 1;
  uint64_t at = hash_name(import->graph->values[value].name) & mask;
  while (map->slots[at] != 0)
    at = (at + 1) & mask;
  map->slots[at] = value + 1;
}

static int find(const struct cuvil_import *import, const char *name) {
  const struct cuvil_name_map *map = &import->names;
  if (map->capacity == 0) return -1;
  uint64_t mask = (uint64_t)map->capacity - 1;
  for (uint64_t at = hash_name(name) & mask; map->slots[at] != 0;
       at = (at + 1) & mask) {
    int value = map->slots[at] - 1;
    if (strcmp(import->graph->values[value].name, name) == 0) return value;
  }
  return -1;
}

static enum cuvil_status enter(struct cuvil_import *import, int value) {
  struct cuvil_name_map *map = &import->names;
  if (2 * (map->count + 1) > map->capacity) {
    int capacity = map->capacity > 0 ? 2 * map->capacity : 256;
    struct cuvil_name_map old = *map;
    map->slots =
        cuvil_arena_array(&import->arena, (size_t)capacity, sizeof *map->slots);
    if (map->slots == NULL) {
      *map = old;
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %d names",
                        map->count);
    }
    map->capacity = capacity;
    for (int i = 0; i < old.capacity; i++)
      if (old.slots[i] != 0) insert(import, old.slots[i] - 1);
  }
  insert(import, value);
  map->count++;
  return CUVIL_OK;
}

enum cuvil_status cuvil_import_value(struct cuvil_import *import,
                                     const char *name, int *out) {
  *out = find(import, name);
  if (*out >= 0) return CUVIL_OK;
  if (import->graph->value_count >= MAX_VALUES)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "%s: more than %d tensors, more than any model has",
                      import->path, MAX_VALUES);
  CUVIL_TRY(cuvil_graph_add_value(import->graph, name, CUVIL_DTYPE_NONE, -1,
                                  NULL, NULL, out));
  return enter(import, *out);
}

/* Puts file and part before the message of a failure. */
static enum cuvil_status in_part(const struct cuvil_import *import,
                                 const char *part, const char *name,
                                 enum cuvil_status status) {
  if (status == CUVIL_OK) return CUVIL_OK;
  char clean[101];
  cuvil_text_clean(name, clean, sizeof clean);
  return CUVIL_FAIL(status, "%s: %s \"%s\": %s", import->path, part, clean,
                    cuvil_error_last()->message);
}

/* ---- initializers */
static enum cuvil_status add_initializer(struct cuvil_import *import,
                                         const uint8_t *bytes, size_t size) {
  struct cuvil_graph *graph = import->graph;
  struct cuvil_tensor_data tensor;
  enum cuvil_status status =
      cuvil_import_tensor(import, bytes, size, true, &graph->arena, &tensor);
  CUVIL_TRY(in_part(import, "initializer", tensor.name, status));
  if (tensor.name[0] == '\0')
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%s: an initializer has no name",
                      import->path);
  if (find(import, tensor.name) >= 0)
    return in_part(import, "initializer", tensor.name,
                   CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it is there twice"));
  int value;
  CUVIL_TRY(cuvil_import_value(import, tensor.name, &value));
  struct cuvil_value *v = &graph->values[value];
  v->dtype = tensor.dtype;
  v->rank = tensor.rank;
  memcpy(v->dims, tensor.dims, sizeof v->dims);
  v->data = tensor.data;
  v->owned = tensor.owned;
  return CUVIL_OK;
}

/* ---- inputs */

/* The declared dimensions, with what --shapes says put in the open places.
 * Says in one message what to pass. */
static enum cuvil_status resolve_shape(const struct cuvil_import *import,
                                       const char *name,
                                       const Onnx__TensorShapeProto *shape,
                                       struct cuvil_value *value) {
  int64_t given[CUVIL_GRAPH_MAX_RANK];
  int given_rank;
  CUVIL_TRY(cuvil_import_shapes_find(import->shapes, name, given, &given_rank));
  if (shape == NULL && given_rank < 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "the model declares no shape for it; give it with "
                      "--shapes NAME:1x3x224x224");
  if (shape == NULL) {
    value->rank = given_rank;
    memcpy(value->dims, given, sizeof given);
    return CUVIL_OK;
  }
  if (shape->n_dim > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "rank %zu; at most %d is supported", shape->n_dim,
                      CUVIL_GRAPH_MAX_RANK);
  int rank = (int)shape->n_dim;
  if (given_rank >= 0 && given_rank != rank)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--shapes gives it %d dimensions, the model %d",
                      given_rank, rank);
  char advice[200] = "";
  const char *open = NULL;
  for (int i = 0; i < rank; i++) {
    const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
    bool fixed =
        d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
        d->dim_value != -1;
    if (fixed && d->dim_value == 0)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "dimension %d is 0; inputs without elements are not "
                        "supported",
                        i);
    if (fixed && d->dim_value < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "dimension %d is negative (%lld)",
                        i, (long long)d->dim_value);
    if (fixed && given_rank >= 0 && given[i] != d->dim_value)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "--shapes gives dimension %d as %lld, the model fixes "
                        "it at %lld; export the model with that dimension "
                        "dynamic",
                        i, (long long)given[i], (long long)d->dim_value);
    value->dims[i] = fixed ? d->dim_value : given_rank >= 0 ? given[i] : 1;
    size_t used = strlen(advice);
    snprintf(advice + used, sizeof advice - used, "%s%lld", i > 0 ? "x" : "",
             (long long)value->dims[i]);
    if (!fixed && given_rank < 0 && open == NULL)
      open =
          d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
              ? d->dim_param
              : "?";
  }
  value->rank = rank;
  if (open == NULL) return CUVIL_OK;
  char symbol[41], clean[81];
  cuvil_text_clean(open, symbol, sizeof symbol);
  cuvil_text_clean(name, clean, sizeof clean);
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "its dimension \"%s\" is left open by the model; give it, "
                    "as in --shapes %s:%s",
                    symbol, clean, advice);
}

static enum cuvil_status tensor_type_of(const Onnx__ValueInfoProto *info,
                                        const Onnx__TypeProto__Tensor **out) {
  *out = NULL;
  if (info->type == NULL ||
      info->type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET)
    return CUVIL_OK;
  if (info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "only tensors are supported, not sequences, maps or "
                      "optionals");
  *out = info->type->tensor_type;
  return CUVIL_OK;
}

static enum cuvil_status add_input(struct cuvil_import *import,
                                   const Onnx__ValueInfoProto *info) {
  struct cuvil_graph *graph = import->graph;
  const char *name = info->name != NULL ? info->name : "";
  if (name[0] == '\0')
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no name");
  int value = find(import, name);
  if (value >= 0 && graph->values[value].data != NULL) return CUVIL_OK;
  if (value >= 0) return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it is there twice");
  const Onnx__TypeProto__Tensor *type;
  CUVIL_TRY(tensor_type_of(info, &type));
  if (type == NULL) return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no type");
  CUVIL_TRY(cuvil_import_value(import, name, &value));
  struct cuvil_value *v = &graph->values[value];
  CUVIL_TRY(cuvil_onnx_dtype(type->elem_type, &v->dtype));
  CUVIL_TRY(resolve_shape(import, name, type->shape, v));
  int64_t bytes = (int64_t)cuvil_dtype_size(v->dtype);
  for (int i = 0; i < v->rank; i++)
    if (__builtin_mul_overflow(bytes, v->dims[i], &bytes) || bytes > (int64_t)1
                                                                         << 42)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "its dimensions are too large (more than 4 TiB)");
  return cuvil_graph_add_input(graph, value);
}

static enum cuvil_status add_output(struct cuvil_import *import,
                                    const Onnx__ValueInfoProto *info) {
  const char *name = info->name != NULL ? info->name : "";
  if (name[0] == '\0')
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no name");
  const Onnx__TypeProto__Tensor *type;
  CUVIL_TRY(tensor_type_of(info, &type));
  int value;
  CUVIL_TRY(cuvil_import_value(import, name, &value));
  struct cuvil_value *v = &import->graph->values[value];
  /* Declared shapes are often wrong where windows round up; they are inferred.
   * A declared type must be right. */
  enum cuvil_dtype dtype = CUVIL_DTYPE_NONE;
  if (type != NULL && type->elem_type != 0)
    CUVIL_TRY(cuvil_onnx_dtype(type->elem_type, &dtype));
  if (dtype != CUVIL_DTYPE_NONE && v->dtype != CUVIL_DTYPE_NONE &&
      v->dtype != dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "declared as %s, but it is %s",
                      cuvil_dtype_name(dtype), cuvil_dtype_name(v->dtype));
  if (dtype != CUVIL_DTYPE_NONE) v->dtype = dtype;
  return cuvil_graph_add_output(import->graph, value);
}

static enum cuvil_status value_info(struct cuvil_import *import,
                                    const struct cuvil_wire_field *field) {
  struct cuvil_arena scratch = {0};
  void *message = NULL;
  bool input = field->number == G_INPUT;
  enum cuvil_status status =
      cuvil_wire_unpack(&onnx__value_info_proto__descriptor, field->bytes,
                        field->size, &scratch, &message);
  const Onnx__ValueInfoProto *info = message;
  if (status == CUVIL_OK)
    status = input ? add_input(import, info) : add_output(import, info);
  status =
      in_part(import, input ? "input" : "output",
              info != NULL && info->name != NULL ? info->name : "", status);
  cuvil_arena_free(&scratch);
  return status;
}

/* ---- the walk */
static enum cuvil_status take_field(struct cuvil_import *import,
                                    const struct cuvil_wire_field *field) {
  struct cuvil_graph *graph = import->graph;
  switch (field->number) {
    case G_NODE:
      return cuvil_import_node(import, field->bytes, field->size);
    case G_NAME:
      graph->name = cuvil_arena_strndup(
          &graph->arena, (const char *)field->bytes, field->size);
      if (graph->name == NULL)
        return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a name");
      return CUVIL_OK;
    case G_INITIALIZER:
      return add_initializer(import, field->bytes, field->size);
    case G_INPUT:
    case G_OUTPUT:
      return value_info(import, field);
    case G_SPARSE:
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "%s: sparse initializers are not supported",
                        import->path);
    default:
      return CUVIL_OK;
  }
}

enum cuvil_status cuvil_import_graph(struct cuvil_import *import,
                                     const uint8_t *bytes, size_t size) {
  static const uint32_t order[] = {G_NAME,  G_SPARSE, G_INITIALIZER,
                                   G_INPUT, G_OUTPUT, G_NODE};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    struct cuvil_wire wire = {bytes, bytes + size};
    struct cuvil_wire_field field;
    bool more;
    for (;;) {
      enum cuvil_status status = cuvil_wire_next(&wire, &field, &more);
      if (status != CUVIL_OK) {
        return CUVIL_FAIL(status, "%s: its graph: %s", import->path,
                          cuvil_error_last()->message);
      }
      if (!more) break;
      if (field.number == order[i] && field.type == 2)
        CUVIL_TRY(take_field(import, &field));
    }
  }
  return CUVIL_OK;
}
