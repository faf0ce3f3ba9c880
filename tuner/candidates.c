/* candidates.c - from a problem's points to the list of what is tried.
 *
 * walk.c finds the points, a strategy (strategy.h) sees them as sites and
 * chooses.  Only what is chosen becomes a candidate with a text and a place for
 * results.
 */
#include "tuner/candidates.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

void cuvil_outcome_fail(struct cuvil_outcome *outcome, const char *reason,
                        const char *format, ...) {
  va_list args;
  outcome->ok = false;
  snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
  va_start(args, format);
  vsnprintf(outcome->detail, sizeof outcome->detail, format, args);
  va_end(args);
}

bool cuvil_families_include(const char *families, const char *id) {
  size_t size = strlen(id);
  if (!families) return true;
  for (const char *p = families; *p;) {
    size_t length = strcspn(p, ",");
    if (length == size && strncmp(p, id, size) == 0) return true;
    p += length;
    if (*p) p++;
  }
  return false;
}

enum cuvil_status cuvil_families_check(const char *families) {
  if (!families) return CUVIL_OK;
  for (const char *p = families; *p;) {
    size_t length = strcspn(p, ",");
    char id[64];
    if (length >= sizeof id)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "--families: \"%.60s...\" is not a family", p);
    memcpy(id, p, length);
    id[length] = '\0';
    if (!cuvil_family_find(id))
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "--families: there is no family \"%s\"; see "
                        "--list-families",
                        id);
    p += length;
    if (*p) p++;
  }
  return CUVIL_OK;
}

static enum cuvil_status push(struct cuvil_candidates *list,
                              struct cuvil_candidate **out) {
  if (list->count == list->capacity) {
    int capacity = list->capacity ? 2 * list->capacity : 64;
    struct cuvil_candidate *items =
        realloc(list->items, (size_t)capacity * sizeof *items);
    if (!items)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %d candidates",
                        capacity);
    list->items = items;
    list->capacity = capacity;
  }
  *out = &list->items[list->count++];
  memset(*out, 0, sizeof **out);
  (*out)->choice = -1;
  (*out)->job = -1;
  (*out)->site = -1;
  (*out)->median = NAN;
  return CUVIL_OK;
}

/* A candidate of this family and config; its text is printed. */
static enum cuvil_status make(struct cuvil_candidates *list,
                              const struct cuvil_query *query,
                              const struct cuvil_family *family,
                              const struct cuvil_config *config,
                              struct cuvil_candidate **out) {
  struct cuvil_buf text = {0};
  *out = NULL;
  cuvil_config_print(query->space, config, &text);
  CUVIL_TRY(cuvil_buf_status(&text));
  char *own = text.data ? cuvil_buf_take(&text) : strdup("");
  if (!own)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a config's text");
  enum cuvil_status status = push(list, out);
  if (status != CUVIL_OK) {
    free(own);
    return status;
  }
  struct cuvil_candidate *c = *out;
  c->family = family;
  c->config = *config;
  c->text = own;
  c->version = family->version;
  c->order =
      query->space->open ? UINT64_MAX : cuvil_point_order(query->space, config);
  if (family->derive) family->derive(query, config, &c->derived);
  if (family->predict)
    c->predicted = family->predict(query, config, &c->derived);
  return CUVIL_OK;
}

/* ---- choosing */
static int by_prediction(const void *left, const void *right) {
  const struct cuvil_point *a = left, *b = right;
  if (a->predicted != b->predicted) return a->predicted < b->predicted ? -1 : 1;
  if (a->family != b->family) return strcmp(a->family->id, b->family->id);
  return a->order < b->order ? -1 : a->order > b->order;
}

/* The default of a point's own family, or the untuned choice of all? */
struct defaults {
  const struct cuvil_family *fallback;
  uint64_t fallback_order;
  const struct cuvil_family *family; /* asked last */
  uint64_t order;
};

static enum cuvil_status is_default(const struct cuvil_problem *problem,
                                    const struct cuvil_arch *arch,
                                    struct cuvil_point *point,
                                    struct defaults *defaults, bool *out) {
  if (defaults->family != point->family) {
    struct cuvil_query query = {problem, arch, NULL};
    struct cuvil_config config = {{0}};
    CUVIL_TRY(cuvil_family_space(point->family, &query.space));
    point->family->default_config(&query, &config);
    defaults->family = point->family;
    defaults->order = cuvil_point_order(query.space, &config);
  }
  point->untuned = point->family == defaults->fallback &&
                   point->order == defaults->fallback_order;
  *out = point->order == defaults->order || point->untuned;
  return CUVIL_OK;
}

static enum cuvil_status find_fallback(const struct cuvil_problem *problem,
                                       const struct cuvil_arch *arch,
                                       struct defaults *out) {
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  CUVIL_TRY(cuvil_family_fallback(problem, arch, &out->fallback, &config));
  CUVIL_TRY(cuvil_family_space(out->fallback, &space));
  out->fallback_order = cuvil_point_order(space, &config);
  return CUVIL_OK;
}

/* The place of a point in the grid of its space. */
static void place(const struct cuvil_space *space, uint64_t order,
                  struct cuvil_site *site) {
  site->params = space->param_count;
  for (int p = space->param_count - 1; p >= 0; p--) {
    uint64_t count = (uint64_t)space->params[p].count;
    site->digit[p] = (unsigned char)(order % count);
    order /= count;
  }
}

enum cuvil_status cuvil_candidates_sites(struct cuvil_candidates *list,
                                         const struct cuvil_problem *problem,
                                         const struct cuvil_arch *arch,
                                         struct cuvil_site **out) {
  int count = list->point_count;
  struct cuvil_site *sites = calloc((size_t)count + 1, sizeof *sites);
  struct defaults defaults = {0};
  enum cuvil_status status = CUVIL_OK;
  *out = NULL;
  if (!sites) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
  CUVIL_TRY_GOTO(find_fallback(problem, arch, &defaults));
  if (count > 0)
    qsort(list->points, (size_t)count, sizeof list->points[0], by_prediction);
  for (int i = 0; i < count; i++) {
    struct cuvil_point *point = &list->points[i];
    const struct cuvil_space *space = NULL;
    const char *id = point->family->id;
    CUVIL_TRY_GOTO(cuvil_family_space(point->family, &space));
    place(space, point->order, &sites[i]);
    while (cuvil_family_at(sites[i].group) != point->family)
      sites[i].group++;
    sites[i].key = cuvil_hash64(&point->order, sizeof point->order,
                                cuvil_hash64(id, strlen(id), 0));
    sites[i].predicted = point->predicted;
    sites[i].allowed = point->allowed;
    sites[i].sampled = point->sampled;
    CUVIL_TRY_GOTO(
        is_default(problem, arch, point, &defaults, &sites[i].first));
  }
  *out = sites;
  return CUVIL_OK;
fail:
  free(sites);
  return status;
}

enum cuvil_status cuvil_candidates_take(struct cuvil_candidates *list,
                                        const struct cuvil_problem *problem,
                                        const struct cuvil_arch *arch,
                                        int index,
                                        struct cuvil_candidate **out) {
  const struct cuvil_point *point = &list->points[index];
  struct cuvil_query query = {problem, arch, NULL};
  struct cuvil_config config = {{0}};
  *out = NULL;
  CUVIL_TRY(cuvil_family_space(point->family, &query.space));
  cuvil_space_point(query.space, point->order, &config);
  CUVIL_TRY(make(list, &query, point->family, &config, out));
  (*out)->is_default = point->untuned;
  (*out)->site = index;
  return CUVIL_OK;
}

enum cuvil_status cuvil_candidates_choose(struct cuvil_candidates *list,
                                          const struct cuvil_problem *problem,
                                          const struct cuvil_arch *arch,
                                          const struct cuvil_strategy *strategy,
                                          int limit, uint64_t seed) {
  int *asked = calloc((size_t)list->point_count + 1, sizeof *asked), count = 0;
  struct cuvil_site *sites = NULL;
  struct cuvil_chooser *chooser = NULL;
  enum cuvil_status status = CUVIL_OK;
  if (!asked)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose"));
  CUVIL_TRY_GOTO(cuvil_candidates_sites(list, problem, arch, &sites));
  CUVIL_TRY_GOTO(cuvil_chooser_create(strategy, sites, list->point_count, limit,
                                      seed, &chooser));
  CUVIL_TRY_GOTO(cuvil_chooser_ask(chooser, list->point_count, asked, &count));
  for (int i = 0; i < count; i++) {
    struct cuvil_candidate *c = NULL;
    CUVIL_TRY_GOTO(cuvil_candidates_take(list, problem, arch, asked[i], &c));
  }
fail:
  cuvil_chooser_destroy(chooser);
  free(sites);
  free(asked);
  return status;
}

struct cuvil_candidate *cuvil_candidates_find(struct cuvil_candidates *list,
                                              const char *family,
                                              const char *text) {
  for (int i = 0; i < list->count; i++)
    if (list->items[i].text && strcmp(list->items[i].text, text) == 0 &&
        strcmp(list->items[i].family->id, family) == 0)
      return &list->items[i];
  return NULL;
}

enum cuvil_status cuvil_candidates_add(struct cuvil_candidates *list,
                                       const struct cuvil_problem *problem,
                                       const struct cuvil_arch *arch,
                                       const struct cuvil_family *family,
                                       const char *text,
                                       struct cuvil_candidate **out) {
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  *out = cuvil_candidates_find(list, family->id, text);
  if (*out) return CUVIL_OK;
  CUVIL_TRY(cuvil_family_space(family, &space));
  CUVIL_TRY(cuvil_config_parse(space, text, &config));
  struct cuvil_query query = {problem, arch, space};
  return make(list, &query, family, &config, out);
}

void cuvil_candidates_clear_points(struct cuvil_candidates *list) {
  list->point_count = 0;
}

void cuvil_candidates_free(struct cuvil_candidates *list) {
  for (int i = 0; i < list->count; i++) {
    free(list->items[i].text);
    free(list->items[i].rounds);
    free(list->items[i].control);
  }
  for (int i = 0; i < list->walk_count; i++)
    free(list->walks[i].removed);
  free(list->items);
  free(list->points);
  free(list->walks);
  *list = (struct cuvil_candidates){0};
}
