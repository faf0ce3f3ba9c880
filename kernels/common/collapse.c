/* collapse.c - fewer dimensions, the same problem.
 *
 * Where dimension b lies inside dimension a in every operand that has either
 * (h and w of NCHW and of NHWC alike), the two are one dimension of extent
 * a*b: less index arithmetic, and tiles that are not cut at every row.  The
 * problem keeps its operands and epilogue, so buffers and arguments stay.
 */
#include <string.h>

#include "kernels/common/emit.h"

/* May b be merged into a in this operand?  Then *out_place is a's place, -1
 * when it has neither. */
static bool nests(const struct cuvil_problem *p, const struct cuvil_operand *o,
                  int a, int b, int *out_place) {
  int place_a = -1, place_b = -1;
  for (int i = 0; i < o->rank; i++) {
    if (o->dims[i] == a) place_a = i;
    if (o->dims[i] == b) place_b = i;
  }
  *out_place = place_a;
  if (place_a < 0 && place_b < 0) return true;
  if (place_a < 0 || place_b != place_a + 1) return false;
  if (o->limit[place_a] || o->limit[place_b]) return false;
  return o->strides[place_a] == o->strides[place_b] * p->dims[b].extent;
}

static void merge_operand(struct cuvil_operand *o, int place, int a, int b) {
  if (place >= 0) {
    for (int i = place; i + 1 < o->rank; i++) {
      o->dims[i] = o->dims[i + 1];
      o->limit[i] = o->limit[i + 1];
      o->strides[i] = o->strides[i + 1];
    }
    o->rank--;
    o->dims[o->rank] = 0;
    o->limit[o->rank] = o->strides[o->rank] = 0;
  }
  /* b is now a*b; a goes, and those above it move down. */
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] > a) o->dims[i]--;
  (void)b;
}

static bool merge(struct cuvil_problem *p, int a, int b) {
  int places[CUVIL_MAX_OPERANDS];
  const struct cuvil_operand *y = &p->operands[p->output];
  if (p->dims[a].extent * (__int128)p->dims[b].extent > INT32_MAX) return false;
  if (cuvil_operand_has_dim(y, a) != cuvil_operand_has_dim(y, b)) return false;
  for (int i = 0; i < p->operand_count; i++)
    if (!nests(p, &p->operands[i], a, b, &places[i])) return false;
  p->dims[b].extent *= p->dims[a].extent;
  for (int i = 0; i < p->operand_count; i++)
    merge_operand(&p->operands[i], places[i], a, b);
  memmove(&p->dims[a], &p->dims[a + 1],
          sizeof p->dims[0] * (size_t)(p->dim_count - a - 1));
  memset(&p->dims[--p->dim_count], 0, sizeof p->dims[0]);
  return true;
}

static bool merge_any(struct cuvil_problem *p) {
  for (int a = 0; a < p->dim_count; a++)
    for (int b = 0; b < p->dim_count; b++)
      if (a != b && merge(p, a, b)) return true;
  return false;
}

void cuvil_problem_collapse(const struct cuvil_problem *problem,
                            struct cuvil_problem *out) {
  *out = *problem;
  if (problem->kind != CUVIL_KIND_POINTWISE &&
      problem->kind != CUVIL_KIND_REDUCE)
    return;
  while (merge_any(out))
    ;
}
