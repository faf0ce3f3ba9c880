/* family.h - a kernel family: one way to compute problems of a kind.
 *
 * A family is a const stateless struct.  Library-backed and naive families
 * stand beside our own as equals.  kernels/kernels.inc lists them all:
 * registry, compile test, GPU test, benchmark and --list-families include that
 * one list.  Adding a family is a folder, a space file and a line there.
 */
#ifndef CUVIL_KERNELS_FAMILY_H_
#define CUVIL_KERNELS_FAMILY_H_

#include "base/arch.h"
#include "gpu/gpu.h"
#include "problem/problem.h"
#include "runtime/program.h"
#include "spaces/space.h"

/* What a point costs, known before it is compiled.  Cheap: it runs for every
 * point. */
struct cuvil_derived {
  int threads;         /* per block, of the main kernel */
  int shared_bytes;    /* per block, static and dynamic: exact */
  int registers_least; /* per thread: a true lower bound (accumulators) */
  int64_t blocks;      /* of the grid */
  int cluster;         /* blocks; 1 where none */
  double waves;        /* blocks / (SMs x blocks per SM) */
  uint64_t workspace_bytes;
};

/* All that a family's functions are asked about. */
struct cuvil_query {
  const struct cuvil_problem *problem;
  const struct cuvil_arch *arch;
  const struct cuvil_space *space; /* the family's own */
};

struct cuvil_family {
  const char *id;      /* frozen text, stored in databases */
  int version;         /* bump when the emitted code changes meaning or speed */
  const char *about;   /* one line for --list-families */
  unsigned kinds;      /* 1u << enum cuvil_kind, or-ed */
  const char *library; /* "cublaslt", "cudnn"; NULL: our own kernel */
  bool reference;      /* naive: verifies others, never wins */
  /* A no is silent, no error. */
  bool (*applicable)(const struct cuvil_problem *problem,
                     const struct cuvil_arch *arch);
  /* What the compiler uses untuned; valid for every applicable problem. */
  void (*default_config)(const struct cuvil_query *query,
                         struct cuvil_config *out);
  /* false: this point cannot be (the rules say why where they can). */
  bool (*derive)(const struct cuvil_query *query,
                 const struct cuvil_config *config, struct cuvil_derived *out);
  /* Seconds, for ordering only; never stored as a time. */
  double (*predict)(const struct cuvil_query *query,
                    const struct cuvil_config *config,
                    const struct cuvil_derived *derived);
  /* CUDA C for NVRTC and steps; needs no GPU.  Extents are kernel arguments
   * unless a parameter of the space bakes them in. */
  enum cuvil_status (*emit)(const struct cuvil_query *query,
                            const struct cuvil_config *config,
                            struct cuvil_program **out);
  /* Library families only: the points are what the library on this machine
   * offers, its first choice first, at most `limit`; their spaces list no
   * values.  Needs a GPU. */
  enum cuvil_status (*choices)(const struct cuvil_query *query,
                               struct cuvil_gpu *gpu, int limit,
                               struct cuvil_config *out, int *out_count);
};

/* ---- registry.c */
int cuvil_family_count(void);
const struct cuvil_family *cuvil_family_at(int index);
const struct cuvil_family *cuvil_family_find(const char *id); /* or NULL */
/* Test binaries put planted families in front of the registry. */
void cuvil_family_plant(const struct cuvil_family *const *families, int count);
/* The family's space, parsed once from the embedded file and kept.  Not
 * thread-safe the first time: call before starting threads. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_space(
    const struct cuvil_family *family, const struct cuvil_space **out);
/* Rules and derive together: true when the point may be compiled.  *out_rule:
 * index of the rule that removed it, -1 when `derive` did (or none). */
bool cuvil_family_allows(const struct cuvil_family *family,
                         const struct cuvil_query *query,
                         const struct cuvil_config *config, bool heuristics,
                         struct cuvil_derived *out_derived, int *out_rule);
/* The family and point that an untuned compile uses: the first own family of
 * the list that is applicable. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_fallback(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    const struct cuvil_family **out_family, struct cuvil_config *out_config);
/* What the compiler or loader needs before a program can run: every module
 * compiled, from the cache where it is there.  cubin_dir NULL: no cache. */
CUVIL_MUST_USE enum cuvil_status cuvil_program_compile(
    struct cuvil_program *program, const char *cubin_dir,
    struct cuvil_compile_result *out_last /* may be NULL */);

/* ---- common/reference_program.c
 * The problem computed in fp64 by the naive template, with its error bound.
 * Buffers: every input and side operand under its index; for each output
 * operand o its values (f64) under operand o, its bounds (f64) under operand
 * CUVIL_MAX_OPERANDS + o. */
CUVIL_MUST_USE enum cuvil_status cuvil_reference_program(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    struct cuvil_program **out);
/* Compares on the device: buffers operand 0 = got (dtype), 1 = values, 2 =
 * bounds, 3 = result (struct of 8 int64/double, see the .c). */
CUVIL_MUST_USE enum cuvil_status cuvil_compare_program(
    enum cuvil_dtype dtype, int64_t elements, const struct cuvil_arch *arch,
    struct cuvil_program **out);

/* ---- common/expression.c: the epilogue as CUDA C */
/* How a family's template names things for the generated epilogue. */
struct cuvil_emit_names {
  const char *acc; /* float expression of the accumulator */
  /* Coordinate of each problem dimension, as int expressions, by dim index;
   * NULL for a dimension that the epilogue cannot need (reduced). */
  const char *coordinate[CUVIL_MAX_DIMS];
  /* By operand index.  A side input: a float expression of its value at this
   * point, where the template has loaded it itself (in vectors); NULL: the
   * generated statements load it by its coordinates.  It stays among the
   * parameters (side_<operand name>) either way. */
  const char *value[CUVIL_MAX_OPERANDS];
};
/* Declares kernel parameters for side operands and extra outputs
 * ("const __half *__restrict__ side_bias, ...") and for run-time constants,
 * each with a leading comma; */
void cuvil_emit_epilogue_parameters(const struct cuvil_problem *problem,
                                    struct cuvil_buf *out);
/* ... statements for one point; the value of `out` ends in the float variable
 * `result`; extra outputs are stored by the statements themselves. */
void cuvil_emit_epilogue_body(const struct cuvil_problem *problem,
                              const struct cuvil_emit_names *names,
                              struct cuvil_buf *out);
/* ... and the matching arguments of the launch step, in the same order.
 * buffer_of_operand[i]: program buffer of operand i. */
CUVIL_MUST_USE enum cuvil_status cuvil_emit_epilogue_arguments(
    const struct cuvil_problem *problem, const int *buffer_of_operand,
    struct cuvil_step *step);

#endif /* CUVIL_KERNELS_FAMILY_H_ */
