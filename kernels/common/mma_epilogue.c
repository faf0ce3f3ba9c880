/* mma_epilogue.c - the generated epilogue with its side operands read early.
 *
 * A thread finishes eight neighbouring columns at a time.  A residual (laid out
 * like the output) or a bias (along the columns) is then one or two 16-byte
 * loads, whose latency is better spent while the sums of other warps and blocks
 * are still on their way.  So the template gets them in two parts: a load into
 * a struct of words, and an epilogue that takes its values from there.  A
 * residual too large for the L2 is called there while the first tiles are
 * under way.  Other side operands are read by the epilogue itself.
 */
#include <stdio.h>

#include "kernels/common/mma.h"

enum { PIECE = 8 }; /* as in mma_kernel.cuh */

enum reach { BY_ITSELF, LIKE_OUTPUT, ALONG_COLUMNS };

static enum reach reach_of(const struct cuvil_problem *problem, int operand) {
  const struct cuvil_operand *o = &problem->operands[operand];
  const struct cuvil_operand *y = &problem->operands[problem->output];
  if (o->role != CUVIL_ROLE_SIDE) return BY_ITSELF;
  if (o->dtype != CUVIL_F16 && o->dtype != CUVIL_BF16 && o->dtype != CUVIL_F32)
    return BY_ITSELF;
  if (cuvil_operand_like_output(problem, operand)) return LIKE_OUTPUT;
  if (o->rank == 1 && o->dims[0] == y->dims[y->rank - 1] && !o->limit[0] &&
      o->strides[0] == 1)
    return ALONG_COLUMNS;
  return BY_ITSELF;
}

static bool can_read_early(const struct cuvil_problem *problem) {
  int early = 0;
  for (int i = 0; i < problem->operand_count; i++) {
    if (problem->operands[i].role == CUVIL_ROLE_OUTPUT && i != problem->output)
      return false; /* epilogue_vector stores these in vectors; we would not */
    early += reach_of(problem, i) != BY_ITSELF;
  }
  return early > 0;
}

static int words_of(const struct cuvil_operand *o) {
  return PIECE * (int)cuvil_dtype_size(o->dtype) / 4;
}

/* Elements of a residual in a 128-byte line: the fewest of all residuals; 0
 * when there is none. */
static int line_of(const struct cuvil_problem *problem) {
  int line = 0;
  for (int i = 0; i < problem->operand_count; i++) {
    if (reach_of(problem, i) != LIKE_OUTPUT) continue;
    int here = 128 / (int)cuvil_dtype_size(problem->operands[i].dtype);
    if (line == 0 || here < line) line = here;
  }
  return line;
}

static void put_prefetch(const struct cuvil_problem *problem,
                         struct cuvil_buf *out) {
  int line = line_of(problem);
  cuvil_buf_printf(out, "#define SIDE_LINE %d\n", line);
  if (!line) return;
  cuvil_buf_puts(out,
                 "DEVICE void prefetch_sides(i64 at EPILOGUE_PARAMETERS) {\n");
  for (int i = 0; i < problem->operand_count; i++)
    if (reach_of(problem, i) == LIKE_OUTPUT)
      cuvil_buf_printf(out, "  prefetch_line(s_%s + at);\n",
                       problem->operands[i].name);
  cuvil_buf_puts(out, "}\n");
}

static void put_loads(const struct cuvil_problem *problem,
                      struct cuvil_buf *out) {
  cuvil_buf_puts(out, "struct side_words {\n");
  for (int i = 0; i < problem->operand_count; i++)
    if (reach_of(problem, i) != BY_ITSELF)
      cuvil_buf_printf(out, "  u32 w_%s[%d][4];\n", problem->operands[i].name,
                       words_of(&problem->operands[i]) / 4);
  cuvil_buf_puts(out,
                 "};\nDEVICE void load_side_words(side_words &side, i64 at, "
                 "int column EPILOGUE_PARAMETERS) {\n");
  for (int i = 0; i < problem->operand_count; i++) {
    const struct cuvil_operand *o = &problem->operands[i];
    enum reach reach = reach_of(problem, i);
    for (int w = 0; reach != BY_ITSELF && w < words_of(o); w += 4)
      cuvil_buf_printf(out, "  load_words(s_%s + %s + %d, side.w_%s[%d]);\n",
                       o->name, reach == LIKE_OUTPUT ? "at" : "column",
                       w * PIECE / words_of(o), o->name, w / 4);
  }
  cuvil_buf_puts(out, "}\n");
}

/* Expressions for one of the eight columns, in memory of the caller's. */
struct names {
  char value[CUVIL_MAX_OPERANDS][96];
  char coordinate[CUVIL_MAX_DIMS][CUVIL_NAME_SIZE + 12];
};

static void name_places(const struct cuvil_problem *problem, struct names *n,
                        struct cuvil_emit_names *out) {
  const struct cuvil_operand *y = &problem->operands[problem->output];
  *out = (struct cuvil_emit_names){.acc = "v[j]", .offset = "(at + j)"};
  for (int d = 0; d < problem->dim_count; d++) {
    if (!cuvil_operand_has_dim(y, d)) continue;
    snprintf(n->coordinate[d], sizeof n->coordinate[d],
             d == y->dims[y->rank - 1] ? "(i_%s + j)" : "i_%s",
             problem->dims[d].name);
    out->coordinate[d] = n->coordinate[d];
  }
  for (int i = 0; i < problem->operand_count; i++) {
    const struct cuvil_operand *o = &problem->operands[i];
    if (reach_of(problem, i) == BY_ITSELF) continue;
    int in_word = 4 / (int)cuvil_dtype_size(o->dtype);
    snprintf(n->value[i], sizeof n->value[i],
             "word_to_float(side.w_%s[j / %d][j / %d %% 4], j %% %d, s_%s)",
             o->name, 4 * in_word, in_word, in_word, o->name);
    out->value[i] = n->value[i];
  }
}

void cuvil_mma_side_words(const struct cuvil_problem *problem,
                          const struct cuvil_mma_view *view,
                          struct cuvil_buf *out) {
  bool early = view->out_vector && can_read_early(problem);
  cuvil_buf_printf(out, "#define SIDE_WORDS %d\n", early);
  if (!early) {
    cuvil_buf_puts(out, "#define SIDE_LINE 0\n");
    return;
  }
  put_prefetch(problem, out);
  struct names texts;
  struct cuvil_emit_names names;
  name_places(problem, &texts, &names);
  put_loads(problem, out);
  cuvil_buf_puts(out,
                 "DEVICE void epilogue_words(float (&v)[8], const side_words "
                 "&side, i64 at");
  for (int d = 0; d < problem->dim_count; d++)
    if (names.coordinate[d])
      cuvil_buf_printf(out, ", int i_%s", problem->dims[d].name);
  cuvil_buf_puts(out,
                 " EPILOGUE_PARAMETERS) {\n#pragma unroll\n"
                 "  for (int j = 0; j < 8; j++) {\n");
  cuvil_emit_epilogue_body(problem, &names, false, out);
  cuvil_buf_puts(out, "  v[j] = result;\n  }\n}\n");
}
