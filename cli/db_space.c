/* db_space.c - a family's space for one problem, as the tuning community's T1.
 *
 * The points of the file are exactly those that can run: hard rules, no
 * heuristic ones.  A rule over parameters, extents and limits becomes a
 * condition with the numbers put in.  What `derive` gives (shared memory,
 * threads, whether a point can be at all) has no closed form.  For these the
 * points that the conditions leave are asked one by one, the parameters that
 * the answer depends on are found, by leaving out each whose value never
 * changes it, and the condition lists their allowed combinations or, where
 * they are fewer, the others.
 *
 * T1 wants a file with the kernel.  Ours are written for each configuration,
 * so there is none; the file names itself, which is enough where nothing is
 * compiled, as in a simulation.
 */
#include "cli/db_space.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/family.h"

enum { TABLE_MOST = 1 << 24 };

struct export {
  struct cuvil_problem problem;
  const struct cuvil_family *family;
  struct cuvil_query query;
  json_t *conditions; /* borrowed */
  /* By rule; the last is derive's. */
  bool *derived;
  /* The points that the conditions leave; answers: the rule that removes it,
   * -1 none. */
  uint64_t *ranks;
  int *answers;
  size_t count, capacity;
};

static enum cuvil_status out_of_memory(void) {
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "memory is used up");
}

/* ---- conditions */

static enum cuvil_status add_condition(struct export *e, uint32_t params,
                                       const char *expression) {
  const struct cuvil_space *space = e->query.space;
  json_t *names = json_array();
  for (int i = 0; i < space->param_count; i++)
    if (params >> i & 1)
      json_array_append_new(names, json_string(space->params[i].name));
  json_t *condition =
      json_pack("{s:o,s:s}", "Parameters", names, "Expression", expression);
  return json_array_append_new(e->conditions, condition) == 0 ? CUVIL_OK
                                                              : out_of_memory();
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Python means by a condition what our evaluator means; Kernel Tuner's reader
 * (python-constraint 2) also takes simple comparisons apart by itself, and
 * goes wrong at chained ones, at - and /, and at words. */
static bool is_simple(const struct cuvil_space *space, const char *text) {
  int comparisons = 0;
  for (const char *p = text; *p;) {
    char word[128];
    size_t size = 0;
    while (is_letter(p[size]) || (size && p[size] >= '0' && p[size] <= '9'))
      size++;
    if (size) {
      if (size >= sizeof word) return false;
      memcpy(word, p, size);
      word[size] = '\0';
      if (cuvil_space_param(space, word) < 0) return false;
      p += size;
      continue;
    }
    if (*p == '-' || *p == '/') return false;
    size = strspn(p, "<>=!");
    comparisons += size > 0;
    p += size ? size : 1;
  }
  return comparisons == 1;
}

static enum cuvil_status add_rule(struct export *e, uint32_t params,
                                  const char *text) {
  if (is_simple(e->query.space, text)) return add_condition(e, params, text);
  struct cuvil_buf guarded = {0};
  cuvil_buf_printf(&guarded, "1 <= 1 and (%s)", text);
  enum cuvil_status status = cuvil_buf_status(&guarded);
  if (status == CUVIL_OK)
    status = add_condition(e, params, cuvil_buf_text(&guarded));
  cuvil_buf_free(&guarded);
  return status;
}

static enum cuvil_status add_rules(struct export *e) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf text = {0};
  for (int i = 0; i < e->query.space->rule_count; i++) {
    uint32_t params;
    enum cuvil_rule_form form;
    if (!e->query.space->rules[i].hard) continue;
    cuvil_buf_clear(&text);
    CUVIL_TRY_GOTO(cuvil_family_rule(&e->query, i, &text, &params, &form));
    e->derived[i] = form == CUVIL_RULE_DERIVED;
    if (form == CUVIL_RULE_CLOSED)
      CUVIL_TRY_GOTO(add_rule(e, params, cuvil_buf_text(&text)));
  }
fail:
  cuvil_buf_free(&text);
  return status;
}

/* ---- what has no closed form */

static enum cuvil_status ask_point(void *user, uint64_t rank,
                                   const struct cuvil_config *config) {
  struct export *e = user;
  int rule;
  if (e->count == e->capacity) {
    size_t capacity = e->capacity ? 2 * e->capacity : 4096;
    uint64_t *ranks = realloc(e->ranks, capacity * sizeof *ranks);
    if (ranks) e->ranks = ranks;
    int *answers = realloc(e->answers, capacity * sizeof *answers);
    if (answers) e->answers = answers;
    if (!ranks || !answers) return out_of_memory();
    e->capacity = capacity;
  }
  if (cuvil_family_allows(e->family, &e->query, config, false, NULL, &rule))
    rule = -1;
  else if (rule == -2)
    return CU_ERR_INVALID_ARGUMENT; /* message set */
  else if (rule == -1)
    rule = e->query.space->rule_count;
  e->ranks[e->count] = rank;
  e->answers[e->count++] = rule;
  return CUVIL_OK;
}

/* Place of the point in a table over the parameters of `kept`. */
static size_t project(const struct cuvil_space *space, uint32_t kept,
                      uint64_t rank) {
  size_t place = 0, scale = 1;
  for (int i = space->param_count - 1; i >= 0; i--) {
    uint64_t count = (uint64_t)space->params[i].count;
    if (kept >> i & 1) {
      place += (size_t)(rank % count) * scale;
      scale *= (size_t)count;
    }
    rank /= count;
  }
  return place;
}

static size_t table_size(const struct cuvil_space *space, uint32_t kept) {
  size_t size = 1;
  for (int i = 0; i < space->param_count; i++)
    if (kept >> i & 1) size *= (size_t)space->params[i].count;
  return size;
}

enum { UNKNOWN, ALLOWED, REMOVED };

/* Fills the table with what `rule` says; false: one place has two answers, so
 * the rule depends on more parameters.  Points that an earlier rule removes
 * are not known to this one. */
static bool fill_table(const struct export *e, int rule, uint32_t kept,
                       unsigned char *table) {
  memset(table, UNKNOWN, table_size(e->query.space, kept));
  for (size_t i = 0; i < e->count; i++) {
    if (e->answers[i] >= 0 && e->answers[i] < rule) continue;
    size_t place = project(e->query.space, kept, e->ranks[i]);
    unsigned char answer = e->answers[i] == rule ? REMOVED : ALLOWED;
    if (table[place] != UNKNOWN && table[place] != answer) return false;
    table[place] = answer;
  }
  return true;
}

/* "(a, b) in {(1, 2), ...}", of the table's places with this answer. */
static void print_table(const struct cuvil_space *space, uint32_t kept,
                        const unsigned char *table, unsigned char answer,
                        struct cuvil_buf *out) {
  const char *separator = "";
  cuvil_buf_puts(out, "(");
  for (int i = 0; i < space->param_count; i++)
    if (kept >> i & 1) cuvil_buf_printf(out, "%s, ", space->params[i].name);
  cuvil_buf_puts(out, answer == REMOVED ? ") not in {" : ") in {");
  size_t size = table_size(space, kept);
  for (size_t place = 0; place < size; place++) {
    size_t below = size, rest = place;
    if (table[place] != answer) continue;
    cuvil_buf_printf(out, "%s(", separator);
    separator = ", ";
    for (int i = 0; i < space->param_count; i++) {
      if (!(kept >> i & 1)) continue;
      below /= (size_t)space->params[i].count;
      cuvil_buf_printf(out, "%lld, ",
                       (long long)space->params[i].values[rest / below]);
      rest %= below;
    }
    cuvil_buf_puts(out, ")");
  }
  cuvil_buf_puts(out, "}");
}

/* The condition that a rule without closed form comes to. */
static enum cuvil_status add_listed(struct export *e, int rule,
                                    unsigned char *table) {
  const struct cuvil_space *space = e->query.space;
  uint32_t kept = (uint32_t)((UINT64_C(1) << space->param_count) - 1);
  size_t removed = 0, allowed = 0;
  for (size_t i = 0; i < e->count; i++)
    removed += e->answers[i] == rule;
  if (removed == 0) return CUVIL_OK;
  for (int i = space->param_count - 1; i >= 0; i--) {
    uint32_t fewer = kept & ~(1u << i);
    if (fewer && fill_table(e, rule, fewer, table)) kept = fewer;
  }
  if (!fill_table(e, rule, kept, table))
    return CUVIL_FAIL(CU_ERR_INTERNAL, "a point of %s has two answers",
                      e->family->id);
  removed = 0;
  for (size_t i = 0; i < table_size(space, kept); i++) {
    removed += table[i] == REMOVED;
    allowed += table[i] == ALLOWED;
  }
  struct cuvil_buf text = {0};
  print_table(space, kept, table, removed <= allowed ? REMOVED : ALLOWED,
              &text);
  enum cuvil_status status = cuvil_buf_status(&text);
  if (status == CUVIL_OK)
    status = add_condition(e, kept, cuvil_buf_text(&text));
  cuvil_buf_free(&text);
  return status;
}

static enum cuvil_status add_derived(struct export *e) {
  const struct cuvil_space *space = e->query.space;
  enum cuvil_status status = CUVIL_OK;
  uint64_t size = cuvil_space_size(space);
  size_t left = 0;
  if (size > TABLE_MOST)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "the space of %s has %llu points; up to %d are asked one "
                      "by one",
                      e->family->id, (unsigned long long)size, TABLE_MOST);
  CUVIL_TRY(cuvil_family_cut_hard(&e->query, ask_point, e));
  for (size_t i = 0; i < e->count; i++)
    left += e->answers[i] < 0;
  if (left == 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "no point of %s can run this on %s",
                      e->family->id, e->query.arch->name);
  unsigned char *table = malloc((size_t)size + 1);
  if (!table) return out_of_memory();
  for (int i = 0; i <= space->rule_count; i++)
    if (e->derived[i]) CUVIL_TRY_GOTO(add_listed(e, i, table));
fail:
  free(table);
  return status;
}

/* ---- only what was tried */

static enum cuvil_status list_tried(void *user, const char *text) {
  struct cuvil_buf *out = user;
  cuvil_buf_puts(out, out->size ? ", (" : "(");
  for (const char *p = text; *p;) {
    size_t length = strcspn(p, ",");
    const char *value = memchr(p, '=', length);
    if (!value)
      return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "\"%s\" names no parameter", text);
    cuvil_buf_add(out, value + 1, (size_t)(p + length - value - 1));
    cuvil_buf_puts(out, ", ");
    p += length + (p[length] == ',');
  }
  cuvil_buf_puts(out, ")");
  return cuvil_buf_status(out);
}

static enum cuvil_status add_tried(struct export *e,
                                   const struct db_request *ask,
                                   struct cuvil_db *db) {
  const struct cuvil_space *space = e->query.space;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf points = {0}, text = {0};
  CUVIL_TRY_GOTO(cuvil_db_each_cached(db, &ask->filter, list_tried, &points));
  cuvil_buf_puts(&text, "(");
  for (int i = 0; i < space->param_count; i++)
    cuvil_buf_printf(&text, "%s, ", space->params[i].name);
  cuvil_buf_printf(&text, ") in {%s}", cuvil_buf_text(&points));
  CUVIL_TRY_GOTO(cuvil_buf_status(&text));
  CUVIL_TRY_GOTO(
      add_condition(e, (uint32_t)((UINT64_C(1) << space->param_count) - 1),
                    cuvil_buf_text(&text)));
fail:
  cuvil_buf_free(&points);
  cuvil_buf_free(&text);
  return status;
}

/* ---- the file */

static json_t *parameters(const struct export *e) {
  const struct cuvil_space *space = e->query.space;
  struct cuvil_config usual;
  json_t *list = json_array();
  e->family->default_config(&e->query, &usual);
  for (int i = 0; i < space->param_count; i++) {
    const struct cuvil_param *p = &space->params[i];
    struct cuvil_buf values = {0};
    for (int v = 0; v < p->count; v++)
      cuvil_buf_printf(&values, "%s%lld", v ? ", " : "[",
                       (long long)p->values[v]);
    cuvil_buf_puts(&values, "]");
    json_array_append_new(
        list, json_pack("{s:s,s:s,s:s,s:I}", "Name", p->name, "Type", "int",
                        "Values", cuvil_buf_text(&values), "Default",
                        (json_int_t)usual.value[i]));
    cuvil_buf_free(&values);
  }
  return list;
}

static json_t *specification(const struct export *e,
                             const struct db_request *ask) {
  json_t *size = json_array();
  const char *gpu = ask->filter.gpu ? ask->filter.gpu : e->query.arch->name;
  const char *slash = ask->output ? strrchr(ask->output, '/') : NULL;
  const char *self = slash ? slash + 1 : ask->output;
  bool named = self && strcmp(self, "-") != 0;
  char own[96];
  snprintf(own, sizeof own, "%.80s.t1.json", e->family->id);
  for (int i = 0; i < e->problem.dim_count; i++)
    json_array_append_new(size,
                          json_integer((json_int_t)e->problem.dims[i].extent));
  return json_pack("{s:s,s:s,s:s,s:{s:s},s:o,s:{s:s},s:{s:s},s:[]}", "Language",
                   "CUDA", "KernelName", e->family->id, "KernelFile",
                   named ? self : own, "Device", "Name", gpu, "ProblemSize",
                   size, "GlobalSize", "X", "1", "LocalSize", "X", "1",
                   "Arguments");
}

static enum cuvil_status write_space(struct export *e,
                                     const struct db_request *ask,
                                     struct cuvil_buf *out) {
  json_t *file = json_pack(
      "{s:{s:i},s:{s:o,s:O},s:o,s:{s:s},s:{s:s,s:i,s:s}}", "General",
      "FormatVersion", 1, "ConfigurationSpace", "TuningParameters",
      parameters(e), "Conditions", e->conditions, "KernelSpecification",
      specification(e, ask), "Search", "Name", "brute_force", "Cuvil",
      "problem", ask->filter.problem, "family_version", e->family->version,
      "arch", e->query.arch->name);
  if (!file) return out_of_memory();
  enum cuvil_status status = cuvil_json_print(file, out);
  json_decref(file);
  return status;
}

static enum cuvil_status find_family(struct export *e,
                                     const struct db_request *ask) {
  const char *id = ask->filter.family;
  e->family = cuvil_family_find(id);
  if (!e->family)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "no family \"%s\"; `cuvil-tune --list-families`", id);
  e->query.problem = &e->problem;
  e->query.arch = cuvil_arch_find(ask->env.arch);
  if (!e->query.arch)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "no architecture \"%s\"; there are %s", ask->env.arch,
                      cuvil_arch_names());
  CUVIL_TRY(cuvil_problem_parse(ask->filter.problem, &e->problem));
  CUVIL_TRY(cuvil_family_space(e->family, &e->query.space));
  if (e->query.space->open)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "the space of %s is what the library on a machine "
                      "offers; it cannot be listed",
                      id);
  if (!(e->family->kinds & (1u << e->problem.kind)) ||
      !e->family->applicable(&e->problem, e->query.arch))
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "%s does not compute %s", id,
                      ask->filter.problem);
  return CUVIL_OK;
}

enum cuvil_status db_space_export(const struct db_request *ask,
                                  struct cuvil_db *db, struct cuvil_buf *out) {
  enum cuvil_status status = CUVIL_OK;
  struct export e = {.conditions = json_array()};
  CUVIL_TRY_GOTO(find_family(&e, ask));
  int rules = e.query.space->rule_count;
  e.derived = calloc((size_t)rules + 1, sizeof *e.derived);
  if (!e.derived || !e.conditions) {
    status = out_of_memory();
    goto fail;
  }
  e.derived[rules] = true;
  CUVIL_TRY_GOTO(add_rules(&e));
  CUVIL_TRY_GOTO(add_derived(&e));
  if (ask->tried) CUVIL_TRY_GOTO(add_tried(&e, ask, db));
  CUVIL_TRY_GOTO(write_space(&e, ask, out));
fail:
  json_decref(e.conditions);
  free(e.derived);
  free(e.ranks);
  free(e.answers);
  return status;
}
