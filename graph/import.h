/* import.h - the importer's parts.  Private to graph/; no protobuf types, so
 * that graph.c may include it.
 *
 * The order of things: map the file (import_file.c), walk the wire format of
 * the model and the graph (import_wire.c) so that large tensor data is never
 * copied by the protobuf library, unpack the small messages with protobuf-c
 * (import_graph.c) and tensors (import_tensor.c).
 */
#ifndef CUVIL_GRAPH_IMPORT_H_
#define CUVIL_GRAPH_IMPORT_H_

#include "graph/graph.h"

/* ---- files (import_file.c) */
struct cuvil_mapping {
  struct cuvil_mapping *next;
  char *path;
  const uint8_t *bytes;
  size_t size;
};
/* All files that a graph's constants may point into. */
struct cuvil_import_owner {
  struct cuvil_mapping *mappings;
};
CUVIL_MUST_USE enum cuvil_status cuvil_import_map(
    struct cuvil_import_owner *owner, const char *path,
    const struct cuvil_mapping **out);
/* `location` of an external tensor, next to model `path`: relative, without
 * "..", inside the model's folder also after symbolic links. */
CUVIL_MUST_USE enum cuvil_status cuvil_import_map_external(
    struct cuvil_import_owner *owner, const char *path, const char *location,
    const struct cuvil_mapping **out);
/* Gives the pages back that were read; they come again when touched. */
void cuvil_import_unload(const struct cuvil_import_owner *owner);
void cuvil_import_owner_destroy(void *owner);

/* ---- names of values (import_graph.c) */
struct cuvil_name_map {
  int capacity, count; /* capacity a power of two */
  int *slots;          /* value + 1; 0 free */
};

struct cuvil_opset {
  const char *domain;
  int version;
};
enum { CUVIL_MAX_DOMAINS = 64 };

struct cuvil_import {
  struct cuvil_graph *graph;
  struct cuvil_import_owner *owner;
  const char *path;
  const char *shapes; /* NULL: none given */
  struct cuvil_name_map names;
  struct cuvil_arena arena; /* of the names map */
  int64_t ir_version;
  int opset_count;
  struct cuvil_opset opsets[CUVIL_MAX_DOMAINS];
};

/* ---- wire format (import_wire.c) */
struct cuvil_wire {
  const uint8_t *at, *end;
};
struct cuvil_wire_field {
  uint32_t number;
  unsigned type;        /* 0 varint, 1 64-bit, 2 bytes, 5 32-bit */
  const uint8_t *start; /* of the whole field, tag included */
  const uint8_t *bytes; /* type 2 */
  size_t size;          /* type 2 */
  uint64_t value;       /* other types */
};
/* *out_more false at the end. */
CUVIL_MUST_USE enum cuvil_status cuvil_wire_next(struct cuvil_wire *wire,
                                                 struct cuvil_wire_field *out,
                                                 bool *out_more);
/* Unpacks a message with a bound on memory and nesting.  The result lives in
 * `arena` and is never freed on its own. */
struct ProtobufCMessageDescriptor;
CUVIL_MUST_USE enum cuvil_status cuvil_wire_unpack(
    const struct ProtobufCMessageDescriptor *type, const uint8_t *bytes,
    size_t size, struct cuvil_arena *arena, void **out);

/* ---- tensors (import_tensor.c) */
struct cuvil_tensor_data {
  const char *name; /* in the arena given */
  enum cuvil_dtype dtype;
  int rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  const void *data; /* aligned; in `store` or in a mapping */
  bool owned;       /* in `store` */
};
/* A serialised TensorProto.  `import` is NULL where external data is not
 * allowed; `mapped`: bytes stay as long as the result is used, so large raw
 * data may be pointed to.  Messages have no file name in them. */
CUVIL_MUST_USE enum cuvil_status cuvil_import_tensor(
    struct cuvil_import *import, const uint8_t *bytes, size_t size, bool mapped,
    struct cuvil_arena *store, struct cuvil_tensor_data *out);

/* ---- graph (import_graph.c) */
CUVIL_MUST_USE enum cuvil_status cuvil_import_graph(struct cuvil_import *import,
                                                    const uint8_t *bytes,
                                                    size_t size);
/* Value of this name, added when new. */
CUVIL_MUST_USE enum cuvil_status cuvil_import_value(struct cuvil_import *import,
                                                    const char *name, int *out);
/* ---- nodes (import_node.c) */
CUVIL_MUST_USE enum cuvil_status cuvil_import_node(struct cuvil_import *import,
                                                   const uint8_t *bytes,
                                                   size_t size);
/* ---- --shapes (import_shapes.c) */
/* Dimensions for input `name` in "in0:1x3x224x224,in1:1x128"; *out_rank -1
 * when it is not named there. */
CUVIL_MUST_USE enum cuvil_status cuvil_import_shapes_find(const char *shapes,
                                                          const char *name,
                                                          int64_t *out_dims,
                                                          int *out_rank);
/* Every name in `shapes` is an input of the graph. */
CUVIL_MUST_USE enum cuvil_status cuvil_import_shapes_check(
    const struct cuvil_graph *graph, const char *shapes);

#endif /* CUVIL_GRAPH_IMPORT_H_ */
