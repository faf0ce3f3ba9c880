/* Nodes and their attributes. */
#include <stdio.h>
#include <string.h>

#include "graph/import.h"
#include "graph/ops.h"
#include "onnx.pb-c.h"

#define MAX_ATTRIBUTES 256
#define MAX_EDGES 65536
#define MAX_NODES (1 << 20)

static const char *text(const char *s) {
  return s != NULL ? s : "";
}

/* Tensors inside nodes are small or rare; the unpacked one is packed again so
 * that one reader serves all. */
static enum cuvil_status tensor_attribute(struct cuvil_import *import,
                                          const Onnx__TensorProto *proto,
                                          int *out_value) {
  size_t size = onnx__tensor_proto__get_packed_size(proto);
  struct cuvil_arena scratch = {0};
  enum cuvil_status status = CUVIL_OK;
  uint8_t *bytes = cuvil_arena_alloc(&scratch, size);
  struct cuvil_tensor_data tensor;
  if (bytes == NULL) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %zu bytes", size);
    goto fail;
  }
  onnx__tensor_proto__pack(proto, bytes);
  CUVIL_TRY_GOTO(cuvil_import_tensor(import, bytes, size, false,
                                     &import->graph->arena, &tensor));
  CUVIL_TRY_GOTO(cuvil_graph_add_value(import->graph, tensor.name, tensor.dtype,
                                       tensor.rank, tensor.dims, tensor.data,
                                       out_value));
fail:
  cuvil_arena_free(&scratch);
  return status;
}

/* Models of IR version 1 leave the type out. */
static int attribute_type(const Onnx__AttributeProto *a) {
  if (a->has_type && a->type != 0) return a->type;
  if (a->has_f) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
  if (a->has_i) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  if (a->has_s) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
  if (a->t != NULL) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
  if (a->n_floats > 0) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
  if (a->n_ints > 0) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED;
}

static enum cuvil_status add_attribute(struct cuvil_import *import, int node,
                                       const Onnx__AttributeProto *a) {
  struct cuvil_attribute out = {.name = text(a->name),
                                .kind = CUVIL_ATTR_OTHER};
  char string[257] = "";
  switch (attribute_type(a)) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
      out.kind = CUVIL_ATTR_FLOAT;
      out.f = a->f;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
      out.kind = CUVIL_ATTR_INT;
      out.i = a->i;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
      /* Modes and the like; what is longer matches none of them anyway. */
      out.kind = CUVIL_ATTR_STRING;
      if (a->s.len > 0)
        memcpy(string, a->s.data,
               a->s.len < sizeof string ? a->s.len : sizeof string - 1);
      out.s = string;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
      out.kind = CUVIL_ATTR_INTS;
      if (a->n_ints > INT32_MAX) break;
      out.count = (int)a->n_ints;
      out.ints = a->ints;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
      out.kind = CUVIL_ATTR_FLOATS;
      if (a->n_floats > INT32_MAX) break;
      out.count = (int)a->n_floats;
      out.floats = a->floats;
      break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR: {
      char name[61];
      cuvil_text_clean(out.name, name, sizeof name);
      if (a->t == NULL)
        return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                          "attribute \"%s\" has no tensor", name);
      enum cuvil_status status = tensor_attribute(import, a->t, &out.tensor);
      /* A type that is not there may stand where no operator looks. */
      if (status != CU_ERR_MODEL_UNSUPPORTED) CUVIL_TRY(status);
      out.kind = status == CUVIL_OK ? CUVIL_ATTR_TENSOR : CUVIL_ATTR_OTHER;
      break;
    }
    default:
      break;
  }
  return cuvil_graph_set_attribute(import->graph, node, &out);
}

/* ai.onnx is the empty domain; any other must be declared, too. */
static enum cuvil_status find_opset(const struct cuvil_import *import,
                                    const char *domain, int *out_version) {
  for (int i = 0; i < import->opset_count; i++)
    if (strcmp(import->opsets[i].domain, domain) == 0) {
      *out_version = import->opsets[i].version;
      return CUVIL_OK;
    }
  char name[61];
  cuvil_text_clean(domain[0] != '\0' ? domain : "ai.onnx", name, sizeof name);
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "the model declares no opset for domain %s", name);
}

static enum cuvil_status edges(struct cuvil_import *import, size_t count,
                               char **names, struct cuvil_arena *arena,
                               int **out) {
  *out = cuvil_arena_array(arena, count + 1, sizeof **out);
  if (*out == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  for (size_t i = 0; i < count; i++) {
    (*out)[i] = -1;
    if (text(names[i])[0] != '\0')
      CUVIL_TRY(cuvil_import_value(import, names[i], &(*out)[i]));
  }
  return CUVIL_OK;
}

static enum cuvil_status add_node(struct cuvil_import *import,
                                  const Onnx__NodeProto *proto,
                                  struct cuvil_arena *scratch) {
  struct cuvil_graph *graph = import->graph;
  int *inputs, *outputs, at;
  char name[81];
  cuvil_text_clean(text(proto->name), name, sizeof name);
  if (graph->node_count >= MAX_NODES || proto->n_input > MAX_EDGES ||
      proto->n_output > MAX_EDGES || proto->n_attribute > MAX_ATTRIBUTES)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "%s: node \"%s\": more nodes, inputs, outputs or "
                      "attributes than any model has",
                      import->path, name);
  CUVIL_TRY(edges(import, proto->n_input, proto->input, scratch, &inputs));
  CUVIL_TRY(edges(import, proto->n_output, proto->output, scratch, &outputs));
  const char *domain = text(proto->domain);
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  CUVIL_TRY(cuvil_graph_add_node(graph, text(proto->name), text(proto->op_type),
                                 (int)proto->n_input, inputs,
                                 (int)proto->n_output, outputs, &at));
  struct cuvil_node *node = &graph->nodes[at];
  node->domain = cuvil_arena_strdup(&graph->arena, domain);
  if (node->domain == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a node");
  CUVIL_TRY(cuvil_node_context(graph, node,
                               find_opset(import, domain, &node->opset)));
  for (size_t i = 0; i < proto->n_attribute; i++)
    CUVIL_TRY(
        cuvil_node_context(graph, &graph->nodes[at],
                           add_attribute(import, at, proto->attribute[i])));
  return CUVIL_OK;
}

enum cuvil_status cuvil_import_node(struct cuvil_import *import,
                                    const uint8_t *bytes, size_t size) {
  struct cuvil_arena scratch = {0};
  enum cuvil_status status = CUVIL_OK;
  void *message;
  status = cuvil_wire_unpack(&onnx__node_proto__descriptor, bytes, size,
                             &scratch, &message);
  if (status != CUVIL_OK) {
    status = CUVIL_FAIL(status, "%s: node #%d: %s", import->path,
                        import->graph->node_count, cuvil_error_last()->message);
    goto fail;
  }
  status = add_node(import, message, &scratch);
fail:
  cuvil_arena_free(&scratch);
  return status;
}
