/* reference_map.c - pool, reduce, pointwise and gather on the CPU: the
 * definition, point by point of the output.
 */
#include <math.h>

#include "problem/checked.h"
#include "problem/internal.h"

/* ---- pool: windows go row by row; padding is never an element */

/* Places of a window on one axis that an average over padding counts. */
static int64_t counted(const struct cuvil_problem *p, int axis, int64_t first) {
  static const int extents[] = {CUVIL_POOL_DIM_H, CUVIL_POOL_DIM_W};
  static const int windows[] = {CUVIL_POOL_DIM_R, CUVIL_POOL_DIM_S};
  int64_t end =
      p->dims[extents[axis]].extent + p->pad[2 + axis] - p->over[axis];
  int64_t count = 0;
  for (int64_t i = 0; i < p->dims[windows[axis]].extent; i++)
    count += first + i * p->dilation[axis] < end;
  return count;
}

static void pool_point(const struct cuvil_reference_job *job,
                       int64_t *coordinates) {
  const struct cuvil_problem *p = job->problem;
  int64_t top = coordinates[CUVIL_POOL_DIM_P] * p->stride[0] - p->pad[0];
  int64_t left = coordinates[CUVIL_POOL_DIM_Q] * p->stride[1] - p->pad[1];
  int64_t rows = p->dims[CUVIL_POOL_DIM_R].extent;
  int64_t columns = p->dims[CUVIL_POOL_DIM_S].extent;
  int64_t at[CUVIL_MAX_DIMS] = {0};
  at[CUVIL_POOL_DIM_N] = coordinates[CUVIL_POOL_DIM_N];
  at[CUVIL_POOL_DIM_C] = coordinates[CUVIL_POOL_DIM_C];
  double sum = 0, magnitude = 0, largest = -(double)INFINITY;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t h = top + r * p->dilation[0];
    if (h < 0 || h >= p->dims[CUVIL_POOL_DIM_H].extent) continue;
    for (int64_t s = 0; s < columns; s++) {
      int64_t w = left + s * p->dilation[1];
      if (w < 0 || w >= p->dims[CUVIL_POOL_DIM_W].extent) continue;
      at[CUVIL_POOL_DIM_H] = h;
      at[CUVIL_POOL_DIM_W] = w;
      double x = cuvil_reference_load(job, CUVIL_POOL_X, at);
      sum += x;
      magnitude += fabs(x);
      largest = cuvil_plain_max(largest, x);
      count++;
    }
  }
  struct cuvil_checked acc = {largest, 0};
  if (p->pool_op != CUVIL_POOL_MAX) {
    int64_t divisor = p->pool_op == CUVIL_POOL_AVG
                          ? count
                          : counted(p, 0, top) * counted(p, 1, left);
    acc = cuvil_checked_mean(sum, magnitude, (double)count, (double)divisor);
  }
  cuvil_reference_store(job, coordinates, acc);
}

void cuvil_reference_pool(const struct cuvil_reference_job *job) {
  cuvil_reference_each_point(job, pool_point);
}

/* ---- reduce: the dimensions of x that y has not, in x's order */

struct reduction {
  double sum, magnitude, largest, smallest;
  int64_t count;
};

static void take(struct reduction *r, double x) {
  r->sum += x;
  r->magnitude += fabs(x);
  r->largest = cuvil_plain_max(r->largest, x);
  r->smallest = cuvil_plain_min(r->smallest, x);
  r->count++;
}

static struct cuvil_checked reduced(enum cuvil_reduce_op op,
                                    const struct reduction *r) {
  double count = (double)r->count;
  switch (op) {
    case CUVIL_REDUCE_SUM:
      return cuvil_checked_sum(r->sum, r->magnitude, count, false);
    case CUVIL_REDUCE_MEAN:
      return cuvil_checked_mean(r->sum, r->magnitude, count, count);
    case CUVIL_REDUCE_MAX:
      return (struct cuvil_checked){r->largest, 0};
    case CUVIL_REDUCE_MIN:
      return (struct cuvil_checked){r->smallest, 0};
  }
  return (struct cuvil_checked){(double)NAN, 0};
}

static void reduce_point(const struct cuvil_reference_job *job,
                         int64_t *coordinates) {
  const struct cuvil_problem *p = job->problem;
  const struct cuvil_operand *x = &p->operands[CUVIL_REDUCE_X];
  const struct cuvil_operand *y = &p->operands[CUVIL_REDUCE_Y];
  int dims[CUVIL_MAX_RANK], count = 0;
  bool empty = false;
  for (int i = 0; i < x->rank; i++) {
    if (cuvil_operand_has_dim(y, x->dims[i])) continue;
    dims[count++] = x->dims[i];
    empty = empty || p->dims[x->dims[i]].extent == 0;
  }
  struct reduction r = {.largest = -(double)INFINITY,
                        .smallest = (double)INFINITY};
  for (bool more = !empty; more;) {
    take(&r, cuvil_reference_load(job, CUVIL_REDUCE_X, coordinates));
    more = false;
    for (int i = count - 1; i >= 0 && !more; i--) {
      more = ++coordinates[dims[i]] < p->dims[dims[i]].extent;
      if (!more) coordinates[dims[i]] = 0;
    }
  }
  cuvil_reference_store(job, coordinates, reduced(p->reduce_op, &r));
}

void cuvil_reference_reduce(const struct cuvil_reference_job *job) {
  cuvil_reference_each_point(job, reduce_point);
}

/* ---- pointwise: only the epilogue */

static void pointwise_point(const struct cuvil_reference_job *job,
                            int64_t *coordinates) {
  cuvil_reference_store(job, coordinates, (struct cuvil_checked){0, 0});
}

void cuvil_reference_pointwise(const struct cuvil_reference_job *job) {
  cuvil_reference_each_point(job, pointwise_point);
}

/* ---- gather: the value as it stands in the table */

static void gather_point(const struct cuvil_reference_job *job,
                         int64_t *coordinates) {
  int64_t rows = job->problem->dims[CUVIL_GATHER_DIM_V].extent;
  coordinates[CUVIL_GATHER_DIM_V] =
      cuvil_reference_index(job, CUVIL_GATHER_INDEX, coordinates, rows);
  struct cuvil_checked acc = {
      cuvil_reference_load(job, CUVIL_GATHER_TABLE, coordinates), 0};
  cuvil_reference_store(job, coordinates, acc);
}

void cuvil_reference_gather(const struct cuvil_reference_job *job) {
  cuvil_reference_each_point(job, gather_point);
}
