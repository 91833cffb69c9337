#!/usr/bin/env bash
# make gpu-check: on a machine with an NVIDIA GPU builds from nothing, runs the tests that need one, and
# measures. One table at the end; JSON lines, logs and the table in the output folder.
#   tools/gpu_check.sh [OUTPUT_FOLDER]    default: gpu-check/DATE-COMMIT
#   STAGES="build tests verify ranks memory kernels steps sanitizer peer"   only some of them
#   JOBS=N           compiler processes (default: all cores)
#   LIMIT_S=N        seconds in all (default: 520): a stage that reaches its end is cut and has failed;
#                    the sanitizer and PyTorch, which come last, take what is left
#   BUILD=FOLDER     default: build-gpu
# A stage that cannot run says why and counts as skipped; the exit status is that of the worst stage.
set -uo pipefail
set -a  # stages run in shells of their own, so that one can be ended
cd "$(dirname "$0")/.."
root=$PWD
build=${BUILD:-$root/build-gpu}
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
out=${1:-gpu-check/$(date +%Y-%m-%d)-$commit}
stages=${STAGES:-build tests verify ranks memory kernels steps sanitizer peer}
jobs=${JOBS:-$(nproc)}
models="$root/tests/fixtures/models/* $root/../shared/fixtures/models/*"
as_root=$([ "$(id -u)" = 0 ] && echo --allow-run-as-root)
mpirun="mpirun --oversubscribe --bind-to none $as_root"

if ! gpus=$(command -v nvidia-smi >/dev/null || echo "no nvidia-smi"; nvidia-smi -L 2>&1); then
  echo "gpu-check: no NVIDIA GPU here: $(head -n 1 <<<"$gpus")" >&2
  exit 2
fi
mkdir -p "$out" && out=$(cd "$out" && pwd)
device=$(nvidia-smi -i 0 --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader)
architecture=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader | tr -d .)
[ "$architecture" = 90 ] && architecture=90a

worst=0
summary=""
end=$((EPOCHSECONDS + ${LIMIT_S:-520}))
left() { echo $((end > EPOCHSECONDS ? end - EPOCHSECONDS : 0)); }

# stage NAME FUNCTION: runs it with its output in a log; 77 means skipped, with the reason in the last line
stage() {
  local name=$1 begin=$EPOCHSECONDS status=0 word last
  [[ " $stages " = *" $name "* ]] || return 0
  printf '== %s\n' "$name"
  if [ "$(left)" = 0 ]; then
    echo "no time left (LIMIT_S)" >"$out/$name.log"
    status=77
  else
    timeout --kill-after=5 "$(left)" bash -uo pipefail -c "stage_$name" >"$out/$name.log" 2>&1 || status=$?
    [ $status != 124 ] || echo "cut: the time was over (LIMIT_S)" >>"$out/$name.log"
  fi
  last=$(tail -n 1 "$out/$name.log")
  case $status in
    0) word=passed ;;
    77) word=skipped ;;
    *) word=FAILED; worst=1; tail -n 15 "$out/$name.log" ;;
  esac
  summary+=$(printf '%-10s %-8s %5d s  %s' "$name" "$word" $((EPOCHSECONDS - begin)) "$last")$'\n'
  tail -n 1 <<<"${summary%$'\n'}"
}

# NCCL is in no toolkit: where PyTorch is, the wheels of its libraries are.
stage_build() {
  local wheels
  wheels=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
  cmake -S . -B "$build" $(command -v ninja >/dev/null && echo -G Ninja) -DFSDP_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" ${wheels:+-DCUDA_DEPS_DIR="$wheels"} || return
  grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" ||
    { echo "no CUDA compiler: tools/setup.sh --cuda"; return 1; }
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

# Tests ask for too much memory on purpose: failed calls are no errors here.
stage_sanitizer() {
  local tool status failed=0 cut=""
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
  for tool in memcheck racecheck; do
    timeout $(($(left) / 4 + 5)) compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 \
      "$build/test_gpu" --no-colors=1 --test-case-exclude='*cuDNN*' --source-file-exclude='*cudnn*' | tee "$out/$tool.txt"
    status=${PIPESTATUS[0]}
    if grep -qE '^=+ (Error|Invalid|Race|Program hit)|ERROR SUMMARY: [1-9]' "$out/$tool.txt"; then
      failed=1
    elif [ "$status" = 124 ]; then
      cut+="; $tool was cut before its end"
    elif [ "$status" != 0 ]; then
      failed=1
    fi
  done
  echo "memcheck and racecheck on the kernel tests$cut"
  return $failed
}

stage_kernels() {
  local sizes="--dtype bf16 --batch 16 --seq 1024 --backend cuda"
  # shellcheck disable=SC2086
  "$build/fsdp" bench kernels $sizes --save "$out/kernels.json"
}

# model, sequences of 1024 tokens: each side is measured with all of these and its best counts
steps="gpt2-124m:64,32 gpt2-1558m:16,8 qwen2.5-0.5b:16,8 qwen2.5-1.5b:8,4"

stage_steps() {
  local entry batch
  : >"$out/steps.json"
  for entry in $steps; do
    for batch in $(tr , ' ' <<<"${entry#*:}"); do  # one that is too large says what it needed
      "$build/fsdp" bench step --preset "${entry%:*}" --batch "$batch" --seq 1024 --dtype bf16 --steps 10 \
        --backend cuda --json | tee -a "$out/steps.json"
    done
    grep -q "\"${entry%:*}\"" "$out/steps.json" || { echo "no batch of ${entry%:*} ran"; return 1; }
  done
  echo "$(wc -l <"$out/steps.json") runs"
}

# What every category of the ledger peaks at is a matter of the model, not of the backend.
stage_memory() {
  local backend
  for backend in cpu cuda; do
    "$build/fsdp" bench step --preset gpt2-124m --batch 1 --seq 256 --dtype bf16 --steps 1 \
      --backend $backend --json | tail -n 1 | tee "$out/memory-$backend.json" || return
    sed 's/.*"peak_bytes_by_category":{\([^}]*\)}.*/\1/' "$out/memory-$backend.json" | tr ',' '\n' |
      grep -vE '"(workspace|transport staging)"' >"$out/memory-$backend.txt"
  done
  [ -s "$out/memory-cpu.txt" ] || { echo "no categories"; return 1; }
  diff "$out/memory-cpu.txt" "$out/memory-cuda.txt" || { echo "CPU (<) and GPU (>) differ"; return 1; }
  echo "$(wc -l <"$out/memory-cpu.txt") categories of the ledger, the same bytes as on the CPU"
}

# The kinds that are fastest as a rule come first, in case the time does not suffice for all.
stage_peer() {
  local entry kind unmeasured=0
  python3 -c 'import torch, transformers' 2>/dev/null || { echo "no torch and transformers"; return 77; }
  : >"$out/peer.json"
  for kind in "--master --compile" --master --compile ""; do
    for entry in $steps; do
      [ "$(left)" -gt 5 ] || { unmeasured=$((unmeasured + 1)); continue; }
      # shellcheck disable=SC2086
      timeout $(($(left) - 5)) python3 tools/bench/torch_step.py --device cuda --model "${entry%:*}" \
        --batch "${entry#*:}" --seq 1024 --dtype bf16 --steps 10 $kind | grep ms_min | tee -a "$out/peer.json"
    done
  done
  [ -s "$out/peer.json" ] || { echo "PyTorch measured nothing in the time that was left (LIMIT_S)"; return 1; }
  echo "$(wc -l <"$out/peer.json") runs of PyTorch; no time for $unmeasured of its kinds (LIMIT_S)"
}

# fastest FILE MODEL [PATTERN]: "tokens/s batch ms" of the best line
fastest() {
  grep "\"$2\"" "$1" 2>/dev/null | grep -E "${3:-.}" |
    sed -E 's/.*"batch": *([0-9]+).*"ms_min": *([0-9.]+).*"tokens_per_s": *([0-9.]+).*/\3 \1 \2/' | sort -g | tail -n 1
}

# What is asked of one H200, tokens/s; 0: nothing.
bar_of() {
  case "$device:$1" in
    *H200*:gpt2-124m) echo 470000 ;;
    *H200*:gpt2-1558m) echo 47000 ;;
    *) echo 0 ;;
  esac
}

# The best of both sides. The bar on PyTorch is 1.05 x its best with f32 parameters, as ours are.
print_steps() {
  local entry model rate batch ms masters pure
  printf '\n%-14s %6s %9s %11s   %s\n' model batch "ms" "tokens/s" \
    "asked for | PyTorch, f32 parameters: ratio (1.05 asked for) | bf16 parameters: ratio"
  for entry in $steps; do
    model=${entry%:*}
    read -r rate batch ms <<<"$(fastest "$out/steps.json" "$model")"
    [ -n "${rate:-}" ] || continue
    read -r masters _ <<<"$(fastest "$out/peer.json" "$model" '"master": true')"
    read -r pure _ <<<"$(fastest "$out/peer.json" "$model" '"master": false')"
    awk -v model="$model" -v batch="$batch" -v ms="$ms" -v rate="$rate" -v bar="$(bar_of "$model")" \
      -v masters="${masters:-0}" -v pure="${pure:-0}" 'BEGIN {
        printf "%-14s %6d %9.1f %11.0f  ", model, batch, ms, rate
        if (bar > 0) printf " %d: %s |", bar, (rate >= bar ? "met" : "MISSED"); else printf " - |"
        if (masters > 0) printf " %.0f: %.2f %s |", masters, rate / masters, (rate >= 1.05 * masters ? "met" : "MISSED")
        else printf " not measured |"
        if (pure > 0) printf " %.0f: %.2f", pure, rate / pure; else printf " not measured"
        print "" }'
  done
}

# Also where the time or a signal ends it early.
finish() {
  trap - EXIT
  {
    printf '%s, commit %s, %s\n%s\n\n%s' "$(date +%Y-%m-%d)" "$commit" "$device" \
      "$(nvcc --version 2>/dev/null | grep release)" "$summary"
    print_steps
    [ -f "$out/kernels.log" ] && { echo; cat "$out/kernels.log"; }
  } | tee "$out/table.txt"
  exit $worst
}
trap finish EXIT
trap 'worst=1; exit' INT TERM HUP
for name in build tests verify ranks memory kernels steps sanitizer peer; do
  stage $name
  [ "$name:$worst" != build:1 ] || break
done
