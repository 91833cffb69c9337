#!/usr/bin/env bash
# runtime.memory_limit: a run takes what was predicted and no more. Under a limit equal to the
# prediction random configurations train; at 97 % of it they are refused, and the first change that
# the refusal names makes them fit. Then what a new user meets: a model that is too large, and little
# address space.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), CASES how many (4),
# SEED of the configurations.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..400}; do echo "a line of text, number $i, of a text that has enough for any batch"; done >text.txt
RANDOM=${SEED:-15}
one_of() { shift $((RANDOM % $#)); chosen=$1; }
# A configuration, and in $ranks on how many ranks.
random_config() {
  local strategy recompute fsdp="" validation="" evaluates=0 every=0
  one_of 1 2 2 3; ranks=$chosen
  one_of full_shard shard_grad_op shard_optimizer no_shard; strategy=$chosen
  one_of none none selective full offload; recompute=$chosen
  if [ "$strategy" = full_shard ]; then one_of "" "units_in_flight: 3," "wrap: none,"; fsdp=$chosen; fi
  one_of none none optimizer all; fsdp+=" offload: $chosen,"
  one_of 0 2 5; evaluates=$chosen
  [ "$evaluates" = 0 ] || { one_of 0 1 2; every=$chosen; validation="validation: text.txt,"; }
  {
    one_of llama gpt2 bloom qwen2; echo "model: {model_type: $chosen, heads: 4"
    one_of 32 64 96 128; echo "  , hidden_size: $chosen"
    one_of 2 3 5; echo "  , layers: $chosen}"
    one_of 32 64 100; echo "data: {train: text.txt, $validation sequence_length: $chosen}"
    one_of 15 16 18; echo "train: {steps: 3, eval_batches: $evaluates, eval_every: $every, recompute: {mode: $recompute}, batch: $chosen"
    one_of 1 1 2 3 5; echo "  , micro_steps: $chosen"
    one_of f32 f32 bf16 f16; echo "  , dtype: $chosen}"
    one_of false false true; echo "fsdp: {$fsdp strategy: $strategy, release_arena: $chosen}"
  } >config.yaml
}
train() {
  local log=$1; shift
  rm -rf run
  "$FSDP" train --config config.yaml --local-ranks "$ranks" --set runtime.run_dir=run "$@" >"$log" 2>&1
}
total() { grep -o '"total":[0-9]*' | cut -d: -f2; }

trained=0 refused=0 followed=0 planned_ms=0 slowest_ms=0 cases=${CASES:-4}
for ((n = 0; n < cases; ++n)); do
  random_config
  needed=$("$FSDP" memory --config config.yaml --world "$ranks" --json | total)
  [ -n "$needed" ] || { fail "no prediction: $(cat config.yaml)"; continue; }
  if train log --memory-limit "$needed"; then
    trained=$((trained + 1))
  else
    fail "under the limit $needed that was predicted, on $ranks ranks: $(cat log config.yaml)"
  fi
  limit=$((needed * 97 / 100)) begin=$(date +%s%N)
  train log --memory-limit $limit; status=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  planned_ms=$((planned_ms + took))
  [ $took -le $slowest_ms ] || slowest_ms=$took
  if [ $status = 12 ] && grep -q '^fsdp: this run needs .* per rank, the limit is .* (runtime.memory_limit)$' log; then
    refused=$((refused + 1))
  else
    fail "at 97 % of $needed on $ranks ranks: status $status: $(cat log config.yaml)"
  fi
  [ ! -e run ] || fail "a refused run has left a directory"
  change=$(sed -n 's/^  fits with \(--set [^:]*\): .*/\1/p' log | head -1)
  [ -n "$change" ] || { fail "no change at 97 % of $needed on $ranks ranks: $(cat log config.yaml)"; continue; }
  # shellcheck disable=SC2086  # several flags
  if train log $change --memory-limit $limit; then
    followed=$((followed + 1))
  else
    fail "with $change at 97 % of $needed on $ranks ranks: $(cat log config.yaml)"
  fi
done
echo "$cases configurations: $trained trained under the limit that was predicted; at 97 % of it" \
  "$refused were refused and $followed of the first changes fit;" \
  "a refusal took $((planned_ms / cases)) ms on average, $slowest_ms ms at the most"

# ---- too large for the machine: at once, with what it needs, before the text is read -----------------
cat >config.yaml <<'YAML'
model: {preset: llama2-70b}
data: {train: text.txt, sequence_length: 64}
train: {steps: 2, batch: 6}
YAML
ranks=2
train log --set data.cache_dir=cache --set train.batch=2 --set data.sequence_length=16
[ $? = 12 ] || fail "a model that no machine holds: $(cat log)"
grep -qE '^fsdp: this run needs [0-9.]+ GiB per rank, the limit is [0-9.]+ [GM]iB \(.* for 2 ranks, less .* for the program itself\)$' log ||
  fail "what it needs, and what there is: $(cat log)"
grep -q '^  no change was found that makes it fit; the least: ' log || fail "the least: $(cat log)"
[ ! -e run ] && [ ! -e cache ] || fail "a refused run has left something"
# Rows, whose number and lengths only the text says, too: one of them is too much.
train log --set data.cache_dir=cache data.pack=examples data.pad_to=longest train.batch=2 data.sequence_length=16
[ $? = 12 ] || fail "rows for a model that no machine holds: $(cat log)"
[ ! -e run ] && [ ! -e cache ] || fail "rows were tokenised for a run that cannot be"
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 64, layers: 3, heads: 4}
data: {train: text.txt, sequence_length: 64}
train: {steps: 2, batch: 6}
YAML
train log --memory-limit 1.5XB && fail "a limit that is none"
grep -q '^fsdp: --memory-limit 1.5XB: runtime.memory_limit: expected auto or a size like 300MB or 2GiB, got "1.5XB"$' log ||
  fail "a limit that is none: $(cat log)"
train log --memory-limit 1000000; [ $? = 12 ] || fail "--memory-limit 1000000: $(cat log)"
if [ -n "${MPIRUN:-}" ]; then
  $MPIRUN -n 2 "$FSDP" train --config config.yaml --threads 1 --memory-limit 1000000 >log 2>&1
  [ $? = 12 ] || fail "status of a refusal under mpirun: $(cat log)"
  [ "$(grep -c '^fsdp: this run needs' log)" = 1 ] || fail "a refusal under mpirun is said once: $(cat log)"
fi

# ---- fsdp memory: what it prints, and mistakes -------------------------------------------------------
"$FSDP" memory --config config.yaml --world 2 --fit 3.5MB >log || fail "memory: $(cat log)"
for line in '^  in all  *[0-9.]*$' '^  the most: in ' '^largest tensors then' '^  as it is ' '^  4 ranks ' \
  '^does not fit: 3.34 MiB of the machine for a rank; ' '^fits with --set .* [mu]*s a step (the same'; do
  grep -q "$line" log || fail "memory has no line '$line': $(cat log)"
done
"$FSDP" memory --config config.yaml --world 2 --gpu L40 >log
grep -q "^fits: 44.40 GiB of L40, less 600.00 MiB for CUDA's context and 800.00 MiB for NCCL (assumed); " log && grep -q '^time: predicted, on an L40, ' log ||
  fail "memory --gpu: $(cat log)"
"$FSDP" memory --config config.yaml --device-gib 1.5 | grep -q "^fits barely: 1.50 GiB of a GPU, less 600.00 MiB for " || fail "--device-gib"
for size in 8GiB 60GiB; do  # in seconds, however many changes there are to try
  begin=$SECONDS
  "$FSDP" memory --model llama2-70b --world 8 --fit $size --set train.batch=8 data.sequence_length=2048 >log || fail "--fit $size: $(cat log)"
  [ $((SECONDS - begin)) -le 20 ] || fail "--fit $size took $((SECONDS - begin)) s"
done
grep -q '^fits with ' log || fail "--fit 60GiB: $(tail -2 log)"
# refused 'what is said' options...
refused() {
  local expected=$1; shift
  "$FSDP" memory "$@" >log 2>&1 && fail "memory $* is no mistake"
  [ "$(wc -l <log)" = 1 ] && grep -q "^fsdp: .*$expected" log || fail "memory $*: $(cat log)"
}
refused 'expected one of V100-16, V100-32, .* got "A100"; near: A100-40, A100-80' --gpu A100
refused 'expected a size like 80GiB or 1.5GB, got 24' --fit 24
refused 'expected a size like 80GiB or 1.5GB, got 1.5XB' --fit 1.5XB
refused 'a formula takes numbers (--number), not a configuration' --formula zero --config config.yaml
refused 'excludes' --formula zero --world 2
refused 'requires --formula' --number psi=1
refused 'excludes' --gpu H100 --device-gib 3

# ---- a control group of version 1 or 2: what fits trains in it, what does not is refused by its name ---
parent=/sys/fs/cgroup
[ ! -d $parent/memory ] || parent=$parent/memory
group=$parent/fsdp_memory_limit.$$
in_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$FSDP" train --config config.yaml --set runtime.run_dir=run "$@") >log 2>&1; }
limit_file=memory.max
mkdir "$group" 2>/dev/null && { [ -e "$group/$limit_file" ] || limit_file=memory.limit_in_bytes; }
if { echo 200M >"$group/$limit_file"; } 2>/dev/null; then
  rm -rf run
  in_group || fail "a run in a control group of 200 MB: $(cat log)"
  rm -rf run
  in_group --set model.hidden_size=512 model.layers=8; status=$?
  [ $status = 12 ] && grep -q "of $limit_file of the control group /.*fsdp_memory_limit.$$, less " log ||
    fail "a run that is too large for its control group: status $status: $(cat log)"
else
  echo "[SKIP] control group: none with a limit of memory can be made here"
fi
[ ! -d "$group" ] || rmdir "$group" || fail "the control group cannot be removed"

# ---- ulimit -v: a run, or one clear line; never a signal ----------------------------------------------
for kib in 60000 80000 100000 120000 140000 160000 180000 200000 225000 250000 275000 300000; do
  rm -rf run
  (ulimit -v $kib; "$FSDP" --version) >log 2>&1 || continue  # the loader's own limit
  (ulimit -v $kib; exec "$FSDP" train --config config.yaml --set runtime.run_dir=run >log 2>&1)
  status=$?
  [ $status -lt 126 ] || fail "ulimit -v $kib: status $status: $(cat log)"
  [ $status = 0 ] || grep -q '^fsdp: .' log || fail "ulimit -v $kib: no word: $(cat log)"
done
[ $status = 0 ] || fail "ulimit -v $kib is not enough: $(cat log)"

[ "$failed" = 0 ] && echo "memory limit: what was predicted is what a run takes"
exit "$failed"
