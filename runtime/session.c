/* session.c - a plan on a GPU.
 *
 * One allocation holds everything: arena, zeroed area, weights, inputs and
 * outputs, each part 256-byte aligned.  The steps are enqueued once on a
 * stream of the session's own, first for real (kernels are loaded lazily, and
 * a fault should show when the plan is loaded, not at the first request), then
 * under capture; a run launches the captured graph on the caller's stream.
 * The driver orders launches of one graph after each other, so one session
 * may be run on several streams.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/plan.h"

enum { ALIGNMENT = 256 };

struct session_step {
  /* The plan's program, or its fallback. */
  const struct cuvil_program *program;
  const struct cuvil_binding *bindings;
  struct cuvil_executable *executable;
  uint64_t *addresses; /* by program buffer */
};

struct cuvil_session {
  struct cuvil_gpu *gpu;
  const struct cuvil_plan *plan;
  struct cuvil_gpu_stream *stream;
  struct cuvil_gpu_graph *graph;
  bool stale; /* an address changed since the capture */
  uint64_t memory, arena, zeroed, weights;
  uint64_t *own_inputs, *own_outputs; /* in `memory` */
  uint64_t *inputs, *outputs;         /* in use: own, or the caller's */
  struct session_step *steps;
  int fallbacks; /* steps that run theirs */
  char first_reason[160];
};

/* ---- memory */

static bool take(uint64_t *total, uint64_t bytes, uint64_t *out_offset) {
  *out_offset = *total;
  if (__builtin_add_overflow(*total, bytes, total)) return false;
  if (*total > UINT64_MAX - ALIGNMENT) return false;
  *total = (*total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return true;
}

static bool lay_out(struct cuvil_session *session, uint64_t *out_total) {
  const struct cuvil_plan *plan = session->plan;
  *out_total = 0;
  bool fits = take(out_total, plan->arena_bytes, &session->arena) &&
              take(out_total, plan->zeroed_bytes, &session->zeroed) &&
              take(out_total, plan->weights_bytes, &session->weights);
  for (int i = 0; i < plan->input_count; i++)
    fits =
        fits && take(out_total, plan->inputs[i].bytes, &session->own_inputs[i]);
  for (int i = 0; i < plan->output_count; i++)
    fits = fits &&
           take(out_total, plan->outputs[i].bytes, &session->own_outputs[i]);
  return fits;
}

static enum cuvil_status allocate(struct cuvil_session *session) {
  const struct cuvil_plan *plan = session->plan;
  uint64_t total;
  if (!lay_out(session, &total))
    return CUVIL_FAIL(CU_ERR_DEVICE_MEMORY,
                      "the plan needs more memory than there is address space");
  CUVIL_TRY(cuvil_gpu_alloc(session->gpu, total, &session->memory));
  uint64_t base = session->memory;
  session->arena += base;
  session->zeroed += base;
  session->weights += base;
  for (int i = 0; i < plan->input_count; i++)
    session->inputs[i] = session->own_inputs[i] += base;
  for (int i = 0; i < plan->output_count; i++)
    session->outputs[i] = session->own_outputs[i] += base;
  /* Defined values everywhere: the first, trying run reads it all. */
  CUVIL_TRY(cuvil_gpu_memset(session->gpu, base, 0, total, NULL));
  return cuvil_gpu_upload(session->gpu, session->weights, plan->weights,
                          plan->weights_bytes);
}

static uint64_t address_of(const struct cuvil_session *session,
                           const struct cuvil_binding *binding) {
  switch (binding->place) {
    case CUVIL_PLACE_INPUT:
      return session->inputs[binding->index] + binding->offset;
    case CUVIL_PLACE_OUTPUT:
      return session->outputs[binding->index] + binding->offset;
    case CUVIL_PLACE_WEIGHTS:
      return session->weights + binding->offset;
    case CUVIL_PLACE_ARENA:
      return session->arena + binding->offset;
    case CUVIL_PLACE_ZEROED:
      return session->zeroed + binding->offset;
  }
  return 0;
}

static void place_buffers(struct cuvil_session *session) {
  for (int i = 0; i < session->plan->step_count; i++) {
    struct session_step *step = &session->steps[i];
    for (int b = 0; b < step->program->buffer_count; b++)
      step->addresses[b] = address_of(session, &step->bindings[b]);
  }
}

/* ---- the graph */

static enum cuvil_status enqueue_step(struct cuvil_session *session,
                                      int index) {
  const struct session_step *step = &session->steps[index];
  enum cuvil_status status =
      cuvil_executable_run(step->executable, step->addresses, session->stream);
  if (status == CUVIL_OK) return CUVIL_OK;
  const char *label = session->plan->steps[index].label;
  return CUVIL_FAIL(status, "step %d (%s): %s", index, label ? label : "",
                    cuvil_error_last()->message);
}

static enum cuvil_status enqueue_all(struct cuvil_session *session) {
  for (int i = 0; i < session->plan->step_count; i++)
    CUVIL_TRY(enqueue_step(session, i));
  return CUVIL_OK;
}

/* A launch that the driver refuses while capturing is a graph that cannot be
 * built; other reasons (memory, a library) keep their own names. */
static enum cuvil_status as_graph_failure(enum cuvil_status status) {
  if (status != CU_ERR_CUDA && status != CU_ERR_GRAPH_BUILD_FAILED)
    return status;
  return CUVIL_FAIL(CU_ERR_GRAPH_BUILD_FAILED,
                    "the plan's CUDA graph could not be built: %s",
                    cuvil_error_last()->message);
}

static enum cuvil_status capture(struct cuvil_session *session) {
  struct cuvil_gpu_graph *graph;
  place_buffers(session);
  enum cuvil_status status = cuvil_gpu_capture_begin(session->stream);
  if (status != CUVIL_OK) return as_graph_failure(status);
  status = enqueue_all(session);
  if (status != CUVIL_OK) {
    cuvil_gpu_capture_abandon(session->stream);
    return as_graph_failure(status);
  }
  status = cuvil_gpu_capture_end(session->stream, &graph);
  if (status != CUVIL_OK) return as_graph_failure(status);
  cuvil_gpu_graph_destroy(session->graph);
  session->graph = graph;
  session->stale = false;
  return CUVIL_OK;
}

static enum cuvil_status run_once(struct cuvil_session *session) {
  place_buffers(session);
  CUVIL_TRY(enqueue_all(session));
  return cuvil_gpu_stream_synchronize(session->stream);
}

/* ---- create and destroy */

static enum cuvil_status make_tables(struct cuvil_session *session) {
  const struct cuvil_plan *plan = session->plan;
  size_t inputs = (size_t)plan->input_count + 1;
  size_t outputs = (size_t)plan->output_count + 1;
  session->own_inputs = calloc(inputs, sizeof(uint64_t));
  session->inputs = calloc(inputs, sizeof(uint64_t));
  session->own_outputs = calloc(outputs, sizeof(uint64_t));
  session->outputs = calloc(outputs, sizeof(uint64_t));
  session->steps = calloc((size_t)plan->step_count + 1, sizeof *session->steps);
  if (!session->own_inputs || !session->inputs || !session->own_outputs ||
      !session->outputs || !session->steps)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "session");
  return CUVIL_OK;
}

/* NULL: the library steps may run as they are. */
static const char *other_version(const struct cuvil_plan_step *step, char *out,
                                 size_t size) {
  if (!step->library_version || !*step->library_version) return NULL;
  for (int i = 0; i < step->program->step_count; i++) {
    const struct cuvil_step *call = &step->program->steps[i];
    if (call->kind != CUVIL_STEP_LIBRARY) continue;
    char found[32];
    cuvil_library_version(call->library, found, sizeof found);
    if (strcmp(found, step->library_version) == 0) continue;
    snprintf(out, size, "chosen with %s %s, here is %s", call->library,
             step->library_version, *found ? found : "none");
    return out;
  }
  return NULL;
}

static enum cuvil_status use_program(struct cuvil_session *session, int index,
                                     const struct cuvil_program *program,
                                     const struct cuvil_binding *bindings) {
  struct session_step *step = &session->steps[index];
  size_t buffers = (size_t)program->buffer_count + 1;
  step->program = program;
  step->bindings = bindings;
  step->addresses = calloc(buffers, sizeof(uint64_t));
  if (!step->addresses) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "session");
  return cuvil_executable_create(session->gpu, program, &step->executable);
}

/* The fallback only for a library's sake; any other failure is one. */
static enum cuvil_status use_step(struct cuvil_session *session, int index) {
  const struct cuvil_plan_step *step = &session->plan->steps[index];
  char text[96];
  const char *why = other_version(step, text, sizeof text);
  if (!step->fallback && why)
    cuvil_log_warning("step %d (%s): %s; its time may differ", index,
                      step->label ? step->label : "", why);
  if (!step->fallback || !why) {
    enum cuvil_status status =
        use_program(session, index, step->program, step->bindings);
    bool library =
        status == CU_ERR_LIBRARY || status == CU_ERR_LIBRARY_NOT_FOUND;
    if (!library || !step->fallback) return status;
    why = cuvil_error_last()->message;
    free(session->steps[index].addresses);
  }
  if (session->fallbacks++ == 0)
    snprintf(session->first_reason, sizeof session->first_reason, "%.159s",
             why);
  cuvil_log_verbose("step %d (%s) runs our own kernel: %s", index,
                    step->label ? step->label : "", why);
  return use_program(session, index, step->fallback, step->fallback_bindings);
}

static enum cuvil_status make_executables(struct cuvil_session *session) {
  const struct cuvil_plan *plan = session->plan;
  for (int i = 0; i < plan->step_count; i++) {
    const char *label = plan->steps[i].label;
    enum cuvil_status status = use_step(session, i);
    if (status != CUVIL_OK)
      return CUVIL_FAIL(status, "step %d (%s): %s", i, label ? label : "",
                        cuvil_error_last()->message);
  }
  if (session->fallbacks > 0)
    cuvil_log_warning(
        "%d of %d steps run our own kernels where a library was chosen: %s",
        session->fallbacks, plan->step_count, session->first_reason);
  return CUVIL_OK;
}

enum cuvil_status cuvil_session_create(struct cuvil_gpu *gpu,
                                       const struct cuvil_plan *plan,
                                       struct cuvil_session **out) {
  *out = NULL;
  const char *arch = cuvil_gpu_arch(gpu)->name;
  if (strcmp(plan->arch, arch) != 0)
    return CUVIL_FAIL(CU_ERR_ARCH_MISMATCH,
                      "the plan is for %s, this GPU is %s; compile the model "
                      "with --arch %s",
                      plan->arch, arch, arch);
  CUVIL_TRY(cuvil_plan_check(plan, "plan"));
  struct cuvil_session *session = calloc(1, sizeof *session);
  if (!session) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "session");
  enum cuvil_status status = CUVIL_OK;
  session->gpu = gpu;
  session->plan = plan;
  CUVIL_TRY_GOTO(make_tables(session));
  CUVIL_TRY_GOTO(cuvil_gpu_stream_create(gpu, &session->stream));
  CUVIL_TRY_GOTO(allocate(session));
  CUVIL_TRY_GOTO(make_executables(session));
  CUVIL_TRY_GOTO(run_once(session));
  CUVIL_TRY_GOTO(capture(session));
  *out = session;
  return CUVIL_OK;
fail:
  cuvil_session_destroy(session);
  return status;
}

void cuvil_session_destroy(struct cuvil_session *session) {
  if (!session) return;
  /* Nothing of ours may still be running when its memory goes; if the device
   * has failed there is nothing to wait for. */
  CUVIL_IGNORE(cuvil_gpu_synchronize(session->gpu));
  cuvil_gpu_graph_destroy(session->graph);
  for (int i = 0; session->steps && i < session->plan->step_count; i++) {
    cuvil_executable_destroy(session->steps[i].executable);
    free(session->steps[i].addresses);
  }
  cuvil_gpu_free(session->gpu, session->memory);
  cuvil_gpu_stream_destroy(session->stream);
  free(session->own_inputs);
  free(session->own_outputs);
  free(session->inputs);
  free(session->outputs);
  free(session->steps);
  free(session);
}

/* ---- use */

uint64_t cuvil_session_input(struct cuvil_session *session, int index) {
  return session->own_inputs[index];
}

uint64_t cuvil_session_output(struct cuvil_session *session, int index) {
  return session->own_outputs[index];
}

enum cuvil_status cuvil_session_bind(struct cuvil_session *session, bool output,
                                     int index, uint64_t address) {
  const struct cuvil_plan *plan = session->plan;
  int count = output ? plan->output_count : plan->input_count;
  if (index < 0 || index >= count)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "%s %d of %d",
                      output ? "output" : "input", index, count);
  if (address % 16 != 0)
    return CUVIL_FAIL(CU_ERR_INVALID_TENSOR_LAYOUT,
                      "%s %s is at 0x%llx; it must be aligned to 16 bytes",
                      output ? "output" : "input",
                      (output ? plan->outputs : plan->inputs)[index].name,
                      (unsigned long long)address);
  uint64_t *own = output ? session->own_outputs : session->own_inputs;
  uint64_t *used = output ? session->outputs : session->inputs;
  if (address == 0) address = own[index];
  if (used[index] != address) session->stale = true;
  used[index] = address;
  return CUVIL_OK;
}

enum cuvil_status cuvil_session_run(struct cuvil_session *session,
                                    struct cuvil_gpu_stream *stream) {
  if (session->stale) {
    /* The driver orders launches of one graph, not of two: the old one must
     * have ended before the new one may use the arena. */
    CUVIL_TRY(cuvil_gpu_synchronize(session->gpu));
    CUVIL_TRY(capture(session));
  }
  return cuvil_gpu_graph_launch(session->graph, stream);
}

static enum cuvil_status capture_repeats(struct cuvil_session *session,
                                         int index, int repeats,
                                         struct cuvil_gpu_graph **out) {
  *out = NULL;
  CUVIL_TRY(cuvil_gpu_capture_begin(session->stream));
  for (int i = 0; i < repeats; i++) {
    enum cuvil_status status = enqueue_step(session, index);
    if (status != CUVIL_OK) {
      cuvil_gpu_capture_abandon(session->stream);
      return status;
    }
  }
  return cuvil_gpu_capture_end(session->stream, out);
}

/* Twice, and the second is timed: the first brings code and data near. */
static enum cuvil_status time_graph(struct cuvil_session *session,
                                    struct cuvil_gpu_graph *graph,
                                    struct cuvil_gpu_event *start,
                                    struct cuvil_gpu_event *end, double *out) {
  CUVIL_TRY(cuvil_gpu_graph_launch(graph, session->stream));
  CUVIL_TRY(cuvil_gpu_event_record(start, session->stream));
  CUVIL_TRY(cuvil_gpu_graph_launch(graph, session->stream));
  CUVIL_TRY(cuvil_gpu_event_record(end, session->stream));
  CUVIL_TRY(cuvil_gpu_event_synchronize(end));
  return cuvil_gpu_event_elapsed(start, end, out);
}

enum cuvil_status cuvil_session_profile(struct cuvil_session *session,
                                        int repeats, double *seconds) {
  struct cuvil_gpu_event *start = NULL, *end = NULL;
  struct cuvil_gpu_graph *graph = NULL;
  enum cuvil_status status = CUVIL_OK;
  if (repeats < 1) repeats = 1;
  CUVIL_TRY_GOTO(cuvil_gpu_synchronize(session->gpu));
  place_buffers(session);
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(session->gpu, &start));
  CUVIL_TRY_GOTO(cuvil_gpu_event_create(session->gpu, &end));
  for (int i = 0; i < session->plan->step_count; i++) {
    CUVIL_TRY_GOTO(capture_repeats(session, i, repeats, &graph));
    CUVIL_TRY_GOTO(time_graph(session, graph, start, end, &seconds[i]));
    seconds[i] /= repeats;
    cuvil_gpu_graph_destroy(graph);
    graph = NULL;
  }
fail:
  cuvil_gpu_graph_destroy(graph);
  cuvil_gpu_event_destroy(start);
  cuvil_gpu_event_destroy(end);
  return status;
}

int cuvil_session_fallbacks(const struct cuvil_session *session) {
  return session->fallbacks;
}

int cuvil_session_graph_nodes(const struct cuvil_session *session) {
  return cuvil_gpu_graph_nodes(session->graph);
}
