#!/usr/bin/env bash
# cuvil-plot from the outside: every kind and format drawn from the shipped
# recordings, replayed into a scratch database; usage; what cannot be drawn.
set -u
plot=$CUVIL_BIN/cuvil-plot
tune=$CUVIL_BIN/cuvil-tune
tmp=$(mktemp -d "$CUVIL_TEST_TMP/plot.XXXXXX")
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
larger() { [ "$(stat -c %s "$2")" -gt "$1" ] || { ls -l "$2"; false; }; }

check "no kind is wrong usage" run 2 "$plot"
check "the kinds are named" says err 'name a kind: roofline, '
check "an unknown kind is wrong usage" run 2 "$plot" pie
check "an unknown format is wrong usage" run 2 "$plot" roofline -o a.gif
check "the formats are named" says err '\.png, \.svg or \.pdf'
check "a folder's name is no picture" run 2 "$plot" roofline -o a/.png
check "--x belongs to space" run 2 "$plot" roofline --x tile_m
check "two kinds are wrong usage" run 2 "$plot" roofline space
check "help" run 0 "$plot" --help
check "help has examples" says out '^Examples'
check "version" run 0 "$plot" --version
check "fusion cannot be drawn yet" run 1 "$plot" fusion --db "$tmp/none.db"
check "and says what to do" says err 'error: CU_ERR_UNSUPPORTED .*cuvil-run'
check "a missing database fails" run 1 "$plot" roofline --db "$tmp/none.db" -o "$tmp/a.png"
check "it is named" says err 'CU_ERR_DB .*none\.db'

recording=replay:bench/recordings/resnet50-b1-fp16.t4.json.zst
"$tune" --device "$recording" --list-problems >"$tmp/problems" 2>/dev/null
check "problems of the recording" test "$(wc -l <"$tmp/problems")" -gt 20
check "replayed" run 0 "$tune" --device "$recording" --problems "$tmp/problems" --db "$tmp/r.db"
conv=$(grep -m1 '^conv/1.* r=3 s=3 stride=1,1' "$tmp/problems")

if ! command -v gnuplot >/dev/null; then
  echo "ok $((n + 1)) - pictures # SKIP gnuplot is not installed"
  exit 0
fi
draw() { # ending, kind, options...
  local ending=$1 kind=$2
  shift 2
  run 0 "$plot" "$kind" --db "$tmp/r.db" -o "$tmp/it's $kind.$ending" "$@" &&
    says out "^$tmp/it's $kind\.$ending " &&
    larger 5000 "$tmp/it's $kind.$ending" &&
    larger 100 "$tmp/it's $kind.dat" && larger 1000 "$tmp/it's $kind.gp" &&
    ! grep -q warning "$tmp/err"
}
for ending in png svg pdf; do
  check "roofline.$ending" draw $ending roofline
  check "convergence.$ending" draw $ending convergence
  check "history.$ending" draw $ending history
  check "distribution.$ending" draw $ending distribution --problem "$conv"
  check "space.$ending" draw $ending space --problem "$conv"
done
check "a PNG is one" grep -q PNG "$tmp/it's roofline.png"
check "an SVG is one" grep -q '<svg' "$tmp/it's roofline.svg"
check "a PDF is one" grep -aq '%PDF' "$tmp/it's roofline.pdf"
in_svg() { grep -qF -- "$2" "$tmp/it's $1.svg" || { echo "no '$2' in $1"; false; }; }
check "axes have units" in_svg roofline 'arithmetic intensity [FLOP/byte]'
check "and rates" in_svg roofline 'achieved rate [TFLOP/s]'
check "libraries are told apart" in_svg roofline 'gemm_cublaslt (library)'
check "a level has its label" in_svg roofline 'f16 tensor 790 TFLOP/s'
check "replayed is said" in_svg roofline 'Replayed from a recording of an NVIDIA H200'
check "what is not drawn is said" in_svg roofline 'problem without arithmetic'
check "what was not tried is said" in_svg space 'not tried'
check "no history is said" in_svg history 'no history yet'
winner=$(sqlite3 "$tmp/r.db" "select printf('%.3f', min(median) * 1e6) from
  measurement m join candidate c on c.id = m.candidate_id
  join problem p on p.id = c.problem_id where p.text = '$conv'")
best() { awk 'NF > 4 && $3 != "" {b = $3} END {printf "%.3f\n", b}' "$tmp/it's convergence.dat"; }
check "convergence of one problem" draw png convergence --problem "$conv"
check "ends at the best of the database" test "$(best)" = "$winner"
check "drawn again by hand" bash -c "cd '$tmp' && rm *roofline.pdf && gnuplot *roofline.gp"
check "the same picture" larger 5000 "$tmp/it's roofline.pdf"
check "two parameters" draw svg space --problem "$conv" --family conv_mma --x tile_n --y stages
check "are the axes" in_svg space tile_n
fails() { run 1 "$plot" "$@" --db "$tmp/r.db" -o "$tmp/f.png" && [ ! -e "$tmp/f.png" ]; }
check "no such parameter" fails space --problem "$conv" --family conv_mma --x tile_z
check "it is named" says err 'no parameter tile_z'
check "several problems for one" fails distribution
check "--problem is named" says err 'CU_ERR_INVALID_ARGUMENT.*--problem'
check "no rows" fails roofline --gpu nobody
check "is an error" says err 'holds no race'
check "no candidates" fails convergence --family nobody
check "is an error too" says err 'holds no timed candidate'
check "no folder" run 1 "$plot" roofline --db "$tmp/r.db" -o "$tmp/no/a.png"
check "is named" says err 'CU_ERR_IO .*no/a'
check "no gnuplot" run 1 env PATH="$tmp" "$plot" roofline --db "$tmp/r.db" -o "$tmp/a.png"
check "is one clear line" says err '^cuvil-plot: error: CU_ERR_LIBRARY_NOT_FOUND .*gnuplot-nox'

# Nothing that stands in a database is run: a GPU's name is a shell command.
sqlite3 "$tmp/r.db" "update gpu set product = '\`touch $tmp/ran\` \"x\" \\'"
check "a hostile name is drawn" draw png roofline
check "and not run" test ! -e "$tmp/ran"
# Two GPUs: the user chooses.
sqlite3 "$tmp/r.db" "insert into gpu select 99, 'other', arch, sms, memory_bytes,
  l2_bytes from gpu limit 1; insert into circumstance select 99, 99, versions_id,
  source, l2, regime, method from circumstance limit 1; update race set
  circumstance_id = 99 where id = 1; update measurement set circumstance_id = 99
  where id = 1"
check "times of two GPUs" fails roofline
check "are not mixed" says err 'several GPUs .*--gpu'
