#!/usr/bin/env bash
# fsdp verify on models whose logits, gradients and training another implementation computed:
# f64 and f32, 1 to 3 ranks, both strategies, threads and processes. Then: a spoiled reference must
# fail, and mistakes must end in one clear line.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
# Requirements: S1.2, S2.4.
set -uo pipefail
source "$SOURCE/tests/support/known_models.sh"
fixtures=$SOURCE/tests/fixtures/models
shared=$SOURCE/../shared/fixtures/models
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
runs=0

# expect STATUS 'part of the output' COMMAND...: leaves the whole in $output
expect() {
  local wanted=$1 part=$2 status=0
  shift 2
  output=$("$@" 2>&1) || status=$?
  runs=$((runs + 1))
  if [ "$status" != "$wanted" ] || ! grep -qF -- "$part" <<<"$output"; then
    printf 'FAILED: %s\n  expected status %s and "%s", got status %s:\n%s\n' \
      "$*" "$wanted" "$part" "$status" "$output"
    failed=1
  fi
}

# trajectory FOLDER: the flag, where the folder holds a training run (here: two; in ../shared: all)
trajectory() { [ -f "$1/trajectory.safetensors" ] && echo --trajectory; }

# present FOLDER NAMES...: fewer reference models than these would be no success
present() {
  local folder=$1 name
  shift
  for name; do
    [ -f "$folder/$name/reference.safetensors" ] && continue
    echo "FAILED: $folder/$name: no reference model"
    failed=1
  done
}
here="bloom_padded gpt2 gpt2_5heads llama_gqa_llama3 llama_linear_tied lora_gpt2 mistral_window4
  neox_parallel qwen2_tied"
# shellcheck disable=SC2086
present "$fixtures" $here {gpt2,llama,mistral}_documents
# shellcheck disable=SC2086
[ ! -d "$shared" ] ||
  present "$shared" $here bloom_6heads llama_mha llama_theta1e6 lora_llama neox_sequential

# ---- every case, dtype, strategy and number of ranks ---------------------------------------------
# verified FOLDER DTYPE STRATEGY RANKS
verified() {
  expect 0 "within all limits" "$FSDP" verify "$1" $(trajectory "$1") --dtype "$2" --strategy "$3" \
    --local-ranks "$4" --threads 1
}
for folder in "$fixtures"/*; do
  for strategy in full_shard no_shard; do
    for ranks in 1 2 3; do verified "$folder" f64 $strategy $ranks; done
  done
  # The arithmetic is another one, the sharding is not.
  verified "$folder" f32 full_shard 3
  verified "$folder" f32 no_shard 1
done
# bf16: logits twice as far off as PyTorch's (an adapter states none), the loss within 0.03.
# bf16 FOLDER
bf16() {
  expect 0 "within all limits" "$FSDP" verify "$1" --dtype bf16 --local-ranks 2 --threads 1
  awk '/^logits /{ logits = $3 } /^loss /{ loss = $3 } END { exit !(loss == "3.0e-02" && logits > 0) }' \
    <<<"$output" || [ -f "$1/adapter_config.json" ] ||
    { echo "FAILED: $1 in bf16 is not judged: $output"; failed=1; }
}
for folder in "$fixtures"/*; do bf16 "$folder"; done
if [ -n "${MPIRUN:-}" ]; then
  for folder in "$fixtures"/*; do
    expect 0 "within all limits" $MPIRUN -n 2 "$FSDP" verify "$folder" $(trajectory "$folder") --dtype f64
  done
  expect 0 "within all limits" $MPIRUN -n 3 "$FSDP" verify "$fixtures/gpt2" --trajectory \
    --strategy no_shard
else
  echo "[SKIP] verify under mpirun: no MPI"
fi
if [ -d "$shared" ]; then
  mapfile -t known < <(known_models "$shared")
  for folder in "${known[@]}"; do
    [ -d "$fixtures/$(basename "$folder")" ] || bf16 "$folder"
    [ -f "$fixtures/$(basename "$folder")/trajectory.safetensors" ] && continue
    for dtype in f64 f32; do
      for ranks in 1 2 3; do
        expect 0 "within all limits" "$FSDP" verify "$folder" --trajectory --dtype $dtype \
          --local-ranks $ranks --threads 1
      done
    done
    expect 0 "within all limits" "$FSDP" verify "$folder" --trajectory --strategy no_shard \
      --local-ranks 2
  done
else
  echo "[SKIP] verify on further reference models: ../shared/fixtures/models is not there"
fi

# ---- what must fail ------------------------------------------------------------------------------
# spoil NAME FILE TENSOR FACTOR: a copy of the gpt2 case with one element of a tensor changed
spoil() {
  cp -r "$fixtures/gpt2" "$scratch/$1"
  python3 - "$scratch/$1/$2" "$3" "$4" <<'PY'
import json, struct, sys
path, name, factor = sys.argv[1], sys.argv[2], float(sys.argv[3])
data = bytearray(open(path, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
entry = json.loads(data[8:8 + size])[name]
assert entry["dtype"] == "F64"
begin, end = (8 + size + offset for offset in entry["data_offsets"])
values = list(struct.unpack(f"<{(end - begin) // 8}d", data[begin:end]))
largest = max(range(len(values)), key=lambda i: abs(values[i]))
values[largest] *= factor
data[begin:end] = struct.pack(f"<{len(values)}d", *values)
open(path, "wb").write(data)
PY
}
if command -v python3 >/dev/null; then
  weight=transformer.h.1.mlp.c_fc.weight
  spoil gradient reference.safetensors grad.$weight 1.001
  expect 1 "ABOVE THE LIMIT  $weight" "$FSDP" verify "$scratch/gradient" --local-ranks 2
  expect 0 "within all limits" "$FSDP" verify "$scratch/gradient" --tolerance 0.01
  spoil logits reference.safetensors logits 1.001
  expect 1 "ABOVE A LIMIT" "$FSDP" verify "$scratch/logits" --local-ranks 3
  spoil nan reference.safetensors grad.$weight nan
  expect 1 "not finite" "$FSDP" verify "$scratch/nan"
  spoil final trajectory.safetensors final.transformer.wte.weight 1.01
  expect 1 "ABOVE THE LIMIT  transformer.wte.weight" "$FSDP" verify "$scratch/final" --trajectory
  expect 0 "within all limits" "$FSDP" verify "$scratch/final"
else
  echo "[SKIP] verify on spoiled references: no python3"
fi
expect 1 "ABOVE A LIMIT" "$FSDP" verify "$fixtures/gpt2" --tolerance 1e-30
cp -r "$fixtures/lora_gpt2" "$scratch/adapter"
sed -i 's/"lora_alpha": 8/"lora_alpha": 8.001/' "$scratch/adapter/adapter_config.json"
expect 1 "logits when merged" "$FSDP" verify "$scratch/adapter" --local-ranks 2
sed -i 's/"use_dora": false/"use_dora": true/' "$scratch/adapter/adapter_config.json"
expect 1 "use_dora: true is not supported" "$FSDP" verify "$scratch/adapter" --local-ranks 2
expect 0 '"passed": true' "$FSDP" verify "$fixtures/gpt2" --json --trajectory

# ---- mistakes: one line, the same status on every rank -------------------------------------------
expect 1 "no such folder" "$FSDP" verify "$scratch/nowhere" --local-ranks 2
expect 2 "--dtype" "$FSDP" verify "$fixtures/gpt2" --dtype f8
cp -r "$fixtures/gpt2" "$scratch/incomplete"
rm "$scratch/incomplete/reference.safetensors"
expect 1 "incomplete/reference.safetensors" "$FSDP" verify "$scratch/incomplete" --local-ranks 2
cp -r "$fixtures/gpt2" "$scratch/mixed"
cp "$fixtures/gpt2_5heads/reference.safetensors" "$scratch/mixed/"
expect 1 'tensor "logits": expected (' "$FSDP" verify "$scratch/mixed" --local-ranks 3
cp -r "$fixtures/gpt2" "$scratch/weights"
cp "$fixtures/llama_linear_tied/model.safetensors" "$scratch/weights/"
expect 1 "missing: transformer.wte.weight" "$FSDP" verify "$scratch/weights" --local-ranks 2
if [ -n "${MPIRUN:-}" ]; then
  expect 1 "incomplete/reference.safetensors" $MPIRUN -n 2 "$FSDP" verify "$scratch/incomplete"
fi

echo "verify_models: $runs runs"
exit "$failed"
