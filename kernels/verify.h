/* verify.h - is a program right?  Operands on the device with red zones and
 * poison, the reference computed once, any number of programs held against it.
 *
 * Made for the measuring worker (one verifier a problem, a check a candidate)
 * and the GPU tests.  Every allocation has red zones on both sides; outputs
 * and workspace start as 0xff bytes (NaN in every float type); inputs are
 * compared with their first state after every check and put back.
 */
#ifndef CUVIL_KERNELS_VERIFY_H_
#define CUVIL_KERNELS_VERIFY_H_

#include "kernels/family.h"
#include "runtime/executor.h"

struct cuvil_verifier;

struct cuvil_verdict {
  bool right;
  /* Static, as the database stores it; "" when right.  "overrun": wrote
   * outside its outputs and workspace, into an input, between the elements of
   * a strided output, or left a ZEROED buffer not zero.  "incomplete": some of
   * an output was never written.  "nan": NaN where none belongs.  "wrong":
   * outside the bound. */
  const char *reason;
  char detail[256]; /* one line for a person */
  int64_t elements, violations;
  double worst_ratio; /* worst error over its bound, of all outputs */
  double relative_l2; /* worst of all outputs */
};

/* Allocates and fills the operands (cuvil_problem_random with `seed`), and
 * computes values and bounds.  cubin_dir: as cuvil_program_compile, or NULL.
 * gpu and problem are borrowed; the problem is copied. */
CUVIL_MUST_USE enum cuvil_status cuvil_verifier_create(
    struct cuvil_gpu *gpu, const struct cuvil_problem *problem, uint64_t seed,
    const char *cubin_dir, struct cuvil_verifier **out);
void cuvil_verifier_destroy(struct cuvil_verifier *verifier);
/* Runs the program once and judges it.  A failing status is the machine's
 * (launch refused, illegal address, memory): the verdict is then not set.
 * `executable` was made from `program`. */
CUVIL_MUST_USE enum cuvil_status cuvil_verifier_check(
    struct cuvil_verifier *verifier, const struct cuvil_program *program,
    struct cuvil_executable *executable, struct cuvil_verdict *out);
/* Device address of the verifier's own copy of an operand (inputs hold their
 * data). */
uint64_t cuvil_verifier_operand(const struct cuvil_verifier *verifier,
                                int operand);
/* Device addresses of an output's reference values and bounds (f64). */
uint64_t cuvil_verifier_values(const struct cuvil_verifier *verifier,
                               int operand);
uint64_t cuvil_verifier_bounds(const struct cuvil_verifier *verifier,
                               int operand);

#endif /* CUVIL_KERNELS_VERIFY_H_ */
