/* dtype.h - element types: names, sizes, conversion on the host. */
#ifndef CUVIL_BASE_DTYPE_H_
#define CUVIL_BASE_DTYPE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers are stored in plans: append only. */
enum cuvil_dtype {
  CUVIL_DTYPE_NONE = 0,
  CUVIL_F32 = 1,
  CUVIL_F16 = 2,
  CUVIL_BF16 = 3,
  CUVIL_F64 = 4,
  CUVIL_I8 = 5,
  CUVIL_U8 = 6,
  CUVIL_I32 = 7,
  CUVIL_I64 = 8,
  CUVIL_BOOL = 9,
  CUVIL_DTYPE_COUNT
};

/* "f32" "f16" "bf16" "f64" "i8" "u8" "i32" "i64" "bool"; "none". */
const char *cuvil_dtype_name(enum cuvil_dtype dtype);
/* CUVIL_DTYPE_NONE when the name (length bytes) is not one. */
enum cuvil_dtype cuvil_dtype_find(const char *name, size_t length);
size_t cuvil_dtype_size(enum cuvil_dtype dtype);
bool cuvil_dtype_is_float(enum cuvil_dtype dtype);
/* Unit roundoff: 2^-11 for f16, 2^-8 for bf16, 2^-24 for f32; 0 for integers.
 */
double cuvil_dtype_epsilon(enum cuvil_dtype dtype);
/* Largest finite value; 65504 for f16. */
double cuvil_dtype_max(enum cuvil_dtype dtype);

/* Round to nearest even; f16 overflow gives infinity; NaN stays NaN. */
uint16_t cuvil_f32_to_f16(float value);
float cuvil_f16_to_f32(uint16_t bits);
uint16_t cuvil_f32_to_bf16(float value);
float cuvil_bf16_to_f32(uint16_t bits);

/* Element `index` of an array of `dtype` as double, and back (rounded to
 * nearest even; saturating for integers). */
double cuvil_load(enum cuvil_dtype dtype, const void *base, size_t index);
void cuvil_store(enum cuvil_dtype dtype, void *base, size_t index,
                 double value);
/* Whole arrays; source and target may not overlap. */
void cuvil_convert(enum cuvil_dtype to, void *out, enum cuvil_dtype from,
                   const void *in, size_t count);

#endif /* CUVIL_BASE_DTYPE_H_ */
