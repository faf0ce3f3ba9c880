/* check.c - the rules that make a well-formed text a problem.
 *
 * Both ways to a problem end here: parse, which knows the column of
 * everything, and finish, for problems built by hand.  What can be computed is
 * computed on the way (output extents, packed strides), and what would make
 * two spellings of one problem is made one: strides that are the packed ones,
 * an epilogue that only copies the accumulator, constants beyond fp32.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "problem/internal.h"

struct check {
  struct cuvil_problem *problem;
  const struct cuvil_kind_form *form;
  const struct cuvil_problem_places *places; /* NULL: built by hand */
};

/* The place of member `m` in the text, or -1 where there is no text. */
#define AT(c, m) ((c)->places ? (c)->places->m : -1)

static enum cuvil_status bad(int at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum cuvil_status bad(int at, const char *format, ...) {
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (at < 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "problem: %s", message);
  return CUVIL_FAIL(CU_ERR_PARSE, "problem text, column %d: %s", at + 1,
                    message);
}

/* ---- dimensions and window */

static enum cuvil_status check_fixed_dims(const struct check *c) {
  const struct cuvil_problem *p = c->problem;
  char expected[CUVIL_MAX_DIMS + 1];
  snprintf(expected, sizeof expected, "%s%s", c->form->dims, c->form->derived);
  bool same = p->dim_count == (int)strlen(expected);
  for (int i = 0; same && i < p->dim_count; i++)
    same = p->dims[i].name[0] == expected[i] && p->dims[i].name[1] == 0;
  if (!same)
    return bad(AT(c, end), "%s has the dimensions %s, in this order",
               c->form->name, expected);
  return CUVIL_OK;
}

static enum cuvil_status check_dims(const struct check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->dim_count < 0 || p->dim_count > CUVIL_MAX_DIMS)
    return bad(AT(c, end), "more than %d dimensions", CUVIL_MAX_DIMS);
  if (c->form->dims[0]) CUVIL_TRY(check_fixed_dims(c));
  /* An empty tensor is a fact of models for the kinds that only map. */
  int64_t least = c->form->dims[0] ? 1 : 0;
  int given = p->dim_count - (int)strlen(c->form->derived);
  for (int i = 0; i < p->dim_count; i++) {
    struct cuvil_dim *dim = &p->dims[i];
    dim->derived = i >= given;
    if (dim->derived) continue;
    bool letter = dim->name[0] >= 'a' && dim->name[0] <= 'z';
    bool digit = dim->name[1] >= '0' && dim->name[1] <= '9';
    if (!letter || (dim->name[1] && (!digit || dim->name[2])))
      return bad(AT(c, dims[i]),
                 "dimension '%.15s': a name is one lower-case letter, or one "
                 "and a digit",
                 dim->name);
    for (int j = 0; j < i; j++)
      if (strcmp(p->dims[j].name, dim->name) == 0)
        return bad(AT(c, dims[i]), "dimension '%s' is given twice", dim->name);
    if (dim->extent < least || dim->extent > CUVIL_MAX_EXTENT)
      return bad(AT(c, dims[i]),
                 "dimension %s=%" PRId64 " must be from %" PRId64
                 " to %" PRId64,
                 dim->name, dim->extent, least, CUVIL_MAX_EXTENT);
  }
  return CUVIL_OK;
}

static enum cuvil_status check_range(const struct check *c, int at,
                                     const char *key, const int64_t *numbers,
                                     int count, int64_t least) {
  for (int i = 0; i < count; i++)
    if (numbers[i] < least || numbers[i] > 65535)
      return bad(at, "%s holds %" PRId64 "; each must be from %d to 65535", key,
                 numbers[i], (int)least);
  (void)c;
  return CUVIL_OK;
}

/* Output extents: floor((in + pads - dil*(window-1) - 1) / stride) + 1. */
static enum cuvil_status check_window(const struct check *c) {
  struct cuvil_problem *p = c->problem;
  if (!c->form->window) {
    memset(p->stride, 0, sizeof p->stride);
    memset(p->pad, 0, sizeof p->pad);
    memset(p->dilation, 0, sizeof p->dilation);
    return CUVIL_OK;
  }
  CUVIL_TRY(check_range(c, AT(c, stride), "stride", p->stride, 2, 1));
  CUVIL_TRY(check_range(c, AT(c, pad), "pad", p->pad, 4, 0));
  CUVIL_TRY(check_range(c, AT(c, dilation), "dil", p->dilation, 2, 1));
  static const char *const names[2][3] = {{"h", "r", "p"}, {"w", "s", "q"}};
  for (int axis = 0; axis < 2; axis++) {
    int in = cuvil_problem_find_dim(p, names[axis][0]);
    int window = cuvil_problem_find_dim(p, names[axis][1]);
    int out = cuvil_problem_find_dim(p, names[axis][2]);
    int64_t covered = p->dilation[axis] * (p->dims[window].extent - 1) + 1;
    int64_t padded = p->dims[in].extent + p->pad[axis] + p->pad[axis + 2];
    if (covered > padded)
      return bad(AT(c, dims[window]),
                 "the window covers %" PRId64
                 " of %s, more than the padded "
                 "input's %" PRId64,
                 covered, p->dims[in].name, padded);
    p->dims[out].extent = (padded - covered) / p->stride[axis] + 1;
  }
  return CUVIL_OK;
}

static enum cuvil_status check_group(const struct check *c) {
  struct cuvil_problem *p = c->problem;
  if (!c->form->group) {
    p->group = 1;
    return CUVIL_OK;
  }
  if (p->group < 1)
    return bad(AT(c, group), "group=%" PRId64 " must be positive", p->group);
  for (int i = 0; i < 2; i++) {
    const struct cuvil_dim *dim =
        &p->dims[i ? CUVIL_CONV_DIM_K : CUVIL_CONV_DIM_C];
    if (dim->extent % p->group)
      return bad(AT(c, group), "group=%" PRId64 " does not divide %s=%" PRId64,
                 p->group, dim->name, dim->extent);
  }
  return CUVIL_OK;
}

/* ---- operands */

static enum cuvil_status check_strides(const struct check *c, int index) {
  struct cuvil_problem *p = c->problem;
  struct cuvil_operand *o = &p->operands[index];
  int64_t packed[CUVIL_MAX_RANK] = {0}, next = 1;
  bool same = true;
  for (int i = o->rank - 1; i >= 0; i--) {
    packed[i] = next;
    same = same && o->strides[i] == packed[i];
    int64_t extent = cuvil_operand_extent(p, index, i);
    if (__builtin_mul_overflow(next, extent ? extent : 1, &next) ||
        next > CUVIL_MAX_ELEMENTS)
      return bad(AT(c, operands[index]), "operand '%s' is too large", o->name);
  }
  if (!o->strided || same) {
    o->strided = false;
    memcpy(o->strides, packed, sizeof packed);
    return CUVIL_OK;
  }
  for (int i = 0; i < CUVIL_MAX_RANK; i++) {
    if (i >= o->rank) {
      o->strides[i] = 0;
      continue;
    }
    if (o->strides[i] < 1 || o->strides[i] > CUVIL_MAX_ELEMENTS ||
        cuvil_operand_extent(p, index, i) * (__int128)o->strides[i] >
            CUVIL_MAX_ELEMENTS)
      return bad(AT(c, operands[index]),
                 "operand '%s': stride %" PRId64 " is out of range", o->name,
                 o->strides[i]);
  }
  return CUVIL_OK;
}

/* Two coordinates of an output may not be one element: going through the
 * dimensions by rising stride, each must step over all that lies below. */
static enum cuvil_status check_overlap(const struct check *c, int index) {
  const struct cuvil_problem *p = c->problem;
  const struct cuvil_operand *o = &p->operands[index];
  bool done[CUVIL_MAX_RANK] = {false};
  int64_t covered = 1;
  for (int step = 0; step < o->rank; step++) {
    int least = -1;
    for (int i = 0; i < o->rank; i++)
      if (!done[i] && cuvil_operand_extent(p, index, i) > 1 &&
          (least < 0 || o->strides[i] < o->strides[least]))
        least = i;
    if (least < 0) break;
    if (o->strides[least] < covered)
      return bad(AT(c, operands[index]),
                 "output '%s': its strides make elements overlap", o->name);
    covered += (cuvil_operand_extent(p, index, least) - 1) * o->strides[least];
    done[least] = true;
  }
  return CUVIL_OK;
}

static enum cuvil_status check_operand(const struct check *c, int index) {
  struct cuvil_problem *p = c->problem;
  struct cuvil_operand *o = &p->operands[index];
  int at = AT(c, operands[index]);
  if (!cuvil_name_valid(o->name) || strcmp(o->name, "acc") == 0 ||
      strcmp(o->name, "out") == 0 || strcmp(o->name, "inf") == 0)
    return bad(at, "'%.15s' cannot be the name of an operand", o->name);
  for (int i = 0; i < index; i++)
    if (strcmp(p->operands[i].name, o->name) == 0)
      return bad(at, "operand '%s' is given twice", o->name);
  if (cuvil_dtype_size(o->dtype) == 0)
    return bad(at, "operand '%s' has no type", o->name);
  if (o->rank < 0 || o->rank > CUVIL_MAX_RANK)
    return bad(at, "operand '%s' has more than %d dimensions", o->name,
               CUVIL_MAX_RANK);
  for (int i = 0; i < o->rank; i++) {
    if (o->dims[i] < 0 || o->dims[i] >= p->dim_count)
      return bad(at, "operand '%s' has an unknown dimension", o->name);
    for (int j = 0; j < i; j++)
      if (o->dims[j] == o->dims[i])
        return bad(at, "operand '%s' has dimension '%s' twice", o->name,
                   p->dims[o->dims[i]].name);
    int64_t limit = o->limit[i];
    o->limit[i] = 0;
    int64_t extent = cuvil_operand_extent(p, index, i);
    if (limit && (limit < 1 || limit >= extent))
      return bad(at,
                 "operand '%s': the limit of '%s' must be from 1 to below its "
                 "extent %" PRId64,
                 o->name, p->dims[o->dims[i]].name, extent);
    if (limit && o->role == CUVIL_ROLE_OUTPUT)
      return bad(at, "output '%s' cannot have a limit", o->name);
    o->limit[i] = limit;
  }
  for (int i = o->rank; i < CUVIL_MAX_RANK; i++)
    o->dims[i] = o->limit[i] = 0;
  CUVIL_TRY(check_strides(c, index));
  if (o->role == CUVIL_ROLE_OUTPUT) {
    if (o->weight) return bad(at, "output '%s' cannot be a weight", o->name);
    CUVIL_TRY(check_overlap(c, index));
  }
  return CUVIL_OK;
}

/* Does the operand have exactly these dimensions, in any order? */
static bool has_dims(const struct cuvil_problem *p,
                     const struct cuvil_operand *o, const char *letters) {
  if (o->rank != (int)strlen(letters)) return false;
  for (int i = 0; i < o->rank; i++) {
    const char *name = p->dims[o->dims[i]].name;
    if (name[1] || !strchr(letters, name[0])) return false;
  }
  return true;
}

/* Every dimension of `inner` is one of `outer`. */
static bool within(const struct cuvil_operand *inner,
                   const struct cuvil_operand *outer) {
  for (int i = 0; i < inner->rank; i++)
    if (!cuvil_operand_has_dim(outer, inner->dims[i])) return false;
  return true;
}

/* The operands that the kind fixes: names, roles, dimensions. */
static enum cuvil_status check_form(const struct check *c) {
  struct cuvil_problem *p = c->problem;
  const struct cuvil_kind_form *form = c->form;
  int main = form->operand_count - 1;
  for (int i = 0; i < form->operand_count; i++) {
    const struct cuvil_operand *o = &p->operands[i];
    if (i >= p->operand_count || strcmp(o->name, form->operands[i]) != 0)
      return bad(AT(c, end), "operand '%s' of %s is missing", form->operands[i],
                 form->name);
    if (o->role != (i == main ? CUVIL_ROLE_OUTPUT : CUVIL_ROLE_INPUT))
      return bad(AT(c, operands[i]), "operand '%s' has the wrong role",
                 o->name);
    if (form->operand_dims[i] && !has_dims(p, o, form->operand_dims[i]))
      return bad(AT(c, operands[i]),
                 "operand '%s' of %s must have the dimensions %s, in any order",
                 o->name, form->name, form->operand_dims[i]);
    if (form->accumulates && i != main && o->dtype != CUVIL_F32 &&
        o->dtype != CUVIL_F16 && o->dtype != CUVIL_BF16)
      return bad(AT(c, operands[i]),
                 "operand '%s' of %s must be f32, f16 or bf16", o->name,
                 form->name);
  }
  if (p->output != main)
    return bad(AT(c, end), "the main output must be operand %d", main);
  if (form->contracts && p->operands[0].dtype != p->operands[1].dtype)
    return bad(AT(c, operands[1]), "operands '%s' and '%s' differ in type",
               p->operands[0].name, p->operands[1].name);
  if (p->tf32 && !(form->contracts && p->operands[0].dtype == CUVIL_F32))
    return bad(AT(c, math), "math=tf32 needs a contraction of f32 operands");
  return CUVIL_OK;
}

/* Where the kind names its own dimensions: none may be idle. */
static enum cuvil_status check_free_dims(const struct check *c) {
  const struct cuvil_problem *p = c->problem;
  const struct cuvil_operand *whole = &p->operands[0]; /* x, or y */
  for (int i = 0; i < p->dim_count; i++)
    if (!cuvil_operand_has_dim(whole, i))
      return bad(AT(c, dims[i]), "dimension '%s' is not one of '%s'",
                 p->dims[i].name, whole->name);
  if (p->kind != CUVIL_KIND_REDUCE) return CUVIL_OK;
  if (!cuvil_reduce_op_name(p->reduce_op))
    return bad(AT(c, end), "unknown reduction");
  for (int i = 0; i < p->dim_count; i++)
    if (p->dims[i].extent == 0 && p->reduce_op == CUVIL_REDUCE_MEAN &&
        !cuvil_operand_has_dim(&p->operands[CUVIL_REDUCE_Y], i))
      return bad(AT(c, dims[i]), "%s=0: there is no mean of no elements",
                 p->dims[i].name);
  return CUVIL_OK;
}

static enum cuvil_status check_operands(const struct check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->operand_count < 0 || p->operand_count > CUVIL_MAX_OPERANDS)
    return bad(AT(c, end), "more than %d operands", CUVIL_MAX_OPERANDS);
  for (int i = 0; i < p->operand_count; i++)
    CUVIL_TRY(check_operand(c, i));
  CUVIL_TRY(check_form(c));
  if (!c->form->dims[0]) CUVIL_TRY(check_free_dims(c));
  if (p->kind == CUVIL_KIND_POOL && !cuvil_pool_op_name(p->pool_op))
    return bad(AT(c, end), "unknown pooling");
  const struct cuvil_operand *main = &p->operands[p->output];
  enum cuvil_operand_role last = CUVIL_ROLE_OUTPUT;
  for (int i = c->form->operand_count; i < p->operand_count; i++) {
    const struct cuvil_operand *o = &p->operands[i];
    if (o->role == CUVIL_ROLE_INPUT || o->role > CUVIL_ROLE_OUTPUT + 1 ||
        (o->role == CUVIL_ROLE_OUTPUT && last == CUVIL_ROLE_SIDE))
      return bad(AT(c, operands[i]),
                 "operand '%s' is out of order: inputs, outputs, side inputs",
                 o->name);
    last = o->role;
    if (!within(o, main))
      return bad(AT(c, operands[i]),
                 "operand '%s' has a dimension that output '%s' has not",
                 o->name, main->name);
    if (o->role == CUVIL_ROLE_OUTPUT && o->rank != main->rank)
      return bad(AT(c, operands[i]),
                 "extra output '%s' must have all dimensions of '%s'", o->name,
                 main->name);
  }
  return CUVIL_OK;
}

/* ---- the epilogue */

/* next_side: the side operand that has to be met next. */
static enum cuvil_status check_term(const struct check *c, int statement,
                                    struct cuvil_term *term, int *next_side) {
  struct cuvil_problem *p = c->problem;
  int at = AT(c, statements[statement]);
  const char *name = p->epilogue.statements[statement].name;
  if (term->kind != CUVIL_TERM_CONSTANT) term->value = 0;
  switch (term->kind) {
    case CUVIL_TERM_ACC:
      term->index = 0;
      if (!c->form->accumulates)
        return bad(at, "'%s': %s has no acc", name, c->form->name);
      return CUVIL_OK;
    case CUVIL_TERM_OPERAND:
      if (term->index < 0 || term->index >= p->operand_count ||
          p->operands[term->index].role != CUVIL_ROLE_SIDE)
        return bad(at, "'%s' reads an operand that is not a side input", name);
      if (term->index > *next_side)
        return bad(at,
                   "'%s' reads '%s' before '%s': side inputs must stand in the "
                   "order of their first use",
                   name, p->operands[term->index].name,
                   p->operands[*next_side].name);
      if (term->index == *next_side) ++*next_side;
      return CUVIL_OK;
    case CUVIL_TERM_VALUE:
      if (term->index < 0 || term->index >= statement)
        return bad(at, "'%s' reads a value that is not yet computed", name);
      return CUVIL_OK;
    case CUVIL_TERM_CONSTANT:
      term->index = 0;
      term->value = (double)(float)term->value;
      if (isnan(term->value)) return bad(at, "'%s' has a NaN constant", name);
      return CUVIL_OK;
  }
  return bad(at, "'%s' has an argument of unknown kind", name);
}

static enum cuvil_status check_statement_name(const struct check *c, int i) {
  const struct cuvil_problem *p = c->problem;
  const struct cuvil_expr *expr = &p->epilogue;
  const struct cuvil_statement *s = &expr->statements[i];
  int at = AT(c, statements[i]);
  bool out = strcmp(s->name, "out") == 0;
  if (!cuvil_name_valid(s->name) || strcmp(s->name, "acc") == 0 ||
      strcmp(s->name, "inf") == 0)
    return bad(at, "'%.15s' cannot be the name of a value", s->name);
  for (int j = 0; j < i; j++)
    if (strcmp(expr->statements[j].name, s->name) == 0)
      return bad(at, "'%s' is assigned twice", s->name);
  if (out != (i == expr->count - 1))
    return bad(at,
               out ? "'out' must be assigned last"
                   : "the last statement must assign 'out', not '%s'",
               s->name);
  int operand = cuvil_problem_find_operand(p, s->name);
  if (out) operand = p->output;
  if (operand >= 0 && p->operands[operand].role != CUVIL_ROLE_OUTPUT)
    return bad(at, "'%s' is an input and cannot be assigned", s->name);
  if (operand >= 0 && !out && operand == p->output)
    return bad(at, "assign the main output '%s' as 'out'", s->name);
  if (s->output != operand)
    return bad(at, "'%s' writes another operand than its name says", s->name);
  return CUVIL_OK;
}

static enum cuvil_status check_epilogue(const struct check *c) {
  struct cuvil_problem *p = c->problem;
  struct cuvil_expr *expr = &p->epilogue;
  if (expr->count < 0 || expr->count > CUVIL_MAX_STATEMENTS)
    return bad(AT(c, end), "more than %d statements", CUVIL_MAX_STATEMENTS);
  if (expr->count == 0 && !c->form->accumulates)
    return bad(AT(c, end), "%s needs an epilogue: epi{out=...}", c->form->name);
  int next_side = c->form->operand_count;
  while (next_side < p->operand_count &&
         p->operands[next_side].role == CUVIL_ROLE_OUTPUT)
    next_side++;
  for (int i = 0; i < expr->count; i++) {
    struct cuvil_statement *s = &expr->statements[i];
    if ((unsigned)s->op >= CUVIL_OP_COUNT)
      return bad(AT(c, statements[i]), "unknown operator");
    CUVIL_TRY(check_statement_name(c, i));
    for (int a = 0; a < cuvil_expr_op_args(s->op); a++)
      CUVIL_TRY(check_term(c, i, &s->args[a], &next_side));
    for (int a = cuvil_expr_op_args(s->op); a < CUVIL_MAX_ARGS; a++)
      memset(&s->args[a], 0, sizeof s->args[a]);
  }
  if (next_side < p->operand_count)
    return bad(AT(c, end), "side input '%s' is never read",
               p->operands[next_side].name);
  for (int i = c->form->operand_count; i < p->operand_count; i++) {
    if (p->operands[i].role != CUVIL_ROLE_OUTPUT) continue;
    bool written = false;
    for (int j = 0; j < expr->count; j++)
      written = written || expr->statements[j].output == i;
    if (!written)
      return bad(AT(c, operands[i]), "extra output '%s' is never assigned",
                 p->operands[i].name);
  }
  if (expr->count == 1 && expr->statements[0].op == CUVIL_OP_COPY &&
      expr->statements[0].args[0].kind == CUVIL_TERM_ACC)
    memset(expr, 0, sizeof *expr);
  return CUVIL_OK;
}

enum cuvil_status cuvil_problem_check(
    struct cuvil_problem *problem, const struct cuvil_problem_places *places) {
  struct check c = {.problem = problem, .places = places};
  if ((unsigned)problem->kind >= CUVIL_KIND_COUNT)
    return bad(AT(&c, end), "unknown kind");
  c.form = &cuvil_kind_forms[problem->kind];
  if (problem->version != 1)
    return bad(AT(&c, end), "%s/%d: this version of Cuvil knows %s/1",
               c.form->name, problem->version, c.form->name);
  CUVIL_TRY(check_dims(&c));
  CUVIL_TRY(check_window(&c));
  CUVIL_TRY(check_group(&c));
  CUVIL_TRY(check_operands(&c));
  return check_epilogue(&c);
}
