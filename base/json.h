/* json.h - the few jansson helpers that every room needs.
 *
 * All JSON in Cuvil goes through jansson; these only turn its failures into
 * our statuses with the place named.
 */
#ifndef CUVIL_BASE_JSON_H_
#define CUVIL_BASE_JSON_H_

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"

/* Parses `size` bytes; `origin` names the text in messages.  *out is owned by
 * the caller (json_decref). */
CUVIL_MUST_USE enum cuvil_status cuvil_json_parse(const char *text, size_t size,
                                                  const char *origin,
                                                  json_t **out);
CUVIL_MUST_USE enum cuvil_status cuvil_json_read(const char *path,
                                                 json_t **out);
/* Compact, keys in insertion order. */
CUVIL_MUST_USE enum cuvil_status cuvil_json_print(const json_t *value,
                                                  struct cuvil_buf *out);
/* Members of an object; CU_ERR_PARSE names `origin` and the key.  Strings are
 * borrowed from the object. */
CUVIL_MUST_USE enum cuvil_status cuvil_json_get_string(const json_t *object,
                                                       const char *key,
                                                       const char *origin,
                                                       const char **out);
CUVIL_MUST_USE enum cuvil_status cuvil_json_get_int(const json_t *object,
                                                    const char *key,
                                                    const char *origin,
                                                    int64_t *out);
CUVIL_MUST_USE enum cuvil_status cuvil_json_get_number(const json_t *object,
                                                       const char *key,
                                                       const char *origin,
                                                       double *out);
CUVIL_MUST_USE enum cuvil_status cuvil_json_get_array(const json_t *object,
                                                      const char *key,
                                                      const char *origin,
                                                      const json_t **out);

#endif /* CUVIL_BASE_JSON_H_ */
