/* parse.c - a problem from its text.
 *
 * Two passes without allocation.  The first splits the text into key=value
 * items, so that they may come in any order; the second takes them in the
 * order that the structure needs: dimensions, attributes, operands, epilogue.
 * Every token remembers its column.  What is wrong although it is well-formed
 * is found by check.c, which is told the columns.
 */
#include <stdio.h>
#include <string.h>

#include "problem/internal.h"

enum item_shape { ITEM_NUMBERS, ITEM_WORD, ITEM_OPERAND };

struct item {
  char key[CUVIL_NAME_SIZE];
  const char *at; /* the key */
  enum item_shape shape;
  const char *value;
  int count;
  int64_t numbers[4];
  char word[CUVIL_NAME_SIZE];
  bool used;
};

struct parser {
  const char *text;
  const char *at;
  struct cuvil_problem *problem;
  const struct cuvil_kind_form *form;
  struct cuvil_problem_places places;
  int item_count;
  struct item items[CUVIL_MAX_TEXT_ITEMS];
  const char *epilogue; /* after "epi{"; NULL: none */
  const char *end;      /* the text's terminating NUL */
};

/* ---- tokens */

static bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static void skip(struct parser *p) {
  while (is_space(*p->at))
    p->at++;
}

static int offset(const struct parser *p, const char *at) {
  return (int)(at - p->text);
}

static enum cuvil_status wrong(const struct parser *p, const char *at,
                               const char *what) {
  return CUVIL_FAIL(CU_ERR_PARSE, "problem text, column %d: %s",
                    offset(p, at) + 1, what);
}

static enum cuvil_status expected(const struct parser *p, const char *what) {
  const char *at = p->at;
  if (*at == 0)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: expected %s, found the end",
                      offset(p, at) + 1, what);
  int size = 1;
  while (is_name(*at) && is_name(at[size]) && size < 24)
    size++;
  return CUVIL_FAIL(CU_ERR_PARSE,
                    "problem text, column %d: expected %s, found '%.*s'",
                    offset(p, at) + 1, what, size, at);
}

static bool accept(struct parser *p, char c) {
  skip(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static enum cuvil_status require(struct parser *p, char c, const char *what) {
  return accept(p, c) ? CUVIL_OK : expected(p, what);
}

static enum cuvil_status read_name(struct parser *p, const char *what,
                                   char out[CUVIL_NAME_SIZE]) {
  skip(p);
  memset(out, 0, CUVIL_NAME_SIZE);
  if (*p->at < 'a' || *p->at > 'z') return expected(p, what);
  size_t size = 0;
  while (is_name(p->at[size]))
    size++;
  if (size >= CUVIL_NAME_SIZE)
    return wrong(p, p->at, "a name has at most 15 characters");
  memcpy(out, p->at, size);
  p->at += size;
  return CUVIL_OK;
}

static enum cuvil_status read_integer(struct parser *p, const char *what,
                                      int64_t *out) {
  skip(p);
  *out = 0;
  bool negative = *p->at == '-';
  const char *digits = p->at + negative;
  if (*digits < '0' || *digits > '9') return expected(p, what);
  int64_t value = 0;
  for (; *digits >= '0' && *digits <= '9'; digits++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *digits - '0', &value))
      return wrong(p, p->at, "the number is too large");
  p->at = digits;
  *out = negative ? -value : value;
  return CUVIL_OK;
}

/* ---- first pass: items */

/* Passes over an operand's [..], @(..) and flags; they are read later. */
static enum cuvil_status skip_operand(struct parser *p) {
  static const char open[] = "[(", close[] = "])";
  for (int i = 0; i < 2; i++) {
    skip(p);
    if (i == 1) {
      if (*p->at != '@') break;
      p->at++;
    }
    CUVIL_TRY(require(p, open[i], i ? "'(' and strides" : "'['"));
    const char *end = strchr(p->at, close[i]);
    if (!end) {
      p->at = p->end;
      return expected(p, i ? "')'" : "']'");
    }
    p->at = end + 1;
  }
  char flag[CUVIL_NAME_SIZE];
  while (accept(p, ':'))
    CUVIL_TRY(read_name(p, "a flag", flag));
  return CUVIL_OK;
}

static enum cuvil_status read_value(struct parser *p, struct item *item) {
  skip(p);
  item->value = p->at;
  if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9')) {
    item->shape = ITEM_NUMBERS;
    do {
      if (item->count == 4) return wrong(p, p->at, "more than four numbers");
      CUVIL_TRY(read_integer(p, "a number", &item->numbers[item->count++]));
    } while (accept(p, ','));
    return CUVIL_OK;
  }
  CUVIL_TRY(read_name(p, "a number, a word or a type", item->word));
  skip(p);
  item->shape = *p->at == '[' ? ITEM_OPERAND : ITEM_WORD;
  return item->shape == ITEM_OPERAND ? skip_operand(p) : CUVIL_OK;
}

static enum cuvil_status read_epilogue_item(struct parser *p, const char *at) {
  if (p->epilogue) return wrong(p, at, "a second epilogue");
  CUVIL_TRY(require(p, '{', "'{'"));
  p->epilogue = p->at;
  const char *end = strchr(p->at, '}');
  if (!end) {
    p->at = p->end;
    return expected(p, "'}'");
  }
  p->at = end + 1;
  return CUVIL_OK;
}

static enum cuvil_status read_item(struct parser *p) {
  if (p->item_count == CUVIL_MAX_TEXT_ITEMS)
    return wrong(p, p->at, "too many key=value pairs");
  struct item *item = &p->items[p->item_count];
  memset(item, 0, sizeof *item);
  item->at = p->at;
  CUVIL_TRY(read_name(p, "a key", item->key));
  if (strcmp(item->key, "epi") == 0) return read_epilogue_item(p, item->at);
  CUVIL_TRY(require(p, '=', "'='"));
  CUVIL_TRY(read_value(p, item));
  /* A dimension and an operand may share a name (conv's w), others not. */
  for (int i = 0; i < p->item_count; i++) {
    const struct item *other = &p->items[i];
    if (strcmp(other->key, item->key) == 0 &&
        (other->shape == ITEM_NUMBERS) == (item->shape == ITEM_NUMBERS))
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "problem text, column %d: '%s' is given twice",
                        offset(p, item->at) + 1, item->key);
  }
  p->item_count++;
  return CUVIL_OK;
}

static enum cuvil_status read_kind(struct parser *p) {
  char name[CUVIL_NAME_SIZE];
  skip(p);
  const char *at = p->at;
  CUVIL_TRY(read_name(p, "a kind (gemm, conv, pool, reduce, pointwise)", name));
  int kind = 0;
  while (kind < CUVIL_KIND_COUNT &&
         strcmp(cuvil_kind_forms[kind].name, name) != 0)
    kind++;
  if (kind == CUVIL_KIND_COUNT) {
    p->at = at;
    return expected(p, "a kind (gemm, conv, pool, reduce, pointwise)");
  }
  CUVIL_TRY(require(p, '/', "'/' and the version"));
  int64_t version;
  at = p->at;
  CUVIL_TRY(read_integer(p, "a version", &version));
  if (version != 1)
    return wrong(p, at, "this version of Cuvil knows version 1 of each kind");
  cuvil_problem_begin(kind, p->problem);
  p->form = &cuvil_kind_forms[kind];
  return CUVIL_OK;
}

static enum cuvil_status read_items(struct parser *p) {
  for (skip(p); *p->at; skip(p)) {
    if (!is_space(p->at[-1]) && p->at[-1] != '}')
      return expected(p, "white space before the next key");
    CUVIL_TRY(read_item(p));
  }
  p->end = p->at;
  return CUVIL_OK;
}

/* ---- second pass: dimensions and attributes */

/* The item of that key, numbers or not. */
static struct item *find(struct parser *p, const char *key, bool numbers) {
  for (int i = 0; i < p->item_count; i++)
    if (strcmp(p->items[i].key, key) == 0 &&
        (p->items[i].shape == ITEM_NUMBERS) == numbers)
      return &p->items[i];
  return NULL;
}

static enum cuvil_status take_dims(struct parser *p) {
  struct cuvil_problem *problem = p->problem;
  if (p->form->dims[0]) {
    for (int i = 0; p->form->dims[i]; i++) {
      struct item *item = find(p, problem->dims[i].name, true);
      char what[32];
      snprintf(what, sizeof what, "'%s=' of %s", problem->dims[i].name,
               p->form->name);
      p->at = p->end;
      if (!item) return expected(p, what);
      if (item->count != 1) return wrong(p, item->value, "expected one number");
      problem->dims[i].extent = item->numbers[0];
      p->places.dims[i] = offset(p, item->at);
      item->used = true;
    }
    return CUVIL_OK;
  }
  for (int i = 0; i < p->item_count; i++) {
    struct item *item = &p->items[i];
    if (item->shape != ITEM_NUMBERS || item->count != 1) continue;
    int dim = cuvil_problem_add_dim(problem, item->key, item->numbers[0]);
    if (dim < 0) return wrong(p, item->at, "more than 12 dimensions");
    p->places.dims[dim] = offset(p, item->at);
    item->used = true;
  }
  return CUVIL_OK;
}

/* Numbers under `key` into out, when they are given. */
static enum cuvil_status take_numbers(struct parser *p, const char *key,
                                      int count, int64_t *out, int *place) {
  struct item *item = find(p, key, true), *word = find(p, key, false);
  *place = item ? offset(p, item->at) : offset(p, p->end);
  if (word) {
    p->at = word->value;
    return expected(p, "numbers");
  }
  if (!item) return CUVIL_OK;
  if (item->count != count)
    return CUVIL_FAIL(
        CU_ERR_PARSE, "problem text, column %d: expected %d number%s for %s",
        offset(p, item->value) + 1, count, count == 1 ? "" : "s", key);
  memcpy(out, item->numbers, (size_t)count * sizeof *out);
  item->used = true;
  return CUVIL_OK;
}

/* A word under `key`: its index among the names, *out unchanged when it is not
 * given. */
static enum cuvil_status take_word(struct parser *p, const char *key,
                                   const char *(*name)(int), const char *what,
                                   int *out) {
  struct item *item = find(p, key, false);
  if (!item) return CUVIL_OK;
  p->at = item->value;
  if (item->shape != ITEM_WORD) return expected(p, what);
  for (int i = 0; name(i); i++) {
    if (strcmp(name(i), item->word) != 0) continue;
    *out = i;
    item->used = true;
    return CUVIL_OK;
  }
  return expected(p, what);
}

static const char *pool_word(int i) {
  return cuvil_pool_op_name((enum cuvil_pool_op)i);
}
static const char *reduce_word(int i) {
  return cuvil_reduce_op_name((enum cuvil_reduce_op)i);
}
static const char *acc_word(int i) {
  return i == 0 ? "f32" : NULL;
}
static const char *math_word(int i) {
  return i == 0 ? "tf32" : NULL;
}

static enum cuvil_status take_attributes(struct parser *p) {
  struct cuvil_problem *problem = p->problem;
  struct cuvil_problem_places *at = &p->places;
  if (p->form->window) {
    CUVIL_TRY(take_numbers(p, "stride", 2, problem->stride, &at->stride));
    CUVIL_TRY(take_numbers(p, "pad", 4, problem->pad, &at->pad));
    CUVIL_TRY(take_numbers(p, "dil", 2, problem->dilation, &at->dilation));
  }
  if (p->form->group)
    CUVIL_TRY(take_numbers(p, "group", 1, &problem->group, &at->group));
  int word = -1;
  if (problem->kind == CUVIL_KIND_POOL) {
    const char *what = "op=max, avg or avg_padded";
    CUVIL_TRY(take_word(p, "op", pool_word, what, &word));
    p->at = p->end;
    if (word < 0) return expected(p, what);
    problem->pool_op = (enum cuvil_pool_op)word;
  } else if (problem->kind == CUVIL_KIND_REDUCE) {
    const char *what = "op=sum, mean, max or min";
    CUVIL_TRY(take_word(p, "op", reduce_word, what, &word));
    p->at = p->end;
    if (word < 0) return expected(p, what);
    problem->reduce_op = (enum cuvil_reduce_op)word;
  }
  if (p->form->accumulates)
    CUVIL_TRY(take_word(p, "acc", acc_word, "f32", &word));
  struct item *math = find(p, "math", false);
  at->math = math ? offset(p, math->at) : 0;
  word = -1;
  CUVIL_TRY(take_word(p, "math", math_word, "tf32", &word));
  problem->tf32 = word == 0;
  return CUVIL_OK;
}

/* ---- second pass: operands */

/* From '[': dimensions, limits, strides.  Flags: weight, and out where
 * `extra` asks for it. */
static enum cuvil_status read_shape(struct parser *p,
                                    struct cuvil_operand *operand,
                                    bool *extra) {
  const struct cuvil_problem *problem = p->problem;
  CUVIL_TRY(require(p, '[', "'['"));
  while (!accept(p, ']')) {
    if (operand->rank) CUVIL_TRY(require(p, ',', "',' or ']'"));
    if (operand->rank == CUVIL_MAX_RANK)
      return wrong(p, p->at, "more than 6 dimensions");
    char name[CUVIL_NAME_SIZE];
    skip(p);
    const char *at = p->at;
    CUVIL_TRY(read_name(p, "a dimension", name));
    int dim = cuvil_problem_find_dim(problem, name);
    if (dim < 0) {
      p->at = at;
      return expected(p, "a dimension of the problem");
    }
    operand->dims[operand->rank] = dim;
    if (accept(p, '<')) {
      int64_t limit;
      CUVIL_TRY(read_integer(p, "a limit", &limit));
      if (limit < 1) return wrong(p, at, "a limit must be positive");
      operand->limit[operand->rank] = limit;
    }
    operand->rank++;
  }
  if (accept(p, '@')) {
    CUVIL_TRY(require(p, '(', "'(' and strides"));
    for (int i = 0; i < operand->rank; i++) {
      if (i) CUVIL_TRY(require(p, ',', "',' and one stride a dimension"));
      CUVIL_TRY(read_integer(p, "a stride", &operand->strides[i]));
    }
    CUVIL_TRY(require(p, ')', "')'"));
    operand->strided = operand->rank > 0;
  }
  while (accept(p, ':')) {
    char flag[CUVIL_NAME_SIZE];
    const char *at = p->at;
    CUVIL_TRY(read_name(p, "weight or out", flag));
    if (strcmp(flag, "weight") == 0) {
      operand->weight = true;
    } else if (extra && strcmp(flag, "out") == 0) {
      *extra = true;
    } else {
      p->at = at;
      return expected(p, extra ? "weight or out" : "weight");
    }
  }
  return CUVIL_OK;
}

static enum cuvil_status take_operand(struct parser *p, struct item *item,
                                      enum cuvil_operand_role role,
                                      bool *extra) {
  struct cuvil_problem *problem = p->problem;
  int index = problem->operand_count;
  if (index == CUVIL_MAX_OPERANDS)
    return wrong(p, item->at, "more than 16 operands");
  struct cuvil_operand *operand = &problem->operands[index];
  memcpy(operand->name, item->key, sizeof operand->name);
  operand->role = role;
  operand->dtype = cuvil_dtype_find(item->word, strlen(item->word));
  p->at = item->value;
  if (operand->dtype == CUVIL_DTYPE_NONE)
    return expected(p, "a type (f32, f16, bf16, ...)");
  while (is_name(*p->at))
    p->at++;
  CUVIL_TRY(read_shape(p, operand, extra));
  p->places.operands[index] = offset(p, item->at);
  problem->operand_count++;
  item->used = true;
  return CUVIL_OK;
}

static enum cuvil_status take_operands(struct parser *p) {
  const struct cuvil_kind_form *form = p->form;
  int main = form->operand_count - 1;
  for (int i = 0; i <= main; i++) {
    struct item *item = find(p, form->operands[i], false);
    char what[32];
    snprintf(what, sizeof what, "operand '%s=' of %s", form->operands[i],
             form->name);
    p->at = item ? item->value : p->end;
    if (!item || item->shape != ITEM_OPERAND)
      return expected(p, item ? "a type and dimensions: f16[..]" : what);
    bool extra = false;
    CUVIL_TRY(take_operand(p, item,
                           i == main ? CUVIL_ROLE_OUTPUT : CUVIL_ROLE_INPUT,
                           i == main ? &extra : NULL));
    if (extra) return wrong(p, item->value, "the main output needs no ':out'");
  }
  p->problem->output = main;
  for (int i = 0; i < p->item_count; i++) {
    struct item *item = &p->items[i];
    if (item->used || item->shape != ITEM_OPERAND) continue;
    bool extra = false;
    CUVIL_TRY(take_operand(p, item, CUVIL_ROLE_OUTPUT, &extra));
    if (!extra)
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "problem text, column %d: '%s' is not an operand of "
                        "%s; an extra output is marked ':out'",
                        offset(p, item->at) + 1, item->key, form->name);
  }
  return CUVIL_OK;
}

static enum cuvil_status refuse_unused(const struct parser *p) {
  for (int i = 0; i < p->item_count; i++) {
    const struct item *item = &p->items[i];
    if (item->used) continue;
    if (strcmp(item->key, "batch") == 0 && p->problem->kind == CUVIL_KIND_GEMM)
      return wrong(p, item->at, "batch= is not in gemm/1 yet");
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: '%s' is not a key of %s/1",
                      offset(p, item->at) + 1, item->key, p->form->name);
  }
  return CUVIL_OK;
}

/* ---- second pass: the epilogue */

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
static enum cuvil_status read_side(struct parser *p, const char *name,
                                   const char *at, struct cuvil_term *term) {
  struct cuvil_problem *problem = p->problem;
  struct cuvil_operand side = {
      .role = CUVIL_ROLE_SIDE,
      .dtype = problem->operands[problem->output].dtype};
  memcpy(side.name, name, sizeof side.name);
  if (accept(p, ':')) {
    char type[CUVIL_NAME_SIZE];
    skip(p);
    const char *type_at = p->at;
    CUVIL_TRY(read_name(p, "a type (f32, f16, bf16, ...)", type));
    side.dtype = cuvil_dtype_find(type, strlen(type));
    if (side.dtype == CUVIL_DTYPE_NONE) {
      p->at = type_at;
      return expected(p, "a type (f32, f16, bf16, ...)");
    }
  }
  CUVIL_TRY(read_shape(p, &side, NULL));
  int index = cuvil_problem_find_operand(problem, name);
  if (index < 0) {
    index = problem->operand_count;
    if (index == CUVIL_MAX_OPERANDS)
      return wrong(p, at, "more than 16 operands");
    problem->operands[index] = side;
    p->places.operands[index] = offset(p, at);
    problem->operand_count++;
  } else if (problem->operands[index].role != CUVIL_ROLE_SIDE) {
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: '%s' is not a side input and "
                      "cannot be read in the epilogue",
                      offset(p, at) + 1, name);
  } else if (!same_shape(&problem->operands[index], &side)) {
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: '%s' was read before with "
                      "another type or shape",
                      offset(p, at) + 1, name);
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

static enum cuvil_status read_constant(struct parser *p,
                                       struct cuvil_term *term) {
  float value;
  const char *end = cuvil_number_parse(p->at, &value);
  if (!end) return expected(p, "acc, a value, an operand or a number");
  bool infinite = value - value != 0;
  if (infinite && end[-1] != 'f')
    return wrong(p, p->at, "the number is beyond fp32");
  p->at = end;
  term->kind = CUVIL_TERM_CONSTANT;
  term->value = (double)value;
  return CUVIL_OK;
}

/* `name` was read already, at `at`. */
static enum cuvil_status resolve_term(struct parser *p, const char *name,
                                      const char *at, struct cuvil_term *term) {
  skip(p);
  if (*p->at == '[' || *p->at == ':') return read_side(p, name, at, term);
  if (strcmp(name, "acc") == 0) {
    term->kind = CUVIL_TERM_ACC;
    return CUVIL_OK;
  }
  if (strcmp(name, "inf") == 0) {
    p->at = at;
    return read_constant(p, term);
  }
  int value = find_value(&p->problem->epilogue, name);
  if (value >= 0) {
    term->kind = CUVIL_TERM_VALUE;
    term->index = value;
    return CUVIL_OK;
  }
  if (*p->at == '(')
    return wrong(p, at, "a call is a statement of its own: t=op(..); ..");
  p->at = at;
  if (cuvil_problem_find_operand(p->problem, name) >= 0)
    return expected(p, "an operand with its dimensions: name[..]");
  return expected(p, "acc, an earlier value, name[..] or a number");
}

static enum cuvil_status read_term(struct parser *p, struct cuvil_term *term) {
  skip(p);
  if (*p->at < 'a' || *p->at > 'z') return read_constant(p, term);
  const char *at = p->at;
  char name[CUVIL_NAME_SIZE];
  CUVIL_TRY(read_name(p, "a term", name));
  return resolve_term(p, name, at, term);
}

static int find_op(const char *name) {
  for (int i = 0; i < CUVIL_OP_COUNT; i++)
    if (strcmp(cuvil_expr_op_name((enum cuvil_expr_op)i), name) == 0) return i;
  return -1;
}

static enum cuvil_status read_call(struct parser *p, const char *name,
                                   const char *at,
                                   struct cuvil_statement *statement) {
  int op = find_op(name);
  if (op < 0) {
    p->at = at;
    return expected(p, "an operator");
  }
  statement->op = (enum cuvil_expr_op)op;
  CUVIL_TRY(require(p, '(', "'('"));
  for (int i = 0; i < cuvil_expr_op_args(statement->op); i++) {
    if (i) CUVIL_TRY(require(p, ',', "',' and the next argument"));
    CUVIL_TRY(read_term(p, &statement->args[i]));
  }
  return require(p, ')', "')'");
}

static enum cuvil_status read_statement(struct parser *p) {
  struct cuvil_problem *problem = p->problem;
  struct cuvil_expr *expr = &problem->epilogue;
  skip(p);
  if (expr->count == CUVIL_MAX_STATEMENTS)
    return wrong(p, p->at, "more than 32 statements");
  p->places.statements[expr->count] = offset(p, p->at);
  struct cuvil_statement *s = &expr->statements[expr->count];
  CUVIL_TRY(read_name(p, "a name and '='", s->name));
  CUVIL_TRY(require(p, '=', "'='"));
  s->output = strcmp(s->name, "out") == 0
                  ? problem->output
                  : cuvil_problem_find_operand(problem, s->name);
  skip(p);
  const char *at = p->at;
  if (*at >= 'a' && *at <= 'z') {
    char name[CUVIL_NAME_SIZE];
    CUVIL_TRY(read_name(p, "an expression", name));
    skip(p);
    if (*p->at == '(')
      CUVIL_TRY(read_call(p, name, at, s));
    else
      CUVIL_TRY(resolve_term(p, name, at, &s->args[0]));
  } else {
    CUVIL_TRY(read_term(p, &s->args[0]));
  }
  expr->count++;
  return CUVIL_OK;
}

static enum cuvil_status read_epilogue(struct parser *p) {
  if (!p->epilogue) return CUVIL_OK;
  p->at = p->epilogue;
  do {
    CUVIL_TRY(read_statement(p));
  } while (accept(p, ';'));
  return require(p, '}', "';' or '}'");
}

enum cuvil_status cuvil_problem_parse(const char *text,
                                      struct cuvil_problem *out_problem) {
  struct parser p;
  memset(out_problem, 0, sizeof *out_problem);
  p.text = p.at = text;
  p.problem = out_problem;
  p.item_count = 0;
  p.epilogue = NULL;
  p.end = text + strlen(text);
  p.places = (struct cuvil_problem_places){0};
  CUVIL_TRY(read_kind(&p));
  CUVIL_TRY(read_items(&p));
  p.places.end = offset(&p, p.end);
  CUVIL_TRY(take_dims(&p));
  CUVIL_TRY(take_attributes(&p));
  CUVIL_TRY(take_operands(&p));
  CUVIL_TRY(refuse_unused(&p));
  CUVIL_TRY(read_epilogue(&p));
  return cuvil_problem_check(out_problem, &p.places);
}
