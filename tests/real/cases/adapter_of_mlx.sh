# An adapter of mlx-lm, and adapters of PEFT that began in another way
# why: mlx-lm's folder has an adapter_config.json of its own; an adapter keeps the settings of its first values
# source: https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/LORA.md
# source: https://huggingface.co/docs/peft/developer_guides/lora#initialization
# before: peft_type: missing; expected "LORA"; corda_config: {...} is not supported by this build
# expect: a/adapter_config.json: an adapter of mlx-lm (fine_tune_type and lora_parameters, no peft_type), and not of PEFT; mlx_lm.fuse --model some_model --adapter-path a --save-path NEW makes a model of both
# expect: no adapter_model.safetensors
# expect: init_lora_weights: "pissa" is not supported by this build: training began with a base that this method had changed
# expect: merge_and_unload().save_pretrained("NEW") makes a model of both
# status: 1
model m
mkdir a
cat >a/adapter_config.json <<'JSON'
{"adapter_path": "adapters", "batch_size": 2, "fine_tune_type": "lora", "iters": 100,
 "lora_parameters": {"rank": 8, "scale": 10.0, "dropout": 0.0}, "model": "some_model", "train": true}
JSON
: >a/adapters.safetensors
"$FSDP" generate a --base m --ids 5 --tokens 1
peft() {
  printf '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["c_attn"], %s}' "$1" >a/adapter_config.json
  "$FSDP" generate a --base m --ids 5 --tokens 1
}
peft '"init_lora_weights": "mica", "corda_config": {"corda_method": "ipm"}, "loftq_config": {"loftq_bits": 4}'
peft '"init_lora_weights": "pissa"'
