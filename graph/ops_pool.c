/* Pooling over windows and over whole planes. */
#include <math.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/parallel.h"

struct pool {
  bool average;
  int64_t height, width, p, q;
  struct cuvil_window window;
  const float *x;
  float *y;
};

/* The taps of a window on one axis that lie on data: [*first, *last).  Huge
 * kernels cost no more than the data they cover. */
static void taps(const struct cuvil_window *w, int axis, int64_t out,
                 int64_t extent, int64_t *first, int64_t *last) {
  int64_t start = out * w->stride[axis] - w->pad[axis], d = w->dilation[axis];
  *first = start < 0 ? (-start + d - 1) / d : 0;
  *last = extent > start ? (extent - start + d - 1) / d : 0;
  if (*last > w->kernel[axis]) *last = w->kernel[axis];
}

/* How many taps an average counts on one axis when padding counts: those
 * inside the padded extent (a ceil_mode window may stand beyond it). */
static int64_t padded_taps(const struct cuvil_window *w, int axis, int64_t out,
                           int64_t extent) {
  int64_t start = out * w->stride[axis], d = w->dilation[axis];
  int64_t end = extent + w->pad[axis] + w->pad[2 + axis];
  int64_t fit = end > start ? (end - start + d - 1) / d : 0;
  return fit < w->kernel[axis] ? fit : w->kernel[axis];
}

static float pool_one(const struct pool *pool, const float *x, int64_t p,
                      int64_t q) {
  const struct cuvil_window *w = &pool->window;
  int64_t r0, r1, s0, s1;
  taps(w, 0, p, pool->height, &r0, &r1);
  taps(w, 1, q, pool->width, &s0, &s1);
  int64_t top = p * w->stride[0] - w->pad[0];
  int64_t left = q * w->stride[1] - w->pad[1];
  double sum = 0;
  float best = -INFINITY;
  bool nan = false;
  for (int64_t r = r0; r < r1; r++) {
    const float *line = x + (top + r * w->dilation[0]) * pool->width + left;
    for (int64_t s = s0; s < s1; s++) {
      float v = line[s * w->dilation[1]];
      sum += v;
      if (v > best) best = v;
      nan |= v != v;
    }
  }
  if (!pool->average) return nan ? NAN : best;
  double count =
      w->count_include_pad
          ? (double)padded_taps(w, 0, p, pool->height) *
                (double)padded_taps(w, 1, q, pool->width)
          : (double)(r1 > r0 ? r1 - r0 : 0) * (double)(s1 > s0 ? s1 - s0 : 0);
  /* A window wholly on padding has nothing to average. */
  return count > 0 ? (float)(sum / count) : 0.0f;
}

static void pool_planes(void *context, int worker, int64_t begin, int64_t end) {
  (void)worker;
  const struct pool *pool = context;
  for (int64_t plane = begin; plane < end; plane++) {
    const float *x = pool->x + plane * pool->height * pool->width;
    float *y = pool->y + plane * pool->p * pool->q;
    for (int64_t p = 0; p < pool->p; p++)
      for (int64_t q = 0; q < pool->q; q++)
        y[p * pool->q + q] = pool_one(pool, x, p, q);
  }
}

enum cuvil_status cuvil_infer_pool(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  struct cuvil_window window;
  CUVIL_TRY(cuvil_window_resolve(graph, node, &window));
  cuvil_type_copy(out, x);
  return cuvil_window_outputs(&window, x, out);
}

enum cuvil_status cuvil_execute_pool(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  struct pool pool = {.average = strcmp(call->node->op, "AveragePool") == 0,
                      .height = x->rank == 4 ? x->dims[2] : 1,
                      .width = x->dims[x->rank - 1],
                      .p = y->rank == 4 ? y->dims[2] : 1,
                      .q = y->dims[y->rank - 1],
                      .x = x->f,
                      .y = y->f};
  CUVIL_TRY(cuvil_window_resolve(call->graph, call->node, &pool.window));
  int64_t planes = y->dims[0] * y->dims[1];
  int64_t cost = pool.p * pool.q * 8 + 1;
  cuvil_parallel(
      cuvil_parallel_threads(call->threads, planes, 65536 / cost + 1), planes,
      pool_planes, &pool);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_global_pool(const struct cuvil_graph *graph,
                                          const struct cuvil_node *node,
                                          struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  if (x->rank < 3)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "an input of rank %d has no spatial dimension", x->rank);
  cuvil_type_copy(out, x);
  for (int i = 2; i < x->rank; i++)
    out->dims[i] = 1;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_global_pool(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  bool average = strcmp(call->node->op, "GlobalAveragePool") == 0;
  int64_t size = y->count > 0 ? x->count / y->count : 0;
  for (int64_t plane = 0; plane < y->count; plane++) {
    const float *v = x->f + plane * size;
    double sum = 0;
    float best = -INFINITY;
    bool nan = false;
    for (int64_t i = 0; i < size; i++) {
      sum += v[i];
      if (v[i] > best) best = v[i];
      nan |= v[i] != v[i];
    }
    y->f[plane] = average ? (float)(sum / (double)size) : nan ? NAN : best;
  }
  return CUVIL_OK;
}
