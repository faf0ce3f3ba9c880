/* families.c - every family on the GPU of this machine, against the reference.
 *
 *   families [--family ID] [--problem TEXT]... [--random N] [--limit N]
 *            [--seconds S] [--jobs N] [--device N] [--seed N] [-v]
 *
 * Problems are those of tests/support/problems.c and a few of real size; each
 * applicable family runs its default point, what the library on this machine
 * offers first, and random points up to --limit.  Outputs are poisoned, every
 * operand and workspace lies between red zones, inputs must come back as they
 * were (kernels/verify.h).  --random: N matrix products of random extents,
 * types, layouts and epilogues that the family can do, in the problems' place.
 *  On small problems the GPU's reference is first held
 * against the CPU's.  Prints TAP, one line for each family and problem.
 *
 * Compiling is done ahead by child processes into a folder of cubins.  A
 * kernel that faults takes the CUDA context with it: the program then starts
 * itself again after the group in which that happened.
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "kernels/verify.h"
#include "problem/reference.h"
#include "tests/support/problems.h"

enum { MAX_PROBLEMS = 1024, MAX_POINTS = 256 };

/* Shapes of ResNet-50 and of transformers: too much for the CPU's reference,
 * what the kernels are for. */
static const char *const real_problems[] = {
    "conv/1 n=1 c=4 h=224 w=224 k=64 r=7 s=7 stride=2,2 pad=3,3,3,3 "
    "x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias[k]); out=relu(t)}",
    "conv/1 n=8 c=64 h=56 w=56 k=64 r=3 s=3 pad=1,1,1,1 x=f16[n,h,w,c] "
    "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 epi{t=add(acc,bias[k]); "
    "out=relu(t)}",
    "conv/1 n=1 c=512 h=7 w=7 k=2048 r=1 s=1 x=f16[n,h,w,c] "
    "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 epi{t=add(acc,bias[k]); "
    "u=add(t,res[n,p,q,k]); out=relu(u)}",
    "conv/1 n=1 c=256 h=56 w=56 k=512 r=1 s=1 stride=2,2 x=f16[n,h,w,c] "
    "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 epi{out=add(acc,bias[k])}",
    "pool/1 op=max n=8 c=64 h=112 w=112 r=3 s=3 stride=2,2 pad=1,1,1,1 "
    "x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32",
    "reduce/1 op=mean n=8 h=7 w=7 c=2048 x=f16[n,h,w,c] y=f16[n,c] acc=f32",
    "pointwise/1 n=8 c=4 h=224 w=224 y=f16[n,h,w,c] "
    "epi{out=x:f32[n,c<3,h,w]}",
    "gemm/1 m=512 n=768 k=3072 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] "
    "acc=f32 epi{t=add(acc,bias[n]); out=gelu_erf(t)}",
    "gemm/1 m=1 n=1000 k=2048 a=f16[m,k] b=f16[n,k]:weight c=f32[m,n] acc=f32 "
    "epi{out=add(acc,bias[n])}",
    "gemm/1 m=300 n=700 k=1100 a=f32[m,k] b=f32[k,n] c=f32[m,n] acc=f32",
    "attention/1 b=8 hq=12 hkv=12 sq=128 skv=128 d=64 dv=64 "
    "q=f16[b,sq,hq,d]@(294912,2304,64,1) k=f16[b,skv,hkv,d]@(294912,2304,64,1) "
    "v=f16[b,skv,hkv,dv]@(294912,2304,64,1) o=f16[b,sq,hq,dv] scale=0.125 "
    "mask=f16[b,skv]:add acc=f32",
    "attention/1 b=1 hq=12 hkv=12 sq=512 skv=512 d=64 dv=64 "
    "q=f16[b,sq,hq,d]@(1179648,2304,64,1) "
    "k=f16[b,skv,hkv,d]@(1179648,2304,64,1) "
    "v=f16[b,skv,hkv,dv]@(1179648,2304,64,1) o=f16[b,sq,hq,dv] scale=0.125 "
    "causal=1 acc=f32",
    "attention/1 b=2 hq=8 hkv=2 sq=197 skv=250 d=128 dv=128 q=bf16[b,hq,sq,d] "
    "k=bf16[b,hkv,skv,d] v=bf16[b,hkv,skv,dv] o=bf16[b,sq,hq,dv] scale=0.0884 "
    "causal=1 acc=f32",
    "attention/1 b=1 hq=4 hkv=4 sq=130 skv=130 d=64 dv=64 q=f32[b,sq,hq,d] "
    "k=f32[b,skv,hkv,d] v=f32[b,skv,hkv,dv] o=f32[b,sq,hq,dv] scale=0.125 "
    "mask=bool[b,sq,skv]:keep acc=f32",
    NULL,
};

struct options {
  const char *family;
  const char *problems[MAX_PROBLEMS];
  int problem_count, random, limit, jobs, device, verbose;
  double seconds;
  uint64_t seed;
  /* Carried over a restart. */
  int from, passed, failed;
  const char *cubins;
};

struct run {
  struct options options;
  const char *program; /* argv[0] */
  double deadline;     /* 0: none */
  struct cuvil_gpu *gpu;
  int group; /* TAP number of the group at hand, from 0 */
};

/* ---- what is tested: the same points in every process */
struct group {
  const char *text;
  struct cuvil_problem problem;
  const struct cuvil_family *family;
  struct cuvil_query query;
  struct cuvil_config points[MAX_POINTS];
  int count;
};

static void add_point(struct group *g, const struct cuvil_config *config,
                      int limit) {
  if (g->count >= MAX_POINTS || g->count >= limit) return;
  for (int i = 0; i < g->count; i++)
    if (memcmp(&g->points[i], config, sizeof *config) == 0) return;
  g->points[g->count++] = *config;
}

static void fill_points(struct group *g, const struct options *o) {
  struct cuvil_rng rng = {o->seed ^ cuvil_hash64(g->text, strlen(g->text), 7)};
  struct cuvil_config config;
  g->count = 0;
  memset(&config, 0, sizeof config);
  g->family->default_config(&g->query, &config);
  add_point(g, &config, o->limit);
  uint64_t size = cuvil_space_size(g->query.space);
  for (int i = 0; size && i < 200 * o->limit && g->count < o->limit; i++) {
    memset(&config, 0, sizeof config);
    cuvil_space_point(g->query.space, cuvil_rng_below(&rng, size), &config);
    if (cuvil_family_allows(g->family, &g->query, &config, false, NULL, NULL))
      add_point(g, &config, o->limit);
  }
}

/* Fills `g` for problem p and family f; false when it is not to be tested. */
static bool make_group(const struct options *o, const struct cuvil_arch *arch,
                       int p, int f, struct group *g) {
  g->text = o->problems[p];
  g->family = cuvil_family_at(f);
  if (o->family && strcmp(o->family, g->family->id) != 0) return false;
  if (cuvil_problem_parse(g->text, &g->problem) != CUVIL_OK) {
    fprintf(stderr, "families: %s\n", cuvil_last_error());
    exit(2);
  }
  if (!(g->family->kinds & (1u << g->problem.kind)) ||
      !g->family->applicable(&g->problem, arch))
    return false;
  g->query = (struct cuvil_query){&g->problem, arch, NULL};
  if (cuvil_family_space(g->family, &g->query.space) != CUVIL_OK) {
    fprintf(stderr, "families: %s\n", cuvil_last_error());
    exit(2);
  }
  fill_points(g, o);
  return true;
}

static struct group scratch; /* large: not on the stack */

/* ---- compiling ahead */
static void compile_share(const struct run *r, const struct cuvil_arch *arch,
                          int share) {
  int number = 0;
  for (int p = 0; p < r->options.problem_count; p++) {
    for (int f = 0; f < cuvil_family_count(); f++) {
      if (!make_group(&r->options, arch, p, f, &scratch)) continue;
      for (int i = 0; i < scratch.count; i++) {
        struct cuvil_program *program;
        if (number++ % r->options.jobs != share) continue;
        if (r->deadline > 0 && cuvil_now() > r->deadline) return;
        if (scratch.family->emit(&scratch.query, &scratch.points[i],
                                 &program) != CUVIL_OK)
          continue; /* the parent meets it again and says so */
        CUVIL_IGNORE(cuvil_program_compile(program, r->options.cubins, NULL));
        cuvil_program_destroy(program);
      }
    }
  }
}

static void compile_ahead(const struct run *r, const struct cuvil_arch *arch) {
  fflush(NULL);
  for (int i = 0; i < r->options.jobs; i++) {
    pid_t child = fork();
    if (child < 0) break; /* the parent compiles what is missing */
    if (child == 0) {
      compile_share(r, arch, i);
      _exit(0);
    }
  }
  while (wait(NULL) > 0 || errno == EINTR)
    ;
}

/* The device's architecture, asked in a child: children are forked before this
 * process touches the driver. */
static const struct cuvil_arch *probe(int device, char *why, size_t size) {
  int channel[2];
  char text[256] = {0};
  if (pipe(channel) != 0) return NULL;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    struct cuvil_gpu *gpu;
    const char *answer;
    if (cuvil_gpu_open(device, &gpu) == CUVIL_OK)
      answer = cuvil_gpu_arch(gpu)->name;
    else
      answer = cuvil_last_error();
    ssize_t written = write(channel[1], answer, strlen(answer));
    _exit(written < 0);
  }
  close(channel[1]);
  size_t got = 0;
  for (ssize_t n;
       got + 1 < sizeof text &&
       (n = read(channel[0], text + got, sizeof text - 1 - got)) > 0;)
    got += (size_t)n;
  close(channel[0]);
  if (child > 0) waitpid(child, NULL, 0);
  snprintf(why, size, "%s", got ? text : "the probe of the GPU died");
  return cuvil_arch_find(text);
}

/* ---- one TAP line */
static void report(struct run *r, bool passed, const char *name,
                   const char *text, const char *note) {
  if (passed)
    r->options.passed++;
  else
    r->options.failed++;
  printf("%s %d - %s %s%s%s\n", passed ? "ok" : "not ok",
         r->options.passed + r->options.failed, name, text, *note ? " # " : "",
         note);
  fflush(stdout);
}

static void diagnose(const struct group *g, const struct cuvil_config *config,
                     const char *reason, const char *detail) {
  struct cuvil_buf text = {0};
  cuvil_config_print(g->query.space, config, &text);
  printf("# %s: %s {%s}: %s\n", reason, g->family->id, cuvil_buf_text(&text),
         detail);
  cuvil_buf_free(&text);
}

/* Starts the program again after the group at hand. */
static void restart(struct run *r, int argc, char **argv) {
  char **args = calloc((size_t)argc + 10, sizeof *args);
  char texts[4][32];
  int count = 0;
  if (!args) exit(1);
  for (int i = 0; i < argc; i++) {
    if (strcmp(argv[i], "--resume") == 0) break;
    args[count++] = argv[i];
  }
  snprintf(texts[0], sizeof texts[0], "%d", r->group + 1);
  snprintf(texts[1], sizeof texts[1], "%d", r->options.passed);
  snprintf(texts[2], sizeof texts[2], "%d", r->options.failed);
  snprintf(texts[3], sizeof texts[3], "%.3f",
           r->deadline > 0 ? fmax(r->deadline - cuvil_now(), 1e-3) : 0.0);
  args[count++] = (char[]){"--resume"};
  for (int i = 0; i < 4; i++)
    args[count++] = texts[i];
  args[count++] = (char *)(uintptr_t)r->options.cubins;
  execv("/proc/self/exe", args);
  perror("families: cannot start again");
  exit(1);
}

/* ---- checks */
/* CPU and GPU compute the same values and bounds. */
static bool same_reference(double value, double bound, double cpu_value,
                           double cpu_bound) {
  if (isnan(cpu_bound) || isnan(bound)) return isnan(cpu_bound) && isnan(bound);
  if (isinf(cpu_bound) || isinf(bound)) return cpu_bound == bound;
  if (isnan(cpu_value) || isnan(value)) return isnan(cpu_value) && isnan(value);
  if (isinf(cpu_value) || isinf(value)) return cpu_value == value;
  double size = fabs(cpu_value) + cpu_bound;
  return fabs(value - cpu_value) <= 1e-9 * size + 1e-30 &&
         fabs(bound - cpu_bound) <= 1e-3 * cpu_bound + 1e-9 * size + 1e-30;
}

struct host {
  void *operands[CUVIL_MAX_OPERANDS];
  double *values[CUVIL_MAX_OPERANDS], *bounds[CUVIL_MAX_OPERANDS];
};

static void *need(size_t size) {
  void *memory = malloc(size ? size : 1);
  if (memory) return memory;
  fprintf(stderr, "families: out of memory\n");
  exit(1);
}

static void host_reference(const struct cuvil_problem *p, uint64_t seed,
                           struct host *h) {
  memset(h, 0, sizeof *h);
  for (int i = 0; i < p->operand_count; i++) {
    size_t elements = (size_t)cuvil_operand_elements(p, i);
    if (p->operands[i].role == CUVIL_ROLE_OUTPUT) {
      h->values[i] = need(elements * sizeof(double));
      h->bounds[i] = need(elements * sizeof(double));
    } else {
      h->operands[i] = need((size_t)cuvil_operand_bytes(p, i));
      cuvil_problem_random(p, i, seed, h->operands[i]);
    }
  }
  if (cuvil_problem_reference(p, (const void *const *)h->operands, h->values,
                              h->bounds, 0) != CUVIL_OK) {
    fprintf(stderr, "families: %s\n", cuvil_last_error());
    exit(1);
  }
}

static int64_t count_differences(struct run *r, struct cuvil_verifier *v,
                                 int operand, int64_t elements,
                                 const struct host *h) {
  size_t bytes = (size_t)elements * sizeof(double);
  double *values = need(bytes), *bounds = need(bytes);
  int64_t different = 0;
  if (cuvil_gpu_download(r->gpu, values, cuvil_verifier_values(v, operand),
                         bytes) != CUVIL_OK ||
      cuvil_gpu_download(r->gpu, bounds, cuvil_verifier_bounds(v, operand),
                         bytes) != CUVIL_OK) {
    printf("# %s\n", cuvil_last_error());
    different = elements;
  }
  for (int64_t i = 0; different < elements && i < elements; i++) {
    if (same_reference(values[i], bounds[i], h->values[operand][i],
                       h->bounds[operand][i]))
      continue;
    if (different++ < 4)
      printf("# operand %d at %lld: GPU %.17g +- %.9g, CPU %.17g +- %.9g\n",
             operand, (long long)i, values[i], bounds[i], h->values[operand][i],
             h->bounds[operand][i]);
  }
  free(values);
  free(bounds);
  return different;
}

static void check_reference(struct run *r, const char *text,
                            const struct cuvil_problem *p,
                            struct cuvil_verifier *v) {
  struct host h;
  int64_t different = 0;
  host_reference(p, r->options.seed, &h);
  for (int i = 0; i < p->operand_count; i++)
    if (p->operands[i].role == CUVIL_ROLE_OUTPUT)
      different += count_differences(r, v, i, cuvil_operand_elements(p, i), &h);
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++) {
    free(h.operands[i]);
    free(h.values[i]);
    free(h.bounds[i]);
  }
  report(r, different == 0, "reference", text, "");
}

/* true: right; *fault: the context is gone. */
static bool check_point(struct run *r, const struct group *g,
                        const struct cuvil_config *config,
                        struct cuvil_verifier *v, double *worst, bool *fault) {
  struct cuvil_program *program = NULL;
  struct cuvil_executable *executable = NULL;
  struct cuvil_verdict verdict = {.right = false};
  const char *stage = "emit";
  enum cuvil_status status = CUVIL_OK;
  CUVIL_TRY_GOTO(g->family->emit(&g->query, config, &program));
  stage = "compile";
  CUVIL_TRY_GOTO(cuvil_program_compile(program, r->options.cubins, NULL));
  stage = "prepare";
  CUVIL_TRY_GOTO(cuvil_executable_create(r->gpu, program, &executable));
  stage = "run";
  CUVIL_TRY_GOTO(cuvil_verifier_check(v, program, executable, &verdict));
  if (!verdict.right) diagnose(g, config, verdict.reason, verdict.detail);
  if (verdict.worst_ratio > *worst) *worst = verdict.worst_ratio;
fail:
  if (status != CUVIL_OK) {
    diagnose(g, config, stage, cuvil_last_error());
    *fault = status == CU_ERR_CUDA || status == CU_ERR_CUDA_LAUNCH_TIMEOUT;
  }
  cuvil_executable_destroy(executable);
  cuvil_program_destroy(program);
  return status == CUVIL_OK && verdict.right;
}

static void add_choices(struct run *r, struct group *g) {
  struct cuvil_config found[8];
  int count = 0, most = r->options.limit < 8 ? r->options.limit : 8;
  if (!g->family->choices) return;
  memset(found, 0, sizeof found);
  if (g->family->choices(&g->query, r->gpu, most, found, &count) != CUVIL_OK)
    printf("# %s: %s\n", g->family->id, cuvil_last_error());
  for (int i = 0; i < count; i++)
    add_point(g, &found[i], r->options.limit + 8);
}

static bool library_here(const struct cuvil_family *f) {
  char version[32] = "";
  if (!f->library) return true;
  cuvil_library_version(f->library, version, sizeof version);
  return *version;
}

static void check_group(struct run *r, struct group *g,
                        struct cuvil_verifier *v, int argc, char **argv) {
  char note[96];
  bool fault = false;
  int wrong = 0;
  double worst = 0, start = cuvil_now();
  if (!library_here(g->family)) {
    snprintf(note, sizeof note, "SKIP no %s on this machine",
             g->family->library);
    report(r, true, g->family->id, g->text, note);
    return;
  }
  add_choices(r, g);
  for (int i = 0; i < g->count && !fault; i++)
    wrong += !check_point(r, g, &g->points[i], v, &worst, &fault);
  snprintf(note, sizeof note, "%d of %d points, worst %.3g of bound, %.1f s",
           g->count - wrong, g->count, worst, cuvil_now() - start);
  report(r, wrong == 0, g->family->id, g->text, note);
  if (fault) restart(r, argc, argv);
}

static void check_problem(struct run *r, int p, int *number, int argc,
                          char **argv) {
  const struct cuvil_arch *arch = cuvil_gpu_arch(r->gpu);
  struct cuvil_verifier *v = NULL;
  struct cuvil_problem problem;
  bool tried = false;
  for (int f = -1; f < cuvil_family_count(); f++) {
    /* Group -1 of a problem is its reference. */
    if (f >= 0 && !make_group(&r->options, arch, p, f, &scratch)) continue;
    if ((*number)++ < r->options.from) continue;
    r->group = *number - 1;
    if (!tried) {
      tried = true;
      if (cuvil_problem_parse(r->options.problems[p], &problem) != CUVIL_OK ||
          cuvil_verifier_create(r->gpu, &problem, r->options.seed,
                                r->options.cubins, &v) != CUVIL_OK) {
        printf("# %s\n", cuvil_last_error());
        report(r, false, "verifier", r->options.problems[p], "");
      }
    }
    if (!v) continue;
    if (f >= 0)
      check_group(r, &scratch, v, argc, argv);
    else if (cuvil_problem_flops(&problem) < 2e8)
      check_reference(r, r->options.problems[p], &problem, v);
  }
  cuvil_verifier_destroy(v);
}

/* ---- the command */
static void usage(int status) {
  fprintf(status ? stderr : stdout,
          "usage: families [--family ID] [--problem TEXT]... [--random N] "
          "[--limit N] [--seconds S] [--jobs N] [--device N] [--seed N] "
          "[-v]\n");
  exit(status);
}

static void resume(struct run *r, int argc, char **argv, int at) {
  if (at + 4 >= argc) usage(2);
  r->options.from = atoi(argv[at]);
  r->options.passed = atoi(argv[at + 1]);
  r->options.failed = atoi(argv[at + 2]);
  r->options.seconds = atof(argv[at + 3]);
  r->options.cubins = argv[at + 4];
}

static void parse_options(struct run *r, int argc, char **argv) {
  static const struct option names[] = {
      {"family", 1, NULL, 'f'}, {"problem", 1, NULL, 'p'},
      {"limit", 1, NULL, 'l'},  {"seconds", 1, NULL, 's'},
      {"jobs", 1, NULL, 'j'},   {"device", 1, NULL, 'd'},
      {"seed", 1, NULL, 'e'},   {"verbose", 0, NULL, 'v'},
      {"random", 1, NULL, 'n'}, {"resume", 1, NULL, 'r'},
      {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};
  struct options *o = &r->options;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  o->limit = 6;
  o->jobs = cores > 0 ? (int)cores : 1;
  o->seed = 1;
  for (int c; (c = getopt_long(argc, argv, "v", names, NULL)) != -1;) {
    if (c == 'f')
      o->family = optarg;
    else if (c == 'p' && o->problem_count < MAX_PROBLEMS)
      o->problems[o->problem_count++] = optarg;
    else if (c == 'n')
      o->random = atoi(optarg);
    else if (c == 'l')
      o->limit = atoi(optarg);
    else if (c == 's')
      o->seconds = atof(optarg);
    else if (c == 'j')
      o->jobs = atoi(optarg) > 0 ? atoi(optarg) : 1;
    else if (c == 'd')
      o->device = atoi(optarg);
    else if (c == 'e')
      o->seed = strtoull(optarg, NULL, 10);
    else if (c == 'v')
      o->verbose = 1;
    else if (c == 'r') {
      resume(r, argc, argv, optind - 1);
      return;
    } else
      usage(c == 'h' ? 0 : 2);
  }
  if (optind < argc) usage(2);
}

/* Of the family, or of any family that is no reference. */
static bool somebody_can(const struct options *o, const char *text) {
  static struct cuvil_problem problem; /* large */
  const struct cuvil_arch *arch = cuvil_arch_find("sm_90");
  if (cuvil_problem_parse(text, &problem) != CUVIL_OK) {
    fprintf(stderr, "families: %s\n", cuvil_last_error());
    exit(2);
  }
  for (int i = 0; i < cuvil_family_count(); i++) {
    const struct cuvil_family *f = cuvil_family_at(i);
    if (o->family ? strcmp(o->family, f->id) != 0 : f->reference) continue;
    if ((f->kinds & 1u << problem.kind) && f->applicable(&problem, arch))
      return true;
  }
  return false;
}

static void random_problems(struct options *o) {
  struct cuvil_rng rng = {o->seed};
  char text[512];
  for (int tries = 0; o->problem_count < o->random; tries++) {
    if (o->problem_count == MAX_PROBLEMS || tries > 1000 * o->random) {
      fprintf(stderr, "families: no more than %d random problems\n",
              o->problem_count);
      exit(2);
    }
    cuvil_test_random_gemm(&rng, text, sizeof text);
    if (somebody_can(o, text)) o->problems[o->problem_count++] = strdup(text);
  }
}

static void all_problems(struct options *o) {
  random_problems(o);
  if (o->problem_count > 0) return;
  for (int i = 0; cuvil_test_problems[i]; i++)
    o->problems[o->problem_count++] = cuvil_test_problems[i];
  for (int i = 0; real_problems[i]; i++)
    o->problems[o->problem_count++] = real_problems[i];
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info;
  (void)kind;
  (void)walk;
  return remove(path);
}

int main(int argc, char **argv) {
  static struct run r;
  char why[256], folder[] = "/tmp/cuvil-families-XXXXXX";
  cuvil_log_setup("families", CUVIL_LOG_NORMAL);
  parse_options(&r, argc, argv);
  if (r.options.verbose) cuvil_log_setup("families", CUVIL_LOG_VERBOSE);
  all_problems(&r.options);
  if (r.options.seconds > 0) r.deadline = cuvil_now() + r.options.seconds;
  if (!r.options.cubins) {
    const struct cuvil_arch *arch = probe(r.options.device, why, sizeof why);
    if (!arch) {
      printf("1..1\nok 1 - families # SKIP no GPU to run on: %s\n", why);
      return 0;
    }
    r.options.cubins = mkdtemp(folder);
    if (!r.options.cubins) {
      perror("families: a folder for cubins");
      return 1;
    }
    double start = cuvil_now();
    compile_ahead(&r, arch);
    printf("# compiled ahead in %.1f s\n", cuvil_now() - start);
  }
  if (cuvil_gpu_open(r.options.device, &r.gpu) != CUVIL_OK) {
    fprintf(stderr, "families: %s\n", cuvil_last_error());
    return 1;
  }
  int number = 0, p = 0;
  for (; p < r.options.problem_count; p++) {
    if (r.deadline > 0 && cuvil_now() > r.deadline) break;
    check_problem(&r, p, &number, argc, argv);
  }
  if (p < r.options.problem_count)
    printf("# time is up: %d of %d problems not reached\n",
           r.options.problem_count - p, r.options.problem_count);
  printf("1..%d\n# %d passed, %d failed\n", r.options.passed + r.options.failed,
         r.options.passed, r.options.failed);
  cuvil_gpu_close(r.gpu);
  nftw(r.options.cubins, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  return r.options.failed != 0;
}
