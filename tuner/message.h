/* message.h - how parent and children talk: JSON values over a socket pair,
 * each with its length (4 bytes, this machine's order) in front.
 *
 * Both ends are the same program on the same machine, so there is no version.
 * A length over CUVIL_MESSAGE_LIMIT, or bytes that are not JSON, are a broken
 * peer: CU_ERR_IO.
 */
#ifndef CUVIL_TUNER_MESSAGE_H_
#define CUVIL_TUNER_MESSAGE_H_

#include "base/json.h"

#define CUVIL_MESSAGE_LIMIT (64u << 20)

/* Blocks until all is written; a closed peer is CU_ERR_IO, not a signal. */
CUVIL_MUST_USE enum cuvil_status cuvil_message_send(int fd,
                                                    const json_t *message);
/* Blocks; *out is NULL when the peer closed between messages. */
CUVIL_MUST_USE enum cuvil_status cuvil_message_receive(int fd, json_t **out);

/* A JSON string of any bytes: what is not UTF-8 (a compiler's log cut short)
 * becomes '?'. */
json_t *cuvil_message_text(const char *text);

/* What came in so far, for a reader that must not block. */
struct cuvil_inbox {
  struct cuvil_buf bytes;
};
/* Reads what is there; *out_closed: the peer is gone. */
CUVIL_MUST_USE enum cuvil_status cuvil_inbox_fill(struct cuvil_inbox *inbox,
                                                  int fd, bool *out_closed);
/* The next whole message (caller's reference), NULL when there is none yet. */
CUVIL_MUST_USE enum cuvil_status cuvil_inbox_next(struct cuvil_inbox *inbox,
                                                  json_t **out);
void cuvil_inbox_free(struct cuvil_inbox *inbox);

#endif /* CUVIL_TUNER_MESSAGE_H_ */
