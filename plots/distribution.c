/* distribution.c - of one problem: where its candidates lie, and how much the
 * finalists vary.
 *
 * Upper panel: a histogram of all candidates' medians in bins of equal ratio,
 * own kernels and libraries side by side.  Lower panel: the cumulative
 * distribution of the rounds of the final race, for its fastest participants;
 * rounds are interleaved, so these may be compared.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plots/internal.h"

enum { BINS = 30, CURVES = 6 };

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The winner, a library's first choice, the default; the others after. */
static int rank(const struct plot_participant *p) {
  return p->flags & CUVIL_RACE_WINNER          ? 0
         : p->flags & CUVIL_RACE_LIBRARY_FIRST ? 1
         : p->flags & CUVIL_RACE_DEFAULT       ? 2
                                               : 3;
}

static int compare_participants(const void *a, const void *b) {
  const struct plot_participant *p = a, *q = b;
  if (rank(p) != rank(q)) return rank(p) - rank(q);
  return (p->median > q->median) - (p->median < q->median);
}

static void put_histogram(const struct plot_rows *rows,
                          struct plot_page *page) {
  double low = INFINITY, high = 0;
  int own[BINS] = {0}, library[BINS] = {0};
  for (int i = 0; i < rows->trial_count; i++) {
    if (rows->trials[i].reason) continue;
    low = fmin(low, rows->trials[i].median);
    high = fmax(high, rows->trials[i].median);
  }
  /* Never a bin of no width. */
  double step = fmax(log(high / low), 0.01) / BINS;
  for (int i = 0; i < rows->trial_count; i++) {
    const struct plot_trial *t = &rows->trials[i];
    if (t->reason) continue;
    int bin = (int)(log(t->median / low) / step);
    if (bin >= BINS) bin = BINS - 1;
    (t->library ? library : own)[bin]++;
  }
  plot_set_number(page, "all_low", low * 1e6);
  plot_set_number(page, "all_high", low * exp(BINS * step) * 1e6);
  plot_table(page, "bin from [us], to [us], own candidates, library's");
  for (int b = 0; b < BINS; b++)
    cuvil_buf_printf(&page->data, "%.6g %.6g %d %d\n",
                     low * exp(b * step) * 1e6, low * exp((b + 1) * step) * 1e6,
                     own[b], library[b]);
}

static void put_curve_name(const struct plot_participant *p, int place,
                           char *out, size_t size) {
  static const char *const words[] = {"winner", "library first", "default"};
  int r = rank(p);
  if (r < 3)
    snprintf(out, size, "%.40s (%s)", p->family, words[r]);
  else
    snprintf(out, size, "%.40s (%s%d)", p->family,
             p->flags & CUVIL_RACE_TIE ? "tie " : "", place);
}

/* What the curves span: all but the slowest twentieth of each. */
struct span {
  double low, high;
  int beyond; /* rounds that are slower */
};

static enum cuvil_status put_curve(struct plot_rows *rows,
                                   const struct plot_participant *p, int rounds,
                                   struct plot_page *page, struct span *span) {
  int count = 0;
  double *sorted =
      cuvil_arena_array(&rows->arena, (size_t)rounds + 1, sizeof *sorted);
  if (!sorted) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
  for (int r = 0; r < rounds; r++)
    if (p->seconds[r] > 0) sorted[count++] = p->seconds[r];
  qsort(sorted, (size_t)count, sizeof *sorted, compare);
  plot_table(page, "time [us], share of the rounds, configuration");
  if (count == 0) return CUVIL_OK;
  span->low = fmin(span->low, sorted[0]);
  span->high = fmax(span->high, sorted[(int)ceil(0.95 * count) - 1]);
  cuvil_buf_printf(&page->data, "%.6g 0 \"\"\n", sorted[0] * 1e6);
  for (int i = 0; i < count; i++) {
    cuvil_buf_printf(&page->data, "%.6g %.6g ", sorted[i] * 1e6,
                     (i + 1.0) / count);
    plot_column(page, p->config);
    cuvil_buf_puts(&page->data, "\n");
  }
  return CUVIL_OK;
}

static bool drawn(const struct plot_participant *p) {
  return !(p->flags & CUVIL_RACE_CONTROL) && p->median > 0;
}

static enum cuvil_status put_curves(struct plot_rows *rows,
                                    struct plot_race *race,
                                    struct plot_page *page) {
  char names[CURVES][64];
  const char *texts[CURVES];
  int count = 0, participants = race ? race->participant_count : 0;
  struct span span = {.low = INFINITY};
  if (race)
    qsort(race->participants, (size_t)participants, sizeof *race->participants,
          compare_participants);
  for (int i = 0; i < participants && count < CURVES; i++) {
    const struct plot_participant *p = &race->participants[i];
    if (!drawn(p)) continue;
    put_curve_name(p, count + 1, names[count], sizeof names[count]);
    texts[count] = names[count];
    count++;
    CUVIL_TRY(put_curve(rows, p, race->rounds, page, &span));
  }
  for (int i = 0, seen = 0; i < participants && seen < count; i++) {
    const struct plot_participant *p = &race->participants[i];
    if (!drawn(p)) continue;
    seen++;
    for (int r = 0; r < race->rounds; r++)
      if (p->seconds[r] > span.high * 1.02) span.beyond++;
  }
  plot_set_number(page, "curves", count);
  plot_set_number(page, "race_low", count > 0 ? span.low * 1e6 * 0.98 : 0);
  plot_set_number(page, "race_high", count > 0 ? span.high * 1e6 * 1.02 : 1);
  if (count > 0) plot_set_texts(page, "curve", texts, count);
  if (race)
    cuvil_buf_printf(&page->note,
                     "The final race had %d rounds; drawn are the winner, a "
                     "library's first choice, the default and the fastest "
                     "others, %d in all. ",
                     race->rounds, count);
  if (span.beyond > 0)
    cuvil_buf_printf(&page->note,
                     "%d slower rounds lie beyond the right edge. ",
                     span.beyond);
  return CUVIL_OK;
}

enum cuvil_status plot_distribution(struct plot_rows *rows,
                                    const struct cuvil_plot_request *request,
                                    struct plot_page *page) {
  const char *problem;
  int measured = 0, failed = 0;
  struct plot_race *race = NULL;
  struct cuvil_buf title = {0};
  (void)request;
  CUVIL_TRY(plot_rows_keep_newest(rows));
  CUVIL_TRY(plot_rows_one_problem(rows, "distribution", &problem));
  for (int i = 0; i < rows->trial_count; i++)
    rows->trials[i].reason ? failed++ : measured++;
  if (measured == 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "distribution: every candidate of this problem failed; "
                      "cuvil-db show --failures says why");
  for (int i = 0; i < rows->race_count; i++)
    if (strcmp(rows->races[i].problem, problem) == 0) race = &rows->races[i];
  cuvil_buf_printf(&title, "Distribution: %s", problem);
  plot_set_text(page, "title", cuvil_buf_text(&title), 105);
  cuvil_buf_free(&title);
  put_histogram(rows, page);
  plot_note_circumstance(page,
                         &rows->circumstances[rows->trials[0].circumstance]);
  plot_note_l2(page, rows);
  cuvil_buf_printf(&page->note, "%d candidate%s timed, %d failed. ", measured,
                   measured == 1 ? "" : "s", failed);
  CUVIL_TRY(put_curves(rows, race, page));
  if (rows->other > 0)
    cuvil_buf_printf(&page->note, "%d row%s of older circumstances left out. ",
                     rows->other, rows->other == 1 ? "" : "s");
  return CUVIL_OK;
}
