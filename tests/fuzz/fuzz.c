/* fuzz.c - make fuzz: changed inputs through everything that reads a file.
 *
 *   fuzz [--seconds S | --inputs N] [--seed N] [--target NAME] [--keep DIR]
 *        [SEEDS...]
 *   fuzz --replay FILE...       tries files as they are, in this process
 *   fuzz --make-seeds DIR
 *
 * SEEDS are files or folders (default: tests/fuzz/seeds and spaces).  An input
 * is a seed changed a few times, all of it decided by the seed and the input's
 * number.  Inputs are tried in a child, which the parent watches: a crash, a
 * sanitizer's report, a leak, more than a second of CPU time or more memory
 * than the bound is a finding; its input is kept under --keep (build/fuzz) and
 * the next child goes on behind it.  Meant for MODE=asan; exits 1 after a
 * finding.
 *
 * The bound on memory: what lives at a time on behalf of one input, at most
 * 768 MiB and 64 times the input's size.  Constants of a model may fold to
 * 128 MiB and more by its size (graph/infer.c), and while a node of them is
 * evaluated its inputs and outputs are held as host tensors beside.
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/problems.h"

enum { MOST_BYTES = 4 << 20, INPUTS_A_CHILD = 4000, CPU_SECONDS = 1 };

struct seed {
  enum fuzz_target target;
  struct cuvil_buf bytes;
};

/* What outlives a child. */
struct shared {
  int64_t number; /* of the input at hand */
  int64_t tried[FUZZ_TARGETS];
  enum fuzz_target target;
  size_t size, most_live;
  double slowest;
  bool leak;
  uint8_t bytes[MOST_BYTES];
};

struct options {
  double seconds;
  int64_t inputs;
  uint64_t seed;
  int target; /* -1: all */
  const char *keep;
};

static struct seed *seeds;
static int seed_count, by_target[FUZZ_TARGETS];
static struct shared *shared;

/* ---- memory: live bytes, by the sanitizer's hooks where they are */
int __sanitizer_install_malloc_and_free_hooks(
    void (*on_malloc)(const volatile void *, size_t),
    void (*on_free)(const volatile void *)) __attribute__((weak));
size_t __sanitizer_get_allocated_size(const volatile void *)
    __attribute__((weak));
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static atomic_size_t live;
static size_t base_live, bound_live;

static void on_malloc(const volatile void *p, size_t size) {
  (void)p;
  size_t now = atomic_fetch_add(&live, size) + size - base_live;
  if (now <= shared->most_live || now > (size_t)1 << 62) return;
  shared->most_live = now;
  if (now <= bound_live) return;
  static const char text[] = "fuzz: more memory than the bound\n";
  ssize_t written = write(2, text, sizeof(text) - 1);
  (void)written;
  abort();
}
static void on_free(const volatile void *p) {
  if (p) atomic_fetch_sub(&live, __sanitizer_get_allocated_size(p));
}

static void count_memory(void) {
  if (__sanitizer_install_malloc_and_free_hooks &&
      __sanitizer_get_allocated_size)
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

/* ---- seeds */
static void add_seed(enum fuzz_target target, const void *bytes, size_t size) {
  seeds = realloc(seeds, ((size_t)seed_count + 1) * sizeof(*seeds));
  if (!seeds) abort();
  seeds[seed_count] = (struct seed){.target = target};
  cuvil_buf_add(&seeds[seed_count].bytes, bytes, size);
  ++by_target[target];
  ++seed_count;
}

static void add_file(const char *path) {
  struct cuvil_buf bytes = {0};
  int target = fuzz_target_of(path);
  if (target < 0) return;
  if (cuvil_file_read(path, &bytes) != CUVIL_OK) {
    fprintf(stderr, "fuzz: %s\n", cuvil_last_error());
    exit(2);
  }
  add_seed((enum fuzz_target)target, bytes.data, bytes.size);
  if (target == FUZZ_MODEL) add_seed(FUZZ_GRAPH, bytes.data, bytes.size);
  cuvil_buf_free(&bytes);
}

static void add_seeds(const char *path) {
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, alphasort);
  if (count < 0) {
    add_file(path);
    return;
  }
  for (int i = 0; i < count; ++i) {
    char name[1024];
    snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
    add_file(name);
    free(entries[i]);
  }
  free(entries);
}

/* ---- one input */
static enum fuzz_target pick_target(const struct options *o,
                                    struct cuvil_rng *rng) {
  if (o->target >= 0) return (enum fuzz_target)o->target;
  for (;;) {
    int left = (int)cuvil_rng_below(rng, 100), target = 0;
    while (left >= fuzz_target_shares[target])
      left -= fuzz_target_shares[target++];
    if (by_target[target] > 0) return (enum fuzz_target)target;
  }
}

static void make_input(const struct options *o, int64_t number) {
  struct cuvil_rng rng = {o->seed * 1000003 + (uint64_t)number};
  struct cuvil_buf bytes = {0}, next = {0};
  CUVIL_IGNORE(cuvil_rng_next(&rng) == 0);
  enum fuzz_target target = pick_target(o, &rng);
  int which = (int)cuvil_rng_below(&rng, (uint64_t)by_target[target]), s = 0;
  while (seeds[s].target != target || which-- > 0)
    ++s;
  cuvil_buf_add(&bytes, seeds[s].bytes.data, seeds[s].bytes.size);
  for (uint64_t times = 1 + cuvil_rng_below(&rng, 4); times > 0; --times) {
    fuzz_mutate(target, bytes.data, bytes.size, &rng, &next);
    cuvil_buf_free(&bytes);
    bytes = next;
    memset(&next, 0, sizeof(next));
  }
  if (bytes.size > MOST_BYTES) bytes.size = MOST_BYTES;
  shared->target = target;
  shared->size = bytes.size;
  if (bytes.size) memcpy(shared->bytes, bytes.data, bytes.size);
  cuvil_buf_free(&bytes);
}

static double cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void try_input(const char *folder) {
  struct itimerval limit = {.it_value = {.tv_sec = CPU_SECONDS}}, none = {0};
  /* A copy of its exact size, so that reading beyond it shows. */
  uint8_t *bytes = malloc(shared->size ? shared->size : 1);
  if (!bytes) abort();
  memcpy(bytes, shared->bytes, shared->size);
  base_live = live;
  bound_live = ((size_t)768 << 20) + 64 * shared->size;
  double start = cpu_now();
  setitimer(ITIMER_PROF, &limit, NULL); /* SIGPROF ends the process */
  fuzz_try(shared->target, bytes, shared->size, folder);
  setitimer(ITIMER_PROF, &none, NULL);
  double seconds = cpu_now() - start;
  if (seconds > shared->slowest) shared->slowest = seconds;
  bound_live = SIZE_MAX;
  free(bytes);
  ++shared->tried[shared->target];
}

/* ---- children */
static bool time_is_up(const struct options *o, double start) {
  if (o->inputs > 0) return shared->number >= o->inputs;
  return cuvil_now() - start >= o->seconds;
}

static void run_child(const struct options *o, double start,
                      const char *folder) {
  count_memory();
  for (int i = 0; i < INPUTS_A_CHILD && !time_is_up(o, start); ++i) {
    bound_live = SIZE_MAX;
    make_input(o, shared->number);
    try_input(folder);
    ++shared->number;
    if (i % 256 == 255 && __lsan_do_recoverable_leak_check &&
        __lsan_do_recoverable_leak_check()) {
      shared->leak = true;
      _exit(1);
    }
  }
  _exit(0);
}

static void keep(const struct options *o, int findings, const char *what) {
  static const char *const endings[] = {
      ".onnx", ".onnx", ".plan", ".t4.json", ".db", ".pb", ".problem", ".json"};
  char path[512];
  CUVIL_IGNORE(cuvil_make_dirs(o->keep));
  snprintf(path, sizeof(path), "%s/%s-%llu-%lld%s", o->keep,
           fuzz_target_names[shared->target], (unsigned long long)o->seed,
           (long long)shared->number, endings[shared->target]);
  CUVIL_IGNORE(cuvil_file_write_atomic(path, shared->bytes, shared->size));
  printf("not ok %d - %s: %s\n", findings, path, what);
  fflush(stdout);
}

static int run_all(const struct options *o, const char *folder) {
  double start = cuvil_now();
  int findings = 0;
  while (!time_is_up(o, start) && findings < 50) {
    int status = 0;
    char what[128];
    int64_t before = shared->number;
    shared->leak = false;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
      perror("fuzz: fork");
      return 1;
    }
    if (child == 0) run_child(o, start, folder);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (shared->leak)
      snprintf(what, sizeof(what), "a leak in the inputs %lld to %lld",
               (long long)before, (long long)shared->number);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
      snprintf(what, sizeof(what), "more than %d s of CPU time", CPU_SECONDS);
    else if (WIFSIGNALED(status))
      snprintf(what, sizeof(what), "%s", strsignal(WTERMSIG(status)));
    else
      snprintf(what, sizeof(what), "exit status %d", WEXITSTATUS(status));
    keep(o, ++findings, what);
    ++shared->number;
  }
  printf(
      "# %lld inputs in %.0f s; slowest %.2f s of CPU, most memory %.1f "
      "MiB\n",
      (long long)shared->number, cuvil_now() - start, shared->slowest,
      (double)shared->most_live / (1 << 20));
  for (int t = 0; t < FUZZ_TARGETS; ++t)
    if (shared->tried[t])
      printf("ok %d - %s: %lld inputs\n", findings + t + 1,
             fuzz_target_names[t], (long long)shared->tried[t]);
  return findings != 0;
}

/* ---- the command */
static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info;
  (void)kind;
  (void)walk;
  return remove(path);
}

static int replay(char **paths, int count, const char *folder) {
  bound_live = SIZE_MAX;
  count_memory();
  for (int i = 0; i < count; ++i) {
    struct cuvil_buf bytes = {0};
    int target = fuzz_target_of(paths[i]);
    if (target < 0 || cuvil_file_read(paths[i], &bytes) != CUVIL_OK ||
        bytes.size > MOST_BYTES) {
      fprintf(stderr, "fuzz: %s cannot be tried\n", paths[i]);
      return 2;
    }
    shared->target = (enum fuzz_target)target;
    shared->size = bytes.size;
    if (bytes.size) memcpy(shared->bytes, bytes.data, bytes.size);
    cuvil_buf_free(&bytes);
    try_input(folder);
    printf("ok %d - %s\n", i + 1, paths[i]);
  }
  return 0;
}

static void usage(int status) {
  fprintf(status ? stderr : stdout,
          "usage: fuzz [--seconds S | --inputs N] [--seed N] [--target NAME] "
          "[--keep DIR] [SEEDS...]\n"
          "       fuzz --replay FILE...\n       fuzz --make-seeds DIR\n");
  exit(status);
}

static int target_named(const char *name) {
  for (int t = 0; t < FUZZ_TARGETS; ++t)
    if (strcmp(fuzz_target_names[t], name) == 0) return t;
  usage(2);
  return -1;
}

int main(int argc, char **argv) {
  static const struct option names[] = {
      {"seconds", 1, NULL, 's'}, {"inputs", 1, NULL, 'i'},
      {"seed", 1, NULL, 'e'},    {"target", 1, NULL, 't'},
      {"keep", 1, NULL, 'k'},    {"replay", 0, NULL, 'r'},
      {"help", 0, NULL, 'h'},    {"make-seeds", 1, NULL, 'm'},
      {NULL, 0, NULL, 0}};
  struct options o = {
      .seconds = 60, .seed = 1, .target = -1, .keep = "build/fuzz"};
  bool again = false;
  cuvil_log_setup("fuzz", CUVIL_LOG_QUIET);
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    if (c == 's')
      o.seconds = atof(optarg);
    else if (c == 'i')
      o.inputs = atoll(optarg);
    else if (c == 'e')
      o.seed = strtoull(optarg, NULL, 10);
    else if (c == 't')
      o.target = target_named(optarg);
    else if (c == 'k')
      o.keep = optarg;
    else if (c == 'r')
      again = true;
    else if (c == 'm')
      return fuzz_make_seeds(optarg);
    else
      usage(c == 'h' ? 0 : 2);
  }
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const char *tmp = getenv("TMPDIR");
  char folder[256];
  snprintf(folder, sizeof(folder), "%s/cuvil-fuzz-XXXXXX", tmp ? tmp : "/tmp");
  if (shared == MAP_FAILED || !mkdtemp(folder)) {
    perror("fuzz: a folder to work in");
    return 1;
  }
  int result;
  if (again) {
    result = replay(argv + optind, argc - optind, folder);
  } else {
    for (int i = optind; i < argc; ++i)
      add_seeds(argv[i]);
    if (optind == argc) {
      add_seeds("tests/fuzz/seeds");
      add_seeds("spaces");
    }
    for (int i = 0; cuvil_test_problems[i]; ++i)
      add_seed(FUZZ_PROBLEM, cuvil_test_problems[i],
               strlen(cuvil_test_problems[i]));
    result = run_all(&o, folder);
  }
  nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  for (int i = 0; i < seed_count; ++i)
    cuvil_buf_free(&seeds[i].bytes);
  free(seeds);
  return result;
}
