/* dynamic.c - where vendor libraries are looked for.
 *
 * They come from a toolkit, from the distribution, from the vendor's Python
 * wheels or from a relocatable tree that was copied to the machine, so one
 * list of folders is walked for all of them.  What the user named goes first;
 * the system's own search stands before the guess /usr/local/cuda, because
 * LD_LIBRARY_PATH is how people say which of two toolkits they mean.
 */
#include "gpu/dynamic.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *open_in(const char *folder, const char *const *names) {
  char path[PATH_MAX];
  for (int i = 0; names[i]; i++) {
    int n = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    if (n < 0 || (size_t)n >= sizeof path) continue;
    if (access(path, R_OK) != 0) continue;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle) return handle;
  }
  return NULL;
}

static void *open_in_wheels(const char *folder, const char *const *names) {
  char pattern[PATH_MAX];
  int n = snprintf(pattern, sizeof pattern, "%s/nvidia/*/lib", folder);
  if (n < 0 || (size_t)n >= sizeof pattern) return NULL;
  glob_t found;
  if (glob(pattern, 0, NULL, &found) != 0) return NULL;
  void *handle = NULL;
  for (size_t i = 0; i < found.gl_pathc && !handle; i++)
    handle = open_in(found.gl_pathv[i], names);
  globfree(&found);
  return handle;
}

static void *open_in_list(const char *list, const char *const *names) {
  char folder[PATH_MAX];
  for (const char *at = list; at && *at;) {
    size_t length = strcspn(at, ":");
    if (length > 0 && length < sizeof folder) {
      memcpy(folder, at, length);
      folder[length] = 0;
      void *handle = open_in(folder, names);
      if (!handle) handle = open_in_wheels(folder, names);
      if (handle) return handle;
    }
    at += length + (at[length] == ':');
  }
  return NULL;
}

static void *open_beside_executable(const char *const *names) {
  char folder[PATH_MAX], path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
  if (n <= 0) return NULL;
  folder[n] = 0;
  char *slash = strrchr(folder, '/');
  if (!slash) return NULL;
  *slash = 0;
  /* Last: where the build lays a toolkit when the system has none. */
  static const char *const places[] = {"lib", "../lib", "../../cuda/lib"};
  for (int i = 0; i < 3; i++) {
    int m = snprintf(path, sizeof path, "%s/%s", folder, places[i]);
    if (m < 0 || (size_t)m >= sizeof path) continue;
    void *handle = open_in(path, names);
    if (handle) return handle;
  }
  return NULL;
}

static void *open_in_toolkit(const char *root, const char *const *names) {
  char path[PATH_MAX];
  static const char *const places[] = {"lib64", "lib"};
  for (int i = 0; root && *root && i < 2; i++) {
    int n = snprintf(path, sizeof path, "%s/%s", root, places[i]);
    if (n < 0 || (size_t)n >= sizeof path) continue;
    void *handle = open_in(path, names);
    if (handle) return handle;
  }
  return NULL;
}

static void *open_anywhere(const char *const *names) {
  void *handle = open_in_list(getenv("CUVIL_CUDA_LIBRARY_PATH"), names);
  if (!handle) handle = open_in_toolkit(getenv("CUDA_HOME"), names);
  if (!handle) handle = open_beside_executable(names);
  for (int i = 0; names[i] && !handle; i++)
    handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!handle) handle = open_in_toolkit("/usr/local/cuda", names);
  return handle;
}

enum cuvil_status cuvil_dynamic_open(const char *const *names,
                                     const char *override,
                                     const char *needed_by, void **out_handle) {
  *out_handle = NULL;
  const char *file = override ? getenv(override) : NULL;
  if (file && *file) {
    *out_handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (*out_handle) return CUVIL_OK;
    const char *why = dlerror();
    return CUVIL_FAIL(CU_ERR_LIBRARY_NOT_FOUND,
                      "$%s (needed for %s) could not be opened: %s", override,
                      needed_by, why ? why : file);
  }
  *out_handle = open_anywhere(names);
  if (*out_handle) return CUVIL_OK;
  return CUVIL_FAIL(CU_ERR_LIBRARY_NOT_FOUND,
                    "%s was not found; it is needed for %s; install it, or put "
                    "its folder on $LD_LIBRARY_PATH or "
                    "$CUVIL_CUDA_LIBRARY_PATH",
                    names[0], needed_by);
}

enum cuvil_status cuvil_dynamic_symbols(void *handle, const char *library,
                                        const char *const *names,
                                        void **pointers, int count) {
  for (int i = 0; i < count; i++) {
    pointers[i] = dlsym(handle, names[i]);
    if (!pointers[i])
      return CUVIL_FAIL(CU_ERR_LIBRARY_NOT_FOUND,
                        "%s has no symbol %s; it is too old, install a newer "
                        "one",
                        library, names[i]);
  }
  return CUVIL_OK;
}
