# Infinity, a key given twice and 0 for false in tokenizer_config.json
# why: Python's json writes the first, and reads all of them: of two values it takes the last
# source: https://docs.python.org/3/library/json.html#infinite-and-nan-number-values
# before: malformed JSON
# expect: note: tok/tokenizer.json: add_bos_token is 0: transformers takes it for false
# expect: 256
tokenizer tok
echo '{"tokenizer_class": "Qwen2Tokenizer", "tokenizer_class": "LlamaTokenizer", "model_max_length": Infinity,
 "bos_token": "the", "add_bos_token": 0}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok hi
