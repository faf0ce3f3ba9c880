/* dtype.c - the element types as a table, and exact host conversions.
 *
 * f16 and bf16 are converted by integer arithmetic on the bits, rounding to
 * nearest even as the GPU does, so that host references and weights agree with
 * device results to the last bit.
 */
#include "base/dtype.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name;
  size_t size;
  bool is_float;
  double epsilon, max;
} types[CUVIL_DTYPE_COUNT] = {
    [CUVIL_DTYPE_NONE] = {"none", 0, false, 0, 0},
    [CUVIL_F32] = {"f32", 4, true, 0x1p-24, 3.40282346638528859812e+38},
    [CUVIL_F16] = {"f16", 2, true, 0x1p-11, 65504},
    [CUVIL_BF16] = {"bf16", 2, true, 0x1p-8, 3.38953138925153547590e+38},
    [CUVIL_F64] = {"f64", 8, true, 0x1p-53, 1.79769313486231570815e+308},
    [CUVIL_I8] = {"i8", 1, false, 0, 127},
    [CUVIL_U8] = {"u8", 1, false, 0, 255},
    [CUVIL_I32] = {"i32", 4, false, 0, 2147483647},
    [CUVIL_I64] = {"i64", 8, false, 0, 9223372036854775807.0},
    [CUVIL_BOOL] = {"bool", 1, false, 0, 1},
};

const char *cuvil_dtype_name(enum cuvil_dtype dtype) {
  return (unsigned)dtype < CUVIL_DTYPE_COUNT ? types[dtype].name : "none";
}

enum cuvil_dtype cuvil_dtype_find(const char *name, size_t length) {
  for (int i = 1; i < CUVIL_DTYPE_COUNT; i++)
    if (strlen(types[i].name) == length &&
        memcmp(types[i].name, name, length) == 0)
      return (enum cuvil_dtype)i;
  return CUVIL_DTYPE_NONE;
}

size_t cuvil_dtype_size(enum cuvil_dtype dtype) {
  return (unsigned)dtype < CUVIL_DTYPE_COUNT ? types[dtype].size : 0;
}

bool cuvil_dtype_is_float(enum cuvil_dtype dtype) {
  return (unsigned)dtype < CUVIL_DTYPE_COUNT && types[dtype].is_float;
}

double cuvil_dtype_epsilon(enum cuvil_dtype dtype) {
  return (unsigned)dtype < CUVIL_DTYPE_COUNT ? types[dtype].epsilon : 0;
}

double cuvil_dtype_max(enum cuvil_dtype dtype) {
  return (unsigned)dtype < CUVIL_DTYPE_COUNT ? types[dtype].max : 0;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

uint16_t cuvil_f32_to_f16(float value) {
  uint32_t bits = bits_of(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;  /* NaN */
  if (magnitude >= 0x477ff000) return sign | 0x7c00; /* rounds past 65504 */
  if (magnitude < 0x38800000) {
    /* Subnormal: adding 0.5 makes the FPU round at 2^-24. */
    float shifted = float_of(magnitude) + 0.5f;
    return sign | (uint16_t)(bits_of(shifted) - 0x3f000000);
  }
  uint32_t odd = magnitude >> 13 & 1;
  return sign | (uint16_t)((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

float cuvil_f16_to_f32(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    float value = (float)fraction * 0x1p-24f;
    return float_of(bits_of(value) | sign);
  }
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t cuvil_f32_to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return (uint16_t)(bits >> 16 | 0x40); /* stay NaN when truncated */
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float cuvil_bf16_to_f32(uint16_t bits) {
  return float_of((uint32_t)bits << 16);
}

double cuvil_load(enum cuvil_dtype dtype, const void *base, size_t index) {
  switch (dtype) {
    case CUVIL_F32:
      return ((const float *)base)[index];
    case CUVIL_F16:
      return cuvil_f16_to_f32(((const uint16_t *)base)[index]);
    case CUVIL_BF16:
      return cuvil_bf16_to_f32(((const uint16_t *)base)[index]);
    case CUVIL_F64:
      return ((const double *)base)[index];
    case CUVIL_I8:
      return ((const int8_t *)base)[index];
    case CUVIL_U8:
    case CUVIL_BOOL:
      return ((const uint8_t *)base)[index];
    case CUVIL_I32:
      return ((const int32_t *)base)[index];
    case CUVIL_I64:
      return (double)((const int64_t *)base)[index];
    case CUVIL_DTYPE_NONE:
    case CUVIL_DTYPE_COUNT:
      break;
  }
  return 0;
}

static double clamp(double value, double low, double high) {
  if (isnan(value)) return 0;
  value = nearbyint(value);
  return value < low ? low : value > high ? high : value;
}

void cuvil_store(enum cuvil_dtype dtype, void *base, size_t index,
                 double value) {
  switch (dtype) {
    case CUVIL_F32:
      ((float *)base)[index] = (float)value;
      return;
    case CUVIL_F16:
      ((uint16_t *)base)[index] = cuvil_f32_to_f16((float)value);
      return;
    case CUVIL_BF16:
      ((uint16_t *)base)[index] = cuvil_f32_to_bf16((float)value);
      return;
    case CUVIL_F64:
      ((double *)base)[index] = value;
      return;
    case CUVIL_I8:
      ((int8_t *)base)[index] = (int8_t)clamp(value, -128, 127);
      return;
    case CUVIL_U8:
      ((uint8_t *)base)[index] = (uint8_t)clamp(value, 0, 255);
      return;
    case CUVIL_BOOL:
      ((uint8_t *)base)[index] = value != 0;
      return;
    case CUVIL_I32:
      ((int32_t *)base)[index] = (int32_t)clamp(value, INT32_MIN, INT32_MAX);
      return;
    case CUVIL_I64:
      /* 2^63 is not representable as int64; the largest double below is. */
      ((int64_t *)base)[index] =
          (int64_t)clamp(value, -0x1p63, 0x1.fffffffffffffp62);
      return;
    case CUVIL_DTYPE_NONE:
    case CUVIL_DTYPE_COUNT:
      break;
  }
}

void cuvil_convert(enum cuvil_dtype to, void *out, enum cuvil_dtype from,
                   const void *in, size_t count) {
  if (to == from) {
    if (count) memcpy(out, in, count * cuvil_dtype_size(to));
    return;
  }
  if (from == CUVIL_F32 && to == CUVIL_F16) {
    for (size_t i = 0; i < count; i++)
      ((uint16_t *)out)[i] = cuvil_f32_to_f16(((const float *)in)[i]);
    return;
  }
  if (from == CUVIL_F16 && to == CUVIL_F32) {
    for (size_t i = 0; i < count; i++)
      ((float *)out)[i] = cuvil_f16_to_f32(((const uint16_t *)in)[i]);
    return;
  }
  for (size_t i = 0; i < count; i++)
    cuvil_store(to, out, i, cuvil_load(from, in, i));
}
