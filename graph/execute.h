/* execute.h - the CPU executor of graphs: slow, plain, right.
 *
 * fp32 arithmetic (double accumulation), in the graph's own layouts; it is the
 * reference of `cuvil-run --verify` and `--device cpu`.
 */
#ifndef CUVIL_GRAPH_EXECUTE_H_
#define CUVIL_GRAPH_EXECUTE_H_

#include "graph/graph.h"

/* inputs[i]: packed data of graph input i, in its dtype; outputs[i]: memory
 * of graph output i, filled.  threads 0: all cores. */
CUVIL_MUST_USE enum cuvil_status cuvil_graph_execute(
    const struct cuvil_graph *graph, const void *const *inputs,
    void *const *outputs, int threads);

#endif /* CUVIL_GRAPH_EXECUTE_H_ */
