/* Windows of convolutions and poolings: the attributes with their defaults,
 * auto_pad made explicit, and the output extents that follow.  ONNX spreads
 * these rules over Conv, MaxPool and AveragePool; they are said once here.
 */
#include <string.h>

#include "graph/ops.h"

/* Windows and paddings beyond this are nonsense, and keeping below it keeps
 * the arithmetic here far from overflow. */
#define LIMIT ((int64_t)1 << 30)

/* `groups` times one entry for each of `axes` dimensions: values[2 g] and
 * values[2 g + 1]; of a single dimension only the second. */
static enum cuvil_status read_ints(const struct cuvil_node *node,
                                   const char *name, int axes, int groups,
                                   int64_t low, int64_t *values) {
  int64_t given[4];
  int n = cuvil_node_ints(node, name, given, 4);
  if (n == 0) return CUVIL_OK;
  if (n != axes * groups)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "attribute \"%s\" has %d entries, not %d", name, n,
                      axes * groups);
  for (int i = 0; i < n; i++) {
    if (given[i] < low || given[i] > LIMIT)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "attribute \"%s\" holds %lld",
                        name, (long long)given[i]);
    values[axes == 2 ? i : 2 * i + 1] = given[i];
  }
  return CUVIL_OK;
}

/* The kernel's extent on one axis with its holes. */
static int64_t span(const struct cuvil_window *window, int axis) {
  return (window->kernel[axis] - 1) * window->dilation[axis] + 1;
}

static enum cuvil_status resolve_auto_pad(const struct cuvil_node *node,
                                          const struct cuvil_value *x,
                                          struct cuvil_window *window) {
  const char *mode = cuvil_node_string(node, "auto_pad", "NOTSET");
  if (strcmp(mode, "NOTSET") == 0 || mode[0] == '\0') return CUVIL_OK;
  if (strcmp(mode, "VALID") == 0) {
    memset(window->pad, 0, sizeof window->pad);
    return CUVIL_OK;
  }
  bool upper = strcmp(mode, "SAME_UPPER") == 0;
  char text[41];
  if (!upper && strcmp(mode, "SAME_LOWER") != 0) {
    cuvil_text_clean(mode, text, sizeof text);
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "auto_pad \"%s\" is not one of NOTSET, VALID, "
                      "SAME_UPPER, SAME_LOWER",
                      text);
  }
  for (int i = x->rank == 3 ? 1 : 0; i < 2; i++) {
    int64_t in = x->dims[x->rank - 2 + i], stride = window->stride[i];
    int64_t out = (in + stride - 1) / stride;
    int64_t total = (out - 1) * stride + span(window, i) - in;
    if (total < 0) total = 0;
    int64_t small = total / 2;
    window->pad[i] = upper ? small : total - small;
    window->pad[2 + i] = upper ? total - small : small;
  }
  return CUVIL_OK;
}

static enum cuvil_status read_kernel(const struct cuvil_graph *graph,
                                     const struct cuvil_node *node, int axes,
                                     struct cuvil_window *out) {
  bool conv = strcmp(node->op, "Conv") == 0;
  if (conv) {
    const struct cuvil_value *w = &graph->values[node->inputs[1]];
    if (w->rank != axes + 2)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "weights of rank %d for an input of rank %d", w->rank,
                        axes + 2);
    out->kernel[1] = w->dims[axes + 1];
    if (axes == 2) out->kernel[0] = w->dims[2];
  }
  int64_t declared[2] = {out->kernel[0], out->kernel[1]};
  CUVIL_TRY(read_ints(node, "kernel_shape", axes, 1, 1, declared));
  if (conv && (declared[0] != out->kernel[0] || declared[1] != out->kernel[1]))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "kernel_shape is %lldx%lld but the weights are %lldx%lld",
                      (long long)declared[0], (long long)declared[1],
                      (long long)out->kernel[0], (long long)out->kernel[1]);
  out->kernel[0] = declared[0], out->kernel[1] = declared[1];
  if (out->kernel[0] < 1 || out->kernel[1] < 1 || out->kernel[0] > LIMIT ||
      out->kernel[1] > LIMIT)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "it has no kernel_shape");
  return CUVIL_OK;
}

enum cuvil_status cuvil_window_resolve(const struct cuvil_graph *graph,
                                       const struct cuvil_node *node,
                                       struct cuvil_window *out) {
  memset(out, 0, sizeof *out);
  const struct cuvil_value *x = &graph->values[node->inputs[0]];
  if (x->rank != 4 && x->rank != 3)
    return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                      "input of rank %d; only windows of one and two "
                      "dimensions (rank 3 and 4) are supported",
                      x->rank);
  int axes = x->rank - 2;
  for (int i = 0; i < 2; i++)
    out->stride[i] = out->dilation[i] = 1;
  if (axes == 1) out->kernel[0] = 1;
  CUVIL_TRY(read_kernel(graph, node, axes, out));
  CUVIL_TRY(read_ints(node, "strides", axes, 1, 1, out->stride));
  CUVIL_TRY(read_ints(node, "dilations", axes, 1, 1, out->dilation));
  CUVIL_TRY(read_ints(node, "pads", axes, 2, 0, out->pad));
  CUVIL_TRY(resolve_auto_pad(node, x, out));
  out->ceil_mode = cuvil_node_int(node, "ceil_mode", 0) != 0;
  out->count_include_pad = cuvil_node_int(node, "count_include_pad", 0) != 0;
  return CUVIL_OK;
}

enum cuvil_status cuvil_node_window(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_window *out) {
  return cuvil_node_context(graph, node,
                            cuvil_window_resolve(graph, node, out));
}

int64_t cuvil_window_extent(const struct cuvil_window *window, int axis,
                            int64_t in) {
  int64_t padded = in + window->pad[axis] + window->pad[2 + axis];
  int64_t room = padded - span(window, axis);
  if (room < 0) return 0;
  int64_t stride = window->stride[axis];
  if (!window->ceil_mode) return room / stride + 1;
  int64_t out = (room + stride - 1) / stride + 1;
  /* A last window that would start in the padding behind the data is not
   * one (onnx/onnx PR 5741, and what PyTorch does). */
  if ((out - 1) * stride >= in + window->pad[axis]) out--;
  return out;
}

enum cuvil_status cuvil_window_outputs(const struct cuvil_window *window,
                                       const struct cuvil_value *x,
                                       struct cuvil_type *out) {
  for (int i = 2; i < x->rank; i++) {
    int axis = i - (x->rank - 2);
    out->dims[i] = cuvil_window_extent(window, axis, x->dims[i]);
    if (out->dims[i] < 1)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "the window does not fit the input's extent %lld",
                        (long long)x->dims[i]);
  }
  return CUVIL_OK;
}
