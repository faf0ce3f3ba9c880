/* attention_cudnn.c - attention by cuDNN's fused engines: f16 and bf16, rows
 * contiguous, an additive mask, causality.
 *
 * A point is an engine and its knobs as the library lists them; id = -1 leaves
 * the choice to the library.  What the library cannot do it says when its plan
 * is built, which fails the candidate.
 */
#include "kernels/common/library_step.h"

enum { DEFAULT_WORKSPACE = 64 << 20 };

static const int q_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                             CUVIL_ATTENTION_DIM_SQ, CUVIL_ATTENTION_DIM_D};
static const int k_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HKV,
                             CUVIL_ATTENTION_DIM_SKV, CUVIL_ATTENTION_DIM_D};
static const int v_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HKV,
                             CUVIL_ATTENTION_DIM_SKV, CUVIL_ATTENTION_DIM_DV};
static const int o_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                             CUVIL_ATTENTION_DIM_SQ, CUVIL_ATTENTION_DIM_DV};
static const int mask_dims[] = {CUVIL_ATTENTION_DIM_B, CUVIL_ATTENTION_DIM_HQ,
                                CUVIL_ATTENTION_DIM_SQ,
                                CUVIL_ATTENTION_DIM_SKV};
static const int *const operand_dims[] = {q_dims, k_dims, v_dims, o_dims};

static int64_t extent(const struct cuvil_problem *p, int dim) {
  return p->dims[dim].extent;
}

static bool whole(const struct cuvil_operand *o) {
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i]) return false;
  return true;
}

/* 16-byte alignment of every row is what the tensors are declared with. */
static bool is_tensor(const struct cuvil_problem *p, int operand) {
  const struct cuvil_operand *o = &p->operands[operand];
  if (o->dtype != p->operands[CUVIL_ATTENTION_Q].dtype || !whole(o) ||
      cuvil_fastest_dim(o) != operand_dims[operand][3])
    return false;
  for (int i = 0; i < o->rank - 1; i++)
    if (o->strides[i] % 8 && extent(p, o->dims[i]) > 1) return false;
  return true;
}

static bool mask_fits(const struct cuvil_problem *p) {
  if (p->mask < 0) return true;
  const struct cuvil_operand *o = &p->operands[p->mask];
  return !p->mask_keep && whole(o) &&
         (o->dtype == CUVIL_F16 || o->dtype == CUVIL_BF16 ||
          o->dtype == CUVIL_F32);
}

static bool applicable(const struct cuvil_problem *p,
                       const struct cuvil_arch *arch) {
  (void)arch;
  if (p->kind != CUVIL_KIND_ATTENTION || p->epilogue.count || !mask_fits(p))
    return false;
  enum cuvil_dtype dtype = p->operands[CUVIL_ATTENTION_Q].dtype;
  if (dtype != CUVIL_F16 && dtype != CUVIL_BF16) return false;
  for (int i = 0; i < 4; i++)
    if (!is_tensor(p, i)) return false;
  /* The library gives NaN, not 0, to a query that sees no key. */
  if (p->causal &&
      extent(p, CUVIL_ATTENTION_DIM_SKV) < extent(p, CUVIL_ATTENTION_DIM_SQ))
    return false;
  return extent(p, CUVIL_ATTENTION_DIM_D) % 8 == 0 &&
         extent(p, CUVIL_ATTENTION_DIM_DV) % 8 == 0;
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  cuvil_space_default(query->space, out); /* no engine, no knobs */
  cuvil_config_set(query->space, out, "workspace", DEFAULT_WORKSPACE);
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  int64_t workspace = cuvil_config_get(query->space, config, "workspace");
  out->cluster = 1;
  out->workspace_bytes = (uint64_t)workspace;
  return workspace >= 0;
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = query->problem;
  (void)config;
  (void)derived;
  return 5e-6 + cuvil_problem_flops(p) / (0.5 * query->arch->flops_f16) +
         cuvil_problem_bytes(p) / query->arch->memory_bytes_per_second;
}

/* ---- the call */
static bool put(json_t *call, const char *key, json_t *value) {
  return json_object_set_new(call, key, value) == 0;
}

static int64_t stride_of(const struct cuvil_operand *o, int dim) {
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == dim) return o->strides[i];
  return 0;
}

static json_t *strides_of(const struct cuvil_operand *o, const int *dims) {
  json_t *array = json_array();
  for (int i = 0; i < 4; i++)
    json_array_append_new(array, json_integer(stride_of(o, dims[i])));
  return array;
}

/* A dimension that the mask lacks has an extent of 1; its stride is that of a
 * packed tensor, since the library checks strides even there. */
static json_t *mask_of(const struct cuvil_problem *p) {
  const struct cuvil_operand *o = &p->operands[p->mask];
  json_t *dims = json_array(), *strides = json_array();
  int64_t packed[4], next = 1;
  for (int i = 3; i >= 0; i--) {
    packed[i] = next;
    if (cuvil_operand_has_dim(o, mask_dims[i])) next *= extent(p, mask_dims[i]);
  }
  for (int i = 0; i < 4; i++) {
    bool has = cuvil_operand_has_dim(o, mask_dims[i]);
    int64_t stride = has ? stride_of(o, mask_dims[i]) : packed[i];
    json_array_append_new(dims,
                          json_integer(has ? extent(p, mask_dims[i]) : 1));
    json_array_append_new(strides, json_integer(stride));
  }
  return json_pack("{s:s, s:o, s:o}", "dtype", cuvil_dtype_name(o->dtype),
                   "dims", dims, "strides", strides);
}

/* Without engine. */
static json_t *make_call(const struct cuvil_problem *p, int64_t workspace) {
  static const char *const keys[] = {"b", "hq", "hkv", "sq", "skv", "d", "dv"};
  static const char *const strides[] = {"q_strides", "k_strides", "v_strides",
                                        "o_strides"};
  enum cuvil_dtype dtype = p->operands[CUVIL_ATTENTION_Q].dtype;
  json_t *call =
      json_pack("{s:s, s:s, s:f, s:b, s:I}", "op", "sdpa_fwd", "dtype",
                cuvil_dtype_name(dtype), "scale", p->scale, "causal", p->causal,
                "workspace", (json_int_t)workspace);
  bool all = call != NULL;
  for (int i = 0; i < 7; i++) /* in the order of problem->dims */
    all = all && put(call, keys[i], json_integer(p->dims[i].extent));
  for (int i = 0; i < 4; i++)
    all = all &&
          put(call, strides[i], strides_of(&p->operands[i], operand_dims[i]));
  if (p->mask >= 0) all = all && put(call, "mask", mask_of(p));
  if (all) return call;
  json_decref(call);
  return NULL;
}

static bool read_choice(const struct cuvil_query *query, const json_t *call,
                        bool fused, struct cuvil_config *out) {
  (void)fused; /* there is no second way */
  return cuvil_cudnn_read_engine(query->space, call, out);
}

static enum cuvil_status choices(const struct cuvil_query *query,
                                 struct cuvil_gpu *gpu, int limit,
                                 struct cuvil_config *out, int *out_count) {
  json_t *call = make_call(query->problem, DEFAULT_WORKSPACE);
  *out_count = 0;
  return cuvil_library_list(query, gpu, "cudnn", call, true, read_choice, limit,
                            out, out_count);
}

/* ---- the program */
static enum cuvil_status add_step(struct cuvil_emission *e,
                                  const struct cuvil_config *config) {
  const struct cuvil_query *query = e->query;
  int bindings[5], count = 0;
  int64_t workspace = cuvil_config_get(query->space, config, "workspace");
  for (int i = 0; i < 4; i++)
    bindings[count++] = e->buffers[i];
  if (query->problem->mask >= 0)
    bindings[count++] = e->buffers[query->problem->mask];
  json_t *call = make_call(query->problem, workspace);
  return cuvil_library_step_of(e, config, "cudnn", call, cuvil_cudnn_put_engine,
                               bindings, count);
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  struct cuvil_emission e;
  enum cuvil_status status = cuvil_emission_begin(query, &e);
  if (status == CUVIL_OK) status = add_step(&e, config);
  return cuvil_emission_end(&e, status, out);
}

const struct cuvil_family cuvil_family_attention_cudnn = {
    .id = "attention_cudnn",
    .version = 1,
    .about = "attention by cuDNN's fused engines",
    .kinds = 1u << CUVIL_KIND_ATTENTION,
    .library = "cudnn",
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
    .choices = choices,
};
