/* log.c - lines on stderr, and a progress line that never mixes with them. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/status.h"

static const char *program_name = "cuvil";
static enum cuvil_log_level current = CUVIL_LOG_NORMAL;
static bool progress_shown;

void cuvil_log_setup(const char *program, enum cuvil_log_level level) {
  program_name = program;
  current = level;
}

enum cuvil_log_level cuvil_log_level(void) {
  return current;
}

static void erase_progress(void) {
  if (!progress_shown) return;
  fputs("\r\033[K", stderr);
  progress_shown = false;
}

static void line(const char *kind, const char *format, va_list args) {
  erase_progress();
  fprintf(stderr, "%s: %s", program_name, kind);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
}

void cuvil_log_info(const char *format, ...) {
  if (current < CUVIL_LOG_NORMAL) return;
  va_list args;
  va_start(args, format);
  line("", format, args);
  va_end(args);
}

void cuvil_log_verbose(const char *format, ...) {
  if (current < CUVIL_LOG_VERBOSE) return;
  va_list args;
  va_start(args, format);
  line("", format, args);
  va_end(args);
}

void cuvil_log_warning(const char *format, ...) {
  if (current < CUVIL_LOG_NORMAL) return;
  va_list args;
  va_start(args, format);
  line("warning: ", format, args);
  va_end(args);
}

void cuvil_log_progress(const char *format, ...) {
  if (current < CUVIL_LOG_NORMAL || !isatty(STDERR_FILENO)) return;
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  erase_progress();
  if (!text[0]) return;
  /* A wrapped line could not be erased. */
  struct winsize size;
  int width = 79;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    width = size.ws_col - 1;
  fprintf(stderr, "%.*s", width, text);
  fflush(stderr);
  progress_shown = true;
}

void cuvil_log_failure(void) {
  erase_progress();
  const struct cuvil_error_record *record = cuvil_error_last();
  if (current >= CUVIL_LOG_DEBUG)
    fprintf(stderr, "%s: at %s:%d\n", program_name, record->file, record->line);
  /* One line, whatever a file's name or a compiler's log may hold. */
  char text[sizeof record->message];
  size_t n = 0;
  for (const char *p = record->message; *p && n + 1 < sizeof text; p++)
    text[n++] = (unsigned char)*p < ' ' || *p == 0x7f ? ' ' : *p;
  text[n] = '\0';
  fprintf(stderr, "%s: error: %s (0x%02X): %s\n", program_name,
          cuvil_status_name(record->status), (unsigned)record->status, text);
}

bool cuvil_log_use_colour(int fd) {
  const char *no = getenv("NO_COLOR");
  return (!no || !no[0]) && isatty(fd);
}
