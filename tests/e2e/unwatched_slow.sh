#!/usr/bin/env bash
# Jobs of `fsdp launch --restart` whose failures nobody looks at: ranks, mpirun or all of a job are killed,
# a disk is full for a while, a file system refuses calls now and then. Each job ends by itself, with the
# weights and the model of a run that nobody disturbed. A shared folder whose entries one rank never sees
# is refused by name (for entries that come late: late_folder.sh).
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), LYING_FOLDER_LIBRARY what
# tests/support/lying_folder.cpp became, FAILURES how many (40), SEED which ones (printed).
source "$(dirname "$0")/../support/e2e.sh"

SEED=${SEED:-$((SRANDOM % 1000000))}
RANDOM=$SEED
echo "SEED=$SEED FAILURES=${FAILURES:-40}"
segments=$(mktemp -d /dev/shm/unwatched.XXXXXX)  # of a mpirun that is killed
mkdir sessions disk
export TMPDIR=$scratch/sessions OMPI_MCA_btl_vader_backing_directory=$segments
trap 'umount "$scratch/disk" 2>/dev/null; rm -rf "$scratch" "$segments"' EXIT
kinds=(kills_local lies_local)
[ -z "${MPIRUN:-}" ] || kinds+=(kills_mpirun lies_mpirun)
if mount -t tmpfs -o size=8m tmpfs disk 2>/dev/null; then
  kinds+=(disk_local)
  [ -z "${MPIRUN:-}" ] || kinds+=(disk_mpirun)
else
  echo "[SKIP] full disk: no file system may be mounted here"
fi
[ -n "${MPIRUN:-}" ] || echo "[SKIP] failures under mpirun: no MPI"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 2000, batch: 4, log_every: 10}
checkpoint: {every: 25, keep: 2}
runtime: {monitor_s: 0, heartbeat_s: 2, timeout_s: 60, io_retry_s: 1}
YAML
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=whole >whole.log 2>&1 || { fail "whole"; cat whole.log; }

pick() { local at=$((RANDOM % $# + 1)); picked=${!at}; }  # one of its arguments
restarts() { grep -cE '; (restart [0-9]+ of|another start in) ' "$1"; }  # LOG
durable_step() { grep -o '"step": *[0-9]*' "$1/checkpoints/last.json" 2>/dev/null | grep -o '[0-9]*$' || echo 0; }
# advances RUN PID: until the job has a newer checkpoint; status 1: it has ended before
advances() {
  local before
  before=$(durable_step "$1")
  while kill -0 "$2" 2>/dev/null; do
    [ "$(durable_step "$1")" -le "$before" ] || return 0
    sleep 0.02
  done
  return 1
}
# kill_part PID: of the job below this parent; counts it where something was killed
kill_part() {
  local job victims
  job=$(pgrep -P "$1")
  [ -n "$job" ] || return
  victims=($(pgrep -P "$job" -f train))
  if [ "${#victims[@]}" = 0 ]; then
    victims=("$job")
  else
    pick rank mpirun all
    case $picked in
      rank) victims=("${victims[RANDOM % ${#victims[@]}]}") ;;
      mpirun) victims=("$job") ;;
      all) victims+=("$job") ;;
    esac
  fi
  kill -9 "${victims[@]}" 2>/dev/null && failures=$((failures + 1))
}
# fill_disk LOG PID: until a start has failed by it
fill_disk() {
  local before
  before=$(restarts "$1")
  dd if=/dev/zero of=disk/filler bs=64k 2>/dev/null
  for _ in {1..600}; do
    [ "$(restarts "$1")" = "$before" ] && kill -0 "$2" 2>/dev/null || break
    sleep 0.05
  done
  rm -f disk/filler
  failures=$((failures + $(restarts "$1") - before))
}
# same RUN: it ended as the run that nobody disturbed
same() {
  local key
  for key in weights_hash optimizer_hash steps true_tokens; do
    [ -n "$(summary whole $key)" ] && [ "$(summary "$1" $key)" = "$(summary whole $key)" ] || fail "$1: another $key"
  done
  cmp -s "$1/model/model.safetensors" whole/model/model.safetensors || fail "$1: another model"
  diff <(lines "$1") <(lines whole) >/dev/null || fail "$1: other lines in metrics.jsonl"
}
# job NAME KIND LAUNCHER: with up to 8 failures
job() {
  local name=$1 kind=$2 launcher=$3 run=$1 pid lies=() first=$failures status
  [ "$kind" != disk ] || run=disk/$name
  mkdir -p "$run"
  : >"$name.lies"
  [ "$kind" != lies ] || lies=(LD_PRELOAD="$LYING_FOLDER_LIBRARY" LYING_FOLDER="$PWD/$run" LYING_EVERY=40 LYING_SEED=$RANDOM LYING_LOG="$PWD/$name.lies")
  env "${lies[@]}" "$FSDP" launch "$launcher" -n 2 --restart 1000 --pause 2 -- train --config config.yaml --set runtime.run_dir="$run" >"$name.log" 2>&1 </dev/null &
  pid=$!
  while [ "$kind" != lies ] && [ $((failures - first)) -lt 8 ] && advances "$run" "$pid"; do
    sleep "0.$((RANDOM % 4))"
    case $kind in kills) kill_part "$pid" ;; disk) fill_disk "$name.log" "$pid" ;; esac
  done
  wait "$pid"
  status=$?
  [ "$status" = 0 ] || { fail "$name: status $status"; cat "$name.log"; }
  [ "$kind" != lies ] || failures=$((failures + $(restarts "$name.log")))
  same "$run"
  count[$kind]=$((${count[$kind]:-0} + failures - first))
  told=$((told + $(wc -l <"$name.lies")))
  echo "$name: $((failures - first)) failures, $SECONDS s"
  [ "$failed" != 0 ] || rm -rf "$run" "$name.log" "$name.lies"
}

# In the meantime: entries that never come. Its status goes to a file: bash forgets the first of many thousand children.
if [ -n "${MPIRUN:-}" ]; then
  {
    LD_PRELOAD=$LYING_FOLDER_LIBRARY LYING_FOLDER=$PWD/never LATE_S=1000000 LATE_RANK=1 $MPIRUN -n 2 "$FSDP" train \
      --config config.yaml --set runtime.run_dir=never/run --resume auto >never.log 2>&1 </dev/null
    echo $? >never.status
  } &
fi
failures=0 told=0
declare -A count=()
for ((round = 1; failures < ${FAILURES:-40} && failed == 0 && round < 1000; ++round)); do
  for kind in "${kinds[@]}"; do
    job "$kind$round" "${kind%_*}" "${kind#*_}"
    [ "$failed" = 0 ] || break
  done
  rm -rf "$segments"/* sessions/*
done
if [ -n "${MPIRUN:-}" ]; then
  for ((i = 0; i < 1200; ++i)); do [ -s never.status ] && break; sleep 0.1; done
  status=$(cat never.status)
  [ "$status" = 78 ] || fail "never: status $status instead of 78"
  grep -q '^fsdp: checkpoint.every: rank 1 on .* does not see what rank 0 on .* writes to never/run/checkpoints' never.log || { fail "never: no line that names the rank"; cat never.log; }
fi
echo "SEED=$SEED, $SECONDS s: $failures failures without a person:" \
  "${count[kills]:-0} kills, ${count[disk]:-0} starts that a full disk ended, ${count[lies]:-0} that refused calls ended ($told calls were refused)"
[ "${count[kills]:-0}" -gt 0 ] && [ "${count[lies]:-0}" -gt 0 ] || fail "a kind of failure did not happen"
[[ " ${kinds[*]} " != *" disk_"* ]] || [ "${count[disk]:-0}" -gt 0 ] || fail "no start was ended by a full disk"
[ "$failed" = 0 ] && echo "unwatched: every job came to its end"
sum_up failures "$failures"
exit "$failed"
