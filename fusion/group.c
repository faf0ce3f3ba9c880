/* group.c - which nodes become one task.
 *
 * A group has one value that is seen outside; every other value of it is used
 * only inside and is no graph output.  Each node of a group leads to that
 * value, so nothing outside that depends on the group can feed it: a group
 * never makes a cycle, and running it at the place of its last node is a valid
 * order.
 *
 * `medium` lets contractions grow first, the last in the model's order first,
 * so that a residual add goes to the later of its two convolutions.  A
 * contraction grows forward: the users of its result, and what they lead to,
 * are taken when all of it closes in one value again (x * sigmoid(x) is two
 * users that do).  What pointwise nodes are left join the contraction that
 * alone uses them, or form chains of their own, which is all that `fine` does.
 */
#include <stdlib.h>
#include <string.h>

#include "fusion/fuse.h"

enum { MAX_GROWTH = 16 }; /* nodes taken in one step */

static bool same_shape(const struct cuvil_fuse *fuse, int a, int b) {
  const struct cuvil_value *x = &fuse->graph->values[a];
  const struct cuvil_value *y = &fuse->graph->values[b];
  return x->rank == y->rank &&
         memcmp(x->dims, y->dims, (size_t)x->rank * sizeof(x->dims[0])) == 0;
}

static bool is_anchor(enum cuvil_class class) {
  return class != CUVIL_CLASS_DEAD && class != CUVIL_CLASS_RENAME &&
         class != CUVIL_CLASS_POINTWISE;
}

static enum cuvil_status new_group(struct cuvil_fuse *fuse, int node,
                                   int *out) {
  struct cuvil_group *group = &fuse->groups[fuse->group_count];
  group->nodes = cuvil_arena_array(&fuse->scratch, 1, sizeof(int));
  if (!group->nodes) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: groups");
  group->anchor = is_anchor(fuse->classes[node]) ? node : -1;
  group->nodes[0] = node;
  group->count = 1;
  group->result = cuvil_fuse_output(fuse, node);
  fuse->group_of[node] = fuse->group_count;
  *out = fuse->group_count++;
  return CUVIL_OK;
}

static bool contains(const int *list, int count, int item) {
  for (int i = 0; i < count; ++i)
    if (list[i] == item) return true;
  return false;
}

/* Whether all users of the value are among the nodes, and it is no output. */
static bool hidden(const struct cuvil_fuse *fuse, int value, const int *nodes,
                   int count) {
  if (fuse->output_uses[value]) return false;
  for (int u = fuse->user_start[value]; u < fuse->user_start[value + 1]; ++u)
    if (!contains(nodes, count, fuse->user_nodes[u])) return false;
  return true;
}

/* Which of the problem's dimensions an axis of the result belongs to. */
static int dim_of_axis(const struct cuvil_fuse *fuse, int anchor, int axis) {
  const struct cuvil_node *node = &fuse->graph->nodes[anchor];
  int rank = fuse->graph->values[cuvil_fuse_output(fuse, anchor)].rank;
  switch (fuse->classes[anchor]) {
    case CUVIL_CLASS_GEMM:
      return axis == rank - 1 ? 2 : axis >= cuvil_fuse_batch_axes(fuse, anchor);
    case CUVIL_CLASS_NORM:
      return axis >= cuvil_fuse_norm_axis(fuse, anchor);
    case CUVIL_CLASS_GATHER:
      return axis >= fuse->graph->values[cuvil_fuse_input(fuse, node, 1)].rank;
    default:
      return axis;
  }
}

/* An anchored task reads no computed single element as a side input: it has no
 * dimension.  Where several axes are one dimension, a side input has them all
 * or none. */
static bool contraction_reads(const struct cuvil_fuse *fuse, int node,
                              int index, int anchor) {
  const struct cuvil_value *out =
      &fuse->graph->values[cuvil_fuse_output(fuse, node)];
  const struct cuvil_value *in =
      &fuse->graph
           ->values[cuvil_fuse_input(fuse, &fuse->graph->nodes[node], index)];
  int shift = cuvil_express_shift(fuse, node, index);
  unsigned there = 0, absent = 0;
  if (cuvil_value_elements(in) == 1 && cuvil_value_elements(out) != 1)
    return false;
  for (int axis = 0; axis < out->rank; ++axis) {
    if (out->dims[axis] == 1) continue;
    int from = axis - shift;
    bool has = from >= 0 && from < in->rank && in->dims[from] > 1;
    *(has ? &there : &absent) |= 1u << dim_of_axis(fuse, anchor, axis);
  }
  return !(there & absent);
}

/* The problem that these nodes would make stays within the grammar's limits,
 * and every side input can be read at the output's coordinates. */
static bool fits(const struct cuvil_fuse *fuse, const int *nodes, int count) {
  int statements = 0, sides = 0, anchor = -1;
  for (int i = 0; i < count; ++i)
    if (fuse->classes[nodes[i]] != CUVIL_CLASS_POINTWISE) anchor = nodes[i];
  int seen[CUVIL_MAX_OPERANDS + 1];
  for (int i = 0; i < count; ++i) {
    const struct cuvil_node *node = &fuse->graph->nodes[nodes[i]];
    statements += cuvil_express_cost(fuse, node);
    int inputs =
        nodes[i] == anchor ? node->input_count : cuvil_express_inputs(node);
    for (int j = 0; j < inputs; ++j) {
      int value = cuvil_fuse_input(fuse, node, j);
      double scalar;
      if (value < 0 || cuvil_fuse_scalar(fuse, value, &scalar)) continue;
      int producer = fuse->graph->values[value].producer;
      if (producer >= 0 && contains(nodes, count, producer)) continue;
      if (contains(seen, sides, value)) continue;
      if (anchor >= 0 && nodes[i] != anchor &&
          !contraction_reads(fuse, nodes[i], j, anchor))
        return false;
      if (sides == CUVIL_MAX_OPERANDS) return false;
      seen[sides++] = value;
    }
  }
  /* A contraction's own inputs are among the sides; one is its output. */
  return statements <= CUVIL_MAX_STATEMENTS && sides + 1 <= CUVIL_MAX_OPERANDS;
}

static int compare_ints(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static enum cuvil_status commit(struct cuvil_fuse *fuse, int index,
                                const int *nodes, int count, int result) {
  struct cuvil_group *group = &fuse->groups[index];
  int *copy = cuvil_arena_array(&fuse->scratch, (size_t)count, sizeof(int));
  if (!copy) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: groups");
  memcpy(copy, nodes, (size_t)count * sizeof(int));
  qsort(copy, (size_t)count, sizeof(int), compare_ints);
  group->nodes = copy;
  group->count = count;
  group->result = result;
  for (int i = 0; i < count; ++i)
    fuse->group_of[copy[i]] = index;
  return CUVIL_OK;
}

/* Adds the users of `value` to the trial; false when one may not join. */
static bool take_users(const struct cuvil_fuse *fuse, int value, int shape,
                       int *nodes, int *count, int limit) {
  for (int u = fuse->user_start[value]; u < fuse->user_start[value + 1]; ++u) {
    int node = fuse->user_nodes[u];
    if (contains(nodes, *count, node)) continue;
    if (fuse->classes[node] != CUVIL_CLASS_POINTWISE ||
        fuse->group_of[node] >= 0 || *count == limit ||
        !same_shape(fuse, cuvil_fuse_output(fuse, node), shape))
      return false;
    nodes[(*count)++] = node;
  }
  return true;
}

/* One step forward from a group's result; *grew says whether it was taken. */
static enum cuvil_status grow_forward(struct cuvil_fuse *fuse, int index,
                                      bool *grew) {
  struct cuvil_group *group = &fuse->groups[index];
  int nodes[CUVIL_MAX_STATEMENTS + MAX_GROWTH + 1];
  int count = group->count, open = group->result;
  *grew = false;
  if (count > CUVIL_MAX_STATEMENTS) return CUVIL_OK;
  int limit = count + MAX_GROWTH;
  memcpy(nodes, group->nodes, (size_t)count * sizeof(int));
  for (;;) {
    if (fuse->output_uses[open] ||
        !take_users(fuse, open, group->result, nodes, &count, limit))
      return CUVIL_OK;
    int visible = 0, first = -1;
    for (int i = 0; i < count; ++i) {
      int value = cuvil_fuse_output(fuse, nodes[i]);
      if (hidden(fuse, value, nodes, count)) continue;
      ++visible;
      if (first < 0 || fuse->graph->values[value].producer <
                           fuse->graph->values[first].producer)
        first = value;
    }
    if (visible == 1) {
      if (!fits(fuse, nodes, count)) return CUVIL_OK;
      *grew = true;
      return commit(fuse, index, nodes, count, first);
    }
    open = first;
  }
}

/* The contraction itself reads the value: it must stand in memory. */
static bool anchor_reads(const struct cuvil_fuse *fuse,
                         const struct cuvil_group *group, int value) {
  if (group->anchor < 0) return false;
  const struct cuvil_node *node = &fuse->graph->nodes[group->anchor];
  for (int i = 0; i < node->input_count; ++i)
    if (cuvil_fuse_input(fuse, node, i) == value) return true;
  return false;
}

/* Takes pointwise producers that only this group uses, until none is left. */
static enum cuvil_status grow_backward(struct cuvil_fuse *fuse, int index) {
  struct cuvil_group *group = &fuse->groups[index];
  int nodes[CUVIL_MAX_STATEMENTS + MAX_GROWTH + 1];
  int count = group->count;
  if (count > CUVIL_MAX_STATEMENTS) return CUVIL_OK;
  memcpy(nodes, group->nodes, (size_t)count * sizeof(int));
  for (int i = 0; i < count; ++i) {
    const struct cuvil_node *node = &fuse->graph->nodes[nodes[i]];
    if (fuse->classes[nodes[i]] != CUVIL_CLASS_POINTWISE) continue;
    for (int j = 0; j < node->input_count; ++j) {
      int value = cuvil_fuse_input(fuse, node, j);
      int producer = value < 0 ? -1 : fuse->graph->values[value].producer;
      if (producer < 0 || fuse->group_of[producer] >= 0 ||
          fuse->classes[producer] != CUVIL_CLASS_POINTWISE ||
          count > CUVIL_MAX_STATEMENTS || contains(nodes, count, producer) ||
          !same_shape(fuse, value, group->result) ||
          !hidden(fuse, value, nodes, count) ||
          anchor_reads(fuse, group, value))
        continue;
      nodes[count] = producer;
      if (!fits(fuse, nodes, count + 1)) continue;
      ++count;
      i = -1; /* a new member may hide what was seen by it before */
      break;
    }
  }
  return count == group->count
             ? CUVIL_OK
             : commit(fuse, index, nodes, count, group->result);
}

static bool takes_epilogue(enum cuvil_class class) {
  return class == CUVIL_CLASS_CONV || class == CUVIL_CLASS_GEMM ||
         class == CUVIL_CLASS_NORM || class == CUVIL_CLASS_GATHER;
}

static enum cuvil_status group_contractions(struct cuvil_fuse *fuse) {
  bool grow = fuse->fused->options.strategy == CUVIL_FUSION_MEDIUM;
  for (int n = fuse->graph->node_count - 1; n >= 0; --n) {
    if (fuse->graph->nodes[n].removed || !is_anchor(fuse->classes[n])) continue;
    int index;
    CUVIL_TRY(new_group(fuse, n, &index));
    bool grew = grow && takes_epilogue(fuse->classes[n]);
    while (grew)
      CUVIL_TRY(grow_forward(fuse, index, &grew));
  }
  if (!grow) return CUVIL_OK;
  for (int i = 0; i < fuse->group_count; ++i)
    if (fuse->groups[i].count > 1) CUVIL_TRY(grow_backward(fuse, i));
  return CUVIL_OK;
}

static int compare_groups(const void *a, const void *b) {
  const struct cuvil_group *x = a, *y = b;
  return compare_ints(&x->nodes[x->count - 1], &y->nodes[y->count - 1]);
}

enum cuvil_status cuvil_fuse_group(struct cuvil_fuse *fuse) {
  size_t nodes = (size_t)fuse->graph->node_count + 1;
  fuse->group_of = cuvil_arena_array(&fuse->scratch, nodes, sizeof(int));
  fuse->groups =
      cuvil_arena_array(&fuse->scratch, nodes, sizeof(*fuse->groups));
  if (!fuse->group_of || !fuse->groups)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: groups");
  for (size_t n = 0; n < nodes; ++n)
    fuse->group_of[n] = -1;
  CUVIL_TRY(group_contractions(fuse));
  for (int n = fuse->graph->node_count - 1; n >= 0; --n) {
    if (fuse->graph->nodes[n].removed || fuse->group_of[n] >= 0 ||
        fuse->classes[n] != CUVIL_CLASS_POINTWISE)
      continue;
    int index;
    CUVIL_TRY(new_group(fuse, n, &index));
    if (fuse->fused->options.strategy != CUVIL_FUSION_NONE)
      CUVIL_TRY(grow_backward(fuse, index));
  }
  qsort(fuse->groups, (size_t)fuse->group_count, sizeof(*fuse->groups),
        compare_groups);
  return CUVIL_OK;
}
