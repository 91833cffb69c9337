#!/usr/bin/env bash
# A disk that fills up while a run writes checkpoints, and a full /dev/shm: the run goes on or ends as
# checkpoint.required says, the last checkpoint is whole, and with room again the run goes on to the bit.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

mkdir disk
if ! mount -t tmpfs -o size=6m tmpfs disk 2>/dev/null; then
  echo "[SKIP] full disk: no file system may be mounted here"
  exit 77
fi
trap 'umount "$scratch/disk"; rm -rf "$scratch"' EXIT
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 64, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 40, batch: 4, log_every: 1}
checkpoint: {every: 5, keep: 0}
YAML
train() { "$FSDP" train --config config.yaml --local-ranks 2 --set "$@"; }
newest() { ls -d "$1"/checkpoints/step-? "$1"/checkpoints/step-?? 2>/dev/null | tail -1; }
whole() { "$FSDP" inspect "$(newest "$1")" >inspect.log 2>&1 || { fail "$1: its newest checkpoint is damaged"; cat inspect.log; }; }
train runtime.run_dir=elsewhere >elsewhere.log 2>&1 || fail "elsewhere: $(tail -1 elsewhere.log)"
# Nobody has asked for checkpoints, and there is no room for as many as would be kept: a note.
train runtime.run_dir=disk/auto checkpoint.every=auto checkpoint.keep=9 >auto.log 2>&1 || { fail "auto: status $?"; cat auto.log; }
grep -qE '^note: this run writes no checkpoints: rank 0: checkpoint.every: .*disk.*: .* are free; 10 checkpoints of .* each and the trained model need .*' auto.log ||
  { fail "auto: no line that says so"; cat auto.log; }
[ ! -e disk/auto/checkpoints ] || fail "auto: a folder of checkpoints"
rm -r disk/auto
# A run that may be rolled back needs them.
train runtime.run_dir=disk/auto checkpoint.every=auto checkpoint.keep=9 train.on_nonfinite=rollback >auto.log 2>&1
[ $? = 78 ] || { fail "rollback: another status than 78"; cat auto.log; }

# It goes on without: every step is trained and logged, and what was written stays whole.
for async in false true; do
  run=disk/on_$async
  train runtime.run_dir=$run checkpoint.required=false checkpoint.async=$async >on.log 2>&1 || { fail "$run: status $?"; cat on.log; }
  grep -q '^warning: .*checkpoint.*No space left on device' on.log || fail "$run: no warning"
  [ -n "$(newest $run)" ] && [ ! -e $run/checkpoints/step-40 ] || fail "$run: the disk was not filled"
  whole $run
  [ "$(grep -c grad_norm $run/metrics.jsonl)" = 40 ] || fail "$run: steps are missing in metrics.jsonl"
  [ -z "$(find $run -name '*.tmp*')" ] || fail "$run: $(find $run -name '*.tmp*') is left"
  rm -r $run
done
# It ends, and goes on when there is room.
train runtime.run_dir=disk/ended >ended.log 2>&1 && fail "ended: status 0"
grep -q '^fsdp: .*No space left on device' ended.log || { fail "ended: no line that says why"; cat ended.log; }
whole disk/ended
mount -o remount,size=40m disk
train runtime.run_dir=disk/ended --resume auto >resumed.log 2>&1 || { fail "resumed: status $?"; cat resumed.log; }
grep -q '^resumed from' resumed.log || fail "resumed: from no checkpoint"
for key in weights_hash optimizer_hash; do
  [ -n "$(summary elsewhere $key)" ] && [ "$(summary disk/ended $key)" = "$(summary elsewhere $key)" ] || fail "resumed: another $key"
done
# No room for the checkpoint after the last step: the model is saved all the same.
mkdir disk/small
train runtime.run_dir=long train.steps=400 checkpoint.every=0 >long.log 2>&1 || fail "long: $(tail -1 long.log)"
for async in false true; do
  run=last_$async
  train runtime.run_dir=$run checkpoint.folder=disk/small/$run train.steps=400 checkpoint.every=400 checkpoint.async=$async >last.log 2>&1 &
  pid=$!
  for _ in {1..500}; do [ -s $run/metrics.jsonl ] && break; sleep 0.01; done
  dd if=/dev/zero of=disk/small/filler bs=64k 2>/dev/null
  wait $pid && fail "$run: status 0"
  grep -q '^fsdp: step 400: no checkpoint: .*No space left on device' last.log || { fail "$run: no line that says why"; cat last.log; }
  cmp -s $run/model/model.safetensors long/model/model.safetensors || fail "$run: the model is lost"
  [ ! -e $run/metrics.json ] || fail "$run: looks like a run that has ended well"
  # Now it is known before the first step. Who has not asked for checkpoints is told.
  train runtime.run_dir=no_room checkpoint.folder=disk/small/$run checkpoint.every=40 >room.log 2>&1
  [ $? = 78 ] || fail "no room: another status than 78"
  grep -qE '^fsdp: rank 0: checkpoint.every: .*disk/small.*: .* free; 1 checkpoint of .* need' room.log || { fail "no room: no line that says so"; cat room.log; }
  [ ! -e no_room ] || fail "no room: a run directory is left"
  # A job that is started again had room once, also where it has no checkpoint yet.
  FSDP_RESTARTS=1 train runtime.run_dir=no_room checkpoint.folder=disk/small/$run checkpoint.every=40 >room.log 2>&1
  [ $? = 1 ] || { fail "no room, started again: another status than 1"; cat room.log; }
  rm disk/small/filler
done
rm -r disk/small
# Stopped by SIGUSR1 while the disk is full: 75 where the checkpoint is elsewhere and durable, 74 where it is not.
for case in 75:durable 74:disk/stopped/checkpoints; do
  "$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=disk/stopped train.steps=1000000 runtime.trace=true \
    checkpoint.folder="${case#*:}" checkpoint.every=1000000 checkpoint.required=false runtime.io_retry_s=0.2 >stopped.log 2>&1 &
  pid=$!
  for _ in {1..1000}; do [ -s disk/stopped/metrics.jsonl ] && break; sleep 0.01; done
  dd if=/dev/zero of=disk/filler bs=1k 2>/dev/null
  kill -USR1 $pid
  wait $pid
  status=$?
  [ "$status" = "${case%%:*}" ] || { fail "stopped: status $status instead of ${case%%:*}"; cat stopped.log; }
  rm -r disk/filler disk/stopped
done
# No room at all: said before the first step.
dd if=/dev/zero of=disk/filler bs=64k 2>/dev/null
train runtime.run_dir=disk/none >none.log 2>&1 && fail "none: status 0"
grep -q '^fsdp: .*runtime.run_dir: .*: .* are free; the trained model needs [0-9]' none.log || { fail "none: no line that says why"; cat none.log; }
FSDP_RESTARTS=1 train runtime.run_dir=disk/none >none.log 2>&1
[ $? = 1 ] || { fail "none, started again: another status than 1"; cat none.log; }

if [ -z "${MPIRUN:-}" ]; then
  echo "[SKIP] full /dev/shm: no MPI"
else
  unshare -m bash -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"' _ \
    $MPIRUN -n 2 "$FSDP" train --config config.yaml --set runtime.run_dir=shm >shm.log 2>&1 || { fail "shm: status $?"; cat shm.log; }
  [ "$(summary shm weights_hash)" = "$(summary elsewhere weights_hash)" ] || fail "shm: another weights_hash"
fi
[ "$failed" = 0 ] && echo "full disk: nothing that was complete is lost"
exit "$failed"
