/* expr.c - evaluating an epilogue, with and without error bounds.
 *
 * The rules themselves are in checked.h, which the GPU reference shares; here
 * they are only tied to the operators' numbers.
 */
#include <math.h>

#include "problem/checked.h"
#include "problem/internal.h"

static struct cuvil_checked apply(enum cuvil_expr_op op,
                                  const struct cuvil_checked *a) {
  switch (op) {
    case CUVIL_OP_COPY:
      return cuvil_checked_copy(a[0]);
    case CUVIL_OP_ADD:
      return cuvil_checked_add(a[0], a[1]);
    case CUVIL_OP_SUB:
      return cuvil_checked_sub(a[0], a[1]);
    case CUVIL_OP_MUL:
      return cuvil_checked_mul(a[0], a[1]);
    case CUVIL_OP_DIV:
      return cuvil_checked_div(a[0], a[1]);
    case CUVIL_OP_MIN:
      return cuvil_checked_min(a[0], a[1]);
    case CUVIL_OP_MAX:
      return cuvil_checked_max(a[0], a[1]);
    case CUVIL_OP_POW:
      return cuvil_checked_pow(a[0], a[1]);
    case CUVIL_OP_NEG:
      return cuvil_checked_neg(a[0]);
    case CUVIL_OP_ABS:
      return cuvil_checked_abs(a[0]);
    case CUVIL_OP_SQRT:
      return cuvil_checked_sqrt(a[0]);
    case CUVIL_OP_RSQRT:
      return cuvil_checked_rsqrt(a[0]);
    case CUVIL_OP_RECIPROCAL:
      return cuvil_checked_reciprocal(a[0]);
    case CUVIL_OP_EXP:
      return cuvil_checked_exp(a[0]);
    case CUVIL_OP_LOG:
      return cuvil_checked_log(a[0]);
    case CUVIL_OP_TANH:
      return cuvil_checked_tanh(a[0]);
    case CUVIL_OP_SIGMOID:
      return cuvil_checked_sigmoid(a[0]);
    case CUVIL_OP_ERF:
      return cuvil_checked_erf(a[0]);
    case CUVIL_OP_RELU:
      return cuvil_checked_relu(a[0]);
    case CUVIL_OP_GELU_ERF:
      return cuvil_checked_gelu_erf(a[0]);
    case CUVIL_OP_GELU_TANH:
      return cuvil_checked_gelu_tanh(a[0]);
    case CUVIL_OP_SILU:
      return cuvil_checked_silu(a[0]);
    case CUVIL_OP_HARDSWISH:
      return cuvil_checked_hardswish(a[0]);
    case CUVIL_OP_HARDSIGMOID:
      return cuvil_checked_hardsigmoid(a[0], a[1], a[2]);
    case CUVIL_OP_LEAKY_RELU:
      return cuvil_checked_leaky_relu(a[0], a[1]);
    case CUVIL_OP_CLIP:
      return cuvil_checked_clip(a[0], a[1], a[2]);
    case CUVIL_OP_TRUNC:
      return cuvil_checked_trunc(a[0]);
    case CUVIL_OP_COUNT:
      break;
  }
  return cuvil_checked_make((double)NAN, 0);
}

double cuvil_expr_apply(enum cuvil_expr_op op, const double *args) {
  struct cuvil_checked checked[CUVIL_MAX_ARGS] = {{0, 0}};
  for (int i = 0; i < cuvil_expr_op_args(op); i++)
    checked[i] = (struct cuvil_checked){args[i], 0};
  return apply(op, checked).value;
}

void cuvil_expr_evaluate(const struct cuvil_expr *expr,
                         struct cuvil_checked acc, const double *operand_values,
                         struct cuvil_checked *results) {
  for (int i = 0; i < expr->count; i++) {
    const struct cuvil_statement *s = &expr->statements[i];
    struct cuvil_checked args[CUVIL_MAX_ARGS] = {{0, 0}};
    for (int a = 0; a < cuvil_expr_op_args(s->op); a++) {
      const struct cuvil_term *term = &s->args[a];
      switch (term->kind) {
        case CUVIL_TERM_ACC:
          args[a] = acc;
          break;
        case CUVIL_TERM_OPERAND:
          args[a].value = (double)(float)operand_values[term->index];
          break;
        case CUVIL_TERM_VALUE:
          args[a] = results[term->index];
          break;
        case CUVIL_TERM_CONSTANT:
          args[a].value = (double)(float)term->value;
          break;
      }
    }
    results[i] = apply(s->op, args);
  }
}

double cuvil_store_error(enum cuvil_dtype dtype, double value) {
  return cuvil_checked_store_error((int)dtype, value);
}

double cuvil_accumulate_error(int64_t length, double magnitude,
                              enum cuvil_dtype operand, bool tf32) {
  /* Products of f16 and bf16 are exact in fp32; those of f32 round, which the
   * constant of the rule covers: the operands' type does not matter. */
  (void)operand;
  return cuvil_checked_sum_error((double)length, magnitude, tf32);
}
