/* plan.h - a compiled model: file, loader, session.
 *
 * File: magic "CUVILPLN", version, header with sizes and checksums (XXH3) of
 * each section; sections: manifest (JSON: io tensors, memory map, programs,
 * steps), cubins, weights.  The loader believes nothing before it has checked
 * magic, versions, architecture, sizes and sums (CU_ERR_VERSION_MISMATCH,
 * CU_ERR_ARCH_MISMATCH).  Written beside the target and renamed.
 */
#ifndef CUVIL_RUNTIME_PLAN_H_
#define CUVIL_RUNTIME_PLAN_H_

#include "base/dtype.h"
#include "runtime/executor.h"

#define CUVIL_PLAN_VERSION 1

enum cuvil_place { /* where a program's buffer lives when the plan runs */
                   CUVIL_PLACE_INPUT,   /* plan input `index` */
                   CUVIL_PLACE_OUTPUT,  /* plan output `index` */
                   CUVIL_PLACE_WEIGHTS, /* offset into the weights section */
                   CUVIL_PLACE_ARENA,   /* offset into the arena (activations,
                                           workspace) */
                   CUVIL_PLACE_ZEROED, /* offset into the area zeroed at load */
};
struct cuvil_binding {
  enum cuvil_place place;
  int index;
  uint64_t offset;
};
struct cuvil_plan_tensor {
  char *name; /* owned */
  enum cuvil_dtype dtype;
  int rank;
  int64_t dims[8];
  uint64_t bytes;
};
struct cuvil_plan_step {
  struct cuvil_program *program;  /* owned */
  struct cuvil_binding *bindings; /* by program buffer; owned */
  char *label, *problem, *family, *config, *origin; /* owned; origin: which
                     cache step answered, "default" when none */
  double expected_seconds; /* the winner's recorded time; 0: none */
  /* For a program with library steps: the version of that library it was
   * chosen with ("9.14.0"; NULL or "": any), and the program of our own
   * kernels that a session runs instead, saying so, where the library is
   * absent, of another version, or refuses the call.  Buffers are bound as
   * the program's are.  NULL: there is none; owned. */
  char *library_version;
  struct cuvil_program *fallback;
  struct cuvil_binding *fallback_bindings;
};
struct cuvil_plan {
  char arch[16];
  char *model, *fusion, *precision; /* owned; for people */
  int input_count, output_count;
  struct cuvil_plan_tensor *inputs, *outputs;
  int step_count;
  struct cuvil_plan_step *steps;
  uint64_t arena_bytes, zeroed_bytes, weights_bytes;
  void *weights; /* owned or mapped */
  void *mapping; /* internal */
  uint64_t mapping_bytes;
};
void cuvil_plan_destroy(struct cuvil_plan *plan);
/* Every rule that writing, reading and running rely on: each program checked,
 * each buffer bound inside its place, zeroed buffers in the zeroed area and
 * nothing else there, offsets multiples of 16 (256 is what the compiler
 * gives; 2 for operands, which may begin inside a tensor), tensors' bytes those
 * of their shape.  CU_ERR_INVALID_ARGUMENT. */
CUVIL_MUST_USE enum cuvil_status cuvil_plan_check(const struct cuvil_plan *plan,
                                                  const char *origin);
/* Every module needs its cubin.  An existing file stays as it is until the
 * new one is whole. */
CUVIL_MUST_USE enum cuvil_status cuvil_plan_write(const struct cuvil_plan *plan,
                                                  const char *path);
/* Weights stay mapped from the file until the plan is destroyed. */
CUVIL_MUST_USE enum cuvil_status cuvil_plan_read(const char *path,
                                                 struct cuvil_plan **out);

/* ---- session.c: a plan on a GPU.  One arena, one CUDA graph; run allocates
 * nothing. */
struct cuvil_session;
CUVIL_MUST_USE enum cuvil_status cuvil_session_create(
    struct cuvil_gpu *gpu, const struct cuvil_plan *plan /* borrowed */,
    struct cuvil_session **out);
void cuvil_session_destroy(struct cuvil_session *session);
/* Device addresses of the session's own io buffers. */
uint64_t cuvil_session_input(struct cuvil_session *session, int index);
uint64_t cuvil_session_output(struct cuvil_session *session, int index);
/* Uses the caller's memory (16-byte aligned, at least the tensor's bytes) for
 * an input or output from the next run on, which captures the graph anew when
 * an address has changed; address 0: the session's own buffer again. */
CUVIL_MUST_USE enum cuvil_status cuvil_session_bind(
    struct cuvil_session *session, bool output, int index, uint64_t address);
/* Launches the graph on the caller's stream.  Launches of one session follow
 * each other, on whatever streams. */
CUVIL_MUST_USE enum cuvil_status cuvil_session_run(
    struct cuvil_session *session, struct cuvil_gpu_stream *stream);
/* Each step by itself, `repeats` runs in a graph between two events:
 * seconds[step] of one run.  Inputs and arena hold garbage after it. */
CUVIL_MUST_USE enum cuvil_status cuvil_session_profile(
    struct cuvil_session *session, int repeats, double *seconds);
/* Steps that run their fallback. */
int cuvil_session_fallbacks(const struct cuvil_session *session);
int cuvil_session_graph_nodes(const struct cuvil_session *session);

#endif /* CUVIL_RUNTIME_PLAN_H_ */
