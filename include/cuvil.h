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

/* ---- context: a GPU of this process, or none */
struct cuvil_context;
/* device: ordinal as the driver counts, or -1 for none (compiling only).  The
 * GPU's primary context is retained and made current on this thread, so that
 * pointers and streams of other libraries in the process (PyTorch) are valid
 * here.  CU_ERR_NO_DEVICE, CU_ERR_LIBRARY_NOT_FOUND. */
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_context_create(
    int device, struct cuvil_context **out);
CUVIL_API void cuvil_context_destroy(struct cuvil_context *context);

/* ---- database: what cuvil-tune recorded, for reading */
struct cuvil_database;
/* path NULL: $CUVIL_DB, else ${XDG_CACHE_HOME:-~/.cache}/cuvil/cuvil.db.
 * CU_ERR_DB when there is none, CU_ERR_VERSION_MISMATCH. */
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_database_open(
    const char *path, struct cuvil_database **out);
CUVIL_API void cuvil_database_close(struct cuvil_database *database);

/* ---- compile: an ONNX file to a plan file */
struct cuvil_compile_options {
  const char *arch;      /* "sm_90"; NULL: the context's GPU */
  const char *precision; /* "fp16"; NULL: "model" */
  const char *fusion;    /* "medium"; NULL: the default of cuvil-tune */
  const char *shapes;    /* "input:1x3x224x224"; NULL: as the file says */
  int require_tuned;     /* not 0: CU_ERR_NOT_TUNED where a winner is missing */
  int jobs;              /* parallel kernel compiles; 0: one a core */
};
/* database NULL: untuned defaults everywhere.  options NULL: all defaults.
 * An existing file at `plan` is replaced only when everything succeeded.
 * CU_ERR_MODEL_INVALID, CU_ERR_MODEL_UNSUPPORTED, CU_ERR_NOT_TUNED, CU_ERR_IO,
 * CU_ERR_KERNEL_COMPILE. */
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_compile(
    struct cuvil_context *context, struct cuvil_database *database,
    const char *model, const struct cuvil_compile_options *options,
    const char *plan);

/* ---- instance: a plan on the context's GPU, ready to run */
struct cuvil_instance;
struct cuvil_tensor_info {
  const char *name;  /* borrowed from the instance */
  const char *dtype; /* "f32" "f16" "i64" ..; static */
  int rank;
  int64_t dims[8]; /* packed, last fastest */
  uint64_t bytes;
};
/* The context must have a GPU and outlive the instance.
 * CU_ERR_VERSION_MISMATCH: another version, or damaged; CU_ERR_ARCH_MISMATCH;
 * CU_ERR_DEVICE_MEMORY. */
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_instance_load(
    struct cuvil_context *context, const char *plan,
    struct cuvil_instance **out);
CUVIL_API void cuvil_instance_unload(struct cuvil_instance *instance);
CUVIL_API int cuvil_instance_inputs(const struct cuvil_instance *instance);
CUVIL_API int cuvil_instance_outputs(const struct cuvil_instance *instance);
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_instance_input_info(
    const struct cuvil_instance *instance, int index,
    struct cuvil_tensor_info *out);
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_instance_output_info(
    const struct cuvil_instance *instance, int index,
    struct cuvil_tensor_info *out);
/* Uses the caller's device memory (a CUdeviceptr, of `bytes` or more, aligned
 * to 16) for an input or output: no copy.  The memory stays the caller's and
 * must live until it is bound anew or the instance is unloaded.  Binding
 * rebuilds the CUDA graph at the next run: bind once, run often.
 * CU_ERR_INVALID_TENSOR_LAYOUT for a bad address. */
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_instance_bind_input(
    struct cuvil_instance *instance, int index, uint64_t address);
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_instance_bind_output(
    struct cuvil_instance *instance, int index, uint64_t address);
/* Where an input or output lives now: the caller's memory, or the instance's
 * own. */
CUVIL_API uint64_t
cuvil_instance_input_address(const struct cuvil_instance *instance, int index);
CUVIL_API uint64_t
cuvil_instance_output_address(const struct cuvil_instance *instance, int index);
/* Enqueues one run on the caller's CUstream (NULL: the default stream) and
 * returns; allocates nothing unless something was bound since the last run. */
CUVIL_API CUVIL_MUST_USE enum cuvil_status cuvil_instance_run(
    struct cuvil_instance *instance, void *cu_stream);

#ifdef __cplusplus
}
#endif
#endif /* CUVIL_H_ */
