# A model with several chat templates, code of its own and a licence
# why: transformers 4.52 and later saves further templates as files; a licence asks to be passed on
# source: https://github.com/huggingface/transformers/pull/36588
# before: additional_chat_templates, auto_map's modules and the licence were lost without a word
# expect: convert: 6
# expect: train: 6
# expect: checkpoint: 6
# expect: merge: 6
model src
tokenizer src
mkdir src/additional_chat_templates
echo usual >src/chat_template.jinja
echo tools >src/additional_chat_templates/tool_use.jinja
for file in LICENSE USE_POLICY.md README.md configuration_x.py; do echo "$file" >src/$file; done
sed -i 's/^{/{"auto_map": {"AutoConfig": "configuration_x.XConfig"},/' src/config.json
kept() {
  echo "$1: $(cd "$2" && ls chat_template.jinja additional_chat_templates/tool_use.jinja LICENSE USE_POLICY.md \
    README.md configuration_x.py 2>/dev/null | wc -l)"
}
"$FSDP" convert src converted --dtype bf16 && kept convert converted
printf '!"#$%%&!"#$%%&!"#$%%&!"#$%%&' >text.txt
train() { "$FSDP" train --model src --batch 2 --steps 1 --set data.train=text.txt data.sequence_length=8 runtime.monitor_s=0 "$@"; }
train --set runtime.run_dir=run checkpoint.every=1 && kept train run/model
"$FSDP" convert run/checkpoints/step-1 again && kept checkpoint again
train --set runtime.run_dir=lora lora.r=2 && "$FSDP" merge lora/adapter merged && kept merge merged
