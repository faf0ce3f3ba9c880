/* Host tensors: what operators compute with.  Two element types are enough, so
 * that no operator is written eight times: fp32 stands for every float type
 * (fp64 constants are rounded), int64 for every integer and bool.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"

enum cuvil_status cuvil_host_create(bool integer, int rank, const int64_t *dims,
                                    struct cuvil_host_tensor *out) {
  *out =
      (struct cuvil_host_tensor){.integer = integer, .rank = rank, .count = 1};
  for (int i = 0; i < rank; i++) {
    out->dims[i] = dims[i];
    out->count *= dims[i];
  }
  size_t size =
      (size_t)out->count * (integer ? sizeof *out->i : sizeof *out->f);
  void *memory = malloc(size == 0 ? 1 : size);
  if (memory == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY,
                      "no memory for a tensor of %zu "
                      "bytes",
                      size);
  if (integer)
    out->i = memory;
  else
    out->f = memory;
  return CUVIL_OK;
}

enum cuvil_status cuvil_host_view(const struct cuvil_value *value,
                                  const void *data,
                                  struct cuvil_host_tensor *out) {
  bool integer = !cuvil_dtype_is_float(value->dtype);
  if (value->dtype == CUVIL_F32 || value->dtype == CUVIL_I64) {
    *out = (struct cuvil_host_tensor){.integer = integer,
                                      .rank = value->rank,
                                      .count = cuvil_value_elements(value),
                                      .borrowed = true};
    memcpy(out->dims, value->dims, sizeof out->dims);
    /* Borrowed tensors are inputs, which operators only read. */
    if (integer)
      out->i = (int64_t *)(uintptr_t)data;
    else
      out->f = (float *)(uintptr_t)data;
    return CUVIL_OK;
  }
  CUVIL_TRY(cuvil_host_create(integer, value->rank, value->dims, out));
  if (integer)
    cuvil_convert(CUVIL_I64, out->i, value->dtype, data, (size_t)out->count);
  else
    cuvil_convert(CUVIL_F32, out->f, value->dtype, data, (size_t)out->count);
  return CUVIL_OK;
}

void cuvil_host_destroy(struct cuvil_host_tensor *tensor) {
  if (!tensor->borrowed) {
    free(tensor->f);
    free(tensor->i);
  }
  memset(tensor, 0, sizeof *tensor);
}

void cuvil_host_store(const struct cuvil_host_tensor *tensor,
                      enum cuvil_dtype dtype, void *out) {
  if (tensor->count == 0) return;
  const void *in = tensor->integer ? (const void *)tensor->i : tensor->f;
  enum cuvil_dtype from = tensor->integer ? CUVIL_I64 : CUVIL_F32;
  if (dtype == from)
    memcpy(out, in, (size_t)tensor->count * cuvil_dtype_size(dtype));
  else
    cuvil_convert(dtype, out, from, in, (size_t)tensor->count);
}
