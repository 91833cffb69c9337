# A folder without tokenizer_config.json: model_type of config.json names the class
# why: LlamaTokenizer puts its <s> before a text, GPTNeoXTokenizer does not
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/models/auto/tokenization_auto.py
# before: no <s>, without a word
# expect: 260 256
# expect: 256
# never: note
tokenizer tok '{"id": 260, "content": "<s>", "lstrip": false, "rstrip": false, "normalized": false, "single_word": false, "special": true}'
echo '{"model_type": "mistral"}' >tok/config.json
"$FSDP" tokenize --tokenizer tok hi
echo '{"model_type": "gpt_neox"}' >tok/config.json
"$FSDP" tokenize --tokenizer tok hi
