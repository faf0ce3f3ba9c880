/* expression_vector.c - expressions over runs of points.
 *
 * The run lies along the main output's fastest dimension.  A side operand is
 * one value for all lanes, a run of neighbours read with the widest access
 * that its alignment class allows, or gathered.  Reading and computing are two
 * functions, so that a kernel may read early what it needs late: constants
 * even before the kernel in front has finished.
 */
#include "kernels/common/expression.h"

enum access { SAME /* one value for all lanes */, RUN, GATHER };

static enum access access_of(const struct cuvil_problem *problem, int operand) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  const struct cuvil_operand *o = &problem->operands[operand];
  int fastest = y->rank ? y->dims[y->rank - 1] : -1;
  if (fastest < 0 || !cuvil_operand_has_dim(o, fastest)) return SAME;
  if (o->dims[o->rank - 1] == fastest && o->strides[o->rank - 1] == 1)
    return RUN;
  return GATHER;
}

/* `at` is a multiple of V by contract, whatever the rows are. */
static int run_alignment(const struct cuvil_problem *problem, int operand) {
  if (cuvil_operand_like_output(problem, operand)) return 16;
  return cuvil_operand_alignment(problem, operand);
}

static bool has_limits(const struct cuvil_problem *problem, int operand) {
  const struct cuvil_operand *o = &problem->operands[operand];
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i] && !cuvil_operand_like_output(problem, operand))
      return true;
  return false;
}

static struct cuvil_place lane_of(const struct cuvil_problem *problem,
                                  const struct cuvil_place *base) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  return (struct cuvil_place){base->names, " + j", y->dims[y->rank - 1]};
}

/* "if (..) " where the whole run lies within the operand's limits; false and
 * nothing when it has none. */
static bool put_run_limits(const struct cuvil_problem *problem, int operand,
                           const struct cuvil_place *base,
                           struct cuvil_buf *out) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  struct cuvil_place last = {base->names, " + (V - 1)", y->dims[y->rank - 1]};
  struct cuvil_buf limits = {0};
  bool limited = cuvil_emit_limits(problem, operand, &last, &limits);
  if (limited) cuvil_buf_printf(out, "if (%s) ", cuvil_buf_text(&limits));
  if (limits.failed) out->failed = true;
  cuvil_buf_free(&limits);
  return limited;
}

/* Element by element. */
static void put_gather(const struct cuvil_problem *problem, int i,
                       const struct cuvil_place *base, struct cuvil_buf *out) {
  struct cuvil_place lane = lane_of(problem, base);
  cuvil_buf_printf(out,
                   "#pragma unroll\n"
                   "    for (int j = 0; j < V; j++) r_%s[j] = ",
                   problem->operands[i].name);
  cuvil_emit_read(problem, i, &lane, out);
  cuvil_buf_puts(out, ";\n");
}

/* Reads side operand `i` of a run into r_<name>. */
static void put_load(const struct cuvil_problem *problem, int i,
                     const struct cuvil_place *base, struct cuvil_buf *out) {
  const char *name = problem->operands[i].name;
  bool limited = false;
  switch (access_of(problem, i)) {
    case SAME:
      cuvil_buf_printf(out, "    r_%s = ", name);
      cuvil_emit_read(problem, i, base, out);
      cuvil_buf_puts(out, ";\n");
      break;
    case RUN:
      cuvil_buf_puts(out, "    ");
      limited = put_run_limits(problem, i, base, out);
      cuvil_buf_printf(out, "load_vector<V, %d>(s_%s + (",
                       run_alignment(problem, i), name);
      cuvil_emit_offset(problem, i, base, out);
      cuvil_buf_printf(out, "), r_%s);\n", name);
      if (!limited) break;
      cuvil_buf_puts(out, "    else {\n");
      put_gather(problem, i, base, out);
      cuvil_buf_puts(out, "    }\n");
      break;
    case GATHER:
      put_gather(problem, i, base, out);
      break;
  }
}

static void put_method(const struct cuvil_emit_program *program,
                       const struct cuvil_place *base, bool weights,
                       struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  cuvil_buf_printf(out, "  METHOD void load_%s(i64 at",
                   weights ? "weights" : "others");
  cuvil_emit_coordinates(problem, true, out);
  cuvil_buf_puts(out, " EPILOGUE_PARAMETERS) {\n");
  for (int i = 0; i < problem->operand_count; i++)
    if (cuvil_emit_program_reads(program, i) &&
        problem->operands[i].weight == weights)
      put_load(problem, i, base, out);
  cuvil_buf_puts(out, "  }\n");
}

static void put_sides(const struct cuvil_emit_program *program,
                      const struct cuvil_place *base, const char *name,
                      const bool *array, struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  cuvil_buf_printf(out, "template <int V>\nstruct %s_sides {\n", name);
  for (int i = 0; i < problem->operand_count; i++)
    if (cuvil_emit_program_reads(program, i))
      cuvil_buf_printf(out, "  float r_%s%s;\n", problem->operands[i].name,
                       array[i] ? "[V]" : "");
  put_method(program, base, true, out);
  put_method(program, base, false, out);
  cuvil_buf_puts(out, "};\n");
}

static void keep_lane(const struct cuvil_problem *problem, int operand,
                      int statement, const void *user, struct cuvil_buf *out) {
  (void)user;
  cuvil_buf_printf(out, "    x_%s[j] = v%d;\n", problem->operands[operand].name,
                   statement);
}

static void put_stores(const struct cuvil_emit_program *program,
                       const struct cuvil_place *base, struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  struct cuvil_place lane = lane_of(problem, base);
  for (int i = 0; i < problem->operand_count; i++) {
    const struct cuvil_operand *o = &problem->operands[i];
    if (!cuvil_emit_program_writes(program, i)) continue;
    if (access_of(problem, i) == RUN && !has_limits(problem, i)) {
      cuvil_buf_printf(out, "  if (live) store_vector<V, %d>(s_%s + (",
                       run_alignment(problem, i), o->name);
      cuvil_emit_offset(problem, i, base, out);
      cuvil_buf_printf(out, "), x_%s);\n", o->name);
      continue;
    }
    struct cuvil_buf limits = {0};
    cuvil_buf_puts(out, "#pragma unroll\n  for (int j = 0; j < V; j++)\n");
    if (cuvil_emit_limits(problem, i, &lane, &limits))
      cuvil_buf_printf(out, "    if (%s)\n", cuvil_buf_text(&limits));
    cuvil_buf_printf(out, "    if (live) from_float(x_%s[j], s_%s[", o->name,
                     o->name);
    cuvil_emit_offset(problem, i, &lane, out);
    cuvil_buf_puts(out, "]);\n");
    if (limits.failed) out->failed = true;
    cuvil_buf_free(&limits);
  }
}

static void put_apply(const struct cuvil_emit_program *program,
                      const struct cuvil_place *base, const char *name,
                      const bool *array, struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  struct cuvil_emit_style style = {
      .acc = "acc[j]",
      .indent = "    ",
      .side = "s.",
      .array = array,
      .store = keep_lane,
  };
  cuvil_buf_printf(out,
                   "template <int V>\n"
                   "DEVICE void %s_apply(float (&acc)[V], const %s_sides<V> &s"
                   ", bool live, i64 at",
                   name, name);
  cuvil_emit_coordinates(problem, true, out);
  cuvil_buf_puts(out, " EPILOGUE_PARAMETERS) {\n");
  for (int i = 0; i < problem->operand_count; i++)
    if (cuvil_emit_program_writes(program, i))
      cuvil_buf_printf(out, "  float x_%s[V];\n", problem->operands[i].name);
  cuvil_buf_puts(out, "#pragma unroll\n  for (int j = 0; j < V; j++) {\n");
  cuvil_emit_statements(program, &style, out);
  cuvil_buf_puts(out, "    acc[j] = ");
  cuvil_emit_result(program, "acc[j]", out);
  cuvil_buf_puts(out, ";\n  }\n");
  put_stores(program, base, out);
  cuvil_buf_puts(out, "}\n");
}

void cuvil_emit_vector(const struct cuvil_emit_program *program,
                       const struct cuvil_emit_names *names, const char *name,
                       struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  struct cuvil_place base = {names, "", -1};
  bool array[CUVIL_MAX_OPERANDS];
  for (int i = 0; i < problem->operand_count; i++)
    array[i] = access_of(problem, i) != SAME;
  put_sides(program, &base, name, array, out);
  put_apply(program, &base, name, array, out);
  cuvil_buf_printf(out,
                   "template <int V>\n"
                   "DEVICE void %s_vector(float (&acc)[V], i64 at",
                   name);
  cuvil_emit_coordinates(problem, true, out);
  cuvil_buf_printf(out, " EPILOGUE_PARAMETERS) {\n  %s_sides<V> s;\n", name);
  for (int weights = 0; weights < 2; weights++) {
    cuvil_buf_printf(out, "  s.load_%s(at", weights ? "weights" : "others");
    cuvil_emit_coordinates(problem, false, out);
    cuvil_buf_puts(out, " EPILOGUE_ARGUMENTS);\n");
  }
  cuvil_buf_printf(out, "  %s_apply<V>(acc, s, true, at", name);
  cuvil_emit_coordinates(problem, false, out);
  cuvil_buf_puts(out, " EPILOGUE_ARGUMENTS);\n}\n");
}
