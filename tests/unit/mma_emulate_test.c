/* mma_emulate_test.c - the matrix-product kernels run on the CPU: the text that
 * NVRTC would get, made C++ by turning every asm statement into a call, against
 * a machine that knows cp.async, ldmatrix, mma and clusters
 * (tests/support/mma_emulator.hpp).  Results are held against the reference and
 * its bounds.  CUVIL_TEST_FULL=1 takes many points of every problem; the name
 * of a family as argument takes its problems only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/family.h"
#include "tests/support/problem_bench.h"
#include "tests/support/problems.h"

/* ---- asm("name operands" : "=r"(a) : "r"(b) : "memory") -> emu_name(a, b) */
static const char *skip_string(const char *p) { /* at the opening quote */
  for (p++; *p != '"'; p++)
    if (*p == '\\') p++;
  return p + 1;
}

/* Past the bracket that closes the one at p. */
static const char *skip_brackets(const char *p) {
  int depth = 0;
  do {
    if (*p == '"') {
      p = skip_string(p);
      continue;
    }
    depth += (*p == '(') - (*p == ')');
    p++;
  } while (depth > 0);
  return p;
}

static void put_name(const char *p, struct cuvil_buf *out) {
  while (*p != '"')
    p++;
  for (p++; *p && !strchr(" ;\"", *p); p++)
    cuvil_buf_printf(out, "%c", *p == '.' || *p == ':' ? '_' : *p);
}

/* The operands are the bracketed expressions that follow a string. */
static void put_operands(const char *p, const char *end,
                         struct cuvil_buf *out) {
  int count = 0;
  while (p < end) {
    if (*p != '"') {
      p++;
      continue;
    }
    p = skip_string(p);
    if (*p != '(') continue;
    const char *close = skip_brackets(p);
    if (count++) cuvil_buf_puts(out, ", ");
    cuvil_buf_add(out, p + 1, (size_t)(close - p - 2));
    p = close;
  }
}

static void translate(const char *source, struct cuvil_buf *out) {
  static const char shared[] = "extern __shared__ __align__(128) u8 shared[];";
  while (*source) {
    if (strncmp(source, shared, sizeof shared - 1) == 0) {
      cuvil_buf_puts(out, "u8 *shared = now->block->shared;");
      source += sizeof shared - 1;
    } else if (strncmp(source, "asm(", 4) == 0 ||
               strncmp(source, "asm volatile(", 13) == 0) {
      const char *open = strchr(source, '('), *close = skip_brackets(open);
      cuvil_buf_puts(out, "emu_");
      put_name(open, out);
      cuvil_buf_puts(out, "(");
      put_operands(open + 1, close - 1, out);
      cuvil_buf_puts(out, ")");
      source = close;
    } else {
      cuvil_buf_add(out, source++, 1);
    }
  }
}

/* ---- a program as a C++ file */
static void put_call(const struct cuvil_step *step, struct cuvil_buf *out) {
  cuvil_buf_printf(out, "static void kernel_call() {\n  %s(", step->entry);
  for (int i = 0; i < step->arg_count; i++) {
    const struct cuvil_arg *arg = &step->args[i];
    cuvil_buf_puts(out, i ? ", " : "");
    if (arg->kind == CUVIL_ARG_BUFFER)
      cuvil_buf_printf(out, "buffer_argument{%d}", arg->buffer);
    else if (arg->kind == CUVIL_ARG_F32)
      cuvil_buf_printf(out, "(float)%.9g", arg->value.f);
    else if (arg->kind == CUVIL_ARG_I64 && arg->value.i == 0)
      cuvil_buf_puts(out, "zero_argument{}"); /* may be a null pointer */
    else
      cuvil_buf_printf(out, "%lld", (long long)arg->value.i);
  }
  cuvil_buf_puts(out, ");\n}\n");
}

static void put_program(const struct cuvil_program *program, int cc,
                        struct cuvil_buf *out) {
  const struct cuvil_step *s = &program->steps[0];
  cuvil_buf_printf(out,
                   "#define GRID_X %u\n#define GRID_Y %u\n#define GRID_Z %u\n"
                   "#define THREADS_X %u\n#define CLUSTER_Z %u\n"
                   "#define SHARED_BYTES %u\n#define PROGRAMMATIC %d\n"
                   "#define BUFFERS %d\n#define __CUDA_ARCH__ %d\n"
                   "#include \"tests/support/mma_emulator.hpp\"\n",
                   s->grid[0], s->grid[1], s->grid[2], s->block[0],
                   s->cluster[2] ? s->cluster[2] : 1, s->shared_bytes,
                   s->programmatic, program->buffer_count, cc * 10);
  translate(program->modules[0].source, out);
  put_call(s, out);
}

static void run_command(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void run_command(const char *what, const char *format, ...) {
  char command[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  if (system(command) != 0) fail_msg("%s: %s", what, command);
}

/* ---- buffers in files */
static void buffer_path(const char *base, int index, char *out, size_t size) {
  snprintf(out, size, "%s.%d", base, index);
}

/* Outputs and workspace start as NaN. */
static void write_buffers(const struct cuvil_program *program,
                          const struct cuvil_bench *bench, const char *base) {
  char path[600];
  for (int i = 0; i < program->buffer_count; i++) {
    const struct cuvil_program_buffer *b = &program->buffers[i];
    uint8_t *bytes = malloc(b->bytes + 1);
    memset(bytes, b->role == CUVIL_BUFFER_ZEROED ? 0 : 0xff, b->bytes);
    if (b->role == CUVIL_BUFFER_OPERAND &&
        bench->problem.operands[b->operand].role != CUVIL_ROLE_OUTPUT)
      memcpy(bytes, bench->data[b->operand], b->bytes);
    buffer_path(base, i, path, sizeof path);
    assert_int_equal(cuvil_file_write_atomic(path, bytes, b->bytes), CUVIL_OK);
    free(bytes);
  }
}

static void check_buffers(const struct cuvil_program *program,
                          const struct cuvil_bench *bench, const char *base,
                          const char *what) {
  char path[600];
  for (int i = 0; i < program->buffer_count; i++) {
    const struct cuvil_program_buffer *b = &program->buffers[i];
    struct cuvil_buf got = {0};
    buffer_path(base, i, path, sizeof path);
    assert_int_equal(cuvil_file_read(path, &got), CUVIL_OK);
    unlink(path);
    for (size_t j = 0; b->role == CUVIL_BUFFER_ZEROED && j < got.size; j++)
      if (got.data[j]) fail_msg("%s: semaphores are not zero again", what);
    if (b->role == CUVIL_BUFFER_OPERAND && bench->values[b->operand]) {
      struct cuvil_comparison c;
      cuvil_compare(bench->problem.operands[b->operand].dtype, got.data,
                    bench->values[b->operand], bench->bounds[b->operand],
                    cuvil_operand_elements(&bench->problem, b->operand), &c);
      if (c.violations)
        fail_msg("%s: %lld of %lld wrong, at %lld %g instead of %g", what,
                 (long long)c.violations, (long long)c.elements,
                 (long long)c.worst_index, c.worst_got, c.worst_expected);
    }
    cuvil_buf_free(&got);
  }
}

static void run_point(const struct cuvil_family *family,
                      const struct cuvil_query *query,
                      const struct cuvil_config *config,
                      const struct cuvil_bench *bench, int late) {
  struct cuvil_program *program;
  struct cuvil_buf text = {0}, what = {0};
  char base[500], path[600];
  const char *tmp = getenv("CUVIL_TEST_TMP");
  cuvil_buf_printf(&what, "%s on %s {", family->id, query->arch->name);
  cuvil_config_print(query->space, config, &what);
  cuvil_buf_puts(&what, "} ");
  cuvil_problem_print(query->problem, &what);
  assert_int_equal(family->emit(query, config, &program), CUVIL_OK);
  put_program(program, query->arch->cc, &text);
  assert_int_equal(cuvil_buf_status(&text), CUVIL_OK);
  snprintf(base, sizeof base, "%s/mma_%d", tmp ? tmp : "/tmp", (int)getpid());
  snprintf(path, sizeof path, "%s.cpp", base);
  assert_int_equal(cuvil_file_write_atomic(path, text.data, text.size),
                   CUVIL_OK);
  run_command(cuvil_buf_text(&what),
              "g++ -std=c++17 -O1 -w -I. -fsanitize=alignment,bounds,shift,"
              "integer-divide-by-zero -fsanitize-undefined-trap-on-error "
              "-o %s.run %s.cpp",
              base, base);
  write_buffers(program, bench, base);
  run_command(cuvil_buf_text(&what), "%s.run %s 1 %d", base, base, late);
  check_buffers(program, bench, base, cuvil_buf_text(&what));
  unlink(path);
  snprintf(path, sizeof path, "%s.run", base);
  unlink(path);
  cuvil_buf_free(&text);
  cuvil_buf_free(&what);
  cuvil_program_destroy(program);
}

/* ---- what is run */
#define GEMM(m, n, k, t, a, b) \
  "gemm/1 m=" #m " n=" #n " k=" #k " a=" t a " b=" t b ":weight c=" t "[m,n] "
#define CONV(n, c, h, w, k, r, s, st, pad, t)                          \
  "conv/1 n=" #n " c=" #c " h=" #h " w=" #w " k=" #k " r=" #r " s=" #s \
  " stride=" #st "," #st " pad=" #pad "," #pad "," #pad "," #pad       \
  " dil=1,1 group=1 x=" t "[n,h,w,c] w=" t "[k,r,s,c]:weight y=" t     \
  "[n,p,q,k] acc=f32 "
#define ATTENTION(b, hq, hkv, sq, skv, d, dv, t, rest)                         \
  "attention/1 b=" #b " hq=" #hq " hkv=" #hkv " sq=" #sq " skv=" #skv " d=" #d \
  " dv=" #dv " q=" t "[b,sq,hq,d] k=" t "[b,skv,hkv,d] v=" t                   \
  "[b,skv,hkv,dv] o=" t "[b,sq,hq,dv] scale=0.2 " rest " acc=f32"
#define RESIDUAL "epi{t=add(acc,bias[k]); u=add(t,res[n,p,q,k]); out=relu(u)}"

static const struct {
  const char *family, *problem;
} cases[] = {
    {"gemm_mma",
     GEMM(77, 40, 264, "f16", "[m,k]",
          "[n,k]") "acc=f32 epi{t=add(acc,bias[n]); out=gelu_erf(t)}"},
    {"gemm_mma", GEMM(40, 72, 136, "bf16", "[k,m]", "[k,n]") "acc=f32"},
    {"gemm_mma", GEMM(33, 5, 13, "f16", "[m,k]", "[n,k]") "acc=f32"},
    {"gemm_mma", GEMM(50, 47, 98, "f32", "[m,k]", "[n,k]") "acc=f32 math=tf32"},
    {"gemm_mma",
     "gemm/1 batch=3 m=37 n=40 k=72 a=f16[batch,m,k] b=f16[batch,n,k] "
     "c=f16[batch,m,n] acc=f32 epi{t=mul(acc,0.125); "
     "u=add(t,mask[batch,n]); out=add(u,res[batch,m,n])}"},
    {"gemm_mma", /* views of one buffer, heads inside rows; a shared operand */
     "gemm/1 batch=2 m=20 n=24 k=136 a=f16[m,batch,k]@(816,408,1) b=f16[k,n] "
     "c=f16[m,batch,n] acc=f32 epi{out=relu(acc)}"},
    {"gemm_simt",
     "gemm/1 batch=3 m=21 n=19 k=40 a=f32[batch,m,k] b=f32[batch,k,n] "
     "c=f32[batch,m,n]@(450,21,1) acc=f32"},
    {"gemm_skinny",
     GEMM(5, 200, 520, "f16", "[m,k]",
          "[n,k]") "acc=f32 epi{t=add(acc,bias[n]); out=gelu_tanh(t)}"},
    {"gemm_skinny", GEMM(33, 57, 424, "bf16", "[m,k]", "[k,n]") "acc=f32"},
    {"gemm_skinny", GEMM(17, 136, 264, "f16", "[k,m]",
                         "[k,n]") "z=f32[m,n]:out acc=f32 "
                                  "epi{z=add(acc,res[m,n]); out=relu(z)}"},
    {"gemm_skinny",
     GEMM(60, 45, 404, "f32", "[m,k]", "[n,k]") "acc=f32 math=tf32"},
    {"gemm_skinny",
     GEMM(9, 84, 260, "f32", "[m,k]", "[k,n]") "acc=f32 math=tf32"},
    {"gemm_skinny", GEMM(3, 130, 333, "f32", "[m,k]", "[n,k]") "acc=f32"},
    {"gemm_skinny", GEMM(7, 132, 170, "f32", "[k,m]", "[k,n]") "acc=f32"},
    {"gemm_skinny", GEMM(2, 77, 301, "f16", "[m,k]", "[n,k]") "acc=f32"},
    {"gemm_skinny", /* heads inside rows, weights shared by the batch */
     "gemm/1 batch=3 m=4 n=72 k=200 a=f16[m,batch,k]@(816,272,1) b=f16[k,n] "
     "c=f16[m,batch,n] acc=f32 epi{t=mul(acc,0.5); out=add(t,mask[batch,n])}"},
    {"gemm_skinny",
     "gemm/1 batch=2 m=20 n=100 k=96 a=f16[batch,m,k] b=f16[batch,n,k] "
     "c=f32[batch,m,n]@(2100,102,1) acc=f32 epi{out=add(acc,row:f32[m])}"},
    {"gemm_skinny", /* few columns: A streams */
     GEMM(310, 40, 136, "f16", "[m,k]",
          "[n,k]") "acc=f32 "
                   "epi{t=add(acc,bias[n]); u=add(t,res[m,n]); "
                   "out=gelu_tanh(u)}"},
    {"gemm_skinny", GEMM(133, 23, 200, "bf16", "[k,m]", "[k,n]") "acc=f32"},
    {"gemm_skinny", GEMM(140, 6, 77, "f32", "[m,k]", "[k,n]") "acc=f32"},
    {"conv_mma", CONV(1, 64, 9, 7, 40, 3, 3, 1, 1, "f16") RESIDUAL},
    {"conv_mma", CONV(2, 4, 15, 15, 24, 7, 7, 2, 3, "f16") RESIDUAL},
    {"conv_mma",
     CONV(2, 64, 9, 9, 72, 1, 1, 2, 0,
          "bf16") "epi{t=mul(acc,gate[n,k]); pre=copy(t); out=relu(t)}"},
    {"gemm_simt", GEMM(50, 72, 100, "f32", "[m,k]", "[k,n]") "acc=f32"},
    {"gemm_simt", GEMM(41, 48, 136, "f16", "[k,m]", "[n,k]") "acc=f32"},
    {"conv_simt", CONV(1, 3, 13, 11, 20, 3, 3, 2, 1, "f32") RESIDUAL},
    {"attention_mma", ATTENTION(2, 2, 1, 50, 177, 32, 48, "f16", "causal=0")},
    {"attention_mma", ATTENTION(1, 4, 2, 37, 190, 64, 64, "bf16", "causal=1")},
    {"attention_mma", ATTENTION(1, 1, 1, 90, 37, 40, 24, "f16", "causal=1")},
    {"attention_mma", ATTENTION(2, 2, 2, 33, 164, 80, 80, "f16",
                                "causal=0 mask=f16[b,skv]:add")},
    {"attention_mma", ATTENTION(2, 2, 2, 33, 65, 16, 16, "f16",
                                "causal=1 mask=f32[hq,sq,skv]:add")},
    {"attention_mma", ATTENTION(2, 3, 1, 20, 166, 128, 128, "f16",
                                "causal=0 mask=bool[b,sq,skv]:keep")},
    {"attention_mma",
     "attention/1 b=2 hq=3 hkv=3 sq=40 skv=136 d=32 dv=32 "
     "q=f16[b,sq,hq,d]@(12000,288,96,1) k=f16[b,hkv,skv,d] "
     "v=f16[b,skv,hkv,dv]@(44000,320,64,1) o=f32[b,hq,sq,dv] scale=0.3 "
     "acc=f32"},
    {"attention_simt", ATTENTION(2, 4, 2, 37, 70, 30, 31, "f32",
                                 "causal=1 mask=f32[hq,skv]:add")},
    {"attention_simt", ATTENTION(1, 2, 2, 70, 50, 32, 64, "f16",
                                 "causal=1 mask=bool[b,sq,skv]:keep")},
    {"attention_simt",
     "attention/1 b=2 hq=3 hkv=1 sq=20 skv=77 d=24 dv=40 q=bf16[b,hq,d,sq] "
     "k=bf16[skv,b,hkv,d] v=bf16[b,hkv,dv,skv] o=f32[b,hq,dv,sq] scale=-0.3 "
     "acc=f32"},
};
enum { CASES = sizeof cases / sizeof *cases };

/* On sm_90, where clusters and programmatic launch are; every second point on
 * sm_80.  The default in a long check only: it is one of the points. */
static void run_problem(const char *id, const char *text, uint64_t seed,
                        int points, bool with_default) {
  const struct cuvil_family *family = cuvil_family_find(id);
  struct cuvil_rng rng = {seed};
  struct cuvil_bench bench;
  assert_non_null(family);
  cuvil_bench_set_up(&bench, text);
  cuvil_bench_randomise(&bench, 5);
  cuvil_bench_run(&bench, 2);
  struct cuvil_query query = {&bench.problem, cuvil_arch_find("sm_90"), NULL};
  assert_int_equal(cuvil_family_space(family, &query.space), CUVIL_OK);
  assert_true(family->applicable(&bench.problem, query.arch));
  struct cuvil_config config;
  if (with_default) {
    family->default_config(&query, &config);
    run_point(family, &query, &config, &bench, 1);
  }
  uint64_t size = cuvil_space_size(query.space);
  for (int i = 0, tries = 0; i < points; tries++) {
    if (tries > 1000000) fail_msg("no point for %s", text);
    query.arch = cuvil_arch_find(i % 3 == 2 ? "sm_80" : "sm_90");
    cuvil_space_point(query.space, cuvil_rng_below(&rng, size), &config);
    if (!cuvil_family_allows(family, &query, &config, false, NULL, NULL))
      continue;
    run_point(family, &query, &config, &bench, i % 2 == 0);
    i++;
  }
  cuvil_bench_tear_down(&bench);
}

static const char *only; /* of this family; NULL: all */

static void test_points(void **state) {
  (void)state;
  bool full = getenv("CUVIL_TEST_FULL") != NULL;
  for (int i = 0; i < CASES; i++)
    if (!only || strcmp(only, cases[i].family) == 0)
      run_problem(cases[i].family, cases[i].problem, 100 + (uint64_t)i,
                  full ? 12 : 1, full);
}

/* Random products that are small enough, in a long check only: a point and the
 * default of each. */
static void test_random(void **state) {
  static const char *const ids[] = {"gemm_skinny", "gemm_mma", "gemm_simt"};
  static struct cuvil_problem problem; /* large */
  struct cuvil_rng rng = {77};
  char text[512];
  (void)state;
  int wanted = getenv("CUVIL_TEST_FULL") ? 60 : 0;
  for (int f = 0; f < 3; f++) {
    const struct cuvil_family *family = cuvil_family_find(ids[f]);
    if (only && strcmp(only, ids[f]) != 0) continue;
    for (int done = 0; done < wanted;) {
      cuvil_test_random_gemm(&rng, text, sizeof text);
      if (cuvil_problem_parse(text, &problem) != CUVIL_OK)
        fail_msg("%s: %s", text, cuvil_last_error());
      double flops = cuvil_problem_flops(&problem);
      if (flops < 1e5 || flops > 1e7 ||
          !family->applicable(&problem, cuvil_arch_find("sm_90")))
        continue;
      run_problem(ids[f], text, (uint64_t)done + 1, 1, true);
      done++;
    }
  }
}

int main(int argc, char **argv) {
  if (argc > 1) only = argv[1];
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_points),
                                     cmocka_unit_test(test_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
