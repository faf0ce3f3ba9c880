/* classify.c - what each node is to fusion, and which nodes it cannot take.
 *
 * One pass finds the nodes that the outputs need, one looks each operator up
 * and asks whether this use of it can become a problem.  Nothing is built
 * before every node has answered: a refusal lists them all, grouped by
 * operator and reason, so that one run tells a user everything.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "fusion/fuse.h"

int cuvil_fuse_input(const struct cuvil_fuse *fuse,
                     const struct cuvil_node *node, int index) {
  if (index >= node->input_count || node->inputs[index] < 0) return -1;
  return fuse->canon[node->inputs[index]];
}

int cuvil_fuse_output(const struct cuvil_fuse *fuse, int node) {
  return fuse->canon[fuse->graph->nodes[node].outputs[0]];
}

bool cuvil_fuse_scalar(const struct cuvil_fuse *fuse, int value, double *out) {
  if (value < 0) return false;
  const struct cuvil_value *v = &fuse->graph->values[value];
  if (!v->data || cuvil_value_elements(v) != 1) return false;
  *out = cuvil_load(v->dtype, v->data, 0);
  return true;
}

static const struct cuvil_value *value_of(const struct cuvil_fuse *fuse,
                                          int value) {
  return value < 0 ? NULL : &fuse->graph->values[value];
}

bool cuvil_fuse_axes(const struct cuvil_fuse *fuse,
                     const struct cuvil_node *node, unsigned *out_mask) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  int64_t axes[CUVIL_GRAPH_MAX_RANK];
  int count = cuvil_node_ints(node, "axes", axes, CUVIL_GRAPH_MAX_RANK);
  const struct cuvil_value *given =
      value_of(fuse, cuvil_fuse_input(fuse, node, 1));
  *out_mask = 0;
  if (given) {
    if (!given->data) return false;
    count = (int)cuvil_value_elements(given);
    if (count > CUVIL_GRAPH_MAX_RANK) return false;
    for (int i = 0; i < count; ++i)
      axes[i] = (int64_t)cuvil_load(given->dtype, given->data, (size_t)i);
  }
  if (strncmp(node->op, "Global", 6) == 0) {
    for (int i = 2; i < x->rank; ++i)
      *out_mask |= 1u << i;
    return x->rank > 2;
  }
  if (count == 0) {
    if (cuvil_node_int(node, "noop_with_empty_axes", 0)) return false;
    *out_mask = (1u << x->rank) - 1;
    return true;
  }
  for (int i = 0; i < count; ++i) {
    int64_t axis = axes[i] < 0 ? axes[i] + x->rank : axes[i];
    if (axis < 0 || axis >= x->rank) return false;
    *out_mask |= 1u << axis;
  }
  return true;
}

bool cuvil_fuse_pool_pads(const struct cuvil_fuse *fuse,
                          const struct cuvil_node *node,
                          struct cuvil_window *window, int64_t out_over[2]) {
  out_over[0] = out_over[1] = 0;
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  const struct cuvil_value *y = &fuse->graph->values[node->outputs[0]];
  bool padded_average =
      strcmp(node->op, "AveragePool") == 0 && window->count_include_pad;
  for (int i = 0; i < 2; ++i) {
    int64_t in = x->dims[2 + i], out = y->dims[2 + i];
    int64_t span = window->dilation[i] * (window->kernel[i] - 1) + 1;
    int64_t floor_out =
        (in + window->pad[i] + window->pad[2 + i] - span) / window->stride[i] +
        1;
    if (floor_out == out) continue;
    /* The last window starts inside the input but ends beyond the padding;
     * an average that counts padding does not count that part. */
    int64_t need = (out - 1) * window->stride[i] + span - in - window->pad[i];
    if (need < 0) return false;
    if (padded_average) out_over[i] = need - window->pad[2 + i];
    window->pad[2 + i] = need;
  }
  return true;
}

static bool is_float(enum cuvil_dtype dtype) {
  return dtype == CUVIL_F32 || dtype == CUVIL_F16 || dtype == CUVIL_BF16;
}

/* NULL: this value can be a tensor of a fused graph. */
static const char *refuse_value(const struct cuvil_value *value) {
  if (value->rank < 0 || value->dtype == CUVIL_DTYPE_NONE)
    return "shape or type is not known (give --shapes)";
  if (value->rank > CUVIL_MAX_RANK) return "more than 6 dimensions";
  for (int i = 0; i < value->rank; ++i) {
    if (value->dims[i] < 0) return "dynamic shape (give --shapes)";
  }
  return NULL;
}

static const char *refuse_float_value(const struct cuvil_value *value) {
  const char *reason = refuse_value(value);
  if (reason) return reason;
  return is_float(value->dtype) ? NULL : "not a floating-point tensor";
}

static const char *refuse_conv(const struct cuvil_fuse *fuse,
                               const struct cuvil_node *node) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  const struct cuvil_value *w = value_of(fuse, cuvil_fuse_input(fuse, node, 1));
  const struct cuvil_value *b = value_of(fuse, cuvil_fuse_input(fuse, node, 2));
  struct cuvil_window window;
  if (!x || !w || x->rank != 4 || w->rank != 4)
    return "only two spatial dimensions are supported";
  if (x->data) return "a constant operand was not folded";
  if (!w->data) return "weights are computed, not constant";
  if (b && !b->data) return "bias is computed, not constant";
  if (cuvil_node_window(fuse->graph, node, &window) != CUVIL_OK)
    return "pads or strides are not valid";
  return NULL;
}

static const char *refuse_gemm(const struct cuvil_fuse *fuse,
                               const struct cuvil_node *node) {
  const struct cuvil_value *a = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  const struct cuvil_value *b = value_of(fuse, cuvil_fuse_input(fuse, node, 1));
  if (!a || !b || a->rank < 2 || b->rank < 1)
    return "a vector operand is not supported";
  if (b->rank < 2) return "a vector operand is not supported";
  if (a->data && b->data) return "both operands are constant";
  return NULL;
}

static const char *refuse_pool(const struct cuvil_fuse *fuse,
                               const struct cuvil_node *node) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  struct cuvil_window window;
  if (!x || x->rank != 4) return "only two spatial dimensions are supported";
  if (x->data) return "a constant operand was not folded";
  if (node->output_count > 1 && node->outputs[1] >= 0)
    return "the Indices output is not supported";
  if (cuvil_node_window(fuse->graph, node, &window) != CUVIL_OK)
    return "pads or strides are not valid";
  int64_t over[2];
  if (!cuvil_fuse_pool_pads(fuse, node, &window, over))
    return "pads or strides are not valid";
  return NULL;
}

static const char *refuse_reduce(const struct cuvil_fuse *fuse,
                                 const struct cuvil_node *node) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  unsigned mask;
  if (!x || x->data) return "a constant operand was not folded";
  if (!cuvil_fuse_axes(fuse, node, &mask))
    return "axes are computed, empty or out of range";
  return NULL;
}

/* Reshapes and the like: anything whose first input is computed. */
static const char *refuse_alias(const struct cuvil_fuse *fuse,
                                const struct cuvil_node *node) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  if (!x || x->data) return "a constant operand was not folded";
  return NULL;
}

static const char *refuse_part(const struct cuvil_fuse *fuse,
                               const struct cuvil_node *node) {
  struct cuvil_range ranges[CUVIL_GRAPH_MAX_RANK];
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  if (!x || x->data) return "a constant operand was not folded";
  return cuvil_fuse_ranges(fuse, node, ranges)
             ? NULL
             : "starts, ends or steps are computed or negative";
}

static const char *refuse_norm(const struct cuvil_fuse *fuse,
                               const struct cuvil_node *node) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  if (!x || x->data) return "a constant operand was not folded";
  for (int o = 1; o < node->output_count; ++o)
    if (node->outputs[o] >= 0) return "the statistics are used as outputs";
  for (int i = 1; i < node->input_count && i < 3; ++i) {
    const struct cuvil_value *v =
        value_of(fuse, cuvil_fuse_input(fuse, node, i));
    if (v && !v->data) return "scale or bias is computed, not constant";
  }
  return NULL;
}

static const char *refuse_gather(const struct cuvil_fuse *fuse,
                                 const struct cuvil_node *node) {
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  const struct cuvil_value *i = value_of(fuse, cuvil_fuse_input(fuse, node, 1));
  if (!x || !i || (x->data && i->data))
    return "a constant operand was not folded";
  int64_t axis = cuvil_node_int(node, "axis", 0);
  if (axis != 0 && axis != -x->rank) return "only rows are gathered (axis 0)";
  if (i->dtype != CUVIL_I64 && i->dtype != CUVIL_I32)
    return "indices are not int32 or int64";
  if (!is_float(x->dtype)) return "not a table of floating-point numbers";
  return NULL;
}

static const char *refuse_concat(const struct cuvil_fuse *fuse,
                                 const struct cuvil_node *node) {
  bool all_constant = true;
  for (int i = 0; i < node->input_count; ++i) {
    const struct cuvil_value *v =
        value_of(fuse, cuvil_fuse_input(fuse, node, i));
    if (!v) return "an operand is absent";
    all_constant = all_constant && v->data;
    const char *reason = refuse_float_value(v);
    if (reason) return reason;
  }
  return all_constant ? "a constant operand was not folded" : NULL;
}

static const char *refuse_pad(const struct cuvil_fuse *fuse,
                              const struct cuvil_node *node) {
  int64_t pads[2 * CUVIL_GRAPH_MAX_RANK];
  double number;
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  if (!x || x->data) return "a constant operand was not folded";
  return cuvil_fuse_pads(fuse, node, pads, &number)
             ? NULL
             : "only constant padding by known amounts is supported";
}

static const struct {
  const char *op;
  enum cuvil_class class;
  const char *(*refuse)(const struct cuvil_fuse *, const struct cuvil_node *);
} operators[] = {
    {"Conv", CUVIL_CLASS_CONV, refuse_conv},
    {"Gemm", CUVIL_CLASS_GEMM, refuse_gemm},
    {"MatMul", CUVIL_CLASS_GEMM, refuse_gemm},
    {"MaxPool", CUVIL_CLASS_POOL, refuse_pool},
    {"AveragePool", CUVIL_CLASS_POOL, refuse_pool},
    {"GlobalAveragePool", CUVIL_CLASS_REDUCE, refuse_reduce},
    {"GlobalMaxPool", CUVIL_CLASS_REDUCE, refuse_reduce},
    {"ReduceMean", CUVIL_CLASS_REDUCE, refuse_reduce},
    {"ReduceSum", CUVIL_CLASS_REDUCE, refuse_reduce},
    {"ReduceMax", CUVIL_CLASS_REDUCE, refuse_reduce},
    {"ReduceMin", CUVIL_CLASS_REDUCE, refuse_reduce},
    {"Softmax", CUVIL_CLASS_SOFTMAX, refuse_alias},
    {"LogSoftmax", CUVIL_CLASS_SOFTMAX, refuse_alias},
    {"LayerNormalization", CUVIL_CLASS_NORM, refuse_norm},
    {"RMSNormalization", CUVIL_CLASS_NORM, refuse_norm},
    {"AttentionCore", CUVIL_CLASS_ATTENTION, refuse_alias},
    {"Gather", CUVIL_CLASS_GATHER, refuse_gather},
    {"Concat", CUVIL_CLASS_CONCAT, refuse_concat},
    {"Pad", CUVIL_CLASS_PAD, refuse_pad},
    {"Transpose", CUVIL_CLASS_VIEW, refuse_alias},
    {"Expand", CUVIL_CLASS_VIEW, refuse_alias},
    {"Slice", CUVIL_CLASS_VIEW, refuse_part},
    {"Part", CUVIL_CLASS_VIEW, refuse_part},
    {"Reshape", CUVIL_CLASS_ALIAS, refuse_alias},
    {"Flatten", CUVIL_CLASS_ALIAS, refuse_alias},
    {"Squeeze", CUVIL_CLASS_ALIAS, refuse_alias},
    {"Unsqueeze", CUVIL_CLASS_ALIAS, refuse_alias},
};

bool cuvil_fuse_class_of(const char *op, enum cuvil_class *out) {
  for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); ++i) {
    if (strcmp(operators[i].op, op) != 0) continue;
    *out = operators[i].class;
    return true;
  }
  return false;
}

/* A softmax over the last axes is one problem, a Gather by one known index a
 * part of its table. */
static void refine_class(struct cuvil_fuse *fuse, int index) {
  const struct cuvil_node *node = &fuse->graph->nodes[index];
  enum cuvil_class *class = &fuse->classes[index];
  const struct cuvil_value *x = value_of(fuse, cuvil_fuse_input(fuse, node, 0));
  const struct cuvil_value *i = value_of(fuse, cuvil_fuse_input(fuse, node, 1));
  if (*class == CUVIL_CLASS_SOFTMAX && x && x->rank > 0) {
    int64_t after = 1;
    for (int a = cuvil_fuse_norm_axis(fuse, index) + 1; a < x->rank; ++a)
      after *= x->dims[a];
    if (node->opset < 13 || after == 1) *class = CUVIL_CLASS_NORM;
  }
  if (*class == CUVIL_CLASS_GATHER && x && !x->data && i && i->data &&
      cuvil_value_elements(i) == 1)
    *class = CUVIL_CLASS_VIEW;
}

static const char *classify_node(struct cuvil_fuse *fuse, int index) {
  const struct cuvil_node *node = &fuse->graph->nodes[index];
  enum cuvil_class *class = &fuse->classes[index];
  if (*class == CUVIL_CLASS_RENAME) return NULL;
  if (node->domain[0] && strcmp(node->domain, "ai.onnx") != 0)
    return "an operator of a custom domain";
  for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); ++i) {
    if (strcmp(operators[i].op, node->op) != 0) continue;
    const struct cuvil_value *out = &fuse->graph->values[node->outputs[0]];
    *class = operators[i].class;
    const char *reason = refuse_value(out);
    if (reason) return reason;
    refine_class(fuse, index);
    if (*class == CUVIL_CLASS_VIEW && operators[i].class == CUVIL_CLASS_GATHER)
      return refuse_part(fuse, node);
    if (*class != CUVIL_CLASS_VIEW && *class != CUVIL_CLASS_ALIAS &&
        !is_float(out->dtype))
      return "not a floating-point tensor";
    return operators[i].refuse(fuse, node);
  }
  *class = CUVIL_CLASS_POINTWISE;
  const char *reason = cuvil_express_refuses(fuse, node);
  return reason ? reason
                : refuse_float_value(&fuse->graph->values[node->outputs[0]]);
}

/* Identity, Dropout at inference, and casts between floating-point types when
 * the precision is chosen for the whole graph. */
static bool renames(const struct cuvil_fuse *fuse,
                    const struct cuvil_node *node) {
  if (node->domain[0] && strcmp(node->domain, "ai.onnx") != 0) return false;
  if (node->input_count < 1 || node->inputs[0] < 0) return false;
  if (strcmp(node->op, "Identity") == 0) return true;
  if (strcmp(node->op, "Dropout") == 0)
    return node->output_count < 2 || node->outputs[1] < 0;
  if (strcmp(node->op, "Cast") != 0) return false;
  enum cuvil_dtype from = fuse->graph->values[node->inputs[0]].dtype;
  enum cuvil_dtype to = fuse->graph->values[node->outputs[0]].dtype;
  if (from == to) return true;
  return is_float(from) && is_float(to) &&
         fuse->fused->options.precision != CUVIL_PRECISION_MODEL;
}

static bool is_empty(const struct cuvil_fuse *fuse, int value) {
  return value >= 0 && fuse->graph->values[value].rank > 0 &&
         cuvil_value_elements(&fuse->graph->values[value]) == 0;
}

/* What has no elements is not computed.  Only a concatenation can read it and
 * still have something to do. */
static const char *refuse_empty(const struct cuvil_fuse *fuse,
                                const struct cuvil_node *node) {
  if (strcmp(node->op, "Concat") == 0) return NULL;
  for (int i = 0; i < node->input_count; ++i) {
    int value = cuvil_fuse_input(fuse, node, i);
    if (is_empty(fuse, value) && !fuse->graph->values[value].data)
      return "empty tensor";
  }
  return NULL;
}

static void mark_live(struct cuvil_fuse *fuse, bool *needed) {
  const struct cuvil_graph *graph = fuse->graph;
  for (int i = 0; i < graph->output_count; ++i)
    needed[fuse->canon[graph->outputs[i]]] = true;
  for (int n = graph->node_count - 1; n >= 0; --n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed || fuse->classes[n] == CUVIL_CLASS_RENAME) continue;
    bool live = false;
    for (int o = 0; o < node->output_count; ++o)
      live |= node->outputs[o] >= 0 && needed[node->outputs[o]] &&
              !is_empty(fuse, node->outputs[o]);
    if (!live) continue;
    fuse->classes[n] =
        CUVIL_CLASS_POINTWISE; /* live; its real class is given below */
    for (int i = 0; i < node->input_count; ++i) {
      int value = cuvil_fuse_input(fuse, node, i);
      if (value >= 0) needed[value] = true;
    }
  }
}

/* ---- the refusal, one row for each operator and reason */

struct refusal {
  const char *op, *reason;
  int count;
  struct cuvil_buf names;
};
enum { MAX_REFUSALS = 64 };

static _Thread_local char unsupported_text[16384];

const char *cuvil_fusion_unsupported(void) {
  return unsupported_text;
}

static void refuse(struct refusal *rows, int *count, const char *op,
                   const char *reason, const char *name) {
  int row = 0;
  while (row < *count && (strcmp(rows[row].op, op) != 0 ||
                          strcmp(rows[row].reason, reason) != 0))
    ++row;
  if (row == *count) {
    if (row == MAX_REFUSALS) return;
    rows[row] = (struct refusal){.op = op, .reason = reason};
    ++*count;
  }
  cuvil_buf_printf(&rows[row].names, "%s%s", rows[row].count ? " " : "", name);
  ++rows[row].count;
}

static enum cuvil_status report(struct refusal *rows, int count) {
  struct cuvil_buf table = {0}, brief = {0};
  int nodes = 0;
  cuvil_buf_printf(&table, "%-20s %5s  %-48s %s\n", "operator", "count",
                   "reason", "names");
  for (int i = 0; i < count; ++i) {
    cuvil_buf_printf(&table, "%-20s %5d  %-48s %s\n", rows[i].op, rows[i].count,
                     rows[i].reason, cuvil_buf_text(&rows[i].names));
    if (i < 4)
      cuvil_buf_printf(&brief, "%s%s x%d (%s)", i ? ", " : "", rows[i].op,
                       rows[i].count, rows[i].reason);
    nodes += rows[i].count;
    cuvil_buf_free(&rows[i].names);
  }
  snprintf(unsupported_text, sizeof(unsupported_text), "%s",
           cuvil_buf_text(&table));
  enum cuvil_status status = CUVIL_FAIL(
      CU_ERR_MODEL_UNSUPPORTED,
      "%d node%s cannot be compiled: %s%s; `cuvil-compile --check` lists all",
      nodes, nodes == 1 ? "" : "s", cuvil_buf_text(&brief),
      count > 4 ? ", ..." : "");
  cuvil_buf_free(&table);
  cuvil_buf_free(&brief);
  return status;
}

static enum cuvil_status check_nodes(struct cuvil_fuse *fuse) {
  const struct cuvil_graph *graph = fuse->graph;
  struct refusal rows[MAX_REFUSALS];
  int count = 0;
  unsupported_text[0] = '\0';
  for (int i = 0; i < graph->input_count; ++i) {
    const struct cuvil_value *value = &graph->values[graph->inputs[i]];
    const char *reason = refuse_value(value);
    if (reason && !value->data)
      refuse(rows, &count, "(input)", reason, value->name);
  }
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed || fuse->classes[n] == CUVIL_CLASS_DEAD) continue;
    const char *reason = classify_node(fuse, n);
    if (!reason) reason = refuse_empty(fuse, node);
    const char *name = node->name[0] || node->output_count == 0
                           ? node->name
                           : graph->values[node->outputs[0]].name;
    if (reason) refuse(rows, &count, node->op, reason, name);
  }
  return count ? report(rows, count) : CUVIL_OK;
}

/* An alias reads only its first input as a tensor. */
static int data_inputs(const struct cuvil_fuse *fuse, int node) {
  return fuse->classes[node] == CUVIL_CLASS_ALIAS ||
                 fuse->classes[node] == CUVIL_CLASS_VIEW
             ? 1
             : fuse->graph->nodes[node].input_count;
}

static bool is_task(enum cuvil_class class) {
  return class != CUVIL_CLASS_DEAD && class != CUVIL_CLASS_RENAME;
}

static enum cuvil_status count_users(struct cuvil_fuse *fuse) {
  const struct cuvil_graph *graph = fuse->graph;
  int edges = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int n = 0; n < graph->node_count; ++n) {
      if (graph->nodes[n].removed || !is_task(fuse->classes[n])) continue;
      for (int i = 0; i < data_inputs(fuse, n); ++i) {
        int value = cuvil_fuse_input(fuse, &graph->nodes[n], i);
        if (value < 0) continue;
        if (pass == 0) {
          ++fuse->user_start[value + 1];
          ++edges;
        } else {
          fuse->user_nodes[fuse->user_start[value]++] = n;
        }
      }
    }
    if (pass == 1) break;
    for (int v = 0; v < graph->value_count; ++v)
      fuse->user_start[v + 1] += fuse->user_start[v];
    fuse->user_nodes =
        cuvil_arena_array(&fuse->scratch, (size_t)edges + 1, sizeof(int));
    if (!fuse->user_nodes)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: users");
  }
  /* Filling moved every start to its end. */
  for (int v = graph->value_count; v > 0; --v)
    fuse->user_start[v] = fuse->user_start[v - 1];
  fuse->user_start[0] = 0;
  for (int i = 0; i < graph->output_count; ++i)
    ++fuse->output_uses[fuse->canon[graph->outputs[i]]];
  return CUVIL_OK;
}

enum cuvil_status cuvil_fuse_classify(struct cuvil_fuse *fuse) {
  const struct cuvil_graph *graph = fuse->graph;
  size_t values = (size_t)graph->value_count + 1;
  size_t nodes = (size_t)graph->node_count + 1;
  fuse->canon = cuvil_arena_array(&fuse->scratch, values, sizeof(int));
  fuse->user_start = cuvil_arena_array(&fuse->scratch, values, sizeof(int));
  fuse->output_uses = cuvil_arena_array(&fuse->scratch, values, sizeof(int));
  fuse->classes =
      cuvil_arena_array(&fuse->scratch, nodes, sizeof(*fuse->classes));
  bool *needed = cuvil_arena_array(&fuse->scratch, values, sizeof(bool));
  if (!fuse->canon || !fuse->user_start || !fuse->output_uses ||
      !fuse->classes || !needed)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing %d nodes",
                      graph->node_count);
  for (int v = 0; v < graph->value_count; ++v)
    fuse->canon[v] = v;
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed || !renames(fuse, node)) continue;
    fuse->classes[n] = CUVIL_CLASS_RENAME;
    fuse->canon[node->outputs[0]] = fuse->canon[node->inputs[0]];
  }
  mark_live(fuse, needed);
  CUVIL_TRY(check_nodes(fuse));
  return count_users(fuse);
}
