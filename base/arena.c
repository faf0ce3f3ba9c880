/* arena.c - chunks in a list, freed together.
 *
 * Chunks grow with what has been handed out, so that a graph of a million
 * nodes costs a few dozen mallocs and a small one little memory.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct cuvil_arena_chunk {
  struct cuvil_arena_chunk *next;
  size_t used, size;
  _Alignas(64) char bytes[];
};

enum { ALIGNMENT = 64, FIRST_CHUNK = 1 << 14, LARGEST_CHUNK = 1 << 20 };

void *cuvil_arena_alloc(struct cuvil_arena *arena, size_t size) {
  if (size > SIZE_MAX / 2) return NULL;
  size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (size == 0) size = ALIGNMENT;
  struct cuvil_arena_chunk *chunk = arena->chunks;
  if (!chunk || chunk->size - chunk->used < size) {
    size_t room = arena->total < FIRST_CHUNK     ? FIRST_CHUNK
                  : arena->total < LARGEST_CHUNK ? arena->total
                                                 : LARGEST_CHUNK;
    room = (room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (room < size) room = size;
    chunk = aligned_alloc(ALIGNMENT, sizeof(struct cuvil_arena_chunk) + room);
    if (!chunk) return NULL;
    chunk->next = arena->chunks;
    chunk->used = 0;
    chunk->size = room;
    arena->chunks = chunk;
  }
  void *bytes = chunk->bytes + chunk->used;
  chunk->used += size;
  arena->total += size;
  return memset(bytes, 0, size);
}

void *cuvil_arena_array(struct cuvil_arena *arena, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  return cuvil_arena_alloc(arena, bytes);
}

char *cuvil_arena_strndup(struct cuvil_arena *arena, const char *text,
                          size_t size) {
  char *copy = cuvil_arena_alloc(arena, size + 1);
  if (copy && size) memcpy(copy, text, size);
  return copy;
}

char *cuvil_arena_strdup(struct cuvil_arena *arena, const char *text) {
  return cuvil_arena_strndup(arena, text, strlen(text));
}

void cuvil_arena_free(struct cuvil_arena *arena) {
  struct cuvil_arena_chunk *chunk = arena->chunks;
  while (chunk) {
    struct cuvil_arena_chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
  memset(arena, 0, sizeof *arena);
}
