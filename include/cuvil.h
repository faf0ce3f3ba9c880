/* cuvil.h - the public C API of libcuvil.
 *
 * Open a tuning database, compile an ONNX model to a plan, load the plan on a
 * GPU and run it on a stream.  This is the only header that a user of the
 * library includes; every type in it is opaque.
 *
 * Threads: a context and what was made from it belong to one thread at a
 * time.  Ownership: every `create`, `open` or `load` has one `destroy` or
 * `close`, which accepts NULL.  Pointers passed in are borrowed for the call
 * unless a comment says otherwise.
 */
#ifndef CUVIL_H_
#define CUVIL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUVIL_VERSION "0.1.0"
#define CUVIL_API __attribute__((visibility("default")))

/* Every status: name, number, meaning, remedy.  The one list from which the
 * enum, the names, the messages and docs/errors.md are made.  Numbers are
 * frozen: they are printed, scripted against and stored. */
#define CUVIL_STATUS_LIST(X)                                                 \
  X(CUVIL_OK, 0x00, "done", "nothing to do")                                 \
  X(CU_ERR_INVALID_ARGUMENT, 0x01, "an argument is not valid",               \
    "see the option's or function's description")                            \
  X(CU_ERR_OUT_OF_MEMORY, 0x02, "host memory is used up",                    \
    "free memory, or use a smaller model or batch")                          \
  X(CU_ERR_IO, 0x03, "a file could not be read or written",                  \
    "check the path, its permissions and the free space")                    \
  X(CU_ERR_PARSE, 0x04, "a text is not of its grammar",                      \
    "correct the text at the place named")                                   \
  X(CU_ERR_UNSUPPORTED, 0x05, "this is not supported",                       \
    "see docs/ for what is; `cuvil-compile --check` lists every node")       \
  X(CU_ERR_INTERNAL, 0x06, "Cuvil broke one of its own rules",               \
    "report it with the message and the command")                            \
  X(CU_ERR_INTERRUPTED, 0x07, "interrupted",                                 \
    "run the same command again: it resumes")                                \
  X(CU_ERR_NO_DEVICE, 0x10, "no usable GPU was found",                       \
    "install a driver, or ask for --device replay")                          \
  X(CU_ERR_LIBRARY_NOT_FOUND, 0x11, "a vendor library could not be opened",  \
    "install it, or put its folder on LD_LIBRARY_PATH")                      \
  X(CU_ERR_CUDA, 0x12, "the CUDA driver reported an error",                  \
    "see the driver's result in the message")                                \
  X(CU_ERR_DEVICE_MEMORY, 0x13, "device memory is used up",                  \
    "free GPU memory, or use a smaller batch")                               \
  X(CU_ERR_KERNEL_COMPILE, 0x14, "NVRTC rejected a kernel",                  \
    "see the compiler's log in the message")                                 \
  X(CU_ERR_LIBRARY, 0x15, "a vendor library reported an error",              \
    "see the library's result in the message")                               \
  X(CU_ERR_ARCH_MISMATCH, 0x16, "made for another GPU architecture",         \
    "compile for the architecture of this GPU")                              \
  X(CU_ERR_MODEL_INVALID, 0x20, "the model file is damaged or inconsistent", \
    "check the file with the exporter that wrote it")                        \
  X(CU_ERR_MODEL_UNSUPPORTED, 0x21, "the model needs what Cuvil has not",    \
    "see the list of unsupported nodes")                                     \
  X(CU_ERR_DB, 0x30, "the database could not be used",                       \
    "run `cuvil-db verify`, or name another file with --db")                 \
  X(CU_ERR_DB_BUSY, 0x31, "the database is locked by another process",       \
    "wait for the other process, or use another --db")                       \
  X(CU_ERR_DB_READ_ONLY, 0x32, "the database cannot be written",             \
    "check permissions and space, or name another file with --db")           \
  X(CU_ERR_NOT_TUNED, 0x33, "a problem has no recorded winner",              \
    "run cuvil-tune on the model first")                                     \
  X(CU_ERR_NO_RECORDING, 0x34, "the recording does not hold this",           \
    "record it on a GPU with cuvil-tune --exhaustive --record")              \
  X(CU_ERR_CANDIDATE_FAILED, 0x35, "a candidate kernel failed",              \
    "see `cuvil-db show --failures`; the search goes on without it")         \
  X(CU_ERR_VERIFY_FAILED, 0x36, "a result differs from the reference",       \
    "report it with the model and the command")                              \
  X(CU_ERR_CUDA_LAUNCH_TIMEOUT, 0x3F, "a kernel did not end in time",        \
    "raise the limit if the kernel is known to be long")                     \
  X(CU_ERR_INVALID_TENSOR_LAYOUT, 0x5C,                                      \
    "a tensor's layout or shape is not what was declared",                   \
    "pass a tensor of the declared shape, type and strides")                 \
  X(CU_ERR_GRAPH_BUILD_FAILED, 0x7A, "the CUDA graph could not be built",    \
    "see the driver's result in the message")                                \
  X(CU_ERR_VERSION_MISMATCH, 0x9E,                                           \
    "a file of another version, or damaged, was refused",                    \
    "make the file again with this version of Cuvil")

enum cuvil_status {
#define CUVIL_STATUS_ENUM(name, number, meaning, remedy) name = number,
  CUVIL_STATUS_LIST(CUVIL_STATUS_ENUM)
#undef CUVIL_STATUS_ENUM
};

#define CUVIL_MUST_USE __attribute__((warn_unused_result))

/* "CU_ERR_IO"; static. */
CUVIL_API const char *cuvil_status_name(enum cuvil_status status);
/* What a status means and what to do; static. */
CUVIL_API const char *cuvil_status_meaning(enum cuvil_status status);
CUVIL_API const char *cuvil_status_remedy(enum cuvil_status status);
/* The message of this thread's last failure: what, where, what to do.  Valid
 * until the next failing call on this thread. */
CUVIL_API const char *cuvil_last_error(void);

#ifdef __cplusplus
}
#endif
#endif /* CUVIL_H_ */
