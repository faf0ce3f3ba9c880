/* hash.h - content hashes (XXH3, 128 bits) as 32 hexadecimal digits. */
#ifndef CUVIL_BASE_HASH_H_
#define CUVIL_BASE_HASH_H_

#include <stddef.h>
#include <stdint.h>

#define CUVIL_HASH_SIZE 33 /* 32 digits and the NUL */

void cuvil_hash_hex(const void *bytes, size_t size, char out[CUVIL_HASH_SIZE]);
uint64_t cuvil_hash64(const void *bytes, size_t size, uint64_t seed);

#endif /* CUVIL_BASE_HASH_H_ */
