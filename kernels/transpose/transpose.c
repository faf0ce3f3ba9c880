/* transpose.c - pointwise problems with one side input in another order than
 * the output, read and written in long runs both.
 *
 * Two ways.  A few channels (2, 4, 8) fastest in the output: a thread reads
 * runs of each channel's plane and writes whole pixels (a network's input,
 * NCHW to NHWC4).  Otherwise a tile goes through shared memory.  Whatever else
 * the expression reads stays scalar.
 */
#include "kernels/common/emit.h"

#include <inttypes.h>
#include <string.h>

/* The problem, with neighbouring dimensions merged, as this family sees it. */
struct view {
  struct cuvil_problem p;
  int input; /* operand that is transposed */
  int f, g;  /* fastest dimension of the output, of the input */
};

static bool look(const struct cuvil_problem *problem, struct view *out) {
  if (problem->kind != CUVIL_KIND_POINTWISE) return false;
  cuvil_problem_collapse(problem, &out->p);
  const struct cuvil_problem *p = &out->p;
  const struct cuvil_operand *y = &p->operands[p->output];
  out->input = -1;
  out->f = cuvil_fastest_dim(y);
  if (out->f < 0) return false;
  for (int i = 0; i < p->operand_count; i++) {
    const struct cuvil_operand *o = &p->operands[i];
    if (o->role == CUVIL_ROLE_OUTPUT && i != p->output) return false;
    if (o->role != CUVIL_ROLE_SIDE) continue;
    int fastest = cuvil_fastest_dim(o);
    if (fastest < 0 || fastest == out->f || !cuvil_operand_has_dim(o, out->f))
      continue;
    if (out->input >= 0) return false; /* two: no single tile serves both */
    out->input = i;
    out->g = fastest;
  }
  return out->input >= 0;
}

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  struct view v;
  (void)arch;
  return look(problem, &v);
}

struct point {
  int planes, pixels, tile, block, pdl;
};
static struct point read_point(const struct cuvil_query *query,
                               const struct cuvil_config *config) {
  return (struct point){
      (int)cuvil_config_get(query->space, config, "planes"),
      (int)cuvil_config_get(query->space, config, "pixels"),
      (int)cuvil_config_get(query->space, config, "tile"),
      (int)cuvil_config_get(query->space, config, "block"),
      (int)cuvil_config_get(query->space, config, "pdl"),
  };
}

static bool has_limit(const struct cuvil_operand *o, int dim) {
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == dim && o->limit[i]) return true;
  return false;
}

/* Short enough for one thread, and whole pixels stored at once. */
static bool planes_fit(const struct view *v) {
  const struct cuvil_operand *y = &v->p.operands[v->p.output];
  int64_t extent = v->p.dims[v->f].extent;
  return (extent == 2 || extent == 4 || extent == 8) && !y->strided;
}

static bool pixels_fit(const struct view *v, int pixels) {
  if (pixels == 1) return true;
  return v->p.dims[v->g].extent % pixels == 0 &&
         !has_limit(&v->p.operands[v->input], v->g);
}

static int64_t batches_of(const struct view *v) {
  int64_t count = 1;
  for (int d = 0; d < v->p.dim_count; d++)
    if (d != v->f && d != v->g) count *= v->p.dims[d].extent;
  return count;
}

static int64_t blocks_of(const struct view *v, struct point at) {
  int64_t f = v->p.dims[v->f].extent, g = v->p.dims[v->g].extent;
  int64_t blocks =
      at.planes ? cuvil_ceil_div(batches_of(v) * (g / at.pixels), at.block)
                : batches_of(v) * cuvil_ceil_div(f, at.tile) *
                      cuvil_ceil_div(g, at.tile);
  return blocks < 1 ? 1 : blocks;
}

static bool allowed(const struct cuvil_query *query, const struct view *v,
                    struct point at) {
  if (at.pdl && query->arch->cc < 90) return false;
  if (at.planes)
    return planes_fit(v) && pixels_fit(v, at.pixels) && at.tile == 32;
  return at.pixels == 1 && at.block >= at.tile;
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  struct view v;
  cuvil_space_default(query->space, out);
  if (!look(query->problem, &v)) return;
  bool planes = planes_fit(&v);
  int pixels = 4;
  while (pixels > 1 && (!pixels_fit(&v, pixels) ||
                        batches_of(&v) * v.p.dims[v.g].extent / pixels <
                            (int64_t)query->arch->sms * 256))
    pixels /= 2;
  cuvil_config_set(query->space, out, "planes", planes);
  cuvil_config_set(query->space, out, "pixels", planes ? pixels : 1);
  cuvil_config_set(query->space, out, "pdl", cuvil_default_pdl(query->arch));
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct view v;
  struct point at = read_point(query, config);
  if (!look(query->problem, &v)) return false;
  out->threads = at.block;
  out->shared_bytes = at.planes ? 0 : at.tile * (at.tile + 1) * 4;
  out->registers_least = at.planes ? (int)v.p.dims[v.f].extent * at.pixels : 8;
  out->blocks = blocks_of(&v, at);
  out->cluster = 1;
  if (!allowed(query, &v, at)) return false;
  cuvil_derive_waves(query->arch, out);
  return true;
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  struct point at = read_point(query, config);
  double in_flight =
      at.planes ? 16.0 * at.pixels : 4.0 * at.tile * at.tile / at.block;
  return cuvil_predict_memory(query->arch, derived,
                              cuvil_problem_bytes(query->problem), in_flight) -
         1e-6 * at.pdl;
}

/* BATCHES and BATCH_COORDINATES over the dimensions other than f and g. */
static void put_batches(const struct view *v, struct cuvil_buf *out) {
  const struct cuvil_operand *y = &v->p.operands[v->p.output];
  cuvil_buf_puts(out, "#define BATCHES ((i64)1");
  for (int d = 0; d < v->p.dim_count; d++)
    if (d != v->f && d != v->g)
      cuvil_buf_printf(out, " * e_%s", v->p.dims[d].name);
  cuvil_buf_puts(out, ")\n#define BATCH_COORDINATES(i) index_t rest_ = (i);");
  for (int i = y->rank - 1; i >= 0; i--) {
    const char *name = v->p.dims[y->dims[i]].name;
    if (y->dims[i] == v->f || y->dims[i] == v->g) continue;
    cuvil_buf_printf(out, " const int i_%s = rest_ %% e_%s; rest_ /= e_%s;",
                     name, name, name);
  }
  cuvil_buf_puts(out, "\n");
}

/* finish(): the epilogue with the transposed input's value handed in. */
static void put_finish(const struct view *v, struct cuvil_buf *out) {
  const struct cuvil_problem *p = &v->p;
  char coordinates[CUVIL_MAX_DIMS][CUVIL_NAME_SIZE + 2];
  struct cuvil_emit_names names = {.acc = "staged", .offset = "at"};
  names.value[v->input] = "staged";
  cuvil_buf_puts(out, "DEVICE float finish(float staged, i64 at");
  for (int d = 0; d < p->dim_count; d++) {
    memcpy(coordinates[d], "i_", 2);
    memcpy(coordinates[d] + 2, p->dims[d].name, CUVIL_NAME_SIZE);
    names.coordinate[d] = coordinates[d];
    cuvil_buf_printf(out, ", int %s", coordinates[d]);
  }
  cuvil_buf_puts(out, " EPILOGUE_PARAMETERS) {\n");
  cuvil_emit_epilogue_body(p, &names, false, out);
  cuvil_buf_puts(out, "  return result;\n}\n");
}

static void put_defines(struct cuvil_emission *e, const struct view *v,
                        struct point at) {
  const char *f = v->p.dims[v->f].name, *g = v->p.dims[v->g].name;
  cuvil_emission_define(e, "PLANES", at.planes);
  cuvil_emission_define(e, "BLOCK", at.block);
  if (at.planes) {
    cuvil_emission_define(e, "F", v->p.dims[v->f].extent);
    cuvil_emission_define(e, "PIXELS", at.pixels);
    cuvil_emission_define(e, "IN_ALIGNED",
                          cuvil_operand_alignment(&v->p, v->input));
  } else {
    cuvil_emission_define(e, "TILE", at.tile);
  }
  cuvil_buf_printf(&e->source,
                   "#define F_COORDINATE i_%s\n#define F_EXTENT e_%s\n"
                   "#define G_COORDINATE i_%s\n#define G_EXTENT e_%s\n"
                   "#define FINISH_POINT(j) const int g_ = i_%s + j; const int "
                   "i_%s = g_;\n",
                   f, f, g, g, g, g);
}

static enum cuvil_status add_kernel(struct cuvil_emission *e,
                                    const struct view *v, struct point at) {
  const struct cuvil_problem *p = &v->p;
  struct cuvil_step *step;
  CUVIL_TRY(cuvil_emission_prelude(e, false));
  cuvil_emit_points(p, &e->source);
  cuvil_emit_operand(p, p->output, "OUT", &e->source);
  cuvil_emit_operand(p, v->input, "IN", &e->source);
  put_batches(v, &e->source);
  put_finish(v, &e->source);
  put_defines(e, v, at);
  CUVIL_TRY(cuvil_emission_file(e, "kernels/transpose/transpose.cu"));
  CUVIL_TRY(cuvil_emission_launch(e, NULL, "transpose", blocks_of(v, at),
                                  at.block, &step));
  step->programmatic = at.pdl;
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[p->output], 0));
  CUVIL_TRY(cuvil_step_arg_buffer(step, e->buffers[v->input], 0));
  CUVIL_TRY(cuvil_emit_extent_arguments(p, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, p->output, step));
  CUVIL_TRY(cuvil_emit_operand_arguments(p, v->input, step));
  return cuvil_emit_epilogue_arguments(p, e->buffers, NULL, step);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct view v;
  struct cuvil_query inner = *query;
  struct cuvil_emission e;
  *out = NULL;
  if (!look(query->problem, &v))
    return CUVIL_FAIL(CU_ERR_INTERNAL, "transpose: not its problem");
  inner.problem = &v.p;
  enum cuvil_status status = cuvil_emission_begin(&inner, &e);
  if (status == CUVIL_OK)
    status = add_kernel(&e, &v, read_point(query, config));
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_transpose = {
    .id = "transpose",
    .version = 1,
    .about = "expressions with one input in another order: tiles or planes",
    .kinds = 1u << CUVIL_KIND_POINTWISE,
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
};
