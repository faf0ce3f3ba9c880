/* recording.h - what a GPU answered, kept so that a search can be replayed.
 *
 * One file for many problems, T4 JSON (the autotuning community's results
 * schema 1.0.0) with our own keys under "cuvil"; a name that ends in .zst is
 * compressed.
 *
 *   { "schema_version": "1.0.0",
 *     "metadata": { "timeunit": "milliseconds", "hardware": {...},
 *       "cuvil": { "recording": 1, "method": 1, "seed": 1, "created": "...",
 *                  "arch": {...}, "environment": {...},
 *                  "problems": [ { "problem": text, "l2": "warm",
 *                                  "valid": 812, "recorded": 812 } ] } },
 *     "results": [
 *       { "configuration": {"family": "gemm_mma", "tile_m": 64, ...},
 *         "objectives": ["time"],
 *         "times": {"compilation": ms, "runtimes": [ms, ...],
 *                   "framework": 0, "search_algorithm": 0, "validation": 0},
 *         "invalidity": "correct", "correctness": 1,
 *         "measurements": [{"name": "time", "value": ms,
 *                           "unit": "milliseconds"}],
 *         "cuvil": { "problem": 0, "family": id, "version": 1,
 *                    "config": text, "choice": -1,
 *                    "rounds": [-3, -2, -1, 0, 1, ...],   of each runtime
 *                    "control": [ms, ...],     second copy, when it had one
 *                    "hash": ..., "binary": ..., "registers": 128,
 *                    "spill_bytes": 0, "shared_bytes": 49152,
 *                    "worst_ratio": 0.4,
 *                    "reason": "wrong", "detail": "..." } } ] }
 *
 * Negative rounds are pilot blocks, before the race.
 */
#ifndef CUVIL_TUNER_RECORDING_H_
#define CUVIL_TUNER_RECORDING_H_

#include "base/arch.h"
#include "base/env.h"
#include "base/json.h"
#include "tuner/candidates.h"

struct cuvil_record {
  int problem; /* index */
  char *family, *config;
  int version, choice;
  struct cuvil_compiled compiled;
  struct cuvil_outcome outcome;
  double worst_ratio;
  int block_count;
  int *rounds;
  double *seconds;
  int control_count;
  double *control; /* seconds */
};
struct cuvil_recorded_problem {
  char *text;
  char l2[8];
  int64_t valid, recorded; /* points of its spaces; recorded fewer: a sample */
};
struct cuvil_recording {
  char *path; /* "" before it was written */
  struct cuvil_arch arch;
  struct cuvil_env env;
  int method;
  int64_t seed;
  char created[32];
  int problem_count;
  struct cuvil_recorded_problem *problems;
  int record_count, record_capacity;
  struct cuvil_record *records;
  json_t *index; /* internal: problem, family and config to record */
};

CUVIL_MUST_USE enum cuvil_status cuvil_recording_create(
    const struct cuvil_arch *arch, const struct cuvil_env *env, int64_t seed,
    struct cuvil_recording **out);
/* Every index, size and number is checked: a file is not believed. */
CUVIL_MUST_USE enum cuvil_status cuvil_recording_read(
    const char *path, struct cuvil_recording **out);
CUVIL_MUST_USE enum cuvil_status cuvil_recording_parse(
    const char *text, size_t size, const char *origin,
    struct cuvil_recording **out);
CUVIL_MUST_USE enum cuvil_status cuvil_recording_write(
    const struct cuvil_recording *recording, const char *path);
void cuvil_recording_destroy(struct cuvil_recording *recording);

CUVIL_MUST_USE enum cuvil_status cuvil_recording_add_problem(
    struct cuvil_recording *recording, const char *text, const char *l2,
    int64_t valid, int64_t recorded, int *out_index);
/* Copies what the search knows of a candidate. */
CUVIL_MUST_USE enum cuvil_status cuvil_recording_add(
    struct cuvil_recording *recording, int problem,
    const struct cuvil_candidate *candidate);
/* Takes the record's memory, also when it fails; CU_ERR_PARSE when that
 * candidate is there already. */
CUVIL_MUST_USE enum cuvil_status cuvil_recording_push(
    struct cuvil_recording *recording, struct cuvil_record *record);
/* -1, NULL: not there. */
int cuvil_recording_problem(const struct cuvil_recording *recording,
                            const char *text);
const struct cuvil_record *cuvil_recording_find(
    const struct cuvil_recording *recording, int problem, const char *family,
    const char *config);

#endif /* CUVIL_TUNER_RECORDING_H_ */
