/* check.c - the rules that make a well-formed text a problem.
 *
 * Both ways to a problem end here: parse, which knows the column of
 * everything, and finish, for problems built by hand.  What can be computed is
 * computed on the way (output extents, packed strides), and what would make
 * two spellings of one problem is made one: strides that are the packed ones,
 * an epilogue that only copies the accumulator, constants beyond fp32.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "problem/check.h"

enum cuvil_status cuvil_check_bad(int at, const char *format, ...) {
  char message[512];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (at < 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "problem: %s", message);
  return CUVIL_FAIL(CU_ERR_PARSE, "problem text, column %d: %s", at + 1,
                    message);
}

/* ---- dimensions and window */

static enum cuvil_status check_fixed_dims(const struct cuvil_check *c) {
  const struct cuvil_problem *p = c->problem;
  const char *lists[] = {c->form->dims, c->form->derived, c->form->optional};
  char name[CUVIL_NAME_SIZE];
  int next = 0;
  bool same = true;
  for (int i = 0; i < 3; i++)
    while (same && cuvil_dims_next(&lists[i], name)) {
      if (i == 2 && next == p->dim_count) break; /* not chosen */
      same = next < p->dim_count && strcmp(p->dims[next].name, name) == 0;
      next++;
    }
  if (!same || next != p->dim_count)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end),
                           "%s has the dimensions %s%s%s, in this order",
                           c->form->name, c->form->dims,
                           c->form->derived[0] ? "," : "", c->form->derived);
  return CUVIL_OK;
}

static enum cuvil_status check_dims(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->dim_count < 0 || p->dim_count > CUVIL_MAX_DIMS)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end), "more than %d dimensions",
                           CUVIL_MAX_DIMS);
  if (c->form->dims[0]) CUVIL_TRY(check_fixed_dims(c));
  /* An empty tensor is a fact of models for the kinds that only map. */
  int64_t least = c->form->dims[0] ? 1 : 0;
  int given =
      c->form->derived[0] ? cuvil_dims_count(c->form->dims) : p->dim_count;
  for (int i = 0; i < p->dim_count; i++) {
    struct cuvil_dim *dim = &p->dims[i];
    dim->derived = i >= given;
    if (dim->derived) continue;
    bool letter = dim->name[0] >= 'a' && dim->name[0] <= 'z';
    bool digit = dim->name[1] >= '0' && dim->name[1] <= '9';
    if (!c->form->dims[0] &&
        (!letter || (dim->name[1] && (!digit || dim->name[2]))))
      return cuvil_check_bad(
          CUVIL_CHECK_AT(c, dims[i]),
          "dimension '%.15s': a name is one lower-case letter, or one "
          "and a digit",
          dim->name);
    for (int j = 0; j < i; j++)
      if (strcmp(p->dims[j].name, dim->name) == 0)
        return cuvil_check_bad(CUVIL_CHECK_AT(c, dims[i]),
                               "dimension '%s' is given twice", dim->name);
    if (dim->extent < least || dim->extent > CUVIL_MAX_EXTENT)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, dims[i]),
                             "dimension %s=%" PRId64 " must be from %" PRId64
                             " to %" PRId64,
                             dim->name, dim->extent, least, CUVIL_MAX_EXTENT);
  }
  return CUVIL_OK;
}

static enum cuvil_status check_range(const struct cuvil_check *c, int at,
                                     const char *key, const int64_t *numbers,
                                     int count, int64_t least) {
  for (int i = 0; i < count; i++)
    if (numbers[i] < least || numbers[i] > 65535)
      return cuvil_check_bad(
          at, "%s holds %" PRId64 "; each must be from %d to 65535", key,
          numbers[i], (int)least);
  (void)c;
  return CUVIL_OK;
}

/* Output extents: floor((in + pads - dil*(window-1) - 1) / stride) + 1. */
static enum cuvil_status check_window(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (!c->form->window) {
    memset(p->stride, 0, sizeof p->stride);
    memset(p->pad, 0, sizeof p->pad);
    memset(p->dilation, 0, sizeof p->dilation);
    return CUVIL_OK;
  }
  CUVIL_TRY(
      check_range(c, CUVIL_CHECK_AT(c, stride), "stride", p->stride, 2, 1));
  CUVIL_TRY(check_range(c, CUVIL_CHECK_AT(c, pad), "pad", p->pad, 4, 0));
  CUVIL_TRY(
      check_range(c, CUVIL_CHECK_AT(c, dilation), "dil", p->dilation, 2, 1));
  static const char *const names[2][3] = {{"h", "r", "p"}, {"w", "s", "q"}};
  for (int axis = 0; axis < 2; axis++) {
    int in = cuvil_problem_find_dim(p, names[axis][0]);
    int window = cuvil_problem_find_dim(p, names[axis][1]);
    int out = cuvil_problem_find_dim(p, names[axis][2]);
    int64_t covered = p->dilation[axis] * (p->dims[window].extent - 1) + 1;
    int64_t padded = p->dims[in].extent + p->pad[axis] + p->pad[axis + 2];
    if (covered > padded)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, dims[window]),
                             "the window covers %" PRId64
                             " of %s, more than the padded "
                             "input's %" PRId64,
                             covered, p->dims[in].name, padded);
    p->dims[out].extent = (padded - covered) / p->stride[axis] + 1;
  }
  return CUVIL_OK;
}

static enum cuvil_status check_pool(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->kind != CUVIL_KIND_POOL) {
    memset(p->over, 0, sizeof p->over);
    return CUVIL_OK;
  }
  if (!cuvil_pool_op_name(p->pool_op))
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end), "unknown pooling");
  bool counts = p->pool_op == CUVIL_POOL_AVG_PADDED;
  for (int i = 0; i < 2; i++)
    if (p->over[i] < 0 || p->over[i] > (counts ? p->pad[2 + i] : 0))
      return cuvil_check_bad(CUVIL_CHECK_AT(c, over),
                             "over holds %" PRId64
                             "; it is a part of the padding below and on the "
                             "right, and only of op=avg_padded",
                             p->over[i]);
  return CUVIL_OK;
}

static enum cuvil_status check_group(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (!c->form->group) {
    p->group = 1;
    return CUVIL_OK;
  }
  if (p->group < 1)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, group),
                           "group=%" PRId64 " must be positive", p->group);
  for (int i = 0; i < 2; i++) {
    const struct cuvil_dim *dim =
        &p->dims[i ? CUVIL_CONV_DIM_K : CUVIL_CONV_DIM_C];
    if (dim->extent % p->group)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, group),
                             "group=%" PRId64 " does not divide %s=%" PRId64,
                             p->group, dim->name, dim->extent);
  }
  return CUVIL_OK;
}

/* ---- operands */

static enum cuvil_status check_strides(const struct cuvil_check *c, int index) {
  struct cuvil_problem *p = c->problem;
  struct cuvil_operand *o = &p->operands[index];
  int64_t packed[CUVIL_MAX_RANK] = {0}, next = 1;
  bool same = true;
  for (int i = o->rank - 1; i >= 0; i--) {
    packed[i] = next;
    same = same && o->strides[i] == packed[i];
    int64_t extent = cuvil_operand_extent(p, index, i);
    if (__builtin_mul_overflow(next, extent ? extent : 1, &next) ||
        next > CUVIL_MAX_ELEMENTS)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[index]),
                             "operand '%s' is too large", o->name);
  }
  if (!o->strided || same) {
    o->strided = false;
    memcpy(o->strides, packed, sizeof packed);
    return CUVIL_OK;
  }
  for (int i = 0; i < CUVIL_MAX_RANK; i++) {
    if (i >= o->rank) {
      o->strides[i] = 0;
      continue;
    }
    if (o->strides[i] < 1 || o->strides[i] > CUVIL_MAX_ELEMENTS ||
        cuvil_operand_extent(p, index, i) * (__int128)o->strides[i] >
            CUVIL_MAX_ELEMENTS)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[index]),
                             "operand '%s': stride %" PRId64 " is out of range",
                             o->name, o->strides[i]);
  }
  return CUVIL_OK;
}

/* Two coordinates of an output may not be one element: going through the
 * dimensions by rising stride, each must step over all that lies below. */
static enum cuvil_status check_overlap(const struct cuvil_check *c, int index) {
  const struct cuvil_problem *p = c->problem;
  const struct cuvil_operand *o = &p->operands[index];
  bool done[CUVIL_MAX_RANK] = {false};
  int64_t covered = 1;
  for (int step = 0; step < o->rank; step++) {
    int least = -1;
    for (int i = 0; i < o->rank; i++)
      if (!done[i] && cuvil_operand_extent(p, index, i) > 1 &&
          (least < 0 || o->strides[i] < o->strides[least]))
        least = i;
    if (least < 0) break;
    if (o->strides[least] < covered)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[index]),
                             "output '%s': its strides make elements overlap",
                             o->name);
    covered += (cuvil_operand_extent(p, index, least) - 1) * o->strides[least];
    done[least] = true;
  }
  return CUVIL_OK;
}

static enum cuvil_status check_operand(const struct cuvil_check *c, int index) {
  struct cuvil_problem *p = c->problem;
  struct cuvil_operand *o = &p->operands[index];
  int at = CUVIL_CHECK_AT(c, operands[index]);
  if (!cuvil_name_valid(o->name) || strcmp(o->name, "acc") == 0 ||
      strcmp(o->name, "out") == 0 || strcmp(o->name, "inf") == 0)
    return cuvil_check_bad(at, "'%.15s' cannot be the name of an operand",
                           o->name);
  for (int i = 0; i < index; i++)
    if (strcmp(p->operands[i].name, o->name) == 0)
      return cuvil_check_bad(at, "operand '%s' is given twice", o->name);
  if (cuvil_dtype_size(o->dtype) == 0)
    return cuvil_check_bad(at, "operand '%s' has no type", o->name);
  if (o->rank < 0 || o->rank > CUVIL_MAX_RANK)
    return cuvil_check_bad(at, "operand '%s' has more than %d dimensions",
                           o->name, CUVIL_MAX_RANK);
  for (int i = 0; i < o->rank; i++) {
    if (o->dims[i] < 0 || o->dims[i] >= p->dim_count)
      return cuvil_check_bad(at, "operand '%s' has an unknown dimension",
                             o->name);
    for (int j = 0; j < i; j++)
      if (o->dims[j] == o->dims[i])
        return cuvil_check_bad(at, "operand '%s' has dimension '%s' twice",
                               o->name, p->dims[o->dims[i]].name);
    int64_t limit = o->limit[i];
    o->limit[i] = 0;
    int64_t extent = cuvil_operand_extent(p, index, i);
    if (limit && (limit < 1 || limit >= extent))
      return cuvil_check_bad(
          at,
          "operand '%s': the limit of '%s' must be from 1 to below its "
          "extent %" PRId64,
          o->name, p->dims[o->dims[i]].name, extent);
    if (limit && o->role == CUVIL_ROLE_OUTPUT)
      return cuvil_check_bad(at, "output '%s' cannot have a limit", o->name);
    o->limit[i] = limit;
  }
  for (int i = o->rank; i < CUVIL_MAX_RANK; i++)
    o->dims[i] = o->limit[i] = 0;
  CUVIL_TRY(check_strides(c, index));
  if (o->role == CUVIL_ROLE_OUTPUT) {
    if (o->weight)
      return cuvil_check_bad(at, "output '%s' cannot be a weight", o->name);
    CUVIL_TRY(check_overlap(c, index));
  }
  return CUVIL_OK;
}

/* Does the operand have exactly these dimensions, in any order?  A gemm's may
 * have batch too, and c has it where there is one. */
static bool has_dims(const struct cuvil_problem *p, int operand,
                     const char *dims) {
  const struct cuvil_operand *o = &p->operands[operand];
  int count = cuvil_dims_count(dims);
  if (cuvil_problem_batched(p)) {
    bool batched = cuvil_operand_has_dim(o, CUVIL_DIM_BATCH);
    if (operand == CUVIL_GEMM_C && !batched) return false;
    count += batched;
  }
  char name[CUVIL_NAME_SIZE];
  while (cuvil_dims_next(&dims, name))
    if (!cuvil_operand_has_dim(o, cuvil_problem_find_dim(p, name)))
      return false;
  return o->rank == count;
}

static bool has_limit(const struct cuvil_operand *o) {
  for (int i = 0; i < o->rank; i++)
    if (o->limit[i]) return true;
  return false;
}

/* Every dimension of `inner` is one of `outer`. */
static bool within(const struct cuvil_operand *inner,
                   const struct cuvil_operand *outer) {
  for (int i = 0; i < inner->rank; i++)
    if (!cuvil_operand_has_dim(outer, inner->dims[i])) return false;
  return true;
}

/* The operands that the kind fixes: names, roles, dimensions. */
static enum cuvil_status check_form(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  const struct cuvil_kind_form *form = c->form;
  int main = form->operand_count - 1;
  for (int i = 0; i < form->operand_count; i++) {
    const struct cuvil_operand *o = &p->operands[i];
    if (i >= p->operand_count || strcmp(o->name, form->operands[i]) != 0)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, end),
                             "operand '%s' of %s is missing", form->operands[i],
                             form->name);
    if (o->role != (i == main ? CUVIL_ROLE_OUTPUT : CUVIL_ROLE_INPUT))
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[i]),
                             "operand '%s' has the wrong role", o->name);
    if (form->operand_dims[i] && !has_dims(p, i, form->operand_dims[i]))
      return cuvil_check_bad(
          CUVIL_CHECK_AT(c, operands[i]),
          "operand '%s' of %s must have the dimensions %s%s, in any order",
          o->name, form->name, form->operand_dims[i],
          !cuvil_problem_batched(p) ? ""
          : i == main               ? ",batch"
                                    : " (batch too where it has one)");
    if (form->whole && has_limit(o))
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[i]),
                             "operand '%s' of %s cannot have a limit", o->name,
                             form->name);
    if (form->accumulates && i != main && o->dtype != CUVIL_F32 &&
        o->dtype != CUVIL_F16 && o->dtype != CUVIL_BF16)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[i]),
                             "operand '%s' of %s must be f32, f16 or bf16",
                             o->name, form->name);
  }
  if (p->output != main)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end),
                           "the main output must be operand %d", main);
  for (int i = 1; form->contracts && i < main; i++)
    if (p->operands[0].dtype != p->operands[i].dtype)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[i]),
                             "operands '%s' and '%s' differ in type",
                             p->operands[0].name, p->operands[i].name);
  if (p->tf32 && !(form->contracts && p->operands[0].dtype == CUVIL_F32))
    return cuvil_check_bad(CUVIL_CHECK_AT(c, math),
                           "math=tf32 needs a contraction of f32 operands");
  return CUVIL_OK;
}

/* Where the kind names its own dimensions: none may be idle. */
static enum cuvil_status check_free_dims(const struct cuvil_check *c) {
  const struct cuvil_problem *p = c->problem;
  const struct cuvil_operand *whole = &p->operands[0]; /* x, or y */
  for (int i = 0; i < p->dim_count; i++)
    if (!cuvil_operand_has_dim(whole, i))
      return cuvil_check_bad(CUVIL_CHECK_AT(c, dims[i]),
                             "dimension '%s' is not one of '%s'",
                             p->dims[i].name, whole->name);
  if (p->kind != CUVIL_KIND_REDUCE) return CUVIL_OK;
  if (!cuvil_reduce_op_name(p->reduce_op))
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end), "unknown reduction");
  for (int i = 0; i < p->dim_count; i++)
    if (p->dims[i].extent == 0 && p->reduce_op == CUVIL_REDUCE_MEAN &&
        !cuvil_operand_has_dim(&p->operands[CUVIL_REDUCE_Y], i))
      return cuvil_check_bad(CUVIL_CHECK_AT(c, dims[i]),
                             "%s=0: there is no mean of no elements",
                             p->dims[i].name);
  return CUVIL_OK;
}

/* ---- what only one kind has; in the others it is as begin made it */

/* Finds the mask and looks at it. */
static enum cuvil_status check_mask(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  int index = CUVIL_ATTENTION_O + 1;
  p->mask = -1;
  if (index >= p->operand_count || p->operands[index].role != CUVIL_ROLE_SIDE) {
    p->mask_keep = false;
    return CUVIL_OK;
  }
  const struct cuvil_operand *o = &p->operands[index];
  int at = CUVIL_CHECK_AT(c, operands[index]);
  if (strcmp(o->name, "mask") != 0)
    return cuvil_check_bad(
        at, "the side input of attention is 'mask', not '%s'", o->name);
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] != CUVIL_ATTENTION_DIM_B &&
        o->dims[i] != CUVIL_ATTENTION_DIM_HQ &&
        o->dims[i] != CUVIL_ATTENTION_DIM_SQ &&
        o->dims[i] != CUVIL_ATTENTION_DIM_SKV)
      return cuvil_check_bad(at, "a mask has some of b, hq, sq, skv, not %s",
                             p->dims[o->dims[i]].name);
  if (has_limit(o)) return cuvil_check_bad(at, "a mask cannot have a limit");
  if (p->mask_keep && o->dtype != CUVIL_BOOL)
    return cuvil_check_bad(at, "a mask that is ':keep' must be bool");
  if (!p->mask_keep && o->dtype != CUVIL_F32 && o->dtype != CUVIL_F16 &&
      o->dtype != CUVIL_BF16)
    return cuvil_check_bad(at,
                           "a mask that is ':add' must be f32, f16 or bf16");
  p->mask = index;
  return CUVIL_OK;
}

static enum cuvil_status check_attention(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->kind != CUVIL_KIND_ATTENTION) {
    p->scale = 0;
    p->causal = p->mask_keep = false;
    p->mask = -1;
    return CUVIL_OK;
  }
  p->scale = (double)(float)p->scale;
  if (!isfinite(p->scale))
    return cuvil_check_bad(CUVIL_CHECK_AT(c, scale), "scale must be finite");
  int64_t heads = p->dims[CUVIL_ATTENTION_DIM_HQ].extent;
  int64_t shared = p->dims[CUVIL_ATTENTION_DIM_HKV].extent;
  if (heads % shared)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, dims[CUVIL_ATTENTION_DIM_HKV]),
                           "hkv=%" PRId64 " does not divide hq=%" PRId64,
                           shared, heads);
  return check_mask(c);
}

static enum cuvil_status check_norm(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->kind != CUVIL_KIND_NORM) {
    p->eps = 0;
    p->norm_op = CUVIL_NORM_LAYER;
    return CUVIL_OK;
  }
  if (!cuvil_norm_op_name(p->norm_op))
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end), "unknown normalisation");
  p->eps = cuvil_norm_has_eps(p->norm_op) ? (double)(float)p->eps : 0;
  if (!isfinite(p->eps) || p->eps < 0 || signbit(p->eps))
    return cuvil_check_bad(CUVIL_CHECK_AT(c, eps),
                           "eps must be finite and not negative");
  return CUVIL_OK;
}

static enum cuvil_status check_gather(const struct cuvil_check *c) {
  const struct cuvil_problem *p = c->problem;
  if (p->kind != CUVIL_KIND_GATHER) return CUVIL_OK;
  enum cuvil_dtype type = p->operands[CUVIL_GATHER_INDEX].dtype;
  if (type != CUVIL_I32 && type != CUVIL_I64)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[CUVIL_GATHER_INDEX]),
                           "operand 'index' of gather must be i32 or i64");
  return CUVIL_OK;
}

static enum cuvil_status check_operands(const struct cuvil_check *c) {
  struct cuvil_problem *p = c->problem;
  if (p->operand_count < 0 || p->operand_count > CUVIL_MAX_OPERANDS)
    return cuvil_check_bad(CUVIL_CHECK_AT(c, end), "more than %d operands",
                           CUVIL_MAX_OPERANDS);
  for (int i = 0; i < p->operand_count; i++)
    CUVIL_TRY(check_operand(c, i));
  CUVIL_TRY(check_form(c));
  if (!c->form->dims[0]) CUVIL_TRY(check_free_dims(c));
  CUVIL_TRY(check_attention(c));
  CUVIL_TRY(check_norm(c));
  CUVIL_TRY(check_gather(c));
  const struct cuvil_operand *main = &p->operands[p->output];
  enum cuvil_operand_role last = CUVIL_ROLE_OUTPUT;
  int first = p->mask < 0 ? c->form->operand_count : p->mask + 1;
  for (int i = first; i < p->operand_count; i++) {
    const struct cuvil_operand *o = &p->operands[i];
    if (c->form->bare)
      return cuvil_check_bad(CUVIL_CHECK_AT(c, operands[i]),
                             "%s has no operand '%s'", c->form->name, o->name);
    if (o->role == CUVIL_ROLE_INPUT || o->role > CUVIL_ROLE_OUTPUT + 1 ||
        (o->role == CUVIL_ROLE_OUTPUT && last == CUVIL_ROLE_SIDE))
      return cuvil_check_bad(
          CUVIL_CHECK_AT(c, operands[i]),
          "operand '%s' is out of order: inputs, outputs, side inputs",
          o->name);
    last = o->role;
    if (!within(o, main))
      return cuvil_check_bad(
          CUVIL_CHECK_AT(c, operands[i]),
          "operand '%s' has a dimension that output '%s' has not", o->name,
          main->name);
    if (o->role == CUVIL_ROLE_OUTPUT && o->rank != main->rank)
      return cuvil_check_bad(
          CUVIL_CHECK_AT(c, operands[i]),
          "extra output '%s' must have all dimensions of '%s'", o->name,
          main->name);
  }
  return CUVIL_OK;
}

/* A batch of one is none. */
static void drop_single_batch(struct cuvil_problem *p) {
  if (!cuvil_problem_batched(p) || p->dims[CUVIL_DIM_BATCH].extent != 1) return;
  memset(&p->dims[CUVIL_DIM_BATCH], 0, sizeof p->dims[CUVIL_DIM_BATCH]);
  p->dim_count = CUVIL_DIM_BATCH;
  for (int i = 0; i < p->operand_count && i < CUVIL_MAX_OPERANDS; i++) {
    struct cuvil_operand *o = &p->operands[i];
    for (int d = 0; d < o->rank && d < CUVIL_MAX_RANK; d++) {
      if (o->dims[d] != CUVIL_DIM_BATCH) continue;
      for (int next = d + 1; next < CUVIL_MAX_RANK; next++) {
        o->dims[next - 1] = o->dims[next];
        o->limit[next - 1] = o->limit[next];
        o->strides[next - 1] = o->strides[next];
      }
      o->rank--;
      o->strided = o->strided && o->rank > 0;
      break;
    }
  }
}

enum cuvil_status cuvil_problem_check(
    struct cuvil_problem *problem, const struct cuvil_problem_places *places) {
  struct cuvil_check c = {.problem = problem, .places = places};
  if ((unsigned)problem->kind >= CUVIL_KIND_COUNT)
    return cuvil_check_bad(CUVIL_CHECK_AT(&c, end), "unknown kind");
  c.form = &cuvil_kind_forms[problem->kind];
  if (problem->version != 1)
    return cuvil_check_bad(CUVIL_CHECK_AT(&c, end),
                           "%s/%d: this version of Cuvil knows %s/1",
                           c.form->name, problem->version, c.form->name);
  CUVIL_TRY(check_dims(&c));
  CUVIL_TRY(check_window(&c));
  CUVIL_TRY(check_pool(&c));
  CUVIL_TRY(check_group(&c));
  drop_single_batch(problem);
  CUVIL_TRY(check_operands(&c));
  return cuvil_check_expressions(&c);
}
