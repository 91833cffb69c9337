#!/usr/bin/env bash
# The storage of a run is away for a while, and its job dies with it: under `fsdp launch --restart` the job waits,
# says so each minute, and ends with the weights of a run that nobody disturbed. Once the storage goes in the first
# start of the parent, once in a later one. After the patience the parent gives up. A job that is stopped as a whole,
# and a mpirun that is, are ended and started again; so is a job of which all ranks are stopped, but not mpirun.
# Quicker parts of the same: launch.sh.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), AWAY seconds of the long outage (0: none;
# 300 shows that of minutes).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 3000, batch: 4, log_every: 10}
checkpoint: {every: 50, keep: 2}
runtime: {monitor_s: 0, heartbeat_s: 2, threads: 1}
YAML
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=whole >whole.log 2>&1 || { fail "whole"; cat whole.log; }

# until_line TEXT LOG PID: until the log has the line
until_line() {
  for ((i = 0; i < 3000; ++i)); do
    grep -qas -- "$1" "$2" && return
    kill -0 "$3" 2>/dev/null || break
    sleep 0.05
  done
  fail "$2: no line with $1"
}
# takes_away NAME PID: the storage goes, and then the job dies, which cannot see it go
takes_away() {
  local job
  job=$(pgrep -P "$2")
  kill -STOP "$job"
  mv "$1" "$1.away"
  kill -9 "$job"
}
# outage NAME SECONDS START: in which start of the parent (1, 2) the storage goes
outage() {
  local name=$1 pid began ended
  mkdir "$name"
  "$FSDP" launch local -n 2 --restart 3 -- train --config config.yaml --set runtime.run_dir="$name/run" >"$name.log" 2>&1 </dev/null &
  pid=$!
  until_line '^step 50: checkpoint' "$name.log" "$pid"
  sleep 1.2  # the parent looks each second
  if [ "$3" = 2 ]; then
    kill -9 "$(pgrep -P "$pid")"
    until_line '^resumed from' "$name.log" "$pid"
    sleep 1.2
  fi
  takes_away "$name" "$pid"
  began=$SECONDS
  sleep "$2"
  [ ! -e "$name" ] || fail "$name: something was made in place of the storage"
  mv "$name.away" "$name"
  ended=$SECONDS
  wait "$pid" || { fail "$name: status $?"; cat "$name.log"; }
  grep -a '^fsdp: launch' "$name.log"
  echo "$name: away for $((ended - began)) s, done $((SECONDS - ended)) s later"
  grep -qa 'has the mount gone?: waiting, for up to' "$name.log" || fail "$name: no line that it waits"
  [ "$(grep -ca ': waiting, for up to' "$name.log")" -ge $(($2 / 60)) ] || fail "$name: not said each minute"
  [ "$(summary "$name/run" weights_hash)" = "$(summary whole weights_hash)" ] || fail "$name: another weights_hash"
  "$FSDP" status "$name/run"
  # The sums of metrics.json are those of the lines.
  for key in lost_s detection_s pause_s restart_s; do
    awk -v key="\"$key\":" -v sum="$(summary "$name/run" $key)" '
      { for (i = split($0, part, /[,{}]/); i > 0; --i) if (index(part[i], key) == 1) all += substr(part[i], length(key) + 1) }
      END { exit !(all - sum < 0.01 && sum - all < 0.01) }' "$name/run/failures.jsonl" || fail "$name: failures.jsonl: another $key"
  done
}
outage first 30 1
outage second 30 2
[ "${AWAY:-0}" = 0 ] || outage long "$AWAY" 1

# Longer than the patience.
mkdir lost
"$FSDP" launch local -n 2 --restart 3 --patience 5 -- train --config config.yaml --set runtime.run_dir=lost/run train.steps=10000000 >lost.log 2>&1 </dev/null &
pid=$!
until_line '^step 50: checkpoint' lost.log "$pid"
sleep 1.2
takes_away lost "$pid"
wait "$pid"
[ $? = 76 ] || fail "lost: another status than 76"
grep -q 'has the mount gone?, for 5 s (--patience): given up$' lost.log || { fail "lost"; cat lost.log; }

# stopped LAUNCHER: its process is stopped
stopped() {
  local name=stopped_$1
  "$FSDP" launch "$1" -n 2 --restart 3 -- train --config config.yaml --set runtime.run_dir="$name" runtime.timeout_s=3 >"$name.log" 2>&1 </dev/null &
  pid=$!
  until_line '^step 50: checkpoint' "$name.log" "$pid"
  kill -STOP "$(pgrep -P "$pid")"
  wait "$pid" || { fail "$name: status $?"; cat "$name.log"; }
  grep -q 'no sign of life of the job for .* s: process .* is stopped: the job is ended$' "$name.log" || { fail "$name"; cat "$name.log"; }
  [ "$(summary "$name" weights_hash)" = "$(summary whole weights_hash)" ] || fail "$name: another weights_hash"
  grep -q 'no sign of life of the job' "$name/failures.jsonl" || { fail "$name: failures.jsonl"; cat "$name/failures.jsonl"; }
}
stopped local
if [ -n "${MPIRUN:-}" ]; then stopped mpirun; else echo "[SKIP] a mpirun that is stopped: no MPI"; fi

# All ranks are stopped, and mpirun waits for them: only progress.json, which nothing touches any more, shows it.
stopped_ranks() {
  local name=stopped_ranks ranks began
  "$FSDP" launch mpirun -n 2 --restart 3 -- train --config config.yaml --set runtime.run_dir="$name" runtime.timeout_s=3 >"$name.log" 2>&1 </dev/null &
  pid=$!
  until_line '^step 50: checkpoint' "$name.log" "$pid"
  sleep 2.5  # the parent has seen that the file is touched
  ranks=$(pgrep -P "$(pgrep -P "$pid")" -x "$(basename "$FSDP")")
  [ "$(wc -w <<<"$ranks")" = 2 ] || fail "$name: not two ranks: $ranks"
  kill -STOP $ranks
  began=$SECONDS
  until_line 'no sign of life of the job for .* s: nothing touches progress.json in the run directory: the job is ended$' "$name.log" "$pid"
  echo "$name: ended after $((SECONDS - began)) s"
  wait "$pid" || { fail "$name: status $?"; cat "$name.log"; }
  for rank in $ranks; do ! kill -0 "$rank" 2>/dev/null || fail "$name: rank $rank is left"; done
  [ "$(summary "$name" weights_hash)" = "$(summary whole weights_hash)" ] || fail "$name: another weights_hash"
  grep -q 'nothing touches progress.json' "$name/failures.jsonl" || { fail "$name: failures.jsonl"; cat "$name/failures.jsonl"; }
}
if [ -n "${MPIRUN:-}" ]; then stopped_ranks; else echo "[SKIP] ranks that are stopped under mpirun: no MPI"; fi

[ "$failed" = 0 ] && echo "storage: every job came to its end"
exit "$failed"
