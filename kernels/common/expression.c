/* expression.c - an epilogue (or a pointwise problem) as CUDA C.
 *
 * The epilogue is a short single-assignment program over the accumulator, side
 * operands and constants; here it becomes two device functions, one for a
 * point and one for a run of points along the output's fastest dimension, in
 * which side operands are read with the widest access that their alignment
 * class allows.  The operators are calls to op_<name>, which mean fp32
 * arithmetic or (value, error) pairs in fp64 depending on what stands before.
 *
 * Every run-time value that the text needs - pointers, strides, limits,
 * extents, constants - is a parameter of the kernel.  One walk over the
 * problem lists them; declaring, passing on and filling the launch arguments
 * are three ways to print that one list, so that they cannot disagree.
 */
#include <string.h>

#include "kernels/common/expression.h"

const char *cuvil_emit_type(enum cuvil_dtype dtype) {
  switch (dtype) {
    case CUVIL_F32:
      return "float";
    case CUVIL_F16:
      return "f16";
    case CUVIL_BF16:
      return "bf16";
    case CUVIL_F64:
      return "double";
    case CUVIL_I8:
      return "i8";
    case CUVIL_U8:
      return "u8";
    case CUVIL_I32:
      return "i32";
    case CUVIL_I64:
      return "i64";
    case CUVIL_BOOL:
      return "bool8";
    case CUVIL_DTYPE_NONE:
    case CUVIL_DTYPE_COUNT:
      break;
  }
  return "void";
}

bool cuvil_operand_like_output(const struct cuvil_problem *problem,
                               int operand) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  const struct cuvil_operand *o = &problem->operands[operand];
  if (o->rank != y->rank) return false;
  for (int i = 0; i < y->rank; i++)
    if (o->dims[i] != y->dims[i] || o->limit[i] != y->limit[i] ||
        o->strides[i] != y->strides[i])
      return false;
  return o->strided == y->strided;
}

int cuvil_operand_alignment(const struct cuvil_problem *problem, int operand) {
  const struct cuvil_operand *o = &problem->operands[operand];
  if (o->rank == 0 || o->strides[o->rank - 1] != 1) return 1;
  int aligned = 16;
  for (int i = 0; i + 1 < o->rank; i++) {
    int each = cuvil_divisibility(o->strides[i]);
    if (each < aligned) aligned = each;
  }
  return aligned;
}

/* ---- the programs of a problem */
struct cuvil_emit_program cuvil_emit_program_epilogue(
    const struct cuvil_problem *problem) {
  return (struct cuvil_emit_program){problem, &problem->epilogue, 0};
}

struct cuvil_emit_program cuvil_emit_program_prologue(
    const struct cuvil_problem *problem) {
  int constants = 0;
  for (int s = 0; s < problem->epilogue.count; s++) {
    const struct cuvil_statement *st = &problem->epilogue.statements[s];
    for (int a = 0; a < cuvil_expr_op_args(st->op); a++)
      constants += st->args[a].kind == CUVIL_TERM_CONSTANT;
  }
  return (struct cuvil_emit_program){problem, &problem->prologue, constants};
}

bool cuvil_emit_program_reads(const struct cuvil_emit_program *program,
                              int operand) {
  for (int s = 0; s < program->expr->count; s++) {
    const struct cuvil_statement *st = &program->expr->statements[s];
    for (int a = 0; a < cuvil_expr_op_args(st->op); a++)
      if (st->args[a].kind == CUVIL_TERM_OPERAND &&
          st->args[a].index == operand)
        return true;
  }
  return false;
}

bool cuvil_emit_program_writes(const struct cuvil_emit_program *program,
                               int operand) {
  if (operand == program->problem->output) return false;
  for (int s = 0; s < program->expr->count; s++)
    if (program->expr->statements[s].output == operand) return true;
  return false;
}

/* ---- the list of run-time values */
enum value_kind { POINTER, BOUNDS, STRIDE, LIMIT, EXTENT, CONSTANT };
struct value {
  enum value_kind kind;
  int operand, place; /* stride, limit: of dims[place] */
  int dim;            /* extent */
  int number;         /* constant: in order of appearance */
  double constant;
};
typedef enum cuvil_status (*visit_fn)(void *user, const struct value *value);

static bool is_used(const struct cuvil_problem *problem, int operand) {
  const struct cuvil_operand *o = &problem->operands[operand];
  if (o->role == CUVIL_ROLE_SIDE) return true;
  if (o->role == CUVIL_ROLE_OUTPUT) return operand != problem->output;
  return false;
}

/* Packed operands need the extents of all dimensions but the slowest, where
 * no limit stands in for them. */
static enum cuvil_status visit_operand(const struct cuvil_problem *problem,
                                       int operand, visit_fn visit, void *user,
                                       bool *needed) {
  const struct cuvil_operand *o = &problem->operands[operand];
  if (cuvil_operand_like_output(problem, operand)) return CUVIL_OK;
  for (int i = 0; i < o->rank; i++) {
    struct value v = {.operand = operand, .place = i, .dim = o->dims[i]};
    if (o->limit[i]) {
      v.kind = LIMIT;
      CUVIL_TRY(visit(user, &v));
    }
    if (o->strided) {
      v.kind = STRIDE;
      CUVIL_TRY(visit(user, &v));
    } else if (i > 0 && !o->limit[i]) {
      needed[o->dims[i]] = true;
    }
  }
  return CUVIL_OK;
}

static enum cuvil_status visit_constants(
    const struct cuvil_emit_program *program, visit_fn visit, void *user) {
  int number = program->first_constant;
  for (int s = 0; s < program->expr->count; s++) {
    const struct cuvil_statement *st = &program->expr->statements[s];
    for (int a = 0; a < cuvil_expr_op_args(st->op); a++) {
      if (st->args[a].kind != CUVIL_TERM_CONSTANT) continue;
      struct value v = {
          .kind = CONSTANT, .number = number++, .constant = st->args[a].value};
      CUVIL_TRY(visit(user, &v));
    }
  }
  return CUVIL_OK;
}

static enum cuvil_status visit_values(const struct cuvil_problem *problem,
                                      bool checked, visit_fn visit,
                                      void *user) {
  bool needed[CUVIL_MAX_DIMS] = {false};
  for (int i = 0; i < problem->operand_count; i++) {
    if (!is_used(problem, i)) continue;
    struct value v = {.kind = POINTER, .operand = i};
    CUVIL_TRY(visit(user, &v));
    if (checked && problem->operands[i].role == CUVIL_ROLE_OUTPUT) {
      v.kind = BOUNDS;
      CUVIL_TRY(visit(user, &v));
    }
    CUVIL_TRY(visit_operand(problem, i, visit, user, needed));
  }
  for (int d = 0; d < problem->dim_count; d++) {
    struct value v = {.kind = EXTENT, .dim = d};
    if (needed[d]) CUVIL_TRY(visit(user, &v));
  }
  struct cuvil_emit_program epilogue = cuvil_emit_program_epilogue(problem);
  struct cuvil_emit_program prologue = cuvil_emit_program_prologue(problem);
  CUVIL_TRY(visit_constants(&epilogue, visit, user));
  return visit_constants(&prologue, visit, user);
}

struct printer {
  const struct cuvil_problem *problem;
  struct cuvil_buf *out;
  bool checked, types;
};

static enum cuvil_status print_value(void *user, const struct value *v) {
  struct printer *p = user;
  const struct cuvil_operand *o = &p->problem->operands[v->operand];
  switch (v->kind) {
    case POINTER:
      cuvil_buf_puts(p->out, ", ");
      if (p->types && o->role == CUVIL_ROLE_OUTPUT)
        cuvil_buf_printf(p->out, "%s *",
                         p->checked ? "double" : cuvil_emit_type(o->dtype));
      else if (p->types)
        cuvil_buf_printf(p->out, "const %s *", cuvil_emit_type(o->dtype));
      cuvil_buf_printf(p->out, "s_%s", o->name);
      break;
    case BOUNDS:
      cuvil_buf_printf(p->out, ", %ssb_%s", p->types ? "double *" : "",
                       o->name);
      break;
    case STRIDE:
      cuvil_buf_printf(p->out, ", %sss_%s_%d", p->types ? "i64 " : "", o->name,
                       v->place);
      break;
    case LIMIT:
      cuvil_buf_printf(p->out, ", %ssl_%s_%d", p->types ? "int " : "", o->name,
                       v->place);
      break;
    case EXTENT:
      cuvil_buf_printf(p->out, ", %sse_%s", p->types ? "int " : "",
                       p->problem->dims[v->dim].name);
      break;
    case CONSTANT:
      cuvil_buf_printf(p->out, ", %ssk%d", p->types ? "float " : "", v->number);
      break;
  }
  return CUVIL_OK;
}

static void print_values(const struct cuvil_problem *problem, bool checked,
                         bool types, struct cuvil_buf *out) {
  struct printer p = {problem, out, checked, types};
  CUVIL_IGNORE(visit_values(problem, checked, print_value, &p)); /* cannot */
}

void cuvil_emit_epilogue_parameters(const struct cuvil_problem *problem,
                                    bool checked, struct cuvil_buf *out) {
  print_values(problem, checked, true, out);
}

struct filler {
  const struct cuvil_problem *problem;
  const int *buffers, *bounds;
  struct cuvil_step *step;
};

static enum cuvil_status fill_value(void *user, const struct value *v) {
  struct filler *f = user;
  const struct cuvil_operand *o = &f->problem->operands[v->operand];
  switch (v->kind) {
    case POINTER:
      return cuvil_step_arg_buffer(f->step, f->buffers[v->operand], 0);
    case BOUNDS:
      return cuvil_step_arg_buffer(f->step, f->bounds[v->operand], 0);
    case STRIDE:
      return cuvil_step_arg_i64(f->step, o->strides[v->place]);
    case LIMIT:
      return cuvil_step_arg_i32(f->step, o->limit[v->place]);
    case EXTENT:
      return cuvil_step_arg_i32(f->step, f->problem->dims[v->dim].extent);
    case CONSTANT:
      return cuvil_step_arg_f32(f->step, v->constant);
  }
  return CUVIL_FAIL(CU_ERR_INTERNAL, "unknown epilogue value");
}

enum cuvil_status cuvil_emit_epilogue_arguments(
    const struct cuvil_problem *problem, const int *buffer_of_operand,
    const int *bounds_of_operand, struct cuvil_step *step) {
  struct filler f = {problem, buffer_of_operand, bounds_of_operand, step};
  return visit_values(problem, bounds_of_operand != NULL, fill_value, &f);
}

/* ---- offsets and reads */
static void put_coordinate(const struct cuvil_place *at, int dim,
                           struct cuvil_buf *out) {
  const char *name = at->names->coordinate[dim];
  if (dim == at->plus_dim)
    cuvil_buf_printf(out, "(%s%s)", name, at->plus);
  else
    cuvil_buf_puts(out, name);
}

void cuvil_emit_offset(const struct cuvil_problem *problem, int operand,
                       const struct cuvil_place *at, struct cuvil_buf *out) {
  const struct cuvil_operand *o = &problem->operands[operand];
  if (at->names->offset && cuvil_operand_like_output(problem, operand)) {
    cuvil_buf_printf(out, "%s%s", at->names->offset, at->plus);
    return;
  }
  if (o->rank == 0) cuvil_buf_puts(out, "0");
  if (o->strided) {
    for (int i = 0; i < o->rank; i++) {
      cuvil_buf_puts(out, i ? " + " : "");
      put_coordinate(at, o->dims[i], out);
      cuvil_buf_printf(out, " * ss_%s_%d", o->name, i);
    }
    return;
  }
  for (int i = 0; i + 1 < o->rank; i++)
    cuvil_buf_puts(out, "(");
  for (int i = 0; i < o->rank; i++) {
    if (i > 0) {
      if (o->limit[i])
        cuvil_buf_printf(out, " * sl_%s_%d + ", o->name, i);
      else
        cuvil_buf_printf(out, " * se_%s + ", problem->dims[o->dims[i]].name);
    } else if (o->rank > 1) {
      cuvil_buf_puts(out, "(i64)");
    }
    put_coordinate(at, o->dims[i], out);
    if (i > 0) cuvil_buf_puts(out, ")");
  }
}

bool cuvil_emit_limits(const struct cuvil_problem *problem, int operand,
                       const struct cuvil_place *at, struct cuvil_buf *out) {
  const struct cuvil_operand *o = &problem->operands[operand];
  bool any = false;
  /* The caller guards the output's own limits. */
  if (at->names->offset && cuvil_operand_like_output(problem, operand))
    return false;
  for (int i = 0; i < o->rank; i++) {
    if (!o->limit[i]) continue;
    cuvil_buf_puts(out, any ? " && " : "");
    put_coordinate(at, o->dims[i], out);
    cuvil_buf_printf(out, " < sl_%s_%d", o->name, i);
    any = true;
  }
  return any;
}

void cuvil_emit_read(const struct cuvil_problem *problem, int operand,
                     const struct cuvil_place *at, struct cuvil_buf *out) {
  struct cuvil_buf limits = {0};
  bool limited = cuvil_emit_limits(problem, operand, at, &limits);
  if (limits.failed) out->failed = true;
  if (limited) cuvil_buf_printf(out, "(%s ? ", cuvil_buf_text(&limits));
  cuvil_buf_printf(out, "read(s_%s[", problem->operands[operand].name);
  cuvil_emit_offset(problem, operand, at, out);
  cuvil_buf_puts(out, "])");
  if (limited) cuvil_buf_puts(out, " : zero())");
  cuvil_buf_free(&limits);
}

/* ---- statements */
static void put_term(const struct cuvil_problem *problem,
                     const struct cuvil_term *term,
                     const struct cuvil_emit_style *style, int *number,
                     struct cuvil_buf *out) {
  switch (term->kind) {
    case CUVIL_TERM_ACC:
      cuvil_buf_puts(out, style->acc);
      break;
    case CUVIL_TERM_OPERAND:
      cuvil_buf_printf(out, "%sr_%s%s", style->side,
                       problem->operands[term->index].name,
                       style->array && style->array[term->index] ? "[j]" : "");
      break;
    case CUVIL_TERM_VALUE:
      cuvil_buf_printf(out, "v%d", term->index);
      break;
    case CUVIL_TERM_CONSTANT:
      cuvil_buf_printf(out, "constant(sk%d)", (*number)++);
      break;
  }
}

void cuvil_emit_statements(const struct cuvil_emit_program *program,
                           const struct cuvil_emit_style *style,
                           struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  int number = program->first_constant;
  for (int s = 0; s < program->expr->count; s++) {
    const struct cuvil_statement *st = &program->expr->statements[s];
    cuvil_buf_printf(out, "%sconst value_t v%d = op_%s(", style->indent, s,
                     cuvil_expr_op_name(st->op));
    for (int a = 0; a < cuvil_expr_op_args(st->op); a++) {
      cuvil_buf_puts(out, a ? ", " : "");
      put_term(problem, &st->args[a], style, &number, out);
    }
    cuvil_buf_puts(out, ");\n");
    if (st->output >= 0 && st->output != problem->output)
      style->store(problem, st->output, s, style->user, out);
  }
}

void cuvil_emit_result(const struct cuvil_emit_program *program,
                       const char *acc, struct cuvil_buf *out) {
  if (program->expr->count)
    cuvil_buf_printf(out, "v%d", program->expr->count - 1);
  else
    cuvil_buf_puts(out, acc);
}

struct store_point {
  struct cuvil_place place;
  bool checked;
};

static void store_at_point(const struct cuvil_problem *problem, int operand,
                           int statement, const void *user,
                           struct cuvil_buf *out) {
  const struct store_point *p = user;
  const struct cuvil_operand *o = &problem->operands[operand];
  struct cuvil_buf limits = {0}, offset = {0};
  cuvil_buf_puts(out, "  ");
  if (cuvil_emit_limits(problem, operand, &p->place, &limits))
    cuvil_buf_printf(out, "if (%s) ", cuvil_buf_text(&limits));
  cuvil_emit_offset(problem, operand, &p->place, &offset);
  if (p->checked)
    cuvil_buf_printf(out, "store_checked<%s>(v%d, s_%s, sb_%s, %s);\n",
                     cuvil_emit_type(o->dtype), statement, o->name, o->name,
                     cuvil_buf_text(&offset));
  else
    cuvil_buf_printf(out, "from_float(v%d, s_%s[%s]);\n", statement, o->name,
                     cuvil_buf_text(&offset));
  if (limits.failed || offset.failed) out->failed = true;
  cuvil_buf_free(&limits);
  cuvil_buf_free(&offset);
}

static void put_body(const struct cuvil_emit_program *program,
                     const struct cuvil_emit_names *names, bool checked,
                     struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  struct store_point point = {{names, "", -1}, checked};
  struct cuvil_emit_style style = {
      .acc = names->acc,
      .indent = "  ",
      .side = "",
      .store = store_at_point,
      .user = &point,
  };
  for (int i = 0; i < problem->operand_count; i++) {
    if (!cuvil_emit_program_reads(program, i)) continue;
    cuvil_buf_printf(out, "  const value_t r_%s = ", problem->operands[i].name);
    if (names->value[i])
      cuvil_buf_puts(out, names->value[i]);
    else
      cuvil_emit_read(problem, i, &point.place, out);
    cuvil_buf_puts(out, ";\n");
  }
  cuvil_emit_statements(program, &style, out);
  cuvil_buf_puts(out, "  const value_t result = ");
  cuvil_emit_result(program, names->acc, out);
  cuvil_buf_puts(out, ";\n");
}

void cuvil_emit_epilogue_body(const struct cuvil_problem *problem,
                              const struct cuvil_emit_names *names,
                              bool checked, struct cuvil_buf *out) {
  struct cuvil_emit_program program = cuvil_emit_program_epilogue(problem);
  put_body(&program, names, checked, out);
}

/* ---- the whole */
void cuvil_emit_coordinates(const struct cuvil_problem *problem, bool types,
                            struct cuvil_buf *out) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  for (int d = 0; d < problem->dim_count; d++)
    if (cuvil_operand_has_dim(y, d))
      cuvil_buf_printf(out, ", %si_%s", types ? "int " : "",
                       problem->dims[d].name);
}

/* value_t <name>(acc, at, coordinates, values), and its forms for runs. */
static void put_functions(const struct cuvil_emit_program *program,
                          const struct cuvil_emit_names *names,
                          const char *name, bool checked,
                          struct cuvil_buf *out) {
  const struct cuvil_problem *problem = program->problem;
  cuvil_buf_printf(out, "DEVICE value_t %s(value_t acc, i64 at", name);
  cuvil_emit_coordinates(problem, true, out);
  cuvil_buf_puts(out, " EPILOGUE_PARAMETERS) {\n");
  put_body(program, names, checked, out);
  cuvil_buf_puts(out, "  return result;\n}\n");
  if (!checked && problem->operands[problem->output].rank)
    cuvil_emit_vector(program, names, name, out);
}

void cuvil_emit_epilogue(const struct cuvil_problem *problem, bool checked,
                         struct cuvil_buf *out) {
  char coordinates[CUVIL_MAX_DIMS][CUVIL_NAME_SIZE + 2];
  struct cuvil_emit_names names = {.acc = "acc", .offset = "at"};
  struct cuvil_emit_program epilogue = cuvil_emit_program_epilogue(problem);
  struct cuvil_emit_program prologue = cuvil_emit_program_prologue(problem);
  for (int d = 0; d < problem->dim_count; d++) {
    memcpy(coordinates[d], "i_", 2);
    memcpy(coordinates[d] + 2, problem->dims[d].name, CUVIL_NAME_SIZE);
    names.coordinate[d] = coordinates[d];
  }
  cuvil_buf_puts(out, "#define EPILOGUE_PARAMETERS ");
  print_values(problem, checked, true, out);
  cuvil_buf_puts(out, "\n#define EPILOGUE_ARGUMENTS ");
  print_values(problem, checked, false, out);
  cuvil_buf_puts(out, "\n");
  put_functions(&epilogue, &names, "epilogue", checked, out);
  if (problem->kind == CUVIL_KIND_NORM)
    put_functions(&prologue, &names, "prologue", checked, out);
}
