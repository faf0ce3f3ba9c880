/* expression.h - the pieces of common/expression.c that expression_vector.c
 * builds on: places, offsets, reads and statements as text. */
#ifndef CUVIL_KERNELS_COMMON_EXPRESSION_H_
#define CUVIL_KERNELS_COMMON_EXPRESSION_H_

#include "kernels/family.h"

/* `plus`: added to the coordinate of dimension `plus_dim` ("" and -1: none). */
struct cuvil_place {
  const struct cuvil_emit_names *names;
  const char *plus;
  int plus_dim;
};

/* One of a problem's programs: its epilogue, or the prologue of a norm. */
struct cuvil_emit_program {
  const struct cuvil_problem *problem;
  const struct cuvil_expr *expr;
  int first_constant; /* number of its first constant among the sk<number> */
};
struct cuvil_emit_program cuvil_emit_program_epilogue(
    const struct cuvil_problem *problem);
struct cuvil_emit_program cuvil_emit_program_prologue(
    const struct cuvil_problem *problem);
/* Does a statement read this operand? */
bool cuvil_emit_program_reads(const struct cuvil_emit_program *program,
                              int operand);
/* Is the operand an extra output that a statement assigns? */
bool cuvil_emit_program_writes(const struct cuvil_emit_program *program,
                               int operand);

/* i64 expression of the operand's element offset. */
void cuvil_emit_offset(const struct cuvil_problem *problem, int operand,
                       const struct cuvil_place *at, struct cuvil_buf *out);
/* "i_c < sl_x_1 && ..." for an operand's limits; false when it has none. */
bool cuvil_emit_limits(const struct cuvil_problem *problem, int operand,
                       const struct cuvil_place *at, struct cuvil_buf *out);
/* value_t expression of the element. */
void cuvil_emit_read(const struct cuvil_problem *problem, int operand,
                     const struct cuvil_place *at, struct cuvil_buf *out);

/* How statements name things. */
struct cuvil_emit_style {
  const char *acc;
  const char *indent;
  const char *side;  /* before r_<name>: "" or "s." */
  const bool *array; /* by operand: r_<name>[j]; NULL: none */
  /* Prints the store of an extra output after its statement. */
  void (*store)(const struct cuvil_problem *problem, int operand, int statement,
                const void *user, struct cuvil_buf *out);
  const void *user;
};
void cuvil_emit_statements(const struct cuvil_emit_program *program,
                           const struct cuvil_emit_style *style,
                           struct cuvil_buf *out);
/* Text of the last statement's value; acc when there is none. */
void cuvil_emit_result(const struct cuvil_emit_program *program,
                       const char *acc, struct cuvil_buf *out);
/* ", int i_m, int i_n": dimensions of the main output in the order of
 * problem->dims; without types ", i_m, i_n". */
void cuvil_emit_coordinates(const struct cuvil_problem *problem, bool types,
                            struct cuvil_buf *out);

/* ---- expression_vector.c
 * <name>_sides, <name>_apply and <name>_vector of kernels/family.h. */
void cuvil_emit_vector(const struct cuvil_emit_program *program,
                       const struct cuvil_emit_names *names, const char *name,
                       struct cuvil_buf *out);

#endif /* CUVIL_KERNELS_COMMON_EXPRESSION_H_ */
