/* Operators that move elements: Transpose, Concat, Slice, Pad, Gather.  All but
 * Gather and Concat are one strided copy; what differs is where it starts and
 * how it steps.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"

void cuvil_strided_copy(const struct cuvil_strided *s,
                        const struct cuvil_host_tensor *x,
                        struct cuvil_host_tensor *y) {
  int last = s->rank - 1;
  int64_t rows = 1, at[CUVIL_GRAPH_MAX_RANK] = {0};
  for (int d = 0; d < last; d++)
    rows *= s->count[d];
  int64_t n = last >= 0 ? s->count[last] : 1;
  int64_t dx = last >= 0 ? s->x_step[last] : 1;
  int64_t dy = last >= 0 ? s->y_step[last] : 1;
  int64_t from = s->x_start, to = s->y_start;
  if (n == 0) return;
  for (int64_t row = 0; row < rows; row++) {
    if (x->integer)
      for (int64_t i = 0; i < n; i++)
        y->i[to + i * dy] = x->i[from + i * dx];
    else if (dx == 1 && dy == 1)
      memcpy(y->f + to, x->f + from, (size_t)n * sizeof *y->f);
    else
      for (int64_t i = 0; i < n; i++)
        y->f[to + i * dy] = x->f[from + i * dx];
    for (int d = last - 1; d >= 0; d--) {
      from += s->x_step[d];
      to += s->y_step[d];
      if (++at[d] < s->count[d]) break;
      from -= s->x_step[d] * s->count[d];
      to -= s->y_step[d] * s->count[d];
      at[d] = 0;
    }
  }
}

void cuvil_host_steps(const struct cuvil_host_tensor *x, int64_t *steps) {
  int64_t step = 1;
  for (int d = x->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= x->dims[d];
  }
}

/* ---- Transpose: out dimension i is in dimension perm[i] */
static enum cuvil_status permutation(const struct cuvil_node *node, int rank,
                                     int *perm) {
  int64_t given[CUVIL_GRAPH_MAX_RANK];
  int count = cuvil_node_ints(node, "perm", given, CUVIL_GRAPH_MAX_RANK);
  if (cuvil_node_attribute(node, "perm") == NULL) {
    for (int i = 0; i < rank; i++)
      perm[i] = rank - 1 - i;
    return CUVIL_OK;
  }
  unsigned seen = 0;
  for (int i = 0; i < count && count == rank; i++) {
    if (given[i] < 0 || given[i] >= rank) break;
    perm[i] = (int)given[i];
    seen |= 1u << perm[i];
  }
  if (count != rank || seen != (1u << rank) - 1)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "perm is not a permutation of %d axes", rank);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_transpose(const struct cuvil_graph *graph,
                                        const struct cuvil_node *node,
                                        struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int perm[CUVIL_GRAPH_MAX_RANK];
  CUVIL_TRY(permutation(node, x->rank, perm));
  cuvil_type_copy(out, x);
  for (int i = 0; i < x->rank; i++)
    out->dims[i] = x->dims[perm[i]];
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_transpose(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  int perm[CUVIL_GRAPH_MAX_RANK];
  CUVIL_TRY(permutation(call->node, x->rank, perm));
  struct cuvil_strided s = {.rank = x->rank};
  int64_t steps[CUVIL_GRAPH_MAX_RANK];
  cuvil_host_steps(x, steps);
  cuvil_host_steps(y, s.y_step);
  for (int i = 0; i < x->rank; i++) {
    s.count[i] = y->dims[i];
    s.x_step[i] = steps[perm[i]];
  }
  cuvil_strided_copy(&s, x, y);
  return CUVIL_OK;
}

/* ---- Concat */
enum cuvil_status cuvil_infer_concat(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  const struct cuvil_value *first = cuvil_op_input(graph, node, 0);
  int axis;
  if (cuvil_node_attribute(node, "axis") == NULL)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no axis");
  CUVIL_TRY(cuvil_op_axis(node, "axis", 0, first->rank, 0, &axis));
  cuvil_type_copy(out, first);
  for (int n = 1; n < node->input_count; n++) {
    const struct cuvil_value *x = cuvil_op_input(graph, node, n);
    bool same = x != NULL && x->rank == out->rank && x->dtype == out->dtype;
    for (int i = 0; same && i < x->rank; i++)
      same = i == axis || x->dims[i] == out->dims[i];
    if (!same)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "input %d differs in type, rank or another dimension "
                        "than the axis",
                        n);
    if (__builtin_add_overflow(out->dims[axis], x->dims[axis],
                               &out->dims[axis]))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "the result is too large");
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_concat(const struct cuvil_op_call *call) {
  struct cuvil_host_tensor *y = &call->outputs[0];
  int axis;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", 0, y->rank, 0, &axis));
  int64_t inner = 1, outer = 1, done = 0;
  for (int i = 0; i < y->rank; i++)
    if (i < axis)
      outer *= y->dims[i];
    else if (i > axis)
      inner *= y->dims[i];
  for (int n = 0; n < call->node->input_count; n++) {
    const struct cuvil_host_tensor *x = call->inputs[n];
    int64_t run = x->dims[axis] * inner;
    for (int64_t o = 0; o < outer && run > 0; o++) {
      int64_t to = (o * y->dims[axis] + done) * inner;
      if (y->integer)
        memcpy(y->i + to, x->i + o * run, (size_t)run * sizeof *y->i);
      else
        memcpy(y->f + to, x->f + o * run, (size_t)run * sizeof *y->f);
    }
    done += x->dims[axis];
  }
  return CUVIL_OK;
}

/* ---- Slice */
struct cut {
  int64_t start[CUVIL_GRAPH_MAX_RANK], step[CUVIL_GRAPH_MAX_RANK];
  int64_t count[CUVIL_GRAPH_MAX_RANK];
};

/* starts, ends: from inputs 1, 2 (opset 10 on) or from attributes. */
static enum cuvil_status slice_list(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node, int index,
                                    const char *name, int64_t *out,
                                    int *out_count) {
  CUVIL_TRY(cuvil_op_const_ints(graph, node, index, out, CUVIL_GRAPH_MAX_RANK,
                                out_count));
  if (*out_count >= 0) return CUVIL_OK;
  *out_count = cuvil_node_ints(node, name, out, CUVIL_GRAPH_MAX_RANK);
  if (*out_count > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%s has %d entries", name,
                      *out_count);
  return CUVIL_OK;
}

/* numpy's rule for one axis: clamp, then count; any int64 may come in. */
static void cut_axis(int64_t start, int64_t end, int64_t step, int64_t extent,
                     int64_t *out_start, int64_t *out_count) {
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
  if (start < 0) start = start < -extent ? -1 : start + extent;
  if (end < 0) end = end < -extent ? -1 : end + extent;
  start = start < low ? low : start > high ? high : start;
  end = end < low ? low : end > high ? high : end;
  /* A start before the data is the first element, unless it goes backward. */
  int64_t count = 0;
  if (step > 0 && end > start)
    count = (end - start - 1) / step + 1;
  else if (step < 0 && start > end)
    count = (int64_t)((uint64_t)(start - end - 1) / (0 - (uint64_t)step)) + 1;
  *out_start = start;
  *out_count = count;
}

static enum cuvil_status slice_cut(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node, int rank,
                                   const int64_t *dims, struct cut *cut) {
  int64_t starts[CUVIL_GRAPH_MAX_RANK], ends[CUVIL_GRAPH_MAX_RANK];
  int64_t steps[CUVIL_GRAPH_MAX_RANK];
  int n, n_ends, n_steps, n_axes, axes[CUVIL_GRAPH_MAX_RANK];
  CUVIL_TRY(slice_list(graph, node, 1, "starts", starts, &n));
  CUVIL_TRY(slice_list(graph, node, 2, "ends", ends, &n_ends));
  CUVIL_TRY(cuvil_op_axes(graph, node, 3, rank, axes, &n_axes));
  CUVIL_TRY(cuvil_op_const_ints(graph, node, 4, steps, CUVIL_GRAPH_MAX_RANK,
                                &n_steps));
  if (n != n_ends || (n_axes >= 0 && n_axes != n) ||
      (n_steps >= 0 && n_steps != n) || n > rank)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "starts, ends, axes and steps differ in length");
  for (int i = 0; i < rank; i++) {
    cut->start[i] = 0;
    cut->step[i] = 1;
    cut->count[i] = dims[i];
  }
  for (int i = 0; i < n; i++) {
    int axis = n_axes >= 0 ? axes[i] : i;
    int64_t step = n_steps >= 0 ? steps[i] : 1;
    if (step == 0) return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "a step is 0");
    cut_axis(starts[i], ends[i], step, dims[axis], &cut->start[axis],
             &cut->count[axis]);
    /* Beyond one element a step is shorter than the extent. */
    cut->step[axis] = cut->count[axis] > 1 ? step : 1;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_slice(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  struct cut cut;
  CUVIL_TRY(slice_cut(graph, node, x->rank, x->dims, &cut));
  cuvil_type_copy(out, x);
  for (int i = 0; i < x->rank; i++)
    out->dims[i] = cut.count[i];
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_slice(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  struct cut cut;
  CUVIL_TRY(slice_cut(call->graph, call->node, x->rank, x->dims, &cut));
  struct cuvil_strided s = {.rank = x->rank};
  cuvil_host_steps(x, s.x_step);
  cuvil_host_steps(y, s.y_step);
  for (int i = 0; i < x->rank; i++) {
    s.count[i] = cut.count[i];
    s.x_start += cut.start[i] * s.x_step[i];
    s.x_step[i] *= cut.step[i];
  }
  if (y->count > 0) cuvil_strided_copy(&s, x, y);
  return CUVIL_OK;
}

/* ---- Pad; a negative pad cuts off */
enum pad_mode { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_WRAP };

static enum cuvil_status pad_mode(const struct cuvil_node *node,
                                  enum pad_mode *out) {
  static const char *const names[] = {"constant", "edge", "reflect", "wrap"};
  const char *mode = cuvil_node_string(node, "mode", "constant");
  char shown[41];
  for (int i = 0; i < 4; i++)
    if (strcmp(mode, names[i]) == 0) {
      *out = (enum pad_mode)i;
      return CUVIL_OK;
    }
  cuvil_text_clean(mode, shown, sizeof shown);
  return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED, "mode \"%s\"", shown);
}

static enum cuvil_status read_pads(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node, int rank,
                                   int64_t *pads /* 2 * rank */) {
  int64_t given[2 * CUVIL_GRAPH_MAX_RANK];
  int count, axes[CUVIL_GRAPH_MAX_RANK], n_axes = -1;
  CUVIL_TRY(cuvil_op_const_ints(graph, node, 1, given, 2 * CUVIL_GRAPH_MAX_RANK,
                                &count));
  if (count < 0)
    count = cuvil_node_ints(node, "pads", given, 2 * CUVIL_GRAPH_MAX_RANK);
  CUVIL_TRY(cuvil_op_axes(graph, node, 3, rank, axes, &n_axes));
  int n = n_axes >= 0 ? n_axes : rank;
  if (count != 2 * n)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%d pads for %d axes", count, n);
  memset(pads, 0, 2 * (size_t)rank * sizeof *pads);
  for (int i = 0; i < n; i++) {
    int axis = n_axes >= 0 ? axes[i] : i;
    pads[axis] = given[i];
    pads[rank + axis] = given[n + i];
  }
  for (int i = 0; i < 2 * rank; i++)
    if (pads[i] > (int64_t)1 << 40 || pads[i] < -((int64_t)1 << 40))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "a pad is %lld",
                        (long long)pads[i]);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_pad(const struct cuvil_graph *graph,
                                  const struct cuvil_node *node,
                                  struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *fill = cuvil_op_input(graph, node, 2);
  int64_t pads[2 * CUVIL_GRAPH_MAX_RANK];
  enum pad_mode mode;
  CUVIL_TRY(pad_mode(node, &mode));
  CUVIL_TRY(read_pads(graph, node, x->rank, pads));
  if (fill != NULL &&
      (fill->dtype != x->dtype || cuvil_value_elements(fill) != 1))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "the fill value must be one element of the input's type");
  cuvil_type_copy(out, x);
  for (int i = 0; i < x->rank; i++) {
    out->dims[i] += pads[i] + pads[x->rank + i];
    if (out->dims[i] < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "the pads leave less than nothing of axis %d", i);
    /* Reflection is defined as far as the axis reaches; negative pads with it
     * are not. */
    int64_t most = mode == PAD_REFLECT ? x->dims[i] - 1 : x->dims[i];
    bool fits =
        pads[i] >= 0 && pads[x->rank + i] >= 0 &&
        (mode == PAD_EDGE ? x->dims[i] > 0 || out->dims[i] == 0
                          : pads[i] <= most && pads[x->rank + i] <= most);
    bool none = pads[i] == 0 && pads[x->rank + i] == 0;
    if (mode != PAD_CONSTANT && !fits && !none)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "pads of axis %d that reach beyond its extent of %lld",
                        i, (long long)x->dims[i]);
  }
  return CUVIL_OK;
}

/* Element of an axis that stands at `i`, which may lie outside. */
static int64_t mirrored(enum pad_mode mode, int64_t i, int64_t extent) {
  if (i >= 0 && i < extent) return i;
  if (mode == PAD_EDGE) return i < 0 ? 0 : extent - 1;
  if (mode == PAD_WRAP) return i < 0 ? i + extent : i - extent;
  return i < 0 ? -i : 2 * (extent - 1) - i;
}

static void pad_by_copies(enum pad_mode mode, const int64_t *pads,
                          const struct cuvil_host_tensor *x,
                          struct cuvil_host_tensor *y) {
  int64_t step[CUVIL_GRAPH_MAX_RANK], at[CUVIL_GRAPH_MAX_RANK] = {0};
  cuvil_host_steps(x, step);
  for (int64_t i = 0; i < y->count; i++) {
    int64_t from = 0;
    for (int d = 0; d < y->rank; d++)
      from += mirrored(mode, at[d] - pads[d], x->dims[d]) * step[d];
    if (y->integer)
      y->i[i] = x->i[from];
    else
      y->f[i] = x->f[from];
    for (int d = y->rank - 1; d >= 0 && ++at[d] == y->dims[d]; d--)
      at[d] = 0;
  }
}

enum cuvil_status cuvil_execute_pad(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  const struct cuvil_host_tensor *fill =
      call->node->input_count > 2 ? call->inputs[2] : NULL;
  struct cuvil_host_tensor *y = &call->outputs[0];
  int64_t pads[2 * CUVIL_GRAPH_MAX_RANK];
  enum pad_mode mode;
  CUVIL_TRY(pad_mode(call->node, &mode));
  CUVIL_TRY(read_pads(call->graph, call->node, x->rank, pads));
  if (mode != PAD_CONSTANT) {
    pad_by_copies(mode, pads, x, y);
    return CUVIL_OK;
  }
  float f = (float)cuvil_node_float(call->node, "value", 0);
  if (fill != NULL && !fill->integer) f = fill->f[0];
  int64_t whole = fill != NULL && fill->integer ? fill->i[0] : 0;
  for (int64_t i = 0; i < y->count; i++)
    if (y->integer)
      y->i[i] = whole;
    else
      y->f[i] = f;
  struct cuvil_strided s = {.rank = x->rank};
  cuvil_host_steps(x, s.x_step);
  cuvil_host_steps(y, s.y_step);
  for (int i = 0; i < x->rank; i++) {
    int64_t before = pads[i], after = pads[x->rank + i];
    int64_t skip = before < 0 ? -before : 0, cut = after < 0 ? -after : 0;
    s.count[i] = x->dims[i] - skip - cut;
    if (s.count[i] <= 0) return CUVIL_OK;
    s.x_start += skip * s.x_step[i];
    s.y_start += (before > 0 ? before : 0) * s.y_step[i];
  }
  cuvil_strided_copy(&s, x, y);
  return CUVIL_OK;
}

/* ---- Gather */
/* Computed indices are looked at when they are there; constant ones become
 * offsets that nobody checks again. */
static enum cuvil_status check_constant_indices(const struct cuvil_value *index,
                                                int64_t extent) {
  if (index->data == NULL || extent < 0) return CUVIL_OK;
  int64_t count = cuvil_value_elements(index);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = index->dtype == CUVIL_I64 ? ((const int64_t *)index->data)[i]
                                           : ((const int32_t *)index->data)[i];
    if (at < -extent || at >= extent)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "index %lld is outside an axis of extent %lld",
                        (long long)at, (long long)extent);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_gather(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *index = cuvil_op_input(graph, node, 1);
  int axis;
  CUVIL_TRY(cuvil_op_axis(node, "axis", 0, x->rank, 0, &axis));
  if (index->dtype != CUVIL_I64 && index->dtype != CUVIL_I32)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "its indices are of type %s",
                      cuvil_dtype_name(index->dtype));
  CUVIL_TRY(check_constant_indices(index, x->dims[axis]));
  int rank = x->rank - 1 + index->rank;
  if (rank > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "a result of rank %d; at most %d is supported", rank,
                      CUVIL_GRAPH_MAX_RANK);
  *out = (struct cuvil_type){.dtype = x->dtype};
  for (int i = 0; i < x->rank; i++) {
    if (i != axis) {
      out->dims[out->rank++] = x->dims[i];
      continue;
    }
    for (int k = 0; k < index->rank; k++)
      out->dims[out->rank++] = index->dims[k];
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_gather(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0], *index = call->inputs[1];
  struct cuvil_host_tensor *y = &call->outputs[0];
  int axis;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", 0, x->rank, 0, &axis));
  int64_t inner = 1, outer = 1, extent = x->dims[axis], to = 0;
  for (int i = 0; i < x->rank; i++)
    if (i < axis)
      outer *= x->dims[i];
    else if (i > axis)
      inner *= x->dims[i];
  for (int64_t o = 0; o < outer; o++)
    for (int64_t k = 0; k < index->count; k++, to += inner) {
      int64_t at = index->i[k] < 0 ? index->i[k] + extent : index->i[k];
      if (at < 0 || at >= extent)
        return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                          "index %lld is outside an axis of extent %lld",
                          (long long)index->i[k], (long long)extent);
      int64_t from = (o * extent + at) * inner;
      if (inner == 0) continue;
      if (y->integer)
        memcpy(y->i + to, x->i + from, (size_t)inner * sizeof *y->i);
      else
        memcpy(y->f + to, x->f + from, (size_t)inner * sizeof *y->f);
    }
  return CUVIL_OK;
}
