/* numpy's format: a magic number, a version, and a Python dictionary as text
 * (numpy/lib/format.py, "NPY format").  Only what numpy.save writes for plain
 * arrays is read: little-endian, C order, no structured types.
 */
#include "graph/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

static const struct {
  const char *descr;
  enum cuvil_dtype dtype;
} npy_types[] = {
    {"<f4", CUVIL_F32}, {"<f2", CUVIL_F16},  {"<f8", CUVIL_F64},
    {"|i1", CUVIL_I8},  {"|u1", CUVIL_U8},   {"<i4", CUVIL_I32},
    {"<i8", CUVIL_I64}, {"|b1", CUVIL_BOOL},
};

/* The text behind 'key': in the header; NULL when it is not there. */
static const char *find_key(const char *header, const char *key) {
  char quoted[32];
  snprintf(quoted, sizeof quoted, "'%s':", key);
  const char *at = strstr(header, quoted);
  if (at == NULL) return NULL;
  at += strlen(quoted);
  return at + strspn(at, " ");
}

static enum cuvil_status parse_shape(const char *text,
                                     struct cuvil_tensor_file *out) {
  if (*text++ != '(')
    return CUVIL_FAIL(CU_ERR_PARSE, "the .npy header has no shape");
  for (;;) {
    text += strspn(text, " ,");
    if (*text == ')') return CUVIL_OK;
    char *end;
    long long extent = strtoll(text, &end, 10);
    if (end == text || extent < 0 || extent > (long long)1 << 40)
      return CUVIL_FAIL(CU_ERR_PARSE, "the .npy header has a bad shape");
    if (out->rank == CUVIL_GRAPH_MAX_RANK)
      return CUVIL_FAIL(CU_ERR_UNSUPPORTED, "more than %d dimensions",
                        CUVIL_GRAPH_MAX_RANK);
    out->dims[out->rank++] = extent;
    text = end;
  }
}

static enum cuvil_status parse_header(const char *header,
                                      struct cuvil_tensor_file *out) {
  const char *descr = find_key(header, "descr");
  const char *order = find_key(header, "fortran_order");
  const char *shape = find_key(header, "shape");
  if (descr == NULL || order == NULL || shape == NULL)
    return CUVIL_FAIL(CU_ERR_PARSE, "damaged .npy header");
  for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
    if (descr[0] == '\'' && strncmp(descr + 1, npy_types[i].descr, 3) == 0 &&
        descr[4] == '\'')
      out->dtype = npy_types[i].dtype;
  if (out->dtype == CUVIL_DTYPE_NONE)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "the array's type %.12s is not supported", descr);
  if (strncmp(order, "False", 5) != 0)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED,
                      "the array is in Fortran order; save "
                      "numpy.ascontiguousarray(it)");
  return parse_shape(shape, out);
}

static enum cuvil_status element_bytes(struct cuvil_tensor_file *out) {
  int64_t bytes = (int64_t)cuvil_dtype_size(out->dtype);
  for (int i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(bytes, out->dims[i], &bytes))
      return CUVIL_FAIL(CU_ERR_PARSE, "its shape is too large");
  out->bytes = (size_t)bytes;
  return CUVIL_OK;
}

static enum cuvil_status parse_npy(const unsigned char *bytes, size_t size,
                                   struct cuvil_tensor_file *out) {
  if (size < 12) return CUVIL_FAIL(CU_ERR_PARSE, "truncated .npy file");
  size_t start = bytes[6] == 1 ? 10 : 12;
  size_t length = bytes[8] | (size_t)bytes[9] << 8;
  if (start == 12) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  if (bytes[6] < 1 || bytes[6] > 3)
    return CUVIL_FAIL(CU_ERR_UNSUPPORTED, ".npy version %d", bytes[6]);
  if (length > size - start)
    return CUVIL_FAIL(CU_ERR_PARSE, "truncated .npy header");
  char *header = strndup((const char *)bytes + start, length);
  if (header == NULL) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory");
  enum cuvil_status status = parse_header(header, out);
  free(header);
  CUVIL_TRY(status);
  CUVIL_TRY(element_bytes(out));
  if (out->bytes != size - start - length)
    return CUVIL_FAIL(CU_ERR_PARSE,
                      "it holds %zu bytes of data, its shape needs %zu",
                      size - start - length, out->bytes);
  out->data = malloc(out->bytes > 0 ? out->bytes : 1);
  if (out->data == NULL)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for %zu bytes",
                      out->bytes);
  memcpy(out->data, bytes + start + length, out->bytes);
  return CUVIL_OK;
}

enum cuvil_status cuvil_tensor_read(const char *path,
                                    struct cuvil_tensor_file *out) {
  memset(out, 0, sizeof *out);
  struct cuvil_buf file = {0};
  CUVIL_TRY(cuvil_file_read(path, &file));
  enum cuvil_status status;
  if (file.size >= sizeof magic && memcmp(file.data, magic, sizeof magic) == 0)
    status = parse_npy((const unsigned char *)file.data, file.size, out);
  else
    status = cuvil_tensor_parse_pb(file.data, file.size, out);
  cuvil_buf_free(&file);
  if (status != CUVIL_OK)
    return CUVIL_FAIL(status, "%s: %s", path, cuvil_error_last()->message);
  return CUVIL_OK;
}

void cuvil_tensor_file_free(struct cuvil_tensor_file *tensor) {
  if (tensor == NULL) return;
  free(tensor->data);
  memset(tensor, 0, sizeof *tensor);
}

enum cuvil_status cuvil_tensor_write_npy(const char *path,
                                         enum cuvil_dtype dtype, int rank,
                                         const int64_t *dims,
                                         const void *data) {
  enum cuvil_dtype stored = dtype == CUVIL_BF16 ? CUVIL_F32 : dtype;
  const char *descr = NULL;
  for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
    if (npy_types[i].dtype == stored) descr = npy_types[i].descr;
  CUVIL_CHECK(descr != NULL);
  struct cuvil_buf header = {0}, out = {0};
  size_t count = 1;
  cuvil_buf_printf(&header,
                   "{'descr': '%s', 'fortran_order': False, "
                   "'shape': (",
                   descr);
  for (int i = 0; i < rank; i++) {
    cuvil_buf_printf(&header, "%lld%s", (long long)dims[i],
                     rank == 1 || i + 1 < rank ? ", " : "");
    count *= (size_t)dims[i];
  }
  cuvil_buf_puts(&header, "), }");
  /* The data starts at a multiple of 64. */
  while ((10 + header.size + 1) % 64 != 0)
    cuvil_buf_puts(&header, " ");
  cuvil_buf_puts(&header, "\n");
  unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  start[8] = (unsigned char)(header.size & 0xff);
  start[9] = (unsigned char)(header.size >> 8);
  cuvil_buf_add(&out, start, sizeof start);
  cuvil_buf_add(&out, cuvil_buf_text(&header), header.size);
  enum cuvil_status status = cuvil_buf_status(&header);
  size_t bytes = count * cuvil_dtype_size(stored);
  if (status == CUVIL_OK && stored == dtype) {
    cuvil_buf_add(&out, data, bytes);
  } else if (status == CUVIL_OK) {
    void *converted = malloc(bytes + 1);
    if (converted != NULL) {
      cuvil_convert(stored, converted, dtype, data, count);
      cuvil_buf_add(&out, converted, bytes);
    } else {
      status = CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to write %s", path);
    }
    free(converted);
  }
  if (status == CUVIL_OK) status = cuvil_buf_status(&out);
  if (status == CUVIL_OK)
    status = cuvil_file_write_atomic(path, out.data, out.size);
  cuvil_buf_free(&header);
  cuvil_buf_free(&out);
  return status;
}
