#!/usr/bin/env bash
# fsdp verify on an emulated GPU: models and training runs of PyTorch through the whole CUDA backend,
# on ranks that share the GPU. Environment: FSDP_EMULATED the program, SOURCE the repository.
set -uo pipefail
fixtures=$SOURCE/tests/fixtures
failed=0
runs=0

verify() {
  local output
  runs=$((runs + 1))
  if ! output=$("$FSDP_EMULATED" verify "$@" --backend cuda --share-gpus --threads 1 2>&1) ||
    ! grep -qF "within all limits" <<<"$output"; then
    printf 'FAILED: fsdp_emulated verify %s\n%s\n' "$*" "$output"
    failed=1
  fi
}

for model in gpt2 llama_gqa_llama3; do
  for dtype in f32 bf16; do
    verify "$fixtures/models/$model" --dtype $dtype --local-ranks 2
  done
done
verify "$fixtures/models/gpt2" --trajectory --local-ranks 2
verify "$fixtures/fsdp/gpt2_fp32_w2" --local-ranks 2

# With TF32 the same run is above the limits of f32; on a CPU there is none.
refused() {
  local reason=$1 output; shift
  if output=$("$FSDP_EMULATED" verify "$fixtures/models/gpt2" --tf32 --threads 1 "$@" 2>&1) ||
    ! grep -qF "$reason" <<<"$output"; then
    printf 'FAILED: fsdp_emulated verify --tf32 %s: expected "%s"\n%s\n' "$*" "$reason" "$output"
    failed=1
  fi
}
refused "ABOVE" --backend cuda
refused "runtime.tf32: only for GPUs, but the CPU computes" --backend cpu
refused "runtime.tf32: rounds products of f32, but the computation is in bf16" --backend cuda --dtype bf16

echo "verify: $runs runs"
exit "$failed"
