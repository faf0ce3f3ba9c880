/* conformance_test.c - ONNX's node tests through the importer and the CPU
 * executor, and through fusion and the problems' references.
 *
 *   conformance_test [-v] [FOLDER [CASE...]]
 *   conformance_test --model MODEL.onnx...   a model's fused problems against
 *                                            its graph, on random inputs
 *
 * One line of TAP for each case that is not refused: a wrong value, or an
 * error other than a refusal by name, fails.  Refusals are counted at the end;
 * -v says each.  A floor under the number of right ones keeps the test from
 * passing by refusing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/run_io.h"
#include "graph/ops.h"
#include "tests/support/conformance.h"

static const char default_folder[] = "/usr/share/libonnx-testdata/data/node";
/* Of the 932 cases of ONNX 1.12; raise them when operators are added. */
enum { LEAST_RIGHT = 450, LEAST_FUSED = 600 };

enum { MAX_OPERATORS = 256 };
struct evidence {
  int right[MAX_OPERATORS]; /* by row of the operator table */
};
struct tally {
  int line, right, refused, wrong;
  struct evidence by_op;
};

static void count(struct tally *tally, const char *how,
                  const struct conformance_case *c,
                  enum conformance_outcome outcome, const char *detail,
                  bool verbose) {
  if (outcome == CONFORMANCE_REFUSED) {
    ++tally->refused;
    if (verbose) printf("# %s refused: %s: %s\n", how, c->name, detail);
    return;
  }
  bool right = outcome == CONFORMANCE_RIGHT;
  if (right)
    ++tally->right;
  else
    ++tally->wrong;
  ++tally->line;
  printf("%s %d - %s %s%s\n", right ? "ok" : "not ok", tally->line, how,
         c->name, c->settled ? " (settled)" : "");
  if (!right) printf("# %s\n", detail);
}

static const struct cuvil_fusion_options ways[] = {
    {CUVIL_FUSION_NONE, CUVIL_PRECISION_MODEL},
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_MODEL},
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16}};
static const char *const way_names[] = {"fused none", "fused medium",
                                        "fused medium fp16"};

/* By operator: cases of a single node that are right. */
static int *evidence(struct evidence *e, const char *op) {
  int count;
  const struct cuvil_op *row = cuvil_op_find(op);
  return row ? &e->right[row - cuvil_op_table(&count)] : NULL;
}

static void add_evidence(struct evidence *e, const struct conformance_case *c,
                         enum conformance_outcome outcome) {
  int *right = evidence(e, c->op);
  if (right && outcome == CONFORMANCE_RIGHT) ++*right;
}

static void run_case(const char *folder, const char *name, bool verbose,
                     struct tally *cpu, struct tally *fused) {
  struct conformance_case c;
  char detail[512] = "";
  enum conformance_outcome outcome =
      conformance_open(folder, name, CONFORMANCE_EITHER, &c, detail);
  if (outcome == CONFORMANCE_RIGHT) outcome = conformance_cpu(&c, detail);
  count(cpu, "cpu", &c, outcome, detail, verbose);
  add_evidence(&cpu->by_op, &c, outcome);
  fused->line = cpu->line;
  int ways_here = getenv("CUVIL_TEST_FULL") ? 3 : 2;
  for (int i = 0; outcome == CONFORMANCE_RIGHT && i < ways_here; ++i) {
    enum conformance_outcome result = conformance_fused(&c, &ways[i], detail);
    if (i == 0 && result == CONFORMANCE_REFUSED && !c.settled) {
      struct conformance_case other;
      char why[512];
      if (conformance_open(folder, name, CONFORMANCE_SETTLED, &other, why) ==
          CONFORMANCE_RIGHT) {
        conformance_close(&c);
        c = other;
        result = conformance_fused(&c, &ways[i], detail);
      } else {
        conformance_close(&other);
      }
    }
    count(fused, way_names[i], &c, result, detail, verbose);
    add_evidence(&fused->by_op, &c, result);
  }
  cpu->line = fused->line;
  conformance_close(&c);
}

/* The operators page says what these cases show: an operator that is said to
 * run on the GPU fuses in some case, one that is not in none. */
static bool page_is_true(const struct tally *cpu, const struct tally *fused) {
  int count;
  bool holds = true;
  const struct cuvil_op *table = cuvil_op_table(&count);
  for (int i = 0; i < count && i < MAX_OPERATORS; ++i) {
    enum cuvil_coverage coverage = cuvil_fusion_coverage(table[i].name);
    bool fuses = fused->by_op.right[i] > 0;
    if (coverage == CUVIL_COVERAGE_CONDITION || !cpu->by_op.right[i] ||
        fuses == (coverage != CUVIL_COVERAGE_CONSTANT))
      continue;
    printf("# docs/operators.md says %s of %s, but %s of its cases fuse\n",
           cuvil_fusion_coverage_name(table[i].name), table[i].name,
           fuses ? "some" : "none");
    holds = false;
  }
  return holds;
}

/* ---- whole models, by hand */
static const struct cuvil_fusion_options model_ways[] = {
    {CUVIL_FUSION_NONE, CUVIL_PRECISION_MODEL},
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_MODEL},
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_FP16},
    {CUVIL_FUSION_MEDIUM, CUVIL_PRECISION_BF16}};

static bool check_way(const struct cuvil_graph *graph, struct cuvil_run_io *io,
                      const struct cuvil_fusion_options *how, int line) {
  struct cuvil_fused *fused = NULL;
  struct cuvil_run_tolerance tolerance = {.relative_l2 = 1e-5};
  if (how->precision == CUVIL_PRECISION_FP16) tolerance.relative_l2 = 1e-2;
  if (how->precision == CUVIL_PRECISION_BF16) tolerance.relative_l2 = 5e-2;
  enum cuvil_status status = cuvil_fuse(graph, how, &fused);
  int tasks = fused ? fused->task_count : 0;
  if (status == CUVIL_OK)
    status =
        cuvil_fused_execute(fused, (const void *const *)io->in, io->out, 0);
  cuvil_fused_destroy(fused);
  if (status == CUVIL_OK)
    status = cuvil_run_io_compare(io, &tolerance, stdout, NULL);
  printf("%s %d - %s %s: %d tasks\n", status == CUVIL_OK ? "ok" : "not ok",
         line, cuvil_fusion_strategy_name(how->strategy),
         cuvil_precision_name(how->precision), tasks);
  if (status != CUVIL_OK) printf("# %s\n", cuvil_last_error());
  fflush(stdout);
  return status == CUVIL_OK;
}

static int check_model(const char *path) {
  struct cuvil_graph *graph = NULL;
  struct cuvil_plan_tensor *inputs = NULL, *outputs = NULL;
  struct cuvil_run_io io = {0};
  int bad = 1;
  printf("# %s\n", path);
  if (cuvil_graph_import(path, NULL, &graph) == CUVIL_OK &&
      cuvil_run_io_tensors(graph, false, &inputs) == CUVIL_OK &&
      cuvil_run_io_tensors(graph, true, &outputs) == CUVIL_OK &&
      cuvil_run_io_create(graph->input_count, inputs, graph->output_count,
                          outputs, 1, &io) == CUVIL_OK &&
      cuvil_run_io_reference(&io, graph) == CUVIL_OK) {
    bad = 0;
    for (size_t i = 0; i < sizeof(model_ways) / sizeof(model_ways[0]); ++i)
      bad += !check_way(graph, &io, &model_ways[i], (int)i + 1);
  } else {
    printf("not ok 1 - %s\n", cuvil_last_error());
  }
  cuvil_run_io_free(&io);
  free(inputs);
  free(outputs);
  cuvil_graph_destroy(graph);
  return bad;
}

int main(int argc, char **argv) {
  cuvil_log_setup("conformance_test", CUVIL_LOG_QUIET);
  if (argc > 2 && strcmp(argv[1], "--model") == 0) {
    int bad = 0;
    for (int i = 2; i < argc; ++i)
      bad += check_model(argv[i]);
    return bad != 0;
  }
  bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
  int at = 1 + verbose, cases;
  const char *folder = at < argc ? argv[at++] : default_folder;
  struct tally cpu = {0}, fused = {0};
  bool all = at >= argc;
  char **names = conformance_list(folder, &cases);
  if (!names) {
    printf("ok 1 # SKIP %s is not there (Debian: libonnx-testdata)\n", folder);
    return 0;
  }
  for (int i = 0; i < cases; ++i) {
    bool chosen = all;
    for (int a = at; a < argc; ++a)
      chosen |= strcmp(argv[a], names[i]) == 0;
    if (chosen) run_case(folder, names[i], verbose, &cpu, &fused);
    free(names[i]);
  }
  free(names);
  printf(
      "# %d cases: CPU %d right, %d refused, %d wrong; fused %d right, %d "
      "refused, %d wrong\n",
      cases, cpu.right, cpu.refused, cpu.wrong, fused.right, fused.refused,
      fused.wrong);
  bool enough =
      !all || (cpu.right >= LEAST_RIGHT && fused.right >= LEAST_FUSED);
  if (all)
    printf("%s %d - at least %d right on the CPU, %d fused\n",
           enough ? "ok" : "not ok", cpu.line + 1, LEAST_RIGHT, LEAST_FUSED);
  bool page = !all || page_is_true(&cpu, &fused);
  if (all)
    printf("%s %d - the operators page says what fuses\n",
           page ? "ok" : "not ok", cpu.line + 2);
  return cpu.wrong || fused.wrong || !enough || !page;
}
