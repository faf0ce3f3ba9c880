/* One small ONNX model at a time; see onnx_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/onnx_case.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/execute.h"

static void good(enum cuvil_status status) {
  if (status != CUVIL_OK) fail_msg("%s", cuvil_last_error());
}

void onnx_begin(struct onnx_case *c, int opset) {
  memset(c, 0, sizeof *c);
  const char *tmp = getenv("CUVIL_TEST_TMP");
  snprintf(c->folder, sizeof c->folder, "%s/onnx-XXXXXX",
           tmp != NULL ? tmp : "/tmp");
  assert_non_null(mkdtemp(c->folder));
  snprintf(c->path, sizeof c->path, "%s/m.onnx", c->folder);
  good(cuvil_builder_create("test", opset, &c->b));
}

void onnx_end(struct onnx_case *c) {
  cuvil_builder_destroy(c->b);
  cuvil_graph_destroy(c->graph);
  DIR *folder = opendir(c->folder);
  assert_non_null(folder);
  for (struct dirent *e; (e = readdir(folder)) != NULL;) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", c->folder, e->d_name);
    if (e->d_name[0] != '.') assert_int_equal(unlink(path), 0);
  }
  closedir(folder);
  assert_int_equal(rmdir(c->folder), 0);
}

void onnx_input(struct onnx_case *c, const char *name, int rank,
                const int64_t *dims) {
  cuvil_builder_input(c->b, name, CUVIL_F32, rank, dims);
}

void onnx_output(struct onnx_case *c, const char *name) {
  cuvil_builder_output(c->b, name, CUVIL_F32, -1, NULL);
}

void onnx_floats(struct onnx_case *c, const char *name, int rank,
                 const int64_t *dims, const float *data) {
  cuvil_builder_initializer(c->b, name, CUVIL_F32, rank, dims, data);
}

void onnx_ints(struct onnx_case *c, const char *name, int count,
               const int64_t *data) {
  cuvil_builder_initializer(c->b, name, CUVIL_I64, 1, DIMS(count), data);
}

void onnx_range(struct onnx_case *c, const char *name, int rank,
                const int64_t *dims, double start, double step) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++)
    count *= dims[i];
  float *data = malloc((size_t)count * sizeof *data);
  assert_non_null(data);
  for (int64_t i = 0; i < count; i++)
    data[i] = (float)(start + step * (double)i);
  onnx_floats(c, name, rank, dims, data);
  free(data);
}

void onnx_load(struct onnx_case *c) {
  good(cuvil_builder_write(c->b, c->path));
  cuvil_graph_destroy(c->graph);
  good(cuvil_graph_import(c->path, NULL, &c->graph));
}

static void compare(const struct cuvil_value *value, const void *got,
                    const double *expected) {
  for (int64_t i = 0; i < cuvil_value_elements(value); i++) {
    double a = cuvil_load(value->dtype, got, (size_t)i), b = expected[i];
    bool same = (isnan(a) && isnan(b)) || a == b ||
                fabs(a - b) <= 1e-6 + 1e-6 * fabs(b);
    if (!same)
      fail_msg("%s[%lld] is %.9g, not %.9g", value->name, (long long)i, a, b);
  }
}

void onnx_expect(struct onnx_case *c, const void *const *inputs, int index,
                 int rank, const int64_t *dims, const double *values) {
  struct cuvil_graph *graph = c->graph;
  const struct cuvil_value *value = &graph->values[graph->outputs[index]];
  assert_int_equal(value->rank, rank);
  for (int i = 0; i < rank; i++)
    assert_int_equal(value->dims[i], dims[i]);
  void *outputs[2][16] = {{NULL}};
  size_t bytes[16];
  assert_true(graph->output_count <= 16);
  for (int run = 0; run < 2; run++) {
    for (int i = 0; i < graph->output_count; i++) {
      const struct cuvil_value *v = &graph->values[graph->outputs[i]];
      bytes[i] = (size_t)cuvil_value_elements(v) * cuvil_dtype_size(v->dtype);
      outputs[run][i] = calloc(1, bytes[i] + 1);
      assert_non_null(outputs[run][i]);
    }
    good(cuvil_graph_execute(graph, inputs, outputs[run], run == 0 ? 1 : 3));
  }
  compare(value, outputs[0][index], values);
  for (int i = 0; i < graph->output_count; i++) {
    assert_memory_equal(outputs[0][i], outputs[1][i], bytes[i]);
    free(outputs[0][i]);
    free(outputs[1][i]);
  }
}

void onnx_expect_of(struct onnx_case *c, const float *x, int rank,
                    const int64_t *dims, const double *values) {
  assert_int_equal(c->graph->input_count, 1);
  const void *inputs[] = {x};
  onnx_expect(c, inputs, 0, rank, dims, values);
}

void onnx_refused_file(const char *path, enum cuvil_status status,
                       const char *part) {
  struct cuvil_graph *graph = (struct cuvil_graph *)(uintptr_t)1;
  enum cuvil_status got = cuvil_graph_import(path, NULL, &graph);
  if (got == CUVIL_OK) fail_msg("%s was accepted, not: %s", path, part);
  assert_null(graph);
  const char *message = cuvil_last_error();
  if (got != status)
    fail_msg("%s, not %s: %s", cuvil_status_name(got),
             cuvil_status_name(status), message);
  if (strstr(message, path) == NULL || strstr(message, part) == NULL ||
      strchr(message, '\n') != NULL)
    fail_msg("the message does not name %s and \"%s\" in one line: %s", path,
             part, message);
}

void onnx_refused(struct onnx_case *c, enum cuvil_status status,
                  const char *part) {
  good(cuvil_builder_write(c->b, c->path));
  onnx_refused_file(c->path, status, part);
}

int onnx_count(const struct onnx_case *c, const char *op) {
  int count = 0;
  for (int n = 0; n < c->graph->node_count; n++)
    count +=
        !c->graph->nodes[n].removed && strcmp(c->graph->nodes[n].op, op) == 0;
  return count;
}

const struct cuvil_value *onnx_value(const struct onnx_case *c,
                                     const char *name) {
  for (int v = 0; v < c->graph->value_count; v++)
    if (strcmp(c->graph->values[v].name, name) == 0)
      return &c->graph->values[v];
  return NULL;
}
