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
/* What a compile did, for reports. */
struct cuvil_compiler_report {
  int tasks, problems;
  int by_step[CUVIL_DB_MISS + 1]; /* problems answered by each lookup step */
  int replayed;                   /* winners that come from a recording */
  int compiled, from_cubin_cache;
};
/* Warns, once and with counts, about problems that stand on something else
 * than a winner measured on this GPU with these versions.  On failure nothing
 * is left behind but cached cubins. */
CUVIL_MUST_USE enum cuvil_status cuvil_compile_fused(
    struct cuvil_fused *fused, const struct cuvil_compiler_options *options,
    struct cuvil_plan **out_plan, struct cuvil_compiler_report *out_report);

/* ---- model.c: from a file to a fused graph */
struct cuvil_model_options {
  const char *path;
  const char *shapes; /* NULL: as the file says */
  struct cuvil_fusion_options fusion;
};
struct cuvil_model {
  struct cuvil_graph *graph; /* both owned */
  struct cuvil_fused *fused;
};
/* CU_ERR_MODEL_UNSUPPORTED: cuvil_model_unsupported has the list. */
CUVIL_MUST_USE enum cuvil_status cuvil_model_open(
    const struct cuvil_model_options *options, struct cuvil_model *out);
void cuvil_model_close(struct cuvil_model *model);
/* The table of unsupported nodes of this thread's last cuvil_model_open, of
 * import or of fusion; "" when there are none. */
const char *cuvil_model_unsupported(void);

#endif /* CUVIL_COMPILER_COMPILER_H_ */
