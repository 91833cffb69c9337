#!/usr/bin/env bash
# A job that is killed again and again, at any moment and any rank, and started again each time with
# the same command, ends with the weights, optimizer state and metrics of one that nobody disturbed.
# Then the same with another number of ranks each time, in fixed order. Moments are by what the run is
# at (its start, a step, writing a checkpoint, reading one, an evaluation): at once, or some time later.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), KILLS how many (200).
# Requirements: S2.10.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 32, layers: 3, heads: 2, dropout: 0.1}
data: {train: text.txt, validation: text.txt, sequence_length: 32}
train: {steps: 240, batch: 8, micro_steps: 2, log_every: 1, eval_every: 10, dtype: bf16, stochastic_rounding: true}
checkpoint: {every: 10, keep: 2, best: validation_loss}
runtime: {timeout_s: 20, heartbeat_s: 2}
YAML
sed -e 's/micro_steps: 2/rows_per_pass: 2/' config.yaml >any_ranks.yaml
echo 'fsdp: {fixed_order: true}' >>any_ranks.yaml

kills=0 resumed=0 times=()
declare -A within=([start]=0 [load]=0 [step]=0 [save]=0 [evaluation]=0)  # kills at once
# reads PID PATTERN: whether it, or a process that it has started, has such a file open
reads() {
  local process
  for process in "$1" $(pgrep -P "$1"); do
    find "/proc/$process/fd" -lname "$2" 2>/dev/null | grep -q . && return
  done
  return 1
}
# awaits RUN MOMENT PID: until the run is there; status 1: it has ended before
awaits() {
  local run=$1 seen=0 look
  case $2 in
    start) return ;;
    load) look="reads $3 '*/checkpoints/step-*/shard*'" ;;
    step) look="[ -s $run/metrics.jsonl ]" ;;
    save) look="find $run/checkpoints -mindepth 1 -name *.tmp* 2>/dev/null | grep -q ." ;;
    evaluation) look="tail -n 1 $run/metrics.jsonl | grep -q '\"step\":[0-9]*0,\"loss\"'" ;;
  esac
  while kill -0 "$3" 2>/dev/null && [ $((seen++)) -lt 300 ]; do
    eval "$look" 2>/dev/null && return
    sleep 0.01
  done
  return 1
}
# disturbed RUN MOST CONFIG RANKS HOW: disturbs the command up to MOST times, then lets it end. RANKS: a
# number, or "any": another number from 1 to 4 each time. HOW: threads or processes.
disturbed() {
  local run=$1 most=$2 config=$3 ranks=$4 how=$5 signal pid target started tries=0 command n moment
  while :; do
    n=$ranks
    [ "$ranks" != any ] || n=$((1 + RANDOM % 4))
    command=("$FSDP" train --local-ranks "$n")
    [ "$how" = threads ] || command=($MPIRUN -n "$n" "$FSDP" train)
    "${command[@]}" --config "$config" --set runtime.run_dir="$run" checkpoint.async="$async" --resume auto >"$run.log" 2>&1 </dev/null &
    pid=$!
    if [ $((tries++)) -ge "$most" ]; then
      wait "$pid" || { fail "$run: status $? of the run that nobody disturbs"; cat "$run.log"; return; }
      break
    fi
    signal=$(shuf -n 1 -e KILL KILL TERM USR1 STOP)
    moment=$(shuf -n 1 -e start save load load evaluation step)
    if awaits "$run" $moment "$pid" && [ $((RANDOM % 2)) = 0 ]; then
      within[$moment]=$((within[$moment] + 1))
    else
      sleep "0.$(printf %02d $((RANDOM % 60)))"
    fi
    target=$pid
    if [ "$how" = processes ]; then target=$(pgrep -P "$pid" -f train | shuf -n 1); fi
    # Ranks as threads stop together, as a suspended job: nobody is left to notice. And a rank alone.
    if [ "$signal" = STOP ] && { [ "$how" = threads ] || [ "$n" = 1 ]; }; then signal=KILL; fi
    started=$(date +%s%N)
    [ -n "$target" ] && kill "-$signal" "$target" 2>/dev/null && kills=$((kills + 1))
    ended_within 45 "$pid" || { fail "$run: still running 45 s after SIG$signal"; kill -9 "$pid" $target; cat "$run.log"; }
    wait "$pid"
    if [ "$signal" = STOP ] && [ -n "$target" ]; then kill -9 "$target" 2>/dev/null; fi
    times+=($((($(date +%s%N) - started) / 1000000)))
    [ "${times[-1]}" -le 30000 ] || fail "$run: the job took ${times[-1]} ms to end after SIG$signal"
    grep -q '^resumed from' "$run.log" && resumed=$((resumed + 1))
  done
  grep -q '^resumed from' "$run.log" && resumed=$((resumed + 1))
}
ended_within() {  # SECONDS PID
  for ((look = 0; look < $1 * 10; ++look)); do
    kill -0 "$2" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}
# same RUN UNDISTURBED: nothing but the times tells one from the other
same() {
  local run=$1 whole=$2 key left
  for key in weights_hash optimizer_hash steps true_tokens train_loss mean_train_loss validation_loss best_step; do
    [ -n "$(summary "$whole" $key)" ] && [ "$(summary "$run" $key)" = "$(summary "$whole" $key)" ] || fail "$run: another $key"
  done
  left=$(find "$run" -name '*.tmp*' -o -name '.shared-*')
  [ -z "$left" ] || fail "$run: $left is left"
  diff <(lines "$run") <(lines "$whole") >"$run.diff" || { fail "$run: metrics.jsonl differs"; head -5 "$run.diff"; }
  cmp -s "$run/model/model.safetensors" "$whole/model/model.safetensors" || fail "$run: another model"
}
same_ranks() {
  disturbed "$1" "$2" config.yaml 2 "$3"
  same "$1" whole
}
any_ranks() {
  disturbed "$1" "$2" any_ranks.yaml any "$3"
  same "$1" whole_any
}
undisturbed() {  # RUN CONFIG
  "$FSDP" train --config "$2" --local-ranks 2 --set runtime.run_dir="$1" >"$1.log" 2>&1 ||
    { fail "$1: the undisturbed run"; cat "$1.log"; }
  [ -n "$(lines "$1")" ] || fail "$1: no lines to compare"
}

undisturbed whole config.yaml
undisturbed whole_any any_ranks.yaml
for round in {1..100}; do
  async=$([ $((round % 2)) = 0 ] && echo true || echo false)  # every other run is written by threads
  [ "$kills" -lt "${KILLS:-200}" ] || break
  same_ranks "threads$round" 8 threads
  any_ranks "any_threads$round" 4 threads
  if [ -n "${MPIRUN:-}" ]; then
    same_ranks "mpi$round" 8 processes
    any_ranks "any_mpi$round" 4 processes
  fi
  [ "$failed" = 0 ] || break
done
[ -n "${MPIRUN:-}" ] || echo "[SKIP] kills under mpirun: no MPI"
[ "$kills" -ge "${KILLS:-200}" ] || fail "only $kills runs were disturbed"
[ "$resumed" -gt 0 ] || fail "no run was resumed from a checkpoint"
for moment in "${!within[@]}"; do
  [ "${within[$moment]}" -gt 0 ] || fail "no kill within: $moment"
done
echo "at once within: $(for moment in "${!within[@]}"; do echo -n "$moment ${within[$moment]} "; done)"
sorted=($(printf '%s\n' "${times[@]}" | sort -n))
echo "kills: $kills; $resumed runs were resumed from a checkpoint; the job ended after" \
  "${sorted[-1]} ms at most, ${sorted[${#sorted[@]} / 2]} ms in the median"
exit "$failed"
