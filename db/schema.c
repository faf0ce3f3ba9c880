/* schema.c - the tables, as the steps that lead from each version to the next.
 *
 * Once released, a migration is frozen: tests/data/db holds a file's worth of
 * every older schema, and each must come up to the present one.  Evidence
 * tables hold what was seen; everything that repeats (GPU, versions, problem,
 * candidate, circumstance) is one row of a dimension table.  `hash` is the
 * content's hash (evidence.c) and makes adding idempotent; `recorded` is when
 * it was first written and no part of the content.  `winner` is derived from
 * the races (winner.c) and may be emptied at any time.
 *
 * Blobs are little-endian: float64 seconds, int32 round numbers.
 */
#include "db/internal.h"

#define CIRCUMSTANCE                                                  \
  "  circumstance_id INTEGER NOT NULL REFERENCES circumstance(id),\n" \
  "  recorded TEXT NOT NULL,\n"
#define CANDIDATE "  candidate_id INTEGER NOT NULL REFERENCES candidate(id),\n"
#define HASH "  hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 32),\n"

static const char version_1[] =
    "CREATE TABLE gpu (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  product TEXT NOT NULL,\n"
    "  arch TEXT NOT NULL,\n"
    "  sms INTEGER NOT NULL,\n"
    "  memory_bytes INTEGER NOT NULL,\n"
    "  l2_bytes INTEGER NOT NULL,\n"
    "  UNIQUE (product, arch, sms, memory_bytes, l2_bytes)\n"
    ") STRICT;\n"
    "CREATE TABLE versions (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  driver TEXT NOT NULL,\n"
    "  cuda TEXT NOT NULL,\n"
    "  nvrtc TEXT NOT NULL,\n"
    "  cublaslt TEXT NOT NULL,\n"
    "  cudnn TEXT NOT NULL,\n"
    "  UNIQUE (driver, cuda, nvrtc, cublaslt, cudnn)\n"
    ") STRICT;\n"
    "CREATE TABLE problem (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  text TEXT NOT NULL UNIQUE,\n"
    "  signature TEXT NOT NULL\n"
    ") STRICT;\n"
    "CREATE INDEX problem_by_signature ON problem (signature);\n"
    "CREATE TABLE candidate (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  problem_id INTEGER NOT NULL REFERENCES problem(id),\n"
    "  family TEXT NOT NULL,\n"
    "  family_version INTEGER NOT NULL,\n"
    "  config TEXT NOT NULL,\n"
    "  UNIQUE (problem_id, family, family_version, config)\n"
    ") STRICT;\n"
    "CREATE TABLE circumstance (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  gpu_id INTEGER NOT NULL REFERENCES gpu(id),\n"
    "  versions_id INTEGER NOT NULL REFERENCES versions(id),\n"
    "  source TEXT NOT NULL CHECK (source IN ('measured', 'replayed')),\n"
    "  l2 TEXT NOT NULL CHECK (l2 IN ('cold', 'warm')),\n"
    "  regime TEXT NOT NULL CHECK (regime IN ('burst', 'steady')),\n"
    "  method INTEGER NOT NULL CHECK (method > 0),\n"
    "  UNIQUE (gpu_id, versions_id, source, l2, regime, method)\n"
    ") STRICT;\n"
    "CREATE TABLE measurement (\n"
    "  id INTEGER PRIMARY KEY,\n" HASH CANDIDATE CIRCUMSTANCE
    "  cubin_hash TEXT NOT NULL,\n"
    "  registers INTEGER NOT NULL,\n"
    "  spill_bytes INTEGER NOT NULL,\n"
    "  shared_bytes INTEGER NOT NULL,\n"
    "  compile_seconds REAL NOT NULL,\n"
    "  worst_ratio REAL,\n"
    "  median REAL NOT NULL CHECK (median > 0),\n"
    "  low REAL NOT NULL CHECK (low > 0 AND low <= median),\n"
    "  high REAL NOT NULL CHECK (high >= median),\n"
    "  blocks BLOB NOT NULL,\n"
    "  rounds BLOB NOT NULL,\n"
    "  CHECK (length(blocks) > 0 AND length(blocks) = 2 * length(rounds))\n"
    ") STRICT;\n"
    "CREATE INDEX measurement_by_candidate ON measurement (candidate_id);\n"
    "CREATE TABLE failure (\n"
    "  id INTEGER PRIMARY KEY,\n" HASH CANDIDATE CIRCUMSTANCE
    "  reason TEXT NOT NULL CHECK (reason <> ''),\n"
    "  detail TEXT NOT NULL\n"
    ") STRICT;\n"
    "CREATE INDEX failure_by_candidate ON failure (candidate_id);\n"
    "CREATE TABLE race (\n"
    "  id INTEGER PRIMARY KEY,\n" HASH
    "  problem_id INTEGER NOT NULL REFERENCES problem(id),\n" CIRCUMSTANCE
    "  rounds INTEGER NOT NULL CHECK (rounds > 0),\n"
    "  converged INTEGER NOT NULL CHECK (converged IN (0, 1))\n"
    ") STRICT;\n"
    "CREATE INDEX race_by_problem ON race (problem_id);\n"
    "CREATE TABLE race_participant (\n"
    "  race_id INTEGER NOT NULL REFERENCES race(id) ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL,\n" CANDIDATE
    "  library TEXT NOT NULL,\n"
    "  flags INTEGER NOT NULL,\n"
    "  median REAL CHECK (median > 0),\n"
    "  ratio REAL,\n"
    "  ratio_low REAL,\n"
    "  ratio_high REAL,\n"
    "  seconds BLOB NOT NULL,\n"
    "  PRIMARY KEY (race_id, position)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE INDEX participant_by_candidate"
    " ON race_participant (candidate_id);\n"
    "CREATE TABLE winner (\n"
    "  race_id INTEGER PRIMARY KEY REFERENCES race(id) ON DELETE CASCADE,\n"
    "  problem_id INTEGER NOT NULL REFERENCES problem(id),\n"
    "  place INTEGER NOT NULL,\n" CANDIDATE
    "  uses_cublaslt INTEGER NOT NULL,\n"
    "  uses_cudnn INTEGER NOT NULL,\n"
    "  seconds REAL NOT NULL,\n"
    "  default_id INTEGER REFERENCES candidate(id),\n"
    "  default_seconds REAL,\n"
    "  default_ratio_low REAL,\n"
    "  library_id INTEGER REFERENCES candidate(id),\n"
    "  library_seconds REAL,\n"
    "  library_ratio_low REAL\n"
    ") STRICT;\n"
    "CREATE INDEX winner_by_problem ON winner (problem_id, place);\n";

const char *const cuvil_db_migrations[CUVIL_DB_SCHEMA] = {version_1};
