/* l2.c - what the L2 cache should hold while a candidate is timed.
 *
 * In a network whose weights and activations fit the cache together, a kernel
 * finds all of them there, run after run: warm.  In a larger one, its weights
 * were pushed out since the last run, while its activations were written by
 * the kernel before: weights cold, activations warm.  Cold is made by reading
 * another copy in each run, as many copies as it takes to move more than three
 * times the cache between two uses of one copy (CUTLASS's profiler does the
 * same); where that would be very many, as many as one timed replay reads, and
 * the worker empties the cache between replays (measure/flush.h).  Operands
 * under 1 % of the traffic cannot change the time and are left alone.
 *
 * The roof follows from the same plan: what is warm comes from the L2, and a
 * share of the memory's rate would be no share of anything.
 */
#include <math.h>
#include <string.h>

#include "tuner/tuner.h"

enum { ROTATIONS_MOST = 64 };

enum cuvil_status cuvil_l2_model_fits(const struct cuvil_tune_problem *problems,
                                      int count, int64_t l2_bytes, bool *out) {
  double weights = 0, activations = 0;
  *out = false;
  for (int i = 0; i < count; i++) {
    struct cuvil_problem problem;
    double own = 0;
    CUVIL_TRY(cuvil_problem_parse(problems[i].text, &problem));
    for (int o = 0; o < problem.operand_count; o++) {
      double bytes = (double)cuvil_operand_bytes(&problem, o);
      if (problem.operands[o].weight)
        weights += bytes * problems[i].calls;
      else
        own += bytes;
    }
    if (own > activations) activations = own;
  }
  *out = weights + activations <= (double)l2_bytes;
  return CUVIL_OK;
}

void cuvil_l2_decide(enum cuvil_l2_mode mode, bool model_fits,
                     const struct cuvil_problem *problem, int64_t l2_bytes,
                     struct cuvil_l2_plan *out) {
  double total = cuvil_problem_bytes(problem), rotated = 0;
  *out = (struct cuvil_l2_plan){.rotations = 1, .label = "warm"};
  if (mode == CUVIL_L2_WARM || (mode == CUVIL_L2_MODEL && model_fits)) return;
  for (int o = 0; o < problem->operand_count; o++) {
    double bytes = (double)cuvil_operand_bytes(problem, o);
    if (bytes < 0.01 * total) continue;
    if (mode == CUVIL_L2_MODEL && !problem->operands[o].weight) continue;
    out->cold[o] = true;
    rotated += bytes;
  }
  if (rotated == 0) return; /* nothing that could be cold matters */
  double copies = 1 + (int64_t)(3.0 * (double)l2_bytes / rotated);
  if (copies > ROTATIONS_MOST) copies = ROTATIONS_MOST;
  out->rotations = copies < 2 ? 2 : (int)copies;
  out->label = "cold";
}

static double peak_flops(const struct cuvil_problem *problem,
                         const struct cuvil_arch *arch) {
  enum cuvil_dtype dtype = problem->operands[0].dtype;
  if (problem->kind != CUVIL_KIND_GEMM && problem->kind != CUVIL_KIND_CONV &&
      problem->kind != CUVIL_KIND_ATTENTION)
    return arch->flops_f32;
  if (dtype == CUVIL_F16 || dtype == CUVIL_BF16) return arch->flops_f16;
  return problem->tf32 ? arch->flops_tf32 : arch->flops_f32;
}

double cuvil_roof_seconds(const struct cuvil_problem *problem,
                          const struct cuvil_arch *arch,
                          const struct cuvil_l2_plan *plan) {
  double bytes = cuvil_problem_bytes(problem), cold = 0;
  for (int o = 0; o < problem->operand_count; o++)
    if (plan->cold[o]) cold += (double)cuvil_operand_bytes(problem, o);
  if (strcmp(plan->label, "warm") == 0) cold = 0; /* as a recording says */
  cold = fmin(cold, bytes); /* of a gather's table only rows are read */
  double from_memory = fmax(cold, bytes - (double)arch->l2_bytes);
  return fmax(cuvil_problem_flops(problem) / peak_flops(problem, arch),
              fmax(bytes / cuvil_arch_l2_rate(arch),
                   from_memory / arch->memory_bytes_per_second));
}
