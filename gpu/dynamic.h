/* dynamic.h - vendor libraries, opened when first needed; internal to gpu/.
 *
 * Nothing of the vendor's is linked: a machine without a driver or without
 * cuDNN still runs everything that needs none of them.
 */
#ifndef CUVIL_GPU_DYNAMIC_H_
#define CUVIL_GPU_DYNAMIC_H_

#include "base/status.h"

/* Opens the first of `names` (NULL-terminated file names) that some place on
 * the way holds: the file that environment variable `override` names (may be
 * NULL; when set, it alone is tried), the folders of $CUVIL_CUDA_LIBRARY_PATH
 * (each also as a site-packages folder of the vendor's wheels:
 * nvidia/<*>/lib), $CUDA_HOME/lib64, `lib` beside the executable or beside its
 * folder, the system's own search, /usr/local/cuda/lib64.
 * CU_ERR_LIBRARY_NOT_FOUND names the library and `needed_by`. */
CUVIL_MUST_USE enum cuvil_status cuvil_dynamic_open(const char *const *names,
                                                    const char *override,
                                                    const char *needed_by,
                                                    void **out_handle);

/* Symbols by a table: `pointers[i]` (a function pointer's storage) gets
 * `names[i]`; CU_ERR_LIBRARY_NOT_FOUND names the first one that is absent. */
CUVIL_MUST_USE enum cuvil_status cuvil_dynamic_symbols(void *handle,
                                                       const char *library,
                                                       const char *const *names,
                                                       void **pointers,
                                                       int count);

#endif /* CUVIL_GPU_DYNAMIC_H_ */
