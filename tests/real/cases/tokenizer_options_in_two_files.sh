# A token with lstrip in special_tokens_map.json that is in added_tokens.json, too
# why: transformers keeps the options of the object; added_tokens.json gives none
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/tokenization_utils_base.py
# before: lstrip had no effect, without a word
# expect: 256 260
# never: note
tokenizer tok
echo '{"tokenizer_class": "GPT2Tokenizer", "eos_token": "hi", "bos_token": "hi", "unk_token": "hi"}' >tok/tokenizer_config.json
echo '{"<mask>": 260}' >tok/added_tokens.json
echo '{"mask_token": {"content": "<mask>", "lstrip": true, "normalized": false}}' >tok/special_tokens_map.json
"$FSDP" tokenize --tokenizer tok "hi <mask>"
