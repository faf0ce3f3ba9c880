/* candidates.c - from a problem's points to the list of what is tried.
 *
 * Choosing takes the defaults, then the best predicted and, because
 * predictions are only guesses, some of the rest by chance.  Only what is
 * chosen becomes a candidate with a text and a place for results; walk.c finds
 * the points.
 */
#include "tuner/candidates.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { PREDICTED_POOL = 512 }; /* best predicted points looked at */

const struct cuvil_strategy_about cuvil_strategies[] = {
    {"ordered",
     "best predicted first, a share by chance (explore=0.25); the default"},
    {"random", "a seeded random sample of the allowed points"},
    {"exhaustive", "every point that hard rules leave"},
    {NULL, NULL},
};

void cuvil_outcome_fail(struct cuvil_outcome *outcome, const char *reason,
                        const char *format, ...) {
  va_list args;
  outcome->ok = false;
  snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
  va_start(args, format);
  vsnprintf(outcome->detail, sizeof outcome->detail, format, args);
  va_end(args);
}

enum cuvil_status cuvil_strategy_parse(const char *text,
                                       struct cuvil_strategy *out) {
  size_t length = strcspn(text, ":");
  *out = (struct cuvil_strategy){CUVIL_STRATEGY_ORDERED, 0.25};
  int kind = -1;
  for (int i = 0; cuvil_strategies[i].name; i++)
    if (strlen(cuvil_strategies[i].name) == length &&
        strncmp(text, cuvil_strategies[i].name, length) == 0)
      kind = i;
  if (kind < 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--strategy %s: there is no such strategy; see "
                      "--list-strategies",
                      text);
  out->kind = (enum cuvil_strategy_kind)kind;
  const char *option = text + length;
  while (*option) {
    char *end = NULL;
    option++; /* ':' or ',' */
    if (out->kind == CUVIL_STRATEGY_ORDERED &&
        strncmp(option, "explore=", 8) == 0) {
      out->explore = strtod(option + 8, &end);
      if (end != option + 8 && (*end == '\0' || *end == ',') &&
          out->explore >= 0 && out->explore <= 1) {
        option = end;
        continue;
      }
    }
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--strategy %s: \"%s\" is not an option of it; ordered "
                      "takes explore=0..1",
                      text, option);
  }
  return CUVIL_OK;
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
  c->order = UINT64_MAX;
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
                                    const struct cuvil_point *point,
                                    struct defaults *defaults, bool *out) {
  if (defaults->family != point->family) {
    struct cuvil_query query = {problem, arch, NULL};
    struct cuvil_config config = {{0}};
    CUVIL_TRY(cuvil_family_space(point->family, &query.space));
    point->family->default_config(&query, &config);
    defaults->family = point->family;
    defaults->order = cuvil_point_order(query.space, &config);
  }
  *out = point->order == defaults->order ||
         (point->family == defaults->fallback &&
          point->order == defaults->fallback_order);
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

/* How many of `limit` are taken by prediction. */
static int predicted_share(const struct cuvil_strategy *strategy, int limit) {
  double by_chance = strategy->kind == CUVIL_STRATEGY_ORDERED
                         ? strategy->explore
                     : strategy->kind == CUVIL_STRATEGY_RANDOM ? 1.0
                                                               : 0.5;
  return limit - (int)(by_chance * limit);
}

/* Do they differ in one parameter at most? */
static bool is_near(const struct cuvil_point *a, const struct cuvil_point *b) {
  const struct cuvil_space *space = NULL;
  uint64_t x = a->order, y = b->order;
  int differences = 0;
  if (a->family != b->family ||
      cuvil_family_space(a->family, &space) != CUVIL_OK)
    return false;
  for (int p = space->param_count - 1; p >= 0 && differences < 2; p--) {
    uint64_t count = (uint64_t)space->params[p].count;
    differences += x % count != y % count;
    x /= count;
    y /= count;
  }
  return differences < 2;
}

/* The best predicted, each near relative that was taken before counting as
 * 5 % of time: predictions do not tell near relatives apart, measuring all of
 * a crowd tells little more than measuring one. */
static void pick_predicted(const struct cuvil_point *points, int count,
                           int wanted, bool *keep, double *score) {
  int kept = 0;
  for (int i = 0; i < count; i++) {
    kept += keep[i];
    score[i] = points[i].predicted;
  }
  for (int i = 0; i < count; i++)
    for (int k = 0; keep[i] && k < count; k++)
      if (is_near(&points[i], &points[k])) score[k] *= 1.05;
  while (kept < wanted) {
    int best = -1;
    for (int i = 0; i < count; i++)
      if (!keep[i] && (best < 0 || score[i] < score[best])) best = i;
    if (best < 0) return;
    keep[best] = true;
    kept++;
    for (int k = 0; k < count; k++)
      if (is_near(&points[best], &points[k])) score[k] *= 1.05;
  }
}

/* keep[i]: point i is chosen.  Points are in the order of prediction. */
static void pick(const struct cuvil_point *points, int count, int limit,
                 int predicted, uint64_t seed, bool *keep, double *score,
                 int *rest) {
  struct cuvil_rng rng = {seed ^ 0x9e3779b97f4a7c15u};
  int kept = 0, rest_count = 0;
  int pool = limit > PREDICTED_POOL / 4 ? 4 * limit : PREDICTED_POOL;
  if (limit == count) { /* all: nothing to pick */
    for (int i = 0; i < count; i++)
      keep[i] = true;
    return;
  }
  if (pool > count) pool = count;
  for (int i = pool; i < count; i++)
    predicted -= keep[i]; /* a default that is predicted slow */
  pick_predicted(points, pool, predicted, keep, score);
  for (int i = 0; i < count; i++)
    kept += keep[i];
  for (int i = 0; i < count; i++)
    if (!keep[i]) rest[rest_count++] = i;
  while (kept < limit && rest_count > 0) {
    int at = (int)cuvil_rng_below(&rng, (uint64_t)rest_count);
    keep[rest[at]] = true;
    kept++;
    rest[at] = rest[--rest_count];
  }
}

static enum cuvil_status make_chosen(struct cuvil_candidates *list,
                                     const struct cuvil_problem *problem,
                                     const struct cuvil_arch *arch,
                                     const struct defaults *defaults,
                                     const bool *keep) {
  for (int i = 0; i < list->point_count; i++) {
    const struct cuvil_point *point = &list->points[i];
    struct cuvil_query query = {problem, arch, NULL};
    struct cuvil_config config = {{0}};
    struct cuvil_candidate *c = NULL;
    if (!keep[i]) continue;
    CUVIL_TRY(cuvil_family_space(point->family, &query.space));
    cuvil_space_point(query.space, point->order, &config);
    CUVIL_TRY(make(list, &query, point->family, &config, &c));
    c->order = point->order;
    c->is_default = point->family == defaults->fallback &&
                    point->order == defaults->fallback_order;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_candidates_choose(struct cuvil_candidates *list,
                                          const struct cuvil_problem *problem,
                                          const struct cuvil_arch *arch,
                                          const struct cuvil_strategy *strategy,
                                          int limit, uint64_t seed) {
  int count = list->point_count;
  bool *keep = calloc((size_t)count + 1, sizeof *keep);
  int *rest = calloc((size_t)count + 1, sizeof *rest);
  double *score = calloc((size_t)count + 1, sizeof *score);
  struct defaults defaults = {0};
  enum cuvil_status status = CUVIL_OK;
  if (!keep || !rest || !score) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
    goto fail;
  }
  CUVIL_TRY_GOTO(find_fallback(problem, arch, &defaults));
  if (limit <= 0 || limit > count) limit = count;
  if (count > 0)
    qsort(list->points, (size_t)count, sizeof list->points[0], by_prediction);
  for (int i = 0; i < count; i++)
    CUVIL_TRY_GOTO(
        is_default(problem, arch, &list->points[i], &defaults, &keep[i]));
  pick(list->points, count, limit, predicted_share(strategy, limit), seed, keep,
       score, rest);
  CUVIL_TRY_GOTO(make_chosen(list, problem, arch, &defaults, keep));
fail:
  free(keep);
  free(rest);
  free(score);
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
