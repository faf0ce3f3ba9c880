/* tune_table.c - a search on another program's results.
 *
 * The kernel and its problem are not Cuvil's, so there is nothing to compile,
 * to race or to record; the strategies are the same code as in a tune.
 */
#include "cli/tune_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"

struct found {
  int trials, best, best_trial; /* best: index; -1 */
};

static enum cuvil_status search(const struct cuvil_table *table,
                                const struct cuvil_tune_table_options *options,
                                struct found *out) {
  struct cuvil_chooser *chooser = NULL;
  int *asked = calloc((size_t)table->count, sizeof *asked), count = 0;
  enum cuvil_status status = CUVIL_OK;
  *out = (struct found){.best = -1};
  if (!asked) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for a search");
  CUVIL_TRY_GOTO(cuvil_chooser_create(options->strategy, table->sites,
                                      table->count, options->max_trials,
                                      options->seed, &chooser));
  do {
    CUVIL_TRY_GOTO(cuvil_chooser_ask(chooser, table->count, asked, &count));
    for (int i = 0; i < count; i++) {
      double seconds = table->seconds[asked[i]];
      cuvil_chooser_tell(chooser, asked[i], seconds);
      out->trials++;
      if (!isfinite(seconds) ||
          (out->best >= 0 && !(seconds < table->seconds[out->best])))
        continue;
      out->best = asked[i];
      out->best_trial = out->trials;
    }
  } while (count > 0);
fail:
  cuvil_chooser_destroy(chooser);
  free(asked);
  return status;
}

static enum cuvil_status write_json(const struct cuvil_table *table,
                                    const struct cuvil_tune_table_options *o,
                                    const struct found *found) {
  int best = found->best;
  json_t *json = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:o, s:s, s:f, "
      "s:s}",
      "schema", "cuvil-table/1", "file", o->path, "kernel", table->kernel,
      "size", table->size, "device", table->device, "strategy",
      o->strategy->ops->name, "seed", (json_int_t)o->seed, "configurations",
      table->count, "failed", table->failed, "trials", found->trials,
      "best_trial", found->best_trial, "best_seconds",
      best < 0 ? json_null() : json_real(table->seconds[best]), "best",
      best < 0 ? "" : table->configs[best], "optimum_seconds",
      table->seconds[table->best], "optimum", table->configs[table->best]);
  if (!json) return CUVIL_FAIL(CU_ERR_OUT_OF_MEMORY, "no memory for JSON");
  enum cuvil_status status = cuvil_cli_write_json(json, o->json);
  json_decref(json);
  return status;
}

enum cuvil_status cuvil_tune_table(
    FILE *to, const struct cuvil_table *table,
    const struct cuvil_tune_table_options *options) {
  struct found found;
  CUVIL_TRY(search(table, options, &found));
  fprintf(to, "table %s: ", options->path);
  if (*table->kernel)
    fprintf(to, "%s %s on %s, ", table->kernel, table->size, table->device);
  fprintf(to, "%d configurations, %d failed\n", table->count, table->failed);
  fprintf(to, "strategy %s, seed %llu: %d trials\n",
          options->strategy->ops->name, (unsigned long long)options->seed,
          found.trials);
  if (found.best < 0)
    return CUVIL_FAIL(CU_ERR_CANDIDATE_FAILED,
                      "all of the %d configurations tried had failed",
                      found.trials);
  fprintf(to, "best    %.6g ms (trial %d, %.3fx of the optimum)  %s\n",
          table->seconds[found.best] * 1e3, found.best_trial,
          table->seconds[found.best] / table->seconds[table->best],
          table->configs[found.best]);
  fprintf(to, "optimum %.6g ms  %s\n", table->seconds[table->best] * 1e3,
          table->configs[table->best]);
  fprintf(to, "nothing was recorded: the kernel is not Cuvil's\n");
  return options->json ? write_json(table, options, &found) : CUVIL_OK;
}
