/* reference.c - what the right answer is: the frame around the kinds.
 *
 * Each kind computes its accumulator at every point of the main output, with a
 * bound on the error of a fp32 kernel; here are the parts that they share:
 * threads, reading an operand at a point, and the epilogue with its stores.
 */
#include "problem/reference.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "problem/checked.h"
#include "problem/internal.h"

#define MAX_THREADS 64
#define POINTS_AT_ONCE 512

/* ---- threads */

struct crew {
  atomic_llong next;
  int64_t count;
  void (*body)(void *user, int worker, int64_t i);
  void *user;
};
struct worker {
  struct crew *crew;
  int number;
  pthread_t thread;
};

static void *work(void *argument) {
  struct worker *worker = argument;
  struct crew *crew = worker->crew;
  for (;;) {
    int64_t i = atomic_fetch_add(&crew->next, 1);
    if (i >= crew->count) return NULL;
    crew->body(crew->user, worker->number, i);
  }
}

void cuvil_reference_parallel(int64_t count, int threads,
                              void (*body)(void *user, int worker, int64_t i),
                              void *user) {
  struct crew crew = {.count = count, .body = body, .user = user};
  struct worker workers[MAX_THREADS];
  int64_t wanted = threads < count ? threads : count;
  int started = 1;
  for (; started < wanted && started < MAX_THREADS; started++) {
    workers[started] = (struct worker){.crew = &crew, .number = started};
    /* Without another thread those that there are do the work. */
    if (pthread_create(&workers[started].thread, NULL, work,
                       &workers[started]) != 0)
      break;
  }
  workers[0] = (struct worker){.crew = &crew};
  work(&workers[0]);
  for (int i = 1; i < started; i++)
    pthread_join(workers[i].thread, NULL);
}

/* ---- points */

struct points {
  const struct cuvil_reference_job *job;
  int64_t count;
  void (*body)(const struct cuvil_reference_job *job, int64_t *coordinates);
};

static void do_points(void *user, int worker, int64_t batch) {
  (void)worker;
  const struct points *points = user;
  const struct cuvil_problem *problem = points->job->problem;
  const struct cuvil_operand *out = &problem->operands[problem->output];
  int64_t first = batch * POINTS_AT_ONCE, last = first + POINTS_AT_ONCE;
  if (last > points->count) last = points->count;
  int64_t coordinates[CUVIL_MAX_DIMS] = {0};
  int64_t rest = first;
  for (int d = out->rank - 1; d >= 0; d--) {
    int64_t extent = problem->dims[out->dims[d]].extent;
    coordinates[out->dims[d]] = rest % extent;
    rest /= extent;
  }
  for (int64_t i = first; i < last; i++) {
    points->body(points->job, coordinates);
    for (int d = out->rank - 1; d >= 0; d--) {
      int dim = out->dims[d];
      if (++coordinates[dim] < problem->dims[dim].extent) break;
      coordinates[dim] = 0;
    }
  }
}

void cuvil_reference_each_point(
    const struct cuvil_reference_job *job,
    void (*body)(const struct cuvil_reference_job *job, int64_t *coordinates)) {
  struct points points = {.job = job, .count = 1, .body = body};
  const struct cuvil_problem *problem = job->problem;
  const struct cuvil_operand *out = &problem->operands[problem->output];
  for (int d = 0; d < out->rank; d++)
    points.count *= problem->dims[out->dims[d]].extent;
  cuvil_reference_parallel((points.count + POINTS_AT_ONCE - 1) / POINTS_AT_ONCE,
                           job->threads, do_points, &points);
}

/* Index in storage; -1 beyond a limit. */
static int64_t place(const struct cuvil_operand *operand,
                     const int64_t *coordinates) {
  int64_t index = 0;
  for (int i = 0; i < operand->rank; i++) {
    int64_t at = coordinates[operand->dims[i]];
    if (operand->limit[i] && at >= operand->limit[i]) return -1;
    index += at * operand->strides[i];
  }
  return index;
}

int64_t cuvil_reference_index(const struct cuvil_reference_job *job,
                              int operand, const int64_t *coordinates,
                              int64_t extent) {
  const struct cuvil_operand *o = &job->problem->operands[operand];
  /* Exact below 2^53; what is beyond is clamped in any case. */
  double index = cuvil_load(o->dtype, job->operands[operand],
                            (size_t)place(o, coordinates));
  if (index < 0) index += (double)extent;
  if (index < 0) return 0;
  return index < (double)extent ? (int64_t)index : extent - 1;
}

double cuvil_reference_load(const struct cuvil_reference_job *job, int operand,
                            const int64_t *coordinates) {
  const struct cuvil_operand *o = &job->problem->operands[operand];
  int64_t index = place(o, coordinates);
  if (index < 0) return 0;
  return (double)(float)cuvil_load(o->dtype, job->operands[operand],
                                   (size_t)index);
}

static void put(const struct cuvil_reference_job *job, int operand,
                const int64_t *coordinates, struct cuvil_checked value) {
  const struct cuvil_operand *o = &job->problem->operands[operand];
  int64_t index = place(o, coordinates);
  struct cuvil_checked stored = cuvil_checked_stored((int)o->dtype, value);
  job->values[operand][index] = stored.value;
  job->bounds[operand][index] = stored.error;
}

void cuvil_reference_store(const struct cuvil_reference_job *job,
                           const int64_t *coordinates,
                           struct cuvil_checked acc) {
  const struct cuvil_problem *problem = job->problem;
  const struct cuvil_expr *expr = &problem->epilogue;
  if (expr->count == 0) {
    put(job, problem->output, coordinates, acc);
    return;
  }
  double sides[CUVIL_MAX_OPERANDS];
  for (int i = 0; i < problem->operand_count; i++)
    if (problem->operands[i].role == CUVIL_ROLE_SIDE)
      sides[i] = cuvil_reference_load(job, i, coordinates);
  struct cuvil_checked results[CUVIL_MAX_STATEMENTS];
  cuvil_expr_evaluate(expr, acc, sides, results);
  for (int i = 0; i < expr->count; i++)
    if (expr->statements[i].output >= 0)
      put(job, expr->statements[i].output, coordinates, results[i]);
}

struct cuvil_checked cuvil_reference_prologue(
    const struct cuvil_reference_job *job, const int64_t *coordinates) {
  const struct cuvil_problem *problem = job->problem;
  const struct cuvil_expr *expr = &problem->prologue;
  struct cuvil_checked x = {
      cuvil_reference_load(job, CUVIL_NORM_X, coordinates), 0};
  if (expr->count == 0) return x;
  double sides[CUVIL_MAX_OPERANDS];
  for (int i = 0; i < problem->operand_count; i++)
    if (problem->operands[i].role == CUVIL_ROLE_SIDE)
      sides[i] = cuvil_reference_load(job, i, coordinates);
  struct cuvil_checked results[CUVIL_MAX_STATEMENTS];
  cuvil_expr_evaluate(expr, x, sides, results);
  for (int i = 0; i < expr->count; i++)
    if (expr->statements[i].output >= 0)
      put(job, expr->statements[i].output, coordinates, results[i]);
  return results[expr->count - 1];
}

/* ---- the entry */

static enum cuvil_status check_arrays(const struct cuvil_reference_job *job) {
  const struct cuvil_problem *problem = job->problem;
  for (int i = 0; i < problem->operand_count; i++) {
    int64_t elements = cuvil_operand_elements(problem, i);
    if (elements == 0) continue;
    bool output = problem->operands[i].role == CUVIL_ROLE_OUTPUT;
    if (output ? !job->values[i] || !job->bounds[i] : !job->operands[i])
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "reference: operand '%s' has no memory",
                        problem->operands[i].name);
    /* Between the elements of a strided output nothing is asked. */
    if (!output || !problem->operands[i].strided) continue;
    for (int64_t j = 0; j < elements; j++) {
      job->values[i][j] = 0;
      job->bounds[i][j] = (double)NAN;
    }
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_problem_reference(const struct cuvil_problem *problem,
                                          const void *const *operands,
                                          double *const *values,
                                          double *const *bounds, int threads) {
  struct cuvil_reference_job job = {.problem = problem,
                                    .operands = operands,
                                    .values = values,
                                    .bounds = bounds,
                                    .threads = threads};
  if (job.threads <= 0) job.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (job.threads <= 0) job.threads = 1;
  if (job.threads > MAX_THREADS) job.threads = MAX_THREADS;
  CUVIL_TRY(check_arrays(&job));
  switch (problem->kind) {
    case CUVIL_KIND_GEMM:
    case CUVIL_KIND_CONV:
      return cuvil_reference_contraction(&job);
    case CUVIL_KIND_POOL:
      cuvil_reference_pool(&job);
      return CUVIL_OK;
    case CUVIL_KIND_REDUCE:
      cuvil_reference_reduce(&job);
      return CUVIL_OK;
    case CUVIL_KIND_POINTWISE:
      cuvil_reference_pointwise(&job);
      return CUVIL_OK;
    case CUVIL_KIND_ATTENTION:
      return cuvil_reference_attention(&job);
    case CUVIL_KIND_NORM:
      return cuvil_reference_norm(&job);
    case CUVIL_KIND_GATHER:
      cuvil_reference_gather(&job);
      return CUVIL_OK;
    case CUVIL_KIND_COUNT:
      break;
  }
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "reference: unknown kind");
}
