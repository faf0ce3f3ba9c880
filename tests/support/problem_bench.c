/* problem_bench.c - a problem with memory for everything, for tests of
 * references and bounds. */
#include "tests/support/problem_bench.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void cuvil_bench_set_up(struct cuvil_bench *b, const char *text) {
  memset(b, 0, sizeof *b);
  if (cuvil_problem_parse(text, &b->problem) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  for (int i = 0; i < b->problem.operand_count; i++) {
    size_t elements = (size_t)cuvil_operand_elements(&b->problem, i);
    b->data[i] =
        calloc(elements + 1, cuvil_dtype_size(b->problem.operands[i].dtype));
    if (b->problem.operands[i].role != CUVIL_ROLE_OUTPUT) continue;
    b->values[i] = calloc(elements + 1, sizeof(double));
    b->bounds[i] = calloc(elements + 1, sizeof(double));
  }
}

void cuvil_bench_tear_down(struct cuvil_bench *b) {
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++) {
    free(b->data[i]);
    free(b->values[i]);
    free(b->bounds[i]);
  }
}

void cuvil_bench_run(struct cuvil_bench *b, int threads) {
  if (cuvil_problem_reference(&b->problem, (const void *const *)b->data,
                              b->values, b->bounds, threads) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
}

void cuvil_bench_fill(struct cuvil_bench *b, const char *operand,
                      const double *values) {
  int i = cuvil_problem_find_operand(&b->problem, operand);
  size_t elements = (size_t)cuvil_operand_elements(&b->problem, i);
  for (size_t j = 0; j < elements; j++)
    cuvil_store(b->problem.operands[i].dtype, b->data[i], j, values[j]);
}

void cuvil_bench_randomise(struct cuvil_bench *b, uint64_t seed) {
  for (int i = 0; i < b->problem.operand_count; i++)
    cuvil_problem_random(&b->problem, i, seed, b->data[i]);
}

void cuvil_bench_assert(const struct cuvil_bench *b, int operand,
                        const double *expected, int count) {
  assert_int_equal(cuvil_operand_elements(&b->problem, operand), count);
  for (int i = 0; i < count; i++) {
    double got = b->values[operand][i];
    if (isnan(expected[i]) ? !isnan(got) : got != expected[i])
      fail_msg("element %d is %g, not %g", i, got, expected[i]);
  }
}
