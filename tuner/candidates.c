/* candidates.c - from a problem to the list of what is worth trying.
 *
 * Each applicable own family's space is walked point by point.  A point that
 * breaks a rule is counted under the first rule that it breaks; what stays is
 * ordered by the family's own prediction.  A space too big to walk in the time
 * that pruning may take is sampled by a fixed stride from a seeded start, so
 * that the same command examines the same points anywhere.  Choosing then
 * takes the best predicted and, because predictions are only guesses, some of
 * the rest by chance.
 */
#include "tuner/candidates.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

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

/* Fills what follows from family, config and problem. */
static void describe(const struct cuvil_query *query,
                     struct cuvil_candidate *candidate) {
  const struct cuvil_family *family = candidate->family;
  if (family->derive)
    family->derive(query, &candidate->config, &candidate->derived);
  candidate->predicted =
      family->predict
          ? family->predict(query, &candidate->config, &candidate->derived)
          : 0;
  candidate->version = family->version;
}

static enum cuvil_status print_text(const struct cuvil_space *space,
                                    struct cuvil_candidate *candidate) {
  struct cuvil_buf text = {0};
  if (candidate->text) return CUVIL_OK;
  cuvil_config_print(space, &candidate->config, &text);
  cuvil_buf_puts(&text, "");
  CUVIL_TRY(cuvil_buf_status(&text));
  candidate->text = text.data ? cuvil_buf_take(&text) : strdup("");
  if (!candidate->text)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a config's text");
  return CUVIL_OK;
}

static bool same_config(const struct cuvil_space *space,
                        const struct cuvil_config *a,
                        const struct cuvil_config *b) {
  return memcmp(a->value, b->value,
                (size_t)space->param_count * sizeof a->value[0]) == 0;
}

/* The item of this family and config; -1 when it is not in the list. */
static int find_config(const struct cuvil_candidates *list,
                       const struct cuvil_family *family,
                       const struct cuvil_space *space,
                       const struct cuvil_config *config) {
  for (int i = 0; i < list->count; i++)
    if (list->items[i].family == family &&
        same_config(space, &list->items[i].config, config))
      return i;
  return -1;
}

/* A stride that visits every point once: coprime with the size, near the
 * golden section, so that a sample is spread over the whole space. */
static uint64_t spread(uint64_t size) {
  uint64_t step = (uint64_t)((double)size * 0.6180339887498949) | 1;
  for (;; step += 2) {
    uint64_t a = size, b = step;
    while (b) {
      uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) return step;
  }
}

static enum cuvil_status walk_point(const struct cuvil_query *query,
                                    const struct cuvil_walk_options *options,
                                    uint64_t index, struct cuvil_walk *walk,
                                    struct cuvil_candidates *list) {
  struct cuvil_candidate *item = NULL;
  struct cuvil_config config = {{0}};
  struct cuvil_derived derived = {0};
  int rule = -1;
  cuvil_space_point(walk->space, index, &config);
  walk->examined++;
  bool allowed =
      cuvil_family_allows(walk->family, query, &config, true, &derived, &rule);
  bool valid = allowed;
  if (!allowed && rule >= 0 && !walk->space->rules[rule].hard) {
    int hard = -1;
    valid = cuvil_family_allows(walk->family, query, &config, false, &derived,
                                &hard);
    if (!valid) rule = hard;
  }
  if (!allowed) walk->removed[rule >= 0 ? rule : walk->space->rule_count]++;
  walk->valid += valid;
  walk->allowed += allowed;
  if (!(options->heuristics ? allowed : valid)) return CUVIL_OK;
  CUVIL_TRY(push(list, &item));
  item->family = walk->family;
  item->config = config;
  item->order = index;
  describe(query, item);
  return CUVIL_OK;
}

static enum cuvil_status walk_family(const struct cuvil_family *family,
                                     const struct cuvil_problem *problem,
                                     const struct cuvil_arch *arch,
                                     const struct cuvil_walk_options *options,
                                     struct cuvil_candidates *list) {
  const struct cuvil_space *space = NULL;
  CUVIL_TRY(cuvil_family_space(family, &space));
  struct cuvil_query query = {problem, arch, space};
  struct cuvil_walk *walks = realloc(
      list->walks, (size_t)(list->walk_count + 1) * sizeof *list->walks);
  if (!walks) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a walk");
  list->walks = walks;
  struct cuvil_walk *walk = &list->walks[list->walk_count++];
  *walk = (struct cuvil_walk){.family = family, .space = space};
  walk->points = cuvil_space_size(space);
  walk->removed =
      calloc((size_t)space->rule_count + 1, sizeof walk->removed[0]);
  if (!walk->removed)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a walk");

  if (options->limit && walk->points > options->limit) {
    uint64_t step = spread(walk->points);
    struct cuvil_rng rng = {options->seed};
    uint64_t at = cuvil_rng_below(&rng, walk->points);
    for (uint64_t i = 0; i < options->limit; i++) {
      CUVIL_TRY(walk_point(&query, options, at, walk, list));
      at = (at + step) % walk->points;
    }
  } else {
    for (uint64_t i = 0; i < walk->points; i++)
      CUVIL_TRY(walk_point(&query, options, i, walk, list));
  }
  /* The family's own default is always there: it is what it offers untuned,
   * and a sample may have missed it. */
  struct cuvil_config config = {{0}};
  family->default_config(&query, &config);
  if (find_config(list, family, space, &config) < 0) {
    struct cuvil_candidate *item = NULL;
    CUVIL_TRY(push(list, &item));
    item->family = family;
    item->config = config;
    item->order = UINT64_MAX;
    describe(&query, item);
  }
  return CUVIL_OK;
}

/* Marks the untuned choice of the problem, adding it where the list of
 * families left it out. */
static enum cuvil_status mark_default(const struct cuvil_problem *problem,
                                      const struct cuvil_arch *arch,
                                      struct cuvil_candidates *list) {
  const struct cuvil_family *family = NULL;
  const struct cuvil_space *space = NULL;
  struct cuvil_config config = {{0}};
  CUVIL_TRY(cuvil_family_fallback(problem, arch, &family, &config));
  CUVIL_TRY(cuvil_family_space(family, &space));
  int at = find_config(list, family, space, &config);
  if (at < 0) {
    struct cuvil_query query = {problem, arch, space};
    struct cuvil_candidate *item = NULL;
    CUVIL_TRY(push(list, &item));
    item->family = family;
    item->config = config;
    item->order = UINT64_MAX;
    describe(&query, item);
    at = list->count - 1;
  }
  list->items[at].is_default = true;
  return CUVIL_OK;
}

static int by_prediction(const void *left, const void *right) {
  const struct cuvil_candidate *a = left, *b = right;
  if (a->predicted != b->predicted) return a->predicted < b->predicted ? -1 : 1;
  if (a->family != b->family) return strcmp(a->family->id, b->family->id);
  return a->order < b->order ? -1 : a->order > b->order;
}

enum cuvil_status cuvil_candidates_walk(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    const struct cuvil_walk_options *options, struct cuvil_candidates *out) {
  enum cuvil_status status = CUVIL_OK;
  *out = (struct cuvil_candidates){0};
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *family = cuvil_family_at(i);
    if (family->reference || family->library) continue;
    if (!(family->kinds & (1u << problem->kind))) continue;
    if (!cuvil_families_include(options->families, family->id)) continue;
    if (!family->applicable(problem, arch)) continue;
    CUVIL_TRY_GOTO(walk_family(family, problem, arch, options, out));
  }
  CUVIL_TRY_GOTO(mark_default(problem, arch, out));
  qsort(out->items, (size_t)out->count, sizeof out->items[0], by_prediction);
  return CUVIL_OK;
fail:
  cuvil_candidates_free(out);
  return status;
}

enum cuvil_status cuvil_candidates_print(struct cuvil_candidates *list) {
  for (int i = 0; i < list->count; i++) {
    const struct cuvil_space *space = NULL;
    CUVIL_TRY(cuvil_family_space(list->items[i].family, &space));
    CUVIL_TRY(print_text(space, &list->items[i]));
  }
  return CUVIL_OK;
}

/* The default of its own family?  Those are never trimmed. */
static bool is_family_default(const struct cuvil_candidates *list, int index,
                              const struct cuvil_problem *problem,
                              const struct cuvil_arch *arch) {
  const struct cuvil_candidate *item = &list->items[index];
  const struct cuvil_space *space = NULL;
  if (cuvil_family_space(item->family, &space) != CUVIL_OK) return false;
  struct cuvil_query query = {problem, arch, space};
  struct cuvil_config config = {{0}};
  item->family->default_config(&query, &config);
  return same_config(space, &config, &item->config);
}

enum cuvil_status cuvil_candidates_choose(struct cuvil_candidates *list,
                                          const struct cuvil_problem *problem,
                                          const struct cuvil_arch *arch,
                                          const struct cuvil_strategy *strategy,
                                          int limit, uint64_t seed) {
  struct cuvil_rng rng = {seed ^ 0x9e3779b97f4a7c15u};
  int count = list->count, kept = 0;
  bool *keep = calloc((size_t)count + 1, sizeof *keep);
  int *rest = calloc((size_t)count + 1, sizeof *rest);
  enum cuvil_status status = CUVIL_OK;
  if (!keep || !rest) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to choose");
    goto fail;
  }
  if (limit <= 0 || limit > count) limit = count;
  for (int i = 0; i < count; i++) {
    keep[i] =
        list->items[i].is_default || is_family_default(list, i, problem, arch);
    kept += keep[i];
  }
  double by_chance = strategy->kind == CUVIL_STRATEGY_ORDERED
                         ? strategy->explore
                         : 1.0; /* exhaustive with a limit: a fair sample */
  int predicted = limit - (int)(by_chance * limit);
  for (int i = 0; i < count && kept < predicted; i++)
    if (!keep[i]) keep[i] = true, kept++;
  int rest_count = 0;
  for (int i = 0; i < count; i++)
    if (!keep[i]) rest[rest_count++] = i;
  while (kept < limit && rest_count > 0) {
    int at = (int)cuvil_rng_below(&rng, (uint64_t)rest_count);
    keep[rest[at]] = true;
    kept++;
    rest[at] = rest[--rest_count];
  }
  int to = 0;
  for (int i = 0; i < count; i++)
    if (keep[i])
      list->items[to++] = list->items[i];
    else
      free(list->items[i].text);
  list->count = to;
  CUVIL_TRY_GOTO(cuvil_candidates_print(list));
fail:
  free(keep);
  free(rest);
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
  CUVIL_TRY(push(list, out));
  (*out)->family = family;
  (*out)->config = config;
  (*out)->order = UINT64_MAX;
  describe(&query, *out);
  enum cuvil_status status = print_text(space, *out);
  if (status != CUVIL_OK) {
    list->count--;
    *out = NULL;
  }
  return status;
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
  free(list->walks);
  *list = (struct cuvil_candidates){0};
}
