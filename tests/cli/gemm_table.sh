#!/usr/bin/env bash
# bench/gemm_table.py on made-up reports: what it prints, its verdicts, its
# statuses; and the problem sets, which must hold every shape it asks for.
set -u
. "$(dirname "$0")/../support/tap.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
table=$root/bench/gemm_table.py

make_reports() { # make_reports FACTOR: every library FACTOR times slower
  python3 - "$root/bench/problems" "$tmp" "$1" <<'PY'
import glob, json, os, sys
sets, to, factor = sys.argv[1], sys.argv[2], float(sys.argv[3])
for path in glob.glob(sets + "/gemm-*.txt"):
    problems = []
    for line in open(path):
        if not line.startswith("gemm"):
            continue
        own = 1e-5
        def person(family, seconds, flags):
            return dict(family=family, config="x=1,data0=7", flags=flags,
                        final=True, rounds=20, seconds=seconds, ratio=1,
                        ratio_low=1, ratio_high=1, predicted=own)
        problems.append(dict(
            problem=line.strip(), calls=1, state="tuned",
            participants=[person("gemm_mma", own, ["winner"]),
                          person("gemm_cublaslt", own * factor, [])],
            sides=dict(own=0, library=1, ratio=1 / factor,
                       ratio_low=0.99 / factor, ratio_high=1.01 / factor),
            winner=dict(family="gemm_mma", config="x=1", seconds=own,
                        of_roof=0.5)))
    name = os.path.basename(path)[:-4]
    with open(f"{to}/{name}.json", "w") as file:
        json.dump(dict(schema="cuvil-tune/1", source="measured",
                       problems=problems), file)
PY
}

make_reports 1.4
run python3 "$table" "$tmp"/gemm-*.json
check "faster everywhere: status 0" test "$status" -eq 0
check "... all bars pass" test "$(grep -c '^  pass ' <<<"$out")" -eq 15
check "... no shape is missing" test "$(grep -cE '^  (miss|open) ' <<<"$out")" -eq 0
check "ratio with its interval" has "$out" "1.400 [1.386, 1.414]"
check "share of the roof" has "$out" "   50 %"
check "geomean of a class" has "$out" "large: geomean 1.400 of 7, least 1.400"
check "points only when asked" test -z "$(grep 'x=1' <<<"$out")"
run python3 "$table" --explain --no-bars "$tmp/gemm-plain-tf32-large.json"
check "--explain has points, no opaque bytes" \
  test "$status" -eq 0 -a -z "$(grep -F 'cublaslt x=1,data' <<<"$out")" -a -n "$(grep -F 'x=1' <<<"$out")"
check "--no-bars" test -z "$(grep bars <<<"$out")"

make_reports 1.1
run python3 "$table" "$tmp"/gemm-*.json
check "not fast enough: status 1" test "$status" -eq 1
check "... misses are named" has "$out" "miss  skinny and odd, geomean"
check "... what is reached passes" has "$out" "pass  large, geomean"
run python3 "$table" "$tmp/gemm-plain-large.json"
check "a report is missing: open, status 1" \
  test "$status" -eq 1 -a -n "$(grep '^  open  small' <<<"$out")"
run python3 "$table" "$root/README.md"
check "no report: status 2, one line" \
  test "$status" -eq 2 -a "$(wc -l <<<"$err")" -eq 1
echo '{"schema":"other/1"}' >"$tmp/other.json"
run python3 "$table" "$tmp/other.json"
check "another schema: status 2" test "$status" -eq 2
check "... which is said" has "$err" "cuvil-tune/1 expected"
