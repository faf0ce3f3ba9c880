/* Checks of a graph as it was read, before anything is computed from it:
 * operators against the table, references, and order.
 */
#include <stdio.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

/* Whether `name` with this kind is in a row's list "name:kind ...". */
static bool attribute_listed(const char *list, const char *name, char kind) {
  size_t n = strlen(name);
  for (const char *at = list; *at != '\0';) {
    const char *end = strchr(at, ' ');
    size_t length = end != NULL ? (size_t)(end - at) : strlen(at);
    if (length == n + 2 && memcmp(at, name, n) == 0 && at[n] == ':' &&
        at[n + 1] == kind)
      return true;
    at += length + (end != NULL);
  }
  return false;
}

static char kind_letter(enum cuvil_attribute_kind kind) {
  switch (kind) {
    case CUVIL_ATTR_INT:
      return 'i';
    case CUVIL_ATTR_FLOAT:
      return 'f';
    case CUVIL_ATTR_STRING:
      return 's';
    case CUVIL_ATTR_INTS:
      return 'I';
    case CUVIL_ATTR_FLOATS:
      return 'F';
    case CUVIL_ATTR_TENSOR:
      return 't';
    case CUVIL_ATTR_OTHER:
      break;
  }
  return '?';
}

/* Why the table does not take this node; "" when it does. */
static void find_reason(const struct cuvil_graph *graph,
                        const struct cuvil_node *node, char *reason,
                        size_t size) {
  reason[0] = '\0';
  char name[61];
  if (node->domain[0] != '\0') {
    cuvil_text_clean(node->domain, name, sizeof name);
    snprintf(reason, size, "domain \"%s\" is not known", name);
    return;
  }
  const struct cuvil_op *op = cuvil_op_find(node->op);
  if (op == NULL) {
    snprintf(reason, size, "no such operator");
    return;
  }
  if (node->opset < op->first_opset) {
    snprintf(reason, size, "opset %d is older than %d", node->opset,
             op->first_opset);
    return;
  }
  for (int i = 0; i < node->attribute_count; i++) {
    const struct cuvil_attribute *a = &node->attributes[i];
    if (attribute_listed(op->attributes, a->name, kind_letter(a->kind)))
      continue;
    cuvil_text_clean(a->name, name, sizeof name);
    snprintf(reason, size, "attribute \"%s\" is not known or of another kind",
             name);
    return;
  }
  for (int i = op->max_outputs; i < node->output_count; i++)
    if (node->outputs[i] >= 0 &&
        graph->values[node->outputs[i]].user_count > 0) {
      snprintf(reason, size, "output %d is used", i);
      return;
    }
}

static enum cuvil_status check_arity(const struct cuvil_node *node,
                                     const struct cuvil_op *op) {
  if (node->input_count < op->min_inputs ||
      (op->max_inputs >= 0 && node->input_count > op->max_inputs))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has %d inputs",
                      node->input_count);
  for (int i = 0; i < op->min_inputs; i++)
    if (node->inputs[i] < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input %d is missing", i);
  if (node->output_count < 1 || node->outputs[0] < 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no output");
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_check_nodes(struct cuvil_graph *graph,
                                          struct cuvil_refusals *refusals) {
  if (graph->opset > CUVIL_OPSET_NEWEST)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "%s: opset %d is newer than %d, the newest that is "
                      "supported; export with an older opset",
                      graph->path, graph->opset, CUVIL_OPSET_NEWEST);
  for (int n = 0; n < graph->node_count; n++) {
    struct cuvil_node *node = &graph->nodes[n];
    char reason[200];
    find_reason(graph, node, reason, sizeof reason);
    if (reason[0] != '\0') {
      CUVIL_TRY(cuvil_refuse(graph, refusals, node, reason));
      node->removed = true; /* later passes look only at known operators */
      continue;
    }
    const struct cuvil_op *op = cuvil_op_find(node->op);
    CUVIL_TRY(cuvil_node_context(graph, node, check_arity(node, op)));
    if (node->output_count > op->max_outputs)
      node->output_count = op->max_outputs;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_graph_check_links(struct cuvil_graph *graph) {
  cuvil_graph_relink(graph);
  char name[81];
  for (int n = 0; n < graph->node_count; n++) {
    const struct cuvil_node *node = &graph->nodes[n];
    for (int i = 0; i < node->output_count; i++) {
      if (node->outputs[i] < 0) continue;
      const struct cuvil_value *value = &graph->values[node->outputs[i]];
      const char *other = value->is_input        ? "a graph input"
                          : value->data != NULL  ? "an initializer"
                          : value->producer != n ? "the output of another node"
                                                 : NULL;
      if (other == NULL) continue;
      cuvil_text_clean(value->name, name, sizeof name);
      return cuvil_node_context(
          graph, node,
          CUVIL_FAIL(CU_ERR_MODEL_INVALID, "its output \"%s\" is also %s", name,
                     other));
    }
  }
  for (int n = 0; n < graph->node_count; n++) {
    const struct cuvil_node *node = &graph->nodes[n];
    for (int i = 0; i < node->input_count; i++) {
      if (node->inputs[i] < 0) continue;
      const struct cuvil_value *value = &graph->values[node->inputs[i]];
      if (value->is_input || value->data != NULL || value->producer >= 0)
        continue;
      cuvil_text_clean(value->name, name, sizeof name);
      return cuvil_node_context(
          graph, node,
          CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                     "its input \"%s\" is no graph input, no initializer and "
                     "no node's output",
                     name));
    }
  }
  for (int i = 0; i < graph->output_count; i++) {
    const struct cuvil_value *value = &graph->values[graph->outputs[i]];
    if (value->is_input || value->data != NULL || value->producer >= 0)
      continue;
    cuvil_text_clean(value->name, name, sizeof name);
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "%s: graph output \"%s\" is computed by no node",
                      graph->path, name);
  }
  return CUVIL_OK;
}

/* ---- order: depth first from each node in file order, which leaves an
 * ordered graph as it is.  The stack is explicit: its depth is the model's. */
struct visit {
  int node, next_input;
};

static enum cuvil_status report_cycle(const struct cuvil_graph *graph,
                                      const struct visit *stack, int depth,
                                      int node) {
  int start = depth - 1;
  while (start > 0 && stack[start].node != node)
    start--;
  char text[700] = "", who[192];
  /* The stack goes from users to producers. */
  int shown = 0;
  for (int i = depth - 1; i >= start && shown < 3; i--, shown++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s", shown > 0 ? " -> " : "",
             cuvil_node_describe(graph, &graph->nodes[stack[i].node], who));
  }
  size_t used = strlen(text);
  if (depth - start > shown)
    snprintf(text + used, sizeof text - used, " -> ... (%d nodes)",
             depth - start);
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "%s: the nodes form a cycle: %s -> back to the first",
                    graph->path, text);
}

enum cuvil_status cuvil_graph_sort(struct cuvil_graph *graph) {
  int count = graph->node_count, done = 0;
  if (count == 0) return CUVIL_OK;
  struct cuvil_arena scratch = {0};
  enum cuvil_status status = CUVIL_OK;
  struct visit *stack =
      cuvil_arena_array(&scratch, (size_t)count, sizeof *stack);
  char *state = cuvil_arena_array(&scratch, (size_t)count, 1);
  struct cuvil_node *sorted =
      cuvil_arena_array(&graph->arena, (size_t)count, sizeof *sorted);
  if (stack == NULL || state == NULL || sorted == NULL) {
    status =
        CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to order %d nodes", count);
    goto fail;
  }
  enum { NEW, OPEN, DONE };
  for (int n = 0; n < count; n++) {
    if (state[n] != NEW) continue;
    int depth = 1;
    stack[0] = (struct visit){.node = n};
    state[n] = OPEN;
    while (depth > 0) {
      struct visit *top = &stack[depth - 1];
      const struct cuvil_node *node = &graph->nodes[top->node];
      if (top->next_input == node->input_count) {
        state[top->node] = DONE;
        sorted[done++] = *node;
        depth--;
        continue;
      }
      int input = node->inputs[top->next_input++];
      int producer = input >= 0 ? graph->values[input].producer : -1;
      if (producer < 0 || state[producer] == DONE) continue;
      if (state[producer] == OPEN) {
        status = report_cycle(graph, stack, depth, producer);
        goto fail;
      }
      state[producer] = OPEN;
      stack[depth++] = (struct visit){.node = producer};
    }
  }
  graph->nodes = sorted;
  graph->node_capacity = count;
  cuvil_graph_relink(graph);
fail:
  cuvil_arena_free(&scratch);
  return status;
}
