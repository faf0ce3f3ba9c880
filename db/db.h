/* db.h - the tuning database: immutable evidence, derived winners.
 *
 * One SQLite file.  Measurements, failures and races are evidence: rows that
 * are only ever added, each with a content hash, so that merging two files is
 * the union of their evidence.  Winners are a pure function of the races and
 * may be dropped and rebuilt.  sqlite3.h stays inside this folder.
 * docs/database.md describes the tables.
 *
 * Only the parent process writes; a handle belongs to one process and thread.
 * Every add is a transaction of its own: what returned CUVIL_OK survives a
 * SIGKILL.  Several processes may write one file; each waits up to a minute
 * for another (then CU_ERR_DB_BUSY).
 */
#ifndef CUVIL_DB_DB_H_
#define CUVIL_DB_DB_H_

#include "base/env.h"
#include "base/status.h"

struct cuvil_db;

enum cuvil_db_mode { CUVIL_DB_WRITE /* create when absent */, CUVIL_DB_READ };
/* path NULL: the default, as cuvil_db_default_path gives it.
 * Refused, with the file left as it is: not a database, of another program or
 * damaged (CU_ERR_DB), of a newer schema (CU_ERR_VERSION_MISMATCH), not
 * writable (CU_ERR_DB_READ_ONLY), locked (CU_ERR_DB_BUSY), absent when only
 * read (CU_ERR_DB). */
CUVIL_MUST_USE enum cuvil_status cuvil_db_open(const char *path,
                                               enum cuvil_db_mode mode,
                                               struct cuvil_db **out);
void cuvil_db_close(struct cuvil_db *db);
/* $CUVIL_DB, else ${XDG_CACHE_HOME:-~/.cache}/cuvil/cuvil.db; the folders of
 * the latter are made when a database is opened for writing there. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_default_path(char *out, size_t size);
const char *cuvil_db_path(const struct cuvil_db *db);
/* Folder of cached cubins beside the file ("<file>.cubins"); made on open for
 * writing. */
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
/* A time that is not positive and finite is CU_ERR_INVALID_ARGUMENT.  The same
 * evidence again changes nothing. */
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
  const char *library; /* "cublaslt", "cudnn"; NULL or "": our own kernel */
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
/* Exactly one participant has CUVIL_RACE_WINNER.  Also brings the derived
 * winner of the problem up to date. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_add_race(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const struct cuvil_db_race *race);

/* What is known already of a problem in exactly this context (every version
 * equal), for resuming: calls back once for each measurement or failure
 * (reason NULL: measured). */
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_known(
    struct cuvil_db *db, const struct cuvil_db_context *context,
    const char *problem,
    void (*callback)(void *user, const char *family, int family_version,
                     const char *config, const char *reason, double median),
    void *user);

/* ---- lookup.c
 * The steps a lookup goes down, in order.  Exact: same GPU product and number
 * of SMs, same driver and NVRTC, and the same cuBLASLt or cuDNN where a
 * participant of the race uses that library. */
enum cuvil_db_step {
  CUVIL_DB_EXACT,        /* same GPU, driver, NVRTC, libraries concerned */
  CUVIL_DB_OTHER_DRIVER, /* same GPU product, other versions */
  CUVIL_DB_OTHER_GPU,    /* same architecture */
  CUVIL_DB_NEIGHBOUR,    /* same architecture and signature, nearest extents */
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
  char l2[8];         /* "cold" or "warm" */
  double seconds, default_seconds, library_seconds; /* 0: not in its race */
  char default_family[48], library_family[48];
  double library_ratio_low, default_ratio_low; /* low end of time/winner's */
  bool converged;
  char gpu[96];  /* where it was tuned */
  char hash[33]; /* of the race */
};
/* accept: re-validation of a row by the caller (applicable, derive); false
 * makes it a miss of that step.  NULL accepts all.  A miss is not an error:
 * out->step is CUVIL_DB_MISS. env may hold "" for unknown versions (no GPU):
 * then only gpu/arch that are given must match.
 *
 * Unknown is what is "" while env->driver is "" too; where a driver is known,
 * a library's "" means that the library is absent and matches no other
 * version.  Within a step: measured before replayed, the preferred L2 policy,
 * the newest method, converged before not, more rounds, then the race's hash.
 */
CUVIL_MUST_USE enum cuvil_status cuvil_db_lookup(
    struct cuvil_db *db, const struct cuvil_env *env, const char *problem,
    const char *signature,
    bool (*accept)(void *user, const struct cuvil_db_winner *winner),
    void *user, struct cuvil_db_winner *out);
/* Which races this handle's lookups put first: "cold", "warm", or NULL for no
 * preference (the start).  Others still answer; see winner.l2. */
void cuvil_db_prefer_l2(struct cuvil_db *db, const char *l2);

/* ---- evidence, read back: read.c */
struct cuvil_db_stamp {
  int64_t id;           /* in this file only */
  const char *hash;     /* of the content; 32 digits */
  const char *recorded; /* UTC; not part of the content */
  struct cuvil_env env; /* what context->env points to */
};
/* Which rows; NULL or "" (0 for numbers): any.  Words are joined by "and". */
struct cuvil_db_filter {
  const char *problem; /* canonical text, whole */
  const char *kind;    /* "gemm": the problem's first word, without version */
  const char *family;  /* for a race: of any participant */
  const char *gpu;     /* product name */
  const char *source;
  const char *before; /* recorded earlier than this UTC text */
  int method_below;   /* of an older method */
};
/* Each calls back in the order of recording (row number) and passes on the
 * first status that is not CUVIL_OK.  What the callback gets is borrowed for
 * the call; it must not write to `db`. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_measurement(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(
        void *user, const struct cuvil_db_stamp *stamp,
        const struct cuvil_db_context *context,
        const struct cuvil_db_measurement *measurement),
    void *user);
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_failure(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_failure *failure),
    void *user);
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_race(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user,
                                  const struct cuvil_db_stamp *stamp,
                                  const struct cuvil_db_context *context,
                                  const struct cuvil_db_race *race),
    void *user);
/* The present winner of each problem, GPU, set of versions, source and L2
 * policy: by problem text, then the rest.  step is CUVIL_DB_EXACT. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_winner(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user, const struct cuvil_env *env,
                                  const struct cuvil_db_winner *winner),
    void *user);

/* ---- maintain.c */
struct cuvil_db_counts {
  int64_t measurements, failures, races;
};
/* Adds the evidence of the database at `from` that `db` has not, all or
 * nothing: every content hash is computed again first, and one that differs
 * refuses the merge (CU_ERR_DB).  *out: what was new. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_merge(struct cuvil_db *db,
                                                const char *from,
                                                struct cuvil_db_counts *out);
/* Drops the derived winners and makes them again. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_rebuild(struct cuvil_db *db);
/* Removes the evidence that the filter names, then winners, then texts that
 * nothing refers to any more.  Without `commit` only counts. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_prune(
    struct cuvil_db *db, const struct cuvil_db_filter *filter, bool commit,
    struct cuvil_db_counts *out);
/* Everything the file promises: SQLite's own integrity, references, content
 * hashes, possible times, winners that follow from the races.  Calls back for
 * each finding (one line); *out_findings: how many. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_verify(
    struct cuvil_db *db, void (*callback)(void *user, const char *finding),
    void *user, int *out_findings);
struct cuvil_db_stats {
  struct cuvil_db_counts evidence;
  int64_t replayed; /* of the evidence */
  int64_t problems, candidates, gpus, environments, winners;
  int64_t file_bytes, block_bytes; /* the file; raw blocks within it */
  int schema;
  char journal[16]; /* "wal" or "delete" */
};
CUVIL_MUST_USE enum cuvil_status cuvil_db_stats(struct cuvil_db *db,
                                                struct cuvil_db_stats *out);

/* ---- export.c
 * Results of the tuning community's T4 schema 1.0.0 as one JSON text: every
 * measurement and failure that the filter names.  Milliseconds.
 * https://github.com/odgaard/TuningSchema, Kernel Tuner's results-schema. */
struct cuvil_buf;
CUVIL_MUST_USE enum cuvil_status cuvil_db_export_t4(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    struct cuvil_buf *out);

/* ---- import.c
 * Adds the measurements and failures of a file that cuvil_db_export_t4 wrote,
 * all or nothing, each with the source and content hash that it had.  Refused:
 * content that does not give its hash (CU_ERR_DB), results of other programs
 * and recordings (CU_ERR_UNSUPPORTED).  *out: what was new. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_import_t4(
    struct cuvil_db *db, const char *path, struct cuvil_db_counts *out);

/* ---- kernel_tuner.c
 * Kernel Tuner's cache file of one family on one problem, which the filter
 * must name.  Such a file knows one circumstance; of several, measured goes
 * before replayed, then the newest method, then who has most measurements,
 * and what was chosen is said in the log.  Several GPUs are refused: the
 * filter must name one.  Milliseconds.  What the format has no place for
 * stands in a member `cuvil` that Kernel Tuner passes over. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_export_kernel_tuner(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    struct cuvil_buf *out);
/* Calls back once for each configuration in that cache. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_each_cached(
    struct cuvil_db *db, const struct cuvil_db_filter *filter,
    enum cuvil_status (*callback)(void *user, const char *config), void *user);
/* As cuvil_db_import_t4, of such a cache. */
CUVIL_MUST_USE enum cuvil_status cuvil_db_import_kernel_tuner(
    struct cuvil_db *db, const char *path, struct cuvil_db_counts *out);

#endif /* CUVIL_DB_DB_H_ */
