/* history.c - winners' times by date and environment.
 *
 * Each race is one point: its winner's median at the time it was recorded.  A
 * line joins the races of one problem in one circumstance, so that it breaks
 * where driver, library or method change: times across such an epoch are not
 * the kernels' doing alone.  Epochs are numbered, marked and explained.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plots/internal.h"

static bool same_epoch(const struct cuvil_env *a, const struct cuvil_env *b) {
  return strcmp(a->driver, b->driver) == 0 && strcmp(a->nvrtc, b->nvrtc) == 0 &&
         strcmp(a->cublaslt, b->cublaslt) == 0 &&
         strcmp(a->cudnn, b->cudnn) == 0;
}

static double winner_time(const struct plot_race *race) {
  for (int i = 0; i < race->participant_count; i++)
    if (race->participants[i].flags & CUVIL_RACE_WINNER)
      return race->participants[i].median;
  return 0;
}

/* "conv": the problem's first word. */
static const char *kind_of(struct plot_rows *rows, const char *problem) {
  return cuvil_arena_strndup(&rows->arena, problem, strcspn(problem, "/ "));
}

/* One table for a kind: a block of lines for each problem and circumstance,
 * blocks parted by an empty line, which breaks the curve. */
static void put_kind(struct plot_rows *rows, const char *kind,
                     struct plot_page *page) {
  char header[128];
  snprintf(header, sizeof header,
           "%.40s: seconds since 1970 (UTC), winner's time [us], problem",
           kind);
  plot_table(page, header);
  for (int i = 0; i < rows->race_count; i++) {
    const struct plot_race *first = &rows->races[i];
    const char *own = kind_of(rows, first->problem);
    bool earlier = !own || strcmp(own, kind) != 0;
    for (int j = 0; j < i && !earlier; j++)
      earlier = rows->races[j].circumstance == first->circumstance &&
                strcmp(rows->races[j].problem, first->problem) == 0;
    if (earlier) continue;
    for (int j = i; j < rows->race_count; j++) {
      const struct plot_race *race = &rows->races[j];
      if (race->circumstance != first->circumstance ||
          strcmp(race->problem, first->problem) != 0)
        continue;
      cuvil_buf_printf(&page->data, "%.3f %.6g ", race->recorded,
                       winner_time(race) * 1e6);
      plot_column(page, race->problem);
      cuvil_buf_puts(&page->data, "\n");
    }
    cuvil_buf_puts(&page->data, "\n");
  }
}

/* Where driver or libraries change, in the order of recording. */
static enum cuvil_status put_epochs(struct plot_rows *rows,
                                    struct plot_page *page) {
  int epochs = 0;
  const struct cuvil_env *now = NULL;
  double *starts = cuvil_arena_array(&rows->arena, (size_t)rows->race_count + 1,
                                     sizeof *starts);
  if (!starts) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
  for (int i = 0; i < rows->race_count; i++) {
    const struct plot_circumstance *c =
        &rows->circumstances[rows->races[i].circumstance];
    if (now && same_epoch(now, &c->env)) continue;
    now = &c->env;
    starts[epochs++] = rows->races[i].recorded;
    if (epochs <= 3) {
      cuvil_buf_printf(&page->note, "Epoch %d: ", epochs);
      plot_note_circumstance(page, c);
    }
  }
  if (epochs > 3)
    cuvil_buf_printf(&page->note, "%d more epochs: cuvil-db show. ",
                     epochs - 3);
  plot_set_numbers(page, "epoch", starts, epochs);
  return CUVIL_OK;
}

enum cuvil_status plot_history(struct plot_rows *rows,
                               const struct cuvil_plot_request *request,
                               struct plot_page *page) {
  struct plot_names kinds = {0}, problems = {0};
  double first = INFINITY, last = 0, low = INFINITY, high = 0;
  struct cuvil_buf title = {0};
  (void)request;
  for (int i = 0; i < rows->race_count; i++) {
    const struct plot_race *race = &rows->races[i];
    const char *kind = kind_of(rows, race->problem);
    if (!kind || plot_names_add(rows, &kinds, kind) < 0 ||
        plot_names_add(rows, &problems, race->problem) < 0)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
    first = fmin(first, race->recorded);
    last = fmax(last, race->recorded);
    low = fmin(low, winner_time(race));
    high = fmax(high, winner_time(race));
  }
  if (rows->race_count == 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "history: the database holds no race that the options "
                      "name; tune first (cuvil-tune), or ask for less");
  if (problems.count == 1)
    cuvil_buf_printf(&title, "History: %s", problems.names[0]);
  else
    cuvil_buf_printf(&title, "History: winners of %d problems, %d races",
                     problems.count, rows->race_count);
  plot_set_text(page, "title", cuvil_buf_text(&title), 105);
  cuvil_buf_free(&title);
  for (int k = 0; k < kinds.count; k++)
    put_kind(rows, kinds.names[k], page);
  plot_set_texts(page, "kind", kinds.names, kinds.count);
  plot_set_number(page, "first", first);
  plot_set_number(page, "last", last);
  plot_set_number(page, "y_low", low * 1e6 / 1.2);
  plot_set_number(page, "y_high", high * 1e6 * 1.4);
  CUVIL_TRY(put_epochs(rows, page));
  plot_note_l2(page, rows);
  if (problems.count == rows->race_count)
    cuvil_buf_puts(&page->note,
                   "Each problem was raced once: there is no history yet. ");
  cuvil_buf_puts(&page->note,
                 "A line joins the races of one problem in one circumstance. ");
  return CUVIL_OK;
}
