/* clock.c - time and seeded random numbers.
 *
 * The generator is splitmix64 (Steele, Lea & Flood, Fast Splittable
 * Pseudorandom Number Generators, OOPSLA 2014): one word of state, so a seed
 * can be derived for every operand and candidate.
 */
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

double cuvil_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cuvil_utc_timestamp(char out[32]) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  struct tm parts;
  gmtime_r(&t.tv_sec, &parts);
  char seconds[24];
  strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(out, 32, "%s.%03uZ", seconds,
           (unsigned)(t.tv_nsec / 1000000) % 1000u);
}

uint64_t cuvil_rng_next(struct cuvil_rng *rng) {
  uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

uint64_t cuvil_rng_below(struct cuvil_rng *rng, uint64_t bound) {
  /* Reject the part that would favour small numbers. */
  uint64_t limit = -bound % bound, value;
  do {
    value = cuvil_rng_next(rng);
  } while (value < limit);
  return value % bound;
}

double cuvil_rng_uniform(struct cuvil_rng *rng) {
  return (double)(cuvil_rng_next(rng) >> 11) * 0x1p-53;
}

double cuvil_rng_normal(struct cuvil_rng *rng) {
  /* Box-Muller; 1 - u keeps the logarithm's argument above zero. */
  double u = 1 - cuvil_rng_uniform(rng), v = cuvil_rng_uniform(rng);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
