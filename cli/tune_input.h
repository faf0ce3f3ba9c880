/* tune_input.h - where the problems of a tune come from: a model, the command
 * line, a file of problems, a recording. */
#ifndef CUVIL_CLI_TUNE_INPUT_H_
#define CUVIL_CLI_TUNE_INPUT_H_

#include "fusion/fusion.h"
#include "tuner/tuner.h"

struct cuvil_tune_input {
  int count, capacity;
  struct cuvil_tune_problem *problems; /* owned */
  char **texts;                        /* owned; by problem */
  const char *model;                   /* NULL: none */
  int nodes, tasks;                    /* of the model */
};

/* Adds a problem by any spelling of its text; the same one again counts as
 * another call. */
CUVIL_MUST_USE enum cuvil_status cuvil_tune_input_add(
    struct cuvil_tune_input *input, const char *text, int calls);
/* One problem a line; empty lines and lines that start with # are skipped. */
CUVIL_MUST_USE enum cuvil_status cuvil_tune_input_file(
    struct cuvil_tune_input *input, const char *path);
/* shapes: as --shapes, or NULL. */
CUVIL_MUST_USE enum cuvil_status cuvil_tune_input_model(
    struct cuvil_tune_input *input, const char *path, const char *shapes,
    const struct cuvil_fusion_options *options);
CUVIL_MUST_USE enum cuvil_status cuvil_tune_input_recording(
    struct cuvil_tune_input *input, const struct cuvil_recording *recording);
void cuvil_tune_input_free(struct cuvil_tune_input *input);

/* The recording at `path`; without a path the shipped one (of `arch` when not
 * NULL) that holds most of the problems: in share/cuvil/recordings beside the
 * program's folder, or in bench/recordings of a source tree. */
CUVIL_MUST_USE enum cuvil_status cuvil_find_recording(
    const char *path, const char *arch, const struct cuvil_tune_input *input,
    struct cuvil_recording **out);

#endif /* CUVIL_CLI_TUNE_INPUT_H_ */
