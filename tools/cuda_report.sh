#!/usr/bin/env bash
# What every CUDA kernel takes of a multiprocessor, from ptxas: registers, spills, shared memory, and the
# registers of a block by its launch bounds.
#   tools/cuda_report.sh BUILD_DIR [ARCHITECTURE]     default: sm_90a
# Exits 1 when a kernel spills, when a block of it cannot start, or when a file that is built with -fmad=false leaves the
# compiler a product or a sum to contract (PTX: "mul", "add" and "sub" without .rn may become an fma).
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

exact=$(sed -n 's/^set(exact_kernels \(.*\))$/\1/p' CMakeLists.txt)  # files built with -fmad=false
[ -n "$exact" ] || { echo "cuda_report: CMakeLists.txt has no exact_kernels" >&2; exit 2; }

# Registers are given out in eights. A kernel without launch bounds may be started with 1024 threads.
report() {
  local work source=$1 status flags free
  work=$(mktemp -d)
  [[ " $exact " == *" $(basename "$source" .cu) "* ]] && flags=-fmad=false || flags=
  # shellcheck disable=SC2086
  "$nvcc" $flags -std=c++20 -O3 --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -I. -cubin --keep --keep-dir "$work" \
    -gencode "arch=compute_${arch#sm_},code=$arch" -Xptxas -v -o "$work/object" "$source" >"$work/ptxas" 2>&1
  status=$?
  [ $status = 0 ] || cat "$work/ptxas" >&2
  awk -v file="${source#kernels/cuda/}" '
    FILENAME ~ /\.ptx$/ {
      if (/\.entry /) { name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name); threads[name] = 1024 }
      if (/^\.maxntid/) { gsub(/,/, ""); threads[name] = $2 * $3 * $4 }
      next
    }
    /Compiling entry function/ { name = $0; sub(/.*function ./, "", name); sub(/. for .*/, "", name) }
    /bytes spill stores/ { spills = $5 + $9 }
    /Used [0-9]+ registers/ {
      registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
      shared = 0
      if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
      block = int((registers + 7) / 8) * 8 * threads[name]
      printf "%-24s %9d %7d %7d %7d %8d  %s\n", file, registers, spills, shared, threads[name], block, name
    }' "$work"/*.ptx "$work/ptxas" | c++filt |
    sed -E 's/fsdp::cuda::|\(anonymous namespace\)::|_NV_ANON_NAMESPACE:://g'
  if [ -n "$flags" ]; then
    free=$(cat "$work"/*.ptx | grep -cE '\b(mul|add|sub)(\.ftz)?\.f(32|64)\b')
    echo "$source: $(cat "$work"/*.ptx | grep -cE '\bfma\.rn\.f(32|64)\b') fma, $free products and sums left to the compiler" >&2
    [ "$free" = 0 ] || status=1
  fi
  rm -rf "$work"
  return $status
}

printf '%-24s %9s %7s %7s %7s %8s  %s, %s\n' file registers spills shared threads of_block kernel "$arch"
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
if awk '$6 > 65536 { found = 1 } END { exit !found }' <<<"$lines"; then
  echo "cuda_report: the threads of a block want more than the 65,536 registers of a multiprocessor"
  status=1
fi
exit $status
