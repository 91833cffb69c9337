#!/usr/bin/env bash
# A kernel reads an illegal address, after which every call of the CUDA runtime fails: each command
# says which operation met it and ends with status 1, no rank is left behind, and none ends in abort().
# Environment: FSDP_EMULATED the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

model=$SOURCE/tests/fixtures/models/gpt2
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 100000, batch: 4, log_every: 1, schedule: {kind: constant}}
YAML
gpu=(--backend cuda --threads 1)

# lost NAME command...: what the command says
lost() {
  local name=$1 status
  shift
  timeout 60 "$@" >"$name.log" 2>&1 </dev/null
  status=$?
  [ $status = 1 ] || fail "$name: status $status, expected 1: $(cat "$name.log")"
  grep -qE '^fsdp: .*illegal memory access was encountered' "$name.log" ||
    fail "$name: the fault is not told: $(cat "$name.log")"
  ! grep -q 'terminate called' "$name.log" || fail "$name: $(cat "$name.log")"
  ! pgrep -f "runtime.run_dir=$scratch/$name" >/dev/null || fail "$name: a rank is left"
}

"$FSDP_EMULATED" train --config config.yaml --steps 1 --backend cpu --threads 1 --set runtime.run_dir=base \
  >base.log 2>&1 || fail "a run without a fault: $(cat base.log)"

export CUDA_EMULATOR_FAULT=400
for options in "" "--local-ranks 2 --share-gpus" "--set train.recompute.mode=full fsdp.offload=all" "--trace"; do
  name=train${options//[^a-z0-9]/}
  lost "$name" "$FSDP_EMULATED" train --config config.yaml "${gpu[@]}" $options --set "runtime.run_dir=$scratch/$name"
done
export CUDA_EMULATOR_FAULT=20
lost verify "$FSDP_EMULATED" verify "$model" "${gpu[@]}"
lost generate "$FSDP_EMULATED" generate "$model" --ids 1,2,3 --tokens 20 "${gpu[@]}"
lost eval "$FSDP_EMULATED" eval base/model --data text.txt "${gpu[@]}"
CUDA_EMULATOR_FAULT=200 lost generate_later "$FSDP_EMULATED" generate "$model" --ids 1,2,3 --tokens 50 "${gpu[@]}"
export CUDA_EMULATOR_FAULT=1
lost bench_step "$FSDP_EMULATED" bench step --batch 1 --seq 16 --steps 2 "${gpu[@]}"
# While the values are made: the other rank may stand in a collective that this one does not reach.
lost first_kernel "$FSDP_EMULATED" train --config config.yaml "${gpu[@]}" --local-ranks 2 --share-gpus \
  --set fsdp.offload=all "runtime.run_dir=$scratch/first_kernel"
# Over NCCL: when the weights are sent before the first step, and in steps.
for fault in 1 400; do
  CUDA_EMULATOR_FAULT=$fault lost "nccl$fault" "$FSDP_EMULATED" train --config config.yaml "${gpu[@]}" --local-ranks 2 \
    --share-gpus --gpu-transport nccl --set fsdp.sync_module_states=true "runtime.run_dir=$scratch/nccl$fault"
done
unset CUDA_EMULATOR_FAULT

# One of two processes.
if [ -n "${MPIRUN:-}" ]; then
  # shellcheck disable=SC2016
  lost ranks $MPIRUN -n 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export CUDA_EMULATOR_FAULT=400; exec "$@"' fsdp \
    "$FSDP_EMULATED" train --config config.yaml "${gpu[@]}" --share-gpus --set "runtime.run_dir=$scratch/ranks"
  grep -q '^fsdp: .*rank 1' ranks.log || fail "ranks: rank 1 is not named: $(cat ranks.log)"
fi
exit "$failed"
