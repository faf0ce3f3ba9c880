#!/usr/bin/env bash
# Runs test programs and scripts, each printing TAP ("ok 1 - name"), and adds
# them up.  A program that dies without saying so is one failure; a script that
# prints no result at all is a failure too, so that no test can pass by being
# empty.  Environment: CUVIL_BIN (folder of the commands).
set -u
cd "$(dirname "$0")/.."
export CUVIL_BIN=${CUVIL_BIN:-$PWD/build/release/bin}
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C
# Tests must not touch a user's database.
CUVIL_TEST_TMP=$(mktemp -d)
export CUVIL_TEST_TMP XDG_CACHE_HOME=$CUVIL_TEST_TMP/cache
trap 'rm -rf "$CUVIL_TEST_TMP"' EXIT
passed=0 failed=0 skipped=0
for t in "$@"; do
  log=$CUVIL_TEST_TMP/log
  start=$SECONDS
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
  printf '%-50s %4d passed %3d failed %2d skipped  %ds\n' \
    "$(basename "$t")" "$p" "$f" "$s" $((SECONDS - start))
  if [ "$f" -ne 0 ]; then sed 's/^/    /' "$log" | tail -60; fi
  grep -E '^ok .*# SKIP' "$log" | sed 's/^/    /'
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
if [ "$skipped" -ne 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
