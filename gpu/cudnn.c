/* cudnn.c - convolutions and attention by cuDNN's backend interface.
 *
 * A call's operation graph (cudnn_graph.c, cudnn_attention.c) is run by an
 * engine with knob settings.  The heuristics list engine configurations; what
 * is stored of one is the engine's index and its knobs' values, and both the
 * choices listed and the calls prepared are built from those alone, so that
 * what was timed is what a plan will run.  Engines that would break the
 * problem's arithmetic (fp32 rounded to tf32, sums in half precision) are left
 * out by their numerical notes.
 */
#include "gpu/cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/dynamic.h"

enum { MAX_KNOBS = 64, MAX_CONFIGS = 64 };

struct dnn cuvil_dnn;
static bool loaded;

static enum cuvil_status load(void) {
  static const char *const files[] = {"libcudnn.so.9", "libcudnn.so", NULL};
  static const char *const names[] = {
#define NAME(name, result, parameters) #name,
      DNN_LIST(NAME)
#undef NAME
  };
  enum { COUNT = sizeof names / sizeof *names };
  void *handle, *pointers[COUNT];
  if (loaded) return CUVIL_OK;
  CUVIL_TRY(
      cuvil_dynamic_open(files, "CUVIL_CUDNN", "cuDNN's kernels", &handle));
  CUVIL_TRY(cuvil_dynamic_symbols(handle, "cuDNN", names, pointers, COUNT));
  int at = 0;
#define STORE(name, result, parameters) \
  cuvil_dnn.name = (result(*) parameters)pointers[at++];
  DNN_LIST(STORE)
#undef STORE
  loaded = true;
  return CUVIL_OK;
}

enum cuvil_status cuvil_dnn_status(int result, const char *what) {
  if (result == DNN_SUCCESS) return CUVIL_OK;
  char words[256] = "";
  cuvil_dnn.cudnnGetLastErrorString(words, sizeof words);
  words[strcspn(words, "\n")] = 0;
  return CUVIL_FAIL(CU_ERR_LIBRARY, "cuDNN, %s: %s (%d): %s", what,
                    cuvil_dnn.cudnnGetErrorString(result), result, words);
}

enum cuvil_status cuvil_dnn_create(int kind, void **out) {
  *out = NULL;
  return cuvil_dnn_status(cuvil_dnn.cudnnBackendCreateDescriptor(kind, out),
                          "creating a descriptor");
}

enum cuvil_status cuvil_dnn_set(void *descriptor, int attribute, int type,
                                int64_t count, const void *values) {
  char what[48];
  int result = cuvil_dnn.cudnnBackendSetAttribute(descriptor, attribute, type,
                                                  count, values);
  snprintf(what, sizeof what, "setting attribute %d", attribute);
  return cuvil_dnn_status(result, what);
}

enum cuvil_status cuvil_dnn_finalize(void *descriptor, const char *what) {
  return cuvil_dnn_status(cuvil_dnn.cudnnBackendFinalize(descriptor), what);
}

void cuvil_dnn_destroy(void *descriptor) {
  if (descriptor) cuvil_dnn.cudnnBackendDestroyDescriptor(descriptor);
}

static enum cuvil_status get(void *descriptor, int attribute, int type,
                             int64_t most, int64_t *out_count, void *out) {
  char what[48];
  int result = cuvil_dnn.cudnnBackendGetAttribute(descriptor, attribute, type,
                                                  most, out_count, out);
  snprintf(what, sizeof what, "reading attribute %d", attribute);
  return cuvil_dnn_status(result, what);
}

/* ---- an engine and its knobs: what is stored, and the plan built of it */

struct engine {
  int64_t id;
  int knob_count;
  struct {
    int type;
    int64_t value;
  } knobs[MAX_KNOBS];
};

struct dnn_call {
  struct cuvil_library_call base;
  struct dnn_graph graph;
  void *engine, *config, *plan, *pack; /* owned */
  void *knobs[MAX_KNOBS];              /* owned */
  int knob_count;
  int64_t workspace_limit;
  uint64_t packed[DNN_MAX_POINTERS + 1]; /* addresses that `pack` is of */
};

static void free_plan(struct dnn_call *call) {
  cuvil_dnn_destroy(call->pack);
  cuvil_dnn_destroy(call->plan);
  cuvil_dnn_destroy(call->config);
  while (call->knob_count > 0)
    cuvil_dnn_destroy(call->knobs[--call->knob_count]);
  cuvil_dnn_destroy(call->engine);
  call->pack = call->plan = call->config = call->engine = NULL;
}

static enum cuvil_status build_knobs(struct dnn_call *call,
                                     const struct engine *engine) {
  for (int i = 0; i < engine->knob_count; i++) {
    void **knob = &call->knobs[i];
    CUVIL_TRY(cuvil_dnn_create(DNN_KNOB_CHOICE, knob));
    call->knob_count = i + 1;
    CUVIL_TRY(cuvil_dnn_set(*knob, DNN_ATTR_KNOB_CHOICE_TYPE,
                            DNN_TYPE_KNOB_TYPE, 1, &engine->knobs[i].type));
    CUVIL_TRY(cuvil_dnn_set(*knob, DNN_ATTR_KNOB_CHOICE_VALUE, DNN_TYPE_INT64,
                            1, &engine->knobs[i].value));
    CUVIL_TRY(cuvil_dnn_finalize(*knob, "knob choice"));
  }
  return CUVIL_OK;
}

static enum cuvil_status build_plan(struct dnn_call *call,
                                    const struct engine *engine) {
  CUVIL_TRY(cuvil_dnn_create(DNN_ENGINE, &call->engine));
  CUVIL_TRY(cuvil_dnn_set(call->engine, DNN_ATTR_ENGINE_OPERATION_GRAPH,
                          DNN_TYPE_DESCRIPTOR, 1, &call->graph.graph));
  CUVIL_TRY(cuvil_dnn_set(call->engine, DNN_ATTR_ENGINE_GLOBAL_INDEX,
                          DNN_TYPE_INT64, 1, &engine->id));
  CUVIL_TRY(cuvil_dnn_finalize(call->engine, "engine"));
  CUVIL_TRY(build_knobs(call, engine));
  CUVIL_TRY(cuvil_dnn_create(DNN_ENGINECFG, &call->config));
  CUVIL_TRY(cuvil_dnn_set(call->config, DNN_ATTR_ENGINECFG_ENGINE,
                          DNN_TYPE_DESCRIPTOR, 1, &call->engine));
  if (call->knob_count > 0)
    CUVIL_TRY(cuvil_dnn_set(call->config, DNN_ATTR_ENGINECFG_KNOB_CHOICES,
                            DNN_TYPE_DESCRIPTOR, call->knob_count,
                            call->knobs));
  CUVIL_TRY(cuvil_dnn_finalize(call->config, "engine configuration"));
  CUVIL_TRY(cuvil_dnn_create(DNN_PLAN, &call->plan));
  CUVIL_TRY(cuvil_dnn_set(call->plan, DNN_ATTR_PLAN_HANDLE, DNN_TYPE_HANDLE, 1,
                          &call->graph.handle));
  CUVIL_TRY(cuvil_dnn_set(call->plan, DNN_ATTR_PLAN_ENGINE_CONFIG,
                          DNN_TYPE_DESCRIPTOR, 1, &call->config));
  CUVIL_TRY(cuvil_dnn_finalize(call->plan, "execution plan"));
  int64_t count, workspace = 0;
  CUVIL_TRY(get(call->plan, DNN_ATTR_PLAN_WORKSPACE_SIZE, DNN_TYPE_INT64, 1,
                &count, &workspace));
  if (workspace < 0 || workspace > call->workspace_limit)
    return CUVIL_FAIL(CU_ERR_LIBRARY,
                      "the cuDNN engine needs %lld bytes of workspace, the "
                      "call says %lld",
                      (long long)workspace, (long long)call->workspace_limit);
  call->base.workspace_bytes = (uint64_t)workspace;
  return CUVIL_OK;
}

static enum cuvil_status engine_from_json(const json_t *json,
                                          struct engine *out) {
  const json_t *knobs;
  memset(out, 0, sizeof *out);
  CUVIL_TRY(cuvil_json_get_int(json, "id", "library call", &out->id));
  CUVIL_TRY(cuvil_json_get_array(json, "knobs", "library call", &knobs));
  size_t count = json_array_size(knobs);
  if (count > MAX_KNOBS)
    return CUVIL_FAIL(CU_ERR_PARSE, "library call: %zu knobs", count);
  for (size_t i = 0; i < count; i++) {
    const json_t *pair = json_array_get(knobs, i);
    const json_t *type = json_array_get(pair, 0);
    const json_t *value = json_array_get(pair, 1);
    if (!json_is_integer(type) || !json_is_integer(value))
      return CUVIL_FAIL(CU_ERR_PARSE,
                        "library call: a knob must be [type, value]");
    out->knobs[i].type = (int)json_integer_value(type);
    out->knobs[i].value = json_integer_value(value);
  }
  out->knob_count = (int)count;
  return CUVIL_OK;
}

static json_t *engine_to_json(const struct engine *engine) {
  json_t *knobs = json_array();
  for (int i = 0; i < engine->knob_count; i++)
    json_array_append_new(knobs, json_pack("[i, I]", engine->knobs[i].type,
                                           (json_int_t)engine->knobs[i].value));
  return json_pack("{s:I, s:o}", "id", (json_int_t)engine->id, "knobs", knobs);
}

/* ---- what the heuristics offer */

/* Reads one configuration; *out_allowed false: its arithmetic is not ours. */
static enum cuvil_status read_notes(const struct dnn_graph *graph, void *engine,
                                    bool *out_allowed) {
  int notes[32];
  int64_t count = 0;
  CUVIL_TRY(get(engine, DNN_ATTR_ENGINE_NUMERICAL_NOTE, DNN_TYPE_NUMERICAL_NOTE,
                32, &count, notes));
  bool exact = graph->type == DNN_FLOAT && !graph->tf32;
  *out_allowed = true;
  for (int64_t i = 0; i < count && i < 32; i++) {
    if (notes[i] == DNN_NOTE_REDUCED_PRECISION_REDUCTION) *out_allowed = false;
    if (exact && (notes[i] == DNN_NOTE_TENSOR_CORE ||
                  notes[i] == DNN_NOTE_DOWN_CONVERT_INPUTS))
      *out_allowed = false;
  }
  return CUVIL_OK;
}

static enum cuvil_status read_engine(const struct dnn_graph *graph,
                                     void *config, struct engine *out,
                                     bool *out_allowed) {
  void *engine = NULL;
  int64_t count;
  enum cuvil_status status = CUVIL_OK;
  *out_allowed = false;
  CUVIL_TRY_GOTO(cuvil_dnn_create(DNN_ENGINE, &engine));
  CUVIL_TRY_GOTO(get(config, DNN_ATTR_ENGINECFG_ENGINE, DNN_TYPE_DESCRIPTOR, 1,
                     &count, &engine));
  CUVIL_TRY_GOTO(get(engine, DNN_ATTR_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, 1,
                     &count, &out->id));
  CUVIL_TRY_GOTO(read_notes(graph, engine, out_allowed));
fail:
  cuvil_dnn_destroy(engine);
  return status;
}

static enum cuvil_status read_knobs(void *config, struct engine *out) {
  void *knobs[MAX_KNOBS] = {NULL};
  int64_t count = 0, one;
  enum cuvil_status status = CUVIL_OK;
  for (int i = 0; i < MAX_KNOBS; i++)
    CUVIL_TRY_GOTO(cuvil_dnn_create(DNN_KNOB_CHOICE, &knobs[i]));
  CUVIL_TRY_GOTO(get(config, DNN_ATTR_ENGINECFG_KNOB_CHOICES,
                     DNN_TYPE_DESCRIPTOR, MAX_KNOBS, &count, knobs));
  if (count > MAX_KNOBS)
    CUVIL_TRY_GOTO(CUVIL_FAIL(CU_ERR_LIBRARY, "a cuDNN engine with %lld knobs",
                              (long long)count));
  for (int64_t i = 0; i < count; i++) {
    CUVIL_TRY_GOTO(get(knobs[i], DNN_ATTR_KNOB_CHOICE_TYPE, DNN_TYPE_KNOB_TYPE,
                       1, &one, &out->knobs[i].type));
    CUVIL_TRY_GOTO(get(knobs[i], DNN_ATTR_KNOB_CHOICE_VALUE, DNN_TYPE_INT64, 1,
                       &one, &out->knobs[i].value));
  }
  out->knob_count = (int)count;
fail:
  for (int i = 0; i < MAX_KNOBS; i++)
    cuvil_dnn_destroy(knobs[i]);
  return status;
}

static bool same_engine(const struct engine *a, const struct engine *b) {
  if (a->id != b->id || a->knob_count != b->knob_count) return false;
  for (int i = 0; i < a->knob_count; i++)
    if (a->knobs[i].type != b->knobs[i].type ||
        a->knobs[i].value != b->knobs[i].value)
      return false;
  return true;
}

struct engine_list {
  int count;
  struct engine engines[MAX_CONFIGS];
};

/* Appends what is new; a configuration that cannot be read is not one that
 * could be stored, so it is passed over. */
static void keep_engine(const struct dnn_graph *graph, void *config,
                        struct engine_list *list) {
  if (list->count == MAX_CONFIGS) return;
  struct engine *engine = &list->engines[list->count];
  bool allowed;
  memset(engine, 0, sizeof *engine);
  if (read_engine(graph, config, engine, &allowed) != CUVIL_OK || !allowed ||
      read_knobs(config, engine) != CUVIL_OK)
    return;
  for (int i = 0; i < list->count; i++)
    if (same_engine(&list->engines[i], engine)) return;
  list->count++;
}

static enum cuvil_status query(const struct dnn_graph *graph, int mode,
                               struct engine_list *list) {
  void *heuristics = NULL, *configs[MAX_CONFIGS] = {NULL};
  int64_t count = 0;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_dnn_create(DNN_ENGINEHEUR, &heuristics));
  CUVIL_TRY_GOTO(cuvil_dnn_set(heuristics, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                               DNN_TYPE_DESCRIPTOR, 1, &graph->graph));
  CUVIL_TRY_GOTO(cuvil_dnn_set(heuristics, DNN_ATTR_ENGINEHEUR_MODE,
                               DNN_TYPE_HEUR_MODE, 1, &mode));
  CUVIL_TRY_GOTO(cuvil_dnn_finalize(heuristics, "engine heuristics"));
  for (int i = 0; i < MAX_CONFIGS; i++)
    CUVIL_TRY_GOTO(cuvil_dnn_create(DNN_ENGINECFG, &configs[i]));
  CUVIL_TRY_GOTO(get(heuristics, DNN_ATTR_ENGINEHEUR_RESULTS,
                     DNN_TYPE_DESCRIPTOR, MAX_CONFIGS, &count, configs));
  for (int64_t i = 0; i < count && i < MAX_CONFIGS; i++)
    keep_engine(graph, configs[i], list);
fail:
  for (int i = 0; i < MAX_CONFIGS; i++)
    cuvil_dnn_destroy(configs[i]);
  cuvil_dnn_destroy(heuristics);
  return status;
}

/* Mode A's order is the library's own; B and the fallback list add to it. */
static enum cuvil_status list_engines(const struct dnn_graph *graph,
                                      struct engine_list *list) {
  static const int modes[] = {DNN_HEUR_MODE_A, DNN_HEUR_MODE_B,
                              DNN_HEUR_MODE_FALLBACK};
  enum cuvil_status status = CUVIL_OK;
  list->count = 0;
  for (int i = 0; i < 3; i++) {
    enum cuvil_status one = query(graph, modes[i], list);
    if (one != CUVIL_OK) status = one;
  }
  if (list->count > 0) return CUVIL_OK;
  if (status != CUVIL_OK) return status;
  return CUVIL_FAIL(CU_ERR_LIBRARY, "cuDNN has no engine for this %s",
                    graph->is_attention ? "attention" : "convolution");
}

/* ---- the library's table */

static void destroy(struct cuvil_library_call *base) {
  struct dnn_call *call = (struct dnn_call *)base;
  free_plan(call);
  cuvil_dnn_graph_free(&call->graph);
  free(call);
}

static enum cuvil_status open_call(struct cuvil_gpu *gpu, const json_t *json,
                                   int64_t workspace, struct dnn_call **out) {
  *out = NULL;
  CUVIL_TRY(load());
  if (!gpu->cudnn)
    CUVIL_TRY(cuvil_dnn_status(cuvil_dnn.cudnnCreate(&gpu->cudnn),
                               "creating its handle"));
  struct dnn_call *call = calloc(1, sizeof *call);
  if (!call) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library call");
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_dnn_graph_read(json, &call->graph));
  CUVIL_TRY_GOTO(cuvil_call_int(json, "workspace", workspace, 0, INT64_MAX / 2,
                                &call->workspace_limit));
  call->graph.handle = gpu->cudnn;
  call->base.library = &cuvil_library_cudnn;
  CUVIL_TRY_GOTO(cuvil_dnn_graph_build(&call->graph));
  call->base.binding_count = call->graph.id_count + 1;
  *out = call;
  return CUVIL_OK;
fail:
  destroy(&call->base);
  return status;
}

/* The first of the library's list that can be built within the workspace. */
static enum cuvil_status build_first(struct dnn_call *call) {
  struct engine_list *list = calloc(1, sizeof *list);
  if (!list) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "cuDNN engines");
  enum cuvil_status status = list_engines(&call->graph, list);
  for (int i = 0; status == CUVIL_OK && i < list->count; i++) {
    status = build_plan(call, &list->engines[i]);
    if (status == CUVIL_OK) break;
    free_plan(call);
    if (i + 1 < list->count) status = CUVIL_OK;
  }
  free(list);
  return status;
}

static enum cuvil_status prepare(struct cuvil_gpu *gpu, const json_t *json,
                                 struct cuvil_library_call **out) {
  struct dnn_call *call;
  struct engine engine;
  enum cuvil_status status = CUVIL_OK;
  const json_t *chosen = json_object_get(json, "engine");
  CUVIL_TRY(open_call(gpu, json, 0, &call));
  if (chosen) {
    CUVIL_TRY_GOTO(engine_from_json(chosen, &engine));
    CUVIL_TRY_GOTO(build_plan(call, &engine));
  } else {
    CUVIL_TRY_GOTO(build_first(call));
  }
  *out = &call->base;
  return CUVIL_OK;
fail:
  destroy(&call->base);
  return status;
}

static enum cuvil_status pack(struct dnn_call *call,
                              const uint64_t *addresses) {
  struct dnn_graph *graph = &call->graph;
  int count = graph->id_count, all = count + graph->constant_count;
  void *pointers[DNN_MAX_POINTERS + DNN_MAX_CONSTANTS];
  int64_t ids[DNN_MAX_POINTERS + DNN_MAX_CONSTANTS];
  void *workspace = (void *)(uintptr_t)addresses[count];
  cuvil_dnn_destroy(call->pack);
  call->pack = NULL;
  for (int i = 0; i < all; i++) {
    ids[i] = i < count ? graph->ids[i] : graph->constant_ids[i - count];
    pointers[i] = i < count ? (void *)(uintptr_t)addresses[i]
                            : (void *)&graph->constants[i - count];
  }
  CUVIL_TRY(cuvil_dnn_create(DNN_VARIANT_PACK, &call->pack));
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_dnn_set(call->pack, DNN_ATTR_PACK_UNIQUE_IDS,
                               DNN_TYPE_INT64, all, ids));
  CUVIL_TRY_GOTO(cuvil_dnn_set(call->pack, DNN_ATTR_PACK_DATA_POINTERS,
                               DNN_TYPE_VOID_PTR, all, pointers));
  CUVIL_TRY_GOTO(cuvil_dnn_set(call->pack, DNN_ATTR_PACK_WORKSPACE,
                               DNN_TYPE_VOID_PTR, 1, &workspace));
  CUVIL_TRY_GOTO(cuvil_dnn_finalize(call->pack, "variant pack"));
  memcpy(call->packed, addresses, ((size_t)count + 1) * sizeof *addresses);
  return CUVIL_OK;
fail:
  cuvil_dnn_destroy(call->pack);
  call->pack = NULL;
  return status;
}

static enum cuvil_status run(struct cuvil_library_call *base,
                             const uint64_t *addresses,
                             struct cuvil_gpu_stream *stream) {
  struct dnn_call *call = (struct dnn_call *)base;
  size_t size = ((size_t)call->graph.id_count + 1) * sizeof *addresses;
  if (!call->pack || memcmp(call->packed, addresses, size) != 0)
    CUVIL_TRY(pack(call, addresses));
  CUVIL_TRY(cuvil_dnn_status(
      cuvil_dnn.cudnnSetStream(call->graph.handle, stream->handle),
      "setting its stream"));
  return cuvil_dnn_status(
      cuvil_dnn.cudnnBackendExecute(call->graph.handle, call->plan, call->pack),
      "running its plan");
}

static enum cuvil_status add_choice(const json_t *json,
                                    const struct dnn_call *call,
                                    const struct engine *engine,
                                    json_t *choices) {
  json_t *choice = json_deep_copy(json);
  json_int_t workspace = (json_int_t)call->base.workspace_bytes;
  if (json_object_set_new(choice, "engine", engine_to_json(engine)) == 0 &&
      json_object_set_new(choice, "workspace", json_integer(workspace)) == 0 &&
      json_array_append_new(choices, choice) == 0)
    return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library choices");
}

static enum cuvil_status choices(struct cuvil_gpu *gpu, const json_t *json,
                                 int limit, json_t **out) {
  struct dnn_call *call;
  enum cuvil_status status = CUVIL_OK;
  json_t *array = json_array();
  struct engine_list *list = calloc(1, sizeof *list);
  CUVIL_TRY_GOTO(open_call(gpu, json, (int64_t)1 << 30, &call));
  if (!array || !list)
    status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "library choices");
  if (status == CUVIL_OK) status = list_engines(&call->graph, list);
  for (int i = 0; status == CUVIL_OK && i < list->count; i++) {
    if (json_array_size(array) >= (size_t)limit) break;
    /* The list holds engines that turn out not to support the graph. */
    if (build_plan(call, &list->engines[i]) == CUVIL_OK)
      status = add_choice(json, call, &list->engines[i], array);
    free_plan(call);
  }
  destroy(&call->base);
  if (status == CUVIL_OK && json_array_size(array) == 0)
    status = CUVIL_FAIL(CU_ERR_LIBRARY,
                        "no cuDNN engine can be built for this call; the "
                        "last: %s",
                        cuvil_error_last()->message);
fail:
  free(list);
  if (status == CUVIL_OK)
    *out = array;
  else
    json_decref(array);
  return status;
}

static void version(char *out, size_t size) {
  if (load() != CUVIL_OK) return;
  size_t number = cuvil_dnn.cudnnGetVersion();
  snprintf(out, size, "%zu.%zu.%zu", number / 10000, number / 100 % 100,
           number % 100);
}

void cuvil_cudnn_close(struct cuvil_gpu *gpu) {
  if (gpu->cudnn) cuvil_dnn.cudnnDestroy(gpu->cudnn);
  gpu->cudnn = NULL;
}

const struct cuvil_library cuvil_library_cudnn = {
    .name = "cudnn",
    .prepare = prepare,
    .destroy = destroy,
    .run = run,
    .choices = choices,
    .version = version,
};
