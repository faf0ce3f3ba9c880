/* fake_cublaslt.c - cuBLASLt for tests, on the fake driver's memory.
 *
 * It computes column-major products of floats, with bias, relu and beta, as
 * the real one documents it, so that a test can see whether our row-major
 * calls come out right.  Two algorithms: 7 with tile and stages that can be
 * set (tile 14 or 15, of which this product takes 15; stages 0, 3, 5; parts of
 * K joined in fp32, 1024 bytes of workspace each; swizzle), 8 whose last word
 * no setting reaches and which needs 4096 bytes of workspace.  Version 130100,
 * or $CUVIL_FAKE_LT_VERSION.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cublaslt_abi.h"

#define API __attribute__((visibility("default")))
enum { BAD = 7, UNSUPPORTED = 15, HIDDEN = 0x1234 };

struct layout {
  int type, batch;
  uint64_t rows, cols;
  int64_t ld, stride;
};
struct desc {
  int op_a, op_b, epilogue;
  const float *bias;
};

API size_t cublasLtGetVersion(void);
API const char *cublasLtGetStatusString(int status);
API int cublasLtCreate(void **out);
API int cublasLtDestroy(void *handle);
API int cublasLtMatmulDescCreate(void **out, int compute, int scale);
API int cublasLtMatmulDescDestroy(void *desc);
API int cublasLtMatmulDescSetAttribute(void *desc, int which, const void *from,
                                       size_t size);
API int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows,
                                   uint64_t cols, int64_t ld);
API int cublasLtMatrixLayoutDestroy(void *layout);
API int cublasLtMatrixLayoutSetAttribute(void *layout, int which,
                                         const void *from, size_t size);
API int cublasLtMatmulPreferenceCreate(void **out);
API int cublasLtMatmulPreferenceDestroy(void *preference);
API int cublasLtMatmulPreferenceSetAttribute(void *preference, int which,
                                             const void *from, size_t size);
API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a,
                                       void *b, void *c, void *d,
                                       void *preference, int most,
                                       struct lt_heuristic *out, int *count);
API int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a,
                               int b, int c, int d, int id,
                               struct lt_algorithm *out);
API int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a,
                                 int b, int c, int d, int most, int *out,
                                 int *count);
API int cublasLtMatmulAlgoCapGetAttribute(const struct lt_algorithm *algorithm,
                                          int which, void *out, size_t size,
                                          size_t *written);
API int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b,
                                void *c, void *d,
                                const struct lt_algorithm *algorithm,
                                struct lt_heuristic *out);
API int cublasLtMatmulAlgoConfigSetAttribute(struct lt_algorithm *algorithm,
                                             int which, const void *from,
                                             size_t size);
API int cublasLtMatmulAlgoConfigGetAttribute(
    const struct lt_algorithm *algorithm, int which, void *out, size_t size,
    size_t *written);
API int cublasLtMatmul(void *handle, void *desc, const void *alpha,
                       const void *a, void *layout_a, const void *b,
                       void *layout_b, const void *beta, const void *c,
                       void *layout_c, void *d, void *layout_d,
                       const struct lt_algorithm *algorithm, void *workspace,
                       size_t size, void *stream);

size_t cublasLtGetVersion(void) {
  const char *text = getenv("CUVIL_FAKE_LT_VERSION");
  return text ? (size_t)atoi(text) : 130100;
}

const char *cublasLtGetStatusString(int status) {
  return status == UNSUPPORTED ? "not supported" : "an invalid value";
}

static int make(void **out, size_t size) {
  *out = calloc(1, size);
  return *out ? 0 : 3;
}

static int unmake(void *object) {
  free(object);
  return 0;
}

int cublasLtCreate(void **out) {
  return make(out, 1);
}

int cublasLtDestroy(void *handle) {
  return unmake(handle);
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  if (compute != LT_COMPUTE_32F && compute != LT_COMPUTE_32F_FAST_TF32)
    return BAD;
  return scale == LT_R_32F ? make(out, sizeof(struct desc)) : BAD;
}

int cublasLtMatmulDescDestroy(void *desc) {
  return unmake(desc);
}

int cublasLtMatmulDescSetAttribute(void *handle, int which, const void *from,
                                   size_t size) {
  struct desc *desc = handle;
  if (size != (which == LT_DESC_BIAS_POINTER ? 8 : 4)) return BAD;
  if (which == LT_DESC_TRANSA) memcpy(&desc->op_a, from, 4);
  if (which == LT_DESC_TRANSB) memcpy(&desc->op_b, from, 4);
  if (which == LT_DESC_EPILOGUE) memcpy(&desc->epilogue, from, 4);
  if (which == LT_DESC_BIAS_POINTER) memcpy(&desc->bias, from, 8);
  return 0;
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows,
                               uint64_t cols, int64_t ld) {
  struct layout made = {type, 1, rows, cols, ld, 0};
  if (ld < (int64_t)rows) return BAD;
  int status = make(out, sizeof made);
  if (status == 0) memcpy(*out, &made, sizeof made);
  return status;
}

int cublasLtMatrixLayoutDestroy(void *layout) {
  return unmake(layout);
}

int cublasLtMatrixLayoutSetAttribute(void *handle, int which, const void *from,
                                     size_t size) {
  struct layout *layout = handle;
  if (size != (which == LT_LAYOUT_BATCH_COUNT ? 4 : 8)) return BAD;
  if (which == LT_LAYOUT_BATCH_COUNT) memcpy(&layout->batch, from, 4);
  if (which == LT_LAYOUT_BATCH_OFFSET) memcpy(&layout->stride, from, 8);
  return 0;
}

int cublasLtMatmulPreferenceCreate(void **out) {
  return make(out, sizeof(uint64_t));
}

int cublasLtMatmulPreferenceDestroy(void *preference) {
  return unmake(preference);
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int which,
                                         const void *from, size_t size) {
  if (size != (which == LT_PREF_MAX_WORKSPACE_BYTES ? 8 : 4)) return BAD;
  if (which == LT_PREF_MAX_WORKSPACE_BYTES) memcpy(preference, from, 8);
  return 0;
}

/* data[0]: id; data[which]: a setting; data[7], half: what none reaches. */
static size_t workspace_of(const struct lt_algorithm *algorithm) {
  uint64_t more = algorithm->data[LT_CONFIG_SPLIT_K];
  return algorithm->data[0] == 8 ? 4096 : more ? 1024 * (more + 1) : 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b,
                                   void *c, void *d, void *preference, int most,
                                   struct lt_heuristic *out, int *count) {
  struct lt_algorithm all[2];
  uint64_t room;
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
  memset(all, 0, sizeof all);
  all[0].data[0] = 8;
  all[0].data[7] = (uint64_t)HIDDEN << 32;
  all[1].data[0] = 7;
  all[1].data[LT_CONFIG_TILE] = 15;
  all[1].data[LT_CONFIG_STAGES] = 3;
  memcpy(&room, preference, 8);
  *count = 0;
  for (int i = 0; i < 2 && *count < most; i++) {
    if (workspace_of(&all[i]) > room) continue;
    out[*count].algorithm = all[i];
    out[*count].workspace = workspace_of(&all[i]);
    out[(*count)++].state = 0;
  }
  return 0;
}

int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b,
                           int c, int d, int id, struct lt_algorithm *out) {
  (void)handle, (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
  memset(out, 0, sizeof *out);
  out->data[0] = (uint64_t)id;
  return id == 7 || id == 8 ? 0 : BAD;
}

int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b,
                             int c, int d, int most, int *out, int *count) {
  (void)handle, (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
  *count = 0;
  for (int id = 7; id <= 8 && *count < most; id++)
    out[(*count)++] = id;
  return 0;
}

int cublasLtMatmulAlgoCapGetAttribute(const struct lt_algorithm *algorithm,
                                      int which, void *out, size_t size,
                                      size_t *written) {
  static const uint32_t tiles[] = {14, 15}, stages[] = {0, 3, 5}, one[] = {1};
  static const uint32_t reductions[] = {LT_REDUCTION_COMPUTE_TYPE};
  const uint32_t *from = one;
  size_t bytes = 4;
  if (algorithm->data[0] != 7) return BAD;
  if (which == LT_CAP_TILES) from = tiles, bytes = sizeof tiles;
  if (which == LT_CAP_STAGES) from = stages, bytes = sizeof stages;
  if (which == LT_CAP_REDUCTION_MASK) from = reductions;
  if (which == LT_CAP_CUSTOM_MOST) return BAD;
  if (size < bytes) return BAD;
  memcpy(out, from, bytes);
  *written = bytes;
  return 0;
}

int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c,
                            void *d, const struct lt_algorithm *algorithm,
                            struct lt_heuristic *out) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
  uint64_t hidden = algorithm->data[7] >> 32;
  if (algorithm->data[0] == 8 && hidden != HIDDEN) return UNSUPPORTED;
  if (algorithm->data[0] == 7 && algorithm->data[LT_CONFIG_TILE] != 15)
    return UNSUPPORTED;
  if ((algorithm->data[LT_CONFIG_SPLIT_K] != 0) !=
      (algorithm->data[LT_CONFIG_REDUCTION] == LT_REDUCTION_COMPUTE_TYPE))
    return UNSUPPORTED;
  out->workspace = workspace_of(algorithm);
  return 0;
}

int cublasLtMatmulAlgoConfigSetAttribute(struct lt_algorithm *algorithm,
                                         int which, const void *from,
                                         size_t size) {
  uint32_t value = 0;
  if (which < LT_CONFIG_TILE || which > LT_CONFIG_STAGES || size != 4)
    return BAD;
  memcpy(&value, from, size);
  algorithm->data[which] = value - (which == LT_CONFIG_SPLIT_K);
  return 0;
}

int cublasLtMatmulAlgoConfigGetAttribute(const struct lt_algorithm *algorithm,
                                         int which, void *out, size_t size,
                                         size_t *written) {
  uint32_t value = 0;
  if (which <= LT_CONFIG_STAGES) value = (uint32_t)algorithm->data[which];
  if (which == LT_CONFIG_SPLIT_K) value++;
  if (size != (which >= LT_CONFIG_INNER_SHAPE ? 2 : 4)) return BAD;
  memcpy(out, &value, size);
  *written = size;
  return 0;
}

static float element(const float *base, const struct layout *layout, int op,
                     uint64_t row, uint64_t col) {
  uint64_t r = op == LT_OP_T ? col : row, c = op == LT_OP_T ? row : col;
  if (r >= layout->rows || c >= layout->cols) return NAN;
  return base[r + c * (uint64_t)layout->ld];
}

/* One product, with all that it needs: it may run when a graph is replayed. */
struct product {
  struct desc desc;
  struct layout la, lb, lc, ld;
  float alpha, beta;
  const float *a, *b, *c;
  float *d;
};

static void multiply(const void *argument) {
  const struct product *p = argument;
  uint64_t depth = p->desc.op_a == LT_OP_T ? p->la.rows : p->la.cols;
  for (int batch = 0; batch < p->ld.batch; batch++)
    for (uint64_t row = 0; row < p->ld.rows; row++)
      for (uint64_t col = 0; col < p->ld.cols; col++) {
        float sum = 0;
        for (uint64_t i = 0; i < depth; i++)
          sum += element(p->a + batch * p->la.stride, &p->la, p->desc.op_a, row,
                         i) *
                 element(p->b + batch * p->lb.stride, &p->lb, p->desc.op_b, i,
                         col);
        sum *= p->alpha;
        if (p->beta != 0)
          sum += p->beta * element(p->c + batch * p->lc.stride, &p->lc, LT_OP_N,
                                   row, col);
        if (p->desc.epilogue & LT_EPILOGUE_BIAS) sum += p->desc.bias[row];
        if (p->desc.epilogue & LT_EPILOGUE_RELU) sum = sum > 0 ? sum : 0;
        p->d[(int64_t)batch * p->ld.stride +
             (int64_t)(row + col * (uint64_t)p->ld.ld)] = sum;
      }
}

/* The fake driver keeps the order of the stream. */
static int enqueue(void *stream, const struct product *product) {
  void (*put)(void *, void (*)(const void *), const void *, size_t);
  const char *path = getenv("CUVIL_CUDA_DRIVER");
  void *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
  if (!driver) return BAD;
  *(void **)&put = dlsym(driver, "fake_cuda_enqueue");
  if (put) put(stream, multiply, product, sizeof *product);
  dlclose(driver);
  return put ? 0 : BAD;
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a,
                   void *layout_a, const void *b, void *layout_b,
                   const void *beta, const void *c, void *layout_c, void *d,
                   void *layout_d, const struct lt_algorithm *algorithm,
                   void *workspace, size_t size, void *stream) {
  struct product p = {.a = a, .b = b, .c = c, .d = d};
  (void)handle;
  memcpy(&p.desc, desc, sizeof p.desc);
  memcpy(&p.la, layout_a, sizeof p.la);
  memcpy(&p.lb, layout_b, sizeof p.lb);
  memcpy(&p.lc, layout_c, sizeof p.lc);
  memcpy(&p.ld, layout_d, sizeof p.ld);
  memcpy(&p.alpha, alpha, 4);
  memcpy(&p.beta, beta, 4);
  if (size < workspace_of(algorithm)) return BAD;
  if (size > 0) memset(workspace, 0xEE, size);
  return enqueue(stream, &p);
}
