/* db.h - the tuning database: immutable evidence, derived winners.
 *
 * One SQLite file.  Measurements, failures and races are evidence: rows that
 * are only ever added, each with a content hash, so that merging two files is
 * the union of their evidence.  Winners are a pure function of the races and
 * may be dropped and rebuilt.  sqlite3.h stays inside this folder.
 *
 * Only the parent process writes; a handle belongs to one process and thread.
 */
#ifndef CUVIL_DB_DB_H_
#define CUVIL_DB_DB_H_

#include "base/env.h"
#include "base/status.h"

struct cuvil_db;

enum cuvil_db_mode { CUVIL_DB_WRITE /* create when absent */, CUVIL_DB_READ };
/* path NULL: $CUVIL_DB, else ${XDG_CACHE_HOME:-~/.cache}/cuvil/cuvil.db. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_open(const char *path,
                                               enum cuvil_db_mode mode,
                                               struct cuvil_db **out);
void cuvil_db_close(struct cuvil_db *db);
const char *cuvil_db_path(const struct cuvil_db *db);
/* Folder of cached cubins beside the file ("<file>.cubins"); made on open. */
const char *cuvil_db_cubin_dir(const struct cuvil_db *db);

/* What was tried.  All texts borrowed for the call. */
struct cuvil_db_candidate {
  const char *problem;   /* canonical text */
  const char *signature; /* its signature */
  const char *family;    /* id */
  int family_version;
  const char *config; /* canonical text */
};
/* In which circumstances. */
struct cuvil_db_context {
  const struct cuvil_env *env;
  const char *source; /* "measured" or "replayed" */
  const char *l2;     /* "cold" or "warm": what the time means */
  const char *regime; /* "burst" or "steady" */
  int method;         /* CUVIL_METHOD_VERSION */
};

struct cuvil_db_measurement {
  struct cuvil_db_candidate candidate;
  const char *cubin_hash; /* "" for a library */
  int registers, spill_bytes, shared_bytes;
  double compile_seconds;
  double worst_ratio;   /* verification: worst error over its bound */
  const double *blocks; /* seconds of one run, by block */
  const int *rounds;    /* round number of each block */
  int block_count;
  double median, low, high; /* seconds; interval of the median at 95 % */
};
CUVIL_MUST_USE enum cuvil_status cuvil_db_add_measurement(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_measurement *measurement);

struct cuvil_db_failure {
  struct cuvil_db_candidate candidate;
  const char *reason; /* "compile" "compile_timeout" "spill" "launch" "timeout"
                         "memory" "wrong" "incomplete" "overrun" "nan" "noise"
                         "library" "crash" */
  const char *detail; /* one line for a person */
};
CUVIL_MUST_USE enum cuvil_status cuvil_db_add_failure(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_failure *failure);

enum {
  CUVIL_RACE_DEFAULT = 1,       /* the untuned choice */
  CUVIL_RACE_LIBRARY_FIRST = 2, /* a library's own first choice */
  CUVIL_RACE_TIE = 4,           /* in the tie set */
  CUVIL_RACE_WINNER = 8,
  CUVIL_RACE_CONTROL = 16 /* second copy of a participant: A/A */
};
struct cuvil_db_participant {
  const char *family;
  int family_version;
  const char *config;
  unsigned flags;
  const double *seconds; /* by round; NaN: not in that round */
  double median;
  double ratio, ratio_low, ratio_high; /* its time / the winner's, paired */
};
struct cuvil_db_race {
  const char *problem, *signature;
  int rounds;
  int participant_count;
  const struct cuvil_db_participant *participants;
  bool converged;
};
/* Also brings the derived winner of the problem up to date. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_add_race(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_race *race);

/* What is known already of a problem in an environment, for resuming: calls
 * back once for each measurement or failure (reason NULL: measured). */
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_known(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const char *problem,
    void (*callback)(void *user, const char *family, int family_version,
                     const char *config, const char *reason, double median),
    void *user);

/* The steps a lookup goes down, in order. */
enum cuvil_db_step {
  CUVIL_DB_EXACT,        /* same GPU, driver, NVRTC, libraries concerned */
  CUVIL_DB_OTHER_DRIVER, /* same GPU product, other versions */
  CUVIL_DB_OTHER_GPU,    /* same architecture */
  CUVIL_DB_NEIGHBOUR,    /* same signature, nearest extents */
  CUVIL_DB_MISS
};
const char *cuvil_db_step_name(enum cuvil_db_step step);
struct cuvil_db_winner {
  enum cuvil_db_step step;
  char family[48];
  int family_version;
  char config[1024];
  char problem[2048]; /* the one that was tuned; differs for NEIGHBOUR */
  char source[16];    /* "measured" or "replayed" */
  double seconds, default_seconds, library_seconds; /* 0: not in its race */
  char default_family[48], library_family[48];
  double library_ratio_low, default_ratio_low; /* low end of time/winner's */
  bool converged;
};
/* accept: re-validation of a row by the caller (applicable, derive); false
 * makes it a miss of that step.  NULL accepts all.  A miss is not an error:
 * out->step is CUVIL_DB_MISS. env may hold "" for unknown versions (no GPU):
 * then only gpu/arch that are given must match. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_lookup(
    struct cuvil_db *db, const struct cuvil_env *env, const char *problem,
    const char *signature,
    bool (*accept)(void *user, const struct cuvil_db_winner *winner),
    void *user, struct cuvil_db_winner *out);

#endif /* CUVIL_DB_DB_H_ */
