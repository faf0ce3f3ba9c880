/* parse_epilogue.c - the statements of prologue and epilogue.
 *
 * A side input declares itself where it is first read; where it is read again
 * it is written out again, and must be the same.
 */
#include <string.h>

#include "problem/parse.h"

static bool same_shape(const struct cuvil_operand *a,
                       const struct cuvil_operand *b) {
  return a->dtype == b->dtype && a->weight == b->weight &&
         a->strided == b->strided && a->rank == b->rank &&
         memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
         memcmp(a->limit, b->limit, sizeof a->limit) == 0 &&
         memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}

/* A side input where it is used: [:dtype][dims]...  Declares it the first
 * time, compares afterwards. */
static enum cuvil_status read_side(struct cuvil_parser *p, const char *name,
                                   const char *at, struct cuvil_term *term) {
  struct cuvil_problem *problem = p->problem;
  struct cuvil_operand side = {
      .role = CUVIL_ROLE_SIDE,
      .dtype = problem->operands[problem->output].dtype};
  memcpy(side.name, name, sizeof side.name);
  if (cuvil_scan_accept(p, ':')) {
    char type[CUVIL_NAME_SIZE];
    cuvil_scan_skip(p);
    const char *type_at = p->at;
    CUVIL_TRY(cuvil_scan_name(p, "a type (f32, f16, bf16, ...)", type));
    side.dtype = cuvil_dtype_find(type, strlen(type));
    if (side.dtype == CUVIL_DTYPE_NONE) {
      p->at = type_at;
      return cuvil_scan_expected(p, "a type (f32, f16, bf16, ...)");
    }
  }
  unsigned flags;
  CUVIL_TRY(cuvil_parse_shape(p, &side, 0, &flags));
  int index = cuvil_problem_find_operand(problem, name);
  if (index < 0) {
    index = problem->operand_count;
    if (index == CUVIL_MAX_OPERANDS)
      return cuvil_scan_wrong(p, at, "more than 16 operands");
    problem->operands[index] = side;
    p->places.operands[index] = cuvil_scan_offset(p, at);
    problem->operand_count++;
  } else if (problem->operands[index].role != CUVIL_ROLE_SIDE) {
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: '%s' is not a side input and "
                      "cannot be read in a statement",
                      cuvil_scan_offset(p, at) + 1, name);
  } else if (!same_shape(&problem->operands[index], &side)) {
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: '%s' was read before with "
                      "another type or shape",
                      cuvil_scan_offset(p, at) + 1, name);
  }
  term->kind = CUVIL_TERM_OPERAND;
  term->index = index;
  return CUVIL_OK;
}

static int find_value(const struct cuvil_expr *expr, const char *name) {
  for (int i = 0; i < expr->count; i++)
    if (strcmp(expr->statements[i].name, name) == 0) return i;
  return -1;
}

/* What the kind hands to the statements. */
static const char *given_name(const struct cuvil_parser *p,
                              const struct cuvil_expr *expr) {
  return expr == &p->problem->prologue ? "x" : "acc";
}

static enum cuvil_status read_constant(struct cuvil_parser *p,
                                       struct cuvil_term *term) {
  float value;
  const char *end = cuvil_number_parse(p->at, &value);
  if (!end)
    return cuvil_scan_expected(p, "acc, a value, an operand or a number");
  bool infinite = value - value != 0;
  if (infinite && end[-1] != 'f')
    return cuvil_scan_wrong(p, p->at, "the number is beyond fp32");
  p->at = end;
  term->kind = CUVIL_TERM_CONSTANT;
  term->value = (double)value;
  return CUVIL_OK;
}

/* `name` was read already, at `at`. */
static enum cuvil_status resolve_term(struct cuvil_parser *p,
                                      const struct cuvil_expr *expr,
                                      const char *name, const char *at,
                                      struct cuvil_term *term) {
  cuvil_scan_skip(p);
  if (*p->at == '[' || *p->at == ':') return read_side(p, name, at, term);
  if (strcmp(name, given_name(p, expr)) == 0) {
    term->kind = CUVIL_TERM_ACC;
    return CUVIL_OK;
  }
  if (strcmp(name, "inf") == 0) {
    p->at = at;
    return read_constant(p, term);
  }
  int value = find_value(expr, name);
  if (value >= 0) {
    term->kind = CUVIL_TERM_VALUE;
    term->index = value;
    return CUVIL_OK;
  }
  if (*p->at == '(')
    return cuvil_scan_wrong(p, at,
                            "a call is a statement of its own: t=op(..); ..");
  p->at = at;
  if (cuvil_problem_find_operand(p->problem, name) >= 0)
    return cuvil_scan_expected(p, "an operand with its dimensions: name[..]");
  return cuvil_scan_expected(
      p, expr == &p->problem->prologue
             ? "x, an earlier value, name[..] or a number"
             : "acc, an earlier value, name[..] or a number");
}

static enum cuvil_status read_term(struct cuvil_parser *p,
                                   const struct cuvil_expr *expr,
                                   struct cuvil_term *term) {
  cuvil_scan_skip(p);
  if (*p->at < 'a' || *p->at > 'z') return read_constant(p, term);
  const char *at = p->at;
  char name[CUVIL_NAME_SIZE];
  CUVIL_TRY(cuvil_scan_name(p, "a term", name));
  return resolve_term(p, expr, name, at, term);
}

static int find_op(const char *name) {
  for (int i = 0; i < CUVIL_OP_COUNT; i++)
    if (strcmp(cuvil_expr_op_name((enum cuvil_expr_op)i), name) == 0) return i;
  return -1;
}

static enum cuvil_status read_call(struct cuvil_parser *p,
                                   const struct cuvil_expr *expr,
                                   const char *name, const char *at,
                                   struct cuvil_statement *statement) {
  int op = find_op(name);
  if (op < 0) {
    p->at = at;
    return cuvil_scan_expected(p, "an operator");
  }
  statement->op = (enum cuvil_expr_op)op;
  CUVIL_TRY(cuvil_scan_require(p, '(', "'('"));
  for (int i = 0; i < cuvil_expr_op_args(statement->op); i++) {
    if (i) CUVIL_TRY(cuvil_scan_require(p, ',', "',' and the next argument"));
    CUVIL_TRY(read_term(p, expr, &statement->args[i]));
  }
  return cuvil_scan_require(p, ')', "')'");
}

static enum cuvil_status read_statement(struct cuvil_parser *p,
                                        struct cuvil_expr *expr, int *places) {
  struct cuvil_problem *problem = p->problem;
  cuvil_scan_skip(p);
  if (expr->count == CUVIL_MAX_STATEMENTS)
    return cuvil_scan_wrong(p, p->at, "more than 32 statements");
  places[expr->count] = cuvil_scan_offset(p, p->at);
  struct cuvil_statement *s = &expr->statements[expr->count];
  CUVIL_TRY(cuvil_scan_name(p, "a name and '='", s->name));
  CUVIL_TRY(cuvil_scan_require(p, '=', "'='"));
  s->output = strcmp(s->name, "out") == 0
                  ? problem->output
                  : cuvil_problem_find_operand(problem, s->name);
  cuvil_scan_skip(p);
  const char *at = p->at;
  if (*at >= 'a' && *at <= 'z') {
    char name[CUVIL_NAME_SIZE];
    CUVIL_TRY(cuvil_scan_name(p, "an expression", name));
    cuvil_scan_skip(p);
    if (*p->at == '(')
      CUVIL_TRY(read_call(p, expr, name, at, s));
    else
      CUVIL_TRY(resolve_term(p, expr, name, at, &s->args[0]));
  } else {
    CUVIL_TRY(read_term(p, expr, &s->args[0]));
  }
  expr->count++;
  return CUVIL_OK;
}

static enum cuvil_status read_statements(struct cuvil_parser *p, const char *at,
                                         struct cuvil_expr *expr, int *places) {
  if (!at) return CUVIL_OK;
  p->at = at;
  do {
    CUVIL_TRY(read_statement(p, expr, places));
  } while (cuvil_scan_accept(p, ';'));
  return cuvil_scan_require(p, '}', "';' or '}'");
}

enum cuvil_status cuvil_parse_expressions(struct cuvil_parser *p) {
  CUVIL_TRY(read_statements(p, p->prologue, &p->problem->prologue,
                            p->places.prologue));
  return read_statements(p, p->epilogue, &p->problem->epilogue,
                         p->places.statements);
}
