/* view.h - where the elements of a value lie: factors, offset, and spaces.
 *
 * A view takes each axis of a value apart into factors, most significant
 * first; a factor is so many elements of the axis, at a stride in storage.
 * One factor an axis is an ordinary strided tensor.  Several let a reshape
 * join axes that are not neighbours in storage (heads and batch, say), so that
 * chains of Reshape, Transpose and Slice cost nothing.  Factors of one element
 * are left out.
 *
 * A space is the index space of a task's output cut so fine that every operand
 * has one stride (or none: a broadcast) along each piece.
 */
#ifndef CUVIL_FUSION_VIEW_H_
#define CUVIL_FUSION_VIEW_H_

#include "fusion/fusion.h"

enum { CUVIL_VIEW_MAX = 16 };

struct cuvil_factor {
  int axis;
  int64_t extent;
  int64_t inner;  /* steps of the axis for one step of this factor */
  int64_t stride; /* elements; 0 in a space: none yet */
  int dim;        /* in a space: the problem's dimension, -1 none yet */
};
struct cuvil_view {
  int64_t offset; /* elements, from the start of the root's storage */
  int count;
  struct cuvil_factor f[CUVIL_VIEW_MAX]; /* by axis, then falling inner */
};

void cuvil_view_packed(struct cuvil_view *view, int rank, const int64_t *dims);
void cuvil_view_of(const struct cuvil_tensor *tensor, struct cuvil_view *out);
/* The same elements in row-major order under other extents; false when no
 * strides say that. */
bool cuvil_view_reshape(struct cuvil_view *view, int rank, const int64_t *dims);
void cuvil_view_transpose(struct cuvil_view *view, int rank, const int *perm);
/* `count` elements of the axis from `start`, `step` (above 0) apart; false
 * when no strides say that. */
bool cuvil_view_slice(struct cuvil_view *view, int axis, int64_t start,
                      int64_t count, int64_t step);
/* Whether storage order is the order of the axes given (all of the value's),
 * without gaps.  NULL: 0, 1, 2, ... */
bool cuvil_view_is_packed(const struct cuvil_view *view, int rank,
                          const int *order);
/* Elements from the first to the last, both counted. */
int64_t cuvil_view_span(const struct cuvil_view *view);
/* Dims, perm, inner, strides and offset of a tensor that is this view. */
void cuvil_view_store(const struct cuvil_view *view,
                      struct cuvil_tensor *tensor);

struct cuvil_space {
  int count;
  struct cuvil_factor f[CUVIL_VIEW_MAX]; /* slow to fast in the output */
};
/* One factor for each axis with more than one element, in the order given
 * (NULL: the axes' own). */
void cuvil_space_begin(struct cuvil_space *space, int rank, const int64_t *dims,
                       const int *order);
/* Cuts factors where the view does; axis i of the view lies on axis i + shift.
 * `rank`, `dims`: of the view's value.  False when that cannot be. */
bool cuvil_space_refine(struct cuvil_space *space,
                        const struct cuvil_view *view, int shift, int rank,
                        const int64_t *dims);
/* The view's stride along each factor, 0: none.  False: not refined so. */
bool cuvil_space_strides(const struct cuvil_space *space,
                         const struct cuvil_view *view, int shift, int rank,
                         const int64_t *dims, int64_t *out_strides);
/* Reorders the space by falling stride of a view that has one along each
 * factor. */
void cuvil_space_order(struct cuvil_space *space, const int64_t *strides);
/* Stride of the operand along a problem's dimension (0: it has it not), from
 * its strides along the factors; -1 when the factors are not one stride. */
int64_t cuvil_space_dim_stride(const struct cuvil_space *space, int dim,
                               const int64_t *strides);

/* Joins neighbouring factors that are one stride to each operand (row i of
 * `strides` is operand i's) into dimensions 0, 1, ...; their number. */
int cuvil_space_merge(struct cuvil_space *space, int operands,
                      int64_t strides[][CUVIL_VIEW_MAX]);
/* Dimensions and strides of an operand of the problem, whose main output's
 * dimensions are in `order` (`rank` of them); `full`: it has those of one
 * element too.  False: some dimension is not one stride. */
bool cuvil_space_operand(const struct cuvil_space *space,
                         struct cuvil_problem *problem, int operand, int rank,
                         const int *order, const int64_t *strides, bool full);

#endif /* CUVIL_FUSION_VIEW_H_ */
