#!/usr/bin/env bash
# make check: every test that needs no GPU.  The whole suite once in release;
# the fast part again under the address and undefined-behaviour sanitizers, both
# in one build; the closing line counts all of them.  CUVIL_TEST_FULL=1 runs
# long forms.
set -u
cd "$(dirname "$0")/.."
jobs=$(nproc)
if [ -n "${CUVIL_TEST_FULL:-}" ]; then export CUVIL_TEST_TIMEOUT=1800; fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
part() { # part NAME COMMAND...: runs, shows, adds its closing line
  local name=$1 counts
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$log"
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
  if [ -z "$counts" ]; then
    echo "$name did not finish"
    failed=$((failed + 1))
    return
  fi
  passed=$((passed + $(sed -E 's/^([0-9]+) passed.*/\1/' <<<"$counts")))
  failed=$((failed + $(sed -E 's/.* ([0-9]+) failed.*/\1/' <<<"$counts")))
  case $counts in *skipped) skipped=$((skipped + $(sed -E 's/.* ([0-9]+) skipped/\1/' <<<"$counts"))) ;; esac
}
lint() { if bash tools/lint.sh; then echo "1 passed, 0 failed"; else echo "0 passed, 1 failed"; fi; }
# Under the sanitizers run the tests of our own code.  Left out are those that
# spend their time in NVRTC, in a process of the commands (the release part has
# them), or in arithmetic that the sanitizers slow down by ten: emulated
# kernels and whole-space compiles.
fast() {
  local names=() name
  for name in tests/unit/*_test.c; do
    name=$(basename "$name" .c)
    case $name in
      *emulate_test | *compile_test | kernels_test | nvrtc_test | attention_test) ;;
      families_* | compile_* | kernel_*) ;;
      *) names+=("build/asan/tests/$name") ;;
    esac
  done
  make --no-print-directory -s -j"$jobs" MODE=asan "${names[@]}" fakes || return 1
  # Leaks are looked for; dlopen'ed vendor libraries are not ours to judge.
  ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 \
  UBSAN_OPTIONS=print_stacktrace=1 \
  CUVIL_TEST_TIMEOUT=240 CUVIL_TEST_FAST=1 \
    bash tests/run.sh "${names[@]}"
}
# What fuzzing has found, and a few thousand new inputs that are always the
# same; make fuzz goes on from there.
fuzz() {
  make --no-print-directory -s -j"$jobs" MODE=asan build/asan/fuzz || return 1
  local inputs=3000 log=build/fuzz.log
  if [ -n "${CUVIL_TEST_FULL:-}" ]; then inputs=100000; fi
  { build/asan/fuzz --replay tests/fuzz/found/* &&
    build/asan/fuzz --inputs "$inputs"; } >"$log" 2>&1
  local status=$?
  if [ "$status" -ne 0 ]; then tail -60 "$log"; fi
  grep '^# ' "$log"
  echo "$(grep -c '^ok' "$log") passed, $((status != 0)) failed"
}
part "lint" lint
part "release" make --no-print-directory -s -j"$jobs" check-unit
part "address and undefined-behaviour sanitizers" fast
part "fuzz" fuzz
if [ "$skipped" -ne 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
