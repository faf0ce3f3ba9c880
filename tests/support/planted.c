/* planted.c - eight kernels that fail, from one template.
 *
 * The one that hangs spins until the device's clock says that a minute has
 * passed, so that it ends by itself if killing its process does not end it.
 * The one that compiles for ever asks the front end for 2^22 different
 * templates.
 */
#include "tests/support/planted.h"

#include <string.h>

enum { PLANTED = 8, THREADS = 256 };

const struct planted planted_list[] = {{"planted_hang", "timeout"},
                                       {"planted_illegal", "crash"},
                                       {"planted_wrong", "wrong"},
                                       {"planted_half", "incomplete"},
                                       {"planted_memory", "memory"},
                                       {"planted_error", "compile"},
                                       {"planted_endless", "compile_timeout"},
                                       {"planted_nan", "nan"},
                                       {NULL, NULL}};

static const char start[] =
    "typedef unsigned short u16;\n"
    "static __device__ float widen(u16 h) {\n"
    "  float f;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n"
    "  return f;\n"
    "}\n"
    "static __device__ u16 narrow(float f) {\n"
    "  u16 h;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));\n"
    "  return h;\n"
    "}\n"
    "template <int N, int P> struct tree {\n"
    "  static __device__ int leaf() {\n"
    "    return tree<N - 1, 2 * P>::leaf() + tree<N - 1, 2 * P + 1>::leaf();\n"
    "  }\n"
    "};\n"
    "template <int P> struct tree<0, P> {\n"
    "  static __device__ int leaf() { return P; }\n"
    "};\n"
    "extern \"C\" __global__ void planted(const u16 *a, const u16 *b, u16 *c,\n"
    "                                     int m, int n, int k) {\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i >= m * n) return;\n"
    "  float sum = 0;\n"
    "  for (int j = 0; j < k; j++)\n"
    "    sum += widen(a[i / n * k + j]) * widen(b[i % n * k + j]);\n";
static const char end[] =
    "  c[i] = narrow(sum);\n"
    "}\n";

/* What is wrong with each, in the order of the list. */
static const char *const faults[PLANTED] = {
    "  unsigned long long from, now;\n"
    "  asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(from));\n"
    "  do asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now));\n"
    "  while (now - from < 60000000000ull);\n",
    "  *(volatile int *)16 = i;\n",
    "  sum *= 1.25f;\n",
    "  if (i >= m * n / 2) return;\n",
    "",
    "  sum += this_is_not_declared;\n",
    "  sum += tree<22, 1>::leaf();\n",
    "  if (i == 77) sum = sum / 0.0f - sum / 0.0f;\n"};

static int index_of(const struct cuvil_query *query) {
  for (int i = 0; i < PLANTED; i++)
    if (strcmp(planted_list[i].id, query->space->family) == 0) return i;
  return 0;
}

static bool applicable(const struct cuvil_problem *problem,
                       const struct cuvil_arch *arch) {
  (void)arch;
  return problem->operands[CUVIL_GEMM_A].dtype == CUVIL_F16 &&
         problem->operand_count == 3;
}

static void default_config(const struct cuvil_query *query,
                           struct cuvil_config *out) {
  cuvil_space_default(query->space, out);
}

static bool derive(const struct cuvil_query *query,
                   const struct cuvil_config *config,
                   struct cuvil_derived *out) {
  (void)query;
  (void)config;
  out->threads = THREADS;
  out->registers_least = 8;
  out->blocks = 1;
  out->cluster = 1;
  return true;
}

static double predict(const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_derived *derived) {
  (void)query;
  (void)config;
  (void)derived;
  return 1e-6;
}

static enum cuvil_status add_steps(const struct cuvil_query *query, int fault,
                                   struct cuvil_program *program) {
  const struct cuvil_problem *p = query->problem;
  struct cuvil_buf source = {0};
  struct cuvil_step *step = NULL;
  int module = -1, buffers[3], unused = -1;
  int64_t points = p->dims[0].extent * p->dims[1].extent;
  cuvil_buf_printf(&source, "%s%s%s", start, faults[fault], end);
  CUVIL_TRY(cuvil_buf_status(&source));
  enum cuvil_status status = cuvil_program_add_module(
      program, source.data, query->arch->nvrtc_name, NULL, &module);
  cuvil_buf_free(&source);
  CUVIL_TRY(status);
  for (int i = 0; i < 3; i++)
    CUVIL_TRY(cuvil_program_add_buffer(program, CUVIL_BUFFER_OPERAND, i,
                                       (uint64_t)cuvil_operand_bytes(p, i),
                                       &buffers[i]));
  if (strcmp(planted_list[fault].reason, "memory") == 0)
    CUVIL_TRY(cuvil_program_add_buffer(program, CUVIL_BUFFER_WORKSPACE, -1,
                                       (uint64_t)1 << 42, &unused));
  CUVIL_TRY(cuvil_program_add_step(program, CUVIL_STEP_LAUNCH, &step));
  step->module = module;
  strcpy(step->entry, "planted");
  step->grid[0] = (uint32_t)((points + THREADS - 1) / THREADS);
  step->grid[1] = step->grid[2] = 1;
  step->block[0] = THREADS;
  step->block[1] = step->block[2] = 1;
  for (int i = 0; i < 3; i++)
    CUVIL_TRY(cuvil_step_arg_buffer(step, buffers[i], 0));
  for (int i = 0; i < 3; i++)
    CUVIL_TRY(cuvil_step_arg_i32(step, p->dims[i].extent));
  return CUVIL_OK;
}

static enum cuvil_status emit(const struct cuvil_query *query,
                              const struct cuvil_config *config,
                              struct cuvil_program **out) {
  (void)config;
  CUVIL_TRY(cuvil_program_create(out));
  enum cuvil_status status = add_steps(query, index_of(query), *out);
  if (status == CUVIL_OK) return CUVIL_OK;
  cuvil_program_destroy(*out);
  *out = NULL;
  return status;
}

#define SPACE(id)                                                      \
  "{\"space\": 1, \"family\": \"" id                                   \
  "\", \"parameters\": [{\"name\": "                                   \
  "\"x\", \"values\": [0], \"default\": 0, \"about\": \"nothing\"}], " \
  "\"rules\": []}"
#define FAMILY(name)                                                        \
  {                                                                         \
    .id = name, .version = 1, .about = "fails on purpose",                  \
    .kinds = 1u << CUVIL_KIND_GEMM, .applicable = applicable,               \
    .default_config = default_config, .derive = derive, .predict = predict, \
    .emit = emit, .space_text = SPACE(name)                                 \
  }

static const struct cuvil_family families[PLANTED] = {
    FAMILY("planted_hang"),    FAMILY("planted_illegal"),
    FAMILY("planted_wrong"),   FAMILY("planted_half"),
    FAMILY("planted_memory"),  FAMILY("planted_error"),
    FAMILY("planted_endless"), FAMILY("planted_nan")};

void planted_plant(void) {
  static const struct cuvil_family *list[PLANTED];
  for (int i = 0; i < PLANTED; i++)
    list[i] = &families[i];
  cuvil_family_plant(list, PLANTED);
}
