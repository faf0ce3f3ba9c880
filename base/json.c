/* json.c - jansson's failures as our statuses, with the place named. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum cuvil_status cuvil_json_parse(const char *text, size_t size,
                                   const char *origin, json_t **out) {
  json_error_t error;
  *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  if (!*out)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s:%d:%d: %s", origin, error.line,
                      error.column, error.text);
  return CUVIL_OK;
}

enum cuvil_status cuvil_json_read(const char *path, json_t **out) {
  *out = NULL;
  struct cuvil_buf text;
  CUVIL_TRY(cuvil_file_read(path, &text));
  enum cuvil_status status =
      cuvil_json_parse(cuvil_buf_text(&text), text.size, path, out);
  cuvil_buf_free(&text);
  return status;
}

static int append(const char *bytes, size_t size, void *user) {
  struct cuvil_buf *buf = user;
  cuvil_buf_add(buf, bytes, size);
  return buf->failed ? -1 : 0;
}

enum cuvil_status cuvil_json_print(const json_t *value, struct cuvil_buf *out) {
  if (json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY) !=
      0) {
    CUVIL_TRY(cuvil_buf_status(out));
    return CUVIL_FAIL(CU_ERR_INTERNAL, "a value cannot be written as JSON");
  }
  return CUVIL_OK;
}

static enum cuvil_status member(const json_t *object, const char *key,
                                const char *origin, const char *what, int right,
                                const json_t *value) {
  if (!json_is_object(object))
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: an object with \"%s\" was expected",
                      origin, key);
  if (!value)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" is missing", origin, key);
  if (!right)
    return CUVIL_FAIL(CU_ERR_PARSE, "%s: \"%s\" must be %s", origin, key, what);
  return CUVIL_OK;
}

enum cuvil_status cuvil_json_get_string(const json_t *object, const char *key,
                                        const char *origin, const char **out) {
  *out = NULL;
  const json_t *value = json_object_get(object, key);
  CUVIL_TRY(
      member(object, key, origin, "a string", json_is_string(value), value));
  *out = json_string_value(value);
  return CUVIL_OK;
}

enum cuvil_status cuvil_json_get_int(const json_t *object, const char *key,
                                     const char *origin, int64_t *out) {
  *out = 0;
  const json_t *value = json_object_get(object, key);
  CUVIL_TRY(member(object, key, origin, "a whole number",
                   json_is_integer(value), value));
  *out = json_integer_value(value);
  return CUVIL_OK;
}

enum cuvil_status cuvil_json_get_number(const json_t *object, const char *key,
                                        const char *origin, double *out) {
  *out = 0;
  const json_t *value = json_object_get(object, key);
  CUVIL_TRY(
      member(object, key, origin, "a number", json_is_number(value), value));
  *out = json_number_value(value);
  return CUVIL_OK;
}

enum cuvil_status cuvil_json_get_array(const json_t *object, const char *key,
                                       const char *origin, const json_t **out) {
  *out = NULL;
  const json_t *value = json_object_get(object, key);
  CUVIL_TRY(
      member(object, key, origin, "an array", json_is_array(value), value));
  *out = value;
  return CUVIL_OK;
}
