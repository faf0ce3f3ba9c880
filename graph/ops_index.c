/* Operators that make tensors by position (Range, Expand, Tile, Trilu, Split,
 * CumSum), and gathers and scatters by computed indices.
 */
#include <math.h>
#include <string.h>

#include "graph/ops.h"

/* ---- Range */
enum cuvil_status cuvil_infer_range(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  const struct cuvil_value *v[3];
  for (int i = 0; i < 3; i++) {
    v[i] = cuvil_op_input(graph, node, i);
    if (cuvil_value_elements(v[i]) != 1 || v[i]->dtype != v[0]->dtype)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "its limits must be three scalars of one type");
    if (v[i]->data == NULL)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "input %d is computed at run time; it must be constant",
                        i);
  }
  *out = (struct cuvil_type){.dtype = v[0]->dtype, .rank = 1};
  double count;
  if (cuvil_dtype_is_float(v[0]->dtype)) {
    double n[3];
    for (int i = 0; i < 3; i++)
      n[i] = cuvil_load(v[i]->dtype, v[i]->data, 0);
    count = ceil((n[1] - n[0]) / n[2]);
  } else {
    int64_t n[3];
    for (int i = 0; i < 3; i++)
      cuvil_convert(CUVIL_I64, &n[i], v[i]->dtype, v[i]->data, 1);
    if (n[2] == 0) return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "its step is 0");
    /* In 128 bits: any int64 may come in. */
    __int128 span = (__int128)n[1] - n[0], step = n[2];
    __int128 steps = span / step + (span % step != 0);
    count = (span > 0) == (step > 0) ? (double)steps : 0;
  }
  if (!(count < 0x1p41))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no end");
  out->dims[0] = count > 0 ? (int64_t)count : 0;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_range(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *start = call->inputs[0];
  const struct cuvil_host_tensor *step = call->inputs[2];
  struct cuvil_host_tensor *y = &call->outputs[0];
  for (int64_t i = 0; i < y->count; i++)
    if (y->integer) /* the sum is in range, the product need not be */
      y->i[i] =
          (int64_t)((uint64_t)start->i[0] + (uint64_t)i * (uint64_t)step->i[0]);
    else
      y->f[i] = (float)((double)start->f[0] + (double)i * (double)step->f[0]);
  return CUVIL_OK;
}

/* ---- Expand, Tile */
static enum cuvil_status read_list(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node, int64_t *out,
                                   int *out_count) {
  CUVIL_TRY(cuvil_op_const_ints(graph, node, 1, out, CUVIL_GRAPH_MAX_RANK,
                                out_count));
  for (int i = 0; i < *out_count; i++)
    if (out[i] < 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input 1 holds %lld",
                        (long long)out[i]);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_expand(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  struct cuvil_value shape = {0};
  CUVIL_TRY(read_list(graph, node, shape.dims, &shape.rank));
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  return cuvil_type_broadcast(out, &shape);
}

enum cuvil_status cuvil_execute_expand(const struct cuvil_op_call *call) {
  struct cuvil_host_tensor *y = &call->outputs[0];
  struct cuvil_strided s = {.rank = y->rank};
  if (y->count == 0) return CUVIL_OK;
  cuvil_host_broadcast_steps(call->inputs[0], y->rank, s.x_step);
  cuvil_host_steps(y, s.y_step);
  memcpy(s.count, y->dims, sizeof s.count);
  cuvil_strided_copy(&s, call->inputs[0], y);
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_tile(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  int64_t repeats[CUVIL_GRAPH_MAX_RANK];
  int count;
  CUVIL_TRY(read_list(graph, node, repeats, &count));
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  if (count != out->rank)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%d repeats for a rank of %d",
                      count, out->rank);
  for (int i = 0; i < count; i++)
    if (__builtin_mul_overflow(out->dims[i], repeats[i], &out->dims[i]))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "the result is too large");
  return CUVIL_OK;
}

/* Each dimension becomes two, of which the outer repeats: done one dimension
 * after the other by position, as an output is small where Tile is used. */
enum cuvil_status cuvil_execute_tile(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  int64_t step[CUVIL_GRAPH_MAX_RANK], at[CUVIL_GRAPH_MAX_RANK] = {0};
  cuvil_host_steps(x, step);
  for (int64_t i = 0; i < y->count; i++) {
    int64_t from = 0;
    for (int d = 0; d < y->rank; d++)
      from += at[d] % x->dims[d] * step[d];
    if (y->integer)
      y->i[i] = x->i[from];
    else
      y->f[i] = x->f[from];
    for (int d = y->rank - 1; d >= 0 && ++at[d] == y->dims[d]; d--)
      at[d] = 0;
  }
  return CUVIL_OK;
}

/* ---- Trilu */
enum cuvil_status cuvil_infer_trilu(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  const struct cuvil_value *k = cuvil_op_input(graph, node, 1);
  if (out->rank < 2)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "an input of rank %d", out->rank);
  if (k != NULL && (k->dtype != CUVIL_I64 || cuvil_value_elements(k) != 1))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "k must be one int64");
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_trilu(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  const struct cuvil_host_tensor *diagonal = cuvil_op_tensor(call, 1);
  struct cuvil_host_tensor *y = &call->outputs[0];
  bool upper = cuvil_node_int(call->node, "upper", 1) != 0;
  int64_t cols = x->dims[x->rank - 1], rows = x->dims[x->rank - 2];
  int64_t k = diagonal != NULL ? diagonal->i[0] : 0;
  /* Beyond the matrix every k is alike. */
  k = k > cols ? cols : k < -rows ? -rows : k;
  for (int64_t i = 0; i < x->count; i++) {
    int64_t col = i % cols, row = i / cols % rows;
    bool keep = upper ? col - row >= k : col - row <= k;
    if (y->integer)
      y->i[i] = keep ? x->i[i] : 0;
    else
      y->f[i] = keep ? x->f[i] : 0;
  }
  return CUVIL_OK;
}

/* ---- Split */
static enum cuvil_status split_sizes(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     int64_t extent, int64_t *sizes) {
  int count, outputs = node->output_count;
  CUVIL_TRY(
      cuvil_op_const_ints(graph, node, 1, sizes, CUVIL_OP_MAX_OUTPUTS, &count));
  if (count < 0 && cuvil_node_attribute(node, "split") != NULL)
    count = cuvil_node_ints(node, "split", sizes, CUVIL_OP_MAX_OUTPUTS);
  if (count < 0) {
    int64_t parts = cuvil_node_int(node, "num_outputs", outputs);
    if (parts != outputs || (node->opset < 18 && extent % parts != 0))
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "an extent of %lld is not %d equal parts",
                        (long long)extent, outputs);
    int64_t each = (extent + parts - 1) / parts, left = extent;
    for (int i = 0; i < outputs; i++) {
      sizes[i] = left < each ? left : each;
      left -= sizes[i];
    }
    return CUVIL_OK;
  }
  int64_t sum = 0;
  bool fits = count == outputs;
  for (int i = 0; i < count && fits; i++) {
    fits = sizes[i] >= 0 && sizes[i] <= extent - sum;
    sum += sizes[i];
  }
  if (fits && sum == extent) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "its sizes do not divide an extent of %lld into %d parts",
                    (long long)extent, outputs);
}

enum cuvil_status cuvil_infer_split(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  int64_t sizes[CUVIL_OP_MAX_OUTPUTS];
  int axis;
  CUVIL_TRY(cuvil_op_axis(node, "axis", 0, x->rank, 0, &axis));
  CUVIL_TRY(split_sizes(graph, node, x->dims[axis], sizes));
  for (int i = 0; i < node->output_count; i++) {
    cuvil_type_copy(&out[i], x);
    out[i].dims[axis] = sizes[i];
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_split(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  int64_t sizes[CUVIL_OP_MAX_OUTPUTS], done = 0;
  int axis;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", 0, x->rank, 0, &axis));
  CUVIL_TRY(split_sizes(call->graph, call->node, x->dims[axis], sizes));
  struct cuvil_strided s = {.rank = x->rank};
  cuvil_host_steps(x, s.x_step);
  memcpy(s.count, x->dims, sizeof s.count);
  for (int i = 0; i < call->node->output_count; done += sizes[i++]) {
    struct cuvil_host_tensor *y = &call->outputs[i];
    if (call->node->outputs[i] < 0 || y->count == 0) continue;
    cuvil_host_steps(y, s.y_step);
    s.count[axis] = sizes[i];
    s.x_start = done * s.x_step[axis];
    cuvil_strided_copy(&s, x, y);
  }
  return CUVIL_OK;
}

/* ---- CumSum */
enum cuvil_status cuvil_infer_cumsum(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node,
                                     struct cuvil_type *out) {
  const struct cuvil_value *axis = cuvil_op_input(graph, node, 1);
  if (cuvil_value_elements(axis) != 1 || cuvil_dtype_is_float(axis->dtype))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "the axis must be one integer");
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_cumsum(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  struct cuvil_host_tensor *y = &call->outputs[0];
  int64_t axis = call->inputs[1]->i[0];
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis >= x->rank)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "axis %lld of a rank of %d",
                      (long long)call->inputs[1]->i[0], x->rank);
  bool exclusive = cuvil_node_int(call->node, "exclusive", 0) != 0;
  bool reverse = cuvil_node_int(call->node, "reverse", 0) != 0;
  int64_t inner = 1, n = x->dims[axis];
  for (int i = (int)axis + 1; i < x->rank; i++)
    inner *= x->dims[i];
  for (int64_t line = 0; n > 0 && line < x->count / n; line++) {
    int64_t at = line / inner * inner * n + line % inner, step = inner;
    if (reverse) at += (n - 1) * inner, step = -inner;
    double sum = 0;
    uint64_t whole = 0;
    for (int64_t i = 0; i < n; i++, at += step) {
      double real = sum;
      uint64_t integer = whole;
      if (x->integer)
        whole += (uint64_t)x->i[at];
      else
        sum += (double)x->f[at];
      if (x->integer)
        y->i[at] = (int64_t)(exclusive ? integer : whole);
      else
        y->f[at] = (float)(exclusive ? real : sum);
    }
  }
  return CUVIL_OK;
}

/* ---- gathers and scatters */
static enum cuvil_status index_type(const struct cuvil_value *index) {
  if (index->dtype == CUVIL_I64 || index->dtype == CUVIL_I32) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "its indices are of type %s",
                    cuvil_dtype_name(index->dtype));
}

static enum cuvil_status resolve_index(int64_t index, int64_t extent,
                                       int64_t *out) {
  *out = index < 0 ? index + extent : index;
  if (*out >= 0 && *out < extent) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "index %lld is outside an axis of extent %lld",
                    (long long)index, (long long)extent);
}

enum cuvil_status cuvil_infer_gather_elements(const struct cuvil_graph *graph,
                                              const struct cuvil_node *node,
                                              struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *index = cuvil_op_input(graph, node, 1);
  int axis;
  CUVIL_TRY(cuvil_op_axis(node, "axis", 0, x->rank, 0, &axis));
  CUVIL_TRY(index_type(index));
  bool fits = index->rank == x->rank;
  for (int i = 0; i < x->rank && fits; i++)
    fits = i == axis || index->dims[i] <= x->dims[i];
  if (!fits)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its indices are larger than the data");
  cuvil_type_copy(out, index);
  out->dtype = x->dtype;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_gather_elements(
    const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0], *index = call->inputs[1];
  struct cuvil_host_tensor *y = &call->outputs[0];
  int64_t step[CUVIL_GRAPH_MAX_RANK], at[CUVIL_GRAPH_MAX_RANK] = {0};
  int axis;
  CUVIL_TRY(cuvil_op_axis(call->node, "axis", 0, x->rank, 0, &axis));
  cuvil_host_steps(x, step);
  for (int64_t i = 0; i < y->count; i++) {
    int64_t from = 0, chosen;
    CUVIL_TRY(resolve_index(index->i[i], x->dims[axis], &chosen));
    for (int d = 0; d < y->rank; d++)
      from += (d == axis ? chosen : at[d]) * step[d];
    if (y->integer)
      y->i[i] = x->i[from];
    else
      y->f[i] = x->f[from];
    for (int d = y->rank - 1; d >= 0 && ++at[d] == y->dims[d]; d--)
      at[d] = 0;
  }
  return CUVIL_OK;
}

/* Offset in `x` that `count` indices from dimension `first` on name. */
static enum cuvil_status tuple_offset(const struct cuvil_host_tensor *x,
                                      const int64_t *index, int count,
                                      int first, int64_t *out) {
  int64_t step[CUVIL_GRAPH_MAX_RANK];
  cuvil_host_steps(x, step);
  *out = 0;
  for (int i = 0; i < count; i++) {
    int64_t at;
    CUVIL_TRY(resolve_index(index[i], x->dims[first + i], &at));
    *out += at * step[first + i];
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_gather_nd(const struct cuvil_graph *graph,
                                        const struct cuvil_node *node,
                                        struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *index = cuvil_op_input(graph, node, 1);
  int64_t batch = cuvil_node_int(node, "batch_dims", 0);
  CUVIL_TRY(index_type(index));
  bool fits =
      index->rank >= 1 && batch >= 0 && batch < index->rank && batch < x->rank;
  int64_t tuple = fits ? index->dims[index->rank - 1] : 0;
  fits = fits && tuple >= 1 && tuple <= x->rank - batch;
  for (int i = 0; fits && i < batch; i++)
    fits = x->dims[i] == index->dims[i];
  if (!fits)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its indices do not fit data of rank %d", x->rank);
  int rank = index->rank - 1 + x->rank - (int)batch - (int)tuple;
  if (rank > CUVIL_GRAPH_MAX_RANK)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "a result of rank %d; at most %d is supported", rank,
                      CUVIL_GRAPH_MAX_RANK);
  *out = (struct cuvil_type){.dtype = x->dtype};
  for (int i = 0; i < index->rank - 1; i++)
    out->dims[out->rank++] = index->dims[i];
  for (int i = (int)(batch + tuple); i < x->rank; i++)
    out->dims[out->rank++] = x->dims[i];
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_gather_nd(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0], *index = call->inputs[1];
  struct cuvil_host_tensor *y = &call->outputs[0];
  int batch = (int)cuvil_node_int(call->node, "batch_dims", 0);
  int tuple = (int)index->dims[index->rank - 1];
  int64_t inner = 1, each = 1, batches = 1;
  for (int i = batch + tuple; i < x->rank; i++)
    inner *= x->dims[i];
  for (int i = batch; i < x->rank; i++)
    each *= x->dims[i];
  for (int i = 0; i < batch; i++)
    batches *= x->dims[i];
  if (y->count == 0) return CUVIL_OK;
  int64_t tuples = index->count / tuple;
  for (int64_t t = 0; t < tuples; t++) {
    int64_t from;
    CUVIL_TRY(tuple_offset(x, index->i + t * tuple, tuple, batch, &from));
    from += t / (tuples / batches) * each;
    if (y->integer)
      memcpy(y->i + t * inner, x->i + from, (size_t)inner * sizeof *y->i);
    else
      memcpy(y->f + t * inner, x->f + from, (size_t)inner * sizeof *y->f);
  }
  return CUVIL_OK;
}

/* ---- ScatterND */
enum reduction { R_NONE, R_ADD, R_MUL, R_MIN, R_MAX };

static enum cuvil_status scatter_reduction(const struct cuvil_node *node,
                                           enum reduction *out) {
  static const char *const names[] = {"none", "add", "mul", "min", "max"};
  const char *name = cuvil_node_string(node, "reduction", "none");
  for (int i = 0; i < 5; i++)
    if (strcmp(name, names[i]) == 0) {
      *out = (enum reduction)i;
      return CUVIL_OK;
    }
  return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                    "reduction is not one of none, add, mul, min, max");
}

enum cuvil_status cuvil_infer_scatter_nd(const struct cuvil_graph *graph,
                                         const struct cuvil_node *node,
                                         struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *index = cuvil_op_input(graph, node, 1);
  const struct cuvil_value *updates = cuvil_op_input(graph, node, 2);
  enum reduction reduction;
  CUVIL_TRY(scatter_reduction(node, &reduction));
  CUVIL_TRY(index_type(index));
  int64_t tuple = index->rank >= 1 ? index->dims[index->rank - 1] : 0;
  bool fits = tuple >= 1 && tuple <= x->rank && updates->dtype == x->dtype &&
              updates->rank == index->rank - 1 + x->rank - (int)tuple;
  for (int i = 0; fits && i < updates->rank; i++)
    fits = updates->dims[i] ==
           (i < index->rank - 1 ? index->dims[i]
                                : x->dims[(int)tuple + i - (index->rank - 1)]);
  if (!fits)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "indices and updates do not fit data of rank %d",
                      x->rank);
  cuvil_type_copy(out, x);
  return CUVIL_OK;
}

static void scatter_one(enum reduction r, struct cuvil_host_tensor *y,
                        int64_t at, const struct cuvil_host_tensor *u,
                        int64_t from) {
  if (y->integer) {
    int64_t a = y->i[at], b = u->i[from];
    y->i[at] = r == R_NONE  ? b
               : r == R_ADD ? (int64_t)((uint64_t)a + (uint64_t)b)
               : r == R_MUL ? (int64_t)((uint64_t)a * (uint64_t)b)
               : r == R_MIN ? (a < b ? a : b)
                            : (a > b ? a : b);
    return;
  }
  float a = y->f[at], b = u->f[from];
  y->f[at] = r == R_NONE  ? b
             : r == R_ADD ? a + b
             : r == R_MUL ? a * b
             : r == R_MIN ? (a < b ? a : b)
                          : (a > b ? a : b);
}

enum cuvil_status cuvil_execute_scatter_nd(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0], *index = call->inputs[1];
  const struct cuvil_host_tensor *updates = call->inputs[2];
  struct cuvil_host_tensor *y = &call->outputs[0];
  enum reduction reduction;
  CUVIL_TRY(scatter_reduction(call->node, &reduction));
  for (int64_t i = 0; i < x->count; i++)
    if (x->integer)
      y->i[i] = x->i[i];
    else
      y->f[i] = x->f[i];
  int tuple = (int)index->dims[index->rank - 1];
  int64_t inner = 1;
  for (int i = tuple; i < x->rank; i++)
    inner *= x->dims[i];
  for (int64_t t = 0; updates->count > 0 && t < index->count / tuple; t++) {
    int64_t to;
    CUVIL_TRY(tuple_offset(x, index->i + t * tuple, tuple, 0, &to));
    for (int64_t i = 0; i < inner; i++)
      scatter_one(reduction, y, to + i, updates, t * inner + i);
  }
  return CUVIL_OK;
}
