/* convergence.c - how fast a search found what it found.
 *
 * One problem: every timed candidate in the order of recording, and the best
 * so far.  Several: each problem's best so far over its final best, as thin
 * lines, with the median and the ninth decile of the problems, where a search
 * that ended keeps its last value.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plots/internal.h"

struct search {
  const char *problem;
  int count;
  double *times; /* in order */
  double best;
};

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void put_one(struct plot_rows *rows, struct plot_page *page) {
  double best = INFINITY;
  double worst = 0;
  int trial = 0, best_at = 0, libraries = 0;
  plot_table(page,
             "trial, time [us], best so far [us], library (1) or own (0), "
             "family, configuration");
  for (int i = 0; i < rows->trial_count; i++) {
    const struct plot_trial *t = &rows->trials[i];
    if (t->reason) continue;
    trial++;
    worst = fmax(worst, t->median);
    libraries += t->library;
    if (t->median < best) {
      best = t->median;
      best_at = trial;
    }
    cuvil_buf_printf(&page->data, "%d %.6g %.6g %d ", trial, t->median * 1e6,
                     best * 1e6, t->library);
    plot_column(page, t->family);
    cuvil_buf_puts(&page->data, " ");
    plot_column(page, t->config);
    cuvil_buf_puts(&page->data, "\n");
  }
  plot_set_number(page, "trials", trial);
  plot_set_number(page, "best", best * 1e6);
  plot_set_number(page, "best_at", best_at);
  plot_set_number(page, "libraries", libraries);
  plot_set_number(page, "y_high", worst * 1e6 * 1.15);
}

/* The median and the ninth decile of the problems, by trial. */
static enum cuvil_status put_quantiles(struct plot_rows *rows,
                                       const struct search *searches,
                                       int problems, int longest,
                                       struct plot_page *page) {
  double *ratios =
      cuvil_arena_array(&rows->arena, (size_t)problems, sizeof *ratios);
  double *best =
      cuvil_arena_array(&rows->arena, (size_t)problems, sizeof *best);
  if (!ratios || !best)
    return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
  for (int p = 0; p < problems; p++)
    best[p] = INFINITY;
  plot_table(page, "trial, median and ninth decile of the problems");
  for (int t = 0; t < longest; t++) {
    for (int p = 0; p < problems; p++) {
      const struct search *s = &searches[p];
      if (t < s->count && s->times[t] < best[p]) best[p] = s->times[t];
      ratios[p] = best[p] / s->best;
    }
    qsort(ratios, (size_t)problems, sizeof *ratios, compare);
    cuvil_buf_printf(&page->data, "%d %.6g %.6g\n", t + 1,
                     (ratios[(problems - 1) / 2] + ratios[problems / 2]) / 2,
                     ratios[(int)ceil(0.9 * problems) - 1]);
  }
  return CUVIL_OK;
}

static void put_search(const struct search *s, struct plot_page *page) {
  double best = INFINITY;
  plot_table(page, "trial, best so far / final best, problem");
  for (int i = 0; i < s->count; i++) {
    best = fmin(best, s->times[i]);
    cuvil_buf_printf(&page->data, "%d %.6g ", i + 1, best / s->best);
    plot_column(page, s->problem);
    cuvil_buf_puts(&page->data, "\n");
  }
}

static enum cuvil_status put_many(struct plot_rows *rows,
                                  const struct plot_names *problems,
                                  struct plot_page *page) {
  int longest = 0;
  double highest = 1;
  struct search *all =
      cuvil_arena_array(&rows->arena, (size_t)problems->count, sizeof *all);
  if (!all) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
  for (int p = 0; p < problems->count; p++) {
    struct search *s = &all[p];
    s->problem = problems->names[p];
    s->best = INFINITY;
    s->times = cuvil_arena_array(&rows->arena, (size_t)rows->trial_count,
                                 sizeof *s->times);
    if (!s->times) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
    for (int i = 0; i < rows->trial_count; i++) {
      const struct plot_trial *t = &rows->trials[i];
      if (t->reason || strcmp(t->problem, s->problem) != 0) continue;
      s->times[s->count++] = t->median;
      s->best = fmin(s->best, t->median);
    }
    if (s->count > longest) longest = s->count;
    highest = fmax(highest, s->times[0] / s->best);
  }
  CUVIL_TRY(put_quantiles(rows, all, problems->count, longest, page));
  for (int p = 0; p < problems->count; p++)
    put_search(&all[p], page);
  plot_set_number(page, "trials", longest);
  plot_set_number(page, "y_high", highest * 1.1);
  return CUVIL_OK;
}

enum cuvil_status plot_convergence(struct plot_rows *rows,
                                   const struct cuvil_plot_request *request,
                                   struct plot_page *page) {
  struct plot_names problems = {0};
  int failed = 0;
  struct cuvil_buf title = {0};
  CUVIL_TRY(plot_rows_keep_newest(rows));
  (void)request;
  for (int i = 0; i < rows->trial_count; i++) {
    if (rows->trials[i].reason)
      failed++;
    else if (plot_names_add(rows, &problems, rows->trials[i].problem) < 0)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
  }
  if (problems.count == 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "convergence: the database holds no timed candidate "
                      "that the options name; tune first (cuvil-tune), or ask "
                      "for less");
  plot_set_number(page, "problems", problems.count);
  plot_note_circumstance(page,
                         &rows->circumstances[rows->trials[0].circumstance]);
  plot_note_l2(page, rows);
  if (problems.count == 1) {
    cuvil_buf_printf(&title, "Convergence: %s", problems.names[0]);
    put_one(rows, page);
  } else {
    cuvil_buf_printf(&title, "Convergence of %d problems", problems.count);
    CUVIL_TRY(put_many(rows, &problems, page));
    cuvil_buf_puts(&page->note,
                   "A search that ended keeps its last value in the "
                   "quantiles. ");
  }
  plot_set_text(page, "title", cuvil_buf_text(&title), 105);
  cuvil_buf_free(&title);
  cuvil_buf_puts(&page->note,
                 "Times are of each candidate's own measurement, "
                 "before the final race. ");
  if (failed > 0)
    cuvil_buf_printf(&page->note, "%d failed candidate%s not counted. ", failed,
                     failed == 1 ? " is" : "s are");
  if (rows->other > 0)
    cuvil_buf_printf(&page->note, "%d row%s of older circumstances left out. ",
                     rows->other, rows->other == 1 ? "" : "s");
  return CUVIL_OK;
}
