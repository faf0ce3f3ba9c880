/* planted.h - families that fail, each in its own way; test binaries only.
 *
 * Each computes a plain fp16 gemm with one thing wrong.  `reason` is what the
 * database must call it. */
#ifndef CUVIL_TESTS_SUPPORT_PLANTED_H_
#define CUVIL_TESTS_SUPPORT_PLANTED_H_

#include "kernels/family.h"

struct planted {
  const char *id, *reason;
};
/* hang, illegal address, wrong answer, half-written output, out of memory,
 * compile error, endless compile, NaN; an id of NULL ends. */
extern const struct planted planted_list[];
#define PLANTED_PROBLEM \
  "gemm/1 m=256 n=256 k=256 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32"

/* Puts them in front of the registry. */
void planted_plant(void);

#endif /* CUVIL_TESTS_SUPPORT_PLANTED_H_ */
