#!/usr/bin/env bash
# A job that is killed again and again, at any moment, and started again each time with the same
# command, ends with the weights, optimizer state and metrics of one that nobody disturbed. Killed are
# its process (ranks as threads), one rank, mpirun, or mpirun with all ranks. Then the same with another
# number of ranks each time, in fixed order. Moments are by what the run is at (its start, a step, writing
# a checkpoint, reading one, an evaluation): at once, or some time later. Each disturbed run ends with a
# status that tools/launch/trouble.md gives.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), KILLS how many (200),
# SEED which ones (printed), PARTS which jobs (threads any_threads mpi any_mpi).
# Requirements: S2.10.
source "$(dirname "$0")/../support/e2e.sh"

SEED=${SEED:-$((SRANDOM % 1000000))}
RANDOM=$SEED
read -ra parts <<<"${PARTS:-threads any_threads ${MPIRUN:+mpi any_mpi}}"
echo "SEED=$SEED PARTS='${parts[*]}'"
# What a mpirun that is killed leaves lies here, and other jobs of this machine keep theirs.
segments=$(mktemp -d /dev/shm/kills.XXXXXX)
trap 'rm -rf "$scratch" "$segments"' EXIT
mkdir sessions
export TMPDIR=$scratch/sessions OMPI_MCA_btl_vader_backing_directory=$segments

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2, dropout: 0.1}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: 600, batch: 8, micro_steps: 2, log_every: 1, eval_every: 10, dtype: bf16, stochastic_rounding: true}
checkpoint: {every: 10, keep: 2, best: validation_loss}
runtime: {timeout_s: 20, heartbeat_s: 2, monitor_s: 0}
YAML
sed -e 's/micro_steps: 2/rows_per_pass: 2/' config.yaml >any_ranks.yaml
echo 'fsdp: {fixed_order: true}' >>any_ranks.yaml

kills=0 starts=0 resumed=0 times=()
declare -A within=([start]=0 [load]=0 [step]=0 [save]=0 [evaluation]=0)  # kills at once
declare -A ended=()                                                     # "target signal: status"
pick() { local at=$((RANDOM % $# + 1)); picked=${!at}; }  # one of its arguments
# reads PID PATTERN: whether it, or a process that it has started, has such a file open
reads() {
  local process
  for process in "$1" $(pgrep -P "$1"); do
    find "/proc/$process/fd" -lname "$2" 2>/dev/null | grep -q . && return
  done
  return 1
}
# awaits RUN LOG MOMENT PID: until the run is there; status 1: it has ended before
awaits() {
  local run=$1 log=$2 seen=0 look
  case $3 in
    start) return ;;
    load) look="reads $4 '*/checkpoints/step-*/shard*' || grep -q '^step ' $log" ;;
    step) look="grep -q '^step ' $log" ;;
    save) look="grep -q '^step ' $log && find $run/checkpoints -mindepth 1 -name *.tmp* 2>/dev/null | grep -q ." ;;
    evaluation) look="tail -n 1 $log | grep -q '^step *[0-9]*0/'" ;;
  esac
  while kill -0 "$4" 2>/dev/null && [ $((seen++)) -lt 500 ]; do
    eval "$look" 2>/dev/null && return
    sleep 0.01
  done
  return 1
}
# may_end TARGET SIGNAL STATUS LOG: whether this is a status that the manual gives. Before the first step
# a signal that stops a run may find a process that does not catch it yet.
may_end() {
  local statuses
  case $1-$2 in
    process-KILL | mpirun-KILL | all-KILL) statuses=137 ;;
    process-TERM) statuses=143 ;;
    rank-KILL) statuses="1 137" ;;  # the other rank, or mpirun, is the first to notice
    rank-STOP) statuses=1 ;;
    rank-TERM) statuses=143 ;;
    mpirun-TERM) statuses="1 143" ;;
    *-USR1) statuses=75 ;;
  esac
  grep -q '^step ' "$4" || statuses+=" 1 138 143"
  [[ " $statuses " = *" $3 "* ]]
}
# disturbed RUN MOST CONFIG RANKS HOW: disturbs the command up to MOST times, then lets it end. RANKS: a
# number, or "any": another number from 1 to 4 each time. HOW: threads or processes.
disturbed() {
  local run=$1 most=$2 config=$3 ranks=$4 how=$5 signal pid target victims started tries=0 command n moment log status
  while :; do
    n=$ranks
    [ "$ranks" != any ] || n=$((1 + RANDOM % 4))
    command=("$FSDP" train --local-ranks "$n")
    [ "$how" = threads ] || command=($MPIRUN -n "$n" "$FSDP" train)
    log=$run.$tries.log
    "${command[@]}" --config "$config" --set runtime.run_dir="$run" checkpoint.async="$async" --resume auto >"$log" 2>&1 </dev/null &
    pid=$!
    if [ $((tries++)) -ge "$most" ]; then
      wait "$pid" || { fail "$run: status $? of the run that nobody disturbs"; cat "$log"; return; }
      break
    fi
    target=process
    [ "$how" = threads ] || { pick rank rank mpirun all; target=$picked; }
    # Ranks as threads stop together, as a suspended job: nobody is left to notice. And a rank alone.
    case $target in
      process) pick KILL KILL TERM USR1 ;;
      rank) if [ "$n" = 1 ]; then pick KILL TERM USR1; else pick KILL KILL TERM USR1 STOP; fi ;;
      mpirun) pick KILL KILL TERM USR1 ;;
      all) picked=KILL ;;
    esac
    signal=$picked
    pick start load step step save save evaluation evaluation
    moment=$picked
    if awaits "$run" "$log" "$moment" "$pid" && [ $((RANDOM % 2)) = 0 ]; then
      within[$moment]=$((within[$moment] + 1))
    else
      sleep "0.$(printf %02d $((RANDOM % 60)))"
    fi
    victims=($(pgrep -P "$pid" -f train))
    case $target in
      process | mpirun) victims=("$pid") ;;
      rank) [ "${#victims[@]}" = 0 ] || victims=("${victims[RANDOM % ${#victims[@]}]}") ;;
      all) victims=("$pid" "${victims[@]}") ;;
    esac
    started=$(date +%s%N)
    [ "${#victims[@]}" -gt 0 ] && kill "-$signal" "${victims[@]}" 2>/dev/null
    ended_within 45 "$pid" || { fail "$run: still running 45 s after SIG$signal to $target"; kill -9 "$pid" "${victims[@]}"; cat "$log"; }
    wait "$pid"
    status=$?
    if [ "$signal" = STOP ]; then kill -9 "${victims[@]}" 2>/dev/null; fi
    [ "$status" != 0 ] || break  # it was at its end, and nothing has disturbed it
    kills=$((kills + 1))
    times+=($((($(date +%s%N) - started) / 1000000)))
    [ "${times[-1]}" -le 30000 ] || fail "$run: the job took ${times[-1]} ms to end after SIG$signal to $target"
    ended["$target $signal: $status"]=$((${ended["$target $signal: $status"]:-0} + 1))
    may_end "$target" "$signal" "$status" "$log" || [ "${#victims[@]}" = 0 ] ||
      { fail "$run: status $status after SIG$signal to $target, at: $moment"; cat "$log"; }
    goes_on "$log" "$tries"
  done
  grep -q 'this run has done its' "$log" || goes_on "$log" "$tries"
}
goes_on() {  # LOG TRIES: counts a start after the first
  [ "$2" -gt 1 ] || return
  starts=$((starts + 1))
  grep -q '^resumed from' "$1" && resumed=$((resumed + 1))
}
ended_within() {  # SECONDS PID
  for ((look = 0; look < $1 * 20; ++look)); do
    kill -0 "$2" 2>/dev/null || return 0
    sleep 0.05
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
undisturbed() {  # RUN CONFIG
  "$FSDP" train --config "$2" --local-ranks 2 --set runtime.run_dir="$1" >"$1.log" 2>&1 ||
    { fail "$1: the undisturbed run"; cat "$1.log"; }
  [ -n "$(lines "$1")" ] || fail "$1: no lines to compare"
}

undisturbed whole config.yaml
undisturbed whole_any any_ranks.yaml
for ((round = 1; kills < ${KILLS:-200} && failed == 0 && round < 1000; ++round)); do
  async=$([ $((round % 2)) = 0 ] && echo true || echo false)  # every other run is written by threads
  for part in "${parts[@]}"; do
    run=$part$round
    case $part in
      threads) disturbed "$run" 8 config.yaml 2 threads ;;
      any_threads) disturbed "$run" 6 any_ranks.yaml any threads ;;
      mpi) disturbed "$run" 8 config.yaml 2 processes ;;
      any_mpi) disturbed "$run" 6 any_ranks.yaml any processes ;;
    esac
    case $part in any_*) same "$run" whole_any ;; *) same "$run" whole ;; esac
    [ "$failed" != 0 ] || rm -rf "$run" "$run".*
    [ "$failed" = 0 ] || break
  done
  rm -rf "$segments"/* sessions/*
  echo "round $round: $kills kills, $resumed of $starts starts resumed, $SECONDS s"
done
[ -n "${MPIRUN:-}" ] || echo "[SKIP] kills under mpirun: no MPI"
[ "$kills" -ge "${KILLS:-200}" ] || fail "only $kills runs were disturbed"
[ $((resumed * 10)) -ge $((starts * 6)) ] || fail "only $resumed of $starts runs were resumed from a checkpoint"
for moment in "${!within[@]}"; do
  [ "${within[$moment]}" -gt 0 ] || [ "${KILLS:-200}" -lt 100 ] || fail "no kill within: $moment"
done
echo "at once within: $(for moment in "${!within[@]}"; do echo -n "$moment ${within[$moment]} "; done)"
for each in "${!ended[@]}"; do echo "  SIG to $each, ${ended[$each]} times"; done | sort
sorted=($(printf '%s\n' "${times[@]}" | sort -n))
echo "SEED=$SEED, $SECONDS s: kills: $kills; $resumed of $starts starts were resumed from a checkpoint; the job ended after" \
  "${sorted[-1]} ms at most, ${sorted[${#sorted[@]} / 2]} ms in the median"
sum_up kills "$kills"
exit "$failed"
