#!/usr/bin/env bash
# Runs test programs and scripts, each printing TAP ("ok 1 - name"), and adds
# them up.  A program that dies without saying so is one failure; a script that
# prints no result at all is a failure too, so that no test can pass by being
# empty.  Several run at a time, those first that took longest the last time;
# each has folders of its own and its report is printed in one piece.
#
# Environment: CUVIL_BIN (folder of the commands), CUVIL_TEST_JOBS (how many at
# a time; default: the cores), CUVIL_TEST_TIMEOUT (seconds each; default 300).
set -u
cd "$(dirname "$0")/.."
export CUVIL_BIN=${CUVIL_BIN:-$PWD/build/release/bin}
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C
jobs=${CUVIL_TEST_JOBS:-$(nproc)}
# Tests must not touch a user's database.
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
# Where the times of the last run are kept, and what is long before there are.
times=build/test-times
long=' emulate_test mma_emulate_test kernels_test mma_compile_test attention_test compile.sh tune.sh '

one() { # one TEST NUMBER: leaves report.NUMBER, counts.NUMBER
  local t=$1 name log rc p f s start=$SECONDS
  name=$(basename "$t")
  export CUVIL_TEST_TMP=$top/$2
  export XDG_CACHE_HOME=$CUVIL_TEST_TMP/cache TMPDIR=$CUVIL_TEST_TMP
  mkdir -p "$CUVIL_TEST_TMP"
  log=$top/log.$2
  case $t in
    *.sh) timeout "${CUVIL_TEST_TIMEOUT:-300}" bash "$t" >"$log" 2>&1 ;;
    *) timeout "${CUVIL_TEST_TIMEOUT:-300}" "$t" >"$log" 2>&1 ;;
  esac
  rc=$?
  p=$(grep -cE '^ok ' "$log")
  f=$(grep -cE '^not ok ' "$log")
  s=$(grep -cE '^ok .*# SKIP' "$log")
  p=$((p - s))
  if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
  if [ "$p" -eq 0 ] && [ "$f" -eq 0 ] && [ "$s" -eq 0 ]; then f=1; fi
  {
    printf '%-50s %4d passed %3d failed %2d skipped  %ds\n' \
      "$name" "$p" "$f" "$s" $((SECONDS - start))
    if [ "$f" -ne 0 ]; then
      if [ "$rc" -ne 0 ]; then echo "    exit status $rc"; fi
      grep -A3 -E '^not ok ' "$log" | sed 's/^/    /' | head -60
      sed 's/^/    /' "$log" | tail -40
    fi
    grep -E '^ok .*# SKIP' "$log" | sed 's/^/    /'
  } >"$top/report.$2"
  echo "$p $f $s $((SECONDS - start)) $name" >"$top/counts.$2"
  cat "$top/report.$2" # in one write: reports do not mix
  rm -rf "$CUVIL_TEST_TMP" "$log"
}

# Longest first: known time, else 60 s for the ones listed, else 1 s.
ordered=$(for t in "$@"; do
  name=$(basename "$t")
  seconds=$(awk -v n="$name" '$2 == n { print $1 }' "$times" 2>/dev/null | tail -1)
  case $long in *" $name "*) default=60 ;; *) default=1 ;; esac
  echo "${seconds:-$default} $t"
done | sort -s -k1,1nr | cut -d' ' -f2-)

number=0 running=0
while IFS= read -r t; do
  [ -n "$t" ] || continue
  if [ "$running" -ge "$jobs" ]; then
    wait -n
    running=$((running - 1))
  fi
  number=$((number + 1)) running=$((running + 1))
  one "$t" "$number" </dev/null &
done <<<"$ordered"
wait

passed=0 failed=0 skipped=0
for ((i = 1; i <= number; i++)); do
  read -r p f s _ <"$top/counts.$i" 2>/dev/null || { p=0 f=1 s=0; }
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
if [ "$number" -eq 0 ]; then failed=1; fi
mkdir -p build
cat "$top"/counts.* 2>/dev/null | awk '{ print $4, $5 }' |
  cat "$times" - 2>/dev/null | awk '{ t[$2] = $1 } END { for (n in t) print t[n], n }' \
  >"$top/times" && mv "$top/times" "$times"
if [ "$skipped" -ne 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
