PRAGMA application_id = 1131763308;
PRAGMA user_version = 1;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE gpu (
  id INTEGER PRIMARY KEY,
  product TEXT NOT NULL,
  arch TEXT NOT NULL,
  sms INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  l2_bytes INTEGER NOT NULL,
  UNIQUE (product, arch, sms, memory_bytes, l2_bytes)
) STRICT;
INSERT INTO gpu VALUES(1,'NVIDIA H200','sm_90',132,150000000000,62914560);
CREATE TABLE versions (
  id INTEGER PRIMARY KEY,
  driver TEXT NOT NULL,
  cuda TEXT NOT NULL,
  nvrtc TEXT NOT NULL,
  cublaslt TEXT NOT NULL,
  cudnn TEXT NOT NULL,
  UNIQUE (driver, cuda, nvrtc, cublaslt, cudnn)
) STRICT;
INSERT INTO versions VALUES(1,'580.159.04','13.0','13.0','13.1.0','9.14.0');
CREATE TABLE problem (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE,
  signature TEXT NOT NULL
) STRICT;
INSERT INTO problem VALUES(1,'gemm/1 m=128 n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32','gemm/1 m=*1 n=*16 k=*16 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32');
CREATE TABLE candidate (
  id INTEGER PRIMARY KEY,
  problem_id INTEGER NOT NULL REFERENCES problem(id),
  family TEXT NOT NULL,
  family_version INTEGER NOT NULL,
  config TEXT NOT NULL,
  UNIQUE (problem_id, family, family_version, config)
) STRICT;
INSERT INTO candidate VALUES(1,1,'gemm_mma',1,'tile=64');
INSERT INTO candidate VALUES(2,1,'gemm_mma',1,'tile=128');
INSERT INTO candidate VALUES(3,1,'gemm_simt',1,'tile=8');
INSERT INTO candidate VALUES(4,1,'gemm_cublaslt',1,'choice=0');
CREATE TABLE circumstance (
  id INTEGER PRIMARY KEY,
  gpu_id INTEGER NOT NULL REFERENCES gpu(id),
  versions_id INTEGER NOT NULL REFERENCES versions(id),
  source TEXT NOT NULL CHECK (source IN ('measured', 'replayed')),
  l2 TEXT NOT NULL CHECK (l2 IN ('cold', 'warm')),
  regime TEXT NOT NULL CHECK (regime IN ('burst', 'steady')),
  method INTEGER NOT NULL CHECK (method > 0),
  UNIQUE (gpu_id, versions_id, source, l2, regime, method)
) STRICT;
INSERT INTO circumstance VALUES(1,1,1,'measured','cold','burst',1);
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 32),
  candidate_id INTEGER NOT NULL REFERENCES candidate(id),
  circumstance_id INTEGER NOT NULL REFERENCES circumstance(id),
  recorded TEXT NOT NULL,
  cubin_hash TEXT NOT NULL,
  registers INTEGER NOT NULL,
  spill_bytes INTEGER NOT NULL,
  shared_bytes INTEGER NOT NULL,
  compile_seconds REAL NOT NULL,
  worst_ratio REAL,
  median REAL NOT NULL CHECK (median > 0),
  low REAL NOT NULL CHECK (low > 0 AND low <= median),
  high REAL NOT NULL CHECK (high >= median),
  blocks BLOB NOT NULL,
  rounds BLOB NOT NULL,
  CHECK (length(blocks) > 0 AND length(blocks) = 2 * length(rounds))
) STRICT;
INSERT INTO measurement VALUES(1,'274334f7df40cdfb69cc4f264ba92db6',1,1,'2026-12-01T18:08:09.865Z','0123456789abcdef0123456789abcdef',96,0,49152,0.75,0.125,1.0000000000000000817e-05,9.9000000000000000811e-06,1.0100000000000001554e-05,X'f168e388b5f8e43e50e2186e652ee53e92efada305c3e43e',X'000000000100000005000000');
CREATE TABLE failure (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 32),
  candidate_id INTEGER NOT NULL REFERENCES candidate(id),
  circumstance_id INTEGER NOT NULL REFERENCES circumstance(id),
  recorded TEXT NOT NULL,
  reason TEXT NOT NULL CHECK (reason <> ''),
  detail TEXT NOT NULL
) STRICT;
INSERT INTO failure VALUES(1,'24c2d46fd4210775590b2922b55ad66f',2,1,'2026-12-01T18:08:09.865Z','compile','what a person reads');
CREATE TABLE race (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 32),
  problem_id INTEGER NOT NULL REFERENCES problem(id),
  circumstance_id INTEGER NOT NULL REFERENCES circumstance(id),
  recorded TEXT NOT NULL,
  rounds INTEGER NOT NULL CHECK (rounds > 0),
  converged INTEGER NOT NULL CHECK (converged IN (0, 1))
) STRICT;
INSERT INTO race VALUES(1,'cb50921aa25eca8b050bf824ecf447d9',1,1,'2026-12-01T18:08:09.865Z',8,1);
CREATE TABLE race_participant (
  race_id INTEGER NOT NULL REFERENCES race(id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  candidate_id INTEGER NOT NULL REFERENCES candidate(id),
  library TEXT NOT NULL,
  flags INTEGER NOT NULL,
  median REAL CHECK (median > 0),
  ratio REAL,
  ratio_low REAL,
  ratio_high REAL,
  seconds BLOB NOT NULL,
  PRIMARY KEY (race_id, position)
) STRICT, WITHOUT ROWID;
INSERT INTO race_participant VALUES(1,0,1,'',12,1.0000000000000000817e-05,1.0,1.0,1.0,X'f168e388b5f8e43ef168e388b5f8e43ef168e388b5f8e43ef168e388b5f8e43ef168e388b5f8e43ef168e388b5f8e43ef168e388b5f8e43ef168e388b5f8e43e');
INSERT INTO race_participant VALUES(1,1,3,'',1,2.0000000000000001634e-05,2.0,1.8999999999999999111,2.1000000000000000888,X'f168e388b5f8f43e000000000000f87ff168e388b5f8f43ef168e388b5f8f43ef168e388b5f8f43ef168e388b5f8f43ef168e388b5f8f43ef168e388b5f8f43e');
INSERT INTO race_participant VALUES(1,2,4,'cublaslt',2,1.5000000000000002073e-05,1.5,1.3999999999999999111,1.6000000000000000888,X'6a1d554d1075ef3e6a1d554d1075ef3e6a1d554d1075ef3e6a1d554d1075ef3e6a1d554d1075ef3e6a1d554d1075ef3e6a1d554d1075ef3e6a1d554d1075ef3e');
CREATE TABLE winner (
  race_id INTEGER PRIMARY KEY REFERENCES race(id) ON DELETE CASCADE,
  problem_id INTEGER NOT NULL REFERENCES problem(id),
  place INTEGER NOT NULL,
  candidate_id INTEGER NOT NULL REFERENCES candidate(id),
  uses_cublaslt INTEGER NOT NULL,
  uses_cudnn INTEGER NOT NULL,
  seconds REAL NOT NULL,
  default_id INTEGER REFERENCES candidate(id),
  default_seconds REAL,
  default_ratio_low REAL,
  library_id INTEGER REFERENCES candidate(id),
  library_seconds REAL,
  library_ratio_low REAL
) STRICT;
INSERT INTO winner VALUES(1,1,1,1,1,0,1.0000000000000000817e-05,3,2.0000000000000001634e-05,1.8999999999999999111,4,1.5000000000000002073e-05,1.3999999999999999111);
CREATE INDEX problem_by_signature ON problem (signature);
CREATE INDEX measurement_by_candidate ON measurement (candidate_id);
CREATE INDEX failure_by_candidate ON failure (candidate_id);
CREATE INDEX race_by_problem ON race (problem_id);
CREATE INDEX participant_by_candidate ON race_participant (candidate_id);
CREATE INDEX winner_by_problem ON winner (problem_id, place);
COMMIT;
