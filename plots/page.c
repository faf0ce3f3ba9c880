/* page.c - the two texts of a picture: a table and the script's variables.
 *
 * Texts come from databases that anyone may have written, and gnuplot executes
 * what stands in backquotes: every text goes through put_quoted.
 */
#include <string.h>

#include "plots/internal.h"

/* A double-quoted string of gnuplot, broken at spaces; how many lines. */
static int put_quoted(struct cuvil_buf *out, const char *text, int width) {
  int column = 0, lines = 1;
  cuvil_buf_puts(out, "\"");
  for (const char *c = text; *c; c++) {
    int word = (int)strcspn(c + 1, " \n");
    if (*c == '\n' || (*c == ' ' && width > 0 && column + 1 + word > width)) {
      cuvil_buf_puts(out, "\\n");
      column = 0;
      lines++;
      continue;
    }
    if (*c == '"' || *c == '`')
      cuvil_buf_puts(out, "'");
    else if (*c == '\\')
      cuvil_buf_puts(out, "\\\\");
    else
      cuvil_buf_printf(out, "%c", (unsigned char)*c < 32 ? '?' : *c);
    if ((*c & 0xC0) != 0x80) column++;
  }
  cuvil_buf_puts(out, "\"");
  return lines;
}

void plot_set_text(struct plot_page *page, const char *name, const char *text,
                   int width) {
  cuvil_buf_printf(&page->set, "%s = ", name);
  int lines = put_quoted(&page->set, text, width);
  cuvil_buf_puts(&page->set, "\n");
  if (width > 0) cuvil_buf_printf(&page->set, "%s_lines = %d\n", name, lines);
}

void plot_set_number(struct plot_page *page, const char *name, double value) {
  /* With a point or exponent: gnuplot divides whole numbers as such. */
  cuvil_buf_printf(&page->set, "%s = %#.15g\n", name, value);
}

void plot_set_texts(struct plot_page *page, const char *name,
                    const char *const *texts, int count) {
  cuvil_buf_printf(&page->set, "array %s[%d] = [", name, count);
  for (int i = 0; i < count; i++) {
    if (i > 0) cuvil_buf_puts(&page->set, ", ");
    put_quoted(&page->set, texts[i], 0);
  }
  cuvil_buf_puts(&page->set, "]\n");
}

void plot_set_numbers(struct plot_page *page, const char *name,
                      const double *values, int count) {
  cuvil_buf_printf(&page->set, "array %s[%d] = [", name, count);
  for (int i = 0; i < count; i++)
    cuvil_buf_printf(&page->set, "%s%.15g", i > 0 ? ", " : "", values[i]);
  cuvil_buf_puts(&page->set, "]\n");
}

int plot_table(struct plot_page *page, const char *header) {
  cuvil_buf_printf(&page->data, "%s# %s\n", page->table > 0 ? "\n\n" : "",
                   header);
  return page->table++;
}

void plot_column(struct plot_page *page, const char *text) {
  put_quoted(&page->data, text, 0);
}

void plot_note_circumstance(struct plot_page *page,
                            const struct plot_circumstance *c) {
  const struct cuvil_env *e = &c->env;
  if (strcmp(c->source, "replayed") == 0)
    cuvil_buf_puts(&page->note, "Replayed from a recording of an ");
  cuvil_buf_printf(&page->note, "%s (%s), driver %s, NVRTC %s", e->gpu, e->arch,
                   e->driver[0] ? e->driver : "unknown",
                   e->nvrtc[0] ? e->nvrtc : "unknown");
  if (e->cublaslt[0])
    cuvil_buf_printf(&page->note, ", cuBLASLt %s", e->cublaslt);
  if (e->cudnn[0]) cuvil_buf_printf(&page->note, ", cuDNN %s", e->cudnn);
  cuvil_buf_puts(&page->note, ". ");
}

void plot_note_l2(struct plot_page *page, const struct plot_rows *rows) {
  const char *l2 = rows->circumstances[0].l2;
  bool mixed = false;
  for (int i = 1; i < rows->circumstance_count; i++)
    if (strcmp(rows->circumstances[i].l2, l2) != 0) mixed = true;
  if (mixed)
    cuvil_buf_puts(&page->note, "L2 warm or cold, as each problem was tuned. ");
  else
    cuvil_buf_printf(&page->note, "L2 %s. ", l2);
}
