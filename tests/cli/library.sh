#!/usr/bin/env bash
# libcuvil as a stranger uses it: the installed tree and its pkg-config file,
# one C file, shared and static; a database opened, a model compiled, errors
# reported.
set -u
. "$(dirname "$0")/../support/tap.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
"$CUVIL_BIN/cuvil-model" resnet-mini -o "$tmp/mini.onnx" || exit 1
run env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$root" install PREFIX=/opt/cuvil DESTDIR="$tmp/root"
check "installs" test "$status" -eq 0
for part in bin/cuvil-tune lib/libcuvil.so lib/libcuvil.a include/cuvil.h; do
  check "$part is there" test -e "$tmp/root/opt/cuvil/$part"
done

cat >"$tmp/user.c" <<'C'
#include <cuvil.h>
#include <stdio.h>

int main(int argc, char **argv) {
  struct cuvil_context *context;
  struct cuvil_database *database;
  struct cuvil_compile_options options = {.arch = "sm_90"};
  if (argc != 4) return 9;
  if (cuvil_context_create(-1, &context) != CUVIL_OK) return 8;
  enum cuvil_status status = cuvil_database_open(argv[3], &database);
  if (status != CUVIL_OK)
    printf("database: %s: %s\n", cuvil_status_name(status), cuvil_last_error());
  status = cuvil_compile(context, database, argv[1], &options, argv[2]);
  printf("compile: %s%s%s\n", cuvil_status_name(status),
         status ? ": " : "", status ? cuvil_last_error() : "");
  struct cuvil_instance *instance;
  enum cuvil_status load = cuvil_instance_load(context, argv[2], &instance);
  printf("load: %s\n", cuvil_status_name(load));
  cuvil_instance_unload(instance);
  cuvil_database_close(database);
  cuvil_context_destroy(context);
  return status != CUVIL_OK;
}
C
export PKG_CONFIG_PATH=$tmp/root/opt/cuvil/lib/pkgconfig
export PKG_CONFIG_SYSROOT_DIR=$tmp/root
flags() { pkg-config "$@" cuvil; }
check "pkg-config knows the version" test \
  "$(flags --modversion)" = "$(sed -n 's/.define CUVIL_VERSION "\(.*\)"/\1/p' "$root/include/cuvil.h")"
strict="-std=c11 -Wall -Wextra -Werror"
run gcc $strict $(flags --cflags) "$tmp/user.c" -o "$tmp/shared" $(flags --libs)
check "links with the shared library" test "$status" -eq 0
# Cuvil alone static: what it stands on comes from the system.
run gcc $strict $(flags --cflags) "$tmp/user.c" -o "$tmp/static" \
  -Wl,-Bstatic -lcuvil -Wl,-Bdynamic $(flags --static --libs | sed 's/-lcuvil//')
check "links with the static one" test "$status" -eq 0
run g++ -x c++ -fsyntax-only -Wall -Wextra -Werror \
  -include "$tmp/root/opt/cuvil/include/cuvil.h" /dev/null
check "the header is C++, too" test "$status" -eq 0
export LD_LIBRARY_PATH=$tmp/root/opt/cuvil/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

for how in shared static; do
  run "$tmp/$how" "$tmp/mini.onnx" "$tmp/$how.plan" "$tmp/none.db"
  check "$how: compiles" test "$status" -eq 0
  check "$how: a plan" test -s "$tmp/$how.plan"
  check "$how: no database is said" has "$out" "database: CU_ERR_DB: $tmp/none.db"
  check "$how: nothing loads without a GPU" has "$out" "load: CU_ERR_"
  : >"$tmp/empty.onnx"
  run "$tmp/$how" "$tmp/empty.onnx" "$tmp/$how.plan" "$tmp/none.db"
  check "$how: a bad model fails" test "$status" -eq 1
  check "$how: by name and file" has "$out" \
    "compile: CU_ERR_MODEL_INVALID: $tmp/empty.onnx"
done
check "both write the same plan" cmp -s "$tmp/shared.plan" "$tmp/static.plan"
own() { nm -D --defined-only "$tmp/root/opt/cuvil/lib/libcuvil.so" | awk '{ print $3 }'; }
check "nothing but the API is exported" test -z "$(own | grep -v '^cuvil_')"
run "$tmp/root/opt/cuvil/bin/cuvil-tune" --device replay --list-problems
check "installed commands find the recordings" test "$status" -eq 0
echo "1..$count"
