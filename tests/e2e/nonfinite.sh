#!/usr/bin/env bash
# A validation loss that is not finite: a warning at once, the status of a run that gave up at the end, with model and
# checkpoint saved, unless a key allows it; fsdp eval says so too. The first lines of a run name the dtype of its masters.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
# The one update throws the model out of range, behind the last loss of a step.
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: 1, lr: 1.0e+39, batch: 2}
checkpoint: {every: 1}
YAML
# train STATUS LOG options...
train() {
  local expected=$1 log=$2 status
  shift 2
  "$@" --config config.yaml --set runtime.run_dir=run >"$log" 2>&1 </dev/null
  status=$?
  [ "$status" = "$expected" ] || { fail "$log: status $status instead of $expected"; cat "$log"; }
}
train 76 first.log "$FSDP" train --local-ranks 2
grep -q '^warning: step 1: the validation loss is nan$' first.log || { fail "first: no warning"; cat first.log; }
[ "$(grep -cE '^fsdp: .*step 1: the validation loss is nan \(train.allow_nonfinite_validation\)' first.log)" = 1 ] ||
  { fail "first: no error, or more than one"; cat first.log; }
grep -q '1 thread each, f32, master weights in f32$' first.log || { fail "first: no dtype of the masters"; cat first.log; }
[ -s run/model/model.safetensors ] && [ -d run/checkpoints/step-1 ] || fail "first: no model or no checkpoint"
tr -d ' \n' <run/metrics.json | grep -q '"ended":{"status":76,"reason":"step1:thevalidationlossisnan' ||
  { fail "first: metrics.json says otherwise"; grep -A4 ended run/metrics.json; }
# Started again it has nothing left to do, but it has not ended well either.
train 76 again.log "$FSDP" train --local-ranks 2 --resume auto
train 0 allowed.log "$FSDP" train --local-ranks 2 --resume auto --set train.allow_nonfinite_validation=true
rm -r run
# So it is without a checkpoint.
train 76 bare.log "$FSDP" train --set checkpoint.every=0
[ ! -e run/checkpoints/step-1 ] || fail "bare: a checkpoint"
train 76 again.log "$FSDP" train --resume auto --set checkpoint.every=0
grep -q '^fsdp: .*step 1: the validation loss is nan (train.allow_nonfinite_validation)' again.log || { fail "again: no error"; cat again.log; }
train 0 allowed.log "$FSDP" train --resume auto --set checkpoint.every=0 train.allow_nonfinite_validation=true
rm -r run
train 0 new.log "$FSDP" train --set train.allow_nonfinite_validation=true train.dtype=bf16 train.master_dtype=bf16
grep -q '^warning: step 1: the validation loss is nan$' new.log || fail "new: no warning"
grep -q ', bf16, master weights in bf16$' new.log || { fail "new: no dtype of the masters"; cat new.log; }

"$FSDP" eval run/model --data text.txt --json >eval.out 2>eval.err
[ $? = 76 ] || { fail "eval: another status than 76"; cat eval.err; }
grep -qE '^fsdp: run/model: the loss is not finite \(nan\) in f32' eval.err || { fail "eval: no line"; cat eval.err; }
[ ! -s eval.out ] || fail "eval: figures all the same"
[ "$failed" = 0 ] && echo "a validation loss that is not finite is said"
exit "$failed"
