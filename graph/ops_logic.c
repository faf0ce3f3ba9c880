/* Not, Where, IsNaN and IsInf.  (Comparisons and And, Or, Xor broadcast two
 * operands: ops_pointwise.c.)
 */
#include <math.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/parallel.h"

enum cuvil_status cuvil_infer_not(const struct cuvil_graph *graph,
                                  const struct cuvil_node *node,
                                  struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  if (out->dtype == CUVIL_BOOL) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "an operand of type %s",
                    cuvil_dtype_name(out->dtype));
}

enum cuvil_status cuvil_execute_not(const struct cuvil_op_call *call) {
  for (int64_t i = 0; i < call->inputs[0]->count; i++)
    call->outputs[0].i[i] = call->inputs[0]->i[i] == 0;
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_is_nan(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  out->dtype = CUVIL_BOOL;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_is_nan(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  bool nan = strcmp(call->node->op, "IsNaN") == 0;
  bool low = cuvil_node_int(call->node, "detect_negative", 1) != 0;
  bool high = cuvil_node_int(call->node, "detect_positive", 1) != 0;
  for (int64_t i = 0; i < x->count; i++) {
    float v = x->f[i];
    call->outputs[0].i[i] = nan ? isnan(v) : isinf(v) && (v < 0 ? low : high);
  }
  return CUVIL_OK;
}

/* ---- Where */
enum cuvil_status cuvil_infer_where(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  const struct cuvil_value *c = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *x = cuvil_op_input(graph, node, 1);
  const struct cuvil_value *y = cuvil_op_input(graph, node, 2);
  if (c->dtype != CUVIL_BOOL)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "a condition of type %s",
                      cuvil_dtype_name(c->dtype));
  if (x->dtype != y->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                      cuvil_dtype_name(x->dtype), cuvil_dtype_name(y->dtype));
  cuvil_type_copy(out, x);
  CUVIL_TRY(cuvil_type_broadcast(out, y));
  return cuvil_type_broadcast(out, c);
}

struct choice {
  const struct cuvil_host_tensor *in[3]; /* condition, x, y */
  int64_t step[3][CUVIL_GRAPH_MAX_RANK];
  struct cuvil_host_tensor *out;
};

static void choose_rows(void *context, int worker, int64_t begin, int64_t end) {
  (void)worker;
  const struct choice *w = context;
  const struct cuvil_host_tensor *out = w->out;
  int last = out->rank - 1;
  int64_t n = last >= 0 ? out->dims[last] : 1;
  for (int64_t row = begin; row < end; row++) {
    int64_t base[3] = {0}, d[3] = {0}, rest = row;
    for (int axis = last - 1; axis >= 0; axis--) {
      int64_t at = rest % out->dims[axis];
      rest /= out->dims[axis];
      for (int i = 0; i < 3; i++)
        base[i] += at * w->step[i][axis];
    }
    for (int i = 0; i < 3 && last >= 0; i++)
      d[i] = w->step[i][last];
    const int64_t *c = w->in[0]->i + base[0];
    if (out->integer) {
      const int64_t *x = w->in[1]->i + base[1], *y = w->in[2]->i + base[2];
      for (int64_t i = 0; i < n; i++)
        out->i[row * n + i] = c[i * d[0]] != 0 ? x[i * d[1]] : y[i * d[2]];
    } else {
      const float *x = w->in[1]->f + base[1], *y = w->in[2]->f + base[2];
      for (int64_t i = 0; i < n; i++)
        out->f[row * n + i] = c[i * d[0]] != 0 ? x[i * d[1]] : y[i * d[2]];
    }
  }
}

enum cuvil_status cuvil_execute_where(const struct cuvil_op_call *call) {
  struct choice w = {.out = &call->outputs[0]};
  if (w.out->count == 0) return CUVIL_OK;
  for (int i = 0; i < 3; i++) {
    w.in[i] = call->inputs[i];
    cuvil_host_broadcast_steps(w.in[i], w.out->rank, w.step[i]);
  }
  int64_t n = w.out->rank > 0 ? w.out->dims[w.out->rank - 1] : 1;
  int64_t rows = w.out->count / n;
  cuvil_parallel(cuvil_parallel_threads(call->threads, rows, 65536 / n + 1),
                 rows, choose_rows, &w);
  return CUVIL_OK;
}
