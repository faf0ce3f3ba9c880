/* emulate_test.c - kernels run on the CPU against the reference, no GPU.
 *
 * What a family emits is CUDA C; with a prefix (tests/support/emulator.hpp) it
 * is C++ too.  The few PTX statements of types.cuh are replaced by plain C; a
 * kernel with others (tensor cores, asynchronous copies) is left to the GPU
 * tests.  Outputs lie between red zones.  CUVIL_TEST_FULL=1 takes every
 * problem and more points.
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/family.h"
#include "problem/reference.h"
#include "tests/support/problems.h"

enum { ZONE = 4096, ZONE_BYTE = 0xa5, SEED = 11 };

/* ---- the PTX that has a plain meaning */
static const struct {
  const char *ptx, *plain;
} replacements[] = {
    {"asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(v.bits));",
     "r = emulated_f16_to_f32(v.bits);"},
    {"asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r.bits) : \"f\"(v));",
     "r.bits = emulated_f32_to_f16(v);"},
    {"asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r.bits) : \"f\"(v));",
     "r.bits = emulated_f32_to_bf16(v);"},
    {"asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(v[1]), "
     "\"f\"(v[0]));",
     "r = emulated_f32_to_f16(v[0]) | (u32)emulated_f32_to_f16(v[1]) << 16;"},
    {"asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(v[1]), "
     "\"f\"(v[0]));",
     "r = emulated_f32_to_bf16(v[0]) | (u32)emulated_f32_to_bf16(v[1]) << 16;"},
    {"asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(x), \"f\"(y));",
     "r = nan_min(x, y);"},
    {"asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(x), \"f\"(y));",
     "r = nan_max(x, y);"},
    {"asm volatile(\"griddepcontrol.launch_dependents;\");", ""},
    {"asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");", ""},
};

/* False: it holds PTX that only a GPU understands. */
static bool translate(const char *source, struct cuvil_buf *out) {
  while (*source) {
    const char *next = strstr(source, "asm");
    if (!next) break;
    size_t i = 0;
    for (; i < sizeof replacements / sizeof *replacements; i++)
      if (strncmp(next, replacements[i].ptx, strlen(replacements[i].ptx)) == 0)
        break;
    cuvil_buf_add(out, source, (size_t)(next - source));
    if (i == sizeof replacements / sizeof *replacements) {
      if (strncmp(next, "asm(", 4) == 0 || strncmp(next, "asm ", 4) == 0)
        return false;
      cuvil_buf_puts(out, "asm");
      source = next + 3;
      continue;
    }
    cuvil_buf_puts(out, replacements[i].plain);
    source = next + strlen(replacements[i].ptx);
  }
  cuvil_buf_puts(out, source);
  return true;
}

/* ---- a kernel as a shared object */
typedef int (*emulate_fn)(const uint32_t *grid, const uint32_t *block,
                          void **args, int count);

static emulate_fn load_kernel(const struct cuvil_module *module,
                              const char *entry, void **out_handle) {
  const char *tmp = getenv("CUVIL_TEST_TMP");
  char base[256], command[1024];
  struct cuvil_buf text = {0};
  if (cuvil_file_read("tests/support/emulator.hpp", &text) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  if (!translate(module->source, &text)) {
    cuvil_buf_free(&text);
    return NULL;
  }
  cuvil_buf_printf(&text, "EMULATE(%s, %d)\n", entry,
                   strstr(module->source, "__syncthreads") != NULL ||
                       strstr(module->source, "__shfl") != NULL);
  snprintf(base, sizeof base, "%s/emulated_%s_%s", tmp ? tmp : "/tmp",
           module->hash, entry);
  snprintf(command, sizeof command, "%s.cpp", base);
  assert_int_equal(cuvil_file_write_atomic(command, text.data, text.size),
                   CUVIL_OK);
  cuvil_buf_free(&text);
  /* What the GPU would fault on, or give anything for, is a trap here. */
  snprintf(command, sizeof command,
           "g++ -std=c++17 -O1 -w -shared -fPIC -fsanitize=alignment,bounds,"
           "shift,integer-divide-by-zero,signed-integer-overflow "
           "-fsanitize-undefined-trap-on-error -o %s.so %s.cpp",
           base, base);
  if (system(command) != 0) fail_msg("%s failed", command);
  snprintf(command, sizeof command, "%s.so", base);
  *out_handle = dlopen(command, RTLD_NOW | RTLD_LOCAL);
  if (!*out_handle) fail_msg("%s", dlerror());
  *(void **)dlsym(*out_handle, "emulated_f16_to_f32") =
      (void *)(uintptr_t)cuvil_f16_to_f32;
  *(void **)dlsym(*out_handle, "emulated_f32_to_f16") =
      (void *)(uintptr_t)cuvil_f32_to_f16;
  *(void **)dlsym(*out_handle, "emulated_f32_to_bf16") =
      (void *)(uintptr_t)cuvil_f32_to_bf16;
  return (emulate_fn)(uintptr_t)dlsym(*out_handle, "emulate");
}

/* ---- a program over host memory */
struct memory {
  unsigned char *base[64];
  uint64_t bytes[64];
  int count;
};

static void *payload(const struct memory *m, int buffer) {
  return m->base[buffer] + ZONE;
}

static void allocate(struct memory *m, uint64_t bytes) {
  size_t size = (size_t)(ZONE + bytes + ZONE + 63) / 64 * 64;
  unsigned char *base = aligned_alloc(64, size);
  assert_non_null(base);
  memset(base, ZONE_BYTE, size);
  m->base[m->count] = base;
  m->bytes[m->count++] = bytes;
}

static void release(struct memory *m) {
  for (int i = 0; i < m->count; i++)
    free(m->base[i]);
}

static bool zones_are_whole(const struct memory *m, int buffer) {
  const unsigned char *base = m->base[buffer];
  for (int i = 0; i < ZONE; i++)
    if (base[i] != ZONE_BYTE || base[ZONE + m->bytes[buffer] + i] != ZONE_BYTE)
      return false;
  return true;
}

static bool run_launch(const struct cuvil_program *program,
                       const struct cuvil_step *step, const struct memory *m) {
  void *handle, *args[CUVIL_PROGRAM_MAX_ARGS];
  union {
    void *pointer;
    int32_t i32;
    int64_t i64;
    float f32;
  } slots[CUVIL_PROGRAM_MAX_ARGS];
  emulate_fn emulate =
      load_kernel(&program->modules[step->module], step->entry, &handle);
  if (!emulate) return false;
  for (int i = 0; i < step->arg_count; i++) {
    const struct cuvil_arg *arg = &step->args[i];
    args[i] = &slots[i];
    if (arg->kind == CUVIL_ARG_BUFFER)
      slots[i].pointer = (char *)payload(m, arg->buffer) + arg->offset;
    else if (arg->kind == CUVIL_ARG_I32)
      slots[i].i32 = (int32_t)arg->value.i;
    else if (arg->kind == CUVIL_ARG_I64)
      slots[i].i64 = arg->value.i;
    else if (arg->kind == CUVIL_ARG_F32)
      slots[i].f32 = (float)arg->value.f;
    else
      fail_msg("an argument that cannot be emulated");
  }
  int parameters = emulate(step->grid, step->block, args, step->arg_count);
  if (parameters != 0)
    fail_msg("%s has %d parameters, the step %d arguments", step->entry,
             parameters, step->arg_count);
  dlclose(handle);
  return true;
}

/* False: not every step can be emulated. */
static bool run_program(const struct cuvil_program *program,
                        const struct memory *m) {
  for (int i = 0; i < program->step_count; i++) {
    const struct cuvil_step *s = &program->steps[i];
    if (s->kind == CUVIL_STEP_MEMSET)
      memset((char *)payload(m, s->buffer) + s->offset, s->value,
             (size_t)s->bytes);
    else if (s->kind != CUVIL_STEP_LAUNCH || !run_launch(program, s, m))
      return false;
  }
  return true;
}

/* ---- a problem's operands and what is right */
struct bench {
  struct cuvil_problem problem;
  void *inputs[CUVIL_MAX_OPERANDS];
  double *values[CUVIL_MAX_OPERANDS], *bounds[CUVIL_MAX_OPERANDS];
};

static bool is_output(const struct cuvil_problem *p, int operand) {
  return operand < p->operand_count &&
         p->operands[operand].role == CUVIL_ROLE_OUTPUT;
}

static void set_bench(struct bench *b, const char *text) {
  memset(b, 0, sizeof *b);
  struct cuvil_problem *p = &b->problem;
  if (cuvil_problem_parse(text, p) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  for (int i = 0; i < p->operand_count; i++) {
    size_t elements = (size_t)cuvil_operand_elements(p, i);
    if (is_output(p, i)) {
      b->values[i] = malloc(elements * sizeof(double) + 1);
      b->bounds[i] = malloc(elements * sizeof(double) + 1);
    } else {
      b->inputs[i] = malloc((size_t)cuvil_operand_bytes(p, i) + 1);
      cuvil_problem_random(p, i, SEED, b->inputs[i]);
    }
  }
  if (cuvil_problem_reference(p, (const void *const *)b->inputs, b->values,
                              b->bounds, 1) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
}

static void clear_bench(struct bench *b) {
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++) {
    free(b->inputs[i]);
    free(b->values[i]);
    free(b->bounds[i]);
  }
}

static void place(const struct bench *b, const struct cuvil_program *program,
                  struct memory *m) {
  m->count = 0;
  for (int i = 0; i < program->buffer_count; i++) {
    const struct cuvil_program_buffer *buffer = &program->buffers[i];
    allocate(m, buffer->bytes);
    bool input = buffer->role == CUVIL_BUFFER_OPERAND &&
                 buffer->operand < CUVIL_MAX_OPERANDS &&
                 !is_output(&b->problem, buffer->operand);
    if (input)
      memcpy(payload(m, i), b->inputs[buffer->operand], buffer->bytes);
    else
      memset(payload(m, i), buffer->role == CUVIL_BUFFER_ZEROED ? 0 : 0xff,
             buffer->bytes);
  }
}

static void check_memory(const struct bench *b,
                         const struct cuvil_program *program,
                         const struct memory *m, const char *what) {
  for (int i = 0; i < program->buffer_count; i++) {
    int operand = program->buffers[i].operand;
    if (!zones_are_whole(m, i)) fail_msg("%s: overrun of buffer %d", what, i);
    if (program->buffers[i].role != CUVIL_BUFFER_OPERAND) continue;
    if (operand < CUVIL_MAX_OPERANDS && !is_output(&b->problem, operand))
      assert_memory_equal(payload(m, i), b->inputs[operand],
                          program->buffers[i].bytes);
  }
}

static void check_outputs(const struct bench *b,
                          const struct cuvil_program *program,
                          const struct memory *m, const char *what) {
  struct cuvil_comparison c;
  for (int i = 0; i < program->buffer_count; i++) {
    int operand = program->buffers[i].operand;
    if (program->buffers[i].role != CUVIL_BUFFER_OPERAND ||
        !is_output(&b->problem, operand))
      continue;
    cuvil_compare(b->problem.operands[operand].dtype, payload(m, i),
                  b->values[operand], b->bounds[operand],
                  cuvil_operand_elements(&b->problem, operand), &c);
    if (c.violations)
      fail_msg("%s: %s: %lld of %lld wrong, at %lld got %g, expected %g (%g x)",
               what, b->problem.operands[operand].name, (long long)c.violations,
               (long long)c.elements, (long long)c.worst_index, c.worst_got,
               c.worst_expected, c.worst_ratio);
  }
}

static int run_point(const struct bench *b, const struct cuvil_family *f,
                     const struct cuvil_query *q,
                     const struct cuvil_config *config, const char *text) {
  struct cuvil_program *program;
  struct cuvil_buf what = {0};
  struct memory m;
  cuvil_buf_printf(&what, "%s {", f->id);
  cuvil_config_print(q->space, config, &what);
  cuvil_buf_printf(&what, "} %s", text);
  if (f->emit(q, config, &program) != CUVIL_OK)
    fail_msg("%s: %s", cuvil_buf_text(&what), cuvil_last_error());
  place(b, program, &m);
  bool ran = run_program(program, &m);
  if (ran) {
    check_memory(b, program, &m, cuvil_buf_text(&what));
    check_outputs(b, program, &m, cuvil_buf_text(&what));
  }
  release(&m);
  cuvil_program_destroy(program);
  cuvil_buf_free(&what);
  return ran;
}

static bool full(void) {
  const char *text = getenv("CUVIL_TEST_FULL");
  return text && *text == '1';
}

/* Default and random points of a family; how many ran. */
static int run_family(const char *id, int every, int points) {
  const struct cuvil_family *f = cuvil_family_find(id);
  struct cuvil_rng rng = {3};
  int number = 0, ran = 0;
  assert_non_null(f);
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct bench b;
    struct cuvil_query q = {&b.problem, cuvil_arch_find("sm_90"), NULL};
    struct cuvil_config config;
    assert_int_equal(cuvil_problem_parse(*text, &b.problem), CUVIL_OK);
    if (!(f->kinds & (1u << b.problem.kind)) ||
        !f->applicable(&b.problem, q.arch))
      continue;
    if (!full() && number++ % every != 0) continue;
    set_bench(&b, *text);
    assert_int_equal(cuvil_family_space(f, &q.space), CUVIL_OK);
    f->default_config(&q, &config);
    ran += run_point(&b, f, &q, &config, *text);
    for (int i = 0, tries = 0; i < (full() ? 6 : points) && tries < 300;
         tries++) {
      cuvil_space_point(
          q.space, cuvil_rng_below(&rng, cuvil_space_size(q.space)), &config);
      if (!cuvil_family_allows(f, &q, &config, false, NULL, NULL)) continue;
      ran += run_point(&b, f, &q, &config, *text);
      i++;
    }
    clear_bench(&b);
  }
  return ran;
}

static void naive(void **state) {
  (void)state;
  assert_true(run_family("gemm_naive", 9, 0) >= 1);
  assert_true(run_family("conv_naive", 6, 0) >= 1);
  assert_true(run_family("pool_naive", 4, 0) >= 1);
  assert_true(run_family("reduce_naive", 6, 0) >= 1);
  assert_true(run_family("pointwise_naive", 7, 0) >= 1);
  assert_true(run_family("attention_naive", 1, 0) >= 4);
  assert_true(run_family("norm_naive", 2, 0) >= 4);
  assert_true(run_family("gather_naive", 1, 0) >= 3);
}
static void conv_generic(void **state) {
  (void)state;
  assert_true(run_family("conv_generic", 1, 2) >= 3);
}
static void conv_depthwise(void **state) {
  (void)state;
  assert_true(run_family("conv_depthwise", 3, 1) >= 2);
}
static void norm_row(void **state) {
  (void)state;
  assert_true(run_family("norm_row", 3, 1) >= 6);
}
static void gather(void **state) {
  (void)state;
  assert_true(run_family("gather", 2, 1) >= 2);
}
static void pool(void **state) {
  (void)state;
  assert_true(run_family("pool", 3, 1) >= 3);
}
static void reduce(void **state) {
  (void)state;
  assert_true(run_family("reduce", 3, 1) >= 3);
}
static void pointwise(void **state) {
  (void)state;
  assert_true(run_family("pointwise", 5, 1) >= 3);
}
static void transpose(void **state) {
  (void)state;
  assert_true(run_family("transpose", 3, 1) >= 3);
}

/* The GPU's reference gives the CPU's values and bounds. */
static void references_agree(void **state) {
  int number = 0;
  (void)state;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_program *program;
    struct bench b;
    struct memory m;
    assert_int_equal(cuvil_problem_parse(*text, &b.problem), CUVIL_OK);
    bool rows = b.problem.kind > CUVIL_KIND_POINTWISE;
    if (!full() && number++ % (rows ? 3 : 12) != 0) continue;
    set_bench(&b, *text);
    assert_int_equal(
        cuvil_reference_program(&b.problem, cuvil_arch_find("sm_90"), &program),
        CUVIL_OK);
    place(&b, program, &m);
    assert_true(run_program(program, &m));
    check_memory(&b, program, &m, *text);
    for (int i = 0; i < program->buffer_count; i++) {
      int operand = program->buffers[i].operand;
      bool bound = operand >= CUVIL_MAX_OPERANDS;
      if (bound) operand -= CUVIL_MAX_OPERANDS;
      if (!is_output(&b.problem, operand)) continue;
      const double *got = payload(&m, i);
      const double *cpu = bound ? b.bounds[operand] : b.values[operand];
      for (int64_t j = 0; j < cuvil_operand_elements(&b.problem, operand);
           j++) {
        if (!(b.bounds[operand][j] >= 0)) {
          if (bound) assert_true(got[j] != got[j]);
          continue;
        }
        double slack = bound ? 1e-3 * cpu[j] : 1e-3 * b.bounds[operand][j];
        if (!(got[j] == cpu[j] || (got[j] > cpu[j] - slack - 1e-30 &&
                                   got[j] < cpu[j] + slack + 1e-30)))
          fail_msg("%s: %s %lld: %.17g, CPU %.17g", *text,
                   bound ? "bound" : "value", (long long)j, got[j], cpu[j]);
      }
    }
    release(&m);
    cuvil_program_destroy(program);
    clear_bench(&b);
  }
}

/* The comparison kernel counts what cuvil_compare counts. */
static void comparison_agrees(void **state) {
  enum { COUNT = 1000 };
  float got[COUNT];
  double values[COUNT], bounds[COUNT];
  struct cuvil_compare_result r;
  struct cuvil_comparison cpu;
  struct cuvil_program *program;
  struct memory m = {.count = 0};
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    values[i] = i * 0.5;
    bounds[i] = 0.25;
    got[i] = (float)(values[i] + (i % 9 == 4 ? 0.1 : 0));
  }
  got[17] += 1;            /* wrong */
  got[900] -= 2;           /* worst but the infinite ones */
  got[30] = got[31] = NAN; /* NaN, and one that was asked for */
  values[31] = (double)NAN;
  bounds[31] = 0;
  memset(&got[40], 0xff, sizeof got[40]); /* unwritten */
  memset(&got[50], 0xff, sizeof got[50]); /* a gap, left alone */
  bounds[50] = bounds[51] = (double)NAN;  /* a gap, written */
  bounds[60] = (double)INFINITY;
  got[60] = -1e30f; /* anything goes */
  assert_int_equal(cuvil_compare_program(CUVIL_F32, COUNT,
                                         cuvil_arch_find("sm_90"), &program),
                   CUVIL_OK);
  for (int i = 0; i < program->buffer_count; i++)
    allocate(&m, program->buffers[i].bytes);
  memcpy(payload(&m, 0), got, sizeof got);
  memcpy(payload(&m, 1), values, sizeof values);
  memcpy(payload(&m, 2), bounds, sizeof bounds);
  assert_true(run_program(program, &m));
  memcpy(&r, payload(&m, 3), sizeof r);
  cuvil_compare(CUVIL_F32, got, values, bounds, COUNT, &cpu);
  assert_int_equal(r.elements, COUNT - 2);
  assert_int_equal(r.elements, cpu.elements);
  assert_int_equal(r.violations, 4);
  assert_int_equal(r.violations, cpu.violations);
  assert_int_equal(r.nan_count, 1);
  assert_int_equal(r.unwritten, 1);
  assert_int_equal(r.stray, 1);
  assert_int_equal(r.worst_index, cpu.worst_index);
  for (int i = 0; i < program->buffer_count; i++)
    assert_true(zones_are_whole(&m, i));
  release(&m);
  cuvil_program_destroy(program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(naive),
      cmocka_unit_test(conv_generic),
      cmocka_unit_test(conv_depthwise),
      cmocka_unit_test(norm_row),
      cmocka_unit_test(gather),
      cmocka_unit_test(pool),
      cmocka_unit_test(reduce),
      cmocka_unit_test(pointwise),
      cmocka_unit_test(transpose),
      cmocka_unit_test(references_agree),
      cmocka_unit_test(comparison_agrees),
  };
  return cmocka_run_group_tests_name("emulate", tests, NULL, NULL);
}
