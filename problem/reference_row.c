/* reference_row.c - norm and attention on the CPU: a row at a time, since every
 * element of a row needs all of it.  The definition, in double; the bounds are
 * problem/checked_row.h.
 */
#include <math.h>
#include <stdlib.h>

#include "problem/checked_row.h"
#include "problem/internal.h"

/* Values of a row (scores, or what is normalised), one row a thread. */
struct rows {
  const struct cuvil_reference_job *job;
  int64_t length;
  struct cuvil_checked *memory;
};

static enum cuvil_status run_rows(const struct cuvil_reference_job *job,
                                  int64_t count, int64_t length,
                                  void (*body)(void *user, int worker,
                                               int64_t i)) {
  struct rows rows = {.job = job, .length = length};
  rows.memory =
      calloc((size_t)job->threads * (size_t)length, sizeof *rows.memory);
  if (!rows.memory) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "reference");
  cuvil_reference_parallel(count, job->threads, body, &rows);
  free(rows.memory);
  return CUVIL_OK;
}

/* ---- norm */

static void norm_row(void *user, int worker, int64_t m) {
  const struct rows *rows = user;
  const struct cuvil_problem *p = rows->job->problem;
  struct cuvil_checked *v = rows->memory + worker * rows->length;
  struct cuvil_checked_norm norm =
      cuvil_checked_norm_begin((int)p->norm_op, (double)rows->length);
  int64_t at[CUVIL_MAX_DIMS] = {0};
  int64_t *n = &at[CUVIL_NORM_DIM_N];
  at[CUVIL_NORM_DIM_M] = m;
  for (*n = 0; *n < rows->length; ++*n) {
    v[*n] = cuvil_reference_prologue(rows->job, at);
    cuvil_checked_norm_first(&norm, v[*n]);
  }
  cuvil_checked_norm_centre(&norm);
  for (*n = 0; *n < rows->length; ++*n)
    cuvil_checked_norm_second(&norm, v[*n]);
  cuvil_checked_norm_scale(&norm, p->eps);
  for (*n = 0; *n < rows->length; ++*n)
    cuvil_reference_store(rows->job, at,
                          cuvil_checked_norm_value(&norm, v[*n]));
}

enum cuvil_status cuvil_reference_norm(const struct cuvil_reference_job *job) {
  const struct cuvil_dim *dims = job->problem->dims;
  return run_rows(job, dims[CUVIL_NORM_DIM_M].extent,
                  dims[CUVIL_NORM_DIM_N].extent, norm_row);
}

/* ---- attention */

/* The score of the query at `at` and the key there; -inf value and infinite
 * error never meet: an excluded key is told by `false`. */
static bool score(const struct cuvil_reference_job *job, int64_t *at,
                  struct cuvil_checked *out) {
  const struct cuvil_problem *p = job->problem;
  const struct cuvil_dim *dims = p->dims;
  if (p->causal &&
      at[CUVIL_ATTENTION_DIM_SKV] > at[CUVIL_ATTENTION_DIM_SQ] +
                                        dims[CUVIL_ATTENTION_DIM_SKV].extent -
                                        dims[CUVIL_ATTENTION_DIM_SQ].extent)
    return false;
  double mask = p->mask < 0 ? 0 : cuvil_reference_load(job, p->mask, at);
  if (p->mask_keep && mask == 0) return false;
  double sum = 0, magnitude = 0;
  int64_t depth = dims[CUVIL_ATTENTION_DIM_D].extent;
  for (int64_t d = 0; d < depth; d++) {
    at[CUVIL_ATTENTION_DIM_D] = d;
    double product = cuvil_reference_load(job, CUVIL_ATTENTION_Q, at) *
                     cuvil_reference_load(job, CUVIL_ATTENTION_K, at);
    sum += product;
    magnitude += fabs(product);
  }
  *out = cuvil_checked_mul(
      cuvil_checked_sum(sum, magnitude, (double)depth, p->tf32),
      cuvil_checked_make(p->scale, 0));
  if (p->mask >= 0 && !p->mask_keep)
    *out = cuvil_checked_add(*out, cuvil_checked_make(mask, 0));
  return true;
}

/* Scores become weights; what is excluded has the error -1. */
static void weigh(const struct rows *rows, int64_t *at,
                  struct cuvil_checked *weights) {
  double largest = -(double)INFINITY;
  for (int64_t j = 0; j < rows->length; j++) {
    at[CUVIL_ATTENTION_DIM_SKV] = j;
    if (score(rows->job, at, &weights[j]))
      largest = cuvil_plain_max(largest, weights[j].value);
    else
      weights[j].error = -1;
  }
  for (int64_t j = 0; j < rows->length; j++)
    if (weights[j].error >= 0)
      weights[j] = cuvil_checked_weight(weights[j], largest);
}

static void attention_row(void *user, int worker, int64_t row) {
  const struct rows *rows = user;
  const struct cuvil_problem *p = rows->job->problem;
  const struct cuvil_dim *dims = p->dims;
  struct cuvil_checked *weights = rows->memory + worker * rows->length;
  int64_t heads = dims[CUVIL_ATTENTION_DIM_HQ].extent;
  int64_t queries = dims[CUVIL_ATTENTION_DIM_SQ].extent;
  int64_t at[CUVIL_MAX_DIMS] = {0};
  at[CUVIL_ATTENTION_DIM_SQ] = row % queries;
  at[CUVIL_ATTENTION_DIM_HQ] = row / queries % heads;
  at[CUVIL_ATTENTION_DIM_B] = row / queries / heads;
  at[CUVIL_ATTENTION_DIM_HKV] = at[CUVIL_ATTENTION_DIM_HQ] /
                                (heads / dims[CUVIL_ATTENTION_DIM_HKV].extent);
  weigh(rows, at, weights);
  for (int64_t dv = 0; dv < dims[CUVIL_ATTENTION_DIM_DV].extent; dv++) {
    struct cuvil_checked_attention sum = cuvil_checked_attention_begin();
    at[CUVIL_ATTENTION_DIM_DV] = dv;
    for (int64_t j = 0; j < rows->length; j++) {
      at[CUVIL_ATTENTION_DIM_SKV] = j;
      if (weights[j].error >= 0)
        cuvil_checked_attention_add(
            &sum, weights[j],
            cuvil_reference_load(rows->job, CUVIL_ATTENTION_V, at));
    }
    cuvil_reference_store(
        rows->job, at,
        cuvil_checked_attention_value(
            &sum, (int)p->operands[CUVIL_ATTENTION_Q].dtype, p->tf32));
  }
}

enum cuvil_status cuvil_reference_attention(
    const struct cuvil_reference_job *job) {
  const struct cuvil_dim *dims = job->problem->dims;
  return run_rows(job,
                  dims[CUVIL_ATTENTION_DIM_B].extent *
                      dims[CUVIL_ATTENTION_DIM_HQ].extent *
                      dims[CUVIL_ATTENTION_DIM_SQ].extent,
                  dims[CUVIL_ATTENTION_DIM_SKV].extent, attention_row);
}
