/* run_io.c - see run_io.h. */
#include "cli/run_io.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common.h"
#include "graph/execute.h"
#include "graph/tensor_file.h"

static int64_t elements_of(const struct cuvil_plan_tensor *tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor->rank; ++i)
    elements *= tensor->dims[i];
  return elements;
}

static enum cuvil_status allocate(int count,
                                  const struct cuvil_plan_tensor *tensors,
                                  void ***out) {
  *out = calloc((size_t)count + 1, sizeof(void *));
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "tensors");
  for (int i = 0; i < count; ++i) {
    (*out)[i] = calloc(1, tensors[i].bytes + 1);
    if (!(*out)[i])
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "tensor `%s`", tensors[i].name);
  }
  return CUVIL_OK;
}

static void release(int count, void **data) {
  for (int i = 0; data && i < count; ++i)
    free(data[i]);
  free(data);
}

/* Integers are below `bound`. */
static void fill_random(const struct cuvil_plan_tensor *tensor, void *data,
                        uint64_t bound, uint64_t seed) {
  struct cuvil_rng rng = {.state = seed};
  int64_t elements = elements_of(tensor);
  for (int64_t i = 0; i < elements; ++i) {
    double value = cuvil_dtype_is_float(tensor->dtype)
                       ? cuvil_rng_normal(&rng)
                       : (double)cuvil_rng_below(&rng, bound);
    cuvil_store(tensor->dtype, data, (size_t)i, value);
  }
}

enum cuvil_status cuvil_run_io_create(int input_count,
                                      const struct cuvil_plan_tensor *inputs,
                                      int output_count,
                                      const struct cuvil_plan_tensor *outputs,
                                      uint64_t seed, struct cuvil_run_io *out) {
  *out = (struct cuvil_run_io){.input_count = input_count,
                               .output_count = output_count,
                               .inputs = inputs,
                               .outputs = outputs};
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(allocate(input_count, inputs, &out->in));
  CUVIL_TRY_GOTO(allocate(output_count, outputs, &out->out));
  out->expected = calloc((size_t)output_count + 1, sizeof(void *));
  if (!out->expected) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "tensors");
    goto fail;
  }
  for (int i = 0; i < input_count; ++i)
    fill_random(&inputs[i], out->in[i], 2, seed + (uint64_t)i * 1000003);
  return CUVIL_OK;
fail:
  cuvil_run_io_free(out);
  return status;
}

/* Rows of the table that plan input `input` indexes; 0: none. */
static enum cuvil_status plan_rows(const struct cuvil_plan *plan, int input,
                                   int64_t *out_rows) {
  *out_rows = 0;
  for (int s = 0; s < plan->step_count; ++s) {
    const struct cuvil_plan_step *step = &plan->steps[s];
    if (strncmp(step->problem, "gather/", 7) != 0) continue;
    struct cuvil_problem problem;
    CUVIL_TRY(cuvil_problem_parse(step->problem, &problem));
    for (int b = 0; b < step->program->buffer_count; ++b) {
      const struct cuvil_program_buffer *buffer = &step->program->buffers[b];
      int64_t rows = problem.dims[CUVIL_GATHER_DIM_V].extent;
      if (buffer->role == CUVIL_BUFFER_OPERAND &&
          buffer->operand == CUVIL_GATHER_INDEX &&
          step->bindings[b].place == CUVIL_PLACE_INPUT &&
          step->bindings[b].index == input &&
          (*out_rows == 0 || rows < *out_rows))
        *out_rows = rows;
    }
  }
  return CUVIL_OK;
}

/* The same for a graph: through what keeps integers as they are. */
static int64_t graph_rows(const struct cuvil_graph *graph, int input) {
  static const char *const same[] = {"Reshape", "Unsqueeze", "Squeeze",
                                     "Flatten", "Identity",  "Cast",
                                     "Slice",   "Transpose"};
  int64_t least = 0;
  bool *follows = calloc((size_t)graph->value_count + 1, sizeof(bool));
  if (!follows) return 0;
  follows[graph->inputs[input]] = true;
  for (int n = 0; n < graph->node_count; ++n) {
    const struct cuvil_node *node = &graph->nodes[n];
    if (node->removed || node->input_count < 1) continue;
    bool passes = false;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); ++i)
      passes = passes || strcmp(node->op, same[i]) == 0;
    if (passes && node->inputs[0] >= 0 && follows[node->inputs[0]])
      follows[node->outputs[0]] = true;
    if (strcmp(node->op, "Gather") != 0 || node->inputs[1] < 0 ||
        !follows[node->inputs[1]])
      continue;
    const struct cuvil_value *table = &graph->values[node->inputs[0]];
    int64_t axis = cuvil_node_int(node, "axis", 0);
    int64_t rows = table->dims[axis < 0 ? axis + table->rank : axis];
    if (least == 0 || rows < least) least = rows;
  }
  free(follows);
  return least;
}

enum cuvil_status cuvil_run_io_indices(struct cuvil_run_io *io,
                                       const struct cuvil_plan *plan,
                                       const struct cuvil_graph *graph,
                                       uint64_t seed) {
  for (int i = 0; i < io->input_count; ++i) {
    int64_t rows = 0;
    if (cuvil_dtype_is_float(io->inputs[i].dtype)) continue;
    if (plan) CUVIL_TRY(plan_rows(plan, i, &rows));
    if (graph && rows == 0) rows = graph_rows(graph, i);
    if (rows > 0)
      fill_random(&io->inputs[i], io->in[i], (uint64_t)rows,
                  seed + (uint64_t)i * 1000003);
  }
  return CUVIL_OK;
}

void cuvil_run_io_free(struct cuvil_run_io *io) {
  release(io->input_count, io->in);
  release(io->output_count, io->out);
  release(io->output_count, io->expected);
  memset(io, 0, sizeof(*io));
}

/* ---- files */

static enum cuvil_status check_file(const char *path,
                                    const struct cuvil_tensor_file *file,
                                    const struct cuvil_plan_tensor *tensor) {
  char have[128], want[128];
  bool same = file->rank == tensor->rank && file->dtype == tensor->dtype;
  for (int i = 0; same && i < tensor->rank; ++i)
    same = file->dims[i] == tensor->dims[i];
  if (same && file->bytes == tensor->bytes) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_INVALID_TENSOR_LAYOUT,
                    "%s holds %s %s, but `%s` is %s %s", path,
                    cuvil_dtype_name(file->dtype),
                    cuvil_cli_shape(file->rank, file->dims, have), tensor->name,
                    cuvil_dtype_name(tensor->dtype),
                    cuvil_cli_shape(tensor->rank, tensor->dims, want));
}

static int find_tensor(const struct cuvil_plan_tensor *tensors, int count,
                       const char *name, size_t length) {
  for (int i = 0; i < count; ++i)
    if (strlen(tensors[i].name) == length &&
        memcmp(tensors[i].name, name, length) == 0)
      return i;
  return -1;
}

enum cuvil_status cuvil_run_io_load(struct cuvil_run_io *io, const char *text) {
  /* Names hold colons ("x:0"), so the longest name that is an input counts. */
  int found = -1;
  const char *path = NULL;
  for (const char *colon = strchr(text, ':'); colon;
       colon = strchr(colon + 1, ':')) {
    int index =
        find_tensor(io->inputs, io->input_count, text, (size_t)(colon - text));
    if (index < 0) continue;
    found = index;
    path = colon + 1;
  }
  if (found < 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--input takes NAME:FILE with the name of an input "
                      "(the first is `%s`), not `%s`",
                      io->input_count ? io->inputs[0].name : "", text);
  struct cuvil_tensor_file file = {0};
  enum cuvil_status status = cuvil_tensor_read(path, &file);
  if (status == CUVIL_OK) status = check_file(path, &file, &io->inputs[found]);
  if (status == CUVIL_OK) memcpy(io->in[found], file.data, file.bytes);
  cuvil_tensor_file_free(&file);
  return status;
}

/* One "<stem>_<number>.pb"; *out_read false when there is none. */
static enum cuvil_status load_numbered(const char *folder, const char *stem,
                                       int number, int count,
                                       const struct cuvil_plan_tensor *tensors,
                                       void **data, bool *out_read) {
  struct cuvil_buf path = {0};
  struct cuvil_tensor_file file = {0};
  enum cuvil_status status = CUVIL_OK;
  *out_read = false;
  cuvil_buf_printf(&path, "%s/%s_%d.pb", folder, stem, number);
  CUVIL_TRY_GOTO(cuvil_buf_status(&path));
  if (access(path.data, F_OK) != 0) goto fail;
  CUVIL_TRY_GOTO(cuvil_tensor_read(path.data, &file));
  int index = find_tensor(tensors, count, file.name, strlen(file.name));
  if (index < 0) index = number;
  if (index >= count) {
    status =
        CUVIL_FAIL(CU_ERR_INVALID_TENSOR_LAYOUT,
                   "%s: the model has only %d %ss", path.data, count, stem);
    goto fail;
  }
  CUVIL_TRY_GOTO(check_file(path.data, &file, &tensors[index]));
  if (!data[index]) data[index] = malloc(tensors[index].bytes + 1);
  if (!data[index]) {
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%s", path.data);
    goto fail;
  }
  memcpy(data[index], file.data, file.bytes);
  *out_read = true;
fail:
  cuvil_tensor_file_free(&file);
  cuvil_buf_free(&path);
  return status;
}

enum cuvil_status cuvil_run_io_test_data(struct cuvil_run_io *io,
                                         const char *folder) {
  bool read = true;
  int inputs = 0, outputs = 0;
  for (; read; inputs += read)
    CUVIL_TRY(load_numbered(folder, "input", inputs, io->input_count,
                            io->inputs, io->in, &read));
  read = true;
  for (; read; outputs += read)
    CUVIL_TRY(load_numbered(folder, "output", outputs, io->output_count,
                            io->outputs, io->expected, &read));
  if (inputs < io->input_count || outputs == 0)
    return CUVIL_FAIL(CU_ERR_IO,
                      "%s: %d of %d input_N.pb and %d of %d output_N.pb are "
                      "there",
                      folder, inputs, io->input_count, outputs,
                      io->output_count);
  io->compared_with = folder;
  return CUVIL_OK;
}

enum cuvil_status cuvil_run_io_save(const struct cuvil_run_io *io,
                                    const char *folder) {
  CUVIL_TRY(cuvil_make_dirs(folder));
  for (int i = 0; i < io->output_count; ++i) {
    struct cuvil_buf path = {0};
    cuvil_buf_printf(&path, "%s/", folder);
    size_t stem = path.size;
    cuvil_buf_printf(&path, "%s.npy", io->outputs[i].name);
    enum cuvil_status status = cuvil_buf_status(&path);
    for (size_t c = stem; status == CUVIL_OK && c < path.size; ++c)
      if (strchr("/\\: ", path.data[c])) path.data[c] = '_';
    if (status == CUVIL_OK)
      status = cuvil_tensor_write_npy(path.data, io->outputs[i].dtype,
                                      io->outputs[i].rank, io->outputs[i].dims,
                                      io->out[i]);
    cuvil_buf_free(&path);
    CUVIL_TRY(status);
  }
  return CUVIL_OK;
}

/* ---- reference */

enum cuvil_status cuvil_run_io_tensors(const struct cuvil_graph *graph,
                                       bool outputs,
                                       struct cuvil_plan_tensor **out) {
  int count = outputs ? graph->output_count : graph->input_count;
  const int *values = outputs ? graph->outputs : graph->inputs;
  *out = calloc((size_t)count + 1, sizeof(**out));
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "tensors");
  for (int i = 0; i < count; ++i) {
    const struct cuvil_value *value = &graph->values[values[i]];
    struct cuvil_plan_tensor *tensor = &(*out)[i];
    tensor->name = (char *)(uintptr_t)value->name;
    tensor->dtype = value->dtype;
    tensor->rank = value->rank;
    for (int d = 0; d < value->rank; ++d)
      tensor->dims[d] = value->dims[d];
    tensor->bytes =
        (uint64_t)elements_of(tensor) * cuvil_dtype_size(value->dtype);
  }
  return CUVIL_OK;
}

static enum cuvil_status same_tensors(const struct cuvil_graph *graph,
                                      bool outputs,
                                      const struct cuvil_plan_tensor *tensors,
                                      int count) {
  struct cuvil_plan_tensor *theirs = NULL;
  char a[128], b[128];
  int their_count = outputs ? graph->output_count : graph->input_count;
  if (their_count != count)
    return CUVIL_FAIL(CU_ERR_INVALID_TENSOR_LAYOUT,
                      "the plan has %d %s, %s has %d: it was compiled from "
                      "another model",
                      count, outputs ? "outputs" : "inputs",
                      graph->path ? graph->path : "the model", their_count);
  CUVIL_TRY(cuvil_run_io_tensors(graph, outputs, &theirs));
  enum cuvil_status status = CUVIL_OK;
  for (int i = 0; i < count && status == CUVIL_OK; ++i)
    if (strcmp(theirs[i].name, tensors[i].name) != 0 ||
        theirs[i].dtype != tensors[i].dtype ||
        theirs[i].rank != tensors[i].rank ||
        memcmp(theirs[i].dims, tensors[i].dims, sizeof(theirs[i].dims)) != 0)
      status = CUVIL_FAIL(
          CU_ERR_INVALID_TENSOR_LAYOUT,
          "the plan's `%s` %s is the model's `%s` %s: it was compiled from "
          "another model",
          tensors[i].name, cuvil_cli_shape(tensors[i].rank, tensors[i].dims, a),
          theirs[i].name, cuvil_cli_shape(theirs[i].rank, theirs[i].dims, b));
  free(theirs);
  return status;
}

enum cuvil_status cuvil_run_io_same(const struct cuvil_run_io *io,
                                    const struct cuvil_graph *graph) {
  CUVIL_TRY(same_tensors(graph, false, io->inputs, io->input_count));
  return same_tensors(graph, true, io->outputs, io->output_count);
}

enum cuvil_status cuvil_run_io_reference(struct cuvil_run_io *io,
                                         const struct cuvil_graph *graph) {
  for (int i = 0; i < io->output_count; ++i)
    if (!io->expected[i] &&
        !(io->expected[i] = calloc(1, io->outputs[i].bytes + 1)))
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "tensor `%s`",
                        io->outputs[i].name);
  io->compared_with = "the CPU executor";
  return cuvil_graph_execute(graph, (const void *const *)io->in, io->expected,
                             0);
}

void cuvil_run_io_describe(const struct cuvil_run_io *io, FILE *to) {
  for (int i = 0; i < io->output_count; ++i) {
    const struct cuvil_plan_tensor *tensor = &io->outputs[i];
    int64_t elements = elements_of(tensor), odd = 0;
    double low = INFINITY, high = -INFINITY, sum = 0;
    char shape[128];
    for (int64_t j = 0; j < elements; ++j) {
      double value = cuvil_load(tensor->dtype, io->out[i], (size_t)j);
      if (!isfinite(value)) {
        ++odd;
        continue;
      }
      sum += value;
      low = value < low ? value : low;
      high = value > high ? value : high;
    }
    fprintf(to, "%s %s %s: %.5g to %.5g, mean %.5g", tensor->name,
            cuvil_dtype_name(tensor->dtype),
            cuvil_cli_shape(tensor->rank, tensor->dims, shape), low, high,
            sum / (double)(elements - odd));
    if (odd) fprintf(to, ", %lld infinite or NaN", (long long)odd);
    fputc('\n', to);
  }
}

/* ---- comparison */

struct difference {
  double max_abs, max_rel, relative_l2;
  int64_t outside; /* elements beyond the elementwise tolerance */
};

static struct difference differ(const struct cuvil_plan_tensor *tensor,
                                const void *got, const void *expected,
                                const struct cuvil_run_tolerance *tolerance) {
  struct difference d = {0};
  double error = 0, norm = 0;
  int64_t elements = elements_of(tensor);
  for (int64_t i = 0; i < elements; ++i) {
    double x = cuvil_load(tensor->dtype, got, (size_t)i);
    double y = cuvil_load(tensor->dtype, expected, (size_t)i);
    /* Equal infinities and NaN on both sides are the same answer. */
    if (x == y || (isnan(x) && isnan(y))) {
      if (isfinite(y)) norm += y * y;
      continue;
    }
    double off = fabs(x - y);
    if (!isfinite(off)) off = INFINITY;
    if (off > d.max_abs) d.max_abs = off;
    if (y != 0 && off / fabs(y) > d.max_rel) d.max_rel = off / fabs(y);
    if (!(off <= tolerance->atol + tolerance->rtol * fabs(y))) ++d.outside;
    error += off * off;
    if (isfinite(y)) norm += y * y;
  }
  d.relative_l2 = norm > 0 ? sqrt(error / norm) : error > 0 ? INFINITY : 0;
  return d;
}

static enum cuvil_status add_row(json_t *report,
                                 const struct cuvil_plan_tensor *tensor,
                                 const struct difference *d, bool pass) {
  json_t *row = json_pack("{s:s, s:b, s:I}", "name", tensor->name, "pass", pass,
                          "outside", (json_int_t)d->outside);
  if (!row) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "report");
  /* JSON has no infinity: such a figure is left out. */
  if (isfinite(d->max_abs))
    json_object_set_new(row, "max_abs", json_real(d->max_abs));
  if (isfinite(d->max_rel))
    json_object_set_new(row, "max_rel", json_real(d->max_rel));
  if (isfinite(d->relative_l2))
    json_object_set_new(row, "relative_l2", json_real(d->relative_l2));
  if (json_array_append_new(report, row) != 0)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "report");
  return CUVIL_OK;
}

enum cuvil_status cuvil_run_io_compare(
    const struct cuvil_run_io *io, const struct cuvil_run_tolerance *tolerance,
    FILE *to, json_t *report) {
  int failed = 0, compared = 0;
  for (int i = 0; i < io->output_count; ++i) {
    const struct cuvil_plan_tensor *tensor = &io->outputs[i];
    char shape[128];
    if (!io->expected[i]) continue;
    struct difference d =
        differ(tensor, io->out[i], io->expected[i], tolerance);
    bool pass = tolerance->elementwise
                    ? d.outside == 0
                    : d.relative_l2 <= tolerance->relative_l2;
    fprintf(to, "%s %s: max abs %.3g, max rel %.3g, relative L2 %.3g",
            tensor->name, cuvil_cli_shape(tensor->rank, tensor->dims, shape),
            d.max_abs, d.max_rel, d.relative_l2);
    if (tolerance->elementwise)
      fprintf(to, " (%lld beyond %g + %g |x|)", (long long)d.outside,
              tolerance->atol, tolerance->rtol);
    else
      fprintf(to, " (limit %g)", tolerance->relative_l2);
    fprintf(to, ": %s\n", pass ? "pass" : "FAIL");
    if (report) CUVIL_TRY(add_row(report, tensor, &d, pass));
    ++compared;
    failed += !pass;
  }
  if (failed)
    return CUVIL_FAIL(CU_ERR_VERIFY_FAILED, "%d of %d outputs differ from %s",
                      failed, compared, io->compared_with);
  return CUVIL_OK;
}
