/* "in0:1x3x224x224,in1:1x128": shapes that the user gives for inputs whose
 * dimensions the model leaves open.  Names may hold ':' (TensorFlow's do), so
 * an entry is split at its last one.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/import.h"
#include "graph/ops.h"

/* One entry at *at, of which *at is moved behind; dims may be NULL. */
static enum cuvil_status parse_entry(const char **at, const char **name,
                                     size_t *name_size, int64_t *dims,
                                     int *rank) {
  const char *entry = *at;
  size_t size = strcspn(entry, ",");
  const char *colon = memrchr(entry, ':', size);
  *at = entry + size + (entry[size] == ',');
  *rank = 0;
  if (colon == NULL || colon == entry)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--shapes: \"%.*s\" is not NAME:1x3x224x224",
                      (int)(size < 80 ? size : 80), entry);
  *name = entry;
  *name_size = (size_t)(colon - entry);
  const char *end = entry + size, *digit = colon + 1;
  if ((size_t)(end - digit) == 6 && memcmp(digit, "scalar", 6) == 0)
    return CUVIL_OK;
  for (;;) {
    char *stop;
    long long extent = digit < end && *digit >= '0' && *digit <= '9'
                           ? strtoll(digit, &stop, 10)
                           : 0;
    if (extent < 1 || extent > (long long)1 << 40 || stop > end ||
        (stop < end && *stop != 'x') || *rank == CUVIL_GRAPH_MAX_RANK)
      return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                        "--shapes: \"%.*s\" is not NAME:1x3x224x224 (at most "
                        "%d dimensions, each at least 1)",
                        (int)(size < 80 ? size : 80), entry,
                        CUVIL_GRAPH_MAX_RANK);
    dims[(*rank)++] = extent;
    if (stop == end) return CUVIL_OK;
    digit = stop + 1;
  }
}

enum cuvil_status cuvil_import_shapes_find(const char *shapes, const char *name,
                                           int64_t *out_dims, int *out_rank) {
  *out_rank = -1;
  for (const char *at = shapes != NULL ? shapes : ""; *at != '\0';) {
    const char *entry;
    size_t size;
    int64_t dims[CUVIL_GRAPH_MAX_RANK];
    int rank;
    CUVIL_TRY(parse_entry(&at, &entry, &size, dims, &rank));
    if (strlen(name) != size || memcmp(name, entry, size) != 0) continue;
    memcpy(out_dims, dims, sizeof dims);
    *out_rank = rank;
  }
  return CUVIL_OK;
}

enum cuvil_status cuvil_import_shapes_check(const struct cuvil_graph *graph,
                                            const char *shapes) {
  for (const char *at = shapes != NULL ? shapes : ""; *at != '\0';) {
    const char *entry;
    size_t size;
    int64_t dims[CUVIL_GRAPH_MAX_RANK];
    int rank;
    bool found = false;
    CUVIL_TRY(parse_entry(&at, &entry, &size, dims, &rank));
    for (int i = 0; i < graph->input_count && !found; i++) {
      const char *name = graph->values[graph->inputs[i]].name;
      found = strlen(name) == size && memcmp(name, entry, size) == 0;
    }
    if (found) continue;
    char first[81] = "";
    if (graph->input_count > 0)
      cuvil_text_clean(graph->values[graph->inputs[0]].name, first,
                       sizeof first);
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--shapes: %s has no input \"%.*s\"; its first of %d is "
                      "\"%s\"",
                      graph->path, (int)(size < 80 ? size : 80), entry,
                      graph->input_count, first);
  }
  return CUVIL_OK;
}
