/* internal.h - what the files of spaces/ share and nobody else needs. */
#ifndef CUVIL_SPACES_INTERNAL_H_
#define CUVIL_SPACES_INTERNAL_H_

#include "spaces/space.h"

/* A parsed expression: nodes in an array, tied by index. */
enum cuvil_node_kind {
  CUVIL_NODE_NUMBER,
  CUVIL_NODE_NAME,  /* by text */
  CUVIL_NODE_PARAM, /* bound: index in the space */
  CUVIL_NODE_ARCH,  /* bound: index in arch_fields */
  CUVIL_NODE_NEGATE,
  CUVIL_NODE_NOT,
  CUVIL_NODE_AND,
  CUVIL_NODE_OR,
  CUVIL_NODE_ADD,
  CUVIL_NODE_SUBTRACT,
  CUVIL_NODE_MULTIPLY,
  CUVIL_NODE_DIVIDE,
  CUVIL_NODE_FLOOR_DIVIDE,
  CUVIL_NODE_MODULO,
  CUVIL_NODE_POWER,
  CUVIL_NODE_CONDITION, /* a if b else c */
  CUVIL_NODE_COMPARE,   /* a, then the links that start at b */
  CUVIL_NODE_LINK,      /* one comparison with a; next */
  CUVIL_NODE_MIN,       /* arguments start at a */
  CUVIL_NODE_MAX,
  CUVIL_NODE_ABS,
  CUVIL_NODE_ARGUMENT /* a; next */
};

enum cuvil_comparison {
  CUVIL_LESS,
  CUVIL_LESS_EQUAL,
  CUVIL_EQUAL,
  CUVIL_NOT_EQUAL,
  CUVIL_GREATER_EQUAL,
  CUVIL_GREATER
};

struct cuvil_node {
  enum cuvil_node_kind kind;
  int a, b, c, next; /* nodes; -1: none */
  enum cuvil_comparison comparison;
  double number;
  int index;        /* of a parameter or field */
  const char *name; /* in expression->names */
};

struct cuvil_expression {
  char *text;  /* owned */
  char *names; /* owned: names, each with its NUL */
  struct cuvil_node *nodes;
  int count, root;
};

/* Ties names of the expression to parameters of the space and to fields of
 * struct cuvil_arch, so that checking a point compares no strings for them.
 * Fails for an arch.<field> that there is not. */
CUVIL_MUST_USE enum cuvil_status cuvil_expression_bind(
    struct cuvil_expression *expression, const struct cuvil_space *space);
/* Does the guard (architecture names separated by spaces) name this one? */
bool cuvil_rule_guards(const char *guard, const char *name);
/* Values of the names that binding left open, by node; false when one of them
 * is not among the variables.  values: expression->count numbers. */
bool cuvil_expression_resolve(const struct cuvil_expression *expression,
                              const struct cuvil_variable *variables, int count,
                              double *values);
/* evaluate for a resolved expression. */
CUVIL_MUST_USE enum cuvil_status cuvil_expression_evaluate_resolved(
    const struct cuvil_expression *expression,
    const struct cuvil_config *config, const struct cuvil_arch *arch,
    const double *values, double *out);
/* evaluate for a bound expression. */
CUVIL_MUST_USE enum cuvil_status cuvil_expression_evaluate_bound(
    const struct cuvil_expression *expression,
    const struct cuvil_config *config, const struct cuvil_arch *arch,
    const struct cuvil_variable *variables, int count, double *out);
/* A word that an expression may use as a name. */
bool cuvil_expression_name_valid(const char *name);

#endif /* CUVIL_SPACES_INTERNAL_H_ */
