#!/usr/bin/env bash
# What all commands have in common: help that matches the options, one line
# and status 2 for wrong usage, results that arrive or fail, stdout kept pure
# for --json -, progress on terminals only, devices that stay devices.
set -u
. "$(dirname "$0")/../support/tap.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
tune=$CUVIL_BIN/cuvil-tune compile=$CUVIL_BIN/cuvil-compile
go=$CUVIL_BIN/cuvil-run db=$CUVIL_BIN/cuvil-db
device=replay:$root/bench/recordings/resnet50-b1-fp16.t4.json.zst
pool=$("$tune" --device "$device" --list-problems 2>/dev/null | grep '^pool' | head -1)
model=$tmp/mini.onnx
"$CUVIL_BIN/cuvil-model" resnet-mini -o "$model" || exit 1

one_line() { [ "$status" -eq 2 ] && [ -z "$out" ] && [ "$(wc -l <<<"$err")" -eq 1 ]; }
options_of() { # the long options in a command's table
  sed -nE 's/^ *\{"([a-z0-9-]+)", (no|required)_argument.*/\1/p' "$root/cli/$1.c"
}
undocumented() { # options that the help does not name
  local option
  for option in $(options_of "$1"); do
    # -v, -q and -o stand for their long forms.
    case $option in verbose | quiet | output | t1 | kernel-tuner) continue ;; esac
    grep -q -- "--$option" <<<"$out" || echo "$option"
  done
}
unknown() { # options of the help that are not there
  local option
  for option in $(grep -oE -- '--[a-z][a-z0-9-]+' <<<"$out" | sort -u); do
    options_of "$1" | grep -qx -- "${option#--}" || echo "$option"
  done
}
for command in tune compile run db model; do
  name=cuvil-$command
  run "$CUVIL_BIN/$name" --help
  check "$name --help" test "$status" -eq 0 -a -z "$err"
  check "$name: help has examples" grep -qi '^examples' <<<"$out"
  check "$name: every option is in the help" test -z "$(undocumented "$name")"
  check "$name: the help names no other" test -z "$(unknown "$name")"
  run "$CUVIL_BIN/$name" --no-such-option
  check "$name: an unknown option in one line" one_line
  check "$name: it is named" has "$err" "--no-such-option"
  run "$CUVIL_BIN/$name"
  check "$name: nothing to do in one line" one_line
done
for option in arch device db precision shapes fusion families strategy budget \
  max-trials jobs seed l2 problem problems record json; do
  run "$tune" --$option
  check "cuvil-tune --$option wants a value" one_line
done
# Values that cannot be meant, and options that exclude each other.
bad() { # bad COMMAND OPTION...
  run "$@"
  shift
  check "wrong usage: ${*: -4}" one_line
}
for value in -1 x '' 1e 99999999999999999999; do
  for option in max-trials jobs seed budget; do
    bad "$tune" --problem "$pool" --$option "$value"
  done
  bad "$go" --device cpu --iterations "$value" "$model"
done
for value in banana cuda: cuda:x cuda:-1 replay: replayed; do
  bad "$tune" --problem "$pool" --device "$value"
done
bad "$go" --device cuda:x "$model"
bad "$go" --device cpu --atol nan "$model"
bad "$go" --device cpu --atol inf "$model"
bad "$go" --device cpu --input nofile "$model"
bad "$compile" --arch sm_75 -o "$tmp/p" "$model"
bad "$compile" --arch sm_90 -o '' "$model"
bad "$tune" --exhaustive --strategy random --problem "$pool"
bad "$tune" --problem "$pool" "$model"
bad "$tune" --dry-run --arch sm_90 --record "$tmp/r" --problem "$pool"
bad "$tune" --dry-run --arch sm_90 --json "$tmp/j" --problem "$pool"
bad "$tune" --families '' --problem "$pool"
head -c 100 /dev/zero >"$tmp/zeros"
bad "$tune" --list-problems --problems "$tmp/zeros"
bad "$tune" --list-problems --problems /dev/null
run "$tune" --list-problems --problems "$tmp/none"
check "a list that is not there fails" failed_as CU_ERR_IO

# ---- where results go
run "$tune" --device "$device" --db "$tmp/a.db" --problem "$pool" --json -
check "a tune's JSON alone on stdout" test "${out:0:1}" = '{' -a "${out: -1}" = '}'
run "$compile" --arch sm_90 --explain --json - -o "$tmp/p" "$model"
check "a compile's, also with --explain" test "${out:0:1}" = '{' -a "${out: -1}" = '}'
check "what people read is on stderr" has "$err" "answered by"
run "$go" --device cpu --json - "$model"
check "a run's" test "${out:0:1}" = '{' -a "${out: -1}" = '}'
run "$db" list --db "$tmp/a.db" --json -
check "a list's" test "$status" -eq 0 -a -z "$err"
full() { # full COMMAND...: on a full disk
  status=0 out=''
  "$@" >/dev/full 2>"$tmp/stderr" || status=$?
  err=$(cat "$tmp/stderr")
  failed_as CU_ERR_IO
}
if [ -c /dev/full ]; then
  check "results that stdout does not take: tune" full "$tune" --list-families
  check "run" full "$go" --device cpu "$model"
  check "db" full "$db" list --db "$tmp/a.db"
fi
mkfifo "$tmp/pipe"
cat "$tmp/pipe" >"$tmp/piped" &
run "$compile" --arch sm_90 --json "$tmp/pipe" -o "$tmp/p" "$model"
wait
check "a report into a pipe" grep -q '"schema":"cuvil-compile/1"' "$tmp/piped"
check "which stays one" test -p "$tmp/pipe"
ln -s p "$tmp/link"
run "$compile" --arch sm_90 -o "$tmp/link" "$model"
check "a plan through a link" test -L "$tmp/link" -a -s "$tmp/p"

# ---- terminals
escape=$(printf '\033')
if command -v script >/dev/null; then
  args="--device '$device' --db '$tmp/t.db' --problem '$pool'"
  shown=$(script -qec "'$tune' $args" /dev/null </dev/null)
  check "progress on a terminal" has "$shown" "$escape[K"
  shown=$(NO_COLOR=1 script -qec "'$tune' --force $args" /dev/null </dev/null)
  check "no colour where none is wanted" test -z "$(grep -oE "$escape\[[0-9;]*m" <<<"$shown")"
  run "$tune" --device "$device" --db "$tmp/t2.db" --problem "$pool"
  check "no progress elsewhere" test -z "$(grep -F "$escape" <<<"$out$err")"
fi

# ---- an ONNX test folder: tensors as ONNX writes them, by hand
mkdir "$tmp/data"
tensor() { # tensor DIMS-AND-TYPE LENGTH: a TensorProto around stdin's bytes
  printf "$1\\x10\\x01\\x4a$2"
  cat
}
head -c 12288 /dev/zero |
  tensor '\x08\x01\x08\x03\x08\x20\x08\x20' '\x80\x60' >"$tmp/data/input_0.pb"
head -c 40 /dev/zero | tensor '\x08\x01\x08\x0a' '\x28' >"$tmp/data/output_0.pb"
run "$go" --device cpu --test-data "$tmp/data" --output-dir "$tmp/out" "$model"
check "outputs that do not agree fail" failed_as CU_ERR_VERIFY_FAILED
check "and are shown" has "$out" "FAIL"
tail -c 40 "$tmp/out/output.npy" |
  tensor '\x08\x01\x08\x0a' '\x28' >"$tmp/data/output_0.pb"
run "$go" --device cpu --test-data "$tmp/data" "$model"
check "outputs that agree pass" test "$status" -eq 0
rm "$tmp/data/output_0.pb"
run "$go" --device cpu --test-data "$tmp/data" "$model"
check "a missing output is an error" failed_as CU_ERR_IO
echo "1..$count"
