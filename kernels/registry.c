/* registry.c - the one list of families and what is asked of every family.
 *
 * kernels.inc is included twice: to declare the families and to list them.
 * Test binaries put planted families in front, where a search finds them like
 * any other.  Spaces are parsed from the embedded files once and kept for the
 * life of the process; a planted family brings its own text.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/embed.h"
#include "kernels/family.h"

#define CUVIL_FAMILY(name) extern const struct cuvil_family cuvil_family_##name;
#include "kernels/kernels.inc"
#undef CUVIL_FAMILY

static const struct cuvil_family *const listed[] = {
#define CUVIL_FAMILY(name) &cuvil_family_##name,
#include "kernels/kernels.inc"
#undef CUVIL_FAMILY
};
enum { LISTED = sizeof listed / sizeof *listed, PLANTED_MOST = 16 };

static const struct cuvil_family *const *planted;
static int planted_count;

int cuvil_family_count(void) {
  return planted_count + LISTED;
}

const struct cuvil_family *cuvil_family_at(int index) {
  if (index < 0 || index >= cuvil_family_count()) return NULL;
  return index < planted_count ? planted[index] : listed[index - planted_count];
}

const struct cuvil_family *cuvil_family_find(const char *id) {
  for (int i = 0; i < cuvil_family_count(); i++)
    if (strcmp(cuvil_family_at(i)->id, id) == 0) return cuvil_family_at(i);
  return NULL;
}

/* ---- spaces */
struct kept_space {
  const struct cuvil_family *family;
  struct cuvil_space *space;
};
static struct kept_space kept[LISTED + PLANTED_MOST];
static int kept_count;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

void cuvil_family_plant(const struct cuvil_family *const *families, int count) {
  planted = families;
  planted_count = count < PLANTED_MOST ? count : PLANTED_MOST;
}

static enum cuvil_status load_space(const struct cuvil_family *family,
                                    struct cuvil_space **out) {
  char name[96];
  snprintf(name, sizeof name, "spaces/%s.json", family->id);
  if (family->space_text)
    return cuvil_space_parse(family->space_text, strlen(family->space_text),
                             family->id, out);
  const struct cuvil_embedded *file = cuvil_embedded_find(name);
  if (!file)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "family %s has no space file %s",
                      family->id, name);
  return cuvil_space_parse(file->data, file->size, name, out);
}

static enum cuvil_status find_or_load(const struct cuvil_family *family,
                                      const struct cuvil_space **out) {
  for (int i = 0; i < kept_count; i++) {
    if (kept[i].family != family) continue;
    *out = kept[i].space;
    return CUVIL_OK;
  }
  if (kept_count == LISTED + PLANTED_MOST)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "too many planted families");
  struct cuvil_space *space = NULL;
  CUVIL_TRY(load_space(family, &space));
  kept[kept_count++] = (struct kept_space){family, space};
  *out = space;
  return CUVIL_OK;
}

enum cuvil_status cuvil_family_space(const struct cuvil_family *family,
                                     const struct cuvil_space **out) {
  *out = NULL;
  pthread_mutex_lock(&kept_lock);
  enum cuvil_status status = find_or_load(family, out);
  pthread_mutex_unlock(&kept_lock);
  return status;
}

/* ---- which points may be */
enum { VARIABLES_MOST = CUVIL_MAX_DIMS + CUVIL_MAX_OPERANDS + 16 };

struct variables {
  int count;
  struct cuvil_variable list[VARIABLES_MOST];
  char names[CUVIL_MAX_OPERANDS][CUVIL_NAME_SIZE + 8];
};

static void add(struct variables *v, const char *name, double value) {
  v->list[v->count++] = (struct cuvil_variable){name, value};
}

/* What holds for every point of a problem. */
static void fill_constants(const struct cuvil_problem *problem,
                           struct variables *v) {
  v->count = 0;
  for (int i = 0; i < problem->dim_count; i++)
    add(v, problem->dims[i].name, (double)problem->dims[i].extent);
  for (int i = 0; i < problem->operand_count; i++) {
    const struct cuvil_operand *o = &problem->operands[i];
    memcpy(v->names[i], "size_", 5); /* once a point: no snprintf */
    memcpy(v->names[i] + 5, o->name, strlen(o->name) + 1);
    add(v, v->names[i], (double)cuvil_dtype_size(o->dtype));
  }
  add(v, "group", (double)problem->group);
  add(v, "stride_h", (double)problem->stride[0]);
  add(v, "stride_w", (double)problem->stride[1]);
}

static void add_derived(const struct cuvil_derived *derived,
                        struct variables *v) {
  add(v, "threads", derived->threads);
  add(v, "shared_bytes", derived->shared_bytes);
  add(v, "registers_least", derived->registers_least);
  add(v, "blocks", (double)derived->blocks);
  add(v, "cluster", derived->cluster);
  add(v, "waves", derived->waves);
  add(v, "workspace_bytes", (double)derived->workspace_bytes);
}

bool cuvil_family_allows(const struct cuvil_family *family,
                         const struct cuvil_query *query,
                         const struct cuvil_config *config, bool heuristics,
                         struct cuvil_derived *out_derived, int *out_rule) {
  struct cuvil_derived derived = {.cluster = 1};
  struct variables variables;
  /* Rules are asked even where derive refuses: a rule has a reason to show. */
  bool can_be = family->derive(query, config, &derived);
  fill_constants(query->problem, &variables);
  add_derived(&derived, &variables);
  int rule = cuvil_space_check(query->space, query->arch, config,
                               variables.list, variables.count, heuristics);
  if (out_derived) *out_derived = derived;
  if (out_rule) *out_rule = rule;
  return can_be && rule == -1;
}

enum cuvil_status cuvil_family_cut(
    const struct cuvil_query *query,
    enum cuvil_status (*visit)(void *user, uint64_t rank,
                               const struct cuvil_config *config),
    void *user) {
  struct variables variables;
  fill_constants(query->problem, &variables);
  return cuvil_space_walk(query->space, query->arch, variables.list,
                          variables.count, true, NULL, visit, user);
}

enum cuvil_status cuvil_family_cut_hard(
    const struct cuvil_query *query,
    enum cuvil_status (*visit)(void *user, uint64_t rank,
                               const struct cuvil_config *config),
    void *user) {
  struct variables variables;
  fill_constants(query->problem, &variables);
  return cuvil_space_walk(query->space, query->arch, variables.list,
                          variables.count, false, NULL, visit, user);
}

enum cuvil_status cuvil_family_rule(const struct cuvil_query *query, int rule,
                                    struct cuvil_buf *out, uint32_t *out_params,
                                    enum cuvil_rule_form *out_form) {
  struct variables variables;
  fill_constants(query->problem, &variables);
  return cuvil_rule_print(query->space, rule, query->arch, variables.list,
                          variables.count, out, out_params, out_form);
}

static bool serves(const struct cuvil_family *family,
                   const struct cuvil_problem *problem,
                   const struct cuvil_arch *arch, struct cuvil_config *out) {
  if (family->library || !(family->kinds & (1u << problem->kind))) return false;
  if (!family->applicable(problem, arch)) return false;
  struct cuvil_query query = {problem, arch, NULL};
  if (cuvil_family_space(family, &query.space) != CUVIL_OK) return false;
  family->default_config(&query, out);
  return cuvil_family_allows(family, &query, out, false, NULL, NULL);
}

enum cuvil_status cuvil_family_fallback(const struct cuvil_problem *problem,
                                        const struct cuvil_arch *arch,
                                        const struct cuvil_family **out_family,
                                        struct cuvil_config *out_config) {
  *out_family = NULL;
  for (int reference = 0; reference < 2; reference++) {
    for (int i = 0; i < LISTED; i++) {
      if (listed[i]->reference != (reference == 1)) continue;
      if (!serves(listed[i], problem, arch, out_config)) continue;
      *out_family = listed[i];
      return CUVIL_OK;
    }
  }
  struct cuvil_buf text = {0};
  cuvil_problem_print(problem, &text);
  CUVIL_IGNORE(CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                          "no kernel family computes this problem on %s: %s",
                          arch->name, cuvil_buf_text(&text)));
  cuvil_buf_free(&text);
  return CU_ERR_UNSUPPORTED;
}
