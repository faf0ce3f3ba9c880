/* problem_kinds_test.c - the grammar of batched gemm, attention, norm and
 * gather: canonical texts, mistakes at their columns, signatures, counts, and
 * building by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "problem/problem.h"

static struct cuvil_problem parsed(const char *text) {
  struct cuvil_problem problem;
  if (cuvil_problem_parse(text, &problem) != CUVIL_OK)
    fail_msg("%s\n  of %s", cuvil_last_error(), text);
  return problem;
}

static void assert_print(const struct cuvil_problem *problem,
                         const char *expected) {
  struct cuvil_buf buf = {0};
  cuvil_problem_print(problem, &buf);
  assert_string_equal(cuvil_buf_text(&buf), expected);
  cuvil_buf_free(&buf);
}

#define BATCHED                                                         \
  "gemm/1 batch=12 m=128 n=128 k=64 a=f16[batch,m,k] b=f16[batch,n,k] " \
  "c=f16[batch,m,n] acc=f32"
#define ATTENTION                                                            \
  "attention/1 b=8 hq=12 hkv=12 sq=128 skv=128 d=64 dv=64 q=f16[b,sq,hq,d] " \
  "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=0.125 "    \
  "causal=0"
#define NORM "norm/1 op=layer m=1024 n=768 x=f16[m,n] y=f16[m,n]"
#define GATHER                                                       \
  "gather/1 v=50257 m=512 n=768 table=f16[v,n]:weight index=i64[m] " \
  "y=f16[m,n]"

static const char *const canonical[] = {
    BATCHED,
    BATCHED " epi{t=mul(acc,0.125); out=add(t,mask[batch,n])}",
    "gemm/1 batch=3 m=5 n=7 k=9 a=f32[m,batch,k] b=f32[n,k]:weight "
    "c=f32[batch,n,m]@(70,10,1) acc=f32 math=tf32",
    ATTENTION " acc=f32",
    ATTENTION " mask=f16[b,skv]:add acc=f32",
    ATTENTION " mask=bool[b,hq,sq,skv]:keep acc=f32",
    ATTENTION " mask=f32[sq,skv]@(1024,1):weight:add acc=f32",
    "attention/1 b=1 hq=32 hkv=8 sq=1 skv=2048 d=128 dv=128 "
    "q=bf16[b,sq,hq,d]@(6144,6144,128,1) k=bf16[b,hkv,skv,d] "
    "v=bf16[b,hkv,skv,dv] o=f32[b,hq,sq,dv] scale=0.088388346 causal=1 "
    "acc=f32",
    NORM " eps=1e-05 acc=f32",
    NORM " eps=1e-12 acc=f32 epi{t=mul(acc,gamma[n]); out=add(t,beta[n])}",
    NORM
    " sum=f16[m,n]:out eps=1e-05 acc=f32 pro{t=add(x,bias[n]); "
    "sum=add(t,res[m,n])} epi{u=mul(acc,gamma[n]:weight); out=add(u,beta[n])}",
    "norm/1 op=rms m=7 n=4096 x=bf16[m,n]@(8192,1) y=f32[m,n] eps=1e-06 "
    "acc=f32 epi{out=mul(acc,gamma:bf16[n]:weight)}",
    "norm/1 op=softmax m=96 n=128 x=f16[m,n] y=f16[m,n] acc=f32 "
    "pro{t=mul(x,0.125); s=add(t,mask[m,n])}",
    "norm/1 op=log_softmax m=1 n=50257 x=f32[n,m] y=f32[m,n] acc=f32",
    GATHER,
    GATHER " epi{out=add(acc,pos[m,n])}",
    "gather/1 v=2 m=3 n=4 table=f32[n,v] index=i32[m]@(2) y=bf16[m,n]",
};

static void test_round_trip(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
    struct cuvil_problem problem = parsed(canonical[i]);
    assert_print(&problem, canonical[i]);
  }
}

static void test_one_spelling(void **state) {
  (void)state;
  struct cuvil_problem one = parsed(
      "gemm/1 batch=1 m=8 n=8 k=8 a=f16[batch,m,k] b=f16[n,k] "
      "c=f16[m,batch,n]@(16,4,1) epi{out=add(acc,r[batch])}");
  assert_print(&one,
               "gemm/1 m=8 n=8 k=8 a=f16[m,k] b=f16[n,k] c=f16[m,n]@(16,1) "
               "acc=f32 epi{out=add(acc,r[])}");
  assert_false(cuvil_problem_batched(&one));
  struct cuvil_problem plain = parsed(NORM " eps=1e-05");
  struct cuvil_problem copy =
      parsed(NORM " pro { s = x } epi{out=acc} eps = 0.00001");
  assert_memory_equal(&plain, &copy, sizeof plain);
  struct cuvil_problem a = parsed(ATTENTION " mask=f16[b,skv]:weight:add");
  struct cuvil_problem b = parsed(
      "attention/1 mask=f16[b,skv]:add:weight o=f16[b,sq,hq,dv] "
      "v=f16[b,skv,hkv,dv] k=f16[b,skv,hkv,d] q=f16[b,sq,hq,d] dv=64 d=64 "
      "skv=128 sq=128 hkv=12 hq=12 b=8 scale=.125");
  assert_memory_equal(&a, &b, sizeof a);
}

static void test_structure(void **state) {
  (void)state;
  struct cuvil_problem p = parsed(BATCHED);
  assert_true(cuvil_problem_batched(&p));
  assert_int_equal(cuvil_problem_find_dim(&p, "batch"), CUVIL_DIM_BATCH);
  assert_int_equal(cuvil_problem_find_dim(&p, "k"), CUVIL_DIM_K);
  assert_true(cuvil_problem_flops(&p) == 2. * 12 * 128 * 128 * 64);
  p = parsed(ATTENTION " mask=bool[b,skv]:keep");
  assert_int_equal(p.mask, 4);
  assert_true(p.mask_keep && !p.causal && p.scale == 0.125);
  assert_int_equal(p.operands[4].role, CUVIL_ROLE_SIDE);
  assert_int_equal(cuvil_problem_find_dim(&p, "skv"), CUVIL_ATTENTION_DIM_SKV);
  assert_true(cuvil_problem_flops(&p) == 2. * 8 * 12 * 128 * 128 * 128);
  assert_true(cuvil_problem_bytes(&p) == 4. * 2 * 8 * 128 * 12 * 64 + 8. * 128);
  p = parsed(ATTENTION);
  assert_int_equal(p.mask, -1);
  /* Queries 2..4 of 5 see 1, 2, 3 of 3 keys. */
  p = parsed(
      "attention/1 b=1 hq=2 hkv=1 sq=5 skv=3 d=4 dv=6 q=f16[b,sq,hq,d] "
      "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=1 "
      "causal=1");
  assert_true(cuvil_problem_flops(&p) == 2. * 2 * (4 + 6) * (1 + 2 + 3));
  p = parsed(NORM " sum=f32[m,n]:out eps=1e-05 pro{sum=add(x,res[m,n])}");
  assert_int_equal(p.output, CUVIL_NORM_Y);
  assert_int_equal(p.prologue.count, 1);
  assert_int_equal(p.prologue.statements[0].output, 2);
  assert_int_equal(p.prologue.statements[0].args[0].kind, CUVIL_TERM_ACC);
  assert_int_equal(p.mask, -1);
  assert_true(cuvil_problem_flops(&p) == 1024. * 768 * 6);
  p = parsed(GATHER);
  assert_true(cuvil_problem_flops(&p) == 0);
  assert_true(cuvil_problem_bytes(&p) ==
              2. * 512 * 768 + 8. * 512 + 2. * 512 * 768);
}

static void test_signature(void **state) {
  (void)state;
  static const char *const pairs[][2] = {
      {BATCHED,
       "gemm/1 batch=*4 m=*16 n=*16 k=*16 a=f16[batch,m,k] b=f16[batch,n,k] "
       "c=f16[batch,m,n] acc=f32"},
      {ATTENTION " mask=f16[b,skv]:add",
       "attention/1 b=*8 hq=*4 hkv=*4 sq=*16 skv=*16 d=*16 dv=*16 "
       "q=f16[b,sq,hq,d] k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] "
       "o=f16[b,sq,hq,dv] scale=# causal=0 mask=f16[b,skv]:add acc=f32"},
      {NORM " eps=1e-12 pro{s=mul(x,2)}",
       "norm/1 op=layer m=*16 n=*16 x=f16[m,n] y=f16[m,n] eps=# acc=f32 "
       "pro{s=mul(x,#)}"},
      {GATHER,
       "gather/1 v=*1 m=*16 n=*16 table=f16[v,n]:weight index=i64[m] "
       "y=f16[m,n]"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    struct cuvil_problem problem = parsed(pairs[i][0]);
    struct cuvil_buf buf = {0};
    cuvil_problem_signature(&problem, &buf);
    assert_string_equal(cuvil_buf_text(&buf), pairs[i][1]);
    cuvil_buf_free(&buf);
  }
}

#define SMALL                                                        \
  "attention/1 b=1 hq=4 hkv=2 sq=2 skv=2 d=2 dv=2 q=f16[b,sq,hq,d] " \
  "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] "
#define LAYER "norm/1 op=layer m=2 n=2 x=f16[m,n] y=f16[m,n] eps=1 "
static const struct {
  const char *text, *message;
} mistakes[] = {
    {SMALL, "expected scale= and a number, found the end"},
    {SMALL "scale=x", "expected scale= and a number, found 'x'"},
    {SMALL "scale=inf", "expected scale= and a number"},
    {SMALL "scale=1e99", "scale must be finite"},
    {SMALL "scale=1 causal=2", "column 130: causal must be 0 or 1"},
    {SMALL "scale=1 eps=1", "'eps' is not a key of attention/1"},
    {SMALL "scale=1 mask=f16[b,skv]", "a mask is marked ':add' or ':keep'"},
    {SMALL "scale=1 mask=f16[b,skv]:add:keep", "':add' or ':keep'"},
    {SMALL "scale=1 mask=f16[b,skv]:out",
     "expected weight, add or keep, found 'out'"},
    {SMALL "scale=1 mask=f16[b,skv]:keep", "must be bool"},
    {SMALL "scale=1 mask=bool[b,skv]:add", "must be f32, f16 or bf16"},
    {SMALL "scale=1 mask=f16[b,d]:add",
     "column 130: a mask has some of b, hq, sq, skv, not d"},
    {SMALL "scale=1 z=f16[b,sq,hq,dv]:out", "attention has no operand 'z'"},
    {SMALL "scale=1 epi{out=acc}", "attention has no epilogue"},
    {SMALL "scale=1 pro{s=x}", "attention has no prologue"},
    {"attention/1 b=1 hq=4 hkv=3 sq=2 skv=2 d=2 dv=2 q=f16[b,sq,hq,d] "
     "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=1",
     "column 22: hkv=3 does not divide hq=4"},
    {"attention/1 b=1 hq=4 hkv=2 sq=2 skv=2 d=2 dv=2 q=f16[b,sq,hq,d] "
     "k=f16[b,skv,hkv,d] v=f32[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=1",
     "operands 'q' and 'v' differ in type"},
    {"attention/1 b=1 hq=4 hkv=2 sq=2 skv=2 d=2 dv=2 q=f16[b,sq,hq,d<1] "
     "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=1",
     "operand 'q' of attention cannot have a limit"},
    {"attention/1 b=1 hq=4 hkv=2 sq=2 skv=2 d=2 dv=2 q=f16[b,sq,hkv,d] "
     "k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=1",
     "must have the dimensions b,sq,hq,d"},
    {"gemm/1 batch=2 m=2 n=2 k=2 a=f16[batch,m] b=f16[n,k] c=f16[batch,m,n]",
     "must have the dimensions m,k (batch too where it has one)"},
    {"gemm/1 batch=2,2 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[batch,m,n]",
     "expected one number"},
    {"norm/1 m=2 n=2 x=f16[m,n] y=f16[m,n] eps=1",
     "expected op=layer, rms, softmax or log_softmax"},
    {"norm/1 op=rms m=2 n=2 x=f16[m,n] y=f16[m,n]",
     "expected eps= and a number"},
    {"norm/1 op=rms m=2 n=2 x=f16[m,n] y=f16[m,n] eps=-1",
     "eps must be finite and not negative"},
    {"norm/1 op=softmax m=2 n=2 x=f16[m,n] y=f16[m,n] eps=1",
     "'eps' is not a key of norm/1"},
    {LAYER "pro{out=x}", "'out' cannot be the name of a value"},
    {LAYER "pro{x=neg(x)}", "'x' is an input and cannot be assigned"},
    {LAYER "pro{t=neg(acc)}", "expected x, an earlier value"},
    {LAYER "epi{out=neg(x)}", "expected an operand with its dimensions"},
    {LAYER "pro{t=neg(x)} epi{t=neg(acc); out=t}",
     "'t' is assigned in the prologue"},
    {LAYER "pro{t=neg(x)} epi{out=neg(t)}", "expected acc, an earlier value"},
    {LAYER "pro{t=neg(x)} pro{u=x}", "a second prologue"},
    {LAYER "s=f16[m,n]:out pro{t=neg(x)}",
     "extra output 's' is never assigned"},
    {"gather/1 v=2 m=2 n=2 table=f16[v,n] index=f32[m] y=f16[m,n]",
     "column 37: operand 'index' of gather must be i32 or i64"},
    {"gather/1 v=2 m=2 n=2 table=f16[v,n] index=i32[m,n] y=f16[m,n]",
     "must have the dimensions m,"},
    {"gather/1 v=2 m=2 n=2 table=f16[v,n] index=i32[m] y=f16[m,n] acc=f32",
     "'acc' is not a key of gather/1"},
};

static void test_mistakes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    struct cuvil_problem problem;
    if (cuvil_problem_parse(mistakes[i].text, &problem) != CU_ERR_PARSE)
      fail_msg("accepted: %s", mistakes[i].text);
    if (!strstr(cuvil_last_error(), mistakes[i].message))
      fail_msg("%s\n  instead of '%s'\n  of %s", cuvil_last_error(),
               mistakes[i].message, mistakes[i].text);
  }
}

/* No text, however broken, may do worse than fail. */
static void test_broken(void **state) {
  (void)state;
  struct cuvil_rng rng = {11};
  struct cuvil_problem problem;
  char text[1024];
  for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
    size_t size = strlen(canonical[i]);
    for (size_t cut = 0; cut < size; cut++) {
      memcpy(text, canonical[i], cut);
      text[cut] = 0;
      CUVIL_IGNORE(cuvil_problem_parse(text, &problem)); /* only not crash */
    }
    for (int round = 0; round < 300; round++) {
      memcpy(text, canonical[i], size + 1);
      static const char bytes[] = "0129-,;:()[]{}<@=. \nabhkmnqsvxy/\x80";
      text[cuvil_rng_below(&rng, size)] =
          bytes[cuvil_rng_below(&rng, sizeof bytes - 1)];
      if (cuvil_problem_parse(text, &problem) != CUVIL_OK) continue;
      struct cuvil_buf first = {0};
      cuvil_problem_print(&problem, &first);
      struct cuvil_problem again = parsed(cuvil_buf_text(&first));
      assert_memory_equal(&problem, &again, sizeof problem);
      cuvil_buf_free(&first);
    }
  }
}

static void test_by_hand(void **state) {
  (void)state;
  struct cuvil_problem p;
  cuvil_problem_begin(CUVIL_KIND_NORM, &p);
  p.dims[CUVIL_NORM_DIM_M].extent = 4;
  p.dims[CUVIL_NORM_DIM_N].extent = 8;
  p.eps = 1e-5;
  cuvil_problem_add_operand(&p, "x", CUVIL_ROLE_INPUT, CUVIL_F16, "m,n");
  cuvil_problem_add_operand(&p, "y", CUVIL_ROLE_OUTPUT, CUVIL_F16, "m,n");
  int sum =
      cuvil_problem_add_operand(&p, "sum", CUVIL_ROLE_OUTPUT, CUVIL_F16, "m,n");
  int res =
      cuvil_problem_add_operand(&p, "res", CUVIL_ROLE_SIDE, CUVIL_F16, "m,n");
  int gamma =
      cuvil_problem_add_operand(&p, "gamma", CUVIL_ROLE_SIDE, CUVIL_F32, "n");
  struct cuvil_term args[2] = {{CUVIL_TERM_ACC, 0, 0},
                               {CUVIL_TERM_OPERAND, res, 0}};
  assert_int_equal(
      cuvil_problem_add_prologue(&p, "sum", CUVIL_OP_ADD, args, sum), 0);
  args[1].index = gamma;
  cuvil_problem_add_statement(&p, "out", CUVIL_OP_MUL, args, -1);
  assert_int_equal(cuvil_problem_finish(&p), CUVIL_OK);
  assert_int_equal(p.output, CUVIL_NORM_Y);
  assert_print(&p,
               "norm/1 op=layer m=4 n=8 x=f16[m,n] y=f16[m,n] "
               "sum=f16[m,n]:out eps=1e-05 acc=f32 pro{sum=add(x,res[m,n])} "
               "epi{out=mul(acc,gamma:f32[n])}");

  cuvil_problem_begin(CUVIL_KIND_ATTENTION, &p);
  static const int extents[] = {2, 4, 2, 8, 8, 16, 16};
  for (int i = 0; i < 7; i++)
    p.dims[i].extent = extents[i];
  cuvil_problem_add_operand(&p, "q", CUVIL_ROLE_INPUT, CUVIL_F16, "b,sq,hq,d");
  cuvil_problem_add_operand(&p, "k", CUVIL_ROLE_INPUT, CUVIL_F16,
                            "b,skv,hkv,d");
  cuvil_problem_add_operand(&p, "v", CUVIL_ROLE_INPUT, CUVIL_F16,
                            "b,skv,hkv,dv");
  cuvil_problem_add_operand(&p, "o", CUVIL_ROLE_OUTPUT, CUVIL_F16,
                            "b,sq,hq,dv");
  cuvil_problem_add_operand(&p, "mask", CUVIL_ROLE_SIDE, CUVIL_BOOL, "sq,skv");
  p.mask_keep = true;
  p.scale = 0.25;
  assert_int_equal(cuvil_problem_finish(&p), CUVIL_OK);
  assert_int_equal(p.mask, 4);
  struct cuvil_buf buf = {0};
  cuvil_problem_print(&p, &buf);
  struct cuvil_problem back = parsed(cuvil_buf_text(&buf));
  assert_memory_equal(&p, &back, sizeof p);
  cuvil_buf_free(&buf);
  memcpy(p.operands[4].name, "bias", 5);
  assert_int_equal(cuvil_problem_finish(&p), CU_ERR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip), cmocka_unit_test(test_one_spelling),
      cmocka_unit_test(test_structure),  cmocka_unit_test(test_signature),
      cmocka_unit_test(test_mistakes),   cmocka_unit_test(test_broken),
      cmocka_unit_test(test_by_hand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
