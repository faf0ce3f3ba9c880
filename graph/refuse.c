/* The list of what a model needs and Cuvil has not.  Nodes are grouped by
 * operator and reason; the table is kept per thread in a fixed place, so that
 * it outlives the graph that was refused and nothing has to be freed.
 */
#include <stdio.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/passes.h"

#define MAX_GROUPS 128
#define MAX_NAMES 1024 /* bytes of names in one row */

struct cuvil_refusal_group {
  char op[81], reason[200];
  int count;
  char names[MAX_NAMES];
};

static _Thread_local char table[65536];

const char *cuvil_graph_unsupported(void) {
  return table;
}

void cuvil_refusals_clear(void) {
  table[0] = '\0';
}

static void add_name(const struct cuvil_graph *graph,
                     const struct cuvil_node *node,
                     struct cuvil_refusal_group *group) {
  char name[81], label[100];
  cuvil_text_clean(node->name, name, sizeof name);
  if (name[0] == '\0')
    snprintf(label, sizeof label, "#%d", (int)(node - graph->nodes));
  else
    snprintf(label, sizeof label, "%s", name);
  size_t used = strlen(group->names);
  if (used + strlen(label) + 8 >= sizeof group->names) {
    if (used < 4 || strcmp(group->names + used - 3, "...") != 0)
      snprintf(group->names + used, sizeof group->names - used, ", ...");
    return;
  }
  snprintf(group->names + used, sizeof group->names - used, "%s%s",
           used > 0 ? ", " : "", label);
}

enum cuvil_status cuvil_refuse(struct cuvil_graph *graph,
                               struct cuvil_refusals *refusals,
                               const struct cuvil_node *node,
                               const char *reason) {
  char op[81], domain[41], clean[200];
  cuvil_text_clean(node->op, op, sizeof op);
  if (node->domain[0] != '\0') {
    char plain[40];
    cuvil_text_clean(node->domain, domain, sizeof domain);
    cuvil_text_clean(node->op, plain, sizeof plain);
    snprintf(op, sizeof op, "%s:%s", domain, plain);
  }
  cuvil_text_clean(reason, clean, sizeof clean);
  refusals->node_count++;
  for (int i = 0; i < refusals->group_count; i++) {
    struct cuvil_refusal_group *group = &refusals->groups[i];
    if (strcmp(group->op, op) != 0 || strcmp(group->reason, clean) != 0)
      continue;
    group->count++;
    add_name(graph, node, group);
    return CUVIL_OK;
  }
  if (refusals->groups == NULL) {
    refusals->groups =
        cuvil_arena_array(&graph->arena, MAX_GROUPS, sizeof *refusals->groups);
    if (refusals->groups == NULL)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                        "no memory for the list of unsupported nodes");
  }
  /* Beyond that many kinds of trouble the total still counts. */
  if (refusals->group_count == MAX_GROUPS) return CUVIL_OK;
  struct cuvil_refusal_group *group =
      &refusals->groups[refusals->group_count++];
  snprintf(group->op, sizeof group->op, "%s", op);
  snprintf(group->reason, sizeof group->reason, "%s", clean);
  group->count = 1;
  add_name(graph, node, group);
  return CUVIL_OK;
}

static size_t widest(const struct cuvil_refusals *refusals, bool reason) {
  size_t width = 8;
  for (int i = 0; i < refusals->group_count; i++) {
    size_t n =
        strlen(reason ? refusals->groups[i].reason : refusals->groups[i].op);
    if (n > width) width = n;
  }
  return width;
}

enum cuvil_status cuvil_refusals_report(const struct cuvil_graph *graph,
                                        const struct cuvil_refusals *refusals) {
  if (refusals->node_count == 0) return CUVIL_OK;
  int op_width = (int)widest(refusals, false);
  int reason_width = (int)widest(refusals, true);
  size_t used =
      (size_t)snprintf(table, sizeof table, "%-*s  %5s  %-*s  %s\n", op_width,
                       "operator", "count", reason_width, "reason", "names");
  for (int i = 0; i < refusals->group_count; i++) {
    const struct cuvil_refusal_group *group = &refusals->groups[i];
    int n = snprintf(table + used, sizeof table - used, "%-*s  %5d  %-*s  %s\n",
                     op_width, group->op, group->count, reason_width,
                     group->reason, group->names);
    if (n < 0 || (size_t)n >= sizeof table - used) {
      table[used] = '\0';
      break;
    }
    used += (size_t)n;
  }
  const struct cuvil_refusal_group *first = &refusals->groups[0];
  return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                    "%s: %d node%s not supported, first %s (%s): %s; "
                    "cuvil-compile --check lists all",
                    graph->path, refusals->node_count,
                    refusals->node_count == 1 ? " is" : "s are", first->op,
                    first->names, first->reason);
}
