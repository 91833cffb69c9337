#!/usr/bin/env bash
# fsdp replay: a healthy run is found equal, to the bit on its own number of ranks and up to rounding
# on another; a changed metric and an exchanged checkpoint are named, with step and unit.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 3, heads: 2}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: 25, batch: 4, log_every: 1, eval_every: 10, dtype: bf16, stochastic_rounding: true, save: false}
checkpoint: {every: 10, keep: 0}
YAML
train() { "$FSDP" train --config config.yaml --local-ranks 2 --set "$@" >train.log 2>&1 || { fail "train"; cat train.log; }; }
train runtime.run_dir=run
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
replays last 0 '^5 logged steps: equal$' run --step 25 --local-ranks 2
replays other_ranks 0 'compared to 0.0001: 3 ranks instead of 2' f32 --step 12 --local-ranks 3
replays fixed_order 0 'step-20: weights and optimizer state: equal' fixed --step 12 --local-ranks 3
grep -q '^steps 11 to 20, compared to the bit$' fixed_order.log || fail "fixed_order: not to the bit"
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
# Another run's checkpoint in place of this one's.
cp -r run exchanged
rm -r exchanged/checkpoints/step-20
cp -r other/checkpoints/step-20 exchanged/checkpoints/
replays exchanged 1 'step-20: unit root is the first that differs: value of ' exchanged --step 15 --local-ranks 2
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
