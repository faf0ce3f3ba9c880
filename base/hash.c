/* hash.c - XXH3 behind our own names. */
#include "base/hash.h"

#include <stdio.h>
#include <xxhash.h>

void cuvil_hash_hex(const void *bytes, size_t size, char out[CUVIL_HASH_SIZE]) {
  XXH128_hash_t hash = XXH3_128bits(bytes, size);
  snprintf(out, CUVIL_HASH_SIZE, "%016llx%016llx",
           (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

uint64_t cuvil_hash64(const void *bytes, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}
