/* parse.h - what the files of the parser share: the text being read, its
 * tokens, and the two parts that stand in files of their own. */
#ifndef CUVIL_PROBLEM_PARSE_H_
#define CUVIL_PROBLEM_PARSE_H_

#include "problem/internal.h"

enum cuvil_item_shape { ITEM_NUMBERS, ITEM_REAL, ITEM_WORD, ITEM_OPERAND };

struct cuvil_text_item {
  char key[CUVIL_NAME_SIZE];
  const char *at; /* the key */
  enum cuvil_item_shape shape;
  const char *value;
  int count;
  int64_t numbers[4];
  float real;
  char word[CUVIL_NAME_SIZE];
  bool used;
};

struct cuvil_parser {
  const char *text;
  const char *at;
  struct cuvil_problem *problem;
  const struct cuvil_kind_form *form;
  struct cuvil_problem_places places;
  int item_count;
  struct cuvil_text_item items[CUVIL_MAX_TEXT_ITEMS];
  const char *prologue, *epilogue; /* after "epi{"; NULL: none */
  const char *end;                 /* the text's terminating NUL */
};

/* Flags of an operand that only some may have. */
enum cuvil_flag {
  CUVIL_FLAG_OUT = 1,  /* :out */
  CUVIL_FLAG_ADD = 2,  /* :add */
  CUVIL_FLAG_KEEP = 4, /* :keep */
};

/* ---- scan.c: tokens at p->at, which goes past them */
bool cuvil_scan_is_space(char c);
bool cuvil_scan_is_name(char c);
void cuvil_scan_skip(struct cuvil_parser *p); /* white space */
int cuvil_scan_offset(const struct cuvil_parser *p, const char *at);
/* The failure that `what` says, at a place. */
enum cuvil_status cuvil_scan_wrong(const struct cuvil_parser *p, const char *at,
                                   const char *what);
/* "expected <what>, found <what stands at p->at>". */
enum cuvil_status cuvil_scan_expected(const struct cuvil_parser *p,
                                      const char *what);
bool cuvil_scan_accept(struct cuvil_parser *p, char c);
CUVIL_MUST_USE enum cuvil_status cuvil_scan_require(struct cuvil_parser *p,
                                                    char c, const char *what);
CUVIL_MUST_USE enum cuvil_status cuvil_scan_name(struct cuvil_parser *p,
                                                 const char *what,
                                                 char out[CUVIL_NAME_SIZE]);
CUVIL_MUST_USE enum cuvil_status cuvil_scan_integer(struct cuvil_parser *p,
                                                    const char *what,
                                                    int64_t *out);

/* ---- parse_operand.c: from '[': dimensions, limits, strides.  Flags: weight,
 * and those of enum cuvil_flag that are `allowed`. */
CUVIL_MUST_USE enum cuvil_status cuvil_parse_shape(
    struct cuvil_parser *p, struct cuvil_operand *operand, unsigned allowed,
    unsigned *out_flags);
/* All operands that stand among the items. */
CUVIL_MUST_USE enum cuvil_status cuvil_parse_operands(struct cuvil_parser *p);
/* ---- parse.c: the item of that key, numbers or not; NULL: none. */
struct cuvil_text_item *cuvil_parse_find(struct cuvil_parser *p,
                                         const char *key, bool numbers);
/* ---- parse_epilogue.c: the statements at p->prologue and p->epilogue. */
CUVIL_MUST_USE enum cuvil_status cuvil_parse_expressions(
    struct cuvil_parser *p);

#endif /* CUVIL_PROBLEM_PARSE_H_ */
