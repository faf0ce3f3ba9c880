/* surrogate.c - a model of the time, fitted to what was measured, says what is
 * worth measuring.
 *
 * A Gaussian process over the logarithm of the time (Rasmussen and Williams,
 * Gaussian Processes for Machine Learning, 2006, algorithm 2.1).  Its mean is
 * a line through the predictions, whose slope the measurements correct:
 * predictions order a space well and are often wrong by a factor that a whole
 * region shares.  Its kernel falls with the number of values between two
 * sites' parameters; sites of two families tell nothing of each other but the
 * line.  The next site is the one with the largest expected improvement
 * (Jones, Schonlau, Welch, 1998); inside a batch each chosen site is believed
 * to be what the model says.
 */
#include <math.h>
#include <stdlib.h>

#include "tuner/strategy.h"

enum { INITIAL, BATCH, TRUST, LENGTH };
enum { OBSERVED_MOST = 512 };
static const double noise = 1e-4;            /* variance of log time: 1 % */
static const double variance_least = 0.0025; /* 5 % */

struct model {
  struct cuvil_chooser *chooser;
  int count;      /* observed */
  int *site;      /* by observation */
  double *y;      /* log seconds */
  double *factor; /* lower triangle of the kernel matrix's root */
  double *alpha;  /* inverse of the kernel matrix x residuals */
  double *column; /* scratch */
  double mean, slope, variance, best;
  double weight[CUVIL_MAX_PARAMS]; /* 1 / (2 length^2), by parameter */
  double *log_predicted;           /* by site, its mean over all taken away */
};

static void model_free(struct model *m) {
  free(m->site);
  free(m->y);
  free(m->factor);
  free(m->alpha);
  free(m->column);
  free(m->log_predicted);
}

static enum cuvil_status model_create(struct cuvil_chooser *chooser,
                                      struct model *m) {
  size_t most = OBSERVED_MOST;
  *m = (struct model){.chooser = chooser};
  m->site = calloc(most, sizeof *m->site);
  m->y = calloc(most, sizeof *m->y);
  m->factor = calloc(most * most, sizeof *m->factor);
  m->alpha = calloc(most, sizeof *m->alpha);
  m->column = calloc(most, sizeof *m->column);
  m->log_predicted =
      calloc((size_t)chooser->count + 1, sizeof *m->log_predicted);
  if (m->site && m->y && m->factor && m->alpha && m->column && m->log_predicted)
    return CUVIL_OK;
  model_free(m);
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a model of the time");
}

/* Distance in a parameter is counted in steps between its values, of the whole
 * range 1; so the range that the sites have. */
static void set_weights(struct model *m) {
  const struct cuvil_chooser *chooser = m->chooser;
  double length = chooser->strategy->option[LENGTH];
  for (int p = 0; p < CUVIL_MAX_PARAMS; p++) {
    int most = 1;
    for (int i = 0; i < chooser->count; i++)
      if (p < chooser->sites[i].params && chooser->sites[i].digit[p] > most)
        most = chooser->sites[i].digit[p];
    m->weight[p] = 1 / (2 * length * length * most * most);
  }
}

static double kernel(const struct model *m, int a, int b) {
  const struct cuvil_site *x = &m->chooser->sites[a];
  const struct cuvil_site *y = &m->chooser->sites[b];
  double sum = 0;
  if (x->group != y->group) return 0;
  for (int p = 0; p < x->params; p++) {
    double d = (double)x->digit[p] - (double)y->digit[p];
    sum += m->weight[p] * d * d;
  }
  return m->variance * exp(-sum);
}

static double line(const struct model *m, int site) {
  return m->mean + m->slope * m->log_predicted[site];
}

/* What was told; failures are as slow as the slowest that ran. */
static void observe(struct model *m) {
  const struct cuvil_chooser *chooser = m->chooser;
  double slowest = -INFINITY;
  m->best = INFINITY;
  for (int i = 0; i < chooser->count && m->count < OBSERVED_MOST; i++) {
    if (isnan(chooser->seconds[i])) continue;
    m->site[m->count] = i;
    m->y[m->count] = isfinite(chooser->seconds[i]) && chooser->seconds[i] > 0
                         ? log(chooser->seconds[i])
                         : NAN;
    m->best = fmin(m->best, m->y[m->count]);
    slowest = fmax(slowest, m->y[m->count++]);
  }
  for (int i = 0; i < m->count; i++) {
    if (isnan(m->y[i])) m->y[i] = slowest;
    /* What is far from good need not be told apart. */
    m->y[i] = fmin(m->y[i], m->best + log(4));
  }
}

/* Least squares; without evidence the slope is `trust`. */
static void fit_line(struct model *m) {
  const struct cuvil_chooser *chooser = m->chooser;
  double sum = 0, sum_x = 0, sum_xy = 0, sum_xx = 0, trust;
  int known = 0;
  for (int i = 0; i < chooser->count; i++) {
    double p = chooser->sites[i].predicted;
    m->log_predicted[i] = p > 0 ? log(p) : 0;
    known += p > 0;
  }
  trust = known == chooser->count ? chooser->strategy->option[TRUST] : 0;
  for (int i = 0; i < m->count; i++) {
    sum += m->y[i];
    sum_x += m->log_predicted[m->site[i]];
  }
  sum /= m->count;
  sum_x /= m->count;
  for (int i = 0; i < chooser->count; i++)
    m->log_predicted[i] -= sum_x;
  for (int i = 0; i < m->count; i++) {
    double x = m->log_predicted[m->site[i]];
    sum_xy += x * (m->y[i] - sum);
    sum_xx += x * x;
  }
  m->mean = sum;
  m->slope = trust > 0 ? fmax(0, (sum_xy + trust) / (sum_xx + 1)) : 0;
  m->variance = 0;
  for (int i = 0; i < m->count; i++) {
    double r = m->y[i] - line(m, m->site[i]);
    m->variance += r * r / m->count;
  }
  m->variance = fmax(m->variance, variance_least);
}

#define FACTOR(i, j) m->factor[(size_t)(i)*OBSERVED_MOST + (j)]

/* L x = column, in place: `n` rows. */
static void solve_lower(const struct model *m, double *column, int n) {
  for (int i = 0; i < n; i++) {
    double sum = column[i];
    for (int j = 0; j < i; j++)
      sum -= FACTOR(i, j) * column[j];
    column[i] = sum / FACTOR(i, i);
  }
}

/* The factor's row of observation i, those before it being there. */
static void add_row(struct model *m, int i) {
  double *row = &FACTOR(i, 0), rest;
  for (int j = 0; j < i; j++)
    row[j] = kernel(m, m->site[i], m->site[j]);
  solve_lower(m, row, i);
  rest = m->variance + noise;
  for (int j = 0; j < i; j++)
    rest -= row[j] * row[j];
  row[i] = sqrt(fmax(rest, 1e-9));
}

static void solve(struct model *m) {
  for (int i = 0; i < m->count; i++)
    m->alpha[i] = m->y[i] - line(m, m->site[i]);
  solve_lower(m, m->alpha, m->count);
  for (int i = m->count - 1; i >= 0; i--) {
    double sum = m->alpha[i];
    for (int j = i + 1; j < m->count; j++)
      sum -= FACTOR(j, i) * m->alpha[j];
    m->alpha[i] = sum / FACTOR(i, i);
  }
}

static void posterior(struct model *m, int site, double *mean,
                      double *deviation) {
  double left = m->variance;
  *mean = line(m, site);
  for (int i = 0; i < m->count; i++) {
    m->column[i] = kernel(m, site, m->site[i]);
    *mean += m->column[i] * m->alpha[i];
  }
  solve_lower(m, m->column, m->count);
  for (int i = 0; i < m->count; i++)
    left -= m->column[i] * m->column[i];
  *deviation = sqrt(fmax(left, 1e-9));
}

/* Of log time below the best that was measured. */
static double improvement(const struct model *m, double mean,
                          double deviation) {
  double z = (m->best - mean) / deviation;
  double density = exp(-z * z / 2) / sqrt(2 * 3.14159265358979323846);
  return deviation * (z * erfc(-z / sqrt(2)) / 2 + density);
}

static bool take_best(struct model *m) {
  struct cuvil_chooser *chooser = m->chooser;
  int best = -1;
  double most = -INFINITY, believed = 0;
  for (int i = 0; i < chooser->count; i++) {
    double mean, deviation, gain;
    if (chooser->taken[i]) continue;
    posterior(m, i, &mean, &deviation);
    gain = improvement(m, mean, deviation);
    if (gain > most) most = gain, best = i, believed = mean;
  }
  if (best < 0 || m->count == OBSERVED_MOST) return false;
  cuvil_chooser_take(chooser, best);
  m->site[m->count] = best;
  m->y[m->count] = believed;
  add_row(m, m->count++);
  solve(m);
  return true;
}

static enum cuvil_status ask(struct cuvil_chooser *chooser, int most) {
  const double *option = chooser->strategy->option;
  struct model model;
  int initial = (int)option[INITIAL];
  if (chooser->taken_count < initial) {
    int missing = initial - chooser->taken_count;
    return cuvil_chooser_take_predicted(chooser,
                                        missing < most ? missing : most, false);
  }
  if (chooser->told_count < chooser->taken_count) return CUVIL_OK;
  if (most > (int)option[BATCH]) most = (int)option[BATCH];
  CUVIL_TRY(model_create(chooser, &model));
  observe(&model);
  enum cuvil_status status = CUVIL_OK;
  if (!isfinite(model.best) || model.count == OBSERVED_MOST) {
    status = cuvil_chooser_take_predicted(chooser, most, false);
  } else {
    fit_line(&model);
    set_weights(&model);
    for (int i = 0; i < model.count; i++)
      add_row(&model, i);
    solve(&model);
    while (most-- > 0 && take_best(&model))
      ;
  }
  model_free(&model);
  return status;
}

const struct cuvil_strategy_ops cuvil_strategy_surrogate = {
    .name = "surrogate",
    .about =
        "a Gaussian process over the predictions, fitted to what was "
        "measured",
    .options = {{"initial", 1, 1000, 16},
                {"batch", 1, 1000, 8},
                {"trust", 0, 10, 1},
                {"length", 0.01, 100, 0.7},
                {NULL, 0, 0, 0}},
    .ask = ask};
