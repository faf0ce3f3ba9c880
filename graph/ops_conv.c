/* Convolution as a matrix product: the weights are A, and B is read from the
 * image by position (im2col without the matrix): the product asks for blocks
 * of B and gets them gathered, padding as zeros.
 */
#include <string.h>

#include "graph/gemm.h"
#include "graph/ops.h"

struct image {
  const float *x;
  int64_t channels, height, width; /* channels of one group */
  int64_t groups, p, q;
  struct cuvil_window window;
};

static void pack_image(const void *source, int64_t group, int64_t batch,
                       int64_t k0, int64_t k1, int64_t j0, int64_t j1,
                       double *out) {
  const struct image *im = source;
  const struct cuvil_window *w = &im->window;
  int64_t plane = im->height * im->width;
  const float *x = im->x + (batch * im->groups + group) * im->channels * plane;
  for (int64_t j = j0; j < j1; j++) {
    int64_t top = j / im->q * w->stride[0] - w->pad[0];
    int64_t left = j % im->q * w->stride[1] - w->pad[1];
    double *lane = out +
                   (j - j0) / CUVIL_GEMM_COLS * (k1 - k0) * CUVIL_GEMM_COLS +
                   (j - j0) % CUVIL_GEMM_COLS;
    int64_t s = k0 % w->kernel[1], r = k0 / w->kernel[1] % w->kernel[0];
    int64_t c = k0 / (w->kernel[0] * w->kernel[1]);
    for (int64_t k = k0; k < k1; k++, lane += CUVIL_GEMM_COLS) {
      int64_t h = top + r * w->dilation[0], v = left + s * w->dilation[1];
      if (h >= 0 && h < im->height && v >= 0 && v < im->width)
        *lane = x[c * plane + h * im->width + v];
      if (++s == w->kernel[1]) {
        s = 0;
        if (++r == w->kernel[0]) r = 0, c++;
      }
    }
  }
}

/* One by one at stride 1 without padding: B is the image as it lies. */
static void pack_plain(const void *source, int64_t group, int64_t batch,
                       int64_t k0, int64_t k1, int64_t j0, int64_t j1,
                       double *out) {
  const struct image *im = source;
  int64_t plane = im->height * im->width;
  const float *x =
      im->x + ((batch * im->groups + group) * im->channels + k0) * plane;
  for (int64_t j = j0; j < j1; j += CUVIL_GEMM_COLS) {
    int64_t lanes = j1 - j < CUVIL_GEMM_COLS ? j1 - j : CUVIL_GEMM_COLS;
    for (int64_t k = 0; k < k1 - k0; k++, out += CUVIL_GEMM_COLS)
      for (int64_t i = 0; i < lanes; i++)
        out[i] = x[k * plane + j + i];
  }
}

enum cuvil_status cuvil_infer_conv(const struct cuvil_graph *graph,
                                   const struct cuvil_node *node,
                                   struct cuvil_type *out) {
  const struct cuvil_value *x = cuvil_op_input(graph, node, 0);
  const struct cuvil_value *w = cuvil_op_input(graph, node, 1);
  const struct cuvil_value *bias = cuvil_op_input(graph, node, 2);
  struct cuvil_window window;
  CUVIL_TRY(cuvil_window_resolve(graph, node, &window));
  int64_t group = cuvil_node_int(node, "group", 1);
  if (w->dims[0] < 1 || w->dims[1] < 1)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "the weights are empty");
  if (group < 1 || group > x->dims[1] || x->dims[1] % group != 0 ||
      w->dims[0] % group != 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "%lld groups do not divide %lld input and %lld output "
                      "channels",
                      (long long)group, (long long)x->dims[1],
                      (long long)w->dims[0]);
  if (w->dims[1] != x->dims[1] / group)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "the weights take %lld channels a group, the input has "
                      "%lld in %lld groups",
                      (long long)w->dims[1], (long long)x->dims[1],
                      (long long)group);
  if (w->dtype != x->dtype || (bias != NULL && bias->dtype != x->dtype))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "input, weights and bias are not of one type");
  if (bias != NULL && (bias->rank != 1 || bias->dims[0] != w->dims[0]))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "the bias does not have one entry for each of %lld "
                      "output channels",
                      (long long)w->dims[0]);
  *out = (struct cuvil_type){.dtype = x->dtype, .rank = x->rank};
  out->dims[0] = x->dims[0];
  out->dims[1] = w->dims[0];
  return cuvil_window_outputs(&window, x, out);
}

enum cuvil_status cuvil_execute_conv(const struct cuvil_op_call *call) {
  const struct cuvil_host_tensor *x = call->inputs[0], *w = call->inputs[1];
  const struct cuvil_host_tensor *bias =
      call->node->input_count > 2 ? call->inputs[2] : NULL;
  struct cuvil_host_tensor *y = &call->outputs[0];
  int64_t group = cuvil_node_int(call->node, "group", 1);
  struct image im = {.x = x->f,
                     .channels = x->dims[1] / group,
                     .height = x->rank == 4 ? x->dims[2] : 1,
                     .width = x->dims[x->rank - 1],
                     .groups = group,
                     .p = y->rank == 4 ? y->dims[2] : 1,
                     .q = y->dims[y->rank - 1]};
  CUVIL_TRY(cuvil_window_resolve(call->graph, call->node, &im.window));
  const struct cuvil_window *v = &im.window;
  bool plain = v->kernel[0] == 1 && v->kernel[1] == 1 && v->stride[0] == 1 &&
               v->stride[1] == 1 && im.p == im.height && im.q == im.width &&
               v->pad[0] == 0 && v->pad[1] == 0;
  int64_t m = y->dims[1] / group, n = im.p * im.q;
  int64_t k = im.channels * v->kernel[0] * v->kernel[1];
  struct cuvil_gemm gemm = {.m = m,
                            .n = n,
                            .k = k,
                            .groups = group,
                            .batch = y->dims[0],
                            .a = w->f,
                            .a_row = k,
                            .a_col = 1,
                            .a_group = m * k,
                            .pack = plain ? pack_plain : pack_image,
                            .source = &im,
                            .alpha = 1,
                            .beta = 1,
                            .bias = bias != NULL ? bias->f : NULL,
                            .bias_row = 1,
                            .bias_group = m,
                            .c = y->f,
                            .c_row = n,
                            .c_col = 1,
                            .c_group = m * n,
                            .c_batch = y->dims[1] * n};
  return cuvil_gemm_run(&gemm, call->threads);
}
