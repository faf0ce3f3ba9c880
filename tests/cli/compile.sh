#!/usr/bin/env bash
# cuvil-compile and cuvil-run as a user meets them, without a GPU.
set -u
. "$(dirname "$0")/../support/tap.sh"
compile=$CUVIL_BIN/cuvil-compile go=$CUVIL_BIN/cuvil-run
model=$tmp/mini.onnx
"$CUVIL_BIN/cuvil-model" resnet-mini --bn -o "$model" || exit 1

# ---- words
run "$compile" --help
check "help" test "$status" -eq 0 -a -z "$err"
check "help has examples" has "$out" "examples"
run "$compile" --version
check "version" has "$out" "NVRTC"
run "$compile" --no-such-option "$model"
check "unknown option is wrong usage" misused
run "$compile" "$model"
check "no plan named is wrong usage" misused
run "$compile" --precision fp8 "$model" -o "$tmp/p"
check "unknown precision is wrong usage" misused
check "it says which there are" has "$err" "fp16"
run "$compile" --arch sm_75 "$model" -o "$tmp/p"
check "unknown architecture is wrong usage" misused
run "$compile" --device cpu --arch sm_90 "$model" -o "$tmp/p"
check "compiling for no GPU's name is wrong usage" misused
run "$compile" --arch sm_90 "$model" -o "$model"
check "a plan never replaces its model" misused
run "$compile" --arch sm_90 "$model" "$model" -o "$tmp/p"
check "two models are wrong usage" misused

# ---- a plan
run "$compile" --arch sm_90 --precision fp16 --explain --emit-source "$tmp/src" \
  --dump-graph "$tmp/g.dot" --json "$tmp/r.json" "$model" -o "$tmp/mini.plan"
check "compiles" test "$status" -eq 0
check "the plan is there" test -s "$tmp/mini.plan"
check "defaults are said aloud" has "$err" "no recorded winner"
check "explain says who answered" has "$out" "default"
check "sources are written" test -n "$(ls "$tmp/src" | grep -E '^conv_mma-.*\.cu$')"
check "the graph is written" grep -q '^digraph' "$tmp/g.dot"
check "the report is JSON of its schema" grep -q '"schema":"cuvil-compile/1"' "$tmp/r.json"
cp "$tmp/mini.plan" "$tmp/kept.plan"

run "$compile" --arch sm_90 --require-tuned "$model" -o "$tmp/mini.plan"
check "require-tuned refuses" failed_as CU_ERR_NOT_TUNED
check "and leaves the plan" cmp -s "$tmp/mini.plan" "$tmp/kept.plan"
run "$compile" --arch sm_90 --db "$tmp/none.db" "$model" -o "$tmp/mini.plan"
check "a database that is named must exist" failed_as CU_ERR_DB
check "it is not made" test ! -e "$tmp/none.db"

# ---- check, and models that cannot be
run "$compile" --check --fusion none "$model"
check "check writes a verdict" has "$out" "are supported"
check "check succeeds" test "$status" -eq 0
: >"$tmp/empty.onnx"
head -c 2000 "$model" >"$tmp/cut.onnx"
head -c 4096 /dev/urandom >"$tmp/noise.onnx"
for bad in empty cut noise; do
  run "$compile" --arch sm_90 "$tmp/$bad.onnx" -o "$tmp/mini.plan"
  check "$bad file is refused" failed_as CU_ERR_MODEL_INVALID
  check "$bad file is named" has "$err" "$bad.onnx"
  check "$bad file leaves the plan" cmp -s "$tmp/mini.plan" "$tmp/kept.plan"
done
run "$compile" --arch sm_90 "$tmp/missing.onnx" -o "$tmp/mini.plan"
check "a missing model is refused" failed_as CU_ERR_IO
run "$compile" --arch sm_90 "$model" -o "$tmp/no/such/folder/p"
check "a plan that cannot be written" failed_as CU_ERR_IO

# ---- running
run "$go" --device cpu --output-dir "$tmp/out" --seed 3 "$model"
check "runs on the CPU" test "$status" -eq 0
check "writes outputs" test -s "$tmp/out/output.npy"
cp "$tmp/out/output.npy" "$tmp/first.npy"
run "$go" --device cpu --output-dir "$tmp/out" --seed 3 "$model"
check "the same seed, the same answer" cmp -s "$tmp/out/output.npy" "$tmp/first.npy"
run "$go" --device cpu --output-dir "$tmp/out" --seed 4 "$model"
check "another seed, another answer" test "$(cmp -s "$tmp/out/output.npy" "$tmp/first.npy"; echo $?)" -eq 1
run "$go" --device cpu --input "nobody:$tmp/first.npy" "$model"
check "an unknown input is refused" failed_as CU_ERR_INVALID_ARGUMENT
run "$go" --device cpu --input "input:$tmp/first.npy" "$model"
check "an input of another shape is refused" failed_as CU_ERR_INVALID_TENSOR_LAYOUT
run "$go" --device cpu "$tmp/mini.plan"
check "a plan does not run on the CPU" failed_as CU_ERR_INVALID_ARGUMENT
run "$go" --verify "$tmp/mini.plan"
check "verifying a plan needs its model" failed_as CU_ERR_INVALID_ARGUMENT
run "$go" --device cpu --verify "$model"
check "the CPU is not compared with itself" misused
run env CUVIL_CUDA_DRIVER="$tmp/no-driver.so" "$go" "$tmp/mini.plan"
check "no GPU is said" failed_as CU_ERR_NO_DEVICE
check "and what to do" has "$err" "--device cpu"

# ---- on the fake driver, whose kernels do nothing: the way is right, the
# answer is wrong, and both are said
export CUVIL_CUDA_DRIVER=$CUVIL_BIN/../tests/fake_cuda.so
run "$go" --iterations 5 --profile --json "$tmp/run.json" "$tmp/mini.plan"
check "a plan runs" test "$status" -eq 0
check "latency is reported" has "$out" "latency of 5 runs: median"
check "the profile has every step" has "$out" "sum of 21 steps"
check "the report is JSON" grep -q '"schema":"cuvil-run/1".*"steps":\[' "$tmp/run.json"
run "$go" --verify --model "$model" --iterations 1 "$tmp/mini.plan"
check "a wrong answer fails" failed_as CU_ERR_VERIFY_FAILED
check "and is shown" has "$out" "(limit 0.01): FAIL"
run "$go" --verify --atol 1000 --model "$model" --iterations 1 "$tmp/mini.plan"
check "a tolerance that is given counts" test "$status" -eq 0
run "$go" --precision fp16 --iterations 1 "$model"
check "a model is compiled and run" test "$status" -eq 0
check "its defaults are said aloud" has "$err" "no recorded winner"
"$CUVIL_BIN/cuvil-model" resnet-mini --batch 2 -o "$tmp/two.onnx"
run "$go" --verify --model "$tmp/two.onnx" "$tmp/mini.plan"
check "another model is not the plan's" failed_as CU_ERR_INVALID_TENSOR_LAYOUT
run env CUVIL_FAKE_CC=80 "$go" "$tmp/mini.plan"
check "a plan for another architecture" failed_as CU_ERR_ARCH_MISMATCH
printf 'x' | dd of="$tmp/mini.plan" bs=1 seek=3000 conv=notrunc 2>/dev/null
run "$go" "$tmp/mini.plan"
check "a damaged plan" failed_as CU_ERR_VERSION_MISMATCH
run env CUVIL_FAKE_CC=80 "$compile" --arch sm_90 "$model" -o "$tmp/other.plan"
check "compiling for another GPU than this one" test "$status" -eq 0
echo "1..$count"
