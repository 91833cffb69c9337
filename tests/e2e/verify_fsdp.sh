#!/usr/bin/env bash
# fsdp verify on training runs of PyTorch's FSDP2: the same losses, gradient norms and final
# parameters, scales and skipped steps.
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

# Runs whose result does not depend on the number of ranks, on any number.
for folder in "$fixtures"/*_fp32_w[0-9]; do
  for strategy in full_shard no_shard; do
    for ranks in 1 2 3 4; do
      expect 0 "within all limits" "$FSDP" verify "$folder" --strategy $strategy \
        --local-ranks $ranks --threads 1
    done
  done
  expect 0 "within all limits" "$FSDP" verify "$folder" --dtype f64 --local-ranks 2 --threads 1
done
expect 0 "within all limits" "$FSDP" verify "$fixtures/gpt2_fp32_w2" --strategy hybrid_shard \
  --shard-size 2 --local-ranks 4 --threads 1

# Every run on its own number of ranks, with the variants that are other strategies here.
for folder in "$fixtures"/*_w[0-9]; do
  expect 0 "within all limits" "$FSDP" verify "$folder" --local-ranks "${folder: -1}" --threads 1
  if [ -n "${MPIRUN:-}" ]; then
    expect 0 "within all limits" $MPIRUN -n "${folder: -1}" "$FSDP" verify "$folder"
  fi
done
[ -n "${MPIRUN:-}" ] || echo "[SKIP] verify under mpirun: no MPI"
expect 1 "needs 4 ranks, these are 2" "$FSDP" verify "$fixtures/gpt2_accum3_hybrid_w4" \
  --local-ranks 2
expect 1 "needs the number of ranks of a shard group" "$FSDP" verify "$fixtures/gpt2_fp32_w2" \
  --strategy hybrid_shard --local-ranks 4

if [ -d "$shared" ]; then
  for folder in "$shared"/*_w[0-9]; do
    [ -d "$fixtures/$(basename "$folder")" ] && continue
    expect 0 "within all limits" "$FSDP" verify "$folder" --local-ranks "${folder: -1}" --threads 1
  done
else
  echo "[SKIP] verify on further FSDP2 runs: ../shared/fixtures/fsdp is not there"
fi

echo "verify_fsdp: $runs runs"
exit "$failed"
