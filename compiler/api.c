/* api.c - the public C API, over the same functions as the commands.
 *
 * Everything a user may hold is opaque and thin: a context is the GPU or its
 * absence, a database a handle for reading, an instance a plan with its
 * session.  Only what the header promises is checked here; the rooms below
 * check the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/compiler.h"

struct cuvil_context {
  struct cuvil_gpu *gpu; /* NULL: compiling only */
};

struct cuvil_database {
  struct cuvil_db *db;
};

struct cuvil_instance {
  struct cuvil_context *context; /* borrowed */
  struct cuvil_plan *plan;
  struct cuvil_session *session;
  struct cuvil_gpu_stream *stream; /* wraps the caller's last one */
  void *cu_stream;
};

enum cuvil_status cuvil_context_create(int device, struct cuvil_context **out) {
  *out = NULL;
  struct cuvil_context *context = calloc(1, sizeof(*context));
  if (!context) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "out of memory");
  if (device >= 0) {
    enum cuvil_status status = cuvil_gpu_open(device, &context->gpu);
    if (status != CUVIL_OK) {
      free(context);
      return status;
    }
  }
  *out = context;
  return CUVIL_OK;
}

void cuvil_context_destroy(struct cuvil_context *context) {
  if (!context) return;
  cuvil_gpu_close(context->gpu);
  free(context);
}

enum cuvil_status cuvil_database_open(const char *path,
                                      struct cuvil_database **out) {
  *out = NULL;
  struct cuvil_database *database = calloc(1, sizeof(*database));
  if (!database) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "out of memory");
  enum cuvil_status status = cuvil_db_open(path, CUVIL_DB_READ, &database->db);
  if (status != CUVIL_OK) {
    free(database);
    return status;
  }
  *out = database;
  return CUVIL_OK;
}

void cuvil_database_close(struct cuvil_database *database) {
  if (!database) return;
  cuvil_db_close(database->db);
  free(database);
}

/* What is compiled for: the GPU, or the table's architecture of that name. */
static enum cuvil_status target_of(const struct cuvil_context *context,
                                   const char *name,
                                   const struct cuvil_arch **out_arch,
                                   struct cuvil_env *out_env) {
  memset(out_env, 0, sizeof(*out_env));
  const struct cuvil_arch *device =
      context->gpu ? cuvil_gpu_arch(context->gpu) : NULL;
  if (!name && !device)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "no GPU and no architecture to compile for; name one of "
                      "%s",
                      cuvil_arch_names());
  if (device && (!name || strcmp(name, device->name) == 0)) {
    *out_arch = device;
    *out_env = *cuvil_gpu_env(context->gpu);
    return CUVIL_OK;
  }
  *out_arch = cuvil_arch_find(name);
  if (!*out_arch)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "there is no architecture %s; known: %s", name,
                      cuvil_arch_names());
  memcpy(out_env->arch, (*out_arch)->name, sizeof(out_env->arch));
  return CUVIL_OK;
}

static enum cuvil_status model_options(
    const char *path, const struct cuvil_compile_options *options,
    struct cuvil_model_options *out) {
  *out = (struct cuvil_model_options){
      .path = path,
      .shapes = options->shapes,
      .fusion = {CUVIL_FUSION_DEFAULT, CUVIL_PRECISION_MODEL}};
  if (options->precision)
    CUVIL_TRY(
        cuvil_precision_parse(options->precision, &out->fusion.precision));
  if (options->fusion)
    CUVIL_TRY(
        cuvil_fusion_strategy_parse(options->fusion, &out->fusion.strategy));
  return CUVIL_OK;
}

enum cuvil_status cuvil_compile(struct cuvil_context *context,
                                struct cuvil_database *database,
                                const char *model,
                                const struct cuvil_compile_options *options,
                                const char *plan_path) {
  static const struct cuvil_compile_options none;
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_model_options from;
  struct cuvil_model opened = {0};
  struct cuvil_plan *plan = NULL;
  struct cuvil_compiler_report report;
  struct cuvil_env env;
  if (!options) options = &none;
  struct cuvil_compiler_options how = {
      .env = &env,
      .db = database ? database->db : NULL,
      .cubin_dir = database ? cuvil_db_cubin_dir(database->db) : NULL,
      .require_tuned = options->require_tuned != 0,
      .jobs = options->jobs};
  CUVIL_TRY(target_of(context, options->arch, &how.arch, &env));
  CUVIL_TRY(model_options(model, options, &from));
  CUVIL_TRY(cuvil_model_open(&from, &opened));
  CUVIL_TRY_GOTO(cuvil_compile_fused(opened.fused, &how, &plan, &report));
  CUVIL_TRY_GOTO(cuvil_plan_write(plan, plan_path));
fail:
  cuvil_plan_destroy(plan);
  cuvil_model_close(&opened);
  return status;
}

enum cuvil_status cuvil_instance_load(struct cuvil_context *context,
                                      const char *path,
                                      struct cuvil_instance **out) {
  *out = NULL;
  if (!context->gpu)
    return CUVIL_FAIL(CU_ERR_NO_DEVICE,
                      "%s: a plan runs on a GPU; this context has none", path);
  struct cuvil_instance *instance = calloc(1, sizeof(*instance));
  if (!instance) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "out of memory");
  enum cuvil_status status = CUVIL_OK;
  instance->context = context;
  CUVIL_TRY_GOTO(cuvil_plan_read(path, &instance->plan));
  CUVIL_TRY_GOTO(
      cuvil_session_create(context->gpu, instance->plan, &instance->session));
  CUVIL_TRY_GOTO(cuvil_gpu_stream_wrap(context->gpu, NULL, &instance->stream));
  *out = instance;
  return CUVIL_OK;
fail:
  cuvil_instance_unload(instance);
  return status;
}

void cuvil_instance_unload(struct cuvil_instance *instance) {
  if (!instance) return;
  cuvil_gpu_stream_destroy(instance->stream);
  cuvil_session_destroy(instance->session);
  cuvil_plan_destroy(instance->plan);
  free(instance);
}

int cuvil_instance_inputs(const struct cuvil_instance *instance) {
  return instance->plan->input_count;
}

int cuvil_instance_outputs(const struct cuvil_instance *instance) {
  return instance->plan->output_count;
}

static enum cuvil_status info_of(const struct cuvil_plan_tensor *tensors,
                                 int count, const char *what, int index,
                                 struct cuvil_tensor_info *out) {
  memset(out, 0, sizeof(*out));
  if (index < 0 || index >= count)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "there is no %s %d; the plan has %d", what, index, count);
  const struct cuvil_plan_tensor *tensor = &tensors[index];
  out->name = tensor->name;
  out->dtype = cuvil_dtype_name(tensor->dtype);
  out->rank = tensor->rank;
  memcpy(out->dims, tensor->dims, sizeof(out->dims));
  out->bytes = tensor->bytes;
  return CUVIL_OK;
}

enum cuvil_status cuvil_instance_input_info(
    const struct cuvil_instance *instance, int index,
    struct cuvil_tensor_info *out) {
  return info_of(instance->plan->inputs, instance->plan->input_count, "input",
                 index, out);
}

enum cuvil_status cuvil_instance_output_info(
    const struct cuvil_instance *instance, int index,
    struct cuvil_tensor_info *out) {
  return info_of(instance->plan->outputs, instance->plan->output_count,
                 "output", index, out);
}

enum cuvil_status cuvil_instance_bind_input(struct cuvil_instance *instance,
                                            int index, uint64_t address) {
  struct cuvil_tensor_info info;
  CUVIL_TRY(cuvil_instance_input_info(instance, index, &info));
  return cuvil_session_bind(instance->session, false, index, address);
}

enum cuvil_status cuvil_instance_bind_output(struct cuvil_instance *instance,
                                             int index, uint64_t address) {
  struct cuvil_tensor_info info;
  CUVIL_TRY(cuvil_instance_output_info(instance, index, &info));
  return cuvil_session_bind(instance->session, true, index, address);
}

uint64_t cuvil_instance_input_address(const struct cuvil_instance *instance,
                                      int index) {
  return cuvil_session_input(instance->session, index);
}

uint64_t cuvil_instance_output_address(const struct cuvil_instance *instance,
                                       int index) {
  return cuvil_session_output(instance->session, index);
}

enum cuvil_status cuvil_instance_run(struct cuvil_instance *instance,
                                     void *cu_stream) {
  if (cu_stream != instance->cu_stream) {
    struct cuvil_gpu_stream *stream;
    CUVIL_TRY(
        cuvil_gpu_stream_wrap(instance->context->gpu, cu_stream, &stream));
    cuvil_gpu_stream_destroy(instance->stream);
    instance->stream = stream;
    instance->cu_stream = cu_stream;
  }
  return cuvil_session_run(instance->session, instance->stream);
}
