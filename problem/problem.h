/* problem.h - what must be computed, as one canonical text.
 *
 *   gemm/1 m=1024 n=3072 k=768 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32
 *       epi{t=add(acc,bias[n]); out=gelu_erf(t)}
 *   conv/1 n=1 c=64 h=56 w=56 k=64 r=3 s=3 stride=1,1 pad=1,1,1,1 dil=1,1
 *       group=1 x=f16[n,h,w,c] w=f16[k,r,s,c]:weight y=f16[n,p,q,k] acc=f32
 *       epi{t=add(acc,bias[k]); u=add(t,res[n,p,q,k]); out=relu(u)}
 *   pool/1 op=max n=1 c=64 h=112 w=112 r=3 s=3 stride=2,2 pad=1,1,1,1 dil=1,1
 *       x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32
 *   reduce/1 op=mean n=1 h=7 w=7 c=2048 x=f16[n,h,w,c] y=f16[n,c] acc=f32
 *   pointwise/1 n=1 c=4 h=224 w=224 y=f16[n,h,w,c] epi{out=x:f32[n,c<3,h,w]}
 *   attention/1 b=8 hq=12 hkv=12 sq=128 skv=128 d=64 dv=64 q=f16[b,sq,hq,d]
 *       k=f16[b,skv,hkv,d] v=f16[b,skv,hkv,dv] o=f16[b,sq,hq,dv] scale=0.125
 *       causal=0 mask=f16[b,skv]:add acc=f32
 *   norm/1 op=layer m=1024 n=768 x=f16[m,n] y=f16[m,n] sum=f16[m,n]:out
 *       eps=1e-05 acc=f32 pro{sum=add(x,res[m,n])}
 *       epi{t=mul(acc,gamma[n]); out=add(t,beta[n])}
 *   gather/1 v=50257 m=512 n=768 table=f16[v,n]:weight index=i64[m] y=f16[m,n]
 *       epi{out=add(acc,pos[m,n])}
 *
 * (one line each; line breaks above are for the page).  Parse and print are
 * inverse: print(parse(t)) is the canonical text, parse(print(p)) == p.  The
 * canonical text is what databases, recordings and command lines hold.
 *
 * Dimensions are named.  gemm has m n k and, where it is one of many, batch
 * (printed first, CUVIL_DIM_BATCH; c has it, a and b may; an extent of 1 is
 * none); conv has n c h w k r s and the derived p q (output height, width);
 * pool the same without k; reduce and pointwise name their own, with single
 * lower-case letters or letter+digit.
 * An operand lists its dimensions from slowest to fastest; `@(s0,s1,..)` after
 * the bracket gives strides in elements where it is not packed; `name<L` inside
 * the bracket says that the operand holds only the first L of that dimension
 * and reads as zero beyond (channel padding); `:weight` marks a constant known
 * at compile time.
 *
 * The epilogue is a single-assignment program.  A side input appears in it as
 * name[dims] or name:dtype[dims] (the dtype defaults to the main output's);
 * an extra output is assigned by name and declared among the operands with
 * `:out`.  `acc` is the accumulator in fp32 (absent in pointwise).  The last
 * statement assigns `out`, the main output; an absent epilogue means out=acc.
 * A broadcast is an operand without that dimension.
 *
 * math=tf32 says that fp32 operands of a contraction may be rounded to tf32;
 * default math is the operands' own type.
 *
 * group in conv: w is [k,r,s,c] with c standing for c/group elements
 * (cuvil_operand_extent says so).
 *
 * attention: for each b and query head i of hq, with key and value head
 * i / (hq / hkv): o = softmax(scale q k^T + mask) v, the softmax over skv in
 * fp32.  mask has some of b hq sq skv; `:add` is added to the scaled scores,
 * `:keep` (bool) excludes where it is false; causal=1 excludes the keys j > i +
 * skv - sq for query i.  A query whose keys are all excluded by keep and causal
 * gives 0; an additive mask that is -inf for all of them gives NaN, as ONNX
 * says.  scale is a run-time scalar.  No epilogue.
 *
 * norm: m rows of n elements.  The prologue computes what is normalised from
 * `x`, the main input's element, and side inputs; its last statement's value
 * is taken in fp32 (absent: x).  It may assign an extra output (a residual sum
 * that is needed again), which is rounded when stored, not before it is
 * normalised.  acc is then (v - mean) / sqrt(variance + eps) for layer, with
 * the variance divided by n; v / sqrt(mean(v v) + eps) for rms; exp(v - max) /
 * sum, or its logarithm, for the softmaxes, which have no eps.  Statistics in
 * fp32; all excluded (-inf throughout) is NaN.
 *
 * gather: acc = table[index[m], n]; a negative index counts from the end of v,
 * what is still outside is clamped to 0 or v - 1.
 *
 * What is left out has a default: stride=1,1 pad=0,0,0,0 dil=1,1 group=1
 * causal=0 acc=f32; the canonical text has them all.  Key=value pairs may come
 * in any order and white space may stand between any two tokens.  Names are
 * [a-z][a-z0-9_]*, at most 15 characters; operands and values share one
 * namespace, dimensions have their own (conv has a dimension w and an operand
 * w).
 *
 * Arithmetic of the epilogue is fp32 whatever the types: operands are
 * converted to fp32 when read, constants are fp32 (the canonical text holds
 * the shortest decimal that gives the same fp32), NaN goes through every
 * operator, min, max, relu and clip too.  A pooling window that lies in the
 * padding altogether gives -inf for max and 0 for an average; avg divides by
 * the elements inside the input, avg_padded by r*s less those that lie in the
 * last over=rows,columns of the padding (where windows end beyond what a model
 * calls its padding; 0,0 is not written).
 */
#ifndef CUVIL_PROBLEM_PROBLEM_H_
#define CUVIL_PROBLEM_PROBLEM_H_

#include "base/buf.h"
#include "base/dtype.h"
#include "base/status.h"

#define CUVIL_MAX_RANK 6
#define CUVIL_MAX_DIMS 12
#define CUVIL_MAX_OPERANDS 16
#define CUVIL_MAX_STATEMENTS 32
#define CUVIL_MAX_ARGS 3
#define CUVIL_NAME_SIZE 16

enum cuvil_kind {
  CUVIL_KIND_GEMM,
  CUVIL_KIND_CONV,
  CUVIL_KIND_POOL,
  CUVIL_KIND_REDUCE,
  CUVIL_KIND_POINTWISE,
  CUVIL_KIND_ATTENTION,
  CUVIL_KIND_NORM,
  CUVIL_KIND_GATHER,
  CUVIL_KIND_COUNT
};
const char *cuvil_kind_name(enum cuvil_kind kind);

struct cuvil_dim {
  char name[CUVIL_NAME_SIZE];
  int64_t extent;
  bool derived; /* p and q: computed, not printed */
};

enum cuvil_operand_role {
  CUVIL_ROLE_INPUT,  /* a, b, x, w: read by the kind itself */
  CUVIL_ROLE_SIDE,   /* read by prologue or epilogue; attention's mask */
  CUVIL_ROLE_OUTPUT, /* operand index `output` first, then extra outputs */
};

struct cuvil_operand {
  char name[CUVIL_NAME_SIZE];
  enum cuvil_operand_role role;
  enum cuvil_dtype dtype;
  bool weight; /* constant at compile time */
  int rank;
  int dims[CUVIL_MAX_RANK];      /* indices into problem->dims, slow to fast */
  int64_t limit[CUVIL_MAX_RANK]; /* stored extent where less than the dim; 0 =
                                    the whole dim */
  bool strided;                  /* strides given; else packed */
  int64_t strides[CUVIL_MAX_RANK]; /* elements; filled for packed ones too */
};

/* Operators of epilogues and pointwise problems.  Name, number of arguments.
 * Constants are written as numbers in argument places: clip(t,0,6). */
#define CUVIL_EXPR_OP_LIST(X)                                               \
  X(COPY, "copy", 1)                                                        \
  X(ADD, "add", 2)                                                          \
  X(SUB, "sub", 2)                                                          \
  X(MUL, "mul", 2)                                                          \
  X(DIV, "div", 2)                                                          \
  X(MIN, "min", 2)                                                          \
  X(MAX, "max", 2)                                                          \
  X(POW, "pow", 2)                                                          \
  X(NEG, "neg", 1)                                                          \
  X(ABS, "abs", 1)                                                          \
  X(SQRT, "sqrt", 1)                                                        \
  X(RSQRT, "rsqrt", 1)                                                      \
  X(RECIPROCAL, "reciprocal", 1)                                            \
  X(EXP, "exp", 1)                                                          \
  X(LOG, "log", 1)                                                          \
  X(TANH, "tanh", 1)                                                        \
  X(SIGMOID, "sigmoid", 1)                                                  \
  X(ERF, "erf", 1)                                                          \
  X(RELU, "relu", 1)                                                        \
  X(GELU_ERF, "gelu_erf", 1)                                                \
  X(GELU_TANH, "gelu_tanh", 1)                                              \
  X(SILU, "silu", 1)                                                        \
  X(HARDSWISH, "hardswish", 1)                                              \
  X(HARDSIGMOID, "hardsigmoid", 3) /* x, alpha, beta */                     \
  X(LEAKY_RELU, "leaky_relu", 2)   /* x, slope */                           \
  X(CLIP, "clip", 3)               /* x, low, high; NaN passes; max(min) as \
                                      ONNX: low > high gives high */        \
  X(TRUNC, "trunc", 1)             /* towards zero: a cast to an integer */

enum cuvil_expr_op {
#define CUVIL_EXPR_ENUM(id, name, args) CUVIL_OP_##id,
  CUVIL_EXPR_OP_LIST(CUVIL_EXPR_ENUM)
#undef CUVIL_EXPR_ENUM
      CUVIL_OP_COUNT
};
const char *cuvil_expr_op_name(enum cuvil_expr_op op);
int cuvil_expr_op_args(enum cuvil_expr_op op);

enum cuvil_term_kind {
  CUVIL_TERM_ACC,      /* the accumulator; in a prologue the input, `x` */
  CUVIL_TERM_OPERAND,  /* index: operand, read at the output's coordinates */
  CUVIL_TERM_VALUE,    /* index: an earlier statement */
  CUVIL_TERM_CONSTANT, /* value: a run-time scalar of the kernel */
};
struct cuvil_term {
  enum cuvil_term_kind kind;
  int index;
  double value;
};
struct cuvil_statement {
  char name[CUVIL_NAME_SIZE]; /* "out" for the main output */
  enum cuvil_expr_op op;
  struct cuvil_term args[CUVIL_MAX_ARGS];
  int output; /* operand written by this statement, or -1 */
};
struct cuvil_expr {
  int count;
  struct cuvil_statement statements[CUVIL_MAX_STATEMENTS];
};

enum cuvil_pool_op { CUVIL_POOL_MAX, CUVIL_POOL_AVG, CUVIL_POOL_AVG_PADDED };
enum cuvil_reduce_op {
  CUVIL_REDUCE_SUM,
  CUVIL_REDUCE_MEAN,
  CUVIL_REDUCE_MAX,
  CUVIL_REDUCE_MIN
};
enum cuvil_norm_op {
  CUVIL_NORM_LAYER,
  CUVIL_NORM_RMS,
  CUVIL_NORM_SOFTMAX,
  CUVIL_NORM_LOG_SOFTMAX
};

/* A plain value: copy it freely, no ownership inside. */
struct cuvil_problem {
  enum cuvil_kind kind;
  int version; /* of the kind's grammar; 1 */
  int dim_count;
  struct cuvil_dim dims[CUVIL_MAX_DIMS];
  int operand_count; /* inputs, then output, extra outputs, side inputs in the
                        order of their first use in prologue, epilogue */
  struct cuvil_operand operands[CUVIL_MAX_OPERANDS];
  int output;                 /* index of the main output's operand */
  struct cuvil_expr epilogue; /* count 0: out=acc */
  bool tf32;                  /* math=tf32 */
  /* conv and pool */
  int64_t stride[2], pad[4] /* top, left, bottom, right */, dilation[2];
  int64_t group;
  enum cuvil_pool_op pool_op;
  int64_t over[2]; /* pool avg_padded: of pad's bottom, right; not counted */
  enum cuvil_reduce_op reduce_op;
  /* attention */
  double scale; /* as fp32 holds it */
  bool causal, mask_keep;
  int mask; /* operand index; -1: none, and in other kinds; finish finds it */
  /* norm */
  enum cuvil_norm_op norm_op;
  double eps;                 /* as fp32 holds it; 0 for the softmaxes */
  struct cuvil_expr prologue; /* count 0: the input itself */
};

/* Operand and dimension places that a kind fixes. */
enum { CUVIL_GEMM_A = 0, CUVIL_GEMM_B = 1, CUVIL_GEMM_C = 2 };
enum { CUVIL_CONV_X = 0, CUVIL_CONV_W = 1, CUVIL_CONV_Y = 2 };
enum { CUVIL_POOL_X = 0, CUVIL_POOL_Y = 1 };
enum { CUVIL_REDUCE_X = 0, CUVIL_REDUCE_Y = 1 };
enum { CUVIL_POINTWISE_Y = 0 };
enum {
  CUVIL_ATTENTION_Q = 0,
  CUVIL_ATTENTION_K = 1,
  CUVIL_ATTENTION_V = 2,
  CUVIL_ATTENTION_O = 3
};
enum { CUVIL_NORM_X = 0, CUVIL_NORM_Y = 1 };
enum { CUVIL_GATHER_TABLE = 0, CUVIL_GATHER_INDEX = 1, CUVIL_GATHER_Y = 2 };
/* gemm; BATCH where cuvil_problem_batched */
enum { CUVIL_DIM_M, CUVIL_DIM_N, CUVIL_DIM_K, CUVIL_DIM_BATCH };
enum {
  CUVIL_CONV_DIM_N,
  CUVIL_CONV_DIM_C,
  CUVIL_CONV_DIM_H,
  CUVIL_CONV_DIM_W,
  CUVIL_CONV_DIM_K,
  CUVIL_CONV_DIM_R,
  CUVIL_CONV_DIM_S,
  CUVIL_CONV_DIM_P,
  CUVIL_CONV_DIM_Q
};
enum {
  CUVIL_POOL_DIM_N,
  CUVIL_POOL_DIM_C,
  CUVIL_POOL_DIM_H,
  CUVIL_POOL_DIM_W,
  CUVIL_POOL_DIM_R,
  CUVIL_POOL_DIM_S,
  CUVIL_POOL_DIM_P,
  CUVIL_POOL_DIM_Q
};
enum {
  CUVIL_ATTENTION_DIM_B,
  CUVIL_ATTENTION_DIM_HQ,
  CUVIL_ATTENTION_DIM_HKV,
  CUVIL_ATTENTION_DIM_SQ,
  CUVIL_ATTENTION_DIM_SKV,
  CUVIL_ATTENTION_DIM_D,
  CUVIL_ATTENTION_DIM_DV
};
enum { CUVIL_NORM_DIM_M, CUVIL_NORM_DIM_N };
enum { CUVIL_GATHER_DIM_V, CUVIL_GATHER_DIM_M, CUVIL_GATHER_DIM_N };

/* Parses and validates; CU_ERR_PARSE names the column and what was expected.
 */
CUVIL_MUST_USE enum cuvil_status cuvil_problem_parse(
    const char *text, struct cuvil_problem *out_problem);
/* Appends the canonical text. */
void cuvil_problem_print(const struct cuvil_problem *problem,
                         struct cuvil_buf *out);
/* The canonical text less extents and constants: extents become their
 * divisibility class (`k=*8`: divisible by 8; classes 1 2 4 8 16), constants
 * `#`; strides and limits likewise, but a stride of 1 stays.  The window (r s
 * stride pad dil) stays whole; group is 1, c (depthwise) or a class.  Two
 * problems of one signature are served by the same cubins. */
void cuvil_problem_signature(const struct cuvil_problem *problem,
                             struct cuvil_buf *out);
/* For code that builds a problem by hand (fusion): begin, set the extents and
 * attributes, add operands, fill the epilogue, finish.
 *
 * begin zeroes the problem and sets the version, the dimensions that the kind
 * fixes (extents 0, derived ones included) and the defaults of the attributes.
 */
void cuvil_problem_begin(enum cuvil_kind kind, struct cuvil_problem *out);
/* Adds a dimension of a reduce or pointwise problem, or a gemm's "batch"; its
 * index, -1 when there is no room. */
int cuvil_problem_add_dim(struct cuvil_problem *problem, const char *name,
                          int64_t extent);
/* Adds a packed operand with dimensions named by `dims` ("n,h,w,c"; "" for a
 * scalar), after those already there; its index, -1 when there is no room or a
 * dimension is unknown.  The first OUTPUT operand becomes the main output. */
int cuvil_problem_add_operand(struct cuvil_problem *problem, const char *name,
                              enum cuvil_operand_role role,
                              enum cuvil_dtype dtype, const char *dims);
/* Appends a statement; its index, -1 when there is no room.  args: as many as
 * the operator has; output: as in struct cuvil_statement.  The name "out"
 * makes it the main output's. */
int cuvil_problem_add_statement(struct cuvil_problem *problem, const char *name,
                                enum cuvil_expr_op op,
                                const struct cuvil_term *args, int output);
/* The same for a norm's prologue; output: the extra output of that name, or
 * -1.  Side inputs of the prologue stand before those of the epilogue. */
int cuvil_problem_add_prologue(struct cuvil_problem *problem, const char *name,
                               enum cuvil_expr_op op,
                               const struct cuvil_term *args, int output);
/* Fills derived dims and packed strides, rounds constants to fp32, drops an
 * epilogue that is only out=acc (a prologue that is only x, a batch of 1),
 * checks every rule that parse checks (CU_ERR_INVALID_ARGUMENT). */
CUVIL_MUST_USE enum cuvil_status cuvil_problem_finish(
    struct cuvil_problem *problem);

/* Extent of a named dimension; 0 when the problem has none of that name. */
int64_t cuvil_problem_extent(const struct cuvil_problem *problem,
                             const char *name);
int cuvil_problem_find_dim(const struct cuvil_problem *problem,
                           const char *name); /* -1: none */
int cuvil_problem_find_operand(const struct cuvil_problem *problem,
                               const char *name); /* -1: none */
/* Stored extent of an operand at position `i` of its dims: the dimension's, or
 * its limit; c/group for a convolution's w. */
int64_t cuvil_operand_extent(const struct cuvil_problem *problem, int operand,
                             int i);
/* Elements and bytes of an operand's storage (strides and limits counted). */
int64_t cuvil_operand_elements(const struct cuvil_problem *problem,
                               int operand);
int64_t cuvil_operand_bytes(const struct cuvil_problem *problem, int operand);
/* A gemm that has the dimension batch. */
bool cuvil_problem_batched(const struct cuvil_problem *problem);
bool cuvil_operand_has_dim(const struct cuvil_operand *operand, int dim);
/* Largest power of two, at most 16, that divides the extent. */
int cuvil_divisibility(int64_t extent);

/* Work counts for roofs: multiply-add is 2; what is excluded by causal=1 is no
 * work; each operand moved once, of a gather's table only the rows read. */
double cuvil_problem_flops(const struct cuvil_problem *problem);
double cuvil_problem_bytes(const struct cuvil_problem *problem);

#endif /* CUVIL_PROBLEM_PROBLEM_H_ */
