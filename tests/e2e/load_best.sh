#!/usr/bin/env bash
# checkpoint.load_best: the model that is saved is that of the best checkpoint; where that one is
# damaged, the model of the last step, with a warning.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S1.8.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: 6, batch: 4, lr: 1e-2, log_every: 1, eval_every: 2, schedule: {kind: constant}}
checkpoint: {every: 2, best: validation_loss, load_best: true}
YAML
train() { "$FSDP" train --local-ranks 2 "$@" >train.log 2>&1 || { fail "train $*: status $?"; cat train.log; }; }
# of_step RUN STEP: the saved model has the weights of that checkpoint
of_step() {
  rm -rf converted
  "$FSDP" convert "$1/checkpoints/step-$2" converted >convert.log 2>&1 || { fail "convert"; cat convert.log; }
  cmp -s "$1/model/model.safetensors" converted/model.safetensors
}
train --config config.yaml --set runtime.run_dir=run
grep -q '^the best checkpoint: step 6, ' train.log || { fail "run: another best"; cat train.log; }
of_step run 6 || fail "run: another model"
# Steps of a length that no model survives.
train --resume run --resume-with-changes --set train.lr=5 train.steps=10
grep -q '^the best checkpoint: step 6, ' train.log || { fail "worse: another best"; cat train.log; }
[ "$(summary run best_step)" = 6 ] || fail "worse: best_step $(summary run best_step)"
of_step run 6 || fail "worse: another model"
of_step run 10 && fail "worse: the last step has the same weights"

shard=$(ls run/checkpoints/step-6/*.safetensors | head -1)
printf '\xff' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 3)) conv=notrunc status=none
train --resume run --set train.steps=12
grep -q '^warning: checkpoint.load_best: .*run/checkpoints/step-6/.*; the model is that of the last step$' train.log ||
  { fail "damaged: no warning"; cat train.log; }
of_step run 12 || fail "damaged: another model"

[ "$failed" = 0 ] && echo "load_best: the best, or the last with a warning"
exit "$failed"
