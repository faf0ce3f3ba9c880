/* print.c - the canonical text of a problem, and its signature.
 *
 * One printer writes both; the signature differs only in how it writes
 * numbers that a kernel receives as arguments.
 */
#include <inttypes.h>
#include <string.h>

#include "problem/internal.h"

struct printer {
  const struct cuvil_problem *problem;
  struct cuvil_buf *out;
  bool signature;
};

/* An extent, or its divisibility class. */
static void print_extent(const struct printer *p, int64_t extent) {
  if (p->signature)
    cuvil_buf_printf(p->out, "*%d", cuvil_divisibility(extent));
  else
    cuvil_buf_printf(p->out, "%" PRId64, extent);
}

static void print_list(const struct printer *p, const char *key,
                       const int64_t *numbers, int count) {
  cuvil_buf_printf(p->out, " %s=", key);
  for (int i = 0; i < count; i++)
    cuvil_buf_printf(p->out, "%s%" PRId64, i ? "," : "", numbers[i]);
}

/* [n,c<3,h]@(..) and flags. */
static void print_shape(const struct printer *p, int index) {
  const struct cuvil_operand *o = &p->problem->operands[index];
  cuvil_buf_puts(p->out, "[");
  for (int i = 0; i < o->rank; i++) {
    if (i) cuvil_buf_puts(p->out, ",");
    cuvil_buf_puts(p->out, p->problem->dims[o->dims[i]].name);
    if (o->limit[i]) {
      cuvil_buf_puts(p->out, "<");
      print_extent(p, o->limit[i]);
    }
  }
  cuvil_buf_puts(p->out, "]");
  if (o->strided) {
    cuvil_buf_puts(p->out, "@(");
    for (int i = 0; i < o->rank; i++) {
      if (i) cuvil_buf_puts(p->out, ",");
      if (o->strides[i] == 1)
        cuvil_buf_puts(p->out, "1");
      else
        print_extent(p, o->strides[i]);
    }
    cuvil_buf_puts(p->out, ")");
  }
  if (o->weight) cuvil_buf_puts(p->out, ":weight");
}

static void print_dim(const struct printer *p, int i) {
  const struct cuvil_dim *dim = &p->problem->dims[i];
  if (dim->derived) return;
  cuvil_buf_printf(p->out, " %s=", dim->name);
  /* The window's extents decide what a kernel does, not only how often. */
  bool window = cuvil_kind_forms[p->problem->kind].window &&
                (dim->name[0] == 'r' || dim->name[0] == 's');
  if (window)
    cuvil_buf_printf(p->out, "%" PRId64, dim->extent);
  else
    print_extent(p, dim->extent);
}

static void print_dims(const struct printer *p) {
  bool batched = cuvil_problem_batched(p->problem);
  if (batched) print_dim(p, CUVIL_DIM_BATCH);
  for (int i = 0; i < p->problem->dim_count; i++)
    if (!(batched && i == CUVIL_DIM_BATCH)) print_dim(p, i);
}

/* A run-time scalar. */
static void print_scalar(const struct printer *p, double value) {
  if (p->signature) {
    cuvil_buf_puts(p->out, "#");
    return;
  }
  char number[CUVIL_NUMBER_SIZE];
  cuvil_number_print((float)value, number);
  cuvil_buf_puts(p->out, number);
}

static void print_window(const struct printer *p) {
  const struct cuvil_problem *problem = p->problem;
  print_list(p, "stride", problem->stride, 2);
  print_list(p, "pad", problem->pad, 4);
  print_list(p, "dil", problem->dilation, 2);
  if (problem->over[0] || problem->over[1])
    print_list(p, "over", problem->over, 2);
  if (!cuvil_kind_forms[problem->kind].group) return;
  cuvil_buf_puts(p->out, " group=");
  if (!p->signature || problem->group == 1)
    cuvil_buf_printf(p->out, "%" PRId64, problem->group);
  else if (problem->group == problem->dims[CUVIL_CONV_DIM_C].extent)
    cuvil_buf_puts(p->out, "c");
  else
    print_extent(p, problem->group);
}

static void print_term(const struct printer *p, const struct cuvil_expr *expr,
                       const struct cuvil_term *term) {
  const struct cuvil_problem *problem = p->problem;
  switch (term->kind) {
    case CUVIL_TERM_ACC:
      cuvil_buf_puts(p->out, expr == &problem->prologue ? "x" : "acc");
      break;
    case CUVIL_TERM_OPERAND: {
      const struct cuvil_operand *o = &problem->operands[term->index];
      cuvil_buf_puts(p->out, o->name);
      if (o->dtype != problem->operands[problem->output].dtype)
        cuvil_buf_printf(p->out, ":%s", cuvil_dtype_name(o->dtype));
      print_shape(p, term->index);
      break;
    }
    case CUVIL_TERM_VALUE:
      cuvil_buf_puts(p->out, expr->statements[term->index].name);
      break;
    case CUVIL_TERM_CONSTANT:
      print_scalar(p, term->value);
      break;
  }
}

static void print_expr(const struct printer *p, const char *key,
                       const struct cuvil_expr *expr) {
  if (expr->count == 0) return;
  cuvil_buf_printf(p->out, " %s{", key);
  for (int i = 0; i < expr->count; i++) {
    const struct cuvil_statement *s = &expr->statements[i];
    cuvil_buf_printf(p->out, "%s%s=", i ? "; " : "", s->name);
    bool call = s->op != CUVIL_OP_COPY;
    if (call) cuvil_buf_printf(p->out, "%s(", cuvil_expr_op_name(s->op));
    for (int a = 0; a < cuvil_expr_op_args(s->op); a++) {
      if (a) cuvil_buf_puts(p->out, ",");
      print_term(p, expr, &s->args[a]);
    }
    if (call) cuvil_buf_puts(p->out, ")");
  }
  cuvil_buf_puts(p->out, "}");
}

/* What stands between an attention's or a norm's operands and acc=. */
static void print_attributes(const struct printer *p) {
  const struct cuvil_problem *problem = p->problem;
  if (problem->kind == CUVIL_KIND_ATTENTION) {
    cuvil_buf_puts(p->out, " scale=");
    print_scalar(p, problem->scale);
    cuvil_buf_printf(p->out, " causal=%d", problem->causal);
    if (problem->mask < 0) return;
    cuvil_buf_printf(p->out, " mask=%s",
                     cuvil_dtype_name(problem->operands[problem->mask].dtype));
    print_shape(p, problem->mask);
    cuvil_buf_puts(p->out, problem->mask_keep ? ":keep" : ":add");
  } else if (problem->kind == CUVIL_KIND_NORM &&
             cuvil_norm_has_eps(problem->norm_op)) {
    cuvil_buf_puts(p->out, " eps=");
    print_scalar(p, problem->eps);
  }
}

static void print(const struct printer *p) {
  const struct cuvil_problem *problem = p->problem;
  const struct cuvil_kind_form *form = &cuvil_kind_forms[problem->kind];
  cuvil_buf_printf(p->out, "%s/%d", form->name, problem->version);
  if (problem->kind == CUVIL_KIND_POOL)
    cuvil_buf_printf(p->out, " op=%s", cuvil_pool_op_name(problem->pool_op));
  if (problem->kind == CUVIL_KIND_REDUCE)
    cuvil_buf_printf(p->out, " op=%s",
                     cuvil_reduce_op_name(problem->reduce_op));
  if (problem->kind == CUVIL_KIND_NORM)
    cuvil_buf_printf(p->out, " op=%s", cuvil_norm_op_name(problem->norm_op));
  print_dims(p);
  if (form->window) print_window(p);
  for (int i = 0; i < problem->operand_count; i++) {
    const struct cuvil_operand *o = &problem->operands[i];
    if (o->role == CUVIL_ROLE_SIDE) continue;
    cuvil_buf_printf(p->out, " %s=%s", o->name, cuvil_dtype_name(o->dtype));
    print_shape(p, i);
    if (o->role == CUVIL_ROLE_OUTPUT && i != problem->output)
      cuvil_buf_puts(p->out, ":out");
  }
  print_attributes(p);
  if (form->accumulates) cuvil_buf_puts(p->out, " acc=f32");
  if (problem->tf32) cuvil_buf_puts(p->out, " math=tf32");
  print_expr(p, "pro", &problem->prologue);
  print_expr(p, "epi", &problem->epilogue);
}

void cuvil_problem_print(const struct cuvil_problem *problem,
                         struct cuvil_buf *out) {
  print(&(struct printer){problem, out, false});
}

void cuvil_problem_signature(const struct cuvil_problem *problem,
                             struct cuvil_buf *out) {
  print(&(struct printer){problem, out, true});
}
