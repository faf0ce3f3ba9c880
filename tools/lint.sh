#!/usr/bin/env bash
# make lint: the layers of shared DESIGN (who may include whom), vendor headers
# in their rooms only, clang-format, generated pages, and that README.md names
# every page.  Prints each offence; exit 1 if any.
set -u
cd "$(dirname "$0")/.."
bad=0
say() { echo "lint: $*"; bad=1; }

declare -A may=(
  [base]="base" [gpu]="gpu base" [problem]="problem base"
  [runtime]="runtime gpu base" [db]="db problem base"
  [spaces]="spaces problem base"
  [kernels]="kernels spaces runtime problem gpu base"
  [measure]="measure runtime gpu base" [graph]="graph base"
  [fusion]="fusion graph problem base"
  [tuner]="tuner measure kernels spaces db runtime problem gpu base"
  [compiler]="compiler fusion graph measure kernels spaces db runtime problem gpu base"
  [bench]="bench compiler tuner fusion graph measure kernels spaces db runtime problem gpu base"
  [plots]="plots db base"
)
for room in "${!may[@]}"; do
  allowed=" ${may[$room]} cuvil.h onnx.pb-c.h "
  while IFS=: read -r file line text; do
    target=${text#*\"} target=${target%%\"*}
    top=${target%%/*}
    case $target in */*) ;; *) case $target in cuvil.h | onnx.pb-c.h) continue ;; esac
      top=$room ;; esac
    case "$allowed" in *" $top "*) ;; *)
      say "$file:$line: $room/ may not include \"$target\"" ;; esac
  done < <(git ls-files -co --exclude-standard "$room/*.c" "$room/*.h" |
    xargs -r grep -nE '^#include "' /dev/null)
done
code() { git ls-files -co --exclude-standard '*.c' '*.h'; }
code | grep -v '^gpu/' | grep -vE '^(bench/spikes|tests/fake)/' |
  xargs -r grep -lE '#include <(cuda|nvrtc|nvml|cublas|cudnn)' |
  while read -r f; do echo "lint: $f: vendor headers belong in gpu/"; done | grep . && bad=1
code | grep -v '^db/' | xargs -r grep -l '#include <sqlite3.h>' |
  grep -vE '^tests/' | while read -r f; do echo "lint: $f: sqlite3.h belongs in db/"; done | grep . && bad=1
code | grep -vE '^graph/(import|builder)|^tests/' | xargs -r grep -lE 'onnx.pb-c.h' |
  while read -r f; do echo "lint: $f: protobuf belongs in graph/import*"; done | grep . && bad=1
if command -v clang-format >/dev/null; then
  said=$(mktemp)
  code | xargs -r clang-format --dry-run --Werror >"$said" 2>&1 || {
    grep -E 'error:' "$said" | head -20
    say "run make format"
  }
  rm -f "$said"
else
  echo "lint: clang-format is missing; format not checked"
fi
tool=$(mktemp)
gcc -Iinclude tools/errors.c -o "$tool" && "$tool" | cmp -s - docs/errors.md ||
  say "docs/errors.md is not what include/cuvil.h says; run make docs"
rm -f "$tool"
for page in docs/*.md; do
  grep -q "($page)" README.md || say "$page: README.md does not name it"
done
[ "$bad" -eq 0 ] && echo "lint: clean"
exit "$bad"
