#!/usr/bin/env bash
# The shipped recordings answer for every problem they hold, with the families
# as they are now: a family whose space or version moves on must bring a new
# recording with it.
set -u
. tests/support/tap.sh
for recording in bench/recordings/*.t4.json.zst; do
  name=$(basename "$recording" .t4.json.zst)
  run "$CUVIL_BIN/cuvil-tune" --device "replay:$recording" --list-problems
  printf '%s\n' "$out" >"$tmp/$name.problems"
  check "$name lists its problems" test -s "$tmp/$name.problems"
  run "$CUVIL_BIN/cuvil-tune" --device "replay:$recording" --arch sm_90 \
    --problems "$tmp/$name.problems" --db "$tmp/$name.db"
  wanted=$(wc -l <"$tmp/$name.problems")
  check "$name: all of its $wanted problems get a winner" \
    has "$out" "$wanted winners recorded"
  check "$name: exit 0" test "$status" -eq 0
  check "$name says first that nothing is measured" \
    has "$(head -1 <<<"$out")" "nothing is measured"
  run "$CUVIL_BIN/cuvil-db" verify --db "$tmp/$name.db"
  check "$name: what was recorded is whole" test "$status" -eq 0
done
run "$CUVIL_BIN/cuvil-model" resnet50 -o "$tmp/resnet50.onnx"
run "$CUVIL_BIN/cuvil-tune" --device replay --arch sm_90 --precision fp16 \
  --db "$tmp/model.db" "$tmp/resnet50.onnx"
check "ResNet-50 is replayed whole" has "$out" ", 0 problems failed"
check "ResNet-50 leaves no problem out" has "$out" "31 winners recorded"
rm -f "$tmp/resnet50.onnx"
echo "1..$count"
