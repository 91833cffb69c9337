# A base model that is trained with the tokenizer of its chat version
# why: every answer is trained to end with that tokenizer's eos_token, so the saved model must end there, too
# source: https://github.com/huggingface/open-r1/issues/663
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/trainer.py (_align_special_tokens)
# before: config.json and generation_config.json as they were: transformers' generate() never stopped
# expect: note: eos_token_id: 5 (config.json 8, generation_config.json 8): the tokenizer's is written
# expect: trained [5,8] 5
# expect: of its checkpoint [5,8] 5
# expect: the adapter has no such files, fsdp merge writes them so
# expect: merged [5,8] 5
# expect: converted [5,8] 5
# expect: converted once more: the same
model base llama_linear_tied
tokenizer tok
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "&", "pad_token": "!"}' >tok/tokenizer_config.json
ends() { echo "$1 $(for file in generation_config config; do
  tr -d ' \n' <"$2/$file.json" | sed 's/.*"eos_token_id":\(\[[^]]*\]\|[0-9]*\).*/\1/'; echo; done | xargs)"; }
sed -i 's/"eos_token_id": *[0-9]*/"eos_token_id": 8/' base/config.json
echo '{"eos_token_id": 8}' >base/generation_config.json
printf '{"q": "!", "r": "\\""}\n{"q": "#", "r": "$"}\n' >rows.jsonl
printf '{q}{>answer}{r}' >t.template
run() {
  "$FSDP" train --model base --batch 2 --steps 1 --set data.tokenizer=tok data.train=rows.jsonl \
    data.template=t.template data.objective=sft data.sequence_length=8 runtime.monitor_s=0 "$@"
}
run --set runtime.run_dir=run checkpoint.every=1
ends trained run/model
"$FSDP" convert run/checkpoints/step-1 again >log && ends "of its checkpoint" again
run --set runtime.run_dir=lora lora.r=2
"$FSDP" merge lora/adapter merged >log && ends merged merged
cp tok/* base
"$FSDP" convert base new
ends converted new
"$FSDP" convert new twice && cmp new/config.json twice/config.json &&
  cmp new/generation_config.json twice/generation_config.json && echo "converted once more: the same"
