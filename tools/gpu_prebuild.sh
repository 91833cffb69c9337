#!/usr/bin/env bash
# Builds the program and its GPU tests for a machine that has a GPU but no compiler, no packages and no
# network, and packs them with what they need there. tools/gpu_check.sh runs what the archive holds.
#   tools/gpu_prebuild.sh [ARCH] [-o FILE]
#     ARCH      as CMAKE_CUDA_ARCHITECTURES: 90a-real (H100 and H200, the default), 80-real, ...; native: of
#               the GPU here
#     FILE      default: build-gpu/prebuilt-ARCH.tar.xz, less than 44 MiB; what is packed stays beside it,
#               in the folder prebuilt
#   JOBS=N                          compiler processes (default: all cores)
#   PROGRAMS="FSDP TEST_GPU"        packs these two instead of building: the emulated ones, for a rehearsal
# prebuilt/: bin (fsdp, test_gpu, mpirun), lib, mpi, fixtures, run (tools/gpu/run.sh), built.txt
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
most_bytes=$((44 << 20))
usage() { echo "usage: tools/gpu_prebuild.sh [ARCH] [-o FILE]" >&2; exit 2; }
stop() { echo "gpu_prebuild: $*" >&2; exit 1; }

arch=""
file=""
while [ $# -gt 0 ]; do
  case "$1" in
    -o) file=${2:?$(usage)}; [ "${file:0:1}" = / ] || file=$caller/$file; shift ;;
    -*) usage ;;
    *) [ -z "$arch" ] || usage; arch=$1 ;;
  esac
  shift
done
if [ "${arch:=90a-real}" = native ]; then
  arch=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader | tr -d .) || stop "native: no GPU here"
  [ "$arch" != 90 ] || arch=90a
  arch+=-real
fi
: "${file:=build-gpu/prebuilt-$arch.tar.xz}"
mkdir -p "$(dirname "$file")"
folder=$(cd "$(dirname "$file")" && pwd)/prebuilt

# A build folder of its own: C++ libraries are linked in, and oneDNN is left out.
build() {
  cmake -S . -B build-gpu $(command -v ninja >/dev/null && echo -G Ninja) -DFSDP_CARRIED=ON -DFSDP_CUDA=ON \
    -DFSDP_ONEDNN=OFF -DCMAKE_CUDA_ARCHITECTURES="$arch" -DCMAKE_CUDA_FLAGS=-lineinfo
  cmake --build build-gpu --parallel "${JOBS:-$(nproc)}" --target fsdp test_gpu
}

# Shared libraries of these files, but for glibc's and the GPU driver's.
libraries_of() {
  local found
  found=$(ldd "$@")
  ! grep 'not found' <<<"$found" >&2 || stop "libraries are missing here"
  awk '$2 == "=>" && $3 ~ /^\// { print $3 }' <<<"$found" | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|cuda))[.]so[^/]*$'
}

# Plugins for networks and for OpenSHMEM stay here: they bring libraries of their own, and ranks are on one host.
carry_mpi() {
  local pmix
  if ! command -v mpirun >/dev/null || ! command -v ompi_info >/dev/null; then
    echo "gpu_prebuild: no Open MPI here: nothing on several ranks will be checked"
    return
  fi
  path_of() { ompi_info --parsable --path "$1" | cut -d: -f3-; }
  mkdir -p "$folder/mpi/plugins" "$folder/mpi/etc" "$folder/mpi/share"
  cp -L "$(command -v mpirun)" "$folder/bin/mpirun"
  cp -r "$(path_of pkgdatadir)" "$folder/mpi/share/openmpi"
  ldd "$(path_of pkglibdir)"/mca_*.so | awk '
    /^\// { plugin = $0; sub(/:$/, "", plugin); wanted[plugin] = 1 }
    /lib(fabric|ucp|ucs|psm|psm2|psm_infinipath|ibverbs|oshmem)[.]so/ { delete wanted[plugin] }
    END { for (plugin in wanted) print plugin }' | xargs cp -t "$folder/mpi/plugins"
  pmix=$(ldd "$folder"/mpi/plugins/mca_pmix_*.so | awk '/libpmix[.]/ { print $3; exit }')
  [ -z "$pmix" ] || cp -r "$(dirname "$(readlink -f "$pmix")")/pmix" "$folder/mpi/"
}

pack() {
  local fixtures programs
  rm -rf "$folder"
  mkdir -p "$folder/bin" "$folder/lib" "$folder/fixtures"
  cp -L "$1" "$folder/bin/fsdp"
  cp -L "$2" "$folder/bin/test_gpu"
  cp tools/gpu/run.sh "$folder/run"
  carry_mpi
  programs=$(find "$folder" -path '*/bin/*' -o -name '*.so')
  # shellcheck disable=SC2086
  libraries_of $programs | xargs cp -L -t "$folder/lib"
  chmod -R u+w "$folder"
  # shellcheck disable=SC2086
  strip -s $programs "$folder"/lib/*
  for fixtures in ../shared/fixtures tests/fixtures; do  # what other implementations computed
    [ ! -d "$fixtures/models" ] || cp -rL "$fixtures/models" "$fixtures/fsdp" "$folder/fixtures/"
    chmod -R u+w "$folder/fixtures"
  done
  printf '%s, for %s, %s\n' "$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)" \
    "$arch" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$folder/built.txt"
}

if [ -n "${PROGRAMS:-}" ]; then
  # shellcheck disable=SC2086
  pack $PROGRAMS
else
  build
  pack build-gpu/fsdp build-gpu/test_gpu
fi
XZ_OPT=${XZ_OPT:--T0} tar -C "$(dirname "$folder")" -caf "$file" prebuilt
bytes=$(stat -c %s "$file")
(cd "$folder" && du -sh --apparent-size ./* | sed 's/^/  /')
printf '%s: %.1f MiB\n' "$file" "$(awk "BEGIN { print $bytes / 2^20 }")"
[ -n "${PROGRAMS:-}" ] || [ "$bytes" -lt $most_bytes ] || stop "the archive has $bytes bytes: expected less than $most_bytes"
