#!/usr/bin/env bash
# A run that is killed or stopped goes on from its checkpoints: with the same bits on the same ranks,
# up to rounding on others, in its own run directory, and not with another configuration.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
# Requirements: S1.6, S2.10, S2.11, S4.14.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2, dropout: 0.1}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: 60, batch: 4, log_every: 1, eval_every: 20, schedule: {total: 60}}
checkpoint: {every: 20, keep: 2}
YAML

same_run() {  # RUN OTHER: both have done the same
  [ -n "$(lines "$2")" ] || fail "$2: no lines to compare"
  for key in weights_hash optimizer_hash steps true_tokens train_loss mean_train_loss validation_loss; do
    [ -n "$(summary "$2" $key)" ] && [ "$(summary "$1" $key)" = "$(summary "$2" $key)" ] || fail "$1: another $key than $2"
  done
  diff <(lines "$1") <(lines "$2") >/dev/null || fail "$1: other lines in metrics.jsonl than $2"
  cmp -s "$1/model/model.safetensors" "$2/model/model.safetensors" || fail "$1: another model than $2"
}
# killed RUN command...: starts a long run, kills all of it with -9 once it has a checkpoint at step 20
# and some lines behind it, and makes it one of 60 steps by what is given to resume.
killed() {
  local run=$1 pid; shift
  setsid "$@" --config config.yaml --set runtime.run_dir="$run" --set train.steps=100000000 \
    >"$run.log" 2>&1 </dev/null &
  pid=$!
  for _ in {1..300}; do [ -e "$run/checkpoints/step-20/checkpoint.json" ] && break; sleep 0.05; done
  kill -9 -- "-$pid"
  wait "$pid" 2>/dev/null
  [ -e "$run/checkpoints" ] || { fail "$run: no checkpoint"; cat "$run.log"; }
  # Runs of a few milliseconds a step go far: what is asked for is 60 steps.
  for step in "$run"/checkpoints/step-*; do
    [ "${step##*-}" -le 40 ] 2>/dev/null || rm -rf "$step"
  done
}

"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=whole --set train.steps=60 >whole.log 2>&1 ||
  { fail "the undisturbed run"; cat whole.log; }
[ "$(cd whole/checkpoints && echo step-*)" = "step-40 step-60" ] || fail "keep: $(ls whole/checkpoints)"
[ "$(summary whole resumed_from)" = 0 ] || fail "whole: resumed_from"

killed auto "$FSDP" train --local-ranks 2 --set checkpoint.keep=0
mkdir auto/model.77-0.tmp
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=auto --resume auto >auto.log 2>&1 ||
  { fail "--resume auto: status $?"; cat auto.log; }
grep -q '^resumed from auto/checkpoints/step-[24]0: step [24]0$' auto.log || fail "auto: no line about it"
same_run auto whole
[ "$(summary auto resumed_from)" -ge 20 ] || fail "auto: resumed_from"
[ ! -e auto/model.77-0.tmp ] || fail "auto: a temporary folder of the killed run is left"
"$FSDP" train --config config.yaml --set runtime.run_dir=auto --resume auto >done.log 2>&1 || fail "done: status $?"
grep -q 'this run has done its 60 steps' done.log || fail "a finished run does not say so"

# ---- written by a thread: the same run, with the memory of the copy, also where it is killed -----------
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=async checkpoint.async=true >async.log 2>&1 ||
  { fail "async: status $?"; cat async.log; }
same_run async whole
diff <(cd async/checkpoints && echo *) <(cd whole/checkpoints && echo *) || fail "async: other checkpoints"
[ "$(summary async weights_hash)" = "$(grep -o '"weights_hash": "[^"]*"' async/checkpoints/step-60/checkpoint.json | cut -d' ' -f2)" ] ||
  fail "async: the last checkpoint is not the run's end"
totals=($(grep -A2 -E '"(predicted|ledger)"' async/metrics.json | grep -o '"total": [0-9]*' | cut -d' ' -f2))
[ "${#totals[@]}" = 2 ] && [ "${totals[0]}" = "${totals[1]}" ] || fail "async: predicted and counted memory: ${totals[*]}"
killed async_killed "$FSDP" train --local-ranks 2 --set checkpoint.keep=0 checkpoint.async=true
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=async_killed checkpoint.async=true --resume auto \
  >async_killed.log 2>&1 || { fail "async_killed: status $?"; cat async_killed.log; }
same_run async_killed whole

# ---- the newest checkpoint is damaged: the one before it, by name -------------------------------------
flip() { printf '%b' "\\x$(printf %02x $(($(od -An -tu1 -j "$2" -N 1 "$1") ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
killed damaged "$FSDP" train --local-ranks 2 --set checkpoint.keep=0 checkpoint.every=10
for step in damaged/checkpoints/step-*; do [ "${step##*-}" -le 20 ] || rm -rf "$step"; done
flip damaged/checkpoints/step-20/shard-00002-of-00002.safetensors 20000
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=damaged --resume auto >damaged.log 2>&1 ||
  { fail "damaged: status $?"; cat damaged.log; }
grep -q '^resumed from damaged/checkpoints/step-10: step 10$' damaged.log || { fail "damaged: goes on elsewhere"; cat damaged.log; }
grep -q '^warning: .*step-20/shard-00002-of-00002.safetensors: damaged: .*; the checkpoint before it is taken$' damaged.log ||
  { fail "damaged: no warning"; cat damaged.log; }
same_run damaged whole
cp -r damaged manifest && rm manifest/checkpoints/step-60/checkpoint.json
"$FSDP" train --resume manifest --local-ranks 2 --set train.steps=70 >manifest.log 2>&1 || { fail "manifest"; cat manifest.log; }
grep -q '^resumed from manifest/checkpoints/step-40' manifest.log || { fail "manifest: goes on elsewhere"; cat manifest.log; }
grep -q '^warning: manifest/checkpoints/step-60: no checkpoint, or an incomplete one' manifest.log || { fail "manifest: no warning"; cat manifest.log; }
grep -q '^note: manifest/model was saved at an earlier end of this run' manifest.log || fail "manifest: no note about the model"
for step in 40 60 70; do [ ! -e manifest/checkpoints/step-$step ] || rm manifest/checkpoints/step-$step/checkpoint.json; done
"$FSDP" train --config config.yaml --set runtime.run_dir=manifest train.steps=80 --resume auto >manifest.log 2>&1
[ $? = 78 ] || fail "manifest: another status than 78"
grep -q '^fsdp: --resume auto: manifest: no checkpoint can be read: that of step 70 was complete; .*--restart-from-scratch' manifest.log || { fail "manifest: no error"; cat manifest.log; }
cp manifest/metrics.jsonl before.jsonl
"$FSDP" train --config config.yaml --set runtime.run_dir=manifest train.steps=75 --resume auto --restart-from-scratch >manifest.log 2>&1 || { fail "manifest: --restart-from-scratch"; cat manifest.log; }
cmp -s manifest/metrics.1.jsonl before.jsonl || fail "manifest: the old log is lost"
[ "$(grep -c grad_norm manifest/metrics.jsonl)" = 75 ] || fail "manifest: $(grep -c grad_norm manifest/metrics.jsonl) lines of 75 steps"
[ -d manifest/checkpoints/before-1/step-70 ] || fail "manifest: what is left is not set aside"
"$FSDP" train --config config.yaml --set runtime.run_dir=manifest train.steps=80 --resume auto >manifest.log 2>&1 || { fail "manifest: once more"; cat manifest.log; }
grep -q '^resumed from manifest/checkpoints/step-75: step 75$' manifest.log || { fail "manifest: the new run does not go on"; cat manifest.log; }

# ---- from another folder, whose text.txt is another one -------------------------------------------------
mkdir elsewhere && echo "another text" >elsewhere/text.txt
killed moved "$FSDP" train --local-ranks 2 --set checkpoint.keep=0
(cd elsewhere && "$FSDP" train --resume ../moved --set train.steps=60 --local-ranks 2) >moved.log 2>&1 || { fail "moved"; cat moved.log; }
same_run moved whole

# ---- what cannot begin leaves no folder, and the run directory is no model -------------------------------
"$FSDP" train --config config.yaml --set runtime.run_dir=cannot --set checkpoint.folder=text.txt/x >cannot.log 2>&1 && fail "cannot: status 0"
grep -q '^fsdp: .*text.txt: cannot be made: ' cannot.log || { fail "cannot: no reason"; cat cannot.log; }
[ ! -e cannot ] || fail "cannot: a run directory is left: $(ls cannot)"
"$FSDP" train --config config.yaml --model whole --set runtime.run_dir=cannot >cannot.log 2>&1 && fail "model.path: status 0"
grep -q '^fsdp: model.path: whole is a run directory; the model in it is whole/model$' cannot.log || { fail "model.path: no hint"; cat cannot.log; }

# ---- on other ranks, from a run directory, and a fork ---------------------------------------------
"$FSDP" train --resume whole/checkpoints/step-40 --local-ranks 3 --set runtime.run_dir=three \
  --set fsdp.strategy=no_shard >three.log 2>&1 || { fail "three ranks: status $?"; cat three.log; }
grep -q '^note: 3 ranks instead of 2: the run continues up to rounding$' three.log || fail "three: no note about ranks"
grep -q '^note: changed: fsdp.strategy: full_shard -> no_shard$' three.log || fail "three: no note about the strategy"
paste <(lines whole | grep -o '"loss":[0-9.e-]*' | cut -d: -f2) \
  <(lines three | grep -o '"loss":[0-9.e-]*' | cut -d: -f2) |
  awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (NF != 2 || d > 1e-6 * $1) bad = 1; n++ } END { exit bad || n != 60 }' ||
  fail "three ranks: other losses than two"
"$FSDP" train --resume whole --set train.steps=70 --local-ranks 2 >longer.log 2>&1 || { fail "longer"; cat longer.log; }
grep -q 'changed: train.steps: 60 -> 70; the learning rate of the next step stays' longer.log || fail "longer: no note"
[ "$(summary whole steps)" = 70 ] && [ "$(summary whole resumed_from)" = 60 ] || fail "longer: steps"

# ---- as a model ------------------------------------------------------------------------------------
"$FSDP" convert three/checkpoints/step-60 converted --local-ranks 2 >converted.log 2>&1 ||
  { fail "convert: status $?"; cat converted.log; }
for file in config.json generation_config.json model.safetensors; do
  cmp -s "converted/$file" "three/model/$file" || fail "convert: $file is not that of the run's model"
done
"$FSDP" inspect three/checkpoints/step-60 >inspect.log || fail "inspect: status $?"
grep -q '^all 3 files have their sizes and checksums$' inspect.log || fail "inspect: no line about checksums"
"$FSDP" generate three --prompt "a line" --tokens 3 >generate.log 2>&1 || { fail "generate RUN"; cat generate.log; }
"$FSDP" eval three --data text.txt >eval.log 2>&1 || { fail "eval RUN"; cat eval.log; }
"$FSDP" inspect three >/dev/null 2>&1 || fail "inspect RUN"
"$FSDP" generate three/checkpoints/step-60 --prompt x >/dev/null 2>generate.log && fail "generate CHECKPOINT: status 0"
grep -q 'fsdp convert three/checkpoints/step-60 FOLDER makes one of it' generate.log || fail "generate CHECKPOINT: no way out"

# ---- a run that diverges names what is left of it ---------------------------------------------------
"$FSDP" train --config config.yaml --set train.lr=1e30 train.clip_norm=0 checkpoint.every=1 \
  runtime.run_dir=diverged >diverged.log 2>&1 && fail "diverged: status 0"
grep -q '^fsdp: step [0-9]*: .*not finite.*; the last checkpoint is diverged/checkpoints/step-[0-9]*$' diverged.log ||
  { fail "diverged: no checkpoint is named"; cat diverged.log; }

# ---- a disk that takes no more: a limit on files, which the weights exceed -----------------------------
full() { (ulimit -f 40; exec "$FSDP" train --config config.yaml --set train.steps=50 train.save=false "$@"); }
full --set runtime.run_dir=full >full.log 2>&1 && fail "full: status 0"
grep -q '^fsdp: .*shard-00001-of-00001.safetensors: cannot write: File too large' full.log ||
  { fail "full: the file is not named"; cat full.log; }
full --set runtime.run_dir=full_async checkpoint.async=true >full_async.log 2>&1 && fail "full_async: status 0"
grep -q '^fsdp: .*shard-00001-of-00001.safetensors: cannot write: File too large' full_async.log ||
  { fail "full_async: the file is not named"; cat full_async.log; }
full --set runtime.run_dir=async_goes_on checkpoint.required=false checkpoint.async=true >goes_on.log 2>&1 || { fail "async_goes_on"; cat goes_on.log; }
[ "$(grep -c '^warning: step [245]0: no checkpoint: .*File too large' goes_on.log)" = 3 ] || fail "async_goes_on: no warnings"
full --set runtime.run_dir=goes_on checkpoint.required=false >goes_on.log 2>&1 || { fail "goes_on"; cat goes_on.log; }
[ "$(grep -c '^warning: step [245]0: no checkpoint: .*File too large' goes_on.log)" = 3 ] || fail "goes_on: no warnings"
[ -z "$(ls goes_on/checkpoints full/checkpoints | grep step)" ] || fail "full: something is left"
(ulimit -f 40; exec "$FSDP" train --config config.yaml --set runtime.run_dir=no_model train.steps=5 checkpoint.every=0 checkpoint.keep=0) \
  >no_model.log 2>&1 && fail "no_model: status 0"
grep -q '^fsdp: .*no_model/.*: .*File too large' no_model.log || { fail "no_model: the file is not named"; cat no_model.log; }
[ -s no_model/metrics.jsonl ] && [ ! -e no_model/metrics.json ] || fail "no_model: looks like a run that has ended well"

# ---- what is refused -------------------------------------------------------------------------------
refused() {  # STATUS PATTERN arguments...
  local pattern=$1; shift
  "$FSDP" train "$@" >refused.log 2>&1 && fail "accepted: $*"
  grep -q -e "$pattern" refused.log || { fail "no '$pattern' for: $*"; cat refused.log; }
}
refused 'train.lr: 0.0003 -> 0.1' --resume whole --set train.lr=0.1 --set train.steps=80
refused '^fsdp: --resume auto: needs runtime.run_dir' --config config.yaml --resume auto
sed 's/number/numeral/' text.txt >other.txt
refused 'tokens of data.train: ' --resume whole --set data.train=other.txt --set train.steps=80
"$FSDP" train --resume whole --resume-with-changes --set data.train=other.txt train.lr=0.1 train.steps=72 \
  >changed.log 2>&1 || { fail "--resume-with-changes"; cat changed.log; }
grep -q '^note: changed: train.lr: 0.0003 -> 0.1$' changed.log || fail "changes are not listed"
"$FSDP" train --config config.yaml --set runtime.run_dir=busy --set train.steps=100000000 >busy.log 2>&1 &
pid=$!
for _ in {1..300}; do [ -e busy/checkpoints/step-20 ] && break; sleep 0.05; done
refused 'another run is using this run directory' --resume busy --set runtime.lock_wait_s=1
grep -q '^note: .*; waiting for its end for up to 1 s (runtime.lock_wait_s)$' refused.log || fail "busy: no line that it waits"
# A checkpoint of a partly frozen model, whose base was exchanged for another one meanwhile.
"$FSDP" train --config config.yaml --set runtime.run_dir=base1 --set train.steps=1 checkpoint.every=1 train.seed=1 >base.log 2>&1
"$FSDP" train --config config.yaml --set runtime.run_dir=base2 --set train.steps=1 checkpoint.every=1 train.seed=2 >base.log 2>&1
mkdir base && cp base1/model/* base
"$FSDP" train --config config.yaml --model base --set model.model_type= --set runtime.run_dir=frozen train.steps=20 \
  "train.freeze=[model.embed_tokens.weight]" >frozen.log 2>&1 || { fail "frozen"; cat frozen.log; }
mkdir -p dcp && : >dcp/.metadata
"$FSDP" convert dcp new >convert.log 2>&1 && fail "convert took a checkpoint of DCP"
grep -q "^fsdp: dcp: a checkpoint of PyTorch's DCP" convert.log || { fail "convert, DCP"; cat convert.log; }
"$FSDP" convert frozen/checkpoints/step-20 frozen1 >convert.log 2>&1 || { fail "convert, frozen"; cat convert.log; }
cmp -s frozen1/model.safetensors frozen/model/model.safetensors || fail "convert, frozen: another model"
cp base2/model/* base
"$FSDP" convert frozen/checkpoints/step-20 frozen2 >convert.log 2>&1 && fail "convert took another base"
grep -q 'the parameters that were not trained' convert.log || { fail "convert, another base"; cat convert.log; }

# Dropout and several micro-steps: only on as many ranks.
"$FSDP" train --config config.yaml --set runtime.run_dir=micro --set train.steps=20 --set train.micro_steps=2 >micro.log 2>&1 ||
  { fail "micro"; cat micro.log; }
refused 'dropout depends on the micro-step' --resume micro --set train.steps=24 --local-ranks 2
"$FSDP" train --resume micro --set train.steps=24 >micro.log 2>&1 || { fail "micro again"; cat micro.log; }
# Two runs, one checkpoint.folder.
shared=(--config config.yaml --set checkpoint.folder=shared checkpoint.every=5 train.steps=10)
"$FSDP" train "${shared[@]}" --set runtime.run_dir=first >first.log 2>&1 || { fail "first"; cat first.log; }
refused 'checkpoint.folder: shared/step-5 has a checkpoint of another run' "${shared[@]}" --set runtime.run_dir=second
"$FSDP" train --resume first --set train.steps=15 --resume-with-changes >first.log 2>&1 || { fail "first again"; cat first.log; }
# A model that the run would replace, and a run that ended without checkpoints.
refused 'model.path: first/model: this run would replace it' --resume first --set train.steps=20 \
  --model first/model --resume-with-changes
[ -e first/model/config.json ] || fail "first/model is gone"
grep -v ^checkpoint config.yaml >plain.yaml
plain=(--config plain.yaml --set runtime.run_dir=plain)
"$FSDP" train "${plain[@]}" --set train.steps=4 >plain.log 2>&1 || { fail "plain"; cat plain.log; }
refused 'this run has ended and left no checkpoint to go on from' "${plain[@]}" --set train.steps=8 --resume auto
kill -TERM "$pid"
wait "$pid" 2>/dev/null
step=$(grep -o '^stopped by SIGTERM after step [0-9]*' busy.log | grep -o '[0-9]*$')
[ -e "busy/checkpoints/step-$step/checkpoint.json" ] || fail "SIGTERM: no checkpoint of step $step"

# ---- epochs ------------------------------------------------------------------------------------------
"$FSDP" train --config config.yaml --local-ranks 2 --set train.schedule.total=0 train.epochs=2 \
  train.eval_every=epoch checkpoint.every=epoch train.log_every=epoch runtime.run_dir=epochs >epochs.log 2>&1 ||
  { fail "epochs: status $?"; cat epochs.log; }
[ "$(grep -c '^note: .*train.steps' epochs.log)" = 1 ] && grep -qx 'note: train.epochs: 2 (--set train.epochs=2) counts instead of train.steps: 60 (config.yaml:3)' epochs.log ||
  { fail "epochs: not one note about steps"; cat epochs.log; }
[ "$(summary epochs epochs)" = 2.0 ] || fail "epochs: $(summary epochs epochs) of 2"
[ "$(grep -c best_validation_loss epochs/metrics.jsonl)" = 2 ] || fail "epochs: another number of evaluations than 2"
middle=$(($(summary epochs steps) / 2))
[ "$(grep -o '"step":[0-9]*,"loss"' epochs/metrics.jsonl | grep -o '[0-9]*' | xargs)" = "1 $middle $((2 * middle))" ] ||
  fail "epochs: other lines than of step 1 and of epochs"
[ "$(cd epochs/checkpoints && echo step-*)" = "step-$middle step-$((2 * middle))" ] || fail "epochs: $(ls epochs/checkpoints)"
"$FSDP" train --resume "epochs/checkpoints/step-$middle" --local-ranks 2 --set runtime.run_dir=second_epoch \
  >second.log 2>&1 || { fail "second epoch: status $?"; cat second.log; }
same_run second_epoch epochs
"$FSDP" train --resume "epochs/checkpoints/step-$((2 * middle))" --set runtime.run_dir=fewer train.epochs=1 >fewer.log 2>&1 && fail "fewer epochs: status 0"
grep -q '^fsdp: train.epochs: expected at least 2, the' fewer.log || { fail "fewer epochs: no error"; cat fewer.log; }
"$FSDP" train --resume epochs | grep -q 'this run has done its 2 epochs' || fail "epochs: a finished run does not say so"

# ---- started again by a batch system -----------------------------------------------------------------
# requeue NAME command...: sends SIGUSR1 to the process behind the command once it trains.
requeue() {
  local name=$1 whom=$2 step; shift 2
  "$@" --config config.yaml --set runtime.run_dir="$name" --set train.steps=100000000 \
    --set checkpoint.every=0 checkpoint.keep=0 >"$name.log" 2>&1 </dev/null &
  pid=$!
  for _ in {1..400}; do [ "$(cat "$name/metrics.jsonl" 2>/dev/null | wc -l)" -ge 3 ] && break; sleep 0.05; done
  if [ "$whom" = itself ]; then kill -USR1 "$pid"; else kill -USR1 "$(pgrep -P "$pid" -f train | tail -1)"; fi
  wait "$pid"
  local status=$?
  [ "$status" = 75 ] || { fail "$name: status $status instead of 75"; cat "$name.log"; }
  step=$(grep -o '^stopped by SIGUSR1 after step [0-9]*' "$name.log" | grep -o '[0-9]*$')
  [ -e "$name/checkpoints/step-$step/checkpoint.json" ] || fail "$name: no checkpoint of step $step"
  [ ! -e "$name/model" ] || fail "$name: a model is saved, which takes time"
  "$FSDP" train --config config.yaml --set runtime.run_dir="$name" --resume auto --local-ranks 2 \
    --set train.steps=$((step + 2)) >"$name.again.log" 2>&1 || { fail "$name: --resume auto"; cat "$name.again.log"; }
  grep -q "^resumed from .*: step $step\$" "$name.again.log" || fail "$name: goes on elsewhere"
}
requeue batch itself "$FSDP" train --local-ranks 2
# 75 means that the checkpoint is on the disk: where it cannot be written, the status is another.
for async in false true; do
  (ulimit -f 40; exec "$FSDP" train --config config.yaml --set train.steps=100000000 train.save=false checkpoint.every=1 \
    checkpoint.keep=0 checkpoint.required=false checkpoint.async=$async runtime.run_dir=not_durable_$async) >not_durable.log 2>&1 &
  pid=$!
  for _ in {1..400}; do [ -s not_durable_$async/metrics.jsonl ] && break; sleep 0.05; done
  kill -USR1 "$pid"
  wait "$pid"
  [ $? = 74 ] || { fail "not durable, async $async: another status than 74"; tail -3 not_durable.log; }
  grep -A3 '"ended"' not_durable_$async/metrics.json | tr -d '\n' |
    grep -q '"status": 74, .*"reason": "stopped by SIGUSR1; step [0-9]*: no checkpoint: .*File too large.*"last_durable_step": 0' ||
    { fail "not durable, async $async: metrics.json does not say so"; grep -A4 '"ended"' not_durable_$async/metrics.json; }
done
# A checkpoint that nobody asked for, which cannot be written: the run ends as it is told to.
for signal in TERM:143 USR1:74; do
  run=unasked_${signal%:*}
  "$FSDP" train --config config.yaml --set train.steps=100000000 checkpoint.every=auto runtime.run_dir=$run >unasked.log 2>&1 &
  pid=$!
  for _ in {1..400}; do [ -s $run/metrics.jsonl ] && break; sleep 0.05; done
  touch $run/checkpoints
  kill "-${signal%:*}" "$pid"
  wait "$pid"
  [ $? = "${signal#*:}" ] || { fail "$run: another status than ${signal#*:}"; cat unasked.log; }
  grep -q '^warning: step [0-9]*: no checkpoint: .*checkpoints: cannot be made' unasked.log || { fail "$run: no warning"; cat unasked.log; }
  [ -s $run/metrics.json ] || fail "$run: no metrics.json"
done
[ -s unasked_TERM/model/model.safetensors ] || fail "unasked: no model"
RANK=0 WORLD_SIZE=2 "$FSDP" train --config config.yaml >torchrun.log 2>&1 && fail "torchrun: status 0"
grep -q '^fsdp: .*as by torchrun: .*mpirun -n 2' torchrun.log || fail "torchrun: no way out"

if [ -n "${MPIRUN:-}" ]; then
  requeue mpi_batch child $MPIRUN -n 2 "$FSDP" train
  # One rank is killed: the job ends, and another job goes on.
  $MPIRUN -n 2 "$FSDP" train --config config.yaml --set runtime.run_dir=mpi --set train.steps=100000000 \
    --set checkpoint.keep=0 >mpi.log 2>&1 </dev/null &
  pid=$!
  for _ in {1..400}; do [ -e mpi/checkpoints/step-20/checkpoint.json ] && break; sleep 0.05; done
  kill -9 "$(pgrep -P "$pid" -f train | tail -1)"
  wait "$pid" && fail "mpi: status 0 of a job with a killed rank"
  for step in mpi/checkpoints/step-*; do [ "${step##*-}" -le 40 ] 2>/dev/null || rm -rf "$step"; done
  $MPIRUN -n 2 "$FSDP" train --config config.yaml --set runtime.run_dir=mpi --resume auto >mpi2.log 2>&1 ||
    { fail "mpi: --resume auto"; cat mpi2.log; }
  same_run mpi auto
else
  echo "[SKIP] resume under mpirun: no MPI"
fi

[ "$failed" = 0 ] && echo "resume: every run went on as if it had not stopped"
exit "$failed"
