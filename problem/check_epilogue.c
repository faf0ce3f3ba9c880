/* check_epilogue.c - the rules of the statements, in prologue and epilogue:
 * single assignment, everything computed before it is read, and side inputs in
 * the order of their first use, so that a text says all of a problem.
 */
#include <math.h>
#include <string.h>

#include "problem/check.h"

/* The expression that is being looked at. */
struct walk {
  const struct cuvil_check *c;
  struct cuvil_expr *expr;
  const int *places; /* of its statements; NULL: no text */
  bool prologue;
  int next_side; /* the side operand that has to be met next */
};

static int at_statement(const struct walk *w, int i) {
  return w->places ? w->places[i] : -1;
}

static enum cuvil_status check_term(struct walk *w, int statement,
                                    struct cuvil_term *term) {
  const struct cuvil_problem *p = w->c->problem;
  int at = at_statement(w, statement);
  const char *name = w->expr->statements[statement].name;
  if (term->kind != CUVIL_TERM_CONSTANT) term->value = 0;
  switch (term->kind) {
    case CUVIL_TERM_ACC:
      term->index = 0;
      if (!w->prologue && !w->c->form->acc)
        return cuvil_check_bad(at, "'%s': %s has no acc", name,
                               w->c->form->name);
      return CUVIL_OK;
    case CUVIL_TERM_OPERAND:
      if (term->index < 0 || term->index >= p->operand_count ||
          p->operands[term->index].role != CUVIL_ROLE_SIDE)
        return cuvil_check_bad(
            at, "'%s' reads an operand that is not a side input", name);
      if (term->index > w->next_side)
        return cuvil_check_bad(
            at,
            "'%s' reads '%s' before '%s': side inputs must stand in the "
            "order of their first use",
            name, p->operands[term->index].name,
            p->operands[w->next_side].name);
      if (term->index == w->next_side) w->next_side++;
      return CUVIL_OK;
    case CUVIL_TERM_VALUE:
      if (term->index < 0 || term->index >= statement)
        return cuvil_check_bad(
            at, "'%s' reads a value that is not yet computed", name);
      return CUVIL_OK;
    case CUVIL_TERM_CONSTANT:
      term->index = 0;
      term->value = (double)(float)term->value;
      if (isnan(term->value))
        return cuvil_check_bad(at, "'%s' has a NaN constant", name);
      return CUVIL_OK;
  }
  return cuvil_check_bad(at, "'%s' has an argument of unknown kind", name);
}

/* Prologue and epilogue share one name space. */
static bool named_in_prologue(const struct walk *w, const char *name) {
  const struct cuvil_expr *other = &w->c->problem->prologue;
  for (int i = 0; !w->prologue && i < other->count; i++)
    if (strcmp(other->statements[i].name, name) == 0) return true;
  return false;
}

static enum cuvil_status check_statement_name(const struct walk *w, int i) {
  const struct cuvil_problem *p = w->c->problem;
  const struct cuvil_expr *expr = w->expr;
  const struct cuvil_statement *s = &expr->statements[i];
  int at = at_statement(w, i);
  bool out = strcmp(s->name, "out") == 0;
  if (!cuvil_name_valid(s->name) || strcmp(s->name, "acc") == 0 ||
      strcmp(s->name, "inf") == 0 || (w->prologue && out))
    return cuvil_check_bad(at, "'%.15s' cannot be the name of a value",
                           s->name);
  for (int j = 0; j < i; j++)
    if (strcmp(expr->statements[j].name, s->name) == 0)
      return cuvil_check_bad(at, "'%s' is assigned twice", s->name);
  if (named_in_prologue(w, s->name))
    return cuvil_check_bad(at, "'%s' is assigned in the prologue", s->name);
  if (!w->prologue && out != (i == expr->count - 1))
    return cuvil_check_bad(
        at,
        out ? "'out' must be assigned last"
            : "the last statement must assign 'out', not '%s'",
        s->name);
  int operand = cuvil_problem_find_operand(p, s->name);
  if (out) operand = p->output;
  if (operand >= 0 && p->operands[operand].role != CUVIL_ROLE_OUTPUT)
    return cuvil_check_bad(at, "'%s' is an input and cannot be assigned",
                           s->name);
  if (operand >= 0 && !out && operand == p->output)
    return cuvil_check_bad(at, "assign the main output '%s' as 'out'", s->name);
  if (s->output != operand)
    return cuvil_check_bad(at, "'%s' writes another operand than its name says",
                           s->name);
  return CUVIL_OK;
}

static enum cuvil_status check_statements(struct walk *w) {
  struct cuvil_expr *expr = w->expr;
  if (expr->count < 0 || expr->count > CUVIL_MAX_STATEMENTS)
    return cuvil_check_bad(CUVIL_CHECK_AT(w->c, end), "more than %d statements",
                           CUVIL_MAX_STATEMENTS);
  for (int i = 0; i < expr->count; i++) {
    struct cuvil_statement *s = &expr->statements[i];
    if ((unsigned)s->op >= CUVIL_OP_COUNT)
      return cuvil_check_bad(at_statement(w, i), "unknown operator");
    CUVIL_TRY(check_statement_name(w, i));
    for (int a = 0; a < cuvil_expr_op_args(s->op); a++)
      CUVIL_TRY(check_term(w, i, &s->args[a]));
    for (int a = cuvil_expr_op_args(s->op); a < CUVIL_MAX_ARGS; a++)
      memset(&s->args[a], 0, sizeof s->args[a]);
  }
  return CUVIL_OK;
}

static bool writes(const struct cuvil_expr *expr, int operand) {
  for (int i = 0; i < expr->count; i++)
    if (expr->statements[i].output == operand) return true;
  return false;
}

/* One statement that copies what it is given into nothing but the result. */
static void drop_copy(struct cuvil_expr *expr, int result) {
  if (expr->count == 1 && expr->statements[0].op == CUVIL_OP_COPY &&
      expr->statements[0].args[0].kind == CUVIL_TERM_ACC &&
      expr->statements[0].output == result)
    memset(expr, 0, sizeof *expr);
}

enum cuvil_status cuvil_check_expressions(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  const struct cuvil_kind_form *form = c->form;
  if (p->prologue.count && p->kind != CUVIL_KIND_NORM)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, prologue[0]), "%s has no prologue",
                           form->name);
  if (p->epilogue.count && form->bare)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, statements[0]),
                           "%s has no epilogue", form->name);
  if (p->epilogue.count == 0 && !form->acc && !form->bare)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end),
                           "%s needs an epilogue: epi{out=...}", form->name);
  struct walk w = {.c = c, .expr = &p->prologue, .prologue = true};
  w.places = c->places ? c->places->prologue : NULL;
  w.next_side = p->mask < 0 ? form->operand_count : p->mask + 1;
  while (w.next_side < p->operand_count &&
         p->operands[w.next_side].role == CUVIL_ROLE_OUTPUT)
    w.next_side++;
  CUVIL_TRY(check_statements(&w));
  w.expr = &p->epilogue;
  w.places = c->places ? c->places->statements : NULL;
  w.prologue = false;
  CUVIL_TRY(check_statements(&w));
  if (w.next_side < p->operand_count)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end),
                           "side input '%s' is never read",
                           p->operands[w.next_side].name);
  for (int i = form->operand_count; i < p->operand_count; i++)
    if (p->operands[i].role == CUVIL_ROLE_OUTPUT && !writes(&p->prologue, i) &&
        !writes(&p->epilogue, i))
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[i]),
                             "extra output '%s' is never assigned",
                             p->operands[i].name);
  drop_copy(&p->prologue, -1);
  drop_copy(&p->epilogue, p->output);
  return CUVIL_OK;
}
