/* space.h - a kernel family's candidate space, as data.
 *
 * One JSON file per family (spaces/<family>.json, embedded in the library):
 *
 *   { "space": 1, "family": "gemm_mma",
 *     "parameters": [ {"name": "tile_m", "values": [16, 32, 64, 128],
 *                      "default": 64, "about": "rows of C per block"} ],
 *     "rules": [ {"name": "shared_fits", "level": "hard",
 *                 "arch": "sm_80 sm_90",        (optional; default: all)
 *                 "require": "shared_bytes <= arch.shared_per_block",
 *                 "reason": "a block cannot have more shared memory"} ] }
 *
 * `require` must hold for a point to stay.  "hard": the point cannot run;
 * "heuristic": it should not win.  Expressions are the common Python subset:
 * and or not, comparisons (chained too), + - * / // % **, min max abs,
 * parentheses, conditional `a if c else b`, numbers; names are parameters,
 * extents of the problem (m, n, k, ...), names that the family's `derive`
 * gives, and arch.<field> for every number of struct cuvil_arch.
 *
 * A parameter without "values" takes any 64-bit integer, and its space is
 * `open`: it cannot be enumerated, because its points are what a library on
 * the machine at hand offers.
 */
#ifndef CUVIL_SPACES_SPACE_H_
#define CUVIL_SPACES_SPACE_H_

#include "base/arch.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

#define CUVIL_MAX_PARAMS 24
#define CUVIL_MAX_VALUES 32

struct cuvil_config {
  int64_t value[CUVIL_MAX_PARAMS]; /* by the space's parameter index */
};

struct cuvil_param {
  const char *name; /* owned by the space */
  const char *about;
  int count; /* 0: any integer */
  int64_t values[CUVIL_MAX_VALUES];
  int64_t fallback; /* the default */
};

struct cuvil_expression; /* compiled `require` */

struct cuvil_rule {
  const char *name, *reason, *text;
  bool hard;
  const char *arch; /* space-separated names, or NULL for all */
  struct cuvil_expression *expression;
};

struct cuvil_space {
  const char *family;
  bool open; /* some parameter takes any integer */
  int param_count;
  struct cuvil_param params[CUVIL_MAX_PARAMS];
  int rule_count;
  struct cuvil_rule *rules;
  struct cuvil_arena arena; /* holds all of the above */
};

/* Names an expression may use beside parameters and arch fields. */
struct cuvil_variable {
  const char *name;
  double value;
};

/* `origin` names the text in messages (line numbers where JSON has them). */
CUVIL_MUST_USE enum cuvil_status cuvil_space_parse(const char *json,
                                                   size_t size,
                                                   const char *origin,
                                                   struct cuvil_space **out);
void cuvil_space_destroy(struct cuvil_space *space);
/* -1: none of that name. */
int cuvil_space_param(const struct cuvil_space *space, const char *name);
/* get and set abort on a name that the space has not: that is a bug of the
 * family, not of its user (ask cuvil_space_param where it may be absent). */
int64_t cuvil_config_get(const struct cuvil_space *space,
                         const struct cuvil_config *config, const char *name);
void cuvil_config_set(const struct cuvil_space *space,
                      struct cuvil_config *config, const char *name,
                      int64_t value);
void cuvil_space_default(const struct cuvil_space *space,
                         struct cuvil_config *out);
/* Product of the counts; 0 of an open space. */
uint64_t cuvil_space_size(const struct cuvil_space *space);
/* The point of rank `index` (first parameter slowest). */
void cuvil_space_point(const struct cuvil_space *space, uint64_t index,
                       struct cuvil_config *out);
/* "tile_m=64,tile_n=128"; all parameters, in order ("" of a space without).
 * Parse takes any order, needs every one and only values of the space. */
void cuvil_config_print(const struct cuvil_space *space,
                        const struct cuvil_config *config,
                        struct cuvil_buf *out);
CUVIL_MUST_USE enum cuvil_status cuvil_config_parse(
    const struct cuvil_space *space, const char *text,
    struct cuvil_config *out);
/* First rule that the point breaks: its index, -1 when it breaks none, -2
 * when an expression cannot be evaluated (message set).  heuristics: also
 * apply heuristic rules.  A rule guarded by another architecture than
 * arch->name is not asked. */
int cuvil_space_check(const struct cuvil_space *space,
                      const struct cuvil_arch *arch,
                      const struct cuvil_config *config,
                      const struct cuvil_variable *variables, int count,
                      bool heuristics);

/* Calls `visit` for every point of a closed space that keeps those rules that
 * can be asked of parameters, arch.<field> and `variables` alone; rules that
 * need other names (what `derive` gives) are left to cuvil_space_check.  Whole
 * parts of the space are cut at once, which makes this cheap where asking every
 * point is not.  rank: as cuvil_space_point.  The order of the visits is fixed
 * by the space and is not the ranks'.  removed (may be NULL), by rule: grows by
 * the points that the rule cut, each counted once.  Ends at the first failure
 * of `visit` or of an expression. */
CUVIL_MUST_USE enum cuvil_status cuvil_space_walk(
    const struct cuvil_space *space, const struct cuvil_arch *arch,
    const struct cuvil_variable *variables, int count, bool heuristics,
    uint64_t *removed,
    enum cuvil_status (*visit)(void *user, uint64_t rank,
                               const struct cuvil_config *config),
    void *user);

/* The rule's expression with the numbers of `arch` and of the variables put in
 * for their names, appended to *out where it then asks of parameters only;
 * *out_params: which, a bit for each. */
enum cuvil_rule_form {
  CUVIL_RULE_NOT_ASKED, /* guarded by another architecture; no text */
  CUVIL_RULE_CLOSED,    /* of parameters only */
  CUVIL_RULE_DERIVED    /* needs other names, or no parameter; no text */
};
CUVIL_MUST_USE enum cuvil_status cuvil_rule_print(
    const struct cuvil_space *space, int rule, const struct cuvil_arch *arch,
    const struct cuvil_variable *variables, int count, struct cuvil_buf *out,
    uint32_t *out_params, enum cuvil_rule_form *out_form);

/* The evaluator by itself.  Numbers are doubles; and, or give one of their
 * operands as in Python, comparisons and not give 1 or 0.  Division by zero,
 * an unknown name that is reached, and a result that is no finite number are
 * errors. */
CUVIL_MUST_USE enum cuvil_status cuvil_expression_parse(
    const char *text, struct cuvil_expression **out);
void cuvil_expression_destroy(struct cuvil_expression *expression);
/* lookup returns false for an unknown name. */
CUVIL_MUST_USE enum cuvil_status cuvil_expression_evaluate(
    const struct cuvil_expression *expression,
    bool (*lookup)(void *user, const char *name, double *out), void *user,
    double *out);

#endif /* CUVIL_SPACES_SPACE_H_ */
