/* conformance.c - see conformance.h.
 *
 * The model is looked at as a message only to know the order of its inputs and
 * outputs (data files are numbered, not always named) and to make inputs into
 * initializers; everything else is the library's own road: import, execute,
 * fuse.
 */
#include "tests/support/conformance.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "graph/execute.h"
#include "graph/tensor_file.h"
#include "onnx.pb-c.h"

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

char **conformance_list(const char *folder, int *out_count) {
  DIR *dir = opendir(folder);
  char **names = NULL;
  int count = 0, capacity = 0;
  *out_count = 0;
  if (!dir) return NULL;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s/model.onnx", folder, entry->d_name);
    if (entry->d_name[0] == '.' || access(path, R_OK) != 0) continue;
    if (count == capacity) {
      capacity = capacity ? 2 * capacity : 256;
      names = realloc(names, (size_t)capacity * sizeof(*names));
      if (!names) abort();
    }
    names[count++] = strdup(entry->d_name);
  }
  closedir(dir);
  if (names) qsort(names, (size_t)count, sizeof(*names), by_name);
  *out_count = count;
  return names;
}

static void one_line(char detail[512], const char *text) {
  snprintf(detail, 512, "%.500s", text);
  for (char *c = detail; *c; ++c)
    if (*c == '\n') *c = ' ';
}

static enum conformance_outcome failed(enum cuvil_status status,
                                       char detail[512]) {
  one_line(detail, cuvil_last_error());
  return status == CU_ERR_MODEL_UNSUPPORTED ? CONFORMANCE_REFUSED
                                            : CONFORMANCE_WRONG;
}

static Onnx__ModelProto *read_model(const char *path) {
  struct cuvil_buf bytes = {0};
  Onnx__ModelProto *model = NULL;
  if (cuvil_file_read(path, &bytes) == CUVIL_OK)
    model = onnx__model_proto__unpack(NULL, bytes.size,
                                      (const uint8_t *)bytes.data);
  cuvil_buf_free(&bytes);
  return model;
}

/* A tensor's file, or NULL.  The generator of these files wrote bfloat16 as
 * plain 16-bit integers, and the model says what is meant. */
static Onnx__TensorProto *read_tensor(const char *path,
                                      const Onnx__ValueInfoProto *declared) {
  struct cuvil_buf bytes = {0};
  Onnx__TensorProto *tensor = NULL;
  if (!declared->type ||
      declared->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    return NULL; /* a sequence or an optional */
  if (cuvil_file_read(path, &bytes) == CUVIL_OK)
    tensor = onnx__tensor_proto__unpack(NULL, bytes.size,
                                        (const uint8_t *)bytes.data);
  cuvil_buf_free(&bytes);
  int wanted = declared->type->tensor_type->elem_type;
  if (tensor && wanted == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16 &&
      tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16)
    tensor->data_type = wanted;
  return tensor;
}

static void drop(Onnx__TensorProto **tensors, size_t count) {
  for (size_t i = 0; tensors && i < count; ++i)
    if (tensors[i]) onnx__tensor_proto__free_unpacked(tensors[i], NULL);
  free(tensors);
}

static bool write_model(const Onnx__ModelProto *model, const char *path) {
  size_t size = onnx__model_proto__get_packed_size(model);
  uint8_t *packed = malloc(size + 1);
  if (!packed) abort();
  onnx__model_proto__pack(model, packed);
  FILE *file = fopen(path, "wb");
  bool good = file && fwrite(packed, 1, size, file) == size;
  if (file) good = fclose(file) == 0 && good;
  free(packed);
  return good;
}

/* Only the first output of the only node is asked for. */
static bool drop_outputs(Onnx__GraphProto *graph) {
  if (graph->n_node != 1 || graph->n_output < 2 ||
      strcmp(graph->node[0]->op_type, "Split") == 0)
    return false;
  Onnx__NodeProto *node = graph->node[0];
  while (graph->n_output > 1)
    onnx__value_info_proto__free_unpacked(graph->output[--graph->n_output],
                                          NULL);
  while (node->n_output > 1)
    free(node->output[--node->n_output]);
  return true;
}

/* Every input but the first becomes an initializer with the data of its file,
 * in a model written to `path`.  false: one of them is no tensor, or nothing
 * changes. */
static bool settle(const struct conformance_case *c, Onnx__ModelProto *model,
                   const char *path) {
  Onnx__GraphProto *graph = model->graph;
  size_t count = graph->n_input;
  if (count < 2) return drop_outputs(graph) && write_model(model, path);
  Onnx__TensorProto **data = calloc(count, sizeof(*data));
  if (!data) abort();
  for (size_t i = 1; i < count; ++i) {
    char file[1024];
    snprintf(file, sizeof(file), "%s/test_data_set_0/input_%zu.pb", c->folder,
             i);
    data[i] = read_tensor(file, graph->input[i]);
    char *name = strdup(graph->input[i]->name);
    if (!name) abort();
    if (!data[i]) {
      free(name);
      drop(data, count);
      return false;
    }
    if (data[i]->name != protobuf_c_empty_string) free(data[i]->name);
    data[i]->name = name;
  }
  graph->initializer =
      realloc(graph->initializer,
              (graph->n_initializer + count) * sizeof(*graph->initializer));
  if (!graph->initializer) abort();
  for (size_t i = 1; i < count; ++i) {
    graph->initializer[graph->n_initializer++] = data[i];
    onnx__value_info_proto__free_unpacked(graph->input[i], NULL);
  }
  graph->n_input = 1;
  free(data);
  drop_outputs(graph);
  return write_model(model, path);
}

static void *load(const struct conformance_case *c, const char *stem,
                  size_t number, const Onnx__ValueInfoProto *declared,
                  const struct cuvil_value *value, char detail[512]) {
  char path[1024];
  struct cuvil_tensor_file file = {0};
  snprintf(path, sizeof(path), "%s/test_data_set_0/%s_%zu.pb", c->folder, stem,
           number);
  Onnx__TensorProto *tensor = read_tensor(path, declared);
  if (!tensor) {
    snprintf(detail, 512, "%s_%zu.pb is no tensor", stem, number);
    return NULL;
  }
  size_t size = onnx__tensor_proto__get_packed_size(tensor);
  uint8_t *bytes = malloc(size + 1);
  if (!bytes) abort();
  onnx__tensor_proto__pack(tensor, bytes);
  onnx__tensor_proto__free_unpacked(tensor, NULL);
  enum cuvil_status status = cuvil_tensor_parse_pb(bytes, size, &file);
  free(bytes);
  bool same = status == CUVIL_OK && file.dtype == value->dtype &&
              file.rank == value->rank;
  for (int i = 0; same && i < file.rank; ++i)
    same = file.dims[i] == value->dims[i];
  void *data = file.data;
  if (same) {
    file.data = NULL;
    if (!data) data = calloc(1, 1);
  } else {
    data = NULL;
    if (status != CUVIL_OK)
      one_line(detail, cuvil_last_error());
    else
      snprintf(detail, 512, "%s_%zu.pb: type or shape is not what was inferred",
               stem, number);
  }
  cuvil_tensor_file_free(&file);
  return data;
}

/* The number of the file that holds graph value `name`. */
static size_t number_of(Onnx__ValueInfoProto *const *infos, size_t count,
                        const char *name) {
  for (size_t i = 0; i < count; ++i)
    if (infos[i] && strcmp(infos[i]->name, name) == 0) return i;
  return count;
}

static enum conformance_outcome load_all(struct conformance_case *c,
                                         const Onnx__GraphProto *model,
                                         char detail[512]) {
  const struct cuvil_graph *graph = c->graph;
  c->input_count = graph->input_count;
  c->output_count = graph->output_count;
  if (c->input_count > CONFORMANCE_MAX_TENSORS ||
      c->output_count > CONFORMANCE_MAX_TENSORS) {
    snprintf(detail, 512, "more than %d tensors", CONFORMANCE_MAX_TENSORS);
    return CONFORMANCE_WRONG;
  }
  for (int i = 0; i < c->input_count; ++i) {
    const struct cuvil_value *value = &graph->values[graph->inputs[i]];
    size_t number = number_of(model->input, model->n_input, value->name);
    if (number == model->n_input ||
        !(c->inputs[i] =
              load(c, "input", number, model->input[number], value, detail)))
      return CONFORMANCE_REFUSED; /* data that the declaration denies */
  }
  for (int i = 0; i < c->output_count; ++i) {
    const struct cuvil_value *value = &graph->values[graph->outputs[i]];
    size_t number = number_of(model->output, model->n_output, value->name);
    size_t bytes =
        (size_t)cuvil_value_elements(value) * cuvil_dtype_size(value->dtype);
    if (number == model->n_output ||
        !(c->expected[i] =
              load(c, "output", number, model->output[number], value, detail)))
      return CONFORMANCE_WRONG;
    if (!(c->outputs[i] = malloc(bytes + 1))) abort();
    memset(c->outputs[i], 0xa5, bytes);
  }
  return CONFORMANCE_RIGHT;
}

/* Imports the second form.  `model` is another one afterwards: the file's own
 * again, because data files are numbered by its tensors. */
static enum cuvil_status import_settled(struct conformance_case *c,
                                        const char *path,
                                        Onnx__ModelProto **model) {
  char settled[256];
  const char *tmp = getenv("TMPDIR");
  enum cuvil_status status = CU_ERR_MODEL_UNSUPPORTED;
  snprintf(settled, sizeof(settled), "%s/cuvil-conformance-%d.onnx",
           tmp ? tmp : "/tmp", (int)getpid());
  if (settle(c, *model, settled))
    status = cuvil_graph_import(settled, NULL, &c->graph);
  c->settled = status == CUVIL_OK;
  onnx__model_proto__free_unpacked(*model, NULL);
  *model = read_model(path);
  if (!*model) abort();
  unlink(settled);
  return status;
}

enum conformance_outcome conformance_open(const char *folder, const char *name,
                                          enum conformance_form form,
                                          struct conformance_case *out,
                                          char detail[512]) {
  enum conformance_outcome outcome;
  char path[1024];
  memset(out, 0, sizeof(*out));
  detail[0] = '\0';
  snprintf(out->name, sizeof(out->name), "%s", name);
  snprintf(out->folder, sizeof(out->folder), "%s/%s", folder, name);
  snprintf(path, sizeof(path), "%s/model.onnx", out->folder);
  Onnx__ModelProto *model = read_model(path);
  if (!model || !model->graph) {
    snprintf(detail, 512, "model.onnx cannot be read");
    if (model) onnx__model_proto__free_unpacked(model, NULL);
    return CONFORMANCE_WRONG;
  }
  if (model->graph->n_node == 1)
    snprintf(out->op, sizeof(out->op), "%s", model->graph->node[0]->op_type);
  enum cuvil_status status = CU_ERR_MODEL_UNSUPPORTED;
  if (form != CONFORMANCE_SETTLED)
    status = cuvil_graph_import(path, NULL, &out->graph);
  if (status == CU_ERR_MODEL_UNSUPPORTED && form != CONFORMANCE_SHIPPED)
    status = import_settled(out, path, &model);
  if (status != CUVIL_OK)
    outcome = failed(status, detail);
  else
    outcome = load_all(out, model->graph, detail);
  onnx__model_proto__free_unpacked(model, NULL);
  return outcome;
}

void conformance_close(struct conformance_case *c) {
  for (int i = 0; i < CONFORMANCE_MAX_TENSORS; ++i) {
    free(c->inputs[i]);
    free(c->expected[i]);
    free(c->outputs[i]);
  }
  cuvil_graph_destroy(c->graph);
  memset(c, 0, sizeof(*c));
}

enum conformance_outcome conformance_compare(const struct conformance_case *c,
                                             bool half, char detail[512]) {
  for (int o = 0; o < c->output_count; ++o) {
    const struct cuvil_value *value = &c->graph->values[c->graph->outputs[o]];
    double rtol = 1e-3, atol = 1e-5; /* rtol: ONNX's own */
    if (half || value->dtype == CUVIL_F16) rtol = 1e-2, atol = 2e-2;
    if (value->dtype == CUVIL_BF16) rtol = 2e-2, atol = 2e-2;
    if (!cuvil_dtype_is_float(value->dtype)) rtol = atol = 0;
    int64_t count = cuvil_value_elements(value);
    for (int64_t i = 0; i < count; ++i) {
      double got = cuvil_load(value->dtype, c->outputs[o], (size_t)i);
      double want = cuvil_load(value->dtype, c->expected[o], (size_t)i);
      if (got == want || (isnan(got) && isnan(want))) continue;
      if (fabs(got - want) <= atol + rtol * fabs(want)) continue;
      snprintf(detail, 512, "output %d at %lld is %.9g, not %.9g", o,
               (long long)i, got, want);
      return CONFORMANCE_WRONG;
    }
  }
  return CONFORMANCE_RIGHT;
}

enum conformance_outcome conformance_cpu(struct conformance_case *c,
                                         char detail[512]) {
  enum cuvil_status status = cuvil_graph_execute(
      c->graph, (const void *const *)c->inputs, c->outputs, 1);
  if (status != CUVIL_OK) return failed(status, detail);
  return conformance_compare(c, false, detail);
}

/* Neighbouring integers differ in fp16 up to here: beyond, rounding the inputs
 * alone changes a softmax of them. */
bool conformance_half_holds(const struct conformance_case *c) {
  for (int i = 0; i < c->input_count; ++i) {
    const struct cuvil_value *value = &c->graph->values[c->graph->inputs[i]];
    if (!cuvil_dtype_is_float(value->dtype)) continue;
    int64_t count = cuvil_value_elements(value);
    for (int64_t j = 0; j < count; ++j) {
      double x = cuvil_load(value->dtype, c->inputs[i], (size_t)j);
      if (isfinite(x) && fabs(x) > 2048) return false;
    }
  }
  return true;
}

enum conformance_outcome conformance_fused(
    struct conformance_case *c, const struct cuvil_fusion_options *options,
    char detail[512]) {
  struct cuvil_fused *fused;
  bool half = options->precision == CUVIL_PRECISION_FP16;
  if (half && !conformance_half_holds(c)) {
    snprintf(detail, 512, "inputs are too large for fp16");
    return CONFORMANCE_REFUSED;
  }
  enum cuvil_status status = cuvil_fuse(c->graph, options, &fused);
  if (status != CUVIL_OK) return failed(status, detail);
  status =
      cuvil_fused_execute(fused, (const void *const *)c->inputs, c->outputs, 1);
  cuvil_fused_destroy(fused);
  if (status != CUVIL_OK) {
    one_line(detail, cuvil_last_error());
    return CONFORMANCE_WRONG;
  }
  return conformance_compare(c, half, detail);
}
