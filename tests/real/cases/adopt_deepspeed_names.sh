# DeepSpeed's keys of stage 3 without stage3_
# why: its models take the names of attributes, too (populate_by_name)
# source: https://github.com/axolotl-ai-cloud/axolotl/tree/main/deepspeed_configs
# before: unknown key "zero_optimization.max_live_parameters" of DeepSpeed
# expect: strategy: full_shard
# expect: zero_optimization.max_reuse_distance: 0
cat >zero3.json <<'JSON'
{"zero_optimization": {"stage": 3, "max_live_parameters": 0, "max_reuse_distance": 0,
  "gather_16bit_weights_on_model_save": true}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2}
JSON
"$FSDP" adopt deepspeed zero3.json
