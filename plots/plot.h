/* plot.h - pictures of what the tuning database holds.
 *
 * A kind reads rows, writes them as a table (.dat) and sets a few variables
 * for its script (the embedded plots/<kind>.gp); gnuplot, a child process,
 * draws.  Script and table stay beside the picture, so that a user can edit
 * and draw again: `gnuplot NAME.gp` in that folder.
 */
#ifndef CUVIL_PLOTS_PLOT_H_
#define CUVIL_PLOTS_PLOT_H_

#include "db/db.h"

struct cuvil_plot_request {
  const char *kind;              /* "roofline"; see cuvil_plot_kinds */
  struct cuvil_db_filter filter; /* problem: canonical text */
  const char *x, *y;             /* space: parameters; NULL: chosen */
  const char *output;            /* ends in .png, .svg or .pdf */
  /* Work of a problem's canonical text: roofs are not this room's business.
   * flops and bytes as problem/problem.h counts them. */
  enum cuvil_status (*work)(const char *problem, double *out_flops,
                            double *out_bytes);
};

/* Names of all kinds, separated by ", "; static. */
const char *cuvil_plot_kinds(void);
bool cuvil_plot_is_kind(const char *name);
/* Whether a path ends as a picture that can be drawn. */
bool cuvil_plot_is_picture(const char *path);

/* Draws.  Rows that cannot feed the picture, or rows of several GPUs or
 * sources at once, are CU_ERR_INVALID_ARGUMENT and say what to do; a missing
 * gnuplot is CU_ERR_LIBRARY_NOT_FOUND; what gnuplot says is CU_ERR_IO. */
CUVIL_MUST_USE enum cuvil_status cuvil_plot_draw(
    struct cuvil_db *db, const struct cuvil_plot_request *request);

#endif /* CUVIL_PLOTS_PLOT_H_ */
