/* fuzz.h - what the files of the fuzzer share.
 *
 *   fuzz.c     children, clocks, allocation, reports
 *   targets.c  what is done with an input, by its kind
 *   mutate.c   how an input of each kind is changed
 *   seeds.c    the committed inputs that everything starts from
 */
#ifndef CUVIL_TESTS_FUZZ_FUZZ_H_
#define CUVIL_TESTS_FUZZ_FUZZ_H_

#include "base/buf.h"
#include "base/clock.h"

enum fuzz_target {
  FUZZ_MODEL, /* wire form of an ONNX file: import, shapes, fusion, execution */
  FUZZ_GRAPH, /* the same, changed as a graph and written anew */
  FUZZ_PLAN,
  FUZZ_RECORDING,
  FUZZ_DATABASE,
  FUZZ_TENSOR,  /* .npy and TensorProto */
  FUZZ_PROBLEM, /* problem texts */
  FUZZ_SPACE,
  FUZZ_TARGETS
};
extern const char *const fuzz_target_names[FUZZ_TARGETS];
/* How often each is taken, of 100. */
extern const int fuzz_target_shares[FUZZ_TARGETS];
/* Where a file of this name is tried: by its ending; -1: nowhere. */
int fuzz_target_of(const char *path);

/* Tries the bytes; returning is passing.  `folder`: for files. */
void fuzz_try(enum fuzz_target target, const void *bytes, size_t size,
              const char *folder);

/* Appends a changed copy of `bytes`. */
void fuzz_mutate(enum fuzz_target target, const void *bytes, size_t size,
                 struct cuvil_rng *rng, struct cuvil_buf *out);

/* Writes the seeds that are committed under tests/fuzz/seeds. */
int fuzz_make_seeds(const char *folder);

#endif /* CUVIL_TESTS_FUZZ_FUZZ_H_ */
