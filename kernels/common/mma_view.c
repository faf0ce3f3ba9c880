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

/* A matrix over dims (row, column), either one fastest. */
static bool view_matrix(const struct cuvil_operand *o, int row, int column,
                        bool *out_transposed, int64_t *out_pitch) {
  if (o->rank != 2 || has_limits(o) || o->strides[1] != 1) return false;
  *out_transposed = o->dims[0] == column && o->dims[1] == row;
  if (!*out_transposed && (o->dims[0] != row || o->dims[1] != column))
    return false;
  *out_pitch = o->strides[0];
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
                                 .k = problem->dims[k].extent};
  if (!view_matrix(a, m, k, &out->a_transposed, &out->pitch_a) ||
      !view_matrix(b, n, k, &out->b_transposed, &out->pitch_b) ||
      !view_matrix(c, m, n, &c_transposed, &out->pitch) || c_transposed)
    return false;
  if (a->dtype != b->dtype) return false;
  out->element = a->dtype;
  out->size = (int)cuvil_dtype_size(a->dtype);
  out->a_vector = vector_bytes(out->pitch_a, out->size, 16);
  out->a_vector = vector_bytes(out->a_transposed ? out->m : out->k, out->size,
                               out->a_vector);
  out->b_vector = vector_bytes(out->pitch_b, out->size, 16);
  out->b_vector = vector_bytes(out->b_transposed ? out->n : out->k, out->size,
                               out->b_vector);
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
  out->out_vector =
      cuvil_divisibility(out->n) >= 8 && cuvil_divisibility(out->pitch) >= 8;
  return y->dtype == CUVIL_F16 || y->dtype == CUVIL_BF16 ||
         y->dtype == CUVIL_F32;
}
