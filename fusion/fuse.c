/* fuse.c - the way from graph to fused graph, and the names of its options. */
#include <stdlib.h>
#include <string.h>

#include "fusion/fuse.h"
#include "fusion/rewrite.h"

static const char *const strategies[] = {"none", "fine", "medium"};
static const char *const precisions[] = {"model", "fp32", "tf32", "fp16",
                                         "bf16"};

const char *cuvil_fusion_strategy_name(enum cuvil_fusion_strategy strategy) {
  return strategies[strategy];
}

const char *cuvil_precision_name(enum cuvil_precision precision) {
  return precisions[precision];
}

enum cuvil_status cuvil_fusion_strategy_parse(const char *text,
                                              enum cuvil_fusion_strategy *out) {
  *out = CUVIL_FUSION_DEFAULT;
  for (int i = 0; i < 3; ++i)
    if (strcmp(text, strategies[i]) == 0) {
      *out = (enum cuvil_fusion_strategy)i;
      return CUVIL_OK;
    }
  if (strcmp(text, "coarse") == 0 || strcmp(text, "auto") == 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "fusion strategy `%s` is not there yet; use none, fine "
                      "or medium",
                      text);
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "no fusion strategy `%s`; use none, fine or medium", text);
}

enum cuvil_status cuvil_precision_parse(const char *text,
                                        enum cuvil_precision *out) {
  *out = CUVIL_PRECISION_MODEL;
  for (int i = 0; i < 5; ++i)
    if (strcmp(text, precisions[i]) == 0) {
      *out = (enum cuvil_precision)i;
      return CUVIL_OK;
    }
  return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                    "no precision `%s`; use model, fp32, tf32, fp16 or bf16",
                    text);
}

enum cuvil_status cuvil_fuse(const struct cuvil_graph *graph,
                             const struct cuvil_fusion_options *options,
                             struct cuvil_fused **out) {
  *out = NULL;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_fuse fuse = {.graph = NULL};
  struct cuvil_fused *fused = calloc(1, sizeof(*fused));
  if (!fused)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "fusing %d nodes",
                      graph->node_count);
  fused->options = *options;
  fuse.fused = fused;
  CUVIL_TRY_GOTO(cuvil_rewrite(fused, graph));
  fuse.graph = fused->graph;
  CUVIL_TRY_GOTO(cuvil_fuse_classify(&fuse));
  CUVIL_TRY_GOTO(cuvil_fuse_group(&fuse));
  CUVIL_TRY_GOTO(cuvil_fuse_tasks(&fuse));
  cuvil_arena_free(&fuse.scratch);
  *out = fused;
  return CUVIL_OK;
fail:
  cuvil_arena_free(&fuse.scratch);
  cuvil_fused_destroy(fused);
  return status;
}

void cuvil_fused_destroy(struct cuvil_fused *fused) {
  if (!fused) return;
  if (fused->copy) cuvil_arena_free(&fused->copy->arena);
  cuvil_arena_free(&fused->arena);
  free(fused);
}
