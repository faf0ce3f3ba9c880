/* model.c - from an ONNX file to a fused graph, as every command does it. */
#include <stdio.h>
#include <string.h>

#include "compiler/compiler.h"

static _Thread_local bool refused_by_import;

enum cuvil_status cuvil_model_open(const struct cuvil_model_options *options,
                                   struct cuvil_model *out) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_import_options import = {.shapes = options->shapes};
  memset(out, 0, sizeof(*out));
  refused_by_import = true;
  CUVIL_TRY_GOTO(cuvil_graph_import(options->path, &import, &out->graph));
  refused_by_import = false;
  status = cuvil_fuse(out->graph, &options->fusion, &out->fused);
  if (status == CUVIL_OK) return CUVIL_OK;
  /* Fusion knows nodes, not files. */
  char why[1024];
  snprintf(why, sizeof why, "%s", cuvil_last_error());
  status = CUVIL_FAIL(status, "%s: %s", options->path, why);
fail:
  cuvil_model_close(out);
  return status;
}

void cuvil_model_close(struct cuvil_model *model) {
  cuvil_fused_destroy(model->fused);
  cuvil_graph_destroy(model->graph);
  memset(model, 0, sizeof(*model));
}

const char *cuvil_model_unsupported(void) {
  return refused_by_import ? cuvil_graph_unsupported()
                           : cuvil_fusion_unsupported();
}
