# tap.sh - sourced by the tests of commands: check NAME CONDITION..., and what
# the last `run` of a command left: $status, $out, $err (texts).
count=0
check() { # check NAME COMMAND...: passes when the command does
  local name=$1
  shift
  count=$((count + 1))
  if "$@"; then
    echo "ok $count - $name"
  else
    echo "not ok $count - $name"
    printf '# status %s\n' "$status"
    printf '%s\n' "$out" "$err" | sed 's/^/#   /' | head -20
  fi
}
run() {
  out=$("$@" 2>"$tmp/stderr")
  status=$?
  err=$(cat "$tmp/stderr")
}
has() { case $1 in *"$2"*) true ;; *) false ;; esac; }
# A failure of the kind named, with it on the last line of stderr.
failed_as() {
  [ "$status" -eq 1 ] && has "$(tail -1 <<<"$err")" "error: $1 ("
}
misused() { [ "$status" -eq 2 ] && has "$err" "--help"; }
tmp=$CUVIL_TEST_TMP/$(basename "$0" .sh)
rm -rf "$tmp" && mkdir -p "$tmp"
unset CUVIL_DB
