# The stages of `tools/gpu_check.sh second`: ranks, several GPUs, fixtures, single accesses. To be sourced.
# A stage is a function stage_NAME; its last line goes into the table. 77: skipped.
# Read next: tools/gpu_check.sh, which has bench, measured and of_four.
stages="nccl:20 comm:30 ranks:80 strategies:50 killed:30 memory:20 fixtures:60 vocabulary:50 sanitizer:40"

# on_ranks N COMMAND...: processes, each with its own GPU where there are as many, else on GPUs that they share.
on_ranks() {
  local ranks=$1
  shift
  if [ "$gpu_count" -ge "$ranks" ]; then share=""; else share=--share-gpus; fi
  # shellcheck disable=SC2086
  "$run" mpirun -n "$ranks" "$PREBUILT/bin/fsdp" "$@" --backend cuda $share
}
needs_mpi() { [ -x "$PREBUILT/bin/mpirun" ] || { echo "no mpirun was packed"; return 77; }; }
needs_gpus() { [ "$gpu_count" -ge 2 ] || { echo "one GPU"; return 77; }; }

# One rank: NCCL refuses two on a device.
stage_nccl() {
  bench gpt2-124m 4 256 --steps 2 --gpu-transport nccl && echo "one rank over NCCL"
}

stage_comm() {
  needs_mpi && needs_gpus || return
  on_ranks "$gpu_count" bench comm --transport nccl || return
  echo "collectives of $gpu_count GPUs over NCCL, their data checked"
}

# Training runs of PyTorch on sharded ranks.
one_run() {
  local ranks
  ranks=$(sed -n 's/.*"world_size": *\([0-9]*\).*/\1/p' "$PREBUILT/fixtures/fsdp/$1/reference.json" | head -n 1)
  on_ranks "$ranks" verify "$PREBUILT/fixtures/fsdp/$1"
}
stage_ranks() {
  local runs
  needs_mpi || return
  runs=$(cd "$PREBUILT/fixtures/fsdp" && grep -l '"world_size"' ./*/reference.json | cut -d/ -f2)
  [ -z "$SMALL" ] || runs=gpt2_fp32_w2
  of_four one_run <<<"$runs"
  local status=$?
  echo "$(counted); over $([ "$gpu_count" -ge 2 ] && echo "NCCL as far as there are GPUs" || echo "the host, on one GPU")"
  return $status
}

stage_strategies() {
  local strategy failed=0
  needs_mpi && needs_gpus || return
  for strategy in full_shard shard_grad_op shard_optimizer no_shard; do
    on_ranks "$gpu_count" bench step --preset gpt2-124m --batch $((16 * gpu_count)) --seq 1024 --dtype bf16 --steps 3 \
      --strategy $strategy --json | measured || failed=$((failed + 1))
  done
  echo "a step of each of four strategies on $gpu_count GPUs, $failed failed"
  [ $failed = 0 ]
}

# A rank ends without a word in the middle of a run: the others end too, and say which rank it was.
stage_killed() {
  local ranks=$((gpu_count > 1 ? gpu_count : 2)) job victim status=0 begin
  needs_mpi || return
  on_ranks $ranks train --set data.format=synthetic model.model_type=gpt2 model.vocab_size=512 model.hidden_size=64 \
    model.layers=2 model.heads=2 data.sequence_length=32 train.batch=$((2 * ranks)) train.steps=100000 train.log_every=1 \
    train.save=false runtime.run_dir="$work/killed" &
  job=$!
  until [ -s "$work/killed/metrics.jsonl" ]; do
    kill -0 $job 2>/dev/null || { wait $job; echo "the run ended before its first step"; return 1; }
    sleep 0.2
  done
  victim=$(grep -l -z "^OMPI_COMM_WORLD_RANK=1$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | while read -r pid; do
    [ "$(readlink "/proc/$pid/exe")" = "$PREBUILT/bin/fsdp" ] && echo "$pid"; done | head -n 1)
  [ -n "$victim" ] || { kill $job; echo "rank 1 was not found"; return 1; }
  begin=$EPOCHREALTIME
  kill -9 "$victim"
  wait $job || status=$?
  rm -rf "$work/killed"
  [ $status != 0 ] && grep -aq 'fsdp: .*rank 1' "$log" || { echo "status $status, and no line of rank 1"; return 1; }
  printf 'rank 1 of %d was killed: all ended after %.1f s, status %d\n' $ranks "$(seconds_since "$begin")" $status
}

# What every category of the ledger peaks at is a matter of the model, not of the backend.
stage_memory() {
  local backend
  [ -z "$SMALL" ] || { echo "SMALL: no preset is small enough"; return 77; }
  for backend in cpu cuda; do
    "$run" fsdp bench step --preset gpt2-124m --batch 1 --seq 256 --dtype f32 --steps 1 --backend $backend --json >"memory-$backend" || return
    sed 's/.*"peak_bytes_by_category":{\([^}]*\)}.*/\1/' "memory-$backend" | tr ',' '\n' | grep '^"' |
      grep -vE '"(workspace|transport staging)"' >"$backend.txt"
  done
  [ -s cpu.txt ] || { echo "no categories"; return 1; }
  diff cpu.txt cuda.txt || { echo "CPU (<) and GPU (>) differ"; return 1; }
  echo "$(wc -l <cpu.txt) categories of the ledger, the same bytes as on the CPU"
}

one_model() { "$run" fsdp verify "$PREBUILT/fixtures/models/${1% *}" --dtype "${1#* }" --backend cuda; }
stage_fixtures() {
  local folder
  for folder in "$PREBUILT"/fixtures/models/*/; do
    [ -f "$folder/reference.json" ] || continue
    folder=$(basename "$folder")
    [ -z "$SMALL" ] || [ "$folder" = gpt2 ] || continue
    printf '%s\n' "$folder f32" "$folder bf16"
  done | of_four one_model
  local status=$?
  counted
  return $status
}

stage_vocabulary() {
  local vocabulary
  for vocabulary in 50257 50304; do
    train "gpt2-$vocabulary" 64 1024 model.preset=gpt2-124m train.steps=25 model.vocab_size=$vocabulary || return
  done
  echo "an odd vocabulary, and one of whole tiles"
}

# A training step of a small model, every access checked. Failed calls are no errors here: some are meant to.
stage_sanitizer() {
  local dtype
  "$run" bash -c 'command -v compute-sanitizer' || { echo "no compute-sanitizer"; return 77; }
  for dtype in f32 bf16; do
    "$run" compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 "$PREBUILT/bin/fsdp" verify \
      "$PREBUILT/fixtures/models/gpt2" --dtype $dtype --backend cuda || return
  done
  echo "memcheck finds nothing in a small step in f32 and bf16"
}
