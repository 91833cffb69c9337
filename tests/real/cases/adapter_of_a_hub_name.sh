# An adapter whose base is a name on the hub, and one whose weights are a pickle
# why: nothing is downloaded; --base says where the model is
# source: https://huggingface.co/docs/peft/developer_guides/checkpoint
# before: base_model_name_or_path: "org/name": no such folder with a config.json
# expect: a/adapter_config.json: base_model_name_or_path: "org/name": no such folder with a config.json: --base FOLDER says where
# expect: a/adapter_model.bin: a pickle, which is not read; in Python, safetensors.torch.save_file(torch.load("a/adapter_model.bin"
# status: 1
model m
mkdir a
cat >a/adapter_config.json <<'JSON'
{"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "org/name", "r": 2,
 "lora_alpha": 4, "target_modules": ["c_attn"], "fan_in_fan_out": true}
JSON
printf '\x80\x02}q\0.' >a/adapter_model.bin
"$FSDP" generate a --ids 5 --tokens 1
"$FSDP" generate a --base m --ids 5 --tokens 1
