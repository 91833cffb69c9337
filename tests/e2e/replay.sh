#!/usr/bin/env bash
# fsdp replay: a healthy run is found equal, to the bit on its own number of ranks and up to rounding
# on another; a changed metric and an exchanged checkpoint are named, with step and unit; of one bit that
# flipped in the middle of a run the unit is named in which it did.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 3, heads: 2}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: 25, batch: 4, log_every: 1, eval_every: 10, dtype: bf16, stochastic_rounding: true, save: false}
checkpoint: {every: 10, keep: 0, unit_hashes: true}
YAML
train() { "$FSDP" train --config config.yaml --local-ranks 2 --set "$@" >train.log 2>&1 || { fail "train"; cat train.log; }; }
train runtime.run_dir=run checkpoint.verify=false
train runtime.run_dir=f32 train.dtype=f32 train.stochastic_rounding=false
train runtime.run_dir=other train.seed=9
train runtime.run_dir=fixed fsdp.fixed_order=true train.rows_per_pass=1 model.dropout=0.1

# replays NAME STATUS 'regular expression' RUN arguments...
replays() {
  local name=$1 expected=$2 line=$3 run=$4; shift 4
  "${launcher[@]}" "$FSDP" replay "$run" "$@" >"$name.log" 2>&1
  local status=$?
  [ "$status" = "$expected" ] || { fail "$name: status $status instead of $expected"; cat "$name.log"; }
  grep -qE -e "$line" "$name.log" || { fail "$name: no line '$line'"; cat "$name.log"; }
}
launcher=(env)
find run -type f -exec sha256sum {} + | sort >before
replays healthy 0 'step-20: weights and optimizer state: equal' run --step 15 --local-ranks 2
grep -q '^steps 11 to 20, compared to the bit$' healthy.log || fail "healthy: other steps"
grep -q '^10 logged steps: equal$' healthy.log || fail "healthy: steps that are not compared"
hashed='^10 steps: hashes of the weights and gradients of 5 units: equal$'
grep -q "$hashed" healthy.log || fail "healthy: hashes that are not compared"
replays last 0 '^5 logged steps: equal$' run --step 25 --local-ranks 2
replays other_ranks 0 'compared to 0.0001: 3 ranks instead of 2' f32 --step 12 --local-ranks 3
replays fixed_order 0 'step-20: weights and optimizer state: equal' fixed --step 12 --local-ranks 3
grep -q '^steps 11 to 20, compared to the bit$' fixed_order.log || fail "fixed_order: not to the bit"
grep -q "$hashed" fixed_order.log || fail "fixed_order: hashes that are not compared"
find run -type f -exec sha256sum {} + | sort | cmp -s - before || fail "a replay wrote into the run directory"
if [ -n "${MPIRUN:-}" ]; then
  launcher=($MPIRUN -n 2)
  replays processes 0 'step-20: weights and optimizer state: equal' run --step 15
  launcher=(env)
else
  echo "[SKIP] replay under mpirun: no MPI"
fi

# A run that went on with more steps, on another number of ranks: the steps before, between and after
# its checkpoints.
train runtime.run_dir=longer
"$FSDP" train --resume longer --local-ranks 3 --set train.steps=36 >train.log 2>&1 || { fail "longer"; cat train.log; }
replays longer_first 0 'step-20: weights and optimizer state: equal' longer --step 15 --local-ranks 2
replays longer_next 0 'step-30: weights and optimizer state: equal' longer --step 29 --local-ranks 3
replays longer_last 0 'step-36: weights and optimizer state: equal' longer --step 36 --local-ranks 3
rm -r longer/checkpoints/step-36
replays longer_open 0 '^3 logged steps: equal$' longer --step 33 --local-ranks 3

# A metric that was changed in its last digit.
cp -r run metric
loss=$(grep '^{"step":13,"loss"' metric/metrics.jsonl | grep -oE '"loss":[^,]*' | cut -d: -f2)
last=${loss: -1}
sed -i "/^{\"step\":13,\"loss\"/s/\"loss\":$loss/\"loss\":${loss%?}$(((last + 1) % 10))/" metric/metrics.jsonl
cmp -s run/metrics.jsonl metric/metrics.jsonl && fail "metric: nothing was changed"
replays metric 1 '^step 13 is the first that differs: loss .* recorded, .* computed' metric --step 15 --local-ranks 2
grep -q '^the hashes of its units are equal$' metric.log || fail "metric: the log alone was changed"
# Another run's checkpoint in place of this one's.
cp -r run exchanged
rm -r exchanged/checkpoints/step-20
cp -r other/checkpoints/step-20 exchanged/checkpoints/
replays exchanged 1 'step-20: unit embedding is the first that differs: value of ' exchanged --step 15 --local-ranks 2
grep -q 'the difference began in the optimizer.s update of this step, or in the checkpoint$' exchanged.log || fail "exchanged: steps before it"

# flip CHECKPOINT TENSOR: the highest bit of the fraction of an element.
flip() {
  local shard head begin place byte
  for shard in "$1"/shard-*.safetensors; do
    head=$(od -An -tu8 -N8 "$shard" | tr -d ' ')
    begin=$(tail -c +9 "$shard" | head -c "$head" | sed -n "s|.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*|\1|p")
    [ -n "$begin" ] || continue
    place=$((8 + head + begin + 2))
    byte=$(od -An -tu1 -j "$place" -N1 "$shard" | tr -d ' ')
    printf "\\x$(printf %x $((byte ^ 64)))" | dd of="$shard" bs=1 seek="$place" conv=notrunc status=none
    return
  done
  fail "$1 has no $2"
}
# Weights that a checkpoint had otherwise when the run went on from it.
cp -r run weights
flip weights/checkpoints/step-10 model.layers.1.mlp.up_proj.weight
replays weights 1 '^the difference began in unit blocks.1: weights differ before step 11; the replay began with these weights' weights --step 15 --local-ranks 2
# A bit of the optimizer's state that flips while the run goes on: all units differ before it ends.
cp -r run state
cp -r state/checkpoints/step-10 sound
rm -r state/checkpoints/step-2? state/metrics.json
flip state/checkpoints/step-10 model.layers.1.mlp.up_proj.weight/exp_avg
"$FSDP" train --resume state --local-ranks 2 >train.log 2>&1 || { fail "state"; cat train.log; }
rm -r state/checkpoints/step-10
mv sound state/checkpoints/step-10
replays state 1 '^the difference began in unit blocks.1: weights differ before step 12; the gradients of step 11 are equal' state --step 15 --local-ranks 2
rm state/unit_hashes.bin
replays without 1 'step-20: unit embedding is the first that differs: value of ' state --step 15 --local-ranks 2
grep -q '^the difference began' without.log && fail "without: a unit without hashes"
# A flipped bit of a file.
cp -r run flipped
shard=$(ls flipped/checkpoints/step-20/*.safetensors | head -1)
size=$(stat -c %s "$shard")
printf '\xff' | dd of="$shard" bs=1 seek=$((size - 3)) conv=notrunc status=none
replays flipped 1 '^fsdp: .*step-20/shard-' flipped --step 15 --local-ranks 2
# Bad input.
replays early 1 '^fsdp: --step: expected 11 to 25, .*got 10' run --step 10
replays late 1 '^fsdp: --step: expected 11 to 25, .*got 26' run --step 26
mkdir empty
replays nothing 1 '^fsdp: empty: no run directory' empty --step 3
replays zero 2 '^fsdp: replay: --step: ' run --step 0

[ "$failed" = 0 ] && echo "replay: equal where it is equal, and the difference named where not"
exit "$failed"
