/* passes.h - what cuvil_graph_finish is made of.  Private to graph/. */
#ifndef CUVIL_GRAPH_PASSES_H_
#define CUVIL_GRAPH_PASSES_H_

#include "graph/graph.h"

/* Nodes that cannot be supported, collected over the passes so that a user
 * sees all of them at once.  Zero-initialised; memory in the graph's arena. */
struct cuvil_refusals {
  int node_count, group_count, group_capacity;
  struct cuvil_refusal_group *groups;
};
CUVIL_MUST_USE enum cuvil_status cuvil_refuse(struct cuvil_graph *graph,
                                              struct cuvil_refusals *refusals,
                                              const struct cuvil_node *node,
                                              const char *reason);
/* CUVIL_OK when nothing was refused; else makes the table that
 * cuvil_graph_unsupported returns, and fails with a summary. */
CUVIL_MUST_USE enum cuvil_status cuvil_refusals_report(
    const struct cuvil_graph *graph, const struct cuvil_refusals *refusals);
void cuvil_refusals_clear(void);

/* Operators, opsets, attributes, numbers of inputs and outputs (check.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_check_nodes(
    struct cuvil_graph *graph, struct cuvil_refusals *refusals);
/* Every value that is used exists, none is made twice (check.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_check_links(
    struct cuvil_graph *graph);
/* Topological order, stable for a graph that has it (check.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_sort(struct cuvil_graph *graph);
/* Types of all values; nodes of constants become constants (infer.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_infer(
    struct cuvil_graph *graph, struct cuvil_refusals *refusals);
/* Nodes that change nothing go, BatchNorms fold into convolutions or become
 * Mul and Add, unneeded nodes go (simplify.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_simplify(
    struct cuvil_graph *graph);

/* The input that output 0 of the node equals, in every element and in type; -1:
 * none (simplify_noop.c). */
int cuvil_node_passes_on(const struct cuvil_graph *graph,
                         const struct cuvil_node *node);

/* Windows over one dimension become windows over two (simplify_rank.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_widen_windows(
    struct cuvil_graph *graph);

/* Attention becomes the nodes it is defined as (simplify_attention.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_lower_attention(
    struct cuvil_graph *graph);

/* Masks looked up by all indices, and And with true (simplify_index.c). */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_straighten_masks(
    struct cuvil_graph *graph);

/* Evaluates one node on the host (execute.c). */
struct cuvil_host_tensor;
CUVIL_MUST_USE enum cuvil_status cuvil_node_execute(
    const struct cuvil_graph *graph, const struct cuvil_node *node,
    const struct cuvil_host_tensor *const *inputs,
    struct cuvil_host_tensor *outputs /* created here, destroyed by caller */,
    int threads);

#endif /* CUVIL_GRAPH_PASSES_H_ */
