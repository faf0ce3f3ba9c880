/* Types, shapes and constants, in one walk over the ordered nodes.
 *
 * Inference and folding go together: the shape of a Reshape is the value of a
 * chain of small integer nodes that starts at a Shape, whose input's shape was
 * inferred just before.  A node whose inputs are all constant is evaluated by
 * the same code that the executor runs, and is gone; a Shape needs no constant
 * input, only a known shape.
 */
#include <string.h>

#include "graph/ops.h"
#include "graph/parallel.h"
#include "graph/passes.h"

/* No tensor of a model that can be run has more elements; below it, element
 * and byte counts cannot overflow anywhere. */
#define MAX_ELEMENTS ((int64_t)1 << 40)
/* What constants may fold to, counted as they are held on the way: so much, for
 * masks and positions, and four times what the model's own constants take.
 * More from a small file is an attack or a mistake. */
#define FOLDED_BASE ((int64_t)128 << 20)
#define FOLDED_SHARE 4

static enum cuvil_status set_type(struct cuvil_value *value,
                                  const struct cuvil_type *type) {
  int64_t elements = 1;
  for (int i = 0; i < type->rank; i++) {
    int64_t extent = type->dims[i];
    if (extent < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "dimension %d of the result is %lld", i,
                        (long long)extent);
    /* A zero elsewhere must not hide an overflow. */
    if (extent > MAX_ELEMENTS ||
        (extent > 0 && elements > MAX_ELEMENTS / extent))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "the result has more than 2^40 elements");
    if (extent > 0) elements *= extent;
  }
  if (value->dtype != CUVIL_DTYPE_NONE && value->dtype != type->dtype)
    return CUVIL_FAIL(
        CU_ERR_MODEL_INVALID, "the model declares its result as %s, it is %s",
        cuvil_dtype_name(value->dtype), cuvil_dtype_name(type->dtype));
  value->dtype = type->dtype;
  value->rank = type->rank;
  memcpy(value->dims, type->dims, sizeof value->dims);
  return CUVIL_OK;
}

static bool inputs_known(const struct cuvil_graph *graph,
                         const struct cuvil_node *node) {
  for (int i = 0; i < node->input_count; i++)
    if (node->inputs[i] >= 0 && graph->values[node->inputs[i]].rank < 0)
      return false;
  return true;
}

static bool inputs_constant(const struct cuvil_graph *graph,
                            const struct cuvil_node *node) {
  for (int i = 0; i < node->input_count; i++)
    if (node->inputs[i] >= 0 && graph->values[node->inputs[i]].data == NULL)
      return false;
  return true;
}

static enum cuvil_status infer_node(struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    const struct cuvil_op *op) {
  struct cuvil_type types[CUVIL_OP_MAX_OUTPUTS] = {{0}};
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  if ((op->flags & CUVIL_OP_FLOAT) && !cuvil_dtype_is_float(x->dtype))
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED, "input of type %s",
                      cuvil_dtype_name(x->dtype));
  CUVIL_TRY(op->infer(graph, node, types));
  for (int i = 0; i < node->output_count; i++)
    if (node->outputs[i] >= 0)
      CUVIL_TRY(set_type(&graph->values[node->outputs[i]], &types[i]));
  return CUVIL_OK;
}

/* As a host tensor. */
static int64_t held_bytes(const struct cuvil_value *value) {
  int64_t size = cuvil_dtype_is_float(value->dtype) ? 4 : 8;
  return cuvil_value_elements(value) * size;
}

static int64_t folding_budget(const struct cuvil_graph *graph) {
  int64_t budget = FOLDED_BASE;
  for (int v = 0; v < graph->value_count; v++)
    if (graph->values[v].data != NULL)
      budget += FOLDED_SHARE * held_bytes(&graph->values[v]);
  return budget;
}

/* Memory for the constants that the outputs become; data[i] is NULL where an
 * output is absent. */
static enum cuvil_status reserve(struct cuvil_graph *graph,
                                 const struct cuvil_node *node, int64_t *left,
                                 void **data) {
  for (int i = 0; i < node->output_count; i++) {
    if (node->outputs[i] < 0) continue;
    const struct cuvil_value *out = &graph->values[node->outputs[i]];
    size_t bytes =
        (size_t)cuvil_value_elements(out) * cuvil_dtype_size(out->dtype);
    *left -= held_bytes(out);
    if (*left < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "the model's constants fold to more than 128 MiB and "
                        "%d times their size; compute a large constant outside "
                        "the model and store it",
                        FOLDED_SHARE);
    data[i] = cuvil_arena_alloc(&graph->arena, bytes);
    if (data[i] == NULL)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                        "no memory for a constant of %zu bytes", bytes);
  }
  return CUVIL_OK;
}

/* Evaluates a node of constants; its outputs become constants. */
static enum cuvil_status evaluate(struct cuvil_graph *graph,
                                  const struct cuvil_node *node,
                                  int64_t *left) {
  struct cuvil_arena scratch = {0};
  size_t n = (size_t)node->input_count;
  struct cuvil_host_tensor *views =
      cuvil_arena_array(&scratch, n + 1, sizeof *views);
  const struct cuvil_host_tensor **inputs =
      cuvil_arena_array(&scratch, n + 1, sizeof *inputs);
  struct cuvil_host_tensor results[CUVIL_OP_MAX_OUTPUTS] = {{0}};
  void *data[CUVIL_OP_MAX_OUTPUTS] = {NULL};
  enum cuvil_status status = CUVIL_OK;
  if (views == NULL || inputs == NULL) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to fold a node");
    goto fail;
  }
  CUVIL_TRY_GOTO(reserve(graph, node, left, data));
  for (size_t i = 0; i < n; i++) {
    const struct cuvil_value *value = cuvil_op_input(graph, node, (int)i);
    if (value == NULL) continue;
    inputs[i] = &views[i];
    if (value->data == NULL) { /* Shape: only the dimensions are looked at */
      views[i] =
          (struct cuvil_host_tensor){.rank = value->rank, .borrowed = true};
      memcpy(views[i].dims, value->dims, sizeof value->dims);
      continue;
    }
    CUVIL_TRY_GOTO(cuvil_host_view(value, value->data, &views[i]));
  }
  CUVIL_TRY_GOTO(
      cuvil_node_execute(graph, node, inputs, results, cuvil_cpu_count()));
  for (int i = 0; i < node->output_count; i++) {
    if (node->outputs[i] < 0) continue;
    struct cuvil_value *out = &graph->values[node->outputs[i]];
    cuvil_host_store(&results[i], out->dtype, data[i]);
    out->data = data[i];
    out->owned = true;
  }
fail:
  for (int i = 0; i < CUVIL_OP_MAX_OUTPUTS; i++)
    cuvil_host_destroy(&results[i]);
  for (size_t i = 0; views != NULL && i < n; i++)
    cuvil_host_destroy(&views[i]);
  cuvil_arena_free(&scratch);
  return status;
}

static enum cuvil_status fold_node(struct cuvil_graph *graph,
                                   struct cuvil_node *node,
                                   const struct cuvil_op *op, int64_t *left) {
  bool shape = strcmp(node->op, "Shape") == 0 || strcmp(node->op, "Size") == 0;
  if (!(op->flags & CUVIL_OP_FOLD)) return CUVIL_OK;
  if (!shape && !inputs_constant(graph, node)) return CUVIL_OK;
  struct cuvil_value *out = &graph->values[node->outputs[0]];
  if (op->flags & CUVIL_OP_VIEW) {
    struct cuvil_value *in = &graph->values[node->inputs[0]];
    out->data = in->data;
    in->owned = out->owned = false; /* two values, one memory */
  } else if (strcmp(node->op, "Constant") == 0 &&
             node->attributes[0].kind == CUVIL_ATTR_TENSOR) {
    out->data = graph->values[node->attributes[0].tensor].data;
  } else {
    CUVIL_TRY(evaluate(graph, node, left));
  }
  node->removed = true;
  return CUVIL_OK;
}

/* Host tensors hold fp32: good enough for a constant that is on its way to a
 * Cast, not for data. */
static bool touches_double(const struct cuvil_graph *graph,
                           const struct cuvil_node *node) {
  for (int i = 0; i < node->input_count; i++)
    if (node->inputs[i] >= 0 &&
        graph->values[node->inputs[i]].dtype == CUVIL_F64)
      return true;
  for (int i = 0; i < node->output_count; i++)
    if (node->outputs[i] >= 0 &&
        graph->values[node->outputs[i]].dtype == CUVIL_F64)
      return true;
  return false;
}

enum cuvil_status cuvil_graph_infer(struct cuvil_graph *graph,
                                    struct cuvil_refusals *refusals) {
  int64_t left = folding_budget(graph);
  for (int n = 0; n < graph->node_count; n++) {
    struct cuvil_node *node = &graph->nodes[n];
    /* What depends on a refused node cannot be judged. */
    if (node->removed || !inputs_known(graph, node)) continue;
    const struct cuvil_op *op = cuvil_op_find(node->op);
    CUVIL_CHECK(op != NULL);
    enum cuvil_status status = infer_node(graph, node, op);
    if (status == CU_ERR_MODEL_UNSUPPORTED) {
      char reason[200];
      cuvil_text_clean(cuvil_error_last()->message, reason, sizeof reason);
      CUVIL_TRY(cuvil_refuse(graph, refusals, node, reason));
      continue;
    }
    CUVIL_TRY(cuvil_node_context(graph, node, status));
    CUVIL_TRY(
        cuvil_node_context(graph, node, fold_node(graph, node, op, &left)));
    if (!node->removed && touches_double(graph, node))
      CUVIL_TRY(cuvil_refuse(graph, refusals, node,
                             "it computes in double precision"));
  }
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_finish(struct cuvil_graph *graph) {
  struct cuvil_refusals refusals = {0};
  cuvil_refusals_clear();
  CUVIL_TRY(cuvil_graph_check_links(graph));
  CUVIL_TRY(cuvil_graph_sort(graph));
  CUVIL_TRY(cuvil_graph_check_nodes(graph, &refusals));
  CUVIL_TRY(cuvil_graph_infer(graph, &refusals));
  CUVIL_TRY(cuvil_refusals_report(graph, &refusals));
  return cuvil_graph_simplify(graph);
}
