/* mma_view.c - a gemm or a convolution seen as one matrix product: extents,
 * pitches, and the widest copies that alignment and divisibility allow.
 *
 * A convolution in NHWC is the product of its output places by its channels
 * over taps times channels; only the loader of A will know the difference.
 * What cannot be looked at that way is refused here, once for all families.
 */
#include "kernels/common/mma.h"

enum { INDEX_LIMIT = 1 << 30 }; /* device indices are 32-bit */

static int vector_bytes(int64_t elements, int size, int so_far) {
  int64_t bytes = (int64_t)cuvil_divisibility(elements) * size;
  return bytes < so_far ? (int)bytes : so_far;
}

static bool has_limits(const struct cuvil_operand *o) {
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i]) return true;
  return false;
}

/* A matrix over dims (row, column), either one fastest; the batch, where it is
 * one of several matrices, anywhere but fastest. */
static bool view_matrix(const struct cuvil_operand *o, int row, int column,
                        bool *out_transposed, int64_t *out_pitch,
                        int64_t *out_step) {
  int last = o->rank - 1, slow = 0;
  *out_step = 0;
  if (last < 1 || last > 2 || has_limits(o) || o->strides[last] != 1)
    return false;
  if (last == 2) {
    int batch = o->dims[0] == CUVIL_DIM_BATCH ? 0 : 1;
    if (o->dims[batch] != CUVIL_DIM_BATCH) return false;
    *out_step = o->strides[batch];
    slow = 1 - batch;
  }
  *out_transposed = o->dims[slow] == column && o->dims[last] == row;
  if (!*out_transposed && (o->dims[slow] != row || o->dims[last] != column))
    return false;
  *out_pitch = o->strides[slow];
  return *out_pitch < INDEX_LIMIT;
}

bool cuvil_mma_view_gemm(const struct cuvil_problem *problem,
                         struct cuvil_mma_view *out) {
  const struct cuvil_operand *a = &problem->operands[CUVIL_GEMM_A];
  const struct cuvil_operand *b = &problem->operands[CUVIL_GEMM_B];
  const struct cuvil_operand *c = &problem->operands[problem->output];
  int m = cuvil_problem_find_dim(problem, "m");
  int n = cuvil_problem_find_dim(problem, "n");
  int k = cuvil_problem_find_dim(problem, "k");
  bool c_transposed;
  *out = (struct cuvil_mma_view){.m = problem->dims[m].extent,
                                 .n = problem->dims[n].extent,
                                 .k = problem->dims[k].extent,
                                 .batched = cuvil_problem_batched(problem),
                                 .batch = 1};
  if (out->batched) out->batch = problem->dims[CUVIL_DIM_BATCH].extent;
  if (!view_matrix(a, m, k, &out->a_transposed, &out->pitch_a, &out->step_a) ||
      !view_matrix(b, n, k, &out->b_transposed, &out->pitch_b, &out->step_b) ||
      !view_matrix(c, m, n, &c_transposed, &out->pitch, &out->step) ||
      c_transposed)
    return false;
  if (a->dtype != b->dtype) return false;
  out->element = a->dtype;
  out->size = (int)cuvil_dtype_size(a->dtype);
  out->a_vector = vector_bytes(out->pitch_a, out->size, 16);
  out->a_vector = vector_bytes(out->a_transposed ? out->m : out->k, out->size,
                               out->a_vector);
  out->a_vector = vector_bytes(out->step_a, out->size, out->a_vector);
  out->b_vector = vector_bytes(out->pitch_b, out->size, 16);
  out->b_vector = vector_bytes(out->b_transposed ? out->n : out->k, out->size,
                               out->b_vector);
  out->b_vector = vector_bytes(out->step_b, out->size, out->b_vector);
  out->b_constant = b->weight;
  return true;
}

static bool has_order(const struct cuvil_problem *problem,
                      const struct cuvil_operand *o, const char *order) {
  if (o->rank != 4 || o->strided || has_limits(o)) return false;
  for (int i = 0; i < 4; i++) {
    char name[2] = {order[i], 0};
    if (o->dims[i] != cuvil_problem_find_dim(problem, name)) return false;
  }
  return true;
}

bool cuvil_mma_view_conv(const struct cuvil_problem *problem,
                         struct cuvil_mma_view *out) {
  const struct cuvil_operand *x = &problem->operands[CUVIL_CONV_X];
  const struct cuvil_operand *w = &problem->operands[CUVIL_CONV_W];
  const struct cuvil_operand *y = &problem->operands[problem->output];
  int64_t c = cuvil_problem_extent(problem, "c");
  int64_t r = cuvil_problem_extent(problem, "r");
  int64_t s = cuvil_problem_extent(problem, "s");
  if (problem->group != 1 || x->dtype != w->dtype ||
      !has_order(problem, x, "nhwc") || !has_order(problem, w, "krsc") ||
      !has_order(problem, y, "npqk"))
    return false;
  *out = (struct cuvil_mma_view){
      .m = cuvil_problem_extent(problem, "n") *
           cuvil_problem_extent(problem, "p") *
           cuvil_problem_extent(problem, "q"),
      .n = cuvil_problem_extent(problem, "k"),
      .k = r * s * c,
      .element = x->dtype,
      .size = (int)cuvil_dtype_size(x->dtype),
      .b_constant = w->weight,
      .conv = true,
      .batch = 1,
  };
  out->plain = r == 1 && s == 1 && problem->pad[0] == 0 &&
               problem->pad[1] == 0 && problem->pad[2] == 0 &&
               problem->pad[3] == 0;
  out->a_vector = vector_bytes(c, out->size, 16);
  out->b_vector = vector_bytes(out->k, out->size, 16);
  out->pitch = out->n;
  out->pitch_a = c;
  out->pitch_b = out->k;
  return cuvil_problem_extent(problem, "h") *
             cuvil_problem_extent(problem, "w") * c <
         INDEX_LIMIT;
}

bool cuvil_mma_view(const struct cuvil_problem *problem,
                    struct cuvil_mma_view *out) {
  bool seen =
      problem->kind == CUVIL_KIND_GEMM   ? cuvil_mma_view_gemm(problem, out)
      : problem->kind == CUVIL_KIND_CONV ? cuvil_mma_view_conv(problem, out)
                                         : false;
  if (!seen || out->m >= INDEX_LIMIT || out->n >= INDEX_LIMIT ||
      out->k >= INDEX_LIMIT || out->m < 1 || out->n < 1 || out->k < 1)
    return false;
  for (int i = 0; i < problem->operand_count; i++)
    if (cuvil_operand_elements(problem, i) >= INDEX_LIMIT) return false;
  const struct cuvil_operand *y = &problem->operands[problem->output];
  out->out_vector = cuvil_divisibility(out->n) >= 8 &&
                    cuvil_divisibility(out->pitch) >= 8 &&
                    cuvil_divisibility(out->step) >= 8;
  return y->dtype == CUVIL_F16 || y->dtype == CUVIL_BF16 ||
         y->dtype == CUVIL_F32;
}

int64_t cuvil_mma_tiles(const struct cuvil_mma_view *view, int64_t tile_m,
                        int64_t tile_n) {
  return (view->m + tile_m - 1) / tile_m * ((view->n + tile_n - 1) / tile_n) *
         view->batch;
}
