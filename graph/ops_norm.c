/* Softmax, LogSoftmax, LayerNormalization and RMSNormalization: each row by
 * itself, in double.
 */
#include <math.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/parallel.h"

/* ---- Softmax, LogSoftmax */
enum cuvil_status cuvil_infer_softmax(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node,
                                      struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  int axis;
  return cuvil_op_axis(node, "axis", node->opset < 13 ? 1 : -1, out->rank,
                       node->opset < 13, &axis);
}

struct softmax {
  const float *x;
  float *y;
  int64_t length, inner;
  bool logarithm;
};

static void softmax_rows(void *context, int worker, int64_t begin,
                         int64_t end) {
  (void)worker;
  const struct softmax *s = context;
  int64_t n = s->length, inner = s->inner;
  for (int64_t row = begin; row < end; row++) {
    int64_t base = row / inner * inner * n + row % inner;
    const float *x = s->x + base;
    float *y = s->y + base;
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
      if (x[i * inner] > top) top = x[i * inner];
    for (int64_t i = 0; i < n; i++)
      sum += exp((double)x[i * inner] - top);
    double log_sum = log(sum);
    for (int64_t i = 0; i < n; i++) {
      double v = (double)x[i * inner] - top;
      y[i * inner] = (float)(s->logarithm ? v - log_sum : exp(v) / sum);
    }
  }
}

enum cuvil_status cuvil_execute_softmax(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  bool flatten = call->node->opset < 13;
  int axis;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", flatten ? 1 : -1, x->rank,
                          flatten, &axis));
  struct softmax s = {.x = x->f,
                      .y = call->outputs[0].f,
                      .length = 1,
                      .inner = 1,
                      .logarithm = strcmp(call->node->op, "LogSoftmax") == 0};
  /* Up to opset 12 everything from the axis on is one row. */
  for (int i = axis; i < x->rank; i++)
    if (flatten || i == axis)
      s.length *= x->dims[i];
    else
      s.inner *= x->dims[i];
  if (x->count == 0) return CUVIL_OK;
  int64_t rows = x->count / s.length;
  cuvil_parallel(
      cuvil_parallel_threads(call->threads, rows, 8192 / s.length + 1), rows,
      softmax_rows, &s);
  return CUVIL_OK;
}

/* ---- LayerNormalization, RMSNormalization */
enum cuvil_status cuvil_infer_layer_norm(const struct cuvil_graph *graph,
                                         const struct cuvil_node *node,
                                         struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int axis;
  CUVIL_TRY(cuvil_op_axis(node, "axis", -1, x->rank, 0, &axis));
  if (cuvil_node_int(node, "stash_type", 1) != 1)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "stash_type is not 1 (statistics in fp32)");
  for (int i = 1; i < 3; i++) {
    const struct cuvil_value *v = cuvil_op_input(graph, node, i);
    if (v == NULL) continue;
    if (!cuvil_dtype_is_float(v->dtype))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input %d is of type %s", i,
                        cuvil_dtype_name(v->dtype));
    bool fits = v->rank == x->rank - axis;
    for (int d = axis; d < x->rank && fits; d++)
      fits = v->dims[d - axis] == x->dims[d];
    if (!fits)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "input %d does not have the normalized shape", i);
  }
  cuvil_type_copy(&out[0], x);
  for (int i = 1; i < 3; i++) {
    cuvil_type_copy(&out[i], x);
    out[i].dtype = CUVIL_F32;
    for (int d = axis; d < x->rank; d++)
      out[i].dims[d] = 1;
  }
  return CUVIL_OK;
}

struct norm {
  const float *x, *scale, *bias; /* bias may be NULL */
  float *y, *mean, *inverse;     /* statistics: NULL when not asked for */
  int64_t n;
  double epsilon;
  bool rms;
};

static void norm_rows(void *context, int worker, int64_t begin, int64_t end) {
  (void)worker;
  const struct norm *s = context;
  for (int64_t row = begin; row < end; row++) {
    const float *x = s->x + row * s->n;
    float *y = s->y + row * s->n;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < s->n && !s->rms; i++)
      mean += (double)x[i];
    mean /= (double)s->n;
    for (int64_t i = 0; i < s->n; i++) {
      double v = (double)x[i] - mean;
      square += v * v;
    }
    double inverse = 1 / sqrt(square / (double)s->n + s->epsilon);
    for (int64_t i = 0; i < s->n; i++) {
      double v = ((double)x[i] - mean) * inverse * (double)s->scale[i];
      y[i] = (float)(s->bias != NULL ? v + (double)s->bias[i] : v);
    }
    if (s->mean != NULL) s->mean[row] = (float)mean;
    if (s->inverse != NULL) s->inverse[row] = (float)inverse;
  }
}

enum cuvil_status cuvil_execute_layer_norm(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  const struct cuvil_host_tensor *bias = cuvil_op_tensor(call, 2);
  int axis, outputs = call->node->output_count;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", -1, x->rank, 0, &axis));
  struct norm s = {.x = x->f,
                   .scale = call->inputs[1]->f,
                   .bias = bias != NULL ? bias->f : NULL,
                   .y = call->outputs[0].f,
                   .mean = outputs > 1 ? call->outputs[1].f : NULL,
                   .inverse = outputs > 2 ? call->outputs[2].f : NULL,
                   .n = 1,
                   .epsilon = cuvil_node_float(call->node, "epsilon", 1e-5f),
                   .rms = strcmp(call->node->op, "RMSNormalization") == 0};
  for (int i = axis; i < x->rank; i++)
    s.n *= x->dims[i];
  if (x->count == 0) return CUVIL_OK;
  int64_t rows = x->count / s.n;
  cuvil_parallel(cuvil_parallel_threads(call->threads, rows, 32768 / s.n + 1),
                 rows, norm_rows, &s);
  return CUVIL_OK;
}
