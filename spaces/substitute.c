/* substitute.c - a rule as text over parameters alone.
 *
 * Other tuners read constraints as Python expressions over parameters; they
 * know neither our extents nor our architectures.  The rule's own text is kept
 * and only its other names are replaced by their numbers.
 */
#include <math.h>
#include <string.h>

#include "spaces/internal.h"

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static void put_number(struct cuvil_buf *out, double value) {
  if (value == floor(value) && fabs(value) < 9e15)
    cuvil_buf_printf(out, "%lld", (long long)value);
  else
    cuvil_buf_printf(out, "%.17g", value);
}

/* The field's number; binding has refused those that there are not. */
static enum cuvil_status put_field(const struct cuvil_space *space,
                                   const struct cuvil_arch *arch,
                                   const char *name, struct cuvil_buf *out) {
  struct cuvil_expression *expression = NULL;
  struct cuvil_config none = {{0}};
  double value = 0;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY(cuvil_expression_parse(name, &expression));
  CUVIL_TRY_GOTO(cuvil_expression_bind(expression, space));
  CUVIL_TRY_GOTO(cuvil_expression_evaluate_bound(expression, &none, arch, NULL,
                                                 0, &value));
  put_number(out, value);
fail:
  cuvil_expression_destroy(expression);
  return status;
}

/* A name or a word of the language; *out_known false: neither a parameter nor
 * among the variables. */
static enum cuvil_status put_word(const struct cuvil_space *space,
                                  const struct cuvil_arch *arch,
                                  const struct cuvil_variable *variables,
                                  int count, const char *word,
                                  struct cuvil_buf *out, uint32_t *params,
                                  bool *out_known) {
  int param = cuvil_space_param(space, word);
  *out_known = true;
  if (param >= 0) *params |= 1u << param;
  if (param >= 0 || !cuvil_expression_name_valid(word)) {
    if (strncmp(word, "arch.", 5) == 0)
      return put_field(space, arch, word, out);
    cuvil_buf_puts(out, word);
    return CUVIL_OK;
  }
  for (int i = 0; i < count; i++) {
    if (strcmp(variables[i].name, word) != 0) continue;
    put_number(out, variables[i].value);
    return CUVIL_OK;
  }
  *out_known = false;
  return CUVIL_OK;
}

enum cuvil_status cuvil_rule_print(const struct cuvil_space *space, int rule,
                                   const struct cuvil_arch *arch,
                                   const struct cuvil_variable *variables,
                                   int count, struct cuvil_buf *out,
                                   uint32_t *out_params,
                                   enum cuvil_rule_form *out_form) {
  const struct cuvil_rule *r = &space->rules[rule];
  size_t start = out->size;
  *out_params = 0;
  *out_form = CUVIL_RULE_NOT_ASKED;
  if (r->arch && !cuvil_rule_guards(r->arch, arch->name)) return CUVIL_OK;
  bool closed = true;
  for (const char *p = r->text; *p && closed;) {
    char word[128];
    size_t size = 0;
    while (is_word(p[size]))
      size++;
    if (size == 0) {
      cuvil_buf_add(out, p++, 1);
      continue;
    }
    if (size >= sizeof word)
      return CUVIL_FAIL(CU_ERR_INTERNAL, "rule %s: a name is too long",
                        r->name);
    memcpy(word, p, size);
    word[size] = '\0';
    p += size;
    CUVIL_TRY(put_word(space, arch, variables, count, word, out, out_params,
                       &closed));
  }
  CUVIL_TRY(cuvil_buf_status(out));
  *out_form = closed && *out_params ? CUVIL_RULE_CLOSED : CUVIL_RULE_DERIVED;
  if (*out_form == CUVIL_RULE_DERIVED && out->data) {
    out->size = start;
    out->data[start] = '\0';
  }
  return CUVIL_OK;
}
