# Checkpoints of PyTorch, accelerate, DeepSpeed and Meta, with and without a config.json
# why: each program has its own way to export safetensors
# source: https://huggingface.co/docs/accelerate/usage_guides/fsdp
# source: https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/utils/zero_to_fp32.py
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/models/llama/convert_llama_weights_to_hf.py
# before: no model.safetensors or model.safetensors.index.json
# expect: fsdp0: a checkpoint of PyTorch's DCP
# expect: accelerate merge-weights fsdp0/pytorch_model_fsdp_0 NEW writes NEW/model.safetensors
# expect: accelerate merge-weights parts NEW
# expect: zero: a checkpoint of DeepSpeed
# expect: python zero/zero_to_fp32.py zero NEW --safe_serialization
# expect: python zero/zero_to_fp32.py zero NEW --safe_serialization
# expect: python ./zero_to_fp32.py . NEW --safe_serialization
# expect: python 'my zero/zero_to_fp32.py' 'my zero' NEW --safe_serialization
# expect: meta: a checkpoint of Meta's release of Llama
# expect: convert_llama_weights_to_hf.py --input_dir meta --output_dir NEW
# expect: 8 8
# never: no model.safetensors
mkdir -p fsdp0/pytorch_model_fsdp_0 parts zero/global_step5 meta
model whole
cp whole/config.json fsdp0
cp whole/config.json zero
: >fsdp0/pytorch_model_fsdp_0/__0_0.distcp
: >parts/__0_0.distcp
: >zero/global_step5/zero_pp_rank_0_mp_rank_00_model_states.pt
: >zero/zero_to_fp32.py
: >meta/consolidated.00.pth
: >meta/params.json
for folder in fsdp0 parts zero zero/global_step5; do "$FSDP" generate $folder --ids 5 --tokens 2; done
(cd zero && "$FSDP" generate global_step5 --ids 5 --tokens 2)
cp -r zero "my zero"
"$FSDP" generate "my zero" --ids 5 --tokens 2
"$FSDP" generate meta --ids 5 --tokens 2
cp zero/zero_to_fp32.py whole  # beside weights it says nothing
"$FSDP" generate whole --ids 5 --tokens 2
