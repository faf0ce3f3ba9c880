/* arena.h - memory that is freed all at once.
 *
 * One arena per compilation holds the graph, its strings and its small
 * tensors.  Allocation failures return NULL and are reported by the caller
 * with CU_ERR_OUT_OF_MEMORY.
 */
#ifndef CUVIL_BASE_ARENA_H_
#define CUVIL_BASE_ARENA_H_

#include <stddef.h>

struct cuvil_arena {
  struct cuvil_arena_chunk *chunks; /* newest first */
  size_t total;                     /* bytes handed out */
};

/* Zeroed memory aligned to 64 bytes; NULL when memory is used up. */
void *cuvil_arena_alloc(struct cuvil_arena *arena, size_t size);
/* Zeroed array with overflow check. */
void *cuvil_arena_array(struct cuvil_arena *arena, size_t count, size_t size);
char *cuvil_arena_strdup(struct cuvil_arena *arena, const char *text);
char *cuvil_arena_strndup(struct cuvil_arena *arena, const char *text,
                          size_t size);
/* Frees everything; the arena may be used again. */
void cuvil_arena_free(struct cuvil_arena *arena);

#endif /* CUVIL_BASE_ARENA_H_ */
