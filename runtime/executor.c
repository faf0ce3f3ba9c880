/* executor.c - puts addresses into a program and enqueues its steps.
 *
 * All that can be done once is done in create: modules loaded, functions
 * found, constants laid out, library calls prepared.  Running writes the
 * addresses into the argument slots and enqueues; tensor maps are encoded
 * again only when their buffer has moved, so that a graph captured over
 * several rotations of operands pays for each once.
 */
#include "runtime/executor.h"

#include <stdlib.h>
#include <string.h>

/* One kernel argument as the driver will copy it. */
struct slot {
  _Alignas(64) unsigned char bytes[128];
  uint64_t map_address; /* the address that a tensor map was encoded for */
};

struct prepared {
  struct cuvil_gpu_function *function;
  struct cuvil_gpu_launch launch;
  struct slot *slots; /* owned, one an argument */
  void *args[CUVIL_PROGRAM_MAX_ARGS];
  struct cuvil_library_call *call; /* owned */
};

struct cuvil_executable {
  struct cuvil_gpu *gpu;
  const struct cuvil_program *program;
  struct cuvil_gpu_module **modules;
  struct prepared *steps;
};

/* Machine code runs within its major architecture from its own minor one on;
 * with a letter, on its very own only (CUDA C++ Programming Guide, "Binary
 * Compatibility"). */
static bool arch_runs_on(const char *name, int cc) {
  char *end;
  long code = strtol(name + 3, &end, 10);
  if (*end == 'a') return code == cc;
  return code / 10 == cc / 10 && code <= cc;
}

static enum cuvil_status load_modules(struct cuvil_executable *executable) {
  const struct cuvil_program *program = executable->program;
  const struct cuvil_arch *arch = cuvil_gpu_arch(executable->gpu);
  for (int i = 0; i < program->module_count; i++) {
    const struct cuvil_module *module = &program->modules[i];
    if (!arch_runs_on(module->arch, arch->cc))
      return CUVIL_FAIL(CU_ERR_ARCH_MISMATCH,
                        "a kernel was compiled for %s; this GPU is %s",
                        module->arch, arch->name);
    if (!module->cubin)
      return CUVIL_FAIL(CU_ERR_INTERNAL,
                        "module %s was not compiled before it was run",
                        module->hash);
    CUVIL_TRY(cuvil_gpu_module_load(executable->gpu, module->cubin,
                                    module->cubin_size,
                                    &executable->modules[i]));
  }
  return CUVIL_OK;
}

static void lay_out_constant(const struct cuvil_arg *arg, struct slot *slot) {
  int32_t i32 = (int32_t)arg->value.i;
  float f32 = (float)arg->value.f;
  switch (arg->kind) {
    case CUVIL_ARG_I32:
      memcpy(slot->bytes, &i32, sizeof i32);
      break;
    case CUVIL_ARG_I64:
      memcpy(slot->bytes, &arg->value.i, sizeof arg->value.i);
      break;
    case CUVIL_ARG_F32:
      memcpy(slot->bytes, &f32, sizeof f32);
      break;
    case CUVIL_ARG_BUFFER:
    case CUVIL_ARG_TENSOR_MAP:
      break; /* when it runs */
  }
}

static enum cuvil_status prepare_launch(struct cuvil_executable *executable,
                                        const struct cuvil_step *step,
                                        struct prepared *out) {
  uint32_t cluster = step->cluster[0] * step->cluster[1] * step->cluster[2];
  CUVIL_TRY(cuvil_gpu_module_function(executable->modules[step->module],
                                      step->entry, step->shared_bytes, cluster,
                                      &out->function));
  memcpy(out->launch.grid, step->grid, sizeof step->grid);
  memcpy(out->launch.block, step->block, sizeof step->block);
  memcpy(out->launch.cluster, step->cluster, sizeof step->cluster);
  out->launch.shared_bytes = step->shared_bytes;
  out->launch.programmatic = step->programmatic;
  if (step->arg_count == 0) return CUVIL_OK;
  size_t size = (size_t)step->arg_count * sizeof *out->slots;
  out->slots = aligned_alloc(_Alignof(struct slot), size);
  if (!out->slots) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "kernel arguments");
  memset(out->slots, 0, size);
  for (int i = 0; i < step->arg_count; i++) {
    out->args[i] = out->slots[i].bytes;
    lay_out_constant(&step->args[i], &out->slots[i]);
  }
  return CUVIL_OK;
}

static enum cuvil_status prepare(struct cuvil_executable *executable) {
  const struct cuvil_program *program = executable->program;
  for (int i = 0; i < program->step_count; i++) {
    const struct cuvil_step *step = &program->steps[i];
    struct prepared *prepared = &executable->steps[i];
    if (step->kind == CUVIL_STEP_LAUNCH)
      CUVIL_TRY(prepare_launch(executable, step, prepared));
    if (step->kind == CUVIL_STEP_LIBRARY)
      CUVIL_TRY(cuvil_library_prepare(executable->gpu, step->library,
                                      step->call, &prepared->call));
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_executable_create(struct cuvil_gpu *gpu,
                                          const struct cuvil_program *program,
                                          struct cuvil_executable **out) {
  *out = NULL;
  CUVIL_TRY(cuvil_program_check(program, "program"));
  struct cuvil_executable *executable = calloc(1, sizeof *executable);
  if (!executable) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "executable");
  enum cuvil_status status = CUVIL_OK;
  executable->gpu = gpu;
  executable->program = program;
  executable->modules =
      calloc((size_t)program->module_count + 1, sizeof *executable->modules);
  executable->steps =
      calloc((size_t)program->step_count + 1, sizeof *executable->steps);
  if (!executable->modules || !executable->steps)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "executable"));
  CUVIL_TRY_GOTO(load_modules(executable));
  CUVIL_TRY_GOTO(prepare(executable));
  *out = executable;
  return CUVIL_OK;
fail:
  cuvil_executable_destroy(executable);
  return status;
}

void cuvil_executable_destroy(struct cuvil_executable *executable) {
  if (!executable) return;
  const struct cuvil_program *program = executable->program;
  for (int i = 0; executable->steps && i < program->step_count; i++) {
    free(executable->steps[i].slots);
    cuvil_library_call_destroy(executable->steps[i].call);
  }
  for (int i = 0; executable->modules && i < program->module_count; i++)
    cuvil_gpu_module_unload(executable->modules[i]);
  free(executable->steps);
  free(executable->modules);
  free(executable);
}

static enum cuvil_status fill_slot(struct cuvil_gpu *gpu,
                                   const struct cuvil_arg *arg,
                                   const uint64_t *addresses,
                                   struct slot *slot) {
  if (arg->kind != CUVIL_ARG_BUFFER && arg->kind != CUVIL_ARG_TENSOR_MAP)
    return CUVIL_OK;
  uint64_t address = addresses[arg->buffer] + arg->offset;
  if (arg->kind == CUVIL_ARG_BUFFER) {
    memcpy(slot->bytes, &address, sizeof address);
    return CUVIL_OK;
  }
  if (slot->map_address == address) return CUVIL_OK;
  const struct cuvil_tensor_map *map = &arg->map;
  slot->map_address = 0;
  CUVIL_TRY(cuvil_gpu_tensor_map_encode(
      gpu, slot->bytes, address, map->dtype, map->rank, map->dims, map->strides,
      map->box, map->element_strides, map->swizzle, map->l2_promotion));
  slot->map_address = address;
  return CUVIL_OK;
}

static enum cuvil_status run_launch(struct cuvil_executable *executable,
                                    const struct cuvil_step *step,
                                    struct prepared *prepared,
                                    const uint64_t *addresses,
                                    struct cuvil_gpu_stream *stream) {
  for (int i = 0; i < step->arg_count; i++)
    CUVIL_TRY(fill_slot(executable->gpu, &step->args[i], addresses,
                        &prepared->slots[i]));
  return cuvil_gpu_launch(prepared->function, &prepared->launch, prepared->args,
                          stream);
}

static enum cuvil_status run_library(const struct cuvil_step *step,
                                     struct prepared *prepared,
                                     const uint64_t *addresses,
                                     struct cuvil_gpu_stream *stream) {
  uint64_t bound[8];
  for (int i = 0; i < step->binding_count; i++)
    bound[i] = addresses[step->bindings[i]];
  return cuvil_library_run(prepared->call, bound, step->binding_count, stream);
}

static enum cuvil_status run_step(struct cuvil_executable *executable,
                                  int index, const uint64_t *addresses,
                                  struct cuvil_gpu_stream *stream) {
  const struct cuvil_step *step = &executable->program->steps[index];
  struct prepared *prepared = &executable->steps[index];
  switch (step->kind) {
    case CUVIL_STEP_LAUNCH:
      return run_launch(executable, step, prepared, addresses, stream);
    case CUVIL_STEP_LIBRARY:
      return run_library(step, prepared, addresses, stream);
    case CUVIL_STEP_MEMSET:
      return cuvil_gpu_memset(executable->gpu,
                              addresses[step->buffer] + step->offset,
                              step->value, step->bytes, stream);
    case CUVIL_STEP_COPY:
      return cuvil_gpu_copy(
          executable->gpu, addresses[step->buffer] + step->offset,
          addresses[step->source_buffer] + step->source_offset, step->bytes,
          stream);
  }
  return CUVIL_FAIL(CU_ERR_INTERNAL, "step kind %d", (int)step->kind);
}

enum cuvil_status cuvil_executable_run(struct cuvil_executable *executable,
                                       const uint64_t *addresses,
                                       struct cuvil_gpu_stream *stream) {
  const struct cuvil_program *program = executable->program;
  for (int i = 0; i < program->buffer_count; i++)
    if (program->buffers[i].bytes > 0 &&
        (addresses[i] == 0 || addresses[i] % 16 != 0))
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "buffer %d of the program is at 0x%llx; it must be "
                        "memory aligned to 16 bytes",
                        i, (unsigned long long)addresses[i]);
  for (int i = 0; i < program->step_count; i++)
    CUVIL_TRY(run_step(executable, i, addresses, stream));
  return CUVIL_OK;
}
