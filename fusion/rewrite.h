/* rewrite.h - patterns of exporters become operators of our own.
 *
 * Works on a copy of the graph.  The node that makes a pattern's result is
 * replaced where it stands, so the order stays topological; what nobody needs
 * then is swept away.  A value inside a pattern that has another user is
 * computed for that user still.
 *
 * Operators that only fusion knows:
 *   Part(x)  axis, start, count: a part of x along one axis
 *   Silu(x)
 *   Gemm with a first operand of any rank, and a result of any rank with as
 *     many rows
 *   LayerNormalization, RMSNormalization without a scale
 *   AttentionCore(q, k, v, mask)  scale, causal, keep (the mask excludes where
 *     it is false), turned (k is [.., d, s])
 */
#ifndef CUVIL_FUSION_REWRITE_H_
#define CUVIL_FUSION_REWRITE_H_

#include "fusion/fusion.h"

/* Makes fused->graph a copy and rewrites it as the strategy allows. */
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite(struct cuvil_fused *fused,
                                               const struct cuvil_graph *graph);

/* ---- shared by rewrite*.c */
/* Node of this operator that makes the value; NULL: none. */
struct cuvil_node *cuvil_made_by(const struct cuvil_graph *graph, int value,
                                 const char *op);
bool cuvil_constant_scalar(const struct cuvil_graph *graph, int value,
                           double *out);
/* The value is a scalar near the number (constants may be in half precision).
 */
bool cuvil_constant_near(const struct cuvil_graph *graph, int value,
                         double number);
/* The value is op(x, scalar near number), or the other way round for Add and
 * Mul; -1: no. */
int cuvil_with_scalar(const struct cuvil_graph *graph, int value,
                      const char *op, double number);
/* Replaces the node's operator and inputs; its attributes go. */
CUVIL_MUST_USE enum cuvil_status cuvil_replace_node(struct cuvil_graph *graph,
                                                    int node, const char *op,
                                                    int input_count,
                                                    const int *inputs);
CUVIL_MUST_USE enum cuvil_status cuvil_set_float(struct cuvil_graph *graph,
                                                 int node, const char *name,
                                                 double value);
/* Puts a node with one new output before node `before`; producers are up to
 * date after. */
CUVIL_MUST_USE enum cuvil_status cuvil_insert_node(
    struct cuvil_graph *graph, int before, const char *name, const char *op,
    int input_count, const int *inputs, int rank, const int64_t *dims,
    int *out_value);
/* Index of the only node that uses the value, which is no graph output; -1. */
int cuvil_only_user(const struct cuvil_graph *graph, int value);
/* A new constant; `data` in the graph's arena. */
CUVIL_MUST_USE enum cuvil_status cuvil_new_constant(
    struct cuvil_graph *graph, const char *name, enum cuvil_dtype dtype,
    int rank, const int64_t *dims, const void *data, int *out_value);
/* Removes what no output needs, recounts users. */
CUVIL_MUST_USE enum cuvil_status cuvil_sweep(struct cuvil_graph *graph);

CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_activations(
    struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_norms(struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_attention(
    struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_rotary(
    struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_embeddings(
    struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_conditions(
    struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_wheres(
    struct cuvil_graph *graph);
CUVIL_MUST_USE enum cuvil_status cuvil_rewrite_linear(
    struct cuvil_graph *graph);

#endif /* CUVIL_FUSION_REWRITE_H_ */
