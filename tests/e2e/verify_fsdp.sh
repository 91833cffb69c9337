#!/usr/bin/env bash
# fsdp verify on training runs of PyTorch's FSDP2: the same losses, gradient norms and final
# parameters, whatever the number of ranks here. Options that this build lacks are refused by name.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
set -uo pipefail
fixtures=$SOURCE/tests/fixtures/fsdp
shared=$SOURCE/../shared/fixtures/fsdp
failed=0
runs=0

# expect STATUS 'part of the output' COMMAND...
expect() {
  local wanted=$1 part=$2 status=0 output
  shift 2
  output=$("$@" 2>&1) || status=$?
  runs=$((runs + 1))
  if [ "$status" != "$wanted" ] || ! grep -qF -- "$part" <<<"$output"; then
    printf 'FAILED: %s\n  expected status %s and "%s", got status %s:\n%s\n' \
      "$*" "$wanted" "$part" "$status" "$output"
    failed=1
  fi
}

for folder in "$fixtures"/*_w[0-9]; do
  for strategy in full_shard no_shard; do
    for ranks in 1 2 3 4; do
      expect 0 "within all limits" "$FSDP" verify "$folder" --strategy $strategy \
        --local-ranks $ranks --threads 1
    done
  done
  expect 0 "within all limits" "$FSDP" verify "$folder" --dtype f64 --local-ranks 2 --threads 1
  if [ -n "${MPIRUN:-}" ]; then
    expect 0 "within all limits" $MPIRUN -n "${folder: -1}" "$FSDP" verify "$folder"
  fi
done
[ -n "${MPIRUN:-}" ] || echo "[SKIP] verify under mpirun: no MPI"

if [ -d "$shared" ]; then
  for case in gpt2_fp32_w4 llama_fp32_w4 gpt2_ragged_w2 llama_ragged_w4 llama_ragged_empty_w2 \
      llama_clip_w2 gpt2_strategies_w4; do
    for ranks in 1 2 4; do
      expect 0 "within all limits" "$FSDP" verify "$shared/$case" --local-ranks $ranks --threads 1
    done
    expect 0 "within all limits" "$FSDP" verify "$shared/$case" --strategy no_shard \
      --local-ranks 2 --threads 1
  done
  expect 2 "run.accum = 3" "$FSDP" verify "$shared/gpt2_accum3_w2" --local-ranks 2
  expect 2 "run.freeze" "$FSDP" verify "$shared/llama_frozen_w2"
  expect 2 "run.skip" "$FSDP" verify "$shared/gpt2_unused_w2"
  expect 2 "run.param_dtype" "$FSDP" verify "$shared/gpt2_bf16_w2"
  expect 2 "run.param_dtype" "$FSDP" verify "$shared/gpt2_fp16_scaler_w2"
else
  echo "[SKIP] verify on further FSDP2 runs: ../shared/fixtures/fsdp is not there"
fi

echo "verify_fsdp: $runs runs"
exit "$failed"
