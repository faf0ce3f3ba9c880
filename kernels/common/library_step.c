/* library_step.c - a library's call as a step, with what it cannot fuse after
 * it.
 *
 * The libraries add a bias and a residual and apply one activation.  Any other
 * epilogue is computed by the pointwise family from an fp32 accumulator in
 * workspace: the contraction problem is turned into a pointwise one whose
 * first side input is that accumulator, and the program of that problem is
 * appended, buffers mapped.
 */
#include "kernels/common/library_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- epilogues that a library has */
struct matcher {
  const struct cuvil_problem *problem;
  int channel;
  struct cuvil_chain *chain;
};

static bool take_operand(const struct matcher *m, int operand) {
  const struct cuvil_problem *p = m->problem;
  const struct cuvil_operand *o = &p->operands[operand];
  if (o->dtype != p->operands[p->output].dtype) return false;
  if (o->rank == 1 && o->dims[0] == m->channel && o->strides[0] == 1 &&
      o->limit[0] == 0 && m->chain->bias < 0) {
    m->chain->bias = operand;
    return true;
  }
  if (!cuvil_operand_like_output(p, operand) || m->chain->residual >= 0)
    return false;
  m->chain->residual = operand;
  return true;
}

/* Is the term the chain's value so far? */
static bool is_chain(const struct cuvil_term *term, int statement) {
  if (statement == 0) return term->kind == CUVIL_TERM_ACC;
  return term->kind == CUVIL_TERM_VALUE && term->index == statement - 1;
}

static bool take_statement(const struct matcher *m, int number) {
  const struct cuvil_statement *s = &m->problem->epilogue.statements[number];
  if (m->chain->activation != CUVIL_ACT_NONE) return false;
  if (s->output >= 0 && s->output != m->problem->output) return false;
  /* The sum itself, scaled, before anything else: the library's alpha. */
  if (s->op == CUVIL_OP_MUL && number == 0) {
    int other = s->args[0].kind == CUVIL_TERM_ACC ? 1 : 0;
    if (s->args[1 - other].kind != CUVIL_TERM_ACC ||
        s->args[other].kind != CUVIL_TERM_CONSTANT ||
        !isfinite(s->args[other].value))
      return false;
    m->chain->alpha = s->args[other].value;
    return true;
  }
  if (s->op == CUVIL_OP_ADD) {
    int other = is_chain(&s->args[0], number) ? 1 : 0;
    return is_chain(&s->args[1 - other], number) &&
           s->args[other].kind == CUVIL_TERM_OPERAND &&
           take_operand(m, s->args[other].index);
  }
  if (!is_chain(&s->args[0], number)) return false;
  if (s->op == CUVIL_OP_COPY) return true;
  if (s->op == CUVIL_OP_RELU)
    m->chain->activation = CUVIL_ACT_RELU;
  else if (s->op == CUVIL_OP_GELU_TANH)
    m->chain->activation = CUVIL_ACT_GELU_TANH;
  return m->chain->activation != CUVIL_ACT_NONE;
}

bool cuvil_chain_match(const struct cuvil_problem *problem, int channel,
                       struct cuvil_chain *out) {
  *out = (struct cuvil_chain){-1, -1, CUVIL_ACT_NONE, 1};
  struct matcher m = {problem, channel, out};
  for (int i = 0; i < problem->epilogue.count; i++)
    if (!take_statement(&m, i)) return false;
  return true;
}

/* ---- the step */
enum cuvil_status cuvil_library_step(struct cuvil_program *program,
                                     const char *library, json_t *call,
                                     const int *bindings, int count,
                                     uint64_t workspace) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_step *step;
  int buffer;
  if (!call) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "a call of %s", library);
  /* An address is bound even where nothing is needed. */
  CUVIL_TRY_GOTO(cuvil_program_add_buffer(program, CUVIL_BUFFER_WORKSPACE, -1,
                                          workspace ? workspace : 16, &buffer));
  CUVIL_TRY_GOTO(cuvil_program_add_step(program, CUVIL_STEP_LIBRARY, &step));
  snprintf(step->library, sizeof step->library, "%s", library);
  memcpy(step->bindings, bindings, sizeof *bindings * (size_t)count);
  step->bindings[count] = buffer;
  step->binding_count = count + 1;
  step->call = call;
  return CUVIL_OK;
fail:
  json_decref(call);
  return status;
}

enum cuvil_status cuvil_library_step_of(
    struct cuvil_emission *e, const struct cuvil_config *config,
    const char *library, json_t *call,
    bool (*put)(const struct cuvil_space *space,
                const struct cuvil_config *config, json_t *call),
    const int *bindings, int count) {
  const struct cuvil_space *space = e->query->space;
  int64_t workspace = cuvil_config_get(space, config, "workspace");
  if (call && !put(space, config, call)) {
    json_decref(call);
    call = NULL;
  }
  return cuvil_library_step(e->program, library, call, bindings, count,
                            (uint64_t)workspace);
}

/* ---- points */
enum cuvil_status cuvil_library_list(
    const struct cuvil_query *query, struct cuvil_gpu *gpu, const char *library,
    json_t *call, bool fused,
    bool (*read)(const struct cuvil_query *query, const json_t *call,
                 bool fused, struct cuvil_config *out),
    int limit, struct cuvil_config *out, int *count) {
  json_t *found = NULL;
  if (!call) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "a call of %s", library);
  enum cuvil_status status =
      cuvil_library_choices(gpu, library, call, limit - *count, &found);
  json_decref(call);
  if (status == CU_ERR_LIBRARY) { /* has none for this problem */
    cuvil_log_verbose("%s: %s", library, cuvil_last_error());
    return CUVIL_OK;
  }
  CUVIL_TRY(status);
  for (size_t i = 0; i < json_array_size(found) && *count < limit; i++) {
    cuvil_space_default(query->space, &out[*count]);
    if (read(query, json_array_get(found, i), fused, &out[*count])) ++*count;
  }
  json_decref(found);
  return CUVIL_OK;
}

void cuvil_library_set(const struct cuvil_space *space,
                       struct cuvil_config *config, const char *name,
                       const json_t *object, const char *key,
                       int64_t fallback) {
  const json_t *value = json_object_get(object, key);
  cuvil_config_set(
      space, config, name,
      json_is_integer(value) ? json_integer_value(value) : fallback);
}

/* ---- an engine of cuDNN */
enum { MAX_KNOBS = 20 };

bool cuvil_cudnn_put_engine(const struct cuvil_space *space,
                            const struct cuvil_config *config, json_t *call) {
  int64_t id = cuvil_config_get(space, config, "id");
  if (id < 0) return true;
  json_t *knobs = json_array();
  char name[8];
  for (int i = 0; i < MAX_KNOBS; i++) {
    snprintf(name, sizeof name, "knob%d", i);
    int64_t knob = cuvil_config_get(space, config, name);
    if (knob < 0) continue;
    json_array_append_new(knobs,
                          json_pack("[I, I]", (json_int_t)(knob >> 32),
                                    (json_int_t)(knob & (int64_t)UINT32_MAX)));
  }
  json_t *engine =
      json_pack("{s:I, s:o}", "id", (json_int_t)id, "knobs", knobs);
  return json_object_set_new(call, "engine", engine) == 0;
}

bool cuvil_cudnn_read_engine(const struct cuvil_space *space,
                             const json_t *call, struct cuvil_config *config) {
  const json_t *engine = json_object_get(call, "engine");
  const json_t *knobs = json_object_get(engine, "knobs");
  size_t count = json_array_size(knobs);
  char name[8];
  if (count > MAX_KNOBS) return false;
  cuvil_library_set(space, config, "workspace", call, "workspace", 0);
  cuvil_library_set(space, config, "id", engine, "id", -1);
  for (size_t i = 0; i < MAX_KNOBS; i++) {
    snprintf(name, sizeof name, "knob%d", (int)i);
    cuvil_config_set(space, config, name, -1);
    if (i >= count) continue;
    const json_t *knob = json_array_get(knobs, i);
    int64_t type = json_integer_value(json_array_get(knob, 0));
    int64_t value = json_integer_value(json_array_get(knob, 1));
    if (value < 0 || value > UINT32_MAX || type < 0 || type > INT32_MAX)
      return false;
    cuvil_config_set(space, config, name, type << 32 | value);
  }
  return true;
}

/* ---- the rest of the epilogue */
/* The contraction's epilogue as a pointwise problem: operand 0 becomes the
 * accumulator as a side input, operand 1 nothing.  The name ACC cannot be an
 * operand's of the grammar, which has no capitals. */
static void make_pointwise(const struct cuvil_problem *p,
                           struct cuvil_problem *out) {
  *out = *p;
  out->kind = CUVIL_KIND_POINTWISE;
  struct cuvil_operand *acc = &out->operands[0];
  const struct cuvil_operand *y = &p->operands[p->output];
  *acc = *y;
  snprintf(acc->name, sizeof acc->name, "ACC");
  acc->role = CUVIL_ROLE_SIDE;
  acc->dtype = CUVIL_F32;
  acc->strided = false;
  /* A product is written by rows whatever the output's own order. */
  if (p->kind == CUVIL_KIND_GEMM) {
    acc->dims[0] = CUVIL_DIM_BATCH;
    acc->dims[y->rank - 2] = CUVIL_DIM_M;
    acc->dims[y->rank - 1] = CUVIL_DIM_N;
  }
  int64_t next = 1;
  for (int i = y->rank - 1; i >= 0; i--) {
    acc->strides[i] = next;
    next *= p->dims[acc->dims[i]].extent;
  }
  out->operands[1].rank = 0;
  out->operands[1].strided = false;
  struct cuvil_expr *e = &out->epilogue;
  if (e->count == 0) {
    struct cuvil_statement *s = &e->statements[e->count++];
    snprintf(s->name, sizeof s->name, "out");
    s->op = CUVIL_OP_COPY;
    s->args[0].kind = CUVIL_TERM_ACC;
    s->output = p->output;
  }
  for (int i = 0; i < e->count; i++)
    for (int a = 0; a < CUVIL_MAX_ARGS; a++)
      if (e->statements[i].args[a].kind == CUVIL_TERM_ACC &&
          a < cuvil_expr_op_args(e->statements[i].op))
        e->statements[i].args[a] =
            (struct cuvil_term){.kind = CUVIL_TERM_OPERAND, .index = 0};
}

/* Moves the one launch of `from` to the end of `program`. */
static enum cuvil_status append_launch(struct cuvil_program *program,
                                       struct cuvil_program *from,
                                       const int *buffer_of_operand, int acc) {
  CUVIL_CHECK(from->step_count == 1 && from->module_count == 1);
  struct cuvil_step *step;
  int module;
  CUVIL_TRY(cuvil_program_add_module(program, from->modules[0].source,
                                     from->modules[0].arch,
                                     from->modules[0].options, &module));
  CUVIL_TRY(cuvil_program_add_step(program, CUVIL_STEP_LAUNCH, &step));
  *step = from->steps[0];
  from->steps[0].args = NULL;
  from->steps[0].arg_count = 0;
  step->module = module;
  for (int i = 0; i < step->arg_count; i++) {
    if (step->args[i].kind != CUVIL_ARG_BUFFER) continue;
    int operand = from->buffers[step->args[i].buffer].operand;
    step->args[i].buffer = operand == 0 ? acc : buffer_of_operand[operand];
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_library_epilogue(const struct cuvil_query *query,
                                         struct cuvil_program *program,
                                         const int *buffer_of_operand,
                                         int acc) {
  const struct cuvil_family *family = cuvil_family_find("pointwise");
  struct cuvil_problem pointwise;
  struct cuvil_query inner = {&pointwise, query->arch, NULL};
  struct cuvil_config config;
  struct cuvil_program *emitted = NULL;
  CUVIL_CHECK(family != NULL);
  make_pointwise(query->problem, &pointwise);
  CUVIL_TRY(cuvil_family_space(family, &inner.space));
  family->default_config(&inner, &config);
  /* What stands before it is the library's and triggers nothing early. */
  cuvil_config_set(inner.space, &config, "pdl", 0);
  CUVIL_TRY(family->emit(&inner, &config, &emitted));
  enum cuvil_status status =
      append_launch(program, emitted, buffer_of_operand, acc);
  cuvil_program_destroy(emitted);
  return status;
}
