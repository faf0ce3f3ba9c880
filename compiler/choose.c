/* choose.c - which kernel serves a problem: the cache's answer, else the
 * default.
 *
 * A row of the cache is not believed: the family may have gone, have another
 * version, not apply, or its rules may have changed since.  Such a row is
 * passed over, and the look-up goes on down its steps.  A library's algorithm
 * is tied to the extents that it was found for, so a neighbour's is not taken.
 */
#include <stdio.h>
#include <string.h>

#include "compiler/internal.h"

struct asked {
  const struct cuvil_compiler_options *options;
  struct cuvil_choice *choice;
};

static bool accept(void *user, const struct cuvil_db_winner *winner) {
  struct asked *asked = user;
  struct cuvil_choice *choice = asked->choice;
  const struct cuvil_family *family = cuvil_family_find(winner->family);
  const struct cuvil_arch *arch = asked->options->arch;
  if (!family || family->version != winner->family_version) return false;
  if (!(family->kinds >> choice->problem.kind & 1u) || family->reference)
    return false;
  if (family->library && winner->step == CUVIL_DB_NEIGHBOUR) return false;
  if (!family->applicable(&choice->problem, arch)) return false;
  struct cuvil_query query = {&choice->problem, arch, NULL};
  struct cuvil_config config;
  /* A row that cannot be read any more is a miss, and no error. */
  if (cuvil_family_space(family, &query.space) != CUVIL_OK ||
      cuvil_config_parse(query.space, winner->config, &config) != CUVIL_OK ||
      !cuvil_family_allows(family, &query, &config, false, NULL, NULL))
    return false;
  choice->family = family;
  choice->config = config;
  return true;
}

static enum cuvil_status ask_cache(const struct cuvil_compiler_options *options,
                                   struct cuvil_choice *choice) {
  struct cuvil_db_winner winner;
  struct cuvil_buf signature = {0};
  struct asked asked = {options, choice};
  choice->step = CUVIL_DB_MISS;
  if (!options->db) return CUVIL_OK;
  cuvil_problem_signature(&choice->problem, &signature);
  enum cuvil_status status = cuvil_buf_status(&signature);
  if (status == CUVIL_OK)
    status = cuvil_db_lookup(options->db, options->env, choice->text,
                             signature.data, accept, &asked, &winner);
  cuvil_buf_free(&signature);
  CUVIL_TRY(status);
  choice->step = winner.step;
  if (winner.step == CUVIL_DB_MISS) return CUVIL_OK;
  choice->replayed = strcmp(winner.source, "replayed") == 0;
  if (winner.step != CUVIL_DB_NEIGHBOUR) choice->seconds = winner.seconds;
  snprintf(choice->origin, sizeof(choice->origin), "%s%s",
           cuvil_db_step_name(winner.step),
           choice->replayed ? ", replayed" : "");
  return CUVIL_OK;
}

enum cuvil_status cuvil_choose(const struct cuvil_compiler_options *options,
                               const char *text,
                               const struct cuvil_problem *problem,
                               struct cuvil_choice *out) {
  memset(out, 0, sizeof(*out));
  out->problem = *problem;
  out->text = text;
  CUVIL_TRY(ask_cache(options, out));
  if (out->step == CUVIL_DB_MISS) {
    CUVIL_TRY(cuvil_family_fallback(&out->problem, options->arch, &out->family,
                                    &out->config));
    snprintf(out->origin, sizeof(out->origin), "default");
  }
  const struct cuvil_space *space;
  struct cuvil_buf config = {0};
  CUVIL_TRY(cuvil_family_space(out->family, &space));
  cuvil_config_print(space, &out->config, &config);
  snprintf(out->config_text, sizeof(out->config_text), "%s",
           cuvil_buf_text(&config));
  enum cuvil_status status = cuvil_buf_status(&config);
  cuvil_buf_free(&config);
  return status;
}

enum cuvil_status cuvil_choice_emit(
    const struct cuvil_compiler_options *options,
    const struct cuvil_choice *choice, struct cuvil_program **out) {
  struct cuvil_query query = {&choice->problem, options->arch, NULL};
  *out = NULL;
  CUVIL_TRY(cuvil_family_space(choice->family, &query.space));
  return choice->family->emit(&query, &choice->config, out);
}
