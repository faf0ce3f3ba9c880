/* conformance.c - ONNX's node tests on the GPU of this machine.
 *
 *   conformance [--device N] [--jobs N] [--compile-only ARCH] [-v] [FOLDER]
 *
 * Every case that the CPU executor computes is fused, compiled with the
 * defaults of an empty database and run, as the model says and in fp16, and
 * held against the values that ONNX ships.  Prints TAP: one line for each case
 * and precision that is not refused by name; -v says the refusals.  Without
 * FOLDER: Debian's libonnx-testdata.  --compile-only needs no GPU.
 *
 * Compiling is done ahead by child processes into a folder of cubins.  The
 * sweep runs in a child, too: a kernel that faults takes the CUDA context and
 * a bug may take the process; the parent then starts the next child behind
 * the case at hand.
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/common.h"
#include "compiler/compiler.h"
#include "tests/support/conformance.h"

static const char default_folder[] = "/usr/share/libonnx-testdata/data/node";
static const struct cuvil_fusion_options ways[] = {
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_MODEL},
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), FAULT = 3 };

/* What outlives a child. */
struct shared {
  int current; /* case * WAYS + way */
  int line, right, refused, wrong;
  char arch[32], why[512];
};

struct sweep {
  const char *folder, *cubins;
  char **names;
  int count, jobs, device;
  bool verbose;
  struct shared *shared;
};

static struct shared *share(void) {
  void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("conformance: shared memory");
    exit(1);
  }
  return memory;
}

/* ---- compiling */

/* The plan of one case; NULL: *out says why not. */
static struct cuvil_plan *compile(const struct sweep *s,
                                  struct conformance_case *c, int way,
                                  const struct cuvil_arch *arch,
                                  const struct cuvil_env *env,
                                  enum conformance_outcome *out,
                                  char detail[512]) {
  struct cuvil_fused *fused = NULL;
  struct cuvil_plan *plan = NULL;
  struct cuvil_compiler_report report;
  struct cuvil_compiler_options how = {
      .arch = arch, .env = env, .cubin_dir = s->cubins, .jobs = 1};
  enum cuvil_status status = cuvil_fuse(c->graph, &ways[way], &fused);
  *out = status == CU_ERR_MODEL_UNSUPPORTED ? CONFORMANCE_REFUSED
                                            : CONFORMANCE_WRONG;
  if (status == CUVIL_OK)
    status = cuvil_compile_fused(fused, &how, &plan, &report);
  if (status != CUVIL_OK) snprintf(detail, 512, "%.500s", cuvil_last_error());
  cuvil_fused_destroy(fused);
  return plan;
}

static bool fuses(const struct conformance_case *c) {
  struct cuvil_fused *fused = NULL;
  bool yes = cuvil_fuse(c->graph, &ways[0], &fused) == CUVIL_OK;
  cuvil_fused_destroy(fused);
  return yes;
}

/* A case that is right on the CPU, in the form that fusion takes; to be closed
 * in any case. */
static enum conformance_outcome open_case(const struct sweep *s, int index,
                                          struct conformance_case *c,
                                          char detail[512]) {
  const char *name = s->names[index];
  enum conformance_outcome outcome =
      conformance_open(s->folder, name, CONFORMANCE_EITHER, c, detail);
  if (outcome == CONFORMANCE_RIGHT && !c->settled && !fuses(c)) {
    conformance_close(c);
    outcome = conformance_open(s->folder, name, CONFORMANCE_SETTLED, c, detail);
  }
  if (outcome == CONFORMANCE_RIGHT) outcome = conformance_cpu(c, detail);
  return outcome;
}

static void compile_share(const struct sweep *s, const struct cuvil_arch *arch,
                          int share) {
  struct cuvil_env env = {0};
  for (int i = share; i < s->count; i += s->jobs) {
    struct conformance_case c;
    char detail[512];
    enum conformance_outcome outcome = open_case(s, i, &c, detail);
    for (int w = 0; outcome == CONFORMANCE_RIGHT && w < WAYS; ++w) {
      enum conformance_outcome why;
      struct cuvil_plan *plan = compile(s, &c, w, arch, &env, &why, detail);
      if (!plan && why == CONFORMANCE_WRONG) {
        printf("# %s does not compile: %s\n", s->names[i], detail);
        __atomic_fetch_add(&s->shared->wrong, 1, __ATOMIC_RELAXED);
      }
      if (plan) __atomic_fetch_add(&s->shared->right, 1, __ATOMIC_RELAXED);
      cuvil_plan_destroy(plan);
    }
    conformance_close(&c);
  }
}

static void compile_ahead(const struct sweep *s,
                          const struct cuvil_arch *arch) {
  fflush(NULL);
  for (int i = 0; i < s->jobs; ++i) {
    pid_t child = fork();
    if (child < 0) break; /* the sweep compiles what is missing */
    if (child > 0) continue;
    compile_share(s, arch, i);
    fflush(NULL);
    _exit(0);
  }
  while (wait(NULL) > 0 || errno == EINTR)
    ;
}

/* ---- running */

static enum cuvil_status run_plan(struct cuvil_gpu *gpu,
                                  struct cuvil_gpu_stream *stream,
                                  const struct cuvil_plan *plan,
                                  struct conformance_case *c) {
  struct cuvil_session *session = NULL;
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(cuvil_session_create(gpu, plan, &session));
  for (int i = 0; i < plan->input_count; ++i)
    CUVIL_TRY_GOTO(cuvil_gpu_upload(gpu, cuvil_session_input(session, i),
                                    c->inputs[i], plan->inputs[i].bytes));
  CUVIL_TRY_GOTO(cuvil_session_run(session, stream));
  CUVIL_TRY_GOTO(cuvil_gpu_stream_synchronize(stream));
  for (int i = 0; i < plan->output_count; ++i)
    CUVIL_TRY_GOTO(cuvil_gpu_download(gpu, c->outputs[i],
                                      cuvil_session_output(session, i),
                                      plan->outputs[i].bytes));
fail:
  cuvil_session_destroy(session);
  return status;
}

static void count(struct sweep *s, int index, int way, bool settled,
                  enum conformance_outcome outcome, const char *detail) {
  struct shared *shared = s->shared;
  const char *precision = cuvil_precision_name(ways[way].precision);
  if (outcome == CONFORMANCE_REFUSED) {
    ++shared->refused;
    if (s->verbose)
      printf("# refused: %s %s: %s\n", s->names[index], precision, detail);
    return;
  }
  bool right = outcome == CONFORMANCE_RIGHT;
  if (right)
    ++shared->right;
  else
    ++shared->wrong;
  printf("%s %d - %s %s%s\n", right ? "ok" : "not ok", ++shared->line,
         s->names[index], precision, settled ? " (settled)" : "");
  if (!right) printf("# %s\n", detail);
}

/* true: the context is gone. */
static bool run_one(struct sweep *s, struct cuvil_cli_target *target,
                    struct cuvil_gpu_stream *stream, int index, int way) {
  struct conformance_case c;
  char detail[512];
  bool fault = false;
  enum conformance_outcome outcome = open_case(s, index, &c, detail);
  struct cuvil_plan *plan = NULL;
  if (outcome == CONFORMANCE_RIGHT &&
      ways[way].precision == CUVIL_PRECISION_FP16 &&
      !conformance_half_holds(&c)) {
    outcome = CONFORMANCE_REFUSED;
    snprintf(detail, sizeof(detail), "inputs are too large for fp16");
  }
  if (outcome == CONFORMANCE_RIGHT)
    plan = compile(s, &c, way, target->arch, &target->env, &outcome, detail);
  if (plan) {
    enum cuvil_status status = run_plan(target->gpu, stream, plan, &c);
    outcome = CONFORMANCE_WRONG;
    if (status == CUVIL_OK)
      outcome = conformance_compare(
          &c, ways[way].precision == CUVIL_PRECISION_FP16, detail);
    else
      snprintf(detail, sizeof(detail), "%.500s", cuvil_last_error());
    fault = status == CU_ERR_CUDA || status == CU_ERR_CUDA_LAUNCH_TIMEOUT;
  }
  count(s, index, way, c.settled, outcome, detail);
  cuvil_plan_destroy(plan);
  conformance_close(&c);
  return fault;
}

/* In a child; exits. */
static void sweep(struct sweep *s) {
  struct cuvil_cli_target target;
  struct cuvil_gpu_stream *stream = NULL;
  struct shared *shared = s->shared;
  char device[32];
  snprintf(device, sizeof(device), "cuda:%d", s->device);
  if (cuvil_cli_target_open(device, NULL, true, &target) != CUVIL_OK ||
      cuvil_gpu_stream_create(target.gpu, &stream) != CUVIL_OK) {
    printf("# %s\n", cuvil_last_error());
    fflush(NULL);
    _exit(1);
  }
  while (shared->current < WAYS * s->count) {
    bool fault = run_one(s, &target, stream, shared->current / WAYS,
                         shared->current % WAYS);
    fflush(NULL);
    ++shared->current;
    if (fault) _exit(FAULT);
  }
  cuvil_gpu_stream_destroy(stream);
  cuvil_cli_target_close(&target);
  _exit(0);
}

/* Children until every case is behind us; false: one could not start. */
static bool run_all(struct sweep *s) {
  struct shared *shared = s->shared;
  while (shared->current < WAYS * s->count) {
    int status = 0, before = shared->current;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) sweep(s);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    if (WIFEXITED(status) && WEXITSTATUS(status) == FAULT) continue;
    if (WIFEXITED(status) && shared->current == before) return false;
    count(s, shared->current / WAYS, shared->current % WAYS, false,
          CONFORMANCE_WRONG, "the process died");
    ++shared->current;
  }
  return true;
}

/* ---- the command */

/* The device's architecture, asked in a child: children are forked before
 * this process touches the driver. */
static const struct cuvil_arch *probe(const struct sweep *s) {
  struct shared *shared = s->shared;
  snprintf(shared->why, sizeof(shared->why), "the probe of the GPU died");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    struct cuvil_gpu *gpu;
    if (cuvil_gpu_open(s->device, &gpu) == CUVIL_OK)
      snprintf(shared->arch, sizeof(shared->arch), "%s",
               cuvil_gpu_arch(gpu)->name);
    else
      snprintf(shared->why, sizeof(shared->why), "%.500s", cuvil_last_error());
    _exit(0);
  }
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
    ;
  return cuvil_arch_find(shared->arch);
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info;
  (void)kind;
  (void)walk;
  return remove(path);
}

static void usage(int status) {
  fprintf(status ? stderr : stdout,
          "usage: conformance [--device N] [--jobs N] [--compile-only ARCH] "
          "[-v] [FOLDER]\n");
  exit(status);
}

static const char *parse_options(struct sweep *s, int argc, char **argv) {
  static const struct option names[] = {
      {"device", 1, NULL, 'd'},  {"jobs", 1, NULL, 'j'},
      {"verbose", 0, NULL, 'v'}, {"compile-only", 1, NULL, 'c'},
      {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
  const char *compile_only = NULL;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  s->jobs = cores > 0 ? (int)cores : 1;
  for (int c; (c = getopt_long(argc, argv, "v", names, NULL)) != -1;) {
    if (c == 'd')
      s->device = atoi(optarg);
    else if (c == 'j')
      s->jobs = atoi(optarg) > 0 ? atoi(optarg) : 1;
    else if (c == 'c')
      compile_only = optarg;
    else if (c == 'v')
      s->verbose = true;
    else
      usage(c == 'h' ? 0 : 2);
  }
  s->folder = optind < argc ? argv[optind++] : default_folder;
  if (optind < argc) usage(2);
  return compile_only;
}

static int finish(const struct sweep *s, bool ran) {
  const struct shared *shared = s->shared;
  if (!ran) printf("not ok %d - the sweep could not go on\n", shared->line + 1);
  printf("1..%d\n# %d cases in %d precisions: %d right, %d refused, %d wrong\n",
         shared->line + !ran, s->count, WAYS, shared->right, shared->refused,
         shared->wrong);
  return !ran || shared->wrong != 0 || shared->right == 0;
}

int main(int argc, char **argv) {
  struct sweep s = {.shared = share()};
  char folder[256];
  const char *tmp = getenv("TMPDIR");
  cuvil_log_setup("conformance", CUVIL_LOG_QUIET);
  const char *compile_only = parse_options(&s, argc, argv);
  s.names = conformance_list(s.folder, &s.count);
  if (!s.names) {
    printf(
        "1..1\nok 1 - conformance # SKIP %s has no node tests (Debian: "
        "libonnx-testdata)\n",
        s.folder);
    return 0;
  }
  const struct cuvil_arch *arch =
      compile_only ? cuvil_arch_find(compile_only) : probe(&s);
  if (!arch && compile_only) usage(2);
  if (!arch) {
    printf("1..1\nok 1 - conformance # SKIP no GPU to run on: %s\n",
           s.shared->why);
    return 0;
  }
  snprintf(folder, sizeof(folder), "%s/cuvil-conformance-XXXXXX",
           tmp ? tmp : "/tmp");
  s.cubins = mkdtemp(folder);
  if (!s.cubins) {
    perror("conformance: a folder for cubins");
    return 1;
  }
  double start = cuvil_now();
  compile_ahead(&s, arch);
  printf("# compiled ahead in %.1f s: %d cases, %d failed\n",
         cuvil_now() - start, s.shared->right, s.shared->wrong);
  int failed = s.shared->wrong != 0;
  if (!compile_only) {
    s.shared->right = s.shared->wrong = 0;
    failed = finish(&s, run_all(&s));
  }
  nftw(s.cubins, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  for (int i = 0; i < s.count; ++i)
    free(s.names[i]);
  free(s.names);
  return failed;
}
