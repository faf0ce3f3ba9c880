/* problem_bench.h - a problem with memory for everything.  Each function fails
 * the test when it cannot do its part. */
#ifndef CUVIL_TESTS_PROBLEM_BENCH_H_
#define CUVIL_TESTS_PROBLEM_BENCH_H_

#include "problem/reference.h"

struct cuvil_bench {
  struct cuvil_problem problem;
  void *data[CUVIL_MAX_OPERANDS];
  double *values[CUVIL_MAX_OPERANDS], *bounds[CUVIL_MAX_OPERANDS];
};

void cuvil_bench_set_up(struct cuvil_bench *b, const char *text);
void cuvil_bench_tear_down(struct cuvil_bench *b);
/* The reference, into values and bounds. */
void cuvil_bench_run(struct cuvil_bench *b, int threads);
void cuvil_bench_fill(struct cuvil_bench *b, const char *operand,
                      const double *values);
void cuvil_bench_randomise(struct cuvil_bench *b, uint64_t seed);
/* Values of an output; NaN expected is NaN. */
void cuvil_bench_assert(const struct cuvil_bench *b, int operand,
                        const double *expected, int count);

#define EXPECT(b, operand, ...)                               \
  do {                                                        \
    const double expected_[] = {__VA_ARGS__};                 \
    cuvil_bench_assert((b), (operand), expected_,             \
                       sizeof expected_ / sizeof *expected_); \
  } while (0)
#define FILL(b, operand, ...) \
  cuvil_bench_fill((b), (operand), (const double[]){__VA_ARGS__})

#endif /* CUVIL_TESTS_PROBLEM_BENCH_H_ */
