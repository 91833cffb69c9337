#!/usr/bin/env bash
# train.master_dtype and train.optimizer.state_dtype: whole runs have the same bits on any ranks and under every
# strategy and offload, also after a resume on other ranks; the model is saved, an adapter is trained; memory as predicted.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"
source "$SOURCE/tests/support/fixed_order.sh"

text_and_config 12
narrow=(train.dtype=bf16 train.master_dtype=bf16 train.stochastic_rounding=true train.optimizer.state_dtype=bf16)
half=(train.dtype=f16 train.master_dtype=f16 train.optimizer.state_dtype=bf16)
run wide 1 train.dtype=bf16
run narrow 1 "${narrow[@]}"
[ "$(result narrow)" != "$(result wide)" ] || fail "the dtypes change nothing"
same narrow sharded 3 "${narrow[@]}"
same narrow replicas 4 fsdp.strategy=hybrid_shard fsdp.shard_size=2 "${narrow[@]}"
same narrow whole 2 fsdp.strategy=no_shard "${narrow[@]}"
same narrow on_host 2 fsdp.offload=all train.recompute.mode=offload "${narrow[@]}"
mkdir disk
same narrow in_file 2 fsdp.offload=nvme fsdp.offload_folder=disk train.recompute.mode=offload "${narrow[@]}"
run half 1 "${half[@]}"
same half half_on_host 3 fsdp.offload=optimizer "${half[@]}"
same half half_in_file 3 fsdp.offload=nvme fsdp.offload_folder=disk "${half[@]}"
run sgd 1 train.optimizer.kind=sgd train.optimizer.momentum=0.9 "${narrow[@]}"
same sgd sgd_sharded 2 train.optimizer.kind=sgd train.optimizer.momentum=0.9 "${narrow[@]}"
for kind in adamax adadelta; do
  other=(train.optimizer.kind=$kind "${narrow[@]}")
  run $kind 1 "${other[@]}"
  same $kind ${kind}_in_file 2 fsdp.offload=nvme fsdp.offload_folder=disk "${other[@]}"
done

# ---- a model and an adapter ----------------------------------------------------------------------
run saved 1 train.save=true "${narrow[@]}"
[ -s saved/model/model.safetensors ] || fail "no model was saved"
run adapter 2 model.path=saved/model lora.r=2 train.save=true "${narrow[@]}"
[ -s adapter/adapter/adapter_model.safetensors ] || fail "no adapter was saved"

# ---- across checkpoints --------------------------------------------------------------------------
run begun 2 train.steps=6 checkpoint.every=6 train.schedule.total=12 "${narrow[@]}"
"$FSDP" train --resume begun --local-ranks 3 --set train.steps=12 >begun.log 2>&1 ||
  { fail "resume on other ranks: status $?"; cat begun.log; }
[ "$(result begun)" = "$(result narrow)" ] || fail "resumed: $(result begun), not $(result narrow)"
"$FSDP" train --resume begun --local-ranks 1 --set train.steps=13 train.master_dtype=f32 >other.log 2>&1 &&
  fail "resumed with other masters"
grep -q 'train.master_dtype' other.log || fail "resume with other masters: $(cat other.log)"

# ---- memory ----------------------------------------------------------------------------------------
command -v python3 >/dev/null || echo "[SKIP] narrow state: memory: no python3"
for run in narrow sharded whole on_host in_file half half_on_host half_in_file sgd adamax adadelta_in_file; do
  command -v python3 >/dev/null || break
  python3 - $run/metrics.json <<'PY' || fail "$run: its memory was not predicted"
import json, sys
memory = json.load(open(sys.argv[1]))["memory"]
for place in ("", "_on_host", "_in_file"):
    if "predicted" + place not in memory: continue
    said, was = memory["predicted" + place], memory["ledger" + place]
    was["by_category"].pop("transport staging")
    assert said == was, (place, said, was)
PY
done

[ "$failed" = 0 ] && echo "narrow state: all is well"
exit "$failed"
