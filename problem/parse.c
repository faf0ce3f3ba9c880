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

#include "problem/parse.h"

/* ---- first pass: items */

/* Passes over an operand's [..], @(..) and flags; they are read later. */
static enum cuvil_status skip_operand(struct cuvil_parser *p) {
  static const char open[] = "[(", close[] = "])";
  for (int i = 0; i < 2; i++) {
    cuvil_scan_skip(p);
    if (i == 1) {
      if (*p->at != '@') break;
      p->at++;
    }
    CUVIL_TRY(cuvil_scan_require(p, open[i], i ? "'(' and strides" : "'['"));
    const char *end = strchr(p->at, close[i]);
    if (!end) {
      p->at = p->end;
      return cuvil_scan_expected(p, i ? "')'" : "']'");
    }
    p->at = end + 1;
  }
  char flag[CUVIL_NAME_SIZE];
  while (cuvil_scan_accept(p, ':'))
    CUVIL_TRY(cuvil_scan_name(p, "a flag", flag));
  return CUVIL_OK;
}

static enum cuvil_status read_value(struct cuvil_parser *p,
                                    struct cuvil_text_item *item) {
  cuvil_scan_skip(p);
  item->value = p->at;
  bool real = strcmp(item->key, "scale") == 0 || strcmp(item->key, "eps") == 0;
  if (real && (*p->at < 'a' || *p->at > 'z')) {
    item->shape = ITEM_REAL;
    const char *end = cuvil_number_parse(p->at, &item->real);
    if (!end) return cuvil_scan_expected(p, "a number");
    p->at = end;
    return CUVIL_OK;
  }
  if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9')) {
    item->shape = ITEM_NUMBERS;
    do {
      if (item->count == 4)
        return cuvil_scan_wrong(p, p->at, "more than four numbers");
      CUVIL_TRY(
          cuvil_scan_integer(p, "a number", &item->numbers[item->count++]));
    } while (cuvil_scan_accept(p, ','));
    return CUVIL_OK;
  }
  CUVIL_TRY(cuvil_scan_name(p, "a number, a word or a type", item->word));
  cuvil_scan_skip(p);
  item->shape = *p->at == '[' ? ITEM_OPERAND : ITEM_WORD;
  return item->shape == ITEM_OPERAND ? skip_operand(p) : CUVIL_OK;
}

static enum cuvil_status read_expression_item(struct cuvil_parser *p,
                                              const char *at,
                                              const char **statements) {
  if (*statements)
    return cuvil_scan_wrong(
        p, at,
        statements == &p->epilogue ? "a second epilogue" : "a second prologue");
  CUVIL_TRY(cuvil_scan_require(p, '{', "'{'"));
  *statements = p->at;
  const char *end = strchr(p->at, '}');
  if (!end) {
    p->at = p->end;
    return cuvil_scan_expected(p, "'}'");
  }
  p->at = end + 1;
  return CUVIL_OK;
}

static enum cuvil_status read_item(struct cuvil_parser *p) {
  if (p->item_count == CUVIL_MAX_TEXT_ITEMS)
    return cuvil_scan_wrong(p, p->at, "too many key=value pairs");
  struct cuvil_text_item *item = &p->items[p->item_count];
  memset(item, 0, sizeof *item);
  item->at = p->at;
  CUVIL_TRY(cuvil_scan_name(p, "a key", item->key));
  if (strcmp(item->key, "epi") == 0)
    return read_expression_item(p, item->at, &p->epilogue);
  if (strcmp(item->key, "pro") == 0)
    return read_expression_item(p, item->at, &p->prologue);
  CUVIL_TRY(cuvil_scan_require(p, '=', "'='"));
  CUVIL_TRY(read_value(p, item));
  /* A dimension and an operand may share a name (conv's w), others not. */
  for (int i = 0; i < p->item_count; i++) {
    const struct cuvil_text_item *other = &p->items[i];
    if (strcmp(other->key, item->key) == 0 &&
        (other->shape == ITEM_NUMBERS) == (item->shape == ITEM_NUMBERS))
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "problem text, column %d: '%s' is given twice",
                        cuvil_scan_offset(p, item->at) + 1, item->key);
  }
  p->item_count++;
  return CUVIL_OK;
}

static enum cuvil_status read_kind(struct cuvil_parser *p) {
  char name[CUVIL_NAME_SIZE];
  cuvil_scan_skip(p);
  const char *at = p->at;
  static const char what[] =
      "a kind (gemm, conv, pool, reduce, pointwise, attention, norm, gather)";
  CUVIL_TRY(cuvil_scan_name(p, what, name));
  int kind = 0;
  while (kind < CUVIL_KIND_COUNT &&
         strcmp(cuvil_kind_forms[kind].name, name) != 0)
    kind++;
  if (kind == CUVIL_KIND_COUNT) {
    p->at = at;
    return cuvil_scan_expected(p, what);
  }
  CUVIL_TRY(cuvil_scan_require(p, '/', "'/' and the version"));
  int64_t version;
  at = p->at;
  CUVIL_TRY(cuvil_scan_integer(p, "a version", &version));
  if (version != 1)
    return cuvil_scan_wrong(
        p, at, "this version of Cuvil knows version 1 of each kind");
  cuvil_problem_begin(kind, p->problem);
  p->form = &cuvil_kind_forms[kind];
  return CUVIL_OK;
}

static enum cuvil_status read_items(struct cuvil_parser *p) {
  for (cuvil_scan_skip(p); *p->at; cuvil_scan_skip(p)) {
    if (!cuvil_scan_is_space(p->at[-1]) && p->at[-1] != '}')
      return cuvil_scan_expected(p, "white space before the next key");
    CUVIL_TRY(read_item(p));
  }
  p->end = p->at;
  return CUVIL_OK;
}

/* ---- second pass: dimensions and attributes */

struct cuvil_text_item *cuvil_parse_find(struct cuvil_parser *p,
                                         const char *key, bool numbers) {
  for (int i = 0; i < p->item_count; i++)
    if (strcmp(p->items[i].key, key) == 0 &&
        (p->items[i].shape == ITEM_NUMBERS) == numbers)
      return &p->items[i];
  return NULL;
}

static enum cuvil_status take_dims(struct cuvil_parser *p) {
  struct cuvil_problem *problem = p->problem;
  if (p->form->dims[0]) {
    if (p->form->optional[0] && cuvil_parse_find(p, p->form->optional, true))
      cuvil_problem_add_dim(problem, p->form->optional, 0);
    for (int i = 0; i < problem->dim_count; i++) {
      if (problem->dims[i].derived) continue;
      struct cuvil_text_item *item =
          cuvil_parse_find(p, problem->dims[i].name, true);
      char what[32];
      snprintf(what, sizeof what, "'%s=' of %s", problem->dims[i].name,
               p->form->name);
      p->at = p->end;
      if (!item) return cuvil_scan_expected(p, what);
      if (item->count != 1)
        return cuvil_scan_wrong(p, item->value, "expected one number");
      problem->dims[i].extent = item->numbers[0];
      p->places.dims[i] = cuvil_scan_offset(p, item->at);
      item->used = true;
    }
    return CUVIL_OK;
  }
  for (int i = 0; i < p->item_count; i++) {
    struct cuvil_text_item *item = &p->items[i];
    if (item->shape != ITEM_NUMBERS || item->count != 1) continue;
    int dim = cuvil_problem_add_dim(problem, item->key, item->numbers[0]);
    if (dim < 0)
      return cuvil_scan_wrong(p, item->at, "more than 12 dimensions");
    p->places.dims[dim] = cuvil_scan_offset(p, item->at);
    item->used = true;
  }
  return CUVIL_OK;
}

/* Numbers under `key` into out, when they are given. */
static enum cuvil_status take_numbers(struct cuvil_parser *p, const char *key,
                                      int count, int64_t *out, int *place) {
  struct cuvil_text_item *item = cuvil_parse_find(p, key, true),
                         *word = cuvil_parse_find(p, key, false);
  *place = item ? cuvil_scan_offset(p, item->at) : cuvil_scan_offset(p, p->end);
  if (word) {
    p->at = word->value;
    return cuvil_scan_expected(p, "numbers");
  }
  if (!item) return CUVIL_OK;
  if (item->count != count)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: expected %d number%s for %s",
                      cuvil_scan_offset(p, item->value) + 1, count,
                      count == 1 ? "" : "s", key);
  memcpy(out, item->numbers, (size_t)count * sizeof *out);
  item->used = true;
  return CUVIL_OK;
}

/* A word under `key`: its index among the names, *out unchanged when it is not
 * given. */
static enum cuvil_status take_word(struct cuvil_parser *p, const char *key,
                                   const char *(*name)(int), const char *what,
                                   int *out) {
  struct cuvil_text_item *item = cuvil_parse_find(p, key, false);
  if (!item) return CUVIL_OK;
  p->at = item->value;
  if (item->shape != ITEM_WORD) return cuvil_scan_expected(p, what);
  for (int i = 0; name(i); i++) {
    if (strcmp(name(i), item->word) != 0) continue;
    *out = i;
    item->used = true;
    return CUVIL_OK;
  }
  return cuvil_scan_expected(p, what);
}

static const char *pool_word(int i) {
  return cuvil_pool_op_name((enum cuvil_pool_op)i);
}
static const char *reduce_word(int i) {
  return cuvil_reduce_op_name((enum cuvil_reduce_op)i);
}
static const char *norm_word(int i) {
  return cuvil_norm_op_name((enum cuvil_norm_op)i);
}
static const char *acc_word(int i) {
  return i == 0 ? "f32" : NULL;
}
static const char *math_word(int i) {
  return i == 0 ? "tf32" : NULL;
}

/* A real number under `key`, which must be given. */
static enum cuvil_status take_real(struct cuvil_parser *p, const char *key,
                                   const char *what, double *out, int *place) {
  struct cuvil_text_item *item = cuvil_parse_find(p, key, false);
  p->at = item ? item->value : p->end;
  *place = cuvil_scan_offset(p, item ? item->at : p->end);
  if (!item || item->shape != ITEM_REAL) return cuvil_scan_expected(p, what);
  *out = (double)item->real;
  item->used = true;
  return CUVIL_OK;
}

static enum cuvil_status take_attention(struct cuvil_parser *p) {
  struct cuvil_problem_places *at = &p->places;
  int64_t causal = 0;
  CUVIL_TRY(take_real(p, "scale", "scale= and a number", &p->problem->scale,
                      &at->scale));
  CUVIL_TRY(take_numbers(p, "causal", 1, &causal, &at->causal));
  if (causal != 0 && causal != 1)
    return cuvil_scan_wrong(p, p->text + at->causal, "causal must be 0 or 1");
  p->problem->causal = causal == 1;
  return CUVIL_OK;
}

static enum cuvil_status take_norm(struct cuvil_parser *p) {
  struct cuvil_problem *problem = p->problem;
  const char *what = "op=layer, rms, softmax or log_softmax";
  int word = -1;
  CUVIL_TRY(take_word(p, "op", norm_word, what, &word));
  p->at = p->end;
  if (word < 0) return cuvil_scan_expected(p, what);
  problem->norm_op = (enum cuvil_norm_op)word;
  if (!cuvil_norm_has_eps(problem->norm_op)) return CUVIL_OK;
  return take_real(p, "eps", "eps= and a number", &problem->eps,
                   &p->places.eps);
}

static enum cuvil_status take_attributes(struct cuvil_parser *p) {
  struct cuvil_problem *problem = p->problem;
  struct cuvil_problem_places *at = &p->places;
  if (p->form->window) {
    CUVIL_TRY(take_numbers(p, "stride", 2, problem->stride, &at->stride));
    CUVIL_TRY(take_numbers(p, "pad", 4, problem->pad, &at->pad));
    CUVIL_TRY(take_numbers(p, "dil", 2, problem->dilation, &at->dilation));
  }
  if (problem->kind == CUVIL_KIND_POOL)
    CUVIL_TRY(take_numbers(p, "over", 2, problem->over, &at->over));
  if (p->form->group)
    CUVIL_TRY(take_numbers(p, "group", 1, &problem->group, &at->group));
  int word = -1;
  if (problem->kind == CUVIL_KIND_POOL) {
    const char *what = "op=max, avg or avg_padded";
    CUVIL_TRY(take_word(p, "op", pool_word, what, &word));
    p->at = p->end;
    if (word < 0) return cuvil_scan_expected(p, what);
    problem->pool_op = (enum cuvil_pool_op)word;
  } else if (problem->kind == CUVIL_KIND_REDUCE) {
    const char *what = "op=sum, mean, max or min";
    CUVIL_TRY(take_word(p, "op", reduce_word, what, &word));
    p->at = p->end;
    if (word < 0) return cuvil_scan_expected(p, what);
    problem->reduce_op = (enum cuvil_reduce_op)word;
  } else if (problem->kind == CUVIL_KIND_ATTENTION) {
    CUVIL_TRY(take_attention(p));
  } else if (problem->kind == CUVIL_KIND_NORM) {
    CUVIL_TRY(take_norm(p));
  }
  if (p->form->accumulates)
    CUVIL_TRY(take_word(p, "acc", acc_word, "f32", &word));
  struct cuvil_text_item *math = cuvil_parse_find(p, "math", false);
  at->math = math ? cuvil_scan_offset(p, math->at) : 0;
  word = -1;
  CUVIL_TRY(take_word(p, "math", math_word, "tf32", &word));
  problem->tf32 = word == 0;
  return CUVIL_OK;
}

static enum cuvil_status refuse_unused(const struct cuvil_parser *p) {
  for (int i = 0; i < p->item_count; i++) {
    const struct cuvil_text_item *item = &p->items[i];
    if (item->used) continue;
    return CUVIL_FAIL(
        CU_ERR_PARSE, "problem text, column %d: '%s' is not a key of %s/1",
        cuvil_scan_offset(p, item->at) + 1, item->key, p->form->name);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_problem_parse(const char *text,
                                      struct cuvil_problem *out_problem) {
  struct cuvil_parser p;
  memset(out_problem, 0, sizeof *out_problem);
  p.text = p.at = text;
  p.problem = out_problem;
  p.item_count = 0;
  p.prologue = p.epilogue = NULL;
  p.end = text + strlen(text);
  p.places = (struct cuvil_problem_places){0};
  CUVIL_TRY(read_kind(&p));
  CUVIL_TRY(read_items(&p));
  p.places.end = cuvil_scan_offset(&p, p.end);
  CUVIL_TRY(take_dims(&p));
  CUVIL_TRY(take_attributes(&p));
  CUVIL_TRY(cuvil_parse_operands(&p));
  CUVIL_TRY(refuse_unused(&p));
  CUVIL_TRY(cuvil_parse_expressions(&p));
  return cuvil_problem_check(out_problem, &p.places);
}
