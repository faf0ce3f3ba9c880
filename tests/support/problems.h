/* problems.h - problems that every family's tests go through: odd extents, all
 * types, layouts, strides, limits, broadcasts, extra outputs. */
#ifndef CUVIL_TESTS_SUPPORT_PROBLEMS_H_
#define CUVIL_TESTS_SUPPORT_PROBLEMS_H_

#include <stddef.h>

#include "base/clock.h"

/* Texts that parse; NULL at the end. */
extern const char *const cuvil_test_problems[];

/* A matrix product of random extents (m up to 300, n 3000, k 2500; small ones
 * as often as large ones), types, layouts and epilogue: a text that parses. */
void cuvil_test_random_gemm(struct cuvil_rng *rng, char *out, size_t size);

#endif /* CUVIL_TESTS_SUPPORT_PROBLEMS_H_ */
