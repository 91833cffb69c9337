#!/usr/bin/env bash
# A text of 200 MB becomes tokens while the other rank waits, with runtime.timeout_s=5: the job lives as
# long as the rank goes on, and ends when it stands still; what a killed one has left goes.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..2000}; do echo "line $i of a text that has $((i * 7919 % 1000)) words, or $((i * 104729 % 997)) more"; done >part.txt
while [ "$(stat -c %s text.txt 2>/dev/null || echo 0)" -lt 200000000 ]; do cat part.txt part.txt part.txt part.txt >>text.txt; done
cat >config.yaml <<YAML
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: text.txt, sequence_length: 32, tokenizer: $SOURCE/tests/fixtures/tokenizers/qwen2/tokenizer.json, cache_dir: cache}
train: {steps: 2, batch: 2, save: false}
runtime: {timeout_s: 5}  # less than the tokens take; the rank tells of each MiB
YAML
train="train --config config.yaml --threads 1"

"$FSDP" $train --local-ranks 2 --set runtime.run_dir=threads >threads.log 2>&1 || { fail "threads: $?"; cat threads.log; }
if [ -z "${MPIRUN:-}" ]; then
  echo "[SKIP] tokens under mpirun: no MPI"
  exit "$failed"
fi
rm -r cache
# The rank that makes them is stopped: the ranks that wait notice before the heartbeat does.
$MPIRUN -n 2 "$FSDP" $train --set runtime.run_dir=stopped >stopped.log 2>&1 </dev/null &
pid=$!
for _ in {1..300}; do ls cache/*.tmp >/dev/null 2>&1 && break; sleep 0.1; done
sleep 1
for process in $(pgrep -P "$pid"); do
  tr '\0' '\n' <"/proc/$process/environ" | grep -qx OMPI_COMM_WORLD_RANK=0 && kill -STOP "$process"
done
begin=$SECONDS
wait "$pid" && fail "stopped: status 0"
[ $((SECONDS - begin)) -lt 30 ] || fail "stopped: it took $((SECONDS - begin)) s"
grep -qE 'rank 1 waited 5 s for (rank 0|another rank) \(group of 2\); its last collective was in tokenising' stopped.log ||
  { fail "stopped: not told"; cat stopped.log; }
dead=$(ls cache/*.tmp) || fail "stopped: nothing is left"
touch -d '2 minutes ago' "$dead"
$MPIRUN -n 2 "$FSDP" $train --set runtime.run_dir=processes >processes.log 2>&1 </dev/null || { fail "processes: $?"; cat processes.log; }
ls cache/*.tmp >/dev/null 2>&1 && fail "processes: $dead is left"

[ "$failed" = 0 ] && echo "tokens of a large text: waited for as long as they come"
exit "$failed"
