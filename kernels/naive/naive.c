/* naive.c - the naive families: each kind by its definition, any layout and
 * type.  They verify the others and never win.
 *
 * One thread an output, and one template, serve all kinds but those that need
 * a whole row for an element: norm (a thread a row) and attention (a block a
 * query).  The same texts over (value, error) pairs in fp64 are the reference
 * on the GPU (common/reference_program.c).
 */
#include "kernels/naive/naive.h"

int64_t cuvil_naive_blocks(const struct cuvil_problem *problem, int block) {
  const struct cuvil_dim *dims = problem->dims;
  int64_t blocks = cuvil_ceil_div(cuvil_output_points(problem), block);
  if (problem->kind == CUVIL_KIND_NORM)
    blocks = cuvil_ceil_div(dims[CUVIL_NORM_DIM_M].extent, block);
  if (problem->kind == CUVIL_KIND_ATTENTION)
    blocks = dims[CUVIL_ATTENTION_DIM_B].extent *
             dims[CUVIL_ATTENTION_DIM_HQ].extent *
             dims[CUVIL_ATTENTION_DIM_SQ].extent;
  return blocks > 65535 ? 65535 : blocks < 1 ? 1 : blocks;
}

/* What the template reads beside the epilogue's operands, under these names. */
enum { MAX_INPUTS = 4 };
static const char *const names[MAX_INPUTS] = {"IN0", "IN1", "IN2", "MASK"};
struct inputs {
  int count;
  int operand[MAX_INPUTS];
};
static struct inputs inputs_of(const struct cuvil_problem *problem) {
  struct inputs inputs = {0};
  for (int i = 0; i < problem->output; i++)
    inputs.operand[inputs.count++] = i;
  if (problem->mask >= 0) inputs.operand[inputs.count++] = problem->mask;
  return inputs;
}

static const char *template_of(enum cuvil_kind kind) {
  return kind == CUVIL_KIND_ATTENTION ? "kernels/naive/attention.cu"
         : kind == CUVIL_KIND_NORM    ? "kernels/naive/norm.cu"
                                      : "kernels/naive/naive.cu";
}

static void define_geometry(struct cuvil_emission *e) {
  const struct cuvil_problem *p = e->query->problem;
  cuvil_emission_define(e, "KIND", p->kind);
  cuvil_emission_define(e, "TF32", p->tf32);
  if (p->kind == CUVIL_KIND_POOL)
    cuvil_emission_define(e, "POOL_OP", p->pool_op);
  if (p->kind == CUVIL_KIND_REDUCE)
    cuvil_emission_define(e, "REDUCE_OP", p->reduce_op);
  if (p->kind == CUVIL_KIND_NORM)
    cuvil_emission_define(e, "NORM_OP", p->norm_op);
  if (p->kind == CUVIL_KIND_ATTENTION) {
    cuvil_emission_define(e, "CAUSAL", p->causal);
    cuvil_emission_define(e, "MASK_KIND",
                          p->mask < 0    ? 0
                          : p->mask_keep ? 2
                                         : 1);
  }
  if (p->kind == CUVIL_KIND_CONV) cuvil_emission_define(e, "GROUP", p->group);
  if (p->kind != CUVIL_KIND_CONV && p->kind != CUVIL_KIND_POOL) return;
  cuvil_emission_define(e, "STRIDE_H", p->stride[0]);
  cuvil_emission_define(e, "STRIDE_W", p->stride[1]);
  cuvil_emission_define(e, "PAD_TOP", p->pad[0]);
  cuvil_emission_define(e, "PAD_LEFT", p->pad[1]);
  cuvil_emission_define(e, "DILATION_H", p->dilation[0]);
  cuvil_emission_define(e, "DILATION_W", p->dilation[1]);
  if (p->kind != CUVIL_KIND_POOL) return;
  cuvil_emission_define(e, "PAD_BOTTOM", p->pad[2]);
  cuvil_emission_define(e, "PAD_RIGHT", p->pad[3]);
  cuvil_emission_define(e, "OVER_H", p->over[0]);
  cuvil_emission_define(e, "OVER_W", p->over[1]);
}

/* The arguments in the order of the template's parameters. */
static enum cuvil_status add_arguments(struct cuvil_emission *e,
                                       const int *bounds,
                                       struct cuvil_step *step) {
  const struct cuvil_problem *p = e->query->problem;
  struct inputs inputs = inputs_of(p);
  for (int i = 0; i < inputs.count; i++)
    CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[inputs.operand[i]], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[p->output], 0));
  if (bounds) CUVIL_TRY(cuvil_step_arg_buffer(step, bounds[p->output], 0));
  if (p->kind == CUVIL_KIND_ATTENTION)
    CUVIL_TRY(cuvil_step_arg_f32(step, p->scale));
  if (p->kind == CUVIL_KIND_NORM) CUVIL_TRY(cuvil_step_arg_f32(step, p->eps));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  for (int i = 0; i < inputs.count; i++)
    CUVIL_TRY(cuvil_emit_operand_arguments(p, inputs.operand[i], step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, p->output, step));
  if (p->kind == CUVIL_KIND_ATTENTION) return CUVIL_OK;
  return cuvil_emit_epilogue_arguments(p, e->buffers, bounds, step);
}

enum cuvil_status cuvil_naive_emit(struct cuvil_emission *e,
                                   const int *bounds_of_operand, int block) {
  const struct cuvil_problem *p = e->query->problem;
  struct inputs inputs = inputs_of(p);
  CUVIL_TRY(cuvil_emission_prelude(e, bounds_of_operand != NULL));
  if (bounds_of_operand) cuvil_buf_puts(&e->source, "#define CHECKED\n");
  define_geometry(e);
  cuvil_emission_define(e, "BLOCK", block);
  cuvil_emit_points(p, &e->source);
  for (int i = 0; i < inputs.count; i++)
    cuvil_emit_operand(p, inputs.operand[i], names[i], &e->source);
  cuvil_emit_operand(p, p->output, "OUT", &e->source);
  CUVIL_TRY(cuvil_emission_file(e, template_of(p->kind)));
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "naive",
                                  cuvil_naive_blocks(p, block), block, &step));
  return add_arguments(e, bounds_of_operand, step);
}

/* ---- the families */
static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  (void)problem;
  return true;
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  cuvil_space_default(query->space, out);
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  out->threads = (int)cuvil_config_get(query->space, config, "block");
  out->registers_least = 8;
  if (query->problem->kind == CUVIL_KIND_ATTENTION)
    out->shared_bytes = out->threads * 4; /* a weight each */
  out->blocks = cuvil_naive_blocks(query->problem, out->threads);
  out->cluster = 1;
  cuvil_derive_waves(query->arch, out);
  return true;
}

/* Every operand read from L2 for every use, at a tenth of the fp32 rate. */
static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  (void)config;
  (void)derived;
  return cuvil_problem_flops(query->problem) / (query->arch->flops_f32 * 0.1) +
         cuvil_problem_bytes(query->problem) /
             query->arch->memory_bytes_per_second +
         5e-6;
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK)
    status = cuvil_naive_emit(
        &e, NULL, (int)cuvil_config_get(query->space, config, "block"));
  return cuvil_emission_end(&e, status, out);
}

#define NAIVE(KIND, NAME, ABOUT)                            \
  const struct cuvil_family cuvil_family_##NAME##_naive = { \
      .id = #NAME "_naive",                                 \
      .version = 1,                                         \
      .about = ABOUT,                                       \
      .kinds = 1u << CUVIL_KIND_##KIND,                     \
      .reference = true,                                    \
      .applicable = applicable,                             \
      .default_config = default_config,                     \
      .derive = derive,                                     \
      .predict = predict,                                   \
      .emit = emit,                                         \
  }
NAIVE(GEMM, gemm, "matrix product by its definition; the reference");
NAIVE(CONV, conv, "convolution by its definition; the reference");
NAIVE(POOL, pool, "pooling by its definition; the reference");
NAIVE(REDUCE, reduce, "reduction by its definition; the reference");
NAIVE(POINTWISE, pointwise,
      "pointwise program by its definition; the reference");
NAIVE(ATTENTION, attention, "attention by its definition; the reference");
NAIVE(NORM, norm, "normalisation by its definition; the reference");
NAIVE(GATHER, gather, "rows by index by its definition; the reference");
