/* program.c - building a program, and the rules that every program keeps.
 *
 * Families build programs through the adders here, so that ownership and
 * hashes are right by construction.  What only the whole can tell (an argument
 * that names a buffer added later, a copy beyond its buffer) is held by
 * cuvil_program_check, which the executor asks before a device sees anything.
 */
#include "runtime/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

enum { GROWTH = 8, MAX_ITEMS = 1 << 16, MAX_OPERAND = 1024 };
#define MAX_BYTES ((uint64_t)1 << 46)

enum cuvil_status cuvil_program_create(struct cuvil_program **out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "program");
  return CUVIL_OK;
}

void cuvil_program_destroy(struct cuvil_program *program) {
  if (!program) return;
  for (int i = 0; i < program->module_count; i++) {
    free(program->modules[i].source);
    free(program->modules[i].options);
    free(program->modules[i].cubin);
  }
  for (int i = 0; i < program->step_count; i++) {
    free(program->steps[i].args);
    json_decref(program->steps[i].call);
  }
  free(program->buffers);
  free(program->modules);
  free(program->steps);
  free(program);
}

/* Room for one more item in an array that grows GROWTH at a time; the new item
 * is zeroed. */
static enum cuvil_status grow(void **array, int count, size_t item) {
  if (count % GROWTH == 0) {
    void *larger = realloc(*array, ((size_t)count + GROWTH) * item);
    if (!larger) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "program");
    *array = larger;
  }
  memset((char *)*array + (size_t)count * item, 0, item);
  return CUVIL_OK;
}

enum cuvil_status cuvil_program_add_buffer(struct cuvil_program *program,
                                           enum cuvil_buffer_role role,
                                           int operand, uint64_t bytes,
                                           int *out_index) {
  void *array = program->buffers;
  CUVIL_TRY(grow(&array, program->buffer_count, sizeof *program->buffers));
  program->buffers = array;
  struct cuvil_program_buffer *buffer =
      &program->buffers[program->buffer_count];
  buffer->role = role;
  buffer->operand = role == CUVIL_BUFFER_OPERAND ? operand : -1;
  buffer->bytes = bytes;
  if (out_index) *out_index = program->buffer_count;
  program->buffer_count++;
  return CUVIL_OK;
}

/* The three texts with their ends between them, so that moving a letter from
 * one to the next is another hash. */
static enum cuvil_status hash_module(struct cuvil_module *module) {
  struct cuvil_buf key = {0};
  const char *options = module->options ? module->options : "";
  cuvil_buf_add(&key, module->source, strlen(module->source) + 1);
  cuvil_buf_add(&key, module->arch, strlen(module->arch) + 1);
  cuvil_buf_add(&key, options, strlen(options) + 1);
  enum cuvil_status status = cuvil_buf_status(&key);
  if (status == CUVIL_OK) cuvil_hash_hex(key.data, key.size, module->hash);
  cuvil_buf_free(&key);
  return status;
}

enum cuvil_status cuvil_program_add_module(struct cuvil_program *program,
                                           const char *source, const char *arch,
                                           const char *options,
                                           int *out_index) {
  void *array = program->modules;
  CUVIL_TRY(grow(&array, program->module_count, sizeof *program->modules));
  program->modules = array;
  struct cuvil_module *module = &program->modules[program->module_count];
  if (strlen(arch) >= sizeof module->arch)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "architecture %s", arch);
  strcpy(module->arch, arch);
  module->source = strdup(source);
  module->options = options ? strdup(options) : NULL;
  enum cuvil_status status = CUVIL_OK;
  if (!module->source || (options && !module->options))
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "kernel source"));
  CUVIL_TRY_GOTO(hash_module(module));
  if (out_index) *out_index = program->module_count;
  program->module_count++;
  return CUVIL_OK;
fail:
  free(module->source);
  free(module->options);
  return status;
}

enum cuvil_status cuvil_program_add_step(struct cuvil_program *program,
                                         enum cuvil_step_kind kind,
                                         struct cuvil_step **out_step) {
  *out_step = NULL;
  void *array = program->steps;
  CUVIL_TRY(grow(&array, program->step_count, sizeof *program->steps));
  program->steps = array;
  *out_step = &program->steps[program->step_count++];
  (*out_step)->kind = kind;
  return CUVIL_OK;
}

static enum cuvil_status add_arg(struct cuvil_step *step,
                                 enum cuvil_arg_kind kind,
                                 struct cuvil_arg **out) {
  *out = NULL;
  if (step->arg_count >= CUVIL_PROGRAM_MAX_ARGS)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "kernel %s has more than %d arguments", step->entry,
                      CUVIL_PROGRAM_MAX_ARGS);
  void *array = step->args;
  CUVIL_TRY(grow(&array, step->arg_count, sizeof *step->args));
  step->args = array;
  *out = &step->args[step->arg_count++];
  (*out)->kind = kind;
  return CUVIL_OK;
}

enum cuvil_status cuvil_step_arg_buffer(struct cuvil_step *step, int buffer,
                                        uint64_t offset) {
  struct cuvil_arg *arg;
  CUVIL_TRY(add_arg(step, CUVIL_ARG_BUFFER, &arg));
  arg->buffer = buffer;
  arg->offset = offset;
  return CUVIL_OK;
}

enum cuvil_status cuvil_step_arg_i32(struct cuvil_step *step, int64_t value) {
  struct cuvil_arg *arg;
  if (value < INT32_MIN || value > INT32_MAX)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "kernel %s: argument %d is %lld, beyond 32 bits",
                      step->entry, step->arg_count, (long long)value);
  CUVIL_TRY(add_arg(step, CUVIL_ARG_I32, &arg));
  arg->value.i = value;
  return CUVIL_OK;
}

enum cuvil_status cuvil_step_arg_i64(struct cuvil_step *step, int64_t value) {
  struct cuvil_arg *arg;
  CUVIL_TRY(add_arg(step, CUVIL_ARG_I64, &arg));
  arg->value.i = value;
  return CUVIL_OK;
}

/* Kept as the float that the kernel will see, so that a stored program equals
 * the one that was timed. */
enum cuvil_status cuvil_step_arg_f32(struct cuvil_step *step, double value) {
  struct cuvil_arg *arg;
  CUVIL_TRY(add_arg(step, CUVIL_ARG_F32, &arg));
  arg->value.f = (double)(float)value;
  return CUVIL_OK;
}

enum cuvil_status cuvil_step_arg_tensor_map(
    struct cuvil_step *step, int buffer, const struct cuvil_tensor_map *map) {
  struct cuvil_arg *arg;
  CUVIL_TRY(add_arg(step, CUVIL_ARG_TENSOR_MAP, &arg));
  arg->buffer = buffer;
  arg->map = *map;
  return CUVIL_OK;
}

uint64_t cuvil_program_workspace(const struct cuvil_program *program) {
  uint64_t total = 0;
  for (int i = 0; i < program->buffer_count; i++)
    if (program->buffers[i].role != CUVIL_BUFFER_OPERAND)
      total += program->buffers[i].bytes;
  return total;
}

/* ---- the rules */

struct check {
  const struct cuvil_program *program;
  const char *origin;
  int step; /* where we are, for the message */
};

#define REFUSE(check, ...) refuse((check), __VA_ARGS__)
static enum cuvil_status refuse(const struct check *check, const char *format,
                                ...) __attribute__((format(printf, 2, 3)));
static enum cuvil_status refuse(const struct check *check, const char *format,
                                ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "%s: program step %d: %s",
                    check->origin, check->step, text);
}

static enum cuvil_status check_range(const struct check *check, int buffer,
                                     uint64_t offset, uint64_t bytes) {
  const struct cuvil_program *program = check->program;
  if (buffer < 0 || buffer >= program->buffer_count)
    return REFUSE(check, "buffer %d of %d", buffer, program->buffer_count);
  uint64_t size = program->buffers[buffer].bytes;
  if (offset > size || bytes > size - offset)
    return REFUSE(check, "%llu bytes at %llu of buffer %d with %llu",
                  (unsigned long long)bytes, (unsigned long long)offset, buffer,
                  (unsigned long long)size);
  return CUVIL_OK;
}

static bool one_of(int value, const int *allowed, int count) {
  for (int i = 0; i < count; i++)
    if (allowed[i] == value) return true;
  return false;
}

/* Limits: CUDA Driver API, cuTensorMapEncodeTiled. */
static enum cuvil_status check_map(const struct check *check,
                                   const struct cuvil_arg *arg) {
  static const int swizzles[] = {0, 32, 64, 128};
  static const int promotions[] = {0, 64, 128, 256};
  const struct cuvil_tensor_map *map = &arg->map;
  size_t element = map->dtype > 0 && map->dtype < CUVIL_DTYPE_COUNT
                       ? cuvil_dtype_size((enum cuvil_dtype)map->dtype)
                       : 0;
  if (element == 0) return REFUSE(check, "tensor map of type %d", map->dtype);
  if (map->rank < 1 || map->rank > 5)
    return REFUSE(check, "tensor map of rank %d", map->rank);
  if (!one_of(map->swizzle, swizzles, 4) ||
      !one_of(map->l2_promotion, promotions, 4))
    return REFUSE(check, "tensor map with swizzle %d, promotion %d",
                  map->swizzle, map->l2_promotion);
  uint64_t reach = 0;
  for (int i = 0; i < map->rank; i++) {
    uint64_t stride = i == 0 ? element : map->strides[i - 1];
    if (map->dims[i] < 1 || map->dims[i] > (uint64_t)1 << 32 ||
        map->box[i] < 1 || map->box[i] > 256 || map->element_strides[i] < 1 ||
        map->element_strides[i] > 8)
      return REFUSE(check, "tensor map dimension %d", i);
    if (i > 0 && (stride % 16 != 0 || stride >= (uint64_t)1 << 40))
      return REFUSE(check, "tensor map stride %llu",
                    (unsigned long long)stride);
    uint64_t span;
    if (__builtin_mul_overflow(map->dims[i] - 1, stride, &span) ||
        __builtin_add_overflow(reach, span, &reach))
      return REFUSE(check, "tensor map reaches beyond any memory");
  }
  return check_range(check, arg->buffer, arg->offset, reach + element);
}

static enum cuvil_status check_args(const struct check *check,
                                    const struct cuvil_step *step) {
  if (step->arg_count < 0 || step->arg_count > CUVIL_PROGRAM_MAX_ARGS)
    return REFUSE(check, "%d arguments", step->arg_count);
  for (int i = 0; i < step->arg_count; i++) {
    const struct cuvil_arg *arg = &step->args[i];
    switch (arg->kind) {
      case CUVIL_ARG_BUFFER:
        CUVIL_TRY(check_range(check, arg->buffer, arg->offset, 0));
        break;
      case CUVIL_ARG_TENSOR_MAP:
        CUVIL_TRY(check_map(check, arg));
        break;
      case CUVIL_ARG_I32:
        if (arg->value.i < INT32_MIN || arg->value.i > INT32_MAX)
          return REFUSE(check, "argument %d is beyond 32 bits", i);
        break;
      case CUVIL_ARG_I64:
      case CUVIL_ARG_F32:
        break;
    }
  }
  return CUVIL_OK;
}

static bool is_identifier(const char *text, size_t size) {
  size_t length = strnlen(text, size);
  if (length == 0 || length == size) return false;
  return strspn(text,
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                "0123456789_") == length;
}

static bool cluster_fits(const struct cuvil_step *step) {
  const uint32_t *cluster = step->cluster;
  if (cluster[0] == 0 && cluster[1] == 0 && cluster[2] == 0) return true;
  uint64_t blocks = 1;
  for (int i = 0; i < 3; i++) {
    if (cluster[i] < 1 || cluster[i] > 16 || step->grid[i] % cluster[i] != 0)
      return false;
    blocks *= cluster[i];
  }
  return blocks <= 16;
}

/* Limits: CUDA C++ Programming Guide, Technical Specifications per Compute
 * Capability; the widest of any architecture. */
static enum cuvil_status check_launch(const struct check *check,
                                      const struct cuvil_step *step) {
  static const uint32_t grid_most[] = {INT32_MAX, 65535, 65535};
  static const uint32_t block_most[] = {1024, 1024, 64};
  if (step->module < 0 || step->module >= check->program->module_count)
    return REFUSE(check, "module %d of %d", step->module,
                  check->program->module_count);
  if (!is_identifier(step->entry, sizeof step->entry))
    return REFUSE(check, "the kernel's name is not a name");
  for (int i = 0; i < 3; i++)
    if (step->grid[i] < 1 || step->grid[i] > grid_most[i] ||
        step->block[i] < 1 || step->block[i] > block_most[i])
      return REFUSE(check, "grid %u,%u,%u of blocks %u,%u,%u", step->grid[0],
                    step->grid[1], step->grid[2], step->block[0],
                    step->block[1], step->block[2]);
  uint64_t threads = (uint64_t)step->block[0] * step->block[1] * step->block[2];
  if (threads > 1024 || step->shared_bytes > 256 * 1024)
    return REFUSE(check, "%llu threads with %u bytes of shared memory",
                  (unsigned long long)threads, step->shared_bytes);
  if (!cluster_fits(step))
    return REFUSE(check, "cluster %u,%u,%u", step->cluster[0], step->cluster[1],
                  step->cluster[2]);
  return check_args(check, step);
}

static enum cuvil_status check_library(const struct check *check,
                                       const struct cuvil_step *step) {
  if (strncmp(step->library, "cublaslt", sizeof step->library) != 0 &&
      strncmp(step->library, "cudnn", sizeof step->library) != 0)
    return REFUSE(check, "the library is neither cublaslt nor cudnn");
  if (!json_is_object(step->call)) return REFUSE(check, "no library call");
  if (step->binding_count < 0 || step->binding_count > 8)
    return REFUSE(check, "%d bindings", step->binding_count);
  for (int i = 0; i < step->binding_count; i++)
    CUVIL_TRY(check_range(check, step->bindings[i], 0, 0));
  return CUVIL_OK;
}

static enum cuvil_status check_step(const struct check *check,
                                    const struct cuvil_step *step) {
  switch (step->kind) {
    case CUVIL_STEP_LAUNCH:
      return check_launch(check, step);
    case CUVIL_STEP_LIBRARY:
      return check_library(check, step);
    case CUVIL_STEP_MEMSET:
      if (step->value < 0 || step->value > 255)
        return REFUSE(check, "memset to %d", step->value);
      return check_range(check, step->buffer, step->offset, step->bytes);
    case CUVIL_STEP_COPY:
      CUVIL_TRY(check_range(check, step->source_buffer, step->source_offset,
                            step->bytes));
      return check_range(check, step->buffer, step->offset, step->bytes);
  }
  return REFUSE(check, "kind %d", (int)step->kind);
}

static bool is_arch(const char *text, size_t size) {
  size_t length = strnlen(text, size);
  if (length == size || strncmp(text, "sm_", 3) != 0) return false;
  size_t digits = strspn(text + 3, "0123456789");
  size_t rest = length - 3 - digits;
  return digits >= 2 && digits <= 3 &&
         (rest == 0 || (rest == 1 && strchr("af", text[length - 1])));
}

enum cuvil_status cuvil_program_check(const struct cuvil_program *program,
                                      const char *origin) {
  struct check check = {program, origin, 0};
  if (program->buffer_count > MAX_ITEMS || program->module_count > MAX_ITEMS ||
      program->step_count > MAX_ITEMS)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "%s: the program is too large",
                      origin);
  for (int i = 0; i < program->buffer_count; i++) {
    const struct cuvil_program_buffer *buffer = &program->buffers[i];
    bool operand = buffer->role == CUVIL_BUFFER_OPERAND;
    if (buffer->bytes > MAX_BYTES ||
        (operand && (buffer->operand < 0 || buffer->operand >= MAX_OPERAND)))
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "%s: program buffer %d: operand %d, %llu bytes", origin,
                        i, buffer->operand, (unsigned long long)buffer->bytes);
  }
  for (int i = 0; i < program->module_count; i++) {
    const struct cuvil_module *module = &program->modules[i];
    if (!is_arch(module->arch, sizeof module->arch) ||
        strnlen(module->hash, CUVIL_HASH_SIZE) != CUVIL_HASH_SIZE - 1 ||
        strspn(module->hash, "0123456789abcdef") != CUVIL_HASH_SIZE - 1)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "%s: program module %d: architecture or hash is not "
                        "one",
                        origin, i);
  }
  for (check.step = 0; check.step < program->step_count; check.step++)
    CUVIL_TRY(check_step(&check, &program->steps[check.step]));
  return CUVIL_OK;
}
