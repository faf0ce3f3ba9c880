/* status.c - the one list of statuses as tables, and the thread's record.
 *
 * The record is thread-local, not allocated: an out-of-memory failure must be
 * reportable, and a library's user asks for the message on the thread that saw
 * the failure.  Messages are composed in a second buffer first, because
 * callers quote the old message inside the new one.
 */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

static _Thread_local struct cuvil_error_record last_error;

const char *cuvil_status_name(enum cuvil_status status) {
  switch (status) {
#define NAME(name, number, meaning, remedy) \
  case name:                                \
    return #name;
    CUVIL_STATUS_LIST(NAME)
#undef NAME
  }
  return "CU_ERR_UNKNOWN";
}

const char *cuvil_status_meaning(enum cuvil_status status) {
  switch (status) {
#define MEANING(name, number, meaning, remedy) \
  case name:                                   \
    return meaning;
    CUVIL_STATUS_LIST(MEANING)
#undef MEANING
  }
  return "unknown status";
}

const char *cuvil_status_remedy(enum cuvil_status status) {
  switch (status) {
#define REMEDY(name, number, meaning, remedy) \
  case name:                                  \
    return remedy;
    CUVIL_STATUS_LIST(REMEDY)
#undef REMEDY
  }
  return "";
}

const char *cuvil_last_error(void) {
  return last_error.message;
}

const struct cuvil_error_record *cuvil_error_last(void) {
  return &last_error;
}

enum cuvil_status cuvil_fail_at(const char *file, int line,
                                enum cuvil_status status, const char *format,
                                ...) {
  char message[sizeof last_error.message];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  last_error.status = status;
  last_error.file = file;
  last_error.line = line;
  memcpy(last_error.message, message, sizeof message);
  return status;
}
