/* expression.c - the Python subset that constraints are written in.
 *
 * The subset is the one in which the autotuning community writes constraints,
 * so that spaces can be exchanged; its meaning is Python's: // and % round
 * towards minus infinity, ** binds tighter than a sign before it, comparisons
 * chain, `and` and `or` give an operand.  Numbers are doubles: whole up to
 * 2^53, far beyond any extent or byte count.
 *
 * A recursive-descent parser makes a flat array of nodes, which evaluate.c
 * walks.  The number of nodes is bounded, and with it the depth of both
 * recursions.
 */
#include <stdlib.h>
#include <string.h>

#include "spaces/internal.h"

#define MAX_NODES 400
#define MAX_DEPTH 100

/* ---- parsing */

struct parser {
  struct cuvil_expression *expression;
  const char *at;
  char *name_end;
  int depth;
};

static enum cuvil_status parse_condition(struct parser *p, int *out);

static enum cuvil_status wrong(const struct parser *p, const char *what) {
  const char *text = p->expression->text;
  return CUVIL_FAIL(CU_ERR_PARSE, "expression \"%.200s\", column %d: %s", text,
                    (int)(p->at - text) + 1, what);
}

static enum cuvil_status new_node(struct parser *p, enum cuvil_node_kind kind,
                                  int a, int b, int *out) {
  struct cuvil_expression *e = p->expression;
  if (e->count == MAX_NODES) return wrong(p, "the expression is too long");
  struct cuvil_node *node = &e->nodes[e->count];
  *node =
      (struct cuvil_node){.kind = kind, .a = a, .b = b, .c = -1, .next = -1};
  *out = e->count++;
  return CUVIL_OK;
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static void skip(struct parser *p) {
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
    p->at++;
}

static size_t word_size(const char *at) {
  size_t size = 0;
  if (!is_letter(*at)) return 0;
  while (is_letter(at[size]) || is_digit(at[size]) || at[size] == '.')
    size++;
  return size;
}

static bool is_word(const char *at, size_t size, const char *word) {
  return strlen(word) == size && memcmp(at, word, size) == 0;
}

static bool accept_word(struct parser *p, const char *word) {
  skip(p);
  size_t size = word_size(p->at);
  if (!is_word(p->at, size, word)) return false;
  p->at += size;
  return true;
}

/* The symbol, unless it is only the beginning of a longer one. */
static bool accept(struct parser *p, const char *symbol) {
  skip(p);
  size_t size = strlen(symbol);
  if (strncmp(p->at, symbol, size) != 0) return false;
  if (size == 1 && (*symbol == '*' || *symbol == '/') && p->at[1] == *symbol)
    return false;
  p->at += size;
  return true;
}

static const char *const reserved[] = {"and",  "or",    "not", "if",  "else",
                                       "True", "False", "min", "max", "abs"};

bool cuvil_expression_name_valid(const char *name) {
  size_t size = word_size(name);
  if (size == 0 || name[size] || strchr(name, '.')) return false;
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strcmp(name, reserved[i]) == 0) return false;
  return strcmp(name, "arch") != 0;
}

/* Decimal digits, point, exponent.  Exact as long as the digits make a whole
 * number below 2^53 and the power of ten is one of the 22 that are exact
 * doubles; more is refused rather than rounded twice. */
static enum cuvil_status parse_number(struct parser *p, int *out) {
  double digits = 0;
  int power = 0;
  const char *at = p->at;
  for (bool point = false;; at++) {
    if (*at == '.' && !point) {
      point = true;
    } else if (is_digit(*at)) {
      digits = digits * 10 + (*at - '0');
      power -= point;
      if (digits > 9007199254740992.0)
        return wrong(p, "the number has too many digits");
    } else {
      break;
    }
  }
  if ((*at == 'e' || *at == 'E') &&
      (is_digit(at[1]) ||
       ((at[1] == '-' || at[1] == '+') && is_digit(at[2])))) {
    bool negative = at[1] == '-';
    int exponent = 0;
    for (at += is_digit(at[1]) ? 1 : 2; is_digit(*at); at++)
      if (exponent < 1000) exponent = exponent * 10 + (*at - '0');
    power += negative ? -exponent : exponent;
  }
  if (is_letter(*at)) return wrong(p, "a number ends in a letter");
  if (power > 22 || power < -22)
    return wrong(p, "the number's power of ten is beyond 22");
  double scale = 1;
  for (int i = 0; i < abs(power); i++)
    scale *= 10;
  CUVIL_TRY(new_node(p, CUVIL_NODE_NUMBER, -1, -1, out));
  p->expression->nodes[*out].number =
      power < 0 ? digits / scale : digits * scale;
  p->at = at;
  return CUVIL_OK;
}

static enum cuvil_status parse_call(struct parser *p, enum cuvil_node_kind kind,
                                    int *out) {
  CUVIL_TRY(new_node(p, kind, -1, -1, out));
  int last = -1, arguments = 0;
  do {
    int value = -1, argument = -1;
    CUVIL_TRY(parse_condition(p, &value));
    CUVIL_TRY(new_node(p, CUVIL_NODE_ARGUMENT, value, -1, &argument));
    if (last < 0)
      p->expression->nodes[*out].a = argument;
    else
      p->expression->nodes[last].next = argument;
    last = argument;
    arguments++;
  } while (accept(p, ","));
  if (kind == CUVIL_NODE_ABS && arguments != 1)
    return wrong(p, "abs takes one argument");
  if (!accept(p, ")")) return wrong(p, "expected ',' or ')'");
  return CUVIL_OK;
}

static enum cuvil_status parse_name(struct parser *p, int *out) {
  size_t size = word_size(p->at);
  const char *at = p->at;
  p->at += size;
  if (accept(p, "(")) {
    if (is_word(at, size, "min")) return parse_call(p, CUVIL_NODE_MIN, out);
    if (is_word(at, size, "max")) return parse_call(p, CUVIL_NODE_MAX, out);
    if (is_word(at, size, "abs")) return parse_call(p, CUVIL_NODE_ABS, out);
    p->at = at;
    return wrong(p, "unknown function; there are min, max and abs");
  }
  bool truth = is_word(at, size, "True");
  if (truth || is_word(at, size, "False")) {
    CUVIL_TRY(new_node(p, CUVIL_NODE_NUMBER, -1, -1, out));
    p->expression->nodes[*out].number = truth;
    return CUVIL_OK;
  }
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
    if (!is_word(at, size, reserved[i])) continue;
    p->at = at;
    return wrong(p, "expected a value");
  }
  CUVIL_TRY(new_node(p, CUVIL_NODE_NAME, -1, -1, out));
  p->expression->nodes[*out].name = p->name_end;
  memcpy(p->name_end, at, size);
  p->name_end[size] = 0;
  p->name_end += size + 1;
  return CUVIL_OK;
}

static enum cuvil_status parse_atom(struct parser *p, int *out) {
  if (accept(p, "(")) {
    CUVIL_TRY(parse_condition(p, out));
    return accept(p, ")") ? CUVIL_OK : wrong(p, "expected ')'");
  }
  if (is_digit(*p->at) || (*p->at == '.' && is_digit(p->at[1])))
    return parse_number(p, out);
  if (is_letter(*p->at)) return parse_name(p, out);
  return wrong(p, *p->at ? "expected a value"
                         : "expected a value, found the "
                           "end");
}

/* Signs and powers: -2**2 is -(2**2), 2**-1 is 2**(-1). */
static enum cuvil_status parse_unary(struct parser *p, int *out) {
  if (p->depth == MAX_DEPTH) return wrong(p, "nested too deeply");
  p->depth++;
  if (accept(p, "-")) {
    int value;
    CUVIL_TRY(parse_unary(p, &value));
    CUVIL_TRY(new_node(p, CUVIL_NODE_NEGATE, value, -1, out));
  } else if (accept(p, "+")) {
    CUVIL_TRY(parse_unary(p, out));
  } else {
    CUVIL_TRY(parse_atom(p, out));
    if (accept(p, "**")) {
      int exponent;
      CUVIL_TRY(parse_unary(p, &exponent));
      CUVIL_TRY(new_node(p, CUVIL_NODE_POWER, *out, exponent, out));
    }
  }
  p->depth--;
  return CUVIL_OK;
}

static enum cuvil_status parse_product(struct parser *p, int *out) {
  CUVIL_TRY(parse_unary(p, out));
  for (;;) {
    enum cuvil_node_kind kind;
    if (accept(p, "//"))
      kind = CUVIL_NODE_FLOOR_DIVIDE;
    else if (accept(p, "/"))
      kind = CUVIL_NODE_DIVIDE;
    else if (accept(p, "%"))
      kind = CUVIL_NODE_MODULO;
    else if (accept(p, "*"))
      kind = CUVIL_NODE_MULTIPLY;
    else
      return CUVIL_OK;
    int right;
    CUVIL_TRY(parse_unary(p, &right));
    CUVIL_TRY(new_node(p, kind, *out, right, out));
  }
}

static enum cuvil_status parse_sum(struct parser *p, int *out) {
  CUVIL_TRY(parse_product(p, out));
  for (;;) {
    bool minus = accept(p, "-");
    if (!minus && !accept(p, "+")) return CUVIL_OK;
    int right;
    CUVIL_TRY(parse_product(p, &right));
    CUVIL_TRY(new_node(p, minus ? CUVIL_NODE_SUBTRACT : CUVIL_NODE_ADD, *out,
                       right, out));
  }
}

static bool accept_comparison(struct parser *p, enum cuvil_comparison *out) {
  static const struct {
    const char *symbol;
    enum cuvil_comparison comparison;
  } symbols[] = {{"<=", CUVIL_LESS_EQUAL}, {">=", CUVIL_GREATER_EQUAL},
                 {"==", CUVIL_EQUAL},      {"!=", CUVIL_NOT_EQUAL},
                 {"<", CUVIL_LESS},        {">", CUVIL_GREATER}};
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    if (!accept(p, symbols[i].symbol)) continue;
    *out = symbols[i].comparison;
    return true;
  }
  return false;
}

static enum cuvil_status parse_comparison(struct parser *p, int *out) {
  CUVIL_TRY(parse_sum(p, out));
  enum cuvil_comparison comparison;
  int last = -1;
  while (accept_comparison(p, &comparison)) {
    int right = -1, link = -1;
    CUVIL_TRY(parse_sum(p, &right));
    CUVIL_TRY(new_node(p, CUVIL_NODE_LINK, right, -1, &link));
    p->expression->nodes[link].comparison = comparison;
    if (last < 0)
      CUVIL_TRY(new_node(p, CUVIL_NODE_COMPARE, *out, link, out));
    else
      p->expression->nodes[last].next = link;
    last = link;
  }
  return CUVIL_OK;
}

static enum cuvil_status parse_not(struct parser *p, int *out) {
  if (!accept_word(p, "not")) return parse_comparison(p, out);
  if (p->depth == MAX_DEPTH) return wrong(p, "nested too deeply");
  p->depth++;
  int value;
  CUVIL_TRY(parse_not(p, &value));
  p->depth--;
  return new_node(p, CUVIL_NODE_NOT, value, -1, out);
}

static enum cuvil_status parse_and(struct parser *p, int *out) {
  CUVIL_TRY(parse_not(p, out));
  while (accept_word(p, "and")) {
    int right;
    CUVIL_TRY(parse_not(p, &right));
    CUVIL_TRY(new_node(p, CUVIL_NODE_AND, *out, right, out));
  }
  return CUVIL_OK;
}

static enum cuvil_status parse_or(struct parser *p, int *out) {
  CUVIL_TRY(parse_and(p, out));
  while (accept_word(p, "or")) {
    int right;
    CUVIL_TRY(parse_and(p, &right));
    CUVIL_TRY(new_node(p, CUVIL_NODE_OR, *out, right, out));
  }
  return CUVIL_OK;
}

static enum cuvil_status parse_condition(struct parser *p, int *out) {
  if (p->depth == MAX_DEPTH) return wrong(p, "nested too deeply");
  p->depth++;
  CUVIL_TRY(parse_or(p, out));
  if (accept_word(p, "if")) {
    int condition, other;
    CUVIL_TRY(parse_or(p, &condition));
    if (!accept_word(p, "else")) return wrong(p, "expected 'else'");
    CUVIL_TRY(parse_condition(p, &other));
    CUVIL_TRY(new_node(p, CUVIL_NODE_CONDITION, *out, condition, out));
    p->expression->nodes[*out].c = other;
  }
  p->depth--;
  return CUVIL_OK;
}

enum cuvil_status cuvil_expression_parse(const char *text,
                                         struct cuvil_expression **out) {
  *out = NULL;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_expression *e = calloc(1, sizeof *e);
  if (!e) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "an expression");
  /* Each name needs its NUL, and names are apart by at least one byte. */
  e->text = strdup(text);
  e->names = malloc(strlen(text) + 2);
  e->nodes = malloc(MAX_NODES * sizeof *e->nodes);
  if (!e->text || !e->names || !e->nodes) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "an expression");
    goto fail;
  }
  struct parser p = {.expression = e, .at = e->text, .name_end = e->names};
  CUVIL_TRY_GOTO(parse_condition(&p, &e->root));
  skip(&p);
  if (*p.at) {
    status = wrong(&p, "expected an operator or the end");
    goto fail;
  }
  struct cuvil_node *fitting =
      realloc(e->nodes, (size_t)e->count * sizeof *e->nodes);
  if (fitting) e->nodes = fitting;
  *out = e;
  return CUVIL_OK;
fail:
  cuvil_expression_destroy(e);
  return status;
}

void cuvil_expression_destroy(struct cuvil_expression *expression) {
  if (!expression) return;
  free(expression->text);
  free(expression->names);
  free(expression->nodes);
  free(expression);
}
