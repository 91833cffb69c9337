#!/usr/bin/env bash
# fsdp verify on an emulated GPU: models and training runs of PyTorch through the whole CUDA backend,
# on ranks that share the GPU; and that a run sees this GPU. Environment: FSDP_EMULATED the program,
# SOURCE the repository.
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

for dtype in f32 bf16; do
  verify "$fixtures/models/llama_gqa_llama3" --dtype $dtype --local-ranks 2
  verify "$fixtures/models/mistral_documents" --dtype $dtype --local-ranks 2
done
verify "$fixtures/models/gpt2" --dtype bf16 --local-ranks 2
verify "$fixtures/models/gpt2" --trajectory --local-ranks 2  # in f32, the single pass too
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

# A GPU for which the program has no code (cudaErrorNoKernelImageForDevice), on ranks that all say the same.
for backend in auto cuda; do
  said=$(CUDA_EMULATOR_KERNEL_CODE=209 "$FSDP_EMULATED" verify "$fixtures/models/gpt2" --threads 1 --local-ranks 2 \
    --share-gpus --backend $backend 2>&1)
  status=$?
  if [ $status != 78 ] || [ "$(grep -c "^fsdp: .*runtime.backend: $backend, but .* has a GPU that this program cannot use: \
GPU 0 (emulated GPU) has .*; make CUDA=1 CUDA_ARCH=90a builds code for it; --backend cpu computes without it\$" <<<"$said")" != 1 ]; then
    printf 'FAILED: no code for the GPU, --backend %s: status %s\n%s\n' $backend $status "$said"
    failed=1
  fi
done

said=$(CUDA_EMULATOR_KERNEL_CODE=209 "$FSDP_EMULATED" doctor 2>&1)
grep -q 'GPUs .*none: GPU 0 (emulated GPU) has .*CUDA_ARCH=90a' <<<"$said" ||
  { printf 'FAILED: doctor, no code for the GPU\n%s\n' "$said"; failed=1; }

# A run on the emulated GPU sees what its NVML says (tests/cuda_emulator/nvml.cpp).
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
head -50 "$SOURCE/tools/data/chess/train.jsonl" >"$scratch/train.jsonl"
if ! (cd "$scratch" && "$FSDP_EMULATED" train --data train.jsonl --steps 2 --batch 2 --local-ranks 2 --backend cuda \
  --share-gpus --set runtime.run_dir=run model.model_type=gpt2 model.hidden_size=16 model.layers=1 model.heads=2 \
  data.sequence_length=16) >"$scratch/log" 2>&1 ||
  ! grep -q '^rank 1 on .*: emulated GPU, 2.0 of 8.0 GiB in use, 75 % busy$' "$scratch/log" ||
  ! grep -qE 'Z(,[0-9.]+){5},75.0,[0-9.]+,[0-9.]+,2048.0,8192.0,,1.9,1.0$' "$scratch/run/monitor.rank1.csv" ||
  ! grep -q '"avg_gpu_util_%": 75.0' "$scratch/run/metrics.json" ||
  ! grep -q '"gpu": "emulated GPU"' "$scratch/run/run_args.json"; then
  printf 'FAILED: fsdp_emulated train does not see its GPU\n%s\n' "$(cat "$scratch/log" "$scratch/run/monitor.rank1.csv")"
  failed=1
fi

echo "verify: $runs runs"
exit "$failed"
