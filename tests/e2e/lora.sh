#!/usr/bin/env bash
# LoRA from end to end: an adapter trained on 2 ranks in PEFT's layout, the same on one rank and
# unsharded; trained further, merged, used; and mistakes. Against another implementation:
# verify_models.sh.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S3.12.
source "$(dirname "$0")/../support/e2e.sh"

head -300 "$SOURCE/tools/data/chess/train.jsonl" >train.jsonl
cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 32, layers: 2, heads: 2}
data: {train: train.jsonl, sequence_length: 32}
train: {steps: 30, batch: 6, lr: 1e-2, log_every: 10, schedule: {kind: constant}}
YAML
# train RUN_DIR arguments...: runs, keeps the output in RUN_DIR.log
train() {
  local directory=$1; shift
  "$FSDP" train --config config.yaml --set "runtime.run_dir=$directory" "$@" >"$directory.log" 2>&1 ||
    { fail "train $* ended with $?"; cat "$directory.log"; }
}
values() { grep -o "\"$2\":[^,}]*" "$1/metrics.jsonl" | cut -d: -f2; }

for i in {1..60}; do echo "line $i of sixty lines, all of them alike"; done >lines.txt
train base
lora=(--set data.train=lines.txt --set model.path=base/model --set lora.r=4 --set lora.alpha=16 --set lora.dropout=0.1
  --set 'lora.targets=[c_attn, mlp.c_fc]')
train two "${lora[@]}" --local-ranks 2

# ---- what a run leaves ---------------------------------------------------------------------------
grep -q '^2,304 of 37,024 parameters are trained (' two.log ||
  fail "no word of what is trained: $(grep trained two.log)"
for file in adapter/adapter_config.json adapter/adapter_model.safetensors; do
  [ -s "two/$file" ] || fail "two/$file is missing"
done
[ -e two/model ] && fail "the whole model was saved"
grep -q "\"base_model_name_or_path\": \"$scratch/base/model\"" two/adapter/adapter_config.json ||
  fail "adapter_config.json: no base: $(cat two/adapter/adapter_config.json)"
grep -aq 'base_model.model.transformer.h.1.mlp.c_fc.lora_B.weight' \
  two/adapter/adapter_model.safetensors || fail "the tensors have other names than PEFT's"
mapfile -t losses < <(values two loss)
awk -v a="${losses[0]}" -v b="${losses[3]}" 'BEGIN { exit !(b < 0.9 * a) }' ||
  fail "the loss does not fall: ${losses[*]}"

# ---- ranks, strategies and recompute agree -------------------------------------------------------
exact=("${lora[@]}" --set train.dtype=f64)
train one "${exact[@]}"
train sharded "${exact[@]}" --local-ranks 2
train whole "${exact[@]}" --local-ranks 3 --set fsdp.strategy=no_shard
train again "${exact[@]}" --local-ranks 2 --set train.recompute.mode=full
for other in sharded whole; do
  paste <(values one loss; values one grad_norm) <(values $other loss; values $other grad_norm) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-9 * $1) bad = 1; n++ } END { exit bad || n != 8 }' ||
    fail "one rank and '$other' differ by more than 1e-9"
done
same "recompute" "$(values sharded loss)" "$(values again loss)"

# ---- from an adapter: trained further, merged, used ----------------------------------------------
train more --set data.train=lines.txt --set lora.path=two/adapter --set lora.dropout=0 \
  --set train.steps=1 --local-ranks 2
awk -v a="$(values more loss | head -1)" -v b="${losses[0]}" 'BEGIN { exit !(a < 0.9 * b) }' ||
  fail "training on from two/adapter starts with loss $(values more loss)"
train still --set data.train=lines.txt --set lora.path=two/adapter --set train.steps=1 --set train.lr=0
cmp two/adapter/adapter_model.safetensors still/adapter/adapter_model.safetensors ||
  fail "an adapter that was loaded and saved has other bytes"
cmp two/adapter/adapter_config.json still/adapter/adapter_config.json ||
  fail "an adapter's configuration changed"
"$FSDP" merge two/adapter merged >merge.log || fail "merge: $(cat merge.log)"
for ranks in 1 2; do
  same "text of the adapter and of the merged model" \
    "$("$FSDP" generate merged --prompt "line 4" --tokens 12 --dtype f64)" \
    "$("$FSDP" generate two/adapter --prompt "line 4" --tokens 12 --dtype f64 --local-ranks $ranks)"
done
[ "$("$FSDP" generate merged --ids 1,2,3 --tokens 12)" != \
  "$("$FSDP" generate base/model --ids 1,2,3 --tokens 12)" ] || fail "merging changes nothing"
train merged_on --set data.train=lines.txt --set model.path=merged --set train.steps=1
awk -v a="$(values merged_on loss)" -v b="$(values more loss)" \
  'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d < 1e-4 * a) }' ||
  fail "the merged model has loss $(values merged_on loss), base and adapter $(values more loss)"
"$FSDP" explain --config config.yaml "${lora[@]}" --world 2 | grep -q '^2,304 of 37,024 parameters' ||
  fail "explain does not say what is trained"

# ---- mistakes ------------------------------------------------------------------------------------
mistake "there are attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj" train --config config.yaml \
  "${lora[@]:0:10}" --set lora.targets=q_proj --local-ranks 2
mistake "lora.r: needs model.path" train --config config.yaml --set lora.r=2
mistake "lora.r: expected at least 0, got -1" train --config config.yaml --set lora.r=-1
mistake "an adapter is one file" train --config config.yaml "${lora[@]}" --set train.max_shard_size=1MB
mistake "give it as lora.path" train --config config.yaml --set model.path=two/adapter
mistake "no adapter_model.safetensors" generate \
  "$(mkdir -p bare && cp two/adapter/adapter_config.json bare && echo bare)" --ids 1
"$FSDP" merge two/adapter merged_shards --shards 2 --local-ranks 2 >/dev/null || fail "merge --shards"
"$FSDP" convert merged_shards merged_again >/dev/null || fail "convert of merged shards"
cmp -s merged/model.safetensors merged_again/model.safetensors || fail "merged shards differ"
"$FSDP" inspect two/adapter >inspect.log || fail "inspect of an adapter: $(cat inspect.log)"
grep -qE '^  parameters +2,304   of 4 layers: c_attn, mlp.c_fc' inspect.log ||
  fail "inspect of an adapter: $(grep -A4 LoRA inspect.log)"
mistake "a LoRA adapter, no model: fsdp merge adds it" convert two/adapter out
mistake "holds no adapter, so nothing can be merged" merge base/model out
mistake "merged: is there already" merge two/adapter merged
mistake "expected (4, 32), got (4, 24)" merge "$SOURCE/tests/fixtures/models/lora_gpt2" out --base base/model

[ "$failed" = 0 ] && echo "LoRA from end to end: all is well"
exit "$failed"
