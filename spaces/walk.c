/* walk.c - the points of a space that its rules leave, without asking each.
 *
 * Parameters are given values one after the other, and a rule is asked as soon
 * as the last of its parameters has one: when it fails there, all points below
 * are gone at once.  So that this happens early, parameters are taken in an
 * order of their own: those of the rule that lacks the fewest come first.
 */
#include <stdlib.h>
#include <string.h>

#include "spaces/internal.h"

struct asked {
  int rule;      /* in the space */
  double *names; /* resolved names, by node; in walk->numbers */
};

struct walk {
  const struct cuvil_space *space;
  const struct cuvil_arch *arch;
  uint64_t *removed;
  enum cuvil_status (*visit)(void *user, uint64_t rank,
                             const struct cuvil_config *config);
  void *user;
  int order[CUVIL_MAX_PARAMS];          /* parameter taken at each depth */
  uint64_t weight[CUVIL_MAX_PARAMS];    /* of a parameter's digit in the rank */
  uint64_t below[CUVIL_MAX_PARAMS + 1]; /* points under a node at a depth */
  /* Rules asked once `depth` parameters have values: [first[d], first[d+1]) */
  int first[CUVIL_MAX_PARAMS + 2];
  struct asked *asked; /* owned */
  double *numbers;     /* owned */
  struct cuvil_config config;
};

/* Parameters that the rule's expression reads, as a set of bits. */
static uint32_t reads(const struct cuvil_rule *rule) {
  uint32_t set = 0;
  for (int i = 0; i < rule->expression->count; i++)
    if (rule->expression->nodes[i].kind == CUVIL_NODE_PARAM)
      set |= 1u << rule->expression->nodes[i].index;
  return set;
}

static bool is_subset(uint32_t inner, uint32_t outer) {
  return (inner & ~outer) == 0;
}

/* Takes the parameters of `set` that are not taken yet, few values first. */
static void take(struct walk *w, uint32_t set, uint32_t *taken, int *depth) {
  while (!is_subset(set, *taken)) {
    int best = -1;
    for (int i = 0; i < w->space->param_count; i++) {
      if (!((set & ~*taken) >> i & 1)) continue;
      if (best < 0 || w->space->params[i].count < w->space->params[best].count)
        best = i;
    }
    w->order[(*depth)++] = best;
    *taken |= 1u << best;
  }
}

static void plan_order(struct walk *w, const struct asked *asked, int count) {
  uint32_t taken = 0;
  int depth = 0;
  for (;;) {
    uint32_t next = 0;
    int least = CUVIL_MAX_PARAMS + 1;
    for (int i = 0; i < count; i++) {
      uint32_t set = reads(&w->space->rules[asked[i].rule]);
      int lacking = __builtin_popcount(set & ~taken);
      if (lacking == 0 || lacking >= least) continue;
      least = lacking;
      next = set;
    }
    if (next == 0) break;
    take(w, next, &taken, &depth);
  }
  take(w, (uint32_t)((UINT64_C(1) << w->space->param_count) - 1), &taken,
       &depth);
  w->below[depth] = 1;
  for (int d = depth - 1; d >= 0; d--)
    w->below[d] =
        w->below[d + 1] * (uint64_t)w->space->params[w->order[d]].count;
  uint64_t weight = 1;
  for (int i = w->space->param_count - 1; i >= 0; i--) {
    w->weight[i] = weight;
    weight *= (uint64_t)w->space->params[i].count;
  }
}

/* Sorts the rules by the depth at which they can be asked. */
static void plan_rules(struct walk *w, const struct asked *asked, int count) {
  uint32_t taken = 0, before = 0;
  int placed = 0;
  for (int depth = 0; depth <= w->space->param_count; depth++) {
    w->first[depth] = placed;
    if (depth) taken |= 1u << w->order[depth - 1];
    for (int i = 0; i < count; i++) {
      uint32_t set = reads(&w->space->rules[asked[i].rule]);
      bool now = is_subset(set, taken);
      bool already = depth && is_subset(set, before);
      if (now && !already) w->asked[placed++] = asked[i];
    }
    before = taken;
  }
  w->first[w->space->param_count + 1] = placed;
}

static enum cuvil_status plan(struct walk *w,
                              const struct cuvil_variable *variables, int count,
                              bool heuristics) {
  const struct cuvil_space *space = w->space;
  size_t numbers = 1, rules = (size_t)space->rule_count;
  for (int i = 0; i < space->rule_count; i++)
    numbers += (size_t)space->rules[i].expression->count;
  struct asked *asked = calloc(rules + 1, sizeof *asked);
  w->asked = calloc(rules + 1, sizeof *w->asked);
  w->numbers = calloc(numbers, sizeof *w->numbers);
  if (!asked || !w->asked || !w->numbers) {
    free(asked);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "space of %s", space->family);
  }
  int usable = 0;
  double *names = w->numbers;
  for (int i = 0; i < space->rule_count; i++) {
    const struct cuvil_rule *rule = &space->rules[i];
    if (!rule->hard && !heuristics) continue;
    if (rule->arch && !cuvil_rule_guards(rule->arch, w->arch->name)) continue;
    if (!cuvil_expression_resolve(rule->expression, variables, count, names))
      continue;
    asked[usable++] = (struct asked){i, names};
    names += rule->expression->count;
  }
  plan_order(w, asked, usable);
  plan_rules(w, asked, usable);
  free(asked);
  return CUVIL_OK;
}

/* The rule that cuts here; -1: none. */
static enum cuvil_status ask(const struct walk *w, int depth, int *out_rule) {
  *out_rule = -1;
  for (int i = w->first[depth]; i < w->first[depth + 1]; i++) {
    const struct asked *asked = &w->asked[i];
    const struct cuvil_rule *rule = &w->space->rules[asked->rule];
    double holds;
    enum cuvil_status status = cuvil_expression_evaluate_resolved(
        rule->expression, &w->config, w->arch, asked->names, &holds);
    if (status != CUVIL_OK)
      return CUVIL_FAIL(status, "space of %s: rule '%s': %s", w->space->family,
                        rule->name, cuvil_last_error());
    if (holds != 0) continue;
    *out_rule = asked->rule;
    return CUVIL_OK;
  }
  return CUVIL_OK;
}

static enum cuvil_status descend(struct walk *w, int depth, uint64_t rank) {
  int rule;
  CUVIL_TRY(ask(w, depth, &rule));
  if (rule >= 0) {
    if (w->removed) w->removed[rule] += w->below[depth];
    return CUVIL_OK;
  }
  if (depth == w->space->param_count)
    return w->visit(w->user, rank, &w->config);
  int param = w->order[depth];
  for (int i = 0; i < w->space->params[param].count; i++) {
    w->config.value[param] = w->space->params[param].values[i];
    CUVIL_TRY(descend(w, depth + 1, rank + w->weight[param] * (uint64_t)i));
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_space_walk(
    const struct cuvil_space *space, const struct cuvil_arch *arch,
    const struct cuvil_variable *variables, int count, bool heuristics,
    uint64_t *removed,
    enum cuvil_status (*visit)(void *user, uint64_t rank,
                               const struct cuvil_config *config),
    void *user) {
  struct walk w = {.space = space,
                   .arch = arch,
                   .removed = removed,
                   .visit = visit,
                   .user = user};
  if (space->open)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "the space of %s is open: its points cannot be listed",
                      space->family);
  enum cuvil_status status = plan(&w, variables, count, heuristics);
  if (status == CUVIL_OK) status = descend(&w, 0, 0);
  free(w.asked);
  free(w.numbers);
  return status;
}
