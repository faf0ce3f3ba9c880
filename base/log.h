/* log.h - what a command says on stderr.
 *
 * Results go to stdout and are printed by the commands themselves; everything
 * else comes through here.  Progress is drawn only when stderr is a terminal
 * and is erased before any other line.
 */
#ifndef CUVIL_BASE_LOG_H_
#define CUVIL_BASE_LOG_H_

#include <stdbool.h>

enum cuvil_log_level {
  CUVIL_LOG_QUIET = 0,  /* errors only */
  CUVIL_LOG_NORMAL = 1, /* warnings and what a user wants to know */
  CUVIL_LOG_VERBOSE = 2,
  CUVIL_LOG_DEBUG = 3
};

/* `program` is borrowed (argv[0]'s last part), put before every line. */
void cuvil_log_setup(const char *program, enum cuvil_log_level level);
enum cuvil_log_level cuvil_log_level(void);
void cuvil_log_info(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void cuvil_log_verbose(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void cuvil_log_warning(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* One line, redrawn in place; "" erases.  Nothing when not a terminal. */
void cuvil_log_progress(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* The last line of a failed command:
 * "cuvil-X: error: CU_ERR_NAME (0xNN): what, where, what to do". */
void cuvil_log_failure(void);
bool cuvil_log_use_colour(int fd); /* a terminal, and NO_COLOR not set */

#endif /* CUVIL_BASE_LOG_H_ */
