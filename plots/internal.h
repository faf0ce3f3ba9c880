/* internal.h - what the kinds of plots share. */
#ifndef CUVIL_PLOTS_INTERNAL_H_
#define CUVIL_PLOTS_INTERNAL_H_

#include "base/arena.h"
#include "base/buf.h"
#include "plots/plot.h"

/* ---- rows.c: what the filter names, in the order of recording */
struct plot_circumstance {
  struct cuvil_env env;
  char source[16], l2[8], regime[8];
  int method;
};
struct plot_trial { /* a measurement or a failure */
  const char *problem, *family, *config;
  const char *reason; /* NULL: measured */
  bool library;
  double median; /* seconds */
  const double *blocks;
  int block_count;
  int circumstance;
};
struct plot_participant {
  const char *family, *config;
  bool library;
  unsigned flags;
  double median;
  const double *seconds; /* by round; NaN: not in that round */
};
struct plot_race {
  const char *problem, *hash;
  double recorded; /* seconds since 1970, UTC */
  int rounds, participant_count, circumstance;
  struct plot_participant *participants;
  bool decides; /* a present winner follows from it */
};
struct plot_rows {
  struct cuvil_arena arena; /* holds every text and array below */
  struct plot_trial *trials;
  struct plot_race *races;
  struct plot_circumstance *circumstances;
  int trial_count, race_count, circumstance_count;
  int other; /* rows left out by plot_rows_keep_newest */
};
CUVIL_MUST_USE enum cuvil_status plot_rows_load(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    struct plot_rows *out);
void plot_rows_free(struct plot_rows *rows);
/* Of each problem only the trials in the circumstance of its newest one, and
 * only the newest race that decides: times of different circumstances are not
 * compared. */
CUVIL_MUST_USE enum cuvil_status plot_rows_keep_newest(struct plot_rows *rows);
/* The one problem that trials are left of; CU_ERR_INVALID_ARGUMENT when there
 * are several, and says how to name one. */
CUVIL_MUST_USE enum cuvil_status plot_rows_one_problem(
    const struct plot_rows *rows, const char *kind, const char **out);
/* Names in order of their first appearance; the index of `name`, added when
 * new, -1 when memory runs out.  The names are borrowed. */
struct plot_names {
  const char **names;
  int count;
};
int plot_names_add(struct plot_rows *rows, struct plot_names *names,
                   const char *name);

/* ---- one picture: what a kind fills */
struct plot_page {
  struct cuvil_buf data; /* the .dat */
  struct cuvil_buf set;  /* variables of the script */
  struct cuvil_buf note; /* sentences under the picture */
  int table;             /* index of the next table in data */
};
/* name = "value", safe whatever the text holds (gnuplot runs what stands in
 * backquotes); lines broken at spaces so that none is longer than `width`,
 * with their number as name_lines; 0: as it is. */
void plot_set_text(struct plot_page *page, const char *name, const char *text,
                   int width);
void plot_set_number(struct plot_page *page, const char *name, double value);
/* array name[count] = [...] */
void plot_set_texts(struct plot_page *page, const char *name,
                    const char *const *texts, int count);
void plot_set_numbers(struct plot_page *page, const char *name,
                      const double *values, int count);
/* Begins a table, which the script reads by the index returned; the header is
 * its comment line. */
int plot_table(struct plot_page *page, const char *header);
/* A text as a column: quoted, without what would end it. */
void plot_column(struct plot_page *page, const char *text);
/* A sentence for the note: GPU, versions, source. */
void plot_note_circumstance(struct plot_page *page,
                            const struct plot_circumstance *c);
/* And what the L2 held when the rows were timed. */
void plot_note_l2(struct plot_page *page, const struct plot_rows *rows);

/* ---- the kinds */
enum cuvil_status plot_roofline(struct plot_rows *rows,
                                const struct cuvil_plot_request *request,
                                struct plot_page *page);
enum cuvil_status plot_convergence(struct plot_rows *rows,
                                   const struct cuvil_plot_request *request,
                                   struct plot_page *page);
enum cuvil_status plot_distribution(struct plot_rows *rows,
                                    const struct cuvil_plot_request *request,
                                    struct plot_page *page);
enum cuvil_status plot_space(struct plot_rows *rows,
                             const struct cuvil_plot_request *request,
                             struct plot_page *page);
enum cuvil_status plot_history(struct plot_rows *rows,
                               const struct cuvil_plot_request *request,
                               struct plot_page *page);

#endif /* CUVIL_PLOTS_INTERNAL_H_ */
