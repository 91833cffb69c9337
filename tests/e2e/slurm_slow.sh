#!/usr/bin/env bash
# fsdp launch slurm, in a queue: a job that is told of its limit, is queued again and goes on to the bits
# of a run that nobody disturbed; a node that dies; an array; mpirun in place of srun; the statuses; a job that fails, with the node left out.
# Network namespaces are the nodes.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
# Requirements: S2.12.
source "$(dirname "$0")/../support/e2e.sh"
source "$(dirname "$0")/../support/slurm.sh"
[ -n "${MPIRUN:-}" ] || { echo "[SKIP] Slurm: no MPI"; exit 77; }
slurm_start 3
export OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=passive
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 400, batch: 4, log_every: 50}
checkpoint: {every: 50}
runtime: {monitor_s: 0, heartbeat_s: 3, threads: 1}
YAML
cat >site.sh <<'SITE'
#SBATCH --partition=main
#SBATCH --mem=100
export SITE_WAS_HERE=1
SITE

launch() { on n0 "$FSDP" launch slurm --config config.yaml --site site.sh "$@"; }
state() { on n0 scontrol show job -o "$1" 2>/dev/null | sed -n 's/.* JobState=\([A-Z_]*\) Reason=\([A-Za-z_]*\).*/\1 \2/p'; }
# to_end JOB SECONDS: a job that waits because it was queued again (two minutes in Slurm) begins at once.
to_end() {
  local begin=$SECONDS
  while [ $((SECONDS - begin)) -lt "$2" ]; do
    case "$(state "$1")" in
      COMPLETED*|FAILED*|CANCELLED*|TIMEOUT*|NODE_FAIL*) return ;;
      *BeginTime) on n0 scontrol update JobId="$1" StartTime=now ;;
    esac
    sleep 0.5
  done
  fail "job $1: still $(state "$1") after $2 s"
  on n0 scancel "$1"
}
# waits_again JOB SECONDS: until Slurm has queued the job again
waits_again() {
  local begin=$SECONDS
  until [ "$(state "$1")" = "PENDING BeginTime" ]; do
    case "$(state "$1")" in COMPLETED*|FAILED*|CANCELLED*) return 1 ;; esac
    [ $((SECONDS - begin)) -lt "$2" ] || { fail "job $1 was not queued again: $(state "$1")"; return 1; }
    sleep 0.2
  done
}
same() {
  [ -n "$(summary "$2" weights_hash)" ] && [ "$(summary "$1" weights_hash)" = "$(summary "$2" weights_hash)" ] ||
    fail "$2: another weights_hash than $1"
}
slurm_of() { sed -n "/\"slurm\"/,/}/s/.*\"$2\": *\"\{0,1\}\([^\",]*\).*/\1/p" "$1/run_args.json"; }

"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=whole >whole.log 2>&1 || { fail whole; cat whole.log; }

"$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=long train.steps=1000 >long.log 2>&1 || { fail long; cat long.log; }

# 1. Followed to its end, on two nodes.
launch -n 2 --nodes 2 --set runtime.run_dir=plain --wait >wait.log 2>&1 </dev/null || { fail "--wait: status $?"; cat wait.log; }
same whole plain
grep -q '^fsdp: launch: srun --mpi=pmix starts the ranks$' wait.log || fail "--wait: does not say what starts the ranks"
grep -q '^fsdp: launch: job [0-9]*: COMPLETED, status 0$' wait.log || fail "--wait: no end"
grep -q '^step  *400/400' wait.log || fail "--wait: the job's log is not shown"
[ "$(slurm_of plain nodes) $(slurm_of plain restarts)" = "n[0-1] 0" ] || fail "run_args.json: $(grep -A5 '"slurm"' plain/run_args.json)"
[ "$failed" = 0 ] || cat wait.log

# 2. Told to stop by Slurm, and queued again. Twice.
id=$(launch -n 2 --nodes 2 --set runtime.run_dir=again train.steps=1000 --submit 2>&1 | tee submit.log | sed -n 's/.*job \([0-9]*\) is submitted.*/\1/p')
for stop in 1 2; do
  for _ in {1..300}; do [ -s again/checkpoints/last.json ] && [ "$(slurm_of again restarts)" = $((stop - 1)) ] && break; sleep 0.1; done
  on n0 scancel --batch --signal=USR1 "$id"
  waits_again "$id" 30 || break
  on n0 scontrol update JobId="$id" StartTime=now
done
to_end "$id" 60
same long again
echo "queued again: $(slurm_of again restarts) times"
[ "$(slurm_of again restarts)" = 2 ] || { fail "again: was not queued again"; cat submit.log again-*.log; }

# 3. A node dies: Slurm queues the job again, which waits for the node.
id=$(launch -n 2 --nodes 2 --set runtime.run_dir=node train.steps=1000 --submit 2>&1 | sed -n 's/.*job \([0-9]*\) is submitted.*/\1/p')
for _ in {1..300}; do [ -s node/checkpoints/last.json ] && break; sleep 0.1; done
slurm_kill n1
begin=$SECONDS
waits_again "$id" 60 && echo "a node died: the job was queued again after $((SECONDS - begin)) s"
slurm_revive n1
for _ in {1..100}; do [ "$(on n0 sinfo -h -n n1 -o %T)" = idle ] && break; sleep 0.2; done
sleep 3  # until Slurm has looked at what runs there
to_end "$id" 90
same long node
[ "$failed" = 0 ] || cat node-*.log

# 4. An array of four, two at once.
for seed in 1 4; do
  "$FSDP" train --config config.yaml --local-ranks 2 --set runtime.run_dir=seed$seed train.seed=$seed >seed.log 2>&1
done
launch -n 2 --set runtime.run_dir=seeds --vary 'train.seed=[1, 2, 3, 4]' --at-once 2 --wait >array.log 2>&1 </dev/null ||
  { fail "array: status $?"; cat array.log; }
same seed1 seeds/seed=1
same seed4 seeds/seed=4
for seed in 1 2 3 4; do [ "$(slurm_of seeds/seed=$seed array_task_id)" = $((seed - 1)) ] || fail "array: seed $seed: run_args.json"; done

# Of an array only the job that was told to stop is queued again, also the one whose number is the array's.
launch -n 2 --set runtime.run_dir=told train.steps=4000 --vary 'train.seed=[1, 2]' --submit >told.txt 2>&1
id=$(sed -n 's/.*job \([0-9]*\) is submitted.*/\1/p' told.txt)
for seed in 1 2; do for _ in {1..600}; do [ -s told/seed=$seed/checkpoints/last.json ] && break; sleep 0.1; done; done
for task in 0 1; do
  on n0 scancel --batch --signal=USR1 "${id}_$task"
  for _ in {1..150}; do
    restarts=$(on n0 scontrol show job -o "$id" | sed -n 's/.* ArrayTaskId=\([0-9]*\) .* Restarts=\([0-9]*\) .*/\1:\2/p' | sort | tr '\n' ' ')
    [ "$task $restarts" = "0 0:1 1:0 " ] || [ "$task $restarts" = "1 0:1 1:1 " ] && break
    sleep 0.1
  done
  [ "$task $restarts" = "0 0:1 1:0 " ] || [ "$task $restarts" = "1 0:1 1:1 " ] || fail "array: restarts after job $task was told to stop: $restarts"
done
on n0 scancel "$id"

# 5. mpirun in place of srun.
launch -n 2 --nodes 2 --with mpirun --set runtime.run_dir=mpirun --wait >mpirun.log 2>&1 </dev/null || { fail "mpirun: status $?"; cat mpirun.log; }
same whole mpirun

# 6. A limit of a minute: the run knows of it, and stops in time. It is not long enough for the job.
launch -n 2 --nodes 2 --time 1 --grace 5 --set runtime.run_dir=limit train.steps=1000000000 runtime.grace_s=20 --submit >limit.txt 2>&1
id=$(sed -n 's/.*job \([0-9]*\) is submitted.*/\1/p' limit.txt)
waits_again "$id" 100
grep -q '^the time of the job is over at .* (Slurm)$' limit-*.log || { fail "limit: the run does not know of it"; cat limit-*.log; }
# Slurm's own signal may come up to a minute early.
grep -qE "^stopped by (SIGUSR1|the end of the job's time) after step" limit-*.log || { fail "limit: the run did not stop"; cat limit-*.log; }
on n0 scancel "$id"

# 7. Statuses: a mistake is not queued again.
launch -n 2 --set runtime.run_dir=wrong data.train=absent.txt --wait >wrong.log 2>&1 </dev/null
[ $? = 78 ] || { fail "a mistake: another status than 78"; cat wrong.log; }
# 8. A person's scancel, failures, and a node that fails.
excluded() { on n0 scontrol show job "$1" | sed -n 's/ *$//; s/.* ExcNodeList=//p'; }
comment() { on n0 scontrol show job "$1" | sed -n 's/ *$//; s/^ *Comment=//p'; }
begun() { for _ in {1..600}; do [ -s "$1/checkpoints/last.json" ] && return; sleep 0.1; done; fail "$1: no checkpoint"; }
submitted() { launch -n 2 --nodes 2 "$@" --submit 2>&1 | sed -n 's/.*job \([0-9]*\) is submitted.*/\1/p'; }
rank_on() { ip netns pids $tag$1 | xargs -r ps -o pid=,args= -p | sed -n 's/^ *\([0-9]*\) [^ ]*fsdp train .*/\1/p'; }
id=$(submitted --set runtime.run_dir=cancelled train.steps=1000000000)
begun cancelled
on n0 scancel "$id"
to_end "$id" 200
[ "$(state "$id")" = "CANCELLED None" ] || fail "cancelled: $(state "$id")"
sleep 3
[ "$(state "$id")" = "CANCELLED None" ] || fail "cancelled: $(state "$id")"

# fsdp launch is killed: its ranks save, and the job goes on.
id=$(submitted --set runtime.run_dir=orphan train.steps=1000)
begun orphan
pgrep -f "[f]sdp launch srun.*runtime.run_dir=orphan" | xargs -r kill -9
waits_again "$id" 60 && echo "fsdp launch was killed: the job was queued again: $(comment "$id")"
[ "$(comment "$id") $(excluded "$id")" = "failed starts: 1 (null)" ] || fail "orphan: $(comment "$id"), without $(excluded "$id")"
to_end "$id" 400
same long orphan
[ "$failed" = 0 ] || cat orphan-*.log

# A rank of n1 dies: the job goes on without n1.
id=$(submitted --restart 0 --set runtime.run_dir=bad train.steps=1000)
begun bad
rank_on n1 | xargs -r kill -9
waits_again "$id" 60
for _ in {1..40}; do [ "$(excluded "$id")" = n1 ] && break; sleep 0.25; done
echo "a rank of n1 was killed: queued again: $(comment "$id"), without $(excluded "$id")"
[ "$(comment "$id") $(excluded "$id")" = "failed starts: 1 n1" ] || fail "bad: $(comment "$id"), without $(excluded "$id")"
to_end "$id" 400
same long bad
grep -q '"nodes": "n\[0,2\]"' bad/run_args.json || fail "bad: went on on $(slurm_of bad nodes)"
[ "$failed" = 0 ] || cat bad-*.log

# So many failures in a row, and no more.
id=$(submitted --restart 0 --requeue 1 --set runtime.run_dir=often train.steps=1000000000)
begun often
rank_on n0 | xargs -r kill -9
waits_again "$id" 60 && on n0 scontrol update JobId="$id" StartTime=now
for _ in {1..600}; do [ "$(slurm_of often restarts)" = 1 ] && [ -n "$(rank_on n1)" ] && break; sleep 0.1; done
sleep 1
rank_on n1 | xargs -r kill -9
to_end "$id" 200
[ "$(state "$id")" = "FAILED NonZeroExitCode" ] || fail "often: $(state "$id")"
grep -q "not queued again after 1 failed starts in a row$" often-*.log || { fail "often: no line"; cat often-*.log; }
[ "$failed" = 0 ] && echo "slurm: every job came to its end"
exit "$failed"
