/* cublaslt_enumerate.c - the algorithms of cuBLASLt that its heuristic leaves
 * out.
 *
 * The library numbers its algorithms and says of each what can be set: tiles,
 * stages, parts of K and how they are joined, the order of tiles, an option of
 * its own, cluster shapes.  All combinations are tens of thousands; the
 * library's check is asked for those that differ in one or two settings from
 * something the heuristic named and for a fixed sample of the rest, and of what
 * it accepts the nearest come first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "gpu/cublaslt.h"

enum {
  MOST_IDS = 128,
  MOST_TILES = 1024,
  MOST_STAGES = 64,
  MOST_CUSTOM = 8,
  MOST_CHECKS = 6000, /* a fraction of a second */
  NEAR = 2            /* settings: nearer ones are all checked */
};

/* An algorithm's settings; one of them a place in the walk. */
enum { ID, TILE, STAGES, SPLIT, REDUCTION, SWIZZLE, CUSTOM, CLUSTER, SETTINGS };
static const struct {
  int attribute;
  size_t size;
  uint32_t plain;
} settings[SETTINGS] = {
    [ID] = {LT_CONFIG_ID, 4, 0},
    [TILE] = {LT_CONFIG_TILE, 4, 0},
    [STAGES] = {LT_CONFIG_STAGES, 4, 0},
    [SPLIT] = {LT_CONFIG_SPLIT_K, 4, 1},
    [REDUCTION] = {LT_CONFIG_REDUCTION, 4, 0},
    [SWIZZLE] = {LT_CONFIG_SWIZZLE, 4, 0},
    [CUSTOM] = {LT_CONFIG_CUSTOM, 4, 0},
    [CLUSTER] = {LT_CONFIG_CLUSTER, 2, 0},
};

struct point {
  uint32_t value[SETTINGS];
};

/* What an algorithm lets be set; a list is never empty. */
struct choices {
  uint32_t tiles[MOST_TILES], stages[MOST_STAGES];
  int tile_count, stage_count, custom_count, swizzle_count;
  bool split;
  uint32_t reductions;
};

static const uint32_t splits[] = {2, 3, 4, 6, 8, 12, 16};
static const uint32_t clusters[] = {LT_CLUSTER_AUTO, LT_CLUSTER_1X1,
                                    LT_CLUSTER_2X1, LT_CLUSTER_1X2};
enum {
  SPLITS = sizeof splits / sizeof *splits,
  CLUSTERS = sizeof clusters / sizeof *clusters
};

struct accepted {
  struct lt_heuristic found;
  int distance, number;
};

struct walk {
  const struct lt_call *call;
  const struct lt_heuristic *named; /* by the heuristic */
  const struct point *known;        /* ... as settings */
  int known_count;
  uint64_t number, stride; /* one of `stride` far combinations is checked */
  bool count_only;
  struct accepted *list;
  int count;
};

static uint32_t capability(const struct lt_algorithm *algorithm, int which,
                           uint32_t fallback) {
  uint32_t value = 0;
  size_t written;
  int result = cuvil_lt.cublasLtMatmulAlgoCapGetAttribute(
      algorithm, which, &value, sizeof value, &written);
  return result == LT_SUCCESS ? value : fallback;
}

static int capabilities(const struct lt_algorithm *algorithm, int which,
                        int most, uint32_t *out) {
  size_t written = 0;
  int result = cuvil_lt.cublasLtMatmulAlgoCapGetAttribute(
      algorithm, which, out, sizeof *out * (size_t)most, &written);
  if (result == LT_SUCCESS && written >= sizeof *out)
    return (int)(written / sizeof *out);
  out[0] = 0; /* undefined is what such an algorithm takes */
  return 1;
}

static void read_choices(const struct lt_algorithm *plain,
                         struct choices *out) {
  uint32_t custom = capability(plain, LT_CAP_CUSTOM_MOST, 0);
  out->tile_count = capabilities(plain, LT_CAP_TILES, MOST_TILES, out->tiles);
  out->stage_count =
      capabilities(plain, LT_CAP_STAGES, MOST_STAGES, out->stages);
  out->custom_count = custom < MOST_CUSTOM ? (int)custom + 1 : MOST_CUSTOM;
  out->swizzle_count = capability(plain, LT_CAP_SWIZZLE, 0) ? 2 : 1;
  out->split = capability(plain, LT_CAP_SPLIT_K, 0) != 0;
  /* Partial sums stay in fp32: acc=f32 is what the problem says. */
  out->reductions = capability(plain, LT_CAP_REDUCTION_MASK, 0) &
                    (LT_REDUCTION_INPLACE | LT_REDUCTION_COMPUTE_TYPE);
}

static enum cuvil_status initial(const struct lt_call *call, int id,
                                 struct lt_algorithm *out) {
  memset(out, 0, sizeof *out);
  return LT(cublasLtMatmulAlgoInit, call->handle, call->compute, LT_R_32F,
            call->b.type, call->a.type, call->c.type, call->d.type, id, out);
}

static int distance(const struct walk *walk, const struct point *p) {
  int least = SETTINGS + 1;
  for (int i = 0; i < walk->known_count; i++) {
    int different = 0;
    for (int s = 0; s < SETTINGS; s++)
      different += p->value[s] != walk->known[i].value[s];
    /* Another algorithm is another kernel whatever its settings. */
    if (p->value[ID] != walk->known[i].value[ID]) different = SETTINGS;
    if (different < least) least = different;
  }
  return least;
}

static bool is_named(const struct walk *walk,
                     const struct lt_algorithm *algorithm) {
  for (int i = 0; i < walk->known_count; i++)
    if (memcmp(&walk->named[i].algorithm, algorithm, sizeof *algorithm) == 0)
      return true;
  return false;
}

/* Asks the library about one combination; that it says no is no failure. */
static void check(struct walk *walk, const struct lt_algorithm *plain,
                  const struct point *p) {
  uint64_t number = walk->number++;
  if (walk->count_only || walk->count >= 2 * MOST_CHECKS) return;
  int far = distance(walk, p);
  if (far > NEAR && cuvil_hash64(&number, sizeof number, 0) % walk->stride != 0)
    return;
  const struct lt_call *call = walk->call;
  struct accepted *to = &walk->list[walk->count];
  memset(to, 0, sizeof *to);
  struct lt_algorithm algorithm = *plain;
  for (int s = TILE; s < SETTINGS; s++)
    if (p->value[s] != settings[s].plain &&
        cuvil_lt.cublasLtMatmulAlgoConfigSetAttribute(
            &algorithm, settings[s].attribute, &p->value[s],
            settings[s].size) != LT_SUCCESS)
      return;
  if (is_named(walk, &algorithm) ||
      cuvil_lt.cublasLtMatmulAlgoCheck(call->handle, call->desc, call->layout_b,
                                       call->layout_a, call->layout_c,
                                       call->layout_d, &algorithm,
                                       &to->found) != LT_SUCCESS ||
      to->found.workspace > (uint64_t)call->workspace_limit)
    return;
  to->found.algorithm = algorithm;
  to->found.state = LT_SUCCESS;
  to->distance = far;
  to->number = walk->count++;
}

static void walk_splits(struct walk *walk, const struct lt_algorithm *plain,
                        const struct choices *c, struct point *p) {
  p->value[SPLIT] = 1;
  p->value[REDUCTION] = 0;
  check(walk, plain, p);
  for (int i = 0; c->split && i < SPLITS; i++)
    for (uint32_t scheme = LT_REDUCTION_INPLACE;
         scheme <= LT_REDUCTION_COMPUTE_TYPE; scheme *= 2) {
      if (!(c->reductions & scheme)) continue;
      p->value[SPLIT] = splits[i];
      p->value[REDUCTION] = scheme;
      check(walk, plain, p);
    }
}

static void walk_algorithm(struct walk *walk, int id) {
  static struct choices c; /* large; one process measures, one thread */
  struct lt_algorithm plain;
  struct point p = {{(uint32_t)id}};
  if (initial(walk->call, id, &plain) != CUVIL_OK) return;
  read_choices(&plain, &c);
  for (int tile = 0; tile < c.tile_count; tile++)
    for (int stage = 0; stage < c.stage_count; stage++)
      for (int custom = 0; custom < c.custom_count; custom++)
        for (int swizzle = 0; swizzle < c.swizzle_count; swizzle++)
          for (int cluster = 0; cluster < CLUSTERS; cluster++) {
            p.value[TILE] = c.tiles[tile];
            p.value[STAGES] = c.stages[stage];
            p.value[CUSTOM] = (uint32_t)custom;
            p.value[SWIZZLE] = (uint32_t)swizzle;
            p.value[CLUSTER] = clusters[cluster];
            walk_splits(walk, &plain, &c, &p);
          }
}

static int by_distance(const void *left, const void *right) {
  const struct accepted *a = left, *b = right;
  return a->distance != b->distance ? a->distance - b->distance
                                    : a->number - b->number;
}

static struct point point_of(const struct lt_algorithm *algorithm) {
  struct point p = {{0}};
  size_t written;
  for (int s = 0; s < SETTINGS; s++)
    if (cuvil_lt.cublasLtMatmulAlgoConfigGetAttribute(
            algorithm, settings[s].attribute, &p.value[s], settings[s].size,
            &written) != LT_SUCCESS)
      p.value[s] = settings[s].plain;
  return p;
}

enum cuvil_status cuvil_lt_enumerate(const struct lt_call *call,
                                     const struct lt_heuristic *known,
                                     int known_count, int limit,
                                     struct lt_heuristic *out, int *out_count) {
  enum cuvil_status status = CUVIL_OK;
  int ids[MOST_IDS], id_count = 0;
  struct walk walk = {
      .call = call, .named = known, .known_count = known_count, .stride = 1};
  struct point *points = calloc((size_t)known_count + 1, sizeof *points);
  *out_count = 0;
  walk.list = calloc(2 * MOST_CHECKS, sizeof *walk.list);
  if (!points || !walk.list)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library choices"));
  for (int i = 0; i < known_count; i++)
    points[i] = point_of(&known[i].algorithm);
  walk.known = points;
  CUVIL_TRY_GOTO(LT(cublasLtMatmulAlgoGetIds, call->handle, call->compute,
                    LT_R_32F, call->b.type, call->a.type, call->c.type,
                    call->d.type, MOST_IDS, ids, &id_count));
  for (int pass = 0; pass < 2; pass++) {
    walk.count_only = pass == 0;
    walk.number = 0;
    for (int i = 0; i < id_count; i++)
      walk_algorithm(&walk, ids[i]);
    walk.stride = 1 + walk.number / MOST_CHECKS;
  }
  qsort(walk.list, (size_t)walk.count, sizeof *walk.list, by_distance);
  for (int i = 0; i < walk.count && *out_count < limit; i++)
    out[(*out_count)++] = walk.list[i].found;
fail:
  free(points);
  free(walk.list);
  return status;
}
