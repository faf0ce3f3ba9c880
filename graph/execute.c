/* The executor: nodes in order, each by its row of the operator table, every
 * intermediate freed after its last user.
 */
#include "graph/execute.h"

#include <stdlib.h>

#include "graph/ops.h"
#include "graph/parallel.h"
#include "graph/passes.h"

enum cuvil_status cuvil_node_execute(
    const struct cuvil_graph *graph, const struct cuvil_node *node,
    const struct cuvil_host_tensor *const *inputs,
    struct cuvil_host_tensor *outputs, int threads) {
  const struct cuvil_op *op = cuvil_op_find(node->op);
  CUVIL_CHECK(op != NULL);
  for (int i = 0; i < node->output_count; i++) {
    if (node->outputs[i] < 0) continue;
    const struct cuvil_value *value = &graph->values[node->outputs[i]];
    CUVIL_TRY(cuvil_host_create(!cuvil_dtype_is_float(value->dtype),
                                value->rank, value->dims, &outputs[i]));
  }
  struct cuvil_op_call call = {.graph = graph,
                               .node = node,
                               .inputs = inputs,
                               .outputs = outputs,
                               .threads = threads};
  return op->execute(&call);
}

/* One run.  tensors[v] holds value v while it is alive; constants are viewed
 * for the length of one node. */
struct run {
  const struct cuvil_graph *graph;
  struct cuvil_host_tensor *tensors;
  int *users_left;
  struct cuvil_arena arena;
  int threads;
};

static void release(struct run *run, int value) {
  if (--run->users_left[value] == 0) cuvil_host_destroy(&run->tensors[value]);
}

static enum cuvil_status run_node(struct run *run,
                                  const struct cuvil_node *node) {
  const struct cuvil_graph *graph = run->graph;
  size_t n = (size_t)node->input_count;
  struct cuvil_arena scratch = {0};
  const struct cuvil_host_tensor **inputs =
      cuvil_arena_array(&scratch, n + 1, sizeof *inputs);
  struct cuvil_host_tensor outputs[CUVIL_OP_MAX_OUTPUTS] = {{0}};
  enum cuvil_status status = CUVIL_OK;
  if (inputs == NULL) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to run a node");
    goto fail;
  }
  for (size_t i = 0; i < n; i++) {
    int v = node->inputs[i];
    if (v < 0) continue;
    const struct cuvil_value *value = &graph->values[v];
    if (value->data != NULL && run->tensors[v].count == 0 &&
        run->tensors[v].f == NULL && run->tensors[v].i == NULL)
      CUVIL_TRY_GOTO(cuvil_host_view(value, value->data, &run->tensors[v]));
    inputs[i] = &run->tensors[v];
  }
  CUVIL_TRY_GOTO(
      cuvil_node_execute(graph, node, inputs, outputs, run->threads));
  for (int i = 0; i < node->output_count; i++) {
    int v = node->outputs[i];
    if (v < 0) continue;
    if (run->users_left[v] == 0)
      cuvil_host_destroy(&outputs[i]);
    else
      run->tensors[v] = outputs[i];
    outputs[i] = (struct cuvil_host_tensor){0};
  }
  for (size_t i = 0; i < n; i++)
    if (node->inputs[i] >= 0) release(run, node->inputs[i]);
fail:
  for (int i = 0; i < CUVIL_OP_MAX_OUTPUTS; i++)
    cuvil_host_destroy(&outputs[i]);
  cuvil_arena_free(&scratch);
  return status;
}

static enum cuvil_status store_outputs(struct run *run, void *const *outputs) {
  const struct cuvil_graph *graph = run->graph;
  for (int i = 0; i < graph->output_count; i++) {
    int v = graph->outputs[i];
    const struct cuvil_value *value = &graph->values[v];
    struct cuvil_host_tensor constant = {0};
    if (value->data != NULL)
      CUVIL_TRY(cuvil_host_view(value, value->data, &constant));
    cuvil_host_store(value->data != NULL ? &constant : &run->tensors[v],
                     value->dtype, outputs[i]);
    cuvil_host_destroy(&constant);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_execute(const struct cuvil_graph *graph,
                                      const void *const *inputs,
                                      void *const *outputs, int threads) {
  struct run run = {.graph = graph,
                    .threads = threads > 0 ? threads : cuvil_cpu_count()};
  enum cuvil_status status = CUVIL_OK;
  size_t count = (size_t)graph->value_count;
  run.tensors = cuvil_arena_array(&run.arena, count + 1, sizeof *run.tensors);
  run.users_left =
      cuvil_arena_array(&run.arena, count + 1, sizeof *run.users_left);
  if (run.tensors == NULL || run.users_left == NULL) {
    status =
        CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to run %s", graph->path);
    count = 0;
    goto fail;
  }
  for (int v = 0; v < graph->value_count; v++)
    run.users_left[v] = graph->values[v].user_count;
  for (int i = 0; i < graph->input_count; i++) {
    int v = graph->inputs[i];
    CUVIL_TRY_GOTO(
        cuvil_host_view(&graph->values[v], inputs[i], &run.tensors[v]));
  }
  for (int n = 0; n < graph->node_count; n++)
    if (!graph->nodes[n].removed)
      CUVIL_TRY_GOTO(cuvil_node_context(graph, &graph->nodes[n],
                                        run_node(&run, &graph->nodes[n])));
  CUVIL_TRY_GOTO(store_outputs(&run, outputs));
fail:
  for (size_t v = 0; v < count; v++)
    cuvil_host_destroy(&run.tensors[v]);
  cuvil_arena_free(&run.arena);
  return status;
}
