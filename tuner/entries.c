/* entries.c - candidates on the device: program, executable, memory, timer.
 *
 * An entry is made once and kept between the rounds of a race, so that a round
 * costs its blocks and nothing else.  Its workspace is its own: addresses are
 * baked into captured graphs.  When there are many, or they hold much memory,
 * the one used longest ago makes room.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tuner/worker.h"

enum { ENTRIES_MOST = 64 };
static const uint64_t workspace_most = (uint64_t)8 << 30;

enum cuvil_status cuvil_worker_alive(struct cuvil_worker *worker,
                                     double limit) {
  json_t *note = json_pack("{s:b, s:i, s:f}", "alive", 1, "at", worker->at,
                           "limit", limit);
  if (!note) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a note");
  enum cuvil_status status = cuvil_message_send(worker->fd, note);
  json_decref(note);
  return status;
}

static void destroy_entry(struct cuvil_worker *worker,
                          struct cuvil_entry *entry) {
  if (!entry) return;
  cuvil_timer_destroy(entry->timer);
  cuvil_executable_destroy(entry->executable);
  for (int i = 0; entry->own && i < entry->program->buffer_count; i++)
    cuvil_gpu_free(worker->gpu, entry->own[i]);
  cuvil_program_destroy(entry->program);
  free(entry->own);
  free(entry->addresses);
  free(entry->family);
  free(entry->config);
  free(entry);
}

void cuvil_entry_drop(struct cuvil_worker *worker, struct cuvil_entry *entry) {
  for (int i = 0; i < worker->count; i++) {
    if (worker->entries[i] != entry) continue;
    worker->workspace -= entry->workspace;
    worker->entries[i] = worker->entries[--worker->count];
    destroy_entry(worker, entry);
    return;
  }
}

void cuvil_entries_drop(struct cuvil_worker *worker) {
  while (worker->count > 0)
    cuvil_entry_drop(worker, worker->entries[0]);
  free(worker->entries);
  worker->entries = NULL;
  worker->capacity = 0;
}

static void make_room(struct cuvil_worker *worker, uint64_t bytes) {
  while (worker->count > 0 && (worker->count >= ENTRIES_MOST ||
                               worker->workspace + bytes > workspace_most)) {
    struct cuvil_entry *oldest = worker->entries[0];
    for (int i = 1; i < worker->count; i++)
      if (worker->entries[i]->used < oldest->used) oldest = worker->entries[i];
    cuvil_entry_drop(worker, oldest);
  }
}

static enum cuvil_status allocate(struct cuvil_worker *worker,
                                  struct cuvil_entry *entry) {
  const struct cuvil_program *program = entry->program;
  size_t count = (size_t)program->buffer_count + 1;
  entry->own = calloc(count, sizeof *entry->own);
  entry->addresses = calloc(count, sizeof *entry->addresses);
  if (!entry->own || !entry->addresses)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for an entry");
  for (int i = 0; i < program->buffer_count; i++) {
    const struct cuvil_program_buffer *buffer = &program->buffers[i];
    if (buffer->role == CUVIL_BUFFER_OPERAND || buffer->bytes == 0) continue;
    CUVIL_TRY(cuvil_gpu_alloc(worker->gpu, buffer->bytes, &entry->own[i]));
    if (buffer->role == CUVIL_BUFFER_ZEROED)
      CUVIL_TRY(
          cuvil_gpu_memset(worker->gpu, entry->own[i], 0, buffer->bytes, NULL));
  }
  return CUVIL_OK;
}

static enum cuvil_status create_entry(struct cuvil_worker *worker,
                                      const char *family, const char *config,
                                      int copy, struct cuvil_entry *entry) {
  entry->worker = worker;
  entry->copy = copy;
  entry->family = strdup(family);
  entry->config = strdup(config);
  if (!entry->family || !entry->config)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for an entry");
  CUVIL_TRY(cuvil_candidate_emit(&worker->problem, cuvil_gpu_arch(worker->gpu),
                                 family, config, &entry->program));
  /* Compiled by now, unless the cache was emptied meanwhile; a library may
   * compile when its call is prepared. */
  CUVIL_TRY(cuvil_worker_alive(worker, worker->options->compile_limit));
  CUVIL_TRY(
      cuvil_program_compile(entry->program, worker->options->cubins, NULL));
  entry->workspace = cuvil_program_workspace(entry->program);
  make_room(worker, entry->workspace);
  CUVIL_TRY(
      cuvil_executable_create(worker->gpu, entry->program, &entry->executable));
  CUVIL_TRY(allocate(worker, entry));
  return cuvil_worker_alive(worker, worker->options->launch_limit);
}

enum cuvil_status cuvil_entry_get(struct cuvil_worker *worker,
                                  const char *family, const char *config,
                                  int copy, struct cuvil_entry **out) {
  *out = NULL;
  for (int i = 0; i < worker->count && !*out; i++) {
    struct cuvil_entry *entry = worker->entries[i];
    if (entry->copy == copy && strcmp(entry->family, family) == 0 &&
        strcmp(entry->config, config) == 0)
      *out = entry;
  }
  if (*out) {
    (*out)->used = ++worker->clock;
    return CUVIL_OK;
  }
  if (worker->count == worker->capacity) {
    int capacity = worker->capacity ? 2 * worker->capacity : 32;
    struct cuvil_entry **entries =
        realloc(worker->entries, (size_t)capacity * sizeof *entries);
    if (!entries) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory");
    worker->entries = entries;
    worker->capacity = capacity;
  }
  struct cuvil_entry *entry = calloc(1, sizeof *entry);
  if (!entry) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory");
  enum cuvil_status status = create_entry(worker, family, config, copy, entry);
  if (status != CUVIL_OK) {
    destroy_entry(worker, entry);
    return status;
  }
  entry->used = ++worker->clock;
  worker->workspace += entry->workspace;
  worker->entries[worker->count++] = entry;
  *out = entry;
  return CUVIL_OK;
}

enum cuvil_status cuvil_entry_enqueue(struct cuvil_entry *entry, int rotation,
                                      struct cuvil_gpu_stream *stream) {
  const struct cuvil_worker *worker = entry->worker;
  for (int i = 0; i < entry->program->buffer_count; i++) {
    const struct cuvil_program_buffer *buffer = &entry->program->buffers[i];
    if (buffer->role != CUVIL_BUFFER_OPERAND) {
      entry->addresses[i] = entry->own[i];
      continue;
    }
    int operand = buffer->operand;
    entry->addresses[i] =
        rotation > 0 && worker->copies[operand]
            ? worker->copies[operand] +
                  (uint64_t)(rotation - 1) * worker->stride[operand]
            : cuvil_verifier_operand(worker->verifier, operand);
  }
  return cuvil_executable_run(entry->executable, entry->addresses, stream);
}

static enum cuvil_status enqueue(void *user, int rotation,
                                 struct cuvil_gpu_stream *stream) {
  return cuvil_entry_enqueue(user, rotation, stream);
}

static enum cuvil_status flush(void *user, struct cuvil_gpu_stream *stream) {
  struct cuvil_entry *entry = user;
  return cuvil_flush_enqueue(entry->worker->flush, stream);
}

enum cuvil_status cuvil_entry_timer(struct cuvil_entry *entry) {
  struct cuvil_worker *worker = entry->worker;
  struct cuvil_subject subject = {entry, enqueue, worker->rotations,
                                  worker->flushes ? flush : NULL, false};
  if (entry->timer) return CUVIL_OK;
  return cuvil_timer_create(worker->gpu, &subject, NULL, &entry->timer);
}

/* ---- the problem */
static enum cuvil_status copy_operand(struct cuvil_worker *worker, int operand,
                                      int rotations) {
  uint64_t bytes = (uint64_t)cuvil_operand_bytes(&worker->problem, operand);
  uint64_t stride = (bytes + 255) / 256 * 256;
  worker->stride[operand] = stride;
  CUVIL_TRY(cuvil_gpu_alloc(worker->gpu, stride * (uint64_t)(rotations - 1),
                            &worker->copies[operand]));
  for (int i = 0; i < rotations - 1; i++)
    CUVIL_TRY(cuvil_gpu_copy(
        worker->gpu, worker->copies[operand] + (uint64_t)i * stride,
        cuvil_verifier_operand(worker->verifier, operand), bytes, NULL));
  return CUVIL_OK;
}

enum cuvil_status cuvil_worker_open(struct cuvil_worker *worker,
                                    const char *problem, const json_t *cold,
                                    int rotations, uint64_t seed) {
  cuvil_worker_close(worker);
  CUVIL_TRY(cuvil_problem_parse(problem, &worker->problem));
  CUVIL_TRY(cuvil_verifier_create(worker->gpu, &worker->problem, seed,
                                  worker->options->cubins, &worker->verifier));
  worker->rotations = rotations;
  uint64_t moved = 0;
  for (int i = 0; i < worker->problem.operand_count && rotations > 1; i++)
    if (json_is_true(json_array_get(cold, (size_t)i))) {
      CUVIL_TRY(copy_operand(worker, i, rotations));
      moved += worker->stride[i] * (uint64_t)rotations;
    }
  worker->flushes = rotations > 1 &&
                    moved < 3 * (uint64_t)cuvil_gpu_arch(worker->gpu)->l2_bytes;
  if (worker->flushes && !worker->flush)
    CUVIL_TRY(cuvil_flush_create(worker->gpu, &worker->flush));
  return cuvil_gpu_synchronize(worker->gpu);
}

void cuvil_worker_close(struct cuvil_worker *worker) {
  cuvil_entries_drop(worker);
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++) {
    cuvil_gpu_free(worker->gpu, worker->copies[i]);
    worker->copies[i] = 0;
  }
  cuvil_verifier_destroy(worker->verifier);
  worker->verifier = NULL;
  worker->rotations = 1;
  worker->flushes = false;
}
