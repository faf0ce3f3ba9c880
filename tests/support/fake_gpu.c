/* fake_gpu.c - see the header. */
#include "fake_gpu.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
  void (*reset)(int, int, int);
  int (*calls)(void), (*live)(void), (*programmatic)(void);
  const char *(*failed_call)(void);
} fake;

static void *symbol(void *handle, const char *name) {
  void *pointer = dlsym(handle, name);
  if (!pointer) {
    fprintf(stderr, "fake driver without %s\n", name);
    abort();
  }
  return pointer;
}

/* A file beside the test program as an environment variable's value. */
static void point(const char *variable, const char *file) {
  char path[PATH_MAX + 32];
  ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (n <= 0) abort();
  path[n] = 0;
  strcpy(strrchr(path, '/') + 1, file);
  setenv(variable, path, 1);
}

void fake_gpu_use_libraries(void) {
  point("CUVIL_CUBLASLT", "fake_cublaslt.so");
  point("CUVIL_CUDNN", "fake_cudnn.so");
}

void fake_gpu_use(void) {
  point("CUVIL_CUDA_DRIVER", "fake_cuda.so");
  /* No clocks, and no half a gigabyte of libraries, from this machine. */
  setenv("CUVIL_NVML", "/nonexistent", 1);
  setenv("CUVIL_CUBLASLT", "/nonexistent", 1);
  setenv("CUVIL_CUDNN", "/nonexistent", 1);
  const char *path = getenv("CUVIL_CUDA_DRIVER");
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  *(void **)&fake.reset = symbol(handle, "fake_cuda_reset");
  *(void **)&fake.calls = symbol(handle, "fake_cuda_calls");
  *(void **)&fake.live = symbol(handle, "fake_cuda_live");
  *(void **)&fake.programmatic = symbol(handle, "fake_cuda_programmatic");
  *(void **)&fake.failed_call = symbol(handle, "fake_cuda_failed_call");
}

void fake_gpu_reset(int fail_call, int result, int compute_capability) {
  fake.reset(fail_call, result, compute_capability);
}

int fake_gpu_calls(void) {
  return fake.calls();
}

int fake_gpu_live(void) {
  return fake.live();
}

int fake_gpu_programmatic(void) {
  return fake.programmatic();
}

const char *fake_gpu_failed_call(void) {
  return fake.failed_call();
}

/* ---- the plan */

static void need(enum cuvil_status status) {
  if (status == CUVIL_OK) return;
  fprintf(stderr, "sample plan: %s\n", cuvil_last_error());
  abort();
}

static void *need_memory(void *memory) {
  if (!memory) abort();
  return memory;
}

static struct cuvil_plan_step *add_step(struct cuvil_plan *plan,
                                        const char *label) {
  struct cuvil_plan_step *step = &plan->steps[plan->step_count++];
  need(cuvil_program_create(&step->program));
  step->bindings = need_memory(calloc(8, sizeof *step->bindings));
  step->label = strdup(label);
  step->problem = strdup("pointwise/1 n=64");
  step->family = strdup("fake");
  step->config = strdup("");
  step->origin = strdup("exact");
  step->expected_seconds = 1.5e-6;
  return step;
}

static int add_buffer(struct cuvil_plan_step *step, enum cuvil_buffer_role role,
                      enum cuvil_place place, uint64_t offset, uint64_t bytes) {
  int index;
  need(cuvil_program_add_buffer(step->program, role,
                                step->program->buffer_count, bytes, &index));
  step->bindings[index] = (struct cuvil_binding){place, 0, offset};
  return index;
}

/* The smallest ELF file, with room to make two of them different. */
static void add_module(struct cuvil_program *program, const char *source) {
  int index;
  Elf64_Ehdr head;
  need(cuvil_program_add_module(program, source, "sm_90a", NULL, &index));
  struct cuvil_module *module = &program->modules[index];
  module->cubin_size = sizeof head + strlen(source);
  module->cubin = need_memory(malloc(module->cubin_size));
  memset(&head, 0, sizeof head);
  memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  memcpy(module->cubin, &head, sizeof head);
  memcpy((char *)module->cubin + sizeof head, source, strlen(source));
}

static struct cuvil_step *add_launch(struct cuvil_program *program,
                                     const char *entry, bool programmatic) {
  struct cuvil_step *launch;
  need(cuvil_program_add_step(program, CUVIL_STEP_LAUNCH, &launch));
  strcpy(launch->entry, entry);
  for (int i = 0; i < 3; i++)
    launch->grid[i] = launch->block[i] = 1;
  launch->programmatic = programmatic;
  return launch;
}

/* A launch that moves 256 bytes, as its kernel's arguments say. */
static void add_fake_copy(struct cuvil_program *program, int to, int from,
                          bool programmatic) {
  struct cuvil_step *launch = add_launch(program, "fake_copy", programmatic);
  need(cuvil_step_arg_buffer(launch, to, 0));
  need(cuvil_step_arg_buffer(launch, from, 0));
  need(cuvil_step_arg_i64(launch, 256));
}

static void add_tensors(struct cuvil_plan *plan) {
  plan->inputs = need_memory(calloc(1, sizeof *plan->inputs));
  plan->outputs = need_memory(calloc(1, sizeof *plan->outputs));
  plan->input_count = plan->output_count = 1;
  struct cuvil_plan_tensor tensor = {
      .dtype = CUVIL_F32, .rank = 2, .dims = {4, 16}, .bytes = 256};
  plan->inputs[0] = plan->outputs[0] = tensor;
  plan->inputs[0].name = strdup("x");
  plan->outputs[0].name = strdup("y");
}

/* input -> arena by kernel; a memset of workspace before a kernel with every
 * kind of argument; two programmatic kernels; arena -> output by copy. */
static void add_steps(struct cuvil_plan *plan) {
  struct cuvil_plan_step *step = add_step(plan, "first");
  int from = add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_INPUT, 0, 256);
  int to = add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_ARENA, 0, 256);
  add_module(step->program, "one");
  add_fake_copy(step->program, to, from, true);

  step = add_step(plan, "middle");
  struct cuvil_step *memset_step;
  int weights =
      add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_WEIGHTS, 512, 512);
  int space =
      add_buffer(step, CUVIL_BUFFER_WORKSPACE, CUVIL_PLACE_ARENA, 1024, 512);
  add_buffer(step, CUVIL_BUFFER_ZEROED, CUVIL_PLACE_ZEROED, 0, 256);
  add_module(step->program, "two");
  need(cuvil_program_add_step(step->program, CUVIL_STEP_MEMSET, &memset_step));
  memset_step->buffer = space;
  memset_step->bytes = 512;
  memset_step->value = 0xAB;
  struct cuvil_step *launch = add_launch(step->program, "nothing", true);
  launch->grid[0] = launch->cluster[0] = 16;
  launch->cluster[1] = launch->cluster[2] = 1;
  launch->shared_bytes = 100000;
  struct cuvil_tensor_map map = {.dtype = CUVIL_F16,
                                 .rank = 1,
                                 .dims = {256},
                                 .box = {64},
                                 .element_strides = {1}};
  need(cuvil_step_arg_tensor_map(launch, weights, &map));
  need(cuvil_step_arg_buffer(launch, space, 0));
  need(cuvil_step_arg_i32(launch, 7));
  need(cuvil_step_arg_f32(launch, 0.5));

  step = add_step(plan, "kernels");
  from = add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_ARENA, 0, 256);
  to = add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_ARENA, 512, 256);
  add_module(step->program, "one");
  add_launch(step->program, "nothing", false);
  add_fake_copy(step->program, to, from, true);

  step = add_step(plan, "last");
  struct cuvil_step *copy;
  from = add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_ARENA, 512, 256);
  to = add_buffer(step, CUVIL_BUFFER_OPERAND, CUVIL_PLACE_OUTPUT, 0, 256);
  need(cuvil_program_add_step(step->program, CUVIL_STEP_COPY, &copy));
  copy->buffer = to;
  copy->source_buffer = from;
  copy->bytes = 256;
}

struct cuvil_plan *fake_gpu_plan(void) {
  struct cuvil_plan *plan = need_memory(calloc(1, sizeof *plan));
  strcpy(plan->arch, "sm_90");
  plan->model = strdup("sample.onnx");
  plan->fusion = strdup("medium");
  plan->precision = strdup("model");
  plan->arena_bytes = 2048;
  plan->zeroed_bytes = 256;
  plan->weights_bytes = 1024;
  unsigned char *weights = need_memory(malloc(1024));
  for (int i = 0; i < 1024; i++)
    weights[i] = (unsigned char)(i * 7);
  plan->weights = weights;
  plan->steps = need_memory(calloc(8, sizeof *plan->steps));
  add_tensors(plan);
  add_steps(plan);
  return plan;
}
