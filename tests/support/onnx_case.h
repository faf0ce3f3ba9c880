/* onnx_case.h - one small ONNX model: built, written, imported, run, compared.
 *
 * Every step but onnx_refused fails the running test when it goes wrong.
 */
#ifndef CUVIL_TESTS_SUPPORT_ONNX_CASE_H_
#define CUVIL_TESTS_SUPPORT_ONNX_CASE_H_

#include "graph/builder.h"
#include "graph/graph.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define FLOATS(...) ((const float[]){__VA_ARGS__})
#define INTS(...) ((const int64_t[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

struct onnx_case {
  struct cuvil_builder *b;
  struct cuvil_graph *graph; /* after onnx_load */
  char folder[400], path[512];
};

/* A builder, and a fresh folder to write to. */
void onnx_begin(struct onnx_case *c, int opset);
/* Removes folder, builder and graph. */
void onnx_end(struct onnx_case *c);
/* Inputs and outputs of F32 and outputs without a declared shape. */
void onnx_input(struct onnx_case *c, const char *name, int rank,
                const int64_t *dims);
void onnx_output(struct onnx_case *c, const char *name);
void onnx_floats(struct onnx_case *c, const char *name, int rank,
                 const int64_t *dims, const float *data);
void onnx_ints(struct onnx_case *c, const char *name, int count,
               const int64_t *data);
/* 0, 1, 2, ... times `step`, plus `start`. */
void onnx_range(struct onnx_case *c, const char *name, int rank,
                const int64_t *dims, double start, double step);
/* Writes and imports. */
void onnx_load(struct onnx_case *c);
/* Runs on one and on three threads, which must agree in every bit, and holds
 * output `index` against shape and values (relative and absolute 1e-6; a NaN
 * equals a NaN). */
void onnx_expect(struct onnx_case *c, const void *const *inputs, int index,
                 int rank, const int64_t *dims, const double *values);
/* One input `x` of these values. */
void onnx_expect_of(struct onnx_case *c, const float *x, int rank,
                    const int64_t *dims, const double *values);
/* Import fails with this status in one line that names the file and holds
 * `part`. */
void onnx_refused(struct onnx_case *c, enum cuvil_status status,
                  const char *part);
void onnx_refused_file(const char *path, enum cuvil_status status,
                       const char *part);
/* How many nodes of this operator the imported graph has. */
int onnx_count(const struct onnx_case *c, const char *op);
const struct cuvil_value *onnx_value(const struct onnx_case *c,
                                     const char *name);

#endif /* CUVIL_TESTS_SUPPORT_ONNX_CASE_H_ */
