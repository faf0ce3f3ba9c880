/* Protocol buffers' wire format, by hand where the generated code would copy
 * too much or trust too much.
 *
 * The outer messages (model, graph, tensors' large fields) are walked here
 * field by field; everything small is unpacked by protobuf-c, after a check of
 * its nesting (the library recurses without a limit) and with an allocator
 * that has an end.  (Encoding: protobuf.dev/programming-guides/encoding.)
 */
#include <stdlib.h>
#include <string.h>

#include "graph/import.h"
#include "onnx.pb-c.h"

#define DAMAGED(what) CUVIL_FAIL(CU_ERR_MODEL_INVALID, what)
#define MAX_NESTING 32
/* A packed varint of one byte becomes eight; a field of two bytes can become
 * a message structure of a hundred or two. */
#define MEMORY_FACTOR 24
#define MEMORY_BASE ((size_t)1 << 20)

static bool read_varint(struct cuvil_wire *wire, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (wire->at == wire->end) return false;
    uint8_t byte = *wire->at++;
    if (shift < 64) *out |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

enum cuvil_status cuvil_wire_next(struct cuvil_wire *wire,
                                  struct cuvil_wire_field *out,
                                  bool *out_more) {
  *out_more = false;
  if (wire->at == wire->end) return CUVIL_OK;
  *out = (struct cuvil_wire_field){.start = wire->at};
  uint64_t tag, size;
  if (!read_varint(wire, &tag) || tag >> 3 == 0 || tag >> 32 != 0)
    return DAMAGED("damaged or not an ONNX file: bad field tag");
  out->number = (uint32_t)(tag >> 3);
  out->type = (unsigned)(tag & 7);
  size_t left = (size_t)(wire->end - wire->at);
  switch (out->type) {
    case 0:
      if (!read_varint(wire, &out->value))
        return DAMAGED("truncated inside a number");
      break;
    case 1:
    case 5: {
      size_t width = out->type == 1 ? 8 : 4;
      if (left < width) return DAMAGED("truncated inside a number");
      memcpy(&out->value, wire->at, width);
      wire->at += width;
      break;
    }
    case 2:
      if (!read_varint(wire, &size))
        return DAMAGED("truncated inside a length");
      left = (size_t)(wire->end - wire->at);
      if (size > left)
        return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                          "truncated or damaged: a field of %llu bytes where "
                          "%zu are left",
                          (unsigned long long)size, left);
      out->bytes = wire->at;
      out->size = (size_t)size;
      wire->at += size;
      break;
    default:
      return DAMAGED("damaged or not an ONNX file: bad wire type");
  }
  *out_more = true;
  return CUVIL_OK;
}

static enum cuvil_status check_nesting(const ProtobufCMessageDescriptor *type,
                                       const uint8_t *bytes, size_t size,
                                       int depth) {
  if (depth > MAX_NESTING)
    return DAMAGED("messages are nested more than 32 deep");
  struct cuvil_wire wire = {bytes, bytes + size};
  struct cuvil_wire_field field;
  bool more;
  for (;;) {
    CUVIL_TRY(cuvil_wire_next(&wire, &field, &more));
    if (!more) return CUVIL_OK;
    const ProtobufCFieldDescriptor *known =
        protobuf_c_message_descriptor_get_field(type, field.number);
    if (known == NULL || field.type != 2 ||
        known->type != PROTOBUF_C_TYPE_MESSAGE)
      continue;
    CUVIL_TRY(
        check_nesting(known->descriptor, field.bytes, field.size, depth + 1));
  }
}

/* Everything goes into an arena that the caller frees whole, so a failing
 * unpack cannot leak. */
struct bounded {
  struct cuvil_arena *arena;
  size_t left;
  bool hit;
};

static void *bounded_alloc(void *data, size_t size) {
  struct bounded *bounded = data;
  if (size > bounded->left) {
    bounded->hit = true;
    return NULL;
  }
  bounded->left -= size;
  return cuvil_arena_alloc(bounded->arena, size);
}

static void bounded_free(void *data, void *pointer) {
  (void)data;
  (void)pointer;
}

enum cuvil_status cuvil_wire_unpack(const ProtobufCMessageDescriptor *type,
                                    const uint8_t *bytes, size_t size,
                                    struct cuvil_arena *arena, void **out) {
  *out = NULL;
  CUVIL_TRY(check_nesting(type, bytes, size, 0));
  struct bounded bounded = {
      .arena = arena,
      .left = size > SIZE_MAX / MEMORY_FACTOR - MEMORY_BASE
                  ? SIZE_MAX
                  : MEMORY_BASE + size * MEMORY_FACTOR};
  ProtobufCAllocator allocator = {
      .alloc = bounded_alloc, .free = bounded_free, .allocator_data = &bounded};
  *out = protobuf_c_message_unpack(type, &allocator, size, bytes);
  if (*out != NULL) return CUVIL_OK;
  if (bounded.hit)
    return DAMAGED("damaged: a message needs far more memory than its size");
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "damaged: not a valid %s message",
                    type->short_name);
}
