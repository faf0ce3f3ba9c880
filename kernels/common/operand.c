/* operand.c - any element of any operand by its coordinates, as CUDA C.
 *
 * The generic way, for layouts and strides that no fast path was written for:
 * strides and limits are kernel arguments, except the fastest stride of a
 * packed operand, which is the literal 1 so that the compiler sees neighbours.
 */
#include "kernels/common/emit.h"

static bool literal_one(const struct cuvil_operand *o, int place) {
  return !o->strided && place == o->rank - 1;
}

/* The operand's place for problem dimension `dim`; -1: it has none. */
static int place_of(const struct cuvil_operand *o, int dim) {
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == dim) return i;
  return -1;
}

static void put_parameters(const struct cuvil_problem *problem, int operand,
                           const char *name, bool types,
                           struct cuvil_buf *out) {
  const struct cuvil_operand *o = &problem->operands[operand];
  for (int i = 0; i < o->rank; i++) {
    const char *dim = problem->dims[o->dims[i]].name;
    if (!literal_one(o, i))
      cuvil_buf_printf(out, ", %s%s_s_%s", types ? "i64 " : "", name, dim);
    if (o->limit[i])
      cuvil_buf_printf(out, ", %s%s_l_%s", types ? "int " : "", name, dim);
  }
}

enum cuvil_status cuvil_emit_operand_arguments(
    const struct cuvil_problem *problem, int operand, struct cuvil_step *step) {
  const struct cuvil_operand *o = &problem->operands[operand];
  for (int i = 0; i < o->rank; i++) {
    if (!literal_one(o, i)) CUVIL_TRY(cuvil_step_arg_i64(step, o->strides[i]));
    if (o->limit[i]) CUVIL_TRY(cuvil_step_arg_i32(step, o->limit[i]));
  }
  return CUVIL_OK;
}

/* "int i_m, int i_k" or "i_m, i_k": the operand's dimensions in problem
 * order. */
static void put_coordinates(const struct cuvil_problem *problem,
                            const struct cuvil_operand *o, const char *type,
                            struct cuvil_buf *out) {
  const char *comma = "";
  for (int d = 0; d < problem->dim_count; d++) {
    if (place_of(o, d) < 0) continue;
    cuvil_buf_printf(out, "%s%si_%s", comma, type, problem->dims[d].name);
    comma = ", ";
  }
}

void cuvil_emit_operand(const struct cuvil_problem *problem, int operand,
                        const char *name, struct cuvil_buf *out) {
  const struct cuvil_operand *o = &problem->operands[operand];
  cuvil_buf_printf(out, "typedef %s %s_T;\n#define %s_PARAMETERS ",
                   cuvil_emit_type(o->dtype), name, name);
  put_parameters(problem, operand, name, true, out);
  cuvil_buf_printf(out, "\n#define %s_ARGUMENTS ", name);
  put_parameters(problem, operand, name, false, out);
  cuvil_buf_printf(out, "\n#define %s_COORDINATES ", name);
  put_coordinates(problem, o, "", out);
  int fastest = cuvil_fastest_dim(o);
  if (fastest >= 0)
    cuvil_buf_printf(out,
                     "\n#define %s_FASTEST i_%s\n"
                     "#define %s_FASTEST_EXTENT e_%s",
                     name, problem->dims[fastest].name, name,
                     problem->dims[fastest].name);
  cuvil_buf_printf(out, "\nDEVICE i64 %s_offset(", name);
  put_coordinates(problem, o, "int ", out);
  cuvil_buf_printf(out, " %s_PARAMETERS) {\n  return 0", name);
  for (int i = 0; i < o->rank; i++) {
    const char *dim = problem->dims[o->dims[i]].name;
    cuvil_buf_printf(out, " + i_%s", dim);
    if (!literal_one(o, i)) cuvil_buf_printf(out, " * %s_s_%s", name, dim);
  }
  cuvil_buf_printf(out, ";\n}\nDEVICE bool %s_inside(", name);
  put_coordinates(problem, o, "int ", out);
  cuvil_buf_printf(out, " %s_PARAMETERS) {\n  return true", name);
  for (int i = 0; i < o->rank; i++) {
    const char *dim = problem->dims[o->dims[i]].name;
    if (o->limit[i])
      cuvil_buf_printf(out, " && i_%s < %s_l_%s", dim, name, dim);
  }
  cuvil_buf_puts(out, ";\n}\n");
}

/* ---- points */
static void put_product(const struct cuvil_problem *problem, bool output,
                        struct cuvil_buf *out) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  cuvil_buf_puts(out, "((i64)1");
  for (int d = 0; d < problem->dim_count; d++)
    if (cuvil_operand_has_dim(y, d) == output)
      cuvil_buf_printf(out, " * e_%s", problem->dims[d].name);
  cuvil_buf_puts(out, ")\n");
}

/* Takes dimension `dim` off the linear index `rest`. */
static void put_split(const struct cuvil_problem *problem, int dim,
                      const char *rest, struct cuvil_buf *out) {
  const char *name = problem->dims[dim].name;
  cuvil_buf_printf(out, " const int i_%s = (int)(%s %% e_%s); %s /= e_%s;",
                   name, rest, name, rest, name);
}

/* The reduced dimensions, fastest of the first input first. */
static void put_reduced_split(const struct cuvil_problem *problem,
                              struct cuvil_buf *out) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  const struct cuvil_operand *x = &problem->operands[0];
  for (int i = x->rank - 1; i >= 0; i--)
    if (!cuvil_operand_has_dim(y, x->dims[i]))
      put_split(problem, x->dims[i], "left_", out);
}

void cuvil_emit_points(const struct cuvil_problem *problem,
                       struct cuvil_buf *out) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  /* The largest index met is a little beyond the last point. */
  int64_t most = cuvil_output_points(problem);
  if (cuvil_reduced_points(problem) > most)
    most = cuvil_reduced_points(problem);
  cuvil_buf_printf(out, "typedef %s index_t;\n",
                   most < (int64_t)1 << 30 ? "int" : "i64");
  cuvil_buf_puts(out, "#define EXTENT_PARAMETERS ");
  for (int d = 0; d < problem->dim_count; d++)
    cuvil_buf_printf(out, ", int e_%s", problem->dims[d].name);
  cuvil_buf_puts(out, "\n#define POINTS ");
  put_product(problem, true, out);
  cuvil_buf_puts(out, "#define REDUCED ");
  put_product(problem, false, out);
  cuvil_buf_puts(out, "#define POINT ");
  put_coordinates(problem, y, "", out);
  cuvil_buf_puts(out, "\n#define POINT_TAIL ");
  if (y->rank) cuvil_buf_puts(out, ", ");
  put_coordinates(problem, y, "", out);
  cuvil_buf_puts(out, "\n#define POINT_COORDINATES(i) index_t rest_ = (i);");
  for (int i = y->rank - 1; i >= 0; i--)
    put_split(problem, y->dims[i], "rest_", out);
  cuvil_buf_puts(out, "\n#define REDUCED_COORDINATES(i) index_t left_ = (i);");
  put_reduced_split(problem, out);
  cuvil_buf_puts(out, "\n#define REDUCED_LOOPS ");
  for (int d = 0; d < problem->dim_count; d++) {
    const char *dim = problem->dims[d].name;
    if (!cuvil_operand_has_dim(y, d))
      cuvil_buf_printf(out, " for (int i_%s = 0; i_%s < e_%s; i_%s++)", dim,
                       dim, dim, dim);
  }
  cuvil_buf_puts(out, "\n");
}

enum cuvil_status cuvil_emit_extent_arguments(
    const struct cuvil_problem *problem, struct cuvil_step *step) {
  for (int d = 0; d < problem->dim_count; d++)
    CUVIL_TRY(cuvil_step_arg_i32(step, problem->dims[d].extent));
  return CUVIL_OK;
}

static int64_t product(const struct cuvil_problem *problem, bool output) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  int64_t count = 1;
  for (int d = 0; d < problem->dim_count; d++)
    if (cuvil_operand_has_dim(y, d) == output) count *= problem->dims[d].extent;
  return count;
}

int64_t cuvil_output_points(const struct cuvil_problem *problem) {
  return product(problem, true);
}

int64_t cuvil_reduced_points(const struct cuvil_problem *problem) {
  return product(problem, false);
}

int cuvil_largest_vector(int64_t extent, int limit) {
  int vector = limit;
  while (vector > 1 && extent % vector)
    vector /= 2;
  return vector;
}

int cuvil_fastest_dim(const struct cuvil_operand *operand) {
  int last = operand->rank - 1;
  return last >= 0 && operand->strides[last] == 1 ? operand->dims[last] : -1;
}
