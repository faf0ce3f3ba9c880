/* tensor_file.h - tensors in files: numpy's .npy and ONNX's TensorProto .pb. */
#ifndef CUVIL_GRAPH_TENSOR_FILE_H_
#define CUVIL_GRAPH_TENSOR_FILE_H_

#include "graph/graph.h"

struct cuvil_tensor_file {
  char name[256]; /* of a TensorProto; "" for .npy and where it has none */
  enum cuvil_dtype dtype;
  int rank;
  int64_t dims[CUVIL_GRAPH_MAX_RANK];
  size_t bytes;
  void *data; /* packed, row-major; owned */
};

/* The format is told by the content, not by the name.  A file of another
 * format, type (big-endian, Fortran order, strings) or length is refused with
 * its path.  Free with cuvil_tensor_file_free, also after a failure. */
CUVIL_MUST_USE enum cuvil_status cuvil_tensor_read(
    const char *path, struct cuvil_tensor_file *out);
void cuvil_tensor_file_free(struct cuvil_tensor_file *tensor);

/* numpy has no bfloat16: such a tensor is written as float32. */
CUVIL_MUST_USE enum cuvil_status cuvil_tensor_write_npy(const char *path,
                                                        enum cuvil_dtype dtype,
                                                        int rank,
                                                        const int64_t *dims,
                                                        const void *data);
CUVIL_MUST_USE enum cuvil_status cuvil_tensor_write_pb(
    const char *path, const char *name, enum cuvil_dtype dtype, int rank,
    const int64_t *dims, const void *data);

/* A TensorProto in memory; used by cuvil_tensor_read. */
CUVIL_MUST_USE enum cuvil_status cuvil_tensor_parse_pb(
    const void *bytes, size_t size, struct cuvil_tensor_file *out);

#endif /* CUVIL_GRAPH_TENSOR_FILE_H_ */
