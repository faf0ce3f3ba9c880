/* Gemm, MatMul and BatchNormalization. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gemm.h"
#include "graph/ops.h"

/* ---- matrix products */
struct matrix {
  const float *b;
  int64_t row, col;
};

static void pack_matrix(const void *source, int64_t group, int64_t batch,
                        int64_t k0, int64_t k1, int64_t j0, int64_t j1,
                        double *out) {
  (void)group;
  (void)batch;
  const struct matrix *matrix = source;
  for (int64_t j = j0; j < j1; j++) {
    const float *b = matrix->b + k0 * matrix->row + j * matrix->col;
    double *lane = out +
                   (j - j0) / CUVIL_GEMM_COLS * (k1 - k0) * CUVIL_GEMM_COLS +
                   (j - j0) % CUVIL_GEMM_COLS;
    for (int64_t k = 0; k < k1 - k0; k++)
      lane[k * CUVIL_GEMM_COLS] = b[k * matrix->row];
  }
}

struct product {
  int64_t m, n, k;
  bool trans_a, trans_b;
};

static enum cuvil_status product_of(const struct cuvil_node *node,
                                    const int64_t *a, int a_rank,
                                    const int64_t *b, int b_rank,
                                    struct product *out) {
  if (a_rank != 2 || b_rank != 2)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "operands of rank %d and %d; it takes two-dimensional "
                      "ones",
                      a_rank, b_rank);
  out->trans_a = cuvil_node_int(node, "transA", 0) != 0;
  out->trans_b = cuvil_node_int(node, "transB", 0) != 0;
  out->m = out->trans_a ? a[1] : a[0];
  out->k = out->trans_a ? a[0] : a[1];
  int64_t k = out->trans_b ? b[1] : b[0];
  out->n = out->trans_b ? b[0] : b[1];
  if (k != out->k)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "inner dimensions %lld and %lld differ",
                      (long long)out->k, (long long)k);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_gemm(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  const struct cuvil_value *a = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *b = cuvil_op_input(graph, node, 1);
  const struct cuvil_value *c = cuvil_op_input(graph, node, 2);
  struct product product;
  CUVIL_TRY(product_of(node, a->dims, a->rank, b->dims, b->rank, &product));
  if (a->dtype != b->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                      cuvil_dtype_name(a->dtype), cuvil_dtype_name(b->dtype));
  *out = (struct cuvil_type){
      .dtype = a->dtype, .rank = 2, .dims = {product.m, product.n}};
  if (c == NULL) return CUVIL_OK;
  struct cuvil_type wide = *out;
  CUVIL_TRY(cuvil_type_broadcast(&wide, c));
  if (wide.rank != 2 || wide.dims[0] != out->dims[0] ||
      wide.dims[1] != out->dims[1])
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "C does not broadcast to %lldx%lld",
                      (long long)out->dims[0], (long long)out->dims[1]);
  if (c->dtype != out->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                      cuvil_dtype_name(out->dtype), cuvil_dtype_name(c->dtype));
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_gemm(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *a = call->inputs[0], *b = call->inputs[1];
  const struct cuvil_host_tensor *c =
      call->node->input_count > 2 ? call->inputs[2] : NULL;
  struct product p;
  CUVIL_TRY(product_of(call->node, a->dims, a->rank, b->dims, b->rank, &p));
  struct matrix matrix = {
      .b = b->f, .row = p.trans_b ? 1 : p.n, .col = p.trans_b ? p.k : 1};
  struct cuvil_gemm gemm = {
      .m = p.m,
      .n = p.n,
      .k = p.k,
      .groups = 1,
      .batch = 1,
      .a = a->f,
      .a_row = p.trans_a ? 1 : p.k,
      .a_col = p.trans_a ? p.m : 1,
      .pack = pack_matrix,
      .source = &matrix,
      .alpha = cuvil_node_float(call->node, "alpha", 1),
      .beta = cuvil_node_float(call->node, "beta", 1),
      .c = call->outputs[0].f,
      .c_row = p.n,
      .c_col = 1,
  };
  if (c != NULL) {
    gemm.bias = c->f;
    bool by_row = c->rank == 2 && c->dims[0] != 1;
    bool by_col = c->rank >= 1 && c->dims[c->rank - 1] != 1;
    gemm.bias_row = by_row ? c->dims[1] : 0;
    gemm.bias_col = by_col ? 1 : 0;
  }
  return cuvil_gemm_run(&gemm, call->threads);
}

/* ---- MatMul: numpy's rules.  Matrices of one operand are `a_at[i]` elements
 * apart from its start, for each matrix i of the result. */
struct stack {
  int64_t m, n, k;
  bool a_vector, b_vector;
  int rank; /* of the outer dimensions */
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  int64_t a_step[CUVIL_GRAPH_MAX_RANK], b_step[CUVIL_GRAPH_MAX_RANK];
};

/* Extent of outer dimension `d` of `rank` of an operand, and its step. */
static int64_t outer_extent(const int64_t *dims, int own_rank, int rank,
                            int d) {
  int at = d - (rank - (own_rank - 2));
  return at < 0 ? 1 : dims[at];
}

static enum cuvil_status stack_of(const int64_t *a, int a_rank,
                                  const int64_t *b, int b_rank,
                                  struct stack *out) {
  *out = (struct stack){.a_vector = a_rank == 1, .b_vector = b_rank == 1};
  if (a_rank == 0 || b_rank == 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "an operand is a scalar");
  int64_t a_matrix[2] = {1, a[0]}, b_matrix[2] = {b[0], 1};
  if (out->a_vector) a = a_matrix, a_rank = 2;
  if (out->b_vector) b = b_matrix, b_rank = 2;
  out->m = a[a_rank - 2];
  out->k = a[a_rank - 1];
  out->n = b[b_rank - 1];
  if (b[b_rank - 2] != out->k)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "inner dimensions %lld and %lld differ",
                      (long long)out->k, (long long)b[b_rank - 2]);
  out->rank = (a_rank > b_rank ? a_rank : b_rank) - 2;
  int64_t a_next = out->m * out->k, b_next = out->k * out->n;
  for (int d = out->rank - 1; d >= 0; d--) {
    int64_t x = outer_extent(a, a_rank, out->rank, d);
    int64_t y = outer_extent(b, b_rank, out->rank, d);
    if (x != y && x != 1 && y != 1)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "dimensions %lld and %lld do not broadcast",
                        (long long)x, (long long)y);
    out->dims[d] = x == 1 ? y : x;
    out->a_step[d] = x == 1 ? 0 : a_next;
    out->b_step[d] = y == 1 ? 0 : b_next;
    a_next *= x;
    b_next *= y;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_matmul(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  const struct cuvil_value *a = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *b = cuvil_op_input(graph, node, 1);
  struct stack stack;
  CUVIL_TRY(stack_of(a->dims, a->rank, b->dims, b->rank, &stack));
  if (a->dtype != b->dtype)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                      cuvil_dtype_name(a->dtype), cuvil_dtype_name(b->dtype));
  *out = (struct cuvil_type){.dtype = a->dtype, .rank = stack.rank};
  memcpy(out->dims, stack.dims, sizeof out->dims);
  if (!stack.a_vector) out->dims[out->rank++] = stack.m;
  if (!stack.b_vector) out->dims[out->rank++] = stack.n;
  return CUVIL_OK;
}

struct matrices {
  const float *b;
  const int64_t *at; /* of each group */
  int64_t row;
};

static void pack_stacked(const void *source, int64_t group, int64_t batch,
                         int64_t k0, int64_t k1, int64_t j0, int64_t j1,
                         double *out) {
  (void)batch;
  const struct matrices *s = source;
  const float *b = s->b + s->at[group] + k0 * s->row;
  for (int64_t j = j0; j < j1; j += CUVIL_GEMM_COLS) {
    int64_t lanes = j1 - j < CUVIL_GEMM_COLS ? j1 - j : CUVIL_GEMM_COLS;
    for (int64_t k = 0; k < k1 - k0; k++, out += CUVIL_GEMM_COLS)
      for (int64_t i = 0; i < lanes; i++)
        out[i] = b[k * s->row + j + i];
  }
}

/* As many products at once as keep the packed A below 64 MiB. */
#define PACKED_A ((int64_t)8 << 20)

static enum cuvil_status run_stack(const struct cuvil_op_call *call,
                                   const struct stack *s, int64_t count,
                                   const int64_t *a_at, const int64_t *b_at) {
  int64_t each = s->m * s->k > 0 ? PACKED_A / (s->m * s->k) : count;
  struct matrices matrices = {.b = call->inputs[1]->f, .row = s->n};
  for (int64_t first = 0; first < count;) {
    /* A product takes As that lie evenly apart. */
    int64_t step = first + 1 < count ? a_at[first + 1] - a_at[first] : 0, n = 1;
    while (n < each && first + n < count &&
           a_at[first + n] - a_at[first] == n * step)
      n++;
    matrices.at = b_at + first;
    struct cuvil_gemm gemm = {.m = s->m,
                              .n = s->n,
                              .k = s->k,
                              .groups = n,
                              .batch = 1,
                              .a = call->inputs[0]->f + a_at[first],
                              .a_row = s->k,
                              .a_col = 1,
                              .a_group = step,
                              .pack = pack_stacked,
                              .source = &matrices,
                              .alpha = 1,
                              .c = call->outputs[0].f + first * s->m * s->n,
                              .c_row = s->n,
                              .c_col = 1,
                              .c_group = s->m * s->n};
    CUVIL_TRY(cuvil_gemm_run(&gemm, call->threads));
    first += n;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_matmul(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *a = call->inputs[0], *b = call->inputs[1];
  struct stack s;
  CUVIL_TRY(stack_of(a->dims, a->rank, b->dims, b->rank, &s));
  if (call->outputs[0].count == 0) return CUVIL_OK;
  int64_t count = call->outputs[0].count / (s.m * s.n);
  /* One matrix B for all rows of A: one product. */
  bool shared = true;
  for (int d = 0; d < s.rank; d++)
    shared &= s.b_step[d] == 0 && (s.a_step[d] != 0 || s.dims[d] == 1);
  if (shared) {
    s.m *= count;
    count = 1;
  }
  int64_t *at = calloc(2 * (size_t)count, sizeof *at);
  if (at == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %lld products",
                      (long long)count);
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i;
    for (int d = s.rank - 1; d >= 0 && !shared; d--) {
      at[i] += rest % s.dims[d] * s.a_step[d];
      at[count + i] += rest % s.dims[d] * s.b_step[d];
      rest /= s.dims[d];
    }
  }
  enum cuvil_status status = run_stack(call, &s, count, at, at + count);
  free(at);
  return status;
}

/* ---- BatchNormalization, inference form */
enum cuvil_status cuvil_infer_batch_norm(const struct cuvil_graph *graph,
                                         const struct cuvil_node *node,
                                         struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  bool training = cuvil_node_int(node, "training_mode", 0) != 0 ||
                  (node->opset < 7 && cuvil_node_int(node, "is_test", 0) == 0);
  for (int i = 1; i < node->output_count; i++)
    training |= node->outputs[i] >= 0;
  if (training)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "it is in training form; export the model in evaluation "
                      "mode");
  if (cuvil_node_int(node, "spatial", 1) == 0)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED, "spatial=0");
  if (x->rank < 2)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "an input of rank %d has no channels", x->rank);
  for (int i = 1; i < 5; i++) {
    const struct cuvil_value *p = cuvil_op_input(graph, node, i);
    if (p == NULL || p->rank != 1 || p->dims[0] != x->dims[1])
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "input %d does not have one entry for each of %lld "
                        "channels",
                        i, (long long)x->dims[1]);
    if (p->data == NULL)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "input %d is computed at run time; it must be constant",
                        i);
    if (!cuvil_dtype_is_float(p->dtype))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input %d is of type %s", i,
                        cuvil_dtype_name(p->dtype));
  }
  cuvil_type_copy(out, x);
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_batch_norm(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  const float *scale = call->inputs[1]->f, *bias = call->inputs[2]->f;
  const float *mean = call->inputs[3]->f, *var = call->inputs[4]->f;
  double epsilon = cuvil_node_float(call->node, "epsilon", 1e-5f);
  int64_t channels = x->dims[1], plane = 1;
  for (int i = 2; i < x->rank; i++)
    plane *= x->dims[i];
  for (int64_t at = 0; at < x->dims[0] * channels; at++) {
    int64_t c = at % channels;
    double factor = (double)scale[c] / sqrt((double)var[c] + epsilon);
    for (int64_t i = at * plane; i < (at + 1) * plane; i++)
      call->outputs[0].f[i] =
          (float)(((double)x->f[i] - (double)mean[c]) * factor +
                  (double)bias[c]);
  }
  return CUVIL_OK;
}
