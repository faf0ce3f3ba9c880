/* conv_cudnn.c - convolutions by cuDNN's backend, NHWC.
 *
 * Fused: bias, residual and relu in one operation graph.  Any other epilogue
 * of an fp32 convolution: the bare convolution to workspace and a pointwise
 * kernel after it.  With 16-bit types there is no such second way: cuDNN would
 * round the sum before the epilogue, which the problem does not allow.
 *
 * A point is an engine and its knobs as the library lists them; id = -1 leaves
 * the choice to the library.
 */
#include "kernels/common/library_step.h"

enum { DEFAULT_WORKSPACE = 64 << 20 };

/* Dimensions slowest to fastest, fastest stride 1, nothing cut off. */
static bool is_tensor(const struct cuvil_operand *o, int d0, int d1, int d2,
                      int d3) {
  const int dims[4] = {d0, d1, d2, d3};
  for (int i = 0; i < 4; i++)
    if (o->dims[i] != dims[i] || o->limit[i]) return false;
  return o->strides[3] == 1;
}

/* Every epilogue that one graph holds. */
static bool can_fuse(const struct cuvil_problem *p, struct cuvil_chain *chain) {
  return p->operands[CUVIL_CONV_Y].dtype == p->operands[CUVIL_CONV_X].dtype &&
         cuvil_chain_match(p, CUVIL_CONV_DIM_K, chain) &&
         chain->activation != CUVIL_ACT_GELU_TANH && chain->alpha == 1;
}

static bool can_split(const struct cuvil_problem *p) {
  return p->operands[CUVIL_CONV_X].dtype == CUVIL_F32;
}

static bool applicable(const struct cuvil_problem *p,
                       const struct cuvil_arch *arch) {
  struct cuvil_chain chain;
  (void)arch;
  return p->kind == CUVIL_KIND_CONV &&
         is_tensor(&p->operands[CUVIL_CONV_X], CUVIL_CONV_DIM_N,
                   CUVIL_CONV_DIM_H, CUVIL_CONV_DIM_W, CUVIL_CONV_DIM_C) &&
         is_tensor(&p->operands[CUVIL_CONV_W], CUVIL_CONV_DIM_K,
                   CUVIL_CONV_DIM_R, CUVIL_CONV_DIM_S, CUVIL_CONV_DIM_C) &&
         is_tensor(&p->operands[CUVIL_CONV_Y], CUVIL_CONV_DIM_N,
                   CUVIL_CONV_DIM_P, CUVIL_CONV_DIM_Q, CUVIL_CONV_DIM_K) &&
         (can_fuse(p, &chain) || can_split(p));
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  struct cuvil_chain chain;
  cuvil_space_default(query->space, out); /* no engine, no knobs */
  cuvil_config_set(query->space, out, "fused",
                   can_fuse(query->problem, &chain));
  cuvil_config_set(query->space, out, "workspace", DEFAULT_WORKSPACE);
}

static uint64_t sum_bytes(const struct cuvil_problem *p) {
  return 4 * (uint64_t)cuvil_output_points(p);
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  struct cuvil_chain chain;
  int64_t workspace = cuvil_config_get(query->space, config, "workspace");
  bool fused = cuvil_config_get(query->space, config, "fused") != 0;
  out->cluster = 1;
  out->workspace_bytes = (uint64_t)workspace;
  if (!fused) out->workspace_bytes += sum_bytes(query->problem);
  return workspace >= 0 &&
         (fused ? can_fuse(query->problem, &chain) : can_split(query->problem));
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = query->problem;
  double rate = p->operands[CUVIL_CONV_X].dtype != CUVIL_F32
                    ? query->arch->flops_f16
                : p->tf32 ? query->arch->flops_tf32
                          : query->arch->flops_f32;
  double bytes = cuvil_problem_bytes(p);
  (void)derived;
  if (!cuvil_config_get(query->space, config, "fused"))
    bytes += 2.0 * (double)sum_bytes(p);
  return 4e-6 + cuvil_problem_flops(p) / (0.5 * rate) +
         bytes / query->arch->memory_bytes_per_second;
}

/* ---- the call */
static json_t *integers(const int64_t *list, int count) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++)
    json_array_append_new(array, json_integer(list[i]));
  return array;
}

static bool put(json_t *call, const char *key, json_t *value) {
  return json_object_set_new(call, key, value) == 0;
}

/* Without engine.  chain NULL: the bare sum, packed. */
static json_t *make_call(const struct cuvil_problem *p,
                         const struct cuvil_chain *chain, int64_t workspace) {
  const struct cuvil_operand *x = &p->operands[CUVIL_CONV_X];
  const struct cuvil_operand *w = &p->operands[CUVIL_CONV_W];
  const struct cuvil_operand *y = &p->operands[CUVIL_CONV_Y];
  static const char *const keys[] = {"n", "c", "h", "w", "k", "r", "s"};
  json_t *call = json_pack("{s:s}", "op", "conv_fwd");
  bool whole = call != NULL;
  for (int i = 0; i < 7; i++) /* in the order of problem->dims */
    whole = whole && put(call, keys[i], json_integer(p->dims[i].extent));
  whole = whole && put(call, "stride", integers(p->stride, 2)) &&
          put(call, "pad", integers(p->pad, 4)) &&
          put(call, "dil", integers(p->dilation, 2)) &&
          put(call, "group", json_integer(p->group)) &&
          put(call, "dtype", json_string(cuvil_dtype_name(x->dtype))) &&
          put(call, "tf32", json_boolean(p->tf32)) &&
          put(call, "workspace", json_integer(workspace));
  if (whole && x->strided)
    whole = put(call, "x_strides", integers(x->strides, 4));
  if (whole && w->strided)
    whole = put(call, "w_strides", integers(w->strides, 4));
  if (whole && chain && y->strided)
    whole = put(call, "y_strides", integers(y->strides, 4));
  if (whole && chain)
    whole =
        put(call, "bias", json_boolean(chain->bias >= 0)) &&
        put(call, "residual", json_boolean(chain->residual >= 0)) &&
        put(call, "activation",
            json_string(chain->activation == CUVIL_ACT_RELU ? "relu" : "none"));
  if (whole) return call;
  json_decref(call);
  return NULL;
}

/* False: more knobs than the space has places for. */
static bool read_choice(const struct cuvil_query *query, const json_t *call,
                        bool fused, struct cuvil_config *out) {
  cuvil_config_set(query->space, out, "fused", fused);
  return cuvil_cudnn_read_engine(query->space, call, out);
}

static enum cuvil_status list(const struct cuvil_query *query,
                              struct cuvil_gpu *gpu,
                              const struct cuvil_chain *chain, int limit,
                              struct cuvil_config *out, int *count) {
  json_t *call = make_call(query->problem, chain, DEFAULT_WORKSPACE);
  return cuvil_library_list(query, gpu, "cudnn", call, chain != NULL,
                            read_choice, limit, out, count);
}

static enum cuvil_status choices(const struct cuvil_query *query,
                                 struct cuvil_gpu *gpu, int limit,
                                 struct cuvil_config *out, int *out_count) {
  struct cuvil_chain chain;
  *out_count = 0;
  bool fused = can_fuse(query->problem, &chain);
  if (fused) CUVIL_TRY(list(query, gpu, &chain, limit, out, out_count));
  if (!can_split(query->problem)) return CUVIL_OK;
  if (fused && query->problem->epilogue.count == 0) return CUVIL_OK;
  return list(query, gpu, NULL, limit, out, out_count);
}

/* ---- the program */
static enum cuvil_status add_steps(struct cuvil_emission *e,
                                   const struct cuvil_config *config) {
  const struct cuvil_query *query = e->query;
  struct cuvil_chain chain;
  int bindings[5], count = 0, acc = -1;
  int64_t workspace = cuvil_config_get(query->space, config, "workspace");
  bool fused = cuvil_config_get(query->space, config, "fused") != 0;
  if (fused ? !can_fuse(query->problem, &chain) : !can_split(query->problem))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "cudnn has not this problem's epilogue");
  if (!fused)
    CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_WORKSPACE, -1,
                                       sum_bytes(query->problem), &acc));
  bindings[count++] = e->buffers[CUVIL_CONV_X];
  bindings[count++] = e->buffers[CUVIL_CONV_W];
  bindings[count++] = fused ? e->buffers[CUVIL_CONV_Y] : acc;
  if (fused && chain.bias >= 0) bindings[count++] = e->buffers[chain.bias];
  if (fused && chain.residual >= 0)
    bindings[count++] = e->buffers[chain.residual];
  json_t *call = make_call(query->problem, fused ? &chain : NULL, workspace);
  CUVIL_TRY(cuvil_library_step_of(e, config, "cudnn", call,
                                  cuvil_cudnn_put_engine, bindings, count));
  if (fused) return CUVIL_OK;
  return cuvil_library_epilogue(query, e->program, e->buffers, acc);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = add_steps(&e, config);
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_conv_cudnn = {
    .id = "conv_cudnn",
    .version = 1,
    .about = "convolutions by cuDNN, bias, residual and relu fused",
    .kinds = 1u << CUVIL_KIND_CONV,
    .library = "cudnn",
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
    .choices = choices,
};
