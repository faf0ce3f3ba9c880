/* synthetic.h - a recording that no GPU made, with times worked out from a
 * hash, so that the right winner is known.  For tests of replay only: its GPU
 * is called "synthetic". */
#ifndef CUVIL_TESTS_SUPPORT_SYNTHETIC_H_
#define CUVIL_TESTS_SUPPORT_SYNTHETIC_H_

#include "tuner/tuner.h"

/* `count` own candidates of each problem for sm_90; candidate i takes
 * 10 us x (1 + 0.04 x its rank), ranks are a seeded shuffle, blocks have half
 * a percent of noise.  Every seventh fails as "wrong".  *out_winners[p]:
 * config of rank 0, freed by the caller (may be NULL). */
void synthetic_recording(const char *const *problems, int problem_count,
                         int count, uint64_t seed, struct cuvil_recording **out,
                         char **out_winners);

#endif /* CUVIL_TESTS_SUPPORT_SYNTHETIC_H_ */
