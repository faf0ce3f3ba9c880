#!/usr/bin/env bash
# cuvil-db export and import from the outside: what leaves in T4 or in Kernel
# Tuner's format comes back the same; spaces as T1.
set -u
db=$CUVIL_BIN/cuvil-db
tune=$CUVIL_BIN/cuvil-tune
recording=bench/recordings/resnet50-b1-fp16-exhaustive.t4.json.zst
tmp=$(mktemp -d "$CUVIL_TEST_TMP/interchange.XXXXXX")
unset CUVIL_DB
n=0
check() { # name, command...
  local name=$1
  shift
  n=$((n + 1))
  if "$@" >"$tmp/check.log" 2>&1; then
    echo "ok $n - $name"
  else
    echo "not ok $n - $name"
    sed 's/^/# /' "$tmp/check.log" "$tmp/out" "$tmp/err" 2>/dev/null |
      cut -c1-300 | tail -20
  fi
}
# Runs the command; its exit status must be $1.
run() {
  local wanted=$1 rc
  shift
  "$@" >"$tmp/out" 2>"$tmp/err"
  rc=$?
  [ "$rc" -eq "$wanted" ] || { echo "exit $rc, not $wanted"; false; }
}
says() { grep -qE -- "$2" "$tmp/$1"; }
has() { grep -qF -- "$2" "$tmp/$1"; }
# Entries of the cache (not of the rows beside it).
entries() { grep -oE '"benchmark_time":' "$tmp/$1" | wc -l; }

gemm='gemm/1 m=3136 n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32 epi{t0=add(acc,bias[n]:weight); out=relu(t0)}'
mine=(--problem "$gemm" --family gemm_mma)

check "a recording becomes a database" run 0 "$tune" --device "replay:$recording" \
  --exhaustive --db "$tmp/a.db" --problem "$gemm"
count=$("$db" show --db "$tmp/a.db" --family gemm_mma --json - |
  grep -oE '"compile_seconds":' | wc -l)

# ---- usage
check "import needs a format" run 2 "$db" import file.json
check "they are named" says err 'import: name the format: --t4 or --kernel-tuner'
check "T1 has no evidence" run 2 "$db" import --t1 file.json
check "a cache is of one problem" run 2 "$db" export --kernel-tuner --family gemm_mma
check "a space is of one family" run 2 "$db" export --t1 --arch sm_90 --problem "$gemm"
check "a space needs an architecture" run 2 "$db" export --t1 "${mine[@]}"
check "the architectures are named" says err 'sm_80, sm_90'
check "--tried is of T1" run 2 "$db" export --t4 --tried

# ---- T4
check "T4 out" run 0 "$db" export --t4 --db "$tmp/a.db" -o "$tmp/a.json"
check "T4 in" run 0 "$db" import --t4 --db "$tmp/b.db" "$tmp/a.json"
check "all of it is new" says out ' 246 measurements, 0 failures were new'
check "again" run 0 "$db" import --t4 --db "$tmp/b.db" "$tmp/a.json"
check "nothing is new" says out ' 0 measurements, 0 failures were new'
check "out again" run 0 "$db" export --t4 --db "$tmp/b.db" -o "$tmp/b.json"
check "the same file" cmp "$tmp/a.json" "$tmp/b.json"
check "the copy is sound" run 0 "$db" verify --db "$tmp/b.db"
check "the copy has nothing for the original" run 0 "$db" merge --db "$tmp/a.db" "$tmp/b.db"
check "same hashes" says out ' 0 measurements, 0 failures, 0 races were new'
check "no winner was imported" run 1 "$db" lookup --db "$tmp/b.db" --arch sm_90 "$gemm"
sed 's/"source":"replayed"/"source":"measured"/' "$tmp/a.json" >"$tmp/forged.json"
check "replayed is not made measured" run 1 "$db" import --t4 --db "$tmp/c.db" "$tmp/forged.json"
check "the reason is given" says err "CU_ERR_DB .*result 0: the content's hash"
printf '{"schema_version":"1.0.0","metadata":{"cuvil":{"recording":1}},"results":[]}' >"$tmp/recording.json"
check "a recording is not results" run 1 "$db" import --t4 --db "$tmp/c.db" "$tmp/recording.json"
check "its use is named" says err 'CU_ERR_UNSUPPORTED .*cuvil-tune --device replay:'

# ---- Kernel Tuner's cache
check "cache out" run 0 "$db" export --kernel-tuner "${mine[@]}" --db "$tmp/a.db" -o "$tmp/cache.json"
check "one entry a configuration" test "$(entries cache.json)" -eq "$count"
check "its head" has cache.json '{"device_name":"NVIDIA H200","kernel_name":"gemm_mma","problem_size":[3136,64,64],"tune_params_keys":["tile_m","tile_n","tile_k"'
check "its values" has cache.json '"tile_n":[32,64,128]'
check "its objective" has cache.json '"objective":"time"'
check "its end is what Kernel Tuner looks for" test "$(tail -c 4 "$tmp/cache.json" | od -An -c | tr -d ' ')" = '}\n}\n'
check "cache in" run 0 "$db" import --kernel-tuner --db "$tmp/k.db" "$tmp/cache.json"
check "all of it" says out " $count measurements, 0 failures were new"
check "it is the original's" run 0 "$db" merge --db "$tmp/a.db" "$tmp/k.db"
check "with the same hashes" says out ' 0 measurements, 0 failures, 0 races were new'
printf '{"device_name":"A100","kernel_name":"convolution","problem_size":[4096,4096],"tune_params_keys":["block_size_x"],"tune_params":{"block_size_x":[16]},"objective":"time","cache":{"16":{"block_size_x":16,"time":1.5,"timestamp":"2024-01-01 00:00:00"}}}' >"$tmp/foreign.json"
check "another program's cache is refused" run 1 "$db" import --kernel-tuner --db "$tmp/k.db" "$tmp/foreign.json"
check "clearly" says err 'CU_ERR_UNSUPPORTED .*entry 16: not written by cuvil-db export'
check "its use is named" has err 'cuvil-tune --device replay:FILE'
# A brute force of another program: 48 configurations, one failed; its form is
# that of Kernel Tuner's public result files.
awk 'BEGIN {
  printf "{\"device_name\":\"A100\",\"kernel_name\":\"blur\",\"problem_size\":[64,64],"
  printf "\"tune_params_keys\":[\"x\",\"y\",\"z\"],\"tune_params\":{},\"objective\":\"time\",\"cache\":{"
  for (x = 1; x <= 4; x++) for (y = 1; y <= 4; y++) for (z = 1; z <= 3; z++) {
    time = (x == 1 && y == 1 && z == 1) ? "\"CompilationFailedConfig\"" : (x - 3) ^ 2 + (y - 2) ^ 2 + z * 0.5
    printf "%s\"%d,%d,%d\":{\"x\":%d,\"y\":%d,\"z\":%d,\"time\":%s,\"compile_time\":9,\"benchmark_time\":1}", n++ ? "," : "", x, y, z, x, y, z, time
  }
  print "}}"
}' >"$tmp/blur.json"
check "its search is replayed" run 0 "$tune" --device "replay:$tmp/blur.json" --exhaustive --json "$tmp/blur.out"
check "nothing is measured" says out '^replaying a recording, nothing is measured'
check "what it is of" says out ': blur 64x64 on A100, 48 configurations, 1 failed'
check "the optimum is found" says out '^best    0.5 ms .*1.000x of the optimum.*x=3,y=2,z=1'
check "for machines too" has blur.out '"schema":"cuvil-table/1"'
for strategy in ordered surrogate evolve local random; do
  check "$strategy on it" run 0 "$tune" --device "replay:$tmp/blur.json" --strategy "$strategy" --max-trials 20
  check "$strategy tries 20" says out ', seed 1: 20 trials'
  cp "$tmp/out" "$tmp/first"
  check "again" run 0 "$tune" --device "replay:$tmp/blur.json" --strategy "$strategy" --max-trials 20
  check "is the same" cmp "$tmp/out" "$tmp/first"
done
check "no problem goes with it" run 1 "$tune" --device "replay:$tmp/blur.json" --problem "$gemm"
gzip -k "$tmp/blur.json"
check "packed" run 1 "$tune" --device "replay:$tmp/blur.json.gz"
check "the way out is named" says err 'unpack it first: gunzip'
check "not a cache" run 1 "$db" import --kernel-tuner --db "$tmp/k.db" "$tmp/a.json"
check "is said" says err 'CU_ERR_PARSE .*not a cache of Kernel Tuner'

# ---- T1
check "a space needs no database" run 0 "$db" export --t1 "${mine[@]}" --arch sm_90 --db "$tmp/none.db" -o "$tmp/t1.json"
check "none was made" test ! -e "$tmp/none.db"
check "parameters" has t1.json '{"Name":"tile_m","Type":"int","Values":"[16, 32, 64, 128, 256]","Default":'
check "a rule over parameters" has t1.json '{"Parameters":["tile_m","warps_m"],"Expression":"tile_m % (16 * warps_m) == 0"}'
check "an extent is put in" has t1.json '(split_k - 1) * tile_k < 64'
check "a limit is put in" has t1.json '1 < split_k <= 8 if reduce == 1 else True'
check "no other name is left" test -z "$(grep -oE 'arch\.|size_a|shared_bytes' "$tmp/t1.json")"
check "what has no closed form is listed" has t1.json '{"Parameters":["tile_m","tile_n","tile_k","slice_k","stages"],"Expression":"(tile_m, tile_n, tile_k, slice_k, stages, ) not in {('
check "the file names itself" has t1.json '"KernelFile":"t1.json"'
check "no heuristic rule" test -z "$(grep -F '"Expression":"pdl == 1"' "$tmp/t1.json")"
check "sm_80" run 0 "$db" export --t1 "${mine[@]}" --arch sm_80 -o "$tmp/t1_80.json"
check "has its own rules" has t1_80.json '{"Parameters":["reduce"],"Expression":"reduce == 0"}'
check "only points with evidence" run 0 "$db" export --t1 --tried "${mine[@]}" --arch sm_90 --db "$tmp/a.db" -o "$tmp/tried.json"
check "as many as the cache has" test "$(grep -oE '\([0-9]+(, [0-9]+){11}, \)' "$tmp/tried.json" | wc -l)" -eq "$count"
check "a library's space is not listed" run 1 "$db" export --t1 --problem "$gemm" --family gemm_cublaslt --arch sm_90
check "another kind's family" run 1 "$db" export --t1 --problem "$gemm" --family conv_mma --arch sm_90
check "is said" says err 'conv_mma does not compute gemm/1'
check "an unknown family" run 1 "$db" export --t1 --problem "$gemm" --family nobody --arch sm_90
