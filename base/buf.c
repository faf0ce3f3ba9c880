/* buf.c - growing strings and the few file operations every room shares.
 *
 * Files are written beside their target and renamed, and the folder is not
 * trusted to exist: losing a user's old file to a half-written new one is the
 * one thing that these must never do.
 */
#include "base/buf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void cuvil_buf_free(struct cuvil_buf *buf) {
  free(buf->data);
  memset(buf, 0, sizeof *buf);
}

void cuvil_buf_clear(struct cuvil_buf *buf) {
  buf->size = 0;
  if (buf->data) buf->data[0] = 0;
}

static bool reserve(struct cuvil_buf *buf, size_t more) {
  if (buf->failed) return false;
  size_t need;
  if (__builtin_add_overflow(buf->size, more, &need) ||
      __builtin_add_overflow(need, 1, &need)) {
    buf->failed = true;
    return false;
  }
  if (need <= buf->capacity) return true;
  size_t capacity = buf->capacity ? buf->capacity : 64;
  while (capacity < need) {
    capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
  }
  char *data = realloc(buf->data, capacity);
  if (!data) {
    buf->failed = true;
    return false;
  }
  buf->data = data;
  buf->capacity = capacity;
  return true;
}

void cuvil_buf_add(struct cuvil_buf *buf, const void *bytes, size_t size) {
  if (!reserve(buf, size)) return;
  if (size) memcpy(buf->data + buf->size, bytes, size);
  buf->size += size;
  buf->data[buf->size] = 0;
}

void cuvil_buf_puts(struct cuvil_buf *buf, const char *text) {
  cuvil_buf_add(buf, text, strlen(text));
}

void cuvil_buf_printf(struct cuvil_buf *buf, const char *format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (length >= 0 && reserve(buf, (size_t)length)) {
    vsnprintf(buf->data + buf->size, (size_t)length + 1, format, again);
    buf->size += (size_t)length;
  } else {
    buf->failed = true;
  }
  va_end(again);
}

enum cuvil_status cuvil_buf_status(const struct cuvil_buf *buf) {
  if (buf->failed) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "out of memory");
  return CUVIL_OK;
}

const char *cuvil_buf_text(const struct cuvil_buf *buf) {
  return buf->data ? buf->data : "";
}

char *cuvil_buf_take(struct cuvil_buf *buf) {
  char *data = buf->data ? buf->data : calloc(1, 1);
  memset(buf, 0, sizeof *buf);
  return data;
}

enum cuvil_status cuvil_file_read(const char *path, struct cuvil_buf *out) {
  memset(out, 0, sizeof *out);
  FILE *file = fopen(path, "rbe");
  if (!file) return CUVIL_FAIL(CU_ERR_IO, "%s: %s", path, strerror(errno));
  enum cuvil_status status = CUVIL_OK;
  char chunk[65536];
  size_t got;
  while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
    cuvil_buf_add(out, chunk, got);
  if (ferror(file))
    status =
        CUVIL_FAIL(CU_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
  else
    status = cuvil_buf_status(out);
  fclose(file);
  if (status != CUVIL_OK) cuvil_buf_free(out);
  return status;
}

static bool write_all(int fd, const struct cuvil_file_part *parts, int count) {
  for (int i = 0; i < count; i++) {
    const char *from = parts[i].bytes;
    size_t left = parts[i].size;
    while (left > 0) {
      ssize_t n = write(fd, from, left < 1 << 30 ? left : 1 << 30);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      from += n;
      left -= (size_t)n;
    }
  }
  return true;
}

/* Returns 0 or an errno. */
static int replace_file(const char *path, const struct cuvil_file_part *parts,
                        int count) {
  struct cuvil_buf name = {0};
  cuvil_buf_printf(&name, "%s.XXXXXX", path);
  if (name.failed) return ENOMEM;
  /* mkstemp makes files private; these are ordinary results. */
  mode_t mask = umask(0);
  umask(mask);
  int error = 0;
  int fd = mkostemp(name.data, O_CLOEXEC);
  if (fd < 0 || !write_all(fd, parts, count) || fchmod(fd, 0666 & ~mask) != 0 ||
      fsync(fd) != 0)
    error = errno;
  if (fd >= 0 && close(fd) != 0 && !error) error = errno;
  if (!error && rename(name.data, path) != 0) error = errno;
  if (error && fd >= 0) unlink(name.data);
  cuvil_buf_free(&name);
  return error;
}

/* A device, a pipe: renaming over /dev/null would take it from everybody. */
static int write_in_place(const char *path, const struct cuvil_file_part *parts,
                          int count) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = write_all(fd, parts, count) ? 0 : errno;
  if (close(fd) != 0 && !error) error = errno;
  return error;
}

enum cuvil_status cuvil_file_write_parts(const char *path,
                                         const struct cuvil_file_part *parts,
                                         int count) {
  struct stat there;
  int error;
  if (path[0] == '\0')
    return CUVIL_FAIL(CU_ERR_IO, "the name of a file to write is empty");
  if (stat(path, &there) != 0 || S_ISDIR(there.st_mode)) {
    error = replace_file(path, parts, count);
  } else if (!S_ISREG(there.st_mode)) {
    error = write_in_place(path, parts, count);
  } else {
    /* What a link leads to is replaced, not the link. */
    char *target = realpath(path, NULL);
    error = target ? replace_file(target, parts, count) : errno;
    free(target);
  }
  if (!error) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_IO, "%s: cannot write: %s", path, strerror(error));
}

enum cuvil_status cuvil_file_write_atomic(const char *path, const void *bytes,
                                          size_t size) {
  struct cuvil_file_part part = {bytes, size};
  return cuvil_file_write_parts(path, &part, 1);
}

enum cuvil_status cuvil_make_dirs(const char *path) {
  char *copy = strdup(path);
  if (!copy) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "out of memory");
  enum cuvil_status status = CUVIL_OK;
  for (char *p = copy + 1;; p++) {
    if (*p != '/' && *p != 0) continue;
    char kept = *p;
    *p = 0;
    struct stat info;
    if (mkdir(copy, 0777) != 0 &&
        (errno != EEXIST || stat(copy, &info) != 0 || !S_ISDIR(info.st_mode))) {
      status = CUVIL_FAIL(CU_ERR_IO, "%s: cannot make this folder: %s", copy,
                          strerror(errno == EEXIST ? ENOTDIR : errno));
      break;
    }
    *p = kept;
    if (!kept) break;
  }
  free(copy);
  return status;
}

enum cuvil_status cuvil_parse_duration(const char *text, double *out_seconds) {
  *out_seconds = 0;
  char *end;
  double value = isdigit((unsigned char)text[0]) || text[0] == '.'
                     ? strtod(text, &end)
                     : -1;
  double unit = -1;
  if (value >= 0) {
    if (*end == 0 || strcmp(end, "s") == 0) unit = 1;
    if (strcmp(end, "us") == 0) unit = 1e-6;
    if (strcmp(end, "ms") == 0) unit = 1e-3;
    if (strcmp(end, "m") == 0) unit = 60;
    if (strcmp(end, "h") == 0) unit = 3600;
  }
  if (unit < 0 || value > 1e9)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "'%s' is not a duration; write 500ms, 30s or 5m", text);
  *out_seconds = value * unit;
  return CUVIL_OK;
}

enum cuvil_status cuvil_parse_size(const char *text, uint64_t *out_bytes) {
  *out_bytes = 0;
  char *end = NULL;
  errno = 0;
  unsigned long long value =
      isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
  int shift = -1;
  if (end && errno == 0) {
    if (*end == 0 || strcmp(end, "B") == 0) shift = 0;
    if (strcmp(end, "K") == 0) shift = 10;
    if (strcmp(end, "M") == 0) shift = 20;
    if (strcmp(end, "G") == 0) shift = 30;
  }
  if (shift < 0 || value > (UINT64_MAX >> shift))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "'%s' is not a size; write 64K, 16M or 1G", text);
  *out_bytes = (uint64_t)value << shift;
  return CUVIL_OK;
}
