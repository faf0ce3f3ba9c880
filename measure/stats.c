/* stats.c - medians with intervals, paired ratios, and who may leave a race.
 *
 * Times on a GPU are not normal: they have a hard floor, a long tail, and
 * drift with the clock.  So a time is reported as a median with the interval
 * that order statistics give, which assumes nothing about the distribution,
 * and two candidates are compared by the ratio of their times in the same
 * round, in which drift cancels.
 *
 * Elimination asks two questions of the paired ratios and shares its error
 * between them.  The sign test assumes nothing but needs a dozen rounds at the
 * levels that a large race asks for; Student's test on the log-ratios throws
 * out what is far behind after three or four.  A few blocks may agree to the
 * last digit of the timer, so the spread that Student's test uses is never
 * below half of the width that counts as a tie.
 */
#include "measure/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* A sorted copy without the NaNs, to be freed; NULL when nothing is left. */
static double *sorted_copy(const double *samples, int count, int *out_count) {
  *out_count = 0;
  if (count <= 0) return NULL;
  double *copy = malloc((size_t)count * sizeof *copy);
  if (!copy) return NULL;
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (!isnan(samples[i])) copy[n++] = samples[i];
  }
  if (n == 0) {
    free(copy);
    return NULL;
  }
  qsort(copy, (size_t)n, sizeof *copy, compare_doubles);
  *out_count = n;
  return copy;
}

static double quantile_of_sorted(const double *sorted, int n, double q) {
  if (q <= 0) return sorted[0];
  if (q >= 1) return sorted[n - 1];
  double place = q * (n - 1);
  int below = (int)floor(place);
  if (below >= n - 1) return sorted[n - 1];
  double part = place - below;
  return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

double cuvil_quantile(const double *samples, int count, double q) {
  int n;
  double *sorted = sorted_copy(samples, count, &n);
  if (!sorted) return NAN;
  double value = quantile_of_sorted(sorted, n, q);
  free(sorted);
  return value;
}

/* ln of the probability of exactly k heads in n fair tosses. */
static double log_binomial_half(int n, int k) {
  return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) -
         n * 0.69314718055994530942;
}

/* Chance of at least k heads in n fair tosses. */
static double binomial_tail(int n, int k) {
  if (k <= 0) return 1;
  double sum = 0;
  for (int i = n; i >= k; i--)
    sum += exp(log_binomial_half(n, i));
  return sum < 1 ? sum : 1;
}

/* How many samples may be left out at each end of the sorted ones so that the
 * rest still covers the median: the largest d with P(B <= d-1) <= tail. */
static int trim_count(int n, double tail) {
  double below = 0;
  int d = 0;
  while (2 * (d + 1) < n) {
    below += exp(log_binomial_half(n, d));
    if (below > tail) break;
    d++;
  }
  return d;
}

void cuvil_median_interval(const double *samples, int count, double confidence,
                           struct cuvil_interval *out) {
  *out = (struct cuvil_interval){NAN, NAN, NAN, 0};
  int n;
  double *sorted = sorted_copy(samples, count, &n);
  if (!sorted) return;
  /* With d trimmed, [sorted[d-1], sorted[n-d]] covers with 1 - 2 P(B < d);
   * d = 0 means that even the extremes promise less than was asked. */
  int d = trim_count(n, (1 - confidence) / 2);
  int edge = d > 0 ? d - 1 : 0;
  out->median = quantile_of_sorted(sorted, n, 0.5);
  out->low = sorted[edge];
  out->high = sorted[n - 1 - edge];
  out->count = n;
  free(sorted);
}

/* a[i]/b[i] where both are times; to be freed, NULL when there is no pair. */
static double *pair_ratios(const double *a, const double *b, int count,
                           int *out_count) {
  *out_count = 0;
  if (count <= 0) return NULL;
  double *ratios = malloc((size_t)count * sizeof *ratios);
  if (!ratios) return NULL;
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (a[i] > 0 && b[i] > 0 && isfinite(a[i]) && isfinite(b[i]))
      ratios[n++] = a[i] / b[i];
  }
  *out_count = n;
  if (n > 0) return ratios;
  free(ratios);
  return NULL;
}

void cuvil_paired_ratio(const double *a, const double *b, int count,
                        double confidence, struct cuvil_interval *out) {
  *out = (struct cuvil_interval){NAN, NAN, NAN, 0};
  int n;
  double *ratios = pair_ratios(a, b, count, &n);
  if (!ratios) return;
  cuvil_median_interval(ratios, n, confidence, out);
  free(ratios);
}

/* Chance that Student's t with `freedom` degrees exceeds t > 0.  The finite
 * series of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even). */
static double student_tail(double t, int freedom) {
  double theta = atan(t / sqrt(freedom));
  double c = cos(theta), s = sin(theta), c2 = c * c;
  double sum = 0, term;
  if (freedom % 2) {
    term = c;
    for (int i = 1; i <= freedom - 2; i += 2) {
      sum += term;
      term *= c2 * (i + 1) / (i + 2);
    }
    sum = 2 / 3.14159265358979323846 * (theta + s * sum);
  } else {
    term = 1;
    for (int i = 0; i <= freedom - 2; i += 2) {
      sum += term;
      term *= c2 * (i + 1) / (i + 2);
    }
    sum = s * sum;
  }
  double tail = (1 - sum) / 2;
  return tail > 0 ? tail : 0;
}

/* True when the ratios say, with error at most alpha, that their centre is
 * above 1 + tie. */
static bool is_behind(const double *ratios, int n, double tie, double alpha) {
  int above = 0;
  double mean = 0, square = 0;
  for (int i = 0; i < n; i++) {
    if (ratios[i] > 1 + tie) above++;
    mean += log(ratios[i]);
  }
  mean /= n;
  if (binomial_tail(n, above) <= alpha / 2) return true;
  if (n < 3) return false;
  for (int i = 0; i < n; i++) {
    double d = log(ratios[i]) - mean;
    square += d * d;
  }
  double spread = sqrt(square / (n - 1));
  if (spread < tie / 2) spread = tie / 2;
  double margin = mean - log1p(tie);
  if (!(margin > 0) || !(spread > 0)) return false;
  return student_tail(margin / (spread / sqrt(n)), n - 1) <= alpha / 2;
}

/* Medians of those still in the race, NaN for the others; returns the index of
 * the smallest, -1 when nobody has a time. */
static int find_fastest(const struct cuvil_race_entry *entries, int count,
                        double *medians) {
  int fastest = -1;
  for (int i = 0; i < count; i++) {
    medians[i] = entries[i].eliminated ? NAN
                                       : cuvil_quantile(entries[i].seconds,
                                                        entries[i].rounds, 0.5);
    if (isnan(medians[i])) continue;
    if (fastest < 0 || medians[i] < medians[fastest]) fastest = i;
  }
  return fastest;
}

static int common_rounds(const struct cuvil_race_entry *a,
                         const struct cuvil_race_entry *b) {
  return a->rounds < b->rounds ? a->rounds : b->rounds;
}

/* Deterministic choice among equals. */
static bool preferred(const struct cuvil_race_entry *a,
                      const struct cuvil_race_entry *b) {
  if (a->resources != b->resources) return a->resources < b->resources;
  return strcmp(a->text ? a->text : "", b->text ? b->text : "") < 0;
}

void cuvil_race_judge(const struct cuvil_race_entry *entries, int count,
                      double tie, bool *ties, struct cuvil_race_result *out) {
  *out = (struct cuvil_race_result){-1, -1, 0, false};
  for (int i = 0; i < count; i++)
    ties[i] = false;
  double *medians = malloc((size_t)(count > 0 ? count : 1) * sizeof *medians);
  if (!medians) return;
  int fastest = find_fastest(entries, count, medians);
  out->fastest = fastest;
  out->converged = fastest >= 0;
  for (int i = 0; i < count && fastest >= 0; i++) {
    if (isnan(medians[i])) continue;
    struct cuvil_interval ratio;
    cuvil_paired_ratio(entries[i].seconds, entries[fastest].seconds,
                       common_rounds(&entries[i], &entries[fastest]), 0.95,
                       &ratio);
    if (i != fastest && ratio.count == 0) {
      out->converged = false; /* never met the fastest: nothing is known */
      continue;
    }
    /* Six rounds are the fewest whose interval is one at 95 %. */
    bool narrow = ratio.high - ratio.low <= 2 * tie;
    if (ratio.count < 6 || !(narrow || ratio.low > 1 + tie))
      out->converged = false;
    ties[i] = i == fastest || ratio.median <= 1 + tie;
    if (!ties[i]) continue;
    out->tie_count++;
    if (out->winner < 0 || preferred(&entries[i], &entries[out->winner]))
      out->winner = i;
  }
  free(medians);
}

void cuvil_race_eliminate(struct cuvil_race_entry *entries, int count,
                          const bool *is_protected, double tie, double alpha,
                          int looks) {
  if (count < 2 || looks < 1) return;
  double *medians = malloc((size_t)count * sizeof *medians);
  if (!medians) return; /* nobody is sent away for want of memory */
  int fastest = find_fastest(entries, count, medians);
  double share = alpha / ((double)count * looks);
  for (int i = 0; i < count && fastest >= 0; i++) {
    if (i == fastest || isnan(medians[i])) continue;
    if (is_protected && is_protected[i]) continue;
    int n;
    double *ratios =
        pair_ratios(entries[i].seconds, entries[fastest].seconds,
                    common_rounds(&entries[i], &entries[fastest]), &n);
    if (ratios && is_behind(ratios, n, tie, share))
      entries[i].eliminated = true;
    free(ratios);
  }
  free(medians);
}
