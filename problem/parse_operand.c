/* parse_operand.c - the operands of a problem's text: a type, dimensions with
 * their limits, strides, flags.
 */
#include <stdio.h>
#include <string.h>

#include "problem/parse.h"

static enum cuvil_status read_dims(struct cuvil_parser *p,
                                   struct cuvil_operand *operand) {
  CUVIL_TRY(cuvil_scan_require(p, '[', "'['"));
  while (!cuvil_scan_accept(p, ']')) {
    if (operand->rank) CUVIL_TRY(cuvil_scan_require(p, ',', "',' or ']'"));
    if (operand->rank == CUVIL_MAX_RANK)
      return cuvil_scan_wrong(p, p->at, "more than 6 dimensions");
    char name[CUVIL_NAME_SIZE];
    cuvil_scan_skip(p);
    const char *at = p->at;
    CUVIL_TRY(cuvil_scan_name(p, "a dimension", name));
    int dim = cuvil_problem_find_dim(p->problem, name);
    if (dim < 0) {
      p->at = at;
      return cuvil_scan_expected(p, "a dimension of the problem");
    }
    operand->dims[operand->rank] = dim;
    if (cuvil_scan_accept(p, '<')) {
      int64_t limit;
      CUVIL_TRY(cuvil_scan_integer(p, "a limit", &limit));
      if (limit < 1) return cuvil_scan_wrong(p, at, "a limit must be positive");
      operand->limit[operand->rank] = limit;
    }
    operand->rank++;
  }
  return CUVIL_OK;
}

static enum cuvil_status read_strides(struct cuvil_parser *p,
                                      struct cuvil_operand *operand) {
  if (!cuvil_scan_accept(p, '@')) return CUVIL_OK;
  CUVIL_TRY(cuvil_scan_require(p, '(', "'(' and strides"));
  for (int i = 0; i < operand->rank; i++) {
    if (i)
      CUVIL_TRY(cuvil_scan_require(p, ',', "',' and one stride a dimension"));
    CUVIL_TRY(cuvil_scan_integer(p, "a stride", &operand->strides[i]));
  }
  CUVIL_TRY(cuvil_scan_require(p, ')', "')'"));
  operand->strided = operand->rank > 0;
  return CUVIL_OK;
}

/* The flags that may stand here, for messages. */
static const char *flag_names(unsigned allowed) {
  if (allowed & CUVIL_FLAG_OUT) return "weight or out";
  if (allowed & CUVIL_FLAG_ADD) return "weight, add or keep";
  return "weight";
}

static unsigned find_flag(const char *name) {
  static const char *const names[] = {"out", "add", "keep"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) return 1u << i;
  return 0;
}

enum cuvil_status cuvil_parse_shape(struct cuvil_parser *p,
                                    struct cuvil_operand *operand,
                                    unsigned allowed, unsigned *out_flags) {
  *out_flags = 0;
  CUVIL_TRY(read_dims(p, operand));
  CUVIL_TRY(read_strides(p, operand));
  while (cuvil_scan_accept(p, ':')) {
    char name[CUVIL_NAME_SIZE];
    const char *at = p->at;
    CUVIL_TRY(cuvil_scan_name(p, flag_names(allowed), name));
    unsigned flag = find_flag(name) & allowed;
    if (strcmp(name, "weight") == 0) {
      operand->weight = true;
    } else if (flag) {
      *out_flags |= flag;
    } else {
      p->at = at;
      return cuvil_scan_expected(p, flag_names(allowed));
    }
  }
  return CUVIL_OK;
}

static enum cuvil_status take_operand(struct cuvil_parser *p,
                                      struct cuvil_text_item *item,
                                      enum cuvil_operand_role role,
                                      unsigned allowed, unsigned *out_flags) {
  struct cuvil_problem *problem = p->problem;
  int index = problem->operand_count;
  if (index == CUVIL_MAX_OPERANDS)
    return cuvil_scan_wrong(p, item->at, "more than 16 operands");
  struct cuvil_operand *operand = &problem->operands[index];
  memcpy(operand->name, item->key, sizeof operand->name);
  operand->role = role;
  operand->dtype = cuvil_dtype_find(item->word, strlen(item->word));
  p->at = item->value;
  if (operand->dtype == CUVIL_DTYPE_NONE)
    return cuvil_scan_expected(p, "a type (f32, f16, bf16, ...)");
  while (cuvil_scan_is_name(*p->at))
    p->at++;
  CUVIL_TRY(cuvil_parse_shape(p, operand, allowed, out_flags));
  p->places.operands[index] = cuvil_scan_offset(p, item->at);
  problem->operand_count++;
  item->used = true;
  return CUVIL_OK;
}

/* Those that the kind fixes. */
static enum cuvil_status take_fixed(struct cuvil_parser *p) {
  const struct cuvil_kind_form *form = p->form;
  int main = form->operand_count - 1;
  for (int i = 0; i <= main; i++) {
    struct cuvil_text_item *item =
        cuvil_parse_find(p, form->operands[i], false);
    char what[40];
    snprintf(what, sizeof what, "operand '%s=' of %s", form->operands[i],
             form->name);
    p->at = item ? item->value : p->end;
    if (!item || item->shape != ITEM_OPERAND)
      return cuvil_scan_expected(
          p, item ? "a type and dimensions: f16[..]" : what);
    unsigned flags;
    CUVIL_TRY(take_operand(p, item,
                           i == main ? CUVIL_ROLE_OUTPUT : CUVIL_ROLE_INPUT,
                           i == main ? CUVIL_FLAG_OUT : 0, &flags));
    if (flags)
      return cuvil_scan_wrong(p, item->value,
                              "the main output needs no ':out'");
  }
  p->problem->output = main;
  return CUVIL_OK;
}

static enum cuvil_status take_mask(struct cuvil_parser *p) {
  struct cuvil_text_item *item = cuvil_parse_find(p, "mask", false);
  if (!item || item->shape != ITEM_OPERAND) return CUVIL_OK;
  unsigned flags;
  CUVIL_TRY(take_operand(p, item, CUVIL_ROLE_SIDE,
                         CUVIL_FLAG_ADD | CUVIL_FLAG_KEEP, &flags));
  if (flags != CUVIL_FLAG_ADD && flags != CUVIL_FLAG_KEEP)
    return cuvil_scan_wrong(p, item->value,
                            "a mask is marked ':add' or ':keep'");
  p->problem->mask_keep = flags == CUVIL_FLAG_KEEP;
  return CUVIL_OK;
}

enum cuvil_status cuvil_parse_operands(struct cuvil_parser *p) {
  CUVIL_TRY(take_fixed(p));
  if (p->problem->kind == CUVIL_KIND_ATTENTION) CUVIL_TRY(take_mask(p));
  for (int i = 0; i < p->item_count; i++) {
    struct cuvil_text_item *item = &p->items[i];
    if (item->used || item->shape != ITEM_OPERAND) continue;
    unsigned flags;
    CUVIL_TRY(take_operand(p, item, CUVIL_ROLE_OUTPUT, CUVIL_FLAG_OUT, &flags));
    if (!flags)
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "problem text, column %d: '%s' is not an operand of "
                        "%s; an extra output is marked ':out'",
                        cuvil_scan_offset(p, item->at) + 1, item->key,
                        p->form->name);
  }
  return CUVIL_OK;
}
