#!/usr/bin/env bash
# fsdp launch: a job whose process, rank or mpirun is killed starts again and ends with the weights of
# one that nobody disturbed; SIGTERM reaches the ranks and leaves a checkpoint; statuses; --print.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 400, batch: 4, log_every: 1}
checkpoint: {every: 10, keep: 2}
runtime: {monitor_s: 0, heartbeat_s: 2}
YAML
"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=whole >whole.log 2>&1 || { fail "whole"; cat whole.log; }

# killed NAME WHOM launcher: kills WHOM of the job three times, each time after another checkpoint.
# Ranks whose mpirun alone is killed may come to the end of the run: kills_slow.sh has that case.
killed() {
  local name=$1 whom=$2 pid victim; shift 2
  "$FSDP" launch "$@" -n 2 --restart 20 -- train --config config.yaml --set runtime.run_dir="$name" >"$name.log" 2>&1 </dev/null &
  pid=$!
  for kill in 1 2 3; do
    for _ in {1..400}; do
      [ -s "$name/checkpoints/last.json" ] && [ "$(grep -o '"restarts": [0-9]*' "$name/run_args.json")" = "\"restarts\": $((kill - 1))" ] && break
      sleep 0.02
    done
    sleep 0.1
    case $whom in
      job) victim=$(pgrep -P "$pid"); victim="$victim $(pgrep -P "$victim")" ;;
      rank) victim=$(pgrep -P "$(pgrep -P "$pid")" -f train | tail -1) ;;
    esac
    [ "${victim// /}" = "" ] || kill -9 $victim 2>/dev/null
    sleep 0.3
  done
  wait "$pid" || { fail "$name: status $?"; cat "$name.log"; }
  [ "$(grep -o '"restarts": [0-9]*' "$name/run_args.json")" != '"restarts": 0' ] || { fail "$name: nothing was killed"; cat "$name.log"; }
  grep -q '^fsdp: launch: the job ended with status .*; restart 1 of 20 in 1 s$' "$name.log" || { fail "$name: no line about a restart"; cat "$name.log"; }
  [ -n "$(summary whole weights_hash)" ] && [ "$(summary "$name" weights_hash)" = "$(summary whole weights_hash)" ] || fail "$name: another weights_hash"
  costs "$name"
}
# costs NAME: metrics.json says what the failures cost, over all starts
costs() {
  local key
  for key in restarts restart_s lost_s detection_s; do
    awk -v key=$key -v value="$(summary "$1" $key)" 'BEGIN { exit !(value ~ /^[0-9]/ && value < 100 && (value > 0 || key !~ /^restart/)) }' ||
      fail "$1: $key: $(summary "$1" $key)"
  done
}
killed local job local
# What stands in the run directory of it, and of a run that has ended in an error.
"$FSDP" status local >status.log 2>&1 || fail "status: $?"
grep -q '^local: ended: done (' status.log && grep -q '^  last interruptions (failures.jsonl):$' status.log || { fail "status"; cat status.log; }
grep -q '"cause":"killed by signal 9","status":137,' local/failures.jsonl || { fail "failures.jsonl"; cat local/failures.jsonl; }
# sums RUN: failures.jsonl and metrics.json agree
sums() {
  local key sum
  for key in lost_s detection_s pause_s restart_s; do
    sum=$(grep -o "\"$key\":[^,}]*" "$1/failures.jsonl" | awk -F: '{ all += $2 } END { print all }')
    awk -v sum="$sum" -v all="$(summary "$1" $key)" 'BEGIN { exit !(sum - all < 0.01 && all - sum < 0.01) }' ||
      fail "$1: failures.jsonl: $key: $sum, and $(summary "$1" $key) in metrics.json"
  done
}
sums local
# A start that was killed after it had completed its line of failures.jsonl, before progress.json had a step.
"$FSDP" train --config config.yaml --set runtime.run_dir=between train.steps=20 >between.log 2>&1 || { fail "between"; cat between.log; }
sed -i 's/"seen": *[0-9.e+]*/"seen": 0/; s/"restarts": *0/"restarts": 1/' between/progress.json
echo '{"time":1,"status":137,"cause":"killed by signal 9","restart":1,"step":9,"pause_s":50.0,"restart_s":7.0}' >between/failures.jsonl
"$FSDP" train --config config.yaml --resume auto --set runtime.run_dir=between train.steps=30 >between.log 2>&1 || { fail "between: start again"; cat between.log; }
[ "$(summary between restarts)" = 2 ] || { fail "between: $(summary between restarts) restarts"; cat between.log; }
sums between
"$FSDP" train --config config.yaml --set runtime.run_dir=diverged train.lr=1e30 train.steps=30 >diverged.log 2>&1
[ $? = 76 ] || { fail "diverged: another status than 76"; cat diverged.log; }
"$FSDP" status --json diverged | grep -q '"state":"failed",.*"ended":{"status":76,"reason":"[^"]*not finite' || { fail "status of a run that failed"; "$FSDP" status --json diverged; }
"$FSDP" compare whole diverged >compare.log 2>&1 && grep -q '^second: diverged (failed)$' compare.log || { fail "compare with a run that failed"; cat compare.log; }
"$FSDP" status text.txt >wrong.log 2>&1 && fail "status of a file"
"$FSDP" status --json absent local >several.log 2>/dev/null && fail "status of a folder that is not there: 0"
[ "$(grep -c '^{"run_directory":"absent","error":"absent: no such folder"}$\|^{"run_directory":"local",' several.log)" = 2 ] || { fail "status of several folders"; cat several.log; }
grep -q '^fsdp: text.txt: no such folder$' wrong.log || { fail "status of a file"; cat wrong.log; }
# A job that Slurm starts again does not begin where its storage is missing; a log without room undoes nothing.
SLURM_RESTART_COUNT=3 "$FSDP" train --config config.yaml --resume auto --set runtime.run_dir=mount/run >wrong.log 2>&1
[ $? = 1 ] || { fail "requeued: another status than 1"; cat wrong.log; }
grep -q 'SLURM_RESTART_COUNT=3): has the mount gone?' wrong.log && [ ! -e mount ] || { fail "requeued"; cat wrong.log; }
"$FSDP" launch local -n 2 --restart 3 -- train --config config.yaml --set runtime.run_dir=local >/dev/full 2>full.log </dev/null || fail "no room for the log: status $?"
grep -q '^fsdp: warning: standard output cannot be written: .*; the run is done all the same$' full.log || { fail "no room for the log"; cat full.log; }
# stopped NAME launcher: SIGTERM to the parent, and the checkpoint of the last step
stopped() {
  local name=$1 pid status step; shift
  "$FSDP" launch "$@" -n 2 -- train --config config.yaml --set runtime.run_dir="$name" train.steps=100000000 >"$name.log" 2>&1 </dev/null &
  pid=$!
  for _ in {1..400}; do [ -s "$name/metrics.jsonl" ] && break; sleep 0.02; done
  kill -TERM "$pid"
  wait "$pid"
  status=$?
  [ "$status" = 143 ] || { fail "$name: status $status instead of 143"; cat "$name.log"; }
  step=$(tail -1 "$name/metrics.jsonl" | grep -o '"step":[0-9]*' | cut -d: -f2)
  [ -e "$name/checkpoints/step-$step/checkpoint.json" ] || fail "$name: no checkpoint of step $step"
}
stopped local_term local
[ "$(summary whole restarts) $(summary whole lost_s)" = "0 0.0" ] || fail "whole: $(summary whole restarts) restarts"

# What another start would not mend ends at once.
for mistake in train.lrr=1 model.hidden_size=17; do
  "$FSDP" launch local -n 1 --restart 5 -- train --config config.yaml --set runtime.run_dir=wrong $mistake >wrong.log 2>&1
  [ $? = 78 ] || { fail "$mistake: another status than 78"; cat wrong.log; }
  grep -q 'restart 1' wrong.log && fail "$mistake: started again"
done
"$FSDP" launch local -n 1 --restart 5 -- eval whole --data text.txt >wrong.log 2>&1 && fail "eval: started again"
grep -q '^fsdp: launch: --restart: only train can go on where it was, got eval$' wrong.log || { fail "eval: no line"; cat wrong.log; }
"$FSDP" launch local -n 2 -- eval whole --data text.txt >eval.log 2>&1 || { fail "eval: status $?"; cat eval.log; }
"$FSDP" launch mpirun -n 2 --print -- train --config 'my config.yaml' |
  grep -qE "^mpirun -n 2 .*fsdp train --config 'my config.yaml'$" || fail "--print"

# Job files of other batch systems; a file of hosts.
"$FSDP" launch pbs -n 4 --nodes 2 --time 1:00:00 -- train --config config.yaml --set runtime.run_dir=pbs >pbs.log 2>&1 || { fail "pbs: status $?"; cat pbs.log; }
bash -n fsdp.pbs && grep -q ' launch mpirun --hosts "@$PBS_NODEFILE" -n 4 .*runtime.end_time=' fsdp.pbs || { fail "pbs"; cat fsdp.pbs; }
printf 'mine\n' >fsdp.lsf
"$FSDP" launch lsf -n 4 -- train --config config.yaml --set runtime.run_dir=lsf >lsf.log 2>&1
[ "$? $(cat fsdp.lsf)" = "78 mine" ] || { fail "lsf: a file of somebody else's was replaced"; cat lsf.log; }
printf '# ours\na slots=2\r\nb slots=2\n' >hosts
"$FSDP" launch mpirun --hosts hosts --print -- train | grep -q '^mpirun -n 4 --host a:2,b:2 ' || fail "--hosts: a file"

# Where ranks cannot be started, it is a mistake.
for mistake in '-n 5 --hosts a:2,b:2' '--hosts a:x' ''; do
  "$FSDP" launch mpirun $mistake -- train --config config.yaml >wrong.log 2>&1
  [ $? = 78 ] || { fail "launch mpirun $mistake: another status than 78"; cat wrong.log; }
done
grep -q '^fsdp: launch: expected -n, or --hosts$' wrong.log || { fail "launch mpirun: no line"; cat wrong.log; }

# A job for Slurm is checked when it is written. In a queue: slurm_slow.sh.
printf '#SBATCH --account=abc\nmodule load openmpi\n' >site.sh
"$FSDP" launch slurm --config config.yaml -n 4 --nodes 2 --with srun --site site.sh --set runtime.run_dir=queued >slurm.log 2>&1 ||
  { fail "slurm: status $?"; cat slurm.log; }
grep -q '^fsdp: launch: fsdp.sbatch is written: sbatch fsdp.sbatch$' slurm.log || fail "slurm: $(cat slurm.log)"
grep -qE "^[^ ]*/fsdp launch srun -n 4 --restart 3 -- train --config config.yaml --set runtime.run_dir=queued --resume auto &$" fsdp.sbatch || { fail "slurm: no command"; cat fsdp.sbatch; }
bash -n fsdp.sbatch || fail "slurm: the file is no shell script"
# refused WORDS... MESSAGE: of launch slurm
refused() {
  "$FSDP" launch slurm --config config.yaml -n 4 --with srun "${@:1:$#-1}" >slurm.log 2>&1
  [ $? = 78 ] || fail "slurm ${*:1:$#-1}: another status than 78"
  grep -qF -- "${*: -1}" slurm.log || { fail "slurm ${*:1:$#-1}"; cat slurm.log; }
}
refused 'launch slurm: needs runtime.run_dir, the folder in which the run continues'
refused --set runtime.run_dir=q train.lrr=1 'train.lrr'
refused --set runtime.run_dir=q --vary 'train.lr=[1e-4, fast]' 'train.lr: expected a number'
refused --set runtime.run_dir=q --vary 'runtime.run_dir=[a, b]' 'each job has a directory of its own already'
refused --set runtime.run_dir=q runtime.end_time=1795680000 'Slurm says when the time of a job is over'
refused --set runtime.run_dir=q --nodes 3 '-n 4: no multiple of --nodes 3'
refused --set runtime.run_dir=q --site absent.sh 'absent.sh'
refused --set runtime.run_dir=q --file config.yaml '--file: config.yaml exists, and fsdp launch slurm has not written it'

if [ -n "${MPIRUN:-}" ]; then
  killed mpi_rank rank mpirun
  killed mpi_job job mpirun
  stopped mpi_term mpirun
else
  echo "[SKIP] launch mpirun: no MPI"
fi
[ "$failed" = 0 ] && echo "launch: every job came to its end"
exit "$failed"
