#!/usr/bin/env bash
# What every CUDA kernel takes of a multiprocessor, from ptxas: registers, spills, shared memory.
#   tools/cuda_report.sh BUILD_DIR [ARCHITECTURE]     default: sm_90a. Exits 1 when a kernel spills
# Called by `make cuda-report`. Needs no GPU.
set -uo pipefail
build=${1:?usage: tools/cuda_report.sh BUILD_DIR [ARCHITECTURE]}
arch=${2:-sm_90a}
cd "$(dirname "$0")/.."
[ -f "$build/CMakeCache.txt" ] || { echo "cuda_report: $build is not there: make comes first" >&2; exit 2; }
nvcc=$(sed -n 's/^FSDP_NVCC:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ ! -x "$nvcc" ]; then
  echo "cuda_report: $build has no CUDA compiler: tools/setup.sh --cuda-compiler" >&2
  exit 2
fi

report() {
  local object
  object=$(mktemp)
  "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -I. -cubin \
    -gencode "arch=compute_${arch#sm_},code=$arch" -Xptxas -v -o "$object" "$1" 2>&1 |
    c++filt -p | awk -v file="${1#kernels/cuda/}" '
      /Compiling entry function/ {
        name = $0; sub(/.*function .(__global__ )?/, "", name); sub(/. for .*/, "", name)
        gsub(/fsdp::cuda::|\(anonymous namespace\)::|_NV_ANON_NAMESPACE::/, "", name)
      }
      /bytes spill stores/ { spills = $5 + $9 }
      /Used [0-9]+ registers/ {
        registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
        shared = 0
        if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
        printf "%-24s %9d %7d %7d  %s\n", file, registers, spills, shared, name
      }
      /error/ { print > "/dev/stderr"; failed = 1 }
      END { exit failed }'
  local status=$?
  rm -f "$object"
  return $status
}

printf '%-24s %9s %7s %7s  %s, %s\n' file registers spills shared kernel "$arch"
status=0
lines=""
for source in kernels/cuda/*.cu; do
  lines+=$(report "$source")$'\n' || status=2
done
printf '%s' "$lines"
if awk '$3 > 0 { found = 1 } END { exit !found }' <<<"$lines"; then
  echo "cuda_report: kernels spill registers"
  status=1
fi
exit $status
