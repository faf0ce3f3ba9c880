/* compile.c - a fused graph becomes a plan.
 *
 * Distinct problems are looked up once; each task gets a program of its own,
 * emitted from its problem's choice, whose modules are compiled together at
 * the end.  Nothing is written here: the plan is a structure in memory until
 * cuvil_plan_write puts it beside its target and renames.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "compiler/internal.h"

struct compile {
  struct cuvil_fused *fused;
  const struct cuvil_compiler_options *options;
  struct cuvil_compiler_report *report;
  struct cuvil_problem_set set;
  struct cuvil_choice *choices; /* by distinct problem */
  struct cuvil_plan *plan;
};

static char *copy_text(const char *text) {
  return strdup(text ? text : "");
}

/* ---- choices */

static enum cuvil_status refuse_untuned(const struct compile *c) {
  const char *first = NULL;
  int untuned = 0;
  for (int i = 0; i < c->set.count; ++i) {
    if (c->choices[i].step != CUVIL_DB_MISS) continue;
    if (!first) first = c->choices[i].text;
    ++untuned;
  }
  if (!untuned) return CUVIL_OK;
  return CUVIL_FAIL(
      CU_ERR_NOT_TUNED,
      "%d of %d problems have no recorded winner (first: %.200s);"
      " run cuvil-tune on the model, or leave --require-tuned out",
      untuned, c->set.count, first);
}

/* Said once and with counts: what stands on something else than a measurement
 * of this GPU with these versions. */
static void warn(const struct compile *c) {
  const struct cuvil_compiler_report *r = c->report;
  int problems = r->problems;
  if (r->by_step[CUVIL_DB_MISS])
    cuvil_log_warning(
        "%d of %d problems have no recorded winner: untuned defaults are used "
        "(run cuvil-tune on the model)",
        r->by_step[CUVIL_DB_MISS], problems);
  if (r->replayed)
    cuvil_log_warning(
        "%d of %d winners come from a recording, not from this "
        "machine",
        r->replayed, problems);
  if (r->by_step[CUVIL_DB_OTHER_DRIVER])
    cuvil_log_warning(
        "%d of %d winners were tuned with another driver or "
        "other libraries",
        r->by_step[CUVIL_DB_OTHER_DRIVER], problems);
  if (r->by_step[CUVIL_DB_OTHER_GPU])
    cuvil_log_warning(
        "%d of %d winners were tuned on another GPU of the "
        "architecture",
        r->by_step[CUVIL_DB_OTHER_GPU], problems);
  if (r->by_step[CUVIL_DB_NEIGHBOUR])
    cuvil_log_warning("%d of %d winners were tuned for neighbouring extents",
                      r->by_step[CUVIL_DB_NEIGHBOUR], problems);
}

static enum cuvil_status choose_all(struct compile *c) {
  CUVIL_TRY(cuvil_fused_problems(c->fused, &c->set));
  c->choices = calloc((size_t)c->set.count + 1, sizeof(*c->choices));
  if (!c->choices)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "%d problems", c->set.count);
  for (int t = c->fused->task_count - 1; t >= 0; --t) {
    int index = c->set.task_problem[t];
    struct cuvil_choice *choice = &c->choices[index];
    if (choice->family) continue;
    CUVIL_TRY(cuvil_choose(c->options, c->set.texts[index],
                           &c->fused->tasks[t].problem, choice));
    ++c->report->by_step[choice->step];
    c->report->replayed += choice->replayed;
  }
  c->report->tasks = c->fused->task_count;
  c->report->problems = c->set.count;
  if (c->options->require_tuned) CUVIL_TRY(refuse_untuned(c));
  warn(c);
  return CUVIL_OK;
}

/* ---- steps */

/* A library's call is tied to the library it was chosen with; our own kernels
 * stand by for another one. */
static enum cuvil_status add_fallback(const struct compile *c,
                                      const struct cuvil_choice *choice,
                                      struct cuvil_plan_step *step) {
  const char *library = choice->family->library;
  const struct cuvil_env *env = c->options->env;
  if (!library) return CUVIL_OK;
  bool cudnn = strcmp(library, "cudnn") == 0;
  step->library_version = copy_text(cudnn ? env->cudnn : env->cublaslt);
  if (!step->library_version)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan steps");
  struct cuvil_choice own = *choice;
  CUVIL_TRY(cuvil_family_fallback(&own.problem, c->options->arch, &own.family,
                                  &own.config));
  return cuvil_choice_emit(c->options, &own, &step->fallback);
}

static enum cuvil_status fill_step(struct compile *c, int task,
                                   struct cuvil_plan_step *step) {
  const struct cuvil_choice *choice = &c->choices[c->set.task_problem[task]];
  CUVIL_TRY(cuvil_choice_emit(c->options, choice, &step->program));
  step->label = copy_text(c->fused->tasks[task].label);
  step->problem = copy_text(choice->text);
  step->family = copy_text(choice->family->id);
  step->config = copy_text(choice->config_text);
  step->origin = copy_text(choice->origin);
  step->expected_seconds = choice->seconds;
  if (!step->label || !step->problem || !step->family || !step->config ||
      !step->origin)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan steps");
  return add_fallback(c, choice, step);
}

static enum cuvil_status make_steps(struct compile *c) {
  struct cuvil_plan *plan = c->plan;
  plan->steps = calloc((size_t)c->fused->task_count + 1, sizeof(*plan->steps));
  if (!plan->steps) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan steps");
  for (int t = 0; t < c->fused->task_count; ++t) {
    ++plan->step_count;
    CUVIL_TRY(fill_step(c, t, &plan->steps[t]));
  }
  return CUVIL_OK;
}

static enum cuvil_status compile_steps(struct compile *c) {
  struct cuvil_plan *plan = c->plan;
  int count = 0;
  struct cuvil_program **programs =
      calloc(2 * (size_t)plan->step_count + 1, sizeof(*programs));
  if (!programs) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan steps");
  for (int s = 0; s < plan->step_count; ++s) {
    programs[count++] = plan->steps[s].program;
    if (plan->steps[s].fallback) programs[count++] = plan->steps[s].fallback;
  }
  enum cuvil_status status =
      cuvil_compile_programs(programs, count, c->options, c->report);
  free(programs);
  return status;
}

/* DIR/<family>-<hash>.cu, one for each distinct kernel. */
static enum cuvil_status emit_sources(const struct compile *c) {
  const char *dir = c->options->emit_source_dir;
  if (!dir) return CUVIL_OK;
  CUVIL_TRY(cuvil_make_dirs(dir));
  struct cuvil_buf path = {0}, text = {0};
  enum cuvil_status status = CUVIL_OK;
  for (int s = 0; s < c->plan->step_count; ++s) {
    const struct cuvil_plan_step *step = &c->plan->steps[s];
    for (int m = 0; m < step->program->module_count; ++m) {
      const struct cuvil_module *module = &step->program->modules[m];
      if (!module->source) continue;
      cuvil_buf_clear(&path);
      cuvil_buf_clear(&text);
      cuvil_buf_printf(&path, "%s/%s-%.12s.cu", dir, step->family,
                       module->hash);
      cuvil_buf_printf(&text, "// %s\n// %s %s\n// nvrtc -arch=%s %s\n%s",
                       step->problem, step->family, step->config, module->arch,
                       module->options ? module->options : "", module->source);
      CUVIL_TRY_GOTO(cuvil_buf_status(&path));
      CUVIL_TRY_GOTO(cuvil_buf_status(&text));
      CUVIL_TRY_GOTO(cuvil_file_write_atomic(path.data, text.data, text.size));
    }
  }
fail:
  cuvil_buf_free(&path);
  cuvil_buf_free(&text);
  return status;
}

/* ---- the ends of the plan */

static enum cuvil_status describe_io(const struct cuvil_graph *graph,
                                     const int *values, int count,
                                     struct cuvil_plan_tensor **out,
                                     int *out_count) {
  *out = calloc((size_t)count + 1, sizeof(**out));
  if (!*out) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan tensors");
  for (int i = 0; i < count; ++i) {
    const struct cuvil_value *value = &graph->values[values[i]];
    struct cuvil_plan_tensor *tensor = &(*out)[i];
    ++*out_count;
    tensor->name = copy_text(value->name);
    if (!tensor->name) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan tensors");
    tensor->dtype = value->dtype;
    tensor->rank = value->rank;
    for (int d = 0; d < value->rank; ++d)
      tensor->dims[d] = value->dims[d];
    tensor->bytes =
        (uint64_t)cuvil_value_elements(value) * cuvil_dtype_size(value->dtype);
  }
  return CUVIL_OK;
}

static enum cuvil_status describe(struct compile *c) {
  struct cuvil_plan *plan = c->plan;
  const struct cuvil_graph *graph = c->fused->graph;
  const struct cuvil_fusion_options *fusion = &c->fused->options;
  snprintf(plan->arch, sizeof(plan->arch), "%s", c->options->arch->name);
  plan->model = copy_text(graph->path ? graph->path : graph->name);
  plan->fusion = copy_text(cuvil_fusion_strategy_name(fusion->strategy));
  plan->precision = copy_text(cuvil_precision_name(fusion->precision));
  if (!plan->model || !plan->fusion || !plan->precision)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan");
  CUVIL_TRY(describe_io(graph, graph->inputs, graph->input_count, &plan->inputs,
                        &plan->input_count));
  return describe_io(graph, graph->outputs, graph->output_count, &plan->outputs,
                     &plan->output_count);
}

enum cuvil_status cuvil_compile_fused(
    struct cuvil_fused *fused, const struct cuvil_compiler_options *options,
    struct cuvil_plan **out_plan, struct cuvil_compiler_report *out_report) {
  *out_plan = NULL;
  memset(out_report, 0, sizeof(*out_report));
  struct compile c = {.fused = fused, .options = options, .report = out_report};
  enum cuvil_status status = CUVIL_OK;
  c.plan = calloc(1, sizeof(*c.plan));
  if (!c.plan) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "plan");
  CUVIL_TRY_GOTO(describe(&c));
  CUVIL_TRY_GOTO(choose_all(&c));
  CUVIL_TRY_GOTO(make_steps(&c));
  CUVIL_TRY_GOTO(emit_sources(&c));
  CUVIL_TRY_GOTO(compile_steps(&c));
  CUVIL_TRY_GOTO(cuvil_place(fused, c.plan));
  free(c.choices);
  *out_plan = c.plan;
  return CUVIL_OK;
fail:
  free(c.choices);
  cuvil_plan_destroy(c.plan);
  return status;
}
