/* verify.c - operands with red zones, one reference, many verdicts.
 *
 * A region is one allocation: a red zone, the payload, another red zone that
 * begins at the payload's very last byte.  Inputs keep a second copy of the
 * whole region; after a run the two must be equal.  All checking runs on the
 * device, on one stream, and one small download brings the counts back, so
 * that a check costs little more than the kernel it judges.
 */
#include "kernels/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/emit.h"
#include "problem/reference.h"

enum {
  ZONE = 4096, /* bytes on each side of a payload */
  ALIGN = 256, /* of payloads, as the plan's arena aligns them */
  ZONE_BYTE = 0xa5,
  POISON = 0xff,   /* NaN in every float type */
  MAX_REGIONS = 64 /* operands and the buffers of one program */
};

struct region {
  uint64_t base; /* of the allocation; 0: none */
  uint64_t bytes;
};
static uint64_t payload(const struct region *r) {
  return r->base + ZONE;
}
static uint64_t extent(uint64_t bytes) { /* of the whole region */
  return ZONE + (bytes + ALIGN - 1) / ALIGN * ALIGN + ZONE;
}

/* A program that this file runs itself. */
struct helper {
  struct cuvil_program *program;
  struct cuvil_executable *executable;
};

struct cuvil_verifier {
  struct cuvil_gpu *gpu;
  struct cuvil_problem problem;
  const char *cubin_dir; /* during create only */
  struct cuvil_gpu_stream *stream;
  struct region operands[CUVIL_MAX_OPERANDS];
  uint64_t pristine[CUVIL_MAX_OPERANDS]; /* inputs: copy of the region */
  uint64_t values[CUVIL_MAX_OPERANDS], bounds[CUVIL_MAX_OPERANDS];
  struct helper compare[CUVIL_MAX_OPERANDS];
  uint64_t compare_scratch;
  uint64_t results; /* MAX_REGIONS counters, then a compare result an output */
  struct cuvil_program *guard;
  struct cuvil_gpu_module *guard_module;
  struct cuvil_gpu_function *guard_copy, *guard_value;
  uint64_t scratch, scratch_bytes; /* programs' own buffers */
};

static bool is_output(const struct cuvil_verifier *v, int operand) {
  return v->problem.operands[operand].role == CUVIL_ROLE_OUTPUT;
}

/* ---- creation */
static enum cuvil_status fill_zones(struct cuvil_verifier *v, uint64_t base,
                                    uint64_t bytes) {
  uint64_t tail = base + ZONE + bytes;
  CUVIL_TRY(cuvil_gpu_memset(v->gpu, base, ZONE_BYTE, ZONE, v->stream));
  return cuvil_gpu_memset(v->gpu, tail, ZONE_BYTE, base + extent(bytes) - tail,
                          v->stream);
}

static enum cuvil_status upload_random(struct cuvil_verifier *v, int operand,
                                       uint64_t seed) {
  struct region *r = &v->operands[operand];
  void *host = malloc(r->bytes);
  if (!host) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "operand data");
  cuvil_problem_random(&v->problem, operand, seed, host);
  enum cuvil_status status =
      cuvil_gpu_upload(v->gpu, payload(r), host, r->bytes);
  free(host);
  CUVIL_TRY(status);
  uint64_t all = extent(r->bytes);
  CUVIL_TRY(cuvil_gpu_alloc(v->gpu, all, &v->pristine[operand]));
  CUVIL_TRY(cuvil_gpu_stream_synchronize(v->stream));
  return cuvil_gpu_copy(v->gpu, v->pristine[operand], r->base, all, v->stream);
}

static enum cuvil_status create_operand(struct cuvil_verifier *v, int operand,
                                        uint64_t seed) {
  struct region *r = &v->operands[operand];
  r->bytes = (uint64_t)cuvil_operand_bytes(&v->problem, operand);
  CUVIL_TRY(cuvil_gpu_alloc(v->gpu, extent(r->bytes), &r->base));
  CUVIL_TRY(fill_zones(v, r->base, r->bytes));
  if (!is_output(v, operand)) return upload_random(v, operand, seed);
  uint64_t doubles = 8 * (uint64_t)cuvil_operand_elements(&v->problem, operand);
  CUVIL_TRY(cuvil_gpu_alloc(v->gpu, doubles, &v->values[operand]));
  return cuvil_gpu_alloc(v->gpu, doubles, &v->bounds[operand]);
}

static enum cuvil_status prepare(struct cuvil_verifier *v, struct helper *h) {
  CUVIL_TRY(cuvil_program_compile(h->program, v->cubin_dir, NULL));
  return cuvil_executable_create(v->gpu, h->program, &h->executable);
}

static void release(struct helper *h) {
  cuvil_executable_destroy(h->executable);
  cuvil_program_destroy(h->program);
}

static enum cuvil_status run_reference(struct cuvil_verifier *v,
                                       struct helper *h) {
  uint64_t addresses[2 * CUVIL_MAX_OPERANDS];
  CUVIL_TRY(cuvil_reference_program(&v->problem, cuvil_gpu_arch(v->gpu),
                                    &h->program));
  CUVIL_TRY(prepare(v, h));
  for (int i = 0; i < h->program->buffer_count; i++) {
    int operand = h->program->buffers[i].operand;
    if (operand >= CUVIL_MAX_OPERANDS)
      addresses[i] = v->bounds[operand - CUVIL_MAX_OPERANDS];
    else if (is_output(v, operand))
      addresses[i] = v->values[operand];
    else
      addresses[i] = payload(&v->operands[operand]);
  }
  CUVIL_TRY(cuvil_executable_run(h->executable, addresses, v->stream));
  return cuvil_gpu_stream_synchronize(v->stream);
}

static enum cuvil_status create_compare(struct cuvil_verifier *v, int operand) {
  struct helper *h = &v->compare[operand];
  CUVIL_TRY(cuvil_compare_program(v->problem.operands[operand].dtype,
                                  cuvil_operand_elements(&v->problem, operand),
                                  cuvil_gpu_arch(v->gpu), &h->program));
  CUVIL_TRY(prepare(v, h));
  if (v->compare_scratch) return CUVIL_OK;
  return cuvil_gpu_alloc(v->gpu, cuvil_program_workspace(h->program),
                         &v->compare_scratch);
}

static enum cuvil_status create_guard(struct cuvil_verifier *v) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_query query = {&v->problem, cuvil_gpu_arch(v->gpu), NULL};
  struct cuvil_emission e = {.query = &query};
  CUVIL_TRY(cuvil_program_create(&v->guard));
  CUVIL_TRY_GOTO(cuvil_emission_file(&e, "kernels/common/types.cuh"));
  CUVIL_TRY_GOTO(cuvil_emission_file(&e, "kernels/common/guard.cu"));
  CUVIL_TRY_GOTO(cuvil_program_add_module(v->guard, e.source.data,
                                          query.arch->nvrtc_name, NULL, NULL));
  CUVIL_TRY_GOTO(cuvil_program_compile(v->guard, v->cubin_dir, NULL));
  CUVIL_TRY_GOTO(cuvil_gpu_module_load(v->gpu, v->guard->modules[0].cubin,
                                       v->guard->modules[0].cubin_size,
                                       &v->guard_module));
  CUVIL_TRY_GOTO(cuvil_gpu_module_function(v->guard_module, "guard_copy", 0, 0,
                                           &v->guard_copy));
  CUVIL_TRY_GOTO(cuvil_gpu_module_function(v->guard_module, "guard_value", 0, 0,
                                           &v->guard_value));
fail:
  cuvil_buf_free(&e.source);
  return status;
}

static uint64_t result_bytes(void) {
  return MAX_REGIONS * 8 +
         CUVIL_MAX_OPERANDS * sizeof(struct cuvil_compare_result);
}

static enum cuvil_status create(struct cuvil_verifier *v, uint64_t seed) {
  struct helper reference = {NULL, NULL};
  CUVIL_TRY(cuvil_gpu_stream_create(v->gpu, &v->stream));
  CUVIL_TRY(cuvil_gpu_alloc(v->gpu, result_bytes(), &v->results));
  for (int i = 0; i < v->problem.operand_count; i++)
    CUVIL_TRY(create_operand(v, i, seed));
  enum cuvil_status status = run_reference(v, &reference);
  release(&reference);
  CUVIL_TRY(status);
  for (int i = 0; i < v->problem.operand_count; i++)
    if (is_output(v, i)) CUVIL_TRY(create_compare(v, i));
  return create_guard(v);
}

enum cuvil_status cuvil_verifier_create(struct cuvil_gpu *gpu,
                                        const struct cuvil_problem *problem,
                                        uint64_t seed, const char *cubin_dir,
                                        struct cuvil_verifier **out) {
  *out = NULL;
  struct cuvil_verifier *v = calloc(1, sizeof *v);
  if (!v) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "verifier");
  v->gpu = gpu;
  v->problem = *problem;
  v->cubin_dir = cubin_dir;
  enum cuvil_status status = create(v, seed);
  v->cubin_dir = NULL;
  if (status != CUVIL_OK) {
    cuvil_verifier_destroy(v);
    return status;
  }
  *out = v;
  return CUVIL_OK;
}

void cuvil_verifier_destroy(struct cuvil_verifier *v) {
  if (!v) return;
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++) {
    release(&v->compare[i]);
    cuvil_gpu_free(v->gpu, v->operands[i].base);
    cuvil_gpu_free(v->gpu, v->pristine[i]);
    cuvil_gpu_free(v->gpu, v->values[i]);
    cuvil_gpu_free(v->gpu, v->bounds[i]);
  }
  cuvil_gpu_free(v->gpu, v->compare_scratch);
  cuvil_gpu_free(v->gpu, v->results);
  cuvil_gpu_free(v->gpu, v->scratch);
  cuvil_gpu_module_unload(v->guard_module);
  cuvil_program_destroy(v->guard);
  cuvil_gpu_stream_destroy(v->stream);
  free(v);
}

uint64_t cuvil_verifier_operand(const struct cuvil_verifier *v, int operand) {
  return payload(&v->operands[operand]);
}
uint64_t cuvil_verifier_values(const struct cuvil_verifier *v, int operand) {
  return v->values[operand];
}
uint64_t cuvil_verifier_bounds(const struct cuvil_verifier *v, int operand) {
  return v->bounds[operand];
}

/* ---- one check */
/* The program's buffers as regions; regions[i] of program buffer i. */
struct check {
  struct region regions[MAX_REGIONS];
  uint64_t addresses[MAX_REGIONS];
  uint64_t counters[MAX_REGIONS];
  struct cuvil_compare_result compared[CUVIL_MAX_OPERANDS];
};

static enum cuvil_status place_buffers(struct cuvil_verifier *v,
                                       const struct cuvil_program *program,
                                       struct check *c) {
  uint64_t total = 0;
  if (program->buffer_count > MAX_REGIONS)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "a program of %d buffers",
                      program->buffer_count);
  for (int i = 0; i < program->buffer_count; i++)
    if (program->buffers[i].role != CUVIL_BUFFER_OPERAND)
      total += extent(program->buffers[i].bytes);
  if (total > v->scratch_bytes) {
    cuvil_gpu_free(v->gpu, v->scratch);
    v->scratch = v->scratch_bytes = 0;
    CUVIL_TRY(cuvil_gpu_alloc(v->gpu, total, &v->scratch));
    v->scratch_bytes = total;
  }
  uint64_t next = v->scratch;
  for (int i = 0; i < program->buffer_count; i++) {
    const struct cuvil_program_buffer *b = &program->buffers[i];
    if (b->role == CUVIL_BUFFER_OPERAND) {
      if (b->operand < 0 || b->operand >= v->problem.operand_count)
        return CUVIL_FAIL(CU_ERR_INTERNAL, "a program names operand %d",
                          b->operand);
      c->regions[i] = v->operands[b->operand];
    } else {
      c->regions[i] = (struct region){next, b->bytes};
      next += extent(b->bytes);
    }
    c->addresses[i] = payload(&c->regions[i]);
  }
  return CUVIL_OK;
}

static enum cuvil_status set_up(struct cuvil_verifier *v,
                                const struct cuvil_program *program,
                                const struct check *c) {
  CUVIL_TRY(cuvil_gpu_memset(v->gpu, v->results, 0, result_bytes(), v->stream));
  for (int i = 0; i < v->problem.operand_count; i++) {
    const struct region *r = &v->operands[i];
    if (!is_output(v, i)) continue;
    CUVIL_TRY(fill_zones(v, r->base, r->bytes));
    if (r->bytes == 0) continue;
    CUVIL_TRY(
        cuvil_gpu_memset(v->gpu, payload(r), POISON, r->bytes, v->stream));
  }
  for (int i = 0; i < program->buffer_count; i++) {
    const struct region *r = &c->regions[i];
    if (program->buffers[i].role == CUVIL_BUFFER_OPERAND) continue;
    bool zeroed = program->buffers[i].role == CUVIL_BUFFER_ZEROED;
    CUVIL_TRY(fill_zones(v, r->base, r->bytes));
    if (r->bytes)
      CUVIL_TRY(cuvil_gpu_memset(v->gpu, payload(r), zeroed ? 0 : POISON,
                                 r->bytes, v->stream));
  }
  return CUVIL_OK;
}

static enum cuvil_status launch_guard(struct cuvil_verifier *v,
                                      struct cuvil_gpu_function *function,
                                      uint64_t bytes, void **args) {
  uint64_t blocks = (bytes + 255) / 256;
  struct cuvil_gpu_launch launch = {
      .grid = {blocks > 2048 ? 2048 : (uint32_t)blocks, 1, 1},
      .block = {256, 1, 1}};
  if (bytes == 0) return CUVIL_OK;
  return cuvil_gpu_launch(function, &launch, args, v->stream);
}

static enum cuvil_status guard_value(struct cuvil_verifier *v, uint64_t at,
                                     uint64_t bytes, int value,
                                     uint64_t counter) {
  int64_t count = (int64_t)bytes;
  void *args[] = {&at, &count, &value, &counter};
  return launch_guard(v, v->guard_value, bytes, args);
}

/* Counter i: changed bytes of inputs and of zones of operand i; those of the
 * program's own buffers follow the operands. */
static enum cuvil_status guard_region(struct cuvil_verifier *v,
                                      const struct region *r, bool zeroed,
                                      uint64_t counter) {
  uint64_t tail = payload(r) + r->bytes;
  CUVIL_TRY(guard_value(v, r->base, ZONE, ZONE_BYTE, counter));
  CUVIL_TRY(guard_value(v, tail, r->base + extent(r->bytes) - tail, ZONE_BYTE,
                        counter));
  if (!zeroed) return CUVIL_OK;
  return guard_value(v, payload(r), r->bytes, 0, counter);
}

static enum cuvil_status guard_all(struct cuvil_verifier *v,
                                   const struct cuvil_program *program,
                                   const struct check *c) {
  for (int i = 0; i < v->problem.operand_count; i++) {
    uint64_t counter = v->results + 8 * (uint64_t)i;
    const struct region *r = &v->operands[i];
    int64_t all = (int64_t)extent(r->bytes);
    uint64_t now = r->base, before = v->pristine[i];
    void *args[] = {&now, &before, &all, &counter};
    if (is_output(v, i))
      CUVIL_TRY(guard_region(v, r, false, counter));
    else
      CUVIL_TRY(launch_guard(v, v->guard_copy, (uint64_t)all, args));
  }
  uint64_t counter = v->results + 8 * CUVIL_MAX_OPERANDS;
  for (int i = 0; i < program->buffer_count; i++) {
    enum cuvil_buffer_role role = program->buffers[i].role;
    if (role == CUVIL_BUFFER_OPERAND) continue;
    CUVIL_TRY(
        guard_region(v, &c->regions[i], role == CUVIL_BUFFER_ZEROED, counter));
  }
  return CUVIL_OK;
}

static enum cuvil_status compare_all(struct cuvil_verifier *v) {
  uint64_t first = v->results + MAX_REGIONS * 8;
  for (int i = 0; i < v->problem.operand_count; i++) {
    if (!is_output(v, i)) continue;
    uint64_t addresses[] = {
        payload(&v->operands[i]), v->values[i], v->bounds[i],
        first + (uint64_t)i * sizeof(struct cuvil_compare_result),
        v->compare_scratch};
    CUVIL_TRY(
        cuvil_executable_run(v->compare[i].executable, addresses, v->stream));
  }
  return CUVIL_OK;
}

/* Puts back what a program wrote into inputs or their zones. */
static enum cuvil_status restore(struct cuvil_verifier *v,
                                 const struct check *c) {
  for (int i = 0; i < v->problem.operand_count; i++)
    if (!is_output(v, i) && c->counters[i])
      CUVIL_TRY(cuvil_gpu_copy(v->gpu, v->operands[i].base, v->pristine[i],
                               extent(v->operands[i].bytes), v->stream));
  return cuvil_gpu_stream_synchronize(v->stream);
}

/* ---- the verdict */
static void refuse(struct cuvil_verdict *out, const char *reason) {
  out->right = false;
  out->reason = reason;
}

/* What changed outside the outputs; false when nothing did. */
static bool judge_overrun(const struct cuvil_verifier *v, const struct check *c,
                          struct cuvil_verdict *out) {
  for (int i = 0; i < v->problem.operand_count; i++) {
    const struct cuvil_compare_result *r = &c->compared[i];
    if (c->counters[i]) {
      snprintf(out->detail, sizeof out->detail,
               "%llu bytes changed %s operand %s",
               (unsigned long long)c->counters[i],
               is_output(v, i) ? "around" : "in or around input",
               v->problem.operands[i].name);
      return true;
    }
    if (is_output(v, i) && r->stray) {
      snprintf(out->detail, sizeof out->detail,
               "%lld writes between the elements of operand %s",
               (long long)r->stray, v->problem.operands[i].name);
      return true;
    }
  }
  if (c->counters[CUVIL_MAX_OPERANDS] == 0) return false;
  snprintf(out->detail, sizeof out->detail,
           "%llu bytes around workspace changed, or not left zero",
           (unsigned long long)c->counters[CUVIL_MAX_OPERANDS]);
  return true;
}

/* The worse reason of two outputs stands. */
static int rank_of(const struct cuvil_compare_result *r) {
  return r->unwritten ? 3 : r->nan_count ? 2 : r->violations ? 1 : 0;
}

static void judge_values(const struct cuvil_verifier *v, const struct check *c,
                         struct cuvil_verdict *out) {
  static const char *const reasons[] = {"", "wrong", "nan", "incomplete"};
  int worst = 0;
  for (int i = 0; i < v->problem.operand_count; i++) {
    const struct cuvil_compare_result *r = &c->compared[i];
    if (!is_output(v, i)) continue;
    double l2 = r->sum_diff2 > 0 ? sqrt(r->sum_diff2 / r->sum_ref2) : 0;
    out->elements += r->elements;
    out->violations += r->violations;
    if (r->worst_ratio > out->worst_ratio) out->worst_ratio = r->worst_ratio;
    if (l2 > out->relative_l2) out->relative_l2 = l2;
    if (rank_of(r) <= worst) continue;
    worst = rank_of(r);
    refuse(out, reasons[worst]);
    snprintf(out->detail, sizeof out->detail,
             "operand %s: %lld of %lld outside the bound (%lld unwritten, %lld "
             "NaN); worst at %lld: got %.9g, expected %.9g, %.3g x the bound",
             v->problem.operands[i].name, (long long)r->violations,
             (long long)r->elements, (long long)r->unwritten,
             (long long)r->nan_count, (long long)r->worst_index, r->worst_got,
             r->worst_expected, r->worst_ratio);
  }
}

static enum cuvil_status download(struct cuvil_verifier *v, struct check *c) {
  CUVIL_TRY(cuvil_gpu_stream_synchronize(v->stream));
  CUVIL_TRY(
      cuvil_gpu_download(v->gpu, c->counters, v->results, sizeof c->counters));
  return cuvil_gpu_download(v->gpu, c->compared, v->results + MAX_REGIONS * 8,
                            sizeof c->compared);
}

static bool keeps_state(const struct cuvil_program *program) {
  for (int i = 0; i < program->buffer_count; i++)
    if (program->buffers[i].role == CUVIL_BUFFER_ZEROED) return true;
  return false;
}

enum cuvil_status cuvil_verifier_check(struct cuvil_verifier *v,
                                       const struct cuvil_program *program,
                                       struct cuvil_executable *executable,
                                       struct cuvil_verdict *out) {
  struct check c;
  memset(out, 0, sizeof *out);
  out->reason = "";
  memset(&c, 0, sizeof c);
  CUVIL_TRY(place_buffers(v, program, &c));
  CUVIL_TRY(set_up(v, program, &c));
  CUVIL_TRY(cuvil_executable_run(executable, c.addresses, v->stream));
  /* A program that keeps state between runs must run a second time. */
  if (keeps_state(program))
    CUVIL_TRY(cuvil_executable_run(executable, c.addresses, v->stream));
  CUVIL_TRY(guard_all(v, program, &c));
  CUVIL_TRY(compare_all(v));
  CUVIL_TRY(download(v, &c));
  CUVIL_TRY(restore(v, &c));
  out->right = true;
  judge_values(v, &c, out);
  if (judge_overrun(v, &c, out)) refuse(out, "overrun");
  return CUVIL_OK;
}
