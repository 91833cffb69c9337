# A folder of version 5 of transformers, and a key that the class does not look at
# why: version 4.57 refuses this class; the folder can be read as PreTrainedTokenizerFast
# source: https://github.com/unslothai/unsloth/issues/8444
# before: not a word
# expect: note: tok/tokenizer.json: tokenizer_config.json names the tokenizer_class "TokenizersBackend"
# expect: add_bos_token: true has no effect
# expect: 256
tokenizer tok
echo '{"tokenizer_class": "TokenizersBackend", "add_bos_token": true, "bos_token": "the"}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok hi
