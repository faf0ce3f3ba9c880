/* problem_test.c - the grammar: parse and print are inverse, every mistake is
 * named at its column, signatures tell what may share a cubin. */
#include "problem/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

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

static void assert_signature(const char *text, const char *expected) {
  struct cuvil_problem problem = parsed(text);
  struct cuvil_buf buf = {0};
  cuvil_problem_signature(&problem, &buf);
  assert_string_equal(cuvil_buf_text(&buf), expected);
  cuvil_buf_free(&buf);
}

#define GEMM                                                            \
  "gemm/1 m=1024 n=3072 k=768 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] " \
  "acc=f32"
#define CONV                                                               \
  "conv/1 n=1 c=64 h=56 w=56 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1 " \
  "group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32"
#define POOL                                                           \
  "pool/1 op=max n=1 c=64 h=112 w=112 r=3 s=3 stride=2,2 pad=1,1,1,1 " \
  "dil=1,1 x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32"
#define REDUCE \
  "reduce/1 op=mean n=1 h=7 w=7 c=2048 x=f16[n,h,w,c] y=f16[n,c] acc=f32"
#define POINTWISE                                   \
  "pointwise/1 n=1 c=4 h=224 w=224 y=f16[n,h,w,c] " \
  "epi{out=x:f32[n,c<3,h,w]}"

/* Texts that are canonical already. */
static const char *const canonical[] = {
    GEMM,
    CONV,
    POOL,
    REDUCE,
    POINTWISE,
    GEMM " epi{t=add(acc,bias[n]); out=gelu_erf(t)}",
    CONV " epi{t=add(acc,bias[k]); u=add(t,res[n,p,q,k]); out=relu(u)}",
    "gemm/1 m=77 n=13 k=5 a=f32[k,m] b=f32[n,k] c=bf16[n,m] acc=f32 math=tf32",
    "gemm/1 m=4 n=4 k=4 a=f16[m,k]@(8,1) b=f16[n,k] c=f16[m,n]@(1,6) acc=f32",
    "gemm/1 m=4 n=4 k=8 a=f16[m,k<5] b=f16[n,k]:weight c=f16[m,n] acc=f32",
    GEMM " epi{t=mul(acc,0.1); out=clip(t,-inf,6)}",
    GEMM
    " epi{t=add(acc,bias:f32[n]:weight); u=mul(t,t); "
    "v=add(u,bias:f32[n]:weight); out=max(v,scale:f32[])}",
    "gemm/1 m=8 n=8 k=8 a=f16[m,k] b=f16[n,k] c=f16[m,n] z=f32[n,m]:out "
    "acc=f32 epi{z=mul(acc,2); out=add(z,-0.5)}",
    GEMM " epi{out=add(acc,res[m,n]@(4096,1))}",
    "conv/1 n=2 c=32 h=9 w=7 k=32 r=3 s=3 stride=2,1 pad=0,1,2,3 dil=2,2 "
    "group=32 x=bf16[n,c,h,w] w=bf16[k,c,r,s]:weight y=f32[n,k,p,q] acc=f32",
    "pool/1 op=avg_padded n=1 c=3 h=5 w=5 r=2 s=2 stride=1,1 pad=0,0,0,0 "
    "dil=1,1 x=f32[n,c,h,w] y=f32[n,c,p,q] acc=f32 epi{out=mul(acc,2)}",
    "pool/1 op=avg_padded n=1 c=3 h=5 w=5 r=2 s=2 stride=2,2 pad=0,0,1,1 "
    "dil=1,1 over=1,0 x=f32[n,c,h,w] y=f32[n,c,p,q] acc=f32",
    "reduce/1 op=max a=3 b0=4 x=f32[b0,a] y=f32[] acc=f32",
    "reduce/1 op=sum n=0 c=4 x=f32[n,c] y=f32[c] acc=f32",
    "pointwise/1 n=0 y=f32[n] epi{out=mul(a[n],b:f16[])}",
    "pointwise/1 n=2 c=3 y=f16[n,c] z=f32[c,n]:out epi{t=sub(a[n,c],b[c]); "
    "z=hardsigmoid(t,0.2,0.5); out=leaky_relu(z,0.01)}",
    "pointwise/1 n=9 y=i64[n] epi{out=a:bool[n]}",
    "pointwise/1 n=9 y=f32[n] epi{out=1e-45}",
    "pointwise/1 n=9 y=f32[n] epi{out=mul(3.4028235e+38,1e+09)}",
};

static void test_round_trip(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
    struct cuvil_problem problem = parsed(canonical[i]);
    assert_print(&problem, canonical[i]);
  }
  /* Constants are fp32: the text holds the one nearest to what was given. */
  struct cuvil_problem odd =
      parsed("pointwise/1 n=9 y=f32[n] epi{out=mul(0.1000000001,16777217)}");
  assert_print(&odd, "pointwise/1 n=9 y=f32[n] epi{out=mul(0.1,16777216)}");
}

static void test_spelling(void **state) {
  (void)state;
  struct cuvil_problem a = parsed(CONV " epi{t=add(acc,bias[k]); out=relu(t)}");
  struct cuvil_problem b = parsed(
      "\n conv / 1 epi { t = add ( acc , bias : f16 [ k ] ) ;\n out=relu(t) }"
      " y = f16 [ n , p , q , k ] w=f16[k,r,s,c] : weight\tx=f16[n,h,w,c]\n"
      "pad=1,1,1,1 s=3 r=3 k=64 w=56 h=56 c=64 n=1 ");
  assert_memory_equal(&a, &b, sizeof a);
}

static void test_defaults(void **state) {
  (void)state;
  struct cuvil_problem a = parsed(
      "conv/1 n=1 c=8 h=9 w=9 k=8 r=1 s=1 x=f16[n,h,w,c] w=f16[k,r,s,c] "
      "y=f16[n,p,q,k]");
  assert_print(&a,
               "conv/1 n=1 c=8 h=9 w=9 k=8 r=1 s=1 stride=1,1 pad=0,0,0,0 "
               "dil=1,1 group=1 x=f16[n,h,w,c] w=f16[k,r,s,c] y=f16[n,p,q,k] "
               "acc=f32");
  struct cuvil_problem plain = parsed(GEMM);
  struct cuvil_problem copy = parsed(GEMM " epi{out=acc}");
  struct cuvil_problem call = parsed(GEMM " epi{out=copy(acc)}");
  assert_memory_equal(&plain, &copy, sizeof plain);
  assert_memory_equal(&plain, &call, sizeof plain);
  /* Strides that are the packed ones are no strides. */
  struct cuvil_problem packed = parsed(
      "gemm/1 m=1024 n=3072 k=768 a=f16[m,k]@(768,1) b=f16[n,k]:weight "
      "c=f16[m,n]");
  assert_memory_equal(&plain, &packed, sizeof plain);
}

static void test_structure(void **state) {
  (void)state;
  struct cuvil_problem p = parsed(
      "conv/1 n=2 c=12 h=10 w=11 k=8 r=3 s=2 stride=2,3 pad=1,0,2,1 dil=2,1 "
      "group=4 x=f16[n,h,w,c<10] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] "
      "epi{out=add(acc,bias:f32[k])}");
  assert_int_equal(p.kind, CUVIL_KIND_CONV);
  /* (10+1+2-2*2-1)/2+1 = 5; (11+0+1-1-1)/3+1 = 4 */
  assert_int_equal(cuvil_problem_extent(&p, "p"), 5);
  assert_int_equal(cuvil_problem_extent(&p, "q"), 4);
  assert_int_equal(cuvil_problem_extent(&p, "z"), 0);
  assert_int_equal(cuvil_problem_find_dim(&p, "q"), CUVIL_CONV_DIM_Q);
  assert_int_equal(cuvil_problem_find_operand(&p, "bias"), 3);
  assert_int_equal(cuvil_problem_find_operand(&p, "none"), -1);
  assert_int_equal(cuvil_operand_elements(&p, CUVIL_CONV_X), 2 * 10 * 11 * 10);
  assert_int_equal(cuvil_operand_elements(&p, CUVIL_CONV_W), 8 * 3 * 2 * 3);
  assert_int_equal(cuvil_operand_extent(&p, CUVIL_CONV_W, 3), 3);
  assert_int_equal(cuvil_operand_bytes(&p, 3), 32);
  assert_int_equal(p.operands[CUVIL_CONV_X].strides[0], 10 * 11 * 10);
  assert_int_equal(p.operands[CUVIL_CONV_X].strides[3], 1);
  assert_true(p.operands[CUVIL_CONV_W].weight);
  assert_int_equal(p.operands[3].role, CUVIL_ROLE_SIDE);
  assert_true(cuvil_operand_has_dim(&p.operands[3], CUVIL_CONV_DIM_K));
  assert_false(cuvil_operand_has_dim(&p.operands[3], CUVIL_CONV_DIM_Q));
  assert_true(cuvil_problem_flops(&p) == 2. * 2 * 5 * 4 * 8 * 3 * 3 * 2);
  assert_true(cuvil_problem_bytes(&p) ==
              2 * (2200. + 8 * 3 * 2 * 3 + 2 * 5 * 4 * 8) + 32);
  struct cuvil_problem strided =
      parsed("gemm/1 m=4 n=3 k=4 a=f16[m,k]@(8,1) b=f16[n,k] c=f16[m,n]");
  assert_int_equal(cuvil_operand_elements(&strided, CUVIL_GEMM_A), 28);
  assert_true(cuvil_problem_flops(&strided) == 2. * 4 * 3 * 4);
  assert_true(cuvil_problem_bytes(&strided) == 2. * (16 + 12 + 12));
  static const int classes[][2] = {{1, 1},   {2, 2},   {3, 1},   {12, 4},
                                   {24, 8},  {48, 16}, {64, 16}, {0, 16},
                                   {100, 4}, {7, 1}};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    assert_int_equal(cuvil_divisibility(classes[i][0]), classes[i][1]);
}

static void test_signature(void **state) {
  (void)state;
  assert_signature(GEMM " epi{t=mul(acc,0.5); out=add(t,bias[n])}",
                   "gemm/1 m=*16 n=*16 k=*16 a=f16[m,k] b=f16[n,k]:weight "
                   "c=f16[m,n] acc=f32 epi{t=mul(acc,#); out=add(t,bias[n])}");
  assert_signature(
      "gemm/1 m=77 n=12 k=8 a=f16[m,k]@(16,1) b=f16[n,k<6] c=f16[m,n]",
      "gemm/1 m=*1 n=*4 k=*8 a=f16[m,k]@(*16,1) b=f16[n,k<*2] c=f16[m,n] "
      "acc=f32");
  assert_signature(CONV,
                   "conv/1 n=*1 c=*16 h=*8 w=*8 k=*16 r=3 s=3 stride=1,1 "
                   "pad=1,1,1,1 dil=1,1 group=1 x=f16[n,h,w,c] "
                   "w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32");
  assert_signature(
      "conv/1 n=1 c=24 h=9 w=9 k=24 r=3 s=3 group=24 x=f16[n,h,w,c] "
      "w=f16[k,r,s,c] y=f16[n,p,q,k]",
      "conv/1 n=*1 c=*8 h=*1 w=*1 k=*8 r=3 s=3 stride=1,1 pad=0,0,0,0 "
      "dil=1,1 group=c x=f16[n,h,w,c] w=f16[k,r,s,c] y=f16[n,p,q,k] acc=f32");
  assert_signature(POINTWISE,
                   "pointwise/1 n=*1 c=*4 h=*16 w=*16 y=f16[n,h,w,c] "
                   "epi{out=x:f32[n,c<*1,h,w]}");
}

#define EPI(text) \
  "gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n] epi{" text "}"
/* `at`: the text's column from 1; 0 where only the message is looked at. */
static const struct {
  const char *text;
  int column;
  const char *message;
} mistakes[] = {
    {"", 1, "expected a kind"},
    {"gem/1", 1,
     "expected a kind (gemm, conv, pool, reduce, pointwise, attention, norm, "
     "gather), found 'gem'"},
    {"gemm", 5, "expected '/' and the version, found the end"},
    {"gemm/2 m=1", 6, "version 1"},
    {"gemm/1 m", 9, "expected '=', found the end"},
    {"gemm/1 m=2 n=2 a=f16[m,k]", 26, "expected 'k=' of gemm, found the end"},
    {"gemm/1 m=2 m=2", 12, "'m' is given twice"},
    {"gemm/1 m=x n=2", 0, "expected 'm=' of gemm"},
    {"gemm/1 m=2 n=2 k=2 batch=4 a=f16[m,k] b=f16[n,k] c=f16[m,n]", 50,
     "operand 'c' of gemm must have the dimensions m,n,batch"},
    {"gemm/1 m=2 n=2 k=2 q=4 a=f16[m,k] b=f16[n,k] c=f16[m,n]", 20,
     "'q' is not a key of gemm/1"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] z=f16[m,n] c=f16[m,n]", 42,
     "an extra output is marked ':out'"},
    {"gemm/1 m=2 n=2 k=2 a=f17[m,k] b=f16[n,k] c=f16[m,n]", 22,
     "expected a type (f32, f16, bf16, ...), found 'f17'"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,j] b=f16[n,k] c=f16[m,n]", 28,
     "expected a dimension of the problem, found 'j'"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m k] b=f16[n,k] c=f16[m,n]", 28,
     "expected ',' or ']', found 'k'"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k b=f16[n,k c=f16[m,n", 49,
     "expected ']', found the end"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,n] b=f16[n,k] c=f16[m,n]", 20,
     "operand 'a' of gemm must have the dimensions m,k"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,m] b=f16[n,k] c=f16[m,n]", 20,
     "operand 'a' has dimension 'm' twice"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f32[n,k] c=f16[m,n]", 31,
     "operands 'a' and 'b' differ in type"},
    {"gemm/1 m=2 n=2 k=2 a=i8[m,k] b=i8[n,k] c=f16[m,n]", 20,
     "must be f32, f16 or bf16"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n] math=tf32", 53,
     "math=tf32 needs a contraction of f32 operands"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n] acc=f16", 57,
     "expected f32, found 'f16'"},
    {"gemm/1 m=0 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n]", 8,
     "dimension m=0 must be from 1 to 2147483647"},
    {"gemm/1 m=-3 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n]", 8, "m=-3"},
    {"gemm/1 m=2147483648 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n]", 8,
     "2147483648"},
    {"gemm/1 m=99999999999999999999 n=2", 10, "the number is too large"},
    {"gemm/1 m=2147483647 n=2147483647 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n]",
     60, "operand 'c' is too large"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k<2] b=f16[n,k] c=f16[m,n]", 20,
     "the limit of 'k' must be from 1 to below its extent 2"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m<1,n]", 42,
     "output 'c' cannot have a limit"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n]:weight", 42,
     "output 'c' cannot be a weight"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n]@(1,1)", 42,
     "elements overlap"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k]@(4) b=f16[n,k] c=f16[m,n]", 33,
     "expected ',' and one stride a dimension, found ')'"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k]@(4,0) b=f16[n,k] c=f16[m,n]", 20,
     "stride 0 is out of range"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k]:wait c=f16[m,n]", 42,
     "expected weight, found 'wait'"},
    {"gemm/1 m=2 n=2 k=2 b=f16[n,k] c=f16[m,n]", 41,
     "expected operand 'a=' of gemm, found the end"},
    {"gemm/1 m=2n=2", 11, "white space before the next key"},
    {"conv/1 n=1 c=6 h=5 w=5 k=4 r=3 s=3 group=4 x=f16[n,h,w,c] "
     "w=f16[k,r,s,c] y=f16[n,p,q,k]",
     36, "group=4 does not divide c=6"},
    {"conv/1 n=1 c=6 h=5 w=5 k=4 r=3 s=3 stride=1 x=f16[n,h,w,c] "
     "w=f16[k,r,s,c] y=f16[n,p,q,k]",
     43, "expected 2 numbers for stride"},
    {"conv/1 n=1 c=6 h=5 w=5 k=4 r=3 s=3 stride=one x=f16[n,h,w,c] "
     "w=f16[k,r,s,c] y=f16[n,p,q,k]",
     43, "expected numbers, found 'one'"},
    {"conv/1 n=1 c=6 h=5 w=5 k=4 r=3 s=3 stride=1,0 x=f16[n,h,w,c] "
     "w=f16[k,r,s,c] y=f16[n,p,q,k]",
     36, "stride holds 0"},
    {"conv/1 n=1 c=6 h=5 w=5 k=4 r=3 s=6 x=f16[n,h,w,c] w=f16[k,r,s,c] "
     "y=f16[n,p,q,k]",
     32, "the window covers 6 of w, more than the padded input's 5"},
    {"pool/1 op=mid n=1 c=6 h=5 w=5 r=3 s=3 x=f16[n,h,w,c] y=f16[n,p,q,c]", 11,
     "expected op=max, avg or avg_padded, found 'mid'"},
    {"pool/1 n=1 c=6 h=5 w=5 r=3 s=3 x=f16[n,h,w,c] y=f16[n,p,q,c]", 61,
     "expected op=max"},
    {"pool/1 op=avg n=1 c=6 h=5 w=5 r=3 s=3 pad=0,0,1,1 over=1,0 "
     "x=f16[n,h,w,c] y=f16[n,p,q,c]",
     51, "only of op=avg_padded"},
    {"pool/1 op=avg_padded n=1 c=6 h=5 w=5 r=3 s=3 pad=0,0,1,1 over=0,2 "
     "x=f16[n,h,w,c] y=f16[n,p,q,c]",
     58, "over holds 2"},
    {"reduce/1 op=sum n=1 c=6 d=2 x=f16[n,c] y=f16[n]", 25,
     "dimension 'd' is not one of 'x'"},
    {"reduce/1 op=sum nn=1 x=f16[nn] y=f16[nn]", 17,
     "a name is one lower-case letter"},
    {"reduce/1 op=sum n=1 x=f16[n] y=f16[n] epi{out=add(acc,z[n<1])}", 55,
     "the limit of 'n'"},
    {"reduce/1 op=mean n=0 c=2 x=f16[n,c] y=f16[c]", 18,
     "there is no mean of no elements"},
    {"pointwise/1 n=1 y=f16[n]", 25, "needs an epilogue"},
    {"pointwise/1 n=1 y=f16[n] epi{out=acc}", 30, "pointwise has no acc"},
    {"pointwise/1 n=1 c=2 y=f16[n] epi{out=x[n]}", 17,
     "dimension 'c' is not one of 'y'"},
    {EPI(""), 57, "expected a name and '=', found '}'"},
    {EPI("t=add(acc,1)"), 57, "the last statement must assign 'out'"},
    {EPI("out=relu(acc); t=neg(acc)"), 57, "'out' must be assigned last"},
    {EPI("t=neg(acc); t=neg(t); out=t"), 69, "'t' is assigned twice"},
    {EPI("out=add(acc,t)"), 69, "expected acc, an earlier value, name[..]"},
    {EPI("out=add(acc)"), 68, "expected ',' and the next argument"},
    {EPI("out=relu(acc,1)"), 69, "expected ')', found ','"},
    {EPI("out=foo(acc)"), 61, "expected an operator, found 'foo'"},
    {EPI("out=add(acc,relu(acc))"), 69, "a call is a statement of its own"},
    {EPI("out=add(acc,a[m,k])"), 69, "'a' is not a side input"},
    {EPI("out=add(acc,r[m,k])"), 69,
     "operand 'r' has a dimension that output 'c' has not"},
    {EPI("t=add(acc,r[m,n]); out=add(t,r[n])"), 86,
     "'r' was read before with another type or shape"},
    {EPI("t=add(acc,r[m,n]); out=add(t,r)"), 86,
     "expected an operand with its dimensions"},
    {EPI("c=neg(acc); out=neg(acc)"), 57,
     "assign the main output 'c' as 'out'"},
    {EPI("a=neg(acc); out=neg(acc)"), 57, "'a' is an input"},
    {EPI("out=add(acc,1e99)"), 69, "the number is beyond fp32"},
    {EPI("out=add(acc,$)"), 69, "expected acc, a value"},
    {EPI("out=neg(acc)") " epi{out=acc}", 71, "a second epilogue"},
    {EPI("averyverylongname=neg(acc)"), 57, "at most 15 characters"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n] z=f32[m]:out "
     "epi{z=neg(acc); out=acc}",
     53, "extra output 'z' must have all dimensions of 'c'"},
    {"gemm/1 m=2 n=2 k=2 a=f16[m,k] b=f16[n,k] c=f16[m,n] z=f32[m,n]:out", 53,
     "extra output 'z' is never assigned"},
};

static void test_mistakes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    struct cuvil_problem problem;
    const char *text = mistakes[i].text;
    if (cuvil_problem_parse(text, &problem) != CU_ERR_PARSE)
      fail_msg("accepted: %s", text);
    if (!strstr(cuvil_last_error(), mistakes[i].message))
      fail_msg("%s\n  instead of '%s'\n  of %s", cuvil_last_error(),
               mistakes[i].message, text);
    char column[48];
    snprintf(column, sizeof column, "column %d:", mistakes[i].column);
    if (mistakes[i].column && !strstr(cuvil_last_error(), column))
      fail_msg("%s\n  instead of %s\n  of %s", cuvil_last_error(), column,
               text);
  }
}

/* No text, however broken, may do worse than fail: every prefix of the
 * canonical texts, and texts with one byte changed. */
static void test_broken(void **state) {
  (void)state;
  struct cuvil_rng rng = {7};
  struct cuvil_problem problem;
  char text[1024];
  for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
    size_t size = strlen(canonical[i]);
    for (size_t cut = 0; cut < size; cut++) {
      memcpy(text, canonical[i], cut);
      text[cut] = 0;
      CUVIL_IGNORE(cuvil_problem_parse(text, &problem)); /* only not crash */
    }
    for (int round = 0; round < 200; round++) {
      memcpy(text, canonical[i], size + 1);
      static const char bytes[] = "0129-,;:()[]{}<@=. \nacmnkxy/\x80";
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

/* ---- random problems, built by hand */

static int64_t pick(struct cuvil_rng *rng, int64_t low, int64_t high) {
  return low + (int64_t)cuvil_rng_below(rng, (uint64_t)(high - low + 1));
}

static enum cuvil_dtype pick_float(struct cuvil_rng *rng) {
  static const enum cuvil_dtype types[] = {CUVIL_F32, CUVIL_F16, CUVIL_BF16};
  return types[cuvil_rng_below(rng, 3)];
}

static void random_fixed(struct cuvil_rng *rng, struct cuvil_problem *p) {
  enum cuvil_dtype in = pick_float(rng), out = pick_float(rng);
  for (int i = 0; i < p->dim_count; i++)
    p->dims[i].extent = pick(rng, 1, 40);
  if (p->kind == CUVIL_KIND_GEMM) {
    bool swap = cuvil_rng_below(rng, 2);
    bool batch = cuvil_rng_below(rng, 2);
    if (batch) cuvil_problem_add_dim(p, "batch", pick(rng, 1, 4));
    cuvil_problem_add_operand(p, "a", CUVIL_ROLE_INPUT, in,
                              swap ? "k,m" : "m,k");
    cuvil_problem_add_operand(p, "b", CUVIL_ROLE_INPUT, in,
                              batch ? "n,batch,k" : "n,k");
    cuvil_problem_add_operand(p, "c", CUVIL_ROLE_OUTPUT, out,
                              batch  ? "batch,m,n"
                              : swap ? "n,m"
                                     : "m,n");
    p->tf32 = in == CUVIL_F32 && cuvil_rng_below(rng, 2);
    return;
  }
  for (int i = 0; i < 2; i++) {
    p->dims[p->kind == CUVIL_KIND_CONV ? CUVIL_CONV_DIM_R + i
                                       : CUVIL_POOL_DIM_R + i]
        .extent = pick(rng, 1, 3);
    p->stride[i] = pick(rng, 1, 3);
    p->dilation[i] = pick(rng, 1, 2);
    p->pad[i] = pick(rng, 2, 4);
    p->pad[i + 2] = pick(rng, 2, 4);
  }
  cuvil_problem_add_operand(p, "x", CUVIL_ROLE_INPUT, in, "n,h,w,c");
  if (p->kind == CUVIL_KIND_CONV) {
    p->group = pick(rng, 1, 3);
    p->dims[CUVIL_CONV_DIM_C].extent *= p->group;
    p->dims[CUVIL_CONV_DIM_K].extent *= p->group;
    int w = cuvil_problem_add_operand(p, "w", CUVIL_ROLE_INPUT, in, "k,r,s,c");
    p->operands[w].weight = cuvil_rng_below(rng, 2);
    cuvil_problem_add_operand(p, "y", CUVIL_ROLE_OUTPUT, out, "n,p,q,k");
  } else {
    p->pool_op = (enum cuvil_pool_op)cuvil_rng_below(rng, 3);
    cuvil_problem_add_operand(p, "y", CUVIL_ROLE_OUTPUT, out, "n,c,p,q");
  }
}

static void random_free(struct cuvil_rng *rng, struct cuvil_problem *p) {
  static const char *const names[] = {"n", "h", "w", "c", "d1"};
  for (int i = 0; i < 5; i++)
    cuvil_problem_add_dim(p, names[i], pick(rng, 0, 9));
  if (p->kind == CUVIL_KIND_REDUCE) {
    p->reduce_op = (enum cuvil_reduce_op)cuvil_rng_below(rng, 4);
    for (int i = 0; i < 5; i++)
      p->dims[i].extent += p->reduce_op == CUVIL_REDUCE_MEAN;
    cuvil_problem_add_operand(p, "x", CUVIL_ROLE_INPUT, pick_float(rng),
                              "n,h,w,c,d1");
    cuvil_problem_add_operand(p, "y", CUVIL_ROLE_OUTPUT, pick_float(rng),
                              "c,n");
  } else {
    cuvil_problem_add_operand(p, "y", CUVIL_ROLE_OUTPUT, pick_float(rng),
                              "n,c,h,w,d1");
  }
}

static void random_epilogue(struct cuvil_rng *rng, struct cuvil_problem *p) {
  bool mapping = p->kind == CUVIL_KIND_POINTWISE;
  int count = (int)pick(rng, mapping, 5), sides = 0;
  for (int i = 0; i < count; i++) {
    enum cuvil_expr_op op =
        (enum cuvil_expr_op)cuvil_rng_below(rng, CUVIL_OP_COUNT);
    struct cuvil_term args[CUVIL_MAX_ARGS] = {0};
    for (int a = 0; a < cuvil_expr_op_args(op); a++) {
      switch (cuvil_rng_below(rng, 4)) {
        case 0:
          args[a].kind = mapping ? CUVIL_TERM_CONSTANT : CUVIL_TERM_ACC;
          break;
        case 1: {
          char name[CUVIL_NAME_SIZE];
          snprintf(name, sizeof name, "side%d", sides++);
          args[a].kind = CUVIL_TERM_OPERAND;
          args[a].index = cuvil_problem_add_operand(p, name, CUVIL_ROLE_SIDE,
                                                    pick_float(rng), "n");
          if (args[a].index < 0) args[a].kind = CUVIL_TERM_CONSTANT;
          break;
        }
        case 2:
          args[a].kind = i ? CUVIL_TERM_VALUE : CUVIL_TERM_CONSTANT;
          args[a].index = i ? (int)cuvil_rng_below(rng, (uint64_t)i) : 0;
          break;
        default:
          args[a].kind = CUVIL_TERM_CONSTANT;
          args[a].value = cuvil_rng_normal(rng);
      }
    }
    char name[CUVIL_NAME_SIZE];
    snprintf(name, sizeof name, i == count - 1 ? "out" : "t%d", i);
    cuvil_problem_add_statement(p, name, op, args, -1);
  }
}

static void test_random(void **state) {
  (void)state;
  struct cuvil_rng rng = {42};
  for (int round = 0; round < 3000; round++) {
    struct cuvil_problem p;
    cuvil_problem_begin(
        (enum cuvil_kind)cuvil_rng_below(&rng, CUVIL_KIND_POINTWISE + 1), &p);
    if (p.dim_count)
      random_fixed(&rng, &p);
    else
      random_free(&rng, &p);
    random_epilogue(&rng, &p);
    if (cuvil_problem_finish(&p) != CUVIL_OK)
      fail_msg("%s", cuvil_last_error());
    struct cuvil_buf text = {0}, again = {0};
    cuvil_problem_print(&p, &text);
    struct cuvil_problem back = parsed(cuvil_buf_text(&text));
    cuvil_problem_print(&back, &again);
    assert_string_equal(cuvil_buf_text(&text), cuvil_buf_text(&again));
    assert_memory_equal(&p, &back, sizeof p);
    cuvil_buf_free(&text);
    cuvil_buf_free(&again);
  }
}

static void test_by_hand(void **state) {
  (void)state;
  struct cuvil_problem p;
  cuvil_problem_begin(CUVIL_KIND_GEMM, &p);
  p.dims[CUVIL_DIM_M].extent = 1024;
  p.dims[CUVIL_DIM_N].extent = 3072;
  p.dims[CUVIL_DIM_K].extent = 768;
  cuvil_problem_add_operand(&p, "a", CUVIL_ROLE_INPUT, CUVIL_F16, "m,k");
  int b =
      cuvil_problem_add_operand(&p, "b", CUVIL_ROLE_INPUT, CUVIL_F16, "n,k");
  p.operands[b].weight = true;
  cuvil_problem_add_operand(&p, "c", CUVIL_ROLE_OUTPUT, CUVIL_F16, "m,n");
  int one =
      cuvil_problem_add_operand(&p, "one", CUVIL_ROLE_SIDE, CUVIL_F16, "n");
  int two =
      cuvil_problem_add_operand(&p, "two", CUVIL_ROLE_SIDE, CUVIL_F32, "");
  assert_int_equal(
      cuvil_problem_add_operand(&p, "z", CUVIL_ROLE_SIDE, CUVIL_F32, "m,z"),
      -1);
  struct cuvil_term args[2] = {{CUVIL_TERM_ACC, 0, 0},
                               {CUVIL_TERM_OPERAND, one, 0}};
  int t = cuvil_problem_add_statement(&p, "t", CUVIL_OP_ADD, args, -1);
  struct cuvil_term more[2] = {{CUVIL_TERM_VALUE, t, 0},
                               {CUVIL_TERM_OPERAND, two, 0}};
  cuvil_problem_add_statement(&p, "out", CUVIL_OP_MUL, more, -1);
  assert_int_equal(cuvil_problem_finish(&p), CUVIL_OK);
  assert_print(&p, GEMM " epi{t=add(acc,one[n]); out=mul(t,two:f32[])}");
  /* An idle side input cannot be said in the text, so it is refused. */
  p.epilogue.statements[1].args[1] = more[0];
  assert_int_equal(cuvil_problem_finish(&p), CU_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(cuvil_last_error(), "'two' is never read"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip), cmocka_unit_test(test_spelling),
      cmocka_unit_test(test_defaults),   cmocka_unit_test(test_structure),
      cmocka_unit_test(test_signature),  cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_broken),     cmocka_unit_test(test_random),
      cmocka_unit_test(test_by_hand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
