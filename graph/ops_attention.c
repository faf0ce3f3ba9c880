/* Attention of opset 23, computed as it is defined: scores, mask, softmax,
 * weighted sum of the values, one query at a time in double.
 *
 * Inputs are [batch, heads, seq, size] or [batch, seq, heads * size]; both are
 * read by strides.  A query head h reads key head h / (q_heads / kv_heads).
 * Causal means j <= i (the standard aligns the triangle at the upper left).  A
 * row whose keys are all masked gives zeros, as later versions of the standard
 * say, not NaN.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/parallel.h"

struct sizes {
  int64_t batch, hq, hkv, sq, skv, d, dv;
};
struct layout {
  int64_t batch, head, row; /* steps; columns are 1 apart */
};

/* Heads, rows, columns of one operand. */
static enum cuvil_status split(const int64_t *dims, int rank, int64_t heads,
                               int64_t *out_heads, int64_t *out_rows,
                               int64_t *out_cols) {
  if (rank == 4) {
    *out_heads = dims[1], *out_rows = dims[2], *out_cols = dims[3];
    return CUVIL_OK;
  }
  if (heads < 1 || dims[2] % heads != 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "%lld heads do not divide an extent of %lld",
                      (long long)heads, (long long)dims[2]);
  *out_heads = heads, *out_rows = dims[1], *out_cols = dims[2] / heads;
  return CUVIL_OK;
}

static enum cuvil_status sizes_of(const struct cuvil_node *node, int rank,
                                  const int64_t *q, const int64_t *k,
                                  const int64_t *v, struct sizes *s) {
  int64_t nq = cuvil_node_int(node, "q_num_heads", 0);
  int64_t nkv = cuvil_node_int(node, "kv_num_heads", 0);
  int64_t v_heads, v_rows, k_cols;
  CUVIL_TRY(split(q, rank, nq, &s->hq, &s->sq, &s->d));
  CUVIL_TRY(split(k, rank, nkv, &s->hkv, &s->skv, &k_cols));
  CUVIL_TRY(split(v, rank, nkv, &v_heads, &v_rows, &s->dv));
  s->batch = q[0];
  if (k[0] != q[0] || v[0] != q[0] || v_heads != s->hkv || v_rows != s->skv ||
      k_cols != s->d || s->hkv < 1 || s->hq % s->hkv != 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "query, key and value do not fit each other");
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_attention(const struct cuvil_graph *graph,
                                        const struct cuvil_node *node,
                                        struct cuvil_type *out) {
  const struct cuvil_value *q = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *k = cuvil_op_input(graph, node, 1);
  const struct cuvil_value *v = cuvil_op_input(graph, node, 2);
  const struct cuvil_value *mask = cuvil_op_input(graph, node, 3);
  if ((q->rank != 3 && q->rank != 4) || k->rank != q->rank ||
      v->rank != q->rank || k->dtype != q->dtype || v->dtype != q->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "query, key and value must be of one type and all of "
                      "rank 3 or all of rank 4");
  struct sizes s;
  CUVIL_TRY(sizes_of(node, q->rank, q->dims, k->dims, v->dims, &s));
  if (mask != NULL) {
    struct cuvil_type wide = {.rank = 4, .dims = {s.batch, s.hq, s.sq, s.skv}};
    if (mask->dtype != q->dtype && mask->dtype != CUVIL_BOOL)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "a mask of type %s",
                        cuvil_dtype_name(mask->dtype));
    CUVIL_TRY(cuvil_type_broadcast(&wide, mask));
    if (wide.rank != 4 || wide.dims[0] != s.batch || wide.dims[1] != s.hq ||
        wide.dims[2] != s.sq || wide.dims[3] != s.skv)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "the mask does not broadcast to the scores");
  }
  cuvil_type_copy(out, q);
  out->dims[q->rank - 1] = q->rank == 4 ? s.dv : s.hq * s.dv;
  return CUVIL_OK;
}

struct attention {
  struct sizes s;
  struct layout q_at, k_at, v_at, y_at;
  const float *q, *k, *v;
  float *y;
  const struct cuvil_host_tensor *mask; /* NULL: none */
  int64_t mask_step[4];
  double scale, softcap;
  bool causal;
  double *scratch; /* per worker: skv scores, dv sums */
};

static struct layout layout_of(int rank, int64_t heads, int64_t rows,
                               int64_t cols) {
  struct layout at = {.batch = heads * rows * cols};
  at.head = rank == 4 ? rows * cols : cols;
  at.row = rank == 4 ? cols : heads * cols;
  return at;
}

/* Score of one key; -inf where it is masked. */
static double score(const struct attention *a, const int64_t *at, int64_t j,
                    const float *q, const float *k) {
  if (a->causal && j > at[2]) return -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < a->s.d; i++)
    sum += (double)q[i] * (double)k[i];
  sum *= a->scale;
  if (a->softcap > 0) sum = a->softcap * tanh(sum / a->softcap);
  if (a->mask == NULL) return sum;
  int64_t m = at[0] * a->mask_step[0] + at[1] * a->mask_step[1] +
              at[2] * a->mask_step[2] + j * a->mask_step[3];
  if (a->mask->integer) return a->mask->i[m] != 0 ? sum : -INFINITY;
  return sum + (double)a->mask->f[m];
}

static void attend(const struct attention *a, const int64_t *at,
                   double *scratch) {
  const struct sizes *s = &a->s;
  int64_t head = at[1] / (s->hq / s->hkv);
  const float *q =
      a->q + at[0] * a->q_at.batch + at[1] * a->q_at.head + at[2] * a->q_at.row;
  const float *k = a->k + at[0] * a->k_at.batch + head * a->k_at.head;
  const float *v = a->v + at[0] * a->v_at.batch + head * a->v_at.head;
  float *y =
      a->y + at[0] * a->y_at.batch + at[1] * a->y_at.head + at[2] * a->y_at.row;
  double *p = scratch, *sums = scratch + s->skv, top = -INFINITY, total = 0;
  for (int64_t j = 0; j < s->skv; j++) {
    p[j] = score(a, at, j, q, k + j * a->k_at.row);
    if (p[j] > top || p[j] != p[j]) top = p[j];
  }
  for (int64_t i = 0; i < s->dv; i++)
    sums[i] = 0;
  for (int64_t j = 0; j < s->skv && top != -INFINITY; j++) {
    double w = exp(p[j] - top);
    total += w;
    for (int64_t i = 0; i < s->dv; i++)
      sums[i] += w * (double)v[j * a->v_at.row + i];
  }
  for (int64_t i = 0; i < s->dv; i++)
    y[i] = (float)(total == 0 ? 0 : sums[i] / total);
}

static void attend_rows(void *context, int worker, int64_t begin, int64_t end) {
  const struct attention *a = context;
  const struct sizes *s = &a->s;
  double *scratch = a->scratch + (size_t)worker * (size_t)(s->skv + s->dv);
  for (int64_t row = begin; row < end; row++) {
    int64_t at[3] = {row / s->sq / s->hq, row / s->sq % s->hq, row % s->sq};
    attend(a, at, scratch);
  }
}

enum cuvil_status cuvil_execute_attention(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *q = call->inputs[0], *k = call->inputs[1];
  const struct cuvil_host_tensor *v = call->inputs[2];
  struct attention a = {.q = q->f,
                        .k = k->f,
                        .v = v->f,
                        .y = call->outputs[0].f,
                        .mask = cuvil_op_tensor(call, 3)};
  CUVIL_TRY(sizes_of(call->node, q->rank, q->dims, k->dims, v->dims, &a.s));
  const struct sizes *s = &a.s;
  a.q_at = layout_of(q->rank, s->hq, s->sq, s->d);
  a.k_at = layout_of(q->rank, s->hkv, s->skv, s->d);
  a.v_at = layout_of(q->rank, s->hkv, s->skv, s->dv);
  a.y_at = layout_of(q->rank, s->hq, s->sq, s->dv);
  if (a.mask != NULL) cuvil_host_broadcast_steps(a.mask, 4, a.mask_step);
  a.scale = cuvil_node_float(call->node, "scale", 1 / sqrt((double)s->d));
  a.softcap = cuvil_node_float(call->node, "softcap", 0);
  a.causal = cuvil_node_int(call->node, "is_causal", 0) != 0;
  int64_t rows = s->batch * s->hq * s->sq;
  int64_t cost = s->skv * (s->d + s->dv) + 1;
  int threads =
      cuvil_parallel_threads(call->threads, rows, 1 + (1 << 18) / cost);
  if (call->outputs[0].count == 0) return CUVIL_OK;
  a.scratch =
      calloc((size_t)threads * (size_t)(s->skv + s->dv + 1), sizeof *a.scratch);
  if (a.scratch == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %lld scores",
                      (long long)s->skv);
  cuvil_parallel(threads, rows, attend_rows, &a);
  free(a.scratch);
  return CUVIL_OK;
}
