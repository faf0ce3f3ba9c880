/* problem.c - the tables behind the names, look-ups, counts, and building by
 * hand.
 *
 * A problem is a plain value without pointers, zero-filled where unused, so
 * that two equal problems are equal bytes.  Everything that is particular to a
 * kind and can be said as data stands in cuvil_kind_forms; parse, print and
 * the rules read it there.
 */
#include "problem/problem.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/internal.h"

const struct cuvil_kind_form cuvil_kind_forms[CUVIL_KIND_COUNT] = {
    [CUVIL_KIND_GEMM] = {.name = "gemm",
                         .dims = "m,n,k",
                         .derived = "",
                         .optional = "batch",
                         .operand_count = 3,
                         .operands = {"a", "b", "c"},
                         .operand_dims = {"m,k", "n,k", "m,n"},
                         .acc = true,
                         .accumulates = true,
                         .contracts = true},
    [CUVIL_KIND_CONV] = {.name = "conv",
                         .dims = "n,c,h,w,k,r,s",
                         .derived = "p,q",
                         .optional = "",
                         .operand_count = 3,
                         .operands = {"x", "w", "y"},
                         .operand_dims = {"n,h,w,c", "k,r,s,c", "n,p,q,k"},
                         .window = true,
                         .group = true,
                         .acc = true,
                         .accumulates = true,
                         .contracts = true},
    [CUVIL_KIND_POOL] = {.name = "pool",
                         .dims = "n,c,h,w,r,s",
                         .derived = "p,q",
                         .optional = "",
                         .operand_count = 2,
                         .operands = {"x", "y"},
                         .operand_dims = {"n,h,w,c", "n,p,q,c"},
                         .window = true,
                         .acc = true,
                         .accumulates = true},
    [CUVIL_KIND_REDUCE] = {.name = "reduce",
                           .dims = "",
                           .derived = "",
                           .optional = "",
                           .operand_count = 2,
                           .operands = {"x", "y"},
                           .acc = true,
                           .accumulates = true},
    [CUVIL_KIND_POINTWISE] = {.name = "pointwise",
                              .dims = "",
                              .derived = "",
                              .optional = "",
                              .operand_count = 1,
                              .operands = {"y"}},
    [CUVIL_KIND_ATTENTION] = {.name = "attention",
                              .dims = "b,hq,hkv,sq,skv,d,dv",
                              .derived = "",
                              .optional = "",
                              .operand_count = 4,
                              .operands = {"q", "k", "v", "o"},
                              .operand_dims = {"b,sq,hq,d", "b,skv,hkv,d",
                                               "b,skv,hkv,dv", "b,sq,hq,dv"},
                              .accumulates = true,
                              .contracts = true,
                              .whole = true,
                              .bare = true},
    [CUVIL_KIND_NORM] = {.name = "norm",
                         .dims = "m,n",
                         .derived = "",
                         .optional = "",
                         .operand_count = 2,
                         .operands = {"x", "y"},
                         .operand_dims = {"m,n", "m,n"},
                         .acc = true,
                         .accumulates = true,
                         .whole = true},
    [CUVIL_KIND_GATHER] = {.name = "gather",
                           .dims = "v,m,n",
                           .derived = "",
                           .optional = "",
                           .operand_count = 3,
                           .operands = {"table", "index", "y"},
                           .operand_dims = {"v,n", "m", "m,n"},
                           .acc = true,
                           .whole = true},
};

static const struct {
  const char *name;
  int args;
} expr_ops[CUVIL_OP_COUNT] = {
#define ROW(id, name, args) {name, args},
    CUVIL_EXPR_OP_LIST(ROW)
#undef ROW
};

const char *cuvil_kind_name(enum cuvil_kind kind) {
  return kind < CUVIL_KIND_COUNT ? cuvil_kind_forms[kind].name : "unknown";
}

const char *cuvil_expr_op_name(enum cuvil_expr_op op) {
  return op < CUVIL_OP_COUNT ? expr_ops[op].name : "unknown";
}

int cuvil_expr_op_args(enum cuvil_expr_op op) {
  return op < CUVIL_OP_COUNT ? expr_ops[op].args : 0;
}

const char *cuvil_pool_op_name(enum cuvil_pool_op op) {
  switch (op) {
    case CUVIL_POOL_MAX:
      return "max";
    case CUVIL_POOL_AVG:
      return "avg";
    case CUVIL_POOL_AVG_PADDED:
      return "avg_padded";
  }
  return NULL;
}

const char *cuvil_reduce_op_name(enum cuvil_reduce_op op) {
  switch (op) {
    case CUVIL_REDUCE_SUM:
      return "sum";
    case CUVIL_REDUCE_MEAN:
      return "mean";
    case CUVIL_REDUCE_MAX:
      return "max";
    case CUVIL_REDUCE_MIN:
      return "min";
  }
  return NULL;
}

const char *cuvil_norm_op_name(enum cuvil_norm_op op) {
  switch (op) {
    case CUVIL_NORM_LAYER:
      return "layer";
    case CUVIL_NORM_RMS:
      return "rms";
    case CUVIL_NORM_SOFTMAX:
      return "softmax";
    case CUVIL_NORM_LOG_SOFTMAX:
      return "log_softmax";
  }
  return NULL;
}

bool cuvil_norm_has_eps(enum cuvil_norm_op op) {
  return op == CUVIL_NORM_LAYER || op == CUVIL_NORM_RMS;
}

/* ---- names and numbers */

bool cuvil_dims_next(const char **list, char out[CUVIL_NAME_SIZE]) {
  memset(out, 0, CUVIL_NAME_SIZE);
  size_t size = strcspn(*list, ",");
  if (size == 0 || size >= CUVIL_NAME_SIZE) return false;
  memcpy(out, *list, size);
  *list += size;
  if (**list) ++*list;
  return true;
}

int cuvil_dims_count(const char *list) {
  char name[CUVIL_NAME_SIZE];
  int count = 0;
  while (cuvil_dims_next(&list, name))
    count++;
  return count;
}

bool cuvil_name_valid(const char *name) {
  if (name[0] < 'a' || name[0] > 'z') return false;
  size_t i = 1;
  for (; i < CUVIL_NAME_SIZE && name[i]; i++) {
    char c = name[i];
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'))
      return false;
  }
  return i < CUVIL_NAME_SIZE;
}

void cuvil_name_copy(char out[CUVIL_NAME_SIZE], const char *name) {
  size_t size = strnlen(name, CUVIL_NAME_SIZE - 1);
  memset(out, 0, CUVIL_NAME_SIZE);
  memcpy(out, name, size);
}

/* Numbers in texts have a point whatever the process's locale says. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) {
  c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static float read_float(const char *text, char **end) {
  pthread_once(&c_locale_once, make_c_locale);
  return c_locale ? strtof_l(text, end, c_locale) : strtof(text, end);
}

const char *cuvil_number_parse(const char *text, float *out) {
  const char *digits = *text == '-' ? text + 1 : text;
  if (strncmp(digits, "inf", 3) == 0) {
    *out = digits == text ? INFINITY : -INFINITY;
    return digits + 3;
  }
  if (*digits != '.' && (*digits < '0' || *digits > '9')) return NULL;
  char *end;
  *out = read_float(text, &end);
  return end == text ? NULL : end;
}

void cuvil_number_print(float value, char out[CUVIL_NUMBER_SIZE]) {
  if (isinf(value)) {
    snprintf(out, CUVIL_NUMBER_SIZE, "%s", value < 0 ? "-inf" : "inf");
    return;
  }
  pthread_once(&c_locale_once, make_c_locale);
  locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
  for (int digits = 1; digits <= 9; digits++) {
    snprintf(out, CUVIL_NUMBER_SIZE, "%.*g", digits, (double)value);
    if (read_float(out, NULL) == value) break;
  }
  if (c_locale) uselocale(before);
}

/* ---- look-ups */

int cuvil_problem_find_dim(const struct cuvil_problem *problem,
                           const char *name) {
  for (int i = 0; i < problem->dim_count; i++)
    if (strcmp(problem->dims[i].name, name) == 0) return i;
  return -1;
}

int64_t cuvil_problem_extent(const struct cuvil_problem *problem,
                             const char *name) {
  int dim = cuvil_problem_find_dim(problem, name);
  return dim < 0 ? 0 : problem->dims[dim].extent;
}

int cuvil_problem_find_operand(const struct cuvil_problem *problem,
                               const char *name) {
  for (int i = 0; i < problem->operand_count; i++)
    if (strcmp(problem->operands[i].name, name) == 0) return i;
  return -1;
}

bool cuvil_operand_has_dim(const struct cuvil_operand *operand, int dim) {
  for (int i = 0; i < operand->rank; i++)
    if (operand->dims[i] == dim) return true;
  return false;
}

bool cuvil_problem_batched(const struct cuvil_problem *problem) {
  return problem->kind == CUVIL_KIND_GEMM &&
         problem->dim_count > CUVIL_DIM_BATCH;
}

int64_t cuvil_operand_extent(const struct cuvil_problem *problem, int operand,
                             int i) {
  const struct cuvil_operand *o = &problem->operands[operand];
  if (o->limit[i]) return o->limit[i];
  int64_t extent = problem->dims[o->dims[i]].extent;
  if (problem->kind == CUVIL_KIND_CONV && operand == CUVIL_CONV_W &&
      o->dims[i] == CUVIL_CONV_DIM_C)
    return extent / problem->group;
  return extent;
}

int64_t cuvil_operand_elements(const struct cuvil_problem *problem,
                               int operand) {
  const struct cuvil_operand *o = &problem->operands[operand];
  int64_t last = 0;
  for (int i = 0; i < o->rank; i++) {
    int64_t extent = cuvil_operand_extent(problem, operand, i);
    if (extent == 0) return 0;
    last += (extent - 1) * o->strides[i];
  }
  return last + 1;
}

int64_t cuvil_operand_bytes(const struct cuvil_problem *problem, int operand) {
  return cuvil_operand_elements(problem, operand) *
         (int64_t)cuvil_dtype_size(problem->operands[operand].dtype);
}

int cuvil_divisibility(int64_t extent) {
  for (int power = 16; power > 1; power /= 2)
    if (extent % power == 0) return power;
  return 1;
}

/* ---- work */

static double product(const struct cuvil_problem *problem, int operand) {
  double count = 1;
  for (int i = 0; i < problem->operands[operand].rank; i++)
    count *= (double)cuvil_operand_extent(problem, operand, i);
  return count;
}

/* Pairs of a query and a key of one head that causal=1 leaves. */
static double attended(const struct cuvil_problem *problem) {
  double queries = (double)problem->dims[CUVIL_ATTENTION_DIM_SQ].extent;
  double keys = (double)problem->dims[CUVIL_ATTENTION_DIM_SKV].extent;
  if (!problem->causal) return queries * keys;
  /* The last min(queries, keys) queries see some: keys - i of them. */
  double some = queries < keys ? queries : keys;
  return some * keys - some * (some - 1) / 2;
}

/* Of one element, each pass over the row counted once. */
static double norm_operations(enum cuvil_norm_op op) {
  switch (op) {
    case CUVIL_NORM_LAYER:
      return 5; /* sum; subtract, square, add; multiply */
    case CUVIL_NORM_RMS:
      return 3; /* square, add; multiply */
    case CUVIL_NORM_SOFTMAX:
    case CUVIL_NORM_LOG_SOFTMAX:
      return 5; /* maximum; subtract, exponential, sum; multiply or subtract */
  }
  return 0;
}

static double statements(const struct cuvil_expr *expr) {
  double operations = 0;
  for (int i = 0; i < expr->count; i++)
    if (expr->statements[i].op != CUVIL_OP_COPY) operations++;
  return operations;
}

double cuvil_problem_flops(const struct cuvil_problem *problem) {
  double outputs = product(problem, problem->output);
  switch (problem->kind) {
    case CUVIL_KIND_GEMM:
      return 2 * outputs * (double)problem->dims[CUVIL_DIM_K].extent;
    case CUVIL_KIND_CONV:
      return 2 * outputs *
             (double)(problem->dims[CUVIL_CONV_DIM_C].extent / problem->group) *
             (double)problem->dims[CUVIL_CONV_DIM_R].extent *
             (double)problem->dims[CUVIL_CONV_DIM_S].extent;
    case CUVIL_KIND_POOL:
      return outputs * (double)problem->dims[CUVIL_POOL_DIM_R].extent *
             (double)problem->dims[CUVIL_POOL_DIM_S].extent;
    case CUVIL_KIND_REDUCE:
      return product(problem, CUVIL_REDUCE_X);
    case CUVIL_KIND_ATTENTION:
      return 2 * (double)problem->dims[CUVIL_ATTENTION_DIM_B].extent *
             (double)problem->dims[CUVIL_ATTENTION_DIM_HQ].extent *
             (double)(problem->dims[CUVIL_ATTENTION_DIM_D].extent +
                      problem->dims[CUVIL_ATTENTION_DIM_DV].extent) *
             attended(problem);
    case CUVIL_KIND_NORM:
      return outputs *
             (norm_operations(problem->norm_op) +
              statements(&problem->prologue) + statements(&problem->epilogue));
    case CUVIL_KIND_POINTWISE:
    case CUVIL_KIND_GATHER:
    case CUVIL_KIND_COUNT:
      break;
  }
  return outputs * statements(&problem->epilogue);
}

/* Elements of an operand that have to be moved. */
static double moved(const struct cuvil_problem *problem, int operand) {
  double count = product(problem, operand);
  if (problem->kind != CUVIL_KIND_GATHER || operand != CUVIL_GATHER_TABLE)
    return count;
  double read = product(problem, CUVIL_GATHER_Y);
  return read < count ? read : count;
}

double cuvil_problem_bytes(const struct cuvil_problem *problem) {
  double bytes = 0;
  for (int i = 0; i < problem->operand_count; i++)
    bytes += moved(problem, i) *
             (double)cuvil_dtype_size(problem->operands[i].dtype);
  return bytes;
}

/* ---- building by hand */

void cuvil_problem_begin(enum cuvil_kind kind, struct cuvil_problem *out) {
  memset(out, 0, sizeof *out);
  const struct cuvil_kind_form *form = &cuvil_kind_forms[kind];
  out->kind = kind;
  out->version = 1;
  out->group = 1;
  if (form->window)
    out->stride[0] = out->stride[1] = out->dilation[0] = out->dilation[1] = 1;
  out->mask = -1;
  const char *dims = form->dims, *derived = form->derived;
  while (cuvil_dims_next(&dims, out->dims[out->dim_count].name))
    out->dim_count++;
  while (cuvil_dims_next(&derived, out->dims[out->dim_count].name))
    out->dims[out->dim_count++].derived = true;
}

int cuvil_problem_add_dim(struct cuvil_problem *problem, const char *name,
                          int64_t extent) {
  if (problem->dim_count == CUVIL_MAX_DIMS) return -1;
  struct cuvil_dim *dim = &problem->dims[problem->dim_count];
  cuvil_name_copy(dim->name, name);
  dim->extent = extent;
  return problem->dim_count++;
}

int cuvil_problem_add_operand(struct cuvil_problem *problem, const char *name,
                              enum cuvil_operand_role role,
                              enum cuvil_dtype dtype, const char *dims) {
  if (problem->operand_count == CUVIL_MAX_OPERANDS) return -1;
  struct cuvil_operand operand = {.role = role, .dtype = dtype};
  cuvil_name_copy(operand.name, name);
  while (*dims) {
    size_t size = strcspn(dims, ",");
    char dim[CUVIL_NAME_SIZE] = {0};
    if (size >= sizeof dim || operand.rank == CUVIL_MAX_RANK) return -1;
    memcpy(dim, dims, size);
    int index = cuvil_problem_find_dim(problem, dim);
    if (index < 0) return -1;
    operand.dims[operand.rank++] = index;
    dims += size;
    if (*dims) dims++;
  }
  int index = problem->operand_count++;
  problem->operands[index] = operand;
  if (role == CUVIL_ROLE_OUTPUT &&
      (problem->output == index ||
       problem->operands[problem->output].role != CUVIL_ROLE_OUTPUT))
    problem->output = index;
  return index;
}

static int append(struct cuvil_expr *expr, const char *name,
                  enum cuvil_expr_op op, const struct cuvil_term *args,
                  int output) {
  if (expr->count == CUVIL_MAX_STATEMENTS) return -1;
  struct cuvil_statement *s = &expr->statements[expr->count];
  memset(s, 0, sizeof *s);
  cuvil_name_copy(s->name, name);
  s->op = op;
  for (int i = 0; i < cuvil_expr_op_args(op); i++) {
    s->args[i].kind = args[i].kind;
    s->args[i].index = args[i].index;
    s->args[i].value = args[i].value;
  }
  s->output = output;
  return expr->count++;
}

int cuvil_problem_add_statement(struct cuvil_problem *problem, const char *name,
                                enum cuvil_expr_op op,
                                const struct cuvil_term *args, int output) {
  if (strcmp(name, "out") == 0) output = problem->output;
  return append(&problem->epilogue, name, op, args, output);
}

int cuvil_problem_add_prologue(struct cuvil_problem *problem, const char *name,
                               enum cuvil_expr_op op,
                               const struct cuvil_term *args, int output) {
  return append(&problem->prologue, name, op, args, output);
}

enum cuvil_status cuvil_problem_finish(struct cuvil_problem *problem) {
  return cuvil_problem_check(problem, NULL);
}
