/* emit_test.c - what families emit, as text: epilogues against golden files,
 * library calls, arguments in the order of the parameters, the cubin cache.
 *
 * CUVIL_UPDATE_GOLDEN=1 writes the golden files anew; read the difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/emit.h"
#include "tests/support/problems.h"

static struct cuvil_problem parse(const char *text) {
  struct cuvil_problem problem;
  if (cuvil_problem_parse(text, &problem) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  return problem;
}

/* ---- golden epilogues */
static void check_golden(const char *name, const struct cuvil_buf *text) {
  char path[128];
  struct cuvil_buf golden = {0};
  snprintf(path, sizeof path, "tests/golden/%s.txt", name);
  if (getenv("CUVIL_UPDATE_GOLDEN"))
    assert_int_equal(cuvil_file_write_atomic(path, text->data, text->size),
                     CUVIL_OK);
  if (cuvil_file_read(path, &golden) != CUVIL_OK)
    fail_msg("%s", cuvil_last_error());
  assert_string_equal(cuvil_buf_text(text), cuvil_buf_text(&golden));
  cuvil_buf_free(&golden);
}

static void epilogues_as_text(void **state) {
  static const struct {
    const char *name, *problem;
    bool checked;
  } cases[] = {
      {"epilogue_none", "gemm/1 m=8 n=8 k=8 a=f16[m,k] b=f16[n,k] c=f16[m,n]",
       false},
      {"epilogue_bias_residual",
       "conv/1 n=1 c=8 h=4 w=4 k=24 r=1 s=1 x=f16[n,h,w,c] w=f16[k,r,s,c] "
       "y=f16[n,p,q,k] epi{t=add(acc,bias:f32[k]); u=add(t,res[n,p,q,k]); "
       "out=relu(u)}",
       false},
      {"epilogue_constants_extra",
       "gemm/1 m=8 n=12 k=8 a=f16[m,k] b=f16[n,k] c=f16[m,n] pre=f32[n,m]:out "
       "epi{t=mul(acc,0.5); pre=add(t,row[m]); out=clip(pre,0,6)}",
       false},
      {"epilogue_limit_stride",
       "pointwise/1 n=2 c=4 h=3 w=5 y=f16[n,h,w,c] "
       "epi{t=add(x:f32[n,c<3,h,w],s:i8[h,w]@(8,1)); out=gelu_erf(t)}",
       false},
      {"epilogue_checked",
       "gemm/1 m=8 n=12 k=8 a=f16[m,k] b=f16[n,k] c=f16[m,n] pre=f32[m,n]:out "
       "epi{pre=add(acc,bias[n]); out=leaky_relu(pre,0.1)}",
       true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cuvil_problem problem = parse(cases[i].problem);
    struct cuvil_buf text = {0};
    cuvil_emit_epilogue(&problem, cases[i].checked, &text);
    assert_int_equal(cuvil_buf_status(&text), CUVIL_OK);
    check_golden(cases[i].name, &text);
    cuvil_buf_free(&text);
  }
}

/* As many arguments as parameters, of the same kinds, for every problem. */
static void arguments_match_parameters(void **state) {
  int buffers[CUVIL_MAX_OPERANDS];
  (void)state;
  for (int i = 0; i < CUVIL_MAX_OPERANDS; i++)
    buffers[i] = i;
  for (const char *const *text = cuvil_test_problems; *text; text++) {
    struct cuvil_problem problem = parse(*text);
    struct cuvil_buf parameters = {0};
    struct cuvil_step step = {.kind = CUVIL_STEP_LAUNCH};
    cuvil_emit_epilogue_parameters(&problem, false, &parameters);
    assert_int_equal(
        cuvil_emit_epilogue_arguments(&problem, buffers, NULL, &step),
        CUVIL_OK);
    int at = 0;
    for (const char *p = cuvil_buf_text(&parameters); (p = strchr(p, ','));) {
      static const char *const types[] = {"*", "int ", "i64 ", "float "};
      size_t size = strcspn(++p, ",");
      assert_true(at < step.arg_count);
      const char *star = memchr(p, '*', size);
      if (step.args[at].kind == CUVIL_ARG_BUFFER)
        assert_non_null(star);
      else
        assert_memory_equal(p + 1, types[step.args[at].kind],
                            strlen(types[step.args[at].kind]));
      at++;
    }
    assert_int_equal(at, step.arg_count);
    free(step.args);
    cuvil_buf_free(&parameters);
  }
}

static void alignment_classes(void **state) {
  (void)state;
  struct cuvil_problem p = parse(
      "pointwise/1 a=6 b=24 y=f16[a,b] epi{t=add(u[a,b]@(28,1),v[b]); "
      "s=add(t,w[b,a]); out=add(s,x[a,b]@(1,6))}");
  assert_int_equal(cuvil_operand_alignment(&p, 0), 8);
  assert_int_equal(cuvil_operand_alignment(&p, 1), 4);
  assert_int_equal(cuvil_operand_alignment(&p, 2), 16);
  assert_int_equal(cuvil_operand_alignment(&p, 3), 2);
  assert_int_equal(cuvil_operand_alignment(&p, 4), 1);
  assert_false(cuvil_operand_like_output(&p, 1));
  assert_false(cuvil_operand_like_output(&p, 3));
}

static void dimensions_collapse(void **state) {
  (void)state;
  struct cuvil_problem out, p = parse(
                                "pointwise/1 n=2 c=4 h=5 w=7 y=f16[n,h,w,c] "
                                "epi{out=x:f32[n,c<3,h,w]}");
  cuvil_problem_collapse(&p, &out);
  assert_int_equal(out.dim_count, 3);
  assert_int_equal(cuvil_problem_extent(&out, "w"), 35);
  assert_int_equal(cuvil_problem_extent(&out, "h"), 0);
  assert_int_equal(out.operands[0].rank, 3);
  assert_int_equal(out.operands[1].limit[1], 3);
  assert_int_equal(out.operands[1].strides[1], 35);
  p = parse("pointwise/1 a=3 b=4 c=5 y=f32[a,b,c] epi{out=add(u[a,b,c],1)}");
  cuvil_problem_collapse(&p, &out);
  assert_int_equal(out.dim_count, 1);
  assert_int_equal(out.dims[0].extent, 60);
  /* A broadcast keeps its dimension apart; so do strides with a gap. */
  p = parse("pointwise/1 a=3 b=4 c=5 y=f32[a,b,c] epi{out=add(u[a,b,c],v[b])}");
  cuvil_problem_collapse(&p, &out);
  assert_int_equal(out.dim_count, 3);
  p = parse("reduce/1 op=sum a=3 b=4 c=5 x=f32[a,b,c]@(32,8,1) y=f32[a]");
  cuvil_problem_collapse(&p, &out);
  assert_int_equal(out.dim_count, 3);
  p = parse("reduce/1 op=sum a=3 b=4 c=5 x=f32[a,b,c] y=f32[a]");
  cuvil_problem_collapse(&p, &out);
  assert_int_equal(out.dim_count, 2);
  assert_int_equal(cuvil_reduced_points(&out), 20);
}

/* ---- library calls */
static struct cuvil_program *emit_default(const char *family,
                                          const char *text) {
  struct cuvil_problem problem = parse(text);
  struct cuvil_query q = {&problem, cuvil_arch_find("sm_90"), NULL};
  const struct cuvil_family *f = cuvil_family_find(family);
  struct cuvil_config config;
  struct cuvil_program *program;
  assert_non_null(f);
  assert_int_equal(cuvil_family_space(f, &q.space), CUVIL_OK);
  assert_true(f->applicable(&problem, q.arch));
  f->default_config(&q, &config);
  if (f->emit(&q, &config, &program) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  if (cuvil_program_check(program, family) != CUVIL_OK)
    fail_msg("%s: %s", text, cuvil_last_error());
  return program;
}

static void check_call(const char *family, const char *problem,
                       const char *expected, int steps) {
  struct cuvil_program *program = emit_default(family, problem);
  struct cuvil_buf text = {0};
  assert_int_equal(program->step_count, steps);
  assert_int_equal(program->steps[0].kind, CUVIL_STEP_LIBRARY);
  assert_int_equal(cuvil_json_print(program->steps[0].call, &text), CUVIL_OK);
  assert_string_equal(cuvil_buf_text(&text), expected);
  cuvil_buf_free(&text);
  cuvil_program_destroy(program);
}

static void library_calls(void **state) {
  (void)state;
  check_call("gemm_cublaslt",
             "gemm/1 m=64 n=48 k=72 a=bf16[m,k] b=bf16[n,k] c=bf16[m,n] "
             "epi{t=add(acc,bias[n]); u=add(t,res[m,n]); out=relu(u)}",
             "{\"op\":\"matmul\",\"m\":64,\"n\":48,\"k\":72,"
             "\"a\":{\"dtype\":\"bf16\",\"trans\":false,\"ld\":72},"
             "\"b\":{\"dtype\":\"bf16\",\"trans\":true,\"ld\":72},"
             "\"compute\":\"f32\",\"workspace\":33554432,"
             "\"d\":{\"dtype\":\"bf16\",\"ld\":48},"
             "\"epilogue\":\"relu_bias\",\"bias_dtype\":\"bf16\","
             "\"c\":{\"dtype\":\"bf16\",\"ld\":48},\"beta\":1.0}",
             1);
  check_call("gemm_cublaslt",
             "gemm/1 m=64 n=48 k=72 a=f16[k,m] b=f16[k,n] c=f16[m,n] "
             "epi{t=add(acc,bias[n]); out=gelu_erf(t)}",
             "{\"op\":\"matmul\",\"m\":64,\"n\":48,\"k\":72,"
             "\"a\":{\"dtype\":\"f16\",\"trans\":true,\"ld\":64},"
             "\"b\":{\"dtype\":\"f16\",\"trans\":false,\"ld\":48},"
             "\"compute\":\"f32\",\"workspace\":33554432,"
             "\"d\":{\"dtype\":\"f32\",\"ld\":48}}",
             2);
  check_call("gemm_cublaslt",
             "gemm/1 batch=3 m=64 n=48 k=72 a=f16[m,batch,k]@(432,72,1) "
             "b=f16[n,k] c=f16[batch,m,n] epi{out=add(acc,res[batch,m,n])}",
             "{\"op\":\"matmul\",\"m\":64,\"n\":48,\"k\":72,"
             "\"a\":{\"dtype\":\"f16\",\"trans\":false,\"ld\":432},"
             "\"b\":{\"dtype\":\"f16\",\"trans\":true,\"ld\":72},"
             "\"compute\":\"f32\",\"workspace\":33554432,"
             "\"d\":{\"dtype\":\"f16\",\"ld\":48},"
             "\"batch\":3,\"strides\":[72,0,3072,3072],"
             "\"epilogue\":\"default\","
             "\"c\":{\"dtype\":\"f16\",\"ld\":48},\"beta\":1.0}",
             1);
  check_call("gemm_cublaslt",
             "gemm/1 batch=3 m=4 n=8 k=16 a=f16[batch,m,k] b=f16[batch,k,n] "
             "c=f16[m,batch,n] epi{out=tanh(acc)}",
             "{\"op\":\"matmul\",\"m\":4,\"n\":8,\"k\":16,"
             "\"a\":{\"dtype\":\"f16\",\"trans\":false,\"ld\":16},"
             "\"b\":{\"dtype\":\"f16\",\"trans\":false,\"ld\":8},"
             "\"compute\":\"f32\",\"workspace\":33554432,"
             "\"d\":{\"dtype\":\"f32\",\"ld\":8},"
             "\"batch\":3,\"strides\":[64,128,32,32]}",
             2);
  check_call("conv_cudnn",
             "conv/1 n=1 c=8 h=6 w=6 k=16 r=3 s=3 stride=2,2 pad=1,1,1,1 "
             "x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] "
             "epi{t=add(acc,bias[k]); u=add(t,res[n,p,q,k]); out=relu(u)}",
             "{\"op\":\"conv_fwd\",\"n\":1,\"c\":8,\"h\":6,\"w\":6,\"k\":16,"
             "\"r\":3,\"s\":3,\"stride\":[2,2],\"pad\":[1,1,1,1],"
             "\"dil\":[1,1],\"group\":1,\"dtype\":\"f16\",\"tf32\":false,"
             "\"workspace\":67108864,\"bias\":true,\"residual\":true,"
             "\"activation\":\"relu\"}",
             1);
}

/* The kernel after the library reads what the library wrote. */
static void library_epilogue_is_wired(void **state) {
  (void)state;
  struct cuvil_program *p =
      emit_default("gemm_cublaslt",
                   "gemm/1 m=6 n=10 k=8 a=f16[m,k] b=f16[n,k] c=f16[n,m] "
                   "epi{t=add(acc,row[m]); out=tanh(t)}");
  assert_int_equal(p->step_count, 2);
  const struct cuvil_step *library = &p->steps[0], *own = &p->steps[1];
  assert_int_equal(library->binding_count, 4); /* a b d workspace */
  int acc = library->bindings[2];
  assert_int_equal(p->buffers[acc].role, CUVIL_BUFFER_WORKSPACE);
  assert_int_equal(p->buffers[acc].bytes, 240);
  bool reads_acc = false, writes_c = false;
  for (int i = 0; i < own->arg_count; i++) {
    if (own->args[i].kind != CUVIL_ARG_BUFFER) continue;
    reads_acc = reads_acc || own->args[i].buffer == acc;
    writes_c = writes_c || p->buffers[own->args[i].buffer].operand == 2;
  }
  assert_true(reads_acc && writes_c);
  assert_false(own->programmatic);
  cuvil_program_destroy(p);
}

static void libraries_refuse_what_they_lack(void **state) {
  const struct cuvil_arch *arch = cuvil_arch_find("sm_90");
  const struct cuvil_family *cudnn = cuvil_family_find("conv_cudnn");
  static const char *const refused[] = {
      /* NCHW; an epilogue that it has not, in 16 bits; a bias of fp32 */
      "conv/1 n=1 c=8 h=6 w=6 k=16 r=3 s=3 x=f16[n,c,h,w] w=f16[k,c,r,s] "
      "y=f16[n,k,p,q]",
      "conv/1 n=1 c=8 h=6 w=6 k=16 r=3 s=3 x=f16[n,h,w,c] w=f16[k,r,s,c] "
      "y=f16[n,p,q,k] epi{out=silu(acc)}",
      "conv/1 n=1 c=8 h=6 w=6 k=16 r=3 s=3 x=f16[n,h,w,c] w=f16[k,r,s,c] "
      "y=f16[n,p,q,k] epi{out=add(acc,bias:f32[k])}",
  };
  (void)state;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    struct cuvil_problem problem = parse(refused[i]);
    assert_false(cudnn->applicable(&problem, arch));
  }
}

/* ---- the cubin cache */
static void cubins_are_cached(void **state) {
  const char *tmp = getenv("CUVIL_TEST_TMP");
  char dir[256], path[512];
  struct cuvil_compile_result first, second;
  (void)state;
  snprintf(dir, sizeof dir, "%s/emit_test_cubins", tmp ? tmp : "/tmp");
  struct cuvil_program *p = emit_default(
      "pointwise", "pointwise/1 a=64 y=f16[a] epi{out=relu(u[a])}");
  assert_int_equal(cuvil_program_compile(p, dir, &first), CUVIL_OK);
  size_t size = p->modules[0].cubin_size;
  void *kept = p->modules[0].cubin;
  assert_non_null(first.log);
  p->modules[0].cubin = NULL;
  assert_int_equal(cuvil_program_compile(p, dir, &second), CUVIL_OK);
  assert_null(second.log);
  assert_int_equal(p->modules[0].cubin_size, size);
  assert_memory_equal(p->modules[0].cubin, kept, size);
  assert_int_equal(second.registers, first.registers);
  assert_true(second.seconds == first.seconds);
  /* One flipped byte: the pair does not match, and it is compiled again. */
  snprintf(path, sizeof path, "%s/%s.cubin", dir, p->modules[0].hash);
  ((char *)p->modules[0].cubin)[size / 2] ^= 1;
  assert_int_equal(cuvil_file_write_atomic(path, p->modules[0].cubin, size),
                   CUVIL_OK);
  free(p->modules[0].cubin);
  p->modules[0].cubin = NULL;
  assert_int_equal(cuvil_program_compile(p, dir, &second), CUVIL_OK);
  assert_non_null(second.log);
  assert_memory_equal(p->modules[0].cubin, kept, size);
  free(kept);
  cuvil_compile_result_free(&first);
  cuvil_compile_result_free(&second);
  cuvil_program_destroy(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epilogues_as_text),
      cmocka_unit_test(arguments_match_parameters),
      cmocka_unit_test(alignment_classes),
      cmocka_unit_test(dimensions_collapse),
      cmocka_unit_test(library_calls),
      cmocka_unit_test(library_epilogue_is_wired),
      cmocka_unit_test(libraries_refuse_what_they_lack),
      cmocka_unit_test(cubins_are_cached),
  };
  return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
