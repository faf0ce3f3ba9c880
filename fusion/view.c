/* view.c - see view.h.  Reshapes work on the row-major order of factors alone:
 * from the fastest on, each new axis takes whole factors and, where it ends
 * inside one, the lower part of it. */
#include "fusion/view.h"

#include <string.h>

static int before(const struct cuvil_factor *a, const struct cuvil_factor *b) {
  return a->axis != b->axis ? a->axis < b->axis : a->inner > b->inner;
}

/* Neighbours in one axis that are one stride become one factor. */
static void normalize_in_order(struct cuvil_view *view) {
  int count = 0;
  for (int i = 0; i < view->count; ++i) {
    struct cuvil_factor *last = count ? &view->f[count - 1] : NULL;
    const struct cuvil_factor *next = &view->f[i];
    if (last && last->axis == next->axis &&
        last->stride == next->stride * next->extent) {
      last->extent *= next->extent;
      last->stride = next->stride;
      last->inner = next->inner;
    } else {
      view->f[count++] = *next;
    }
  }
  view->count = count;
}

/* By axis, then falling inner. */
static void normalize(struct cuvil_view *view) {
  for (int i = 1; i < view->count; ++i)
    for (int j = i; j > 0 && before(&view->f[j], &view->f[j - 1]); --j) {
      struct cuvil_factor swap = view->f[j];
      view->f[j] = view->f[j - 1];
      view->f[j - 1] = swap;
    }
  normalize_in_order(view);
}

void cuvil_view_packed(struct cuvil_view *view, int rank, const int64_t *dims) {
  int64_t stride = 1;
  memset(view, 0, sizeof(*view));
  for (int i = rank - 1; i >= 0; --i) {
    if (dims[i] != 1)
      view->f[view->count++] = (struct cuvil_factor){i, dims[i], 1, stride, -1};
    stride *= dims[i];
  }
  normalize(view);
}

void cuvil_view_of(const struct cuvil_tensor *tensor, struct cuvil_view *out) {
  memset(out, 0, sizeof(*out));
  out->offset = tensor->offset;
  for (int i = 0; i < tensor->rank; ++i)
    if (tensor->dims[i] != 1)
      out->f[out->count++] =
          (struct cuvil_factor){tensor->perm[i], tensor->dims[i],
                                tensor->inner[i], tensor->strides[i], -1};
  normalize(out);
}

/* Row-major neighbours that are one stride become one factor, whatever their
 * axes: what a reshape may cut anew. */
static void flatten(struct cuvil_view *view) {
  for (int i = 0; i < view->count; ++i)
    view->f[i].axis = 0;
  normalize_in_order(view);
}

bool cuvil_view_reshape(struct cuvil_view *view, int rank,
                        const int64_t *dims) {
  struct cuvil_view made = {.offset = view->offset};
  struct cuvil_view flat = *view;
  flatten(&flat);
  int next = flat.count - 1;
  struct cuvil_factor rest = {0};
  rest.extent = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    int64_t inner = 1;
    while (inner < dims[axis]) {
      if (rest.extent == 1) {
        if (next < 0) return false;
        rest = flat.f[next--];
      }
      int64_t need = dims[axis] / inner, take = rest.extent;
      if (take > need) take = need;
      if (dims[axis] % inner || need % take || rest.extent % take ||
          made.count == CUVIL_VIEW_MAX)
        return false;
      made.f[made.count++] =
          (struct cuvil_factor){axis, take, inner, rest.stride, -1};
      inner *= take;
      rest.stride *= take;
      rest.extent /= take;
    }
  }
  if (rest.extent != 1 || next >= 0) return false;
  normalize(&made);
  *view = made;
  return true;
}

void cuvil_view_transpose(struct cuvil_view *view, int rank, const int *perm) {
  int to[CUVIL_GRAPH_MAX_RANK] = {0};
  for (int i = 0; i < rank; ++i)
    to[perm[i]] = i;
  for (int i = 0; i < view->count; ++i)
    view->f[i].axis = to[view->f[i].axis];
  normalize(view);
}

bool cuvil_view_slice(struct cuvil_view *view, int axis, int64_t start,
                      int64_t count, int64_t step) {
  int first = -1, last = -1;
  for (int i = 0; i < view->count; ++i)
    if (view->f[i].axis == axis) {
      if (first < 0) first = i;
      last = i;
    }
  if (first < 0) return start == 0 && count == 1;
  struct cuvil_factor *major = &view->f[first];
  if (first < last) {
    /* Whole runs of the lower factors. */
    if (step != 1 || start % major->inner || count % major->inner) return false;
    start /= major->inner;
    count /= major->inner;
  }
  view->offset += start * major->stride;
  major->extent = count;
  major->stride *= step;
  if (count == 1) {
    memmove(major, major + 1,
            sizeof(*major) * (size_t)(view->count - first - 1));
    --view->count;
  }
  return true;
}

bool cuvil_view_is_packed(const struct cuvil_view *view, int rank,
                          const int *order) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i)
    for (int j = view->count - 1; j >= 0; --j) {
      const struct cuvil_factor *f = &view->f[j];
      if (f->axis != (order ? order[i] : i)) continue;
      if (f->stride != stride) return false;
      stride *= f->extent;
    }
  return true;
}

int64_t cuvil_view_span(const struct cuvil_view *view) {
  int64_t span = 1;
  for (int i = 0; i < view->count; ++i) {
    if (view->f[i].extent == 0) return 0;
    span += (view->f[i].extent - 1) * view->f[i].stride;
  }
  return span;
}

void cuvil_view_store(const struct cuvil_view *view,
                      struct cuvil_tensor *tensor) {
  struct cuvil_factor sorted[CUVIL_VIEW_MAX];
  memcpy(sorted, view->f, sizeof(sorted));
  for (int i = 1; i < view->count; ++i)
    for (int j = i; j > 0 && sorted[j].stride > sorted[j - 1].stride; --j) {
      struct cuvil_factor swap = sorted[j];
      sorted[j] = sorted[j - 1];
      sorted[j - 1] = swap;
    }
  tensor->rank = view->count;
  tensor->offset = view->offset;
  for (int i = 0; i < view->count; ++i) {
    tensor->dims[i] = sorted[i].extent;
    tensor->perm[i] = sorted[i].axis;
    tensor->inner[i] = sorted[i].inner;
    tensor->strides[i] = sorted[i].stride;
  }
}

/* ---- spaces */

void cuvil_space_begin(struct cuvil_space *space, int rank, const int64_t *dims,
                       const int *order) {
  memset(space, 0, sizeof(*space));
  for (int i = 0; i < rank; ++i) {
    int axis = order ? order[i] : i;
    if (dims[axis] != 1)
      space->f[space->count++] =
          (struct cuvil_factor){axis, dims[axis], 1, 0, -1};
  }
}

/* Cuts the factor of `axis` that `inner` lies inside of. */
static bool cut(struct cuvil_space *space, int axis, int64_t inner) {
  for (int i = 0; i < space->count; ++i) {
    struct cuvil_factor *f = &space->f[i];
    if (f->axis != axis || inner <= f->inner || inner >= f->inner * f->extent)
      continue;
    if (inner % f->inner || f->extent % (inner / f->inner) ||
        space->count == CUVIL_VIEW_MAX)
      return false;
    memmove(f + 1, f, sizeof(*f) * (size_t)(space->count - i));
    ++space->count;
    f[1].extent = inner / f->inner;
    f[0].extent /= f[1].extent;
    f[0].inner = inner;
    return true;
  }
  return true;
}

bool cuvil_space_refine(struct cuvil_space *space,
                        const struct cuvil_view *view, int shift, int rank,
                        const int64_t *dims) {
  for (int i = 0; i < view->count; ++i) {
    const struct cuvil_factor *f = &view->f[i];
    if (f->axis >= rank || dims[f->axis] == 1) continue;
    if (!cut(space, f->axis + shift, f->inner) ||
        !cut(space, f->axis + shift, f->inner * f->extent))
      return false;
  }
  return true;
}

bool cuvil_space_strides(const struct cuvil_space *space,
                         const struct cuvil_view *view, int shift, int rank,
                         const int64_t *dims, int64_t *out_strides) {
  for (int i = 0; i < space->count; ++i) {
    const struct cuvil_factor *f = &space->f[i];
    int axis = f->axis - shift;
    bool found = axis < 0 || axis >= rank || dims[axis] == 1;
    out_strides[i] = 0;
    for (int j = 0; !found && j < view->count; ++j) {
      const struct cuvil_factor *v = &view->f[j];
      if (v->axis != axis || f->inner < v->inner ||
          f->inner * f->extent > v->inner * v->extent)
        continue;
      if (f->inner % v->inner) return false;
      out_strides[i] = v->stride * (f->inner / v->inner);
      found = true;
    }
    if (!found) return false;
  }
  return true;
}

void cuvil_space_order(struct cuvil_space *space, const int64_t *strides) {
  int64_t keys[CUVIL_VIEW_MAX];
  memcpy(keys, strides, sizeof(*keys) * (size_t)space->count);
  for (int i = 1; i < space->count; ++i)
    for (int j = i; j > 0 && keys[j] > keys[j - 1]; --j) {
      struct cuvil_factor f = space->f[j];
      int64_t key = keys[j];
      space->f[j] = space->f[j - 1];
      keys[j] = keys[j - 1];
      space->f[j - 1] = f;
      keys[j - 1] = key;
    }
}

int64_t cuvil_space_dim_stride(const struct cuvil_space *space, int dim,
                               const int64_t *strides) {
  int64_t stride = 0, expected = 0;
  for (int i = space->count - 1; i >= 0; --i) {
    if (space->f[i].dim != dim) continue;
    if (expected == 0) {
      stride = strides[i];
      expected = stride ? stride * space->f[i].extent : -1;
      continue;
    }
    if (expected < 0 ? strides[i] != 0 : strides[i] != expected) return -1;
    if (expected > 0) expected *= space->f[i].extent;
  }
  return stride;
}

int cuvil_space_merge(struct cuvil_space *space, int operands,
                      int64_t strides[][CUVIL_VIEW_MAX]) {
  int dim = -1;
  for (int i = 0; i < space->count; ++i) {
    bool join = i > 0;
    for (int o = 0; join && o < operands; ++o) {
      int64_t slow = strides[o][i - 1], fast = strides[o][i];
      join = fast ? slow == fast * space->f[i].extent : slow == 0;
    }
    dim += !join;
    space->f[i].dim = dim;
  }
  return dim + 1;
}

bool cuvil_space_operand(const struct cuvil_space *space,
                         struct cuvil_problem *problem, int operand, int rank,
                         const int *order, const int64_t *strides, bool full) {
  struct cuvil_operand *o = &problem->operands[operand];
  o->rank = 0;
  o->strided = true;
  for (int i = 0; i < rank; ++i) {
    int64_t stride = cuvil_space_dim_stride(space, order[i], strides);
    bool unit = problem->dims[order[i]].extent == 1;
    if (stride < 0) return false;
    if (unit ? !full : stride == 0) continue;
    if (o->rank == CUVIL_MAX_RANK) return false;
    o->dims[o->rank] = order[i];
    o->strides[o->rank++] = unit ? 0 : stride;
  }
  int64_t next = 1;
  for (int i = o->rank - 1; i >= 0; --i) {
    if (o->strides[i] == 0) o->strides[i] = next;
    next = o->strides[i] * problem->dims[o->dims[i]].extent;
  }
  for (int i = 1; i < o->rank; ++i)
    for (int j = i; j > 0 && o->strides[j] > o->strides[j - 1]; --j) {
      int64_t stride = o->strides[j];
      int dim = o->dims[j];
      o->strides[j] = o->strides[j - 1];
      o->dims[j] = o->dims[j - 1];
      o->strides[j - 1] = stride;
      o->dims[j - 1] = dim;
    }
  return true;
}
