# A generation_config.json that is empty, or cut
# why: transformers takes config.json instead
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/modeling_utils.py (adjust_generation_fn)
# before: generation_config.json:1: malformed JSON, status 1
# expect: note: m/generation_config.json:1: malformed JSON
# expect: not used; config.json has what it would say
# expect: 8 8
# expect: new: gpt2
model m
: >m/generation_config.json
"$FSDP" generate m --ids 5 --tokens 2
printf '{"eos' >m/generation_config.json
"$FSDP" convert m new
