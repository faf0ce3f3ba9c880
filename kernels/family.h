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
  /* The space itself, for families planted by tests; NULL: the embedded file
   * spaces/<id>.json. */
  const char *space_text;
};

/* ---- registry.c */
int cuvil_family_count(void);
const struct cuvil_family *cuvil_family_at(int index);
const struct cuvil_family *cuvil_family_find(const char *id); /* or NULL */
/* Test binaries put planted families in front of the registry. */
void cuvil_family_plant(const struct cuvil_family *const *families, int count);
/* The family's space, parsed once from the embedded file and kept for the life
 * of the process.  Any thread may ask. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_space(
    const struct cuvil_family *family, const struct cuvil_space **out);
/* Rules and derive together: true when the point may be compiled.  *out_rule:
 * index of the rule that removed it, -1 when `derive` did (or none), -2 when a
 * rule cannot be evaluated (a fault of the space file; message set).  Names a
 * rule may use: parameters, the problem's extents, size_<operand> (bytes of an
 * element, of every operand), group stride_h stride_w, the fields of
 * cuvil_derived, arch.*. */
bool cuvil_family_allows(const struct cuvil_family *family,
                         const struct cuvil_query *query,
                         const struct cuvil_config *config, bool heuristics,
                         struct cuvil_derived *out_derived, int *out_rule);
/* Visits the points that no rule cuts which can be asked before derive, hard
 * and heuristic (cuvil_space_walk): cheap where cuvil_family_allows for every
 * point of a space is not.  The visited are still to be asked it. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_cut(
    const struct cuvil_query *query,
    enum cuvil_status (*visit)(void *user, uint64_t rank,
                               const struct cuvil_config *config),
    void *user);
/* The same with hard rules only. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_cut_hard(
    const struct cuvil_query *query,
    enum cuvil_status (*visit)(void *user, uint64_t rank,
                               const struct cuvil_config *config),
    void *user);
/* cuvil_rule_print with the problem's names. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_rule(
    const struct cuvil_query *query, int rule, struct cuvil_buf *out,
    uint32_t *out_params, enum cuvil_rule_form *out_form);
/* The family and point that an untuned compile uses: the first own family of
 * the list that is applicable; a reference family where no other is. */
CUVIL_MUST_USE enum cuvil_status cuvil_family_fallback(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    const struct cuvil_family **out_family, struct cuvil_config *out_config);
/* ---- compile.c
 * What the compiler or loader needs before a program can run: every module
 * compiled, from the cache where it is there.  cubin_dir NULL: no cache.
 * *out_last sums the modules up: most registers, stack and static shared
 * memory, spills and seconds added (a cached cubin reports what its compile
 * took); `cubin` is NULL (the modules own them), `log` the last compiler log,
 * NULL when every module came from the cache.  Free it with
 * cuvil_compile_result_free.  A module over CU_ERR_KERNEL_COMPILE leaves the
 * log in *out_last too. */
CUVIL_MUST_USE enum cuvil_status cuvil_program_compile(
    struct cuvil_program *program, const char *cubin_dir,
    struct cuvil_compile_result *out_last /* may be NULL */);

/* ---- common/reference_program.c
 * The problem computed in fp64 by the naive template, with its error bound.
 * Buffers: every input and side operand under its index; for each output
 * operand o its values (f64) under operand o, its bounds (f64) under operand
 * CUVIL_MAX_OPERANDS + o; cuvil_operand_elements doubles each.  Storage that
 * no element of the problem lies in (gaps of given strides) gets the bound
 * NaN. */
CUVIL_MUST_USE enum cuvil_status cuvil_reference_program(
    const struct cuvil_problem *problem, const struct cuvil_arch *arch,
    struct cuvil_program **out);

/* What a comparison on the device finds; downloaded as it is. */
struct cuvil_compare_result {
  int64_t elements;    /* compared: all but gaps */
  int64_t violations;  /* outside their bound, NaN included */
  int64_t nan_count;   /* violations that are NaN and not poison */
  int64_t unwritten;   /* violations whose bytes are still 0xff */
  int64_t stray;       /* gaps whose bytes are not 0xff any more */
  int64_t worst_index; /* where error / bound is largest; -1: none compared */
  double worst_ratio, worst_got, worst_expected;
  double sum_diff2, sum_ref2; /* of finite pairs; relative L2 is
                                 sqrt(sum_diff2 / sum_ref2) */
  int64_t unused;             /* a whole number of 16 bytes: results stand in
                                 an array, and a buffer is aligned to 16 */
};
_Static_assert(sizeof(struct cuvil_compare_result) % 16 == 0,
               "results in an array must each be a buffer");
/* Compares on the device an output that was filled with 0xff bytes before it
 * was written.  Buffers: operand 0 = got (of dtype), 1 = values, 2 = bounds,
 * 3 = one struct cuvil_compare_result; and workspace. */
CUVIL_MUST_USE enum cuvil_status cuvil_compare_program(
    enum cuvil_dtype dtype, int64_t elements, const struct cuvil_arch *arch,
    struct cuvil_program **out);

/* ---- common/expression.c: the epilogue as CUDA C
 *
 * What a template gets (cuvil_emit_epilogue), to be put after types.cuh and
 * operators.cuh (or checked.cuh) and before the template:
 *
 *   #define EPILOGUE_PARAMETERS , const f16 * s_bias, float sk0
 *   #define EPILOGUE_ARGUMENTS , s_bias, sk0
 *   value_t epilogue(value_t acc, i64 at, int i_m, int i_n EPILOGUE_PARAMETERS)
 *   template <int V> void epilogue_vector(float (&acc)[V], i64 at, int i_m,
 *                                         int i_n EPILOGUE_PARAMETERS)
 *
 * A kernel appends EPILOGUE_PARAMETERS to its own parameters and passes
 * EPILOGUE_ARGUMENTS on; its launch step ends in what
 * cuvil_emit_epilogue_arguments adds.  `at`: the point's element offset in the
 * main output's storage (used for every operand laid out like the output).
 * i_<dim>: coordinates, one for each dimension of the main output in the order
 * of problem->dims (gemm: i_m, i_n; conv: i_n, i_k, i_p, i_q whatever the
 * layout).  What is not used costs nothing once inlined, so pass them all.
 * epilogue returns the value of `out`, which the caller stores; extra outputs
 * it stores itself.  epilogue_vector does V (a power of two) consecutive
 * elements along the output's fastest dimension in place: `at` and that
 * dimension's coordinate are multiples of V, all V lie inside.  Where the
 * output's fastest stride is not 1, V may only be 1.  In fp32 only, and not for
 * a scalar output.
 *
 * epilogue_vector in two parts, for kernels that read early what they need
 * late: `epilogue_sides<V> s; s.load_weights(at, i_.. EPILOGUE_ARGUMENTS)`
 * (what the problem marks as weights: constant, so it may stand before
 * dependency_wait), `s.load_others(..)` with the same arguments, and
 * `epilogue_apply<V>(acc, s, live, at, i_.. EPILOGUE_ARGUMENTS)`, which stores
 * extra outputs only where `live`.
 *
 * A norm's prologue has the same forms under the name prologue (prologue(),
 * prologue_vector, prologue_sides, prologue_apply): `acc` is the input's
 * element, what it returns is normalised; its parameters and arguments are the
 * epilogue's, which list what either needs.
 *
 * The text holds no extents: strides of packed operands are computed from
 * extent arguments.  Alignment classes are in the text. */
/* How a family names things that it puts around cuvil_emit_epilogue_body. */
struct cuvil_emit_names {
  const char *acc; /* value_t expression of the accumulator; NULL: none */
  /* i64 expression of the point's offset in the main output; NULL: compute
   * every offset from coordinates. */
  const char *offset;
  /* Coordinate of each problem dimension, as int expressions, by dim index;
   * NULL for a dimension that the epilogue cannot need (reduced). */
  const char *coordinate[CUVIL_MAX_DIMS];
  /* By operand index.  A side input: a value_t expression of its value at this
   * point, where the template has loaded it itself; NULL: the generated
   * statements read it (through s_<operand name>).  It stays among the
   * parameters either way. */
  const char *value[CUVIL_MAX_OPERANDS];
};
void cuvil_emit_epilogue(const struct cuvil_problem *problem, bool checked,
                         struct cuvil_buf *out);
/* The pieces: parameters, each with a leading comma; ... */
void cuvil_emit_epilogue_parameters(const struct cuvil_problem *problem,
                                    bool checked, struct cuvil_buf *out);
/* ... statements for one point; the value of `out` ends in the value_t
 * variable `result`; extra outputs are stored by the statements themselves. */
void cuvil_emit_epilogue_body(const struct cuvil_problem *problem,
                              const struct cuvil_emit_names *names,
                              bool checked, struct cuvil_buf *out);
/* ... and the matching arguments of the launch step, in the same order.
 * buffer_of_operand[i]: program buffer of operand i; bounds_of_operand: of the
 * error bounds of extra outputs (checked), else NULL. */
CUVIL_MUST_USE enum cuvil_status cuvil_emit_epilogue_arguments(
    const struct cuvil_problem *problem, const int *buffer_of_operand,
    const int *bounds_of_operand, struct cuvil_step *step);
/* "f16" "bf16" "float" "double" "i8" "u8" "i32" "i64" "bool8": as types.cuh
 * calls them; static. */
const char *cuvil_emit_type(enum cuvil_dtype dtype);
/* True when the operand's elements lie as the main output's do, so that one
 * offset serves both. */
bool cuvil_operand_like_output(const struct cuvil_problem *problem,
                               int operand);
/* Elements to whose multiple every row of the operand (run along its fastest
 * dimension) is aligned: a power of two, at most 16; 1 where the fastest
 * stride is not 1.  Holds for bases aligned to 16 bytes or more. */
int cuvil_operand_alignment(const struct cuvil_problem *problem, int operand);

#endif /* CUVIL_KERNELS_FAMILY_H_ */
