/* series.h - blocks of one thing, and when they are enough; no GPU in here.
 *
 * Blocks come in rounds that other work separates.  A block that cannot be a
 * time of this thing is kept with its reason but not counted, and there is a
 * limit to how many may be.  What is kept makes a median with its interval
 * (stats.h); the series is done when the interval is as narrow as asked.  It is
 * looked at when 16, 32, 64 ... blocks are there and not after each: who looks
 * often enough sees a narrow interval by luck.
 *
 * Blocks of one visit to a GPU agree better with each other than with those of
 * the next visit.  What lies between visits is measured on each GPU
 * (calibrate.h) and widens the interval: `spread`.
 *
 * Sources: Hoefler & Belli, SC 2015; Kalibera & Jones, ISMM 2013.
 */
#ifndef CUVIL_MEASURE_SERIES_H_
#define CUVIL_MEASURE_SERIES_H_

#include "measure/stats.h"
#include "measure/timer.h"

enum cuvil_reject {
  CUVIL_KEPT,
  CUVIL_REJECT_TIME,    /* zero, negative or not a number */
  CUVIL_REJECT_NOISE,   /* the timer found no believable time */
  CUVIL_REJECT_PEAK,    /* faster than the memory at its measured best */
  CUVIL_REJECT_HOT,     /* NVML: thermal slowdown */
  CUVIL_REJECT_BRAKE,   /* NVML: power brake */
  CUVIL_REJECT_HARDWARE /* NVML: hardware slowdown */
};
/* "kept", "time", "noise", "peak", "thermal", "brake", "hardware"; static. */
const char *cuvil_reject_name(enum cuvil_reject reject);

struct cuvil_series_rule {
  double half_width; /* relative, of the 95 % interval; 0: 0.005 */
  int least, most;   /* kept blocks; 0: 16 and 512 */
  int rounds;        /* that kept blocks must come from; 0: 3 */
  int rejects_most;  /* then it ends; 0: 32 */
  double spread;     /* relative half-width of what lies between visits */
  /* What no run can be faster than: bytes it must move over the measured peak
   * of the memory, less 2 %.  0: not known, or warm. */
  double floor_seconds;
};
struct cuvil_series_block {
  struct cuvil_block block;
  int round;
  enum cuvil_reject reject;
  double when; /* seconds since the series began */
};
enum cuvil_series_state {
  CUVIL_SERIES_MORE,
  CUVIL_SERIES_CONVERGED,
  CUVIL_SERIES_UNCONVERGED, /* `most` blocks and still too wide */
  CUVIL_SERIES_THROTTLED,   /* most rejects are NVML's reasons */
  CUVIL_SERIES_REJECTED     /* most rejects are impossible times or noise */
};
struct cuvil_series {
  struct cuvil_series_rule rule;
  struct cuvil_series_block *blocks; /* in order of time; owned */
  int count, capacity;
  int kept, rejects;
  int next_look; /* kept blocks at which the interval is looked at */
  struct cuvil_interval interval; /* at the last look; count 0: none yet */
  enum cuvil_series_state state;  /* once ended, it stays so */
};
/* "more", "converged", "unconverged", "throttled", "rejected"; static. */
const char *cuvil_series_state_name(enum cuvil_series_state state);

void cuvil_series_begin(struct cuvil_series *series,
                        const struct cuvil_series_rule *rule);
void cuvil_series_free(struct cuvil_series *series);
/* Judges the block and adds it; seconds NaN: the timer found none. */
CUVIL_MUST_USE enum cuvil_status cuvil_series_add(
    struct cuvil_series *series, const struct cuvil_block *block, int round,
    double when);
enum cuvil_series_state cuvil_series_state(struct cuvil_series *series);
/* Interval of all that is kept now, widened by the spread. */
void cuvil_series_interval(const struct cuvil_series *series,
                           struct cuvil_interval *out);
/* Times of the kept blocks; to be freed.  NULL: none, or no memory. */
double *cuvil_series_kept(const struct cuvil_series *series, int *out_count);

#endif /* CUVIL_MEASURE_SERIES_H_ */
