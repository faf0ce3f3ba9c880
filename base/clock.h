/* clock.h - monotonic seconds, UTC timestamps, and seeded random numbers. */
#ifndef CUVIL_BASE_CLOCK_H_
#define CUVIL_BASE_CLOCK_H_

#include <stdint.h>

double cuvil_now(void);                 /* monotonic, seconds */
void cuvil_utc_timestamp(char out[32]); /* "2026-12-01T17:29:45.123Z" */

/* splitmix64: one 64-bit state, good enough for data and shuffles, the same
 * sequence on every machine. */
struct cuvil_rng {
  uint64_t state;
};
uint64_t cuvil_rng_next(struct cuvil_rng *rng);
uint64_t cuvil_rng_below(struct cuvil_rng *rng, uint64_t bound); /* bound>0 */
double cuvil_rng_uniform(struct cuvil_rng *rng);                 /* [0,1) */
double cuvil_rng_normal(struct cuvil_rng *rng);

#endif /* CUVIL_BASE_CLOCK_H_ */
