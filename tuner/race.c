/* race.c - who is fastest, settled in the same rounds.
 *
 * All entrants run one block each in every round, in a random order, so that
 * drift of clocks and temperature hits them alike, and only ratios within a
 * round are compared (shared method: paired, interleaved, never one after the
 * other).  Heats send away what the ratios exclude; at most eight are left for
 * the final, which also has the untuned choice and each library's first choice
 * in it, whatever they did before, and a second copy of the incumbent: its
 * ratio to the first copy is the floor below which two entrants count as
 * equal.  Times that are published come from the final alone, because those
 * that chose the finalists flatter them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "measure/stats.h"
#include "tuner/tuner.h"

enum {
  HEAT_ENTRANTS = 16, /* beside the protected ones */
  HEAT_ROUNDS_LEAST = 4,
  HEAT_ROUNDS_MOST = 12,
  FINALISTS = 8,
  FINAL_ROUNDS_LEAST = 20,
  FINAL_ROUNDS_MOST = 40,
  FINAL_ROUNDS_STEP = 5,
  ROUNDS_MOST = HEAT_ROUNDS_MOST + FINAL_ROUNDS_MOST
};
static const double tie_least = 0.005; /* two that are this close are equal */
static const double pilot_factor = 2;  /* slower by this: not in the race */
static const double retest_factor = 4; /* ... and by this: no second look */
static const double not_slower = 0.98; /* than default and library */

struct racer {
  struct cuvil_candidate *candidate;
  bool is_protected, out, control;
  double seconds[ROUNDS_MOST];
};
struct race {
  struct cuvil_runner *runner;
  struct cuvil_rng rng;
  int count, rounds, final_round;
  struct racer *racers;
  struct cuvil_entrant *entrants;
  void (*on_failure)(void *user, struct cuvil_candidate *candidate);
  void *user;
};

static bool runs(const struct cuvil_candidate *c) {
  return c->outcome.ok && !c->duplicate && !c->untried && isfinite(c->median);
}

static bool is_protected(const struct cuvil_candidate *c) {
  return c->is_default || c->choice == 0;
}

static double best_median(const struct cuvil_candidates *list) {
  double best = INFINITY;
  for (int i = 0; i < list->count; i++)
    if (runs(&list->items[i])) best = fmin(best, list->items[i].median);
  return best;
}

/* A pilot is three blocks: what it calls too slow, but not hopeless, is asked
 * once more before it is dropped. */
static enum cuvil_status retest(struct race *race,
                                struct cuvil_candidates *list) {
  double best = best_median(list);
  for (int i = 0; i < list->count; i++) {
    struct cuvil_candidate *c = &list->items[i];
    if (!runs(c) || c->median <= pilot_factor * best ||
        c->median > retest_factor * best)
      continue;
    int before = c->pilot_count;
    CUVIL_TRY(race->runner->ops->retest(race->runner->self, c));
    if (!c->outcome.ok) {
      race->on_failure(race->user, c);
      continue;
    }
    double again =
        cuvil_quantile(c->pilot + before, c->pilot_count - before, 0.5);
    if (isfinite(again)) c->median = fmin(c->median, again);
  }
  return CUVIL_OK;
}

static int by_median(const void *left, const void *right) {
  const struct racer *a = left, *b = right;
  if (a->candidate->median != b->candidate->median)
    return a->candidate->median < b->candidate->median ? -1 : 1;
  int family = strcmp(a->candidate->family->id, b->candidate->family->id);
  return family ? family : strcmp(a->candidate->text, b->candidate->text);
}

static bool is_library(const struct cuvil_candidate *c) {
  return c->family->library != NULL;
}

/* The fastest pilot of a side; NULL: it has none. */
static const struct cuvil_candidate *best_of_side(
    const struct cuvil_candidates *list, bool library) {
  const struct cuvil_candidate *best = NULL;
  for (int i = 0; i < list->count; i++) {
    const struct cuvil_candidate *c = &list->items[i];
    if (!runs(c) || is_library(c) != library) continue;
    if (!best || c->median < best->median) best = c;
  }
  return best;
}

static enum cuvil_status enter(struct race *race,
                               struct cuvil_candidates *list) {
  double best = best_median(list);
  const struct cuvil_candidate *own = best_of_side(list, false);
  const struct cuvil_candidate *library = best_of_side(list, true);
  int most = list->count + 1, open = 0, to = 0; /* one more: the control */
  race->racers = calloc((size_t)most, sizeof *race->racers);
  race->entrants = calloc((size_t)most, sizeof *race->entrants);
  if (!race->racers || !race->entrants)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a race");
  for (int i = 0; i < list->count; i++) {
    struct cuvil_candidate *c = &list->items[i];
    if (!runs(c)) continue;
    if (!is_protected(c) && c != own && c != library &&
        c->median > pilot_factor * best)
      continue;
    race->racers[race->count].candidate = c;
    race->racers[race->count++].is_protected = is_protected(c);
  }
  qsort(race->racers, (size_t)race->count, sizeof *race->racers, by_median);
  for (int i = 0; i < race->count; i++) {
    const struct cuvil_candidate *c = race->racers[i].candidate;
    if (!race->racers[i].is_protected && ++open > HEAT_ENTRANTS && c != own &&
        c != library)
      continue;
    race->racers[to++] = race->racers[i];
  }
  race->count = to;
  for (int i = 0; i < most; i++)
    for (int r = 0; r < ROUNDS_MOST; r++)
      race->racers[i].seconds[r] = NAN;
  if (race->count == 0)
    return CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                      "no candidate compiles, verifies and runs");
  return CUVIL_OK;
}

/* One block of everybody who is still in, in a random order. */
static enum cuvil_status run_round(struct race *race) {
  int order[512], n = 0;
  for (int i = 0; i < race->count && n < 512; i++)
    if (!race->racers[i].out) order[n++] = i;
  for (int i = n - 1; i > 0; i--) {
    int j = (int)cuvil_rng_below(&race->rng, (uint64_t)i + 1);
    int swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  for (int i = 0; i < n; i++) {
    const struct racer *racer = &race->racers[order[i]];
    race->entrants[i] = (struct cuvil_entrant){
        .candidate = racer->candidate, .copy = racer->control, .seconds = NAN};
    race->entrants[i].outcome.ok = true;
  }
  CUVIL_TRY(race->runner->ops->round(race->runner->self, race->rounds,
                                     race->entrants, n));
  for (int i = 0; i < n; i++) {
    struct racer *racer = &race->racers[order[i]];
    struct cuvil_entrant *entrant = &race->entrants[i];
    racer->seconds[race->rounds] = entrant->seconds;
    if (entrant->outcome.ok) continue;
    racer->out = true;
    if (racer->control) continue; /* the first copy speaks for itself */
    racer->candidate->outcome = entrant->outcome;
    race->on_failure(race->user, racer->candidate);
  }
  race->rounds++;
  return CUVIL_OK;
}

static double resources(const struct cuvil_candidate *c) {
  /* A plan that needs no library runs in more places. */
  if (c->family->library) return 1e18;
  return c->derived.shared_bytes +
         4.0 * c->derived.threads * c->derived.registers_least +
         (double)c->derived.workspace_bytes;
}

static double heat_median(const struct race *race, const struct racer *racer) {
  return cuvil_quantile(racer->seconds, race->rounds, 0.5);
}

/* The racer of a side that is fastest over the rounds from `first`; -1. */
static int leader_of(const struct race *race, bool library, int first) {
  int leader = -1;
  double best = INFINITY;
  for (int i = 0; i < race->count; i++) {
    const struct racer *racer = &race->racers[i];
    if (racer->out || racer->control || is_library(racer->candidate) != library)
      continue;
    double median =
        cuvil_quantile(racer->seconds + first, race->rounds - first, 0.5);
    if (median < best) best = median, leader = i;
  }
  return leader;
}

/* Not to be sent away: protected, or the leader of its side. */
static bool is_shielded(const struct race *race, int racer) {
  return race->racers[racer].is_protected ||
         racer == leader_of(race, false, 0) ||
         racer == leader_of(race, true, 0);
}

/* What the statistics are asked about: those in the race, over the rounds from
 * `first`. */
static int fill_entries(const struct race *race, int first,
                        struct cuvil_race_entry *entries, bool *shielded,
                        int *which) {
  int n = 0;
  for (int i = 0; i < race->count; i++) {
    const struct racer *racer = &race->racers[i];
    if (racer->out || racer->control) continue;
    which[n] = i;
    shielded[n] = is_shielded(race, i);
    entries[n++] =
        (struct cuvil_race_entry){.seconds = racer->seconds + first,
                                  .rounds = race->rounds - first,
                                  .resources = resources(racer->candidate),
                                  .text = racer->candidate->text};
  }
  return n;
}

static int open_entrants(const struct race *race) {
  int n = 0;
  for (int i = 0; i < race->count; i++)
    n += !race->racers[i].out && !race->racers[i].is_protected;
  return n;
}

/* Keeps the best FINALISTS of those that nobody protects. */
static void cut_to_finalists(struct race *race) {
  while (open_entrants(race) > FINALISTS) {
    int worst = -1;
    double slowest = -INFINITY;
    for (int i = 0; i < race->count; i++) {
      const struct racer *racer = &race->racers[i];
      if (racer->out || is_shielded(race, i)) continue;
      double median = heat_median(race, racer);
      if (!(median <= slowest)) worst = i, slowest = median;
    }
    if (worst < 0) return; /* only leaders are left */
    race->racers[worst].out = true;
  }
}

struct scratch {
  struct cuvil_race_entry *entries;
  bool *flags;
  int *which;
};

static enum cuvil_status heats(struct race *race, const struct scratch *s) {
  int looks = HEAT_ROUNDS_MOST - HEAT_ROUNDS_LEAST + 1;
  while (race->rounds < HEAT_ROUNDS_MOST) {
    CUVIL_TRY(run_round(race));
    if (race->rounds < HEAT_ROUNDS_LEAST) continue;
    int n = fill_entries(race, 0, s->entries, s->flags, s->which);
    cuvil_race_eliminate(s->entries, n, s->flags, tie_least, 0.05, looks);
    for (int i = 0; i < n; i++)
      if (s->entries[i].eliminated) race->racers[s->which[i]].out = true;
    if (open_entrants(race) <= FINALISTS) break;
  }
  cut_to_finalists(race);
  return CUVIL_OK;
}

/* The second copy of the one that leads after the heats; the last racer. */
static void add_control(struct race *race) {
  int incumbent = -1;
  double best = INFINITY;
  for (int i = 0; i < race->count; i++) {
    double median = heat_median(race, &race->racers[i]);
    if (race->racers[i].out || !(median < best)) continue;
    best = median;
    incumbent = i;
  }
  if (incumbent < 0) return;
  struct racer *control = &race->racers[race->count++];
  control->candidate = race->racers[incumbent].candidate;
  control->control = true;
}

/* |ratio - 1| of the two copies in the final; NaN when they never met. */
static double control_floor(const struct race *race) {
  const struct racer *control = &race->racers[race->count - 1];
  struct cuvil_interval ratio;
  if (!control->control) return NAN;
  for (int i = 0; i < race->count - 1; i++) {
    const struct racer *first = &race->racers[i];
    if (first->candidate != control->candidate) continue;
    cuvil_paired_ratio(control->seconds + race->final_round,
                       first->seconds + race->final_round,
                       race->rounds - race->final_round, 0.95, &ratio);
    return fabs(ratio.median - 1);
  }
  return NAN;
}

/* True when neither the default nor a library's first choice is faster than
 * racer w, as far as the interval of the paired ratio can say. */
static bool beats_protected(const struct race *race, int w) {
  for (int i = 0; i < race->count; i++) {
    const struct racer *p = &race->racers[i];
    struct cuvil_interval ratio;
    if (i == w || !p->is_protected || p->out) continue;
    cuvil_paired_ratio(p->seconds + race->final_round,
                       race->racers[w].seconds + race->final_round,
                       race->rounds - race->final_round, 0.95, &ratio);
    if (!(ratio.low >= not_slower)) return false;
  }
  return true;
}

/* The tie-break's choice, unless that one could be slower than what a user has
 * without tuning; then the fastest; then the fastest of the protected. */
static int choose(const struct race *race, const struct scratch *s, int n,
                  const struct cuvil_race_result *result) {
  int winner = s->which[result->winner], fastest = s->which[result->fastest];
  int best = -1;
  double least = INFINITY;
  if (beats_protected(race, winner)) return winner;
  if (beats_protected(race, fastest)) return fastest;
  for (int i = 0; i < n; i++) {
    const struct racer *racer = &race->racers[s->which[i]];
    double median =
        cuvil_quantile(s->entries[i].seconds, s->entries[i].rounds, 0.5);
    if (racer->is_protected && median < least)
      least = median, best = s->which[i];
  }
  return best >= 0 ? best : fastest;
}

static enum cuvil_status final(struct race *race, const struct scratch *s,
                               struct cuvil_race_report *out) {
  struct cuvil_race_result result = {-1, -1, 0, false};
  int n = 0;
  race->final_round = race->rounds;
  add_control(race);
  for (int target = FINAL_ROUNDS_LEAST; target <= FINAL_ROUNDS_MOST;
       target += FINAL_ROUNDS_STEP) {
    while (race->rounds - race->final_round < target)
      CUVIL_TRY(run_round(race));
    out->control = control_floor(race);
    n = fill_entries(race, race->final_round, s->entries, s->flags, s->which);
    cuvil_race_judge(s->entries, n, fmax(tie_least, out->control), s->flags,
                     &result);
    if (result.converged || result.winner < 0) break;
  }
  if (result.winner < 0)
    return CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                      "every candidate failed in the race");
  out->winner = choose(race, s, n, &result);
  out->fastest = s->which[result.fastest];
  out->converged = result.converged;
  for (int i = 0; i < n; i++)
    if (s->flags[i]) out->entries[s->which[i]].flags |= CUVIL_RACE_TIE;
  out->entries[out->winner].flags |= CUVIL_RACE_WINNER;
  return CUVIL_OK;
}

/* The fastest of each side in the final, and how they stand. */
static void compare_sides(const struct race *race,
                          struct cuvil_race_report *out) {
  int own = leader_of(race, false, race->final_round);
  int library = leader_of(race, true, race->final_round);
  struct cuvil_interval ratio;
  if (own < 0 || library < 0) return;
  cuvil_paired_ratio(race->racers[own].seconds + race->final_round,
                     race->racers[library].seconds + race->final_round,
                     race->rounds - race->final_round, 0.95, &ratio);
  out->own = own;
  out->library = library;
  out->own_ratio = ratio.median;
  out->own_ratio_low = ratio.low;
  out->own_ratio_high = ratio.high;
}

/* Medians and ratios of everybody: in the final for those who were in it, in
 * the heats for the rest. */
static void describe(const struct race *race, struct cuvil_race_report *out) {
  const struct racer *winner = &race->racers[out->winner];
  out->count = race->count;
  out->rounds = race->rounds;
  out->final_round = race->final_round;
  for (int i = 0; i < race->count; i++) {
    const struct racer *racer = &race->racers[i];
    struct cuvil_candidate *c = racer->candidate;
    struct cuvil_db_participant *entry = &out->entries[i];
    struct cuvil_interval ratio;
    double *seconds = out->seconds + (size_t)i * race->rounds;
    memcpy(seconds, racer->seconds, (size_t)race->rounds * sizeof *seconds);
    int n = race->rounds - race->final_round, first = race->final_round;
    if (isnan(cuvil_quantile(racer->seconds + first, n, 0.5)))
      first = 0, n = race->final_round;
    cuvil_paired_ratio(racer->seconds + first, winner->seconds + first, n, 0.95,
                       &ratio);
    entry->family = c->family->id;
    entry->family_version = c->version;
    entry->config = c->text;
    entry->library = c->family->library;
    entry->seconds = seconds;
    entry->median = cuvil_quantile(racer->seconds + first, n, 0.5);
    entry->ratio = ratio.median;
    entry->ratio_low = ratio.low;
    entry->ratio_high = ratio.high;
    if (racer->control) {
      entry->flags |= CUVIL_RACE_CONTROL;
    } else {
      if (c->is_default) entry->flags |= CUVIL_RACE_DEFAULT;
      if (c->choice == 0) entry->flags |= CUVIL_RACE_LIBRARY_FIRST;
    }
    out->candidates[i] = c;
  }
}

/* The blocks go to the candidates, where a recording finds them. */
static enum cuvil_status keep_blocks(const struct race *race) {
  for (int i = 0; i < race->count; i++) {
    const struct racer *racer = &race->racers[i];
    double **to =
        racer->control ? &racer->candidate->control : &racer->candidate->rounds;
    int *count = racer->control ? &racer->candidate->control_count
                                : &racer->candidate->round_count;
    free(*to);
    *count = 0;
    *to = malloc((size_t)race->rounds * sizeof **to);
    if (!*to) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a race");
    memcpy(*to, racer->seconds, (size_t)race->rounds * sizeof **to);
    *count = race->rounds;
  }
  return CUVIL_OK;
}

static const struct cuvil_race_report nothing = {
    .winner = -1, .fastest = -1, .own = -1, .library = -1, .control = NAN};

enum cuvil_status cuvil_race_run(
    struct cuvil_runner *runner, struct cuvil_candidates *candidates,
    uint64_t seed, void (*on_failure)(void *user, struct cuvil_candidate *),
    void *user, struct cuvil_race_report *out) {
  enum cuvil_status status = CUVIL_OK;
  size_t most = (size_t)candidates->count + 1;
  struct race race = {
      .runner = runner, .rng = {seed}, .on_failure = on_failure, .user = user};
  struct scratch s = {calloc(most, sizeof *s.entries),
                      calloc(most, sizeof *s.flags),
                      calloc(most, sizeof *s.which)};
  *out = nothing;
  out->entries = calloc(most, sizeof *out->entries);
  out->seconds = calloc(most * ROUNDS_MOST, sizeof *out->seconds);
  out->candidates = calloc(most, sizeof *out->candidates);
  if (!s.entries || !s.flags || !s.which || !out->entries || !out->seconds ||
      !out->candidates) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a race");
    goto fail;
  }
  CUVIL_TRY_GOTO(retest(&race, candidates));
  CUVIL_TRY_GOTO(enter(&race, candidates));
  CUVIL_TRY_GOTO(heats(&race, &s));
  CUVIL_TRY_GOTO(final(&race, &s, out));
  describe(&race, out);
  compare_sides(&race, out);
  CUVIL_TRY_GOTO(keep_blocks(&race));
fail:
  if (status != CUVIL_OK) cuvil_race_report_free(out);
  free(s.entries);
  free(s.flags);
  free(s.which);
  free(race.racers);
  free(race.entrants);
  return status;
}

void cuvil_race_report_free(struct cuvil_race_report *report) {
  free(report->entries);
  free(report->seconds);
  free(report->candidates);
  *report = nothing;
}
