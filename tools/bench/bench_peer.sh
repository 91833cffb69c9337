#!/usr/bin/env bash
# make bench: training steps of GPT-2 124M by this program against the speed of light, beside the same
# step in PyTorch (tools/bench/torch_step.py) where python3 has torch and transformers.
#   tools/bench/bench_peer.sh BUILD_FOLDER [STEPS]
#   PEER=eager|compile|none   only that kind of PyTorch row (default: both, the faster one counts)
# Milliseconds are minima. Memory is growth of RSS: over the empty program, and over PyTorch imported.
set -uo pipefail
build=${1:?usage: tools/bench/bench_peer.sh BUILD_FOLDER [STEPS]}
steps=${2:-6}
root=$(cd "$(dirname "$0")/../.." && pwd)
script=$root/tools/bench/torch_step.py
peer=${PEER:-both}
as_root=$([ "$(id -u)" = 0 ] && echo --allow-run-as-root)
launch="mpirun -n 2 --oversubscribe --bind-to none $as_root"
launch4=${launch/-n 2/-n 4}

# field NAME JSON: the number
field() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" <<<"$2"; }
# run COMMAND...: with its stdout; what it says on stderr, such as why the CPU computes, is said once.
said=$(mktemp)
stderr=$(mktemp)
trap 'rm -f "$said" "$stderr"' EXIT
run() {
  local status=0
  "$@" 2>"$stderr" || status=$?
  grep -vxFf "$said" "$stderr" | tee -a "$said" >&2
  return $status
}
calculate() { awk "BEGIN { printf \"$1\", $2 }"; }

why_no_peer() {
  [ "$peer" != none ] || { echo "PEER=none"; return; }
  python3 -c 'import torch, transformers' 2>/dev/null ||
    echo "python3 has no torch and transformers"
}
skipped=$(why_no_peer)
[ -n "$skipped" ] && echo "PyTorch rows skipped: $skipped"
imported=0  # MiB
[ -n "$skipped" ] || imported=$(python3 -c '
import torch, torch.distributed, transformers
from transformers import AutoModelForCausalLM
import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)' 2>/dev/null)

# peer_row OURS_MS LAUNCHER ARGUMENTS...: the best of the kinds asked for
peer_row() {
  local ours=$1 launcher=$2; shift 2
  [ -z "$skipped" ] || { echo; return; }
  local kinds=("") best="" memory="" kind json ms
  [ "$peer" = compile ] && kinds=(--compile)
  [ "$peer" = both ] && [ "$launcher" = python3 ] && kinds=("" --compile)
  for kind in "${kinds[@]}"; do
    # shellcheck disable=SC2086
    json=$($launcher "$script" --steps "$steps" "$@" $kind 2>/dev/null | grep ms_min)
    ms=$(field ms_min "$json")
    [ -n "$ms" ] || continue
    if [ -z "$best" ] || [ "$(calculate %d "$ms < $best")" = 1 ]; then best=$ms; fi
    ms=$(calculate %.0f "$(field peak_gib "$json") * 1024 - $imported")
    if [ -z "$memory" ] || [ "$ms" -lt "$memory" ]; then memory=$ms; fi
  done
  [ -n "$best" ] || { echo "   PyTorch failed"; return; }
  printf '   PyTorch %8.1f ms %6d MiB  %5.2f x\n' "$best" "$memory" "$(calculate %f "$best / $ours")"
}

# our_row LABEL LAUNCHER ARGUMENTS...: prints the row without newline, sets `ours`
our_row() {
  local label=$1 launcher=$2; shift 2
  local json
  # shellcheck disable=SC2086
  json=$(run $launcher "$build/fsdp" bench step --preset gpt2-124m --steps "$steps" --json "$@") || exit 1
  ours=$(field ms_min "$json")
  printf '%-30s %8.1f ms %5.1f %% of %7.1f ms %8.0f tokens/s %6d MiB' "$label" "$ours" \
    "$(field percent_of_speed_of_light "$json")" "$(field speed_of_light_ms "$json")" \
    "$(field tokens_per_s "$json")" "$(($(field rss_growth_bytes "$json") >> 20))"
}

echo "GPT-2 124M, 4 sequences: fastest step, % of the speed of light, memory; PyTorch; how much slower it is"
for seq in 64 256; do
  for dtype in f32 bf16; do
    for threads in 1 2; do
      [ "$threads" -le "$(nproc)" ] || continue
      our_row "$dtype T=$seq, $threads threads" "" \
        --batch 4 --seq $seq --dtype $dtype --threads $threads
      peer_row "$ours" python3 --batch 4 --seq $seq --dtype $dtype --threads $threads
    done
  done
done
command -v mpirun >/dev/null || { echo "rows on two ranks skipped: no mpirun"; exit 0; }
for dtype in f32 bf16; do
  for strategy in no_shard full_shard; do
    our_row "$dtype T=64, 2 ranks, $strategy" "$launch" \
      --batch 4 --seq 64 --dtype $dtype --threads 1 --strategy $strategy
    kind=--fsdp
    [ $strategy = no_shard ] && kind=--ddp
    peer_row "$ours" "torchrun --nproc-per-node 2" \
      --batch 2 --seq 64 --dtype $dtype --threads 1 $kind
  done
done

# peer_sharding LABEL FIRST_MS LAUNCHER ARGUMENTS...: a row below those of bench sharding, 4 x 64 tokens
peer_sharding() {
  local label=$1 first=$2 launcher=$3 json ms; shift 3
  # shellcheck disable=SC2086
  json=$($launcher "$script" --steps "$steps" --seq 64 --dtype f32 "$@" 2>/dev/null | grep ms_min)
  ms=$(field ms_min "$json")
  [ -n "$ms" ] || { echo "$label: failed"; return; }
  printf '%-20s%10.1f%11.0f%9.1f %%%12s%13.0f%14s\n' "$label" "$ms" "$(calculate %f "256000 / $ms")" \
    "$(calculate %f "100 * $first / $ms")" - "$(calculate %f "$(field peak_gib "$json") * 1024 - $imported")" -
}

echo
# shellcheck disable=SC2086
table=$(run $launch "$build/fsdp" bench sharding --batch 4 --seq 64 --threads 1 --steps "$steps") || exit 1
echo "$table"
if [ -z "$skipped" ]; then
  first=$(awk '/^one rank/ { print $3 }' <<<"$table")
  peer_sharding "PyTorch, one rank" "$first" python3 --batch 4 --threads 2
  peer_sharding "PyTorch DDP" "$first" "torchrun --nproc-per-node 2" --batch 2 --threads 1 --ddp
  peer_sharding "PyTorch FSDP2" "$first" "torchrun --nproc-per-node 2" --batch 2 --threads 1 --fsdp
  echo "(PyTorch: growth of RSS instead of the ledger's peak; gloo)"
fi
if [ "$(nproc)" -ge 4 ]; then  # the hybrid strategies need two groups of two
  run $launch4 "$build/fsdp" bench sharding --batch 4 --seq 64 --threads 1 --steps "$steps" || exit 1
else
  echo "hybrid strategies skipped: four ranks need 4 cores, this machine has $(nproc)"
fi
run "$build/fsdp" bench sharding --local-ranks 1 --threads 1 --steps "$steps" --vary recompute --seq 256
