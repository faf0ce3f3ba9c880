/* gemm_cublaslt.c - matrix products by cuBLASLt.
 *
 * Fused: a scale (alpha), bias, residual (as beta C) and relu or tanh gelu ride
 * in the library's own epilogue.  Any other epilogue, output layout or mix of
 * types: the library writes the fp32 product to workspace and a pointwise
 * kernel does the rest.  A point is an algorithm with its settings as the
 * library lists it; id = -1 leaves the choice to the library when the program
 * is prepared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/library_step.h"

enum { DEFAULT_WORKSPACE = 32 << 20, DATA_WORDS = 8 };

/* An operand as a matrix, or as many: dimensions and strides without the
 * batch's. */
struct matrix {
  int slow, fast; /* dimensions */
  int64_t pitch;  /* elements between rows */
  int64_t step; /* between one matrix's start and the next's; 0: one for all */
};

/* The fastest dimension has stride 1 and is not the batch's, nothing is cut
 * off, rows do not overlap. */
static bool is_matrix(const struct cuvil_problem *p, int operand,
                      struct matrix *out) {
  const struct cuvil_operand *o = &p->operands[operand];
  int last = o->rank - 1, slow = 0, batch = -1;
  if (last < 1 || last > 2 || o->strides[last] != 1) return false;
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i]) return false;
  if (last == 2) {
    batch = o->dims[0] == CUVIL_DIM_BATCH ? 0 : 1;
    if (o->dims[batch] != CUVIL_DIM_BATCH) return false;
    slow = 1 - batch;
  }
  *out = (struct matrix){o->dims[slow], o->dims[last], o->strides[slow],
                         batch < 0 ? 0 : o->strides[batch]};
  return o->dims[last] != CUVIL_DIM_BATCH &&
         out->pitch >= p->dims[out->fast].extent;
}

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  struct matrix m;
  (void)arch;
  return problem->kind == CUVIL_KIND_GEMM &&
         is_matrix(problem, CUVIL_GEMM_A, &m) &&
         is_matrix(problem, CUVIL_GEMM_B, &m);
}

/* The epilogue and the output are the library's own. */
static bool can_fuse(const struct cuvil_problem *p, struct cuvil_chain *chain) {
  const struct cuvil_operand *c = &p->operands[CUVIL_GEMM_C];
  enum cuvil_dtype input = p->operands[CUVIL_GEMM_A].dtype;
  struct matrix m;
  if (!is_matrix(p, CUVIL_GEMM_C, &m) || m.slow != CUVIL_DIM_M) return false;
  if (c->dtype != input && c->dtype != CUVIL_F32) return false;
  return cuvil_chain_match(p, CUVIL_DIM_N, chain);
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  struct cuvil_chain chain;
  cuvil_space_default(query->space, out);
  cuvil_config_set(query->space, out, "fused",
                   can_fuse(query->problem, &chain));
  cuvil_config_set(query->space, out, "workspace", DEFAULT_WORKSPACE);
  cuvil_config_set(query->space, out, "id", -1);
}

static uint64_t product_bytes(const struct cuvil_problem *p) {
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
  if (!fused) out->workspace_bytes += product_bytes(query->problem);
  return workspace >= 0 && (!fused || can_fuse(query->problem, &chain));
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  const struct cuvil_problem *p = query->problem;
  double rate = p->operands[CUVIL_GEMM_A].dtype != CUVIL_F32
                    ? query->arch->flops_f16
                : p->tf32 ? query->arch->flops_tf32
                          : query->arch->flops_f32;
  double bytes = cuvil_problem_bytes(p);
  (void)derived;
  if (!cuvil_config_get(query->space, config, "fused"))
    bytes += 2.0 * (double)product_bytes(p);
  return 3e-6 + cuvil_problem_flops(p) / (0.7 * rate) +
         bytes / query->arch->memory_bytes_per_second;
}

/* ---- the call */
static json_t *matrix(const struct cuvil_problem *p, int operand, int first_dim,
                      int64_t *out_step) {
  struct matrix m;
  if (!is_matrix(p, operand, &m)) return NULL;
  *out_step = m.step;
  return json_pack("{s:s, s:b, s:I}", "dtype",
                   cuvil_dtype_name(p->operands[operand].dtype), "trans",
                   m.slow != first_dim, "ld", (json_int_t)m.pitch);
}

/* The batch and its steps; c lies like d. */
static bool put_batch(const struct cuvil_problem *p, int64_t a, int64_t b,
                      int64_t d, json_t *call) {
  if (!cuvil_problem_batched(p)) return true;
  return json_object_set_new(call, "batch",
                             json_integer(p->dims[CUVIL_DIM_BATCH].extent)) ==
             0 &&
         json_object_set_new(
             call, "strides",
             json_pack("[I,I,I,I]", (json_int_t)a, (json_int_t)b, (json_int_t)d,
                       (json_int_t)d)) == 0;
}

static const char *epilogue_name(const struct cuvil_chain *chain) {
  static const char *const plain[] = {"default", "relu", "gelu"};
  static const char *const biased[] = {"bias", "relu_bias", "gelu_bias"};
  return (chain->bias >= 0 ? biased : plain)[chain->activation];
}

/* Without algorithm.  chain NULL: the bare product in fp32. */
static json_t *make_call(const struct cuvil_problem *p,
                         const struct cuvil_chain *chain, int64_t workspace) {
  const struct cuvil_operand *c = &p->operands[CUVIL_GEMM_C];
  int64_t n = p->dims[CUVIL_DIM_N].extent, step_a = 0, step_b = 0;
  struct matrix out = {CUVIL_DIM_M, CUVIL_DIM_N, n,
                       n * p->dims[CUVIL_DIM_M].extent};
  if (chain && !is_matrix(p, CUVIL_GEMM_C, &out)) return NULL;
  json_t *call =
      json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:s, s:I}", "op", "matmul", "m",
                (json_int_t)p->dims[CUVIL_DIM_M].extent, "n",
                (json_int_t)p->dims[CUVIL_DIM_N].extent, "k",
                (json_int_t)p->dims[CUVIL_DIM_K].extent, "a",
                matrix(p, CUVIL_GEMM_A, CUVIL_DIM_M, &step_a), "b",
                matrix(p, CUVIL_GEMM_B, CUVIL_DIM_K, &step_b), "compute",
                p->tf32 ? "tf32" : "f32", "workspace", (json_int_t)workspace);
  json_t *d = json_pack("{s:s, s:I}", "dtype",
                        cuvil_dtype_name(chain ? c->dtype : CUVIL_F32), "ld",
                        (json_int_t)out.pitch);
  if (!call || !d || json_object_set(call, "d", d) != 0 ||
      !put_batch(p, step_a, step_b, out.step, call))
    goto fail;
  if (chain) {
    json_t *name = json_string(epilogue_name(chain));
    if (json_object_set_new(call, "epilogue", name) != 0) goto fail;
    if (chain->alpha != 1 &&
        json_object_set_new(call, "alpha", json_real(chain->alpha)) != 0)
      goto fail;
    if (chain->bias >= 0 &&
        json_object_set_new(call, "bias_dtype",
                            json_string(cuvil_dtype_name(c->dtype))) != 0)
      goto fail;
    if (chain->residual >= 0 &&
        (json_object_set(call, "c", d) != 0 ||
         json_object_set_new(call, "beta", json_real(1.0)) != 0))
      goto fail;
  }
  json_decref(d);
  return call;
fail:
  json_decref(d);
  json_decref(call);
  return NULL;
}

/* ---- the algorithm, as a point of the space */
static const char *const values[] = {"tile",        "stages",  "split_k",
                                     "reduction",   "swizzle", "custom",
                                     "inner_shape", "cluster"};
enum { VALUES = sizeof values / sizeof *values };

static bool put_algorithm(const struct cuvil_space *space,
                          const struct cuvil_config *config, json_t *call) {
  int64_t id = cuvil_config_get(space, config, "id");
  int64_t version = cuvil_config_get(space, config, "version");
  if (id < 0) return true;
  json_t *algorithm = json_pack("{s:I}", "id", (json_int_t)id);
  for (int i = 0; i < VALUES; i++)
    json_object_set_new(
        algorithm, values[i],
        json_integer(cuvil_config_get(space, config, values[i])));
  if (version > 0) {
    char hex[DATA_WORDS * 16 + 1], name[8];
    for (int i = 0; i < DATA_WORDS; i++) {
      snprintf(name, sizeof name, "data%d", i);
      snprintf(hex + 16 * i, 17, "%016" PRIx64,
               (uint64_t)cuvil_config_get(space, config, name));
    }
    json_object_set_new(algorithm, "data", json_string(hex));
    json_object_set_new(algorithm, "version", json_integer(version));
  }
  return json_object_set_new(call, "algorithm", algorithm) == 0;
}

/* False: the algorithm's bytes are more or fewer than the space has places for.
 */
static bool read_choice(const struct cuvil_query *query, const json_t *call,
                        bool fused, struct cuvil_config *out) {
  const struct cuvil_space *space = query->space;
  const json_t *algorithm = json_object_get(call, "algorithm");
  const char *hex = json_string_value(json_object_get(algorithm, "data"));
  if (hex && strlen(hex) != DATA_WORDS * 16) return false;
  cuvil_config_set(space, out, "fused", fused);
  cuvil_library_set(space, out, "workspace", call, "workspace", 0);
  cuvil_library_set(space, out, "id", algorithm, "id", -1);
  cuvil_library_set(space, out, "version", algorithm, "version", 0);
  for (int i = 0; i < VALUES; i++)
    cuvil_library_set(space, out, values[i], algorithm, values[i],
                      i == 2 ? 1 : 0);
  for (int i = 0; hex && i < DATA_WORDS; i++) {
    char digits[17], name[8];
    snprintf(name, sizeof name, "data%d", i);
    snprintf(digits, sizeof digits, "%.16s", hex + 16 * i);
    cuvil_config_set(space, out, name, (int64_t)strtoull(digits, NULL, 16));
  }
  return true;
}

static enum cuvil_status list(const struct cuvil_query *query,
                              struct cuvil_gpu *gpu,
                              const struct cuvil_chain *chain, int limit,
                              struct cuvil_config *out, int *count) {
  json_t *call = make_call(query->problem, chain, DEFAULT_WORKSPACE);
  return cuvil_library_list(query, gpu, "cublaslt", call, chain != NULL,
                            read_choice, limit, out, count);
}

static enum cuvil_status choices(const struct cuvil_query *query,
                                 struct cuvil_gpu *gpu, int limit,
                                 struct cuvil_config *out, int *out_count) {
  struct cuvil_chain chain;
  *out_count = 0;
  if (can_fuse(query->problem, &chain))
    CUVIL_TRY(list(query, gpu, &chain, limit, out, out_count));
  if (*out_count > 0) return CUVIL_OK;
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
  if (fused && !can_fuse(query->problem, &chain))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "cublaslt has not this problem's epilogue");
  if (!fused)
    CUVIL_TRY(cuvil_program_add_buffer(e->program, CUVIL_BUFFER_WORKSPACE, -1,
                                       product_bytes(query->problem), &acc));
  bindings[count++] = e->buffers[CUVIL_GEMM_A];
  bindings[count++] = e->buffers[CUVIL_GEMM_B];
  if (fused && chain.residual >= 0)
    bindings[count++] = e->buffers[chain.residual];
  bindings[count++] = fused ? e->buffers[CUVIL_GEMM_C] : acc;
  if (fused && chain.bias >= 0) bindings[count++] = e->buffers[chain.bias];
  json_t *call = make_call(query->problem, fused ? &chain : NULL, workspace);
  CUVIL_TRY(cuvil_library_step_of(e, config, "cublaslt", call, put_algorithm,
                                  bindings, count));
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

const struct cuvil_family cuvil_family_gemm_cublaslt = {
    .id = "gemm_cublaslt",
    .version = 1,
    .about = "matrix products by cuBLASLt, its epilogues or a kernel after it",
    .kinds = 1u << CUVIL_KIND_GEMM,
    .library = "cublaslt",
    .applicable = applicable,
    .default_config = default_config,
    .derive = derive,
    .predict = predict,
    .emit = emit,
    .choices = choices,
};
