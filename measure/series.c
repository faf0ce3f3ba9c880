/* series.c - which blocks count, and when they are enough. */
#include "measure/series.h"

#include <math.h>
#include <stdlib.h>

/* NVML's clocks event reasons, nvml.h "Clocks Event Reasons". */
#define NVML_HARDWARE_SLOWDOWN 0x8
#define NVML_SOFTWARE_THERMAL 0x20
#define NVML_HARDWARE_THERMAL 0x40
#define NVML_POWER_BRAKE 0x80

static const char *const reject_names[] = {
    "kept", "time", "noise", "peak", "thermal", "brake", "hardware"};
static const char *const state_names[] = {"more", "converged", "unconverged",
                                          "throttled", "rejected"};

const char *cuvil_reject_name(enum cuvil_reject reject) {
  return reject_names[reject];
}

const char *cuvil_series_state_name(enum cuvil_series_state state) {
  return state_names[state];
}

void cuvil_series_begin(struct cuvil_series *series,
                        const struct cuvil_series_rule *rule) {
  *series = (struct cuvil_series){.rule = *rule};
  struct cuvil_series_rule *r = &series->rule;
  if (!(r->half_width > 0)) r->half_width = 0.005;
  if (r->least <= 0) r->least = 16;
  if (r->most <= 0) r->most = 512;
  if (r->most < r->least) r->most = r->least;
  if (r->rounds <= 0) r->rounds = 3;
  if (r->rejects_most <= 0) r->rejects_most = 32;
  series->next_look = r->least;
}

void cuvil_series_free(struct cuvil_series *series) {
  free(series->blocks);
  *series = (struct cuvil_series){0};
}

/* Thermal before the general word, which NVML sets beside it. */
static enum cuvil_reject judge(const struct cuvil_series *series,
                               const struct cuvil_block *block) {
  int64_t reasons = block->throttle_reasons;
  if (isnan(block->seconds)) return CUVIL_REJECT_NOISE;
  if (!(block->seconds > 0) || !isfinite(block->seconds))
    return CUVIL_REJECT_TIME;
  if (block->seconds < series->rule.floor_seconds) return CUVIL_REJECT_PEAK;
  if (reasons <= 0) return CUVIL_KEPT;
  if (reasons & (NVML_SOFTWARE_THERMAL | NVML_HARDWARE_THERMAL))
    return CUVIL_REJECT_HOT;
  if (reasons & NVML_POWER_BRAKE) return CUVIL_REJECT_BRAKE;
  if (reasons & NVML_HARDWARE_SLOWDOWN) return CUVIL_REJECT_HARDWARE;
  return CUVIL_KEPT;
}

enum cuvil_status cuvil_series_add(struct cuvil_series *series,
                                   const struct cuvil_block *block, int round,
                                   double when) {
  if (series->count == series->capacity) {
    int capacity = series->capacity ? 2 * series->capacity : 64;
    struct cuvil_series_block *blocks =
        realloc(series->blocks, (size_t)capacity * sizeof *blocks);
    if (!blocks)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for blocks");
    series->blocks = blocks;
    series->capacity = capacity;
  }
  enum cuvil_reject reject = judge(series, block);
  series->blocks[series->count++] =
      (struct cuvil_series_block){*block, round, reject, when};
  if (reject == CUVIL_KEPT)
    series->kept++;
  else
    series->rejects++;
  return CUVIL_OK;
}

double *cuvil_series_kept(const struct cuvil_series *series, int *out_count) {
  *out_count = 0;
  double *seconds = malloc((size_t)(series->kept + 1) * sizeof *seconds);
  if (!seconds || series->kept == 0) {
    free(seconds);
    return NULL;
  }
  for (int i = 0; i < series->count; i++)
    if (series->blocks[i].reject == CUVIL_KEPT)
      seconds[(*out_count)++] = series->blocks[i].block.seconds;
  return seconds;
}

void cuvil_series_interval(const struct cuvil_series *series,
                           struct cuvil_interval *out) {
  int count;
  double *seconds = cuvil_series_kept(series, &count);
  cuvil_median_interval(seconds, count, 0.95, out);
  free(seconds);
  out->low *= 1 - series->rule.spread;
  out->high *= 1 + series->rule.spread;
}

static int rounds_of(const struct cuvil_series *series) {
  int rounds = 0, last = -1;
  for (int i = 0; i < series->count; i++) {
    const struct cuvil_series_block *b = &series->blocks[i];
    if (b->reject != CUVIL_KEPT || b->round == last) continue;
    last = b->round;
    rounds++;
  }
  return rounds;
}

static enum cuvil_series_state too_many_rejects(
    const struct cuvil_series *series) {
  int throttled = 0;
  for (int i = 0; i < series->count; i++)
    if (series->blocks[i].reject >= CUVIL_REJECT_HOT) throttled++;
  return 2 * throttled >= series->rejects ? CUVIL_SERIES_THROTTLED
                                          : CUVIL_SERIES_REJECTED;
}

static enum cuvil_series_state look(struct cuvil_series *series) {
  const struct cuvil_series_rule *rule = &series->rule;
  struct cuvil_interval *interval = &series->interval;
  if (series->rejects >= rule->rejects_most) return too_many_rejects(series);
  if (series->kept < series->next_look || rounds_of(series) < rule->rounds)
    return CUVIL_SERIES_MORE;
  cuvil_series_interval(series, interval);
  while (series->next_look <= series->kept)
    series->next_look *= 2;
  if (interval->high - interval->low <= 2 * rule->half_width * interval->median)
    return CUVIL_SERIES_CONVERGED;
  if (series->kept >= rule->most) return CUVIL_SERIES_UNCONVERGED;
  if (series->next_look > rule->most) series->next_look = rule->most;
  return CUVIL_SERIES_MORE;
}

enum cuvil_series_state cuvil_series_state(struct cuvil_series *series) {
  if (series->state == CUVIL_SERIES_MORE) series->state = look(series);
  return series->state;
}
