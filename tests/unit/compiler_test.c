/* compiler_test.c - choices, memory and plans, without a GPU.
 *
 * The memory plan is tried by running the problems' references in it: every
 * step reads and writes where its bindings say, its workspace is filled with
 * garbage before and after, and the outputs must still be the graph's.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "compiler/internal.h"
#include "graph/execute.h"
#include "problem/reference.h"
#include "tests/support/db_sample.h"
#include "tests/support/net_transformer.h"

#define MUST(expression)                                   \
  do {                                                     \
    if ((expression) != CUVIL_OK)                          \
      fail_msg("%s: %s", #expression, cuvil_last_error()); \
  } while (0)

static struct cuvil_compiler_options defaults(void) {
  static struct cuvil_env env = {.arch = "sm_90"};
  return (struct cuvil_compiler_options){.arch = cuvil_arch_find("sm_90"),
                                         .env = &env};
}

/* ---- intervals */

static void intervals_do_not_overlap(void **state) {
  (void)state;
  struct cuvil_rng rng = {.state = 11};
  for (int round = 0; round < 20; ++round) {
    enum { COUNT = 150, STEPS = 60 };
    struct cuvil_interval list[COUNT];
    uint64_t living[STEPS] = {0}, peak = 0, sum = 0;
    for (int i = 0; i < COUNT; ++i) {
      int first = (int)cuvil_rng_below(&rng, STEPS);
      int last = first + (int)cuvil_rng_below(&rng, 6);
      if (last >= STEPS) last = STEPS - 1;
      list[i] = (struct cuvil_interval){first, last,
                                        1 + cuvil_rng_below(&rng, 5000), 0};
      uint64_t bytes = (list[i].bytes + 255) / 256 * 256;
      sum += bytes;
      for (int s = first; s <= last; ++s) {
        living[s] += bytes;
        if (living[s] > peak) peak = living[s];
      }
    }
    uint64_t total = cuvil_place_intervals(list, COUNT);
    assert_true(total >= peak);
    assert_true(total < sum / 2); /* it does share */
    for (int i = 0; i < COUNT; ++i) {
      assert_int_equal(list[i].offset % 256, 0);
      assert_true(list[i].offset + list[i].bytes <= total);
      for (int j = 0; j < i; ++j) {
        bool meet =
            list[i].first <= list[j].last && list[j].first <= list[i].last;
        bool overlap = list[i].offset < list[j].offset + list[j].bytes &&
                       list[j].offset < list[i].offset + list[i].bytes;
        assert_false(meet && overlap);
      }
    }
  }
}

/* ---- memory, by running in it */

struct memory {
  char *arena;
  const struct cuvil_plan *plan;
  void **inputs, **outputs;
};

static void *address(const struct memory *memory,
                     const struct cuvil_binding *binding) {
  switch (binding->place) {
    case CUVIL_PLACE_INPUT:
      return (char *)memory->inputs[binding->index] + binding->offset;
    case CUVIL_PLACE_OUTPUT:
      return (char *)memory->outputs[binding->index] + binding->offset;
    case CUVIL_PLACE_WEIGHTS:
      return (char *)memory->plan->weights + binding->offset;
    case CUVIL_PLACE_ARENA:
      return memory->arena + binding->offset;
    default:
      return NULL;
  }
}

static void spoil_workspace(const struct memory *memory, int s) {
  const struct cuvil_plan_step *step = &memory->plan->steps[s];
  for (int b = 0; b < step->program->buffer_count; ++b)
    if (step->program->buffers[b].role == CUVIL_BUFFER_WORKSPACE)
      memset(address(memory, &step->bindings[b]), 0xcd,
             step->program->buffers[b].bytes);
}

/* The elements that the operand's dimensions reach: what lies between them is
 * another's. */
static void store_operand(const struct cuvil_problem *problem, int operand,
                          const double *values, void *target) {
  const struct cuvil_operand *o = &problem->operands[operand];
  int64_t points = 1;
  for (int i = 0; i < o->rank; ++i)
    points *= cuvil_operand_extent(problem, operand, i);
  for (int64_t point = 0; point < points; ++point) {
    int64_t rest = point, at = 0;
    for (int i = o->rank - 1; i >= 0; --i) {
      int64_t extent = cuvil_operand_extent(problem, operand, i);
      at += rest % extent * o->strides[i];
      rest /= extent;
    }
    cuvil_store(o->dtype, target, (size_t)at, values[at]);
  }
}

static void run_step(const struct memory *memory,
                     const struct cuvil_problem *problem, int s) {
  const struct cuvil_plan_step *step = &memory->plan->steps[s];
  void *operands[CUVIL_MAX_OPERANDS] = {NULL};
  double *values[CUVIL_MAX_OPERANDS] = {NULL};
  double *bounds[CUVIL_MAX_OPERANDS] = {NULL};
  for (int b = 0; b < step->program->buffer_count; ++b)
    if (step->program->buffers[b].role == CUVIL_BUFFER_OPERAND)
      operands[step->program->buffers[b].operand] =
          address(memory, &step->bindings[b]);
  for (int o = 0; o < problem->operand_count; ++o)
    assert_non_null(operands[o]);
  int out = problem->output;
  int64_t count = cuvil_operand_elements(problem, out);
  values[out] = calloc((size_t)count + 1, sizeof(double));
  bounds[out] = calloc((size_t)count + 1, sizeof(double));
  MUST(cuvil_problem_reference(problem, (const void *const *)operands, values,
                               bounds, 1));
  store_operand(problem, out, values[out], operands[out]);
  free(values[out]);
  free(bounds[out]);
}

/* A plan of emitted programs, nothing compiled. */
static struct cuvil_plan *emit_plan(struct cuvil_fused *fused) {
  struct cuvil_compiler_options options = defaults();
  struct cuvil_plan *plan = calloc(1, sizeof(*plan));
  plan->steps = calloc((size_t)fused->task_count + 1, sizeof(*plan->steps));
  for (int t = 0; t < fused->task_count; ++t) {
    struct cuvil_choice choice;
    MUST(cuvil_choose(&options, "", &fused->tasks[t].problem, &choice));
    MUST(cuvil_choice_emit(&options, &choice, &plan->steps[t].program));
    ++plan->step_count;
  }
  MUST(cuvil_place(fused, plan));
  return plan;
}

static double relative_l2(const float *got, const float *expected,
                          int64_t count) {
  double error = 0, norm = 1e-30;
  for (int64_t i = 0; i < count; ++i) {
    error += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
    norm += (double)expected[i] * expected[i];
  }
  return sqrt(error / norm);
}

static void run_in_plan(struct net *net, enum cuvil_fusion_strategy strategy) {
  struct cuvil_fusion_options options = {strategy, CUVIL_PRECISION_FP32};
  struct cuvil_fused *fused;
  const struct cuvil_graph *graph = net->graph;
  MUST(cuvil_fuse(graph, &options, &fused));
  struct cuvil_plan *plan = emit_plan(fused);
  void *inputs[8] = {NULL}, *outputs[16] = {NULL}, *expected[16] = {NULL};
  struct memory memory = {malloc(plan->arena_bytes + 1), plan, inputs, outputs};
  memset(memory.arena, 0xff, plan->arena_bytes);
  struct cuvil_rng rng = {.state = 5};
  for (int i = 0; i < graph->input_count; ++i) {
    int64_t count = cuvil_value_elements(&graph->values[graph->inputs[i]]);
    float *data = inputs[i] = malloc((size_t)count * sizeof(float));
    for (int64_t j = 0; j < count; ++j)
      data[j] = (float)cuvil_rng_normal(&rng);
  }
  for (int i = 0; i < graph->output_count; ++i) {
    int64_t count = cuvil_value_elements(&graph->values[graph->outputs[i]]);
    outputs[i] = malloc((size_t)count * sizeof(float));
    expected[i] = malloc((size_t)count * sizeof(float));
    memset(outputs[i], 0xff, (size_t)count * sizeof(float));
  }
  MUST(cuvil_graph_execute(graph, (const void *const *)inputs, expected, 1));
  for (int t = 0; t < fused->task_count; ++t) {
    spoil_workspace(&memory, t);
    run_step(&memory, &fused->tasks[t].problem, t);
    spoil_workspace(&memory, t);
  }
  for (int i = 0; i < graph->output_count; ++i) {
    int64_t count = cuvil_value_elements(&graph->values[graph->outputs[i]]);
    double error = relative_l2(outputs[i], expected[i], count);
    if (!(error <= 1e-5)) fail_msg("output %d differs by %g", i, error);
  }
  for (int i = 0; i < 8; ++i)
    free(inputs[i]);
  for (int i = 0; i < 16; ++i) {
    free(outputs[i]);
    free(expected[i]);
  }
  free(memory.arena);
  cuvil_plan_destroy(plan);
  cuvil_fused_destroy(fused);
}

static void memory_is_shared_and_right(void **state) {
  (void)state;
  for (uint64_t seed = 3000; seed < 3040; ++seed) {
    struct net net;
    net_random(&net, seed, 4 + (int)(seed % 12));
    if (net.graph->node_count > 0)
      run_in_plan(&net, (enum cuvil_fusion_strategy)(seed % 3));
    net_end(&net);
  }
}

/* Views of joined projections, parts of concatenations, outputs in between. */
static void views_are_where_they_are_read(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    struct net net;
    net_random_transformer(&net, seed);
    run_in_plan(&net, (enum cuvil_fusion_strategy)(seed % 3));
    net_end(&net);
  }
}

static void resnet_arena_is_small(void **state) {
  (void)state;
  struct net net;
  net_resnet50(&net, 1, 224, 64);
  struct cuvil_fusion_options options = {CUVIL_FUSION_MEDIUM,
                                         CUVIL_PRECISION_FP16};
  struct cuvil_fused *fused;
  MUST(cuvil_fuse(net.graph, &options, &fused));
  struct cuvil_plan *plan = emit_plan(fused);
  uint64_t locals = 0, largest = 0;
  for (int t = 0; t < fused->tensor_count; ++t) {
    const struct cuvil_tensor *tensor = &fused->tensors[t];
    if (tensor->kind != CUVIL_TENSOR_LOCAL || tensor->alias >= 0) continue;
    locals += tensor->bytes;
    if (tensor->bytes > largest) largest = tensor->bytes;
  }
  /* Three large tensors live at once: a block's input, its branch, its sum. */
  assert_true(plan->arena_bytes >= largest);
  assert_true(plan->arena_bytes < locals / 4);
  /* 25.5 million weights in fp16, biases in fp32. */
  assert_in_range(plan->weights_bytes, 51000000, 52000000);
  cuvil_plan_destroy(plan);
  cuvil_fused_destroy(fused);
  net_end(&net);
}

/* ---- choices */

/* A product of fp16 matrices, and a database that holds races of it. */
static struct sample_problem product(int m) {
  struct sample_problem p;
  struct cuvil_problem problem;
  struct cuvil_buf signature = {0};
  snprintf(p.text, sizeof(p.text),
           "gemm/1 m=%d n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] "
           "acc=f32",
           m);
  MUST(cuvil_problem_parse(p.text, &problem));
  cuvil_problem_signature(&problem, &signature);
  snprintf(p.signature, sizeof(p.signature), "%s", cuvil_buf_text(&signature));
  cuvil_buf_free(&signature);
  return p;
}

static void choose(const struct cuvil_compiler_options *options, int m,
                   struct cuvil_choice *out) {
  struct sample_problem p = product(m);
  struct cuvil_problem problem;
  MUST(cuvil_problem_parse(p.text, &problem));
  MUST(cuvil_choose(options, p.text, &problem, out));
}

/* Another point of the default's family that may be compiled. */
static void other_config(const struct cuvil_choice *base, char out[1024]) {
  const struct cuvil_space *space;
  struct cuvil_config config;
  MUST(cuvil_family_space(base->family, &space));
  struct cuvil_query query = {&base->problem, cuvil_arch_find("sm_90"), space};
  for (uint64_t i = 0; i < cuvil_space_size(space); ++i) {
    struct cuvil_buf text = {0};
    cuvil_space_point(space, i, &config);
    if (!cuvil_family_allows(base->family, &query, &config, false, NULL, NULL))
      continue;
    cuvil_config_print(space, &config, &text);
    snprintf(out, 1024, "%s", cuvil_buf_text(&text));
    cuvil_buf_free(&text);
    if (strcmp(out, base->config_text) != 0) return;
  }
  fail_msg("no other point");
}

/* A race of one winner against a default twice as slow. */
static void add_race(struct cuvil_db *db,
                     const struct cuvil_db_context *context,
                     const struct sample_problem *problem, const char *family,
                     int version, const char *config, double seconds) {
  double won[7], lost[7];
  for (int r = 0; r < 7; ++r) {
    won[r] = seconds;
    lost[r] = 2 * seconds;
  }
  const struct cuvil_db_participant participants[2] = {
      {.family = family,
       .family_version = version,
       .config = config,
       .flags = CUVIL_RACE_WINNER | CUVIL_RACE_TIE,
       .seconds = won,
       .median = seconds,
       .ratio = 1,
       .ratio_low = 1,
       .ratio_high = 1},
      {.family = "gemm_naive",
       .family_version = 1,
       .config = "",
       .flags = CUVIL_RACE_DEFAULT,
       .seconds = lost,
       .median = 2 * seconds,
       .ratio = 2,
       .ratio_low = 2,
       .ratio_high = 2}};
  struct cuvil_db_race race = {.problem = problem->text,
                               .signature = problem->signature,
                               .rounds = 7,
                               .participant_count = 2,
                               .participants = participants,
                               .converged = true};
  MUST(cuvil_db_add_race(db, context, &race));
}

static void the_cache_is_asked(void **state) {
  (void)state;
  struct cuvil_compiler_options options = defaults();
  struct cuvil_choice choice, fallback;
  struct cuvil_db *db;
  char config[1024];
  choose(&options, 96, &fallback);
  assert_string_equal(fallback.origin, "default");
  assert_int_equal(fallback.step, CUVIL_DB_MISS);
  other_config(&fallback, config);

  MUST(cuvil_db_open(sample_path(0), CUVIL_DB_WRITE, &db));
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  struct sample_problem p = product(96);
  add_race(db, &context, &p, fallback.family->id, fallback.family->version,
           config, 4e-6);
  options.db = db;
  options.env = &sample_env;
  choose(&options, 96, &choice);
  assert_string_equal(choice.origin, "exact");
  assert_string_equal(choice.config_text, config);
  assert_true(choice.seconds == 4e-6);
  assert_false(choice.replayed);

  struct cuvil_env newer = sample_env;
  snprintf(newer.driver, sizeof(newer.driver), "999.1");
  options.env = &newer;
  choose(&options, 96, &choice);
  assert_int_equal(choice.step, CUVIL_DB_OTHER_DRIVER);
  assert_string_equal(choice.config_text, config);

  options.env = &sample_env;
  choose(&options, 160, &choice); /* same signature, other extents */
  assert_int_equal(choice.step, CUVIL_DB_NEIGHBOUR);
  assert_true(choice.seconds == 0);
  choose(&options, 97, &choice); /* another divisibility class */
  assert_int_equal(choice.step, CUVIL_DB_MISS);
  cuvil_db_close(db);
}

static void rows_that_no_longer_hold_are_passed_over(void **state) {
  (void)state;
  struct cuvil_compiler_options options = defaults();
  struct cuvil_choice choice, fallback;
  struct cuvil_db *db;
  struct sample_problem p = product(96);
  struct cuvil_db_context context = sample_context(&sample_env, "replayed");
  choose(&options, 96, &fallback);
  MUST(cuvil_db_open(sample_path(1), CUVIL_DB_WRITE, &db));
  add_race(db, &context, &p, "family_of_old", 1, "tile=64", 1e-6);
  add_race(db, &context, &p, fallback.family->id, fallback.family->version,
           "tile=-3", 2e-6);
  add_race(db, &context, &p, fallback.family->id, fallback.family->version + 1,
           fallback.config_text, 3e-6);
  add_race(db, &context, &p, "gemm_naive", 1, "", 3e-6);
  options.db = db;
  options.env = &sample_env;
  choose(&options, 96, &choice);
  assert_int_equal(choice.step, CUVIL_DB_MISS);
  assert_string_equal(choice.config_text, fallback.config_text);
  add_race(db, &context, &p, fallback.family->id, fallback.family->version,
           fallback.config_text, 9e-6);
  choose(&options, 96, &choice);
  assert_int_equal(choice.step, CUVIL_DB_EXACT);
  assert_true(choice.replayed);
  assert_string_equal(choice.origin, "exact, replayed");
  cuvil_db_close(db);
}

/* ---- the whole way */

static void small_net(struct net *net) {
  net_begin(net, 21);
  int x = net_input(net, 2, (int64_t[]){4, 24});
  int h = net_unary(net, "Relu", net_gemm(net, x, 24, false));
  h = net_unary(net, "Relu", net_gemm(net, h, 24, false));
  net_output(net, net_gemm(net, h, 24, false));
  net_finish(net);
}

static int files_in(const char *folder, const char *suffix) {
  DIR *dir = opendir(folder);
  int count = 0;
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    size_t length = strlen(entry->d_name), tail = strlen(suffix);
    count +=
        length > tail && strcmp(entry->d_name + length - tail, suffix) == 0;
  }
  closedir(dir);
  return count;
}

static void untuned_is_refused_when_asked(void **state) {
  (void)state;
  struct net net;
  struct cuvil_fused *fused;
  struct cuvil_plan *plan;
  struct cuvil_compiler_report report;
  struct cuvil_fusion_options fusion = {CUVIL_FUSION_MEDIUM,
                                        CUVIL_PRECISION_FP32};
  small_net(&net);
  MUST(cuvil_fuse(net.graph, &fusion, &fused));
  struct cuvil_compiler_options options = defaults();
  options.require_tuned = true;
  assert_int_equal(cuvil_compile_fused(fused, &options, &plan, &report),
                   CU_ERR_NOT_TUNED);
  assert_null(plan);
  assert_non_null(strstr(cuvil_last_error(), "2 of 2 problems"));
  cuvil_fused_destroy(fused);
  net_end(&net);
}

static void a_library_has_a_stand_in(void **state) {
  (void)state;
  struct net net;
  struct cuvil_fused *fused;
  struct cuvil_plan *plan;
  struct cuvil_compiler_report report;
  struct cuvil_fusion_options fusion = {CUVIL_FUSION_MEDIUM,
                                        CUVIL_PRECISION_FP16};
  struct cuvil_compiler_options options = defaults();
  struct cuvil_db *db;
  const struct cuvil_family *library = cuvil_family_find("gemm_cublaslt");
  assert_non_null(library);
  small_net(&net);
  MUST(cuvil_fuse(net.graph, &fusion, &fused));
  /* The second task is a product between two of its kind. */
  struct cuvil_problem_set set;
  MUST(cuvil_fused_problems(fused, &set));
  int product_task = 2;
  struct cuvil_query query = {&fused->tasks[product_task].problem, options.arch,
                              NULL};
  struct cuvil_config config;
  struct cuvil_buf text = {0}, signature = {0};
  MUST(cuvil_family_space(library, &query.space));
  library->default_config(&query, &config);
  cuvil_config_print(query.space, &config, &text);
  cuvil_problem_signature(query.problem, &signature);
  struct sample_problem p;
  snprintf(p.text, sizeof(p.text), "%s",
           set.texts[set.task_problem[product_task]]);
  snprintf(p.signature, sizeof(p.signature), "%s", cuvil_buf_text(&signature));
  assert_string_equal(p.text, set.texts[set.task_problem[product_task]]);
  struct cuvil_db_context context = sample_context(&sample_env, "measured");
  MUST(cuvil_db_open(sample_path(5), CUVIL_DB_WRITE, &db));
  add_race(db, &context, &p, library->id, library->version,
           cuvil_buf_text(&text), 3e-6);
  options.db = db;
  options.env = &sample_env;
  MUST(cuvil_compile_fused(fused, &options, &plan, &report));
  const struct cuvil_plan_step *step = &plan->steps[product_task];
  assert_string_equal(step->family, "gemm_cublaslt");
  assert_string_equal(step->library_version, sample_env.cublaslt);
  assert_non_null(step->fallback);
  assert_int_equal(step->fallback->steps[0].kind, CUVIL_STEP_LAUNCH);
  assert_non_null(step->fallback->modules[0].cubin);
  assert_null(plan->steps[0].fallback);
  MUST(cuvil_plan_check(plan, "plan"));
  cuvil_plan_destroy(plan);
  cuvil_db_close(db);
  cuvil_buf_free(&text);
  cuvil_buf_free(&signature);
  cuvil_fused_destroy(fused);
  net_end(&net);
}

static void a_plan_is_made_and_read_back(void **state) {
  (void)state;
  struct net net;
  struct cuvil_fused *fused;
  struct cuvil_plan *plan, *back;
  struct cuvil_compiler_report report;
  struct cuvil_fusion_options fusion = {CUVIL_FUSION_MEDIUM,
                                        CUVIL_PRECISION_FP32};
  char cubins[600], sources[600], path[600];
  snprintf(cubins, sizeof(cubins), "%s.cubins", sample_path(2));
  snprintf(sources, sizeof(sources), "%s.src", sample_path(3));
  snprintf(path, sizeof(path), "%s.plan", sample_path(4));
  small_net(&net);
  MUST(cuvil_fuse(net.graph, &fusion, &fused));
  struct cuvil_compiler_options options = defaults();
  options.cubin_dir = cubins;
  options.emit_source_dir = sources;
  MUST(cuvil_compile_fused(fused, &options, &plan, &report));
  assert_int_equal(report.tasks, 3);
  assert_int_equal(report.problems, 2);
  assert_int_equal(report.by_step[CUVIL_DB_MISS], 2);
  assert_true(report.compiled >= 1);
  assert_int_equal(report.from_cubin_cache, 0);
  assert_true(files_in(sources, ".cu") >= 1);
  MUST(cuvil_plan_check(plan, "plan"));
  MUST(cuvil_plan_write(plan, path));
  cuvil_plan_destroy(plan);

  MUST(cuvil_plan_read(path, &back));
  assert_string_equal(back->arch, "sm_90");
  assert_string_equal(back->precision, "fp32");
  assert_string_equal(back->fusion, "medium");
  assert_int_equal(back->step_count, 3);
  assert_string_equal(back->steps[0].origin, "default");
  assert_int_equal(back->input_count, 1);
  assert_int_equal(back->outputs[0].bytes, 4 * 24 * 4);
  cuvil_plan_destroy(back);

  /* Again: every kernel from the cache, one job as well as many. */
  options.jobs = 1;
  MUST(cuvil_compile_fused(fused, &options, &plan, &report));
  assert_int_equal(report.compiled, 0);
  assert_true(report.from_cubin_cache >= 1);
  cuvil_plan_destroy(plan);
  cuvil_fused_destroy(fused);
  net_end(&net);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(intervals_do_not_overlap),
      cmocka_unit_test(memory_is_shared_and_right),
      cmocka_unit_test(views_are_where_they_are_read),
      cmocka_unit_test(resnet_arena_is_small),
      cmocka_unit_test(the_cache_is_asked),
      cmocka_unit_test(rows_that_no_longer_hold_are_passed_over),
      cmocka_unit_test(untuned_is_refused_when_asked),
      cmocka_unit_test(a_library_has_a_stand_in),
      cmocka_unit_test(a_plan_is_made_and_read_back),
  };
  cuvil_log_setup("compiler_test", CUVIL_LOG_QUIET);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
