/* roofline.c - rate against arithmetic intensity, under the levels of the
 * architecture table.
 *
 * One point for each problem and family: the fastest participant of that
 * family in the race that decides the problem, so that what stands above each
 * other was timed in the same rounds.  FLOP and bytes are the problem's own
 * (each operand moved once), not counters.  The ceilings are levels that
 * base/arch.c knows for the architecture; they are labelled so.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arch.h"
#include "plots/internal.h"

struct point {
  const char *problem;
  double intensity, rate, seconds;
  int family;
  bool won;
};
struct roofline {
  struct plot_names families;
  bool library[64];
  struct point *points;
  int count, problems, without_flops, above;
  double low, high;  /* intensity */
  double slow, fast; /* rate */
};
enum { MOST_FAMILIES = 64 };

static enum cuvil_status add_race(struct plot_rows *rows,
                                  const struct cuvil_plot_request *request,
                                  const struct plot_race *race,
                                  const struct cuvil_arch *arch,
                                  struct roofline *r) {
  double flops, bytes;
  int first = r->count;
  CUVIL_TRY(request->work(race->problem, &flops, &bytes));
  if (!(flops > 0) || !(bytes > 0)) {
    r->without_flops++;
    return CUVIL_OK;
  }
  for (int i = 0; i < race->participant_count; i++) {
    const struct plot_participant *p = &race->participants[i];
    if (!(p->median > 0) || (p->flags & CUVIL_RACE_CONTROL)) continue;
    if (request->filter.family &&
        strcmp(request->filter.family, p->family) != 0)
      continue;
    int family = plot_names_add(rows, &r->families, p->family);
    if (family < 0 || family >= MOST_FAMILIES)
      return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "too many families to draw");
    r->library[family] = p->library;
    struct point point = {.problem = race->problem,
                          .intensity = flops / bytes,
                          .rate = flops / p->median,
                          .seconds = p->median,
                          .family = family,
                          .won = (p->flags & CUVIL_RACE_WINNER) != 0};
    int at = first;
    while (at < r->count && r->points[at].family != family)
      at++;
    if (at == r->count)
      r->points[r->count++] = point;
    else if (point.won ||
             (!r->points[at].won && point.seconds < r->points[at].seconds))
      r->points[at] = point;
  }
  if (r->count > first) r->problems++;
  for (int i = first; i < r->count; i++) {
    const struct point *p = &r->points[i];
    if (arch && p->rate > fmin(arch->flops_f16,
                               p->intensity * cuvil_arch_l2_rate(arch)))
      r->above++;
    r->low = fmin(r->low, p->intensity);
    r->high = fmax(r->high, p->intensity);
    r->slow = fmin(r->slow, p->rate);
    r->fast = fmax(r->fast, p->rate);
  }
  return CUVIL_OK;
}

static void put_tables(struct roofline *r, struct plot_page *page) {
  static const char columns[] =
      "intensity [FLOP/byte], rate [TFLOP/s], time [us], problem";
  char header[256];
  for (int f = 0; f <= r->families.count; f++) {
    bool winners = f == r->families.count;
    snprintf(header, sizeof header, "%.48s: %s",
             winners ? "winners" : r->families.names[f], columns);
    plot_table(page, header);
    for (int i = 0; i < r->count; i++) {
      const struct point *p = &r->points[i];
      if (winners ? !p->won : p->family != f) continue;
      cuvil_buf_printf(&page->data, "%.6g %.6g %.6g ", p->intensity,
                       p->rate * 1e-12, p->seconds * 1e6);
      plot_column(page, p->problem);
      cuvil_buf_puts(&page->data, "\n");
    }
    if (winners && r->count == 0) cuvil_buf_puts(&page->data, "\n");
  }
}

static void put_levels(const struct cuvil_arch *arch, struct plot_page *page) {
  plot_set_number(page, "dram",
                  arch ? arch->memory_bytes_per_second * 1e-12 : 0);
  plot_set_number(page, "l2", arch ? cuvil_arch_l2_rate(arch) * 1e-12 : 0);
  plot_set_number(page, "tensor16", arch ? arch->flops_f16 * 1e-12 : 0);
  plot_set_number(page, "tensor_tf32", arch ? arch->flops_tf32 * 1e-12 : 0);
  plot_set_number(page, "plain32", arch ? arch->flops_f32 * 1e-12 : 0);
}

static void put_note(const struct plot_rows *rows, const struct roofline *r,
                     const struct cuvil_arch *arch, struct plot_page *page) {
  const struct plot_circumstance *c =
      &rows->circumstances[rows->races[0].circumstance];
  plot_note_circumstance(page, c);
  plot_note_l2(page, rows);
  cuvil_buf_puts(&page->note,
                 "Each point: the fastest of its family in the race that "
                 "decides the problem; FLOP and bytes are the problem's, each "
                 "operand moved once. ");
  if (arch)
    cuvil_buf_printf(&page->note,
                     "Ceilings: levels of Cuvil's table for %s, not measured "
                     "on this GPU. ",
                     arch->name);
  else
    cuvil_buf_printf(&page->note, "No ceilings are known for %s. ",
                     c->env.arch);
  if (r->without_flops > 0)
    cuvil_buf_printf(&page->note,
                     "Not drawn: %d problem%s without arithmetic. ",
                     r->without_flops, r->without_flops == 1 ? "" : "s");
  if (r->above > 0)
    cuvil_buf_printf(&page->note, "%d point%s above the L2 or tensor roof! ",
                     r->above, r->above == 1 ? " is" : "s are");
}

enum cuvil_status plot_roofline(struct plot_rows *rows,
                                const struct cuvil_plot_request *request,
                                struct plot_page *page) {
  struct roofline r = {.low = INFINITY, .slow = INFINITY};
  const struct cuvil_arch *arch = NULL;
  size_t most = 1;
  double library[MOST_FAMILIES];
  char title[256];
  CUVIL_TRY(plot_rows_keep_newest(rows));
  for (int i = 0; i < rows->race_count; i++)
    most += (size_t)rows->races[i].participant_count;
  r.points = cuvil_arena_array(&rows->arena, most, sizeof *r.points);
  if (!r.points) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory to plot");
  if (rows->race_count > 0)
    arch = cuvil_arch_find(
        rows->circumstances[rows->races[0].circumstance].env.arch);
  for (int i = 0; i < rows->race_count; i++)
    CUVIL_TRY(add_race(rows, request, &rows->races[i], arch, &r));
  if (r.count == 0)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "roofline: the database holds no race of a problem with "
                      "arithmetic that the options name; tune first "
                      "(cuvil-tune), or ask for less");
  snprintf(title, sizeof title, "Roofline: %d problem%s on %s", r.problems,
           r.problems == 1 ? "" : "s",
           rows->circumstances[rows->races[0].circumstance].env.gpu);
  plot_set_text(page, "title", title, 100);
  for (int i = 0; i < r.families.count; i++)
    library[i] = r.library[i];
  plot_set_texts(page, "family", r.families.names, r.families.count);
  plot_set_numbers(page, "library", library, r.families.count);
  put_levels(arch, page);
  double top = fmax(r.fast, arch ? arch->flops_f16 : 0);
  double ridge = arch ? arch->flops_f16 / arch->memory_bytes_per_second : 0;
  plot_set_number(page, "x_low", r.low / 2);
  plot_set_number(page, "x_high", fmax(r.high, ridge) * 8);
  plot_set_number(page, "y_low", r.slow * 1e-12 / 2);
  plot_set_number(page, "y_high", top * 1e-12 * 2);
  put_tables(&r, page);
  put_note(rows, &r, arch, page);
  return CUVIL_OK;
}
