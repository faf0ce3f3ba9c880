/* coverage.c - which ONNX operators a fused graph can hold, for the page that
 * lists them.
 *
 * Mostly an answer of the tables that fusing itself works by.  Beside them
 * stand the operators that are gone before those tables are asked: turned into
 * others by a rewrite, evaluated at import, or nothing to do.
 */
#include <string.h>

#include "fusion/fuse.h"

static const struct {
  const char *op;
  enum cuvil_coverage coverage;
} rewritten[] = {
    {"Attention", CUVIL_COVERAGE_KERNEL},
    {"Split", CUVIL_COVERAGE_VIEW},
    {"Identity", CUVIL_COVERAGE_FREE},
    {"Dropout", CUVIL_COVERAGE_FREE},
    {"Constant", CUVIL_COVERAGE_FREE},
    {"Shape", CUVIL_COVERAGE_FREE},
    {"Size", CUVIL_COVERAGE_FREE},
    {"Where", CUVIL_COVERAGE_CONDITION},
    {"And", CUVIL_COVERAGE_CONDITION},
    {"Or", CUVIL_COVERAGE_CONDITION},
    {"Xor", CUVIL_COVERAGE_CONDITION},
    {"Not", CUVIL_COVERAGE_CONDITION},
    {"Equal", CUVIL_COVERAGE_CONDITION},
    {"Less", CUVIL_COVERAGE_CONDITION},
    {"Greater", CUVIL_COVERAGE_CONDITION},
    {"LessOrEqual", CUVIL_COVERAGE_CONDITION},
    {"GreaterOrEqual", CUVIL_COVERAGE_CONDITION},
};

enum cuvil_coverage cuvil_fusion_coverage(const char *op) {
  enum cuvil_class class;
  if (cuvil_fuse_class_of(op, &class))
    return class == CUVIL_CLASS_VIEW || class == CUVIL_CLASS_ALIAS
               ? CUVIL_COVERAGE_VIEW
               : CUVIL_COVERAGE_KERNEL;
  if (cuvil_express_knows(op)) return CUVIL_COVERAGE_KERNEL;
  for (size_t i = 0; i < sizeof(rewritten) / sizeof(rewritten[0]); ++i)
    if (strcmp(rewritten[i].op, op) == 0) return rewritten[i].coverage;
  return CUVIL_COVERAGE_CONSTANT;
}

const char *cuvil_fusion_coverage_name(const char *op) {
  static const char *const names[] = {"constants", "condition", "kernel",
                                      "view", "free"};
  return names[cuvil_fusion_coverage(op)];
}
