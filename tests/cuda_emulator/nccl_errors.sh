#!/usr/bin/env bash
# One rank has an error, unknown to the others, in the set-up, in a step or in a save, while they wait
# for this rank in collectives of NCCL: every rank ends at once, with that rank's words.
# NCCL's stand-in waits, as NCCL does, for peers that neither abort nor end (nccl.cpp).
# Environment: FSDP_EMULATED the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 10000000, batch: 4, log_every: 1, schedule: {kind: constant}}
YAML
gpus=(--backend cuda --threads 1 --share-gpus --gpu-transport nccl)
train=("$FSDP_EMULATED" train --config config.yaml "${gpus[@]}")
export CUDA_EMULATOR_MEMORY_MIB=8192  # 800 MiB a rank are kept for NCCL

# in_time NAME STATUS 'regular expression' command...: a job that ends soon after its error, which begins when the
# file NAME.injected appears or, without such a file, after the start; no rank lives on.
in_time() {
  local name=$1 expected=$2 line=$3 begin status end
  shift 3
  begin=$EPOCHSECONDS
  timeout 60 "$@" >"$name.log" 2>&1 </dev/null
  status=$?
  end=$EPOCHSECONDS
  [ ! -e "$name.injected" ] || begin=$(stat -c %Y "$name.injected")
  [ $((end - begin)) -le 10 ] || fail "$name: ended $((end - begin)) s after the error"
  [ $status = "$expected" ] || fail "$name: status $status, expected $expected: $(cat "$name.log")"
  [ "$(grep -cE "$line" "$name.log")" = 1 ] || fail "$name: no line '$line': $(cat "$name.log")"
  ! pgrep -f "$scratch/$name" >/dev/null || fail "$name: a rank is left"
}

"${train[@]}" --set train.steps=1 data.cache_dir=cache0 runtime.run_dir=warm >warm.log 2>&1 || fail "no token cache: $(cat warm.log)"
if [ -z "${MPIRUN:-}" ]; then
  echo "[SKIP] ranks that are processes: no MPI"
  exit "$failed"
fi
for fault in 1 400; do
  CUDA_EMULATOR_FAULT=$fault in_time threads$fault 1 '^fsdp: .*illegal memory access' "${train[@]}" --local-ranks 4 \
    --set fsdp.sync_module_states=true "runtime.run_dir=$scratch/threads$fault"
done
cp -r cache0 cache1
# damage RUN: once it trains, rank 1 has no tokens any more
cat >damage <<'SH'
for i in {1..300}; do [ -s "$1/metrics.jsonl" ] && break; sleep 0.1; done
touch "$1.injected"
for file in $(find cache1 -type f); do
  head -c 2000 /dev/zero | tr '\0' '\377' | dd of="$file" bs=2000 conv=notrunc status=none
done
SH
# limit RUN PROCESS: once it trains, it cannot write files any more
cat >limit <<'SH'
for i in {1..300}; do [ -s "$1/metrics.jsonl" ] && break; sleep 0.1; done
touch "$1.injected"
prlimit --pid "$2" --fsize=4096
SH
# shellcheck disable=SC2016
one='if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then eval "$0"; fi; exec "$@"'  # what rank 1 does first
for ranks in 2 4; do
  many=($MPIRUN -n "$ranks" bash -c "$one")
  in_time set_up$ranks 1 '^fsdp: .*rank 1 .*illegal memory access' "${many[@]}" 'export CUDA_EMULATOR_FAULT=1' \
    "${train[@]}" --set fsdp.sync_module_states=true "runtime.run_dir=$scratch/set_up$ranks"
  cp text.txt eval$ranks.txt
  in_time eval$ranks 1 '^fsdp: .*rank 1 .*illegal memory access' "${many[@]}" 'export CUDA_EMULATOR_FAULT=40' \
    "$FSDP_EMULATED" eval warm/model --data "$scratch/eval$ranks.txt" "${gpus[@]}"
  rm -r cache1
  cp -r cache0 cache1
  in_time step$ranks 1 '^fsdp: rank 1 .*token: expected within the vocabulary' "${many[@]}" \
    "bash damage step$ranks & set -- \"\$@\" data.cache_dir=cache1" "${train[@]}" \
    --set "runtime.run_dir=$scratch/step$ranks"
  in_time save$ranks 1 '^fsdp: .*no checkpoint: rank 1: .*File too large' "${many[@]}" "trap '' XFSZ; bash limit save$ranks \$\$ &" "${train[@]}" \
    --set checkpoint.every=20 "runtime.run_dir=$scratch/save$ranks"
done
exit "$failed"
