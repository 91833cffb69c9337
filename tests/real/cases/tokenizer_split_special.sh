# split_special_tokens
# why: with it transformers reads "</s>" in a text like any other text
# source: https://huggingface.co/docs/transformers/v4.57.1/main_classes/tokenizer
# before: the token was found in the text
# expect: 27 14 82 29
tokenizer tok
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "split_special_tokens": true}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok "</s>"
