/* message.c - framed JSON over a socket pair.
 *
 * The parent reads many children without blocking (an inbox for each); a child
 * reads one parent and may block.  Writing always blocks: a request is small
 * and a child that answers has read it.
 */
#include "tuner/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum cuvil_status send_all(int fd, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return CUVIL_FAIL(CU_ERR_IO, "writing to another process: %s",
                        n < 0 ? strerror(errno) : "nothing written");
    bytes += n;
    size -= (size_t)n;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_message_send(int fd, const json_t *message) {
  struct cuvil_buf text = {0};
  uint32_t size = 0;
  enum cuvil_status status = CUVIL_OK;
  cuvil_buf_add(&text, &size, sizeof size);
  CUVIL_TRY_GOTO(cuvil_json_print(message, &text));
  CUVIL_TRY_GOTO(cuvil_buf_status(&text));
  if (text.size - sizeof size > CUVIL_MESSAGE_LIMIT) {
    status = CUVIL_FAIL(CU_ERR_IO, "a message of %zu bytes is too long",
                        text.size - sizeof size);
    goto fail;
  }
  size = (uint32_t)(text.size - sizeof size);
  memcpy(text.data, &size, sizeof size);
  CUVIL_TRY_GOTO(send_all(fd, text.data, text.size));
fail:
  cuvil_buf_free(&text);
  return status;
}

/* *out_closed: the peer closed before the first byte. */
static enum cuvil_status receive_all(int fd, char *bytes, size_t size,
                                     bool *out_closed) {
  size_t got = 0;
  if (out_closed) *out_closed = false;
  while (got < size) {
    ssize_t n = recv(fd, bytes + got, size - got, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 && got == 0 && out_closed) {
      *out_closed = true;
      return CUVIL_OK;
    }
    if (n <= 0)
      return CUVIL_FAIL(CU_ERR_IO, "reading from another process: %s",
                        n < 0 ? strerror(errno) : "it ended in a message");
    got += (size_t)n;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_message_receive(int fd, json_t **out) {
  uint32_t size = 0;
  bool closed = false;
  *out = NULL;
  CUVIL_TRY(receive_all(fd, (char *)&size, sizeof size, &closed));
  if (closed) return CUVIL_OK;
  if (size > CUVIL_MESSAGE_LIMIT)
    return CUVIL_FAIL(CU_ERR_IO, "a message claims %u bytes", size);
  char *text = malloc((size_t)size + 1);
  if (!text) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a message");
  enum cuvil_status status = receive_all(fd, text, size, NULL);
  if (status == CUVIL_OK)
    status = cuvil_json_parse(text, size, "a message", out);
  free(text);
  return status;
}

json_t *cuvil_message_text(const char *text) {
  json_t *string = json_string(text);
  if (string) return string;
  char *plain = strdup(text);
  if (!plain) return NULL;
  for (char *p = plain; *p; p++)
    if ((unsigned char)*p >= 0x80) *p = '?';
  string = json_string(plain);
  free(plain);
  return string;
}

enum cuvil_status cuvil_inbox_fill(struct cuvil_inbox *inbox, int fd,
                                   bool *out_closed) {
  char chunk[16384];
  *out_closed = false;
  for (;;) {
    ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) { /* closed, or reset because the child was killed */
      *out_closed = true;
      break;
    }
    cuvil_buf_add(&inbox->bytes, chunk, (size_t)n);
  }
  return cuvil_buf_status(&inbox->bytes);
}

enum cuvil_status cuvil_inbox_next(struct cuvil_inbox *inbox, json_t **out) {
  uint32_t size = 0;
  *out = NULL;
  if (inbox->bytes.size < sizeof size) return CUVIL_OK;
  memcpy(&size, inbox->bytes.data, sizeof size);
  if (size > CUVIL_MESSAGE_LIMIT)
    return CUVIL_FAIL(CU_ERR_IO, "a message claims %u bytes", size);
  size_t whole = sizeof size + size;
  if (inbox->bytes.size < whole) return CUVIL_OK;
  enum cuvil_status status = cuvil_json_parse(inbox->bytes.data + sizeof size,
                                              size, "a child's message", out);
  if (status != CUVIL_OK)
    return CUVIL_FAIL(CU_ERR_IO, "a child sent what is not JSON");
  memmove(inbox->bytes.data, inbox->bytes.data + whole,
          inbox->bytes.size - whole);
  inbox->bytes.size -= whole;
  return CUVIL_OK;
}

void cuvil_inbox_free(struct cuvil_inbox *inbox) {
  cuvil_buf_free(&inbox->bytes);
}
