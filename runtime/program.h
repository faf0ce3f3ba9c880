/* program.h - what runs: the one structure that families emit, the measuring
 * worker times, the plan stores and the runtime executes.
 *
 * A program is a list of steps over a list of buffers.  Buffers are named by
 * role: an operand of the problem, or workspace.  Addresses are put in when it
 * runs, so one program serves every place in memory.
 */
#ifndef CUVIL_RUNTIME_PROGRAM_H_
#define CUVIL_RUNTIME_PROGRAM_H_

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"

#define CUVIL_PROGRAM_MAX_ARGS 48

enum cuvil_buffer_role {
  CUVIL_BUFFER_OPERAND,   /* `operand`: index in the problem */
  CUVIL_BUFFER_WORKSPACE, /* contents undefined at the start */
  CUVIL_BUFFER_ZEROED,    /* zero at the start; the program leaves it zero
                             again at its end (semaphores) */
};
struct cuvil_program_buffer {
  enum cuvil_buffer_role role;
  int operand;
  uint64_t bytes;
};

enum cuvil_arg_kind {
  CUVIL_ARG_BUFFER,     /* 8 bytes: address of buffer + offset */
  CUVIL_ARG_I32,        /* value.i */
  CUVIL_ARG_I64,        /* value.i */
  CUVIL_ARG_F32,        /* value.f */
  CUVIL_ARG_TENSOR_MAP, /* 128 bytes, 64-aligned: CUtensorMap of a buffer */
};
/* cuTensorMapEncodeTiled's arguments; dims fastest first. */
struct cuvil_tensor_map {
  int dtype; /* enum cuvil_dtype */
  int rank;
  uint64_t dims[5];
  uint64_t strides[4]; /* bytes, of dims 1.. */
  uint32_t box[5];
  uint32_t element_strides[5];
  int swizzle;      /* bytes: 0, 32, 64, 128 */
  int l2_promotion; /* bytes: 0, 64, 128, 256 */
};
struct cuvil_arg {
  enum cuvil_arg_kind kind;
  int buffer;
  uint64_t offset;
  union {
    int64_t i;
    double f;
  } value;
  struct cuvil_tensor_map map;
};

struct cuvil_module {
  char *source;  /* CUDA C for NVRTC; owned; NULL in a loaded plan */
  char arch[16]; /* "sm_90a": passed to NVRTC as -arch */
  char *options; /* further NVRTC options, space-separated; owned; or NULL */
  char hash[CUVIL_HASH_SIZE]; /* of source, arch and options: the cubin's key */
  void *cubin;                /* owned; NULL until compiled */
  size_t cubin_size;
};

enum cuvil_step_kind {
  CUVIL_STEP_LAUNCH,
  CUVIL_STEP_LIBRARY,
  CUVIL_STEP_MEMSET, /* buffer, offset, bytes, value (one byte) */
  CUVIL_STEP_COPY,   /* source_buffer+source_offset -> buffer+offset, bytes */
};
struct cuvil_step {
  enum cuvil_step_kind kind;
  /* launch */
  int module;
  char entry[64];
  uint32_t grid[3], block[3], cluster[3]; /* cluster 0: none */
  uint32_t shared_bytes;
  bool programmatic; /* programmatic dependent launch: the kernel executes
                        griddepcontrol.wait before it touches memory that an
                        earlier step wrote */
  int arg_count;
  struct cuvil_arg *args; /* owned */
  /* library: `library` is "cublaslt" or "cudnn"; `call` is the JSON object
   * that gpu/ turns into descriptors, algorithm or engine and knobs included;
   * `bindings` are the buffers it names, in the order that its schema says. */
  char library[16];
  json_t *call; /* owned */
  int binding_count;
  int bindings[8];
  /* memset, copy */
  int buffer, source_buffer;
  uint64_t offset, source_offset, bytes;
  int value;
};

struct cuvil_program {
  int buffer_count;
  struct cuvil_program_buffer *buffers;
  int module_count;
  struct cuvil_module *modules;
  int step_count;
  struct cuvil_step *steps;
};

CUVIL_MUST_USE enum cuvil_status cuvil_program_create(
    struct cuvil_program **out);
void cuvil_program_destroy(struct cuvil_program *program);
/* Each returns the new index in *out_index (may be NULL). */
CUVIL_MUST_USE enum cuvil_status cuvil_program_add_buffer(
    struct cuvil_program *program, enum cuvil_buffer_role role, int operand,
    uint64_t bytes, int *out_index);
/* Copies source and options; computes the hash. */
CUVIL_MUST_USE enum cuvil_status cuvil_program_add_module(
    struct cuvil_program *program, const char *source, const char *arch,
    const char *options, int *out_index);
/* A zeroed step of that kind; borrowed until the next add. */
CUVIL_MUST_USE enum cuvil_status cuvil_program_add_step(
    struct cuvil_program *program, enum cuvil_step_kind kind,
    struct cuvil_step **out_step);
CUVIL_MUST_USE enum cuvil_status cuvil_step_arg_buffer(struct cuvil_step *step,
                                                       int buffer,
                                                       uint64_t offset);
CUVIL_MUST_USE enum cuvil_status cuvil_step_arg_i32(struct cuvil_step *step,
                                                    int64_t value);
CUVIL_MUST_USE enum cuvil_status cuvil_step_arg_i64(struct cuvil_step *step,
                                                    int64_t value);
CUVIL_MUST_USE enum cuvil_status cuvil_step_arg_f32(struct cuvil_step *step,
                                                    double value);
CUVIL_MUST_USE enum cuvil_status cuvil_step_arg_tensor_map(
    struct cuvil_step *step, int buffer, const struct cuvil_tensor_map *map);
/* Sum of bytes of workspace, zeroed buffers. */
uint64_t cuvil_program_workspace(const struct cuvil_program *program);

/* Holds every rule that a device could only answer with a fault: indices in
 * range, ranges inside their buffers, launch dimensions within what any
 * architecture allows, names that can be names.  CU_ERR_INVALID_ARGUMENT says
 * `origin`, the step and the rule.  The executor and the plan reader ask. */
CUVIL_MUST_USE enum cuvil_status cuvil_program_check(
    const struct cuvil_program *program, const char *origin);

/* Everything but sources and cubins (modules by hash); inverse of each other.
 */
CUVIL_MUST_USE enum cuvil_status cuvil_program_to_json(
    const struct cuvil_program *program, json_t **out);
/* Checks every index, size and name: a plan file is not believed. */
CUVIL_MUST_USE enum cuvil_status cuvil_program_from_json(
    const json_t *json, const char *origin, struct cuvil_program **out);

#endif /* CUVIL_RUNTIME_PROGRAM_H_ */
