#!/usr/bin/env bash
# The options of sharding and of a step, through fsdp train: which of them change nothing (the same
# model file, byte for byte), which change rounding, which change the result and how.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

head -200 "$SOURCE/tools/data/chess/train.jsonl" >train.jsonl
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 24, layers: 3, heads: 3, ffn: 40, dropout: 0.1}
data: {train: train.jsonl, sequence_length: 32}
train: {steps: 8, batch: 12, lr: 1e-2, log_every: 1, schedule: {kind: constant}}
YAML

# train RUN_DIR RANKS key=value...: keeps the output in RUN_DIR.log
train() {
  local directory=$1 ranks=$2; shift 2
  local keys=()
  for key in "$@"; do keys+=(--set "$key"); done
  local launch=("$FSDP" train --local-ranks "$ranks")
  # shellcheck disable=SC2206
  [ -n "${use_mpi:-}" ] && launch=($MPIRUN -n "$ranks" "$FSDP" train)
  "${launch[@]}" --config config.yaml --set "runtime.run_dir=$directory" "${keys[@]}" \
    >"$directory.log" 2>&1 || { fail "train $* ended with $?"; cat "$directory.log"; }
}
values() { grep -o "\"$2\":[^,}]*" "$1/metrics.jsonl" | cut -d: -f2; }
same_model() { cmp -s "$1/model/model.safetensors" "$2/model/model.safetensors"; }
# close RUN RUN LIMIT: losses of all steps
close() {
  paste <(values "$1" loss) <(values "$2" loss) | awk -v limit="$3" '
    { d = $1 - $2; if (d < 0) d = -d; if (d > limit * $1) bad = 1; n++ } END { exit bad || n != 8 }'
}

# ---- fixed order: the same bytes under every strategy, schedule and way to start -----------------
fixed=(fsdp.fixed_order=true train.rows_per_pass=3)  # on other numbers of ranks: fixed_order.sh
train fixed 4 "${fixed[@]}"
compare_fixed() {
  local name=$1; shift
  train "$name" 4 "${fixed[@]}" "$@"
  same_model fixed "$name" || fail "$*: not the bytes of full_shard"
}
for strategy in shard_grad_op shard_optimizer no_shard; do
  compare_fixed $strategy fsdp.strategy=$strategy
done
for strategy in hybrid_shard hybrid_shard_zero2; do
  compare_fixed $strategy fsdp.strategy=$strategy fsdp.shard_size=2
done
compare_fixed deep fsdp.prefetch_depth=2 fsdp.units_in_flight=3
compare_fixed late fsdp.forward_prefetch=false fsdp.backward_prefetch=none fsdp.units_in_flight=1
compare_fixed one_stream fsdp.separate_reduce=false fsdp.backward_prefetch=post
compare_fixed kept fsdp.reshard_after_forward=false
compare_fixed released fsdp.release_arena=true
compare_fixed kept_released fsdp.release_arena=true fsdp.strategy=shard_grad_op
compare_fixed hpz fsdp.reshard_group_size=2
compare_fixed one_unit fsdp.wrap=none
compare_fixed one_root fsdp.root=whole
compare_fixed mixed 'fsdp.units=[{match: "blocks.[01]", strategy: shard_optimizer},
  {match: head, reshard_after_forward: false}, {match: blocks.2, reshard_group_size: 2}]'
train sgd 4 "${fixed[@]}" train.optimizer.kind=sgd train.optimizer.momentum=0.9
train sgd_unsharded 4 "${fixed[@]}" train.optimizer.kind=sgd train.optimizer.momentum=0.9 \
  fsdp.strategy=no_shard
same_model sgd sgd_unsharded || fail "sgd: not the bytes of full_shard"
same_model sgd fixed && fail "sgd: the bytes of adamw"
compare_fixed synced fsdp.sync_module_states=true
compare_fixed selective train.recompute.mode=selective
compare_fixed full train.recompute.mode=full train.recompute.every=2
compare_fixed inputs_on_host train.recompute.mode=offload
if [ -n "${MPIRUN:-}" ]; then
  use_mpi=1 compare_fixed over_mpi fsdp.strategy=hybrid_shard fsdp.shard_size=2
else
  echo "[SKIP] options over MPI: no MPI"
fi

# ---- micro-steps: rounding only -------------------------------------------------------------------
# Without dropout: its masks belong to the micro-step.
train plain 2 model.dropout=0
for accumulation in reduce_each reduce_scatter_each reduce_last; do
  strategy=full_shard
  [ $accumulation = reduce_scatter_each ] && strategy=no_shard  # which has replicas
  train micro_$accumulation 2 model.dropout=0 train.micro_steps=3 fsdp.accumulation=$accumulation \
    fsdp.strategy=$strategy
  close plain micro_$accumulation 1e-5 || fail "micro-steps with $accumulation: other losses"
done
train wide 2 model.dropout=0 train.dtype=bf16 'fsdp.units=[{match: "*", param_dtype: f32}]'
close plain wide 0 || fail "every unit in f32: other losses than train.dtype: f32"
train narrow 2 model.dropout=0 'fsdp.units=[{match: blocks.1, param_dtype: bf16}]'
close plain narrow 0 && fail "a unit in bf16: the losses of f32"
close plain narrow 1e-2 || fail "a unit in bf16: other losses than f32"
train ranks 2 model.dropout=0 train.loss_mean=ranks  # rows are equally long
close plain ranks 1e-5 || fail "the mean over ranks of equal rows: other losses"

# ---- f16 with loss scaling ------------------------------------------------------------------------
train half 2 model.dropout=0 train.dtype=f16 train.loss_scale.initial=1e6
awk -v a="$(values half loss | head -1)" -v b="$(values half loss | tail -1)" 'BEGIN { exit !(b < 0.9 * a) }' ||
  fail "f16: the loss does not fall"
[ "$(values half skipped_steps | tail -1)" -gt 0 ] || fail "f16 with a scale of 1e6: no step skipped"
[ "$(values half loss_scale | tail -1 | cut -d. -f1)" -lt 1000000 ] || fail "the scale did not fall"

# ---- frozen parameters: the bytes of the start ----------------------------------------------------
train start 1 train.lr=0 train.steps=1 train.optimizer.weight_decay=0
train frozen 2 'train.freeze=["*.layers.0.*", "model.embed_tokens.weight"]'
"$FSDP" verify --help >/dev/null || fail "no verify"
changed=$(cmp -l start/model/model.safetensors frozen/model/model.safetensors | wc -l)
moved=$(cmp -l start/model/model.safetensors plain/model/model.safetensors | wc -l)
[ "$changed" -gt 0 ] && [ "$changed" -lt $((moved * 3 / 4)) ] ||
  fail "freezing a third of the model: $changed bytes differ from the start, without it $moved"

# ---- clipping by another norm ---------------------------------------------------------------------
train inf 2 train.clip_type=inf
awk -v a="$(values inf grad_norm | head -1)" -v b="$(values fixed grad_norm | head -1)" \
  'BEGIN { exit !(a < b / 3) }' || fail "the infinity norm is not smaller than the 2-norm"

# ---- the saved folder: dtype and size of files -----------------------------------------------------
dtypes() { "$FSDP" inspect "$1/model" --json | tr -d ' \n' | grep -o '"dtypes":{[^}]*' | grep -o '[A-Z0-9]*[0-9]"' | sort -u; }
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }
train bf16 1 train.lr=0 train.steps=1 train.optimizer.weight_decay=0 train.save_dtype=bf16 \
  train.max_shard_size=10KB
same "save_dtype" 'BF16"' "$(dtypes bf16)"
[ -f bf16/model/model.safetensors.index.json ] || fail "max_shard_size: one file: $(ls bf16/model)"
grep -q '"dtype": "bfloat16"' bf16/model/config.json || fail "config.json does not say bfloat16"
sed 's/^model: .*/model: {}/' config.yaml >onwards.yaml
onwards() {  # RUN_DIR key=value...: from the folder bf16/model
  local directory=$1; shift
  local keys=()
  for key in "$@"; do keys+=(--set "$key"); done
  "$FSDP" train --config onwards.yaml --set model.path=bf16/model --set "runtime.run_dir=$directory" \
    --set train.steps=1 --set train.lr=0 --set train.optimizer.weight_decay=0 "${keys[@]}" \
    >"$directory.log" 2>&1 || { fail "train from bf16: $?"; cat "$directory.log"; }
}
onwards same_dtype
same "the dtype of the folder that it came from" 'BF16"' "$(dtypes same_dtype)"
"$FSDP" convert bf16/model joined >/dev/null
cmp -s joined/model.safetensors same_dtype/model/model.safetensors || fail "bf16 changed without a step"
onwards wider train.save_dtype=f32
same "save_dtype over the folder's" 'F32"' "$(dtypes wider)"
"$FSDP" train --config config.yaml --set train.max_shard_size=huge --set runtime.run_dir=no >no.log 2>&1 &&
  fail "max_shard_size: huge is accepted"
grep -q 'train.max_shard_size: expected one like 5GB' no.log || fail "max_shard_size: $(cat no.log)"

[ "$failed" = 0 ] && echo "options of train: all is well"
exit "$failed"
