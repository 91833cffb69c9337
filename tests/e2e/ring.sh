#!/usr/bin/env bash
# A job in trouble says where it is and ends: SIGUSR2 asks a healthy one; one rank meets bad data in
# the middle of training, runs out of memory, is killed, or stops answering. No rank is left behind,
# nor anything in /dev/shm or the temporary folder.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
# Requirements: S3.14.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 10000000, batch: 4, log_every: 10, schedule: {kind: constant}}
YAML
train="train --config config.yaml --threads 1"

# What a report says of a rank that was in training.
place='step [0-9]+, ((forward|backward), unit (root|embedding|head|blocks\.[01])|optimizer)'

# start NAME command...: in the background; waits until a few steps are logged, or $logged. Sets $pid.
start() {
  local name=$1
  shift
  mkdir "tmp.$name"
  TMPDIR=$scratch/tmp.$name "$@" --set "runtime.run_dir=$name" >"$name.log" 2>&1 </dev/null &
  pid=$!
  for _ in {1..600}; do
    [ "$(cat "$name/metrics.jsonl" 2>/dev/null | wc -l)" -ge "${logged:-3}" ] && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  fail "$name: no steps"
}
# rank_process N: the process of rank N of the job
rank_process() {
  local process
  for process in $(pgrep -P "$pid"); do
    tr '\0' '\n' <"/proc/$process/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$process"
  done
}
# shared PROCESS...: the files of /dev/shm that these have mapped
shared() { for process; do grep -o '/dev/shm/[^ ]*$' "/proc/$process/maps"; done 2>/dev/null | sort -u; }
mapped=
# left_nothing NAME FILE...: none of these, nor what mpirun or a rank keeps in the temporary folder
left_nothing() {
  local name=$1 file
  shift
  for file; do [ ! -e "$file" ] || fail "$name: $file is left"; done
  for file in $(find "tmp.$name" ! -type d); do fail "$name: $file is left"; done
}
# ends NAME SECONDS: the job of $pid fails within this time, and its ranks are gone. Its files of
# /dev/shm: $mapped, where a test has looked before it stopped or killed a rank, and those of now.
ends() {
  local name=$1 limit=$2 begin=$SECONDS ranks files
  ranks=$(pgrep -P "$pid")
  files="$mapped $(shared $ranks)"
  mapped=
  while kill -0 "$pid" 2>/dev/null && [ $((SECONDS - begin)) -lt "$limit" ]; do sleep 0.2; done
  if kill -0 "$pid" 2>/dev/null; then
    fail "$name: still running after $limit s"
    kill -9 "$pid" $ranks
  fi
  wait "$pid" && fail "$name: status 0"
  for rank in $ranks; do  # mpirun may end a moment before them
    for _ in {1..50}; do kill -0 "$rank" 2>/dev/null && sleep 0.1; done
    kill -0 "$rank" 2>/dev/null && fail "$name: process $rank is left"
  done
  left_nothing "$name" $files
}
# says NAME 'regular expression'
says() { grep -qE -e "$2" "$1.log" || fail "$1: no line '$2'"; }
# waits_for FILE 'regular expression'
waits_for() {
  for _ in {1..100}; do
    grep -qE -e "$2" "$1" 2>/dev/null && return
    sleep 0.1
  done
  fail "$1: no line '$2' within 10 s"
}
stop() { kill -TERM "$pid"; wait "$pid"; }

# ---- asked by a person ---------------------------------------------------------------------------
start threads "$FSDP" $train --local-ranks 3
kill -USR2 "$pid"
waits_for threads/rings.txt 'rank 2 \('
kill -0 "$pid" || fail "threads: SIGUSR2 ended the run"
stop
says threads 'the last collectives of 3 ranks'
for rank in 0 1 2; do
  grep -q '"unit": "blocks.1"' "threads/ring.rank$rank.json" ||
    fail "threads: ring.rank$rank.json has no call of the second block"
done
if [ -z "${MPIRUN:-}" ]; then
  echo "[SKIP] jobs in trouble under mpirun: no MPI"
  [ "$failed" = 0 ] || cat ./*.log
  exit "$failed"
fi

start asked $MPIRUN -n 2 "$FSDP" $train
kill -USR2 "$(rank_process 1)"  # passed on to rank 0, which speaks
waits_for asked/rings.txt 'rank 1 \('
grep -q 'no answer' asked/rings.txt && fail "asked: a rank did not answer"
rm -f asked/rings.txt
sleep 1.1  # requests within a second belong together
kill -USR2 "$pid"  # mpirun passes it on to all
waits_for asked/rings.txt 'rank 1 \('
sleep 0.5
stop
[ "$(grep -c '^the last collectives of 2 ranks' asked.log)" = 2 ] ||
  fail "asked: another number of answers than of times that somebody asked"
grep -q 'waits for' asked.log && fail "asked: a healthy job's rank waits for another"

# ---- another model on one rank -------------------------------------------------------------------
$MPIRUN -n 2 bash -c 'exec "$0" "$@" --set model.ffn=$((40 + OMPI_COMM_WORLD_RANK))' \
  "$FSDP" $train --set runtime.run_dir=differ >differ.log 2>&1 </dev/null && fail "differ: status 0"
says differ '^fsdp: .*different configurations: model.ffn: 40 on rank 0, 41 on rank 1'

# ---- bad data on one rank, in the middle ---------------------------------------------------------
# Rank 1 reads tokens of its own; then they are no tokens any more.
"$FSDP" $train --set train.steps=1 data.cache_dir=cache0 runtime.run_dir=warm >warm.log 2>&1 || fail "no token cache"
cp -r cache0 cache1
start bad_data $MPIRUN -n 2 bash -c \
  'exec "$0" "$@" --set data.cache_dir=cache$OMPI_COMM_WORLD_RANK' "$FSDP" $train
file=$(find cache1 -type f | head -1)
head -c 2000 /dev/zero | tr '\0' '\377' | dd of="$file" bs=2000 conv=notrunc status=none
ends bad_data 30
says bad_data '^fsdp: rank 1 \(.+\): .*token: expected within the vocabulary'
says bad_data 'rank 0 \(.*process'
[ "$(grep -c '^fsdp: ' bad_data.log)" = 1 ] || fail "bad_data: more than one rank says why"

# ---- killed --------------------------------------------------------------------------------------
start killed $MPIRUN -n 2 "$FSDP" $train
mapped=$(shared $(pgrep -P "$pid"))
if $MPIRUN --version 2>&1 | grep -qE '(Open MPI|OpenRTE)\) 4'; then
  [ -n "$mapped" ] || fail "killed: a job has nothing in /dev/shm that it could leave"
fi
kill -9 "$(rank_process 1)"
ends killed 30
# The last beat may be of the set-up; where the other rank is, it knows.
says killed "^fsdp: rank 1 \\(.+, process [0-9]+\\) is gone: killed, or ended without a word; (last heard of in [^;]+; )?rank 0 is in $place\$"
says killed 'rank 0 \(.*process'
[ "$(grep -c '^fsdp: ' killed.log)" = 1 ] || fail "killed: more than one rank says why"

# A launcher that leaves the others alone: they notice by themselves.
if $MPIRUN --version 2>&1 | grep -qE '(Open MPI|OpenRTE)\) 4'; then
  start left_alone $MPIRUN --enable-recovery -n 3 "$FSDP" $train
  ranks=$(pgrep -P "$pid")
  kill -9 "$(rank_process 1)"
  for _ in {1..300}; do kill -0 "$pid" 2>/dev/null && sleep 0.1; done
  kill -0 "$pid" 2>/dev/null && { fail "left_alone: still running after 30 s"; kill -9 "$pid" $ranks; }
  says left_alone "^fsdp: rank 1 \\(.+, process [0-9]+\\) is gone: killed.*; rank [02] is in $place\$"
  says left_alone 'rank 2 \(.*process'
fi

# ---- out of memory, on one rank, in the middle ------------------------------------------------------
if command -v prlimit >/dev/null; then
  # Nothing grows with the steps but the losses since the last line, whose vector doubles: with one
  # line for ever, the next allocation comes after as many steps as there were before.
  logged=1 start memory $MPIRUN -n 2 "$FSDP" $train --set train.log_every=1000000
  mapped=$(shared $(pgrep -P "$pid"))
  prlimit --pid "$(rank_process 1)" --as=4096 --data=4096  # it has what it has, and gets no more
  ends memory 120
  # The first allocation that fails may be the code of a product: then its operation stands before it.
  says memory "^fsdp: rank 1 \\([^,]+\\): (\\[.+\\] )?out of memory: .*; its last collective was in $place\$"
  [ "$(grep -c '^fsdp: ' memory.log)" = 1 ] || fail "memory: more than one rank says why"
else
  echo "[SKIP] out of memory on one rank: no prlimit (util-linux)"
fi

# ---- stops answering -----------------------------------------------------------------------------
start stalled $MPIRUN -n 4 "$FSDP" $train --set runtime.timeout_s=3
kill -STOP "$(rank_process 2)"
ends stalled 30
# The rank that says it is the one that waited.
says stalled '^fsdp: rank ([013]) \(.*: rank \1 waited 3 s for (rank 2|another rank) '
says stalled 'waits for rank 2 \('
says stalled 'rank 2 \(.*\): no answer: the process is stopped'
says stalled 'look first at rank 2: '
[ "$(grep -c '^fsdp: rank' stalled.log)" = 1 ] || fail "stalled: more than one rank says why"

# Found by the heartbeat, long before a collective has taken too long.
start silent $MPIRUN -n 3 "$FSDP" $train --set runtime.heartbeat_s=2
sleep 0.6  # two beats: ranks have told each other where they are
mapped=$(shared $(pgrep -P "$pid"))
kill -STOP "$(rank_process 1)"
ends silent 30
says silent "^fsdp: rank 1 \\(.+, process [0-9]+\\): no sign of life for 2 s: its process is stopped; last heard of in $place; rank [02] is in $place\$"
[ "$(grep -c '^fsdp: rank' silent.log)" = 1 ] || fail "silent: more than one rank says why"

# A job that is suspended as a whole, and continued, lives on. Meanwhile:
start suspended $MPIRUN -n 2 "$FSDP" $train --set runtime.heartbeat_s=2 runtime.timeout_s=3
suspended=$pid begin=$SECONDS
ranks=$(pgrep -P "$pid")
for rank in $ranks; do kill -STOP "$rank"; sleep 0.2; done

# Before the ranks know of each other: a rank that is stopped as soon as it is there.
mkdir tmp.at_start
TMPDIR=$scratch/tmp.at_start $MPIRUN -n 3 "$FSDP" $train --set runtime.heartbeat_s=2 >at_start.log 2>&1 </dev/null &
pid=$!
for _ in {1..500}; do target=$(rank_process 1); [ -n "$target" ] && break; sleep 0.01; done
kill -STOP "$target"
ends at_start 30
says at_start '^fsdp: rank 1 \(.+, process [0-9]+\): no sign of life for 2 s: its process is stopped'

while [ $((SECONDS - begin)) -lt 5 ]; do sleep 0.2; done
pid=$suspended
before=$(wc -l <suspended/metrics.jsonl)
for rank in $ranks; do kill -CONT "$rank"; sleep 0.2; done
for _ in {1..100}; do [ "$(wc -l <suspended/metrics.jsonl)" -gt $((before + 5)) ] && break; sleep 0.1; done
[ "$(wc -l <suspended/metrics.jsonl)" -gt $((before + 5)) ] || fail "suspended: no step after it was continued"
stop
grep -q '^fsdp: rank' suspended.log && fail "suspended: a rank was taken for silent"

[ "$failed" = 0 ] && echo "jobs in trouble: each said where it was, and ended" || cat ./*.log
exit "$failed"
