#!/usr/bin/env bash
# make dist: build/dist, a relocatable tree that runs on any x86-64 Linux with
# glibc 2.36 or later and the CUDA libraries.  Libraries that a bare system may
# lack travel in lib/; glibc and the CUDA libraries do not.
#   usage: dist.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
from=$1 to=build/dist
rm -rf "$to" && mkdir -p "$to"/{bin,lib/pkgconfig,libexec/cuvil,include,share/cuvil/{recordings,problems},share/doc/cuvil}
cp -L "$from"/bin/cuvil-* "$to/bin/"
cp "$from"/lib/libcuvil.so "$to/lib/libcuvil.so.0"
ln -s libcuvil.so.0 "$to/lib/libcuvil.so"
cp "$from"/lib/pkgconfig/cuvil.pc "$to/lib/pkgconfig/"
cp include/cuvil.h "$to/include/"
cp README.md "$to/share/doc/cuvil/"
for f in bench/recordings/*.t4.json.zst; do
  [ -e "$f" ] && cp "$f" "$to/share/cuvil/recordings/"
done
cp bench/problems/*.txt "$to/share/cuvil/problems/"
# Test programs reach a GPU machine in the same tree.
for f in "$from"/gpu-tests/* "$from"/spikes/*; do
  [ -f "$f" ] && [ -x "$f" ] && cp "$f" "$to/libexec/cuvil/"
done
cp bench/spikes/*.cu "$to/libexec/cuvil/" 2>/dev/null || true
cp bench/gemm_table.py "$to/libexec/cuvil/"

system='^(ld-linux.*|libc|libm|libdl|libpthread|librt|libgcc_s|linux-vdso)\.so'
for f in "$to"/bin/* "$to"/lib/*.so.0 "$to"/libexec/cuvil/*; do
  case $f in *.cu|*.py) continue ;; esac
  ldd "$f" | awk '$3 ~ /^\// { print $3 }'
done | sort -u | while read -r library; do
  basename "$library" | grep -qE "$system" || cp -Ln "$library" "$to/lib/"
done
strip --strip-debug "$to"/bin/* "$to"/lib/*.so* 2>/dev/null || true
for f in "$to"/libexec/cuvil/*; do
  case $f in *.cu|*.py) ;; *) strip --strip-debug "$f" ;; esac
done
for f in "$to"/lib/*.so*; do
  [ -L "$f" ] || patchelf --set-rpath '$ORIGIN' "$f"
done
for f in "$to"/libexec/cuvil/*; do
  case $f in *.cu|*.py) ;; *) patchelf --set-rpath '$ORIGIN/../../lib' "$f" ;; esac
done
# What was linked against must not ask for a newer C library than promised.
newest=$(find "$to" -type f \( -perm -u+x -o -name '*.so*' \) -print0 |
  xargs -0 objdump -T 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1)
size=$(du -sm "$to" | cut -f1)
echo "dist: $to, $size MiB, needs ${newest:-no versioned glibc}"
case $newest in
  GLIBC_2.?|GLIBC_2.[12]?|GLIBC_2.3[0-6]|'') ;;
  *) echo "dist: note: built on this system, the tree needs a newer glibc than 2.36 ($newest)" >&2 ;;
esac
if [ "$size" -ge 60 ]; then
  echo "dist: error: the tree is over 60 MiB" >&2
  exit 1
fi
