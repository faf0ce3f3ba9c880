#!/usr/bin/env bash
# cuvil-tune from the outside: usage, dry runs, and whole tunes on the fake
# driver (kernels do nothing there, but every call is made).
set -u
tune=$CUVIL_BIN/cuvil-tune
fake=${CUVIL_BIN%/bin}/tests/fake_cuda.so
tmp=$(mktemp -d "$CUVIL_TEST_TMP/tune.XXXXXX")
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
    sed 's/^/# /' "$tmp/check.log" "$tmp/out" "$tmp/err" 2>/dev/null | tail -20
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
silent() { ! says "$@"; }

gemm='gemm/1 m=64 n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32'
# The canonical text, another spelling of it is the same problem.
spelled='gemm/1  m=64 n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32'
pool='pool/1 op=max n=1 c=8 h=8 w=8 r=2 s=2 stride=2,2 pad=0,0,0,0 dil=1,1 x=f16[n,h,w,c] y=f16[n,p,q,c] acc=f32'

check "no input is wrong usage" run 2 "$tune"
check "an unknown option is wrong usage" run 2 "$tune" --nonsense
check "the option is named" says err "^cuvil-tune: no option --nonsense; see cuvil-tune --help"
check "a missing value is wrong usage" run 2 "$tune" --seed
check "its option is named" says err "^cuvil-tune: --seed needs a value"
check "an unknown architecture is wrong usage" run 2 "$tune" --arch sm_70 --problem "$gemm"
check "a dry run needs --arch" run 2 "$tune" --dry-run --problem "$gemm"
check "an unknown family is wrong usage" run 2 "$tune" --families nobody --problem "$gemm"
check "it is named" says err 'no family "nobody"'
check "recording a replay is wrong usage" run 2 "$tune" --device replay --record x --problem "$gemm"
check "a text that is no problem is wrong usage" run 2 "$tune" --problem 'gemm/1 m=1'
check "where it goes wrong is named" says err 'CU_ERR_PARSE.*column'
check "an unknown strategy is wrong usage" run 2 "$tune" --strategy best --problem "$gemm"
check "help" run 0 "$tune" --help
check "help has examples" says out '^examples'
check "families are listed" run 0 "$tune" --list-families
check "gemm_mma is one" says out '^gemm_mma '
check "strategies are listed" run 0 "$tune" --list-strategies
check "a missing model fails" run 1 "$tune" --arch sm_90 --dry-run "$tmp/none.onnx"
check "it is named" says err 'error: CU_ERR_IO .*none\.onnx'

for arch in sm_80 sm_90; do
  check "dry run for $arch" run 0 "$tune" --arch $arch --dry-run --explain \
    --problem "$gemm" --problem "$spelled" --problem "$pool"
  check "$arch: one line a problem" test "$(grep -cE '^ (gemm|pool)/1' "$tmp/out")" -eq 2
  check "$arch: rules are explained" says out 'shared_fits +hard'
  check "$arch: counts" says out "^space [0-9]+ points -> [0-9]+ valid -> .* to compile on $arch"
done
"$tune" --arch sm_90 --dry-run --explain --problem "$gemm" >"$tmp/first"
"$tune" --arch sm_90 --dry-run --explain --problem "$gemm" >"$tmp/second"
check "the same command says the same" cmp "$tmp/first" "$tmp/second"

printf '# a list\n\n%s\n%s\n' "$gemm" "$pool" >"$tmp/list"
check "problems from a file" run 0 "$tune" --list-problems --problems "$tmp/list"
check "both" test "$(wc -l <"$tmp/out")" -eq 2
printf '%s\nnonsense\n' "$gemm" >"$tmp/bad"
check "a bad line is wrong usage" run 2 "$tune" --list-problems --problems "$tmp/bad"
check "its place is named" says err 'bad:2: '

if [ ! -e "$fake" ]; then
  echo "ok $((n + 1)) - tunes on the fake driver # SKIP $fake is not built"
  exit 0
fi
# No library of the machine: the fake driver's handles are not for them.
on_fake() {
  local wanted=$1
  shift
  run "$wanted" env CUVIL_CUDA_DRIVER="$fake" "$tune" --families gemm_mma,pool \
    --max-trials 5 --jobs 2 "$@"
}
check "a tune" on_fake 0 --db "$tmp/a.db" --problem "$gemm" --problem "$pool" --json "$tmp/a.json"
check "two winners" says out '^2 winners recorded in .*a\.db, 0 problems failed, 0 candidates failed'
check "its JSON" grep -q '"schema": "cuvil-tune/1"' "$tmp/a.json"
check "participants are in it" grep -q '"control"' "$tmp/a.json"
check "again" on_fake 0 --db "$tmp/a.db" --problem "$gemm" --problem "$pool" --json -
nothing_timed() { ! grep -qE '"timed": [1-9]' "$tmp/out"; }
check "nothing is timed" nothing_timed
check "both are tuned already" says err '^0 winners recorded .* 2 already tuned'
check "forced" on_fake 0 --db "$tmp/a.db" --force --problem "$gemm"
check "it is tuned again" says out '^1 winner recorded'
check "another architecture is refused" on_fake 1 --db "$tmp/a.db" --arch sm_80 --problem "$gemm"
check "by name" says err 'CU_ERR_ARCH_MISMATCH'
check "cold" on_fake 0 --db "$tmp/cold.db" --l2 cold --json "$tmp/cold.json" \
  --problem 'gemm/1 m=512 n=512 k=512 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32'
check "cold is said" grep -q '"l2": "cold"' "$tmp/cold.json"
check "a recording" on_fake 0 --db "$tmp/r.db" --record "$tmp/r.t4.json.zst" --problem "$gemm" --problem "$pool"
check "its problems" run 0 "$tune" --device "replay:$tmp/r.t4.json.zst" --list-problems
check "both problems" test "$(wc -l <"$tmp/out")" -eq 2
check "replayed" run 0 "$tune" --device "replay:$tmp/r.t4.json.zst" --db "$tmp/replay.db" --problem "$gemm" --problem "$pool"
check "it says so first" test "$(head -c 21 "$tmp/out")" = "replaying a recording"
check "two winners of the replay" says out '^2 winners recorded'
# Its time is over with the untuned choice: four of five have no verdict.
large='gemm/1 m=512 n=512 k=512 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32'
check "a recording that ran out of time" on_fake 0 --db "$tmp/s.db" --budget 1ms --record "$tmp/s.t4.json" \
  --json "$tmp/s.json" --problem "$large"
check "leaves four untried" says s.json '"untried": 4'
check "holds no word of what was not tried" silent s.t4.json "equal to another"
check "and is replayed" run 0 "$tune" --device "replay:$tmp/s.t4.json" --db "$tmp/s2.db" --problem "$large"
check "a problem that is not recorded" run 1 "$tune" --device "replay:$tmp/r.t4.json.zst" --db "$tmp/replay.db" \
  --problem 'gemm/1 m=63 n=64 k=64 a=f16[m,k] b=f16[n,k]:weight c=f16[m,n] acc=f32'
check "is named" says err 'CU_ERR_NO_RECORDING'
head -c 300 "$tmp/r.t4.json.zst" >"$tmp/cut.t4.json.zst"
check "a recording cut short fails" run 1 "$tune" --device "replay:$tmp/cut.t4.json.zst" --list-problems
check "it is named" says err 'CU_ERR_PARSE.*cut\.t4\.json\.zst'

# Any driver call may fail: the run ends by itself, with a line that says why
# when nothing could be tuned.
fails() {
  local call
  for call in "$@"; do
    CUVIL_FAKE_FAIL_CALL=$call timeout 60 env CUVIL_CUDA_DRIVER="$fake" "$tune" \
      --db "$tmp/fail.db" --force --families gemm_mma --max-trials 2 --jobs 1 \
      --problem "$gemm" >"$tmp/out" 2>"$tmp/err"
    case $? in
      0) ;;
      1) tail -1 "$tmp/err" | grep -qE '^cuvil-tune: error: CU_ERR_[A-Z_]+ \(0x[0-9A-F]+\): .' || {
        echo "call $call: no clear last line"
        return 1
      } ;;
      *) echo "call $call: did not end by itself" && return 1 ;;
    esac
  done
}
if [ -n "${CUVIL_TEST_FULL:-}" ]; then
  check "each of 300 driver calls may fail" fails $(seq 1 300)
else
  check "some driver calls may fail" fails 1 17 40 200
fi
