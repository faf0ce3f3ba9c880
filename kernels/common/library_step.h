/* library_step.h - what the library-backed families share: which epilogues a
 * library has, the library step, and the rest of an epilogue as our own
 * pointwise kernel after it. */
#ifndef CUVIL_KERNELS_COMMON_LIBRARY_STEP_H_
#define CUVIL_KERNELS_COMMON_LIBRARY_STEP_H_

#include "kernels/common/emit.h"

/* out = activation(alpha acc + bias + residual), each part optional. */
enum cuvil_activation { CUVIL_ACT_NONE, CUVIL_ACT_RELU, CUVIL_ACT_GELU_TANH };
struct cuvil_chain {
  int bias;     /* operand along the output's channel dimension; -1: none */
  int residual; /* operand laid out like the output; -1: none */
  enum cuvil_activation activation;
  double alpha; /* 1: none */
};
/* True when the whole epilogue is such a chain: bias along dimension
 * `channel`, bias and residual of the output's type, no extra output. */
bool cuvil_chain_match(const struct cuvil_problem *problem, int channel,
                       struct cuvil_chain *out);

/* What the library offers for `call` (taken; NULL is out of memory), each read
 * into a point behind out[*count], until there are `limit`.  read: false leaves
 * one out; the point comes with the space's defaults.  A library that has
 * nothing for the call offers none, which is no error. */
CUVIL_MUST_USE enum cuvil_status cuvil_library_list(
    const struct cuvil_query *query, struct cuvil_gpu *gpu, const char *library,
    json_t *call, bool fused,
    bool (*read)(const struct cuvil_query *query, const json_t *call,
                 bool fused, struct cuvil_config *out),
    int limit, struct cuvil_config *out, int *count);

/* Adds the workspace buffer and a library step that takes over `call` (freed
 * on failure).  bindings: program buffers in the order of gpu/library.h, the
 * workspace left out: it is appended. */
CUVIL_MUST_USE enum cuvil_status cuvil_library_step(
    struct cuvil_program *program, const char *library, json_t *call,
    const int *bindings, int count, uint64_t workspace);

/* As cuvil_library_step, after `put` has written the point's algorithm into the
 * call (false: out of memory). */
CUVIL_MUST_USE enum cuvil_status cuvil_library_step_of(
    struct cuvil_emission *e, const struct cuvil_config *config,
    const char *library, json_t *call,
    bool (*put)(const struct cuvil_space *space,
                const struct cuvil_config *config, json_t *call),
    const int *bindings, int count);

/* Adds the problem's epilogue as a pointwise kernel that reads the accumulator
 * from program buffer `acc` (f32, packed, in the output's order of
 * dimensions). */
CUVIL_MUST_USE enum cuvil_status cuvil_library_epilogue(
    const struct cuvil_query *query, struct cuvil_program *program,
    const int *buffer_of_operand, int acc);

/* Values of an open space, by name; for choices(). */
void cuvil_library_set(const struct cuvil_space *space,
                       struct cuvil_config *config, const char *name,
                       const json_t *object, const char *key, int64_t fallback);

/* ---- an engine of cuDNN as a point of an open space with the parameters
 * workspace, id (-1: the library chooses) and knob0 to knob19 (type * 2^32 +
 * value; -1: none).
 * Puts the point's engine into the call; false when memory is short. */
bool cuvil_cudnn_put_engine(const struct cuvil_space *space,
                            const struct cuvil_config *config, json_t *call);
/* The engine of a call into the point, whose other parameters stay; false:
 * more knobs than the space has places for. */
bool cuvil_cudnn_read_engine(const struct cuvil_space *space,
                             const json_t *call, struct cuvil_config *config);

#endif /* CUVIL_KERNELS_COMMON_LIBRARY_STEP_H_ */
