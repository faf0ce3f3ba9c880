/* internal.h - what the files of problem/ share and nobody else needs. */
#ifndef CUVIL_PROBLEM_INTERNAL_H_
#define CUVIL_PROBLEM_INTERNAL_H_

#include "problem/problem.h"
#include "problem/reference.h"

#define CUVIL_MAX_EXTENT INT64_C(0x7fffffff)  /* extents are i32 arguments */
#define CUVIL_MAX_ELEMENTS (INT64_C(1) << 46) /* of one operand's storage */
#define CUVIL_MAX_TEXT_ITEMS 48               /* key=value pairs of a text */
#define CUVIL_MAX_FIXED_OPERANDS 4            /* q k v o */
#define CUVIL_KIND_BIT(kind) (1u << (unsigned)(kind))

/* What a kind fixes. */
struct cuvil_kind_form {
  const char *name;
  const char *dims;     /* "m,n,k"; "" when the kind names its own */
  const char *derived;  /* appended to dims */
  const char *optional; /* may be appended, by text or hand; "": none */
  int operand_count;    /* inputs and the main output, which is last */
  const char *operands[CUVIL_MAX_FIXED_OPERANDS];
  /* those that each operand must have, in any order; NULL: free */
  const char *operand_dims[CUVIL_MAX_FIXED_OPERANDS];
  bool window, group;
  bool acc;         /* the epilogue may read acc */
  bool accumulates; /* in fp32, from floating inputs: acc=f32 in the text */
  bool contracts;   /* sums of products, where tf32 may be allowed */
  bool whole;       /* inputs and main output have no limits */
  bool bare;        /* neither epilogue nor extra outputs */
};
extern const struct cuvil_kind_form cuvil_kind_forms[CUVIL_KIND_COUNT];

/* Where things stand in a text, for messages: offsets from its start. */
struct cuvil_problem_places {
  int dims[CUVIL_MAX_DIMS];
  int operands[CUVIL_MAX_OPERANDS];
  int statements[CUVIL_MAX_STATEMENTS];
  int prologue[CUVIL_MAX_STATEMENTS];
  int stride, pad, dilation, over, group, math, scale, causal, eps, end;
};

/* finish, with columns in messages where `places` is not NULL. */
CUVIL_MUST_USE enum cuvil_status cuvil_problem_check(
    struct cuvil_problem *problem, const struct cuvil_problem_places *places);

const char *cuvil_pool_op_name(enum cuvil_pool_op op);     /* NULL: none */
const char *cuvil_reduce_op_name(enum cuvil_reduce_op op); /* NULL: none */
const char *cuvil_norm_op_name(enum cuvil_norm_op op);     /* NULL: none */
bool cuvil_norm_has_eps(enum cuvil_norm_op op);

/* Takes the next name of a list "a,b,c" into out; false at the end. */
bool cuvil_dims_next(const char **list, char out[CUVIL_NAME_SIZE]);
int cuvil_dims_count(const char *list);

/* [a-z][a-z0-9_]*, shorter than CUVIL_NAME_SIZE. */
bool cuvil_name_valid(const char *name);
/* Copies and zero-fills, so that problems compare with memcmp. */
void cuvil_name_copy(char out[CUVIL_NAME_SIZE], const char *name);

/* fp32 in decimal whatever the process's locale: the shortest text that reads
 * back as the same number; and the reading.  parse returns the end of the
 * number, NULL when there is none. */
#define CUVIL_NUMBER_SIZE 32
void cuvil_number_print(float value, char out[CUVIL_NUMBER_SIZE]);
const char *cuvil_number_parse(const char *text, float *out);

/* ---- references */
struct cuvil_reference_job {
  const struct cuvil_problem *problem;
  const void *const *operands;
  double *const *values;
  double *const *bounds;
  int threads; /* at least 1 */
};
/* Runs body(user, worker, i) for each i in [0, count) once, on at most
 * `threads` threads; worker < threads tells them apart. */
void cuvil_reference_parallel(int64_t count, int threads,
                              void (*body)(void *user, int worker, int64_t i),
                              void *user);
/* Runs body(job, coordinates) for every point of the main output, in threads.
 * coordinates: by dim index; dims that the output has not are 0. */
void cuvil_reference_each_point(
    const struct cuvil_reference_job *job,
    void (*body)(const struct cuvil_reference_job *job, int64_t *coordinates));
/* Element of an operand at the coordinates (by dim index) as fp32 holds it; 0
 * beyond a limit. */
double cuvil_reference_load(const struct cuvil_reference_job *job, int operand,
                            const int64_t *coordinates);
/* An index operand's element: negative ones count from the end of `extent`,
 * what is outside is clamped. */
int64_t cuvil_reference_index(const struct cuvil_reference_job *job,
                              int operand, const int64_t *coordinates,
                              int64_t extent);
/* A norm's prologue at one point, and its stores. */
struct cuvil_checked cuvil_reference_prologue(
    const struct cuvil_reference_job *job, const int64_t *coordinates);
/* The epilogue at one point of the main output, and its stores. */
void cuvil_reference_store(const struct cuvil_reference_job *job,
                           const int64_t *coordinates,
                           struct cuvil_checked acc);
CUVIL_MUST_USE enum cuvil_status cuvil_reference_contraction(
    const struct cuvil_reference_job *job);
void cuvil_reference_pool(const struct cuvil_reference_job *job);
void cuvil_reference_reduce(const struct cuvil_reference_job *job);
void cuvil_reference_pointwise(const struct cuvil_reference_job *job);
void cuvil_reference_gather(const struct cuvil_reference_job *job);
CUVIL_MUST_USE enum cuvil_status cuvil_reference_norm(
    const struct cuvil_reference_job *job);
CUVIL_MUST_USE enum cuvil_status cuvil_reference_attention(
    const struct cuvil_reference_job *job);

#endif /* CUVIL_PROBLEM_INTERNAL_H_ */
