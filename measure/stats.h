/* stats.h - the arithmetic of believable times; no GPU in here.
 *
 * Sources: Hoefler & Belli, Scientific Benchmarking of Parallel Computing
 * Systems, SC 2015 (order-statistic interval of the median); Kalibera & Jones,
 * Rigorous Benchmarking in Reasonable Time, ISMM 2013 (repeat where the
 * uncertainty arises).
 *
 * Where host memory runs out the results are NaN (-1 for indices) and nobody
 * is eliminated.
 */
#ifndef CUVIL_MEASURE_STATS_H_
#define CUVIL_MEASURE_STATS_H_

#include <stdbool.h>
#include <stddef.h>

struct cuvil_interval {
  double median, low, high; /* same unit as the samples */
  int count;
};
/* Distribution-free interval of the median at `confidence` (0.95).  With
 * fewer than 6 samples: low and high are the extremes.  NaN for none. */
void cuvil_median_interval(const double *samples, int count, double confidence,
                           struct cuvil_interval *out);
/* Median and interval of a[i]/b[i] over paired rounds; a round where either is
 * not a positive time is left out. */
void cuvil_paired_ratio(const double *a, const double *b, int count,
                        double confidence, struct cuvil_interval *out);
/* Between samples by linear interpolation; NaNs left out; NaN for none. */
double cuvil_quantile(const double *samples, int count, double q);

/* A race: participants timed in the same interleaved rounds. */
struct cuvil_race_entry {
  const double *seconds; /* by round; NaN where it was not in that round */
  int rounds;
  bool eliminated;
  /* For the tie-break among equals: fewer first, then text order. */
  double resources;
  const char *text;
};
struct cuvil_race_result {
  int winner;     /* index; -1 when no entry has samples */
  int fastest;    /* smallest median */
  int tie_count;  /* entries whose ratio to the fastest is a tie */
  bool converged; /* the 95 % interval of every survivor's ratio to the fastest
                     is at most 2 tie wide or lies above 1 + tie, on at least
                     6 common rounds */
};
/* tie: relative width within which two are the same (max(0.005, A/A floor)).
 * ties[i] is set for members of the tie set: those whose median ratio to the
 * fastest is at most 1 + tie.  The winner is the member with the fewest
 * resources, then the first text, then the first index. */
void cuvil_race_judge(const struct cuvil_race_entry *entries, int count,
                      double tie, bool *ties, struct cuvil_race_result *out);
/* After a round: which entries are excluded at confidence 1 - alpha/(entries
 * x looks) from being within `tie` of the best (sign test or Student's test on
 * the paired log-ratios, half of the error each); sets `eliminated`.  Entries
 * with is_protected[i] stay (the default, a library's first choice); NULL
 * protects nobody.  looks: how often the race will ask, all rounds counted. */
void cuvil_race_eliminate(struct cuvil_race_entry *entries, int count,
                          const bool *is_protected, double tie, double alpha,
                          int looks);

#endif /* CUVIL_MEASURE_STATS_H_ */
