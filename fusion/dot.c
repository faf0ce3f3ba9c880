/* dot.c - a fused graph as a picture: Graphviz text.
 *
 * Boxes are kernels (conversions dashed), ovals are the graph's inputs and
 * outputs, edges are tensors with their type and physical shape.  Weights are
 * left out: they would hide the flow.
 */
#include <stdlib.h>

#include "fusion/fusion.h"

static void put_quoted(struct cuvil_buf *out, const char *text) {
  for (const char *p = text; *p; ++p) {
    if (*p == '"' || *p == '\\') cuvil_buf_puts(out, "\\");
    cuvil_buf_add(out, p, 1);
  }
}

static int root_of(const struct cuvil_fused *fused, int tensor) {
  while (fused->tensors[tensor].alias >= 0)
    tensor = fused->tensors[tensor].alias;
  return tensor;
}

static void put_edge(const struct cuvil_tensor *tensor, const char *from,
                     int from_id, const char *to, int to_id,
                     struct cuvil_buf *out) {
  cuvil_buf_printf(out, "  %s%d -> %s%d [label=\"%s", from, from_id, to, to_id,
                   cuvil_dtype_name(tensor->dtype));
  for (int i = 0; i < tensor->rank; ++i)
    cuvil_buf_printf(out, "%s%lld", i ? "x" : " ", (long long)tensor->dims[i]);
  cuvil_buf_puts(out, "\"];\n");
}

static void put_task(const struct cuvil_fused *fused, int index,
                     int *written_by, struct cuvil_buf *out) {
  const struct cuvil_task *task = &fused->tasks[index];
  const struct cuvil_problem *problem = &task->problem;
  cuvil_buf_printf(out, "  t%d [shape=box%s, label=\"", index,
                   task->conversion ? ", style=dashed" : "");
  put_quoted(out, task->label);
  cuvil_buf_printf(out, "\\n%s\"];\n", cuvil_kind_name(problem->kind));
  for (int o = 0; o < problem->operand_count; ++o) {
    int root = root_of(fused, task->tensors[o]);
    const struct cuvil_tensor *tensor = &fused->tensors[root];
    if (problem->operands[o].role == CUVIL_ROLE_OUTPUT) {
      written_by[root] = index;
      if (tensor->kind == CUVIL_TENSOR_OUTPUT)
        put_edge(tensor, "t", index, "out", tensor->io, out);
    } else if (tensor->kind == CUVIL_TENSOR_INPUT) {
      put_edge(tensor, "in", tensor->io, "t", index, out);
    } else if (tensor->kind != CUVIL_TENSOR_WEIGHT) {
      put_edge(tensor, "t", written_by[root], "t", index, out);
    }
  }
}

enum cuvil_status cuvil_fused_dot(const struct cuvil_fused *fused,
                                  struct cuvil_buf *out) {
  const struct cuvil_graph *graph = fused->graph;
  int *written_by = calloc((size_t)fused->tensor_count + 1, sizeof(int));
  if (!written_by) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "drawing the graph");
  cuvil_buf_puts(out, "digraph fused {\n  node [fontname=\"Helvetica\"];\n");
  for (int i = 0; i < graph->input_count; ++i) {
    cuvil_buf_printf(out, "  in%d [shape=oval, label=\"", i);
    put_quoted(out, graph->values[graph->inputs[i]].name);
    cuvil_buf_puts(out, "\"];\n");
  }
  for (int i = 0; i < graph->output_count; ++i) {
    cuvil_buf_printf(out, "  out%d [shape=oval, label=\"", i);
    put_quoted(out, graph->values[graph->outputs[i]].name);
    cuvil_buf_puts(out, "\"];\n");
  }
  for (int t = 0; t < fused->task_count; ++t)
    put_task(fused, t, written_by, out);
  cuvil_buf_puts(out, "}\n");
  free(written_by);
  return cuvil_buf_status(out);
}
