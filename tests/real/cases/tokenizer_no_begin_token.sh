# A class that adds a begin token that there is none of
# why: transformers raises: add_bos_token = True but bos_token = None
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/models/llama/tokenization_llama_fast.py
# before: bos_token: expected a string, got null
# expect: bos_token: LlamaTokenizer adds it, but there is none
# status: 1
tokenizer tok
echo '{"tokenizer_class": "LlamaTokenizer", "bos_token": null}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok hi
