/* problems.h - problems that every family's tests go through: odd extents, all
 * types, layouts, strides, limits, broadcasts, extra outputs. */
#ifndef CUVIL_TESTS_SUPPORT_PROBLEMS_H_
#define CUVIL_TESTS_SUPPORT_PROBLEMS_H_

/* Texts that parse; NULL at the end. */
extern const char *const cuvil_test_problems[];

#endif /* CUVIL_TESTS_SUPPORT_PROBLEMS_H_ */
