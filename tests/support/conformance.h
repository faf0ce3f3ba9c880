/* conformance.h - ONNX's node tests: folders of a model, inputs and outputs.
 *
 *   <folder>/test_add/model.onnx
 *   <folder>/test_add/test_data_set_0/input_0.pb ... output_0.pb ...
 *
 * Debian's libonnx-testdata has them under
 * /usr/share/libonnx-testdata/data/node.  Many of them give by an input what
 * real models give by a constant (the shape of a Reshape, the axes of a
 * ReduceSum, the weights of a Conv), and ask for outputs that no inference
 * reads (a LayerNormalization's statistics).  So there is a second form of each
 * case: every input but the first made an initializer, and of a single node
 * other than Split only the first output.
 */
#ifndef CUVIL_TESTS_SUPPORT_CONFORMANCE_H_
#define CUVIL_TESTS_SUPPORT_CONFORMANCE_H_

#include "fusion/fusion.h"
#include "graph/graph.h"

enum { CONFORMANCE_MAX_TENSORS = 32 };

/* One case, read and imported. */
struct conformance_case {
  char name[128], folder[512];
  char op[64];                   /* of its only node; "" for several */
  bool settled;                  /* the second form */
  struct cuvil_graph *graph;     /* NULL when refused */
  int input_count, output_count; /* of the graph */
  void *inputs[CONFORMANCE_MAX_TENSORS];
  void *expected[CONFORMANCE_MAX_TENSORS];
  void *outputs[CONFORMANCE_MAX_TENSORS]; /* room for results */
};

enum conformance_outcome {
  CONFORMANCE_RIGHT,
  CONFORMANCE_REFUSED, /* by name, before anything ran */
  CONFORMANCE_WRONG    /* a wrong value, or an error that is no refusal */
};

/* The names of the cases in `folder`, sorted; NULL when it cannot be read.
 * Free each and the array. */
char **conformance_list(const char *folder, int *out_count);
enum conformance_form {
  CONFORMANCE_SHIPPED,
  CONFORMANCE_SETTLED, /* REFUSED where that is no other form */
  CONFORMANCE_EITHER   /* settled where the importer refuses it as shipped */
};
/* Opens data set 0.  RIGHT: the case is there to be run.  `detail` has the
 * reason otherwise, in one line. */
enum conformance_outcome conformance_open(const char *folder, const char *name,
                                          enum conformance_form form,
                                          struct conformance_case *out,
                                          char detail[512]);
void conformance_close(struct conformance_case *c);
/* Runs the graph on the CPU executor and compares. */
enum conformance_outcome conformance_cpu(struct conformance_case *c,
                                         char detail[512]);
/* Fuses it and runs the problems by their CPU references. */
enum conformance_outcome conformance_fused(
    struct conformance_case *c, const struct cuvil_fusion_options *options,
    char detail[512]);
/* Neighbouring numbers of the inputs stay apart in fp16. */
bool conformance_half_holds(const struct conformance_case *c);
/* Holds c->outputs against c->expected: elementwise, with room for the type.
 * `half`: computed in fp16. */
enum conformance_outcome conformance_compare(const struct conformance_case *c,
                                             bool half, char detail[512]);

#endif /* CUVIL_TESTS_SUPPORT_CONFORMANCE_H_ */
