#!/usr/bin/env bash
# fsdp verify on training runs of PyTorch's FSDP2: the same losses, gradient norms and final
# parameters, scales and skipped steps.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
set -uo pipefail
fixtures=$SOURCE/tests/fixtures/fsdp
shared=$SOURCE/../shared/fixtures/fsdp
failed=0
runs=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect STATUS 'part of the output' COMMAND...: leaves the whole in $output
expect() {
  local wanted=$1 part=$2 status=0
  shift 2
  output=$("$@" 2>&1) || status=$?
  runs=$((runs + 1))
  if [ "$status" != "$wanted" ] || ! grep -qF -- "$part" <<<"$output" ||
    { [ "$status" = 0 ] && grep -qF "not compared" <<<"$output"; }; then
    printf 'FAILED: %s\n  expected status %s and "%s", got status %s:\n%s\n' \
      "$*" "$wanted" "$part" "$status" "$output"
    failed=1
  fi
}

# within COMMAND...: no error above its limit, but those that the f64 run excuses, which are printed.
within() {
  expect 0 "within " "$@"
  grep -F "EXCUSED" <<<"$output" | sed "s|^|$(basename "$folder"): |"
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
  within "$FSDP" verify "$folder" --local-ranks "${folder: -1}" --threads 1
  if [ -n "${MPIRUN:-}" ]; then
    within $MPIRUN -n "${folder: -1}" "$FSDP" verify "$folder"
  fi
done
[ -n "${MPIRUN:-}" ] || echo "[SKIP] verify under mpirun: no MPI"
# Not all of a folder is status 2.
if [ -d "$shared/llama_ragged_w4" ]; then  # variant token runs on any number of ranks, the main run on 4
  expect 2 "INCOMPLETE" "$FSDP" verify "$shared/llama_ragged_w4" --local-ranks 2 --threads 1
fi
expect 1 "needs 4 ranks, these are 2" "$FSDP" verify "$fixtures/gpt2_accum3_hybrid_w4" \
  --local-ranks 2
expect 1 "needs the number of ranks of a shard group" "$FSDP" verify "$fixtures/gpt2_fp32_w2" \
  --strategy hybrid_shard --local-ranks 4

cp -r "$fixtures/llama_clip_w2" "$scratch/main"
sed -i '0,/"strategy": *"fsdp2_full"/s//"strategy": "fsdp9"/' "$scratch/main/reference.json"
expect 2 'main run: not compared: run.strategy = "fsdp9"' "$FSDP" verify "$scratch/main" --local-ranks 2

# A block left out of the first step is left out of the comparison of that step, too: the folder's
# first loss has it.
cp -r "$fixtures/gpt2_unused_w2" "$scratch/first"
sed -i -z 's/"skip": *{\([^]]*\)\[[^]]*\]/"skip": {\1[0]/' "$scratch/first/reference.json"
expect 1 "ABOVE A LIMIT" "$FSDP" verify "$scratch/first" --local-ranks 2 --threads 1
grep -q "^loss  .*ABOVE THE LIMIT" <<<"$output" ||
  { echo "FAILED: the first step does not leave a block out: $output"; failed=1; }

# A run that is off by two to three limits is not excused by the f64 run beside it, which is off as
# much. shift_case WHAT LIMITS [one]: a copy of a case whose loss, norm or tensors named so (one: an
# element of each) are moved.
shift_case() {
  rm -rf "$scratch/shifted"
  cp -r "$fixtures/gpt2_fp32_w2" "$scratch/shifted"
  python3 - "$scratch/shifted" "$@" <<'PY'
import json, struct, sys
folder, what, limits = sys.argv[1], sys.argv[2], float(sys.argv[3])
one = sys.argv[4:] == ["one"]
reference = json.load(open(folder + "/reference.json"))
tolerance = reference["tolerance"]
if what in ("loss", "grad_norm"):
    reference["trajectory"][what][7] *= 1 + limits * tolerance[what + "_relative"]
    json.dump(reference, open(folder + "/reference.json", "w"))
else:
    path = folder + "/final.safetensors"
    data = bytearray(open(path, "rb").read())
    size = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:8 + size]).items():
        if not name.endswith(what) or name == "__metadata__":
            continue
        assert entry["dtype"] == "F32"
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        shift = limits * tolerance["parameter_absolute"]
        data[begin:end] = struct.pack(f"<{len(values)}f", *(v + shift * (not one or i == 0) for i, v in enumerate(values)))
    open(path, "wb").write(data)
PY
}
if command -v python3 >/dev/null; then
  for limits in 2 -3; do
    # a loss, a norm, every parameter, one tensor, the smallest tensor
    for what in loss grad_norm weight h.1.mlp.c_fc.weight h.0.ln_1.bias; do
      shift_case $what $limits
      expect 1 "ABOVE THE LIMIT" "$FSDP" verify "$scratch/shifted" --local-ranks 2 --threads 1
    done
  done
  # A single element is excused up to four limits, by its true error.
  shift_case h.1.mlp.c_fc.weight 3 one
  expect 0 "9.0e-05   3.0e-05  EXCUSED: the f64 run is off by 9.0e-05" \
    "$FSDP" verify "$scratch/shifted" --local-ranks 2 --threads 1
  grep -qxF "within the limits, but for 1 excused by the f64 run" <<<"$output" ||
    { echo "FAILED: an excuse is not in the last line: $output"; failed=1; }
  shift_case h.1.mlp.c_fc.weight 5 one
  expect 1 "ABOVE THE LIMIT" "$FSDP" verify "$scratch/shifted" --local-ranks 2 --threads 1
else
  echo "[SKIP] verify on shifted references: no python3"
fi

if [ -d "$shared" ]; then
  for folder in "$shared"/*_w[0-9]; do
    # Some are among the fixtures already, not all of these with every file.
    [ "$(ls "$folder")" = "$(ls "$fixtures/$(basename "$folder")" 2>/dev/null)" ] && continue
    within "$FSDP" verify "$folder" --local-ranks "${folder: -1}" --threads 1
    [ -f "$folder/final_f64.safetensors" ] || continue
    expect 0 "within all limits" "$FSDP" verify "$folder" --dtype f64 --local-ranks 2 --threads 1
  done
else
  echo "[SKIP] verify on further FSDP2 runs: ../shared/fixtures/fsdp is not there"
fi

echo "verify_fsdp: $runs runs"
exit "$failed"
