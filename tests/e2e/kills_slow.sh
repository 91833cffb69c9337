#!/usr/bin/env bash
# A job that is killed again and again, at any moment and any rank, and started again each time with
# the same command, ends with the weights, optimizer state and metrics of one that nobody disturbed.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), KILLS how many (200).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 32, layers: 3, heads: 2, dropout: 0.1}
data: {train: text.txt, validation: text.txt, sequence_length: 32}
train: {steps: 240, batch: 8, micro_steps: 2, log_every: 1, eval_every: 10, dtype: bf16, stochastic_rounding: true}
checkpoint: {every: 10, keep: 2, best: validation_loss}
YAML

kills=0 worst=0 resumed=0
# disturbed RUN MOST command...: kills the command up to MOST times, then lets it end.
disturbed() {
  local run=$1 most=$2 signal pid target started took left tries=0; shift 2
  while :; do
    "$@" --config config.yaml --set runtime.run_dir="$run" --set runtime.timeout_s=20 --set checkpoint.async="$async" --resume auto \
      >"$run.log" 2>&1 </dev/null &
    pid=$!
    if [ $((tries++)) -lt "$most" ]; then
      sleep "0.$(printf %02d $((RANDOM % 90)))"
      signal=$(shuf -n 1 -e KILL KILL KILL TERM USR1)
      target=$pid
      if [ "$1" != "$FSDP" ]; then target=$(pgrep -P "$pid" -f train | shuf -n 1); fi
      started=$(date +%s%N)
      [ -n "$target" ] && kill "-$signal" "$target" 2>/dev/null && kills=$((kills + 1))
      wait "$pid"
      took=$((($(date +%s%N) - started) / 1000000))
      [ "$took" -le 30000 ] || fail "$run: the job took $took ms to end after SIG$signal"
      [ "$took" -le "$worst" ] || worst=$took
    else
      wait "$pid" || { fail "$run: status $? of the run that nobody disturbs"; cat "$run.log"; return; }
      break
    fi
    grep -q '^resumed from' "$run.log" && resumed=$((resumed + 1))
  done
  [ -n "$(lines whole)" ] || fail "whole: no lines to compare"
  for key in weights_hash optimizer_hash steps true_tokens train_loss validation_loss best_step; do
    [ -n "$(summary whole $key)" ] && [ "$(summary "$run" $key)" = "$(summary whole $key)" ] || fail "$run: another $key"
  done
  diff <(lines "$run") <(lines whole) >"$run.diff" || { fail "$run: metrics.jsonl differs"; head -5 "$run.diff"; }
  cmp -s "$run/model/model.safetensors" whole/model/model.safetensors || fail "$run: another model"
  left=$(find "$run" -name '*.tmp' -o -name '.shared-*')
  [ -z "$left" ] || fail "$run: $left is left"
}

"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=whole >whole.log 2>&1 ||
  { fail "the undisturbed run"; cat whole.log; }
for round in {1..100}; do
  export async=$([ $((round % 2)) = 0 ] && echo true || echo false)  # every other run is written by threads
  [ "$kills" -lt "${KILLS:-200}" ] || break
  disturbed "threads$round" 12 "$FSDP" train --local-ranks 2
  if [ -n "${MPIRUN:-}" ]; then disturbed "mpi$round" 8 $MPIRUN -n 2 "$FSDP" train; fi
  [ "$failed" = 0 ] || break
done
[ -n "${MPIRUN:-}" ] || echo "[SKIP] kills under mpirun: no MPI"
[ "$kills" -ge "${KILLS:-200}" ] || fail "only $kills runs were disturbed"
[ "$resumed" -gt 0 ] || fail "no run was resumed from a checkpoint"
echo "kills: $kills, $resumed of them runs that had been resumed; the job ended after at most $worst ms"
exit "$failed"
