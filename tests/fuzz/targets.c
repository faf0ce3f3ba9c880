/* targets.c - what is done with an input.
 *
 * Everything that a user's file can reach without a GPU: a model is imported,
 * fused by every strategy, its problems printed and parsed again, and, where
 * it is small, executed as a graph and as problems.  Errors are expected;
 * crashes, overruns, leaks, and texts that do not come back are not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db/db.h"
#include "fusion/fusion.h"
#include "graph/execute.h"
#include "graph/tensor_file.h"
#include "runtime/plan.h"
#include "spaces/space.h"
#include "tests/fuzz/fuzz.h"
#include "tuner/recording.h"

const char *const fuzz_target_names[FUZZ_TARGETS] = {
    "model",    "graph",  "plan",    "recording",
    "database", "tensor", "problem", "space"};
const int fuzz_target_shares[FUZZ_TARGETS] = {24, 36, 12, 8, 4, 4, 8, 4};

int fuzz_target_of(const char *path) {
  static const struct {
    const char *ending;
    enum fuzz_target target;
  } endings[] = {{".onnx", FUZZ_MODEL},  {".graph", FUZZ_GRAPH},
                 {".plan", FUZZ_PLAN},   {".t4.json", FUZZ_RECORDING},
                 {".db", FUZZ_DATABASE}, {".pb", FUZZ_TENSOR},
                 {".npy", FUZZ_TENSOR},  {".problem", FUZZ_PROBLEM},
                 {".json", FUZZ_SPACE}};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); ++i) {
    size_t n = strlen(endings[i].ending);
    if (length > n && strcmp(path + length - n, endings[i].ending) == 0)
      return (int)endings[i].target;
  }
  return -1;
}

/* A property that must hold for every input. */
static void must(bool holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "fuzz: broken: %s\n", what);
  abort();
}

static const char *write_file(const char *folder, const char *name,
                              const void *bytes, size_t size) {
  static char path[512];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || close(fd) != 0) {
    perror(path);
    exit(1);
  }
  return path;
}

/* ---- models */
enum { MOST_ELEMENTS = 1 << 20 };

static bool is_small(const struct cuvil_graph *graph) {
  int64_t total = 0;
  for (int v = 0; v < graph->value_count; ++v) {
    const struct cuvil_value *value = &graph->values[v];
    if (value->rank < 0 || value->dtype == CUVIL_DTYPE_NONE) return false;
    int64_t elements = 1;
    for (int i = 0; i < value->rank; ++i) {
      if (value->dims[i] < 0 || value->dims[i] > MOST_ELEMENTS) return false;
      elements *= value->dims[i];
      if (elements > MOST_ELEMENTS) return false;
    }
    total += elements;
  }
  return total <= MOST_ELEMENTS;
}

struct buffers {
  void **in, **out;
};

static void **allocate(const struct cuvil_graph *graph, int count,
                       const int *values) {
  void **data = calloc((size_t)count + 1, sizeof(void *));
  if (!data) abort();
  for (int i = 0; i < count; ++i) {
    const struct cuvil_value *value = &graph->values[values[i]];
    size_t elements = (size_t)cuvil_value_elements(value);
    data[i] = calloc(elements + 1, cuvil_dtype_size(value->dtype));
    if (!data[i]) abort();
    for (size_t e = 0; e < elements; ++e)
      cuvil_store(value->dtype, data[i], e, (double)(e % 7) - 2);
  }
  return data;
}

static void release(int count, void **data) {
  for (int i = 0; i < count; ++i)
    free(data[i]);
  free(data);
}

/* Each problem's text is canonical: it comes back as it is. */
static double check_problems(struct cuvil_fused *fused) {
  struct cuvil_problem_set set;
  double flops = 0;
  if (cuvil_fused_problems(fused, &set) != CUVIL_OK) return 1e30;
  for (int i = 0; i < set.count; ++i) {
    struct cuvil_problem problem;
    struct cuvil_buf text = {0};
    must(cuvil_problem_parse(set.texts[i], &problem) == CUVIL_OK,
         "a fused problem's text does not parse");
    cuvil_problem_print(&problem, &text);
    must(strcmp(cuvil_buf_text(&text), set.texts[i]) == 0,
         "a fused problem's text is not canonical");
    cuvil_buf_free(&text);
    flops += set.calls[i] * cuvil_problem_flops(&problem);
  }
  return flops;
}

static void fuse_all(const struct cuvil_graph *graph) {
  static const struct cuvil_fusion_options ways[] = {
      {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_MODEL},
      {CUVIL_FUSION_NONE, CUVIL_PRECISION_MODEL},
      {CUVIL_FUSION_FINE, CUVIL_PRECISION_BF16},
      {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16}};
  bool small = is_small(graph);
  struct buffers buffers = {NULL, NULL};
  for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) {
    struct cuvil_fused *fused;
    if (cuvil_fuse(graph, &ways[i], &fused) != CUVIL_OK) {
      must(!fused, "a failed fusion left something behind");
      continue;
    }
    double flops = check_problems(fused);
    if (small && flops < 1e6) {
      if (!buffers.in) {
        buffers.in = allocate(graph, graph->input_count, graph->inputs);
        buffers.out = allocate(graph, graph->output_count, graph->outputs);
        CUVIL_IGNORE(cuvil_graph_execute(graph, (const void *const *)buffers.in,
                                         buffers.out, 1));
      }
      CUVIL_IGNORE(cuvil_fused_execute(fused, (const void *const *)buffers.in,
                                       buffers.out, 1));
    }
    cuvil_fused_destroy(fused);
  }
  if (buffers.in) {
    release(graph->input_count, buffers.in);
    release(graph->output_count, buffers.out);
  }
}

static void try_model(const void *bytes, size_t size, const char *folder) {
  struct cuvil_graph *graph;
  const char *path = write_file(folder, "model.onnx", bytes, size);
  if (cuvil_graph_import(path, NULL, &graph) != CUVIL_OK) {
    must(!graph, "a failed import left something behind");
    must(cuvil_last_error()[0] != '\0', "a failed import says nothing");
    return;
  }
  fuse_all(graph);
  cuvil_graph_destroy(graph);
}

/* ---- databases */
static enum cuvil_status any_winner(void *user, const struct cuvil_env *env,
                                    const struct cuvil_db_winner *winner) {
  (void)env;
  (void)winner;
  ++*(int *)user;
  return CUVIL_OK;
}

static void any_finding(void *user, const char *finding) {
  (void)user;
  must(finding[0] != '\0', "an empty finding");
}

static void try_database(const void *bytes, size_t size, const char *folder) {
  struct cuvil_db *db;
  struct cuvil_db_stats stats;
  struct cuvil_db_filter filter = {0};
  int count = 0;
  char other[512];
  snprintf(other, sizeof(other), "%s/fuzz.db-wal", folder);
  unlink(other);
  snprintf(other, sizeof(other), "%s/fuzz.db-journal", folder);
  unlink(other);
  const char *path = write_file(folder, "fuzz.db", bytes, size);
  if (cuvil_db_open(path, CUVIL_DB_READ, &db) != CUVIL_OK) {
    must(!db, "a failed open left something behind");
    return;
  }
  CUVIL_IGNORE(cuvil_db_stats(db, &stats));
  CUVIL_IGNORE(cuvil_db_each_winner(db, &filter, any_winner, &count));
  CUVIL_IGNORE(cuvil_db_verify(db, any_finding, NULL, &count));
  cuvil_db_close(db);
}

/* ---- the rest */
static void try_problem(const void *bytes, size_t size) {
  struct cuvil_problem problem;
  struct cuvil_buf text = {0}, again = {0};
  char *copy = strndup(bytes, size);
  if (!copy) abort();
  if (cuvil_problem_parse(copy, &problem) == CUVIL_OK) {
    cuvil_problem_print(&problem, &text);
    must(cuvil_problem_parse(cuvil_buf_text(&text), &problem) == CUVIL_OK,
         "a printed problem does not parse");
    cuvil_problem_print(&problem, &again);
    must(strcmp(cuvil_buf_text(&text), cuvil_buf_text(&again)) == 0,
         "a problem's text is not canonical");
    CUVIL_IGNORE(cuvil_problem_flops(&problem) < 0);
  }
  cuvil_buf_free(&text);
  cuvil_buf_free(&again);
  free(copy);
}

static void try_plan(const void *bytes, size_t size, const char *folder) {
  struct cuvil_plan *plan;
  const char *path = write_file(folder, "fuzz.plan", bytes, size);
  if (cuvil_plan_read(path, &plan) == CUVIL_OK)
    must(cuvil_plan_check(plan, path) == CUVIL_OK,
         "a plan that was read does not check");
  else
    must(!plan, "a refused plan left something behind");
  cuvil_plan_destroy(plan);
}

static void try_tensor(const void *bytes, size_t size, const char *folder) {
  struct cuvil_tensor_file file;
  const char *path = write_file(folder, "fuzz.tensor", bytes, size);
  if (cuvil_tensor_read(path, &file) == CUVIL_OK) {
    size_t elements = 1;
    for (int i = 0; i < file.rank; ++i)
      elements *= (size_t)file.dims[i];
    must(file.bytes == elements * cuvil_dtype_size(file.dtype),
         "a tensor's bytes are not its shape's");
  }
  cuvil_tensor_file_free(&file);
}

void fuzz_try(enum fuzz_target target, const void *bytes, size_t size,
              const char *folder) {
  struct cuvil_recording *recording;
  struct cuvil_space *space;
  switch (target) {
    case FUZZ_MODEL:
    case FUZZ_GRAPH:
      try_model(bytes, size, folder);
      break;
    case FUZZ_PLAN:
      try_plan(bytes, size, folder);
      break;
    case FUZZ_RECORDING:
      if (cuvil_recording_parse(bytes, size, "fuzz", &recording) == CUVIL_OK)
        cuvil_recording_destroy(recording);
      break;
    case FUZZ_DATABASE:
      try_database(bytes, size, folder);
      break;
    case FUZZ_TENSOR:
      try_tensor(bytes, size, folder);
      break;
    case FUZZ_PROBLEM:
      try_problem(bytes, size);
      break;
    default:
      if (cuvil_space_parse(bytes, size, "fuzz", &space) == CUVIL_OK)
        cuvil_space_destroy(space);
  }
}
