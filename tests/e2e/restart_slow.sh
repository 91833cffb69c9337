#!/usr/bin/env bash
# GPT-2 124M on two ranks goes on from its checkpoint: the time from the command to the end of the next
# step, beside the time that reading the checkpoint's bytes takes.
# Environment: FSDP the program, MPIRUN how to start processes (empty: threads).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {preset: gpt2-124m}
data: {train: text.txt, sequence_length: 32}
train: {batch: 2, log_every: 1, save: false, schedule: {kind: constant}}
checkpoint: {every: 1}
runtime: {run_dir: run}
YAML
now() { date +%s%N; }
command=("$FSDP" train --config config.yaml --threads 1)
if [ -n "${MPIRUN:-}" ]; then command=($MPIRUN -n 2 "${command[@]}"); else command+=(--local-ranks 2); fi
"${command[@]}" --set train.steps=1 >first.log 2>&1 || { cat first.log; fail "status $?"; exit 1; }

least=999999
for round in 1 2 3; do  # the best of three: what else the machine does only adds to it
  rm -rf again
  cp -r run again
  sync
  began=$(now)
  cat again/checkpoints/step-1/* >/dev/null
  reading=$((($(now) - began) / 1000000))
  began=$(now)
  "${command[@]}" --set train.steps=2 runtime.run_dir=again --resume auto >again.log 2>&1 </dev/null &
  until grep -q '"step":2,' again/metrics.jsonl || ! kill -0 $!; do sleep 0.01; done 2>/dev/null
  took=$((($(now) - began) / 1000000))
  wait $! || { cat again.log; fail "status $?"; exit 1; }
  grep -q '^resumed from' again.log || fail "no line 'resumed from'"
  echo "round $round: step 2 ended $took ms after the command, reading $(du -sm again/checkpoints/step-1 | cut -f1) MiB took $reading ms"
  [ $((took - reading)) -lt $least ] && least=$((took - reading))
done
[ $least -le 3000 ] || fail "the next step ended $least ms after the command, beyond reading: expected at most 3000"
exit $failed
