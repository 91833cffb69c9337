#!/usr/bin/env bash
# make gpu-check: on a machine with an NVIDIA GPU builds from nothing, runs the tests that need one, and
# measures. One table at the end; JSON lines, logs and the table in the output folder.
#   tools/gpu_check.sh [OUTPUT_FOLDER]    default: gpu-check/DATE-COMMIT
#   STAGES="build tests verify ranks sanitizer kernels steps peer"   only some of them, in this order
#   JOBS=N                                compiler processes (default: all cores)
# A stage that cannot run says why and counts as skipped; the exit status is that of the worst stage.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=$root/build-gpu
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
out=${1:-gpu-check/$(date +%Y-%m-%d)-$commit}
stages=${STAGES:-build tests verify ranks sanitizer kernels steps peer}
jobs=${JOBS:-$(nproc)}
models="$root/tests/fixtures/models/* $root/../shared/fixtures/models/*"
as_root=$([ "$(id -u)" = 0 ] && echo --allow-run-as-root)
mpirun="mpirun --oversubscribe --bind-to none $as_root"

if ! gpus=$(nvidia-smi -L 2>&1); then
  echo "gpu-check: no NVIDIA GPU here: $(head -n 1 <<<"$gpus")" >&2
  exit 2
fi
mkdir -p "$out" && out=$(cd "$out" && pwd)
device=$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader -i 0)
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d .)
[ "$architecture" = 90 ] && architecture=90a

worst=0
summary=""

# stage NAME FUNCTION: runs it with its output in a log; 77 means skipped, with the reason in the last line
stage() {
  local name=$1 begin=$SECONDS status=0 word last
  [[ " $stages " = *" $name "* ]] || return 0
  printf '== %s\n' "$name"
  "stage_$name" >"$out/$name.log" 2>&1 || status=$?
  last=$(tail -n 1 "$out/$name.log")
  case $status in
    0) word=passed ;;
    77) word=skipped ;;
    *) word=FAILED; worst=1; tail -n 15 "$out/$name.log" ;;
  esac
  summary+=$(printf '%-10s %-8s %5d s  %s' "$name" "$word" $((SECONDS - begin)) "$last")$'\n'
  tail -n 1 <<<"${summary%$'\n'}"
}

stage_build() {
  cmake -S . -B "$build" $(command -v ninja >/dev/null && echo -G Ninja) -DFSDP_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" &&
    cmake --build "$build" --parallel "$jobs" --target fsdp test_gpu || return
  "$build/fsdp" --version
}

stage_tests() {
  local log
  log=$(ctest --test-dir "$build" -L gpu --no-tests=error --timeout 300 --output-on-failure)
  local status=$?
  printf '%s\n' "$log"
  grep 'tests passed' <<<"$log"
  return $status
}

# Folders that another implementation computed, on the GPU.
stage_verify() {
  local folder dtype runs=0 failed=0
  for folder in $models; do
    [ -f "$folder/config.json" ] || continue
    for dtype in f32 bf16; do
      runs=$((runs + 1))
      "$build/fsdp" verify "$folder" --dtype $dtype --backend cuda || failed=$((failed + 1))
    done
  done
  echo "$runs folders and dtypes, $failed outside their limits"
  [ $runs -gt 0 ] && [ $failed = 0 ]
}

# Training runs of PyTorch on sharded ranks: one over NCCL, several on this one GPU through the host.
stage_ranks() {
  local run ranks runs=0 failed=0
  command -v mpirun >/dev/null || { echo "no mpirun"; return 77; }
  $mpirun -n 1 "$build/fsdp" bench step --preset gpt2-124m --batch 4 --seq 256 --dtype bf16 --steps 3 \
    --backend cuda --gpu-transport nccl || failed=$((failed + 1))
  for run in "$root"/tests/fixtures/fsdp/* "$root"/../shared/fixtures/fsdp/*; do
    [ -f "$run/reference.json" ] || continue
    ranks=$(sed -n 's/.*"world_size": *\([0-9]*\).*/\1/p' "$run/reference.json" | head -n 1)
    [ "${ranks:-0}" -ge 2 ] && [ "$ranks" -le 4 ] || continue
    runs=$((runs + 1))
    $mpirun -n "$ranks" "$build/fsdp" verify "$run" --backend cuda --share-gpus ||
      failed=$((failed + 1))
  done
  echo "1 rank over NCCL; $runs runs on 2 to 4 ranks through the host; $failed failed"
  [ $failed = 0 ]
}

stage_sanitizer() {
  local tool failed=0
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
  for tool in memcheck racecheck; do
    timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 "$build/test_gpu" --no-colors=1 \
      --test-case-exclude='*speed*'
    case $? in
      0) ;;
      124) echo "$tool: cut at 60 s, nothing found until then" ;;
      *) failed=1 ;;
    esac
  done
  echo "memcheck and racecheck on the kernel tests"
  return $failed
}

stage_kernels() {
  local sizes="--dtype bf16 --batch 16 --seq 1024 --backend cuda"
  # shellcheck disable=SC2086
  "$build/fsdp" bench kernels $sizes --json >"$out/kernels.json" || return
  # shellcheck disable=SC2086
  "$build/fsdp" bench kernels $sizes
}

# model, sequences of 1024 tokens
steps="gpt2-124m:64 gpt2-1558m:16 qwen2.5-0.5b:16 qwen2.5-1.5b:8"
stage_steps() {
  local entry failed=0
  : >"$out/steps.json"
  for entry in $steps; do
    "$build/fsdp" bench step --preset "${entry%:*}" --batch "${entry#*:}" --seq 1024 --dtype bf16 \
      --steps 10 --backend cuda --json | tee -a "$out/steps.json" || failed=1
  done
  echo "$(wc -l <"$out/steps.json") models"
  return $failed
}

stage_peer() {
  local script=$root/../shared/peers/torch_step.py entry kind
  [ -f "$script" ] || { echo "$script is not there"; return 77; }
  python3 -c 'import torch, transformers' 2>/dev/null || { echo "no torch and transformers"; return 77; }
  : >"$out/peer.json"
  for entry in $steps; do
    for kind in "" --compile "--master --compile"; do
      # shellcheck disable=SC2086
      timeout 90 python3 "$script" --device cuda --model "${entry%:*}" --batch "${entry#*:}" \
        --seq 1024 --dtype bf16 --steps 10 $kind | grep ms_min | tee -a "$out/peer.json"
    done
  done
  echo "$(wc -l <"$out/peer.json") rows of PyTorch"
}

# The rows of both sides, tokens/s.
print_steps() {
  local entry ours line
  printf '\n%-14s %9s %10s %12s %10s   %s\n' model "batch" "ms" "tokens/s" "PyTorch" "of it"
  for entry in $steps; do
    ours=$(grep "\"${entry%:*}\"" "$out/steps.json" 2>/dev/null | tail -n 1)
    [ -n "$ours" ] || continue
    line=$(grep "\"${entry%:*}\"" "$out/peer.json" 2>/dev/null |
      sed 's/.*"tokens_per_s": \([0-9.]*\).*/\1/' | sort -g | tail -n 1)
    awk -v model="${entry%:*}" -v batch="${entry#*:}" -v peer="${line:-0}" \
      -v ms="$(sed 's/.*"ms_min": *\([0-9.]*\).*/\1/' <<<"$ours")" \
      -v rate="$(sed 's/.*"tokens_per_s": *\([0-9.]*\).*/\1/' <<<"$ours")" 'BEGIN {
        printf "%-14s %9d %10.1f %12.0f", model, batch, ms, rate
        if (peer > 0) printf " %10.0f   %.2f x", peer, rate / peer
        print "" }'
  done
}

for name in build tests verify ranks sanitizer kernels steps peer; do stage $name; done
{
  printf '%s, commit %s, %s\n%s\n\n%s' "$(date +%Y-%m-%d)" "$commit" "$device" \
    "$(nvcc --version 2>/dev/null | grep release)" "$summary"
  print_steps
  [ -f "$out/kernels.log" ] && { echo; cat "$out/kernels.log"; }
} | tee "$out/table.txt"
exit $worst
