/* buf.h - a growing byte string, and small string helpers.
 *
 * A buf is always NUL-terminated once something was put in.  Appending cannot
 * be refused half-way: when memory runs out the buf turns `failed` and stays
 * so, and the caller checks once at the end (cuvil_buf_status).
 */
#ifndef CUVIL_BASE_BUF_H_
#define CUVIL_BASE_BUF_H_

#include "base/status.h"

struct cuvil_buf {
  char *data;  /* owned; NULL while empty */
  size_t size; /* bytes used, without the terminating NUL */
  size_t capacity;
  bool failed;
};

void cuvil_buf_free(struct cuvil_buf *buf);
void cuvil_buf_clear(struct cuvil_buf *buf); /* keeps the memory */
void cuvil_buf_add(struct cuvil_buf *buf, const void *bytes, size_t size);
void cuvil_buf_puts(struct cuvil_buf *buf, const char *text);
void cuvil_buf_printf(struct cuvil_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* CUVIL_OK, or CU_ERR_OUT_OF_MEMORY when an append failed. */
CUVIL_MUST_USE enum cuvil_status cuvil_buf_status(const struct cuvil_buf *buf);
/* The text, never NULL ("" while empty); borrowed until the next append. */
const char *cuvil_buf_text(const struct cuvil_buf *buf);
/* The memory itself, now the caller's to free(); the buf is empty after. */
char *cuvil_buf_take(struct cuvil_buf *buf);

/* Reads a whole file; *out is freed by the caller with cuvil_buf_free. */
CUVIL_MUST_USE enum cuvil_status cuvil_file_read(const char *path,
                                                 struct cuvil_buf *out);
/* Writes beside the target and renames over it, so that a reader sees the old
 * file or the new one, never a half.  A link's target is replaced, not the
 * link; what is no file (a device, a pipe) is written as it is. */
CUVIL_MUST_USE enum cuvil_status cuvil_file_write_atomic(const char *path,
                                                         const void *bytes,
                                                         size_t size);
/* The same of a file whose parts lie apart. */
struct cuvil_file_part {
  const void *bytes;
  size_t size;
};
CUVIL_MUST_USE enum cuvil_status cuvil_file_write_parts(
    const char *path, const struct cuvil_file_part *parts, int count);
/* mkdir -p. */
CUVIL_MUST_USE enum cuvil_status cuvil_make_dirs(const char *path);

/* "500ms" "30s" "5m" "1h", a bare number is seconds. */
CUVIL_MUST_USE enum cuvil_status cuvil_parse_duration(const char *text,
                                                      double *out_seconds);
/* "64K" "16M" "1G" or bytes. */
CUVIL_MUST_USE enum cuvil_status cuvil_parse_size(const char *text,
                                                  uint64_t *out_bytes);

#endif /* CUVIL_BASE_BUF_H_ */
