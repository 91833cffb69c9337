#!/usr/bin/env bash
# Ctrl-C, SIGTERM and SIGHUP end a run at a step boundary, on all ranks, with its metrics, checkpoint and
# model written; a second signal ends it at once. Output that nobody reads ends nothing and holds nothing.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 10000000, batch: 4, log_every: 10, schedule: {kind: constant}}
checkpoint: {every: 10000000}
YAML

# interrupt NAME SIGNAL EXPECTED_STATUS WHOM command...: starts the command, sends the signal to it or
# to its first child once the run has logged a few steps, and waits for its end. Status 'any': not 0.
interrupt() {
  local name=$1 signal=$2 expected=$3 whom=$4 target status
  shift 4
  "$@" --config config.yaml --set "runtime.run_dir=$name" >"$name.log" 2>&1 </dev/null &
  local pid=$!
  for _ in {1..300}; do
    [ "$(cat "$name/metrics.jsonl" 2>/dev/null | wc -l)" -ge 3 ] && break
    sleep 0.1
  done
  target=$pid
  [ "$whom" = itself ] || target=$(pgrep -P "$pid" -f train | head -1)
  kill "-$signal" "$target"
  for _ in {1..200}; do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$pid" 2>/dev/null; then
    fail "$name: still running 20 s after SIG$signal"
    kill -9 "$pid"
  fi
  wait "$pid"
  status=$?
  if [ "$expected" = any ]; then
    [ "$status" != 0 ] || fail "$name: status 0"
  else
    [ "$status" = "$expected" ] || fail "$name: status $status instead of $expected"
  fi
  grep -q '"interrupted": true' "$name/metrics.json" || fail "$name: metrics.json does not say so"
  saved "$name"
  [ "$failed" = 0 ] || cat "$name.log"
}
# saved NAME: a checkpoint and the model of the step that was logged last, which the run names
saved() {
  local name=$1 last
  [ -s "$name/model/model.safetensors" ] || fail "$name: no model"
  last=$(tail -1 "$name/metrics.jsonl" | grep -oE '"step":[0-9]+' | cut -d: -f2)
  "$FSDP" inspect "$name/checkpoints/step-$last" >"$name.inspect" 2>&1 || { fail "$name: no whole checkpoint of step $last"; cat "$name.inspect"; }
  grep -qE "^stopped by .* after step $last\$" "$name.log" || fail "$name: step $last is the last logged"
}
interrupt one_term TERM 143 itself "$FSDP" train
interrupt threads_term TERM 143 itself "$FSDP" train --local-ranks 2
interrupt threads_int INT 130 itself "$FSDP" train --local-ranks 2
interrupt one_hup HUP 129 itself "$FSDP" train
interrupt one_alrm ALRM 142 itself "$FSDP" train
# GNU timeout sends its signal to the process and to its group: one of them counts.
for seconds in 2 10; do  # a machine of other work needs longer to begin
  timeout -s TERM $seconds "$FSDP" train --config config.yaml --set runtime.run_dir=timeout >timeout.log 2>&1 </dev/null
  [ ! -s timeout/metrics.jsonl ] || break
  rm -rf timeout
done
[ -s timeout/model/model.safetensors ] || { fail "timeout: two signals at once were two"; cat timeout.log; }
# Steps of many seconds, in micro-steps of milliseconds: the signal is looked at between them, the step
# is dropped, and going on gives the weights of a run that nobody stopped.
for i in {1..4000}; do echo "a line of text, number $i, and some more of it"; done >long.txt
slow="--config config.yaml --set data.train=long.txt data.sequence_length=64 train.log_every=1 train.steps=2"
start_slow() {  # RUN FILE options...: until it has this file: a step is done, or the first one begins
  local run=$1 file=$2; shift 2
  (trap '' HUP; exec "$FSDP" train $slow runtime.run_dir="$run" "$@") >"$run.log" 2>&1 </dev/null &
  pid=$!
  for _ in {1..600}; do [ -s "$run/$file" ] && break; sleep 0.1; done
}
micro="model.hidden_size=64 train.batch=800 train.micro_steps=200 checkpoint.every=1"
start_slow dropped metrics.jsonl $micro
kill -TERM "$pid"
begin=$(date +%s%N)
wait "$pid"
[ $? = 143 ] || fail "dropped: another status than 143"
echo "a signal within a step: the end came after $((($(date +%s%N) - begin) / 1000000)) ms"
grep -q '^stopped by SIGTERM after step 1$' dropped.log || { fail "dropped: not after step 1"; cat dropped.log; }
start_slow kept metrics.jsonl $micro
wait "$pid" || fail "kept: another status than 0"
"$FSDP" train --resume dropped >dropped_on.log 2>&1 || { fail "dropped: does not go on"; cat dropped_on.log; }
[ -n "$(summary kept weights_hash)" ] || fail "kept: no hash"
[ "$(summary dropped weights_hash)" = "$(summary kept weights_hash)" ] || fail "dropped: other weights"
[ "$(summary dropped optimizer_hash)" = "$(summary kept optimizer_hash)" ] || fail "dropped: another optimizer state"
# Under nohup SIGHUP is none. A second signal ends the run without saving.
start_slow second monitor.rank0.csv train.batch=500 model.layers=6 model.hidden_size=128
kill -HUP "$pid"
sleep 0.2
kill -INT "$pid" || fail "second: ended by SIGHUP under nohup"
sleep 0.6
kill -TERM "$pid"
wait "$pid" 2>/dev/null
status=$?
[ "$status" = 130 ] || [ "$status" = 143 ] || fail "second: status $status"
grep -q '^fsdp: a second signal' second.log || fail "second: no line about it"
[ ! -e second/model ] || fail "second: a model was written"
# Whoever read the output is gone: the run is not.
"$FSDP" train --config config.yaml --set train.steps=50 runtime.run_dir=pipe 2>pipe.err | head -1 >pipe.log
[ "${PIPESTATUS[0]}" = 1 ] || fail "pipe: another status than 1"
grep -q '^fsdp: standard output' pipe.err || fail "pipe: no line about the output"
[ -s pipe/model/model.safetensors ] || fail "pipe: no model"
# A step that takes longer than the grace: the end comes all the same, and says so.
start_slow grace monitor.rank0.csv train.batch=700 model.layers=6 model.hidden_size=128 runtime.grace_s=1
kill -TERM "$pid"
wait "$pid"
[ $? = 143 ] || fail "grace: another status than 143"
grep -q '^fsdp: the run did not end within 1 s of SIGTERM (runtime.grace_s)' grace.log || { fail "grace: no line"; cat grace.log; }
rm long.txt
# A cache file that is cut while it is mapped, and a limit on the size of files: errors that name the file.
start_bus() { "$FSDP" train --config config.yaml --set runtime.run_dir=bus data.cache_dir=bus_cache >bus.log 2>&1 </dev/null & pid=$!; }
start_bus
for _ in {1..300}; do [ -s bus/metrics.jsonl ] && break; sleep 0.1; done
truncate -s 0 "$(find bus_cache -type f | head -1)"
wait "$pid"
[ $? = 1 ] || fail "bus: another status than 1"
grep -qE '^fsdp: .*bus_cache/.*: cannot be read any more: the file was cut' bus.log || { fail "bus: no line"; cat bus.log; }
(ulimit -f 8; exec "$FSDP" train --config config.yaml --set runtime.run_dir=limited train.steps=3 data.cache_dir=cache) >limited.log 2>&1
[ $? = 1 ] || fail "limited: another status than 1"
grep -qE '^fsdp: .*limited/.*: File too large' limited.log || { fail "limited: no line that names a file"; cat limited.log; }
# Before there is a step to stop after: at once. Words that never come again are slow to tokenize.
head -c 40000000 /dev/urandom | base64 >long.txt
"$FSDP" train --config config.yaml --set data.train=long.txt \
  --set data.tokenizer="$SOURCE/tests/fixtures/tokenizers/gpt_neox/tokenizer.json" >setup.log 2>&1 &
pid=$!
sleep 0.5
kill -TERM "$pid"
for _ in {1..30}; do kill -0 "$pid" 2>/dev/null && sleep 0.1; done
kill -0 "$pid" 2>/dev/null && { fail "set-up: still running 3 s after SIGTERM"; kill -9 "$pid"; }
wait "$pid" 2>/dev/null
[ $? = 143 ] || fail "set-up: another status than 143"
rm long.txt
# Who removes the folder of a run does not lose the model.
"$FSDP" train --config config.yaml --set checkpoint.every=0 runtime.run_dir=removed >removed.log 2>&1 </dev/null &
pid=$!
for _ in {1..300}; do [ -s removed/metrics.jsonl ] && break; sleep 0.1; done
rm -r removed
kill -TERM "$pid"
wait "$pid" 2>/dev/null
[ $? = 143 ] || fail "removed: another status than 143"
[ -s removed/model/model.safetensors ] || fail "removed: no model"
[ -s removed/metrics.json ] && [ -s removed/config.yaml ] || fail "removed: no metrics.json or config.yaml"
grep -q '^note: removed was removed' removed.log || { fail "removed: no line about it"; cat removed.log; }

# The time of the job is over soon: a checkpoint, and status 75, before it is. A machine of other work needs longer.
for seconds in 4 20; do
  rm -rf timed
  end=$(($(date +%s) + seconds))
  "$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=timed runtime.end_time=$end runtime.grace_s=2 \
    train.steps=100000000 >timed.log 2>&1
  status=$?
  [ $status = 75 ] && [ -e timed/checkpoints/last.json ] && [ "$(date +%s)" -le "$end" ] && break
done
[ $status = 75 ] || { fail "timed: another status than 75"; cat timed.log; }
[ "$(date +%s)" -le "$end" ] || fail "timed: ended after its time"
grep -q "^stopped by the end of the job's time after step [0-9]*$" timed.log || { fail "timed: why it stopped"; cat timed.log; }
grep -q '^  end_time: 0$' timed/config.yaml || fail "timed: its end is in config.yaml"
grep -q '^the time of the job is over in [0-9]* s; [0-9]* s are kept for the end' timed.log || { fail "timed: no line"; cat timed.log; }
[ -e timed/checkpoints/last.json ] || fail "timed: no checkpoint"
"$FSDP" train --config config.yaml --set runtime.run_dir=short runtime.end_time=$(($(date +%s) + 60)) runtime.grace_s=90 >short.log 2>&1
[ $? = 76 ] || fail "short: another status than 76"
grep -q '^fsdp: the time of the job is over in [0-9]* s, and [0-9]* s are kept for two checkpoints and runtime.grace_s: no step can be done$' short.log || { fail "short: no line"; cat short.log; }
"$FSDP" train --config config.yaml --set runtime.run_dir=late runtime.end_time=1700000000 >late.log 2>&1
[ $? = 78 ] || fail "late: another status than 78"
grep -q '^fsdp: runtime.end_time: 1700000000 has passed [0-9]* s ago; 0: what Slurm says$' late.log || { fail "late: no line"; cat late.log; }

if [ -n "${MPIRUN:-}" ]; then
  # mpirun passes SIGTERM on to the ranks and has a status of its own.
  interrupt mpirun_term TERM any itself $MPIRUN -n 2 "$FSDP" train
  grep -q '^stopped by a signal' mpirun_term.log || fail "mpirun_term: which signal is not known"
  interrupt one_rank_term TERM 143 child $MPIRUN -n 2 "$FSDP" train
  # It stops reading what they print before they know of the signal.
  $MPIRUN --mca odls_base_sigkill_timeout 2 -n 2 "$FSDP" train --config config.yaml --set runtime.run_dir=unread \
    train.log_every=1 >unread.log 2>&1 </dev/null &
  pid=$!
  for _ in {1..300}; do [ -s unread/metrics.jsonl ] && break; sleep 0.1; done
  kill -TERM "$pid"
  wait "$pid"
  step=$(tail -1 unread/metrics.jsonl | grep -oE '"step":[0-9]+' | cut -d: -f2)
  "$FSDP" inspect "unread/checkpoints/step-$step" >unread.inspect 2>&1 || { fail "unread: no whole checkpoint of step $step"; cat unread.inspect; tail -3 unread.log; }
  [ -s unread/model/model.safetensors ] || fail "unread: no model"
else
  echo "[SKIP] interrupt under mpirun: no MPI"
fi

[ "$failed" = 0 ] && echo "interrupt: every run ended in order"
exit "$failed"
