/* tune_input.c - problems from a model, a text, a file or a recording. */
#include "cli/tune_input.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/common.h"

static enum cuvil_status push(struct cuvil_tune_input *input, char *text,
                              int calls) {
  if (input->count == input->capacity) {
    int capacity = input->capacity ? 2 * input->capacity : 32;
    struct cuvil_tune_problem *problems =
        realloc(input->problems, (size_t)capacity * sizeof *problems);
    if (problems) input->problems = problems;
    char **texts = realloc(input->texts, (size_t)capacity * sizeof *texts);
    if (texts) input->texts = texts;
    if (!problems || !texts)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for the problems");
    input->capacity = capacity;
  }
  input->texts[input->count] = text;
  input->problems[input->count++] = (struct cuvil_tune_problem){text, calls};
  return CUVIL_OK;
}

enum cuvil_status cuvil_tune_input_add(struct cuvil_tune_input *input,
                                       const char *text, int calls) {
  struct cuvil_problem problem;
  struct cuvil_buf canonical = {0};
  CUVIL_TRY(cuvil_problem_parse(text, &problem));
  cuvil_problem_print(&problem, &canonical);
  enum cuvil_status status = cuvil_buf_status(&canonical);
  if (status != CUVIL_OK) {
    cuvil_buf_free(&canonical);
    return status;
  }
  for (int i = 0; i < input->count; i++) {
    if (strcmp(input->texts[i], canonical.data) != 0) continue;
    input->problems[i].calls += calls;
    cuvil_buf_free(&canonical);
    return CUVIL_OK;
  }
  char *own = cuvil_buf_take(&canonical);
  status = push(input, own, calls);
  if (status != CUVIL_OK) free(own);
  return status;
}

enum cuvil_status cuvil_tune_input_file(struct cuvil_tune_input *input,
                                        const char *path) {
  struct cuvil_buf text = {0};
  enum cuvil_status status = CUVIL_OK;
  int line = 0, found = 0;
  CUVIL_TRY(cuvil_file_read(path, &text));
  if (text.size && memchr(text.data, 0, text.size))
    status = CUVIL_FAIL(CU_ERR_PARSE, "%s: not a text of problems", path);
  for (char *p = text.size ? text.data : NULL; p && status == CUVIL_OK;) {
    char *end = strchr(p, '\n');
    if (end) *end = '\0';
    line++;
    p += strspn(p, " \t\r");
    p[strcspn(p, "\r")] = '\0';
    if (*p && *p != '#') {
      status = cuvil_tune_input_add(input, p, 1);
      found++;
    }
    if (status != CUVIL_OK) {
      char message[1024];
      snprintf(message, sizeof message, "%s", cuvil_last_error());
      status = CUVIL_FAIL(status, "%s:%d: %s", path, line, message);
    }
    p = end ? end + 1 : NULL;
  }
  if (status == CUVIL_OK && found == 0)
    status = CUVIL_FAIL(CU_ERR_PARSE, "%s: no problem stands in it", path);
  cuvil_buf_free(&text);
  return status;
}

static enum cuvil_status take_problems(struct cuvil_tune_input *input,
                                       struct cuvil_fused *fused) {
  struct cuvil_problem_set set = {0};
  CUVIL_TRY(cuvil_fused_problems(fused, &set));
  input->tasks = fused->task_count;
  for (int i = 0; i < set.count; i++)
    CUVIL_TRY(cuvil_tune_input_add(input, set.texts[i], set.calls[i]));
  return CUVIL_OK;
}

enum cuvil_status cuvil_tune_input_model(
    struct cuvil_tune_input *input, const char *path, const char *shapes,
    const struct cuvil_fusion_options *options) {
  struct cuvil_model_options how = {
      .path = path, .shapes = shapes, .fusion = *options};
  struct cuvil_model model;
  input->model = path;
  CUVIL_TRY(cuvil_cli_model_open(&how, &model));
  input->nodes = model.graph->model_node_count;
  cuvil_cli_precision_hint(model.graph, options->precision);
  enum cuvil_status status = take_problems(input, model.fused);
  cuvil_model_close(&model);
  return status;
}

enum cuvil_status cuvil_tune_input_recording(
    struct cuvil_tune_input *input, const struct cuvil_recording *recording) {
  for (int i = 0; i < recording->problem_count; i++)
    CUVIL_TRY(cuvil_tune_input_add(input, recording->problems[i].text, 1));
  return CUVIL_OK;
}

void cuvil_tune_input_free(struct cuvil_tune_input *input) {
  for (int i = 0; i < input->count; i++)
    free(input->texts[i]);
  free(input->texts);
  free(input->problems);
  *input = (struct cuvil_tune_input){0};
}

/* ---- recordings */
static int held(const struct cuvil_recording *recording,
                const struct cuvil_tune_input *input) {
  int n = 0;
  for (int i = 0; i < input->count; i++)
    n += cuvil_recording_problem(recording, input->texts[i]) >= 0;
  return n;
}

static bool is_recording_name(const char *name) {
  static const char *const ends[] = {".t4.json", ".t4.json.zst"};
  for (int i = 0; i < 2; i++) {
    size_t n = strlen(name), e = strlen(ends[i]);
    if (n > e && strcmp(name + n - e, ends[i]) == 0) return true;
  }
  return false;
}

/* Looks at every recording of a folder; keeps the best in *best. */
static enum cuvil_status search_folder(const char *folder, const char *arch,
                                       const struct cuvil_tune_input *input,
                                       struct cuvil_recording **best,
                                       int *best_held) {
  struct dirent **names = NULL;
  int n = scandir(folder, &names, NULL, alphasort);
  enum cuvil_status status = CUVIL_OK;
  for (int i = 0; i < n; i++) {
    char path[4096];
    struct cuvil_recording *recording = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
    if (status == CUVIL_OK && is_recording_name(names[i]->d_name))
      status = cuvil_recording_read(path, &recording);
    if (recording && (!arch || strcmp(recording->arch.name, arch) == 0) &&
        held(recording, input) > *best_held) {
      struct cuvil_recording *swap = *best;
      *best = recording;
      recording = swap;
      *best_held = held(*best, input);
    }
    cuvil_recording_destroy(recording);
    free(names[i]);
  }
  free(names);
  return status;
}

enum cuvil_status cuvil_find_recording(const char *path, const char *arch,
                                       const struct cuvil_tune_input *input,
                                       struct cuvil_recording **out) {
  static const char *const folders[] = {"../share/cuvil/recordings",
                                        "../../../bench/recordings"};
  char program[2048];
  int best = -1;
  *out = NULL;
  if (path) return cuvil_recording_read(path, out);
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0)
    return CUVIL_FAIL(CU_ERR_IO, "/proc/self/exe: %s", strerror(errno));
  program[n] = '\0';
  char *slash = strrchr(program, '/');
  if (slash) *slash = '\0';
  for (int i = 0; i < 2; i++) {
    char folder[3072];
    snprintf(folder, sizeof folder, "%s/%s", program, folders[i]);
    CUVIL_TRY(search_folder(folder, arch, input, out, &best));
  }
  if (*out) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_NO_RECORDING,
                    "no recording%s%s in %s/%s or its source tree; name a "
                    "file: --device replay:FILE",
                    arch ? " of " : "", arch ? arch : "", program, folders[0]);
}
