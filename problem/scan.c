/* scan.c - the tokens of a problem's text, and messages that name columns. */
#include <string.h>

#include "problem/parse.h"

bool cuvil_scan_is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool cuvil_scan_is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

void cuvil_scan_skip(struct cuvil_parser *p) {
  while (cuvil_scan_is_space(*p->at))
    p->at++;
}

int cuvil_scan_offset(const struct cuvil_parser *p, const char *at) {
  return (int)(at - p->text);
}

enum cuvil_status cuvil_scan_wrong(const struct cuvil_parser *p, const char *at,
                                   const char *what) {
  return CUVIL_FAIL(CU_ERR_PARSE, "problem text, column %d: %s",
                    cuvil_scan_offset(p, at) + 1, what);
}

enum cuvil_status cuvil_scan_expected(const struct cuvil_parser *p,
                                      const char *what) {
  const char *at = p->at;
  if (*at == 0)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "problem text, column %d: expected %s, found the end",
                      cuvil_scan_offset(p, at) + 1, what);
  int size = 1;
  while (cuvil_scan_is_name(*at) && cuvil_scan_is_name(at[size]) && size < 24)
    size++;
  return CUVIL_FAIL(CU_ERR_PARSE,
                    "problem text, column %d: expected %s, found '%.*s'",
                    cuvil_scan_offset(p, at) + 1, what, size, at);
}

bool cuvil_scan_accept(struct cuvil_parser *p, char c) {
  cuvil_scan_skip(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

enum cuvil_status cuvil_scan_require(struct cuvil_parser *p, char c,
                                     const char *what) {
  return cuvil_scan_accept(p, c) ? CUVIL_OK : cuvil_scan_expected(p, what);
}

enum cuvil_status cuvil_scan_name(struct cuvil_parser *p, const char *what,
                                  char out[CUVIL_NAME_SIZE]) {
  cuvil_scan_skip(p);
  memset(out, 0, CUVIL_NAME_SIZE);
  if (*p->at < 'a' || *p->at > 'z') return cuvil_scan_expected(p, what);
  size_t size = 0;
  while (cuvil_scan_is_name(p->at[size]))
    size++;
  if (size >= CUVIL_NAME_SIZE)
    return cuvil_scan_wrong(p, p->at, "a name has at most 15 characters");
  memcpy(out, p->at, size);
  p->at += size;
  return CUVIL_OK;
}

enum cuvil_status cuvil_scan_integer(struct cuvil_parser *p, const char *what,
                                     int64_t *out) {
  cuvil_scan_skip(p);
  *out = 0;
  bool negative = *p->at == '-';
  const char *digits = p->at + negative;
  if (*digits < '0' || *digits > '9') return cuvil_scan_expected(p, what);
  int64_t value = 0;
  for (; *digits >= '0' && *digits <= '9'; digits++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *digits - '0', &value))
      return cuvil_scan_wrong(p, p->at, "the number is too large");
  p->at = digits;
  *out = negative ? -value : value;
  return CUVIL_OK;
}
