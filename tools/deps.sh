#!/usr/bin/env bash
# make deps: installs what is missing to build and test Cuvil on Debian 12 or
# Ubuntu 24.04, as root or with sudo.  Does nothing, quickly, when all is there.
#
# CUDA comes from $CUDA_HOME or /usr/local/cuda; where neither has NVRTC and
# its headers, they are laid under build/cuda from the vendor's PyPI wheels.
# cuBLASLt and cuDNN are fetched only where a GPU is: without one nothing
# calls them.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(gcc make pkg-config libprotobuf-c-dev protobuf-c-compiler libonnx-dev
  libjansson-dev libsqlite3-dev libxxhash-dev libzstd-dev
  libcmocka-dev libonnx-testdata clang-format patchelf zstd sqlite3
  gnuplot-nox)
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed ||
    missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "deps: installing ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    echo "deps: error: these packages are missing and there is no apt-get to install them: ${missing[*]}" >&2
    exit 1
  fi
  if [ ${#as_root[@]} -gt 0 ] && ! command -v sudo >/dev/null; then
    echo "deps: error: run as root, or install sudo; missing: ${missing[*]}" >&2
    exit 1
  fi
  "${as_root[@]}" apt-get update -q >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends "${missing[@]}" >/dev/null
fi

has_cuda() {
  local library
  [ -f "$1/include/nvrtc.h" ] && [ -f "$1/include/cuda.h" ] || return 1
  for library in "$1"/lib64/libnvrtc.so* "$1"/lib/libnvrtc.so*; do
    [ -e "$library" ] && return 0
  done
  return 1
}
if [ -n "${CUDA_HOME:-}" ]; then
  has_cuda "$CUDA_HOME" || {
    echo "deps: error: CUDA_HOME=$CUDA_HOME has no NVRTC and headers (include/nvrtc.h, lib64/libnvrtc.so); unset it to have them fetched" >&2
    exit 1
  }
  exit 0
fi
has_cuda /usr/local/cuda && exit 0
if ! has_cuda build/cuda; then
  echo "deps: no CUDA toolkit found; laying NVRTC and headers under build/cuda"
  python3 -c 'import venv, ensurepip' 2>/dev/null || {
    "${as_root[@]}" apt-get update -q >/dev/null
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
      --no-install-recommends python3-venv >/dev/null
  }
  wheels=('nvidia-cuda-nvrtc>=13,<14' 'nvidia-cuda-runtime>=13,<14'
    'nvidia-nvml-dev>=13,<14' 'nvidia-cuda-crt>=13,<14')
  if ls /dev/nvidia0 >/dev/null 2>&1; then
    wheels+=('nvidia-cublas>=13,<14' 'nvidia-cudnn-cu13')
  fi
  python3 -m venv build/venv
  build/venv/bin/pip install -q --disable-pip-version-check "${wheels[@]}"
  root=$(echo build/venv/lib/python3*/site-packages/nvidia)
  rm -rf build/cuda && mkdir -p build/cuda/include build/cuda/lib
  # CUDA 13 wheels share nvidia/cu13; cuDNN has a folder of its own.
  for d in "$root"/*; do
    [ -d "$d/include" ] && cp -rs "$PWD/$d/include/." build/cuda/include/
    [ -d "$d/lib" ] && cp -rs "$PWD/$d/lib/." build/cuda/lib/
  done
  has_cuda build/cuda || {
    echo "deps: error: the wheels did not bring NVRTC and cuda.h; install a CUDA toolkit and set CUDA_HOME" >&2
    exit 1
  }
fi
