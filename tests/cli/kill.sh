#!/usr/bin/env bash
# Bar 5: cuvil-tune on the shipped recording, slowed, killed at random moments
# and started again.  After every kill the database is whole and holds what it
# held before; in the end it holds what an undisturbed run's holds: the same
# evidence, the same winners.  Interrupts end with a line and status 1; two
# tunes may share one database.  CUVIL_TEST_FULL=1: 20 kills that hit.
set -u
. "$(dirname "$0")/../support/tap.sh"
tune=$CUVIL_BIN/cuvil-tune db=$CUVIL_BIN/cuvil-db
kills=4
[ -n "${CUVIL_TEST_FULL:-}" ] && kills=20

root=$(cd "$(dirname "$0")/../.." && pwd)
device=replay:$root/bench/recordings/resnet50-b1-fp16.t4.json.zst
"$tune" --device "$device" --list-problems 2>/dev/null |
  grep -v '^conv' | head -8 >"$tmp/problems" # whose spaces are walked fast
replay() { # replay DB [OPTION...]: a tune of the eight problems
  local file=$1
  shift
  "$tune" --device "$device" --problems "$tmp/problems" --db "$file" "$@"
}
# Everything that a database says, without when it was said.
evidence() {
  "$db" export --t4 --db "$1" | tr ',{}' '\n' |
    grep -vE '"(timestamp|created|date)"' | sort >"$2" &&
    "$db" list --wide --db "$1" >>"$2" &&
    "$db" stats --db "$1" | grep -E '^(evidence|about|winners)' >>"$2"
}
rows() { # measurements, failures and races
  "$db" stats --db "$1" 2>/dev/null | awk '/^evidence/ { print $2 + $4 + $6 }'
}
whole() {
  # Killed before its tables were made: nothing is there, nothing is broken,
  # and the next tune makes them.
  "$db" verify --db "$1" >"$tmp/verify" 2>&1 ||
    grep -q 'holds no tables yet' "$tmp/verify" || return 1
  ! command -v sqlite3 >/dev/null ||
    [ "$(sqlite3 "$1" 'PRAGMA integrity_check')" = ok ]
}

export CUVIL_REPLAY_SLOW=0.004
start=$(date +%s%N)
run replay "$tmp/plain.db" --json "$tmp/plain.json"
took=$((($(date +%s%N) - start) / 1000000))
check "an undisturbed tune" test "$status" -eq 0
evidence "$tmp/plain.db" "$tmp/plain.txt"
check "has eight winners" test "$(grep -c '"problem": ' "$tmp/plain.json")" -ge 8

# A kill falls anywhere in the time that an undisturbed run took.  A run that
# gets to its end before that is held against it, and a new database begins.
RANDOM=20
hit=0 broken=0 lost=0 before=0 most=0 ends=0 same=0
while [ "$hit" -lt "$kills" ] && [ "$ends" -lt "$kills" ]; do
  "$tune" --device "$device" --db "$tmp/killed.db" \
    --problems "$tmp/problems" >/dev/null 2>&1 &
  pid=$!
  sleep "$(awk -v r=$RANDOM -v t=$took 'BEGIN { printf "%.3f", r * t / 32768e3 }')"
  kill -KILL "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  ended=$?
  [ -s "$tmp/killed.db" ] || continue
  whole "$tmp/killed.db" || broken=$((broken + 1))
  now=$(rows "$tmp/killed.db")
  [ "${now:-0}" -ge "$before" ] || lost=$((lost + 1))
  before=${now:-0}
  [ "$before" -le "$most" ] || most=$before
  if [ "$ended" -eq 0 ]; then
    ends=$((ends + 1))
    evidence "$tmp/killed.db" "$tmp/killed.txt"
    cmp -s "$tmp/plain.txt" "$tmp/killed.txt" && same=$((same + 1))
    rm -rf "$tmp"/killed.db*
    before=0
    echo "# ran to its end $ends: $now rows"
  else
    hit=$((hit + 1))
    echo "# kill $hit: $before rows of evidence, $(sed 's/.*: //' "$tmp/verify")"
  fi
done
check "$kills kills hit" test "$hit" -eq "$kills"
check "the database is whole after each" test "$broken" -eq 0
check "nothing that was finished is lost" test "$lost" -eq 0
check "something was finished before a kill" test "$most" -gt 0
check "runs that got to their end agree" test "$same" -eq "$ends"
unset CUVIL_REPLAY_SLOW
run replay "$tmp/killed.db"
check "the next run ends" test "$status" -eq 0
evidence "$tmp/killed.db" "$tmp/killed.txt"
check "evidence and winners are an undisturbed run's" \
  cmp "$tmp/plain.txt" "$tmp/killed.txt"
check "and are something" test "$(wc -l <"$tmp/plain.txt")" -gt 100

# ---- signals that ask
for signal in INT TERM; do
  CUVIL_REPLAY_SLOW=0.02 "$tune" --device "$device" --db "$tmp/$signal.db" \
    --problems "$tmp/problems" >/dev/null 2>"$tmp/stderr" &
  pid=$!
  until [ -s "$tmp/$signal.db" ] || ! kill -0 "$pid" 2>/dev/null; do
    sleep 0.05
  done
  sleep 0.2
  # A background job of a script ignores INT unless it asks for it: it does.
  kill -"$signal" "$pid"
  wait "$pid"
  status=$? out='' err=$(cat "$tmp/stderr")
  check "SIG$signal ends it" failed_as CU_ERR_INTERRUPTED
  check "SIG$signal leaves a whole database" whole "$tmp/$signal.db"
  run replay "$tmp/$signal.db"
  check "after SIG$signal it resumes" test "$status" -eq 0
  evidence "$tmp/$signal.db" "$tmp/$signal.txt"
  check "to the same end" cmp "$tmp/plain.txt" "$tmp/$signal.txt"
done

# ---- two at once
replay "$tmp/both.db" >/dev/null 2>"$tmp/one" &
pid=$!
run replay "$tmp/both.db"
wait "$pid"
check "one of two tunes on one database" test $? -eq 0
check "the other" test "$status" -eq 0
check "their database is whole" whole "$tmp/both.db"
check "it has every winner" test \
  "$("$db" list --db "$tmp/both.db" --json - | grep -c '"problem"')" -eq \
  "$("$db" list --db "$tmp/plain.db" --json - | grep -c '"problem"')"
echo "1..$count"
