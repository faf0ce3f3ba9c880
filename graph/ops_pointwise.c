/* Element by element: functions of one tensor, Clip, and the broadcasting
 * operators of two or more.
 *
 * Broadcasting follows numpy.  Adjacent dimensions in which both operands step
 * alike are merged, so that what is left has few dimensions and a long inner
 * one, in which an operand's step is 1 or 0; the inner loops are plain and
 * leave the vectors to the compiler.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"
#include "graph/parallel.h"

#define GRAIN 65536 /* elements that are worth a thread */

/* ---- functions of one tensor */
enum unary {
  U_ABS,
  U_CEIL,
  U_COS,
  U_ERF,
  U_EXP,
  U_FLOOR,
  U_GELU_ERF,
  U_GELU_TANH,
  U_HARD_SIGMOID,
  U_HARD_SWISH,
  U_LEAKY_RELU,
  U_LOG,
  U_NEG,
  U_RECIPROCAL,
  U_RELU,
  U_SIGMOID,
  U_SIN,
  U_SOFTPLUS,
  U_SQRT,
  U_TANH,
};
static const struct {
  const char *op;
  enum unary function;
} unary_names[] = {
    {"Abs", U_ABS},
    {"Ceil", U_CEIL},
    {"Cos", U_COS},
    {"Erf", U_ERF},
    {"Exp", U_EXP},
    {"Floor", U_FLOOR},
    {"Gelu", U_GELU_ERF},
    {"HardSigmoid", U_HARD_SIGMOID},
    {"HardSwish", U_HARD_SWISH},
    {"LeakyRelu", U_LEAKY_RELU},
    {"Log", U_LOG},
    {"Neg", U_NEG},
    {"Reciprocal", U_RECIPROCAL},
    {"Relu", U_RELU},
    {"Sigmoid", U_SIGMOID},
    {"Sin", U_SIN},
    {"Softplus", U_SOFTPLUS},
    {"Sqrt", U_SQRT},
    {"Tanh", U_TANH},
};

struct unary_job {
  enum unary function;
  double alpha, beta;
  const struct cuvil_host_tensor *x;
  struct cuvil_host_tensor *y;
};

static double clamp01(double v) {
  return v < 0 ? 0 : v > 1 ? 1 : v;
}

static double unary_value(const struct unary_job *job, double x) {
  const double root_half = 0.70710678118654752440;
  const double root_2_over_pi = 0.79788456080286535588;
  switch (job->function) {
    case U_ABS:
      return fabs(x);
    case U_CEIL:
      return ceil(x);
    case U_COS:
      return cos(x);
    case U_ERF:
      return erf(x);
    case U_EXP:
      return exp(x);
    case U_FLOOR:
      return floor(x);
    case U_GELU_ERF:
      return 0.5 * x * (1 + erf(x * root_half));
    case U_GELU_TANH:
      return 0.5 * x * (1 + tanh(root_2_over_pi * (x + 0.044715 * x * x * x)));
    case U_HARD_SIGMOID:
      return clamp01(job->alpha * x + job->beta);
    case U_HARD_SWISH:
      return x * clamp01(x / 6 + 0.5);
    case U_LEAKY_RELU:
      return x < 0 ? job->alpha * x : x;
    case U_LOG:
      return log(x);
    case U_NEG:
      return -x;
    case U_RECIPROCAL:
      return 1 / x;
    case U_RELU:
      return x < 0 ? 0 : x; /* a NaN stays one */
    case U_SIGMOID:
      return 1 / (1 + exp(-x));
    case U_SIN:
      return sin(x);
    case U_SOFTPLUS: /* log(1 + e^x) without overflow */
      return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case U_SQRT:
      return sqrt(x);
    case U_TANH:
      return tanh(x);
  }
  return x;
}

static void unary_range(void *context, int worker, int64_t begin, int64_t end) {
  (void)worker;
  const struct unary_job *job = context;
  if (job->x->integer) {
    for (int64_t i = begin; i < end; i++) {
      int64_t v = job->x->i[i];
      bool negate = job->function == U_NEG || (job->function == U_ABS && v < 0);
      job->y->i[i] = job->function == U_RELU ? (v < 0 ? 0 : v)
                     : negate                ? (int64_t)(0 - (uint64_t)v)
                                             : v;
    }
    return;
  }
  const float *x = job->x->f;
  float *y = job->y->f;
  if (job->function == U_RELU) {
    for (int64_t i = begin; i < end; i++)
      y[i] = x[i] < 0 ? 0 : x[i];
    return;
  }
  for (int64_t i = begin; i < end; i++)
    y[i] = (float)unary_value(job, x[i]);
}

enum cuvil_status cuvil_infer_unary(const struct cuvil_graph *graph,
                                    const struct cuvil_node *node,
                                    struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  if (strcmp(node->op, "Gelu") == 0) {
    const char *how = cuvil_node_string(node, "approximate", "none");
    if (strcmp(how, "none") != 0 && strcmp(how, "tanh") != 0)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                        "approximate must be \"none\" or \"tanh\"");
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_unary(const struct cuvil_op_call *call) {
  const struct cuvil_node *node = call->node;
  struct unary_job job = {.x = call->inputs[0], .y = &call->outputs[0]};
  size_t row = 0, rows = sizeof unary_names / sizeof *unary_names;
  while (row < rows && strcmp(unary_names[row].op, node->op) != 0)
    row++;
  CUVIL_CHECK(row < rows);
  job.function = unary_names[row].function;
  bool leaky = job.function == U_LEAKY_RELU;
  job.alpha = cuvil_node_float(node, "alpha", leaky ? 0.01f : 0.2f);
  job.beta = cuvil_node_float(node, "beta", 0.5);
  if (job.function == U_GELU_ERF &&
      strcmp(cuvil_node_string(node, "approximate", "none"), "tanh") == 0)
    job.function = U_GELU_TANH;
  cuvil_parallel(cuvil_parallel_threads(call->threads, job.x->count, GRAIN),
                 job.x->count, unary_range, &job);
  return CUVIL_OK;
}

/* ---- Clip */
enum cuvil_status cuvil_infer_clip(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  for (int i = 1; i < 3; i++) {
    const struct cuvil_value *limit = cuvil_op_input(graph, node, i);
    if (limit == NULL) continue;
    if (cuvil_value_elements(limit) != 1)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input %d must be a scalar", i);
    if (limit->dtype != out->dtype)
      return CUVIL_FAIL(
          CU_ERR_MODEL_INVALID, "input %d is %s, but input 0 is %s", i,
          cuvil_dtype_name(limit->dtype), cuvil_dtype_name(out->dtype));
    if (limit->data == NULL)
      return CUVIL_FAIL(CU_ERR_MODEL_UNSUPPORTED,
                        "input %d is computed at run time; it must be constant",
                        i);
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_clip(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0];
  const struct cuvil_host_tensor *limits[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++)
    if (i + 1 < call->node->input_count) limits[i] = call->inputs[i + 1];
  /* The lower limit is applied first, so that a lower one above the upper one
   * gives the upper one, as the standard says; a NaN passes both. */
  if (x->integer) {
    int64_t low = limits[0] != NULL ? limits[0]->i[0] : INT64_MIN;
    int64_t high = limits[1] != NULL ? limits[1]->i[0] : INT64_MAX;
    for (int64_t i = 0; i < x->count; i++) {
      int64_t v = x->i[i] < low ? low : x->i[i];
      call->outputs[0].i[i] = v > high ? high : v;
    }
    return CUVIL_OK;
  }
  float low = (float)cuvil_node_float(call->node, "min", -INFINITY);
  float high = (float)cuvil_node_float(call->node, "max", INFINITY);
  if (limits[0] != NULL) low = limits[0]->f[0];
  if (limits[1] != NULL) high = limits[1]->f[0];
  for (int64_t i = 0; i < x->count; i++) {
    float v = x->f[i] < low ? low : x->f[i];
    call->outputs[0].f[i] = v > high ? high : v;
  }
  return CUVIL_OK;
}

/* ---- two and more tensors */
enum binary {
  B_ADD,
  B_SUB,
  B_MUL,
  B_DIV,
  B_POW,
  B_MIN,
  B_MAX,
  B_MOD,  /* the sign of the divisor */
  B_FMOD, /* the sign of the dividend */
  B_EQUAL,
  B_LESS,
  B_LESS_EQUAL,
  B_GREATER,
  B_GREATER_EQUAL,
  B_AND,
  B_OR,
  B_XOR
};
static const struct {
  const char *op;
  enum binary function;
} binary_names[] = {
    {"Add", B_ADD},
    {"Sub", B_SUB},
    {"Mul", B_MUL},
    {"Div", B_DIV},
    {"Pow", B_POW},
    {"Min", B_MIN},
    {"Max", B_MAX},
    {"Sum", B_ADD},
    {"Mean", B_ADD},
    {"Mod", B_MOD},
    {"Equal", B_EQUAL},
    {"Less", B_LESS},
    {"LessOrEqual", B_LESS_EQUAL},
    {"Greater", B_GREATER},
    {"GreaterOrEqual", B_GREATER_EQUAL},
    {"And", B_AND},
    {"Or", B_OR},
    {"Xor", B_XOR},
};

static enum cuvil_status find_binary(const char *op, enum binary *out) {
  size_t row = 0, rows = sizeof binary_names / sizeof *binary_names;
  while (row < rows && strcmp(binary_names[row].op, op) != 0)
    row++;
  CUVIL_CHECK(row < rows);
  *out = binary_names[row].function;
  return CUVIL_OK;
}

struct binary_job {
  enum binary function;
  bool zero_divisor; /* only ever set, by any thread */
  int rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  int64_t a_step[CUVIL_GRAPH_MAX_RANK], b_step[CUVIL_GRAPH_MAX_RANK];
  int64_t inner, a_inner, b_inner;
  const struct cuvil_host_tensor *a, *b;
  struct cuvil_host_tensor *y;
};

#define ROW_LOOP(expression)            \
  for (int64_t i = 0; i < n; i++) {     \
    float u = a[i * sa], v = b[i * sb]; \
    y[i] = (expression);                \
  }                                     \
  break

static void float_row(enum binary function, int64_t n, const float *a,
                      int64_t sa, const float *b, int64_t sb, float *y) {
  switch (function) {
    case B_ADD:
      ROW_LOOP(u + v);
    case B_SUB:
      ROW_LOOP(u - v);
    case B_MUL:
      ROW_LOOP(u * v);
    case B_DIV:
      ROW_LOOP(u / v);
    case B_POW:
      ROW_LOOP((float)pow(u, v));
    case B_MIN:
      ROW_LOOP(u < v || u != u ? u : v);
    case B_MAX:
      ROW_LOOP(u > v || u != u ? u : v);
    case B_FMOD:
      ROW_LOOP(fmodf(u, v));
    default: /* not for real results: infer refused it */
      break;
  }
}

static void compare_row(enum binary function, int64_t n, const float *a,
                        int64_t sa, const float *b, int64_t sb, int64_t *y) {
  switch (function) {
    case B_EQUAL:
      ROW_LOOP(u == v);
    case B_LESS:
      ROW_LOOP(u < v);
    case B_LESS_EQUAL:
      ROW_LOOP(u <= v);
    case B_GREATER:
      ROW_LOOP(u > v);
    case B_GREATER_EQUAL:
      ROW_LOOP(u >= v);
    default:
      break;
  }
}

static int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? 1 - 2 * (exponent & 1) : 0;
  uint64_t result = 1, square = (uint64_t)base;
  for (; exponent != 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return (int64_t)result;
}

/* Wraps on overflow, as two's complement hardware does. */
static int64_t integer_value(struct binary_job *job, int64_t u, int64_t v) {
  switch (job->function) {
    case B_ADD:
      return (int64_t)((uint64_t)u + (uint64_t)v);
    case B_SUB:
      return (int64_t)((uint64_t)u - (uint64_t)v);
    case B_MUL:
      return (int64_t)((uint64_t)u * (uint64_t)v);
    case B_DIV:
      if (v == 0) {
        __atomic_store_n(&job->zero_divisor, true, __ATOMIC_RELAXED);
        return 0;
      }
      return v == -1 ? (int64_t)(0 - (uint64_t)u) : u / v;
    case B_POW:
      return integer_power(u, v);
    case B_MIN:
      return u < v ? u : v;
    case B_MAX:
      return u > v ? u : v;
    case B_MOD:
    case B_FMOD: {
      if (v == 0) {
        __atomic_store_n(&job->zero_divisor, true, __ATOMIC_RELAXED);
        return 0;
      }
      int64_t rest = v == -1 ? 0 : u % v;
      bool adjust =
          job->function == B_MOD && rest != 0 && (rest < 0) != (v < 0);
      return adjust ? rest + v : rest;
    }
    case B_EQUAL:
      return u == v;
    case B_LESS:
      return u < v;
    case B_LESS_EQUAL:
      return u <= v;
    case B_GREATER:
      return u > v;
    case B_GREATER_EQUAL:
      return u >= v;
    case B_AND:
      return u != 0 && v != 0;
    case B_OR:
      return u != 0 || v != 0;
    case B_XOR:
      return (u != 0) != (v != 0);
  }
  return 0;
}

static void binary_rows(void *context, int worker, int64_t begin, int64_t end) {
  (void)worker;
  struct binary_job *job = context;
  for (int64_t row = begin; row < end; row++) {
    int64_t a = 0, b = 0, rest = row;
    for (int d = job->rank - 1; d >= 0; d--) {
      int64_t at = rest % job->dims[d];
      rest /= job->dims[d];
      a += at * job->a_step[d];
      b += at * job->b_step[d];
    }
    int64_t y = row * job->inner;
    if (job->y->integer && !job->a->integer) {
      compare_row(job->function, job->inner, job->a->f + a, job->a_inner,
                  job->b->f + b, job->b_inner, job->y->i + y);
    } else if (job->y->integer) {
      for (int64_t i = 0; i < job->inner; i++)
        job->y->i[y + i] = integer_value(job, job->a->i[a + i * job->a_inner],
                                         job->b->i[b + i * job->b_inner]);
    } else {
      float_row(job->function, job->inner, job->a->f + a, job->a_inner,
                job->b->f + b, job->b_inner, job->y->f + y);
    }
  }
}

void cuvil_host_broadcast_steps(const struct cuvil_host_tensor *x, int rank,
                                int64_t *steps) {
  int64_t step = 1;
  for (int d = rank - 1; d >= 0; d--) {
    int at = d - (rank - x->rank);
    int64_t extent = at < 0 ? 1 : x->dims[at];
    steps[d] = extent == 1 ? 0 : step;
    step *= extent;
  }
}

static enum cuvil_status binary(enum binary function,
                                const struct cuvil_host_tensor *a,
                                const struct cuvil_host_tensor *b,
                                struct cuvil_host_tensor *y, int threads) {
  if (y->count == 0) return CUVIL_OK;
  struct binary_job job = {.function = function, .a = a, .b = b, .y = y};
  int64_t sa[CUVIL_GRAPH_MAX_RANK], sb[CUVIL_GRAPH_MAX_RANK];
  cuvil_host_broadcast_steps(a, y->rank, sa);
  cuvil_host_broadcast_steps(b, y->rank, sb);
  /* Merge from the outside in; dimensions of extent 1 vanish. */
  int rank = 0;
  for (int d = 0; d < y->rank; d++) {
    if (y->dims[d] == 1) continue;
    bool merge = rank > 0 && job.a_step[rank - 1] == sa[d] * y->dims[d] &&
                 job.b_step[rank - 1] == sb[d] * y->dims[d];
    if (merge) {
      job.dims[rank - 1] *= y->dims[d];
    } else {
      job.dims[rank++] = y->dims[d];
    }
    job.a_step[rank - 1] = sa[d];
    job.b_step[rank - 1] = sb[d];
  }
  job.inner = 1;
  if (rank > 0) {
    job.rank = rank - 1;
    job.inner = job.dims[rank - 1];
    job.a_inner = job.a_step[rank - 1];
    job.b_inner = job.b_step[rank - 1];
  }
  int64_t rows = y->count / job.inner;
  int64_t grain = GRAIN / job.inner + 1;
  /* A single long row is cut into pieces, which then are the rows. */
  if (job.rank == 0 && y->count >= 4 * GRAIN && y->count % 64 == 0) {
    job.rank = 1;
    job.inner = y->count / 64;
    job.dims[0] = rows = 64;
    job.a_step[0] = job.a_inner * job.inner;
    job.b_step[0] = job.b_inner * job.inner;
    grain = 1;
  }
  cuvil_parallel(cuvil_parallel_threads(threads, rows, grain), rows,
                 binary_rows, &job);
  if (job.zero_divisor)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "an integer is divided by zero");
  return CUVIL_OK;
}

enum cuvil_status cuvil_infer_broadcast(const struct cuvil_graph *graph,
                                        const struct cuvil_node *node,
                                        struct cuvil_type *out) {
  cuvil_type_copy(out, cuvil_op_input(graph, node, 0));
  if (strcmp(node->op, "Mod") == 0 && cuvil_dtype_is_float(out->dtype) &&
      cuvil_node_int(node, "fmod", 0) == 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "fmod must be 1 for type %s",
                      cuvil_dtype_name(out->dtype));
  for (int i = 1; i < node->input_count; i++) {
    const struct cuvil_value *x = cuvil_op_input(graph, node, i);
    if (x == NULL)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "input %d is missing", i);
    CUVIL_TRY(cuvil_type_broadcast(out, x));
    bool power = strcmp(node->op, "Pow") == 0;
    if (x->dtype != out->dtype && !power)
      return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "types %s and %s do not mix",
                        cuvil_dtype_name(out->dtype),
                        cuvil_dtype_name(x->dtype));
    if (power && cuvil_dtype_is_float(x->dtype) &&
        !cuvil_dtype_is_float(out->dtype))
      return CUVIL_FAIL(
          CU_ERR_MODEL_UNSUPPORTED, "a power of %s with an exponent of %s",
          cuvil_dtype_name(out->dtype), cuvil_dtype_name(x->dtype));
  }
  return CUVIL_OK;
}

/* A real base with integer exponents. */
static enum cuvil_status real_power(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *b = call->inputs[1];
  struct cuvil_host_tensor exponent;
  CUVIL_TRY(cuvil_host_create(false, b->rank, b->dims, &exponent));
  for (int64_t i = 0; i < b->count; i++)
    exponent.f[i] = (float)b->i[i];
  enum cuvil_status status = binary(B_POW, call->inputs[0], &exponent,
                                    &call->outputs[0], call->threads);
  cuvil_host_destroy(&exponent);
  return status;
}

/* The first input spread over the output, then the others one by one: the
 * output is the left operand and the target of each step. */
static enum cuvil_status fold_many(const struct cuvil_op_call *call,
                                   enum binary function) {
  const struct cuvil_node *node = call->node;
  struct cuvil_host_tensor *y = &call->outputs[0], none;
  CUVIL_TRY(cuvil_host_create(y->integer, 0, NULL, &none));
  if (y->integer)
    none.i[0] = 0;
  else
    none.f[0] = -0.0f; /* leaves every x as it is, also -0 */
  enum cuvil_status status =
      binary(B_ADD, call->inputs[0], &none, y, call->threads);
  for (int i = 1; i < node->input_count && status == CUVIL_OK; i++)
    status = binary(function, y, call->inputs[i], y, call->threads);
  cuvil_host_destroy(&none);
  if (strcmp(node->op, "Mean") == 0)
    for (int64_t i = 0; i < y->count; i++)
      y->f[i] /= (float)node->input_count;
  return status;
}

/* What an operation in a narrower integer type leaves of a result. */
static void wrap(struct cuvil_host_tensor *y, enum cuvil_dtype dtype) {
  for (int64_t i = 0; i < y->count; i++) {
    if (dtype == CUVIL_I32)
      y->i[i] = (int32_t)(uint32_t)(uint64_t)y->i[i];
    else if (dtype == CUVIL_I8)
      y->i[i] = (int8_t)(uint8_t)(uint64_t)y->i[i];
    else
      y->i[i] = (uint8_t)(uint64_t)y->i[i];
  }
}

enum cuvil_status cuvil_execute_broadcast(const struct cuvil_op_call *call) {
  const struct cuvil_node *node = call->node;
  struct cuvil_host_tensor *y = &call->outputs[0];
  enum binary function;
  CUVIL_TRY(find_binary(node->op, &function));
  if (function == B_MOD && cuvil_node_int(node, "fmod", 0) != 0)
    function = B_FMOD;
  if (function == B_POW && !y->integer && call->inputs[1]->integer)
    return real_power(call);
  if (node->input_count == 2 && strcmp(node->op, "Mean") != 0)
    CUVIL_TRY(
        binary(function, call->inputs[0], call->inputs[1], y, call->threads));
  else
    CUVIL_TRY(fold_many(call, function));
  enum cuvil_dtype dtype = cuvil_op_output_dtype(call, 0);
  if (dtype == CUVIL_I32 || dtype == CUVIL_I8 || dtype == CUVIL_U8)
    wrap(y, dtype);
  return CUVIL_OK;
}

/* ---- comparisons and logic: bool results */
enum cuvil_status cuvil_infer_compare(const struct cuvil_graph *graph,
                                      const struct cuvil_node *node,
                                      struct cuvil_type *out) {
  enum binary function;
  CUVIL_TRY(find_binary(node->op, &function));
  CUVIL_TRY(cuvil_infer_broadcast(graph, node, out));
  if ((function == B_AND || function == B_OR || function == B_XOR) &&
      out->dtype != CUVIL_BOOL)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "operands of type %s",
                      cuvil_dtype_name(out->dtype));
  out->dtype = CUVIL_BOOL;
  return CUVIL_OK;
}

enum cuvil_status cuvil_execute_compare(const struct cuvil_op_call *call) {
  enum binary function;
  CUVIL_TRY(find_binary(call->node->op, &function));
  return binary(function, call->inputs[0], call->inputs[1], &call->outputs[0],
                call->threads);
}
