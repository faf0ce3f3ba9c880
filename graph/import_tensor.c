/* Tensors: raw bytes, typed fields, or an external file.
 *
 * Raw data is left where it is in the mapped file when its address suits its
 * type; else it is copied once.  Protobuf-c sees the message without it.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/import.h"
#include "graph/ops.h"
#include "onnx.pb-c.h"

#define RAW_DATA 9 /* field number of TensorProto.raw_data */

/* The message less its raw data, in `arena`; the raw data's place. */
static enum cuvil_status take_raw(const uint8_t **bytes, size_t *size,
                                  struct cuvil_arena *arena,
                                  struct cuvil_wire_field *raw, bool *has_raw) {
  struct cuvil_wire wire = {*bytes, *bytes + *size};
  struct cuvil_wire_field field;
  bool more;
  size_t rest = 0;
  *has_raw = false;
  for (;;) {
    CUVIL_TRY(cuvil_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == RAW_DATA && field.type == 2) {
      *raw = field;
      *has_raw = true;
    } else {
      rest += (size_t)(wire.at - field.start);
    }
  }
  if (!*has_raw) return CUVIL_OK;
  uint8_t *stripped = cuvil_arena_alloc(arena, rest);
  if (stripped == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %zu bytes", rest);
  wire.at = *bytes;
  size_t used = 0;
  for (;;) {
    CUVIL_TRY(cuvil_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == RAW_DATA && field.type == 2) continue;
    size_t n = (size_t)(wire.at - field.start);
    memcpy(stripped + used, field.start, n);
    used += n;
  }
  *bytes = stripped;
  *size = used;
  return CUVIL_OK;
}

static enum cuvil_status tensor_type(const Onnx__TensorProto *proto,
                                     struct cuvil_tensor_data *out,
                                     int64_t *out_count) {
  CUVIL_TRY(cuvil_onnx_dtype(proto->data_type, &out->dtype));
  if (proto->n_dims > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "rank %zu; at most %d is supported", proto->n_dims,
                      CUVIL_GRAPH_MAX_RANK);
  if (proto->segment != NULL)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "tensors in segments are not supported");
  out->rank = (int)proto->n_dims;
  int64_t product = (int64_t)cuvil_dtype_size(out->dtype);
  bool empty = false;
  for (int i = 0; i < out->rank; i++) {
    out->dims[i] = proto->dims[i];
    if (proto->dims[i] < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "dimension %d is negative (%lld)",
                        i, (long long)proto->dims[i]);
    empty |= proto->dims[i] == 0;
    if (proto->dims[i] > 0 &&
        (__builtin_mul_overflow(product, proto->dims[i], &product) ||
         product > (int64_t)1 << 42))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "its dimensions are too large (more than 4 TiB)");
  }
  *out_count = empty ? 0 : product / (int64_t)cuvil_dtype_size(out->dtype);
  return CUVIL_OK;
}

static enum cuvil_status wrong_size(const char *what, size_t have,
                                    int64_t count, enum cuvil_dtype dtype) {
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "its %s holds %zu bytes, its dimensions need %lld (%lld "
                    "of %s)",
                    what, have,
                    (long long)(count * (int64_t)cuvil_dtype_size(dtype)),
                    (long long)count, cuvil_dtype_name(dtype));
}

/* Points to `bytes` where they are aligned and stay, copies them elsewhere. */
static enum cuvil_status keep(const uint8_t *bytes, size_t size, bool mapped,
                              struct cuvil_arena *store,
                              struct cuvil_tensor_data *out) {
  if (mapped && (uintptr_t)bytes % cuvil_dtype_size(out->dtype) == 0) {
    out->data = bytes;
    return CUVIL_OK;
  }
  void *copy = cuvil_arena_alloc(store, size);
  if (copy == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %zu bytes", size);
  if (size > 0) memcpy(copy, bytes, size);
  out->data = copy;
  out->owned = true;
  return CUVIL_OK;
}

static bool parse_offset(const char *text, uint64_t *out) {
  if (text[0] < '0' || text[0] > '9') return false;
  char *end;
  *out = strtoull(text, &end, 10);
  return *end == '\0' && *out < (uint64_t)1 << 62;
}

static enum cuvil_status external_data(struct cuvil_import *import,
                                       const Onnx__TensorProto *proto,
                                       int64_t count,
                                       struct cuvil_tensor_data *out) {
  if (import == NULL)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "external data is only read with a model");
  const char *location = "";
  uint64_t offset = 0, length = 0;
  bool has_length = false;
  for (size_t i = 0; i < proto->n_external_data; i++) {
    const Onnx__StringStringEntryProto *entry = proto->external_data[i];
    if (entry->key == NULL || entry->value == NULL) continue;
    bool good = true;
    if (strcmp(entry->key, "location") == 0)
      location = entry->value;
    else if (strcmp(entry->key, "offset") == 0)
      good = parse_offset(entry->value, &offset);
    else if (strcmp(entry->key, "length") == 0)
      has_length = good = parse_offset(entry->value, &length);
    if (!good)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "the %s of its external data is not a number",
                        entry->key);
  }
  const struct cuvil_mapping *file;
  CUVIL_TRY(
      cuvil_import_map_external(import->owner, import->path, location, &file));
  uint64_t need = (uint64_t)count * cuvil_dtype_size(out->dtype);
  if (has_length && length != need)
    return wrong_size("external data", (size_t)length, count, out->dtype);
  if (offset > file->size || need > file->size - offset) {
    char shown[161];
    cuvil_text_clean(location, shown, sizeof shown);
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its external data (offset %llu, %llu bytes) goes past "
                      "the end of \"%s\" (%zu bytes)",
                      (unsigned long long)offset, (unsigned long long)need,
                      shown, file->size);
  }
  return keep(file->bytes + offset, (size_t)need, true, &import->graph->arena,
              out);
}

/* Data in a typed field. */
static enum cuvil_status typed_data(const Onnx__TensorProto *proto,
                                    int64_t count, struct cuvil_arena *store,
                                    struct cuvil_tensor_data *out) {
  size_t have = 0;
  switch (out->dtype) {
    case CUVIL_F32:
      have = proto->n_float_data;
      break;
    case CUVIL_F64:
      have = proto->n_double_data;
      break;
    case CUVIL_I64:
      have = proto->n_int64_data;
      break;
    default:
      have = proto->n_int32_data;
      break;
  }
  size_t size = cuvil_dtype_size(out->dtype);
  if (have != (size_t)count)
    return wrong_size("data", have * size, count, out->dtype);
  uint8_t *data = cuvil_arena_alloc(store, have * size);
  if (data == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %zu bytes",
                      have * size);
  out->data = data;
  out->owned = true;
  if (have == 0) return CUVIL_OK;
  if (out->dtype == CUVIL_F32) {
    memcpy(data, proto->float_data, have * size);
  } else if (out->dtype == CUVIL_F64) {
    memcpy(data, proto->double_data, have * size);
  } else if (out->dtype == CUVIL_I64) {
    memcpy(data, proto->int64_data, have * size);
  } else {
    /* One entry per element, its low bytes: also the bits of f16 and bf16. */
    for (size_t i = 0; i < have; i++)
      memcpy(data + i * size, &proto->int32_data[i], size);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_import_tensor(struct cuvil_import *import,
                                      const uint8_t *bytes, size_t size,
                                      bool mapped, struct cuvil_arena *store,
                                      struct cuvil_tensor_data *out) {
  memset(out, 0, sizeof *out);
  out->name = "";
  struct cuvil_arena scratch = {0};
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_wire_field raw = {0};
  bool has_raw;
  void *message;
  int64_t count = 0;
  CUVIL_TRY_GOTO(take_raw(&bytes, &size, &scratch, &raw, &has_raw));
  CUVIL_TRY_GOTO(cuvil_wire_unpack(&onnx__tensor_proto__descriptor, bytes, size,
                                   &scratch, &message));
  const Onnx__TensorProto *proto = message;
  if (proto->name != NULL) {
    out->name = cuvil_arena_strdup(store, proto->name);
    if (out->name == NULL) {
      out->name = "";
      status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a name");
      goto fail;
    }
  }
  CUVIL_TRY_GOTO(tensor_type(proto, out, &count));
  if (proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
    CUVIL_TRY_GOTO(external_data(import, proto, count, out));
  } else if (has_raw && (raw.size > 0 || count == 0)) {
    if (raw.size != (size_t)count * cuvil_dtype_size(out->dtype)) {
      status = wrong_size("data", raw.size, count, out->dtype);
      goto fail;
    }
    CUVIL_TRY_GOTO(keep(raw.bytes, raw.size, mapped, store, out));
  } else {
    CUVIL_TRY_GOTO(typed_data(proto, count, store, out));
  }
fail:
  cuvil_arena_free(&scratch);
  return status;
}
