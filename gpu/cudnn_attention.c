/* cudnn_attention.c - attention as cuDNN's operation graph.
 *
 *   q, k^T -> matmul -> * scale [-> + mask] [-> causal select] -> softmax
 *          -> matmul with v -> o
 *
 * cuDNN knows a fused attention by the shape of its graph, so this is built
 * operation for operation as NVIDIA's own frontend builds it (cudnn-frontend,
 * scaled_dot_product_flash_attention.h, softmax.h and diagonal_band_mask.h):
 * the softmax spelled out as max, sub, exp, sum, div, with its logarithm of the
 * sum that nobody reads; the causal select from generated row and column
 * numbers.  Between the two products all is virtual and fp32, but what the
 * second reads is of the operands' type.  k is given as the transposed matrix
 * that the first product takes.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "gpu/cudnn.h"

enum { ID_Q = 1, ID_K, ID_V, ID_O, ID_MASK, ID_NEXT };
enum { MOST_OPERATIONS = 20, EXCLUDES_BY_INFINITY = 91000 };

/* ---- reading the call */
static enum cuvil_status type_of(const json_t *call, bool fp32_too,
                                 int *out_type) {
  int dtype;
  CUVIL_TRY(cuvil_call_dtype(call, "dtype", &dtype));
  if (dtype == CUVIL_F16)
    *out_type = DNN_HALF;
  else if (dtype == CUVIL_BF16)
    *out_type = DNN_BFLOAT16;
  else if (dtype == CUVIL_F32 && fp32_too)
    *out_type = DNN_FLOAT;
  else
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "cuDNN attention of type %s",
                      cuvil_dtype_name((enum cuvil_dtype)dtype));
  return CUVIL_OK;
}

static enum cuvil_status need_ints(const json_t *call, const char *key,
                                   int64_t *out) {
  bool present;
  CUVIL_TRY(cuvil_call_ints(call, key, 4, out, &present));
  if (present) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_PARSE, "library call: \"%s\" is missing", key);
}

static enum cuvil_status read_mask(const json_t *call,
                                   struct dnn_attention *out) {
  const json_t *mask = json_object_get(call, "mask");
  const int64_t whole[4] = {out->b, out->hq, out->sq, out->skv};
  if (!mask) return CUVIL_OK;
  out->mask = true;
  CUVIL_TRY(type_of(mask, true, &out->mask_type));
  CUVIL_TRY(need_ints(mask, "dims", out->mask_dims));
  CUVIL_TRY(need_ints(mask, "strides", out->mask_strides));
  for (int i = 0; i < 4; i++)
    if (out->mask_dims[i] != 1 && out->mask_dims[i] != whole[i])
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "library call: the mask does not fit the scores");
  return CUVIL_OK;
}

enum cuvil_status cuvil_dnn_attention_read(const json_t *call,
                                           struct dnn_graph *out) {
  struct dnn_attention *a = &out->attention;
  const struct {
    const char *key;
    int64_t *out;
  } extents[] = {{"b", &a->b},   {"hq", &a->hq},   {"hkv", &a->hkv},
                 {"sq", &a->sq}, {"skv", &a->skv}, {"d", &a->d},
                 {"dv", &a->dv}};
  double scale;
  out->is_attention = true;
  CUVIL_TRY(type_of(call, false, &out->type));
  for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
    CUVIL_TRY(
        cuvil_call_int(call, extents[i].key, 0, 1, INT32_MAX, extents[i].out));
  if (a->hq % a->hkv != 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "library call: %lld query heads share %lld",
                      (long long)a->hq, (long long)a->hkv);
  CUVIL_TRY(cuvil_json_get_number(call, "scale", "library call", &scale));
  a->scale = (float)scale;
  a->causal = json_is_true(json_object_get(call, "causal"));
  CUVIL_TRY(need_ints(call, "q_strides", a->q_strides));
  CUVIL_TRY(need_ints(call, "k_strides", a->k_strides));
  CUVIL_TRY(need_ints(call, "v_strides", a->v_strides));
  CUVIL_TRY(need_ints(call, "o_strides", a->o_strides));
  return read_mask(call, a);
}

/* ---- building the graph */
struct builder {
  struct dnn_graph *graph;
  int64_t next_id;
  void *operations[MOST_OPERATIONS];
  int count;
};

/* A virtual tensor of one value for every score, or for every query. */
static enum cuvil_status between(struct builder *b, int type, bool of_rows,
                                 void **out) {
  const struct dnn_attention *a = &b->graph->attention;
  int64_t columns = of_rows ? 1 : a->skv;
  const int64_t dims[4] = {a->b, a->hq, a->sq, columns};
  const int64_t strides[4] = {a->hq * a->sq * columns, a->sq * columns, columns,
                              1};
  return cuvil_dnn_graph_tensor(b->graph, b->next_id++, type, DNN_VIRTUAL, dims,
                                strides, out);
}

/* A tensor of one element by value; the caller fills graph->constants. */
static enum cuvil_status constant(struct builder *b, int type, int *out_index,
                                  void **out) {
  static const int64_t ones[4] = {1, 1, 1, 1};
  struct dnn_graph *graph = b->graph;
  CUVIL_CHECK(graph->constant_count < DNN_MAX_CONSTANTS);
  *out_index = graph->constant_count++;
  graph->constant_ids[*out_index] = b->next_id;
  return cuvil_dnn_graph_tensor(graph, b->next_id++, type, DNN_BY_VALUE, ones,
                                ones, out);
}
static enum cuvil_status real(struct builder *b, float value, void **out) {
  int index;
  CUVIL_TRY(constant(b, DNN_FLOAT, &index, out));
  b->graph->constants[index].real = value;
  return CUVIL_OK;
}
static enum cuvil_status integer(struct builder *b, int64_t value, void **out) {
  int index;
  CUVIL_TRY(constant(b, DNN_INT32, &index, out));
  b->graph->constants[index].integer = (int32_t)value;
  return CUVIL_OK;
}

static enum cuvil_status add(struct builder *b, int kind,
                             const struct dnn_part *parts, int count,
                             const char *what) {
  CUVIL_CHECK(b->count < MOST_OPERATIONS);
  return cuvil_dnn_graph_operation(b->graph, kind, parts, count, what,
                                   &b->operations[b->count++]);
}

static enum cuvil_status matmul(struct builder *b, void *x, void *y, void *z) {
  const int type = DNN_FLOAT;
  void *desc;
  CUVIL_TRY(cuvil_dnn_graph_create(b->graph, DNN_MATMUL, &desc));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_MATMUL_COMP_TYPE, DNN_TYPE_DATA_TYPE,
                          1, &type));
  CUVIL_TRY(cuvil_dnn_finalize(desc, "matmul"));
  const struct dnn_part parts[] = {{DNN_ATTR_OP_MATMUL_A, x},
                                   {DNN_ATTR_OP_MATMUL_B, y},
                                   {DNN_ATTR_OP_MATMUL_C, z},
                                   {DNN_ATTR_OP_MATMUL_DESC, desc}};
  return add(b, DNN_OP_MATMUL, parts, 4, "matmul operation");
}

struct pointwise {
  int mode, compute;
  int64_t axis; /* of generated indices */
  void *x, *b, *t;
};
static enum cuvil_status pointwise(struct builder *b, struct pointwise p,
                                   void *y) {
  void *desc;
  CUVIL_TRY(cuvil_dnn_graph_create(b->graph, DNN_POINTWISE, &desc));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_POINTWISE_MODE,
                          DNN_TYPE_POINTWISE_MODE, 1, &p.mode));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_POINTWISE_MATH_PREC,
                          DNN_TYPE_DATA_TYPE, 1, &p.compute));
  if (p.mode == DNN_POINTWISE_GEN_INDEX)
    CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_POINTWISE_AXIS, DNN_TYPE_INT64, 1,
                            &p.axis));
  CUVIL_TRY(cuvil_dnn_finalize(desc, "pointwise"));
  const struct dnn_part parts[] = {{DNN_ATTR_OP_POINTWISE_DESC, desc},
                                   {DNN_ATTR_OP_POINTWISE_X, p.x},
                                   {DNN_ATTR_OP_POINTWISE_B, p.b},
                                   {DNN_ATTR_OP_POINTWISE_T, p.t},
                                   {DNN_ATTR_OP_POINTWISE_Y, y}};
  return add(b, DNN_OP_POINTWISE, parts, 5, "pointwise operation");
}
/* ... to a new tensor of `type`. */
static enum cuvil_status pointwise_new(struct builder *b, struct pointwise p,
                                       int type, void **out) {
  CUVIL_TRY(between(b, type, false, out));
  return pointwise(b, p, *out);
}

static enum cuvil_status reduce(struct builder *b, int operator, void * x,
                                void **out) {
  const int type = DNN_FLOAT;
  void *desc;
  CUVIL_TRY(between(b, DNN_FLOAT, true, out));
  CUVIL_TRY(cuvil_dnn_graph_create(b->graph, DNN_REDUCTION, &desc));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_REDUCTION_COMP_TYPE,
                          DNN_TYPE_DATA_TYPE, 1, &type));
  CUVIL_TRY(cuvil_dnn_set(desc, DNN_ATTR_REDUCTION_OPERATOR,
                          DNN_TYPE_REDUCTION_OPERATOR, 1, &operator));
  CUVIL_TRY(cuvil_dnn_finalize(desc, "reduction"));
  const struct dnn_part parts[] = {{DNN_ATTR_OP_REDUCTION_X, x},
                                   {DNN_ATTR_OP_REDUCTION_Y, *out},
                                   {DNN_ATTR_OP_REDUCTION_DESC, desc}};
  return add(b, DNN_OP_REDUCTION, parts, 3, "reduction operation");
}

/* Scores of keys after the query's become -infinity (the lowest number before
 * the version that knows it). */
static enum cuvil_status exclude_later(struct builder *b, void **score) {
  const struct dnn_attention *a = &b->graph->attention;
  void *row, *column, *skv, *sq, *seen, *none;
  CUVIL_TRY(pointwise_new(b,
                          (struct pointwise){.mode = DNN_POINTWISE_GEN_INDEX,
                                             .compute = DNN_FLOAT,
                                             .axis = 2,
                                             .x = *score},
                          DNN_INT32, &row));
  CUVIL_TRY(pointwise_new(b,
                          (struct pointwise){.mode = DNN_POINTWISE_GEN_INDEX,
                                             .compute = DNN_FLOAT,
                                             .axis = 3,
                                             .x = *score},
                          DNN_INT32, &column));
  if (a->sq != a->skv) {
    CUVIL_TRY(integer(b, a->skv, &skv));
    CUVIL_TRY(pointwise_new(b,
                            (struct pointwise){.mode = DNN_POINTWISE_ADD,
                                               .compute = DNN_INT32,
                                               .x = row,
                                               .b = skv},
                            DNN_INT32, &row));
    CUVIL_TRY(integer(b, a->sq, &sq));
    CUVIL_TRY(pointwise_new(
        b,
        (struct pointwise){
            .mode = DNN_POINTWISE_SUB, .compute = DNN_INT32, .x = row, .b = sq},
        DNN_INT32, &row));
  }
  CUVIL_TRY(pointwise_new(b,
                          (struct pointwise){.mode = DNN_POINTWISE_CMP_GE,
                                             .compute = DNN_BOOLEAN,
                                             .x = row,
                                             .b = column},
                          DNN_BOOLEAN, &seen));
  bool infinity = cuvil_dnn.cudnnGetVersion() >= EXCLUDES_BY_INFINITY;
  CUVIL_TRY(real(b, infinity ? -INFINITY : -FLT_MAX, &none));
  return pointwise_new(b,
                       (struct pointwise){.mode = DNN_POINTWISE_BINARY_SELECT,
                                          .compute = DNN_FLOAT,
                                          .x = *score,
                                          .b = none,
                                          .t = seen},
                       DNN_FLOAT, score);
}

static enum cuvil_status softmax(struct builder *b, void *score, void **out) {
  void *top, *below, *weight, *sum, *log, *statistics;
  struct pointwise p = {.compute = DNN_FLOAT};
  CUVIL_TRY(reduce(b, DNN_REDUCE_MAX, score, &top));
  p.mode = DNN_POINTWISE_SUB, p.x = score, p.b = top;
  CUVIL_TRY(pointwise_new(b, p, DNN_FLOAT, &below));
  p.mode = DNN_POINTWISE_EXP, p.x = below, p.b = NULL;
  CUVIL_TRY(pointwise_new(b, p, DNN_FLOAT, &weight));
  CUVIL_TRY(reduce(b, DNN_REDUCE_ADD, weight, &sum));
  p.mode = DNN_POINTWISE_LOG, p.x = sum;
  CUVIL_TRY(between(b, DNN_FLOAT, true, &log));
  CUVIL_TRY(pointwise(b, p, log));
  p.mode = DNN_POINTWISE_ADD, p.x = top, p.b = log;
  CUVIL_TRY(between(b, DNN_FLOAT, true, &statistics));
  CUVIL_TRY(pointwise(b, p, statistics));
  p.mode = DNN_POINTWISE_DIV, p.x = weight, p.b = sum;
  return pointwise_new(b, p, b->graph->type, out);
}

static enum cuvil_status scores(struct builder *b, void **out) {
  struct dnn_graph *graph = b->graph;
  const struct dnn_attention *a = &graph->attention;
  const int64_t q_dims[4] = {a->b, a->hq, a->sq, a->d};
  const int64_t k_dims[4] = {a->b, a->hkv, a->d, a->skv};
  const int64_t k_strides[4] = {a->k_strides[0], a->k_strides[1],
                                a->k_strides[3], a->k_strides[2]};
  struct pointwise p = {.mode = DNN_POINTWISE_MUL, .compute = DNN_FLOAT};
  void *q, *k, *score;
  CUVIL_TRY(cuvil_dnn_graph_tensor(graph, ID_Q, graph->type, DNN_IN_MEMORY,
                                   q_dims, a->q_strides, &q));
  CUVIL_TRY(cuvil_dnn_graph_tensor(graph, ID_K, graph->type, DNN_IN_MEMORY,
                                   k_dims, k_strides, &k));
  CUVIL_TRY(between(b, DNN_FLOAT, false, &score));
  CUVIL_TRY(matmul(b, q, k, score));
  p.x = score;
  CUVIL_TRY(real(b, a->scale, &p.b));
  CUVIL_TRY(pointwise_new(b, p, DNN_FLOAT, &score));
  if (a->mask) {
    p.mode = DNN_POINTWISE_ADD, p.x = score;
    CUVIL_TRY(cuvil_dnn_graph_tensor(graph, ID_MASK, a->mask_type,
                                     DNN_IN_MEMORY, a->mask_dims,
                                     a->mask_strides, &p.b));
    CUVIL_TRY(pointwise_new(b, p, DNN_FLOAT, &score));
  }
  if (a->causal) CUVIL_TRY(exclude_later(b, &score));
  *out = score;
  return CUVIL_OK;
}

enum cuvil_status cuvil_dnn_attention_build(struct dnn_graph *graph) {
  const struct dnn_attention *a = &graph->attention;
  const int64_t v_dims[4] = {a->b, a->hkv, a->skv, a->dv};
  const int64_t o_dims[4] = {a->b, a->hq, a->sq, a->dv};
  struct builder b = {.graph = graph, .next_id = ID_NEXT};
  void *score, *share, *v, *o;
  CUVIL_TRY(scores(&b, &score));
  CUVIL_TRY(softmax(&b, score, &share));
  CUVIL_TRY(cuvil_dnn_graph_tensor(graph, ID_V, graph->type, DNN_IN_MEMORY,
                                   v_dims, a->v_strides, &v));
  CUVIL_TRY(cuvil_dnn_graph_tensor(graph, ID_O, graph->type, DNN_IN_MEMORY,
                                   o_dims, a->o_strides, &o));
  CUVIL_TRY(matmul(&b, share, v, o));
  for (int64_t id = ID_Q; id <= (a->mask ? ID_MASK : ID_O); id++)
    graph->ids[graph->id_count++] = id;
  return cuvil_dnn_graph_finish(graph, b.operations, b.count);
}
