/* TensorProto files, as in ONNX's test_data_set folders. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "graph/import.h"
#include "graph/tensor_file.h"
#include "onnx.pb-c.h"

enum cuvil_status cuvil_tensor_parse_pb(const void *bytes, size_t size,
                                        struct cuvil_tensor_file *out) {
  struct cuvil_arena arena = {0};
  struct cuvil_tensor_data tensor;
  enum cuvil_status status =
      cuvil_import_tensor(NULL, bytes, size, false, &arena, &tensor);
  if (status == CUVIL_OK) {
    snprintf(out->name, sizeof out->name, "%s", tensor.name);
    out->dtype = tensor.dtype;
    out->rank = tensor.rank;
    memcpy(out->dims, tensor.dims, sizeof out->dims);
    out->bytes = cuvil_dtype_size(tensor.dtype);
    for (int i = 0; i < tensor.rank; i++)
      out->bytes *= (size_t)tensor.dims[i];
    out->data = malloc(out->bytes + 1);
    if (out->data == NULL)
      status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %zu bytes",
                          out->bytes);
    else if (out->bytes > 0)
      memcpy(out->data, tensor.data, out->bytes);
  }
  cuvil_arena_free(&arena);
  return status;
}

enum cuvil_status cuvil_tensor_write_pb(const char *path, const char *name,
                                        enum cuvil_dtype dtype, int rank,
                                        const int64_t *dims, const void *data) {
  Onnx__TensorProto proto = ONNX__TENSOR_PROTO__INIT;
  int64_t copy[CUVIL_GRAPH_MAX_RANK];
  size_t bytes = cuvil_dtype_size(dtype);
  for (int i = 0; i < rank; i++) {
    copy[i] = dims[i];
    bytes *= (size_t)dims[i];
  }
  proto.name = (char *)(uintptr_t)name;
  proto.n_dims = (size_t)rank;
  proto.dims = copy;
  proto.has_data_type = 1;
  proto.data_type = cuvil_dtype_to_onnx(dtype);
  proto.has_raw_data = 1;
  proto.raw_data = (ProtobufCBinaryData){bytes, (uint8_t *)(uintptr_t)data};
  size_t size = onnx__tensor_proto__get_packed_size(&proto);
  uint8_t *packed = malloc(size + 1);
  if (packed == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to write %s", path);
  onnx__tensor_proto__pack(&proto, packed);
  enum cuvil_status status = cuvil_file_write_atomic(path, packed, size);
  free(packed);
  return status;
}
