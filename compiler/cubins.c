/* cubins.c - every module of a model compiled, as wide as the machine allows.
 *
 * Problems of one signature share their kernels' text, so modules are told
 * apart by hash and each is compiled once; the others get a copy.  Threads
 * take programs from a common counter.  The first failure stops the rest, and
 * its message crosses to the calling thread.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/internal.h"

enum { MAX_JOBS = 64 };

struct pool {
  pthread_mutex_t lock;
  struct cuvil_program **work;
  int count, next;
  const char *cubin_dir;
  int compiled, cached;
  enum cuvil_status status;
  char message[2048];
};

static struct cuvil_program *take_work(struct pool *pool) {
  struct cuvil_program *program = NULL;
  pthread_mutex_lock(&pool->lock);
  if (pool->status == CUVIL_OK && pool->next < pool->count)
    program = pool->work[pool->next++];
  pthread_mutex_unlock(&pool->lock);
  return program;
}

static void *compile_some(void *user) {
  struct pool *pool = user;
  struct cuvil_program *program;
  while ((program = take_work(pool))) {
    struct cuvil_compile_result result = {0};
    enum cuvil_status status =
        cuvil_program_compile(program, pool->cubin_dir, &result);
    pthread_mutex_lock(&pool->lock);
    if (status == CUVIL_OK) {
      pool->compiled += result.log != NULL;
      pool->cached += result.log == NULL;
    } else if (pool->status == CUVIL_OK) {
      pool->status = status;
      memcpy(pool->message, cuvil_error_last()->message, sizeof(pool->message));
    }
    pthread_mutex_unlock(&pool->lock);
    cuvil_compile_result_free(&result);
  }
  return NULL;
}

static const struct cuvil_module *find_module(
    struct cuvil_program *const *programs, int count, const char *hash) {
  for (int p = 0; p < count; ++p)
    for (int m = 0; m < programs[p]->module_count; ++m)
      if (strcmp(programs[p]->modules[m].hash, hash) == 0)
        return &programs[p]->modules[m];
  return NULL;
}

/* Programs that hold a module no earlier one holds. */
static int select_work(struct cuvil_program *const *programs, int count,
                       struct cuvil_program **work) {
  int selected = 0;
  for (int p = 0; p < count; ++p) {
    bool fresh = false;
    for (int m = 0; m < programs[p]->module_count; ++m)
      fresh =
          fresh || !find_module(work, selected, programs[p]->modules[m].hash);
    if (fresh) work[selected++] = programs[p];
  }
  return selected;
}

static enum cuvil_status copy_cubins(struct cuvil_program *const *work,
                                     int work_count,
                                     struct cuvil_program *program) {
  for (int m = 0; m < program->module_count; ++m) {
    struct cuvil_module *module = &program->modules[m];
    if (module->cubin) continue;
    const struct cuvil_module *from =
        find_module(work, work_count, module->hash);
    CUVIL_CHECK(from && from->cubin);
    module->cubin = malloc(from->cubin_size);
    if (!module->cubin)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "a cubin of %zu bytes",
                        from->cubin_size);
    memcpy(module->cubin, from->cubin, from->cubin_size);
    module->cubin_size = from->cubin_size;
  }
  return CUVIL_OK;
}

static void run_pool(struct pool *pool, int jobs) {
  pthread_t threads[MAX_JOBS];
  int started = 0;
  if (jobs <= 0) jobs = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (jobs > MAX_JOBS) jobs = MAX_JOBS;
  if (jobs > pool->count) jobs = pool->count;
  /* This thread works too, so a machine without threads still compiles. */
  while (started < jobs - 1 &&
         pthread_create(&threads[started], NULL, compile_some, pool) == 0)
    ++started;
  compile_some(pool);
  for (int i = 0; i < started; ++i)
    pthread_join(threads[i], NULL);
}

enum cuvil_status cuvil_compile_programs(
    struct cuvil_program *const *programs, int count,
    const struct cuvil_compiler_options *options,
    struct cuvil_compiler_report *report) {
  struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .cubin_dir = options->cubin_dir};
  enum cuvil_status status = CUVIL_OK;
  pool.work = calloc((size_t)count + 1, sizeof(struct cuvil_program *));
  if (!pool.work)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "compiling %d kernels", count);
  pool.count = select_work(programs, count, pool.work);
  run_pool(&pool, options->jobs);
  report->compiled = pool.compiled;
  report->from_cubin_cache = pool.cached;
  if (pool.status != CUVIL_OK) {
    status = CUVIL_FAIL(pool.status, "%s", pool.message);
    goto fail;
  }
  for (int p = 0; p < count; ++p)
    CUVIL_TRY_GOTO(copy_cubins(pool.work, pool.count, programs[p]));
fail:
  free(pool.work);
  pthread_mutex_destroy(&pool.lock);
  return status;
}
