/* status.h - how a failure travels.
 *
 * A function that can fail returns a must-use `enum cuvil_status`.  Where the
 * failure is found, CUVIL_FAIL writes one record (status, file, line, message)
 * into a thread-local slot, with no allocation, and returns the status; every
 * caller between there and the one that reports it just passes it on with
 * CUVIL_TRY.  The message is one line: what, where, what to do.
 */
#ifndef CUVIL_BASE_STATUS_H_
#define CUVIL_BASE_STATUS_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuvil.h"

struct cuvil_error_record {
  enum cuvil_status status;
  const char *file; /* static: __FILE__ of the place that failed */
  int line;
  char message[2048];
};

/* This thread's last failure; never NULL. */
const struct cuvil_error_record *cuvil_error_last(void);

/* Records and returns `status`.  The format may use the previous message
 * (cuvil_error_last()->message) as an argument, to put context before it. */
enum cuvil_status cuvil_fail_at(const char *file, int line,
                                enum cuvil_status status, const char *format,
                                ...) __attribute__((format(printf, 4, 5)));

#define CUVIL_FAIL(status, ...) \
  cuvil_fail_at(__FILE__, __LINE__, (status), __VA_ARGS__)

/* Returns from the enclosing function when `expression` fails. */
#define CUVIL_TRY(expression)                                    \
  do {                                                           \
    enum cuvil_status cuvil_try_status_ = (expression);          \
    if (cuvil_try_status_ != CUVIL_OK) return cuvil_try_status_; \
  } while (0)

/* Goes to `fail` with `status` set; for functions that own something.  The
 * function declares `enum cuvil_status status = CUVIL_OK;` and a label. */
#define CUVIL_TRY_GOTO(expression)     \
  do {                                 \
    status = (expression);             \
    if (status != CUVIL_OK) goto fail; \
  } while (0)

/* An explicit "this failure does not matter here"; say why beside it. */
#define CUVIL_IGNORE(expression)                     \
  do {                                               \
    enum cuvil_status cuvil_ignored_ = (expression); \
    (void)cuvil_ignored_;                            \
  } while (0)

/* Fails with CU_ERR_INTERNAL when an invariant of our own is broken. */
#define CUVIL_CHECK(condition)                                            \
  do {                                                                    \
    if (!(condition))                                                     \
      return CUVIL_FAIL(CU_ERR_INTERNAL, "check failed: %s", #condition); \
  } while (0)

#endif /* CUVIL_BASE_STATUS_H_ */
