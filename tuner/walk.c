/* walk.c - the points of a problem's spaces, and how rules thin them.
 *
 * Each applicable own family's space is walked point by point; a point that
 * breaks a rule is counted under the first rule that it breaks.  A space too
 * big for the time that pruning may take is sampled by a fixed stride from a
 * seeded start, so that the same command examines the same points anywhere,
 * and the counts are of that sample.
 *
 * A sample misses most of the good points.  Rules that need nothing of derive
 * cut whole parts of a space, and what they leave is mostly few enough to be
 * asked one by one; then nothing is missed.  Where it is not, single parameters
 * of the best predicted of the sample are changed as long as that leads to
 * points predicted better.  Without heuristic rules the points are the
 * sample's, those that climbing leads to, and all that the rules would allow.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tuner/candidates.h"

enum {
  CLIMBERS = 24,
  CLIMB_STEPS = 8,
  STARTS = 16,
  SAMPLES_MOST = 8,
  LEAVES_MOST = 4 /* times limit: points asked after whole parts were cut */
};

/* Points seen, by rank: open addressing; an empty place holds EMPTY. */
#define EMPTY UINT64_MAX
struct seen {
  uint64_t *slots;
  size_t size, used; /* size: a power of two */
};

static bool seen_add(struct seen *seen, uint64_t order) {
  size_t at = (size_t)(order * 0x9e3779b97f4a7c15u) & (seen->size - 1);
  while (seen->slots[at] != EMPTY) {
    if (seen->slots[at] == order) return false;
    at = (at + 1) & (seen->size - 1);
  }
  seen->slots[at] = order;
  seen->used++;
  return true;
}

static enum cuvil_status seen_create(struct seen *seen, size_t most) {
  seen->size = 64;
  while (seen->size < 2 * most)
    seen->size *= 2;
  seen->slots = malloc(seen->size * sizeof *seen->slots);
  if (!seen->slots)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to walk a space");
  memset(seen->slots, 0xff, seen->size * sizeof *seen->slots);
  return CUVIL_OK;
}

struct walker {
  struct cuvil_query query;
  const struct cuvil_walk_options *options;
  struct cuvil_walk *walk;
  struct cuvil_candidates *list;
  struct seen seen; /* of a sampled space; slots NULL: every point is new */
  uint64_t leaves;  /* points asked after whole parts were cut */
};

uint64_t cuvil_point_order(const struct cuvil_space *space,
                           const struct cuvil_config *config) {
  uint64_t order = 0;
  for (int p = 0; p < space->param_count; p++) {
    const struct cuvil_param *param = &space->params[p];
    int at = 0;
    while (at < param->count && param->values[at] != config->value[p])
      at++;
    if (at == param->count) return UINT64_MAX;
    order = order * (uint64_t)param->count + (uint64_t)at;
  }
  return order;
}

static enum cuvil_status push_point(struct cuvil_candidates *list,
                                    struct cuvil_point point) {
  if (list->point_count == list->point_capacity) {
    int capacity = list->point_capacity ? 2 * list->point_capacity : 256;
    struct cuvil_point *points =
        realloc(list->points, (size_t)capacity * sizeof *points);
    if (!points)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %d points",
                        capacity);
    list->points = points;
    list->point_capacity = capacity;
  }
  list->points[list->point_count++] = point;
  return CUVIL_OK;
}

static enum cuvil_status keep_point(struct walker *w, uint64_t order,
                                    const struct cuvil_config *config,
                                    const struct cuvil_derived *derived,
                                    bool allowed, bool sampled) {
  const struct cuvil_family *family = w->walk->family;
  double predicted =
      family->predict ? family->predict(&w->query, config, derived) : 0;
  return push_point(w->list, (struct cuvil_point){.family = family,
                                                  .order = order,
                                                  .predicted = predicted,
                                                  .allowed = allowed,
                                                  .sampled = sampled});
}

/* counted: the point is of the even sample. */
static enum cuvil_status visit(struct walker *w, uint64_t order, bool counted) {
  struct cuvil_walk *walk = w->walk;
  struct cuvil_config config = {{0}};
  struct cuvil_derived derived = {0};
  int rule = -1;
  bool heuristics = w->options->heuristics;
  if (w->seen.slots && !seen_add(&w->seen, order)) return CUVIL_OK;
  cuvil_space_point(walk->space, order, &config);
  bool allowed = cuvil_family_allows(walk->family, &w->query, &config, true,
                                     &derived, &rule);
  if (!allowed && rule == -2)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "space of %s: %s", walk->family->id,
                      cuvil_last_error());
  bool valid = allowed;
  /* Only whoever counts or wants heuristic losers needs the second answer. */
  if (!allowed && rule >= 0 && !walk->space->rules[rule].hard &&
      (counted || !heuristics)) {
    int hard = -1;
    valid = cuvil_family_allows(walk->family, &w->query, &config, false,
                                &derived, &hard);
    if (!valid) rule = hard;
  }
  if (counted) {
    walk->examined++;
    walk->valid += valid;
    walk->allowed += allowed;
    if (!allowed) walk->removed[rule >= 0 ? rule : walk->space->rule_count]++;
  }
  if (!(heuristics ? allowed : valid)) return CUVIL_OK;
  return keep_point(w, order, &config, &derived, allowed, counted);
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

static int by_prediction(const void *left, const void *right) {
  const struct cuvil_point *a = left, *b = right;
  if (a->predicted != b->predicted) return a->predicted < b->predicted ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

/* All points that differ from `order` in one parameter. */
static enum cuvil_status visit_neighbours(struct walker *w, uint64_t order) {
  const struct cuvil_space *space = w->walk->space;
  uint64_t weight = 1;
  for (int p = space->param_count - 1; p >= 0; p--) {
    uint64_t count = (uint64_t)space->params[p].count;
    uint64_t digit = order / weight % count;
    for (uint64_t v = 0; v < count; v++)
      if (v != digit && w->seen.used < w->seen.size / 2)
        CUVIL_TRY(visit(w, order - digit * weight + v * weight, false));
    weight *= count;
  }
  return CUVIL_OK;
}

/* From the best predicted of this family's points, step by step. */
static enum cuvil_status climb(struct walker *w, int first) {
  uint64_t expanded[CLIMBERS * CLIMB_STEPS];
  int expanded_count = 0;
  for (int step = 0; step < CLIMB_STEPS; step++) {
    struct cuvil_point best[CLIMBERS];
    int n = w->list->point_count - first, moved = 0;
    if (n == 0) return CUVIL_OK;
    qsort(w->list->points + first, (size_t)n, sizeof best[0], by_prediction);
    if (n > CLIMBERS) n = CLIMBERS;
    memcpy(best, w->list->points + first, (size_t)n * sizeof best[0]);
    for (int i = 0; i < n; i++) {
      bool done = false;
      for (int e = 0; e < expanded_count; e++)
        done |= expanded[e] == best[i].order;
      if (done) continue;
      expanded[expanded_count++] = best[i].order;
      CUVIL_TRY(visit_neighbours(w, best[i].order));
      moved++;
    }
    if (!moved) break;
  }
  return CUVIL_OK;
}

/* ---- all allowed points of a large space */
static enum cuvil_status ask_leaf(void *user, uint64_t order,
                                  const struct cuvil_config *config) {
  struct walker *w = user;
  struct cuvil_derived derived = {0};
  int rule = -1;
  if (++w->leaves > LEAVES_MOST * w->options->limit) return CU_ERR_UNSUPPORTED;
  if (!cuvil_family_allows(w->walk->family, &w->query, config, true, &derived,
                           &rule))
    return rule == -2 ? CU_ERR_INTERNAL : CUVIL_OK;
  if (w->seen.slots && !seen_add(&w->seen, order)) return CUVIL_OK;
  return keep_point(w, order, config, &derived, true, false);
}

/* Leaves walk->complete false, and adds no points, when too much is left to
 * ask. */
static enum cuvil_status find_all(struct walker *w) {
  int first = w->list->point_count;
  w->leaves = 0;
  enum cuvil_status status = cuvil_family_cut(&w->query, ask_leaf, w);
  if (status == CU_ERR_UNSUPPORTED) {
    w->list->point_count = first;
    return CUVIL_OK;
  }
  CUVIL_TRY(status);
  w->walk->complete = w->options->heuristics; /* else the sample has some */
  w->walk->found = (uint64_t)(w->list->point_count - first);
  return CUVIL_OK;
}

/* An even sample that is only counted. */
static enum cuvil_status count_sample(struct walker *w) {
  int first = w->list->point_count;
  uint64_t size = w->walk->points, limit = w->options->limit;
  struct cuvil_rng rng = {w->options->seed};
  uint64_t step = spread(size), at = cuvil_rng_below(&rng, size);
  for (uint64_t i = 0; i < limit; i++) {
    CUVIL_TRY(visit(w, at, true));
    at = (at + step) % size;
  }
  w->list->point_count = first;
  return CUVIL_OK;
}

/* `limit` points; where rules leave few of them, more, up to SAMPLES_MOST
 * times as many: a start for climbing must be found. */
static enum cuvil_status sample(struct walker *w) {
  uint64_t size = w->walk->points, limit = w->options->limit;
  struct cuvil_rng rng = {w->options->seed};
  uint64_t step = spread(size), at = cuvil_rng_below(&rng, size);
  int first = w->list->point_count;
  uint64_t most = SAMPLES_MOST * limit < size ? SAMPLES_MOST * limit : size;
  CUVIL_TRY(seen_create(&w->seen, (size_t)(most + (3 + LEAVES_MOST) * limit)));
  for (uint64_t i = 0; i < most; i++) {
    if (i >= limit && w->list->point_count - first >= STARTS) break;
    CUVIL_TRY(visit(w, at, true));
    at = (at + step) % size;
  }
  return climb(w, first);
}

void cuvil_walk_estimate(const struct cuvil_walk *walk, uint64_t *out_valid,
                         uint64_t *out_allowed) {
  double scale =
      walk->examined ? (double)walk->points / (double)walk->examined : 0;
  *out_valid = (uint64_t)((double)walk->valid * scale + 0.5);
  *out_allowed = walk->complete
                     ? walk->found
                     : (uint64_t)((double)walk->allowed * scale + 0.5);
}

/* The family's own default is always there: it is what it offers untuned. */
static enum cuvil_status keep_default(struct walker *w, int first) {
  struct cuvil_config config = {{0}};
  struct cuvil_derived derived = {0};
  w->walk->family->default_config(&w->query, &config);
  uint64_t order = cuvil_point_order(w->walk->space, &config);
  if (order == UINT64_MAX)
    return CUVIL_FAIL(CU_ERR_INTERNAL, "the default of %s is not in its space",
                      w->walk->family->id);
  for (int i = first; i < w->list->point_count; i++)
    if (w->list->points[i].order == order) return CUVIL_OK;
  w->walk->family->derive(&w->query, &config, &derived);
  return keep_point(w, order, &config, &derived, true, false);
}

static enum cuvil_status walk_family(const struct cuvil_family *family,
                                     const struct cuvil_problem *problem,
                                     const struct cuvil_arch *arch,
                                     const struct cuvil_walk_options *options,
                                     struct cuvil_candidates *list) {
  struct walker w = {
      .query = {problem, arch, NULL}, .options = options, .list = list};
  int first = list->point_count;
  CUVIL_TRY(cuvil_family_space(family, &w.query.space));
  struct cuvil_walk *walks = realloc(
      list->walks, (size_t)(list->walk_count + 1) * sizeof *list->walks);
  if (!walks) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a walk");
  list->walks = walks;
  w.walk = &list->walks[list->walk_count++];
  *w.walk = (struct cuvil_walk){.family = family, .space = w.query.space};
  w.walk->points = cuvil_space_size(w.query.space);
  w.walk->removed =
      calloc((size_t)w.query.space->rule_count + 1, sizeof(uint64_t));
  if (!w.walk->removed)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a walk");
  enum cuvil_status status = CUVIL_OK;
  if (options->limit && w.walk->points > options->limit) {
    if (options->heuristics) status = find_all(&w);
    if (status == CUVIL_OK)
      status = w.walk->complete ? count_sample(&w) : sample(&w);
    if (status == CUVIL_OK && !options->heuristics) status = find_all(&w);
  } else {
    for (uint64_t i = 0; i < w.walk->points && status == CUVIL_OK; i++)
      status = visit(&w, i, true);
  }
  if (status == CUVIL_OK) status = keep_default(&w, first);
  free(w.seen.slots);
  return status;
}

/* The untuned choice, where the list of families or their kind (a reference
 * family may be all there is) left it out. */
static enum cuvil_status keep_fallback(const struct cuvil_problem *problem,
                                       const struct cuvil_arch *arch,
                                       struct cuvil_candidates *list) {
  const struct cuvil_family *family = NULL;
  struct cuvil_query query = {problem, arch, NULL};
  struct cuvil_config config = {{0}};
  struct cuvil_derived derived = {0};
  CUVIL_TRY(cuvil_family_fallback(problem, arch, &family, &config));
  CUVIL_TRY(cuvil_family_space(family, &query.space));
  uint64_t order = cuvil_point_order(query.space, &config);
  for (int i = 0; i < list->point_count; i++)
    if (list->points[i].family == family && list->points[i].order == order)
      return CUVIL_OK;
  family->derive(&query, &config, &derived);
  double predicted =
      family->predict ? family->predict(&query, &config, &derived) : 0;
  return push_point(list, (struct cuvil_point){.family = family,
                                               .order = order,
                                               .predicted = predicted,
                                               .allowed = true});
}

static bool serves(const struct cuvil_family *family,
                   const struct cuvil_problem *problem,
                   const struct cuvil_arch *arch, const char *families) {
  return !family->reference && !family->library &&
         (family->kinds & (1u << problem->kind)) &&
         cuvil_families_include(families, family->id) &&
         family->applicable(problem, arch);
}

enum cuvil_status cuvil_candidates_walk(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    const struct cuvil_walk_options *options, struct cuvil_candidates *out) {
  enum cuvil_status status = CUVIL_OK;
  *out = (struct cuvil_candidates){0};
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *family = cuvil_family_at(i);
    if (serves(family, problem, arch, options->families))
      CUVIL_TRY_GOTO(walk_family(family, problem, arch, options, out));
  }
  CUVIL_TRY_GOTO(keep_fallback(problem, arch, out));
  return CUVIL_OK;
fail:
  cuvil_candidates_free(out);
  return status;
}

enum cuvil_status cuvil_candidates_offer(
    struct cuvil_candidates *list, const struct cuvil_problem *problem,
    const struct cuvil_arch *arch, const struct cuvil_walk_options *options,
    const char *id, const char *text) {
  const struct cuvil_family *family = cuvil_family_find(id);
  struct cuvil_query query = {problem, arch, NULL};
  struct cuvil_config config = {{0}}, standard = {{0}};
  struct cuvil_derived derived = {0};
  if (!family || family->library || !family->applicable(problem, arch))
    return CUVIL_OK;
  CUVIL_TRY(cuvil_family_space(family, &query.space));
  /* A text of an older space is no point of this one. */
  if (cuvil_config_parse(query.space, text, &config) != CUVIL_OK)
    return CUVIL_OK;
  family->default_config(&query, &standard);
  uint64_t order = cuvil_point_order(query.space, &config);
  bool is_default = order == cuvil_point_order(query.space, &standard);
  if (!is_default && !serves(family, problem, arch, options->families))
    return CUVIL_OK;
  bool allowed = is_default || cuvil_family_allows(family, &query, &config,
                                                   true, &derived, NULL);
  if (!allowed && options->heuristics) return CUVIL_OK;
  if (!allowed || is_default)
    if (!cuvil_family_allows(family, &query, &config, false, &derived, NULL))
      return CUVIL_OK;
  double predicted =
      family->predict ? family->predict(&query, &config, &derived) : 0;
  return push_point(list, (struct cuvil_point){.family = family,
                                               .order = order,
                                               .predicted = predicted,
                                               .allowed = allowed,
                                               .sampled = true});
}
