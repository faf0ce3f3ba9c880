/* draw.c - rows to a picture: the kind's table and variables, the embedded
 * scripts, and gnuplot as a child that draws them.
 *
 * The script that is written is complete: terminal, output, variables, the
 * common style, the kind's own commands.  gnuplot runs in the picture's folder
 * and names of files in the script are relative to it, so that the three files
 * can be moved together.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/embed.h"
#include "base/log.h"
#include "plots/internal.h"

extern char **environ;

struct kind {
  const char *name;
  enum cuvil_status (*fill)(struct plot_rows *rows,
                            const struct cuvil_plot_request *request,
                            struct plot_page *page);
};
static const struct kind kinds[] = {
    {"roofline", plot_roofline},         {"convergence", plot_convergence},
    {"distribution", plot_distribution}, {"space", plot_space},
    {"history", plot_history},
};

/* 1200 x 800 and what is that size on paper. */
static const struct format {
  const char *ending, *terminal;
  double point; /* what makes markers as large as the PNG's */
} formats[] = {
    {".png", "pngcairo noenhanced size 1200,800 font 'sans,13'", 1},
    {".svg",
     "svg noenhanced size 1200,800 font 'sans-serif,13' fontscale 1.3 "
     "background 'white'",
     0.62},
    {".pdf",
     "pdfcairo noenhanced size 10in,6.667in font 'sans,13' fontscale 0.62",
     0.62},
};

const char *cuvil_plot_kinds(void) {
  return "roofline, convergence, distribution, space, history";
}

static const struct kind *find_kind(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  return NULL;
}

bool cuvil_plot_is_kind(const char *name) {
  return find_kind(name) != NULL;
}

/* The format of a picture; NULL: none draws it. */
static const struct format *find_format(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  if (!dot || dot == name) return NULL;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(formats[i].ending, dot) == 0) return &formats[i];
  return NULL;
}

bool cuvil_plot_is_picture(const char *path) {
  return find_format(path) != NULL;
}

/* ---- gnuplot */

/* The first line of what gnuplot said that is not a blank or its caret. */
static void first_line(char *said) {
  char *start = said;
  char *error = strstr(said, "line ");
  if (error) start = error;
  start[strcspn(start, "\n")] = '\0';
  memmove(said, start, strlen(start) + 1);
}

/* Reads to the end, keeps what fits. */
static void drain(int fd, char *out, size_t size) {
  size_t used = 0;
  char more[256];
  for (;;) {
    ssize_t got = read(fd, more, sizeof more);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size_t room = size - 1 - used;
    size_t take = (size_t)got < room ? (size_t)got : room;
    memcpy(out + used, more, take);
    used += take;
  }
  out[used] = '\0';
}

/* script: "./NAME.gp" in the folder, for a name may begin with a dash. */
static enum cuvil_status spawn(const char *folder, const char *script, int said,
                               pid_t *out) {
  posix_spawn_file_actions_t actions;
  char *argv[] = {(char *)"gnuplot", (char *)script, NULL};
  int rc = posix_spawn_file_actions_init(&actions);
  if (rc == 0) {
    rc = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (rc == 0)
      rc = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY,
                                            0);
    if (rc == 0) rc = posix_spawn_file_actions_adddup2(&actions, said, 1);
    if (rc == 0) rc = posix_spawn_file_actions_adddup2(&actions, said, 2);
    if (rc == 0)
      rc = posix_spawnp(out, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  if (rc == ENOENT)
    return CUVIL_FAIL(CU_ERR_LIBRARY_NOT_FOUND,
                      "gnuplot is not installed; install it (Debian, Ubuntu: "
                      "gnuplot-nox) and draw again; the script is %s/%s",
                      folder, script + 2);
  if (rc != 0)
    return CUVIL_FAIL(CU_ERR_IO, "gnuplot could not be started: %s",
                      strerror(rc));
  return CUVIL_OK;
}

static enum cuvil_status run_gnuplot(const char *folder, const char *script) {
  enum cuvil_status status = CUVIL_OK;
  int pipe_ends[2], ended = 0;
  char said[2048];
  pid_t child;
  if (pipe2(pipe_ends, O_CLOEXEC) != 0)
    return CUVIL_FAIL(CU_ERR_IO, "pipe: %s", strerror(errno));
  status = spawn(folder, script, pipe_ends[1], &child);
  close(pipe_ends[1]);
  if (status != CUVIL_OK) {
    close(pipe_ends[0]);
    return status;
  }
  drain(pipe_ends[0], said, sizeof said);
  close(pipe_ends[0]);
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR)
    continue;
  if (said[0]) cuvil_log_verbose("gnuplot: %s", said);
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) {
    first_line(said);
    return CUVIL_FAIL(CU_ERR_IO,
                      "gnuplot could not draw %s/%s: %s; Cuvil needs gnuplot "
                      "5.4 or newer",
                      folder, script + 2, said[0] ? said : "it said nothing");
  }
  return CUVIL_OK;
}

/* ---- the files */

/* A single-quoted string of gnuplot, which takes everything as it is. */
static void put_name(struct cuvil_buf *out, const char *name) {
  cuvil_buf_puts(out, "'");
  for (; *name; name++)
    cuvil_buf_printf(out, *name == '\'' ? "''" : "%c", *name);
  cuvil_buf_puts(out, "'");
}

static enum cuvil_status add_script(struct cuvil_buf *script,
                                    const char *name) {
  char path[64];
  snprintf(path, sizeof path, "plots/%s.gp", name);
  const struct cuvil_embedded *file = cuvil_embedded_find(path);
  CUVIL_CHECK(file != NULL);
  cuvil_buf_add(script, file->data, file->size);
  return CUVIL_OK;
}

/* `stem`: the path without its ending; `name`: its last part. */
static enum cuvil_status write_files(const struct cuvil_plot_request *request,
                                     struct plot_page *page, const char *stem,
                                     const char *name) {
  enum cuvil_status status = CUVIL_OK;
  struct cuvil_buf script = {0}, path = {0}, quoted = {0};
  const struct format *format = find_format(request->output);
  cuvil_buf_printf(&script,
                   "# Drawn by cuvil-plot %s; edit, and draw again in this "
                   "folder: gnuplot '%s.gp'\nset terminal %s\nset output ",
                   request->kind, name, format->terminal);
  cuvil_buf_printf(&quoted, "%s%s", name, request->output + strlen(stem));
  put_name(&script, cuvil_buf_text(&quoted));
  cuvil_buf_clear(&quoted);
  cuvil_buf_printf(&quoted, "%s.dat", name);
  cuvil_buf_puts(&script, "\ndata = ");
  put_name(&script, cuvil_buf_text(&quoted));
  cuvil_buf_puts(&script, "\n");
  plot_set_number(page, "point", format->point);
  plot_set_text(page, "note", cuvil_buf_text(&page->note), 145);
  cuvil_buf_puts(&script, cuvil_buf_text(&page->set));
  CUVIL_TRY_GOTO(add_script(&script, "common"));
  CUVIL_TRY_GOTO(add_script(&script, request->kind));
  cuvil_buf_puts(&page->data, "\n");
  CUVIL_TRY_GOTO(cuvil_buf_status(&script));
  CUVIL_TRY_GOTO(cuvil_buf_status(&page->set));
  CUVIL_TRY_GOTO(cuvil_buf_status(&page->note));
  CUVIL_TRY_GOTO(cuvil_buf_status(&page->data));
  cuvil_buf_printf(&path, "%s.dat", stem);
  CUVIL_TRY_GOTO(cuvil_buf_status(&path));
  CUVIL_TRY_GOTO(
      cuvil_file_write_atomic(path.data, page->data.data, page->data.size));
  cuvil_buf_clear(&path);
  cuvil_buf_printf(&path, "%s.gp", stem);
  CUVIL_TRY_GOTO(cuvil_file_write_atomic(path.data, script.data, script.size));
fail:
  cuvil_buf_free(&script);
  cuvil_buf_free(&path);
  cuvil_buf_free(&quoted);
  return status;
}

/* Writes both files and draws them. */
static enum cuvil_status draw_page(const struct cuvil_plot_request *request,
                                   struct plot_page *page) {
  char stem[4096], folder[4096], script[4096];
  const char *output = request->output;
  size_t length = (size_t)(strrchr(output, '.') - output);
  struct stat made;
  if (length + 8 > sizeof stem || strpbrk(output, "\n\r"))
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT,
                      "--output: the name is too long or holds a line break");
  snprintf(stem, sizeof stem, "%.*s", (int)length, output);
  snprintf(folder, sizeof folder, "%s", stem);
  char *slash = strrchr(folder, '/');
  const char *name = slash ? stem + (slash - folder) + 1 : stem;
  if (!slash)
    snprintf(folder, sizeof folder, ".");
  else
    slash[slash == folder ? 1 : 0] = '\0';
  CUVIL_TRY(write_files(request, page, stem, name));
  if ((size_t)snprintf(script, sizeof script, "./%s.gp", name) >= sizeof script)
    return CUVIL_FAIL(CU_ERR_INVALID_ARGUMENT, "--output: too long a name");
  unlink(output); /* an old picture must not pass for a new one */
  CUVIL_TRY(run_gnuplot(folder, script));
  if (stat(output, &made) != 0 || made.st_size == 0)
    return CUVIL_FAIL(CU_ERR_IO, "gnuplot left no picture at %s", output);
  return CUVIL_OK;
}

enum cuvil_status cuvil_plot_draw(struct cuvil_db *db,
                                  const struct cuvil_plot_request *request) {
  enum cuvil_status status = CUVIL_OK;
  struct plot_rows rows = {0};
  struct plot_page page = {0};
  const struct kind *kind = find_kind(request->kind);
  CUVIL_CHECK(kind != NULL && find_format(request->output) != NULL);
  CUVIL_TRY_GOTO(plot_rows_load(db, &request->filter, &rows));
  CUVIL_TRY_GOTO(kind->fill(&rows, request, &page));
  CUVIL_TRY_GOTO(draw_page(request, &page));
fail:
  cuvil_buf_free(&page.data);
  cuvil_buf_free(&page.set);
  cuvil_buf_free(&page.note);
  plot_rows_free(&rows);
  return status;
}
