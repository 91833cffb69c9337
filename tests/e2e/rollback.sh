#!/usr/bin/env bash
# A text with a stretch that makes gradients jump. A run that rolls itself back to its checkpoint leaves
# the stretch out: its weights are those of a run on the text without the stretch, also when the run
# is killed and goes on, and steps of the run can be computed again. Spikes are skipped, or end the run. A
# loss that is never finite ends the run after train.max_rollbacks.
# Environment: FSDP the program.
source "$(dirname "$0")/../support/e2e.sh"

row() { printf '%-31.31s\n' "$1"; }
usual() { for i in {1..240}; do row "row $((i % 7)) of the usual kind"; done; }
# Rows of 32 bytes, 4 in a batch: the stretch is the batches of steps 61 to 63.
{ usual; for i in {1..12}; do row "ZQ#@!$i%^&*XJ<>?|{}~QZWVKP+=;:'"; done; usual; } >odd.txt
{ usual; usual; } >even.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 32, layers: 2, heads: 2}
data: {train: odd.txt, tokenizer: bytes, sequence_length: 32, shuffle: false, document_separator: false}
train:
  {steps: 90, batch: 4, log_every: 1, lr: 0.01, schedule: {kind: constant}, save: false,
   spike: {factor: 20, window: 20, action: rollback}}
checkpoint: {every: 15, keep: 0}
runtime: {monitor_s: 0}
YAML
train() { "$FSDP" train --config config.yaml --local-ranks 2 "$@"; }
good() {  # NAME options...
  local name=$1; shift
  train --set runtime.run_dir="$name" "$@" >"$name.log" 2>&1 || { fail "$name: status $?"; cat "$name.log"; }
}
same() {  # RUN OTHER
  for key in weights_hash optimizer_hash samples true_tokens; do
    [ -n "$(summary "$2" $key)" ] && [ "$(summary "$1" $key)" = "$(summary "$2" $key)" ] || fail "$1: another $key than $2"
  done
  diff <(lines "$1") <(lines "$2") >/dev/null || fail "$1: other lines in metrics.jsonl than $2"
}
good even data.train=even.txt
[ "$(summary even rollbacks)" = 0 ] || fail "even: a rollback"

for async in false true; do
  good "odd_$async" checkpoint.async=$async
  same "odd_$async" even
  [ "$(summary "odd_$async" restarts)" = 0 ] || fail "odd_$async: a rollback is no restart"
  [ "$(summary "odd_$async" rollbacks)" = 3 ] || fail "odd_$async: $(summary "odd_$async" rollbacks) rollbacks"
  [ "$(tr -d '\n ' <"odd_$async/metrics.json" | grep -o '"left_out_batches":[^"]*')" = '"left_out_batches":[[60,63]],' ] ||
    fail "odd_$async: other batches are left out"
done
grep -qE '^warning: step 61: gradient norm [0-9.]+: above [0-9.]+, 20 times the median of 20 steps \(train.spike\): rolled back$' odd_false.log ||
  { fail "odd: no line that says why"; cat odd_false.log; }
grep -q '^note: batches 61 to 63 of the training data (samples 241 to 252) are left out, by a rollback$' odd_false.log ||
  { fail "odd: no line that says what is left out"; cat odd_false.log; }
"$FSDP" replay odd_false --step 61 --local-ranks 2 >replay.log 2>&1 || { fail "replay: status $?"; cat replay.log; }
grep -q 'weights and optimizer state: equal' replay.log || { fail "replay: not equal"; cat replay.log; }

# Stopped after the stretch, and killed while the run is rolled back.
good parts train.steps=75
good parts train.steps=90 --resume auto
same parts even
train --set runtime.run_dir=killed >killed.log 2>&1 &
pid=$!
for _ in {1..500}; do grep -q 'rolled back' killed.log && break; sleep 0.005; done
kill -9 $pid
wait $pid 2>/dev/null
good killed --resume auto
same killed even

# Skipped: three steps without an update. Stopped: the weights before the stretch.
good skipped train.spike.action=skip
[ "$(summary skipped spikes)" = 3 ] && [ "$(summary skipped skipped_steps)" = 3 ] || fail "skipped: $(summary skipped spikes) spikes"
train --set runtime.run_dir=stopped train.spike.action=stop >stopped.log 2>&1
[ $? = 76 ] || fail "stopped: another status than 76"
grep -qE '^fsdp: step 61: gradient norm .* \(train.spike\); the last checkpoint is stopped/checkpoints/step-60$' stopped.log ||
  { fail "stopped: no line that says why"; cat stopped.log; }
train --set runtime.run_dir=nan train.lr=1e30 train.clip_norm=0 train.spike.factor=0 train.spike.action=stop \
  train.spike.window=128 train.on_nonfinite=rollback train.max_rollbacks=2 >nan.log 2>&1
[ $? = 76 ] || fail "nan: another status than 76"
[ "$(grep -c 'not finite.*: rolled back$' nan.log)" = 2 ] && grep -q '^fsdp: .*, after 2 rollbacks (train.max_rollbacks)' nan.log ||
  { fail "nan: not after two rollbacks"; cat nan.log; }
train --set runtime.run_dir=none checkpoint.every=0 checkpoint.keep=3 >none.log 2>&1 && fail "none: a rollback without checkpoints"
grep -q 'no effect without checkpoint.every (--set checkpoint.every=0), and left out: train.spike.action: rollback' none.log || { fail "none: no line that says why"; cat none.log; }
[ "$failed" = 0 ] && echo "rollback: what is left out leaves no trace"
exit "$failed"
