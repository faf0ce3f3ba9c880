/* The model builder: protobuf-c's structures filled by hand, in one arena, and
 * packed straight into a file.
 */
#include "graph/builder.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "graph/graph.h"
#include "onnx.pb-c.h"

#define EXTERNAL_FROM 1024 /* bytes: smaller tensors stay in the model */

struct cuvil_builder {
  struct cuvil_arena arena;
  bool failed; /* out of memory: the one thing that can go wrong */
  bool half, typed, initializers_as_inputs;
  const char *external;
  uint64_t seed;
  Onnx__ModelProto model;
  Onnx__GraphProto graph;
};

static void *take(struct cuvil_builder *b, size_t size) {
  void *memory = cuvil_arena_alloc(&b->arena, size);
  if (memory == NULL) b->failed = true;
  return memory;
}

static char *text(struct cuvil_builder *b, const char *s) {
  char *copy = cuvil_arena_strdup(&b->arena, s);
  if (copy == NULL) b->failed = true;
  return copy;
}

/* Appends to a repeated field, whose capacity is the power of two at or above
 * its count. */
static void push(struct cuvil_builder *b, size_t *count, void *array_field,
                 void *item) {
  void **array;
  memcpy(&array, array_field, sizeof array);
  if (item == NULL || b->failed) return;
  if ((*count & (*count - 1)) == 0) {
    void **longer = take(b, (*count > 0 ? 2 * *count : 1) * sizeof *longer);
    if (longer == NULL) return;
    if (*count > 0) memcpy(longer, array, *count * sizeof *longer);
    memcpy(array_field, &longer, sizeof longer);
    array = longer;
  }
  array[(*count)++] = item;
}

enum cuvil_status cuvil_builder_create(const char *name, int opset,
                                       struct cuvil_builder **out) {
  *out = NULL;
  struct cuvil_builder *b = calloc(1, sizeof *b);
  if (b == NULL) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory");
  onnx__model_proto__init(&b->model);
  onnx__graph_proto__init(&b->graph);
  b->model.graph = &b->graph;
  b->model.has_ir_version = 1;
  b->model.ir_version = 8;
  b->model.producer_name = text(b, "cuvil");
  b->graph.name = text(b, name);
  b->seed = 1;
  if (opset != 0) cuvil_builder_add_opset(b, "", opset);
  *out = b;
  return CUVIL_OK;
}

void cuvil_builder_destroy(struct cuvil_builder *b) {
  if (b == NULL) return;
  cuvil_arena_free(&b->arena);
  free(b);
}

void cuvil_builder_set_half(struct cuvil_builder *b, bool half) {
  b->half = half;
}

void cuvil_builder_set_typed(struct cuvil_builder *b, bool typed) {
  b->typed = typed;
}

void cuvil_builder_set_external(struct cuvil_builder *b, const char *file) {
  b->external = file != NULL ? text(b, file) : NULL;
}

void cuvil_builder_set_ir(struct cuvil_builder *b, int version,
                          bool initializers_as_inputs) {
  b->model.ir_version = version;
  b->initializers_as_inputs = initializers_as_inputs;
}

void cuvil_builder_set_seed(struct cuvil_builder *b, uint64_t seed) {
  b->seed = seed;
}

void cuvil_builder_add_opset(struct cuvil_builder *b, const char *domain,
                             int version) {
  Onnx__OperatorSetIdProto *opset = take(b, sizeof *opset);
  if (opset == NULL) return;
  onnx__operator_set_id_proto__init(opset);
  opset->domain = text(b, domain);
  opset->has_version = 1;
  opset->version = version;
  push(b, &b->model.n_opset_import, &b->model.opset_import, opset);
}

/* ---- inputs and outputs */
static enum cuvil_dtype stored_type(const struct cuvil_builder *b,
                                    enum cuvil_dtype dtype) {
  return b->half && dtype == CUVIL_F32 ? CUVIL_F16 : dtype;
}

static Onnx__TensorShapeProto *shape_of(struct cuvil_builder *b, int rank,
                                        const int64_t *dims) {
  Onnx__TensorShapeProto *shape = take(b, sizeof *shape);
  if (shape == NULL) return NULL;
  onnx__tensor_shape_proto__init(shape);
  for (int i = 0; i < rank; i++) {
    Onnx__TensorShapeProto__Dimension *dim = take(b, sizeof *dim);
    if (dim == NULL) return NULL;
    onnx__tensor_shape_proto__dimension__init(dim);
    if (dims[i] == -1) {
      dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
      dim->dim_param = text(b, "N");
    } else {
      dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
      dim->dim_value = dims[i];
    }
    push(b, &shape->n_dim, &shape->dim, dim);
  }
  return shape;
}

static Onnx__ValueInfoProto *info_of(struct cuvil_builder *b, const char *name,
                                     int onnx_type, int rank,
                                     const int64_t *dims) {
  Onnx__ValueInfoProto *info = take(b, sizeof *info);
  Onnx__TypeProto *type = take(b, sizeof *type);
  Onnx__TypeProto__Tensor *tensor = take(b, sizeof *tensor);
  if (info == NULL || type == NULL || tensor == NULL) return NULL;
  onnx__value_info_proto__init(info);
  onnx__type_proto__init(type);
  onnx__type_proto__tensor__init(tensor);
  info->name = text(b, name);
  info->type = type;
  type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  type->tensor_type = tensor;
  tensor->has_elem_type = 1;
  tensor->elem_type = onnx_type;
  if (rank >= 0) tensor->shape = shape_of(b, rank, dims);
  return info;
}

void cuvil_builder_input(struct cuvil_builder *b, const char *name,
                         enum cuvil_dtype dtype, int rank,
                         const int64_t *dims) {
  int type = cuvil_dtype_to_onnx(stored_type(b, dtype));
  push(b, &b->graph.n_input, &b->graph.input,
       info_of(b, name, type, rank, dims));
}

void cuvil_builder_output(struct cuvil_builder *b, const char *name,
                          enum cuvil_dtype dtype, int rank,
                          const int64_t *dims) {
  int type = cuvil_dtype_to_onnx(stored_type(b, dtype));
  push(b, &b->graph.n_output, &b->graph.output,
       info_of(b, name, type, rank, dims));
}

/* ---- tensors */
static Onnx__TensorProto *new_tensor(struct cuvil_builder *b, const char *name,
                                     int onnx_type, int rank,
                                     const int64_t *dims) {
  Onnx__TensorProto *tensor = take(b, sizeof *tensor);
  int64_t *copy = take(b, (size_t)(rank + 1) * sizeof *copy);
  if (tensor == NULL || copy == NULL) return NULL;
  onnx__tensor_proto__init(tensor);
  for (int i = 0; i < rank; i++)
    copy[i] = dims[i];
  tensor->name = text(b, name);
  tensor->has_data_type = 1;
  tensor->data_type = onnx_type;
  tensor->n_dims = (size_t)rank;
  tensor->dims = copy;
  return tensor;
}

static void add_initializer(struct cuvil_builder *b,
                            Onnx__TensorProto *tensor) {
  push(b, &b->graph.n_initializer, &b->graph.initializer, tensor);
}

/* Moves `data` into the field that the format has for its type. */
static void typed_data(struct cuvil_builder *b, Onnx__TensorProto *tensor,
                       enum cuvil_dtype dtype, size_t count, const void *data) {
  if (dtype == CUVIL_F32 || dtype == CUVIL_F64 || dtype == CUVIL_I64) {
    void *copy = take(b, (count + 1) * cuvil_dtype_size(dtype));
    if (copy == NULL) return;
    if (count > 0) memcpy(copy, data, count * cuvil_dtype_size(dtype));
    if (dtype == CUVIL_F32)
      tensor->float_data = copy, tensor->n_float_data = count;
    else if (dtype == CUVIL_F64)
      tensor->double_data = copy, tensor->n_double_data = count;
    else
      tensor->int64_data = copy, tensor->n_int64_data = count;
    return;
  }
  int32_t *copy = take(b, (count + 1) * sizeof *copy);
  if (copy == NULL) return;
  for (size_t i = 0; i < count; i++)
    copy[i] = dtype == CUVIL_F16 || dtype == CUVIL_BF16
                  ? ((const uint16_t *)data)[i]
                  : (int32_t)cuvil_load(dtype, data, i);
  tensor->int32_data = copy;
  tensor->n_int32_data = count;
}

/* `data` belongs to the builder already when `owned`. */
static Onnx__TensorProto *filled_tensor(struct cuvil_builder *b,
                                        const char *name,
                                        enum cuvil_dtype dtype, int rank,
                                        const int64_t *dims, const void *data,
                                        bool owned) {
  enum cuvil_dtype stored = stored_type(b, dtype);
  Onnx__TensorProto *tensor =
      new_tensor(b, name, cuvil_dtype_to_onnx(stored), rank, dims);
  if (tensor == NULL) return NULL;
  size_t count = 1;
  for (int i = 0; i < rank; i++)
    count *= (size_t)dims[i];
  size_t bytes = count * cuvil_dtype_size(stored);
  uint8_t *copy =
      owned && stored == dtype ? (uint8_t *)(uintptr_t)data : take(b, bytes);
  if (copy == NULL) return NULL;
  if (copy != data) cuvil_convert(stored, copy, dtype, data, count);
  if (b->typed) {
    typed_data(b, tensor, stored, count, copy);
  } else {
    tensor->has_raw_data = 1;
    tensor->raw_data = (ProtobufCBinaryData){bytes, copy};
  }
  return tensor;
}

void cuvil_builder_initializer(struct cuvil_builder *b, const char *name,
                               enum cuvil_dtype dtype, int rank,
                               const int64_t *dims, const void *data) {
  add_initializer(b, filled_tensor(b, name, dtype, rank, dims, data, false));
}

static void uniform(struct cuvil_builder *b, const char *name, int rank,
                    const int64_t *dims, double low, double high) {
  size_t count = 1;
  for (int i = 0; i < rank; i++)
    count *= (size_t)dims[i];
  float *data = take(b, count * sizeof *data);
  if (data == NULL) return;
  struct cuvil_rng rng = {cuvil_hash64(name, strlen(name), b->seed)};
  for (size_t i = 0; i < count; i++)
    data[i] = (float)(low + (high - low) * cuvil_rng_uniform(&rng));
  add_initializer(b, filled_tensor(b, name, CUVIL_F32, rank, dims, data, true));
}

void cuvil_builder_random(struct cuvil_builder *b, const char *name, int rank,
                          const int64_t *dims, double deviation) {
  /* A uniform number in [-1, 1) has the deviation 1/sqrt(3). */
  double reach = deviation * 1.7320508075688772;
  uniform(b, name, rank, dims, -reach, reach);
}

void cuvil_builder_random_transposed(struct cuvil_builder *b, const char *name,
                                     int64_t rows, int64_t cols,
                                     double deviation) {
  size_t count = (size_t)rows * (size_t)cols;
  double reach = deviation * 1.7320508075688772;
  float *data = take(b, count * sizeof *data);
  if (data == NULL) return;
  struct cuvil_rng rng = {cuvil_hash64(name, strlen(name), b->seed)};
  for (int64_t j = 0; j < cols; j++)
    for (int64_t i = 0; i < rows; i++)
      data[i * cols + j] =
          (float)(-reach + 2 * reach * cuvil_rng_uniform(&rng));
  add_initializer(b, filled_tensor(b, name, CUVIL_F32, 2,
                                   (int64_t[]){rows, cols}, data, true));
}

void cuvil_builder_uniform(struct cuvil_builder *b, const char *name,
                           int64_t count, double low, double high) {
  uniform(b, name, 1, &count, low, high);
}

void cuvil_builder_raw_initializer(struct cuvil_builder *b, const char *name,
                                   int onnx_type, int rank, const int64_t *dims,
                                   const void *bytes, size_t size) {
  Onnx__TensorProto *tensor = new_tensor(b, name, onnx_type, rank, dims);
  uint8_t *copy = take(b, size);
  if (tensor == NULL || copy == NULL) return;
  if (size > 0) memcpy(copy, bytes, size);
  tensor->has_raw_data = 1;
  tensor->raw_data = (ProtobufCBinaryData){size, copy};
  add_initializer(b, tensor);
}

static void set_external(struct cuvil_builder *b, Onnx__TensorProto *tensor,
                         const char *key, const char *value) {
  if (value == NULL) return;
  Onnx__StringStringEntryProto *entry = take(b, sizeof *entry);
  if (entry == NULL) return;
  onnx__string_string_entry_proto__init(entry);
  entry->key = text(b, key);
  entry->value = text(b, value);
  push(b, &tensor->n_external_data, &tensor->external_data, entry);
  tensor->has_data_location = 1;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

void cuvil_builder_external_initializer(
    struct cuvil_builder *b, const char *name, int rank, const int64_t *dims,
    const char *location, const char *offset, const char *length) {
  Onnx__TensorProto *tensor = new_tensor(
      b, name, cuvil_dtype_to_onnx(stored_type(b, CUVIL_F32)), rank, dims);
  if (tensor == NULL) return;
  set_external(b, tensor, "location", location);
  set_external(b, tensor, "offset", offset);
  set_external(b, tensor, "length", length);
  add_initializer(b, tensor);
}

/* ---- nodes */
static void names(struct cuvil_builder *b, const char *list, size_t *count,
                  char ***field) {
  if (list[0] == '\0') return;
  for (;;) {
    size_t n = strcspn(list, ",");
    char *name = cuvil_arena_strndup(&b->arena, list, n);
    if (name == NULL) b->failed = true;
    push(b, count, field, name);
    if (list[n] == '\0') return;
    list += n + 1;
  }
}

void cuvil_builder_node(struct cuvil_builder *b, const char *op,
                        const char *name, const char *inputs,
                        const char *outputs) {
  Onnx__NodeProto *node = take(b, sizeof *node);
  if (node == NULL) return;
  onnx__node_proto__init(node);
  node->op_type = text(b, op);
  node->name = text(b, name);
  names(b, inputs, &node->n_input, &node->input);
  names(b, outputs, &node->n_output, &node->output);
  push(b, &b->graph.n_node, &b->graph.node, node);
}

static Onnx__NodeProto *last_node(struct cuvil_builder *b) {
  if (b->failed || b->graph.n_node == 0) return NULL;
  return b->graph.node[b->graph.n_node - 1];
}

void cuvil_builder_domain(struct cuvil_builder *b, const char *domain) {
  Onnx__NodeProto *node = last_node(b);
  if (node != NULL) node->domain = text(b, domain);
}

static Onnx__AttributeProto *attribute(
    struct cuvil_builder *b, const char *name,
    Onnx__AttributeProto__AttributeType type) {
  Onnx__NodeProto *node = last_node(b);
  Onnx__AttributeProto *a = node != NULL ? take(b, sizeof *a) : NULL;
  if (a == NULL) return NULL;
  onnx__attribute_proto__init(a);
  a->name = text(b, name);
  a->has_type = 1;
  a->type = type;
  push(b, &node->n_attribute, &node->attribute, a);
  return a;
}

void cuvil_builder_int(struct cuvil_builder *b, const char *name,
                       int64_t value) {
  Onnx__AttributeProto *a =
      attribute(b, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  if (a == NULL) return;
  a->has_i = 1;
  a->i = value;
}

void cuvil_builder_float(struct cuvil_builder *b, const char *name,
                         float value) {
  Onnx__AttributeProto *a =
      attribute(b, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
  if (a == NULL) return;
  a->has_f = 1;
  a->f = value;
}

void cuvil_builder_string(struct cuvil_builder *b, const char *name,
                          const char *value) {
  Onnx__AttributeProto *a =
      attribute(b, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  if (a == NULL) return;
  a->has_s = 1;
  a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)text(b, value)};
}

void cuvil_builder_ints(struct cuvil_builder *b, const char *name, int count,
                        const int64_t *values) {
  Onnx__AttributeProto *a =
      attribute(b, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
  int64_t *copy =
      a != NULL ? take(b, ((size_t)count + 1) * sizeof *copy) : NULL;
  if (copy == NULL) return;
  for (int i = 0; i < count; i++)
    copy[i] = values[i];
  a->n_ints = (size_t)count;
  a->ints = copy;
}

void cuvil_builder_tensor(struct cuvil_builder *b, const char *name,
                          enum cuvil_dtype dtype, int rank, const int64_t *dims,
                          const void *data) {
  Onnx__AttributeProto *a =
      attribute(b, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
  if (a != NULL) a->t = filled_tensor(b, "", dtype, rank, dims, data, false);
}

/* ---- writing */
static enum cuvil_status write_all(FILE *file, const void *bytes, size_t size,
                                   const char *path) {
  if (size == 0 || fwrite(bytes, 1, size, file) == size) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
}

/* Moves the large tensors' bytes to the external file. */
static enum cuvil_status write_external(struct cuvil_builder *b,
                                        const char *path) {
  char *copy = strdup(path), target[4096];
  if (copy == NULL) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory");
  snprintf(target, sizeof target, "%s/%s", dirname(copy), b->external);
  free(copy);
  FILE *file = fopen(target, "wb");
  if (file == NULL)
    return CUVIL_FAIL(CU_ERR_IO, "%s: cannot write: %s", target,
                      strerror(errno));
  enum cuvil_status status = CUVIL_OK;
  size_t offset = 0;
  for (size_t i = 0; i < b->graph.n_initializer && status == CUVIL_OK; i++) {
    Onnx__TensorProto *tensor = b->graph.initializer[i];
    size_t size = tensor->raw_data.len;
    if (!tensor->has_raw_data || size < EXTERNAL_FROM) continue;
    char number[2][24];
    snprintf(number[0], sizeof number[0], "%zu", offset);
    snprintf(number[1], sizeof number[1], "%zu", size);
    set_external(b, tensor, "location", b->external);
    set_external(b, tensor, "offset", number[0]);
    set_external(b, tensor, "length", number[1]);
    status = write_all(file, tensor->raw_data.data, size, target);
    tensor->has_raw_data = 0;
    /* The next starts aligned, so that a reader can use it where it is. */
    static const char zeros[64];
    size_t padding = (64 - size % 64) % 64;
    if (status == CUVIL_OK) status = write_all(file, zeros, padding, target);
    offset += size + padding;
  }
  if (fclose(file) != 0 && status == CUVIL_OK)
    status =
        CUVIL_FAIL(CU_ERR_IO, "%s: cannot write: %s", target, strerror(errno));
  return status;
}

struct file_buffer {
  ProtobufCBuffer base;
  FILE *file;
  bool failed;
};

static void append_to_file(ProtobufCBuffer *buffer, size_t size,
                           const uint8_t *bytes) {
  struct file_buffer *out = (struct file_buffer *)buffer;
  out->failed |= size > 0 && fwrite(bytes, 1, size, out->file) != size;
}

enum cuvil_status cuvil_builder_write(struct cuvil_builder *b,
                                      const char *path) {
  if (b->initializers_as_inputs) {
    for (size_t i = 0; i < b->graph.n_initializer; i++) {
      const Onnx__TensorProto *t = b->graph.initializer[i];
      push(b, &b->graph.n_input, &b->graph.input,
           info_of(b, t->name, t->data_type, (int)t->n_dims, t->dims));
    }
    b->initializers_as_inputs = false;
  }
  if (b->external != NULL && !b->failed) CUVIL_TRY(write_external(b, path));
  if (b->failed)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to build %s", path);
  FILE *file = fopen(path, "wb");
  if (file == NULL)
    return CUVIL_FAIL(CU_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  struct file_buffer out = {.base = {.append = append_to_file}, .file = file};
  onnx__model_proto__pack_to_buffer(&b->model, &out.base);
  if (fclose(file) != 0 || out.failed)
    return CUVIL_FAIL(CU_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  return CUVIL_OK;
}
