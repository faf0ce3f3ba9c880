/* check.h - what the files of the rules share. */
#ifndef CUVIL_PROBLEM_CHECK_H_
#define CUVIL_PROBLEM_CHECK_H_

#include "problem/internal.h"

struct cuvil_check {
  struct cuvil_problem *problem;
  const struct cuvil_kind_form *form;
  const struct cuvil_problem_places *places; /* NULL: built by hand */
};

/* The place of member `m` in the text, or -1 where there is no text. */
#define CUVIL_CHECK_AT(c, m) ((c)->places ? (c)->places->m : -1)

/* The failure that the message says, at a place in the text or at none. */
enum cuvil_status cuvil_check_bad(int at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- check_epilogue.c: prologue and epilogue, and that every side input and
 * extra output has its place in them. */
CUVIL_MUST_USE enum cuvil_status cuvil_check_expressions(
    const struct cuvil_check *c);

#endif /* CUVIL_PROBLEM_CHECK_H_ */
