#!/usr/bin/env bash
# A shared folder whose new entries one rank knows late, as a host of a network's file system: a start with
# --resume auto works. Where they never come: unwatched_slow.sh.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), LYING_FOLDER_LIBRARY what
# tests/support/lying_folder.cpp became.
source "$(dirname "$0")/../support/e2e.sh"

if [ -z "${MPIRUN:-}" ]; then
  echo "[SKIP] late entries of a folder: no MPI"
  exit 77
fi
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 10, batch: 4}
checkpoint: {every: 5}
YAML
train() {  # LATE_S STEPS LOG
  LD_PRELOAD=$LYING_FOLDER_LIBRARY LYING_FOLDER=$PWD/shared LATE_S=$1 LATE_RANK=1 $MPIRUN -n 2 "$FSDP" train \
    --config config.yaml --set runtime.run_dir=shared/run train.steps="$2" --resume auto >"$3" 2>&1 </dev/null
}
began=$(date +%s%N)
train 3 10 late.log || { fail "late: status $?"; cat late.log; }
took=$((($(date +%s%N) - began) / 1000000))
[ "$took" -ge 2000 ] || fail "late: it took $took ms: nothing came late"
[ -e shared/run/checkpoints/step-10/checkpoint.json ] || { fail "late: no checkpoint of step 10"; cat late.log; }
# Its folder is there now, what is new in it comes late again.
train 2 15 again.log || { fail "again: status $?"; cat again.log; }
grep -q '^resumed from shared/run/checkpoints/step-10: step 10$' again.log || { fail "again: goes on elsewhere"; cat again.log; }
[ "$failed" = 0 ] && echo "late folder: waited for"
exit "$failed"
