/* rewrite_norm.c - activations and normalisations that exporters take apart.
 *
 * An activation is a product in any order of its factors; the factor with the
 * function in it names x, and the others must be x and numbers.
 */
#include <math.h>
#include <string.h>

#include "fusion/rewrite.h"

/* ---- activations */

/* Factors of a product of at most a few Muls (and a Div by a number), where
 * expansion stops at x. */
struct product {
  int factors[8], count;
  double number;
};

static void expand(const struct cuvil_graph *graph, int value, int stop,
                   int depth, struct product *out) {
  double scalar;
  const struct cuvil_node *mul = cuvil_made_by(graph, value, "Mul");
  const struct cuvil_node *div = cuvil_made_by(graph, value, "Div");
  if (cuvil_constant_scalar(graph, value, &scalar)) {
    out->number *= scalar;
  } else if (value != stop && depth > 0 && mul) {
    expand(graph, mul->inputs[0], stop, depth - 1, out);
    expand(graph, mul->inputs[1], stop, depth - 1, out);
  } else if (value != stop && depth > 0 && div &&
             cuvil_constant_scalar(graph, div->inputs[1], &scalar)) {
    out->number /= scalar;
    expand(graph, div->inputs[0], stop, depth - 1, out);
  } else if (out->count < 8) {
    out->factors[out->count++] = value;
  }
}

static bool near(double a, double b) {
  return fabs(a - b) <= 2e-3 * fabs(b);
}

/* x of x^3, however it is multiplied. */
static int cube_of(const struct cuvil_graph *graph, int value) {
  const struct cuvil_node *pow = cuvil_made_by(graph, value, "Pow");
  if (pow && cuvil_constant_near(graph, pow->inputs[1], 3))
    return pow->inputs[0];
  struct product p = {.number = 1};
  expand(graph, value, -1, 2, &p);
  return p.count == 3 && p.number == 1 && p.factors[0] == p.factors[1] &&
                 p.factors[1] == p.factors[2]
             ? p.factors[0]
             : -1;
}

/* x of sqrt(2/pi) (x + 0.044715 x^3). */
static int tanh_argument(const struct cuvil_graph *graph, int value) {
  int sum = cuvil_with_scalar(graph, value, "Mul", 0.7978845608);
  const struct cuvil_node *add = cuvil_made_by(graph, sum, "Add");
  if (add) {
    for (int i = 0; i < 2; ++i) {
      int x = add->inputs[i];
      int cube = cuvil_with_scalar(graph, add->inputs[1 - i], "Mul", 0.044715);
      if (cube >= 0 && cube_of(graph, cube) == x) return x;
    }
  }
  /* sqrt(2/pi) x (1 + 0.044715 x x) */
  struct product p = {.number = 1};
  expand(graph, value, -1, 3, &p);
  if (p.count != 2 || !near(p.number, 0.7978845608)) return -1;
  for (int i = 0; i < 2; ++i) {
    int x = p.factors[i];
    int square = cuvil_with_scalar(graph, p.factors[1 - i], "Add", 1);
    struct product q = {.number = 1};
    if (square < 0) continue;
    expand(graph, square, x, 2, &q);
    if (q.count == 2 && q.factors[0] == x && q.factors[1] == x &&
        near(q.number, 0.044715))
      return x;
  }
  return -1;
}

/* x when the value is 1 + erf(x / sqrt 2) or 1 + tanh(...). */
static int gelu_factor(const struct cuvil_graph *graph, int value,
                       bool *out_tanh) {
  int inner = cuvil_with_scalar(graph, value, "Add", 1);
  const struct cuvil_node *erf = cuvil_made_by(graph, inner, "Erf");
  const struct cuvil_node *tanh = cuvil_made_by(graph, inner, "Tanh");
  *out_tanh = tanh != NULL;
  if (tanh) return tanh_argument(graph, tanh->inputs[0]);
  if (!erf) return -1;
  int x = cuvil_with_scalar(graph, erf->inputs[0], "Div", 1.4142135624);
  return x >= 0 ? x
                : cuvil_with_scalar(graph, erf->inputs[0], "Mul", 0.7071067812);
}

static enum cuvil_status try_gelu(struct cuvil_graph *graph, int node,
                                  bool *done) {
  int result = graph->nodes[node].outputs[0];
  struct product p = {.number = 1};
  expand(graph, result, -1, 3, &p);
  for (int i = 0; i < p.count; ++i) {
    bool tanh;
    int x = gelu_factor(graph, p.factors[i], &tanh);
    if (x < 0) continue;
    struct product q = {.number = 1};
    expand(graph, result, x, 3, &q);
    if (q.count != 2 || !near(q.number, 0.5) ||
        (q.factors[0] != x && q.factors[1] != x))
      continue;
    CUVIL_TRY(cuvil_replace_node(graph, node, "Gelu", 1, &x));
    struct cuvil_attribute how = {.name = "approximate",
                                  .kind = CUVIL_ATTR_STRING,
                                  .s = tanh ? "tanh" : "none"};
    *done = true;
    return cuvil_graph_set_attribute(graph, node, &how);
  }
  return CUVIL_OK;
}

/* clip(x + 3, 0, 6); its x. */
static int clip_factor(const struct cuvil_graph *graph, int value) {
  const struct cuvil_node *clip = cuvil_made_by(graph, value, "Clip");
  if (!clip) return -1;
  double low = cuvil_node_float(clip, "min", 1);
  double high = cuvil_node_float(clip, "max", 1);
  if (clip->input_count > 1)
    (void)cuvil_constant_scalar(graph, clip->inputs[1], &low);
  if (clip->input_count > 2)
    (void)cuvil_constant_scalar(graph, clip->inputs[2], &high);
  return low == 0 && high == 6
             ? cuvil_with_scalar(graph, clip->inputs[0], "Add", 3)
             : -1;
}

static enum cuvil_status try_switch(struct cuvil_graph *graph, int node) {
  int result = graph->nodes[node].outputs[0];
  struct product p = {.number = 1};
  expand(graph, result, -1, 2, &p);
  for (int i = 0; i < p.count; ++i) {
    const struct cuvil_node *sigmoid =
        cuvil_made_by(graph, p.factors[i], "Sigmoid");
    const struct cuvil_node *hard =
        cuvil_made_by(graph, p.factors[i], "HardSigmoid");
    int clipped = clip_factor(graph, p.factors[i]);
    int x = sigmoid ? sigmoid->inputs[0] : hard ? hard->inputs[0] : clipped;
    if (x < 0) continue;
    struct product q = {.number = 1};
    expand(graph, result, x, 2, &q);
    if (q.count != 2 || (q.factors[0] != x && q.factors[1] != x)) continue;
    if (sigmoid) {
      if (q.number == 1) return cuvil_replace_node(graph, node, "Silu", 1, &x);
    } else if (hard ? q.number == 1 &&
                          near(cuvil_node_float(hard, "alpha", 0.2), 1 / 6.0) &&
                          near(cuvil_node_float(hard, "beta", 0.5), 0.5)
                    : near(q.number, 1 / 6.0)) {
      return cuvil_replace_node(graph, node, "HardSwish", 1, &x);
    }
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_rewrite_activations(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    bool done = false;
    if (node->removed ||
        (strcmp(node->op, "Mul") != 0 && strcmp(node->op, "Div") != 0) ||
        graph->values[node->outputs[0]].rank < 0)
      continue;
    CUVIL_TRY(try_gelu(graph, n, &done));
    if (!done) CUVIL_TRY(try_switch(graph, n));
  }
  return CUVIL_OK;
}

/* ---- normalisations */

/* x of a mean over the last axes, kept; the first of them in *axis. */
static int mean_of(const struct cuvil_graph *graph, int value, int *axis) {
  const struct cuvil_node *mean = cuvil_made_by(graph, value, "ReduceMean");
  if (!mean || !cuvil_node_int(mean, "keepdims", 1)) return -1;
  int64_t axes[CUVIL_GRAPH_MAX_RANK];
  int count = cuvil_node_ints(mean, "axes", axes, CUVIL_GRAPH_MAX_RANK);
  if (mean->input_count > 1 && mean->inputs[1] >= 0) {
    const struct cuvil_value *given = &graph->values[mean->inputs[1]];
    if (!given->data || cuvil_value_elements(given) > CUVIL_GRAPH_MAX_RANK)
      return -1;
    count = (int)cuvil_value_elements(given);
    for (int i = 0; i < count; ++i)
      axes[i] = (int64_t)cuvil_load(given->dtype, given->data, (size_t)i);
  }
  int rank = graph->values[mean->inputs[0]].rank;
  unsigned mask = 0;
  for (int i = 0; i < count; ++i) {
    int64_t at = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (at < 0 || at >= rank) return -1;
    mask |= 1u << at;
  }
  *axis = rank - count;
  return count > 0 && mask == ((1u << rank) - 1) - ((1u << *axis) - 1)
             ? mean->inputs[0]
             : -1;
}

static int square_of(const struct cuvil_graph *graph, int value) {
  const struct cuvil_node *pow = cuvil_made_by(graph, value, "Pow");
  const struct cuvil_node *mul = cuvil_made_by(graph, value, "Mul");
  if (pow && cuvil_constant_near(graph, pow->inputs[1], 2))
    return pow->inputs[0];
  return mul && mul->inputs[0] == mul->inputs[1] ? mul->inputs[0] : -1;
}

/* y when the value is sqrt(mean(y^2) + eps). */
static int deviation_of(const struct cuvil_graph *graph, int value, int *axis,
                        double *epsilon) {
  const struct cuvil_node *root = cuvil_made_by(graph, value, "Sqrt");
  const struct cuvil_node *pow = cuvil_made_by(graph, value, "Pow");
  int inner = root ? root->inputs[0] : -1;
  if (pow && cuvil_constant_near(graph, pow->inputs[1], 0.5))
    inner = pow->inputs[0];
  const struct cuvil_node *add = cuvil_made_by(graph, inner, "Add");
  if (!add) return -1;
  for (int i = 0; i < 2; ++i) {
    if (!cuvil_constant_scalar(graph, add->inputs[i], epsilon)) continue;
    int mean = mean_of(graph, add->inputs[1 - i], axis);
    return mean < 0 ? -1 : square_of(graph, mean);
  }
  return -1;
}

/* y when the value is one over that. */
static int inverse_deviation_of(const struct cuvil_graph *graph, int value,
                                int *axis, double *epsilon) {
  const struct cuvil_node *one = cuvil_made_by(graph, value, "Reciprocal");
  const struct cuvil_node *div = cuvil_made_by(graph, value, "Div");
  if (one) return deviation_of(graph, one->inputs[0], axis, epsilon);
  if (div && cuvil_constant_near(graph, div->inputs[0], 1))
    return deviation_of(graph, div->inputs[1], axis, epsilon);
  return -1;
}

/* Old exports compute x - mean(x) twice. */
static bool same_difference(const struct cuvil_graph *graph, int a, int b) {
  if (a == b) return true;
  const struct cuvil_node *x = cuvil_made_by(graph, a, "Sub");
  const struct cuvil_node *y = cuvil_made_by(graph, b, "Sub");
  int axis_x, axis_y;
  return x && y && x->inputs[0] == y->inputs[0] &&
         mean_of(graph, x->inputs[1], &axis_x) == x->inputs[0] &&
         mean_of(graph, y->inputs[1], &axis_y) == x->inputs[0] &&
         axis_x == axis_y;
}

static enum cuvil_status try_norm(struct cuvil_graph *graph, int node) {
  const struct cuvil_node *n = &graph->nodes[node];
  bool div = strcmp(n->op, "Div") == 0;
  int axis = 0, mean_axis = 0;
  double epsilon = 0;
  for (int i = 0; i < (div ? 1 : 2); ++i) {
    int top = n->inputs[i], below = n->inputs[1 - i];
    int y = div ? deviation_of(graph, below, &axis, &epsilon)
                : inverse_deviation_of(graph, below, &axis, &epsilon);
    if (y < 0 || epsilon < 0 || !same_difference(graph, top, y)) continue;
    const struct cuvil_node *sub = cuvil_made_by(graph, top, "Sub");
    bool layer = sub &&
                 mean_of(graph, sub->inputs[1], &mean_axis) == sub->inputs[0] &&
                 mean_axis == axis;
    int x = layer ? sub->inputs[0] : top;
    CUVIL_TRY(cuvil_replace_node(
        graph, node, layer ? "LayerNormalization" : "RMSNormalization", 1, &x));
    CUVIL_TRY(cuvil_graph_set_int(graph, node, "axis", axis));
    return cuvil_set_float(graph, node, "epsilon", epsilon);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_rewrite_norms(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (!node->removed && graph->values[node->outputs[0]].rank > 0 &&
        (strcmp(node->op, "Div") == 0 || strcmp(node->op, "Mul") == 0))
      CUVIL_TRY(try_norm(graph, n));
  }
  return CUVIL_OK;
}
