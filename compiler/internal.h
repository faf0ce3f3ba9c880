/* internal.h - what the files of compiler/ share; nobody else includes it. */
#ifndef CUVIL_COMPILER_INTERNAL_H_
#define CUVIL_COMPILER_INTERNAL_H_

#include "compiler/compiler.h"
#include "kernels/family.h"

/* Which family and point serves one distinct problem, and who said so. */
struct cuvil_choice {
  struct cuvil_problem problem;
  const char *text; /* canonical; borrowed */
  const struct cuvil_family *family;
  struct cuvil_config config;
  char config_text[1024];
  enum cuvil_db_step step;
  bool replayed;
  double seconds; /* the winner's; 0: not known for this problem here */
  char origin[64];
};

/* ---- choose.c */
CUVIL_MUST_USE enum cuvil_status cuvil_choose(
    const struct cuvil_compiler_options *options, const char *text,
    const struct cuvil_problem *problem, struct cuvil_choice *out);
CUVIL_MUST_USE enum cuvil_status cuvil_choice_emit(
    const struct cuvil_compiler_options *options,
    const struct cuvil_choice *choice, struct cuvil_program **out);

/* ---- cubins.c
 * Compiles every module of the programs, one of a kind once, in parallel. */
CUVIL_MUST_USE enum cuvil_status cuvil_compile_programs(
    struct cuvil_program *const *programs, int count,
    const struct cuvil_compiler_options *options,
    struct cuvil_compiler_report *report);

/* ---- place.c
 * Fills the plan's bindings, its arena and its weights. */
CUVIL_MUST_USE enum cuvil_status cuvil_place(const struct cuvil_fused *fused,
                                             struct cuvil_plan *plan);
/* Something that lives from step `first` to step `last`. */
struct cuvil_interval {
  int first, last;
  uint64_t bytes;
  uint64_t offset; /* out: a multiple of 256 */
};
/* Lays intervals into one arena so that no two that live at once overlap;
 * returns its size. */
uint64_t cuvil_place_intervals(struct cuvil_interval *intervals, int count);

#endif /* CUVIL_COMPILER_INTERNAL_H_ */
