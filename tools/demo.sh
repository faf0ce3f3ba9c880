#!/usr/bin/env bash
# make demo, after set-up and build: ResNet-50 from its ONNX file to recorded
# winners to a compiled plan.  With a GPU it measures and runs the plan; without
# one it replays the shipped recording (of an H200), and says so first.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/bin out=build/demo
mkdir -p "$out"
show() { echo; echo "\$ $*"; "$@"; }

# A GPU says itself for what to compile; without one it is the recording's.
device=(--device auto) arch=()
if [ ! -e /dev/nvidiactl ] && [ -z "${CUVIL_CUDA_DRIVER:-}" ]; then
  device=(--device replay) arch=(--arch sm_90)
  echo "demo: no GPU here: times below are REPLAYED from the recording of an H200 that is shipped with Cuvil, not measured on this machine"
fi
rm -rf "$out/cuvil.db" "$out/cuvil.db-wal" "$out/cuvil.db-shm"
show "$bin/cuvil-model" resnet50 --batch 1 -o "$out/resnet50.onnx"
show "$bin/cuvil-tune" "${arch[@]}" "${device[@]}" --precision fp16 \
  --db "$out/cuvil.db" "$out/resnet50.onnx"
show "$bin/cuvil-compile" "${arch[@]}" --precision fp16 --db "$out/cuvil.db" \
  --explain "$out/resnet50.onnx" -o "$out/resnet50.plan"
if [ "${device[1]}" = auto ]; then
  show "$bin/cuvil-run" --verify --model "$out/resnet50.onnx" \
    --iterations 200 "$out/resnet50.plan"
else
  echo
  echo "demo: the plan was compiled for sm_90; run it on such a GPU with"
  echo "      $bin/cuvil-run --verify --model $out/resnet50.onnx $out/resnet50.plan"
fi
