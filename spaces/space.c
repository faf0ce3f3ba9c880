/* space.c - candidate spaces from their JSON, and walking them.
 *
 * A space file is written by hand, so the loader is strict: an unknown key, a
 * default outside its values or an architecture that there is not is an error
 * with the place named, never ignored.  A point's rank is a mixed-radix number
 * with the first parameter as its most significant digit.
 */
#include "spaces/space.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "spaces/internal.h"

/* ---- loading */

struct loader {
  const char *origin;
  struct cuvil_space *space;
};

static enum cuvil_status wrong(const struct loader *l, const char *what,
                               const char *name, const char *problem) {
  return CUVIL_FAIL(CU_ERR_PARSE, "%s: %s '%s': %s", l->origin, what, name,
                    problem);
}

/* Every key of `object` is among `keys`, which are separated by spaces. */
static enum cuvil_status check_keys(const struct loader *l,
                                    const json_t *object, const char *what,
                                    const char *keys) {
  if (!json_is_object(object))
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: %s must be an object", l->origin,
                      what);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const char *found = strstr(keys, key);
    size_t size = strlen(key);
    while (found && ((found != keys && found[-1] != ' ') ||
                     (found[size] != 0 && found[size] != ' ')))
      found = strstr(found + 1, key);
    if (!found || size == 0)
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: %s has the unknown key \"%s\" (%s)",
                        l->origin, what, key, keys);
  }
  return CUVIL_OK;
}

static enum cuvil_status keep_string(const struct loader *l,
                                     const json_t *object, const char *key,
                                     const char *origin, const char **out) {
  const char *text;
  *out = NULL;
  CUVIL_TRY(cuvil_json_get_string(object, key, origin, &text));
  *out = cuvil_arena_strdup(&l->space->arena, text);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s", l->origin);
  return CUVIL_OK;
}

static bool has_value(const struct cuvil_param *param, int64_t value) {
  if (param->count == 0) return true;
  for (int i = 0; i < param->count; i++)
    if (param->values[i] == value) return true;
  return false;
}

static enum cuvil_status load_values(const struct loader *l,
                                     const json_t *values,
                                     struct cuvil_param *param) {
  if (!values) {
    l->space->open = true;
    return CUVIL_OK;
  }
  if (!json_is_array(values) || json_array_size(values) == 0 ||
      json_array_size(values) > CUVIL_MAX_VALUES)
    return wrong(l, "parameter", param->name,
                 "\"values\" must be 1 to 32 whole numbers");
  size_t index;
  json_t *value;
  json_array_foreach(values, index, value) {
    if (!json_is_integer(value))
      return wrong(l, "parameter", param->name,
                   "\"values\" must be whole numbers");
    int64_t number = json_integer_value(value);
    if (index && has_value(param, number))
      return wrong(l, "parameter", param->name, "a value is there twice");
    param->values[param->count++] = number;
  }
  return CUVIL_OK;
}

static enum cuvil_status load_param(const struct loader *l,
                                    const json_t *object) {
  struct cuvil_space *space = l->space;
  if (space->param_count == CUVIL_MAX_PARAMS)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: more than %d parameters", l->origin,
                      CUVIL_MAX_PARAMS);
  CUVIL_TRY(check_keys(l, object, "a parameter", "name values default about"));
  struct cuvil_param *param = &space->params[space->param_count];
  CUVIL_TRY(keep_string(l, object, "name", l->origin, &param->name));
  if (!cuvil_expression_name_valid(param->name))
    return wrong(l, "parameter", param->name, "this cannot be a name");
  if (cuvil_space_param(space, param->name) >= 0)
    return wrong(l, "parameter", param->name, "the name is there twice");
  param->about = "";
  char origin[256];
  snprintf(origin, sizeof origin, "%s: parameter '%s'", l->origin, param->name);
  if (json_object_get(object, "about"))
    CUVIL_TRY(keep_string(l, object, "about", origin, &param->about));
  CUVIL_TRY(load_values(l, json_object_get(object, "values"), param));
  CUVIL_TRY(cuvil_json_get_int(object, "default", origin, &param->fallback));
  if (!has_value(param, param->fallback))
    return wrong(l, "parameter", param->name,
                 "the default is not one of the values");
  space->param_count++;
  return CUVIL_OK;
}

bool cuvil_rule_guards(const char *guard, const char *name) {
  size_t size = strlen(name);
  for (const char *at = guard; *at; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    if (strcspn(at, " ") == size && size && memcmp(at, name, size) == 0)
      return true;
  }
  return false;
}

static enum cuvil_status check_guard(const struct loader *l,
                                     const struct cuvil_rule *rule) {
  int names = 0;
  for (const char *at = rule->arch; *at;) {
    at += strspn(at, " ");
    size_t size = strcspn(at, " ");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(size < 31 ? size : 31), at);
    if (size && !cuvil_arch_find(name))
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "%s: rule '%s': there is no architecture '%s' (%s)",
                        l->origin, rule->name, name, cuvil_arch_names());
    names += size > 0;
    at += size;
  }
  return names ? CUVIL_OK
               : wrong(l, "rule", rule->name, "\"arch\" names nothing");
}

static enum cuvil_status load_rule(const struct loader *l,
                                   const json_t *object) {
  struct cuvil_space *space = l->space;
  struct cuvil_rule *rule = &space->rules[space->rule_count];
  CUVIL_TRY(check_keys(l, object, "a rule", "name level arch require reason"));
  CUVIL_TRY(keep_string(l, object, "name", l->origin, &rule->name));
  for (int i = 0; i < space->rule_count; i++)
    if (strcmp(space->rules[i].name, rule->name) == 0)
      return wrong(l, "rule", rule->name, "the name is there twice");
  space->rule_count++; /* from here on the expression is freed with it */
  char origin[256];
  snprintf(origin, sizeof origin, "%s: rule '%s'", l->origin, rule->name);
  const char *level;
  CUVIL_TRY(cuvil_json_get_string(object, "level", origin, &level));
  rule->hard = strcmp(level, "hard") == 0;
  if (!rule->hard && strcmp(level, "heuristic") != 0)
    return wrong(l, "rule", rule->name,
                 "\"level\" must be \"hard\" or \"heuristic\"");
  CUVIL_TRY(keep_string(l, object, "reason", origin, &rule->reason));
  if (json_object_get(object, "arch")) {
    CUVIL_TRY(keep_string(l, object, "arch", origin, &rule->arch));
    CUVIL_TRY(check_guard(l, rule));
  }
  CUVIL_TRY(keep_string(l, object, "require", origin, &rule->text));
  enum cuvil_status status =
      cuvil_expression_parse(rule->text, &rule->expression);
  if (status == CUVIL_OK)
    status = cuvil_expression_bind(rule->expression, space);
  if (status != CUVIL_OK)
    return CUVIL_FAIL(status, "%s: %s", origin, cuvil_last_error());
  return CUVIL_OK;
}

static enum cuvil_status check_size(const struct loader *l) {
  uint64_t size = 1;
  for (int i = 0; i < l->space->param_count; i++)
    if (__builtin_mul_overflow(size, (uint64_t)l->space->params[i].count,
                               &size))
      return CUVIL_FAIL(CU_ERR_PARSE, "%s: more than 2^64 points", l->origin);
  return CUVIL_OK;
}

static enum cuvil_status load(const struct loader *l, const json_t *root) {
  struct cuvil_space *space = l->space;
  CUVIL_TRY(
      check_keys(l, root, "a space", "space family about parameters rules"));
  int64_t version;
  CUVIL_TRY(cuvil_json_get_int(root, "space", l->origin, &version));
  if (version != 1)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "%s: \"space\": %" PRId64 " is unknown; this is 1",
                      l->origin, version);
  CUVIL_TRY(keep_string(l, root, "family", l->origin, &space->family));
  const json_t *list;
  size_t index;
  json_t *item;
  CUVIL_TRY(cuvil_json_get_array(root, "parameters", l->origin, &list));
  json_array_foreach(list, index, item) CUVIL_TRY(load_param(l, item));
  CUVIL_TRY(check_size(l));
  CUVIL_TRY(cuvil_json_get_array(root, "rules", l->origin, &list));
  space->rules = cuvil_arena_array(&space->arena, json_array_size(list) + 1,
                                   sizeof *space->rules);
  if (!space->rules) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s", l->origin);
  json_array_foreach(list, index, item) CUVIL_TRY(load_rule(l, item));
  return CUVIL_OK;
}

enum cuvil_status cuvil_space_parse(const char *json, size_t size,
                                    const char *origin,
                                    struct cuvil_space **out) {
  *out = NULL;
  json_t *root = NULL;
  enum cuvil_status status = CUVIL_OK;
  struct loader loader = {.origin = origin};
  CUVIL_TRY_GOTO(cuvil_json_parse(json, size, origin, &root));
  loader.space = calloc(1, sizeof *loader.space);
  if (!loader.space) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s", origin);
    goto fail;
  }
  CUVIL_TRY_GOTO(load(&loader, root));
  json_decref(root);
  *out = loader.space;
  return CUVIL_OK;
fail:
  json_decref(root);
  cuvil_space_destroy(loader.space);
  return status;
}

void cuvil_space_destroy(struct cuvil_space *space) {
  if (!space) return;
  for (int i = 0; i < space->rule_count; i++)
    cuvil_expression_destroy(space->rules[i].expression);
  cuvil_arena_free(&space->arena);
  free(space);
}

/* ---- parameters and points */

int cuvil_space_param(const struct cuvil_space *space, const char *name) {
  for (int i = 0; i < space->param_count; i++)
    if (strcmp(space->params[i].name, name) == 0) return i;
  return -1;
}

static int need_param(const struct cuvil_space *space, const char *name) {
  int index = cuvil_space_param(space, name);
  if (index < 0) {
    fprintf(stderr, "cuvil: the space of family %s has no parameter '%s'\n",
            space->family, name);
    abort();
  }
  return index;
}

int64_t cuvil_config_get(const struct cuvil_space *space,
                         const struct cuvil_config *config, const char *name) {
  return config->value[need_param(space, name)];
}

void cuvil_config_set(const struct cuvil_space *space,
                      struct cuvil_config *config, const char *name,
                      int64_t value) {
  config->value[need_param(space, name)] = value;
}

void cuvil_space_default(const struct cuvil_space *space,
                         struct cuvil_config *out) {
  memset(out, 0, sizeof *out);
  for (int i = 0; i < space->param_count; i++)
    out->value[i] = space->params[i].fallback;
}

uint64_t cuvil_space_size(const struct cuvil_space *space) {
  uint64_t size = 1;
  for (int i = 0; i < space->param_count; i++)
    size *= (uint64_t)space->params[i].count;
  return size;
}

void cuvil_space_point(const struct cuvil_space *space, uint64_t index,
                       struct cuvil_config *out) {
  cuvil_space_default(space, out);
  if (space->open) return;
  for (int i = space->param_count - 1; i >= 0; i--) {
    uint64_t count = (uint64_t)space->params[i].count;
    out->value[i] = space->params[i].values[index % count];
    index /= count;
  }
}

void cuvil_config_print(const struct cuvil_space *space,
                        const struct cuvil_config *config,
                        struct cuvil_buf *out) {
  for (int i = 0; i < space->param_count; i++)
    cuvil_buf_printf(out, "%s%s=%" PRId64, i ? "," : "", space->params[i].name,
                     config->value[i]);
}

static enum cuvil_status bad_config(const struct cuvil_space *space,
                                    const char *text, const char *at,
                                    const char *what) {
  return CUVIL_FAIL(CU_ERR_PARSE,
                    "configuration \"%.200s\" of %s, column %d: %s", text,
                    space->family, (int)(at - text) + 1, what);
}

enum cuvil_status cuvil_config_parse(const struct cuvil_space *space,
                                     const char *text,
                                     struct cuvil_config *out) {
  memset(out, 0, sizeof *out);
  bool given[CUVIL_MAX_PARAMS] = {false};
  const char *at = text;
  while (*at) {
    if (at != text && *at++ != ',')
      return bad_config(space, text, at - 1, "expected ','");
    size_t size = strcspn(at, "=,");
    int index = 0;
    while (index < space->param_count &&
           (strlen(space->params[index].name) != size ||
            memcmp(space->params[index].name, at, size) != 0))
      index++;
    if (index == space->param_count)
      return bad_config(space, text, at, "expected a parameter of the space");
    if (given[index])
      return bad_config(space, text, at, "the parameter is given twice");
    given[index] = true;
    at += size;
    if (*at != '=') return bad_config(space, text, at, "expected '='");
    const char *digits = at + 1 + (at[1] == '-');
    int64_t value = 0;
    if (*digits < '0' || *digits > '9')
      return bad_config(space, text, at + 1, "expected a whole number");
    bool negative = at[1] == '-';
    for (at = digits; *at >= '0' && *at <= '9'; at++)
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, negative ? '0' - *at : *at - '0',
                                 &value))
        return bad_config(space, text, digits, "the number is too large");
    if (!has_value(&space->params[index], value))
      return bad_config(space, text, digits, "not a value of the parameter");
    out->value[index] = value;
  }
  for (int i = 0; i < space->param_count; i++)
    if (!given[i])
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "configuration \"%.200s\" of %s: '%s' is missing", text,
                        space->family, space->params[i].name);
  return CUVIL_OK;
}

int cuvil_space_check(const struct cuvil_space *space,
                      const struct cuvil_arch *arch,
                      const struct cuvil_config *config,
                      const struct cuvil_variable *variables, int count,
                      bool heuristics) {
  for (int i = 0; i < space->rule_count; i++) {
    const struct cuvil_rule *rule = &space->rules[i];
    if (!rule->hard && !heuristics) continue;
    if (rule->arch && !cuvil_rule_guards(rule->arch, arch->name)) continue;
    double holds;
    enum cuvil_status status = cuvil_expression_evaluate_bound(
        rule->expression, config, arch, variables, count, &holds);
    if (status != CUVIL_OK) {
      CUVIL_IGNORE(CUVIL_FAIL(status, "space of %s: rule '%s': %s",
                              space->family, rule->name, cuvil_last_error()));
      return -2; /* the caller reports the message just recorded */
    }
    if (holds == 0) return i;
  }
  return -1;
}
