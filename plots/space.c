/* space.c - a parameter heat map: of one problem and family, the best time
 * over two parameters, whatever the others are.
 *
 * A cell that was never timed is drawn as such, and says whether candidates
 * there failed: a search visits only a part of its space.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plots/internal.h"

enum { MOST_VALUES = 24, MOST_PARAMETERS = 64 };

struct axis {
  char name[48];
  double values[MOST_VALUES]; /* ascending */
  int count;
};

/* The value of a parameter in "a=1,b=2". */
static bool value_of(const char *config, const char *name, double *out) {
  size_t length = strlen(name);
  for (const char *at = config; at && *at;) {
    if (strncmp(at, name, length) == 0 && at[length] == '=') {
      char *end;
      *out = strtod(at + length + 1, &end);
      return end != at + length + 1;
    }
    at = strchr(at, ',');
    if (at) at++;
  }
  return false;
}

static enum cuvil_status add_value(struct axis *axis, double value) {
  int at = 0;
  while (at < axis->count && axis->values[at] < value)
    at++;
  if (at < axis->count && axis->values[at] == value) return CUVIL_OK;
  if (axis->count == MOST_VALUES)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "space: %s has more than %d values; choose another "
                      "parameter with --x and --y",
                      axis->name, MOST_VALUES);
  memmove(&axis->values[at + 1], &axis->values[at],
          (size_t)(axis->count - at) * sizeof *axis->values);
  axis->values[at] = value;
  axis->count++;
  return CUVIL_OK;
}

static enum cuvil_status fill_axis(const struct plot_rows *rows,
                                   const char *family, struct axis *axis) {
  axis->count = 0;
  for (int i = 0; i < rows->trial_count; i++) {
    double value;
    if (strcmp(rows->trials[i].family, family) == 0 &&
        value_of(rows->trials[i].config, axis->name, &value))
      CUVIL_TRY(add_value(axis, value));
  }
  return CUVIL_OK;
}

/* The family asked for, else the one with most candidates among our own. */
static const char *choose_family(struct plot_rows *rows, const char *asked) {
  struct plot_names names = {0};
  int counts[MOST_PARAMETERS] = {0}, best = -1;
  for (int i = 0; i < rows->trial_count; i++) {
    const struct plot_trial *t = &rows->trials[i];
    if (asked ? strcmp(t->family, asked) != 0 : t->library) continue;
    int at = plot_names_add(rows, &names, t->family);
    if (at < 0 || at >= MOST_PARAMETERS) continue;
    counts[at]++;
    if (best < 0 || counts[at] > counts[best]) best = at;
  }
  return best < 0 ? NULL : names.names[best];
}

/* The axes asked for, else the parameters with most values, in the order of
 * the configuration's text. */
static enum cuvil_status choose_axes(const struct plot_rows *rows,
                                     const char *family,
                                     const struct cuvil_plot_request *request,
                                     struct axis *x, struct axis *y) {
  const char *config = "";
  struct axis *const axes[2] = {x, y};
  const char *const asked[2] = {request->x, request->y};
  for (int i = 0; i < rows->trial_count; i++)
    if (strcmp(rows->trials[i].family, family) == 0)
      config = rows->trials[i].config;
  for (int a = 0; a < 2; a++) {
    const char *other = a == 0 ? asked[1] : x->name;
    if (asked[a]) {
      snprintf(axes[a]->name, sizeof axes[a]->name, "%s", asked[a]);
      CUVIL_TRY(fill_axis(rows, family, axes[a]));
      if (axes[a]->count == 0)
        return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                          "space: %s has no parameter %s; a configuration of "
                          "it is %s",
                          family, asked[a], config);
      continue;
    }
    for (const char *at = config; *at;) {
      struct axis one = {0};
      size_t length = strcspn(at, "=");
      snprintf(one.name, sizeof one.name, "%.*s", (int)length, at);
      /* What has too many values for a map is no choice. */
      if ((!other || strcmp(one.name, other) != 0) &&
          fill_axis(rows, family, &one) == CUVIL_OK &&
          one.count > axes[a]->count)
        *axes[a] = one;
      at += strcspn(at, ",");
      if (*at) at++;
    }
  }
  if (x->count == 0 || y->count == 0 || strcmp(x->name, y->name) == 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "space: two different parameters are needed; a "
                      "configuration of %s is %s",
                      family, config);
  return CUVIL_OK;
}

static int index_of(const struct axis *axis, const char *config) {
  double value;
  if (!value_of(config, axis->name, &value)) return -1;
  for (int i = 0; i < axis->count; i++)
    if (axis->values[i] == value) return i;
  return -1;
}

static void put_cells(const struct plot_rows *rows, const char *family,
                      const struct axis *x, const struct axis *y,
                      struct plot_page *page) {
  double best = INFINITY, worst = 0;
  plot_table(page,
             "column, row, best time [us] (-1: none), candidates timed, "
             "candidates failed");
  for (int r = 0; r < y->count; r++) {
    for (int c = 0; c < x->count; c++) {
      double time = INFINITY;
      int timed = 0, failed = 0;
      for (int i = 0; i < rows->trial_count; i++) {
        const struct plot_trial *t = &rows->trials[i];
        if (strcmp(t->family, family) != 0 || index_of(x, t->config) != c ||
            index_of(y, t->config) != r)
          continue;
        t->reason ? failed++ : timed++;
        if (!t->reason) time = fmin(time, t->median);
      }
      if (timed > 0) {
        best = fmin(best, time);
        worst = fmax(worst, time);
        cuvil_buf_printf(&page->data, "%d %d %.6g %d %d\n", c, r, time * 1e6,
                         timed, failed);
      } else {
        cuvil_buf_printf(&page->data, "%d %d -1 0 %d\n", c, r, failed);
      }
    }
  }
  plot_set_number(page, "best", best * 1e6);
  plot_set_number(page, "worst", worst * 1e6);
}

static void set_axis(struct plot_page *page, const char *which,
                     const struct axis *axis) {
  char name[32];
  snprintf(name, sizeof name, "%s_name", which);
  plot_set_text(page, name, axis->name, 0);
  snprintf(name, sizeof name, "%s_value", which);
  plot_set_numbers(page, name, axis->values, axis->count);
}

enum cuvil_status plot_space(struct plot_rows *rows,
                             const struct cuvil_plot_request *request,
                             struct plot_page *page) {
  const char *problem;
  int timed = 0, failed = 0;
  struct axis x = {0}, y = {0};
  struct cuvil_buf title = {0};
  CUVIL_TRY(plot_rows_keep_newest(rows));
  CUVIL_TRY(plot_rows_one_problem(rows, "space", &problem));
  const char *family = choose_family(rows, request->filter.family);
  if (!family)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "space: only libraries were tried for this problem; "
                      "name one with --family");
  CUVIL_TRY(choose_axes(rows, family, request, &x, &y));
  for (int i = 0; i < rows->trial_count; i++)
    if (strcmp(rows->trials[i].family, family) == 0)
      rows->trials[i].reason ? failed++ : timed++;
  if (timed == 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "space: every candidate of %s failed for this problem; "
                      "cuvil-db show --failures says why",
                      family);
  cuvil_buf_printf(&title, "Space of %s: %s", family, problem);
  plot_set_text(page, "title", cuvil_buf_text(&title), 105);
  cuvil_buf_free(&title);
  set_axis(page, "x", &x);
  set_axis(page, "y", &y);
  put_cells(rows, family, &x, &y, page);
  plot_note_circumstance(page,
                         &rows->circumstances[rows->trials[0].circumstance]);
  plot_note_l2(page, rows);
  cuvil_buf_printf(&page->note,
                   "Each cell: the best of its candidates, in microseconds, "
                   "and how many were timed. %d candidate%s timed, %d failed. ",
                   timed, timed == 1 ? "" : "s", failed);
  if (rows->other > 0)
    cuvil_buf_printf(&page->note, "%d row%s of older circumstances left out. ",
                     rows->other, rows->other == 1 ? "" : "s");
  return CUVIL_OK;
}
