# Tokens that only added_tokens_decoder of tokenizer_config.json has
# why: transformers adds them in the order of their numbers, after the tokens of tokenizer.json
# source: https://github.com/microsoft/onnxruntime-extensions/pull/890
# before: the tokens were cut into single bytes
# expect: 261 256 260
tokenizer tok
cat >tok/tokenizer_config.json <<'X'
{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "added_tokens_decoder": {
  "261": {"content": "<|im_start|>", "lstrip": false, "normalized": false, "rstrip": false, "special": true},
  "260": {"content": "<|im_end|>", "lstrip": false, "normalized": false, "rstrip": false, "special": true}}}
X
"$FSDP" tokenize --tokenizer tok "<|im_start|>hi<|im_end|>"
