/* fake_cudnn.c - cuDNN's backend for tests, on the fake driver's memory.
 *
 * Descriptors keep the attributes they were given; executing a plan walks its
 * operation graph and computes convolutions, products, reductions and pointwise
 * operations of floats by the dimensions and strides of the tensors, so that a
 * test can see whether our calls come out right.  Heuristics offer four
 * engines: 3 cannot be built, 2 sums in half precision, 0 has two knobs, 64
 * bytes of workspace and tensor cores, 1 has neither.
 * $CUVIL_FAKE_CUDNN_VERSION, else 91900.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cudnn_abi.h"

#define API __attribute__((visibility("default")))
enum { BAD = 2000, UNSUPPORTED = 3000, MOST = 64 };

struct attribute {
  int name, type;
  int64_t count;
  unsigned char bytes[512];
};
struct descriptor {
  int kind, count;
  bool final;
  struct attribute attributes[16];
};

API size_t cudnnGetVersion(void);
API const char *cudnnGetErrorString(int status);
API void cudnnGetLastErrorString(char *out, size_t size);
API int cudnnCreate(void **out);
API int cudnnDestroy(void *handle);
API int cudnnSetStream(void *handle, void *stream);
API int cudnnBackendCreateDescriptor(int kind, void **out);
API int cudnnBackendDestroyDescriptor(void *descriptor);
API int cudnnBackendFinalize(void *descriptor);
API int cudnnBackendSetAttribute(void *descriptor, int name, int type,
                                 int64_t count, const void *values);
API int cudnnBackendGetAttribute(void *descriptor, int name, int type,
                                 int64_t most, int64_t *count, void *out);
API int cudnnBackendExecute(void *handle, void *plan, void *pack);
API int fake_cudnn_live(void);

static int live;

int fake_cudnn_live(void) {
  return live;
}

size_t cudnnGetVersion(void) {
  const char *text = getenv("CUVIL_FAKE_CUDNN_VERSION");
  return text ? (size_t)atoi(text) : 91900;
}

const char *cudnnGetErrorString(int status) {
  return status == UNSUPPORTED ? "NOT_SUPPORTED" : "BAD_PARAM";
}

void cudnnGetLastErrorString(char *out, size_t size) {
  snprintf(out, size, "refused by the fake\nsecond line");
}

int cudnnCreate(void **out) {
  *out = malloc(1);
  live++;
  return 0;
}

int cudnnDestroy(void *handle) {
  free(handle);
  live--;
  return 0;
}

int cudnnSetStream(void *handle, void *stream) {
  return handle && stream ? 0 : BAD;
}

int cudnnBackendCreateDescriptor(int kind, void **out) {
  struct descriptor *made = calloc(1, sizeof *made);
  if (!made) return BAD;
  made->kind = kind;
  *out = made;
  live++;
  return 0;
}

int cudnnBackendDestroyDescriptor(void *descriptor) {
  free(descriptor);
  live--;
  return 0;
}

static size_t type_size(int type) {
  return type == DNN_TYPE_BOOLEAN ? 1
         : type == DNN_TYPE_INT64 || type == DNN_TYPE_VOID_PTR ||
                 type == DNN_TYPE_HANDLE || type == DNN_TYPE_DESCRIPTOR
             ? 8
             : 4;
}

static const struct attribute *find(const void *handle, int name) {
  const struct descriptor *descriptor = handle;
  for (int i = 0; i < descriptor->count; i++)
    if (descriptor->attributes[i].name == name)
      return &descriptor->attributes[i];
  return NULL;
}

static void *part(const void *descriptor, int name) {
  void *value = NULL;
  const struct attribute *attribute = find(descriptor, name);
  if (attribute) memcpy(&value, attribute->bytes, 8);
  return value;
}

static int64_t number(const void *descriptor, int name) {
  int64_t value = 0;
  const struct attribute *attribute = find(descriptor, name);
  if (attribute) memcpy(&value, attribute->bytes, type_size(attribute->type));
  return value;
}

static void put(struct descriptor *descriptor, int name, int type,
                int64_t count, const void *values) {
  struct attribute *attribute = &descriptor->attributes[descriptor->count++];
  attribute->name = name;
  attribute->type = type;
  attribute->count = count;
  memcpy(attribute->bytes, values, (size_t)count * type_size(type));
}

int cudnnBackendSetAttribute(void *handle, int name, int type, int64_t count,
                             const void *values) {
  struct descriptor *descriptor = handle;
  if (descriptor->final || descriptor->count == 16 || count < 1 ||
      (size_t)count * type_size(type) > sizeof descriptor->attributes->bytes)
    return BAD;
  put(descriptor, name, type, count, values);
  return 0;
}

int cudnnBackendFinalize(void *handle) {
  struct descriptor *descriptor = handle;
  void *engine = part(handle, DNN_ATTR_ENGINECFG_ENGINE);
  if (descriptor->final) return BAD;
  if (descriptor->kind == DNN_ENGINECFG) {
    const struct attribute *knobs =
        find(handle, DNN_ATTR_ENGINECFG_KNOB_CHOICES);
    int64_t id = number(engine, DNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (id < 0 || id > 3) return BAD;
    if ((knobs ? knobs->count : 0) != (id == 0 ? 2 : 0)) return BAD;
  }
  if (descriptor->kind == DNN_PLAN) {
    void *config = part(handle, DNN_ATTR_PLAN_ENGINE_CONFIG);
    engine = part(config, DNN_ATTR_ENGINECFG_ENGINE);
    int64_t id = number(engine, DNN_ATTR_ENGINE_GLOBAL_INDEX);
    int64_t workspace = id == 0 ? 64 : 0;
    if (id == 3) return UNSUPPORTED;
    put(descriptor, DNN_ATTR_PLAN_WORKSPACE_SIZE, DNN_TYPE_INT64, 1,
        &workspace);
  }
  descriptor->final = true;
  return 0;
}

/* The heuristics' answer: each configuration is an engine's number, which the
 * reads of its engine and knobs below go by. */
static int results(int64_t most, int64_t *count, void *out) {
  static const int64_t order[] = {3, 2, 0, 1};
  void *configs[MOST];
  if (most < 4 || most > MOST) return BAD;
  memcpy(configs, out, (size_t)most * 8);
  for (int i = 0; i < 4; i++)
    put(configs[i], DNN_ATTR_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, 1, &order[i]);
  *count = 4;
  return 0;
}

static int knobs_of(const void *config, int64_t *count, void *out) {
  static const int types[] = {2, 14};
  static const int64_t values[] = {5, 3};
  void *knobs[2];
  *count = number(config, DNN_ATTR_ENGINE_GLOBAL_INDEX) == 0 ? 2 : 0;
  memcpy(knobs, out, (size_t)*count * 8);
  for (int i = 0; i < *count; i++) {
    put(knobs[i], DNN_ATTR_KNOB_CHOICE_TYPE, DNN_TYPE_KNOB_TYPE, 1, &types[i]);
    put(knobs[i], DNN_ATTR_KNOB_CHOICE_VALUE, DNN_TYPE_INT64, 1, &values[i]);
  }
  return 0;
}

int cudnnBackendGetAttribute(void *handle, int name, int type, int64_t most,
                             int64_t *count, void *out) {
  const struct attribute *attribute = find(handle, name);
  int64_t id = number(handle, DNN_ATTR_ENGINE_GLOBAL_INDEX);
  if (name == DNN_ATTR_ENGINEHEUR_RESULTS) return results(most, count, out);
  if (name == DNN_ATTR_ENGINECFG_KNOB_CHOICES)
    return knobs_of(handle, count, out);
  if (name == DNN_ATTR_ENGINECFG_ENGINE) {
    void *engine;
    memcpy(&engine, out, 8);
    put(engine, DNN_ATTR_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, 1, &id);
    *count = 1;
    return 0;
  }
  if (name == DNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    int note =
        id == 2 ? DNN_NOTE_REDUCED_PRECISION_REDUCTION : DNN_NOTE_TENSOR_CORE;
    *count = id == 2 || id == 0;
    if (*count) memcpy(out, &note, 4);
    return 0;
  }
  if (!attribute || attribute->type != type || most < 1) return BAD;
  *count = 1;
  memcpy(out, attribute->bytes, type_size(type));
  return 0;
}

/* ---- executing */

struct tensor {
  int64_t dims[4], strides[4], id;
  float *data, by_value;
};
enum { VIRTUALS = 32 };
struct run {
  const void *pack;
  float *scratch[VIRTUALS]; /* virtual tensors by the end of their id */
};

/* Virtual tensors get scratch of a fixed size, addressed by their strides. */
static bool get_tensor(struct run *run, const void *descriptor,
                       struct tensor *out) {
  if (!descriptor) return false;
  memcpy(out->dims, find(descriptor, DNN_ATTR_TENSOR_DIMENSIONS)->bytes, 32);
  memcpy(out->strides, find(descriptor, DNN_ATTR_TENSOR_STRIDES)->bytes, 32);
  out->id = number(descriptor, DNN_ATTR_TENSOR_UNIQUE_ID);
  out->data = NULL;
  if (number(descriptor, DNN_ATTR_TENSOR_IS_VIRTUAL)) {
    float **scratch = &run->scratch[out->id % VIRTUALS];
    if (!*scratch) *scratch = calloc(1 << 16, sizeof(float));
    out->data = *scratch;
    return *scratch != NULL;
  }
  const struct attribute *ids = find(run->pack, DNN_ATTR_PACK_UNIQUE_IDS);
  const struct attribute *pointers =
      find(run->pack, DNN_ATTR_PACK_DATA_POINTERS);
  for (int64_t i = 0; i < ids->count; i++)
    if (((const int64_t *)(const void *)ids->bytes)[i] == out->id)
      memcpy(&out->data, pointers->bytes + 8 * i, 8);
  if (out->data && number(descriptor, DNN_ATTR_TENSOR_IS_BY_VALUE) &&
      number(descriptor, DNN_ATTR_TENSOR_DATA_TYPE) == DNN_INT32) {
    int32_t integer;
    memcpy(&integer, out->data, 4);
    out->by_value = (float)integer;
    out->data = &out->by_value;
  }
  return out->data != NULL;
}

static float *at(const struct tensor *t, int64_t a, int64_t b, int64_t c,
                 int64_t d) {
  /* A dimension of one is broadcast. */
  return t->data + (t->dims[0] > 1 ? a : 0) * t->strides[0] +
         (t->dims[1] > 1 ? b : 0) * t->strides[1] +
         (t->dims[2] > 1 ? c : 0) * t->strides[2] +
         (t->dims[3] > 1 ? d : 0) * t->strides[3];
}

static float window_sum(const void *conv, const struct tensor *x,
                        const struct tensor *w, const struct tensor *y,
                        const int64_t *to) {
  const int64_t *stride = (const int64_t *)(const void *)find(
                              conv, DNN_ATTR_CONVOLUTION_FILTER_STRIDES)
                              ->bytes;
  const int64_t *dilation =
      (const int64_t *)(const void *)find(conv, DNN_ATTR_CONVOLUTION_DILATIONS)
          ->bytes;
  const int64_t *before = (const int64_t *)(const void *)find(
                              conv, DNN_ATTR_CONVOLUTION_PRE_PADDINGS)
                              ->bytes;
  int64_t groups = x->dims[1] / w->dims[1];
  int64_t group = to[1] / (y->dims[1] / groups);
  float sum = 0;
  for (int64_t c = 0; c < w->dims[1]; c++)
    for (int64_t r = 0; r < w->dims[2]; r++)
      for (int64_t s = 0; s < w->dims[3]; s++) {
        int64_t h = to[2] * stride[0] - before[0] + r * dilation[0];
        int64_t v = to[3] * stride[1] - before[1] + s * dilation[1];
        if (h < 0 || v < 0 || h >= x->dims[2] || v >= x->dims[3]) continue;
        sum += *at(x, to[0], group * w->dims[1] + c, h, v) *
               *at(w, to[1], c, r, s);
      }
  return sum;
}

/* Fewer matrices of one operand serve neighbours of the other. */
static float product(const struct tensor *a, const struct tensor *b,
                     const struct tensor *y, const int64_t *to) {
  float sum = 0;
  int64_t share_a = y->dims[1] / a->dims[1], share_b = y->dims[1] / b->dims[1];
  for (int64_t k = 0; k < a->dims[3]; k++)
    sum += *at(a, to[0], to[1] / share_a, to[2], k) *
           *at(b, to[0], to[1] / share_b, k, to[3]);
  return sum;
}

static float reduced(const void *desc, const struct tensor *x,
                     const int64_t *to) {
  bool max = number(desc, DNN_ATTR_REDUCTION_OPERATOR) == DNN_REDUCE_MAX;
  float result = max ? -INFINITY : 0;
  for (int64_t i = 0; i < x->dims[3]; i++) {
    float value = *at(x, to[0], to[1], to[2], i);
    result = max ? fmaxf(result, value) : result + value;
  }
  return result;
}

static float point(const void *desc, float x, float b, float t,
                   const int64_t *to) {
  switch (number(desc, DNN_ATTR_POINTWISE_MODE)) {
    case DNN_POINTWISE_ADD:
      return x + b;
    case DNN_POINTWISE_SUB:
      return x - b;
    case DNN_POINTWISE_MUL:
      return x * b;
    case DNN_POINTWISE_DIV:
      return x / b;
    case DNN_POINTWISE_EXP:
      return expf(x);
    case DNN_POINTWISE_LOG:
      return logf(x);
    case DNN_POINTWISE_RELU_FWD:
      return x > 0 ? x : 0;
    case DNN_POINTWISE_CMP_GE:
      return x >= b;
    case DNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    case DNN_POINTWISE_GEN_INDEX:
      return (float)to[number(desc, DNN_ATTR_POINTWISE_AXIS)];
    default:
      return NAN;
  }
}

struct shape_of_op {
  int kind, desc, x, b, t, y;
};
static int execute_op(struct run *run, const struct descriptor *op) {
  static const struct shape_of_op shapes[] = {
      {DNN_OP_CONVOLUTION_FORWARD, DNN_ATTR_OP_CONV_DESC, DNN_ATTR_OP_CONV_X,
       DNN_ATTR_OP_CONV_W, -1, DNN_ATTR_OP_CONV_Y},
      {DNN_OP_MATMUL, DNN_ATTR_OP_MATMUL_DESC, DNN_ATTR_OP_MATMUL_A,
       DNN_ATTR_OP_MATMUL_B, -1, DNN_ATTR_OP_MATMUL_C},
      {DNN_OP_REDUCTION, DNN_ATTR_OP_REDUCTION_DESC, DNN_ATTR_OP_REDUCTION_X,
       -1, -1, DNN_ATTR_OP_REDUCTION_Y},
      {DNN_OP_POINTWISE, DNN_ATTR_OP_POINTWISE_DESC, DNN_ATTR_OP_POINTWISE_X,
       DNN_ATTR_OP_POINTWISE_B, DNN_ATTR_OP_POINTWISE_T,
       DNN_ATTR_OP_POINTWISE_Y}};
  const struct shape_of_op *shape = shapes;
  while (shape->kind != op->kind)
    if (++shape == shapes + 4) return BAD;
  struct tensor x, b, t, y;
  const void *desc = part(op, shape->desc);
  if (!desc || !get_tensor(run, part(op, shape->x), &x) ||
      !get_tensor(run, part(op, shape->y), &y))
    return BAD;
  bool has_b = shape->b >= 0 && part(op, shape->b);
  bool has_t = shape->t >= 0 && part(op, shape->t);
  if ((has_b && !get_tensor(run, part(op, shape->b), &b)) ||
      (has_t && !get_tensor(run, part(op, shape->t), &t)))
    return BAD;
  if (!has_b && (shape->kind == DNN_OP_CONVOLUTION_FORWARD ||
                 shape->kind == DNN_OP_MATMUL))
    return BAD;
  int64_t to[4];
  for (to[0] = 0; to[0] < y.dims[0]; to[0]++)
    for (to[1] = 0; to[1] < y.dims[1]; to[1]++)
      for (to[2] = 0; to[2] < y.dims[2]; to[2]++)
        for (to[3] = 0; to[3] < y.dims[3]; to[3]++) {
          float *out = at(&y, to[0], to[1], to[2], to[3]);
          if (shape->kind == DNN_OP_CONVOLUTION_FORWARD)
            *out = window_sum(desc, &x, &b, &y, to);
          else if (shape->kind == DNN_OP_MATMUL)
            *out = product(&x, &b, &y, to);
          else if (shape->kind == DNN_OP_REDUCTION)
            *out = reduced(desc, &x, to);
          else
            *out = point(desc, *at(&x, to[0], to[1], to[2], to[3]),
                         has_b ? *at(&b, to[0], to[1], to[2], to[3]) : NAN,
                         has_t ? *at(&t, to[0], to[1], to[2], to[3]) : NAN, to);
        }
  return 0;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
  struct run run = {.pack = pack};
  void *config = part(plan, DNN_ATTR_PLAN_ENGINE_CONFIG);
  void *engine = part(config, DNN_ATTR_ENGINECFG_ENGINE);
  void *graph = part(engine, DNN_ATTR_ENGINE_OPERATION_GRAPH);
  const struct attribute *ops = find(graph, DNN_ATTR_GRAPH_OPS);
  const struct descriptor *packed = pack;
  int status = 0;
  if (!handle || !packed->final) return BAD;
  if (number(plan, DNN_ATTR_PLAN_WORKSPACE_SIZE) > 0) {
    void *workspace = part(pack, DNN_ATTR_PACK_WORKSPACE);
    if (!workspace) return BAD;
    memset(workspace, 0xEE, 64);
  }
  for (int64_t i = 0; status == 0 && i < ops->count; i++) {
    const struct descriptor *op;
    memcpy(&op, ops->bytes + 8 * i, 8);
    status = execute_op(&run, op);
  }
  for (int i = 0; i < VIRTUALS; i++)
    free(run.scratch[i]);
  return status;
}
