# A comment and a key of another tool in DeepSpeed's file
# why: DeepSpeed reads the keys at the top that it knows; a typing error is an error all the same
# source: https://github.com/deepspeedai/DeepSpeed/blob/v0.18.2/deepspeed/runtime/config.py
# before: unknown key "_comment" of DeepSpeed
# expect: _comment: for eight GPUs (ds.json:1): DeepSpeed does not read it
# expect: comms_config.verbose: true (ds.json:2): DeepSpeed does not read it
# expect: unknown key "zero_optimizaton.stage" of DeepSpeed; the nearest is "zero_optimization.stage"
# status: 1
cat >ds.json <<'JSON'
{"_comment": "for eight GPUs", "train_batch_size": 8,
 "comms_config": {"verbose": true}, "compile": {"deepcompile": true}}
JSON
"$FSDP" adopt deepspeed ds.json
echo '{"zero_optimizaton": {"stage": 3}}' >mistyped.json
"$FSDP" adopt deepspeed mistyped.json
