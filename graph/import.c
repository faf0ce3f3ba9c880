/* From a file to a graph: map, read the model's header, read the graph, then
 * the passes of cuvil_graph_finish.
 *
 * The file is believed in nothing.  Every length is held against what is left,
 * every recursion and allocation has a bound, and every refusal is one line
 * that names the file and, where there is one, the node.
 */
#include "graph/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"
#include "onnx.pb-c.h"

/* Field numbers of ModelProto. */
enum { M_IR_VERSION = 1, M_PRODUCER = 2, M_GRAPH = 7, M_OPSET = 8 };

static enum cuvil_status in_file(const char *path, enum cuvil_status status) {
  if (status == CUVIL_OK) return CUVIL_OK;
  return CUVIL_FAIL(status, "%s: %s", path, cuvil_error_last()->message);
}

static enum cuvil_status add_opset(struct cuvil_import *import,
                                   const struct cuvil_wire_field *field) {
  struct cuvil_arena scratch = {0};
  enum cuvil_status status = CUVIL_OK;
  void *message;
  CUVIL_TRY_GOTO(cuvil_wire_unpack(&onnx__operator_set_id_proto__descriptor,
                                   field->bytes, field->size, &scratch,
                                   &message));
  const Onnx__OperatorSetIdProto *opset = message;
  const char *domain = opset->domain != NULL ? opset->domain : "";
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  if (opset->version < 1 || opset->version > 1 << 20) {
    status = CUVIL_FAIL(CU_ERR_MODEL_INVALID, "opset version %lld",
                        (long long)opset->version);
    goto fail;
  }
  if (import->opset_count == CUVIL_MAX_DOMAINS) {
    status = CUVIL_FAIL(CU_ERR_MODEL_INVALID, "more than %d operator domains",
                        CUVIL_MAX_DOMAINS);
    goto fail;
  }
  struct cuvil_opset *out = &import->opsets[import->opset_count];
  out->domain = cuvil_arena_strdup(&import->arena, domain);
  out->version = (int)opset->version;
  if (out->domain == NULL) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a domain");
    goto fail;
  }
  import->opset_count++;
  if (domain[0] == '\0') import->graph->opset = out->version;
fail:
  cuvil_arena_free(&scratch);
  return status;
}

/* Everything of the model but its graph, whose place is returned. */
static enum cuvil_status read_header(struct cuvil_import *import,
                                     const struct cuvil_mapping *file,
                                     struct cuvil_wire_field *out_graph) {
  struct cuvil_wire wire = {file->bytes, file->bytes + file->size};
  struct cuvil_wire_field field;
  bool more, has_graph = false;
  for (;;) {
    CUVIL_TRY(cuvil_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == M_IR_VERSION && field.type == 0)
      import->ir_version = (int64_t)field.value;
    if (field.type != 2) continue;
    if (field.number == M_OPSET) CUVIL_TRY(add_opset(import, &field));
    if (field.number == M_PRODUCER) {
      import->graph->producer = cuvil_arena_strndup(
          &import->graph->arena, (const char *)field.bytes, field.size);
      if (import->graph->producer == NULL)
        return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a name");
    }
    if (field.number == M_GRAPH) {
      if (has_graph) return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "two graphs");
      has_graph = true;
      *out_graph = field;
    }
  }
  if (!has_graph)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "not an ONNX model: it holds no graph");
  if (import->ir_version < 1 || import->ir_version > 1000)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "not an ONNX model: it states no IR version");
  if (import->ir_version < 3)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "IR version %lld is older than 3; convert the model "
                      "with a current ONNX",
                      (long long)import->ir_version);
  return CUVIL_OK;
}

static enum cuvil_status read_model(struct cuvil_import *import) {
  const struct cuvil_mapping *file;
  struct cuvil_wire_field graph = {0};
  CUVIL_TRY(cuvil_import_map(import->owner, import->path, &file));
  CUVIL_TRY(in_file(import->path, read_header(import, file, &graph)));
  CUVIL_TRY(cuvil_import_graph(import, graph.bytes, graph.size));
  struct cuvil_graph *g = import->graph;
  if (g->output_count == 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%s: its graph has no output",
                      import->path);
  CUVIL_TRY(cuvil_import_shapes_check(g, import->shapes));
  g->model_node_count = g->node_count;
  return cuvil_graph_finish(g);
}

enum cuvil_status cuvil_graph_import(const char *path,
                                     const struct cuvil_import_options *options,
                                     struct cuvil_graph **out) {
  *out = NULL;
  cuvil_refusals_clear();
  struct cuvil_import import = {.shapes =
                                    options != NULL ? options->shapes : NULL};
  struct cuvil_graph *graph;
  CUVIL_TRY(cuvil_graph_create(&graph));
  enum cuvil_status status = CUVIL_OK;
  import.graph = graph;
  import.owner = calloc(1, sizeof *import.owner);
  graph->owner = import.owner;
  import.path = graph->path = cuvil_arena_strdup(&graph->arena, path);
  if (import.owner == NULL || import.path == NULL) {
    graph->path = "";
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to read %s", path);
    goto fail;
  }
  CUVIL_TRY_GOTO(read_model(&import));
  cuvil_import_unload(import.owner);
  *out = graph;
fail:
  cuvil_arena_free(&import.arena);
  if (status != CUVIL_OK) cuvil_graph_destroy(graph);
  return status;
}
