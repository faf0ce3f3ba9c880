/* Files behind a model: mapped once each, read only.  An external file is
 * where a model could reach out of its folder, so its path is held to the
 * folder both as text and as what the file system makes of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/import.h"
#include "graph/ops.h"

static enum cuvil_status map_open_file(struct cuvil_import_owner *owner,
                                       const char *path, int fd,
                                       const struct cuvil_mapping **out) {
  struct stat info;
  if (fstat(fd, &info) != 0)
    return CUVIL_FAIL(CU_ERR_IO, "%s: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode))
    return CUVIL_FAIL(CU_ERR_IO, "%s: not a regular file", path);
  if (info.st_size == 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID, "%s: the file is empty", path);
  size_t size = (size_t)info.st_size;
  void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (bytes == MAP_FAILED)
    return CUVIL_FAIL(CU_ERR_IO, "%s: cannot map it: %s", path,
                      strerror(errno));
  struct cuvil_mapping *mapping = calloc(1, sizeof *mapping);
  char *copy = strdup(path);
  if (mapping == NULL || copy == NULL) {
    free(mapping);
    free(copy);
    munmap(bytes, size);
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to open %s", path);
  }
  *mapping = (struct cuvil_mapping){
      .next = owner->mappings, .path = copy, .bytes = bytes, .size = size};
  owner->mappings = mapping;
  *out = mapping;
  return CUVIL_OK;
}

enum cuvil_status cuvil_import_map(struct cuvil_import_owner *owner,
                                   const char *path,
                                   const struct cuvil_mapping **out) {
  *out = NULL;
  for (struct cuvil_mapping *m = owner->mappings; m != NULL; m = m->next)
    if (strcmp(m->path, path) == 0) {
      *out = m;
      return CUVIL_OK;
    }
  /* Without O_NONBLOCK a named pipe would hang here. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return CUVIL_FAIL(CU_ERR_IO, "%s: cannot open it: %s", path,
                      strerror(errno));
  enum cuvil_status status = map_open_file(owner, path, fd, out);
  close(fd);
  return status;
}

/* No component of the path is "..". */
static bool stays_below(const char *location) {
  for (const char *at = location; *at != '\0';) {
    size_t n = strcspn(at, "/\\");
    if (n == 2 && at[0] == '.' && at[1] == '.') return false;
    at += n;
    at += *at != '\0';
  }
  return true;
}

/* The model's folder as the file system knows it, ending in "/". */
static bool folder_of(const char *path, char out[PATH_MAX]) {
  char copy[PATH_MAX];
  const char *slash = strrchr(path, '/');
  size_t n = slash != NULL ? (size_t)(slash - path) : 0;
  if (n + 2 > sizeof copy) return false;
  if (slash == NULL) {
    strcpy(copy, ".");
  } else {
    memcpy(copy, path, n + 1);
    copy[n + 1] = '\0';
  }
  if (realpath(copy, out) == NULL) return false;
  n = strlen(out);
  if (n + 2 > PATH_MAX) return false;
  if (out[n - 1] != '/') strcpy(out + n, "/");
  return true;
}

enum cuvil_status cuvil_import_map_external(struct cuvil_import_owner *owner,
                                            const char *path,
                                            const char *location,
                                            const struct cuvil_mapping **out) {
  *out = NULL;
  char shown[161], folder[PATH_MAX], resolved[PATH_MAX];
  cuvil_text_clean(location, shown, sizeof shown);
  if (location[0] == '\0' || location[0] == '/' || location[0] == '\\' ||
      !stays_below(location))
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its external data \"%s\" is not below the model's "
                      "folder",
                      shown);
  if (!folder_of(path, folder))
    return CUVIL_FAIL(CU_ERR_IO, "the model's folder cannot be resolved");
  char joined[PATH_MAX];
  if (strlen(folder) + strlen(location) + 1 > sizeof joined)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its external data has too long a path: %s", shown);
  strcpy(joined, folder);
  strcat(joined, location);
  if (realpath(joined, resolved) == NULL)
    return CUVIL_FAIL(CU_ERR_IO,
                      "its external data \"%s\" cannot be opened: %s", shown,
                      strerror(errno));
  if (strncmp(resolved, folder, strlen(folder)) != 0)
    return CUVIL_FAIL(CU_ERR_MODEL_INVALID,
                      "its external data \"%s\" leads out of the model's "
                      "folder by a symbolic link",
                      shown);
  return cuvil_import_map(owner, resolved, out);
}

void cuvil_import_unload(const struct cuvil_import_owner *owner) {
  for (struct cuvil_mapping *m = owner->mappings; m != NULL; m = m->next)
    /* Advice: refusal changes nothing but memory use. */
    (void)madvise((void *)(uintptr_t)m->bytes, m->size, MADV_DONTNEED);
}

void cuvil_import_owner_destroy(void *opaque) {
  struct cuvil_import_owner *owner = opaque;
  if (owner == NULL) return;
  for (struct cuvil_mapping *m = owner->mappings, *next; m != NULL; m = next) {
    next = m->next;
    munmap((void *)(uintptr_t)m->bytes, m->size);
    free(m->path);
    free(m);
  }
  free(owner);
}
