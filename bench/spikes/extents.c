/* extents.c - spike 2: extents as kernel arguments against extents baked in.
 *
 * For ten problems of ResNet-50 the default configuration's kernel is built
 * twice: as emitted (extents are arguments), and with every integer argument
 * turned into a constant of that name in the kernel's text.  Both run the same
 * launch, raced in interleaved rounds.  Prints the ratio of times, registers,
 * and how many distinct cubins each way needs.
 */
#include <ctype.h>
#include <string.h>

#include "kernels/family.h"
#include "runtime/executor.h"
#include "spike.h"

static const char *const problems[] = {
    "conv/1 n=1 c=64 h=56 w=56 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "conv/1 n=1 c=128 h=28 w=28 k=128 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "conv/1 n=1 c=256 h=14 w=14 k=256 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "conv/1 n=1 c=512 h=7 w=7 k=512 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "conv/1 n=1 c=4 h=224 w=224 k=64 r=7 s=7 stride=2,2 pad=3,3,3,3 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "conv/1 n=32 c=64 h=56 w=56 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "conv/1 n=32 c=256 h=14 w=14 k=256 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 "
    "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32 "
    "epi{t=add(acc,bias:f32[k]); out=relu(t)}",
    "gemm/1 m=3136 n=256 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32 "
    "epi{t=add(acc,bias:f32[n]); u=add(t,res[m,n]); out=relu(u)}",
    "gemm/1 m=196 n=1024 k=256 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32 "
    "epi{t=add(acc,bias:f32[n]); u=add(t,res[m,n]); out=relu(u)}",
    "gemm/1 m=6272 n=512 k=2048 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] "
    "acc=f32 epi{t=add(acc,bias:f32[n]); out=relu(t)}",
};
enum { COUNT = sizeof problems / sizeof problems[0], ROUNDS = 24 };

struct runner {
  struct cuvil_executable *executable;
  const uint64_t *addresses;
};

static enum cuvil_status run(void *user, int rotation,
                             struct cuvil_gpu_stream *stream) {
  (void)rotation;
  struct runner *runner = user;
  return cuvil_executable_run(runner->executable, runner->addresses, stream);
}

/* The parameters' names in order stand in the template's KERNEL_PARAMETERS;
 * each baked one is renamed there and becomes a constant in the body. */
static char *bake(const char *source, const struct cuvil_step *step) {
  static const char mark[] = "#define KERNEL_PARAMETERS",
                    body[] = "extern __shared__";
  const char *list = strstr(source, mark);
  if (!list) return NULL;
  struct cuvil_buf out = {0}, constants = {0};
  const char *p = list + sizeof mark - 1;
  cuvil_buf_add(&out, source, (size_t)(p - source));
  int index = 0;
  while (*p && !(*p == '\n' && p[-1] != '\\')) {
    const char *end = p;
    while (*end && *end != ',' && !(*end == '\n' && end[-1] != '\\'))
      end++;
    const char *last = end; /* the name: the last identifier of the piece */
    while (last > p && !isalnum((unsigned char)last[-1]) && last[-1] != '_')
      last--;
    const char *first = last;
    while (first > p && (isalnum((unsigned char)first[-1]) || first[-1] == '_'))
      first--;
    cuvil_buf_add(&out, p, (size_t)(last - p));
    const struct cuvil_arg *arg = &step->args[index];
    if (arg->kind == CUVIL_ARG_I32) {
      cuvil_buf_puts(&out, "_given");
      cuvil_buf_printf(&constants, "const unsigned baked_%d = %uu;\n", index,
                       (unsigned)arg->value.i);
      cuvil_buf_printf(
          &constants, "const %s %.*s = baked_%d;\n",
          strstr(p, "u32") && strstr(p, "u32") < last ? "u32" : "int",
          (int)(last - first), first, index);
    }
    cuvil_buf_add(&out, last, (size_t)(end - last));
    if (*end == ',') {
      cuvil_buf_puts(&out, ",");
      end++;
    }
    p = end;
    index++;
  }
  const char *kernel = strstr(p, "__launch_bounds__");
  const char *at = kernel ? strstr(kernel, body) : NULL;
  if (!at) return NULL;
  cuvil_buf_add(&out, p, (size_t)(at - p));
  cuvil_buf_add(&out, constants.data, constants.size);
  cuvil_buf_puts(&out, at);
  cuvil_buf_free(&constants);
  return cuvil_buf_take(&out);
}

static struct cuvil_program *emit(const struct cuvil_problem *problem,
                                  const struct cuvil_arch *arch) {
  const struct cuvil_family *family = cuvil_family_find(
      problem->kind == CUVIL_KIND_CONV ? "conv_mma" : "gemm_mma");
  struct cuvil_query query = {.problem = problem, .arch = arch};
  struct cuvil_config config;
  struct cuvil_program *program;
  if (!family) exit(1);
  SPIKE(cuvil_family_space(family, &query.space));
  family->default_config(&query, &config);
  SPIKE(family->emit(&query, &config, &program));
  return program;
}

static struct cuvil_executable *build(struct cuvil_gpu *gpu,
                                      struct cuvil_program *program,
                                      struct cuvil_compile_result *result) {
  struct cuvil_executable *executable;
  SPIKE(cuvil_program_compile(program, NULL, result));
  if (!gpu) return NULL;
  SPIKE(cuvil_executable_create(gpu, program, &executable));
  return executable;
}

int main(int argc, char **argv) {
  /* --no-gpu: only compile both ways (registers and seconds). */
  const bool dry = argc > 1 && strcmp(argv[1], "--no-gpu") == 0;
  struct cuvil_gpu *gpu = NULL;
  if (!dry) SPIKE(cuvil_gpu_open(0, &gpu));
  const struct cuvil_arch *arch =
      dry ? cuvil_arch_find("sm_90") : cuvil_gpu_arch(gpu);
  char hashes[COUNT][CUVIL_HASH_SIZE];
  int distinct = 0;
  for (int i = 0; i < COUNT; i++) {
    struct cuvil_problem problem;
    SPIKE(cuvil_problem_parse(problems[i], &problem));
    struct cuvil_program *program[2] = {emit(&problem, arch),
                                        emit(&problem, arch)};
    int seen = 0;
    for (int j = 0; j < distinct; j++)
      seen |= strcmp(hashes[j], program[0]->modules[0].hash) == 0;
    if (!seen) strcpy(hashes[distinct++], program[0]->modules[0].hash);
    char *baked = bake(program[1]->modules[0].source, &program[1]->steps[0]);
    if (!baked) {
      fprintf(stderr, "extents: the template's parameters were not found\n");
      return 1;
    }
    free(program[1]->modules[0].source);
    program[1]->modules[0].source = baked;
    struct cuvil_compile_result results[2];
    struct runner runners[2];
    uint64_t addresses[CUVIL_MAX_OPERANDS + 2] = {0};
    if (gpu)
      for (int b = 0; b < program[0]->buffer_count; b++) {
        uint64_t bytes = program[0]->buffers[b].bytes;
        SPIKE(cuvil_gpu_alloc(gpu, bytes, &addresses[b]));
        SPIKE(cuvil_gpu_memset(gpu, addresses[b], 0, bytes, NULL));
      }
    struct cuvil_timer *timers[2];
    double seconds[2][ROUNDS];
    for (int t = 0; t < 2; t++) {
      runners[t] =
          (struct runner){build(gpu, program[t], &results[t]), addresses};
      if (!gpu) continue;
      struct cuvil_subject subject = {
          .user = &runners[t], .enqueue = run, .rotations = 1};
      struct cuvil_timer_options options = {.block_seconds = 1e-3,
                                            .max_runs = 50};
      SPIKE(cuvil_timer_create(gpu, &subject, &options, &timers[t]));
      SPIKE(cuvil_timer_warm_up(timers[t], 0.02));
    }
    printf("%-70.70s registers %d -> %d, compile %.2f -> %.2f s", problems[i],
           results[0].registers, results[1].registers, results[0].seconds,
           results[1].seconds);
    if (gpu) {
      for (int round = 0; round < ROUNDS; round++)
        for (int t = 0; t < 2; t++) {
          struct cuvil_block block;
          SPIKE(cuvil_timer_block(timers[t ^ (round & 1)], &block));
          seconds[t ^ (round & 1)][round] = block.seconds;
        }
      struct cuvil_interval time, ratio;
      cuvil_median_interval(seconds[0], ROUNDS, 0.95, &time);
      cuvil_paired_ratio(seconds[0], seconds[1], ROUNDS, 0.95, &ratio);
      printf(", arguments %.2f us, arguments/baked %.3f [%.3f, %.3f]",
             time.median * 1e6, ratio.median, ratio.low, ratio.high);
    }
    printf("\n");
    for (int t = 0; t < 2; t++) {
      if (gpu) {
        cuvil_timer_destroy(timers[t]);
        cuvil_executable_destroy(runners[t].executable);
      }
      cuvil_compile_result_free(&results[t]);
      cuvil_program_destroy(program[t]);
    }
    if (gpu)
      for (int b = 0; b < CUVIL_MAX_OPERANDS + 2; b++)
        cuvil_gpu_free(gpu, addresses[b]);
  }
  printf("%d problems: %d distinct cubins with arguments, %d baked\n",
         (int)COUNT, distinct, (int)COUNT);
  return 0;
}
