/* evaluate.c - walking a parsed expression, with Python's meaning of each
 * operator.
 *
 * Names are looked up when they are reached, so that `a != 0 and b / a > 2`
 * means what it says.  Expressions of a space are bound beforehand: a name that
 * is a parameter or a field of the architecture becomes its index, because a
 * rule is asked once for each of many thousand points.
 */
#include <math.h>
#include <string.h>

#include "spaces/internal.h"

/* ---- names */

#define ARCH_FIELDS(X)        \
  X(cc)                       \
  X(sms)                      \
  X(warp_size)                \
  X(max_threads_per_block)    \
  X(max_threads_per_sm)       \
  X(max_blocks_per_sm)        \
  X(max_registers_per_thread) \
  X(registers_per_sm)         \
  X(register_granularity)     \
  X(shared_per_sm)            \
  X(shared_per_block)         \
  X(shared_reserved)          \
  X(shared_granularity)       \
  X(max_cluster)              \
  X(l2_bytes)                 \
  X(memory_bytes)             \
  X(memory_bytes_per_second)  \
  X(flops_f16)                \
  X(flops_tf32)               \
  X(flops_f32)

static const char *const arch_fields[] = {
#define FIELD(name) #name,
    ARCH_FIELDS(FIELD)
#undef FIELD
};

static double arch_field(const struct cuvil_arch *arch, int index) {
  const double values[] = {
#define FIELD(name) (double)arch->name,
      ARCH_FIELDS(FIELD)
#undef FIELD
  };
  return values[index];
}

enum cuvil_status cuvil_expression_bind(struct cuvil_expression *expression,
                                        const struct cuvil_space *space) {
  for (int i = 0; i < expression->count; i++) {
    struct cuvil_node *node = &expression->nodes[i];
    if (node->kind != CUVIL_NODE_NAME) continue;
    if (strncmp(node->name, "arch.", 5) == 0) {
      int count = sizeof arch_fields / sizeof *arch_fields, field = 0;
      while (field < count && strcmp(arch_fields[field], node->name + 5) != 0)
        field++;
      if (field == count)
        return CUVIL_FAIL(CU_ERR_PARSE,
                          "expression \"%.200s\": an architecture has no '%s'",
                          expression->text, node->name + 5);
      node->kind = CUVIL_NODE_ARCH;
      node->index = field;
      continue;
    }
    int param = cuvil_space_param(space, node->name);
    if (param < 0) continue;
    node->kind = CUVIL_NODE_PARAM;
    node->index = param;
  }
  return CUVIL_OK;
}

/* ---- evaluation */

struct evaluation {
  const struct cuvil_expression *expression;
  const struct cuvil_config *config;
  const struct cuvil_arch *arch;
  const double *values; /* resolved names, by node; NULL: look up */
  bool (*lookup)(void *user, const char *name, double *out);
  void *user;
};

static enum cuvil_status evaluate(const struct evaluation *e, int index,
                                  double *out);

static enum cuvil_status trouble(const struct evaluation *e, const char *what) {
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "expression \"%.200s\": %s",
                    e->expression->text, what);
}

/* Python's divmod of floats: the remainder has the divisor's sign. */
static double floor_modulo(double a, double b, double *out_quotient) {
  double remainder = fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) {
    remainder += b;
    quotient -= 1;
  }
  *out_quotient = floor(quotient + 0.5);
  return remainder;
}

static enum cuvil_status arithmetic(const struct evaluation *e,
                                    enum cuvil_node_kind kind, double a,
                                    double b, double *out) {
  double quotient;
  switch (kind) {
    case CUVIL_NODE_ADD:
      *out = a + b;
      break;
    case CUVIL_NODE_SUBTRACT:
      *out = a - b;
      break;
    case CUVIL_NODE_MULTIPLY:
      *out = a * b;
      break;
    case CUVIL_NODE_POWER:
      if (a == 0 && b < 0) return trouble(e, "division by zero");
      *out = pow(a, b);
      break;
    default:
      if (b == 0) return trouble(e, "division by zero");
      if (kind == CUVIL_NODE_DIVIDE) {
        *out = a / b;
        break;
      }
      double remainder = floor_modulo(a, b, &quotient);
      *out = kind == CUVIL_NODE_MODULO ? remainder : quotient;
  }
  return isfinite(*out) ? CUVIL_OK : trouble(e, "not a finite number");
}

static bool compare(enum cuvil_comparison comparison, double a, double b) {
  switch (comparison) {
    case CUVIL_LESS:
      return a < b;
    case CUVIL_LESS_EQUAL:
      return a <= b;
    case CUVIL_EQUAL:
      return a == b;
    case CUVIL_NOT_EQUAL:
      return a != b;
    case CUVIL_GREATER_EQUAL:
      return a >= b;
    case CUVIL_GREATER:
      return a > b;
  }
  return false;
}

static enum cuvil_status evaluate_links(const struct evaluation *e,
                                        const struct cuvil_node *node,
                                        double *out) {
  double left, right;
  CUVIL_TRY(evaluate(e, node->a, &left));
  for (int link = node->b; link >= 0; link = e->expression->nodes[link].next) {
    const struct cuvil_node *l = &e->expression->nodes[link];
    CUVIL_TRY(evaluate(e, l->a, &right));
    *out = compare(l->comparison, left, right);
    if (*out == 0) break;
    left = right;
  }
  return CUVIL_OK;
}

static enum cuvil_status evaluate_call(const struct evaluation *e,
                                       const struct cuvil_node *node,
                                       double *out) {
  for (int i = node->a; i >= 0; i = e->expression->nodes[i].next) {
    double value;
    CUVIL_TRY(evaluate(e, e->expression->nodes[i].a, &value));
    if (node->kind == CUVIL_NODE_ABS) value = fabs(value);
    if (i == node->a ||
        (node->kind == CUVIL_NODE_MIN ? value < *out : value > *out))
      *out = value;
  }
  return CUVIL_OK;
}

static enum cuvil_status evaluate_name(const struct evaluation *e,
                                       const struct cuvil_node *node,
                                       double *out) {
  if (e->lookup(e->user, node->name, out)) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "expression \"%.200s\": unknown name '%s'",
                    e->expression->text, node->name);
}

static enum cuvil_status evaluate(const struct evaluation *e, int index,
                                  double *out) {
  const struct cuvil_node *node = &e->expression->nodes[index];
  double left;
  switch (node->kind) {
    case CUVIL_NODE_NUMBER:
      *out = node->number;
      return CUVIL_OK;
    case CUVIL_NODE_NAME:
      if (!e->values) return evaluate_name(e, node, out);
      *out = e->values[index];
      return CUVIL_OK;
    case CUVIL_NODE_PARAM:
      *out = (double)e->config->value[node->index];
      return CUVIL_OK;
    case CUVIL_NODE_ARCH:
      *out = arch_field(e->arch, node->index);
      return CUVIL_OK;
    case CUVIL_NODE_NEGATE:
      CUVIL_TRY(evaluate(e, node->a, out));
      *out = -*out;
      return CUVIL_OK;
    case CUVIL_NODE_NOT:
      CUVIL_TRY(evaluate(e, node->a, out));
      *out = *out == 0;
      return CUVIL_OK;
    case CUVIL_NODE_AND:
      CUVIL_TRY(evaluate(e, node->a, out));
      return *out != 0 ? evaluate(e, node->b, out) : CUVIL_OK;
    case CUVIL_NODE_OR:
      CUVIL_TRY(evaluate(e, node->a, out));
      return *out == 0 ? evaluate(e, node->b, out) : CUVIL_OK;
    case CUVIL_NODE_CONDITION:
      CUVIL_TRY(evaluate(e, node->b, out));
      return evaluate(e, *out != 0 ? node->a : node->c, out);
    case CUVIL_NODE_COMPARE:
      return evaluate_links(e, node, out);
    case CUVIL_NODE_MIN:
    case CUVIL_NODE_MAX:
    case CUVIL_NODE_ABS:
      return evaluate_call(e, node, out);
    default:
      CUVIL_TRY(evaluate(e, node->a, &left));
      CUVIL_TRY(evaluate(e, node->b, out));
      return arithmetic(e, node->kind, left, *out, out);
  }
}

enum cuvil_status cuvil_expression_evaluate(
    const struct cuvil_expression *expression,
    bool (*lookup)(void *user, const char *name, double *out), void *user,
    double *out) {
  *out = 0;
  struct evaluation e = {
      .expression = expression, .lookup = lookup, .user = user};
  return evaluate(&e, expression->root, out);
}

struct variables {
  const struct cuvil_variable *list;
  int count;
};

static bool find_variable(void *user, const char *name, double *out) {
  const struct variables *variables = user;
  for (int i = 0; i < variables->count; i++) {
    if (strcmp(variables->list[i].name, name) != 0) continue;
    *out = variables->list[i].value;
    return true;
  }
  return false;
}

enum cuvil_status cuvil_expression_evaluate_bound(
    const struct cuvil_expression *expression,
    const struct cuvil_config *config, const struct cuvil_arch *arch,
    const struct cuvil_variable *variables, int count, double *out) {
  *out = 0;
  struct variables list = {variables, count};
  struct evaluation e = {.expression = expression,
                         .config = config,
                         .arch = arch,
                         .lookup = find_variable,
                         .user = &list};
  return evaluate(&e, expression->root, out);
}

bool cuvil_expression_resolve(const struct cuvil_expression *expression,
                              const struct cuvil_variable *variables, int count,
                              double *values) {
  struct variables list = {variables, count};
  for (int i = 0; i < expression->count; i++)
    if (expression->nodes[i].kind == CUVIL_NODE_NAME &&
        !find_variable(&list, expression->nodes[i].name, &values[i]))
      return false;
  return true;
}

enum cuvil_status cuvil_expression_evaluate_resolved(
    const struct cuvil_expression *expression,
    const struct cuvil_config *config, const struct cuvil_arch *arch,
    const double *values, double *out) {
  *out = 0;
  struct evaluation e = {.expression = expression,
                         .config = config,
                         .arch = arch,
                         .values = values};
  return evaluate(&e, expression->root, out);
}
