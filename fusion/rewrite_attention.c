/* rewrite_attention.c - softmax(scale q k^T + mask) v, and rotary embeddings.
 *
 * The pattern is found from its Softmax.  Between the scores and it stand, in
 * any order that means the same, a scale and masks: an Add of a mask that
 * broadcasts to the scores, or a Where whose other branch is a large negative
 * number.  A constant mask that is causal becomes a flag, one that does
 * nothing goes.  Scales may stand on either operand instead.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fusion/rewrite.h"

enum { NO_EFFECT, CAUSAL, OTHER };
static const double far_below = -1e4; /* excludes a key */

struct found {
  int q, k, v, mask; /* values; mask -1: none */
  bool causal, keep;
  double scale;
};

/* Element (i, j) of the mask's last two axes, for each of its leading ones. */
static double element(const struct cuvil_value *mask, int64_t matrix, int64_t i,
                      int64_t j) {
  int64_t rows = mask->rank > 1 ? mask->dims[mask->rank - 2] : 1;
  int64_t columns = mask->rank > 0 ? mask->dims[mask->rank - 1] : 1;
  if (rows == 1) i = 0;
  if (columns == 1) j = 0;
  return cuvil_load(mask->dtype, mask->data,
                    (size_t)((matrix * rows + i) * columns + j));
}

/* What a constant mask does to scores of sq x skv.  `allowed(value)` is 0 for
 * added masks; for boolean ones true or, with `inverted`, false. */
static int judge(const struct cuvil_value *mask, bool boolean, bool inverted,
                 int64_t sq, int64_t skv) {
  int64_t rows = mask->rank > 1 ? mask->dims[mask->rank - 2] : 1;
  int64_t columns = mask->rank > 0 ? mask->dims[mask->rank - 1] : 1;
  int64_t matrices = cuvil_value_elements(mask) / (rows * columns);
  bool nothing = true, causal = true;
  for (int64_t m = 0; m < matrices; ++m)
    for (int64_t i = 0; i < sq; ++i)
      for (int64_t j = 0; j < skv && (nothing || causal); ++j) {
        double value = element(mask, m, i, j);
        bool pass = boolean ? (value != 0) != inverted : value == 0;
        bool stop = boolean ? !pass : value <= far_below;
        nothing = nothing && pass;
        causal = causal && (j <= i + skv - sq ? pass : stop);
      }
  return nothing ? NO_EFFECT : causal ? CAUSAL : OTHER;
}

/* Takes one mask into what was found; false when there is no place for it. */
static bool take_mask(const struct cuvil_graph *graph, int mask, bool boolean,
                      bool inverted, const struct cuvil_value *scores,
                      struct found *out) {
  const struct cuvil_value *m = &graph->values[mask];
  int64_t sq = scores->dims[scores->rank - 2];
  int64_t skv = scores->dims[scores->rank - 1];
  if (m->rank < 0 || m->rank > scores->rank) return false;
  for (int i = 0; i < m->rank; ++i)
    if (m->dims[i] != 1 &&
        m->dims[i] != scores->dims[i + scores->rank - m->rank])
      return false;
  if (m->data) {
    int what = judge(m, boolean, inverted, sq, skv);
    if (what == CAUSAL) out->causal = true;
    if (what != OTHER) return true;
  }
  if (out->mask >= 0 || (boolean && inverted)) return false;
  if (boolean ? m->dtype != CUVIL_BOOL : !cuvil_dtype_is_float(m->dtype))
    return false;
  out->mask = mask;
  out->keep = boolean;
  return true;
}

static bool far_constant(const struct cuvil_graph *graph, int value) {
  double scalar;
  return cuvil_constant_scalar(graph, value, &scalar) && scalar <= far_below;
}

static bool same_dims(const struct cuvil_value *a,
                      const struct cuvil_value *b) {
  return a->rank == b->rank &&
         memcmp(a->dims, b->dims, (size_t)a->rank * sizeof(a->dims[0])) == 0;
}

/* Follows numbers that multiply; returns what they multiply. */
static int peel_scale(const struct cuvil_graph *graph, int value,
                      double *scale) {
  for (;;) {
    const struct cuvil_node *mul = cuvil_made_by(graph, value, "Mul");
    const struct cuvil_node *div = cuvil_made_by(graph, value, "Div");
    double scalar;
    if (div && cuvil_constant_scalar(graph, div->inputs[1], &scalar) &&
        same_dims(&graph->values[value], &graph->values[div->inputs[0]])) {
      *scale /= scalar;
      value = div->inputs[0];
      continue;
    }
    if (!mul) return value;
    int other = -1;
    for (int i = 0; i < 2 && other < 0; ++i)
      if (cuvil_constant_scalar(graph, mul->inputs[i], &scalar))
        other = mul->inputs[1 - i];
    if (other < 0 || !same_dims(&graph->values[value], &graph->values[other]))
      return value;
    *scale *= scalar;
    value = other;
  }
}

/* The condition of a choice of 0 where it holds and -inf where not, made at
 * run time; -1: it is none. */
static int open_where(const struct cuvil_graph *graph, int mask) {
  const struct cuvil_node *where = cuvil_made_by(graph, mask, "Where");
  double open, closed;
  if (!where || !cuvil_constant_scalar(graph, where->inputs[1], &open) ||
      !cuvil_constant_scalar(graph, where->inputs[2], &closed))
    return -1;
  return open == 0 && isinf(closed) && closed < 0 ? where->inputs[0] : -1;
}

/* From the softmax's input down to the scores' product; NULL: no attention. */
static const struct cuvil_node *scores_of(const struct cuvil_graph *graph,
                                          int value, struct found *out) {
  for (int depth = 0; depth < 8; ++depth) {
    const struct cuvil_node *product = cuvil_made_by(graph, value, "MatMul");
    if (product) return product;
    const struct cuvil_value *scores = &graph->values[value];
    int unscaled = peel_scale(graph, value, &out->scale);
    if (unscaled != value) {
      value = unscaled;
      /* A scale below a mask would scale the mask. */
      return cuvil_made_by(graph, value, "MatMul");
    }
    const struct cuvil_node *add = cuvil_made_by(graph, value, "Add");
    const struct cuvil_node *where = cuvil_made_by(graph, value, "Where");
    int next = -1;
    for (int i = 0; add && i < 2 && next < 0; ++i) {
      double ignored = 1;
      int side = add->inputs[1 - i];
      int below = peel_scale(graph, add->inputs[i], &ignored);
      int test = open_where(graph, side);
      bool leads = cuvil_made_by(graph, below, "MatMul") ||
                   cuvil_made_by(graph, below, "Add") ||
                   cuvil_made_by(graph, below, "Where");
      if (leads && same_dims(&graph->values[add->inputs[i]], scores) &&
          ((test >= 0 && take_mask(graph, test, true, false, scores, out)) ||
           take_mask(graph, side, false, false, scores, out)))
        next = add->inputs[i];
    }
    if (where) {
      int test = where->inputs[0];
      bool inverted = far_constant(graph, where->inputs[1]);
      if (!inverted && !far_constant(graph, where->inputs[2])) return NULL;
      int rest = where->inputs[inverted ? 2 : 1];
      if (same_dims(&graph->values[rest], scores) &&
          take_mask(graph, test, true, inverted, scores, out))
        next = rest;
    }
    if (next < 0) return NULL;
    value = next;
  }
  return NULL;
}

static bool leading_agree(const struct cuvil_value *a,
                          const struct cuvil_value *b) {
  return a->rank == b->rank &&
         memcmp(a->dims, b->dims, (size_t)(a->rank - 2) * sizeof(a->dims[0])) ==
             0;
}

/* Where(IsNaN(p), 0, p) for p of a softmax: a row that a mask closes gives
 * zeros, as AttentionCore does anyway (but for an additive mask, of which that
 * is left open).  Returns what stands for p. */
static int behind_guard(const struct cuvil_graph *graph, int p) {
  const struct cuvil_value *value = &graph->values[p];
  if (value->user_count != 2 || value->is_output) return p;
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *where = &graph->nodes[n];
    double zero;
    if (where->removed || strcmp(where->op, "Where") != 0 ||
        where->inputs[2] != p)
      continue;
    const struct cuvil_node *nan =
        cuvil_made_by(graph, where->inputs[0], "IsNaN");
    if (nan && nan->inputs[0] == p &&
        cuvil_constant_scalar(graph, where->inputs[1], &zero) && zero == 0)
      return where->outputs[0];
  }
  return p;
}

static enum cuvil_status try_attention(struct cuvil_graph *graph, int softmax) {
  const struct cuvil_node *node = &graph->nodes[softmax];
  const struct cuvil_value *p = &graph->values[node->outputs[0]];
  struct found found = {.mask = -1, .scale = 1};
  int64_t axis = cuvil_node_int(node, "axis", node->opset < 13 ? 1 : -1);
  if (axis < 0) axis += p->rank;
  if (p->rank < 3 || axis != p->rank - 1 || cuvil_value_elements(p) <= 0)
    return CUVIL_OK;
  int weights = behind_guard(graph, node->outputs[0]);
  int user = cuvil_only_user(graph, weights);
  if (user < 0 || strcmp(graph->nodes[user].op, "MatMul") != 0 ||
      graph->nodes[user].inputs[0] != weights)
    return CUVIL_OK;
  found.v = graph->nodes[user].inputs[1];
  const struct cuvil_node *product = scores_of(graph, node->inputs[0], &found);
  if (!product || product->domain[0]) return CUVIL_OK;
  found.q = peel_scale(graph, product->inputs[0], &found.scale);
  found.k = peel_scale(graph, product->inputs[1], &found.scale);
  const struct cuvil_value *q = &graph->values[found.q];
  const struct cuvil_value *k = &graph->values[found.k];
  const struct cuvil_value *v = &graph->values[found.v];
  if (q->data || k->data || v->data || !leading_agree(q, p) ||
      !leading_agree(k, p) || !leading_agree(v, p) || !isfinite(found.scale) ||
      q->dtype != k->dtype || q->dtype != v->dtype)
    return CUVIL_OK;
  int inputs[4] = {found.q, found.k, found.v, found.mask};
  CUVIL_TRY(cuvil_replace_node(graph, user, "AttentionCore",
                               found.mask >= 0 ? 4 : 3, inputs));
  CUVIL_TRY(cuvil_set_float(graph, user, "scale", found.scale));
  CUVIL_TRY(cuvil_graph_set_int(graph, user, "causal", found.causal));
  CUVIL_TRY(cuvil_graph_set_int(graph, user, "keep", found.keep));
  return cuvil_graph_set_int(graph, user, "turned", 1);
}

enum cuvil_status cuvil_rewrite_attention(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n)
    if (!graph->nodes[n].removed && strcmp(graph->nodes[n].op, "Softmax") == 0)
      CUVIL_TRY(try_attention(graph, n));
  return CUVIL_OK;
}

/* ---- rotary embeddings
 *
 * x cos + turn(x) sin, where turn swaps the halves of the last axis and
 * negates what becomes the first.  Over two halves of x this is
 *     x cos + high s + low t,    s = (-sin, 0),  t = (0, sin)
 * whose last two terms read the halves of x broadcast, so that one pointwise
 * task does it without moving anything. */

struct rotary {
  int x, cosine, sine;
};

/* The part of x along its last axis: which half; -1: it is none. */
static int half_of(const struct cuvil_graph *graph, int value, int *out_x) {
  const struct cuvil_node *part = cuvil_made_by(graph, value, "Part");
  const struct cuvil_node *slice = cuvil_made_by(graph, value, "Slice");
  const struct cuvil_node *node = part ? part : slice;
  if (!node) return -1;
  *out_x = node->inputs[0];
  const struct cuvil_value *x = &graph->values[*out_x];
  int64_t extent = x->dims[x->rank - 1], start;
  if (graph->values[value].dims[x->rank - 1] * 2 != extent) return -1;
  for (int i = 0; i < x->rank - 1; ++i)
    if (graph->values[value].dims[i] != x->dims[i]) return -1;
  if (part) {
    start = cuvil_node_int(part, "start", 0);
  } else {
    double number;
    if (slice->input_count < 3 ||
        !cuvil_constant_scalar(graph, slice->inputs[1], &number))
      return -1;
    if (slice->input_count > 4 &&
        !cuvil_constant_near(graph, slice->inputs[4], 1))
      return -1;
    start = (int64_t)number;
    if (start < 0) start += extent;
  }
  return start == 0 ? 0 : start * 2 == extent ? 1 : -1;
}

static bool is_turn(const struct cuvil_graph *graph, int value, int *out_x) {
  const struct cuvil_node *concat = cuvil_made_by(graph, value, "Concat");
  int low_x, high_x;
  if (!concat || concat->input_count != 2) return false;
  int64_t axis = cuvil_node_int(concat, "axis", 0);
  int rank = graph->values[value].rank;
  if (axis != -1 && axis != rank - 1) return false;
  const struct cuvil_node *neg = cuvil_made_by(graph, concat->inputs[0], "Neg");
  if (!neg || half_of(graph, neg->inputs[0], &high_x) != 1 ||
      half_of(graph, concat->inputs[1], &low_x) != 0 || low_x != high_x)
    return false;
  *out_x = low_x;
  return true;
}

/* The other operand of a Mul, when it is a constant of x's last extent. */
static int table_beside(const struct cuvil_graph *graph,
                        const struct cuvil_node *mul, int value) {
  int table = mul->inputs[0] == value ? mul->inputs[1] : mul->inputs[0];
  const struct cuvil_value *t = &graph->values[table];
  const struct cuvil_value *v = &graph->values[value];
  bool fits = t->data && cuvil_dtype_is_float(t->dtype) && t->rank >= 1 &&
              t->rank <= v->rank &&
              t->dims[t->rank - 1] == v->dims[v->rank - 1];
  return fits ? table : -1;
}

static bool find_rotary(const struct cuvil_graph *graph,
                        const struct cuvil_node *add, struct rotary *out) {
  for (int i = 0; i < 2; ++i) {
    const struct cuvil_node *a = cuvil_made_by(graph, add->inputs[i], "Mul");
    const struct cuvil_node *b =
        cuvil_made_by(graph, add->inputs[1 - i], "Mul");
    if (!a || !b) return false;
    for (int j = 0; j < 2; ++j) {
      int turned = b->inputs[j];
      if (!is_turn(graph, turned, &out->x) ||
          (a->inputs[0] != out->x && a->inputs[1] != out->x))
        continue;
      out->cosine = table_beside(graph, a, out->x);
      out->sine = table_beside(graph, b, turned);
      if (out->cosine >= 0 && out->sine >= 0) return true;
    }
  }
  return false;
}

enum { COSINE, HIGH, LOW };

/* A table over [.., 2, half] made of cos or sin. */
static enum cuvil_status make_table(struct cuvil_graph *graph, int from,
                                    int which, int *out) {
  const struct cuvil_value v = graph->values[from];
  int64_t count = cuvil_value_elements(&v), columns = v.dims[v.rank - 1];
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  float *data =
      cuvil_arena_array(&graph->arena, (size_t)count + 1, sizeof(float));
  if (!data) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing: rewriting");
  for (int64_t i = 0; i < count; ++i) {
    bool first = i % columns < columns / 2;
    float value = (float)cuvil_load(v.dtype, v.data, (size_t)i);
    data[i] = which == COSINE ? value
              : which == HIGH ? (first ? -value : 0)
                              : (first ? 0 : value);
  }
  memcpy(dims, v.dims, sizeof(dims));
  dims[v.rank - 1] = 2;
  dims[v.rank] = columns / 2;
  return cuvil_new_constant(graph, v.name, CUVIL_F32, v.rank + 1, dims, data,
                            out);
}

static enum cuvil_status insert(struct cuvil_graph *graph, int *at,
                                const char *op, int count, const int *inputs,
                                int rank, const int64_t *dims, int *out) {
  const char *name = graph->values[graph->nodes[*at].outputs[0]].name;
  CUVIL_TRY(
      cuvil_insert_node(graph, *at, name, op, count, inputs, rank, dims, out));
  ++*at;
  return CUVIL_OK;
}

static enum cuvil_status rewrite_rotary(struct cuvil_graph *graph, int *at,
                                        const struct rotary *r) {
  struct cuvil_value x = graph->values[r->x];
  int rank = x.rank + 1, tables[3], whole, parts[2], terms[3], sum;
  int64_t dims[CUVIL_GRAPH_MAX_RANK], half[CUVIL_GRAPH_MAX_RANK];
  memcpy(dims, x.dims, sizeof(dims));
  dims[rank - 2] = 2;
  dims[rank - 1] = x.dims[x.rank - 1] / 2;
  memcpy(half, dims, sizeof(half));
  half[rank - 2] = 1;
  CUVIL_TRY(make_table(graph, r->cosine, COSINE, &tables[0]));
  CUVIL_TRY(make_table(graph, r->sine, HIGH, &tables[1]));
  CUVIL_TRY(make_table(graph, r->sine, LOW, &tables[2]));
  CUVIL_TRY(insert(graph, at, "Reshape", 1, &r->x, rank, dims, &whole));
  for (int i = 0; i < 2; ++i) {
    CUVIL_TRY(insert(graph, at, "Part", 1, &whole, rank, half, &parts[i]));
    CUVIL_TRY(cuvil_graph_set_int(graph, *at - 1, "axis", rank - 2));
    CUVIL_TRY(cuvil_graph_set_int(graph, *at - 1, "start", i));
    CUVIL_TRY(cuvil_graph_set_int(graph, *at - 1, "count", 1));
  }
  int factors[3] = {whole, parts[1], parts[0]};
  for (int i = 0; i < 3; ++i)
    CUVIL_TRY(insert(graph, at, "Mul", 2, (int[]){factors[i], tables[i]}, rank,
                     dims, &terms[i]));
  CUVIL_TRY(insert(graph, at, "Add", 2, (int[]){terms[0], terms[1]}, rank, dims,
                   &sum));
  CUVIL_TRY(
      insert(graph, at, "Add", 2, (int[]){sum, terms[2]}, rank, dims, &sum));
  CUVIL_TRY(cuvil_replace_node(graph, *at, "Reshape", 1, &sum));
  cuvil_graph_relink(graph);
  return CUVIL_OK;
}

enum cuvil_status cuvil_rewrite_rotary(struct cuvil_graph *graph) {
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    struct rotary found;
    if (node->removed || strcmp(node->op, "Add") != 0 ||
        !find_rotary(graph, node, &found))
      continue;
    const struct cuvil_value *x = &graph->values[found.x];
    const struct cuvil_value *y = &graph->values[node->outputs[0]];
    if (x->data || x->rank + 1 > 6 || !same_dims(x, y)) continue;
    CUVIL_TRY(rewrite_rotary(graph, &n, &found));
  }
  return CUVIL_OK;
}
