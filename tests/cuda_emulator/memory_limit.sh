#!/usr/bin/env bash
# runtime.memory_limit on an emulated GPU of 2 GiB: what the device has, what was given, and the host's
# memory for what is offloaded.
# Environment: FSDP_EMULATED the program, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 32, layers: 3, heads: 4}
data: {train: text.txt, sequence_length: 16}
train: {steps: 2, batch: 4}
runtime: {share_gpus: true, threads: 1, backend: cuda, run_dir: run}
YAML
# refused 'what is said' options...
refused() {
  local expected=$1; shift
  "$FSDP_EMULATED" train --config config.yaml "$@" >log 2>&1
  [ $? = 12 ] && grep -qE "^fsdp: $expected" log || fail "train $*: $(cat log)"
  [ ! -e run ] || fail "a refused run has left a directory"
}

refused 'this run needs [0-9.]+ GiB per rank, the limit is [0-9.]+ GiB \([0-9.]+ GiB of free memory of emulated GPU\)$' \
  --set model.hidden_size=2048 --set model.layers=8
grep -q '^  fits with --set ' log || fail "no change that makes it fit: $(cat log)"
# Two ranks share the device.
refused 'this run needs .*, the limit is .* \([0-9.]+ GiB of free memory of emulated GPU for 2 ranks\)$' \
  --local-ranks 2 --set fsdp.strategy=no_shard --set model.hidden_size=1024 --set model.layers=6
refused 'this run needs .*, the limit is .* \(runtime.memory_limit\)$' --memory-limit 20MB
# Not under AddressSanitizer, which reserves terabytes of addresses.
limited() { ulimit -v 2500000; "$@"; }
if (limited "$FSDP_EMULATED" --version) >/dev/null 2>&1; then
  (
    limited refused "what this run offloads needs [0-9.]+ GiB of the host's memory per rank, the limit is .* of ulimit -v, less .*" \
      --set model.hidden_size=1024 --set model.layers=14 --set fsdp.offload=all --set train.recompute.mode=full
    exit "$failed"
  ) || failed=1
fi
# A size above what there is does not lift the limit of the device.
refused 'this run needs .*, the limit is [0-9.]+ GiB \(.* of free memory of emulated GPU\)$' \
  --set model.hidden_size=2048 --set model.layers=8 --memory-limit 80GiB
"$FSDP_EMULATED" train --config config.yaml >log 2>&1 || fail "a run that fits: $(cat log)"

# A mistake in the configuration is told as one, also where it would say how GPUs are shared.
"$FSDP_EMULATED" train --config config.yaml --local-ranks 2 --set train.lr=-1 runtime.run_dir=mistake >log 2>&1
[ $? = 78 ] && grep -q '^fsdp: .*train.lr: expected at least 0, got -1' log || fail "a mistake on two ranks: $(cat log)"

# What NCCL takes is measured: when its communicators are made, and once a step has connected them.
on_nccl=(--local-ranks 2 --gpu-transport nccl --config config.yaml)
CUDA_EMULATOR_NCCL_MIB=8 "$FSDP_EMULATED" train "${on_nccl[@]}" --set runtime.run_dir=nccl >log 2>&1 || fail "over NCCL: $(cat log)"
grep -qE "^GPU memory: at least 2.00 GiB free on each rank's GPU before NCCL's communicators, which took at most [0-9.]+ MiB of a GPU$" log ||
  fail "nothing is said of the communicators: $(cat log)"
grep -qE "^GPU memory: NCCL and the libraries of kernels hold at most [0-9.]+ MiB of a GPU after the first step; 800.00 MiB were assumed$" log ||
  fail "nothing is said of what a step has connected: $(cat log)"
took() { sed -nE "s/^GPU memory: .*($1) at most ([0-9]+)\\.[0-9]+ MiB.*/\\2/p" log; }
# 7 communicators of each rank, whose GPU is the same; 5 of them have collectives in a step.
[ "$(took took)" = 112 ] && [ "$(took hold)" = 192 ] || fail "$(took took) and $(took hold) MiB"
CUDA_EMULATOR_NCCL_MIB=120 "$FSDP_EMULATED" train "${on_nccl[@]}" --set runtime.run_dir=full model.hidden_size=608 >log 2>&1
[ $? = 12 ] && grep -qE "^fsdp: this run needs [0-9.]+ MiB per rank, but NCCL's communicators have left [0-9.]+ MiB of its GPU" log ||
  fail "a run that NCCL leaves no room: $(cat log)"
CUDA_EMULATOR_NCCL_MIB=900 "$FSDP_EMULATED" train "${on_nccl[@]}" --set runtime.run_dir=none >log 2>&1
[ $? = 1 ] && grep -qE "^fsdp: .*\[nccl\] .*: Failed to CUDA calloc [0-9]+ bytes; where the GPU has too little free memory .*, runtime.gpu_transport: host does without NCCL$" log ||
  fail "communicators that find no memory: $(cat log)"
exit "$failed"
