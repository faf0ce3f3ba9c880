#!/usr/bin/env bash
# networks.sh: the five networks beside ResNet-50, the whole way, in steps that
# can be run one after the other or apart.  Needs a GPU, PyTorch, transformers,
# and the tree of `make dist`.
#
#   networks.sh export  DIR    both exporters, batch 1 and 8, into DIR
#   networks.sh warm    DIR    what torch.compile compiles, for `peers`
#   networks.sh tune    DIR OUT [fp16|fp32] [TRIALS]
#                              every export from an empty database and kernel
#                              cache, then its plan; a line each with seconds
#   networks.sh check   DIR OUT [fp16|fp32]
#                              batch 8 against eight runs of batch 1, and both
#                              against PyTorch's own output
#   networks.sh peers   DIR OUT   latency beside PyTorch, batch 1, fp16
#
# A step leaves its output in OUT; one that fails says so and the others go on.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dist=${DIST:-$here/../../build/dist}
python=${PYTHON:-python3}
networks=${NETWORKS:-vit_b_16 llama_block mobilenet_v2 gpt2 bert_base}
exporters=${EXPORTERS:-torchscript dynamo}
batches=${BATCHES:-1 8}
failed=0

fail() {
  echo "FAILED: $*" >&2
  failed=1
}

# The issue's bounds on the relative L2 distance of whole networks.
limit() { # PRECISION NETWORK
  case $1-$2 in
    fp16-*) echo 1e-2 ;;
    fp32-gpt2 | fp32-llama_block) echo 1e-4 ;;
    *) echo 1e-5 ;;
  esac
}

export_all() {
  mkdir -p "$1"
  for network in $networks; do
    for exporter in $exporters; do
      list=()
      for b in $batches; do list+=(--batch "$b"); done
      OMP_NUM_THREADS=2 "$python" "$here/export.py" --model "$network" \
        --exporter "$exporter" "${list[@]}" --out "$1" \
        >"$1/$network.$exporter.log" 2>&1 &&
        touch "$1/$network.$exporter.done" ||
        fail "export of $network by $exporter: $1/$network.$exporter.log" &
    done
  done
  wait
}

warm() {
  for network in $networks; do
    "$python" "$here/../peers/latency.py" --model "$network" --batch 1 \
      --compile-only >"$1/$network.warm.log" 2>&1 ||
      fail "torch.compile of $network: $1/$network.warm.log" &
  done
  wait
}

tune() { # DIR OUT PRECISION TRIALS
  precision=$3 trials=${4:-}
  for exporter in $exporters; do for b in $batches; do for network in $networks; do
    name=${network}_b${b}_$exporter
    [ -f "$1/$name.onnx" ] || { fail "$1/$name.onnx is not there"; continue; }
    to=$2/${name}_$precision
    [ -f "$to.plan" ] && continue
    rm -f "$to.db"* && mkdir -p "$to.cache"
    begin=$(date +%s%N)
    XDG_CACHE_HOME=$to.cache "$dist/bin/cuvil-tune" --arch sm_90 \
      --precision "$precision" ${trials:+--max-trials "$trials"} --db "$to.db" \
      --json "$to.tune.json" "$1/$name.onnx" >"$to.tune.txt" 2>&1 ||
      fail "$name $precision: $(tail -1 "$to.tune.txt")"
    end=$(date +%s%N)
    XDG_CACHE_HOME=$to.cache "$dist/bin/cuvil-compile" --arch sm_90 \
      --precision "$precision" --db "$to.db" --require-tuned "$1/$name.onnx" \
      -o "$to.plan" >"$to.compile.txt" 2>&1 ||
      fail "$name $precision: $(tail -1 "$to.compile.txt")"
    rm -rf "$to.cache"
    echo "$name $precision: tuned in $(((end - begin) / 1000000)) ms;" \
      "$(grep -h 'sum over' "$to.tune.txt" | tr -s ' ');" \
      "$(sed -n 's/.*: \(.*kernels\).*/\1/p' "$to.compile.txt")"
  done; done; done
}

check() { # DIR OUT PRECISION
  for network in $networks; do for exporter in $exporters; do
    inputs=$(cd "$1" && ls "${network}"_b8_input*.npy | sed "s|.*|\"$1/&\"|" | paste -sd,)
    printf '{"one": "%s", "many": "%s", "input": [%s], "expected": "%s", "limit": %s}\n' \
      "$2/${network}_b1_${exporter}_$3.plan" "$2/${network}_b8_${exporter}_$3.plan" \
      "$inputs" "$1/${network}_b8_output.npy" "$(limit "$3" "$network")"
  done; done >"$2/cases_$3.jsonl"
  "$python" "$here/../peers/batches.py" --library "$dist/lib/libcuvil.so" \
    --cases "$2/cases_$3.jsonl" --json "$2/batches_$3.json" |
    sed "s|$2/||" | tee "$2/batches_$3.txt"
  [ "${PIPESTATUS[0]}" = 0 ] || fail "batches in $3"
}

peers() { # DIR OUT
  for network in $networks; do
    "$python" "$here/../peers/latency.py" --model "$network" --batch 1 --rounds 30 \
      --plan "$2/${network}_b1_torchscript_fp16.plan" \
      --library "$dist/lib/libcuvil.so" --json "$2/peers_$network.json" \
      2>"$2/peers_$network.log" | tee -a "$2/peers.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || fail "peers of $network: $2/peers_$network.log"
  done
}

step=${1:-}
case $step-$# in
  export-2) export_all "$2" ;;
  warm-2) warm "$2" ;;
  tune-[3-5]) mkdir -p "$3" && tune "$2" "$3" "${4:-fp16}" "${5:-}" ;;
  check-[34]) check "$2" "$3" "${4:-fp16}" ;;
  peers-3) peers "$2" "$3" ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
exit $failed
