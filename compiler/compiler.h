/* compiler.h - fused graph to plan: asks the cache, emits, places, writes.
 * Never searches. */
#ifndef CUVIL_COMPILER_COMPILER_H_
#define CUVIL_COMPILER_COMPILER_H_

#include "db/db.h"
#include "fusion/fusion.h"
#include "runtime/plan.h"

struct cuvil_compiler_options {
  const struct cuvil_arch *arch;
  const struct cuvil_env *env; /* of the target: exact lookups; gpu "" when
                                  no GPU is here */
  struct cuvil_db *db;         /* NULL: defaults only */
  const char *cubin_dir;       /* NULL: no cubin cache */
  bool require_tuned;
  int jobs;                    /* parallel NVRTC compiles; 0: all cores */
  const char *emit_source_dir; /* NULL: not asked */
};
struct cuvil_compiler_report {
  int tasks, problems;
  int by_step[CUVIL_DB_MISS + 1]; /* problems answered by each lookup step */
  int replayed;                   /* winners that come from a recording */
  int compiled, from_cubin_cache;
};
CUVIL_MUST_USE enum cuvil_status cuvil_compile_fused(
    struct cuvil_fused *fused, const struct cuvil_compiler_options *options,
    struct cuvil_plan **out_plan, struct cuvil_compiler_report *out_report);

#endif /* CUVIL_COMPILER_COMPILER_H_ */
