/* run_io.h - the tensors of one run: where they come from, how they compare,
 * where they go. */
#ifndef CUVIL_CLI_RUN_IO_H_
#define CUVIL_CLI_RUN_IO_H_

#include <stdio.h>

#include "base/json.h"
#include "graph/graph.h"
#include "runtime/plan.h"

struct cuvil_run_io {
  int input_count, output_count;
  const struct cuvil_plan_tensor *inputs, *outputs; /* borrowed */
  void **in, **out;          /* owned host memory, each tensor's bytes */
  void **expected;           /* NULL where nothing is known */
  const char *compared_with; /* "the CPU executor", a folder; for messages */
};

/* Inputs are random by the seed until they are given. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_create(
    int input_count, const struct cuvil_plan_tensor *inputs, int output_count,
    const struct cuvil_plan_tensor *outputs, uint64_t seed,
    struct cuvil_run_io *out);
void cuvil_run_io_free(struct cuvil_run_io *io);
/* Integer inputs that were not given are 0 or 1, as a mask is; those that
 * index a table (the step or node that gathers says so) become random rows of
 * it.  Either may be NULL.  Call it before inputs are loaded. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_indices(
    struct cuvil_run_io *io, const struct cuvil_plan *plan,
    const struct cuvil_graph *graph, uint64_t seed);

/* "NAME:FILE".  CU_ERR_INVALID_TENSOR_LAYOUT when the file's type or shape is
 * not the input's. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_load(struct cuvil_run_io *io,
                                                   const char *text);
/* A folder with input_0.pb, ..., output_0.pb, ...: by the tensors' names
 * where they are ours, else by number. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_test_data(struct cuvil_run_io *io,
                                                        const char *folder);
/* DIR/<output>.npy for each. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_save(
    const struct cuvil_run_io *io, const char *folder);
/* Fills `expected` by the graph's CPU executor. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_reference(
    struct cuvil_run_io *io, const struct cuvil_graph *graph);
/* Whether the graph has these inputs and outputs;
 * CU_ERR_INVALID_TENSOR_LAYOUT names the first that differs. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_same(
    const struct cuvil_run_io *io, const struct cuvil_graph *graph);

/* How much a result may differ: elementwise where atol or rtol is given
 * (|got - expected| <= atol + rtol |expected|), else by the relative L2 norm
 * of the whole output. */
struct cuvil_run_tolerance {
  bool elementwise;
  double atol, rtol;
  double relative_l2;
};
/* One line for each output on `to`; rows are appended to `report` when it is
 * not NULL; CU_ERR_VERIFY_FAILED when one does not pass. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_compare(
    const struct cuvil_run_io *io, const struct cuvil_run_tolerance *tolerance,
    FILE *to, json_t *report);

/* One line for each output: shape, range, mean. */
void cuvil_run_io_describe(const struct cuvil_run_io *io, FILE *to);

/* Plan tensors as a graph declares its inputs or outputs; names borrowed from
 * the graph, the array is the caller's to free. */
CUVIL_MUST_USE enum cuvil_status cuvil_run_io_tensors(
    const struct cuvil_graph *graph, bool outputs,
    struct cuvil_plan_tensor **out);

#endif /* CUVIL_CLI_RUN_IO_H_ */
