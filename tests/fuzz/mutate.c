/* mutate.c - changes that keep an input's structure mostly whole.
 *
 * Flipped bytes of a file with lengths and checksums die in its first check.
 * So each kind is changed in terms of its own structure: a protobuf message by
 * fields with the lengths around them made right again, a graph by operators,
 * edges, attributes, dimensions and shape data, a plan by its manifest's JSON
 * with checksums made anew, JSON by its tree.  Once in sixteen, bytes anyway.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "graph/ops.h"
#include "onnx.pb-c.h"
#include "runtime/plan_format.h"
#include "tests/fuzz/fuzz.h"

static uint64_t below(struct cuvil_rng *rng, uint64_t n) {
  return n ? cuvil_rng_below(rng, n) : 0;
}

static int64_t odd_number(struct cuvil_rng *rng) {
  static const int64_t odd[] = {0,
                                1,
                                -1,
                                2,
                                3,
                                -2,
                                7,
                                8,
                                16,
                                127,
                                128,
                                255,
                                256,
                                65535,
                                65536,
                                1 << 20,
                                INT32_MAX,
                                INT32_MIN,
                                (int64_t)1 << 32,
                                (int64_t)1 << 40,
                                INT64_MAX,
                                INT64_MIN,
                                INT64_MAX - 1};
  if (below(rng, 3) == 0) return (int64_t)below(rng, 12) - 3;
  return odd[below(rng, sizeof(odd) / sizeof(odd[0]))];
}

static void mutate_bytes(const uint8_t *bytes, size_t size,
                         struct cuvil_rng *rng, struct cuvil_buf *out) {
  size_t start = out->size;
  size_t keep = below(rng, 8) == 0 ? below(rng, size + 1) : size;
  cuvil_buf_add(out, bytes, keep);
  for (uint64_t i = 1 + below(rng, 8); keep && !out->failed && i > 0; --i) {
    uint8_t *at = (uint8_t *)out->data + start + below(rng, keep);
    *at = below(rng, 2) ? (uint8_t)(*at ^ (1u << below(rng, 8)))
                        : (uint8_t)cuvil_rng_next(rng);
  }
}

/* ---- protobuf by its wire form */
struct field {
  size_t start, body, end; /* key, value (behind a length), end */
  int wire;
};
enum { MAX_FIELDS = 512 };

static bool varint(const uint8_t *bytes, size_t size, size_t *at,
                   uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && *at < size; shift += 7) {
    uint8_t byte = bytes[(*at)++];
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

static void put_varint(struct cuvil_buf *out, uint64_t value) {
  uint8_t bytes[10];
  size_t count = 0;
  do {
    bytes[count] = (uint8_t)(value & 0x7f);
    value >>= 7;
    if (value) bytes[count] |= 0x80;
    ++count;
  } while (value);
  cuvil_buf_add(out, bytes, count);
}

/* -1: this is no message. */
static int fields_of(const uint8_t *bytes, size_t size, struct field *fields) {
  int count = 0;
  for (size_t at = 0; at < size;) {
    struct field f = {.start = at};
    uint64_t key, length;
    if (count == MAX_FIELDS || !varint(bytes, size, &at, &key)) return -1;
    f.wire = (int)(key & 7);
    f.body = at;
    if (f.wire == 0 && !varint(bytes, size, &at, &length)) return -1;
    if (f.wire == 1) at += 8;
    if (f.wire == 5) at += 4;
    if (f.wire == 2) {
      if (!varint(bytes, size, &at, &length) || length > size - at) return -1;
      f.body = at;
      at += length;
    }
    if (f.wire == 3 || f.wire == 4 || f.wire > 5 || at > size || key >> 3 == 0)
      return -1;
    f.end = at;
    fields[count++] = f;
  }
  return count;
}

static void mutate_message(const uint8_t *bytes, size_t size, int depth,
                           struct cuvil_rng *rng, struct cuvil_buf *out);

/* A field with another value. */
static void mutate_field(const uint8_t *bytes, const struct field *f, int depth,
                         struct cuvil_rng *rng, struct cuvil_buf *out) {
  size_t key = 0;
  uint64_t ignored;
  const uint8_t *body = bytes + f->body;
  size_t length = f->end - f->body;
  CUVIL_IGNORE(varint(bytes + f->start, f->end - f->start, &key, &ignored));
  cuvil_buf_add(out, bytes + f->start, key);
  if (f->wire == 0) {
    put_varint(out, (uint64_t)odd_number(rng));
  } else if (f->wire == 2) {
    struct cuvil_buf inner = {0};
    if (below(rng, 16) == 0)
      cuvil_buf_add(&inner, body, below(rng, length + 1));
    else
      mutate_message(body, length, depth + 1, rng, &inner);
    put_varint(out, inner.size);
    cuvil_buf_add(out, inner.data, inner.size);
    cuvil_buf_free(&inner);
  } else {
    mutate_bytes(body, length, rng, out);
  }
}

static void mutate_message(const uint8_t *bytes, size_t size, int depth,
                           struct cuvil_rng *rng, struct cuvil_buf *out) {
  static _Thread_local struct field stack[8][MAX_FIELDS];
  struct field *fields = stack[depth < 8 ? depth : 7];
  int count = depth < 8 ? fields_of(bytes, size, fields) : -1;
  if (count <= 0) {
    mutate_bytes(bytes, size, rng, out);
    return;
  }
  int chosen = (int)below(rng, (uint64_t)count);
  int other = (int)below(rng, (uint64_t)count);
  uint64_t how = below(rng, 10);
  for (int i = 0; i < count; ++i) {
    const struct field *f = &fields[i];
    /* Two fields exchanged: how == 2. */
    if (how == 2 && i == chosen)
      f = &fields[other];
    else if (how == 2 && i == other)
      f = &fields[chosen];
    if (how == 0 && i == chosen) continue;
    if (how >= 3 && i == chosen) {
      mutate_field(bytes, f, depth, rng, out);
      continue;
    }
    cuvil_buf_add(out, bytes + f->start, f->end - f->start);
    if (how == 1 && i == chosen) /* twice */
      cuvil_buf_add(out, bytes + f->start, f->end - f->start);
  }
}

/* ---- a graph */
static void set_text(char **text, const char *value) {
  char *copy = strdup(value); /* it may be *text */
  if (!copy) abort();
  if (*text && *text != protobuf_c_empty_string) free(*text);
  *text = copy;
}

/* The name of some value of the graph. */
static const char *some_value(const Onnx__GraphProto *graph,
                              struct cuvil_rng *rng) {
  uint64_t where = below(rng, 3);
  if (where == 0 && graph->n_input)
    return graph->input[below(rng, graph->n_input)]->name;
  if (where == 1 && graph->n_initializer)
    return graph->initializer[below(rng, graph->n_initializer)]->name;
  if (!graph->n_node) return "";
  const Onnx__NodeProto *node = graph->node[below(rng, graph->n_node)];
  return node->n_output ? node->output[below(rng, node->n_output)] : "";
}

static void mutate_attribute(Onnx__NodeProto *node, struct cuvil_rng *rng) {
  if (!node->n_attribute) return;
  Onnx__AttributeProto *a = node->attribute[below(rng, node->n_attribute)];
  switch (below(rng, 4)) {
    case 0:
      if (a->n_ints) a->ints[below(rng, a->n_ints)] = odd_number(rng);
      break;
    case 1:
      if (a->n_ints) a->n_ints = below(rng, a->n_ints + 1);
      break;
    case 2:
      a->f = below(rng, 2) ? 0 : (float)odd_number(rng);
      break;
    default:
      a->i = odd_number(rng);
  }
}

static void mutate_tensor(Onnx__TensorProto *tensor, struct cuvil_rng *rng) {
  uint64_t how = below(rng, 4);
  if (how == 0 && tensor->n_dims) {
    tensor->dims[below(rng, tensor->n_dims)] = odd_number(rng);
  } else if (how == 1 && tensor->n_int64_data) {
    tensor->int64_data[below(rng, tensor->n_int64_data)] = odd_number(rng);
  } else if (how == 2) {
    tensor->data_type = (int32_t)below(rng, 20);
  } else if (tensor->raw_data.len >= 8) { /* shapes and axes are int64 */
    int64_t value = odd_number(rng);
    memcpy(tensor->raw_data.data + 8 * below(rng, tensor->raw_data.len / 8),
           &value, 8);
  }
}

static void mutate_input(Onnx__ValueInfoProto *info, struct cuvil_rng *rng) {
  if (!info->type ||
      info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    return;
  Onnx__TypeProto__Tensor *type = info->type->tensor_type;
  if (below(rng, 4) == 0)
    type->elem_type = (int32_t)below(rng, 20);
  else if (type->shape && type->shape->n_dim) {
    Onnx__TensorShapeProto__Dimension *dim =
        type->shape->dim[below(rng, type->shape->n_dim)];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
      dim->dim_value = odd_number(rng);
  }
}

static void mutate_node(Onnx__GraphProto *graph, struct cuvil_rng *rng) {
  Onnx__NodeProto *node = graph->node[below(rng, graph->n_node)];
  Onnx__NodeProto *other = graph->node[below(rng, graph->n_node)];
  int ops;
  const struct cuvil_op *table = cuvil_op_table(&ops);
  switch (below(rng, 7)) {
    case 0:
      set_text(&node->op_type, table[below(rng, (uint64_t)ops)].name);
      break;
    case 1:
      if (node->n_input)
        set_text(&node->input[below(rng, node->n_input)],
                 some_value(graph, rng));
      break;
    case 2:
      if (node->n_input) free(node->input[--node->n_input]);
      break;
    case 3: { /* two operators exchanged, with their attributes */
      char *op = node->op_type;
      Onnx__AttributeProto **attributes = node->attribute;
      size_t count = node->n_attribute;
      node->op_type = other->op_type, other->op_type = op;
      node->attribute = other->attribute, other->attribute = attributes;
      node->n_attribute = other->n_attribute, other->n_attribute = count;
      break;
    }
    case 4:
      if (node->n_input) set_text(&node->input[below(rng, node->n_input)], "");
      break;
    default:
      mutate_attribute(node, rng);
  }
}

static void mutate_graph(const uint8_t *bytes, size_t size,
                         struct cuvil_rng *rng, struct cuvil_buf *out) {
  Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size, bytes);
  if (!model || !model->graph || !model->graph->n_node) {
    if (model) onnx__model_proto__free_unpacked(model, NULL);
    mutate_bytes(bytes, size, rng, out);
    return;
  }
  Onnx__GraphProto *graph = model->graph;
  for (uint64_t times = 1 + below(rng, 3); times > 0; --times) {
    uint64_t what = below(rng, 10);
    if (what == 0 && graph->n_output)
      set_text(&graph->output[below(rng, graph->n_output)]->name,
               some_value(graph, rng));
    else if (what == 1 && graph->n_input)
      mutate_input(graph->input[below(rng, graph->n_input)], rng);
    else if (what == 2 && model->n_opset_import)
      model->opset_import[0]->version = (int64_t)below(rng, 26);
    else if (what <= 4 && graph->n_initializer)
      mutate_tensor(graph->initializer[below(rng, graph->n_initializer)], rng);
    else
      mutate_node(graph, rng);
  }
  size_t packed = onnx__model_proto__get_packed_size(model);
  uint8_t *result = malloc(packed + 1);
  if (!result) abort();
  onnx__model_proto__pack(model, result);
  cuvil_buf_add(out, result, packed);
  free(result);
  onnx__model_proto__free_unpacked(model, NULL);
}

/* ---- JSON */
static json_t *odd_json(struct cuvil_rng *rng) {
  switch (below(rng, 8)) {
    case 0:
      return json_null();
    case 1:
      return json_string("");
    case 2:
      return json_array();
    case 3:
      return json_object();
    case 4:
      return json_real((double)odd_number(rng) * 1e-3);
    case 5:
      return json_boolean(below(rng, 2));
    default:
      return json_integer(odd_number(rng));
  }
}

static json_t *changed_string(const char *text, struct cuvil_rng *rng) {
  struct cuvil_buf out = {0};
  mutate_bytes((const uint8_t *)text, strlen(text), rng, &out);
  json_t *result = json_stringn(out.data ? out.data : "", out.size);
  cuvil_buf_free(&out);
  return result ? result : json_string(text); /* not UTF-8 */
}

/* Changes one thing below `json`, which is an array or an object. */
static void mutate_tree(json_t *json, struct cuvil_rng *rng) {
  bool array = json_is_array(json);
  size_t count = array ? json_array_size(json) : json_object_size(json);
  if (count == 0) return;
  size_t index = below(rng, count);
  const char *key = NULL;
  json_t *child;
  if (array) {
    child = json_array_get(json, index);
  } else {
    void *at = json_object_iter(json);
    while (index--)
      at = json_object_iter_next(json, at);
    key = json_object_iter_key(at);
    child = json_object_iter_value(at);
  }
  bool inner = json_is_array(child) || json_is_object(child);
  uint64_t how = below(rng, 12);
  if (inner && how > 1) {
    mutate_tree(child, rng);
    return;
  }
  json_t *value = NULL;
  if (json_is_string(child) && how > 3)
    value = changed_string(json_string_value(child), rng);
  else if (how > 1)
    value = odd_json(rng);
  else if (how == 1)
    value = json_deep_copy(child);
  if (array) {
    if (how == 0)
      json_array_remove(json, index);
    else if (how == 1)
      json_array_append_new(json, value);
    else
      json_array_set_new(json, index, value);
  } else {
    char name[128];
    snprintf(name, sizeof(name), "%.100s%s", key, how == 1 ? "_" : "");
    if (how == 0)
      json_object_del(json, name);
    else
      json_object_set_new(json, name, value);
  }
}

static void mutate_json(const uint8_t *bytes, size_t size,
                        struct cuvil_rng *rng, struct cuvil_buf *out) {
  json_t *json = json_loadb((const char *)bytes, size, 0, NULL);
  char *text = NULL;
  if (json) {
    for (uint64_t times = 1 + below(rng, 3); times > 0; --times)
      mutate_tree(json, rng);
    text = json_dumps(json, JSON_COMPACT);
  }
  if (text)
    cuvil_buf_add(out, text, strlen(text));
  else
    mutate_bytes(bytes, size, rng, out);
  free(text);
  json_decref(json);
}

/* ---- plans: another manifest, or other sections, under right checksums */
static void mutate_plan(const uint8_t *bytes, size_t size,
                        struct cuvil_rng *rng, struct cuvil_buf *out) {
  struct plan_header header = {0};
  bool whole = size >= sizeof(header) && below(rng, 8) != 0;
  if (whole) memcpy(&header, bytes, sizeof(header));
  for (int i = 0; i < PLAN_SECTIONS; ++i) /* it may have been changed before */
    whole = whole && header.sections[i].offset <= size &&
            header.sections[i].bytes <= size - header.sections[i].offset;
  if (!whole) {
    mutate_bytes(bytes, size, rng, out);
    return;
  }
  size_t start = out->size;
  cuvil_buf_add(out, &header, sizeof(header));
  for (int i = 0; i < PLAN_SECTIONS; ++i) {
    static const uint64_t alignment[] = {64, 64, 4096};
    while ((out->size - start) % alignment[i] && !out->failed)
      cuvil_buf_add(out, "", 1);
    const uint8_t *section = bytes + header.sections[i].offset;
    size_t length = header.sections[i].bytes;
    header.sections[i].offset = out->size - start;
    if (i == PLAN_MANIFEST)
      mutate_json(section, length, rng, out);
    else
      cuvil_buf_add(out, section, length);
    header.sections[i].bytes = out->size - start - header.sections[i].offset;
  }
  if (out->failed) abort();
  header.file_bytes = out->size - start;
  if (below(rng, 32) == 0)
    header.sections[below(rng, PLAN_SECTIONS)].bytes +=
        (uint64_t)odd_number(rng);
  for (int i = 0; i < PLAN_SECTIONS; ++i) {
    uint64_t from = header.sections[i].offset;
    uint64_t to = i + 1 < PLAN_SECTIONS ? header.sections[i + 1].offset
                                        : header.file_bytes;
    header.sections[i].hash =
        cuvil_hash64(out->data + start + from, to - from, 0);
  }
  header.hash = cuvil_hash64(&header, offsetof(struct plan_header, hash), 0);
  memcpy(out->data + start, &header, sizeof(header));
}

/* ---- problem texts: words exchanged for others of the same text */
static void mutate_words(const char *text, size_t size, struct cuvil_rng *rng,
                         struct cuvil_buf *out) {
  static const char *const words[] = {"0",
                                      "-1",
                                      "4294967296",
                                      "9223372036854775807",
                                      "f16",
                                      "f32",
                                      "i64",
                                      "epi{",
                                      "pro{",
                                      "}",
                                      "acc",
                                      "=",
                                      "[",
                                      "]",
                                      "mul(acc,acc)",
                                      ":out",
                                      "1e999",
                                      "nan",
                                      "@(1,2)",
                                      ":weight",
                                      "op=max",
                                      " ",
                                      "m",
                                      "batch=3",
                                      "out=relu(acc)"};
  size_t at = below(rng, size + 1), end = at;
  while (end < size && end - at < 1 + below(rng, 12))
    ++end;
  cuvil_buf_add(out, text, at);
  const char *word = words[below(rng, sizeof(words) / sizeof(words[0]))];
  if (below(rng, 3)) {
    cuvil_buf_add(out, word, strlen(word));
  } else if (size) {
    size_t from = below(rng, size);
    cuvil_buf_add(out, text + from, below(rng, size - from));
  }
  cuvil_buf_add(out, text + end, size - end);
}

void fuzz_mutate(enum fuzz_target target, const void *bytes, size_t size,
                 struct cuvil_rng *rng, struct cuvil_buf *out) {
  if (below(rng, 16) == 0 || size == 0) {
    mutate_bytes(bytes, size, rng, out);
    return;
  }
  switch (target) {
    case FUZZ_MODEL:
    case FUZZ_TENSOR:
      mutate_message(bytes, size, 0, rng, out);
      break;
    case FUZZ_GRAPH:
      mutate_graph(bytes, size, rng, out);
      break;
    case FUZZ_PLAN:
      mutate_plan(bytes, size, rng, out);
      break;
    case FUZZ_RECORDING:
    case FUZZ_SPACE:
      mutate_json(bytes, size, rng, out);
      break;
    case FUZZ_PROBLEM:
      mutate_words(bytes, size, rng, out);
      break;
    default:
      mutate_bytes(bytes, size, rng, out);
  }
}
