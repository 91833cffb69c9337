# added_tokens.json and special_tokens_map.json beside tokenizer.json, from an older version
# why: transformers adds their tokens where tokenizer_config.json has no added_tokens_decoder
# source: https://github.com/huggingface/tokenizers/issues/1422
# before: the tokens were cut into single bytes
# expect: 261 256 260
# expect: the
tokenizer tok
echo '{"tokenizer_class": "GPT2Tokenizer", "eos_token": "hi", "bos_token": "hi", "unk_token": "hi"}' >tok/tokenizer_config.json
echo '{"<|im_end|>": 260, "<|im_start|>": 261}' >tok/added_tokens.json
echo '{"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}' >tok/special_tokens_map.json
"$FSDP" tokenize --tokenizer tok "<|im_start|>hi<|im_end|>"
"$FSDP" tokenize --tokenizer tok --decode --no-special "261 258 260"
