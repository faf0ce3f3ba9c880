/* The small vocabulary of the network builders.  A node's output is named
 * after its operator and a running number, so that a network is written as
 * expressions.
 *
 * The exporters differ in habits that a fusion has to see through: torchscript
 * writes constants as Constant nodes and a linear layer's bias as the first
 * operand of its Add; dynamo writes initializers, transposes weights by a node
 * and puts the bias second.
 */
#include "graph/builder_net.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum cuvil_status cuvil_net_open(struct cuvil_net *net, const char *name,
                                 const struct cuvil_network_options *options) {
  *net =
      (struct cuvil_net){.dynamo = options->spelling == CUVIL_SPELLING_DYNAMO,
                         .half = options->half};
  CUVIL_TRY(cuvil_builder_create(name, net->dynamo ? 18 : 17, &net->b));
  cuvil_builder_set_half(net->b, options->half);
  cuvil_builder_set_seed(net->b, options->seed);
  cuvil_builder_set_external(net->b, options->external);
  return CUVIL_OK;
}

enum cuvil_status cuvil_net_close(struct cuvil_net *net, const char *path) {
  enum cuvil_status status =
      net->failed
          ? CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to build %s", path)
          : cuvil_builder_write(net->b, path);
  cuvil_builder_destroy(net->b);
  cuvil_arena_free(&net->arena);
  return status;
}

static const char *keep(struct cuvil_net *net, const char *format,
                        va_list list) {
  char text[512];
  vsnprintf(text, sizeof text, format, list);
  const char *copy = cuvil_arena_strdup(&net->arena, text);
  if (copy == NULL) net->failed = true;
  return copy != NULL ? copy : "";
}

const char *cuvil_net_text(struct cuvil_net *net, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const char *text = keep(net, format, list);
  va_end(list);
  return text;
}

static const char *add_node(struct cuvil_net *net, const char *op,
                            const char *inputs) {
  const char *out = cuvil_net_text(net, "%s_%d", op, net->counter);
  const char *name = cuvil_net_text(net, "node_%s_%d", op, net->counter++);
  cuvil_builder_node(net->b, op, name, inputs, out);
  return out;
}

const char *cuvil_net_op(struct cuvil_net *net, const char *op,
                         const char *inputs, ...) {
  va_list list;
  va_start(list, inputs);
  const char *text = keep(net, inputs, list);
  va_end(list);
  return add_node(net, op, text);
}

const char *cuvil_net_op_int(struct cuvil_net *net, const char *op,
                             const char *name, int64_t value,
                             const char *inputs, ...) {
  va_list list;
  va_start(list, inputs);
  const char *text = keep(net, inputs, list);
  va_end(list);
  const char *out = add_node(net, op, text);
  cuvil_builder_int(net->b, name, value);
  return out;
}

const char *cuvil_net_transpose(struct cuvil_net *net, const char *x, int rank,
                                const int64_t *perm) {
  const char *out = cuvil_net_op(net, "Transpose", "%s", x);
  cuvil_builder_ints(net->b, "perm", rank, perm);
  return out;
}

static const char *constant(struct cuvil_net *net, enum cuvil_dtype dtype,
                            int rank, const int64_t *dims, const void *data) {
  if (net->dynamo) {
    const char *name = cuvil_net_text(net, "val_%d", net->counter++);
    cuvil_builder_initializer(net->b, name, dtype, rank, dims, data);
    return name;
  }
  const char *out = add_node(net, "Constant", "");
  cuvil_builder_tensor(net->b, "value", dtype, rank, dims, data);
  return out;
}

const char *cuvil_net_scalar(struct cuvil_net *net, double value) {
  float f = (float)value;
  return constant(net, CUVIL_F32, 0, NULL, &f);
}

const char *cuvil_net_ints(struct cuvil_net *net, int count,
                           const int64_t *values) {
  return constant(net, CUVIL_I64, 1, CUVIL_NET_DIMS(count), values);
}

const char *cuvil_net_index(struct cuvil_net *net, int64_t value) {
  return constant(net, CUVIL_I64, 0, NULL, &value);
}

const char *cuvil_net_reshape(struct cuvil_net *net, const char *x, int rank,
                              const int64_t *dims) {
  const char *shape = cuvil_net_ints(net, rank, dims);
  const char *out = cuvil_net_op(net, "Reshape", "%s,%s", x, shape);
  if (net->dynamo) cuvil_builder_int(net->b, "allowzero", 1);
  return out;
}

const char *cuvil_net_slice(struct cuvil_net *net, const char *x, int64_t axis,
                            int64_t start, int64_t end) {
  const char *from = cuvil_net_ints(net, 1, &start);
  const char *to = cuvil_net_ints(net, 1, &end);
  const char *on = cuvil_net_ints(net, 1, &axis);
  const char *step = cuvil_net_ints(net, 1, CUVIL_NET_DIMS(1));
  return cuvil_net_op(net, "Slice", "%s,%s,%s,%s,%s", x, from, to, on, step);
}

const char *cuvil_net_mean(struct cuvil_net *net, const char *x, int count,
                           const int64_t *axes) {
  const char *out;
  if (net->dynamo) {
    const char *list = cuvil_net_ints(net, count, axes);
    out = cuvil_net_op(net, "ReduceMean", "%s,%s", x, list);
  } else {
    out = cuvil_net_op(net, "ReduceMean", "%s", x);
    cuvil_builder_ints(net->b, "axes", count, axes);
  }
  cuvil_builder_int(net->b, "keepdims", 1);
  return out;
}

const char *cuvil_net_linear(struct cuvil_net *net, const char *x,
                             const char *name, int64_t from, int64_t to,
                             double gain, bool with_bias) {
  const char *weight = cuvil_net_text(net, "%s.weight", name);
  double deviation = sqrt(gain / (double)from);
  if (net->dynamo) {
    cuvil_builder_random(net->b, weight, 2, CUVIL_NET_DIMS(to, from),
                         deviation);
    weight = cuvil_net_transpose(net, weight, 2, CUVIL_NET_DIMS(1, 0));
  } else {
    cuvil_builder_random_transposed(net->b, weight, from, to, deviation);
  }
  const char *y = cuvil_net_op(net, "MatMul", "%s,%s", x, weight);
  if (!with_bias) return y;
  const char *bias = cuvil_net_text(net, "%s.bias", name);
  cuvil_builder_uniform(net->b, bias, to, -0.1, 0.1);
  return net->dynamo ? cuvil_net_op(net, "Add", "%s,%s", y, bias)
                     : cuvil_net_op(net, "Add", "%s,%s", bias, y);
}

const char *cuvil_net_gemm(struct cuvil_net *net, const char *x,
                           const char *name, int64_t from, int64_t to,
                           double gain) {
  const char *weight = cuvil_net_text(net, "%s.weight", name);
  const char *bias = cuvil_net_text(net, "%s.bias", name);
  cuvil_builder_random(net->b, weight, 2, CUVIL_NET_DIMS(to, from),
                       sqrt(gain / (double)from));
  cuvil_builder_uniform(net->b, bias, to, -0.1, 0.1);
  const char *y =
      cuvil_net_op_int(net, "Gemm", "transB", 1, "%s,%s,%s", x, weight, bias);
  cuvil_builder_float(net->b, "alpha", 1);
  cuvil_builder_float(net->b, "beta", 1);
  return y;
}
